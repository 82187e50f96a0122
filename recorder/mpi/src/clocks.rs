//! Offsets between the clocks of hosts, measured at MPI_Init and MPI_Finalize, so that a merge can
//! relate them.
//!
//! Processes that do not record are never contacted. Through files next to the recordings, the
//! processes learn whether all of them record; one further file, which one of them makes once,
//! decides what all do then. Only the first process of each host takes part, and each measures
//! against one parent, so that all are done after log₂(hosts) rounds. Every wait has a limit. Where
//! all processes are on one host, nothing is done at all.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use annals_recorder::{BootId, HostOffset, Options, Recorder, say};

use crate::abi::Abi;
use crate::begun;
use crate::pmpi::{Peer, Pmpi};
use crate::settings::CLOCKS;
use crate::state::Mpi;
use crate::sync::lock;

/// Variables in which launchers store how many processes of the run are on this host.
const LOCAL_SIZES: &[&str] = &["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];

/// Maximum wait for files after MPI_Init has returned.
const AGREEMENT: Duration = Duration::from_secs(2);
/// Maximum wait for messages. At MPI_Init, all processes have begun; at MPI_Finalize, others may be
/// much later.
const AT_START: Duration = Duration::from_secs(30);
const AT_END: Duration = Duration::from_secs(10);

/// Number of round trips. The shortest one is used. The first one waits for the other side to
/// arrive.
const ROUNDS: i64 = 32;

/// Tree of the hosts: each measures against its parent.
struct Tree {
    comm: usize,
    /// Ranks of the parent and of the children, each with its host.
    parent: Option<(i32, BootId)>,
    children: Vec<(i32, BootId)>,
}

static TREE: Mutex<Option<Tree>> = Mutex::new(None);

/// Measures the offsets when MPI_Init has returned, and rank and size are known.
pub(crate) fn begin(mpi: &Mpi, rank: i32, size: i32) {
    let wish = std::env::var(CLOCKS).unwrap_or_default();
    let is_agreed = match wish.as_str() {
        "off" => false,
        "on" => true,
        "" | "auto" => !is_one_host(size) && agree(mpi.recorder, rank, size),
        other => {
            say(format_args!(
                "invalid value `{}` for {CLOCKS}: expected `on`, `off` or `auto`",
                other.escape_debug()
            ));
            false
        }
    };
    if !is_agreed || size < 2 {
        return;
    }
    let Some(tree) = plant(mpi, rank, size) else {
        return;
    };
    measure(mpi, &tree, AT_START);
    *lock(&TREE) = Some(tree);
}

/// Measures the offsets again, before MPI_Finalize is called.
pub(crate) fn end(mpi: &Mpi) {
    if let Some(tree) = lock(&TREE).take() {
        measure(mpi, &tree, AT_END);
    }
}

fn is_one_host(size: i32) -> bool {
    let said = LOCAL_SIZES
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok());
    size < 2 || said == Some(size)
}

/// Returns whether all processes of the run record, and are on several hosts: the same answer in
/// all that ask.
fn agree(recorder: &Recorder, rank: i32, size: i32) -> bool {
    let path = recorder.status().path;
    let (Some(directory), Some(start)) = (path.parent(), start_name()) else {
        return false;
    };
    let meeting = directory.join(format!(".annals-{start}"));
    let _ = std::fs::create_dir(&meeting);
    let boot_id = Recorder::boot_id();
    // Where this fails, rank 0 never finds all hosts.
    let _ = publish(&meeting.join(rank.to_string()), &boot_id.0);
    let decision = meeting.join("decision");
    let until = Instant::now() + AGREEMENT;
    let is_agreed = loop {
        if let Ok(said) = std::fs::read(&decision) {
            break said == b"several hosts";
        }
        let is_late = Instant::now() >= until;
        let all = if rank == 0 {
            hosts(&meeting, size)
        } else {
            None
        };
        let says = match all {
            Some(hosts) if hosts.iter().any(|host| *host != boot_id) => "several hosts",
            Some(_) => "one host",
            None if is_late => "not all are recorded",
            None => {
                annals_recorder::pause(Duration::from_millis(5));
                continue;
            }
        };
        // The first to come decides; the next turn reads the decision. Only rank 0 decides that
        // there is anything to do: if it cannot write that, no process measures; the others must
        // check longer for a decision of rank 0.
        if let Err(error) = publish(&decision, says.as_bytes())
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            if rank == 0 || Instant::now() >= until + AT_START {
                break false;
            }
            annals_recorder::pause(Duration::from_millis(5));
        }
    };
    let _ = std::fs::remove_file(meeting.join(rank.to_string()));
    if rank == 0 {
        // A process that has not read it by the end does not need it any more.
        static MEETING: OnceLock<PathBuf> = OnceLock::new();
        let _ = MEETING.set(meeting);
        extern "C" fn clear() {
            if let Some(meeting) = MEETING.get() {
                let _ = std::fs::remove_dir_all(meeting);
            }
        }
        begun::at_exit(clear);
    }
    is_agreed
}

/// Returns a name for this start of the program, the same in all its processes and of no other
/// start. Returns `None` if the launcher provides no such name, because files of an earlier start
/// must not be taken for those of this one.
fn start_name() -> Option<String> {
    let name = Options::new("").world?;
    Some(name.replace('/', "-"))
}

/// Creates a file with its whole content, unless it exists.
fn publish(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let own = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = std::fs::File::create(&own)?;
    file.write_all(content)?;
    drop(file);
    let outcome = std::fs::hard_link(&own, path);
    let _ = std::fs::remove_file(&own);
    outcome
}

/// Returns the hosts of all processes.
/// `None` means that not all have reported yet.
fn hosts(meeting: &Path, size: i32) -> Option<Vec<BootId>> {
    let of = |rank: i32| {
        let content = std::fs::read(meeting.join(rank.to_string())).ok()?;
        <[u8; 16]>::try_from(content).ok().map(BootId)
    };
    (0..size).map(of).collect()
}

/// Determines, on a private communicator, which process is where.
fn plant(mpi: &Mpi, rank: i32, size: i32) -> Option<Tree> {
    let comm = mpi.pmpi.duplicate(mpi.abi.comm_world)?;
    let all = mpi
        .pmpi
        .gather_boot_ids(Recorder::boot_id(), size, mpi.abi.byte, comm)?;
    let mut leaders: Vec<(i32, BootId)> = Vec::new();
    for (rank, host) in (0..size).zip(all) {
        if leaders.iter().all(|leader| leader.1 != host) {
            leaders.push((rank, host));
        }
    }
    let own = leaders.iter().position(|leader| leader.0 == rank)?;
    // The parent has the same number without its lowest bit.
    let parent = (own != 0).then(|| leaders[own & (own - 1)]);
    let lowest = if own == 0 {
        leaders.len().next_power_of_two()
    } else {
        own & own.wrapping_neg()
    };
    let bits = std::iter::successors(Some(1), |bit| Some(bit << 1));
    let children = bits
        .take_while(|bit| *bit < lowest)
        .filter_map(|bit| leaders.get(own + bit).copied());
    Some(Tree {
        comm,
        parent,
        children: children.collect(),
    })
}

fn measure(mpi: &Mpi, tree: &Tree, limit: Duration) {
    let until = Instant::now() + limit;
    if let Some((parent, host)) = tree.parent
        && let Some((reference_ns, offset_ns, error_ns)) = ask(mpi, tree.comm, parent, until)
    {
        let offset = HostOffset {
            from: Recorder::boot_id(),
            to: host,
            reference_ns,
            offset_ns,
            error_ns,
        };
        if let Err(error) = mpi.recorder.add_host_offset(offset) {
            say(format_args!(
                "the offset of this host's clock is not stored: {error}"
            ));
        }
    }
    for (child, _) in &tree.children {
        if !answer(mpi, tree.comm, *child, until) {
            return;
        }
    }
}

/// Measures the offset to another process's clock by the shortest of many round trips. Returns when
/// it was measured, the offset, and its bound; or `None` if the other did not answer in time.
fn ask(mpi: &Mpi, comm: usize, of: i32, until: Instant) -> Option<(i64, i64, u64)> {
    let mut best: Option<(i64, i64, u64)> = None;
    let mut link = Link::new(mpi, comm, of);
    for round in 0..ROUNDS {
        let asked = Recorder::reference_ns();
        if !link.send(round) {
            break;
        }
        let Some(theirs) = link.receive(until) else {
            break;
        };
        let told = Recorder::reference_ns();
        let middle = asked + (told - asked) / 2;
        let error_ns = ((told - asked) / 2 + 1).unsigned_abs();
        if best.is_none_or(|best| error_ns < best.2) {
            best = Some((middle, theirs - middle, error_ns));
        }
    }
    best
}

fn answer(mpi: &Mpi, comm: usize, to: i32, until: Instant) -> bool {
    let mut link = Link::new(mpi, comm, to);
    (0..ROUNDS).all(|_| link.receive(until).is_some() && link.send(Recorder::reference_ns()))
}

/// Numbers to and from another process.
struct Link<'a> {
    pmpi: &'a Pmpi,
    abi: &'a Abi,
    comm: usize,
    peer: i32,
}

impl<'a> Link<'a> {
    const TAG: i32 = 1;

    fn new(mpi: &'a Mpi, comm: usize, peer: i32) -> Self {
        Self {
            pmpi: &mpi.pmpi,
            abi: &mpi.abi,
            comm,
            peer,
        }
    }

    fn peer(&self) -> Peer {
        Peer {
            byte: self.abi.byte,
            rank: self.peer,
            tag: Self::TAG,
            comm: self.comm,
        }
    }

    fn send(&mut self, number: i64) -> bool {
        self.pmpi.send_number(number, self.peer())
    }

    fn receive(&mut self, until: Instant) -> Option<i64> {
        let has_time = || Instant::now() < until;
        self.pmpi.receive_number(self.peer(), has_time)
    }
}
