//! Writes the run as an OTF2 archive, and reads it with OTF2's reader in global order.
#![expect(unsafe_code, reason = "OTF2 is a C library")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

use annals_test_support::synthetic::{self, Events, Happening, Mix, Mpi};

unsafe extern "C" {
    fn compare_run_open(directory: *const c_char) -> *mut c_void;
    fn compare_run_close(
        archive: *mut c_void,
        locations: u32,
        regions: u32,
        events: u64,
        ticks_per_second: u64,
        last_tick: u64,
    ) -> c_int;
    fn compare_run_read(
        anchor: *const c_char,
        locations: u32,
        sum: *mut u64,
        times: *mut u64,
    ) -> i64;
    fn compare_run_read_local(anchor: *const c_char, locations: u32, sum: *mut u64) -> i64;

    fn OTF2_Archive_GetEvtWriter(archive: *mut c_void, location: u64) -> *mut c_void;
    fn OTF2_Archive_CloseEvtWriter(archive: *mut c_void, writer: *mut c_void) -> c_int;
    fn OTF2_EvtWriter_Enter(w: *mut c_void, list: *mut c_void, time: u64, region: u32) -> c_int;
    fn OTF2_EvtWriter_Leave(w: *mut c_void, list: *mut c_void, time: u64, region: u32) -> c_int;
    fn OTF2_EvtWriter_MpiSend(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiRecv(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        sender: u32,
        communicator: u32,
        tag: u32,
        length: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_ParameterUnsignedInt(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        parameter: u32,
        value: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiIsend(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
        request: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiIrecv(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        sender: u32,
        communicator: u32,
        tag: u32,
        length: u64,
        request: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiIsendComplete(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        request: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiIrecvRequest(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        request: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiCollectiveBegin(w: *mut c_void, list: *mut c_void, time: u64) -> c_int;
    fn OTF2_EvtWriter_MpiCollectiveEnd(
        w: *mut c_void,
        list: *mut c_void,
        time: u64,
        operation: u8,
        communicator: u32,
        root: u32,
        sent: u64,
        received: u64,
    ) -> c_int;
}

/// Writes an event of a program with requests.
///
/// # Safety
/// The writer is open.
unsafe fn write_mpi(writer: *mut c_void, tick: u64, kind: Mpi, values: [u64; 5]) -> c_int {
    let (list, [a, b, c, d, e]) = (null_mut(), values);
    // SAFETY: the caller says so, and no attribute list is given.
    unsafe {
        match kind {
            Mpi::ReceiveStart => OTF2_EvtWriter_MpiIrecvRequest(writer, list, tick, a),
            Mpi::Isend => {
                let (comm, peer, tag) = (a as u32, b as u32, c as u32);
                OTF2_EvtWriter_MpiIsend(writer, list, tick, peer, comm, tag, d, e)
            }
            Mpi::IsendComplete => OTF2_EvtWriter_MpiIsendComplete(writer, list, tick, a),
            Mpi::Irecv => {
                let (comm, peer, tag) = (a as u32, b as u32, c as u32);
                OTF2_EvtWriter_MpiIrecv(writer, list, tick, peer, comm, tag, d, e)
            }
            Mpi::CollectiveBegin => OTF2_EvtWriter_MpiCollectiveBegin(writer, list, tick),
            Mpi::CollectiveEnd => {
                let (operation, comm, root) = (a as u8, b as u32, c as u32);
                OTF2_EvtWriter_MpiCollectiveEnd(writer, list, tick, operation, comm, root, d, e)
            }
        }
    }
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())
}

/// Writes the archive of all ranks.
///
/// # Errors
/// If OTF2 refuses.
pub(crate) fn write(directory: &Path, ranks: u32, events: u64, mix: Mix) -> Result<(), String> {
    let path = c_path(directory)?;
    // SAFETY: the path is a C string.
    let archive = unsafe { compare_run_open(path.as_ptr()) };
    if archive.is_null() {
        return Err("OTF2 opens no archive".to_owned());
    }
    let mut last_tick = 0;
    for rank in 0..ranks {
        let (mut tick, mut program) = Events::of(mix, rank, ranks);
        // SAFETY: the archive is open.
        let writer = unsafe { OTF2_Archive_GetEvtWriter(archive, rank.into()) };
        let list = null_mut();
        let mut code = c_int::from(writer.is_null());
        for _ in 0..events {
            let (step, what) = program.next_event();
            tick += step;
            code |= match what {
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Region(true, region) => unsafe {
                    OTF2_EvtWriter_Enter(writer, list, tick, region as u32)
                },
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Region(false, region) => unsafe {
                    OTF2_EvtWriter_Leave(writer, list, tick, region as u32)
                },
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Message(true, [comm, peer, tag, bytes]) => unsafe {
                    let (peer, comm, tag) = (peer as u32, comm as u32, tag as u32);
                    OTF2_EvtWriter_MpiSend(writer, list, tick, peer, comm, tag, bytes)
                },
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Message(false, [comm, peer, tag, bytes]) => unsafe {
                    let (peer, comm, tag) = (peer as u32, comm as u32, tag as u32);
                    OTF2_EvtWriter_MpiRecv(writer, list, tick, peer, comm, tag, bytes)
                },
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Point(which, value) => unsafe {
                    let which = which as u32;
                    OTF2_EvtWriter_ParameterUnsignedInt(writer, list, tick, which, value)
                },
                // SAFETY: the writer is open, and no attribute list is passed.
                Happening::Mpi(kind, values) => unsafe { write_mpi(writer, tick, kind, values) },
            };
        }
        // SAFETY: the writer is of this archive, and not used any more.
        code |= unsafe { OTF2_Archive_CloseEvtWriter(archive, writer) };
        if code != 0 {
            return Err(format!("OTF2 cannot write the events of rank {rank}"));
        }
        last_tick = last_tick.max(tick);
    }
    let (regions, rate) = (synthetic::REGIONS as u32, synthetic::TICKS_PER_SECOND);
    // SAFETY: the archive is open, and not used any more.
    let code = unsafe { compare_run_close(archive, ranks, regions, events, rate, last_tick) };
    if code == 0 {
        Ok(())
    } else {
        Err("OTF2 cannot close the archive".to_owned())
    }
}

/// Reads it in global order, with a callback for each event that adds up its fields and its time. Returns the number of
/// events and the sum of the fields.
///
/// # Errors
/// If OTF2 cannot.
#[allow(dead_code, reason = "only one of the benches reads so")]
pub(crate) fn read(directory: &Path, ranks: u32) -> Result<(u64, u64), String> {
    let anchor = c_path(&directory.join("trace.otf2"))?;
    let (mut sum, mut times) = (0, 0);
    // SAFETY: the path is a C string, the sums are ours.
    let count = unsafe { compare_run_read(anchor.as_ptr(), ranks, &mut sum, &mut times) };
    let count = u64::try_from(count);
    let count = count.map_err(|_| "OTF2 cannot read its archive in order".to_owned())?;
    std::hint::black_box(times);
    Ok((count, sum))
}

/// Reads it location by location, with a callback for each event; returns their number, and the sum of their times and
/// fields.
///
/// # Errors
/// If OTF2 cannot.
#[allow(dead_code, reason = "only one of the benches reads so")]
pub(crate) fn read_local(directory: &Path, ranks: u32) -> Result<(u64, u64), String> {
    let anchor = c_path(&directory.join("trace.otf2"))?;
    let mut sum = 0;
    // SAFETY: the path is a C string, the sum is ours.
    let count = unsafe { compare_run_read_local(anchor.as_ptr(), ranks, &mut sum) };
    let count = u64::try_from(count).map_err(|_| "OTF2 cannot read its archive".to_owned())?;
    Ok((count, sum))
}
