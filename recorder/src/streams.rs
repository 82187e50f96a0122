//! The cells that streams live in, and the counter segments they take: claimed and released with
//! single atomic operations, so that a signal handler can open a stream whatever it interrupted.
#![expect(unsafe_code, reason = "cells lie in memory that a fork wipes")]

use std::sync::atomic::Ordering;

use annals_format::live::layout as l;
use memmap2::MmapMut;

use crate::id_pool::IdPool;
use crate::memory::{Counters, EventState, LiveMemory};
use crate::stream::{Stream, phase};
use crate::sys::{self, ForkGuard};

type EventStates = [EventState; l::ROWS_PER_SEGMENT];

/// All cells and segments of a recorder.
#[derive(Debug)]
pub(crate) struct Streams {
    cells: WipedCells,
    segments: IdPool,
    states: Box<[EventStates]>,
}

/// Cells in state memory that reads 0 in a forked child: no stream is open there.
#[derive(Debug)]
struct WipedCells {
    map: MmapMut,
    count: usize,
}

impl WipedCells {
    fn new(count: usize, prepare: impl Fn(usize, &mut Stream)) -> std::io::Result<Self> {
        let mut map = sys::map_wiped_on_fork(count * size_of::<Stream>())?;
        let start = map.as_mut_ptr().cast::<Stream>();
        for slot in 0..count {
            // SAFETY: within the mapping, which is page-aligned and not shared yet. All fields are
            // atomics, integers or cells of integers, for which zeros are valid.
            prepare(slot, unsafe { &mut *start.add(slot) });
        }
        Ok(Self { map, count })
    }

    fn all(&self) -> &[Stream] {
        // SAFETY: `count` cells were made; all that changes in them is atomic.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.count) }
    }
}

impl Streams {
    pub(crate) fn new(guard: &ForkGuard, memory: &LiveMemory) -> std::io::Result<Self> {
        let division = memory.division();
        Ok(Self {
            cells: WipedCells::new(division.slot_count, |slot, cell| {
                cell.prepare(slot, guard.word(), memory.slot(slot).busy());
            })?,
            segments: IdPool::new(division.segment_count),
            states: (0..division.segment_count)
                .map(|_| EventStates::default())
                .collect(),
        })
    }

    /// Returns the cell of a slot.
    pub(crate) fn cell(&self, slot: usize) -> &Stream {
        &self.cells.all()[slot]
    }

    /// Returns every cell.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Stream> {
        self.cells.all().iter()
    }

    /// Claims a free cell.
    pub(crate) fn claim(&self) -> Option<&Stream> {
        self.cells.all().iter().find(|cell| {
            let (from, to) = (phase::FREE, phase::CLAIMED);
            let order = Ordering::Acquire;
            cell.phase.load(Ordering::Relaxed) == from
                && cell
                    .phase
                    .compare_exchange(from, to, order, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Returns the streams that have events, or may get some.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Stream> {
        self.cells.all().iter().filter(|cell| {
            matches!(
                cell.phase.load(Ordering::Acquire),
                phase::OPEN | phase::CLOSED
            )
        })
    }

    pub(crate) fn closed(&self) -> impl Iterator<Item = &Stream> {
        let cells = self.cells.all().iter();
        cells.filter(|cell| cell.phase.load(Ordering::Acquire) == phase::CLOSED)
    }

    /// Returns the states of a segment's event types that are private to this process.
    pub(crate) fn event_states(&self, segment: usize) -> &EventStates {
        &self.states[segment]
    }

    /// Returns a segment to the pool, whose counters are 0.
    pub(crate) fn release_segment(&self, number: usize) {
        for state in &self.states[number] {
            let words = [
                &state.gate,
                &state.limiter,
                &state.reported_suppressed,
                &state.suppressed_from,
            ];
            let words = words.into_iter().chain(&state.reported);
            words.for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.segments.release(number);
    }

    /// Adds counters for a block of 32 event types to a stream; `open` fills in their gates.
    /// Returns `false` if no segment is left.
    pub(crate) fn give_segment(
        &self,
        memory: &LiveMemory,
        stream: &Stream,
        block: usize,
        open: impl Fn(&[EventState]),
    ) -> bool {
        if stream.segment(block).is_some() {
            return true;
        }
        let Some(number) = self.segments.claim() else {
            return false;
        };
        let states = &self.states[number];
        open(states);
        let counters = memory.segment(number).as_ptr().cast_mut();
        if !stream.adopt_segment(block, number, counters, states.as_ptr().cast_mut()) {
            // Two threads count in an unattributed row, and the other one was first.
            self.release_segment(number);
            return true;
        }
        let entry = memory.slot(stream.slot).segment(block);
        entry.store(number as u16 + 1, Ordering::Release);
        // If the rules changed meanwhile, either the thread that changed them found the segment, or
        // they are read here.
        open(states);
        true
    }

    /// Frees cell, slot and counters of a stream whose totals are in the recording.
    pub(crate) fn take_back(&self, memory: &LiveMemory, stream: &Stream) {
        let slot = memory.slot(stream.slot);
        let blocks = 0..l::SEGMENTS_PER_SLOT;
        // While the slot still names them: a reader takes counts that no slot names for those of a lost slot.
        for number in blocks.clone().filter_map(|block| stream.segment(block)) {
            memory.segment(number).iter().for_each(Counters::clear);
        }
        slot.stream().store(0, Ordering::Release);
        for block in blocks {
            slot.segment(block).store(0, Ordering::Release);
        }
        for number in stream.take_segments() {
            self.release_segment(number);
        }
        stream.phase.store(phase::FREE, Ordering::Release);
    }
}
