//! Errors of the format.

use std::io;

/// The result of reading or writing the format.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

/// Why bytes could not be read as Annals data. Offsets count bytes from the start of the parser's
/// input; a caller that knows the file adds its name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// There are no bytes.
    #[error("the file is empty")]
    Empty,
    /// The bytes do not begin as a file of this format does.
    #[error("not {expected}: at byte 0, {found} is found")]
    Foreign {
        /// The expected item, with its article.
        expected: &'static str,
        /// How the bytes begin, as text or as hexadecimal numbers.
        found: String,
    },
    /// The bytes end before the item does.
    #[error("at byte {offset}: {expected} expected, but the data ends there")]
    UnexpectedEnd {
        /// Where the missing byte should have been.
        offset: u64,
        /// The item that was being read.
        expected: &'static str,
    },
    /// The bytes contradict the format.
    #[error("at byte {offset}: {expected} expected, found {found}")]
    Invalid {
        /// Position of the contradiction.
        offset: u64,
        /// The expected value.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
    /// The file is of a later major version.
    #[error(
        "the file is format version {found_major}.{found_minor}; this program reads {supported_major}.x: use a newer program"
    )]
    UnsupportedMajor {
        /// Major version of the file.
        found_major: u16,
        /// Minor version of the file.
        found_minor: u16,
        /// Major version of this code.
        supported_major: u16,
    },
    /// A checksum does not match its bytes.
    #[error("at byte {offset}: checksum of {what} is {found:08x}, {expected:08x} expected")]
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
    #[error("at byte {offset}: reading failed: {error}")]
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

    pub(crate) fn invalid(offset: usize, expected: &'static str, found: impl ToString) -> Self {
        Self::Invalid {
            offset: offset as u64,
            expected,
            found: found.to_string(),
        }
    }

    /// Returns the error with its offset counted from `base` bytes further out.
    pub(crate) fn shifted(self, base: u64) -> Self {
        match self {
            Self::Empty | Self::Foreign { .. } => self,
            Self::UnexpectedEnd { offset, expected } => Self::UnexpectedEnd {
                offset: offset.saturating_add(base),
                expected,
            },
            Self::Invalid {
                offset,
                expected,
                found,
            } => Self::Invalid {
                offset: offset.saturating_add(base),
                expected,
                found,
            },
            Self::Checksum {
                offset,
                what,
                expected,
                found,
            } => Self::Checksum {
                offset: offset.saturating_add(base),
                what,
                expected,
                found,
            },
            Self::Io { offset, error } => Self::Io {
                offset: offset.saturating_add(base),
                error,
            },
            other @ Self::UnsupportedMajor { .. } => other,
        }
    }
}
