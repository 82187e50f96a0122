//! Snapshots of open regions: what they say is what the events before them say, by a simpler rule; they cost
//! little; slices that are joined have them as well.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::{CompressionLevel, Definitions, RegionId, Role, Step, Value};
use annals_merger::{
    Analysis, Calls, Close, EventFilter, Frame, JoinOptions, MergeOptions, Pass, Query, Reader,
    SliceNumber, Window, no_progress, verify,
};
use proptest::prelude::*;

use annals_test_support::deeds::{Deed, ranks, write};

/// By location: open calls as (region, entered, whether a loss followed), and the time of the last enter or leave.
type Open = BTreeMap<u32, (Vec<(u32, i64, bool)>, i64)>;

fn region_of(definitions: &Definitions, event_type: annals_format::EventTypeId) -> Option<bool> {
    match definitions.event_types[&event_type].role {
        Role::Enter => Some(true),
        Role::Leave => Some(false),
        _ => None,
    }
}

/// Returns what is open before each chunk, and at the end.
fn open_before_chunks(opened: &Reader) -> Vec<Open> {
    let definitions = opened.definitions();
    let location = |stream| {
        definitions.streams[&stream]
            .location
            .expect("a location")
            .get()
    };
    let mut open = Open::new();
    let mut all = Vec::new();
    let read = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        all.push(open.clone());
        let mut rows = chunk.rows();
        for index in 0..=chunk.len() {
            for (_, loss) in chunk.losses().filter(|(at, _)| *at == index) {
                let is_region = loss
                    .event_type
                    .is_none_or(|t| region_of(definitions, t).is_some());
                if let (true, Some((calls, _))) = (is_region, open.get_mut(&location(loss.stream)))
                {
                    calls.iter_mut().for_each(|call| call.2 = true);
                }
            }
            let Some(row) = rows.next() else {
                break;
            };
            let Some(is_enter) = region_of(definitions, row.event_type()) else {
                continue;
            };
            let Value::U64(region) = row.value(0) else {
                panic!("a region");
            };
            let (region, time_ns) = (region as u32, chunk.time_ns(index));
            let (calls, last_ns) = open.entry(location(chunk.stream(index))).or_default();
            *last_ns = time_ns;
            if is_enter {
                calls.push((region, time_ns, false));
            } else if let Some(at) = calls.iter().rposition(|call| call.0 == region) {
                calls.truncate(at);
            }
        }
        Ok(())
    });
    read.expect("the trace is read");
    all.push(open);
    all
}

/// Compares every snapshot of a trace with the oracle; returns their number, and the maximum number of calls that are
/// open between two chunks.
fn check(path: &Path) -> (usize, usize) {
    let opened = Reader::open(path).expect("a trace");
    let expected = open_before_chunks(&opened);
    for at in opened.trace().expect("a trace").snapshots() {
        let found = opened
            .trace()
            .expect("a trace")
            .load_snapshot(at)
            .expect("a snapshot");
        let found = found.locations.iter().map(|state| {
            let calls = state.steps.iter().map(|step| match step {
                Step::Enter {
                    region,
                    entered_ns,
                    is_uncertain,
                } => (RegionId::get(*region), *entered_ns, *is_uncertain),
                Step::Leave(_) => panic!("a whole trace has no leave without an enter before it"),
            });
            let last_ns = state.last_ns.expect("an enter or a leave");
            (state.location.get(), (calls.collect::<Vec<_>>(), last_ns))
        });
        assert_eq!(
            found.collect::<Open>(),
            expected[at.before],
            "before chunk {}",
            at.before
        );
    }
    let open = expected
        .iter()
        .map(|open| open.values().map(|(calls, _)| calls.len()).sum());
    (
        opened.trace().expect("a trace").snapshots().len(),
        open.max().unwrap_or(0),
    )
}

/// Bytes of the snapshot blocks of a trace, and all of them.
fn snapshot_bytes(path: &Path) -> (u64, u64) {
    use annals_format::{BLOCK_HEADER_LEN, BlockHeader};
    let bytes = std::fs::read(path).expect("a trace");
    let opened = Reader::open(path).expect("a trace");
    let each = opened
        .trace()
        .expect("a trace")
        .snapshots()
        .iter()
        .map(|at| {
            let header = &bytes[at.entry.offset as usize..][..BLOCK_HEADER_LEN];
            BlockHeader::decode(header).expect("a block").block_len()
        });
    (each.sum(), bytes.len() as u64)
}

fn options(chunk_events: usize) -> MergeOptions {
    let mut options = MergeOptions::new();
    options.compression = CompressionLevel::None;
    options.chunk_events = chunk_events;
    options.jobs = 2;
    options
}

/// What is known of the calls of each location, in its order, found in the global order or location by location.
#[derive(Default)]
struct AllCalls<const BY_LOCATION: bool>(BTreeMap<usize, Vec<String>>);

impl<const BY_LOCATION: bool> Analysis for AllCalls<BY_LOCATION> {
    const PASS: Pass = if BY_LOCATION {
        Pass::Calls
    } else {
        Pass::OrderedCalls
    };

    fn enter(&mut self, location: usize, around: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        let said = format!("enter {region:?} at {at_ns} in {}", around.len());
        self.0.entry(location).or_default().push(said);
        0
    }

    fn close(&mut self, location: usize, _: &[Frame], frame: &Frame, at_ns: i64, how: Close) {
        let said = format!("{frame:?} at {at_ns}: {how:?}");
        self.0.entry(location).or_default().push(said);
    }

    fn unmatched(&mut self, location: usize, region: RegionId, at_ns: i64) {
        let said = format!("leave {region:?} at {at_ns}");
        self.0.entry(location).or_default().push(said);
    }
}

fn calls<const BY_LOCATION: bool>(opened: &Reader, query: &Query) -> BTreeMap<usize, Vec<String>> {
    let mut found = AllCalls::<BY_LOCATION>::default();
    let read = Calls::new(opened.definitions(), query).run(opened, &mut found);
    read.expect("a trace");
    found.0
}

/// Calls are the same, whether they are found in the global order or location by location.
fn check_calls(opened: &Reader) {
    let end_ns = opened.extent().end_ns;
    let parts = [(i64::MIN, i64::MAX), (end_ns / 3, end_ns / 2)];
    let parts = parts.map(|(from_ns, to_ns)| Window { from_ns, to_ns });
    for window in parts {
        for rank in [None, Some("0")] {
            let filter = EventFilter {
                ranks: rank.map(|rank| rank.parse().expect("a rank")),
                ..EventFilter::default()
            };
            let query = Query::select(&filter, opened.definitions()).expect("a rank");
            let query = query.within(window);
            let by_location = calls::<true>(opened, &query);
            assert_eq!(
                by_location,
                calls::<false>(opened, &query),
                "{window:?} {rank:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_snapshot_is_what_the_events_before_it_leave_open(
        ranks in ranks(),
        chunk_events in 20..400_usize,
        of in 1..5_u32,
    ) {
        let scratch = tempfile::tempdir().expect("a directory");
        let inputs = scratch.path().join("in");
        std::fs::create_dir(&inputs).expect("a directory");
        write(&ranks, &inputs);
        let write = |slice: Option<SliceNumber>, path: &Path| {
            let mut options = options(chunk_events);
            options.slice = slice;
            let plan = options.plan(std::slice::from_ref(&inputs)).expect("recordings");
            assert!(plan.rejected().is_empty());
            plan.write_trace(path, no_progress).expect("a trace");
        };
        let whole = scratch.path().join("whole.annals");
        write(None, &whole);
        let (snapshots, most_open) = check(&whole);
        check_calls(&Reader::open(&whole).expect("a trace"));
        check_calls(&Reader::open(&inputs).expect("recordings"));
        let (of_snapshots, all) = snapshot_bytes(&whole);
        // With many open calls and few bytes of events, there are no snapshots.
        let is_affordable = |all: u64| all > 40 * (200 + 20 * most_open as u64);
        prop_assert!(snapshots > 0 || !is_affordable(all), "no snapshot at all");
        prop_assert!(of_snapshots * 20 <= all, "{of_snapshots} of {all} bytes");
        prop_assert!(verify(&whole, &[]).expect("a trace").holds());

        let paths: Vec<PathBuf> = (1..=of).map(|k| scratch.path().join(format!("{k}.annals"))).collect();
        for (number, path) in (1..).zip(&paths) {
            write(Some(SliceNumber { number, of }), path);
            prop_assert!(verify(path, &[]).expect("a slice").holds());
        }
        let joined = scratch.path().join("joined.annals");
        JoinOptions::new().join(&paths, &joined, no_progress).expect("slices");
        let (snapshots, _) = check(&joined);
        let (of_snapshots, all) = snapshot_bytes(&joined);
        prop_assert!(snapshots > 0 || !is_affordable(all), "no snapshot at all");
        prop_assert!(of_snapshots * 20 <= all, "{of_snapshots} of {all} bytes");
        prop_assert!(verify(&joined, &[]).expect("a trace").holds());
    }
}

/// A snapshot that contradicts the events is detected.
#[test]
fn verification_compares_snapshots_and_statistics_with_the_events() {
    use annals_format::{
        BlockKind, BlockWriter, FileHeader, Footer, FormatError, SnapshotEntry, Trace, encode_tail,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let mut deeds = vec![Deed::Enter(0)];
    deeds.extend([Deed::Enter(1), Deed::Leave(1), Deed::Mark].repeat(500));
    write(&[vec![deeds]], scratch.path());
    let path = scratch.path().join("trace.annals");
    let plan = options(100).plan(&[scratch.path().to_owned()]);
    let merged = plan.expect("recordings").write_trace(&path, no_progress);
    merged.expect("a trace");
    let bytes = std::fs::read(&path).expect("a trace");
    let trace = Trace::read(&bytes).expect("a trace");
    let at = trace.snapshots.last().expect("a snapshot");
    let mut wrong = trace.load_snapshot(&bytes, at).expect("a snapshot");
    wrong.locations[0].steps.pop();

    // A copy of the file, with the wrong snapshot after everything else.
    let mut file = bytes.clone();
    let offset = file.len() as u64;
    let (mut head, mut body) = (Vec::new(), Vec::new());
    wrong.header(at.entry.chunk).encode(&mut head);
    wrong.encode(&mut body);
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    writer.write(BlockKind::Snapshot, &head, &body, &mut file);
    let mut statistics = trace
        .load_statistics(&bytes)
        .expect("statistics")
        .expect("some");
    statistics.regions[0].1.calls += 1;
    let statistics_offset = file.len() as u64;
    head.clear();
    body.clear();
    statistics.encode_head(&mut head);
    statistics.encode(&mut body);
    writer.write(BlockKind::Statistics, &head, &body, &mut file);
    let footer = Footer {
        definitions: trace.definitions.clone(),
        trace_chunks: trace.chunks.clone(),
        totals: trace.totals.clone(),
        losses: trace.losses.clone(),
        snapshots: vec![SnapshotEntry {
            offset,
            chunk: at.entry.chunk,
        }],
        statistics: Some(statistics_offset),
        ..Footer::default()
    };
    body.clear();
    footer.encode(&mut body);
    let footer_offset = file.len() as u64;
    writer.write(BlockKind::Footer, &[], &body, &mut file);
    file.extend(encode_tail(footer_offset));
    assert!(FileHeader::decode(&file).is_ok_and(|header| header == trace.header));
    std::fs::write(&path, &file).expect("a file");
    let found = verify(&path, &[]).expect("a trace");
    assert_eq!(found.mismatches.len(), 2, "{:?}", found.mismatches);
    assert!(found.mismatches[0].what.contains("open regions"));
    assert_eq!(found.mismatches[1].what, "region statistics");

    // Damaged, they cost nothing but a pass over the events.
    let mut damaged = file.clone();
    damaged[statistics_offset as usize + 50] ^= 1;
    std::fs::write(&path, &damaged).expect("a file");
    let opened = Reader::open(&path).expect("a trace");
    let stored = opened.trace().expect("a trace").region_statistics();
    assert!(stored.is_err(), "{stored:?}");
    let found = verify(&path, &[]).expect("a trace");
    assert_eq!(found.mismatches.len(), 1, "{:?}", found.mismatches);
    let said = found
        .damage
        .iter()
        .any(|damage| damage.what.contains("region statistics"));
    assert!(said, "{:?}", found.damage);

    // Another block where the snapshot should be is no snapshot.
    let trace = Trace::read(&file).expect("a trace");
    let mut elsewhere = trace.snapshots[0];
    elsewhere.entry.offset = trace.chunks[0].offset;
    let error = trace.load_snapshot(&file, &elsewhere).expect_err("a chunk");
    assert!(matches!(error, FormatError::Invalid { .. }), "{error}");
}
