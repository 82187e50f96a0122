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

use crate::service::{self, LOST, NUMBER};
use crate::{forked, functions, system};

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
    let is_kept = |recorder| forked::keep(recorder, function, is_enter);
    if !service::recorder().is_some_and(is_kept) {
        match service::recorder() {
            Some(recorder) => raise_on(recorder, function, is_enter),
            None => count_lost(is_enter),
        }
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

/// Returns the region of the construct of this number at this address; 0 means that the address is not known. Takes no lock and allocates
/// nothing: the thread that names functions defines the region. `None` if no room is left.
#[inline(always)]
pub fn region_of(recorder: &Recorder, construct: u8, address: usize) -> Option<RegionId> {
    let key = functions::key(construct, address);
    match functions::find(key) {
        Some(region) => Some(region),
        None => meet(recorder, key),
    }
}

#[cold]
#[inline(never)]
fn meet(recorder: &Recorder, key: usize) -> Option<RegionId> {
    functions::find_or_add(key, recorder.raiser(), service::wake)
}

fn count_lost(is_enter: bool) {
    LOST[usize::from(!is_enter)].fetch_add(1, Ordering::Relaxed);
}

/// A function that a child begins with, and what it is passed.
struct Begin {
    function: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

/// Runs a child that `clone` has made with separate memory.
///
/// The system's function ends the calling thread then. A child that is recorded has others, and would not end.
extern "C-unwind" fn run(begin: *mut c_void) -> c_int {
    // SAFETY: what `clone` has passed; the child has a copy of the stack that it is on.
    let Begin { function, argument } = unsafe { begin.cast::<Begin>().read() };
    let code = function(argument);
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        forked::start_at_end();
        if let Some(recorder) = service::recorder().filter(|recorder| !recorder.is_inherited()) {
            recorder.finish();
        }
    });
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Replaces the system's function of this name: where forked children are recorded, the recorder's threads rest while a child is made.
///
/// The function is variadic; on the supported processors, arguments that are not there are read as anything, and passed on as such.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn clone(
    function: Option<extern "C-unwind" fn(*mut c_void) -> c_int>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    type Address = *mut c_void;
    type Function = Option<extern "C-unwind" fn(Address) -> c_int>;
    type Clone =
        extern "C-unwind" fn(Function, Address, c_int, Address, Address, Address, Address) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = system::function(c"clone", &NEXT);
    if next == 0 {
        return -1;
    }
    // SAFETY: the address of the system's function, to which these arguments can be passed.
    let next: Clone = unsafe { std::mem::transmute::<usize, Clone>(next) };
    match function {
        Some(function) if flags & libc::CLONE_VM == 0 && forked::are_followed() => {
            let mut begin = Begin { function, argument };
            let argument = (&raw mut begin).cast();
            forked::make(|| next(Some(run), stack, flags, argument, parent, tls, child))
        }
        _ => next(function, stack, flags, argument, parent, tls, child),
    }
}

/// Replaces the system's function of this name, to learn which modules are unloaded.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    type Close = extern "C-unwind" fn(*mut c_void) -> c_int;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = system::function(c"dlclose", &NEXT);
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
