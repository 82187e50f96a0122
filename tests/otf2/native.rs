//! Recordings with events of every role and every element type, made without the recorder.

use std::path::Path;

use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, Definition, ElementSpec, ElementType,
    EventTypeId, LocationKind, Object, ObjectId, ProcessId, ProcessSpec, RecordingBuilder,
    RecordingId, Reference, Role, SourceOrder, StreamId, Value,
};

const PROCESS: ProcessId = ProcessId::new(0);

/// Every role, with the elements that it has by name and some more.
const TYPES: &[(&str, Role, &[&str])] = &[
    ("enter", Role::Enter, &["region:r", "depth"]),
    ("leave", Role::Leave, &["region:r"]),
    (
        "point",
        Role::Point,
        &[
            "a:i32", "b:u32", "c:i64", "d:u64", "e:f64", "f:s", "g:b", "h:8", "i:string", "j:o",
        ],
    ),
    ("counter", Role::Metric, &["value:f64"]),
    ("gauge", Role::Metric, &["value:i64", "why:s"]),
    ("maybe", Role::Metric, &["value:?"]),
    (
        "send",
        Role::Send,
        &["communicator:o", "peer", "tag", "bytes:u64"],
    ),
    (
        "isend",
        Role::Send,
        &[
            "communicator:o",
            "peer",
            "tag",
            "bytes:u64",
            "request:u64",
            "sequence:u64",
        ],
    ),
    (
        "receive",
        Role::Receive,
        &["communicator:o", "peer", "tag", "bytes:u64"],
    ),
    (
        "irecv",
        Role::Receive,
        &["communicator:o", "peer", "tag", "bytes:u64", "request:u64"],
    ),
    ("start", Role::ReceiveStart, &["request:u64"]),
    ("sent", Role::SendEnd, &["request:u64"]),
    ("cancel", Role::Cancel, &["request:u64"]),
    ("begin", Role::Begin, &["key:u64"]),
    ("end", Role::End, &["key:u64"]),
    (
        "collective",
        Role::Collective,
        &["communicator:o", "root", "bytes:u64"],
    ),
    (
        "collective-begin",
        Role::CollectiveBegin,
        &["communicator:o", "operation", "root", "bytes:u64"],
    ),
    (
        "collective-end",
        Role::CollectiveEnd,
        &["communicator:o", "operation", "root", "bytes:u64"],
    ),
];

/// Returns the element that an entry of [`TYPES`] describes.
fn element(text: &str) -> ElementSpec<'_> {
    let (name, kind) = text.split_once(':').unwrap_or((text, "u32"));
    let (element_type, reference, original_bits) = match kind {
        "r" => (ElementType::U32, Reference::Region, 0),
        "o" => (ElementType::U32, Reference::Object, 0),
        "string" => (ElementType::U32, Reference::String, 0),
        "i32" => (ElementType::I32, Reference::None, 0),
        "i64" => (ElementType::I64, Reference::None, 0),
        "u64" => (ElementType::U64, Reference::None, 0),
        "f64" | "?" => (ElementType::F64, Reference::None, 0),
        "s" => (ElementType::String, Reference::None, 0),
        "b" => (ElementType::Bytes, Reference::None, 0),
        "8" => (ElementType::U32, Reference::None, 8),
        _ => (ElementType::U32, Reference::None, 0),
    };
    ElementSpec {
        name,
        element_type,
        is_optional: kind == "?",
        reference,
        unit: "ms",
        original_bits,
    }
}

/// Starts the recording, and returns its streams.
fn define(builder: &mut RecordingBuilder, rank: u32, ranks: u32) -> [StreamId; 3] {
    builder.rank(rank, Some(ranks));
    let spec = ClockSpec {
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    };
    let clock = builder.clock("clock", &spec);
    let threads = builder.source("threads", SourceOrder::Ordered, clock);
    let completions = builder.source("completions", SourceOrder::Unordered, clock);
    let main = builder.location("main", LocationKind::Thread, 0);
    let card = builder.location("card", LocationKind::Device, 0);
    let streams = [(threads, main), (completions, main), (threads, card)]
        .map(|(source, location)| builder.stream(source, location, 1_000));
    for number in 0..3 {
        let file = if number == 0 { "" } else { "main.c" };
        let group = if number == 1 { "mpi" } else { "" };
        builder.region(&format!("function {number}"), file, number, group);
        let (kind, name) = (
            builder.string("communicator"),
            builder.string(&format!("communicator {number}")),
        );
        builder.define(Definition::Object(Object {
            id: ObjectId::new(number),
            process: PROCESS,
            kind,
            name,
        }));
    }
    for (name, role, elements) in TYPES {
        let elements: Vec<ElementSpec<'_>> = elements.iter().map(|text| element(text)).collect();
        builder.event_type(name, *role, &elements);
    }
    streams
}

/// Returns the value of an element, made of a number; `text` is what it may be kept in.
fn value<'a>(element: &ElementSpec<'_>, seed: u64, ranks: u32, text: &'a mut Vec<u8>) -> Value<'a> {
    let of_u32 = |value: u64| Value::U32(value as u32);
    match (element.element_type, element.reference, element.name) {
        (_, Reference::Region | Reference::Object, _) => of_u32(seed % 3),
        (_, Reference::String, _) => of_u32(0),
        (_, _, "peer" | "root") => of_u32(seed % u64::from(ranks)),
        (_, _, "operation") => of_u32(seed % 17),
        (_, _, "value") if element.is_optional && seed.is_multiple_of(3) => Value::Absent,
        (ElementType::I32, ..) => Value::I32(seed as i32),
        (ElementType::I64, ..) => Value::I64(seed as i64),
        (ElementType::U32, ..) if element.original_bits == 8 => of_u32(seed % 256),
        (ElementType::U32, ..) => of_u32(seed % (1 << 31)),
        (ElementType::F64, ..) => Value::F64(seed as f64 / 8.0),
        (ElementType::String, ..) => {
            text.extend(format!("text {}", seed % 50).as_bytes());
            Value::String(text)
        }
        (ElementType::Bytes, ..) => {
            text.extend(&seed.to_le_bytes()[..(seed % 9) as usize]);
            Value::Bytes(text)
        }
        (ElementType::U64, ..) => Value::U64(seed),
    }
}

/// Number of event types.
pub(crate) const TYPE_COUNT: usize = TYPES.len();

/// Writes the recording of a rank. `events`: stream, type, ticks since the one before, seed.
pub(crate) fn write(directory: &Path, rank: u32, ranks: u32, events: &[(u8, usize, u64, u64)]) {
    let mut id = [0x55; 16];
    id[12..].copy_from_slice(&rank.to_be_bytes());
    let process = ProcessSpec {
        recording_id: RecordingId(id),
        run: "native",
        host: &format!("host-{}", rank / 2),
        boot_id: BootId([7; 16]),
        pid: rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: 1_000,
        command: "program",
    };
    let mut builder = RecordingBuilder::new(&process, CompressionLevel::None).unwrap();
    let streams = define(&mut builder, rank, ranks);
    for (number, stream) in streams.into_iter().enumerate() {
        let mut tick = 1_000;
        let of_stream = events
            .iter()
            .filter(|event| usize::from(event.0 % 3) == number);
        let mut of_stream: Vec<(usize, u64, u64)> = of_stream
            .map(|(_, event_type, step, seed)| {
                tick += step % 1_000;
                (event_type % TYPES.len(), tick, *seed)
            })
            .collect();
        if number == 1 {
            // The source makes no promise.
            of_stream.reverse();
        }
        if of_stream.is_empty() {
            continue;
        }
        let mut chunk = builder.chunk(stream, 1_000);
        for (event_type, at, seed) in of_stream {
            let elements: Vec<ElementSpec<'_>> = TYPES[event_type]
                .2
                .iter()
                .map(|text| element(text))
                .collect();
            let mut texts = vec![Vec::new(); elements.len()];
            let values: Vec<Value<'_>> = elements
                .iter()
                .zip(&mut texts)
                .map(|(element, text)| value(element, seed, ranks, text))
                .collect();
            chunk.event(EventTypeId::new(event_type as u32), at, &values);
        }
        chunk.finish(1_000).unwrap();
        builder.close_stream(stream, tick);
    }
    let path = directory.join(format!("native-{rank}.annals"));
    std::fs::write(path, builder.finish()).unwrap();
}
