//! What a format is here, and how its traces are converted.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::Problem;

use crate::error::{ForeignError, Result};

/// A format whose traces can be converted.
pub(crate) trait Format: Sync {
    /// Returns what a file of such a name has to be, for the message if it is not. `None`: the name says nothing.
    fn expected(&self, path: &Path) -> Option<&'static str>;

    /// Returns the path under which the trace is known that a path names, if it is one of this format. The path need not exist.
    fn at(&self, path: &Path) -> Option<PathBuf>;

    /// Returns the traces of this format in a directory, in order.
    fn in_directory(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// Converts a trace into recordings in an existing directory.
    fn convert(&self, path: &Path, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>>;

    /// Returns whether several traces of this format may be parts of one run, which are converted together.
    fn is_joint(&self) -> bool {
        false
    }

    /// Converts the parts of a run into recordings in an existing directory. Returns the result of each.
    fn convert_all(
        &self,
        paths: &[PathBuf],
        into: &Path,
        options: &Options<'_>,
    ) -> Vec<Result<Vec<Converted>>> {
        let each = paths.iter();
        each.map(|path| self.convert(path, into, options)).collect()
    }
}

/// How a trace is converted.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Number of threads.
    pub jobs: usize,
    /// Whether only what the heads of chunks say is wanted: definitions, counts and losses. The events of the recordings cannot be read
    /// then. Formats that know these only after they have converted all convert all.
    pub is_heads_only: bool,
    /// Of traces that do not say their ranks: the pattern of the files' names, with `{rank}` for the rank and `*` for any text.
    pub rank_pattern: Option<&'a str>,
    /// Whether all arguments of events are kept, of formats that have more than matter to most.
    pub keeps_arguments: bool,
    /// Called with the number of bytes that were converted since the last call; can stop the conversion.
    pub progress: &'a (dyn Fn(u64) -> ControlFlow<()> + Sync),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            is_heads_only: false,
            rank_pattern: None,
            keeps_arguments: false,
            progress: &|_| ControlFlow::Continue(()),
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("jobs", &self.jobs)
            .field("is_heads_only", &self.is_heads_only)
            .finish_non_exhaustive()
    }
}

impl Options<'_> {
    /// Reports bytes.
    pub(crate) fn report(&self, bytes: u64) -> Result<()> {
        match (self.progress)(bytes) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ForeignError::Stopped),
        }
    }
}

/// A recording that a conversion has written.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the files that it was made of.
    pub bytes: u64,
    /// Parts of these files that could not be used.
    pub problems: Vec<Problem>,
}

/// Continues an FNV-1a hash of 128 bits: the identity of a trace must be the same wherever and whenever it is read.
pub(crate) fn digest(digest: u128, bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(digest, |sum, byte| {
        (sum ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

pub(crate) const DIGEST_START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
