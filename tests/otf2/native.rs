//! Recordings with events of every role and every element type, made without the recorder.

use std::path::Path;

use annals_format::{
    BlockKind, BlockWriter, Chunk, ChunkHeader, Clock, ClockId, ClockKind, CompressionLevel,
    Cumulative, Definition, Definitions, Element, ElementType, EventType, EventTypeId, FileHeader,
    FileKind, Footer, Location, LocationId, LocationKind, Object, ObjectId, Process, ProcessId,
    Rank, RecordingId, Reference, Region, RegionId, Role, Source, SourceId, SourceOrder, Stream,
    StreamId, StreamTotals, StringId, TypeColumns, Verbosity, encode_tail,
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

/// Strings of the definitions, numbered as they come.
#[derive(Default)]
struct Strings(Vec<String>);

impl Strings {
    fn id(&mut self, text: &str) -> StringId {
        let known = self.0.iter().position(|known| known == text);
        let index = known.unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        });
        StringId::new(index as u32)
    }
}

fn element(strings: &mut Strings, text: &str) -> Element {
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
    Element {
        name: strings.id(name),
        element_type,
        is_optional: kind == "?",
        reference,
        unit: strings.id("ms"),
        original_bits,
    }
}

fn definitions(rank: u32, ranks: u32, id: RecordingId) -> Definitions {
    let mut strings = Strings::default();
    strings.id("");
    let mut d = Definitions::default();
    d.add(Definition::Process(Process {
        id: PROCESS,
        recording_id: id,
        run: strings.id("native"),
        host: strings.id(&format!("host-{}", rank / 2)),
        boot_id: annals_format::BootId([7; 16]),
        pid: rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: 1_000,
        command: strings.id("program"),
    }));
    d.add(Definition::Rank(Rank {
        process: PROCESS,
        rank,
        rank_count: Some(ranks),
        is_assigned: false,
    }));
    d.add(Definition::Clock(Clock {
        id: ClockId::new(0),
        process: PROCESS,
        name: strings.id("clock"),
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    }));
    for (number, name, ordering) in [
        (0, "threads", SourceOrder::Ordered),
        (1, "completions", SourceOrder::Unordered),
    ] {
        d.add(Definition::Source(Source {
            id: SourceId::new(number),
            process: PROCESS,
            name: strings.id(name),
            description: strings.id(""),
            ordering,
            clock: ClockId::new(0),
        }));
    }
    for (number, name, kind) in [
        (0, "main", LocationKind::Thread),
        (1, "card", LocationKind::Device),
    ] {
        d.add(Definition::Location(Location {
            id: LocationId::new(number),
            process: PROCESS,
            name: strings.id(name),
            kind,
            system_id: 0,
        }));
    }
    for (number, source, location) in [(0, 0, 0), (1, 1, 0), (2, 0, 1)] {
        d.add(Definition::Stream(Stream {
            id: StreamId::new(number),
            source: SourceId::new(source),
            location: Some(LocationId::new(location)),
        }));
    }
    for number in 0..3 {
        d.add(Definition::Region(Region {
            id: RegionId::new(number),
            name: strings.id(&format!("function {number}")),
            file: strings.id(if number == 0 { "" } else { "main.c" }),
            line: number,
            group: strings.id(if number == 1 { "mpi" } else { "" }),
        }));
        d.add(Definition::Object(Object {
            id: ObjectId::new(number),
            process: PROCESS,
            kind: strings.id("communicator"),
            name: strings.id(&format!("communicator {number}")),
        }));
    }
    for (number, (name, role, elements)) in TYPES.iter().enumerate() {
        let elements = elements.iter().map(|text| element(&mut strings, text));
        let elements = elements.collect();
        d.add(Definition::EventType(EventType {
            id: EventTypeId::new(number as u32),
            name: strings.id(name),
            description: strings.id(""),
            verbosity: Verbosity::UserBasic,
            role: *role,
            key_element: matches!(role, Role::Begin | Role::End).then_some(0),
            elements,
        }));
    }
    for (number, text) in strings.0.into_iter().enumerate() {
        d.add(Definition::String(StringId::new(number as u32), text));
    }
    d
}

/// Returns a chunk of events: type, tick, and a number that its values are made of.
fn chunk(d: &Definitions, events: &[(usize, u64, u64)], ranks: u32) -> Chunk {
    let mut used: Vec<usize> = events.iter().map(|event| event.0).collect();
    used.sort_unstable();
    used.dedup();
    let mut chunk = Chunk::default();
    for number in &used {
        let id = EventTypeId::new(*number as u32);
        let elements = d.event_types[&id].elements.iter();
        chunk
            .types
            .push(TypeColumns::new(id, elements.map(|e| e.element_type)));
    }
    for (number, tick, seed) in events {
        let place = used.binary_search(number).unwrap();
        chunk.ticks.push(*tick);
        chunk.type_index.push(place as u16);
        let id = EventTypeId::new(*number as u32);
        chunk.types[place].count += 1;
        for (element, column) in d.event_types[&id]
            .elements
            .iter()
            .zip(&mut chunk.types[place].columns)
        {
            let name = d.string(element.name);
            match (element.element_type, element.reference, name) {
                (_, Reference::Region | Reference::Object, _) => column.push_bits(seed % 3),
                (_, Reference::String, _) => column.push_bits(0),
                (_, _, "peer" | "root") => column.push_bits(seed % u64::from(ranks)),
                (_, _, "operation") => column.push_bits(seed % 17),
                (_, _, "value") if element.is_optional && seed.is_multiple_of(3) => {
                    column.push_absent()
                }
                (ElementType::I32, ..) => column.push_bits(*seed as i32 as i64 as u64),
                (ElementType::U32, ..) if element.original_bits == 8 => {
                    column.push_bits(seed % 256)
                }
                (ElementType::U32, ..) => column.push_bits(seed % (1 << 31)),
                (ElementType::F64, ..) => column.push_bits((*seed as f64 / 8.0).to_bits()),
                (ElementType::String, ..) => {
                    column.push_text(format!("text {}", seed % 50).as_bytes())
                }
                (ElementType::Bytes, ..) => {
                    column.push_text(&seed.to_le_bytes()[..(seed % 9) as usize])
                }
                _ => column.push_bits(*seed),
            }
        }
    }
    chunk
}

/// Number of event types.
pub(crate) const TYPE_COUNT: usize = TYPES.len();

/// Writes the recording of a rank. `events`: stream, type, ticks since the one before, seed.
pub(crate) fn write(directory: &Path, rank: u32, ranks: u32, events: &[(u8, usize, u64, u64)]) {
    let mut id = [0x55; 16];
    id[12..].copy_from_slice(&rank.to_be_bytes());
    let id = RecordingId(id);
    let definitions = definitions(rank, ranks, id);
    let mut blocks = BlockWriter::new(CompressionLevel::None).unwrap();
    let mut out = FileHeader::new(FileKind::Recording, id).encode().to_vec();
    let mut records = Vec::new();
    definitions.encode(&mut records);
    blocks.write(BlockKind::Definitions, &[], &records, &mut out);
    let mut totals = Vec::new();
    let mut index = Vec::new();
    for stream in 0..3_u8 {
        let mut tick = 1_000;
        let events = events.iter().filter(|event| event.0 % 3 == stream);
        let mut events: Vec<(usize, u64, u64)> = events
            .map(|(_, number, step, seed)| {
                tick += step % 1_000;
                (number % TYPES.len(), tick, *seed)
            })
            .collect();
        let id = StreamId::new(stream.into());
        let mut total = StreamTotals::new(id);
        total.last_tick = tick;
        total.close_tick = tick;
        if stream == 1 {
            // The source makes no promise.
            events.reverse();
        }
        if !events.is_empty() {
            let chunk = chunk(&definitions, &events, ranks);
            let first = chunk.ticks[0];
            let offsets = chunk
                .ticks
                .iter()
                .map(|tick| tick.wrapping_sub(first) as i64);
            let mut counts = std::collections::BTreeMap::new();
            for (number, ..) in &events {
                *counts
                    .entry(EventTypeId::new(*number as u32))
                    .or_insert(0_u64) += 1;
            }
            for (event_type, count) in &counts {
                let row = total.row(*event_type);
                (row.raised, row.recorded) = (*count, *count);
            }
            let header = ChunkHeader {
                stream: id,
                sequence: 0,
                event_count: events.len() as u64,
                dropped_count: 0,
                first_tick: first,
                min_offset: offsets.clone().min().unwrap(),
                max_offset: offsets.max().unwrap(),
                last_tick: *chunk.ticks.last().unwrap(),
                inversions: 0,
                largest_lateness: 0,
                open_reference_ns: 1_000,
                close_reference_ns: 1_000,
                before: Cumulative::default(),
                counts: counts.into_iter().collect(),
                predecessor_counts: Vec::new(),
            };
            let offset = out.len() as u64;
            let (mut head, mut body) = (Vec::new(), Vec::new());
            header.encode(&mut head);
            chunk.encode(&mut body);
            blocks.write_with(BlockKind::Chunk, &head, &body, chunk.content(), &mut out);
            index.push((offset, header));
        }
        totals.push(total);
    }
    let offset = out.len() as u64;
    let footer = Footer {
        definitions,
        chunks: index,
        totals,
        ..Footer::default()
    };
    let mut body = Vec::new();
    footer.encode(&mut body);
    blocks.write(BlockKind::Footer, &[], &body, &mut out);
    out.extend_from_slice(&encode_tail(offset));
    std::fs::write(directory.join(format!("native-{rank}.annals")), out).unwrap();
}
