//! Traces of other formats, whatever their format is.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::conversion::{Converted, Format, Options};
use crate::error::Result;
use crate::{otf2, paraver};

/// All formats. Where a directory has traces of several, those of the first one are taken.
static FORMATS: [&dyn Format; 2] = [&otf2::Archives, &paraver::Traces];

/// A trace of another format.
#[derive(Clone)]
pub struct Foreign {
    path: PathBuf,
    format: &'static dyn Format,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Foreign").field(&self.path).finish()
    }
}

impl Foreign {
    /// Returns the trace that a path names: a file of it, or a directory that is one. `None`: it is of no format that is known
    /// here.
    pub fn at(path: &Path) -> Option<Self> {
        let mut each = FORMATS.iter();
        each.find_map(|format| {
            let path = format.at(path)?;
            let format = *format;
            Some(Self { path, format })
        })
    }

    /// Returns the traces in a directory: of the first format that it has any of.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn in_directory(directory: &Path) -> io::Result<Vec<Self>> {
        for format in FORMATS {
            let mut found = format.in_directory(directory)?;
            found.sort();
            if !found.is_empty() {
                let each = found.into_iter();
                return Ok(each.map(|path| Self { path, format }).collect());
            }
        }
        Ok(Vec::new())
    }

    /// Returns what a file has to be by its name, if that is the name of a trace of another format.
    pub fn expected(path: &Path) -> Option<&'static str> {
        FORMATS.iter().find_map(|format| format.expected(path))
    }

    /// Returns the path under which the trace is known.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Converts the trace into recordings in an existing directory, one for each process. Memory does not grow with the number of events:
    /// each thread has a few parts of some hundred kilobytes.
    ///
    /// # Errors
    /// If the trace cannot be read at all, a recording cannot be written, or [`Options::progress`] says so. What was written until
    /// then is no recording.
    pub fn convert(&self, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
        self.format.convert(&self.path, into, options)
    }
}
