//! Statistics of regions as rows, with names.

use annals_format::{Definitions, RegionId};
use annals_merger::{Query, ReadSummary, Reader, Result};
use serde::Serialize;

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
    /// Exclusive time as a share of that of all rows.
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

/// Returns the rows of a query's regions in its window, most exclusive time first.
///
/// # Errors
/// If the storage fails.
pub fn region_rows(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
) -> Result<(Vec<RegionRow>, ReadSummary)> {
    let definitions = reader.definitions();
    let (stats, summary) = region_statistics(reader, query, grouping)?;
    let whole: i64 = stats.values().map(|stats| stats.counted.exclusive_ns).sum();
    let mut rows: Vec<RegionRow> = stats
        .into_iter()
        .filter(|((_, region), stats)| {
            let is_seen = stats.counted.calls != 0
                || stats.counted.inclusive_ns != 0
                || stats.counted.unmatched_leaves != 0
                || stats.uncertain_calls != 0;
            is_seen && query.takes_region(*region)
        })
        .map(|((group, region), stats)| row(definitions, group, region, &stats, whole))
        .collect();
    rows.sort_by(|a, b| {
        (b.exclusive_ns, &a.name, a.rank, &a.location).cmp(&(
            a.exclusive_ns,
            &b.name,
            b.rank,
            &b.location,
        ))
    });
    Ok((rows, summary))
}

fn row(
    d: &Definitions,
    group: Group,
    region: RegionId,
    stats: &RegionStats,
    whole_ns: i64,
) -> RegionRow {
    let definition = d.regions.get(&region);
    let (rank, location) = match group {
        Group::All => (None, None),
        Group::Rank(rank) => (Some(rank), None),
        Group::Location(id) => {
            let location = d.locations.get(&id);
            let rank = location.and_then(|location| d.ranks.get(&location.process));
            let name = location.map(|location| d.string(location.name).to_owned());
            (rank.map(|rank| rank.rank), Some(name.unwrap_or_default()))
        }
    };
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
        share: if whole_ns == 0 {
            0.0
        } else {
            stats.counted.exclusive_ns as f64 / whole_ns as f64
        },
        open_calls: stats.counted.open_calls,
        unmatched_leaves: stats.counted.unmatched_leaves,
        unleft_calls: stats.counted.unleft_calls,
        uncertain_calls: stats.uncertain_calls,
        uncertain_calls_is_lower_bound: stats.uncertain_is_lower_bound,
        time_is_uncertain: stats.counted.is_time_uncertain,
    }
}
