//! Statistics of region calls: counted by readers for a window, and by the merge for the whole of its trace.

use annals_format::{
    CallStatistics, LocationState, MAX_BIN_LEVEL, MAX_SNAPSHOT_LOCATIONS, MAX_SNAPSHOT_STEPS,
    OverviewDensity, OverviewRow, RegionId, RegionStatistics, Snapshot, Step, TraceChunk,
};
use rustc_hash::FxHashMap;

use crate::analysis::{Analysis, Close, Frame, SliceLength};
use crate::calls::CallStack;
use crate::calls::moves::{ChunkMoves, Move, MoveKind};
use crate::calls::region_types::RegionTypes;
use crate::error::Result;
use crate::overview::groups::LaneGroups;
use crate::overview::lane::Shared;
use crate::overview::shard::{GroupLanes, ShardLanes, advance_group};
use crate::stages::{self, Stage};
use crate::window::Window;
use crate::workers::Workers;

/// Which part of a call counts.
pub trait Extent {
    /// Returns whether a moment does.
    fn contains(&self, time_ns: i64) -> bool;

    /// Returns how much of a stretch of time does, nanoseconds.
    fn clip(&self, from_ns: i64, to_ns: i64) -> i64;

    /// Returns whether a moment is before all that counts.
    fn is_before(&self, time_ns: i64) -> bool;
}

impl Extent for Window {
    #[inline]
    fn contains(&self, time_ns: i64) -> bool {
        Self::contains(self, time_ns)
    }

    #[inline]
    fn clip(&self, from_ns: i64, to_ns: i64) -> i64 {
        Self::clip(self, from_ns, to_ns)
    }

    #[inline]
    fn is_before(&self, time_ns: i64) -> bool {
        time_ns < self.from_ns
    }
}

/// All of time: what [`Window::ALL`] is, without the comparisons.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Always;

impl Extent for Always {
    #[inline]
    fn contains(&self, _: i64) -> bool {
        true
    }

    #[inline]
    fn clip(&self, from_ns: i64, to_ns: i64) -> i64 {
        Window::ALL.clip(from_ns, to_ns)
    }

    #[inline]
    fn is_before(&self, _: i64) -> bool {
        false
    }
}

/// Counts the calls in a window, by group of locations and region. A call is counted at its enter, when that lies in
/// the window, and its time is the part that lies there; it is completed when it was left there as well.
///
/// Every enter and leave is counted here, so lookups by group and region use a table.
#[derive(Debug)]
pub struct RegionCounter<E = Window> {
    extent: E,
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

impl<E: Extent> RegionCounter<E> {
    /// Most entries of all tables together: numbers of regions come from the file.
    const TABLE_ENTRIES: usize = 1 << 22;

    /// Creates a counter without counts. `group_of`: by location, the number of its group.
    pub fn new(extent: E, group_of: Vec<usize>) -> Self {
        let groups = group_of.iter().max().map_or(0, |last| last + 1);
        Self {
            extent,
            group_of,
            slots: vec![Vec::new(); groups],
            table_room: Self::TABLE_ENTRIES,
            far_slots: FxHashMap::default(),
            keys: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Returns the number of a region in the group of a location: the tag of its calls.
    #[inline]
    pub fn slot(&mut self, location: usize, region: RegionId) -> u32 {
        self.slot_of(self.group_of[location], region)
    }

    #[inline]
    fn slot_of(&mut self, group: usize, region: RegionId) -> u32 {
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

    /// Returns the slots of this counter, by slot of another one of the same groups.
    pub fn slots_of(&mut self, other: &Self) -> Vec<u32> {
        let keys = other.keys.iter();
        keys.map(|(group, region)| self.slot_of(*group, *region))
            .collect()
    }

    /// Returns the region of each slot.
    fn regions(&self) -> Vec<RegionId> {
        self.keys.iter().map(|(_, region)| *region).collect()
    }

    /// Returns what was counted, by slot: group, region, statistics.
    pub fn finish(self) -> impl Iterator<Item = (usize, RegionId, CallStatistics)> {
        let each = self.keys.into_iter().zip(self.counts);
        each.map(|((group, region), counts)| (group, region, counts))
    }
}

impl<E: Extent> Analysis for RegionCounter<E> {
    const SLICES: SliceLength = SliceLength::AnyOrder;

    #[inline]
    fn enter(&mut self, location: usize, _: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        let slot = self.slot(location, region);
        self.counts[slot as usize].calls += u64::from(self.extent.contains(time_ns));
        slot
    }

    fn resume(&mut self, location: usize, _: &[Frame], region: RegionId, _: i64) -> u32 {
        self.slot(location, region)
    }

    #[inline]
    fn spend(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        if let Some(top) = frames.last() {
            let counts = &mut self.counts[top.tag as usize];
            let inside = self.extent.clip(from_ns, to_ns);
            counts.exclusive_ns = counts.exclusive_ns.saturating_add(inside);
        }
    }

    fn outlast(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64, may_be_left: bool) {
        let more = self.extent.clip(from_ns, to_ns);
        let add = |sum: &mut i64| *sum = sum.saturating_add(more);
        for (depth, frame) in frames.iter().enumerate() {
            let counts = &mut self.counts[frame.tag as usize];
            if frame.is_outermost {
                add(&mut counts.inclusive_more_ns);
            }
            if may_be_left || depth + 1 == frames.len() {
                add(&mut counts.exclusive_more_ns);
            }
            if may_be_left && depth == 0 {
                add(&mut counts.unclear_ns);
            }
        }
    }

    #[inline]
    fn close(&mut self, _: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        let inside = self.extent.clip(frame.entered_ns, time_ns);
        let is_counted = self.extent.contains(frame.entered_ns);
        let is_over = self.extent.is_before(time_ns);
        let counts = &mut self.counts[frame.tag as usize];
        if frame.is_outermost {
            counts.inclusive_ns = counts.inclusive_ns.saturating_add(inside);
        }
        counts.is_time_uncertain |= !is_over && (frame.is_uncertain || how == Close::Unleft);
        match how {
            // Of a call with a loss in it, it is not known whether the leave is its own.
            Close::Left if is_counted && !frame.is_uncertain => counts.completed.add(inside),
            Close::Unleft => counts.unleft_calls += u64::from(is_counted),
            Close::Open => counts.open_calls += u64::from(is_counted),
            Close::Left => {}
        }
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_counted = self.extent.contains(time_ns);
        let slot = self.slot(location, region);
        self.counts[slot as usize].unmatched_leaves += u64::from(is_counted);
    }

    /// Adds what another counter of the same groups counted.
    fn merge(&mut self, later: Self) {
        for (slot, counts) in self.slots_of(&later).into_iter().zip(&later.counts) {
            self.counts[slot as usize].add(counts);
        }
    }
}

/// The stacks of some locations, and what their calls add up to.
#[derive(Debug)]
struct Shard {
    number: usize,
    stacks: Vec<CallStack>,
    calls: ShardCalls,
}

/// What the calls of some locations add up to.
#[derive(Debug)]
struct ShardCalls {
    counter: RegionCounter<Always>,
    /// `None` if no overview is wanted.
    lanes: Option<ShardLanes>,
}

impl Analysis for ShardCalls {
    #[inline]
    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        self.counter.enter(location, frames, region, time_ns)
    }

    fn resume(&mut self, location: usize, frames: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        self.counter.resume(location, frames, region, at_ns)
    }

    #[inline]
    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        self.counter.spend(location, frames, from_ns, to_ns);
    }

    fn outlast(
        &mut self,
        location: usize,
        frames: &[Frame],
        from_ns: i64,
        to_ns: i64,
        may_be_left: bool,
    ) {
        self.counter
            .outlast(location, frames, from_ns, to_ns, may_be_left);
    }

    #[inline]
    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, at_ns: i64, how: Close) {
        if let Some(lanes) = &mut self.lanes {
            lanes.close((location, around.len()), frame, at_ns, how);
        }
        self.counter.close(location, around, frame, at_ns, how);
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        self.counter.unmatched(location, region, time_ns);
    }
}

impl Shard {
    fn take(&mut self, number: usize, moves: &[Move]) {
        let (stack, calls) = (&mut self.stacks[number], &mut self.calls);
        for step in moves {
            match step.kind {
                MoveKind::Enter => stack.enter(number, step.region, step.time_ns, calls),
                MoveKind::Leave => stack.leave(number, step.region, step.time_ns, calls),
                MoveKind::Gap => stack.note_gap(),
            }
        }
        self.note(number);
    }

    fn note(&mut self, number: usize) {
        if let Some(lanes) = &mut self.calls.lanes {
            lanes.note(number, &self.stacks[number]);
        }
    }

    /// Finishes bins of the overview; all of them up to the level `top`, if there is one. Groups know all calls.
    fn advance(&mut self, top: Option<u8>, density: &OverviewDensity) {
        if let Some(lanes) = &mut self.calls.lanes {
            let regions = &self.calls.counter.regions();
            let shared = Shared { regions, density };
            lanes.advance(shared);
            if let Some(top) = top {
                lanes.finish(top, shared);
            }
        }
    }
}

/// First and last time of a chunk's events, nanoseconds, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkSpan {
    pub(crate) first_ns: i64,
    pub(crate) last_ns: i64,
    pub(crate) events: u64,
}

impl ChunkSpan {
    pub(crate) fn of(chunk: &TraceChunk) -> Self {
        let (first_ns, last_ns) = chunk.span_ns().unwrap_or_default();
        let events = chunk.groups.iter().map(|group| group.times_ns.len() as u64);
        Self {
            first_ns,
            last_ns,
            events: events.sum(),
        }
    }
}

/// Counts the calls of a trace under construction.
#[derive(Debug)]
pub(crate) struct TraceCalls {
    shards: Vec<Shard>,
    /// Of groups of locations.
    groups: GroupLanes,
    /// Numbers of regions for these.
    regions: RegionCounter<Always>,
    pending: Vec<ChunkMoves>,
    /// Trace time of the last event of the pending chunks.
    last_ns: i64,
    density: OverviewDensity,
    /// Level of the bin that has all of the trace, once it is known.
    top: u8,
    workers: Workers,
}

impl TraceCalls {
    /// Number of chunks that are counted in parallel: enough to be worth the start of threads.
    const AT_ONCE: usize = 8;

    /// Locations are shared out among as many threads as `jobs` says; the result does not depend on it. With `groups`, there is
    /// an overview.
    ///
    /// # Errors
    /// If no threads can be started.
    pub(crate) fn new(
        types: &RegionTypes,
        jobs: usize,
        groups: Option<LaneGroups>,
    ) -> Result<Self> {
        let jobs = jobs.clamp(1, 64);
        let workers = Workers::new(jobs)?;
        let count = types.locations().len();
        let groups = groups.map(|groups| groups.with_lanes());
        let shards = (0..jobs).map(|shard| {
            let own = count.saturating_sub(shard).div_ceil(jobs);
            let lanes = groups.as_ref().map(|groups| {
                let numbers = (shard..count).step_by(jobs);
                let of = |at: usize| {
                    let groups = groups.of_location[at].clone();
                    (types.locations()[at], types.ends()[at], groups)
                };
                let own = numbers.map(of);
                ShardLanes::new(own)
            });
            Shard {
                number: shard,
                stacks: (0..own).map(|_| CallStack::default()).collect(),
                calls: ShardCalls {
                    counter: RegionCounter::new(Always, vec![0; own]),
                    lanes,
                },
            }
        });
        Ok(Self {
            shards: shards.collect(),
            groups: GroupLanes::new(groups.map_or_else(Vec::new, |groups| groups.groups)),
            regions: RegionCounter::new(Always, vec![0]),
            last_ns: i64::MIN,
            density: OverviewDensity::new(count),
            top: MAX_BIN_LEVEL,
            pending: Vec::new(),
            workers,
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
            shard.stacks[number].begin(number, state, true, &mut shard.calls);
        }
    }

    /// Takes the moves of the next chunk in.
    pub(crate) fn take(&mut self, moves: ChunkMoves, span: ChunkSpan) {
        self.pending.push(moves);
        let ChunkSpan {
            first_ns,
            last_ns,
            events,
        } = span;
        self.density.take(first_ns, last_ns, events);
        if events != 0 {
            self.last_ns = self.last_ns.max(last_ns);
        }
        if self.pending.len() >= Self::AT_ONCE {
            self.count_pending();
        }
    }

    fn count_pending(&mut self) {
        let Self {
            shards,
            pending,
            density,
            workers,
            ..
        } = self;
        let count = shards.len();
        let count_shard = |shard: &mut Shard| {
            shard.advance(None, density);
            for (location, moves) in pending.iter().flat_map(ChunkMoves::runs) {
                let location = location as usize;
                if location % count == shard.number {
                    shard.take(location / count, moves);
                }
            }
        };
        let count_shard = |shard| stages::during(Stage::Count, || count_shard(shard));
        workers.map(shards, count_shard);
        pending.clear();
        self.advance_groups(self.last_ns, None);
    }

    /// Adds what is new to the lanes of groups, and finishes their bins up to a time before which nothing follows; all of them up to the
    /// level `top`, if there is one.
    fn advance_groups(&mut self, to_ns: i64, top: Option<u8>) {
        if top.is_none() {
            let lanes = self.shards.iter_mut();
            let lanes = lanes.filter_map(|shard| shard.calls.lanes.as_mut());
            lanes.for_each(|lanes| lanes.note_ends(to_ns));
        }
        let numbers = &mut self.regions;
        let shards = self.shards.iter().filter_map(|shard| {
            let lanes = shard.calls.lanes.as_ref()?;
            Some((lanes, numbers.slots_of(&shard.calls.counter)))
        });
        let shards: Vec<(&ShardLanes, Vec<u32>)> = shards.collect();
        let shared = Shared {
            regions: &self.regions.regions(),
            density: &self.density,
        };
        self.groups.note(&shards);
        let advance = |lane| {
            stages::during(Stage::Count, || {
                advance_group(lane, &shards, to_ns, top, shared);
            });
        };
        self.workers.map(&mut self.groups.lanes, advance);
    }

    /// Takes the rows of the overview that are finished.
    pub(crate) fn take_rows(&mut self) -> impl Iterator<Item = OverviewRow> {
        let shards = self.shards.iter_mut();
        let lanes = shards.filter_map(|shard| shard.calls.lanes.as_mut());
        let of_locations = lanes.flat_map(|lanes| lanes.rows.drain(..));
        let groups = self.groups.lanes.iter_mut();
        let rows = of_locations.chain(groups.flat_map(|(lane, _)| lane.rows.drain(..)));
        let top = self.top;
        rows.filter(move |row| row.level <= top)
    }

    /// Returns the number of open calls and of locations with events, as of the last count.
    pub(crate) fn size(&self) -> usize {
        let stacks = self.shards.iter().flat_map(|shard| &shard.stacks);
        let sizes =
            stacks.map(|stack| stack.frames().len() + usize::from(stack.last_ns().is_some()));
        sizes.sum()
    }

    /// Returns the calls that are open; `None` when they are more than a snapshot can hold.
    pub(crate) fn snapshot(&mut self, types: &RegionTypes) -> Option<Snapshot> {
        self.count_pending();
        let shards = self.shards.len();
        let mut snapshot = Snapshot::default();
        let mut steps = 0;
        for (number, location) in types.locations().iter().enumerate() {
            let stack = &self.shards[number % shards].stacks[number / shards];
            let Some(last_ns) = stack.last_ns() else {
                continue;
            };
            let frames = stack.frames().iter().map(|frame| Step::Enter {
                region: frame.region,
                entered_ns: frame.entered_ns,
                is_uncertain: frame.is_uncertain,
            });
            steps += frames.len();
            snapshot.locations.push(LocationState {
                location: *location,
                last_ns: Some(last_ns),
                has_gap: false,
                has_gap_after_last: stack.has_gap_after_last(),
                steps: frames.collect(),
            });
        }
        let fits =
            steps <= MAX_SNAPSHOT_STEPS && snapshot.locations.len() <= MAX_SNAPSHOT_LOCATIONS;
        fits.then_some(snapshot)
    }

    /// Ends open calls: what was counted, and all rows of the overview, are known then.
    pub(crate) fn end(&mut self, types: &RegionTypes) {
        self.count_pending();
        let shards = self.shards.len();
        for (first, shard) in self.shards.iter_mut().enumerate() {
            shard.advance(None, &self.density);
            for number in 0..shard.stacks.len() {
                let end = types.ends()[first + number * shards];
                shard.stacks[number].end(number, end, &mut shard.calls);
                shard.note(number);
            }
        }
        let lanes = self
            .shards
            .iter()
            .filter_map(|shard| shard.calls.lanes.as_ref());
        let spans = lanes.filter_map(ShardLanes::span_ns);
        let span = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let Some((first_ns, last_ns)) = span else {
            return;
        };
        let last_ns = last_ns.max(self.last_ns);
        let is_top = |level: &u8| first_ns >> level == last_ns >> level;
        let top = (0..=MAX_BIN_LEVEL).find(is_top).unwrap_or(MAX_BIN_LEVEL);
        self.top = top;
        self.advance_groups(last_ns, Some(top));
        let density = &self.density;
        let finish = |shard: &mut Shard| shard.advance(Some(top), density);
        self.workers.map(&mut self.shards, finish);
    }

    /// Returns the statistics of what was counted, or `None` if they exceed the limits of a trace.
    pub(crate) fn finish(self) -> Option<RegionStatistics> {
        let mut regions: std::collections::BTreeMap<RegionId, CallStatistics> =
            std::collections::BTreeMap::new();
        for shard in self.shards {
            for (_, region, counts) in shard.calls.counter.finish() {
                regions.entry(region).or_default().add(&counts);
            }
        }
        let statistics = RegionStatistics {
            regions: regions.into_iter().collect(),
        };
        (!statistics.is_too_much()).then_some(statistics)
    }
}
