//! Messages: what sends, receives and probes record.

use std::sync::atomic::Ordering;

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::collective;
use crate::communicator::Communicator;
use crate::outcome::give_up;
use crate::requests::{self, Kind, Record};
use crate::signatures::NO;
use crate::state::Mpi;
use crate::statuses::{OwnStatus, received};

/// Key of a message that was probed, among requests.
const fn message_key(message: usize) -> usize {
    message ^ 1 << 62
}

/// Returns the destination of a message: communicator, and rank in the run.
/// `None` means that there is none, or that it is not known yet.
#[inline(always)]
fn destination<const N: usize, S: Site>(
    mpi: &Mpi,
    call: &Call<N, S>,
    rank: i32,
) -> Option<(&'static Communicator, u32)> {
    let comm = mpi.communicator(call.handle(&mpi.abi, call.at().comm))?;
    Some((comm, comm.peer(rank)?))
}

/// Returns the destination of a message in a communicator that was never met, once the library has
/// accepted it.
#[cold]
fn late_destination<const N: usize, S: Site>(
    mpi: &Mpi,
    call: &Call<N, S>,
    rank: i32,
) -> Option<(&'static Communicator, u32)> {
    let handle = call.handle(&mpi.abi, call.at().comm);
    if mpi.communicator(handle).is_some() || rank == mpi.abi.proc_null {
        return None;
    }
    let comm = mpi.learn(handle)?;
    Some((comm, comm.peer(rank)?))
}

#[inline(always)]
fn message_bytes<const N: usize, S: Site>(mpi: &Mpi, call: &Call<N, S>) -> u64 {
    let (count, datatype) = if call.at().sendcount == NO {
        (call.at().count, call.at().datatype)
    } else {
        (call.at().sendcount, call.at().sendtype)
    };
    mpi.bytes(call.count(count), call.handle(&mpi.abi, datatype))
}

/// Sends, and waits until the buffer is free.
#[inline(always)]
pub(crate) fn send<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let rank = call.int(call.at().dest);
    if rank == mpi.abi.proc_null {
        frame.enter_here();
        let result = call.forward();
        frame.leave_here();
        return result;
    }
    let Some((comm, peer)) = destination(mpi, &call, rank) else {
        return send_late(frame, mpi, &call, rank);
    };
    let tag = call.int(call.at().tag) as u32;
    let bytes = message_bytes(mpi, &call);
    frame.enter_with_here(&mpi.types.send, (comm.object, peer, tag, bytes));
    let result = call.forward();
    if !is_success(result) {
        mpi.raise(&mpi.types.unsent, (comm.object, peer, tag));
    }
    frame.leave_here();
    result
}

#[cold]
#[inline(never)]
fn send_late<const N: usize, S: Site>(
    frame: Frame,
    mpi: &Mpi,
    call: &Call<N, S>,
    rank: i32,
) -> usize {
    frame.enter();
    let result = call.forward();
    match late_destination(mpi, call, rank).filter(|_| is_success(result)) {
        Some((comm, peer)) => {
            let tag = call.int(call.at().tag) as u32;
            let values = (comm.object, peer, tag, message_bytes(mpi, call));
            frame.leave_with(&mpi.types.send, values);
        }
        None => frame.leave(),
    }
    result
}

/// Begins to send.
#[inline(always)]
pub(crate) fn isend<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let rank = call.int(call.at().dest);
    let known = destination(mpi, &call, rank);
    let id = requests::next_id();
    let values = |comm: &Communicator, peer| {
        let tag = call.int(call.at().tag) as u32;
        (comm.object, peer, tag, message_bytes(mpi, &call), id)
    };
    match known {
        Some((comm, peer)) => frame.enter_with_here(&mpi.types.isend, values(comm, peer)),
        None => frame.enter_here(),
    }
    let result = call.forward();
    let record = |comm: &Communicator, peer: u32| Record {
        id,
        object: comm.object,
        peer: peer as i32,
        tag: call.int(call.at().tag),
        ..Record::NONE
    };
    if !is_success(result) || rank == mpi.abi.proc_null {
        if let Some((comm, peer)) = known {
            give_up(mpi, &record(comm, peer));
        }
        frame.leave_here();
        return result;
    }
    let Some((comm, peer)) = known.or_else(|| late_destination(mpi, &call, rank)) else {
        frame.leave_here();
        return result;
    };
    if known.is_none() {
        mpi.raise(&mpi.types.isend, values(comm, peer));
    }
    let request = call.place(call.at().request).handle(&mpi.abi, 0);
    if mpi.is_complete_at_once(request) {
        frame.leave_with_here(&mpi.types.send_end, (id,));
    } else {
        requests::put(request, record(comm, peer));
        frame.leave_here();
    }
    result
}

/// Returns the message that a call has received, and its communicator.
#[inline(always)]
fn message_of<const N: usize, S: Site>(
    mpi: &Mpi,
    comm: &'static Communicator,
    call: &Call<N, S>,
) -> Option<(&'static Communicator, (u32, u32, u64))> {
    Some((comm, received(mpi, comm, call.word(call.at().status))?))
}

/// Returns what a receive waits for, as events have it: rank in the run, and tag; -1: any.
#[inline(always)]
fn awaited(mpi: &Mpi, comm: &Communicator, source: i32, tag: i32) -> (i32, i32) {
    let peer = if source == mpi.abi.any_source {
        -1
    } else {
        comm.peer(source).map_or(-1, |peer| peer as i32)
    };
    (peer, if tag == mpi.abi.any_tag { -1 } else { tag })
}

/// Receives.
#[inline(always)]
pub(crate) fn recv<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    if mpi.is_multiple.load(Ordering::Relaxed) {
        return recv_among_threads(frame, mpi, &call);
    }
    frame.enter_here();
    let result = call.forward();
    if !mpi.has_received(result) {
        frame.leave_here();
        return result;
    }
    let handle = call.handle(&mpi.abi, call.at().comm);
    let comm = mpi.communicator(handle).or_else(|| mpi.learn(handle));
    match comm.and_then(|comm| message_of(mpi, comm, &call)) {
        Some((comm, (peer, tag, bytes))) => {
            frame.leave_with_here(&mpi.types.receive, (comm.object, peer, tag, bytes));
        }
        None => frame.leave_here(),
    }
    result
}

/// Receives when other threads may receive, too: the order of their begins decides which of them
/// gets which message.
#[inline(never)]
fn recv_among_threads<const N: usize, S: Site>(
    frame: Frame,
    mpi: &Mpi,
    call: &Call<N, S>,
) -> usize {
    let (source, tag) = (call.int(call.at().source), call.int(call.at().tag));
    let handle = call.handle(&mpi.abi, call.at().comm);
    let known = mpi
        .communicator(handle)
        .filter(|_| source != mpi.abi.proc_null);
    let id = requests::next_id();
    match known {
        Some(comm) => {
            let (peer, tag) = awaited(mpi, comm, source, tag);
            frame.enter_with(&mpi.types.receive_start, (comm.object, peer, tag, id));
        }
        None => frame.enter(),
    }
    let result = call.forward();
    let has_received = mpi.has_received(result);
    let comm = known.or_else(|| {
        let is_learnt = has_received && source != mpi.abi.proc_null;
        is_learnt.then(|| mpi.learn(handle)).flatten()
    });
    let message = comm
        .filter(|_| has_received)
        .and_then(|comm| message_of(mpi, comm, call));
    match message {
        Some((comm, (peer, tag, bytes))) => {
            frame.leave_with(&mpi.types.ireceive, (comm.object, peer, tag, bytes, id));
        }
        None if known.is_some() => frame.leave_with(&mpi.types.cancel, (id,)),
        None => frame.leave(),
    }
    result
}

/// Begins to receive.
#[inline(always)]
pub(crate) fn irecv<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter_here();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave_here();
        return result;
    };
    let (source, tag) = (call.int(call.at().source), call.int(call.at().tag));
    let handle = call.handle(&mpi.abi, call.at().comm);
    let comm = mpi.communicator(handle).or_else(|| mpi.learn(handle));
    let Some(comm) = comm.filter(|_| source != mpi.abi.proc_null) else {
        frame.leave_here();
        return result;
    };
    let id = requests::next_id();
    let (peer, tag) = awaited(mpi, comm, source, tag);
    let record = Record::receive(id, comm, peer, tag);
    requests::put(call.place(call.at().request).handle(&mpi.abi, 0), record);
    frame.leave_with_here(&mpi.types.receive_start, (comm.object, peer, tag, id));
    result
}

/// Sends and receives in one call.
#[inline(never)]
pub(crate) fn sendrecv<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    let handle = call.handle(&mpi.abi, call.at().comm);
    let dest = call.int(call.at().dest);
    let (source, tag) = (call.int(call.at().source), call.int(call.at().recvtag));
    let values = |comm: &Communicator, peer| {
        let tag = call.int(call.at().tag) as u32;
        (comm.object, peer, tag, message_bytes(mpi, &call))
    };
    let known = mpi.communicator(handle);
    match destination(mpi, &call, dest) {
        Some((comm, peer)) => frame.enter_with(&mpi.types.send, values(comm, peer)),
        None => frame.enter(),
    }
    let id = requests::next_id();
    let is_started = mpi.is_multiple.load(Ordering::Relaxed) && source != mpi.abi.proc_null;
    let started = known.filter(|_| is_started);
    if let Some(comm) = started {
        let (peer, tag) = awaited(mpi, comm, source, tag);
        mpi.raise(&mpi.types.receive_start, (comm.object, peer, tag, id));
    }
    let result = call.forward();
    // If the received message was too long, the other one was sent.
    let is_done = mpi.has_received(result);
    if !is_done && let Some((comm, peer)) = destination(mpi, &call, dest) {
        let tag = call.int(call.at().tag) as u32;
        mpi.raise(&mpi.types.unsent, (comm.object, peer, tag));
    }
    if known.is_none()
        && is_done
        && let Some((comm, peer)) = late_destination(mpi, &call, dest)
    {
        mpi.raise(&mpi.types.send, values(comm, peer));
    }
    let comm = known.or_else(|| is_done.then(|| mpi.learn(handle)).flatten());
    let message = comm
        .filter(|_| is_done)
        .and_then(|comm| message_of(mpi, comm, &call));
    match (message, started) {
        (Some((comm, (peer, tag, bytes))), None) => {
            frame.leave_with(&mpi.types.receive, (comm.object, peer, tag, bytes));
        }
        (Some((comm, (peer, tag, bytes))), Some(_)) => {
            frame.leave_with(&mpi.types.ireceive, (comm.object, peer, tag, bytes, id));
        }
        (None, Some(_)) => frame.leave_with(&mpi.types.cancel, (id,)),
        (None, None) => frame.leave(),
    }
    result
}

/// Begins to send and receive: one request for both.
#[inline(never)]
pub(crate) fn isendrecv<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let dest = call.int(call.at().dest);
    let values = |comm: &Communicator, peer| {
        let tag = call.int(call.at().tag) as u32;
        (comm.object, peer, tag, message_bytes(mpi, &call))
    };
    let known = destination(mpi, &call, dest);
    match known {
        Some((comm, peer)) => frame.enter_with(&mpi.types.send, values(comm, peer)),
        None => frame.enter(),
    }
    let result = call.forward();
    if !is_success(result) {
        if let Some((comm, peer)) = known {
            let tag = call.int(call.at().tag) as u32;
            mpi.raise(&mpi.types.unsent, (comm.object, peer, tag));
        }
        frame.leave();
        return result;
    }
    if let Some((comm, peer)) = late_destination(mpi, &call, dest) {
        mpi.raise(&mpi.types.send, values(comm, peer));
    }
    let (source, tag) = (call.int(call.at().source), call.int(call.at().recvtag));
    let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    let Some(comm) = comm.filter(|_| source != mpi.abi.proc_null) else {
        frame.leave();
        return result;
    };
    let id = requests::next_id();
    let (peer, tag) = awaited(mpi, comm, source, tag);
    let record = if mpi.abi.fills_isendrecv {
        Record::receive(id, comm, peer, tag)
    } else {
        // As many bytes as were requested: the number that arrived is not known.
        let at = call.at();
        let (count, datatype) = if at.recvcount == NO {
            (at.count, at.datatype)
        } else {
            (at.recvcount, at.recvtype)
        };
        let bytes = mpi.bytes(call.count(count), call.handle(&mpi.abi, datatype));
        Record {
            bytes,
            has_status: false,
            ..Record::receive(id, comm, peer, tag)
        }
    };
    requests::put(call.place(call.at().request).handle(&mpi.abi, 0), record);
    frame.leave_with(&mpi.types.receive_start, (comm.object, peer, tag, id));
    result
}

/// Makes a send that can be started.
#[inline(never)]
pub(crate) fn send_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, Kind::Send, call.at().dest, false)
}

/// Makes a receive that can be started.
#[inline(never)]
pub(crate) fn recv_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, Kind::Receive, call.at().source, false)
}

/// Creates a persistent send in partitions.
#[inline(never)]
pub(crate) fn psend_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, Kind::Send, call.at().dest, true)
}

/// Creates a persistent receive in partitions.
/// The peer is called `dest` or `source`, as in the library.
#[inline(never)]
pub(crate) fn precv_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let peer = if call.at().source == NO {
        call.at().dest
    } else {
        call.at().source
    };
    make_persistent(call, Kind::Receive, peer, true)
}

fn make_persistent<const N: usize, S: Site>(
    call: Call<N, S>,
    kind: Kind,
    peer: u8,
    is_partitioned: bool,
) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let rank = call.int(peer);
    let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    if let Some(comm) = comm.filter(|_| rank != mpi.abi.proc_null) {
        let (peer, tag) = awaited(mpi, comm, rank, call.int(call.at().tag));
        let mut bytes = message_bytes(mpi, &call);
        let mut object = comm.object;
        if is_partitioned {
            bytes = bytes.saturating_mul(call.int(call.at().partitions).max(0) as u64);
            object = comm.partitioned(mpi);
        }
        let record = Record {
            id: requests::next_id(),
            kind,
            is_persistent: true,
            is_active: false,
            comm: Some(comm),
            object,
            peer,
            tag,
            bytes,
            has_status: !is_partitioned,
            ..Record::NONE
        };
        requests::put(call.place(call.at().request).handle(&mpi.abi, 0), record);
    }
    frame.leave();
    result
}

/// Records what a persistent request does when it is started.
fn started(mpi: &Mpi, record: &Record) {
    let types = &mpi.types;
    match record.kind {
        Kind::Send if record.peer >= 0 => {
            let (peer, tag) = (record.peer as u32, record.tag as u32);
            let values = (record.object, peer, tag, record.bytes, record.id);
            mpi.raise(&types.isend, values);
        }
        Kind::Receive => {
            let values = (record.object, record.peer, record.tag, record.id);
            mpi.raise(&types.receive_start, values);
        }
        Kind::Collective => {
            if let Some(values) = collective::values(record) {
                mpi.raise(&types.icollective_begin, values);
            }
        }
        _ => {}
    }
}

fn start_at<const N: usize, S: Site>(mpi: &Mpi, call: &Call<N, S>, index: usize) {
    let handle = call.place(call.at().request).handle(&mpi.abi, index);
    if let Some(mut record) = requests::take(handle) {
        if record.is_persistent {
            record.is_active = true;
            started(mpi, &record);
        }
        requests::put(handle, record);
    }
}

/// Handles a failed call that was to start requests.
#[cold]
fn not_started<const N: usize, S: Site>(mpi: &Mpi, call: &Call<N, S>, index: usize) {
    let handle = call.place(call.at().request).handle(&mpi.abi, index);
    if let Some(record) = requests::take(handle) {
        if record.is_persistent && record.is_active {
            give_up(mpi, &record);
        }
        let is_active = record.is_active && !record.is_persistent;
        requests::put(
            handle,
            Record {
                is_active,
                ..record
            },
        );
    }
}

/// Starts a persistent request.
#[inline(never)]
pub(crate) fn start<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        start_at(mpi, &call, 0);
    }
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| !is_success(result)) {
        not_started(mpi, &call, 0);
    }
    frame.leave();
    result
}

/// Starts persistent requests.
#[inline(never)]
pub(crate) fn startall<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        (0..call.int(call.at().count)).for_each(|index| start_at(mpi, &call, index as usize));
    }
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| !is_success(result)) {
        (0..call.int(call.at().count)).for_each(|index| not_started(mpi, &call, index as usize));
    }
    frame.leave();
    result
}

/// Takes a message that is there out of the others' reach: the receive of it has begun.
fn take_message<const N: usize, S: Site>(frame: Frame, mpi: &Mpi, call: &Call<N, S>) {
    let message = call.place(call.at().message).handle(&mpi.abi, 0);
    let handle = call.handle(&mpi.abi, call.at().comm);
    let comm = mpi.communicator(handle).or_else(|| mpi.learn(handle));
    let is_message = message != mpi.abi.message_null && message != mpi.abi.message_no_proc;
    let found = comm
        .filter(|_| is_message)
        .and_then(|comm| message_of(mpi, comm, call));
    let Some((comm, (peer, tag, bytes))) = found else {
        frame.leave();
        return;
    };
    let id = requests::next_id();
    let (peer, tag) = (peer as i32, tag as i32);
    let record = Record {
        bytes,
        ..Record::receive(id, comm, peer, tag)
    };
    requests::put(message_key(message), record);
    frame.leave_with(&mpi.types.receive_start, (comm.object, peer, tag, id));
}

/// Waits for a message and takes it.
#[inline(never)]
pub(crate) fn mprobe<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    frame.enter();
    let result = call.forward();
    if is_success(result) {
        take_message(frame, mpi, &call);
    } else {
        frame.leave();
    }
    result
}

/// Takes a message if there is one.
#[inline(never)]
pub(crate) fn improbe<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    frame.enter();
    let result = call.forward();
    if is_success(result) && call.place(call.at().flag).int(0) != 0 {
        take_message(frame, mpi, &call);
    } else {
        frame.leave();
    }
    result
}

/// Receives a message that was taken.
#[inline(never)]
pub(crate) fn mrecv<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    frame.enter();
    let message = call.place(call.at().message).handle(&mpi.abi, 0);
    let record = requests::take(message_key(message));
    let result = call.forward();
    let of = record.and_then(|record| Some((record, record.comm?)));
    let got = of
        .filter(|_| mpi.has_received(result))
        .and_then(|(record, comm)| {
            Some((record, received(mpi, comm, call.word(call.at().status))?))
        });
    match got {
        Some((record, (peer, tag, bytes))) => {
            let values = (record.object, peer, tag, bytes, record.id);
            frame.leave_with(&mpi.types.ireceive, values);
        }
        None => frame.leave(),
    }
    result
}

/// Begins to receive a message that was taken.
#[inline(never)]
pub(crate) fn imrecv<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let message = call.place(call.at().message).handle(&mpi.abi, 0);
    let record = requests::take(message_key(message));
    let result = call.forward();
    if let Some(record) = record.filter(|_| is_success(result)) {
        requests::put(call.place(call.at().request).handle(&mpi.abi, 0), record);
    }
    frame.leave();
    result
}
