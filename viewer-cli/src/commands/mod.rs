//! The commands, a module each.

pub mod collectives;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod dropped;
pub mod events;
pub mod explain;
pub mod export;
pub mod flat;
pub mod help;
pub mod histogram;
pub mod index;
pub mod info;
pub mod intervals;
mod lanes;
pub mod merge;
pub mod messages;
pub mod metrics;
pub mod print;
pub mod record;
pub mod recover;
pub mod regions;
pub mod report;
pub mod samples;
pub mod serve;
pub mod slice;
pub mod sources;
pub mod stuck;
pub mod suggest_filter;
pub mod timeline;
pub mod tui;
pub mod verify;
pub mod why;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use annals_format::names::property;
use annals_format::{Definitions, Ended, Property};
use annals_merger::{ReadOptions, ReadSummary, Reader, Sums, Symbols, Window, missing_ranks};
use clap::Args;

use crate::filter::WindowArguments;
use crate::merge_summary::ends_early;
use crate::output::RowsArguments;
use crate::table::{Screen, safe};
use crate::time;
pub(crate) use crate::views::{numbered, opt_duration, percent};

/// Says of which ranks there is no file, or a part of one, in a trace of files that were made for each rank alone: whatever answer there is lacks
/// them. `None` if all are whole, or the trace is of recordings.
fn incomplete_files(definitions: &Definitions) -> Option<String> {
    let is_of_files =
        |property: &Property| definitions.string(property.key) == property::CLOCK_RELATED_BY;
    if !definitions.properties.iter().any(is_of_files) {
        return None;
    }
    let ends = definitions.process_ends.values();
    let cut = ends.filter(|end| end.ended != Ended::Finished);
    let cut = cut.filter_map(|end| Some(definitions.ranks.get(&end.process)?.rank));
    let list = |ranks: Vec<u32>, what: &str| {
        let shown = ranks.iter().take(10).map(u32::to_string);
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = match ranks.len().saturating_sub(10) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!ranks.is_empty()).then(|| format!("{what} of rank {shown}{more}"))
    };
    let lists = [
        list(missing_ranks(definitions), "no file"),
        list(cut.collect(), "only a part of the file"),
    ];
    let lists: Vec<String> = lists.into_iter().flatten().collect();
    let text = lists.join("; ");
    (!text.is_empty()).then(|| format!("{text}: the answer is without what these would say"))
}

/// Arguments of every command that reads.
#[derive(Clone, Debug, Args)]
pub struct InputArguments {
    /// A trace, a recording, a directory of recordings, an OTF2 archive, a Paraver or PyTorch trace
    #[arg(value_name = "INPUT")]
    pub input: PathBuf,

    /// Results as JSON
    #[arg(long)]
    pub json: bool,

    /// Names in full, however wide tables become
    #[arg(long)]
    pub full_names: bool,

    /// Look for names of functions in the files of this directory too (of the same build id)
    #[arg(long, value_name = "DIR")]
    pub symbols: Vec<PathBuf>,

    /// Threads that read and analyse [default: one for each processor]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

/// Arguments of commands that read, and answer with a table.
#[derive(Clone, Debug, Args)]
pub struct TableArguments {
    #[command(flatten)]
    pub(crate) input: InputArguments,
    #[command(flatten)]
    pub(crate) rows: RowsArguments,
}

impl InputArguments {
    /// Opens the input.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(&self) -> anyhow::Result<Reader> {
        self.open_with(ReadOptions::new())
    }

    /// Opens the input, of which only definitions, counts and losses are wanted.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open_heads(&self) -> anyhow::Result<Reader> {
        let mut options = ReadOptions::new();
        options.heads_only = true;
        self.open_with(options)
    }

    /// Opens the input.
    ///
    /// # Errors
    /// If it cannot be read, or the filter of the options matches nothing.
    pub fn open_with(&self, mut options: ReadOptions) -> anyhow::Result<Reader> {
        options.symbols = Symbols::in_directories(&self.symbols)?;
        if let Some(jobs) = self.jobs {
            options.jobs = useful_jobs(jobs.get());
        }
        let begun = Instant::now();
        let reader = Reader::open_with(std::slice::from_ref(&self.input), options)?;
        if reader.origin().kind == "archive" && begun.elapsed() > LONG_CONVERSION {
            let (input, seconds) = (self.input.display(), begun.elapsed().as_secs());
            tell(&format!(
                "{input}: converting it to recordings took {seconds} s; `trace-merge {input} -o run.annals` keeps them, as a trace"
            ));
        }
        if let Some(incomplete) = incomplete_files(reader.definitions()) {
            tell(&incomplete);
        }
        Ok(reader)
    }

    /// Returns the name of the input for titles: that of the file or directory.
    pub fn title(&self) -> String {
        let name = self.input.file_name();
        let name = name.unwrap_or_else(|| self.input.as_os_str());
        safe(&name.to_string_lossy())
    }

    /// Returns the room for tables.
    pub fn screen(&self) -> Screen {
        Screen::of_output(self.full_names)
    }

    /// Opens the input to read a time window of it.
    ///
    /// # Errors
    /// If it cannot be read, or ends before the window starts.
    pub fn open_window(&self, window: &WindowArguments) -> anyhow::Result<(Reader, Window)> {
        self.open_window_with(window, ReadOptions::new())
    }

    /// Opens the input to read a time window of it.
    ///
    /// # Errors
    /// If it cannot be read, ends before the window starts, or the filter of the options matches nothing.
    pub fn open_window_with(
        &self,
        window: &WindowArguments,
        options: ReadOptions,
    ) -> anyhow::Result<(Reader, Window)> {
        let window = window.window()?;
        let opened = self.open_with(options)?;
        let end_ns = opened.extent().end_ns;
        if window.from_ns != i64::MIN && window.from_ns > end_ns {
            let (from, end) = (time::moment(window.from_ns), time::moment(end_ns));
            let input = self.input.display();
            anyhow::bail!(
                "{input}: the window starts at {from} s, but the trace ends at {end} s; give a smaller --from"
            );
        }
        Ok((opened, window))
    }
}

/// From here on, a user is advised to keep what an archive is converted to.
const LONG_CONVERSION: Duration = Duration::from_secs(5);

/// Writes one line to standard error, also if file names contain line breaks.
fn tell(text: &str) {
    eprintln!("{}", safe(text));
}

/// Reports on standard error what this read had to skip.
pub(crate) fn warn_of_damage(opened: &Reader, outcome: &ReadSummary) {
    for input in opened.rejected() {
        tell(&format!(
            "left out: {}: {}",
            input.path.display(),
            input.why
        ));
    }
    let damage = &outcome.damage;
    for (path, problem) in damage.iter().take(20) {
        let (path, offset) = (path.display(), problem.offset);
        tell(&format!("{path}: byte {offset}: {}", problem.what));
    }
    if damage.len() > 20 {
        eprintln!("… {} more damaged places", damage.len() - 20);
    }
    let sums = Sums::of(&outcome.totals);
    if !damage.is_empty() && sums.present() == 0 {
        let of_raised = match sums.raised {
            0 => String::new(),
            raised => format!(" of {}", time::grouped(raised)),
        };
        tell(&format!(
            "cut off or damaged: 0{of_raised} events can be read"
        ));
    }
    let Some(report) = &outcome.report else {
        return;
    };
    let early = report
        .inputs
        .iter()
        .filter(|input| input.ended == Ended::Truncated);
    for input in early.take(20) {
        let path = input.path.display();
        tell(&format!("{path}: {}", ends_early(input)));
    }
    let lost = outcome
        .losses
        .iter()
        .filter(|loss| loss.cause.is_of_reader());
    let lost = lost.map(|loss| loss.count).fold(0, u64::saturating_add);
    if lost != 0 {
        eprintln!(
            "{} cannot be read: see `trace-cli dropped`",
            numbered(lost, "event")
        );
    }
}

/// Number of threads up to which no machine is too small.
const MOST_JOBS: usize = 64;

/// Returns how many threads work if a number of them is asked for; 0 asks for one for each processor. More than processors can use
/// only take memory and turns.
pub(crate) fn useful_jobs(jobs: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match jobs {
        0 => processors,
        jobs => jobs.min(processors.saturating_mul(4).max(MOST_JOBS)),
    }
}
