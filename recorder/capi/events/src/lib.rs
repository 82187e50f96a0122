//! The event interface in C, with variables and categories: every function that `annals_t.h`
//! declares and documents. It shows the process's own runtime, with the names and the order of
//! arguments of MPI's tool interface.
//!
//! A crate apart from `annals-capi`, because `libannals.so` exports these functions and
//! `libannals_instrument.so` and `libannals_mpi.so` do not.

#[doc(hidden)]
pub mod attach;
#[doc(hidden)]
pub mod category;
mod consumer;
mod cvar;
mod info;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod producer;
#[doc(hidden)]
pub mod pvar;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};

use annals_recorder::events::{Error, Result, Runtime};

/// How often the interface is initialised.
static INITIALISED: AtomicI32 = AtomicI32::new(0);

/// Runs a call, and catches panics. Returns 0 or the error's code.
fn call(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(Runtime::process())));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.code(),
        Err(_) => Error::Invalid.code(),
    }
}

/// Runs a call of a tool, for which the interface must be initialised.
fn tool_call(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    if INITIALISED.load(Ordering::Acquire) <= 0 {
        return Error::NotInitialized.code();
    }
    call(work)
}
