//! A communicator, as events and requests refer to it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::channels::Channels;

/// Starts of a persistent collective operation are numbered from a multiple of 2 to the power of this.
const PERSISTENT_SHIFT: u32 = 40;

/// Whether communicators that are freed stay in memory, because it is not known what refers to them.
static ARE_ALL_KEPT: AtomicBool = AtomicBool::new(false);

/// Keeps the memory of all communicators from now on.
#[cold]
pub(crate) fn keep_all() {
    ARE_ALL_KEPT.store(true, Ordering::Release);
}

/// Returns whether freed communicators stay in memory.
pub(crate) fn are_all_kept() -> bool {
    ARE_ALL_KEPT.load(Ordering::Acquire)
}

/// A communicator.
/// Operations in progress may still refer to it when the program has freed it: see `freed`.
#[derive(Debug)]
pub(crate) struct Communicator {
    /// Number of its object.
    pub(crate) object: u32,
    pub(crate) name: String,
    /// Processes in it, both sides of an intercommunicator together.
    pub(crate) size: u32,
    /// This process's rank in it.
    pub(crate) place: i32,
    pub(crate) is_inter: bool,
    /// Ranks in the run of the processes that messages are sent to.
    /// `None` means those of the communicator.
    pub(crate) peers: Option<Box<[i32]>>,
    pub(crate) peer_count: u32,
    /// The side of this process in it, if it has processes of several worlds: [`RemoteMembers::side`].
    pub(crate) side: Option<u8>,
    /// Number of communicators that were made from it.
    pub(crate) children: AtomicU64,
    /// Number of windows that were made from it.
    pub(crate) windows: AtomicU64,
    /// Number of collective operations on it that this process has begun.
    pub(crate) collectives: AtomicU64,
    /// Number of persistent collective operations on it that this process has made.
    pub(crate) persistent: AtomicU64,
    /// Number of calls that all of its processes make, and that are not recorded as collective
    /// operations.
    pub(crate) calls: AtomicU64,
    /// Numbering of its messages.
    pub(crate) channels: Channels,
    /// The object of its partitioned messages, which match among themselves only.
    pub(crate) partitioned: OnceLock<u32>,
    pub(crate) degrees: OnceLock<(u32, u32)>,
    /// Number of requests that have it. Counted only where several threads may call MPI concurrently.
    pub(crate) requests: AtomicU32,
    /// Its memory, by which it is freed. Null means that it is not in memory that can be freed.
    pub(crate) memory: AtomicPtr<Self>,
}

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

    /// Counts a collective operation that this process begins, and returns its number. MPI has all processes
    /// of a communicator begin its operations in the same order (MPI 5.0, section 6.14).
    #[inline]
    pub(crate) fn next_collective(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a call that all of its processes make in the same order, and returns its number.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of the first start of a persistent collective operation that was made: those of its later
    /// starts follow. All processes make these in the same order, but may start them in another
    /// (MPI 5.0, section 6.13).
    pub(crate) fn first_persistent(&self) -> u64 {
        (self.persistent.fetch_add(1, Ordering::Relaxed) + 1) << PERSISTENT_SHIFT
    }

    /// Returns the number of processes to which messages can be sent.
    pub(crate) const fn peer_count(&self) -> u32 {
        self.peer_count
    }
}
