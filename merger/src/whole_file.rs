//! Files and directories that get their names only when they are whole and synced to disk.
//!
//! A regular file is written under a temporary name in the same directory, synced and renamed; then its directory is
//! synced. So a name always has the old content or the new one, after a crash of the machine too. Devices and pipes are
//! written to directly. Of a symbolic link the target is replaced, and the link stays.
//!
//! An existing file is replaced only by one of the same kind: see [`Replace`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_format::{FILE_HEADER_LEN, FileHeader, FileKind};

/// Number of bytes of an existing file that are read to determine its kind.
const KIND_BYTES: u64 = 4096;
/// Most symbolic links that are followed, one to the next.
const MAX_LINKS: usize = 40;

/// Why a file or directory was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It could not be created, written, synced or renamed.
    #[error("{path}: cannot be written: {error}; nothing was changed")]
    NotWritten {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The existing file is of another kind.
    #[error("{path}: the file that is there is not {expected}; it was not replaced")]
    OtherKind {
        /// The existing file.
        path: PathBuf,
        /// The kind of file that was about to be written: `an Annals trace`.
        expected: &'static str,
    },
    /// It has its name, but the directory that holds the name could not be synced.
    #[error("{path}: is written, but a crash of the machine may still undo that: {error}")]
    NotSynced {
        /// The file or directory.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// Only some entries of an existing directory were replaced.
    #[error("{path}: not everything could be moved there: {error}; each file in it is whole")]
    PartlyMoved {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

impl OutputError {
    /// Wraps an I/O error after which nothing was changed.
    pub fn not_written(path: &Path, error: io::Error) -> Self {
        Self::NotWritten {
            path: path.to_owned(),
            error,
        }
    }
}

/// A kind of file, recognised by its first bytes.
#[derive(Clone, Copy, Debug)]
pub struct OutputKind {
    name: &'static str,
    matches: fn(&[u8]) -> bool,
}

impl OutputKind {
    /// An Annals trace.
    pub const TRACE: Self = Self::new("an Annals trace", |start| is_of(start, FileKind::Trace));
    /// An Annals recording.
    pub const RECORDING: Self = Self::new("an Annals recording", |start| {
        is_of(start, FileKind::Recording)
    });
    /// The live file of a recording.
    pub const LIVE_FILE: Self = Self::new("a live file", |start| {
        start.starts_with(&annals_format::live::layout::MAGIC)
    });
    /// A JSON text.
    pub const JSON: Self = Self::new("a JSON file", |start| {
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        matches!(first, Some(b'{' | b'['))
    });

    /// Creates a kind called `name` (with its article). `matches` gets the first bytes of a file that is not empty, at
    /// most 4096.
    pub const fn new(name: &'static str, matches: fn(&[u8]) -> bool) -> Self {
        Self { name, matches }
    }
}

fn is_of(start: &[u8], kind: FileKind) -> bool {
    let header = start.get(..FILE_HEADER_LEN).map(FileHeader::decode);
    matches!(header, Some(Ok(header)) if header.kind == kind)
}

/// Which existing files an output may replace. A file that does not exist yet, an empty one, and devices and pipes can
/// always be written.
#[derive(Clone, Copy, Debug)]
pub enum Replace {
    /// Only files of this kind.
    Only(OutputKind),
    /// Any regular file: the user said so.
    Any,
}

impl Replace {
    /// Returns [`Replace::Any`] if `force` is true, otherwise files of this kind only.
    pub const fn only_unless(kind: OutputKind, force: bool) -> Self {
        if force { Self::Any } else { Self::Only(kind) }
    }

    /// Checks what is at a path. Returns `Ok` if nothing is.
    ///
    /// # Errors
    /// If a file of another kind is there, or cannot be read.
    pub fn check(self, path: &Path) -> Result<(), OutputError> {
        let Self::Only(kind) = self else {
            return Ok(());
        };
        if !path.is_file() {
            return Ok(());
        }
        let mut start = Vec::new();
        let read = File::open(path).and_then(|file| file.take(KIND_BYTES).read_to_end(&mut start));
        read.map_err(|error| OutputError::not_written(path, error))?;
        if start.is_empty() || (kind.matches)(&start) {
            return Ok(());
        }
        Err(OutputError::OtherKind {
            path: path.to_owned(),
            expected: kind.name,
        })
    }
}

/// A file that gets its name when it is [finished](WholeFile::finish). Dropped before, it leaves nothing.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// `None`: a device or a pipe, or the file has its name.
    temporary: Option<PathBuf>,
    writer: BufWriter<File>,
}

impl WholeFile {
    /// Begins a file. A new one can be read by everyone, as the process's umask allows.
    ///
    /// # Errors
    /// If it cannot be created, or a file of another kind is there.
    pub fn create(path: &Path, replace: Replace) -> Result<Self, OutputError> {
        Self::create_with(path, replace, 0o666)
    }

    /// Begins a file that only its owner can read, if it is new.
    ///
    /// # Errors
    /// If it cannot be created, or a file of another kind is there.
    pub fn create_private(path: &Path, replace: Replace) -> Result<Self, OutputError> {
        Self::create_with(path, replace, 0o600)
    }

    fn create_with(path: &Path, replace: Replace, mode: u32) -> Result<Self, OutputError> {
        let not_written = |error| OutputError::not_written(path, error);
        let target = link_target(path).map_err(not_written)?;
        let existing = fs::metadata(&target).ok();
        let (file, temporary) = match &existing {
            Some(metadata) if metadata.is_dir() => {
                return Err(not_written(io::ErrorKind::IsADirectory.into()));
            }
            Some(metadata) if !metadata.is_file() => {
                let file = File::options().write(true).open(&target);
                (file.map_err(not_written)?, None)
            }
            Some(metadata) => {
                replace.check(&target)?;
                let created = create_file_beside(&target, mode);
                let (file, temporary) = created.map_err(not_written)?;
                // The rights of the file stay, as far as the system allows.
                let mode = metadata.permissions().mode() & 0o777;
                let _ = file.set_permissions(fs::Permissions::from_mode(mode));
                (file, Some(temporary))
            }
            None => {
                let created = create_file_beside(&target, mode);
                let (file, temporary) = created.map_err(not_written)?;
                (file, Some(temporary))
            }
        };
        Ok(Self {
            path: target,
            temporary,
            writer: BufWriter::with_capacity(1 << 20, file),
        })
    }

    /// Writes a file in one call.
    ///
    /// # Errors
    /// If it cannot be written, or a file of another kind is there: what was there before stays.
    pub fn write(path: &Path, bytes: &[u8], replace: Replace) -> Result<(), OutputError> {
        let mut file = Self::create(path, replace)?;
        let written = file.write_all(bytes);
        written.map_err(|error| OutputError::not_written(path, error))?;
        file.finish()
    }

    /// Returns the path of the file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path under which what was written so far can be read back: not yet its name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn flushed(&mut self) -> Result<&Path, OutputError> {
        let flushed = self.writer.flush();
        flushed.map_err(|error| OutputError::not_written(&self.path, error))?;
        Ok(self.temporary.as_ref().unwrap_or(&self.path))
    }

    /// Syncs the file to disk and renames it to its path.
    ///
    /// # Errors
    /// If it cannot be written or synced: what was there before stays. If its directory cannot be synced.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let named = self.writer.flush().and_then(|()| {
            let Some(temporary) = &self.temporary else {
                return Ok(());
            };
            self.writer.get_ref().sync_all()?;
            fs::rename(temporary, &self.path)
        });
        named.map_err(|error| OutputError::not_written(&self.path, error))?;
        if self.temporary.take().is_some() {
            sync_parent(&self.path)?;
        }
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.writer.seek(to)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// A directory that gets its name when it is [finished](WholeDirectory::finish). Dropped before, it leaves nothing.
///
/// A new directory appears with all that is in it. An existing one stays, with its rights and its other entries: the new
/// files are moved into it one by one when all of them are whole.
#[derive(Debug)]
pub struct WholeDirectory {
    path: PathBuf,
    target: PathBuf,
    temporary: PathBuf,
    replace: Replace,
    is_new: bool,
    is_finished: bool,
}

impl WholeDirectory {
    /// Begins a directory. `replace` is about the files of an existing one.
    ///
    /// # Errors
    /// If it cannot be created, or something else than a directory is there.
    pub fn create(path: &Path, replace: Replace) -> Result<Self, OutputError> {
        let not_written = |error| OutputError::not_written(path, error);
        let target = link_target(path).map_err(not_written)?;
        let target: PathBuf = target.components().collect(); // without a `/` at its end
        let is_new = !target.exists();
        if !is_new && !target.is_dir() {
            return Err(not_written(io::ErrorKind::NotADirectory.into()));
        }
        let named = match is_new {
            true => target.clone(),
            false => target.join("export"),
        };
        let created = create_beside(&named, |path| fs::create_dir(path));
        let ((), temporary) = created.map_err(not_written)?;
        Ok(Self {
            path: path.to_owned(),
            target,
            temporary,
            replace,
            is_new,
            is_finished: false,
        })
    }

    /// Returns the path that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that it has until it is finished: files are created in it.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Syncs everything in the directory to disk and renames it to its path.
    ///
    /// # Errors
    /// If that fails, or an existing file in the directory is of another kind: what was there before stays. If only some of
    /// the files could be moved, or the directory could not be synced.
    pub fn finish(mut self) -> Result<(), OutputError> {
        let not_written = |error| OutputError::not_written(&self.path, error);
        sync_tree(&self.temporary).map_err(not_written)?;
        if self.is_new {
            fs::rename(&self.temporary, &self.target).map_err(not_written)?;
            self.is_finished = true;
            return sync_parent(&self.target);
        }
        let entries = fs::read_dir(&self.temporary).and_then(Iterator::collect);
        let entries: Vec<fs::DirEntry> = entries.map_err(not_written)?;
        for entry in &entries {
            self.replace.check(&self.target.join(entry.file_name()))?;
        }
        let moved = entries
            .iter()
            .try_for_each(|entry| fs::rename(entry.path(), self.target.join(entry.file_name())))
            .and_then(|()| fs::remove_dir(&self.temporary));
        moved.map_err(|error| OutputError::PartlyMoved {
            path: self.path.clone(),
            error,
        })?;
        self.is_finished = true;
        sync_directory(&self.target).map_err(|error| OutputError::NotSynced {
            path: self.path.clone(),
            error,
        })
    }
}

impl Drop for WholeDirectory {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// Follows symbolic links, also to a file that does not exist yet.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    // What is no file is written as it is: the link of a pipe, as /dev/stdout, has a target without a path.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return Ok(path.to_owned());
    }
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path), // not a link, or not there
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Syncs a directory's entries: names given and taken are then on disk. Some file systems cannot, and need not.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let path = match path.as_os_str().is_empty() {
        true => Path::new("."),
        false => path,
    };
    match File::open(path)?.sync_all() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

/// Syncs the directory that holds a path.
pub fn sync_parent(path: &Path) -> Result<(), OutputError> {
    let parent = path.parent().unwrap_or(Path::new(""));
    sync_directory(parent).map_err(|error| OutputError::NotSynced {
        path: path.to_owned(),
        error,
    })
}

/// Syncs all files and directories below a directory, and the directory.
pub fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_tree(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    sync_directory(directory)
}

/// Creates something next to `path` with `create`, under an unused name. Returns what `create` returned, and the name:
/// `<name>.<process id>.tmp`, with a number if a process of another host, or one that was killed, has that.
///
/// `create` must fail with [`io::ErrorKind::AlreadyExists`] if the name is taken.
///
/// # Errors
/// If `create` fails in another way, or all names are taken.
pub fn create_beside<T>(
    path: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    const MAX_ATTEMPTS: u32 = 10_000;
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
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS =>
            {
                attempt += 1;
            }
            created => return created.map(|created| (created, temporary)),
        }
    }
}

/// Removes files that [`create_beside`] named for `path` in processes that are gone: of this host, and not written to for a minute, since
/// a process of another host may have the number.
pub(crate) fn remove_abandoned(path: &Path) {
    const MINUTE: Duration = Duration::from_secs(60);
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let rest = found
            .as_encoded_bytes()
            .strip_prefix(name.as_encoded_bytes());
        let rest = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".tmp"));
        let pid = rest.and_then(|rest| rest.split(|byte| *byte == b'-').next());
        let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok()?.parse::<u32>().ok());
        let is_gone = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let age = changed.ok().and_then(|changed| changed.elapsed().ok());
        if is_gone && age.is_some_and(|age| age >= MINUTE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn create_file_beside(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    create_beside(path, |temporary| {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(temporary)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const JSON: Replace = Replace::Only(OutputKind::JSON);

    fn names(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_temporary_file_of_a_killed_process_is_neither_taken_nor_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("run.json");
        let (_, first) = create_file_beside(&path, 0o600).unwrap();
        fs::write(&first, b"left").unwrap();
        let other = scratch.path().join("other");
        let pid = std::process::id();
        let link = scratch.path().join(format!("run.json.{pid}-2.tmp"));
        symlink(&other, &link).unwrap();
        let (_, third) = create_file_beside(&path, 0o600).unwrap();
        assert!(third.ends_with(format!("run.json.{pid}-3.tmp")));
        assert_eq!(fs::read(&first).unwrap(), b"left");
        assert!(!other.exists());
        WholeFile::write(&path, b"{}", JSON).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}");
        assert_eq!(names(scratch.path()).len(), 4);
    }

    #[test]
    fn only_files_of_the_kind_are_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("main.c");
        fs::write(&path, "int main(void) { return 0; }").unwrap();
        let refused = WholeFile::write(&path, b"{}", JSON).unwrap_err();
        assert!(
            refused.to_string().contains("is not a JSON file"),
            "{refused}"
        );
        assert_eq!(names(scratch.path()), ["main.c"]);
        assert!(fs::read_to_string(&path).unwrap().starts_with("int"));
        WholeFile::write(&path, b"{}", Replace::Any).unwrap();
        WholeFile::write(&path, b"[1]", JSON).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"[1]");
        fs::write(&path, "").unwrap();
        WholeFile::write(&path, b"{}", Replace::Only(OutputKind::TRACE)).unwrap();
        // Its rights stay.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        WholeFile::write(&path, b"{}", JSON).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(WholeFile::create(scratch.path(), Replace::Any).is_err());
    }

    #[test]
    fn a_link_stays_and_its_target_is_replaced_or_made() {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("disk")).unwrap();
        let (link, target) = (scratch.path().join("link"), scratch.path().join("disk/out"));
        symlink("disk/out", &link).unwrap();
        for text in ["{}", "[]"] {
            WholeFile::write(&link, text.as_bytes(), JSON).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
        }
        let circle = scratch.path().join("circle");
        symlink("circle", &circle).unwrap();
        assert!(WholeFile::create(&circle, Replace::Any).is_err());
        WholeFile::write(Path::new("/dev/null"), b"text", JSON).unwrap();
        assert_eq!(names(&scratch.path().join("disk")), ["out"]);
    }

    #[test]
    fn a_directory_appears_as_a_whole_and_keeps_what_it_had() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let make = |name: &str| {
            let directory = WholeDirectory::create(&path, JSON).unwrap();
            fs::write(directory.temporary().join(name), "{}").unwrap();
            directory
        };
        drop(make("a"));
        assert_eq!(names(scratch.path()), Vec::<String>::new());
        // New; then by a link, an empty one; then one with entries.
        make("a").finish().unwrap();
        assert_eq!(names(&path), ["a"]);
        fs::remove_file(path.join("a")).unwrap();
        let link = scratch.path().join("link");
        symlink(&path, &link).unwrap();
        let directory = WholeDirectory::create(&link, JSON).unwrap();
        fs::write(directory.temporary().join("b"), "{}").unwrap();
        directory.finish().unwrap();
        assert_eq!(names(&path), ["b"]);
        assert_eq!(names(scratch.path()), ["link", "out"]);
        let directory = make("c");
        fs::write(directory.temporary().join("b"), "[]").unwrap();
        directory.finish().unwrap();
        assert_eq!(names(&path), ["b", "c"]);
        assert_eq!(fs::read(path.join("b")).unwrap(), b"[]");
        drop(make("d"));
        assert_eq!(names(&path), ["b", "c"]);
        fs::write(path.join("c"), "text").unwrap();
        assert!(make("c").finish().is_err());
        assert_eq!(fs::read(path.join("c")).unwrap(), b"text");
        assert_eq!(names(&path), ["b", "c"]);
        assert!(WholeDirectory::create(&path.join("b"), JSON).is_err());
        assert!(WholeDirectory::create(&scratch.path().join("no/such"), JSON).is_err());
    }
}
