//! The calls that a thread is in, and which of them were left by an exception, by `longjmp` or by cancellation: a wrapper does not learn
//! that. Between the program's frame above and the function below, wrappers have nothing that must be cleaned up; what is in progress is
//! here. The thread's next call finds what was left, and closes it.
//!
//! Stacks grow downward: a call that was made from inside another one has its frame below the other's. A call whose frame is not below
//! that of one in progress proves that this one was left. Where that proves nothing, because the new frame happens to be below it, or on
//! another stack, the callers are walked through, once.
#![expect(
    unsafe_code,
    reason = "the stack pointer is read, and the callers on the stack"
)]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_recorder::{Depth, RegionId};

use crate::library;
use crate::state;

/// The region of a call that has none.
pub(crate) const NO_REGION: u32 = u32::MAX;

/// Nested calls that are known one by one. Deeper ones are taken to be in progress as long as these are.
const MOST_NESTED: usize = 15;

thread_local! {
    /// By depth - 1: where the stack is in the calls that are made from inside others, and their regions.
    static NESTED: [Cell<(usize, u32)>; MOST_NESTED] = const { [const { Cell::new((0, 0)) }; MOST_NESTED] };
    /// The thread's own stack: from, to. Zeros: not asked for yet.
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Returns where the stack is.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Notes a call that is made from inside others.
pub(crate) fn note_nested(depth: u8, at: usize, region: u32) {
    let _ = NESTED.try_with(|nested| {
        if let Some(place) = nested.get(usize::from(depth) - 1) {
            place.set((at, region));
        }
    });
}

/// Returns what is known of the call at a depth; `None` if that is nothing.
fn noted(depth: u8) -> Option<(usize, u32)> {
    match depth {
        0 => Some(Depth::noted()),
        depth => NESTED
            .try_with(|nested| nested.get(usize::from(depth) - 1).map(Cell::get))
            .ok()
            .flatten(),
    }
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

/// Closes the innermost calls down to a depth.
fn close(depth: u8, to: u8) {
    for depth in (to..depth).rev() {
        if let (Some(mpi), Some((_, region))) = (state::get(), noted(depth))
            && region != NO_REGION
        {
            mpi.recorder.leave(RegionId::new(region));
        }
    }
}

/// What a call is that is made while others seem to be in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nested {
    /// The others were left: the program makes it from outside.
    No,
    /// A callback of the program makes it, while this number of others is in progress.
    OfProgram(u8),
    /// The library makes it itself, while this number of others is in progress.
    OfLibrary(u8),
}

/// Finds what was left, and closes it. `depth`: calls that seem to be in progress; `at`: where the stack is in the new one.
#[cold]
#[inline(never)]
pub(crate) fn find_left(depth: u8, at: usize) -> Nested {
    let (from, to) = own_stack();
    let is_own = |at: usize| (from..to).contains(&at);
    let is_comparable = is_own(at) && is_own(Depth::noted().0);
    let mut live = depth;
    if is_comparable {
        while live != 0 && noted(live - 1).is_some_and(|(frame, _)| frame <= at) {
            live -= 1;
        }
        if live == 0 {
            close(depth, 0);
            return Nested::No;
        }
        close(depth, live);
    }
    match callers() {
        Callers::Library => Nested::OfLibrary(live),
        Callers::Callback => Nested::OfProgram(live),
        // The walk may have ended too early to find the calls around.
        Callers::Program { is_whole: false } if is_comparable => Nested::OfProgram(live),
        Callers::Program { .. } => {
            if !is_comparable {
                report_fibers();
            }
            close(live, 0);
            Nested::No
        }
    }
}

/// Where a call is from.
enum Callers {
    /// The MPI library itself.
    Library,
    /// A callback of the program: another call is around it.
    Callback,
    /// The program, and no other call was found around it. `is_whole`: up to the thread's first function.
    Program { is_whole: bool },
}

fn callers() -> Callers {
    const FRAMES: usize = 256;
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: this number of places.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as i32) };
    let frames = &frames[..usize::try_from(count).unwrap_or(0)];
    let mut outside = frames.iter().map(|frame| frame.addr());
    let caller = outside.find(|address| !library::is_own(*address));
    if caller.is_some_and(library::is_in_library) {
        return Callers::Library;
    }
    if outside.any(library::is_own) {
        return Callers::Callback;
    }
    let is_whole =
        count < FRAMES as i32 && frames.last().is_some_and(|last| is_of_start(last.addr()));
    Callers::Program { is_whole }
}

/// Returns whether an address is in the object that starts programs, or threads.
fn is_of_start(address: usize) -> bool {
    let object_of = |address: usize| {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        let at = std::ptr::without_provenance(address);
        // SAFETY: a valid place; the address is not read.
        match unsafe { libc::dladdr(at, found.as_mut_ptr()) } {
            0 => 0,
            // SAFETY: filled in.
            _ => unsafe { found.assume_init() }.dli_fbase.addr(),
        }
    };
    // SAFETY: reads one number.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) } as usize;
    let object = object_of(address);
    object != 0
        && (object == object_of(entry)
            || object == object_of((libc::pthread_create as *const ()).addr()))
}

/// Reports once that calls were left on other stacks.
fn report_fibers() {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        eprintln!(
            "annals: fibers: a call of MPI was left on another stack than the thread's own; it ends with the next call"
        );
    }
}
