//! Who a communicator is, in all processes alike, and which ranks of the run its processes have.
//!
//! Processes agree on a communicator without a word to each other: all that belong to a communicator make others from it
//! in the same order (MPI 5.0, section 7.4.2), so the parent, how many were made before, and whose ranks it
//! has name the new one. One that is made from a group alone is named by that group, and how many had it
//! before.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use annals_recorder::Recorder;

use crate::handles::HandleMap;
use crate::mpi_table::{FUNCTIONS, NO};
use crate::real::GroupOf;
use crate::requests::{self, Kind, Record};
use crate::state::{Mpi, lock};
use crate::wrap::{Call, Frame, Site, is_success};

/// A communicator.
/// Never freed: operations in progress may still refer to it.
#[derive(Debug)]
pub(crate) struct Communicator {
    /// Number of its object.
    pub(crate) object: u32,
    name: String,
    /// Processes in it, both sides of an intercommunicator together.
    pub(crate) size: u32,
    /// This process's rank in it.
    pub(crate) place: i32,
    pub(crate) is_inter: bool,
    /// Ranks in the run of the processes that messages are sent to.
    /// `None` means those of the communicator.
    peers: Option<Box<[i32]>>,
    peer_count: u32,
    /// How many were made from it.
    children: AtomicU64,
    /// The object of its partitioned messages, which match among themselves only.
    partitioned: OnceLock<u32>,
    degrees: OnceLock<(u32, u32)>,
}

static KNOWN: HandleMap<Communicator> = HandleMap::new();

/// How many communicators had this name before, of those that are named by their processes alone.
static NAMED: Mutex<Option<HashMap<String, u64>>> = Mutex::new(None);

impl Communicator {
    /// Returns the rank in the run of a rank that messages are sent to or come from.
    #[inline(always)]
    pub(crate) fn peer(&self, rank: i32) -> Option<u32> {
        if rank as u32 >= self.peer_count {
            return None;
        }
        match &self.peers {
            None => Some(rank as u32),
            Some(peers) => u32::try_from(*peers.get(rank as usize)?).ok(),
        }
    }

    /// Returns how many processes messages can go to.
    pub(crate) const fn peer_count(&self) -> u32 {
        self.peer_count
    }

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
            .get_or_init(|| mpi.real.degrees(handle, self.place))
    }
}

impl Mpi {
    /// Returns the communicator with this handle, or `None` if it was never met.
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

    /// Records what is known when MPI_Init has returned.
    pub(crate) fn learn_world(&self) {
        let Some(group) = self.real.group(self.abi.comm_world, GroupOf::Local) else {
            return;
        };
        self.world_group.store(group, Ordering::Release);
        let (rank, size) = (
            self.real.comm_rank(self.abi.comm_world),
            self.real.comm_size(self.abi.comm_world),
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
    /// parents' world do. Where the launcher gives the worlds no different names, this world's
    /// first process makes one and sends it to the others. A process that receives nothing in time,
    /// because its first process does not record, is in a world of its own.
    fn name_spawned_world(&self, rank: i32, size: i32) {
        /// MPI_Init has returned: all are there.
        const LIMIT: Duration = Duration::from_secs(2);
        /// The least that the largest tag may be (MPI 5.0, section 9.1.2).
        const TAG: i32 = 32_767;
        if std::env::var_os("PMIX_NAMESPACE").is_some() || !self.real.is_spawned(self.abi.comm_null)
        {
            return;
        }
        let own = Recorder::reference_ns() ^ i64::from(std::process::id()) << 32;
        let link = |to| (self.abi.byte, to, TAG, self.abi.comm_world);
        let number = if rank == 0 {
            (1..size).for_each(|to| {
                self.real.send_number(own, link(to));
            });
            own
        } else {
            let until = Instant::now() + LIMIT;
            let told = self.real.receive_number(link(0), || Instant::now() < until);
            told.unwrap_or(own)
        };
        let _ = self.recorder.set_world(&format!("spawned-{number:016x}"));
    }

    pub(crate) fn set_rank(&self, rank: i32, size: i32) {
        self.world_rank.store(rank, Ordering::Release);
        if let (Ok(rank), Ok(size)) = (u32::try_from(rank), u32::try_from(size)) {
            // When nothing can be defined any more, the launcher's word stays.
            let _ = self.recorder.set_rank(rank, Some(size));
        }
    }
}

/// The origin of a communicator.
enum Origin<'a> {
    Name(String),
    /// From another one: what did it, and the number of the call.
    Child(&'a Communicator, &'a str, u64),
    /// From its group alone: by what.
    Group(&'a str),
}

fn add_object(mpi: &Mpi, name: &str) -> Option<u32> {
    let object = mpi.recorder.add_object("communicator", name).ok()?;
    Some(object.get())
}

/// Returns the ranks in the run of a communicator's group.
fn ranks(mpi: &Mpi, handle: usize, which: GroupOf) -> Option<Vec<i32>> {
    let group = mpi.real.group(handle, which)?;
    let world = mpi.world_group.load(Ordering::Acquire);
    let ranks = if world == 0 {
        mpi.real
            .group_size(group)
            .map(|size| vec![-1; size.max(0) as usize])
    } else {
        mpi.real.translate(group, world)
    };
    mpi.real.free_group(group);
    ranks
}

/// Ranks of a window's group in the run.
pub(crate) fn window_ranks(mpi: &Mpi, window: usize) -> Option<Vec<i32>> {
    ranks(mpi, window, GroupOf::Window)
}

/// Ranks in few words: `0-3,5`; of many, a digest.
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

fn make(mpi: &Mpi, handle: usize, origin: &Origin<'_>) -> Option<&'static Communicator> {
    let local = ranks(mpi, handle, GroupOf::Local)?;
    let is_inter = mpi.real.comm_is_inter(handle);
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
    let place = mpi.real.comm_rank(handle)?;
    let peers = if is_inter { remote } else { local };
    let is_identity = peers
        .iter()
        .enumerate()
        .all(|(rank, peer)| rank as i32 == *peer);
    let communicator = Communicator {
        object: add_object(mpi, &name)?,
        name,
        size,
        place,
        is_inter,
        peer_count: peers.len() as u32,
        peers: (!is_identity).then(|| peers.into_boxed_slice()),
        children: AtomicU64::new(0),
        partitioned: OnceLock::new(),
        degrees: OnceLock::new(),
    };
    let communicator: &'static Communicator = Box::leak(Box::new(communicator));
    KNOWN.insert(handle, communicator);
    crate::events::bind(handle, communicator.object, false);
    Some(communicator)
}

/// Returns what a function is called, without MPI's prefixes.
fn short_name(index: usize) -> String {
    let name = FUNCTIONS[index].name.to_string_lossy();
    let name = name.strip_prefix("MPI_").unwrap_or(&name);
    name.strip_prefix("Comm_").unwrap_or(name).to_lowercase()
}

fn leave_made(
    frame: Frame,
    mpi: &Mpi,
    made: Option<&'static Communicator>,
    parent: Option<&'static Communicator>,
) {
    match made {
        Some(made) => frame.leave_with(
            &mpi.types.communicator,
            (
                made.object,
                parent.unwrap_or(made).object,
                made.size,
                made.place as u32,
            ),
        ),
        None => frame.leave(),
    }
}

/// Makes a communicator from another, collectively.
#[inline(never)]
pub(crate) fn comm_new<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let parent = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    let made = parent.and_then(|parent| {
        // Also where this process is not in what was made.
        let number = parent.children.fetch_add(1, Ordering::Relaxed);
        let handle = call.place(call.at().newcomm).handle(&mpi.abi, 0);
        if handle == mpi.abi.comm_null {
            return None;
        }
        make(
            mpi,
            handle,
            &Origin::Child(parent, &short_name(call.index()), number),
        )
    });
    leave_made(frame, mpi, made, parent);
    result
}

/// Makes one among some processes only, or with those of another run.
#[inline(never)]
pub(crate) fn comm_other<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let handle = call.place(call.at().newcomm).handle(&mpi.abi, 0);
    let made = if handle == mpi.abi.comm_null {
        None
    } else if let Some(known) = mpi.communicator(handle) {
        // MPI_Comm_get_parent returns the same handle each time.
        Some(known)
    } else {
        // What both sides do has one name.
        let mut what = match short_name(call.index()).as_str() {
            "accept" => "connect".to_owned(),
            "get_parent" | "spawn_multiple" => "spawn".to_owned(),
            what => what.to_owned(),
        };
        if call.at().name != NO {
            let text = String::from_utf8_lossy(call.place(call.at().name).text()).into_owned();
            let _ = write!(what, " {text}");
        } else if call.at().tag != NO {
            let _ = write!(what, " tag {}", call.int(call.at().tag));
        }
        make(mpi, handle, &Origin::Group(&what))
    };
    leave_made(frame, mpi, made, None);
    result
}

/// Begins to make a duplicate, whose handle is there when the request is done.
#[inline(never)]
pub(crate) fn comm_idup<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let parent = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    if let Some(parent) = parent {
        let number = parent.children.fetch_add(1, Ordering::Relaxed);
        let request = call.place(call.at().request).handle(&mpi.abi, 0);
        let record = Record {
            kind: Kind::Duplicate,
            comm: Some(parent),
            bytes: number,
            place: call.word(call.at().newcomm),
            ..Record::NONE
        };
        if mpi.is_complete_at_once(request) {
            duplicated(mpi, &record);
        } else {
            requests::put(request, record);
        }
    }
    frame.leave();
    result
}

/// Adds a communicator that was duplicated.
pub(crate) fn duplicated(mpi: &Mpi, record: &Record) {
    let (Some(parent), place) = (record.comm, crate::wrap::Place(record.place)) else {
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

/// Gives a communicator up.
#[inline(never)]
pub(crate) fn comm_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let place = call.place(call.at().comm);
    let handle = if place.is_null() {
        0
    } else {
        place.handle(&mpi.abi, 0)
    };
    // Before the call: another thread may immediately get the same handle.
    let known = KNOWN.remove(handle);
    crate::events::unbind(handle, false);
    let result = call.forward();
    if !is_success(result)
        && let Some(known) = known
    {
        KNOWN.insert(handle, known);
        crate::events::bind(handle, known.object, false);
    }
    frame.leave();
    result
}
