//! Where results go.

use std::io::{self, Write};

pub use annals_export::UsageError;

/// A command's outcome, beside its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finding {
    /// Something was lost: exit code 3.
    pub has_loss: bool,
    /// A check did not hold: exit code 1.
    pub has_failed: bool,
}

impl Finding {
    /// All is well.
    pub const FINE: Self = Self {
        has_loss: false,
        has_failed: false,
    };

    /// Something was lost, or not.
    pub const fn loss(has_loss: bool) -> Self {
        Self {
            has_loss,
            has_failed: false,
        }
    }
}

/// Writes one JSON object, pretty, with a line end.
///
/// # Errors
/// If the output cannot be written.
pub fn json(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
