//! Errors of the format.

use std::{fmt, io};

/// The result of reading or writing the format.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Why bytes could not be read as Annals data. Offsets count bytes from the start of the parser's
/// input; a caller that knows the file adds its name.
#[derive(Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// There are no bytes.
    Empty,
    /// The bytes do not begin as a file of this format does.
    Foreign {
        /// The expected item, with its article.
        expected: &'static str,
        /// How the bytes begin, as text or as hexadecimal numbers.
        found: String,
    },
    /// The bytes end before the item does.
    UnexpectedEnd {
        /// Where the missing byte should have been.
        offset: u64,
        /// The item that was being read.
        expected: &'static str,
    },
    /// The bytes contradict the format.
    Invalid {
        /// Position of the contradiction.
        offset: u64,
        /// The expected value.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
    /// The file is of a later major version.
    UnsupportedMajor {
        /// Major version of the file.
        found_major: u16,
        /// Minor version of the file.
        found_minor: u16,
        /// Major version of this code.
        supported_major: u16,
    },
    /// What a development version wrote, before the first release.
    Retired {
        /// Where it is.
        offset: u64,
        /// What it was, with its article.
        found: &'static str,
    },
    /// A checksum does not match its bytes.
    Checksum {
        /// Where the checksummed bytes start.
        offset: u64,
        /// Which bytes.
        what: &'static str,
        /// Checksum as stored.
        expected: u32,
        /// Checksum of the bytes as read.
        found: u32,
    },
    /// Reading from the storage failed.
    Io {
        /// Where the read started.
        offset: u64,
        /// The I/O error. Part of the message, and therefore not its source.
        error: io::Error,
    },
}

impl FormatError {
    /// Returns the error that the bytes are the start of a file of another kind.
    pub(crate) fn foreign(expected: &'static str, start: &[u8]) -> Self {
        let is_text = start.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let found = match std::str::from_utf8(start) {
            Ok(text) if is_text => format!("`{text}`"),
            _ => format!("{start:02x?}"),
        };
        Self::Foreign { expected, found }
    }

    /// Returns the error of bytes that are not what they should be.
    pub fn invalid(offset: usize, expected: &'static str, found: impl ToString) -> Self {
        Self::Invalid {
            offset: offset as u64,
            expected,
            found: found.to_string(),
        }
    }

    /// Returns where in the input the error is. `None` means the whole of it.
    const fn offset(&self) -> Option<u64> {
        match self {
            Self::UnexpectedEnd { offset, .. }
            | Self::Invalid { offset, .. }
            | Self::Retired { offset, .. }
            | Self::Checksum { offset, .. }
            | Self::Io { offset, .. } => Some(*offset),
            Self::Empty | Self::Foreign { .. } | Self::UnsupportedMajor { .. } => None,
        }
    }

    /// Returns the message to be printed next to `offset`: it contains the error's offset only if that is another one.
    pub(crate) fn message_at(&self, offset: u64) -> String {
        match self.offset() {
            Some(own) if own != offset => self.to_string(),
            _ => self.message(),
        }
    }

    /// Returns the message without the offset.
    fn message(&self) -> String {
        match self {
            Self::Empty => "the file is empty".to_owned(),
            Self::Foreign { expected, found } => {
                format!("not {expected}: at byte 0, {found} is found")
            }
            Self::UnexpectedEnd { expected, .. } => {
                format!("{expected} expected, but the data ends there")
            }
            Self::Invalid {
                expected, found, ..
            } => format!("{expected} expected, found {found}"),
            Self::UnsupportedMajor {
                found_major,
                found_minor,
                supported_major,
            } => format!(
                "the file is format version {found_major}.{found_minor}; this program reads {supported_major}.x: use a newer program"
            ),
            Self::Retired { found, .. } => {
                format!(
                    "{found} written by a development version of Annals: merge the recordings again"
                )
            }
            Self::Checksum {
                what,
                expected,
                found,
                ..
            } => {
                format!("checksum of {what} is {found:08x}, {expected:08x} expected")
            }
            Self::Io { error, .. } => format!("reading failed: {error}"),
        }
    }

    /// Returns the error with its offset counted from `base` bytes further out.
    pub fn shifted(mut self, base: u64) -> Self {
        if let Self::UnexpectedEnd { offset, .. }
        | Self::Invalid { offset, .. }
        | Self::Retired { offset, .. }
        | Self::Checksum { offset, .. }
        | Self::Io { offset, .. } = &mut self
        {
            *offset = offset.saturating_add(base);
        }
        self
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(offset) = self.offset() {
            write!(f, "at byte {offset}: ")?;
        }
        f.write_str(&self.message())
    }
}

impl std::error::Error for FormatError {}
