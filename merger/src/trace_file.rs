//! The file of a trace in the making: written beside its name, which it gets when it is whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Content, MAX_BODY_LEN, RegionStatistics,
};

use crate::error::{MergeError, Result};
use crate::temporary::create_file_beside;

/// The trace in the making.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    temporary: PathBuf,
    writer: BufWriter<File>,
    offset: u64,
    is_complete: bool,
}

impl TraceFile {
    /// A file beside this path, which gets the name when it is complete.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        // A link's target is what its owner means; a device or a pipe is not to be replaced.
        let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let path = resolved.as_path();
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            let path = path.to_owned();
            return Err(MergeError::OutputIsNoFile { path });
        }
        let created = create_file_beside(path, 0o666);
        let (file, temporary) = created.map_err(|source| MergeError::Io {
            action: "create",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            writer: BufWriter::with_capacity(1 << 20, file),
            offset: 0,
            is_complete: false,
        })
    }

    /// Bytes written so far.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        self.writer
            .write_all(bytes)
            .map_err(|source| MergeError::Io {
                action: "write",
                path: self.path.clone(),
                source,
            })
    }

    /// Writes a block that a trace has once; gives its place. `what` it is, for who reads the error.
    ///
    /// # Errors
    /// If it is larger than a block may be, or cannot be written.
    pub(crate) fn write_block(
        &mut self,
        (kind, what): (BlockKind, &str),
        head: &[u8],
        body: &[u8],
        level: CompressionLevel,
    ) -> Result<u64> {
        self.write_block_with((kind, what), head, body, Content::default(), level)
    }

    fn write_block_with(
        &mut self,
        (kind, what): (BlockKind, &str),
        head: &[u8],
        body: &[u8],
        content: Content,
        level: CompressionLevel,
    ) -> Result<u64> {
        let io = |source| MergeError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        };
        if body.len() > MAX_BODY_LEN {
            return Err(io(std::io::Error::other(format!(
                "{what} would take {} MiB, and a block of a trace holds {}",
                body.len().div_ceil(1 << 20),
                MAX_BODY_LEN >> 20
            ))));
        }
        let mut block = Vec::new();
        let mut writer = BlockWriter::new(level).map_err(io)?;
        writer.write_with(kind, head, body, content, &mut block);
        let offset = self.offset;
        self.write(&block)?;
        Ok(offset)
    }

    /// Writes the statistics of the trace's calls; gives their place.
    pub(crate) fn write_statistics(
        &mut self,
        statistics: &RegionStatistics,
        level: CompressionLevel,
    ) -> Result<u64> {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        statistics.encode_head(&mut head);
        statistics.encode(&mut body);
        let kind = (BlockKind::Statistics, "the statistics of regions");
        self.write_block_with(kind, &head, &body, statistics.content(), level)
    }

    /// Gives the trace its name; gives its length.
    pub(crate) fn complete(mut self) -> Result<u64> {
        let outcome = self
            .writer
            .flush()
            .and_then(|()| fs::rename(&self.temporary, &self.path));
        outcome.map_err(|source| MergeError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        })?;
        self.is_complete = true;
        Ok(self.offset)
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
