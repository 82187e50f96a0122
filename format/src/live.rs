//! The live file: a fixed layout in shared memory that survives its process.
//!
//! The recorder writes it with atomics ([`layout`] has the offsets); a reader takes what was
//! committed. All numbers are little-endian and naturally aligned.

use std::collections::{BTreeMap, HashMap};

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::chunk::Cumulative;
use crate::error::{FormatError, Result};
use crate::ids::{BootId, EventTypeId, LocationId, RecordingId, RegionId, SourceId, StreamId};
use crate::loss::Cause;
use crate::read::ReadAt;

/// Offsets and sizes, in bytes.
#[allow(missing_docs)]
pub mod layout {
    /// First eight bytes of a live file.
    pub const MAGIC: [u8; 8] = *b"\x8fANNLIV\n";
    pub const HEADER_LEN: usize = 4096;
    /// Length of the header's fixed part, including the checksum at its end.
    pub const FIXED_LEN: usize = 128;

    pub const RECORDING_ID: usize = 16;
    pub const BOOT_ID: usize = 32;
    pub const PID: usize = 48;
    pub const FUNCTION_COUNT: usize = 52;
    pub const PROCESS_START: usize = 56;
    pub const PAGE_SIZE: usize = 64;
    pub const PAGE_COUNT: usize = 68;
    pub const PAGES_OFFSET: usize = 72;
    pub const SLOTS_OFFSET: usize = 80;
    pub const SLOT_COUNT: usize = 88;
    pub const SEGMENT_COUNT: usize = 92;
    pub const SEGMENTS_OFFSET: usize = 96;
    pub const DEFINITIONS_OFFSET: usize = 104;
    pub const DEFINITIONS_CAPACITY: usize = 112;
    pub const FUNCTIONS_OFFSET: usize = 120;

    /// Committed bytes of the definitions area.
    pub const DEFINITIONS_LEN: usize = 2048;
    /// How often the definitions area was emptied.
    pub const DEFINITIONS_GENERATION: usize = 2056;
    /// State of the recorder: see the `STATE_*` values.
    pub const STATE: usize = 2064;
    /// Reference clock, nanoseconds, when the recorder last looked.
    pub const HEARTBEAT: usize = 2072;
    /// Longest time between two heartbeats of a recorder that gets a processor, nanoseconds.
    pub const LONGEST_HEARTBEAT_NS: u64 = 100_000_000;
    /// Region ids that were assigned: all below this one.
    pub const REGION_COUNT: usize = 2080;
    /// Directory of the live file where there is no room for it next to the recording.
    pub const IN_MEMORY: &str = "/dev/shm";

    /// Forked children of the process in which events were raised: they count themselves.
    pub const CHILDREN: usize = 2088;

    pub const STATE_RECORDING: u64 = 1;
    /// Finished, but the recording could not be completed: this file contains the rest.
    pub const STATE_STORAGE_FAILED: u64 = 2;

    /// A slot describes one open stream.
    pub const SLOT_LEN: usize = 320;
    /// Stream id + 1; 0: the slot is free.
    pub const SLOT_STREAM: usize = 0;
    /// 1: many threads count here (an unattributed row).
    pub const SLOT_IS_SHARED: usize = 4;
    /// Event type id + 1 while an event is being raised.
    pub const SLOT_BUSY: usize = 8;
    /// Tick when the stream was opened.
    pub const SLOT_OPEN_TICK: usize = 16;
    /// Events in all pages that the stream has handed on.
    pub const SLOT_RECORDED: usize = 24;
    /// Source id.
    pub const SLOT_SOURCE: usize = 32;
    /// Location id + 1; 0: none (an unattributed row).
    pub const SLOT_LOCATION: usize = 36;
    /// The system's number of the thread.
    pub const SLOT_SYSTEM_ID: usize = 40;
    /// The thread's name as the system reports it, 16 bytes, padded with zeros.
    pub const SLOT_NAME: usize = 48;
    /// Number of each counter segment + 1, for 32 event types each.
    pub const SLOT_SEGMENTS: usize = 64;
    pub const SEGMENTS_PER_SLOT: usize = 112;
    /// Events that the stream counted as dropped or suppressed instead of recording them.
    pub const SLOT_LOST: usize = 288;

    /// A counter segment holds the rows of 32 event types.
    pub const SEGMENT_LEN: usize = 4096;
    pub const ROWS_PER_SEGMENT: usize = 32;
    pub const ROW_LEN: usize = 128;
    pub const ROW_RAISED: usize = 0;
    pub const ROW_SUPPRESSED: usize = 8;
    /// Dropped, by the codes of the causes.
    pub const ROW_DROPPED: usize = 16;
    pub const ROW_CAUSES: usize = 14;

    /// A page holds the rows of one chunk of one stream.
    pub const PAGE_HEADER_LEN: usize = 128;
    /// Stream id + 1; 0: the page is free.
    pub const PAGE_STREAM: usize = 0;
    pub const PAGE_SEQUENCE: usize = 8;
    pub const PAGE_GENERATION: usize = 16;
    /// Low 32 bits: committed bytes of rows; high 32 bits: committed events.
    pub const PAGE_COMMIT: usize = 24;
    pub const PAGE_BASE_TICK: usize = 32;
    pub const PAGE_OPEN_REFERENCE: usize = 40;
    pub const PAGE_RAISED: usize = 56;
    pub const PAGE_RECORDED: usize = 64;
    pub const PAGE_DROPPED: usize = 72;

    /// A module entry names a file in memory that functions were called of before it was defined.
    pub const MODULE_COUNT: usize = 64;
    pub const MODULE_LEN: usize = 512;
    /// 1: the entry is complete.
    pub const MODULE_STATE: usize = 0;
    pub const MODULE_PATH_LEN: usize = 4;
    pub const MODULE_BUILD_ID_LEN: usize = 6;
    pub const MODULE_BASE: usize = 8;
    /// Reference clock, nanoseconds.
    pub const MODULE_LOADED: usize = 16;
    pub const MODULE_BUILD_ID: usize = 24;
    pub const MODULE_PATH: usize = 88;
    pub const MAX_MODULE_PATH: usize = MODULE_LEN - MODULE_PATH;
    pub const MAX_BUILD_ID: usize = MODULE_PATH - MODULE_BUILD_ID;

    /// A function entry says which function a region is, until the region is defined.
    pub const FUNCTION_LEN: usize = 32;
    /// See the `FUNCTION_*` values; 0: the entry is free.
    pub const FUNCTION_STATE: usize = 0;
    pub const FUNCTION_REGION: usize = 4;
    /// Address in the module's file; in memory if the module is not known.
    pub const FUNCTION_ADDRESS: usize = 8;
    /// Base of its module.
    pub const FUNCTION_BASE: usize = 16;
    /// Number + 1 of the module's entry; 0: it is defined.
    pub const FUNCTION_MODULE: usize = 24;
    pub const FUNCTION_OF_MODULE: u32 = 1;
    pub const FUNCTION_WITHOUT_MODULE: u32 = 2;

    /// Most bytes of a page.
    pub const MAX_PAGE_LEN: usize = 16 << 20;
    /// Most bytes of the definitions area.
    pub const MAX_DEFINITIONS_LEN: u64 = 64 << 20;
    /// Most function entries.
    pub const MAX_FUNCTION_COUNT: u32 = 1 << 20;
    /// Most bytes of a live file.
    pub const MAX_FILE_LEN: u64 = 8 << 30;
}

use layout as l;

/// Sizes and identity of a live file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct LiveHeader {
    pub recording_id: RecordingId,
    pub boot_id: BootId,
    pub pid: u32,
    /// Start of the process in the system's units (field 22 of `/proc/PID/stat`, as outside of time namespaces):
    /// distinguishes a process from a later one with the same number.
    pub process_start: u64,
    pub page_size: u32,
    pub page_count: u32,
    pub pages_offset: u64,
    pub slots_offset: u64,
    pub slot_count: u32,
    pub segment_count: u32,
    pub segments_offset: u64,
    pub definitions_offset: u64,
    pub definitions_capacity: u64,
    /// Where the module entries are, with the function entries after them.
    pub functions_offset: u64,
    /// Number of function entries. 0: there are no module entries, either.
    pub function_count: u32,
}

impl LiveHeader {
    /// Returns the fixed part of the header with its checksum.
    pub fn encode(&self) -> [u8; l::FIXED_LEN + 4] {
        let mut b = [0; l::FIXED_LEN + 4];
        b[..8].copy_from_slice(&l::MAGIC);
        LE::write_u16(&mut b[8..], crate::block::MAJOR);
        LE::write_u16(&mut b[10..], crate::block::MINOR);
        LE::write_u32(&mut b[12..], l::HEADER_LEN as u32);
        b[l::RECORDING_ID..][..16].copy_from_slice(&self.recording_id.0);
        b[l::BOOT_ID..][..16].copy_from_slice(&self.boot_id.0);
        LE::write_u32(&mut b[l::PID..], self.pid);
        LE::write_u64(&mut b[l::PROCESS_START..], self.process_start);
        LE::write_u32(&mut b[l::PAGE_SIZE..], self.page_size);
        LE::write_u32(&mut b[l::PAGE_COUNT..], self.page_count);
        LE::write_u64(&mut b[l::PAGES_OFFSET..], self.pages_offset);
        LE::write_u64(&mut b[l::SLOTS_OFFSET..], self.slots_offset);
        LE::write_u32(&mut b[l::SLOT_COUNT..], self.slot_count);
        LE::write_u32(&mut b[l::SEGMENT_COUNT..], self.segment_count);
        LE::write_u64(&mut b[l::SEGMENTS_OFFSET..], self.segments_offset);
        LE::write_u64(&mut b[l::DEFINITIONS_OFFSET..], self.definitions_offset);
        LE::write_u64(&mut b[l::DEFINITIONS_CAPACITY..], self.definitions_capacity);
        LE::write_u64(&mut b[l::FUNCTIONS_OFFSET..], self.functions_offset);
        LE::write_u32(&mut b[l::FUNCTION_COUNT..], self.function_count);
        let crc = crc32fast::hash(&b[..l::FIXED_LEN]);
        LE::write_u32(&mut b[l::FIXED_LEN..], crc);
        b
    }

    /// Reads the header.
    ///
    /// # Errors
    /// If it is not an intact header of this major version, or the file or its areas are larger than the format allows. Areas
    /// may end after the file: see [`LiveImage::describe_missing`].
    pub fn decode(b: &[u8], file_len: u64) -> Result<Self> {
        if b.len() < l::HEADER_LEN {
            return Err(FormatError::UnexpectedEnd {
                offset: b.len() as u64,
                expected: "the header of a live file",
            });
        }
        if b[..8] != l::MAGIC {
            return Err(FormatError::invalid(
                0,
                "the magic of a live file",
                format!("{:02x?}", &b[..8]),
            ));
        }
        let (major, minor) = (LE::read_u16(&b[8..]), LE::read_u16(&b[10..]));
        if major != crate::block::MAJOR {
            return Err(FormatError::UnsupportedMajor {
                found_major: major,
                found_minor: minor,
                supported_major: crate::block::MAJOR,
            });
        }
        let expected = LE::read_u32(&b[l::FIXED_LEN..]);
        let found = crc32fast::hash(&b[..l::FIXED_LEN]);
        if expected != found {
            return Err(FormatError::Checksum {
                offset: 0,
                what: "the header of a live file",
                expected,
                found,
            });
        }
        let header = Self {
            recording_id: RecordingId(array(b, l::RECORDING_ID)),
            boot_id: BootId(array(b, l::BOOT_ID)),
            pid: LE::read_u32(&b[l::PID..]),
            process_start: LE::read_u64(&b[l::PROCESS_START..]),
            page_size: LE::read_u32(&b[l::PAGE_SIZE..]),
            page_count: LE::read_u32(&b[l::PAGE_COUNT..]),
            pages_offset: LE::read_u64(&b[l::PAGES_OFFSET..]),
            slots_offset: LE::read_u64(&b[l::SLOTS_OFFSET..]),
            slot_count: LE::read_u32(&b[l::SLOT_COUNT..]),
            segment_count: LE::read_u32(&b[l::SEGMENT_COUNT..]),
            segments_offset: LE::read_u64(&b[l::SEGMENTS_OFFSET..]),
            definitions_offset: LE::read_u64(&b[l::DEFINITIONS_OFFSET..]),
            definitions_capacity: LE::read_u64(&b[l::DEFINITIONS_CAPACITY..]),
            functions_offset: LE::read_u64(&b[l::FUNCTIONS_OFFSET..]),
            function_count: LE::read_u32(&b[l::FUNCTION_COUNT..]),
        };
        let page_size = u64::from(header.page_size);
        let areas = [
            header.slots_offset,
            header.segments_offset,
            header.definitions_offset,
            header.functions_offset,
            header.pages_offset,
        ];
        // Beyond the end of any file: nothing of the areas can be there.
        let is_beyond = areas.iter().any(|offset| *offset > l::MAX_FILE_LEN);
        let is_page = (l::PAGE_HEADER_LEN as u64..=l::MAX_PAGE_LEN as u64).contains(&page_size);
        if !is_page
            || header.definitions_capacity > l::MAX_DEFINITIONS_LEN
            || header.function_count > l::MAX_FUNCTION_COUNT
            || file_len > l::MAX_FILE_LEN
        {
            return Err(FormatError::invalid(
                l::PAGE_SIZE,
                "a live file within the limits",
                format!("{header:?} in {file_len} bytes"),
            ));
        }
        if is_beyond {
            return Err(FormatError::invalid(
                l::PAGE_SIZE,
                "areas within the live file",
                format!("{header:?} in {file_len} bytes"),
            ));
        }
        Ok(header)
    }

    /// Returns the length of the module and function entries.
    fn functions_len(&self) -> u64 {
        match self.function_count {
            0 => 0,
            count => {
                (l::MODULE_COUNT * l::MODULE_LEN) as u64 + u64::from(count) * l::FUNCTION_LEN as u64
            }
        }
    }
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("a range of N bytes")
}

/// Returns what a thread is called: the name that the system has of it, `main` for the process's
/// first one.
pub fn thread_name(bytes: &[u8], system_id: u64, pid: u32) -> String {
    if system_id == u64::from(pid) {
        return "main".to_owned();
    }
    let end = bytes.iter().position(|byte| *byte == 0);
    let name = crate::text_of(&bytes[..end.unwrap_or(bytes.len())]);
    if name.is_empty() {
        format!("thread {system_id}")
    } else {
        name.into_owned()
    }
}

/// Counters of one event type of an open stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct LiveCounters {
    pub event_type: EventTypeId,
    pub raised: u64,
    pub suppressed: u64,
    /// Dropped, by the codes of the causes.
    pub dropped: [u64; l::ROW_CAUSES],
}

/// An open stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveStream {
    /// Which stream.
    pub stream: StreamId,
    /// Its source.
    pub source: SourceId,
    /// Where its events happen; `None` means an unattributed row.
    pub location: Option<LocationId>,
    /// The system's number of the thread.
    pub system_id: u64,
    /// The thread's name as the system has it.
    pub name: String,
    /// Whether many threads count here.
    pub is_shared: bool,
    /// The event type that was being raised.
    pub busy: Option<EventTypeId>,
    /// Tick when the stream was opened.
    pub open_tick: u64,
    /// Number of events in all pages that the stream had handed on when the reading began: each of them is in a page or
    /// in the recording.
    pub recorded: u64,
    /// Number of events that the stream counted as dropped or suppressed instead of recording them. 0 means also that the
    /// recorder does not count them here.
    pub lost: u64,
    /// Counters that are not all 0, by event type.
    pub counters: Vec<LiveCounters>,
    /// Whether some of the counters are beyond the end of a file that is cut off. What the stream raised is unknown then.
    pub lacks_counters: bool,
}

/// A page with committed rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LivePage {
    /// Offset of the page in the live file.
    pub offset: u64,
    /// Whose rows.
    pub stream: StreamId,
    /// The number its chunk will have in the stream.
    pub sequence: u64,
    /// Base of the first row's tick.
    pub base_tick: u64,
    /// Reference clock at the opening, nanoseconds.
    pub open_reference_ns: i64,
    /// Counts since the stream's start, at the opening.
    pub before: Cumulative,
    /// Committed events.
    pub event_count: u32,
    /// Committed rows.
    pub rows: Vec<u8>,
}

/// A file in the process's memory of which functions were called before it was defined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveModule {
    /// Path of the file.
    pub path: String,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Address in memory minus address in the file; wraps.
    pub base: u64,
    /// When it was first observed, reference clock, nanoseconds.
    pub loaded_ns: i64,
}

/// The module of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LiveFunctionModule {
    /// One that is defined, and in memory: the one with this base.
    Defined(u64),
    /// The module entry with this number.
    Entry(usize),
    /// It is not known. The function's address is that in memory.
    Unknown,
}

/// A function that was called, and that may not be defined yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveFunction {
    /// Its region.
    pub region: RegionId,
    /// Its address in its module's file.
    pub address: u64,
    /// Its module.
    pub module: LiveFunctionModule,
}

/// The contents of a live file.
#[derive(Clone, Debug)]
pub struct LiveImage {
    /// Sizes and identity.
    pub header: LiveHeader,
    /// One of the `STATE_*` values.
    pub state: u64,
    /// Reference clock, nanoseconds, when the recorder last looked.
    pub heartbeat_ns: i64,
    /// Functions that may not be defined yet.
    pub functions: Vec<LiveFunction>,
    /// Their modules that may not be defined yet, by number of entry.
    pub modules: BTreeMap<usize, LiveModule>,
    /// Region ids that were assigned: all below this one. At most one for each 64 bytes of the file.
    pub region_count: u32,
    /// Number of forked children in which events were raised, which nothing records.
    pub children: u64,
    /// Definition records that may not be in the recording yet.
    pub definitions: Vec<u8>,
    /// Open streams.
    pub streams: Vec<LiveStream>,
    /// Pages with committed rows, by stream and sequence.
    pub pages: Vec<LivePage>,
    /// Number of counter segments that have counts and that no slot names: the slots of their streams are lost.
    pub unnamed_segments: usize,
    missing: MissingParts,
}

/// What is beyond the end of a live file that is cut off.
#[derive(Clone, Copy, Default, Debug)]
struct MissingParts {
    /// Bytes that are there.
    file_len: u64,
    pages: u64,
    slots: u64,
    /// Counter segments that a slot names.
    segments: u64,
    /// Bytes of definitions.
    definitions: u64,
}

impl LiveImage {
    /// Reads a live file, also while it is being written: pages that change during the read are
    /// left out, because they are in the recording by then.
    ///
    /// # Errors
    /// If the file cannot be read or its header is not intact.
    pub fn read(file: &dyn ReadAt) -> Result<Self> {
        let file_len = file.len()?;
        let mut head = vec![0; l::HEADER_LEN];
        file.read_exact_at(0, &mut head)?;
        let header = LiveHeader::decode(&head, file_len)?;
        let word = |offset: usize| LE::read_u64(&head[offset..]);
        let mut image = Self {
            header,
            state: word(l::STATE),
            heartbeat_ns: word(l::HEARTBEAT) as i64,
            functions: Vec::new(),
            modules: BTreeMap::new(),
            region_count: 0,
            children: 0,
            definitions: Vec::new(),
            streams: Vec::new(),
            pages: Vec::new(),
            unnamed_segments: 0,
            missing: MissingParts {
                file_len,
                ..MissingParts::default()
            },
        };
        // The order matters when the process still runs. Events that a stream had handed on before the pages are read
        // are in the pages or in the recording. Events in the pages are defined and counted by the time that
        // definitions and counters are read. A function entry is reused when its region is defined.
        let handed_on = image.read_handed_on(file)?;
        image.read_pages(file)?;
        image.read_functions(file)?;
        image.read_definitions(file)?;
        image.read_streams(file, &handed_on)?;
        Ok(image)
    }

    /// Describes what is missing because the file ends before an area of it does. `None` means that all is there.
    pub fn describe_missing(&self) -> Option<String> {
        let MissingParts {
            file_len,
            pages,
            slots,
            segments,
            definitions,
        } = self.missing;
        let parts = [
            (pages, "page", "pages"),
            (slots, "slot of a stream", "slots of streams"),
            (segments, "segment of counters", "segments of counters"),
            (definitions, "byte of definitions", "bytes of definitions"),
        ];
        let parts = parts.iter().filter(|(count, ..)| *count != 0);
        let parts = parts.map(|(count, one, more)| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| {
            let parts = parts.join(", ");
            format!("the live file is cut off after {file_len} bytes, without {parts}")
        })
    }

    /// Returns how many of the parts of an area are in the file, at most `count`.
    fn parts_there(&self, offset: u64, length: usize, count: u32) -> u64 {
        let bytes = self.missing.file_len.saturating_sub(offset);
        (bytes / length as u64).min(count.into())
    }

    /// Returns how many slots are in the file.
    fn slots_there(&self) -> u64 {
        self.parts_there(
            self.header.slots_offset,
            l::SLOT_LEN,
            self.header.slot_count,
        )
    }

    fn slot_offset(&self, number: u64) -> u64 {
        self.header.slots_offset + number * l::SLOT_LEN as u64
    }

    /// Reads all slots that are in the file.
    fn read_slots(&self, file: &dyn ReadAt) -> Result<Vec<u8>> {
        let mut slots = vec![0; self.slots_there() as usize * l::SLOT_LEN];
        file.read_exact_at(self.header.slots_offset, &mut slots)?;
        Ok(slots)
    }

    /// Returns what each open stream says it has handed on.
    fn read_handed_on(&self, file: &dyn ReadAt) -> Result<HashMap<u32, u64>> {
        let mut handed_on = HashMap::new();
        for slot in self.read_slots(file)?.chunks_exact(l::SLOT_LEN) {
            let stream = LE::read_u32(&slot[l::SLOT_STREAM..]);
            if stream != 0 {
                handed_on.insert(stream, LE::read_u64(&slot[l::SLOT_RECORDED..]));
            }
        }
        Ok(handed_on)
    }

    fn read_pages(&mut self, file: &dyn ReadAt) -> Result<()> {
        let (mut found, mut cut) = (Vec::new(), 0);
        let page_count = u64::from(self.header.page_count);
        for number in 0..page_count {
            let offset = self.page_offset(number);
            if offset.saturating_add(l::PAGE_HEADER_LEN as u64) > self.missing.file_len {
                cut += page_count - number;
                break;
            }
            match self.read_page(file, number) {
                Ok(page) => found.extend(page),
                Err(FormatError::UnexpectedEnd { .. }) => cut += 1,
                Err(error) => return Err(error),
            }
        }
        self.missing.pages = cut;
        found.sort_by_key(|found| (found.page.stream, found.page.sequence));
        let mut found = found.into_iter().peekable();
        while let Some(mut this) = found.next() {
            // A page that another of its stream follows is complete, but may not have been when it was
            // read. Pages that were handed on since then are in the recording.
            let is_followed = found
                .peek()
                .is_some_and(|next| next.page.stream == this.page.stream);
            if is_followed && !this.is_unchanged(file)? {
                match self.read_page(file, this.number)? {
                    Some(again) if again.is_same_chunk(&this.head) => this = again,
                    _ => continue,
                }
            }
            self.pages.push(this.page);
        }
        Ok(())
    }

    fn page_offset(&self, number: u64) -> u64 {
        self.header.pages_offset + number * u64::from(self.header.page_size)
    }

    /// Reads a page. `None` means that it has no rows, or changed while it was read.
    ///
    /// # Errors
    /// If its rows are beyond the end of the file, or the storage fails.
    fn read_page(&self, file: &dyn ReadAt, number: u64) -> Result<Option<FoundPage>> {
        let offset = self.page_offset(number);
        let mut head = [0; l::PAGE_HEADER_LEN];
        file.read_exact_at(offset, &mut head)?;
        let stream = LE::read_u32(&head[l::PAGE_STREAM..]);
        let commit = LE::read_u64(&head[l::PAGE_COMMIT..]);
        let committed = (commit as u32).min(self.header.page_size - l::PAGE_HEADER_LEN as u32);
        if stream == 0 || committed == 0 {
            return Ok(None);
        }
        let rows_at = offset + l::PAGE_HEADER_LEN as u64;
        if rows_at + u64::from(committed) > self.missing.file_len {
            return Err(FormatError::UnexpectedEnd {
                offset: self.missing.file_len,
                expected: "the rows of a page",
            });
        }
        let mut rows = vec![0; committed as usize];
        file.read_exact_at(offset + l::PAGE_HEADER_LEN as u64, &mut rows)?;
        let word = |offset: usize| LE::read_u64(&head[offset..]);
        let found = FoundPage {
            number,
            head,
            page: LivePage {
                offset,
                stream: StreamId::new(stream - 1),
                sequence: word(l::PAGE_SEQUENCE),
                base_tick: word(l::PAGE_BASE_TICK),
                open_reference_ns: word(l::PAGE_OPEN_REFERENCE) as i64,
                before: Cumulative {
                    raised: word(l::PAGE_RAISED),
                    recorded: word(l::PAGE_RECORDED),
                    dropped: word(l::PAGE_DROPPED),
                },
                event_count: (commit >> 32) as u32,
                rows,
            },
        };
        let mut again = [0; l::PAGE_HEADER_LEN];
        file.read_exact_at(offset, &mut again)?;
        Ok(found.is_same_chunk(&again).then_some(found))
    }

    fn read_functions(&mut self, file: &dyn ReadAt) -> Result<()> {
        let mut word = [0; 8];
        file.read_exact_at(l::REGION_COUNT as u64, &mut word)?;
        let most = (file.len()? / 64).min(u32::MAX.into());
        self.region_count = LE::read_u64(&word).min(most) as u32;
        file.read_exact_at(l::CHILDREN as u64, &mut word)?;
        self.children = LE::read_u64(&word);
        let there = self.missing.file_len;
        let there = there.saturating_sub(self.header.functions_offset);
        let mut bytes = vec![0; self.header.functions_len().min(there) as usize];
        if bytes.is_empty() {
            return Ok(());
        }
        file.read_exact_at(self.header.functions_offset, &mut bytes)?;
        let mut again = vec![0; bytes.len()];
        file.read_exact_at(self.header.functions_offset, &mut again)?;
        let modules = l::MODULE_COUNT * l::MODULE_LEN;
        let (modules, functions) = bytes.split_at(modules.min(bytes.len()));
        for (number, entry) in modules.chunks_exact(l::MODULE_LEN).enumerate() {
            if let Some(module) = LiveModule::decode(entry) {
                self.modules.insert(number, module);
            }
        }
        // An entry that was changing meanwhile is of a function that no page names yet.
        let again = again[modules.len()..].chunks_exact(l::FUNCTION_LEN);
        let entries = functions.chunks_exact(l::FUNCTION_LEN).zip(again);
        let unchanged = entries.filter(|(entry, again)| entry == again);
        let functions = unchanged.filter_map(|(entry, _)| LiveFunction::decode(entry));
        self.functions.extend(functions);
        Ok(())
    }

    fn read_definitions(&mut self, file: &dyn ReadAt) -> Result<()> {
        // An area that is emptied that often under the reader's eyes holds nothing that the recording
        // does not.
        const ATTEMPTS: usize = 8;
        const _: () = assert!(l::DEFINITIONS_GENERATION == l::DEFINITIONS_LEN + 8);
        let words = || -> Result<(u64, u64)> {
            let mut bytes = [0; 16];
            file.read_exact_at(l::DEFINITIONS_LEN as u64, &mut bytes)?;
            let committed = LE::read_u64(&bytes).min(self.header.definitions_capacity);
            Ok((committed, LE::read_u64(&bytes[8..])))
        };
        for _ in 0..ATTEMPTS {
            let (committed, generation) = words()?;
            let there = self.missing.file_len;
            let there = there.saturating_sub(self.header.definitions_offset);
            let missing = committed.saturating_sub(there);
            let mut definitions = vec![0; (committed - missing) as usize];
            if !definitions.is_empty() {
                file.read_exact_at(self.header.definitions_offset, &mut definitions)?;
            }
            let (committed_now, generation_now) = words()?;
            if generation_now == generation && committed_now >= committed {
                self.definitions = definitions;
                self.missing.definitions = missing;
                break;
            }
        }
        Ok(())
    }

    fn read_streams(&mut self, file: &dyn ReadAt, handed_on: &HashMap<u32, u64>) -> Result<()> {
        let slots = self.read_slots(file)?;
        let mut again = [0; l::SLOT_LEN];
        let mut segment = vec![0; l::SEGMENT_LEN];
        // By number + 1.
        let mut is_taken = vec![false; usize::from(u16::MAX) + 1];
        let segments_there = self.parts_there(
            self.header.segments_offset,
            l::SEGMENT_LEN,
            self.header.segment_count,
        );
        self.missing.slots = u64::from(self.header.slot_count) - self.slots_there();
        for (number, slot) in slots.chunks_exact(l::SLOT_LEN).enumerate() {
            let offset = self.slot_offset(number as u64);
            let stream = LE::read_u32(&slot[l::SLOT_STREAM..]);
            if stream == 0 {
                continue;
            }
            let busy = LE::read_u64(&slot[l::SLOT_BUSY..]);
            let mut open = LiveStream {
                stream: StreamId::new(stream - 1),
                source: SourceId::new(LE::read_u32(&slot[l::SLOT_SOURCE..])),
                location: LE::read_u32(&slot[l::SLOT_LOCATION..])
                    .checked_sub(1)
                    .map(LocationId::new),
                system_id: LE::read_u64(&slot[l::SLOT_SYSTEM_ID..]),
                name: thread_name(
                    &slot[l::SLOT_NAME..l::SLOT_SEGMENTS],
                    LE::read_u64(&slot[l::SLOT_SYSTEM_ID..]),
                    self.header.pid,
                ),
                is_shared: LE::read_u32(&slot[l::SLOT_IS_SHARED..]) != 0,
                busy: u32::try_from(busy)
                    .ok()
                    .and_then(|busy| busy.checked_sub(1))
                    .map(EventTypeId::new),
                open_tick: LE::read_u64(&slot[l::SLOT_OPEN_TICK..]),
                recorded: handed_on.get(&stream).copied().unwrap_or(0),
                lost: LE::read_u64(&slot[l::SLOT_LOST..]),
                counters: Vec::new(),
                lacks_counters: false,
            };
            let (mut taken, mut lacking) = (Vec::new(), 0);
            for block in 0..l::SEGMENTS_PER_SLOT {
                let number = LE::read_u16(&slot[l::SLOT_SEGMENTS + 2 * block..]);
                if number == 0
                    || u32::from(number) > self.header.segment_count
                    || is_taken[usize::from(number)]
                {
                    continue;
                }
                is_taken[usize::from(number)] = true;
                taken.push(usize::from(number));
                if u64::from(number) > segments_there {
                    lacking += 1;
                    continue;
                }
                let offset =
                    self.header.segments_offset + u64::from(number - 1) * l::SEGMENT_LEN as u64;
                file.read_exact_at(offset, &mut segment)?;
                open.take_segment(block, &segment);
            }
            file.read_exact_at(offset, &mut again)?;
            let is_same = slot[..l::SLOT_IS_SHARED] == again[..l::SLOT_IS_SHARED]
                && slot[l::SLOT_OPEN_TICK..l::SLOT_RECORDED]
                    == again[l::SLOT_OPEN_TICK..l::SLOT_RECORDED];
            if is_same {
                self.missing.segments += lacking;
                open.lacks_counters = lacking != 0;
                self.streams.push(open);
            } else {
                // The stream was closed: its totals are in the recording, and its segments may
                // belong to another stream.
                taken.iter().for_each(|number| is_taken[*number] = false);
            }
        }
        self.count_unnamed_segments(file, segments_there, &is_taken)
    }

    /// Counts the segments that have counts and that no slot names. `is_named`: by number + 1.
    fn count_unnamed_segments(
        &mut self,
        file: &dyn ReadAt,
        segments_there: u64,
        is_named: &[bool],
    ) -> Result<()> {
        /// Segments that are read at a time.
        const PART: u64 = 64;
        let unused = [0; l::SEGMENT_LEN];
        let mut part = Vec::new();
        for first in (0..segments_there).step_by(PART as usize) {
            let count = PART.min(segments_there - first) as usize;
            part.resize(count * l::SEGMENT_LEN, 0);
            let offset = self.header.segments_offset + first * l::SEGMENT_LEN as u64;
            file.read_exact_at(offset, &mut part)?;
            let numbers = first as usize + 1..;
            for (segment, number) in part.chunks_exact(l::SEGMENT_LEN).zip(numbers) {
                let is_named = is_named.get(number).is_none_or(|named| *named);
                self.unnamed_segments += usize::from(!is_named && segment != unused);
            }
        }
        Ok(())
    }
}

impl LiveCounters {
    /// Returns the number of events that the stream counted as dropped or suppressed, without those that the writer
    /// dropped.
    pub(crate) fn lost(&self) -> u64 {
        let by_stream = Cause::RECORDER.into_iter();
        let by_stream = by_stream.filter(|cause| !cause.is_counted_by_writer());
        let counts = by_stream.map(|cause| self.dropped[usize::from(cause.code())]);
        counts.fold(self.suppressed, u64::saturating_add)
    }
}

impl LiveModule {
    /// Returns `None` for an entry that is free or not complete.
    fn decode(entry: &[u8]) -> Option<Self> {
        if LE::read_u32(&entry[l::MODULE_STATE..]) != 1 {
            return None;
        }
        let length = |at: usize| usize::from(LE::read_u16(&entry[at..]));
        let path = entry[l::MODULE_PATH..].get(..length(l::MODULE_PATH_LEN))?;
        let build_id =
            entry[l::MODULE_BUILD_ID..l::MODULE_PATH].get(..length(l::MODULE_BUILD_ID_LEN))?;
        Some(Self {
            path: crate::text_of(path).into_owned(),
            build_id: build_id.to_vec(),
            base: LE::read_u64(&entry[l::MODULE_BASE..]),
            loaded_ns: LE::read_u64(&entry[l::MODULE_LOADED..]) as i64,
        })
    }
}

impl LiveFunction {
    /// Returns `None` for an entry that is free or not complete.
    fn decode(entry: &[u8]) -> Option<Self> {
        if LE::read_u32(&entry[l::FUNCTION_STATE..]) == 0 {
            return None;
        }
        let base = LE::read_u64(&entry[l::FUNCTION_BASE..]);
        let module = LE::read_u32(&entry[l::FUNCTION_MODULE..]);
        Some(Self {
            region: RegionId::new(LE::read_u32(&entry[l::FUNCTION_REGION..])),
            address: LE::read_u64(&entry[l::FUNCTION_ADDRESS..]),
            module: match LE::read_u32(&entry[l::FUNCTION_STATE..]) {
                l::FUNCTION_OF_MODULE => match module.checked_sub(1) {
                    None => LiveFunctionModule::Defined(base),
                    Some(number) => LiveFunctionModule::Entry(number as usize),
                },
                l::FUNCTION_WITHOUT_MODULE => LiveFunctionModule::Unknown,
                _ => return None,
            },
        })
    }
}

impl LiveStream {
    /// Returns the number of events that were committed and later dropped.
    pub(crate) fn given_up(&self) -> u64 {
        let counts = self.counters.iter().flat_map(|row| {
            let by_code = row.dropped.iter().enumerate();
            by_code.filter(|(code, _)| {
                Cause::from_code(*code as u8).is_some_and(Cause::is_counted_by_writer)
            })
        });
        counts.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Takes in the counters of 32 event types.
    fn take_segment(&mut self, block: usize, segment: &[u8]) {
        for (index, row) in segment.chunks_exact(l::ROW_LEN).enumerate() {
            let event_type = (block * l::ROWS_PER_SEGMENT + index) as u32;
            let word = |offset: usize| LE::read_u64(&row[offset..]);
            let counters = LiveCounters {
                event_type: EventTypeId::new(event_type),
                raised: word(l::ROW_RAISED),
                suppressed: word(l::ROW_SUPPRESSED),
                dropped: std::array::from_fn(|code| word(l::ROW_DROPPED + 8 * code)),
            };
            if row.iter().any(|byte| *byte != 0) {
                self.counters.push(counters);
            }
        }
    }
}

/// A page as it was read.
struct FoundPage {
    number: u64,
    head: [u8; l::PAGE_HEADER_LEN],
    page: LivePage,
}

impl FoundPage {
    /// Returns whether the page's head, read again, is that of the same stream, sequence and
    /// generation.
    fn is_same_chunk(&self, head: &[u8; l::PAGE_HEADER_LEN]) -> bool {
        let stream = l::PAGE_STREAM..l::PAGE_STREAM + 4;
        let sequence_and_generation = l::PAGE_SEQUENCE..l::PAGE_GENERATION + 8;
        [stream, sequence_and_generation]
            .into_iter()
            .all(|field| self.head[field.clone()] == head[field])
    }

    /// Returns whether the page is the same chunk with the same committed rows.
    fn is_unchanged(&self, file: &dyn ReadAt) -> Result<bool> {
        let mut head = [0; l::PAGE_HEADER_LEN];
        file.read_exact_at(self.page.offset, &mut head)?;
        let commit = l::PAGE_COMMIT..l::PAGE_COMMIT + 8;
        Ok(self.is_same_chunk(&head) && self.head[commit.clone()] == head[commit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::Definitions;
    use crate::testing::{
        Changing, DEFINITIONS_AT, LiveMaker, PAGE_LEN, PAGES_AT, SLOTS_AT, live_header, put_word,
        rows, ty,
    };
    use crate::wire::Put;

    const ROWS_AT: u64 = (PAGES_AT + l::PAGE_HEADER_LEN) as u64;

    #[test]
    fn a_page_that_changes_hands_while_it_is_read_is_left_out() {
        for field in [l::PAGE_STREAM, l::PAGE_SEQUENCE, l::PAGE_GENERATION] {
            let mut live = LiveMaker::new();
            live.page(0, (0, 0), 2, &rows(&[0, 1]));
            assert_eq!(live.image().pages.len(), 1);
            let file = Changing::new(live, move |bytes, offset| {
                if offset == ROWS_AT {
                    put_word(bytes, PAGES_AT + field, 2);
                }
            });
            let image = LiveImage::read(&file).unwrap();
            assert!(image.pages.is_empty(), "field {field}");
        }
    }

    #[test]
    fn a_page_that_was_completed_meanwhile_is_read_again() {
        let mut live = LiveMaker::new();
        live.page(0, (0, 0), 1, &rows(&[0]));
        let second = PAGES_AT + PAGE_LEN;
        let file = Changing::new(live, move |bytes, offset| {
            if offset == ROWS_AT {
                // The recorder fills the first page and opens the second.
                let mut next = LiveMaker::new();
                next.page(0, (0, 0), 3, &rows(&[0, 1, 2]));
                next.page(1, (1, 3), 1, &rows(&[3]));
                bytes[PAGES_AT..].copy_from_slice(&next.bytes[PAGES_AT..]);
            }
        });
        let image = LiveImage::read(&file).unwrap();
        let counts: Vec<u32> = image.pages.iter().map(|page| page.event_count).collect();
        assert_eq!(counts, [3, 1]);
        assert_eq!(image.pages[1].offset, second as u64);
    }

    #[test]
    fn definitions_are_read_after_the_pages_that_need_them() {
        let mut live = LiveMaker::new();
        live.word(l::DEFINITIONS_LEN, 0);
        let file = Changing::new(live, |bytes, offset| {
            if offset == PAGES_AT as u64 {
                let next = LiveMaker::new();
                bytes[..PAGES_AT].copy_from_slice(&next.bytes[..PAGES_AT]);
            }
        });
        let image = LiveImage::read(&file).unwrap();
        let mut definitions = Definitions::default();
        definitions.add_all(&image.definitions).unwrap();
        assert_eq!(definitions.event_types.len(), 4);
    }

    #[test]
    fn definitions_are_read_again_when_their_area_was_emptied() {
        let live = LiveMaker::new();
        let mut record = Vec::new();
        record.put_varint(900);
        record.put_bytes(b"new");
        let new = record.clone();
        let mut is_first = true;
        let file = Changing::new(live, move |bytes, offset| {
            if offset == DEFINITIONS_AT as u64 && std::mem::take(&mut is_first) {
                put_word(bytes, l::DEFINITIONS_GENERATION, 1);
                put_word(bytes, l::DEFINITIONS_LEN, new.len() as u64);
                bytes[DEFINITIONS_AT..][..new.len()].copy_from_slice(&new);
            }
        });
        assert_eq!(LiveImage::read(&file).unwrap().definitions, record);
    }

    #[test]
    fn an_area_that_is_always_being_emptied_is_left_out() {
        let mut generation = 0;
        let file = Changing::new(LiveMaker::new(), move |bytes, offset| {
            if offset == DEFINITIONS_AT as u64 {
                generation += 1;
                put_word(bytes, l::DEFINITIONS_GENERATION, generation);
            }
        });
        assert!(LiveImage::read(&file).unwrap().definitions.is_empty());
    }

    #[test]
    fn what_is_handed_on_behind_the_first_look_is_not_missed() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 5);
        live.raised(0, 0, 5);
        let file = Changing::new(live, |bytes, offset| {
            if offset == PAGES_AT as u64 {
                put_word(bytes, SLOTS_AT + l::SLOT_RECORDED, 9);
            }
        });
        assert_eq!(LiveImage::read(&file).unwrap().streams[0].recorded, 5);
    }

    #[test]
    fn a_stream_that_closes_while_it_is_read_is_left_out() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 5);
        live.raised(0, 0, 5);
        let file = Changing::new(live, |bytes, offset| {
            if offset == crate::testing::SEGMENTS_AT as u64 {
                put_word(bytes, SLOTS_AT + l::SLOT_STREAM, 0);
            }
        });
        assert!(LiveImage::read(&file).unwrap().streams.is_empty());
    }

    #[test]
    fn a_counter_segment_belongs_to_the_first_slot_that_names_it() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 3, 7);
        let second = live.slot(1, 1, 0);
        for block in 0..l::SEGMENTS_PER_SLOT {
            let at = second + l::SLOT_SEGMENTS + 2 * block;
            live.bytes[at..at + 2].copy_from_slice(&1_u16.to_le_bytes());
        }
        let image = live.image();
        assert_eq!(image.streams.len(), 2);
        let counted: Vec<EventTypeId> = image.streams[0]
            .counters
            .iter()
            .map(|c| c.event_type)
            .collect();
        assert_eq!(counted, [ty(3)]);
        assert!(image.streams[1].counters.is_empty());
    }

    fn decode(header: LiveHeader, file_len: u64) -> Result<LiveHeader> {
        let mut page = header.encode().to_vec();
        page.resize(l::HEADER_LEN, 0);
        LiveHeader::decode(&page, file_len)
    }

    #[test]
    fn a_live_file_that_is_cut_off_has_what_is_before_the_cut() {
        let mut live = LiveMaker::new();
        let slot = live.slot(0, 0, 0);
        live.slot(1, 1, 0);
        live.raised(0, 0, 3);
        let rows = rows(&[0]);
        let pages = [0, 1, 3].map(|number| live.page(number, (number as u64, 0), 1, &rows));
        let whole = live.image();
        assert_eq!((whole.describe_missing(), whole.pages.len()), (None, 3));
        let read = |length: usize| {
            let image = LiveImage::read(&live.bytes[..length].to_vec()).unwrap();
            (image.describe_missing(), image)
        };
        // A page is there as soon as its rows are.
        let end = pages[2] + l::PAGE_HEADER_LEN + rows.len();
        assert_eq!(read(end).0, None);
        let (said, image) = read(end - 1);
        let expected = format!(
            "the live file is cut off after {} bytes, without 1 page",
            end - 1
        );
        assert_eq!((said, image.pages.len()), (Some(expected), 2));
        let (said, image) = read(pages[1]);
        assert!(said.unwrap().ends_with("without 3 pages"));
        assert_eq!((image.pages.len(), image.streams.len()), (1, 2));
        let (said, image) = read(DEFINITIONS_AT + 2);
        assert!(said.unwrap().contains("bytes of definitions"));
        assert_eq!(image.definitions.len(), 2);
        let (said, image) = read(slot + l::SLOT_LEN);
        assert!(
            said.unwrap()
                .contains("without 4 pages, 11 slots of streams, 1 segment of counters")
        );
        assert!(image.streams[0].lacks_counters && image.streams.len() == 1);
    }

    #[test]
    fn live_files_beyond_the_limits_are_refused() {
        let len = l::MAX_FILE_LEN;
        let page_size = l::MAX_PAGE_LEN as u32;
        let largest = LiveHeader {
            page_size,
            definitions_capacity: l::MAX_DEFINITIONS_LEN,
            ..live_header()
        };
        decode(largest, len).unwrap();
        assert!(decode(largest, len + 1).is_err());
        let page_size = page_size + 1;
        assert!(
            decode(
                LiveHeader {
                    page_size,
                    ..largest
                },
                len
            )
            .is_err()
        );
        let definitions_capacity = l::MAX_DEFINITIONS_LEN + 1;
        let header = LiveHeader {
            definitions_capacity,
            ..largest
        };
        assert!(decode(header, len).is_err());
        let functions = |function_count| {
            let header = LiveHeader {
                function_count,
                ..largest
            };
            decode(header, len)
        };
        assert!(functions(l::MAX_FUNCTION_COUNT).is_ok());
        assert!(functions(l::MAX_FUNCTION_COUNT + 1).is_err());
    }
}
