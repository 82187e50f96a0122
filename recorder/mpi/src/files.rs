//! Files, and the reads and writes of them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::handles::HandleMap;
use crate::requests::{self, Record, RequestKind};
use crate::signatures::FUNCTIONS;
use crate::state::Mpi;
use crate::statuses::{OwnStatus, status_at};

/// A file; never freed.
#[derive(Debug)]
struct File {
    object: u32,
    /// Calls that all of its processes make.
    calls: AtomicU64,
}

impl File {
    /// Counts a call that all of its processes make, and returns the elements of the event about it.
    fn next_call(&self) -> (u32, i64) {
        (
            self.object,
            self.calls.fetch_add(1, Ordering::Relaxed) as i64,
        )
    }
}

static KNOWN: HandleMap<File> = HandleMap::new();

/// Opens a file.
#[inline(never)]
pub(crate) fn file_open<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter_all(&call);
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result)) {
        let name = annals_recorder::text_of(call.place(call.at().name).text()).into_owned();
        if let Ok(object) = mpi.recorder.add_object("file", &name) {
            let object = object.get();
            let handle = call.place(call.at().file).address(0);
            let calls = AtomicU64::new(0);
            KNOWN.insert(handle, Box::leak(Box::new(File { object, calls })));
        }
    }
    frame.leave();
    result
}

/// Closes a file.
#[inline(never)]
pub(crate) fn file_close<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let place = call.place(call.at().file);
    let closed = frame.mpi.filter(|_| !place.is_null()).and_then(|mpi| {
        let file = KNOWN.remove(place.address(0))?;
        Some((mpi, file.next_call()))
    });
    match closed {
        Some((mpi, values)) => frame.enter_with(&mpi.types.file_collective, values),
        None => frame.enter(),
    }
    let result = call.forward();
    frame.leave();
    result
}

fn file<const N: usize, S: Site>(
    mpi: Option<&'static Mpi>,
    call: &Call<N, S>,
) -> Option<(&'static Mpi, &'static File)> {
    // The handle is an address in MPICH's interface, too.
    let file = KNOWN.get(call.word(call.at().file))?;
    Some((mpi?, file))
}

/// Returns whether all processes of the file make the calls of a function that reads or writes.
fn is_of_all(index: usize) -> bool {
    let name = FUNCTIONS[index].name.to_bytes();
    let contains = |part: &[u8]| name.windows(part.len()).any(|window| window == part);
    contains(b"_all") || contains(b"_ordered")
}

/// Works on a file together with all of its processes.
#[inline(never)]
pub(crate) fn file_all<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    match file(frame.mpi, &call) {
        Some((mpi, file)) => frame.enter_with(&mpi.types.file_collective, file.next_call()),
        None => frame.enter(),
    }
    let result = call.forward();
    frame.leave();
    result
}

/// Reads or writes, and waits.
#[inline(never)]
pub(crate) fn file_access<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let Some((mpi, file)) = file(frame.mpi, &call) else {
        frame.enter();
        let result = call.forward();
        frame.leave();
        return result;
    };
    if is_of_all(call.index()) {
        frame.enter_with(&mpi.types.file_collective, file.next_call());
    } else {
        frame.enter();
    }
    let mut own = OwnStatus::new();
    own.stand_in(mpi, &mut call);
    let result = call.forward();
    if !is_success(result) {
        frame.leave();
        return result;
    }
    let bytes = mpi.status_bytes(status_at(call.word(call.at().status)));
    let name = FUNCTIONS[call.index()].name.to_bytes();
    let event_type = if name.starts_with(b"MPI_File_read") {
        &mpi.types.read
    } else {
        &mpi.types.write
    };
    frame.leave_with(event_type, (file.object, bytes));
    result
}

/// Begins to read or write.
#[inline(never)]
pub(crate) fn file_request<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let known = file(frame.mpi, &call);
    let id = requests::next_id();
    match known {
        Some((mpi, file)) => frame.enter_with(&mpi.types.file_start, (file.object, id)),
        None => frame.enter(),
    }
    let result = call.forward();
    if let Some((mpi, file)) = known.filter(|_| is_success(result)) {
        let request = call.place(call.at().request).handle(&mpi.abi, 0);
        let record = Record {
            id,
            kind: RequestKind::File,
            object: file.object,
            ..Record::DEFAULTS
        };
        if !mpi.is_complete_at_once(request) {
            requests::put(request, record);
        }
    }
    frame.leave();
    result
}
