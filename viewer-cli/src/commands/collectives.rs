//! `trace-cli collectives`: waits in collective operations.

use std::io::Write;

use anyhow::bail;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments, UsageError};
use crate::views::{collective_sentence, incomplete_collectives, mpi_note};

/// Collective operations: the last member to arrive, and how long the others waited.
///
/// The k-th begin of a communicator in a process belongs to the k-th in the others. An operation counts when all
/// members that the trace knows have begun it and the last of them did so in the window. A member waits from its
/// begin to the last one's. Imbalance is from the first begin to the last. `~` marks what a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli collectives run.annals\n  \
                  trace-cli collectives run.annals --json --from 1s")]
pub struct CollectivesArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    #[command(flatten)]
    rows: RowsArguments,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, has no collective operations, or the output cannot be written.
pub fn run(arguments: &CollectivesArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    if filter.is_by_region() {
        let why = "collective operations are not chosen by region: leave --region out, or choose with --rank and --event";
        return Err(UsageError(why.to_owned()).into());
    }
    let Some((mut found, outcome)) = annals_analysis::collectives(&opened, &filter)? else {
        bail!("no event type begins collective operations: nothing has the role collective-begin");
    };
    warn_of_damage(&opened, &outcome);
    let screen = arguments.input.screen();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut found.collectives);
        arguments.rows.json(out, &found, total)?;
    } else if arguments.rows.csv {
        arguments.rows.put(out, &found.collectives, screen)?;
    } else {
        if let Some(note) = mpi_note(&found.mpi) {
            writeln!(out, "{note}")?;
        }
        writeln!(out, "{}\n", collective_sentence(&found))?;
        arguments.rows.put(out, &found.collectives, screen)?;
        out.write_all(incomplete_collectives(&found).as_bytes())?;
    }
    Ok(Finding::loss(
        outcome.has_skipped_now || found.mpi.has_loss(),
    ))
}
