//! Recordings of a run that never was: as many ranks and events as wanted, all at the same time, with what
//! makes real ones hard to merge: jitter, bursts, nine event types, 64 regions, messages with four elements.
#![allow(dead_code, reason = "every bench uses its part of it")]

use std::io::{BufWriter, Write};
use std::path::Path;

use annals_format::wire::Put;
use annals_format::{
    BlockKind, BlockWriter, CalibrationPoint, ChunkBuilder, ChunkHeader, Clock, ClockId, ClockKind,
    CompressionLevel, Cumulative, Definition, Definitions, Element, ElementType, EventType,
    EventTypeId, FileHeader, FileKind, Footer, Location, LocationId, LocationKind, Process,
    ProcessId, Rank, RecordingId, Reference, Region, RegionId, Role, Source, SourceId, SourceOrder,
    Stream, StreamId, StreamTotals, StringId, Verbosity, encode_tail, put_row_start,
};

#[path = "halo.rs"]
mod halo;

use halo::Halo;

/// Regions of every rank.
pub(crate) const REGIONS: u64 = 64;
/// Ticks per second of every clock.
pub(crate) const TICKS_PER_SECOND: u64 = 2_596_000_000;
/// Rows of a chunk, as the recorder's default pages have them.
const PAGE_BYTES: usize = 64 << 10;
/// Mean ticks between two events of one rank: 200 ns.
pub(crate) const MEAN_STEP: u64 = 519;

/// Xorshift (Marsaglia 2003).
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds result in equal numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What an event of a rank is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happening {
    /// A region is entered, or left.
    Region(bool, u64),
    /// A message is sent, or received: communicator, peer, tag, bytes.
    Message(bool, [u64; 4]),
    /// A point of one of four types, with a value.
    Point(u64, u64),
    /// What a program with requests and collective operations does, with its values.
    Mpi(Mpi, [u64; 5]),
}

/// Events of a program with requests and collective operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mpi {
    /// Request.
    ReceiveStart,
    /// Communicator, peer, tag, bytes, request.
    Isend,
    /// Request.
    IsendComplete,
    /// Communicator, peer, tag, bytes, request.
    Irecv,
    CollectiveBegin,
    /// Operation, communicator, root, bytes sent, bytes received.
    CollectiveEnd,
}

impl Mpi {
    /// Returns how many values it has.
    pub(crate) const fn values(self) -> usize {
        match self {
            Self::ReceiveStart | Self::IsendComplete => 1,
            Self::Isend | Self::Irecv | Self::CollectiveEnd => 5,
            Self::CollectiveBegin => 0,
        }
    }
}

/// What the ranks of a run do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mix {
    /// Events of eight types at random; messages mostly never match.
    #[default]
    Random,
    /// Like `Random`, but points of the fourth type begin collective operations, and their value is the communicator.
    Collectives,
    /// Ranks exchange halos and reduce.
    Halo,
}

impl std::str::FromStr for Mix {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "random" => Ok(Self::Random),
            "halo" => Ok(Self::Halo),
            other => Err(format!("a mix is `random` or `halo`, not `{other}`")),
        }
    }
}

/// The events of one rank.
pub(crate) enum Events {
    Random(Program),
    Halo(Halo),
}

impl Events {
    /// Returns those of a rank, and the tick at which it begins.
    pub(crate) fn of(mix: Mix, rank: u32, ranks: u32) -> (u64, Self) {
        match mix {
            Mix::Random | Mix::Collectives => (
                first_tick(rank),
                Self::Random(Program::new(rank.into(), ranks.into())),
            ),
            Mix::Halo => (
                Halo::FIRST,
                Self::Halo(Halo::new(rank.into(), ranks.into())),
            ),
        }
    }

    /// Returns the next event, with the ticks since the one before.
    pub(crate) fn next(&mut self) -> (u64, Happening) {
        match self {
            Self::Random(program) => program.next(),
            Self::Halo(halo) => halo.next(),
        }
    }
}

/// The events of one rank, each with the ticks since the one before.
pub(crate) struct Program {
    random: Random,
    ranks: u64,
    open: Vec<u64>,
}

impl Program {
    /// Returns the program of a rank.
    pub(crate) fn new(rank: u64, ranks: u64) -> Self {
        Self {
            random: Random::new(rank + 1),
            ranks,
            open: Vec::new(),
        }
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> (u64, Happening) {
        let word = self.random.next();
        // Mostly close together, with pauses now and then.
        let step = match word % 64 {
            0 => MEAN_STEP * 20 + word % 4096,
            _ => MEAN_STEP / 2 + word % 512,
        };
        let choice = word >> 32 & 0xff;
        let what = if choice < 26 {
            let peer = (word >> 40) % self.ranks;
            Happening::Message(choice < 13, [0, peer, word >> 44 & 15, word >> 50 & 4095])
        } else if choice < 58 {
            Happening::Point(word >> 40 & 3, word >> 44 & 1023)
        } else if self.open.is_empty() || (self.open.len() < 6 && choice & 1 == 0) {
            let region = (word >> 40) % REGIONS;
            self.open.push(region);
            Happening::Region(true, region)
        } else {
            Happening::Region(false, self.open.pop().unwrap_or(0))
        };
        (step, what)
    }
}

const ENTER: u32 = 0;
const LEAVE: u32 = 1;
const SEND: u32 = 2;
const RECEIVE: u32 = 3;
pub(crate) const POINTS: u32 = 4;
const MPI: u32 = 8;

fn definitions(rank: u32, ranks: u32, id: RecordingId, ends: (u64, u64), mix: Mix) -> Definitions {
    let mut d = Definitions::default();
    let mut texts: Vec<String> = Vec::new();
    let mut string = |text: &str| {
        let known = texts.iter().position(|known| known == text);
        let index = known.unwrap_or_else(|| {
            texts.push(text.to_owned());
            texts.len() - 1
        });
        StringId::new(index as u32)
    };
    let empty = string("");
    let process = ProcessId::new(0);
    d.add(Definition::Process(Process {
        id: process,
        recording_id: id,
        run: string("synthetic"),
        host: string("host"),
        boot_id: annals_format::BootId([7; 16]),
        pid: 1000 + rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: 0,
        command: string("synthetic"),
    }));
    d.add(Definition::Rank(Rank {
        process,
        rank,
        rank_count: Some(ranks),
        is_assigned: false,
    }));
    let clock = ClockId::new(0);
    d.add(Definition::Clock(Clock {
        id: clock,
        process,
        name: string("tsc"),
        kind: ClockKind::Tsc,
        ticks_per_second: TICKS_PER_SECOND,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    }));
    // Once a second, as the recorder calibrates.
    let seconds = (ends.1 / TICKS_PER_SECOND) as i64 + 1;
    for second in 0..=seconds {
        d.add(Definition::Calibration(CalibrationPoint {
            clock,
            tick: second as u64 * TICKS_PER_SECOND,
            reference_ns: second * 1_000_000_000,
            error_ns: 20,
            unix_offset_ns: 1_700_000_000_000_000_000,
        }));
    }
    d.add(Definition::Source(Source {
        id: SourceId::new(0),
        process,
        name: string("application"),
        description: empty,
        ordering: SourceOrder::Ordered,
        clock,
    }));
    d.add(Definition::Location(Location {
        id: LocationId::new(0),
        process,
        name: string("main"),
        kind: LocationKind::Thread,
        system_id: 1000 + u64::from(rank),
    }));
    d.add(Definition::Stream(Stream {
        id: StreamId::new(0),
        source: SourceId::new(0),
        location: Some(LocationId::new(0)),
    }));
    let message: &[(&str, Reference)] = &[
        ("communicator", Reference::None),
        ("peer", Reference::Rank),
        ("tag", Reference::None),
        ("bytes", Reference::None),
    ];
    let region: &[(&str, Reference)] = &[("region", Reference::Region)];
    let value: &[(&str, Reference)] = &[("value", Reference::None)];
    let communicator: &[(&str, Reference)] = &[("communicator", Reference::None)];
    let point_d = match mix {
        Mix::Random | Mix::Halo => (POINTS + 3, "point d", Role::Point, value),
        Mix::Collectives => (
            POINTS + 3,
            "collective",
            Role::CollectiveBegin,
            communicator,
        ),
    };
    let with_request = &[message, &[("request", Reference::None)]].concat();
    let request: &[(&str, Reference)] = &[("request", Reference::None)];
    let collective: &[(&str, Reference)] = &[
        ("operation", Reference::None),
        ("communicator", Reference::None),
        ("root", Reference::Rank),
        ("bytes_sent", Reference::None),
        ("bytes_received", Reference::None),
    ];
    let of_mpi = [
        (MPI, "receive start", Role::ReceiveStart, request),
        (MPI + 1, "isend", Role::Send, with_request),
        (MPI + 2, "isend complete", Role::Point, request),
        (MPI + 3, "irecv", Role::Receive, with_request),
        (MPI + 4, "collective begin", Role::CollectiveBegin, &[]),
        (MPI + 5, "collective end", Role::CollectiveEnd, collective),
    ];
    let of_mpi = of_mpi.into_iter().filter(|_| mix == Mix::Halo);
    let types = [
        (ENTER, "enter", Role::Enter, region),
        (LEAVE, "leave", Role::Leave, region),
        (SEND, "send", Role::Send, message),
        (RECEIVE, "receive", Role::Receive, message),
        (POINTS, "point a", Role::Point, value),
        (POINTS + 1, "point b", Role::Point, value),
        (POINTS + 2, "point c", Role::Point, value),
        point_d,
    ];
    for (id, name, role, elements) in types.into_iter().chain(of_mpi) {
        let elements = elements.iter().map(|(name, reference)| Element {
            name: string(name),
            element_type: ElementType::U64,
            is_optional: false,
            reference: *reference,
            unit: empty,
            original_bits: 0,
        });
        let elements = elements.collect();
        d.add(Definition::EventType(EventType {
            id: EventTypeId::new(id),
            name: string(name),
            description: empty,
            verbosity: Verbosity::UserBasic,
            role,
            key_element: None,
            elements,
        }));
    }
    for number in 0..REGIONS {
        d.add(Definition::Region(Region {
            id: RegionId::new(number as u32),
            name: string(&format!("region {number}")),
            file: empty,
            line: 0,
            group: empty,
        }));
    }
    for (number, text) in texts.into_iter().enumerate() {
        d.add(Definition::String(StringId::new(number as u32), text));
    }
    d.tidy();
    d
}

/// Returns when a rank begins: within a millisecond of the others.
pub(crate) fn first_tick(rank: u32) -> u64 {
    TICKS_PER_SECOND / 1000 + Random::new(rank.into()).next() % (TICKS_PER_SECOND / 1000)
}

fn put_row(last: u64, tick: u64, what: Happening, rows: &mut Vec<u8>) {
    let mut put = |id: u32, values: &[u64]| {
        put_row_start(EventTypeId::new(id), last, tick, rows);
        values.iter().for_each(|value| rows.put_varint(*value));
    };
    match what {
        Happening::Region(true, region) => put(ENTER, &[region]),
        Happening::Region(false, region) => put(LEAVE, &[region]),
        Happening::Message(true, values) => put(SEND, &values),
        Happening::Message(false, values) => put(RECEIVE, &values),
        Happening::Point(which, value) => put(POINTS + which as u32, &[value]),
        Happening::Mpi(kind, values) => put(MPI + kind as u32, &values[..kind.values()]),
    }
}

/// Writes the recording of one rank.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_recording(
    directory: &Path,
    rank: u32,
    ranks: u32,
    events: u64,
) -> std::io::Result<()> {
    write_stretched(directory, rank, ranks, events, 1, Mix::Random)
}

/// Writes a recording with `stretch` times as long between any two events.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_stretched(
    directory: &Path,
    rank: u32,
    ranks: u32,
    events: u64,
    stretch: u64,
    mix: Mix,
) -> std::io::Result<()> {
    let mut id = [0x5a; 16];
    id[..4].copy_from_slice(&rank.to_le_bytes());
    let id = RecordingId(id);
    let (first, mut program) = Events::of(mix, rank, ranks);
    let last = first + events * MEAN_STEP * 2 * stretch;
    let definitions = definitions(rank, ranks, id, (first, last), mix);
    let schema = definitions.schema();
    let path = directory.join(format!("synthetic-host-{rank}.annals"));
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut blocks = BlockWriter::new(CompressionLevel::default())?;
    let mut out = FileHeader::new(FileKind::Recording, id).encode().to_vec();
    let mut records = Vec::new();
    definitions.encode(&mut records);
    blocks.write(BlockKind::Definitions, &[], &records, &mut out);
    let mut offset = 0;
    let mut index: Vec<(u64, ChunkHeader)> = Vec::new();
    let mut totals = StreamTotals::new(StreamId::new(0));
    let mut builder = ChunkBuilder::new(u64::MAX);
    let mut before = Cumulative::default();
    let mut predecessor = Vec::new();
    let (mut tick, mut left) = (first, events);
    let mut rows = Vec::with_capacity(PAGE_BYTES);
    while left > 0 {
        rows.clear();
        let base = tick;
        while left > 0 && rows.len() + 64 < PAGE_BYTES {
            let (step, what) = program.next();
            let step = step * stretch;
            put_row(tick, tick + step, what, &mut rows);
            tick += step;
            left -= 1;
        }
        builder.restart(u64::MAX);
        let taken = builder.push_rows(&schema, base, &rows);
        taken.expect("rows of defined types");
        let (mut header, chunk) = builder.complete(StreamId::new(0));
        header.sequence = index.len() as u64;
        header.open_reference_ns =
            (base as i128 * 1_000_000_000 / i128::from(TICKS_PER_SECOND)) as i64;
        header.before = before;
        header.predecessor_counts = predecessor;
        before.raised += header.event_count;
        before.recorded += header.event_count;
        predecessor = header.counts.clone();
        for (event_type, count) in &header.counts {
            let row = totals.row(*event_type);
            row.raised += count;
            row.recorded += count;
        }
        totals.last_tick = header.last_tick;
        let mut head = Vec::new();
        header.encode(&mut head);
        let mut body = Vec::new();
        chunk.encode(&mut body);
        index.push((offset + out.len() as u64, header));
        blocks.write_with(BlockKind::Chunk, &head, &body, chunk.content(), &mut out);
        file.write_all(&out)?;
        offset += out.len() as u64;
        out.clear();
    }
    totals.close_tick = tick;
    let footer = Footer {
        definitions,
        chunks: index,
        totals: vec![totals],
        ..Footer::default()
    };
    let mut body = Vec::new();
    footer.encode(&mut body);
    blocks.write(BlockKind::Footer, &[], &body, &mut out);
    out.extend_from_slice(&encode_tail(offset));
    file.write_all(&out)?;
    file.flush()
}
