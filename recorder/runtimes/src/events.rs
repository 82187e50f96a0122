//! The recorder, and the types of events that are raised next to enters and leaves.
#![expect(unsafe_code, reason = "the types are reached through one pointer")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use annals_recorder::names::element;
use annals_recorder::{
    EventType, EventTypeSpec, Recorder, Result, Role, SourceId, SourceSpec, say,
};

use crate::constructs;

/// The recorder, and types of events that it has. Never freed.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) recorder: &'static Recorder,
    /// The recorder's number.
    pub(crate) number: u32,
    /// The source of ends that this library adds to threads that do not raise any more.
    pub(crate) ends: SourceId,
    /// Number of threads of the team that the thread has started.
    pub(crate) team: EventType<(u32,)>,
    /// Lock.
    pub(crate) acquire: EventType<(u64,)>,
    /// Lock.
    pub(crate) release: EventType<(u64,)>,
    /// Task, and whether it depends on others.
    pub(crate) create: EventType<(u64, u32)>,
    /// Task, address, and kind of dependence.
    pub(crate) depend: EventType<(u64, u64, u32)>,
    /// Task.
    pub(crate) begin: EventType<(u64,)>,
    /// Task, and how the thread has left it.
    pub(crate) end: EventType<(u64, u32)>,
}

/// Null until a runtime is recorded.
static EVENTS: AtomicPtr<Events> = AtomicPtr::new(null_mut());

impl Events {
    fn add(recorder: &'static Recorder) -> Result<Self> {
        let spec = |name: &str, description: &str, role| {
            let spec = EventTypeSpec::new(name);
            spec.description(description).role(role)
        };
        let lock = |name, description, role| {
            recorder.add_event_type(&spec(name, description, role).element(element::LOCK_ID))
        };
        let task = |name, description| spec(name, description, Role::Point).element("task");
        let ends = SourceSpec::ordered("openmp-ends")
            .description("ends of constructs that a runtime has not reported");
        Ok(Self {
            recorder,
            number: recorder.number(),
            ends: recorder.add_source(&ends)?,
            team: recorder.add_event_type(
                &spec("openmp.team", "a team of threads begins", Role::Point).element(element::SIZE),
            )?,
            acquire: lock("openmp.acquire", "a thread has a lock", Role::Acquire)?,
            release: lock("openmp.release", "a lock is free", Role::Release)?,
            create: recorder.add_event_type(
                &task("openmp.task_create", "a task is created").element("has_dependences"),
            )?,
            depend: recorder.add_event_type(
                &task(
                    "openmp.task_dependence",
                    "the task depends on others by an address; kind: 1 in, 2 out, 3 inout, 4 mutexinoutset, others: omp-tools.h",
                )
                .element("address")
                .element("kind"),
            )?,
            begin: recorder
                .add_event_type(&task("openmp.task_begin", "the thread executes a task from here"))?,
            end: recorder.add_event_type(
                &task(
                    "openmp.task_end",
                    "the thread does not execute the task any more; status: 1 complete, 2 yield, 3 cancel, 4 detach, 7 switch",
                )
                .element("status"),
            )?,
        })
    }
}

/// Starts the recorder, if it is not started. Returns whether it is.
pub(crate) fn start() -> bool {
    annals_instrument::set_constructs(constructs::ALL);
    annals_instrument::recorder().is_some_and(|recorder| begin(recorder).is_some())
}

/// Returns the recorder of this process and its types, or `None` while nothing is recorded.
#[inline(always)]
pub(crate) fn get() -> Option<&'static Events> {
    // SAFETY: null, or leaked by `begin`.
    let events = unsafe { EVENTS.load(Ordering::Acquire).as_ref() }?;
    let recorder = annals_instrument::started()?;
    if std::ptr::eq(events.recorder, recorder) {
        return Some(events);
    }
    // A forked child has its own.
    begin(recorder)
}

#[cold]
#[inline(never)]
fn begin(recorder: &'static Recorder) -> Option<&'static Events> {
    match Events::add(recorder) {
        Ok(events) => {
            let events = Box::leak(Box::new(events));
            EVENTS.store(events, Ordering::Release);
            Some(events)
        }
        Err(error) => {
            say(format_args!("OpenMP is not recorded: {error}"));
            EVENTS.store(null_mut(), Ordering::Release);
            None
        }
    }
}
