//! Finds the inputs at the paths of a user.

use super::file::FileAt;
use crate::error::{MergeError, Result};
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
    /// Anchors of OTF2 archives.
    pub archives: Vec<PathBuf>,
    /// Traces of the Paraver format.
    pub paraver: Vec<PathBuf>,
    /// Files that are neither, or cannot be read.
    pub rejected: Vec<RejectedInput>,
}

impl Found {
    /// Returns the trace, if nothing else was found.
    pub fn only_trace(&self) -> Option<&Path> {
        let has_others =
            !self.recordings.is_empty() || !self.archives.is_empty() || !self.paraver.is_empty();
        match &self.traces[..] {
            [only] if !has_others => Some(only),
            _ => None,
        }
    }
}

/// Finds inputs among files and directories. In a directory, these are the files named `*.annals` (and `*.annals-live`
/// of killed processes) except `skip`, which is the output. In a directory without them, these are
/// archives (`*.otf2`), or else traces of the Paraver format (`*.prv`, `*.prv.gz`).
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
            // An archive whose anchor is missing is listed under the anchor's name.
            Err(_) if crate::otf2::anchor_for(path).is_some() => {
                if seen.insert(path.clone()) {
                    found.archives.push(path.clone());
                }
                continue;
            }
            Err(error) => return Err(io(error)),
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
                files = anchors_in(path).map_err(io)?;
            }
            if files.is_empty() {
                files = crate::paraver::traces_in(path).map_err(io)?;
            }
            if files.is_empty() {
                let anchors = archives_without_anchor(path).map_err(io)?;
                if !anchors.is_empty() {
                    let new = anchors
                        .into_iter()
                        .filter(|anchor| seen.insert(anchor.clone()));
                    found.archives.extend(new);
                    continue;
                }
            }
            files.sort();
            if files.is_empty() {
                return Err(MergeError::NoRecordings { path: path.clone() });
            }
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
            let identity = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            // Named itself, what the output will replace is read first.
            let is_output = metadata.is_dir() && skip.as_ref() == Some(&identity);
            if is_output || !seen.insert(identity) {
                continue;
            }
            if crate::otf2::is_anchor(&file) || crate::otf2::anchor_for(&file).is_some() {
                found.archives.push(file);
                continue;
            }
            if crate::paraver::is_trace(&file) {
                found.paraver.push(file);
                continue;
            }
            match kind_of(&file) {
                Ok(FileKind::Recording) => found.recordings.push(file),
                Ok(FileKind::Trace) => found.traces.push(file),
                Err(error) => found.rejected.push(RejectedInput {
                    why: match &error {
                        MergeError::Format { .. } if is_named_archive(&file) => {
                            "at byte 0: the anchor of an OTF2 archive expected".to_owned()
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

/// Returns the anchors of OTF2 archives that a directory has.
fn anchors_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "otf2")
            && file.is_file()
        {
            files.push(file);
        }
    }
    Ok(files)
}

/// Returns the anchors that archives in a directory should have, or the one that the directory is a part of.
fn archives_without_anchor(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    if let Some(anchor) = crate::otf2::anchor_for(directory) {
        return Ok(vec![anchor]);
    }
    let mut anchors = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_part = path.is_dir() || path.extension().is_some_and(|e| e == "def");
        let stem = if path.is_dir() {
            path.clone()
        } else {
            path.with_extension("")
        };
        let anchor = stem.with_added_extension("otf2");
        if is_part && stem.is_dir() && crate::otf2::anchor_for(&anchor).is_some() {
            anchors.push(anchor);
        }
    }
    anchors.sort();
    anchors.dedup();
    Ok(anchors)
}

fn is_named_archive(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "otf2")
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
