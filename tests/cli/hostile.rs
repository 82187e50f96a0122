//! Files that cannot be trusted. Small ones that ask for much: every command ends in time, within its memory, with an exit
//! code, and without a panic; each file is one that once did not. Damaged ones: every command counts what is lost and says
//! so.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::trace_merge;
use annals_format::wire::Put;
use annals_format::{
    BLOCK_HEADER_LEN, BlockKind, BlockWriter, Cause, Chunk, ChunkHeader, ClockMap,
    CompressionLevel, Content, Cumulative, Definition, Definitions, FileHeader, FileKind, Footer,
    RecordingId, StreamGroup, StreamId, StreamTotals, TraceChunk, TypeColumns, TypeTotals,
    put_growing, put_ints,
};
use annals_test_support::samples::{Deed, SampledRank};
use annals_test_support::{ENTER, LEAVE, MARK, NOTE, REFERENCE, Row, TestRecording, TestStream};
use tempfile::TempDir;

/// Address space of a command, bytes.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Time of two processors that a command may take: other tests run at the same time.
const PROCESSOR_SECONDS: u64 = 20;
/// Time after which a command hangs.
const TIME: Duration = Duration::from_secs(120);

/// Returns a recording of rank 0 with the definitions of all event types, and no chunks.
fn recording() -> TestRecording {
    TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: 1_000,
        end_ns: 1_000_000_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: annals_format::SourceOrder::Ordered,
            chunks: vec![(1_000, vec![Row::Note(2_000, 1, "a".to_owned())])],
        }],
        has_footer: false,
    }
}

/// Returns the recording's header and definitions, without its chunk.
fn beginning() -> Vec<u8> {
    let bytes = recording().encode(CompressionLevel::default());
    let header = annals_format::BlockHeader::decode(&bytes[64..]).expect("a block");
    bytes[..64 + header.block_len() as usize].to_vec()
}

/// Returns a file of this kind with definitions of one stream.
fn trace_beginning() -> Vec<u8> {
    let bytes = beginning();
    let header = annals_format::BlockHeader::decode(&bytes[64..]).expect("a block");
    let body = header
        .open_body(&bytes[64 + BLOCK_HEADER_LEN..])
        .expect("a body");
    let mut definitions = Definitions::default();
    definitions.add_all(&body).expect("definitions");
    let clock = annals_format::ClockId::new(0);
    let map = ClockMap {
        clock,
        error_ns: 0,
        knots: [(0, 0), (1_000_000_000, 1_000_000_000)].into(),
    };
    definitions.clock_maps.insert(clock, map);
    let mut body = Vec::new();
    definitions.encode(&mut body);
    let header = FileHeader::new(FileKind::Trace, RecordingId([3; 16]));
    let mut out = header.encode().to_vec();
    put(&mut out, BlockKind::Definitions, &[], &body);
    out
}

/// Appends a block whose body is as short as can be, whatever it is worth.
fn put(out: &mut Vec<u8>, kind: BlockKind, head: &[u8], body: &[u8]) {
    let level = if body.len() > 4 << 20 { 3 } else { 19 };
    let stored = zstd::bulk::compress(body, level).expect("a zstd frame");
    put_stored(out, kind, 1, head, &stored, body.len() as u32);
}

/// Appends a block as a writer may write it.
fn put_within_limits(out: &mut Vec<u8>, head: &[u8], body: &[u8], content: Content) {
    let mut writer = BlockWriter::new(CompressionLevel::default()).expect("a block writer");
    writer.write_with(BlockKind::Chunk, head, body, content, out);
}

fn chunk_header(sequence: u64, counts: &[(annals_format::EventTypeId, u64)]) -> ChunkHeader {
    let events = counts.iter().map(|(_, count)| count).sum();
    ChunkHeader {
        stream: StreamId::new(0),
        sequence,
        event_count: events,
        dropped_count: 0,
        first_tick: 2_000,
        min_offset: 0,
        max_offset: 0,
        last_tick: 2_000,
        inversions: 0,
        largest_lateness: 0,
        open_reference_ns: 2_000,
        close_reference_ns: 2_000,
        before: Cumulative::default(),
        counts: counts.to_vec(),
        predecessor_counts: Vec::new(),
    }
}

/// Returns the body of a chunk whose columns are these bytes: all events at tick 2000, of one type.
fn body_of_one_type(
    event_type: annals_format::EventTypeId,
    events: usize,
    element_types: &[u8],
    columns: &[u8],
) -> Vec<u8> {
    let mut body = Vec::new();
    // A constant column of ticks.
    body.push(0);
    body.put_signed(2_000);
    body.put_varint(1);
    body.put_varint(event_type.get().into());
    body.put_varint(events as u64);
    body.put_varint(element_types.len() as u64);
    body.extend_from_slice(element_types);
    body.extend_from_slice(&[0, 0]);
    body.extend_from_slice(columns);
    // No dropped records, no observations.
    body.extend_from_slice(&[0, 0]);
    body
}

/// 40 000 events share a text of 1 MiB.
fn shared_text() -> Vec<u8> {
    let (events, length) = (40_000, 1 << 20);
    let mut columns = vec![0, 0, 0];
    columns.push(0);
    columns.push(0);
    columns.put_varint(1);
    put_ints(&[length as u64], &mut columns);
    columns.resize(columns.len() + length, b'x');
    put_ints(&vec![0_u64; events], &mut columns);
    let body = body_of_one_type(NOTE, events, &[4, 6], &columns);
    let mut head = Vec::new();
    chunk_header(0, &[(NOTE, events as u64)]).encode(&mut head);
    let mut out = beginning();
    put(&mut out, BlockKind::Chunk, &head, &body);
    out
}

/// Returns a trace whose only event is of stream 2³² − 1.
fn far_stream() -> Vec<u8> {
    let mut columns = TypeColumns::new(MARK, [annals_format::ElementType::U64].into_iter());
    columns.count = 1;
    columns.columns[0].push_bits(7);
    let group = StreamGroup {
        ends: vec![(StreamId::new(u32::MAX), 1)],
        times_ns: vec![5],
        type_index: vec![0],
        types: vec![columns],
        tick_residuals: vec![0],
        ..StreamGroup::default()
    };
    let mut out = trace_beginning();
    put_group(&mut out, group);
    out
}

fn put_group(out: &mut Vec<u8>, group: StreamGroup) {
    let chunk = TraceChunk {
        groups: vec![group],
        losses: Vec::new(),
    };
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    chunk.put_block(0, &mut writer, out).expect("a small chunk");
}

/// Definitions with ids up to 2³² − 2, in a recording and in a trace.
fn far_ids(mut out: Vec<u8>) -> Vec<u8> {
    let mut body = Vec::new();
    for id in [1 << 31, u32::MAX - 1] {
        Definition::String(annals_format::StringId::new(id), "far".to_owned()).encode(&mut body);
        let stream = annals_format::Stream {
            id: StreamId::new(id),
            source: annals_format::SourceId::new(0),
            location: None,
        };
        Definition::Stream(stream).encode(&mut body);
        let rank = annals_format::Rank {
            process: annals_format::ProcessId::new(id),
            rank: id,
            rank_count: Some(id),
            is_assigned: false,
        };
        Definition::Rank(rank).encode(&mut body);
    }
    put(&mut out, BlockKind::Definitions, &[], &body);
    out
}

/// Blocks of definitions that decompress to 256 MiB each.
fn much_of_definitions() -> Vec<u8> {
    let mut record = Vec::new();
    Definition::String(annals_format::StringId::new(9), String::new()).encode(&mut record);
    let body = record.repeat((256 << 20) / record.len());
    let mut block = Vec::new();
    put(&mut block, BlockKind::Definitions, &[], &body);
    let mut out = beginning();
    (0..30).for_each(|_| out.extend_from_slice(&block));
    out
}

/// Chunks that decompress to 256 MiB each.
fn much_of_chunks() -> Vec<u8> {
    let mut body = body_of_one_type(MARK, 1, &[4], &[0, 0, 0]);
    body.resize(256 << 20, 0);
    let mut blocks = Vec::new();
    let mut out = beginning();
    let mut head = Vec::new();
    chunk_header(0, &[(MARK, 1)]).encode(&mut head);
    put(&mut blocks, BlockKind::Chunk, &head, &body);
    let stored = blocks[BLOCK_HEADER_LEN + head.len()..].to_vec();
    for sequence in 0..100 {
        // A copy of the body with another head: only the first is compressed.
        let mut head = Vec::new();
        chunk_header(sequence, &[(MARK, 1)]).encode(&mut head);
        put_stored(&mut out, BlockKind::Chunk, 1, &head, &stored, 256 << 20);
    }
    out
}

/// A block with a body as it is stored, and right checksums.
fn put_stored(
    out: &mut Vec<u8>,
    kind: BlockKind,
    compression: u8,
    head: &[u8],
    stored: &[u8],
    raw: u32,
) {
    let mut header = Vec::new();
    header.extend_from_slice(&annals_format::SYNC);
    header.extend_from_slice(&[kind.code(), compression, 0, 0]);
    for word in [
        head.len() as u32,
        stored.len() as u32,
        raw,
        crc32fast::hash(head),
        crc32fast::hash(stored),
        0,
    ] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let checksum = crc32fast::hash(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(head);
    out.extend_from_slice(stored);
}

/// 100 000 block headers whose heads have 16 MiB and are damaged.
fn large_heads() -> Vec<u8> {
    let mut out = beginning();
    for _ in 0..100_000 {
        let mut header = Vec::new();
        header.extend_from_slice(&annals_format::SYNC);
        header.extend_from_slice(&[2, 0, 0, 0]);
        for word in [16 << 20, 0, 0, 7, 7, 0_u32] {
            header.extend_from_slice(&word.to_le_bytes());
        }
        let checksum = crc32fast::hash(&header);
        header.extend_from_slice(&checksum.to_le_bytes());
        header.resize(218, 1);
        out.extend_from_slice(&header);
    }
    out
}

/// 60 million calibration points, a byte each for tick, time, error and offset.
fn many_calibration_points() -> Vec<u8> {
    let points = 60_000_000_usize;
    let mut record = Vec::new();
    record.put_varint(0);
    record.put_varint(points as u64);
    record.extend_from_slice(&[2, 2, 0, 0]);
    record.resize(record.len() + 4 * (points - 1), 0);
    let mut body = Vec::new();
    body.put_varint(26);
    body.put_bytes(&record);
    let mut out = beginning();
    put(&mut out, BlockKind::Definitions, &[], &body);
    out
}

/// Enters nested this deep, then their leaves, a nanosecond apart, as few bytes as can be.
fn nested_calls(depth: usize, is_within_limits: bool) -> Vec<u8> {
    let events = 2 * depth;
    let mut body = Vec::new();
    let ticks: Vec<u64> = (0..events as u64).map(|n| 2_000 + n).collect();
    put_growing(&ticks, &mut body);
    body.put_varint(2);
    for event_type in [ENTER, LEAVE] {
        body.put_varint(event_type.get().into());
        body.put_varint(depth as u64);
        body.extend_from_slice(&[1, 4]);
    }
    let indexes: Vec<u64> = (0..events).map(|n| u64::from(n >= depth)).collect();
    put_ints(&indexes, &mut body);
    // Region 1, always.
    body.extend_from_slice(&[0, 0, 2, 0, 0, 2]);
    body.extend_from_slice(&[0, 0]);
    let mut head = Vec::new();
    let counts = [(ENTER, depth as u64), (LEAVE, depth as u64)];
    let header = ChunkHeader {
        max_offset: events as i64 - 1,
        last_tick: 2_000 + events as u64 - 1,
        ..chunk_header(0, &counts)
    };
    header.encode(&mut head);
    let mut out = beginning();
    if is_within_limits {
        let content = Chunk::decode(&header, &body).expect("a chunk").content();
        put_within_limits(&mut out, &head, &body, content);
    } else {
        put(&mut out, BlockKind::Chunk, &head, &body);
    }
    out
}

/// Chunks with as many values as a chunk may have, in a few bytes each.
fn many_values() -> Vec<u8> {
    let (events, elements) = (65_536, 256);
    let columns = [0, 0, 0].repeat(elements);
    let body = body_of_one_type(MARK, events, &vec![4; elements], &columns);
    let mut out = beginning();
    for sequence in 0..200 {
        let mut head = Vec::new();
        chunk_header(sequence, &[(MARK, events as u64)]).encode(&mut head);
        put(&mut out, BlockKind::Chunk, &head, &body);
    }
    out
}

/// Snapshots with as many locations and steps as there may be, in a few bytes each.
fn large_snapshots() -> Vec<u8> {
    let mut out = trace_beginning();
    let count = 1_usize << 20;
    let locations: Vec<u64> = (0..count as u64).collect();
    let mut body = Vec::new();
    put_growing(&locations, &mut body);
    // Flags, last times, a step each, kinds, regions, times: constant.
    body.extend_from_slice(&[0, 4, 0, 2, 0, 2, 0, 0, 0, 2, 0, 2]);
    for chunk in 0..1_000 {
        let mut head = Vec::new();
        head.put_varint(chunk);
        head.put_varint(count as u64);
        head.put_varint(count as u64);
        put(&mut out, BlockKind::Snapshot, &head, &body);
    }
    out
}

/// Returns a process that started 2⁶³ ns before its reference clock's 0.
fn start_of_time() -> Vec<u8> {
    let mut recording = recording();
    recording.has_footer = true;
    recording.start_ns = i64::MIN;
    recording.encode(CompressionLevel::default())
}

/// Returns a footer whose index names one large block for every chunk.
fn one_block_for_many_chunks() -> Vec<u8> {
    let mut out = beginning();
    let body = body_of_one_type(MARK, 1, &[4], &[0, 0, 0]);
    let noise: Vec<u8> = (0..4_u32 << 20)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let body = [body, noise].concat();
    let offset = out.len() as u64;
    let mut head = Vec::new();
    chunk_header(0, &[(MARK, 1)]).encode(&mut head);
    put(&mut out, BlockKind::Chunk, &head, &body);
    let footer_at = out.len() as u64;
    let footer = annals_format::Footer {
        chunks: (0..100_000)
            .map(|sequence| (offset, chunk_header(sequence, &[(MARK, 1)])))
            .collect(),
        ..annals_format::Footer::default()
    };
    let mut body = Vec::new();
    footer.encode(&mut body);
    put(&mut out, BlockKind::Footer, &[], &body);
    out.extend_from_slice(&annals_format::encode_tail(footer_at));
    out
}

/// Totals whose sums exceed 64 bits: of events that are recorded, lost, dropped and suppressed.
fn counts_beyond_64_bits(recorded: u64) -> Vec<u8> {
    let mut out = beginning();
    let row = |event_type| {
        let mut row = TypeTotals::new(event_type);
        row.raised = u64::MAX;
        row.recorded = recorded;
        row.suppressed = u64::MAX - 1;
        row.dropped.set(Cause::TooBig, u64::MAX - 2);
        row.dropped.set(Cause::BufferFull, u64::MAX - 3);
        row
    };
    let mut totals = StreamTotals::new(StreamId::new(0));
    totals.rows = [MARK, ENTER, LEAVE].map(row).to_vec();
    (totals.inversions, totals.largest_lateness) = (u64::MAX, u64::MAX);
    let footer_at = out.len() as u64;
    let footer = Footer {
        totals: vec![totals],
        ..Footer::default()
    };
    let mut body = Vec::new();
    footer.encode(&mut body);
    put(&mut out, BlockKind::Footer, &[], &body);
    out.extend_from_slice(&annals_format::encode_tail(footer_at));
    out
}

/// Returns the files, and whether they are traces.
/// A trace chunk of very many streams, none of whose groups can be decoded.
fn undecodable_streams() -> Vec<u8> {
    const STREAMS: u32 = 200_000;
    let group = |first: u32| {
        let streams = first..(first + 4096).min(STREAMS);
        let events = streams.len();
        let mut columns = TypeColumns::new(MARK, [annals_format::ElementType::U64].into_iter());
        columns.count = events;
        (0..events).for_each(|_| columns.columns[0].push_bits(7));
        StreamGroup {
            ends: streams.map(StreamId::new).zip(1..).collect(),
            times_ns: vec![5; events],
            type_index: vec![0; events],
            types: vec![columns],
            tick_residuals: vec![0; events],
            ..StreamGroup::default()
        }
    };
    let chunk = TraceChunk {
        groups: (0..STREAMS).step_by(4096).map(group).collect(),
        losses: Vec::new(),
    };
    let mut out = trace_beginning();
    let at = out.len();
    let mut writer = BlockWriter::new(CompressionLevel::None).expect("a writer");
    let put = chunk.put_block(0, &mut writer, &mut out);
    put.expect("a chunk within the limits");
    let header = annals_format::BlockHeader::decode(&out[at..]).expect("a block");
    let body = at + BLOCK_HEADER_LEN + header.head_len as usize;
    out[body..].iter_mut().for_each(|byte| *byte ^= 0xff);
    out
}

/// Event types that begin intervals, and after them as many that end some.
fn many_intervals() -> Vec<u8> {
    const PAIRS: u32 = 50_000;
    let mut definitions = Vec::new();
    let string = annals_format::StringId::new;
    for id in 0..2 * PAIRS {
        let name = string(1000 + id);
        Definition::String(name, format!("t{id}")).encode(&mut definitions);
        Definition::EventType(annals_format::EventType {
            id: annals_format::EventTypeId::new(100 + id),
            name,
            description: string(0),
            verbosity: annals_format::Verbosity::UserBasic,
            role: match id < PAIRS {
                true => annals_format::Role::Begin,
                false => annals_format::Role::End,
            },
            key_element: None,
            elements: Vec::new(),
        })
        .encode(&mut definitions);
    }
    let mut out = recording().encode(CompressionLevel::default());
    let length = definitions.len() as u32;
    put_stored(
        &mut out,
        BlockKind::Definitions,
        0,
        &[],
        &definitions,
        length,
    );
    out
}

/// The begin of a Paraver trace: its first line, and an event of the type `code`.
fn paraver(code: u64) -> String {
    format!("#Paraver (27/11/2026 at 09:00):10000_ns:1(1):1:1(1:1)\n2:1:1:1:1:100:{code}:1\n")
}

/// A compressed file of some MiB: a start, and then one byte again and again.
fn compressed(start: &'static [u8], byte: u8, mib: usize) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .args(["-c", "-9"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip is there");
    let mut stdin = gzip.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || {
        let lines = vec![byte; 1 << 20];
        let mut write = |bytes: &[u8]| std::io::Write::write_all(&mut stdin, bytes);
        write(start).expect("gzip reads");
        (0..mib).for_each(|_| write(&lines).expect("gzip reads"));
    });
    let output = gzip.wait_with_output().expect("gzip ends");
    writer.join().expect("a writer");
    output.stdout
}

/// A trace of PyTorch's profiler in which each slice overlaps all others, and has a name and a thread of which there are many.
fn overlapping_slices() -> Vec<u8> {
    let slice = |number: u32| {
        let thread = number / 400;
        format!(
            "{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{number}\",\"pid\":{number},\"tid\":{thread},\"ts\":{number},\"dur\":1000000}},\
             {{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{number}\",\"pid\":1,\"tid\":{thread},\"ts\":{number},\"dur\":1000000}}"
        )
    };
    let slices: Vec<String> = (0..2_000).map(slice).collect();
    format!("{{\"traceEvents\":[{}]}}", slices.join(",")).into_bytes()
}

/// Names for a Paraver trace: of 100 000 event types, and of 20 000 values that as many of them share.
fn many_names() -> Vec<u8> {
    let mut names = String::new();
    for code in 0..100_000 {
        names.push_str(&format!(
            "EVENT_TYPE\n0 {} X{code}_begin\n",
            70_000_000 + code
        ));
    }
    names.push_str("EVENT_TYPE\n");
    (0..20_000).for_each(|code| names.push_str(&format!("0 {} Y{code}\n", 80_000_000 + code)));
    names.push_str("VALUES\n");
    (0..20_000).for_each(|value| names.push_str(&format!("{value} v\n")));
    names.into_bytes()
}

/// Samples at the end of a call path of this depth, and in its middle.
fn deep_samples(depth: usize) -> Vec<u8> {
    let path: &'static [&'static str] = Vec::leak(["main", "solve"].repeat(depth / 2));
    let deeds = [depth, depth / 2].map(|depth| (depth as u64, Deed::Sample(&path[..depth], 1_000)));
    let mut deeds = deeds.to_vec();
    deeds.reverse();
    let rank = SampledRank {
        threads: vec![deeds],
        ..SampledRank::default()
    };
    annals_test_support::samples::recording(0, 1, &rank)
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("shared-text", shared_text()),
        ("far-stream", far_stream()),
        (
            "far-ids",
            far_ids(recording().encode(CompressionLevel::default())),
        ),
        ("far-ids-trace", far_ids(trace_beginning())),
        ("much-of-definitions", much_of_definitions()),
        ("much-of-chunks", much_of_chunks()),
        ("large-heads", large_heads()),
        ("many-calibration-points", many_calibration_points()),
        ("nested-4M", nested_calls(2_000_000, false)),
        ("nested-200k", nested_calls(200_000, false)),
        ("nested-200k-within-limits", nested_calls(200_000, true)),
        ("deep-samples", deep_samples(200_000)),
        ("many-values", many_values()),
        ("large-snapshots", large_snapshots()),
        ("start-of-time", start_of_time()),
        ("one-block-for-many-chunks", one_block_for_many_chunks()),
        ("counts-beyond-64-bits", counts_beyond_64_bits(u64::MAX - 4)),
        ("drops-beyond-64-bits", counts_beyond_64_bits(0)),
        ("undecodable-streams", undecodable_streams()),
        ("many-intervals", many_intervals()),
        (
            "empty-lines.prv.gz",
            compressed(paraver(7).leak().as_bytes(), b'\n', 1024),
        ),
        (
            "blanks.json.gz",
            compressed(b"{\"traceEvents\":[", b' ', 64),
        ),
        (
            "name.json.gz",
            compressed(b"{\"traceEvents\":[{\"name\":\"", b'a', 1024),
        ),
        (
            "arrays.json.gz",
            compressed(b"{\"traceEvents\":[", b'[', 1024),
        ),
        ("lanes.json", overlapping_slices()),
        ("many-names.prv", paraver(70_000_007).into_bytes()),
    ]
}

/// Returns the arguments of every command that reads a file; the first is the program.
fn commands(file: &Path, scratch: &Path) -> Vec<Vec<OsString>> {
    let cli = env!("CARGO_BIN_EXE_trace-cli");
    let merge = trace_merge();
    let out = |name: &str| scratch.join(name).into_os_string();
    let mut commands: Vec<Vec<OsString>> = Vec::new();
    let mut add = |words: &[&dyn AsRef<OsStr>]| {
        commands.push(words.iter().map(|word| word.as_ref().to_owned()).collect());
    };
    for command in [
        "info",
        "sources",
        "events",
        "print",
        "regions",
        "flat",
        "messages",
        "collectives",
        "metrics",
        "samples",
        "intervals",
        "suggest-filter",
        "dropped",
        "verify",
    ] {
        add(&[&cli, &command, &file]);
    }
    add(&[&cli, &"info", &file, &"--json"]);
    add(&[&cli, &"print", &file, &"--json"]);
    add(&[&cli, &"regions", &file, &"--tree"]);
    add(&[&cli, &"samples", &file, &"--tree"]);
    add(&[&cli, &"samples", &file, &"--folded"]);
    add(&[&cli, &"regions", &file, &"--by", &"location"]);
    add(&[&cli, &"dropped", &file, &"--check"]);
    add(&[&cli, &"histogram", &file, &"--region", &"*"]);
    add(&[&cli, &"diff", &file, &file]);
    add(&[&cli, &"timeline", &file, &"--svg", &out("a.svg")]);
    add(&[&cli, &"timeline", &file, &"--png", &out("a.png")]);
    add(&[&cli, &"report", &file, &"-o", &out("a.html")]);
    add(&[&cli, &"slice", &file, &"-o", &out("slice.annals")]);
    add(&[&cli, &"index", &file, &"-o", &out("indexed.annals")]);
    add(&[
        &cli,
        &"split",
        &file,
        &"-o",
        &out("split"),
        &"--parts",
        &"2",
    ]);
    add(&[&cli, &"recover", &file, &"-o", &out("recovered")]);
    for format in [
        "a.folded",
        "a.pftrace",
        "a.json",
        "a.parquet",
        "a.csv",
        "a.jsonl",
        "a.flame.svg",
    ] {
        let format_of = match format {
            "a.flame.svg" => "flamegraph",
            _ => "",
        };
        if format_of.is_empty() {
            add(&[&cli, &"export", &file, &"-o", &out(format)]);
        } else {
            add(&[
                &cli,
                &"export",
                &file,
                &"-f",
                &format_of,
                &"-o",
                &out(format),
            ]);
        }
    }
    add(&[&merge, &file, &"-o", &out("merged.annals")]);
    add(&[&merge, &file, &"-o", &out("archive.otf2")]);
    commands
}

/// Runs a command in its address space. `None` if it does not end in time.
fn run(words: &[OsString]) -> Option<Output> {
    let mut child = Command::new("prlimit")
        .arg(format!("--as={ADDRESS_SPACE}"))
        .arg(format!("--cpu={PROCESSOR_SECONDS}"))
        .args(words)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("prlimit is there");
    let deadline = Instant::now() + TIME;
    let mut stderr = child.stderr.take().expect("piped");
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stderr, &mut said);
        said
    });
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().expect("a child");
            child.wait().expect("a child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stderr = said.join().expect("a reader");
    let status = status.filter(|status| status.signal() != Some(libc::SIGXCPU));
    Some(Output {
        status: status?,
        stdout: Vec::new(),
        stderr,
    })
}

#[test]
fn no_small_file_takes_a_command_more_than_a_gigabyte_or_ten_seconds() {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("many-names.pcf"), many_names()).expect("the names");
    let mut failures = Vec::new();
    for (name, bytes) in files() {
        let file_name = match name.contains('.') {
            true => name.to_owned(),
            false => format!("{name}.annals"),
        };
        let file: PathBuf = directory.path().join(file_name);
        std::fs::write(&file, &bytes).expect("the file");
        for words in commands(&file, directory.path()) {
            let shown: Vec<_> = words[1..]
                .iter()
                .map(|word| word.to_string_lossy())
                .collect();
            let shown = format!("{} bytes of {name}: {}", bytes.len(), shown.join(" "));
            let Some(output) = run(&words) else {
                failures.push(format!(
                    "{shown}: takes more than {PROCESSOR_SECONDS} s of processors, or {TIME:?}"
                ));
                continue;
            };
            let said = String::from_utf8_lossy(&output.stderr);
            let is_ended = matches!(output.status.code(), Some(0..=3));
            if !is_ended || said.contains("panicked") {
                let end: String = said.chars().rev().take(300).collect();
                let end: String = end.chars().rev().collect();
                failures.push(format!("{shown}: {}: {end}", output.status));
            }
        }
        std::fs::remove_file(&file).expect("the file");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Returns a finished recording of two streams of 5 events each, whose definitions are changed wherever they are.
fn with_definitions(change: impl FnOnce(&mut Vec<u8>, &mut Definitions)) -> Vec<u8> {
    let stream = |first: u64| TestStream {
        clock: 0,
        ordering: annals_format::SourceOrder::Ordered,
        chunks: vec![(
            1_000,
            (0..5)
                .map(|n| Row::Event(MARK, first + n * 10, n))
                .collect(),
        )],
    };
    let mut recording = recording();
    recording.streams = vec![stream(2_000), stream(2_005)];
    recording.has_footer = true;
    let bytes = recording.encode(CompressionLevel::None);
    let block_at = |at: usize| {
        let header = annals_format::BlockHeader::decode(&bytes[at..]).expect("a block");
        let end = at + header.block_len() as usize;
        (end - header.body_len as usize..end, header)
    };
    let (records, _) = block_at(64);
    let mut definitions = Definitions::default();
    definitions
        .add_all(&bytes[records.clone()])
        .expect("definitions");
    let mut changed = Vec::new();
    change(&mut changed, &mut definitions);
    definitions.encode(&mut changed);

    let footer_at = annals_format::decode_tail(&bytes[bytes.len() - 24..]).expect("a tail");
    let (footer, _) = block_at(footer_at as usize);
    let mut sections = annals_format::wire::Wire::new(&bytes[footer]);
    sections.bytes("definitions").expect("a section");
    let index = Footer::decode(&bytes[block_at(footer_at as usize).0]).expect("a footer");

    let mut out = bytes[..64].to_vec();
    put(&mut out, BlockKind::Definitions, &[], &changed);
    let moved = out.len() as i64 - records.end as i64;
    out.extend_from_slice(&bytes[records.end..footer_at as usize]);
    let mut rest = Vec::new();
    let index = Footer {
        definitions: Definitions::default(),
        chunks: index
            .chunks
            .into_iter()
            .map(|(offset, head)| (offset.wrapping_add_signed(moved), head))
            .collect(),
        ..index
    };
    index.encode(&mut rest);
    let mut body = Vec::new();
    body.put_bytes(&changed);
    // After an empty section of definitions.
    body.extend_from_slice(&rest[1..]);
    let footer_at = out.len() as u64;
    put(&mut out, BlockKind::Footer, &[], &body);
    out.extend_from_slice(&annals_format::encode_tail(footer_at));
    out
}

/// Returns the record of a definition with one byte changed: an unknown code.
fn with_unknown_code(definition: &Definition, at: usize) -> Vec<u8> {
    let mut record = Vec::new();
    definition.encode(&mut record);
    record[at] = 99;
    record
}

#[test]
fn events_of_streams_without_definition_are_skipped_events_of_every_command() {
    let (source, clock) = (
        annals_format::SourceId::new(1),
        annals_format::ClockId::new(0),
    );
    // What is lost, and how many of the ten events with it.
    let cases: [(&str, u64, Vec<u8>); 5] = [
        (
            "stream",
            5,
            with_definitions(|_, d| {
                d.streams.remove(&StreamId::new(1)).expect("a stream");
            }),
        ),
        (
            "source",
            5,
            with_definitions(|_, d| {
                d.sources.remove(&source).expect("a source");
            }),
        ),
        (
            "source of an unknown ordering",
            5,
            with_definitions(|more, d| {
                let lost = Definition::Source(d.sources.remove(&source).expect("a source"));
                // Kind, length, id, process, name, description.
                more.extend(with_unknown_code(&lost, 6));
            }),
        ),
        (
            "clock of an unknown kind",
            10,
            with_definitions(|more, d| {
                let lost = Definition::Clock(d.clocks.remove(&clock).expect("a clock"));
                // Kind, length, id, process, name.
                more.extend(with_unknown_code(&lost, 5));
            }),
        ),
        (
            "all definitions",
            10,
            with_definitions(|_, d| *d = Definitions::default()),
        ),
    ];
    for (what, lost, bytes) in cases {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("undefined.annals");
        let mut checked = 0;
        std::fs::write(&file, bytes).expect("the file");
        let code = |words: &[OsString]| {
            let output = Command::new(&words[0]).args(&words[1..]).output();
            let output = output.expect("a command");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), said)
        };
        let whole = directory.path().join("whole.annals");
        std::fs::write(&whole, with_definitions(|_, _| {})).expect("the file");
        let of_whole = commands(&whole, directory.path());
        for (words, of_whole) in commands(&file, directory.path()).iter().zip(of_whole) {
            // Questions that the whole recording answers without loss, and that name no region.
            if code(&of_whole).0 != Some(0)
                || ["recover", "histogram"]
                    .iter()
                    .any(|name| words[1] == *name)
            {
                continue;
            }
            let (code, said) = code(words);
            checked += 1;
            // Without any process, nothing can be said about waits.
            if words[1] == *"report" && what == "all definitions" {
                assert_eq!(code, Some(1), "{what}: {words:?}: {said}");
                assert!(said.contains("definitions of this input are incomplete"));
                continue;
            }
            assert_eq!(code, Some(3), "{what}: {words:?}: {said}");
        }
        assert!(checked > 15, "{checked} commands");
        let counts = |path: &Path| {
            let mut info = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
            let output = info
                .args(["info", "--json"])
                .arg(path)
                .output()
                .expect("trace-cli runs");
            let info: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            ["raised", "events", "skipped"].map(|key| info[key].as_u64().expect("a count"))
        };
        let known = [10, 10 - lost, lost];
        assert_eq!(counts(&file), known, "{what}");
        assert_eq!(
            counts(&directory.path().join("merged.annals")),
            known,
            "{what}, merged"
        );
    }
}

fn cli(arguments: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = command.args(arguments).output().expect("trace-cli runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_tail_that_is_lost_or_points_elsewhere_is_reported_by_every_command() {
    let directory = TempDir::new().expect("a directory");
    let mut made = recording();
    made.has_footer = true;
    let recording = made.encode(CompressionLevel::default());
    let whole = directory.path().join("whole.annals");
    std::fs::write(&whole, &recording).expect("the recording");
    let trace = directory.path().join("trace.annals");
    let mut merge = Command::new(trace_merge());
    let merged = merge
        .arg(&whole)
        .arg("-o")
        .arg(&trace)
        .output()
        .expect("trace-merge runs");
    assert_eq!(merged.status.code(), Some(0));
    let trace = std::fs::read(&trace).expect("the trace");
    for (kind, bytes) in [("recording", recording), ("trace", trace)] {
        let end = bytes.len() - 24;
        let footer_at = annals_format::decode_tail(&bytes[end..]).expect("a tail");
        let elsewhere = [
            ("gone", bytes[..end].to_vec()),
            ("before the footer", with_tail(&bytes[..end], footer_at - 1)),
            ("beyond the end", with_tail(&bytes[..end], 1 << 40)),
        ];
        for (what, damaged) in elsewhere {
            let file = directory.path().join("damaged.annals");
            std::fs::write(&file, damaged).expect("the file");
            let mut commands = vec!["info", "print", "dropped", "events"];
            if kind == "trace" {
                commands.push("verify");
            }
            for command in commands {
                let (code, said) = cli(&[&command, &file]);
                assert_eq!(code, Some(3), "{kind}, tail {what}: {command}: {said}");
                assert!(
                    said.contains("tail"),
                    "{kind}, tail {what}: {command}: {said}"
                );
            }
        }
    }
    // What only lost its tail is whole again after a recovery.
    let file = directory.path().join("damaged.annals");
    let bytes = std::fs::read(&whole).expect("the recording");
    std::fs::write(&file, &bytes[..bytes.len() - 24]).expect("the file");
    let (_, said) = cli(&[&"recover", &file]);
    assert_eq!(std::fs::read(&file).expect("the file"), bytes, "{said}");
}

fn with_tail(bytes: &[u8], footer_at: u64) -> Vec<u8> {
    [bytes, &annals_format::encode_tail(footer_at)].concat()
}

#[test]
fn an_event_at_the_end_of_time_is_printed() {
    let mut columns = TypeColumns::new(MARK, [annals_format::ElementType::U64].into_iter());
    columns.count = 2;
    columns.columns[0].push_bits(7);
    columns.columns[0].push_bits(8);
    let group = StreamGroup {
        ends: vec![(StreamId::new(0), 2)],
        times_ns: vec![5, i64::MAX],
        type_index: vec![0; 2],
        types: vec![columns],
        tick_residuals: vec![0; 2],
        ..StreamGroup::default()
    };
    let mut bytes = trace_beginning();
    put_group(&mut bytes, group);
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("end.annals");
    std::fs::write(&file, bytes).expect("the file");
    let (_, said) = cli(&[&"print", &file, &"--template", &"{time_ns} {number}"]);
    assert!(said.contains("5 7\n9223372036854775807 8\n"), "{said}");
    let (_, said) = cli(&[
        &"print",
        &file,
        &"--template",
        &"{time_ns}",
        &"--from",
        &"1s",
    ]);
    assert!(said.contains("9223372036854775807\n"), "{said}");
    let (_, said) = cli(&[&"print", &file, &"--template", &"{time_ns}", &"--to", &"1s"]);
    assert!(!said.contains("9223372036854775807"), "{said}");
}

#[test]
fn recover_leaves_a_live_file_that_it_cannot_read() {
    use annals_recorder::{EventTypeSpec, Options, Recorder};
    let directory = TempDir::new().expect("a directory");
    let recorder = Recorder::start(&Options::new(directory.path())).expect("a recorder");
    let mark = EventTypeSpec::new("mark").element("number");
    let mark = recorder
        .add_event_type::<(u64,)>(&mark)
        .expect("an event type");
    (0..100).for_each(|number| recorder.raise(&mark, (number,)));
    let files = std::fs::read_dir(directory.path()).expect("a directory");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let [recording, live] = &files[..] else {
        panic!("a recording and its live file, not {files:?}");
    };
    // As a kill leaves them, of a process that is gone, and without definitions.
    let copy = directory.path().join("killed");
    std::fs::create_dir(&copy).expect("a directory");
    let mut image = std::fs::read(live).expect("the live file");
    let header = annals_format::LiveHeader::decode(&image, image.len() as u64);
    let header = header.expect("a live header");
    let of_another = annals_format::LiveHeader {
        process_start: header.process_start + 2,
        ..header
    };
    let fixed = of_another.encode();
    image[..fixed.len()].copy_from_slice(&fixed);
    image[2048..2056].fill(0);
    let mut written = std::fs::read(recording).expect("the recording");
    written.truncate(64);
    let (recording, live) = (copy.join("run.annals"), copy.join("run.annals-live"));
    std::fs::write(&recording, &written).expect("the recording");
    std::fs::write(&live, &image).expect("the live file");
    drop(recorder);

    let (code, said) = cli(&[&"recover", &copy]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("incomplete") && said.contains("100 events"),
        "{said}"
    );
    assert_eq!(std::fs::read(&recording).expect("the recording"), written);
    assert_eq!(std::fs::read(&live).expect("the live file"), image);
    for command in ["info", "print", "dropped"] {
        let (code, said) = cli(&[&command, &copy]);
        assert_eq!(code, Some(3), "{command}: {said}");
        assert!(said.contains("100"), "{command}: {said}");
    }
}
