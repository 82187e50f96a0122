//! Row chunks: what a recorder stores without compression is what it stores with it, before and after its compression.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{BlockKind, ChunkHeader, CompressionLevel, Recording, StreamId};
use annals_merger::{InputRecording, MergeError, Reader, Sums, Window, compress};
use annals_recorder::{
    Blob, ClockSpec, Compression, EventType, EventTypeSpec, Overflow, Recorder, SourceSpec, Text,
};
use annals_test_support::bodies;
use annals_test_support::recorders::{mark, small_pages};

const EVENTS: u64 = 4000;

/// Records events of all kinds of rows: of threads, and of a device whose ticks go back at times.
fn record(directory: &Path, compression: Compression) -> PathBuf {
    let mut options = small_pages(directory, 1 << 20);
    options.overflow = Overflow::Block;
    options.compression = compression;
    let recorder = Recorder::start(&options).expect("a recorder");
    let device = ClockSpec::unreadable("device", 1_000_000_000);
    let device = recorder.add_clock(&device).expect("a clock");
    let source = SourceSpec::unordered("device").clock(device);
    let source = recorder.add_source(&source).expect("a source");
    let spec = EventTypeSpec::new("all").element("text").element("bytes");
    let spec = spec.element("float").element("perhaps").element("signed");
    let all: EventType<(Text, Blob, f64, Option<u32>, i64)> =
        recorder.add_event_type(&spec).expect("an event type");
    let plain = EventTypeSpec::new("plain").element("a").element("b");
    let plain: EventType<(u64, i32)> = recorder.add_event_type(&plain).expect("an event type");
    let mark = mark(&recorder);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (recorder, mark, all, plain) = (&recorder, &mark, &all, &plain);
            scope.spawn(move || {
                for number in 0..EVENTS {
                    recorder.raise(mark, (number,));
                    recorder.raise(plain, (u64::MAX >> (number % 64), -(number as i32)));
                    if number % 7 == thread {
                        let text = format!("text {}", number % 5);
                        let perhaps = (number % 2 == 0).then_some(number as u32);
                        let values = (text.as_bytes(), &[7; 3][..], 0.5, perhaps, -3);
                        recorder.raise(all, values);
                    }
                    if number % 1000 == 999 {
                        recorder.report_dropped(annals_recorder::THREADS, mark.id(), 2);
                    }
                }
            });
        }
    });
    for number in 0..EVENTS {
        // Every second batch of a hundred has two events in the wrong order.
        let late = u64::from(number % 200 == 150) * 30;
        recorder.raise_at(source, 1000 + number * 10 - late, &mark, (number,));
    }
    recorder.finish().path
}

/// Returns the events of each stream as texts, without the times and numbers of streams, which differ from run to run.
fn events(path: &Path) -> BTreeSet<Vec<String>> {
    let opened = Reader::open(path).expect("a recording");
    let mut events: BTreeMap<StreamId, Vec<String>> = BTreeMap::new();
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        for row in chunk.rows() {
            let name = opened.definitions().event_type_name(row.event_type());
            let values: Vec<_> = row.values().collect();
            let text = format!("{name} {values:?}");
            events.entry(row.stream()).or_default().push(text);
        }
        Ok(())
    });
    let outcome = outcome.expect("a recording");
    let sums = Sums::of(&outcome.totals);
    assert_eq!(
        (sums.present(), sums.dropped),
        (4 * EVENTS + 3 * EVENTS + 1716, 24)
    );
    events.into_values().collect()
}

/// Returns heads and events, with their ticks, dropped records and observations, of the chunks of a recording.
fn chunks(path: &Path) -> Vec<(ChunkHeader, String)> {
    let bytes = std::fs::read(path).expect("the recording");
    let recording = Recording::read(&bytes, None, |_| false).expect("a recording");
    let damage = recording.check_rest(&bytes).unwrap();
    assert!(recording.problems.is_empty() && damage.is_empty());
    let chunks = recording.streams.values().flat_map(|stream| &stream.chunks);
    let chunks = chunks.map(|stored| {
        let chunk = recording.load(&bytes, stored).unwrap();
        let rows = chunk
            .rows()
            .map(|row| (row.event_type, row.values().collect::<Vec<_>>()));
        let rows: Vec<_> = rows.collect();
        let rest = (&chunk.ticks, &chunk.dropped, &chunk.observations);
        (stored.header.clone(), format!("{rows:?} {rest:?}"))
    });
    chunks.collect()
}

/// Returns the numbers of chunks of rows and of chunks in columns.
fn kinds(path: &Path) -> (usize, usize) {
    let bytes = std::fs::read(path).expect("the recording");
    let count = |kind| bodies(&bytes, kind).len();
    (count(BlockKind::RowChunk), count(BlockKind::Chunk))
}

fn compress_at(path: &Path) -> Result<Option<annals_merger::Compressed>, MergeError> {
    let input = InputRecording::open(path).expect("a recording");
    let level = CompressionLevel::default();
    compress(&input, level, |_| ControlFlow::Continue(()))
}

#[test]
fn rows_are_what_columns_are_before_and_after_their_compression() {
    let scratch = tempfile::tempdir().expect("a directory");
    let in_columns = record(scratch.path(), CompressionLevel::Zstd(1).into());
    let expected = events(&in_columns);
    assert_eq!(kinds(&in_columns).0, 0);
    assert_eq!(compress_at(&in_columns).unwrap(), None);
    for compression in [CompressionLevel::None.into(), Compression::Later] {
        let path = record(scratch.path(), compression);
        let (of_rows, of_columns) = kinds(&path);
        // Chunks of the device whose ticks go back have columns.
        assert!(
            of_rows > 30 && (1..of_rows).contains(&of_columns),
            "{of_rows}, {of_columns}"
        );
        assert!(events(&path) == expected, "the events are others");
        let before = chunks(&path);
        let compressed = compress_at(&path).unwrap().expect("rows to compress");
        let length = std::fs::metadata(&path).unwrap().len();
        assert_eq!(compressed.to_bytes, length);
        assert!(compressed.from_bytes > 2 * length, "{compressed:?}");
        assert_eq!(kinds(&path), (0, of_rows + of_columns));
        assert!(chunks(&path) == before, "the chunks are others");
        assert!(events(&path) == expected, "the events are others");
        assert_eq!(compress_at(&path).unwrap(), None);
    }
}

#[test]
fn a_damaged_row_chunk_is_lost_alone_and_not_compressed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = record(scratch.path(), Compression::Later);
    let whole = std::fs::read(&path).expect("the recording");
    let (body, length) = bodies(&whole, BlockKind::RowChunk)[5];
    let mut damaged = whole.clone();
    damaged[body + length / 2] ^= 0x55;
    std::fs::write(&path, &damaged).expect("the recording");
    let summary = Reader::open(&path).unwrap().summary().unwrap();
    let sums = Sums::of(&summary.totals);
    let lost = summary
        .losses
        .iter()
        .filter(|loss| loss.cause == annals_format::Cause::Skipped);
    let lost: u64 = lost.map(|loss| loss.count).sum();
    assert!((1..2000).contains(&lost), "{lost}");
    assert_eq!(sums.present() + lost + sums.dropped, sums.raised);
    let error = compress_at(&path).expect_err("a damaged chunk").to_string();
    assert!(error.contains("checksum"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    let files = std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(files, 1, "nothing is left of the attempt");
}

#[test]
fn a_recording_with_a_maximum_size_is_compressed_as_it_is_written() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut options = small_pages(scratch.path(), 1 << 20);
    options.compression = Compression::Later;
    options.max_file_bytes = Some(1 << 30);
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    (0..EVENTS).for_each(|number| recorder.raise(&mark, (number,)));
    let path = recorder.finish().path;
    let (of_rows, of_columns) = kinds(&path);
    assert!(of_rows == 0 && of_columns > 2, "{of_rows}, {of_columns}");
}
