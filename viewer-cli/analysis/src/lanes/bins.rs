//! The bins of lanes: from the rows of the overview where it has them, and from the calls themselves elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use annals_format::{LaneKey, LaneKind, LocationId, OverviewDensity, OverviewRow, RegionId};
use annals_merger::{
    Analysis, Close, Ending, Frame, LaneGroups, Query, ReadSummary, Reader, Result, SliceLength,
    Window,
};
use rustc_hash::FxHashMap;

/// Bins of one level that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BinRange {
    /// Their level: each is 2 to the power of it nanoseconds long.
    pub level: u8,
    /// Number of the first.
    pub first: i64,
    /// How many there are.
    pub count: u32,
}

impl BinRange {
    /// Returns the window of the bins. At the ends of time it is shorter.
    pub fn window(&self) -> Window {
        let start = |bin: i128| {
            let at_ns = bin << self.level;
            at_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let first = i128::from(self.first);
        Window {
            from_ns: start(first),
            to_ns: start(first + i128::from(self.count)),
        }
    }

    /// Returns the length of a bin, nanoseconds.
    pub const fn length_ns(&self) -> i64 {
        1 << self.level
    }

    /// Returns the place of a time among the bins, from 0. It may be outside.
    pub const fn place(&self, time_ns: i64) -> i64 {
        (time_ns >> self.level).saturating_sub(self.first)
    }

    /// Returns the start of the bin at a place, nanoseconds.
    pub const fn start_ns(&self, place: i64) -> i64 {
        self.first.saturating_add(place) << self.level
    }
}

/// What is in a bin of a lane, or in each of several bins that follow each other. Times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneBin {
    /// Place of the first among the bins that were asked for, from 0.
    pub place: u32,
    /// How many bins are alike.
    pub count: u32,
    /// Calls that end in it.
    pub calls: u64,
    /// Time of all calls in it.
    pub busy_ns: i64,
    /// The region with the most time; of several, the first by number. `None` if there is no time.
    pub region: Option<RegionId>,
    /// The time of that region.
    pub region_ns: i64,
    /// Length of the longest call that ends in it.
    pub longest_ns: i64,
    /// Begin and end of what one call has of these bins, if there is only one call in them.
    pub only_ns: Option<(i64, i64)>,
    /// Whether no call begins or ends in it, as far as calls were read for it.
    pub is_whole: bool,
}

impl LaneBin {
    fn of_row(row: &OverviewRow, range: BinRange) -> Self {
        Self {
            place: (row.bin - range.first) as u32,
            count: 1,
            calls: row.calls,
            busy_ns: row.busy_ns,
            region: (row.region_ns != 0).then_some(row.region),
            region_ns: row.region_ns,
            longest_ns: row.longest_ns,
            only_ns: None,
            is_whole: false,
        }
    }
}

/// What some calls have in one bin.
#[derive(Clone, Debug, Default)]
struct Cell {
    calls: u64,
    longest_ns: i64,
    /// How many calls have a part in it, and begin and end of the last part.
    parts: u32,
    part_ns: (i64, i64),
    /// A region with time, and that.
    first: Option<(RegionId, i64)>,
    /// The others: most bins have none, so that nothing is allocated for them.
    others: Vec<(RegionId, i64)>,
}

impl Cell {
    #[inline]
    fn add_time(&mut self, region: RegionId, ns: i64) {
        let known = match &mut self.first {
            Some(first) if first.0 == region => Some(first),
            Some(_) => self.others.iter_mut().find(|known| known.0 == region),
            None => Some(self.first.insert((region, 0))),
        };
        match known {
            Some(known) => known.1 = known.1.saturating_add(ns),
            None => self.others.push((region, ns)),
        }
    }

    /// Returns the regions with time, and that.
    fn regions(&self) -> impl Iterator<Item = &(RegionId, i64)> {
        self.first.iter().chain(&self.others)
    }
}

/// A region that is open in whole bins, from one to before another.
#[derive(Clone, Copy, Debug)]
struct Whole {
    from: u32,
    to: u32,
    region: RegionId,
}

/// A bin that is not wanted, and one that is, and empty so far.
const UNWANTED: u32 = u32::MAX;
const EMPTY: u32 = u32::MAX - 1;

/// Adds up the calls of a lane.
#[derive(Debug)]
struct LaneSum {
    range: BinRange,
    /// By bin: the number of its cell.
    numbers: Vec<u32>,
    cells: Vec<Cell>,
    wholes: Vec<Whole>,
}

impl LaneSum {
    /// Sums for the wanted bins: from one to before another, ascending.
    fn new(range: BinRange, wanted: &[(u32, u32)]) -> Self {
        let mut numbers = vec![UNWANTED; range.count as usize];
        for (from, to) in wanted {
            numbers[*from as usize..*to as usize].fill(EMPTY);
        }
        Self {
            range,
            numbers,
            cells: Vec::new(),
            wholes: Vec::new(),
        }
    }

    /// Returns the cell of a bin. `None` if it is not wanted.
    #[inline]
    fn cell(&mut self, place: i64) -> Option<&mut Cell> {
        let number = self.numbers.get_mut(usize::try_from(place).ok()?)?;
        match *number {
            UNWANTED => return None,
            EMPTY => {
                *number = self.cells.len() as u32;
                self.cells.push(Cell::default());
            }
            _ => {}
        }
        self.cells.get_mut(*number as usize)
    }

    /// Adds a call. `has_ended`: it ends at its end, and does not only reach it.
    #[inline]
    fn add(&mut self, region: RegionId, from_ns: i64, to_ns: i64, has_ended: bool) {
        let (first, last) = (self.range.place(from_ns), self.range.place(to_ns));
        if has_ended && let Some(cell) = self.cell(last) {
            cell.calls += 1;
            cell.longest_ns = cell.longest_ns.max(to_ns.saturating_sub(from_ns));
            if from_ns == to_ns {
                cell.parts += 1;
                cell.part_ns = (from_ns, to_ns);
            }
        }
        if first == last {
            self.add_part(first, region, from_ns, to_ns);
            return;
        }
        let next = first.saturating_add(1);
        self.add_part(first, region, from_ns, self.range.start_ns(next));
        self.add_part(last, region, self.range.start_ns(last), to_ns);
        let from = next.max(0);
        let to = last.min(self.range.count.into());
        if from < to {
            let (from, to) = (from as u32, to as u32);
            self.wholes.push(Whole { from, to, region });
        }
    }

    #[inline]
    fn add_part(&mut self, place: i64, region: RegionId, from_ns: i64, to_ns: i64) {
        if from_ns >= to_ns {
            return;
        }
        if let Some(cell) = self.cell(place) {
            cell.parts += 1;
            cell.part_ns = (from_ns, to_ns);
            cell.add_time(region, to_ns - from_ns);
        }
    }

    /// Adds what another one counted of the same bins.
    fn merge(&mut self, other: Self) {
        for (place, number) in other.numbers.iter().enumerate() {
            let Some(theirs) = other.cells.get(*number as usize) else {
                continue;
            };
            let Some(own) = self.cell(place as i64) else {
                continue;
            };
            own.calls += theirs.calls;
            own.longest_ns = own.longest_ns.max(theirs.longest_ns);
            if theirs.parts != 0 {
                own.parts += theirs.parts;
                own.part_ns = theirs.part_ns;
            }
            for (region, ns) in theirs.regions() {
                own.add_time(*region, *ns);
            }
        }
        self.wholes.extend(other.wholes);
    }

    /// Returns the wanted bins that are not empty, in order.
    fn finish(self) -> Vec<LaneBin> {
        let changes = self.wholes.iter().flat_map(|whole| {
            let Whole { from, to, region } = *whole;
            [(from, region, 1), (to, region, -1)]
        });
        let mut changes: Vec<(u32, RegionId, i64)> = changes.collect();
        changes.sort_unstable();
        let mut changes = changes.into_iter().peekable();
        let mut open: BTreeMap<RegionId, i64> = BTreeMap::new();
        let mut bins: Vec<LaneBin> = Vec::new();
        let mut times: Vec<(RegionId, i64)> = Vec::new();
        for (place, number) in (0..).zip(&self.numbers) {
            let mut is_same = true;
            while let Some((_, region, change)) = changes.next_if(|change| change.0 == place) {
                *open.entry(region).or_default() += change;
                is_same = false;
            }
            if !is_same {
                open.retain(|_, count| *count != 0);
            }
            let cell = self.cells.get(*number as usize);
            if *number == UNWANTED || (cell.is_none() && open.is_empty()) {
                continue;
            }
            match bins.last_mut() {
                // Nothing begins or ends in it.
                Some(last)
                    if is_same
                        && cell.is_none()
                        && last.is_whole
                        && last.place + last.count == place =>
                {
                    last.count += 1;
                    if let Some(only) = &mut last.only_ns {
                        only.1 = self.range.start_ns(i64::from(place) + 1);
                    }
                }
                _ => bins.push(self.bin(place, cell, &open, &mut times)),
            }
        }
        bins
    }

    /// Returns the values of a bin. `times` is memory for the time of each region.
    fn bin(
        &self,
        place: u32,
        cell: Option<&Cell>,
        open: &BTreeMap<RegionId, i64>,
        times: &mut Vec<(RegionId, i64)>,
    ) -> LaneBin {
        let length_ns = self.range.length_ns();
        let whole = open
            .iter()
            .map(|(region, count)| (*region, count.saturating_mul(length_ns)));
        times.clear();
        times.extend(whole);
        let opened = times.len();
        for (region, ns) in cell.iter().flat_map(|cell| cell.regions()) {
            match times[..opened].binary_search_by_key(region, |known| known.0) {
                Ok(at) => times[at].1 = times[at].1.saturating_add(*ns),
                Err(_) => times.push((*region, *ns)),
            }
        }
        let most = times.iter().max_by_key(|known| (known.1, Reverse(known.0)));
        let parts = open.values().sum::<i64>() + cell.map_or(0, |cell| cell.parts.into());
        let start_ns = self.range.start_ns(place.into());
        let whole_ns = (start_ns, start_ns.saturating_add(length_ns));
        let part_ns = cell.filter(|cell| cell.parts != 0).map(|cell| cell.part_ns);
        LaneBin {
            place,
            count: 1,
            is_whole: cell.is_none(),
            calls: cell.map_or(0, |cell| cell.calls),
            busy_ns: times.iter().fold(0, |sum, time| sum.saturating_add(time.1)),
            region: most.map(|known| known.0),
            region_ns: most.map_or(0, |known| known.1),
            longest_ns: cell.map_or(0, |cell| cell.longest_ns),
            only_ns: (parts == 1).then_some(part_ns.unwrap_or(whole_ns)),
        }
    }
}

/// A group or location whose calls are read.
#[derive(Debug)]
struct Target {
    kind: LaneKind,
    /// By depth: the number of the lane.
    lanes: Vec<Option<usize>>,
}

/// What is read.
struct Plan<'a> {
    query: &'a Query,
    range: BinRange,
    /// By lane: the bins that are unknown.
    unknown: &'a [Vec<(u32, u32)>],
    targets: Vec<Target>,
    /// By number of the location: the targets.
    of_location: Vec<Vec<usize>>,
    /// By number of the location: where calls end that are open at its end, or at that of what is read, in lanes of several locations.
    ends_ns: Vec<i64>,
}

/// Adds up the calls of several lanes.
struct LaneSums<'a> {
    plan: &'a Plan<'a>,
    /// Those of lanes with a call so far.
    sums: Vec<Option<LaneSum>>,
}

impl LaneSums<'_> {
    /// Returns the number of calls around the next one that are in lanes.
    fn depth(&self, around: &[Frame]) -> usize {
        match (self.plan.query.is_by_region(), around.last()) {
            (true, Some(last)) => last.tag as usize,
            _ => around.len(),
        }
    }
}

impl Analysis for LaneSums<'_> {
    const SLICES: SliceLength = SliceLength::Long;

    /// The tag is the depth of calls in it.
    #[inline]
    fn enter(&mut self, _: usize, around: &[Frame], region: RegionId, _: i64) -> u32 {
        let depth = self.depth(around) as u32;
        depth + u32::from(self.plan.query.takes_region(region))
    }

    #[inline]
    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, end_ns: i64, how: Close) {
        if !self.plan.query.takes_region(frame.region) {
            return;
        }
        let depth = self.depth(around);
        for target in &self.plan.of_location[location] {
            let target = &self.plan.targets[*target];
            let Some(Some(lane)) = target.lanes.get(depth) else {
                continue;
            };
            let end_ns = match how {
                Close::Open if target.kind != LaneKind::Location => {
                    self.plan.ends_ns[location].max(frame.entered_ns)
                }
                _ => end_ns,
            };
            let Plan { range, unknown, .. } = self.plan;
            let sum = self.sums[*lane].get_or_insert_with(|| LaneSum::new(*range, &unknown[*lane]));
            sum.add(frame.region, frame.entered_ns, end_ns, how != Close::Open);
        }
    }

    fn merge(&mut self, later: Self) {
        for (sum, later) in self.sums.iter_mut().zip(later.sums) {
            match (sum, later) {
                (Some(sum), Some(later)) => sum.merge(later),
                (sum @ None, later) => *sum = later,
                (_, None) => {}
            }
        }
    }
}

/// The rows that the overview has of a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneRows {
    /// Those of the bins that were asked for, in order.
    pub(crate) own: Vec<OverviewRow>,
    /// Those of the bins of the next level that these are in, in order.
    pub(crate) above: Vec<OverviewRow>,
    /// Rows are missing, because a block cannot be read or there is no overview.
    pub(crate) is_damaged: bool,
}

impl LaneRows {
    /// Returns what is known of a lane without an overview.
    pub(crate) const fn unknown_at_all() -> Self {
        Self {
            own: Vec::new(),
            above: Vec::new(),
            is_damaged: true,
        }
    }

    /// Returns the places of bins of which the overview says nothing, from one to before another. From the level that `least` has for a
    /// time on, levels have rows of all bins that are not empty and begin then; it has the last time for which that is so, too.
    fn unknown(
        &self,
        range: BinRange,
        life: Window,
        least: impl Fn(i64) -> (u8, i64),
    ) -> Vec<(u32, u32)> {
        let mut unknown: Vec<(u32, u32)> = Vec::new();
        let mut add = |from: i64, to: i64| match unknown.last_mut() {
            Some(last) if i64::from(last.1) == from => last.1 = to as u32,
            _ => unknown.push((from as u32, to as u32)),
        };
        let first = range.place(life.from_ns).max(0);
        let end = range.place(life.to_ns.saturating_sub(1)).saturating_add(1);
        let end = end.min(range.count.into());
        let mut from = first;
        while from < end {
            let (level, until_ns) = least((range.first + from) << range.level);
            let to = range.place(until_ns).saturating_add(1).clamp(from + 1, end);
            let is_known = !self.is_damaged && range.level >= level;
            match is_known {
                true => {}
                // Of thousands of bins on low levels.
                false if self.own.is_empty() && self.above.is_empty() => add(from, to),
                false => {
                    let unknown = (from..to).filter(|place| !self.has(range.first + place));
                    unknown.for_each(|place| add(place, place + 1));
                }
            }
            from = to;
        }
        unknown
    }

    /// Returns whether a bin has a row or, as far as rows are there, is empty.
    fn has(&self, bin: i64) -> bool {
        let row = self.own.binary_search_by_key(&bin, |row| row.bin);
        row.is_ok() || (!self.is_damaged && self.is_empty(bin))
    }

    /// Returns whether all that is in the bin above is in the other half of it.
    fn is_empty(&self, bin: i64) -> bool {
        let row = |rows: &[OverviewRow], bin: i64| {
            let at = rows.binary_search_by_key(&bin, |row| row.bin);
            at.ok().map(|at| (rows[at].calls, rows[at].busy_ns))
        };
        let above = row(&self.above, bin >> 1);
        above.is_some() && above == row(&self.own, bin ^ 1)
    }
}

/// Returns the bins of lanes, by lane, in order. Bins of which `rows` says nothing are read from the calls of a query: then the summary of
/// that is returned, too.
///
/// # Errors
/// If the storage fails.
pub(crate) fn lane_bins(
    reader: &Reader,
    groups: &LaneGroups,
    density: &OverviewDensity,
    wanted: (BinRange, &Query),
    lanes: &[LaneKey],
    rows: &[LaneRows],
) -> Result<(Vec<Vec<LaneBin>>, Option<ReadSummary>)> {
    let (range, query) = wanted;
    let life = Window {
        from_ns: reader.extent().first_ns,
        to_ns: reader.extent().end_ns.saturating_add(1),
    };
    let unknown = rows.iter().zip(lanes).map(|(rows, lane)| {
        let of_lane = groups.members(lane.kind, lane.id).count() as u64;
        rows.unknown(range, life, |at_ns| {
            density.least_level_until(at_ns, of_lane)
        })
    });
    let unknown: Vec<Vec<(u32, u32)>> = unknown.collect();
    let (mut found, mut summary) = (vec![Vec::new(); lanes.len()], None);
    let from = unknown
        .iter()
        .filter_map(|of| of.first())
        .map(|of| of.0)
        .min();
    let to = unknown
        .iter()
        .filter_map(|of| of.last())
        .map(|of| of.1)
        .max();
    if let (Some(from), Some(to)) = (from, to) {
        let read = BinRange {
            first: range.first + i64::from(from),
            count: to - from,
            ..range
        };
        let query = query.within(read.window());
        let read = read_lanes(reader, groups, range, &query, lanes, &unknown)?;
        (found, summary) = (read.0, Some(read.1));
    }
    for (bins, rows) in found.iter_mut().zip(rows) {
        bins.extend(rows.own.iter().map(|row| LaneBin::of_row(row, range)));
        bins.sort_unstable_by_key(|bin| bin.place);
    }
    Ok((found, summary))
}

/// Returns the bins of lanes that are unknown, from the calls of a query.
fn read_lanes(
    reader: &Reader,
    groups: &LaneGroups,
    range: BinRange,
    query: &Query,
    lanes: &[LaneKey],
    unknown: &[Vec<(u32, u32)>],
) -> Result<(Vec<Vec<LaneBin>>, ReadSummary)> {
    let mut targets: Vec<Target> = Vec::new();
    let mut places: FxHashMap<(LaneKind, u32), usize> = FxHashMap::default();
    for (number, (lane, wanted)) in lanes.iter().zip(unknown).enumerate() {
        if wanted.is_empty() {
            continue;
        }
        let target = *places.entry((lane.kind, lane.id)).or_insert_with(|| {
            let (kind, lanes) = (lane.kind, Vec::new());
            targets.push(Target { kind, lanes });
            targets.len() - 1
        });
        let of = &mut targets[target].lanes;
        of.resize(of.len().max(lane.depth as usize + 1), None);
        of[lane.depth as usize] = Some(number);
    }
    let mut chosen: BTreeSet<LocationId> = BTreeSet::new();
    let mut of_location = vec![Vec::new(); groups.locations().len()];
    for ((kind, id), target) in &places {
        for number in groups.members(*kind, *id) {
            chosen.insert(groups.locations()[number]);
            of_location[number].push(*target);
        }
    }
    let mut query = query.clone();
    if chosen.len() < groups.locations().len() {
        query.set_locations(reader.definitions(), &chosen);
    }
    let last_ns = reader.extent().last_ns.min(query.window().to_ns);
    let ends_ns = groups.locations().iter().map(|id| {
        let end = Ending::in_trace(reader.definitions(), *id);
        end.drawn_to_ns().unwrap_or(last_ns).min(last_ns)
    });
    let plan = Plan {
        query: &query,
        range,
        unknown,
        targets,
        of_location,
        ends_ns: ends_ns.collect(),
    };
    let new = |_| LaneSums {
        plan: &plan,
        sums: unknown.iter().map(|_| None).collect(),
    };
    let (state, summary) = reader.run(&query, new)?;
    let finished = state.sums.into_iter();
    let bins = finished.map(|sum| sum.map_or_else(Vec::new, LaneSum::finish));
    Ok((bins.collect(), summary))
}
