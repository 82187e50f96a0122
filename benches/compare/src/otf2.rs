//! OTF2 as a contestant. Its own functions write the events, called straight from here; opening,
//! closing and reading archives is done by the shim `c/otf2.c`.
//!
//! *Warm*: chunks come out of a pool that was touched before, through OTF2's memory callbacks; every
//! measurement has its own archive, and what it writes fits the pool, so that no flush falls into
//! the measured time. *Fresh*: every chunk is newly mapped memory, as a program's first events meet.
#![expect(unsafe_code, reason = "OTF2 is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use annals_recorder::tsc;

use crate::contestant::{Check, Contestant, Lane, MessageLane};

#[repr(C)]
struct RawArchive([u8; 0]);

unsafe extern "C" {
    fn compare_otf2_open(directory: *const c_char, lanes: u32, fresh: c_int) -> *mut RawArchive;
    fn compare_otf2_writer(archive: *mut RawArchive, lane: u32) -> *mut c_void;
    fn compare_otf2_attributes(archive: *mut RawArchive, lane: u32) -> *mut c_void;
    fn compare_otf2_close(archive: *mut RawArchive) -> i64;
    fn compare_otf2_read(anchor: *const c_char, lanes: u32) -> i64;
    fn compare_otf2_error() -> *const c_char;

    fn OTF2_EvtWriter_Enter(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        region: u32,
    ) -> c_int;
    fn OTF2_EvtWriter_Leave(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        region: u32,
    ) -> c_int;
    fn OTF2_EvtWriter_RmaReleaseLock(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        win: u32,
        remote: u32,
        lock: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiSend(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiRecv(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        sender: u32,
        communicator: u32,
        tag: u32,
        length: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiCollectiveBegin(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_MpiCollectiveEnd(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        operation: u8,
        communicator: u32,
        root: u32,
        sent: u64,
        received: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_ParameterUnsignedInt(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        parameter: u32,
        value: u64,
    ) -> c_int;
    fn OTF2_EvtWriter_ParameterString(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        parameter: u32,
        string: u32,
    ) -> c_int;
    fn OTF2_EvtWriter_Metric(
        writer: *mut c_void,
        list: *mut c_void,
        time: u64,
        metric: u32,
        count: u8,
        types: *const u8,
        values: *const u64,
    ) -> c_int;
    fn OTF2_AttributeList_AddUint64(list: *mut c_void, attribute: u32, value: u64) -> c_int;
    fn OTF2_AttributeList_AddUint32(list: *mut c_void, attribute: u32, value: u32) -> c_int;
}

const TYPE_INT64: u8 = 8;
const TYPE_DOUBLE: u8 = 10;
const STRING_PARAMETER: u32 = 4;
const NOTE_STRING: u32 = 65;

/// Whether chunk memory was touched before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// It is from a pool of touched memory.
    Warm,
    /// It is newly mapped.
    Fresh,
}

fn last_error() -> String {
    // SAFETY: the shim returns a string that is always terminated and lives as long as the process.
    let text = unsafe { CStr::from_ptr(compare_otf2_error()) };
    text.to_string_lossy().into_owned()
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())
}

/// An archive that is open for writing.
#[derive(Debug)]
pub(crate) struct Archive {
    raw: *mut RawArchive,
    directory: PathBuf,
    lanes: u32,
}

// SAFETY: the archive is opened and closed by one thread; each other thread only requests the
// writer of its lane, which changes nothing in the archive.
unsafe impl Sync for Archive {}

impl Archive {
    /// Opens an archive; `directory` is made by OTF2 and must not be there.
    ///
    /// # Errors
    /// OTF2's own.
    pub(crate) fn open(directory: &Path, lanes: usize, memory: Memory) -> Result<Self, String> {
        let path = c_path(directory)?;
        let fresh = c_int::from(memory == Memory::Fresh);
        let lanes = lanes as u32;
        // SAFETY: a terminated string that lives through the call.
        let raw = unsafe { compare_otf2_open(path.as_ptr(), lanes, fresh) };
        if raw.is_null() {
            return Err(last_error());
        }
        let directory = directory.to_owned();
        Ok(Self {
            raw,
            directory,
            lanes,
        })
    }

    /// Returns the events of one thread.
    pub(crate) fn lane(&self, number: usize) -> Otf2Lane {
        let number = number as u32;
        assert!(number < self.lanes, "the archive was opened for its lanes");
        Otf2Lane {
            // SAFETY: the archive is open, and has that many lanes.
            writer: unsafe { compare_otf2_writer(self.raw, number) },
            // SAFETY: the archive is open, and has that many lanes.
            attributes: unsafe { compare_otf2_attributes(self.raw, number) },
        }
    }

    /// Flushes and closes; returns the number of events that OTF2 counted.
    ///
    /// # Errors
    /// OTF2's own.
    pub(crate) fn close(self) -> Result<Closed, String> {
        // SAFETY: the archive is open, and `self` is consumed by this call.
        let written = unsafe { compare_otf2_close(self.raw) };
        let written = u64::try_from(written).map_err(|_| last_error())?;
        Ok(Closed {
            written,
            directory: self.directory,
            lanes: self.lanes,
        })
    }
}

/// An archive on disk.
#[derive(Debug)]
pub(crate) struct Closed {
    /// Events by the writers' own count.
    pub(crate) written: u64,
    /// Where it is.
    pub(crate) directory: PathBuf,
    lanes: u32,
}

impl Closed {
    /// Number of events that OTF2's reader finds.
    ///
    /// # Errors
    /// OTF2's own.
    pub(crate) fn read(&self) -> Result<u64, String> {
        let anchor = c_path(&self.directory.join("trace.otf2"))?;
        // SAFETY: a terminated string that lives through the call.
        let read = unsafe { compare_otf2_read(anchor.as_ptr(), self.lanes) };
        u64::try_from(read).map_err(|_| last_error())
    }

    /// Returns the archive's files.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(crate) fn files(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut directories = vec![self.directory.clone()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let list = if entry.file_type()?.is_dir() {
                    &mut directories
                } else {
                    &mut files
                };
                list.push(entry.path());
            }
        }
        Ok(files)
    }
}

/// OTF2 with one kind of chunk memory.
#[derive(Debug)]
pub(crate) struct Otf2 {
    directory: PathBuf,
    memory: Memory,
    archive: Option<Archive>,
    check: Check,
}

impl Otf2 {
    /// OTF2, with its archives below `directory`, which must be there.
    pub(crate) fn new(directory: &Path, memory: Memory) -> Self {
        let how = "OTF2's reader, each archive";
        let check = Check {
            read: Some(0),
            how: how.to_owned(),
            ..Check::default()
        };
        Self {
            directory: directory.join("archive"),
            memory,
            archive: None,
            check,
        }
    }
}

impl Contestant for Otf2 {
    type Lane = Otf2Lane;

    fn prepare(&mut self, lanes: usize) -> Result<(), String> {
        self.archive = Some(Archive::open(&self.directory, lanes, self.memory)?);
        Ok(())
    }

    fn lane(&self, number: usize) -> Otf2Lane {
        let archive = self.archive.as_ref();
        archive.expect("prepare opened it").lane(number)
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        let closed = self.archive.take().ok_or("no archive is open")?.close()?;
        let read = closed.read()?;
        if closed.written != raised || read != raised {
            let written = closed.written;
            return Err(format!(
                "{raised} events were raised, {written} written, {read} read"
            ));
        }
        self.check.raised += raised;
        self.check.read = self.check.read.map(|sum| sum + read);
        std::fs::remove_dir_all(&self.directory).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<Check, String> {
        Ok(self.check.clone())
    }
}

/// One thread that records. Times are the time-stamp counter's, as Annals' are.
#[derive(Debug)]
pub(crate) struct Otf2Lane {
    writer: *mut c_void,
    attributes: *mut c_void,
}

impl Lane for Otf2Lane {
    type Open = ();

    #[inline(never)]
    fn enter(&mut self, region: u32) {
        // SAFETY: the writer is open while its contestant measures, and belongs to this thread.
        unsafe { OTF2_EvtWriter_Enter(self.writer, null_mut(), tsc(), region) };
    }

    #[inline(never)]
    fn leave(&mut self, region: u32, (): ()) {
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_Leave(self.writer, null_mut(), tsc(), region) };
    }

    /// OTF2 has no user-defined event types; this one has just these three fields.
    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_RmaReleaseLock(self.writer, null_mut(), tsc(), a, b, c) };
    }

    #[inline(never)]
    fn send(&mut self, receiver: u32, comm: u32, tag: u32, length: u64, request: u64, kind: u32) {
        let list = self.attributes;
        // SAFETY: the list belongs to this thread; writing an event empties it.
        unsafe { OTF2_AttributeList_AddUint64(list, 0, request) };
        // SAFETY: the list belongs to this thread.
        unsafe { OTF2_AttributeList_AddUint32(list, 1, kind) };
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_MpiSend(self.writer, list, tsc(), receiver, comm, tag, length) };
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        let (writer, value) = (self.writer, value.into());
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_ParameterUnsignedInt(writer, null_mut(), tsc(), kind, value) };
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        let (kind, value) = (TYPE_INT64, value as u64);
        // SAFETY: as in `enter`; type and value are one each, as the count says.
        unsafe {
            OTF2_EvtWriter_Metric(self.writer, null_mut(), tsc(), 0, 1, &kind, &value);
        }
    }

    /// A string that is defined once: cheaper than Annals' text, which is in every event.
    #[inline(never)]
    fn note(&mut self) {
        let (writer, list) = (self.writer, null_mut());
        // SAFETY: as in `enter`.
        unsafe {
            OTF2_EvtWriter_ParameterString(writer, list, tsc(), STRING_PARAMETER, NOTE_STRING)
        };
    }
}

impl MessageLane for Otf2Lane {
    #[inline(never)]
    fn sent(&mut self, receiver: u32, communicator: u32, tag: u32, length: u64) {
        let (writer, list) = (self.writer, null_mut());
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_MpiSend(writer, list, tsc(), receiver, communicator, tag, length) };
    }

    #[inline(never)]
    fn received(&mut self, sender: u32, communicator: u32, tag: u32, length: u64) {
        let (writer, list) = (self.writer, null_mut());
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_MpiRecv(writer, list, tsc(), sender, communicator, tag, length) };
    }

    #[inline(never)]
    fn collective_begin(&mut self) {
        // SAFETY: as in `enter`.
        unsafe { OTF2_EvtWriter_MpiCollectiveBegin(self.writer, null_mut(), tsc()) };
    }

    #[inline(never)]
    fn collective_end(&mut self, operation: u8, communicator: u32, root: u32, sent: u64, got: u64) {
        // SAFETY: as in `enter`.
        unsafe {
            OTF2_EvtWriter_MpiCollectiveEnd(
                self.writer,
                null_mut(),
                tsc(),
                operation,
                communicator,
                root,
                sent,
                got,
            );
        }
    }

    #[inline(never)]
    fn load(&mut self, value: f64) {
        let (kind, value) = (TYPE_DOUBLE, value.to_bits());
        // SAFETY: as in `metric`.
        unsafe {
            OTF2_EvtWriter_Metric(self.writer, null_mut(), tsc(), 1, 1, &kind, &value);
        }
    }
}
