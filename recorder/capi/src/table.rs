//! The process's recorders by number. Looking one up takes no lock: events may be raised in signal
//! handlers, and in children of a fork that happened anywhere.
#![expect(
    unsafe_code,
    reason = "recorders are reached through pointers that the slots guard"
)]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use annals_recorder::Recorder;

use crate::status::{Failure, Status};

/// Most recorders that are not freed yet.
const SLOTS: usize = 64;

/// The number of a slot whose recorder is being added or removed.
const RESERVED: u32 = u32::MAX;

/// A place for a recorder.
/// Number 0 means that it is free. A thread that uses the recorder increments the users first, and
/// then reads the number again; one that removes it changes the number first, and then waits until
/// there are no users.
#[derive(Debug)]
struct Slot {
    number: AtomicU32,
    users: AtomicU32,
    /// Whether the recorder is never freed.
    is_pinned: AtomicBool,
    recorder: AtomicPtr<Recorder>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        number: AtomicU32::new(0),
        users: AtomicU32::new(0),
        is_pinned: AtomicBool::new(false),
        recorder: AtomicPtr::new(null_mut()),
    }
}; SLOTS];

/// Counted as a user of a slot while it lives.
struct User(&'static Slot);

impl User {
    fn of(slot: &'static Slot) -> Self {
        slot.users.fetch_add(1, Ordering::SeqCst);
        Self(slot)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::SeqCst);
    }
}

fn slot_of(number: u32) -> Option<&'static Slot> {
    if number == 0 || number == RESERVED {
        return None;
    }
    let mut slots = TABLE.iter();
    slots.find(|slot| slot.number.load(Ordering::Relaxed) == number)
}

/// Takes in the recorder that `start` starts, where there is room for one.
pub fn add(start: impl FnOnce() -> Result<Recorder, Failure>) -> Result<u32, Failure> {
    let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
    let reserve = |slot: &&Slot| {
        let taken = slot.number.compare_exchange(0, RESERVED, order, seen);
        taken.is_ok()
    };
    let free = TABLE.iter().find(reserve);
    let slot = free.ok_or_else(|| Failure::new(Status::ErrorFull, "too many recorders"))?;
    let recorder = start().inspect_err(|_| slot.number.store(0, Ordering::SeqCst))?;
    let number = recorder.number();
    let recorder = Box::into_raw(Box::new(recorder));
    slot.recorder.store(recorder, Ordering::SeqCst);
    slot.number.store(number, Ordering::SeqCst);
    Ok(number)
}

/// Works with the recorder that has this number, if it is there.
pub fn with<T>(number: u32, work: impl FnOnce(&Recorder) -> T) -> Option<T> {
    let user = User::of(slot_of(number)?);
    if user.0.number.load(Ordering::SeqCst) != number {
        return None;
    }
    // SAFETY: the slot had the number after this thread was counted, so that `remove` waits for it.
    let recorder = unsafe { &*user.0.recorder.load(Ordering::SeqCst) };
    Some(work(recorder))
}

/// Keeps the recorder with this number until the process ends.
pub fn pin(number: u32) -> Option<&'static Recorder> {
    let user = User::of(slot_of(number)?);
    user.0.is_pinned.store(true, Ordering::SeqCst);
    if user.0.number.load(Ordering::SeqCst) != number {
        // It was removed, and another one may be there: that one is not freed, which does no harm.
        return None;
    }
    // SAFETY: the slot had the number after this thread was counted and after it was pinned, so that `remove` leaves it.
    Some(unsafe { &*user.0.recorder.load(Ordering::SeqCst) })
}

/// Finishes a recorder and removes it, unless it is pinned, once no thread uses it any more.
/// Returns `false` if there is none.
pub fn remove(number: u32) -> bool {
    // Finished first: the threads that work with it may wait for that, and new ones are refused
    // soon.
    if with(number, |recorder| drop(recorder.finish())).is_none() {
        return false;
    }
    let Some(slot) = slot_of(number) else {
        return false;
    };
    let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
    let taken = slot.number.compare_exchange(number, RESERVED, order, seen);
    if taken.is_err() {
        return false;
    }
    // `pin` reads the number after it pins: either it saw what is stored above, or this sees that it pinned.
    if slot.is_pinned.load(Ordering::SeqCst) {
        slot.number.store(number, Ordering::SeqCst);
        return true;
    }
    let pointer = slot.recorder.load(Ordering::SeqCst);
    // SAFETY: only the one call that reserved the slot frees what is in it, below.
    let is_inherited = unsafe { &*pointer }.is_inherited();
    while slot.users.load(Ordering::SeqCst) != 0 {
        if is_inherited {
            // Threads of the parent were at work here, and will never be done. The slot stays
            // taken.
            return true;
        }
        annals_recorder::pause(std::time::Duration::from_micros(100));
    }
    slot.recorder.store(null_mut(), Ordering::SeqCst);
    slot.number.store(0, Ordering::SeqCst);
    // SAFETY: made by `add`; no thread can find it any more, and none that did is left.
    drop(unsafe { Box::from_raw(pointer) });
    true
}
