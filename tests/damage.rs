//! Damage: whatever is cut, flipped, zeroed, dropped, doubled or swapped in one recording of a set, a merge returns
//! only true events, all that are undamaged, and counts the others.
//!
//! `ANNALS_LONG=1` damages every byte of every recording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use annals_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, ChunkHeader, ClockKind, CompressionLevel,
    FILE_HEADER_LEN, FileKind, RecordingId, SourceOrder, StreamId, TAIL_LEN, TraceLoss, Value,
};
use annals_merger::{
    MergeOptions, ReadSummary, Reader, Report, StreamReport, Window, no_progress, verify,
};
use annals_recorder::{EventTypeSpec, Options, Recorder};
use annals_test_support::{MARK, REFERENCE, Row, TestClock, TestRecording, TestStream};

const START_NS: i64 = 5_000_000_000;
const END_NS: i64 = START_NS + 40_000_000;
const MOST_SHOWN: usize = 12;

/// 2.5 ticks a nanosecond, started somewhere.
const FAST: TestClock = TestClock {
    kind: ClockKind::Tsc,
    ticks_per_second: 2_500_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: 987_654_321_000,
};
/// Starts again every 10 ms, at no power of two.
const SMALL: TestClock = TestClock {
    kind: ClockKind::Readable,
    ticks_per_second: 1_000_000,
    max_ticks: 9_999,
    tick_at_zero: 4_321,
};
const CLOCKS: [TestClock; 3] = [REFERENCE, FAST, SMALL];

fn is_long() -> bool {
    std::env::var_os("ANNALS_LONG").is_some()
}

/// An event as it was.
#[derive(Clone, Debug)]
struct Known {
    recording: RecordingId,
    stream: usize,
    chunk: usize,
    position: usize,
    time_ns: i64,
    /// The text of a note.
    text: Option<String>,
}

/// A recording, and what is true of it.
struct Made {
    recording: TestRecording,
    bytes: Vec<u8>,
}

impl Made {
    fn name(&self) -> String {
        format!("test-host-{}.annals", self.recording.id)
    }
}

/// A set of recordings of one run; events are known by their numbers.
struct Set {
    made: Vec<Made>,
    known: HashMap<u64, Known>,
    /// Dropped events by recording and stream.
    dropped: BTreeMap<(RecordingId, usize), u64>,
}

/// How the streams of a recording are: clock, ordering, events, events of a chunk.
type StreamPlan = (usize, SourceOrder, u64, usize);

/// Adds a recording to the set.
fn add(
    set: &mut Set,
    rank: u32,
    id: u16,
    plans: &[StreamPlan],
    level: CompressionLevel,
    has_footer: bool,
) {
    let mut recording = TestRecording {
        rank: Some(rank),
        rank_count: Some(3),
        id,
        start_ns: START_NS,
        end_ns: END_NS,
        clocks: CLOCKS.to_vec(),
        streams: Vec::new(),
        has_footer,
    };
    let of_set = recording.recording_id();
    for (stream, (clock, ordering, events, chunk_len)) in plans.iter().enumerate() {
        let mut times_us: Vec<i64> = (0..*events as i64)
            // No two events of the set at one time, but for neighbours in a stream.
            .map(|n| 1_000 + (n / 2) * 700 + i64::from(id) * 10 + stream as i64)
            .collect();
        if *ordering == SourceOrder::Unordered {
            times_us
                .chunks_mut(5)
                .for_each(|run| run.rotate_left(run.len() / 2));
        }
        let clock_of = CLOCKS[*clock];
        let mut chunks: Vec<(i64, Vec<Row>)> = Vec::new();
        let mut told_ns = START_NS;
        for (position, time_us) in times_us.into_iter().enumerate() {
            let time_ns = START_NS + time_us * 1_000;
            told_ns = told_ns.max(time_ns);
            if position % chunk_len == 0 {
                chunks.push((told_ns, Vec::new()));
            }
            let number = set.known.len() as u64;
            let chunk = chunks.len() - 1;
            let rows = &mut chunks[chunk].1;
            let tick = clock_of.tick(time_ns);
            if position % 4 == 3 {
                rows.push(Row::Dropped(
                    Some(MARK),
                    3,
                    clock_of.tick(time_ns - 1_000),
                    tick,
                ));
                *set.dropped.entry((of_set, stream)).or_default() += 3;
            }
            if clock_of.max_ticks < u64::MAX {
                rows.push(Row::Observation(told_ns));
            }
            let text = (position % 3 == 1).then(|| format!("note {number} of stream {stream}"));
            rows.push(match &text {
                Some(text) => Row::Note(tick, number, text.clone()),
                None => Row::Event(MARK, tick, number),
            });
            let known = Known {
                recording: of_set,
                stream,
                chunk,
                position,
                time_ns,
                text,
            };
            set.known.insert(number, known);
        }
        recording.streams.push(TestStream {
            clock: *clock,
            ordering: *ordering,
            chunks,
        });
    }
    let bytes = recording.encode(level);
    set.made.push(Made { recording, bytes });
}

/// Three ranks; the first has a stream of every kind.
fn set(level: CompressionLevel, has_footer: bool) -> Set {
    use SourceOrder::{Ordered, Unordered};
    let mut set = Set {
        made: Vec::new(),
        known: HashMap::new(),
        dropped: BTreeMap::new(),
    };
    let first = [
        (0, Ordered, 14, 5),
        (1, Unordered, 12, 4),
        (2, Ordered, 9, 4),
        (2, Unordered, 6, 3),
    ];
    add(&mut set, 0, 1, &first, level, has_footer);
    add(
        &mut set,
        1,
        2,
        &[(1, Ordered, 8, 3), (0, Unordered, 6, 3)],
        level,
        !has_footer,
    );
    add(&mut set, 2, 3, &[(0, Ordered, 5, 5)], level, has_footer);
    set
}

/// A part of a file.
#[derive(Clone, Debug)]
struct Region {
    what: &'static str,
    start: usize,
    end: usize,
    /// Stream and number of the chunk that it belongs to.
    chunk: Option<(usize, usize)>,
}

/// Returns the blocks of a whole file, header and tail included.
fn blocks(bytes: &[u8]) -> Vec<Region> {
    let mut found = vec![Region {
        what: "file header",
        start: 0,
        end: FILE_HEADER_LEN,
        chunk: None,
    }];
    let mut at = FILE_HEADER_LEN;
    while at < bytes.len() {
        let Ok(header) = BlockHeader::decode(&bytes[at..]) else {
            assert_eq!(bytes.len() - at, TAIL_LEN, "a whole file");
            found.push(Region {
                what: "tail",
                start: at,
                end: bytes.len(),
                chunk: None,
            });
            break;
        };
        let end = at + header.block_len() as usize;
        let mut chunk = None;
        let what = match header.kind {
            BlockKind::Chunk => {
                let head = &bytes[at + BLOCK_HEADER_LEN..][..header.head_len as usize];
                let head = ChunkHeader::decode(&mut annals_format::wire::Wire::new(head));
                let head = head.expect("a whole head");
                chunk = Some((head.stream.index(), head.sequence as usize));
                "chunk"
            }
            BlockKind::TraceChunk => "trace chunk",
            BlockKind::Definitions => "definitions",
            BlockKind::Footer => "footer",
            _ => "block",
        };
        found.push(Region {
            what,
            start: at,
            end,
            chunk,
        });
        at = end;
    }
    found
}

/// Blocks, and the parts of each: header, head, body.
fn regions(bytes: &[u8]) -> Vec<Region> {
    let mut found = Vec::new();
    for block in blocks(bytes) {
        let Ok(header) = BlockHeader::decode(&bytes[block.start..]) else {
            found.push(block);
            continue;
        };
        let head = block.start + BLOCK_HEADER_LEN;
        let body = head + header.head_len as usize;
        for (start, end) in [(block.start, head), (head, body), (body, block.end)] {
            if start < end {
                found.push(Region {
                    start,
                    end,
                    ..block.clone()
                });
            }
        }
    }
    found
}

/// The events that may be lost in a case.
#[derive(Clone, Debug)]
enum Loses {
    /// Nothing.
    Nothing,
    /// This chunk of the damaged recording.
    Chunk(usize, usize),
    /// All events of the damaged recording that do not lie completely before this offset.
    Behind(usize),
    /// Anything of the damaged recording.
    Recording,
}

/// The damaged recording in the place of the whole one.
struct Case {
    what: String,
    bytes: Vec<u8>,
    loses: Loses,
}

/// Time, stream, number, text.
type FoundEvent = (i64, StreamId, u64, Option<String>);

fn read_all(trace: &Path) -> (Reader, Vec<FoundEvent>, ReadSummary) {
    let opened = Reader::open(trace).expect("the trace opens");
    let (found, outcome) = events_of(&opened);
    (opened, found, outcome)
}

/// Time, stream, number, text of every event.
fn events_of(opened: &Reader) -> (Vec<FoundEvent>, ReadSummary) {
    let mut found = Vec::new();
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let name = opened.definitions().event_type_name(row.event_type());
            let Value::U64(number) = row.value(0) else {
                panic!("the number of {name}");
            };
            let text = match name.as_str() {
                "mark" => None,
                "note" => match row.value(1) {
                    Value::String(text) => Some(String::from_utf8(text.to_vec()).expect("a text")),
                    other => panic!("the text of a note, found {other:?}"),
                },
                other => panic!("an event type of the set, found {other}"),
            };
            found.push((row.time_ns(), row.stream(), number, text));
        }
        Ok(())
    });
    (found, outcome.expect("the trace is read"))
}

macro_rules! ensure {
    ($holds:expr, $($why:tt)+) => {
        if !$holds {
            return Err(format!($($why)+));
        }
    };
}

/// Recording and number of the stream, by its number in the trace.
fn origins(set: &Set, opened: &Reader) -> BTreeMap<StreamId, (RecordingId, usize)> {
    let d = opened.definitions();
    let ids = set.made.iter().map(|made| made.recording.recording_id());
    // A process whose definition is lost is the one that no definition names.
    let is_named = |id: &RecordingId| d.processes.values().any(|p| p.recording_id == *id);
    let unnamed: Vec<RecordingId> = ids.filter(|id| !is_named(id)).collect();
    let each = d.streams.iter().map(|(id, stream)| {
        let source = &d.sources[&stream.source];
        let name = d.string(source.name);
        // Sources whose definitions are lost are named after their stream, or their number.
        let number = name.rsplit([' ', '-']).next().and_then(|n| n.parse().ok());
        let process = d.processes.get(&source.process);
        let recording = process.map_or_else(|| unnamed[0], |process| process.recording_id);
        (*id, (recording, number.expect("a source of the set")))
    });
    each.collect()
}

/// Every event is one that was raised, with its time, elements and stream; none twice; in order.
fn check_events(
    set: &Set,
    origins: &BTreeMap<StreamId, (RecordingId, usize)>,
    found: &[FoundEvent],
) -> Result<BTreeSet<u64>, String> {
    let mut seen = BTreeSet::new();
    let mut last: Option<(i64, usize)> = None;
    for (time_ns, stream, number, text) in found {
        let known = set
            .known
            .get(number)
            .ok_or_else(|| format!("event {number} was never raised"))?;
        ensure!(seen.insert(*number), "event {number} occurs twice");
        ensure!(
            *time_ns == known.time_ns - START_NS,
            "event {number} at {time_ns}: {known:?}"
        );
        ensure!(
            *text == known.text,
            "event {number} has {text:?}: {known:?}"
        );
        let origin = origins.get(stream).ok_or("an event of no stream")?;
        ensure!(
            *origin == (known.recording, known.stream),
            "event {number} of {origin:?}: {known:?}"
        );
        let this = (*time_ns, known.position);
        ensure!(
            last.is_none_or(|last| last < this || last.0 < this.0),
            "event {number} is out of order"
        );
        last = Some(this);
    }
    Ok(seen)
}

/// Checks the counts of each stream: missing events are counted, or the count is marked as a lower
/// bound.
fn check_counts(
    set: &Set,
    opened: &Reader,
    outcome: &ReadSummary,
    origins: &BTreeMap<StreamId, (RecordingId, usize)>,
    seen: &BTreeSet<u64>,
) -> Result<BTreeSet<(RecordingId, usize)>, String> {
    let mut counted = BTreeSet::new();
    for totals in &outcome.totals {
        let origin = origins[&totals.stream];
        counted.insert(origin);
        let of_stream = set
            .known
            .iter()
            .filter(|(_, k)| (k.recording, k.stream) == origin);
        let of_stream: Vec<(&u64, &Known)> = of_stream.collect();
        let losses: Vec<&TraceLoss> = outcome
            .losses
            .iter()
            .filter(|loss| loss.stream == totals.stream)
            .collect();
        let of_reader: Vec<&&TraceLoss> = losses
            .iter()
            .filter(|loss| loss.cause.is_of_reader())
            .collect();
        let is_vague = of_reader.iter().any(|loss| loss.is_lower_bound);
        let lost: u64 = of_reader.iter().map(|loss| loss.count).sum();
        let missing = of_stream.iter().filter(|(n, _)| !seen.contains(n)).count() as u64;
        if is_vague {
            ensure!(
                lost <= missing,
                "{lost} of {missing} missing events counted: {origin:?}"
            );
        } else {
            ensure!(
                lost == missing,
                "{lost} counted, {missing} missing, without a lower bound: {origin:?}"
            );
        }
        let mut recorded = 0;
        for row in &totals.rows {
            ensure!(row.is_balanced(), "{row:?}");
            let name = opened.definitions().event_type_name(row.event_type);
            let is_type = |known: &Known| known.text.is_some() == (name == "note");
            let true_count = of_stream.iter().filter(|(_, known)| is_type(known)).count() as u64;
            let here = of_stream
                .iter()
                .filter(|(n, known)| is_type(known) && seen.contains(n));
            let here = here.count() as u64;
            recorded += row.recorded;
            if row.event_type != annals_format::ANY_EVENT_TYPE {
                ensure!(row.present() == here, "{here} of {name} here, {row:?}");
                ensure!(
                    row.recorded <= true_count,
                    "{true_count} of {name} recorded, {row:?}"
                );
            }
            ensure!(
                row.recorded == row.present() + row.skipped + row.truncated,
                "recorded = present + skipped + truncated: {row:?}"
            );
        }
        let all = of_stream.len() as u64;
        ensure!(
            recorded == seen_of(&of_stream, seen) + lost,
            "recorded {recorded}, lost {lost}: {origin:?}"
        );
        ensure!(
            is_vague || recorded == all,
            "recorded {recorded} of {all}: {origin:?}"
        );
        let dropped: u64 = losses
            .iter()
            .filter(|l| l.cause.is_dropped())
            .map(|l| l.count)
            .sum();
        let true_dropped = set.dropped.get(&origin).copied().unwrap_or(0);
        ensure!(
            dropped <= true_dropped,
            "dropped {dropped} of {true_dropped}: {origin:?}"
        );
        let by_rows: u64 = totals.rows.iter().map(|row| row.dropped_sum()).sum();
        ensure!(
            by_rows == dropped,
            "dropped {dropped} by records, {by_rows} by totals: {origin:?}"
        );
        ensure!(
            missing != 0 || is_vague || dropped == true_dropped,
            "dropped {dropped}, not {true_dropped}: {origin:?}"
        );
    }
    Ok(counted)
}

fn seen_of(of_stream: &[(&u64, &Known)], seen: &BTreeSet<u64>) -> u64 {
    of_stream
        .iter()
        .filter(|(number, _)| seen.contains(number))
        .count() as u64
}

fn merge_into(inputs: &[PathBuf], trace: &Path, jobs: usize) -> Result<Report, String> {
    let say = |error: annals_merger::MergeError| error.to_string();
    let mut options = MergeOptions::new();
    options.output = Some(trace.to_owned());
    options.chunk_events = 16;
    options.compression = CompressionLevel::None;
    options.jobs = jobs;
    // Traces of other damage were there before.
    options.force = true;
    let plan = options.plan(inputs).map_err(say)?;
    let merged = plan.write_trace(trace, no_progress).map_err(say)?;
    Ok(merged.report)
}

/// Merges a directory with one job and with two, and compares the trace with the truth; returns the report and the
/// numbers of the events that are there.
fn check_merge(set: &Set, directory: &Path) -> Result<(Report, BTreeSet<u64>), String> {
    let outputs = tempfile::tempdir().map_err(|error| error.to_string())?;
    let inputs = [directory.to_owned()];
    let mut made: Option<(Report, Vec<u8>)> = None;
    let trace = outputs.path().join("run.annals");
    for jobs in [1, 2] {
        let report = merge_into(&inputs, &trace, jobs)?;
        let bytes = std::fs::read(&trace).map_err(|error| error.to_string())?;
        if let Some((first, first_bytes)) = &made {
            ensure!(*first_bytes == bytes, "one job and two give other bytes");
            ensure!(*first == report, "one job and two give other reports");
        }
        made = Some((report, bytes));
    }
    let (report, _) = made.ok_or("a merge")?;
    let (opened, found, outcome) = read_all(&trace);
    let origins = origins(set, &opened);
    let seen = check_events(set, &origins, &found)?;
    let counted = check_counts(set, &opened, &outcome, &origins, &seen)?;
    let miscounted = |stream: &StreamReport| stream.miscounted != 0 || !stream.is_balanced;
    ensure!(
        !report.streams.iter().any(miscounted),
        "{:?}",
        report.streams
    );
    let missing: Vec<&Known> = set
        .known
        .iter()
        .filter(|(n, _)| !seen.contains(n))
        .map(|(_, known)| known)
        .collect();
    ensure!(
        missing.is_empty() || report.has_loss(),
        "events are missing, and the exit code is 0"
    );
    for known in missing {
        let id = known.recording.to_string();
        let input = report.inputs.iter().find(|input| input.recording_id == id);
        let is_told = match input {
            None => !report.rejected.is_empty() || !report.missing_ranks.is_empty(),
            Some(input) => {
                let is_of_input = |stream: &&StreamReport| stream.rank == input.rank;
                let mut streams = report.streams.iter().filter(is_of_input);
                let is_seen = input.ended.name() != "finished"
                    || !input.damage.is_empty()
                    || streams.any(|stream| stream.first_error.is_some());
                is_seen
                    && (counted.contains(&(known.recording, known.stream))
                        || input.unplaced != 0
                        || !input.damage.is_empty()
                        || input.ended.name() == "truncated")
            }
        };
        ensure!(is_told, "not reported: {known:?} {report:?}");
    }
    let verified = verify(&trace, &inputs).map_err(|error| error.to_string())?;
    ensure!(verified.holds(), "verify: {:?}", verified.mismatches);
    ensure!(
        verified.has_loss()
            || !report.has_loss()
            || report.complete
            || !report.rejected.is_empty()
            || report.inputs.iter().any(|i| i.unplaced != 0),
        "verify sees no loss: {report:?}"
    );
    Ok((report, seen))
}

/// Runs the cases, one after the other in the place of recording `at`, and reports those that fail. `is_told`: the
/// report of each must mention the damage.
fn run_cases(set: &Set, at: usize, name: &str, is_told: bool, cases: impl Iterator<Item = Case>) {
    let directory = tempfile::tempdir().expect("a directory");
    for made in &set.made {
        std::fs::write(directory.path().join(made.name()), &made.bytes).expect("a recording");
    }
    let whole = is_told.then(|| checked(set, directory.path()).0);
    let damaged = &set.made[at];
    let path = directory.path().join(damaged.name());
    let (mut count, mut failures) = (0, Vec::new());
    for case in cases {
        count += 1;
        std::fs::write(&path, &case.bytes).expect("the damaged recording");
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (report, seen) = check_merge(set, directory.path())?;
            let is_told = whole.as_ref().is_none_or(|whole| *whole != report);
            ensure!(
                is_told || case.bytes == damaged.bytes,
                "nothing is reported"
            );
            for (number, known) in &set.known {
                let may_be_lost = known.recording == damaged.recording.recording_id()
                    && may_lose(&damaged.bytes, &case.loses, known);
                ensure!(
                    may_be_lost || seen.contains(number),
                    "event {number} is lost: {known:?}"
                );
            }
            Ok(())
        }));
        let why = match outcome {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(_) => "panicked".to_owned(),
        };
        failures.push(format!("{}: {why}", case.what));
    }
    assert!(count != 0, "{name} has cases");
    let shown: Vec<&str> = failures
        .iter()
        .take(MOST_SHOWN)
        .map(String::as_str)
        .collect();
    assert!(
        failures.is_empty(),
        "{name}: {} of {count} cases fail:\n{}",
        failures.len(),
        shown.join("\n")
    );
}

fn may_lose(whole: &[u8], loses: &Loses, known: &Known) -> bool {
    match loses {
        Loses::Nothing => false,
        Loses::Chunk(stream, chunk) => (*stream, *chunk) == (known.stream, known.chunk),
        Loses::Behind(offset) => {
            let of_event = Some((known.stream, known.chunk));
            let blocks = blocks(whole);
            let block = blocks.iter().find(|block| block.chunk == of_event);
            block.is_none_or(|block| block.end > *offset)
        }
        Loses::Recording => true,
    }
}

/// Returns what damage within a region may cost.
fn cost_of(region: &Region, has_footer: bool) -> Loses {
    match (region.what, region.chunk) {
        (_, Some((stream, chunk))) => Loses::Chunk(stream, chunk),
        ("footer" | "tail", _) => Loses::Nothing,
        ("definitions", _) if has_footer => Loses::Nothing,
        _ => Loses::Recording,
    }
}

/// Returns the four kinds of file: compressed or not, with a footer or not.
fn kinds() -> [(CompressionLevel, bool); 4] {
    let (none, zstd) = (CompressionLevel::None, CompressionLevel::Zstd(1));
    [(none, true), (zstd, false), (none, false), (zstd, true)]
}

/// Every how manieth byte is damaged.
fn step(quick: usize) -> usize {
    if is_long() { 1 } else { quick }
}

#[test]
fn undamaged_recordings_lose_nothing() {
    for (level, has_footer) in kinds() {
        let mut set = set(level, has_footer);
        for made in &mut set.made {
            made.recording.has_footer = true;
            made.bytes = made.recording.encode(level);
        }
        let whole = set.made[0].bytes.clone();
        let case = Case {
            what: "whole".to_owned(),
            bytes: whole,
            loses: Loses::Nothing,
        };
        run_cases(&set, 0, "whole", false, std::iter::once(case));
    }
}

#[test]
fn a_recording_cut_anywhere_costs_what_stands_behind() {
    for (number, (level, has_footer)) in kinds().into_iter().enumerate() {
        let set = set(level, has_footer);
        let whole = &set.made[0].bytes;
        let edges = regions(whole)
            .into_iter()
            .flat_map(|r| [r.start, r.start + 1, r.end - 1]);
        let mut lengths: BTreeSet<usize> = (number..whole.len()).step_by(step(23)).collect();
        lengths.extend(edges);
        let definitions = blocks(whole)[1].end;
        let cases = lengths.into_iter().map(|length| Case {
            what: format!("cut to {length} of {} bytes", whole.len()),
            bytes: whole[..length].to_vec(),
            loses: if length < definitions {
                Loses::Recording
            } else {
                Loses::Behind(length)
            },
        });
        run_cases(&set, 0, "cut", false, cases);
    }
}

/// A kind of flip: what it does to bytes from an offset on.
type Flip = (&'static str, usize, fn(&mut [u8], usize));

const FLIPS: [Flip; 4] = [
    ("one bit", 1, |bytes, at| bytes[0] ^= 1 << (at % 8)),
    ("all bits of a byte", 1, |bytes, _| bytes[0] ^= 0xff),
    ("a run of bits", 7, |bytes, _| {
        bytes.iter_mut().for_each(|b| *b ^= 0x5a)
    }),
    ("a run of bytes, zeroed", 16, |bytes, _| bytes.fill(0)),
];

/// Bytes that mean nothing, whatever they are.
const RESERVED_IN_TAIL: std::ops::Range<usize> = 12..16;

#[test]
fn bytes_flipped_anywhere_are_told_and_cost_only_the_chunk_they_stand_in() {
    for (number, (level, has_footer)) in kinds().into_iter().enumerate() {
        let set = set(level, has_footer);
        let whole = &set.made[0].bytes;
        for (flip_number, (name, length, flip)) in FLIPS.into_iter().enumerate() {
            let mut cases = Vec::new();
            for region in regions(whole) {
                let first =
                    region.start + (number * 3 + flip_number * 5) % (region.end - region.start);
                let step = step(if length == 1 { 29 } else { 61 });
                let from = if is_long() { region.start } else { first };
                for at in (from..region.end).step_by(step) {
                    if region.what == "tail" && RESERVED_IN_TAIL.contains(&(at - region.start)) {
                        continue;
                    }
                    let mut bytes = whole.clone();
                    let end = region.end.min(at + length);
                    flip(&mut bytes[at..end], at);
                    cases.push(Case {
                        what: format!(
                            "{name} at {at} ({} {}..{})",
                            region.what, region.start, region.end
                        ),
                        bytes,
                        loses: cost_of(&region, has_footer),
                    });
                }
                // The whole of it.
                if length > 1 {
                    let mut bytes = whole.clone();
                    flip(&mut bytes[region.start..region.end], 0);
                    let what = format!(
                        "{name}: all of {} {}..{}",
                        region.what, region.start, region.end
                    );
                    cases.push(Case {
                        what,
                        bytes,
                        loses: cost_of(&region, has_footer),
                    });
                }
            }
            run_cases(&set, 0, name, true, cases.into_iter());
        }
    }
}

#[test]
fn blocks_dropped_doubled_and_swapped_cost_at_most_themselves() {
    for (level, has_footer) in kinds() {
        let set = set(level, has_footer);
        let whole = &set.made[0].bytes;
        let blocks = blocks(whole);
        let bytes_of = |order: &[usize]| -> Vec<u8> {
            let parts = order.iter().map(|block| &blocks[*block]);
            parts
                .flat_map(|block| &whole[block.start..block.end])
                .copied()
                .collect()
        };
        let all: Vec<usize> = (0..blocks.len()).collect();
        let mut cases = Vec::new();
        for (number, block) in blocks.iter().enumerate().skip(1) {
            let mut order = all.clone();
            order.remove(number);
            cases.push(Case {
                what: format!("{} {number} dropped", block.what),
                bytes: bytes_of(&order),
                loses: cost_of(block, has_footer),
            });
            let mut order = all.clone();
            order.insert(number, number);
            cases.push(Case {
                what: format!("{} {number} doubled", block.what),
                bytes: bytes_of(&order),
                loses: Loses::Nothing,
            });
            let mut order = all.clone();
            order.push(number);
            cases.push(Case {
                what: format!("{} {number} once more at the end", block.what),
                bytes: bytes_of(&order),
                loses: Loses::Nothing,
            });
            for (other, behind) in blocks.iter().enumerate().skip(number + 1) {
                let mut order = all.clone();
                order.swap(number, other);
                cases.push(Case {
                    what: format!(
                        "{} {number} and {} {other} swapped",
                        block.what, behind.what
                    ),
                    bytes: bytes_of(&order),
                    // The footer says where each chunk is, and is believed.
                    loses: if has_footer {
                        Loses::Recording
                    } else {
                        Loses::Nothing
                    },
                });
            }
        }
        run_cases(&set, 0, "blocks", false, cases.into_iter());
    }
}

#[test]
fn files_that_are_no_recordings_cost_only_themselves() {
    let set = set(CompressionLevel::Zstd(1), true);
    let whole = &set.made[0].bytes;
    let mut trace = whole[..FILE_HEADER_LEN].to_vec();
    let header = annals_format::FileHeader::new(FileKind::Trace, RecordingId([9; 16]));
    trace.copy_from_slice(&header.encode());
    let noise = (0..5_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
    let each: [(&str, Vec<u8>); 5] = [
        ("empty", Vec::new()),
        ("text", b"not a recording, but a text\n".repeat(40)),
        ("noise", noise.collect()),
        ("zeros", vec![0; 4_096]),
        ("the header of a trace", trace),
    ];
    let cases = each.into_iter().map(|(what, bytes)| Case {
        what: what.to_owned(),
        bytes,
        loses: Loses::Recording,
    });
    run_cases(&set, 0, "foreign", false, cases);
}

/// Writes the set's recordings into a separate directory.
fn written(set: &Set) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for made in &set.made {
        std::fs::write(directory.path().join(made.name()), &made.bytes).expect("a recording");
    }
    directory
}

#[track_caller]
fn checked(set: &Set, directory: &Path) -> (Report, BTreeSet<u64>) {
    check_merge(set, directory).unwrap_or_else(|why| panic!("{why}"))
}

/// Returns all of it finished, so that only what a test does is a loss.
fn whole_set() -> Set {
    let level = CompressionLevel::Zstd(1);
    let mut set = set(level, true);
    for made in &mut set.made {
        made.recording.has_footer = true;
        made.bytes = made.recording.encode(level);
    }
    set
}

#[test]
fn every_missing_rank_is_named() {
    for missing in 0..3 {
        let set = whole_set();
        let directory = written(&set);
        let gone = &set.made[missing];
        std::fs::remove_file(directory.path().join(gone.name())).expect("a recording");
        let (report, seen) = checked(&set, directory.path());
        assert_eq!(report.missing_ranks, [missing as u32]);
        assert!(report.has_loss());
        let id = gone.recording.recording_id();
        for (number, known) in &set.known {
            assert_eq!(seen.contains(number), known.recording != id);
        }
    }
}

#[test]
fn a_recording_under_two_names_is_taken_once() {
    let set = whole_set();
    let directory = written(&set);
    let copy = directory.path().join("z-copy.annals");
    let bytes = &set.made[0].bytes;
    for length in [bytes.len(), bytes.len() / 2, FILE_HEADER_LEN] {
        std::fs::write(&copy, &bytes[..length]).expect("a copy");
        let (report, seen) = checked(&set, directory.path());
        assert_eq!(seen.len(), set.known.len());
        assert_eq!(report.duplicates, std::slice::from_ref(&copy));
        assert!(report.rejected.is_empty() && report.complete);
    }
}

#[test]
fn a_recording_with_the_identity_of_another_is_told_and_costs_that_nothing() {
    let set = whole_set();
    let directory = written(&set);
    let mut other = set.made[1].recording.clone();
    other.id = set.made[0].recording.id;
    other.has_footer = false;
    // Also one that is longer than the finished one.
    let mut longer = other.encode(CompressionLevel::None);
    longer.resize(3 * set.made[0].bytes.len(), 0);
    for bytes in [other.encode(CompressionLevel::None), longer] {
        let path = directory.path().join("a-other.annals");
        std::fs::write(&path, bytes).expect("a recording");
        let (report, seen) = checked(&set, directory.path());
        assert_eq!(seen.len(), set.known.len());
        assert!(report.duplicates.is_empty() && report.has_loss());
        let [rejected] = report.rejected.as_slice() else {
            panic!("{:?}", report.rejected);
        };
        assert_eq!(rejected.path, path);
        assert!(
            rejected.why.contains(&set.made[0].name()),
            "{}",
            rejected.why
        );
    }
}

/// Returns a set in which rank 0 has another recording, which started later.
fn restarted() -> Set {
    let mut set = whole_set();
    let level = CompressionLevel::Zstd(1);
    add(
        &mut set,
        0,
        9,
        &[(1, SourceOrder::Ordered, 7, 3)],
        level,
        true,
    );
    let again = &mut set.made[3];
    again.recording.start_ns += 500_000;
    again.bytes = again.recording.encode(level);
    set
}

#[test]
fn a_rank_that_was_started_again_has_two_recordings() {
    let set = restarted();
    let directory = written(&set);
    let (report, seen) = checked(&set, directory.path());
    assert_eq!(seen.len(), set.known.len());
    let [shared] = report.shared_ranks.as_slice() else {
        panic!("{:?}", report.shared_ranks);
    };
    assert_eq!(shared.rank, 0);
    let ids: Vec<&str> = shared
        .processes
        .iter()
        .map(|p| p.recording_id.as_str())
        .collect();
    let known = [0, 3].map(|at| set.made[at].recording.recording_id().to_string());
    assert_eq!(ids, known, "by their start");
    assert!(shared.processes[0].start_unix_ns < shared.processes[1].start_unix_ns);
    assert!(!shared.is_of_several_runs());
    assert!(report.complete && report.missing_ranks.is_empty());
}

#[test]
fn recordings_of_another_run_are_told_apart() {
    let mut set = restarted();
    let other = &mut set.made[3];
    other.bytes = other
        .recording
        .encode_of_run("another", CompressionLevel::None);
    let directory = written(&set);
    let (report, seen) = checked(&set, directory.path());
    assert_eq!(seen.len(), set.known.len());
    assert!(report.shared_ranks[0].is_of_several_runs() && report.has_loss());
    let runs: Vec<&str> = report.shared_ranks[0]
        .processes
        .iter()
        .map(|process| process.run.as_str())
        .collect();
    assert_eq!(runs, ["test", "another"]);
}

#[test]
fn an_unknown_minor_version_is_read_and_an_unknown_major_refused() {
    let set = whole_set();
    let directory = written(&set);
    let path = directory.path().join(set.made[0].name());
    let of_version = |major: u16, minor: u16| {
        let id = set.made[0].recording.recording_id();
        let mut header = annals_format::FileHeader::new(FileKind::Recording, id);
        (header.major, header.minor) = (major, minor);
        let mut bytes = set.made[0].bytes.clone();
        bytes[..FILE_HEADER_LEN].copy_from_slice(&header.encode());
        bytes
    };
    let known = annals_format::FileHeader::new(FileKind::Recording, RecordingId([0; 16]));
    std::fs::write(&path, of_version(known.major, known.minor + 7)).expect("a recording");
    let (report, seen) = checked(&set, directory.path());
    assert_eq!(seen.len(), set.known.len());
    assert!(report.complete && report.rejected.is_empty());
    std::fs::write(&path, of_version(known.major + 1, 0)).expect("a recording");
    let (report, _) = checked(&set, directory.path());
    assert!(report.has_loss());
    let [rejected] = report.rejected.as_slice() else {
        panic!("{:?}", report.rejected);
    };
    assert_eq!(rejected.path, path);
    for version in [known.major, known.major + 1] {
        assert!(
            rejected.why.contains(&version.to_string()),
            "{}",
            rejected.why
        );
    }
    assert_eq!(report.missing_ranks, [0]);
}

/// Returns the merged set, and by offset of each chunk's block the numbers of its events.
fn merged(set: &Set, directory: &Path) -> (Vec<u8>, BTreeMap<usize, BTreeSet<u64>>) {
    let trace = directory.join("whole.annals");
    let recordings = written(set);
    merge_into(&[recordings.path().to_owned()], &trace, 2).expect("a merge");
    let bytes = std::fs::read(&trace).expect("the trace");
    let blocks = blocks(&bytes);
    let mut chunks = blocks.iter().filter(|block| block.what == "trace chunk");
    let mut numbers = BTreeMap::new();
    let opened = Reader::open(&trace).expect("the trace");
    opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            let block = chunks.next().expect("a block for every chunk");
            let of_chunk = chunk.rows().map(|row| match row.value(0) {
                Value::U64(number) => number,
                other => panic!("a number, found {other:?}"),
            });
            numbers.insert(block.start, of_chunk.collect());
            Ok(())
        })
        .expect("the trace is read");
    std::fs::remove_file(&trace).expect("the trace");
    (bytes, numbers)
}

/// Compares a damaged trace with the truth; returns the numbers of the events that are there.
fn check_trace(set: &Set, trace: &Path) -> Result<BTreeSet<u64>, String> {
    let opened = match Reader::open(trace) {
        Ok(opened) => opened,
        // Not a file of the format any more.
        Err(error) => {
            ensure!(
                verify(trace, &[]).is_err(),
                "verify reads what cannot be opened"
            );
            ensure!(
                error.to_string().contains(&trace.display().to_string()),
                "{error}"
            );
            return Ok(BTreeSet::new());
        }
    };
    let verified = verify(trace, &[]).map_err(|error| error.to_string())?;
    ensure!(verified.holds(), "verify: {:?}", verified.mismatches);
    if opened.definitions().streams.is_empty() {
        ensure!(
            verified.has_loss(),
            "definitions are lost, and verify sees no loss"
        );
        let outcome = opened.summary().map_err(|error| error.to_string())?;
        ensure!(
            !outcome.damage.is_empty() || outcome.has_skipped_now,
            "no damage is reported"
        );
        return Ok(BTreeSet::new());
    }
    let (found, outcome) = events_of(&opened);
    let origins = origins(set, &opened);
    let seen = check_events(set, &origins, &found)?;
    check_counts(set, &opened, &outcome, &origins, &seen)?;
    if seen.len() < set.known.len() {
        ensure!(
            outcome.has_skipped_now && !outcome.complete,
            "events are missing, and it is not reported"
        );
        ensure!(
            verified.has_loss(),
            "events are missing, and verify sees no loss"
        );
    }
    Ok(seen)
}

#[test]
fn a_damaged_trace_tells_and_costs_only_the_chunks_that_are_hit() {
    let set = whole_set();
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, numbers) = merged(&set, directory.path());
    let path = directory.path().join("run.annals");
    let verified = |bytes: &[u8]| {
        let path = directory.path().join("verified.annals");
        std::fs::write(&path, bytes).expect("a trace");
        format!("{:?}", verify(&path, &[]))
    };
    let undamaged = verified(&whole);
    let mut failures = Vec::new();
    let mut count = 0;
    let mut case = |what: String, bytes: &[u8], may_lose: &dyn Fn(u64) -> bool| {
        count += 1;
        std::fs::write(&path, bytes).expect("the damaged trace");
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let seen = check_trace(&set, &path)?;
            let mut lost = set
                .known
                .keys()
                .filter(|n| !seen.contains(n) && !may_lose(**n));
            let lost = lost.next();
            ensure!(lost.is_none(), "event {lost:?} is lost");
            Ok(())
        }));
        let why = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => "panicked".to_owned(),
        };
        failures.push(format!("{what}: {why}"));
    };
    let blocks = blocks(&whole);
    let is_behind = |length: usize, number: u64| {
        let chunk = numbers
            .iter()
            .find(|(_, numbers)| numbers.contains(&number));
        let start = chunk.map_or(0, |(start, _)| *start);
        let block = blocks.iter().find(|block| block.start == start);
        length < blocks[1].end || block.is_none_or(|block| block.end > length)
    };
    for length in (0..whole.len()).step_by(step(37)) {
        let may_lose = |number: u64| is_behind(length, number);
        case(
            format!("cut to {length} of {}", whole.len()),
            &whole[..length],
            &may_lose,
        );
    }
    for (name, length, flip) in FLIPS {
        for region in regions(&whole) {
            let block = blocks.iter().find(|block| block.end > region.start);
            let of_chunk = block.and_then(|block| numbers.get(&block.start));
            let may_lose = |number: u64| match (region.what, of_chunk) {
                ("file header", _) => true,
                (_, Some(numbers)) => numbers.contains(&number),
                _ => false,
            };
            for at in (region.start..region.end).step_by(step(if length == 1 { 31 } else { 67 })) {
                let mut bytes = whole.clone();
                flip(&mut bytes[at..region.end.min(at + length)], at);
                let is_reserved =
                    region.what == "tail" && RESERVED_IN_TAIL.contains(&(at - region.start));
                if bytes != whole && !is_reserved {
                    let told = verified(&bytes);
                    assert_ne!(
                        told, undamaged,
                        "{name} at {at} ({}): not told",
                        region.what
                    );
                }
                case(
                    format!("{name} at {at} ({})", region.what),
                    &bytes,
                    &may_lose,
                );
            }
        }
    }
    let without = |block: &Region| [&whole[..block.start], &whole[block.end..]].concat();
    for block in &blocks[1..] {
        let of_chunk = numbers.get(&block.start);
        let may_lose = |number: u64| of_chunk.is_some_and(|numbers| numbers.contains(&number));
        case(
            format!("{} dropped", block.what),
            &without(block),
            &may_lose,
        );
        let twice = [&whole[..block.end], &whole[block.start..]].concat();
        case(format!("{} doubled", block.what), &twice, &|_| false);
    }
    let shown: Vec<&str> = failures
        .iter()
        .take(MOST_SHOWN)
        .map(String::as_str)
        .collect();
    let shown = shown.join("\n");
    assert!(
        failures.is_empty(),
        "{} of {count} cases fail:\n{shown}",
        failures.len()
    );
}

#[test]
fn a_recording_that_is_still_written_is_read_as_it_is_now() {
    let set = whole_set();
    let directory = written(&set);
    let mut options = Options::new(directory.path());
    options.rank = Some(3);
    options.buffer_bytes = 400 << 10;
    options.page_bytes = Some(4096);
    let recorder = Recorder::start(&options).expect("a recorder");
    let live = EventTypeSpec::new("live").element("number");
    let live = recorder
        .add_event_type::<(u64,)>(&live)
        .expect("an event type");
    recorder.raise(&live, (0,));
    let is_over = AtomicBool::new(false);
    let inputs = [directory.path().to_owned()];
    let outputs = tempfile::tempdir().expect("a directory");
    let trace = outputs.path().join("run.annals");
    let rounds = if is_long() { 200 } else { 10 };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                if is_over.load(Relaxed) {
                    break;
                }
                recorder.raise(&live, (number,));
                if number % 64 == 0 {
                    // Every merge reads all there is.
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
        });
        // A failure must not leave the other thread to go on for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut seen_before = 0;
            for round in 0..rounds {
                let report = merge_into(&inputs, &trace, 1 + round % 2).expect("a merge");
                let running = report
                    .inputs
                    .iter()
                    .filter(|input| input.ended.name() == "running");
                assert_eq!(running.count(), 1);
                assert!(report.has_loss(), "there will be more");
                let wrong = |stream: &&StreamReport| stream.miscounted != 0 || !stream.is_balanced;
                assert_eq!(report.streams.iter().find(wrong), None);
                let verified = verify(&trace, &[]).expect("a trace");
                assert!(verified.holds(), "{:?}", verified.mismatches);
                let opened = Reader::open(&trace).expect("a trace");
                let (mut of_set, mut numbers) = (0, Vec::new());
                opened
                    .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
                        for row in chunk.rows() {
                            match opened
                                .definitions()
                                .event_type_name(row.event_type())
                                .as_str()
                            {
                                "live" => match row.value(0) {
                                    Value::U64(number) => numbers.push(number),
                                    other => panic!("a number, found {other:?}"),
                                },
                                _ => of_set += 1,
                            }
                        }
                        Ok(())
                    })
                    .expect("the trace is read");
                assert_eq!(of_set, set.known.len(), "the others lose nothing");
                assert!(numbers.is_sorted_by(|a, b| a < b), "in order, none twice");
                assert!(numbers.len() >= seen_before, "what was there once stays");
                seen_before = numbers.len();
            }
        }));
        is_over.store(true, Relaxed);
        if let Err(why) = outcome {
            std::panic::resume_unwind(why);
        }
    });
    recorder.finish();
    let report = merge_into(&inputs, &trace, 2).expect("a merge");
    assert!(
        report
            .inputs
            .iter()
            .all(|input| input.ended.name() == "finished")
    );
}
