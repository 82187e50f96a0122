//! Traces of other formats, whatever their format is.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::conversion::{Converted, Format, Options};
use crate::error::Result;
use crate::{kineto, otf2, paraver};

/// All formats. Where a directory has traces of several, those of the first one are taken.
static FORMATS: [&dyn Format; 3] = [&otf2::Archives, &paraver::Traces, &kineto::Traces];

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

    /// Groups traces that are converted together: those of a format whose traces are parts of one run.
    pub fn grouped(traces: Vec<Self>) -> Vec<Vec<Self>> {
        let mut groups: Vec<Vec<Self>> = Vec::new();
        let mut joint = Vec::new();
        for trace in traces {
            match trace.format.is_joint() {
                true => joint.push(trace),
                false => groups.push(vec![trace]),
            }
        }
        // There is one such format.
        groups.extend(Some(joint).filter(|joint| !joint.is_empty()));
        groups
    }

    /// Converts the traces of a [group](Foreign::grouped) into recordings in an existing directory, one for each process.
    /// Returns those of each trace. Memory does not grow with the number of events: each thread has a few parts of some hundred kilobytes
    /// or, where events have to be sorted, of some megabytes.
    ///
    /// # Errors
    /// If a trace cannot be read at all, a recording cannot be written, or [`Options::progress`] says so. What was written until
    /// then is no recording.
    pub fn convert_all(
        group: &[Self],
        into: &Path,
        options: &Options<'_>,
    ) -> Vec<Result<Vec<Converted>>> {
        let paths: Vec<PathBuf> = group.iter().map(|trace| trace.path.clone()).collect();
        match group.first() {
            Some(first) => first.format.convert_all(&paths, into, options),
            None => Vec::new(),
        }
    }

    /// Converts a trace alone, like [`Foreign::convert_all`].
    ///
    /// # Errors
    /// Those of [`Foreign::convert_all`].
    pub fn convert(&self, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
        self.format.convert(&self.path, into, options)
    }
}
