//! `trace-cli slice` and `split`: parts of a trace as traces of their own.

use std::io::Write;
use std::path::{Path, PathBuf};

use annals_format::CompressionLevel;
use annals_merger::{
    EventFilter, Opened, Sums, Window, WriteOptions, plan_merge, write_trace_from,
};
use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::InputArguments;
use crate::filter::WindowArguments;
use crate::output::{self, Finding, UsageError};
use crate::time;

/// A part of a trace as a trace of its own.
///
/// Times, definitions and calibration stay; what is left out is counted as filtered; losses stay, with their times. Regions that
/// are open where the part begins are open in it: it starts with a snapshot of them, so that `regions`, `timeline` and the
/// others show there what they show in the whole trace.
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
    filter: EventFilter,

    /// Where the part goes
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// A trace in parts of equal time, each a trace of its own.
///
/// Parts are as of `slice`, and named after the output: part-001.annals, part-002.annals, …
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli split run.annals --every 10s -o parts")]
pub struct SplitArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    filter: EventFilter,

    /// Time of each part
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    every: i64,

    /// Directory for the parts
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Parts of a split are not more than this.
const MOST_PARTS: i64 = 100_000;

#[derive(Clone, Debug, Serialize)]
struct Part {
    path: PathBuf,
    from_ns: Option<i64>,
    to_ns: Option<i64>,
    events: u64,
    bytes: u64,
    open_regions: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Parts {
    parts: Vec<Part>,
}

fn write_part(
    opened: &Opened,
    input: &Path,
    window: Window,
    filter: &EventFilter,
    output: &Path,
) -> anyhow::Result<Part> {
    if let (Ok(a), Ok(b)) = (std::fs::canonicalize(input), std::fs::canonicalize(output))
        && a == b
    {
        bail!(
            "{}: a part does not take the place of its whole; name another output",
            output.display()
        );
    }
    let (mut merge, _) = plan_merge(&[input.to_owned()], Some(output))?;
    merge.causality = annals_merger::Causality::Off;
    let definitions = &opened.definitions;
    let is_same = merge.definitions.regions == definitions.regions
        && merge.definitions.locations == definitions.locations;
    if !is_same {
        bail!("{}: changed while it was read", input.display());
    }
    let mut open = opened.open_at(window.from_ns)?;
    let selection = filter.select(definitions)?;
    open.locations.retain(|state| {
        let mut streams = definitions.streams.values();
        streams.any(|s| s.location == Some(state.location) && selection.takes_stream(s.id))
    });
    merge.filter(filter, window)?;
    let options = WriteOptions {
        compression: CompressionLevel::default(),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let open_regions = open.locations.iter().map(|state| state.steps.len()).sum();
    let (merged, bytes) = write_trace_from(&merge, output, options, &open, |_| {})?;
    Ok(Part {
        path: output.to_owned(),
        from_ns: (window.from_ns != i64::MIN).then_some(window.from_ns),
        to_ns: (window.to_ns != i64::MAX).then_some(window.to_ns),
        events: Sums::of(&merged.totals).present(),
        bytes,
        open_regions,
    })
}

fn tell(parts: Vec<Part>, is_json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if is_json {
        output::json(out, &Parts { parts })?;
        return Ok(Finding::FINE);
    }
    for part in &parts {
        writeln!(
            out,
            "{}: {} events, {}, {} regions open where it begins",
            part.path.display(),
            part.events,
            time::bytes(part.bytes),
            part.open_regions
        )?;
    }
    Ok(Finding::FINE)
}

/// Runs `slice`.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &SliceArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let input = &arguments.input.input;
    let part = write_part(&opened, input, window, &arguments.filter, &arguments.output)?;
    tell(vec![part], arguments.input.json, out)
}

/// Runs `split`.
///
/// # Errors
/// As [`run`].
pub fn run_split(arguments: &SplitArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.input.open()?;
    let end_ns = opened.end_ns();
    if arguments.every <= 0 || end_ns / arguments.every >= MOST_PARTS {
        let why = format!("--every: a time that gives at most {MOST_PARTS} parts");
        return Err(UsageError(why).into());
    }
    std::fs::create_dir_all(&arguments.output)?;
    let count = end_ns / arguments.every + 1;
    let mut parts = Vec::new();
    for number in 0..count {
        // The first and the last part take what lies beyond the ends.
        let window = Window {
            from_ns: if number == 0 {
                i64::MIN
            } else {
                number * arguments.every
            },
            to_ns: if number + 1 == count {
                i64::MAX
            } else {
                (number + 1) * arguments.every
            },
        };
        let path = arguments
            .output
            .join(format!("part-{:03}.annals", number + 1));
        let input = &arguments.input.input;
        parts.push(write_part(
            &opened,
            input,
            window,
            &arguments.filter,
            &path,
        )?);
    }
    tell(parts, arguments.input.json, out)
}
