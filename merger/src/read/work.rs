//! How an opened input is read: with how many threads, and until when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::workers::StopFlag;

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
