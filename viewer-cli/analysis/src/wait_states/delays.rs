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
//! `own` is the *direct* cost of the extra work of C, and `passed` the cost of what C waited for: the locations whose extra
//! work caused these waits of C have it, in proportion. So the costs of a wait add up to the wait, and each nanosecond
//! of waiting has one cause. The extra work is in the call paths in which C has worked longer than W: their differences, in
//! proportion where they are more than `own`. Where they are less, what else made C late is not known.
//!
//! It follows the delay analysis of Böhme, Geimer, Wolf and Arnold ("Identifying the root causes of wait states in
//! large-scale parallel applications", ICPP 2010), but runs forward, in one pass and in bounded memory: each location keeps
//! the last [`RECENT_WAITS`] waits, with at most [`MOST_ROOTS`] causes each, and [`RECENT_WORK`] pieces of work; of older work, a
//! sum for each call path.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Number of waits that are kept of a location.
const RECENT_WAITS: usize = 64;
/// Number of pieces of work that are kept of a location.
const RECENT_WORK: usize = 256;
/// Number of causes that are kept of a wait. The smallest ones are added to the largest.
const MOST_ROOTS: usize = 4;
/// Number of pairs of locations whose last message is kept.
const MOST_PAIRS: usize = 1 << 20;

/// A location that caused a wait, and how much of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Root {
    pub(super) location: u32,
    /// Whether it caused the wait by receiving its messages in the wrong order, and not by extra work.
    pub(super) is_wrong_order: bool,
    pub(super) cost_ns: i64,
}

/// Locations that caused a wait.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Roots {
    roots: [Root; MOST_ROOTS],
    count: usize,
}

impl Roots {
    fn add(&mut self, root: Root) {
        let known = &mut self.roots[..self.count];
        let is_same = |known: &&mut Root| {
            (known.location, known.is_wrong_order) == (root.location, root.is_wrong_order)
        };
        if let Some(same) = known.iter_mut().find(is_same) {
            same.cost_ns += root.cost_ns;
        } else if self.count < MOST_ROOTS {
            self.roots[self.count] = root;
            self.count += 1;
        } else if let Some(largest) = known.iter_mut().max_by_key(|known| known.cost_ns) {
            largest.cost_ns += root.cost_ns;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.roots[..self.count].iter()
    }

    pub(super) fn sum_ns(&self) -> i64 {
        self.iter().map(|root| root.cost_ns).sum()
    }
}

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
struct PastWait {
    end_ns: i64,
    wait_ns: i64,
    roots: Roots,
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

/// Makes one piece of the older half of a location's work for each call path; of many paths, those with the latest work.
fn compact(work: &mut VecDeque<(i64, u32, i64)>) {
    let mut sums: FxHashMap<u32, (i64, i64)> = FxHashMap::default();
    for (end_ns, path, work_ns) in work.drain(..RECENT_WORK / 2) {
        let sum = sums.entry(path).or_default();
        *sum = (end_ns, sum.1 + work_ns);
    }
    let pieces = sums
        .into_iter()
        .map(|(path, (end_ns, work_ns))| (end_ns, path, work_ns));
    let mut pieces: Vec<(i64, u32, i64)> = pieces.collect();
    pieces.sort_unstable();
    for piece in pieces.into_iter().rev().take(RECENT_WORK / 4) {
        work.push_front(piece);
    }
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
            compact(work);
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

    /// Remembers a wait. Returns the parts of it that its cause passed on, with the locations that made the cause wait. The
    /// rest is the cause's own.
    pub(super) fn passed(&mut self, waiting: &Waiting) -> Roots {
        let (since_ns, cause_since_ns) = self.last_synchronised(waiting);
        let own = &self.locations[waiting.location as usize];
        let cause = &self.locations[waiting.cause as usize];
        let waited = own.waits_since(since_ns, waiting.entered_ns);
        let waited_ns: i64 = waited.map(|wait| wait.wait_ns).sum();
        let waits = || cause.waits_since(cause_since_ns, waiting.cause_entered_ns);
        let cause_waited_ns: i64 = waits().map(|wait| wait.wait_ns).sum();
        let passed_ns = (cause_waited_ns - waited_ns).clamp(0, waiting.wait_ns);
        let mut roots = Roots::default();
        if passed_ns > 0 {
            for root in waits().flat_map(|wait| wait.roots.iter()) {
                let share = i128::from(root.cost_ns) * i128::from(passed_ns);
                let cost_ns = (share / i128::from(cause_waited_ns)) as i64;
                roots.add(Root { cost_ns, ..*root });
            }
            // What rounding has left.
            let rest_ns = passed_ns - roots.sum_ns();
            if let Some(first) = roots.roots.first_mut().filter(|_| roots.count > 0) {
                first.cost_ns += rest_ns;
            }
        }
        let mut all = roots;
        let cost_ns = waiting.wait_ns - roots.sum_ns();
        if cost_ns > 0 {
            all.add(Root {
                location: waiting.cause,
                is_wrong_order: false,
                cost_ns,
            });
        }
        let waits = &mut self.locations[waiting.location as usize].waits;
        if waits.len() >= RECENT_WAITS {
            waits.pop_front();
        }
        let end_ns = waiting.entered_ns + waiting.wait_ns;
        let past = PastWait {
            end_ns,
            wait_ns: waiting.wait_ns,
            roots: all,
        };
        // For which receive it waited may be known only after later waits.
        let later = waits.iter().rev().take_while(|wait| wait.end_ns > end_ns);
        waits.insert(waits.len() - later.count(), past);
        roots
    }

    /// Assigns a part of a location's wait that ended at a time to the location itself: it received its messages in the wrong
    /// order. The parts of the other causes become smaller in proportion.
    pub(super) fn receive_in_wrong_order(&mut self, location: u32, end_ns: i64, cost_ns: i64) {
        let waits = &mut self.locations[location as usize].waits;
        let Some(wait) = waits.iter_mut().rev().find(|wait| wait.end_ns == end_ns) else {
            return;
        };
        let cost_ns = cost_ns.min(wait.wait_ns);
        let rest_ns = wait.wait_ns - cost_ns;
        let mut roots = Roots::default();
        for root in wait.roots.iter() {
            let share = i128::from(root.cost_ns) * i128::from(rest_ns);
            let cost_ns = (share / i128::from(wait.wait_ns.max(1))) as i64;
            roots.add(Root { cost_ns, ..*root });
        }
        roots.add(Root {
            location,
            is_wrong_order: true,
            cost_ns: wait.wait_ns - roots.sum_ns(),
        });
        wait.roots = roots;
    }

    /// Returns the call paths in which the cause of a wait worked longer than the location that waited, and how much of a cost
    /// that explains, nanoseconds.
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
        if sum > i128::from(cost_ns) {
            for (_, work_ns) in &mut extra {
                *work_ns = (i128::from(*work_ns) * i128::from(cost_ns) / sum) as i64;
            }
        }
        self.extra = extra;
        &self.extra
    }
}
