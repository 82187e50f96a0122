//! Results that go to a file: whole, or not at all. And files that are read at offsets.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use annals_format::{FormatError, ReadAt};
use annals_merger::create_file_beside;

/// Writes a file under a temporary name beside it and renames it when it is whole. Devices and pipes are
/// written to as they are.
///
/// # Errors
/// If it cannot be written: what was there before stays.
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write_all(bytes).map_err(|error| file.failed(&error))?;
    file.finish()
}

/// A file in the making. It has its name only when it is [finished](WholeFile::finish); dropped before, nothing is left.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// None: a device or a pipe.
    temporary: Option<PathBuf>,
    writer: BufWriter<File>,
}

/// What is said when a file cannot be written.
pub fn not_written(path: &Path, error: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!(
        "{}: cannot be written: {error}; nothing was changed",
        path.display()
    )
}

impl WholeFile {
    /// Begins a file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        // A link's target is what its owner means.
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let is_other = std::fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file());
        let opened = if is_other {
            let file = File::options().write(true).open(&target);
            file.map(|file| (file, None))
        } else {
            let created = create_file_beside(&target, 0o666);
            created.map(|(file, temporary)| (file, Some(temporary)))
        };
        let (file, temporary) = opened.map_err(|error| not_written(path, &error))?;
        Ok(Self {
            path: target,
            temporary,
            writer: BufWriter::with_capacity(1 << 20, file),
        })
    }

    /// What a failed write means.
    pub fn failed(&self, error: &dyn std::fmt::Display) -> anyhow::Error {
        not_written(&self.path, error)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If it cannot be written: what was there before stays.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let finished = self.writer.flush().and_then(|()| {
            let Some(temporary) = &self.temporary else {
                return Ok(());
            };
            let synced = self.writer.get_ref().sync_data();
            synced.or_else(|error| match error.kind() {
                io::ErrorKind::InvalidInput => Ok(()),
                _ => Err(error),
            })?;
            std::fs::rename(temporary, &self.path)
        });
        finished.map_err(|error| not_written(&self.path, &error))?;
        self.temporary = None;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// A file that is read at offsets.
pub(crate) struct At<'a>(pub(crate) &'a File);

impl ReadAt for At<'_> {
    fn len(&self) -> Result<u64, FormatError> {
        let metadata = self.0.metadata();
        let error = |source| FormatError::Io { offset: 0, source };
        metadata.map(|file| file.len()).map_err(error)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let error = |source| FormatError::Io { offset, source };
        self.0.read_exact_at(buffer, offset).map_err(error)
    }
}
