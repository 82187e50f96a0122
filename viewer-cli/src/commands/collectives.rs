//! `trace-cli collectives`: waits in collective operations.

use std::io::Write;

use annals_analysis::{CollectiveRow, Collectives};
use anyhow::bail;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::table::{Align, Table, safe};
use crate::time;
use crate::views::{counted, wait_sentence};

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

/// Returns one sentence about the longest waits.
fn sentence(found: &Collectives) -> String {
    let count: u64 = found.collectives.iter().map(|row| row.count).sum();
    let wait_ns: i64 = found.collectives.iter().map(|row| row.wait_ns).sum();
    let operations = counted(count, "operation");
    match found.longest_waits.first() {
        _ if count == 0 => "No operation was begun by all its members.".to_owned(),
        None => format!("No rank waited in {operations}."),
        Some(longest) => format!(
            "{}. All waits in {operations} took {} together.",
            wait_sentence(longest),
            time::duration(wait_ns)
        ),
    }
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
    let most_waiting =
        |row: &CollectiveRow| row.ranks.iter().rev().max_by_key(|r| r.wait_ns).cloned();
    let most_late = |row: &CollectiveRow| row.ranks.iter().rev().max_by_key(|r| r.last).cloned();
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
        let mut table = Table::new(&[
            ("operation", Align::Name),
            ("communicator", Align::Name),
            ("members", Align::Right),
            ("count", Align::Right),
            ("waiting", Align::Right),
            ("mean imbalance", Align::Optional),
            ("max imbalance", Align::Right),
            ("waits most", Align::Left),
            ("last most often", Align::Left),
        ]);
        for row in &found.collectives {
            let mark = if row.is_uncertain { "~" } else { "" };
            let waits =
                most_waiting(row).map(|r| format!("rank {} {}", r.rank, time::duration(r.wait_ns)));
            let late =
                most_late(row).map(|r| format!("rank {} ({})", r.rank, counted(r.last, "time")));
            table.row(vec![
                row.operation.clone(),
                safe(&row.communicator),
                row.members.to_string(),
                format!("{mark}{}", time::grouped(row.count)),
                format!("{mark}{}", time::duration(row.wait_ns)),
                format!("{mark}{}", super::opt_duration(row.mean_imbalance_ns)),
                format!("{mark}{}", time::duration(row.max_imbalance_ns)),
                waits.unwrap_or_default(),
                late.unwrap_or_default(),
            ]);
        }
        writeln!(out, "{}\n", sentence(&found))?;
        out.write_all(table.render(arguments.input.screen()).as_bytes())?;
        match found.incomplete {
            0 => {}
            1 => writeln!(out, "1 operation was not begun by all members")?,
            count => {
                let count = time::grouped(count);
                writeln!(out, "{count} operations were not begun by all members")?;
            }
        }
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
