//! Definitions: the tables that events refer to. A definition is a record of kind, length and body;
//! readers step over kinds they do not know and ignore bytes behind the fields they know.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use crate::error::{FormatError, Result};
use crate::ids::{
    BootId, ClockId, EventTypeId, LocationId, ModuleId, ObjectId, ProcessId, RecordingId, RegionId,
    SourceId, StreamId, StringId,
};
use crate::limits::FileLimits;
use crate::value::ElementType;
use crate::wire::{Put, Wire};

/// Most elements an event type may have.
pub const MAX_ELEMENTS: usize = 256;

/// Most bytes of a build id.
const MAX_BUILD_ID: usize = 64;

macro_rules! code_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $code,)* }

        impl $name {
            /// Every value, by code.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The value with this code, if there is one.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// The code in the file.
            pub const fn code(self) -> u8 { self as u8 }

            /// The name in tables and JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

code_enum!(
    /// How a clock is read, which is part of its identity.
    ClockKind {
        /// The reference clock itself: ticks are its nanoseconds.
        Reference = 0, "reference";
        /// The processor's invariant time-stamp counter.
        Tsc = 1, "tsc";
        /// A clock of the source's own that can be read at any time.
        Readable = 2, "readable";
        /// A clock of the source's own that only shows in its events.
        Unreadable = 3, "unreadable";
    }
);

code_enum!(
    /// What a source promises about the order of its events.
    SourceOrder {
        /// Events of the source come in chronological order.
        Ordered = 0, "ordered";
        /// No promise.
        Unordered = 1, "unordered";
    }
);

code_enum!(
    /// Which collective operation an event is about: the element `operation`. Codes are those of OTF2's `CollectiveOp`.
    CollectiveOperation {
        /// MPI_Barrier.
        Barrier = 0, "barrier";
        /// MPI_Bcast.
        Broadcast = 1, "broadcast";
        /// MPI_Gather.
        Gather = 2, "gather";
        /// MPI_Gatherv.
        Gatherv = 3, "gatherv";
        /// MPI_Scatter.
        Scatter = 4, "scatter";
        /// MPI_Scatterv.
        Scatterv = 5, "scatterv";
        /// MPI_Allgather.
        Allgather = 6, "allgather";
        /// MPI_Allgatherv.
        Allgatherv = 7, "allgatherv";
        /// MPI_Alltoall.
        Alltoall = 8, "alltoall";
        /// MPI_Alltoallv.
        Alltoallv = 9, "alltoallv";
        /// MPI_Alltoallw.
        Alltoallw = 10, "alltoallw";
        /// MPI_Allreduce.
        Allreduce = 11, "allreduce";
        /// MPI_Reduce.
        Reduce = 12, "reduce";
        /// MPI_Reduce_scatter.
        ReduceScatter = 13, "reduce-scatter";
        /// MPI_Scan.
        Scan = 14, "scan";
        /// MPI_Exscan.
        Exscan = 15, "exscan";
        /// MPI_Reduce_scatter_block.
        ReduceScatterBlock = 16, "reduce-scatter-block";
    }
);

code_enum!(
    /// What an event type means to analysis.
    Role {
        /// Something happened.
        Point = 0, "point";
        /// A region was entered; the element `region` says which.
        Enter = 1, "enter";
        /// A region was left; the element `region` says which.
        Leave = 2, "leave";
        /// A value was measured: the element `value`.
        Metric = 3, "metric";
        /// A message begins to be sent: elements `communicator`, `peer`, `tag`, `bytes`.
        Send = 4, "send";
        /// A message has been received: elements as for a send.
        Receive = 5, "receive";
        /// An interval begins; the key element ties it to its end.
        Begin = 6, "begin";
        /// An interval ends.
        End = 7, "end";
        /// A collective operation, seen at some moment: elements `communicator`, `root`, `bytes`.
        Collective = 8, "collective";
        /// A non-blocking receive was started; the element `request` ties it to its [`Role::Receive`].
        ReceiveStart = 9, "receive-start";
        /// A non-blocking send has completed: element `request`.
        SendEnd = 10, "send-end";
        /// A receive that was started will not complete: element `request`.
        Cancel = 11, "cancel";
        /// A collective operation was entered: elements `communicator`, `operation`, `root`, `bytes_sent`,
        /// `bytes_received`.
        CollectiveBegin = 12, "collective-begin";
        /// A collective operation has completed: elements as for its begin.
        CollectiveEnd = 13, "collective-end";
    }
);

code_enum!(
    /// The nine verbosity levels of MPI_T (MPI 4.1 §15.3.1).
    Verbosity {
        /// Basic information for end users.
        UserBasic = 0, "user-basic";
        /// Detailed information for end users.
        UserDetail = 1, "user-detail";
        /// All information for end users.
        UserAll = 2, "user-all";
        /// Basic information for tuning.
        TunerBasic = 3, "tuner-basic";
        /// Detailed information for tuning.
        TunerDetail = 4, "tuner-detail";
        /// All information for tuning.
        TunerAll = 5, "tuner-all";
        /// Basic information for developers of the source.
        DeveloperBasic = 6, "developer-basic";
        /// Detailed information for developers of the source.
        DeveloperDetail = 7, "developer-detail";
        /// All information for developers of the source.
        DeveloperAll = 8, "developer-all";
    }
);

code_enum!(
    /// What kind of place a location is.
    LocationKind {
        /// A thread of the process.
        Thread = 0, "thread";
        /// A device or another place that is not a thread.
        Device = 1, "device";
    }
);

code_enum!(
    /// What an integer element refers to; a merger renumbers references.
    Reference {
        /// A plain value.
        None = 0, "none";
        /// A string of the string table.
        String = 1, "string";
        /// A region.
        Region = 2, "region";
        /// A location.
        Location = 3, "location";
        /// A source.
        Source = 4, "source";
        /// An event type.
        EventType = 5, "event-type";
        /// A bound object, such as a communicator.
        Object = 6, "object";
        /// A rank of the run.
        Rank = 7, "rank";
    }
);

code_enum!(
    /// How a recording ended.
    Ended {
        /// Finished by the program.
        Finished = 0, "finished";
        /// The process ended without finishing; its live file was read.
        Killed = 1, "killed";
        /// The process was still recording when it was read.
        Running = 2, "running";
        /// The file ends early and no live file was found beside it.
        Truncated = 3, "truncated";
        /// The process finished, but its storage failed before.
        StorageFailed = 4, "storage-failed";
    }
);

code_enum!(
    /// How the clock of a host was related to the axis of the trace.
    Relation {
        /// The axis is this host's reference clock.
        SameHost = 0, "same-host";
        /// By offsets that were measured and stored in the recordings.
        Measured = 1, "measured";
        /// By a file that the user gave.
        File = 2, "file";
        /// By the wall clocks, whose error has no bound.
        WallClock = 3, "wall-clock";
        /// By what the messages allow.
        Messages = 4, "messages";
    }
);

/// A process: the identity and provenance of one recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number in this file.
    pub id: ProcessId,
    /// Identity of its recording.
    pub recording_id: RecordingId,
    /// The run it belongs to.
    pub run: StringId,
    /// Host name.
    pub host: StringId,
    /// Boot id of the host: processes that share it share the reference clock.
    pub boot_id: BootId,
    /// Process id on its host.
    pub pid: u32,
    /// Wall clock at the start, nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// Reference clock at the start, nanoseconds.
    pub start_reference_ns: i64,
    /// The command line, arguments separated by spaces.
    pub command: StringId,
}

/// The rank of a process; it may become known long after the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// Which process.
    pub process: ProcessId,
    /// Its number in the run.
    pub rank: u32,
    /// Number of ranks in the run, when known.
    pub rank_count: Option<u32>,
    /// Whether the merger gave the number because the recording has none.
    pub is_assigned: bool,
}

/// The world that a process's rank counts in: what one start of a launcher, or one spawn, has begun together. A run may
/// have several, each with ranks from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// Which process.
    pub process: ProcessId,
    /// What the launcher calls it; the same in all its processes.
    pub name: StringId,
    /// The rank that its rank 0 has in the file; in a recording 0. Elements that are ranks are told as the world counts.
    pub first_rank: u32,
}

/// A property of a process: what a reader may want to know about the recording's circumstances.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Property {
    /// Which process.
    pub process: ProcessId,
    /// What it is called.
    pub key: StringId,
    /// What it is.
    pub value: StringId,
}

/// A clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Its number.
    pub id: ClockId,
    /// Whose clock it is.
    pub process: ProcessId,
    /// Its name.
    pub name: StringId,
    /// How it is read.
    pub kind: ClockKind,
    /// Nominal rate, ticks per second; never 0.
    pub ticks_per_second: u64,
    /// Bound of the nominal rate's error, parts per 10⁹; 0: exact by definition.
    pub rate_error_ppb: u32,
    /// Largest tick before the clock starts again at 0; any value.
    pub max_ticks: u64,
}

/// A calibration point: the clock and the reference clock read at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalibrationPoint {
    /// Which clock.
    pub clock: ClockId,
    /// The clock's tick.
    pub tick: u64,
    /// The reference clock, nanoseconds.
    pub reference_ns: i64,
    /// Half the width of the bracket: the tick was read at `reference_ns ± error_ns`.
    pub error_ns: u64,
    /// Wall clock minus reference clock at that moment, nanoseconds.
    pub unix_offset_ns: i64,
}

/// A source of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its number.
    pub id: SourceId,
    /// The process it raises events in.
    pub process: ProcessId,
    /// Its name.
    pub name: StringId,
    /// What it is.
    pub description: StringId,
    /// What it promises.
    pub ordering: SourceOrder,
    /// The clock that stamps its events.
    pub clock: ClockId,
}

/// One typed field of an event type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Element {
    /// Its name, unique in the event type.
    pub name: StringId,
    /// The type of its values.
    pub element_type: ElementType,
    /// Whether an event may come without it.
    pub is_optional: bool,
    /// What an integer refers to.
    pub reference: Reference,
    /// Unit of the values; the empty string when there is none.
    pub unit: StringId,
    /// Width in bits in the program that raised it; 0 when it is the type's own.
    pub original_bits: u8,
}

/// A kind of event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EventType {
    /// Its number.
    pub id: EventTypeId,
    /// Its name, unique in a recording.
    pub name: StringId,
    /// What it tells.
    pub description: StringId,
    /// For whom.
    pub verbosity: Verbosity,
    /// What it means to analysis.
    pub role: Role,
    /// Index of the element that ties begin to end.
    pub key_element: Option<u8>,
    /// Its fields, in order.
    pub elements: Vec<Element>,
}

/// A named span of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its number.
    pub id: RegionId,
    /// Its name.
    pub name: StringId,
    /// Source file; the empty string when unknown.
    pub file: StringId,
    /// Line; 0 when unknown.
    pub line: u32,
    /// What the region belongs to (`mpi`, `io`, …); the empty string when nothing.
    pub group: StringId,
}

/// A program or library file in a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its number.
    pub id: ModuleId,
    /// Whose memory.
    pub process: ProcessId,
    /// Where the file was.
    pub path: StringId,
    /// What the linker called this very build; empty when it did not.
    pub build_id: Vec<u8>,
    /// Address in memory less address in the file; wraps.
    pub base: u64,
    /// When it was first seen, reference clock, nanoseconds.
    pub loaded_ns: i64,
    /// When it was found to be gone, reference clock, nanoseconds.
    pub unloaded_ns: Option<i64>,
}

impl Module {
    /// What a function of the file at this path is called until someone knows its symbol: `file+0xaddress`.
    pub fn function_name(path: &str, offset: u64) -> String {
        format!("{}+{offset:#x}", Self::file_name(path))
    }

    /// The last part of a path.
    pub fn file_name(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }
}

/// A region that is a function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// Which region.
    pub region: RegionId,
    /// Where the function is.
    pub module: ModuleId,
    /// Its address in the module's file.
    pub offset: u64,
}

/// What a region is called, found out later: it takes the place of the region's own name, file and line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Which region.
    pub region: RegionId,
    /// Its name.
    pub name: StringId,
    /// Source file; the empty string when unknown.
    pub file: StringId,
    /// Line; 0 when unknown.
    pub line: u32,
}

/// What a merge was told to keep; everything else was left out and counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Filter {
    /// First moment, trace time, nanoseconds; none: from the start.
    pub from_ns: Option<i64>,
    /// First moment behind; none: to the end.
    pub to_ns: Option<i64>,
    /// Ranks and ranges of ranks, separated by commas; the empty string: all.
    pub ranks: StringId,
    /// Names of sources, globs separated by commas; the empty string: all.
    pub sources: StringId,
    /// Names of locations, as above.
    pub locations: StringId,
    /// Names of event types, as above.
    pub event_types: StringId,
}

/// A trace is one of several slices of time of a merge: the others have the rest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// Which slice, from 1.
    pub number: u32,
    /// How many there are.
    pub of: u32,
    /// First moment, trace time, nanoseconds; none: from the start.
    pub from_ns: Option<i64>,
    /// First moment behind; none: to the end.
    pub to_ns: Option<i64>,
}

/// The regions that a process of a trace has defined, by their numbers in the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSet {
    /// Which process.
    pub process: ProcessId,
    /// Its regions, ascending.
    pub regions: Vec<RegionId>,
}

/// Where events happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Its number.
    pub id: LocationId,
    /// Whose it is.
    pub process: ProcessId,
    /// Its name.
    pub name: StringId,
    /// What kind of place.
    pub kind: LocationKind,
    /// The system's id of the thread; 0 when there is none.
    pub system_id: u64,
}

/// The events of one source at one location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Its number.
    pub id: StreamId,
    /// Which source.
    pub source: SourceId,
    /// Where; none for the unattributed row, which counts losses that had no stream.
    pub location: Option<LocationId>,
}

/// An object that registrations are bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its number.
    pub id: ObjectId,
    /// Whose it is.
    pub process: ProcessId,
    /// What kind of object: `communicator`, `window`, ….
    pub kind: StringId,
    /// Its name.
    pub name: StringId,
}

/// A subscription to an event type, maybe bound to an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    /// Whose it is.
    pub process: ProcessId,
    /// What was subscribed to.
    pub event_type: EventTypeId,
    /// The object it is bound to, if any.
    pub object: Option<ObjectId>,
}

/// How a clock's ticks became trace time: a monotone, piecewise linear map through knots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockMap {
    /// Which clock.
    pub clock: ClockId,
    /// Bound of the map's error, nanoseconds.
    pub error_ns: u64,
    /// (unwrapped tick, trace time in nanoseconds), both strictly ascending; at least two. The clocks of one host have
    /// the same, and share them.
    pub knots: Arc<[(i128, i64)]>,
}

/// One map of several clocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedClockMap {
    /// Which clocks, ascending; at least one.
    pub clocks: Vec<ClockId>,
    /// Bound of the map's error, nanoseconds.
    pub error_ns: u64,
    /// As [`ClockMap::knots`].
    pub knots: Arc<[(i128, i64)]>,
}

type KnotsAndError<'a> = (&'a [(i128, i64)], u64);

impl SharedClockMap {
    /// Of maps, ascending by clock, as few as there are different ones, in the order of their first clocks.
    pub fn of<'a>(maps: impl Iterator<Item = &'a ClockMap>) -> Vec<Self> {
        let mut shared: Vec<Self> = Vec::new();
        // Nearly all that are the same are one in memory: a run has as many maps as processes, and long ones.
        let mut by_place: HashMap<(*const (i128, i64), u64), usize> = HashMap::new();
        let mut by_knots: HashMap<KnotsAndError<'_>, usize> = HashMap::new();
        for map in maps {
            let next = shared.len();
            let place = (map.knots.as_ptr(), map.error_ns);
            let number = *by_place.entry(place).or_insert_with(|| {
                *by_knots
                    .entry((&map.knots[..], map.error_ns))
                    .or_insert(next)
            });
            if number == next {
                shared.push(Self {
                    clocks: Vec::new(),
                    error_ns: map.error_ns,
                    knots: Arc::clone(&map.knots),
                });
            }
            shared[number].clocks.push(map.clock);
        }
        shared
    }
}

/// How a process of a trace ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessEnd {
    /// Which process.
    pub process: ProcessId,
    /// How it ended.
    pub ended: Ended,
    /// When it started, trace time in nanoseconds.
    pub start_ns: i64,
    /// Its last known moment, trace time in nanoseconds.
    pub end_ns: i64,
}

/// Where trace time 0 lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeZero {
    /// Wall clock at trace time 0, nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// The trace's end, trace time in nanoseconds.
    pub end_ns: i64,
    /// Reference clock of the host that the axis follows at trace time 0, nanoseconds. `None` if the trace does not say.
    pub reference_ns: Option<i64>,
}

/// A measured offset between the reference clocks of two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HostOffset {
    /// Boot id of one host.
    pub from: BootId,
    /// Boot id of the other.
    pub to: BootId,
    /// When it was measured: reference clock of `from`, nanoseconds.
    pub reference_ns: i64,
    /// Reference clock of `to` less that of `from`, nanoseconds.
    pub offset_ns: i64,
    /// Hard bound of the offset's error, nanoseconds: half the round trip of the measurement.
    pub error_ns: u64,
}

/// What a bound of an error is when there is none.
pub const UNBOUNDED: u64 = u64::MAX;

/// A bound of a clock's error at a moment of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorKnot {
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Bound of the clock's error beside its host's reference clock, nanoseconds.
    pub own_ns: u64,
    /// Bound of the host's error beside the axis, nanoseconds.
    pub host_ns: u64,
}

/// How wrong the trace times of a clock's events may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockError {
    /// Which clock.
    pub clock: ClockId,
    /// The first clock of the trace that ticks as one with it.
    pub alike: ClockId,
    /// How its host was related to the axis.
    pub relation: Relation,
    /// Bounds, ascending by time, at least one: linear between them, constant beyond the ends.
    pub knots: Vec<ErrorKnot>,
}

impl ClockError {
    /// Bounds at a moment: of the clock beside its host, and of the host beside the axis;
    /// [`UNBOUNDED`] where there is none.
    pub fn at(&self, time_ns: i64) -> (u64, u64) {
        let behind = self.knots.partition_point(|knot| knot.time_ns <= time_ns);
        let Some(b) = self.knots.get(behind) else {
            let last = self.knots.last();
            return last.map_or((UNBOUNDED, UNBOUNDED), |last| (last.own_ns, last.host_ns));
        };
        let Some(a) = behind.checked_sub(1).map(|before| self.knots[before]) else {
            return (b.own_ns, b.host_ns);
        };
        let run = b.time_ns.abs_diff(a.time_ns).max(1);
        let passed = time_ns.abs_diff(a.time_ns);
        let between = |a: u64, b: u64| {
            if passed == 0 {
                return a;
            }
            if a == UNBOUNDED || b == UNBOUNDED {
                return UNBOUNDED;
            }
            let rise = u128::from(a.abs_diff(b)) * u128::from(passed);
            // Rounded up, whichever way it goes.
            if b >= a {
                a + rise.div_ceil(run.into()) as u64
            } else {
                a - (rise / u128::from(run)) as u64
            }
        };
        (between(a.own_ns, b.own_ns), between(a.host_ns, b.host_ns))
    }
}

/// What another format, which a recording was made of, says of something: so that it can be made of the recording
/// again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Whose it is.
    pub process: ProcessId,
    /// The other format's name.
    pub format: StringId,
    /// What kind of definition it is said of; none: of the whole.
    pub of: Reference,
    /// Which definition; of the whole, the number of the record.
    pub id: u32,
    /// What it says, as its converter knows it.
    pub body: Vec<u8>,
}

/// One record of the definitions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Definition {
    String(StringId, String),
    Process(Process),
    Rank(Rank),
    Property(Property),
    Clock(Clock),
    Calibration(CalibrationPoint),
    /// Points of one clock, at least one.
    Calibrations(Vec<CalibrationPoint>),
    Source(Source),
    EventType(EventType),
    Region(Region),
    RegionSet(RegionSet),
    Location(Location),
    Stream(Stream),
    Object(Object),
    Registration(Registration),
    ClockMap(ClockMap),
    SharedClockMap(SharedClockMap),
    ProcessEnd(ProcessEnd),
    TimeZero(TimeZero),
    Module(Module),
    Function(Function),
    Symbol(Symbol),
    Filter(Filter),
    Slice(Slice),
    HostOffset(HostOffset),
    ClockError(ClockError),
    Foreign(Foreign),
    World(World),
}

fn put_option(out: &mut Vec<u8>, value: Option<u32>) {
    out.put_varint(value.map_or(0, |value| u64::from(value) + 1));
}

fn read_option(wire: &mut Wire<'_>, expected: &'static str) -> Result<Option<u32>> {
    let start = wire.position();
    match wire.varint(expected)? {
        0 => Ok(None),
        value => u32::try_from(value - 1)
            .map(Some)
            .map_err(|_| FormatError::invalid(start, expected, value)),
    }
}

fn read_bound(w: &mut Wire<'_>) -> Result<Option<i64>> {
    let is_there = w.u8("flag of a bound")? != 0;
    let bound = w.signed("bound of a stretch of time")?;
    Ok(is_there.then_some(bound))
}

fn read_code<T>(
    wire: &mut Wire<'_>,
    expected: &'static str,
    from_code: impl Fn(u8) -> Option<T>,
) -> Result<T> {
    let start = wire.position();
    let code = wire.u8(expected)?;
    from_code(code)
        .ok_or_else(|| FormatError::invalid(start, expected, format!("unknown code {code}")))
}

/// Reads a code whose meaning a later minor version may have extended: an unknown one stands for
/// `otherwise`, so that the definition stays usable.
fn read_code_or<T>(
    wire: &mut Wire<'_>,
    expected: &'static str,
    from_code: impl Fn(u8) -> Option<T>,
    otherwise: T,
) -> Result<T> {
    Ok(from_code(wire.u8(expected)?).unwrap_or(otherwise))
}

impl Definition {
    /// The id that it defines, or that it says something about; the highest of several.
    fn highest_key(&self) -> u64 {
        let key = match self {
            Self::String(id, _) => id.get(),
            Self::Process(d) => d.id.get(),
            Self::Rank(d) => d.process.get(),
            Self::World(d) => d.process.get(),
            Self::ProcessEnd(d) => d.process.get(),
            Self::RegionSet(d) => d.process.get(),
            Self::Foreign(d) => d.process.get(),
            Self::Clock(d) => d.id.get(),
            Self::Calibration(d) => d.clock.get(),
            Self::Calibrations(points) => points.first().map_or(0, |point| point.clock.get()),
            Self::ClockMap(d) => d.clock.get(),
            Self::ClockError(d) => d.clock.get(),
            Self::SharedClockMap(d) => d.clocks.last().map_or(0, |clock| clock.get()),
            Self::Source(d) => d.id.get(),
            Self::EventType(d) => d.id.get(),
            Self::Region(d) => d.id.get(),
            Self::Function(d) => d.region.get(),
            Self::Symbol(d) => d.region.get(),
            Self::Location(d) => d.id.get(),
            Self::Stream(d) => d.id.get(),
            Self::Object(d) => d.id.get(),
            Self::Module(d) => d.id.get(),
            Self::Property(_)
            | Self::Registration(_)
            | Self::TimeZero(_)
            | Self::Filter(_)
            | Self::Slice(_)
            | Self::HostOffset(_) => 0,
        };
        key.into()
    }

    /// Appends the record: kind, length, body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = self.encode_body(&mut body);
        out.put_varint(kind);
        out.put_bytes(&body);
    }

    fn encode_body(&self, b: &mut Vec<u8>) -> u64 {
        match self {
            Self::String(id, text) => {
                b.put_varint(id.get().into());
                b.put_bytes(text.as_bytes());
                1
            }
            Self::Process(d) => {
                b.put_varint(d.id.get().into());
                b.extend_from_slice(&d.recording_id.0);
                b.put_varint(d.run.get().into());
                b.put_varint(d.host.get().into());
                b.extend_from_slice(&d.boot_id.0);
                b.put_varint(d.pid.into());
                b.put_signed(d.start_unix_ns);
                b.put_signed(d.start_reference_ns);
                b.put_varint(d.command.get().into());
                2
            }
            Self::Rank(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.rank.into());
                put_option(b, d.rank_count);
                b.push(d.is_assigned.into());
                3
            }
            Self::Property(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.key.get().into());
                b.put_varint(d.value.get().into());
                4
            }
            Self::Clock(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.process.get().into());
                b.put_varint(d.name.get().into());
                b.push(d.kind.code());
                b.put_varint(d.ticks_per_second);
                b.put_varint(d.rate_error_ppb.into());
                b.put_varint(d.max_ticks);
                5
            }
            Self::Calibration(d) => {
                b.put_varint(d.clock.get().into());
                b.put_varint(d.tick);
                b.put_signed(d.reference_ns);
                b.put_varint(d.error_ns);
                b.put_signed(d.unix_offset_ns);
                6
            }
            Self::Calibrations(points) => {
                put_calibrations(b, points);
                26
            }
            Self::Source(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.process.get().into());
                b.put_varint(d.name.get().into());
                b.put_varint(d.description.get().into());
                b.push(d.ordering.code());
                b.put_varint(d.clock.get().into());
                7
            }
            Self::EventType(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.name.get().into());
                b.put_varint(d.description.get().into());
                b.push(d.verbosity.code());
                b.push(d.role.code());
                put_option(b, d.key_element.map(u32::from));
                b.put_varint(d.elements.len() as u64);
                for element in &d.elements {
                    b.put_varint(element.name.get().into());
                    b.push(element.element_type.code());
                    b.push(element.is_optional.into());
                    b.push(element.reference.code());
                    b.put_varint(element.unit.get().into());
                    b.push(element.original_bits);
                }
                8
            }
            Self::Region(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.name.get().into());
                b.put_varint(d.file.get().into());
                b.put_varint(d.line.into());
                b.put_varint(d.group.get().into());
                9
            }
            Self::RegionSet(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.regions.len() as u64);
                let mut previous = 0;
                for region in &d.regions {
                    b.put_varint(u64::from(region.get().wrapping_sub(previous)));
                    previous = region.get();
                }
                10
            }
            Self::Location(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.process.get().into());
                b.put_varint(d.name.get().into());
                b.push(d.kind.code());
                b.put_varint(d.system_id);
                11
            }
            Self::Stream(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.source.get().into());
                put_option(b, d.location.map(LocationId::get));
                12
            }
            Self::Object(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.process.get().into());
                b.put_varint(d.kind.get().into());
                b.put_varint(d.name.get().into());
                13
            }
            Self::Registration(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.event_type.get().into());
                put_option(b, d.object.map(ObjectId::get));
                14
            }
            Self::ClockMap(d) => {
                b.put_varint(d.clock.get().into());
                b.put_varint(d.error_ns);
                b.put_varint(d.knots.len() as u64);
                for (tick, time_ns) in &d.knots[..] {
                    b.put_wide(*tick);
                    b.put_signed(*time_ns);
                }
                15
            }
            Self::SharedClockMap(d) => {
                put_shared_map(b, d);
                27
            }
            Self::ProcessEnd(d) => {
                b.put_varint(d.process.get().into());
                b.push(d.ended.code());
                b.put_signed(d.start_ns);
                b.put_signed(d.end_ns);
                16
            }
            Self::TimeZero(d) => {
                b.put_signed(d.unix_ns);
                b.put_signed(d.end_ns);
                d.reference_ns.iter().for_each(|time| b.put_signed(*time));
                17
            }
            Self::Module(d) => {
                b.put_varint(d.id.get().into());
                b.put_varint(d.process.get().into());
                b.put_varint(d.path.get().into());
                b.put_bytes(&d.build_id);
                b.put_varint(d.base);
                b.put_signed(d.loaded_ns);
                b.push(d.unloaded_ns.is_some().into());
                b.put_signed(d.unloaded_ns.unwrap_or(0));
                18
            }
            Self::Function(d) => {
                b.put_varint(d.region.get().into());
                b.put_varint(d.module.get().into());
                b.put_varint(d.offset);
                19
            }
            Self::Symbol(d) => {
                b.put_varint(d.region.get().into());
                b.put_varint(d.name.get().into());
                b.put_varint(d.file.get().into());
                b.put_varint(d.line.into());
                20
            }
            Self::HostOffset(d) => {
                b.extend_from_slice(&d.from.0);
                b.extend_from_slice(&d.to.0);
                b.put_signed(d.reference_ns);
                b.put_signed(d.offset_ns);
                b.put_varint(d.error_ns);
                21
            }
            Self::ClockError(d) => {
                b.put_varint(d.clock.get().into());
                b.put_varint(d.alike.get().into());
                b.push(d.relation.code());
                b.put_varint(d.knots.len() as u64);
                for knot in &d.knots {
                    b.put_signed(knot.time_ns);
                    b.put_varint(knot.own_ns);
                    b.put_varint(knot.host_ns);
                }
                22
            }
            Self::Filter(d) => {
                for bound in [d.from_ns, d.to_ns] {
                    b.push(bound.is_some().into());
                    b.put_signed(bound.unwrap_or(0));
                }
                for names in [d.ranks, d.sources, d.locations, d.event_types] {
                    b.put_varint(names.get().into());
                }
                23
            }
            Self::Slice(d) => {
                b.put_varint(d.number.into());
                b.put_varint(d.of.into());
                for bound in [d.from_ns, d.to_ns] {
                    b.push(bound.is_some().into());
                    b.put_signed(bound.unwrap_or(0));
                }
                24
            }
            Self::Foreign(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.format.get().into());
                b.push(d.of.code());
                b.put_varint(d.id.into());
                b.put_bytes(&d.body);
                25
            }
            Self::World(d) => {
                b.put_varint(d.process.get().into());
                b.put_varint(d.name.get().into());
                b.put_varint(d.first_rank.into());
                28
            }
        }
    }

    /// Reads one record; none if its kind is unknown and it was stepped over.
    ///
    /// # Errors
    /// If the record ends early or a field contradicts SPEC.md.
    pub fn decode(wire: &mut Wire<'_>) -> Result<Option<Self>> {
        let kind = wire.varint("kind of a definition")?;
        let length = wire.count(1, "length of a definition")?;
        let start = wire.position() as u64;
        let mut body = Wire::new(wire.take(length, "body of a definition")?);
        Self::decode_body(kind, &mut body).map_err(|error| error.shifted(start))
    }

    /// Goes behind the record that starts at `position`; false when the bytes do not hold all of it.
    fn step_over<'a>(wire: &mut Wire<'a>, bytes: &'a [u8], position: usize) -> bool {
        *wire = Wire::new(bytes);
        let take = |wire: &mut Wire<'a>| -> Result<()> {
            wire.take(position, "records")?;
            wire.varint("kind of a definition")?;
            wire.bytes("body of a definition")?;
            Ok(())
        };
        take(wire).is_ok()
    }

    fn decode_body(kind: u64, w: &mut Wire<'_>) -> Result<Option<Self>> {
        let process = |w: &mut Wire<'_>| w.varint_u32("process id").map(ProcessId::new);
        let string = |w: &mut Wire<'_>| w.varint_u32("string id").map(StringId::new);
        Ok(Some(match kind {
            1 => {
                let id = string(w)?;
                let text = crate::text_of(w.bytes("text of a string")?).into_owned();
                Self::String(id, text)
            }
            2 => Self::Process(Process {
                id: process(w)?,
                recording_id: RecordingId(w.array("recording id")?),
                run: string(w)?,
                host: string(w)?,
                boot_id: BootId(w.array("boot id")?),
                pid: w.varint_u32("process id of the system")?,
                start_unix_ns: w.signed("wall clock at the start")?,
                start_reference_ns: w.signed("reference clock at the start")?,
                command: string(w)?,
            }),
            3 => Self::Rank(Rank {
                process: process(w)?,
                rank: w.varint_u32("rank")?,
                rank_count: read_option(w, "number of ranks")?,
                is_assigned: w.u8("assigned flag")? != 0,
            }),
            4 => Self::Property(Property {
                process: process(w)?,
                key: string(w)?,
                value: string(w)?,
            }),
            5 => {
                let id = ClockId::new(w.varint_u32("clock id")?);
                let process = process(w)?;
                let name = string(w)?;
                let kind = read_code(w, "clock kind", ClockKind::from_code)?;
                let start = w.position();
                let ticks_per_second = w.varint("ticks per second")?;
                if ticks_per_second == 0 {
                    return Err(FormatError::invalid(start, "a rate above 0", 0));
                }
                Self::Clock(Clock {
                    id,
                    process,
                    name,
                    kind,
                    ticks_per_second,
                    rate_error_ppb: w.varint_u32("rate error")?,
                    max_ticks: w.varint("max ticks")?,
                })
            }
            6 => Self::Calibration(CalibrationPoint {
                clock: ClockId::new(w.varint_u32("clock id")?),
                tick: w.varint("calibration tick")?,
                reference_ns: w.signed("calibration reference")?,
                error_ns: w.varint("calibration error")?,
                unix_offset_ns: w.signed("wall clock offset")?,
            }),
            26 => Self::Calibrations(read_calibrations(w)?),
            7 => Self::Source(Source {
                id: SourceId::new(w.varint_u32("source id")?),
                process: process(w)?,
                name: string(w)?,
                description: string(w)?,
                ordering: read_code(w, "ordering", SourceOrder::from_code)?,
                clock: ClockId::new(w.varint_u32("clock id")?),
            }),
            8 => Self::EventType(Self::decode_event_type(w)?),
            9 => Self::Region(Region {
                id: RegionId::new(w.varint_u32("region id")?),
                name: string(w)?,
                file: string(w)?,
                line: w.varint_u32("line")?,
                group: string(w)?,
            }),
            10 => {
                let process = process(w)?;
                let count = w.count(1, "number of regions")?;
                let mut regions = Vec::with_capacity(count);
                let mut previous = 0_u32;
                for _ in 0..count {
                    previous = previous.wrapping_add(w.varint_u32("region id")?);
                    regions.push(RegionId::new(previous));
                }
                Self::RegionSet(RegionSet { process, regions })
            }
            11 => Self::Location(Location {
                id: LocationId::new(w.varint_u32("location id")?),
                process: process(w)?,
                name: string(w)?,
                kind: read_code_or(
                    w,
                    "location kind",
                    LocationKind::from_code,
                    LocationKind::Device,
                )?,
                system_id: w.varint("system id")?,
            }),
            12 => Self::Stream(Stream {
                id: StreamId::new(w.varint_u32("stream id")?),
                source: SourceId::new(w.varint_u32("source id")?),
                location: read_option(w, "location id")?.map(LocationId::new),
            }),
            13 => Self::Object(Object {
                id: ObjectId::new(w.varint_u32("object id")?),
                process: process(w)?,
                kind: string(w)?,
                name: string(w)?,
            }),
            14 => Self::Registration(Registration {
                process: process(w)?,
                event_type: EventTypeId::new(w.varint_u32("event type id")?),
                object: read_option(w, "object id")?.map(ObjectId::new),
            }),
            15 => Self::ClockMap(Self::decode_clock_map(w)?),
            27 => Self::SharedClockMap(read_shared_map(w)?),
            16 => Self::ProcessEnd(ProcessEnd {
                process: process(w)?,
                ended: read_code(w, "end of a process", Ended::from_code)?,
                start_ns: w.signed("start time")?,
                end_ns: w.signed("end time")?,
            }),
            17 => Self::TimeZero(TimeZero {
                unix_ns: w.signed("wall clock at time 0")?,
                end_ns: w.signed("end of the trace")?,
                reference_ns: match w.is_empty() {
                    true => None,
                    false => Some(w.signed("reference clock at time 0")?),
                },
            }),
            18 => {
                let id = ModuleId::new(w.varint_u32("module id")?);
                let (process, path) = (process(w)?, string(w)?);
                let start = w.position();
                let build_id = w.bytes("build id")?.to_vec();
                if build_id.len() > MAX_BUILD_ID {
                    let most = "a build id of at most 64 bytes";
                    return Err(FormatError::invalid(start, most, build_id.len()));
                }
                Self::Module(Module {
                    id,
                    process,
                    path,
                    build_id,
                    base: w.varint("base of a module")?,
                    loaded_ns: w.signed("start of a module")?,
                    unloaded_ns: {
                        let is_gone = w.u8("unloaded flag")? != 0;
                        let end_ns = w.signed("end of a module")?;
                        is_gone.then_some(end_ns)
                    },
                })
            }
            19 => Self::Function(Function {
                region: RegionId::new(w.varint_u32("region id")?),
                module: ModuleId::new(w.varint_u32("module id")?),
                offset: w.varint("address of a function")?,
            }),
            20 => Self::Symbol(Symbol {
                region: RegionId::new(w.varint_u32("region id")?),
                name: string(w)?,
                file: string(w)?,
                line: w.varint_u32("line")?,
            }),
            21 => Self::HostOffset(HostOffset {
                from: BootId(w.array("boot id")?),
                to: BootId(w.array("boot id")?),
                reference_ns: w.signed("time of an offset")?,
                offset_ns: w.signed("offset of a host")?,
                error_ns: w.varint("error of an offset")?,
            }),
            22 => Self::ClockError(Self::decode_clock_error(w)?),
            23 => Self::Filter(Filter {
                from_ns: read_bound(w)?,
                to_ns: read_bound(w)?,
                ranks: string(w)?,
                sources: string(w)?,
                locations: string(w)?,
                event_types: string(w)?,
            }),
            24 => Self::Slice(Slice {
                number: w.varint_u32("number of a slice")?,
                of: w.varint_u32("number of slices")?,
                from_ns: read_bound(w)?,
                to_ns: read_bound(w)?,
            }),
            25 => Self::Foreign(Foreign {
                process: process(w)?,
                format: string(w)?,
                of: read_code(w, "what a foreign record is of", Reference::from_code)?,
                id: w.varint_u32("number of a definition")?,
                body: w.bytes("body of a foreign record")?.to_vec(),
            }),
            28 => Self::World(World {
                process: process(w)?,
                name: string(w)?,
                first_rank: w.varint_u32("first rank of a world")?,
            }),
            _ => return Ok(None),
        }))
    }

    fn decode_clock_error(w: &mut Wire<'_>) -> Result<ClockError> {
        let clock = ClockId::new(w.varint_u32("clock id")?);
        let alike = ClockId::new(w.varint_u32("clock id")?);
        let relation = read_code(w, "relation of a host", Relation::from_code)?;
        let start = w.position();
        let count = w.count(3, "number of bounds")?;
        let mut knots: Vec<ErrorKnot> = Vec::with_capacity(count);
        for _ in 0..count {
            knots.push(ErrorKnot {
                time_ns: w.signed("time of a bound")?,
                own_ns: w.varint("bound of an error")?,
                host_ns: w.varint("bound of an error")?,
            });
        }
        if count == 0 || !knots.is_sorted_by(|a, b| a.time_ns < b.time_ns) {
            return Err(FormatError::invalid(start, "ascending bounds", count));
        }
        Ok(ClockError {
            clock,
            alike,
            relation,
            knots,
        })
    }

    fn decode_event_type(w: &mut Wire<'_>) -> Result<EventType> {
        let id = EventTypeId::new(w.varint_u32("event type id")?);
        let name = StringId::new(w.varint_u32("string id")?);
        let description = StringId::new(w.varint_u32("string id")?);
        let verbosity = read_code_or(
            w,
            "verbosity",
            Verbosity::from_code,
            Verbosity::DeveloperAll,
        )?;
        let role = read_code_or(w, "role", Role::from_code, Role::Point)?;
        let start = w.position();
        let key_element = read_option(w, "key element")?;
        let count = w.count(6, "number of elements")?;
        if count > MAX_ELEMENTS || key_element.is_some_and(|key| key as usize >= count) {
            return Err(FormatError::invalid(
                start,
                "at most 256 elements and a key among them",
                format!("{count} elements, key {key_element:?}"),
            ));
        }
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(Element {
                name: StringId::new(w.varint_u32("string id")?),
                element_type: read_code(w, "element type", ElementType::from_code)?,
                is_optional: w.u8("optional flag")? != 0,
                reference: read_code_or(
                    w,
                    "reference kind",
                    Reference::from_code,
                    Reference::None,
                )?,
                unit: StringId::new(w.varint_u32("string id")?),
                original_bits: w.u8("original width")?,
            });
        }
        Ok(EventType {
            id,
            name,
            description,
            verbosity,
            role,
            key_element: key_element.map(|key| key as u8),
            elements,
        })
    }

    fn decode_clock_map(w: &mut Wire<'_>) -> Result<ClockMap> {
        let clock = ClockId::new(w.varint_u32("clock id")?);
        let error_ns = w.varint("error of a clock map")?;
        let start = w.position();
        let count = w.count(2, "number of knots")?;
        let knots = read_knots(w, start, count, |w| {
            Ok((w.wide("tick of a knot")?, w.signed("time of a knot")?))
        })?;
        Ok(ClockMap {
            clock,
            error_ns,
            knots,
        })
    }
}

/// What stands in a list already, so that equal entries are found without searching it. Says nothing
/// that the list does not, and is not compared.
#[derive(Clone, Debug)]
struct Seen<T>(HashSet<T>);

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T> PartialEq for Seen<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Seen<T> {}

impl<T: Copy + Eq + Hash> Seen<T> {
    /// Appends an entry unless the list has it.
    fn push(&mut self, list: &mut Vec<T>, entry: T) {
        if self.0.len() != list.len() {
            // The list was changed by other hands.
            self.0 = list.iter().copied().collect();
        }
        if self.0.insert(entry) {
            list.push(entry);
        }
    }
}

/// Memory that the definitions read so far may take, bytes. It is not part of what they are, and is not compared.
#[derive(Clone, Copy, Default, Debug)]
struct MemoryTaken(u64);

impl PartialEq for MemoryTaken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MemoryTaken {}

impl MemoryTaken {
    /// Whether the next record may be decoded: what it takes follows from its length.
    fn has_room_for(self, mut record: Wire<'_>, most: u64) -> bool {
        /// Calibration points take a tenth of a byte in a record for each byte in memory; nothing takes less but a
        /// shared clock map's clocks, which are no more than their record while it is decoded.
        const MEMORY_PER_BYTE: u64 = 10;
        let kind = record.varint("kind of a definition");
        let length = kind.and_then(|_| record.varint("length of a definition"));
        // Whatever is wrong with it, decoding finds out.
        let length = length.unwrap_or(0).min(record.remaining() as u64);
        self.0.saturating_add(length * MEMORY_PER_BYTE) <= most
    }

    /// Counts a definition whose record has `record` bytes. Returns false, and counts nothing, if more than `most` bytes
    /// would be taken.
    fn count(&mut self, definition: &Definition, record: usize, most: u64) -> bool {
        let bytes = match definition {
            Definition::Calibrations(points) => {
                points.len() as u64 * size_of::<CalibrationPoint>() as u64
            }
            // A clock takes a byte, and has a place in the table of maps; a knot takes two.
            Definition::SharedClockMap(map) => {
                128 + 80 * map.clocks.len() as u64 + 32 * map.knots.len() as u64
            }
            // The smallest parts of a record are those of the largest lists: knots of a clock map, 2 bytes for 32.
            _ => 128 + 16 * record as u64,
        };
        let sum = self.0.saturating_add(bytes);
        let has_room = sum <= most;
        self.0 = if has_room { sum } else { self.0 };
        has_room
    }
}

/// All definitions of a file, by id.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Definitions {
    pub strings: BTreeMap<StringId, String>,
    pub processes: BTreeMap<ProcessId, Process>,
    pub ranks: BTreeMap<ProcessId, Rank>,
    pub worlds: BTreeMap<ProcessId, World>,
    pub properties: Vec<Property>,
    pub clocks: BTreeMap<ClockId, Clock>,
    pub calibration: Vec<CalibrationPoint>,
    pub sources: BTreeMap<SourceId, Source>,
    pub event_types: BTreeMap<EventTypeId, EventType>,
    pub regions: BTreeMap<RegionId, Region>,
    pub region_sets: BTreeMap<ProcessId, RegionSet>,
    pub locations: BTreeMap<LocationId, Location>,
    pub streams: BTreeMap<StreamId, Stream>,
    pub objects: BTreeMap<ObjectId, Object>,
    pub registrations: Vec<Registration>,
    pub clock_maps: BTreeMap<ClockId, ClockMap>,
    pub process_ends: BTreeMap<ProcessId, ProcessEnd>,
    pub time_zero: Option<TimeZero>,
    pub modules: BTreeMap<ModuleId, Module>,
    pub functions: BTreeMap<RegionId, Function>,
    pub symbols: BTreeMap<RegionId, Symbol>,
    pub filters: Vec<Filter>,
    pub slice: Option<Slice>,
    memory_taken: MemoryTaken,
    seen_filters: Seen<Filter>,
    pub host_offsets: Vec<HostOffset>,
    pub clock_errors: BTreeMap<ClockId, ClockError>,
    /// By process, and what they are of.
    pub foreign: BTreeMap<(ProcessId, Reference, u32), Foreign>,
    seen_host_offsets: Seen<HostOffset>,
    seen_properties: Seen<Property>,
    seen_registrations: Seen<Registration>,
}

/// A long run has hundreds of thousands of points, and reading starts with them: so they are small, each told by how
/// its step from the one before differs from the step before that.
fn put_calibrations(b: &mut Vec<u8>, points: &[CalibrationPoint]) {
    let clock = points.first().map_or(0, |point| point.clock.get());
    b.put_varint(clock.into());
    b.put_varint(points.len() as u64);
    let (mut tick, mut reference, mut unix_offset) = (Steps::default(), Steps::default(), 0);
    for point in points {
        b.put_signed(tick.step_to(point.tick.into()) as i64);
        b.put_signed(reference.step_to(point.reference_ns.into()) as i64);
        b.put_varint(point.error_ns);
        b.put_signed(point.unix_offset_ns.wrapping_sub(unix_offset));
        unix_offset = point.unix_offset_ns;
    }
}

fn read_calibrations(w: &mut Wire<'_>) -> Result<Vec<CalibrationPoint>> {
    let clock = ClockId::new(w.varint_u32("clock id")?);
    // Each takes at least four bytes.
    let count = w.count(4, "number of calibration points")?;
    let mut points = Vec::with_capacity(count);
    let (mut tick, mut reference, mut unix_offset) = (Steps::default(), Steps::default(), 0_i64);
    for _ in 0..count {
        points.push(CalibrationPoint {
            clock,
            tick: tick.take(w.signed("calibration tick")?.into()) as u64,
            reference_ns: reference.take(w.signed("calibration reference")?.into()) as i64,
            error_ns: w.varint("calibration error")?,
            unix_offset_ns: {
                unix_offset = unix_offset.wrapping_add(w.signed("wall clock offset")?);
                unix_offset
            },
        });
    }
    Ok(points)
}

/// Appends the knots told as calibration points are: clocks of a host are tied to it many times a second.
fn put_shared_map(b: &mut Vec<u8>, map: &SharedClockMap) {
    b.put_varint(map.clocks.len() as u64);
    let mut before = 0;
    for clock in &map.clocks {
        b.put_varint(clock.get().wrapping_sub(before).into());
        before = clock.get();
    }
    b.put_varint(map.error_ns);
    b.put_varint(map.knots.len() as u64);
    let (mut ticks, mut times) = (Steps::default(), Steps::default());
    for (tick, time_ns) in &map.knots[..] {
        b.put_wide(ticks.step_to(*tick));
        b.put_signed(times.step_to((*time_ns).into()) as i64);
    }
}

fn read_shared_map(w: &mut Wire<'_>) -> Result<SharedClockMap> {
    let start = w.position();
    let count = w.count(1, "number of clocks")?;
    let mut clocks: Vec<ClockId> = Vec::with_capacity(count);
    for _ in 0..count {
        let more = w.varint_u32("clock id")?;
        let next = match clocks.last() {
            None => Some(more),
            Some(last) => last.get().checked_add(more).filter(|_| more != 0),
        };
        let next =
            next.ok_or_else(|| FormatError::invalid(w.position(), "ascending clock ids", more))?;
        clocks.push(ClockId::new(next));
    }
    if clocks.is_empty() {
        return Err(FormatError::invalid(start, "at least one clock", count));
    }
    let error_ns = w.varint("error of a clock map")?;
    let start = w.position();
    let count = w.count(2, "number of knots")?;
    let (mut ticks, mut times) = (Steps::default(), Steps::default());
    let knots = read_knots(w, start, count, |w| {
        let tick = ticks.take(w.wide("tick of a knot")?);
        let time_ns = times.take(w.signed("time of a knot")?.into()) as i64;
        Ok((tick, time_ns))
    })?;
    Ok(SharedClockMap {
        clocks,
        error_ns,
        knots,
    })
}

/// Reads so many knots, which must ascend.
fn read_knots(
    w: &mut Wire<'_>,
    start: usize,
    count: usize,
    mut knot: impl FnMut(&mut Wire<'_>) -> Result<(i128, i64)>,
) -> Result<Arc<[(i128, i64)]>> {
    let mut knots: Vec<(i128, i64)> = Vec::with_capacity(count);
    for _ in 0..count {
        let knot = knot(w)?;
        if let Some(last) = knots.last()
            && (knot.0 <= last.0 || knot.1 <= last.1)
        {
            return Err(FormatError::invalid(
                w.position(),
                "ascending knots",
                format!("{knot:?} after {last:?}"),
            ));
        }
        knots.push(knot);
    }
    if count < 2 {
        return Err(FormatError::invalid(start, "at least two knots", count));
    }
    Ok(knots.into())
}

/// Numbers told by how much each step differs from the one before, modulo 2¹²⁸; whoever takes the low 64 bits of what is
/// told, and of what comes of it, has the same modulo 2⁶⁴.
#[derive(Default)]
struct Steps {
    last: i128,
    step: i128,
}

impl Steps {
    fn step_to(&mut self, value: i128) -> i128 {
        let step = value.wrapping_sub(self.last);
        let told = step.wrapping_sub(self.step);
        (self.last, self.step) = (value, step);
        told
    }

    fn take(&mut self, told: i128) -> i128 {
        self.step = self.step.wrapping_add(told);
        self.last = self.last.wrapping_add(self.step);
        self.last
    }
}

impl Definitions {
    /// Takes a definition in. A definition that is already known by its id stays as it was:
    /// definitions never change, and readers meet them twice (block and footer, block and live area).
    pub fn add(&mut self, definition: Definition) {
        match definition {
            Definition::String(id, text) => {
                self.strings.entry(id).or_insert(text);
            }
            Definition::Process(d) => {
                self.processes.entry(d.id).or_insert(d);
            }
            Definition::Rank(d) => {
                self.ranks.insert(d.process, d);
            }
            Definition::Property(d) => self.seen_properties.push(&mut self.properties, d),
            Definition::Clock(d) => {
                self.clocks.entry(d.id).or_insert(d);
            }
            Definition::Calibration(d) => self.calibration.push(d),
            Definition::Calibrations(points) => self.calibration.extend(points),
            Definition::Source(d) => {
                self.sources.entry(d.id).or_insert(d);
            }
            Definition::EventType(d) => {
                self.event_types.entry(d.id).or_insert(d);
            }
            Definition::Region(d) => {
                self.regions.entry(d.id).or_insert(d);
            }
            Definition::RegionSet(d) => {
                self.region_sets.entry(d.process).or_insert(d);
            }
            Definition::Location(d) => {
                self.locations.entry(d.id).or_insert(d);
            }
            Definition::Stream(d) => {
                self.streams.entry(d.id).or_insert(d);
            }
            Definition::Object(d) => {
                self.objects.entry(d.id).or_insert(d);
            }
            Definition::Registration(d) => {
                self.seen_registrations.push(&mut self.registrations, d);
            }
            Definition::ClockMap(d) => {
                self.clock_maps.entry(d.clock).or_insert(d);
            }
            Definition::SharedClockMap(d) => {
                for clock in d.clocks {
                    self.clock_maps.entry(clock).or_insert_with(|| ClockMap {
                        clock,
                        error_ns: d.error_ns,
                        knots: Arc::clone(&d.knots),
                    });
                }
            }
            Definition::ProcessEnd(d) => {
                self.process_ends.insert(d.process, d);
            }
            Definition::TimeZero(d) => self.time_zero = Some(d),
            Definition::Module(d) => {
                self.modules.insert(d.id, d);
            }
            Definition::Function(d) => {
                self.functions.entry(d.region).or_insert(d);
            }
            Definition::Symbol(d) => {
                self.symbols.insert(d.region, d);
            }
            Definition::Slice(d) => {
                self.slice.get_or_insert(d);
            }
            Definition::Filter(d) => self.seen_filters.push(&mut self.filters, d),
            Definition::HostOffset(d) => {
                self.seen_host_offsets.push(&mut self.host_offsets, d);
            }
            Definition::ClockError(d) => {
                self.clock_errors.insert(d.clock, d);
            }
            Definition::Foreign(d) => {
                let key = (d.process, d.of, d.id);
                self.foreign.entry(key).or_insert(d);
            }
            Definition::World(d) => {
                self.worlds.insert(d.process, d);
            }
        }
    }

    /// Reads records until the bytes end. A record that contradicts SPEC.md is stepped over.
    ///
    /// # Errors
    /// The first record that could not be taken in, all others taken in; after one whose length is broken none can be
    /// found. Reading ends at a record that would take more memory than the largest file may have.
    pub fn add_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.add_all_within(bytes, &FileLimits::of_length(u64::MAX))
    }

    /// Reads records of a file with these limits.
    pub(crate) fn add_all_within(&mut self, bytes: &[u8], limits: &FileLimits) -> Result<()> {
        let most = limits.definitions_memory;
        let mut wire = Wire::new(bytes);
        let mut outcome = Ok(());
        let too_much = |before: usize| {
            let expected = "definitions that take no more memory than the limits allow";
            FormatError::invalid(before, expected, format!("more than {} MiB", most >> 20))
        };
        while !wire.is_empty() {
            let before = wire.position();
            if !self.memory_taken.has_room_for(wire.clone(), most) {
                return outcome.and(Err(too_much(before)));
            }
            match Definition::decode(&mut wire) {
                Ok(Some(definition)) if definition.highest_key() >= limits.ids => {
                    let expected = "a definition with an id that the file has room for";
                    let found = definition.highest_key();
                    outcome = outcome.and(Err(FormatError::invalid(before, expected, found)));
                }
                Ok(Some(definition)) => {
                    let record = wire.position() - before;
                    if !self.memory_taken.count(&definition, record, most) {
                        return outcome.and(Err(too_much(before)));
                    }
                    self.add(definition);
                }
                Ok(None) => {}
                Err(error) => {
                    let is_whole = Definition::step_over(&mut wire, bytes, before);
                    outcome = outcome.and(Err(error));
                    if !is_whole {
                        break;
                    }
                }
            }
        }
        outcome
    }

    /// Gives regions the names, files and lines of their symbols.
    pub fn apply_symbols(&mut self) {
        for (id, symbol) in std::mem::take(&mut self.symbols) {
            if let Some(region) = self.regions.get_mut(&id) {
                (region.name, region.file, region.line) = (symbol.name, symbol.file, symbol.line);
            }
        }
    }

    /// Puts calibration points into the order of their clocks and times, once each.
    pub fn tidy(&mut self) {
        self.calibration
            .sort_by_key(|point| (point.clock, point.reference_ns, point.tick));
        self.calibration.dedup();
    }

    /// Appends every definition, strings first, then in the order of the kinds.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.for_each(|definition| definition.encode(out));
    }

    fn for_each(&self, mut each: impl FnMut(Definition)) {
        let strings = self.strings.iter();
        strings.for_each(|(id, text)| each(Definition::String(*id, text.clone())));
        let processes = self.processes.values().cloned();
        processes.for_each(|d| each(Definition::Process(d)));
        self.ranks.values().for_each(|d| each(Definition::Rank(*d)));
        let properties = self.properties.iter();
        properties.for_each(|d| each(Definition::Property(*d)));
        let clocks = self.clocks.values().cloned();
        clocks.for_each(|d| each(Definition::Clock(d)));
        let calibration = self.calibration.chunk_by(|a, b| a.clock == b.clock);
        calibration.for_each(|points| each(Definition::Calibrations(points.to_vec())));
        let sources = self.sources.values().cloned();
        sources.for_each(|d| each(Definition::Source(d)));
        let event_types = self.event_types.values().cloned();
        event_types.for_each(|d| each(Definition::EventType(d)));
        let regions = self.regions.values().cloned();
        regions.for_each(|d| each(Definition::Region(d)));
        let region_sets = self.region_sets.values().cloned();
        region_sets.for_each(|d| each(Definition::RegionSet(d)));
        let locations = self.locations.values().cloned();
        locations.for_each(|d| each(Definition::Location(d)));
        let streams = self.streams.values();
        streams.for_each(|d| each(Definition::Stream(*d)));
        let objects = self.objects.values();
        objects.for_each(|d| each(Definition::Object(*d)));
        let registrations = self.registrations.iter();
        registrations.for_each(|d| each(Definition::Registration(*d)));
        let clock_maps = SharedClockMap::of(self.clock_maps.values());
        let clock_maps = clock_maps.into_iter();
        clock_maps.for_each(|d| each(Definition::SharedClockMap(d)));
        let ends = self.process_ends.values();
        ends.for_each(|d| each(Definition::ProcessEnd(*d)));
        let zero = self.time_zero.iter();
        zero.for_each(|d| each(Definition::TimeZero(*d)));
        let modules = self.modules.values().cloned();
        modules.for_each(|d| each(Definition::Module(d)));
        let functions = self.functions.values();
        functions.for_each(|d| each(Definition::Function(*d)));
        let symbols = self.symbols.values();
        symbols.for_each(|d| each(Definition::Symbol(*d)));
        let filters = self.filters.iter();
        filters.for_each(|d| each(Definition::Filter(*d)));
        let slice = self.slice.iter();
        slice.for_each(|d| each(Definition::Slice(*d)));
        let offsets = self.host_offsets.iter();
        offsets.for_each(|d| each(Definition::HostOffset(*d)));
        let errors = self.clock_errors.values().cloned();
        errors.for_each(|d| each(Definition::ClockError(d)));
        let foreign = self.foreign.values().cloned();
        foreign.for_each(|d| each(Definition::Foreign(d)));
        let worlds = self.worlds.values();
        worlds.for_each(|d| each(Definition::World(*d)));
    }

    /// The string with this text, which is added unless there is one.
    pub fn intern(&mut self, text: &str) -> StringId {
        let known = self.strings.iter().find(|(_, known)| *known == text);
        if let Some((id, _)) = known {
            return *id;
        }
        let last = self.strings.last_key_value().map(|(id, _)| id.get());
        let id = StringId::new(last.map_or(0, |last| last.saturating_add(1)));
        self.add(Definition::String(id, text.to_owned()));
        id
    }

    /// The rank of a process as its world counts, as elements of events have it.
    pub fn rank_in_world(&self, process: ProcessId) -> Option<u32> {
        let first = self.first_rank(process);
        self.ranks.get(&process)?.rank.checked_sub(first)
    }

    /// What is to be added to a rank that an event of this process tells, to get the rank in this file: see [`World`].
    pub fn first_rank(&self, process: ProcessId) -> u32 {
        self.worlds
            .get(&process)
            .map_or(0, |world| world.first_rank)
    }

    /// The text of a string; empty when its definition is lost.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(&id).map_or("", String::as_str)
    }

    /// The name of an event type, or `event-type-N` when its definition is lost.
    pub fn event_type_name(&self, id: EventTypeId) -> String {
        match self.event_types.get(&id) {
            Some(event_type) => self.string(event_type.name).to_owned(),
            None => format!("event-type-{}", id.get()),
        }
    }

    /// The name of a region, or `region-N` when its definition is lost.
    pub fn region_name(&self, id: RegionId) -> String {
        match self.regions.get(&id) {
            Some(region) => self.string(region.name).to_owned(),
            None => format!("region-{}", id.get()),
        }
    }

    /// What a region was called while its program ran: [`Module::function_name`] for a function, whatever symbol it
    /// has by now; none when its definition is lost.
    pub fn recorded_name(&self, id: RegionId) -> Option<Cow<'_, str>> {
        let function = self.functions.get(&id);
        let module = function.and_then(|function| self.modules.get(&function.module));
        Some(match (function, module) {
            (Some(function), Some(module)) => {
                Module::function_name(self.string(module.path), function.offset).into()
            }
            _ => self.string(self.regions.get(&id)?.name).into(),
        })
    }

    /// The process of a stream, through its source.
    pub fn process_of(&self, stream: StreamId) -> Option<ProcessId> {
        let source = self.sources.get(&self.streams.get(&stream)?.source)?;
        Some(source.process)
    }

    /// The rank of a process. 0 if it has none.
    pub fn rank_of(&self, process: ProcessId) -> u32 {
        self.ranks.get(&process).map_or(0, |rank| rank.rank)
    }

    /// The rank of a stream's process. 0 if it has none, or definitions are lost.
    pub fn rank_of_stream(&self, stream: StreamId) -> u32 {
        self.process_of(stream)
            .map_or(0, |process| self.rank_of(process))
    }

    /// The rank of a location's process. 0 if it has none, or its definition is lost.
    pub fn rank_of_location(&self, location: LocationId) -> u32 {
        let location = self.locations.get(&location);
        location.map_or(0, |location| self.rank_of(location.process))
    }

    /// The clock of a stream's source. `None` if definitions are lost.
    pub fn clock_of(&self, stream: StreamId) -> Option<ClockId> {
        let source = self.sources.get(&self.streams.get(&stream)?.source)?;
        Some(source.clock)
    }

    /// The position of an element in its event type, by name. `None` if there is no such type or element.
    pub fn element(&self, event_type: EventTypeId, name: &str) -> Option<usize> {
        let elements = &self.event_types.get(&event_type)?.elements;
        let mut names = elements.iter().map(|element| self.string(element.name));
        names.position(|known| known == name)
    }

    /// The element types of every event type: what a row or a column needs to be decoded.
    pub fn schema(&self) -> Schema {
        let mut schema = Schema::default();
        for event_type in self.event_types.values() {
            schema.add(event_type);
        }
        schema
    }
}

/// The element types of event types: enough to decode rows.
#[derive(Clone, Default, Debug)]
pub struct Schema {
    event_types: Vec<Option<EventTypeSchema>>,
}

/// The element types of one event type.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct EventTypeSchema {
    /// Type and optionality of each element, in order.
    pub elements: Vec<(ElementType, bool)>,
}

impl EventTypeSchema {
    /// The schema of a definition.
    pub fn of(event_type: &EventType) -> Self {
        let elements = event_type.elements.iter();
        Self {
            elements: elements
                .map(|element| (element.element_type, element.is_optional))
                .collect(),
        }
    }

    /// Whether rows of the type carry a presence bitmap.
    pub fn has_optional(&self) -> bool {
        self.elements.iter().any(|(_, is_optional)| *is_optional)
    }
}

impl Schema {
    /// Event types beyond this number have no schema: it bounds the table, not the format.
    pub const MAX_EVENT_TYPES: usize = 1 << 20;

    /// Takes an event type in.
    pub fn add(&mut self, event_type: &EventType) {
        let index = event_type.id.index();
        if index >= Self::MAX_EVENT_TYPES {
            return;
        }
        if self.event_types.len() <= index {
            self.event_types.resize(index + 1, None);
        }
        self.event_types[index] = Some(EventTypeSchema::of(event_type));
    }

    /// The schema of an event type, if its definition is known.
    pub fn get(&self, id: EventTypeId) -> Option<&EventTypeSchema> {
        self.event_types.get(id.index())?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_kinds() -> Vec<Definition> {
        let s = StringId::new;
        vec![
            Definition::String(s(0), String::new()),
            Definition::String(s(1), "grüße".to_owned()),
            Definition::Process(Process {
                id: ProcessId::new(0),
                recording_id: RecordingId([7; 16]),
                run: s(1),
                host: s(0),
                boot_id: BootId([9; 16]),
                pid: 4711,
                start_unix_ns: 1_700_000_000_000_000_000,
                start_reference_ns: -5,
                command: s(1),
            }),
            Definition::Rank(Rank {
                process: ProcessId::new(0),
                rank: 3,
                rank_count: Some(4),
                is_assigned: false,
            }),
            Definition::Property(Property {
                process: ProcessId::new(0),
                key: s(0),
                value: s(1),
            }),
            Definition::Clock(Clock {
                id: ClockId::new(1),
                process: ProcessId::new(0),
                name: s(1),
                kind: ClockKind::Tsc,
                ticks_per_second: 2_596_000_000,
                rate_error_ppb: 100_000,
                max_ticks: u64::MAX,
            }),
            Definition::Calibration(CalibrationPoint {
                clock: ClockId::new(1),
                tick: u64::MAX,
                reference_ns: 12,
                error_ns: 25,
                unix_offset_ns: 1_700_000_000_000_000_000,
            }),
            Definition::Calibrations(
                [
                    (7, 100, 25),
                    (u64::MAX, i64::MAX, 0),
                    (8, i64::MIN, u64::MAX),
                ]
                .map(|(tick, reference_ns, error_ns)| CalibrationPoint {
                    clock: ClockId::new(1),
                    tick,
                    reference_ns,
                    error_ns,
                    unix_offset_ns: reference_ns.wrapping_neg(),
                })
                .to_vec(),
            ),
            Definition::Source(Source {
                id: SourceId::new(2),
                process: ProcessId::new(0),
                name: s(1),
                description: s(0),
                ordering: SourceOrder::Unordered,
                clock: ClockId::new(1),
            }),
            Definition::EventType(EventType {
                id: EventTypeId::new(5),
                name: s(1),
                description: s(0),
                verbosity: Verbosity::TunerDetail,
                role: Role::Begin,
                key_element: Some(0),
                elements: vec![Element {
                    name: s(1),
                    element_type: ElementType::U64,
                    is_optional: true,
                    reference: Reference::Object,
                    unit: s(0),
                    original_bits: 32,
                }],
            }),
            Definition::Region(Region {
                id: RegionId::new(8),
                name: s(1),
                file: s(0),
                line: 12,
                group: s(0),
            }),
            Definition::RegionSet(RegionSet {
                process: ProcessId::new(0),
                regions: vec![RegionId::new(8), RegionId::new(500)],
            }),
            Definition::Location(Location {
                id: LocationId::new(0),
                process: ProcessId::new(0),
                name: s(1),
                kind: LocationKind::Device,
                system_id: 77,
            }),
            Definition::Stream(Stream {
                id: StreamId::new(0),
                source: SourceId::new(2),
                location: None,
            }),
            Definition::Object(Object {
                id: ObjectId::new(0),
                process: ProcessId::new(0),
                kind: s(0),
                name: s(1),
            }),
            Definition::Registration(Registration {
                process: ProcessId::new(0),
                event_type: EventTypeId::new(5),
                object: Some(ObjectId::new(0)),
            }),
            Definition::ClockMap(ClockMap {
                clock: ClockId::new(1),
                error_ns: 40,
                knots: [(-5, 0), (i128::from(u64::MAX) * 3, 10)].into(),
            }),
            Definition::SharedClockMap(SharedClockMap {
                clocks: [3, 4, u32::MAX].map(ClockId::new).to_vec(),
                error_ns: u64::MAX,
                knots: [(i128::MIN, i64::MIN), (0, -1), (i128::MAX, i64::MAX)].into(),
            }),
            Definition::ProcessEnd(ProcessEnd {
                process: ProcessId::new(0),
                ended: Ended::Killed,
                start_ns: 0,
                end_ns: 99,
            }),
            Definition::TimeZero(TimeZero {
                unix_ns: 1,
                end_ns: 2,
                reference_ns: Some(-3),
            }),
            Definition::Module(Module {
                id: ModuleId::new(0),
                process: ProcessId::new(0),
                path: s(1),
                build_id: vec![0xab; 20],
                base: 0x5555_5555_4000,
                loaded_ns: -7,
                unloaded_ns: Some(90),
            }),
            Definition::Function(Function {
                region: RegionId::new(8),
                module: ModuleId::new(0),
                offset: 0x1139,
            }),
            Definition::Symbol(Symbol {
                region: RegionId::new(8),
                name: s(1),
                file: s(0),
                line: 30,
            }),
            Definition::Filter(Filter {
                from_ns: Some(-5),
                to_ns: None,
                ranks: s(1),
                sources: s(0),
                locations: s(0),
                event_types: s(1),
            }),
            Definition::Slice(Slice {
                number: 2,
                of: 5,
                from_ns: Some(-7),
                to_ns: None,
            }),
            Definition::HostOffset(HostOffset {
                from: BootId([1; 16]),
                to: BootId([2; 16]),
                reference_ns: 5_000,
                offset_ns: -300,
                error_ns: 1_200,
            }),
            Definition::ClockError(ClockError {
                clock: ClockId::new(1),
                alike: ClockId::new(0),
                relation: Relation::Measured,
                knots: [(0, 25, 1_200), (1_000, 40, UNBOUNDED)]
                    .map(|(time_ns, own_ns, host_ns)| ErrorKnot {
                        time_ns,
                        own_ns,
                        host_ns,
                    })
                    .to_vec(),
            }),
        ]
    }

    #[test]
    fn definitions_take_no_more_memory_than_they_may() {
        let mut record = Vec::new();
        Definition::String(StringId::new(7), "a".repeat(16 << 20)).encode(&mut record);
        // The largest file, and one of a megabyte.
        let limits = [(u64::MAX, 15, "4095 MiB"), (2 << 20, 1, "320 MiB")];
        for (length, expected, most) in limits {
            let limits = FileLimits::of_length(length);
            let mut read = Definitions::default();
            let mut add = |number| {
                let outcome = read.add_all_within(&record, &limits);
                Some((number, outcome.err()?))
            };
            let (number, error) = (0..20).find_map(&mut add).unwrap();
            assert_eq!(number, expected, "records of 256 MiB each");
            assert!(error.to_string().contains(most), "{error}");
            assert_eq!(read.strings.len(), 1);
        }
        let mut read = Definitions::default();
        while read.add_all(&record).is_ok() {}
        // A smaller one has room still.
        let mut record = Vec::new();
        Definition::String(StringId::new(8), "b".to_owned()).encode(&mut record);
        read.add_all(&record).unwrap();
        assert_eq!(read.string(StringId::new(8)), "b");
    }

    #[test]
    fn every_kind_round_trips_and_the_table_gives_all_back() {
        let mut bytes = Vec::new();
        let mut table = Definitions::default();
        for definition in all_kinds() {
            definition.encode(&mut bytes);
            table.add(definition);
        }
        let mut wire = Wire::new(&bytes);
        for definition in all_kinds() {
            assert_eq!(Definition::decode(&mut wire).unwrap(), Some(definition));
        }
        let mut again = Vec::new();
        table.encode(&mut again);
        let mut read = Definitions::default();
        read.add_all(&again).unwrap();
        assert_eq!(read, table);
    }

    #[test]
    fn bounds_are_linear_between_their_knots_and_never_too_small() {
        let knots = [(0, 10, 100), (1_000, 13, 40), (2_000, 13, UNBOUNDED)];
        let error = ClockError {
            clock: ClockId::new(0),
            alike: ClockId::new(0),
            relation: Relation::File,
            knots: knots
                .map(|(time_ns, own_ns, host_ns)| ErrorKnot {
                    time_ns,
                    own_ns,
                    host_ns,
                })
                .to_vec(),
        };
        let at = [-5, 0, 500, 999, 1_000, 1_500, 3_000].map(|time| error.at(time));
        let unbounded = (13, UNBOUNDED);
        let expected = [
            (10, 100),
            (10, 100),
            (12, 70),
            (13, 41),
            (13, 40),
            unbounded,
            unbounded,
        ];
        assert_eq!(at, expected);
    }

    #[test]
    fn unknown_kinds_and_longer_bodies_are_stepped_over() {
        let mut bytes = Vec::new();
        bytes.put_varint(900);
        bytes.put_bytes(b"from the future");
        bytes.put_varint(17);
        bytes.put_bytes(&[2, 4, 5, 99]);
        let mut table = Definitions::default();
        table.add_all(&bytes).unwrap();
        let zero = TimeZero {
            unix_ns: 1,
            end_ns: 2,
            reference_ns: Some(-3),
        };
        assert_eq!(table.time_zero, Some(zero));
    }

    #[test]
    fn a_broken_record_costs_only_itself() {
        let mut bytes = Vec::new();
        Definition::String(StringId::new(1), "before".to_owned()).encode(&mut bytes);
        // A clock of an unknown kind.
        bytes.put_varint(5);
        bytes.put_bytes(&[0, 0, 0, 9, 1, 0, 0]);
        // An event type that ends early.
        bytes.put_varint(8);
        bytes.put_bytes(&[0]);
        Definition::String(StringId::new(2), "behind".to_owned()).encode(&mut bytes);
        let mut table = Definitions::default();
        let error = table.add_all(&bytes).unwrap_err();
        assert!(error.to_string().contains("clock kind"), "{error}");
        assert_eq!(table.string(StringId::new(1)), "before");
        assert_eq!(table.string(StringId::new(2)), "behind");
        assert_eq!((table.clocks.len(), table.event_types.len()), (0, 0));
    }

    #[test]
    fn a_hundred_thousand_equal_or_different_entries_are_quick_to_tell_apart() {
        let mut bytes = Vec::new();
        for id in 0..100_000 {
            let property = Property {
                process: ProcessId::new(0),
                key: StringId::new(id),
                value: StringId::new(id),
            };
            let registration = Registration {
                process: ProcessId::new(0),
                event_type: EventTypeId::new(id),
                object: None,
            };
            for _ in 0..2 {
                Definition::Property(property).encode(&mut bytes);
                Definition::Registration(registration).encode(&mut bytes);
            }
        }
        let mut table = Definitions::default();
        let start = std::time::Instant::now();
        table.add_all(&bytes).unwrap();
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
        let counts = (table.properties.len(), table.registrations.len());
        assert_eq!(counts, (100_000, 100_000));
        // Also when a program has changed the lists itself.
        table.properties.truncate(1);
        let first = table.properties[0];
        table.add(Definition::Property(first));
        assert_eq!(table.properties.len(), 1);
    }

    #[test]
    fn cut_and_flipped_definitions_never_panic() {
        let mut bytes = Vec::new();
        all_kinds().iter().for_each(|d| d.encode(&mut bytes));
        for length in 0..bytes.len() {
            let _ = Definitions::default().add_all(&bytes[..length]);
        }
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[position] ^= 1 << bit;
                let _ = Definitions::default().add_all(&flipped);
            }
        }
    }
}
