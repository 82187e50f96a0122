//! Errors that stop a conversion. Problems that only cost data are among those of the recordings instead.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use annals_format::FormatError;

/// The result of a conversion.
pub type Result<T, E = ForeignError> = std::result::Result<T, E>;

/// Why a trace of another format could not be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignError {
    /// The system refused to open or read a file.
    #[error("cannot {action} {path}")]
    Io {
        /// The failed operation.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {error}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Where in it, what was expected and what was found. Part of the message, and therefore not its source.
        error: FormatError,
    },
    /// A recording could not be written: its file system is full, perhaps.
    #[error("cannot write {path}")]
    NotWritten {
        /// The recording.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// No threads to work with.
    #[error("cannot start threads")]
    Threads {
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// [`Options::progress`](crate::Options::progress) stopped it.
    #[error("stopped")]
    Stopped,
}

impl ForeignError {
    /// Returns a function that adds the path of the file to an error of the format.
    pub(crate) fn format(path: &Path) -> impl Fn(FormatError) -> Self + Copy {
        move |error| Self::Format {
            path: path.to_owned(),
            error,
        }
    }

    /// Returns a function that adds the operation and the path of its file to an I/O error.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Returns a function that adds the path of the recording to the error of a write.
    pub(crate) fn not_written(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::NotWritten {
            path: path.to_owned(),
            source,
        }
    }

    /// Returns the message without the path, for problems of a file that is named with them.
    pub(crate) fn without_path(&self) -> String {
        match self {
            Self::Format { error, .. } => error.to_string(),
            other => match other.source() {
                Some(cause) => cause.to_string(),
                None => other.to_string(),
            },
        }
    }
}
