//! The table of regions, by location.

use annals_analysis::RegionRow;

use super::ColumnType::{Flag, Integer, Text, Unsigned};
use super::{Column, TableRow, flag, maybe_integer, text, unsigned};

impl TableRow for RegionRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("region", Text, |_, rows| text(rows, |row| Some(&row.name))),
        Column::nullable("rank", Integer, |_, rows| {
            maybe_integer(rows, |row| row.rank.map(i64::from))
        }),
        Column::nullable("location", Text, |_, rows| {
            text(rows, |row| row.location.as_deref())
        }),
        Column::new("file", Text, |_, rows| text(rows, |row| Some(&row.file))),
        Column::nullable("line", Integer, |_, rows| {
            maybe_integer(rows, |row| Some(row.line.into()))
        }),
        Column::new("calls", Unsigned, |_, rows| unsigned(rows, |row| row.calls)),
        Column::new("uncertain_calls", Unsigned, |_, rows| {
            unsigned(rows, |row| row.uncertain_calls)
        }),
        Column::new("uncertain_calls_is_lower_bound", Flag, |_, rows| {
            flag(rows, |row| row.uncertain_calls_is_lower_bound)
        }),
        Column::nullable("inclusive_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| Some(row.inclusive_ns))
        }),
        Column::nullable("exclusive_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| Some(row.exclusive_ns))
        }),
        Column::nullable("min_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.min_ns)
        }),
        Column::nullable("mean_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.mean_ns)
        }),
        Column::nullable("max_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.max_ns)
        }),
        Column::nullable("p50_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.p50_ns)
        }),
        Column::nullable("p95_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.p95_ns)
        }),
        Column::nullable("p99_ns", Integer, |_, rows| {
            maybe_integer(rows, |row| row.p99_ns)
        }),
        Column::new("open_calls", Unsigned, |_, rows| {
            unsigned(rows, |row| row.open_calls)
        }),
        Column::new("unleft_calls", Unsigned, |_, rows| {
            unsigned(rows, |row| row.unleft_calls)
        }),
        Column::new("unmatched_leaves", Unsigned, |_, rows| {
            unsigned(rows, |row| row.unmatched_leaves)
        }),
        Column::new("time_is_uncertain", Flag, |_, rows| {
            flag(rows, |row| row.time_is_uncertain)
        }),
    ];
}
