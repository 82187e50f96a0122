//! Requests that were started and are not complete.
//!
//! A request belongs to one thread at a time: the thread that starts it inserts its record; the
//! thread that completes it removes the record before it asks the library, and inserts it again if
//! the request is not done. So another thread that gets the same handle a moment later finds no
//! stale record. No lock, except where a bucket is full.
//!
//! Why this is sound: a record is accessed only by the thread that claimed its entry, that is, that
//! changed the entry's phase to [`phase::BUSY`] by an exchange with acquire order. The next thread
//! can claim it only after a store of the phase with release order. Where the program has promised
//! MPI that no two threads call it at a time, a plain store is enough, because the program orders
//! the calls. The handle of an entry is read before the claim, and may be outdated; it is read
//! again after the claim, and an entry of another handle is released unchanged.
#![expect(
    unsafe_code,
    reason = "records are in cells that one thread owns at a time"
)]

use std::cell::{Cell, UnsafeCell};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::channels::{Channel, UNKNOWN};
use crate::communicator::{self, Communicator};
use crate::handles::hash;
use crate::sync::lock;

/// The kind of operation that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    Send,
    Receive,
    Collective,
    /// A duplicate of a communicator. [`Record::comm`] is the parent, [`Record::bytes`] its number
    /// among the communicators made from the parent.
    Duplicate,
    Rma,
    /// [`Record::object`] is the file.
    File,
}

/// Data about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Number that identifies the request in events, from [`next_id`].
    pub(crate) id: u64,
    pub(crate) kind: RequestKind,
    /// Whether it can be started repeatedly.
    pub(crate) is_persistent: bool,
    /// Whether it was started and is not complete. Only a persistent request can be inactive.
    pub(crate) is_active: bool,
    /// Whether the program has requested its cancellation.
    pub(crate) is_cancelling: bool,
    /// For a receive, whether its status contains the message. Otherwise the record contains what
    /// the receive waited for.
    pub(crate) has_status: bool,
    /// The communicator. `None` means that the operation is on a window or a file.
    pub(crate) comm: Option<&'static Communicator>,
    /// Object of the communicator or file in events. The messages of a partitioned request have a
    /// separate object, different from that of `comm`.
    pub(crate) object: u32,
    /// Rank of the peer in the run; -1 means any. For a collective operation, the root.
    pub(crate) peer: i32,
    /// The tag; -1 means any. For a collective operation, its code.
    pub(crate) tag: i32,
    /// Bytes of the message. For a collective operation, the bytes that this process contributes.
    pub(crate) bytes: u64,
    /// For a collective operation, the bytes that this process receives.
    pub(crate) received: u64,
    /// Number of the message in its channel, or of the collective operation in its communicator.
    /// For a receive with a wildcard, its number among these receives. For a persistent collective
    /// operation, the number of the next start.
    pub(crate) sequence: u64,
    /// For a duplicate, its handle.
    pub(crate) handle: usize,
}

impl Record {
    /// Values of the fields that a constructor does not set.
    pub(crate) const DEFAULTS: Self = Self {
        id: 0,
        kind: RequestKind::Send,
        is_persistent: false,
        is_active: true,
        is_cancelling: false,
        has_status: true,
        comm: None,
        object: 0,
        peer: -1,
        tag: -1,
        bytes: 0,
        received: 0,
        sequence: UNKNOWN,
        handle: 0,
    };

    /// Creates the record of a receive that has begun.
    #[inline(always)]
    pub(crate) const fn receive(id: u64, comm: &'static Communicator, peer: i32, tag: i32) -> Self {
        Self {
            id,
            kind: RequestKind::Receive,
            comm: Some(comm),
            object: comm.object,
            peer,
            tag,
            ..Self::DEFAULTS
        }
    }

    /// Returns the channel of a message whose peer and tag are known.
    #[inline(always)]
    fn channel(&self, comm: &Communicator) -> Channel {
        Channel {
            peer: self.peer as u32,
            tag: self.tag as u32,
            // See [`Record::object`].
            is_partitioned: comm.object != self.object,
        }
    }

    /// Sets the sequence number of a send or a receive that starts. `thread` is the number of the
    /// calling thread, or `None` where no two threads call MPI concurrently.
    #[inline(always)]
    pub(crate) fn assign_sequence(&mut self, thread: Option<u32>) {
        let Some(comm) = self.comm else { return };
        let is_wildcard = self.peer < 0 || self.tag < 0;
        self.sequence = match self.kind {
            RequestKind::Send if is_wildcard => UNKNOWN,
            RequestKind::Send => comm.channels.send(self.channel(comm), thread),
            RequestKind::Receive if is_wildcard => {
                comm.channels.start_wildcard(self.peer, self.tag, thread)
            }
            RequestKind::Receive => comm.channels.receive(self.channel(comm), thread),
            _ => return,
        };
    }

    /// Completes a receive, given peer and tag of the message that it has taken: a receive with a
    /// wildcard is not pending any more. Returns the message's number in its channel. `thread` is
    /// the number of the calling thread, or `None` where no two threads call MPI concurrently.
    #[inline(always)]
    pub(crate) fn complete_receive(&self, peer: u32, tag: u32, thread: Option<u32>) -> u64 {
        let Some(comm) = self.comm else {
            return UNKNOWN;
        };
        let channel = Channel {
            peer,
            tag,
            ..self.channel(comm)
        };
        if self.peer < 0 || self.tag < 0 {
            let taken = Some(channel);
            return comm.channels.end_wildcard(self.sequence, taken, thread);
        }
        comm.channels.received(channel, self.sequence, thread)
    }

    /// Takes back a send or a receive that failed or was cancelled.
    #[cold]
    pub(crate) fn take_back(&self) {
        let Some(comm) = self.comm else { return };
        match self.kind {
            RequestKind::Send if self.peer >= 0 => {
                comm.channels.unsend(self.channel(comm), self.sequence);
            }
            RequestKind::Receive if self.peer < 0 || self.tag < 0 => {
                comm.channels.end_wildcard(self.sequence, None, None);
            }
            RequestKind::Receive => comm.channels.unreceive(self.channel(comm), self.sequence),
            _ => {}
        }
    }
}

/// Number of buckets of the table; a request's handle determines its bucket.
const BUCKETS: usize = 4096;
/// Number of entries of a bucket.
const BUCKET_LEN: usize = 8;

/// The phases of an entry.
mod phase {
    /// The entry has no record.
    pub(super) const FREE: u32 = 0;
    /// One thread has claimed the entry.
    pub(super) const BUSY: u32 = 1;
    /// The entry has the record of its handle.
    pub(super) const OCCUPIED: u32 = 2;
}

/// An entry of the table.
struct Entry {
    /// A value of [`phase`].
    phase: AtomicU32,
    /// The request's handle; outdated in an entry that is free.
    handle: AtomicUsize,
    record: UnsafeCell<MaybeUninit<Record>>,
}

// SAFETY: the record is touched only by the thread that set the phase to busy.
unsafe impl Sync for Entry {}

static ENTRIES: [[Entry; BUCKET_LEN]; BUCKETS] = [const {
    [const {
        Entry {
            phase: AtomicU32::new(phase::FREE),
            handle: AtomicUsize::new(0),
            record: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }; BUCKET_LEN]
}; BUCKETS];

/// Records of requests whose bucket is full.
static OTHERS: Mutex<Option<HashMap<usize, Record>>> = Mutex::new(None);
/// Length of [`OTHERS`]. If it is 0, [`take`] need not take the lock.
static OTHER_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether several threads may access the entries concurrently.
static IS_MULTITHREADED: AtomicBool = AtomicBool::new(true);

/// Sets whether several threads of the program may call MPI concurrently.
pub(crate) fn set_multithreaded(is_multithreaded: bool) {
    static WAS_SET: AtomicBool = AtomicBool::new(false);
    let before = IS_MULTITHREADED.swap(is_multithreaded, Ordering::AcqRel);
    if WAS_SET.swap(true, Ordering::AcqRel) && before != is_multithreaded {
        // Requests that were started before are not counted, or counted and no more discounted.
        communicator::keep_all();
    }
}

/// Returns whether several threads of the program may call MPI concurrently.
pub(crate) fn are_multithreaded() -> bool {
    IS_MULTITHREADED.load(Ordering::Acquire)
}

/// Whether a request was cancelled while another thread had its record: from then on, any may be.
static ANY_MAY_BE_CANCELLED: AtomicBool = AtomicBool::new(false);

/// Notes that a request is cancelled whose record another thread has.
#[cold]
pub(crate) fn expect_cancelled() {
    ANY_MAY_BE_CANCELLED.store(true, Ordering::Release);
}

/// Returns whether a completed request may have been cancelled, which its status has.
#[inline(always)]
pub(crate) fn may_be_cancelled(record: &Record) -> bool {
    record.is_cancelling || ANY_MAY_BE_CANCELLED.load(Ordering::Acquire)
}

impl Entry {
    /// Claims the entry for this thread if it is in this phase. Returns whether it was claimed.
    #[inline(always)]
    fn claim(&self, from: u32) -> bool {
        let (order, seen) = (Ordering::Acquire, Ordering::Relaxed);
        if self.phase.load(seen) != from {
            return false;
        }
        if !IS_MULTITHREADED.load(seen) {
            // The program has promised MPI that no two threads call it at a time: this saves a
            // locked instruction.
            self.phase.store(phase::BUSY, seen);
            return true;
        }
        self.phase
            .compare_exchange(from, phase::BUSY, order, seen)
            .is_ok()
    }
}

/// Inserts the record of a request that was started or created, which [`end`] ends.
#[inline(always)]
pub(crate) fn start(handle: usize, record: Record) {
    if IS_MULTITHREADED.load(Ordering::Relaxed)
        && let Some(comm) = record.comm
    {
        comm.requests.fetch_add(1, Ordering::Relaxed);
    }
    put(handle, record);
}

/// Ends a request whose record was taken and is not inserted again.
#[inline(always)]
pub(crate) fn end(record: &Record) {
    if IS_MULTITHREADED.load(Ordering::Relaxed)
        && let Some(comm) = record.comm
    {
        comm.requests.fetch_sub(1, Ordering::Release);
    }
}

/// Returns the addresses of the communicators of all requests; `None` where several threads may call MPI concurrently.
pub(crate) fn communicators() -> Option<HashSet<usize>> {
    if are_multithreaded() {
        return None;
    }
    let address = |record: &Record| record.comm.map(|comm| std::ptr::from_ref(comm).addr());
    let mut addresses = HashSet::new();
    for entry in ENTRIES.iter().flatten() {
        if entry.phase.load(Ordering::Acquire) == phase::OCCUPIED {
            // SAFETY: no other thread is in a call (module docs), and it was filled before it was marked occupied.
            let record = unsafe { (*entry.record.get()).assume_init() };
            addresses.extend(address(&record));
        }
    }
    let others = lock(&OTHERS);
    addresses.extend(others.iter().flat_map(HashMap::values).filter_map(address));
    Some(addresses)
}

/// Inserts the record of a request that is known already.
#[inline]
pub(crate) fn put(handle: usize, record: Record) {
    for entry in &ENTRIES[hash(handle) % BUCKETS] {
        if entry.claim(phase::FREE) {
            // SAFETY: the entry is this thread's (module docs).
            unsafe { (*entry.record.get()).write(record) };
            entry.handle.store(handle, Ordering::Relaxed);
            entry.phase.store(phase::OCCUPIED, Ordering::Release);
            return;
        }
    }
    put_elsewhere(handle, record);
}

#[cold]
fn put_elsewhere(handle: usize, record: Record) {
    let mut others = lock(&OTHERS);
    let others = others.get_or_insert_default();
    others.insert(handle, record);
    OTHER_COUNT.store(others.len(), Ordering::Release);
}

/// Removes and returns the record of a request, or `None` if it was not started here.
#[inline]
pub(crate) fn take(handle: usize) -> Option<Record> {
    for entry in &ENTRIES[hash(handle) % BUCKETS] {
        if entry.handle.load(Ordering::Relaxed) == handle && entry.claim(phase::OCCUPIED) {
            // SAFETY: the entry is this thread's (module docs), and was filled before it was marked
            // occupied.
            let record = unsafe { (*entry.record.get()).assume_init() };
            // Another thread may have filled it with another request's record in between.
            if entry.handle.load(Ordering::Relaxed) == handle {
                entry.phase.store(phase::FREE, Ordering::Release);
                return Some(record);
            }
            entry.phase.store(phase::OCCUPIED, Ordering::Release);
        }
    }
    if OTHER_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    let mut others = lock(&OTHERS);
    let others = others.as_mut()?;
    let record = others.remove(&handle);
    OTHER_COUNT.store(others.len(), Ordering::Release);
    record
}

/// Returns a new number that identifies a request in events.
#[inline]
pub(crate) fn next_id() -> u64 {
    /// Size of the block of numbers that a thread reserves at a time.
    const BLOCK: u64 = 1 << 10;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static MINE: Cell<u64> = const { Cell::new(0) };
    }
    MINE.with(|mine| {
        let mut id = mine.get();
        if id.is_multiple_of(BLOCK) {
            id = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
        }
        mine.set(id + 1);
        id
    })
}
