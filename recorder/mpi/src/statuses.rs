//! Statuses of messages: reading those that the library filled, and buffers for programs that pass
//! none.

use crate::abi::STATUS_ROOM;
use crate::call::{Call, Site};
use crate::communicator::Communicator;
use crate::requests::Record;
use crate::state::Mpi;

/// A status that this library owns, for programs that want none.
#[repr(align(8))]
pub(crate) struct OwnStatus(std::mem::MaybeUninit<[u8; STATUS_ROOM]>);

impl OwnStatus {
    pub(crate) const fn new() -> Self {
        Self(std::mem::MaybeUninit::uninit())
    }

    /// Returns its address.
    pub(crate) fn place(&mut self) -> usize {
        self.0.as_mut_ptr().expose_provenance()
    }

    /// Passes this status in a call whose program wants none.
    #[inline(always)]
    pub(crate) fn stand_in<const N: usize, S: Site>(&mut self, mpi: &Mpi, call: &mut Call<N, S>) {
        let at = call.at().status;
        if call.word(at) == mpi.abi.status_ignore {
            call.replace(at, self.place());
        }
    }
}

/// Returns an address as a pointer to a status.
#[inline(always)]
pub(crate) fn status_at(address: usize) -> *const u8 {
    std::ptr::with_exposed_provenance(address)
}

/// Returns the message that a request was to send: communicator, peer, tag, request.
pub(crate) fn unsent(record: &Record) -> Option<(u32, u32, u32, u64)> {
    let peer = u32::try_from(record.peer).ok()?;
    Some((record.object, peer, record.tag as u32, record.id))
}

/// Returns the message that a status describes: peer, tag, bytes.
#[inline(always)]
pub(crate) fn received(mpi: &Mpi, comm: &Communicator, status: usize) -> Option<(u32, u32, u64)> {
    let status = status_at(status);
    let source = mpi.status_int(status, mpi.abi.source_at);
    if source == mpi.abi.proc_null {
        return None;
    }
    let tag = mpi.status_int(status, mpi.abi.tag_at) as u32;
    Some((comm.peer(source)?, tag, mpi.status_bytes(status)))
}
