//! Rows of what is lost: by rank, by wait state, and by cause.

use serde::Serialize;

use crate::row::joined_path;
use crate::wait_states::WaitPattern;

/// Times of a rank, nanoseconds. If several of its threads communicate or work in teams, their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankTimes {
    /// The rank.
    pub rank: u32,
    /// Time outside of MPI in which it was not idle.
    pub useful_ns: i64,
    /// Time in MPI; in a trace without regions of MPI, in calls that communicate.
    pub mpi_ns: i64,
    /// Time in which it was idle: the runtime of threads waited, or it was in a state other than running.
    pub idle_ns: i64,
    /// Time that it waited for others.
    pub wait_ns: i64,
    /// Largest amount by which that may differ because of losses: the calls in which it may have waited longer or shorter, and
    /// the time in which events of the rank were lost.
    pub uncertain_ns: i64,
    /// The part of its useful time between calls that tested and found nothing complete: it may work then, or poll.
    pub polling_ns: i64,
    /// The costs of its causes (see [`LostTime::causes`](crate::LostTime::causes)): time that ranks waited because of its extra work, or because it
    /// received its messages in the wrong order.
    pub caused_ns: i64,
}

crate::columns! {
    RankTimes;
    "rank" Number headed "rank", |row| row.rank;
    "useful_ns" Duration headed "useful", |row| row.useful_ns;
    "mpi_ns" Duration headed "in MPI", |row| row.mpi_ns;
    "idle_ns" Duration if_any_and_room "idle", |row| row.idle_ns;
    "wait_ns" Duration headed "waits", |row| row.wait_ns;
    "uncertain_ns" Duration if_any_and_room "±", |row| row.uncertain_ns;
    "polling_ns" Duration, |row| row.polling_ns;
    "caused_ns" Duration headed "waits caused", |row| row.caused_ns;
}

/// The waits of a pattern in a call path and a communicator. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct WaitStateRow {
    /// The pattern. `None`: it is no wait.
    pub pattern: Option<WaitPattern>,
    /// Names of the regions of the call path, from the outermost on.
    pub path: Vec<String>,
    /// Name of the communicator. `None` if there is none.
    pub communicator: Option<String>,
    /// Number of waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: i64,
    /// The longest.
    pub max_ns: i64,
    /// Of late senders: the part in which another message could have been received.
    pub wrong_order_ns: i64,
    /// Largest amount by which the sum may differ because of losses.
    pub uncertain_ns: i64,
    /// Share of the time of all threads that count.
    pub share: f64,
}

crate::columns! {
    WaitStateRow, json path;
    "pattern" Text, |row| row.pattern.map(WaitPattern::name);
    "" Text headed "wait state", |row| row.pattern.map_or("no wait", WaitPattern::words);
    "path" Name headed "call path", |row| joined_path(&row.path);
    "communicator" Name if_any "communicator", |row| &row.communicator;
    "count" Count headed "waits", |row| row.count;
    "wait_ns" Duration headed "sum", |row| row.wait_ns;
    "share" Share headed "% of run", |row| row.share;
    "max_ns" Duration headed "longest", |row| row.max_ns;
    "uncertain_ns" Duration if_any_and_room "±", |row| row.uncertain_ns;
    "wrong_order_ns" Duration if_any_and_room "in wrong order", |row| row.wrong_order_ns;
}

/// The waits that a rank caused. Times in nanoseconds.
///
/// With the pattern [`WaitPattern::WrongOrder`], it is the rank that waited because it received its messages in the wrong
/// order (see [`WaitObserver::avoidable`](crate::WaitObserver::avoidable)). Those parts of waits are not counted among those that the senders caused.
#[derive(Clone, Debug)]
pub struct CauseRow {
    /// The rank whose extra work caused the waits.
    pub rank: u32,
    /// Name of the thread whose extra work it was. `None` if the rank counts as one.
    pub thread: Option<String>,
    /// The pattern of most of the waits that it caused directly.
    pub pattern: WaitPattern,
    /// The region in which others waited for it, most of the time.
    pub region: String,
    /// Number of messages or operations in which others waited for it directly.
    pub operations: u64,
    /// Number of its communicating calls in that region.
    pub calls: u64,
    /// Number of ranks that waited for it, directly or not.
    pub waiting_ranks: u64,
    /// Median of how late it was in these operations: of the longest parts of waits that its extra work caused, within 1.6 %.
    pub median_late_ns: i64,
    /// How late it was at most, likewise.
    pub max_late_ns: i64,
    /// What others waited in all because of it.
    pub cost_ns: i64,
    /// The part of that in which they waited for it directly.
    pub direct_ns: i64,
    /// Of late senders: the part in which another message could have been received.
    pub wrong_order_ns: i64,
    /// The part of the direct waits that its extra work does not reach: what else made it late is not known.
    pub unexplained_ns: i64,
    /// The other rank for which others may have waited instead, if that is most of the direct waits: whether their sends waited
    /// for their receives is not known.
    pub or_rank: Option<u32>,
    /// Largest amount by which the cost may differ because of losses, errors of clocks and what is not known.
    pub uncertain_ns: i64,
    /// Whether it did not work longer than its peers in the place of its extra work, in all: which rank is late there changes, or
    /// all take turns.
    pub is_like_peers: bool,
    /// Share of the cost in the time of all threads that count.
    pub share: f64,
    /// Where its extra work was, most first.
    pub extra: Vec<ExtraWork>,
    /// Whether the threads of the rank were sampled.
    pub is_sampled: bool,
}

crate::columns! {
    CauseRow, json extra;
    "rank" Number headed "rank", |row| row.rank;
    "thread" Name if_any "thread", |row| &row.thread;
    "pattern" Text, |row| row.pattern.name();
    "" Text headed "wait state", |row| row.pattern.words();
    "region" Name headed "region", |row| &row.region;
    "operations" Count headed "operations", |row| row.operations;
    "calls" Count, |row| row.calls;
    "waiting_ranks" Count, |row| row.waiting_ranks;
    "median_late_ns" Duration headed "late, median", |row| row.median_late_ns;
    "max_late_ns" Duration, |row| row.max_late_ns;
    "cost_ns" Duration headed "cost", |row| row.cost_ns;
    "direct_ns" Duration, |row| row.direct_ns;
    "wrong_order_ns" Duration, |row| row.wrong_order_ns;
    "unexplained_ns" Duration, |row| row.unexplained_ns;
    "or_rank" Number, |row| row.or_rank;
    "uncertain_ns" Duration if_any "±", |row| row.uncertain_ns;
    "is_like_peers" Flag, |row| row.is_like_peers;
    "share" Share headed "% of run", |row| row.share;
    "extra" Name headed "extra time in", |row| row.extra .first() .map(|extra| joined_path(&extra.path));
}

/// A call path in which a rank worked longer than those that waited for it.
#[derive(Clone, Debug, Serialize)]
pub struct ExtraWork {
    /// Names of the regions of the call path, from the outermost on. Empty outside of all regions.
    pub path: Vec<String>,
    /// How many of them, the innermost ones, distinguish it from other call paths that end with the same region; at most three.
    #[serde(skip)]
    pub distinct: usize,
    /// What others waited because of it, nanoseconds.
    pub cost_ns: i64,
    /// Of a function that samples have shown: its line with most of the work. `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<SampledLine>,
    /// Of a function that samples have shown: by how much the cost may differ because they are samples, two standard deviations, nanoseconds.
    /// 0 for others.
    #[serde(skip_serializing_if = "is_zero")]
    pub sampling_error_ns: i64,
    /// Whether the thread may only have waited for others of its process there.
    #[serde(skip)]
    pub(crate) may_wait_for_threads: bool,
}

/// A line of source code.
#[derive(Clone, Debug, Serialize)]
pub struct SampledLine {
    /// The source file, as debug information names it.
    pub file: String,
    /// Its number.
    pub line: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
const fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A single wait.
#[derive(Clone, Debug)]
pub struct WorstWait {
    /// Its pattern.
    pub pattern: WaitPattern,
    /// Rank that waited.
    pub rank: u32,
    /// Name of its thread that waited. `None` if the rank counts as one.
    pub thread: Option<String>,
    /// Rank for which it waited. `None` if that is not known.
    pub for_rank: Option<u32>,
    /// Name of the thread for which it waited. `None` if that is not known, or if its rank counts as one.
    pub for_thread: Option<String>,
    /// Names of the regions of the call path, from the outermost on.
    pub path: Vec<String>,
    /// Name of the communicator. `None` if there is none.
    pub communicator: Option<String>,
    /// Trace time at which it began, nanoseconds.
    pub from_ns: i64,
    /// How long it took, nanoseconds.
    pub wait_ns: i64,
}

crate::columns! {
    WorstWait, json path;
    "pattern" Text, |row| row.pattern.name();
    "rank" Number headed "rank", |row| row.rank;
    "thread" Name if_any "thread", |row| &row.thread;
    "for_rank" Number headed "waits for", |row| row.for_rank;
    "for_thread" Name if_any "its thread", |row| &row.for_thread;
    "" Text headed "wait state", |row| row.pattern.words();
    "from_ns" Moment headed "from", |row| row.from_ns;
    "wait_ns" Duration headed "length", |row| row.wait_ns;
    "path" Name headed "call path", |row| joined_path(&row.path);
    "communicator" Name, |row| &row.communicator;
}
