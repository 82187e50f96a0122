//! Traces as inputs, limits of memory: whatever way a merge takes, the trace is the same.

use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Definitions, Footer, SourceOrder, StreamId, Trace,
    TraceLoss, Value, encode_tail,
};
use annals_merger::{
    InputTrace, JoinOptions, MergeOptions, Merged, OutputKind, Plan, Reader, Replace, SliceNumber,
    Window, no_progress, verify,
};
use annals_test_support::deeds::{self, Deed};
use annals_test_support::plans::{Made, SPAN_US, StreamPlan, make, stream_plan};
use annals_test_support::{MARK, REFERENCE, Row, TestRecording, TestStream};
use proptest::prelude::*;

const LEVEL: CompressionLevel = CompressionLevel::Zstd(1);

fn ranks() -> impl Strategy<Value = Vec<(u32, Vec<StreamPlan>)>> {
    prop::collection::vec((0..3_u32, prop::collection::vec(stream_plan(), 0..4)), 1..5)
}

fn options(jobs: usize, chunk_events: usize) -> MergeOptions {
    let mut options = MergeOptions::new();
    options.compression = LEVEL;
    options.chunk_events = chunk_events;
    options.jobs = jobs;
    options
}

fn write(options: MergeOptions, inputs: &[PathBuf], output: &Path) -> Merged {
    let plan = options.plan(inputs).expect("inputs");
    assert!(plan.rejected().is_empty(), "{:?}", plan.rejected());
    plan.write_trace(output, no_progress).expect("a trace")
}

fn merged(inputs: &[PathBuf], output: &Path, chunk_events: usize) -> Merged {
    let merged = write(options(2, chunk_events), inputs, output);
    assert!(
        merged
            .report
            .streams
            .iter()
            .all(|stream| stream.miscounted == 0)
    );
    merged
}

#[test]
fn slices_of_a_run_of_one_chunk_have_equally_many_events() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (start, events, of) = (1_000_000_i64, 10_000_u64, 3);
    // Most of them at the beginning, and a few over a long time.
    let tick = |n: u64| start as u64 + if n < 9_900 { n } else { n * 1000 };
    let rows = (0..events).map(|n| Row::Event(MARK, tick(n), n)).collect();
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 0,
        start_ns: start,
        end_ns: tick(events) as i64,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(start, rows)],
        }],
        has_footer: true,
    };
    let input = recording.write(scratch.path(), LEVEL);
    for number in 1..=of {
        let mut options = options(1, 1 << 16);
        options.slice = Some(SliceNumber { number, of });
        let slice = scratch.path().join("slice.annals");
        let merged = write(options, std::slice::from_ref(&input), &slice);
        let present = merged.report.totals.present();
        assert!(present.abs_diff(events / u64::from(of)) <= 10, "{present}");
    }
}

/// Time, stream, position, residual, shift, event type, number.
type Event = (i64, u32, u64, i64, i64, String, u64);

fn events(path: &Path) -> Vec<Event> {
    let opened = Reader::open(path).expect("a trace");
    let mut found = Vec::new();
    let read = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let Value::U64(number) = row.value(0) else {
                panic!("a number");
            };
            found.push((
                row.time_ns(),
                row.stream().get(),
                chunk.position(row.number).unwrap_or(0),
                chunk.tick_residual(row.number),
                chunk.shift_ns(row.number),
                opened.definitions().event_type_name(row.event_type()),
                number,
            ));
        }
        Ok(())
    });
    read.expect("the trace is read");
    found
}

/// Returns losses in a canonical order. Several losses at one place, or between places that only other streams
/// distinguish, may be in any order.
fn losses(losses: &[TraceLoss]) -> Vec<String> {
    let mut lines: Vec<String> = losses.iter().map(|loss| format!("{loss:?}")).collect();
    lines.sort();
    lines
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a trace")
}

/// Writes recordings into two directories and merges each; returns the traces.
fn halves(made: &[Made], mask: u8, scratch: &Path, chunk_events: usize) -> Vec<PathBuf> {
    let mut traces = Vec::new();
    for half in 0..2 {
        let directory = scratch.join(format!("half-{half}"));
        std::fs::create_dir(&directory).expect("a directory");
        let of_half = made.iter().enumerate();
        let of_half = of_half.filter(|(index, _)| mask >> index & 1 == half);
        let mut is_any = false;
        for (_, one) in of_half {
            one.recording.write(&directory, LEVEL);
            is_any = true;
        }
        if is_any {
            let trace = scratch.join(format!("half-{half}.annals"));
            merged(&[directory], &trace, chunk_events);
            traces.push(trace);
        }
    }
    traces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Merging traces of parts of a run is equal to merging all recordings together: the same events, totals, order
    /// hashes and losses.
    #[test]
    fn traces_of_parts_merge_as_their_recordings(
        plans in ranks(),
        mask: u8,
        chunk_events in (prop_oneof![1..30_usize, Just(1 << 16)], prop_oneof![1..30_usize, Just(1 << 16)]),
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let all = scratch.path().join("all");
        std::fs::create_dir(&all).expect("a directory");
        for one in &made {
            one.recording.write(&all, LEVEL);
        }
        let (at_once, in_two) = (scratch.path().join("once.annals"), scratch.path().join("two.annals"));
        let expected = merged(std::slice::from_ref(&all), &at_once, chunk_events.0);
        let mut traces = halves(&made, mask, scratch.path(), chunk_events.1);
        let found = merged(&traces, &in_two, chunk_events.0);
        prop_assert_eq!(events(&in_two), events(&at_once));
        prop_assert_eq!(&found.totals, &expected.totals);
        prop_assert_eq!(losses(&found.losses), losses(&expected.losses));
        prop_assert_eq!(found.report.totals, expected.report.totals);
        prop_assert_eq!(found.report.inputs.len(), made.len());
        let verified = verify(&in_two, std::slice::from_ref(&all)).expect("a trace");
        prop_assert!(verified.holds(), "{:?}", verified.mismatches);

        // The order of the arguments does not matter, and a trace among its recordings changes
        // nothing.
        let again = scratch.path().join("again.annals");
        traces.reverse();
        merged(&traces, &again, chunk_events.0);
        prop_assert_eq!(bytes(&again), bytes(&in_two));
        traces.push(all);
        let both = merged(&traces, &again, chunk_events.0);
        prop_assert_eq!(events(&again), events(&at_once));
        prop_assert_eq!(both.report.duplicates.len(), traces.len() - 1);
    }

    /// A rank that is added later is merged into the trace of the others.
    #[test]
    fn a_late_rank_joins_a_trace(plans in ranks(), chunk_events in prop_oneof![1..30_usize, Just(1 << 16)]) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let all = scratch.path().join("all");
        std::fs::create_dir(&all).expect("a directory");
        for one in &made {
            one.recording.write(&all, LEVEL);
        }
        let at_once = scratch.path().join("once.annals");
        let expected = merged(&[all], &at_once, chunk_events);
        let mut inputs = halves(&made, 1, scratch.path(), chunk_events);
        inputs.retain(|path| !path.ends_with("half-1.annals"));
        inputs.push(scratch.path().join("half-1"));
        let later = scratch.path().join("later.annals");
        let found = merged(&inputs, &later, chunk_events);
        prop_assert_eq!(events(&later), events(&at_once));
        prop_assert_eq!(&found.totals, &expected.totals);
        prop_assert_eq!(losses(&found.losses), losses(&expected.losses));
    }

    /// Merging a trace alone returns its events; a filter counts what it leaves out of it.
    #[test]
    fn a_trace_alone_stays_what_it_is(
        plans in ranks(),
        chunk_events in (prop_oneof![1..30_usize, Just(1 << 16)], prop_oneof![1..30_usize, Just(1 << 16)]),
        bounds in (0..SPAN_US, 0..SPAN_US),
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let first = halves(&made, 0, scratch.path(), chunk_events.0).remove(0);
        let opened = InputTrace::open(&first).expect("a trace");
        let again = scratch.path().join("again.annals");
        let found = merged(std::slice::from_ref(&first), &again, chunk_events.1);
        prop_assert_eq!(events(&again), events(&first));
        prop_assert_eq!(&found.totals, &opened.trace.totals);
        prop_assert_eq!(losses(&found.losses), losses(&opened.trace.losses));
        let reread = InputTrace::open(&again).expect("a trace").trace.definitions;
        prop_assert_eq!(&reread.time_zero, &opened.trace.definitions.time_zero);
        prop_assert_eq!(&reread.clock_maps, &opened.trace.definitions.clock_maps);
        prop_assert_eq!(&reread.clock_errors, &opened.trace.definitions.clock_errors);
        prop_assert_eq!(&reread.process_ends, &opened.trace.definitions.process_ends);

        let window = Window {
            from_ns: bounds.0.min(bounds.1) * 1000,
            to_ns: bounds.0.max(bounds.1) * 1000,
        };
        let mut in_window = options(1, chunk_events.1);
        in_window.window = window;
        let filtered = write(in_window, std::slice::from_ref(&first), &again);
        let mut expected = events(&first);
        let all = expected.len() as u64;
        expected.retain(|event| window.contains(event.0));
        prop_assert_eq!(filtered.report.totals.filtered, all - expected.len() as u64);
        prop_assert_eq!(events(&again), expected);
        prop_assert_eq!(losses(&filtered.losses), losses(&opened.trace.losses));
    }

    /// However little memory there is, and in however many passes: the same bytes.
    #[test]
    fn every_memory_limit_gives_the_same_bytes(
        plans in ranks(),
        mask: u8,
        limit in prop_oneof![1..200_u64, 1_000..40_000_u64],
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
        window in prop_oneof![Just(None), (0..SPAN_US, 0..SPAN_US).prop_map(Some)],
        has_trace: bool,
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let mut inputs = halves(&made, mask, scratch.path(), chunk_events);
        if !has_trace {
            inputs = vec![scratch.path().join("half-0"), scratch.path().join("half-1")];
            inputs.retain(|path| std::fs::read_dir(path).expect("a directory").count() != 0);
        }
        let mut outputs = Vec::new();
        for (limit, jobs) in [(1 << 30, 2), (limit, 1)] {
            let mut options = options(jobs, chunk_events);
            options.memory_limit_bytes = limit;
            options.temporary_directory = Some(scratch.path().to_owned());
            if let Some((a, b)) = window {
                options.window = Window { from_ns: a.min(b) * 1000, to_ns: a.max(b) * 1000 };
            }
            let output = scratch.path().join("out.annals");
            write(options, &inputs, &output);
            outputs.push(bytes(&output));
        }
        prop_assert!(outputs[0] == outputs[1]);
    }

    /// Slices put together are the trace: its events, totals, hashes and losses; with a plan as without.
    #[test]
    fn slices_join_to_the_trace(
        plans in ranks(),
        mask: u8,
        of in 1..6_u32,
        chunk_events in prop_oneof![1..30_usize, Just(1 << 16)],
        window in prop_oneof![Just(None), (0..SPAN_US, 0..SPAN_US).prop_map(Some)],
        (has_trace, is_damaged, has_plan) in any::<(bool, bool, bool)>(),
        at in any::<prop::sample::Index>(),
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let mut inputs = halves(&made, mask, scratch.path(), chunk_events);
        if !has_trace {
            inputs = vec![scratch.path().join("half-0"), scratch.path().join("half-1")];
            inputs.retain(|path| std::fs::read_dir(path).expect("a directory").count() != 0);
        }
        if is_damaged {
            let file = &inputs[0];
            let file = if file.is_dir() {
                let mut files = std::fs::read_dir(file).expect("a directory");
                files.next().expect("a file").expect("a file").path()
            } else {
                file.clone()
            };
            let mut damaged = bytes(&file);
            let at = at.index(damaged.len());
            damaged[at] ^= 1;
            std::fs::write(&file, damaged).expect("a file");
            let plan = MergeOptions::new().plan(&inputs);
            prop_assume!(plan.is_ok_and(|plan| plan.rejected().is_empty()));
        }
        let plan_file = scratch.path().join("plan.json");
        if has_plan {
            let settled = options(1, chunk_events).plan(&inputs).expect("inputs").settled();
            settled.write(&plan_file, Replace::Only(OutputKind::JSON)).expect("a plan");
        }
        let write_slice = |slice: Option<u32>, output: &Path| {
            let mut options = options(1, chunk_events);
            options.settled = has_plan.then(|| Plan::read(&plan_file).expect("a plan"));
            if let Some((a, b)) = window {
                options.window = Window { from_ns: a.min(b) * 1000, to_ns: a.max(b) * 1000 };
            }
            options.slice = slice.map(|number| SliceNumber { number, of });
            write(options, &inputs, output)
        };
        let whole = scratch.path().join("whole.annals");
        let expected = write_slice(None, &whole);
        let paths: Vec<PathBuf> = (1..=of).map(|k| scratch.path().join(format!("slice-{k}.annals"))).collect();
        let mut present = 0;
        for (number, path) in (1..).zip(&paths) {
            let slice = write_slice(Some(number), path);
            present += slice.report.totals.present();
            let compared = if is_damaged || has_trace { &[][..] } else { &inputs[..] };
            let verified = verify(path, compared).expect("a slice");
            prop_assert!(verified.holds(), "{:?}", verified);
        }
        let joined = scratch.path().join("joined.annals");
        let mut given = paths.clone();
        given.reverse();
        let found = JoinOptions::new().join(&given, &joined, no_progress).expect("slices");
        prop_assert_eq!(present, found.sums.present());
        prop_assert_eq!(events(&joined), events(&whole));
        prop_assert_eq!(&found.totals, &expected.totals);
        if !is_damaged {
            prop_assert_eq!(losses(&found.losses), losses(&expected.losses));
        }
        prop_assert!(verify(&joined, &[]).expect("a trace").holds());

        // One that is missing, or there twice, is named.
        let number = at.index(paths.len());
        let mut fewer = paths.clone();
        fewer.remove(number);
        if !fewer.is_empty() {
            let error = JoinOptions::new().join(&fewer, &joined, no_progress).expect_err("a slice is missing").to_string();
            prop_assert!(error.contains(&format!("slice {} of {of} is missing", number + 1)), "{}", error);
        }
        given.push(paths[number].clone());
        let error = JoinOptions::new().join(&given, &joined, no_progress).expect_err("a slice is there twice").to_string();
        prop_assert!(error.contains("twice"), "{}", error);
        let error = JoinOptions::new().join(&[whole], &joined, no_progress).expect_err("no slice").to_string();
        prop_assert!(error.contains("no slice"), "{}", error);
    }

    /// Damage of a trace costs what is damaged, and every event is there, or counted.
    #[test]
    fn a_damaged_trace_costs_what_is_damaged(
        plans in ranks(),
        at in any::<prop::sample::Index>(),
        bit in 0..8_u8,
        is_cut: bool,
    ) {
        let made = make(&plans);
        let scratch = tempfile::tempdir().expect("a directory");
        let first = halves(&made, 0, scratch.path(), 20).remove(0);
        let before = events(&first);
        let mut damaged = bytes(&first);
        let at = at.index(damaged.len());
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] ^= 1 << bit;
        }
        std::fs::write(&first, &damaged).expect("a file");
        let Ok(plan) = options(1, 1 << 16).plan(&[first]) else {
            return Ok(());
        };
        let again = scratch.path().join("again.annals");
        let found = plan.write_trace(&again, no_progress).expect("a trace");
        let after = events(&again);
        // Of what is left, every event is one that was there, in its order.
        let numbers: Vec<u64> = after.iter().map(|event| event.6).collect();
        let mut expected = before.iter().map(|event| event.6);
        for number in &numbers {
            prop_assert!(expected.any(|other| other == *number), "{}", number);
        }
        let totals = found.report.totals;
        prop_assert_eq!(totals.present(), after.len() as u64);
        prop_assert!(after.len() == before.len() || found.report.has_loss());
        if Trace::read(&damaged).is_ok_and(|trace| trace.has_footer) {
            prop_assert_eq!(totals.recorded, before.len() as u64);
        }
    }
}

/// Removes the definition of a stream, or of what it is in.
fn forget(definitions: &mut Definitions, id: StreamId, what: &str) {
    let stream = definitions.streams[&id];
    if what == "stream" {
        definitions.streams.remove(&id);
        return;
    }
    definitions.sources.remove(&stream.source);
    if what == "source and location" {
        definitions
            .locations
            .remove(&stream.location.expect("a location"));
    }
}

/// A trace in which definitions of places are lost: what a merge makes of it has all of its events.
#[test]
fn events_of_a_trace_whose_places_are_lost_are_kept() {
    let scratch = tempfile::tempdir().expect("a directory");
    let ranks: Vec<Vec<Vec<Deed>>> = vec![vec![vec![Deed::Mark; 50]; 2]; 2];
    deeds::write(&ranks, scratch.path());
    let whole = scratch.path().join("whole.annals");
    write(options(1, 1 << 16), &[scratch.path().to_owned()], &whole);
    let file = bytes(&whole);
    let trace = Trace::read(&file).expect("a trace");
    let streams: Vec<StreamId> = trace.definitions.streams.keys().copied().collect();
    for name in ["stream", "source", "source and location"] {
        let mut definitions = trace.definitions.clone();
        forget(&mut definitions, streams[1], name);
        let footer = Footer {
            definitions,
            trace_chunks: trace.chunks.clone(),
            totals: trace.totals.clone(),
            losses: trace.losses.clone(),
            ..Footer::default()
        };
        let (mut body, mut damaged) = (Vec::new(), file.clone());
        footer.encode(&mut body);
        let offset = damaged.len() as u64;
        let mut blocks = BlockWriter::new(CompressionLevel::None).expect("a writer");
        blocks.write(BlockKind::Footer, &[], &body, &mut damaged);
        damaged.extend(encode_tail(offset));
        let path = scratch.path().join("damaged.annals");
        std::fs::write(&path, damaged).expect("a file");
        let again = scratch.path().join("again.annals");
        let merged = write(options(1, 1 << 16), &[path], &again);
        assert_eq!(merged.report.totals.present(), 200, "without a {name}");
        assert_eq!(events(&again).len(), 200, "without a {name}");
        assert!(verify(&again, &[]).expect("a trace").holds());
    }
}
