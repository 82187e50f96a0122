//! `trace-cli tui`: the interactive viewer.

use std::io::IsTerminal;
use std::path::PathBuf;

#[cfg(feature = "tui")]
use annals_merger::{ReadOptions, Reader, Symbols, Window};
use clap::Args;

use super::lanes::OverviewArguments;
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
#[cfg(feature = "tui")]
use crate::tui::{self, Shown};

/// Walk through a timeline by keys: zoom, pan, search, gaps.
///
/// A lane for each location; below, the calls and events under the cursor, and the statistics of what is
/// shown: of a view with too many events, the times of regions alone. A long trace without an overview gets one first, in the user's cache (see
/// --index). Recordings that were not merged are read whole for each view: merge big ones first. The key ? lists all keys.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli tui run.annals\n  \
                  trace-cli tui run.annals --from 1s --to 1.1s --rank 0-3")]
pub struct TuiArguments {
    /// A trace, a recording, a directory of recordings, an OTF2 archive, a Paraver or PyTorch trace
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,
    #[command(flatten)]
    overview: OverviewArguments,

    /// Maximum number of events of a view whose calls are counted, in the table below the lanes
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    most_events: u64,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// If there is no terminal, or the input cannot be read.
pub fn run(arguments: &TuiArguments) -> anyhow::Result<Finding> {
    output::check_built_in(cfg!(feature = "tui"), "tui")?;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        let why = "tui needs a terminal; `trace-cli timeline` writes to pipes and files";
        return Err(UsageError(why.to_owned()).into());
    }
    #[cfg(feature = "tui")]
    tui::run(shown(arguments)?)?;
    let _ = arguments;
    Ok(Finding::FINE)
}

#[cfg(feature = "tui")]
fn shown(arguments: &TuiArguments) -> anyhow::Result<Shown> {
    let window = arguments.window.window()?;
    let mut options = ReadOptions::new();
    options.symbols = Symbols::in_directories(&arguments.symbols)?;
    let opened = Reader::open_with(std::slice::from_ref(&arguments.input), options)?;
    let name = arguments.input.file_name();
    let title = name.map_or_else(
        || arguments.input.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    );
    let filter = arguments.filter.query(opened.definitions(), window)?;
    Ok(Shown {
        lanes: arguments.overview.lanes(&opened, Window::ALL)?,
        opened,
        title: crate::table::safe(&title),
        filter,
        arguments: arguments.filter.clone(),
        window,
        most_events: arguments.most_events,
    })
}
