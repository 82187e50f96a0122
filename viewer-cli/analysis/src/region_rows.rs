//! Statistics of regions as rows, with names.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::{Definitions, LocationId, RegionId, Role};
use annals_merger::{Query, ReadSummary, Reader, Result};
use serde::Serialize;

use crate::locations::LocationNames;
use crate::region_statistics::{Group, Grouping, RegionStats, region_statistics};

/// One region, of all locations, of a rank or of a location. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct RegionRow {
    /// The region's name.
    pub name: String,
    /// The rank. `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The location's name. `None` means all.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// Calls that are open at the end.
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
}

/// Returns the run time of each group that entered regions anywhere in the trace, within the query's window, nanoseconds. A
/// location counts from the start to the end of its process.
///
/// # Errors
/// If the storage fails.
pub fn run_times(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<BTreeMap<Group, i64>> {
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
    let locations: BTreeSet<LocationId> = entered
        .filter_map(|stream| definitions.streams.get(&stream.stream)?.location)
        .collect();
    let mut times: BTreeMap<Group, i64> = BTreeMap::new();
    for location in locations {
        let process = definitions.locations.get(&location).map(|l| l.process);
        let life = process.and_then(|process| definitions.process_ends.get(&process));
        let (start_ns, end_ns) = life.map_or((0, reader.end_ns()), |l| (l.start_ns, l.end_ns));
        let group = match grouping {
            Grouping::None => Group::All,
            Grouping::Rank => Group::Rank(definitions.rank_of_location(location)),
            Grouping::Location => Group::Location(location),
        };
        let inside = query.window().clip(start_ns, end_ns).max(0);
        *times.entry(group).or_default() += inside;
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
    let definitions = reader.definitions();
    let names = LocationNames::new(definitions);
    let (stats, summary) = region_statistics(reader, query, grouping)?;
    let mut outside = run_times(reader, query, grouping)?;
    let run_ns: i64 = outside.values().sum();
    for ((group, _), of_region) in &stats {
        if let Some(time_ns) = outside.get_mut(group) {
            *time_ns -= of_region.counted.exclusive_ns;
        }
    }
    let uncertain: BTreeSet<Group> = stats
        .iter()
        .filter(|(_, s)| s.counted.is_time_uncertain || s.uncertain_calls != 0)
        .map(|((group, _), _)| *group)
        .collect();
    let mut losses = summary.losses.iter();
    let has_loss = losses.any(|loss| !loss.cause.is_suppressed());
    let outside = outside.into_iter().map(|(group, time_ns)| {
        let (rank, location) = place_of(definitions, &names, group);
        OutsideTime {
            rank,
            location,
            time_ns: time_ns.max(0),
            is_uncertain: uncertain.contains(&group) || (has_loss && group == Group::All),
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
            is_seen && query.takes_region(*region)
        })
        .map(|((group, region), stats)| {
            let (rank, location) = place_of(definitions, &names, group);
            row(definitions, rank, location, region, &stats, run_ns)
        })
        .collect();
    rows.sort_by(|a, b| {
        (b.exclusive_ns, &a.name, a.rank, &a.location).cmp(&(
            a.exclusive_ns,
            &b.name,
            b.rank,
            &b.location,
        ))
    });
    let times = RegionTimes {
        regions: rows,
        outside,
        run_ns,
    };
    Ok((times, summary))
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
    }
}
