//! Verification: whether a trace holds what its footer says, and what its inputs hold.

mod bins;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{
    Definitions, EventTypeId, OverviewRow, Problem, RecordingId, RegionStatistics, Relation,
    SnapshotEntry, StreamId, StreamTotals, TraceChunk, TraceLoss, TypeTotals,
};
use rustc_hash::FxHasher;
use serde::Serialize;

use crate::axis::proof::{self, SortedStreams, StreamHashes};
use crate::calls::moves::ChunkMoves;
use crate::calls::region_types::RegionTypes;
use crate::calls::stacks::Stacks;
use crate::calls::statistics::ChunkSpan;
use crate::calls::statistics::TraceCalls;
use crate::clocks::offsets::ClockOffsets;
use crate::error::{MergeError, Result};
use crate::filter::said;
use crate::merge::{Merge, inputs};
use crate::messages::causality::Causality;
use crate::options::{MergeOptions, ReadOptions, ReadPart, TracePart};
use crate::overview::event_bins::{EventBins, FoundBins};
use crate::overview::groups::LaneGroups;
use crate::read::trace_file::TraceFile;
use crate::read::{ReadSummary, Reader};
use crate::report::{DamageReport, Sums};
use crate::window::Window;
use crate::workers::{default_jobs, no_progress};

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mismatch {
    /// Rank of the stream's process; null: of the whole.
    pub rank: Option<u32>,
    /// Name of the stream's source.
    pub source: Option<String>,
    /// Name of the stream's location.
    pub location: Option<String>,
    /// The item that does not agree.
    pub what: String,
    /// The expected value.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verification {
    /// `trace` or `recordings`.
    pub kind: &'static str,
    /// Events read.
    pub events: u64,
    /// Streams.
    pub streams: usize,
    /// Streams whose order hash was compared with the trace's footer.
    pub proved_streams: usize,
    /// Recordings that the trace was compared with; null: none were given.
    pub compared_inputs: Option<usize>,
    /// Everything that does not agree.
    pub mismatches: Vec<Mismatch>,
    /// Damage met.
    pub damage: Vec<DamageReport>,
    /// Sums over all streams.
    pub totals: Sums,
    /// Whether nothing was skipped or truncated and no rank is missing.
    pub complete: bool,
}

impl Verification {
    /// Returns whether all agrees.
    pub fn holds(&self) -> bool {
        self.mismatches.is_empty()
    }

    /// Returns whether anything was lost, now or before.
    pub fn has_loss(&self) -> bool {
        !self.complete || self.has_lost_events()
    }

    /// Returns whether events are known to be lost.
    pub const fn has_lost_events(&self) -> bool {
        let totals = &self.totals;
        totals.dropped != 0 || totals.skipped != 0 || totals.truncated != 0
    }
}

/// Events as they come by.
#[derive(Debug, Default)]
struct Tally {
    events: u64,
    /// Time, stream and position of the last event.
    last: Option<(i64, StreamId, u64)>,
    /// Time of the first event that is out of order, as far as is known: of one stream, or of a chunk as a whole.
    first_disorder: Option<i64>,
    counts: BTreeMap<(StreamId, EventTypeId), u64>,
    hashes: StreamHashes,
    losses: Vec<TraceLoss>,
    /// Whether a repair moved any.
    is_moved: bool,
}

impl Tally {
    fn take(&mut self, chunk: &TraceChunk, sorted: &SortedStreams) {
        self.events += chunk.len() as u64;
        let (mut first, mut last) = (None, None);
        for (group, stream, run) in chunk.runs() {
            let key = |index: usize| (group.times_ns[index], stream, group.position(index));
            let mut before = key(run.start);
            first = Some(first.map_or(before, |first: (i64, StreamId, u64)| first.min(before)));
            for index in run {
                let this = key(index);
                if this < before {
                    self.first_disorder.get_or_insert(this.0);
                }
                before = this;
            }
            last = last.max(Some(before));
        }
        if let Some(first) = first.filter(|first| self.last.is_some_and(|last| *first < last)) {
            self.first_disorder.get_or_insert(first.0);
        }
        self.last = last.or(self.last);
        for (stream, counts) in chunk.header(0).counts {
            for (event_type, count) in counts {
                *self.counts.entry((stream, event_type)).or_default() += count;
            }
        }
        let mut shifts = chunk.groups.iter().flat_map(|group| &group.shifts_ns);
        self.is_moved |= shifts.any(|shift| *shift != 0);
        self.hashes.add(&proof::of_chunk(chunk, sorted));
        self.losses
            .extend(chunk.losses.iter().map(|(_, loss)| *loss));
    }
}

fn mismatch(
    definitions: &Definitions,
    stream: Option<StreamId>,
    what: impl Into<String>,
    expected: impl ToString,
    found: impl ToString,
) -> Mismatch {
    let d = stream.and_then(|stream| definitions.streams.get(&stream));
    let source = d.and_then(|d| definitions.sources.get(&d.source));
    let rank = source.and_then(|source| definitions.ranks.get(&source.process));
    let location = d.and_then(|d| d.location);
    let location = location.and_then(|id| definitions.locations.get(&id));
    Mismatch {
        rank: rank.map(|rank| rank.rank),
        source: source.map(|source| definitions.string(source.name).to_owned()),
        location: location.map(|location| definitions.string(location.name).to_owned()),
        what: what.into(),
        expected: expected.to_string(),
        found: found.to_string(),
    }
}

/// How a trace is verified. Each field has a default.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Recordings, or directories of recordings, that the trace was merged from: its events are compared with theirs. Default: none,
    /// the trace is compared with what it says itself.
    pub recordings: Vec<PathBuf>,
    /// Offsets between hosts, if the trace was merged with such a file.
    pub clock_offsets: Option<ClockOffsets>,
    /// Threads that decode and merge. Default: one for each processor.
    pub jobs: usize,
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            recordings: Vec::new(),
            clock_offsets: None,
            jobs: default_jobs(),
        }
    }
}

impl VerifyOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads all events of a trace, or of recordings, and compares them with every count and order hash that is stored; a
    /// trace also with the recordings it was merged from, if they are given. `progress` gets the number of events read so far, and
    /// can stop the verification.
    ///
    /// # Errors
    /// If the path does not exist, nothing in it can be read, recordings are given to compare something else than a trace
    /// with, or the trace was merged with a file of offsets that is not given; [`MergeError::Stopped`] if `progress` stopped it.
    pub fn verify(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Verification> {
        verify_with(path.as_ref(), self, progress)
    }
}

/// Verifies with default options: see [`VerifyOptions::verify`].
///
/// # Errors
/// Those of [`VerifyOptions::verify`].
pub fn verify(path: &Path, recordings: &[PathBuf]) -> Result<Verification> {
    let options = VerifyOptions {
        recordings: recordings.to_vec(),
        ..VerifyOptions::default()
    };
    options.verify(path, no_progress)
}

fn verify_with(
    path: &Path,
    options: &VerifyOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Verification> {
    let read_options = ReadOptions {
        jobs: options.jobs,
        ..ReadOptions::new()
    };
    let opened = Reader::open_with(&[path.to_owned()], read_options)?;
    let (definitions, trace) = (opened.definitions(), opened.trace());
    let Replay {
        outcome,
        tally,
        statistics,
        overview,
        bins,
        wrong_snapshot,
        unreadable_snapshots,
    } = replay(&opened, progress)?;
    let mut mismatches = Vec::new();
    // After a missing chunk, the stored snapshot can know more than our replay: do not compare.
    if let Some(entry) = wrong_snapshot.filter(|_| !outcome.has_skipped_now) {
        let expected = "the regions that are open there";
        let found = format!("others, in the snapshot at byte {}", entry.offset);
        let what = format!("open regions before chunk {}", entry.chunk);
        mismatches.push(mismatch(definitions, None, what, expected, found));
    }
    let mut unreadable = unreadable_snapshots;
    match trace.map_or(Ok(None), TraceFile::region_statistics) {
        Ok(Some(stored)) if !outcome.has_skipped_now && Some(&stored) != statistics.as_ref() => {
            let (what, expected) = ("region statistics", "the result of counting the calls");
            mismatches.push(mismatch(definitions, None, what, expected, "others"));
        }
        // It costs no event either: readers count.
        Err(error) => unreadable.push(DamageReport {
            offset: 0,
            length: 0,
            what: format!("region statistics: {}", error.without_path()),
        }),
        Ok(_) => {}
    }
    let damaged = unreadable.len();
    let has_overview = trace.is_some_and(|trace| !trace.overview().is_empty());
    let stored = trace.map_or_else(RowSum::default, |of| stored_overview(of, &mut unreadable));
    let is_whole = damaged == unreadable.len() && !outcome.has_skipped_now;
    if is_whole && has_overview && stored != overview {
        let expected = "values that the calls add up to";
        let found = format!("others, in {} rows", stored.rows);
        mismatches.push(mismatch(definitions, None, "overview", expected, found));
    }
    let of_events = trace.map(|of| bins::differences(of, &bins, &mut unreadable));
    for what in of_events
        .into_iter()
        .flatten()
        .filter(|_| !outcome.has_skipped_now)
    {
        let expected = "values that the events add up to";
        mismatches.push(mismatch(definitions, None, what, expected, "others"));
    }
    if let Some(time_ns) = tally.first_disorder {
        let expected = "events in the order of the trace";
        let found = format!("one that is not, at {time_ns} ns");
        mismatches.push(mismatch(definitions, None, "order", expected, found));
    }
    check_counts(definitions, &outcome, &tally, &mut mismatches);
    let proved_streams = check_hashes(definitions, &outcome, &tally, &mut mismatches);
    if trace.is_some() && !outcome.has_skipped_now && tally.losses != outcome.losses {
        let (expected, found) = (outcome.losses.len(), tally.losses.len());
        mismatches.push(mismatch(definitions, None, "losses", expected, found));
    }
    let mut compared_inputs = None;
    if !options.recordings.is_empty() {
        let trace = VerifiedTrace {
            path,
            opened: &opened,
            outcome: &outcome,
            is_moved: tally.is_moved,
        };
        compared_inputs = Some(compare(&trace, options, &mut mismatches)?);
    }
    Ok(Verification {
        kind: opened.origin().kind,
        events: tally.events,
        streams: definitions.streams.len(),
        proved_streams,
        compared_inputs,
        mismatches,
        damage: damage_of(&opened, &outcome, unreadable)?,
        totals: Sums::of(&outcome.totals),
        complete: outcome.complete && opened.rejected().is_empty(),
    })
}

/// Rows of an overview, in any order: how many, and a sum over them that other rows do not have.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct RowSum {
    rows: u64,
    sum: u64,
}

impl RowSum {
    fn add(&mut self, row: &OverviewRow) {
        let mut hasher = FxHasher::default();
        row.key().hash(&mut hasher);
        let values = (row.calls, row.busy_ns, row.region, row.region_ns);
        values.hash(&mut hasher);
        row.longest_ns.hash(&mut hasher);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// Returns the sum of the overview that a trace has. Blocks that cannot be read are added to `unreadable`.
fn stored_overview(trace: &TraceFile, unreadable: &mut Vec<DamageReport>) -> RowSum {
    let mut sum = RowSum::default();
    bins::each_row(trace, trace.overview(), unreadable, |row| sum.add(row));
    sum
}

/// The summary of reading all events.
struct Replay {
    outcome: ReadSummary,
    tally: Tally,
    /// The statistics of all calls. `None` if a trace cannot hold them.
    statistics: Option<RegionStatistics>,
    /// The overview that all calls add up to, if the trace has one.
    overview: RowSum,
    /// The values of bins that all events add up to, as far as the trace has them.
    bins: FoundBins,
    /// The first snapshot whose open regions are not those of the events before it.
    wrong_snapshot: Option<SnapshotEntry>,
    unreadable_snapshots: Vec<DamageReport>,
}

/// Reads all events: counts them, follows their calls, and compares each snapshot with the regions that are open there.
fn replay(opened: &Reader, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<Replay> {
    let definitions = opened.definitions();
    let sorted = SortedStreams::of(definitions);
    let mut tally = Tally::default();
    let types = RegionTypes::of(definitions);
    let mut stacks = Stacks::new(&types, definitions.slice.is_some());
    let trace = opened.trace();
    let has_overview = trace.is_some_and(|trace| !trace.overview().is_empty());
    let groups = has_overview.then(|| LaneGroups::of(definitions));
    let mut calls = TraceCalls::new(&types, 1, groups)?;
    let mut overview = RowSum::default();
    let source = bins::source_of(opened)?;
    let mut bins = EventBins::new(&source);
    let (mut chunks, mut wrong_snapshot) = (0, None);
    let mut unreadable_snapshots = Vec::new();
    // What a trace that was cut out of a longer one begins with, nothing in it can contradict.
    if let Some(trace) = trace
        && let Some(at) = trace.snapshots().first().filter(|at| at.before == 0)
        && let Ok(open) = trace.load_snapshot(at)
    {
        stacks.follow(&types, &open);
        calls.begin(&types, &open);
    }
    let mut compare_snapshot = |chunks: usize, stacks: &Stacks| {
        let at = trace.and_then(|trace| {
            let at = trace.snapshots().iter().find(|at| at.before == chunks)?;
            Some((at.entry, trace.load_snapshot(at)))
        });
        match at {
            Some((entry, Ok(found))) if found != stacks.snapshot(&types) => {
                wrong_snapshot.get_or_insert(entry);
            }
            // It costs no event: readers start further ahead.
            Some((entry, Err(error))) => unreadable_snapshots.push(DamageReport {
                offset: entry.offset,
                length: 0,
                what: format!("open regions: {}", error.without_path()),
            }),
            _ => {}
        }
    };
    let outcome = opened.for_each_chunk(Window::ALL, |chunk| {
        compare_snapshot(chunks, &stacks);
        chunks += 1;
        tally.take(&chunk, &sorted);
        bins.take(&source.extract(&chunk));
        let moves = ChunkMoves::of_chunk(&types, &chunk);
        stacks.take_moves(&moves);
        calls.take(moves, ChunkSpan::of(&chunk));
        calls.take_rows().for_each(|row| overview.add(&row));
        match progress(tally.events) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MergeError::Stopped),
        }
    })?;
    compare_snapshot(chunks, &stacks);
    calls.end(&types);
    calls.take_rows().for_each(|row| overview.add(&row));
    Ok(Replay {
        outcome,
        tally,
        overview,
        bins: bins.finish(),
        statistics: calls.finish(),
        wrong_snapshot,
        unreadable_snapshots,
    })
}

/// Collects the damage of the files: what reading met, what was not read, and `unreadable` parts that cost no event.
fn damage_of(
    opened: &Reader,
    outcome: &ReadSummary,
    unreadable: Vec<DamageReport>,
) -> Result<Vec<DamageReport>> {
    let is_reported = |problem: &&Problem| unreadable.iter().any(|d| d.offset == problem.offset);
    let rest = opened
        .trace()
        .map_or(Ok(Vec::new()), TraceFile::check_rest)?;
    let rest = rest.iter().filter(|problem| !is_reported(problem));
    let damaged = outcome.damage.iter().map(|(_, problem)| problem);
    let damage = damaged.chain(rest).map(|problem| DamageReport {
        offset: problem.offset,
        length: problem.length,
        what: problem.what.clone(),
    });
    let damage: Vec<DamageReport> = damage.collect();
    Ok(damage.into_iter().chain(unreadable).collect())
}

fn check_counts(
    definitions: &Definitions,
    outcome: &ReadSummary,
    tally: &Tally,
    mismatches: &mut Vec<Mismatch>,
) {
    let mut found = tally.counts.clone();
    for totals in &outcome.totals {
        for row in &totals.rows {
            let name = definitions.event_type_name(row.event_type);
            let found = found.remove(&(totals.stream, row.event_type)).unwrap_or(0);
            let stream = Some(totals.stream);
            if found != row.present() {
                let what = format!("events of type {name}");
                mismatches.push(mismatch(definitions, stream, what, row.present(), found));
            }
            if !row.is_balanced() {
                let what = format!("recorded + dropped + suppressed of type {name}");
                let explained = explained(row);
                mismatches.push(mismatch(definitions, stream, what, row.raised, explained));
            }
        }
    }
    for ((stream, event_type), count) in found {
        let what = format!("events of type {}", definitions.event_type_name(event_type));
        mismatches.push(mismatch(definitions, Some(stream), what, 0, count));
    }
}

fn explained(row: &TypeTotals) -> u64 {
    let kept = row.recorded.saturating_add(row.suppressed);
    kept.saturating_add(row.dropped_sum())
}

/// Compares the order hashes that the footer has, of streams of which nothing had to be skipped. Returns how many.
fn check_hashes(
    definitions: &Definitions,
    outcome: &ReadSummary,
    tally: &Tally,
    mismatches: &mut Vec<Mismatch>,
) -> usize {
    let skipped_now = outcome
        .losses
        .iter()
        .filter(|loss| loss.cause.is_of_reader());
    let skipped_now: BTreeSet<StreamId> = skipped_now
        .filter(|loss| !tally.losses.contains(loss))
        .map(|loss| loss.stream)
        .collect();
    let mut proved = 0;
    for totals in &outcome.totals {
        let Some(expected) = totals.order_hash else {
            continue;
        };
        if skipped_now.contains(&totals.stream) {
            continue;
        }
        proved += 1;
        let found = tally.hashes.get(totals.stream).value();
        if found != expected {
            let (expected, found) = (format!("{expected:016x}"), format!("{found:016x}"));
            let stream = Some(totals.stream);
            mismatches.push(mismatch(definitions, stream, "order hash", expected, found));
        }
    }
    proved
}

/// The trace that is verified.
struct VerifiedTrace<'a> {
    path: &'a Path,
    opened: &'a Reader,
    outcome: &'a ReadSummary,
    /// Whether causality repair has moved events.
    is_moved: bool,
}

/// Merges the recordings once more, without writing, and compares the results. Returns the number of recordings.
fn compare(
    trace: &VerifiedTrace<'_>,
    options: &VerifyOptions,
    mismatches: &mut Vec<Mismatch>,
) -> Result<usize> {
    let VerifiedTrace {
        path,
        opened,
        outcome,
        is_moved,
    } = *trace;
    let definitions = opened.definitions();
    let is_related_by = |relation: Relation| {
        let mut errors = definitions.clock_errors.values();
        errors.any(|error| error.relation == relation)
    };
    // Where filters end is a matter of moved times.
    let is_repaired = is_moved || is_related_by(Relation::Messages);
    let slice = definitions.slice.as_ref();
    let merge_options = MergeOptions {
        jobs: options.jobs,
        clock_offsets: options.clock_offsets.clone(),
        causality: match is_repaired {
            true => Causality::Repair,
            false => Causality::Check,
        },
        part: ReadPart {
            as_in: Some(TracePart {
                filters: definitions
                    .filters
                    .iter()
                    .map(|filter| said(filter, definitions))
                    .collect(),
                slice: slice.map_or(Window::ALL, Window::of_slice),
            }),
            ..ReadPart::default()
        },
        ..MergeOptions::default()
    };
    let inputs = inputs::open(&options.recordings, &merge_options)?;
    let processes = definitions.processes.values();
    let expected: BTreeSet<RecordingId> = processes.map(|process| process.recording_id).collect();
    let found = inputs.recording_ids();
    for id in expected.difference(&found) {
        let what = "recording among the inputs";
        mismatches.push(mismatch(definitions, None, what, id, "not given"));
    }
    for id in found.difference(&expected) {
        let what = "recording in the trace";
        mismatches.push(mismatch(definitions, None, what, id, "not in it"));
    }
    if expected != found {
        // Another set of recordings has other numbers and another start of time.
        return Ok(found.len());
    }
    let are_offsets_missing = options.clock_offsets.is_none() && !inputs.has_traces();
    if is_related_by(Relation::File) && are_offsets_missing {
        let path = path.to_owned();
        return Err(MergeError::OffsetsNotGiven { path });
    }
    let (merge, _) = Merge::new(inputs, merge_options)?;
    let count = merge.inputs().count();
    let merged = merge.run_with(true, None, &|_| (), &mut |()| Ok(()))?;
    let of_inputs: BTreeMap<StreamId, &StreamTotals> = merged
        .totals
        .iter()
        .map(|totals| (totals.stream, totals))
        .collect();
    for totals in &outcome.totals {
        let of_input = of_inputs.get(&totals.stream).copied();
        let show = |totals: &StreamTotals| {
            let present = totals.rows.iter().map(TypeTotals::present);
            let events = present.fold(0, u64::saturating_add);
            format!("{events} events, {:016x}", totals.order_hash.unwrap_or(0))
        };
        let agrees = of_input.is_some_and(|input| {
            input.order_hash == totals.order_hash && input.rows == totals.rows
        });
        if !agrees {
            let expected = of_input.map_or_else(|| "no such stream".to_owned(), show);
            let what = "counts and order hash of the input";
            let stream = Some(totals.stream);
            mismatches.push(mismatch(definitions, stream, what, expected, show(totals)));
        }
    }
    Ok(count)
}
