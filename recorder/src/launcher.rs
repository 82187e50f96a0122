//! The environment that launchers of parallel jobs set for each process:
//! Slurm, MPICH, Open MPI and others with PMIx.

use std::env;

use crate::sys;

/// The variable in which a recorded process that has a rank passes its identity on. What it starts inherits the launcher's
/// variables, too: it is not the rank.
pub const RANKED_PROCESS: &str = "ANNALS_RANKED_PROCESS";

/// Length of the variable's value in the environment of programs that are to be recorded: blanks, until a process that has a rank
/// writes there. So no process has to change its environment, which other threads may read.
pub const RANKED_PROCESS_LEN: usize = 72;

/// Returns a process's identity: its number and, as numbers are used again, its start. `exec` changes neither.
fn identity(pid: u32) -> Option<String> {
    let (_, fields) = stat_of(pid)?;
    Some(format!("{pid}.{}", fields.get(19)?))
}

/// Returns a rank, and a number for the start of the launcher that it counts in.
fn place(rank: u32) -> String {
    let names = [run(), world()].map(Option::unwrap_or_default).join("\0");
    // FNV-1a: the same in every version.
    let digest = names.bytes();
    let digest = digest.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{rank}@{digest:016x}")
}

/// Returns whether another recorded process has this rank, and has started this one, directly or not.
pub(crate) fn is_started_by(rank: u32) -> bool {
    let Ok(value) = env::var(RANKED_PROCESS) else {
        return false;
    };
    let Some((process, known)) = value.trim_end().split_once(' ') else {
        return false;
    };
    known == place(rank) && identity(std::process::id()).as_deref() != Some(process)
}

/// Passes on that this process has a rank.
pub(crate) fn pass_on(rank: u32) {
    let Some(process) = identity(std::process::id()) else {
        return;
    };
    let value = format!("{process} {}", place(rank));
    sys::set_variable(RANKED_PROCESS, &format!("{value:<RANKED_PROCESS_LEN$}"));
}

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
        let (head, fields) = stat_of(pid)?;
        if head.ends_with(&format!("({PROXY}")) {
            return Some(format!("hydra-{pid}-{}", fields.get(19)?));
        }
        pid = fields.get(1)?.parse().ok()?;
    }
    None
}

/// Returns what the system says of a process, `pid (name) state parent …` (proc(5)): up to the name, and the fields from the state on,
/// which is field 3.
fn stat_of(pid: u32) -> Option<(String, Vec<String>)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything.
    let (head, rest) = stat.rsplit_once(')')?;
    let fields = rest.split_whitespace().map(str::to_owned).collect();
    Some((head.to_owned(), fields))
}
