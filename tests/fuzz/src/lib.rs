//! What the fuzz targets do with the bytes that they get. A test replays the corpora through the same functions, with the
//! stable compiler.

mod cost;

use std::ffi::OsStr;
use std::path::Path;

use annals_analysis::{FindingKind, RankDump, dump_findings};
use annals_foreign::flight::Dump;
use annals_format::live::layout as l;
use annals_format::units;
use annals_format::wire::{Put, Wire};
use annals_format::{
    BlockHeader, BlockKind, BlockWriter, Chunk, ChunkBuilder, ChunkHeader, Clock, ClockId,
    ClockKind, Column, CompressionLevel, Definition, Definitions, ElementType, EventType,
    EventTypeId, FileHeader, FileKind, Footer, LiveHeader, LiveImage, Location, LocationId,
    LocationKind, MessageRow, MetricRow, OrderedChunk, OverviewRow, ProcessId, ReadAt, Recording,
    RecordingId, RegionStatistics, Role, Snapshot, SnapshotHeader, Source, SourceId, SourceOrder,
    Stream, StreamId, StreamTotals, StringId, Trace, TraceChunk, TraceChunkHeader, Verbosity,
    decode_bins, decode_index_block, encode_tail, put_row_start, read_ints,
};
use annals_merger::{ClockOffsets, EventFilter, Globs, Plan};
use annals_recorder::{Options, Rules, SETTINGS, Trigger};
use annals_server::parameters::{self, Question, Request};

use cost::bounded;

/// A fuzz target: what it is called, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 9] = [
    ("dump", dump),
    ("parts", parts),
    ("file", file),
    ("kineto", kineto),
    ("live", live),
    ("otf2", otf2),
    ("paraver", paraver),
    ("request", request),
    ("text", text),
];

/// Runs every decoder of a part of a file on any bytes: no checksum protects them.
pub fn parts(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    bounded(bytes.len(), || part(*which, bytes));
}

fn part(which: u8, bytes: &[u8]) {
    match which % 10 {
        0 => {
            let mut definitions = Definitions::default();
            let _ = definitions.add_all(bytes);
            let mut again = Vec::new();
            definitions.encode(&mut again);
            let mut read = Definitions::default();
            assert!(read.add_all(&again).is_ok(), "what is written is read");
        }
        1 => {
            let mut wire = Wire::new(bytes);
            if let Ok(header) = ChunkHeader::decode(&mut wire) {
                let _ = Chunk::decode(&header, &bytes[wire.position()..]);
                let _ = Chunk::decode_rows(&header, &bytes[wire.position()..]);
            }
        }
        2 => {
            let mut wire = Wire::new(bytes);
            if let Ok(mut header) = TraceChunkHeader::decode(&mut wire) {
                let body = &bytes[wire.position()..];
                seal_frames(&mut header, body);
                let _ = TraceChunk::decode(&header, body).map(OrderedChunk::from);
            }
        }
        3 => {
            let _ = Footer::decode(bytes);
            let _ = decode_index_block(bytes);
        }
        4 => {
            let mut wire = Wire::new(bytes);
            if let Ok(header) = SnapshotHeader::decode(&mut wire) {
                let _ = Snapshot::decode(&header, &bytes[wire.position()..]);
            }
        }
        5 => drop(StreamTotals::decode(&mut Wire::new(bytes))),
        6 => drop(LiveHeader::decode(bytes, 1 << 20)),
        7 => drop(BlockHeader::decode(bytes)),
        8 => {
            if let Some((head, body)) = bytes.split_first() {
                let _ = RegionStatistics::decode(&[*head], body);
                let _ = decode_bins::<OverviewRow>(&[*head], body);
                let _ = decode_bins::<MessageRow>(&[*head], body);
                let _ = decode_bins::<MetricRow>(&[*head], body);
            }
        }
        _ => {
            let Some(([element_type, count @ ..], rest)) = bytes.split_first_chunk::<3>() else {
                return;
            };
            let count = usize::from(u16::from_le_bytes(*count));
            let _ = read_ints(&mut Wire::new(rest), count);
            if let Some(element_type) = ElementType::from_code(*element_type) {
                let _ = Column::read(&mut Wire::new(rest), element_type, count);
            }
        }
    }
}

/// Makes the checksums of a trace chunk's frames right.
fn seal_frames(header: &mut TraceChunkHeader, body: &[u8]) {
    let mut left = body;
    for frame in &mut header.frames {
        let stored = take(&mut left, frame.stored_len as usize);
        frame.crc = crc32fast::hash(stored);
    }
}

/// Splits off the first `count` bytes, or all if there are fewer.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (first, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    first
}

fn byte(bytes: &mut &[u8]) -> usize {
    take(bytes, 1).first().copied().unwrap_or(0).into()
}

fn number(bytes: &mut &[u8]) -> usize {
    let mut number = [0; 2];
    let taken = take(bytes, 2);
    number[..taken.len()].copy_from_slice(taken);
    usize::from(u16::from_le_bytes(number))
}

/// Loads every chunk; returns the number of events.
fn load(recording: &Recording, file: &dyn ReadAt) -> u64 {
    let chunks = recording.streams.values().flat_map(|stream| &stream.chunks);
    let loaded = chunks.filter_map(|stored| recording.load(file, stored).ok());
    loaded.map(|chunk| chunk.type_index.len() as u64).sum()
}

/// Reads a recording, and its recovered form; returns the number of events.
fn read_recording(file: &[u8], live: Option<LiveImage>, is_alive: bool) -> Option<u64> {
    let file = &file.to_vec();
    let read = || {
        let recording = Recording::read(file, live, |_| is_alive).ok()?;
        let events = load(&recording, file);
        Some((recording, events))
    };
    let (recording, events) = bounded(file.len(), read)?;
    if is_alive {
        return Some(events);
    }
    let Ok(Some(recovery)) = recording.recover(file, CompressionLevel::None) else {
        return Some(events);
    };
    let kept = usize::try_from(recovery.kept).expect("a part of the file");
    let mut whole = file[..kept].to_vec();
    whole.extend_from_slice(&recovery.bytes);
    let again = Recording::read(&whole, None, |_| false).expect("what is recovered is read");
    assert!(again.has_footer, "what is recovered has its footer");
    let found = load(&again, &whole);
    assert_eq!(found, events, "what is recovered has the same events");
    Some(events)
}

fn read_trace(file: &[u8]) {
    bounded(file.len(), || read_trace_of(&file.to_vec()));
}

fn read_trace_of(file: &dyn ReadAt) {
    let Ok(trace) = Trace::read(file) else { return };
    for entry in &trace.chunks {
        let _ = trace.load(file, entry);
    }
    for snapshot in &trace.snapshots {
        let _ = trace.load_snapshot(file, snapshot);
    }
    let _ = trace.load_statistics(file);
}

/// Returns a recording of some chunks with its index in blocks. Bytes of index and footer are changed before their
/// checksums are computed; after that, blocks are dropped, doubled or moved. Also returns the number of events if
/// nothing was changed.
fn indexed_recording(mut left: &[u8]) -> (Vec<u8>, Option<u64>) {
    let (chunks, of_block) = (1 + byte(&mut left) % 8, 1 + byte(&mut left) % 4);
    let (from, to, change) = (byte(&mut left), byte(&mut left), byte(&mut left));
    let mut changes: Vec<(usize, usize, u8)> = Vec::new();
    while left.len() > 3 {
        changes.push((byte(&mut left), number(&mut left), byte(&mut left) as u8));
    }
    let header = FileHeader::new(FileKind::Recording, RecordingId([7; 16])).encode();
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("no compression");
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut put = |blocks: &mut Vec<Vec<u8>>, kind: BlockKind, head: &[u8], mut body: Vec<u8>| {
        let number = blocks.len();
        let of_block = changes.iter().filter(|(block, ..)| *block == number);
        for (_, at, value) in of_block.filter(|_| kind != BlockKind::Chunk) {
            let len = body.len().max(1);
            body.get_mut(at % len)
                .into_iter()
                .for_each(|byte| *byte = *value);
        }
        let mut block = Vec::new();
        writer.write(kind, head, &body, &mut block);
        let offset = header.len() + blocks.iter().map(Vec::len).sum::<usize>();
        blocks.push(block);
        offset as u64
    };
    let mut records = Vec::new();
    definitions().encode(&mut records);
    put(&mut blocks, BlockKind::Definitions, &[], records);
    let mut footer = Footer {
        definitions: definitions(),
        ..Footer::default()
    };
    for sequence in 0..chunks {
        let (header, head, body) = a_chunk(sequence as u64);
        let offset = put(&mut blocks, BlockKind::Chunk, &head, body);
        footer.chunks.push((offset, header));
        if footer.chunks.len() == of_block {
            let mut body = Vec::new();
            body.put_varint(footer.chunks.len() as u64);
            footer.chunks_in_blocks += footer.chunks.len() as u64;
            for (offset, header) in footer.chunks.drain(..) {
                let mut head = Vec::new();
                header.encode(&mut head);
                body.put_varint(offset);
                body.put_bytes(&head);
            }
            let offset = put(&mut blocks, BlockKind::Index, &[], body);
            footer.index_blocks.push(offset);
        }
    }
    let mut body = Vec::new();
    footer.encode(&mut body);
    let offset = put(&mut blocks, BlockKind::Footer, &[], body);
    let (from, to) = (from % blocks.len(), to % blocks.len());
    match change % 4 {
        1 => drop(blocks.remove(from)),
        2 => blocks.insert(to, blocks[from].clone()),
        3 => blocks.swap(from, to),
        _ => {}
    }
    let mut file = header.to_vec();
    file.extend(blocks.concat());
    file.extend_from_slice(&encode_tail(offset));
    let is_whole = changes.is_empty() && change % 4 == 0;
    (file, is_whole.then_some(3 * chunks as u64))
}

/// A body is repeated up to this length.
const MOST_REPEATED: usize = 4 << 20;

/// Whole files: made of any blocks with checksums that are right, then read, loaded, and recovered.
pub fn file(bytes: &[u8]) {
    let mut left = bytes;
    let flags = byte(&mut left);
    if flags & 4 != 0 {
        let (file, whole) = indexed_recording(left);
        let events = read_recording(&file, None, false);
        assert!(
            whole.is_none() || events == whole,
            "an index in blocks is read"
        );
        return;
    }
    let kind = if flags & 1 == 0 {
        FileKind::Recording
    } else {
        FileKind::Trace
    };
    let header = FileHeader::new(kind, RecordingId([7; 16]));
    let mut file = header.encode().to_vec();
    // With bodies that grow when they are decompressed, whether a writer may write them or not.
    let is_compressed = flags & 8 != 0;
    let level = match is_compressed {
        true => CompressionLevel::Zstd(1),
        false => CompressionLevel::None,
    };
    let mut writer = BlockWriter::new(level).expect("a level that can be had");
    let mut footer = 0;
    while !left.is_empty() {
        let kind = BlockKind::from_code(left[0]);
        left = &left[1..];
        let times = match is_compressed {
            true => 1 << (byte(&mut left) % 16),
            false => 1,
        };
        let (head, body) = (number(&mut left), number(&mut left));
        let (head, body) = (take(&mut left, head), take(&mut left, body));
        if kind == BlockKind::Footer {
            footer = file.len() as u64;
        }
        let times = times.min(MOST_REPEATED / body.len().max(1)).max(1);
        let mut stored = Vec::new();
        let body = body.repeat(times);
        let mut head = head.to_vec();
        if kind == BlockKind::TraceChunk
            && let Ok(mut header) = TraceChunkHeader::decode(&mut Wire::new(&head))
        {
            seal_frames(&mut header, &body);
            head.clear();
            header.encode(&mut head);
        }
        writer.write(kind, &head, &body, &mut stored);
        (0..if times > 1 { 1 + times % 5 } else { 1 })
            .for_each(|_| file.extend_from_slice(&stored));
    }
    if flags & 2 != 0 {
        file.extend_from_slice(&encode_tail(footer));
    }
    match kind {
        FileKind::Recording => {
            read_recording(&file, None, false);
        }
        FileKind::Trace => read_trace(&file),
    }
    // The unchanged input, too.
    read_recording(bytes, None, false);
    read_trace(bytes);
}

/// Event types 0 to 2 without elements, and streams 0 and 1 of one source.
fn definitions() -> Definitions {
    let (process, name) = (ProcessId::new(0), StringId::new(0));
    let mut definitions = Definitions::default();
    definitions.add(Definition::Clock(Clock {
        id: ClockId::new(0),
        process,
        name,
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    }));
    definitions.add(Definition::Source(Source {
        id: SourceId::new(0),
        process,
        name,
        description: name,
        ordering: SourceOrder::Ordered,
        clock: ClockId::new(0),
    }));
    for number in 0..3 {
        definitions.add(Definition::EventType(EventType {
            id: EventTypeId::new(number),
            name,
            description: name,
            verbosity: Verbosity::UserBasic,
            role: Role::Point,
            key_element: None,
            elements: Vec::new(),
        }));
    }
    for number in 0..2 {
        definitions.add(Definition::Location(Location {
            id: LocationId::new(number),
            process,
            name,
            kind: LocationKind::Thread,
            system_id: 0,
        }));
        definitions.add(Definition::Stream(Stream {
            id: StreamId::new(number),
            source: SourceId::new(0),
            location: Some(LocationId::new(number)),
        }));
    }
    definitions
}

const PAGE_LEN: usize = 512;
const PAGE_COUNT: usize = 4;
const SLOTS_AT: usize = l::HEADER_LEN;
const SLOT_COUNT: usize = 4;
const SEGMENTS_AT: usize = SLOTS_AT + SLOT_COUNT * l::SLOT_LEN;
const SEGMENT_COUNT: usize = 2;
const DEFINITIONS_AT: usize = SEGMENTS_AT + SEGMENT_COUNT * l::SEGMENT_LEN;
const DEFINITIONS_LEN: usize = 1024;
const PAGES_AT: usize = DEFINITIONS_AT + DEFINITIONS_LEN;
const FUNCTIONS_AT: usize = PAGES_AT + PAGE_COUNT * PAGE_LEN;
const ENTRIES_AT: usize = FUNCTIONS_AT + l::MODULE_COUNT * l::MODULE_LEN;
const FUNCTION_COUNT: usize = 4;
const LIVE_LEN: usize = ENTRIES_AT + FUNCTION_COUNT * l::FUNCTION_LEN;

fn put(file: &mut [u8], offset: usize, value: u64) {
    file[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// Returns a live file with two streams, one page of the first and two of the second, the older one cut off by a newer
/// generation.
fn live_file() -> Vec<u8> {
    let mut file = vec![0; LIVE_LEN];
    let header = LiveHeader {
        recording_id: RecordingId([7; 16]),
        boot_id: annals_format::BootId([1; 16]),
        pid: 2,
        process_start: 3,
        page_size: PAGE_LEN as u32,
        page_count: PAGE_COUNT as u32,
        pages_offset: PAGES_AT as u64,
        slots_offset: SLOTS_AT as u64,
        slot_count: SLOT_COUNT as u32,
        segment_count: SEGMENT_COUNT as u32,
        segments_offset: SEGMENTS_AT as u64,
        definitions_offset: DEFINITIONS_AT as u64,
        definitions_capacity: DEFINITIONS_LEN as u64,
        functions_offset: FUNCTIONS_AT as u64,
        function_count: FUNCTION_COUNT as u32,
    };
    let header = header.encode();
    file[..header.len()].copy_from_slice(&header);
    put(&mut file, l::STATE, l::STATE_RECORDING);
    put(&mut file, l::HEARTBEAT, 1_000_000);
    let mut records = Vec::new();
    definitions().encode(&mut records);
    put(&mut file, l::DEFINITIONS_LEN, records.len() as u64);
    file[DEFINITIONS_AT..][..records.len()].copy_from_slice(&records);
    put(&mut file, l::REGION_COUNT, 4);
    put(
        &mut file,
        FUNCTIONS_AT + l::MODULE_STATE,
        1 | 6 << 32 | 2 << 48,
    );
    file[FUNCTIONS_AT + l::MODULE_PATH..][..6].copy_from_slice(b"/a/b.c");
    for (number, module) in [(0, 1), (1, 0), (2, 9)] {
        let at = ENTRIES_AT + number * l::FUNCTION_LEN;
        put(
            &mut file,
            at,
            u64::from(l::FUNCTION_OF_MODULE) | (number as u64) << 32,
        );
        put(&mut file, at + l::FUNCTION_ADDRESS, 0x1139);
        put(&mut file, at + l::FUNCTION_MODULE, module);
    }
    for slot in 0..2_usize {
        let at = SLOTS_AT + slot * l::SLOT_LEN;
        file[at + l::SLOT_STREAM] = slot as u8 + 1;
        file[at + l::SLOT_LOCATION] = slot as u8 + 1;
        file[at + l::SLOT_SEGMENTS] = slot as u8 + 1;
        put(&mut file, at + l::SLOT_RECORDED, 3);
        for row in 0..3 {
            let row = SEGMENTS_AT + slot * l::SEGMENT_LEN + row * l::ROW_LEN;
            put(&mut file, row + l::ROW_RAISED, 4);
            put(&mut file, row + l::ROW_DROPPED, 1);
        }
    }
    let mut rows = Vec::new();
    for number in 0..3 {
        put_row_start(EventTypeId::new(number), 0, 10, &mut rows);
    }
    for (page, stream, sequence) in [(0, 0, 1), (1, 1, 0), (3, 1, 1)] {
        let at = PAGES_AT + page * PAGE_LEN;
        put(&mut file, at + l::PAGE_STREAM, stream + 1);
        put(&mut file, at + l::PAGE_SEQUENCE, sequence);
        put(&mut file, at + l::PAGE_RECORDED, 3 * sequence);
        put(&mut file, at + l::PAGE_RAISED, 3 * sequence);
        put(&mut file, at + l::PAGE_BASE_TICK, 100 * sequence);
        put(&mut file, at + l::PAGE_COMMIT, 3 << 32 | rows.len() as u64);
        file[at + l::PAGE_HEADER_LEN..][..rows.len()].copy_from_slice(&rows);
    }
    file
}

/// Returns a chunk of the first stream: its header, and head and body as they are written.
fn a_chunk(sequence: u64) -> (ChunkHeader, Vec<u8>, Vec<u8>) {
    let mut rows = Vec::new();
    for number in 0..3 {
        put_row_start(EventTypeId::new(number), 0, 10, &mut rows);
    }
    let mut builder = ChunkBuilder::new(u64::MAX);
    let built = builder.push_rows(&definitions().schema(), 100 * sequence, &rows);
    built.expect("rows of defined types");
    let (mut header, chunk) = builder.finish(StreamId::new(0));
    header.sequence = sequence;
    header.before.recorded = 3 * sequence;
    header.before.raised = 3 * sequence;
    let (mut head, mut body) = (Vec::new(), Vec::new());
    header.encode(&mut head);
    chunk.encode(&mut body);
    (header, head, body)
}

/// Returns a recording whose first stream has a chunk, without a footer.
fn begun_recording() -> Vec<u8> {
    let header = FileHeader::new(FileKind::Recording, RecordingId([7; 16]));
    let mut file = header.encode().to_vec();
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("no compression");
    let definitions = definitions();
    let mut records = Vec::new();
    definitions.encode(&mut records);
    writer.write(BlockKind::Definitions, &[], &records, &mut file);
    let (_, head, body) = a_chunk(0);
    writer.write(BlockKind::Chunk, &head, &body, &mut file);
    file
}

/// Returns an offset in a live file, from two bytes of input: most offsets are close to a field, but all can be
/// reached.
fn place(which: usize, at: usize) -> usize {
    match which % 8 {
        0 => 64 + at % 64,
        1 => l::DEFINITIONS_LEN + at % 32,
        2 | 3 => SLOTS_AT + at % (SLOT_COUNT * l::SLOT_LEN),
        4 => SEGMENTS_AT + at % (SEGMENT_COUNT * l::SEGMENT_LEN),
        5 => DEFINITIONS_AT + at % DEFINITIONS_LEN,
        6 => PAGES_AT + at % PAGE_COUNT * PAGE_LEN + at / PAGE_COUNT % l::PAGE_HEADER_LEN,
        _ => PAGES_AT + at % (PAGE_COUNT * PAGE_LEN),
    }
}

/// Reads a live file together with the start of a recording: any of its bytes are changed, but its checksum is correct.
pub fn live(bytes: &[u8]) {
    let mut left = bytes;
    let flags = byte(&mut left);
    let mut image = live_file();
    let mut recording = begun_recording();
    while !left.is_empty() {
        let (which, at) = (byte(&mut left), number(&mut left));
        let count = 1 + which / 8 % 16;
        let new = take(&mut left, count);
        let at = place(which, at);
        let end = image.len().min(at + new.len());
        image[at..end].copy_from_slice(&new[..end - at]);
    }
    let checksum = crc32fast::hash(&image[..l::FIXED_LEN]);
    image[l::FIXED_LEN..][..4].copy_from_slice(&checksum.to_le_bytes());
    match flags & 3 {
        0 => {}
        // A block that is cut off; nothing but the header; a chunk that is lost.
        1 => drop(recording.drain(recording.len() - 1..)),
        2 => recording.truncate(annals_format::FILE_HEADER_LEN),
        _ => recording.truncate(recording.len() - 40),
    }
    if let Ok(image) = LiveImage::read(&image) {
        read_recording(&recording, Some(image), flags & 4 != 0);
    }
    // The unchanged input, too.
    let _ = LiveImage::read(&bytes.to_vec());
}

/// Every parser of OTF2 archives, on any bytes: as they are, and with a chunk's header before them.
pub fn otf2(bytes: &[u8]) {
    annals_foreign::otf2::exercise(bytes);
    let mut chunk = vec![
        3,
        if bytes.len().is_multiple_of(2) {
            0x42
        } else {
            0x23
        },
    ];
    chunk.resize(18, 0);
    chunk.extend_from_slice(bytes);
    annals_foreign::otf2::exercise(&chunk);
}

/// Reads a trace of the Paraver format: its records, the names of its states and events, and the names of its threads, with a
/// zero byte between them.
pub fn paraver(bytes: &[u8]) {
    bounded(bytes.len(), || {
        let directory = tempfile::tempdir().expect("a directory");
        let trace = directory.path().join("trace.prv");
        let mut parts = bytes.splitn(3, |byte| *byte == 0);
        for extension in ["prv", "pcf", "row"] {
            let part = parts.next().unwrap_or_default();
            std::fs::write(trace.with_extension(extension), part).expect("a file");
        }
        events_in_order(&trace);
    });
}

/// Reads a trace of another format, if it is one: its events are in order.
fn events_in_order(trace: &std::path::Path) {
    let Ok(reader) = annals_merger::Reader::open(trace) else {
        return;
    };
    let mut last_ns = i64::MIN;
    let read = reader.for_each_event(&annals_merger::Query::new(), |event| {
        assert!(event.time() >= last_ns, "events are in order");
        last_ns = event.time();
        std::ops::ControlFlow::Continue(())
    });
    assert!(read.is_ok(), "what was converted is read: {read:?}");
}

/// Reads a trace of PyTorch's profiler, of one process, and of two.
pub fn kineto(bytes: &[u8]) {
    bounded(bytes.len(), || {
        let directory = tempfile::tempdir().expect("a directory");
        for count in 1..3 {
            let path = directory.path().join(format!("rank{count}.json"));
            std::fs::write(path, bytes).expect("a file");
            events_in_order(directory.path());
        }
    });
}

/// Reads a dump of PyTorch's flight recorder, and judges three ranks: two that have it, and one whose dump cannot be read.
pub fn dump(bytes: &[u8]) {
    bounded(bytes.len(), || {
        let dumps = (0..2).filter_map(|rank| {
            let dump = Dump::parse(bytes, 1 << 16).ok()?;
            Some(RankDump { rank, dump })
        });
        let dumps: Vec<RankDump> = dumps.collect();
        let found = dump_findings(&dumps, &[2]).findings;
        let mut findings = found.findings.iter();
        let is_mismatch = findings.any(|of| of.kind == FindingKind::Mismatch);
        assert!(!is_mismatch, "ranks agree that have entered the same");
    });
}

/// Reads what a request to the server asks for. It is within the limits, or an error.
pub fn request(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let Ok(Request::Of(_, question)) = parameters::request(path, query) else {
        return;
    };
    match question {
        Question::Tile(range, lanes) | Question::Bins(range, lanes) => {
            assert!(range.level <= 62 && (1..=parameters::TILE_BINS).contains(&range.count));
            let window = range.window();
            assert!(window.from_ns < window.to_ns, "{range:?}");
            let lanes = lanes.iter().map(|row| row.last - row.first + 1);
            assert!(lanes.sum::<u32>() as usize <= parameters::MOST_LANES);
        }
        Question::Regions(window, _)
        | Question::Waits(window, _, _)
        | Question::Samples(window, _, _)
        | Question::Messages(window, _)
        | Question::Metrics(window, _)
        | Question::MessageBins(window, _)
        | Question::MetricBins(window, _)
        | Question::Losses(window) => assert!(window.from_ns < window.to_ns),
        Question::Lanes | Question::Calls { .. } | Question::Search(_) | Question::Find { .. } => {}
    }
}

/// Every parser of what people write: filters, times, sizes, measured offsets, plans, rules, triggers, settings.
pub fn text(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    let text = &*String::from_utf8_lossy(bytes);
    let path = Path::new("a file");
    match which % 10 {
        0 => {
            if let Ok(ns) = units::parse_time(text) {
                assert_eq!(
                    units::parse_time(&format!("{ns}ns")),
                    Ok(ns),
                    "times are written"
                );
            }
        }
        1 => {
            if let Ok(size) = units::parse_size(text) {
                assert_eq!(
                    units::parse_size(&size.to_string()),
                    Ok(size),
                    "sizes are written"
                );
            }
        }
        2 => {
            let (patterns, name) = text.split_once('\n').unwrap_or((text, "solve"));
            let _ = patterns.parse::<Globs>().map(|set| set.is_match(name));
        }
        3 => {
            let mut parts = text.split('\n');
            let filter = EventFilter {
                ranks: parts.next().and_then(|ranks| ranks.parse().ok()),
                sources: parts.next().and_then(|globs| globs.parse().ok()),
                locations: parts.next().and_then(|globs| globs.parse().ok()),
                event_types: parts.next().and_then(|globs| globs.parse().ok()),
            };
            let _ = filter.select(&definitions());
        }
        4 => drop(ClockOffsets::parse(text, path)),
        5 => drop(Plan::parse(bytes, path)),
        6 => {
            if let Ok(mut rules) = text.parse::<Rules>() {
                rules.extend(&Rules::default());
                assert!(!rules.is_empty() || text.split(['\n', ';']).all(is_comment));
            }
        }
        7 => drop(text.parse::<Trigger>()),
        8 => {
            let Some((which, _)) = bytes.split_first() else {
                return;
            };
            // A setting that is read out of a file is another matter.
            if let Some(value) = text.get(1..).filter(|value| !value.starts_with('@')) {
                let setting = &SETTINGS[usize::from(*which) % SETTINGS.len()];
                let _ = Options::new("run").set(setting.variable, OsStr::new(value));
            }
        }
        _ => {
            if let Ok(level) = text.parse::<CompressionLevel>() {
                let _ = BlockWriter::new(level).expect("a level that can be had");
            }
        }
    }
}

fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}
