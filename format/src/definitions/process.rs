//! Processes, where their events happen (locations, sources, streams), and the objects and
//! registrations of their programs.

use super::codes::{LocationKind, SourceOrder};
use super::record::{
    Record, put_optional_u32, read_code, read_code_or, read_optional_u32, read_process, read_string,
};
use crate::error::Result;
use crate::ids::{
    BootId, ClockId, EventTypeId, LocationId, ObjectId, ProcessId, RecordingId, SourceId, StreamId,
    StringId,
};
use crate::wire::{Put, Wire};

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

impl Record for Process {
    const KIND: u64 = 2;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.extend_from_slice(&self.recording_id.0);
        out.put_varint(self.run.get().into());
        out.put_varint(self.host.get().into());
        out.extend_from_slice(&self.boot_id.0);
        out.put_varint(self.pid.into());
        out.put_signed(self.start_unix_ns);
        out.put_signed(self.start_reference_ns);
        out.put_varint(self.command.get().into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: read_process(w)?,
            recording_id: RecordingId(w.array("recording id")?),
            run: read_string(w)?,
            host: read_string(w)?,
            boot_id: BootId(w.array("boot id")?),
            pid: w.varint_u32("process id of the system")?,
            start_unix_ns: w.signed("wall clock at the start")?,
            start_reference_ns: w.signed("reference clock at the start")?,
            command: read_string(w)?,
        })
    }
}

/// The rank of a process; it may become known long after the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// The process.
    pub process: ProcessId,
    /// Its number in the run.
    pub rank: u32,
    /// Number of ranks in the run. `None` if it is not known.
    pub rank_count: Option<u32>,
    /// Whether the merger chose the number because the recording has none.
    pub is_assigned: bool,
}

impl Record for Rank {
    const KIND: u64 = 3;

    fn highest_id(&self) -> u32 {
        self.process.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.rank.into());
        put_optional_u32(out, self.rank_count);
        out.push(self.is_assigned.into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            rank: w.varint_u32("rank")?,
            rank_count: read_optional_u32(w, "number of ranks")?,
            is_assigned: w.u8("assigned flag")? != 0,
        })
    }
}

/// The world in which a process's rank is counted: the processes that one start of a launcher, or
/// one spawn, started together. A run may have several worlds, each with ranks from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// The process.
    pub process: ProcessId,
    /// The launcher's name of the world; all its processes have the same.
    pub name: StringId,
    /// Rank in this file of the world's rank 0; in a recording 0. Ranks in elements of events are
    /// those within the world.
    pub first_rank: u32,
}

impl Record for World {
    const KIND: u64 = 28;

    fn highest_id(&self) -> u32 {
        self.process.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.name.get().into());
        out.put_varint(self.first_rank.into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            name: read_string(w)?,
            first_rank: w.varint_u32("first rank of a world")?,
        })
    }
}

/// A property of a process: a fact about the circumstances of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Property {
    /// The process.
    pub process: ProcessId,
    /// Name of the property.
    pub key: StringId,
    /// Value of the property.
    pub value: StringId,
}

impl Record for Property {
    const KIND: u64 = 4;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.key.get().into());
        out.put_varint(self.value.get().into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            key: read_string(w)?,
            value: read_string(w)?,
        })
    }
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
    /// Description, for human readers.
    pub description: StringId,
    /// Its promise about the order of its events.
    pub ordering: SourceOrder,
    /// The clock that stamps its events.
    pub clock: ClockId,
}

impl Record for Source {
    const KIND: u64 = 7;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.process.get().into());
        out.put_varint(self.name.get().into());
        out.put_varint(self.description.get().into());
        out.push(self.ordering.code());
        out.put_varint(self.clock.get().into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: SourceId::new(w.varint_u32("source id")?),
            process: read_process(w)?,
            name: read_string(w)?,
            description: read_string(w)?,
            ordering: read_code(w, "ordering", SourceOrder::from_code)?,
            clock: ClockId::new(w.varint_u32("clock id")?),
        })
    }
}

/// A place where events happen, such as a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Location {
    /// Its number.
    pub id: LocationId,
    /// The process it belongs to.
    pub process: ProcessId,
    /// Its name.
    pub name: StringId,
    /// The kind of place.
    pub kind: LocationKind,
    /// The system's id of the thread; 0 if it is not a thread.
    pub system_id: u64,
}

impl Record for Location {
    const KIND: u64 = 11;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.process.get().into());
        out.put_varint(self.name.get().into());
        out.push(self.kind.code());
        out.put_varint(self.system_id);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: LocationId::new(w.varint_u32("location id")?),
            process: read_process(w)?,
            name: read_string(w)?,
            kind: read_code_or(
                w,
                "location kind",
                LocationKind::from_code,
                LocationKind::Device,
            )?,
            system_id: w.varint("system id")?,
        })
    }
}

/// The events of one source at one location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Its number.
    pub id: StreamId,
    /// The source.
    pub source: SourceId,
    /// The location. `None` for the unattributed row, which counts losses that had no stream.
    pub location: Option<LocationId>,
}

impl Record for Stream {
    const KIND: u64 = 12;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.source.get().into());
        put_optional_u32(out, self.location.map(LocationId::get));
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: StreamId::new(w.varint_u32("stream id")?),
            source: SourceId::new(w.varint_u32("source id")?),
            location: read_optional_u32(w, "location id")?.map(LocationId::new),
        })
    }
}

/// An object that registrations are bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its number.
    pub id: ObjectId,
    /// The process it belongs to.
    pub process: ProcessId,
    /// The kind of object: `communicator`, `window`, ….
    pub kind: StringId,
    /// Its name.
    pub name: StringId,
}

impl Record for Object {
    const KIND: u64 = 13;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.process.get().into());
        out.put_varint(self.kind.get().into());
        out.put_varint(self.name.get().into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: ObjectId::new(w.varint_u32("object id")?),
            process: read_process(w)?,
            kind: read_string(w)?,
            name: read_string(w)?,
        })
    }
}

/// A communicator with processes of several worlds: how its process knows it, and the numbers that its processes of other
/// worlds have. These are the numbers from `first` on, in the order of their ranks in the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteMembers {
    /// The process.
    pub process: ProcessId,
    /// The communicator.
    pub object: ObjectId,
    /// How it was made. Processes that made it together have the same text, on each side.
    pub made: StringId,
    /// The communicator that it was made from, if that has processes of several worlds, too.
    pub parent: Option<ObjectId>,
    /// The side of the process in an intercommunicator: 1 began it (it spawned, or accepted), 2 joined. 0: it has one side, or
    /// it is not known.
    pub side: u8,
    /// Rank of the process in the communicator.
    pub place: u32,
    /// Number of processes on its own side.
    pub local: u32,
    /// Number of processes on the other side, to which its messages go; 0: it has one side.
    pub remote: u32,
    /// The number of the process with rank 0 among those to which messages go.
    pub first: u32,
    /// When the process began to connect, by its reference clock, nanoseconds: the begin of the call, of a spawned process that of
    /// MPI_Init. 0 if it has a parent.
    pub from_ns: i64,
    /// When the process had connected, nanoseconds; of a spawned process as `from_ns`.
    pub to_ns: i64,
}

/// The first of the numbers that processes of other worlds have: [`RemoteMembers::first`] is this or more.
pub const FIRST_REMOTE: u32 = 1 << 30;

impl Record for RemoteMembers {
    const KIND: u64 = 30;

    fn highest_id(&self) -> u32 {
        self.object.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.object.get().into());
        out.put_varint(self.made.get().into());
        put_optional_u32(out, self.parent.map(ObjectId::get));
        out.push(self.side);
        for number in [self.place, self.local, self.remote, self.first] {
            out.put_varint(number.into());
        }
        out.put_signed(self.from_ns);
        out.put_signed(self.to_ns);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            object: ObjectId::new(w.varint_u32("object id")?),
            made: read_string(w)?,
            parent: read_optional_u32(w, "parent of a communicator")?.map(ObjectId::new),
            side: w.u8("side of a communicator")?,
            place: w.varint_u32("rank in a communicator")?,
            local: w.varint_u32("number of processes")?,
            remote: w.varint_u32("number of remote processes")?,
            first: w.varint_u32("first number of remote processes")?,
            from_ns: w.signed("begin of a call")?,
            to_ns: w.signed("end of a call")?,
        })
    }
}

/// A subscription to an event type, possibly bound to an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration {
    /// The process that subscribed.
    pub process: ProcessId,
    /// The event type it subscribed to.
    pub event_type: EventTypeId,
    /// The object it is bound to. `None` if it is not bound.
    pub object: Option<ObjectId>,
}

impl Record for Registration {
    const KIND: u64 = 14;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.event_type.get().into());
        put_optional_u32(out, self.object.map(ObjectId::get));
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            event_type: EventTypeId::new(w.varint_u32("event type id")?),
            object: read_optional_u32(w, "object id")?.map(ObjectId::new),
        })
    }
}
