//! State that only threads with Python's lock (the GIL) use.
#![expect(
    unsafe_code,
    reason = "Python's lock makes sure that one thread at a time has the state"
)]

use std::cell::RefCell;

use pyo3::Python;

/// State that needs Python's lock.
#[derive(Debug)]
pub(crate) struct UnderLock<T>(RefCell<T>);

// SAFETY: `with` is called with Python's lock, which one thread has at a time. `work` does not receive
// the token, without which it cannot release the lock. The package is not built for Pythons without the lock.
unsafe impl<T: Send> Sync for UnderLock<T> {}

impl<T> UnderLock<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self(RefCell::new(state))
    }

    /// Works with the state. `work` must not run Python code.
    #[inline]
    pub(crate) fn with<R>(&self, _: Python<'_>, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }
}
