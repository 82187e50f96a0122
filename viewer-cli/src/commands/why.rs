//! `trace-cli why`: where the time of a parallel run is lost.

use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{
    CostSums, LostTime, LostTimeOptions, PartOfRun, RecordingCost, efficiencies_over_time,
    lost_time, part_of_run,
};
use annals_merger::{Globs, Query, Window, regions_like};
use anyhow::bail;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments, UsageError};
use crate::table::safe;
use crate::time;
use crate::views::{
    INCOMPLETE_DEFINITIONS, Scaling, bad_end_sentence, capital, change_sentence, main_causes,
    mpi_note, other_mpi_row, part_words, phase_notes, phase_rows, recording_cost_words, shell_word,
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
                  trace-cli why run.annals --over-time 20\n  \
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
    /// Efficiencies of N windows of time that follow each other, each as if it were the run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000), conflicts_with_all = ["phase", "by"])]
    over_time: Option<u16>,
    /// Compare with the trace of another run, usually with fewer ranks: by how much less work it needed
    #[arg(long, value_name = "TRACE")]
    reference: Option<PathBuf>,
    /// The work grows with the number of ranks: compare with the reference's work per rank
    #[arg(long, requires = "reference")]
    weak: bool,
    #[command(flatten)]
    rows: RowsArguments,
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
        None if arguments.phase.is_some() || arguments.over_time.is_some() => Some(By::Phase),
        by => by,
    };
    if by == Some(By::Phase) && arguments.phase.is_none() && arguments.over_time.is_none() {
        let why = "--by phase needs --phase REGION: each call of it is a phase";
        return Err(UsageError(why.to_owned()).into());
    }
    if arguments.phase.is_some() && by != Some(By::Phase) {
        let why = "--phase is for efficiencies of phases: leave out --by, or give --by phase";
        return Err(UsageError(why.to_owned()).into());
    }
    let has_scaling = (by.is_none() && !arguments.rows.csv) || arguments.input.json;
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
    let Some((mut lost, outcome)) = lost_time(&opened, &query, &options)? else {
        bail!(INCOMPLETE_DEFINITIONS);
    };
    if let Some(count) = arguments.over_time.filter(|_| lost.mpi.knows_waits()) {
        let window = Window {
            from_ns: lost.from_ns,
            to_ns: lost.to_ns,
        };
        let rows = efficiencies_over_time(&opened, &query.within(window), count.into())?;
        lost.phases = rows.unwrap_or_default();
    }
    warn_of_damage(&opened, &outcome);
    let end = match window == Window::ALL {
        true => bad_end_sentence(&opened)?,
        false => None,
    };
    let scaling = arguments.scaling(&lost)?;
    let recording_cost = CostSums::of(opened.definitions(), outcome.totals.iter()).share();
    if arguments.input.json {
        let total = arguments.cut(by, &mut lost);
        let answer = Answer {
            lost: &lost,
            part,
            recording_cost,
            scaling,
            end: end.as_deref(),
        };
        arguments.rows.json(out, &answer, total)?;
    } else if arguments.rows.csv {
        arguments.put_rows(by, &lost, out)?;
    } else {
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
        if !lost.mpi.knows_waits() {
            // Nothing else is known.
        } else if by.is_some() {
            let (sentence, part) = (why_sentence(&lost), part_words(part));
            write!(out, "{sentence}\n({part})\n\n")?;
            arguments.put_rows(by, &lost, out)?;
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
    /// Leaves the rows that are asked for. Returns how many there were.
    fn cut(&self, by: Option<By>, lost: &mut LostTime) -> usize {
        match by {
            None => self.rows.cut(&mut lost.causes),
            Some(By::Rank) => self.rows.cut(&mut lost.ranks),
            Some(By::Region) => self.rows.cut(&mut lost.wait_states),
            Some(By::Phase) => self.rows.cut(&mut lost.phases),
            Some(By::Path) => lost
                .critical_path
                .as_mut()
                .map_or(0, |path| self.rows.cut(&mut path.regions)),
        }
    }

    /// Writes the rows of `--by`, or of causes.
    fn put_rows(
        &self,
        by: Option<By>,
        lost: &LostTime,
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let (rows, screen) = (&self.rows, self.input.screen());
        match by {
            None => rows.put(out, &lost.causes, screen),
            Some(By::Rank) => rows.put(out, &lost.ranks, screen),
            Some(By::Region) => {
                // With a filter, the waits are not those of all.
                let other = other_mpi_row(lost).filter(|_| self.filter.in_words().is_none());
                let all: Vec<_> = lost.wait_states.iter().cloned().chain(other).collect();
                rows.put(out, &all, screen)
            }
            Some(By::Phase) if rows.csv => rows.put(out, &lost.phases, screen),
            Some(By::Phase) if self.over_time.is_some() => {
                rows.put(out, &lost.phases, screen)?;
                out.write_all(change_sentence(&lost.phases).as_bytes())
            }
            Some(By::Phase) => {
                rows.put(out, &phase_rows(lost), screen)?;
                out.write_all(phase_notes(lost).as_bytes())
            }
            Some(By::Path) => {
                let Some(path) = &lost.critical_path else {
                    return Ok(());
                };
                rows.put(out, &path.regions, screen)?;
                if rows.csv {
                    return Ok(());
                }
                writeln!(out)?;
                rows.put(out, &path.ranks, screen)
            }
        }
    }

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

/// Returns the command that records again so that functions are named, where neither functions nor samples show what the first cause did.
fn sampling_command(lost: &LostTime) -> String {
    let shows_nothing = main_causes(lost).next().is_some_and(|cause| {
        let first = cause.extra.first();
        !cause.is_sampled && first.is_some_and(|extra| extra.path.is_empty())
    });
    match shows_nothing {
        true => "\nWith samples, it names the function and the line; the program is not compiled anew:\n  \
                 trace-cli record --sample -- COMMAND\n"
            .to_owned(),
        false => String::new(),
    }
}

/// Returns commands that show more of what is lost.
fn next_commands(arguments: &WhyArguments, lost: &LostTime) -> String {
    let again = sampling_command(lost);
    let Some(worst) = lost.worst.first() else {
        return again;
    };
    let input = arguments.input.input.display().to_string();
    let input = shell_word(&input);
    // The wait, with as much before and after it.
    let from_ns = (worst.from_ns - worst.wait_ns).max(0);
    let to_ns = worst.from_ns + 2 * worst.wait_ns;
    format!(
        "\nThe longest single wait, {} of rank {}:\n  trace-cli timeline {input} --from {}s --to {}s\n\
         Waits by call path, times by rank, what decides how long the run takes:\n  \
         trace-cli why {input} --by region\n  trace-cli why {input} --by rank\n  trace-cli why {input} --by path\n{again}",
        time::duration(worst.wait_ns),
        worst.rank,
        time::moment(from_ns),
        time::moment(to_ns),
    )
}
