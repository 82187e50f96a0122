//! The table of the critical path: what was done on it.

use annals_analysis::PathRegion;

use super::ColumnType::{Float, Integer, Text};
use super::{Column, TableRow, float, integer, text};

/// A region on the critical path.
pub(crate) type OnPath = PathRegion;

impl TableRow for PathRegion {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::nullable("region", Text, |_, rows| {
            text(rows, |row| row.region.as_deref())
        }),
        Column::new("path_ns", Integer, |_, rows| {
            integer(rows, |row| row.path_ns)
        }),
        Column::new("share", Float, |_, rows| float(rows, |row| row.share)),
        Column::new("mean_ns", Integer, |_, rows| {
            integer(rows, |row| row.mean_ns)
        }),
        Column::new("imbalance_ns", Integer, |_, rows| {
            integer(rows, |row| row.imbalance_ns)
        }),
    ];
}
