//! What a merge adds to a trace (its filter, its slice, the ends of processes, time zero), and what
//! is kept of another format.

use super::codes::{Ended, Reference};
use super::record::{Record, put_bound, read_bound, read_code, read_process, read_string};
use crate::error::Result;
use crate::ids::{LocationId, ProcessId, StringId};
use crate::wire::{Put, Wire};

/// The filter of a merge: what it kept. All other events were left out and counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Filter {
    /// Earliest trace time kept, nanoseconds. `None` means from the start.
    pub from_ns: Option<i64>,
    /// Earliest trace time after the window, nanoseconds. `None` means to the end.
    pub to_ns: Option<i64>,
    /// Ranks and ranges of ranks, separated by commas; the empty string means all.
    pub ranks: StringId,
    /// Names of sources, globs separated by commas; the empty string means all.
    pub sources: StringId,
    /// Names of locations, globs separated by commas; the empty string means all.
    pub locations: StringId,
    /// Names of event types, globs separated by commas; the empty string means all.
    pub event_types: StringId,
}

impl Record for Filter {
    const KIND: u64 = 23;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_bound(out, self.from_ns);
        put_bound(out, self.to_ns);
        for names in [self.ranks, self.sources, self.locations, self.event_types] {
            out.put_varint(names.get().into());
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            from_ns: read_bound(w)?,
            to_ns: read_bound(w)?,
            ranks: read_string(w)?,
            sources: read_string(w)?,
            locations: read_string(w)?,
            event_types: read_string(w)?,
        })
    }
}

/// Which slice a trace is, of a merge whose time was cut into several.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slice {
    /// Number of the slice, from 1.
    pub number: u32,
    /// Number of slices.
    pub of: u32,
    /// Earliest trace time of the slice, nanoseconds. `None` means from the start.
    pub from_ns: Option<i64>,
    /// Earliest trace time after the slice, nanoseconds. `None` means to the end.
    pub to_ns: Option<i64>,
}

impl Record for Slice {
    const KIND: u64 = 24;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.number.into());
        out.put_varint(self.of.into());
        put_bound(out, self.from_ns);
        put_bound(out, self.to_ns);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            number: w.varint_u32("number of a slice")?,
            of: w.varint_u32("number of slices")?,
            from_ns: read_bound(w)?,
            to_ns: read_bound(w)?,
        })
    }
}

/// How a process of a trace ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessEnd {
    /// The process.
    pub process: ProcessId,
    /// How it ended.
    pub ended: Ended,
    /// When it started, trace time in nanoseconds.
    pub start_ns: i64,
    /// Its last known moment, trace time in nanoseconds.
    pub end_ns: i64,
    /// How much later it may have ended, nanoseconds. 0 means that it ended then; [`UNBOUNDED`](super::UNBOUNDED) that nothing is known of it.
    pub end_error_ns: u64,
}

impl Record for ProcessEnd {
    const KIND: u64 = 16;

    fn highest_id(&self) -> u32 {
        self.process.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.push(self.ended.code());
        out.put_signed(self.start_ns);
        out.put_signed(self.end_ns);
        if self.end_error_ns != 0 {
            out.put_varint(self.end_error_ns);
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            ended: read_code(w, "end of a process", Ended::from_code)?,
            start_ns: w.signed("start time")?,
            end_ns: w.signed("end time")?,
            end_error_ns: match w.is_empty() {
                true => 0,
                false => w.varint("error of the end time")?,
            },
        })
    }
}

/// When a location of a trace ended: a thread that was closed. Others end with their process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocationEnd {
    /// The location.
    pub location: LocationId,
    /// Trace time, nanoseconds.
    pub end_ns: i64,
}

impl Record for LocationEnd {
    const KIND: u64 = 29;

    fn highest_id(&self) -> u32 {
        self.location.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.location.get().into());
        out.put_signed(self.end_ns);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            location: LocationId::new(w.varint_u32("location id")?),
            end_ns: w.signed("end time")?,
        })
    }
}

/// Other clocks at trace time 0, and the end of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeZero {
    /// Wall clock at trace time 0, nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// The trace's end, trace time in nanoseconds.
    pub end_ns: i64,
    /// Reference clock of the host that the axis follows at trace time 0, nanoseconds. `None` if the
    /// trace does not contain it.
    pub reference_ns: Option<i64>,
}

impl Record for TimeZero {
    const KIND: u64 = 17;

    fn highest_id(&self) -> u32 {
        0
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_signed(self.unix_ns);
        out.put_signed(self.end_ns);
        if let Some(reference_ns) = self.reference_ns {
            out.put_signed(reference_ns);
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            unix_ns: w.signed("wall clock at time 0")?,
            end_ns: w.signed("end of the trace")?,
            reference_ns: match w.is_empty() {
                true => None,
                false => Some(w.signed("reference clock at time 0")?),
            },
        })
    }
}

/// What another format says about a definition. It is kept so that a recording that was converted
/// from that format can be converted back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignRecord {
    /// The process it belongs to.
    pub process: ProcessId,
    /// The other format's name.
    pub format: StringId,
    /// Kind of the definition it is about; [`Reference::None`] if it is about the whole recording.
    pub of: Reference,
    /// Number of that definition; if it is about the whole recording, the number of the record.
    pub id: u32,
    /// Content, in the encoding of the format's converter.
    pub body: Vec<u8>,
}

impl Record for ForeignRecord {
    const KIND: u64 = 25;

    fn highest_id(&self) -> u32 {
        self.process.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.format.get().into());
        out.push(self.of.code());
        out.put_varint(self.id.into());
        out.put_bytes(&self.body);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            process: read_process(w)?,
            format: read_string(w)?,
            of: read_code(w, "what a foreign record is of", Reference::from_code)?,
            id: w.varint_u32("number of a definition")?,
            body: w.bytes("body of a foreign record")?.to_vec(),
        })
    }
}
