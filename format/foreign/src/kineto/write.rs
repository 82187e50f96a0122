//! A file that has been read becomes a recording.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;

use annals_format::names::property;
use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, Definition, LocationKind, ProcessId,
    ProcessSpec, Property, RecordingBuilder, RecordingId, RegionId, SourceOrder, StreamId,
    StringId, Value,
};

use super::agree::{Agreed, Communicator};
use super::calls::Deed;
use super::link::region_names;
use super::nesting::Lanes;
use super::read::{Location, NumberSet, ReadTrace};
use super::sorted::{Kind, NONE, Record};
use super::types;
use crate::conversion::Converted;

/// Number of rows of a chunk.
const CHUNK_ROWS: usize = 1 << 14;
/// The run of all files: their ranks are of one job.
const RUN: &str = "PyTorch";
/// The communicator of launches of kernels.
const LAUNCHES: &str = "launch";

/// What happens in a lane.
enum Deeds {
    Enter {
        region: u32,
        kind: Kind,
        text: Box<[u8]>,
    },
    Leave {
        region: u32,
    },
    Launch {
        correlation: u64,
    },
    Start {
        correlation: u64,
    },
    /// Begins or ends the operation with this number.
    Begin {
        operation: usize,
    },
    End {
        operation: usize,
    },
    Memory {
        text: Box<[u8]>,
    },
}

type Row = (i64, Deeds);

/// What is left and ended with a slice.
type Ending = (u32, Option<usize>);

struct Writing<'a> {
    trace: &'a ReadTrace,
    communicators: &'a [Communicator],
    builder: RecordingBuilder,
    file: File,
    /// Streams of each location, by lane.
    streams: Vec<Vec<StreamId>>,
    regions: Vec<RegionId>,
    communicator_names: Vec<StringId>,
    launches_name: StringId,
    /// Correlations of kernels that have got their message.
    started: NumberSet,
    location: usize,
    lanes: Lanes<Ending>,
    /// Rows of each lane of the location.
    rows: Vec<Vec<Row>>,
}

/// Writes the recording of a file.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(
    trace: &ReadTrace,
    communicators: &[Communicator],
    path: &Path,
) -> io::Result<Converted> {
    let mut writing = Writing::new(trace, communicators, File::create(path)?)?;
    trace
        .sorted
        .for_each(|record, text| writing.take(record, text))?;
    writing.end_location()?;
    let mut file = writing.file;
    // Without a footer, it ends early as its file does.
    file.write_all(&match trace.problems.is_empty() {
        true => writing.builder.finish(),
        false => writing.builder.finish_without_footer(),
    })?;
    Ok(Converted {
        path: path.to_owned(),
        bytes: trace.bytes,
        problems: trace.problems.clone(),
    })
}

/// Returns the process of most threads, as far as it is a number.
fn process_of(locations: &[Location]) -> &str {
    let threads = locations.iter().filter(|location| !location.is_device);
    let mut named = threads.filter(|location| location.process.parse::<u32>().is_ok());
    named.next().map_or("", |location| &location.process)
}

/// Returns the name of a location.
fn location_name(location: &Location, process: &str) -> String {
    let Location { thread, name, .. } = location;
    let own = match (location.is_device, name.is_empty()) {
        (_, false) => name.clone(),
        (true, true) => format!("stream {thread}"),
        (false, true) => format!("thread {thread}"),
    };
    match location.is_device {
        true => format!("GPU {} {own}", location.process),
        false if location.process == process => own,
        false => format!("{} {own}", location.process),
    }
}

impl<'a> Writing<'a> {
    fn new(
        trace: &'a ReadTrace,
        communicators: &'a [Communicator],
        file: File,
    ) -> io::Result<Self> {
        let pid = process_of(&trace.locations);
        let start_ns = trace.span.map_or(0, |(start_ns, _)| start_ns);
        let start_ns = tick(trace, start_ns) as i64;
        let host = match trace.header.host.as_str() {
            "" => format!("host of rank {}", trace.rank),
            host => format!("{host} (rank {})", trace.rank),
        };
        let process = ProcessSpec {
            recording_id: RecordingId(trace.identity.to_le_bytes()),
            run: RUN,
            host: &host,
            // No two files are known to have one clock: processes of one host calibrate it separately.
            boot_id: BootId(trace.identity.to_le_bytes()),
            pid: pid.parse().unwrap_or(0),
            start_unix_ns: start_ns,
            start_reference_ns: start_ns,
            command: "",
        };
        let mut builder = RecordingBuilder::new(&process, CompressionLevel::None)?;
        builder.rank(
            trace.rank,
            trace.header.ranks.filter(|ranks| *ranks > trace.rank),
        );
        let spec = ClockSpec {
            kind: ClockKind::Reference,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb: 0,
            max_ticks: u64::MAX,
        };
        let clock = builder.clock("trace", &spec);
        let source = builder.source("profiler", SourceOrder::Ordered, clock);
        let text = match trace.keeps_arguments {
            true => "arguments",
            false => "dimensions",
        };
        types::define(&mut builder, text);
        let names = trace.sorted.names()?;
        let names = region_names(&names).into_iter();
        let regions = names.map(|(category, name)| builder.region(name, "", 0, category));
        let regions = regions.collect();
        let mut streams = Vec::new();
        for (number, location) in trace.locations.iter().enumerate() {
            let kind = match location.is_device {
                true => LocationKind::Device,
                false => LocationKind::Thread,
            };
            let name = location_name(location, pid);
            let system_id = location.thread.parse().unwrap_or(number as u64);
            let lanes = trace.operations.lanes.get(number).copied().unwrap_or(1);
            let of_lanes = (0..lanes).map(|lane| {
                let name = match lane {
                    0 => name.clone(),
                    lane => format!("{name}, lane {}", lane + 1),
                };
                let location = builder.location(&name, kind, system_id);
                builder.stream(source, location, start_ns as u64)
            });
            streams.push(of_lanes.collect());
        }
        let names = communicators.iter();
        let communicator_names = names.map(|of| builder.string(&of.name)).collect();
        let launches_name = builder.string(LAUNCHES);
        define_properties(trace, &mut builder);
        Ok(Self {
            trace,
            communicators,
            builder,
            file,
            streams,
            regions,
            communicator_names,
            launches_name,
            started: NumberSet::default(),
            location: 0,
            lanes: Lanes::new(0),
            rows: Vec::new(),
        })
    }

    fn take(&mut self, record: &Record, text: &[u8]) -> io::Result<()> {
        let location = record.place.location as usize;
        let count = self.streams[location].len();
        if location != self.location || self.rows.is_empty() {
            self.end_location()?;
            self.location = location;
            self.lanes = Lanes::new(count);
            self.rows.resize_with(count, Vec::new);
        }
        let start_ns = record.place.start_ns;
        let text = Box::from(text);
        if record.kind == Kind::Instant {
            // The first lane may have left slices that end before; they are left first.
            self.leave_until(start_ns);
            self.rows[0].push((start_ns, Deeds::Memory { text }));
            return self.write_full();
        }
        let operation = self.trace.agreed.get(&record.place.order);
        let operation = operation.map(|(operation, _)| *operation);
        let rows = &mut self.rows;
        let ending = (record.region, operation);
        let lane = self
            .lanes
            .add(start_ns, record.end_ns(), ending, |lane, end_ns, ending| {
                leave(&mut rows[lane], end_ns, ending);
            });
        let Some(lane) = lane else {
            return Ok(());
        };
        let (region, kind) = (record.region, record.kind);
        let rows = &mut self.rows[lane];
        rows.push((start_ns, Deeds::Enter { region, kind, text }));
        let correlation = record.correlation;
        if correlation != NONE {
            if kind == Kind::Runtime && self.trace.launched.has(correlation) {
                rows.push((start_ns, Deeds::Launch { correlation }));
            }
            // Of several kernels of a graph, the first has the message.
            if kind.is_on_device()
                && self.trace.launches.has(correlation)
                && self.started.add(correlation)
            {
                rows.push((start_ns, Deeds::Start { correlation }));
            }
        }
        rows.extend(operation.map(|operation| (start_ns, Deeds::Begin { operation })));
        self.write_full()
    }

    fn leave_until(&mut self, time_ns: i64) {
        let rows = &mut self.rows;
        self.lanes.leave_until(time_ns, |lane, end_ns, ending| {
            leave(&mut rows[lane], end_ns, ending);
        });
    }

    fn end_location(&mut self) -> io::Result<()> {
        let lanes = std::mem::replace(&mut self.lanes, Lanes::new(0));
        let rows = &mut self.rows;
        lanes.finish(|lane, end_ns, ending| leave(&mut rows[lane], end_ns, ending));
        (0..self.rows.len()).try_for_each(|lane| self.write(lane))?;
        self.rows.clear();
        Ok(())
    }

    fn write_full(&mut self) -> io::Result<()> {
        let full = self.rows.iter().position(|rows| rows.len() >= CHUNK_ROWS);
        full.map_or(Ok(()), |lane| self.write(lane))
    }

    /// Writes the rows of a lane as a chunk.
    fn write(&mut self, lane: usize) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows[lane]);
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let ticks = [first, last].map(|row| tick(self.trace, row.0));
        let stream = self.streams[self.location][lane];
        let put = Putting {
            trace: self.trace,
            communicators: self.communicators,
            regions: &self.regions,
            communicator_names: &self.communicator_names,
            launches_name: self.launches_name,
        };
        let mut chunk = self.builder.chunk(stream, ticks[0] as i64);
        rows.iter()
            .for_each(|(time_ns, deed)| put.row(&mut chunk, *time_ns, deed));
        chunk.finish(ticks[1] as i64).map_err(io::Error::other)?;
        self.builder.write_to(&mut self.file)
    }
}

fn leave(rows: &mut Vec<Row>, end_ns: i64, (region, operation): Ending) {
    rows.extend(operation.map(|operation| (end_ns, Deeds::End { operation })));
    rows.push((end_ns, Deeds::Leave { region }));
}

/// Returns a time of a file with its base, nanoseconds since 1970.
fn tick(trace: &ReadTrace, time_ns: i64) -> u64 {
    let time_ns = time_ns.saturating_add(trace.header.base_ns);
    u64::try_from(time_ns).unwrap_or(0)
}

/// Says of the process what readers should know.
fn define_properties(trace: &ReadTrace, builder: &mut RecordingBuilder) {
    let mut define = |key: &str, value: &str| {
        let (key, value) = (builder.string(key), builder.string(value));
        builder.define(Definition::Property(Property {
            process: ProcessId::new(0),
            key,
            value,
        }));
    };
    define(property::CLOCK_RELATED_BY, "collectives");
    let (counts, links) = (trace.counts, &trace.operations);
    let notes = [
        (
            links.in_later_lanes,
            "events overlap others of their thread without being in them: they are in another lane",
        ),
        (
            links.without_lane,
            "events overlap too many others: they are left out",
        ),
        (
            counts.by_order,
            "collective operations and messages have no number: which ones belong together is guessed by their order in each step",
        ),
        (
            counts.unmatched,
            "collective operations and messages are of no known group, or their order contradicts that of other ranks: they are \
             not matched",
        ),
        (
            links.without_kernel,
            "calls of collective operations have no separate kernel: they are not counted",
        ),
        (counts.counters, "values of counters are left out"),
    ];
    for (count, what) in notes.into_iter().filter(|(count, _)| *count != 0) {
        define(property::NOTE, &format!("{count} {what}"));
    }
    if counts.is_rank_assumed {
        let what = "the file does not say its rank: it is assumed by the order of the files' names";
        define(property::NOTE, what);
    }
}

/// What rows refer to.
struct Putting<'a> {
    trace: &'a ReadTrace,
    communicators: &'a [Communicator],
    regions: &'a [RegionId],
    communicator_names: &'a [StringId],
    launches_name: StringId,
}

impl Putting<'_> {
    fn row(&self, chunk: &mut annals_format::ChunkRows<'_>, time_ns: i64, deed: &Deeds) {
        let at = tick(self.trace, time_ns);
        let rank = Value::I64(self.trace.rank.into());
        let launches = Value::U32(self.launches_name.get());
        match deed {
            Deeds::Enter { region, kind, text } => self.enter(chunk, at, *region, *kind, text),
            Deeds::Leave { region } => chunk.event(types::LEAVE, at, &[self.region(*region)]),
            Deeds::Launch { correlation } => {
                let values = [rank, launches, Value::U64(*correlation)];
                chunk.event(types::LAUNCH, at, &values);
            }
            Deeds::Start { correlation } => {
                let values = [rank, launches, Value::U64(*correlation)];
                chunk.event(types::START, at, &values);
            }
            Deeds::Begin { operation } => self.operation(chunk, at, *operation, true),
            Deeds::End { operation } => self.operation(chunk, at, *operation, false),
            Deeds::Memory { text } => {
                let mut values = text.split(|byte| *byte == b'\t').map(number);
                let values = [(); 2].map(|()| values.next().unwrap_or(Value::Absent));
                chunk.event(types::MEMORY, at, &values);
            }
        }
    }

    fn region(&self, region: u32) -> Value<'static> {
        let region = self.regions.get(region as usize);
        Value::U32(region.map_or(0, |region| region.get()))
    }

    fn enter(
        &self,
        chunk: &mut annals_format::ChunkRows<'_>,
        at: u64,
        region: u32,
        kind: Kind,
        text: &[u8],
    ) {
        let region = self.region(region);
        if text.is_empty() || text == b"\t\t" {
            chunk.event(types::ENTER, at, &[region]);
        } else if kind.is_on_device() && !self.trace.keeps_arguments {
            let mut parts = text.split(|byte| *byte == b'\t');
            let bytes = parts.next().map_or(Value::Absent, number);
            let [grid, block] = [(); 2].map(|()| text_value(parts.next().unwrap_or_default()));
            chunk.event(types::ENTER_DEVICE, at, &[region, bytes, grid, block]);
        } else {
            chunk.event(types::ENTER_OPERATOR, at, &[region, text_value(text)]);
        }
    }

    fn operation(
        &self,
        chunk: &mut annals_format::ChunkRows<'_>,
        at: u64,
        number: usize,
        is_begin: bool,
    ) {
        let operation = &self.trace.operations.operations[number];
        let Some((_, agreed)) = self.trace.agreed.get(&operation.order) else {
            return;
        };
        let Agreed {
            communicator,
            sequence,
        } = *agreed;
        let of = communicator.and_then(|communicator| self.communicators.get(communicator));
        let name = communicator.and_then(|communicator| self.communicator_names.get(communicator));
        let name = name.map_or(Value::Absent, |name| Value::U32(name.get()));
        let count = |count: Option<u64>| count.map_or(Value::Absent, Value::U64);
        let call = operation.call;
        let peer = Value::I64(call.peer.map_or(-1, i64::from));
        let code = match call.deed {
            Deed::Collective(code) => i64::from(code.code()),
            Deed::Send if is_begin => {
                let values = [peer, name, Value::U64(sequence), count(call.sent)];
                return chunk.event(types::SEND, at, &values);
            }
            Deed::Receive if !is_begin => {
                let values = [peer, name, Value::U64(sequence), count(call.received)];
                return chunk.event(types::RECEIVE, at, &values);
            }
            _ => return,
        };
        let place = of.and_then(|of| of.ranks.iter().position(|rank| *rank == self.trace.rank));
        let values = [
            Value::I64(if operation.is_whole { code } else { -1 }),
            name,
            Value::U64(sequence),
            peer,
            Value::I64(of.map_or(0, |of| of.size.into())),
            Value::I64(place.map_or(-1, |place| place as i64)),
            count(call.sent),
            count(call.received),
        ];
        let event_type = match is_begin {
            true => types::COLLECTIVE_BEGIN,
            false => types::COLLECTIVE_END,
        };
        chunk.event(event_type, at, &values);
    }
}

fn number(text: &[u8]) -> Value<'static> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok());
    number.map_or(Value::Absent, Value::U64)
}

fn text_value(text: &[u8]) -> Value<'_> {
    match text.is_empty() {
        true => Value::Absent,
        false => Value::String(text),
    }
}
