//! Recordings of MPI and OpenMP programs with exact clocks: what each rank or thread does, and when.

use std::collections::BTreeMap;
use std::path::Path;

use annals_format::{
    BootId, ClockKind, ClockSpec, CollectiveOperation, CompressionLevel, ElementSpec, ElementType,
    EventTypeId, LocationKind, ProcessSpec, RecordingBuilder, RecordingId, Reference, Role,
    SourceOrder, StreamId, Value,
};

/// An event of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Of a region.
    Enter(&'static str),
    /// Of a region.
    Leave(&'static str),
    /// To a rank, with a tag.
    Send(u32, i64),
    /// From a rank, with a tag.
    Receive(u32, i64),
    /// To a rank, with a tag and a request.
    Isend(u32, i64, u32),
    /// From a rank, with a tag and a request: the receive begins.
    ReceiveStart(u32, i64, u32),
    /// From a rank, with a tag and a request: the message is there.
    Ireceive(u32, i64, u32),
    /// The send with a request has ended.
    SendEnd(u32),
    /// Operation, root.
    Begin(CollectiveOperation, u32),
    /// Operation, root.
    End(CollectiveOperation, u32),
    /// Of the window, by number.
    Fence(u32),
    /// A lock, by number.
    Acquire(u32),
    /// A lock, by number.
    Release(u32),
}

/// What the ranks of a run do: times in nanoseconds, ascending.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// By rank; if ranks have several threads, one for each: those of the first rank, those of the second, and so on.
    pub ranks: Vec<Vec<(i64, Deed)>>,
    /// Number of threads of each rank.
    pub threads: usize,
    /// Whether messages and collective operations have their numbers, as those of recordings of MPI.
    pub is_numbered: bool,
    /// Whether each rank is on a host with a clock that is not related to those of others but by wall clocks.
    pub is_on_hosts: bool,
}

/// Returns the size of messages with a tag, bytes: the tag, if it is larger than 100.
pub const fn bytes_of(tag: i64) -> i64 {
    if tag > 100 { tag } else { 8 }
}

/// Regions of every script, by number; others follow. Those whose names begin with `MPI_` are of the group `mpi`, those
/// whose names begin with `!$omp` of the group `openmp`.
pub const REGIONS: [&str; 17] = [
    "main",
    "assemble",
    "solve",
    "MPI_Send",
    "MPI_Recv",
    "MPI_Isend",
    "MPI_Waitall",
    "MPI_Barrier",
    "MPI_Allreduce",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Scan",
    "MPI_Init",
    "MPI_Comm_rank",
    "MPI_Iallreduce",
    "MPI_Wait",
    "MPI_Ssend",
];

/// Reference time at which scripts begin.
const START_NS: i64 = 1_000_000;

struct Types {
    enter: EventTypeId,
    leave: EventTypeId,
    send: EventTypeId,
    receive: EventTypeId,
    isend: EventTypeId,
    receive_start: EventTypeId,
    ireceive: EventTypeId,
    send_end: EventTypeId,
    begin: EventTypeId,
    end: EventTypeId,
    fence: EventTypeId,
    acquire: EventTypeId,
    release: EventTypeId,
}

impl Types {
    fn define(builder: &mut RecordingBuilder) -> Self {
        let mut region = ElementSpec::new("region", ElementType::U32);
        region.reference = Reference::Region;
        let mut window = ElementSpec::new("window", ElementType::U32);
        window.reference = Reference::Object;
        let number = |name| ElementSpec::new(name, ElementType::I64);
        let message = ["communicator", "peer", "tag", "bytes", "sequence"].map(number);
        let requested = [
            "communicator",
            "peer",
            "tag",
            "bytes",
            "sequence",
            "request",
        ]
        .map(number);
        let started = ["communicator", "peer", "tag", "request"].map(number);
        let collective = [
            "communicator",
            "operation",
            "root",
            "size",
            "place",
            "bytes_sent",
            "bytes_received",
            "sequence",
        ];
        let collective = collective.map(number);
        Self {
            enter: builder.event_type("enter", Role::Enter, &[region]),
            leave: builder.event_type("leave", Role::Leave, &[region]),
            send: builder.event_type("send", Role::Send, &message),
            receive: builder.event_type("receive", Role::Receive, &message),
            isend: builder.event_type("isend", Role::Send, &requested),
            receive_start: builder.event_type("receive_start", Role::ReceiveStart, &started),
            ireceive: builder.event_type("ireceive", Role::Receive, &requested),
            send_end: builder.event_type("send_end", Role::SendEnd, &[number("request")]),
            begin: builder.event_type("begin", Role::CollectiveBegin, &collective),
            end: builder.event_type("end", Role::CollectiveEnd, &collective),
            fence: builder.event_type(
                "mpi.window_sync",
                Role::Point,
                &[window, number("sequence")],
            ),
            acquire: builder.event_type("acquire", Role::Acquire, &[number("lock_id")]),
            release: builder.event_type("release", Role::Release, &[number("lock_id")]),
        }
    }
}

/// Returns whether a rank sends something to others in an operation, and whether it receives something.
pub fn moves(operation: CollectiveOperation, is_root: bool) -> (bool, bool) {
    use CollectiveOperation as Op;
    match operation {
        Op::Broadcast => (is_root, !is_root),
        Op::Reduce => (!is_root, is_root),
        _ => (true, true),
    }
}

/// Returns the number of each event of a rank in its channel, or among the operations of the communicator.
fn numbers(deeds: &[(i64, Deed)]) -> Vec<i64> {
    let mut counts: BTreeMap<(u8, u32, i64), i64> = BTreeMap::new();
    let number = |(_, deed): &(i64, Deed)| {
        let channel = match *deed {
            Deed::Enter(_)
            | Deed::Leave(_)
            | Deed::Fence(_)
            | Deed::Acquire(_)
            | Deed::Release(_)
            | Deed::ReceiveStart(..)
            | Deed::SendEnd(_) => return -1,
            Deed::Send(peer, tag) | Deed::Isend(peer, tag, _) => (0, peer, tag),
            Deed::Receive(peer, tag) | Deed::Ireceive(peer, tag, _) => (1, peer, tag),
            Deed::Begin(..) => (2, 0, 0),
            Deed::End(..) => (3, 0, 0),
        };
        let count = counts.entry(channel).or_default();
        *count += 1;
        *count - 1
    };
    deeds.iter().map(number).collect()
}

impl Script {
    /// Creates the script of a number of ranks that do nothing.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks: vec![Vec::new(); ranks],
            threads: 1,
            is_numbered: false,
            is_on_hosts: false,
        }
    }

    /// Creates the script of a rank with a number of threads that do nothing.
    pub fn of_threads(threads: usize) -> Self {
        Self {
            threads,
            ..Self::new(threads)
        }
    }

    /// Appends events of a rank, or of a thread.
    pub fn rank(&mut self, rank: usize, deeds: &[(i64, Deed)]) -> &mut Self {
        self.ranks[rank].extend_from_slice(deeds);
        self
    }

    /// Writes a recording for each rank into a directory; the events of `lost` (rank, first, end) are counted as lost.
    pub fn write(&self, directory: &Path, lost: &[(usize, usize, usize)]) {
        for rank in 0..self.ranks.len() / self.threads {
            let bytes = self.recording(rank, lost);
            let path = directory.join(format!("script-host-{rank}.annals"));
            std::fs::write(path, bytes).expect("a recording");
        }
    }

    /// Returns the names of the regions by number.
    fn regions(&self) -> Vec<&'static str> {
        let mut regions = REGIONS.to_vec();
        for (_, deed) in self.ranks.iter().flatten() {
            if let Deed::Enter(name) | Deed::Leave(name) = deed
                && !regions.contains(name)
            {
                regions.push(name);
            }
        }
        regions
    }

    fn recording(&self, rank: usize, lost: &[(usize, usize, usize)]) -> Vec<u8> {
        let mut id = [0x77; 16];
        id[12..].copy_from_slice(&(rank as u32).to_be_bytes());
        let host = if self.is_on_hosts { rank } else { 0 };
        let process = ProcessSpec {
            recording_id: RecordingId(id),
            run: "script",
            host: &format!("host-{host}"),
            boot_id: BootId([7 + host as u8; 16]),
            pid: 100 + rank as u32,
            start_unix_ns: 1_700_000_000_000_000_000,
            start_reference_ns: START_NS,
            command: "script",
        };
        let mut builder =
            RecordingBuilder::new(&process, CompressionLevel::None).expect("a compressor");
        let ranks = (self.ranks.len() / self.threads) as u32;
        builder.rank(rank as u32, Some(ranks));
        let spec = ClockSpec {
            kind: ClockKind::Reference,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        let clock = builder.clock("clock", &spec);
        let source = builder.source("program", SourceOrder::Ordered, clock);
        let streams: Vec<StreamId> = (0..self.threads)
            .map(|thread| {
                let name = match thread {
                    0 => "main".to_owned(),
                    _ => format!("thread {thread}"),
                };
                let location = builder.location(&name, LocationKind::Thread, thread as u64);
                builder.stream(source, location, START_NS as u64)
            })
            .collect();
        let types = Types::define(&mut builder);
        builder.object("window", "window of all");
        let regions = self.regions();
        for name in &regions {
            let group = match *name {
                _ if name.starts_with("MPI_") => "mpi",
                _ if name.starts_with("!$omp") => "openmp",
                _ => "",
            };
            builder.region(name, "", 0, group);
        }
        for (row, stream) in (rank * self.threads..).zip(streams) {
            let holes: Vec<(usize, usize)> = lost
                .iter()
                .filter(|hole| hole.0 == row)
                .map(|hole| (hole.1, hole.2))
                .collect();
            self.rows(&mut builder, stream, &types, &regions, row, &holes);
        }
        builder.finish()
    }

    fn rows(
        &self,
        builder: &mut RecordingBuilder,
        stream: StreamId,
        types: &Types,
        regions: &[&str],
        row: usize,
        holes: &[(usize, usize)],
    ) {
        let deeds = &self.ranks[row];
        let rank = row / self.threads;
        let mut chunk = builder.chunk(stream, START_NS);
        let mut last_ns = START_NS;
        let numbers = numbers(deeds);
        for (number, (time_ns, deed)) in deeds.iter().enumerate() {
            let at_ns = START_NS + time_ns;
            if let Some((first, end)) = holes
                .iter()
                .find(|hole| hole.0 <= number && number < hole.1)
            {
                if number + 1 == *end {
                    let count = (end - first) as u64;
                    let next = deeds.get(*end);
                    let to_ns = next.map_or(at_ns, |next| START_NS + next.0);
                    chunk.dropped(None, count, last_ns as u64, to_ns as u64);
                }
                continue;
            }
            last_ns = at_ns;
            let region = |name: &str| {
                let known = regions.iter().position(|known| *known == name);
                [Value::U32(known.expect("a region") as u32)]
            };
            let sequence = if self.is_numbered {
                numbers[number]
            } else {
                -1
            };
            let message = |peer: u32, tag: i64| {
                [0, peer.into(), tag, bytes_of(tag), sequence].map(Value::I64)
            };
            let requested = |peer: u32, tag: i64, request: u32| {
                let bytes = bytes_of(tag);
                [0, peer.into(), tag, bytes, sequence, request.into()].map(Value::I64)
            };
            let collective = |operation: CollectiveOperation, root: u32| {
                let (sends, receives) = moves(operation, root as usize == rank);
                let (sent, received) = (8 * i64::from(sends), 8 * i64::from(receives));
                let size = (self.ranks.len() / self.threads) as i64;
                let code = operation.code().into();
                let place = rank as i64;
                [0, code, root.into(), size, place, sent, received, sequence].map(Value::I64)
            };
            let tick = at_ns as u64;
            match *deed {
                Deed::Enter(name) => chunk.event(types.enter, tick, &region(name)),
                Deed::Leave(name) => chunk.event(types.leave, tick, &region(name)),
                Deed::Send(peer, tag) => chunk.event(types.send, tick, &message(peer, tag)),
                Deed::Receive(peer, tag) => chunk.event(types.receive, tick, &message(peer, tag)),
                Deed::Isend(peer, tag, request) => {
                    chunk.event(types.isend, tick, &requested(peer, tag, request));
                }
                Deed::Ireceive(peer, tag, request) => {
                    chunk.event(types.ireceive, tick, &requested(peer, tag, request));
                }
                Deed::ReceiveStart(peer, tag, request) => {
                    let values = [0, peer.into(), tag, request.into()].map(Value::I64);
                    chunk.event(types.receive_start, tick, &values);
                }
                Deed::SendEnd(request) => {
                    chunk.event(types.send_end, tick, &[Value::I64(request.into())]);
                }
                Deed::Begin(op, root) => chunk.event(types.begin, tick, &collective(op, root)),
                Deed::End(op, root) => chunk.event(types.end, tick, &collective(op, root)),
                Deed::Fence(number) => {
                    let values = [Value::U32(0), Value::I64(number.into())];
                    chunk.event(types.fence, tick, &values);
                }
                Deed::Acquire(lock) => chunk.event(types.acquire, tick, &[Value::I64(lock.into())]),
                Deed::Release(lock) => chunk.event(types.release, tick, &[Value::I64(lock.into())]),
            }
        }
        chunk.finish(last_ns).expect("rows of defined types");
    }
}
