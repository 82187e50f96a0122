//! Files, and what is read from and written to them.

use crate::abi::is_success;
use crate::call::{Call, Frame, Site};
use crate::handles::HandleMap;
use crate::requests::{self, Kind, Record};
use crate::signatures::FUNCTIONS;
use crate::state::Mpi;
use crate::statuses::{OwnStatus, status_at};

/// A file; never freed.
#[derive(Debug)]
struct File {
    object: u32,
}

static KNOWN: HandleMap<File> = HandleMap::new();

/// Opens a file.
#[inline(never)]
pub(crate) fn file_open<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let result = call.forward();
    if let Some(mpi) = frame.mpi.filter(|_| is_success(result)) {
        let name = annals_recorder::text_of(call.place(call.at().name).text()).into_owned();
        if let Ok(object) = mpi.recorder.add_object("file", &name) {
            let object = object.get();
            let handle = call.place(call.at().file).address(0);
            KNOWN.insert(handle, Box::leak(Box::new(File { object })));
        }
    }
    frame.leave();
    result
}

/// Closes a file.
#[inline(never)]
pub(crate) fn file_close<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    if frame.mpi.is_some() {
        let place = call.place(call.at().file);
        if !place.is_null() {
            KNOWN.remove(place.address(0));
        }
    }
    let result = call.forward();
    frame.leave();
    result
}

fn file<const N: usize, S: Site>(
    mpi: Option<&'static Mpi>,
    call: &Call<N, S>,
) -> Option<(&'static Mpi, u32)> {
    // The handle is an address in MPICH's interface, too.
    let file = KNOWN.get(call.word(call.at().file))?;
    Some((mpi?, file.object))
}

/// Reads or writes, and waits.
#[inline(never)]
pub(crate) fn file_access<const N: usize, S: Site>(mut call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter();
    let Some((mpi, object)) = file(frame.mpi, &call) else {
        let result = call.forward();
        frame.leave();
        return result;
    };
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
    frame.leave_with(event_type, (object, bytes));
    result
}

/// Begins to read or write.
#[inline(never)]
pub(crate) fn file_request<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    let known = file(frame.mpi, &call);
    let id = requests::next_id();
    match known {
        Some((mpi, object)) => frame.enter_with(&mpi.types.file_start, (object, id)),
        None => frame.enter(),
    }
    let result = call.forward();
    if let Some((mpi, object)) = known.filter(|_| is_success(result)) {
        let request = call.place(call.at().request).handle(&mpi.abi, 0);
        let record = Record {
            id,
            kind: Kind::File,
            object,
            ..Record::NONE
        };
        if !mpi.is_complete_at_once(request) {
            requests::put(request, record);
        }
    }
    frame.leave();
    result
}
