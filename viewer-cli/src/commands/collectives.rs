//! `trace-cli collectives`: waits in collective operations.

use std::io::Write;

use anyhow::bail;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::views::{collective_sentence, collective_table, incomplete_collectives, mpi_note};

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

    /// A row for each operation and communicator, as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
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
    let Some((found, outcome)) = annals_analysis::collectives(&opened, &filter)? else {
        bail!("no event type begins collective operations: nothing has the role collective-begin");
    };
    warn_of_damage(&opened, &outcome);
    if arguments.input.json {
        output::json(out, &found)?;
    } else if arguments.csv {
        let columns = [
            "operation",
            "communicator",
            "members",
            "count",
            "wait_ns",
            "mean_imbalance_ns",
            "max_imbalance_ns",
            "is_uncertain",
        ];
        let rows = found.collectives.iter().map(|row| {
            (
                &row.operation,
                &row.communicator,
                row.members,
                row.count,
                row.wait_ns,
                row.mean_imbalance_ns,
                row.max_imbalance_ns,
                row.is_uncertain,
            )
        });
        output::csv(out, &columns, rows)?;
    } else {
        if let Some(note) = mpi_note(&found.mpi) {
            writeln!(out, "{note}")?;
        }
        let table = collective_table(&found.collectives);
        writeln!(out, "{}\n", collective_sentence(&found))?;
        out.write_all(table.render(arguments.input.screen()).as_bytes())?;
        out.write_all(incomplete_collectives(&found).as_bytes())?;
    }
    Ok(Finding::loss(
        outcome.has_skipped_now || found.mpi.has_loss(),
    ))
}
