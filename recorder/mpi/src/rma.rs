//! Windows, and one-sided operations on them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::communicator::Communicator;
use crate::communicators::window_ranks;
use crate::events;
use crate::handles::HandleMap;
use crate::requests::{self, Record, RequestKind};
use crate::signatures::{FUNCTIONS, NO};
use crate::state::Mpi;

/// A window; never freed.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) object: u32,
    /// Object of the communicator from which it was made. `None` means that it was made before this
    /// library was loaded.
    communicator: Option<u32>,
    /// Ranks in the run, by rank in the window's group.
    ranks: OnceLock<Vec<i32>>,
    /// Number of calls of MPI_Win_fence, which all processes of the window make.
    fences: AtomicU64,
}

static KNOWN: HandleMap<Window> = HandleMap::new();

/// Returns the window with this handle.
pub(crate) fn window(mpi: &Mpi, handle: usize) -> Option<&'static Window> {
    KNOWN
        .get(handle)
        .or_else(|| (handle != mpi.abi.win_null).then(|| make(mpi, handle, None))?)
}

fn make(mpi: &Mpi, handle: usize, communicator: Option<&Communicator>) -> Option<&'static Window> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // All processes of a communicator make its windows in the same order, so that a window's name is the same in all of
    // them. The name of one that was made before this library was loaded matches nothing of other processes.
    let name = match communicator {
        Some(comm) => {
            let number = comm.windows.fetch_add(1, Ordering::Relaxed);
            format!("{}/window.{number}", comm.name)
        }
        None => format!("window {}", COUNT.fetch_add(1, Ordering::Relaxed)),
    };
    let object = mpi.recorder.add_object("window", &name).ok()?.get();
    let window: &'static Window = Box::leak(Box::new(Window {
        object,
        communicator: communicator.map(|comm| comm.object),
        ranks: OnceLock::new(),
        fences: AtomicU64::new(0),
    }));
    KNOWN.insert(handle, window);
    events::bind(handle, object, true);
    Some(window)
}

impl Window {
    fn peer(&self, mpi: &Mpi, handle: usize, rank: i32) -> i32 {
        let ranks = self
            .ranks
            .get_or_init(|| window_ranks(mpi, handle).unwrap_or_default());
        usize::try_from(rank)
            .ok()
            .and_then(|rank| ranks.get(rank))
            .copied()
            .unwrap_or(-1)
    }
}

/// Makes a window.
#[inline(never)]
pub(crate) fn win_new<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter_all(&call);
    let result = call.forward();
    let made = frame.mpi.filter(|_| is_success(result)).and_then(|mpi| {
        let handle = call.place(call.at().win).handle(&mpi.abi, 0);
        let comm = mpi.learn(call.handle(&mpi.abi, call.at().comm))?;
        Some((mpi, make(mpi, handle, Some(comm))?.object, comm.object))
    });
    match made {
        Some((mpi, window, comm)) => frame.leave_with(&mpi.types.window, (window, comm)),
        None => frame.leave(),
    }
    result
}

/// Frees a window.
#[inline(never)]
pub(crate) fn win_free<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let taken = frame.mpi.and_then(|mpi| {
        let place = call.place(call.at().win);
        let handle = if place.is_null() {
            return None;
        } else {
            place.handle(&mpi.abi, 0)
        };
        events::unbind(handle, true);
        Some((handle, KNOWN.remove(handle)?))
    });
    let result = call.forward();
    if let Some((handle, window)) = taken
        && !is_success(result)
    {
        KNOWN.insert(handle, window);
    }
    frame.leave();
    result
}

/// Waits for other processes of a window.
#[inline(never)]
pub(crate) fn win_sync<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let handle = call.handle(&mpi.abi, call.at().win);
    match KNOWN.get(handle) {
        Some(window) => {
            let peer = if call.at().dest == NO {
                -1
            } else {
                window.peer(mpi, handle, call.int(call.at().dest))
            };
            let is_fence = FUNCTIONS[call.index()].name == c"MPI_Win_fence";
            let number = if is_fence {
                window.fences.fetch_add(1, Ordering::Relaxed) as i64
            } else {
                -1
            };
            let communicator = window.communicator.map_or(-1, i64::from);
            let values = (window.object, communicator, peer, number);
            frame.enter_with(&mpi.types.window_sync, values);
        }
        None => frame.enter(),
    }
    let result = call.forward();
    frame.leave();
    result
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RmaOperation {
    Put,
    Get,
    Atomic,
}

fn operation_of(index: usize) -> RmaOperation {
    let name = FUNCTIONS[index].name.to_bytes();
    let name = name.strip_suffix(b"_c").unwrap_or(name);
    match name {
        b"MPI_Put" | b"MPI_Rput" => RmaOperation::Put,
        b"MPI_Get" | b"MPI_Rget" => RmaOperation::Get,
        _ => RmaOperation::Atomic,
    }
}

/// Enters, and records the operation. Returns whether it has a target.
fn enter<const N: usize, S: Site>(frame: &Frame, mpi: &Mpi, call: &Call<N, S>) -> bool {
    let handle = call.handle(&mpi.abi, call.at().win);
    let rank = call.int(call.at().dest);
    let window = KNOWN.get(handle).filter(|_| rank != mpi.abi.proc_null);
    let Some(window) = window else {
        frame.enter();
        return false;
    };
    let peer = window.peer(mpi, handle, rank);
    let count = if call.at().count == NO {
        1
    } else {
        call.count(call.at().count)
    };
    let mut bytes = mpi.bytes(count, call.handle(&mpi.abi, call.at().datatype));
    if bytes == 0 && call.at().target_count != NO {
        // A read with MPI_NO_OP sends nothing.
        let datatype = call.handle(&mpi.abi, call.at().target_datatype);
        bytes = mpi.bytes(call.count(call.at().target_count), datatype);
    }
    let values = (window.object, peer, bytes);
    let event_type = match operation_of(call.index()) {
        RmaOperation::Put => &mpi.types.put,
        RmaOperation::Get => &mpi.types.get,
        RmaOperation::Atomic => &mpi.types.atomic,
    };
    frame.enter_with(event_type, values);
    true
}

/// Writes to another process's window, or reads from it.
#[inline(never)]
pub(crate) fn rma<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    match frame.mpi {
        Some(mpi) => drop(enter(&frame, mpi, &call)),
        None => frame.enter(),
    }
    let result = call.forward();
    frame.leave();
    result
}

/// Writes to another process's window, or reads from it, with a request.
#[inline(never)]
pub(crate) fn rma_request<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some(mpi) = frame.mpi else {
        return frame.pass(&call);
    };
    let is_told = enter(&frame, mpi, &call);
    let id = requests::next_id();
    if is_told {
        mpi.raise(&mpi.types.rma_request, (id,));
    }
    let result = call.forward();
    if is_told && is_success(result) {
        let request = call.place(call.at().request).handle(&mpi.abi, 0);
        if mpi.is_complete_at_once(request) {
            frame.leave_with(&mpi.types.rma_end, (id,));
            return result;
        }
        let record = Record {
            id,
            kind: RequestKind::Rma,
            ..Record::DEFAULTS
        };
        requests::put(request, record);
    }
    frame.leave();
    result
}
