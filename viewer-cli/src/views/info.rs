//! Summary of a trace or a set of recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use annals_analysis::{CostSums, MpiCoverage, RecordingCost};
use annals_format::names::property;
use annals_merger::{ReadSummary, Reader, Sums, missing_ranks};
use serde::Serialize;

use super::{counted, mpi_note, recording_cost_words, unrecorded_children};
use crate::names::cut_middle;
use crate::process_end::ProcessEnd;
use crate::table::{Align, Screen, Table, safe};
use crate::time;

/// One process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessInfo {
    rank: u32,
    rank_is_assigned: bool,
    /// The world in which its events' ranks are counted, if the run may have several.
    world: Option<String>,
    /// Difference between the ranks in its events and `rank`.
    first_rank: u32,
    host: String,
    pid: u32,
    ended: &'static str,
    start_ns: i64,
    end_ns: i64,
    start_unix_ns: i64,
    recording_id: String,
    run: String,
    command: String,
    properties: BTreeMap<String, String>,
}

/// The events that a merge was configured to keep.
#[derive(Clone, Debug, Serialize)]
pub struct FilterInfo {
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    ranks: String,
    sources: String,
    locations: String,
    event_types: String,
}

/// The output of `info --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    kind: &'static str,
    files: usize,
    bytes: u64,
    bytes_per_event: Option<f64>,
    has_footer: bool,
    ranks: usize,
    /// Processes that are no ranks, but belong to one.
    helpers: usize,
    /// In the properties of the processes.
    #[serde(skip)]
    unrecorded_children: u64,
    missing_ranks: Vec<u32>,
    hosts: usize,
    locations: usize,
    sources: usize,
    streams: usize,
    event_types: usize,
    regions: usize,
    events: u64,
    raised: u64,
    raised_is_lower_bound: bool,
    dropped: u64,
    suppressed: u64,
    skipped: u64,
    truncated: u64,
    filtered: u64,
    filters: Vec<FilterInfo>,
    start_ns: i64,
    end_ns: i64,
    start_unix_ns: i64,
    complete: bool,
    /// How much of the run its recording took. `None` if that is not known.
    recording_cost: Option<RecordingCost>,
    /// What of MPI is missing.
    #[serde(skip_serializing_if = "MpiCoverage::is_whole")]
    mpi: MpiCoverage,
    processes: Vec<ProcessInfo>,
}

impl FilterInfo {
    fn render(&self) -> String {
        let bounds = [("from", self.from_ns), ("to", self.to_ns)];
        let bounds = bounds.iter().filter_map(|(name, bound)| {
            bound.map(|bound| format!("{name} {}", time::duration(bound)))
        });
        let names = [
            ("rank", &self.ranks),
            ("source", &self.sources),
            ("location", &self.locations),
            ("event", &self.event_types),
        ];
        let names = names.iter().filter(|(_, names)| !names.is_empty());
        let names = names.map(|(name, names)| format!("{name} {}", safe(names)));
        bounds.chain(names).collect::<Vec<String>>().join(", ")
    }
}

impl Info {
    /// Gathers it.
    pub fn of(opened: &Reader, outcome: &ReadSummary) -> Self {
        let d = opened.definitions();
        let origin = opened.origin();
        let sums = Sums::of(&outcome.totals);
        let processes: Vec<ProcessInfo> = d
            .processes
            .values()
            .map(|process| {
                let rank = d.ranks.get(&process.id);
                let world = d.worlds.get(&process.id);
                let end = d.process_ends.get(&process.id);
                let properties = d.properties.iter().filter(|p| p.process == process.id);
                ProcessInfo {
                    rank: rank.map_or(0, |rank| rank.rank),
                    rank_is_assigned: rank.is_some_and(|rank| rank.is_assigned),
                    world: world.map(|world| d.string(world.name).to_owned()),
                    first_rank: d.first_rank(process.id),
                    host: d.string(process.host).to_owned(),
                    pid: process.pid,
                    ended: end.map_or("unknown", |end| end.ended.name()),
                    start_ns: end.map_or(0, |end| end.start_ns),
                    end_ns: end.map_or(0, |end| end.end_ns),
                    start_unix_ns: process.start_unix_ns,
                    recording_id: process.recording_id.to_string(),
                    run: d.string(process.run).to_owned(),
                    command: d.string(process.command).to_owned(),
                    properties: properties
                        .map(|p| (d.string(p.key).to_owned(), d.string(p.value).to_owned()))
                        .collect(),
                }
            })
            .collect();
        let hosts: BTreeSet<&str> = processes.iter().map(|p| p.host.as_str()).collect();
        let helpers = d.helpers();
        let ranks = d.ranks.values();
        let ranks = ranks.filter(|rank| !helpers.contains_key(&rank.process));
        let ranks: BTreeSet<u32> = ranks.map(|rank| rank.rank).collect();
        let zero = d.time_zero;
        Self {
            kind: origin.kind,
            files: origin.files,
            bytes: origin.bytes,
            bytes_per_event: (sums.present() != 0)
                .then(|| origin.bytes as f64 / sums.present() as f64),
            has_footer: origin.has_footer,
            ranks: ranks.len(),
            helpers: helpers.len(),
            unrecorded_children: d.unrecorded_children(),
            missing_ranks: missing_ranks(d),
            hosts: hosts.len(),
            locations: d.locations.len(),
            sources: d.sources.len(),
            streams: d.streams.values().filter(|s| s.location.is_some()).count(),
            event_types: d.event_types.len(),
            regions: d.regions.len(),
            events: sums.present(),
            raised: sums.raised,
            raised_is_lower_bound: sums.raised_is_lower_bound,
            dropped: sums.dropped,
            suppressed: sums.suppressed,
            skipped: sums.skipped,
            truncated: sums.truncated,
            filtered: sums.filtered,
            filters: d
                .filters
                .iter()
                .map(|filter| FilterInfo {
                    from_ns: filter.from_ns,
                    to_ns: filter.to_ns,
                    ranks: d.string(filter.ranks).to_owned(),
                    sources: d.string(filter.sources).to_owned(),
                    locations: d.string(filter.locations).to_owned(),
                    event_types: d.string(filter.event_types).to_owned(),
                })
                .collect(),
            start_ns: 0,
            end_ns: zero.map_or(0, |zero| zero.end_ns),
            start_unix_ns: zero.map_or(0, |zero| zero.unix_ns),
            complete: outcome.complete && opened.rejected().is_empty(),
            recording_cost: CostSums::of(d, outcome.totals.iter()).share(),
            mpi: MpiCoverage::of(d),
            processes,
        }
    }

    /// Returns the number of ranks.
    pub const fn rank_count(&self) -> usize {
        self.ranks
    }

    /// Returns whether calls of MPI are missing that the user has not left out.
    pub fn lacks_mpi(&self) -> bool {
        self.mpi.has_loss()
    }

    /// Returns what became of the events that are not there, or `None` if all are.
    pub fn missing_events(&self) -> Option<String> {
        let counts = [
            (self.dropped, "dropped"),
            (self.suppressed, "suppressed"),
            (self.skipped, "skipped"),
            (self.truncated, "truncated"),
        ];
        let missing = counts.iter().filter(|(count, _)| *count != 0);
        let missing = missing.map(|(count, what)| format!("{} {what}", time::grouped(*count)));
        let missing: Vec<String> = missing.collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Returns in one sentence what ran, how long, and whether anything is missing.
    pub fn sentence(&self) -> String {
        let ran = match self.processes.len() {
            0 => return "No process was recorded.".to_owned(),
            1 if self.ranks <= 1 => "One process ran".to_owned(),
            count if self.ranks + self.helpers == count && self.ranks != 0 => {
                let ranks = counted(self.ranks as u64, "rank");
                match self.helpers {
                    0 => format!("{ranks} ran"),
                    helpers => format!("{ranks}, and {}, ran", counted(helpers as u64, "helper")),
                }
            }
            // Ranks of several runs may have one number; a process may have none.
            count => format!("{} processes ran", time::grouped(count as u64)),
        };
        let span = time::duration(self.end_ns - self.start_ns);
        let events = counted(self.events, "event");
        let lost = match (self.missing_events(), self.complete) {
            (None, true) => "nothing was lost".to_owned(),
            (None, false) => "the recording is not complete".to_owned(),
            (Some(missing), _) => format!("{missing} (trace-cli dropped shows where)"),
        };
        let mut processes = self.processes.iter();
        let are_followed = processes.any(|one| one.properties.contains_key(property::FORKS));
        let children = unrecorded_children(self.unrecorded_children, are_followed);
        let children = children.map_or(String::new(), |children| format!("; {children}"));
        format!("{ran} for {span}: {events}, {lost}{children}.")
    }

    /// Returns the text for people.
    pub fn render(&self, screen: Screen) -> String {
        let note = mpi_note(&self.mpi).map(|note| note + "\n");
        let mut text = note.unwrap_or_default() + &self.sentence() + "\n\n";
        for (key, value) in self.facts() {
            let _ = writeln!(text, "{key:<12}{value}");
        }
        text.push('\n');
        text.push_str(&self.process_table(usize::MAX).render(screen));
        for (key, value) in self.machine() {
            let _ = writeln!(text, "{key:<12}{value}");
        }
        let properties = self.properties();
        if !properties.is_empty() {
            text.push_str("properties\n");
        }
        for (key, value) in properties {
            let _ = writeln!(text, "  {key} = {value}");
        }
        text
    }

    /// Returns what the files, the ranks and the events are: each a name and a text.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let mut line = |key, value: String| facts.push((key, value));
        let footer = if self.has_footer {
            "with footer"
        } else {
            "recovered without footer"
        };
        let files = match self.files {
            1 => String::new(),
            files => format!("{files} files, "),
        };
        line(
            self.kind,
            format!("{files}{}, {footer}", time::bytes(self.bytes)),
        );
        line("started", format!("{} UTC", time::date(self.start_unix_ns)));
        line("span", time::duration(self.end_ns - self.start_ns));
        let missing = match self.missing_ranks.len() {
            0 => String::new(),
            _ => format!(
                ", no recording of rank{} {}",
                if self.missing_ranks.len() == 1 {
                    ""
                } else {
                    "s"
                },
                list(&self.missing_ranks)
            ),
        };
        line(
            "ranks",
            format!(
                "{} on {}{missing}",
                self.ranks,
                counted(self.hosts as u64, "host")
            ),
        );
        line(
            "locations",
            format!(
                "{} in {}",
                self.locations,
                counted(self.streams as u64, "stream")
            ),
        );
        line("sources", self.sources.to_string());
        line(
            "event types",
            format!(
                "{}, {}",
                self.event_types,
                counted(self.regions as u64, "region")
            ),
        );
        let per_event = self.bytes_per_event.map(|b| format!(", {b:.2} bytes each"));
        line(
            "events",
            format!(
                "{}{}",
                time::grouped(self.events),
                per_event.unwrap_or_default()
            ),
        );
        let least = if self.raised_is_lower_bound {
            "at least "
        } else {
            ""
        };
        let raised = format!("{least}{}", time::grouped(self.raised));
        match self.missing_events() {
            None if self.raised_is_lower_bound => {
                line("raised", format!("{raised}, how many more is unknown"));
            }
            None => line("raised", format!("{raised}, all of them recorded")),
            Some(missing) => line("raised", format!("{raised}: {missing}")),
        }
        for filter in &self.filters {
            line("filter", filter.render());
        }
        if self.filtered != 0 {
            line(
                "left out",
                format!("{}, by the filter", counted(self.filtered, "event")),
            );
        }
        if let Some(cost) = self.recording_cost {
            line("cost", recording_cost_words(cost));
        }
        let complete = if self.complete { "yes" } else { "no" };
        line("complete", complete.to_owned());
        facts
    }

    /// Returns the number of events that can be read.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns whether all that was recorded can be read.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of processes.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Returns a row for each of the first `most` processes.
    pub fn process_table(&self, most: usize) -> Table {
        let has_worlds = self.processes.iter().any(|process| process.first_rank != 0);
        let of_world = ("in its world", Align::Left);
        let mut columns = vec![
            ("rank", Align::Right),
            ("host", Align::Left),
            ("pid", Align::Right),
            ("ended", Align::Left),
            ("start", Align::Right),
            ("span", Align::Right),
            ("affinity", Align::Left),
            ("command", Align::Name),
        ];
        columns.extend(has_worlds.then_some(of_world));
        let mut table = Table::new(&columns);
        for process in self.processes.iter().take(most) {
            let affinity = process.properties.get("affinity").cloned();
            let mut row = vec![
                process.rank.to_string(),
                safe(&process.host),
                process.pid.to_string(),
                process.how_ended(),
                time::duration(process.start_ns),
                time::duration(process.end_ns - process.start_ns),
                affinity.unwrap_or_default(),
                cut_middle(&safe(&process.command), 60),
            ];
            if has_worlds {
                let own = process.rank.saturating_sub(process.first_rank);
                let world = process.world.as_deref().unwrap_or_default();
                row.push(format!("{own} of {}", cut_middle(&safe(world), 40)));
            }
            table.row(row);
        }
        table
    }

    /// Returns what the first process ran on, and what recorded it: each a name and a text.
    pub fn machine(&self) -> Vec<(&'static str, String)> {
        let first = self.processes.first();
        let value = |key: &&'static str| {
            let value = first?.properties.get(*key)?;
            Some((*key, safe(value)))
        };
        OF_FIRST.iter().filter_map(value).collect()
    }

    /// Returns the properties that programs, adapters and users have set for the processes, such as MPI's control
    /// variables: each a name and a value. If processes differ, those of the first one.
    pub fn properties(&self) -> Vec<(String, String)> {
        let mut values: BTreeMap<&str, (&str, u32, bool)> = BTreeMap::new();
        for process in &self.processes {
            let told = |key: &str| OF_FIRST.contains(&key) || OF_RECORDING.contains(&key);
            for (key, value) in process.properties.iter().filter(|(key, _)| !told(key)) {
                let first = values.entry(key).or_insert((value, process.rank, true));
                first.2 &= first.0 == value;
            }
        }
        let values = values.into_iter().map(|(key, (value, rank, is_of_all))| {
            let of = match is_of_all {
                true => String::new(),
                false => format!(" (rank {rank}; others differ)"),
            };
            (safe(key), format!("{}{of}", safe(value)))
        });
        values.collect()
    }
}

/// Properties that are shown once, for the first process.
const OF_FIRST: [&str; 3] = ["processors", "system", "recorder"];

/// Properties that say how a process ran and was recorded: in its row, or in `--json` only.
const OF_RECORDING: [&str; 18] = [
    property::FORKED_FROM,
    property::FORKS,
    property::UNRECORDED_CHILDREN,
    property::LAUNCHED_AS_RANK,
    property::MPI_BEGUN,
    property::MPI_UNSEEN,
    property::MPI_UNSEEN_OTHERS,
    property::MPI_LEFT_OUT,
    property::STARTED_BY_RANK,
    property::MPI_ABORT,
    property::MPI_MISSING_FINALIZE,
    "affinity",
    "directory",
    "executable",
    property::LIVE_FILE,
    property::PROCESS_END,
    property::RECORDED_BY,
    property::RECORDING_COST,
];

impl ProcessInfo {
    /// Returns how its recording ended, and how it did itself, where that is known.
    fn how_ended(&self) -> String {
        let end = ProcessEnd::from_properties(|key| self.properties.get(key).map(String::as_str));
        // Not where the cause contains it.
        let system = end.system_clause().and(end.system.as_deref()).map(safe);
        let noted: Vec<String> = end.cause().into_iter().chain(system).collect();
        let ended = match &noted[..] {
            [] => self.ended.to_owned(),
            noted => format!("{}: {}", self.ended, noted.join(", ")),
        };
        match self.properties.get(property::FORKED_FROM) {
            Some(parent) => format!("{ended} (forked from {})", safe(parent)),
            None => ended,
        }
    }
}

fn list(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().take(10).map(u32::to_string).collect();
    let more = if numbers.len() > 10 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}
