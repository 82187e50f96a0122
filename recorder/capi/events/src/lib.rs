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
use annals_recorder::stack;

/// How often the interface is initialised.
static INITIALISED: AtomicI32 = AtomicI32::new(0);

/// Runs a call, and catches panics. Returns 0 or the error's code.
#[inline(always)]
fn call(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    Runtime::process().end_left(stack::stack_pointer());
    guarded(work)
}

#[inline(never)]
fn guarded(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(Runtime::process())));
    match outcome {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => error.code(),
        Err(_) => Error::Invalid.code(),
    }
}

/// Runs a call in which functions of the program may run. These may leave it by an exception, by `longjmp` or by the end of
/// their thread: there is nothing here that would have to be cleaned up, and no panic is caught.
#[inline(always)]
fn call_through(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    let runtime = Runtime::process();
    runtime.end_left(stack::stack_pointer());
    match work(runtime) {
        Ok(()) => 0,
        Err(error) => error.code(),
    }
}

/// Returns the error of tools' calls before the interface is initialised.
fn check_initialised() -> Result<()> {
    match INITIALISED.load(Ordering::Acquire) {
        ..=0 => Err(Error::NotInitialized),
        _ => Ok(()),
    }
}

/// Runs a call of a tool, for which the interface must be initialised.
#[inline(always)]
fn tool_call(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    call(|runtime| {
        check_initialised()?;
        work(runtime)
    })
}

/// Runs a call of a tool in which functions of the program may run, as [`call_through`] does.
#[inline(always)]
fn tool_call_through(work: impl FnOnce(&'static Runtime) -> Result<()>) -> i32 {
    call_through(|runtime| {
        check_initialised()?;
        work(runtime)
    })
}

/// Returns whether a function of the program is in another object than this library: then a walk through the callers shows
/// whether it was left.
fn is_elsewhere(function: usize) -> bool {
    stack::prepare();
    stack::object_of(function) != stack::object_of((is_elsewhere as *const ()).addr())
}
