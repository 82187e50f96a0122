//! The lane of one location: its calls, one after the other.

use annals_format::LaneKey;

use crate::overview::lane::{BATCH, Lane, Part, Sums, piece_level};

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnCall {
    pub(super) begin_ns: i64,
    pub(super) end_ns: i64,
    /// Number of its region.
    pub(super) region: u32,
    /// Only the last of a lane may not have.
    pub(super) has_ended: bool,
}

impl OwnCall {
    pub(super) const fn length_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// The calls of one depth of a location.
#[derive(Debug)]
pub(super) struct OwnLane {
    lane: Lane,
    /// Calls that are not in a piece yet. None begins before the end of the one before it.
    pub(super) calls: Vec<OwnCall>,
    /// Number of these that groups know.
    pub(super) known: usize,
    /// When the call that is open began, and the number of its region.
    pub(super) open: Option<(i64, u32)>,
    /// Groups know the begin of the call after those they know.
    pub(super) is_begin_known: bool,
    /// Whether groups know that the call which is open ends with its location.
    pub(super) over: Over,
}

/// What groups know of the end of a location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    No,
    /// It is news.
    Now,
    Known,
}

impl OwnLane {
    pub(super) const fn new(key: LaneKey) -> Self {
        Self {
            lane: Lane::new(key, 1),
            calls: Vec::new(),
            known: 0,
            open: None,
            is_begin_known: false,
            over: Over::No,
        }
    }

    /// Returns whether there is something that groups do not know.
    pub(super) fn has_news(&self) -> bool {
        self.known < self.calls.len()
            || (self.open.is_some() && !self.is_begin_known)
            || self.over == Over::Now
    }

    /// Finishes bins up to a time before which nothing follows, if there are enough calls for it. Groups know all of them.
    pub(super) fn advance(&mut self, to_ns: i64, sums: &mut Sums<'_>) {
        let to_ns = self.open.map_or(to_ns, |open| to_ns.min(open.0));
        if self.calls.len() >= BATCH {
            let level = self.piece_level(to_ns);
            self.cover(to_ns >> level << level, level, sums);
        }
        self.known = self.calls.len();
        self.is_begin_known = self.open.is_some();
        if self.over == Over::Now {
            self.over = Over::Known;
        }
    }

    /// Finishes all bins, up to the level `top`, on which one bin has all that happened.
    pub(super) fn finish(&mut self, top: u8, sums: &mut Sums<'_>) {
        if let Some(last) = self.calls.last() {
            let last_ns = last.end_ns;
            let level = self.piece_level(last_ns).min(top);
            let end_ns = (last_ns >> level << level).saturating_add(1 << level);
            self.cover(end_ns, level, sums);
        }
        self.lane.finish(top, sums);
    }

    fn piece_level(&self, to_ns: i64) -> u8 {
        let from_ns = self.lane.done_ns.unwrap_or(self.calls[0].begin_ns);
        piece_level(from_ns, to_ns, self.calls.len())
    }

    fn cover(&mut self, to_ns: i64, level: u8, sums: &mut Sums<'_>) {
        let part = OwnPart {
            calls: &self.calls,
            inside: self.calls.len(),
        };
        let span_ns = (self.calls[0].begin_ns, to_ns);
        let rest = self.lane.cover(part, span_ns, level, sums).inside;
        self.calls.drain(..self.calls.len() - rest);
    }
}

/// The calls that end in a span of time, and those after them.
struct OwnPart<'a> {
    calls: &'a [OwnCall],
    /// How many of them end in it.
    inside: usize,
}

impl Part for OwnPart<'_> {
    fn is_empty(&self, to_ns: i64) -> bool {
        let first = self.calls.first();
        self.inside == 0 && first.is_none_or(|next| next.begin_ns >= to_ns)
    }

    fn ends(&self, middle_ns: i64) -> (usize, usize) {
        let calls = &self.calls[..self.inside];
        let calls = match calls {
            [before @ .., last] if !last.has_ended => before,
            calls => calls,
        };
        let left = calls.partition_point(|call| call.end_ns < middle_ns);
        (left, calls.len())
    }

    fn split(self, at_ns: i64) -> (Self, Self) {
        // Mostly the first few of many: a search would read memory here and there.
        let is_later = |call: &OwnCall| call.end_ns >= at_ns;
        let later = self.calls[..self.inside].iter().position(is_later);
        let inside = later.unwrap_or(self.inside);
        let left = Self {
            calls: self.calls,
            inside,
        };
        let right = Self {
            calls: &self.calls[inside..],
            inside: self.inside - inside,
        };
        (left, right)
    }

    fn add_to(self, from_ns: i64, to_ns: i64, sums: &mut Sums<'_>) -> (u64, i64) {
        let (inside, after) = self.calls.split_at(self.inside);
        let (mut calls, mut longest_ns) = (0, 0);
        for call in inside {
            let inside_ns = call.end_ns.saturating_sub(call.begin_ns.max(from_ns));
            sums.add(call.region, inside_ns, 0);
            calls += u64::from(call.has_ended);
            let length_ns = call.length_ns();
            longest_ns = longest_ns.max(if call.has_ended { length_ns } else { 0 });
        }
        if let Some(next) = after.first().filter(|next| next.begin_ns < to_ns) {
            sums.add(next.region, to_ns - next.begin_ns.max(from_ns), 0);
        }
        (calls, longest_ns)
    }
}
