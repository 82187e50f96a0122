//! The byte examples of `format/SPEC.md`: each is read out of the spec, decoded, compared with the
//! values that the spec states for it, and encoded again.

use std::collections::{BTreeMap, BTreeSet};

use annals_format::wire::{Put, Wire};
use annals_format::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, BlockWriter, CalibrationPoint, CallPath, CallPathId,
    CallStatistics, Cause, Chunk, ChunkBuilder, ChunkHeader, ClockId, ClockKind, ClockMap,
    CodeFrame, CodeLines, CodePlace, Column, CompressionLevel, Cumulative, Definition, Definitions,
    DroppedRecord, Element, ElementType, EventHasher, EventType, EventTypeId, FIRST_REMOTE,
    FileHeader, FileKind, Filter, Footer, ForeignRecord, Function, LaneKey, LaneKind, LiveHeader,
    LiveImage, LocationId, LocationState, MapCursor, MessageRow, MetricRow, Module, ModuleId,
    ObjectId, OrderHash, OrderedChunk, OverviewRow, ProcessId, ROW_OBSERVATION, RecordingId,
    RecordingIndex, Reference, RegionId, RegionStatistics, RemoteMembers, Role, RowScanner, Schema,
    SharedClockMap, Slice, Snapshot, SnapshotHeader, SourceOrder, Step, StreamGroup, StreamId,
    StreamTotals, StringId, Symbol, TraceChunk, TraceChunkHeader, TraceLoss, TypeColumns, Value,
    Verbosity, World, decode_bins, decode_index_block, decode_tail, encode_bins, encode_tail, live,
    names, put_before_rows, put_dropped_row, put_ints, put_row_start, read_ints,
};
use annals_test_support::{MARK, Row, TestClock, TestRecording, TestStream};
use serde_json::{Value as Json, json};

const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/format/SPEC.md");

/// Returns the fenced blocks of the spec whose info string is `language NAME`, by name.
fn fenced(language: &str) -> BTreeMap<String, String> {
    let spec = std::fs::read_to_string(SPEC).unwrap();
    let mut blocks = BTreeMap::new();
    let mut open: Option<(String, String)> = None;
    for line in spec.lines() {
        if let Some((name, text)) = &mut open {
            if line == "```" {
                let is_new = blocks.insert(name.clone(), text.clone()).is_none();
                assert!(is_new, "two {language} blocks are called {name}");
                open = None;
            } else {
                text.push_str(line);
                text.push('\n');
            }
        } else if let Some(info) = line.strip_prefix("```")
            && let Some(name) = info.strip_prefix(language)
        {
            open = Some((name.trim().to_owned(), String::new()));
        }
    }
    assert!(open.is_none(), "a fenced block of the spec is not closed");
    blocks
}

fn hex_of(text: &str) -> Vec<u8> {
    let code = text.lines().map(|line| line.split('#').next().unwrap());
    let digits: Vec<u8> = code
        .flat_map(str::bytes)
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Returns the bytes of an example and what the spec says they mean.
fn example(name: &str) -> (Vec<u8>, Json) {
    let hex = fenced("hex");
    let bytes = hex
        .get(name)
        .unwrap_or_else(|| panic!("the spec has no hex block {name}"));
    let values = fenced("json");
    let stated = values
        .get(name)
        .unwrap_or_else(|| panic!("the spec has no json block {name}"));
    (hex_of(bytes), serde_json::from_str(stated).unwrap())
}

/// Asserts that bytes and values of an example belong together, in both directions.
fn assert_example(name: &str, encoded: &[u8], decode: impl Fn(&[u8]) -> Json) {
    let (bytes, stated) = example(name);
    assert_eq!(decode(&bytes), stated, "{name}: decoded values");
    assert_eq!(
        encoded
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<String>(),
        bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(),
        "{name}: encoded bytes"
    );
}

fn dense_id() -> [u8; 16] {
    std::array::from_fn(|index| index as u8)
}

fn hex_string(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn open_block(bytes: &[u8], kind: BlockKind) -> (Vec<u8>, Vec<u8>) {
    let header = BlockHeader::decode(bytes).unwrap();
    assert_eq!(header.kind, kind);
    assert_eq!(header.block_len(), bytes.len() as u64);
    let (head, stored) = bytes[BLOCK_HEADER_LEN..].split_at(header.head_len as usize);
    header.check_head(head).unwrap();
    (head.to_vec(), header.open_body(stored).unwrap())
}

fn write_block(kind: BlockKind, head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
    writer.write(kind, head, body, &mut out);
    out
}

fn value_json(value: Value<'_>) -> Json {
    match value {
        Value::Absent => Json::Null,
        Value::F64(value) => json!(value),
        Value::String(bytes) | Value::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        integer => json!(integer.as_integer().unwrap() as i64),
    }
}

fn column_json(column: &Column) -> Json {
    (0..column.len())
        .map(|index| value_json(column.get(index)))
        .collect()
}

fn counts_json(counts: &[(EventTypeId, u64)]) -> Json {
    let pairs = counts
        .iter()
        .map(|(event_type, count)| json!([event_type.get(), count]));
    pairs.collect()
}

/// Returns the events of a chunk as (event type, values).
fn events_json(types: &[TypeColumns], type_index: &[u16], ordinals: &[u32]) -> Vec<(u32, Json)> {
    let each = type_index.iter().zip(ordinals).map(|(index, ordinal)| {
        let columns = &types[usize::from(*index)];
        let values = columns.columns.iter();
        let values: Json = values
            .map(|column| value_json(column.get(*ordinal as usize)))
            .collect();
        (columns.event_type.get(), values)
    });
    each.collect()
}

fn dropped_json(record: &DroppedRecord) -> Json {
    json!({
        "event_type": record.event_type.map(EventTypeId::get),
        "cause": record.cause.name(),
        "is_lower_bound": record.is_lower_bound,
        "count": record.count,
        "cumulative": record.cumulative,
        "from_tick": record.from_tick,
        "to_tick": record.to_tick,
    })
}

// The values of the examples.

fn event_types() -> [EventType; 2] {
    let element = |name, element_type, is_optional, reference| Element {
        name: StringId::new(name),
        element_type,
        is_optional,
        reference,
        unit: StringId::new(0),
        original_bits: 0,
    };
    let enter = EventType {
        id: EventTypeId::new(0),
        name: StringId::new(1),
        description: StringId::new(0),
        verbosity: Verbosity::UserBasic,
        role: Role::Enter,
        key_element: None,
        elements: vec![element(2, ElementType::U32, false, Reference::Region)],
    };
    let user = EventType {
        id: EventTypeId::new(7),
        name: StringId::new(3),
        description: StringId::new(0),
        verbosity: Verbosity::UserDetail,
        role: Role::Point,
        key_element: None,
        elements: vec![
            element(4, ElementType::I64, false, Reference::None),
            element(5, ElementType::String, true, Reference::None),
        ],
    };
    [enter, user]
}

fn definitions() -> Definitions {
    let mut definitions = Definitions::default();
    definitions.add(Definition::String(StringId::new(1), "enter".to_owned()));
    definitions.add(Definition::String(StringId::new(2), "region".to_owned()));
    let [enter, _] = event_types();
    definitions.add(Definition::EventType(enter));
    definitions
}

fn dropped_record() -> DroppedRecord {
    DroppedRecord {
        event_type: Some(EventTypeId::new(7)),
        cause: Cause::BufferFull,
        count: 3,
        is_lower_bound: false,
        cumulative: 3,
        from_tick: 1010,
        to_tick: 1025,
    }
}

/// Returns the row of the user event: 10 ticks after the event before it, −2 and "ok".
fn user_row() -> Vec<u8> {
    let mut row = Vec::new();
    put_row_start(EventTypeId::new(7), 0, 10, &mut row);
    row.push(0b10);
    row.put_signed(-2);
    row.put_bytes(b"ok");
    row
}

fn enter_row(delta: u64, region: u64) -> Vec<u8> {
    let mut row = Vec::new();
    put_row_start(EventTypeId::new(0), 0, delta, &mut row);
    row.put_varint(region);
    row
}

fn dropped_row() -> Vec<u8> {
    let mut row = Vec::new();
    put_dropped_row(&dropped_record(), &mut row);
    row
}

/// Returns the chunk of the example, built from its rows.
/// Returns the rows of the example chunk, from tick 1000 on, with their schema.
fn chunk_rows() -> (Schema, Vec<u8>) {
    let mut types = Definitions::default();
    for event_type in event_types() {
        types.add(Definition::EventType(event_type));
    }
    let rows = [enter_row(0, 4), user_row(), dropped_row(), enter_row(15, 5)].concat();
    (types.schema(), rows)
}

fn chunk() -> (ChunkHeader, Chunk) {
    let (schema, rows) = chunk_rows();
    let mut builder = ChunkBuilder::new(u64::MAX);
    let events = builder.push_rows(&schema, 1000, &rows).unwrap();
    assert_eq!(events, 3);
    let (mut header, chunk) = builder.finish(StreamId::new(0));
    header.sequence = 2;
    header.open_reference_ns = 5000;
    header.close_reference_ns = 5040;
    header.before = Cumulative {
        raised: 20,
        recorded: 20,
        dropped: 0,
    };
    header.predecessor_counts = vec![(EventTypeId::new(0), 12)];
    (header, chunk)
}

fn trace_chunk() -> TraceChunk {
    let mut enter = TypeColumns::new(EventTypeId::new(0), [ElementType::U32].into_iter());
    enter.count = 2;
    enter.columns[0].push_bits(4);
    enter.columns[0].push_bits(4);
    let group = StreamGroup {
        ends: vec![(StreamId::new(0), 1), (StreamId::new(1), 2)],
        times_ns: vec![500, 512],
        type_index: vec![0, 0],
        types: vec![enter],
        tick_residuals: vec![0, -1],
        positions: Vec::new(),
        shifts_ns: vec![0, 2],
    };
    TraceChunk {
        groups: vec![group],
        losses: vec![(
            1,
            TraceLoss {
                stream: StreamId::new(0),
                event_type: Some(EventTypeId::new(7)),
                cause: Cause::BufferFull,
                count: 3,
                is_lower_bound: false,
                from_ns: 500,
                to_ns: 600,
            },
        )],
    }
}

fn clock_map() -> ClockMap {
    ClockMap {
        clock: ClockId::new(0),
        error_ns: 25,
        knots: [(1000, 0), (3000, 1000)].into(),
    }
}

fn totals() -> StreamTotals {
    let mut totals = StreamTotals::new(StreamId::new(0));
    totals.last_tick = 1025;
    totals.close_tick = 1100;
    let enter = totals.row(EventTypeId::new(0));
    enter.raised = 20;
    enter.recorded = 20;
    let user = totals.row(EventTypeId::new(7));
    user.raised = 10;
    user.recorded = 5;
    user.suppressed = 1;
    user.add_loss(Cause::BufferFull, 3);
    user.add_loss(Cause::TooBig, 1);
    totals
}

/// Bytes of the live file of the example header.
const LIVE_LEN: u64 = 327_680 + 64 * 512 + 16 * 32;

fn live_header() -> LiveHeader {
    LiveHeader {
        recording_id: RecordingId(dense_id()),
        boot_id: annals_format::BootId([0xb0; 16]),
        pid: 4711,
        process_start: 123_456,
        page_size: 65_536,
        page_count: 4,
        pages_offset: 65_536,
        slots_offset: 4096,
        slot_count: 16,
        segment_count: 8,
        segments_offset: 8192,
        definitions_offset: 40_960,
        definitions_capacity: 24_576,
        functions_offset: 327_680,
        function_count: 16,
    }
}

#[test]
fn the_file_header_has_kind_version_and_identity() {
    let header = FileHeader::new(FileKind::Recording, RecordingId(dense_id()));
    assert_example("file-header", &header.encode(), |bytes| {
        let read = FileHeader::decode(bytes).unwrap();
        assert_eq!(read, header);
        json!({
            "kind": if read.kind == FileKind::Recording { "recording" } else { "trace" },
            "major": read.major,
            "minor": read.minor,
            "header_len": read.header_len,
            "recording_id": read.recording_id.to_string(),
        })
    });
}

#[test]
fn a_definitions_block_has_records_one_after_the_other() {
    let mut body = Vec::new();
    definitions().encode(&mut body);
    let block = write_block(BlockKind::Definitions, &[], &body);
    assert_example("block-definitions", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Definitions);
        assert!(head.is_empty());
        let mut read = Definitions::default();
        read.add_all(&body).unwrap();
        assert_eq!(read, definitions());
        let strings = read.strings.iter();
        let strings: Json = strings.map(|(id, text)| json!([id.get(), text])).collect();
        let types = read.event_types.values().map(|event_type| {
            let elements = event_type.elements.iter().map(|element| {
                json!({
                    "name": read.string(element.name),
                    "type": element.element_type.name(),
                    "is_optional": element.is_optional,
                    "reference": element.reference.name(),
                    "unit": read.string(element.unit),
                    "original_bits": element.original_bits,
                })
            });
            json!({
                "id": event_type.id.get(),
                "name": read.string(event_type.name),
                "description": read.string(event_type.description),
                "verbosity": event_type.verbosity.name(),
                "role": event_type.role.name(),
                "key_element": event_type.key_element,
                "elements": elements.collect::<Json>(),
            })
        });
        json!({"strings": strings, "event_types": types.collect::<Json>()})
    });
}

#[test]
fn clocks_that_tick_as_one_share_a_map() {
    let maps = [1, 3].map(|clock| ClockMap {
        clock: ClockId::new(clock),
        ..clock_map()
    });
    let shared = SharedClockMap::of(maps.iter());
    let [map] = &shared[..] else {
        panic!("not one map: {shared:?}");
    };
    let mut record = Vec::new();
    Definition::SharedClockMap(map.clone()).encode(&mut record);
    assert_example("shared-clock-map", &record, |bytes| {
        let mut definitions = Definitions::default();
        definitions.add_all(bytes).unwrap();
        let read: Vec<ClockMap> = definitions.clock_maps.values().cloned().collect();
        assert_eq!(read, maps);
        assert!(std::ptr::eq(&read[0].knots[..], &read[1].knots[..]));
        let clocks: Vec<u32> = read.iter().map(|map| map.clock.get()).collect();
        let knots = read[0].knots.iter();
        let knots: Json = knots
            .map(|(tick, time_ns)| json!([i64::try_from(*tick).unwrap(), time_ns]))
            .collect();
        json!({"clocks": clocks, "error_ns": read[0].error_ns, "knots": knots})
    });
}

#[test]
fn a_module_a_function_in_it_and_its_symbol_are_definitions() {
    let module = Module {
        id: ModuleId::new(0),
        process: ProcessId::new(0),
        path: StringId::new(5),
        build_id: vec![0xa1, 0xb2, 0xc3, 0xd4],
        base: 0x5555_5554_4000,
        loaded_ns: 5000,
        unloaded_ns: Some(10_000),
    };
    let function = Function {
        region: RegionId::new(3),
        module: ModuleId::new(0),
        offset: 0x1139,
    };
    let symbol = Symbol {
        region: RegionId::new(3),
        name: StringId::new(6),
        file: StringId::new(7),
        line: 42,
    };
    let mut records = Vec::new();
    Definition::Module(module.clone()).encode(&mut records);
    Definition::Function(function).encode(&mut records);
    Definition::Symbol(symbol).encode(&mut records);
    assert_example("module", &records, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        assert_eq!(read.modules[&module.id], module);
        assert_eq!(read.functions[&function.region], function);
        assert_eq!(read.symbols[&symbol.region], symbol);
        let build_id = &read.modules[&module.id].build_id;
        let build_id: String = build_id.iter().map(|b| format!("{b:02x}")).collect();
        json!({
            "module": {"id": module.id.get(), "process": 0, "path": module.path.get(),
                "build_id": build_id, "base": module.base,
                "loaded_ns": module.loaded_ns, "unloaded_ns": module.unloaded_ns},
            "function": {"region": function.region.get(), "module": function.module.get(),
                "offset": function.offset},
            "symbol": {"region": symbol.region.get(), "name": symbol.name.get(),
                "file": symbol.file.get(), "line": symbol.line},
        })
    });
}

#[test]
fn a_call_path_and_the_lines_of_its_address_are_definitions() {
    let (module, address) = (ModuleId::new(0), 0x1140);
    let path = CallPath {
        id: CallPathId::new(5),
        caller: Some(CallPathId::new(3)),
        place: CodePlace::Address(Some(module), address),
    };
    let lines = CodeLines {
        module,
        address,
        frames: vec![CodeFrame {
            name: StringId::new(6),
            file: StringId::new(7),
            line: 42,
            at_file: StringId::new(7),
            at_line: 43,
        }],
    };
    let mut records = Vec::new();
    Definition::CallPath(path).encode(&mut records);
    Definition::CodeLines(lines).encode(&mut records);
    assert_example("call-path", &records, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let path = read.call_paths[&path.id];
        let CodePlace::Address(Some(of), at) = path.place else {
            panic!("{path:?}");
        };
        let lines = &read.code_lines[&(module, address)];
        let frames = lines.frames.iter().map(|frame| {
            json!({"name": frame.name.get(), "file": frame.file.get(), "line": frame.line,
                "at_file": frame.at_file.get(), "at_line": frame.at_line})
        });
        let frames: Vec<Json> = frames.collect();
        json!({
            "call_path": {"id": path.id.get(), "caller": path.caller.map(CallPathId::get),
                "module": of.get(), "address": at},
            "code_lines": {"module": lines.module.get(), "address": lines.address, "frames": frames},
        })
    });
}

#[test]
fn a_filter_is_a_definition() {
    let filter = Filter {
        from_ns: Some(500_000_000),
        to_ns: None,
        ranks: StringId::new(5),
        sources: StringId::new(0),
        locations: StringId::new(0),
        event_types: StringId::new(6),
    };
    let mut record = Vec::new();
    Definition::Filter(filter).encode(&mut record);
    assert_example("filter", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let [d] = read.filters.as_slice() else {
            panic!("one filter");
        };
        json!({"from_ns": d.from_ns, "to_ns": d.to_ns, "ranks": d.ranks.get(), "sources": d.sources.get(),
            "locations": d.locations.get(), "event_types": d.event_types.get()})
    });
}

#[test]
fn a_slice_is_a_definition() {
    let slice = Slice {
        number: 2,
        of: 3,
        from_ns: Some(500_000_000),
        to_ns: Some(3_000),
    };
    let mut record = Vec::new();
    Definition::Slice(slice).encode(&mut record);
    assert_example("slice", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let d = read.slice.expect("a slice");
        json!({"number": d.number, "of": d.of, "from_ns": d.from_ns, "to_ns": d.to_ns})
    });
}

#[test]
fn the_calibration_points_of_a_clock_are_one_record() {
    let point = |tick, reference_ns, error_ns| CalibrationPoint {
        clock: ClockId::new(1),
        tick,
        reference_ns,
        error_ns,
        unix_offset_ns: 50,
    };
    let points = vec![point(1000, 5, 25), point(4000, 100_010, 30)];
    let mut record = Vec::new();
    Definition::Calibrations(points).encode(&mut record);
    assert_example("calibration", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let points = read.calibration.iter().map(|d| {
            json!({"clock": d.clock.get(), "tick": d.tick, "reference_ns": d.reference_ns,
                   "error_ns": d.error_ns, "unix_offset_ns": d.unix_offset_ns})
        });
        points.collect()
    });
}

#[test]
fn a_world_is_a_definition() {
    let world = World {
        process: ProcessId::new(1),
        name: StringId::new(7),
        first_rank: 4,
    };
    let mut record = Vec::new();
    Definition::World(world).encode(&mut record);
    assert_example("world", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let d = read.worlds.values().next().expect("a world");
        json!({"process": d.process.get(), "name": d.name.get(), "first_rank": d.first_rank})
    });
}

#[test]
fn members_of_other_worlds_are_a_definition() {
    let members = RemoteMembers {
        process: ProcessId::new(1),
        object: ObjectId::new(5),
        made: StringId::new(7),
        parent: None,
        side: 1,
        place: 0,
        local: 2,
        remote: 3,
        first: FIRST_REMOTE,
        from_ns: 1000,
        to_ns: 2000,
    };
    let mut record = Vec::new();
    Definition::RemoteMembers(members).encode(&mut record);
    assert_example("remote-members", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let d = read.remote_members.values().next().expect("members");
        json!({"process": d.process.get(), "object": d.object.get(), "made": d.made.get(),
               "parent": d.parent.map(ObjectId::get), "side": d.side, "place": d.place, "local": d.local,
               "remote": d.remote, "first": d.first, "from_ns": d.from_ns, "to_ns": d.to_ns})
    });
}

#[test]
fn what_another_format_says_is_a_definition() {
    let foreign = ForeignRecord {
        process: ProcessId::new(0),
        format: StringId::new(4),
        of: Reference::Object,
        id: 9,
        body: vec![6, 3],
    };
    let mut record = Vec::new();
    Definition::Foreign(foreign).encode(&mut record);
    assert_example("foreign", &record, |bytes| {
        let mut read = Definitions::default();
        read.add_all(bytes).unwrap();
        let d = read.foreign.values().next().expect("a foreign record");
        let body: String = d.body.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"process": d.process.get(), "format": d.format.get(), "of": d.of.name(), "id": d.id, "body": body})
    });
}

#[test]
fn a_chunk_has_events_in_columns_and_its_dropped_records() {
    let (header, chunk) = chunk();
    let (mut head, mut body) = (Vec::new(), Vec::new());
    header.encode(&mut head);
    chunk.encode(&mut body);
    let block = write_block(BlockKind::Chunk, &head, &body);
    assert_example("chunk", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Chunk);
        let read_header = ChunkHeader::decode(&mut Wire::new(&head)).unwrap();
        assert_eq!(read_header, header);
        let read = Chunk::decode(&read_header, &body).unwrap();
        assert_eq!(read.dropped, chunk.dropped);
        let events = events_json(&read.types, &read.type_index, &read.ordinals());
        let events = events.iter().zip(&read.ticks);
        let events: Json = events
            .map(|((event_type, values), tick)| json!([tick, event_type, values]))
            .collect();
        let dropped = read.dropped.iter();
        let dropped: Json = dropped
            .map(|(index, record)| json!([index, dropped_json(record)]))
            .collect();
        let h = read_header;
        json!({
            "stream": h.stream.get(),
            "sequence": h.sequence,
            "event_count": h.event_count,
            "dropped_count": h.dropped_count,
            "ticks": {"first": h.first_tick, "last": h.last_tick,
                "min_offset": h.min_offset, "max_offset": h.max_offset},
            "disorder": {"inversions": h.inversions, "largest_lateness": h.largest_lateness},
            "reference_ns": [h.open_reference_ns, h.close_reference_ns],
            "before": {"raised": h.before.raised, "recorded": h.before.recorded,
                "dropped": h.before.dropped},
            "counts": counts_json(&h.counts),
            "predecessor_counts": counts_json(&h.predecessor_counts),
            "events": events,
            "dropped": dropped,
            "observations": read.observations,
        })
    });
}

#[test]
fn a_row_chunk_has_the_head_and_the_events_of_the_chunk_in_columns() {
    let (header, chunk) = chunk();
    let (schema, rows) = chunk_rows();
    let scanned = RowScanner::default().scan(&schema, header.stream, 1000, &rows);
    let scanned = scanned.expect("rows of a row chunk");
    assert_eq!(
        ChunkHeader {
            sequence: header.sequence,
            open_reference_ns: header.open_reference_ns,
            close_reference_ns: header.close_reference_ns,
            before: header.before,
            predecessor_counts: header.predecessor_counts.clone(),
            ..scanned
        },
        header
    );
    let (mut head, mut body) = (Vec::new(), Vec::new());
    header.encode(&mut head);
    put_before_rows(&header, &schema, 1000, &mut body);
    body.extend_from_slice(&rows);
    let block = write_block(BlockKind::RowChunk, &head, &body);
    assert_example("row-chunk", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::RowChunk);
        let h = ChunkHeader::decode(&mut Wire::new(&head)).unwrap();
        let read = Chunk::decode_rows(&h, &body).unwrap();
        assert_eq!(read, chunk);
        let events = events_json(&read.types, &read.type_index, &read.ordinals());
        let events = events.iter().zip(&read.ticks);
        let events = events.map(|((event_type, values), tick)| json!([tick, event_type, values]));
        let dropped = read.dropped.iter();
        let dropped = dropped.map(|(index, record)| json!([index, record.count]));
        json!({
            "stream": h.stream.get(),
            "sequence": h.sequence,
            "event_count": h.event_count,
            "dropped_count": h.dropped_count,
            "events": events.collect::<Json>(),
            "dropped": dropped.collect::<Json>(),
        })
    });
}

fn step_json(step: &Step) -> Json {
    match step {
        Step::Enter {
            region,
            entered_ns,
            is_uncertain,
        } => json!(["enter", region.get(), entered_ns, is_uncertain]),
        Step::Leave(region) => json!(["leave", region.get()]),
    }
}

#[test]
fn a_snapshot_tells_what_is_open() {
    let open = |region, entered_ns, is_uncertain| Step::Enter {
        region: RegionId::new(region),
        entered_ns,
        is_uncertain,
    };
    let state = |location, last_ns, steps| LocationState {
        location: LocationId::new(location),
        last_ns: Some(last_ns),
        has_gap: false,
        has_gap_after_last: false,
        steps,
    };
    let snapshot = Snapshot {
        locations: vec![
            state(0, 480, vec![open(3, 100, false), open(5, 480, true)]),
            state(1, 350, Vec::new()),
        ],
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    snapshot.header(9).encode(&mut head);
    snapshot.encode(&mut body);
    let block = write_block(BlockKind::Snapshot, &head, &body);
    assert_example("snapshot", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Snapshot);
        let header = SnapshotHeader::decode(&mut Wire::new(&head)).unwrap();
        let read = Snapshot::decode(&header, &body).unwrap();
        let locations = read.locations.iter().map(|state| {
            let steps: Json = state.steps.iter().map(step_json).collect();
            json!({
                "location": state.location.get(),
                "last_ns": state.last_ns,
                "has_gap": state.has_gap,
                "has_gap_after_last": state.has_gap_after_last,
                "steps": steps,
            })
        });
        json!({ "chunk": header.chunk, "locations": locations.collect::<Json>() })
    });
}

#[test]
fn region_statistics_tell_what_counting_would() {
    let mut twice = CallStatistics {
        calls: 2,
        inclusive_ns: 350,
        exclusive_ns: 260,
        ..CallStatistics::default()
    };
    twice.completed.add(100);
    twice.completed.add(250);
    let unleft = CallStatistics {
        calls: 1,
        inclusive_ns: 90,
        exclusive_ns: 90,
        unleft_calls: 1,
        is_time_uncertain: true,
        ..CallStatistics::default()
    };
    let statistics = RegionStatistics {
        regions: vec![(RegionId::new(3), twice), (RegionId::new(5), unleft)],
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    statistics.encode_head(&mut head);
    statistics.encode(&mut body);
    let block = write_block(BlockKind::Statistics, &head, &body);
    assert_example("region-statistics", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Statistics);
        let read = RegionStatistics::decode(&head, &body).unwrap();
        let regions = read.regions.iter().map(|(region, calls)| {
            json!({
                "region": region.get(),
                "calls": calls.calls,
                "inclusive_ns": calls.inclusive_ns,
                "exclusive_ns": calls.exclusive_ns,
                "open_calls": calls.open_calls,
                "unmatched_leaves": calls.unmatched_leaves,
                "unleft_calls": calls.unleft_calls,
                "time_is_uncertain": calls.is_time_uncertain,
                "min_ns": calls.completed.min().unwrap_or(0),
                "max_ns": calls.completed.max().unwrap_or(0),
                "sum_ns": calls.completed.sum(),
                "buckets": calls.completed.buckets().collect::<Vec<(u64, u64)>>(),
            })
        });
        json!({ "regions": regions.collect::<Json>() })
    });
}

#[test]
fn an_overview_has_values_of_bins() {
    let row = OverviewRow {
        level: 12,
        lane: LaneKey {
            kind: LaneKind::Location,
            id: 2,
            depth: 1,
        },
        bin: 2,
        calls: 70,
        busy_ns: 4000,
        region: RegionId::new(5),
        region_ns: 2500,
        longest_ns: 90,
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    encode_bins(&[row], &mut head, &mut body);
    let block = write_block(BlockKind::Overview, &head, &body);
    assert_example("overview", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Overview);
        let rows = decode_bins::<OverviewRow>(&head, &body).unwrap();
        let rows = rows.iter().map(|row| {
            json!({
                "level": row.level,
                "lane": [row.lane.kind as u8, row.lane.id, row.lane.depth],
                "bin": row.bin,
                "calls": row.calls,
                "busy_ns": row.busy_ns,
                "region": row.region.get(),
                "region_ns": row.region_ns,
                "longest_ns": row.longest_ns,
            })
        });
        json!({ "rows": rows.collect::<Json>() })
    });
}

#[test]
fn an_overview_has_messages_of_bins() {
    let row = MessageRow {
        level: 12,
        kind: LaneKind::Location,
        bin: 2,
        from: 2,
        to: 3,
        count: 70,
        bytes: 4480,
        longest_ns: 900,
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    encode_bins(&[row], &mut head, &mut body);
    let block = write_block(BlockKind::Messages, &head, &body);
    assert_example("messages", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Messages);
        let rows = decode_bins::<MessageRow>(&head, &body).unwrap();
        let rows = rows.iter().map(|row| {
            json!({
                "level": row.level,
                "kind": row.kind as u8,
                "bin": row.bin,
                "from": row.from,
                "to": row.to,
                "count": row.count,
                "bytes": row.bytes,
                "longest_ns": row.longest_ns,
            })
        });
        json!({ "rows": rows.collect::<Json>() })
    });
}

#[test]
fn an_overview_has_metrics_of_bins() {
    let row = MetricRow {
        level: 12,
        bin: 2,
        stream: StreamId::new(4),
        event_type: EventTypeId::new(6),
        count: 3,
        min: 1.0,
        max: 4.0,
        sum: 7.0,
    };
    let (mut head, mut body) = (Vec::new(), Vec::new());
    encode_bins(&[row], &mut head, &mut body);
    let block = write_block(BlockKind::Metrics, &head, &body);
    assert_example("metrics", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::Metrics);
        let rows = decode_bins::<MetricRow>(&head, &body).unwrap();
        let rows = rows.iter().map(|row| {
            json!({
                "level": row.level,
                "bin": row.bin,
                "stream": row.stream.get(),
                "event_type": row.event_type.get(),
                "count": row.count,
                "min": row.min,
                "max": row.max,
                "sum": row.sum,
            })
        });
        json!({ "rows": rows.collect::<Json>() })
    });
}

#[test]
fn a_trace_chunk_gives_back_times_streams_and_raw_ticks() {
    let chunk = trace_chunk();
    let mut block = Vec::new();
    let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
    let written = chunk.put_block(9, &mut writer, &mut block).unwrap();
    assert_example("trace-chunk", &block, |bytes| {
        let (head, body) = open_block(bytes, BlockKind::TraceChunk);
        let header = TraceChunkHeader::decode(&mut Wire::new(&head)).unwrap();
        let read = TraceChunk::decode(&header, &body).unwrap();
        assert_eq!(read, chunk);
        assert_eq!(header, written);
        let map = clock_map();
        let mut cursor = MapCursor::new(&map);
        let ordered = OrderedChunk::from(read.clone());
        let events = ordered.rows().map(|row| {
            let (time_ns, shift_ns) = (row.time_ns(), ordered.shift_ns(row.number));
            let residual = ordered.tick_residual(row.number);
            let tick = cursor.tick(time_ns - shift_ns) + i128::from(residual);
            json!({
                "time_ns": time_ns,
                "stream": row.stream().get(),
                "event_type": row.event_type().get(),
                "values": row.values().map(value_json).collect::<Json>(),
                "shift_ns": shift_ns,
                "position": ordered.position(row.number).unwrap_or(0),
                "tick": i64::try_from(tick).unwrap(),
            })
        });
        let events: Json = events.collect();
        let frames = header.frames.iter();
        let frames: Json = frames
            .map(|frame| {
                json!([
                    frame.streams,
                    frame.compression,
                    frame.stored_len,
                    frame.raw_len
                ])
            })
            .collect();
        let losses = read.losses.iter().map(|(index, loss)| {
            json!([index, {
                "stream": loss.stream.get(),
                "event_type": loss.event_type.map(EventTypeId::get),
                "cause": loss.cause.name(),
                "count": loss.count,
                "is_lower_bound": loss.is_lower_bound,
                "from_ns": loss.from_ns,
                "to_ns": loss.to_ns,
            }])
        });
        let losses: Json = losses.collect();
        let counts = header.counts.iter();
        let counts: Json = counts
            .map(|(stream, counts)| json!([stream.get(), counts_json(counts)]))
            .collect();
        json!({
            "sequence": header.sequence,
            "event_count": header.event_count,
            "loss_count": header.loss_count,
            "first_ns": header.first_ns,
            "last_ns": header.last_ns,
            "counts": counts,
            "frames": frames,
            "events": events,
            "losses": losses,
        })
    });
}

#[test]
fn an_events_row_has_delta_presence_and_elements() {
    assert_example("row-event", &user_row(), |bytes| {
        let mut types = Definitions::default();
        for event_type in event_types() {
            types.add(Definition::EventType(event_type));
        }
        let mut builder = ChunkBuilder::new(u64::MAX);
        let events = builder.push_rows(&types.schema(), 1000, bytes).unwrap();
        assert_eq!(events, 1);
        let (_, chunk) = builder.finish(StreamId::new(0));
        let (event_type, values) =
            events_json(&chunk.types, &chunk.type_index, &chunk.ordinals()).remove(0);
        json!({"tick_delta": chunk.ticks[0] - 1000, "event_type": event_type, "values": values})
    });
}

#[test]
fn a_dropped_records_row_is_the_record() {
    assert_example("row-dropped", &dropped_row(), |bytes| {
        let mut builder = ChunkBuilder::new(u64::MAX);
        let schema = Definitions::default().schema();
        assert_eq!(builder.push_rows(&schema, 0, bytes).unwrap(), 0);
        let (header, chunk) = builder.finish(StreamId::new(0));
        assert_eq!(header.dropped_count, 3);
        assert_eq!(chunk.dropped, [(0, dropped_record())]);
        dropped_json(&chunk.dropped[0].1)
    });
}

#[test]
fn integer_columns_are_plain_or_delta() {
    let examples: [(&str, &[u64]); 2] = [
        (
            "column-plain",
            &[300, 301, 305, 300, 301, 305, 300, 301, 305, 300, 301, 305],
        ),
        ("column-ints", &[100_000, 200_000, 300_005, 400_000]),
    ];
    for (name, values) in examples {
        let mut encoded = Vec::new();
        put_ints(values, &mut encoded);
        assert_example(name, &encoded, |bytes| {
            let mut wire = Wire::new(bytes);
            let read = read_ints(&mut wire, values.len()).unwrap();
            assert!(wire.is_empty());
            assert_eq!(read, values);
            read.iter().map(|value| json!(*value as i64)).collect()
        });
    }
}

#[test]
fn text_columns_have_presence_and_a_dictionary() {
    let mut column = Column::new(ElementType::String);
    column.push_text(b"ab");
    column.push_absent();
    column.push_text(b"ab");
    let mut encoded = Vec::new();
    column.put(&mut encoded);
    assert_example("column-text", &encoded, |bytes| {
        let mut wire = Wire::new(bytes);
        let read = Column::read(&mut wire, ElementType::String, 3).unwrap();
        assert!(wire.is_empty());
        column_json(&read)
    });
}

#[test]
fn an_index_block_names_chunks_by_offset_and_head() {
    let (header, _) = chunk();
    let mut head = Vec::new();
    header.encode(&mut head);
    let mut encoded = vec![2];
    for offset in [105_u64, 178] {
        encoded.put_varint(offset);
        encoded.put_bytes(&head);
    }
    assert_example("index", &encoded, |bytes| {
        let entries = decode_index_block(bytes).unwrap();
        let entries = entries.into_iter().map(|(offset, read)| {
            assert_eq!(read, header);
            json!({"offset": offset, "stream": read.stream.get(), "sequence": read.sequence})
        });
        json!({ "chunks": entries.collect::<Json>() })
    });
    // As a recorder writes it.
    let mut index = RecordingIndex::default();
    let mut offset = 105;
    let body = loop {
        index.add_chunk(offset, &head);
        offset += 73;
        if let Some(body) = index.full_block() {
            break body;
        }
    };
    let entries = decode_index_block(&body).unwrap();
    assert_eq!(entries[1].0, 178);
    assert!(entries.len() > 100 && body.len() > 1 << 12);
}

#[test]
fn totals_of_a_stream_balance() {
    let mut encoded = Vec::new();
    totals().encode(&mut encoded);
    assert_example("totals", &encoded, |bytes| {
        let mut wire = Wire::new(bytes);
        let read = StreamTotals::decode(&mut wire).unwrap();
        assert!(wire.is_empty());
        assert_eq!(read, totals());
        let rows = read.rows.iter().map(|row| {
            assert!(row.is_balanced());
            let dropped = row
                .dropped
                .iter()
                .map(|(cause, count)| (cause.name(), count))
                .filter(|(_, count)| *count != 0)
                .map(|(name, count)| (name.to_owned(), json!(count)));
            json!({
                "event_type": row.event_type.get(),
                "raised": row.raised,
                "raised_is_lower_bound": row.raised_is_lower_bound,
                "recorded": row.recorded,
                "suppressed": row.suppressed,
                "skipped": row.skipped,
                "truncated": row.truncated,
                "filtered": row.filtered,
                "dropped": Json::Object(dropped.collect()),
            })
        });
        let rows: Json = rows.collect();
        json!({
            "stream": read.stream.get(),
            "last_tick": read.last_tick,
            "close_tick": read.close_tick,
            "inversions": read.inversions,
            "largest_lateness": read.largest_lateness,
            "rows": rows,
        })
    });
}

#[test]
fn the_tail_points_at_the_footer() {
    assert_example(
        "tail",
        &encode_tail(0x1234),
        |bytes| json!({"footer_offset": decode_tail(bytes).unwrap()}),
    );
}

#[test]
fn a_live_header_has_identity_and_areas() {
    assert_example("live-header-fixed", &live_header().encode(), |bytes| {
        let mut page = bytes.to_vec();
        page.resize(live::layout::HEADER_LEN, 0);
        let read = LiveHeader::decode(&page, LIVE_LEN).unwrap();
        assert_eq!(read, live_header());
        // A file that is cut off has what is before the cut.
        assert_eq!(LiveHeader::decode(&page, LIVE_LEN - 1).unwrap(), read);
        json!({
            "recording_id": read.recording_id.to_string(),
            "boot_id": hex_string(&read.boot_id.0),
            "pid": read.pid,
            "process_start": read.process_start,
            "page_size": read.page_size,
            "page_count": read.page_count,
            "pages_offset": read.pages_offset,
            "slots_offset": read.slots_offset,
            "slot_count": read.slot_count,
            "segment_count": read.segment_count,
            "segments_offset": read.segments_offset,
            "definitions_offset": read.definitions_offset,
            "definitions_capacity": read.definitions_capacity,
            "functions_offset": read.functions_offset,
            "function_count": read.function_count,
        })
    });
}

#[test]
fn a_footer_has_definitions_index_and_totals() {
    let (header, _) = chunk();
    let footer = Footer {
        definitions: definitions(),
        chunks: vec![(105, header)],
        totals: vec![totals()],
        ..Footer::default()
    };
    let mut encoded = Vec::new();
    footer.encode(&mut encoded);
    assert_example("footer", &encoded, |bytes| {
        let read = Footer::decode(bytes).unwrap();
        assert_eq!(read, footer);
        let chunks = read.chunks.iter().map(|(offset, head)| {
            json!({"offset": offset, "stream": head.stream.get(), "sequence": head.sequence})
        });
        let totals = read.totals.iter().map(|totals| totals.stream.get());
        json!({
            "definitions": read.definitions.strings.len() + read.definitions.event_types.len(),
            "chunks": chunks.collect::<Json>(),
            "trace_chunks": read.trace_chunks.len(),
            "totals": totals.collect::<Json>(),
            "losses": read.losses.len(),
        })
    });
}

/// Returns the formula of the spec, written down once more.
fn mix(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

#[test]
fn an_order_hash_counts_time_residual_type_and_values() {
    const M: u64 = 0x9e37_79b9_7f4a_7c15;
    let chunk = trace_chunk().groups.remove(0);
    let time = (chunk.times_ns[1] - chunk.shift_ns(1)) as u64;
    let residual = (chunk.tick_residuals[1] as u64).wrapping_mul(1 << 40);
    let stated = mix(time.wrapping_add(residual))
        .wrapping_add(mix(1))
        .wrapping_add(mix(4_u64.wrapping_add(M)));
    let mut hasher = EventHasher::default();
    let times: Vec<i64> = (0..2)
        .map(|n| chunk.times_ns[n] - chunk.shift_ns(n))
        .collect();
    let types = chunk
        .types
        .iter()
        .map(|columns| (columns, columns.event_type));
    let residuals = &chunk.tick_residuals;
    let hashes = hasher.hash(&times, residuals, &chunk.type_index, types, |_, _, _| {});
    let hash = OrderHash::in_order(&hashes[1..]).value();
    assert_eq!(hash, stated);
    assert_example("order-hash", &hash.to_le_bytes(), |bytes| {
        let value = u64::from_le_bytes(bytes.try_into().unwrap());
        json!({"stream": 1, "order_hash": format!("{value:016x}")})
    });
}

/// Returns a live file of the example header, with these bytes at an offset.
fn live_file(offset: usize, bytes: &[u8]) -> LiveImage {
    let mut file = vec![0; LIVE_LEN as usize];
    let header = live_header().encode();
    file[..header.len()].copy_from_slice(&header);
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
    LiveImage::read(&file).unwrap()
}

fn put_at(bytes: &mut [u8], offset: usize, value: &[u8]) {
    bytes[offset..offset + value.len()].copy_from_slice(value);
}

#[test]
fn a_slot_has_an_open_stream_and_its_segments() {
    use live::layout as l;
    let mut slot = vec![0; l::SLOT_LEN];
    put_at(&mut slot, l::SLOT_STREAM, &1_u32.to_le_bytes());
    put_at(&mut slot, l::SLOT_BUSY, &8_u64.to_le_bytes());
    put_at(&mut slot, l::SLOT_OPEN_TICK, &990_u64.to_le_bytes());
    put_at(&mut slot, l::SLOT_RECORDED, &20_u64.to_le_bytes());
    put_at(&mut slot, l::SLOT_LOCATION, &3_u32.to_le_bytes());
    put_at(&mut slot, l::SLOT_SYSTEM_ID, &4712_u64.to_le_bytes());
    put_at(&mut slot, l::SLOT_NAME, b"worker");
    put_at(&mut slot, l::SLOT_SEGMENTS, &5_u16.to_le_bytes());
    assert_example("slot", &slot, |bytes| {
        let image = live_file(4096, bytes);
        let [open] = &image.streams[..] else {
            panic!("one stream");
        };
        let segments = bytes[l::SLOT_SEGMENTS..].chunks(2);
        let segments = segments.map(|word| u16::from_le_bytes(word.try_into().unwrap()));
        let segments = segments.filter(|word| *word != 0).map(|word| word - 1);
        json!({
            "stream": open.stream.get(),
            "is_shared": open.is_shared,
            "busy": open.busy.map(EventTypeId::get),
            "open_tick": open.open_tick,
            "recorded": open.recorded,
            "source": open.source.get(),
            "location": open.location.map(LocationId::get),
            "system_id": open.system_id,
            "name": open.name,
            "segments": segments.collect::<Json>(),
        })
    });
}

#[test]
fn a_function_entry_has_region_address_and_module() {
    use live::layout as l;
    let mut entry = vec![0; l::FUNCTION_LEN];
    put_at(&mut entry, l::FUNCTION_STATE, &1_u32.to_le_bytes());
    put_at(&mut entry, l::FUNCTION_REGION, &17_u32.to_le_bytes());
    put_at(&mut entry, l::FUNCTION_ADDRESS, &0x1139_u64.to_le_bytes());
    put_at(&mut entry, l::FUNCTION_BASE, &0x40_0000_u64.to_le_bytes());
    put_at(&mut entry, l::FUNCTION_MODULE, &4_u32.to_le_bytes());
    assert_example("live-function", &entry, |bytes| {
        let entries = 327_680 + l::MODULE_COUNT * l::MODULE_LEN;
        let image = live_file(entries + 2 * l::FUNCTION_LEN, bytes);
        let [function] = &image.functions[..] else {
            panic!("one function");
        };
        let live::LiveFunctionModule::Entry(module) = function.module else {
            panic!("{function:?}");
        };
        json!({
            "region": function.region.get(),
            "address": function.address,
            "module_entry": module,
        })
    });
}

#[test]
fn a_page_has_the_rows_of_a_chunk() {
    use live::layout as l;
    let rows = [enter_row(0, 4), user_row(), dropped_row(), enter_row(15, 5)].concat();
    let mut page = vec![0; l::PAGE_HEADER_LEN];
    put_at(&mut page, l::PAGE_STREAM, &1_u32.to_le_bytes());
    let commit = 3 << 32 | rows.len() as u64;
    for (offset, word) in [
        (l::PAGE_SEQUENCE, 2),
        (l::PAGE_GENERATION, 7),
        (l::PAGE_COMMIT, commit),
        (l::PAGE_BASE_TICK, 1000),
        (l::PAGE_OPEN_REFERENCE, 5000),
        (l::PAGE_RAISED, 20),
        (l::PAGE_RECORDED, 20),
        (l::PAGE_DROPPED, 0),
    ] {
        put_at(&mut page, offset, &u64::to_le_bytes(word));
    }
    page.extend_from_slice(&rows);
    assert_example("page", &page, |bytes| {
        let image = live_file(65_536, bytes);
        let [page] = &image.pages[..] else {
            panic!("one page");
        };
        let mut types = Definitions::default();
        for event_type in event_types() {
            types.add(Definition::EventType(event_type));
        }
        let mut builder = ChunkBuilder::new(u64::MAX);
        let events = builder.push_rows(&types.schema(), page.base_tick, &page.rows);
        assert_eq!(events.unwrap(), u64::from(page.event_count));
        let (_, built) = builder.finish(page.stream);
        assert_eq!(built, chunk().1);
        let generation: [u8; 8] = bytes[l::PAGE_GENERATION..][..8].try_into().unwrap();
        json!({
            "stream": page.stream.get(),
            "sequence": page.sequence,
            "generation": u64::from_le_bytes(generation),
            "committed_bytes": page.rows.len(),
            "committed_events": page.event_count,
            "base_tick": page.base_tick,
            "open_reference_ns": page.open_reference_ns,
            "before": {
                "raised": page.before.raised,
                "recorded": page.before.recorded,
                "dropped": page.before.dropped,
            },
            "ticks": built.ticks,
        })
    });
}

#[test]
fn an_observations_row_is_a_reading_of_the_reference_clock() {
    let mut row = Vec::new();
    row.put_varint(ROW_OBSERVATION);
    row.put_signed(5000);
    assert_example("row-observation", &row, |bytes| {
        let mut builder = ChunkBuilder::new(u64::MAX);
        let schema = Definitions::default().schema();
        assert_eq!(builder.push_rows(&schema, 0, bytes).unwrap(), 0);
        let (_, chunk) = builder.finish(StreamId::new(0));
        json!({"reference_ns": chunk.observations[0].1})
    });
}

#[test]
fn the_ticks_of_a_loss_are_unwrapped_between_the_events_around_it() {
    let clock = TestClock {
        kind: ClockKind::Readable,
        ticks_per_second: 1_000_000,
        max_ticks: 49_999,
        tick_at_zero: 0,
    };
    let events_us = [9_560, 196_800];
    let record = |cumulative, to_tick| DroppedRecord {
        event_type: Some(MARK),
        cause: Cause::ReportedBySource,
        is_lower_bound: true,
        count: 1,
        cumulative,
        from_tick: 9_560,
        to_tick,
    };
    let mut rows = Vec::new();
    put_dropped_row(&record(1, 25_000), &mut rows);
    put_dropped_row(&record(2, 28_000), &mut rows);
    assert_example("ticks-of-losses", &rows, |bytes| {
        let mut builder = ChunkBuilder::new(clock.max_ticks);
        let schema = Definitions::default().schema();
        builder.push_rows(&schema, 0, bytes).unwrap();
        let (_, chunk) = builder.finish(StreamId::new(0));
        let dropped = chunk.dropped.iter().map(|(_, record)| {
            Row::Dropped(
                record.event_type,
                record.count,
                record.from_tick,
                record.to_tick,
            )
        });
        let event = |number: usize| {
            let time_ns = events_us[number] * 1000;
            let event = Row::Event(MARK, clock.tick(time_ns), number as u64);
            [Row::Observation(time_ns), event]
        };
        let rows = event(0).into_iter().chain(dropped).chain(event(1));
        let recording = TestRecording {
            rank: Some(0),
            rank_count: None,
            id: 1,
            start_ns: 0,
            end_ns: 200_000_000,
            clocks: vec![clock],
            streams: vec![TestStream {
                clock: 0,
                ordering: SourceOrder::Ordered,
                chunks: vec![(events_us[0] * 1000, rows.collect())],
            }],
            has_footer: true,
        };
        let scratch = tempfile::tempdir().unwrap();
        recording.write(scratch.path(), CompressionLevel::None);
        let opened = annals_merger::Reader::open(scratch.path()).unwrap();
        let losses = opened.summary().unwrap().losses;
        let intervals = losses
            .iter()
            .map(|loss| [loss.from_ns / 1000, loss.to_ns / 1000]);
        let intervals: Vec<[i64; 2]> = intervals.collect();
        json!({"max_ticks": clock.max_ticks, "events_us": events_us, "intervals_us": intervals})
    });
}

#[test]
fn every_byte_example_of_the_spec_is_tested() {
    let source = include_str!("spec.rs");
    let hex: BTreeSet<String> = fenced("hex").into_keys().collect();
    let json: BTreeSet<String> = fenced("json").into_keys().collect();
    assert_eq!(hex, json, "every hex block states its values");
    assert!(!hex.is_empty());
    let untested: Vec<&String> = hex
        .iter()
        .filter(|name| !source.contains(&format!("\"{name}\"")))
        .collect();
    assert!(untested.is_empty(), "no test names {untested:?}");
}

/// Readers and writers use the names that the page lists.
#[test]
fn well_known_names_are_those_of_the_page() {
    let spec = std::fs::read_to_string(SPEC).unwrap();
    let section = |from: &str, to: &str| {
        let start = spec.find(from).expect("the section");
        let length = spec[start..].find(to).expect("the next section");
        spec[start..start + length].to_owned()
    };
    let quoted = |section: &str, column: usize| -> BTreeSet<String> {
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let cells = rows.map(|row| row.split('|').nth(column).expect("a cell"));
        let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        names.map(str::to_owned).collect()
    };
    let roles = section(
        "| code | role | elements it has by name |",
        "A role names its elements",
    );
    let elements = section("### Messages and collective operations", "A **send** has");
    let mut listed = quoted(&roles, 3);
    listed.append(&mut quoted(&elements, 1));
    let known = names::element::ALL.map(str::to_owned);
    assert_eq!(listed, BTreeSet::from(known));
    let properties = section("### Properties", "### Messages");
    let known = names::property::ALL.map(str::to_owned);
    assert_eq!(quoted(&properties, 1), BTreeSet::from(known));
}
