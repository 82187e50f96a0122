//! How an opened input is read: with how many threads, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{MergeError, Result};

/// A flag that ends reads: those of the readers that [`Reader::stopped_by`](crate::Reader::stopped_by) returned for it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Ends the reads, before the next chunk of each. They return [`MergeError::Stopped`].
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether reads are to end.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`MergeError::Stopped`] if reads are to end.
    pub(super) fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(MergeError::Stopped),
            false => Ok(()),
        }
    }
}

/// How chunks are read.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// Number of threads that decode.
    pub(super) jobs: usize,
    /// What ends a read.
    pub(super) stop: StopFlag,
    /// Number of chunks that were decoded so far, by all readers of the opened input.
    pub(super) decoded: Arc<AtomicU64>,
}

impl Work {
    /// Reads with a number of threads, to the end.
    pub(super) fn with(jobs: usize) -> Self {
        Self {
            jobs: jobs.max(1),
            stop: StopFlag::default(),
            decoded: Arc::default(),
        }
    }

    /// Counts a chunk as decoded.
    pub(super) fn count(&self) {
        self.decoded.fetch_add(1, Ordering::Relaxed);
    }
}
