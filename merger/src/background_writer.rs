//! A file that a separate thread writes, so that the caller does not wait for the storage.

use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::stages::{self, Stage};
use crate::whole_file::WholeFile;

/// Bytes that are gathered for one write.
const GATHERED: usize = 1 << 20;

/// Writes a file in another thread. Dropped before it is [finished](BackgroundWriter::finish), it leaves nothing.
#[derive(Debug)]
pub(crate) struct BackgroundWriter {
    gathered: Vec<u8>,
    /// `None` means that the thread ends after what it has got.
    full: Option<SyncSender<Vec<u8>>>,
    /// Buffers that were written.
    written: Receiver<Vec<u8>>,
    /// `None` means that it has ended.
    thread: Option<JoinHandle<io::Result<WholeFile>>>,
}

impl BackgroundWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn new(mut file: WholeFile) -> io::Result<Self> {
        let (full, to_write) = sync_channel::<Vec<u8>>(1);
        let (done, written) = channel();
        // One buffer is filled while the other is written.
        let _ = done.send(Vec::new());
        let write = move || {
            for mut bytes in to_write {
                stages::during(Stage::Write, || file.write_all(&bytes))?;
                bytes.clear();
                bytes.shrink_to(4 * GATHERED);
                let _ = done.send(bytes);
            }
            Ok(file)
        };
        let thread = std::thread::Builder::new().name("writer".to_owned());
        Ok(Self {
            gathered: Vec::new(),
            full: Some(full),
            written,
            thread: Some(thread.spawn(write)?),
        })
    }

    /// Writes bytes, now or later.
    ///
    /// # Errors
    /// If these or earlier ones cannot be written.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() < GATHERED {
            return Ok(());
        }
        self.pass_on()
    }

    /// Passes what was gathered to the thread, as soon as the thread has written what it got the last time.
    fn pass_on(&mut self) -> io::Result<()> {
        let spare = self.written.recv();
        let (Ok(spare), Some(full)) = (spare, &self.full) else {
            return Err(self.end().err().unwrap_or_else(has_ended));
        };
        let gathered = std::mem::replace(&mut self.gathered, spare);
        match full.send(gathered) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.end().err().unwrap_or_else(has_ended)),
        }
    }

    /// Waits until the thread has written everything.
    fn end(&mut self) -> io::Result<WholeFile> {
        self.full = None;
        let thread = self.thread.take().ok_or_else(has_ended)?;
        match thread.join() {
            Ok(written) => written,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Writes the rest, and returns the file.
    ///
    /// # Errors
    /// If anything cannot be written.
    pub(crate) fn finish(mut self) -> io::Result<WholeFile> {
        self.pass_on()?;
        self.end()
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        // The file is removed before anything else happens.
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn has_ended() -> io::Error {
    io::Error::other("an earlier part of the file could not be written")
}

#[cfg(test)]
mod tests {
    use super::BackgroundWriter;
    use crate::whole_file::{OutputKind, Replace, WholeFile};

    #[test]
    fn the_file_has_all_bytes_in_their_order_or_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let begin = || {
            let file =
                WholeFile::create(&path, Replace::only_unless(OutputKind::TRACE, false)).unwrap();
            BackgroundWriter::new(file).unwrap()
        };
        let entries = || std::fs::read_dir(directory.path()).unwrap().count();
        let mut expected = Vec::new();
        let mut writer = begin();
        for length in [0_usize, 1, 3_000_000, 17, 900_000, 900_000, 1 << 20] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            writer.write_all(&bytes).unwrap();
            expected.extend(bytes);
        }
        writer.finish().unwrap().finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        std::fs::remove_file(&path).unwrap();

        let mut writer = begin();
        writer.write_all(&expected).unwrap();
        assert_eq!(entries(), 1);
        drop(writer);
        assert_eq!(entries(), 0);
    }

    #[test]
    fn an_error_of_the_thread_is_that_of_a_later_write() {
        let full = std::path::Path::new("/dev/full");
        let file = WholeFile::create(full, Replace::only_unless(OutputKind::TRACE, false)).unwrap();
        let mut writer = BackgroundWriter::new(file).unwrap();
        let bytes = vec![0; 3 << 20];
        let results = (0..10).map(|_| writer.write_all(&bytes));
        let error = results.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert!(writer.finish().is_err());
    }
}
