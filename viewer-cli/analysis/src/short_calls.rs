//! Regions whose calls are shorter than what recording a call costs, and how much of the times of others is their recording.
//!
//! A call's enter and leave are recorded partly before and partly after the times that they have: one part lies in the call, the other in
//! its caller. How the two divide is not known, so a region's own time has between none and all of the cost of its calls and of those
//! that it made.

use std::collections::BTreeMap;

use annals_format::RegionId;
use annals_merger::{Analysis, Calls, Frame, Query, Reader, Result, SliceLength, Window};
use rustc_hash::FxHashMap;

use crate::recording_cost::call_cost_ns;
use crate::region_statistics::{Group, Grouping, Statistics};

/// What is known of short calls where most calls are short.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct ShortCalls {
    /// Share of all calls.
    pub share: f64,
    /// What recording a call cost, nanoseconds.
    pub cost_ns: f64,
    /// What recording cost in each region's own time at most, its calls and those that it made, nanoseconds.
    pub recording_ns: BTreeMap<(Group, RegionId), i64>,
}

/// Returns whether half of a region's calls or more are shorter than their recording, given their median or mean, nanoseconds. Those of
/// MPI are no functions that a compiler could leave out.
pub fn is_short(name: &str, typical_ns: Option<i64>, cost_ns: f64) -> bool {
    !name.starts_with("MPI_") && typical_ns.is_some_and(|ns| (ns as f64) < cost_ns)
}

/// Returns what is known of short calls. `None` if most calls are not short, or nothing says what recording a call cost. Reads the calls
/// only where most are short.
///
/// # Errors
/// If the storage fails.
pub(crate) fn short_calls(
    reader: &Reader,
    query: &Query,
    grouping: Grouping,
    statistics: &Statistics,
) -> Result<Option<ShortCalls>> {
    let definitions = reader.definitions();
    let Some(cost_ns) = call_cost_ns(definitions) else {
        return Ok(None);
    };
    let (mut all, mut short) = (0, 0);
    for ((_, region), stats) in statistics {
        all += stats.counted.calls;
        let completed = &stats.counted.completed;
        let typical_ns = completed.percentile(50).or(completed.mean());
        if is_short(&definitions.region_name(*region), typical_ns, cost_ns) {
            short += stats.counted.calls;
        }
    }
    if short <= all / 2 {
        return Ok(None);
    }
    let locations = Calls::new(definitions, query).locations().to_vec();
    let new = |_| Callees {
        window: query.window(),
        calls: FxHashMap::default(),
    };
    let (callees, _) = reader.run(query, new)?;
    let mut calls: BTreeMap<(Group, RegionId), u64> = BTreeMap::new();
    for ((location, region), made) in callees.calls {
        let group = Group::of(definitions, grouping, locations[location]);
        *calls.entry((group, region)).or_default() += made;
    }
    for (key, stats) in statistics {
        *calls.entry(*key).or_default() += stats.counted.calls;
    }
    let cost = |(key, calls)| (key, (calls as f64 * cost_ns) as i64);
    Ok(Some(ShortCalls {
        share: short as f64 / all as f64,
        cost_ns,
        recording_ns: calls.into_iter().map(cost).collect(),
    }))
}

/// Counts the calls that each region of a location made.
struct Callees {
    window: Window,
    calls: FxHashMap<(usize, RegionId), u64>,
}

impl Analysis for Callees {
    const SLICES: SliceLength = SliceLength::AnyOrder;

    fn enter(&mut self, location: usize, frames: &[Frame], _: RegionId, time_ns: i64) -> u32 {
        if let Some(caller) = frames.last() {
            let made = self.calls.entry((location, caller.region)).or_default();
            *made += u64::from(self.window.contains(time_ns));
        }
        0
    }

    fn resume(&mut self, _: usize, _: &[Frame], _: RegionId, _: i64) -> u32 {
        0
    }

    fn merge(&mut self, later: Self) {
        for (key, made) in later.calls {
            *self.calls.entry(key).or_default() += made;
        }
    }
}
