//! The commands, a module each.

pub mod collectives;
pub mod demo;
pub mod diff;
pub mod dropped;
pub mod events;
pub mod explain;
pub mod export;
pub mod flat;
pub mod histogram;
pub mod info;
pub mod intervals;
pub mod messages;
pub mod metrics;
pub mod print;
pub mod record;
pub mod recover;
pub mod regions;
pub mod slice;
pub mod sources;
pub mod suggest_filter;
pub mod timeline;
pub mod tui;
pub mod verify;

use std::path::PathBuf;

use annals_merger::{Opened, Outcome, Symbols, Window};
use clap::Args;

use crate::filter::WindowArguments;
use crate::time;

/// What every command that reads takes.
#[derive(Clone, Debug, Args)]
pub struct InputArguments {
    /// A trace, a recording, a directory of recordings, or an OTF2 archive
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,

    /// Results as JSON
    #[arg(long)]
    pub json: bool,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,
}

impl InputArguments {
    /// Opens the input.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(&self) -> anyhow::Result<Opened> {
        let symbols = Symbols::in_directories(&self.symbols)?;
        Ok(Opened::open_with_symbols(&self.input, &symbols)?)
    }

    /// Opens the input to look at a window of it.
    ///
    /// # Errors
    /// If it cannot be read, or ends before the window starts.
    pub fn open_window(&self, window: &WindowArguments) -> anyhow::Result<(Opened, Window)> {
        let window = window.window()?;
        let opened = self.open()?;
        let end_ns = opened.end_ns();
        if window.from_ns != i64::MIN && window.from_ns > end_ns {
            let (from, end) = (time::duration(window.from_ns), time::duration(end_ns));
            let input = self.input.display();
            anyhow::bail!(
                "{input}: the window starts at {from}, but the trace ends at {end}; give a smaller --from"
            );
        }
        Ok((opened, window))
    }
}

/// Tells on stderr what this read had to skip.
pub(crate) fn warn_of_damage(opened: &Opened, outcome: &Outcome) {
    for input in &opened.rejected {
        eprintln!("left out: {}: {}", input.path.display(), input.why);
    }
    for (path, problem) in outcome.damage.iter().take(20) {
        eprintln!(
            "{}: byte {}: {}",
            path.display(),
            problem.offset,
            problem.what
        );
    }
    if outcome.damage.len() > 20 {
        eprintln!("… {} more damaged places", outcome.damage.len() - 20);
    }
}

/// A share of the whole, in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}", part as f64 * 100.0 / whole as f64)
}

pub(crate) fn opt_duration(ns: Option<i64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time::duration)
}
