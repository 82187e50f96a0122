//! Where conversions are kept while a command needs them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// How the directories are called: then follows the number of the process that made one, and a random word.
const PREFIX: &str = "annals-converted-";
/// The file that is locked while its process lives. Locks hold also between processes that see other numbers of processes.
const LOCK: &str = "lock";

/// A directory for conversions, removed with its contents when it is dropped by the process that made it. One whose process was killed is removed by the next command
/// that makes one in the same place.
#[derive(Debug)]
pub struct ConversionDirectory {
    directory: TempDir,
    /// Locked as long as it is open.
    _lock: File,
    process: u32,
}

impl ConversionDirectory {
    /// Makes a directory in another one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(within: &Path) -> io::Result<Self> {
        remove_left(within);
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let directory = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(within)?;
        let lock = File::create_new(directory.path().join(LOCK))?;
        lock.lock()?;
        Ok(Self {
            directory,
            _lock: lock,
            process: std::process::id(),
        })
    }

    /// Makes a directory for conversions of a trace, where temporary files belong: in the directory that `TMPDIR` names, else in that of the trace,
    /// else in the system's.
    ///
    /// # Errors
    /// If it cannot be made anywhere.
    pub fn for_trace(trace: &Path) -> io::Result<Self> {
        let named = std::env::var_os("TMPDIR").filter(|name| !name.is_empty());
        if let Some(named) = named {
            return Self::new(Path::new(&named));
        }
        let beside = match trace.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Self::new(beside).or_else(|_| Self::new(&std::env::temp_dir()))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns how many bytes its file system has, if that is in memory (tmpfs). `None` otherwise, and if the system does not say it.
    pub fn memory_bytes(&self) -> Option<u64> {
        /// TMPFS_MAGIC of linux/magic.h.
        const TMPFS: i64 = 0x0102_1994;
        let found = rustix::fs::statfs(self.directory.path()).ok()?;
        let is_memory = found.f_type == TMPFS;
        is_memory.then(|| found.f_blocks.saturating_mul(found.f_bsize.unsigned_abs()))
    }
}

impl Drop for ConversionDirectory {
    fn drop(&mut self) {
        // A forked child has it, too; the files are its parent's.
        self.directory
            .disable_cleanup(self.process != std::process::id());
    }
}

/// Removes the directories of processes that were killed.
fn remove_left(within: &Path) {
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let number = name.and_then(|name| name.split_once('-')?.0.parse::<u32>().ok());
        if number.is_some_and(|number| is_left(&entry.path(), number)) {
            // One that another command removes is gone as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns whether the process that made a directory is gone. A directory that has just been made has no lock yet, or one that
/// is not held yet: its process is there.
fn is_left(directory: &Path, process: u32) -> bool {
    // The state after the command's name, field 2 (proc(5)): of a zombie nothing is left but its number.
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("Z", |(_, after)| after);
    if !state.starts_with('Z') {
        return false;
    }
    match File::open(directory.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_processes_that_are_gone_are_removed() {
        let within = tempfile::tempdir().expect("a directory");
        let ours = ConversionDirectory::new(within.path()).expect("a directory");
        // Numbers of processes have 22 bits at most (proc(5), pid_max).
        let gone = u32::MAX;
        let make = |name: String| {
            let path = within.path().join(name);
            fs::create_dir(&path).expect("a directory");
            path
        };
        let unlocked = make(format!("{PREFIX}{gone}-a"));
        File::create(unlocked.join(LOCK)).expect("a file");
        let without = make(format!("{PREFIX}{gone}-b"));
        let locked = make(format!("{PREFIX}{gone}-c"));
        let lock = File::create(locked.join(LOCK)).expect("a file");
        lock.lock().expect("a lock");
        let other = make("annals-converted".to_owned());
        let alive = make(format!("{PREFIX}{}-d", std::process::id()));
        let second = ConversionDirectory::new(within.path()).expect("a directory");
        for (path, is_there) in [
            (ours.path(), true),
            (second.path(), true),
            (&unlocked, false),
            (&without, false),
            (&locked, true),
            (&other, true),
            (&alive, true),
        ] {
            assert_eq!(path.exists(), is_there, "{}", path.display());
        }
        let path = ours.path().to_owned();
        drop(ours);
        assert!(!path.exists());
    }
}
