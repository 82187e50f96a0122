//! Damaged blocks of an overview: answers without them are coarser, or read events instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use annals_format::{BinRow, MessageRow, MetricRow, OverviewRow};
use annals_merger::{MergeError, TraceFile};

/// Blocks that are checked before the first answer. Those of longer traces are checked when an answer needs them.
const MOST_CHECKED: usize = 512;

/// The damaged blocks of an overview that were read.
#[derive(Debug, Default)]
pub(crate) struct OverviewDamage {
    /// What is wrong with each, by offset.
    found: Mutex<BTreeMap<u64, String>>,
    checked: OnceLock<()>,
}

impl OverviewDamage {
    /// Returns the rows of a block. `None` if it cannot be read, which is noted.
    pub(crate) fn rows<R: BinRow>(&self, trace: &TraceFile, entry: &R::Entry) -> Option<Vec<R>> {
        let note = |error: &MergeError| {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            let offset = R::offset(entry);
            found.entry(offset).or_insert_with(|| error.without_path());
        };
        trace.load_bins(entry).inspect_err(note).ok()
    }

    /// Reads the blocks once, and returns what is wrong with those that were read so far.
    pub(crate) fn check(&self, trace: &TraceFile) -> Vec<String> {
        self.checked.get_or_init(|| {
            let messages = trace.message_overview().map(|of| &of.blocks[..]);
            let metrics = trace.metric_overview().map(|of| &of.blocks[..]);
            for entry in trace.overview().iter().take(MOST_CHECKED) {
                self.rows::<OverviewRow>(trace, entry);
            }
            for entry in messages.unwrap_or_default().iter().take(MOST_CHECKED) {
                self.rows::<MessageRow>(trace, entry);
            }
            for entry in metrics.unwrap_or_default().iter().take(MOST_CHECKED) {
                self.rows::<MetricRow>(trace, entry);
            }
        });
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = found.values().take(20);
        shown.map(|what| format!("overview: {what}")).collect()
    }
}
