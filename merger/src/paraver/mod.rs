//! Traces of the Paraver format as inputs: each task becomes a recording in a temporary directory.

mod convert;
mod lines;
mod names;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Result;
use crate::input::recording::InputRecording;

pub(crate) use convert::open;

/// Bytes with which files of gzip begin.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns whether a file is a trace of this format, by its name and its first bytes.
pub(crate) fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".prv") && !name.ends_with(".prv.gz") {
        return false;
    }
    let mut start = [0; 9];
    let read = lines::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *annals_format::paraver::MAGIC
}

/// Returns the traces of this format in a directory.
pub(crate) fn traces_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let file = entry?.path();
        if is_trace(&file) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Opens the recordings that a conversion has written.
fn open_written(
    path: &Path,
    directory: tempfile::TempDir,
    files: &[PathBuf],
) -> Result<Vec<InputRecording>> {
    let directory = Arc::new(directory);
    let each = files.iter().map(|file| {
        let mut input = InputRecording::open(file)?;
        input.path = path.to_owned();
        input.directory = Some(directory.clone());
        Ok(input)
    });
    each.collect()
}
