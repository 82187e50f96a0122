//! `raised = recorded + dropped` for every event type, whatever happens.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use annals_merger::{Reader, Sums};
use annals_recorder::{Blob, EventTypeSpec, Options, Recorder};

/// Threads raise three event types as fast as they can into a buffer of a few pages; nothing blocks,
/// and every event is recorded or counted as dropped under its own type.
#[test]
fn overload_of_an_exhausted_pool_is_counted_by_type_and_never_blocks() {
    const THREADS: u64 = 12;
    const EVENTS: u64 = 60_000;
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    options.buffer_bytes = 1;
    let recorder = Recorder::start(&options).expect("a recorder");
    let small = EventTypeSpec::new("small").element("number");
    let small = recorder
        .add_event_type::<(u64,)>(&small)
        .expect("an event type");
    let wide = EventTypeSpec::new("wide")
        .element("a")
        .element("b")
        .element("c");
    let wide = recorder
        .add_event_type::<(u64, i64, f64)>(&wide)
        .expect("an event type");
    let large = EventTypeSpec::new("large").element("bytes");
    let large = recorder
        .add_event_type::<(Blob,)>(&large)
        .expect("an event type");
    let region = recorder.add_region("work").expect("a region");
    let bytes = vec![7_u8; 8000];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (recorder, bytes) = (&recorder, &bytes);
            scope.spawn(move || {
                for number in 0..EVENTS {
                    recorder.enter(region);
                    recorder.raise(&small, (number,));
                    if number % 7 == thread % 7 {
                        recorder.raise(&wide, (number, -1, 0.5));
                    }
                    if number % 1000 == 0 {
                        // More than a page: never recorded.
                        recorder.raise(&large, (&bytes[..],));
                    }
                    recorder.leave(region);
                }
            });
        }
    });
    let took = start.elapsed();
    let status = recorder.finish();
    assert!(
        took < Duration::from_secs(60),
        "an exhausted pool blocks nobody"
    );
    assert_eq!(status.misused, 0);

    let opened = Reader::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let d = opened.definitions();
    let mut raised: BTreeMap<String, u64> = BTreeMap::new();
    for row in outcome.totals.iter().flat_map(|totals| &totals.rows) {
        assert!(row.is_balanced(), "{row:?}");
        *raised.entry(d.event_type_name(row.event_type)).or_default() += row.raised;
    }
    let wide_count: u64 = (0..THREADS)
        .map(|thread| (0..EVENTS).filter(|n| n % 7 == thread % 7).count() as u64)
        .sum();
    let expected = [
        ("enter", THREADS * EVENTS),
        ("leave", THREADS * EVENTS),
        ("small", THREADS * EVENTS),
        ("wide", wide_count),
        ("large", THREADS * EVENTS.div_ceil(1000)),
    ];
    let expected: BTreeMap<String, u64> = expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    assert_eq!(raised, expected);
    let sums = Sums::of(&outcome.totals);
    assert!(sums.dropped > 0, "the pool was exhausted");
    let told: u64 = outcome.losses.iter().map(|loss| loss.count).sum();
    assert_eq!(told, sums.dropped, "every drop stands in a dropped record");
    let too_big = outcome
        .losses
        .iter()
        .filter(|l| l.cause == annals_format::Cause::TooBig);
    let too_big: u64 = too_big.map(|loss| loss.count).sum();
    assert_eq!(too_big, expected["large"]);
    assert!(
        outcome
            .report
            .is_some_and(|report| report.streams.iter().all(|s| s.miscounted == 0))
    );
}

#[test]
fn events_raised_while_the_recording_finishes_are_recorded_or_counted_after_the_cut() {
    for round in 0..20 {
        let scratch = tempfile::tempdir().expect("a directory");
        let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
        let mark = EventTypeSpec::new("mark").element("number");
        let mark = recorder
            .add_event_type::<(u64,)>(&mark)
            .expect("an event type");
        let raised: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    let recorder = &recorder;
                    scope.spawn(move || {
                        let mut number = 0;
                        while !recorder.status().is_finished {
                            for _ in 0..50 {
                                recorder.raise(&mark, (number,));
                                number += 1;
                            }
                        }
                        number
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(round));
            recorder.finish();
            threads
                .into_iter()
                .map(|t| t.join().expect("a thread"))
                .sum()
        });
        let status = recorder.status();
        let opened = Reader::open(&status.path).expect("a recording");
        let outcome = opened.summary().expect("a recording");
        let sums = Sums::of(&outcome.totals);
        assert_eq!(sums.raised, sums.recorded + sums.dropped);
        assert_eq!(sums.raised + status.raised_after_finish, raised);
        assert!(outcome.complete);
    }
}

#[test]
fn a_forked_child_leaves_the_recording_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let mark = EventTypeSpec::new("mark");
    let mark = recorder.add_event_type::<()>(&mark).expect("an event type");
    recorder.point(&mark);
    #[expect(unsafe_code, reason = "there is no safe fork")]
    // SAFETY: the child calls only the recorder's event path and _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    if child == 0 {
        for _ in 0..1000 {
            recorder.point(&mark);
        }
        #[expect(
            unsafe_code,
            reason = "the child ends without running the parent's handlers"
        )]
        // SAFETY: ends the child.
        unsafe {
            libc::_exit(0)
        };
    }
    let mut code = 0;
    #[expect(unsafe_code, reason = "waits for the child")]
    // SAFETY: `code` is valid to write to.
    let waited = unsafe { libc::waitpid(child, &raw mut code, 0) };
    assert_eq!((waited, code), (child, 0));
    recorder.point(&mark);
    let status = recorder.finish();
    let opened = Reader::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let sums = Sums::of(&outcome.totals);
    assert_eq!((sums.raised, sums.recorded), (2, 2));
}
