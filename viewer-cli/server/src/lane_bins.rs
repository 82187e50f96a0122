//! The bins of lanes: from the rows of the overview where it has them, and from the calls themselves elsewhere.
//!
//! Both say the same of a bin (SPEC.md, *Overview*), so that a picture is exact on every level.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use annals_format::{LaneKey, LaneKind, LocationId, OverviewRow, RegionId};
use annals_merger::calls::{CallSink, Close, Frame};
use annals_merger::{Calls, Query, Reader, Result, Sink, Window};
use rustc_hash::FxHashMap;

use crate::groups::Members;

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
    const fn place(&self, time_ns: i64) -> i64 {
        (time_ns >> self.level).saturating_sub(self.first)
    }

    /// Returns the start of the bin at a place, nanoseconds.
    const fn start_ns(&self, place: i64) -> i64 {
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
        }
    }
}

/// What some calls have in one bin.
#[derive(Clone, Debug, Default)]
struct Cell {
    calls: u64,
    longest_ns: i64,
    /// Time by region.
    regions: Vec<(RegionId, i64)>,
    /// How many calls have a part in it, and begin and end of the last part.
    parts: u32,
    part_ns: (i64, i64),
}

/// A region that is open in whole bins, from one to before another.
#[derive(Clone, Copy, Debug)]
struct Whole {
    from: u32,
    to: u32,
    region: RegionId,
}

/// Adds up the calls of a lane.
#[derive(Debug)]
struct LaneSum {
    range: BinRange,
    /// Bins that are wanted: from one to before another, ascending.
    wanted: Vec<(u32, u32)>,
    cells: FxHashMap<u32, Cell>,
    wholes: Vec<Whole>,
}

impl LaneSum {
    fn new(range: BinRange, wanted: Vec<(u32, u32)>) -> Self {
        Self {
            range,
            wanted,
            cells: FxHashMap::default(),
            wholes: Vec::new(),
        }
    }

    fn is_wanted(&self, place: i64) -> bool {
        let after = self
            .wanted
            .partition_point(|(from, _)| i64::from(*from) <= place);
        after != 0 && place < i64::from(self.wanted[after - 1].1)
    }

    /// Adds a call. `has_ended`: it ends at its end, and does not only reach it.
    fn add(&mut self, region: RegionId, from_ns: i64, to_ns: i64, has_ended: bool) {
        let (first, last) = (self.range.place(from_ns), self.range.place(to_ns));
        if has_ended && self.is_wanted(last) {
            let cell = self.cells.entry(last as u32).or_default();
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
        self.add_part(first, region, from_ns, self.range.start_ns(first + 1));
        self.add_part(last, region, self.range.start_ns(last), to_ns);
        let end = last.min(self.range.count.into());
        for at in 0..self.wanted.len() {
            let (from, to) = self.wanted[at];
            let from = i64::from(from).max(first + 1);
            let to = i64::from(to).min(end);
            if from < to {
                let (from, to) = (from as u32, to as u32);
                self.wholes.push(Whole { from, to, region });
            }
        }
    }

    fn add_part(&mut self, place: i64, region: RegionId, from_ns: i64, to_ns: i64) {
        if from_ns >= to_ns || !self.is_wanted(place) {
            return;
        }
        let cell = self.cells.entry(place as u32).or_default();
        cell.parts += 1;
        cell.part_ns = (from_ns, to_ns);
        let length_ns = to_ns - from_ns;
        match cell.regions.iter_mut().find(|known| known.0 == region) {
            Some(known) => known.1 = known.1.saturating_add(length_ns),
            None => cell.regions.push((region, length_ns)),
        }
    }

    /// Returns the bins that are not empty, in order.
    fn finish(self) -> Vec<LaneBin> {
        let mut borders: BTreeSet<u32> = BTreeSet::new();
        let mut changes: BTreeMap<u32, Vec<(RegionId, i64)>> = BTreeMap::new();
        for whole in &self.wholes {
            changes
                .entry(whole.from)
                .or_default()
                .push((whole.region, 1));
            changes
                .entry(whole.to)
                .or_default()
                .push((whole.region, -1));
        }
        borders.extend(changes.keys());
        for place in self.cells.keys() {
            borders.extend([*place, *place + 1]);
        }
        let mut open: BTreeMap<RegionId, i64> = BTreeMap::new();
        let mut bins = Vec::new();
        let ends = borders.iter().skip(1).copied();
        for (place, end) in borders.iter().copied().zip(ends.chain([self.range.count])) {
            for (region, change) in changes.remove(&place).unwrap_or_default() {
                *open.entry(region).or_default() += change;
            }
            open.retain(|_, count| *count != 0);
            let cell = self.cells.get(&place);
            if cell.is_some() || !open.is_empty() {
                bins.push(self.bin((place, end), cell, &open));
            }
        }
        bins
    }

    fn bin(
        &self,
        places: (u32, u32),
        cell: Option<&Cell>,
        open: &BTreeMap<RegionId, i64>,
    ) -> LaneBin {
        let length_ns = self.range.length_ns();
        let whole = open
            .iter()
            .map(|(region, count)| (*region, count.saturating_mul(length_ns)));
        let mut times: BTreeMap<RegionId, i64> = whole.collect();
        for (region, ns) in cell.iter().flat_map(|cell| &cell.regions) {
            let sum = times.entry(*region).or_default();
            *sum = sum.saturating_add(*ns);
        }
        let most = times
            .iter()
            .max_by_key(|known| (*known.1, Reverse(*known.0)));
        let parts = open.values().sum::<i64>() + cell.map_or(0, |cell| cell.parts.into());
        let whole_ns = (
            self.range.start_ns(places.0.into()),
            self.range.start_ns(places.1.into()),
        );
        let part_ns = cell.filter(|cell| cell.parts != 0).map(|cell| cell.part_ns);
        LaneBin {
            place: places.0,
            count: places.1 - places.0,
            calls: cell.map_or(0, |cell| cell.calls),
            busy_ns: times.values().fold(0, |sum, ns| sum.saturating_add(*ns)),
            region: most.map(|known| *known.0),
            region_ns: most.map_or(0, |known| *known.1),
            longest_ns: cell.map_or(0, |cell| cell.longest_ns),
            only_ns: (parts == 1).then_some(part_ns.unwrap_or(whole_ns)),
        }
    }
}

/// Lanes whose calls are read: by depth from the first on.
#[derive(Debug)]
struct Target {
    kind: LaneKind,
    /// Lane and depth.
    lanes: Vec<(usize, u32)>,
}

/// Adds up the calls of several lanes.
struct LaneSums<'a> {
    sums: Vec<Option<LaneSum>>,
    targets: Vec<Target>,
    /// By number of the location: the targets.
    of_location: &'a [Vec<usize>],
    window: Window,
    /// Trace time of the end of the trace.
    end_ns: i64,
}

impl CallSink for LaneSums<'_> {
    fn enter(&mut self, _: usize, _: &[Frame], _: RegionId, _: i64) -> u32 {
        0
    }

    #[inline]
    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, end_ns: i64, how: Close) {
        let depth = around.len() as u32;
        for target in &self.of_location[location] {
            let target = &self.targets[*target];
            let Some((lane, _)) = target.lanes.iter().find(|lane| lane.1 == depth) else {
                continue;
            };
            // It is open: at its location nothing follows, or the window ends.
            let end_ns = match (how, target.kind) {
                (Close::Open, kind) if kind != LaneKind::Location => {
                    self.end_ns.min(self.window.to_ns)
                }
                _ => end_ns,
            };
            if let Some(sum) = &mut self.sums[*lane] {
                sum.add(frame.region, frame.entered_ns, end_ns, how != Close::Open);
            }
        }
    }
}

impl Sink for LaneSums<'_> {
    const BY_LOCATION: bool = true;
}

/// The rows that the overview has of a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneRows {
    /// Those of the bins that were asked for, in order.
    pub(crate) own: Vec<OverviewRow>,
    /// Those of the bins of the next level that these are in, in order.
    pub(crate) above: Vec<OverviewRow>,
}

impl LaneRows {
    /// Returns the places of bins of which the overview says nothing, from one to before another.
    fn unknown(&self, range: BinRange, life: Window) -> Vec<(u32, u32)> {
        let mut unknown: Vec<(u32, u32)> = Vec::new();
        let mut own = self.own.iter().peekable();
        let first = range.place(life.from_ns).max(0);
        let end = range.place(life.to_ns.saturating_sub(1)).saturating_add(1);
        let end = end.min(range.count.into());
        for place in first..end {
            let bin = range.first + place;
            while own.peek().is_some_and(|row| row.bin < bin) {
                own.next();
            }
            if own.peek().is_some_and(|row| row.bin == bin) || self.is_empty(bin) {
                continue;
            }
            let place = place as u32;
            match unknown.last_mut() {
                Some(last) if last.1 == place => last.1 += 1,
                _ => unknown.push((place, place + 1)),
            }
        }
        unknown
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

/// Returns the bins of lanes, by lane, and what of them could not be read. Bins of which `rows` says nothing are read from the
/// calls.
///
/// # Errors
/// If the storage fails.
pub(crate) fn lane_bins(
    reader: &Reader,
    members: &Members,
    range: BinRange,
    lanes: &[LaneKey],
    rows: &[LaneRows],
) -> Result<Vec<Vec<LaneBin>>> {
    let life = Window {
        from_ns: members.first_ns,
        to_ns: reader.end_ns().saturating_add(1),
    };
    let unknown = rows.iter().map(|rows| rows.unknown(range, life));
    let unknown: Vec<Vec<(u32, u32)>> = unknown.collect();
    let mut found = vec![Vec::new(); lanes.len()];
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
        found = read_lanes(reader, members, (range, read.window()), lanes, unknown)?;
    }
    for (bins, rows) in found.iter_mut().zip(rows) {
        bins.extend(rows.own.iter().map(|row| LaneBin::of_row(row, range)));
        bins.sort_unstable_by_key(|bin| bin.place);
    }
    Ok(found)
}

/// Returns the bins of lanes that are unknown, from the calls of a window.
fn read_lanes(
    reader: &Reader,
    members: &Members,
    (range, window): (BinRange, Window),
    lanes: &[LaneKey],
    unknown: Vec<Vec<(u32, u32)>>,
) -> Result<Vec<Vec<LaneBin>>> {
    let mut targets: Vec<Target> = Vec::new();
    let mut places: FxHashMap<(LaneKind, u32), usize> = FxHashMap::default();
    let mut sums: Vec<Option<LaneSum>> = Vec::new();
    for (number, (lane, wanted)) in lanes.iter().zip(unknown).enumerate() {
        let is_wanted = !wanted.is_empty();
        sums.push(is_wanted.then(|| LaneSum::new(range, wanted)));
        if !is_wanted {
            continue;
        }
        let target = *places.entry((lane.kind, lane.id)).or_insert_with(|| {
            let (kind, lanes) = (lane.kind, Vec::new());
            targets.push(Target { kind, lanes });
            targets.len() - 1
        });
        targets[target].lanes.push((number, lane.depth));
    }
    let mut chosen: BTreeSet<LocationId> = BTreeSet::new();
    let mut of_location = vec![Vec::new(); members.locations.len()];
    for ((kind, id), target) in &places {
        for number in members.of(*kind, *id) {
            chosen.insert(members.locations[number]);
            of_location[number].push(*target);
        }
    }
    let mut query = Query::new();
    query.set_window(window);
    if chosen.len() < members.locations.len() {
        query.set_locations(reader.definitions(), &chosen);
    }
    let mut sums = LaneSums {
        sums,
        targets,
        of_location: &of_location,
        window,
        end_ns: reader.end_ns(),
    };
    Calls::new(reader.definitions(), &query).run(reader, &mut sums)?;
    let finished = sums.sums.into_iter();
    Ok(finished
        .map(|sum| sum.map_or_else(Vec::new, LaneSum::finish))
        .collect())
}
