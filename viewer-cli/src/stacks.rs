//! Statistics of region calls, aware of losses.
//!
//! A call is counted at its enter. In a window, a call counts when it was entered there, and its time is the
//! part that lies there; it is completed when it was left there as well.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::{Definitions, LocationId, ProcessId, RegionId, TraceLoss};
use annals_merger::{Opened, Outcome, Window};
use rustc_hash::FxHashMap;

use crate::calls::{Calls, Close, Frame, Sink};
use crate::filter::Filter;
use crate::names::Places;
use crate::spread::Spread;

/// What statistics are kept by, beside the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// All of it.
    All,
    /// A rank.
    Rank(u32),
    /// A location.
    Location(LocationId),
}

/// How statistics are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// Not at all.
    #[default]
    None,
    /// By rank.
    Rank,
    /// By location.
    Location,
}

/// Statistics of one region in one group. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    /// Enters.
    pub calls: u64,
    /// Enters and leaves that the recorder's rules switch off: those of its own two event types.
    pub ruled_events: u64,
    /// Time in the region, regions it called included; recursion is not counted twice.
    pub inclusive_ns: i64,
    /// Time in the region itself.
    pub exclusive_ns: i64,
    /// Durations of the calls whose enter and leave were both seen.
    pub completed: Spread,
    /// Calls that were still open at the end.
    pub open_calls: u64,
    /// Leaves without an enter.
    pub unmatched_leaves: u64,
    /// Calls that were never left, and ended with a region around them: `longjmp` does that.
    pub unleft_calls: u64,
    /// By how much `calls` may differ from the true number.
    pub uncertain_calls: u64,
    /// Whether even that is only a lower bound.
    pub uncertain_is_lower_bound: bool,
    /// Whether a loss may have changed the times.
    pub is_time_uncertain: bool,
}

impl RegionStats {
    /// Takes in the statistics of other calls. A loss may concern each of them, but only once: the sum of
    /// uncertain calls is a bound that still holds.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.ruled_events += other.ruled_events;
        self.inclusive_ns += other.inclusive_ns;
        self.exclusive_ns += other.exclusive_ns;
        self.completed.add_all(&other.completed);
        self.open_calls += other.open_calls;
        self.unmatched_leaves += other.unmatched_leaves;
        self.unleft_calls += other.unleft_calls;
        self.uncertain_calls = self.uncertain_calls.saturating_add(other.uncertain_calls);
        self.uncertain_is_lower_bound |= other.uncertain_is_lower_bound;
        self.is_time_uncertain |= other.is_time_uncertain;
    }
}

/// Statistics by group and region.
pub type Statistics = BTreeMap<(Group, RegionId), RegionStats>;

/// Statistics as they are counted. Every enter and leave comes through here, so what is found by group and
/// region is found in a table.
struct Counter {
    window: Window,
    /// By location, the number of its group.
    group_of: Vec<usize>,
    groups: Vec<Group>,
    /// By group and region, slot + 1.
    slots: Vec<Vec<u32>>,
    /// Room left for these.
    table_room: usize,
    /// Of regions beyond the tables.
    far_slots: FxHashMap<(usize, RegionId), u32>,
    keys: Vec<(Group, RegionId)>,
    /// By slot.
    stats: Vec<RegionStats>,
}

impl Counter {
    /// Most entries of all tables together: numbers of regions come from the file.
    const TABLE_ENTRIES: usize = 1 << 22;

    fn new(window: Window, of_locations: impl Iterator<Item = Group>) -> Self {
        let mut numbers = BTreeMap::new();
        let mut groups = Vec::new();
        let number_of = |group| {
            *numbers.entry(group).or_insert_with(|| {
                groups.push(group);
                groups.len() - 1
            })
        };
        let group_of = of_locations.map(number_of).collect();
        Self {
            window,
            group_of,
            slots: vec![Vec::new(); groups.len()],
            groups,
            table_room: Self::TABLE_ENTRIES,
            far_slots: FxHashMap::default(),
            keys: Vec::new(),
            stats: Vec::new(),
        }
    }

    #[inline]
    fn slot(&mut self, location: usize, region: RegionId) -> u32 {
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
        let slot = self.stats.len() as u32;
        self.stats.push(RegionStats::default());
        self.keys.push((self.groups[group], region));
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

    fn of(&mut self, location: usize, region: RegionId) -> &mut RegionStats {
        let slot = self.slot(location, region);
        &mut self.stats[slot as usize]
    }

    fn finish(self) -> Statistics {
        self.keys.into_iter().zip(self.stats).collect()
    }
}

/// The part of an interval that lies in a window.
pub fn clip(window: Window, from_ns: i64, to_ns: i64) -> i64 {
    let (from, to) = (from_ns.max(window.from_ns), to_ns.min(window.to_ns));
    to.saturating_sub(from).max(0)
}

impl Sink for Counter {
    fn enter(&mut self, location: usize, _: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        let slot = self.slot(location, region);
        self.stats[slot as usize].calls += u64::from(self.window.contains(time_ns));
        slot
    }

    fn spend(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        if let Some(top) = frames.last() {
            self.stats[top.tag as usize].exclusive_ns += clip(self.window, from_ns, to_ns);
        }
    }

    fn close(&mut self, _: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        let inside = clip(self.window, frame.entered_ns, time_ns);
        let is_counted = self.window.contains(frame.entered_ns);
        let is_over = time_ns < self.window.from_ns;
        let stats = &mut self.stats[frame.tag as usize];
        if frame.is_outermost {
            stats.inclusive_ns += inside;
        }
        // Open to the end is no loss by itself.
        stats.is_time_uncertain |= !is_over && (frame.is_uncertain || how == Close::Unleft);
        match how {
            Close::Left if is_counted => stats.completed.add(inside),
            Close::Unleft => stats.unleft_calls += u64::from(is_counted),
            Close::Open => stats.open_calls += u64::from(is_counted),
            Close::Left => {}
        }
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_counted = self.window.contains(time_ns);
        self.of(location, region).unmatched_leaves += u64::from(is_counted);
    }

    fn ruled(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_counted = self.window.contains(time_ns);
        self.of(location, region).ruled_events += u64::from(is_counted);
    }
}

/// Statistics of the calls in a window. `look` sees every chunk that is read for it.
///
/// # Errors
/// If the input cannot be read.
pub fn statistics(
    opened: &Opened,
    places: &Places,
    filter: &Filter,
    window: Window,
    grouping: Grouping,
    mut look: impl FnMut(&annals_format::TraceChunk),
) -> anyhow::Result<(Statistics, Outcome)> {
    let definitions = &opened.definitions;
    let mut calls = Calls::new(definitions, filter, window);
    let groups = calls.locations().iter().map(|id| match grouping {
        Grouping::None => Group::All,
        Grouping::Rank => Group::Rank(rank_of(definitions, *id)),
        Grouping::Location => Group::Location(*id),
    });
    let mut counter = Counter::new(window, groups);
    let outcome = calls.read(opened, &mut counter, |chunk, _| look(chunk))?;
    let mut statistics = counter.finish();
    let uncertainty = Uncertainty {
        definitions,
        places,
        grouping,
    };
    for loss in &outcome.losses {
        let role = calls.role_of_loss(loss);
        if let Some(found) = uncertainty.of(loss, role, filter, window) {
            spread(&found, role.0, loss, &mut statistics);
        }
    }
    Ok((statistics, outcome))
}

/// Rank of a location's process.
pub fn rank_of(definitions: &Definitions, location: LocationId) -> u32 {
    let location = definitions.locations.get(&location);
    let rank = location.and_then(|location| definitions.ranks.get(&location.process));
    rank.map_or(0, |rank| rank.rank)
}

/// What a loss of enters or leaves may concern.
struct Concerned {
    groups: Vec<Group>,
    regions: BTreeSet<RegionId>,
}

struct Uncertainty<'a> {
    definitions: &'a Definitions,
    places: &'a Places,
    grouping: Grouping,
}

impl Uncertainty<'_> {
    fn of(
        &self,
        loss: &TraceLoss,
        (enters, leaves): (bool, bool),
        filter: &Filter,
        window: Window,
    ) -> Option<Concerned> {
        let overlaps = loss.to_ns >= window.from_ns && loss.from_ns < window.to_ns;
        let is_nothing = loss.count == 0 && !loss.is_lower_bound;
        if is_nothing || !(enters || leaves) || !overlaps || !filter.takes_stream(loss.stream) {
            return None;
        }
        let place = self.places.get(loss.stream);
        Some(Concerned {
            groups: self.groups(place.rank, place.process, place.location_id),
            regions: self.regions(place.process),
        })
    }

    fn groups(&self, rank: u32, process: ProcessId, location: Option<LocationId>) -> Vec<Group> {
        match (self.grouping, location) {
            (Grouping::None, _) => vec![Group::All],
            (Grouping::Rank, _) => vec![Group::Rank(rank)],
            (Grouping::Location, Some(location)) => vec![Group::Location(location)],
            // Lost without a stream: at any location of the process.
            (Grouping::Location, None) => {
                let locations = self.definitions.locations.values();
                let of_process = locations.filter(|location| location.process == process);
                of_process
                    .map(|location| Group::Location(location.id))
                    .collect()
            }
        }
    }

    fn regions(&self, process: ProcessId) -> BTreeSet<RegionId> {
        match self.definitions.region_sets.get(&process) {
            Some(set) => set.regions.iter().copied().collect(),
            None => self.definitions.regions.keys().copied().collect(),
        }
    }
}

fn spread(concerned: &Concerned, is_enter: bool, loss: &TraceLoss, statistics: &mut Statistics) {
    for group in &concerned.groups {
        for region in &concerned.regions {
            let stats = statistics.entry((*group, *region)).or_default();
            if is_enter {
                stats.uncertain_calls = stats.uncertain_calls.saturating_add(loss.count);
                stats.uncertain_is_lower_bound |= loss.is_lower_bound;
            }
            stats.is_time_uncertain = true;
        }
    }
}
