//! What kind of work regions are: the program's own, or that of a library for parallel programs.

use annals_format::{Definitions, RegionId};
use serde::Serialize;

/// What a process does in a region, but for the regions that it calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RegionKind {
    /// Useful work: the program's own.
    Useful,
    /// MPI: not useful.
    Mpi,
    /// Waiting in the runtime of threads, as in a barrier or for a lock, or in a state other than running: not useful.
    Idle,
}

/// The kinds of a trace's regions.
///
/// | kind | regions |
/// |---|---|
/// | MPI | of the group `mpi` or of one below it, as `mpi.p2p`; without a group, named `MPI_…` or `PMPI_…` in any case |
/// | idle | of the group `openmp` or `pthread` with `barrier`, `wait`, `idle`, `lock`, `critical` or `join` in the name |
/// | idle | of the group `state`: states of a Paraver trace other than *running* |
/// | useful | all others |
#[derive(Clone, Debug)]
pub struct RegionKinds(Vec<RegionKind>);

impl RegionKinds {
    /// Finds the kinds of the regions of a trace.
    pub fn of(definitions: &Definitions) -> Self {
        let mut kinds = Vec::new();
        for (id, region) in &definitions.regions {
            let group = definitions.string(region.group);
            let name = definitions.string(region.name);
            kinds.resize(id.index(), RegionKind::Useful);
            kinds.push(kind(group, name));
        }
        Self(kinds)
    }

    /// Returns the kind of a region.
    pub fn get(&self, region: RegionId) -> RegionKind {
        let kind = self.0.get(region.index()).copied();
        kind.unwrap_or(RegionKind::Useful)
    }

    /// Returns whether there are regions of a kind.
    pub fn has(&self, kind: RegionKind) -> bool {
        self.0.contains(&kind)
    }
}

fn kind(group: &str, name: &str) -> RegionKind {
    const WAITING: [&str; 6] = ["barrier", "wait", "idle", "lock", "critical", "join"];
    let main = group.split('.').next().unwrap_or_default();
    let starts = |prefix: &str| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let is_mpi = main == "mpi" || (group.is_empty() && (starts("MPI_") || starts("PMPI_")));
    if is_mpi {
        return RegionKind::Mpi;
    }
    let name = name.to_ascii_lowercase();
    let waits = || WAITING.iter().any(|word| name.contains(word));
    if main == "state" || (matches!(main, "openmp" | "pthread") && waits()) {
        return RegionKind::Idle;
    }
    RegionKind::Useful
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_groups_and_names() {
        let kinds = [
            ("mpi.p2p", "MPI_Send", RegionKind::Mpi),
            ("mpi", "MPI_Init", RegionKind::Mpi),
            ("", "mpi_send_", RegionKind::Mpi),
            ("", "PMPI_Recv", RegionKind::Mpi),
            ("", "mpi", RegionKind::Useful),
            ("user", "MPI_of_my_own", RegionKind::Useful),
            ("openmp", "!$omp implicit barrier @a.c:1", RegionKind::Idle),
            ("openmp", "!$omp for @a.c:1", RegionKind::Useful),
            ("state", "I/O", RegionKind::Idle),
            ("", "größe", RegionKind::Useful),
        ];
        for (group, name, expected) in kinds {
            assert_eq!(kind(group, name), expected, "{group} {name}");
        }
    }
}
