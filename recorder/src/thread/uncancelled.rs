//! Work during which the calling thread is not cancelled. Cancellation (`pthread_cancel`) takes effect in many functions of
//! the system, as forced unwinding; our own code is not made for that, and would end the process. A request that arrives
//! meanwhile takes effect later, in the program's own code.
#![expect(unsafe_code, reason = "a function of the system")]

use std::ffi::c_int;

/// While it lives, the calling thread is not cancelled.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
}

#[cfg(not(miri))]
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

#[cfg(miri)]
unsafe fn pthread_setcancelstate(_: c_int, _: *mut c_int) -> c_int {
    0
}

/// `PTHREAD_CANCEL_DISABLE`, of glibc and of musl.
const DISABLE: c_int = 1;

impl Uncancelled {
    /// Begins it. Neither locks nor allocates.
    pub fn begin() -> Self {
        let mut before = 0;
        // SAFETY: a valid place.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: what was before is a valid state; the place may be null.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// Runs `work`, during which the calling thread is not cancelled.
pub fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    work()
}

/// Prints a message for the user. Takes no lock of the standard error output: in a forked child, a thread could hold it that only the
/// parent has.
pub fn say(what: impl std::fmt::Display) {
    let text = format!("annals: {what}\n");
    // SAFETY: the text's bytes.
    uncancelled(|| unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) });
}
