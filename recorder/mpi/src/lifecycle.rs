//! How MPI begins and ends, and other things that a program reports about itself.

use std::sync::Once;
use std::sync::atomic::Ordering;

use annals_recorder::{Recorder, names, say, uncancelled};

use crate::abi::is_success;
use crate::begun::{self, HAS_BEGUN, IS_ABORTING, OPEN_SESSIONS};
use crate::call::{Call, Frame, Site, plain};
use crate::callers;
use crate::clocks;
use crate::events;
use crate::performance;
use crate::rma;
use crate::settings;
use crate::signatures::NO;
use crate::state::Mpi;

/// Records MPI_Init and MPI_Init_thread.
#[inline(never)]
pub(crate) fn init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    // Redirects callers that were loaded after this library.
    uncancelled(callers::adopt);
    let frame = Frame::begin(call.index());
    frame.enter();
    before_begin(frame.mpi);
    begun::INIT_NS.store(Recorder::reference_ns(), Ordering::Relaxed);
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result)) {
        uncancelled(|| has_begun(mpi));
    }
    frame.leave();
    result
}

/// Learns of MPI what it shows when it has begun.
fn has_begun(mpi: &'static Mpi) {
    begun::note(mpi);
    mpi.learn_world();
    if let Some(world) = mpi.world() {
        clocks::begin(mpi, world.place, world.size as i32);
    }
    // Some sources and event types appear with MPI_Init.
    events::poll();
    begin_variables(mpi);
    events::note_unused_names();
    settings::print_notes(mpi.world().is_none_or(|world| world.place == 0));
}

/// Records control variables, and performance variables from now on.
/// Only the first time that MPI begins: before a second time the interface is released
/// (`events::before_next_begin`).
fn begin_variables(mpi: &'static Mpi) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(why) = events::write_variables(mpi.recorder, &mpi.abi) {
            say(format_args!("control variables are not recorded: {why}"));
        }
        if let Err(why) = performance::begin(mpi.recorder, &mpi.abi) {
            say(format_args!(
                "performance variables are not recorded: {why}"
            ));
        }
    });
}

/// Prepares for MPI to begin, perhaps again.
fn before_begin(mpi: Option<&Mpi>) {
    if let Some(mpi) = mpi
        && HAS_BEGUN.swap(true, Ordering::AcqRel)
        && OPEN_SESSIONS.load(Ordering::Acquire) == 0
        && !mpi.pmpi.is_begun()
    {
        uncancelled(|| events::before_next_begin(mpi.recorder));
    }
}

/// Records MPI_Finalize.
#[inline(never)]
pub(crate) fn finalize<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi {
        uncancelled(|| {
            clocks::end(mpi);
            forget_world(mpi);
            events::finish();
        });
    }
    let result = call.forward();
    uncancelled(events::end);
    frame.leave();
    result
}

fn forget_world(mpi: &Mpi) {
    let group = mpi.world_group.swap(0, Ordering::AcqRel);
    if group != 0 {
        mpi.pmpi.free_group(group);
    }
}

/// Records MPI_Abort. Raised events are in the live file, no matter how this process ends.
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

/// Records MPI_Session_init.
#[inline(never)]
pub(crate) fn session_init<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    before_begin(frame.mpi);
    let result = call.forward();
    if is_success(result) {
        OPEN_SESSIONS.fetch_add(1, Ordering::AcqRel);
        begun::watch_exit();
    }
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result))
        && mpi.world_group.load(Ordering::Acquire) == 0
    {
        let session = call.place(call.at().session).handle(&mpi.abi, 0);
        uncancelled(|| session_has_begun(mpi, session));
    }
    frame.leave();
    result
}

/// Learns the process's rank in its first session.
fn session_has_begun(mpi: &'static Mpi, session: usize) {
    // Sessions may be used by several threads, unless they declare otherwise.
    mpi.begin(true);
    begun::note_function(mpi, "MPI_Session_init");
    if let Some(group) = mpi.pmpi.session_group(session) {
        mpi.world_group.store(group, Ordering::Release);
        let (rank, size) = (mpi.pmpi.group_rank(group), mpi.pmpi.group_size(group));
        if let (Some(rank), Some(size)) = (rank, size) {
            mpi.set_rank(rank, size);
        }
        events::poll();
        begin_variables(mpi);
        events::note_unused_names();
        settings::print_notes(rank.is_none_or(|rank| rank == 0));
    }
}

/// Records MPI_Session_finalize.
#[inline(never)]
pub(crate) fn session_finalize<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if let Some(mpi) = frame.mpi
        && mpi.world().is_none()
    {
        uncancelled(|| forget_world(mpi));
    }
    if let Some(mpi) = frame.mpi
        && OPEN_SESSIONS.load(Ordering::Acquire) == 1
        && !mpi.pmpi.is_begun()
    {
        uncancelled(|| events::before_last_end(mpi.recorder));
    }
    let result = call.forward();
    if is_success(result) {
        let fewer = |open: u32| open.checked_sub(1);
        let _ = OPEN_SESSIONS.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
    }
    frame.leave();
    result
}

/// Records MPI_Pcontrol. Levels 0 and 1 switch regions off and on, 2 writes everything (MPI 5.0,
/// section 15.2.4). The program defines the other levels.
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
            uncancelled(|| {
                performance::sample();
                mpi.recorder.flush();
            });
            frame.leave();
        }
        level => frame.leave_with(&mpi.types.control, (level,)),
    }
    result
}

/// Records MPI_Comm_set_name and MPI_Win_set_name.
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

/// Records MPI_Type_free.
#[inline(never)]
pub(crate) fn type_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    plain(call)
}
