//! The bins of a lane, from its calls in the order of time.
//!
//! A bin of level k is 2ᵏ ns long, and begins at a multiple of that. The lane is covered from the left to the right with
//! pieces that are bins. A piece with many calls is divided; two halves that are known are put together. So each bin with more
//! than 64 calls is met once, and all that is kept for later are left halves without their right ones: one for
//! each level at most.

use std::cmp::Reverse;

use annals_format::{
    LaneKey, MAX_BIN_LEVEL, MOST_CALLS_WITHOUT_BIN as MOST_CALLS, OverviewDensity, OverviewRow,
    RegionId,
};

/// Number of calls that are waited for before they are divided into bins.
pub(super) const BATCH: usize = 256;

/// What happens in a span of time.
pub(super) trait Part: Sized {
    /// Returns whether no call begins, ends or is open before a time, which is the end of the span, as far as it knows.
    fn is_empty(&self, to_ns: i64) -> bool;

    /// Returns how many calls end before a time, and how many end.
    fn ends(&self, middle_ns: i64) -> (usize, usize);

    /// Divides it into what is before a time and the rest.
    fn split(self, at_ns: i64) -> (Self, Self);

    /// Adds the time of its calls from one time to another. Returns the number of those that end, and the longest of these.
    fn add_to(self, from_ns: i64, to_ns: i64, sums: &mut Sums<'_>) -> (u64, i64);
}

/// What a piece of time adds up to.
#[derive(Clone, Debug, Default)]
struct Piece {
    calls: u64,
    longest_ns: i64,
    /// Time by number of the region, of those that have any.
    times: Vec<(u32, i64)>,
}

impl Piece {
    fn row(&self, lane: LaneKey, level: u8, bin: i64, regions: &[RegionId]) -> OverviewRow {
        let mut busy_ns = 0_i64;
        let mut most = (0, Reverse(RegionId::new(0)));
        for (region, ns) in &self.times {
            busy_ns = busy_ns.saturating_add(*ns);
            most = most.max((*ns, Reverse(regions[*region as usize])));
        }
        OverviewRow {
            level,
            lane,
            bin,
            calls: self.calls,
            busy_ns,
            region: most.1.0,
            region_ns: most.0,
            longest_ns: self.longest_ns,
        }
    }
}

/// What a region adds up to in the piece at hand.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionSum {
    region: u32,
    /// Calls that are open so far.
    open: i64,
    ns: i64,
}

/// What all lanes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a> {
    /// Regions by number.
    pub(crate) regions: &'a [RegionId],
    /// How dense the trace is.
    pub(crate) density: &'a OverviewDensity,
}

/// Adds up pieces. Regions have numbers, each below the number of regions.
pub(super) struct Sums<'a> {
    shared: Shared<'a>,
    /// Rows of bins that are finished.
    rows: &'a mut Vec<OverviewRow>,
    /// Of the piece at hand.
    sums: Vec<RegionSum>,
    /// By number of the region, its place there, if it has one.
    places: Vec<u32>,
    /// By number of the region, its place in the first of two pieces that are put together.
    time_places: Vec<u32>,
    /// Memory for pieces.
    spare: Vec<Vec<(u32, i64)>>,
}

impl<'a> Sums<'a> {
    /// Begins with calls open.
    pub(super) fn new(
        shared: Shared<'a>,
        open: Vec<RegionSum>,
        rows: &'a mut Vec<OverviewRow>,
    ) -> Self {
        let mut places = vec![0; shared.regions.len()];
        for (sum, place) in open.iter().zip(0..) {
            places[sum.region as usize] = place;
        }
        Self {
            shared,
            rows,
            sums: open,
            time_places: vec![0; places.len()],
            places,
            spare: Vec::new(),
        }
    }

    /// Returns what is open at the end.
    pub(super) fn into_open(self) -> Vec<RegionSum> {
        self.sums
    }

    /// Adds to the time of a region, and to its open calls.
    #[inline]
    pub(super) fn add(&mut self, region: u32, ns: i64, open: i64) {
        let place = &mut self.places[region as usize];
        match self.sums.get_mut(*place as usize) {
            Some(sum) if sum.region == region => {
                sum.ns = sum.ns.saturating_add(ns);
                sum.open += open;
            }
            _ => {
                *place = self.sums.len() as u32;
                self.sums.push(RegionSum { region, open, ns });
            }
        }
    }

    /// Returns what a piece adds up to that is not divided.
    fn whole(&mut self, part: impl Part, level: u8, bin: i64) -> Piece {
        let (from_ns, length_ns) = (bin << level, 1_i64 << level);
        for sum in &mut self.sums {
            sum.ns = sum.open.saturating_mul(length_ns);
        }
        let (calls, longest_ns) = part.add_to(from_ns, from_ns.saturating_add(length_ns), self);
        let mut times = self.spare.pop().unwrap_or_default();
        let (sums, places) = (&mut self.sums, &mut self.places);
        let mut kept = 0;
        for at in 0..sums.len() {
            let sum = sums[at];
            if sum.ns != 0 {
                times.push((sum.region, sum.ns));
            }
            if sum.open != 0 {
                places[sum.region as usize] = kept as u32;
                sums[kept] = sum;
                kept += 1;
            }
        }
        sums.truncate(kept);
        Piece {
            calls,
            longest_ns,
            times,
        }
    }

    /// Adds a piece to the one before it.
    fn join(&mut self, piece: &mut Piece, mut later: Piece) {
        piece.calls += later.calls;
        piece.longest_ns = piece.longest_ns.max(later.longest_ns);
        if piece.times.len() < later.times.len() {
            std::mem::swap(&mut piece.times, &mut later.times);
        }
        let places = &mut self.time_places;
        for ((region, _), place) in piece.times.iter().zip(0..) {
            places[*region as usize] = place;
        }
        let before = piece.times.len();
        for (region, ns) in later.times.drain(..) {
            match piece.times[..before].get_mut(places[region as usize] as usize) {
                Some(known) if known.0 == region => known.1 = known.1.saturating_add(ns),
                _ => piece.times.push((region, ns)),
            }
        }
        self.spare.push(later.times);
    }

    /// Puts out the row of a bin, if it has enough calls, or any and is long.
    fn put(&mut self, lane: &Lane, piece: &Piece, level: u8, bin: i64) {
        let density = self.shared.density;
        let is_long = || level >= density.least_level(bin << level, lane.members);
        let has_any = piece.calls != 0 || !piece.times.is_empty();
        if piece.calls > MOST_CALLS || (has_any && is_long()) {
            let row = piece.row(lane.key, level, bin, self.shared.regions);
            self.rows.push(row);
        }
    }

    /// Returns whether a bin has parts that have rows although few calls end in them.
    fn has_long_parts(&self, lane: &Lane, part: &impl Part, level: u8, bin: i64) -> bool {
        let (from_ns, length_ns) = (bin << level, 1_i64 << level);
        let to_ns = from_ns.saturating_add(length_ns);
        let density = self.shared.density;
        level > density.least_level_within(from_ns, to_ns, lane.members)
            && !(self.sums.is_empty() && part.is_empty(to_ns))
    }
}

/// A lane: the calls of one depth, of one or several locations.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    /// How many locations it is of.
    members: u64,
    /// Where the last piece ended. `None` before the first.
    pub(super) done_ns: Option<i64>,
    /// By level: a left half without its right one.
    halves: Vec<Option<Piece>>,
}

impl Lane {
    pub(super) const fn new(key: LaneKey, members: u64) -> Self {
        Self {
            key,
            members,
            done_ns: None,
            halves: Vec::new(),
        }
    }

    /// Finishes all bins, up to the level `top`, on which one bin has all that happened; the last piece may have completed bins
    /// above.
    pub(super) fn finish(&mut self, top: u8, sums: &mut Sums<'_>) {
        let Some(done_ns) = self.done_ns else { return };
        // Nothing is in the right halves that are not there.
        let mut rest: Option<Piece> = None;
        for level in 0..top {
            let half = self.halves.get_mut(usize::from(level));
            let half = half.and_then(Option::take);
            rest = match (half, rest) {
                (Some(mut left), Some(right)) => {
                    sums.join(&mut left, right);
                    Some(left)
                }
                (half, rest) => half.or(rest),
            };
            if let Some(piece) = &rest {
                sums.put(self, piece, level + 1, (done_ns - 1) >> (level + 1));
            }
        }
    }

    /// Divides what is before the end of a span, a border of a bin of the level, into pieces of at most that level. The first
    /// piece of all has the begin of the span. Returns the rest.
    pub(super) fn cover<P: Part>(
        &mut self,
        mut part: P,
        span_ns: (i64, i64),
        level: u8,
        sums: &mut Sums<'_>,
    ) -> P {
        let (from_ns, to_ns) = span_ns;
        let mut done_ns = self.done_ns.unwrap_or(from_ns >> level << level);
        while done_ns < to_ns {
            let most = (to_ns.abs_diff(done_ns))
                .ilog2()
                .min(done_ns.trailing_zeros());
            let level = most.min(level.into()) as u8;
            let end_ns = done_ns.saturating_add(1 << level);
            let (inside, rest) = part.split(end_ns);
            let bin = done_ns >> level;
            let piece = self.piece(inside, level, bin, sums);
            self.put(piece, level, bin, sums);
            part = rest;
            done_ns = end_ns;
        }
        self.done_ns = Some(done_ns);
        part
    }

    /// Returns what a piece adds up to. Its parts with many calls are divided, and their values put out.
    fn piece(&self, part: impl Part, level: u8, bin: i64, sums: &mut Sums<'_>) -> Piece {
        if level == 0 {
            return sums.whole(part, level, bin);
        }
        let half = level - 1;
        let middle_ns = ((bin << 1) + 1) << half;
        let (left, all) = part.ends(middle_ns);
        let is_small = left.max(all - left) as u64 <= MOST_CALLS;
        if is_small && !sums.has_long_parts(self, &part, level, bin) {
            return sums.whole(part, level, bin);
        }
        let (left, right) = part.split(middle_ns);
        let mut piece = self.piece(left, half, bin << 1, sums);
        sums.put(self, &piece, half, bin << 1);
        let right = self.piece(right, half, (bin << 1) + 1, sums);
        sums.put(self, &right, half, (bin << 1) + 1);
        sums.join(&mut piece, right);
        piece
    }

    /// Takes the next piece, and puts it together with the left halves that it completes.
    fn put(&mut self, mut piece: Piece, mut level: u8, mut bin: i64, sums: &mut Sums<'_>) {
        loop {
            sums.put(self, &piece, level, bin);
            let place = usize::from(level);
            if self.halves.len() <= place {
                self.halves.resize_with(place + 1, || None);
            }
            if bin & 1 == 0 || level == MAX_BIN_LEVEL {
                self.halves[place] = Some(piece);
                return;
            }
            if let Some(mut left) = self.halves[place].take() {
                sums.join(&mut left, piece);
                piece = left;
            }
            (level, bin) = (level + 1, bin >> 1);
        }
    }
}

/// Returns the level of pieces of a span, so that each has as many calls as a bin with values.
pub(super) fn piece_level(from_ns: i64, to_ns: i64, calls: usize) -> u8 {
    let span_ns = to_ns.saturating_sub(from_ns).max(1) as u64;
    let pieces = 1 + calls as u64 / (2 * MOST_CALLS);
    let level = (span_ns / pieces).max(1).ilog2() as u8;
    level.min(MAX_BIN_LEVEL)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use annals_format::LaneKind;
    use proptest::prelude::*;

    use super::*;
    use crate::overview::group_lane::{GroupLane, Turn, Turns};
    use crate::overview::own_lane::{OwnCall, OwnLane};

    const LANE: LaneKey = LaneKey {
        kind: LaneKind::All,
        id: 0,
        depth: 0,
    };

    /// Begin, length, region.
    type Call = (i64, i64, u32);

    /// First and last time, and number of events.
    type Chunk = (i64, i64, u64);

    fn density(chunks: &[Chunk]) -> OverviewDensity {
        let mut density = OverviewDensity::new(3);
        for (first_ns, last_ns, events) in chunks {
            density.take(*first_ns, *last_ns, *events);
        }
        density
    }

    /// Returns the bins of a level that may have rows with few calls.
    fn long_bins(chunks: &[Chunk], level: u8, last_ns: i64) -> Vec<i64> {
        let density = density(chunks);
        let begins = chunks.first().map(|chunk| chunk.0).into_iter();
        let begins = begins.chain(chunks.iter().map(|chunk| chunk.1.saturating_add(1)));
        let mut bins = Vec::new();
        for ((_, end_ns, _), first_ns) in chunks.iter().zip(begins) {
            if first_ns <= *end_ns && level >= density.least_level(*end_ns, MEMBERS) {
                bins.extend(first_ns >> level..=end_ns >> level);
            }
        }
        bins.extend(chunks.last().map(|_| last_ns >> level));
        // The first bin of all begins before the first chunk, and the last chunk has all that follows.
        bins.extend(chunks.first().map(|chunk| chunk.0 >> level));
        bins.retain(|bin| level >= density.least_level(bin << level, MEMBERS));
        bins
    }

    /// Returns the values of all bins of some calls, in the simplest way.
    fn expected(calls: &[Call], top: u8, chunks: &[Chunk]) -> BTreeMap<(u8, i64), OverviewRow> {
        let mut found = BTreeMap::new();
        let last_ns = calls.iter().map(|call| call.0 + call.1).max();
        for level in 0..=top {
            let mut bins: BTreeMap<i64, u64> = BTreeMap::new();
            for (from_ns, length_ns, _) in calls {
                *bins.entry((from_ns + length_ns) >> level).or_default() += 1;
            }
            let mut wanted: BTreeMap<i64, u64> = bins.clone();
            wanted.retain(|_, count| *count > MOST_CALLS);
            for bin in long_bins(chunks, level, last_ns.unwrap_or(0)) {
                wanted.insert(bin, bins.get(&bin).copied().unwrap_or(0));
            }
            for (bin, count) in wanted {
                let (start_ns, end_ns) = (bin << level, (bin + 1) << level);
                let mut regions: BTreeMap<u32, i64> = BTreeMap::new();
                let mut longest_ns = 0;
                for (from_ns, length_ns, region) in calls {
                    let to_ns = from_ns + length_ns;
                    let inside_ns = to_ns.min(end_ns) - (*from_ns).max(start_ns);
                    *regions.entry(*region).or_default() += inside_ns.max(0);
                    if to_ns >> level == bin {
                        longest_ns = longest_ns.max(*length_ns);
                    }
                }
                let most = regions
                    .iter()
                    .max_by_key(|known| (*known.1, Reverse(*known.0)));
                let (region, region_ns) = most.expect("a region");
                if count == 0 && *region_ns == 0 {
                    continue;
                }
                let values = OverviewRow {
                    level,
                    lane: LANE,
                    bin,
                    calls: count,
                    busy_ns: regions.values().sum(),
                    region: RegionId::new(if *region_ns == 0 { 0 } else { *region }),
                    region_ns: *region_ns,
                    longest_ns,
                };
                found.insert((level, bin), values);
            }
        }
        found
    }

    /// All of these.
    struct All<'a>(&'a [(Turn, i64)]);

    impl Turns for All<'_> {
        fn most(&self) -> usize {
            self.0.len()
        }

        fn each(&self, mut take: impl FnMut(Turn, i64)) {
            self.0
                .iter()
                .for_each(|(turn, length_ns)| take(*turn, *length_ns));
        }
    }

    /// Numbers of regions are others than their ids.
    const REGIONS: [RegionId; 4] = [
        RegionId::new(3),
        RegionId::new(1),
        RegionId::new(0),
        RegionId::new(2),
    ];

    /// Locations of the lane: for the lane of one, one.
    const MEMBERS: u64 = 1;

    fn shared(density: &OverviewDensity) -> Shared<'_> {
        Shared {
            regions: &REGIONS,
            density,
        }
    }

    fn number(region: u32) -> u32 {
        let is_it = |id: &RegionId| id.get() == region;
        REGIONS.iter().position(is_it).expect("a region") as u32
    }

    /// Feeds a group's lane, and finishes bins again and again.
    fn bins(calls: &[Call], top: u8, step: usize, density: &OverviewDensity) -> Vec<OverviewRow> {
        let mut turns: Vec<(Turn, i64)> = Vec::new();
        for (from_ns, length_ns, region) in calls {
            let region = number(*region);
            turns.push((Turn::begin(*from_ns, region), 0));
            let end = Turn::end(from_ns + length_ns, region, *length_ns);
            turns.push((end, *length_ns));
        }
        turns.sort_by_key(|(turn, _)| turn.time_ns);
        let last_ns = turns.last().map_or(0, |(turn, _)| turn.time_ns);
        let mut lane = GroupLane::new(LANE, MEMBERS);
        for part in turns.chunks_mut(step) {
            let last_ns = part.last().map_or(0, |(turn, _)| turn.time_ns);
            part.reverse();
            lane.advance(&All(part), last_ns, None, shared(density));
        }
        lane.advance(&All(&[]), last_ns, Some(top), shared(density));
        lane.rows.retain(|row| row.level <= top);
        lane.rows
    }

    /// Feeds a location's lane, and finishes bins again and again. One call after the other.
    fn own_bins(
        calls: &[Call],
        top: u8,
        step: usize,
        density: &OverviewDensity,
    ) -> Vec<OverviewRow> {
        let (mut lane, mut out) = (OwnLane::new(LANE), Vec::new());
        for part in calls.chunks(step) {
            for (begin_ns, length_ns, region) in part {
                lane.calls.push(OwnCall {
                    begin_ns: *begin_ns,
                    end_ns: begin_ns + length_ns,
                    region: number(*region),
                    has_ended: true,
                });
            }
            let last_ns = lane.calls.last().map_or(0, |call| call.end_ns);
            lane.advance(
                last_ns,
                &mut Sums::new(shared(density), Vec::new(), &mut out),
            );
        }
        lane.finish(top, &mut Sums::new(shared(density), Vec::new(), &mut out));
        out.retain(|row| row.level <= top);
        out
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        // Bursts: when they begin, how far calls are from each other, and how many there are.
        let burst = (0..1_i64 << 24, 0..12_u32, 1..900_usize, 0..14_u32);
        prop::collection::vec(burst, 1..6).prop_flat_map(|bursts| {
            let count: usize = bursts.iter().map(|burst| burst.2).sum();
            let each = prop::collection::vec((any::<u16>(), 0..4_u32), count);
            each.prop_map(move |mut each| {
                let mut calls = Vec::new();
                for (start_ns, apart, count, long) in &bursts {
                    let mut at_ns = *start_ns;
                    for (chance, region) in each.drain(..*count) {
                        let length_ns = i64::from(chance) >> (16 - long.min(&14));
                        calls.push((at_ns, length_ns, region));
                        at_ns += i64::from(chance) & ((1 << apart) - 1);
                    }
                }
                calls
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bins_are_those_of_the_calls(
            calls in calls(),
            step in 1..3_000_usize,
            offset in 0..5_i64,
            is_own: bool,
            scale in prop::sample::select(vec![0, 0, 20]),
            counts in prop::collection::vec(1..9_000_u64, 0..5),
        ) {
            // Some calls are longer than 32 bits.
            let scaled = |call: &Call| ((call.0 - (offset << 22)) << scale, call.1 << scale, call.2);
            let mut calls: Vec<Call> = calls.iter().map(scaled).collect();
            if is_own {
                calls.sort_unstable();
                let mut last_ns = i64::MIN;
                for call in &mut calls {
                    call.0 = call.0.max(last_ns);
                    last_ns = call.0 + call.1;
                }
            }
            let first_ns = calls.iter().map(|call| call.0).min().expect("calls");
            let last_ns = calls.iter().map(|call| call.0 + call.1).max().expect("calls");
            let one_bin = |level: &u8| first_ns >> level == last_ns >> level;
            let top = (0..=MAX_BIN_LEVEL).find(one_bin).unwrap_or(MAX_BIN_LEVEL);
            // Chunks between some of the begins and ends.
            let mut times: Vec<i64> = calls.iter().flat_map(|call| [call.0, call.0 + call.1]).collect();
            times.sort_unstable();
            let part = times.len().div_ceil(counts.len().max(1));
            let chunks = times.chunks(part).zip(&counts);
            let chunks: Vec<Chunk> = chunks.map(|(times, count)| (times[0], times[times.len() - 1], *count)).collect();
            let density = density(&chunks);
            let found = match is_own {
                true => own_bins(&calls, top, step, &density),
                false => bins(&calls, top, step, &density),
            };
            let by_key: BTreeMap<(u8, i64), OverviewRow> =
                found.iter().map(|bin| ((bin.level, bin.bin), *bin)).collect();
            prop_assert_eq!(by_key.len(), found.len(), "each bin once");
            prop_assert_eq!(by_key, expected(&calls, top, &chunks));
        }
    }
}
