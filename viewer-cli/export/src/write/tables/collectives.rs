//! The table of collective operations.

use annals_analysis::CollectiveInstance;
use annals_format::StreamId;

use super::ColumnType::{Integer, Name};
use super::{Column, ExportedRow, column, maybe_integer, words};

/// A collective operation that all members have begun.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    operation: String,
    communicator: String,
    members: u64,
    first_begin_ns: i64,
    last_begin_ns: i64,
    wait_ns: i64,
    last: StreamId,
    is_uncertain: bool,
}

impl Operation {
    /// `loss_ns` is when the first loss began that may have changed operations.
    pub(super) fn of(instance: &CollectiveInstance<'_>, loss_ns: Option<i64>) -> Self {
        let last_ns = instance.last.time_ns;
        let begins = || instance.begins.iter().map(|begin| begin.time_ns);
        Self {
            operation: instance.operation_name(),
            communicator: instance.communicator.to_owned(),
            members: instance.begins.len() as u64,
            first_begin_ns: begins().min().unwrap_or(last_ns),
            last_begin_ns: last_ns,
            wait_ns: begins().map(|begin_ns| last_ns - begin_ns).sum(),
            last: instance.last.stream,
            is_uncertain: loss_ns.is_some_and(|loss_ns| loss_ns <= last_ns),
        }
    }
}

impl ExportedRow for Operation {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("operation", Name, |_, rows| {
            words(rows, |row| Some(&row.operation))
        }),
        Column::new("communicator", Name, |_, rows| {
            words(rows, |row| Some(&row.communicator))
        }),
        column!("members", unsigned, |row| row.members),
        column!("first_begin_ns", integer, |row| row.first_begin_ns),
        column!("last_begin_ns", integer, |row| row.last_begin_ns),
        Column::nullable("wait_ns", Integer, |shared, rows| {
            let are_known = shared.waits.are_known();
            maybe_integer(rows, |row| are_known.then_some(row.wait_ns))
        }),
        column!("last_rank", integer, |row, shared| shared
            .place(row.last)
            .rank),
        column!("is_uncertain", flag, |row| row.is_uncertain),
    ];
}
