//! A controlled logical clock: moves events forward until no receive is before its send.
//!
//! After Becker, Rabenseifner and Wolf, "Scalable timestamp synchronization for event traces of
//! message-passing applications" (2009): a receive that is too early is moved after its send. Later
//! events of its process are moved, too, by less and less (forward amortization). Earlier events
//! are moved as far as their messages allow (backward amortization). All streams of a process are
//! moved in the same way, so that the order within a process does not change.

use std::collections::VecDeque;

use crate::messages::causality::most_waiting;
use crate::messages::matching::Matcher;
use crate::messages::{Lost, Mark, MessageBatch, MessageContent, PointToPointKind};

/// Minimum time from a send to its receive: more than rounding can remove.
const LATENCY_NS: i64 = 4;
/// After a jump, the shift decreases by 1 ns every `FORWARD` ns, until it is 0.
const FORWARD: i64 = 100;
/// Before a jump, the shift increases by 1 ns every `BACKWARD` ns, as far as earlier sends allow.
const BACKWARD: i64 = 16;
/// Number of recent sends of a process that a jump can still move.
const RECENT: usize = 256;
/// Maximum number of knots of all shifts: about 16 MB.
const MOST_KNOTS: usize = 1 << 20;

/// Shifts of the events of a process, as a function of the unmoved time: linear between knots.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Shifts {
    /// Time and shift, ascending by time. The shift is 0 before the first knot, and decreases to 0
    /// after the last one.
    knots: Vec<(i64, i64)>,
}

impl Shifts {
    /// Returns the shift of an event.
    pub(crate) fn at(&self, time_ns: i64) -> i64 {
        let behind = self.knots.partition_point(|(time, _)| *time <= time_ns);
        let Some((a, from)) = behind.checked_sub(1).map(|before| self.knots[before]) else {
            return 0;
        };
        let passed = i128::from(time_ns) - i128::from(a);
        match self.knots.get(behind) {
            Some((b, to)) => {
                let run = i128::from(*b) - i128::from(a);
                let rise = i128::from(*to) - i128::from(from);
                from + (passed * rise).div_euclid(run) as i64
            }
            None => {
                let used = (passed + i128::from(FORWARD) - 1) / i128::from(FORWARD);
                (i128::from(from) - used).max(0) as i64
            }
        }
    }

    /// Returns the largest shift.
    pub(crate) fn most(&self) -> i64 {
        let each = self.knots.iter().map(|(_, shift)| *shift);
        each.max().unwrap_or(0)
    }

    /// Returns a time after it was moved.
    pub(crate) fn moved(&self, time_ns: i64) -> i64 {
        time_ns.saturating_add(self.at(time_ns))
    }

    /// Returns the latest time that is moved to this time at the latest.
    pub(crate) fn unmoved(&self, moved_ns: i64) -> i64 {
        let (mut from, mut to) = (moved_ns.saturating_sub(self.most()), moved_ns);
        while from < to {
            let middle = to - ((i128::from(to) - i128::from(from)) / 2) as i64;
            if self.moved(middle) <= moved_ns {
                from = middle;
            } else {
                to = middle - 1;
            }
        }
        from
    }

    /// Returns the knots: time and shift, ascending by time.
    pub(crate) fn knots(&self) -> &[(i64, i64)] {
        &self.knots
    }

    /// Creates the shifts of a plan. Returns `None` if the times do not ascend.
    pub(crate) fn of_knots(knots: Vec<(i64, i64)>) -> Option<Self> {
        let ascends = knots.is_sorted_by(|a, b| a.0 < b.0);
        ascends.then_some(Self { knots })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.knots.is_empty()
    }

    /// Raises the shift to `to` at a time, and before it as far as earlier sends allow.
    ///
    /// `limits` contains the times of these sends, ascending, with the largest shift of each.
    fn jump(&mut self, at_ns: i64, to: i64, earliest_ns: i64, limits: &[(i64, i64)]) {
        let ramp = to.saturating_sub(self.at(at_ns)).saturating_mul(BACKWARD);
        // Never at the jump itself: the shift of earlier events would rise with it.
        let start = at_ns.saturating_sub(ramp).max(earliest_ns);
        let start = start.min(at_ns.saturating_sub(1));
        let mut moments: Vec<i64> = vec![start];
        let within = |time: &i64| (start..at_ns).contains(time);
        moments.extend(self.knots.iter().map(|knot| knot.0).filter(within));
        moments.extend(limits.iter().map(|limit| limit.0).filter(within));
        // Where the shift has decreased to 0, it stays 0.
        if let Some((last, shift)) = self.knots.last() {
            let end = last.saturating_add(shift.saturating_mul(FORWARD));
            moments.extend(Some(end).filter(within));
        }
        moments.sort_unstable();
        moments.dedup();
        let mut limit = to;
        let mut limits = limits.iter().rev().peekable();
        let mut knots = vec![(at_ns, to)];
        for moment in moments.into_iter().rev().filter(|moment| *moment < at_ns) {
            while let Some((_, most)) = limits.next_if(|(time, _)| *time >= moment) {
                limit = limit.min(*most);
            }
            let target = to.saturating_sub((at_ns - moment) / BACKWARD);
            let target = if moment == start { 0 } else { target };
            knots.push((moment, self.at(moment).max(target.min(limit))));
        }
        knots.reverse();
        // The time at which the previous shift is 0, if that is before the ramp begins.
        let used_up = self.knots.last().map(|(last, shift)| {
            let end = last.saturating_add(shift.saturating_mul(FORWARD));
            (end, 0)
        });
        self.knots.retain(|knot| knot.0 < knots[0].0);
        if let Some(end) = used_up
            && end.0 < knots[0].0
            && self.knots.last().is_some_and(|last| last.0 < end.0)
        {
            self.knots.push(end);
        }
        self.knots.extend(knots);
    }
}

/// A message event that waits for its turn.
#[derive(Debug)]
struct Waiting {
    number: u64,
    time_ns: i64,
    /// Events that it cannot be before. They are known when the matching has reached it.
    after: Vec<Mark>,
    /// Whether it may have to wait for others.
    is_late: bool,
    /// Whether others may have to wait for it.
    is_early: bool,
}

#[derive(Debug, Default)]
struct Process {
    queue: VecDeque<Waiting>,
    /// Events below this number are done.
    done: u64,
    shifts: Shifts,
    /// Sends: number, time, and the largest shift that their receives allow. `None` means that no
    /// receive is known.
    recent: VecDeque<(u64, i64, Option<i64>)>,
    /// Time before which nothing is moved any more.
    earliest_ns: i64,
}

/// Counts of what the plan could not do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Left {
    /// Events that did not wait for the events that they must follow, because too many waited.
    pub(crate) over_limit: u64,
}

/// Computes the shifts, in one pass over the messages.
#[derive(Debug)]
pub(crate) struct Repair {
    matcher: Matcher,
    processes: Vec<Process>,
    next_number: u64,
    waiting: usize,
    knots: usize,
    limit: usize,
    /// Time after an event until all events that it cannot be before are known.
    lag_ns: i64,
    left: Left,
}

impl Repair {
    pub(crate) fn new(processes: usize, limit: usize, lag_ns: i64) -> Self {
        let mut all = Vec::new();
        all.resize_with(processes, || Process {
            earliest_ns: i64::MIN,
            ..Process::default()
        });
        let mut matcher = Matcher::new(processes, limit, false);
        matcher.pair_all();
        Self {
            matcher,
            processes: all,
            next_number: 0,
            waiting: 0,
            knots: 0,
            limit: most_waiting(limit),
            lag_ns,
            left: Left::default(),
        }
    }

    pub(crate) fn lose(&mut self, process: u32, lost: Lost) {
        self.matcher.lose(process, lost);
    }

    pub(crate) fn feed(&mut self, batch: &MessageBatch) {
        for event in &batch.events {
            if let Some(process) = self.processes.get_mut(event.process as usize) {
                process.queue.push_back(Waiting {
                    number: self.next_number,
                    time_ns: event.time_ns,
                    after: Vec::new(),
                    is_late: match &event.content {
                        MessageContent::PointToPoint(message) => {
                            message.kind == PointToPointKind::Receive
                        }
                        MessageContent::Collective(part) => !part.is_begin,
                    },
                    is_early: match &event.content {
                        MessageContent::PointToPoint(message) => {
                            message.kind == PointToPointKind::Send
                        }
                        MessageContent::Collective(part) => part.is_begin,
                    },
                });
                self.waiting += 1;
            }
            self.next_number += 1;
        }
        let processes = &mut self.processes;
        let mut attach = |from: Mark, to: Mark| attach(processes, from, to);
        self.matcher.feed(batch, &mut attach);
        if let Some(last) = batch.events.last() {
            self.advance(last.time_ns);
        }
        while self.waiting > self.limit {
            self.force();
        }
    }

    /// Returns the shifts of each process.
    pub(crate) fn finish(mut self) -> (Vec<Shifts>, Left) {
        let processes = &mut self.processes;
        let mut attach = |from: Mark, to: Mark| attach(processes, from, to);
        self.matcher.finish(&mut attach);
        self.advance(i64::MAX);
        while self.waiting > 0 {
            // Only contradictory matches wait for each other.
            self.force();
            self.advance(i64::MAX);
        }
        let shifts = self.processes.into_iter().map(|process| process.shifts);
        (shifts.collect(), self.left)
    }

    fn is_done(&self, mark: &Mark) -> bool {
        let process = self.processes.get(mark.process as usize);
        process.is_none_or(|process| mark.number < process.done)
    }

    /// Completes all events that can be completed when the messages up to a time are known.
    fn advance(&mut self, until_ns: i64) {
        loop {
            let mut has_moved = false;
            for number in 0..self.processes.len() {
                while let Some(first) = self.processes[number].queue.front() {
                    let is_known =
                        !first.is_late || until_ns.saturating_sub(first.time_ns) > self.lag_ns;
                    let is_known = is_known || until_ns == i64::MAX;
                    if !is_known || !first.after.iter().all(|mark| self.is_done(mark)) {
                        break;
                    }
                    self.complete(number, until_ns);
                    has_moved = true;
                }
            }
            if !has_moved {
                return;
            }
        }
    }

    /// Completes the earliest waiting event although it would have to wait.
    fn force(&mut self) {
        let heads = self.processes.iter().enumerate();
        let heads = heads.filter_map(|(number, process)| {
            let first = process.queue.front()?;
            Some((first.time_ns, first.number, number))
        });
        let Some((time_ns, _, number)) = heads.min() else {
            self.waiting = 0;
            return;
        };
        self.left.over_limit += 1;
        self.complete(number, time_ns);
    }

    fn complete(&mut self, number: usize, until_ns: i64) {
        let Some(event) = self.processes[number].queue.pop_front() else {
            return;
        };
        self.waiting -= 1;
        let mut needed_ns = i64::MIN;
        for mark in &event.after {
            if let Some(from) = self.processes.get(mark.process as usize) {
                let sent_ns = from.shifts.moved(mark.time_ns);
                needed_ns = needed_ns.max(sent_ns.saturating_add(LATENCY_NS));
            }
        }
        if self.processes[number].shifts.moved(event.time_ns) < needed_ns {
            self.jump(number, &event, needed_ns, until_ns);
        }
        let received_ns = self.processes[number].shifts.moved(event.time_ns);
        for mark in &event.after {
            let from = &mut self.processes[mark.process as usize];
            let found = from
                .recent
                .binary_search_by_key(&mark.number, |recent| recent.0);
            if let Ok(place) = found {
                let most = received_ns - LATENCY_NS - mark.time_ns;
                let known = &mut from.recent[place].2;
                *known = Some(known.map_or(most, |known| known.min(most)));
            }
        }
        let process = &mut self.processes[number];
        process.done = event.number + 1;
        if event.is_early {
            process
                .recent
                .push_back((event.number, event.time_ns, None));
            if process.recent.len() > RECENT
                && let Some((_, time_ns, _)) = process.recent.pop_front()
            {
                process.earliest_ns = process.earliest_ns.max(time_ns.saturating_add(1));
            }
        }
    }

    fn jump(&mut self, number: usize, event: &Waiting, needed_ns: i64, until_ns: i64) {
        let before = self.processes[number].shifts.knots.len();
        if self.knots >= MOST_KNOTS {
            self.left.over_limit += 1;
            return;
        }
        // No event that is not done yet will be before this time.
        let heads = self
            .processes
            .iter()
            .enumerate()
            .filter_map(|(other, process)| {
                let first = process.queue.front()?;
                (other != number).then_some(first.time_ns)
            });
        let front_ns = heads.min().unwrap_or(until_ns).min(until_ns);
        let process = &mut self.processes[number];
        let limits = process.recent.iter().map(|(_, time_ns, most)| {
            let of_rest = front_ns.saturating_sub(LATENCY_NS).saturating_sub(*time_ns);
            let now = process.shifts.at(*time_ns);
            // A begin can have several ends.
            let most = most.map_or(of_rest, |most| most.min(of_rest));
            (*time_ns, most.max(now))
        });
        let limits: Vec<(i64, i64)> = limits.collect();
        let to = needed_ns.saturating_sub(event.time_ns);
        let earliest_ns = process.earliest_ns;
        process.shifts.jump(event.time_ns, to, earliest_ns, &limits);
        self.knots += process.shifts.knots.len();
        self.knots = self.knots.saturating_sub(before);
    }
}

fn attach(processes: &mut [Process], from: Mark, to: Mark) {
    let Some(process) = processes.get_mut(to.process as usize) else {
        return;
    };
    let found = process
        .queue
        .binary_search_by_key(&to.number, |waiting| waiting.number);
    if let Ok(place) = found {
        process.queue[place].after.push(from);
    }
}
