//! The lines of a file, which may be compressed.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::GZIP;

/// Longest line. Longer ones are skipped.
const MOST_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 1 << 18;

/// Largest ratio of decompressed to compressed bytes, beyond [`LEAST_MOST_BYTES`]. Lines of real traces, which all have other
/// times, become 5 to 30 times as long; gzip allows a thousand times.
const MOST_RATIO: u64 = 64;
/// Decompressed bytes that a compressed file may have, however short it is.
const LEAST_MOST_BYTES: u64 = 16 << 20;

/// The decompressed bytes of a file, as far as they are in proportion to the compressed ones.
struct Bounded<R> {
    inner: R,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wanted = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..wanted])?;
        self.left -= read as u64;
        if wanted == 0 && !buffer.is_empty() && self.inner.read(&mut [0])? != 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                format!(
                    "decompressed, it is longer than {} bytes, which is {MOST_RATIO} times its size and {} MiB: \
                     decompress it with gunzip if it is a trace all the same",
                    self.most,
                    LEAST_MOST_BYTES >> 20
                ),
            ));
        }
        Ok(read)
    }
}

/// Opens a file, and decompresses it if it is compressed.
pub(super) fn open(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    if file.fill_buf()?.starts_with(&GZIP) {
        let most = metadata.len().saturating_mul(MOST_RATIO);
        let most = most.saturating_add(LEAST_MOST_BYTES);
        return Ok(Box::new(Bounded {
            inner: MultiGzDecoder::new(file),
            left: most,
            most,
        }));
    }
    Ok(Box::new(file))
}

/// Reads lines one by one.
pub(super) struct Lines {
    file: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    /// Offset of the line in the decompressed file, bytes.
    pub(super) offset: u64,
    /// Offset of the next line.
    next: u64,
}

/// A line, or why it cannot be used.
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    TooLong,
}

impl Lines {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            file: BufReader::with_capacity(BUFFER_BYTES, open(path)?),
            line: Vec::new(),
            offset: 0,
            next: 0,
        })
    }

    /// Returns the next line without its end. `None` at the end of the file.
    ///
    /// # Errors
    /// If the file cannot be read or decompressed. Nothing follows then.
    pub(super) fn next(&mut self) -> std::io::Result<Option<Line<'_>>> {
        self.offset = self.next;
        self.line.clear();
        let mut is_too_long = false;
        loop {
            let bytes = self.file.fill_buf()?;
            if bytes.is_empty() {
                if self.offset == self.next {
                    return Ok(None);
                }
                break;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            is_too_long |= self.line.len() + taken > MOST_BYTES;
            if !is_too_long {
                self.line.extend_from_slice(&bytes[..taken]);
            }
            self.file.consume(taken);
            self.next += taken as u64;
            if end.is_some() {
                break;
            }
        }
        if is_too_long {
            return Ok(Some(Line::TooLong));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))))
    }
}
