//! The ranks of a merge's processes.

use std::collections::BTreeMap;

use annals_format::{ProcessId, Rank, RecordingId};

use crate::input::rank_claim::RankClaim;

/// A process and its rank in the merge.
pub(super) struct RankedProcess<P> {
    pub(super) process: P,
    pub(super) rank: Rank,
    /// The first rank of its world.
    pub(super) first_rank: u32,
    pub(super) id: RecordingId,
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
    let ranked = claims.into_iter().zip(firsts);
    let ranked = ranked.map(|((claim, process), first_rank)| {
        let rank = recorded(&claim, first_rank).unwrap_or_else(|| {
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
            id: claim.id,
        }
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|ranked| (ranked.rank.rank, ranked.id));
    ranked
}
