//! TimeColumns of a picture: what a column shows, and how full it is.

use annals_format::RegionId;
use annals_merger::Window;

use super::bins::{BinRange, LaneBin};

/// Bins of a column, at least, as long as bins can be that short.
const LEAST_BINS: u128 = 2;
/// Bins of all columns, at least: few columns are as exact as many.
const LEAST_BINS_OF_ALL: u128 = 1024;

/// The step of a column that is full.
pub const FULL: u8 = 16;

/// Returns how full a column is, as all pictures show it: 0 if it is empty, else from 1 to [`FULL`].
pub fn fill_step(busy_ns: i64, whole_ns: i64) -> u8 {
    let (busy, whole) = (i128::from(busy_ns.max(0)), i128::from(whole_ns.max(1)));
    let steps = (busy * i128::from(FULL) + whole - 1) / whole;
    steps.min(FULL.into()) as u8
}

/// Columns of time that are about equally long. Each is some bins that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeColumns {
    /// The bins of all columns.
    pub range: BinRange,
    window: Window,
    /// Places of the bins with which columns begin, and at the end that after the last.
    borders: Vec<u32>,
}

impl TimeColumns {
    /// Divides a window into columns. They begin and end with bins, of which each has two at least, unless it is shorter than two
    /// nanoseconds: columns that are narrower than a bin share it.
    ///
    /// # Panics
    /// If there are more than 2³⁰ columns, or none.
    pub fn of(window: Window, count: usize) -> Self {
        assert!((1..=1 << 30).contains(&count), "{count} columns");
        let span = (i128::from(window.to_ns) - i128::from(window.from_ns)).max(1) as u128;
        let bins = (count as u128 * LEAST_BINS).max(LEAST_BINS_OF_ALL);
        let width = (span / bins).max(1);
        let level = width.ilog2().min(62) as u8;
        let first = window.from_ns >> level;
        let end = (window.to_ns.saturating_sub(1)).max(window.from_ns) >> level;
        let bins = (end - first + 1) as u32;
        let from = i128::from(first) << level;
        let half = (1_i128 << level) / 2;
        let border = |column: usize| {
            let at = i128::from(window.from_ns) + (span * column as u128 / count as u128) as i128;
            ((at - from + half) >> level).clamp(0, bins.into()) as u32
        };
        let mut borders: Vec<u32> = (0..=count).map(border).collect();
        borders[0] = 0;
        borders[count] = bins;
        Self {
            range: BinRange {
                level,
                first,
                count: bins,
            },
            window,
            borders,
        }
    }

    /// Returns the number of columns.
    pub fn count(&self) -> usize {
        self.borders.len() - 1
    }

    /// Returns the time at which a column begins, or the last one ends, nanoseconds: within the window.
    pub fn start_ns(&self, column: usize) -> i64 {
        let at = self.range.start_ns(self.borders[column].into());
        at.clamp(self.window.from_ns, self.window.to_ns)
    }

    /// Returns the bins of a column: from one to before another.
    fn bins(&self, column: usize) -> (u32, u32) {
        let (from, to) = (self.borders[column], self.borders[column + 1]);
        let from = from.min(self.range.count - 1);
        (from, to.max(from + 1))
    }

    /// Returns what a column of a lane with a number of locations shows, for each column, from the lane's bins.
    pub fn sum(&self, bins: &[LaneBin], members: usize) -> Vec<LaneColumn> {
        let mut times: Vec<(RegionId, i64)> = Vec::new();
        let mut at = 0;
        let column = |column: usize| {
            let (from, to) = self.bins(column);
            while bins
                .get(at)
                .is_some_and(|bin| bin.place + bin.count <= from)
            {
                at += 1;
            }
            let ends = [from, to].map(|place| self.range.start_ns(place.into()));
            let inside_ns = self.window.clip(ends[0], ends[1]).max(1);
            let mut sum = LaneColumn {
                whole_ns: inside_ns.saturating_mul(members as i64),
                ..LaneColumn::default()
            };
            times.clear();
            let mut parts = 0;
            for bin in bins[at..].iter().take_while(|bin| bin.place < to) {
                let (first, last) = (bin.place.max(from), (bin.place + bin.count).min(to));
                let inside = i64::from(last.saturating_sub(first));
                sum.busy_ns = sum
                    .busy_ns
                    .saturating_add(bin.busy_ns.saturating_mul(inside));
                sum.calls += bin.calls * inside as u64;
                sum.longest_ns = sum.longest_ns.max(bin.longest_ns);
                if let Some(region) = bin.region {
                    let ns = bin.region_ns.saturating_mul(inside);
                    match times.iter_mut().find(|known| known.0 == region) {
                        Some(known) => known.1 = known.1.saturating_add(ns),
                        None => times.push((region, ns)),
                    }
                }
                parts += 1;
                let of_bins = (
                    self.range.start_ns(first.into()),
                    self.range.start_ns(last.into()),
                );
                let only = bin
                    .only_ns
                    .map(|only| (only.0.max(of_bins.0), only.1.min(of_bins.1)));
                sum.only_ns = match (sum.only_ns, only) {
                    (None, only) if parts == 1 => only,
                    (Some(before), Some(only)) if before.1 == only.0 && times.len() == 1 => {
                        Some((before.0, only.1))
                    }
                    _ => None,
                };
            }
            let most = times
                .iter()
                .max_by_key(|known| (known.1, std::cmp::Reverse(known.0)));
            // The first and the last bin may continue outside of the window.
            sum.busy_ns = sum.busy_ns.min(sum.whole_ns);
            sum.region = most.map(|known| known.0);
            sum.region_ns = most.map_or(0, |known| known.1);
            sum
        };
        (0..self.count()).map(column).collect()
    }
}

/// What a column of a lane shows. Times in nanoseconds, of all its locations together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LaneColumn {
    /// The region that has most time of those with most in one of its bins; of several, the first by number. `None` if it is empty.
    pub region: Option<RegionId>,
    /// The time of that region in these bins.
    pub region_ns: i64,
    /// Time of all calls of the lane in it.
    pub busy_ns: i64,
    /// Time that calls could have in it.
    pub whole_ns: i64,
    /// Calls that end in it.
    pub calls: u64,
    /// Length of the longest call that ends in it.
    pub longest_ns: i64,
    /// Begin and end of what one call has of it, if only one has a part of it.
    pub only_ns: Option<(i64, i64)>,
}

impl LaneColumn {
    /// Returns how full it is.
    pub fn fill(&self) -> u8 {
        fill_step(self.busy_ns, self.whole_ns)
    }
}

/// Returns what a lane shows that has one row for calls of all depths: in each column the deepest calls that have at least half of
/// it; if none have, the outermost. `depths` has the columns of each depth.
pub fn innermost(depths: &[Vec<LaneColumn>]) -> Vec<LaneColumn> {
    let Some(outermost) = depths.first() else {
        return Vec::new();
    };
    let deepest = |column: usize| {
        let mut columns = depths.iter().rev().map(|of| of[column]);
        let is_most = |of: &LaneColumn| of.busy_ns.saturating_mul(2) >= of.whole_ns;
        columns.find(is_most).unwrap_or(outermost[column])
    };
    (0..outermost.len()).map(deepest).collect()
}

/// Calls `add` with time that is spent in a region itself, without the calls that it makes: with the place of a bin, how many bins are
/// alike, the depth and region, and the time in each of them, nanoseconds. What a bin has at a depth, and not at the next one, counts for
/// the region that has most time there. `depths` has the bins of each depth of a lane.
pub fn own_times(depths: &[Vec<LaneBin>], mut add: impl FnMut(OwnTime)) {
    for (depth, own) in depths.iter().enumerate() {
        let deeper = depths.get(depth + 1).map_or(&[][..], |deeper| deeper);
        let mut at = 0;
        for bin in own {
            let Some(region) = bin.region else { continue };
            let (mut place, end) = (bin.place, bin.place + bin.count);
            while place < end {
                while deeper
                    .get(at)
                    .is_some_and(|of| of.place + of.count <= place)
                {
                    at += 1;
                }
                let (to, inner_ns) = match deeper.get(at) {
                    Some(of) if of.place <= place => (end.min(of.place + of.count), of.busy_ns),
                    Some(of) => (end.min(of.place), 0),
                    None => (end, 0),
                };
                let ns = bin.busy_ns.saturating_sub(inner_ns).max(0);
                if ns != 0 {
                    add(OwnTime {
                        place,
                        count: to - place,
                        depth,
                        region,
                        ns,
                    });
                }
                place = to;
            }
        }
    }
}

/// Time in a region itself in each of some bins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnTime {
    /// Place of the first bin.
    pub place: u32,
    /// How many bins are alike.
    pub count: u32,
    /// Depth of the calls.
    pub depth: usize,
    /// Their region.
    pub region: RegionId,
    /// The time in each of the bins, nanoseconds.
    pub ns: i64,
}
