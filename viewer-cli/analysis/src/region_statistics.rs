//! Statistics of region calls, aware of losses.
//!
//! A call is counted at its enter. In a window, a call counts when it was entered there, and its time is the
//! part that lies there; it is completed when it was left there as well.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::{
    CallStatistics, Definitions, LocationId, ProcessId, RegionId, TraceChunk, TraceLoss,
};
use annals_merger::{
    Analysis, Calls, Close, Frame, Places, Query, ReadSummary, Reader, RegionCounter, Result,
    SliceLength, Window,
};

use crate::losses::concerns;

/// What statistics are grouped by, in addition to the region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Group {
    /// All of it.
    All,
    /// A rank.
    Rank(u32),
    /// A location.
    Location(LocationId),
}

impl Group {
    /// Returns the group of a location.
    pub fn of(definitions: &Definitions, grouping: Grouping, location: LocationId) -> Self {
        match grouping {
            Grouping::None => Self::All,
            Grouping::Rank => Self::Rank(definitions.rank_of_location(location)),
            Grouping::Location => Self::Location(location),
        }
    }
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
    /// The statistics by the existing enters and leaves.
    pub counted: CallStatistics,
    /// Enters and leaves that the recorder's rules switch off: those of the recorder's two event
    /// types.
    pub ruled_events: u64,
    /// By how much `calls` may differ from the true number.
    pub uncertain_calls: u64,
    /// Whether even that is only a lower bound.
    pub uncertain_is_lower_bound: bool,
}

impl RegionStats {
    fn of(counted: CallStatistics, ruled_events: u64) -> Self {
        Self {
            counted,
            ruled_events,
            ..Self::default()
        }
    }

    /// Takes in the statistics of other calls. A loss may concern each of them, but only once: the sum of
    /// uncertain calls is a bound that still holds.
    pub fn add(&mut self, other: &Self) {
        self.counted.add(&other.counted);
        self.ruled_events += other.ruled_events;
        self.uncertain_calls = self.uncertain_calls.saturating_add(other.uncertain_calls);
        self.uncertain_is_lower_bound |= other.uncertain_is_lower_bound;
    }
}

/// Statistics by group and region.
pub type Statistics = BTreeMap<(Group, RegionId), RegionStats>;

/// Statistics as they are counted.
struct Counter<'a> {
    window: Window,
    query: &'a Query,
    /// Whether all events are counted, not only enters and leaves.
    counts_events: bool,
    events: u64,
    counter: RegionCounter,
    /// By slot.
    ruled: Vec<u64>,
}

impl Analysis for Counter<'_> {
    const SLICES: SliceLength = SliceLength::AnyOrder;

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

    fn outlast(&mut self, at: usize, frames: &[Frame], from_ns: i64, to_ns: i64, is_lost: bool) {
        self.counter.outlast(at, frames, from_ns, to_ns, is_lost);
    }

    #[inline]
    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, end_ns: i64, how: Close) {
        self.counter.close(location, around, frame, end_ns, how);
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        self.counter.unmatched(location, region, time_ns);
    }

    fn chunk(&mut self, chunk: &TraceChunk) {
        if self.counts_events {
            let runs = chunk.runs();
            let runs = runs.filter(|(_, stream, _)| self.query.takes_stream(*stream));
            let counted = runs.flat_map(|(group, _, run)| &group.times_ns[run]);
            let counted = counted.filter(|time_ns| self.window.contains(**time_ns));
            self.events += counted.count() as u64;
        }
    }

    fn ruled(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let slot = self.counter.slot(location, region) as usize;
        if slot >= self.ruled.len() {
            self.ruled.resize(slot + 1, 0);
        }
        self.ruled[slot] += u64::from(self.window.contains(time_ns));
    }

    fn merge(&mut self, later: Self) {
        let slots = self.counter.slots_of(&later.counter);
        for (slot, ruled) in slots.iter().zip(&later.ruled) {
            let slot = *slot as usize;
            if slot >= self.ruled.len() {
                self.ruled.resize(slot + 1, 0);
            }
            self.ruled[slot] += ruled;
        }
        self.events += later.events;
        self.counter.merge(later.counter);
    }
}

/// Numbers the groups that locations are in: by location, and the groups by number.
fn number(of_locations: impl Iterator<Item = Group>) -> (Vec<usize>, Vec<Group>) {
    let mut numbers = BTreeMap::new();
    let mut groups = Vec::new();
    let number_of = |group| {
        *numbers.entry(group).or_insert_with(|| {
            groups.push(group);
            groups.len() - 1
        })
    };
    let group_of = of_locations.map(number_of).collect();
    (group_of, groups)
}

/// Returns the statistics of all calls, as the merge counted them. `None` if the query asks for a part, or for groups.
fn stored(reader: &Reader, query: &Query, grouping: Grouping) -> Option<(Statistics, ReadSummary)> {
    let mut streams = reader.definitions().streams.keys();
    let is_whole = query.window() == Window::ALL && grouping == Grouping::None;
    if !is_whole || !streams.all(|stream| query.takes_stream(*stream)) {
        return None;
    }
    let stored = reader.trace()?.region_statistics().ok()??;
    let stored = stored.regions.into_iter();
    let stored = stored.map(|(region, calls)| ((Group::All, region), RegionStats::of(calls, 0)));
    Some((stored.collect(), reader.summary().ok()?))
}

/// Returns the statistics of the calls in a query's window, of all regions: those of a whole trace are stored in it.
///
/// # Errors
/// If the storage fails.
pub fn region_statistics(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<(Statistics, ReadSummary)> {
    let Some((mut statistics, summary)) = stored(reader, query, grouping) else {
        let (statistics, _, summary) = count(reader, query, grouping, false)?;
        return Ok((statistics, summary));
    };
    let calls = Calls::new(reader.definitions(), query);
    let uncertainty = Uncertainty {
        definitions: reader.definitions(),
        places: &Places::of(reader.definitions()),
        grouping,
    };
    uncertainty.mark_losses(&summary, &calls, query, &mut statistics);
    Ok((statistics, summary))
}

/// Counts the calls in a query's window, and all its events.
///
/// # Errors
/// If the storage fails.
pub fn count_region_statistics(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<(Statistics, u64, ReadSummary)> {
    count(reader, query, grouping, true)
}

fn count(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
    counts_events: bool,
) -> Result<(Statistics, u64, ReadSummary)> {
    let definitions = reader.definitions();
    let calls = Calls::new(definitions, query);
    let groups = calls.locations().iter();
    let groups = groups.map(|id| Group::of(definitions, grouping, *id));
    let (group_of, groups) = number(groups);
    let window = query.window();
    let new = |_| Counter {
        window,
        query,
        counts_events,
        events: 0,
        counter: RegionCounter::new(window, group_of.clone()),
        ruled: Vec::new(),
    };
    let (counter, summary) = reader.run(query, new)?;
    let ruled = counter.ruled.into_iter().chain(std::iter::repeat(0));
    let counted = counter.counter.finish().zip(ruled);
    let mut statistics: Statistics = counted
        .map(|((group, region, calls), ruled)| {
            ((groups[group], region), RegionStats::of(calls, ruled))
        })
        .collect();
    let uncertainty = Uncertainty {
        definitions,
        places: &Places::of(definitions),
        grouping,
    };
    uncertainty.mark_losses(&summary, &calls, query, &mut statistics);
    Ok((statistics, counter.events, summary))
}

/// The regions that a loss of enters or leaves may concern.
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
    /// Marks what each loss may have changed as uncertain.
    fn mark_losses(
        &self,
        summary: &ReadSummary,
        calls: &Calls,
        query: &Query,
        statistics: &mut Statistics,
    ) {
        for loss in &summary.losses {
            let (is_enter, is_leave) = calls.role_of_loss(loss);
            if let Some(concerned) = self.concerned_by(loss, is_enter || is_leave, query) {
                mark_uncertain(&concerned, is_enter, loss, statistics);
            }
        }
    }

    /// Returns the groups and regions that a loss may have changed, or `None` if it had no events of calls of the query.
    fn concerned_by(
        &self,
        loss: &TraceLoss,
        is_of_calls: bool,
        query: &Query,
    ) -> Option<Concerned> {
        if !is_of_calls || !concerns(loss, query, |_| true) {
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

/// Marks the statistics that a loss may have changed.
fn mark_uncertain(
    concerned: &Concerned,
    is_enter: bool,
    loss: &TraceLoss,
    statistics: &mut Statistics,
) {
    for group in &concerned.groups {
        for region in &concerned.regions {
            let stats = statistics.entry((*group, *region)).or_default();
            if is_enter {
                stats.uncertain_calls = stats.uncertain_calls.saturating_add(loss.count);
                stats.uncertain_is_lower_bound |= loss.is_lower_bound;
            }
            stats.counted.is_time_uncertain = true;
        }
    }
}
