//! Records whether MPI has begun and ended in this process.
#![expect(unsafe_code, reason = "the C library calls what is to be done at exit")]

use annals_recorder::say;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use annals_recorder::names;

use crate::callers;
use crate::channels;
use crate::signatures::FUNCTIONS;
use crate::state::{self, Mpi};
use crate::unseen;

/// Whether MPI_Init was called.
pub(crate) static HAS_WORLD: AtomicBool = AtomicBool::new(false);
/// Number of sessions that were begun and not finalized.
pub(crate) static OPEN_SESSIONS: AtomicU32 = AtomicU32::new(0);
/// Whether MPI was begun, by MPI_Init or by a session.
pub(crate) static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// Whether MPI_Abort was called. Then no other call is missing.
pub(crate) static IS_ABORTING: AtomicBool = AtomicBool::new(false);

/// When MPI_Init was called, by the reference clock. A process that spawns this one waits for it.
pub(crate) static INIT_NS: AtomicI64 = AtomicI64::new(0);

/// Handles that MPI was begun without this library: the program's first calls did not come through
/// it.
pub(crate) fn found(mpi: &Mpi) {
    note(mpi);
    channels::forget_all();
    mpi.learn_world();
    if let Ok(init) = FUNCTIONS.binary_search_by(|function| function.name.cmp(c"MPI_Init")) {
        unseen::note(init, unseen::PAST);
    }
    unseen::store(mpi.recorder);
    if mpi.world().is_none_or(|world| world.place == 0) {
        say(
            "MPI was begun by calls that this library does not intercept (it was loaded late, or a part of the program calls MPI \
             past it): only some calls and messages are recorded",
        );
    }
}

/// Stores that MPI has begun with a world.
pub(crate) fn note(mpi: &Mpi) {
    HAS_WORLD.store(true, Ordering::Release);
    note_function(mpi, "MPI_Init");
    watch_exit();
    let level = mpi.pmpi.thread_level();
    let is_multiple = level.is_none_or(|level| level >= mpi.abi.thread_multiple);
    mpi.begin(is_multiple);
}

/// Stores which function has begun MPI: the process is a rank, also if the program of another rank has started it.
pub(crate) fn note_function(mpi: &Mpi, name: &str) {
    let _ = mpi.recorder.add_property(names::property::MPI_BEGUN, name);
}

/// Registers a function to be called when the process exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function may be called at any time.
    unsafe { libc::atexit(function) };
}

/// Registers a check of the process's exit: a finished recording does not show whether its process
/// finished MPI.
pub(crate) fn watch_exit() {
    static ONCE: Once = Once::new();
    // After the recorder's own function, which therefore runs later.
    ONCE.call_once(|| at_exit(note_end));
}

/// Notes which function a process that exits has not called, and what libraries call that it has loaded.
extern "C" fn note_end() {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        let mpi = state::get().filter(|mpi| !mpi.recorder.is_inherited());
        let Some(mpi) = mpi.filter(|_| !IS_ABORTING.load(Ordering::Acquire)) else {
            return;
        };
        callers::adopt_loaded(true);
        unseen::store(mpi.recorder);
        // The library is asked, because some calls do not come through this one.
        let missing = if HAS_WORLD.load(Ordering::Acquire) && mpi.pmpi.is_begun() {
            "MPI_Finalize"
        } else if OPEN_SESSIONS.load(Ordering::Acquire) != 0 {
            "MPI_Session_finalize"
        } else {
            return;
        };
        let _ = mpi
            .recorder
            .add_property(names::property::MPI_MISSING_FINALIZE, missing);
    });
}
