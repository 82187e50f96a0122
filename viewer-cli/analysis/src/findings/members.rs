//! The processes that have a rank: how they ended, which of their threads count, and what of them may be missing.

use std::collections::BTreeSet;

use annals_format::names::property;
use annals_format::{Definitions, ProcessId};
use annals_merger::ReadSummary;
use rustc_hash::{FxHashMap, FxHashSet};

use super::endings::{Ending, Last, endings};
use super::standing::{At, Standing};

/// Largest number of ranks of a world of which it is asked whether they have a recording.
const MOST_RANKS: u32 = 1 << 20;

/// A process that has a rank.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) process: ProcessId,
    pub(super) rank: u32,
    pub(super) ending: Ending,
    /// Its threads that count, by number of the location.
    pub(super) threads: Vec<usize>,
    /// Whether all of its events were read.
    pub(super) is_whole: bool,
    /// Whether events of messages may be left out at unknown times, and those of calls that several processes make.
    pub(super) lacks: Lacks,
}

/// What rules and sampling leave out.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lacks {
    pub(super) messages: bool,
    pub(super) series: bool,
}

impl Lacks {
    const fn add(&mut self, is_of_series: bool) {
        self.series |= is_of_series;
        self.messages |= !is_of_series;
    }
}

/// Returns the processes of which not all events were read, and what rules and sampling leave out, by process.
fn gaps(
    standing: &Standing<'_>,
    summary: &ReadSummary,
) -> (FxHashSet<ProcessId>, FxHashMap<ProcessId, Lacks>) {
    let definitions = standing.definitions();
    let mut partial: FxHashSet<ProcessId> = FxHashSet::default();
    let mut lacks: FxHashMap<ProcessId, Lacks> = FxHashMap::default();
    for totals in &summary.totals {
        let Some(process) = definitions.process_of(totals.stream) else {
            continue;
        };
        for row in &totals.rows {
            if row.filtered != 0 {
                partial.insert(process);
            }
            let is_of_series = standing.is_of_series(row.event_type);
            if let Some(is_of_series) = is_of_series.filter(|_| row.suppressed != 0) {
                lacks.entry(process).or_default().add(is_of_series);
            }
        }
    }
    let properties = definitions.properties.iter();
    let left_out = properties.filter(|of| definitions.string(of.key) == property::MPI_LEFT_OUT);
    for property in left_out {
        for name in definitions.string(property.value).split(' ') {
            let mut types = definitions.event_types.values();
            let of_name = types.find(|of| definitions.string(of.name) == name);
            let is_of_series = of_name.and_then(|of| standing.is_of_series(of.id));
            if let Some(is_of_series) = is_of_series {
                lacks.entry(property.process).or_default().add(is_of_series);
            }
        }
    }
    (partial, lacks)
}

/// Returns the processes that have a rank, by rank.
pub(super) fn members(standing: &Standing<'_>, summary: &ReadSummary) -> Vec<Member> {
    let definitions = standing.definitions();
    let (partial, lacks) = gaps(standing, summary);
    let helpers = definitions.helpers();
    let ranks = definitions.ranks.iter();
    let ranks = ranks.filter(|(id, _)| !helpers.contains_key(id));
    let mut threads: FxHashMap<ProcessId, [Vec<usize>; 2]> = FxHashMap::default();
    for (location, at) in standing.threads.iter().enumerate() {
        let of_process = threads.entry(at.process).or_default();
        of_process[usize::from(at.has_mpi)].push(location);
    }
    let mut members: Vec<Member> = ranks
        .map(|(id, rank)| {
            let [others, with_mpi] = threads.remove(id).unwrap_or_default();
            Member {
                process: *id,
                rank: rank.rank,
                ending: Ending::UNKNOWN,
                threads: match with_mpi.is_empty() {
                    true => others.into_iter().take(1).collect(),
                    false => with_mpi,
                },
                is_whole: !partial.contains(id),
                lacks: lacks.get(id).copied().unwrap_or_default(),
            }
        })
        .collect();
    members.sort_by_key(|member| (member.rank, member.process));
    let last = members.iter().map(|member| {
        let threads = member.threads.iter().map(|at| &standing.threads[*at]);
        let waits = |at: &At| !at.pending.is_empty() || !at.waits.is_empty();
        Last {
            process: member.process,
            is_waiting: threads.clone().any(waits),
            event_ns: threads.filter_map(|at| at.last_ns).max(),
        }
    });
    let last: Vec<Last> = last.collect();
    for (member, ending) in members.iter_mut().zip(endings(definitions, &last)) {
        member.ending = ending;
    }
    members
}

/// Returns by world the ranks that have no recording, sorted.
pub(super) fn absent_ranks(
    definitions: &Definitions,
    members: &[Member],
    of_world: &FxHashMap<usize, Vec<usize>>,
) -> FxHashMap<usize, Vec<u32>> {
    let mut absent = FxHashMap::default();
    for (world, of) in of_world {
        let ranks = of
            .iter()
            .map(|of| &definitions.ranks[&members[*of].process]);
        let count = ranks.filter_map(|rank| rank.rank_count).max();
        let count = count.unwrap_or(0).min(MOST_RANKS);
        let first = of
            .first()
            .map_or(0, |of| definitions.first_rank(members[*of].process));
        let present: BTreeSet<u32> = of.iter().map(|of| members[*of].rank).collect();
        // The count of a trace includes the ranks of earlier worlds.
        let without = (first..count).filter(|rank| !present.contains(rank));
        let without: Vec<u32> = without.collect();
        if !without.is_empty() {
            absent.insert(*world, without);
        }
    }
    absent
}
