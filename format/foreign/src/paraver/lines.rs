//! The lines of a file, which may be compressed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::compressed::{BUFFER_BYTES, open};

/// Longest line. Longer ones are skipped.
const MOST_BYTES: usize = 1 << 20;

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
