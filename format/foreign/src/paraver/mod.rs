//! Traces of the Paraver format: text lines of states, events and communications (*Paraver: Traces generation*, Barcelona
//! Supercomputing Center; the traces of Extrae). A trace is three files: records (`.prv`), names of states and event types
//! (`.pcf`), names of processors and threads (`.row`).
//!
//! Parsers work on single lines, not on files: the caller bounds the length of a line. The conversion makes a recording of each
//! task.

mod convert;
mod fields;
mod header;
mod labels;
mod lines;
mod names;
mod record;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::conversion::{Converted, Format, Options};
use crate::error::Result;

pub use fields::LineError;
pub use header::{Application, Header, Task};
pub use labels::{EventLabels, Labels, RowNames};
pub use record::{Communication, Events, Record, State, Thread, parse_record};

/// The first bytes of every trace.
pub const MAGIC: &[u8] = b"#Paraver ";

/// Traces of the Paraver format, by their file of records.
pub(crate) struct Traces;

impl Format for Traces {
    fn expected(&self, path: &Path) -> Option<&'static str> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_named = name.ends_with(".prv") || name.ends_with(".prv.gz");
        is_named.then_some("the first line of a Paraver trace")
    }

    fn at(&self, path: &Path) -> Option<PathBuf> {
        self.expected(path)?;
        let mut start = [0; MAGIC.len()];
        crate::compressed::open(path)
            .ok()?
            .read_exact(&mut start)
            .ok()?;
        (start == *MAGIC).then(|| path.to_owned())
    }

    fn in_directory(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let paths: io::Result<Vec<PathBuf>> = std::fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect();
        let each = paths?.into_iter();
        Ok(each.filter_map(|path| self.at(&path)).collect())
    }

    fn convert(&self, path: &Path, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
        convert::convert(path, into, options)
    }
}
