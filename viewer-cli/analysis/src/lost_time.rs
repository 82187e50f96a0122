//! The lost time of a parallel run: its efficiencies, its wait states by call path, and the ranks whose extra work caused
//! them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use annals_format::{Definitions, Histogram, LocationId, ProcessId, RegionId, StringId};
use annals_merger::{MessageCounts, Query, ReadSummary, Reader, Result, Window};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::bins::bounded;
use crate::communicators::{CommunicatorNumbers, communicator_name};
use crate::critical_path::{CriticalPath, PathObserver, path_of};
use crate::efficiencies::{Efficiencies, EfficiencyModel, RunTimes};
use crate::event_loop::{LoopRow, event_loop};
use crate::extra_work::Work;
use crate::hybrid::{HybridEfficiencies, hybrid_efficiencies};
use crate::lost_time_rows::{CauseRow, ExtraWork, RankTimes, WaitStateRow, WorstWait};
use crate::mpi_coverage::MpiCoverage;
use crate::oversubscription::Oversubscription;
use crate::region_kinds::RegionKinds;
use crate::sampled_threads::name_sampled_threads;
use crate::sampled_work::sampling_period_ns;
use crate::thread_work::{ThreadTimes, thread_times, work_of_others};
use crate::wait_states::{
    CommunicationTimes, Delay, PhaseTimes, WaitObserver, WaitPattern, WaitState, wait_states,
};

/// Number of single waits that are kept.
const MOST_WORST: usize = 10;
/// Number of parts of waits that are kept to be put into phases.
const MOST_IN_PHASES: usize = 1 << 20;
/// Causes with a smaller share of the time of all threads that count are not named.
pub const LEAST_SHARE: f64 = 0.01;
/// Number of regions of a call path that may be needed to distinguish it.
const MOST_CALLERS: usize = 3;

/// What else of the lost time is wanted.
#[derive(Clone, Debug, Default)]
pub struct LostTimeOptions {
    /// Regions of which each call is a phase.
    pub phases: Vec<RegionId>,
    /// Whether the critical path is wanted: it takes another pass over the trace.
    pub critical_path: bool,
}

/// The lost time of a run. Times in nanoseconds; shares of the time of all threads that count.
#[derive(Clone, Default, Debug, Serialize)]
#[serde(remote = "Self")]
pub struct LostTime {
    /// Trace time of the first event.
    pub from_ns: i64,
    /// Trace time of the last event.
    pub to_ns: i64,
    /// Times of the ranks.
    pub ranks: Vec<RankTimes>,
    /// Number of threads whose times count: those that communicate or work in teams; if a rank has none, all of its
    /// threads together count as one; of a single rank, those of `thread_times`.
    pub threads: u64,
    /// Their useful times.
    #[serde(skip)]
    pub useful_ns: Vec<i64>,
    /// Of a single rank without threads that communicate or work in teams: its threads that work, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thread_times: Vec<ThreadTimes>,
    /// Tasks that kept the event loop from others, those with the longest time first. `None` without tasks of an event loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_loop: Option<Vec<LoopRow>>,
    /// Efficiencies of both models. Empty if the run has no time.
    pub efficiencies: Vec<Efficiencies>,
    /// Efficiencies of MPI and of teams of threads, by the model of TALP. `None` without teams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<HybridEfficiencies>,
    /// Waits by pattern and call path, the longest first.
    pub wait_states: Vec<WaitStateRow>,
    /// Time in MPI of all threads that count that no pattern explains: transfers, and what the library does.
    pub other_mpi_ns: i64,
    /// Waits by the rank that caused them, the most expensive first.
    pub causes: Vec<CauseRow>,
    /// The longest single waits.
    pub worst: Vec<WorstWait>,
    /// Counts of all sends and receives.
    pub messages: MessageCounts,
    /// Number of threads that are in a call of MPI at the end of the window: what they wait for is not known.
    pub unfinished: u64,
    /// A host that had fewer processors than threads that count. `None` if there is none.
    pub oversubscription: Option<Oversubscription>,
    /// What of MPI the trace does not have. If waits are not known, nor is anything else here but the time: no other field is serialised.
    #[serde(skip_serializing_if = "MpiCoverage::is_whole")]
    pub mpi: MpiCoverage,
    /// Phases in the order of their numbers. Empty unless they are wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRow>,
    /// Number of phases that are not among them: at most 2²⁰ are kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub phases_left_out: u64,
    /// The critical path. `None` unless it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub critical_path: Option<CriticalPath>,
}

impl Serialize for LostTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.mpi.knows_waits() {
            return Self::serialize(self, serializer);
        }
        let mut known = serializer.serialize_struct("LostTime", 3)?;
        known.serialize_field("from_ns", &self.from_ns)?;
        known.serialize_field("to_ns", &self.to_ns)?;
        known.serialize_field("mpi", &self.mpi)?;
        known.end()
    }
}

impl LostTime {
    /// Returns the times from which the efficiencies are computed, without that of an ideal network. `None` if the run has no
    /// time.
    pub fn run_times(&self) -> Option<RunTimes> {
        RunTimes::of(&self.useful_ns, self.to_ns - self.from_ns, None)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A phase: a call of a region, the k-th of each location that calls it. Times in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseRow {
    /// Its number, from 0.
    pub phase: u64,
    /// The name of its region; of different ones, that of the call that ended first.
    pub region: String,
    /// The rank for which others waited longest in calls that they entered in it. `None` if none waited, or too many waits are known.
    pub late_rank: Option<u32>,
    /// How long all of them waited for that rank.
    pub late_ns: i64,
    /// The region in which they waited longest for it.
    pub late_region: String,
    /// Number of locations that called it.
    pub locations: u64,
    /// Trace time at which the first of them began it.
    pub from_ns: i64,
    /// Trace time at which the last of them ended it.
    pub to_ns: i64,
    /// The longest duration of a location.
    pub run_ns: i64,
    /// Multiplicative efficiencies. The time of the run is the longest duration of a location.
    pub efficiencies: Efficiencies,
    /// Whether events may be lost in it.
    pub is_uncertain: bool,
}

crate::columns! {
    PhaseRow;
    "phase" Number headed "phase", |row| row.phase;
    "region" Text, |row| row.region.as_str();
    "locations" Count, |row| row.locations;
    "from_ns" Moment headed "from", |row| row.from_ns;
    "to_ns" Moment, |row| row.to_ns;
    "run_ns" Duration headed "longest", |row| row.run_ns;
    "parallel" Share headed "parallel eff., %", |row| row.efficiencies.parallel;
    "load_balance" Share headed "load balance", |row| row.efficiencies.load_balance;
    "communication" Share headed "communication", |row| row.efficiencies.communication;
    "serialisation" Share headed "serialisation", |row| row.efficiencies.serialisation;
    "transfer" Share headed "transfer", |row| row.efficiencies.transfer;
    "late_rank" Number if_any "late rank", |row| row.late_rank;
    "late_ns" Duration if_any "others wait", |row| Some(row.late_ns).filter(|wait_ns| *wait_ns != 0);
    "late_region" Text if_any "in", |row| Some(row.late_region.as_str()).filter(|name| !name.is_empty());
    "is_uncertain" Flag if_any_and_room "losses", |row| row.is_uncertain;
}

impl PhaseRow {
    /// Returns the mean of a factor of phases, weighted by their durations. `None` if no phase has it.
    pub fn mean(phases: &[Self], factor: fn(&Efficiencies) -> Option<f64>) -> Option<f64> {
        let known = phases.iter().filter_map(|phase| {
            let run_ns = phase.run_ns.max(1) as f64;
            Some((factor(&phase.efficiencies)? * run_ns, run_ns))
        });
        let sum = known.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        (sum.1 > 0.0).then(|| sum.0 / sum.1)
    }

    fn of(times: &PhaseTimes, communicates: bool, definitions: &Definitions) -> Self {
        let run = RunTimes {
            ranks: times.locations,
            useful_sum_ns: times.useful_sum_ns,
            useful_max_ns: times.useful_max_ns,
            run_ns: times.run_ns.max(1),
            ideal_run_ns: communicates.then_some(times.ideal_run_ns),
        };
        Self {
            phase: times.number,
            region: region_name(definitions, times.region),
            late_rank: None,
            late_ns: 0,
            late_region: String::new(),
            locations: times.locations,
            from_ns: times.from_ns,
            to_ns: times.to_ns,
            run_ns: times.run_ns,
            efficiencies: Efficiencies::of(&run, EfficiencyModel::Multiplicative),
            is_uncertain: times.is_uncertain,
        }
    }
}

#[derive(Clone, Copy, Default)]
struct WaitSum {
    count: u64,
    wait_ns: i64,
    max_ns: i64,
    wrong_order_ns: i64,
    uncertain_ns: i64,
}

impl WaitSum {
    fn add(&mut self, wait: &WaitState) {
        self.count += u64::from(wait.wait_ns > 0);
        self.wait_ns += wait.wait_ns;
        self.max_ns = self.max_ns.max(wait.wait_ns);
        self.uncertain_ns += wait.uncertain_ns;
    }
}

/// The waits for a rank in a pattern and a region, from the side of the rank.
#[derive(Clone, Default)]
struct DirectSum {
    cost_ns: i64,
    operations: u64,
    /// The last operation.
    last: u64,
    /// The longest wait in it.
    last_ns: i64,
    /// The longest waits of the operations before it.
    late: Histogram,
    max_ns: i64,
    wrong_order_ns: i64,
    avoidable_ns: i64,
    uncertain_ns: i64,
    unexplained_ns: i64,
    /// By location for which they may have waited instead.
    or_ns: FxHashMap<u32, i64>,
}

impl DirectSum {
    fn add(&mut self, wait: &WaitState, cost_ns: i64) {
        if self.last != wait.operation {
            if self.operations != 0 {
                self.late.add(self.last_ns);
            }
            (self.last, self.last_ns) = (wait.operation, 0);
            self.operations += 1;
        }
        self.cost_ns += cost_ns;
        self.last_ns = self.last_ns.max(cost_ns);
        self.max_ns = self.max_ns.max(cost_ns);
        self.uncertain_ns += wait.uncertain_ns;
    }

    fn median_late_ns(&self) -> i64 {
        let mut late = self.late.clone();
        late.add(self.last_ns);
        late.percentile(50).unwrap_or(0)
    }
}

/// What a rank caused.
#[derive(Clone, Default)]
struct CauseSum {
    direct: FxHashMap<(WaitPattern, Option<RegionId>), DirectSum>,
    passed_ns: i64,
    /// By call path.
    extra: FxHashMap<u32, i64>,
    /// Numbers of the locations that waited.
    waiting: FxHashSet<u32>,
}

fn region_name(definitions: &Definitions, region: RegionId) -> String {
    let region = definitions.regions.get(&region);
    region.map_or_else(String::new, |region| {
        definitions.string(region.name).to_owned()
    })
}

fn phase_rows(
    sums: &Sums<'_>,
    times: &[PhaseTimes],
    communicates: bool,
    definitions: &Definitions,
) -> Vec<PhaseRow> {
    let rows = times.iter();
    let rows = rows.map(|phase| PhaseRow::of(phase, communicates, definitions));
    let mut rows: Vec<PhaseRow> = rows.collect();
    name_late(
        &mut rows,
        sums.in_phases.as_deref().unwrap_or_default(),
        definitions,
    );
    rows
}

/// Names in each phase the rank for which others waited longest. A wait is in the last phase that any location has begun before it. If there
/// are more waits than are kept, no rank is named.
fn name_late(phases: &mut [PhaseRow], parts: &[InPhase], definitions: &Definitions) {
    if parts.len() >= MOST_IN_PHASES {
        return;
    }
    let mut sums: BTreeMap<(usize, ProcessId), BTreeMap<Option<RegionId>, i64>> = BTreeMap::new();
    for part in parts {
        let after = phases.partition_point(|phase| phase.from_ns <= part.from_ns);
        let Some(phase) = after.checked_sub(1) else {
            continue;
        };
        let of_rank = sums.entry((phase, part.process)).or_default();
        *of_rank.entry(part.region).or_default() += part.cost_ns;
    }
    for ((phase, process), by_region) in sums {
        let (phase, late_ns) = (&mut phases[phase], by_region.values().sum());
        let longest = by_region.into_iter().max_by_key(|(_, cost_ns)| *cost_ns);
        let region = longest.and_then(|(region, _)| region);
        if late_ns > phase.late_ns {
            phase.late_ns = late_ns;
            phase.late_rank = definitions.ranks.get(&process).map(|rank| rank.rank);
            phase.late_region =
                region.map_or_else(String::new, |region| region_name(definitions, region));
        }
    }
}

/// A part of a wait that is put into a phase.
#[derive(Clone, Copy, Debug)]
struct InPhase {
    from_ns: i64,
    /// The process that caused it.
    process: ProcessId,
    region: Option<RegionId>,
    cost_ns: i64,
}

/// Adds up waits and their causes.
struct Sums<'a> {
    definitions: &'a Definitions,
    communicators: CommunicatorNumbers,
    /// By location: its process.
    process_of: Vec<ProcessId>,
    /// By location: the location that is the cause of what it causes. Without teams, the first of its process.
    unit_of: Vec<u32>,
    /// By location, if there are teams: its name, if its process has several.
    thread_names: Vec<Option<StringId>>,
    /// By pattern, call path, and number of the communicator.
    rows: FxHashMap<(WaitPattern, u32, Option<u32>), WaitSum>,
    /// Time that processes waited, and by how much it may differ.
    waited_ns: FxHashMap<ProcessId, (i64, i64)>,
    causes: FxHashMap<u32, CauseSum>,
    /// By receiver and region: messages that it received in the wrong order.
    wrong_order: FxHashMap<(u32, Option<RegionId>), DirectSum>,
    /// By receiver: what others waited because of that, and the numbers of their locations.
    wrong_order_passed: FxHashMap<u32, (i64, FxHashSet<u32>)>,
    worst: Vec<WaitState>,
    /// Parts of waits that are put into phases, if these are wanted.
    in_phases: Option<Vec<InPhase>>,
    /// What the critical path needs, if it is wanted.
    path: Option<PathObserver>,
}

impl<'a> Sums<'a> {
    fn new(definitions: &'a Definitions) -> Self {
        let locations = definitions.locations.values();
        let process_of: Vec<ProcessId> = locations.map(|location| location.process).collect();
        let has_teams = RegionKinds::of(definitions).has_teams();
        let mut number: FxHashMap<ProcessId, u32> = FxHashMap::default();
        for process in &process_of {
            *number.entry(*process).or_default() += 1;
        }
        let locations = definitions.locations.values().filter(|_| has_teams);
        let thread_names =
            locations.map(|location| (number[&location.process] > 1).then_some(location.name));
        let mut first: FxHashMap<ProcessId, u32> = FxHashMap::default();
        let unit_of = (0..).zip(&process_of).map(|(location, process)| {
            let first = *first.entry(*process).or_insert(location);
            if has_teams { location } else { first }
        });
        Self {
            unit_of: unit_of.collect(),
            thread_names: thread_names.collect(),
            process_of,
            definitions,
            communicators: CommunicatorNumbers::default(),
            rows: FxHashMap::default(),
            waited_ns: FxHashMap::default(),
            causes: FxHashMap::default(),
            wrong_order: FxHashMap::default(),
            wrong_order_passed: FxHashMap::default(),
            worst: Vec::new(),
            in_phases: None,
            path: None,
        }
    }

    fn process(&self, location: u32) -> ProcessId {
        self.process_of[location as usize]
    }

    /// Returns the name of a thread that is a cause or waited. `None` if its rank counts as one.
    fn thread_name(&self, location: u32, definitions: &Definitions) -> Option<String> {
        let name = (*self.thread_names.get(location as usize)?)?;
        Some(definitions.string(name).to_owned())
    }

    /// Returns the sum of waits like this one.
    fn row(&mut self, wait: &WaitState) -> &mut WaitSum {
        let definitions = self.definitions;
        let communicator = wait
            .communicator
            .map(|value| self.communicators.number(definitions, value));
        let key = (wait.pattern, wait.path, communicator);
        self.rows.entry(key).or_default()
    }

    fn unit(&self, location: u32) -> u32 {
        self.unit_of[location as usize]
    }
}

impl WaitObserver for Sums<'_> {
    fn wait(&mut self, wait: &WaitState) {
        self.row(wait).add(wait);
        let process = self.process(wait.location);
        let waited = self.waited_ns.entry(process).or_default();
        waited.0 = waited.0.saturating_add(wait.wait_ns);
        waited.1 = waited.1.saturating_add(wait.uncertain_ns);
        let shortest = self.worst.last().map_or(0, |worst| worst.wait_ns);
        if wait.wait_ns > 0 && (self.worst.len() < MOST_WORST || wait.wait_ns > shortest) {
            let at = self
                .worst
                .partition_point(|worst| worst.wait_ns >= wait.wait_ns);
            self.worst.insert(at, *wait);
            self.worst.truncate(MOST_WORST);
        }
    }

    fn wrong_order(&mut self, wait: &WaitState, more_ns: i64) {
        self.row(wait).wrong_order_ns += more_ns;
        let Some(cause) = wait.cause else { return };
        let unit = self.unit(cause);
        let of = self.causes.entry(unit).or_default();
        let direct = of.direct.entry((wait.pattern, wait.region)).or_default();
        direct.wrong_order_ns += more_ns;
    }

    fn avoidable(&mut self, wait: &WaitState, cost_ns: i64) {
        let receiver = self.unit(wait.location);
        let own = self.wrong_order.entry((receiver, wait.region)).or_default();
        own.add(wait, cost_ns);
        let Some(cause) = wait.cause else { return };
        let unit = self.unit(cause);
        let of = self.causes.entry(unit).or_default();
        let direct = of.direct.entry((wait.pattern, wait.region)).or_default();
        direct.avoidable_ns += cost_ns;
    }

    fn release(&mut self, location: u32, cause: u32, at_ns: i64) {
        if let Some(path) = &mut self.path {
            path.release(location, cause, at_ns);
        }
    }

    fn delay(&mut self, delay: &Delay<'_>) {
        let unit = self.unit(delay.location);
        if delay.is_wrong_order {
            let passed = self.wrong_order_passed.entry(unit).or_default();
            passed.0 += delay.cost_ns;
            passed.1.insert(delay.wait.location);
            return;
        }
        let of = self.causes.entry(unit).or_default();
        of.waiting.insert(delay.wait.location);
        if !delay.is_direct {
            of.passed_ns += delay.cost_ns;
            return;
        }
        let key = (delay.wait.pattern, delay.wait.region);
        let process = self.process_of[delay.location as usize];
        if let Some(parts) = self
            .in_phases
            .as_mut()
            .filter(|parts| parts.len() < MOST_IN_PHASES)
        {
            parts.push(InPhase {
                from_ns: delay.wait.from_ns,
                process,
                region: key.1,
                cost_ns: delay.cost_ns,
            });
        }
        let direct = of.direct.entry(key).or_default();
        direct.add(delay.wait, delay.cost_ns);
        let explained_ns: i64 = delay.extra.iter().map(|of| of.1).sum();
        direct.unexplained_ns += delay.cost_ns - explained_ns;
        if let Some(other) = delay.wait.or_cause {
            *direct.or_ns.entry(other).or_default() += delay.cost_ns;
        }
        for (path, cost_ns) in delay.extra {
            *of.extra.entry(*path).or_default() += cost_ns;
        }
    }
}

/// Finds the lost time of a run, in the query's window. `None` if the definitions are not those of a whole trace. If waits are not
/// known, because the trace lacks calls of MPI, there is nothing but that and the time.
///
/// The useful time of a rank is the time between its first and its last event outside of calls of MPI in which it was not
/// idle (see [`RegionKinds`](crate::RegionKinds)). The critical path is that of the whole run in the window, whatever else
/// the query says.
///
/// # Errors
/// If the storage fails, or if the critical path is wanted and the directory for temporary files takes no file.
pub fn lost_time(
    reader: &Reader,
    query: &Query,
    options: &LostTimeOptions,
) -> Result<Option<(LostTime, ReadSummary)>> {
    let definitions = reader.definitions();
    let mpi = MpiCoverage::of(definitions);
    if !mpi.knows_waits() {
        let window = bounded(reader, query.window());
        let lost = LostTime {
            from_ns: window.from_ns,
            to_ns: window.to_ns.min(reader.extent().end_ns).max(window.from_ns),
            mpi,
            ..LostTime::default()
        };
        return Ok(Some((lost, reader.summary()?)));
    }
    let new_sums = || {
        let mut sums = Sums::new(definitions);
        sums.in_phases = (!options.phases.is_empty()).then(Vec::new);
        if options.critical_path {
            sums.path = Some(PathObserver::new()?);
        }
        Ok(sums)
    };
    let Some((mut sums, times)) = wait_states(reader, query, &options.phases, new_sums)? else {
        return Ok(None);
    };
    let observer = sums.path.take();
    let (event_loop, thread_times) = match works_alone(&sums, &times) {
        true => (event_loop(reader, query)?, thread_times(reader, query)?),
        false => (None, Vec::new()),
    };
    let mut lost = of_sums(&sums, &times, definitions, query.window(), thread_times);
    lost.event_loop = event_loop;
    lost.hybrid = hybrid_efficiencies(reader, query, lost.to_ns - lost.from_ns)?;
    lost.mpi = mpi;
    if !lost.causes.is_empty() {
        name_threads_work(&mut lost.causes, &work_of_others(reader, query)?);
        name_sampled_threads(reader, query, &mut lost.causes)?;
    }
    if let Some(observer) = observer {
        lost.critical_path = Some(path_of(reader, query.window(), observer, &times)?);
    }
    Ok(Some((lost, times.summary)))
}

fn of_sums(
    sums: &Sums<'_>,
    times: &CommunicationTimes,
    definitions: &Definitions,
    window: Window,
    thread_times: Vec<ThreadTimes>,
) -> LostTime {
    let spans = || times.locations.iter().filter_map(|times| times.span_ns);
    let from_ns = spans()
        .map(|span| span.0)
        .min()
        .unwrap_or(0)
        .max(window.from_ns);
    let to_ns = spans()
        .map(|span| span.1)
        .max()
        .unwrap_or(0)
        .min(window.to_ns)
        .max(from_ns);
    let run_ns = to_ns - from_ns;
    let mut threads = counted_threads(sums, times, window, run_ns, &thread_times);
    // What ranks have started is none of them.
    let helpers = definitions.helpers();
    threads.retain(|thread| !helpers.contains_key(&thread.process));
    let hidden_ns = by_process(
        sums,
        (0..).zip(times.locations.iter().map(|of| of.hidden_ns)),
    );
    let all_ns = run_ns as f64 * threads.len() as f64;
    let share = |ns: i64| match all_ns > 0.0 {
        true => ns as f64 / all_ns,
        false => 0.0,
    };
    let causes = cause_rows(sums, times, definitions, share);
    let mut caused_ns: FxHashMap<u32, i64> = FxHashMap::default();
    for row in &causes {
        *caused_ns.entry(row.rank).or_default() += row.cost_ns;
    }
    let mut ranks = Vec::new();
    for own in threads.chunk_by(|one, other| one.process == other.process) {
        let (process, number) = (own[0].process, own.len() as i64);
        let mean = |of: fn(&Thread) -> i64| own.iter().map(of).sum::<i64>() / number;
        let (waited_ns, uncertain_ns) = sums.waited_ns.get(&process).copied().unwrap_or_default();
        let rank = definitions.rank_of(process);
        let hidden_ns = hidden_ns.get(&process).copied().unwrap_or(0);
        ranks.push(RankTimes {
            rank,
            useful_ns: mean(|thread| thread.useful_ns),
            mpi_ns: mean(|thread| thread.mpi_ns),
            idle_ns: mean(|thread| thread.idle_ns),
            wait_ns: waited_ns / number,
            uncertain_ns: uncertain_ns.saturating_add(hidden_ns) / number,
            polling_ns: mean(|thread| thread.polling_ns),
            caused_ns: caused_ns.get(&rank).copied().unwrap_or(0) / number,
        });
    }
    ranks.sort_by_key(|times| times.rank);
    let useful_ns: Vec<i64> = threads.iter().map(|thread| thread.useful_ns).collect();
    let ideal_end_ns = threads.iter().map(|thread| thread.ideal_end_ns).max();
    // Where nothing communicates, no network makes a difference.
    let communicates = times.locations.iter().any(|of| of.mpi_ns > 0);
    let ideal_ns = ideal_end_ns.filter(|_| communicates);
    let ideal_ns = ideal_ns.map(|end_ns| end_ns - from_ns);
    let run_times = RunTimes::of(&useful_ns, run_ns, ideal_ns);
    let wait_states = wait_state_rows(sums, times, definitions, share);
    let is_in_mpi = |row: &&WaitStateRow| row.pattern.is_some_and(WaitPattern::is_of_mpi);
    let in_mpi = wait_states.iter().filter(is_in_mpi);
    let waited_ns: i64 = in_mpi.map(|row| row.wait_ns).sum();
    let mpi_ns: i64 = threads.iter().map(|thread| thread.mpi_ns).sum();
    let models = [EfficiencyModel::Multiplicative, EfficiencyModel::Additive];
    let efficiencies = run_times.iter();
    let efficiencies =
        efficiencies.flat_map(|times| models.map(|model| Efficiencies::of(times, model)));
    let processes = threads.iter().map(|thread| thread.process);
    LostTime {
        from_ns,
        to_ns,
        efficiencies: efficiencies.collect(),
        threads: threads.len() as u64,
        useful_ns,
        other_mpi_ns: (mpi_ns - waited_ns).max(0),
        wait_states,
        causes,
        worst: worst_waits(sums, times, definitions),
        messages: times.messages,
        unfinished: times.locations.iter().filter(|of| of.is_unfinished).count() as u64,
        phases: phase_rows(sums, &times.phases, communicates, definitions),
        thread_times,
        phases_left_out: times.phases_left_out,
        critical_path: None,
        oversubscription: Oversubscription::of(definitions, processes),
        mpi: MpiCoverage::default(),
        event_loop: None,
        hybrid: None,
        ranks,
    }
}

/// A thread whose times count, nanoseconds.
struct Thread {
    process: ProcessId,
    useful_ns: i64,
    mpi_ns: i64,
    idle_ns: i64,
    polling_ns: i64,
    /// When it would end on an ideal network.
    ideal_end_ns: i64,
}

/// Returns whether the locations are of a single rank, and none communicates or works in a team.
fn works_alone(sums: &Sums<'_>, times: &CommunicationTimes) -> bool {
    let helpers = sums.definitions.helpers();
    let each = times.locations.iter().zip(&sums.process_of);
    let mut counted =
        each.filter(|(of, process)| of.span_ns.is_some() && !helpers.contains_key(process));
    let Some((first, alone)) = counted.next() else {
        return false;
    };
    first.calls == 0 && counted.all(|(of, process)| of.calls == 0 && process == alone)
}

/// Returns the threads whose times count: those that communicate or work in teams. If a process has none, all of its
/// threads together count as one, with their mean times; of a single rank, those of `thread_times` count, if there are any.
fn counted_threads(
    sums: &Sums<'_>,
    times: &CommunicationTimes,
    window: Window,
    run_ns: i64,
    thread_times: &[ThreadTimes],
) -> Vec<Thread> {
    if !thread_times.is_empty() {
        let numbers: BTreeMap<LocationId, usize> = sums
            .definitions
            .locations
            .keys()
            .copied()
            .zip(0..)
            .collect();
        let threads = thread_times.iter().map(|thread| {
            let number = numbers[&thread.location];
            Thread {
                process: sums.process_of[number],
                useful_ns: thread.useful_ns,
                mpi_ns: 0,
                idle_ns: run_ns - thread.useful_ns,
                polling_ns: 0,
                ideal_end_ns: window.to_ns,
            }
        });
        return threads.collect();
    }
    let mut seen = FxHashSet::default();
    let mut by_process: BTreeMap<ProcessId, (bool, Vec<Thread>)> = BTreeMap::new();
    for (times, process) in times.locations.iter().zip(&sums.process_of) {
        let is_first = seen.insert(*process);
        let Some((first_ns, last_ns)) = times.span_ns else {
            continue;
        };
        let mut thread = Thread {
            process: *process,
            useful_ns: (window.clip(first_ns, last_ns) - times.mpi_ns - times.idle_ns).max(0),
            mpi_ns: times.mpi_ns,
            idle_ns: times.idle_ns,
            polling_ns: times.polling_ns,
            ideal_end_ns: last_ns.min(window.to_ns) - times.saved_ns,
        };
        if let Some(in_regions_ns) = times.in_regions_ns.filter(|_| !is_first) {
            thread.useful_ns = in_regions_ns - times.mpi_ns - times.idle_ns;
            thread.idle_ns = run_ns - thread.useful_ns - thread.mpi_ns;
        }
        let of = by_process.entry(*process).or_default();
        if times.calls != 0 && !std::mem::replace(&mut of.0, true) {
            // Threads that do not communicate are part of their rank's work, whatever they do.
            of.1.clear();
        }
        if times.calls != 0 || !of.0 {
            of.1.push(thread);
        }
    }
    let mut threads = Vec::new();
    for (communicates, own) in by_process.into_values() {
        let number = own.len() as i64;
        let mean = |of: fn(&Thread) -> i64| own.iter().map(of).sum::<i64>() / number;
        match own.iter().map(|thread| thread.ideal_end_ns).max() {
            Some(ideal_end_ns) if !communicates => threads.push(Thread {
                process: own[0].process,
                useful_ns: mean(|thread| thread.useful_ns),
                mpi_ns: mean(|thread| thread.mpi_ns),
                idle_ns: mean(|thread| thread.idle_ns),
                polling_ns: mean(|thread| thread.polling_ns),
                ideal_end_ns,
            }),
            _ => threads.extend(own),
        }
    }
    threads
}

/// Adds up times of locations by their process.
fn by_process(
    sums: &Sums<'_>,
    times: impl Iterator<Item = (u32, i64)>,
) -> FxHashMap<ProcessId, i64> {
    let mut by = FxHashMap::default();
    for (location, ns) in times {
        let sum: &mut i64 = by.entry(sums.process(location)).or_default();
        *sum = sum.saturating_add(ns);
    }
    by
}

fn wait_state_rows(
    sums: &Sums<'_>,
    times: &CommunicationTimes,
    definitions: &Definitions,
    share: impl Fn(i64) -> f64,
) -> Vec<WaitStateRow> {
    let names = sums.communicators.names();
    let rows = sums.rows.iter().map(|(key, sum)| {
        let (pattern, path, communicator) = *key;
        WaitStateRow {
            pattern: Some(pattern),
            path: times.paths.names(path, definitions),
            communicator: communicator.map(|number| names[number as usize].to_owned()),
            count: sum.count,
            wait_ns: sum.wait_ns,
            max_ns: sum.max_ns,
            wrong_order_ns: sum.wrong_order_ns,
            uncertain_ns: sum.uncertain_ns,
            share: share(sum.wait_ns),
        }
    });
    let mut rows: Vec<WaitStateRow> = rows.collect();
    rows.sort_by(|a, b| {
        let key = |row: &WaitStateRow| (Reverse(row.wait_ns), row.pattern);
        let names = |row: &WaitStateRow| (row.path.clone(), row.communicator.clone());
        key(a).cmp(&key(b)).then_with(|| names(a).cmp(&names(b)))
    });
    rows
}

/// Continues the paths of extra work in which threads mostly waited for others of their rank: with what these did.
fn name_threads_work(causes: &mut [CauseRow], of_others: &BTreeMap<(u32, String), String>) {
    for cause in causes {
        for extra in &mut cause.extra {
            let last = extra.path.last().cloned().unwrap_or_default();
            extra
                .path
                .extend(of_others.get(&(cause.rank, last)).cloned());
        }
    }
}

fn cause_rows(
    sums: &Sums<'_>,
    times: &CommunicationTimes,
    definitions: &Definitions,
    share: impl Fn(i64) -> f64 + Copy,
) -> Vec<CauseRow> {
    let mut rows = Vec::new();
    let calls = call_counts(sums, times);
    let unit_of = |location: u32| sums.unit(location);
    let work = Work::of(&unit_of, times, definitions);
    for (unit, of) in &sums.causes {
        let main = of.direct.iter().max_by_key(|((pattern, region), direct)| {
            (direct.cost_ns, Reverse((*pattern, *region)))
        });
        let Some(((pattern, region), main)) = main else {
            continue;
        };
        let each = || of.direct.values();
        let direct_ns = each().map(|direct| direct.cost_ns - direct.avoidable_ns);
        let direct_ns: i64 = direct_ns.sum::<i64>().max(0);
        let cost_ns = direct_ns + of.passed_ns;
        if cost_ns == 0 {
            continue;
        }
        // Without the parts that the receivers' order of messages made necessary.
        let extra_ns: i128 = of.extra.values().map(|cost_ns| i128::from(*cost_ns)).sum();
        let most_ns = extra_ns.min(direct_ns.into());
        let part = |cost_ns: i64| i128::from(cost_ns) * most_ns / extra_ns.max(1);
        let process = sums.process(*unit);
        let period_ns = sampling_period_ns(definitions, process);
        let is_large = share(cost_ns) >= LEAST_SHARE;
        let most_callers = if is_large { MOST_CALLERS } else { 1 };
        let places = work.places(*unit, &of.extra, period_ns.unwrap_or(0), most_callers);
        let is_like_peers = places.first().is_some_and(|place| !place.is_longer);
        let extra = places.into_iter().map(|place| ExtraWork {
            distinct: place.distinct,
            path: place.names,
            cost_ns: part(place.cost_ns) as i64,
            line: place.line,
            sampling_error_ns: part(place.error_ns) as i64,
            may_wait_for_threads: place.may_wait_for_threads,
        });
        let waiting = of.waiting.iter().map(|location| sums.process(*location));
        let waiting: FxHashSet<ProcessId> = waiting.collect();
        rows.push(CauseRow {
            rank: definitions.rank_of(sums.process(*unit)),
            thread: sums.thread_name(*unit, definitions),
            pattern: *pattern,
            region: region.map_or_else(String::new, |region| definitions.region_name(region)),
            operations: main.operations,
            calls: region.map_or(0, |region| {
                calls.get(&(*unit, region)).copied().unwrap_or(0)
            }),
            waiting_ranks: waiting.len() as u64,
            median_late_ns: main.median_late_ns(),
            max_late_ns: main.max_ns,
            cost_ns,
            direct_ns,
            wrong_order_ns: each().map(|direct| direct.wrong_order_ns).sum(),
            uncertain_ns: each()
                .map(|direct| direct.uncertain_ns.saturating_add(direct.unexplained_ns))
                .sum(),
            unexplained_ns: each().map(|direct| direct.unexplained_ns).sum(),
            or_rank: or_location(of, direct_ns)
                .map(|location| definitions.rank_of(sums.process(location))),
            is_like_peers,
            share: share(cost_ns),
            extra: extra.collect(),
            is_sampled: period_ns.is_some(),
        });
    }
    rows.extend(wrong_order_rows(sums, &calls, definitions, share));
    rows.sort_by(|a, b| {
        let key = |row: &CauseRow| (Reverse(row.cost_ns), row.rank);
        key(a).cmp(&key(b)).then_with(|| a.thread.cmp(&b.thread))
    });
    rows
}

/// Returns the location for which others may have waited instead, if that is at least half of the direct waits.
fn or_location(of: &CauseSum, direct_ns: i64) -> Option<u32> {
    let mut sums: FxHashMap<u32, i64> = FxHashMap::default();
    for (location, ns) in of.direct.values().flat_map(|direct| &direct.or_ns) {
        *sums.entry(*location).or_default() += ns;
    }
    let most = sums
        .into_iter()
        .max_by_key(|(location, ns)| (*ns, Reverse(*location)))?;
    (2 * most.1 >= direct_ns).then_some(most.0)
}

/// Returns the rows of ranks that received in the wrong order. What others waited because of that is in the row with the
/// largest cost of the rank.
fn wrong_order_rows(
    sums: &Sums<'_>,
    calls: &CallCounts,
    definitions: &Definitions,
    share: impl Fn(i64) -> f64,
) -> Vec<CauseRow> {
    let mut rows = Vec::new();
    for ((unit, region), sum) in &sums.wrong_order {
        let own = sums
            .wrong_order
            .iter()
            .filter(|((other, _), _)| other == unit);
        let largest = own.max_by_key(|((_, region), sum)| (sum.cost_ns, Reverse(*region)));
        let is_largest = largest.is_some_and(|((_, largest), _)| largest == region);
        let passed = sums.wrong_order_passed.get(unit).filter(|_| is_largest);
        let cost_ns = sum.cost_ns + passed.map_or(0, |passed| passed.0);
        let mut waiting = FxHashSet::from_iter([sums.process(*unit)]);
        let others = passed.into_iter().flat_map(|passed| &passed.1);
        waiting.extend(others.map(|location| sums.process(*location)));
        rows.push(CauseRow {
            rank: definitions.rank_of(sums.process(*unit)),
            thread: sums.thread_name(*unit, definitions),
            pattern: WaitPattern::WrongOrder,
            region: region.map_or_else(String::new, |region| definitions.region_name(region)),
            operations: sum.operations,
            calls: region.map_or(0, |region| {
                calls.get(&(*unit, region)).copied().unwrap_or(0)
            }),
            waiting_ranks: waiting.len() as u64,
            median_late_ns: sum.median_late_ns(),
            max_late_ns: sum.max_ns,
            cost_ns,
            direct_ns: sum.cost_ns,
            wrong_order_ns: sum.cost_ns,
            uncertain_ns: sum.uncertain_ns,
            unexplained_ns: 0,
            or_rank: None,
            is_like_peers: false,
            share: share(cost_ns),
            extra: Vec::new(),
            is_sampled: false,
        });
    }
    rows
}

/// Number of calls in a region in which a cause may have waited, by cause and region.
type CallCounts = FxHashMap<(u32, RegionId), u64>;

fn call_counts(sums: &Sums<'_>, times: &CommunicationTimes) -> CallCounts {
    let mut counts = CallCounts::default();
    for ((location, region), calls) in &times.calls {
        *counts.entry((sums.unit(*location), *region)).or_default() += calls;
    }
    counts
}

fn worst_waits(
    sums: &Sums<'_>,
    times: &CommunicationTimes,
    definitions: &Definitions,
) -> Vec<WorstWait> {
    let rank = |location: u32| definitions.rank_of(sums.process(location));
    let worst = sums.worst.iter().map(|wait| WorstWait {
        pattern: wait.pattern,
        rank: rank(wait.location),
        thread: sums.thread_name(wait.location, definitions),
        for_rank: wait.cause.map(rank),
        for_thread: wait
            .cause
            .and_then(|cause| sums.thread_name(cause, definitions)),
        path: times.paths.names(wait.path, definitions),
        communicator: wait
            .communicator
            .map(|(reference, value)| communicator_name(definitions, reference, value.into())),
        from_ns: wait.from_ns,
        wait_ns: wait.wait_ns,
    });
    worst.collect()
}
