//! `trace-cli timeline`: the calls of each location over time.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::lanes::OverviewArguments;
use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, PNG, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding};
use crate::table::Screen;
use crate::time;
use crate::timeline::{Layout, Request, terminal};
#[cfg(feature = "pictures")]
use crate::timeline::{picture, png};
use crate::views::part_words;
use annals_analysis::{FULL, PartOfRun, Wait, bounded, part_of_run};
use annals_merger::Window;

/// With more lanes, pictures show the innermost calls only.
const MOST_NESTED: usize = 128;

/// The calls of each location over time, as a picture: in the terminal, SVG or PNG.
///
/// In the terminal a lane shows in each column the deepest calls that have at least half of it (or the outermost): the region with the most time, as
/// high as they fill the column, ░ (without colours: a small letter) where it waited for another rank, and
/// ▒ where events were lost. Pictures (--svg, --png) show nesting, messages as lines or their density, metrics as areas,
/// and hatch waiting and losses; a column is paler the less of it is in calls. The longest waits are listed. Times of regions
/// are those of all calls, or of a window with more than two million events those of the picture's bins (~). For an MPI program, only the time between MPI_Init and
/// MPI_Finalize is shown, unless --all or a window is given.
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
    #[command(flatten)]
    overview: OverviewArguments,

    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write a PNG picture to this file, with twice the width in pixels
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,

    /// Columns of the terminal; in pictures and JSON, columns of time (default: the terminal's width; 1200)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(10..=10_000))]
    width: Option<u16>,

    /// Show MPI_Init and MPI_Finalize, too
    #[arg(long, conflicts_with_all = ["from", "to"])]
    all: bool,

    /// Most locations (default: 40; in pictures and JSON 64)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    lanes: Option<u16>,

    /// Levels of nesting in pictures (default: 6; of more than 128 lanes, the innermost only)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    levels: Option<u8>,

    /// Match messages and waits, however much of the trace must be read for it
    #[arg(long)]
    messages: bool,

    /// Leave messages and waits out
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
    /// How full its columns are, in sixteenths, rounded up.
    fill: f64,
    /// Number of calls that end in it. Null with one level: inner calls interrupt outer ones.
    calls: Option<u64>,
    /// Whether it represents other than one call: `from` and `to` are then borders of columns, otherwise those of the
    /// call.
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
struct SpanOut {
    from_ns: i64,
    to_ns: i64,
}

#[derive(Serialize)]
struct LaneOut<'a> {
    rank: u32,
    location: &'a str,
    levels: Vec<Vec<RunOut<'a>>>,
    waits: Vec<SpanOut>,
    gaps: Vec<GapOut>,
}

#[derive(Serialize)]
struct WaitOut<'a> {
    lane: usize,
    #[serde(flatten)]
    wait: &'a Wait,
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
    message_count: u64,
    longest_waits: Vec<WaitOut<'a>>,
    notes: &'a [String],
}

fn as_json(layout: &Layout) -> TimelineOut<'_> {
    let start = |column: usize| layout.time.start_ns(column);
    let lanes = layout.lanes.iter().map(|lane| LaneOut {
        rank: lane.rank,
        location: &lane.name,
        levels: lane
            .rows
            .iter()
            .map(|row| {
                let runs = row.runs.iter().map(|run| {
                    let columns_ns = (start(run.from), start(run.to));
                    let call_ns = run.call_ns.filter(|_| run.is_whole);
                    let (from_ns, to_ns) = call_ns.unwrap_or(columns_ns);
                    RunOut {
                        from_ns,
                        to_ns,
                        region: &layout.legend[run.region].name,
                        fill: f64::from(run.fill) / f64::from(FULL),
                        calls: run.calls,
                        is_summary: call_ns.is_none(),
                    }
                });
                runs.collect()
            })
            .collect(),
        waits: lane
            .waits
            .iter()
            .map(|wait| SpanOut {
                from_ns: wait.from_ns,
                to_ns: wait.to_ns,
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
    let messages = layout.messages.lines.iter().map(|line| MessageOut {
        from_lane: line.from.0,
        from_ns: line.from.1,
        to_lane: line.to.0,
        to_ns: line.to.1,
    });
    let waits = layout.longest_waits.iter().map(|named| WaitOut {
        lane: named.lane,
        wait: &named.wait,
    });
    TimelineOut {
        from_ns: layout.window.from_ns,
        to_ns: layout.window.to_ns,
        columns: layout.columns,
        lanes: lanes.collect(),
        messages: messages.collect(),
        message_count: layout.messages.count,
        longest_waits: waits.collect(),
        notes: &layout.notes,
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &TimelineArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments
        .force
        .check_picture(arguments.svg.as_deref(), SVG, "svg")?;
    arguments
        .force
        .check_picture(arguments.png.as_deref(), PNG, "png")?;
    let is_picture = arguments.svg.is_some() || arguments.png.is_some();
    if is_picture {
        output::check_built_in(cfg!(feature = "pictures"), "pictures")?;
    }
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let has_levels = is_picture || arguments.input.json;
    let columns = match (arguments.width, has_levels) {
        (Some(width), true) => width.into(),
        (Some(width), false) => usize::from(width).saturating_sub(terminal::LABEL).max(1),
        (None, true) => 1200,
        (None, false) => Screen::of_output(false)
            .beside(terminal::MARGIN)
            .clamp(10, 1000),
    };
    let (part, chosen) = part_of_run(&opened, &filter, arguments.all)?;
    let window = part.window();
    let default = if has_levels { 64 } else { 40 };
    let most_lanes = arguments.lanes.map_or(default, usize::from);
    let request = Request {
        window,
        columns,
        lanes: most_lanes,
        first_lane: None,
        levels: match arguments.levels {
            Some(levels) if has_levels => levels.into(),
            None if has_levels && most_lanes <= MOST_NESTED => 6,
            _ => 1,
        },
        messages: match (arguments.messages, arguments.no_messages) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
    };
    let lanes = arguments.overview.lanes(&opened, window)?;
    let (mut layout, outcome) = Layout::of(&opened, &lanes, &filter, request)?;
    if chosen == PartOfRun::WithoutStartAndEnd {
        let whole = bounded(&opened, Window::ALL);
        let (before_ns, after_ns) = (window.from_ns - whole.from_ns, whole.to_ns - window.to_ns);
        let before = (before_ns > 0).then(|| {
            format!(
                "the first {}, until MPI_Init was first left",
                time::duration(before_ns)
            )
        });
        let after = (after_ns > 0).then(|| {
            format!(
                "the last {}, from the last MPI_Finalize on",
                time::duration(after_ns)
            )
        });
        let parts: Vec<String> = before.into_iter().chain(after).collect();
        let note = format!("not shown: {} (--all shows all)", parts.join("; "));
        layout.notes.insert(0, note);
    }
    let title = arguments.input.title();
    warn_of_damage(&opened, &outcome);
    #[cfg(feature = "pictures")]
    write_pictures(arguments, &layout, &title)?;
    if arguments.input.json {
        output::json(out, &as_json(&layout))?;
    } else if is_picture {
        for note in &layout.notes {
            eprintln!("note: {note}");
        }
    } else {
        let title = format!("{title}, {}", part_words(chosen));
        let text = terminal::render(&layout, &title, arguments.color.is_now());
        out.write_all(text.as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}

#[cfg(feature = "pictures")]
fn write_pictures(
    arguments: &TimelineArguments,
    layout: &Layout,
    title: &str,
) -> anyhow::Result<()> {
    if let Some(path) = &arguments.svg {
        let svg = picture::svg(layout, title);
        arguments.force.write(path, svg.as_bytes(), SVG)?;
    }
    if let Some(path) = &arguments.png {
        arguments.force.write(path, &png(layout, title)?, PNG)?;
    }
    Ok(())
}
