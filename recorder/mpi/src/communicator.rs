//! A communicator, as events and requests refer to it.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// A communicator.
/// Never freed: operations in progress may still refer to it.
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
    /// How many were made from it.
    pub(crate) children: AtomicU64,
    /// The object of its partitioned messages, which match among themselves only.
    pub(crate) partitioned: OnceLock<u32>,
    pub(crate) degrees: OnceLock<(u32, u32)>,
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

    /// Returns how many processes messages can go to.
    pub(crate) const fn peer_count(&self) -> u32 {
        self.peer_count
    }
}
