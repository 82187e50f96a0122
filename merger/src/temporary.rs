//! Names for what is in the making: nobody else's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes something beside `path` with `create`, under a name that nothing else has, and gives that name:
/// `<name>.<process id>.tmp`, with a number where another host's process, or one that was killed, has that.
///
/// `create` must fail with [`io::ErrorKind::AlreadyExists`] when there is something of the name.
///
/// # Errors
/// If it cannot be created.
pub fn create_beside<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    const MOST_ATTEMPTS: u32 = 10_000;
    let mut attempt = 1;
    loop {
        let pid = std::process::id();
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(match attempt {
            1 => format!(".{pid}.tmp"),
            _ => format!(".{pid}-{attempt}.tmp"),
        });
        let temporary = path.with_file_name(name);
        match create(&temporary) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < MOST_ATTEMPTS =>
            {
                attempt += 1;
            }
            made => return made.map(|made| (made, temporary)),
        }
    }
}

/// Makes an empty file beside `path`: see [`create_beside`]. `mode` are its rights, less those that the process's mask takes.
///
/// # Errors
/// If it cannot be created.
pub fn create_file_beside(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    create_beside(path, |temporary| {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(temporary)
    })
}

/// Writes a small file whole or not at all; devices and pipes as they are.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link's target is what its owner means.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(&path, bytes);
    }
    let (mut file, temporary) = create_file_beside(&path, 0o666)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| std::fs::rename(&temporary, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_of_the_same_number_left_is_neither_taken_nor_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.annals");
        let (_, first) = create_file_beside(&path, 0o600).unwrap();
        std::fs::write(&first, b"left").unwrap();
        let other = scratch.path().join("other");
        let pid = std::process::id();
        let link = scratch.path().join(format!("run.annals.{pid}-2.tmp"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let (_, third) = create_file_beside(&path, 0o600).unwrap();
        assert!(third.ends_with(format!("run.annals.{pid}-3.tmp")));
        assert_eq!(std::fs::read(&first).unwrap(), b"left");
        assert!(!other.exists());
        write_whole(&path, b"whole").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 4);
    }
}
