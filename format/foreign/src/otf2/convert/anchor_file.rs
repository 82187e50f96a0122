//! Anchors: recognising them, finding them by names, and reading them, also damaged or missing ones.

use super::file::{open_file, problem_of};
use crate::error::{ForeignError, Result};
use crate::otf2::{Anchor, CHUNK_HEADER_LEN, LEAST_CHUNK, MOST_CHUNK, chunk_size_of};
use annals_format::{Problem, ReadAt};
use std::path::{Path, PathBuf};

/// Returns whether a file is the anchor of an archive.
pub fn is_anchor(path: &Path) -> bool {
    let mut bytes = [0; 7];
    let file = open_file(path);
    file.is_ok_and(|file| file.read_exact_at(0, &mut bytes).is_ok() && Anchor::is_one(&bytes))
}

/// Returns the path of a missing or invalid anchor, from a file or directory of its archive: for a name `NAME.otf2`
/// when `NAME.def` or files of events are in the same directory, and for a directory of files of events.
pub(crate) fn anchor_for(path: &Path) -> Option<PathBuf> {
    let is_named = path
        .extension()
        .is_some_and(|extension| extension == "otf2");
    if is_named && !path.is_dir() {
        let stem = path.with_extension("");
        let has_definitions = stem.with_added_extension("def").is_file();
        let has_files = has_definitions || !event_files(&stem).is_empty();
        return has_files.then(|| path.to_owned());
    }
    (path.is_dir() && !event_files(path).is_empty()).then(|| {
        let directory = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        directory.with_added_extension("otf2")
    })
}

/// Reads the anchor. When it is missing or damaged, what it does not say is what the archive's files show.
pub(crate) fn anchor_at(
    path: &Path,
    stem: &Path,
    problems: &mut Vec<Problem>,
) -> Result<(Anchor, Vec<u8>)> {
    let format = ForeignError::format(path);
    let mut bytes = Vec::new();
    let mut is_missing = false;
    match open_file(path) {
        Ok(file) => {
            let length = file.len().map_err(format)?.min(1 << 20);
            bytes.resize(length as usize, 0);
            file.read_exact_at(0, &mut bytes).map_err(format)?;
        }
        Err(_) if !path.exists() => is_missing = true,
        Err(error) => return Err(error),
    }
    let (mut anchor, has_sizes, error) = Anchor::salvage(&bytes).map_err(format)?;
    let Some(error) = error else {
        return Ok((anchor, bytes));
    };
    let mut what = match &error {
        _ if is_missing => "the anchor is missing".to_owned(),
        error => format!("the anchor is damaged ({error})"),
    };
    if !has_sizes {
        let events = chunk_size_in(&event_files(stem), true);
        let mut files = vec![stem.with_added_extension("def")];
        files.extend(
            event_files(stem)
                .iter()
                .map(|file| file.with_extension("def")),
        );
        let definitions = chunk_size_in(&files, false);
        // Files of one chunk each are read in whatever size they fit.
        anchor.event_chunk_size = events.unwrap_or(MOST_CHUNK);
        anchor.definition_chunk_size = definitions.unwrap_or(MOST_CHUNK);
        let shown = |size: Option<u64>| match size {
            Some(size) => format!("{size} bytes a chunk"),
            None => "one chunk a file".to_owned(),
        };
        what += &format!(
            ": by what the files show, events have {} and definitions {}",
            shown(events),
            shown(definitions)
        );
    }
    problems.push(problem_of(path, 0, bytes.len() as u64, what));
    Ok((anchor, bytes))
}

/// Returns the files of events that belong to an anchor, by their names.
pub(crate) fn event_files(stem: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(stem).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| location_of(path).is_some()).collect();
    files.sort();
    files
}

/// Returns the location that a file of events is of.
pub(crate) fn location_of(path: &Path) -> Option<u64> {
    let is_events = path.extension().is_some_and(|extension| extension == "evt");
    let name = path.file_stem().and_then(|name| name.to_str());
    let name = name.filter(|name| is_events && (*name == "0" || !name.starts_with('0')));
    name.and_then(|name| name.parse().ok())
}

/// Returns the size of chunks that files of one kind show: the longest that shows one.
fn chunk_size_in(files: &[PathBuf], is_of_events: bool) -> Option<u64> {
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut files: Vec<(u64, &PathBuf)> = files.iter().map(|path| (length(path), path)).collect();
    files.retain(|(length, _)| *length > LEAST_CHUNK);
    files.sort_by_key(|(length, path)| (std::cmp::Reverse(*length), *path));
    files.iter().take(16).find_map(|(length, path)| {
        let file = open_file(path).ok()?;
        let most = MOST_CHUNK + CHUNK_HEADER_LEN as u64 + 1;
        let mut start = vec![0; (*length).min(most) as usize];
        file.read_exact_at(0, &mut start).ok()?;
        chunk_size_of(&start, is_of_events)
    })
}
