//! Errors when a recorder is set up. The event path reports no errors: there, an error costs
//! events, which are counted.

use std::io;
use std::path::PathBuf;

/// The result of setting something up.
pub type Result<T, E = RecorderError> = std::result::Result<T, E>;

/// Why something could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecorderError {
    /// The recording could not be created or written.
    #[error("cannot {action} {path}")]
    Io {
        /// The failed operation.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The underlying I/O error.
        #[source]
        source: io::Error,
    },
    /// A setting has no usable value.
    #[error("{setting} is {expected}, not `{found}`")]
    Setting {
        /// Its environment variable; `a rule` or `a trigger` if one was read without a variable.
        setting: &'static str,
        /// The expected value.
        expected: &'static str,
        /// The actual value.
        found: String,
    },
    /// The recorder was finished; nothing can be added any more.
    #[error("the recording is finished")]
    Finished,
    /// A recording of a forked child was to be started, but this process is none.
    #[error("this process is no forked child of the recorder's process")]
    NotForked,
    /// The calling thread is in a clock function that the program passed to a recorder. Nothing can
    /// be added there.
    #[error("a clock's function cannot define anything")]
    InClock,
    /// A name is taken by a different definition.
    #[error("event type `{name}` is already defined with other elements or another role")]
    Conflict {
        /// The name.
        name: String,
    },
    /// A definition contradicts itself.
    #[error("event type `{name}`: {why}")]
    Definition {
        /// Name of what was to be defined.
        name: String,
        /// The problem.
        why: String,
    },
    /// A snapshot could not be written.
    #[error("cannot write a snapshot: {why}")]
    Snapshot {
        /// The underlying I/O error, as text.
        why: String,
    },
    /// No room is left in the buffer for another definition, counter or stream.
    #[error("no room for more {what}: increase the buffer (ANNALS_BUFFER)")]
    Full {
        /// Of what there are too many.
        what: &'static str,
    },
    /// A number does not name anything that was added to this recorder.
    #[error("{what} {number} does not exist in this recorder")]
    Unknown {
        /// The kind of object.
        what: &'static str,
        /// Its number.
        number: u32,
    },
}
