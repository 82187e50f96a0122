//! The live file: a fixed layout in shared memory that survives its process.
//!
//! The recorder writes it with atomics ([`layout`] has the offsets); a reader takes what was
//! committed. All numbers are little-endian and naturally aligned.

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::chunk::Cumulative;
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, RecordingId, StreamId};
use crate::read::ReadAt;

/// Offsets and sizes, in bytes.
#[allow(missing_docs)]
pub mod layout {
    /// First eight bytes of a live file.
    pub const MAGIC: [u8; 8] = *b"\x8fANNLIV\n";
    pub const HEADER_LEN: usize = 4096;
    /// The fixed part of the header, with its checksum behind it.
    pub const FIXED_LEN: usize = 128;

    pub const RECORDING_ID: usize = 16;
    pub const BOOT_ID: usize = 32;
    pub const PID: usize = 48;
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

    /// Committed bytes of the definitions area.
    pub const DEFINITIONS_LEN: usize = 2048;
    /// How often the definitions area was emptied.
    pub const DEFINITIONS_GENERATION: usize = 2056;
    /// What the recorder is doing: see the `STATE_*` values.
    pub const STATE: usize = 2064;
    /// Reference clock, nanoseconds, when the recorder last looked.
    pub const HEARTBEAT: usize = 2072;

    pub const STATE_RECORDING: u64 = 1;
    /// Finished, but the recording could not be completed: the rest stands here.
    pub const STATE_STORAGE_FAILED: u64 = 2;

    /// A slot describes one open stream.
    pub const SLOT_LEN: usize = 256;
    /// Stream id + 1; 0: the slot is free.
    pub const SLOT_STREAM: usize = 0;
    /// 1: many threads count here (an unattributed row).
    pub const SLOT_IS_SHARED: usize = 4;
    /// Event type id + 1 while an event is being raised.
    pub const SLOT_BUSY: usize = 8;
    /// Tick when the stream was opened.
    pub const SLOT_OPEN_TICK: usize = 16;
    /// Number of each counter segment + 1, for 32 event types each.
    pub const SLOT_SEGMENTS: usize = 32;
    pub const SEGMENTS_PER_SLOT: usize = 112;

    /// A counter segment holds the rows of 32 event types.
    pub const SEGMENT_LEN: usize = 4096;
    pub const ROWS_PER_SEGMENT: usize = 32;
    pub const ROW_LEN: usize = 128;
    pub const ROW_RAISED: usize = 0;
    pub const ROW_SUPPRESSED: usize = 8;
    /// Dropped, by the codes 0 to 6 of the causes.
    pub const ROW_DROPPED: usize = 16;
    pub const ROW_CAUSES: usize = 7;
    /// How much of each count stands in dropped records already, by the codes 0 to 5.
    pub const ROW_REPORTED: usize = 72;

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
}

use layout as l;

/// Sizes and identity of a live file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct LiveHeader {
    pub recording_id: RecordingId,
    pub boot_id: [u8; 16],
    pub pid: u32,
    /// Start of the process in the system's units (field 22 of `/proc/PID/stat`): tells a process
    /// from a later one with the same number.
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
}

impl LiveHeader {
    /// The fixed part of the header with its checksum.
    pub fn encode(&self) -> [u8; l::FIXED_LEN + 4] {
        let mut b = [0; l::FIXED_LEN + 4];
        b[..8].copy_from_slice(&l::MAGIC);
        LE::write_u16(&mut b[8..], crate::block::MAJOR);
        LE::write_u16(&mut b[10..], crate::block::MINOR);
        LE::write_u32(&mut b[12..], l::HEADER_LEN as u32);
        b[l::RECORDING_ID..][..16].copy_from_slice(&self.recording_id.0);
        b[l::BOOT_ID..][..16].copy_from_slice(&self.boot_id);
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
        let crc = crc32fast::hash(&b[..l::FIXED_LEN]);
        LE::write_u32(&mut b[l::FIXED_LEN..], crc);
        b
    }

    /// Reads the header.
    ///
    /// # Errors
    /// If it is not an intact header of this major version, or its areas do not fit `file_len` bytes.
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
            boot_id: array(b, l::BOOT_ID),
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
        };
        let page_size = u64::from(header.page_size);
        let areas = [
            (
                header.slots_offset,
                u64::from(header.slot_count) * l::SLOT_LEN as u64,
            ),
            (
                header.segments_offset,
                u64::from(header.segment_count) * l::SEGMENT_LEN as u64,
            ),
            (header.definitions_offset, header.definitions_capacity),
            (
                header.pages_offset,
                page_size * u64::from(header.page_count),
            ),
        ];
        let fits = areas
            .iter()
            .all(|(offset, len)| offset.checked_add(*len).is_some_and(|end| end <= file_len));
        if !fits || page_size < l::PAGE_HEADER_LEN as u64 || page_size > 1 << 30 {
            return Err(FormatError::invalid(
                l::PAGE_SIZE,
                "areas within the live file",
                format!("{header:?} in {file_len} bytes"),
            ));
        }
        Ok(header)
    }
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("a range of N bytes")
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
    /// Whether many threads count here.
    pub is_shared: bool,
    /// The event type that was being raised.
    pub busy: Option<EventTypeId>,
    /// Tick when the stream was opened.
    pub open_tick: u64,
    /// Counters that are not all 0, by event type.
    pub counters: Vec<LiveCounters>,
}

/// A page with committed rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LivePage {
    /// Where the page stands in the live file.
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

/// What a live file holds.
#[derive(Clone, Debug)]
pub struct LiveImage {
    /// Sizes and identity.
    pub header: LiveHeader,
    /// One of the `STATE_*` values.
    pub state: u64,
    /// Reference clock, nanoseconds, when the recorder last looked.
    pub heartbeat_ns: i64,
    /// Definition records that may not be in the recording yet.
    pub definitions: Vec<u8>,
    /// Open streams.
    pub streams: Vec<LiveStream>,
    /// Pages with committed rows, by stream and sequence.
    pub pages: Vec<LivePage>,
}

impl LiveImage {
    /// Reads a live file, also one that is being written: what changes under the reader's eyes is
    /// left out, and stands in the recording by then.
    ///
    /// # Errors
    /// If the file cannot be read or its header is not intact.
    pub fn read(file: &dyn ReadAt) -> Result<Self> {
        let file_len = file.len()?;
        let mut head = vec![0; l::HEADER_LEN];
        file.read_exact_at(0, &mut head)?;
        let header = LiveHeader::decode(&head, file_len)?;
        let word = |offset: usize| LE::read_u64(&head[offset..]);

        let mut definitions = Vec::new();
        let committed = word(l::DEFINITIONS_LEN).min(header.definitions_capacity);
        definitions.resize(committed as usize, 0);
        file.read_exact_at(header.definitions_offset, &mut definitions)?;
        let mut again = [0; 8];
        file.read_exact_at(l::DEFINITIONS_GENERATION as u64, &mut again)?;
        if LE::read_u64(&again) != word(l::DEFINITIONS_GENERATION) {
            definitions.clear();
        }

        let mut image = Self {
            header,
            state: word(l::STATE),
            heartbeat_ns: word(l::HEARTBEAT) as i64,
            definitions,
            streams: Vec::new(),
            pages: Vec::new(),
        };
        // Pages before counters: a reader of a running process must not see events that the
        // counters do not know yet.
        image.read_pages(file)?;
        image.read_streams(file)?;
        Ok(image)
    }

    fn read_pages(&mut self, file: &dyn ReadAt) -> Result<()> {
        let page_size = u64::from(self.header.page_size);
        let mut head = [0; l::PAGE_HEADER_LEN];
        let mut again = [0; l::PAGE_HEADER_LEN];
        for number in 0..u64::from(self.header.page_count) {
            let offset = self.header.pages_offset + number * page_size;
            file.read_exact_at(offset, &mut head)?;
            let stream = LE::read_u32(&head[l::PAGE_STREAM..]);
            let commit = LE::read_u64(&head[l::PAGE_COMMIT..]);
            let committed = (commit as u32).min(self.header.page_size - l::PAGE_HEADER_LEN as u32);
            if stream == 0 || committed == 0 {
                continue;
            }
            let mut rows = vec![0; committed as usize];
            file.read_exact_at(offset + l::PAGE_HEADER_LEN as u64, &mut rows)?;
            file.read_exact_at(offset, &mut again)?;
            let generation = l::PAGE_GENERATION..l::PAGE_GENERATION + 8;
            if head[generation.clone()] != again[generation] {
                continue;
            }
            let word = |offset: usize| LE::read_u64(&head[offset..]);
            self.pages.push(LivePage {
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
            });
        }
        self.pages.sort_by_key(|page| (page.stream, page.sequence));
        Ok(())
    }

    fn read_streams(&mut self, file: &dyn ReadAt) -> Result<()> {
        let mut slot = [0; l::SLOT_LEN];
        let mut segment = vec![0; l::SEGMENT_LEN];
        for number in 0..u64::from(self.header.slot_count) {
            let offset = self.header.slots_offset + number * l::SLOT_LEN as u64;
            file.read_exact_at(offset, &mut slot)?;
            let stream = LE::read_u32(&slot[l::SLOT_STREAM..]);
            if stream == 0 {
                continue;
            }
            let busy = LE::read_u64(&slot[l::SLOT_BUSY..]);
            let mut open = LiveStream {
                stream: StreamId::new(stream - 1),
                is_shared: LE::read_u32(&slot[l::SLOT_IS_SHARED..]) != 0,
                busy: u32::try_from(busy)
                    .ok()
                    .and_then(|busy| busy.checked_sub(1))
                    .map(EventTypeId::new),
                open_tick: LE::read_u64(&slot[l::SLOT_OPEN_TICK..]),
                counters: Vec::new(),
            };
            for block in 0..l::SEGMENTS_PER_SLOT {
                let number = LE::read_u16(&slot[l::SLOT_SEGMENTS + 2 * block..]);
                if number == 0 || u32::from(number) > self.header.segment_count {
                    continue;
                }
                let offset =
                    self.header.segments_offset + u64::from(number - 1) * l::SEGMENT_LEN as u64;
                file.read_exact_at(offset, &mut segment)?;
                for (index, row) in segment.chunks_exact(l::ROW_LEN).enumerate() {
                    let event_type = (block * l::ROWS_PER_SEGMENT + index) as u32;
                    let word = |offset: usize| LE::read_u64(&row[offset..]);
                    let counters = LiveCounters {
                        event_type: EventTypeId::new(event_type),
                        raised: word(l::ROW_RAISED),
                        suppressed: word(l::ROW_SUPPRESSED),
                        dropped: std::array::from_fn(|code| word(l::ROW_DROPPED + 8 * code)),
                    };
                    if counters.raised != 0 || counters.dropped.iter().any(|count| *count != 0) {
                        open.counters.push(counters);
                    }
                }
            }
            self.streams.push(open);
        }
        Ok(())
    }
}
