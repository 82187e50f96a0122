//! Waiting for work without Python's lock (the GIL), until Ctrl-C.
#![expect(
    unsafe_code,
    reason = "whether a thread has Python's lock is asked of Python by name"
)]

use std::sync::OnceLock;
use std::time::Duration;

use annals_merger::StopFlag;
use pyo3::prelude::*;

/// Longest time between two looks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Whether the calling thread has Python's lock. False if Python has no such function.
pub(crate) fn has_lock() -> bool {
    type Check = unsafe extern "C" fn() -> libc::c_int;
    static CHECK: OnceLock<Option<Check>> = OnceLock::new();
    // The function is not in the stable interface, but in every Python that has one.
    let check = CHECK.get_or_init(|| {
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyGILState_Check".as_ptr()) };
        // SAFETY: Python's function of this name has this type, and NULL is `None`.
        unsafe { std::mem::transmute::<*mut libc::c_void, Option<Check>>(found) }
    });
    // SAFETY: the function may be called from any thread.
    check.is_some_and(|check| unsafe { check() } == 1)
}

/// Whether the calling thread is the one that Python's handlers of signals run in.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: both functions have no conditions.
    unsafe { libc::gettid() == libc::getpid() }
}

/// Runs work in another thread, without Python's lock. Ctrl-C ends it: the work's reads end before their next chunk, and are
/// not waited for.
///
/// # Errors
/// `KeyboardInterrupt`, or what another handler of a signal raises; those of `work`.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&StopFlag) -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let stop = StopFlag::default();
    let (sender, mut receiver) = std::sync::mpsc::sync_channel(1);
    let of_work = stop.clone();
    let run = move || {
        let run = || work(&of_work);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // Nothing receives it after Ctrl-C.
        let _ = sender.send(outcome);
    };
    let thread = std::thread::Builder::new().name("annals work".to_owned());
    thread.spawn(run)?;
    loop {
        let received;
        (receiver, received) = py.detach(move || {
            let received = receiver.recv_timeout(LOOK);
            (receiver, received)
        });
        match received {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| stop.stop())?;
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                unreachable!("the thread sends before it ends")
            }
        }
    }
}
