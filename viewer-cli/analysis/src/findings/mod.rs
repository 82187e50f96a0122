//! How each rank ended or where it is, and which ranks wait for which.

mod conclusions;
mod dump_series;
mod dumps;
mod endings;
mod evidence;
mod graph;
mod members;
mod positions;
mod standing;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use annals_merger::{Calls, Query, Reader, Result, StreamId};
use rustc_hash::FxHashMap;
use serde::Serialize;

use endings::ended_badly;
use evidence::Evidence;
use standing::{Standing, followed_types};

pub use dump_series::RankDump;
pub use dumps::{DumpFindings, Span, dump_findings};
pub use endings::{Ending, Life};
pub use positions::{Position, Stay, WaitFor, WaitKind};

/// Numbers of newest chunks of each stream that are read, one after the other, while time is left.
const CHUNKS: [usize; 3] = [4, 64, usize::MAX];

/// Time that reading more may take.
const BUDGET: Duration = Duration::from_secs(1);

/// What a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// A rank has ended, badly or while others waited for it.
    Ended,
    /// Ranks make different calls where they must make the same.
    Mismatch,
    /// Ranks wait for each other.
    Cycle,
    /// A rank waits for what no other process has to do, as far as is known: a message is under way, or all have begun.
    InCall,
    /// Others wait for a rank that asks again and again whether something is complete.
    Polls,
    /// Others wait for a rank that is outside of MPI: it computes, loops, or is in a call of the system.
    Elsewhere,
    /// Whether a rank has done its part is not known.
    Unknown,
}

/// A finding: where a chain of waits ends, with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// The ranks that it is about, sorted.
    pub ranks: Vec<u32>,
    /// Since when, trace time, nanoseconds.
    pub since_ns: i64,
    /// The ranks that wait for them, directly or not, sorted.
    pub waiting: Vec<u32>,
    /// Whether none of these ranks can go on, as far as is known.
    pub is_stuck: bool,
}

/// What findings are made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Recordings of a job, or their trace.
    Recordings,
    /// Dumps of the newest operations of each rank: see [`dump_findings`]. Calls are operations, and outside of MPI is outside of these.
    Dumps,
}

/// How the ranks ended or where they are, and which ones wait for which.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Findings {
    /// What they are made of.
    pub origin: Origin,
    /// The most important first: bad ends, then what stopped first.
    pub findings: Vec<Finding>,
    /// Where the threads of the ranks are that call MPI, or the first thread of a rank, by rank.
    pub positions: Vec<Position>,
    /// The time at which they are there, trace time, nanoseconds: now, or the end of the run.
    pub at_ns: i64,
    /// Whether processes are still running.
    pub is_running: bool,
    /// Ranks of the run without a recording, sorted.
    pub missing_ranks: Vec<u32>,
    /// Ranks whose live files are not visible, or parts of whose recordings cannot be read, with their hosts, by rank.
    pub unseen_ranks: Vec<(u32, String)>,
}

impl Findings {
    /// Returns whether some ranks cannot go on.
    pub fn is_stuck(&self) -> bool {
        self.findings.iter().any(|finding| finding.is_stuck)
    }

    /// Returns whether something that it depends on is not known.
    pub fn has_unknown(&self) -> bool {
        let is_unknown = |finding: &Finding| finding.kind == FindingKind::Unknown;
        !self.missing_ranks.is_empty()
            || !self.unseen_ranks.is_empty()
            || self.findings.iter().any(is_unknown)
    }

    /// Returns the positions of some ranks.
    pub fn positions_of<'a>(&'a self, ranks: &'a [u32]) -> impl Iterator<Item = &'a Position> {
        let of = |position: &&Position| ranks.binary_search(&position.rank).is_ok();
        self.positions.iter().filter(of)
    }

    /// Returns the ranks that have made progress since an earlier reading: they have completed something, entered or left a region outside
    /// of MPI, or ended.
    pub fn progress_since(&self, earlier: &Self) -> Vec<u32> {
        let mut before = FxHashMap::default();
        for of in &earlier.positions {
            let is_running = of.ending.life == Life::Running;
            before.insert((of.rank, of.thread_id), (of.progress_ns, is_running));
        }
        let has_moved = |of: &&Position| {
            let now = (of.progress_ns, of.ending.life == Life::Running);
            match before.get(&(of.rank, of.thread_id)) {
                None => true,
                Some((progress_ns, was_running)) => now.0 > *progress_ns || now.1 != *was_running,
            }
        };
        let moved = self.positions.iter().filter(has_moved);
        let ranks: BTreeSet<u32> = moved.map(|of| of.rank).collect();
        ranks.into_iter().collect()
    }
}

/// Finds how each rank ended or where it is, and which ranks wait for which, from the newest events of recordings, and older ones as far as
/// there is time; of a trace from all.
///
/// The rules are in the manual, "A job hangs". What may have been lost, left out by a filter or not read makes *unknown*, never
/// *absent*.
///
/// # Errors
/// If the storage fails.
pub fn findings(reader: &Reader) -> Result<Findings> {
    let begun = Instant::now();
    let mut rounds = CHUNKS.iter().copied().peekable();
    loop {
        let chunks = rounds.next().unwrap_or(usize::MAX);
        let round = Instant::now();
        let types = followed_types(reader.definitions());
        let (newest, from) = reader.newest(chunks, types);
        let evidence = read(&newest, &from)?;
        let is_last = rounds.peek().is_none() || evidence.is_whole();
        if is_last || begun.elapsed() + 8 * round.elapsed() > BUDGET {
            return Ok(evidence.conclude());
        }
    }
}

/// Finds how the ranks of a run ended and which ones waited for which, from all of its events. `None` if the run ended well, or has not ended.
///
/// # Errors
/// If the storage fails.
pub fn bad_end(reader: &Reader) -> Result<Option<Findings>> {
    if !ended_badly(reader.definitions()) {
        return Ok(None);
    }
    let found = read(reader, &[])?.conclude();
    Ok((!found.is_running && !found.findings.is_empty()).then_some(found))
}

/// Reads the events. `newest_from`: of streams of which not all chunks are read, the time from which on all of them are.
fn read<'r>(reader: &'r Reader, newest_from: &[(StreamId, i64)]) -> Result<Evidence<'r>> {
    let definitions = reader.definitions();
    let mut calls = Calls::new(definitions, &Query::new());
    let mut standing = Standing::new(definitions, calls.locations());
    let locations = calls.locations().to_vec();
    let summary = calls.run(reader, &mut standing)?;
    standing.cut(&locations, newest_from);
    Ok(Evidence::new(
        standing,
        &locations,
        &summary,
        reader.extent().end_ns,
    ))
}
