//! Where results go.

use std::io::{self, Write};

use annals_analysis::{Row, Value, WithTotal, data_columns};
use clap::Args;
use serde::Serialize;

use crate::table::{Screen, Table};
use crate::time;

pub use annals_export::UsageError;

/// A command's outcome, in addition to its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finding {
    /// Something was lost: exit code 3.
    pub has_loss: bool,
    /// A check did not hold: exit code 1.
    pub has_failed: bool,
    /// A job that was watched is stuck: exit code 4.
    pub is_stuck: bool,
}

impl Finding {
    /// Everything succeeded.
    pub const FINE: Self = Self {
        has_loss: false,
        has_failed: false,
        is_stuck: false,
    };

    /// Returns the outcome of a command that did or did not find a loss.
    pub const fn loss(has_loss: bool) -> Self {
        Self {
            has_loss,
            ..Self::FINE
        }
    }
}

/// Checks that a part of the program is built in: one of the features of this crate.
///
/// # Errors
/// If it is not.
pub fn check_built_in(is_built_in: bool, feature: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        is_built_in,
        "{feature}: not built into this program (feature `{feature}`): `cargo install --path viewer-cli` builds it with all"
    );
    Ok(())
}

/// Writes one JSON object, pretty, with a line end.
///
/// # Errors
/// If the output cannot be written.
pub fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Writes comma-separated values (RFC 4180): a line of the columns that programs read, then one for each row. A value that is missing is
/// an empty field.
///
/// # Errors
/// If the output cannot be written.
pub fn csv<T: Row>(out: &mut dyn Write, rows: &[T]) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(data_columns::<T>().map(|column| column.name))?;
    for row in rows {
        for column in data_columns::<T>() {
            match (column.get)(row) {
                Value::None => writer.write_field(""),
                Value::Integer(value) => writer.write_field(value.to_string()),
                Value::Unsigned(value) => writer.write_field(value.to_string()),
                Value::Float(value) => writer.write_field(value.to_string()),
                Value::Flag(value) => writer.write_field(value.to_string()),
                Value::Text(value) => writer.write_field(&*value),
            }?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}

/// Which rows of an answer are printed.
#[derive(Clone, Debug, Args)]
pub struct RowsArguments {
    /// Most rows [default: as many as a terminal has lines; otherwise all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,

    /// Rows as comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl RowsArguments {
    /// Leaves the rows that are asked for. Returns how many there were.
    pub fn cut<T>(&self, rows: &mut Vec<T>) -> usize {
        let total = rows.len();
        rows.truncate(self.top.unwrap_or(usize::MAX));
        total
    }

    /// Writes an answer as JSON. `total` is the number of its rows before they were cut.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn json<Answer: Serialize>(
        &self,
        out: &mut dyn Write,
        answer: &Answer,
        total: usize,
    ) -> io::Result<()> {
        let rows_total = total;
        json(out, &WithTotal { answer, rows_total })
    }

    /// Writes the rows that are asked for: as comma-separated values, or as a table, and then on standard error how many are left out.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn put<T: Row>(&self, out: &mut dyn Write, rows: &[T], screen: Screen) -> io::Result<()> {
        if self.csv {
            return csv(out, &rows[..rows.len().min(self.top.unwrap_or(usize::MAX))]);
        }
        let shown = &rows[..rows.len().min(self.top.unwrap_or(screen.rows))];
        self.put_table(out, Table::of(shown), screen, rows.len())
    }

    /// Does the same with a table that is made already; `all` is the number of rows.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn put_table(
        &self,
        out: &mut dyn Write,
        mut table: Table,
        screen: Screen,
        all: usize,
    ) -> io::Result<()> {
        table.truncate(self.top.unwrap_or(screen.rows));
        out.write_all(table.render(screen).as_bytes())?;
        let shown = table.rows().len();
        if shown < all {
            // After the table, if both are written to a terminal.
            out.flush()?;
            let [shown, all] = [shown, all].map(|count| time::grouped(count as u64));
            eprintln!("{shown} of {all} rows; --top N and --csv show more");
        }
        Ok(())
    }
}
