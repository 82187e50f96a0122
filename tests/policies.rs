//! Overflow policies, snapshots, rules and limits: whatever is not recorded is counted by event type.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use annals_format::{Cause, Value};
use annals_merger::{ReadSummary, Reader, Sums, Window};
use annals_recorder::{
    Blob, ClockSpec, EventType, EventTypeSpec, Options, Overflow, Recorder, Rules, SourceSpec,
    Status,
};

use annals_test_support::recorders::{
    few_pages_and_a_limit, mark, raise_without_a_page, small_pages,
};
use annals_test_support::sums_by_type;

fn options(directory: &Path) -> Options {
    small_pages(directory, 256 << 10)
}

/// Returns the numbers of the marks that a recording holds, and what is known of the rest.
fn read(path: &Path) -> (Vec<u64>, ReadSummary) {
    let opened = Reader::open(path).expect("a recording");
    let mut numbers = Vec::new();
    let outcome = opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                if opened.definitions().event_type_name(row.event_type()) == "mark"
                    && let Value::U64(number) = row.value(0)
                {
                    numbers.push(number);
                }
            }
            Ok(())
        })
        .expect("a recording");
    (numbers, outcome)
}

fn dropped_by(outcome: &ReadSummary, cause: Cause) -> u64 {
    let rows = outcome.totals.iter().flat_map(|totals| &totals.rows);
    let counts = rows.map(|row| row.dropped.of(cause));
    counts.fold(0, u64::saturating_add)
}

#[test]
fn a_recorder_that_blocks_loses_nothing_to_overload() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.overflow = Overflow::Block;
    options.block_limit = Duration::from_secs(20);
    let recorder = Recorder::start(&options).expect("a recorder");
    let spec = EventTypeSpec::new("blob").element("bytes");
    let blob: EventType<(Blob,)> = recorder.add_event_type(&spec).expect("an event type");
    let bytes = [7_u8; 1500];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|_| recorder.raise(&blob, (&bytes,))));
        }
    });
    let status = recorder.finish();
    let sums = sums_by_type(&status.path);
    assert_eq!(
        (sums["blob"].raised, sums["blob"].recorded),
        (20_000, 20_000)
    );
    assert!(status.blocked > Duration::ZERO, "somebody had to wait");
}

#[test]
fn blocking_ends_at_its_limit() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&few_pages_and_a_limit(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    let raise = |number| recorder.raise(&mark, (number,));
    let pages = raise_without_a_page(&recorder, || raise(0), || raise(1));
    let status = recorder.finish();
    let (numbers, outcome) = read(&status.path);
    assert_eq!(numbers, vec![0; pages]);
    assert_eq!(dropped_by(&outcome, Cause::BufferFull), 1);
}

/// Raises enough marks that most of them are overwritten; pauses let the writer keep up.
fn overrun(recorder: &Recorder, mark: &EventType<(u64,)>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        recorder.raise(mark, (number,));
        if number % 500 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_flight_recorder_keeps_the_newest_and_counts_the_rest() {
    const EVENTS: u64 = 200_000;
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.overflow = Overflow::Overwrite;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    overrun(&recorder, &mark, 0..EVENTS);
    let status = recorder.finish();
    let (numbers, outcome) = read(&status.path);
    assert_eq!(numbers.last(), Some(&(EVENTS - 1)), "the newest is there");
    let sums = sums_by_type(&status.path)["mark"];
    assert_eq!(sums.raised, EVENTS);
    assert_eq!(sums.recorded, numbers.len() as u64);
    assert!(sums.recorded > 1000 && sums.dropped > EVENTS / 2);
    assert!(numbers.is_sorted());
    let overwritten = dropped_by(&outcome, Cause::Overwritten);
    assert_eq!(overwritten, numbers[0], "what is overwritten is the oldest");
    // The loss precedes the first event that is left.
    let told: u64 = outcome.losses.iter().map(|loss| loss.count).sum();
    assert_eq!(told, sums.dropped);
}

#[test]
fn a_policy_holds_for_its_source_alone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&options(scratch.path())).expect("a recorder");
    let mark = mark(&recorder);
    let spec = SourceSpec::ordered("flight").overflow(Overflow::Overwrite);
    let flight = recorder.add_source(&spec).expect("a source");
    for number in 0..100_000 {
        recorder.raise_on(flight, &mark, (number,));
        if number % 200 == 0 {
            recorder.raise(&mark, (number,));
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let status = recorder.finish();
    let opened = Reader::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    for totals in &outcome.totals {
        let source = opened.definitions().streams[&totals.stream].source;
        let sums = Sums::of(std::slice::from_ref(totals));
        let is_flight = source == flight;
        assert_eq!(
            sums.dropped != 0,
            is_flight && sums.raised != 0,
            "{totals:?}"
        );
    }
    assert!(dropped_by(&outcome, Cause::Overwritten) > 50_000);
}

#[test]
fn snapshots_are_recordings_of_their_own() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.overflow = Overflow::Overwrite;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    let mut paths: Vec<PathBuf> = Vec::new();
    for part in 0..3_u64 {
        overrun(&recorder, &mark, part * 40_000..(part + 1) * 40_000);
        paths.push(recorder.snapshot().expect("a snapshot"));
    }
    let status = recorder.finish();
    assert_eq!(status.snapshots, 3);
    for (part, path) in (0..).zip(&paths) {
        let (numbers, _) = read(path);
        let newest = (part + 1) * 40_000 - 1;
        assert_eq!(numbers.last(), Some(&newest), "of {}", path.display());
        let sums = sums_by_type(path)["mark"];
        assert_eq!(sums.raised, newest + 1);
        assert_eq!(sums.recorded, numbers.len() as u64);
        assert_eq!(sums.dropped, numbers[0]);
    }
    // The directory of the run holds the recording, and no snapshot is taken for one.
    let (numbers, _) = read(scratch.path());
    assert_eq!(numbers.last(), Some(&119_999));
    assert_eq!(sums_by_type(scratch.path())["mark"].raised, 120_000);
}

#[test]
fn a_snapshot_is_taken_while_threads_go_on() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.overflow = Overflow::Overwrite;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let paths = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    recorder.raise(&mark, (number,));
                    number += 1;
                    if number % 300 == 0 {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(50));
        let paths: Vec<_> = (0..10).map(|_| recorder.snapshot()).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        paths
    });
    recorder.finish();
    for path in paths {
        let path = path.expect("a snapshot");
        let sums = sums_by_type(&path)["mark"];
        assert!(sums.recorded > 0);
        let opened = Reader::open(&path).expect("a snapshot");
        let outcome = opened.summary().expect("a snapshot");
        assert_eq!(Sums::of(&outcome.totals).skipped, 0);
        // Nothing is missing between a stream's events but what is counted.
        let mut next: BTreeMap<_, u64> = BTreeMap::new();
        let mut missing = 0;
        opened
            .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
                for row in chunk.rows() {
                    if let Value::U64(number) = row.value(0) {
                        let expected = next.entry(row.stream()).or_insert(number);
                        assert!(number >= *expected, "in order, nothing twice");
                        missing += number - *expected;
                        *expected = number + 1;
                    }
                }
                Ok(())
            })
            .expect("a snapshot");
        let dropped = Sums::of(&outcome.totals).dropped;
        assert!(missing <= dropped, "{missing} missing, {dropped} dropped");
    }
}

fn snapshot_numbers(scratch: &Path, number: u64) -> Option<Vec<u64>> {
    let directory = scratch.join(format!("snapshot-{number}"));
    directory.is_dir().then(|| read(&directory).0)
}

fn wait_for_snapshots(recorder: &Recorder, count: u64) -> Status {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let status = recorder.status();
        if status.snapshots >= count || Instant::now() > deadline {
            return status;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn triggers_take_snapshots_with_what_came_before_and_after() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.overflow = Overflow::Overwrite;
    options.pre_trigger = Some(Duration::from_secs(60));
    options.post_trigger = Duration::from_millis(100);
    options.triggers = [
        "event mark where number == 5000",
        "event alarm*",
        "region * longer than 1000s",
        "region slow* longer than 300ms",
        "region *part longer than 1s",
        "signal SIGUSR2",
    ]
    .map(|text| text.parse().expect("a trigger"))
    .to_vec();
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    let alarm = recorder
        .add_event_type::<()>(&EventTypeSpec::new("alarm.fire"))
        .expect("an event type");
    let slow = recorder.add_region("slow part").expect("a region");
    let fast = recorder.add_region("fast part").expect("a region");

    overrun(&recorder, &mark, 0..5_001);
    overrun(&recorder, &mark, 5_001..5_400);
    assert_eq!(wait_for_snapshots(&recorder, 1).snapshots, 1);
    let numbers = snapshot_numbers(scratch.path(), 1).expect("a snapshot");
    assert!(
        numbers.contains(&5_000) && numbers.last() == Some(&5_399),
        "{:?}",
        numbers.last()
    );

    recorder.point(&alarm);
    assert_eq!(wait_for_snapshots(&recorder, 2).snapshots, 2);

    for region in [slow, fast] {
        let _region = recorder.region(region);
        std::thread::sleep(Duration::from_millis(if region == fast { 30 } else { 1 }));
    }
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(recorder.status().snapshots, 2, "nothing slow was slow");
    recorder.enter(slow);
    std::thread::sleep(Duration::from_millis(310));
    recorder.leave(slow);
    assert_eq!(wait_for_snapshots(&recorder, 3).snapshots, 3);
    {
        let _fast = recorder.region(fast);
        std::thread::sleep(Duration::from_millis(1010));
    }
    assert_eq!(wait_for_snapshots(&recorder, 4).snapshots, 4);

    #[expect(unsafe_code, reason = "a signal to itself")]
    // SAFETY: the recorder handles the signal.
    unsafe {
        libc::raise(libc::SIGUSR2);
    }
    assert_eq!(wait_for_snapshots(&recorder, 5).snapshots, 5);
    let trigger = |number: u64| {
        let path = scratch.path().join(format!("snapshot-{number}"));
        let opened = Reader::open(&path).expect("a snapshot");
        let d = opened.definitions();
        let of = |key: &str| {
            let found = d.properties.iter().find(|p| d.string(p.key) == key);
            found.map(|p| d.string(p.value).to_owned())
        };
        (of("snapshot"), of("trigger"))
    };
    assert_eq!(
        trigger(2),
        (Some("2".to_owned()), Some("event alarm*".to_owned()))
    );
    assert_eq!(trigger(4).1.as_deref(), Some("region *part longer than 1s"));
    assert_eq!(trigger(5).1.as_deref(), Some("signal 12"));
    recorder.finish();
}

#[test]
fn rules_hold_from_the_start_and_change_at_run_time() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.rules = "off event noise*; off region hidden; off source quiet"
        .parse()
        .expect("rules");
    let recorder = Recorder::start(&options).expect("a recorder");
    let event = |name: &str| {
        recorder
            .add_event_type::<()>(&EventTypeSpec::new(name))
            .expect("an event type")
    };
    let (noise, signal) = (event("noise.a"), event("signal"));
    let hidden = recorder.add_region("hidden").expect("a region");
    let shown = recorder.add_region("shown").expect("a region");
    let quiet = recorder
        .add_source(&SourceSpec::ordered("quiet"))
        .expect("a source");
    let all = || {
        for _ in 0..10 {
            recorder.point(&noise);
            recorder.point(&signal);
            recorder.raise_on(quiet, &signal, ());
            drop(recorder.region(hidden));
            drop(recorder.region(shown));
        }
    };
    let apply = |text: &str| {
        let rules: Rules = text.parse().expect("rules");
        recorder.apply(&rules).expect("the recorder runs");
    };
    all();
    apply("on event noise*; off event signal; on source quiet; on region *");
    all();
    // Another thread, and rules that come after its stream.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            recorder.point(&noise);
            apply("off event *");
            all();
            apply("on event *");
        });
    });
    recorder.pause();
    all();
    recorder.resume();
    recorder.point(&signal);
    let status = recorder.finish();
    let sums = sums_by_type(&status.path);
    assert_eq!(sums["noise.a"].raised, 11);
    assert_eq!(sums["signal"].raised, 11);
    // Ten of the shown one at first, then both.
    assert_eq!((sums["enter"].raised, sums["leave"].raised), (30, 30));
    assert_eq!(status.raised, 11 + 11 + 60);
    assert_eq!(status.dropped + status.suppressed, 0);
}

/// Returns the enters and leaves of a recording: whether it is an enter, and the region's name.
fn calls(path: &Path) -> Vec<(bool, String)> {
    let opened = Reader::open(path).expect("a recording");
    let d = opened.definitions();
    let mut calls = Vec::new();
    let visit = |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let name = d.event_type_name(row.event_type());
            if matches!(&*name, "enter" | "leave")
                && let Value::U32(region) = row.value(0)
            {
                let region = annals_format::RegionId::new(region);
                calls.push((name == "enter", d.region_name(region)));
            }
        }
        Ok(())
    };
    opened.for_each_chunk(Window::ALL, visit).expect("events");
    calls
}

#[test]
fn calls_that_are_open_when_rules_change_stay_whole() {
    const RULES: [(&str, &str); 5] = [
        ("off region outer", "on region outer"),
        ("off region *", "on region *"),
        ("off event leave; off event enter", "on event *"),
        ("off source threads", "on source *"),
        ("off event *; off region o*", "on event *; on region *"),
    ];
    for (off, on) in RULES {
        for starts_off in [false, true] {
            let scratch = tempfile::tempdir().expect("a directory");
            let mut options = options(scratch.path());
            if starts_off {
                options.rules = off.parse().expect("rules");
            }
            let recorder = Recorder::start(&options).expect("a recorder");
            let outer = recorder.add_region("outer").expect("a region");
            let apply = |text: &str| {
                let rules: Rules = text.parse().expect("rules");
                recorder.apply(&rules).expect("the recorder runs");
            };
            let turns = if starts_off { [on, off] } else { [off, on] };
            let raiser = recorder.raiser();
            let nested = |depth: usize| {
                (0..depth).for_each(|_| recorder.enter(outer));
                apply(turns[0]);
                // By the other interface, and by a guard.
                raiser.enter(outer).expect("an event");
                drop(recorder.region(outer));
                apply(turns[1]);
                drop(recorder.region(outer));
                raiser.leave(outer).expect("an event");
                (1..depth).for_each(|_| recorder.leave(outer));
                apply(turns[0]);
                recorder.leave(outer);
            };
            let other_thread = || {
                recorder.enter(outer);
                recorder.leave(outer);
            };
            nested(3);
            std::thread::scope(|scope| scope.spawn(other_thread).join().expect("no panic"));
            let status = recorder.finish();
            let found = calls(&status.path);
            // Every leave has its enter, and every enter its leave.
            let mut depth = 0_i32;
            for (is_enter, name) in &found {
                assert_eq!(name, "outer");
                depth += if *is_enter { 1 } else { -1 };
                assert!(depth >= 0, "{off}, off first: {starts_off}: {found:?}");
            }
            assert_eq!(depth, 0, "{off}, off first: {starts_off}: {found:?}");
            let expected = if starts_off { 2 + 1 } else { 3 + 1 };
            let enters = found.iter().filter(|(is_enter, _)| *is_enter);
            let expected = 2 * expected;
            assert_eq!(2 * enters.count(), found.len());
            assert_eq!(found.len(), expected, "{off}, off first: {starts_off}");
        }
    }
}

#[test]
fn what_sampling_and_limits_leave_out_is_counted_as_suppressed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.buffer_bytes = 4 << 20;
    options.rules = "sample 100 event often; limit 1000/s event fast; sample 2 event enter"
        .parse()
        .expect("rules");
    let recorder = Recorder::start(&options).expect("a recorder");
    let event = |name: &str| {
        recorder
            .add_event_type::<()>(&EventTypeSpec::new(name))
            .expect("an event type")
    };
    let (often, fast) = (event("often"), event("fast"));
    let region = recorder.add_region("part").expect("a region");
    let begun = Instant::now();
    for _ in 0..20_000 {
        recorder.point(&often);
        recorder.point(&fast);
        drop(recorder.region(region));
    }
    // The limit accepts this event, and the previously suppressed ones are reported before it.
    std::thread::sleep(Duration::from_millis(5));
    recorder.point(&fast);
    let seconds = begun.elapsed().as_secs_f64();
    let status = recorder.finish();
    let sums = sums_by_type(&status.path);
    assert_eq!(
        (sums["often"].raised, sums["often"].recorded),
        (20_000, 200)
    );
    assert_eq!(sums["often"].suppressed, 19_800);
    assert_eq!(sums["fast"].raised, 20_001);
    let recorded = sums["fast"].recorded as f64;
    assert!(
        recorded >= 16.0 && recorded <= 1000.0 * seconds * 1.1 + 20.0,
        "{recorded}"
    );
    assert_eq!(sums["fast"].recorded + sums["fast"].suppressed, 20_001);
    let (_, outcome) = read(&status.path);
    let runs = outcome.losses.iter();
    assert!(runs.clone().all(|run| run.cause == Cause::RateLimited));
    assert!(
        runs.clone()
            .all(|run| run.count != 0 && run.from_ns < run.to_ns)
    );
    let told: u64 = runs.map(|run| run.count).sum();
    assert_eq!(told, sums["fast"].suppressed);
    // Pairs stay whole.
    assert_eq!(
        (sums["enter"].recorded, sums["enter"].suppressed),
        (20_000, 0)
    );
    assert_eq!(
        status.suppressed,
        sums["often"].suppressed + sums["fast"].suppressed
    );
}

#[test]
fn a_recording_keeps_to_its_size_and_counts_what_it_leaves_out() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.compression = annals_recorder::CompressionLevel::None.into();
    options.max_file_bytes = Some(100_000);
    options.overflow = Overflow::Block;
    options.block_limit = Duration::from_secs(20);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    overrun(&recorder, &mark, 0..200_000);
    let status = recorder.finish();
    let bytes = std::fs::metadata(&status.path)
        .expect("the recording")
        .len();
    assert!(bytes < 130_000, "{bytes}");
    let (numbers, outcome) = read(&status.path);
    assert!(
        numbers.iter().copied().eq(0..numbers.len() as u64),
        "the oldest"
    );
    let sums = sums_by_type(&status.path)["mark"];
    assert_eq!(
        (sums.raised, sums.recorded),
        (200_000, numbers.len() as u64)
    );
    assert!(dropped_by(&outcome, Cause::SizeLimit) > 100_000);
    assert_eq!(status.storage_failure, None);
}

#[test]
fn pages_of_idle_streams_are_written_and_used_by_others() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.flush_interval = Duration::from_millis(40);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    recorder.raise(&mark, (1,));
    let pages = recorder.status().pages;
    let deadline = Instant::now() + Duration::from_secs(20);
    while recorder.status().free_pages < pages {
        assert!(Instant::now() < deadline, "the page comes back");
        std::thread::sleep(Duration::from_millis(5));
    }
    // What is in the file by now needs no live file.
    let copy = tempfile::tempdir().expect("a directory");
    let copied = copy.path().join("copy.annals");
    std::fs::copy(recorder.status().path, &copied).expect("a copy");
    assert_eq!(read(&copied).0, [1]);
    // The stream continues, and is idle again, and so on.
    for number in 2..6 {
        recorder.raise(&mark, (number,));
        std::thread::sleep(Duration::from_millis(100));
    }
    let status = recorder.finish();
    let (numbers, outcome) = read(&status.path);
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(Sums::of(&outcome.totals).skipped, 0);
}

#[test]
fn idle_pages_are_taken_under_threads_that_are_not_quite_idle() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = options(scratch.path());
    options.flush_interval = Duration::from_millis(2);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (recorder, mark) = (&recorder, &mark);
            scope.spawn(move || {
                for number in 0..400 {
                    recorder.raise(mark, (number,));
                    std::thread::sleep(Duration::from_micros(
                        1500 + thread * 700 + number % 7 * 300,
                    ));
                }
            });
        }
    });
    let status = recorder.finish();
    let sums = sums_by_type(&status.path)["mark"];
    assert_eq!((sums.raised, sums.recorded), (1600, 1600));
}

#[test]
fn clocks_of_any_rate_and_modulus_carry_events_told_late_and_in_batches() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&options(scratch.path())).expect("a recorder");
    let device = ClockSpec::unreadable("device", 3).max_ticks(999);
    let device = recorder.add_clock(&device).expect("a clock");
    let source = SourceSpec::unordered("device").clock(device);
    let source = recorder.add_source(&source).expect("a source");
    let mark = mark(&recorder);
    let mut number = 0;
    for batch in 0..50_u64 {
        // Newest first, and round and round the clock.
        for tick in (0..20).rev() {
            recorder.raise_at(source, (batch * 20 + tick) % 1000, &mark, (number,));
            number += 1;
        }
    }
    let status = recorder.finish();
    let (numbers, outcome) = read(&status.path);
    assert_eq!(numbers.len(), 1000);
    assert!(Sums::of(&outcome.totals).dropped == 0);
}

#[test]
fn losses_that_a_source_reports_stand_where_they_were_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&options(scratch.path())).expect("a recorder");
    let source = recorder.add_source(&SourceSpec::ordered("device"));
    let source = source.expect("a source");
    let mark = mark(&recorder);
    // Before the stream's first event, between two, after the last.
    recorder.report_dropped(source, mark.id(), 3);
    recorder.raise_on(source, &mark, (1,));
    recorder.report_dropped(source, mark.id(), 5);
    recorder.report_no_callback(source, mark.id());
    recorder.raise_on(source, &mark, (2,));
    recorder.report_dropped(source, mark.id(), u64::MAX);
    let status = recorder.finish();
    let (numbers, outcome) = read(&status.path);
    assert_eq!(numbers, [1, 2]);
    assert_eq!(dropped_by(&outcome, Cause::NoCallback), 1);
    assert_eq!(dropped_by(&outcome, Cause::ReportedBySource), (1 << 63) - 3);
    let told = outcome.losses.iter();
    let told = told.filter(|loss| loss.cause == Cause::ReportedBySource);
    let told: Vec<(u64, bool)> = told.map(|loss| (loss.count, loss.is_lower_bound)).collect();
    // Counters stop where events can still be added: at 2⁶³, eleven of which are already reported.
    assert_eq!(told, [(3, true), (5, true), ((1 << 63) - 11, true)]);
}
