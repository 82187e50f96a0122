//! Where parsers get their bytes: anything that can be read at an offset.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{FormatError, Result};

/// Bytes that can be read at any offset: a file, or a slice.
pub trait ReadAt: Send + Sync {
    /// Returns the current number of bytes; a file that is being written may grow.
    ///
    /// # Errors
    /// If the storage does not report its length.
    fn len(&self) -> Result<u64>;

    /// Returns whether there are no bytes.
    ///
    /// # Errors
    /// If the storage does not report its length.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// If the storage fails, or ends before the buffer is full.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;
}

/// Opens a file that can be read at any offset. Opening a pipe would wait for a writer, perhaps for ever.
///
/// # Errors
/// If it cannot be opened, or is a directory, a pipe or a device.
pub fn open_regular(path: &Path) -> std::io::Result<(File, Metadata)> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok((file, metadata));
    }
    let what = match () {
        () if metadata.is_dir() => "a directory",
        () if metadata.file_type().is_fifo() => "a pipe",
        () => "a device or socket",
    };
    let why = format!("it is {what}, not a file");
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
}

impl ReadAt for [u8] {
    fn len(&self) -> Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buffer.len());
        let Some(bytes) = self.get(start..end) else {
            return Err(FormatError::UnexpectedEnd {
                offset: <[u8]>::len(self) as u64,
                expected: "more bytes",
            });
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl ReadAt for File {
    fn len(&self) -> Result<u64> {
        let metadata = self.metadata();
        let metadata = metadata.map_err(|source| FormatError::Io {
            offset: 0,
            error: source,
        })?;
        Ok(metadata.len())
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = FileExt::read_exact_at(self, buffer, offset);
        read.map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => FormatError::UnexpectedEnd {
                offset,
                expected: "more bytes",
            },
            _ => FormatError::Io {
                offset,
                error: source,
            },
        })
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> Result<u64> {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }
}
