//! Time of regions in the parts of a window.

use annals_format::RegionId;
use annals_merger::{Analysis, Frame, Query, ReadSummary, Reader, Result, SliceLength, Window};
use rustc_hash::FxHashMap;

use crate::bins::bounded;

/// Times of regions in parts of a window that are equally long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeProfile {
    /// Borders of the parts, one more than there are parts: trace times in nanoseconds, ascending.
    pub edges_ns: Vec<i64>,
    /// Time of a region in each part, of all locations together, without the regions that it calls, nanoseconds.
    pub regions: Vec<(RegionId, Vec<i64>)>,
}

struct Times<'q> {
    query: &'q Query,
    edges_ns: &'q [i64],
    regions: FxHashMap<RegionId, Vec<i64>>,
}

impl Times<'_> {
    fn add(&mut self, region: RegionId, from_ns: i64, to_ns: i64) {
        let edges = self.edges_ns;
        let parts = edges.len() - 1;
        let times = self.regions.entry(region);
        let times = times.or_insert_with(|| vec![0; parts]);
        let first = edges.partition_point(|edge| *edge <= from_ns);
        for part in first.saturating_sub(1)..parts {
            if edges[part] >= to_ns {
                break;
            }
            let (from, to) = (from_ns.max(edges[part]), to_ns.min(edges[part + 1]));
            times[part] += (to - from).max(0);
        }
    }
}

impl Analysis for Times<'_> {
    const SLICES: SliceLength = SliceLength::Long;

    fn spend(&mut self, _: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        if let Some(innermost) = frames.last()
            && self.query.takes_region(innermost.region)
        {
            self.add(innermost.region, from_ns, to_ns);
        }
    }

    fn merge(&mut self, later: Self) {
        for (region, times) in later.regions {
            match self.regions.get_mut(&region) {
                Some(all) => all
                    .iter_mut()
                    .zip(times)
                    .for_each(|(all, time)| *all += time),
                None => drop(self.regions.insert(region, times)),
            }
        }
    }
}

/// Returns the time of each region in `parts` parts of the query's window, as far as the trace has events there. Regions are in the
/// order of their numbers.
///
/// # Errors
/// If the storage fails.
///
/// # Panics
/// If `parts` is 0.
pub fn time_profile(
    reader: &Reader,
    query: &Query,
    parts: usize,
) -> Result<(TimeProfile, ReadSummary)> {
    assert_ne!(parts, 0, "a profile has at least one part");
    let window: Window = bounded(reader, query.window());
    let length = i128::from(window.to_ns) - i128::from(window.from_ns);
    let edge = |number: usize| {
        let offset = length * number as i128 / parts as i128;
        (i128::from(window.from_ns) + offset) as i64
    };
    let edges_ns: Vec<i64> = (0..=parts).map(edge).collect();
    let new = |_| Times {
        query,
        edges_ns: &edges_ns,
        regions: FxHashMap::default(),
    };
    let (times, summary) = reader.run(&query.within(window), new)?;
    let mut regions: Vec<_> = times.regions.into_iter().collect();
    regions.sort_unstable_by_key(|(region, _)| *region);
    let profile = TimeProfile { edges_ns, regions };
    Ok((profile, summary))
}
