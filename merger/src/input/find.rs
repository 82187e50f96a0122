//! Finds the inputs at the paths of a user.

use super::file::FileAt;
use crate::error::{MergeError, Result};
use annals_foreign::Foreign;
use annals_format::{FileHeader, FileKind, ReadAt};
use std::fs::{self};
use std::path::{Path, PathBuf};

/// An input that could not be used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RejectedInput {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub why: String,
}

/// The inputs at the paths of a user.
#[derive(Debug, Default)]
pub struct Found {
    /// Recordings.
    pub recordings: Vec<PathBuf>,
    /// Traces.
    pub traces: Vec<PathBuf>,
    /// Traces of other formats.
    pub foreign: Vec<Foreign>,
    /// Files that are neither, or cannot be read.
    pub rejected: Vec<RejectedInput>,
}

impl Found {
    /// Returns the trace, if nothing else was found.
    pub fn only_trace(&self) -> Option<&Path> {
        let has_others = !self.recordings.is_empty() || !self.foreign.is_empty();
        match &self.traces[..] {
            [only] if !has_others => Some(only),
            _ => None,
        }
    }
}

/// Finds inputs among files and directories. In a directory, these are the files named `*.annals` (and `*.annals-live`
/// of killed processes) except `skip`, which is the output. In a directory without them, these are
/// traces of another format.
///
/// # Errors
/// If a path does not exist or a directory cannot be listed.
pub fn find(paths: &[PathBuf], skip: Option<&Path>) -> Result<Found> {
    let mut found = Found::default();
    let skip = skip.and_then(|path| fs::canonicalize(path).ok());
    let mut seen = std::collections::BTreeSet::new();
    for path in paths {
        let io = MergeError::io("open", path);
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // An archive whose anchor is missing is there all the same.
            Err(error) => match Foreign::at(path) {
                Some(foreign) if seen.insert(path.clone()) => {
                    found.foreign.push(foreign);
                    continue;
                }
                Some(_) => continue,
                None => return Err(io(error)),
            },
        };
        let mut files = Vec::new();
        if metadata.is_dir() {
            for entry in fs::read_dir(path).map_err(io)? {
                let file = entry.map_err(io)?.path();
                if file.extension().is_some_and(|e| e == "annals") || is_live(&file) {
                    files.push(file);
                }
            }
            if files.is_empty() {
                let foreign = Foreign::in_directory(path).map_err(io)?;
                if foreign.is_empty() {
                    return Err(MergeError::NoRecordings { path: path.clone() });
                }
                let new = foreign
                    .into_iter()
                    .filter(|foreign| seen.insert(identity_of(foreign.path())));
                found.foreign.extend(new);
                continue;
            }
            files.sort();
        } else {
            files.push(path.clone());
        }
        for file in files {
            // A live file means the recording it belongs to.
            let file = if is_live(&file) && file.with_extension("annals").exists() {
                file.with_extension("annals")
            } else {
                file
            };
            let identity = identity_of(&file);
            // Named itself, what the output will replace is read first.
            let is_output = metadata.is_dir() && skip.as_ref() == Some(&identity);
            if is_output || !seen.insert(identity) {
                continue;
            }
            if let Some(foreign) = Foreign::at(&file) {
                found.foreign.push(foreign);
                continue;
            }
            match kind_of(&file) {
                Ok(FileKind::Recording) => found.recordings.push(file),
                Ok(FileKind::Trace) => found.traces.push(file),
                Err(error) => found.rejected.push(RejectedInput {
                    why: match (&error, Foreign::expected(&file)) {
                        (MergeError::Format { .. }, Some(expected)) => {
                            format!("at byte 0: {expected} expected")
                        }
                        _ => error.without_path(),
                    },
                    path: file,
                }),
            }
        }
    }
    Ok(found)
}

fn is_live(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "annals-live")
}

/// Returns the canonical path of a file, or the path itself if there is none.
fn identity_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

pub(crate) fn kind_of(path: &Path) -> Result<FileKind> {
    Ok(header_of(path)?.kind)
}

/// Returns whether a path is a file that begins as a recording, its live file, or a trace does. Pipes and devices are
/// not read.
pub fn is_annals(path: &Path) -> bool {
    header_of(path).is_ok()
}

pub(crate) fn header_of(path: &Path) -> Result<FileHeader> {
    let file = FileAt::open(path)?;
    let format = MergeError::format(path);
    let length = file
        .len()
        .map_err(format)?
        .min(annals_format::FILE_HEADER_LEN as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes).map_err(format)?;
    FileHeader::decode(&bytes).map_err(format)
}
