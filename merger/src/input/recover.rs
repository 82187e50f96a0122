//! Folding what a killed process left in its live file into its recording.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{CompressionLevel, Ended, ReadAt, Recording};

use crate::error::{MergeError, Result};
use crate::input::file::FileAt;
use crate::input::recording::{InputRecording, live_path_in_memory};
use crate::whole_file::{OutputError, OutputKind, Replace, WholeFile};
use crate::workers::no_progress;

/// A recording that was made whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Its file.
    pub path: PathBuf,
    /// Events that were in the live file only.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// What is missing in the file. `None` if it has every event that was raised and not dropped.
    pub missing: Option<String>,
}

/// How a recording is made whole.
#[derive(Clone, Default, Debug)]
#[non_exhaustive]
pub struct RecoverOptions {
    /// The directory in which the whole recording is written. Default: `None`, it replaces the recording, and the live file is
    /// removed.
    pub directory: Option<PathBuf>,
    /// Compression of what is written anew.
    pub compression: CompressionLevel,
    /// Recordings of processes that still run are written into the directory as well, as they are now, in place of earlier ones.
    pub as_it_is_now: bool,
}

impl RecoverOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes one recording, with a footer, from a recording and its live file: into a directory, or in place of the
    /// recording. Only in the second case is the live file removed, and only if the result, read back, is complete: every event
    /// that was raised is recorded, dropped or suppressed, and none is skipped. Readers find the same events, counts and losses
    /// as before. `progress` gets the number of bytes written so far, and can stop the work.
    ///
    /// Returns `None` when there is nothing to do: the recording is whole, there is no live file, or the process
    /// still runs. A live file of a complete recording, left by a recovery that was killed before it could remove it,
    /// is removed.
    ///
    /// # Errors
    /// [`MergeError::LiveFileUnread`] if something is missing and no directory is given;
    /// [`MergeError::Stopped`] if `progress` stopped it; other errors if the storage fails, or the directory has such a file. The
    /// inputs are then as they were.
    pub fn recover(
        &self,
        input: &InputRecording,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<Recovered>> {
        recover_with(input, self, progress)
    }
}

/// Makes a recording whole with default options: see [`RecoverOptions::recover`].
///
/// # Errors
/// Those of [`RecoverOptions::recover`].
pub fn recover(input: &InputRecording, directory: Option<&Path>) -> Result<Option<Recovered>> {
    let options = RecoverOptions {
        directory: directory.map(Path::to_owned),
        ..RecoverOptions::default()
    };
    options.recover(input, no_progress)
}

fn recover_with(
    input: &InputRecording,
    options: &RecoverOptions,
    progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Recovered>> {
    let directory = options.directory.as_deref();
    let as_it_is_now = options.as_it_is_now && directory.is_some();
    if input.recording.ended == Ended::Running && !as_it_is_now {
        return Ok(None);
    }
    let from = &input.file;
    let missing = input.recording.describe_missing();
    if directory.is_none()
        && missing.is_none()
        && let Some(live) = input.live_file_left()
        && input.owns(&live)
    {
        remove(&live)?;
    }
    let in_place = input.live_path.as_ref().filter(|_| directory.is_none());
    let refused = |what: String| MergeError::LiveFileUnread {
        live: input.live_path.clone().unwrap_or_default(),
        what,
    };
    if let Some(what) = missing.clone().filter(|_| in_place.is_some()) {
        return Err(refused(what));
    }
    let recovery = input.recording.recover(from, options.compression);
    let recovery = recovery.map_err(MergeError::format(&input.path))?;
    let Some(recovery) = recovery else {
        return Ok(None);
    };
    let name = input.path.file_name().unwrap_or_default();
    let path = directory.map_or_else(|| input.path.clone(), |directory| directory.join(name));
    if directory.is_some() && path.exists() && !as_it_is_now {
        return Err(MergeError::Io {
            action: "create",
            path,
            source: io::ErrorKind::AlreadyExists.into(),
        });
    }
    // Another process may be at the same recording: each makes its own, and they are the same. What is removed below is
    // on the disk by then.
    let mut file = WholeFile::create_private(&path, Replace::Only(OutputKind::RECORDING))?;
    let not_written = |error| OutputError::not_written(&path, error);
    copy(
        input,
        from,
        recovery.kept,
        &mut file,
        &not_written,
        progress,
    )?;
    file.write_all(&recovery.bytes).map_err(not_written)?;
    if in_place.is_some()
        && let Some(what) = missing_in(file.flushed()?, &input.recording)?
    {
        return Err(refused(what));
    }
    file.finish()?;
    if let Some(live) = in_place.filter(|live| input.owns(live)) {
        remove(live)?;
    }
    Ok(Some(Recovered {
        path,
        events: recovery.events,
        bytes: recovery.kept + recovery.bytes.len() as u64,
        missing,
    }))
}

/// Removes the live file of a recording from memory (`/dev/shm`), where the recorder put it for want of another place, after all of
/// the recording's events were merged. The recording is made whole first, as [`recover`] does; where there is no room for that,
/// the trace alone has what the live file had. Nothing happens while it is still recorded, or if a part of the live file cannot be read.
///
/// Returns whether a live file was removed.
///
/// # Errors
/// If the recording cannot be read, or the file cannot be removed.
pub fn remove_live_file_in_memory(recording: &Path) -> Result<bool> {
    let live = live_path_in_memory(recording).filter(|live| live.exists());
    let Some(live) = live else {
        return Ok(false);
    };
    let input = InputRecording::open(recording)?;
    let is_its_own = match input.recording.has_footer {
        true => input.live_file_left().as_ref() == Some(&live),
        false => input.live_path.as_ref() == Some(&live),
    };
    if !is_its_own || input.recording.ended == Ended::Running {
        return Ok(false);
    }
    match recover(&input, None) {
        Ok(_) => {}
        Err(MergeError::LiveFileUnread { .. }) => return Ok(false),
        Err(_) if input.owns(&live) => remove(&live)?,
        Err(_) => {}
    }
    Ok(!live.exists())
}

/// Reads a recovered recording back, and describes what of the original's events it lacks. `None` means that it lacks
/// nothing.
fn missing_in(written: &Path, original: &Recording) -> Result<Option<String>> {
    let file = FileAt::open(written)?;
    let back = Recording::read(&file, None, |_| false);
    let back = back.map_err(MergeError::format(written))?;
    if let Some(what) = back.describe_missing() {
        return Ok(Some(what));
    }
    let rows = |recording: &Recording, stream| {
        let contents = recording.streams.get(stream);
        contents.map(|contents| contents.totals.rows.clone())
    };
    let streams = original.streams.keys();
    if !streams
        .clone()
        .all(|id| rows(&back, id) == rows(original, id))
    {
        return Ok(Some("counts that could not be written".to_owned()));
    }
    let mut chunks = back.streams.values().flat_map(|contents| &contents.chunks);
    let unreadable = chunks.find_map(|chunk| back.load(&file, chunk).err());
    Ok(unreadable.map(|error| format!("a chunk that cannot be read: {error}")))
}

/// Removes a live file; that another process has done so is as good.
fn remove(live: &Path) -> Result<()> {
    match fs::remove_file(live) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(MergeError::Io {
            action: "remove",
            path: live.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Copies the first `length` bytes of a recording.
fn copy(
    input: &InputRecording,
    from: &FileAt,
    length: u64,
    to: &mut WholeFile,
    not_written: &impl Fn(io::Error) -> OutputError,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<()> {
    const STEP: u64 = 1 << 20;
    let mut bytes = Vec::new();
    for offset in (0..length).step_by(STEP as usize) {
        bytes.resize((length - offset).min(STEP) as usize, 0);
        let read = from.read_exact_at(offset, &mut bytes);
        read.map_err(MergeError::format(&input.path))?;
        to.write_all(&bytes).map_err(not_written)?;
        if progress(offset + bytes.len() as u64).is_break() {
            return Err(MergeError::Stopped);
        }
    }
    Ok(())
}
