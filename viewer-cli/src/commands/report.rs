//! `trace-cli report`: a page with all figures of a run.

use std::io::Write;
use std::path::{Path, PathBuf};

use annals_analysis::part_of_run;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, HTML, refuse_dash};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::report::{RunFigures, Subject, page_of_run, page_of_two_runs};
use crate::table::safe;
use crate::time;
use crate::views::why_sentence;

/// One page about a run: why it is slow, and the figures that explain it. With OTHER, two runs side by side.
///
/// The page is one HTML file that loads nothing else. It has efficiencies, wait states, load balance, the message matrix,
/// collective operations, the slowest calls, losses and an overview of time; every picture is also a table. Tables show the
/// largest rows, and say how many are left out. Of an MPI program, the time between MPI_Init and MPI_Finalize counts, unless --all or a
/// window is given.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli report run.annals -o report.html\n  \
                  trace-cli report run.annals --from 1s --to 2s -o second.html\n  \
                  trace-cli report before.annals after.annals -o comparison.html"
)]
pub struct ReportArguments {
    #[command(flatten)]
    input: InputArguments,

    /// A second run, to compare the first with
    #[arg(value_name = "OTHER")]
    other: Option<PathBuf>,

    /// File for the page
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    force: ForceArgument,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Count MPI_Init and MPI_Finalize, too
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all: bool,
}

/// Computes the figures of an input.
fn figures(arguments: &ReportArguments, path: &Path) -> anyhow::Result<RunFigures> {
    let input = InputArguments {
        input: path.to_owned(),
        ..arguments.input.clone()
    };
    let (opened, window) = input.open_window(&arguments.window)?;
    let query = arguments.filter.query(opened.definitions(), window)?;
    let (query, choice) = part_of_run(&opened, &query, arguments.all)?;
    let filter = arguments.filter.in_words();
    let subject = Subject {
        opened: &opened,
        title: &input.title(),
        path: &path.display().to_string(),
        query: &query,
        choice,
        filter: filter.as_deref(),
    };
    let (figures, outcome) = RunFigures::of(&subject)?;
    warn_of_damage(&opened, &outcome);
    Ok(figures)
}

/// Returns an error if the page would replace an input, or a part of it.
fn refuse_input(page: &Path, input: &Path) -> Result<(), UsageError> {
    let (Ok(there), Ok(input)) = (page.canonicalize(), input.canonicalize()) else {
        return Ok(());
    };
    // A directory of recordings may have pages, too.
    let is_page = there
        .extension()
        .is_some_and(|extension| extension == "html");
    if there == input || (there.starts_with(&input) && !is_page) {
        let page = safe(&page.display().to_string());
        return Err(UsageError(format!(
            "{page} is an input: the page would replace it; name another output"
        )));
    }
    Ok(())
}

/// Runs the command.
///
/// # Errors
/// If an input cannot be read, its definitions are incomplete, or the page cannot be written.
pub fn run(arguments: &ReportArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let path = arguments.output.as_path();
    refuse_dash(path, "output")?;
    let inputs = [Some(&arguments.input.input), arguments.other.as_ref()];
    for input in inputs.into_iter().flatten() {
        refuse_input(path, input)?;
    }
    arguments.force.check(Some(path), HTML)?;
    let first = figures(arguments, &arguments.input.input)?;
    let second = arguments
        .other
        .as_deref()
        .map(|other| figures(arguments, other));
    let second = second.transpose()?;
    let page = match &second {
        None => page_of_run(&first),
        Some(second) => page_of_two_runs(&first, second),
    };
    arguments.force.write(path, page.as_bytes(), HTML)?;
    let has_loss = |of: &RunFigures| of.has_skipped_now || of.lost_time.mpi.has_loss();
    let has_loss = has_loss(&first) || second.as_ref().is_some_and(has_loss);
    let is_terminal_output = path != Path::new("/dev/stdout");
    if arguments.input.json {
        match &second {
            None => output::json(out, &first)?,
            Some(second) => output::json(out, &[&first, second])?,
        }
    } else if is_terminal_output {
        if let Some(end) = &first.end {
            writeln!(out, "{}", safe(end))?;
        }
        writeln!(out, "{}", why_sentence(&first.lost_time))?;
        if let Some(second) = &second {
            writeln!(out, "{}", why_sentence(&second.lost_time))?;
        }
        let size = time::bytes(page.len() as u64);
        writeln!(out, "{}: {size}", safe(&path.display().to_string()))?;
    }
    Ok(Finding::loss(has_loss))
}
