//! The system's functions that this library replaces.
#![expect(unsafe_code, reason = "the loader is asked for an address")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the address of the system's function of this name, from `known` if it is known; 0 if there is none.
pub(crate) fn function(name: &CStr, known: &AtomicUsize) -> usize {
    let mut next = known.load(Ordering::Relaxed);
    if next == 0 {
        // SAFETY: the name is a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
        known.store(next, Ordering::Relaxed);
    }
    next
}
