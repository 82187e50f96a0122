//! Identities of communicators, equal in all their processes, and the ranks of their processes in
//! the run.
//!
//! Processes agree on an identity without communication: all processes of a communicator make
//! others from it in the same order (MPI 5.0, section 7.4.2). So a new communicator is identified by
//! its parent, the number of communicators that were made from that before, and its ranks. One that
//! is made from a group alone is identified by that group, and the number of earlier ones with it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use annals_recorder::{
    FIRST_REMOTE, ObjectId, ProcessId, Recorder, RemoteMembers, StringId, Uncancelled,
};

use crate::channels::Channels;
use crate::communicator::Communicator;
use crate::events;
use crate::freed;
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
        let known = KNOWN.get(handle);
        if self.has_threads()
            && let Some(known) = known
        {
            freed::hold(known);
        }
        known
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
    /// Made from another communicator: its handle if it is still there, the function, and the number of the call.
    Child(&'a Communicator, Option<usize>, &'a str, u64),
    /// Made from its group alone: the function.
    Group(&'a str),
    /// Made with the processes of another world: the function, and the side of this process.
    Connection(&'a str, u8, [i64; 2]),
}

fn add_object(mpi: &Mpi, name: &str) -> Option<u32> {
    let object = mpi.recorder.add_object("communicator", name).ok()?;
    Some(object.get())
}

/// Returns the ranks in the run of a communicator's group.
fn ranks(mpi: &Mpi, handle: usize, which: GroupOf) -> Option<Vec<i32>> {
    let group = mpi.pmpi.group(handle, which)?;
    let world = mpi.world_group.load(Ordering::Acquire);
    let ranks = if world != 0 {
        mpi.pmpi.translate(group, world)
    } else if mpi.world().is_some() {
        // Callbacks of the program that MPI_Finalize calls, before anything has ended.
        translated(mpi, group, mpi.abi.comm_world, GroupOf::Local)
    } else {
        mpi.pmpi
            .group_size(group)
            .map(|size| vec![-1; size.max(0) as usize])
    };
    mpi.pmpi.free_group(group);
    ranks
}

/// Returns the ranks in a communicator's group of the processes of this group, below 0 where they are not in it.
fn translated(mpi: &Mpi, group: usize, handle: usize, which: GroupOf) -> Option<Vec<i32>> {
    let to = mpi.pmpi.group(handle, which)?;
    let ranks = mpi.pmpi.translate(group, to);
    mpi.pmpi.free_group(to);
    ranks
}

/// Returns the ranks in the run of a window's group.
pub(crate) fn window_ranks(mpi: &Mpi, window: usize) -> Option<Vec<i32>> {
    ranks(mpi, window, GroupOf::Window)
}

/// Returns a short text for the processes of a communicator by their ranks in the one that it was made from. It is the same
/// in all of them: sides are sorted, because no process knows which the other one calls its own.
fn describe_in_parent(mpi: &Mpi, handle: usize, parent: usize) -> String {
    let sides = [GroupOf::Local, GroupOf::Remote];
    let groups_of = |handle: usize| {
        let count = if mpi.pmpi.comm_is_inter(handle) { 2 } else { 1 };
        sides.into_iter().take(count)
    };
    let mut texts = Vec::new();
    for which in groups_of(handle) {
        let Some(group) = mpi.pmpi.group(handle, which) else {
            continue;
        };
        for of_parent in groups_of(parent) {
            let ranks = translated(mpi, group, parent, of_parent).unwrap_or_default();
            let ranks: Vec<i32> = ranks.into_iter().filter(|rank| *rank >= 0).collect();
            if !ranks.is_empty() {
                texts.push(describe(&ranks));
            }
        }
        mpi.pmpi.free_group(group);
    }
    texts.sort_unstable();
    texts.join(" | ")
}

/// Returns a short text for ranks, such as `0-3,5`. Many ranks are replaced by a digest.
fn describe(ranks: &[i32]) -> String {
    const LONGEST: usize = 60;
    let mut text = String::new();
    let mut rest = ranks;
    while let [first, ..] = rest {
        if *first < 0 {
            let count = rest.iter().take_while(|rank| **rank < 0).count();
            let separator = if text.is_empty() { "" } else { "," };
            let _ = write!(text, "{separator}{count} of other worlds");
            rest = &rest[count..];
            continue;
        }
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

/// Numbers the processes of a communicator that are of other worlds. Returns the number of that with rank 0, if it were one.
fn number_remote(peers: &mut [i32]) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(FIRST_REMOTE);
    let next = |next: u32| {
        let after = next.checked_add(u32::try_from(peers.len()).ok()?)?;
        (after <= i32::MAX as u32).then_some(after)
    };
    let first = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    let remote = peers.iter_mut().zip(0..).filter(|(peer, _)| **peer < 0);
    match first {
        Ok(first) => remote.for_each(|(peer, rank)| *peer = first as i32 + rank),
        // A thousand million numbers are taken: these processes stay unknown.
        Err(_) => remote.for_each(|(peer, _)| *peer = i32::MAX),
    }
    first.unwrap_or(u32::MAX)
}

/// The ranks in the run of a communicator's processes, below 0 where they are of other worlds.
struct Members {
    local: Vec<i32>,
    /// The other side of an intercommunicator.
    remote: Option<Vec<i32>>,
}

impl Members {
    fn of(mpi: &Mpi, handle: usize) -> Option<Self> {
        let local = ranks(mpi, handle, GroupOf::Local)?;
        let remote = if mpi.pmpi.comm_is_inter(handle) {
            Some(ranks(mpi, handle, GroupOf::Remote)?)
        } else {
            None
        };
        Some(Self { local, remote })
    }

    fn are_of_several_worlds(&self) -> bool {
        let mut all = self.local.iter().chain(self.remote.iter().flatten());
        all.any(|rank| *rank < 0)
    }

    fn describe(&self) -> String {
        let local = describe(&self.local);
        let Some(remote) = &self.remote else {
            return local;
        };
        // Sorted by the lowest rank, so that both sides compute the same order.
        let mut sides = [local, describe(remote)];
        if remote.iter().min() < self.local.iter().min() {
            sides.reverse();
        }
        sides.join(" | ")
    }

    fn size(&self) -> usize {
        self.local.len() + self.remote.as_ref().map_or(0, Vec::len)
    }
}

impl Origin<'_> {
    /// Returns how a communicator was made, as both sides know it.
    fn made(&self, mpi: &Mpi, handle: usize) -> String {
        match self {
            Origin::Child(parent, handle_of_parent, what, number) => {
                let parent = handle_of_parent.filter(|_| parent.side.is_some());
                let places = parent.map(|parent| describe_in_parent(mpi, handle, parent));
                let places = places.map(|places| format!(" {{{places}}}"));
                format!("{what}.{number}{}", places.unwrap_or_default())
            }
            Origin::Name(what) => what.clone(),
            Origin::Group(what) | Origin::Connection(what, ..) => (*what).to_owned(),
        }
    }

    /// Returns the name of a communicator.
    fn name(&self, members: &Members, made: &str) -> String {
        match self {
            Origin::Name(name) => name.clone(),
            Origin::Child(parent, ..) if members.are_of_several_worlds() => {
                format!("{}/{made}", parent.name)
            }
            Origin::Child(parent, _, what, number) => {
                format!("{}/{what}.{number} {{{}}}", parent.name, members.describe())
            }
            Origin::Group(what) | Origin::Connection(what, ..) => {
                let name = format!("{what} {{{}}}", members.describe());
                let mut named = lock(&NAMED);
                let count = named
                    .get_or_insert_default()
                    .entry(name.clone())
                    .or_default();
                *count += 1;
                format!("{name} {count}")
            }
        }
    }
}

/// Adds what is known of a communicator with processes of several worlds. Returns the side of this process.
fn add_remote_members(mpi: &Mpi, made: &str, origin: &Origin<'_>, members: RemoteMembers) -> u8 {
    let mut members = members;
    match origin {
        Origin::Connection(_, side, [from_ns, to_ns]) => {
            (members.side, members.from_ns, members.to_ns) = (*side, *from_ns, *to_ns);
        }
        Origin::Child(parent, ..) => {
            let is_across = parent.side.is_some();
            members.parent = is_across.then_some(ObjectId::new(parent.object));
            let side = parent.side.filter(|_| members.remote != 0);
            members.side = side.unwrap_or(0);
        }
        Origin::Name(_) | Origin::Group(_) => {}
    }
    let _ = mpi.recorder.add_remote_members(made, members);
    members.side
}

/// Names and adds a communicator with this handle.
pub(crate) fn make(mpi: &Mpi, handle: usize, origin: &Origin<'_>) -> Option<&'static Communicator> {
    let _uncancelled = Uncancelled::begin();
    let members = Members::of(mpi, handle)?;
    let made = origin.made(mpi, handle);
    let name = origin.name(&members, &made);
    let place = mpi.pmpi.comm_rank(handle)?;
    let object = add_object(mpi, &name)?;
    let size = members.size() as u32;
    let is_inter = members.remote.is_some();
    let is_across = members.are_of_several_worlds();
    let local = members.local.len() as u32;
    let mut peers = members.remote.unwrap_or(members.local);
    let side = is_across.then(|| {
        let members = RemoteMembers {
            process: ProcessId::new(0),
            object: ObjectId::new(object),
            made: StringId::new(0),
            parent: None,
            side: 0,
            place: place as u32,
            local,
            remote: size - local,
            first: number_remote(&mut peers),
            from_ns: 0,
            to_ns: 0,
        };
        add_remote_members(mpi, &made, origin, members)
    });
    let is_identity = peers
        .iter()
        .enumerate()
        .all(|(rank, peer)| rank as i32 == *peer);
    let communicator = Communicator {
        object,
        name,
        size,
        place,
        is_inter,
        side,
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
        requests: AtomicU32::new(0),
        memory: AtomicPtr::new(null_mut()),
    };
    let communicator = freed::leak(communicator);
    KNOWN.insert(handle, communicator);
    events::bind(handle, communicator.object, false);
    Some(communicator)
}

/// Adds a communicator that was duplicated.
pub(crate) fn duplicated(mpi: &Mpi, record: &Record) {
    let Some(parent) = record.comm else { return };
    let handle = record.handle;
    let origin = Origin::Child(parent, None, "dup", record.bytes);
    if handle != mpi.abi.comm_null
        && let Some(made) = make(mpi, handle, &origin)
    {
        let values = (made.object, parent.object, made.size, made.place as u32);
        mpi.raise(&mpi.types.communicator, values);
    }
}
