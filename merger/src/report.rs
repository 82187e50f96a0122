//! What a merge reports: input, output, losses, and the accuracy of clocks.

use annals_format::names::{self, property};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use annals_format::{
    BootId, ClockError, ClockKind, Definitions, Ended, ErrorKnot, ProcessId, Rank, Relation,
    SourceOrder, StreamTotals, TraceLoss, UNBOUNDED,
};
use serde::Serialize;

use crate::clocks::ClockFit;
use crate::clocks::hosts::{Host, Hosts};
use crate::input::find::RejectedInput;
use crate::input::recording::{InputRecording, MissingFile};
use crate::input::stream::StreamFindings;
use crate::input::trace::InputTrace;
use crate::messages::causality::CausalityReport;

/// A part of a file that could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DamageReport {
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it covers.
    pub length: u64,
    /// The problem.
    pub what: String,
}

/// One recording, in a separate file or in the trace of an earlier merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct InputReport {
    /// The file.
    pub path: PathBuf,
    /// The live file that was read with it.
    pub live_path: Option<PathBuf>,
    /// The live file that should be there, and is not: how many events were in it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_live_file: Option<MissingFile>,
    /// Its identity.
    pub recording_id: String,
    /// The rank of its process.
    pub rank: u32,
    /// Whether the merger assigned the rank.
    pub rank_is_assigned: bool,
    /// How the process ended: `finished`, `killed`, `running`, `truncated`, `storage-failed`.
    #[serde(serialize_with = "by_name")]
    pub ended: Ended,
    /// The error code that it passed to MPI_Abort; `None` means that it did not call that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_code: Option<String>,
    /// The function that MPI requires before a process exits, when it exited without: `MPI_Finalize` or
    /// `MPI_Session_finalize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_finalize: Option<String>,
    /// How the system reported its process's end: a signal's name, or `exit` and the code; `None` means that the
    /// program that started the process has not noted it. See [`names::property::PROCESS_END`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_end: Option<String>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Whether the file has a whole footer.
    pub has_footer: bool,
    /// Events in streams whose definition is lost: they cannot be placed.
    pub unplaced: u64,
    /// Parts of the file that could not be used.
    pub damage: Vec<DamageReport>,
}

impl InputReport {
    pub(crate) fn new(
        input: &InputRecording,
        definitions: &Definitions,
        process: ProcessId,
        unplaced: u64,
        said: SaidOfEnd,
    ) -> Self {
        let recording = &input.recording;
        let rank = definitions.ranks.get(&process);
        let problems = recording.problems.iter();
        Self {
            path: input.path.clone(),
            live_path: input.live_path.clone(),
            missing_live_file: input.missing_live_file(definitions, process),
            recording_id: recording.header.recording_id.to_string(),
            rank: rank.map_or(0, |rank| rank.rank),
            rank_is_assigned: rank.is_some_and(|rank| rank.is_assigned),
            ended: recording.ended,
            abort_code: said.abort_code,
            missing_finalize: said.missing_finalize,
            process_end: said.process_end,
            file_bytes: input.file_bytes,
            has_footer: recording.has_footer,
            unplaced,
            damage: problems
                .map(|problem| DamageReport {
                    offset: problem.offset,
                    length: problem.length,
                    what: problem.what.clone(),
                })
                .collect(),
        }
    }
}

impl InputReport {
    /// Reports a process of an earlier merge's trace. Damage of the file is reported with its first process.
    pub(crate) fn of_trace(
        input: &InputTrace,
        definitions: &Definitions,
        process: ProcessId,
        is_first: bool,
        unplaced: u64,
        said: SaidOfEnd,
    ) -> Self {
        let rank = definitions.ranks.get(&process);
        let id = definitions.processes.get(&process).map(|p| p.recording_id);
        let end = definitions.process_ends.get(&process);
        let problems = input.trace.problems.iter().filter(|_| is_first);
        Self {
            path: input.path.clone(),
            live_path: None,
            missing_live_file: None,
            recording_id: id.map_or_else(String::new, |id| id.to_string()),
            rank: rank.map_or(0, |rank| rank.rank),
            rank_is_assigned: rank.is_some_and(|rank| rank.is_assigned),
            ended: end.map_or(Ended::Truncated, |end| end.ended),
            abort_code: said.abort_code,
            missing_finalize: said.missing_finalize,
            process_end: said.process_end,
            file_bytes: input.file_bytes,
            has_footer: input.trace.has_footer,
            unplaced,
            damage: problems
                .map(|problem| DamageReport {
                    offset: problem.offset,
                    length: problem.length,
                    what: problem.what.clone(),
                })
                .collect(),
        }
    }
}

fn by_name<S: serde::Serializer>(ended: &Ended, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(ended.name())
}

/// The end of a process by its properties.
#[derive(Clone, Default, Debug)]
pub(crate) struct SaidOfEnd {
    /// The code that it passed to MPI_Abort.
    abort_code: Option<String>,
    /// The function that it exited without.
    missing_finalize: Option<String>,
    /// The end as the system reported it.
    process_end: Option<String>,
}

/// Returns what is said of processes' ends.
pub(crate) fn ends(definitions: &Definitions) -> BTreeMap<ProcessId, SaidOfEnd> {
    let mut ends: BTreeMap<ProcessId, SaidOfEnd> = BTreeMap::new();
    for property in &definitions.properties {
        let said = match definitions.string(property.key) {
            names::property::MPI_ABORT => &mut ends.entry(property.process).or_default().abort_code,
            names::property::MPI_MISSING_FINALIZE => {
                &mut ends.entry(property.process).or_default().missing_finalize
            }
            names::property::PROCESS_END => {
                &mut ends.entry(property.process).or_default().process_end
            }
            _ => continue,
        };
        // Of several, the first counts.
        said.get_or_insert_with(|| definitions.string(property.value).to_owned());
    }
    ends
}

/// One stream: `in_ = out + filtered + skipped + truncated`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamReport {
    /// Rank of its process.
    pub rank: u32,
    /// Its source.
    pub source: String,
    /// Its location; `None` for losses that had no stream.
    pub location: Option<String>,
    /// The source's promise about the order of its events.
    pub ordering: &'static str,
    /// Events in the recording.
    #[serde(rename = "in")]
    pub in_: u64,
    /// Events in the merged order.
    pub out: u64,
    /// Events left out by a filter.
    pub filtered: u64,
    /// Events that could not be decoded.
    pub skipped: u64,
    /// Events beyond the end of a file that ends early.
    pub truncated: u64,
    /// Events the recorder dropped.
    pub dropped: u64,
    /// Events whose tick lies below an earlier one's.
    pub inversions: u64,
    /// The largest distance by which one does, ticks.
    pub largest_lateness_ticks: u64,
    /// Whether the source promised order and did not keep it.
    pub broke_promise: bool,
    /// Events moved up to the time of the one before.
    pub clamped: u64,
    /// The largest such move, nanoseconds.
    pub largest_clamp_ns: u64,
    /// Events whose clock wraps the references do not decide.
    pub ambiguous: u64,
    /// The error of the first chunk that could not be decoded.
    pub first_error: Option<String>,
    /// Events by which counts and chunks disagree; 0 when there is no difference.
    pub miscounted: u64,
    /// Whether raised = recorded + dropped + suppressed for every event type.
    pub is_balanced: bool,
}

impl StreamReport {
    pub(crate) fn new(
        definitions: &Definitions,
        totals: &StreamTotals,
        findings: &StreamFindings,
        miscounted: u64,
    ) -> Self {
        let stream = definitions.streams.get(&totals.stream);
        let source = stream.and_then(|stream| definitions.sources.get(&stream.source));
        let rank = source.and_then(|source| definitions.ranks.get(&source.process));
        let location = stream.and_then(|stream| stream.location);
        let location = location.and_then(|id| definitions.locations.get(&id));
        let ordering = source.map_or(SourceOrder::Ordered, |source| source.ordering);
        let sum = |count: fn(&annals_format::TypeTotals) -> u64| {
            totals.rows.iter().map(count).fold(0, u64::saturating_add)
        };
        Self {
            rank: rank.map_or(0, |rank| rank.rank),
            source: source.map_or_else(String::new, |s| definitions.string(s.name).to_owned()),
            location: location.map(|l| definitions.string(l.name).to_owned()),
            ordering: ordering.name(),
            in_: sum(|row| row.recorded),
            out: findings.present.iter().map(|(_, count)| count).sum(),
            filtered: sum(|row| row.filtered),
            skipped: sum(|row| row.skipped),
            truncated: sum(|row| row.truncated),
            dropped: sum(annals_format::TypeTotals::dropped_sum),
            inversions: totals.inversions,
            largest_lateness_ticks: totals.largest_lateness,
            broke_promise: ordering == SourceOrder::Ordered && totals.inversions != 0,
            clamped: findings.clamped,
            largest_clamp_ns: findings.largest_clamp_ns,
            ambiguous: findings.ambiguous,
            first_error: findings.first_error.clone(),
            miscounted,
            is_balanced: totals
                .rows
                .iter()
                .all(annals_format::TypeTotals::is_balanced),
        }
    }
}

/// How well one clock is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ClockReport {
    /// Rank of its process.
    pub rank: u32,
    /// Its name.
    pub name: String,
    /// How it is read.
    pub kind: &'static str,
    /// Calibration points used.
    pub points: usize,
    /// Bound of the error at the points, nanoseconds; null when it has none.
    pub error_ns: Option<u64>,
    /// Largest distance of a point from the fit, nanoseconds.
    pub largest_residual_ns: u64,
    /// How often it was set while it ran.
    pub steps: usize,
    /// The farthest that it was, nanoseconds.
    pub largest_step_ns: u64,
    /// How its host was related to the axis: `same-host`, `measured`, `file`, `wall-clock`, `messages`, `collectives`.
    pub relation: &'static str,
    /// Bound of its events' error when its process started, nanoseconds; null when there is none.
    pub bound_start_ns: Option<u64>,
    /// Bound of its events' error when its process ended, nanoseconds; null when there is none.
    pub bound_end_ns: Option<u64>,
    /// The largest in between.
    pub bound_max_ns: Option<u64>,
}

/// How one host's reference clock became the axis.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its boot id.
    pub boot_id: String,
    /// `same-host`: the axis is its clock; `measured`; `file`; `wall-clock`; `messages`; `collectives`.
    pub relation: &'static str,
    /// The host that it was related through; null for the axis.
    pub through: Option<String>,
    /// Measurements that were used.
    pub points: usize,
    /// Largest distance of one from the line through the best, nanoseconds.
    pub largest_residual_ns: u64,
    /// Changes of its wall clock less its reference clock: steps, nanoseconds.
    pub wall_clock_steps_ns: u64,
    /// Bound of the error at its first known moment, nanoseconds; null when there is none.
    pub bound_start_ns: Option<u64>,
    /// Bound of the error at its last known moment, nanoseconds; null when there is none.
    pub bound_end_ns: Option<u64>,
    /// The largest in between.
    pub bound_max_ns: Option<u64>,
}

impl HostReport {
    /// Replaces the relation of a host whose processes are only in traces by that of the earlier
    /// merge.
    fn tell_traces(&mut self, errors: &[&ClockError]) {
        let Some(first) = errors.first() else { return };
        self.relation = first.relation.name();
        (self.points, self.largest_residual_ns, self.through) = (0, 0, None);
        let bound = |knot: Option<&ErrorKnot>| {
            let bound = knot.map(|knot| knot.host_ns);
            bound.filter(|bound| *bound != UNBOUNDED)
        };
        let largest = first.knots.iter().max_by_key(|knot| knot.host_ns);
        self.bound_start_ns = bound(first.knots.first());
        self.bound_end_ns = bound(first.knots.last());
        self.bound_max_ns = bound(largest);
    }

    pub(crate) fn of(hosts: &Hosts, definitions: &Definitions, in_traces: &Boots) -> Vec<Self> {
        let mut errors: BTreeMap<BootId, Vec<&ClockError>> = BTreeMap::new();
        for error in definitions.clock_errors.values() {
            let clock = definitions.clocks.get(&error.clock);
            let process = clock.and_then(|clock| definitions.processes.get(&clock.process));
            if let Some(process) = process.filter(|p| in_traces.contains(&p.boot_id)) {
                errors.entry(process.boot_id).or_default().push(error);
            }
        }
        let each = hosts.all().map(|host| {
            let mut report = Self::of_host(host, hosts);
            if let Some(errors) = errors.get(&host.facts.boot_id) {
                report.tell_traces(errors);
            }
            report
        });
        each.collect()
    }

    fn of_host(host: &Host, hosts: &Hosts) -> Self {
        let (start, end) = host.facts.span;
        let bound = |at: i64| Some(host.error_at(at)).filter(|error| *error != UNBOUNDED);
        let corners = host.corners().into_iter();
        let within = corners.filter(|corner| (start..=end).contains(corner));
        let largest = within.chain([start, end]).map(|at| host.error_at(at)).max();
        let (points, largest_residual_ns) = host.measurements();
        let through = host.through.and_then(|boot_id| hosts.get(boot_id));
        Self {
            name: host.facts.name.clone(),
            boot_id: host.facts.boot_id.to_string(),
            relation: host.relation.name(),
            through: through.map(|host| host.facts.name.clone()),
            points,
            largest_residual_ns,
            wall_clock_steps_ns: host.facts.unix_step_ns,
            bound_start_ns: bound(start),
            bound_end_ns: bound(end),
            bound_max_ns: largest.filter(|error| *error != UNBOUNDED),
        }
    }
}

/// Hosts, by their boots, of which only traces have processes.
pub(crate) type Boots = BTreeSet<BootId>;

/// Sums over all streams.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Sums {
    /// Raised.
    pub raised: u64,
    /// Recorded.
    pub recorded: u64,
    /// Dropped by recorders.
    pub dropped: u64,
    /// Left out because the user asked for less.
    pub suppressed: u64,
    /// Could not be decoded.
    pub skipped: u64,
    /// Beyond an early end.
    pub truncated: u64,
    /// Left out by a filter.
    pub filtered: u64,
    /// Whether more may have been raised than could be counted.
    pub raised_is_lower_bound: bool,
}

impl Sums {
    /// Returns the sums of these totals.
    pub fn of(totals: &[StreamTotals]) -> Self {
        let mut sums = Self::default();
        for row in totals.iter().flat_map(|totals| &totals.rows) {
            sums.raised = sums.raised.saturating_add(row.raised);
            sums.recorded = sums.recorded.saturating_add(row.recorded);
            sums.dropped = sums.dropped.saturating_add(row.dropped_sum());
            sums.suppressed = sums.suppressed.saturating_add(row.suppressed);
            sums.skipped = sums.skipped.saturating_add(row.skipped);
            sums.truncated = sums.truncated.saturating_add(row.truncated);
            sums.filtered = sums.filtered.saturating_add(row.filtered);
            sums.raised_is_lower_bound |= row.raised_is_lower_bound;
        }
        sums
    }

    /// Returns the number of events that readers find.
    pub const fn present(&self) -> u64 {
        self.recorded
            .saturating_sub(self.skipped)
            .saturating_sub(self.truncated)
            .saturating_sub(self.filtered)
    }
}

/// Everything a merge has to say; `--report` writes it as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Recordings, in merge order.
    pub inputs: Vec<InputReport>,
    /// Files that could not be used at all.
    pub rejected: Vec<DamageOfInput>,
    /// Files that hold a recording given already.
    pub duplicates: Vec<PathBuf>,
    /// Ranks of which there is no recording.
    pub missing_ranks: Vec<u32>,
    /// Ranks of which there are several recordings: the rank was started again, or another run's is here.
    pub shared_ranks: Vec<SharedRank>,
    /// Processes that are no ranks: ranks have started them, or the launcher has in a rank's place.
    pub helpers: Vec<HelperReport>,
    /// Worlds of runs that have several: a launcher was started several times, or programs spawned others.
    pub worlds: Vec<WorldReport>,
    /// Number of hosts.
    pub hosts: usize,
    /// How their clocks are related.
    pub host_clocks: Vec<HostReport>,
    /// Streams.
    pub streams: Vec<StreamReport>,
    /// Clocks.
    pub clocks: Vec<ClockReport>,
    /// The check of the order by messages; null without messages, or when they were not checked.
    pub causality: Option<CausalityReport>,
    /// Sums over all streams.
    pub totals: Sums,
    /// Number of loss records.
    pub losses: usize,
    /// Whether nothing was skipped or truncated and no rank is missing.
    pub complete: bool,
    /// What an OTF2 archive does not have; `None` means that a trace was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveReport>,
}

/// What an OTF2 archive does not have of the events that it was made of.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct ArchiveReport {
    /// Events that are left out, by type: OTF2 has no record of them.
    pub left_out: BTreeMap<String, u64>,
    /// Events of messages and collectives on other threads than the one that the archive names for their rank: OTF2 has
    /// one location for each rank.
    pub at_other_locations: u64,
    /// Communicators in which the archive has all ranks, although only some are: which is unknown.
    pub communicators_of_all: u64,
}

/// A process of a rank that has several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankProcess {
    /// Identity of its recording.
    pub recording_id: String,
    /// The run that it belongs to.
    pub run: String,
    /// When it was started, nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
}

/// A world of a run that has several: its ranks count from 0, and from `first_rank` in the trace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WorldReport {
    /// The run.
    pub run: String,
    /// The launcher's name for it; empty for processes without a world.
    pub world: String,
    /// The rank in the trace that its rank 0 has.
    pub first_rank: u32,
    /// How many recordings have a rank there.
    pub recordings: usize,
    /// The command line of the first of them.
    pub command: String,
}

impl WorldReport {
    fn of(definitions: &Definitions) -> Vec<Self> {
        let mut worlds: BTreeMap<(&str, u32, &str), Self> = BTreeMap::new();
        for rank in definitions.ranks.values().filter(|rank| !rank.is_assigned) {
            let Some(process) = definitions.processes.get(&rank.process) else {
                continue;
            };
            let world = definitions.worlds.get(&rank.process);
            let world = world.map_or("", |world| definitions.string(world.name));
            let run = definitions.string(process.run);
            let first_rank = definitions.first_rank(rank.process);
            let of_world = worlds
                .entry((run, first_rank, world))
                .or_insert_with(|| Self {
                    run: run.to_owned(),
                    world: world.to_owned(),
                    first_rank,
                    recordings: 0,
                    command: definitions.string(process.command).to_owned(),
                });
            of_world.recordings += 1;
        }
        let mut by_run: BTreeMap<&str, usize> = BTreeMap::new();
        for (run, ..) in worlds.keys() {
            *by_run.entry(run).or_default() += 1;
        }
        let several = worlds
            .iter()
            .filter(|((run, ..), _)| by_run.get(run).is_some_and(|count| *count > 1));
        several.map(|(_, world)| world.clone()).collect()
    }
}

/// A rank of which there are several recordings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SharedRank {
    /// Which.
    pub rank: u32,
    /// Its processes, by their start.
    pub processes: Vec<RankProcess>,
}

impl SharedRank {
    fn of(definitions: &Definitions) -> Vec<Self> {
        let mut by_rank: BTreeMap<u32, Vec<RankProcess>> = BTreeMap::new();
        for rank in definitions.ranks.values().filter(|rank| !rank.is_assigned) {
            if let Some(process) = definitions.processes.get(&rank.process) {
                by_rank.entry(rank.rank).or_default().push(RankProcess {
                    recording_id: process.recording_id.to_string(),
                    run: definitions.string(process.run).to_owned(),
                    start_unix_ns: process.start_unix_ns,
                    host: definitions.string(process.host).to_owned(),
                    pid: process.pid,
                });
            }
        }
        let shared = by_rank.into_iter().filter(|(_, each)| each.len() > 1);
        let shared = shared.map(|(rank, mut processes)| {
            processes.sort_by(|a, b| {
                (a.start_unix_ns, &a.recording_id).cmp(&(b.start_unix_ns, &b.recording_id))
            });
            Self { rank, processes }
        });
        shared.collect()
    }

    /// Returns whether its recordings are of more than one run.
    pub fn is_of_several_runs(&self) -> bool {
        self.processes
            .windows(2)
            .any(|pair| pair[0].run != pair[1].run)
    }
}

/// A process that is no rank, but belongs to one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HelperReport {
    /// Identity of its recording.
    pub recording_id: String,
    /// Its host.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// The rank that it belongs to.
    pub of_rank: u32,
    /// Whether the launcher has started it in the rank's place; else the rank has.
    pub is_launched: bool,
    /// Whether the rank's own process has initialised MPI. Of several in its place, it is the rank because of that; else because it
    /// lived longest.
    pub rank_has_mpi: bool,
}

impl HelperReport {
    fn of(definitions: &Definitions) -> Vec<Self> {
        let helpers = definitions.helpers().into_iter();
        let helpers = helpers.filter_map(|(id, of_rank)| {
            let process = definitions.processes.get(&id)?;
            let launched = definitions.property(id, property::LAUNCHED_AS_RANK);
            let of_rank = of_rank.saturating_add(definitions.first_rank(id));
            let is_own = |rank: &&Rank| rank.rank == of_rank && !rank.is_assigned;
            let mut own = definitions.ranks.values().filter(is_own);
            let has_mpi = |rank: &Rank| {
                definitions
                    .property(rank.process, property::MPI_BEGUN)
                    .is_some()
            };
            Some(Self {
                recording_id: process.recording_id.to_string(),
                host: definitions.string(process.host).to_owned(),
                pid: process.pid,
                command: definitions.string(process.command).to_owned(),
                of_rank,
                is_launched: launched.is_some(),
                rank_has_mpi: own.any(has_mpi),
            })
        });
        helpers.collect()
    }
}

/// A file that could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DamageOfInput {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl Report {
    pub(crate) fn new(
        inputs: Vec<InputReport>,
        streams: Vec<StreamReport>,
        totals: &[StreamTotals],
        losses: &[TraceLoss],
        definitions: &Definitions,
        duplicates: Vec<PathBuf>,
    ) -> Self {
        let complete = is_complete(definitions, totals, losses);
        let totals = Sums::of(totals);
        let missing_ranks = missing_ranks(definitions);
        let is_unplaced = inputs.iter().any(|input| input.unplaced != 0);
        Self {
            complete: complete && !is_unplaced,
            inputs,
            rejected: Vec::new(),
            duplicates,
            missing_ranks,
            shared_ranks: SharedRank::of(definitions),
            helpers: HelperReport::of(definitions),
            worlds: WorldReport::of(definitions),
            hosts: 0,
            host_clocks: Vec::new(),
            streams,
            clocks: Vec::new(),
            causality: None,
            totals,
            losses: losses.len(),
            archive: None,
        }
    }

    /// Says how well the clocks are known.
    pub(crate) fn tell_clocks(
        &mut self,
        definitions: &Definitions,
        fits: &[ClockFit],
        hosts: &Hosts,
        in_traces: &Boots,
    ) {
        self.hosts = hosts.len();
        self.host_clocks = HostReport::of(hosts, definitions, in_traces);
        let clocks = fits.iter().map(|fit| clock_report(definitions, fit));
        self.clocks = clocks.collect();
    }

    /// Takes note of inputs that could not be used: the trace is not complete.
    pub fn reject(&mut self, rejected: Vec<RejectedInput>) {
        if !rejected.is_empty() {
            self.complete = false;
        }
        let rejected = rejected.into_iter();
        self.rejected.extend(rejected.map(|input| DamageOfInput {
            path: input.path,
            why: input.why,
        }));
    }

    /// Returns the first input that is not whole, not there, or of another run, in words: what a strict merge refuses.
    pub fn gap(&self) -> Option<String> {
        let missing = self.missing_ranks.first();
        let missing = missing.map(|rank| format!("there is no recording of rank {rank}"));
        let is_early = |input: &&InputReport| {
            input.ended == Ended::Truncated || input.unplaced != 0 || !input.damage.is_empty()
        };
        let early = || {
            let input = self.inputs.iter().find(is_early)?;
            let what = if input.ended == Ended::Truncated {
                "ends early"
            } else {
                "is damaged"
            };
            Some(format!("{} {what}", input.path.display()))
        };
        let damaged = || {
            let lost = |stream: &&StreamReport| stream.skipped | stream.truncated != 0;
            let stream = self.streams.iter().find(lost)?;
            Some(format!(
                "{} events of rank {} are lost",
                stream.skipped.saturating_add(stream.truncated),
                stream.rank
            ))
        };
        let running = || {
            let mut inputs = self.inputs.iter();
            let input = inputs.find(|input| input.ended == Ended::Running)?;
            Some(format!("{} is still being recorded", input.path.display()))
        };
        let foreign = || {
            let mut shared = self.shared_ranks.iter();
            let shared = shared.find(|shared| shared.is_of_several_runs())?;
            let rank = shared.rank;
            Some(format!("rank {rank} has recordings of several runs"))
        };
        let other = || (!self.complete).then(|| "an input is damaged".to_owned());
        let gap = missing.or_else(early).or_else(damaged);
        gap.or_else(running).or_else(foreign).or_else(other)
    }

    /// Returns whether anything was lost anywhere, a process did not end by itself, counts do not add up, or recordings
    /// of several runs are mixed: exit code 3.
    pub fn has_loss(&self) -> bool {
        let totals = &self.totals;
        let is_early = |input: &InputReport| input.ended != Ended::Finished;
        let is_wrong = |stream: &StreamReport| stream.miscounted != 0 || !stream.is_balanced;
        !self.complete
            || totals.dropped != 0
            || totals.skipped != 0
            || totals.truncated != 0
            || self.shared_ranks.iter().any(SharedRank::is_of_several_runs)
            || self.inputs.iter().any(is_early)
            || self.streams.iter().any(is_wrong)
    }
}

/// Returns the ranks of a run without a recording: those below the number of ranks that a recording
/// states, otherwise those below the highest existing rank.
pub fn missing_ranks(definitions: &Definitions) -> Vec<u32> {
    let ranks = definitions.ranks.values().filter(|rank| !rank.is_assigned);
    let present: BTreeSet<u32> = ranks.clone().map(|rank| rank.rank).collect();
    let stated = ranks.filter_map(|rank| rank.rank_count).max().unwrap_or(0);
    let highest = present.last().map_or(0, |rank| rank.saturating_add(1));
    // A hostile count must not become a list of four billion.
    let expected = stated.max(highest).min(1 << 20);
    (0..expected)
        .filter(|rank| !present.contains(rank))
        .collect()
}

/// Returns whether nothing is missing, which the counts prove: raised = recorded + dropped + suppressed for every event type
/// of every stream, nothing was skipped or truncated, and no rank is missing. A process that was killed and whose live file
/// contained all the rest is complete in this sense; its end is reported separately.
pub fn is_complete<'a>(
    definitions: &Definitions,
    totals: impl IntoIterator<Item = &'a StreamTotals>,
    losses: &[TraceLoss],
) -> bool {
    let mut ends = definitions.process_ends.values();
    let is_cut = ends.any(|end| end.ended == Ended::Truncated);
    let is_reader_loss = losses.iter().any(|loss| loss.cause.is_of_reader());
    let mut rows = totals.into_iter().flat_map(|totals| &totals.rows);
    let is_proven = rows.all(|row| row.is_balanced() && !row.raised_is_lower_bound);
    !is_cut && !is_reader_loss && is_proven && missing_ranks(definitions).is_empty()
}

fn clock_report(definitions: &Definitions, fit: &ClockFit) -> ClockReport {
    let clock = definitions.clocks.get(&fit.clock);
    let rank = clock.and_then(|clock| definitions.ranks.get(&clock.process));
    let error = definitions.clock_errors.get(&fit.clock);
    let knots = error.map_or(&[][..], |error| &error.knots);
    let bound = |knot: ErrorKnot| {
        let sum = knot.own_ns.checked_add(knot.host_ns);
        sum.filter(|sum| *sum != UNBOUNDED)
    };
    // None is more than any.
    let bounds = knots.iter().map(|knot| bound(*knot));
    let largest = bounds.max_by_key(|bound| bound.unwrap_or(UNBOUNDED));
    ClockReport {
        rank: rank.map_or(0, |rank| rank.rank),
        name: clock.map_or_else(String::new, |c| definitions.string(c.name).to_owned()),
        kind: clock
            .map_or(ClockKind::Unreadable, |clock| clock.kind)
            .name(),
        points: fit.points,
        error_ns: (fit.error_ns != u64::MAX).then_some(fit.error_ns),
        largest_residual_ns: fit.largest_residual_ns,
        steps: fit.steps,
        largest_step_ns: fit.largest_step_ns,
        relation: error
            .map_or(Relation::WallClock, |error| error.relation)
            .name(),
        bound_start_ns: knots.first().copied().and_then(bound),
        bound_end_ns: knots.last().copied().and_then(bound),
        bound_max_ns: largest.flatten(),
    }
}
