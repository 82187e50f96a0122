//! An opened recording: its file and its live file.

use super::file::FileAt;
use super::host::{is_alive, reference_ns};
use super::rank_claim::RankClaim;
use annals_foreign::{ConversionDirectory, Converted};
use serde::Serialize;

use crate::clocks::hosts::HostFacts;
use crate::error::{MergeError, Result};
use annals_format::live::layout::IN_MEMORY;
use annals_format::names;
use annals_format::{
    Chunk, Definitions, Ended, FormatError, LiveImage, Problem, ProcessId, ReadAt, Recording,
    RecordingId, StoredChunk,
};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// An opened recording.
#[derive(Debug)]
pub struct InputRecording {
    /// Its file.
    pub path: PathBuf,
    /// The live file that was read with it.
    pub live_path: Option<PathBuf>,
    /// Why the live file that it has cannot be used.
    unusable_live: Option<String>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Its contents.
    pub recording: Recording,
    /// All of its definitions, while they are packed.
    packed: Option<Box<Packed>>,
    /// What the others need of it, if another process merges it.
    left_out: Option<Box<LeftOut>>,
    pub(crate) file: FileAt,
    /// Where it is, if it was converted from another format; removed with the last of them.
    conversion: Option<Arc<ConversionDirectory>>,
}

/// Definitions as they are in a file. The rank's claim is needed before they are unpacked.
#[derive(Debug)]
struct Packed {
    /// The packed definitions of this recording and of those that were opened with it.
    bytes: Arc<[u8]>,
    /// Where they are in `bytes`.
    range: Range<usize>,
    claim: RankClaim,
}

impl Packed {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

/// What other recordings need of one that another process merges: for ranks and clocks.
#[derive(Debug)]
pub(crate) struct LeftOut {
    claim: RankClaim,
    pub(crate) host: HostFacts,
    /// Of its definitions, clocks, their calibration, and measured offsets between hosts.
    pub(crate) clocks: Definitions,
}

/// Recordings of a merge. Boxed: a list that grows would have room for twice as many of them.
pub(crate) type Inputs = Vec<Box<InputRecording>>;

/// A file that is not there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MissingFile {
    /// Its path.
    pub path: PathBuf,
    /// The host on which the path was its file's; empty if the process's definition is lost.
    pub host: String,
}

impl std::fmt::Display for MissingFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        match self.host.as_str() {
            "" => write!(f, "{path}"),
            host => write!(f, "{path} of host {host}"),
        }
    }
}

fn live_path_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-live");
    PathBuf::from(name)
}

/// Returns where the live file of a recording is if there was no room for it elsewhere, and none to note that.
pub(crate) fn live_path_in_memory(path: &Path) -> Option<PathBuf> {
    Some(live_path_beside(
        &Path::new(IN_MEMORY).join(path.file_name()?),
    ))
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
            // A recovery first moves a complete recording to this name and then removes the live file: this is that
            // recording.
            opened = Self::open_once(path)?;
        }
        Ok(opened)
    }

    /// Returns whether the file that was opened is still the one of that name.
    fn has_its_name(&self) -> bool {
        let metadata = fs::metadata(&self.path);
        metadata.map_or(true, |metadata| {
            (metadata.dev(), metadata.ino()) == self.file.identity
        })
    }

    fn open_once(path: &Path) -> Result<Self> {
        let file = FileAt::open(path)?;
        // The live file first: a page that is written out meanwhile is then found in the recording.
        let mut live_path = live_path_beside(path);
        let mut unusable_live = None;
        let mut read_live = |path: &Path, id| {
            read_live(path, id).unwrap_or_else(|error| {
                let what = format!("the live file {} cannot be used: {error}", path.display());
                unusable_live.get_or_insert(what);
                None
            })
        };
        let mut live = read_live(&live_path, None);
        let read = |live: Option<LiveImage>| {
            Recording::read(&file, live, is_alive).map_err(MergeError::format(path))
        };
        let had_live = live.is_some();
        let mut recording = read(live.take())?;
        if !had_live && !recording.has_footer {
            let places = [live_file_property(&recording), live_path_in_memory(path)];
            let elsewhere = places.into_iter().flatten();
            for elsewhere in elsewhere.filter(|path| *path != live_path) {
                if let Some(image) = read_live(&elsewhere, Some(recording.header.recording_id)) {
                    recording = read(Some(image))?;
                    live_path = elsewhere;
                    break;
                }
            }
        }
        if recording.ended == Ended::Running && !recording.has_footer {
            // A process of this host, which is known to live now.
            let now = reference_ns();
            recording.last_reference_ns = recording.last_reference_ns.map(|last| last.max(now));
            recording.end_error_ns = 0;
        }
        let file_bytes = file.len().map_err(MergeError::format(path))?;
        let is_live_used = recording.last_reference_ns.is_some() && !recording.has_footer;
        let unusable_live = unusable_live.filter(|_| !is_live_used && !recording.has_footer);
        recording
            .problems
            .extend(unusable_live.clone().map(|what| Problem::new(0, 0, what)));
        Ok(Self {
            path: path.to_owned(),
            live_path: is_live_used.then_some(live_path),
            unusable_live,
            file_bytes,
            recording,
            packed: None,
            left_out: None,
            file,
            conversion: None,
        })
    }

    /// Returns the live file that it should have, if none was found: its process is of another host, perhaps, or the file is gone with a
    /// memory file system. One that cannot be used is among the problems. `process`: its number in these definitions.
    pub fn missing_live_file(
        &self,
        definitions: &Definitions,
        process: ProcessId,
    ) -> Option<MissingFile> {
        let is_here = self.live_path.is_some() || self.unusable_live.is_some();
        if is_here || self.is_converted() || self.recording.ended != Ended::Truncated {
            return None;
        }
        let of = definitions.processes.get(&process);
        Some(MissingFile {
            path: live_file_of(definitions, process)
                .unwrap_or_else(|| live_path_beside(&self.path)),
            host: of.map_or_else(String::new, |of| definitions.string(of.host).to_owned()),
        })
    }

    /// Checks that the recording names its process. A process that is killed while its recorder starts leaves only a
    /// file header, or a part of its first block. Merged, such a file would become a rank on a host that does not exist.
    ///
    /// # Errors
    /// [`MergeError::NoProcess`] if it defines no process and has no stream.
    pub fn check_has_process(&self) -> Result<()> {
        let recording = &self.recording;
        if self.left_out.is_some()
            || !recording.streams.is_empty()
            || !self.definitions().processes.is_empty()
        {
            return Ok(());
        }
        let at = self.file_bytes;
        let how = match recording.ended {
            _ if recording.has_footer => "its definitions are lost",
            Ended::Running => "its process has just started",
            _ => match &self.unusable_live {
                Some(what) => what,
                None => "its process was killed while it started, or the rest of the file is lost",
            },
        };
        Err(MergeError::NoProcess {
            path: self.path.clone(),
            why: format!(
                "at byte {at}: expected the definition of a process, but there is none, since {how}"
            ),
        })
    }

    /// Checks the parts of its file that nothing else reads, and notes any damage there.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn check_rest(&mut self) -> Result<()> {
        let damaged = self.recording.check_rest(&self.file);
        let damaged = damaged.map_err(MergeError::format(&self.path))?;
        self.recording.problems.extend(damaged);
        Ok(())
    }

    /// Puts its definitions into the bytes that they have in a file: a run has many recordings, and they all wait for the last one
    /// before they are put into order.
    pub(crate) fn pack_definitions(&mut self) {
        let claim = self.rank_claim();
        let mut bytes = Vec::new();
        let definitions = std::mem::replace(&mut self.recording.definitions, no_definitions());
        Arc::unwrap_or_clone(definitions).encode(&mut bytes);
        self.packed = Some(Box::new(Packed {
            range: 0..bytes.len(),
            bytes: bytes.into(),
            claim,
        }));
    }

    /// Puts the packed definitions of recordings into one block. Once all are unpacked, it is free as a whole; of small
    /// blocks between others, only small ones could use the room.
    pub(crate) fn pack_together(inputs: &mut [Box<Self>]) {
        let mut all = Vec::new();
        let packed = inputs.iter_mut().filter_map(|input| input.packed.as_mut());
        for packed in packed {
            let start = all.len();
            all.extend_from_slice(packed.bytes());
            packed.range = start..all.len();
            packed.bytes = Arc::default();
        }
        let all: Arc<[u8]> = all.into();
        for packed in inputs.iter_mut().filter_map(|input| input.packed.as_mut()) {
            packed.bytes = Arc::clone(&all);
        }
    }

    /// Keeps only what other recordings need of it.
    pub(crate) fn leave_out(&mut self) {
        let recording = &self.recording;
        let definitions = &recording.definitions;
        let mut clocks = Definitions::default();
        clocks.clocks.clone_from(&definitions.clocks);
        clocks.calibration.clone_from(&definitions.calibration);
        clocks.host_offsets.clone_from(&definitions.host_offsets);
        self.left_out = Some(Box::new(LeftOut {
            claim: self.rank_claim(),
            host: HostFacts::of(definitions, definitions, recording.last_reference_ns),
            clocks,
        }));
        let recording = &mut self.recording;
        recording.definitions = no_definitions();
        recording.streams.clear();
    }

    /// Takes what others need of it, if another process merges it.
    pub(crate) fn take_left_out(&mut self) -> Option<Box<LeftOut>> {
        self.left_out.take()
    }

    /// Restores the definitions, if they were packed.
    pub(crate) fn unpack_definitions(&mut self) {
        if let Some(packed) = self.packed.take() {
            self.recording.definitions = Arc::new(unpacked(packed.bytes()));
        }
    }

    /// Returns its definitions, packed or not.
    fn definitions(&self) -> Cow<'_, Definitions> {
        match &self.packed {
            Some(packed) => Cow::Owned(unpacked(packed.bytes())),
            None => Cow::Borrowed(&self.recording.definitions),
        }
    }

    /// Returns whether the definition of its process is there.
    pub(crate) fn defines_process(&self) -> bool {
        !self.definitions().processes.is_empty()
    }

    /// Returns what it states about the rank of its process. A recording that names no process is about process 0.
    pub(crate) fn rank_claim(&self) -> RankClaim {
        if let Some(packed) = &self.packed {
            return packed.claim.clone();
        }
        if let Some(left_out) = &self.left_out {
            return left_out.claim.clone();
        }
        let definitions = &self.recording.definitions;
        let process = definitions.ranks.keys().chain(definitions.processes.keys());
        let process = process.copied().next().unwrap_or(ProcessId::new(0));
        let id = self.recording.header.recording_id;
        let start_ns = definitions
            .processes
            .get(&process)
            .map_or(0, |process| process.start_reference_ns);
        let end_ns = self.recording.last_reference_ns.unwrap_or(start_ns);
        RankClaim {
            lived_ns: end_ns.saturating_sub(start_ns).max(0) as u64,
            ..RankClaim::of(definitions, definitions, process, id)
        }
    }

    /// Returns whether a live file is this recording's, and not that of another recording which this is a copy of.
    pub(crate) fn owns(&self, live: &Path) -> bool {
        if live == live_path_beside(&self.path) {
            return true;
        }
        let Some(name) = live.as_os_str().as_bytes().strip_suffix(b"-live") else {
            return true;
        };
        let beside = fs::metadata(OsStr::from_bytes(name));
        beside.map_or(true, |beside| {
            (beside.dev(), beside.ino()) == self.file.identity
        })
    }

    /// Returns the live file of a recording that has its footer, if its process, or a recovery, was killed before it
    /// could remove the file.
    pub(crate) fn live_file_left(&self) -> Option<PathBuf> {
        if !self.recording.has_footer {
            return None;
        }
        let places = [
            Some(live_path_beside(&self.path)),
            live_file_property(&self.recording),
            live_path_in_memory(&self.path),
        ];
        let id = self.recording.header.recording_id;
        places.into_iter().flatten().find(|path| {
            let live = read_live(path, Some(id)).ok().flatten();
            live.is_some_and(|live| !is_alive(&live.header))
        })
    }

    /// Opens a recording that a trace of another format was converted to, which has this path.
    ///
    /// # Errors
    /// Those of [`InputRecording::open`].
    pub(crate) fn of_foreign(
        path: &Path,
        converted: Converted,
        conversion: &Arc<ConversionDirectory>,
    ) -> Result<Self> {
        let mut input = Self::open(&converted.path)?;
        path.clone_into(&mut input.path);
        input.file_bytes = converted.bytes;
        input.recording.has_footer = converted.problems.is_empty();
        input.recording.problems.extend(converted.problems);
        input.conversion = Some(Arc::clone(conversion));
        Ok(input)
    }

    /// Returns whether it was converted from another format.
    pub const fn is_converted(&self) -> bool {
        self.conversion.is_some()
    }

    /// Returns how many bytes the body of a chunk has, decompressed, if that can be known without decoding it.
    pub(crate) fn body_len(&self, chunk: &StoredChunk) -> Option<u64> {
        self.recording.body_len(&self.file, chunk).ok().flatten()
    }

    /// Decodes the events of a chunk.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub(crate) fn load(&self, chunk: &StoredChunk) -> annals_format::Result<Chunk> {
        self.recording.load(&self.file, chunk)
    }
}

/// Returns the definitions of recordings that have none any more.
pub(crate) fn no_definitions() -> Arc<Definitions> {
    static NONE: LazyLock<Arc<Definitions>> = LazyLock::new(Arc::default);
    Arc::clone(&NONE)
}

fn unpacked(packed: &[u8]) -> Definitions {
    let mut definitions = Definitions::default();
    // The data was encoded by this process, so it is intact.
    let outcome = definitions.add_all(packed);
    debug_assert!(outcome.is_ok(), "{outcome:?}");
    definitions
}

fn live_file_property(recording: &Recording) -> Option<PathBuf> {
    let definitions = &recording.definitions;
    live_file_of(definitions, *definitions.processes.keys().next()?)
}

/// Returns where a process has its live file, if it noted that.
fn live_file_of(definitions: &Definitions, process: ProcessId) -> Option<PathBuf> {
    let mut properties = definitions.properties.iter();
    let property = properties.find(|property| {
        property.process == process
            && definitions.string(property.key) == names::property::LIVE_FILE
    })?;
    let path = definitions.string(property.value);
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// Reads a live file. `None` means that there is none, or that it is one of another recording.
///
/// # Errors
/// If there is a file and it cannot be read as one.
fn read_live(
    path: &Path,
    id: Option<RecordingId>,
) -> std::result::Result<Option<LiveImage>, FormatError> {
    let file = match FileAt::open(path) {
        Ok(file) => file,
        Err(MergeError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(MergeError::Io { source, .. }) => {
            return Err(FormatError::Io {
                offset: 0,
                error: source,
            });
        }
        Err(_) => return Ok(None),
    };
    let image = LiveImage::read(&file)?;
    let is_wanted = id.is_none_or(|id| image.header.recording_id == id);
    Ok(is_wanted.then_some(image))
}
