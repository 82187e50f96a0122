//! `trace-cli demo`: the main job on real input. Four processes compress the files below a directory, and each records
//! what it does. Then their recordings are merged, analysed, and compared with the processes' own counts.

mod pipeline;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use annals_analysis::{Grouping, region_times};
use annals_format::Value;
use annals_merger::{MergeOptions, Places, Query, ReadSummary, Reader, no_progress};
use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::output::Finding;
use crate::table::{Screen, Table, safe};
use crate::time;
use crate::views::{Info, counted, loss_rows, rows_with_outside, summed};

/// Number of processes.
const RANKS: u32 = 4;
/// The rank with a buffer that is too small on purpose.
const TINY_RANK: u32 = 3;
/// Regions that are shown.
const MOST_REGIONS: usize = 8;
/// Directories that were left out and are named, at most.
const MOST_SKIPPED: usize = 5;
/// Rows of losses that are shown.
const MOST_LOSSES: usize = 5;
/// The name of the demo's directory; the demo skips directories of this name.
const DIRECTORY: &str = "annals-demo";
/// The event type that reports a compressed file.
const FILE_DONE: &str = "file.done";

/// Records a real parallel program, merges the recordings and analyses the result.
///
/// Four processes compress the files below DIR in memory (nothing is changed there; directories called
/// .git and target are left out), each with a
/// walker, readers, zstd compressors and a completion source that delivers out of order. Rank 3 has
/// a tiny buffer on purpose, so that you see what losses look like. The results are checked against
/// the processes' own counts; the exit code is 0 when all of them agree.
#[derive(Clone, Debug, Args)]
pub struct DemoArguments {
    /// Directory to compress
    #[arg(default_value = ".", value_name = "DIR")]
    directory: PathBuf,

    /// Directory for the recordings and the trace [default: annals-demo, or annals-demo-2, … when
    /// that exists]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// One process of the demo.
#[derive(Clone, Debug, Args)]
pub struct RankArguments {
    /// Directory to compress
    directory: PathBuf,
    /// Where recordings go
    output: PathBuf,
    /// Which process this is
    rank: u32,
}

/// A process's own counts of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tally {
    files: u64,
    bytes_in: u64,
    bytes_out: u64,
    unreadable: u64,
    /// Directories that were left out.
    skipped: Vec<String>,
}

/// Runs one process; prints its tally.
///
/// # Errors
/// If the recording cannot be started or the directory not be read.
pub fn run_rank(arguments: &RankArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let tally = pipeline::run(&arguments.directory, &arguments.output, arguments.rank)?;
    writeln!(out, "{}", serde_json::to_string(&tally)?)?;
    Ok(Finding::FINE)
}

fn new_directory(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = wanted {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        let is_empty = fs::read_dir(path)?.next().is_none();
        if !is_empty {
            bail!("{} is not empty: name a new directory", path.display());
        }
        return Ok(path.to_owned());
    }
    for number in 1.. {
        let path = match number {
            1 => PathBuf::from(DIRECTORY),
            _ => PathBuf::from(format!("{DIRECTORY}-{number}")),
        };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let message = format!(
                    "cannot create {} here: name another place with --output",
                    path.display()
                );
                return Err(error).context(message);
            }
        }
    }
    unreachable!("the loop ends by returning")
}

/// Runs the command.
///
/// # Errors
/// If a process fails, or recordings cannot be merged or read.
pub fn run(arguments: &DemoArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let directory = &arguments.directory;
    let is_directory = fs::metadata(directory)
        .with_context(|| format!("cannot read the properties of {}", directory.display()))?
        .is_dir();
    if !is_directory {
        bail!("{} is no directory", directory.display());
    }
    let output = new_directory(arguments.output.as_deref())?;
    eprintln!(
        "compressing the files below {} with {RANKS} processes, recording into {}",
        directory.display(),
        output.display()
    );
    let tallies = run_processes(directory, &output)?;
    let skipped: Vec<&str> = tallies
        .iter()
        .flat_map(|t| &t.skipped)
        .map(String::as_str)
        .collect();
    if !skipped.is_empty() {
        let shown = skipped.iter().take(MOST_SKIPPED).map(|path| safe(path));
        let shown = shown.collect::<Vec<_>>().join(", ");
        let more = if skipped.len() > MOST_SKIPPED {
            ", …"
        } else {
            ""
        };
        eprintln!(
            "left out: {} of version control, builds and earlier demos: {shown}{more}",
            if skipped.len() == 1 {
                "1 directory".to_owned()
            } else {
                format!("{} directories", skipped.len())
            }
        );
    }

    let trace = output.join("run.annals");
    let plan = MergeOptions::new().plan(std::slice::from_ref(&output))?;
    let merged = plan.write_trace(&trace, no_progress)?;
    eprintln!(
        "merged {} events into {} ({} bytes)\n",
        merged.report.totals.present(),
        trace.display(),
        merged.bytes
    );
    let screen = Screen::of_output(false);
    let opened = Reader::open(&trace)?;
    let outcome = opened.summary()?;
    writeln!(out, "{}", Info::of(&opened, &outcome).render(screen))?;
    let (times, _) = region_times(&opened, &Query::new(), Grouping::None)?;
    let mut rows = rows_with_outside(&times);
    rows.truncate(MOST_REGIONS);
    writeln!(out, "{}", Table::of(&rows).render(screen))?;
    writeln!(out, "{}", short_losses(&opened, &outcome, screen))?;

    let has_failed = !check(&opened, &tallies, out)? || !plan.rejected().is_empty();
    // The program as it was called, if it was by its path: then it may not be in PATH.
    let called = std::env::args().next().filter(|name| name.contains('/'));
    let program = called.unwrap_or_else(|| "trace-cli".to_owned());
    writeln!(
        out,
        "\nThis demo showed: {RANKS} processes recorded in parallel, merged into one order, their regions with times, and \
         what rank {TINY_RANK} lost\nto a buffer that is too small on purpose, with the count that each process kept \
         itself.\n\nThe recordings are in {0}, the trace is {1}. Next:\n  \
         {program} tui {1}                   walk through it by keys\n  \
         {program} timeline {1} --svg demo.svg\n  \
         {program} regions {1} --by rank\n  \
         {program} print {1} --source completions --limit 20\n  \
         {program} dropped {1} --check       ends with exit code 3, because rank {TINY_RANK} lost events",
        output.display(),
        trace.display()
    )?;
    Ok(Finding {
        has_loss: false,
        has_failed,
        ..Finding::FINE
    })
}

/// Returns the largest losses as a table.
fn short_losses(opened: &Reader, outcome: &ReadSummary, screen: Screen) -> String {
    let mut losses = summed(&outcome.losses);
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
    let rest = losses.split_off(losses.len().min(MOST_LOSSES));
    let mut text = Table::of(&loss_rows(opened, &losses)).render(screen);
    if !rest.is_empty() {
        let events = rest
            .iter()
            .fold(0_u64, |sum, loss| sum.saturating_add(loss.count));
        text += &format!(
            "and {} in {}\n",
            counted(events, "event"),
            counted(rest.len() as u64, "more row")
        );
    }
    text
}

fn run_processes(directory: &Path, output: &Path) -> anyhow::Result<Vec<Tally>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut children = Vec::new();
    for rank in 0..RANKS {
        let child = Command::new(&program)
            .arg("demo-rank")
            .args([directory, output])
            .arg(rank.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start process {rank}"))?;
        children.push(child);
    }
    let mut tallies = Vec::new();
    for (rank, child) in children.into_iter().enumerate() {
        let result = child.wait_with_output()?;
        if !result.status.success() {
            bail!("process {rank} of the demo failed: {}", result.status);
        }
        let tally = serde_json::from_slice(&result.stdout)
            .with_context(|| format!("process {rank} of the demo did not say what it did"))?;
        tallies.push(tally);
    }
    Ok(tallies)
}

/// Holds the trace against the processes' own tallies.
fn check(opened: &Reader, tallies: &[Tally], out: &mut dyn Write) -> anyhow::Result<bool> {
    let definitions = opened.definitions();
    let places = Places::of(definitions);
    let done = definitions
        .event_types
        .values()
        .find(|event_type| definitions.string(event_type.name) == FILE_DONE)
        .context("the trace does not know the demo's event type")?;
    let mut query = Query::new();
    query.set_event_types([done.id]);
    let (bytes_in, bytes_out) = (query.element("bytes_in"), query.element("bytes_out"));
    let mut found: BTreeMap<u32, Tally> = BTreeMap::new();
    let outcome = opened.for_each_event(&query, |event| {
        let number = |element| match event.value(element) {
            Value::U64(value) => value,
            _ => 0,
        };
        let tally = found.entry(event.rank()).or_default();
        tally.files += 1;
        tally.bytes_in += number(bytes_in);
        tally.bytes_out += number(bytes_out);
        ControlFlow::Continue(())
    })?;
    let outcome = outcome.context("nothing stops this pass")?;
    let mut holds = true;
    for (rank, tally) in tallies.iter().enumerate() {
        let rank = rank as u32;
        let seen = found.remove(&rank).unwrap_or_default();
        let lost: u64 = outcome
            .losses
            .iter()
            .filter(|loss| places.get(loss.stream).rank == rank)
            .filter(|loss| loss.event_type.is_none_or(|id| id == done.id))
            .map(|loss| loss.count)
            .sum();
        let any_lost: u64 = outcome
            .losses
            .iter()
            .filter(|loss| places.get(loss.stream).rank == rank)
            .map(|loss| loss.count)
            .sum();
        let is_true = seen.files + lost == tally.files
            && if lost == 0 {
                (seen.bytes_in, seen.bytes_out) == (tally.bytes_in, tally.bytes_out)
            } else {
                seen.bytes_in <= tally.bytes_in && seen.bytes_out <= tally.bytes_out
            };
        // The losses of the tiny buffer must be visible.
        let is_as_meant = rank != TINY_RANK || any_lost != 0;
        holds &= is_true && is_as_meant;
        let verdict = match (is_true && is_as_meant, lost) {
            (false, _) => "DOES NOT AGREE with the trace".to_owned(),
            (true, 0) => "the trace agrees, byte for byte".to_owned(),
            (true, lost) => format!(
                "the trace has {}; {lost} were dropped by its tiny buffer, and the trace counts them",
                seen.files
            ),
        };
        let unreadable = match tally.unreadable {
            0 => String::new(),
            count => format!(", {count} unreadable"),
        };
        writeln!(
            out,
            "rank {rank}: {} files{unreadable}, {} -> {}: {verdict}",
            tally.files,
            time::bytes(tally.bytes_in),
            time::bytes(tally.bytes_out)
        )?;
    }
    Ok(holds)
}
