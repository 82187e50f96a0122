//! Slices of a trace: threads add the events of each to a state, and the states are merged.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_format::{
    Definitions, FormatError, OrderedChunk, StreamId, TraceChunk, TraceChunkHeader, TraceIndexEntry,
};

use crate::calls::region_types::RegionTypes;
use crate::error::{MergeError, Result};
use crate::ordered_parallel::map_ordered;
use crate::read::ReadSummary;
use crate::read::calls::{Calls, Sink};
use crate::read::trace::OpenedTrace;
use crate::read::work::Work;
use crate::window::Window;

/// How much of a trace one state of [`Reader::fold_events`](crate::Reader::fold_events), [`Reader::fold_chunks`](crate::Reader::fold_chunks) or [`Reader::fold_calls`](crate::Reader::fold_calls) adds up. The result is
/// the same for every length, provided that [`SliceLength::AnyOrder`] is used only where the order of the slices does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceLength {
    /// Two chunks, about 131 000 events: for states that keep something of every event.
    Short,
    /// 16 chunks, about a million events: for states whose size does not depend on the number of events, and that
    /// take time to merge.
    Long,
    /// Eight chunks, added in any order: for states whose result does not depend on the order of the slices. A thread adds
    /// several slices to one state.
    AnyOrder,
}

impl SliceLength {
    const fn chunks(self) -> usize {
        match self {
            Self::Short => 2,
            Self::Long => 16,
            Self::AnyOrder => 8,
        }
    }
}

impl OpenedTrace {
    /// Computes a state of `count` slices, with several threads: `add` adds the slice with a number to a state. States are merged in
    /// order, unless the length says that any order will do.
    fn fold_slices<'a, S: Send>(
        &'a self,
        count: usize,
        length: SliceLength,
        work: &Work,
        new: impl Fn(usize) -> S + Sync,
        add: impl Fn(usize, &mut S, &mut SliceDamage<'a>) + Sync,
        mut merge: impl FnMut(&mut S, S),
    ) -> Result<(S, ReadSummary)> {
        let spare = Spare::new(length);
        let fill = |number: usize| {
            let mut state = spare.take().unwrap_or_else(|| new(number));
            let mut damage = SliceDamage::default();
            add(number, &mut state, &mut damage);
            (spare.keep(state), damage)
        };
        let mut summary = self.outcome();
        let mut has_headless = false;
        let mut all: Option<S> = None;
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
            add_state(&mut all, state, &mut merge);
            Ok::<(), MergeError>(())
        })?;
        spare.add_to(&mut all, &mut merge);
        for (offset, error) in snapshots {
            self.damaged(&mut summary, offset, &error);
        }
        Ok((all.unwrap_or_else(|| new(0)), summary))
    }

    /// Adds the chunks of each slice to a state.
    pub(super) fn fold_chunks<'a, S: Send, C: From<TraceChunk>>(
        &'a self,
        window: Window,
        length: SliceLength,
        work: &Work,
        new: impl Fn(usize) -> S + Sync,
        add: impl Fn(&mut S, C) + Sync,
        merge: impl FnMut(&mut S, S),
    ) -> Result<(S, ReadSummary)> {
        let chunks = self.trace.chunks.iter();
        let entries: Vec<&TraceIndexEntry> = chunks
            .filter(|entry| window.overlaps(entry.first_ns, entry.last_ns))
            .collect();
        let slices: Vec<_> = entries.chunks(length.chunks()).collect();
        let add_slice = |number: usize, state: &mut S, damage: &mut SliceDamage<'a>| {
            let entries = slices[number].iter().copied();
            self.load_slice(work, entries, |_| true, damage, |chunk| add(state, chunk));
        };
        self.fold_slices(slices.len(), length, work, new, add_slice, merge)
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
    pub(super) fn fold_calls<'a, S: Sink + Send>(
        &'a self,
        calls: &Calls,
        definitions: &Definitions,
        length: SliceLength,
        work: &Work,
        new: impl Fn(usize) -> S + Sync,
        merge: impl FnMut(&mut S, S),
    ) -> Result<(S, ReadSummary)> {
        let plan = self.plan_regions(calls.window(), calls.reach());
        let mut starts = vec![plan.first];
        if calls.can_be_cut() {
            for snapshot in &self.trace.snapshots {
                let is_within = snapshot.before < plan.window_end.min(plan.last);
                let last_start = starts.last().copied().unwrap_or_default();
                if is_within && snapshot.before >= last_start + length.chunks() {
                    starts.push(snapshot.before);
                }
            }
        }
        let types = RegionTypes::of(definitions);
        let add_slice = |number: usize, sink: &mut S, damage: &mut SliceDamage<'a>| {
            let mut slice = calls.sibling();
            if number == 0 {
                slice.begin(&plan.open, true, sink);
            } else {
                let open = self.open_before(starts[number], &types, &mut damage.snapshots);
                slice.begin(&open, false, sink);
            }
            let end = starts.get(number + 1).copied().unwrap_or(plan.last);
            let entries = self.trace.chunks[starts[number]..end].iter();
            if S::BY_LOCATION {
                let needs = |stream| calls.needs(stream);
                self.load_slice(work, entries, needs, damage, |chunk: TraceChunk| {
                    slice.take_by_location(&chunk, sink);
                });
            } else {
                self.load_slice(
                    work,
                    entries,
                    |_| true,
                    damage,
                    |chunk: OrderedChunk| {
                        slice.take(&chunk, sink);
                    },
                );
            }
            if number + 1 == starts.len() {
                slice.finish(plan.end.as_ref(), sink);
            }
        };
        let count = starts.len();
        let (state, mut summary) = self.fold_slices(count, length, work, new, add_slice, merge)?;
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
struct Spare<S> {
    /// `None` if every slice has a separate state.
    states: Option<Mutex<Vec<S>>>,
}

impl<S> Spare<S> {
    fn new(slices: SliceLength) -> Self {
        let states = (slices == SliceLength::AnyOrder).then(Mutex::default);
        Self { states }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Vec<S>>> {
        let states = self.states.as_ref()?;
        Some(states.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn take(&self) -> Option<S> {
        self.lock()?.pop()
    }

    /// Keeps a state for the next slice, or returns it to be merged.
    fn keep(&self, state: S) -> Option<S> {
        match self.lock() {
            Some(mut states) => {
                states.push(state);
                None
            }
            None => Some(state),
        }
    }

    fn add_to(self, all: &mut Option<S>, merge: &mut impl FnMut(&mut S, S)) {
        let states = self.states.map(Mutex::into_inner);
        let states = states.map(|states| states.unwrap_or_else(PoisonError::into_inner));
        for state in states.into_iter().flatten() {
            add_state(all, Some(state), merge);
        }
    }
}

fn add_state<S>(all: &mut Option<S>, state: Option<S>, merge: &mut impl FnMut(&mut S, S)) {
    match (all, state) {
        (Some(all), Some(state)) => merge(all, state),
        (all, Some(state)) => *all = Some(state),
        (_, None) => {}
    }
}
