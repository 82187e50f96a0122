//! Communicators that the program has freed: their memory is freed when nothing refers to them any more.
//!
//! Invariant COMMUNICATOR-LIFE: a communicator is reached by its handle, which the program does not use after it has freed the
//! communicator (MPI 5.0, section 7.4.3), except in calls that were begun before; and from the records of requests. So a freed
//! communicator has no reference any more when no such call is in progress and no request has it.
//!
//! - Where no two threads call MPI concurrently, the outermost call is the only one in progress, and the table of requests is
//!   searched.
//! - Elsewhere, each thread publishes the communicators of its calls in progress ([`hold`]), and each communicator counts its
//!   requests. A call of which a free can know that it was begun has published its communicator before it called the library: so a
//!   publication needs no fence. A request is counted before its call publishes another communicator, and only calls with a handle
//!   make requests: publications are therefore read before counts.
//!
//! Calls that were left by an exception or by cancellation only keep memory longer. Where calls of one thread are on several
//! stacks, nothing is freed any more.
#![expect(
    unsafe_code,
    reason = "the memory of communicators that nothing refers to is freed"
)]

use std::collections::HashSet;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use annals_recorder::{Depth, Uncancelled};

use crate::communicator::{self, Communicator};
use crate::requests;
use crate::sync::lock;

/// Freed communicators and bytes that may wait before references to them are searched.
const MOST_WAITING: usize = 64;
const MOST_BYTES: usize = 1 << 19;

/// Communicators that wait for their last reference to end.
struct Waiting {
    communicators: Vec<&'static Communicator>,
    /// Number and bytes of those that were added since references were last searched.
    added: usize,
    added_bytes: usize,
}

static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    communicators: Vec::new(),
    added: 0,
    added_bytes: 0,
});

/// Nested calls of a thread whose communicators are published one by one.
const DEPTHS: usize = 4;

/// The communicators of the calls that a thread has in progress, by depth. Entries of calls that have ended are outdated.
struct Held {
    communicators: [AtomicPtr<Communicator>; DEPTHS],
    has_thread: AtomicBool,
}

/// Of all threads; never freed, but used again for other threads.
static HELD: Mutex<Vec<&'static Held>> = Mutex::new(Vec::new());

/// Clears the entries of a thread that ends.
struct OfThread(&'static Held);

impl Drop for OfThread {
    fn drop(&mut self) {
        for place in &self.0.communicators {
            place.store(null_mut(), Ordering::Release);
        }
        self.0.has_thread.store(false, Ordering::Release);
    }
}

thread_local! {
    static MINE: OfThread = OfThread(add_thread());
}

#[cold]
fn add_thread() -> &'static Held {
    let _uncancelled = Uncancelled::begin();
    let mut all = lock(&HELD);
    let free = |held: &&&Held| !held.has_thread.load(Ordering::Acquire);
    let held = all.iter().find(free).copied().unwrap_or_else(|| {
        let held: &'static Held = Box::leak(Box::new(Held {
            communicators: [const { AtomicPtr::new(null_mut()) }; DEPTHS],
            has_thread: AtomicBool::new(true),
        }));
        all.push(held);
        held
    });
    held.has_thread.store(true, Ordering::Release);
    held
}

/// Publishes that a call of the calling thread, the innermost one, uses a communicator. Only needed where several threads call MPI
/// concurrently.
#[inline]
pub(crate) fn hold(communicator: &'static Communicator) {
    let depth = usize::from(Depth::current().saturating_sub(1));
    let is_held = MINE.try_with(|mine| {
        let place = mine.0.communicators.get(depth)?;
        let communicator = std::ptr::from_ref(communicator).cast_mut();
        // A request of the previous communicator is counted before.
        place.store(communicator, Ordering::Release);
        Some(())
    });
    if !matches!(is_held, Ok(Some(()))) {
        // Deeply nested, or the thread is at its very end.
        communicator::keep_all();
    }
}

/// Returns the addresses of the waiting communicators that are in use.
fn in_use(waiting: &[&'static Communicator]) -> HashSet<usize> {
    if let Some(in_use) = requests::communicators() {
        return in_use;
    }
    let mut in_use = HashSet::new();
    for held in lock(&HELD).iter() {
        let held = held.communicators.iter();
        in_use.extend(held.map(|place| place.load(Ordering::Acquire).addr()));
    }
    for communicator in waiting {
        if communicator.requests.load(Ordering::Acquire) != 0 {
            in_use.insert(std::ptr::from_ref(*communicator).addr());
        }
    }
    in_use
}

/// Frees a communicator that the program has freed, now or later. `is_outermost` is whether no other call of this thread is in
/// progress.
#[cold]
pub(crate) fn free(communicator: &'static Communicator, is_outermost: bool) {
    let _uncancelled = Uncancelled::begin();
    let mut waiting = lock(&WAITING);
    waiting.added += 1;
    waiting.added_bytes += communicator.channels.bytes();
    waiting.communicators.push(communicator);
    let is_due = waiting.added >= MOST_WAITING || waiting.added_bytes >= MOST_BYTES;
    let is_known = is_outermost || requests::are_multithreaded();
    if !is_due || !is_known || communicator::are_all_kept() {
        return;
    }
    let in_use = in_use(&waiting.communicators);
    waiting.communicators.retain(|communicator| {
        let is_kept = in_use.contains(&std::ptr::from_ref(*communicator).addr());
        if !is_kept {
            let memory = communicator.memory.load(Ordering::Relaxed);
            // SAFETY: what `leak` has made it of, and invariant COMMUNICATOR-LIFE (module docs).
            drop(unsafe { Box::from_raw(memory) });
        }
        is_kept
    });
    (waiting.added, waiting.added_bytes) = (0, 0);
}

/// Moves a communicator to where events and requests may refer to it.
pub(crate) fn leak(communicator: Communicator) -> &'static Communicator {
    let memory = Box::into_raw(Box::new(communicator));
    // SAFETY: it was just made, and no other thread has its address; invariant COMMUNICATOR-LIFE (module docs).
    let communicator = unsafe { &*memory };
    communicator.memory.store(memory, Ordering::Relaxed);
    communicator
}
