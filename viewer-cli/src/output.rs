//! Where results go.

use std::io::{self, Write};

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

/// Writes comma-separated values (RFC 4180): a line of columns, then one for each row. A value that is missing is an empty
/// field.
///
/// # Errors
/// If the output cannot be written.
pub fn csv<Row: serde::Serialize>(
    out: &mut dyn Write,
    columns: &[&str],
    rows: impl IntoIterator<Item = Row>,
) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(out);
    writer.write_record(columns)?;
    for row in rows {
        writer.serialize(row)?;
    }
    writer.flush()
}
