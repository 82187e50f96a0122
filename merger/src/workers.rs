//! The threads that work on a merge's parts, and how their progress is reported.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::ThreadPool;
use rayon::prelude::*;

use crate::error::{MergeError, Result};

/// Threads that work unless the caller says otherwise: one for each processor.
pub(crate) fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns a progress callback that does nothing.
pub const fn no_progress(_events: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A flag that ends reads: those of the readers that [`Reader::stopped_by`](crate::Reader::stopped_by) returned for it, and of inputs that are being
/// [opened](crate::ReadOptions::stop).
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
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(MergeError::Stopped),
            false => Ok(()),
        }
    }
}

/// Threads that share work; the caller itself if there is one job.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `None` if the caller works itself, without waiting for a thread.
    pool: Option<ThreadPool>,
}

impl Workers {
    /// Creates `jobs` threads.
    ///
    /// # Errors
    /// If they cannot be started.
    pub(crate) fn new(jobs: usize) -> Result<Self> {
        if jobs < 2 {
            return Ok(Self { pool: None });
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
        let pool = pool.map_err(|error| MergeError::Threads {
            source: std::io::Error::other(error),
        })?;
        Ok(Self { pool: Some(pool) })
    }

    /// Returns the threads; `None` if the caller works itself.
    pub(crate) const fn pool(&self) -> Option<&ThreadPool> {
        self.pool.as_ref()
    }

    /// Returns the number of threads.
    pub(crate) fn count(&self) -> usize {
        self.pool
            .as_ref()
            .map_or(1, ThreadPool::current_num_threads)
    }

    /// Returns what `work` makes of each item, in order.
    pub(crate) fn map<I, T: Send, R: Send>(
        &self,
        items: I,
        work: impl Fn(T) -> R + Sync + Send,
    ) -> Vec<R>
    where
        I: IntoIterator<Item = T>
            + IntoParallelIterator<Item = T, Iter: IndexedParallelIterator>
            + Send,
    {
        match &self.pool {
            None => items.into_iter().map(work).collect(),
            Some(pool) => pool.install(|| items.into_par_iter().map(work).collect()),
        }
    }
}
