//! The files of an archive under construction: events of locations piece by piece, definitions, markers, and their
//! final names.

use super::ranks::LocationCounts;
use annals_foreign::otf2::records::ids;
use annals_foreign::otf2::{Datum, EventToWrite, EventWriter, RecordWriter, put_record};
use annals_merger::{MergeError, Result, create_beside, sync_parent, sync_tree};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub(crate) const DEFINITION_CHUNK: u64 = 4 << 20;

/// Bytes that wait for one location.
const MOST_WAITING: usize = 256 << 10;

/// Bytes of memory for all of them.
const MOST_ALLOCATED: usize = 128 << 20;

/// Files that are kept open.
const MOST_OPEN: usize = 128;

/// File name that marks an archive's directory of events as incomplete until the anchor is written.
pub(crate) const UNFINISHED: &str = ".annals-unfinished";

/// The events of a location on their way to its file.
pub(super) struct Waiting {
    pub(super) path: PathBuf,
    pub(super) writer: EventWriter,
    /// Bytes of the file.
    written: u64,
    /// Events of messages and collectives.
    communication: u64,
}

impl Waiting {
    /// Returns how many events it has so far.
    pub(super) fn counts(&self) -> LocationCounts {
        LocationCounts {
            events: self.writer.count(),
            communication: self.communication,
        }
    }
}

/// The archive during its creation: in a temporary directory next to its final path.
pub(crate) struct Files {
    pub(crate) temporary: PathBuf,
    pub(crate) stem: String,
    pub(crate) locations: Vec<Waiting>,
    pub(crate) open: HashMap<usize, File>,
    /// Bytes of memory of the locations' buffers.
    allocated: usize,
    pub(crate) written: u64,
    pub(crate) is_complete: bool,
}

impl Files {
    pub(crate) fn create(anchor: &Path) -> Result<Self> {
        let stem = anchor.file_stem().unwrap_or_default().to_string_lossy();
        let failed = MergeError::io("create", anchor);
        if let Some(parent) = anchor.parent() {
            fs::create_dir_all(parent).map_err(&failed)?;
        }
        let named = anchor.with_file_name(format!("{stem}.otf2"));
        let created = create_beside(&named, |path| fs::create_dir(path));
        let ((), temporary) = created.map_err(&failed)?;
        let files = Self {
            temporary,
            stem: stem.into_owned(),
            locations: Vec::new(),
            open: HashMap::new(),
            allocated: 0,
            written: 0,
            is_complete: false,
        };
        fs::create_dir(files.temporary.join(&files.stem)).map_err(&failed)?;
        Ok(files)
    }

    pub(crate) fn add_locations(&mut self, ids: impl Iterator<Item = u64>, chunk_size: u64) {
        for id in ids {
            let path = self.temporary.join(&self.stem).join(format!("{id}.evt"));
            self.locations.push(Waiting {
                path,
                writer: EventWriter::new(chunk_size),
                written: 0,
                communication: 0,
            });
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, place: usize, event: EventToWrite<'_>) -> Result<()> {
        let location = &mut self.locations[place];
        let before = location.writer.allocated();
        let written = location.writer.write(event);
        written.map_err(MergeError::format(&location.path))?;
        let is_communication = (ids::MPI_SEND..=ids::MPI_COLLECTIVE_END).contains(&event.id);
        location.communication += u64::from(is_communication);
        self.allocated += location.writer.allocated() - before;
        if location.writer.pending() >= MOST_WAITING {
            self.flush(place)?;
        } else if self.allocated >= MOST_ALLOCATED {
            for place in 0..self.locations.len() {
                self.flush(place)?;
                self.release(place);
            }
        }
        Ok(())
    }

    fn release(&mut self, place: usize) {
        let writer = &mut self.locations[place].writer;
        self.allocated -= writer.allocated();
        writer.release();
    }

    /// Writes the last events of a location; returns how many it has.
    pub(super) fn finish(&mut self, place: usize) -> Result<u64> {
        let writer = &mut self.locations[place].writer;
        let before = writer.allocated();
        writer.finish();
        let count = writer.count();
        self.allocated += writer.allocated() - before;
        self.flush(place)?;
        self.release(place);
        Ok(count)
    }

    pub(crate) fn flush(&mut self, place: usize) -> Result<()> {
        let is_few = self.locations.len() <= MOST_OPEN;
        let location = &mut self.locations[place];
        let bytes = location.writer.bytes();
        if bytes.is_empty() && location.writer.patches.is_empty() {
            return Ok(());
        }
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&place) {
            self.open.clear();
        }
        let entry = self.open.entry(place);
        let file = match entry {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let mut options = OpenOptions::new();
                let file = options.write(true).create(true).open(&location.path);
                entry.insert(file.map_err(MergeError::io("create", &location.path))?)
            }
        };
        let failed = MergeError::io("write", &location.path);
        file.write_all_at(bytes, location.written)
            .map_err(&failed)?;
        let length = bytes.len() as u64;
        location.written += length;
        self.written += length;
        for (at, value) in location.writer.patches.drain(..) {
            file.write_all_at(&value.to_le_bytes(), at)
                .map_err(&failed)?;
        }
        location.writer.clear();
        // The buffer is kept for later events, unless there are too many of them.
        if !is_few {
            self.release(place);
        }
        Ok(())
    }

    pub(crate) fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.temporary.join(name);
        self.written += bytes.len() as u64;
        fs::write(&path, bytes).map_err(MergeError::io("write", &path))
    }

    /// Moves the archive to its final name, or leaves nothing under that name.
    pub(crate) fn complete(&mut self, anchor: &Path) -> Result<()> {
        let mut placed = Vec::new();
        let outcome = self.place(anchor, &mut placed);
        if outcome.is_ok() {
            self.is_complete = true;
            return outcome;
        }
        for path in placed {
            let _ = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
        outcome
    }

    /// Moves everything to its final path, and notes what was moved. The anchor is last: without it there is no
    /// archive.
    pub(crate) fn place(&self, anchor: &Path, placed: &mut Vec<PathBuf>) -> Result<()> {
        let to = |name: &str| anchor.with_file_name(name);
        let stem = self.stem.clone();
        let events = to(&stem);
        let unfinished = |events: &Path| File::create(events.join(UNFINISHED)).map(drop);
        if events.exists() {
            // Checked when it was begun: it is of the archive that is replaced. Its events go in one step.
            let replaced = self.temporary.join("replaced");
            unfinished(&events)
                .and_then(|()| match fs::remove_file(anchor) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                    _ => fs::rename(&events, &replaced),
                })
                .map_err(MergeError::io("replace", &events))?;
        }
        let made = self.temporary.join(&stem);
        unfinished(&made).map_err(MergeError::io("write", &made))?;
        sync_tree(&self.temporary).map_err(MergeError::io("sync", &self.temporary))?;
        let anchor_name = format!("{stem}.otf2");
        for name in [
            stem.clone(),
            format!("{stem}.def"),
            format!("{stem}.marker"),
            anchor_name.clone(),
        ] {
            let (from, to) = (self.temporary.join(&name), to(&name));
            if name == anchor_name {
                // What the anchor names is on the disk before it is.
                sync_parent(&to)?;
            }
            if from.exists() {
                fs::rename(&from, &to).map_err(MergeError::io("write", &to))?;
                placed.push(to);
            } else if name.ends_with(".marker") {
                let _ = fs::remove_file(&to);
            }
        }
        let _ = fs::remove_file(events.join(UNFINISHED));
        let _ = fs::remove_dir_all(&self.temporary);
        sync_parent(anchor)?;
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}

/// The file of markers under construction.
pub(crate) struct MarkerFile {
    pub(crate) writer: RecordWriter,
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    /// Bytes that wait.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the file.
    pub(crate) written: u64,
    /// The definition of the markers that report losses.
    pub(crate) of_losses: Option<u64>,
}

impl MarkerFile {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(MergeError::io("create", &path))?;
        Ok(Self {
            writer: RecordWriter::new(DEFINITION_CHUNK),
            path,
            file,
            bytes: Vec::new(),
            written: 0,
            of_losses: None,
        })
    }

    pub(crate) fn write(
        &mut self,
        record: &'static annals_foreign::otf2::Record,
        data: &[Datum],
    ) -> Result<()> {
        let mut record_bytes = Vec::new();
        put_record(record, data, &mut record_bytes);
        let written = self.writer.write(&record_bytes, &mut self.bytes);
        written.map_err(MergeError::format(&self.path))?;
        match self.bytes.len() {
            waiting if waiting >= MOST_WAITING => self.flush(),
            _ => Ok(()),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        let written = self.file.write_all_at(&self.bytes, self.written);
        written.map_err(MergeError::io("write", &self.path))?;
        self.written += self.bytes.len() as u64;
        self.bytes.clear();
        Ok(())
    }

    /// Writes the end; returns the size of the file in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let writer = std::mem::replace(&mut self.writer, RecordWriter::new(DEFINITION_CHUNK));
        writer.finish(&mut self.bytes);
        self.flush()?;
        Ok(self.written)
    }
}
