//! Files and live files for tests, made field by field: whole ones, and ones that no recorder writes.

use std::sync::Mutex;

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::error::Result;
use crate::live::layout as l;
use crate::read::ReadAt;
use crate::{
    BlockKind, BlockWriter, CallStatistics, Chunk, ChunkBuilder, ChunkHeader, Clock, ClockId,
    ClockKind, CompressionLevel, Content, Definition, Definitions, Element, ElementType, EventType,
    EventTypeId, FileHeader, FileKind, Footer, LiveHeader, LiveImage, Location, LocationId,
    LocationKind, LocationState, ProcessId, RecordingId, RecordingIndex, Reference, RegionId,
    RegionStatistics, Role, Snapshot, SnapshotEntry, Source, SourceId, SourceOrder, Step, Stream,
    StreamGroup, StreamId, StreamTotals, StringId, TraceChunk, TraceIndexEntry, TypeColumns,
    Verbosity, encode_tail, put_row_start,
};

pub(crate) const STREAM: StreamId = StreamId::new(0);
pub(crate) const PAGE_LEN: usize = 4096;
pub(crate) const SLOTS_AT: usize = 4096;
pub(crate) const SEGMENTS_AT: usize = 8192;
pub(crate) const DEFINITIONS_AT: usize = 16_384;
pub(crate) const PAGES_AT: usize = 20_480;
pub(crate) const FUNCTIONS_AT: usize = PAGES_AT + 4 * PAGE_LEN;
pub(crate) const FUNCTION_COUNT: usize = 8;

pub(crate) fn ty(number: u32) -> EventTypeId {
    EventTypeId::new(number)
}

/// Returns event types 0 to 3 without elements, and streams 0 and 1 of one source.
pub(crate) fn definitions() -> Definitions {
    let (process, name) = (ProcessId::new(0), StringId::new(0));
    let mut definitions = Definitions::default();
    definitions.add(Definition::Clock(Clock {
        id: ClockId::new(0),
        process,
        name,
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    }));
    definitions.add(Definition::Source(Source {
        id: SourceId::new(0),
        process,
        name,
        description: name,
        ordering: SourceOrder::Ordered,
        clock: ClockId::new(0),
    }));
    for number in 0..4 {
        definitions.add(Definition::EventType(EventType {
            id: ty(number),
            name,
            description: name,
            verbosity: Verbosity::UserBasic,
            role: Role::Point,
            key_element: None,
            elements: Vec::new(),
        }));
    }
    for number in 0..2 {
        definitions.add(Definition::Location(Location {
            id: LocationId::new(number),
            process,
            name,
            kind: LocationKind::Thread,
            system_id: 0,
        }));
        definitions.add(Definition::Stream(Stream {
            id: StreamId::new(number),
            source: SourceId::new(0),
            location: Some(LocationId::new(number)),
        }));
    }
    definitions
}

pub(crate) fn definition_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    definitions().encode(&mut bytes);
    bytes
}

/// Returns an event type with elements of these types.
pub(crate) fn event_type(id: u32, kinds: &[ElementType], is_optional: bool) -> EventType {
    let element = |kind: &ElementType| Element {
        name: StringId::new(0),
        element_type: *kind,
        is_optional,
        reference: Reference::None,
        unit: StringId::new(0),
        original_bits: 0,
    };
    EventType {
        id: ty(id),
        name: StringId::new(0),
        description: StringId::new(0),
        verbosity: Verbosity::UserBasic,
        role: Role::Point,
        key_element: None,
        elements: kinds.iter().map(element).collect(),
    }
}

/// Returns rows of events of these types, a tick apart.
pub(crate) fn rows(types: &[u32]) -> Vec<u8> {
    let mut rows = Vec::new();
    for number in types {
        put_row_start(ty(*number), 0, 1, &mut rows);
    }
    rows
}

/// Returns a chunk of stream 0 with events of these types.
pub(crate) fn chunk(sequence: u64, recorded_before: u64, types: &[u32]) -> (ChunkHeader, Chunk) {
    let mut builder = ChunkBuilder::new(u64::MAX);
    let schema = definitions().schema();
    builder
        .push_rows(&schema, 100 * sequence, &rows(types))
        .unwrap();
    let (mut header, chunk) = builder.finish(STREAM);
    header.sequence = sequence;
    header.before.recorded = recorded_before;
    header.before.raised = recorded_before;
    (header, chunk)
}

/// Returns a chunk of a trace with events of stream 0.
pub(crate) fn trace_chunk(first_ns: i64, count: usize) -> TraceChunk {
    let mut columns = TypeColumns::new(ty(0), std::iter::empty());
    columns.count = count;
    let group = StreamGroup {
        ends: vec![(STREAM, count as u32)],
        times_ns: (0..count as i64).map(|n| first_ns + n).collect(),
        type_index: vec![0; count],
        types: vec![columns],
        tick_residuals: vec![0; count],
        ..StreamGroup::default()
    };
    TraceChunk {
        groups: vec![group],
        losses: Vec::new(),
    }
}

/// Returns a chunk of a trace with one group for each of the first streams, with the given numbers
/// of events.
pub(crate) fn groups(counts: &[usize]) -> TraceChunk {
    let mut chunk = TraceChunk::default();
    for (stream, count) in counts.iter().enumerate() {
        let mut group = trace_chunk(10 * stream as i64, *count).groups.remove(0);
        group.ends[0].0 = StreamId::new(stream as u32);
        chunk.groups.push(group);
    }
    chunk
}

/// Returns a snapshot in which region 7 is open at location 0.
pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        locations: vec![LocationState {
            location: LocationId::new(0),
            last_ns: Some(10),
            has_gap: false,
            has_gap_after_last: false,
            steps: vec![Step::Enter {
                region: RegionId::new(7),
                entered_ns: 10,
                is_uncertain: false,
            }],
        }],
    }
}

/// A file under construction.
pub(crate) struct FileMaker {
    pub(crate) bytes: Vec<u8>,
    footer: Footer,
}

impl FileMaker {
    pub(crate) fn new(kind: FileKind) -> Self {
        let header = FileHeader::new(kind, RecordingId([0; 16]));
        let mut file = Self {
            bytes: header.encode().to_vec(),
            footer: Footer::default(),
        };
        file.footer.definitions = definitions();
        file.block(BlockKind::Definitions, &[], &definition_bytes());
        file
    }

    /// Appends a block; returns its offset.
    pub(crate) fn block(&mut self, kind: BlockKind, head: &[u8], body: &[u8]) -> usize {
        self.block_with(kind, head, body, Content::default())
    }

    fn block_with(&mut self, kind: BlockKind, head: &[u8], body: &[u8], content: Content) -> usize {
        let start = self.bytes.len();
        let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
        writer.write_with(kind, head, body, content, &mut self.bytes);
        start
    }

    pub(crate) fn chunk(&mut self, (header, chunk): (ChunkHeader, Chunk)) -> usize {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        header.encode(&mut head);
        chunk.encode(&mut body);
        let start = self.block_with(BlockKind::Chunk, &head, &body, chunk.content());
        self.footer.chunks.push((start as u64, header));
        start
    }

    /// Appends an index block with the chunks since the previous one; returns its offset.
    pub(crate) fn index_block(&mut self) -> usize {
        let mut index = RecordingIndex::default();
        for (offset, header) in self.footer.chunks.drain(..) {
            let mut head = Vec::new();
            header.encode(&mut head);
            index.add_chunk(offset, &head);
            self.footer.chunks_in_blocks += 1;
        }
        let start = self.block(BlockKind::Index, &[], &index.block());
        self.footer.index_blocks.push(start as u64);
        start
    }

    /// Has the footer name the index blocks this much further on.
    pub(crate) fn move_index_blocks(&mut self, by: u64) {
        let blocks = self.footer.index_blocks.iter_mut();
        blocks.for_each(|offset| *offset += by);
    }

    pub(crate) fn trace_chunk(&mut self, sequence: u64, chunk: &TraceChunk) -> usize {
        let start = self.bytes.len();
        let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
        let header = chunk
            .put_block(sequence, &mut writer, &mut self.bytes)
            .unwrap();
        let entry = TraceIndexEntry::new(start as u64, &header);
        self.footer.trace_chunks.push(entry);
        start
    }

    /// Appends a snapshot: region 7 is open at location 0.
    pub(crate) fn snapshot(&mut self, chunk: u64) -> usize {
        let snapshot = snapshot();
        let (mut head, mut body) = (Vec::new(), Vec::new());
        snapshot.header(chunk).encode(&mut head);
        snapshot.encode(&mut body);
        let start = self.block(BlockKind::Snapshot, &head, &body);
        let offset = start as u64;
        self.footer.snapshots.push(SnapshotEntry { offset, chunk });
        start
    }

    /// Appends statistics of calls: two of region 7.
    pub(crate) fn statistics(&mut self) -> usize {
        let mut calls = CallStatistics {
            calls: 2,
            inclusive_ns: 300,
            exclusive_ns: 250,
            ..CallStatistics::default()
        };
        [100, 200]
            .iter()
            .for_each(|duration| calls.completed.add(*duration));
        let statistics = RegionStatistics {
            regions: vec![(RegionId::new(7), calls)],
        };
        let (mut head, mut body) = (Vec::new(), Vec::new());
        statistics.encode_head(&mut head);
        statistics.encode(&mut body);
        let start = self.block(BlockKind::Statistics, &head, &body);
        self.footer.statistics = Some(start as u64);
        start
    }

    /// Appends the totals of stream 0: raised and recorded of each event type.
    pub(crate) fn totals(&mut self, rows: &[(u32, u64)]) -> usize {
        let mut totals = StreamTotals::new(STREAM);
        for (number, count) in rows {
            let row = totals.row(ty(*number));
            (row.raised, row.recorded) = (*count, *count);
        }
        let mut body = Vec::new();
        totals.encode(&mut body);
        self.footer.totals.push(totals);
        self.block(BlockKind::Totals, &[], &body)
    }

    pub(crate) fn define_in_footer(&mut self, definition: Definition) {
        self.footer.definitions.add(definition);
    }

    /// Appends the footer block; returns its offset.
    pub(crate) fn footer(&mut self) -> usize {
        let mut body = Vec::new();
        self.footer.encode(&mut body);
        self.block(BlockKind::Footer, &[], &body)
    }

    pub(crate) fn finish(&mut self) {
        let start = self.footer();
        self.bytes.extend(encode_tail(start as u64));
    }
}

/// A live file of four pages, 12 slots and two counter segments.
pub(crate) struct LiveMaker {
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn live_header() -> LiveHeader {
    LiveHeader {
        recording_id: RecordingId([0; 16]),
        boot_id: crate::BootId([0; 16]),
        pid: 1,
        process_start: 0,
        page_size: PAGE_LEN as u32,
        page_count: 4,
        pages_offset: PAGES_AT as u64,
        slots_offset: SLOTS_AT as u64,
        slot_count: 12,
        segment_count: 2,
        segments_offset: SEGMENTS_AT as u64,
        definitions_offset: DEFINITIONS_AT as u64,
        definitions_capacity: 4096,
        functions_offset: FUNCTIONS_AT as u64,
        function_count: FUNCTION_COUNT as u32,
    }
}

pub(crate) fn put_word(bytes: &mut [u8], offset: usize, value: u64) {
    LE::write_u64(&mut bytes[offset..], value);
}

impl LiveMaker {
    pub(crate) fn new() -> Self {
        let mut live = Self {
            bytes: vec![
                0;
                FUNCTIONS_AT
                    + l::MODULE_COUNT * l::MODULE_LEN
                    + FUNCTION_COUNT * l::FUNCTION_LEN
            ],
        };
        let header = live_header().encode();
        live.bytes[..header.len()].copy_from_slice(&header);
        live.word(l::STATE, l::STATE_RECORDING);
        let definitions = definition_bytes();
        live.word(l::DEFINITIONS_LEN, definitions.len() as u64);
        live.bytes[DEFINITIONS_AT..][..definitions.len()].copy_from_slice(&definitions);
        live
    }

    pub(crate) fn word(&mut self, offset: usize, value: u64) {
        put_word(&mut self.bytes, offset, value);
    }

    /// Appends a definition.
    pub(crate) fn define(&mut self, definition: &Definition) {
        let length = LE::read_u64(&self.bytes[l::DEFINITIONS_LEN..]) as usize;
        let mut record = Vec::new();
        definition.encode(&mut record);
        self.bytes[DEFINITIONS_AT + length..][..record.len()].copy_from_slice(&record);
        self.word(l::DEFINITIONS_LEN, (length + record.len()) as u64);
    }

    /// Fills in module entry `number`.
    pub(crate) fn module(&mut self, number: usize, base: u64, path: &[u8], build_id: &[u8]) {
        let at = FUNCTIONS_AT + number * l::MODULE_LEN;
        let lengths = path.len() << 32 | build_id.len() << 48;
        self.word(at + l::MODULE_STATE, 1 | lengths as u64);
        self.word(at + l::MODULE_BASE, base);
        self.bytes[at + l::MODULE_BUILD_ID..][..build_id.len()].copy_from_slice(build_id);
        self.bytes[at + l::MODULE_PATH..][..path.len()].copy_from_slice(path);
    }

    /// Fills in function entry `number`: its region and address, and its module's base and entry.
    pub(crate) fn function(
        &mut self,
        number: usize,
        region: u32,
        address: u64,
        (base, module): (u64, u64),
    ) {
        let entries = FUNCTIONS_AT + l::MODULE_COUNT * l::MODULE_LEN;
        let at = entries + number * l::FUNCTION_LEN;
        let state = u64::from(l::FUNCTION_OF_MODULE) | u64::from(region) << 32;
        self.word(at + l::FUNCTION_STATE, state);
        self.word(at + l::FUNCTION_ADDRESS, address);
        self.word(at + l::FUNCTION_BASE, base);
        self.word(at + l::FUNCTION_MODULE, module);
    }

    /// Makes slot `number` that of a stream whose segment is `number`, too.
    pub(crate) fn slot(&mut self, number: usize, stream: u32, recorded: u64) -> usize {
        let at = SLOTS_AT + number * l::SLOT_LEN;
        LE::write_u32(&mut self.bytes[at + l::SLOT_STREAM..], stream + 1);
        self.word(at + l::SLOT_RECORDED, recorded);
        LE::write_u16(&mut self.bytes[at + l::SLOT_SEGMENTS..], number as u16 + 1);
        at
    }

    /// Counters of an event type in a segment.
    pub(crate) fn raised(&mut self, segment: usize, event_type: u32, raised: u64) -> usize {
        let at = SEGMENTS_AT + segment * l::SEGMENT_LEN + event_type as usize * l::ROW_LEN;
        self.word(at + l::ROW_RAISED, raised);
        at
    }

    pub(crate) fn page(
        &mut self,
        number: usize,
        (sequence, recorded_before): (u64, u64),
        events: u64,
        rows: &[u8],
    ) -> usize {
        let at = PAGES_AT + number * PAGE_LEN;
        self.word(at + l::PAGE_STREAM, u64::from(STREAM.get()) + 1);
        self.word(at + l::PAGE_SEQUENCE, sequence);
        self.word(at + l::PAGE_RECORDED, recorded_before);
        self.word(at + l::PAGE_COMMIT, events << 32 | rows.len() as u64);
        self.bytes[at + l::PAGE_HEADER_LEN..][..rows.len()].copy_from_slice(rows);
        at
    }

    pub(crate) fn image(&self) -> LiveImage {
        LiveImage::read(&self.bytes).unwrap()
    }
}

/// A change of the bytes after one of these offsets was read.
type Change = Box<dyn FnMut(&mut Vec<u8>, u64) + Send>;

/// A live file that its recorder writes to while it is read.
pub(crate) struct Changing(Mutex<(Vec<u8>, Change)>);

impl Changing {
    pub(crate) fn new(
        live: LiveMaker,
        change: impl FnMut(&mut Vec<u8>, u64) + Send + 'static,
    ) -> Self {
        Self(Mutex::new((live.bytes, Box::new(change))))
    }
}

impl ReadAt for Changing {
    fn len(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (bytes, change) = &mut *self.0.lock().unwrap();
        bytes.as_slice().read_exact_at(offset, buffer)?;
        change(bytes, offset);
        Ok(())
    }
}
