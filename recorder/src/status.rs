//! How a recorder is doing: what it reports, and the counters that the report is made of.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// How a recorder is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The recording's file.
    pub path: PathBuf,
    /// Why the live file could not be created.
    /// `None` means that committed events survive when the process is killed.
    pub not_kill_safe: Option<String>,
    /// Why writing failed, once it did; events since then are dropped, or wait in the live file.
    pub storage_failure: Option<String>,
    /// Events raised, the dropped and suppressed ones included. While threads record, this and the
    /// next two are from slightly different moments.
    pub raised: u64,
    /// Events dropped.
    pub dropped: u64,
    /// Events that sampling and rate limits left out.
    pub suppressed: u64,
    /// How long events waited for a free page, all threads together.
    pub blocked: Duration,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Bytes written to the recording.
    pub written_bytes: u64,
    /// Buffer pages that are free.
    pub free_pages: usize,
    /// Buffer pages there are.
    pub pages: usize,
    /// Events raised after the recording was finished, or in a forked child.
    pub raised_after_finish: u64,
    /// Events raised with an event type of another recorder; nothing of them is recorded.
    pub misused: u64,
    /// Whether the recording is finished.
    pub is_finished: bool,
}

/// Counters that the status shows.
#[derive(Debug, Default)]
pub(crate) struct StatusCounters {
    pub(crate) after_cut: AtomicU64,
    pub(crate) misused: AtomicU64,
    pub(crate) has_storage_failed: AtomicBool,
    pub(crate) blocked_ns: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    /// Sums of the streams that were closed: raised, dropped, suppressed.
    pub(crate) closed: [AtomicU64; 3],
}
