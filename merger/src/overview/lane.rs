//! The bins of a lane, from the times at which its calls begin and end.
//!
//! A bin of level k is 2ᵏ ns long, and begins at a multiple of that. The lane is covered from the left to the right with
//! pieces that are bins. A piece with many calls is divided; two halves that are known are put together. So each bin with more
//! than 64 calls is met once, and all that is kept for later are left halves without their right ones: one for
//! each level at most.

use std::cmp::Reverse;

use annals_format::{
    LaneKey, MAX_BIN_LEVEL, MOST_CALLS_WITHOUT_BIN as MOST_CALLS, OverviewRow, RegionId,
};

/// Number of begins and ends that are waited for before they are divided into bins.
const BATCH: usize = 512;

/// The begin or the end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub(crate) time_ns: i64,
    pub(crate) region: RegionId,
    pub(crate) kind: TurnKind,
}

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TurnKind {
    Begin,
    /// It ends, and was as long as this, nanoseconds.
    End(i64),
    /// It has not ended, but nothing more is known of it.
    Forget,
}

/// What a piece of time adds up to.
#[derive(Clone, Debug, Default)]
struct Piece {
    calls: u64,
    longest_ns: i64,
    /// Time by region, ascending.
    regions: Vec<(RegionId, i64)>,
}

impl Piece {
    fn add(&mut self, later: Self) {
        self.calls += later.calls;
        self.longest_ns = self.longest_ns.max(later.longest_ns);
        if self.regions.is_empty() {
            self.regions = later.regions;
            return;
        }
        for (region, ns) in later.regions {
            self.add_time(region, ns);
        }
    }

    fn add_time(&mut self, region: RegionId, ns: i64) {
        match self.regions.binary_search_by_key(&region, |known| known.0) {
            Ok(at) => {
                let known = &mut self.regions[at].1;
                *known = known.saturating_add(ns);
            }
            Err(at) => self.regions.insert(at, (region, ns)),
        }
    }

    fn row(&self, lane: LaneKey, level: u8, bin: i64) -> OverviewRow {
        let most = self
            .regions
            .iter()
            .max_by_key(|known| (known.1, Reverse(known.0)));
        let (region, region_ns) = most.copied().unwrap_or((RegionId::new(0), 0));
        let times = self.regions.iter().map(|known| known.1);
        OverviewRow {
            level,
            lane,
            bin,
            calls: self.calls,
            busy_ns: times.fold(0, i64::saturating_add),
            region,
            region_ns,
            longest_ns: self.longest_ns,
        }
    }
}

/// A lane: the calls of one depth, of one or several locations.
#[derive(Debug)]
pub(crate) struct Lane {
    key: LaneKey,
    /// Begins and ends that are not in a piece yet.
    turns: Vec<Turn>,
    /// Where the last piece ended. `None` before the first.
    done_ns: Option<i64>,
    /// Calls that are open there, by region.
    open: Vec<(RegionId, i64)>,
    /// By level: a left half without its right one.
    halves: Vec<Option<Piece>>,
}

impl Lane {
    pub(crate) const fn new(key: LaneKey) -> Self {
        Self {
            key,
            turns: Vec::new(),
            done_ns: None,
            open: Vec::new(),
            halves: Vec::new(),
        }
    }

    /// Takes the begin or the end of a call. They may be in any order, but none is before what was finished.
    #[inline]
    pub(crate) fn take(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// Finishes bins up to a time before which nothing follows, if there are enough begins and ends for it.
    #[inline]
    pub(crate) fn advance(&mut self, to_ns: i64, out: &mut Vec<OverviewRow>) {
        if self.turns.len() >= BATCH {
            let level = self.piece_level(to_ns);
            self.cover(to_ns >> level << level, level, out);
        }
    }

    /// Finishes all bins, up to the level `top`, on which one bin has all that happened.
    pub(crate) fn finish(&mut self, top: u8, out: &mut Vec<OverviewRow>) {
        let first = out.len();
        self.finish_up_to(top, out);
        // The last piece may have completed a bin above.
        let mut kept = first;
        for at in first..out.len() {
            if out[at].level <= top {
                out[kept] = out[at];
                kept += 1;
            }
        }
        out.truncate(kept);
    }

    fn finish_up_to(&mut self, top: u8, out: &mut Vec<OverviewRow>) {
        let last_ns = self.turns.iter().map(|turn| turn.time_ns).max();
        if let Some(last_ns) = last_ns {
            let level = self.piece_level(last_ns).min(top);
            let end_ns = ((last_ns >> level) + 1).checked_shl(level.into());
            let end_ns = end_ns.unwrap_or(i64::MAX);
            self.cover(end_ns, level, out);
        }
        let Some(done_ns) = self.done_ns else { return };
        // Nothing is in the right halves that are not there.
        let mut rest: Option<Piece> = None;
        for level in 0..top {
            let half = self.halves.get_mut(usize::from(level));
            let half = half.and_then(Option::take);
            rest = match (half, rest) {
                (Some(mut left), Some(right)) => {
                    left.add(right);
                    Some(left)
                }
                (half, rest) => half.or(rest),
            };
            if let Some(piece) = &rest {
                put(
                    self.key,
                    piece,
                    level + 1,
                    (done_ns - 1) >> (level + 1),
                    out,
                );
            }
        }
    }

    /// Returns the level of pieces up to a time, so that each has as many calls as a bin with values.
    fn piece_level(&self, to_ns: i64) -> u8 {
        let first_ns = self.turns.iter().map(|turn| turn.time_ns).min();
        let from_ns = self.done_ns.or(first_ns).unwrap_or(to_ns);
        let span_ns = to_ns.saturating_sub(from_ns).max(1) as u64;
        let pieces = 1 + self.turns.len() as u64 / (2 * MOST_CALLS);
        let level = (span_ns / pieces).max(1).ilog2() as u8;
        level.min(MAX_BIN_LEVEL)
    }

    /// Divides what is before a time, a border of a bin of the level, into pieces of at most that level.
    fn cover(&mut self, to_ns: i64, level: u8, out: &mut Vec<OverviewRow>) {
        let mut turns = std::mem::take(&mut self.turns);
        if !turns.is_sorted_by_key(|turn| turn.time_ns) {
            turns.sort_by_key(|turn| turn.time_ns);
        }
        let first_ns = turns.first().map_or(to_ns, |turn| turn.time_ns);
        let mut done_ns = self.done_ns.unwrap_or(first_ns >> level << level);
        let mut rest = &turns[..];
        while done_ns < to_ns {
            let most = (to_ns.abs_diff(done_ns))
                .ilog2()
                .min(done_ns.trailing_zeros());
            let level = most.min(level.into()) as u8;
            let end_ns = done_ns.saturating_add(1 << level);
            let inside = rest.partition_point(|turn| turn.time_ns < end_ns);
            let bin = done_ns >> level;
            let piece = self.piece(&rest[..inside], level, bin, out);
            self.put(piece, level, bin, out);
            rest = &rest[inside..];
            done_ns = end_ns;
        }
        let left = turns.len() - rest.len();
        turns.drain(..left);
        self.turns = turns;
        self.done_ns = Some(done_ns);
    }

    /// Returns what a piece adds up to. Its parts with many calls are divided, and their values put out.
    fn piece(&mut self, turns: &[Turn], level: u8, bin: i64, out: &mut Vec<OverviewRow>) -> Piece {
        let is_end = |turn: &&Turn| matches!(turn.kind, TurnKind::End(_));
        let is_small = turns.len() as u64 <= MOST_CALLS;
        if is_small || level == 0 || turns.iter().filter(is_end).count() as u64 <= MOST_CALLS {
            return self.whole(turns, level, bin);
        }
        let half = level - 1;
        let middle_ns = ((bin << 1) + 1) << half;
        let (left, right) = turns.split_at(turns.partition_point(|turn| turn.time_ns < middle_ns));
        let mut piece = self.piece(left, half, bin << 1, out);
        put(self.key, &piece, half, bin << 1, out);
        let right = self.piece(right, half, (bin << 1) + 1, out);
        put(self.key, &right, half, (bin << 1) + 1, out);
        piece.add(right);
        piece
    }

    /// Returns what a piece adds up to that is not divided.
    fn whole(&mut self, turns: &[Turn], level: u8, bin: i64) -> Piece {
        let from_ns = bin << level;
        let length_ns = 1_i64 << level;
        let mut piece = Piece::default();
        for (region, count) in &self.open {
            piece.add_time(*region, count.saturating_mul(length_ns));
        }
        for turn in turns {
            let rest_ns = length_ns - (turn.time_ns - from_ns);
            let change = match turn.kind {
                TurnKind::Begin => 1,
                TurnKind::End(length_ns) => {
                    piece.calls += 1;
                    piece.longest_ns = piece.longest_ns.max(length_ns);
                    -1
                }
                TurnKind::Forget => -1,
            };
            piece.add_time(turn.region, change * rest_ns);
            match self.open.iter_mut().find(|open| open.0 == turn.region) {
                Some(open) => open.1 += change,
                None => self.open.push((turn.region, change)),
            }
        }
        self.open.retain(|open| open.1 != 0);
        piece.regions.retain(|known| known.1 != 0);
        piece
    }

    /// Takes the next piece, and puts it together with the left halves that it completes.
    fn put(&mut self, mut piece: Piece, mut level: u8, mut bin: i64, out: &mut Vec<OverviewRow>) {
        loop {
            put(self.key, &piece, level, bin, out);
            let place = usize::from(level);
            if self.halves.len() <= place {
                self.halves.resize_with(place + 1, || None);
            }
            if bin & 1 == 0 || level == MAX_BIN_LEVEL {
                self.halves[place] = Some(piece);
                return;
            }
            if let Some(mut left) = self.halves[place].take() {
                left.add(piece);
                piece = left;
            }
            (level, bin) = (level + 1, bin >> 1);
        }
    }
}

/// Puts out the row of a bin, if it has enough calls.
fn put(lane: LaneKey, piece: &Piece, level: u8, bin: i64, out: &mut Vec<OverviewRow>) {
    if piece.calls > MOST_CALLS {
        out.push(piece.row(lane, level, bin));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use annals_format::LaneKind;
    use proptest::prelude::*;

    use super::*;

    const LANE: LaneKey = LaneKey {
        kind: LaneKind::All,
        id: 0,
        depth: 0,
    };

    /// Begin, length, region.
    type Call = (i64, i64, u32);

    /// Returns the values of all bins of some calls, in the simplest way.
    fn expected(calls: &[Call], top: u8) -> BTreeMap<(u8, i64), OverviewRow> {
        let mut found = BTreeMap::new();
        for level in 0..=top {
            let mut bins: BTreeMap<i64, u64> = BTreeMap::new();
            for (from_ns, length_ns, _) in calls {
                *bins.entry((from_ns + length_ns) >> level).or_default() += 1;
            }
            for (bin, count) in bins.into_iter().filter(|bin| bin.1 > MOST_CALLS) {
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

    /// Feeds calls in the order of their ends, and finishes bins again and again.
    fn bins(calls: &[Call], top: u8, step: usize) -> Vec<OverviewRow> {
        let mut turns: Vec<Turn> = Vec::new();
        for (from_ns, length_ns, region) in calls {
            let region = RegionId::new(*region);
            let turn = |time_ns, kind| Turn {
                time_ns,
                region,
                kind,
            };
            turns.push(turn(*from_ns, TurnKind::Begin));
            turns.push(turn(from_ns + length_ns, TurnKind::End(*length_ns)));
        }
        turns.sort_by_key(|turn| turn.time_ns);
        let (mut lane, mut out) = (Lane::new(LANE), Vec::new());
        for part in turns.chunks(step) {
            let last_ns = part.last().map_or(0, |turn| turn.time_ns);
            part.iter().rev().for_each(|turn| lane.take(*turn));
            lane.advance(last_ns, &mut out);
        }
        lane.finish(top, &mut out);
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
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn bins_are_those_of_the_calls(calls in calls(), step in 1..3_000_usize, offset in 0..5_i64) {
            let calls: Vec<Call> = calls.iter().map(|call| (call.0 - (offset << 22), call.1, call.2)).collect();
            let first_ns = calls.iter().map(|call| call.0).min().expect("calls");
            let last_ns = calls.iter().map(|call| call.0 + call.1).max().expect("calls");
            let one_bin = |level: &u8| first_ns >> level == last_ns >> level;
            let top = (0..=MAX_BIN_LEVEL).find(one_bin).unwrap_or(MAX_BIN_LEVEL);
            let found = bins(&calls, top, step);
            let by_key: BTreeMap<(u8, i64), OverviewRow> =
                found.iter().map(|bin| ((bin.level, bin.bin), *bin)).collect();
            prop_assert_eq!(by_key.len(), found.len(), "each bin once");
            prop_assert_eq!(by_key, expected(&calls, top));
        }
    }
}
