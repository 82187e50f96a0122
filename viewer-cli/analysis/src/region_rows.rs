//! Statistics of regions as rows, with names.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::{
    CallStatistics, Definition, Definitions, LocationId, Region, RegionId, RegionStatistics, Role,
    StringId,
};
use annals_merger::{Query, ReadSummary, Reader, Result};
use serde::{Deserialize, Serialize};

use crate::event_loop::{is_await, task_locations};
use crate::locations::LocationNames;
use crate::region_statistics::{Group, Grouping, RegionStats, Statistics, region_statistics};
use crate::row::{OUTSIDE, uncertain_text};
use crate::short_calls::{ShortCalls, short_calls};
use crate::thread_work::{is_mostly_silent, silent_times};

/// One region, of all locations, of a rank or of a location. Times in nanoseconds.
#[derive(Clone, Default, Debug)]
pub struct RegionRow {
    /// The region's name.
    pub name: String,
    /// The rank. `None` means all.
    pub rank: Option<u32>,
    /// The location's name. `None` means all.
    pub location: Option<String>,
    /// The source file.
    pub file: String,
    /// The line in it. 0 means unknown.
    pub line: u32,
    /// Enters.
    pub calls: u64,
    /// Time in the region and in what it called.
    pub inclusive_ns: i64,
    /// Time in the region itself.
    pub exclusive_ns: i64,
    /// By how much the inclusive time may be more: calls that are open at the end may have lasted longer.
    pub inclusive_more_ns: i64,
    /// By how much the exclusive time may be more.
    pub exclusive_more_ns: i64,
    /// The shortest call.
    pub min_ns: Option<i64>,
    /// The mean call, rounded down.
    pub mean_ns: Option<i64>,
    /// The longest call.
    pub max_ns: Option<i64>,
    /// The median.
    pub p50_ns: Option<i64>,
    /// The 95th percentile.
    pub p95_ns: Option<i64>,
    /// The 99th percentile.
    pub p99_ns: Option<i64>,
    /// Exclusive time as a share of the run time of all locations together (see [`RegionTimes::run_ns`]).
    pub share: f64,
    /// Calls that are open at the end, of the window or of their location. They last until then.
    pub open_calls: u64,
    /// Leaves without an enter.
    pub unmatched_leaves: u64,
    /// Calls that ended with a call around them.
    pub unleft_calls: u64,
    /// By how much `calls` may differ from the truth.
    pub uncertain_calls: u64,
    /// Whether even that is only a lower bound.
    pub uncertain_calls_is_lower_bound: bool,
    /// Whether a loss may have changed the times.
    pub time_is_uncertain: bool,
    /// The part of the exclusive time in which it may only have waited for threads to end (see [`thread_work`](crate::thread_work)).
    // Not in JSON: answers from parts of a run do not have it.
    pub silent_ns: i64,
    /// The part of the exclusive time that recording took at most, where most calls are short (see [`ShortCalls`]); else 0.
    pub recording_ns: i64,
}

crate::columns! {
    // Its share is not the same in a table of some ranks: it is no column for programs.
    RegionRow, uncertain time_is_uncertain, json share;
    "region" Name, |row| &row.name;
    "" Name headed "region", |row| row.marked_name();
    "rank" Number if_any "rank", |row| row.rank;
    "location" Name if_any "location", |row| &row.location;
    "file" Name, |row| &row.file;
    "line" Number, |row| row.line;
    "calls" Count headed "calls", |row| (row.name != OUTSIDE).then_some(row.calls);
    "uncertain_calls" Count, |row| row.uncertain_calls;
    "" Number if_any_and_room "± uncertain", |row| uncertain_text(row.uncertain_calls, row.uncertain_calls_is_lower_bound);
    "uncertain_calls_is_lower_bound" Flag, |row| row.uncertain_calls_is_lower_bound;
    "inclusive_ns" Duration marked "inclusive", |row| row.inclusive_ns;
    "exclusive_ns" Duration marked "exclusive", |row| row.exclusive_ns;
    "inclusive_more_ns" Duration, |row| row.inclusive_more_ns;
    "exclusive_more_ns" Duration, |row| row.exclusive_more_ns;
    "" Share if_room "% of run", |row| row.share;
    "min_ns" Duration if_room "min", |row| row.min_ns;
    "mean_ns" Duration headed "mean", |row| row.mean_ns;
    "p50_ns" Duration, |row| row.p50_ns;
    "p95_ns" Duration if_room "p95", |row| row.p95_ns;
    "p99_ns" Duration, |row| row.p99_ns;
    "max_ns" Duration headed "max", |row| row.max_ns;
    "open_calls" Count, |row| row.open_calls;
    "unmatched_leaves" Count, |row| row.unmatched_leaves;
    "unleft_calls" Count, |row| row.unleft_calls;
    "time_is_uncertain" Flag, |row| row.time_is_uncertain;
}

/// Returns what follows the name of a region that may only have waited for threads to end. Tasks that await wait for certain.
pub fn waits_mark(name: &str, may_wait: bool) -> &'static str {
    match may_wait && name != AWAIT {
        true => " (calls nothing; waits?)",
        false => "",
    }
}

/// Name of the region in which tasks await.
pub const AWAIT: &str = "await";

impl From<&OutsideTime> for RegionRow {
    fn from(of: &OutsideTime) -> Self {
        Self {
            name: OUTSIDE.to_owned(),
            rank: of.rank,
            location: of.location.clone(),
            inclusive_ns: of.time_ns,
            exclusive_ns: of.time_ns,
            share: of.share,
            time_is_uncertain: of.is_uncertain,
            ..Self::default()
        }
    }
}

impl RegionRow {
    /// Returns whether most of its time is silent.
    pub const fn may_wait(&self) -> bool {
        is_mostly_silent(self.silent_ns, self.exclusive_ns)
    }

    /// Returns its name, marked if the region may only have waited. Tasks that await wait for certain.
    pub fn marked_name(&self) -> String {
        self.name.clone() + waits_mark(&self.name, self.may_wait())
    }

    /// Returns what distinguishes rows of regions that have all names in common, such as functions of several builds: so that their
    /// order does not depend on numbers of regions.
    fn counts(&self) -> impl Ord {
        let times = [
            self.min_ns,
            self.mean_ns,
            self.max_ns,
            self.p50_ns,
            self.p95_ns,
            self.p99_ns,
        ];
        let counts = [
            self.calls,
            self.open_calls,
            self.unmatched_leaves,
            self.unleft_calls,
            self.uncertain_calls,
        ];
        let flags = [self.uncertain_calls_is_lower_bound, self.time_is_uncertain];
        (self.inclusive_ns, counts, times, flags)
    }
}

/// Time that locations spent in no region at all.
#[derive(Clone, Debug, Serialize)]
pub struct OutsideTime {
    /// The rank. `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The location's name. `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// How long, nanoseconds.
    pub time_ns: i64,
    /// By how much it may be more: when a process ended, or whether calls that were open last had been left, is not known.
    pub more_ns: i64,
    /// Share of the run time of all locations together (see [`RegionTimes::run_ns`]).
    pub share: f64,
    /// Whether a loss may have changed it.
    pub is_uncertain: bool,
}

/// Regions, and the time outside of them. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RegionTimes {
    /// The query's regions, most exclusive time first.
    pub regions: Vec<RegionRow>,
    /// The time in no region, by group, most time first.
    pub outside: Vec<OutsideTime>,
    /// The run time of the locations that entered regions, together: each counts from the start to the end of its process,
    /// as far as that lies in the window.
    pub run_ns: i64,
    /// What is known of calls that are shorter than their recording, where most are.
    #[serde(skip)]
    pub short_calls: Option<ShortCalls>,
}

/// How long locations ran, together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RunTime {
    /// Nanoseconds.
    pub time_ns: i64,
    /// By how much it may be more: when a killed process ended is known from its last heartbeat.
    pub more_ns: i64,
}

impl RunTime {
    fn add(&mut self, other: Self) {
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.more_ns = self.more_ns.saturating_add(other.more_ns);
    }

    /// Returns the part of it that regions leave, given their statistics.
    pub fn outside_of<'a>(self, regions: impl IntoIterator<Item = &'a CallStatistics>) -> Self {
        regions.into_iter().fold(self, |left, calls| Self {
            time_ns: left.time_ns - calls.exclusive_ns - calls.unclear_ns,
            more_ns: left.more_ns.saturating_add(calls.unclear_ns),
        })
    }
}

/// Returns the run time of each group that entered regions anywhere in the trace, within the query's window. A
/// location counts from the start to the end of its process.
///
/// # Errors
/// If the storage fails.
pub fn run_times(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<BTreeMap<Group, RunTime>> {
    let definitions = reader.definitions();
    let enters = |id| {
        let event_type = definitions.event_types.get(&id);
        event_type.is_some_and(|event_type| event_type.role == Role::Enter)
    };
    let summary = reader.summary()?;
    let entered = summary.totals.iter().filter(|stream| {
        let mut rows = stream.rows.iter();
        query.takes_stream(stream.stream)
            && rows.any(|row| row.recorded != 0 && enters(row.event_type))
    });
    let mut locations: BTreeSet<LocationId> = entered
        .filter_map(|stream| definitions.streams.get(&stream.stream)?.location)
        .collect();
    if grouping != Grouping::Location {
        // Tasks take turns on a thread: those of a process count once, if none of its threads does.
        let tasks = task_locations(reader)?;
        let process = |id: &LocationId| definitions.locations.get(id).map(|of| of.process);
        let threads = locations.iter().filter(|id| !tasks.contains(id));
        let mut counted: BTreeSet<_> = threads.map(process).collect();
        locations.retain(|id| !tasks.contains(id) || counted.insert(process(id)));
    }
    let kept_to_ns = definitions.kept_to_ns();
    let mut times: BTreeMap<Group, RunTime> = BTreeMap::new();
    for location in locations {
        let process = definitions.locations.get(&location).map(|l| l.process);
        let life = process.and_then(|process| definitions.process_ends.get(&process));
        let (start_ns, end_ns) =
            life.map_or((0, reader.extent().end_ns), |l| (l.start_ns, l.end_ns));
        let error_ns = life.map_or(0, |life| life.end_error_ns);
        let group = Group::of(definitions, grouping, location);
        let latest_ns = end_ns.saturating_add_unsigned(error_ns);
        let (end_ns, latest_ns) = (end_ns.min(kept_to_ns), latest_ns.min(kept_to_ns));
        times.entry(group).or_default().add(RunTime {
            time_ns: query.window().clip(start_ns, end_ns).max(0),
            more_ns: query.window().clip(end_ns, latest_ns).max(0),
        });
    }
    Ok(times)
}

/// Returns the times of a query's regions in its window.
///
/// # Errors
/// If the storage fails.
pub fn region_times(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<(RegionTimes, ReadSummary)> {
    let (mut sums, summary) = RegionSums::of(reader, query, grouping)?;
    sums.silent_ns = silent_times(reader, query, grouping, &sums.statistics)?;
    sums.short_calls = short_calls(reader, query, grouping, &sums.statistics)?;
    let takes = |region| query.takes_region(region);
    Ok((sums.into_times(reader.definitions(), takes), summary))
}

/// What the rows of regions are made of. Those of disjoint groups of ranks add up to those of all, whichever processes
/// counted them.
#[derive(Debug, Default)]
pub struct RegionSums {
    statistics: Statistics,
    run_times: BTreeMap<Group, RunTime>,
    /// Whether events are lost that the user wanted.
    has_loss: bool,
    /// Silent times, of the regions that have any: see [`silent_times`]. They are not passed on.
    silent_ns: BTreeMap<(Group, RegionId), i64>,
    /// Where most calls are shorter than their recording. They are not passed on either.
    short_calls: Option<ShortCalls>,
}

/// Sums of all ranks of a group, and the names of regions, in the form in which they are passed on.
#[derive(Serialize, Deserialize)]
struct EncodedSums {
    head: Vec<u8>,
    body: Vec<u8>,
    /// Regions whose calls are uncertain: number, calls, whether that is a lower bound.
    uncertain: Vec<(u32, u64, bool)>,
    run_time: Option<(i64, i64)>,
    has_loss: bool,
    /// Definition records of regions.
    definitions: Vec<u8>,
    /// By region: what distinguishes it from others of the same name, file, line and group.
    identities: Vec<(u32, String)>,
}

/// What is the same region in all processes that count: name, file, line, group, and what else distinguishes it.
type RegionKey = (String, String, u32, String, String);

/// The regions of sums that other processes counted, with common numbers.
#[derive(Debug, Default)]
pub struct RegionNames {
    definitions: Definitions,
    numbers: BTreeMap<RegionKey, RegionId>,
    texts: BTreeMap<String, StringId>,
}

impl RegionNames {
    /// Returns the definitions of the regions.
    pub const fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn string(&mut self, text: &str) -> StringId {
        let next = StringId::new(self.texts.len() as u32);
        let id = *self.texts.entry(text.to_owned()).or_insert(next);
        if id == next {
            let definition = Definition::String(id, text.to_owned());
            self.definitions.add(definition);
        }
        id
    }

    /// Returns the common number of a region. `of` are the definitions that it is in.
    fn number(&mut self, region: &Region, of: &Definitions, identity: &str) -> RegionId {
        let text = |id: StringId| of.string(id).to_owned();
        let (name, file, group) = (text(region.name), text(region.file), text(region.group));
        let key = (name, file, region.line, group, identity.to_owned());
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let id = RegionId::new(self.numbers.len() as u32);
        let region = Region {
            id,
            name: self.string(&key.0),
            file: self.string(&key.1),
            line: key.2,
            group: self.string(&key.3),
        };
        self.definitions.add(Definition::Region(region));
        self.numbers.insert(key, id);
        id
    }
}

/// Returns what distinguishes a region from others of the same name, file, line and group: of a function without a symbol, whose
/// name is its address, the build that it is in.
fn identity_of(definitions: &Definitions, region: &Region) -> Option<String> {
    let function = definitions.functions.get(&region.id)?;
    let address = format!("+{:#x}", function.offset);
    let is_unnamed = definitions.string(region.name).ends_with(&address);
    let module = definitions.modules.get(&function.module)?;
    let build = module.build_id.iter().map(|byte| format!("{byte:02x}"));
    let build: String = build.collect();
    let path = definitions.string(module.path);
    is_unnamed.then(|| match build.is_empty() {
        true => path.to_owned(),
        false => build,
    })
}

impl RegionSums {
    /// Counts the calls of a query.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn of(reader: &Reader, query: &Query, grouping: Grouping) -> Result<(Self, ReadSummary)> {
        let (statistics, summary) = region_statistics(reader, query, grouping)?;
        let mut losses = summary.losses.iter();
        let sums = Self {
            statistics,
            run_times: run_times(reader, query, grouping)?,
            has_loss: losses.any(|loss| !loss.cause.is_suppressed()),
            silent_ns: BTreeMap::new(),
            short_calls: None,
        };
        Ok((sums, summary))
    }

    /// Adds the sums of other ranks.
    pub fn merge(&mut self, other: Self) {
        for (key, stats) in &other.statistics {
            self.statistics.entry(*key).or_default().add(stats);
        }
        for (group, run_time) in other.run_times {
            self.run_times.entry(group).or_default().add(run_time);
        }
        self.has_loss |= other.has_loss;
    }

    /// Encodes sums that are not grouped, and the names of their regions, for another process. `None` if there are more
    /// regions than a trace may have statistics of.
    pub fn encode(&self, definitions: &Definitions) -> Option<Vec<u8>> {
        let all = || self.statistics.iter().map(|((_, id), stats)| (id, stats));
        let counted = RegionStatistics {
            regions: all().map(|(id, s)| (*id, s.counted.clone())).collect(),
        };
        if counted.is_too_much() {
            return None;
        }
        let (mut head, mut body) = (Vec::new(), Vec::new());
        counted.encode_head(&mut head);
        counted.encode(&mut body);
        let mut named = Definitions::default();
        for region in all().filter_map(|(id, _)| definitions.regions.get(id)) {
            named.add(Definition::Region(region.clone()));
            for text in [region.name, region.file, region.group] {
                named.add(Definition::String(
                    text,
                    definitions.string(text).to_owned(),
                ));
            }
        }
        let identities = named.regions.values();
        let identities = identities
            .filter_map(|region| Some((region.id.get(), identity_of(definitions, region)?)));
        let identities = identities.collect();
        let mut records = Vec::new();
        named.encode(&mut records);
        let uncertain = all().filter(|(_, stats)| stats.uncertain_calls != 0);
        let uncertain = uncertain.map(|(id, stats)| {
            let is_lower_bound = stats.uncertain_is_lower_bound;
            (id.get(), stats.uncertain_calls, is_lower_bound)
        });
        let encoded = EncodedSums {
            head,
            body,
            uncertain: uncertain.collect(),
            run_time: self
                .run_times
                .get(&Group::All)
                .map(|time| (time.time_ns, time.more_ns)),
            has_loss: self.has_loss,
            definitions: records,
            identities,
        };
        serde_json::to_vec(&encoded).ok()
    }

    /// Decodes what [`RegionSums::encode`] returned. Its regions get numbers of `names`. `None` if it is something else.
    pub fn decode(bytes: &[u8], names: &mut RegionNames) -> Option<Self> {
        let encoded: EncodedSums = serde_json::from_slice(bytes).ok()?;
        let mut own = Definitions::default();
        own.add_all(&encoded.definitions).ok()?;
        let identities: BTreeMap<u32, String> = encoded.identities.into_iter().collect();
        let mut key = |id: RegionId| {
            let region = own.regions.get(&id)?;
            let identity = identities.get(&id.get()).map_or("", String::as_str);
            Some((Group::All, names.number(region, &own, identity)))
        };
        let counted = RegionStatistics::decode(&encoded.head, &encoded.body).ok()?;
        let mut statistics = Statistics::new();
        for (region, counted) in counted.regions {
            let stats = RegionStats {
                counted,
                ..RegionStats::default()
            };
            statistics.entry(key(region)?).or_default().add(&stats);
        }
        for (region, calls, is_lower_bound) in encoded.uncertain {
            let stats = statistics.get_mut(&key(RegionId::new(region))?)?;
            stats.uncertain_calls = calls;
            stats.uncertain_is_lower_bound = is_lower_bound;
        }
        let run_times = encoded
            .run_time
            .map(|(time_ns, more_ns)| (Group::All, RunTime { time_ns, more_ns }));
        Some(Self {
            statistics,
            run_times: run_times.into_iter().collect(),
            has_loss: encoded.has_loss,
            silent_ns: BTreeMap::new(),
            short_calls: None,
        })
    }

    /// Makes the rows of those regions that `takes` returns true for.
    pub fn into_times(
        self,
        definitions: &Definitions,
        takes: impl Fn(RegionId) -> bool,
    ) -> RegionTimes {
        let names = LocationNames::new(definitions);
        let (stats, mut outside) = (self.statistics, self.run_times);
        let run_ns: i64 = outside.values().map(|time| time.time_ns).sum();
        for ((group, region), of_region) in &stats {
            if let Some(time) = outside.get_mut(group)
                && !is_await(definitions, *region)
            {
                *time = time.outside_of([&of_region.counted]);
            }
        }
        let uncertain: BTreeSet<Group> = stats
            .iter()
            .filter(|(_, s)| s.counted.is_time_uncertain || s.uncertain_calls != 0)
            .map(|((group, _), _)| *group)
            .collect();
        let has_loss = self.has_loss;
        // Of a part, it is not known which regions were left before it.
        let is_cut = definitions.kept_from_ns() > 0;
        let outside = outside.into_iter().map(|(group, time)| {
            let (rank, location) = place_of(definitions, &names, group);
            OutsideTime {
                rank,
                location,
                time_ns: time.time_ns.max(0),
                more_ns: time.more_ns,
                share: time.time_ns.max(0) as f64 / run_ns.max(1) as f64,
                is_uncertain: is_cut
                    || time.more_ns != 0
                    || uncertain.contains(&group)
                    || (has_loss && group == Group::All),
            }
        });
        let mut outside: Vec<OutsideTime> = outside.collect();
        outside.sort_by_key(|row| std::cmp::Reverse(row.time_ns));
        let mut rows: Vec<RegionRow> = stats
            .into_iter()
            .filter(|((_, region), stats)| {
                let is_seen = stats.counted.calls != 0
                    || stats.counted.inclusive_ns != 0
                    || stats.counted.unmatched_leaves != 0
                    || stats.uncertain_calls != 0;
                is_seen && takes(*region)
            })
            .map(|((group, region), stats)| {
                let (rank, location) = place_of(definitions, &names, group);
                let row = row(definitions, rank, location, region, &stats, run_ns);
                let key = (group, region);
                let recording = self.short_calls.as_ref();
                let recording = recording.and_then(|short| short.recording_ns.get(&key));
                RegionRow {
                    silent_ns: self.silent_ns.get(&key).copied().unwrap_or(0),
                    recording_ns: recording.copied().unwrap_or(0).min(row.exclusive_ns),
                    ..row
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            let order = (b.exclusive_ns, &a.name).cmp(&(a.exclusive_ns, &b.name));
            let place =
                |row: &RegionRow| (row.rank, row.location.clone(), row.file.clone(), row.line);
            let order = order.then_with(|| place(a).cmp(&place(b)));
            order.then_with(|| a.counts().cmp(&b.counts()))
        });
        RegionTimes {
            regions: rows,
            outside,
            run_ns,
            short_calls: self.short_calls,
        }
    }
}

/// Returns rank and name of the location of a row, as far as it is of one.
fn place_of(d: &Definitions, names: &LocationNames, group: Group) -> (Option<u32>, Option<String>) {
    match group {
        Group::All => (None, None),
        Group::Rank(rank) => (Some(rank), None),
        Group::Location(id) => {
            let location = d.locations.get(&id);
            let rank = location.and_then(|location| d.ranks.get(&location.process));
            (rank.map(|rank| rank.rank), Some(names.get(id).to_owned()))
        }
    }
}

fn row(
    d: &Definitions,
    rank: Option<u32>,
    location: Option<String>,
    region: RegionId,
    stats: &RegionStats,
    run_ns: i64,
) -> RegionRow {
    let definition = d.regions.get(&region);
    RegionRow {
        name: d.region_name(region),
        rank,
        location,
        file: definition.map_or_else(String::new, |r| d.string(r.file).to_owned()),
        line: definition.map_or(0, |region| region.line),
        calls: stats.counted.calls,
        inclusive_ns: stats.counted.inclusive_ns,
        exclusive_ns: stats.counted.exclusive_ns,
        inclusive_more_ns: stats.counted.inclusive_more_ns,
        exclusive_more_ns: stats.counted.exclusive_more_ns,
        min_ns: stats.counted.completed.min(),
        mean_ns: stats.counted.completed.mean(),
        max_ns: stats.counted.completed.max(),
        p50_ns: stats.counted.completed.percentile(50),
        p95_ns: stats.counted.completed.percentile(95),
        p99_ns: stats.counted.completed.percentile(99),
        share: match run_ns {
            0 => 0.0,
            run_ns => stats.counted.exclusive_ns as f64 / run_ns as f64,
        },
        open_calls: stats.counted.open_calls,
        unmatched_leaves: stats.counted.unmatched_leaves,
        unleft_calls: stats.counted.unleft_calls,
        uncertain_calls: stats.uncertain_calls,
        uncertain_calls_is_lower_bound: stats.uncertain_is_lower_bound,
        time_is_uncertain: stats.counted.is_time_uncertain,
        silent_ns: 0,
        recording_ns: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of two functions of one name, which have the leaves without enters, in the order of their numbers.
    fn rows(unmatched_leaves: [u64; 2]) -> String {
        let mut definitions = Definitions::default();
        let [empty, name] = [0, 1].map(StringId::new);
        definitions.add(Definition::String(empty, String::new()));
        definitions.add(Definition::String(name, "solver+0x1a0".to_owned()));
        let mut sums = RegionSums::default();
        for (number, unmatched_leaves) in unmatched_leaves.into_iter().enumerate() {
            let id = RegionId::new(number as u32);
            definitions.add(Definition::Region(Region {
                id,
                name,
                file: empty,
                line: 0,
                group: empty,
            }));
            let mut stats = RegionStats::default();
            stats.counted.unmatched_leaves = unmatched_leaves;
            sums.statistics.insert((Group::All, id), stats);
        }
        let times = sums.into_times(&definitions, |_| true);
        serde_json::to_string(&times.regions).expect("rows")
    }

    #[test]
    fn the_order_of_rows_does_not_depend_on_numbers() {
        assert_eq!(rows([2, 4]), rows([4, 2]));
        assert_ne!(rows([2, 4]), rows([2, 2]));
    }
}
