//! Delays: which location's extra work made others wait.
//!
//! Location W waits for location C, w ns long. Since both were last synchronised – by a message from C to W, or by an
//! operation in which all wait for all – C has worked for some time and waited for some time, and so has W. With
//!
//! ```text
//! passed = min(w, max(0, waits of C − waits of W))
//! own    = w − passed
//! ```
//!
//! `own` is the *direct* cost of the extra work of C, and `passed` the cost of what C waited for: of the location whose extra
//! work caused the longest of these waits of C. So the costs of a wait add up to the wait, and each nanosecond of waiting
//! has one cause. The extra work is in the call paths in which C has worked longer than W; their differences are scaled
//! to `own`.
//!
//! It follows the delay analysis of Böhme, Geimer, Wolf and Arnold ("Identifying the root causes of wait states in
//! large-scale parallel applications", ICPP 2010), but for two simplifications that let it run forward, in one pass and in
//! bounded memory: of the waits of C only the longest one's cause counts, and each location keeps the last [`RECENT_WAITS`]
//! waits and [`RECENT_WORK`] pieces of work.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Number of waits that are kept of a location.
const RECENT_WAITS: usize = 64;
/// Number of pieces of work that are kept of a location.
const RECENT_WORK: usize = 256;
/// Number of pairs of locations whose last message is kept.
const MOST_PAIRS: usize = 1 << 20;

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
struct PastWait {
    end_ns: i64,
    wait_ns: i64,
    /// The location whose extra work caused it.
    root: u32,
}

/// What is remembered of a location.
#[derive(Clone, Debug, Default)]
struct History {
    waits: VecDeque<PastWait>,
    /// End of the time in which it was done, call path, nanoseconds.
    work: VecDeque<(i64, u32, i64)>,
    /// By communicator: when the last operation was left in which all wait for all.
    operations: Vec<(u64, i64)>,
}

impl History {
    fn waits_since(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = &PastWait> {
        let past = self.waits.iter().rev();
        past.skip_while(move |wait| wait.end_ns > to_ns)
            .take_while(move |wait| wait.end_ns > from_ns)
    }

    fn work_since(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = (u32, i64)> {
        let past = self.work.iter().rev();
        past.skip_while(move |work| work.0 > to_ns)
            .take_while(move |work| work.0 > from_ns)
            .map(|work| (work.1, work.2))
    }
}

/// A wait whose causes are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) location: u32,
    pub(super) entered_ns: i64,
    pub(super) cause: u32,
    /// When the cause entered what was waited for.
    pub(super) cause_entered_ns: i64,
    pub(super) wait_ns: i64,
}

/// What is remembered of all locations.
#[derive(Debug, Default)]
pub(super) struct Delays {
    locations: Vec<History>,
    /// By sender and receiver: when the last message was sent, and when it was received.
    pairs: FxHashMap<(u32, u32), (i64, i64)>,
    /// Scratch: extra work by call path.
    extra: Vec<(u32, i64)>,
}

impl Delays {
    pub(super) fn new(locations: usize) -> Self {
        Self {
            locations: vec![History::default(); locations],
            ..Self::default()
        }
    }

    /// Takes work of a location that ended at a time: call path, nanoseconds.
    pub(super) fn work(&mut self, location: u32, end_ns: i64, path: u32, work_ns: i64) {
        let work = &mut self.locations[location as usize].work;
        if work.len() >= RECENT_WORK {
            work.pop_front();
        }
        work.push_back((end_ns, path, work_ns));
    }

    /// Takes a message between two locations.
    pub(super) fn message(&mut self, sender: u32, receiver: u32, sent_ns: i64, received_ns: i64) {
        if self.pairs.len() >= MOST_PAIRS {
            self.pairs.clear();
        }
        self.pairs
            .insert((sender, receiver), (sent_ns, received_ns));
    }

    /// Takes the leave of an operation in which all wait for all.
    pub(super) fn operation(&mut self, location: u32, communicator: u64, left_ns: i64) {
        let operations = &mut self.locations[location as usize].operations;
        match operations.iter_mut().find(|known| known.0 == communicator) {
            Some(known) => known.1 = left_ns,
            None => operations.push((communicator, left_ns)),
        }
    }

    /// Returns when two locations were last synchronised before a wait: the time of the one that waited, and of its cause.
    fn last_synchronised(&self, waiting: &Waiting) -> (i64, i64) {
        let pair = self.pairs.get(&(waiting.cause, waiting.location));
        let (mut at_cause_ns, mut at_waiting_ns) = pair.copied().unwrap_or((i64::MIN, i64::MIN));
        let own = &self.locations[waiting.location as usize].operations;
        let others = &self.locations[waiting.cause as usize].operations;
        for (communicator, left_ns) in own {
            let other = others.iter().find(|other| other.0 == *communicator);
            if let Some((_, other_ns)) = other
                && *left_ns > at_waiting_ns
                && *other_ns <= waiting.cause_entered_ns
            {
                (at_waiting_ns, at_cause_ns) = (*left_ns, *other_ns);
            }
        }
        (at_waiting_ns, at_cause_ns)
    }

    /// Remembers a wait. Returns the part of it that its cause passed on, nanoseconds, and the location whose extra work made
    /// the cause wait. `None` if all of it is the cause's own.
    pub(super) fn passed(&mut self, waiting: &Waiting) -> Option<(i64, u32)> {
        let (since_ns, cause_since_ns) = self.last_synchronised(waiting);
        let own = &self.locations[waiting.location as usize];
        let cause = &self.locations[waiting.cause as usize];
        let waited = own.waits_since(since_ns, waiting.entered_ns);
        let waited_ns: i64 = waited.map(|wait| wait.wait_ns).sum();
        let waits = || cause.waits_since(cause_since_ns, waiting.cause_entered_ns);
        let cause_waited_ns: i64 = waits().map(|wait| wait.wait_ns).sum();
        let longest = waits().max_by_key(|wait| wait.wait_ns);
        let passed_ns = (cause_waited_ns - waited_ns).clamp(0, waiting.wait_ns);
        // That a location made another wait that then made it wait is no cause outside of it.
        let root = longest.map(|wait| wait.root).filter(|_| passed_ns > 0);
        let passed = root.map(|root| (passed_ns, root));
        let own_ns = waiting.wait_ns - passed.map_or(0, |passed| passed.0);
        let main = match passed {
            Some((passed_ns, root)) if passed_ns > own_ns => root,
            _ => waiting.cause,
        };
        self.remember(waiting, main);
        passed
    }

    fn remember(&mut self, waiting: &Waiting, root: u32) {
        let waits = &mut self.locations[waiting.location as usize].waits;
        if waits.len() >= RECENT_WAITS {
            waits.pop_front();
        }
        waits.push_back(PastWait {
            end_ns: waiting.entered_ns + waiting.wait_ns,
            wait_ns: waiting.wait_ns,
            root,
        });
    }

    /// Returns the call paths in which the cause of a wait worked longer than the location that waited, scaled to a cost.
    pub(super) fn extra(&mut self, waiting: &Waiting, cost_ns: i64) -> &[(u32, i64)] {
        let (since_ns, cause_since_ns) = self.last_synchronised(waiting);
        let mut extra = std::mem::take(&mut self.extra);
        extra.clear();
        let mut add = |path: u32, work_ns: i64| match extra
            .iter_mut()
            .find(|known: &&mut (u32, i64)| known.0 == path)
        {
            Some(known) => known.1 += work_ns,
            None => extra.push((path, work_ns)),
        };
        let cause = &self.locations[waiting.cause as usize];
        for (path, work_ns) in cause.work_since(cause_since_ns, waiting.cause_entered_ns) {
            add(path, work_ns);
        }
        let own = &self.locations[waiting.location as usize];
        for (path, work_ns) in own.work_since(since_ns, waiting.entered_ns) {
            add(path, -work_ns);
        }
        extra.retain(|(_, work_ns)| *work_ns > 0);
        let sum: i128 = extra.iter().map(|(_, work_ns)| i128::from(*work_ns)).sum();
        for (_, work_ns) in &mut extra {
            *work_ns = (i128::from(*work_ns) * i128::from(cost_ns) / sum.max(1)) as i64;
        }
        self.extra = extra;
        &self.extra
    }
}
