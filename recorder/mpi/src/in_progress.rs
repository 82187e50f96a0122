//! The calls that a thread is in, and which of them were left by an exception, by `longjmp` or by cancellation: a wrapper does not learn
//! that. Between the program's frame above and the function below, wrappers have nothing that must be cleaned up; what is in progress is
//! here. The thread's next call finds what was left, and closes it.
//!
//! A call whose frame is not below that of one in progress proves that this one was left. Where that proves nothing, because the new
//! frame happens to be below it, or on another stack, the callers are walked through, once ([`stack`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_recorder::stack;
use annals_recorder::{Depth, RegionId, say};

use crate::communicator;
use crate::library;
use crate::state;

/// The region of a call that has none.
pub(crate) const NO_REGION: u32 = u32::MAX;

/// Nested calls that are known one by one. Deeper ones are taken to be in progress as long as these are.
const MOST_NESTED: usize = 15;

thread_local! {
    /// By depth - 1: where the stack is in the calls that are made from inside others, and their regions.
    static NESTED: [Cell<(usize, u32)>; MOST_NESTED] = const { [const { Cell::new((0, 0)) }; MOST_NESTED] };
}

/// Notes a call that is made from inside others.
pub(crate) fn note_nested(depth: u8, at: usize, region: u32) {
    let _ = NESTED.try_with(|nested| {
        if let Some(place) = nested.get(usize::from(depth) - 1) {
            place.set((at, region));
        }
    });
}

/// Returns what is known of the call at a depth; `None` if that is nothing.
fn noted(depth: u8) -> Option<(usize, u32)> {
    match depth {
        0 => Some(Depth::noted()),
        depth => NESTED
            .try_with(|nested| nested.get(usize::from(depth) - 1).map(Cell::get))
            .ok()
            .flatten(),
    }
}

/// Closes the innermost calls down to a depth.
fn close(depth: u8, to: u8) {
    for depth in (to..depth).rev() {
        if let (Some(mpi), Some((_, region))) = (state::get(), noted(depth))
            && region != NO_REGION
        {
            mpi.recorder.leave(RegionId::new(region));
        }
    }
}

/// What a call is that is made while others seem to be in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nested {
    /// The others were left: the program makes it from outside.
    No,
    /// A callback of the program makes it, while this number of others is in progress.
    OfProgram(u8),
    /// The library makes it itself, while this number of others is in progress.
    OfLibrary(u8),
}

/// Finds what was left, and closes it. `depth`: calls that seem to be in progress; `at`: where the stack is in the new one.
#[cold]
#[inline(never)]
pub(crate) fn find_left(depth: u8, at: usize) -> Nested {
    let is_comparable = stack::are_comparable(at, Depth::noted().0);
    let mut live = depth;
    if is_comparable {
        while live != 0 && noted(live - 1).is_some_and(|(frame, _)| frame <= at) {
            live -= 1;
        }
        if live == 0 {
            close(depth, 0);
            return Nested::No;
        }
        close(depth, live);
    }
    let callers = stack::callers(library::is_own);
    if callers.first.is_some_and(library::is_in_library) {
        return Nested::OfLibrary(live);
    }
    // The walk may have ended too early to find the calls around.
    if callers.is_nested || (is_comparable && !callers.is_whole) {
        return Nested::OfProgram(live);
    }
    if !is_comparable {
        report_fibers();
    }
    close(live, 0);
    Nested::No
}

/// Reports once that calls were left on other stacks.
fn report_fibers() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        communicator::keep_all();
        say(
            "fibers: a call of MPI was left on another stack than the thread's own; it ends with the next call",
        );
    }
}
