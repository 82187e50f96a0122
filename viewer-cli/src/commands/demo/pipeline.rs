//! One process of the demo: a walker finds files, readers read them, compressors compress them block by block, and a
//! completion source reports the files that are done, out of order.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annals_recorder::{
    ClockSpec, EventType, EventTypeSpec, Metric, Options, Recorder, RegionId, SourceId, SourceSpec,
    Text,
};
use anyhow::Context;
use walkdir::{DirEntry, WalkDir};

use super::{DIRECTORY, FILE_DONE, RANKS, TINY_RANK, Tally};

const READERS: usize = 2;
const COMPRESSORS: usize = 2;
const BLOCK: usize = 256 << 10;
/// Threads that record, the main thread aside: more than the tiny buffer has pages.
const THREADS: usize = 1 + READERS + COMPRESSORS + 1;
/// The completion source's clock counts microseconds in 24 bits, as small devices do.
const DEVICE_MAX_TICKS: u64 = (1 << 24) - 1;

/// A piece of a file on its way to a compressor.
enum Piece {
    Block { file: u64, bytes: Vec<u8> },
    End { file: u64, path: PathBuf },
}

/// A file that a compressor is done with.
struct Completion {
    tick: u64,
    path: PathBuf,
    bytes_in: u64,
    bytes_out: u64,
}

/// The instruments with which all threads of the process record.
struct Instruments {
    recorder: Recorder,
    walk: RegionId,
    read: RegionId,
    compress: RegionId,
    deliver: RegionId,
    work: RegionId,
    file_found: EventType<(Text, u64)>,
    file_failed: EventType<(Text, Text)>,
    file_done: EventType<(Text, u64, u64)>,
    queue: Metric<u64>,
    completions: SourceId,
    started: Instant,
    queued: AtomicU64,
    unreadable: AtomicU64,
    /// Directories that rank 0 left out, by path.
    skipped: Mutex<Vec<String>>,
    all_here: Barrier,
}

impl Instruments {
    fn device_tick(started: Instant) -> u64 {
        started.elapsed().as_micros() as u64 & DEVICE_MAX_TICKS
    }

    fn start(output: &Path, rank: u32) -> anyhow::Result<Self> {
        let mut options = Options::from_env()?;
        options.directory = output.to_owned();
        options.rank = Some(rank);
        options.rank_count = Some(RANKS);
        options.run = Some("demo".to_owned());
        if rank == TINY_RANK {
            // The least there is: fewer pages than threads that record.
            options.buffer_bytes = 1;
        }
        let recorder = Recorder::start(&options)?;
        let started = Instant::now();
        let device = ClockSpec::readable("device", 1_000_000, move || Self::device_tick(started))
            .max_ticks(DEVICE_MAX_TICKS);
        let device = recorder.add_clock(&device)?;
        let completions = SourceSpec::unordered("completions")
            .description("files that are done, reported per compressor and in bursts")
            .clock(device);
        let here = |name: &str, line| recorder.add_region_at(name, file!(), line, "demo");
        Ok(Self {
            walk: here("walk", line!())?,
            read: here("read", line!())?,
            compress: here("compress", line!())?,
            deliver: here("deliver", line!())?,
            work: here("work", line!())?,
            file_found: recorder.add_event_type(
                &EventTypeSpec::new("file.found")
                    .description("the walker found a file")
                    .element("path")
                    .element_in("size", "bytes"),
            )?,
            file_failed: recorder.add_event_type(
                &EventTypeSpec::new("file.failed")
                    .description("a file could not be read")
                    .element("path")
                    .element("why"),
            )?,
            file_done: recorder.add_event_type(
                &EventTypeSpec::new(FILE_DONE)
                    .description("a file is compressed")
                    .element("path")
                    .element_in("bytes_in", "bytes")
                    .element_in("bytes_out", "bytes"),
            )?,
            queue: recorder.add_metric("queue.blocks", "blocks")?,
            completions: recorder.add_source(&completions)?,
            started,
            queued: AtomicU64::new(0),
            unreadable: AtomicU64::new(0),
            skipped: Mutex::default(),
            all_here: Barrier::new(THREADS),
            recorder,
        })
    }

    /// First step of each thread: records, then waits until all threads have done so.
    fn arrive(&self) {
        self.recorder.enter(self.work);
        self.all_here.wait();
    }

    fn depart(&self) {
        self.recorder.leave(self.work);
    }

    fn queue_changed(&self, by: i64) {
        let before = if by > 0 {
            self.queued.fetch_add(1, Ordering::Relaxed)
        } else {
            self.queued.fetch_sub(1, Ordering::Relaxed)
        };
        self.recorder
            .metric(&self.queue, before.wrapping_add_signed(by));
    }

    fn skip(&self, path: &Path) {
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.push(path.display().to_string());
    }

    fn failed(&self, path: &Path, why: &str) {
        self.unreadable.fetch_add(1, Ordering::Relaxed);
        let path = path.as_os_str().as_bytes();
        self.recorder
            .raise(&self.file_failed, (path, why.as_bytes()));
    }
}

fn is_skipped(entry: &DirEntry) -> bool {
    if entry.depth() == 0 || !entry.file_type().is_dir() {
        return false;
    }
    let name = entry.file_name().to_string_lossy();
    name == ".git"
        || name == "target"
        || name == DIRECTORY
        || name
            .strip_prefix(DIRECTORY)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Runs the process's share of the demo.
pub(super) fn run(directory: &Path, output: &Path, rank: u32) -> anyhow::Result<Tally> {
    let instruments = Arc::new(Instruments::start(output, rank)?);
    let own_output = output
        .canonicalize()
        .context("the output directory is gone")?;
    let (path_sender, path_receiver) = sync_channel::<(u64, PathBuf)>(64);
    let path_receiver = Arc::new(Mutex::new(path_receiver));
    let (done_sender, done_receiver) = channel::<(usize, Completion)>();
    let mut piece_senders = Vec::new();
    let mut threads = Vec::new();
    for number in 0..COMPRESSORS {
        let (sender, receiver) = sync_channel::<Piece>(16);
        piece_senders.push(sender);
        let instruments = Arc::clone(&instruments);
        let done = done_sender.clone();
        threads.push(spawn(&format!("compressor {number}"), move || {
            compress(&instruments, number, &receiver, &done);
            Tally::default()
        })?);
    }
    drop(done_sender);
    for number in 0..READERS {
        let instruments = Arc::clone(&instruments);
        let paths = Arc::clone(&path_receiver);
        let pieces = piece_senders.clone();
        threads.push(spawn(&format!("reader {number}"), move || {
            read(&instruments, &paths, &pieces);
            Tally::default()
        })?);
    }
    drop(piece_senders);
    {
        let instruments = Arc::clone(&instruments);
        threads.push(spawn("completions", move || {
            deliver(&instruments, &done_receiver)
        })?);
    }
    {
        let instruments = Arc::clone(&instruments);
        let directory = directory.to_owned();
        threads.push(spawn("walker", move || {
            walk(&instruments, &directory, &own_output, rank, &path_sender);
            Tally::default()
        })?);
    }
    let mut tally = Tally::default();
    for thread in threads {
        let part = thread
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
        tally.files += part.files;
        tally.bytes_in += part.bytes_in;
        tally.bytes_out += part.bytes_out;
    }
    let skipped = instruments.skipped.lock();
    tally.skipped = skipped.unwrap_or_else(PoisonError::into_inner).clone();
    tally.unreadable = instruments.unreadable.load(Ordering::Relaxed);
    instruments.recorder.finish();
    Ok(tally)
}

fn spawn(
    name: &str,
    work: impl FnOnce() -> Tally + Send + 'static,
) -> anyhow::Result<std::thread::JoinHandle<Tally>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder
        .spawn(work)
        .with_context(|| format!("cannot start the thread `{name}`"))
}

fn walk(
    instruments: &Instruments,
    directory: &Path,
    own_output: &Path,
    rank: u32,
    paths: &SyncSender<(u64, PathBuf)>,
) {
    instruments.arrive();
    let recorder = &instruments.recorder;
    let walk = recorder.region(instruments.walk);
    let is_own = |entry: &DirEntry| {
        entry.file_type().is_dir()
            && entry
                .path()
                .canonicalize()
                .is_ok_and(|path| path == own_output)
    };
    let takes = |entry: &DirEntry| {
        if is_skipped(entry) && rank == 0 {
            instruments.skip(entry.path());
        }
        !is_skipped(entry) && !is_own(entry)
    };
    let entries = WalkDir::new(directory)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(takes);
    // Every process walks all of it and takes its share.
    let mut number = 0_u64;
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                if rank == 0 {
                    let path = error.path().unwrap_or(directory).to_owned();
                    instruments.failed(&path, &error.to_string());
                }
                continue;
            }
        };
        if !entry.file_type().is_file() {
            continue;
        }
        number += 1;
        if number % u64::from(RANKS) != u64::from(rank) {
            continue;
        }
        let size = entry.metadata().map_or(0, |metadata| metadata.len());
        let path = entry.path().as_os_str().as_bytes();
        recorder.raise(&instruments.file_found, (path, size));
        if paths
            .send((number / u64::from(RANKS), entry.into_path()))
            .is_err()
        {
            break;
        }
    }
    drop(walk);
    instruments.depart();
}

fn read(
    instruments: &Instruments,
    paths: &Mutex<Receiver<(u64, PathBuf)>>,
    pieces: &[SyncSender<Piece>],
) {
    instruments.arrive();
    loop {
        let next = paths.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((file, path)) = next else { break };
        // All pieces of a file go to one compressor.
        let pieces = &pieces[(file % COMPRESSORS as u64) as usize];
        read_file(instruments, file, path, pieces);
    }
    instruments.depart();
}

fn read_file(instruments: &Instruments, file: u64, path: PathBuf, pieces: &SyncSender<Piece>) {
    let mut source = match File::open(&path) {
        Ok(source) => source,
        Err(error) => return instruments.failed(&path, &error.to_string()),
    };
    loop {
        let mut bytes = vec![0; BLOCK];
        let region = instruments.recorder.region(instruments.read);
        let outcome = source.read(&mut bytes);
        drop(region);
        match outcome {
            Ok(0) => break,
            Ok(count) => {
                bytes.truncate(count);
                instruments.queue_changed(1);
                if pieces.send(Piece::Block { file, bytes }).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The part that was read is compressed nevertheless; the event reports the error.
            Err(error) => {
                instruments.failed(&path, &error.to_string());
                break;
            }
        }
    }
    // The compressor is there until all readers are gone.
    let _ = pieces.send(Piece::End { file, path });
}

/// Counts what would be written.
#[derive(Default)]
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn compress(
    instruments: &Instruments,
    number: usize,
    pieces: &Receiver<Piece>,
    done: &Sender<(usize, Completion)>,
) {
    instruments.arrive();
    let recorder = &instruments.recorder;
    let encoder = || zstd::Encoder::new(Counter::default(), 3).expect("level 3 exists");
    let mut open: HashMap<u64, (zstd::Encoder<'static, Counter>, u64)> = HashMap::new();
    while let Ok(piece) = pieces.recv() {
        let _region = recorder.region(instruments.compress);
        match piece {
            Piece::Block { file, bytes } => {
                instruments.queue_changed(-1);
                let (encoder, bytes_in) = open.entry(file).or_insert_with(|| (encoder(), 0));
                *bytes_in += bytes.len() as u64;
                encoder.write_all(&bytes).expect("counting does not fail");
            }
            Piece::End { file, path } => {
                // An empty file has no block, but a frame.
                let (encoder, bytes_in) = open.remove(&file).unwrap_or_else(|| (encoder(), 0));
                let counter = encoder.finish().expect("counting does not fail");
                let completion = Completion {
                    tick: Instruments::device_tick(instruments.started),
                    path,
                    bytes_in,
                    bytes_out: counter.0,
                };
                let _ = done.send((number, completion));
            }
        }
    }
    instruments.depart();
}

/// Runs the completion source: keeps a queue per compressor and reports completions queue by queue, in bursts, so not
/// in the order in which they happened.
fn deliver(instruments: &Instruments, done: &Receiver<(usize, Completion)>) -> Tally {
    const BURST: usize = 16;
    instruments.arrive();
    let recorder = &instruments.recorder;
    let mut queues: Vec<Vec<Completion>> = (0..COMPRESSORS).map(|_| Vec::new()).collect();
    let mut tally = Tally::default();
    let mut is_open = true;
    while is_open {
        match done.recv_timeout(Duration::from_millis(20)) {
            Ok((number, completion)) => queues[number].push(completion),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => is_open = false,
        }
        while let Ok((number, completion)) = done.try_recv() {
            queues[number].push(completion);
        }
        let waiting: usize = queues.iter().map(Vec::len).sum();
        let oldest = queues
            .iter()
            .flatten()
            .map(|completion| completion.tick)
            .min();
        let now = Instruments::device_tick(instruments.started);
        let is_old = oldest.is_some_and(|tick| now.wrapping_sub(tick) & DEVICE_MAX_TICKS > 10_000);
        if waiting < BURST && is_open && !is_old {
            continue;
        }
        let _region = recorder.region(instruments.deliver);
        for completion in queues.iter_mut().flat_map(|queue| queue.drain(..)) {
            tally.files += 1;
            tally.bytes_in += completion.bytes_in;
            tally.bytes_out += completion.bytes_out;
            let path = completion.path.as_os_str().as_bytes();
            let values = (path, completion.bytes_in, completion.bytes_out);
            recorder.raise_at(
                instruments.completions,
                completion.tick,
                &instruments.file_done,
                values,
            );
        }
    }
    instruments.depart();
    tally
}
