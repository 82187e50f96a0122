//! The recording's file: blocks appended at a known offset; after a write fails, it stays failed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, BlockWriter, ChunkHeader, CompressionLevel, Definitions, FileHeader, FileKind,
    RecordingId, RecordingIndex, StreamTotals, encode_tail,
};

/// Where the bytes of a recording go.
pub(crate) trait Sink: Send {
    /// Writes all bytes at an offset.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Whether what is written can still be found by anybody.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn check(&self) -> io::Result<()> {
        if self.metadata()?.nlink() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the recording was removed",
            ));
        }
        Ok(())
    }
}

/// The file of a recording.
pub(crate) struct Storage {
    sink: Box<dyn Sink>,
    blocks: BlockWriter,
    offset: u64,
    index: RecordingIndex,
    buffer: Vec<u8>,
    failure: Option<String>,
}

impl Storage {
    /// Creates `<run>-<host>-<pid>.annals` in a directory, with a number behind when that exists.
    pub(crate) fn create_file(directory: &Path, stem: &str) -> io::Result<(File, PathBuf)> {
        for attempt in 1_u32.. {
            let name = match attempt {
                1 => format!("{stem}.annals"),
                _ => format!("{stem}-{attempt}.annals"),
            };
            let path = directory.join(name);
            let mut options = OpenOptions::new();
            let opened = options.write(true).create_new(true).mode(0o600).open(&path);
            match opened {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 10_000 => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop ends by returning")
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
            failure: None,
        };
        let header = FileHeader::new(FileKind::Recording, id).encode();
        storage.sink.write_at(0, &header)?;
        storage.offset = header.len() as u64;
        Ok(storage)
    }

    /// Why writing failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Bytes written so far.
    pub(crate) const fn written(&self) -> u64 {
        self.offset
    }

    /// Looks whether the recording is still there; false when it is not, or an earlier write failed.
    pub(crate) fn check(&mut self) -> bool {
        if self.failure.is_none() {
            self.failure = self.sink.check().err().map(|error| error.to_string());
        }
        self.failure.is_none()
    }

    /// Appends a block; false when this or an earlier write failed.
    fn append(&mut self, kind: BlockKind, head: &[u8], body: &[u8]) -> bool {
        if self.failure.is_some() {
            return false;
        }
        self.buffer.clear();
        self.blocks.write(kind, head, body, &mut self.buffer);
        match self.sink.write_at(self.offset, &self.buffer) {
            Ok(()) => {
                self.offset += self.buffer.len() as u64;
                true
            }
            Err(error) => {
                self.failure = Some(error.to_string());
                false
            }
        }
    }

    /// Appends definition records.
    pub(crate) fn append_definitions(&mut self, records: &[u8]) -> bool {
        self.append(BlockKind::Definitions, &[], records)
    }

    /// Appends a chunk.
    pub(crate) fn append_chunk(&mut self, header: &ChunkHeader, body: &[u8]) -> bool {
        let offset = self.offset;
        let mut head = Vec::with_capacity(128);
        header.encode(&mut head);
        let is_written = self.append(BlockKind::Chunk, &head, body);
        if is_written {
            self.index.add_chunk(offset, &head);
        }
        is_written
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

    /// Appends footer and tail, with the totals of the streams that were still open: the recording is
    /// complete.
    pub(crate) fn finish(&mut self, definitions: &Definitions, totals: &[StreamTotals]) -> bool {
        let offset = self.offset;
        totals.iter().for_each(|t| self.index.add_totals(t));
        let mut body = Vec::new();
        self.index.encode(definitions, &mut body);
        if !self.append(BlockKind::Footer, &[], &body) {
            return false;
        }
        match self.sink.write_at(self.offset, &encode_tail(offset)) {
            Ok(()) => true,
            Err(error) => {
                self.failure = Some(error.to_string());
                false
            }
        }
    }
}
