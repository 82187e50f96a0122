//! `trace-cli why`: where the time of a parallel run is lost.

use std::io::Write;

use annals_analysis::{LostTime, lost_time};
use anyhow::bail;
use clap::{Args, ValueEnum};

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding};
use crate::views::{
    INCOMPLETE_DEFINITIONS, pattern_name, rank_table, shell_word, wait_state_table, why_sentence,
    why_text,
};
use crate::{time, timeline};

/// Why a parallel run is slow: its efficiencies, and which rank makes others wait, where.
///
/// The first sentence names the rank whose extra work cost most. Of an MPI program, the time between `MPI_Init` and
/// `MPI_Finalize` counts. Waits are those of messages and collective operations;
/// what made a rank late is found by going back to when it was last synchronised with those that waited. `±` is by how
/// much losses may change a time. The chapter "Why a run is slow" of the manual defines every word and figure.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli why run.annals\n  \
                  trace-cli why run.annals --by region\n  trace-cli why run.annals --json --from 1s")]
pub struct WhyArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Count MPI_Init and MPI_Finalize, too
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all: bool,
    /// A table instead: times of ranks, or wait states by region and call path
    #[arg(long)]
    by: Option<By>,
    /// Comma-separated values: of `--by`, or a row for each rank that made others wait
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    Rank,
    Region,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, or the output cannot be written.
pub fn run(arguments: &WhyArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let mut query = arguments.filter.query(opened.definitions(), window)?;
    if !arguments.all {
        query = timeline::without_start_and_end_of_all(&opened, &query)?;
    }
    let Some((lost, outcome)) = lost_time(&opened, &query)? else {
        bail!(INCOMPLETE_DEFINITIONS);
    };
    warn_of_damage(&opened, &outcome);
    if arguments.input.json {
        output::json(out, &lost)?;
    } else if arguments.csv {
        write_csv(arguments.by, &lost, out)?;
    } else {
        let screen = arguments.input.screen();
        match arguments.by {
            Some(By::Rank) => {
                let table = rank_table(&lost.ranks).render(screen);
                write!(out, "{}\n\n{table}", why_sentence(&lost))?;
            }
            Some(By::Region) => {
                let table = wait_state_table(&lost.wait_states).render(screen);
                write!(out, "{}\n\n{table}", why_sentence(&lost))?;
            }
            None => {
                out.write_all(why_text(&lost).as_bytes())?;
                out.write_all(next_commands(arguments, &lost).as_bytes())?;
            }
        }
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}

fn write_csv(by: Option<By>, lost: &LostTime, out: &mut dyn Write) -> std::io::Result<()> {
    match by {
        Some(By::Rank) => {
            let columns = [
                "rank",
                "useful_ns",
                "mpi_ns",
                "idle_ns",
                "wait_ns",
                "caused_ns",
            ];
            output::csv(out, &columns, &lost.ranks)
        }
        Some(By::Region) => {
            let columns = [
                "pattern",
                "path",
                "count",
                "wait_ns",
                "max_ns",
                "wrong_order_ns",
                "uncertain_ns",
                "share",
            ];
            let rows = lost.wait_states.iter().map(|row| {
                (
                    pattern_name(row.pattern),
                    row.path.join(" > "),
                    row.count,
                    row.wait_ns,
                    row.max_ns,
                    row.wrong_order_ns,
                    row.uncertain_ns,
                    row.share,
                )
            });
            output::csv(out, &columns, rows)
        }
        None => {
            let columns = [
                "rank",
                "pattern",
                "region",
                "operations",
                "calls",
                "waiting_ranks",
                "median_late_ns",
                "max_late_ns",
                "cost_ns",
                "direct_ns",
                "uncertain_ns",
                "share",
                "extra_in",
            ];
            let rows = lost.causes.iter().map(|row| {
                (
                    row.rank,
                    pattern_name(row.pattern),
                    &row.region,
                    row.operations,
                    row.calls,
                    row.waiting_ranks,
                    row.median_late_ns,
                    row.max_late_ns,
                    row.cost_ns,
                    row.direct_ns,
                    row.uncertain_ns,
                    row.share,
                    row.extra.first().map(|extra| extra.path.join(" > ")),
                )
            });
            output::csv(out, &columns, rows)
        }
    }
}

/// Returns commands that show more of what is lost.
fn next_commands(arguments: &WhyArguments, lost: &LostTime) -> String {
    let Some(worst) = lost.worst.first() else {
        return String::new();
    };
    let input = arguments.input.input.display().to_string();
    let input = shell_word(&input);
    // The wait, with as much before and after it.
    let from_ns = (worst.from_ns - worst.wait_ns).max(0);
    let to_ns = worst.from_ns + 2 * worst.wait_ns;
    format!(
        "\nThe longest single wait, {} of rank {}:\n  trace-cli timeline {input} --from {}s --to {}s\n\
         Waits by call path, times by rank:\n  trace-cli why {input} --by region\n  trace-cli why {input} --by rank\n",
        time::duration(worst.wait_ns),
        worst.rank,
        time::moment(from_ns),
        time::moment(to_ns),
    )
}
