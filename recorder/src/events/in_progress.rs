//! The callbacks that a thread is in, and which of them were left: by an exception of C++, by `longjmp` or by cancellation. Between the
//! producer's frame above and the consumer's below is nothing that must be cleaned up: what is in progress is in the frames of
//! [`lanes`](super::lanes). The thread's next event or call, the return of the callback around, or the thread's end finds what was left,
//! and ends it. Panics of closures do not take this way: they are resumed when all callbacks were called.
#![expect(
    unsafe_code,
    reason = "frames, their owners and functions are kept as addresses, so that they take no room on the event path"
)]

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::lanes::{Frame, Lanes, Running, lanes};
use super::types::Safety;
use crate::stack;
use crate::thread::THREAD;

fn innermost() -> Option<&'static Frame> {
    let frame = THREAD.with(|thread| thread.innermost.get()).cast::<Frame>();
    // SAFETY: null, or a frame of the process's lanes, which stay for ever.
    unsafe { frame.as_ref() }
}

/// Takes a frame for the calling thread, after what it left was ended. Returns `None` when all are taken.
#[inline(always)]
pub(crate) fn enter(lanes: &'static Lanes, key: u64) -> Option<&'static Frame> {
    if !THREAD.with(|thread| thread.innermost.get()).is_null() {
        end_left(stack::stack_pointer());
    }
    lanes.enter(key)
}

/// Runs something inside a frame that the calling thread has taken.
#[inline(always)]
pub(crate) fn run(frame: &'static Frame, running: Running, work: impl FnOnce()) {
    let here = std::ptr::from_ref(frame).cast::<()>();
    let before = THREAD.with(|thread| thread.innermost.get());
    frame
        .progress
        .begin(stack::stack_pointer(), before, running);
    THREAD.with(|thread| thread.innermost.set(here));
    work();
    if THREAD.with(|thread| thread.innermost.get()) != here {
        end_nested(here);
    }
    THREAD.with(|thread| thread.innermost.set(before));
}

/// Ends what was left inside a frame that is not left.
#[cold]
#[inline(never)]
fn end_nested(outer: *const ()) {
    while let Some(frame) = innermost().filter(|frame| std::ptr::from_ref(*frame).cast() != outer) {
        end(frame);
    }
}

/// Ends the innermost one.
fn end(frame: &'static Frame) {
    let (before, running) = frame.progress.get();
    THREAD.with(|thread| thread.innermost.set(before));
    (running.end)(frame, running.owner, running.required);
}

/// Ends what was left, as far as that can be known. `now`: where the stack is.
#[cold]
#[inline(never)]
pub(crate) fn end_left(now: usize) {
    while let Some(frame) = innermost() {
        let at = frame.progress.at();
        if !stack::are_comparable(at, now) {
            return;
        }
        if at <= now {
            end(frame);
            continue;
        }
        let (_, running) = frame.progress.get();
        if !running.is_elsewhere {
            return;
        }
        let own = stack::object_of((end_left as *const ()).addr());
        let callers = stack::callers(|address| stack::object_of(address) == own);
        if !callers.is_nested && callers.is_whole {
            // This object is not among the callers: all was left.
            end_nested(std::ptr::null());
        }
        return;
    }
}

/// Returns what the innermost callback of the calling thread must be safe for.
/// `None` means that no callback runs.
pub(crate) fn current_safety() -> Option<Safety> {
    innermost()?;
    end_left(stack::stack_pointer());
    innermost().map(|frame| frame.progress.get().1.required)
}

/// At the end of a thread: ends what it was in, and releases its frames.
pub(crate) fn end_thread(lane: *const ()) {
    end_nested(std::ptr::null());
    lanes().release(lane.cast());
}

thread_local! {
    /// The first panic of a closure that the thread has called, until it is resumed.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}

/// Calls a closure of the program; keeps its panic until [`resume_panic`].
#[inline(always)]
pub(crate) fn keep_panic(call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        let is_first = THREAD.with(|thread| !thread.has_panic.replace(true));
        if is_first {
            let _ = PANIC.try_with(|kept| kept.set(Some(panic)));
        }
    }
}

/// Resumes the panic of a closure that was called, if there is one.
#[inline(always)]
pub(crate) fn resume_panic() {
    if THREAD.with(|thread| thread.has_panic.get()) {
        resume();
    }
}

#[cold]
#[inline(never)]
fn resume() {
    THREAD.with(|thread| thread.has_panic.set(false));
    if let Some(panic) = PANIC.try_with(Cell::take).ok().flatten() {
        resume_unwind(panic);
    }
}
