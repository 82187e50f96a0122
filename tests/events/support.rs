//! A producer with one source and one event type, and a tool that notes everything it receives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use annals_recorder::events::{
    Callback, Datatype, EventType, EventTypeSpec, Info, Registration, Runtime, Safety, Source,
    SourceSpec, Value,
};

/// A clock that the test sets.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn set(&self, tick: u64) {
        self.0.store(tick, Ordering::SeqCst);
    }

    pub(crate) fn read(&self) -> impl Fn() -> u64 + Send + Sync + 'static + use<> {
        let clock = Arc::clone(&self.0);
        move || clock.load(Ordering::SeqCst)
    }
}

pub(crate) struct Producer {
    pub(crate) runtime: Runtime,
    pub(crate) clock: TestClock,
    pub(crate) source: Source,
    pub(crate) event: EventType,
}

/// Returns a runtime with the source `source` and the event type `event`, of one `MPI_INT`.
pub(crate) fn producer() -> Producer {
    let runtime = Runtime::new();
    let clock = TestClock::default();
    let source = runtime
        .add_source(
            &SourceSpec::ordered("source")
                .clock(clock.read())
                .buffered(4),
        )
        .unwrap();
    let event = runtime
        .add_event_type(&EventTypeSpec::new("event").element("number", Datatype::Int))
        .unwrap();
    Producer {
        runtime,
        clock,
        source,
        event,
    }
}

impl Producer {
    pub(crate) fn register(&self) -> Registration {
        self.runtime
            .handle_alloc(self.event.index(), None, &Info::new())
            .unwrap()
    }

    pub(crate) fn raise(&self, required: Safety, number: i32) {
        self.event
            .raise(&self.source, required, &[Value::Int(number)])
            .unwrap();
    }

    /// Has a registration call back to the diary, at a level.
    pub(crate) fn note(&self, registration: Registration, level: Safety, diary: &Diary) {
        let callback = Some(diary.callback(level));
        self.runtime
            .register_callback(registration, level, &Info::new(), callback)
            .unwrap();
    }

    /// Notes a registration's drops in the diary.
    pub(crate) fn note_drops(&self, registration: Registration, diary: &Diary) {
        let diary = diary.clone();
        self.runtime
            .set_dropped_handler(
                registration,
                Some(move |dropped: &annals_recorder::events::Dropped| {
                    let (count, required) = (dropped.count, dropped.required);
                    diary.write(format!(
                        "dropped {count} of source {} in {required:?}",
                        dropped.source
                    ));
                }),
            )
            .unwrap();
    }
}

/// What was reported, in this order.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn write(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    /// Returns all lines since the last time.
    pub(crate) fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Writes down the number, the level of the callback, and what the context requires.
    pub(crate) fn callback(&self, level: Safety) -> Callback {
        let diary = self.clone();
        Callback::new(move |instance, _, required| {
            let Ok(Value::Int(number)) = instance.read(0) else {
                panic!("one number");
            };
            diary.write(format!("{number} at {level:?} in {required:?}"));
        })
    }
}
