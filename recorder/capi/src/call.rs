//! The frame of every call: no panic leaves it, and no call that takes locks begins inside another
//! one of the same thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use annals_recorder::{Inside, Raise, Raiser, Recorder};

use crate::handle;
use crate::status::{Failure, Status, remember};
use crate::table;

/// Runs a call that may take locks and allocate. Refuses it in signal handlers that interrupted
/// such a call, and in the program's clocks: it would wait for itself.
pub(crate) fn setup(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let inside = Inside::begin();
    if inside.was_inside() {
        return Status::ErrorReentered;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| match work() {
        Ok(()) => Status::Ok,
        Err(failure) => remember(failure),
    }));
    outcome.unwrap_or(Status::ErrorPanic)
}

/// Runs a call that works with a recorder, and that may take locks and allocate.
pub(crate) fn with_recorder(
    recorder: handle::Recorder,
    work: impl FnOnce(&Recorder) -> Result<(), Failure>,
) -> Status {
    setup(|| {
        let found = table::with(recorder.number(), |recorder| {
            work(recorder).map_err(|failure| {
                // For the recorder, a forked child's recording is finished.
                if failure.status == Status::ErrorFinished && recorder.is_inherited() {
                    return Status::ErrorForked.into();
                }
                failure
            })
        });
        found.unwrap_or(Err(Status::ErrorHandle.into()))
    })
}

/// Raises an event with the recorder that has this number: no lock, no allocation. If the short way is not open, calls
/// `otherwise`, which is to call [`raise_guarded`].
///
/// What may panic is out of line: a guard around all of it would pass the call's arguments through memory. So would a call
/// of a function with more arguments than registers hold: then `otherwise` calls one that makes them (benches/c_path).
#[inline(always)]
pub(crate) fn raise(number: u32, what: impl Raise, otherwise: impl FnOnce() -> Status) -> Status {
    match Raiser::short(number, what) {
        Some(outcome) => Status::of_raise(outcome),
        None => otherwise(),
    }
}

/// Raises an event, the short way or the long one.
#[inline(never)]
pub(crate) fn raise_guarded(number: u32, what: impl Raise) -> Status {
    let raise = || match Raiser::with_last(number, what) {
        Some(outcome) => Status::of_raise(outcome),
        None => raise_elsewhere(number, what),
    };
    catch_unwind(AssertUnwindSafe(raise)).unwrap_or(Status::ErrorPanic)
}

#[cold]
#[inline(never)]
fn raise_elsewhere(number: u32, what: impl Raise) -> Status {
    // A signal handler that frees the recorder now would wait for the code that it interrupted.
    let _inside = Inside::begin();
    let outcome = table::with(number, |recorder| what.to(recorder.raiser()));
    outcome.map_or(Status::ErrorHandle, Status::of_raise)
}
