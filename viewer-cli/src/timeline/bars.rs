//! The bars of a timeline: what the columns of each lane show.

use std::collections::BTreeMap;

use annals_analysis::{FULL, LaneBin, LaneColumn, Lanes, TimeColumns, innermost, own_times};
use annals_format::{LaneKey, LaneKind, LocationId, MAX_LANE_DEPTH, RegionId};
use annals_merger::{Query, ReadSummary, Reader};
use rustc_hash::FxHashMap;

use super::layout::{LaneRow, LaneWait, Run};

/// The bins of the lanes that are drawn.
pub(super) struct Bars<'a> {
    columns: &'a TimeColumns,
    levels: usize,
    /// By lane and depth.
    bins: Vec<Vec<Vec<LaneBin>>>,
}

impl<'a> Bars<'a> {
    /// Reads the bins of the lanes of locations.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub(super) fn read(
        reader: &Reader,
        lanes: &Lanes,
        query: &Query,
        columns: &'a TimeColumns,
        levels: usize,
        chosen: &[LocationId],
    ) -> anyhow::Result<(Self, ReadSummary)> {
        let known = match query.is_by_region() {
            true => FxHashMap::default(),
            false => lanes.depths(reader),
        };
        let places: BTreeMap<LocationId, usize> = chosen.iter().copied().zip(0..).collect();
        let keys = places.keys().flat_map(|location| {
            let (kind, id) = (LaneKind::Location, location.get());
            let depths = known.get(&(kind, id)).copied().unwrap_or(MAX_LANE_DEPTH);
            (0..depths).map(move |depth| LaneKey { kind, id, depth })
        });
        let keys: Vec<LaneKey> = keys.collect();
        let (found, summary) = lanes.bins(reader, columns.range, &keys, query)?;
        let mut bins: Vec<Vec<Vec<LaneBin>>> = vec![Vec::new(); chosen.len()];
        for (key, of_key) in keys.iter().zip(found) {
            let lane = &mut bins[places[&LocationId::new(key.id)]];
            if !of_key.is_empty() {
                lane.resize(key.depth as usize, Vec::new());
                lane.push(of_key);
            }
        }
        let bars = Self {
            columns,
            levels,
            bins,
        };
        Ok((bars, summary))
    }

    /// Returns the most levels that a lane has.
    pub(super) fn depth(&self) -> usize {
        self.bins.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the rows of a lane. `places` has the regions' places in the legend.
    pub(super) fn rows(&self, lane: usize, places: &BTreeMap<RegionId, usize>) -> Vec<LaneRow> {
        let depths = self.bins[lane].iter();
        let shown = depths.map(|bins| self.columns.sum(bins, 1));
        if self.levels > 1 {
            let rows = shown.take(self.levels);
            return rows.map(|row| self.runs(&row, places, true)).collect();
        }
        let row = innermost(&shown.collect::<Vec<_>>());
        match row.is_empty() {
            true => Vec::new(),
            false => vec![self.runs(&row, places, false)],
        }
    }

    /// Returns the regions that bins of the lanes have, without their times.
    pub(super) fn regions(&self) -> BTreeMap<RegionId, (i64, bool)> {
        let bins = self.bins.iter().flatten().flatten();
        let regions = bins.filter_map(|bin| bin.region);
        regions.map(|region| (region, (0, false))).collect()
    }

    /// Adds the time of each region itself, over all lanes, as its bins say: it is not exact.
    pub(super) fn add_own_times(&self, times: &mut BTreeMap<RegionId, (i64, bool)>) {
        for depths in &self.bins {
            own_times(depths, |own| {
                let (ns, is_uncertain) = times.entry(own.region).or_default();
                *ns = ns.saturating_add(own.ns.saturating_mul(own.count.into()));
                *is_uncertain = true;
            });
        }
    }

    /// Places a wait in the innermost call around its begin: sets its call, and ends it with the call. Returns whether it lies in one.
    pub(super) fn place(&self, lane: usize, wait: &mut LaneWait) -> bool {
        let range = self.columns.range;
        let place = range.place(wait.from_ns);
        let bin_at = |bins: &[LaneBin]| {
            let at = bins.partition_point(|bin| i64::from(bin.place + bin.count) <= place);
            let bin = bins.get(at)?;
            (i64::from(bin.place) <= place).then_some((at, bin.region?))
        };
        let depths = self.bins[lane].iter().enumerate().rev();
        let mut found = depths.filter_map(|(depth, bins)| Some((depth, bins, bin_at(bins)?)));
        let Some((depth, bins, (at, region))) = found.next() else {
            return false;
        };
        let mut end_ns = i64::MAX;
        let mut next = bins[at].place;
        for bin in &bins[at..] {
            if bin.region != Some(region) || bin.place != next {
                break;
            }
            next = bin.place + bin.count;
            let after_ns = range.start_ns(next.into());
            end_ns = bin.only_ns.map_or(after_ns, |only| only.1);
            if end_ns < after_ns {
                break;
            }
        }
        // A call that continues after the picture ends no wait.
        if next < range.count {
            wait.to_ns = wait.to_ns.min(end_ns);
        }
        let level = if self.levels > 1 { depth } else { 0 };
        wait.call = Some((region, level as u32));
        wait.from_ns < wait.to_ns
    }

    /// Returns the bars of a row. `are_counted`: calls are counted, and single ones are known by their times.
    fn runs(
        &self,
        row: &[LaneColumn],
        places: &BTreeMap<RegionId, usize>,
        are_counted: bool,
    ) -> LaneRow {
        let mut runs: Vec<Run> = Vec::new();
        for (at, column) in row.iter().enumerate() {
            let Some(region) = column
                .region
                .and_then(|region| places.get(&region).copied())
            else {
                continue;
            };
            let only_ns = column.only_ns.filter(|_| are_counted);
            let fill = only_ns.map_or_else(|| column.fill(), |_| FULL);
            if let Some(last) = runs.last_mut()
                && (last.to, last.region, last.fill) == (at, region, fill)
                && is_continued(last.call_ns, only_ns)
            {
                last.to += 1;
                last.calls = last.calls.map(|calls| calls + column.calls);
                if let (Some(call), Some(only)) = (&mut last.call_ns, only_ns) {
                    call.1 = only.1;
                }
                continue;
            }
            runs.push(Run {
                from: at,
                to: at + 1,
                region,
                fill,
                calls: are_counted.then_some(column.calls),
                call_ns: only_ns,
                is_whole: false,
            });
        }
        for number in 0..runs.len() {
            let is_before = number > 0 && runs[number - 1].to == runs[number].from;
            let is_after = runs
                .get(number + 1)
                .is_some_and(|next| next.from == runs[number].to);
            let run = &mut runs[number];
            let (from, to) = (
                self.columns.start_ns(run.from),
                self.columns.start_ns(run.to),
            );
            let is_known =
                |(begin, end): (i64, i64)| (!is_before || begin > from) && (!is_after || end < to);
            run.is_whole = run.call_ns.is_some_and(is_known);
            // A bar that is in other bars' columns has these.
            run.call_ns = run
                .call_ns
                .map(|(begin, end)| (begin.max(from), end.min(to)));
        }
        LaneRow { runs }
    }
}

/// Returns whether a column continues what a bar has: the only call of both, or several calls.
fn is_continued(bar_ns: Option<(i64, i64)>, column_ns: Option<(i64, i64)>) -> bool {
    match (bar_ns, column_ns) {
        (Some(bar), Some(column)) => bar.1 == column.0,
        (None, None) => true,
        _ => false,
    }
}
