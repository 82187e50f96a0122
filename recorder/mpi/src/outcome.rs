//! The outcome of a request, and the event about it.

use crate::collective;
use crate::communicators::duplicated;
use crate::event_types::{CollectiveRequested, Requested};
use crate::requests::{self, Record, RequestKind};
use crate::state::Mpi;
use crate::statuses::{received, status_at, unsent};

/// The outcome of a request.
pub(crate) enum RequestOutcome {
    Nothing,
    Received(Requested),
    Sent(u64),
    Unsent((u32, u32, u32, u64)),
    Cancelled(u64),
    Collected(CollectiveRequested),
    Moved(u64),
    Accessed((u32, u64, u64)),
}

/// Raises the event about a completed request. The status is the one that the library filled for
/// it.
#[inline(always)]
pub(crate) fn outcome(mpi: &Mpi, record: &Record, status: usize) -> RequestOutcome {
    match record.kind {
        _ if requests::may_be_cancelled(record) && mpi.pmpi.is_cancelled(status_at(status)) => {
            given_up(record)
        }
        RequestKind::Send => RequestOutcome::Sent(record.id),
        RequestKind::Receive => {
            let comm = record.comm.filter(|_| record.has_status);
            let message = if !record.has_status && record.peer >= 0 && record.tag >= 0 {
                Some((record.peer as u32, record.tag as u32, record.bytes))
            } else {
                comm.and_then(|comm| received(mpi, comm, status))
            };
            let Some((peer, tag, bytes)) = message else {
                record.take_back();
                if let Some(comm) = record.comm.filter(|_| !record.has_status) {
                    // It has taken a message, but it is not known which one.
                    comm.channels.give_up();
                }
                return RequestOutcome::Cancelled(record.id);
            };
            let number = record.complete_receive(peer, tag, mpi.thread());
            RequestOutcome::Received((record.object, peer, tag, bytes, number as i64, record.id))
        }
        RequestKind::Collective => {
            collective::values(record).map_or(RequestOutcome::Nothing, RequestOutcome::Collected)
        }
        RequestKind::Duplicate => {
            duplicated(mpi, record);
            RequestOutcome::Nothing
        }
        RequestKind::Rma => RequestOutcome::Moved(record.id),
        RequestKind::File => {
            let bytes = mpi.status_bytes(status_at(status));
            RequestOutcome::Accessed((record.object, bytes, record.id))
        }
    }
}

/// Handles a request that was cancelled, or failed.
#[cold]
pub(crate) fn given_up(record: &Record) -> RequestOutcome {
    record.take_back();
    match record.kind {
        RequestKind::Send => unsent(record).map_or(RequestOutcome::Nothing, RequestOutcome::Unsent),
        RequestKind::Receive => RequestOutcome::Cancelled(record.id),
        RequestKind::Collective => {
            collective::failed(record).map_or(RequestOutcome::Nothing, RequestOutcome::Collected)
        }
        RequestKind::Duplicate | RequestKind::Rma | RequestKind::File => RequestOutcome::Nothing,
    }
}

/// Raises that a request will never complete.
#[cold]
pub(crate) fn give_up(mpi: &Mpi, record: &Record) {
    raise(mpi, &given_up(record));
}

/// Raises the event about an outcome.
#[inline(never)]
pub(crate) fn raise(mpi: &Mpi, outcome: &RequestOutcome) {
    let types = &mpi.types;
    match outcome {
        RequestOutcome::Nothing => {}
        RequestOutcome::Received(values) => mpi.raise(&types.ireceive, *values),
        RequestOutcome::Sent(id) => mpi.raise(&types.send_end, (*id,)),
        RequestOutcome::Unsent(values) => mpi.raise(&types.iunsent, *values),
        RequestOutcome::Cancelled(id) => mpi.raise(&types.cancel, (*id,)),
        RequestOutcome::Collected(values) => mpi.raise(&types.icollective_end, *values),
        RequestOutcome::Moved(id) => mpi.raise(&types.rma_end, (*id,)),
        RequestOutcome::Accessed(values) => mpi.raise(&types.file_end, *values),
    }
}
