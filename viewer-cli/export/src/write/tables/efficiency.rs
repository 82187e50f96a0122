//! The table of efficiencies: a row for each model.

use annals_analysis::Efficiencies;

use super::ColumnType::{Float, Name};
use super::{Column, TableRow, float, maybe_float, words};

/// The efficiencies of a model.
pub(crate) type OfModel = Efficiencies;

impl TableRow for Efficiencies {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("model", Name, |_, rows| {
            words(rows, |row| Some(row.model.name()))
        }),
        Column::new("parallel", Float, |_, rows| float(rows, |row| row.parallel)),
        Column::nullable("load_balance", Float, |_, rows| {
            maybe_float(rows, |row| row.load_balance)
        }),
        Column::nullable("communication", Float, |_, rows| {
            maybe_float(rows, |row| row.communication)
        }),
        Column::nullable("serialisation", Float, |_, rows| {
            maybe_float(rows, |row| row.serialisation)
        }),
        Column::nullable("transfer", Float, |_, rows| {
            maybe_float(rows, |row| row.transfer)
        }),
    ];
}
