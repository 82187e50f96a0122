//! What several tests need: recordings made byte by byte, without the recorder.
#![allow(dead_code, unreachable_pub, reason = "every test uses its part of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::wire::Put;
use annals_format::{
    BlockKind, BlockWriter, CalibrationPoint, Cause, ChunkBuilder, ChunkHeader, Clock, ClockId,
    ClockKind, CompressionLevel, Cumulative, Definition, Definitions, DroppedRecord, Element,
    ElementType, EventType, EventTypeId, FileHeader, FileKind, Footer, Location, LocationId,
    LocationKind, Process, ProcessId, ROW_OBSERVATION, Rank, RecordingId, Reference, Region,
    RegionId, Role, Source, SourceId, SourceOrder, Stream, StreamId, StreamTotals, StringId,
    Verbosity, encode_tail, put_dropped_row, put_row_start,
};
use annals_merger::{Reader, Sums};

/// Returns the sums of a recording, or of several, by event type name; every row of them adds up, and no stream is
/// miscounted.
pub fn sums_by_type(path: &Path) -> BTreeMap<String, Sums> {
    let opened = Reader::open(path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let mut by_type: BTreeMap<String, Vec<StreamTotals>> = BTreeMap::new();
    for totals in &outcome.totals {
        for row in &totals.rows {
            assert!(row.is_balanced(), "{row:?}");
            let mut one = StreamTotals::new(totals.stream);
            one.rows.push(row.clone());
            let name = opened.definitions().event_type_name(row.event_type);
            by_type.entry(name).or_default().push(one);
        }
    }
    if let Some(report) = outcome.report {
        assert!(report.streams.iter().all(|stream| stream.miscounted == 0));
    }
    let each = by_type.into_iter();
    each.map(|(name, totals)| (name, Sums::of(&totals)))
        .collect()
}

/// The event type with one element, a number: `mark(number: u64)`.
pub const MARK: EventTypeId = EventTypeId::new(0);
/// `enter(region)`.
pub const ENTER: EventTypeId = EventTypeId::new(1);
/// `leave(region)`.
pub const LEAVE: EventTypeId = EventTypeId::new(2);

/// The event type with a text, of recordings that have one: `note(number: u64, text: string)`.
pub const NOTE: EventTypeId = EventTypeId::new(3);

/// What happens in a stream.
#[derive(Clone, Debug)]
pub enum Row {
    /// An event: type, raw tick, its one element.
    Event(EventTypeId, u64, u64),
    /// A [`NOTE`]: raw tick, its elements.
    Note(u64, u64, String),
    /// The reference clock, nanoseconds.
    Observation(i64),
    /// A loss of a number of events of a type between two raw ticks.
    Dropped(Option<EventTypeId>, u64, u64, u64),
}

/// A clock of the recording.
#[derive(Clone, Copy, Debug)]
pub struct TestClock {
    /// How it is read.
    pub kind: ClockKind,
    /// Its rate.
    pub ticks_per_second: u64,
    /// Its largest tick.
    pub max_ticks: u64,
    /// The tick at reference time 0.
    pub tick_at_zero: u64,
}

impl TestClock {
    /// Returns the raw tick at a reference time that is a whole number of ticks.
    pub fn tick(&self, reference_ns: i64) -> u64 {
        let passed = i128::from(reference_ns) * i128::from(self.ticks_per_second);
        assert_eq!(passed % 1_000_000_000, 0, "a whole number of ticks");
        let tick = i128::from(self.tick_at_zero) + passed / 1_000_000_000;
        tick.rem_euclid(i128::from(self.max_ticks) + 1) as u64
    }
}

/// A stream of the recording: chunks of rows, each with the reference time at which it was opened.
#[derive(Clone, Debug)]
pub struct TestStream {
    /// Index of its clock.
    pub clock: usize,
    /// What its source promises.
    pub ordering: SourceOrder,
    /// Chunks.
    pub chunks: Vec<(i64, Vec<Row>)>,
}

/// A recording to be written.
#[derive(Clone, Debug)]
pub struct TestRecording {
    /// Rank, if it has one.
    pub rank: Option<u32>,
    /// Number of ranks, if it knows.
    pub rank_count: Option<u32>,
    /// Its identity, by its last byte.
    pub id: u16,
    /// Start, reference nanoseconds.
    pub start_ns: i64,
    /// End, reference nanoseconds.
    pub end_ns: i64,
    /// Clocks; each gets calibration points at start and end.
    pub clocks: Vec<TestClock>,
    /// Streams, each with a separate source and location.
    pub streams: Vec<TestStream>,
    /// Whether there is a footer.
    pub has_footer: bool,
}

struct Strings {
    known: Vec<String>,
}

impl Strings {
    fn id(&mut self, text: &str) -> StringId {
        let found = self.known.iter().position(|known| known == text);
        let index = found.unwrap_or_else(|| {
            self.known.push(text.to_owned());
            self.known.len() - 1
        });
        StringId::new(index as u32)
    }
}

/// Regions that every such recording defines.
pub const REGION_NAMES: [&str; 4] = ["main", "solve", "exchange", "write"];

impl TestRecording {
    fn definitions(&self, run: &str) -> Definitions {
        let process = ProcessId::new(0);
        let mut strings = Strings { known: Vec::new() };
        let empty = strings.id("");
        let mut d = Definitions::default();
        d.add(Definition::Process(Process {
            id: process,
            recording_id: self.recording_id(),
            run: strings.id(run),
            host: strings.id("host"),
            boot_id: annals_format::BootId([7; 16]),
            pid: 1000 + u32::from(self.id),
            start_unix_ns: 1_700_000_000_000_000_000 + self.start_ns,
            start_reference_ns: self.start_ns,
            command: strings.id("a test"),
        }));
        if let Some(rank) = self.rank {
            d.add(Definition::Rank(Rank {
                process,
                rank,
                rank_count: self.rank_count,
                is_assigned: false,
            }));
        }
        for (number, clock) in self.clocks.iter().enumerate() {
            let id = ClockId::new(number as u32);
            d.add(Definition::Clock(Clock {
                id,
                process,
                name: strings.id(&format!("clock {number}")),
                kind: clock.kind,
                ticks_per_second: clock.ticks_per_second,
                rate_error_ppb: 0,
                max_ticks: clock.max_ticks,
            }));
            if clock.kind != ClockKind::Unreadable {
                for reference_ns in [self.start_ns, self.end_ns] {
                    d.add(Definition::Calibration(CalibrationPoint {
                        clock: id,
                        tick: clock.tick(reference_ns),
                        reference_ns,
                        error_ns: 0,
                        unix_offset_ns: 1_700_000_000_000_000_000,
                    }));
                }
            }
        }
        for (number, stream) in self.streams.iter().enumerate() {
            let number = number as u32;
            d.add(Definition::Source(Source {
                id: SourceId::new(number),
                process,
                name: strings.id(&format!("source {number}")),
                description: empty,
                ordering: stream.ordering,
                clock: ClockId::new(stream.clock as u32),
            }));
            d.add(Definition::Location(Location {
                id: LocationId::new(number),
                process,
                name: strings.id(&format!("thread {number}")),
                kind: LocationKind::Thread,
                system_id: u64::from(number),
            }));
            d.add(Definition::Stream(Stream {
                id: StreamId::new(number),
                source: SourceId::new(number),
                location: Some(LocationId::new(number)),
            }));
        }
        for (id, name, role, element, reference) in [
            (MARK, "mark", Role::Point, "number", Reference::None),
            (ENTER, "enter", Role::Enter, "region", Reference::Region),
            (LEAVE, "leave", Role::Leave, "region", Reference::Region),
        ] {
            d.add(Definition::EventType(EventType {
                id,
                name: strings.id(name),
                description: empty,
                verbosity: Verbosity::UserBasic,
                role,
                key_element: None,
                elements: vec![Element {
                    name: strings.id(element),
                    element_type: ElementType::U64,
                    is_optional: false,
                    reference,
                    unit: empty,
                    original_bits: 0,
                }],
            }));
        }
        let rows = self.streams.iter().flat_map(|stream| &stream.chunks);
        let mut rows = rows.flat_map(|(_, rows)| rows);
        if rows.any(|row| matches!(row, Row::Note(..))) {
            let elements = [("number", ElementType::U64), ("text", ElementType::String)];
            let elements = elements.map(|(name, element_type)| Element {
                name: strings.id(name),
                element_type,
                is_optional: false,
                reference: Reference::None,
                unit: empty,
                original_bits: 0,
            });
            d.add(Definition::EventType(EventType {
                id: NOTE,
                name: strings.id("note"),
                description: empty,
                verbosity: Verbosity::UserBasic,
                role: Role::Point,
                key_element: None,
                elements: elements.to_vec(),
            }));
        }
        for (number, name) in REGION_NAMES.iter().enumerate() {
            d.add(Definition::Region(Region {
                id: RegionId::new(number as u32),
                name: strings.id(name),
                file: empty,
                line: 0,
                group: empty,
            }));
        }
        for (number, text) in strings.known.into_iter().enumerate() {
            d.add(Definition::String(StringId::new(number as u32), text));
        }
        d.tidy();
        d
    }

    /// Returns its identity.
    pub fn recording_id(&self) -> RecordingId {
        let mut id = [0x11; 16];
        id[14..].copy_from_slice(&self.id.to_be_bytes());
        RecordingId(id)
    }

    /// Returns the recording's bytes.
    pub fn encode(&self, level: CompressionLevel) -> Vec<u8> {
        self.encode_of_run("test", level)
    }

    /// Returns the recording's bytes, as part of the run `run`.
    pub fn encode_of_run(&self, run: &str, level: CompressionLevel) -> Vec<u8> {
        let definitions = self.definitions(run);
        let schema = definitions.schema();
        let mut blocks = BlockWriter::new(level).expect("a block writer");
        let mut out = FileHeader::new(FileKind::Recording, self.recording_id())
            .encode()
            .to_vec();
        let mut records = Vec::new();
        definitions.encode(&mut records);
        blocks.write(BlockKind::Definitions, &[], &records, &mut out);
        let mut index: Vec<(u64, ChunkHeader)> = Vec::new();
        let mut totals = Vec::new();
        for (number, stream) in self.streams.iter().enumerate() {
            let id = StreamId::new(number as u32);
            let clock = self.clocks[stream.clock];
            let mut of_stream = StreamTotals::new(id);
            let mut before = Cumulative::default();
            let mut predecessor = Vec::new();
            let mut cumulative = std::collections::BTreeMap::new();
            of_stream.last_tick = clock.tick(self.start_ns);
            for (sequence, (open_ns, rows)) in stream.chunks.iter().enumerate() {
                let mut bytes = Vec::new();
                let base = rows.iter().find_map(|row| match row {
                    Row::Event(_, tick, _) | Row::Note(tick, ..) => Some(*tick),
                    _ => None,
                });
                let mut previous = base.unwrap_or(0);
                for row in rows {
                    match row {
                        Row::Event(event_type, tick, value) => {
                            put_row_start(*event_type, previous, *tick, &mut bytes);
                            bytes.put_varint(*value);
                            previous = *tick;
                        }
                        Row::Note(tick, number, text) => {
                            put_row_start(NOTE, previous, *tick, &mut bytes);
                            bytes.put_varint(*number);
                            bytes.put_bytes(text.as_bytes());
                            previous = *tick;
                        }
                        Row::Observation(reference_ns) => {
                            bytes.put_varint(ROW_OBSERVATION);
                            bytes.put_signed(*reference_ns);
                        }
                        Row::Dropped(event_type, count, from_tick, to_tick) => {
                            let sum: &mut u64 = cumulative.entry(*event_type).or_default();
                            *sum += count;
                            put_dropped_row(
                                &DroppedRecord {
                                    event_type: *event_type,
                                    cause: Cause::BufferFull,
                                    count: *count,
                                    is_lower_bound: false,
                                    cumulative: *sum,
                                    from_tick: *from_tick,
                                    to_tick: *to_tick,
                                },
                                &mut bytes,
                            );
                            let event_type = event_type.unwrap_or(annals_format::ANY_EVENT_TYPE);
                            let totals = of_stream.row(event_type);
                            totals.raised += count;
                            totals.add_loss(Cause::BufferFull, *count);
                        }
                    }
                }
                let mut builder = ChunkBuilder::new(clock.max_ticks);
                builder
                    .push_rows(&schema, base.unwrap_or(0), &bytes)
                    .expect("rows of defined types");
                let (mut header, chunk) = builder.finish(id);
                header.sequence = sequence as u64;
                header.open_reference_ns = *open_ns;
                header.close_reference_ns = *open_ns;
                header.before = before;
                header.predecessor_counts = predecessor;
                before.raised += header.event_count + header.dropped_count;
                before.recorded += header.event_count;
                before.dropped += header.dropped_count;
                predecessor = header.counts.clone();
                for (event_type, count) in &header.counts {
                    let row = of_stream.row(*event_type);
                    row.raised += count;
                    row.recorded += count;
                }
                of_stream.inversions += header.inversions;
                of_stream.largest_lateness =
                    of_stream.largest_lateness.max(header.largest_lateness);
                if header.event_count != 0 {
                    of_stream.last_tick = header.last_tick;
                }
                let offset = out.len() as u64;
                let mut head = Vec::new();
                header.encode(&mut head);
                let mut body = Vec::new();
                chunk.encode(&mut body);
                blocks.write_with(BlockKind::Chunk, &head, &body, chunk.content(), &mut out);
                index.push((offset, header));
            }
            of_stream.close_tick = clock.tick(self.end_ns);
            totals.push(of_stream);
        }
        if self.has_footer {
            let offset = out.len() as u64;
            let footer = Footer {
                definitions,
                chunks: index,
                totals,
                ..Footer::default()
            };
            let mut body = Vec::new();
            footer.encode(&mut body);
            blocks.write(BlockKind::Footer, &[], &body, &mut out);
            out.extend_from_slice(&encode_tail(offset));
        }
        out
    }

    /// Writes the recording into a directory.
    pub fn write(&self, directory: &Path, level: CompressionLevel) -> PathBuf {
        let path = directory.join(format!("test-host-{}.annals", self.id));
        std::fs::write(&path, self.encode(level)).expect("the recording is written");
        path
    }
}

/// A reference clock.
pub const REFERENCE: TestClock = TestClock {
    kind: ClockKind::Reference,
    ticks_per_second: 1_000_000_000,
    max_ticks: u64::MAX,
    tick_at_zero: 0,
};
