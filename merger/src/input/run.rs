//! A run: events of many streams in order, in a temporary file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use annals_format::{LossPoint, ReadAt, TraceChunk, TraceLoss, read_trace_chunk};

use crate::axis::batch::Batch;
use crate::axis::unify::Numbers;
use crate::error::{MergeError, Result};
use crate::input::stream::LossPlace;
use crate::input::trace::Queue;

/// The file that contains runs, one after the other. It has no name, so that it is freed when the
/// program ends.
#[derive(Debug)]
pub(crate) struct RunFile {
    directory: PathBuf,
    file: File,
    len: Mutex<u64>,
}

impl RunFile {
    /// # Errors
    /// If none can be made in this directory.
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory)
            .map_err(MergeError::io("create a temporary file in", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            file,
            len: Mutex::new(0),
        })
    }

    /// Returns where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Writes a block; returns its offset.
    pub(crate) fn append(&self, block: &[u8]) -> std::io::Result<u64> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *len;
        self.file.write_all_at(block, offset)?;
        *len += block.len() as u64;
        Ok(offset)
    }
}

impl ReadAt for RunFile {
    fn len(&self) -> annals_format::Result<u64> {
        ReadAt::len(&self.file)
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> annals_format::Result<()> {
        ReadAt::read_exact_at(&self.file, offset, buffer)
    }
}

/// A run: the positions of its chunks, and losses that are placed at no event.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Offset, first time, events.
    pub(crate) chunks: Vec<(u64, i64, u64)>,
    pub(crate) losses: Vec<(LossPlace, TraceLoss)>,
}

/// Reads a run.
#[derive(Debug)]
pub(crate) struct RunReader<'a> {
    file: Arc<RunFile>,
    pub(crate) numbers: &'a Numbers,
    chunks: Vec<(u64, i64, u64)>,
    pub(crate) queue: Queue,
    pub(crate) failure: Option<MergeError>,
}

impl<'a> RunReader<'a> {
    pub(crate) fn new(file: Arc<RunFile>, run: Run, numbers: &'a Numbers) -> Self {
        let chunks = run.chunks.iter().enumerate();
        let chunks = chunks.map(|(number, (_, first_ns, events))| (number, *first_ns, *events));
        let mut queue = Queue::new(chunks);
        queue.losses = run.losses;
        Self {
            file,
            numbers,
            chunks: run.chunks,
            queue,
            failure: None,
        }
    }

    pub(crate) fn decode(&self, number: usize) -> annals_format::Result<TraceChunk> {
        read_trace_chunk(&*self.file, self.chunks[number].0)
    }

    pub(crate) fn take(&mut self, decoded: annals_format::Result<TraceChunk>) {
        match decoded {
            Ok(chunk) => {
                let first = self.queue.next_batch();
                let losses = chunk.losses.iter().map(|(before, loss)| {
                    let place = match chunk.point_of(*before, loss) {
                        LossPoint::Before(_, group, index) => {
                            LossPlace::Event(first + u64::from(group), index as usize)
                        }
                        LossPoint::At(time_ns) => LossPlace::Time(time_ns),
                    };
                    (place, *loss)
                });
                self.queue.losses.extend(losses);
                for group in chunk.groups {
                    let runs: Vec<_> = group.runs().collect();
                    let types = group.types.iter();
                    let types = types.map(|columns| columns.event_type).collect();
                    self.queue.push(Batch::of_group(group, types), &runs);
                }
                self.queue.pass();
            }
            Err(source) => {
                self.queue.pass();
                self.failure.get_or_insert(MergeError::Format {
                    path: self.file.directory.clone(),
                    error: source,
                });
            }
        }
    }
}
