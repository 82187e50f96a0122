//! The ranks of a merge's processes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use annals_format::{ProcessId, Rank, RecordingId};

use crate::input::rank_claim::RankClaim;

/// A process and its rank in the merge.
pub(super) struct RankedProcess<P> {
    pub(super) process: P,
    pub(super) rank: Rank,
    /// The first rank of its world.
    pub(super) first_rank: u32,
    /// The rank that the launcher has assigned to it, if another process is that.
    pub(super) launched_as: Option<u32>,
    pub(super) id: RecordingId,
}

/// Returns, for each claim, whether another process of the same start has its rank: a launcher starts one program in a rank's place,
/// which may be a shell that runs several. The rank is the one that has initialised MPI; where none has, and all are known to be of
/// one start, the one that lived longest. Several that have initialised MPI are a rank that was started again.
fn are_beside_ranks<P>(claims: &[(RankClaim, P)]) -> Vec<bool> {
    let mut by_rank: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (number, (claim, _)) in claims.iter().enumerate() {
        if let Some(rank) = claim.rank {
            let place = (&*claim.run, claim.world.as_deref(), rank.rank);
            by_rank.entry(place).or_default().push(number);
        }
    }
    let mut are_beside = vec![false; claims.len()];
    for ((_, world, _), same) in by_rank {
        let claim = |number: usize| &claims[number].0;
        let has_mpi = same.iter().any(|number| claim(*number).has_mpi);
        let longest = same.iter().max_by_key(|number| {
            let claim = claim(**number);
            (claim.lived_ns, Reverse(claim.start_unix_ns), claim.id)
        });
        let longest = longest.copied().filter(|_| world.is_some());
        for number in same {
            are_beside[number] = match (has_mpi, longest) {
                (true, _) => !claim(number).has_mpi,
                (false, Some(longest)) => number != longest,
                (false, None) => false,
            };
        }
    }
    are_beside
}

/// Returns the first rank of each world: those of a run follow one another, as SPEC.md (Worlds) says.
fn first_ranks<'a>(
    claims: impl Iterator<Item = &'a RankClaim>,
) -> BTreeMap<(&'a str, Option<&'a str>), u32> {
    /// Most ranks that a count may state: a hostile one must not take all there are.
    const MOST_STATED: u32 = 1 << 20;
    let mut worlds: BTreeMap<(&str, Option<&str>), (i64, u32)> = BTreeMap::new();
    for claim in claims {
        let Some(rank) = claim.rank else { continue };
        let stated = rank.rank_count.unwrap_or(0).min(MOST_STATED);
        let (start_ns, size) = worlds
            .entry((&claim.run, claim.world.as_deref()))
            .or_insert((i64::MAX, 0));
        *start_ns = claim.start_unix_ns.min(*start_ns);
        *size = stated.max(rank.rank.saturating_add(1)).max(*size);
    }
    let mut in_order: Vec<_> = worlds.into_iter().collect();
    in_order.sort_by_key(|((run, world), (start_ns, _))| (*run, *start_ns, *world));
    let mut next: BTreeMap<&str, u32> = BTreeMap::new();
    let each = in_order.into_iter().map(|((run, world), (_, size))| {
        let next = next.entry(run).or_default();
        let first = *next;
        *next = first.saturating_add(size);
        ((run, world), first)
    });
    each.collect()
}

/// Assigns ranks: as recorded, one world after the other. Recordings without a rank are numbered after the highest, by
/// their start. Returns the processes in the order of their ranks.
pub(super) fn assign_ranks<P>(mut claims: Vec<(RankClaim, P)>) -> Vec<RankedProcess<P>> {
    claims.sort_by_key(|(claim, _)| (claim.start_unix_ns, claim.id));
    let are_beside = are_beside_ranks(&claims);
    let firsts = first_ranks(claims.iter().map(|(claim, _)| claim));
    let firsts = claims.iter().map(|(claim, _)| {
        let world = (claim.run.as_str(), claim.world.as_deref());
        firsts.get(&world).copied().unwrap_or(0)
    });
    let firsts: Vec<u32> = firsts.collect();
    let recorded = |claim: &RankClaim, first: u32| {
        claim.rank.map(|rank| Rank {
            rank: rank.rank.saturating_add(first),
            rank_count: rank.rank_count.map(|count| count.saturating_add(first)),
            ..rank
        })
    };
    let ranks = claims.iter().zip(&firsts);
    let ranks = ranks.filter_map(|((claim, _), first)| recorded(claim, *first));
    let highest = ranks.map(|rank| rank.rank).max();
    let mut next = highest.map_or(0, |highest| highest.saturating_add(1));
    let ranked = claims.into_iter().zip(firsts).zip(are_beside);
    let ranked = ranked.map(|(((claim, process), first_rank), is_beside)| {
        let own = recorded(&claim, first_rank).filter(|_| !is_beside);
        let rank = own.unwrap_or_else(|| {
            next = next.saturating_add(1);
            Rank {
                process: ProcessId::new(0),
                rank: next - 1,
                rank_count: None,
                is_assigned: true,
            }
        });
        RankedProcess {
            process,
            rank,
            first_rank,
            launched_as: claim.rank.filter(|_| is_beside).map(|rank| rank.rank),
            id: claim.id,
        }
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|ranked| (ranked.rank.rank, ranked.id));
    ranked
}
