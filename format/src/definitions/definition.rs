//! One record of the definitions: kind, length, body. [`kinds!`] is the table of all kinds.

use super::call_path::{CallPath, CodeLines};
use super::clock::{CalibrationPoint, Clock, ClockError, HostOffset, SharedClockMap};
use super::event_type::EventType;
use super::merge::{Filter, ForeignRecord, LocationEnd, ProcessEnd, Slice, TimeZero};
use super::process::{
    Location, Object, Process, Property, Rank, Registration, RemoteMembers, Source, Stream, World,
};
use super::record::{Record, read_string};
use super::region::{Function, Module, Region, RegionSet, Symbol};
use crate::error::Result;
use crate::ids::StringId;
use crate::wire::{Put, Wire};

/// Number of the kind of strings, whose record is not a struct.
const STRING_KIND: u64 = 1;

/// Declares [`Definition`] and how it is encoded and decoded, from the types of its records.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident($record:ty),)*) => {
        /// One record of the definitions.
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum Definition {
            String(StringId, String),
            $($(#[$doc])* $variant($record),)*
        }

        impl Definition {
            /// Number and variant of every kind.
            #[cfg(test)]
            pub(super) const KINDS: &[(u64, &str)] = &[
                (STRING_KIND, "String"),
                $((<$record as Record>::KIND, stringify!($variant)),)*
            ];

            /// Returns the id that the record defines or describes: the highest of several, or 0.
            pub(super) fn highest_id(&self) -> u32 {
                match self {
                    Self::String(id, _) => id.get(),
                    $(Self::$variant(record) => record.highest_id(),)*
                }
            }

            /// Appends the body and returns the number of the kind.
            fn put_body(&self, out: &mut Vec<u8>) -> u64 {
                match self {
                    Self::String(id, text) => {
                        out.put_varint(id.get().into());
                        out.put_bytes(text.as_bytes());
                        STRING_KIND
                    }
                    $(Self::$variant(record) => {
                        record.put(out);
                        <$record as Record>::KIND
                    })*
                }
            }

            /// Reads the body of a record of this kind. Returns `None` if the kind is unknown.
            fn read_body(kind: u64, wire: &mut Wire<'_>) -> Result<Option<Self>> {
                Ok(Some(match kind {
                    STRING_KIND => {
                        let id = read_string(wire)?;
                        let text = crate::text_of(wire.bytes("text of a string")?).into_owned();
                        Self::String(id, text)
                    }
                    $(<$record as Record>::KIND => {
                        Self::$variant(<$record as Record>::read(wire)?)
                    })*
                    _ => return Ok(None),
                }))
            }
        }
    };
}

kinds! {
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
    Foreign(ForeignRecord),
    World(World),
    LocationEnd(LocationEnd),
    RemoteMembers(RemoteMembers),
    CallPath(CallPath),
    CodeLines(CodeLines),
}

impl Definition {
    /// Appends the record: kind, length, body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let kind = self.put_body(&mut body);
        out.put_varint(kind);
        out.put_bytes(&body);
    }

    /// Reads one record. Returns `None` if its kind is unknown; it is stepped over then.
    ///
    /// # Errors
    /// If the record ends early or a field contradicts SPEC.md.
    pub fn decode(wire: &mut Wire<'_>) -> Result<Option<Self>> {
        let kind = wire.varint("kind of a definition")?;
        let length = wire.count(1, "length of a definition")?;
        let start = wire.position() as u64;
        let mut body = Wire::new(wire.take(length, "body of a definition")?);
        Self::read_body(kind, &mut body).map_err(|error| error.shifted(start))
    }

    /// Moves `wire` to the end of the record that starts at `position` of `bytes`. Returns false if
    /// the bytes end before the record does.
    pub(super) fn step_over<'a>(wire: &mut Wire<'a>, bytes: &'a [u8], position: usize) -> bool {
        *wire = Wire::new(bytes);
        let step = |wire: &mut Wire<'a>| -> Result<()> {
            wire.take(position, "records")?;
            wire.varint("kind of a definition")?;
            wire.bytes("body of a definition")?;
            Ok(())
        };
        step(wire).is_ok()
    }
}
