//! The bars of a timeline: calls, summed up by column.

use std::collections::BTreeMap;

use annals_analysis::{bin_of, bin_start};
use annals_format::{Definitions, RegionId};
use annals_merger::{Analysis, Close, Frame, Query, Reader, Window};
use rustc_hash::FxHashSet;

use super::layout::{LaneRow, LaneWait, Run};
use crate::names::is_standard_library;

/// A region's share of one column of one row.
#[derive(Clone, Copy, Debug)]
struct Share {
    region: RegionId,
    ns: i64,
    /// Calls that began in the column.
    begun: u64,
    /// Begin and end of the last call.
    call_ns: (i64, i64),
}

/// One column of one row. Calls of a row follow each other: at most one is open where a column begins.
#[derive(Clone, Default, Debug)]
struct Cell {
    shares: Vec<Share>,
    /// The region of the call that is open where the column begins.
    open: Option<RegionId>,
}

impl Cell {
    /// Adds a part of a call.
    fn add(&mut self, region: RegionId, ns: i64, begun: u64, call_ns: (i64, i64)) {
        if begun == 0 {
            self.open = Some(region);
        }
        if let Some(share) = self.shares.iter_mut().find(|share| share.region == region) {
            share.ns += ns;
            share.begun += begun;
            share.call_ns = call_ns;
        } else {
            self.shares.push(Share {
                region,
                ns,
                begun,
                call_ns,
            });
        }
    }

    fn begun(&self) -> u64 {
        self.shares.iter().map(|share| share.begun).sum()
    }
}

/// Draws the calls of the lanes.
pub(super) struct Bars<'a> {
    window: Window,
    /// Trace time of the trace's end, nanoseconds.
    trace_end_ns: i64,
    columns: usize,
    levels: usize,
    /// By location: its lane.
    lanes: Vec<Option<usize>>,
    /// By lane, level and column.
    cells: Vec<Vec<Vec<Cell>>>,
    /// By lane: waits by the time at which they begin.
    waits: Vec<Vec<LaneWait>>,
    /// Time in each region itself, nanoseconds.
    pub(super) exclusive: BTreeMap<RegionId, i64>,
    /// Regions with calls that losses, or the end of their location, leave uncertain.
    pub(super) uncertain: FxHashSet<RegionId>,
    /// Calls that are deeper than the levels drawn.
    pub(super) hidden_calls: u64,
    /// Regions of standard libraries. Empty if regions were chosen.
    std_regions: FxHashSet<RegionId>,
    /// Their calls within others of them.
    pub(super) std_calls: u64,
    filter: &'a Query,
}

/// The tag of a call: its level in the picture, and whether it is drawn.
#[derive(Clone, Copy)]
struct Tag {
    level: u32,
    is_drawn: bool,
}

impl Tag {
    const fn of(frame: &Frame) -> Self {
        Self {
            level: frame.tag >> 1,
            is_drawn: frame.tag & 1 != 0,
        }
    }

    const fn encode(self) -> u32 {
        self.level << 1 | self.is_drawn as u32
    }
}

impl<'a> Bars<'a> {
    /// Draws nothing yet. `lanes` has the lane of each location by its number, `waits` those of each lane.
    pub(super) fn new(
        reader: &Reader,
        filter: &'a Query,
        window: Window,
        columns: usize,
        levels: usize,
        lanes: Vec<Option<usize>>,
        waits: Vec<Vec<LaneWait>>,
    ) -> Self {
        Self {
            window,
            trace_end_ns: reader.extent().end_ns,
            columns,
            levels,
            lanes,
            cells: vec![Vec::new(); waits.len()],
            waits,
            exclusive: BTreeMap::new(),
            uncertain: FxHashSet::default(),
            hidden_calls: 0,
            std_regions: std_regions(reader.definitions(), filter),
            std_calls: 0,
            filter,
        }
    }

    /// Returns the rows of a lane. `places` has the regions' places in the legend.
    pub(super) fn rows(&self, lane: usize, places: &BTreeMap<RegionId, usize>) -> Vec<LaneRow> {
        let rows = self.cells[lane].iter();
        rows.map(|row| runs(row, places, self.levels <= 1))
            .collect()
    }

    /// Returns the waits of a lane that lie in calls of the filter's regions, and removes them.
    pub(super) fn take_waits(&mut self, lane: usize) -> Vec<LaneWait> {
        let mut waits = std::mem::take(&mut self.waits[lane]);
        let is_by_region = self.filter.is_by_region();
        waits.retain(|wait| match wait.call {
            Some((region, _)) => self.filter.takes_region(region) && wait.from_ns < wait.to_ns,
            None => !is_by_region,
        });
        waits
    }

    /// Returns the regions that are drawn.
    pub(super) fn regions(&self) -> FxHashSet<RegionId> {
        let cells = self.cells.iter().flatten().flatten();
        let shares = cells.flat_map(|cell| &cell.shares);
        shares.map(|share| share.region).collect()
    }

    /// Ends the waits that begin in a call with the call. The innermost call is closed first.
    fn end_waits(&mut self, lane: usize, call: &Frame, left_ns: i64, level: u32, how: Close) {
        // A call that continues after the window ends no wait; one that is open when its location ends does.
        let is_over =
            how != Close::Open || left_ns < self.window.to_ns || left_ns >= self.trace_end_ns;
        let waits = &mut self.waits[lane];
        let first = waits.partition_point(|wait| wait.from_ns < call.entered_ns);
        for wait in &mut waits[first..] {
            if is_over && wait.from_ns >= left_ns {
                break;
            }
            if wait.call.is_none() {
                wait.call = Some((call.region, level));
                if is_over {
                    wait.to_ns = wait.to_ns.min(left_ns);
                }
            }
        }
    }

    /// Draws a call, or a part of one, from one time to another.
    fn draw_call(&mut self, lane: usize, level: usize, call: &Frame, from_ns: i64, to_ns: i64) {
        let region = call.region;
        let begins = from_ns == call.entered_ns && from_ns >= self.window.from_ns;
        let (from_ns, to_ns) = (
            from_ns.max(self.window.from_ns),
            to_ns.min(self.window.to_ns),
        );
        if from_ns >= to_ns || !self.filter.takes_region(region) {
            return;
        }
        let rows = &mut self.cells[lane];
        while rows.len() <= level {
            rows.push(vec![Cell::default(); self.columns]);
        }
        let first = bin_of(self.window, self.columns, from_ns);
        let last = bin_of(self.window, self.columns, to_ns - 1);
        let call_ns = (from_ns, to_ns);
        for (column, cell) in rows[level][first..=last].iter_mut().enumerate() {
            let begun = u64::from(column == 0 && begins);
            let column = first + column;
            let start = bin_start(self.window, self.columns, column);
            let end = bin_start(self.window, self.columns, column + 1);
            // A column may be shorter than a nanosecond.
            let inside = (to_ns.min(end) - from_ns.max(start)).max(1);
            cell.add(region, inside, begun, call_ns);
        }
    }
}

impl Analysis for Bars<'_> {
    fn enter(&mut self, _: usize, frames: &[Frame], region: RegionId, _: i64) -> u32 {
        let around = frames.last();
        let level = around.map(Tag::of);
        let level = level.map_or(0, |around| around.level + u32::from(around.is_drawn));
        let is_std = |region: &RegionId| self.std_regions.contains(region);
        let is_nested = is_std(&region) && around.is_some_and(|around| is_std(&around.region));
        let is_drawn = !is_nested && self.filter.takes_region(region);
        Tag { level, is_drawn }.encode()
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let (Some(lane), Some(top)) = (self.lanes[location], frames.last()) else {
            return;
        };
        let inside = self.window.clip(from_ns, to_ns);
        if inside > 0 {
            *self.exclusive.entry(top.region).or_default() += inside;
        }
        if self.levels == 1 {
            self.draw_call(lane, 0, top, from_ns, to_ns);
        }
    }

    fn close(&mut self, location: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        let Some(lane) = self.lanes[location] else {
            return;
        };
        let Tag { level, is_drawn } = Tag::of(frame);
        self.end_waits(lane, frame, time_ns, level, how);
        if frame.is_uncertain && self.window.overlaps(frame.entered_ns, time_ns) {
            self.uncertain.insert(frame.region);
        }
        if self.levels == 1 {
            return;
        }
        let level = level as usize;
        let is_here = u64::from(time_ns > self.window.from_ns);
        if is_drawn && level < self.levels {
            self.draw_call(lane, level, frame, frame.entered_ns, time_ns);
        } else if is_drawn {
            self.hidden_calls += is_here;
        } else if self.filter.takes_region(frame.region) {
            self.std_calls += is_here;
        }
    }
}

/// Returns the regions of standard libraries, or none if the filter chooses regions.
fn std_regions(definitions: &Definitions, filter: &Query) -> FxHashSet<RegionId> {
    if filter.is_by_region() {
        return FxHashSet::default();
    }
    let regions = definitions.regions.keys().copied();
    regions
        .filter(|region| is_standard_library(&definitions.region_name(*region)))
        .collect()
}

/// Returns the bars of a row. `are_parts` means that the cells have only the time that calls spent in themselves.
fn runs(cells: &[Cell], places: &BTreeMap<RegionId, usize>, are_parts: bool) -> LaneRow {
    let mut runs: Vec<(Run, RegionId)> = Vec::new();
    for (column, cell) in cells.iter().enumerate() {
        // Of equal shares, the one that is first in the legend.
        let most = cell
            .shares
            .iter()
            .filter_map(|share| Some((share, *places.get(&share.region)?)));
        let most = most.max_by_key(|(share, place)| (share.ns, std::cmp::Reverse(*place)));
        let Some((share, region)) = most else {
            continue;
        };
        match runs.last_mut() {
            Some((last, _)) if last.to == column && last.region == region => last.to += 1,
            _ => runs.push((
                Run {
                    from: column,
                    to: column + 1,
                    region,
                    calls: None,
                    call_ns: None,
                },
                share.region,
            )),
        }
    }
    let counted = runs.into_iter().map(|(mut run, region)| {
        if are_parts {
            return run;
        }
        let inside = &cells[run.from..run.to];
        let begun: u64 = inside.iter().map(Cell::begun).sum();
        let from_before = u64::from(inside[0].open == Some(region));
        // The last call may be of another region, and continue in the columns of that region's bar.
        let next = cells.get(run.to).and_then(|cell| cell.open);
        let to_next = u64::from(next.is_some_and(|next| next != region));
        let calls = (begun + from_before).saturating_sub(to_next);
        let shares = inside.iter().flat_map(|cell| &cell.shares);
        let mut of_region = shares.filter(|share| share.region == region);
        run.call_ns = of_region
            .next()
            .filter(|_| calls == 1)
            .map(|share| share.call_ns);
        run.calls = Some(calls);
        run
    });
    LaneRow {
        runs: counted.collect(),
    }
}
