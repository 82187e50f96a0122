//! Which files are dumps, and of which ranks.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::raw::MOST_RANKS;
use super::value::invalid;
use crate::error::{ForeignError, Result};

/// A file that should be the dump of a rank.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DumpFile {
    /// Its rank, from its name.
    pub rank: u32,
    /// What precedes the rank in its name.
    pub prefix: String,
    /// Where it is.
    pub path: PathBuf,
}

impl DumpFile {
    /// Returns the file as one of a rank. `None`: its name does not end with a number, but for an extension.
    fn new(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let stem = match name.rsplit_once('.') {
            Some((stem, extension)) if !extension.ends_with(|last: char| last.is_ascii_digit()) => {
                stem
            }
            _ => name,
        };
        let prefix = stem.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let rank = stem[prefix.len()..].parse().ok();
        let rank = rank.filter(|rank| u64::from(*rank) < MOST_RANKS)?;
        Some(Self {
            rank,
            prefix: prefix.to_owned(),
            path: path.to_owned(),
        })
    }
}

/// Returns whether a file begins as a dump does: with a pickle's protocol, or with a list or an object of JSON.
fn begins_as_dump(path: &Path) -> bool {
    let mut start = [0; 2];
    let file = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    file.is_ok() && matches!(start, [0x80, 2..=5] | [b'{' | b'[', _])
}

/// Returns the dumps that paths name: files, and those in a directory whose names differ in a number only, if one of them begins as a dump does.
/// `None` means that a path is something else.
///
/// # Errors
/// If a directory cannot be listed, or a file's name has no rank although it begins as a dump does.
pub fn dump_files(paths: &[PathBuf]) -> Result<Option<Vec<DumpFile>>> {
    let mut found = BTreeSet::new();
    for path in paths {
        let mut files = Vec::new();
        if path.is_dir() {
            let io = ForeignError::io("list", path);
            for entry in std::fs::read_dir(path).map_err(io)? {
                let path = entry.map_err(io)?.path();
                // A directory of recordings, whatever else is in it.
                if path.extension().is_some_and(|end| end == "annals") {
                    return Ok(None);
                }
                files.extend(DumpFile::new(&path).filter(|of| of.path.is_file()));
            }
            let prefixes: BTreeSet<String> = files
                .iter()
                .filter(|file| begins_as_dump(&file.path))
                .map(|file| file.prefix.clone())
                .collect();
            files.retain(|file| prefixes.contains(&file.prefix));
        } else if path.is_file() {
            let file = DumpFile::new(path);
            // Of several files, one may be empty or damaged.
            let is_dump = paths.len() > 1 || begins_as_dump(path);
            match file {
                Some(file) if is_dump => files.push(file),
                None if begins_as_dump(path) => {
                    let name = format!("`{}`", path.file_name().unwrap_or_default().display());
                    let error = invalid(0, "a name that ends with the rank of the dump", name);
                    return Err(ForeignError::format(path)(error));
                }
                _ => {}
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        found.extend(files);
    }
    Ok(Some(without_twins(found)))
}

/// Removes the JSON of a rank whose pickle is there as well, under the same name.
fn without_twins(files: BTreeSet<DumpFile>) -> Vec<DumpFile> {
    let mut kept: BTreeMap<(u32, PathBuf), DumpFile> = BTreeMap::new();
    for file in files {
        let is_json = file.path.extension().is_some_and(|end| end == "json");
        let stem = match is_json {
            true => file.path.with_extension(""),
            false => file.path.clone(),
        };
        match kept.entry((file.rank, stem)) {
            Entry::Occupied(_) if is_json => {}
            Entry::Occupied(mut other) => drop(other.insert(file)),
            Entry::Vacant(place) => drop(place.insert(file)),
        }
    }
    kept.into_values().collect()
}
