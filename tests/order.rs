//! The merged order is right: an oracle that only concatenates and sorts agrees.

use std::collections::BTreeMap;
use std::path::Path;

use annals_format::{ClockKind, CompressionLevel, SourceOrder};
use annals_merger::{EventFilter, MergeOptions, Reader, Window, no_progress, verify};
use annals_test_support::plans::{Known, SPAN_US, START_NS, make, numbers_of, stream_plan};
use annals_test_support::{MARK, Row, TestClock, TestRecording, TestStream};
use proptest::prelude::*;

fn options(trace: &Path, compression: CompressionLevel, jobs: usize) -> MergeOptions {
    let mut options = MergeOptions::new();
    options.output = Some(trace.to_owned());
    options.compression = compression;
    options.jobs = jobs;
    options
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    /// More recordings than wait with their definitions, more streams than one pass reads.
    #[test]
    fn a_run_of_very_many_streams_is_merged_like_one_of_few(
        plans in prop::collection::vec((0..400_u32, prop::collection::vec(stream_plan(), 2..4)), 400..450),
        chunk_events in prop_oneof![100..2000_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        for one in &made {
            one.recording.write(scratch.path(), CompressionLevel::Zstd(1));
        }
        let mut oracle: Vec<Known> = made.iter().flat_map(|one| one.known.clone()).collect();
        oracle.sort_by_key(|k| (k.time_ns, k.rank, k.recording, k.stream, k.position));
        let expected: Vec<(i64, u64)> =
            oracle.iter().map(|k| (k.time_ns - START_NS, k.number)).collect();
        let mut traces = Vec::new();
        for jobs in [1, 2] {
            let trace = scratch.path().join("run.annals");
            let inputs = [scratch.path().to_owned()];
            let mut options = options(&trace, CompressionLevel::Zstd(1), jobs);
            options.chunk_events = chunk_events;
            options.temporary_directory = Some(scratch.path().to_owned());
            let plan = options.plan(&inputs).expect("recordings");
            prop_assert!(plan.rejected().is_empty());
            prop_assert!(plan.definitions().streams.len() > 512);
            plan.write_trace(&trace, no_progress).expect("a trace");
            let opened = Reader::open(&trace).expect("a trace");
            let found = numbers_of(&opened).0;
            let differing = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            prop_assert_eq!((differing, found.len()), (None, expected.len()));
            traces.push(std::fs::read(&trace).expect("the trace"));
        }
        prop_assert!(traces[0] == traces[1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_merge_is_concatenate_then_stable_sort(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..5)), 1..5),
        is_compressed: bool,
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = if is_compressed { CompressionLevel::Zstd(1) } else { CompressionLevel::None };
        for one in &made {
            one.recording.write(scratch.path(), level);
        }
        let mut oracle: Vec<Known> = made.iter().flat_map(|one| one.known.clone()).collect();
        oracle.sort_by_key(|k| (k.time_ns, k.rank, k.recording, k.stream, k.position));
        let expected: Vec<(i64, u64)> =
            oracle.iter().map(|k| (k.time_ns - START_NS, k.number)).collect();
        let dropped: u64 = made.iter().map(|one| one.dropped).sum();

        let direct = Reader::open(scratch.path()).expect("recordings");
        let (found, lost) = numbers_of(&direct);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, dropped);

        let trace = scratch.path().join("run.annals");
        let inputs = [scratch.path().to_owned()];
        let mut options = options(&trace, level, 2);
        options.chunk_events = chunk_events;
        let plan = options.plan(&inputs).expect("recordings");
        prop_assert!(plan.rejected().is_empty());
        let merged = plan.write_trace(&trace, no_progress).expect("a trace");
        prop_assert_eq!(merged.report.totals.present(), expected.len() as u64);
        prop_assert_eq!(merged.report.totals.dropped, dropped);
        prop_assert!(merged.report.streams.iter().all(|stream| stream.ambiguous == 0));
        let opened = Reader::open(&trace).expect("a trace");
        let (found, lost) = numbers_of(&opened);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, dropped);
    }

    /// Where observations come late, up to so late that another turn fits about as well: what is decided is right,
    /// and what is called ambiguous are just those events.
    #[test]
    fn what_is_decided_about_wraps_is_right_and_nothing_else_is_ambiguous(
        max_ticks in 999..2_000_000_u64, tick_at_zero: u64,
        lags in prop::collection::vec((0..10_000_i64, -620..620_i64), 1..200),
        chunk_len in 1..50_usize,
    ) {
        const SECOND: i64 = 1_000_000_000;
        let period = max_ticks as i64 + 1;
        let clock = TestClock {
            kind: ClockKind::Readable,
            ticks_per_second: SECOND as u64,
            max_ticks,
            tick_at_zero: tick_at_zero % (max_ticks + 1),
        };
        // When each happens, and when it is observed: by thousandths of a period earlier or later.
        let mut oracle = Vec::new();
        let mut undecided = 0;
        let rows = (0..).zip(&lags).map(|(number, (step, lag))| {
            let time_ns = START_NS + SECOND + step * 997;
            let lag_ns = lag * period / 1000;
            // Within an eighth of a period of the middle between two turns.
            let is_ambiguous = (lag_ns.abs() * 2 - period).abs() * 4 < period;
            undecided += u64::from(is_ambiguous);
            oracle.push((number, time_ns - START_NS, is_ambiguous));
            [Row::Observation(time_ns + lag_ns), Row::Event(MARK, clock.tick(time_ns), number)]
        });
        let rows: Vec<[Row; 2]> = rows.collect();
        let chunks = rows.chunks(chunk_len).map(|rows| {
            let Row::Observation(first_ns) = rows[0][0] else { unreachable!("it is first") };
            (first_ns, rows.concat())
        });
        let recording = TestRecording {
            rank: Some(0),
            rank_count: None,
            id: 1,
            start_ns: START_NS,
            end_ns: START_NS + 2 * SECOND,
            clocks: vec![clock],
            streams: vec![TestStream { clock: 0, ordering: SourceOrder::Unordered, chunks: chunks.collect() }],
            has_footer: true,
        };
        let scratch = tempfile::tempdir().expect("a directory");
        recording.write(scratch.path(), CompressionLevel::None);
        let trace = scratch.path().join("run.annals");
        let options = options(&trace, CompressionLevel::None, 1);
        let plan = options.plan(&[scratch.path().to_owned()]).expect("a recording");
        let merged = plan.write_trace(&trace, no_progress).expect("a trace");
        prop_assert_eq!(merged.report.streams[0].ambiguous, undecided);
        let found = numbers_of(&Reader::open(&trace).expect("a trace")).0;
        prop_assert_eq!(found.len(), oracle.len());
        let times: BTreeMap<u64, i64> = found.into_iter().map(|(time_ns, number)| (number, time_ns)).collect();
        for (number, time_ns, is_ambiguous) in oracle {
            if !is_ambiguous {
                prop_assert_eq!(times[&number], time_ns);
            }
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_bytes(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..4)), 1..5),
        rotation in 0..5_usize,
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = CompressionLevel::Zstd(1);
        let mut paths: Vec<_> =
            made.iter().map(|one| one.recording.write(scratch.path(), level)).collect();
        let mut outputs = Vec::new();
        for jobs in [1, 2] {
            let output = scratch.path().join(format!("out-{jobs}.annals"));
            let mut options = options(&output, level, jobs);
            options.chunk_events = chunk_events;
            let plan = options.plan(&paths).expect("recordings");
            plan.write_trace(&output, no_progress).expect("a trace");
            outputs.push(std::fs::read(&output).expect("the trace"));
            let by = rotation % paths.len();
            paths.rotate_left(by);
            paths.reverse();
        }
        prop_assert_eq!(&outputs[0], &outputs[1]);
    }

    /// In = out + filtered: what a filter keeps is what the oracle keeps, every other event is counted, and
    /// no loss disappears.
    #[test]
    fn a_filter_keeps_what_it_says_and_counts_the_rest(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..5)), 1..5),
        bounds in (0..SPAN_US, 0..SPAN_US),
        ranks in prop_oneof![Just(None), Just(Some("0")), Just(Some("1-2"))],
        keeps_type in prop_oneof![3 => Just(true), 1 => Just(false)],
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let level = CompressionLevel::Zstd(1);
        for one in &made {
            one.recording.write(scratch.path(), level);
        }
        let window = Window {
            from_ns: bounds.0.min(bounds.1) * 1000,
            to_ns: bounds.0.max(bounds.1) * 1000,
        };
        let trace = scratch.path().join("run.annals");
        let inputs = [scratch.path().to_owned()];
        let unfiltered = options(&trace, level, 2).plan(&inputs).expect("recordings");
        let definitions = unfiltered.definitions();
        let is_kept_rank = |rank: u32| match ranks {
            None => true,
            Some("0") => rank == 0,
            Some(_) => rank != 0,
        };
        let event = if keeps_type { "mar?" } else { "*[!k]" };
        let filter = EventFilter {
            ranks: ranks.map(|ranks| ranks.parse().expect("ranks")),
            event_types: Some(event.parse().expect("a glob")),
            ..EventFilter::default()
        };
        let mut ranks_of = definitions.streams.keys().map(|stream| definitions.rank_of_stream(*stream));
        let has_rank = ranks_of.any(is_kept_rank);
        let types = definitions.event_types.values();
        let names: Vec<String> = types.map(|d| definitions.string(d.name).to_owned()).collect();
        let has_type = names.iter().any(|name| if keeps_type { name == "mark" } else { !name.ends_with('k') });
        let mut options = options(&trace, level, 2);
        options.chunk_events = chunk_events;
        options.filter = filter;
        options.window = window;
        let plan = options.plan(&inputs);
        prop_assert_eq!(plan.is_ok(), (ranks.is_none() || has_rank) && has_type);
        let Ok(plan) = plan else {
            return Err(TestCaseError::reject("the filter matches nothing"));
        };

        let mut oracle: Vec<Known> = made.iter().flat_map(|one| one.known.clone()).collect();
        let all = oracle.len();
        oracle.retain(|known| {
            keeps_type && is_kept_rank(known.rank) && window.contains(known.time_ns - START_NS)
        });
        oracle.sort_by_key(|k| (k.time_ns, k.rank, k.recording, k.stream, k.position));
        let expected: Vec<(i64, u64)> =
            oracle.iter().map(|k| (k.time_ns - START_NS, k.number)).collect();
        let merged = plan.write_trace(&trace, no_progress).expect("a trace");
        let totals = merged.report.totals;
        prop_assert_eq!(totals.recorded, all as u64);
        prop_assert_eq!(totals.filtered, (all - expected.len()) as u64);
        prop_assert_eq!(totals.present(), expected.len() as u64);
        prop_assert!(merged.report.streams.iter().all(|stream| stream.miscounted == 0));
        let opened = Reader::open(&trace).expect("a trace");
        let (found, lost) = numbers_of(&opened);
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(lost, made.iter().map(|one| one.dropped).sum::<u64>());
        prop_assert_eq!(opened.definitions().filters.len(), 1);
        let verified = verify(&trace, &inputs).expect("a trace");
        prop_assert!(verified.holds(), "{:?}", verified.mismatches);
        prop_assert_eq!(verified.proved_streams, opened.definitions().streams.len());
    }

    /// A trace is compared with recordings in which one event is not the one that was merged.
    #[test]
    fn verification_sees_any_other_event(
        plans in prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 1..4)), 1..4),
        which in any::<prop::sample::Index>(),
        is_time: bool,
    ) {
        let mut made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let (before, after) = (scratch.path().join("before"), scratch.path().join("after"));
        for directory in [&before, &after] {
            std::fs::create_dir(directory).expect("a directory");
        }
        let level = CompressionLevel::Zstd(1);
        for one in &made {
            one.recording.write(&before, level);
        }
        let trace = scratch.path().join("run.annals");
        let options = options(&trace, level, 1);
        let plan = options.plan(std::slice::from_ref(&before)).expect("recordings");
        plan.write_trace(&trace, no_progress).expect("a trace");
        prop_assert!(verify(&trace, &[before]).expect("a trace").holds());

        let streams = made.iter_mut().flat_map(|one| &mut one.recording.streams);
        let rows = streams.flat_map(|stream| &mut stream.chunks).flat_map(|(_, rows)| rows);
        let events = rows.filter_map(|row| match row {
            Row::Event(_, tick, number) => Some((tick, number)),
            _ => None,
        });
        let mut events: Vec<(&mut u64, &mut u64)> = events.collect();
        prop_assume!(!events.is_empty());
        let at = which.index(events.len());
        if is_time {
            *events[at].0 ^= 1;
        } else {
            *events[at].1 += 1;
        }
        for one in &made {
            one.recording.write(&after, level);
        }
        let verified = verify(&trace, &[after]).expect("a trace");
        prop_assert!(!verified.holds());
    }
}
