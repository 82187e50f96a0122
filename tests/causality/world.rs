//! Recordings of a world in which true time is known: hosts whose clocks are wrong in a known way, and
//! processes that exchange messages.

use std::path::Path;

use annals_format::{
    BootId, CalibrationPoint, ClockKind, ClockSpec, CompressionLevel, Definition, ElementSpec,
    ElementType, EventTypeId, LocationKind, ProcessId, ProcessSpec, RecordingBuilder, RecordingId,
    Role, SourceOrder, StreamId, Value,
};

/// Wall clock at true time 0.
pub(crate) const UNIX_ZERO: i64 = 1_700_000_000_000_000_000;

/// A host: its reference clock, and how wrong its wall clock is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub(crate) number: u8,
    /// Reference clock at true time 0.
    pub(crate) offset_ns: i64,
    /// Its rate, parts per 10⁹ too fast.
    pub(crate) rate_ppb: i64,
    /// What its wall clock says too much.
    pub(crate) wall_error_ns: i64,
}

impl Host {
    /// Creates a perfect one.
    pub(crate) const fn new(number: u8) -> Self {
        Self {
            number,
            offset_ns: 1_000_000_000,
            rate_ppb: 0,
            wall_error_ns: 0,
        }
    }

    /// Returns its reference clock at a true time.
    pub(crate) fn reference_ns(&self, true_ns: i64) -> i64 {
        let drift = i128::from(true_ns) * i128::from(self.rate_ppb) / 1_000_000_000;
        self.offset_ns + true_ns + drift as i64
    }

    /// Wall clock minus reference clock at true time 0.
    fn unix_offset_ns(&self) -> i64 {
        UNIX_ZERO + self.wall_error_ns - self.offset_ns
    }
}

/// A process's clock: its rate in ticks per second, what it says of it, and where it starts again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticking {
    pub(crate) kind: ClockKind,
    pub(crate) ticks_per_second: u64,
    /// The true rate is so much above.
    pub(crate) rate_ppb: i64,
    pub(crate) max_ticks: u64,
    pub(crate) tick_at_zero: u64,
    /// When it is set, by the reference clock, and by how many ticks: no more than so often.
    pub(crate) steps: [(i64, i64); 3],
}

impl Ticking {
    /// The reference clock.
    pub(crate) const REFERENCE: Self = Self {
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_ppb: 0,
        max_ticks: u64::MAX,
        tick_at_zero: 0,
        steps: [(i64::MAX, 0); 3],
    };

    /// Returns the raw tick at a reference time.
    pub(crate) fn tick(&self, reference_ns: i64) -> u64 {
        let ticks = i128::from(reference_ns) * i128::from(self.ticks_per_second);
        let ticks = ticks / 1_000_000_000;
        let ticks = ticks + ticks * i128::from(self.rate_ppb) / 1_000_000_000;
        let set = self.steps.iter().filter(|(at, _)| *at <= reference_ns);
        let set: i128 = set.map(|(_, ticks)| i128::from(*ticks)).sum();
        (ticks + set + i128::from(self.tick_at_zero)).rem_euclid(i128::from(self.max_ticks) + 1)
            as u64
    }
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Peer, tag.
    Send(u32, i64),
    Receive(u32, i64),
    /// Peer, tag, sequence number.
    NumberedSend(u32, i64, u64),
    NumberedReceive(u32, i64, u64),
    /// Peer and tag, any when negative; request.
    Start(i64, i64, u64),
    /// Peer, tag, request.
    Completion(u32, i64, u64),
    Cancel(u64),
    /// Peer, tag.
    Unsent(u32, i64),
    /// Operation, root, size.
    Begin(u64, u32, u64),
    End(u64, u32, u64),
    /// Operation, root, size, bytes sent, bytes received.
    SizedBegin(u64, u32, u64, [u64; 2]),
    SizedEnd(u64, u32, u64, [u64; 2]),
    Mark(u64),
    /// A number of events of a type are lost here; `None` means of any type.
    Lost(Option<u32>, u64),
}

/// Numbers of event types.
pub(crate) const SEND: u32 = 0;
pub(crate) const RECEIVE: u32 = 1;
pub(crate) const MARK: u32 = 8;

const COMMUNICATOR: i64 = 7;

/// What every event type has: name, role, elements.
const TYPES: [(&str, Role, &[&str]); 10] = [
    (
        "send",
        Role::Send,
        &["communicator", "peer", "tag", "bytes"],
    ),
    (
        "receive",
        Role::Receive,
        &["communicator", "peer", "tag", "bytes"],
    ),
    (
        "numbered send",
        Role::Send,
        &["sequence", "tag", "peer", "communicator"],
    ),
    (
        "numbered receive",
        Role::Receive,
        &["sequence", "tag", "peer", "communicator"],
    ),
    (
        "start",
        Role::ReceiveStart,
        &["communicator", "peer", "tag", "request"],
    ),
    (
        "completion",
        Role::Receive,
        &["communicator", "peer", "tag", "request"],
    ),
    ("cancel", Role::Cancel, &["request"]),
    // Begin and end share their elements; see `row`.
    (
        "collective",
        Role::CollectiveBegin,
        &["communicator", "operation", "root", "size", "place"],
    ),
    ("mark", Role::Point, &["number"]),
    ("unsent", Role::Cancel, &["communicator", "peer", "tag"]),
];
const END: u32 = 10;
const SIZED_BEGIN: u32 = 11;
const SIZED_END: u32 = 12;

/// The elements of a collective operation with the bytes that its process sends and receives.
const SIZED: &[&str] = &[
    "communicator",
    "operation",
    "root",
    "size",
    "place",
    "bytes_sent",
    "bytes_received",
];

impl Op {
    fn row(&self, rank: u32) -> (u32, Vec<i64>) {
        let tagged =
            |peer: u32, tag: i64, last: u64| vec![COMMUNICATOR, peer.into(), tag, last as i64];
        let of = |operation: u64, root: u32, size: u64| {
            vec![
                COMMUNICATOR,
                operation as i64,
                root.into(),
                size as i64,
                rank.into(),
            ]
        };
        match *self {
            Self::Send(peer, tag) => (SEND, tagged(peer, tag, 8)),
            Self::Receive(peer, tag) => (RECEIVE, tagged(peer, tag, 8)),
            Self::NumberedSend(peer, tag, n) => (2, vec![n as i64, tag, peer.into(), COMMUNICATOR]),
            Self::NumberedReceive(peer, tag, n) => {
                (3, vec![n as i64, tag, peer.into(), COMMUNICATOR])
            }
            Self::Start(peer, tag, request) => (4, vec![COMMUNICATOR, peer, tag, request as i64]),
            Self::Completion(peer, tag, request) => (5, tagged(peer, tag, request)),
            Self::Cancel(request) => (6, vec![request as i64]),
            Self::Unsent(peer, tag) => (9, vec![COMMUNICATOR, peer.into(), tag]),
            Self::Begin(operation, root, size) => (7, of(operation, root, size)),
            Self::End(operation, root, size) => (END, of(operation, root, size)),
            Self::SizedBegin(operation, root, size, bytes) => {
                let mut row = of(operation, root, size);
                row.extend(bytes.map(|bytes| bytes as i64));
                (SIZED_BEGIN, row)
            }
            Self::SizedEnd(operation, root, size, bytes) => {
                let mut row = of(operation, root, size);
                row.extend(bytes.map(|bytes| bytes as i64));
                (SIZED_END, row)
            }
            Self::Mark(number) => (MARK, vec![number as i64]),
            Self::Lost(..) => unreachable!("no event"),
        }
    }
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) host: Host,
    pub(crate) ticking: Ticking,
    /// True times, ascending.
    pub(crate) ops: Vec<(i64, Op)>,
    /// True time from 0 to here.
    pub(crate) end_ns: i64,
    /// Calibration: true time, bound of the error, how wrong it is.
    pub(crate) points: Vec<(i64, u64, i64)>,
    /// Whether its source promises no order.
    pub(crate) is_unordered: bool,
    /// Delay of the observation after each event; empty means no observations.
    pub(crate) lateness_ns: Vec<i64>,
    /// Events of a chunk.
    pub(crate) chunk_len: usize,
    /// Name of its run.
    pub(crate) run: &'static str,
    /// What its ranks count in, of several in the run.
    pub(crate) start: Option<&'static str>,
    /// More definitions; strings from number 100 on are free.
    pub(crate) more: Vec<Definition>,
}

impl Program {
    pub(crate) fn new(rank: u32, ranks: u32, host: Host, end_ns: i64) -> Self {
        Self {
            rank,
            ranks,
            host,
            ticking: Ticking::REFERENCE,
            ops: Vec::new(),
            end_ns,
            points: vec![(0, 0, 0), (end_ns, 0, 0)],
            is_unordered: false,
            lateness_ns: Vec::new(),
            chunk_len: 64,
            run: "world",
            start: None,
            more: Vec::new(),
        }
    }

    /// Starts the recording, and returns its stream.
    fn define(&self, builder: &mut RecordingBuilder) -> StreamId {
        builder.rank(self.rank, Some(self.ranks));
        if let Some(start) = self.start {
            let name = builder.string(start);
            builder.define(Definition::World(annals_format::World {
                process: ProcessId::new(0),
                name,
                first_rank: 0,
            }));
        }
        let spec = ClockSpec {
            kind: self.ticking.kind,
            ticks_per_second: self.ticking.ticks_per_second,
            rate_error_ppb: 100_000,
            max_ticks: self.ticking.max_ticks,
        };
        let clock = builder.clock("clock", &spec);
        for (true_ns, error_ns, wrong_ns) in &self.points {
            let reference_ns = self.host.reference_ns(*true_ns);
            builder.define(Definition::Calibration(CalibrationPoint {
                clock,
                tick: self.ticking.tick(reference_ns),
                reference_ns: reference_ns + wrong_ns,
                error_ns: *error_ns,
                unix_offset_ns: self.host.unix_offset_ns(),
            }));
        }
        let ordering = if self.is_unordered {
            SourceOrder::Unordered
        } else {
            SourceOrder::Ordered
        };
        let source = builder.source("program", ordering, clock);
        let location = builder.location("main", LocationKind::Thread, 0);
        let stream = builder.stream(source, location, 0);
        let more = [
            ("collective end", Role::CollectiveEnd, TYPES[7].2),
            ("sized collective", Role::CollectiveBegin, SIZED),
            ("sized collective end", Role::CollectiveEnd, SIZED),
        ];
        for (name, role, elements) in TYPES.into_iter().chain(more) {
            let elements: Vec<ElementSpec<'_>> = elements
                .iter()
                .map(|name| ElementSpec::new(name, ElementType::I64))
                .collect();
            builder.event_type(name, role, &elements);
        }
        self.more
            .iter()
            .for_each(|more| builder.define(more.clone()));
        stream
    }

    fn id(&self) -> RecordingId {
        let mut id = [0x33; 16];
        id[0] = self.run.len() as u8;
        id[1] = self.start.map_or(0, |start| start.as_bytes()[0]);
        id[12..].copy_from_slice(&self.rank.to_be_bytes());
        RecordingId(id)
    }

    /// Writes the recording into a directory. Chunks with a number of `holes` are not there.
    pub(crate) fn write(&self, directory: &Path, holes: &[usize]) {
        let process = ProcessSpec {
            recording_id: self.id(),
            run: self.run,
            host: &format!("host-{}", self.host.number),
            boot_id: BootId([self.host.number; 16]),
            pid: 100 + self.rank,
            start_unix_ns: self.host.unix_offset_ns() + self.host.reference_ns(0),
            start_reference_ns: self.host.reference_ns(0),
            command: "world",
        };
        let mut builder =
            RecordingBuilder::new(&process, CompressionLevel::None).expect("a compressor");
        let stream = self.define(&mut builder);
        let tick_of = |true_ns: i64| self.ticking.tick(self.host.reference_ns(true_ns));
        let mut lateness = self.lateness_ns.iter();
        let mut observed = i64::MIN;
        for (sequence, ops) in self.ops.chunks(self.chunk_len.max(1)).enumerate() {
            let mut chunk = builder.chunk(stream, self.host.reference_ns(ops[0].0));
            let mut previous = tick_of(ops[0].0);
            for (true_ns, op) in ops {
                let tick = tick_of(*true_ns);
                if let Op::Lost(event_type, count) = op {
                    let event_type = event_type.map(EventTypeId::new);
                    chunk.dropped(event_type, *count, previous, tick);
                    continue;
                }
                if let Some(late_ns) = lateness.next() {
                    observed = observed.max(self.host.reference_ns(true_ns + late_ns));
                    chunk.observation(observed);
                }
                let (event_type, values) = op.row(self.rank);
                let values: Vec<Value<'_>> = values.into_iter().map(Value::I64).collect();
                chunk.event(EventTypeId::new(event_type), tick, &values);
                previous = tick;
            }
            let close_ns = self.host.reference_ns(ops[ops.len() - 1].0);
            let ended = if holes.contains(&sequence) {
                chunk.leave_out(close_ns)
            } else {
                chunk.finish(close_ns)
            };
            ended.expect("rows of defined types");
        }
        builder.close_stream(stream, tick_of(self.end_ns));
        let start = self.start.unwrap_or("");
        let path = directory.join(format!("{}-{start}{}.annals", self.run, self.rank));
        std::fs::write(path, builder.finish()).expect("the recording is written");
    }
}

/// A run of several processes, with the messages that it had.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) programs: Vec<Program>,
    /// Sender, receiver, true times of send and receive.
    pub(crate) messages: Vec<(u32, u32, i64, i64)>,
}

impl World {
    /// Messages between ranks: sender, receiver, tag, true time of the send, how long it took at least.
    /// Every process is at one place at a time, and messages of one tag do not overtake each other.
    pub(crate) fn of_messages(hosts: &[Host], plan: &[(u32, u32, i64, i64, i64)]) -> Self {
        let ranks = hosts.len() as u32;
        let mut plan = plan.to_vec();
        plan.retain(|(from, to, ..)| from != to);
        plan.sort_by_key(|message| message.3);
        // By rank, the moments that are taken: no two events of a process have one time.
        let mut taken: Vec<std::collections::BTreeSet<i64>> = vec![Default::default(); hosts.len()];
        let mut free = |rank: u32, mut time: i64| {
            while !taken[rank as usize].insert(time) {
                time += 1;
            }
            time
        };
        let mut ops: Vec<Vec<(i64, Op)>> = vec![Vec::new(); hosts.len()];
        let mut last_send = std::collections::BTreeMap::new();
        let mut last_receive = std::collections::BTreeMap::new();
        let mut messages = Vec::new();
        for (from, to, tag, sent_ns, latency_ns) in plan {
            let channel = (from, to, tag);
            let after =
                |last: Option<&i64>, time: i64| last.map_or(time, |last| time.max(last + 1));
            let sent_ns = free(from, after(last_send.get(&channel), sent_ns));
            let received_ns = after(last_receive.get(&channel), sent_ns + latency_ns.max(1));
            let received_ns = free(to, received_ns);
            last_send.insert(channel, sent_ns);
            last_receive.insert(channel, received_ns);
            ops[from as usize].push((sent_ns, Op::Send(to, tag)));
            ops[to as usize].push((received_ns, Op::Receive(from, tag)));
            messages.push((from, to, sent_ns, received_ns));
        }
        let end_ns = ops.iter().flatten().map(|op| op.0).max().unwrap_or(0) + 1_000_000;
        let programs = hosts
            .iter()
            .zip(ops)
            .enumerate()
            .map(|(rank, (host, mut ops))| {
                ops.sort_by_key(|op| op.0);
                let mut program = Program::new(rank as u32, ranks, *host, end_ns);
                program.ops = ops;
                program
            });
        Self {
            programs: programs.collect(),
            messages,
        }
    }

    pub(crate) fn write(&self, directory: &Path) {
        self.programs
            .iter()
            .for_each(|program| program.write(directory, &[]));
    }
}
