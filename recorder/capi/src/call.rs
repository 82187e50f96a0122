//! What every call goes through: nothing panics out of it, and none that takes locks begins inside
//! another one of its thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use annals_recorder::{Raiser, Recorder, Refusal};

use crate::handle;
use crate::status::{Failure, Status, remember};
use crate::table;

thread_local! {
    /// The thread is in a call that takes locks, or in the program's clock, which is read under one.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, calls of this thread that take locks are refused.
pub(crate) struct Inside {
    was_inside: bool,
}

impl Inside {
    pub(crate) fn begin() -> Self {
        let was_inside = IS_INSIDE.replace(true);
        Self { was_inside }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(self.was_inside);
    }
}

/// A call that may take locks and allocate. Refused in signal handlers that interrupted such a call,
/// and in the program's clocks: it would wait for itself.
pub(crate) fn setup(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let inside = Inside::begin();
    if inside.was_inside {
        return Status::ErrorReentered;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| match work() {
        Ok(()) => Status::Ok,
        Err(failure) => remember(failure),
    }));
    outcome.unwrap_or(Status::ErrorPanic)
}

/// The same for a call to a recorder.
pub(crate) fn with_recorder(
    recorder: handle::Recorder,
    work: impl FnOnce(&Recorder) -> Result<(), Failure>,
) -> Status {
    setup(|| {
        let found = table::with(recorder.number(), |recorder| {
            work(recorder).map_err(|failure| {
                // For the recorder, a child's recording is as good as finished.
                if failure.status == Status::ErrorFinished && recorder.is_inherited() {
                    return Status::ErrorForked.into();
                }
                failure
            })
        });
        found.unwrap_or(Err(Status::ErrorHandle.into()))
    })
}

/// A call that raises events: no lock, no allocation.
#[inline(always)]
pub(crate) fn raise(number: u32, work: impl Fn(Raiser<'_>) -> Result<(), Refusal>) -> Status {
    let raise = || match Raiser::with_last(number, &work) {
        Some(outcome) => Status::of_raise(outcome),
        None => raise_elsewhere(number, &work),
    };
    catch_unwind(AssertUnwindSafe(raise)).unwrap_or(Status::ErrorPanic)
}

#[cold]
#[inline(never)]
fn raise_elsewhere(number: u32, work: &impl Fn(Raiser<'_>) -> Result<(), Refusal>) -> Status {
    let outcome = table::with(number, |recorder| work(recorder.raiser()));
    outcome.map_or(Status::ErrorHandle, Status::of_raise)
}
