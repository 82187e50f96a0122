//! How a stream's raw ticks become times: wraps of its clock are undone, and steps of one that was set.

use std::ops::RangeInclusive;

use annals_format::ticks::{distance, unwrap_near};
use annals_format::{Chunk, ChunkHeader, Clock, ClockKind, ClockMap, MapCursor, StoredChunk};

use crate::clocks::hosts::Host;
use crate::clocks::steps::Epoch;
use crate::input::recording::InputRecording;
use crate::messages::repair::Shifts;

/// How far an event may be outside of the time of its epoch or chunk, nanoseconds. Times that differ by less are
/// treated as equal.
const SLACK_NS: i64 = 1_000_000;

/// How long before a chunk was opened its first event's tick may have been read: the event may have waited for room.
const BLOCKED_NS: i64 = 1_000_000_000;

/// A clock is set no more often in the life of a chunk; what is beyond that is ambiguous.
const MOST_EPOCHS: usize = 4;

/// How a stream's raw ticks become axis times.
#[derive(Debug)]
pub(crate) struct StreamClock<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) map: &'a ClockMap,
    /// Where the process's reference clock is the clock of.
    pub(crate) host: &'a Host,
    /// When and how it was set; empty: it was not.
    pub(crate) epochs: &'a [Epoch],
    /// By how much causality repair moves its process.
    pub(crate) shifts: Option<&'a Shifts>,
}

/// The ticks of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Unwrapped {
    /// As the clock's map has them: without wraps and steps.
    pub(crate) ticks: Vec<i128>,
    /// By how much they are more than what was read, wraps undone; empty: by nothing.
    pub(crate) steps: Vec<i128>,
    /// How many of them are ambiguous.
    pub(crate) ambiguous: u64,
    /// Which of them the wraps leave so, ascending.
    undecided: Vec<usize>,
}

/// When the events of a chunk were, if all were in one epoch, and for which of them the references allow that.
#[derive(Debug)]
struct Candidates {
    times_ns: Vec<i64>,
    fits: Vec<bool>,
}

impl Candidates {
    /// Creates candidates from times in an epoch. `span` returns the moments between which an event
    /// may have been.
    fn new(times_ns: Vec<i64>, span: impl Fn(usize) -> RangeInclusive<i64>) -> Self {
        let each = times_ns.iter().enumerate();
        let fits = each.map(|(index, time_ns)| span(index).contains(time_ns));
        Self {
            fits: fits.collect(),
            times_ns,
        }
    }
}

impl StreamClock<'_> {
    pub(crate) fn moved(&self, time_ns: i64) -> i64 {
        self.shifts.map_or(time_ns, |shifts| shifts.moved(time_ns))
    }

    /// Returns the time before a repair of a time after it.
    pub(crate) fn unmoved(&self, time_ns: i64) -> i64 {
        self.shifts
            .map_or(time_ns, |shifts| shifts.unmoved(time_ns))
    }

    fn expected_tick(&self, cursor: &mut MapCursor<'_>, reference_ns: i64) -> i128 {
        cursor.tick(self.host.axis_ns(reference_ns))
    }

    /// Returns whether wraps must be undone: the other clocks count nanoseconds or cycles since boot in 64 bits.
    pub(crate) fn wraps(&self) -> bool {
        matches!(self.clock.kind, ClockKind::Readable | ClockKind::Unreadable)
    }

    /// Returns the unwrapped ticks of a chunk. `is_sorted`: it need not be in the order of time.
    pub(crate) fn unwrap(&self, header: &ChunkHeader, chunk: &Chunk, is_sorted: bool) -> Unwrapped {
        if !self.wraps() {
            let ticks = chunk.ticks.iter().map(|tick| i128::from(*tick));
            return Unwrapped {
                ticks: ticks.collect(),
                ..Unwrapped::default()
            };
        }
        let epochs = self.epochs_of(header, is_sorted);
        match epochs[..] {
            [] => self.unwrap_turns(header, chunk, 0),
            [one] => {
                let mut found = self.unwrap_turns(header, chunk, one.shift);
                if one.shift != 0 {
                    found.steps = vec![one.shift; found.ticks.len()];
                }
                found
            }
            _ if epochs.len() > MOST_EPOCHS => {
                let mut found = self.unwrap_steps(header, chunk, &epochs[..MOST_EPOCHS], is_sorted);
                found.ambiguous = found.ticks.len() as u64;
                found
            }
            _ => self.unwrap_steps(header, chunk, &epochs, is_sorted),
        }
    }

    /// Returns when a chunk's events happened, reference clock: before it was closed. A clock whose ticks the program
    /// reports, or an unordered source, may report them late.
    fn life(&self, header: &ChunkHeader, is_sorted: bool) -> (i64, i64) {
        let is_late = is_sorted || self.clock.kind == ClockKind::Unreadable;
        let open_ns = header.open_reference_ns;
        let from_ns = if is_late { i64::MIN } else { open_ns };
        (from_ns, header.close_reference_ns.max(open_ns))
    }

    /// Returns the epochs in which a chunk's events may be: by when it was written, and by its
    /// ticks.
    fn epochs_of(&self, header: &ChunkHeader, is_sorted: bool) -> Vec<Epoch> {
        let (from_ns, to_ns) = self.life(header, is_sorted);
        let mut cursor = MapCursor::new(self.map);
        let mut has_ticks = |epoch: &Epoch| {
            if self.is_short() {
                return true;
            }
            let expected = self.expected_tick(&mut cursor, header.open_reference_ns);
            let expected = expected.saturating_sub(epoch.shift);
            let first = unwrap_near(header.first_tick, expected, self.clock.max_ticks).0;
            let first = first.saturating_add(epoch.shift);
            let least = cursor.time_ns(first.saturating_add(header.min_offset.into()));
            let most = cursor.time_ns(first.saturating_add(header.max_offset.into()));
            let (from, to) = self.axis(epoch.from_ns, epoch.to_ns);
            least <= to && most >= from
        };
        let near = self.epochs.iter().filter(|epoch| {
            from_ns <= epoch.to_ns.saturating_add(SLACK_NS)
                && to_ns >= epoch.from_ns.saturating_sub(SLACK_NS)
                && has_ticks(epoch)
        });
        near.take(MOST_EPOCHS + 1).copied().collect()
    }

    /// Returns an interval of the reference clock on the axis, widened by [`SLACK_NS`] at both ends.
    fn axis(&self, from: i64, to: i64) -> (i64, i64) {
        let at = |reference_ns: i64| match reference_ns {
            // At the end of time.
            i64::MIN | i64::MAX => reference_ns,
            _ => self.host.axis_ns(reference_ns),
        };
        (
            at(from).saturating_sub(SLACK_NS),
            at(to).saturating_add(SLACK_NS),
        )
    }

    /// Undoes the wraps of a chunk in which the clock was not set.
    fn unwrap_turns(&self, header: &ChunkHeader, chunk: &Chunk, step: i128) -> Unwrapped {
        let mut found = Unwrapped::default();
        let max_ticks = self.clock.max_ticks;
        let mut cursor = MapCursor::new(self.map);
        let mut observations = chunk.observations.iter().peekable();
        let expected = self.expected_tick(&mut cursor, header.open_reference_ns);
        let mut expected = expected.saturating_sub(step);
        let is_observed = !chunk.observations.is_empty();
        let mut previous: Option<(u64, i128)> = None;
        found.ticks.reserve(chunk.ticks.len());
        for (index, tick) in chunk.ticks.iter().enumerate() {
            while let Some((_, time_ns)) = observations.next_if(|o| o.0 as usize <= index) {
                expected = self
                    .expected_tick(&mut cursor, *time_ns)
                    .saturating_sub(step);
            }
            let unwrapped = match previous {
                // Without observations the period is so long that the short way round is right.
                Some((last, unwrapped)) if !is_observed => {
                    unwrapped + i128::from(distance(last, *tick, max_ticks))
                }
                _ => {
                    let (unwrapped, is_ambiguous) = unwrap_near(*tick, expected, max_ticks);
                    if is_ambiguous {
                        found.undecided.push(index);
                    }
                    unwrapped
                }
            };
            previous = Some((*tick, unwrapped));
            found.ticks.push(unwrapped.saturating_add(step));
        }
        found.ambiguous = found.undecided.len() as u64;
        found
    }

    /// Unwraps the ticks of a chunk within which the clock may have been set. For each event, the epochs are found that
    /// agree with the references, for an ordered source those with which all its events are in order. Where more than
    /// one does, the event is ambiguous.
    fn unwrap_steps(
        &self,
        header: &ChunkHeader,
        chunk: &Chunk,
        epochs: &[Epoch],
        is_sorted: bool,
    ) -> Unwrapped {
        let turns: Vec<Unwrapped> = epochs
            .iter()
            .map(|epoch| self.unwrap_turns(header, chunk, epoch.shift))
            .collect();
        let (open_ns, close_ns) = self.life(header, is_sorted);
        let (first, last) = self.axis(open_ns, close_ns);
        let latest = self.latest(chunk, last);
        let count = chunk.ticks.len();
        let span = |epoch: &Epoch, index: usize| {
            let (from, to) = self.axis(epoch.from_ns, epoch.to_ns);
            let first = match index {
                0 => first.saturating_sub(BLOCKED_NS),
                _ => first,
            };
            from.max(first)..=to.min(latest[index])
        };
        let mut cursor = MapCursor::new(self.map);
        let each = turns.iter().zip(epochs);
        let each = each.map(|(turns, epoch)| {
            let times = turns.ticks.iter().map(|tick| cursor.time_ns(*tick));
            Candidates::new(times.collect(), |index| span(epoch, index))
        });
        let mut candidates: Vec<Candidates> = each.collect();
        if !is_sorted {
            keep_in_order(&mut candidates);
        }
        let opened_ns = self.host.axis_ns(header.open_reference_ns);
        let mut found = Unwrapped::default();
        for index in 0..count {
            let time_ns = |epoch: usize| candidates[epoch].times_ns[index];
            let fitting = (0..epochs.len()).filter(|epoch| candidates[*epoch].fits[index]);
            let times = fitting.clone().map(time_ns);
            let range = times.clone().min().zip(times.max());
            let nearest = || {
                (0..epochs.len()).min_by_key(|epoch| {
                    let (span, time_ns) = (span(&epochs[*epoch], index), time_ns(*epoch));
                    let before = span.start().saturating_sub(time_ns).max(0);
                    before.max(time_ns.saturating_sub(*span.end()))
                })
            };
            // Rather one in the life of the chunk.
            let before_ns = |epoch: &usize| opened_ns.saturating_sub(time_ns(*epoch)).max(0);
            let chosen = fitting.clone().min_by_key(before_ns);
            let epoch = chosen.or_else(nearest).unwrap_or(0);
            // An event that fits no epoch is reported as well.
            let is_undecided = turns[epoch].undecided.binary_search(&index).is_ok();
            let is_ambiguous =
                is_undecided || range.is_none_or(|(a, b)| a.abs_diff(b) > SLACK_NS.unsigned_abs());
            found.ambiguous += u64::from(is_ambiguous);
            found.ticks.push(turns[epoch].ticks[index]);
            found.steps.push(epochs[epoch].shift);
        }
        found
    }

    /// Returns the latest possible axis time of each event of a chunk: before any later observation, and before `last`.
    fn latest(&self, chunk: &Chunk, last: i64) -> Vec<i64> {
        let mut latest = vec![last; chunk.ticks.len()];
        let mut observations = chunk.observations.iter().rev().peekable();
        let mut before = last;
        for (index, latest) in latest.iter_mut().enumerate().rev() {
            while let Some((_, time_ns)) = observations.next_if(|o| o.0 as usize > index) {
                before = before.min(self.axis(*time_ns, *time_ns).1);
            }
            *latest = before;
        }
        latest
    }

    /// Returns the axis time of one raw tick. Of the times at which the clock read it, that is the one nearest to
    /// `near_ns` that is within a range, moved by a repair. `near_ns`, which is in the range, and the range itself are
    /// times before the repair. If no such time is in the range, returns the end of the range that is nearer.
    pub(crate) fn time_near(&self, tick: u64, near_ns: i64, within: RangeInclusive<i64>) -> i64 {
        let (from_ns, to_ns) = within.into_inner();
        let within = from_ns..=to_ns.max(from_ns);
        let mut cursor = MapCursor::new(self.map);
        let unwrapped = if self.wraps() {
            self.nearest(&mut cursor, tick, near_ns, &within)
        } else {
            tick.into()
        };
        let time_ns = cursor.time_ns(unwrapped);
        self.moved(time_ns.clamp(*within.start(), *within.end()))
    }

    /// Returns the unwrapped tick that reads `tick` nearest to a time; where another one is in the range and this one is
    /// not, the other one.
    fn nearest(
        &self,
        cursor: &mut MapCursor<'_>,
        tick: u64,
        near_ns: i64,
        within: &RangeInclusive<i64>,
    ) -> i128 {
        let max_ticks = self.clock.max_ticks;
        let modulus = i128::from(max_ticks) + 1;
        let slack_ns = i64::try_from(self.period_ns() / 8).unwrap_or(SLACK_NS);
        let slack_ns = slack_ns.min(SLACK_NS);
        let earliest = within.start().saturating_sub(slack_ns);
        let latest = within.end().saturating_add(slack_ns);
        let expected = cursor.tick(near_ns);
        let near = |step: i128, cursor: &mut MapCursor<'_>| {
            let (unwrapped, _) = unwrap_near(tick, expected.saturating_sub(step), max_ticks);
            let unwrapped = unwrapped.saturating_add(step);
            let time_ns = cursor.time_ns(unwrapped);
            let other = if time_ns > latest {
                unwrapped.saturating_sub(modulus)
            } else if time_ns < earliest {
                unwrapped.saturating_add(modulus)
            } else {
                return unwrapped;
            };
            match (earliest..=latest).contains(&cursor.time_ns(other)) {
                true => other,
                false => unwrapped,
            }
        };
        let mut of_epochs = Vec::new();
        for epoch in self.epochs {
            let tick = near(epoch.shift, cursor);
            let (from, to) = self.axis(epoch.from_ns, epoch.to_ns);
            let fits = (from..=to).contains(&cursor.time_ns(tick));
            of_epochs.push((!fits, tick.abs_diff(expected), tick));
        }
        let nearest = of_epochs.into_iter().min();
        nearest.map_or_else(|| near(0, cursor), |(.., tick)| tick)
    }

    /// Returns how long the clock takes until it starts again, nanoseconds.
    fn period_ns(&self) -> u128 {
        (u128::from(self.clock.max_ticks) + 1) * 1_000_000_000
            / u128::from(self.clock.ticks_per_second)
    }

    /// Returns whether the clock may start again between two events, so that observations must count the wraps.
    fn is_short(&self) -> bool {
        const LONG_NS: u128 = 24 * 3600 * 1_000_000_000;
        self.period_ns() < LONG_NS
    }

    /// Returns how many of a stream's events are before an earlier one of their chunk, and by how many ticks at most, as far
    /// as its chunks can be read.
    pub(crate) fn disorder(
        &self,
        input: &InputRecording,
        chunks: &[StoredChunk],
        is_sorted: bool,
    ) -> (u64, u64) {
        let (mut inversions, mut largest) = (0, 0);
        for stored in chunks {
            let mut front = i128::MIN;
            let Ok(chunk) = input.load(stored) else {
                continue;
            };
            for tick in self.unwrap(&stored.header, &chunk, is_sorted).ticks {
                if tick < front {
                    inversions += 1;
                    largest = largest.max(front.saturating_sub(tick));
                }
                front = front.max(tick);
            }
        }
        (inversions, u64::try_from(largest).unwrap_or(u64::MAX))
    }

    /// Returns whether a chunk's head is not enough to determine the bounds of its times and which of its events are
    /// late: the clock may wrap between two events, and the observations that count the wraps are in the body; or
    /// it was set.
    pub(crate) fn head_is_vague(&self) -> bool {
        let is_observed = self.is_short() || self.clock.kind == ClockKind::Unreadable;
        self.wraps() && (is_observed || !self.epochs.is_empty())
    }

    /// Returns the bounds of a chunk's axis times: from its head if possible, otherwise from its events.
    pub(crate) fn bounds(
        &self,
        input: &InputRecording,
        stored: &StoredChunk,
        is_sorted: bool,
    ) -> (i64, i64) {
        let (first, last) = self.read_bounds(input, stored, is_sorted);
        (self.moved(first), self.moved(last))
    }

    /// Returns the bounds of a chunk's times by the clock, without the moves of a repair.
    fn read_bounds(
        &self,
        input: &InputRecording,
        stored: &StoredChunk,
        is_sorted: bool,
    ) -> (i64, i64) {
        let header = &stored.header;
        let mut cursor = MapCursor::new(self.map);
        if !self.wraps() {
            let first = i128::from(header.first_tick);
            return (
                cursor.time_ns(first + i128::from(header.min_offset)),
                cursor.time_ns(first + i128::from(header.max_offset)),
            );
        }
        let expected = self.expected_tick(&mut cursor, header.open_reference_ns);
        // Should its events be unknown: as if they had been where it was opened.
        let step = self.epochs_of(header, false).first().map_or(0, |e| e.shift);
        let expected = expected.saturating_sub(step);
        let first = unwrap_near(header.first_tick, expected, self.clock.max_ticks).0;
        let first = first.saturating_add(step);
        if !self.head_is_vague() {
            return (
                cursor.time_ns(first + i128::from(header.min_offset)),
                cursor.time_ns(first + i128::from(header.max_offset)),
            );
        }
        let ticks = input
            .load(stored)
            .map(|chunk| self.unwrap(header, &chunk, is_sorted).ticks);
        let ticks = ticks.unwrap_or_default();
        let least = ticks.iter().min().copied().unwrap_or(first);
        let most = ticks.iter().max().copied().unwrap_or(first);
        (cursor.time_ns(least), cursor.time_ns(most))
    }
}

/// Has only those epochs fit with which the times of all events can ascend, epoch after epoch, if there is a way for
/// that at all. Events that fit nowhere are stepped over.
fn keep_in_order(candidates: &mut [Candidates]) {
    let count = candidates.first().map_or(0, |first| first.times_ns.len());
    let epochs = candidates.len();
    let follows = |candidates: &[Candidates], (e, i): (usize, usize), (f, j): (usize, usize)| {
        e <= f && candidates[e].times_ns[i] <= candidates[f].times_ns[j]
    };
    let fits_once = |index: &usize| candidates.iter().any(|c| c.fits[*index]);
    let places: Vec<usize> = (0..count).filter(fits_once).collect();
    let known: Vec<Vec<bool>> = candidates.iter().map(|c| c.fits.clone()).collect();
    // Which can be reached from the first event on, then which of these from the last one back.
    for two in places.windows(2) {
        let (before, here) = (two[0], two[1]);
        let mut is_any = false;
        for epoch in 0..epochs {
            let is_reached = (0..epochs).any(|from| {
                candidates[from].fits[before] && follows(candidates, (from, before), (epoch, here))
            });
            candidates[epoch].fits[here] &= is_reached;
            is_any |= candidates[epoch].fits[here];
        }
        if !is_any {
            for (candidates, known) in candidates.iter_mut().zip(known) {
                candidates.fits = known;
            }
            return;
        }
    }
    for two in places.windows(2).rev() {
        let (here, behind) = (two[0], two[1]);
        for epoch in 0..epochs {
            candidates[epoch].fits[here] &= (0..epochs).any(|to| {
                candidates[to].fits[behind] && follows(candidates, (epoch, here), (to, behind))
            });
        }
    }
}
