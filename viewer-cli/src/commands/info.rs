//! `trace-cli info`: what a trace or a set of recordings is.

use std::io::Write;

use super::{InputArguments, warn_of_damage};
use crate::output::{self, Finding};
use crate::views::Info;

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &InputArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.open_heads()?;
    let outcome = opened.summary()?;
    warn_of_damage(&opened, &outcome);
    let info = Info::of(&opened, &outcome);
    if arguments.json {
        output::json(out, &info)?;
    } else {
        out.write_all(info.render(arguments.screen()).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now || info.lacks_mpi()))
}
