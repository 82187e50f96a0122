//! The environment that launchers of parallel jobs set for each process:
//! Slurm, MPICH, Open MPI and others with PMIx.

use std::env;

/// Returns the name of the run: the launcher's job id.
pub(crate) fn run() -> Option<String> {
    first_of(&["PMIX_NAMESPACE"])
        .or_else(slurm_job)
        .or_else(|| first_of(&["PBS_JOBID", "LSB_JOBID"]))
        .or_else(hydra_run)
}

/// Returns the rank of this process.
pub(crate) fn rank() -> Option<u32> {
    number_of(&[
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "SLURM_PROCID",
    ])
}

/// Returns the number of ranks in the run.
pub(crate) fn rank_count() -> Option<u32> {
    number_of(&["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"])
}

fn first_of(names: &[&str]) -> Option<String> {
    names
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find(|value| !value.is_empty())
}

fn number_of(names: &[&str]) -> Option<u32> {
    names
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find_map(|value| value.parse().ok())
}

/// Returns Slurm's number of the job. Parts of a heterogeneous job share one number, in addition to
/// a separate number for each.
fn slurm_job() -> Option<String> {
    first_of(&["SLURM_HET_JOB_ID", "SLURM_JOB_ID"])
}

/// Returns the name of one start of a launcher: the same in all its processes, on all hosts.
/// Returns `None` if the launcher has no such name.
pub(crate) fn world() -> Option<String> {
    let step = || {
        let step = first_of(&["SLURM_STEP_ID"])?;
        Some(format!("{}.{step}", slurm_job()?))
    };
    // MPICH's proxy is one for each host, and starts what a program spawns as well.
    let proxy = || {
        let size = number_of(&["PMI_SIZE"])?;
        let is_on_one_host = number_of(&["MPI_LOCALNRANKS"]) == Some(size);
        let is_spawned = env::var_os("PMI_SPAWNED").is_some();
        hydra_run().filter(|_| is_on_one_host && !is_spawned)
    };
    first_of(&["PMIX_NAMESPACE"]).or_else(step).or_else(proxy)
}

/// Returns a name for a run of MPICH's launcher, which sets none itself: the identity of its proxy,
/// of which there is one on each host.
fn hydra_run() -> Option<String> {
    /// The kernel's name for `hydra_pmi_proxy`: 15 characters.
    const PROXY: &str = "hydra_pmi_proxy";
    /// Shells and other wrappers may be in between.
    const MOST_ANCESTORS: usize = 16;
    env::var_os("PMI_RANK")?;
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MOST_ANCESTORS {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // `pid (name) state parent …`, start as field 22 (proc(5)); the name may hold anything.
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if head.ends_with(&format!("({PROXY}")) {
            return Some(format!("hydra-{pid}-{}", fields.get(19)?));
        }
        pid = fields.get(1)?.parse().ok()?;
    }
    None
}
