//! Messages: what sends, receives and probes record.

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::channels::{Channel, UNKNOWN};
use crate::collective;
use crate::communicator::Communicator;
use crate::event_types::{Message, Requested};
use crate::outcome::{RequestOutcome, give_up, given_up, outcome, raise};
use crate::requests::{self, Record, RequestKind};
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

/// Enters a call whose destination is not known. Returns the time if that is because its
/// communicator is not known yet.
fn enter_late<const N: usize, S: Site>(frame: &Frame, mpi: &Mpi, call: &Call<N, S>) -> Option<u64> {
    let handle = call.handle(&mpi.abi, call.at().comm);
    if mpi.communicator(handle).is_some() {
        frame.enter();
        return None;
    }
    Some(frame.enter_unknown())
}

/// Returns the destination of a message in a communicator that was not known yet, after the library
/// has accepted it.
#[cold]
fn late_destination<const N: usize, S: Site>(
    mpi: &Mpi,
    call: &Call<N, S>,
    rank: i32,
) -> Option<(&'static Communicator, u32)> {
    if rank == mpi.abi.proc_null {
        return None;
    }
    let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm))?;
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

/// A send without a request.
#[derive(Clone, Copy)]
struct Sent {
    comm: &'static Communicator,
    channel: Channel,
    number: u64,
}

impl Sent {
    /// Counts a send to a rank in the run.
    #[inline(always)]
    fn count(mpi: &Mpi, comm: &'static Communicator, peer: u32, tag: i32) -> Self {
        let channel = Channel::new(peer, tag as u32);
        let number = comm.channels.send(channel, mpi.thread());
        Self {
            comm,
            channel,
            number,
        }
    }

    /// Returns the elements of its event.
    #[inline(always)]
    fn values(&self, bytes: u64) -> Message {
        let Channel { peer, tag, .. } = self.channel;
        (self.comm.object, peer, tag, bytes, self.number as i64)
    }

    /// Handles the failure of its call.
    #[cold]
    fn take_back(&self, mpi: &Mpi) {
        self.comm.channels.unsend(self.channel, self.number);
        let Channel { peer, tag, .. } = self.channel;
        mpi.raise(&mpi.types.unsent, (self.comm.object, peer, tag));
    }
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
    let sent = Sent::count(mpi, comm, peer, call.int(call.at().tag));
    let values = sent.values(message_bytes(mpi, &call));
    frame.enter_with_here(&mpi.types.send, values);
    let result = call.forward();
    if !is_success(result) {
        sent.take_back(mpi);
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
    let start = enter_late(&frame, mpi, call);
    let result = call.forward();
    if let Some(start) = start.filter(|_| is_success(result))
        && let Some((comm, peer)) = late_destination(mpi, call, rank)
    {
        let sent = Sent::count(mpi, comm, peer, call.int(call.at().tag));
        let values = sent.values(message_bytes(mpi, call));
        mpi.raise_since(start, &mpi.types.send, values);
    }
    frame.leave();
    result
}

/// Returns the elements of the event about a send with a request.
#[inline(always)]
fn sent(record: &Record, bytes: u64) -> Requested {
    let (peer, tag) = (record.peer as u32, record.tag as u32);
    (
        record.object,
        peer,
        tag,
        bytes,
        record.sequence as i64,
        record.id,
    )
}

/// Begins to count a send with a request to a rank in the run.
#[inline(always)]
fn start_send(mpi: &Mpi, comm: &'static Communicator, peer: u32, tag: i32) -> Record {
    let mut record = Record {
        id: requests::next_id(),
        comm: Some(comm),
        object: comm.object,
        peer: peer as i32,
        tag,
        ..Record::DEFAULTS
    };
    record.assign_sequence(mpi.thread());
    record
}

/// Begins to send.
#[inline(always)]
pub(crate) fn isend<const N: usize, S: Site>(call: Call<N, S>) -> usize {
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
        return isend_late(frame, mpi, &call, rank);
    };
    let record = start_send(mpi, comm, peer, call.int(call.at().tag));
    let values = sent(&record, message_bytes(mpi, &call));
    frame.enter_with_here(&mpi.types.isend, values);
    let result = call.forward();
    if is_success(result) {
        leave_sending(frame, mpi, &call, record);
    } else {
        give_up(mpi, &record);
        frame.leave_here();
    }
    result
}

/// Leaves a call that has begun to send.
#[inline(always)]
fn leave_sending<const N: usize, S: Site>(
    frame: Frame,
    mpi: &Mpi,
    call: &Call<N, S>,
    record: Record,
) {
    let request = call.place(call.at().request).handle(&mpi.abi, 0);
    if mpi.is_complete_at_once(request) {
        frame.leave_with_here(&mpi.types.send_end, (record.id,));
    } else {
        requests::start(request, record);
        frame.leave_here();
    }
}

#[cold]
#[inline(never)]
fn isend_late<const N: usize, S: Site>(
    frame: Frame,
    mpi: &Mpi,
    call: &Call<N, S>,
    rank: i32,
) -> usize {
    let start = enter_late(&frame, mpi, call);
    let result = call.forward();
    if let Some(start) = start.filter(|_| is_success(result))
        && let Some((comm, peer)) = late_destination(mpi, call, rank)
    {
        let record = start_send(mpi, comm, peer, call.int(call.at().tag));
        let values = sent(&record, message_bytes(mpi, call));
        mpi.raise_since(start, &mpi.types.isend, values);
        leave_sending(frame, mpi, call, record);
    } else {
        frame.leave();
    }
    result
}

/// Counts the message that a call without a request has received, and returns the elements of its
/// event. Only for use if no other thread receives: otherwise, the start of the call decides its
/// place among the receives.
#[inline(always)]
fn message_of<const N: usize, S: Site>(
    mpi: &Mpi,
    comm: &Communicator,
    call: &Call<N, S>,
) -> Option<Message> {
    let (peer, tag, bytes) = received(mpi, comm, call.word(call.at().status))?;
    let number = comm.channels.receive(Channel::new(peer, tag), None);
    Some((comm.object, peer, tag, bytes, number as i64))
}

/// Returns what a receive waits for, as events contain it: rank in the run, and tag. -1 means any.
#[inline(always)]
fn awaited(mpi: &Mpi, comm: &Communicator, source: i32, tag: i32) -> (i32, i32) {
    let peer = if source == mpi.abi.any_source {
        -1
    } else {
        comm.peer(source).map_or(-1, |peer| peer as i32)
    };
    (peer, if tag == mpi.abi.any_tag { -1 } else { tag })
}

/// A receive without a request that no other thread's receives can overtake. It is counted when it starts, or when its
/// channel is known.
#[derive(Clone, Copy)]
struct Blocking {
    comm: &'static Communicator,
    peer: i32,
    tag: i32,
    number: u64,
}

impl Blocking {
    #[inline(always)]
    fn start(mpi: &Mpi, comm: &'static Communicator, source: i32, tag: i32) -> Self {
        let (peer, tag) = awaited(mpi, comm, source, tag);
        let channel = Self::channel(peer, tag);
        let number = channel.map_or(UNKNOWN, |channel| comm.channels.receive(channel, None));
        Self {
            comm,
            peer,
            tag,
            number,
        }
    }

    /// Returns the channel, or `None` if the receive takes a message of any process or tag.
    #[inline(always)]
    fn channel(peer: i32, tag: i32) -> Option<Channel> {
        let channel = |peer, tag| Channel::new(peer, tag);
        Some(channel(u32::try_from(peer).ok()?, u32::try_from(tag).ok()?))
    }

    /// Returns the elements of the event about its start.
    #[inline(always)]
    const fn awaiting(&self) -> (u32, i32, i32, i64) {
        (self.comm.object, self.peer, self.tag, self.number as i64)
    }

    /// Returns the elements of the event about the message that it has received.
    #[inline(always)]
    fn received<const N: usize, S: Site>(&self, mpi: &Mpi, call: &Call<N, S>) -> Option<Message> {
        if Self::channel(self.peer, self.tag).is_none() {
            return message_of(mpi, self.comm, call);
        }
        let (peer, tag, bytes) = received(mpi, self.comm, call.word(call.at().status))?;
        Some((self.comm.object, peer, tag, bytes, self.number as i64))
    }

    /// Handles that it has received nothing.
    #[cold]
    fn take_back(&self) {
        if let Some(channel) = Self::channel(self.peer, self.tag) {
            self.comm.channels.unreceive(channel, self.number);
        }
    }
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
    if mpi.has_threads() {
        return recv_among_threads(frame, mpi, &call);
    }
    let handle = call.handle(&mpi.abi, call.at().comm);
    let source = call.int(call.at().source);
    let known = mpi.communicator(handle);
    let known = known.filter(|_| source != mpi.abi.proc_null);
    let started = known.map(|comm| Blocking::start(mpi, comm, source, call.int(call.at().tag)));
    match &started {
        Some(started) => frame.enter_with_here(&mpi.types.blocking_start, started.awaiting()),
        None => frame.enter_here(),
    }
    let result = call.forward();
    if !mpi.has_received(result) {
        if let Some(started) = started {
            started.take_back();
        }
        frame.leave_here();
        return result;
    }
    let message = match started {
        Some(started) => started.received(mpi, &call),
        None => mpi
            .learn(handle)
            .and_then(|comm| message_of(mpi, comm, &call)),
    };
    match message {
        Some(values) => frame.leave_with_here(&mpi.types.receive, values),
        None => frame.leave_here(),
    }
    result
}

/// Begins to count a receive.
#[inline(always)]
fn start_receive(mpi: &Mpi, comm: &'static Communicator, source: i32, tag: i32) -> Record {
    let (peer, tag) = awaited(mpi, comm, source, tag);
    let mut record = Record::receive(requests::next_id(), comm, peer, tag);
    record.assign_sequence(mpi.thread());
    record
}

/// Returns the elements of the event about the start of a receive with a request.
#[inline(always)]
const fn awaiting(record: &Record) -> (u32, i32, i32, u64) {
    (record.object, record.peer, record.tag, record.id)
}

/// A receive in a call that returns only when it is complete.
#[derive(Clone, Copy)]
enum Started {
    /// No other thread receives.
    Alone(Blocking),
    /// Other threads may receive, too: it has a request.
    AmongThreads(Record),
}

impl Started {
    /// Records what a call waits for.
    fn record(mpi: &Mpi, comm: &'static Communicator, source: i32, tag: i32) -> Self {
        if mpi.has_threads() {
            let record = start_receive(mpi, comm, source, tag);
            mpi.raise(&mpi.types.receive_start, awaiting(&record));
            return Self::AmongThreads(record);
        }
        let blocking = Blocking::start(mpi, comm, source, tag);
        mpi.raise(&mpi.types.blocking_start, blocking.awaiting());
        Self::Alone(blocking)
    }
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
    let started = known.map(|comm| start_receive(mpi, comm, source, tag));
    match &started {
        Some(record) => frame.enter_with(&mpi.types.receive_start, awaiting(record)),
        None => frame.enter(),
    }
    let result = call.forward();
    let has_received = mpi.has_received(result);
    let begun = match started {
        None if has_received => late_receive(mpi, handle, source, tag),
        started => started,
    };
    let ended = begun.map(|record| {
        if has_received {
            outcome(mpi, &record, call.word(call.at().status))
        } else {
            given_up(&record)
        }
    });
    match ended {
        Some(RequestOutcome::Received(values)) => frame.leave_with(&mpi.types.ireceive, values),
        Some(ended) if started.is_some() => {
            raise(mpi, &ended);
            frame.leave();
        }
        _ => frame.leave(),
    }
    result
}

/// Begins to receive.
#[inline(always)]
pub(crate) fn irecv<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let (source, tag) = (call.int(call.at().source), call.int(call.at().tag));
    let handle = call.handle(&mpi.abi, call.at().comm);
    let known = mpi
        .communicator(handle)
        .filter(|_| source != mpi.abi.proc_null);
    // Counted before the library has it: a receive of another thread that the library takes earlier may not
    // have its number.
    let started = known.map(|comm| start_receive(mpi, comm, source, tag));
    frame.enter_here();
    let result = call.forward();
    if !is_success(result) {
        if let Some(record) = started {
            record.take_back();
        }
        frame.leave_here();
        return result;
    }
    let begun = started.or_else(|| late_receive(mpi, handle, source, tag));
    let Some(record) = begun else {
        frame.leave_here();
        return result;
    };
    requests::start(call.place(call.at().request).handle(&mpi.abi, 0), record);
    frame.leave_with_here(&mpi.types.receive_start, awaiting(&record));
    result
}

/// Begins to count a receive in a communicator that is not known yet.
#[cold]
fn late_receive(mpi: &Mpi, handle: usize, source: i32, tag: i32) -> Option<Record> {
    if source == mpi.abi.proc_null {
        return None;
    }
    let comm = mpi.learn(handle)?;
    Some(start_receive(mpi, comm, source, tag))
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
    let bytes = message_bytes(mpi, &call);
    let count = |comm, peer| Sent::count(mpi, comm, peer, call.int(call.at().tag));
    let known = mpi.communicator(handle);
    let sent = known.and_then(|comm| Some(count(comm, comm.peer(dest)?)));
    let start = match &sent {
        Some(sent) => {
            frame.enter_with(&mpi.types.send, sent.values(bytes));
            None
        }
        None if known.is_some() => {
            frame.enter();
            None
        }
        None => Some(frame.enter_unknown()),
    };
    let awaiting_in = known.filter(|_| source != mpi.abi.proc_null);
    let started = awaiting_in.map(|comm| Started::record(mpi, comm, source, tag));
    let result = call.forward();
    // If the received message was too long, the other one was sent.
    let is_done = mpi.has_received(result);
    match sent {
        Some(sent) if !is_done => sent.take_back(mpi),
        _ => {}
    }
    if let Some(start) = start.filter(|_| is_done)
        && let Some((comm, peer)) = late_destination(mpi, &call, dest)
    {
        let values = count(comm, peer).values(bytes);
        mpi.raise_since(start, &mpi.types.send, values);
    }
    if let Some(Started::AmongThreads(record)) = started {
        let ended = if is_done {
            outcome(mpi, &record, call.word(call.at().status))
        } else {
            given_up(&record)
        };
        raise(mpi, &ended);
        frame.leave();
        return result;
    }
    let message = match started {
        Some(Started::Alone(started)) if is_done => started.received(mpi, &call),
        Some(Started::Alone(started)) => {
            started.take_back();
            None
        }
        _ => {
            let comm = known.or_else(|| is_done.then(|| mpi.learn(handle)).flatten());
            let comm = comm.filter(|_| is_done);
            comm.and_then(|comm| message_of(mpi, comm, &call))
        }
    };
    match message {
        Some(values) => frame.leave_with(&mpi.types.receive, values),
        None => frame.leave(),
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
    let bytes = message_bytes(mpi, &call);
    let count = |comm, peer| Sent::count(mpi, comm, peer, call.int(call.at().tag));
    let known = mpi.communicator(call.handle(&mpi.abi, call.at().comm));
    let sent = known.and_then(|comm| Some(count(comm, comm.peer(dest)?)));
    let start = match &sent {
        Some(sent) => {
            frame.enter_with(&mpi.types.send, sent.values(bytes));
            None
        }
        None if known.is_some() => {
            frame.enter();
            None
        }
        None => Some(frame.enter_unknown()),
    };
    let result = call.forward();
    if !is_success(result) {
        if let Some(sent) = sent {
            sent.take_back(mpi);
        }
        frame.leave();
        return result;
    }
    if let Some(start) = start
        && let Some((comm, peer)) = late_destination(mpi, &call, dest)
    {
        let values = count(comm, peer).values(bytes);
        mpi.raise_since(start, &mpi.types.send, values);
    }
    let (source, tag) = (call.int(call.at().source), call.int(call.at().recvtag));
    let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    let Some(comm) = comm.filter(|_| source != mpi.abi.proc_null) else {
        frame.leave();
        return result;
    };
    let started = start_receive(mpi, comm, source, tag);
    let record = if mpi.abi.fills_isendrecv {
        started
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
            ..started
        }
    };
    requests::start(call.place(call.at().request).handle(&mpi.abi, 0), record);
    frame.leave_with(&mpi.types.receive_start, awaiting(&record));
    result
}

/// Creates a persistent send.
#[inline(never)]
pub(crate) fn send_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, RequestKind::Send, call.at().dest, false)
}

/// Creates a persistent receive.
#[inline(never)]
pub(crate) fn recv_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, RequestKind::Receive, call.at().source, false)
}

/// Creates a persistent send in partitions.
#[inline(never)]
pub(crate) fn psend_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    make_persistent(call, RequestKind::Send, call.at().dest, true)
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
    make_persistent(call, RequestKind::Receive, peer, true)
}

fn make_persistent<const N: usize, S: Site>(
    call: Call<N, S>,
    kind: RequestKind,
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
            ..Record::DEFAULTS
        };
        requests::start(call.place(call.at().request).handle(&mpi.abi, 0), record);
    }
    frame.leave();
    result
}

/// Records what a persistent request does when it is started.
fn started(mpi: &Mpi, record: &mut Record) {
    let types = &mpi.types;
    record.assign_sequence(mpi.thread());
    match record.kind {
        RequestKind::Send if record.peer >= 0 => {
            mpi.raise(&types.isend, sent(record, record.bytes))
        }
        RequestKind::Receive => mpi.raise(&types.receive_start, awaiting(record)),
        RequestKind::Collective => {
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
            started(mpi, &mut record);
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

/// Records that a matched probe has reserved a message: the receive of it has begun.
fn take_message<const N: usize, S: Site>(frame: Frame, mpi: &Mpi, call: &Call<N, S>) {
    let message = call.place(call.at().message).handle(&mpi.abi, 0);
    let handle = call.handle(&mpi.abi, call.at().comm);
    let comm = mpi.communicator(handle).or_else(|| mpi.learn(handle));
    let is_message = message != mpi.abi.message_null && message != mpi.abi.message_no_proc;
    let found = comm.filter(|_| is_message).and_then(|comm| {
        let (peer, tag, bytes) = received(mpi, comm, call.word(call.at().status))?;
        let id = requests::next_id();
        let mut record = Record {
            bytes,
            ..Record::receive(id, comm, peer as i32, tag as i32)
        };
        record.assign_sequence(mpi.thread());
        Some(record)
    });
    let Some(record) = found else {
        frame.leave();
        return;
    };
    requests::start(message_key(message), record);
    frame.leave_with(&mpi.types.receive_start, awaiting(&record));
}

/// Waits for a message and reserves it.
#[inline(never)]
pub(crate) fn mprobe<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    enter_probe(&frame, mpi, &call);
    let result = call.forward();
    if is_success(result) {
        take_message(frame, mpi, &call);
    } else {
        frame.leave();
    }
    result
}

/// Enters a call that waits for a message and does not receive it.
fn enter_probe<const N: usize, S: Site>(frame: &Frame, mpi: &Mpi, call: &Call<N, S>) {
    let source = call.int(call.at().source);
    let comm = mpi.communicator(call.handle(&mpi.abi, call.at().comm));
    match comm.filter(|_| source != mpi.abi.proc_null) {
        Some(comm) => {
            let (peer, tag) = awaited(mpi, comm, source, call.int(call.at().tag));
            let values = (comm.object, peer, tag, UNKNOWN as i64);
            frame.enter_with(&mpi.types.blocking_start, values);
        }
        None => frame.enter(),
    }
}

/// Waits for a message.
#[inline(never)]
pub(crate) fn probe<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    enter_probe(&frame, mpi, &call);
    let result = call.forward();
    frame.leave();
    result
}

/// Reserves a message if there is one.
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

/// Receives a message that was reserved.
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
    let got = record
        .and_then(|record| Some((record, record.comm?)))
        .filter(|_| mpi.has_received(result))
        .and_then(|(record, comm)| {
            let (peer, tag, bytes) = received(mpi, comm, call.word(call.at().status))?;
            let number = record.complete_receive(peer, tag, mpi.thread()) as i64;
            Some((record.object, peer, tag, bytes, number, record.id))
        });
    record.iter().for_each(requests::end);
    match got {
        Some(values) => frame.leave_with(&mpi.types.ireceive, values),
        None => frame.leave(),
    }
    result
}

/// Begins to receive a message that was reserved.
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
    if let Some(record) = record {
        if is_success(result) {
            requests::put(call.place(call.at().request).handle(&mpi.abi, 0), record);
        } else {
            requests::end(&record);
        }
    }
    frame.leave();
    result
}
