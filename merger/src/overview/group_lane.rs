//! The lane of several locations: begins and ends of their calls, whatever their order.

use annals_format::{LaneKey, OverviewRow};

use crate::overview::lane::{BATCH, Lane, Part, RegionSum, Shared, Sums, piece_level};

/// The begin or the end of a call.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turn {
    pub(super) time_ns: i64,
    /// Number of its region.
    region: u32,
    /// How long the call was that ends, nanoseconds, if that is less than what is below; else what is below.
    length_ns: u32,
}

impl Turn {
    const BEGIN: u32 = u32::MAX;
    /// The call has not ended, but nothing more is known of it.
    const FORGET: u32 = u32::MAX - 1;
    /// It ends and was longer: how long, is elsewhere.
    const LONG: u32 = u32::MAX - 2;

    const fn new(time_ns: i64, region: u32, length_ns: u32) -> Self {
        Self {
            time_ns,
            region,
            length_ns,
        }
    }

    pub(super) const fn begin(time_ns: i64, region: u32) -> Self {
        Self::new(time_ns, region, Self::BEGIN)
    }

    #[inline]
    pub(super) fn end(time_ns: i64, region: u32, length_ns: i64) -> Self {
        let length_ns = u32::try_from(length_ns).unwrap_or(Self::LONG);
        Self::new(time_ns, region, length_ns.min(Self::LONG))
    }

    pub(super) const fn forget(time_ns: i64, region: u32) -> Self {
        Self::new(time_ns, region, Self::FORGET)
    }

    const fn is_end(&self) -> bool {
        self.length_ns <= Self::LONG
    }
}

/// Begins and ends that are new to a group. None is before what was finished.
pub(super) trait Turns {
    /// Returns a number that they do not exceed.
    fn most(&self) -> usize;

    /// Calls `take` with each, and how long the call was that ends, nanoseconds.
    fn each(&self, take: impl FnMut(Turn, i64));
}

/// A lane of a group.
#[derive(Debug)]
pub(crate) struct GroupLane {
    lane: Lane,
    /// Begins and ends that are not in a piece yet.
    turns: Vec<Turn>,
    /// Ends of calls that were long, and how long these were, nanoseconds.
    long: Vec<(i64, i64)>,
    /// Calls that are open where the last piece ended.
    open: Vec<RegionSum>,
    pub(crate) rows: Vec<OverviewRow>,
}

impl GroupLane {
    pub(super) const fn new(key: LaneKey, members: u64) -> Self {
        Self {
            lane: Lane::new(key, members),
            turns: Vec::new(),
            long: Vec::new(),
            open: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Returns the number of calls around each of its calls.
    pub(super) const fn depth(&self) -> usize {
        self.lane.key.depth as usize
    }

    #[inline]
    fn note_long(&mut self, turn: Turn, length_ns: i64) {
        if turn.length_ns == Turn::LONG {
            self.long.push((turn.time_ns, length_ns));
        }
    }

    /// Takes what is new, and finishes bins up to a time before which nothing follows, if there is enough for it; all of them
    /// up to the level `top`, if there is one.
    pub(super) fn advance(
        &mut self,
        new: &impl Turns,
        to_ns: i64,
        top: Option<u8>,
        shared: Shared<'_>,
    ) {
        let count = self.turns.len() + new.most();
        if count < 2 * BATCH && top.is_none() {
            new.each(|turn, length_ns| {
                self.turns.push(turn);
                self.note_long(turn, length_ns);
            });
            return;
        }
        let old = std::mem::take(&mut self.turns);
        let from_ns = self.lane.done_ns.unwrap_or_else(|| {
            let mut first_ns = to_ns;
            old.iter()
                .for_each(|turn| first_ns = first_ns.min(turn.time_ns));
            new.each(|turn, _| first_ns = first_ns.min(turn.time_ns));
            first_ns
        });
        let level = piece_level(from_ns, to_ns, count / 2).min(top.unwrap_or(u8::MAX));
        let first = from_ns >> level;
        let end = (to_ns >> level) + i64::from(top.is_some());
        // By piece, where its turns are; after the last piece is what is later.
        let pieces = (end - first).max(0);
        let piece_of = |turn: &Turn| ((turn.time_ns >> level) - first).clamp(0, pieces) as usize;
        let mut places = vec![0; pieces as usize + 2];
        old.iter().for_each(|turn| places[piece_of(turn) + 1] += 1);
        new.each(|turn, length_ns| {
            places[piece_of(&turn) + 1] += 1;
            self.note_long(turn, length_ns);
        });
        for at in 1..places.len() {
            places[at] += places[at - 1];
        }
        let mut sorted = vec![Turn::default(); places[pieces as usize + 1]];
        let mut put = |turn: Turn| {
            let place = &mut places[piece_of(&turn)];
            sorted[*place] = turn;
            *place += 1;
        };
        old.iter().for_each(|turn| put(*turn));
        new.each(|turn, _| put(turn));

        let open = std::mem::take(&mut self.open);
        let mut sums = Sums::new(shared, open, &mut self.rows);
        let mut done = 0;
        for (piece, to) in (first..end).zip(places) {
            let part = GroupPart(&mut sorted[done..to], &self.long);
            let span_ns = (from_ns, (piece + 1) << level);
            self.lane.cover(part, span_ns, level, &mut sums);
            done = to;
        }
        self.turns = sorted[done..].to_vec();
        let done_ns = self.lane.done_ns;
        self.long
            .retain(|(end_ns, _)| done_ns.is_none_or(|done_ns| *end_ns >= done_ns));
        if let Some(top) = top {
            self.lane.finish(top, &mut sums);
        }
        self.open = sums.into_open();
    }
}

/// Begins and ends in a span of time; and long calls, with their ends.
struct GroupPart<'a>(&'a mut [Turn], &'a [(i64, i64)]);

impl GroupPart<'_> {
    #[cold]
    fn longest_ns(&self, end_ns: i64) -> i64 {
        let lengths = self.1.iter().filter(|(end, _)| *end == end_ns);
        lengths.map(|(_, length_ns)| *length_ns).max().unwrap_or(0)
    }
}

impl Part for GroupPart<'_> {
    fn is_empty(&self, _: i64) -> bool {
        self.0.is_empty()
    }

    fn ends(&self, middle_ns: i64) -> (usize, usize) {
        let (mut left, mut all) = (0, 0);
        for turn in &*self.0 {
            all += usize::from(turn.is_end());
            left += usize::from(turn.is_end() & (turn.time_ns < middle_ns));
        }
        (left, all)
    }

    fn split(self, at_ns: i64) -> (Self, Self) {
        let is_later = |turn: &Turn| turn.time_ns >= at_ns;
        let first = self.0.iter().position(is_later).unwrap_or(self.0.len());
        let mut left = first;
        // Each changes places with the first that is later, without a branch, which would be foreseen half of the time; and
        // without reading what was just written, which would have to wait.
        for at in first..self.0.len() {
            let is_before = !is_later(&self.0[at]);
            self.0.swap(at, left);
            left += usize::from(is_before);
        }
        let (left, right) = self.0.split_at_mut(left);
        (Self(left, self.1), Self(right, self.1))
    }

    fn add_to(self, _: i64, to_ns: i64, sums: &mut Sums<'_>) -> (u64, i64) {
        let (mut calls, mut longest_ns) = (0, 0);
        for turn in &*self.0 {
            let change = if turn.length_ns == Turn::BEGIN { 1 } else { -1 };
            sums.add(turn.region, change * (to_ns - turn.time_ns), change);
            calls += u64::from(turn.is_end());
            let length_ns = if turn.is_end() { turn.length_ns } else { 0 };
            longest_ns = longest_ns.max(length_ns);
        }
        if longest_ns < Turn::LONG {
            return (calls, longest_ns.into());
        }
        let long = self.0.iter().filter(|turn| turn.length_ns == Turn::LONG);
        let lengths = long.map(|turn| self.longest_ns(turn.time_ns));
        (calls, lengths.max().unwrap_or(0))
    }
}
