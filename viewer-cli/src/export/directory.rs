//! A directory that an export writes: whole or not at all, as far as a file system can.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use annals_merger::create_beside;
use anyhow::bail;

use crate::file::not_written;

/// A directory in the making: what is in it has its names, and it has another one until it is
/// [finished](WholeDirectory::finish). Dropped before, nothing is left.
///
/// A directory that is new appears at once with all that is in it. One that is there stays, with its rights and what else
/// is in it: into it, what was made is moved one by one when all is whole, so that each is the old or the new one at any time.
pub(crate) struct WholeDirectory {
    /// What it is to be called: as it was said, and where that is.
    path: PathBuf,
    target: PathBuf,
    temporary: PathBuf,
    /// It is there: its entries are moved one by one.
    is_there: bool,
    is_complete: bool,
}

/// Whether something stands where a directory is to be that is not an empty one.
pub(crate) fn is_taken(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

impl WholeDirectory {
    /// Begins one.
    ///
    /// # Errors
    /// If it cannot be created; if something else has the name.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        // A link's target is what its owner means.
        let target = fs::canonicalize(path);
        let target = target.unwrap_or_else(|_| path.components().collect());
        if target.exists() && !target.is_dir() {
            bail!("{}: is there, and no directory", path.display());
        }
        let is_there = target.exists();
        let named = match is_there {
            true => target.join("export"),
            false => target.clone(),
        };
        let created = create_beside(&named, |path| fs::create_dir(path));
        let ((), temporary) = created.map_err(|error| not_written(path, &error))?;
        Ok(Self {
            path: path.to_owned(),
            target,
            temporary,
            is_there,
            is_complete: false,
        })
    }

    /// What it is to be called.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is made.
    pub(crate) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// If that fails. What was there stays; but where its entries are moved one by one, some of them may have been.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        let moved = match self.is_there {
            true => self.move_entries(),
            false => fs::rename(&self.temporary, &self.target),
        };
        if let Err(error) = moved {
            if self.is_there {
                bail!(
                    "{}: not everything could be moved there: {error}; what has its name is whole",
                    self.path.display()
                );
            }
            return Err(not_written(&self.path, &error));
        }
        self.is_complete = true;
        Ok(())
    }

    fn move_entries(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.temporary)? {
            let entry = entry?;
            fs::rename(entry.path(), self.target.join(entry.file_name()))?;
        }
        fs::remove_dir(&self.temporary)
    }
}

impl Drop for WholeDirectory {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_appears_as_a_whole_and_keeps_what_it_had() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let make = |name: &str| {
            let directory = WholeDirectory::create(&path).unwrap();
            fs::write(directory.temporary().join(name), name).unwrap();
            directory
        };
        drop(make("a"));
        assert_eq!(names(scratch.path()), Vec::<String>::new());
        // New; then by a link, an empty one; then one with entries.
        make("a").finish().unwrap();
        assert_eq!(names(&path), ["a"]);
        fs::remove_file(path.join("a")).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let directory = WholeDirectory::create(&link).unwrap();
        fs::write(directory.temporary().join("b"), "b").unwrap();
        directory.finish().unwrap();
        assert_eq!(names(&path), ["b"]);
        assert_eq!(names(scratch.path()), ["link", "out"]);
        let directory = make("c");
        fs::write(directory.temporary().join("b"), "new").unwrap();
        directory.finish().unwrap();
        assert_eq!(names(&path), ["b", "c"]);
        assert_eq!(fs::read(path.join("b")).unwrap(), b"new");
        drop(make("d"));
        assert_eq!(names(&path), ["b", "c"]);
        assert!(WholeDirectory::create(&path.join("b")).is_err());
        assert!(WholeDirectory::create(&scratch.path().join("no/such")).is_err());
    }
}
