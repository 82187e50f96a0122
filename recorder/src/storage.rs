//! The recording's file: blocks appended at a known offset; after a write fails, it stays failed.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use annals_format::{
    BlockKind, BlockWriter, ChunkHeader, CompressionLevel, Content, Definitions, FileHeader,
    FileKind, MAX_BODY_LEN, RecordingId, RecordingIndex, StreamTotals, encode_tail,
    put_plain_block,
};

/// Where the bytes of a recording go.
pub(crate) trait Sink: Send {
    /// Writes all bytes at an offset.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes all bytes after the given length.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Returns whether the written file can still be found by its name.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that is written to only while its descriptor is still its own: programs that close all
/// descriptors there are, as daemons do, get the same numbers again for files of theirs.
pub(crate) struct OwnFile {
    /// Some, but in `drop`.
    file: Option<File>,
    identity: Identity,
}

/// The identity of a file. The time of creation is part of it, because the number (inode) of a file that was removed is
/// soon that of a new one.
type Identity = (u64, u64, Option<SystemTime>);

fn identity_of(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino(), metadata.created().ok())
}

impl OwnFile {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            file: Some(file),
            identity: identity_of(&metadata),
        })
    }

    /// Returns the file, if it is still the one that was opened, and the number of its names.
    fn own(&self) -> io::Result<(&File, u64)> {
        let file = self.file.as_ref().ok_or_else(closed)?;
        let metadata = file.metadata().map_err(name_closed)?;
        if identity_of(&metadata) != self.identity {
            return Err(closed());
        }
        Ok((file, metadata.nlink()))
    }
}

fn closed() -> io::Error {
    io::Error::other("the program closed the recording's descriptor")
}

/// Names the cause of an error that a closed descriptor returns.
fn name_closed(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EBADF) => closed(),
        _ => error,
    }
}

impl Sink for OwnFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        // The program may close it after the check.
        self.own()?
            .0
            .write_all_at(bytes, offset)
            .map_err(name_closed)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.own()?.0.set_len(length).map_err(name_closed)
    }

    fn check(&self) -> io::Result<()> {
        if self.own()?.1 == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the recording was removed",
            ));
        }
        Ok(())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.own().is_err()
            && let Some(file) = self.file.take()
        {
            // Must not be closed: the descriptor belongs to no file, or to another one.
            let _ = file.into_raw_fd();
        }
    }
}

/// The file of a recording.
pub(crate) struct Storage {
    sink: Box<dyn Sink>,
    blocks: BlockWriter,
    offset: u64,
    index: RecordingIndex,
    buffer: Vec<u8>,
    status: Arc<StorageStatus>,
}

/// The state of the storage that any thread can read without waiting for a write.
#[derive(Debug, Default)]
pub(crate) struct StorageStatus {
    written: AtomicU64,
    failure: OnceLock<String>,
}

impl StorageStatus {
    /// Returns why writing failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Makes all later writes fail; the first reason is kept.
    pub(crate) fn fail(&self, why: impl Into<String>) {
        let _ = self.failure.set(why.into());
    }
}

/// How many names are tried.
pub(crate) const MOST_ATTEMPTS: usize = 10_000;

/// Returns a recording's file name: first the plain name, then with a number.
pub(crate) fn numbered(stem: &str, attempt: usize) -> String {
    match attempt {
        1 => format!("{stem}.annals"),
        _ => format!("{stem}-{attempt}.annals"),
    }
}

/// Creates the first of these files that is not there.
fn create_first(paths: impl Iterator<Item = PathBuf>) -> io::Result<(File, PathBuf)> {
    for path in paths.take(MOST_ATTEMPTS) {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o600).open(&path);
        match opened {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl Storage {
    /// Creates `<run>-<host>-<pid>.annals` in a directory, with a number appended if that exists.
    pub(crate) fn create_file(directory: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
        create_first((1..).map(|attempt| directory.join(numbered(stem, attempt))))
    }

    /// Creates `<name>.<pid>.tmp` next to the file that will get the name, with a number appended
    /// if a killed process left one.
    pub(crate) fn create_temporary(path: &Path) -> io::Result<(File, PathBuf)> {
        let (name, pid) = (path.file_name().unwrap_or_default(), std::process::id());
        create_first((1_usize..).map(|attempt| {
            let mut name = name.to_owned();
            name.push(match attempt {
                1 => format!(".{pid}.tmp"),
                _ => format!(".{pid}-{attempt}.tmp"),
            });
            path.with_file_name(name)
        }))
    }

    /// Starts a recording: writes the file header.
    pub(crate) fn start(
        sink: Box<dyn Sink>,
        id: RecordingId,
        level: CompressionLevel,
    ) -> io::Result<Self> {
        let mut storage = Self {
            sink,
            blocks: BlockWriter::new(level)?,
            offset: 0,
            index: RecordingIndex::default(),
            buffer: Vec::new(),
            status: Arc::default(),
        };
        let header = FileHeader::new(FileKind::Recording, id).encode();
        storage.sink.write_at(0, &header)?;
        storage.advance(header.len());
        Ok(storage)
    }

    /// Returns the status that all threads may read.
    pub(crate) fn status(&self) -> Arc<StorageStatus> {
        Arc::clone(&self.status)
    }

    /// Returns why writing failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.status.failure()
    }

    fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.status.written.store(self.offset, Ordering::Relaxed);
    }

    /// Looks whether the recording is still there; false when it is not, or an earlier write
    /// failed.
    pub(crate) fn check(&mut self) -> bool {
        if self.failure().is_none()
            && let Err(error) = self.sink.check()
        {
            self.status.fail(error.to_string());
        }
        self.failure().is_none()
    }

    /// Appends a block; false when this or an earlier write failed.
    fn append(&mut self, kind: BlockKind, head: &[u8], body: &[u8]) -> bool {
        self.append_with(kind, head, body, Content::default())
    }

    /// Appends a block with the given content; false when this or an earlier write failed.
    fn append_with(&mut self, kind: BlockKind, head: &[u8], body: &[u8], content: Content) -> bool {
        self.append_followed(kind, head, body, content, &[])
    }

    /// Appends a block and the bytes that follow it, in one write; false when this or an earlier
    /// write failed.
    fn append_followed(
        &mut self,
        kind: BlockKind,
        head: &[u8],
        body: &[u8],
        content: Content,
        follower: &[u8],
    ) -> bool {
        if self.failure().is_some() {
            return false;
        }
        if body.len() > MAX_BODY_LEN {
            let what = format!(
                "a block's body of {} bytes is more than a file may have",
                body.len()
            );
            self.status.fail(what);
            return false;
        }
        self.buffer.clear();
        self.blocks
            .write_with(kind, head, body, content, &mut self.buffer);
        self.buffer.extend_from_slice(follower);
        self.append_buffer()
    }

    /// Appends what is in the buffer; false when this write failed.
    fn append_buffer(&mut self) -> bool {
        match self.sink.write_at(self.offset, &self.buffer) {
            Ok(()) => {
                self.advance(self.buffer.len());
                true
            }
            Err(error) => {
                self.status.fail(error.to_string());
                false
            }
        }
    }

    /// Appends definition records.
    pub(crate) fn append_definitions(&mut self, records: &[u8]) -> bool {
        self.append(BlockKind::Definitions, &[], records)
    }

    /// Appends a chunk: its head, its encoded body and what the body has beyond its bytes.
    pub(crate) fn append_chunk(
        &mut self,
        header: &ChunkHeader,
        body: &[u8],
        content: Content,
    ) -> bool {
        let mut head = Vec::with_capacity(128);
        header.encode(&mut head);
        self.append_to_index(&head, |storage| {
            storage.append_with(BlockKind::Chunk, &head, body, content)
        })
    }

    /// Appends a row chunk, whose body are rows and what is before them.
    pub(crate) fn append_row_chunk(
        &mut self,
        header: &ChunkHeader,
        before_rows: &[u8],
        rows: &[u8],
    ) -> bool {
        let mut head = Vec::with_capacity(128);
        header.encode(&mut head);
        self.append_to_index(&head, |storage| {
            if storage.failure().is_some() {
                return false;
            }
            let buffer = &mut storage.buffer;
            buffer.clear();
            put_plain_block(BlockKind::RowChunk, &head, &[before_rows, rows], buffer);
            storage.append_buffer()
        })
    }

    /// Appends a chunk with this head, and notes it in the index.
    fn append_to_index(&mut self, head: &[u8], append: impl FnOnce(&mut Self) -> bool) -> bool {
        let offset = self.offset;
        let is_written = append(self);
        if is_written {
            self.index.add_chunk(offset, head);
            self.append_index();
        } else {
            // A head without its body would count events that are counted as dropped, too.
            let _ = self.sink.truncate(offset);
        }
        is_written
    }

    /// Appends an index block, if there is enough for one.
    fn append_index(&mut self) {
        let offset = self.offset;
        if let Some(body) = self.index.full_block()
            && self.append(BlockKind::Index, &[], &body)
        {
            self.index.block_written(offset);
        }
    }

    /// Appends the totals of streams that were closed.
    pub(crate) fn append_totals(&mut self, totals: &[StreamTotals]) -> bool {
        let mut body = Vec::new();
        totals.iter().for_each(|t| t.encode(&mut body));
        let is_written = self.append(BlockKind::Totals, &[], &body);
        if is_written {
            totals.iter().for_each(|t| self.index.add_totals(t));
        }
        is_written
    }

    /// Appends footer and tail, with the totals of the streams that were still open: the recording
    /// is complete.
    pub(crate) fn finish(&mut self, definitions: &Definitions, totals: &[StreamTotals]) -> bool {
        let offset = self.offset;
        totals.iter().for_each(|t| self.index.add_totals(t));
        let mut body = Vec::new();
        self.index.encode(definitions, &mut body);
        // In one write: a kill leaves both, or a footer that is cut.
        let tail = encode_tail(offset);
        self.append_followed(BlockKind::Footer, &[], &body, Content::default(), &tail)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;

    use annals_format::{LiveImage, Recording, TypeTotals};

    use super::*;
    use crate::{EventTypeSpec, Options, Recorder};

    /// The way a write fails.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Fault {
        /// Nothing is written.
        Full,
        /// A part is written.
        Short,
    }

    /// A file of which one write fails, and all later ones.
    struct Faulty {
        file: File,
        left: Arc<AtomicUsize>,
        fault: Fault,
    }

    impl Sink for Faulty {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            // The last place is that of the failed writes.
            let left = self.left.load(Ordering::Relaxed);
            if left <= 1 {
                self.left.store(0, Ordering::Relaxed);
                if self.fault == Fault::Short {
                    self.file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
                }
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.left.store(left - 1, Ordering::Relaxed);
            self.file.write_all_at(bytes, offset)
        }

        fn truncate(&mut self, _: u64) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }

    /// Records with one failing write.
    /// Returns the raised events by event type, and whether all writes succeeded.
    fn record(directory: &Path, writes: usize, fault: Fault) -> (BTreeMap<String, u64>, bool) {
        let mut options = Options::new(directory);
        options.page_bytes = Some(4096);
        options.buffer_bytes = 128 << 10;
        options.calibration_period = std::time::Duration::from_secs(60);
        let left = Arc::new(AtomicUsize::new(writes + 1));
        let sink = Arc::clone(&left);
        let recorder = Recorder::start_with(&options, move |file| {
            Ok(Box::new(Faulty {
                file,
                left: sink,
                fault,
            }))
        });
        let recorder = recorder.expect("only a recording's header must be written");
        let mut raised: BTreeMap<String, u64> = BTreeMap::new();
        for part in 0..3 {
            let spec = EventTypeSpec::new(format!("mark {part}")).element("number");
            let mark = recorder.add_event_type::<(u64,)>(&spec).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| (0..4000).for_each(|number| recorder.raise(&mark, (number,))));
            });
            raised.insert(format!("mark {part}"), 4000);
        }
        let status = recorder.finish();
        let is_whole = left.load(Ordering::Relaxed) > 0;
        assert_eq!(status.storage_failure.is_none(), is_whole);
        assert_eq!(status.raised, 12_000);
        (raised, is_whole)
    }

    #[test]
    fn whichever_write_fails_every_event_is_recorded_or_counted() {
        for fault in [Fault::Full, Fault::Short] {
            let failed = Cell::new(0);
            for writes in 1.. {
                let directory = tempfile::tempdir().unwrap();
                let (raised, is_whole) = record(directory.path(), writes, fault);
                let files = std::fs::read_dir(directory.path()).unwrap();
                let mut live = None;
                let mut file = Vec::new();
                for path in files.map(|file| file.unwrap().path()) {
                    let bytes = std::fs::read(&path).unwrap();
                    if path.extension().is_some_and(|e| e == "annals-live") {
                        live = Some(LiveImage::read(&bytes).unwrap());
                    } else {
                        file = bytes;
                    }
                }
                assert_eq!(live.is_some(), !is_whole);
                let recording = Recording::read(&file, live, |_| false).unwrap();
                let mut found: BTreeMap<String, u64> = BTreeMap::new();
                for contents in recording.streams.values() {
                    for row in &contents.totals.rows {
                        assert!(TypeTotals::is_balanced(row), "{writes}: {row:?}");
                        assert_eq!((row.skipped, row.truncated), (0, 0), "{writes}: {row:?}");
                        let event_type = &recording.definitions.event_types[&row.event_type];
                        let name = &recording.definitions.strings[&event_type.name];
                        *found.entry(name.clone()).or_default() += row.raised;
                    }
                }
                assert_eq!(found, raised, "{fault:?} at write {writes}");
                if is_whole {
                    break;
                }
                failed.set(failed.get() + 1);
            }
            assert!(failed.get() > 10, "a chunk for each page, and more");
        }
    }
}
