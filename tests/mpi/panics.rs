//! Functions of a program in Rust that the programs in C++ call: one that panics, and one that catches a panic.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

/// Panics with 42.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rust_panics() {
    std::panic::set_hook(Box::new(|_| {}));
    panic_any(42);
}

/// Calls a function; returns whether it panicked with 42.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn rust_catches(call: extern "C-unwind" fn()) -> bool {
    let outcome = catch_unwind(AssertUnwindSafe(|| call()));
    outcome.is_err_and(|panic| panic.downcast_ref() == Some(&42))
}
