//! Identities of communicators, equal in all their processes, and the ranks of their processes in
//! the run.
//!
//! Processes agree on an identity without communication: all processes of a communicator make
//! others from it in the same order (MPI 5.0, section 7.4.2). So a new communicator is identified by
//! its parent, the number of communicators that were made from that before, and its ranks. One that
//! is made from a group alone is identified by that group, and the number of earlier ones with it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use annals_recorder::{Recorder, Uncancelled};

use crate::caller_memory::CallerMemory;
use crate::channels::Channels;
use crate::communicator::Communicator;
use crate::events;
use crate::handles::HandleMap;
use crate::pmpi::{GroupOf, Peer};
use crate::requests::Record;
use crate::state::Mpi;
use crate::sync::lock;

pub(crate) static KNOWN: HandleMap<Communicator> = HandleMap::new();

/// Number of earlier communicators by name, for those that are named by their processes alone.
static NAMED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

impl Communicator {
    pub(crate) fn partitioned(&self, mpi: &Mpi) -> u32 {
        *self.partitioned.get_or_init(|| {
            let name = format!("{} partitioned", self.name);
            add_object(mpi, &name).unwrap_or(self.object)
        })
    }

    /// Returns how many neighbours send here, and how many this process sends to.
    pub(crate) fn degrees(&self, mpi: &Mpi, handle: usize) -> (u32, u32) {
        *self
            .degrees
            .get_or_init(|| mpi.pmpi.degrees(mpi.abi.kind, handle, self.place))
    }
}

impl Mpi {
    /// Returns the communicator with this handle, or `None` if it is not known yet.
    #[inline(always)]
    pub(crate) fn communicator(&self, handle: usize) -> Option<&'static Communicator> {
        if handle == self.abi.comm_world {
            return self.world();
        }
        KNOWN.get(handle)
    }

    /// Returns the communicator with this handle, which is valid: the library has just taken it.
    #[cold]
    pub(crate) fn learn(&self, handle: usize) -> Option<&'static Communicator> {
        if let Some(known) = self.communicator(handle) {
            return Some(known);
        }
        if handle == self.abi.comm_null {
            return None;
        }
        make(self, handle, &Origin::Group("communicator"))
    }

    /// Records the communicators that are known when MPI_Init has returned.
    pub(crate) fn learn_world(&self) {
        let Some(group) = self.pmpi.group(self.abi.comm_world, GroupOf::Local) else {
            return;
        };
        self.world_group.store(group, Ordering::Release);
        let (rank, size) = (
            self.pmpi.comm_rank(self.abi.comm_world),
            self.pmpi.comm_size(self.abi.comm_world),
        );
        let (Some(rank), Some(size)) = (rank, size) else {
            return;
        };
        self.set_rank(rank, size);
        self.name_spawned_world(rank, size);
        for (handle, name) in [
            (self.abi.comm_world, "MPI_COMM_WORLD".to_owned()),
            (self.abi.comm_self, format!("MPI_COMM_SELF of {rank}")),
        ] {
            let Some(known) = make(self, handle, &Origin::Name(name)) else {
                continue;
            };
            if handle == self.abi.comm_world {
                let place = std::ptr::from_ref(known).cast_mut();
                self.world.store(place, Ordering::Release);
            }
        }
    }

    /// Names the world of a program that was spawned: its ranks count from 0, as those of its
    /// parents' world do. Where the launcher does not name the worlds differently, this world's
    /// first process makes a name and sends it to the others. A process that receives nothing in
    /// time, because the first process does not record, is alone in a separate world.
    fn name_spawned_world(&self, rank: i32, size: i32) {
        /// MPI_Init has returned: all processes have begun.
        const LIMIT: Duration = Duration::from_secs(2);
        /// The least that the largest tag may be (MPI 5.0, section 9.1.2).
        const TAG: i32 = 32_767;
        if std::env::var_os("PMIX_NAMESPACE").is_some() || !self.pmpi.is_spawned(self.abi.comm_null)
        {
            return;
        }
        let own = Recorder::reference_ns() ^ i64::from(std::process::id()) << 32;
        let peer = |rank| Peer {
            byte: self.abi.byte,
            rank,
            tag: TAG,
            comm: self.abi.comm_world,
        };
        let number = if rank == 0 {
            (1..size).for_each(|to| {
                self.pmpi.send_number(own, peer(to));
            });
            own
        } else {
            let until = Instant::now() + LIMIT;
            let told = self.pmpi.receive_number(peer(0), || Instant::now() < until);
            told.unwrap_or(own)
        };
        let _ = self.recorder.set_world(&format!("spawned-{number:016x}"));
    }

    pub(crate) fn set_rank(&self, rank: i32, size: i32) {
        self.world_rank.store(rank, Ordering::Release);
        if let (Ok(rank), Ok(size)) = (u32::try_from(rank), u32::try_from(size)) {
            // If nothing can be defined any more, the launcher's name stays.
            let _ = self.recorder.set_rank(rank, Some(size));
        }
    }
}

/// The origin of a communicator.
pub(crate) enum Origin<'a> {
    Name(String),
    /// Made from another communicator: the function, and the number of the call.
    Child(&'a Communicator, &'a str, u64),
    /// Made from its group alone: the function.
    Group(&'a str),
}

fn add_object(mpi: &Mpi, name: &str) -> Option<u32> {
    let object = mpi.recorder.add_object("communicator", name).ok()?;
    Some(object.get())
}

/// Returns the ranks in the run of a communicator's group.
fn ranks(mpi: &Mpi, handle: usize, which: GroupOf) -> Option<Vec<i32>> {
    let group = mpi.pmpi.group(handle, which)?;
    let world = mpi.world_group.load(Ordering::Acquire);
    let ranks = if world == 0 {
        mpi.pmpi
            .group_size(group)
            .map(|size| vec![-1; size.max(0) as usize])
    } else {
        mpi.pmpi.translate(group, world)
    };
    mpi.pmpi.free_group(group);
    ranks
}

/// Returns the ranks in the run of a window's group.
pub(crate) fn window_ranks(mpi: &Mpi, window: usize) -> Option<Vec<i32>> {
    ranks(mpi, window, GroupOf::Window)
}

/// Returns a short text for ranks, such as `0-3,5`. Many ranks are replaced by a digest.
fn describe(ranks: &[i32]) -> String {
    const LONGEST: usize = 60;
    let mut text = String::new();
    let mut rest = ranks;
    while let [first, ..] = rest {
        let follow = |pair: &(usize, &i32)| *pair.1 == first.wrapping_add(pair.0 as i32);
        let run = rest.iter().enumerate().take_while(follow).count().max(1);
        let separator = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{separator}{first}");
        if run > 1 {
            let _ = write!(text, "-{}", rest[run - 1]);
        }
        rest = &rest[run..];
    }
    if text.len() <= LONGEST {
        return text;
    }
    // FNV-1a: the same in every process and version.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for byte in ranks.iter().flat_map(|rank| rank.to_le_bytes()) {
        digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{} ranks {digest:016x}", ranks.len())
}

/// Names and adds a communicator with this handle.
pub(crate) fn make(mpi: &Mpi, handle: usize, origin: &Origin<'_>) -> Option<&'static Communicator> {
    let _uncancelled = Uncancelled::begin();
    let local = ranks(mpi, handle, GroupOf::Local)?;
    let is_inter = mpi.pmpi.comm_is_inter(handle);
    let remote = if is_inter {
        ranks(mpi, handle, GroupOf::Remote)?
    } else {
        Vec::new()
    };
    let mut members = describe(&local);
    if is_inter {
        // Sorted by the lowest rank, so that both sides compute the same order.
        let mut sides = [members, describe(&remote)];
        if remote.iter().min() < local.iter().min() {
            sides.reverse();
        }
        members = sides.join(" | ");
    }
    let name = match origin {
        Origin::Name(name) => name.clone(),
        Origin::Child(parent, what, number) => {
            format!("{}/{what}.{number} {{{members}}}", parent.name)
        }
        Origin::Group(what) => {
            let name = format!("{what} {{{members}}}");
            let mut named = lock(&NAMED);
            let count = named
                .get_or_insert_default()
                .entry(name.clone())
                .or_default();
            *count += 1;
            format!("{name} {count}")
        }
    };
    let size = (local.len() + remote.len()) as u32;
    let place = mpi.pmpi.comm_rank(handle)?;
    let peers = if is_inter { remote } else { local };
    let is_identity = peers
        .iter()
        .enumerate()
        .all(|(rank, peer)| rank as i32 == *peer);
    let object = add_object(mpi, &name)?;
    let communicator = Communicator {
        object,
        name,
        size,
        place,
        is_inter,
        peer_count: peers.len() as u32,
        peers: (!is_identity).then(|| peers.into_boxed_slice()),
        children: AtomicU64::new(0),
        windows: AtomicU64::new(0),
        collectives: AtomicU64::new(0),
        persistent: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        channels: Channels::new(object),
        partitioned: OnceLock::new(),
        degrees: OnceLock::new(),
    };
    let communicator: &'static Communicator = Box::leak(Box::new(communicator));
    KNOWN.insert(handle, communicator);
    events::bind(handle, communicator.object, false);
    Some(communicator)
}

/// Adds a communicator that was duplicated.
pub(crate) fn duplicated(mpi: &Mpi, record: &Record) {
    let (Some(parent), place) = (record.comm, CallerMemory(record.place)) else {
        return;
    };
    let handle = place.handle(&mpi.abi, 0);
    let origin = Origin::Child(parent, "dup", record.bytes);
    if handle != mpi.abi.comm_null
        && let Some(made) = make(mpi, handle, &origin)
    {
        let values = (made.object, parent.object, made.size, made.place as u32);
        mpi.raise(&mpi.types.communicator, values);
    }
}
