//! Calls that make and free communicators.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use annals_recorder::Recorder;

use crate::abi::is_success;
use crate::begun;
use crate::call::{Call, Frame, Site};
use crate::communicator::Communicator;
use crate::communicators::{KNOWN, Origin, duplicated, make};
use crate::events;
use crate::freed;
use crate::requests::{self, Record, RequestKind};
use crate::signatures::{FUNCTIONS, NO};
use crate::state::Mpi;

/// Returns the name of a function without MPI's prefixes.
fn short_name(index: usize) -> String {
    let name = FUNCTIONS[index].name.to_string_lossy();
    let name = name.trim_start_matches("MPIX_").trim_start_matches("MPI_");
    name.strip_prefix("Comm_").unwrap_or(name).to_lowercase()
}

fn leave_made(
    frame: Frame,
    mpi: &Mpi,
    made: Option<&'static Communicator>,
    parent: Option<&'static Communicator>,
) {
    match made {
        Some(made) => frame.leave_with(
            &mpi.types.communicator,
            (
                made.object,
                parent.unwrap_or(made).object,
                made.size,
                made.place as u32,
            ),
        ),
        None => frame.leave(),
    }
}

/// Makes a communicator from another, collectively.
#[inline(never)]
pub(crate) fn comm_new<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter_all(&call);
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let parent_handle = call.handle(&mpi.abi, call.at().comm);
    let parent = mpi.learn(parent_handle);
    let made = parent.and_then(|parent| {
        // Also if this process is not in the new communicator.
        let number = parent.children.fetch_add(1, Ordering::Relaxed);
        let handle = call.place(call.at().newcomm).handle(&mpi.abi, 0);
        if handle == mpi.abi.comm_null {
            return None;
        }
        let what = short_name(call.index());
        make(
            mpi,
            handle,
            &Origin::Child(parent, Some(parent_handle), &what, number),
        )
    });
    leave_made(frame, mpi, made, parent);
    result
}

/// Makes a communicator of some processes only, or with those of another run.
#[inline(never)]
pub(crate) fn comm_other<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let begun_ns = Recorder::reference_ns();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let handle = call.place(call.at().newcomm).handle(&mpi.abi, 0);
    let made = if handle == mpi.abi.comm_null {
        None
    } else if let Some(known) = mpi.communicator(handle) {
        // MPI_Comm_get_parent returns the same handle each time.
        Some(known)
    } else {
        // Both sides use the same name.
        let what = short_name(call.index());
        let during = [begun_ns, Recorder::reference_ns()];
        let (what, side, times) = match what.as_str() {
            "accept" => ("connect", 1, during),
            "connect" => ("connect", 2, during),
            "spawn" | "spawn_multiple" => ("spawn", 1, during),
            "get_parent" => ("spawn", 2, [begun::INIT_NS.load(Ordering::Relaxed); 2]),
            what => (what, 0, during),
        };
        let mut what = what.to_owned();
        if call.at().name != NO {
            let text = annals_recorder::text_of(call.place(call.at().name).text()).into_owned();
            let _ = write!(what, " {text}");
        } else if call.at().tag != NO {
            let _ = write!(what, " tag {}", call.int(call.at().tag));
        }
        make(mpi, handle, &Origin::Connection(&what, side, times))
    };
    leave_made(frame, mpi, made, None);
    result
}

/// Begins to make a duplicate, whose handle is available when the request is done.
#[inline(never)]
pub(crate) fn comm_idup<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    let Some(mpi) = frame.mpi.filter(|_| is_success(result)) else {
        frame.leave();
        return result;
    };
    let parent = mpi.learn(call.handle(&mpi.abi, call.at().comm));
    if let Some(parent) = parent {
        let number = parent.children.fetch_add(1, Ordering::Relaxed);
        let request = call.place(call.at().request).handle(&mpi.abi, 0);
        let record = Record {
            kind: RequestKind::Duplicate,
            comm: Some(parent),
            bytes: number,
            // Every library writes it now, and may be given a place that is gone when the request is complete: Open MPI's Fortran
            // binding has one on the stack.
            handle: call.place(call.at().newcomm).handle(&mpi.abi, 0),
            ..Record::DEFAULTS
        };
        if mpi.is_complete_at_once(request) {
            duplicated(mpi, &record);
        } else {
            requests::start(request, record);
        }
    }
    frame.leave();
    result
}

/// Removes a communicator that was freed.
#[inline(never)]
pub(crate) fn comm_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    frame.enter();
    let place = call.place(call.at().comm);
    let handle = if place.is_null() {
        0
    } else {
        place.handle(&mpi.abi, 0)
    };
    // Before the call: another thread may immediately get the same handle.
    let known = KNOWN.remove(handle);
    events::unbind(handle, false);
    let result = call.forward();
    match known {
        None => {}
        // That of the world is stored elsewhere, too.
        Some(_) if is_success(result) && handle == mpi.abi.comm_world => {}
        Some(known) if is_success(result) => freed::free(known, frame.is_outermost()),
        Some(known) => {
            KNOWN.insert(handle, known);
            events::bind(handle, known.object, false);
        }
    }
    frame.leave();
    result
}
