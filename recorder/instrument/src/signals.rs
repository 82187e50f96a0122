//! The system's functions for signals, replaced where samples are taken by a signal (`sampling::timers`): it is hidden from the program.
//!
//! A program that blocks all signals, waits for all, or sets all to their defaults has none of this one. A program that sets a
//! handler for it gets it: samples end first. Other signals, and all where no samples are taken by a signal, are passed on.
#![expect(unsafe_code, reason = "functions that programs call are replaced")]

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use libc::{sighandler_t, siginfo_t, sigset_t, timespec};

use crate::system::function;

/// The signal that is hidden. 0: none.
static HIDDEN: AtomicI32 = AtomicI32::new(0);

/// The process in which it is. Its children have its memory, or a copy.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The signal for which the program has set a handler while it was hidden. 0: none.
static TAKEN: AtomicI32 = AtomicI32::new(0);

/// Is called before the program sets a handler for the hidden signal.
static WHEN_TAKEN: OnceLock<fn()> = OnceLock::new();

/// What the program believes to be set for the signal: the default, or that it is ignored.
static BELIEVED: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Declares functions that replace the system's of these names: with `own`, or passed on as they are where that returns `None`.
macro_rules! replaced {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $failed:expr, $own:expr;)*) => {
        /// Finds the system's functions, before a signal handler needs one.
        pub(crate) fn prepare() {
            $(next::$name();)*
        }

        /// The system's functions.
        mod next {
            use super::*;
            $(
                pub(super) fn $name() -> Option<extern "C-unwind" fn($($type),*) -> $result> {
                    static NEXT: AtomicUsize = AtomicUsize::new(0);
                    const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no zero byte"),
                    };
                    let next = function(NAME, &NEXT);
                    // SAFETY: 0, or the address of the system's function, which has this type.
                    unsafe { std::mem::transmute::<usize, Option<extern "C-unwind" fn($($type),*) -> $result>>(next) }
                }
            )*
        }

        $(
            /// Replaces the system's function of this name.
            ///
            /// # Safety
            /// - The requirements of the system's function hold.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                let own: fn($($type),*) -> Option<$result> = $own;
                match own($($argument),*) {
                    Some(result) => result,
                    None => next::$name().map_or($failed, |next| next($($argument),*)),
                }
            }
        )*
    };
}

/// A handler of a signal.
pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

const FAILED_HANDLER: sighandler_t = libc::SIG_ERR;

replaced! {
    sigaction(signal: c_int, action: *const libc::sigaction, before: *mut libc::sigaction) -> c_int, -1, set_action;
    signal(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    bsd_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    ssignal(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    __sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    sigset(signal: c_int, handler: sighandler_t) -> sighandler_t, FAILED_HANDLER, set_handler;
    sigignore(signal: c_int) -> c_int, -1, |signal| set_handler(signal, libc::SIG_IGN).map(|_| 0);
    sighold(signal: c_int) -> c_int, -1, |signal| is_hidden(signal).then_some(0);
    sigrelse(signal: c_int) -> c_int, -1, |signal| is_hidden(signal).then_some(0);
    siginterrupt(signal: c_int, flag: c_int) -> c_int, -1, |signal, _| is_hidden(signal).then_some(0);
    sigprocmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int, -1, |how, set, before| {
        without(set, |set| next::sigprocmask().map_or(-1, |next| next(how, set, before)))
    };
    pthread_sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int, libc::ENOSYS, |how, set, before| {
        without(set, |set| next::pthread_sigmask().map_or(libc::ENOSYS, |next| next(how, set, before)))
    };
    sigwait(set: *const sigset_t, signal: *mut c_int) -> c_int, libc::ENOSYS, |set, signal| {
        without(set, |set| next::sigwait().map_or(libc::ENOSYS, |next| next(set, signal)))
    };
    sigwaitinfo(set: *const sigset_t, info: *mut siginfo_t) -> c_int, -1, |set, info| {
        without(set, |set| next::sigwaitinfo().map_or(-1, |next| next(set, info)))
    };
    sigtimedwait(set: *const sigset_t, info: *mut siginfo_t, limit: *const timespec) -> c_int, -1, |set, info, limit| {
        without(set, |set| next::sigtimedwait().map_or(-1, |next| next(set, info, limit)))
    };
    signalfd(descriptor: c_int, set: *const sigset_t, flags: c_int) -> c_int, -1, |descriptor, set, flags| {
        without(set, |set| next::signalfd().map_or(-1, |next| next(descriptor, set, flags)))
    };
}

/// Returns the hidden signal, in the process in which it is.
pub(crate) fn hidden() -> Option<c_int> {
    let signal = HIDDEN.load(Ordering::Acquire);
    // SAFETY: no requirements.
    let is_own = || unsafe { libc::getpid() } == PROCESS.load(Ordering::Relaxed);
    (signal != 0 && is_own()).then_some(signal)
}

/// Returns the signal that was hidden until the program took it.
pub(crate) fn taken() -> Option<c_int> {
    Some(TAKEN.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}

fn is_hidden(signal: c_int) -> bool {
    hidden() == Some(signal)
}

fn set_action(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> Option<c_int> {
    if !is_hidden(signal) {
        return None;
    }
    // SAFETY: null, or what the program passes to the system.
    let handler = unsafe { action.as_ref() }.map(|action| action.sa_sigaction);
    let believed = match handler {
        None => BELIEVED.load(Ordering::Relaxed),
        Some(handler) => set_handler(signal, handler)?,
    };
    if !before.is_null() {
        let mut found = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: zeros are a valid value.
        unsafe { found.assume_init_mut() }.sa_sigaction = believed;
        // SAFETY: the program's place for it.
        unsafe { before.write(found.assume_init()) };
    }
    Some(0)
}

/// Returns what the program believes to have been set for the hidden signal. `None` for other signals, and when the program gets it.
fn set_handler(signal: c_int, handler: sighandler_t) -> Option<sighandler_t> {
    if !is_hidden(signal) {
        return None;
    }
    // `sigset` has one more: to block the signal.
    const SIG_HOLD: sighandler_t = 2;
    match handler {
        libc::SIG_DFL | libc::SIG_IGN => Some(BELIEVED.swap(handler, Ordering::Relaxed)),
        SIG_HOLD | libc::SIG_ERR => Some(BELIEVED.load(Ordering::Relaxed)),
        _ => {
            TAKEN.store(signal, Ordering::SeqCst);
            HIDDEN.store(0, Ordering::Release);
            if let Some(call) = WHEN_TAKEN.get() {
                call();
            }
            None
        }
    }
}

/// Calls this with the set without the hidden signal. `None` if it is not in the set.
fn without<T>(set: *const sigset_t, call: impl FnOnce(*const sigset_t) -> T) -> Option<T> {
    // SAFETY: null, or what the program passes to the system.
    let mut set = *unsafe { set.as_ref() }?;
    let signal = hidden()?;
    // SAFETY: a set, and a signal that there is.
    (unsafe { libc::sigismember(&raw const set, signal) } == 1).then(|| {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut set, signal) };
        call(&raw const set)
    })
}

/// Hides a signal for which the program has set nothing: sets its handler, which runs with all signals blocked, and unblocks it in this
/// thread, for all that it creates. `when_taken` is called before the program sets a handler for it, maybe in a signal handler.
///
/// # Errors
/// If no signal is free, or the system refuses it.
pub(crate) fn hide(handler: Handler, when_taken: fn()) -> io::Result<()> {
    let refused = || io::Error::last_os_error();
    let set = next::sigaction().ok_or_else(refused)?;
    let mask = next::pthread_sigmask().ok_or_else(refused)?;
    // The program's own are mostly the first ones; the last ones are used by debuggers and virtual machines.
    let mut signals = (libc::SIGRTMIN() + 8..libc::SIGRTMAX() - 4).rev();
    let signal = signals.find(|signal| {
        let mut found = MaybeUninit::<libc::sigaction>::zeroed();
        let code = set(*signal, null(), found.as_mut_ptr());
        // SAFETY: zeros, or what the system has written.
        code == 0 && unsafe { found.assume_init() }.sa_sigaction == libc::SIG_DFL
    });
    let signal = signal.ok_or_else(|| io::Error::other("no real-time signal is free"))?;
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid value.
    let own = unsafe { action.assume_init_mut() };
    own.sa_sigaction = handler as *const () as sighandler_t;
    own.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    let mut only = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: sets that are valid to write to, and a signal that there is.
    unsafe {
        libc::sigfillset(&raw mut own.sa_mask);
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
    }
    if set(signal, own, null_mut()) != 0 {
        return Err(refused());
    }
    mask(libc::SIG_UNBLOCK, only.as_ptr(), null_mut());
    let _ = WHEN_TAKEN.set(when_taken);
    // SAFETY: no requirements.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    HIDDEN.store(signal, Ordering::Release);
    Ok(())
}
