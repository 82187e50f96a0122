//! The libraries that the loader finds by name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::child;
use super::elf::{Elf, Machine};

/// A library.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Library {
    /// By which name programs ask for it.
    pub(crate) name: String,
    /// Its file.
    pub(crate) path: PathBuf,
}

/// The libraries for this processor.
#[derive(Clone, Default, Debug)]
pub(crate) struct Libraries {
    /// In the order in which the loader searches.
    pub(crate) all: Vec<Library>,
    /// Whether the loader's own list could be read.
    pub(crate) has_list: bool,
}

impl Libraries {
    /// Reads them: those of `LD_LIBRARY_PATH`, then those of the loader's list.
    pub(crate) fn read() -> Self {
        let mut libraries = Self::default();
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        for directory in std::env::split_paths(&path) {
            libraries.add_directory(&directory);
        }
        for program in ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"] {
            let answer = child::run(Command::new(program).arg("-p"), |_| {});
            if let Ok(answer) = answer
                && answer.is_success()
            {
                libraries.all.extend(parse_list(&answer.output));
                libraries.has_list = true;
                break;
            }
        }
        libraries
    }

    /// Adds the libraries that a directory has, if it can be read.
    pub(crate) fn add_directory(&mut self, directory: &Path) {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut found: Vec<Library> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let is_library = name.ends_with(".so") || name.contains(".so.");
                let path = entry.path();
                is_library.then_some(Library { name, path })
            })
            .collect();
        found.sort_unstable();
        self.all.extend(found);
    }

    /// Returns those whose names fit, without those that were found before by the same name.
    pub(crate) fn named(&self, fits: impl Fn(&str) -> bool) -> Vec<&Library> {
        let mut names = BTreeSet::new();
        let found = self.all.iter().filter(|library| fits(&library.name));
        found
            .filter(|library| names.insert(&library.name))
            .collect()
    }
}

/// Reads the list that `ldconfig -p` prints.
fn parse_list(text: &str) -> Vec<Library> {
    let flag = match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "AArch64",
        _ => "",
    };
    let one = |line: &str| {
        // `	libc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6`.
        let (left, path) = line.split_once(" => ")?;
        let (name, flags) = left.trim().split_once(" (")?;
        flags.contains(flag).then(|| Library {
            name: name.to_owned(),
            path: PathBuf::from(path.trim()),
        })
    };
    text.lines().filter_map(one).collect()
}

/// Reads a library's file. Returns `None` if it is none for this machine, or cannot be read.
pub(super) fn read(path: &Path) -> Option<Elf> {
    let (file, head) = open(path).ok()?;
    (Machine::of(&head)? == own_machine()?).then_some(())?;
    Elf::read(file).ok()
}

/// Opens a regular file, and returns its first bytes. Never waits, as for a pipe.
pub(super) fn open(path: &Path) -> std::io::Result<(File, Vec<u8>)> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut head = vec![0; 256];
    let length = file.read_at(&mut head, 0)?;
    head.truncate(length);
    Ok((file, head))
}

/// Returns for which machine this program was built.
pub(super) fn own_machine() -> Option<Machine> {
    let (_, head) = open(Path::new("/proc/self/exe")).ok()?;
    Machine::of(&head)
}

/// Returns the executable file that a name means: itself if it has a slash, otherwise the first one in `PATH`.
pub(crate) fn in_path(name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    // Without PATH, execvp(3) searches these.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
    places.find(|place| place.is_file() && is_executable(place))
}

/// Returns whether this process may execute a file.
pub(crate) fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read_for_this_processor() {
        let arch = match std::env::consts::ARCH {
            "aarch64" => "AArch64",
            _ => "x86-64",
        };
        let text = format!(
            "2 libs found in cache\n\tliba.so.1 (libc6,{arch}) => /lib/liba.so.1\n\tliba.so.1 (libc6) => /lib32/liba.so.1\n\
             \tbroken\n"
        );
        let found = parse_list(&text);
        if matches!(std::env::consts::ARCH, "x86_64" | "aarch64") {
            assert_eq!(found.len(), 1, "{found:?}");
        }
        assert_eq!(found[0].name, "liba.so.1");
        assert_eq!(found[0].path, Path::new("/lib/liba.so.1"));
    }
}
