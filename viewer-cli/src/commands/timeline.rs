//! `trace-cli timeline`: who was where when.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, PNG, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding};
use crate::timeline::{Layout, Request, picture, png, terminal};
use annals_analysis::bin_start;

/// Who was where when: a lane for each location, in the colours of its regions.
///
/// In the terminal a lane shows what its location was in innermost, for the most part of each column; ▒ where events
/// were lost. Pictures (--svg, --png) show nesting, messages as lines, metrics as areas, and hatch what was lost.
/// What is not shown is said below.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli timeline run.annals\n  \
                  trace-cli timeline run.annals --from 1s --to 1.1s --rank 0-3\n  \
                  trace-cli timeline run.annals --svg run.svg --lanes 64")]
pub struct TimelineArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// The same, in pixels
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,

    /// Columns: of the terminal; in pictures and JSON, of time (default: as the terminal is wide; 1200)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(10..=10_000))]
    width: Option<u16>,

    /// Most locations (default: 40; in pictures and JSON 64)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    lanes: Option<u16>,

    /// Levels of nesting in pictures
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=64))]
    levels: u8,

    /// Match messages, however much must be read for it
    #[arg(long)]
    messages: bool,

    /// Leave messages out
    #[arg(long, conflicts_with = "messages")]
    no_messages: bool,

    /// Colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: When,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum When {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

impl When {
    fn is_now(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !is_off && std::io::stdout().is_terminal()
            }
        }
    }
}

#[derive(Serialize)]
struct RunOut<'a> {
    from_ns: i64,
    to_ns: i64,
    region: &'a str,
    /// Calls that the bar stands for. Null with one level: calls within interrupt those around them.
    calls: Option<u64>,
    /// Whether it stands for other than one call: from and to are borders of columns then, else those of the call.
    is_summary: bool,
}

#[derive(Serialize)]
struct GapOut {
    from_ns: i64,
    to_ns: i64,
    count: u64,
    is_lower_bound: bool,
    cause: &'static str,
}

#[derive(Serialize)]
struct LaneOut<'a> {
    rank: u32,
    location: &'a str,
    levels: Vec<Vec<RunOut<'a>>>,
    gaps: Vec<GapOut>,
}

#[derive(Serialize)]
struct MessageOut {
    from_lane: usize,
    from_ns: i64,
    to_lane: usize,
    to_ns: i64,
}

#[derive(Serialize)]
struct TimelineOut<'a> {
    from_ns: i64,
    to_ns: i64,
    columns: usize,
    lanes: Vec<LaneOut<'a>>,
    messages: Vec<MessageOut>,
    notes: &'a [String],
}

fn as_json(layout: &Layout) -> TimelineOut<'_> {
    let start = |column: usize| bin_start(layout.window, layout.columns, column);
    let lanes = layout.lanes.iter().map(|lane| LaneOut {
        rank: lane.rank,
        location: &lane.name,
        levels: lane
            .rows
            .iter()
            .map(|row| {
                let runs = row.runs.iter().map(|run| {
                    let columns_ns = (start(run.from), start(run.to));
                    let (from_ns, to_ns) = run.call_ns.unwrap_or(columns_ns);
                    RunOut {
                        from_ns,
                        to_ns,
                        region: &layout.legend[run.region].name,
                        calls: run.calls,
                        is_summary: run.call_ns.is_none(),
                    }
                });
                runs.collect()
            })
            .collect(),
        gaps: lane
            .gaps
            .iter()
            .map(|gap| GapOut {
                from_ns: start(gap.from),
                to_ns: start(gap.to),
                count: gap.count,
                is_lower_bound: gap.is_lower_bound,
                cause: gap.cause,
            })
            .collect(),
    });
    let messages = layout.trips.iter().map(|trip| MessageOut {
        from_lane: trip.from.0,
        from_ns: trip.from.1,
        to_lane: trip.to.0,
        to_ns: trip.to.1,
    });
    TimelineOut {
        from_ns: layout.window.from_ns,
        to_ns: layout.window.to_ns,
        columns: layout.columns,
        lanes: lanes.collect(),
        messages: messages.collect(),
        notes: &layout.notes,
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &TimelineArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments.force.check(arguments.svg.as_deref(), SVG)?;
    arguments.force.check(arguments.png.as_deref(), PNG)?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let is_picture = arguments.svg.is_some() || arguments.png.is_some();
    let in_terminal = || {
        let wide = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let from_shell = || std::env::var("COLUMNS").ok()?.parse().ok();
        let wide = wide.or_else(from_shell).unwrap_or(100);
        wide.saturating_sub(terminal::LABEL + 1).clamp(10, 1000)
    };
    let has_levels = is_picture || arguments.input.json;
    let columns = match (arguments.width, has_levels) {
        (Some(width), true) => width.into(),
        (Some(width), false) => usize::from(width).saturating_sub(terminal::LABEL).max(1),
        (None, true) => 1200,
        (None, false) => in_terminal(),
    };
    let request = Request {
        window,
        columns,
        lanes: arguments
            .lanes
            .map_or(if has_levels { 64 } else { 40 }, usize::from),
        first_lane: None,
        levels: if has_levels {
            arguments.levels.into()
        } else {
            1
        },
        messages: match (arguments.messages, arguments.no_messages) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
    };
    let (layout, outcome) = Layout::of(&opened, &filter, request)?;
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.svg {
        arguments
            .force
            .write(path, picture::svg(&layout).as_bytes(), SVG)?;
    }
    if let Some(path) = &arguments.png {
        arguments.force.write(path, &png(&layout)?, PNG)?;
    }
    if arguments.input.json {
        output::json(out, &as_json(&layout))?;
    } else if is_picture {
        for note in &layout.notes {
            eprintln!("note: {note}");
        }
    } else {
        let text = terminal::render(&layout, arguments.color.is_now());
        out.write_all(text.as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
