//! Work of threads, and time in which one of them may only have waited for others to end.
//!
//! A thread that starts others and waits until they end (`pthread_join`) is in the region that did both, and calls nothing that
//! is recorded. That time is no work for certain: it is *silent*. It is the part of a stay in a region, between two enters or leaves,
//! until the last thread ended that began in that call and ended in that stay.

use std::collections::BTreeMap;

use annals_format::{Definitions, LocationId, ProcessId, RegionId};
use annals_merger::{Analysis, Calls, Close, Frame, Query, Reader, Result, SliceLength, Window};

use serde::Serialize;

use crate::event_loop::{is_await, task_locations};
use crate::locations::LocationNames;
use crate::region_kinds::{RegionKind, RegionKinds};
use crate::region_statistics::{Group, Grouping, Statistics};

/// Number of stays of a location that are kept, the longest.
const MOST_STAYS: usize = 64;
/// A region of shorter calls waits for no thread: the mean of its calls without what they call, as a part of the run.
const LEAST_CALL: i64 = 100;

/// Time of a region at a location, without the regions that it calls, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RegionWork {
    /// All of it.
    pub exclusive_ns: i64,
    /// The part that is silent.
    pub silent_ns: i64,
}

/// Returns whether most of a region's time is silent.
pub const fn is_mostly_silent(silent_ns: i64, exclusive_ns: i64) -> bool {
    silent_ns > 0 && 2 * silent_ns >= exclusive_ns
}

/// A stay in a region between two enters or leaves.
#[derive(Clone, Copy)]
struct Stay {
    region: RegionId,
    /// When the region was entered.
    entered_ns: i64,
    from_ns: i64,
    to_ns: i64,
}

impl Stay {
    const fn length_ns(&self) -> i64 {
        self.to_ns - self.from_ns
    }
}

/// What is known of a location.
#[derive(Clone, Default)]
struct Thread {
    /// First and last enter or leave. `None` without any.
    span_ns: Option<(i64, i64)>,
    /// Whether calls are open at its end.
    is_open: bool,
    /// The longest stays, the longest first.
    stays: Vec<Stay>,
    exclusive_ns: BTreeMap<RegionId, i64>,
}

impl Thread {
    fn note(&mut self, time_ns: i64) {
        let (from_ns, to_ns) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((from_ns.min(time_ns), to_ns.max(time_ns)));
    }

    fn keep(&mut self, stay: Stay) {
        let shortest = self.stays.last().map_or(0, Stay::length_ns);
        if self.stays.len() < MOST_STAYS || stay.length_ns() > shortest {
            let is_longer = |other: &Stay| other.length_ns() >= stay.length_ns();
            let at = self.stays.partition_point(is_longer);
            self.stays.insert(at, stay);
            self.stays.truncate(MOST_STAYS);
        }
    }
}

struct Threads {
    window: Window,
    /// By number of the location.
    threads: Vec<Thread>,
}

impl Analysis for Threads {
    const SLICES: SliceLength = SliceLength::AnyOrder;

    fn enter(&mut self, location: usize, _: &[Frame], _: RegionId, time_ns: i64) -> u32 {
        self.threads[location].note(time_ns);
        0
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let Some(frame) = frames.last() else { return };
        let thread = &mut self.threads[location];
        *thread.exclusive_ns.entry(frame.region).or_default() += self.window.clip(from_ns, to_ns);
        thread.keep(Stay {
            region: frame.region,
            entered_ns: frame.entered_ns,
            from_ns,
            to_ns,
        });
    }

    fn close(&mut self, location: usize, _: &[Frame], _: &Frame, end_ns: i64, how: Close) {
        self.threads[location].is_open |= how == Close::Open;
        self.threads[location].note(end_ns);
    }

    fn merge(&mut self, later: Self) {
        for (thread, later) in self.threads.iter_mut().zip(later.threads) {
            if let Some((from_ns, to_ns)) = later.span_ns {
                thread.note(from_ns);
                thread.note(to_ns);
            }
            thread.is_open |= later.is_open;
            later.stays.into_iter().for_each(|stay| thread.keep(stay));
            for (region, ns) in later.exclusive_ns {
                *thread.exclusive_ns.entry(region).or_default() += ns;
            }
        }
    }
}

/// Returns the work of each location in each region, in the query's window.
///
/// # Errors
/// If the storage fails.
pub fn thread_work(
    reader: &Reader,
    query: &Query,
) -> Result<BTreeMap<(LocationId, RegionId), RegionWork>> {
    let definitions = reader.definitions();
    let locations = Calls::new(definitions, query).locations().to_vec();
    let new = |_| Threads {
        window: query.window(),
        threads: vec![Thread::default(); locations.len()],
    };
    let (state, _) = reader.run(query, new)?;
    let process = |id: LocationId| definitions.locations.get(&id).map(|of| of.process);
    // When the threads of a process that ended began and ended.
    let mut lives: BTreeMap<Option<ProcessId>, Vec<(i64, i64)>> = BTreeMap::new();
    for (id, thread) in locations.iter().zip(&state.threads) {
        if let Some(span_ns) = thread.span_ns.filter(|_| !thread.is_open) {
            lives.entry(process(*id)).or_default().push(span_ns);
        }
    }
    let mut work: BTreeMap<(LocationId, RegionId), RegionWork> = BTreeMap::new();
    for (id, thread) in locations.iter().zip(state.threads) {
        for (region, ns) in thread.exclusive_ns {
            work.entry((*id, region)).or_default().exclusive_ns += ns;
        }
        let lives = lives.get(&process(*id)).map_or(&[][..], Vec::as_slice);
        for stay in thread.stays {
            let ended = lives.iter().filter(|(began_ns, ended_ns)| {
                *began_ns > stay.entered_ns && stay.from_ns < *ended_ns && *ended_ns <= stay.to_ns
            });
            if let Some(last_ns) = ended.map(|life| life.1).max() {
                let silent_ns = query.window().clip(stay.from_ns, last_ns);
                work.entry((*id, stay.region)).or_default().silent_ns += silent_ns;
            }
        }
    }
    let kinds = RegionKinds::of(definitions);
    // What is recorded as waiting says so.
    work.retain(|(_, region), _| kinds.get(*region) == RegionKind::Useful);
    Ok(work)
}

/// Work of a thread. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ThreadTimes {
    /// Its name.
    pub thread: String,
    /// Time in regions in which it did not wait, as far as that is recorded, and without silent time.
    pub useful_ns: i64,
    /// The region in which it worked longer than the mean of the others, by most.
    pub region: String,
    /// By how much.
    pub region_more_ns: i64,
    #[serde(skip)]
    pub(crate) location: LocationId,
}

/// Returns the work of the threads of a single rank, in the order of their locations. Those that mostly waited for the ends of
/// others are left out. Empty if fewer than two worked.
///
/// # Errors
/// If the storage fails.
pub(crate) fn thread_times(reader: &Reader, query: &Query) -> Result<Vec<ThreadTimes>> {
    let definitions = reader.definitions();
    let mut work: BTreeMap<LocationId, BTreeMap<RegionId, i64>> = BTreeMap::new();
    let mut silent_ns: BTreeMap<LocationId, i64> = BTreeMap::new();
    // Tasks take turns on a thread.
    let tasks = task_locations(reader)?;
    let of_threads = thread_work(reader, query)?.into_iter();
    for ((location, region), of) in of_threads.filter(|((id, _), _)| !tasks.contains(id)) {
        let regions = work.entry(location).or_default();
        regions.insert(region, of.exclusive_ns - of.silent_ns);
        *silent_ns.entry(location).or_default() += of.silent_ns;
    }
    work.retain(|location, regions| {
        let useful_ns: i64 = regions.values().sum();
        useful_ns > 0 && !is_mostly_silent(silent_ns[location], useful_ns + silent_ns[location])
    });
    let number = work.len() as i64;
    if number < 2 {
        return Ok(Vec::new());
    }
    let mut sums: BTreeMap<RegionId, i64> = BTreeMap::new();
    for (region, ns) in work.values().flatten() {
        *sums.entry(*region).or_default() += ns;
    }
    let names = LocationNames::new(definitions);
    let rows = work.iter().map(|(location, regions)| {
        let more = regions
            .iter()
            .map(|(region, ns)| (ns - (sums[region] - ns) / (number - 1), *region));
        let (region_more_ns, region) = more.max().unwrap_or((0, RegionId::new(0)));
        ThreadTimes {
            thread: names.get(*location).to_owned(),
            useful_ns: regions.values().sum(),
            region: definitions.region_name(region),
            region_more_ns,
            location: *location,
        }
    });
    Ok(rows.collect())
}

/// Returns what was done while threads waited: by rank and region in which threads of it mostly waited for others to end, the region in
/// which these worked longer than those of other ranks, most of all. Both by name. Reads the calls only where a process has several threads.
///
/// # Errors
/// If the storage fails.
pub(crate) fn work_of_others(
    reader: &Reader,
    query: &Query,
) -> Result<BTreeMap<(u32, String), String>> {
    let definitions = reader.definitions();
    if !has_threads(definitions) {
        return Ok(BTreeMap::new());
    }
    // By region and rank.
    let mut by_rank: BTreeMap<RegionId, BTreeMap<u32, RegionWork>> = BTreeMap::new();
    for ((location, region), work) in thread_work(reader, query)? {
        let of_region = by_rank.entry(region).or_default();
        let sum = of_region
            .entry(definitions.rank_of_location(location))
            .or_default();
        sum.exclusive_ns += work.exclusive_ns;
        sum.silent_ns += work.silent_ns;
    }
    let useful_ns = |work: &RegionWork| work.exclusive_ns - work.silent_ns;
    let ranks = definitions.ranks.len() as i64;
    let more_ns = |of_region: &BTreeMap<u32, RegionWork>, rank: u32| {
        let own_ns = of_region.get(&rank).map_or(0, useful_ns);
        let all_ns: i64 = of_region.values().map(useful_ns).sum();
        own_ns - (all_ns - own_ns) / (ranks - 1).max(1)
    };
    let mut found = BTreeMap::new();
    for (region, of_region) in &by_rank {
        let waiting = of_region.iter();
        let waiting =
            waiting.filter(|(_, work)| is_mostly_silent(work.silent_ns, work.exclusive_ns));
        for (rank, _) in waiting {
            let each = by_rank.iter().map(|(id, of)| (more_ns(of, *rank), *id));
            if let Some((_, id)) = each.filter(|(ns, _)| *ns > 0).max() {
                let key = (*rank, definitions.region_name(*region));
                found.insert(key, definitions.region_name(id));
            }
        }
    }
    Ok(found)
}

/// Returns the silent time of regions by group, of those that have any. Reads the calls only where a region may have some.
///
/// # Errors
/// If the storage fails.
pub fn silent_times(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
    statistics: &Statistics,
) -> Result<BTreeMap<(Group, RegionId), i64>> {
    let definitions = reader.definitions();
    let run_ns = reader.extent().end_ns;
    let is_long = statistics.values().any(|stats| {
        let calls = stats.counted.calls.max(1) as i64;
        stats.counted.exclusive_ns > 0 && stats.counted.exclusive_ns / calls >= run_ns / LEAST_CALL
    });
    let mut silent: BTreeMap<(Group, RegionId), i64> = BTreeMap::new();
    let awaits = statistics.iter();
    let awaits = awaits.filter(|((_, region), _)| is_await(definitions, *region));
    silent.extend(awaits.map(|(key, stats)| (*key, stats.counted.exclusive_ns)));
    if !is_long || !has_threads(definitions) {
        return Ok(silent);
    }
    for ((location, region), work) in thread_work(reader, query)? {
        let group = Group::of(definitions, grouping, location);
        if work.silent_ns > 0 {
            *silent.entry((group, region)).or_default() += work.silent_ns;
        }
    }
    Ok(silent)
}

/// Returns whether a process has several locations.
fn has_threads(definitions: &Definitions) -> bool {
    let mut processes = std::collections::BTreeSet::new();
    let mut locations = definitions.locations.values();
    !locations.all(|location| processes.insert(location.process))
}
