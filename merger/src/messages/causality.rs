//! Checks whether the order of the trace contradicts its messages: a receive before its send, or an
//! end of a collective operation before a begin that it waited for.

use annals_format::{ClockId, Definitions};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::clocks::bounds::Bounds;
use crate::clocks::hosts::HostFitReport;
use crate::messages::collectives::{Carry, CollectiveCounts};
use crate::messages::matching::{Matcher, MessageCounts, Shard, ShardedBatch};
use crate::messages::{Extractor, Mark, SHARDS};
use crate::stages::{self, Stage};
use crate::workers::Workers;

/// Default for the maximum number of messages in flight to one sixteenth of the processes: about 10 MB.
pub const MESSAGES_IN_FLIGHT: usize = 1 << 16;
/// Maximum number of pairs of processes of a shard whose violations are counted separately.
const MOST_PAIRS: usize = 1 << 14;
/// Maximum number of pairs that a report lists.
const LISTED_PAIRS: usize = 1000;

/// What a merge does if the order of events contradicts the messages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Causality {
    /// Does not check the order.
    Off,
    /// Counts the contradictions.
    #[default]
    Check,
    /// Moves events until nothing contradicts the messages. Raw ticks are kept.
    Repair,
}

impl Causality {
    /// All values.
    pub const ALL: [Self; 3] = [Self::Off, Self::Check, Self::Repair];

    /// Returns the name that flags and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Check => "check",
            Self::Repair => "repair",
        }
    }
}

/// Violations, measured by how far the event that must be later is before the other one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct ViolationReport {
    /// Number of violations.
    pub count: u64,
    /// Number of violations that are larger than the error of the clocks allows: their clocks or
    /// messages are not as recorded. If the error has no bound, a violation does not count here.
    pub beyond_error: u64,
    /// The largest violation, nanoseconds.
    pub largest_ns: u64,
    /// The mean violation, nanoseconds, rounded down.
    pub mean_ns: u64,
}

/// Violations between two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct PairReport {
    /// Rank of the process that sent, or began.
    pub from_rank: u32,
    /// Rank of the process that received, or ended.
    pub to_rank: u32,
    /// Violations between the two processes.
    #[serde(flatten)]
    pub violations: ViolationReport,
}

/// Result of a repair.
///
/// A controlled logical clock moved events forward, in all streams of a process in the same way.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct RepairReport {
    /// Violations before the repair. Those after it are in [`CausalityReport::violations`]. For
    /// collective operations, every pair of a begin and an end counts.
    pub before: ViolationReport,
    /// Hosts whose clocks were fitted to the messages first.
    pub hosts: Vec<HostFitReport>,
    /// Processes whose events were moved.
    pub processes: u64,
    /// Events that were moved.
    pub events: u64,
    /// The largest shift, nanoseconds.
    pub largest_shift_ns: u64,
    /// The mean shift of the events that were moved, nanoseconds, rounded down.
    pub mean_shift_ns: u64,
    /// The largest change of the time between two neighbouring events of a stream, nanoseconds.
    pub largest_interval_change_ns: u64,
    /// The mean of this change over all neighbouring events, nanoseconds, rounded down.
    pub mean_interval_change_ns: u64,
    /// Events that were left unchanged because too many events waited for each other.
    pub over_limit: u64,
}

/// Comparison of the order of the events with their messages.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct CausalityReport {
    /// `check` or `repair`.
    pub mode: &'static str,
    /// Maximum number of messages in flight to one sixteenth of the processes.
    pub limit: u64,
    /// Counts of messages.
    pub messages: MessageCounts,
    /// Counts of collective operations.
    pub collectives: CollectiveCounts,
    /// Number of pairs of events of which one cannot be before the other.
    pub constraints: u64,
    /// All violations.
    pub violations: ViolationReport,
    /// Violations by pair of ranks, the largest first. At most 1000 pairs.
    pub pairs: Vec<PairReport>,
    /// Pairs that are not listed. If there are more than some ten thousand pairs, also violations that were not counted for
    /// their pair.
    pub pairs_left_out: u64,
    /// Result of the repair. Null means that no repair was requested, or that none was needed.
    pub repair: Option<RepairReport>,
}

/// Sum of violations.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    count: u64,
    beyond_error: u64,
    largest_ns: u64,
    sum_ns: u128,
}

impl Sum {
    fn add(&mut self, size_ns: u64, is_beyond: bool) {
        self.count += 1;
        self.beyond_error += u64::from(is_beyond);
        self.largest_ns = self.largest_ns.max(size_ns);
        self.sum_ns += u128::from(size_ns);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.beyond_error += other.beyond_error;
        self.largest_ns = self.largest_ns.max(other.largest_ns);
        self.sum_ns += other.sum_ns;
    }

    fn report(&self) -> ViolationReport {
        ViolationReport {
            count: self.count,
            beyond_error: self.beyond_error,
            largest_ns: self.largest_ns,
            mean_ns: (self.sum_ns / u128::from(self.count.max(1))) as u64,
        }
    }
}

/// Violations by pair of processes.
#[derive(Debug, Default)]
struct Violations {
    constraints: u64,
    all: Sum,
    pairs: FxHashMap<(u32, u32), Sum>,
    left_out: u64,
}

impl Violations {
    /// Checks two events of which `to` cannot be before `from`.
    #[inline]
    fn look<D>(&mut self, bounds: &Bounds, from: &Mark<D>, to: &Mark<D>) {
        self.constraints += 1;
        if to.time_ns < from.time_ns {
            self.add(bounds, from, to);
        }
    }

    fn add<D>(&mut self, bounds: &Bounds, from: &Mark<D>, to: &Mark<D>) {
        let size_ns = from.time_ns.abs_diff(to.time_ns);
        let error_ns = bounds.between(
            (ClockId::new(from.clock), from.time_ns),
            (ClockId::new(to.clock), to.time_ns),
        );
        let is_beyond = error_ns.is_some_and(|error_ns| size_ns > error_ns);
        self.all.add(size_ns, is_beyond);
        let pair = (from.process, to.process);
        if self.pairs.len() >= MOST_PAIRS && !self.pairs.contains_key(&pair) {
            self.left_out += 1;
            return;
        }
        let sum = self.pairs.entry(pair).or_default();
        sum.add(size_ns, is_beyond);
    }

    /// Adds the violations of another shard.
    fn merge(&mut self, other: Self) {
        self.constraints += other.constraints;
        self.all.merge(&other.all);
        for (pair, sum) in other.pairs {
            self.pairs.entry(pair).or_default().merge(&sum);
        }
        self.left_out += other.left_out;
    }
}

/// Returns how many events of messages wait for others in a repair, at most, with a limit of messages in flight: both of a
/// message may wait.
pub(crate) const fn most_waiting(limit: usize) -> usize {
    limit.saturating_mul(2)
}

/// Shards that one thread works on, with what gets their pairs.
struct Strand<'a, D, S> {
    shards: Vec<(Shard<'a, D>, &'a mut Violations)>,
    /// Longest time from the later event of a pair until the pair was known, nanoseconds.
    lag_ns: i64,
    sink: &'a mut S,
}

impl<D: Carry, S: FnMut(Mark<D>, Mark<D>)> Strand<'_, D, S> {
    fn feed(&mut self, batch: &ShardedBatch<D>, first: u64, bounds: &Bounds, now_ns: i64) {
        let (lag_ns, sink) = (&mut self.lag_ns, &mut self.sink);
        for (shard, violations) in &mut self.shards {
            let mut look = |from: Mark<D>, to: Mark<D>| {
                *lag_ns = (*lag_ns).max(now_ns.saturating_sub(to.time_ns));
                violations.look(bounds, &from, &to);
                sink(from, to);
            };
            stages::during(Stage::Match, || {
                shard.feed_messages(batch, first, &mut look);
            });
            stages::during(Stage::Collectives, || {
                shard.feed_collectives(batch, first, &mut look);
            });
        }
    }
}

/// A check in progress.
#[derive(Debug)]
pub(crate) struct Check<D = ()> {
    matcher: Matcher<D>,
    bounds: Bounds,
    /// By shard.
    violations: Vec<Violations>,
    limit: usize,
    /// Time of the last event that was fed, nanoseconds.
    now_ns: i64,
    /// Longest time from the later event of a pair until the pair was known, nanoseconds.
    lag_ns: i64,
    mode: Causality,
}

impl<D: Carry + Send + Sync> Check<D> {
    pub(crate) fn new(
        extractor: &Extractor,
        definitions: &Definitions,
        limit: usize,
        mode: Causality,
    ) -> Self {
        let mut matcher = extractor.matcher(limit);
        if mode == Causality::Repair {
            matcher.pair_all();
        }
        Self {
            matcher,
            bounds: Bounds::of(definitions),
            violations: (0..SHARDS).map(|_| Violations::default()).collect(),
            limit,
            now_ns: i64::MIN,
            lag_ns: 0,
            mode,
        }
    }

    /// Returns the violations so far.
    pub(crate) fn violations(&self) -> ViolationReport {
        let mut all = Sum::default();
        self.violations.iter().for_each(|of| all.merge(&of.all));
        all.report()
    }

    /// Returns how long after an event all events that it cannot be before were known, nanoseconds.
    pub(crate) const fn lag_ns(&self) -> i64 {
        self.lag_ns
    }

    /// Records which events a process had lost before its first event.
    pub(crate) fn lose(&mut self, process: u32, lost: crate::messages::Lost) {
        self.matcher.lose(process, lost);
    }

    /// Processes the next events. The shards are divided among the `sinks`, each of which gets the pairs of its shards; what
    /// all of them get together does not depend on their number.
    pub(crate) fn feed<S: FnMut(Mark<D>, Mark<D>) + Send>(
        &mut self,
        workers: &Workers,
        batch: &ShardedBatch<D>,
        sinks: &mut [S],
    ) {
        if batch.is_empty() {
            return;
        }
        self.now_ns = batch.last_ns().unwrap_or(self.now_ns);
        let (first, shards) = self.matcher.shards(batch.len());
        let mut shards = shards.zip(&mut self.violations);
        let count = sinks.len();
        assert_ne!(count, 0, "the shards need a sink");
        let strands = sinks.iter_mut().enumerate().map(|(number, sink)| {
            let own = (number + 1) * SHARDS / count - number * SHARDS / count;
            Strand {
                shards: shards.by_ref().take(own).collect(),
                lag_ns: 0,
                sink,
            }
        });
        let strands: Vec<Strand<'_, D, S>> = strands.collect();
        let (bounds, now_ns) = (&self.bounds, self.now_ns);
        let feed = |mut strand: Strand<'_, D, S>| {
            strand.feed(batch, first, bounds, now_ns);
            strand.lag_ns
        };
        let lags = workers.map(strands, feed);
        self.lag_ns = lags.into_iter().fold(self.lag_ns, i64::max);
    }

    /// Pairs messages whose partners are known only after all messages were fed.
    ///
    /// A repair waits for these only if it can wait for all messages. Otherwise, a few receives
    /// that never completed would fill the queue, and all others would no longer fit.
    pub(crate) fn settle(&mut self, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        let waits = self.matcher.fed() <= most_waiting(self.limit) as u64;
        let mut violations = Violations::default();
        self.matcher.finish(&mut |from, to| {
            if waits {
                self.lag_ns = self.lag_ns.max(self.now_ns.saturating_sub(to.time_ns));
            }
            violations.look(&self.bounds, &from, &to);
            paired(from, to);
        });
        self.violations.push(violations);
    }

    /// Ends the check; `paired` gets the pairs that only the end proves.
    pub(crate) fn finish(
        mut self,
        definitions: &Definitions,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) -> CausalityReport {
        self.settle(paired);
        let rank = |process: u32| {
            let rank = definitions
                .ranks
                .get(&annals_format::ProcessId::new(process));
            rank.map_or(0, |rank| rank.rank)
        };
        let mut violations = Violations::default();
        for of_shard in std::mem::take(&mut self.violations) {
            violations.merge(of_shard);
        }
        let pairs = violations.pairs.iter();
        let mut pairs: Vec<((u32, u32), PairReport)> = pairs
            .map(|(pair, sum)| {
                let report = PairReport {
                    from_rank: rank(pair.0),
                    to_rank: rank(pair.1),
                    violations: sum.report(),
                };
                (*pair, report)
            })
            .collect();
        pairs
            .sort_by_key(|(pair, report)| (std::cmp::Reverse(report.violations.largest_ns), *pair));
        let left_out = pairs.len().saturating_sub(LISTED_PAIRS) as u64 + violations.left_out;
        pairs.truncate(LISTED_PAIRS);
        CausalityReport {
            mode: self.mode.name(),
            limit: self.limit as u64,
            messages: self.matcher.counts(),
            collectives: self.matcher.collective_counts(),
            constraints: violations.constraints,
            violations: violations.all.report(),
            pairs: pairs.into_iter().map(|(_, report)| report).collect(),
            pairs_left_out: left_out,
            repair: None,
        }
    }
}
