//! The recorder as a program uses it: what it records is what is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_format::{BlockKind, Recording, Value, names};
use annals_merger::{ReadSummary, Reader, Sums, Window};
use annals_recorder::{
    Blob, ClockSpec, ElementType, EventTypeSchema, EventTypeSpec, Options, Overflow, Recorder,
    RecorderError, Reference, SourceSpec, Text,
};

use annals_test_support::bodies;
use annals_test_support::recorders::{mark, small_pages};

/// An event as it is read: time, location, name, elements as text.
#[derive(Clone, Debug, PartialEq)]
struct Read {
    time_ns: i64,
    location: String,
    name: String,
    elements: Vec<String>,
}

fn read(path: &Path) -> (Vec<Read>, ReadSummary) {
    let opened = Reader::open(path).expect("a recording");
    let d = opened.definitions();
    let mut events = Vec::new();
    let outcome = opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let location = d.streams[&row.stream()].location.expect("a location");
                let elements = row.values().map(|value| match value {
                    Value::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    Value::Absent => "absent".to_owned(),
                    other => format!("{other:?}"),
                });
                events.push(Read {
                    time_ns: row.time_ns(),
                    location: d.string(d.locations[&location].name).to_owned(),
                    name: d.event_type_name(row.event_type()),
                    elements: elements.collect(),
                });
            }
            Ok(())
        })
        .expect("a recording");
    (events, outcome)
}

fn is_balanced(outcome: &ReadSummary) -> bool {
    let mut rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    rows.all(annals_format::TypeTotals::is_balanced)
}

fn recorder() -> (tempfile::TempDir, Recorder) {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    (scratch, recorder)
}

#[test]
fn every_element_type_comes_back_as_it_was_raised() {
    let (_scratch, recorder) = recorder();
    let all = EventTypeSpec::new("all")
        .element("a")
        .element("b")
        .element("c")
        .element("d")
        .element("e")
        .element("f")
        .element("g");
    let all = recorder
        .add_event_type::<(i32, u32, i64, u64, f64, Text, Blob)>(&all)
        .expect("an event type");
    let values = (
        i32::MIN,
        u32::MAX,
        i64::MIN,
        u64::MAX,
        -0.0,
        &b"text \xff"[..],
        &[0, 1, 255][..],
    );
    recorder.raise(&all, values);
    let maybe = EventTypeSpec::new("maybe")
        .element("a")
        .element("b")
        .element("c");
    let maybe = recorder
        .add_event_type::<(Option<u64>, i64, Option<Text>)>(&maybe)
        .expect("an event type");
    recorder.raise(&maybe, (None, -1, Some(&b"x"[..])));
    recorder.raise(&maybe, (Some(7), 1 << 40, None));
    let schema = EventTypeSchema {
        elements: vec![(ElementType::F64, false), (ElementType::U32, true)],
    };
    let spec = EventTypeSpec::new("dynamic").element("x").element("y");
    let dynamic = recorder
        .add_dynamic_event_type(&spec, schema)
        .expect("an event type");
    let source = annals_recorder::THREADS;
    recorder.raise_dynamic(source, None, &dynamic, &[Value::F64(1.5), Value::Absent]);
    recorder.raise_dynamic(source, None, &dynamic, &[Value::F64(2.5), Value::U32(3)]);
    // These do not fit, and are counted as misuse.
    recorder.raise_dynamic(source, None, &dynamic, &[Value::Absent, Value::U32(3)]);
    recorder.raise_dynamic(source, None, &dynamic, &[Value::F64(2.5)]);
    let status = recorder.finish();
    assert_eq!(status.misused, 2);
    let (events, outcome) = read(&status.path);
    assert!(is_balanced(&outcome));
    let elements: Vec<Vec<String>> = events.into_iter().map(|event| event.elements).collect();
    let expected: Vec<Vec<&str>> = vec![
        vec![
            "I32(-2147483648)",
            "U32(4294967295)",
            "I64(-9223372036854775808)",
            "U64(18446744073709551615)",
            "F64(-0.0)",
            "text \u{fffd}",
            "Bytes([0, 1, 255])",
        ],
        vec!["absent", "I64(-1)", "x"],
        vec!["U64(7)", "I64(1099511627776)", "absent"],
        vec!["F64(1.5)", "absent"],
        vec!["F64(2.5)", "U32(3)"],
    ];
    assert_eq!(elements, expected);
}

#[test]
fn definitions_are_checked() {
    let (_scratch, recorder) = recorder();
    let spec = EventTypeSpec::new("mark").element("number");
    let first = recorder
        .add_event_type::<(u64,)>(&spec)
        .expect("an event type");
    let same = recorder
        .add_event_type::<(u64,)>(&spec)
        .expect("the same again");
    assert_eq!(first.id(), same.id());
    let other = recorder.add_event_type::<(i64,)>(&spec);
    assert!(matches!(other, Err(RecorderError::Conflict { .. })));
    let unnamed = recorder.add_event_type::<(u64, u64)>(&EventTypeSpec::new("two").element("one"));
    assert!(matches!(unnamed, Err(RecorderError::Definition { .. })));
    let twice = EventTypeSpec::new("twice").element("a").element("a");
    assert!(recorder.add_event_type::<(u64, u64)>(&twice).is_err());
    let key = EventTypeSpec::new("keyed").element("a").key("b");
    assert!(recorder.add_event_type::<(u64,)>(&key).is_err());
    assert!(
        recorder
            .add_clock(&ClockSpec::unreadable("stopped", 0))
            .is_err()
    );
    recorder.finish();
    let late = recorder.add_region("late");
    assert!(matches!(late, Err(RecorderError::Finished)));
}

#[test]
fn more_event_types_than_there_is_room_for_are_refused_and_the_rest_works() {
    let (_scratch, recorder) = recorder();
    let mut added = Vec::new();
    let error = loop {
        let spec = EventTypeSpec::new(format!("type {}", added.len())).element("n");
        match recorder.add_event_type::<(u64,)>(&spec) {
            Ok(event_type) => added.push(event_type),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, RecorderError::Full { .. }), "{error}");
    assert!(added.len() > 1000, "{}", added.len());
    for (number, event_type) in added.iter().enumerate() {
        recorder.raise(event_type, (number as u64,));
    }
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    assert_eq!(events.len(), added.len());
    assert!(is_balanced(&outcome));
}

#[test]
fn threads_have_locations_of_their_own_and_end_with_their_events_written() {
    let (_scratch, recorder) = recorder();
    let mark = mark(&recorder);
    for round in 0..20 {
        std::thread::scope(|scope| {
            for thread in 0..10_u64 {
                let recorder = &recorder;
                std::thread::Builder::new()
                    .name(format!("worker {round}.{thread}"))
                    .spawn_scoped(scope, move || {
                        for number in 0..thread {
                            recorder.raise(&mark, (number,));
                        }
                    })
                    .expect("a thread");
            }
        });
    }
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    assert_eq!(events.len(), 20 * 45);
    assert!(is_balanced(&outcome) && outcome.complete);
    let of_one: Vec<&Read> = events
        .iter()
        .filter(|e| e.location == "worker 3.9")
        .collect();
    let numbers: Vec<String> = of_one
        .iter()
        .map(|event| event.elements[0].clone())
        .collect();
    let expected: Vec<String> = (0..9).map(|n| format!("U64({n})")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn a_small_clock_that_wraps_between_events_gives_true_times() {
    let (_scratch, recorder) = recorder();
    static NOW_US: AtomicU64 = AtomicU64::new(0);
    let start = std::time::Instant::now();
    // Wraps every 5 ms, at no power of two.
    let clock = ClockSpec::readable("small", 1_000_000, move || {
        let us = start.elapsed().as_micros() as u64;
        NOW_US.store(us, Ordering::Relaxed);
        us % 5_000
    })
    .max_ticks(4_999);
    let clock = recorder.add_clock(&clock).expect("a clock");
    let device = recorder
        .add_source(&SourceSpec::ordered("device").clock(clock))
        .expect("a source");
    let mark = EventTypeSpec::new("mark").element("us");
    let mark = recorder
        .add_event_type::<(u64,)>(&mark)
        .expect("an event type");
    let mut truth = Vec::new();
    for pause_us in [0, 100, 2_000, 7_000, 12_400, 300, 31_000, 5_000] {
        std::thread::sleep(std::time::Duration::from_micros(pause_us));
        recorder.raise_on(device, &mark, (0,));
        truth.push(NOW_US.load(Ordering::Relaxed) as i64);
    }
    let status = recorder.finish();
    let (events, _) = read(&status.path);
    let times: Vec<i64> = events.iter().map(|event| event.time_ns).collect();
    for (index, us) in truth.iter().enumerate().skip(1) {
        let expected_ns = (us - truth[0]) * 1000;
        let found_ns = times[index] - times[0];
        assert!(
            (found_ns - expected_ns).abs() < 100_000,
            "event {index}: {found_ns} ns, {expected_ns} expected"
        );
    }
}

#[test]
fn a_clock_that_is_set_back_and_forth_is_followed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    options.calibration_period = std::time::Duration::from_millis(20);
    let recorder = Recorder::start(&options).expect("a recorder");
    static SET_BY: AtomicU64 = AtomicU64::new(0);
    let clock = ClockSpec::readable("wall", 1_000_000_000, || {
        (Recorder::reference_ns() as u64).wrapping_add(SET_BY.load(Ordering::Relaxed))
    });
    let clock = recorder.add_clock(&clock).expect("a clock");
    let device = recorder
        .add_source(&SourceSpec::ordered("device").clock(clock))
        .expect("a source");
    let mark = mark(&recorder);
    // By an hour ahead, back to where it was and three seconds more.
    let hour = 3_600_000_000_000_u64;
    for number in 0..300_u64 {
        match number {
            100 => SET_BY.store(hour, Ordering::Relaxed),
            200 => SET_BY.store(3_000_000_000_u64.wrapping_neg(), Ordering::Relaxed),
            _ => (),
        }
        recorder.raise(&mark, (number,));
        recorder.raise_on(device, &mark, (number,));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    let report = outcome.report.expect("a report");
    let clock = report.clocks.iter().find(|clock| clock.name == "wall");
    // A thread that is stopped for long sees one.
    let steps = clock.expect("the clock").steps;
    assert!((1..=2).contains(&steps), "{steps}");
    let ambiguous: u64 = report.streams.iter().map(|stream| stream.ambiguous).sum();
    let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for event in &events {
        let of_number = times.entry(event.elements[0].clone()).or_default();
        of_number.push(event.time_ns);
    }
    assert_eq!(times.len(), 300);
    // Each was raised together with one of the processor's clock; a thread may be stopped between
    // them.
    let far = times
        .values()
        .filter(|pair| pair[0].abs_diff(pair[1]) > 5_000_000);
    let far = far.count() as u64;
    assert!(far <= ambiguous + 5, "{far} are far, {ambiguous} ambiguous");
    assert!(ambiguous <= 100, "{ambiguous} are ambiguous");
}

#[test]
fn a_clock_that_only_its_owner_reads_has_a_bound_when_it_was_calibrated() {
    let (_scratch, recorder) = recorder();
    let clock = ClockSpec::unreadable("device", 1_000_000_000);
    let clock = recorder.add_clock(&clock).expect("a clock");
    let device = recorder
        .add_source(&SourceSpec::ordered("device").clock(clock))
        .expect("a source");
    let mark = mark(&recorder);
    // One second less than the host's reference clock.
    let now = || Recorder::reference_ns() as u64 - 1_000_000_000;
    recorder.calibrate(clock, now).expect("a point");
    for number in 0..20_u64 {
        recorder.raise(&mark, (number,));
        recorder.raise_at(device, now(), &mark, (number,));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    recorder.calibrate(clock, now).expect("another");
    // What the source says it has dropped lies between its last event and now.
    std::thread::sleep(std::time::Duration::from_millis(20));
    recorder.report_dropped(device, mark.id(), 3);
    let of_recorder = ClockSpec::readable("read", 1_000_000_000, now);
    let of_recorder = recorder.add_clock(&of_recorder).expect("a clock");
    let refused = recorder.calibrate(of_recorder, now);
    assert!(matches!(refused, Err(RecorderError::Definition { .. })));
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    let report = outcome.report.expect("a report");
    let clock = report.clocks.iter().find(|clock| clock.name == "device");
    let clock = clock.expect("the clock");
    assert_eq!(clock.points, 2);
    assert!(clock.error_ns.is_some() && clock.bound_max_ns.is_some());
    // The second of each pair was raised after the first, and the thread that raised both may have been stopped.
    let pairs = events.chunks(2).filter(|pair| pair.len() == 2);
    let near = pairs.filter(|pair| pair[1].time_ns.abs_diff(pair[0].time_ns) < 5_000_000);
    assert!(near.count() >= 10);
    assert_eq!(events.len(), 40);
    let [loss] = outcome.losses[..] else {
        panic!("one loss: {:?}", outcome.losses);
    };
    let last_ns = events.last().map(|event| event.time_ns);
    assert_eq!((loss.count, Some(loss.from_ns)), (3, last_ns));
    assert!(loss.to_ns >= loss.from_ns + 20_000_000, "{loss:?}");
}

#[test]
fn late_events_of_an_unordered_source_are_put_where_they_happened() {
    let (_scratch, recorder) = recorder();
    let clock = ClockSpec::unreadable("device", 1_000_000_000);
    let clock = recorder.add_clock(&clock).expect("a clock");
    let device = recorder
        .add_source(&SourceSpec::unordered("device").clock(clock))
        .expect("a source");
    let mark = mark(&recorder);
    let base = 77_000_000_000_u64;
    for number in [3, 1, 2, 0, 5, 4_u64] {
        recorder.raise_at(device, base + number * 1_000, &mark, (number,));
    }
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    let numbers: Vec<String> = events
        .iter()
        .map(|event| event.elements[0].clone())
        .collect();
    let expected: Vec<String> = (0..6).map(|n| format!("U64({n})")).collect();
    assert_eq!(numbers, expected);
    let spacing: Vec<i64> = events
        .windows(2)
        .map(|w| w[1].time_ns - w[0].time_ns)
        .collect();
    assert_eq!(spacing, [1_000; 5]);
    let report = outcome.report.expect("a report");
    let stream = report
        .streams
        .iter()
        .find(|s| s.source == "device" && s.out != 0);
    let stream = stream.expect("the device's stream");
    assert_eq!(
        (stream.inversions, stream.largest_lateness_ticks),
        (4, 3_000)
    );
    assert!(!stream.broke_promise);
}

#[test]
fn an_ordered_source_whose_clock_steps_back_keeps_its_order_and_is_named() {
    let (_scratch, recorder) = recorder();
    let clock = recorder
        .add_clock(&ClockSpec::unreadable("stepping", 1_000_000_000))
        .expect("a clock");
    let source = recorder
        .add_source(&SourceSpec::ordered("stepping").clock(clock))
        .expect("a source");
    let mark = mark(&recorder);
    for (number, tick) in [1_000, 2_000, 1_500, 1_600, 3_000].into_iter().enumerate() {
        recorder.raise_at(source, tick, &mark, (number as u64,));
    }
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    let numbers: Vec<String> = events
        .iter()
        .map(|event| event.elements[0].clone())
        .collect();
    let expected: Vec<String> = (0..5).map(|n| format!("U64({n})")).collect();
    assert_eq!(numbers, expected);
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let report = outcome.report.expect("a report");
    let stream = report.streams.iter().find(|stream| stream.broke_promise);
    let stream = stream.expect("the source is named");
    assert_eq!(stream.source, "stepping");
    assert_eq!((stream.clamped, stream.largest_clamp_ns), (2, 500));
}

#[test]
fn what_is_known_late_has_the_time_of_its_call_or_of_the_last_event_since() {
    let (_scratch, recorder) = recorder();
    let mark = mark(&recorder);
    let region = recorder.add_region("call").expect("a region");
    for has_others in [false, true] {
        let start = recorder.tick();
        recorder.enter_at(region, start);
        std::thread::sleep(std::time::Duration::from_millis(2));
        if has_others {
            recorder.raise(&mark, (1,));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        recorder.raise_since(start, &mark, (2,));
        recorder.leave(region);
    }
    let (events, outcome) = read(&recorder.finish().path);
    assert!(outcome.complete && is_balanced(&outcome));
    let times: Vec<i64> = events.iter().map(|event| event.time_ns).collect();
    let [enter, late, leave, next, other, later, end] = times.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!((late, later), (enter, other), "{events:?}");
    assert!(leave > late && other > next && end > later, "{events:?}");
}

#[test]
fn ticks_that_no_clock_can_have_read_leave_all_other_times_alone() {
    let (scratch, recorder) = recorder();
    let mark = mark(&recorder);
    let unreadable = recorder
        .add_clock(&ClockSpec::unreadable("unreadable", 1_000_000_000))
        .expect("a clock");
    let device = recorder
        .add_source(&SourceSpec::unordered("device").clock(unreadable))
        .expect("a source");
    for tick in [0, u64::MAX, 1, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
        recorder.raise_at(device, tick, &mark, (tick,));
        recorder.raise_at(annals_recorder::THREADS, tick, &mark, (tick,));
    }
    recorder.raise(&mark, (7,));
    let status = recorder.finish();
    let (events, outcome) = read(&status.path);
    assert_eq!(events.len(), 13);
    assert!(outcome.complete && is_balanced(&outcome));
    let trace = scratch.path().join("run.annals");
    let inputs = [status.path.clone()];
    let plan = annals_merger::MergeOptions::new().plan(&inputs);
    let plan = plan.expect("a recording");
    let merged = plan.write_trace(&trace, annals_merger::no_progress);
    merged.expect("a trace");
    let (again, outcome) = read(&trace);
    assert_eq!(again, events);
    assert!(outcome.complete && !outcome.has_skipped_now);
    let end_ns = plan.definitions().time_zero.expect("a time zero").end_ns;
    assert!(end_ns < 60_000_000_000, "the axis is not moved: {end_ns}");
}

#[test]
fn two_recorders_of_one_process_do_not_mix() {
    let (_first, a) = recorder();
    let (_second, b) = recorder();
    let spec = EventTypeSpec::new("mark").element("number");
    let of_a = a.add_event_type::<(u64,)>(&spec).expect("an event type");
    let of_b = b.add_event_type::<(u64,)>(&spec).expect("an event type");
    for number in 0..100 {
        a.raise(&of_a, (number,));
        b.raise(&of_b, (number + 1000,));
    }
    // An event type of the other one is misuse.
    a.raise(&of_b, (5,));
    let (status_a, status_b) = (a.finish(), b.finish());
    assert_eq!((status_a.misused, status_b.misused), (1, 0));
    for (status, first) in [(status_a, 0), (status_b, 1000)] {
        let (events, outcome) = read(&status.path);
        assert_eq!(events.len(), 100);
        assert_eq!(events[0].elements[0], format!("U64({first})"));
        assert!(is_balanced(&outcome));
    }
}

#[test]
fn a_recording_says_where_its_live_file_is_before_anything_is_recorded() {
    let scratch = tempfile::tempdir().expect("a directory");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    options.live_directory = Some(elsewhere.path().to_owned());
    let recorder = Recorder::start(&options).expect("a recorder");
    // If the process were killed now, only the recording would contain the path.
    let bytes = std::fs::read(recorder.status().path).expect("the recording");
    let recording = Recording::read(&bytes, None, |_| false).expect("a recording");
    let d = &recording.definitions;
    let property = d
        .properties
        .iter()
        .find(|property| d.string(property.key) == names::property::LIVE_FILE);
    let live_file = d.string(property.expect("the property").value);
    assert_eq!(Path::new(live_file).parent(), Some(elsewhere.path()));
    assert!(Path::new(live_file).exists());
}

#[test]
fn the_index_of_a_long_recording_is_written_while_it_grows() {
    const BLOBS: usize = 3000;
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = small_pages(scratch.path(), 1 << 20);
    options.overflow = Overflow::Block;
    let recorder = Recorder::start(&options).expect("a recorder");
    let spec = EventTypeSpec::new("blob").element("bytes");
    let blob = recorder.add_event_type::<(Blob,)>(&spec).expect("a type");
    let bytes = [7_u8; 1500];
    (0..BLOBS).for_each(|_| recorder.raise(&blob, (&bytes,)));
    let path = recorder.finish().path;
    let mut bytes = std::fs::read(&path).expect("the recording");
    let chunks = bodies(&bytes, BlockKind::Chunk).len();
    let index = bodies(&bytes, BlockKind::Index);
    let footer = bodies(&bytes, BlockKind::Footer);
    assert!(chunks >= BLOBS / 2, "{chunks} chunks");
    assert!(index.len() > 2, "{} index blocks", index.len());
    let footer = footer.first().expect("a footer").1;
    assert!(
        footer < 20_000,
        "{chunks} chunks, a footer of {footer} bytes"
    );
    let (events, outcome) = read(&path);
    let problems = |file: &Vec<u8>| {
        let recording = Recording::read(file, None, |_| false);
        recording.expect("a recording").problems.len()
    };
    assert_eq!((events.len(), problems(&bytes)), (BLOBS, 0));
    assert!(is_balanced(&outcome));
    // Damage of the index is reported and costs no event.
    for (body, len) in index {
        bytes[body + len / 2] ^= 0x55;
        std::fs::write(&path, &bytes).expect("the recording");
        let (events, outcome) = read(&path);
        assert_eq!((events.len(), problems(&bytes)), (BLOBS, 1));
        assert!(is_balanced(&outcome));
        bytes[body + len / 2] ^= 0x55;
    }
}

#[test]
fn references_are_resolved_and_survive_renumbering() {
    let scratch = tempfile::tempdir().expect("a directory");
    for rank in 0..2 {
        let mut options = Options::new(scratch.path());
        options.rank = Some(rank);
        options.rank_count = Some(2);
        let recorder = Recorder::start(&options).expect("a recorder");
        // Numbered differently in each process.
        for name in if rank == 0 { ["x", "y"] } else { ["y", "x"] } {
            recorder.add_region(name).expect("a region");
        }
        let jump = EventTypeSpec::new("jump").reference("to", Reference::Region);
        let jump = recorder
            .add_event_type::<(annals_recorder::RegionId,)>(&jump)
            .expect("an event type");
        recorder.raise(&jump, (recorder.add_region("y").expect("a region"),));
    }
    let opened = Reader::open(scratch.path()).expect("recordings");
    let d = opened.definitions();
    assert_eq!(d.regions.len(), 2);
    let mut names = Vec::new();
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let Value::U32(region) = row.value(0) else {
                    panic!("a region");
                };
                names.push(d.region_name(annals_recorder::RegionId::new(region)));
            }
            Ok(())
        })
        .expect("recordings");
    assert_eq!(names, ["y", "y"]);
}

const CHILD: &str = "ANNALS_EXITING_CHILD";

/// Not a separate test: a process that ends in the given way.
#[test]
fn exiting_child() {
    let (Some(directory), Ok(how)) = (std::env::var_os(CHILD), std::env::var("ANNALS_HOW")) else {
        return;
    };
    let recorder = Recorder::start(&Options::new(directory)).expect("a recorder");
    recorder.make_global();
    let mark = recorder
        .add_event_type::<()>(&EventTypeSpec::new("mark"))
        .expect("an event type");
    recorder.point(&mark);
    {
        let _region = annals_recorder::region!("global");
        recorder.point(&mark);
    }
    match how.as_str() {
        "exit" => std::process::exit(7),
        "panic" => panic!("as told"),
        "abort" => std::process::abort(),
        _ => {}
    }
}

fn run_child(how: &str) -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a directory");
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "exiting_child"])
        .env(CHILD, scratch.path())
        .env("ANNALS_HOW", how)
        .output()
        .expect("the child runs");
    let path = scratch.path().to_owned();
    (scratch, path)
}

#[test]
fn however_a_process_ends_its_events_are_there() {
    for (how, ended) in [
        ("return", "finished"),
        ("exit", "finished"),
        ("panic", "finished"),
        ("abort", "killed"),
    ] {
        let (_scratch, path) = run_child(how);
        let (events, outcome) = read(&path);
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["mark", "enter", "mark", "leave"], "{how}");
        assert!(is_balanced(&outcome));
        let opened = Reader::open(&path).expect("a recording");
        let ends: Vec<_> = opened.definitions().process_ends.values().collect();
        assert_eq!(ends[0].ended.name(), ended, "{how}");
        let files = std::fs::read_dir(&path).expect("the directory").count();
        assert_eq!(
            files,
            if ended == "killed" { 2 } else { 1 },
            "{how}: the live file goes"
        );
    }
}

#[test]
fn a_recording_can_be_read_while_it_is_written() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = Options::new(scratch.path());
    // Small pages: they are written out under the reader's eyes.
    options.page_bytes = Some(4096);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                recorder.raise(&mark, (number,));
                number += 1;
                if number % 64 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        let mut last = 0;
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let (events, outcome) = read(scratch.path());
            assert!(is_balanced(&outcome), "{:?}", outcome.totals);
            let sums = Sums::of(&outcome.totals);
            assert_eq!(
                (sums.skipped, sums.truncated),
                (0, 0),
                "{:?}",
                outcome.losses
            );
            assert!(events.len() >= last, "nothing goes away");
            last = events.len();
            let numbers: Vec<&String> = events.iter().map(|event| &event.elements[0]).collect();
            let is_counted = numbers.windows(2).all(|pair| pair[0] != pair[1]);
            assert!(is_counted, "nothing twice");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(last > 0);
    });
    let status = recorder.finish();
    let (_, outcome) = read(&status.path);
    assert!(outcome.complete && is_balanced(&outcome));
}
