//! Traces of other formats as inputs. A conversion turns what it finds into recordings, and everything above this crate knows only these.
//!
//! [`Foreign::at`] recognises a trace by its files, [`Foreign::convert`] writes a recording for each of its processes:
//!
//! ```no_run
//! use std::path::Path;
//!
//! use annals_foreign::{Foreign, Options};
//!
//! let archive = Foreign::at(Path::new("traces.otf2")).expect("an archive");
//! let converted = archive.convert(Path::new("converted"), &Options::default())?;
//! for recording in converted {
//!     println!("{}: {} problems", recording.path.display(), recording.problems.len());
//! }
//! # Ok::<(), annals_foreign::ForeignError>(())
//! ```
//!
//! # Another format
//!
//! A format is a directory here and a line in `FORMATS` (`foreign.rs`): a type that implements `Format` (`conversion.rs`). Its `convert` makes a
//! [`RecordingBuilder`](annals_format::RecordingBuilder) for each process, defines what events refer to, and writes rows of
//! events, chunk by chunk, so that memory does not grow with the trace. `paraver` is the model of a format that is read from its start to its end, `otf2`
//! of one whose parts are read in any order, `kineto` of one whose events have to be sorted, and whose files are parts of one run. Problems that cost data are [`Problem`](annals_format::Problem)s with the offset and what was expected there; an error
//! is for what makes the whole trace unreadable.

mod compressed;
mod conversion;
mod directory;
mod error;
pub mod flight;
mod foreign;
pub mod kineto;
pub mod otf2;
pub mod paraver;

pub use conversion::{Converted, Options};
pub use directory::ConversionDirectory;
pub use error::{ForeignError, Result};
pub use foreign::Foreign;
