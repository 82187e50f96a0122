//! Collective operations: the bytes that each process contributes and receives.

use annals_recorder::CollectiveOperation as Op;

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::communicator::Communicator;
use crate::event_types::{Collective, CollectiveRequested};
use crate::requests::{self, Record, RequestKind};
use crate::signatures::{At, NO};
use crate::state::Mpi;

/// Code of an operation without a known order between processes.
const NO_OPERATION: u8 = u8::MAX;

/// Returns the root's rank in the run, and whether this process is the root. -1 means that there is
/// no root.
fn root<const N: usize, S: Site>(mpi: &Mpi, comm: &Communicator, call: &Call<N, S>) -> (i32, bool) {
    if call.at().root == NO {
        return (-1, false);
    }
    let given = call.int(call.at().root);
    if comm.is_inter {
        // On the root's side of an intercommunicator, the root passes a constant for itself.
        if given == mpi.abi.root {
            let own = mpi.world_rank.load(std::sync::atomic::Ordering::Relaxed);
            return (own, true);
        }
        return (comm.peer(given).map_or(-1, |peer| peer as i32), false);
    }
    let peer = comm.peer(given).map_or(-1, |peer| peer as i32);
    (peer, given == comm.place)
}

/// Returns the sum of an array of counts.
fn sum<const N: usize, S: Site>(call: &Call<N, S>, at: u8, count: u32) -> i64 {
    let place = call.place(at);
    if place.is_null() {
        return 0;
    }
    let counts = (0..count as usize).map(|index| place.count(call.at().is_wide, index).max(0));
    counts.fold(0, i64::saturating_add)
}

/// Returns the bytes that arrays of counts and datatypes describe.
fn sum_of_types<const N: usize, S: Site>(
    mpi: &Mpi,
    call: &Call<N, S>,
    at: (u8, u8),
    count: u32,
) -> u64 {
    let (counts, types) = (call.place(at.0), call.place(at.1));
    if counts.is_null() || types.is_null() {
        return 0;
    }
    let bytes = (0..count as usize).map(|index| {
        let count = counts.count(call.at().is_wide, index);
        if count <= 0 {
            return 0;
        }
        mpi.bytes(count, types.handle(&mpi.abi, index))
    });
    bytes.fold(0, u64::saturating_add)
}

/// Returns the part of an array of counts that belongs to this process.
fn own_count<const N: usize, S: Site>(call: &Call<N, S>, at: u8, comm: &Communicator) -> i64 {
    let place = call.place(at);
    if place.is_null() || comm.place < 0 {
        return 0;
    }
    place.count(call.at().is_wide, comm.place as usize).max(0)
}

/// Bytes that one operation moves for this process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Moved {
    /// What this process contributes, its part for itself included. MPI_IN_PLACE makes no
    /// difference.
    sent: u64,
    /// What the operation delivers to this process.
    received: u64,
}

/// The arguments of a collective operation, from which the bytes are computed that it moves.
struct Blocks<'a, const N: usize, S> {
    mpi: &'a Mpi,
    comm: &'a Communicator,
    call: &'a Call<N, S>,
    at: At,
}

impl<const N: usize, S: Site> Blocks<'_, N, S> {
    fn is_in_place(&self, buffer: u8) -> bool {
        buffer != NO && self.call.word(buffer) == self.mpi.abi.in_place
    }

    /// Whether the send buffer is significant.
    fn is_sending(&self) -> bool {
        !self.is_in_place(self.at.sendbuf)
    }

    /// Returns the bytes of this number of elements of the send type.
    fn of_sent(&self, count: i64) -> u64 {
        let datatype = self.call.handle(&self.mpi.abi, self.at.sendtype);
        self.mpi.bytes(count, datatype)
    }

    /// Returns the bytes of this number of elements of the receive type.
    fn of_received(&self, count: i64) -> u64 {
        let datatype = self.call.handle(&self.mpi.abi, self.at.recvtype);
        self.mpi.bytes(count, datatype)
    }

    /// Returns the bytes of a number of blocks that are sent, all of the same size.
    fn sent(&self, times: u32) -> u64 {
        let count = self.call.count(self.at.sendcount);
        self.of_sent(count).saturating_mul(times.into())
    }

    /// Returns the bytes of a number of blocks that are received, all of the same size.
    fn got(&self, times: u32) -> u64 {
        let count = self.call.count(self.at.recvcount);
        self.of_received(count).saturating_mul(times.into())
    }

    /// Returns the bytes of all blocks that are sent. Their sizes may differ.
    fn sent_all(&self) -> u64 {
        self.of_sent(sum(self.call, self.at.sendcounts, self.comm.peer_count()))
    }

    /// Returns the bytes of all blocks that are received. Their sizes may differ.
    fn got_all(&self) -> u64 {
        self.of_received(sum(self.call, self.at.recvcounts, self.comm.peer_count()))
    }

    /// Returns the bytes of a buffer of elements.
    fn elements(&self, count: u8) -> u64 {
        let datatype = self.call.handle(&self.mpi.abi, self.at.datatype);
        self.mpi.bytes(self.call.count(count), datatype)
    }

    /// Returns the bytes that an operation with a root moves for this process. `None` means that it
    /// has no root.
    fn moved_with_root(&self, operation: Op, is_root: bool) -> Option<Moved> {
        let (at, call, comm) = (&self.at, self.call, self.comm);
        Some(match operation {
            Op::Broadcast => {
                let bytes = self.elements(at.count);
                Moved {
                    sent: if is_root { bytes } else { 0 },
                    received: if is_root { 0 } else { bytes },
                }
            }
            Op::Gather | Op::Gatherv => Moved {
                sent: match (is_root, at.recvcounts) {
                    (true, _) if comm.is_inter => 0,
                    (true, NO) if !self.is_sending() => self.got(1),
                    (true, counts) if !self.is_sending() => {
                        self.of_received(own_count(call, counts, comm))
                    }
                    _ => self.sent(1),
                },
                received: match (is_root, at.recvcounts) {
                    (false, _) => 0,
                    (true, NO) => self.got(comm.peer_count()),
                    (true, _) => self.got_all(),
                },
            },
            Op::Scatter | Op::Scatterv => Moved {
                sent: match (is_root, at.sendcounts) {
                    (false, _) => 0,
                    (true, NO) => self.sent(comm.peer_count()),
                    (true, _) => self.sent_all(),
                },
                received: match (is_root, at.sendcounts) {
                    (true, _) if comm.is_inter => 0,
                    (true, NO) if self.is_in_place(at.recvbuf) => self.sent(1),
                    (true, counts) if self.is_in_place(at.recvbuf) => {
                        self.of_sent(own_count(call, counts, comm))
                    }
                    _ => self.got(1),
                },
            },
            Op::Reduce => {
                let bytes = self.elements(at.count);
                Moved {
                    sent: if is_root && comm.is_inter { 0 } else { bytes },
                    received: if is_root { bytes } else { 0 },
                }
            }
            _ => return None,
        })
    }

    /// Returns the bytes that an operation without a root moves for this process.
    fn moved_without_root(&self, operation: Op) -> Moved {
        let (at, call, comm) = (&self.at, self.call, self.comm);
        let peers = comm.peer_count();
        match operation {
            Op::Barrier => Moved::default(),
            Op::Allgather | Op::Allgatherv => Moved {
                sent: match at.recvcounts {
                    _ if self.is_sending() => self.sent(1),
                    NO => self.got(1),
                    counts => self.of_received(own_count(call, counts, comm)),
                },
                received: match at.recvcounts {
                    NO => self.got(peers),
                    _ => self.got_all(),
                },
            },
            Op::Alltoall => Moved {
                sent: if self.is_sending() {
                    self.sent(peers)
                } else {
                    self.got(peers)
                },
                received: self.got(peers),
            },
            Op::Alltoallv => Moved {
                sent: if self.is_sending() {
                    self.sent_all()
                } else {
                    self.got_all()
                },
                received: self.got_all(),
            },
            Op::Alltoallw => {
                let (send, receive) =
                    ((at.sendcounts, at.sendtypes), (at.recvcounts, at.recvtypes));
                let sent = if self.is_sending() { send } else { receive };
                Moved {
                    sent: sum_of_types(self.mpi, call, sent, peers),
                    received: sum_of_types(self.mpi, call, receive, peers),
                }
            }
            Op::ReduceScatter => {
                let handle = call.handle(&self.mpi.abi, at.datatype);
                Moved {
                    sent: self.mpi.bytes(sum(call, at.recvcounts, comm.size), handle),
                    received: self.mpi.bytes(own_count(call, at.recvcounts, comm), handle),
                }
            }
            Op::ReduceScatterBlock => {
                let block = self.elements(at.recvcount);
                Moved {
                    sent: block.saturating_mul(comm.size.into()),
                    received: block,
                }
            }
            Op::Exscan => {
                let bytes = self.elements(at.count);
                Moved {
                    sent: bytes,
                    // The result of the first process is undefined.
                    received: if comm.place == 0 { 0 } else { bytes },
                }
            }
            // Allreduce, scan.
            _ => {
                let bytes = self.elements(at.count);
                Moved {
                    sent: bytes,
                    received: bytes,
                }
            }
        }
    }
}

/// Computes the bytes that this process contributes and receives. Reads only the arguments that are
/// significant here.
fn moved<const N: usize, S: Site>(
    mpi: &Mpi,
    comm: &Communicator,
    call: &Call<N, S>,
    root: i32,
    is_root: bool,
) -> Moved {
    let at = call.at();
    if comm.is_inter && at.root != NO && root < 0 {
        // In the root's group, but not the root.
        return Moved::default();
    }
    let Some(operation) = Op::from_code(at.operation) else {
        let handle = call.handle(&mpi.abi, at.comm);
        let (incoming, outgoing) = comm.degrees(mpi, handle);
        return neighbors(mpi, call, incoming, outgoing);
    };
    let blocks = Blocks {
        mpi,
        comm,
        call,
        at,
    };
    let with_root = blocks.moved_with_root(operation, is_root);
    with_root.unwrap_or_else(|| blocks.moved_without_root(operation))
}

/// Computes the bytes that a neighborhood operation moves for this process.
fn neighbors<const N: usize, S: Site>(
    mpi: &Mpi,
    call: &Call<N, S>,
    incoming: u32,
    outgoing: u32,
) -> Moved {
    let at = &call.at();
    if at.sendtypes != NO {
        return Moved {
            sent: sum_of_types(mpi, call, (at.sendcounts, at.sendtypes), outgoing),
            received: sum_of_types(mpi, call, (at.recvcounts, at.recvtypes), incoming),
        };
    }
    let sends = match (at.sendcounts, at.recvcounts) {
        // Allgather sends one block to all, alltoall one block to each.
        (NO, _) => call.count(at.sendcount).max(0),
        _ => sum(call, at.sendcounts, outgoing),
    };
    let receives = match at.recvcounts {
        NO => call
            .count(at.recvcount)
            .max(0)
            .saturating_mul(incoming.into()),
        _ => sum(call, at.recvcounts, incoming),
    };
    Moved {
        sent: mpi.bytes(sends, call.handle(&mpi.abi, at.sendtype)),
        received: mpi.bytes(receives, call.handle(&mpi.abi, at.recvtype)),
    }
}

/// Returns the elements that events of an operation with this number have.
/// Between two groups, no process waits for all.
fn describe<const N: usize, S: Site>(
    mpi: &Mpi,
    comm: &Communicator,
    call: &Call<N, S>,
    sequence: u64,
) -> Collective {
    let (root, is_root) = root(mpi, comm, call);
    let moved = moved(mpi, comm, call, root, is_root);
    let operation = if comm.is_inter {
        NO_OPERATION
    } else {
        call.at().operation
    };
    (
        comm.object,
        operation.into(),
        root,
        moved.sent,
        moved.received,
        comm.place as u32,
        comm.size,
        sequence as i64,
    )
}

/// Records a blocking collective operation.
#[inline(never)]
pub(crate) fn collective<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let known = frame.mpi.and_then(|mpi| {
        let comm = mpi.communicator(call.handle(&mpi.abi, call.at().comm))?;
        Some((mpi, describe(mpi, comm, &call, comm.next_collective())))
    });
    let Some((mpi, values)) = known else {
        let start = frame.enter_unknown();
        let result = call.forward();
        if let Some(mpi) = frame.mpi.filter(|_| is_success(result)) {
            let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm));
            if let Some(comm) = comm {
                let values = describe(mpi, comm, &call, comm.next_collective());
                mpi.raise_since(start, &mpi.types.collective_begin, values);
                frame.leave_with(&mpi.types.collective_end, values);
                return result;
            }
        }
        frame.leave();
        return result;
    };
    frame.enter_with(&mpi.types.collective_begin, values);
    let result = call.forward();
    let operation = if is_success(result) { values.1 } else { FAILED };
    let (object, _, root, sent, received, place, size, sequence) = values;
    let values = (
        object, operation, root, sent, received, place, size, sequence,
    );
    frame.leave_with(&mpi.types.collective_end, values);
    result
}

/// Code of the operation in the end event of an operation that failed.
const FAILED: u32 = 255;

/// Returns the end of an operation that failed.
pub(crate) fn failed(record: &Record) -> Option<CollectiveRequested> {
    let tag = FAILED as i32;
    values(&Record { tag, ..*record })
}

/// Returns the record for a request of a collective operation.
pub(crate) fn values(record: &Record) -> Option<CollectiveRequested> {
    let comm = record.comm?;
    Some((
        comm.object,
        record.tag as u32,
        record.peer,
        record.bytes,
        record.received,
        comm.place as u32,
        comm.size,
        record.sequence as i64,
        record.id,
    ))
}

fn record(comm: &'static Communicator, values: Collective, id: u64) -> Record {
    let (_, operation, root, bytes, received, _, _, sequence) = values;
    Record {
        id,
        kind: RequestKind::Collective,
        comm: Some(comm),
        object: comm.object,
        peer: root,
        tag: operation as i32,
        bytes,
        received,
        sequence: sequence as u64,
        ..Record::DEFAULTS
    }
}

/// Begins a non-blocking collective operation.
#[inline(never)]
pub(crate) fn icollective<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let id = requests::next_id();
    let known = frame.mpi.and_then(|mpi| {
        let comm = mpi.communicator(call.handle(&mpi.abi, call.at().comm))?;
        let values = describe(mpi, comm, &call, comm.next_collective());
        Some((mpi, record(comm, values, id)))
    });
    let start = if let Some((mpi, record)) = &known
        && let Some(values) = values(record)
    {
        frame.enter_with(&mpi.types.icollective_begin, values);
        0
    } else {
        frame.enter_unknown()
    };
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        if let Some((mpi, record)) = &known
            && let Some(values) = failed(record)
        {
            mpi.raise(&mpi.types.icollective_end, values);
        }
        frame.leave();
        return result;
    };
    let begun = match known {
        Some((_, record)) => Some(record),
        None => mpi
            .learn(call.handle(&mpi.abi, call.at().comm))
            .map(|comm| {
                let described = describe(mpi, comm, &call, comm.next_collective());
                let record = record(comm, described, id);
                if let Some(values) = values(&record) {
                    mpi.raise_since(start, &mpi.types.icollective_begin, values);
                }
                record
            }),
    };
    let Some(record) = begun else {
        frame.leave();
        return result;
    };
    let request = call.place(call.at().request).handle(&mpi.abi, 0);
    if mpi.is_complete_at_once(request)
        && let Some(values) = values(&record)
    {
        frame.leave_with(&mpi.types.icollective_end, values);
        return result;
    }
    requests::start(request, record);
    frame.leave();
    result
}

/// Creates a persistent collective operation.
#[inline(never)]
pub(crate) fn collective_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result))
        && let Some(comm) = mpi.learn(call.handle(&mpi.abi, call.at().comm))
    {
        let values = describe(mpi, comm, &call, comm.first_persistent());
        let record = Record {
            is_persistent: true,
            is_active: false,
            ..record(comm, values, requests::next_id())
        };
        requests::start(call.place(call.at().request).handle(&mpi.abi, 0), record);
    }
    frame.leave();
    result
}
