//! How a stream's raw ticks become times: wraps of its clock are undone, and steps of one that was set.

use annals_format::ticks::{distance, unwrap_near};
use annals_format::{Chunk, ChunkHeader, Clock, ClockKind, ClockMap, MapCursor, StoredChunk};

use crate::clocks::hosts::Host;
use crate::clocks::steps::Epoch;
use crate::input::InputRecording;
use crate::messages::repair::Shifts;

/// How far beyond the moments that an epoch or a chunk has an event may stand, nanoseconds. Times that are no farther
/// apart are not told apart.
const SLACK_NS: i64 = 1_000_000;

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
}

/// What an event's tick may be: by the epoch (its number), the tick, its time, and whether the references allow it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    tick: i128,
    time_ns: i64,
    fits: bool,
}

impl StreamClock<'_> {
    pub(crate) fn moved(&self, time_ns: i64) -> i64 {
        self.shifts.map_or(time_ns, |shifts| shifts.moved(time_ns))
    }

    fn expected_tick(&self, cursor: &mut MapCursor<'_>, reference_ns: i64) -> i128 {
        cursor.tick(self.host.axis_ns(reference_ns))
    }

    /// Whether wraps must be undone: the other clocks count nanoseconds or cycles since boot in 64 bits.
    pub(crate) fn wraps(&self) -> bool {
        matches!(self.clock.kind, ClockKind::Readable | ClockKind::Unreadable)
    }

    /// Unwrapped ticks of a chunk. `is_sorted`: it need not be in the order of time.
    pub(crate) fn unwrap(&self, header: &ChunkHeader, chunk: &Chunk, is_sorted: bool) -> Unwrapped {
        if !self.wraps() {
            let ticks = chunk.ticks.iter().map(|tick| i128::from(*tick));
            return Unwrapped {
                ticks: ticks.collect(),
                ..Unwrapped::default()
            };
        }
        match self.epochs_of(header)[..] {
            [] => self.unwrap_turns(header, chunk, 0),
            [one] => {
                let mut found = self.unwrap_turns(header, chunk, one.shift);
                if one.shift != 0 {
                    found.steps = vec![one.shift; found.ticks.len()];
                }
                found
            }
            ref several => self.unwrap_steps(header, chunk, several, is_sorted),
        }
    }

    /// The epochs in which a chunk's events may be.
    fn epochs_of(&self, header: &ChunkHeader) -> Vec<Epoch> {
        let (from_ns, to_ns) = life(header);
        let each = self.epochs.iter().copied();
        let near = each.filter(|epoch| {
            from_ns <= epoch.to_ns.saturating_add(SLACK_NS)
                && to_ns >= epoch.from_ns.saturating_sub(SLACK_NS)
        });
        near.collect()
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
                    found.ambiguous += u64::from(is_ambiguous);
                    unwrapped
                }
            };
            previous = Some((*tick, unwrapped));
            found.ticks.push(unwrapped.saturating_add(step));
        }
        found
    }

    /// The same where it may have been set within the chunk. Of each event, the epochs are found that fit what the
    /// references say, for an ordered source those with which all its events are in order. Where more than one does, the
    /// event is ambiguous.
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
        let axis = |(from, to): (i64, i64)| {
            let at = |reference_ns: i64| match reference_ns {
                // At the end of time.
                i64::MIN | i64::MAX => reference_ns,
                _ => self.host.axis_ns(reference_ns),
            };
            (
                at(from).saturating_sub(SLACK_NS),
                at(to).saturating_add(SLACK_NS),
            )
        };
        let (first, last) = axis(life(header));
        let spans: Vec<(i64, i64)> = epochs
            .iter()
            .map(|epoch| {
                let (from, to) = axis((epoch.from_ns, epoch.to_ns));
                (from.max(first), to.min(last))
            })
            .collect();
        let mut cursor = MapCursor::new(self.map);
        let mut candidate = |index: usize, epoch: usize| {
            let tick = turns[epoch].ticks[index];
            let time_ns = cursor.time_ns(tick);
            let (from, to) = spans[epoch];
            Candidate {
                tick,
                time_ns,
                fits: (from..=to).contains(&time_ns),
            }
        };
        let of_events = (0..chunk.ticks.len()).map(|index| {
            let each = (0..epochs.len()).map(|epoch| candidate(index, epoch));
            each.collect()
        });
        let mut candidates: Vec<Vec<Candidate>> = of_events.collect();
        if !is_sorted {
            keep_in_order(&mut candidates);
        }
        let mut found = Unwrapped::default();
        for candidates in &candidates {
            let of_epochs = candidates.iter().enumerate();
            let mut fitting = of_epochs.filter(|(_, candidate)| candidate.fits);
            let earliest = fitting.next();
            let latest = fitting.next_back().or(earliest);
            // What fits nowhere is told as well.
            let is_ambiguous = earliest.zip(latest).is_none_or(|((_, a), (_, b))| {
                a.time_ns.abs_diff(b.time_ns) > SLACK_NS.unsigned_abs()
            });
            let (epoch, tick) = earliest.map_or((0, candidates[0].tick), |(e, c)| (e, c.tick));
            found.ambiguous += u64::from(is_ambiguous);
            found.ticks.push(tick);
            found.steps.push(epochs[epoch].shift);
        }
        // Wraps that nothing decides are so in each epoch.
        found.ambiguous = found.ambiguous.max(turns[0].ambiguous);
        found
    }

    /// Axis time of one raw tick that was read at about this axis time.
    pub(crate) fn time_near(&self, tick: u64, near_ns: i64) -> i64 {
        let mut cursor = MapCursor::new(self.map);
        if !self.wraps() {
            return self.moved(cursor.time_ns(tick.into()));
        }
        let expected = cursor.tick(near_ns);
        let near = |step: i128| {
            let expected = expected.saturating_sub(step);
            let (unwrapped, _) = unwrap_near(tick, expected, self.clock.max_ticks);
            unwrapped.saturating_add(step)
        };
        let of_epochs = self.epochs.iter().map(|epoch| near(epoch.shift));
        let nearest = of_epochs.min_by_key(|tick| tick.abs_diff(expected));
        let unwrapped = nearest.unwrap_or_else(|| near(0));
        self.moved(cursor.time_ns(unwrapped))
    }

    /// Whether a chunk's head cannot tell the bounds of its times: the clock may wrap between two
    /// events, and the observations that count the wraps stand in the body; or it was set.
    pub(crate) fn head_is_vague(&self) -> bool {
        const LONG_NS: u128 = 24 * 3600 * 1_000_000_000;
        let period_ns = (u128::from(self.clock.max_ticks) + 1) * 1_000_000_000
            / u128::from(self.clock.ticks_per_second);
        let is_short = period_ns < LONG_NS || self.clock.kind == ClockKind::Unreadable;
        self.wraps() && (is_short || !self.epochs.is_empty())
    }

    /// Bounds of a chunk's axis times: from its head where that can tell them, else from its events.
    pub(crate) fn bounds(
        &self,
        input: &InputRecording,
        stored: &StoredChunk,
        is_sorted: bool,
    ) -> (i64, i64) {
        let (first, last) = self.read_bounds(input, stored, is_sorted);
        (self.moved(first), self.moved(last))
    }

    /// The same as the clock says.
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
        let first = unwrap_near(header.first_tick, expected, self.clock.max_ticks).0;
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

/// Has only those candidates fit with which the times of all events can ascend, epoch after epoch, if there is a way for
/// that at all.
fn keep_in_order(candidates: &mut [Vec<Candidate>]) {
    let follows = |before: &(usize, Candidate), here: &(usize, Candidate)| {
        before.0 <= here.0 && before.1.time_ns <= here.1.time_ns
    };
    let fitting = |candidates: &[Candidate]| -> Vec<(usize, Candidate)> {
        let each = candidates.iter().copied().enumerate();
        each.filter(|(_, candidate)| candidate.fits).collect()
    };
    // Which can be reached from the first event on, then which of these from the last one back.
    let mut known: Vec<Vec<(usize, Candidate)>> = Vec::with_capacity(candidates.len());
    for of_event in candidates.iter() {
        let mut here = fitting(of_event);
        if let Some(before) = known.last() {
            here.retain(|here| before.iter().any(|before| follows(before, here)));
        }
        if here.is_empty() {
            return;
        }
        known.push(here);
    }
    for index in (1..known.len()).rev() {
        let (before, behind) = known.split_at_mut(index);
        before[index - 1].retain(|here| behind[0].iter().any(|next| follows(here, next)));
    }
    for (of_event, known) in candidates.iter_mut().zip(known) {
        for (epoch, candidate) in of_event.iter_mut().enumerate() {
            candidate.fits = known.iter().any(|(known, _)| *known == epoch);
        }
    }
}

/// When a chunk's events were raised, reference clock.
fn life(header: &ChunkHeader) -> (i64, i64) {
    let (open_ns, close_ns) = (header.open_reference_ns, header.close_reference_ns);
    (open_ns, close_ns.max(open_ns))
}
