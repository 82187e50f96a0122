//! Statistics of region calls: counted by readers for a window, and by the merge for the whole of its trace.

use std::ops::Range;

use annals_format::{CallStatistics, RegionId, RegionStatistics, Snapshot, TraceChunk, TraceLoss};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::calls::{CallSink, CallStack, Close, Frame, Moves};
use crate::open::Window;
use crate::stacks::RegionTypes;

/// Counts the calls in a window, by group of locations and region. A call is counted at its enter, when that lies in
/// the window, and its time is the part that lies there; it is completed when it was left there as well.
///
/// Every enter and leave comes through here, so what is found by group and region is found in a table.
#[derive(Debug)]
pub struct RegionCounter {
    window: Window,
    /// By location.
    group_of: Vec<usize>,
    /// By group and region, slot + 1.
    slots: Vec<Vec<u32>>,
    /// Room left for these.
    table_room: usize,
    /// Of regions beyond the tables.
    far_slots: FxHashMap<(usize, RegionId), u32>,
    /// By slot.
    keys: Vec<(usize, RegionId)>,
    counts: Vec<CallStatistics>,
}

impl RegionCounter {
    /// Most entries of all tables together: numbers of regions come from the file.
    const TABLE_ENTRIES: usize = 1 << 22;

    /// Nothing is counted yet. `group_of`: by location, the number of its group.
    pub fn new(window: Window, group_of: Vec<usize>) -> Self {
        let groups = group_of.iter().max().map_or(0, |last| last + 1);
        Self {
            window,
            group_of,
            slots: vec![Vec::new(); groups],
            table_room: Self::TABLE_ENTRIES,
            far_slots: FxHashMap::default(),
            keys: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// The number of a region in the group of a location: the tag of its calls.
    #[inline]
    pub fn slot(&mut self, location: usize, region: RegionId) -> u32 {
        let group = self.group_of[location];
        match self.slots[group].get(region.index()) {
            Some(slot) if *slot != 0 => slot - 1,
            _ => self.new_slot(group, region),
        }
    }

    #[cold]
    fn new_slot(&mut self, group: usize, region: RegionId) -> u32 {
        if let Some(slot) = self.far_slots.get(&(group, region)) {
            return *slot;
        }
        let slot = self.counts.len() as u32;
        self.counts.push(CallStatistics::default());
        self.keys.push((group, region));
        let table = &mut self.slots[group];
        let more = (region.index() + 1).saturating_sub(table.len());
        if more <= self.table_room {
            self.table_room -= more;
            table.resize(table.len() + more, 0);
            table[region.index()] = slot + 1;
        } else {
            self.far_slots.insert((group, region), slot);
        }
        slot
    }

    /// What was counted, by slot: group, region, statistics.
    pub fn finish(self) -> impl Iterator<Item = (usize, RegionId, CallStatistics)> {
        let each = self.keys.into_iter().zip(self.counts);
        each.map(|((group, region), counts)| (group, region, counts))
    }
}

impl CallSink for RegionCounter {
    #[inline]
    fn enter(&mut self, location: usize, _: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        let slot = self.slot(location, region);
        self.counts[slot as usize].calls += u64::from(self.window.contains(time_ns));
        slot
    }

    #[inline]
    fn spend(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        if let Some(top) = frames.last() {
            let counts = &mut self.counts[top.tag as usize];
            let inside = self.window.clip(from_ns, to_ns);
            counts.exclusive_ns = counts.exclusive_ns.saturating_add(inside);
        }
    }

    #[inline]
    fn close(&mut self, _: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        let inside = self.window.clip(frame.entered_ns, time_ns);
        let is_counted = self.window.contains(frame.entered_ns);
        let is_over = time_ns < self.window.from_ns;
        let counts = &mut self.counts[frame.tag as usize];
        if frame.is_outermost {
            counts.inclusive_ns = counts.inclusive_ns.saturating_add(inside);
        }
        // Open to the end is no loss by itself.
        counts.is_time_uncertain |= !is_over && (frame.is_uncertain || how == Close::Unleft);
        match how {
            Close::Left if is_counted => counts.completed.add(inside),
            Close::Unleft => counts.unleft_calls += u64::from(is_counted),
            Close::Open => counts.open_calls += u64::from(is_counted),
            Close::Left => {}
        }
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_counted = self.window.contains(time_ns);
        let slot = self.slot(location, region);
        self.counts[slot as usize].unmatched_leaves += u64::from(is_counted);
    }
}

/// What happened to the stack of a location.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// In the highest bits, what; below, the number of the location among those of its shard.
    what: u32,
    region: RegionId,
    time_ns: i64,
}

const ENTER: u32 = 0;
const LEAVE: u32 = 1 << 30;
const GAP: u32 = 2 << 30;
const LOCATION: u32 = LEAVE - 1;

/// The moves of a chunk, by shard.
#[derive(Debug, Default)]
pub(crate) struct ChunkMoves {
    shards: Vec<Vec<Move>>,
}

/// Finds the moves of chunks: in several threads, and in any order.
#[derive(Debug)]
pub(crate) struct MoveFinder<'a> {
    types: &'a RegionTypes,
    /// Shards of locations: as many threads count. The result does not depend on it.
    shards: u32,
}

impl<'a> MoveFinder<'a> {
    pub(crate) fn new(types: &'a RegionTypes, jobs: usize) -> Self {
        Self {
            types,
            shards: jobs.clamp(1, 64) as u32,
        }
    }

    pub(crate) fn of(&self, chunk: &TraceChunk) -> ChunkMoves {
        let mut moves = ChunkMoves {
            shards: vec![Vec::new(); self.shards as usize],
        };
        if self.types.is_empty() {
            return moves;
        }
        let mut of_types: Vec<Option<(u32, Moves)>> = chunk
            .types
            .iter()
            .map(|columns| {
                let (is_enter, at) = self.types.kind(columns.event_type)?;
                let what = if is_enter { ENTER } else { LEAVE };
                Some((what, Moves::of(columns.columns.get(at)?)))
            })
            .collect();
        let mut done = 0;
        for (at, loss) in &chunk.losses {
            let end = chunk.len().min(*at as usize).max(done);
            self.take_events(chunk, done..end, &mut of_types, &mut moves);
            self.note_gap(loss, &mut moves);
            done = end;
        }
        self.take_events(chunk, done..chunk.len(), &mut of_types, &mut moves);
        moves
    }

    fn take_events(
        &self,
        chunk: &TraceChunk,
        range: Range<usize>,
        of_types: &mut [Option<(u32, Moves)>],
        moves: &mut ChunkMoves,
    ) {
        let type_indexes = chunk.type_index[range.clone()].iter();
        let places = chunk.streams[range.clone()]
            .iter()
            .zip(&chunk.times_ns[range]);
        for (type_index, (stream, time_ns)) in type_indexes.zip(places) {
            let Some((what, regions)) = &mut of_types[usize::from(*type_index)] else {
                continue;
            };
            if let Some(region) = regions.step()
                && let Some(location) = self.types.location_of(*stream)
            {
                moves.shards[(location % self.shards) as usize].push(Move {
                    what: *what | (location / self.shards),
                    region,
                    time_ns: *time_ns,
                });
            }
        }
    }

    fn note_gap(&self, loss: &TraceLoss, moves: &mut ChunkMoves) {
        if self.types.is_gap(loss)
            && let Some(location) = self.types.location_of(loss.stream)
        {
            moves.shards[(location % self.shards) as usize].push(Move {
                what: GAP | (location / self.shards),
                region: RegionId::new(0),
                time_ns: loss.to_ns,
            });
        }
    }
}

/// The stacks of some locations, and what their calls add up to.
#[derive(Debug)]
struct Shard {
    stacks: Vec<CallStack>,
    counter: RegionCounter,
}

impl Shard {
    fn take(&mut self, moves: &[Move]) {
        for step in moves {
            let number = (step.what & LOCATION) as usize;
            let (stack, counter) = (&mut self.stacks[number], &mut self.counter);
            match step.what & !LOCATION {
                ENTER => stack.enter(number, step.region, step.time_ns, counter),
                LEAVE => stack.leave(number, step.region, step.time_ns, counter),
                _ => stack.note_gap(),
            }
        }
    }
}

/// Counts the calls of a trace in the making.
#[derive(Debug)]
pub(crate) struct TraceCalls {
    shards: Vec<Shard>,
    pending: Vec<ChunkMoves>,
    pool: rayon::ThreadPool,
}

impl TraceCalls {
    /// Chunks that are counted at once: enough that threads are worth their start.
    const AT_ONCE: usize = 8;

    /// # Errors
    /// If no threads can be had.
    pub(crate) fn new(finder: &MoveFinder<'_>) -> std::io::Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(finder.shards as usize);
        let pool = pool.build().map_err(std::io::Error::other)?;
        let count = finder.types.locations().len();
        let shards = (0..finder.shards as usize).map(|shard| {
            let own = count.saturating_sub(shard).div_ceil(finder.shards as usize);
            Shard {
                stacks: (0..own).map(|_| CallStack::default()).collect(),
                counter: RegionCounter::new(Window::ALL, vec![0; own]),
            }
        });
        Ok(Self {
            shards: shards.collect(),
            pending: Vec::new(),
            pool,
        })
    }

    /// Begins with regions open.
    pub(crate) fn begin(&mut self, types: &RegionTypes, open: &Snapshot) {
        let shards = self.shards.len();
        for state in &open.locations {
            let Ok(number) = types.locations().binary_search(&state.location) else {
                continue;
            };
            let shard = &mut self.shards[number % shards];
            let number = number / shards;
            shard.stacks[number].begin(number, state.open(), state.last_ns, &mut shard.counter);
        }
    }

    /// Takes the moves of the next chunk in.
    pub(crate) fn take(&mut self, moves: ChunkMoves) {
        self.pending.push(moves);
        if self.pending.len() >= Self::AT_ONCE {
            self.count_pending();
        }
    }

    fn count_pending(&mut self) {
        let Self {
            shards,
            pending,
            pool,
        } = self;
        pool.install(|| {
            let each = shards.par_iter_mut().enumerate();
            each.for_each(|(number, shard)| {
                let of_chunks = pending.iter().map(|moves| &moves.shards[number]);
                of_chunks.for_each(|moves| shard.take(moves));
            });
        });
        pending.clear();
    }

    /// Ends what is open; gives the statistics, or none when they are beyond what a trace can hold.
    pub(crate) fn finish(mut self) -> Option<RegionStatistics> {
        self.count_pending();
        let mut regions: std::collections::BTreeMap<RegionId, CallStatistics> =
            std::collections::BTreeMap::new();
        for mut shard in self.shards {
            for (number, stack) in shard.stacks.iter_mut().enumerate() {
                stack.end(number, None, &mut shard.counter);
            }
            for (_, region, counts) in shard.counter.finish() {
                regions.entry(region).or_default().add(&counts);
            }
        }
        let statistics = RegionStatistics {
            regions: regions.into_iter().collect(),
        };
        (!statistics.is_too_much()).then_some(statistics)
    }
}
