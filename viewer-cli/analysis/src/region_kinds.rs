//! What kind of work regions are: the program's own, or that of a library for parallel programs.

use annals_format::{Definitions, RegionId};

/// What a process does in a region, but for the regions that it calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum RegionKind {
    /// Useful work: the program's own.
    Useful,
    /// MPI: not useful.
    Mpi,
    /// Waiting in the runtime of threads, as in a barrier or for a lock, or in a state other than running: not useful.
    Idle,
}

impl RegionKind {
    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Useful => "useful",
            Self::Mpi => "mpi",
            Self::Idle => "idle",
        }
    }
}

/// A construct of threads, such as those of OpenMP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ThreadConstruct {
    /// A parallel region: a team of threads executes it.
    Parallel,
    /// Distributes work among the threads of a team, such as a loop, sections, or what a single thread does.
    WorkSharing,
    /// An explicit or implicit barrier of a team.
    Barrier,
    /// A task.
    Task,
    /// Waits for tasks.
    TaskWait,
    /// Waits for a lock, or to be alone in a critical, atomic or ordered construct, and has it from then on.
    Lock,
    /// Waits otherwise: for the end of a thread, or for work.
    Wait,
}

impl ThreadConstruct {
    /// Finds it by the group and the name of a region: by the word after the group's first point (`block`: it is none), otherwise by
    /// words in the name.
    fn of(group: &str, name: &str) -> Option<Self> {
        let (main, word) = group.split_once('.').unwrap_or((group, ""));
        if !matches!(main, "openmp" | "pthread" | "asyncio") {
            return None;
        }
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        Some(match word {
            "parallel" => Self::Parallel,
            "work-sharing" => Self::WorkSharing,
            "barrier" => Self::Barrier,
            "task" => Self::Task,
            "task-wait" => Self::TaskWait,
            "lock" => Self::Lock,
            "wait" => Self::Wait,
            "block" => return None,
            // What is done in a construct.
            _ if has(&["sblock"]) => return None,
            _ if has(&["barrier"]) => Self::Barrier,
            _ if has(&["taskwait", "taskgroup"]) => Self::TaskWait,
            _ if has(&["unlock", "unset", "init", "destroy"]) => return None,
            _ if has(&["lock", "critical"]) => Self::Lock,
            _ if has(&["wait", "idle", "join"]) => Self::Wait,
            _ if has(&["implicit task", "implicit_task", "parallel"]) => Self::Parallel,
            _ if has(&["task"]) => Self::Task,
            _ if has(&["for", "do", "loop", "sections", "single", "workshare"]) => {
                Self::WorkSharing
            }
            _ => return None,
        })
    }

    /// Returns whether a thread waits in it.
    const fn waits(self) -> bool {
        matches!(
            self,
            Self::Barrier | Self::TaskWait | Self::Lock | Self::Wait
        )
    }
}

/// The kinds of a trace's regions.
///
/// | kind | regions |
/// |---|---|
/// | MPI | of the group `mpi` or of one below it, as `mpi.p2p`; without a group, named `MPI_…` or `PMPI_…` in any case |
/// | idle | of the groups `openmp`, `pthread` and `asyncio`, in which threads or tasks wait: see [`ThreadConstruct`] |
/// | idle | of the group `state`: states of a Paraver trace other than *running* |
/// | useful | all others |
#[derive(Clone, Debug)]
pub struct RegionKinds(Vec<(RegionKind, Option<ThreadConstruct>)>);

impl RegionKinds {
    /// Finds the kinds of the regions of a trace.
    pub fn of(definitions: &Definitions) -> Self {
        let mut kinds = Vec::new();
        for (id, region) in &definitions.regions {
            let group = definitions.string(region.group);
            let name = definitions.string(region.name);
            kinds.resize(id.index(), (RegionKind::Useful, None));
            kinds.push((kind(group, name), ThreadConstruct::of(group, name)));
        }
        Self(kinds)
    }

    /// Returns the kind of a region.
    pub fn get(&self, region: RegionId) -> RegionKind {
        let known = self.0.get(region.index());
        known.map_or(RegionKind::Useful, |known| known.0)
    }

    /// Returns which construct of threads a region is. `None` if it is none.
    pub fn construct(&self, region: RegionId) -> Option<ThreadConstruct> {
        self.0.get(region.index())?.1
    }

    /// Returns whether there are regions of a kind.
    pub fn has(&self, kind: RegionKind) -> bool {
        self.0.iter().any(|known| known.0 == kind)
    }

    /// Returns whether there are constructs in which threads of a team wait for each other.
    pub fn has_teams(&self) -> bool {
        let barrier = Some(ThreadConstruct::Barrier);
        self.0.iter().any(|known| known.1 == barrier)
    }
}

/// Returns whether a function of a program's code is of MPI: its kind is, its name begins as those of MPI's interface do, or its module
/// is a library of Open MPI or MPICH.
pub(crate) fn is_mpi_code(definitions: &Definitions, region: RegionId) -> bool {
    const NAMES: [&str; 2] = ["MPI_", "PMPI_"];
    const MODULES: [&str; 4] = ["libmpi", "libpmpi", "libopen-pal", "libopen-rte"];
    let Some(region) = definitions.regions.get(&region) else {
        return false;
    };
    let (group, name) = (
        definitions.string(region.group),
        definitions.string(region.name),
    );
    kind(group, name) == RegionKind::Mpi
        || NAMES.iter().any(|prefix| name.starts_with(prefix))
        || MODULES.iter().any(|prefix| group.starts_with(prefix))
}

fn kind(group: &str, name: &str) -> RegionKind {
    let main = group.split('.').next().unwrap_or_default();
    let starts = |prefix: &str| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let is_mpi = main == "mpi" || (group.is_empty() && (starts("MPI_") || starts("PMPI_")));
    if is_mpi {
        return RegionKind::Mpi;
    }
    let waits = ThreadConstruct::of(group, name).is_some_and(ThreadConstruct::waits);
    if main == "state" || waits {
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
            ("openmp.barrier", "join of a.c:1", RegionKind::Idle),
            ("openmp", "!$omp for @a.c:1", RegionKind::Useful),
            ("openmp", "!$omp critical @a.c:1", RegionKind::Idle),
            ("openmp", "!$omp critical sblock @a.c:1", RegionKind::Useful),
            ("openmp", "omp_unset_lock", RegionKind::Useful),
            ("asyncio.wait", "await", RegionKind::Idle),
            ("state", "I/O", RegionKind::Idle),
            ("", "größe", RegionKind::Useful),
        ];
        for (group, name, expected) in kinds {
            assert_eq!(kind(group, name), expected, "{group} {name}");
        }
    }

    #[test]
    fn constructs_follow_the_word_of_the_group_or_the_name() {
        use ThreadConstruct as Construct;
        let constructs = [
            ("openmp.parallel", "a.c:1", Some(Construct::Parallel)),
            ("openmp", "!$omp parallel @a.c:1", Some(Construct::Parallel)),
            ("openmp", "!$omp implicit task", Some(Construct::Parallel)),
            ("openmp", "!$omp ibarrier @a.c:1", Some(Construct::Barrier)),
            ("openmp", "!$omp taskwait @a.c:1", Some(Construct::TaskWait)),
            ("openmp", "!$omp task @a.c:1", Some(Construct::Task)),
            (
                "openmp",
                "!$omp sections @a.c:1",
                Some(Construct::WorkSharing),
            ),
            ("openmp", "omp_set_lock", Some(Construct::Lock)),
            ("pthread", "pthread_mutex_lock", Some(Construct::Lock)),
            ("pthread", "pthread_mutex_unlock", None),
            ("pthread", "pthread_cond_wait", Some(Construct::Wait)),
            ("openmp.block", "!$omp masked @for.c:1", None),
            ("user", "barrier", None),
        ];
        for (group, name, expected) in constructs {
            assert_eq!(Construct::of(group, name), expected, "{group} {name}");
        }
    }
}
