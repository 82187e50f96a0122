//! Clocks that were compared with no other: what collective operations say of them.
//!
//! Where each process needs data of all others, none leaves before the last one has entered; a root's data reach no process before the root
//! has entered. So every operation bounds the distance of two clocks, and the hulls of these bounds ([`Hulls`]) leave a band of lines, of which
//! the middle is taken, and its width is the error. Processes are related through others where that leaves a smaller error (Dijkstra 1959).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use crate::clocks::hulls::{Fit, Hulls, Quality, RATE_BITS};
use crate::messages::{MessageBatch, MessageContent, NOBODY, NONE, Semantics};

/// Number of begins and ends that are kept. Of more, whole operations are left out.
const MOST_PARTS: usize = 1 << 21;
/// Number of bounds that are gathered although every process is related already.
const MOST_BOUNDS: usize = 20_000_000;
/// Number of times that the bounds which contradict each other most are left out.
const MOST_ATTEMPTS: usize = 64;
/// No two clocks of computers are farther apart than 300 parts in a million.
const LARGEST_RATE: i128 = (1 << RATE_BITS) / 1_000_000 * 300;
/// What rounding adds to an error, nanoseconds.
const ROUNDING_NS: u64 = 4;

/// What a process did in an operation, by its clock.
#[derive(Clone, Copy, Debug)]
struct Part {
    process: u32,
    begin_ns: Option<i64>,
    end_ns: Option<i64>,
    /// Whether others wait for it, and whether it waits for others.
    sends: bool,
    receives: bool,
}

/// An operation.
#[derive(Debug)]
struct Operation {
    semantics: Semantics,
    root: u32,
    parts: Vec<Part>,
}

impl Operation {
    /// Returns whether an end of one process cannot be before the begin of another.
    fn orders(&self, begin: &Part, end: &Part) -> bool {
        begin.sends
            && end.receives
            && match self.semantics {
                Semantics::AllToAll => true,
                Semantics::OneToAll => begin.process == self.root,
                Semantics::AllToOne => end.process == self.root,
                Semantics::Prefix | Semantics::Nothing => false,
            }
    }
}

/// How the clock of a process is corrected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Related {
    pub(crate) process: u32,
    /// The process through which it is related.
    pub(crate) through: u32,
    pub(crate) fit: Fit,
}

/// Bounds of what has to be added to the times of a process: at least, and at most.
#[derive(Default)]
struct Band {
    least: Vec<(i64, i64)>,
    most: Vec<(i64, i64)>,
}

impl Band {
    /// Returns the middle of the band, without bounds that contradict each other: operations that are matched by their order only may be
    /// others. `None` if one side has no bound, or too many contradict.
    fn fit(mut self, span: Span) -> Option<Fit> {
        let (start_ns, end_ns) = span;
        for _ in 0..MOST_ATTEMPTS {
            let mut hulls = Hulls::default();
            for (time_ns, added_ns) in &self.least {
                hulls.child_received(*time_ns, time_ns.saturating_add(*added_ns));
            }
            for (time_ns, added_ns) in &self.most {
                hulls.child_sent(*time_ns, time_ns.saturating_add(*added_ns));
            }
            let mut fit = hulls.line(start_ns, end_ns, LARGEST_RATE, true)?;
            if fit.quality == Quality::Accurate {
                fit.bounds = fit.bounds.map(|(start, end)| {
                    (
                        start.saturating_add(ROUNDING_NS),
                        end.saturating_add(ROUNDING_NS),
                    )
                });
                return Some(fit);
            }
            // Of those that meet, one is wrong.
            let slack_least = |of: &(i64, i64)| fit.at(of.0).saturating_sub(of.1);
            let slack_most = |of: &(i64, i64)| of.1.saturating_sub(fit.at(of.0));
            let least = self.least.iter().map(slack_least).min()?;
            let most = self.most.iter().map(slack_most).min()?;
            self.least
                .retain(|of| slack_least(of) > least.saturating_add(2));
            self.most
                .retain(|of| slack_most(of) > most.saturating_add(2));
        }
        None
    }
}

/// First and last time of a process.
type Span = (i64, i64);

/// The operations of a run.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// By communicator and number.
    kept: FxHashMap<(u64, u64), Operation>,
    parts: usize,
    /// Operations are kept whose hash has none of these bits.
    mask: u64,
}

fn hash(key: (u64, u64)) -> u64 {
    /// 2⁶⁴ divided by the golden ratio.
    const APART: u64 = 0x9e37_79b9_7f4a_7c15;
    (key.0.wrapping_mul(APART) ^ key.1).wrapping_mul(APART) >> 32
}

impl Operations {
    /// Takes the begins and ends of operations that have numbers.
    pub(crate) fn feed(&mut self, batch: &MessageBatch) {
        for event in &batch.events {
            let MessageContent::Collective(of) = &event.content else {
                continue;
            };
            let key = (event.communicator, of.sequence);
            let is_known = of.sequence != NONE && event.communicator != NONE;
            if !is_known || of.semantics == Semantics::Nothing || hash(key) & self.mask != 0 {
                continue;
            }
            let operation = self.kept.entry(key).or_insert_with(|| Operation {
                semantics: of.semantics,
                root: of.root,
                parts: Vec::new(),
            });
            if operation.semantics != of.semantics {
                // Its processes contradict each other.
                operation.semantics = Semantics::Nothing;
            }
            if operation.root == NOBODY {
                operation.root = of.root;
            }
            let mut parts = operation.parts.iter_mut();
            let known = parts.position(|part| part.process == event.process);
            let at = known.unwrap_or_else(|| {
                self.parts += 1;
                operation.parts.push(Part {
                    process: event.process,
                    begin_ns: None,
                    end_ns: None,
                    sends: false,
                    receives: false,
                });
                operation.parts.len() - 1
            });
            let part = &mut operation.parts[at];
            match of.is_begin {
                true => (part.begin_ns, part.sends) = (Some(event.time_ns), of.takes_part),
                false => (part.end_ns, part.receives) = (Some(event.time_ns), of.takes_part),
            }
        }
        while self.parts > MOST_PARTS {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.kept.retain(|key, _| hash(*key) & mask == 0);
            self.parts = self
                .kept
                .values()
                .map(|operation| operation.parts.len())
                .sum();
        }
    }

    /// Relates processes to the first one, `base`, or through others to it, in this order. `spans` are the first and last times of
    /// processes, by number; processes without one are not related.
    pub(crate) fn relate(&self, base: u32, spans: &BTreeMap<u32, Span>) -> Vec<Related> {
        let mut of_process: FxHashMap<u32, Vec<&Operation>> = FxHashMap::default();
        for operation in self.kept.values() {
            for part in &operation.parts {
                of_process.entry(part.process).or_default().push(operation);
            }
        }
        let mut found: BTreeMap<u32, (u64, Related)> = BTreeMap::new();
        let mut settled: BTreeMap<u32, Option<Fit>> = BTreeMap::from([(base, None)]);
        let mut related = Vec::new();
        let mut waiting = BinaryHeap::new();
        let (mut next, mut error_ns) = (base, 0_u64);
        let mut gathered = 0_usize;
        loop {
            let are_all_found = found.len() + 1 >= spans.len();
            if gathered < MOST_BOUNDS || !are_all_found {
                let own = settled[&next];
                let operations = of_process.get(&next).map_or(&[][..], Vec::as_slice);
                let bands = bands(next, own.as_ref(), operations, |process| {
                    spans.contains_key(&process) && !settled.contains_key(&process)
                });
                for (process, band) in bands {
                    gathered += band.least.len() + band.most.len();
                    let Some(fit) = band.fit(spans[&process]) else {
                        continue;
                    };
                    let (start, end) = fit.bounds.unwrap_or((u64::MAX, u64::MAX));
                    let own_ns = error_ns.saturating_add(start.max(end));
                    let through = next;
                    let candidate = Related {
                        process,
                        through,
                        fit,
                    };
                    if found
                        .get(&process)
                        .is_none_or(|(known_ns, _)| own_ns < *known_ns)
                    {
                        found.insert(process, (own_ns, candidate));
                        waiting.push(Reverse((own_ns, process)));
                    }
                }
            }
            let chosen = loop {
                match waiting.pop() {
                    Some(Reverse((_, process))) if settled.contains_key(&process) => {}
                    Some(Reverse((own_ns, process))) => break Some((own_ns, process)),
                    None => break None,
                }
            };
            let Some((own_ns, process)) = chosen else {
                return related;
            };
            let (_, candidate) = found[&process];
            settled.insert(process, Some(candidate.fit));
            related.push(candidate);
            (next, error_ns) = (process, own_ns);
        }
    }
}

/// Returns what the operations of a process, whose times are corrected by `own`, say of others that are wanted.
fn bands(
    process: u32,
    own: Option<&Fit>,
    operations: &[&Operation],
    is_wanted: impl Fn(u32) -> bool,
) -> BTreeMap<u32, Band> {
    let corrected =
        |time_ns: i64| own.map_or(time_ns, |fit| time_ns.saturating_add(fit.at(time_ns)));
    let mut bands: BTreeMap<u32, Band> = BTreeMap::new();
    for operation in operations {
        let Some(ours) = operation.parts.iter().find(|part| part.process == process) else {
            continue;
        };
        for other in operation
            .parts
            .iter()
            .filter(|part| is_wanted(part.process))
        {
            let is_bound = |begin: &Part, end: &Part| {
                let both = begin.begin_ns.zip(end.end_ns);
                both.filter(|_| operation.orders(begin, end))
            };
            let least = is_bound(ours, other);
            let most = is_bound(other, ours);
            if least.is_none() && most.is_none() {
                continue;
            }
            let band = bands.entry(other.process).or_default();
            band.least
                .extend(least.map(|(begin_ns, end_ns)| {
                    (end_ns, corrected(begin_ns).saturating_sub(end_ns))
                }));
            band.most.extend(
                most.map(|(begin_ns, end_ns)| {
                    (begin_ns, corrected(end_ns).saturating_sub(begin_ns))
                }),
            );
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Collective, MessageEvent};

    /// A generator of numbers (SplitMix64), the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        }

        fn below(&mut self, most: u64) -> i64 {
            (self.next() % most) as i64
        }
    }

    /// A clock: its distance from true time at 0, and its rate.
    #[derive(Clone, Copy)]
    struct Clock {
        offset_ns: i64,
        drift_ppb: i64,
    }

    impl Clock {
        fn at(self, true_ns: i64) -> i64 {
            let drifted = i128::from(true_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
            true_ns + self.offset_ns + drifted as i64
        }
    }

    /// An operation as it was: semantics, root, and begin and end of each member in true time.
    struct True {
        semantics: Semantics,
        root: u32,
        group: u64,
        parts: Vec<(u32, i64, i64)>,
    }

    /// A job: ranks work for different times, and meet in operations of all of them, or of groups of eight.
    fn job(ranks: u32, count: usize, numbers: &mut Numbers) -> Vec<True> {
        let mut now = vec![0_i64; ranks as usize];
        let mut operations = Vec::new();
        for number in 0..count {
            let semantics = match numbers.below(10) {
                0..6 => Semantics::AllToAll,
                6..8 => Semantics::OneToAll,
                _ => Semantics::AllToOne,
            };
            let groups: Vec<(u64, Vec<u32>)> = match number % 4 {
                3 if ranks > 8 => (0..ranks / 8)
                    .map(|group| (1 + u64::from(group), (8 * group..8 * group + 8).collect()))
                    .collect(),
                _ => vec![(0, (0..ranks).collect())],
            };
            for (group, members) in groups {
                let root = members[numbers.below(members.len() as u64) as usize];
                let begins: Vec<i64> = members
                    .iter()
                    .map(|rank| now[*rank as usize] + 200_000 + numbers.below(3_000_000))
                    .collect();
                let last = begins.iter().copied().max().unwrap_or(0);
                let of_root = begins[members.iter().position(|rank| *rank == root).unwrap_or(0)];
                let parts = members.iter().zip(&begins).map(|(rank, begin_ns)| {
                    let is_root = *rank == root;
                    // A root of a broadcast and the others of a reduction leave early.
                    let waits_for = match semantics {
                        Semantics::OneToAll if !is_root => of_root,
                        Semantics::AllToOne if is_root => last,
                        Semantics::AllToAll => last,
                        _ => *begin_ns,
                    };
                    let jitter =
                        numbers.below(30_000) + if numbers.below(20) == 0 { 500_000 } else { 0 };
                    let end_ns = waits_for.max(*begin_ns) + 5_000 + jitter;
                    now[*rank as usize] = end_ns;
                    (*rank, *begin_ns, end_ns)
                });
                operations.push(True {
                    semantics,
                    root,
                    group,
                    parts: parts.collect(),
                });
            }
        }
        operations
    }

    fn events(job: &[True], clocks: &[Clock], numbers: &mut Numbers) -> MessageBatch {
        let mut batch = MessageBatch::default();
        for (number, operation) in job.iter().enumerate() {
            for (rank, begin_ns, end_ns) in &operation.parts {
                for (is_begin, true_ns) in [(true, *begin_ns), (false, *end_ns)] {
                    if numbers.below(100) == 0 {
                        continue;
                    }
                    batch.events.push(MessageEvent {
                        time_ns: clocks[*rank as usize].at(true_ns),
                        communicator: operation.group,
                        request: NONE,
                        process: *rank,
                        clock: *rank,
                        content: MessageContent::Collective(Collective {
                            place: -1,
                            size: operation.parts.len() as u32,
                            sequence: number as u64,
                            root: operation.root,
                            operation: 0,
                            is_begin,
                            semantics: operation.semantics,
                            takes_part: true,
                        }),
                    });
                }
            }
        }
        batch
    }

    /// Returns half of the distance that the operations leave between a rank and rank 0, both ways, if all rates and the other clocks were
    /// known: no method can know more.
    fn least_error(job: &[True], rank: u32) -> i64 {
        let (mut to, mut from) = (i64::MAX / 4, i64::MAX / 4);
        for operation in job {
            let part = |wanted: u32| operation.parts.iter().find(|part| part.0 == wanted);
            let (Some(ours), Some(base)) = (part(rank), part(0)) else {
                continue;
            };
            let orders = |begin: u32, end: u32| match operation.semantics {
                Semantics::AllToAll => true,
                Semantics::OneToAll => begin == operation.root,
                _ => end == operation.root,
            };
            if orders(0, rank) {
                to = to.min(ours.2 - base.1);
            }
            if orders(rank, 0) {
                from = from.min(base.2 - ours.1);
            }
        }
        (to + from) / 2
    }

    #[test]
    fn true_offsets_are_within_the_stated_errors() {
        let is_long = std::env::var_os("ANNALS_LONG").is_some();
        let (cases, sizes) = match is_long {
            true => (200, &[2, 3, 4, 8, 16, 64, 128, 512][..]),
            false => (12, &[2, 3, 8, 32][..]),
        };
        let mut numbers = Numbers(71);
        let (mut within, mut all) = (0_u64, 0_u64);
        let mut ratios = Vec::new();
        for case in 0..cases {
            let ranks = sizes[case % sizes.len()];
            let job = job(ranks, 40 + case % 100, &mut numbers);
            let clocks = (0..ranks).map(|_| Clock {
                offset_ns: numbers.below(20_000_000_000) - 10_000_000_000,
                drift_ppb: numbers.below(200_000) - 100_000,
            });
            let clocks: Vec<Clock> = clocks.collect();
            let mut operations = Operations::default();
            operations.feed(&events(&job, &clocks, &mut numbers));
            let ends = job.iter().flat_map(|operation| &operation.parts);
            let last = ends.map(|part| part.2).max().unwrap_or(0);
            let spans = (0..ranks).map(|rank| {
                let clock = clocks[rank as usize];
                (rank, (clock.at(0), clock.at(last)))
            });
            let related = operations.relate(0, &spans.collect());
            assert_eq!(related.len() as u32, ranks - 1);
            let mut errors = BTreeMap::from([(0, 0)]);
            for of in related {
                let (at_start, at_end) = of.fit.bounds.expect("a bound");
                let error = errors[&of.through] + at_start.max(at_end);
                errors.insert(of.process, error);
                let mut worst = 0;
                for (true_ns, bound) in [
                    (0, at_start),
                    (last, at_end),
                    (last / 2, at_start.max(at_end)),
                ] {
                    let time_ns = clocks[of.process as usize].at(true_ns);
                    let wrong = (time_ns + of.fit.at(time_ns)).abs_diff(clocks[0].at(true_ns));
                    within += u64::from(wrong <= errors[&of.through] + bound);
                    all += 1;
                    worst = worst.max(wrong);
                }
                ratios.push(worst as f64 / least_error(&job, of.process).max(1) as f64);
            }
        }
        assert!(within * 1000 >= all * 995, "{within} of {all}");
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        println!("{within} of {all} within; median of errors {median:.2} times the least");
        assert!(median <= 2.0, "{median}");
    }

    #[test]
    fn operations_that_are_matched_wrongly_are_found_and_left_out() {
        let mut numbers = Numbers(5);
        let job = job(2, 60, &mut numbers);
        let clocks = [0, 3_000_000_000].map(|offset_ns| Clock {
            offset_ns,
            drift_ppb: 0,
        });
        let mut batch = events(&job, &clocks, &mut numbers);
        // An event of one rank belongs to an operation that was 40 ms before.
        for event in batch.events.iter_mut().filter(|event| event.process == 1) {
            if let MessageContent::Collective(of) = &mut event.content
                && of.sequence == 20
            {
                event.time_ns -= 40_000_000;
            }
        }
        let mut operations = Operations::default();
        operations.feed(&batch);
        let span = (0, 200_000_000);
        let spans = BTreeMap::from([(0, span), (1, (3_000_000_000, 3_200_000_000))]);
        let [related] = operations.relate(0, &spans)[..] else {
            panic!("rank 1 is related");
        };
        let (at_start, _) = related.fit.bounds.expect("a bound");
        let wrong = related.fit.at(3_000_000_000).abs_diff(-3_000_000_000);
        assert!(wrong <= at_start, "{wrong} {at_start}");
    }

    #[test]
    fn of_too_many_operations_whole_ones_are_left_out() {
        let mut operations = Operations::default();
        let mut numbers = Numbers(1);
        let clock = Clock {
            offset_ns: 0,
            drift_ppb: 0,
        };
        for start in 0..3_u64 {
            let mut batch = events(&job(512, 2_000, &mut numbers), &[clock; 512], &mut numbers);
            for event in &mut batch.events {
                if let MessageContent::Collective(of) = &mut event.content {
                    of.sequence += start << 32;
                }
            }
            operations.feed(&batch);
        }
        assert!(operations.parts <= MOST_PARTS && operations.mask != 0);
        let whole = operations
            .kept
            .values()
            .filter(|operation| operation.parts.len() > 500);
        assert!(whole.count() > 100);
    }
}
