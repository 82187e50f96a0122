//! The atomics of this crate's own protocols, from the standard library or, where they are
//! modelled, from loom; and locks that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Locks a mutex, also when a holder panicked. The data is sound all the same: all of it is
/// counters and tables that are whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
