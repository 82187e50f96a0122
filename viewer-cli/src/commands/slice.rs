//! `trace-cli slice` and `split`: parts of a trace as separate traces.

use std::io::Write;
use std::path::{Path, PathBuf};

use annals_format::units;
use annals_merger::{Causality, EventFilter, MergeOptions, Reader, Sums, Window, no_progress};
use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use super::InputArguments;
use crate::file::ForceArgument;
use crate::filter::{EventFilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::time;
use crate::views::numbered;

/// A part of a trace as a separate trace.
///
/// Times, definitions and calibration stay; what is left out is counted as filtered; losses stay, with their times. Regions that
/// are open where the part begins are open in it: it starts with a snapshot of them. Regions that are open where the part
/// ends, end in it with the last enter or leave of their location: later events are not in the part, so that such a
/// call is shorter there than in the whole trace, and a location without events in the part has no calls.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli slice run.annals --from 1s --to 1.5s -o part.annals\n  \
                  trace-cli slice run.annals --from 1s --rank 0-3 -o part.annals"
)]
pub struct SliceArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: EventFilterArguments,

    /// File for the part
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    force: ForceArgument,
}

/// A trace in parts of equal time or size, each a separate trace.
///
/// Parts are like those of `slice`, with the names part-001.annals, part-002.annals, … Parts of a size contain at least
/// that many bytes of the whole trace's events, and up to a chunk more.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli split run.annals --every 10s -o parts\n  \
                  trace-cli split run.annals --every 1G --rank 0-3 -o parts"
)]
pub struct SplitArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    filter: EventFilterArguments,

    /// Time of each part, or its size
    #[arg(long, value_name = "TIME|SIZE", value_parser = parse_every)]
    every: Every,

    /// Directory for the parts
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    force: ForceArgument,
}

/// Parts of a split are not more than this.
const MOST_PARTS: usize = 100_000;

/// How much of a trace is a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Every {
    /// Nanoseconds.
    Time(i64),
    Bytes(u64),
}

fn parse_every(text: &str) -> Result<Every, String> {
    if let Ok(bytes) = units::parse_size(text) {
        return Ok(Every::Bytes(bytes));
    }
    units::parse_time(text).map(Every::Time).map_err(|_| {
        format!(
            "`{text}` is neither a time ({}) nor a size ({})",
            units::TIME,
            units::SIZE
        )
    })
}

#[derive(Clone, Debug, Serialize)]
struct SliceFile {
    path: PathBuf,
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    events: u64,
    bytes: u64,
    open_regions: usize,
    /// Whether something of the input could not be read.
    #[serde(skip)]
    has_skipped: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Parts {
    parts: Vec<SliceFile>,
}

fn write_part(
    opened: &Reader,
    input: &Path,
    window: Window,
    filter: &EventFilter,
    output: &Path,
    force: ForceArgument,
) -> anyhow::Result<SliceFile> {
    if let (Ok(a), Ok(b)) = (std::fs::canonicalize(input), std::fs::canonicalize(output))
        && a == b
    {
        bail!(
            "{}: a part does not take the place of its whole; name another output",
            output.display()
        );
    }
    let mut options = MergeOptions::new();
    options.output = Some(output.to_owned());
    options.causality = Causality::Off;
    options.filter = filter.clone();
    options.window = window;
    options.force = force.force;
    let plan = options.plan(&[input.to_owned()])?;
    let definitions = opened.definitions();
    let planned = plan.definitions();
    let is_same =
        planned.regions == definitions.regions && planned.locations == definitions.locations;
    if !is_same {
        bail!(
            "{}: its definitions of regions or locations are damaged, or it changed while it was read; \
             merge it, and slice the result",
            input.display()
        );
    }
    let mut open = opened.open_at(window.from_ns)?;
    let selection = filter.select(definitions)?;
    open.locations.retain(|state| {
        let mut streams = definitions.streams.values();
        streams.any(|s| s.location == Some(state.location) && selection.takes_stream(s.id))
    });
    let open_regions = open.locations.iter().map(|state| state.steps.len()).sum();
    let merged = plan.write_trace_from(output, &open, no_progress)?;
    let report = &merged.report;
    let is_damaged = |input: &annals_merger::InputReport| {
        !input.damage.is_empty() || input.unplaced != 0 || !input.has_footer
    };
    // Of a trace, what its merge could not read is no news.
    let sums = Sums::of(&merged.totals);
    let is_new = opened.origin().kind != "trace" && sums.skipped | sums.truncated != 0;
    let has_skipped = is_new
        || !plan.rejected().is_empty()
        || report.inputs.iter().any(is_damaged)
        || report
            .streams
            .iter()
            .any(|stream| stream.first_error.is_some());
    Ok(SliceFile {
        path: output.to_owned(),
        from_ns: (window.from_ns != i64::MIN).then_some(window.from_ns),
        to_ns: (window.to_ns != i64::MAX).then_some(window.to_ns),
        events: sums.present(),
        bytes: merged.bytes,
        open_regions,
        has_skipped,
    })
}

fn tell(parts: Vec<SliceFile>, is_json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let finding = Finding::loss(parts.iter().any(|part| part.has_skipped));
    if is_json {
        output::json(out, &Parts { parts })?;
        return Ok(finding);
    }
    for part in &parts {
        writeln!(
            out,
            "{}: {}, {}, {} open where it begins",
            part.path.display(),
            numbered(part.events, "event"),
            time::bytes(part.bytes),
            numbered(part.open_regions, "region")
        )?;
    }
    Ok(finding)
}

/// Runs `slice`.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &SliceArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let input = &arguments.input.input;
    let part = write_part(
        &opened,
        input,
        window,
        &arguments.filter.filter(),
        &arguments.output,
        arguments.force,
    )?;
    tell(vec![part], arguments.input.json, out)
}

/// Returns when the parts of a split begin, but for the first.
fn cuts(opened: &Reader, arguments: &SplitArguments) -> anyhow::Result<Vec<i64>> {
    let cuts = match arguments.every {
        Every::Bytes(0) => None,
        Every::Time(every_ns) if every_ns <= 0 => None,
        Every::Time(every_ns) => {
            let count = opened.extent().end_ns / every_ns;
            let is_few = usize::try_from(count).is_ok_and(|count| count < MOST_PARTS);
            is_few.then(|| (1..=count).map(|number| number * every_ns).collect())
        }
        Every::Bytes(bytes) => {
            let cuts = opened.trace().map(|trace| trace.cuts(bytes));
            let cuts = cuts.with_context(|| {
                format!(
                    "{}: only one trace has bytes in the order of time: merge first (trace-merge), or give a time",
                    arguments.input.input.display()
                )
            })?;
            (cuts.len() < MOST_PARTS).then_some(cuts)
        }
    };
    cuts.ok_or_else(|| {
        let why = format!(
            "--every: expected a time or size above 0 that results in at most {MOST_PARTS} parts"
        );
        UsageError(why).into()
    })
}

/// Runs `split`.
///
/// # Errors
/// If the trace cannot be read, or a part cannot be written.
pub fn run_split(arguments: &SplitArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.input.open()?;
    let cuts = cuts(&opened, arguments)?;
    std::fs::create_dir_all(&arguments.output)?;
    // The first and the last part take what lies beyond the ends.
    let starts = std::iter::once(i64::MIN).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(i64::MAX));
    let mut parts = Vec::new();
    for (number, (from_ns, to_ns)) in starts.zip(ends).enumerate() {
        let window = Window { from_ns, to_ns };
        let path = arguments
            .output
            .join(format!("part-{:03}.annals", number + 1));
        let input = &arguments.input.input;
        parts.push(write_part(
            &opened,
            input,
            window,
            &arguments.filter.filter(),
            &path,
            arguments.force,
        )?);
    }
    tell(parts, arguments.input.json, out)
}
