//! Recordings of known events, written block by block: imports of foreign traces, and tests.

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;

use crate::wire::Put;
use crate::{
    ANY_EVENT_TYPE, BlockKind, BlockWriter, BootId, Cause, ChunkBuilder, ChunkHeader, Clock,
    ClockId, ClockKind, CompressionLevel, Cumulative, Definition, Definitions, DroppedRecord,
    Element, ElementType, EventType, EventTypeId, FileHeader, FileKind, Footer, Location,
    LocationId, LocationKind, Object, ObjectId, Process, ProcessId, ROW_OBSERVATION, Rank,
    RecordingId, Reference, Region, RegionId, Result, Role, Schema, Source, SourceId, SourceOrder,
    Stream, StreamId, StreamTotals, StringId, Value, Verbosity, encode_tail, put_dropped_row,
    put_row_start,
};

/// The process that a recording is of.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSpec<'a> {
    /// Identity of the recording.
    pub recording_id: RecordingId,
    /// Name of the run.
    pub run: &'a str,
    /// Name of the host.
    pub host: &'a str,
    /// Identity of the host's boot.
    pub boot_id: BootId,
    /// Process id.
    pub pid: u32,
    /// Wall clock at the start, nanoseconds.
    pub start_unix_ns: i64,
    /// Reference clock at the start, nanoseconds.
    pub start_reference_ns: i64,
    /// Command line.
    pub command: &'a str,
}

/// A clock of the process.
#[derive(Clone, Copy, Debug)]
pub struct ClockSpec {
    /// How it is read.
    pub kind: ClockKind,
    /// Its rate.
    pub ticks_per_second: u64,
    /// Bound of the rate's error, parts per 10⁹.
    pub rate_error_ppb: u32,
    /// Its largest tick.
    pub max_ticks: u64,
}

/// An element of an event type.
#[derive(Clone, Copy, Debug)]
pub struct ElementSpec<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type.
    pub element_type: ElementType,
    /// Whether an event may be without it.
    pub is_optional: bool,
    /// What its value refers to.
    pub reference: Reference,
    /// Its unit; empty means none.
    pub unit: &'a str,
    /// Bits of the type that it has in the program; 0 means those of `element_type`.
    pub original_bits: u8,
}

impl<'a> ElementSpec<'a> {
    /// Returns an element that every event has, a plain value without unit.
    pub const fn new(name: &'a str, element_type: ElementType) -> Self {
        Self {
            name,
            element_type,
            is_optional: false,
            reference: Reference::None,
            unit: "",
            original_bits: 0,
        }
    }

    /// Returns an element whose value refers to something.
    pub const fn referring(mut self, reference: Reference) -> Self {
        self.reference = reference;
        self
    }
}

/// What has been written of a stream.
#[derive(Debug)]
struct StreamState {
    max_ticks: u64,
    chunks: u64,
    before: Cumulative,
    predecessor_counts: Vec<(EventTypeId, u64)>,
    dropped: BTreeMap<Option<EventTypeId>, u64>,
    totals: StreamTotals,
}

/// Makes a recording: first its definitions, then chunks in any order of their streams, then the footer. Ids are
/// given in ascending order from 0.
///
/// Methods panic if they are called out of this order, or name what has not been defined.
///
/// ```
/// use annals_format::{
///     BootId, ClockKind, CompressionLevel, ElementType, LocationKind, RecordingId, Role, SourceOrder, Value,
/// };
/// use annals_format::{ClockSpec, ElementSpec, ProcessSpec, RecordingBuilder};
///
/// let process = ProcessSpec {
///     recording_id: RecordingId([1; 16]),
///     run: "run",
///     host: "host",
///     boot_id: BootId([7; 16]),
///     pid: 1,
///     start_unix_ns: 0,
///     start_reference_ns: 0,
///     command: "program",
/// };
/// let mut builder = RecordingBuilder::new(&process, CompressionLevel::None)?;
/// builder.rank(0, Some(1));
/// let clock = builder.clock("clock", &ClockSpec {
///     kind: ClockKind::Reference,
///     ticks_per_second: 1_000_000_000,
///     rate_error_ppb: 0,
///     max_ticks: u64::MAX,
/// });
/// let source = builder.source("program", SourceOrder::Ordered, clock);
/// let location = builder.location("main", LocationKind::Thread, 0);
/// let stream = builder.stream(source, location, 0);
/// let number = ElementSpec::new("number", ElementType::U64);
/// let mark = builder.event_type("mark", Role::Point, &[number]);
/// let mut rows = builder.chunk(stream, 10);
/// rows.event(mark, 10, &[Value::U64(1)]);
/// rows.dropped(Some(mark), 3, 11, 19);
/// rows.finish(20)?;
/// builder.close_stream(stream, 30);
/// let bytes = builder.finish();
/// # assert!(annals_format::Recording::read(&bytes, None, |_| false).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RecordingBuilder {
    id: RecordingId,
    /// By text.
    strings: FxHashMap<String, StringId>,
    definitions: Definitions,
    /// The schema of the definitions, once they are written.
    schema: Option<Schema>,
    blocks: BlockWriter,
    streams: Vec<StreamState>,
    index: Vec<(u64, ChunkHeader)>,
    bytes: Vec<u8>,
    /// Bytes of the recording that [`RecordingBuilder::write_to`] has taken out of `bytes`.
    taken: u64,
}

impl std::fmt::Debug for RecordingBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordingBuilder")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

const PROCESS: ProcessId = ProcessId::new(0);

impl RecordingBuilder {
    /// Starts the recording of a process.
    ///
    /// # Errors
    /// If the compressor cannot be set up.
    pub fn new(process: &ProcessSpec<'_>, level: CompressionLevel) -> std::io::Result<Self> {
        let header = FileHeader::new(FileKind::Recording, process.recording_id);
        let mut builder = Self {
            id: process.recording_id,
            strings: FxHashMap::from_iter([(String::new(), StringId::new(0))]),
            definitions: Definitions::default(),
            schema: None,
            blocks: BlockWriter::new(level)?,
            streams: Vec::new(),
            index: Vec::new(),
            bytes: header.encode().to_vec(),
            taken: 0,
        };
        let run = builder.string(process.run);
        let host = builder.string(process.host);
        let command = builder.string(process.command);
        builder.define(Definition::Process(Process {
            id: PROCESS,
            recording_id: builder.id,
            run,
            host,
            boot_id: process.boot_id,
            pid: process.pid,
            start_unix_ns: process.start_unix_ns,
            start_reference_ns: process.start_reference_ns,
            command,
        }));
        Ok(builder)
    }

    /// Starts a recording whose definitions, streams among them, are complete. Its chunks are written as
    /// [blocks](RecordingBuilder::block).
    ///
    /// # Errors
    /// If the compressor cannot be set up.
    pub fn with_definitions(
        id: RecordingId,
        definitions: Definitions,
        level: CompressionLevel,
    ) -> std::io::Result<Self> {
        let header = FileHeader::new(FileKind::Recording, id);
        let mut builder = Self {
            id,
            strings: FxHashMap::default(),
            definitions,
            schema: None,
            blocks: BlockWriter::new(level)?,
            streams: Vec::new(),
            index: Vec::new(),
            bytes: header.encode().to_vec(),
            taken: 0,
        };
        builder.write_definitions();
        Ok(builder)
    }

    /// Appends the [block](crate::Chunk::put_block) of a chunk with this head. Without a block, the chunk is in the index only: a
    /// recording whose events are not read.
    pub fn block(&mut self, header: ChunkHeader, block: &[u8]) {
        self.write_definitions();
        let offset = self.taken + self.bytes.len() as u64;
        self.index.push((offset, header));
        self.bytes.extend_from_slice(block);
    }

    /// Returns the id of a string, which is defined if it is new.
    pub fn string(&mut self, text: &str) -> StringId {
        let next = StringId::new(self.strings.len() as u32);
        match self.strings.get(text) {
            Some(id) => *id,
            None => {
                self.strings.insert(text.to_owned(), next);
                next
            }
        }
    }

    /// Adds a definition that has no method here.
    pub fn define(&mut self, definition: Definition) {
        assert!(self.schema.is_none(), "definitions come before chunks");
        self.definitions.add(definition);
    }

    /// Defines the rank of the process.
    pub fn rank(&mut self, rank: u32, rank_count: Option<u32>) {
        self.define(Definition::Rank(Rank {
            process: PROCESS,
            rank,
            rank_count,
            is_assigned: false,
        }));
    }

    /// Defines a clock.
    pub fn clock(&mut self, name: &str, clock: &ClockSpec) -> ClockId {
        let id = ClockId::new(self.definitions.clocks.len() as u32);
        let name = self.string(name);
        self.define(Definition::Clock(Clock {
            id,
            process: PROCESS,
            name,
            kind: clock.kind,
            ticks_per_second: clock.ticks_per_second,
            rate_error_ppb: clock.rate_error_ppb,
            max_ticks: clock.max_ticks,
        }));
        id
    }

    /// Defines a source.
    pub fn source(&mut self, name: &str, ordering: SourceOrder, clock: ClockId) -> SourceId {
        let id = SourceId::new(self.definitions.sources.len() as u32);
        let (name, description) = (self.string(name), self.string(""));
        self.define(Definition::Source(Source {
            id,
            process: PROCESS,
            name,
            description,
            ordering,
            clock,
        }));
        id
    }

    /// Defines a location.
    pub fn location(&mut self, name: &str, kind: LocationKind, system_id: u64) -> LocationId {
        let id = LocationId::new(self.definitions.locations.len() as u32);
        let name = self.string(name);
        self.define(Definition::Location(Location {
            id,
            process: PROCESS,
            name,
            kind,
            system_id,
        }));
        id
    }

    /// Defines an object, such as a window.
    pub fn object(&mut self, kind: &str, name: &str) -> ObjectId {
        let id = ObjectId::new(self.definitions.objects.len() as u32);
        let (kind, name) = (self.string(kind), self.string(name));
        self.define(Definition::Object(Object {
            id,
            process: PROCESS,
            kind,
            name,
        }));
        id
    }

    /// Defines a stream, opened at a tick of its source's clock.
    pub fn stream(&mut self, source: SourceId, location: LocationId, open_tick: u64) -> StreamId {
        let id = StreamId::new(self.streams.len() as u32);
        let clock = self.definitions.sources[&source].clock;
        let mut totals = StreamTotals::new(id);
        (totals.last_tick, totals.close_tick) = (open_tick, open_tick);
        self.streams.push(StreamState {
            max_ticks: self.definitions.clocks[&clock].max_ticks,
            chunks: 0,
            before: Cumulative::default(),
            predecessor_counts: Vec::new(),
            dropped: BTreeMap::new(),
            totals,
        });
        self.define(Definition::Stream(Stream {
            id,
            source,
            location: Some(location),
        }));
        id
    }

    /// Defines an event type. The first element of an interval's begin or end is its key.
    pub fn event_type(
        &mut self,
        name: &str,
        role: Role,
        elements: &[ElementSpec<'_>],
    ) -> EventTypeId {
        let id = EventTypeId::new(self.definitions.event_types.len() as u32);
        let (name, description) = (self.string(name), self.string(""));
        let elements = elements.iter().map(|element| Element {
            name: self.string(element.name),
            element_type: element.element_type,
            is_optional: element.is_optional,
            reference: element.reference,
            unit: self.string(element.unit),
            original_bits: element.original_bits,
        });
        let elements = elements.collect();
        self.define(Definition::EventType(EventType {
            id,
            name,
            description,
            verbosity: Verbosity::UserBasic,
            role,
            key_element: matches!(role, Role::Begin | Role::End).then_some(0),
            elements,
        }));
        id
    }

    /// Defines a region. An empty file or group means none.
    pub fn region(&mut self, name: &str, file: &str, line: u32, group: &str) -> RegionId {
        let id = RegionId::new(self.definitions.regions.len() as u32);
        let [name, file, group] = [name, file, group].map(|text| self.string(text));
        self.define(Definition::Region(Region {
            id,
            name,
            file,
            line,
            group,
        }));
        id
    }

    /// Writes the definitions, unless they have been written.
    fn write_definitions(&mut self) {
        if self.schema.is_some() {
            return;
        }
        for (text, id) in std::mem::take(&mut self.strings) {
            self.definitions.add(Definition::String(id, text));
        }
        self.definitions.tidy();
        self.schema = Some(self.definitions.schema());
        let mut records = Vec::new();
        self.definitions.encode(&mut records);
        self.blocks
            .write(BlockKind::Definitions, &[], &records, &mut self.bytes);
    }

    /// Begins a chunk of a stream, which was opened at a time of the reference clock.
    pub fn chunk(&mut self, stream: StreamId, open_reference_ns: i64) -> ChunkRows<'_> {
        self.write_definitions();
        ChunkRows {
            recording: self,
            stream,
            open_reference_ns,
            rows: Vec::new(),
            base_tick: None,
            last_tick: 0,
        }
    }

    /// Sets the tick at which a stream is closed; without it, that is the tick of its last event.
    pub fn close_stream(&mut self, stream: StreamId, close_tick: u64) {
        self.streams[stream.index()].totals.close_tick = close_tick;
    }

    /// Moves the bytes that there are so far into a file, so that memory is bounded by a chunk.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write_to(&mut self, file: &mut impl Write) -> std::io::Result<()> {
        file.write_all(&self.bytes)?;
        self.taken += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the footer, and returns the bytes that [`RecordingBuilder::write_to`] has not taken.
    pub fn finish(mut self) -> Vec<u8> {
        let streams = std::mem::take(&mut self.streams).into_iter();
        let totals: Vec<StreamTotals> = streams.map(|stream| stream.totals).collect();
        self.finish_with(totals)
    }

    /// Does what [`RecordingBuilder::finish`] does, with these totals of the streams.
    pub fn finish_with(mut self, totals: Vec<StreamTotals>) -> Vec<u8> {
        self.write_definitions();
        let offset = self.taken + self.bytes.len() as u64;
        let footer = Footer {
            definitions: self.definitions,
            chunks: self.index,
            totals,
            ..Footer::default()
        };
        let mut body = Vec::new();
        footer.encode(&mut body);
        self.blocks
            .write(BlockKind::Footer, &[], &body, &mut self.bytes);
        self.bytes.extend_from_slice(&encode_tail(offset));
        self.bytes
    }

    /// Returns the bytes without a footer, as a process that was killed leaves them.
    pub fn finish_without_footer(mut self) -> Vec<u8> {
        self.write_definitions();
        self.bytes
    }
}

/// The rows of a chunk in the making.
#[derive(Debug)]
pub struct ChunkRows<'a> {
    recording: &'a mut RecordingBuilder,
    stream: StreamId,
    open_reference_ns: i64,
    rows: Vec<u8>,
    /// Tick of the first event.
    base_tick: Option<u64>,
    last_tick: u64,
}

impl ChunkRows<'_> {
    /// Returns the length of the rows in bytes.
    pub fn byte_len(&self) -> usize {
        self.rows.len()
    }

    /// Appends an event with a value for each element of its type.
    pub fn event(&mut self, event_type: EventTypeId, tick: u64, values: &[Value<'_>]) {
        self.base_tick.get_or_insert_with(|| {
            self.last_tick = tick;
            tick
        });
        put_row_start(event_type, self.last_tick, tick, &mut self.rows);
        self.last_tick = tick;
        let schema = self.recording.schema.as_ref();
        let schema = schema.and_then(|schema| schema.get(event_type));
        let Some(schema) = schema else {
            panic!("the event type is not defined");
        };
        assert_eq!(schema.elements.len(), values.len(), "a value an element");
        if schema.has_optional() {
            let start = self.rows.len();
            self.rows.resize(start + values.len().div_ceil(8), 0);
            for (index, value) in values.iter().enumerate() {
                let is_present = !matches!(value, Value::Absent);
                self.rows[start + index / 8] |= u8::from(is_present) << (index % 8);
            }
        }
        for value in values {
            put_value(value, &mut self.rows);
        }
    }

    /// Appends an observation: the reference clock when the next event was recorded.
    pub fn observation(&mut self, reference_ns: i64) {
        self.rows.put_varint(ROW_OBSERVATION);
        self.rows.put_signed(reference_ns);
    }

    /// Appends a loss of a number of events between two ticks. `None` means events of any type.
    pub fn dropped(
        &mut self,
        event_type: Option<EventTypeId>,
        count: u64,
        from_tick: u64,
        to_tick: u64,
    ) {
        let state = &mut self.recording.streams[self.stream.index()];
        let cumulative = state.dropped.entry(event_type).or_default();
        *cumulative += count;
        let record = DroppedRecord {
            event_type,
            cause: Cause::BufferFull,
            count,
            is_lower_bound: false,
            cumulative: *cumulative,
            from_tick,
            to_tick,
        };
        put_dropped_row(&record, &mut self.rows);
        let row = state.totals.row(event_type.unwrap_or(ANY_EVENT_TYPE));
        row.raised += count;
        row.add_loss(Cause::BufferFull, count);
    }

    /// Writes the chunk, which was closed at a time of the reference clock.
    ///
    /// # Errors
    /// If the chunk has more events, values or event types than a chunk may have (see [`ChunkBuilder::push_rows`]).
    pub fn finish(self, close_reference_ns: i64) -> Result<()> {
        self.end(close_reference_ns, true)
    }

    /// Counts the chunk as written, but leaves it out of the file.
    ///
    /// # Errors
    /// Those of [`ChunkRows::finish`].
    pub fn leave_out(self, close_reference_ns: i64) -> Result<()> {
        self.end(close_reference_ns, false)
    }

    fn end(self, close_reference_ns: i64, is_written: bool) -> Result<()> {
        let recording = self.recording;
        let state = &mut recording.streams[self.stream.index()];
        let schema = recording.schema.get_or_insert_default();
        // Not kept: a trace of many processes has as many builders.
        let mut builder = ChunkBuilder::new(state.max_ticks);
        let base_tick = self.base_tick.unwrap_or(0);
        builder.push_rows(schema, base_tick, &self.rows)?;
        let (mut header, chunk) = builder.finish(self.stream);
        header.sequence = state.chunks;
        header.open_reference_ns = self.open_reference_ns;
        header.close_reference_ns = close_reference_ns;
        header.before = state.before;
        header.predecessor_counts =
            std::mem::replace(&mut state.predecessor_counts, header.counts.clone());
        state.chunks += 1;
        state.before.raised += header.event_count + header.dropped_count;
        state.before.recorded += header.event_count;
        state.before.dropped += header.dropped_count;
        let totals = &mut state.totals;
        for (event_type, count) in &header.counts {
            let row = totals.row(*event_type);
            row.raised += count;
            row.recorded += count;
        }
        totals.inversions += header.inversions;
        totals.largest_lateness = totals.largest_lateness.max(header.largest_lateness);
        if header.event_count != 0 {
            (totals.last_tick, totals.close_tick) = (header.last_tick, header.last_tick);
        }
        if !is_written {
            return Ok(());
        }
        let offset = recording.taken + recording.bytes.len() as u64;
        chunk.put_block(&header, &mut recording.blocks, &mut recording.bytes);
        recording.index.push((offset, header));
        Ok(())
    }
}

/// Appends a value as a row has it.
fn put_value(value: &Value<'_>, row: &mut Vec<u8>) {
    match *value {
        Value::I32(value) => row.put_signed(value.into()),
        Value::I64(value) => row.put_signed(value),
        Value::U32(value) => row.put_varint(value.into()),
        Value::U64(value) => row.put_varint(value),
        Value::F64(value) => row.extend_from_slice(&value.to_bits().to_le_bytes()),
        Value::String(bytes) | Value::Bytes(bytes) => row.put_bytes(bytes),
        Value::Absent => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recording;

    /// A recording with two events and a loss between them, whole or without its footer.
    fn recording(has_footer: bool) -> Vec<u8> {
        let process = ProcessSpec {
            recording_id: RecordingId([1; 16]),
            run: "run",
            host: "host",
            boot_id: BootId([7; 16]),
            pid: 1,
            start_unix_ns: 0,
            start_reference_ns: 0,
            command: "program",
        };
        let mut builder =
            RecordingBuilder::new(&process, CompressionLevel::Zstd(1)).expect("a builder");
        builder.rank(3, Some(4));
        let clock = builder.clock(
            "clock",
            &ClockSpec {
                kind: ClockKind::Reference,
                ticks_per_second: 1_000_000_000,
                rate_error_ppb: 0,
                max_ticks: u64::MAX,
            },
        );
        let source = builder.source("program", SourceOrder::Ordered, clock);
        let location = builder.location("main", LocationKind::Thread, 0);
        let stream = builder.stream(source, location, 0);
        let mut text = ElementSpec::new("text", ElementType::String);
        text.is_optional = true;
        let elements = [ElementSpec::new("number", ElementType::I64), text];
        let note = builder.event_type("note", Role::Point, &elements);
        let mut rows = builder.chunk(stream, 10);
        rows.event(note, 10, &[Value::I64(-5), Value::Absent]);
        rows.dropped(Some(note), 3, 11, 19);
        rows.event(note, 20, &[Value::I64(6), Value::String(b"six")]);
        rows.finish(20).expect("a chunk");
        let mut file = Vec::new();
        builder.write_to(&mut file).expect("memory");
        builder.close_stream(stream, 30);
        file.extend(if has_footer {
            builder.finish()
        } else {
            builder.finish_without_footer()
        });
        file
    }

    #[test]
    fn what_is_written_is_read() {
        for has_footer in [true, false] {
            let bytes = recording(has_footer);
            let read = Recording::read(&bytes, None, |_| false).expect("a recording");
            assert_eq!(read.has_footer, has_footer);
            assert!(read.problems.is_empty());
            let stream = &read.streams[&StreamId::new(0)];
            let chunk = read.load(&bytes, &stream.chunks[0]).expect("a chunk");
            assert_eq!(chunk.ticks, [10, 20]);
            let row = &stream.totals.rows[0];
            // Without the footer, what was dropped after the last chunk is not known.
            let raised = if has_footer { 5 } else { 2 };
            assert_eq!((row.raised, row.recorded), (raised, 2));
            assert_eq!(row.raised_is_lower_bound, !has_footer);
        }
    }

    #[test]
    #[should_panic(expected = "definitions come before chunks")]
    fn a_definition_after_a_chunk_is_refused() {
        let process = ProcessSpec {
            recording_id: RecordingId([1; 16]),
            run: "",
            host: "",
            boot_id: BootId([0; 16]),
            pid: 0,
            start_unix_ns: 0,
            start_reference_ns: 0,
            command: "",
        };
        let mut builder =
            RecordingBuilder::new(&process, CompressionLevel::None).expect("a builder");
        builder.chunk(StreamId::new(0), 0);
        builder.rank(0, None);
    }
}
