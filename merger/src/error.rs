//! Errors that stop a merge. Problems that only cost data are in the [`crate::Report`] instead.

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use annals_foreign::{ConversionDirectory, ForeignError};
use annals_format::{FormatError, StreamId};

/// The result of merging or opening.
pub type Result<T, E = MergeError> = std::result::Result<T, E>;

/// Why inputs could not be opened or the output not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The system refused.
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
    /// An output could not be written.
    #[error(transparent)]
    Output(#[from] crate::whole_file::OutputError),
    /// A file is not what it should be.
    #[error("{path}: {error}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Where in it, what was expected and what was found. Part of the message, and therefore not its source.
        error: FormatError,
    },
    /// There is nothing to read.
    #[error("no recordings in {path}: a recording is a file named *.annals")]
    NoRecordings {
        /// Where they were looked for.
        path: PathBuf,
    },
    /// None of the inputs could be read.
    #[error("{}{first}", if *.count == 1 { String::new() } else { format!("none of {count} inputs can be read; the first: ") })]
    NothingReadable {
        /// How many inputs there were.
        count: usize,
        /// The error of the first one.
        first: String,
    },
    /// A recording that ends before the definition of its process, and so has no events.
    #[error("{path}: {why}")]
    NoProcess {
        /// The recording.
        path: PathBuf,
        /// Where it ends, and the likely reason.
        why: String,
    },
    /// A live file that cannot be recovered in place: parts of it cannot be read, and it would be removed with them.
    #[error("{live}: it has {what}: recording and live file stay as they are")]
    LiveFileUnread {
        /// The live file.
        live: PathBuf,
        /// The unreadable part.
        what: String,
    },
    /// The output names a recording.
    #[error("{path} is a recording: the trace would take its place; name another output")]
    OutputIsRecording {
        /// The output.
        path: PathBuf,
    },
    /// A part of an OTF2 archive would replace something else.
    #[error(
        "{path} exists already and belongs to no OTF2 archive: the archive would be this directory, a *.def and a *.otf2 \
         of the same name; name another output"
    )]
    OutputIsNoArchive {
        /// The file or directory.
        path: PathBuf,
    },
    /// The output names something that cannot be replaced by a file.
    #[error("{path} is a directory or a device: name a regular file as output")]
    OutputIsNoFile {
        /// The output.
        path: PathBuf,
    },
    /// A trace was found where recordings are expected.
    #[error("{path} is a merged trace; {advice}")]
    IsTrace {
        /// The trace.
        path: PathBuf,
        /// Advice to the user.
        advice: &'static str,
    },
    /// No overview of a trace can be written.
    #[error("{path} {why}")]
    NoOverview {
        /// The trace.
        path: PathBuf,
        /// Why, after the name.
        why: &'static str,
    },
    /// Something is missing, and the trace must be complete.
    #[error("the trace would be incomplete: {what}")]
    Incomplete {
        /// The missing part.
        what: String,
    },
    /// A slice was asked for that a merge does not have.
    #[error("there is no slice {number} of {of}: slices are numbered from 1")]
    NoSuchSlice {
        /// Which.
        number: u32,
        /// Of how many.
        of: u32,
    },
    /// Traces cannot be joined.
    #[error("{path}: {why}")]
    NoJoin {
        /// The trace.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A plan is of another merge.
    #[error("{path} is no plan for these inputs: {why}")]
    NoPlan {
        /// The plan.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A trace is compared with its recordings, and how their hosts are related is not known.
    #[error(
        "{path} was merged with a file of offsets between hosts: to compare it with its recordings, give that file again"
    )]
    OffsetsNotGiven {
        /// The trace.
        path: PathBuf,
    },
    /// The written events differ from those that were read: the merger or the machine is broken.
    #[error(
        "{path}: what was merged of stream {stream:?} is not what was read of it; no trace is written"
    )]
    Unproven {
        /// The input.
        path: PathBuf,
        /// The stream's number in the trace.
        stream: StreamId,
    },
    /// The filter cannot be used.
    #[error(transparent)]
    Filter(#[from] crate::filter::FilterError),
    /// A line of a file of clock offsets is none.
    #[error("{path}, line {line}: expected {expected}, found `{found}`")]
    Offsets {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What was expected there.
        expected: &'static str,
        /// What was found there.
        found: String,
    },
    /// A directory in which files with names are looked for cannot be read.
    #[error(transparent)]
    Symbols(#[from] annals_symbols::SymbolsError),
    /// No threads to work with.
    #[error("cannot start threads")]
    Threads {
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A trace of another format could not be converted: its recordings could not be written, perhaps.
    #[error(
        "cannot convert it to recordings in {place}, which takes up to a fifth of its bytes: set TMPDIR to a directory with room"
    )]
    NotConverted {
        /// Where they were to be, in words.
        place: String,
        /// Why not.
        #[source]
        source: ForeignError,
    },
    /// The consumer of the merged events stopped.
    #[error("stopped by the consumer")]
    Stopped,
}

impl MergeError {
    /// Returns the error of a conversion in a directory.
    pub(crate) fn of_foreign(error: ForeignError, conversion: &ConversionDirectory) -> Self {
        match error {
            ForeignError::Io {
                action,
                path,
                source,
            } => Self::Io {
                action,
                path,
                source,
            },
            ForeignError::Format { path, error } => Self::Format { path, error },
            ForeignError::Threads { source } => Self::Threads { source },
            ForeignError::Stopped => Self::Stopped,
            source => {
                let directory = conversion.path().parent().unwrap_or(conversion.path());
                let memory = conversion.memory_bytes();
                let memory =
                    memory.map(|bytes| format!(", a file system in memory of {bytes} bytes"));
                Self::NotConverted {
                    place: format!("{}{}", directory.display(), memory.unwrap_or_default()),
                    source,
                }
            }
        }
    }

    /// Returns a function that adds the path of the file to an error of the format.
    pub fn format(path: &Path) -> impl Fn(FormatError) -> Self + Copy {
        move |error| Self::Format {
            path: path.to_owned(),
            error,
        }
    }

    /// Returns a function that adds the operation and the path of its file to an I/O error.
    pub fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Returns the message without the path, for callers that print the path themselves.
    pub fn without_path(&self) -> String {
        match self {
            Self::Format { error, .. } => error.to_string(),
            Self::NoProcess { why, .. } => why.clone(),
            other => match other.source() {
                Some(cause) => cause.to_string(),
                None => other.to_string(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an error with all its sources, as programs print it.
    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            text.push_str(": ");
            text.push_str(&source.to_string());
            next = source.source();
        }
        text
    }

    #[test]
    fn a_chain_of_errors_names_each_cause_once() {
        let io = || io::Error::other("the disk is gone");
        let path = PathBuf::from("run.annals");
        let errors = [
            MergeError::Io {
                action: "read",
                path: path.clone(),
                source: io(),
            },
            MergeError::Format {
                path: path.clone(),
                error: FormatError::Io {
                    offset: 7,
                    error: io(),
                },
            },
            crate::whole_file::OutputError::not_written(&path, io()).into(),
            MergeError::Threads { source: io() },
        ];
        for error in errors {
            let text = chain(&error);
            assert_eq!(text.matches("the disk is gone").count(), 1, "{text}");
            assert!(!text.contains("--"), "a library names no option: {text}");
        }
    }
}
