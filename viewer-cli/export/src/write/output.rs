//! A file that an export writes: whole or not at all, compressed or not; or standard output.

use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use annals_merger::{OutputError, Replace, WholeFile};

enum Target {
    File(WholeFile),
    Gzip(Box<GzEncoder<WholeFile>>),
    Standard(BufWriter<Stdout>),
}

/// The output of an export.
pub(crate) struct Output {
    path: PathBuf,
    target: Option<Target>,
}

impl Output {
    /// Begins a file, compressed if its name ends in `.gz`; `-`: standard output.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(path: &Path, replace: Replace) -> anyhow::Result<Self> {
        let target = if path.as_os_str() == "-" {
            Target::Standard(BufWriter::with_capacity(1 << 16, io::stdout()))
        } else {
            let file = WholeFile::create(path, replace)?;
            match path.extension().is_some_and(|extension| extension == "gz") {
                true => Target::Gzip(Box::new(GzEncoder::new(file, Compression::fast()))),
                false => Target::File(file),
            }
        };
        Ok(Self {
            path: path.to_owned(),
            target: Some(target),
        })
    }

    /// Returns what it is to be called.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what a failed write means.
    pub(crate) fn failed(&self, error: io::Error) -> OutputError {
        OutputError::not_written(&self.path, error)
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match self.write_all(bytes) {
            Ok(()) => Ok(()),
            // The reader has closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(error.into()),
            Err(error) => Err(self.failed(error).into()),
        }
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        match self.target.take() {
            Some(Target::File(file)) => Ok(file.finish()?),
            Some(Target::Gzip(file)) => {
                let file = file.finish();
                Ok(file.map_err(|error| self.failed(error))?.finish()?)
            }
            Some(Target::Standard(mut out)) => match out.flush() {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    Err(self.failed(error).into())
                }
                flushed => Ok(flushed?),
            },
            None => Ok(()),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.target {
            Some(Target::File(file)) => file.write_all(bytes),
            Some(Target::Gzip(file)) => file.write_all(bytes),
            Some(Target::Standard(out)) => out.write_all(bytes),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
