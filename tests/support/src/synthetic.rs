//! Recordings of a run that never was: as many ranks and events as wanted, all at the same time, with what
//! makes real ones hard to merge: jitter, bursts, nine event types, 64 regions, messages with four elements.

mod halo;

use std::io::{BufWriter, Write};
use std::path::Path;

use annals_format::{
    BootId, CalibrationPoint, ClockKind, ClockSpec, CompressionLevel, Definition, ElementSpec,
    ElementType, EventTypeId, LocationKind, ProcessSpec, RecordingBuilder, RecordingId, Reference,
    Role, SourceOrder, StreamId, Value,
};
pub use halo::Halo;

/// What a clock of Unix time shows at reference time 0, nanoseconds.
const UNIX_OFFSET_NS: i64 = 1_700_000_000_000_000_000;
/// Regions of every rank.
pub const REGIONS: u64 = 64;
/// Ticks per second of every clock.
pub const TICKS_PER_SECOND: u64 = 2_596_000_000;
/// Rows of a chunk, as the recorder's default pages have them.
const PAGE_BYTES: usize = 64 << 10;
/// Mean ticks between two events of one rank: 200 ns.
pub const MEAN_STEP: u64 = 519;

/// Xorshift (Marsaglia 2003).
pub struct Random(u64);

impl Random {
    /// Creates a generator; equal seeds result in equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// What an event of a rank is.
#[derive(Clone, Copy, Debug)]
pub enum Happening {
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
pub enum Mpi {
    /// Request.
    ReceiveStart,
    /// Communicator, peer, tag, bytes, request.
    Isend,
    /// Request.
    IsendComplete,
    /// Communicator, peer, tag, bytes, request.
    Irecv,
    /// No value.
    CollectiveBegin,
    /// Operation, communicator, root, bytes sent, bytes received.
    CollectiveEnd,
}

impl Mpi {
    /// Returns how many values it has.
    pub const fn values(self) -> usize {
        match self {
            Self::ReceiveStart | Self::IsendComplete => 1,
            Self::Isend | Self::Irecv | Self::CollectiveEnd => 5,
            Self::CollectiveBegin => 0,
        }
    }
}

/// What the ranks of a run do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mix {
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
pub enum Events {
    /// Of [`Mix::Random`] and [`Mix::Collectives`].
    Random(Program),
    /// Of [`Mix::Halo`].
    Halo(Halo),
}

impl Events {
    /// Returns those of a rank, and the tick at which it begins.
    pub fn of(mix: Mix, rank: u32, ranks: u32) -> (u64, Self) {
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
    pub fn next_event(&mut self) -> (u64, Happening) {
        match self {
            Self::Random(program) => program.next_event(),
            Self::Halo(halo) => halo.next_event(),
        }
    }
}

/// The events of one rank, each with the ticks since the one before.
pub struct Program {
    random: Random,
    ranks: u64,
    open: Vec<u64>,
}

impl Program {
    /// Returns the program of a rank.
    pub fn new(rank: u64, ranks: u64) -> Self {
        Self {
            random: Random::new(rank + 1),
            ranks,
            open: Vec::new(),
        }
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> (u64, Happening) {
        let word = self.random.draw();
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
/// Event type of the first of four kinds of points.
pub const POINTS: u32 = 4;
const MPI: u32 = 8;

/// Defines what a rank has, and returns its stream. Calibration points are one second apart, as the recorder makes them,
/// up to `last`.
fn define(builder: &mut RecordingBuilder, rank: u32, ranks: u32, last: u64, mix: Mix) -> StreamId {
    builder.rank(rank, Some(ranks));
    let spec = ClockSpec {
        kind: ClockKind::Tsc,
        ticks_per_second: TICKS_PER_SECOND,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    };
    let clock = builder.clock("tsc", &spec);
    let seconds = (last / TICKS_PER_SECOND) as i64 + 1;
    for second in 0..=seconds {
        builder.define(Definition::Calibration(CalibrationPoint {
            clock,
            tick: second as u64 * TICKS_PER_SECOND,
            reference_ns: second * 1_000_000_000,
            error_ns: 20,
            unix_offset_ns: UNIX_OFFSET_NS,
        }));
    }
    let source = builder.source("application", SourceOrder::Ordered, clock);
    let location = builder.location("main", LocationKind::Thread, 1000 + u64::from(rank));
    let stream = builder.stream(source, location, 0);
    define_event_types(builder, mix);
    for number in 0..REGIONS {
        builder.region(&format!("region {number}"), "", 0, "");
    }
    stream
}

fn define_event_types(builder: &mut RecordingBuilder, mix: Mix) {
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
        let elements: Vec<ElementSpec<'_>> = elements
            .iter()
            .map(|(name, reference)| ElementSpec {
                reference: *reference,
                ..ElementSpec::new(name, ElementType::U64)
            })
            .collect();
        assert_eq!(builder.event_type(name, role, &elements).get(), id);
    }
}

/// Returns when a rank begins: within a millisecond of the others.
pub fn first_tick(rank: u32) -> u64 {
    TICKS_PER_SECOND / 1000 + Random::new(rank.into()).draw() % (TICKS_PER_SECOND / 1000)
}

/// Calls `put` with the event type and the values of an event.
fn with_values(what: Happening, put: impl FnOnce(u32, &[u64])) {
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
pub fn write_recording(
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
pub fn write_stretched(
    directory: &Path,
    rank: u32,
    ranks: u32,
    events: u64,
    stretch: u64,
    mix: Mix,
) -> std::io::Result<()> {
    let mut id = [0x5a; 16];
    id[..4].copy_from_slice(&rank.to_le_bytes());
    let process = ProcessSpec {
        recording_id: RecordingId(id),
        run: "synthetic",
        host: "host",
        boot_id: BootId([7; 16]),
        pid: 1000 + rank,
        start_unix_ns: UNIX_OFFSET_NS,
        start_reference_ns: 0,
        command: "synthetic",
    };
    let (first, mut program) = Events::of(mix, rank, ranks);
    let last = first + events * MEAN_STEP * 2 * stretch;
    let path = directory.join(format!("synthetic-host-{rank}.annals"));
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    let mut builder = RecordingBuilder::new(&process, CompressionLevel::default())?;
    let stream = define(&mut builder, rank, ranks, last, mix);
    let reference_ns =
        |tick: u64| (i128::from(tick) * 1_000_000_000 / i128::from(TICKS_PER_SECOND)) as i64;
    let (mut tick, mut left) = (first, events);
    while left > 0 {
        let open_ns = reference_ns(tick);
        let mut chunk = builder.chunk(stream, open_ns);
        while left > 0 && chunk.byte_len() + 64 < PAGE_BYTES {
            let (step, what) = program.next_event();
            tick += step * stretch;
            with_values(what, |event_type, values| {
                let mut given = [Value::Absent; 5];
                for (place, value) in given.iter_mut().zip(values) {
                    *place = Value::U64(*value);
                }
                chunk.event(EventTypeId::new(event_type), tick, &given[..values.len()]);
            });
            left -= 1;
        }
        chunk.finish(open_ns).map_err(std::io::Error::other)?;
        builder.write_to(&mut file)?;
    }
    builder.close_stream(stream, tick);
    file.write_all(&builder.finish())?;
    file.flush()
}
