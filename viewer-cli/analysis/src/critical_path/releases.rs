//! Releases, in a file: when which location could go on because of which other one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use annals_merger::{MergeError, Result};

/// Number of releases that are sorted in memory: so far may a release be out of place among those handed in.
const SORTED: usize = 1 << 16;
/// Bytes of a release in the file: time, location, cause.
const SIZE: usize = 16;
/// Number of releases that are read at a time.
const READ: usize = 1 << 12;

/// A moment from which on a location could go on, because another one had done what it waited for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Release {
    /// Trace time, nanoseconds.
    pub(super) at_ns: i64,
    /// Number of the location that waited.
    pub(super) location: u32,
    /// Number of the location for which it waited.
    pub(super) cause: u32,
}

impl Release {
    fn to_bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.location.to_le_bytes());
        bytes[12..].copy_from_slice(&self.cause.to_le_bytes());
        bytes
    }

    fn of_bytes(bytes: &[u8; SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            at_ns: i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            location: u32::from_le_bytes([i, j, k, l]),
            cause: u32::from_le_bytes([m, n, o, p]),
        }
    }
}

fn failed(source: io::Error) -> MergeError {
    let action =
        "keep the waits of the critical path in the directory for temporary files (TMPDIR)";
    MergeError::io(action, &std::env::temp_dir())(source)
}

/// Writes releases to a file without a name, in the order of their times.
#[derive(Debug)]
pub(super) struct ReleaseWriter {
    file: BufWriter<File>,
    sorted: BinaryHeap<Reverse<Release>>,
    count: u64,
    /// The first error.
    error: Option<io::Error>,
}

impl ReleaseWriter {
    /// # Errors
    /// If the directory for temporary files takes none.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            file: BufWriter::new(tempfile::tempfile().map_err(failed)?),
            sorted: BinaryHeap::new(),
            count: 0,
            error: None,
        })
    }

    pub(super) fn add(&mut self, release: Release) {
        self.sorted.push(Reverse(release));
        if self.sorted.len() > SORTED {
            self.write_first();
        }
    }

    fn write_first(&mut self) {
        let Some(Reverse(release)) = self.sorted.pop() else {
            return;
        };
        if self.error.is_some() {
            return;
        }
        match self.file.write_all(&release.to_bytes()) {
            Ok(()) => self.count += 1,
            Err(error) => self.error = Some(error),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If a release could not be written.
    pub(super) fn finish(mut self) -> Result<ReleasesBackward> {
        while !self.sorted.is_empty() {
            self.write_first();
        }
        if let Some(error) = self.error {
            return Err(failed(error));
        }
        let file = self.file.into_inner();
        Ok(ReleasesBackward {
            file: file.map_err(|error| failed(error.into_error()))?,
            before: self.count,
            read: Vec::new(),
        })
    }
}

/// Reads releases from the last to the first.
#[derive(Debug)]
pub(super) struct ReleasesBackward {
    file: File,
    /// Number of releases that are not read yet.
    before: u64,
    /// Releases that were read.
    read: Vec<Release>,
}

impl ReleasesBackward {
    /// Returns the next release without taking it. `None` at the beginning.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn peek(&mut self) -> Result<Option<Release>> {
        if self.read.is_empty() && self.before > 0 {
            let count = self.before.min(READ as u64);
            self.before -= count;
            let mut bytes = vec![0; count as usize * SIZE];
            let start = SeekFrom::Start(self.before * SIZE as u64);
            self.file.seek(start).map_err(failed)?;
            self.file.read_exact(&mut bytes).map_err(failed)?;
            let (releases, _) = bytes.as_chunks();
            self.read.extend(releases.iter().map(Release::of_bytes));
        }
        Ok(self.read.last().copied())
    }

    /// Drops the release that [`ReleasesBackward::peek`] returned.
    pub(super) fn skip(&mut self) {
        self.read.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_the_last_to_the_first() {
        let count = (SORTED + 3 * READ + 7) as i64;
        let mut writer = ReleaseWriter::new().expect("a file");
        for number in 0..count {
            // Each pair in the wrong order.
            let at_ns = number ^ 1;
            writer.add(Release {
                at_ns,
                location: at_ns as u32 * 3,
                cause: u32::MAX - at_ns as u32,
            });
        }
        let mut releases = writer.finish().expect("a file");
        let mut expected: Vec<i64> = (0..count).map(|number| number ^ 1).collect();
        expected.sort_unstable();
        for at_ns in expected.into_iter().rev() {
            let release = releases.peek().expect("a file").expect("a release");
            assert_eq!(release.at_ns, at_ns);
            assert_eq!(release.location, at_ns as u32 * 3);
            assert_eq!(release.cause, u32::MAX - at_ns as u32);
            releases.skip();
        }
        assert_eq!(releases.peek().expect("a file"), None);
    }
}
