//! Archives as inputs: an archive becomes a recording for each of its processes.
//!
//! From the bottom up: [`open_regions`] knows which region a leave ends; [`scan`] reads a file of events once; [`world`] knows the ranks of
//! communicators, [`contexts`] calling contexts; [`numbering`] numbers definitions, [`event_types`] makes event types of what was found; [`file`] reads files of
//! definitions, [`anchor_file`] the anchor, [`markers`] the markers. [`archive`] holds the result, by
//! which [`decode`] turns parts of files into chunks. [`process`] plans the recordings, [`open`] puts all that together, and [`write`] writes
//! them. The two passes over the events are needed because an event type has an element for each additional value that any event
//! of the archive has.

mod anchor_file;
mod archive;
mod contexts;
mod decode;
mod event_types;
mod file;
mod markers;
mod numbering;
mod open;
mod open_regions;
mod process;
mod scan;
mod world;
mod write;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::conversion::{Converted, Format, Options};
use crate::error::{ForeignError, Result};

use anchor_file::anchor_for;
pub use anchor_file::is_anchor;

/// OTF2 archives, by their anchors.
pub(crate) struct Archives;

fn is_named(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "otf2")
}

impl Format for Archives {
    fn expected(&self, path: &Path) -> Option<&'static str> {
        is_named(path).then_some("the anchor of an OTF2 archive")
    }

    /// An archive whose anchor is missing is known under the anchor's name.
    fn at(&self, path: &Path) -> Option<PathBuf> {
        match path.is_file() && is_anchor(path) {
            true => Some(path.to_owned()),
            false => anchor_for(path),
        }
    }

    fn in_directory(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let paths: io::Result<Vec<PathBuf>> = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect();
        let paths = paths?;
        let anchors = paths.iter().filter(|path| is_named(path) && path.is_file());
        let anchors: Vec<PathBuf> = anchors.cloned().collect();
        Ok(match anchors.is_empty() {
            true => without_anchor(directory, &paths),
            false => anchors,
        })
    }

    fn convert(&self, path: &Path, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.jobs)
            .build();
        let pool = pool.map_err(|error| ForeignError::Threads {
            source: io::Error::other(error),
        })?;
        pool.install(|| {
            let (archive, processes) = open::open(path, options)?;
            write::write_all(&archive, processes, into, options)
        })
    }
}

/// Returns the anchors that archives in a directory should have, or the one that the directory is a part of.
fn without_anchor(directory: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    if let Some(anchor) = anchor_for(directory) {
        return vec![anchor];
    }
    let mut anchors = Vec::new();
    for path in paths {
        let is_part = path.is_dir() || path.extension().is_some_and(|e| e == "def");
        let stem = match path.is_dir() {
            true => path.clone(),
            false => path.with_extension(""),
        };
        let anchor = stem.with_added_extension("otf2");
        if is_part && stem.is_dir() && anchor_for(&anchor).is_some() {
            anchors.push(anchor);
        }
    }
    anchors.sort();
    anchors.dedup();
    anchors
}
