//! The file of a trace during its creation: written in the same directory under a temporary name,
//! and renamed when it is complete.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Content, MAX_BODY_LEN, RegionStatistics,
};

use crate::background_writer::BackgroundWriter;
use crate::error::{MergeError, Result};
use crate::stages::{self, Stage};
use crate::whole_file::{OutputError, OutputKind, Replace, WholeFile};

/// Where its bytes go.
#[derive(Debug)]
enum Output {
    File(WholeFile),
    Thread(BackgroundWriter),
}

/// The trace under construction.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    path: PathBuf,
    output: Output,
    offset: u64,
}

impl TraceWriter {
    /// Begins the file of a trace. `force`: a file of another kind is replaced, too. With several jobs, a separate thread
    /// writes it.
    pub(crate) fn create(path: &Path, force: bool, jobs: usize) -> Result<Self> {
        // Readers need a file that they can read at offsets.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            let path = path.to_owned();
            return Err(MergeError::OutputIsNoFile { path });
        }
        let file = WholeFile::create(path, Replace::only_unless(OutputKind::TRACE, force))?;
        let path = file.path().to_owned();
        let output = match jobs {
            0 | 1 => Output::File(file),
            _ => {
                let thread = BackgroundWriter::new(file);
                Output::Thread(thread.map_err(|source| MergeError::Threads { source })?)
            }
        };
        Ok(Self {
            path,
            output,
            offset: 0,
        })
    }

    /// Returns the number of bytes written so far.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        let written = match &mut self.output {
            Output::File(file) => stages::during(Stage::Write, || file.write_all(bytes)),
            Output::Thread(thread) => thread.write_all(bytes),
        };
        written.map_err(|error| self.not_written(error))
    }

    fn not_written(&self, error: std::io::Error) -> MergeError {
        OutputError::not_written(&self.path, error).into()
    }

    /// Writes a block that a trace has once. Returns its offset. `what` names it in errors.
    ///
    /// # Errors
    /// If it is larger than a block may be, or cannot be written.
    pub(crate) fn write_block(
        &mut self,
        kind: BlockKind,
        what: &str,
        head: &[u8],
        body: &[u8],
        level: CompressionLevel,
    ) -> Result<u64> {
        self.write_block_with(kind, what, head, body, Content::default(), level)
    }

    fn write_block_with(
        &mut self,
        kind: BlockKind,
        what: &str,
        head: &[u8],
        body: &[u8],
        content: Content,
        level: CompressionLevel,
    ) -> Result<u64> {
        if body.len() > MAX_BODY_LEN {
            return Err(self.not_written(std::io::Error::other(format!(
                "{what} would take {} MiB, and a block of a trace holds {}",
                body.len().div_ceil(1 << 20),
                MAX_BODY_LEN >> 20
            ))));
        }
        let mut block = Vec::new();
        let mut writer = BlockWriter::new(level).map_err(|error| self.not_written(error))?;
        writer.write_with(kind, head, body, content, &mut block);
        let offset = self.offset;
        self.write(&block)?;
        Ok(offset)
    }

    /// Writes the statistics of the trace's calls. Returns their offset.
    pub(crate) fn write_statistics(
        &mut self,
        statistics: &RegionStatistics,
        level: CompressionLevel,
    ) -> Result<u64> {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        statistics.encode_head(&mut head);
        statistics.encode(&mut body);
        let (kind, what) = (BlockKind::Statistics, "the statistics of regions");
        self.write_block_with(kind, what, &head, &body, statistics.content(), level)
    }

    /// Finishes the file: the trace has its name then. Returns its length in bytes.
    pub(crate) fn complete(self) -> Result<u64> {
        let file = match self.output {
            Output::File(file) => file,
            Output::Thread(thread) => {
                let written = thread.finish();
                written.map_err(|error| OutputError::not_written(&self.path, error))?
            }
        };
        file.finish()?;
        Ok(self.offset)
    }
}
