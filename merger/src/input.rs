//! Finding and opening inputs: files, directories, live files beside them.

pub(crate) mod earlier;
pub(crate) mod program;
pub(crate) mod reader;
pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod stream;
pub(crate) mod symbols;
pub(crate) mod ticks;
pub(crate) mod unplaced;

use annals_format::names;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use annals_format::{
    Chunk, ChunkPlace, Ended, FileHeader, FileKind, FormatError, LiveHeader, LiveImage, ReadAt,
    Recording, RecordingId, StoredChunk,
};

use rustc_hash::FxHashMap;

use crate::error::{MergeError, Result};

/// A file that is read at offsets. Not mapped: a file that is cut while it is read costs an error, not
/// the program. It is closed when too many others are open, and opened again when it is asked for.
#[derive(Debug)]
pub(crate) struct FileAt {
    path: PathBuf,
    /// Device and number on it: another file of the name is another file.
    identity: (u64, u64),
    number: u64,
}

/// Files that are open, by number, with the moment of their last use.
#[derive(Debug)]
struct OpenFiles {
    files: FxHashMap<u64, (Arc<File>, u64)>,
    /// Numbers by the moment of the last use.
    by_use: BTreeMap<u64, u64>,
    /// Uses, and numbers given.
    count: u64,
    most: usize,
}

static OPEN_FILES: LazyLock<Mutex<OpenFiles>> = LazyLock::new(|| {
    Mutex::new(OpenFiles {
        files: FxHashMap::default(),
        by_use: BTreeMap::new(),
        count: 0,
        most: most_files(),
    })
});

/// Files that may be open at once: half of what the system allows, the rest is for others.
fn most_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    let soft = soft.map_or(Some(1024), |soft| soft.parse::<usize>().ok());
    (soft.unwrap_or(usize::MAX) / 2).clamp(4, 4096)
}

impl OpenFiles {
    fn lock() -> std::sync::MutexGuard<'static, Self> {
        OPEN_FILES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&mut self, number: u64) -> Option<Arc<File>> {
        self.count += 1;
        let (file, used) = self.files.get_mut(&number)?;
        self.by_use.remove(used);
        *used = self.count;
        self.by_use.insert(self.count, number);
        Some(file.clone())
    }

    fn put(&mut self, number: u64, file: Arc<File>) {
        self.remove(number);
        while self.files.len() >= self.most
            && let Some((_, longest_unused)) = self.by_use.pop_first()
        {
            self.files.remove(&longest_unused);
        }
        self.count += 1;
        self.files.insert(number, (file, self.count));
        self.by_use.insert(self.count, number);
    }

    fn remove(&mut self, number: u64) {
        if let Some((_, used)) = self.files.remove(&number) {
            self.by_use.remove(&used);
        }
    }
}

/// Opens what can be read at any place. A pipe would wait for whoever writes to it, perhaps for ever.
fn open_regular(path: &Path) -> std::io::Result<(File, fs::Metadata)> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok((file, metadata));
    }
    let what = match () {
        () if metadata.is_dir() => "a directory",
        () if metadata.file_type().is_fifo() => "a pipe",
        () => "a device or socket",
    };
    let why = format!("it is {what}, not a file");
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
}

impl FileAt {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| MergeError::Io {
            action: "open",
            path: path.to_owned(),
            source,
        };
        let (file, metadata) = open_regular(path).map_err(io)?;
        let mut open = OpenFiles::lock();
        open.count += 1;
        let number = open.count;
        open.put(number, Arc::new(file));
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            number,
        })
    }

    fn file(&self) -> std::io::Result<Arc<File>> {
        if let Some(file) = OpenFiles::lock().get(self.number) {
            return Ok(file);
        }
        let (file, metadata) = open_regular(&self.path)?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            let why = "another file has taken its name while it was read";
            return Err(std::io::Error::other(why));
        }
        let file = Arc::new(file);
        OpenFiles::lock().put(self.number, file.clone());
        Ok(file)
    }
}

impl Drop for FileAt {
    fn drop(&mut self) {
        OpenFiles::lock().remove(self.number);
    }
}

impl ReadAt for FileAt {
    fn len(&self) -> Result<u64, FormatError> {
        match self.file().and_then(|file| file.metadata()) {
            Ok(metadata) => Ok(metadata.len()),
            Err(source) => Err(FormatError::Io {
                offset: 0,
                error: source,
            }),
        }
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FormatError> {
        let file = self.file();
        let file = file.map_err(|source| FormatError::Io {
            offset,
            error: source,
        })?;
        ReadAt::read_exact_at(&*file, offset, buffer)
    }
}

/// An opened recording.
#[derive(Debug)]
pub struct InputRecording {
    /// Its file.
    pub path: PathBuf,
    /// The live file that was read with it.
    pub live_path: Option<PathBuf>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// What is in it.
    pub recording: Recording,
    /// Definitions of it that were packed.
    packed: Vec<u8>,
    pub(crate) origin: ChunkOrigin,
}

/// Where the chunks of a recording are.
#[derive(Debug)]
pub(crate) enum ChunkOrigin {
    /// In its file.
    File(FileAt),
    /// In the files of an OTF2 archive that it is a process of.
    Archive(crate::otf2::ArchivePart),
}

/// An input that could not be used, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RejectedInput {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What the paths given by a user stand for.
#[derive(Debug, Default)]
pub struct Found {
    /// Recordings.
    pub recordings: Vec<PathBuf>,
    /// Traces.
    pub traces: Vec<PathBuf>,
    /// Anchors of OTF2 archives.
    pub archives: Vec<PathBuf>,
    /// Files that are neither, or cannot be read.
    pub rejected: Vec<RejectedInput>,
}

fn is_live(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "annals-live")
}

/// The anchors of OTF2 archives that a directory has.
fn anchors_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "otf2")
            && file.is_file()
        {
            files.push(file);
        }
    }
    Ok(files)
}

/// The anchors that archives in a directory should have, or the one that the directory is a part of.
fn archives_without_anchor(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    if let Some(anchor) = crate::otf2::anchor_for(directory) {
        return Ok(vec![anchor]);
    }
    let mut anchors = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_part = path.is_dir() || path.extension().is_some_and(|e| e == "def");
        let stem = if path.is_dir() {
            path.clone()
        } else {
            path.with_extension("")
        };
        let anchor = stem.with_added_extension("otf2");
        if is_part && stem.is_dir() && crate::otf2::anchor_for(&anchor).is_some() {
            anchors.push(anchor);
        }
    }
    anchors.sort();
    anchors.dedup();
    Ok(anchors)
}

/// Looks at files and directories. In a directory, files named `*.annals` count (and what a killed
/// process left: `*.annals-live`) but `skip`: it is the output; in one without them, archives (`*.otf2`).
///
/// # Errors
/// If a path does not exist or a directory cannot be listed.
pub fn find(paths: &[PathBuf], skip: Option<&Path>) -> Result<Found> {
    let mut found = Found::default();
    let skip = skip.and_then(|path| fs::canonicalize(path).ok());
    let mut seen = std::collections::BTreeSet::new();
    for path in paths {
        let io = |source| MergeError::Io {
            action: "open",
            path: path.clone(),
            source,
        };
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            // An archive whose anchor is missing goes by the name that it had.
            Err(_) if crate::otf2::anchor_for(path).is_some() => {
                if seen.insert(path.clone()) {
                    found.archives.push(path.clone());
                }
                continue;
            }
            Err(error) => return Err(io(error)),
        };
        let mut files = Vec::new();
        if metadata.is_dir() {
            for entry in fs::read_dir(path).map_err(io)? {
                let file = entry.map_err(io)?.path();
                if file.extension().is_some_and(|e| e == "annals") || is_live(&file) {
                    files.push(file);
                }
            }
            if files.is_empty() {
                files = anchors_in(path).map_err(io)?;
            }
            if files.is_empty() {
                let anchors = archives_without_anchor(path).map_err(io)?;
                if !anchors.is_empty() {
                    let new = anchors
                        .into_iter()
                        .filter(|anchor| seen.insert(anchor.clone()));
                    found.archives.extend(new);
                    continue;
                }
            }
            files.sort();
            if files.is_empty() {
                return Err(MergeError::NoRecordings { path: path.clone() });
            }
        } else {
            files.push(path.clone());
        }
        for file in files {
            // A live file stands for the recording it belongs to.
            let file = if is_live(&file) && file.with_extension("annals").exists() {
                file.with_extension("annals")
            } else {
                file
            };
            let identity = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            // Named itself, what the output will replace is read first.
            let is_output = metadata.is_dir() && skip.as_ref() == Some(&identity);
            if is_output || !seen.insert(identity) {
                continue;
            }
            if crate::otf2::is_anchor(&file) || crate::otf2::anchor_for(&file).is_some() {
                found.archives.push(file);
                continue;
            }
            match kind_of(&file) {
                Ok(FileKind::Recording) => found.recordings.push(file),
                Ok(FileKind::Trace) => found.traces.push(file),
                Err(error) => found.rejected.push(RejectedInput {
                    why: match &error {
                        MergeError::Format { .. } if is_named_archive(&file) => {
                            "at byte 0: the anchor of an OTF2 archive expected".to_owned()
                        }
                        _ => error.without_path(),
                    },
                    path: file,
                }),
            }
        }
    }
    Ok(found)
}

fn is_named_archive(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "otf2")
}

pub(crate) fn kind_of(path: &Path) -> Result<FileKind> {
    Ok(header_of(path)?.kind)
}

/// Whether a path is a file that begins as a recording, its live file, or a trace does. Pipes and devices are not read.
pub fn is_annals(path: &Path) -> bool {
    header_of(path).is_ok()
}

pub(crate) fn header_of(path: &Path) -> Result<FileHeader> {
    let file = FileAt::open(path)?;
    let format = |source| MergeError::Format {
        path: path.to_owned(),
        error: source,
    };
    let length = file
        .len()
        .map_err(format)?
        .min(annals_format::FILE_HEADER_LEN as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes).map_err(format)?;
    FileHeader::decode(&bytes).map_err(format)
}

fn live_path_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-live");
    PathBuf::from(name)
}

impl InputRecording {
    /// Opens a recording and, when it has no footer, the live file that belongs to it.
    ///
    /// # Errors
    /// If the file cannot be read or is not a recording.
    pub fn open(path: &Path) -> Result<Self> {
        const MOST_ATTEMPTS: usize = 8;
        let mut opened = Self::open_once(path)?;
        for _ in 1..MOST_ATTEMPTS {
            let has_end = opened.recording.has_footer || opened.live_path.is_some();
            if has_end || opened.has_its_name() {
                break;
            }
            // Whoever recovers gives the name to a whole recording, and then takes the live file away: that one it is.
            opened = Self::open_once(path)?;
        }
        Ok(opened)
    }

    /// Whether the file that was opened is still the one of that name.
    fn has_its_name(&self) -> bool {
        let ChunkOrigin::File(file) = &self.origin else {
            return true;
        };
        let metadata = fs::metadata(&self.path);
        metadata.map_or(true, |metadata| {
            (metadata.dev(), metadata.ino()) == file.identity
        })
    }

    fn open_once(path: &Path) -> Result<Self> {
        let file = FileAt::open(path)?;
        // The live file first: a page that is written out meanwhile is then found in the recording.
        let mut live_path = live_path_beside(path);
        let mut live = read_live(&live_path, None);
        let read = |live: Option<LiveImage>| {
            Recording::read(&file, live, is_alive).map_err(|source| MergeError::Format {
                path: path.to_owned(),
                error: source,
            })
        };
        let had_live = live.is_some();
        let mut recording = read(live.take())?;
        if !had_live && !recording.has_footer {
            let elsewhere = live_file_property(&recording).filter(|path| *path != live_path);
            if let Some(elsewhere) = elsewhere
                && let Some(image) = read_live(&elsewhere, Some(recording.header.recording_id))
            {
                recording = read(Some(image))?;
                live_path = elsewhere;
            }
        }
        let file_bytes = file.len().map_err(|source| MergeError::Format {
            path: path.to_owned(),
            error: source,
        })?;
        let is_live_used = recording.last_reference_ns.is_some() && !recording.has_footer;
        Ok(Self {
            path: path.to_owned(),
            live_path: is_live_used.then_some(live_path),
            file_bytes,
            recording,
            packed: Vec::new(),
            origin: ChunkOrigin::File(file),
        })
    }

    /// Checks that the recording names its process. A process that is killed while its recorder starts leaves only a
    /// file header, or a part of its first block. Merged, such a file would become a rank on a host that does not exist.
    ///
    /// # Errors
    /// [`MergeError::NoProcess`] if it defines no process and has no stream.
    pub fn check_has_process(&self) -> Result<()> {
        let recording = &self.recording;
        if !recording.definitions.processes.is_empty() || !recording.streams.is_empty() {
            return Ok(());
        }
        let at = self.file_bytes;
        let how = match recording.ended {
            _ if recording.has_footer => "its definitions are lost",
            Ended::Running => "its process has just started",
            _ => "its process was killed while it started, or the rest of the file is lost",
        };
        Err(MergeError::NoProcess {
            path: self.path.clone(),
            why: format!("at byte {at}: the definition of a process expected, found none: {how}"),
        })
    }

    /// Looks at the parts of its file that nothing else reads, and notes what is damaged there.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn check_unread(&mut self) -> Result<()> {
        let ChunkOrigin::File(file) = &self.origin else {
            return Ok(());
        };
        let damaged = self.recording.check_unread(file);
        let damaged = damaged.map_err(|source| MergeError::Format {
            path: self.path.clone(),
            error: source,
        })?;
        self.recording.problems.extend(damaged);
        Ok(())
    }

    /// Puts its definitions, but those of its process, rank and world, into the bytes that they have in a file: a run has many
    /// recordings, and they all wait for the last one before they are put into order.
    pub(crate) fn pack_definitions(&mut self) {
        let definitions = &mut self.recording.definitions;
        let (processes, ranks) = (definitions.processes.clone(), definitions.ranks.clone());
        let worlds = definitions.worlds.clone();
        let names = processes.values().map(|process| process.run);
        let names = names.chain(worlds.values().map(|world| world.name));
        let names = names.map(|name| (name, definitions.string(name).to_owned()));
        let names: BTreeMap<_, _> = names.collect();
        let mut packed = Vec::new();
        std::mem::take(definitions).encode(&mut packed);
        self.packed = packed.into_boxed_slice().into_vec();
        (definitions.processes, definitions.ranks) = (processes, ranks);
        (definitions.worlds, definitions.strings) = (worlds, names);
    }

    /// Gives it back the definitions that were packed.
    pub(crate) fn unpack_definitions(&mut self) {
        let packed = std::mem::take(&mut self.packed);
        // What was encoded a moment ago is whole.
        let outcome = self.recording.definitions.add_all(&packed);
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }

    /// The live file of a recording that has its footer, when its process was killed before it could remove it, or
    /// whoever recovered was.
    pub(crate) fn live_file_left(&self) -> Option<PathBuf> {
        if !self.recording.has_footer {
            return None;
        }
        let places = [
            Some(live_path_beside(&self.path)),
            live_file_property(&self.recording),
        ];
        let id = self.recording.header.recording_id;
        places
            .into_iter()
            .flatten()
            .find(|path| read_live(path, Some(id)).is_some_and(|live| !is_alive(&live.header)))
    }

    /// One of the processes of an archive.
    pub(crate) fn of_archive(
        path: &Path,
        recording: Recording,
        file_bytes: u64,
        part: crate::otf2::ArchivePart,
    ) -> Self {
        Self {
            path: path.to_owned(),
            live_path: None,
            file_bytes,
            recording,
            packed: Vec::new(),
            origin: ChunkOrigin::Archive(part),
        }
    }

    /// Whether it is a process of an OTF2 archive.
    pub const fn is_of_archive(&self) -> bool {
        matches!(self.origin, ChunkOrigin::Archive(_))
    }

    /// How many bytes the body of a chunk has, decompressed, if that can be known without decoding it.
    pub(crate) fn body_len(&self, chunk: &StoredChunk) -> Option<u64> {
        match &self.origin {
            ChunkOrigin::File(file) => self.recording.body_len(file, chunk).ok().flatten(),
            ChunkOrigin::Archive(_) => None,
        }
    }

    /// Decodes the events of a chunk.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub(crate) fn load(&self, chunk: &StoredChunk) -> annals_format::Result<Chunk> {
        match (&self.origin, chunk.place) {
            (ChunkOrigin::File(file), _) => self.recording.load(file, chunk),
            (ChunkOrigin::Archive(part), ChunkPlace::Foreign(number)) => {
                part.load(chunk.header.stream, number)
            }
            (ChunkOrigin::Archive(_), _) => Err(FormatError::Invalid {
                offset: 0,
                expected: "a part of an archive",
                found: "a chunk of a recording".to_owned(),
            }),
        }
    }
}

fn live_file_property(recording: &Recording) -> Option<PathBuf> {
    let definitions = &recording.definitions;
    let property = definitions
        .properties
        .iter()
        .find(|property| definitions.string(property.key) == names::property::LIVE_FILE)?;
    Some(PathBuf::from(definitions.string(property.value)))
}

fn read_live(path: &Path, id: Option<RecordingId>) -> Option<LiveImage> {
    let file = FileAt::open(path).ok()?;
    let image = LiveImage::read(&file).ok()?;
    let is_wanted = id.is_none_or(|id| image.header.recording_id == id);
    is_wanted.then_some(image)
}

/// Whether the process that a live header names still runs on this host.
pub(crate) fn is_alive(header: &LiveHeader) -> bool {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if boot.parse() != Ok(header.boot_id) {
        return false;
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", header.pid)) else {
        return false;
    };
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split_whitespace();
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    let start = fields.nth(18).and_then(|field| field.parse::<u64>().ok());
    !is_dead && start == Some(header.process_start)
}
