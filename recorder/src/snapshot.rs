//! Snapshots of a flight recorder: the content of its pages, as a separate recording.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use annals_format::{
    Cause, ChunkBuilder, CompressionLevel, Cumulative, Definition, DroppedRecord, EventTypeId,
    Property, RecordingId, StreamTotals, StringId,
};

use crate::builtin::PROCESS;
use crate::clock::reference_ns;
use crate::definer::Definer;
use crate::memory::PageCopy;
use crate::shared::Shared;
use crate::storage::{self, OwnFile, Storage};
use crate::stream::Stream;
use crate::sys;

/// The contents of a snapshot.
pub(crate) struct Request<'a> {
    /// Its number, from 1.
    pub(crate) number: u64,
    /// Its trigger.
    pub(crate) trigger: &'a str,
    /// When that was: reference clock, nanoseconds.
    pub(crate) trigger_ns: i64,
    /// Pages whose events are all older are left out: reference clock, nanoseconds.
    pub(crate) from_ns: i64,
}

/// Returns the path of a snapshot: next to the recording, a directory for each number, so that the
/// snapshots of several processes are found together and none is taken for the recording itself.
pub(crate) fn path(recording: &Path, number: u64) -> PathBuf {
    let directory = recording.parent().unwrap_or(Path::new("."));
    let name = recording.file_name().unwrap_or_default();
    directory.join(format!("snapshot-{number}")).join(name)
}

/// Writes a snapshot of these pages, by slot and oldest first. Returns its file, which has a number
/// after its name if there is one of that name already. Until it is whole, it has a name that no
/// reader takes for a recording. [`Syncer`] syncs it.
pub(crate) fn write(
    shared: &Shared,
    path: &Path,
    level: CompressionLevel,
    request: &Request<'_>,
    pages: &HashMap<usize, Vec<PageCopy>>,
) -> std::io::Result<PathBuf> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let (file, temporary) = Storage::create_temporary(path)?;
    let outcome = OwnFile::new(file)
        .and_then(|file| fill(shared, Box::new(file), level, request, pages))
        .and_then(|()| name(&temporary, path));
    if outcome.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    outcome
}

/// Renames a complete snapshot to its final name, with a number appended if an earlier program left
/// a snapshot of that name. No other process uses the name now: it contains the name of this
/// process's recording.
fn name(temporary: &Path, path: &Path) -> std::io::Result<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let names = (1..).map(|attempt| path.with_file_name(storage::numbered(&stem, attempt)));
    for path in names.take(storage::MOST_ATTEMPTS) {
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return std::fs::rename(temporary, &path).map(|()| path);
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// Syncs snapshots to disk, on a separate thread: the writer, which frees pages, never waits for a
/// disk.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    /// Snapshots that were written, in order. `None` as long as there were none.
    thread: Option<(Sender<std::io::Result<PathBuf>>, JoinHandle<()>)>,
}

impl Syncer {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            thread: None,
        }
    }

    /// Takes what writing a snapshot returned. The snapshot counts as written when it is on the
    /// disk.
    pub(crate) fn hand_over(&mut self, written: std::io::Result<PathBuf>) {
        if self.thread.is_none() {
            match self.start() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => return self.shared.note_snapshot(written.and(Err(error))),
            }
        }
        if let Some((sender, _)) = &self.thread {
            // The thread lives as long as the sender.
            let _ = sender.send(written);
        }
    }

    fn start(&self) -> std::io::Result<(Sender<std::io::Result<PathBuf>>, JoinHandle<()>)> {
        let (sender, receiver) = std::sync::mpsc::channel::<std::io::Result<PathBuf>>();
        let shared = Arc::clone(&self.shared);
        let run = move || {
            for written in receiver {
                let synced = written.and_then(|path| match sync(&path) {
                    Ok(()) => Ok(path),
                    // A file that may not be on the disk has no name.
                    Err(error) => std::fs::remove_file(&path).and(Err(error)),
                });
                shared.note_snapshot(synced);
            }
        };
        let builder = std::thread::Builder::new().name("annals-sync".to_owned());
        let thread = sys::with_signals_blocked(|| builder.spawn(run))?;
        Ok((sender, thread))
    }

    /// Waits until all snapshots are on the disk.
    pub(crate) fn finish(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

/// Syncs a snapshot, its directory, and the one that holds this.
fn sync(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()?;
    for directory in path.ancestors().skip(1).take(2) {
        let directory = match directory.as_os_str().is_empty() {
            true => Path::new("."),
            false => directory,
        };
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

fn fill(
    shared: &Shared,
    file: Box<OwnFile>,
    level: CompressionLevel,
    request: &Request<'_>,
    pages: &HashMap<usize, Vec<PageCopy>>,
) -> std::io::Result<()> {
    let id = RecordingId(sys::random_id());
    let mut storage = Storage::start(file, id, level)?;
    let (mut definitions, schema) = {
        let mut definer = Definer::lock(shared);
        // A stream that cannot be defined any more is left out below.
        let _ = definer.announce();
        (definer.definitions().clone(), definer.schema())
    };
    if let Some(process) = definitions.processes.get_mut(&PROCESS) {
        process.recording_id = id;
    }
    let properties = [
        ("snapshot", request.number.to_string()),
        ("trigger", request.trigger.to_owned()),
        ("trigger-reference-ns", request.trigger_ns.to_string()),
    ];
    for (key, value) in properties {
        let mut string = |text: &str| {
            let known = definitions.strings.iter().find(|(_, known)| *known == text);
            known.map(|(id, _)| *id).unwrap_or_else(|| {
                let last = definitions.strings.keys().next_back();
                let id = StringId::new(last.map_or(0, |last| last.get() + 1));
                definitions.add(Definition::String(id, text.to_owned()));
                id
            })
        };
        let property = Property {
            process: PROCESS,
            key: string(key),
            value: string(&value),
        };
        definitions.add(Definition::Property(property));
    }
    let mut totals = Vec::new();
    for stream in shared.streams.in_use() {
        if !definitions.streams.contains_key(&stream.id()) {
            continue;
        }
        let of_stream = if stream.overwrites() {
            let pages = pages.get(&stream.slot).map_or(&[][..], Vec::as_slice);
            write_stream(shared, &mut storage, &schema, stream, request, pages)
        } else {
            StreamTotals::new(stream.id())
        };
        totals.push(of_stream);
    }
    let is_whole = storage.finish(&definitions, &totals);
    match storage.failure() {
        Some(failure) if !is_whole => Err(std::io::Error::other(failure.to_owned())),
        _ => Ok(()),
    }
}

/// Writes one stream's chunks.
/// Returns its totals as of the end of these chunks.
fn write_stream(
    shared: &Shared,
    storage: &mut Storage,
    schema: &annals_format::Schema,
    stream: &Stream,
    request: &Request<'_>,
    pages: &[PageCopy],
) -> StreamTotals {
    let mut totals = StreamTotals::new(stream.id());
    totals.last_tick = stream.open_tick();
    for (event_type, counters, _) in shared.counters_of(stream) {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (suppressed, is_any) = (load(&counters.suppressed), load(&counters.raised) != 0);
        if is_any {
            let row = totals.row(event_type);
            row.suppressed = suppressed;
            for (cause, counter) in Cause::RECORDER.into_iter().zip(&counters.dropped) {
                row.dropped.set(cause, load(counter));
            }
        }
    }
    let mut before = Cumulative::default();
    let mut sequence = 0;
    let mut predecessor = Vec::new();
    for (index, page) in pages.iter().enumerate() {
        let mut builder = ChunkBuilder::new(stream.max_ticks());
        // Rows are written by this crate; what could not be read would be missing, and counted so.
        let _ = builder.push_rows(schema, page.base_tick, &page.rows);
        let (mut header, mut chunk) = builder.finish(stream.id());
        let next = pages.get(index + 1);
        let closed_ns = next.map_or_else(reference_ns, |next| next.opened_ns);
        if closed_ns < request.from_ns {
            for (event_type, count) in &header.counts {
                let row = totals.row(*event_type);
                row.add_loss(Cause::Overwritten, *count);
            }
            continue;
        }
        if header.event_count == 0 && header.dropped_count == 0 {
            continue;
        }
        if sequence == 0 {
            let records = overwritten_records(stream, &totals, header.first_tick);
            header.dropped_count = (header.dropped_count).saturating_add(
                records
                    .iter()
                    .map(|record| record.count)
                    .fold(0, u64::saturating_add),
            );
            let records = records.into_iter().map(|record| (0, record));
            chunk.dropped.splice(0..0, records);
        }
        header.sequence = sequence;
        header.open_reference_ns = page.opened_ns;
        header.close_reference_ns = closed_ns;
        header.before = before;
        header.predecessor_counts = std::mem::take(&mut predecessor);
        sequence += 1;
        for (event_type, count) in &header.counts {
            totals.row(*event_type).recorded += count;
        }
        before.recorded += header.event_count;
        before.dropped = before.dropped.saturating_add(header.dropped_count);
        before.raised = before.recorded.saturating_add(before.dropped);
        predecessor.clone_from(&header.counts);
        totals.inversions += header.inversions;
        totals.largest_lateness = totals.largest_lateness.max(header.largest_lateness);
        totals.last_tick = header.last_tick;
        let mut body = Vec::new();
        chunk.encode(&mut body);
        storage.append_chunk(&header, &body, chunk.content());
    }
    totals.close_tick = totals.last_tick;
    for row in &mut totals.rows {
        // The moment of the snapshot is what its events show.
        row.raised = row
            .recorded
            .saturating_add(row.dropped_sum())
            .saturating_add(row.suppressed);
    }
    totals
}

/// Returns dropped records for the events that a stream dropped before its first page.
pub(crate) fn overwritten_records(
    stream: &Stream,
    totals: &StreamTotals,
    to_tick: u64,
) -> Vec<DroppedRecord> {
    let rows = totals.rows.iter();
    let rows = rows.map(|row| (row.event_type, row.dropped.of(Cause::Overwritten)));
    rows.filter(|(_, count)| *count != 0)
        .map(|(event_type, count)| overwritten_record(stream, event_type, count, to_tick))
        .collect()
}

fn overwritten_record(
    stream: &Stream,
    event_type: EventTypeId,
    count: u64,
    to_tick: u64,
) -> DroppedRecord {
    DroppedRecord {
        event_type: Some(event_type),
        cause: Cause::Overwritten,
        count,
        is_lower_bound: false,
        cumulative: count,
        from_tick: stream.open_tick(),
        to_tick,
    }
}
