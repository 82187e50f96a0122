//! The functions that the compiler calls at the begin and end of every function.
//!
//! A hook may run anywhere: in a signal handler, between the instructions of an allocator, in a
//! library's constructor, after a fork. So it takes no lock and allocates nothing: an address that
//! is met for the first time gets its region's number from a counter and is noted in the live file, and a
//! thread of this library defines it. Only the very first event of a process, which starts the recorder, does more.
#![expect(unsafe_code, reason = "functions that compiled programs call")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_recorder::{Raise, Raiser, Recorder, Refusal, RegionId};

use crate::functions;
use crate::service::{self, LOST, NUMBER};

#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn __cyg_profile_func_enter(function: *mut c_void, _: *mut c_void) {
    raise::<true>(function.addr());
}

#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn __cyg_profile_func_exit(function: *mut c_void, _: *mut c_void) {
    raise::<false>(function.addr());
}

#[derive(Clone, Copy)]
struct Hook<const IS_ENTER: bool>(RegionId);

impl<const IS_ENTER: bool> Raise for Hook<IS_ENTER> {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        if IS_ENTER {
            raiser.enter(self.0)
        } else {
            raiser.leave(self.0)
        }
    }
}

#[inline(always)]
fn raise<const IS_ENTER: bool>(function: usize) {
    let number = NUMBER.load(Ordering::Acquire);
    if let Some(region) = functions::find(function)
        && Raiser::with_last(number, Hook::<IS_ENTER>(region)).is_some()
    {
        return;
    }
    raise_first(function, IS_ENTER);
}

/// Raises the first event of a function, a thread, or the process.
#[cold]
#[inline(never)]
fn raise_first(function: usize, is_enter: bool) {
    if !service::records_functions() {
        return;
    }
    // SAFETY: the place is the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    match service::recorder() {
        Some(recorder) => raise_on(recorder, function, is_enter),
        None => count_lost(is_enter),
    }
    // SAFETY: the place is the calling thread's own.
    unsafe { *libc::__errno_location() = errno };
}

fn raise_on(recorder: &Recorder, function: usize, is_enter: bool) {
    let raiser = recorder.raiser();
    match functions::find_or_add(function, raiser, service::wake) {
        // What is refused is counted.
        Some(region) if is_enter => drop(raiser.enter(region)),
        Some(region) => drop(raiser.leave(region)),
        None => count_lost(is_enter),
    }
}

fn count_lost(is_enter: bool) {
    LOST[usize::from(!is_enter)].fetch_add(1, Ordering::Relaxed);
}

/// Replaces the system's function of this name, to learn which modules are unloaded.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    type Close = extern "C-unwind" fn(*mut c_void) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let mut next = NEXT.load(Ordering::Relaxed);
    if next == 0 {
        // SAFETY: the name is a C string.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) }.addr();
        NEXT.store(next, Ordering::Relaxed);
    }
    if next == 0 {
        return -1;
    }
    // SAFETY: the address of the system's function, which has this type.
    let close: Close = unsafe { std::mem::transmute::<usize, Close>(next) };
    // What was met is named while the module is still there.
    service::define_all();
    let outcome = close(handle);
    service::remove_unloaded_modules();
    outcome
}
