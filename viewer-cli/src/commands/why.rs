//! `trace-cli why`: where the time of a parallel run is lost.

use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{
    CostSums, LostTime, LostTimeOptions, PartOfRun, RecordingCost, lost_time, part_of_run,
};
use annals_merger::{Globs, Query, Window, regions_like};
use anyhow::bail;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::table::safe;
use crate::time;
use crate::views::{
    INCOMPLETE_DEFINITIONS, Scaling, bad_end_sentence, capital, mpi_note, other_mpi, part_words,
    path_table, phase_table, rank_table, recording_cost_words, shell_word, wait_state_table,
    why_sentence, why_text,
};

/// Why a parallel run is slow: its efficiencies, and which rank makes others wait, where.
///
/// The first sentence names the rank whose extra work cost most. Of an MPI program, the time between `MPI_Init` and
/// `MPI_Finalize` counts. Waits are those of messages and collective operations;
/// what made a rank late is found by going back to when it was last synchronised with those that waited. `±` is by how
/// much losses may change a time. The chapter "Why a run is slow" of the manual defines every word and figure.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli why run.annals\n  \
                  trace-cli why run.annals --by region\n  trace-cli why run.annals --json --from 1s\n  \
                  trace-cli why run.annals --by path\n  trace-cli why run.annals --phase time_step\n  \
                  trace-cli why on-64.annals --reference on-8.annals")]
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
    /// A table instead: times of ranks, wait states by region and call path, efficiencies of phases, or what is on the
    /// critical path
    #[arg(long)]
    by: Option<By>,
    /// Regions of which each call is a phase (globs), for efficiencies by phase
    #[arg(long, value_name = "GLOBS")]
    phase: Option<Globs>,
    /// Compare with the trace of another run, usually with fewer ranks: by how much less work it needed
    #[arg(long, value_name = "TRACE")]
    reference: Option<PathBuf>,
    /// The work grows with the number of ranks: compare with the reference's work per rank
    #[arg(long, requires = "reference")]
    weak: bool,
    /// Comma-separated values: of `--by`, or a row for each rank that made others wait
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum By {
    Rank,
    Region,
    Phase,
    Path,
}

/// The lost time, and the comparison with a reference.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    lost: &'a LostTime,
    /// Which part of the run counts.
    part: PartOfRun,
    /// How much of the run its recording took. `None` if that is not known.
    recording_cost: Option<RecordingCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling: Option<Scaling>,
    /// How a run ended that did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a str>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, or the output cannot be written.
pub fn run(arguments: &WhyArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let by = match arguments.by {
        None if arguments.phase.is_some() => Some(By::Phase),
        by => by,
    };
    if by == Some(By::Phase) && arguments.phase.is_none() {
        let why = "--by phase needs --phase REGION: each call of it is a phase";
        return Err(UsageError(why.to_owned()).into());
    }
    if arguments.phase.is_some() && by != Some(By::Phase) {
        let why = "--phase is for efficiencies of phases: leave out --by, or give --by phase";
        return Err(UsageError(why.to_owned()).into());
    }
    let has_scaling = (by.is_none() && !arguments.csv) || arguments.input.json;
    if arguments.reference.is_some() && !has_scaling {
        let why = "--reference is for the efficiencies of the run: leave out --by, --phase and --csv, or give --json";
        return Err(UsageError(why.to_owned()).into());
    }
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let query = arguments.filter.query(opened.definitions(), window)?;
    let (query, part) = part_of_run(&opened, &query, arguments.all)?;
    let mut options = LostTimeOptions {
        critical_path: by == Some(By::Path),
        ..LostTimeOptions::default()
    };
    if let Some(pattern) = &arguments.phase {
        let phases = regions_like(pattern, opened.definitions())?;
        options.phases = phases.into_iter().collect();
    }
    let Some((lost, outcome)) = lost_time(&opened, &query, &options)? else {
        bail!(INCOMPLETE_DEFINITIONS);
    };
    warn_of_damage(&opened, &outcome);
    let end = match window == Window::ALL {
        true => bad_end_sentence(&opened)?,
        false => None,
    };
    let scaling = arguments.scaling(&lost)?;
    let recording_cost = CostSums::of(opened.definitions(), outcome.totals.iter()).share();
    if arguments.input.json {
        output::json(
            out,
            &Answer {
                lost: &lost,
                part,
                recording_cost,
                scaling,
                end: end.as_deref(),
            },
        )?;
    } else if arguments.csv {
        write_csv(by, &lost, out)?;
    } else {
        let screen = arguments.input.screen();
        if let Some(note) = mpi_note(&lost.mpi) {
            writeln!(out, "{note}")?;
        }
        if let Some(end) = &end {
            writeln!(out, "{}", safe(end))?;
        }
        if let Some(filter) = arguments.filter.in_words() {
            let filter = safe(&filter);
            writeln!(
                out,
                "Waits of {filter}; the efficiencies are those of all ranks.\n"
            )?;
        }
        let table = match by {
            Some(By::Rank) => Some(rank_table(&lost.ranks).render(screen)),
            Some(By::Region) => {
                // With a filter, the waits are not those of all.
                let is_whole = arguments.filter.in_words().is_none();
                let other = is_whole.then(|| other_mpi(&lost));
                Some(wait_state_table(&lost.wait_states, other).render(screen))
            }
            Some(By::Phase) => Some(phase_table(&lost, screen)),
            Some(By::Path) => Some(path_table(&lost, screen)),
            None => None,
        };
        if !lost.mpi.knows_waits() {
            // Nothing else is known.
        } else if let Some(table) = table {
            write!(
                out,
                "{}\n({})\n\n{table}",
                why_sentence(&lost),
                part_words(part)
            )?;
        } else {
            out.write_all(why_text(&lost, scaling.as_ref(), part).as_bytes())?;
            if let Some(cost) = recording_cost {
                writeln!(out, "{}.", capital(&recording_cost_words(cost)))?;
            }
            out.write_all(next_commands(arguments, &lost).as_bytes())?;
        }
    }
    Ok(Finding::loss(
        outcome.has_skipped_now || lost.mpi.has_loss(),
    ))
}

impl WhyArguments {
    /// Compares the run with the reference.
    fn scaling(&self, lost: &LostTime) -> anyhow::Result<Option<Scaling>> {
        let Some(path) = self.reference.as_ref().filter(|_| lost.mpi.knows_waits()) else {
            return Ok(None);
        };
        let input = InputArguments {
            input: path.clone(),
            ..self.input.clone()
        };
        let opened = input.open()?;
        let (query, _) = part_of_run(&opened, &Query::new(), self.all)?;
        let Some((reference, outcome)) = lost_time(&opened, &query, &LostTimeOptions::default())?
        else {
            bail!("{}: {INCOMPLETE_DEFINITIONS}", path.display());
        };
        warn_of_damage(&opened, &outcome);
        if !reference.mpi.knows_waits() {
            bail!("{}: {}", path.display(), why_sentence(&reference));
        }
        let (Some(own), Some(reference)) = (lost.run_times(), reference.run_times()) else {
            bail!("a run without time cannot be compared");
        };
        let Some(computation) = own.computation_scaling(&reference, self.weak) else {
            bail!("a run without useful time cannot be compared");
        };
        let parallel = own.useful_mean_ns() / own.run_ns as f64;
        Ok(Some(Scaling {
            reference_ranks: reference.ranks,
            computation_scaling: computation,
            global: computation * parallel,
        }))
    }
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
                "uncertain_ns",
                "caused_ns",
            ];
            output::csv(out, &columns, &lost.ranks)
        }
        Some(By::Region) => {
            let columns = [
                "pattern",
                "path",
                "communicator",
                "count",
                "wait_ns",
                "max_ns",
                "wrong_order_ns",
                "uncertain_ns",
                "share",
            ];
            let rows = lost.wait_states.iter().map(|row| {
                (
                    row.pattern.words(),
                    row.path.join(" > "),
                    row.communicator.as_deref(),
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
        Some(By::Phase) => write_phases(lost, out),
        Some(By::Path) => {
            let columns = ["region", "path_ns", "share", "mean_ns", "imbalance_ns"];
            let path = lost.critical_path.as_ref();
            output::csv(
                out,
                &columns,
                path.into_iter().flat_map(|path| &path.regions),
            )
        }
        None => {
            let columns = [
                "rank",
                "thread",
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
                    row.thread.as_deref(),
                    row.pattern.words(),
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

fn write_phases(lost: &LostTime, out: &mut dyn Write) -> std::io::Result<()> {
    let columns = [
        "phase",
        "locations",
        "from_ns",
        "to_ns",
        "run_ns",
        "parallel",
        "load_balance",
        "communication",
        "serialisation",
        "transfer",
        "is_uncertain",
    ];
    let rows = lost.phases.iter().map(|row| {
        let factors = &row.efficiencies;
        (
            row.phase,
            row.locations,
            row.from_ns,
            row.to_ns,
            row.run_ns,
            factors.parallel,
            factors.load_balance,
            factors.communication,
            factors.serialisation,
            factors.transfer,
            row.is_uncertain,
        )
    });
    output::csv(out, &columns, rows)
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
         Waits by call path, times by rank, what decides how long the run takes:\n  \
         trace-cli why {input} --by region\n  trace-cli why {input} --by rank\n  trace-cli why {input} --by path\n",
        time::duration(worst.wait_ns),
        worst.rank,
        time::moment(from_ns),
        time::moment(to_ns),
    )
}
