//! `trace-cli stuck`: which rank waits for which one in a job that hangs, or hung when it was killed.

use std::collections::BTreeSet;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_analysis::{Finding as Found, FindingKind, Findings, Life, findings};
use annals_format::units;
use annals_merger::{InputRecording, RecoverOptions, find, no_progress};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::InputArguments;
use crate::output::{self, Finding};
use crate::system_state::system_state;
use crate::table::{Screen, safe};
use crate::time;
use crate::views::{
    SystemStates, capital, counted, finding_sentence, position_table, rank_words, shell_word,
};

/// Differences of clocks between two readings of the same recordings, at most, nanoseconds.
const CLOCK_NS: i64 = 1_000_000;

/// Findings after the first that are printed.
const MOST_FINDINGS: usize = 5;

/// Which rank waits for which one: while a job hangs, or after it was killed.
///
/// Reads the recordings and live files of a job as they are now. Nothing is written, nothing is stopped. Two readings, one after the
/// other, show which ranks stay where they are: progress is a message, a collective operation, a wait or an operation of a window that
/// completes, or a region outside of MPI that is entered or left. The first sentence names the ranks with which the chains of
/// waits end; the table has all ranks, in groups that do the same. What a loss, a filter or a file that is elsewhere may
/// have changed is called not known. The chapter "A job hangs" of the manual has the rules.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not all is known, 4 stuck (with --watch).\n\n\
                  Examples:\n  trace-cli stuck annals-run\n  trace-cli stuck annals-run --interval 30s\n  \
                  trace-cli stuck annals-run --watch 1m && echo ended || echo stuck\n  trace-cli stuck annals-run --json"
)]
pub struct StuckArguments {
    #[command(flatten)]
    input: InputArguments,

    /// Time between the two readings of processes that run; 0s: one reading
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::parse_time)]
    interval: i64,

    /// Write what this host knows of the job into a directory instead: for jobs whose live files are on several hosts
    #[arg(long, requires = "output", conflicts_with_all = ["watch", "join", "json"])]
    local: bool,

    /// The directory for --local
    #[arg(short, long, value_name = "DIR", requires = "local")]
    output: Option<PathBuf>,

    /// INPUT is the directory into which --local has written on each host: how it was then
    #[arg(long, conflicts_with = "watch")]
    join: bool,

    /// Read again and again, after this time, until the job is stuck (exit code 4) or has ended
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    watch: Option<i64>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    /// The first of `sentences`.
    sentence: &'a str,
    sentences: &'a [String],
    is_stuck: bool,
    /// Time between the two readings, nanoseconds. `None`: one reading.
    interval_ns: Option<i64>,
    /// The ranks that made progress between the readings.
    progress: &'a [u32],
    #[serde(flatten)]
    found: &'a Findings,
}

/// What two readings show, or one.
struct Looked {
    found: Findings,
    interval_ns: Option<i64>,
    /// The ranks that made progress between the readings.
    progress: Vec<u32>,
}

impl Looked {
    /// Returns whether ranks cannot go on that did not move.
    fn is_stuck(&self) -> bool {
        self.found.is_stuck()
    }
}

fn look(input: &InputArguments) -> anyhow::Result<Findings> {
    Ok(findings(&input.open()?)?)
}

/// Reads twice what processes that run have recorded, and keeps the findings of both readings. `wait` returns whether to read again.
fn look_twice(
    input: &InputArguments,
    interval_ns: i64,
    wait: impl FnOnce(Duration) -> bool,
) -> anyhow::Result<Looked> {
    let mut found = look(input)?;
    let mut looked_ns = None;
    let mut progress = Vec::new();
    let interval = Duration::from_nanos(interval_ns.unsigned_abs());
    if found.is_running && interval_ns > 0 && wait(interval) {
        let earlier = std::mem::replace(&mut found, look(input)?);
        let is_same = |now: &Found, then: &Found| {
            now.kind == then.kind
                && now.ranks == then.ranks
                && now.since_ns.abs_diff(then.since_ns) < CLOCK_NS.unsigned_abs()
        };
        found.findings.retain(|now| {
            let is_over = now.kind == FindingKind::Ended;
            is_over || earlier.findings.iter().any(|then| is_same(now, then))
        });
        progress = found.progress_since(&earlier);
        looked_ns = Some(interval_ns);
    }
    Ok(Looked {
        found,
        interval_ns: looked_ns,
        progress,
    })
}

fn sleep(interval: Duration) -> bool {
    std::thread::sleep(interval);
    true
}

/// Returns what is said of a job whose ranks have not moved for a time: sentences and a table. `None` if they move, have ended, or if
/// `wait` returned false.
///
/// # Errors
/// If nothing can be read.
pub fn roll_call(
    directory: &Path,
    after: Duration,
    wait: impl FnOnce(Duration) -> bool,
) -> anyhow::Result<Option<String>> {
    let input = InputArguments {
        input: directory.to_owned(),
        json: false,
        full_names: false,
        symbols: Vec::new(),
        jobs: NonZeroUsize::new(1),
    };
    let after_ns = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
    let looked = look_twice(&input, after_ns, wait)?;
    let is_over = looked.interval_ns.is_none() || !looked.progress.is_empty();
    if is_over || looked.found.findings.is_empty() {
        return Ok(None);
    }
    let states = states(&looked.found);
    let mut text = sentences(&looked, &states).join("\n");
    let table = position_table(&looked.found, &states).render(Screen::columns(120));
    text.push_str("\n\n");
    text.push_str(&table);
    Ok(Some(text))
}

fn states(found: &Findings) -> SystemStates {
    let each = found.positions.iter();
    each.filter_map(|of| Some(((of.rank, of.thread.clone()), system_state(of)?)))
        .collect()
}

/// Returns the sentence about a run without findings that has ended.
fn ended_sentence(found: &Findings) -> String {
    let killed = found
        .positions
        .iter()
        .filter(|of| of.ending.life == Life::UntilEnd);
    let killed: BTreeSet<u32> = killed.map(|of| of.rank).collect();
    let killed: Vec<u32> = killed.into_iter().collect();
    match killed.len() {
        0 => "All ranks have ended, and none waited for another.".to_owned(),
        1 => format!(
            "{} was killed, and none waited for another.",
            capital(&rank_words(&killed))
        ),
        _ => format!(
            "{} were killed, and none waited for another.",
            capital(&rank_words(&killed))
        ),
    }
}

/// Returns the sentences: the findings, and what is known of progress.
fn sentences(looked: &Looked, states: &SystemStates) -> Vec<String> {
    let found = &looked.found;
    let shown = found.findings.iter().take(MOST_FINDINGS);
    let mut sentences: Vec<String> = shown
        .map(|of| finding_sentence(found, of, states))
        .collect();
    if found.findings.len() > MOST_FINDINGS {
        let more = found.findings.len() - MOST_FINDINGS;
        sentences.push(format!("{more} more findings: --json has all."));
    }
    let interval = looked.interval_ns.map(time::duration);
    let progress = match (found.is_running, interval) {
        (false, _) if !found.unseen_ranks.is_empty() => {
            "Whether all processes still run is not known.".to_owned()
        }
        (false, _) if sentences.is_empty() => ended_sentence(found),
        (false, _) => "This is how it was when the run ended.".to_owned(),
        (true, None) => {
            "This is so at this moment: one reading does not show which ranks are stuck.".to_owned()
        }
        (true, Some(interval)) if !looked.progress.is_empty() => {
            let rest = if sentences.is_empty() {
                ": no rank is stuck"
            } else {
                ""
            };
            let ranks = capital(&rank_words(&looked.progress));
            format!("{ranks} made progress within {interval}{rest}.")
        }
        (true, Some(interval)) if sentences.is_empty() => {
            format!(
                "No rank made progress within {interval}, and none is known to wait for another."
            )
        }
        (true, Some(interval)) => {
            let mut kinds = found.findings.iter().map(|of| of.kind);
            let may_work = kinds.any(|kind| kind == FindingKind::Elsewhere);
            let rest = if may_work {
                "; what is outside of MPI may be at work"
            } else {
                ""
            };
            format!("No rank made progress within {interval}{rest}.")
        }
    };
    sentences.push(progress);
    if !found.missing_ranks.is_empty() {
        let ranks: Vec<String> = found
            .missing_ranks
            .iter()
            .take(20)
            .map(u32::to_string)
            .collect();
        let count = counted(found.missing_ranks.len() as u64, "rank");
        sentences.push(format!(
            "There is no recording of {count}: {}.",
            ranks.join(", ")
        ));
    }
    sentences
}

/// Writes the recordings of which this host has the live files, with what is in them, into a directory.
fn write_local(input: &Path, directory: &Path, out: &mut dyn Write) -> anyhow::Result<Finding> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let mut options = RecoverOptions::new();
    options.directory = Some(directory.to_owned());
    options.as_it_is_now = true;
    let (mut written, mut elsewhere) = (0_u64, 0_u64);
    for path in find(&[input.to_owned()], None)?.recordings {
        let Ok(opened) = InputRecording::open(&path) else {
            continue;
        };
        match options.recover(&opened, no_progress)? {
            Some(_) => written += 1,
            None if opened.recording.has_footer => {
                let name = path.file_name().unwrap_or_default();
                std::fs::copy(&path, directory.join(name))
                    .with_context(|| path.display().to_string())?;
                written += 1;
            }
            None => elsewhere += 1,
        }
    }
    let (all, others) = (counted(written, "recording"), time::grouped(elsewhere));
    let directory = shell_word(&directory.display().to_string());
    writeln!(
        out,
        "{all} written to {directory}; the live files of {others} are elsewhere. When every host has done this:\n  \
         trace-cli stuck {directory} --join"
    )?;
    Ok(Finding::FINE)
}

/// Returns what to do about ranks whose live files are on other hosts, if there are any.
fn other_hosts(arguments: &StuckArguments, found: &Findings) -> Option<String> {
    let unseen = found.unseen_ranks.iter();
    let (ranks, hosts): (BTreeSet<u32>, BTreeSet<&str>) =
        unseen.map(|(rank, host)| (*rank, host.as_str())).unzip();
    if ranks.is_empty() {
        return None;
    }
    let ranks: Vec<u32> = ranks.into_iter().collect();
    let hosts: Vec<&str> = hosts.into_iter().take(4).collect();
    let input = shell_word(&arguments.input.input.display().to_string());
    Some(format!(
        "The live files of {} are not visible here (host {}), or the recordings are damaged. On each host: trace-cli stuck {input} --local -o STATE \
         (with Slurm: srun --overlap --ntasks-per-node=1 trace-cli stuck {input} --local -o STATE), then: trace-cli stuck STATE --join",
        rank_words(&ranks),
        safe(&hosts.join(", "))
    ))
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, or the output cannot be written.
pub fn run(arguments: &StuckArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let input = &arguments.input;
    if let Some(directory) = &arguments.output {
        return write_local(&input.input, directory, out);
    }
    let looked = match arguments.watch {
        None if arguments.join => look_twice(input, 0, sleep)?,
        None => look_twice(input, arguments.interval, sleep)?,
        Some(interval_ns) => loop {
            let looked = look_twice(input, interval_ns, sleep)?;
            if looked.is_stuck() || !looked.found.is_running {
                break looked;
            }
        },
    };
    let states = states(&looked.found);
    let mut sentences = sentences(&looked, &states);
    sentences.extend(other_hosts(arguments, &looked.found));
    if input.json {
        let answer = Answer {
            sentence: &sentences[0],
            sentences: &sentences,
            is_stuck: looked.is_stuck(),
            interval_ns: looked.interval_ns,
            progress: &looked.progress,
            found: &looked.found,
        };
        output::json(out, &answer)?;
    } else {
        for sentence in &sentences {
            writeln!(out, "{}", safe(sentence))?;
        }
        if !looked.found.positions.is_empty() {
            let table = position_table(&looked.found, &states);
            write!(out, "\n{}", table.render(input.screen()))?;
        }
    }
    let is_watched = arguments.watch.is_some();
    Ok(Finding {
        is_stuck: is_watched && looked.is_stuck(),
        ..Finding::loss(looked.found.has_unknown())
    })
}
