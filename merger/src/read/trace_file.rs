//! A trace as it is read: its chunks, decoded with several threads, and what cannot be read of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::{
    BinRow, Cause, Definitions, EventTypeId, FormatError, MessageOverview, MetricOverview,
    OverviewDensity, OverviewEntry, Problem, ReadAt, RegionStatistics, Snapshot, StreamId, Trace,
    TraceChunk, TraceChunkHeader, TraceIndexEntry, TraceLoss, TraceSnapshot,
};

use crate::calls::region_types::RegionTypes;
use crate::calls::stacks::Stacks;
use crate::error::{MergeError, Result};
use crate::input::file::FileAt;
use crate::ordered_parallel::map_ordered;
use crate::read::work::Work;
use crate::read::{Reach, ReadSummary};
use crate::report::is_complete;
use crate::window::Window;

/// What only a trace has: snapshots, statistics and an overview.
#[derive(Debug)]
pub struct TraceFile {
    pub(super) path: PathBuf,
    pub(super) file: FileAt,
    pub(super) bytes: u64,
    /// The summary of definitions and losses.
    pub(super) is_complete: bool,
    /// All of it but the definitions.
    pub(super) trace: Trace,
}

/// Which chunks are read to follow the calls in a window.
pub(super) struct RegionPlan {
    /// The first chunk, and the regions that are open before it.
    pub(super) first: usize,
    pub(super) open: Snapshot,
    /// The first chunk after the window.
    pub(super) window_end: usize,
    /// The chunk after the last one to read.
    pub(super) last: usize,
    /// The calls that are open at the end of the trace. `None` if all chunks up to there are read.
    pub(super) end: Option<Snapshot>,
    /// Snapshots that cannot be read: their offsets.
    pub(super) damage: Vec<(u64, FormatError)>,
}

impl TraceFile {
    /// Returns the snapshots, from which reading can start, in order.
    pub fn snapshots(&self) -> &[TraceSnapshot] {
        &self.trace.snapshots
    }

    /// Reads one of the [snapshots](TraceFile::snapshots).
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn load_snapshot(&self, at: &TraceSnapshot) -> Result<Snapshot> {
        self.named(self.trace.load_snapshot(&self.file, at))
    }

    /// Returns the stored statistics of all calls. `None` if there are none, or the trace is not whole: they can be computed from the
    /// events.
    ///
    /// # Errors
    /// If they cannot be read or are damaged.
    pub fn region_statistics(&self) -> Result<Option<RegionStatistics>> {
        if !self.trace.has_footer || !self.trace.problems.is_empty() {
            return Ok(None);
        }
        self.named(self.trace.load_statistics(&self.file))
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the blocks of the overview. Traces of slices have none.
    pub fn overview(&self) -> &[OverviewEntry] {
        &self.trace.overview
    }

    /// Reads a block of the overview: its rows of a type.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn load_bins<R: BinRow>(&self, at: &R::Entry) -> Result<Vec<R>> {
        self.named(self.trace.load_bins(&self.file, at))
    }

    /// Returns the messages of the overview: how many there are, and the blocks of their rows. `None` if it has none.
    pub fn message_overview(&self) -> Option<&MessageOverview> {
        self.trace.messages.as_ref()
    }

    /// Returns the metrics of the overview: the blocks of their rows. `None` if it has none.
    pub fn metric_overview(&self) -> Option<&MetricOverview> {
        self.trace.metrics.as_ref()
    }

    /// Returns how dense the trace is, which has this number of locations.
    pub fn density(&self, locations: usize) -> OverviewDensity {
        let mut density = OverviewDensity::new(locations);
        for chunk in &self.trace.chunks {
            density.take(chunk.first_ns, chunk.last_ns, chunk.event_count);
        }
        density
    }

    /// Returns times that cut the trace into parts of `part_bytes` bytes each, in whole chunks.
    pub fn cuts(&self, part_bytes: u64) -> Vec<i64> {
        let chunks = &self.trace.chunks;
        let (mut start, mut cuts) = (chunks.first().map_or(0, |first| first.offset), Vec::new());
        for (chunk, next) in chunks.iter().zip(chunks.iter().skip(1)) {
            // Chunks that begin at the same moment stay together: a window cannot separate them.
            let is_full = next.offset.saturating_sub(start) >= part_bytes;
            if is_full && next.first_ns > chunk.first_ns {
                cuts.push(next.first_ns);
                start = next.offset;
            }
        }
        cuts
    }

    /// Returns what is damaged in the parts that questions do not read.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn check_rest(&self) -> Result<Vec<Problem>> {
        self.named(self.trace.check_rest(&self.file))
    }

    /// Names the file in an error.
    fn named<T>(&self, loaded: annals_format::Result<T>) -> Result<T> {
        loaded.map_err(MergeError::format(&self.path))
    }

    /// Opens a trace. Returns its definitions apart.
    pub(super) fn open(path: &Path) -> Result<(Definitions, Self)> {
        let format = MergeError::format(path);
        let file = FileAt::open(path)?;
        let mut trace = Trace::read(&file).map_err(format)?;
        let bytes = file.len().map_err(format)?;
        let is_complete =
            trace.has_footer && is_complete(&trace.definitions, &trace.totals, &trace.losses);
        // They are needed in one place only, and many: a long run has a hundred thousand calibration points.
        let definitions = std::mem::take(&mut trace.definitions);
        let opened = Self {
            path: path.to_owned(),
            file,
            bytes,
            is_complete,
            trace,
        };
        Ok((definitions, opened))
    }

    /// Returns what is known before events are read: totals, losses and damage.
    pub(super) fn outcome(&self) -> ReadSummary {
        let trace = &self.trace;
        let problems = trace.problems.iter();
        ReadSummary {
            totals: trace.totals.clone(),
            losses: trace.losses.clone(),
            complete: self.is_complete,
            has_skipped_now: !trace.has_footer || !trace.problems.is_empty(),
            damage: problems
                .map(|problem| (self.path.clone(), problem.clone()))
                .collect(),
            report: None,
        }
    }

    /// Counts what chunks held whose heads cannot be read either: what the totals know of and no other chunk
    /// has.
    fn skip_headless(&self, outcome: &mut ReadSummary) {
        let mut elsewhere: BTreeMap<(StreamId, EventTypeId), u64> = BTreeMap::new();
        let mut span: Option<(i64, i64)> = None;
        for entry in &self.trace.chunks {
            let Some(head) = self.trace.head(&self.file, entry) else {
                let (from_ns, to_ns) = span.unwrap_or((entry.first_ns, entry.last_ns));
                span = Some((from_ns.min(entry.first_ns), to_ns.max(entry.last_ns)));
                continue;
            };
            for (stream, counts) in &head.counts {
                for (event_type, count) in counts {
                    let sum = elsewhere.entry((*stream, *event_type)).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        let (from_ns, to_ns) = span.unwrap_or((0, 0));
        for totals in &self.trace.totals {
            for row in &totals.rows {
                let here = elsewhere.get(&(totals.stream, row.event_type));
                let missing = row.present().saturating_sub(here.copied().unwrap_or(0));
                if missing != 0 {
                    skip(
                        outcome,
                        totals.stream,
                        row.event_type,
                        missing,
                        from_ns,
                        to_ns,
                    );
                }
            }
        }
    }

    /// Adds damage that was met.
    pub(super) fn damaged(&self, outcome: &mut ReadSummary, offset: u64, error: &FormatError) {
        outcome.complete = false;
        outcome.has_skipped_now = true;
        let problem = Problem::unreadable(offset, 0, error);
        outcome.damage.push((self.path.clone(), problem));
    }

    /// Counts a chunk that cannot be decoded as skipped.
    pub(super) fn lose_chunk(
        &self,
        summary: &mut ReadSummary,
        entry: &TraceIndexEntry,
        error: &FormatError,
        head: Option<&TraceChunkHeader>,
        has_headless: &mut bool,
    ) {
        self.damaged(summary, entry.offset, error);
        match head {
            Some(head) => skip_chunk(summary, entry, head),
            None if !*has_headless => {
                *has_headless = true;
                self.skip_headless(summary);
            }
            None => {}
        }
    }

    /// Decodes these chunks with several threads, as far as some streams need them, and passes them to `consume` in order.
    pub(super) fn read<C: From<TraceChunk> + Send>(
        &self,
        entries: Vec<&TraceIndexEntry>,
        is_needed: &(dyn Fn(StreamId) -> bool + Sync),
        work: &Work,
        consume: &mut dyn FnMut(C) -> Result<()>,
    ) -> Result<ReadSummary> {
        let mut outcome = self.outcome();
        let mut has_headless = false;
        let load = |number: usize| {
            let loaded = self
                .trace
                .load_streams(&self.file, entries[number], is_needed);
            loaded.map(|loaded| (C::from(loaded.chunk), loaded.damage))
        };
        // A chunk is large: one waits.
        map_ordered(entries.len(), work.jobs, 1, load, |number, loaded| {
            work.stop.check()?;
            work.count();
            let entry = entries[number];
            match loaded {
                Ok((chunk, damage)) => {
                    consume(chunk)?;
                    if let Some((error, lost)) = damage {
                        self.lose_chunk(&mut outcome, entry, &error, Some(&lost), &mut false);
                    }
                }
                Err((error, head)) => {
                    self.lose_chunk(
                        &mut outcome,
                        entry,
                        &error,
                        head.as_deref(),
                        &mut has_headless,
                    );
                }
            }
            Ok::<(), MergeError>(())
        })?;
        Ok(outcome)
    }

    /// Returns the last snapshot before a chunk that can be read; what cannot is noted.
    fn snapshot_before(
        &self,
        chunk: usize,
        damage: &mut Vec<(u64, FormatError)>,
    ) -> Option<(usize, Snapshot)> {
        let before = self.trace.snapshots.iter().rev();
        before.filter(|at| at.before <= chunk).find_map(|at| {
            match self.trace.load_snapshot(&self.file, at) {
                Ok(snapshot) => Some((at.before, snapshot)),
                Err(error) => {
                    damage.push((at.entry.offset, error));
                    None
                }
            }
        })
    }

    /// Plans what is read to follow the calls in a window.
    pub(super) fn plan_regions(&self, window: Window, reach: Reach) -> RegionPlan {
        let chunks = &self.trace.chunks;
        let mut damage = Vec::new();
        let is_behind = |entry: &TraceIndexEntry| entry.last_ns >= window.from_ns;
        let first = chunks.iter().position(is_behind).unwrap_or(chunks.len());
        let usable = if reach.from_start { 0 } else { first };
        let (first, open) = self
            .snapshot_before(usable, &mut damage)
            .unwrap_or_default();
        // Calls that are open at the window's end continue until the location's next event, if
        // there is one.
        let window_end = chunks.partition_point(|entry| window.overlaps(entry.first_ns, i64::MAX));
        let mut end = None;
        if window_end < chunks.len() && !reach.to_end {
            let found = self.snapshot_before(chunks.len(), &mut damage);
            end = found.filter(|(before, _)| *before == chunks.len());
        }
        let last = if end.is_some() {
            window_end
        } else {
            chunks.len()
        };
        RegionPlan {
            first,
            open,
            window_end,
            last: last.max(first),
            end: end.map(|(_, snapshot)| snapshot),
            damage,
        }
    }

    /// Visits what is needed to follow the calls in a window: see [`Reader::read_regions`](crate::read::Reader::read_regions).
    pub(super) fn read_regions<C: From<TraceChunk> + Send>(
        &self,
        window: Window,
        reach: Reach,
        is_needed: impl Fn(StreamId) -> bool + Sync,
        work: &Work,
        begin: impl FnOnce(&Snapshot),
        mut consume: impl FnMut(C) -> Result<()>,
    ) -> Result<(ReadSummary, Option<Snapshot>)> {
        let plan = self.plan_regions(window, reach);
        begin(&plan.open);
        let wanted = &self.trace.chunks[plan.first..plan.last];
        let mut outcome = self.read(wanted.iter().collect(), &is_needed, work, &mut consume)?;
        for (offset, error) in plan.damage {
            self.damaged(&mut outcome, offset, &error);
        }
        Ok((outcome, plan.end))
    }

    /// Returns the regions that are open before a chunk: as a snapshot there has it, or as an earlier one and the
    /// chunks after it show.
    pub(super) fn open_before(
        &self,
        chunk: usize,
        types: &RegionTypes,
        damage: &mut Vec<(u64, FormatError)>,
    ) -> Snapshot {
        let (before, open) = self.snapshot_before(chunk, damage).unwrap_or_default();
        if before == chunk {
            return open;
        }
        let mut stacks = Stacks::new(types, false);
        stacks.follow(types, &open);
        for entry in &self.trace.chunks[before..chunk] {
            // A chunk that cannot be decoded is counted by the slice that it belongs to.
            if let Ok(loaded) = self.trace.load(&self.file, entry) {
                stacks.take_until(types, &loaded.chunk, i64::MAX);
            }
        }
        stacks.snapshot(types)
    }
}

/// Counts a chunk that could not be decoded, by stream and event type as its head says.
fn skip_chunk(outcome: &mut ReadSummary, entry: &TraceIndexEntry, head: &TraceChunkHeader) {
    for (stream, counts) in &head.counts {
        for (event_type, count) in counts {
            skip(
                outcome,
                *stream,
                *event_type,
                *count,
                entry.first_ns,
                entry.last_ns,
            );
        }
    }
}

/// Counts events as skipped between two times.
fn skip(
    outcome: &mut ReadSummary,
    stream: StreamId,
    event_type: EventTypeId,
    count: u64,
    from_ns: i64,
    to_ns: i64,
) {
    let found = outcome.totals.binary_search_by_key(&stream, |t| t.stream);
    if let Ok(index) = found {
        outcome.totals[index]
            .row(event_type)
            .add_loss(Cause::Skipped, count);
    }
    outcome.losses.push(TraceLoss {
        stream,
        event_type: Some(event_type),
        cause: Cause::Skipped,
        count,
        is_lower_bound: false,
        from_ns,
        to_ns,
    });
}
