//! Where the calling thread's stack is, and which calls on it were left: by an exception, by `longjmp` or by cancellation.
//! The function that was called does not learn of that. Stacks grow downward: a call whose frame is not below that of
//! one in progress proves that this one was left. Where that proves nothing, the callers are walked through.
#![expect(
    unsafe_code,
    reason = "the stack pointer is read, and the callers on the stack"
)]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Once;

thread_local! {
    /// The thread's own stack: from, to. Zeros: not asked for yet.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Returns where the stack is: the address of the last thing on it.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        let here = 0_u8;
        pointer = std::ptr::from_ref(&here).addr();
    }
    pointer
}

/// Returns the bounds of the thread's own stack; zeros if the system does not know them.
fn own_stack() -> (usize, usize) {
    let known = STACK.try_with(Cell::get).unwrap_or_default();
    if known != (0, 0) {
        return known;
    }
    // SAFETY: attributes are plain data, which the call below initialises.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    let (mut from, mut length) = (std::ptr::null_mut(), 0);
    // SAFETY: valid places, and the calling thread.
    let found = unsafe {
        libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) == 0
            && libc::pthread_attr_getstack(&raw const attributes, &raw mut from, &raw mut length)
                == 0
    };
    if !found {
        return (0, 0);
    }
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let own = (from.addr(), from.addr().saturating_add(length));
    let _ = STACK.try_with(|stack| stack.set(own));
    own
}

/// Returns whether the calling thread is in a signal handler that has a stack for itself.
fn is_on_signal_stack() -> bool {
    // SAFETY: plain data.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place; nothing is changed.
    let found = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) };
    found == 0 && stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Returns whether addresses on stacks can be compared: both are on the thread's own stack, and no signal handler runs on
/// another one. Not so in fibers (`makecontext`).
pub fn are_comparable(a: usize, b: usize) -> bool {
    if is_on_signal_stack() {
        return false;
    }
    let (from, to) = own_stack();
    (from..to).contains(&a) && (from..to).contains(&b)
}

/// The callers of a function, by the object that their code is in.
#[derive(Clone, Copy, Debug)]
pub struct Callers {
    /// An address in the innermost caller that is not in the object.
    pub first: Option<usize>,
    /// Whether code of the object is among the callers of that one: it is in a call that the object made.
    pub is_nested: bool,
    /// Whether all callers were found, up to the thread's first function.
    pub is_whole: bool,
}

/// Loads what walks through callers, so that [`callers`] allocates nothing.
pub fn prepare() {
    static IS_PREPARED: Once = Once::new();
    IS_PREPARED.call_once(|| {
        callers(|_| false);
    });
}

/// Walks through the callers. `is_own`: whether an address is in the calling object's code. Takes microseconds. The first
/// call in a process allocates; the loader's lock is taken, as unwinding does.
#[cold]
#[inline(never)]
pub fn callers(is_own: impl Fn(usize) -> bool) -> Callers {
    const FRAMES: usize = 256;
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: this number of places.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    let frames = &frames[..usize::try_from(count).unwrap_or(0)];
    let mut outside = frames.iter().map(|frame| frame.addr());
    let first = outside.find(|address| !is_own(*address));
    Callers {
        first,
        is_nested: outside.any(is_own),
        is_whole: frames.len() < FRAMES
            && frames.last().is_some_and(|last| is_of_start(last.addr())),
    }
}

/// Returns where the object begins in memory that has this address in it; 0 if none has.
pub fn object_of(address: usize) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let at = std::ptr::without_provenance::<c_void>(address);
    // SAFETY: a valid place; the address is not read.
    match unsafe { libc::dladdr(at, found.as_mut_ptr()) } {
        0 => 0,
        // SAFETY: filled in.
        _ => unsafe { found.assume_init() }.dli_fbase.addr(),
    }
}

/// Returns whether an address is in the object that starts programs, or threads.
fn is_of_start(address: usize) -> bool {
    // SAFETY: reads one number.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let object = object_of(address);
    object != 0
        && (object == object_of(entry)
            || object == object_of((libc::pthread_create as *const ()).addr()))
}
