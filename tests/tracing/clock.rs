//! A clock of the program's that raises events itself. Alone in its process: other subscribers would have
//! its callsites registered.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals_recorder::{ClockSpec, EventTypeSpec, SourceSpec};
use support::{dropped, events};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::{info, info_span};
use tracing_subscriber::layer::SubscriberExt;

/// The recorder's threads read such a clock, too, with the recorder's tables locked.
#[test]
fn a_clock_may_raise_events_itself() {
    static IS_LOUD: AtomicBool = AtomicBool::new(false);
    static TICKS: AtomicU64 = AtomicU64::new(0);
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = annals_recorder::Options::new(directory.path());
    options.calibration_period = std::time::Duration::from_millis(1);
    let recorder = annals_recorder::Recorder::start(&options).expect("a recorder");
    let layer = annals_tracing::AnnalsLayer::new(&recorder).expect("a layer");
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(layer));
    let loud = dispatch.clone();
    let clock = ClockSpec::readable("loud", 1_000_000_000, move || {
        if IS_LOUD.load(Ordering::Relaxed) {
            // With a new callsite, and one that is known.
            with_default(&loud, || info_span!("reads").in_scope(|| info!("read")));
        }
        TICKS.fetch_add(1, Ordering::Relaxed)
    });
    let clock = recorder.add_clock(&clock).expect("a clock");
    let source = SourceSpec::unordered("loud").clock(clock);
    let source = recorder.add_source(&source).expect("a source");
    let mark = recorder
        .add_event_type::<(u64,)>(&EventTypeSpec::new("mark").element("number"))
        .expect("an event type");
    IS_LOUD.store(true, Ordering::Relaxed);
    for number in 0..100 {
        recorder.raise_on(source, &mark, (number,));
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    IS_LOUD.store(false, Ordering::Relaxed);
    // Outside of the clock, the callsite can be defined.
    with_default(&dispatch, || drop(info_span!("outside")));
    let path = recorder.finish().path;
    let events = events(&path);
    let of = |name: &str| events.iter().filter(|event| event.name == name).count();
    assert_eq!(of("mark"), 100);
    assert_eq!(of("tracing.new.info"), 1);
    assert!(dropped(&path, "tracing.unrecorded") >= 5 * 100);
}
