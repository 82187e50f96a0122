//! Overviews of traces without one. They are made when a picture first needs them, and kept in the user's cache. The trace and its
//! directory are never touched.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use annals_merger::{IndexOptions, InputTrace, MergeError, Reader, Result};
use sha2::{Digest as _, Sha256};

/// Bytes of the files that are kept.
const MOST_BYTES: u64 = 2 << 30;
/// How the files are called, after their key.
const SUFFIX: &str = ".annals";
const LOCK: &str = ".lock";

/// The directory of overviews.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OverviewCache {
    directory: PathBuf,
}

impl OverviewCache {
    /// Returns the user's: `annals` in the directory that `XDG_CACHE_HOME` names, else in `.cache` of the home directory (XDG Base
    /// Directory Specification). `None` if there is neither, or `ANNALS_CACHE` is `off`.
    pub fn of_user() -> Option<Self> {
        let named = |name| std::env::var_os(name).map(PathBuf::from);
        if named("ANNALS_CACHE").is_some_and(|value| value.as_os_str() == "off") {
            return None;
        }
        let cache = named("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let home = || named("HOME").filter(|path| path.is_absolute());
        let cache = cache.or_else(|| Some(home()?.join(".cache")))?;
        Some(Self::at(cache.join("annals")))
    }

    /// Returns the cache in a directory, which is made when it is needed.
    pub const fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the overview of a trace, which is made now if it is not there: `progress` gets the number of events read so far, and can stop
    /// that. Of several processes that ask, one makes it, and the others wait for it.
    ///
    /// # Errors
    /// If it cannot be made; [`MergeError::Stopped`].
    pub fn open(
        &self,
        trace: &Path,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Reader> {
        let input = InputTrace::open(trace)?;
        let key = key_of(&input).map_err(MergeError::io("read", trace))?;
        let failed = MergeError::io("make an overview in", &self.directory);
        let lock = self.lock(&key).map_err(failed)?;
        let path = self.directory.join(key + SUFFIX);
        let found = match open_overview(&path, &input) {
            Some(found) => found,
            None => {
                write_overview(trace, &path, progress)?;
                Reader::open(&path)?
            }
        };
        // What is used longest ago is removed first.
        let used = File::options().append(true).open(&path);
        let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        self.remove_oldest(&path);
        drop(lock);
        Ok(found)
    }

    /// Waits for the right to make a file.
    fn lock(&self, key: &str) -> io::Result<File> {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let path = self.directory.join(key.to_owned() + LOCK);
        let lock = File::options().create(true).append(true).open(path)?;
        lock.lock()?;
        Ok(lock)
    }

    /// Removes the files that were used longest ago, as long as there are too many bytes. `used` stays.
    fn remove_oldest(&self, used: &Path) {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let files = entries.filter_map(|entry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        });
        let mut files: Vec<(SystemTime, u64, PathBuf)> = files.collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, length, path) in files {
            if bytes <= MOST_BYTES {
                return;
            }
            let is_kept = path.as_path() == used || path.to_string_lossy().ends_with(LOCK);
            if !is_kept && fs::remove_file(&path).is_ok() {
                bytes -= length;
                // A process that waits for it has it open, and makes the file anew.
                let _ = fs::remove_file(path.with_extension(&LOCK[1..]));
            }
        }
    }
}

/// Opens the file with the overview of a trace. `None` if it is not there, is of another trace or of what the trace was earlier.
fn open_overview(path: &Path, trace: &InputTrace) -> Option<Reader> {
    let modified = |path: &Path| {
        fs::metadata(path)
            .and_then(|metadata| metadata.modified())
            .ok()
    };
    let found = InputTrace::open(path).ok()?;
    let (of, found) = (&trace.trace, &found.trace);
    let is_of_trace = modified(path) >= modified(&trace.path)
        && found.has_footer
        && found.problems.is_empty()
        && found.chunks.is_empty()
        && found.header.recording_id == of.header.recording_id
        && found.totals == of.totals;
    is_of_trace.then(|| Reader::open(path).ok()).flatten()
}

/// Opens the overview of a trace in a file, which is made if it does not have it.
///
/// # Errors
/// Those of [`OverviewCache::open`].
pub fn open_overview_file(
    trace: &Path,
    path: &Path,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Reader> {
    let input = InputTrace::open(trace)?;
    if let Some(found) = open_overview(path, &input) {
        return Ok(found);
    }
    write_overview(trace, path, progress)?;
    Reader::open(path)
}

fn write_overview(
    trace: &Path,
    path: &Path,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    let mut options = IndexOptions::new();
    options.with_events = false;
    options.write(trace, path, progress)?;
    Ok(())
}

/// Returns the key of a trace: of its file, and of what it says of itself.
fn key_of(trace: &InputTrace) -> io::Result<String> {
    let file = fs::metadata(&trace.path)?;
    let mut hasher = Sha256::new();
    for number in [file.dev(), file.ino(), file.len()] {
        hasher.update(number.to_le_bytes());
    }
    for number in [file.mtime(), file.mtime_nsec()] {
        hasher.update(number.to_le_bytes());
    }
    hasher.update(trace.trace.header.recording_id.0);
    for totals in &trace.trace.totals {
        hasher.update(totals.stream.get().to_le_bytes());
        hasher.update(totals.order_hash.unwrap_or_default().to_le_bytes());
    }
    let mut key = String::new();
    for byte in hasher.finalize().iter().take(16) {
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}
