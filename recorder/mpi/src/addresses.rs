//! The addresses of this library's functions, for modules below them.
//!
//! The functions themselves are in `entry_points`, which provides their addresses when the library
//! is loaded.
#![expect(unsafe_code, reason = "addresses are shared by threads")]

use std::sync::OnceLock;

use crate::signatures::COUNT;

/// Addresses of functions.
#[derive(Debug)]
pub(crate) struct Addresses(pub(crate) [*const (); COUNT]);

// SAFETY: addresses of functions, which never change.
unsafe impl Sync for Addresses {}

impl std::ops::Index<usize> for Addresses {
    type Output = *const ();

    fn index(&self, index: usize) -> &*const () {
        &self.0[index]
    }
}

/// The intercepting functions, by number.
static INTERCEPTING: OnceLock<&'static Addresses> = OnceLock::new();
/// This library's functions in a stack of tools, by number.
static STACKED: OnceLock<&'static Addresses> = OnceLock::new();

/// Provides the addresses. Later calls change nothing.
pub(crate) fn provide(intercepting: &'static Addresses, stacked: &'static Addresses) {
    let _ = INTERCEPTING.set(intercepting);
    let _ = STACKED.set(stacked);
}

/// Returns the address of the function that intercepts the one with this number, once it is
/// provided.
pub(crate) fn intercepting(index: usize) -> Option<usize> {
    Some(INTERCEPTING.get()?[index].addr())
}

/// Returns the address of the function with this number in a stack of tools, once it is provided.
pub(crate) fn stacked(index: usize) -> Option<usize> {
    Some(STACKED.get()?[index].addr())
}
