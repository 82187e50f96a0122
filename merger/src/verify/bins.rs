//! Compares what the overview of a trace has of its events with the events.

use std::hash::{Hash, Hasher as _};

use annals_format::{BinRow, MessageOverview, MessageRow, MetricRow};
use rustc_hash::FxHasher;

use crate::error::Result;
use crate::messages::MessageLosses;
use crate::overview::event_bins::{BinSource, FoundBins};
use crate::read::Reader;
use crate::read::trace_file::TraceFile;
use crate::report::DamageReport;

/// Returns what extracts the values of bins that a trace has: nothing if it has none.
pub(super) fn source_of(opened: &Reader) -> Result<BinSource> {
    let Some(trace) = opened.trace() else {
        return Ok(BinSource::default());
    };
    let has = (
        trace.message_overview().is_some(),
        trace.metric_overview().is_some(),
    );
    if has == (false, false) {
        return Ok(BinSource::default());
    }
    let (definitions, summary) = (opened.definitions(), opened.summary()?);
    let losses = MessageLosses::of(definitions, &summary.totals, &summary.losses);
    let mut source = BinSource::of(definitions, losses);
    if !has.0 {
        source.take_messages();
    }
    if !has.1 {
        source.leave_out_metrics();
    }
    Ok(source)
}

/// Returns what of the stored values is not what the events add up to. Blocks that cannot be read are added to `unreadable`.
pub(super) fn differences(
    trace: &TraceFile,
    found: &FoundBins,
    unreadable: &mut Vec<DamageReport>,
) -> Vec<&'static str> {
    let mut differences = Vec::new();
    if let Some(stored) = trace.message_overview() {
        let mut rows = ListSum::default();
        let add = |row: &MessageRow| rows.add(row);
        let is_whole = each_row(trace, &stored.blocks, unreadable, add);
        let is_same = found.messages.as_ref().is_some_and(|(overview, found)| {
            let values = |of: &MessageOverview| (of.totals, of.least_levels.clone());
            values(overview) == values(stored) && (!is_whole || ListSum::of(found) == rows)
        });
        if !is_same {
            differences.push("messages of the overview");
        }
    }
    if let Some(stored) = trace.metric_overview() {
        let mut rows = ListSum::default();
        let add = |row: &MetricRow| rows.add(row);
        let is_whole = each_row(trace, &stored.blocks, unreadable, add);
        let is_same = found.metrics.as_ref().is_some_and(|(overview, found)| {
            overview.least_level == stored.least_level && (!is_whole || ListSum::of(found) == rows)
        });
        if !is_same {
            differences.push("metrics of the overview");
        }
    }
    differences
}

/// Visits the rows of blocks. Returns whether all could be read; the others are added to `unreadable`.
pub(super) fn each_row<R: BinRow>(
    trace: &TraceFile,
    blocks: &[R::Entry],
    unreadable: &mut Vec<DamageReport>,
    mut visit: impl FnMut(&R),
) -> bool {
    let damaged = unreadable.len();
    for entry in blocks {
        match trace.load_bins(entry) {
            Ok(rows) => rows.iter().for_each(&mut visit),
            // It costs no event: readers read these.
            Err(error) => unreadable.push(DamageReport {
                offset: R::offset(entry),
                length: 0,
                what: format!("overview: {}", error.without_path()),
            }),
        }
    }
    damaged == unreadable.len()
}

/// Rows in order: how many, and a digest of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct ListSum {
    rows: u64,
    digest: u64,
}

impl ListSum {
    fn of<R: Hash>(rows: &[R]) -> Self {
        let mut sum = Self::default();
        rows.iter().for_each(|row| sum.add(row));
        sum
    }

    fn add<R: Hash>(&mut self, row: &R) {
        let mut hasher = FxHasher::default();
        self.digest.hash(&mut hasher);
        row.hash(&mut hasher);
        self.rows += 1;
        self.digest = hasher.finish();
    }
}
