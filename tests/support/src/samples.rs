//! Recordings of programs that are sampled, with known call paths.

use std::collections::BTreeMap;
use std::path::Path;

use annals_format::names::element;
use annals_format::{
    BootId, CallPath, CallPathId, ClockKind, ClockSpec, CodeFrame, CodeLines, CodePlace,
    CompressionLevel, Definition, ElementSpec, ElementType, EventTypeId, LocationKind, Module,
    ModuleId, ProcessId, ProcessSpec, Property, RecordingBuilder, RecordingId, Reference, RegionId,
    Role, SourceOrder, StreamId, Value,
};

/// When recordings start, reference clock, nanoseconds: trace time 0.
const START_NS: u64 = 1_000_000;
/// Events of a chunk.
const CHUNK_EVENTS: usize = 5_000;
/// The address whose code is of `relax`, in line 25, with `stencil` inlined there.
const INLINED: u64 = 0x1140;

/// What a thread does.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Of a region. Those whose names begin with `MPI_` are of the group `mpi`.
    Enter(&'static str),
    /// Of a region.
    Leave(&'static str),
    /// A sample: calls from the outermost on, and the nanoseconds that it represents. A call is `?` if unknown, `relax` or `relax:61` in a
    /// line, `+1140` at an address of the program, `0x10` at one in no module.
    Sample(&'static [&'static str], u64),
    /// Samples are lost.
    Lost(u64),
}

/// What the threads of a rank do: times in nanoseconds, ascending.
pub type Threads = Vec<Vec<(u64, Deed)>>;

/// Returns the file or library whose function it is: its group.
pub fn module_of(function: &str) -> &'static str {
    match function {
        "exp" | "sin" => "libm.so.6",
        _ if function.starts_with("MPI_") || function.starts_with("opal_") => "libmpi.so.40",
        _ => "heat",
    }
}

/// Defines call paths, and what they need.
#[derive(Default)]
struct Paths {
    functions: BTreeMap<&'static str, RegionId>,
    numbers: BTreeMap<(Option<u32>, &'static str), u32>,
}

impl Paths {
    fn function(&mut self, name: &'static str, builder: &mut RecordingBuilder) -> RegionId {
        let group = module_of(name);
        let (file, line) = if group == "heat" {
            ("heat.c", 10)
        } else {
            ("", 0)
        };
        let new = || builder.region(name, file, line, group);
        *self.functions.entry(name).or_insert_with(new)
    }

    fn place(&mut self, call: &'static str, builder: &mut RecordingBuilder) -> CodePlace {
        if call == "?" {
            return CodePlace::Unknown;
        }
        let parsed = |digits| u64::from_str_radix(digits, 16).expect("an address");
        if let Some(digits) = call.strip_prefix('+') {
            return CodePlace::Address(Some(ModuleId::new(0)), parsed(digits));
        }
        if let Some(digits) = call.strip_prefix("0x") {
            return CodePlace::Address(None, parsed(digits));
        }
        let (name, line) = call.split_once(':').unwrap_or((call, "0"));
        let line = line.parse().expect("a line");
        let function = self.function(name, builder);
        let file = if line == 0 { "" } else { "heat.c" };
        CodePlace::Line(function, builder.string(file), line)
    }

    /// Returns the number of a path.
    fn path(&mut self, calls: &[&'static str], builder: &mut RecordingBuilder) -> u32 {
        let mut around = None;
        for call in calls {
            let next = self.numbers.len() as u32;
            let id = *self.numbers.entry((around, call)).or_insert(next);
            if id == next {
                let place = self.place(call, builder);
                builder.define(Definition::CallPath(CallPath {
                    id: CallPathId::new(id),
                    caller: around.map(CallPathId::new),
                    place,
                }));
            }
            around = Some(id);
        }
        around.expect("a path")
    }
}

fn define_code(builder: &mut RecordingBuilder) {
    let module = ModuleId::new(0);
    let path = builder.string("/opt/heat/heat");
    builder.define(Definition::Module(Module {
        id: module,
        process: ProcessId::new(0),
        path,
        build_id: Vec::new(),
        base: 0,
        loaded_ns: START_NS as i64,
        unloaded_ns: None,
    }));
    let mut frame = |name, file, line, at_line| CodeFrame {
        name: builder.string(name),
        file: builder.string(file),
        line,
        at_file: builder.string(file),
        at_line,
    };
    let frames = vec![
        frame("relax", "heat.c", 10, 25),
        frame("stencil", "heat.h", 3, 5),
    ];
    builder.define(Definition::CodeLines(CodeLines {
        module,
        address: INLINED,
        frames,
    }));
}

/// The types of events.
struct Types {
    enter: EventTypeId,
    leave: EventTypeId,
    sample: Option<EventTypeId>,
}

impl Types {
    fn define(builder: &mut RecordingBuilder, has_samples: bool) -> Self {
        let region = ElementSpec::new(element::REGION, ElementType::U32);
        let region = [region.referring(Reference::Region)];
        let path = ElementSpec::new(element::CALL_PATH, ElementType::U32);
        let mut weight = ElementSpec::new(element::WEIGHT, ElementType::U64);
        weight.unit = "ns";
        let sample = [path.referring(Reference::CallPath), weight];
        Self {
            enter: builder.event_type("enter", Role::Enter, &region),
            leave: builder.event_type("leave", Role::Leave, &region),
            sample: has_samples.then(|| builder.event_type("sample", Role::Sample, &sample)),
        }
    }
}

/// A rank that is sampled.
#[derive(Clone, Debug, Default)]
pub struct SampledRank {
    /// What its threads do.
    pub threads: Threads,
    /// Keys and values of its properties.
    pub properties: Vec<(&'static str, &'static str)>,
    /// Whether there is no type of samples.
    pub lacks_samples: bool,
}

/// An event of a stream, or a loss.
type Entry = (u64, Option<(EventTypeId, Vec<u64>)>, u64);

/// Writes the events of a stream. Each has its tick, its type and values, or how many are lost.
fn write_stream(
    builder: &mut RecordingBuilder,
    stream: StreamId,
    types: &Types,
    entries: &[Entry],
    end: u64,
) {
    let mut last = START_NS;
    for part in entries.chunks(CHUNK_EVENTS) {
        let mut chunk = builder.chunk(stream, last as i64);
        for (tick, event, lost) in part {
            match event.as_ref().map(|(of, values)| (*of, values.as_slice())) {
                Some((of, [path, weight])) => {
                    let values = [Value::U32(*path as u32), Value::U64(*weight)];
                    chunk.event(of, *tick, &values);
                }
                Some((of, values)) => chunk.event(of, *tick, &[Value::U32(values[0] as u32)]),
                None => chunk.dropped(types.sample, *lost, last, *tick),
            }
            last = *tick;
        }
        chunk.finish(last as i64).expect("rows of defined types");
    }
    builder.close_stream(stream, end.max(last));
}

/// Writes the recordings of ranks into a directory.
///
/// # Panics
/// If they cannot be written.
pub fn write(directory: &Path, ranks: &[SampledRank]) {
    for (rank, sampled) in ranks.iter().enumerate() {
        let bytes = recording(rank as u32, ranks.len() as u32, sampled);
        let path = directory.join(format!("heat-host-{rank}.annals"));
        std::fs::write(path, bytes).expect("a recording");
    }
}

/// Returns the recording of a rank.
///
/// # Panics
/// If it cannot be made.
pub fn recording(rank: u32, ranks: u32, sampled: &SampledRank) -> Vec<u8> {
    let process = ProcessSpec {
        recording_id: RecordingId([rank as u8 + 1; 16]),
        run: "heat",
        host: "host",
        boot_id: BootId([7; 16]),
        pid: 100 + rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: START_NS as i64,
        command: "heat",
    };
    let level = CompressionLevel::Zstd(1);
    let mut builder = RecordingBuilder::new(&process, level).expect("a compressor");
    builder.rank(rank, Some(ranks));
    let spec = ClockSpec {
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    };
    let clock = builder.clock("clock", &spec);
    let sources =
        ["program", "sampler"].map(|name| builder.source(name, SourceOrder::Ordered, clock));
    let types = Types::define(&mut builder, !sampled.lacks_samples);
    for (key, value) in &sampled.properties {
        let (key, value) = (builder.string(key), builder.string(value));
        let process = ProcessId::new(0);
        builder.define(Definition::Property(Property {
            process,
            key,
            value,
        }));
    }
    define_code(&mut builder);
    let mut regions: BTreeMap<&str, RegionId> = BTreeMap::new();
    let mut paths = Paths::default();
    let mut streams: Vec<(StreamId, Vec<Entry>)> = Vec::new();
    let mut end = START_NS;
    for (number, deeds) in sampled.threads.iter().enumerate() {
        let name = if number == 0 { "main" } else { "helper" };
        let location = builder.location(name, LocationKind::Thread, 0);
        let mut entries: [Vec<Entry>; 2] = Default::default();
        for (at_ns, deed) in deeds {
            let tick = START_NS + at_ns;
            end = end.max(tick);
            let mut region = |name: &'static str| {
                let group = if name.starts_with("MPI_") { "mpi" } else { "" };
                let new = || builder.region(name, "", 0, group);
                u64::from(regions.entry(name).or_insert_with(new).get())
            };
            let (of, event, lost) = match deed {
                Deed::Enter(name) => (0, Some((types.enter, vec![region(name)])), 0),
                Deed::Leave(name) => (0, Some((types.leave, vec![region(name)])), 0),
                Deed::Sample(calls, weight) => {
                    let path = paths.path(calls, &mut builder);
                    let sample = types.sample.expect("a type of samples");
                    (1, Some((sample, vec![path.into(), *weight])), 0)
                }
                Deed::Lost(count) => (1, None, *count),
            };
            entries[of].push((tick, event, lost));
        }
        for (source, entries) in sources.into_iter().zip(entries) {
            streams.push((builder.stream(source, location, START_NS), entries));
        }
    }
    for (stream, entries) in streams {
        write_stream(&mut builder, stream, &types, &entries, end);
    }
    builder.finish()
}
