//! Recordings with known events, made without the recorder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use annals_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, BootId, CalibrationPoint, ClockKind, ClockSpec,
    CompressionLevel, Definition, ElementSpec, ElementType, Ended, EventTypeId, FILE_HEADER_LEN,
    LocationKind, ProcessEnd, ProcessId, ProcessSpec, RecordingBuilder, RecordingId, Reference,
    Role, SourceOrder, StreamTotals, Value,
};
use annals_merger::{Reader, Sums};

/// Returns offset and length, bytes, of the stored bodies of a file's blocks of a kind.
pub fn bodies(bytes: &[u8], kind: BlockKind) -> Vec<(usize, usize)> {
    let (mut offset, mut bodies) = (FILE_HEADER_LEN, Vec::new());
    while let Ok(header) = BlockHeader::decode(&bytes[offset..]) {
        let body = offset + BLOCK_HEADER_LEN + header.head_len as usize;
        if header.kind == kind {
            bodies.push((body, header.body_len as usize));
        }
        offset = body + header.body_len as usize;
    }
    bodies
}

/// Returns the sums of a recording, or of several, by event type name.
///
/// # Panics
/// If it cannot be read, a row of the sums does not add up, or a stream is miscounted.
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
    /// Returns the raw tick at a reference time.
    ///
    /// # Panics
    /// If that is not a whole number of ticks.
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

/// What a clock of Unix time shows at reference time 0, nanoseconds.
const UNIX_OFFSET_NS: i64 = 1_700_000_000_000_000_000;

/// Regions that every such recording defines.
pub const REGION_NAMES: [&str; 4] = ["main", "solve", "exchange", "write"];

impl TestRecording {
    /// Starts the recording, and returns its streams.
    fn define(&self, builder: &mut RecordingBuilder) -> Vec<annals_format::StreamId> {
        if let Some(rank) = self.rank {
            builder.rank(rank, self.rank_count);
        }
        let mut clocks = Vec::new();
        for (number, clock) in self.clocks.iter().enumerate() {
            let spec = ClockSpec {
                kind: clock.kind,
                ticks_per_second: clock.ticks_per_second,
                rate_error_ppb: 0,
                max_ticks: clock.max_ticks,
            };
            let id = builder.clock(&format!("clock {number}"), &spec);
            clocks.push(id);
            if clock.kind == ClockKind::Unreadable {
                continue;
            }
            for reference_ns in [self.start_ns, self.end_ns] {
                builder.define(Definition::Calibration(CalibrationPoint {
                    clock: id,
                    tick: clock.tick(reference_ns),
                    reference_ns,
                    error_ns: 0,
                    unix_offset_ns: UNIX_OFFSET_NS,
                }));
            }
        }
        let mut streams = Vec::new();
        for (number, stream) in self.streams.iter().enumerate() {
            let clock = clocks[stream.clock];
            let source = builder.source(&format!("source {number}"), stream.ordering, clock);
            let name = format!("thread {number}");
            let location = builder.location(&name, LocationKind::Thread, number as u64);
            let open_tick = self.clocks[stream.clock].tick(self.start_ns);
            streams.push(builder.stream(source, location, open_tick));
        }
        let number = ElementSpec::new("number", ElementType::U64);
        let mut region = ElementSpec::new("region", ElementType::U64);
        region.reference = Reference::Region;
        builder.event_type("mark", Role::Point, &[number]);
        builder.event_type("enter", Role::Enter, &[region]);
        builder.event_type("leave", Role::Leave, &[region]);
        let mut rows = self.streams.iter().flat_map(|stream| &stream.chunks);
        if rows.any(|(_, rows)| rows.iter().any(|row| matches!(row, Row::Note(..)))) {
            let text = ElementSpec::new("text", ElementType::String);
            builder.event_type("note", Role::Point, &[number, text]);
        }
        for name in REGION_NAMES {
            builder.region(name, "", 0, "");
        }
        streams
    }

    /// Returns its identity.
    pub fn recording_id(&self) -> RecordingId {
        let mut id = [0x11; 16];
        id[14..].copy_from_slice(&self.id.to_be_bytes());
        RecordingId(id)
    }

    /// Returns the recording's bytes, as part of the run `test`.
    ///
    /// # Panics
    /// If an event is not of [`MARK`], [`ENTER`] or [`LEAVE`].
    pub fn encode(&self, level: CompressionLevel) -> Vec<u8> {
        self.encode_of_run("test", level)
    }

    /// Returns the recording's bytes, as part of the run `run`.
    ///
    /// # Panics
    /// If an event is not of [`MARK`], [`ENTER`] or [`LEAVE`].
    pub fn encode_of_run(&self, run: &str, level: CompressionLevel) -> Vec<u8> {
        self.encode_ended(run, level, None)
    }

    /// Returns the recording's bytes, also of a process that was killed, whose streams are not closed then.
    fn encode_ended(&self, run: &str, level: CompressionLevel, end: Option<ProcessEnd>) -> Vec<u8> {
        let process = ProcessSpec {
            recording_id: self.recording_id(),
            run,
            host: "host",
            boot_id: BootId([7; 16]),
            pid: 1000 + u32::from(self.id),
            start_unix_ns: UNIX_OFFSET_NS + self.start_ns,
            start_reference_ns: self.start_ns,
            command: "a test",
        };
        let mut builder = RecordingBuilder::new(&process, level).expect("a compressor");
        let streams = self.define(&mut builder);
        if let Some(end) = end {
            builder.define(Definition::ProcessEnd(end));
        }
        for (stream, id) in self.streams.iter().zip(&streams) {
            for (open_ns, rows) in &stream.chunks {
                let mut chunk = builder.chunk(*id, *open_ns);
                for row in rows {
                    match row {
                        Row::Event(event_type, tick, value) => {
                            chunk.event(*event_type, *tick, &[Value::U64(*value)]);
                        }
                        Row::Note(tick, number, text) => {
                            let values = [Value::U64(*number), Value::String(text.as_bytes())];
                            chunk.event(NOTE, *tick, &values);
                        }
                        Row::Observation(reference_ns) => chunk.observation(*reference_ns),
                        Row::Dropped(event_type, count, from_tick, to_tick) => {
                            chunk.dropped(*event_type, *count, *from_tick, *to_tick);
                        }
                    }
                }
                chunk.finish(*open_ns).expect("rows of defined types");
            }
            if end.is_none() {
                builder.close_stream(*id, self.clocks[stream.clock].tick(self.end_ns));
            }
        }
        if self.has_footer {
            builder.finish()
        } else {
            builder.finish_without_footer()
        }
    }

    /// Writes the recording of a process that was killed into a directory: at its end, or up to `end_error_ns` later.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_killed(&self, directory: &Path, end_error_ns: u64) {
        let end = ProcessEnd {
            process: ProcessId::new(0),
            ended: Ended::Killed,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            end_error_ns,
        };
        let bytes = self.encode_ended("test", CompressionLevel::None, Some(end));
        let path = directory.join(format!("test-host-{}.annals", self.id));
        std::fs::write(path, bytes).expect("the recording is written");
    }

    /// Writes the recording into a directory, and returns its path.
    ///
    /// # Panics
    /// If it cannot be written.
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
