//! How MPI begins and ends, and other things that a program reports about itself.
#![expect(
    unsafe_code,
    reason = "the loader calls a constructor, and the C library what is to be done at exit"
)]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use annals_recorder::names;

use crate::library;
use crate::mpi_table::NO;
use crate::state::{self, Mpi};
use crate::wrap::{Call, Frame, Site, is_success};
use crate::{chosen, clocks, events, performance, rma, stack};

/// MPI_Init was called.
static HAS_WORLD: AtomicBool = AtomicBool::new(false);
/// Sessions that were begun and not finalized.
static OPEN_SESSIONS: AtomicU32 = AtomicU32::new(0);
/// MPI was begun, by MPI_Init or by a session.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// MPI_Abort was called: no other function is missing.
static IS_ABORTING: AtomicBool = AtomicBool::new(false);

/// MPI_Init and MPI_Init_thread.
#[inline(never)]
pub(crate) fn init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    // What was loaded since this library was.
    library::adopt_callers();
    let frame = Frame::begin(call.index());
    frame.enter();
    before_begin(frame.mpi);
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result)) {
        begun(mpi);
        mpi.learn_world();
        if let Some(world) = mpi.world() {
            clocks::begin(mpi, world.place, world.size as i32);
        }
        // Some sources and event types appear with MPI_Init.
        events::poll();
        begin_variables(mpi);
        events::note_unused_names();
        chosen::print_notes(mpi.world().is_none_or(|world| world.place == 0));
    }
    frame.leave();
    result
}

/// Records control variables, and performance variables from now on.
/// Only the first time that MPI begins: before a second time the interface is released
/// (`events::before_next_begin`).
fn begin_variables(mpi: &'static Mpi) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(why) = events::write_variables(mpi.recorder, &mpi.abi) {
            eprintln!("annals: control variables are not written down: {why}");
        }
        if let Err(why) = performance::begin(mpi.recorder, &mpi.abi) {
            eprintln!("annals: performance variables are not recorded: {why}");
        }
    });
}

/// Handles that MPI was begun without this library: the program's first calls did not come through
/// it, as those of Fortran's `mpi_f08` do not where the MPI library calls itself internally.
pub(crate) fn found_begun(mpi: &Mpi) {
    begun(mpi);
    mpi.learn_world();
    let what = "MPI was begun by calls that this library does not stand before (loaded late, or Fortran's mpi_f08 in \
                an MPI library that calls itself inside): only some calls are recorded, and not all messages";
    let _ = mpi.recorder.add_property("mpi.begun-unseen", what);
    if mpi.world().is_none_or(|world| world.place == 0) {
        eprintln!("annals: {what}");
    }
}

/// MPI is about to begin, perhaps again.
fn before_begin(mpi: Option<&Mpi>) {
    if let Some(mpi) = mpi
        && HAS_BEGUN.swap(true, Ordering::AcqRel)
        && OPEN_SESSIONS.load(Ordering::Acquire) == 0
        && !mpi.real.is_begun()
    {
        events::before_next_begin(mpi.recorder);
    }
}

fn begun(mpi: &Mpi) {
    HAS_WORLD.store(true, Ordering::Release);
    watch_exit();
    let level = mpi.real.thread_level();
    let is_multiple = level.is_none_or(|level| level >= mpi.abi.thread_multiple);
    mpi.begin(is_multiple);
}

/// MPI_Finalize.
#[inline(never)]
pub(crate) fn finalize<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        clocks::end(mpi);
        forget_world(mpi);
        events::finish();
    }
    let result = call.forward();
    events::end();
    frame.leave();
    result
}

/// Registers a function to be called when the process exits.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function may be called at any time.
    unsafe { libc::atexit(function) };
}

/// Registers a check of the process's exit: a finished recording does not show whether its process
/// finished MPI.
fn watch_exit() {
    static ONCE: Once = Once::new();
    // After the recorder's own function, which therefore runs later.
    ONCE.call_once(|| at_exit(note_missing_finalize));
}

/// Notes which function a process that exits has not called.
extern "C" fn note_missing_finalize() {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        let mpi = state::get().filter(|mpi| !mpi.recorder.is_inherited());
        let Some(mpi) = mpi.filter(|_| !IS_ABORTING.load(Ordering::Acquire)) else {
            return;
        };
        // The library is asked, because some calls do not come through this one.
        let missing = if HAS_WORLD.load(Ordering::Acquire) && mpi.real.is_begun() {
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

fn forget_world(mpi: &Mpi) {
    let group = mpi.world_group.swap(0, Ordering::AcqRel);
    if group != 0 {
        mpi.real.free_group(group);
    }
}

/// MPI_Abort: what was raised is in the live file, whatever becomes of this process.
#[inline(never)]
pub(crate) fn abort<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        let code = call.int(call.at().level);
        IS_ABORTING.store(true, Ordering::Release);
        let _ = mpi
            .recorder
            .add_property(names::property::MPI_ABORT, &code.to_string());
    }
    let result = call.forward();
    frame.leave();
    result
}

/// MPI_Session_init.
#[inline(never)]
pub(crate) fn session_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    before_begin(frame.mpi);
    let result = call.forward();
    if is_success(result) {
        OPEN_SESSIONS.fetch_add(1, Ordering::AcqRel);
        watch_exit();
    }
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result))
        && mpi.world_group.load(Ordering::Acquire) == 0
    {
        // Sessions may be used by several threads, unless they declare otherwise.
        mpi.begin(true);
        let session = call.place(call.at().session).handle(&mpi.abi, 0);
        if let Some(group) = mpi.real.session_group(session) {
            mpi.world_group.store(group, Ordering::Release);
            let (rank, size) = (mpi.real.group_rank(group), mpi.real.group_size(group));
            if let (Some(rank), Some(size)) = (rank, size) {
                mpi.set_rank(rank, size);
            }
            events::poll();
            begin_variables(mpi);
            events::note_unused_names();
            chosen::print_notes(rank.is_none_or(|rank| rank == 0));
        }
    }
    frame.leave();
    result
}

/// MPI_Session_finalize.
#[inline(never)]
pub(crate) fn session_finalize<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi
        && mpi.world().is_none()
    {
        forget_world(mpi);
    }
    if let Some(mpi) = frame.mpi
        && OPEN_SESSIONS.load(Ordering::Acquire) == 1
        && !mpi.real.is_begun()
    {
        events::before_last_end(mpi.recorder);
    }
    let result = call.forward();
    if is_success(result) {
        let fewer = |open: u32| open.checked_sub(1);
        let _ = OPEN_SESSIONS.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }
    frame.leave();
    result
}

/// MPI_Pcontrol: 0 and 1 switch regions off and on, 2 has everything written (MPI 5.0, section 15.2.4); other
/// levels mean what the program likes.
#[inline(never)]
pub(crate) fn pcontrol<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let level = call.int(call.at().level);
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi else {
        frame.leave();
        return result;
    };
    match level {
        0 | 1 => {
            frame.leave();
            mpi.record_regions(level == 1);
        }
        2 => {
            performance::sample();
            mpi.recorder.flush();
            frame.leave();
        }
        level => frame.leave_with(&mpi.types.control, (level,)),
    }
    result
}

/// MPI_Comm_set_name, MPI_Win_set_name.
#[inline(never)]
pub(crate) fn set_name<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let named = frame.mpi.filter(|_| is_success(result)).and_then(|mpi| {
        let object = if call.at().win == NO {
            mpi.learn(call.handle(&mpi.abi, call.at().comm))?.object
        } else {
            rma::window(mpi, call.handle(&mpi.abi, call.at().win))?.object
        };
        Some((mpi, object))
    });
    match named {
        Some((mpi, object)) => {
            let name = call.place(call.at().name).text();
            frame.leave_with(&mpi.types.named, (object, name));
        }
        None => frame.leave(),
    }
    result
}

/// MPI_Type_free.
#[inline(never)]
pub(crate) fn type_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    crate::wrap::plain(call)
}

/// Before the program begins: bindings that are in memory already call this library.
extern "C" fn prepare() {
    // A panic must not cross into the loader.
    let _ = std::panic::catch_unwind(|| {
        library::adopt_callers();
        stack::register(false);
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;
