//! Slices of a trace: threads add the events of each to a state, and the states are merged.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_format::{
    Definitions, FormatError, OrderedChunk, StreamId, TraceChunk, TraceChunkHeader, TraceIndexEntry,
};

use crate::analysis::{Analysis, Pass, SliceLength};
use crate::calls::region_types::RegionTypes;
use crate::error::{MergeError, Result};
use crate::ordered_parallel::map_ordered;
use crate::read::ReadSummary;
use crate::read::calls::Calls;
use crate::read::trace_file::TraceFile;
use crate::read::work::Work;
use crate::window::Window;

impl TraceFile {
    /// Runs an analysis of `count` slices, with several threads: `add` adds the slice with a number to a state. States are merged in
    /// order, unless the analysis says that any order will do.
    fn run_slices<'a, A: Analysis + Send>(
        &'a self,
        count: usize,
        work: &Work,
        new: impl Fn(usize) -> A + Sync,
        add: impl Fn(usize, &mut A, &mut SliceDamage<'a>) + Sync,
    ) -> Result<(A, ReadSummary)> {
        let spare = Spare::new();
        let fill = |number: usize| {
            let mut state = spare.take().unwrap_or_else(|| new(number));
            let mut damage = SliceDamage::default();
            add(number, &mut state, &mut damage);
            (spare.keep(state), damage)
        };
        let mut summary = self.outcome();
        let mut has_headless = false;
        let mut all: Option<A> = None;
        let mut snapshots: BTreeMap<u64, FormatError> = BTreeMap::new();
        map_ordered(count, work.jobs, work.jobs, fill, |_, (state, damage)| {
            work.stop.check()?;
            for (entry, error, head) in damage.chunks {
                self.lose_chunk(
                    &mut summary,
                    entry,
                    &error,
                    head.as_deref(),
                    &mut has_headless,
                );
            }
            snapshots.extend(damage.snapshots);
            add_state(&mut all, state);
            Ok::<(), MergeError>(())
        })?;
        spare.add_to(&mut all);
        for (offset, error) in snapshots {
            self.damaged(&mut summary, offset, &error);
        }
        Ok((all.unwrap_or_else(|| new(0)), summary))
    }

    /// Adds the chunks of each slice to a state.
    pub(super) fn run_chunks<'a, A: Analysis + Send>(
        &'a self,
        window: Window,
        work: &Work,
        new: impl Fn(usize) -> A + Sync,
        add: impl Fn(&mut A, OrderedChunk) + Sync,
    ) -> Result<(A, ReadSummary)> {
        let chunks = self.trace.chunks.iter();
        let entries: Vec<&TraceIndexEntry> = chunks
            .filter(|entry| window.overlaps(entry.first_ns, entry.last_ns))
            .collect();
        let slices: Vec<_> = entries.chunks(A::SLICES.chunks()).collect();
        let add_slice = |number: usize, state: &mut A, damage: &mut SliceDamage<'a>| {
            let entries = slices[number].iter().copied();
            self.load_slice(work, entries, |_| true, damage, |chunk| add(state, chunk));
        };
        self.run_slices(slices.len(), work, new, add_slice)
    }

    /// Decodes the chunks of a slice, as far as some streams need them; what cannot be decoded is noted. Ends
    /// early when reads are to end.
    fn load_slice<'a, C: From<TraceChunk>>(
        &'a self,
        work: &Work,
        entries: impl Iterator<Item = &'a TraceIndexEntry>,
        is_needed: impl Fn(StreamId) -> bool,
        damage: &mut SliceDamage<'a>,
        mut consume: impl FnMut(C),
    ) {
        for entry in entries {
            if work.stop.is_stopped() {
                return;
            }
            work.count();
            match self.trace.load_streams(&self.file, entry, &is_needed) {
                Ok(loaded) => {
                    consume(loaded.chunk.into());
                    let lost = loaded.damage;
                    let lost = lost.map(|(error, head)| (entry, error, Some(Box::new(head))));
                    damage.chunks.extend(lost);
                }
                Err((error, head)) => damage.chunks.push((entry, error, head)),
            }
        }
    }

    /// Follows the calls of each slice. Slices begin at snapshots, which have the calls that are open there.
    pub(super) fn run_calls<'a, A: Analysis + Send>(
        &'a self,
        calls: &Calls,
        definitions: &Definitions,
        work: &Work,
        new: impl Fn(usize) -> A + Sync,
    ) -> Result<(A, ReadSummary)> {
        let plan = self.plan_regions(calls.window(), calls.reach());
        let mut starts = vec![plan.first];
        if calls.can_be_cut() {
            for snapshot in &self.trace.snapshots {
                let is_within = snapshot.before < plan.window_end.min(plan.last);
                let last_start = starts.last().copied().unwrap_or_default();
                if is_within && snapshot.before >= last_start.saturating_add(A::SLICES.chunks()) {
                    starts.push(snapshot.before);
                }
            }
        }
        let types = RegionTypes::of(definitions);
        let add_slice = |number: usize, analysis: &mut A, damage: &mut SliceDamage<'a>| {
            let mut slice = calls.sibling();
            if number == 0 {
                slice.begin(&plan.open, true, analysis);
            } else {
                let open = self.open_before(starts[number], &types, &mut damage.snapshots);
                slice.begin(&open, false, analysis);
            }
            let end = starts.get(number + 1).copied().unwrap_or(plan.last);
            let entries = self.trace.chunks[starts[number]..end].iter();
            if matches!(A::PASS, Pass::Calls) {
                let add = |chunk: TraceChunk| slice.take_by_location(&chunk, analysis);
                self.load_slice(work, entries, |stream| calls.needs(stream), damage, add);
            } else {
                let add = |chunk: OrderedChunk| slice.take(&chunk, analysis);
                self.load_slice(work, entries, |_| true, damage, add);
            }
            if number + 1 == starts.len() {
                slice.finish(plan.end.as_ref(), analysis);
            }
        };
        let count = starts.len();
        let (state, mut summary) = self.run_slices(count, work, new, add_slice)?;
        for (offset, error) in &plan.damage {
            self.damaged(&mut summary, *offset, error);
        }
        Ok((state, summary))
    }
}

/// The unreadable parts of a slice.
#[derive(Default)]
struct SliceDamage<'a> {
    /// Chunks that cannot be decoded, with their heads if these can.
    chunks: Vec<(
        &'a TraceIndexEntry,
        FormatError,
        Option<Box<TraceChunkHeader>>,
    )>,
    /// Offsets of snapshots.
    snapshots: Vec<(u64, FormatError)>,
}

/// States that threads add further slices to, where the order of the slices does not matter.
struct Spare<A> {
    /// `None` if every slice has a separate state.
    states: Option<Mutex<Vec<A>>>,
}

impl<A: Analysis> Spare<A> {
    fn new() -> Self {
        let states = (A::SLICES == SliceLength::AnyOrder).then(Mutex::default);
        Self { states }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Vec<A>>> {
        let states = self.states.as_ref()?;
        Some(states.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self) -> Option<A> {
        self.lock()?.pop()
    }

    /// Keeps a state for the next slice, or returns it to be merged.
    fn keep(&self, state: A) -> Option<A> {
        match self.lock() {
            Some(mut states) => {
                states.push(state);
                None
            }
            None => Some(state),
        }
    }

    fn add_to(self, all: &mut Option<A>) {
        let states = self.states.map(Mutex::into_inner);
        let states = states.map(|states| states.unwrap_or_else(PoisonError::into_inner));
        for state in states.into_iter().flatten() {
            add_state(all, Some(state));
        }
    }
}

fn add_state<A: Analysis>(all: &mut Option<A>, state: Option<A>) {
    match (all, state) {
        (Some(all), Some(state)) => all.merge(state),
        (all, Some(state)) => *all = Some(state),
        (_, None) => {}
    }
}
