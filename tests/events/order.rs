//! An ordered source whose events several threads raise, with a clock that cannot distinguish them.

use std::sync::Mutex;
use std::time::Instant;

use annals_recorder::events::{
    Attach, Callback, Datatype, EventTypeSpec, Info, Runtime, Safety, Source, SourceSpec, Value,
    attach,
};
use annals_recorder::{Options, Recorder};

use crate::attach::read;

const RAISES: i32 = 20_000;

/// Raises numbers in order, by four threads in unpredictable turns.
fn raise_from_threads(runtime: &Runtime, source: &Source) {
    let spec = EventTypeSpec::new("raised").element("number", Datatype::Int);
    let event = &runtime.add_event_type(&spec).unwrap();
    let next = &Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                loop {
                    let mut number = next.lock().unwrap();
                    if *number == RAISES {
                        return;
                    }
                    event
                        .raise(source, Safety::None, &[Value::Int(*number)])
                        .unwrap();
                    *number += 1;
                    drop(number);
                    std::thread::yield_now();
                }
            });
        }
    });
}

/// Returns a clock that moves on every 2 ms only, and says nanoseconds or what else its rate is.
fn coarse(ticks_per_second: u64) -> impl Fn() -> u64 + Send + Sync + 'static {
    let start = Instant::now();
    move || {
        let steps = start.elapsed().as_millis() as u64 / 2;
        steps * ticks_per_second / 500
    }
}

#[test]
fn merged_streams_of_a_sequenced_source_give_the_order_of_the_raises() {
    for ticks_per_second in [1_000, 1_000_000, 1_000_000_000] {
        let scratch = tempfile::tempdir().unwrap();
        let recorder = Recorder::start(&Options::new(scratch.path())).unwrap();
        let runtime = Runtime::new();
        let spec = SourceSpec::ordered("queue")
            .ticks_per_second(ticks_per_second)
            .clock(coarse(ticks_per_second))
            .sequenced();
        let source = runtime.add_source(&spec).unwrap();
        let attachment = attach(&runtime, &recorder, &Attach::new()).unwrap();
        raise_from_threads(&runtime, &source);
        drop(attachment);
        let status = recorder.finish();
        assert_eq!((status.raised, status.dropped), (RAISES as u64, 0));
        let seen = read(&status.path);
        let numbers = seen.events.iter().map(|(_, _, values)| values[0].clone());
        let in_order = (0..RAISES).map(|number| format!("I32({number})"));
        assert!(numbers.eq(in_order), "at {ticks_per_second} ticks a second");
        assert!(
            seen.opened.definitions().streams.len() > 2,
            "several threads' streams"
        );
    }
}

#[test]
fn timestamps_of_a_sequenced_source_only_grow() {
    let runtime = Runtime::new();
    let spec = SourceSpec::ordered("queue")
        .clock(|| 7)
        .ticks_per_second(1000)
        .sequenced();
    let source = runtime.add_source(&spec).unwrap();
    let scaled = runtime.source_info(0).unwrap().ticks_per_second;
    assert!(scaled > 1_000_000 && scaled <= 250_000_000, "{scaled}");
    let event = runtime
        .add_event_type(&EventTypeSpec::new("event"))
        .unwrap();
    let registration = runtime.handle_alloc(0, None, &Info::new()).unwrap();
    let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
    let told = std::sync::Arc::clone(&seen);
    let callback = Callback::new(move |instance, _, _| {
        told.lock().unwrap().push(instance.timestamp().unwrap());
    });
    runtime
        .register_callback(registration, Safety::None, &Info::new(), Some(callback))
        .unwrap();
    (0..100).for_each(|_| event.raise(&source, Safety::None, &[]).unwrap());
    let seen = seen.lock().unwrap();
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(seen[0], 7 * scaled / 1000);
    assert!(runtime.source_timestamp(0).unwrap() >= seen[99]);
}
