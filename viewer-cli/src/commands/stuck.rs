//! `trace-cli stuck`: which rank waits for which one in a job that hangs, or hung when it was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annals_analysis::{
    DumpFindings, Finding as Found, FindingKind, Findings, Life, RankDump, dump_findings, findings,
};
use annals_foreign::flight::{Dump, DumpFile, dump_files};
use annals_format::units;
use annals_merger::{InputRecording, RecoverOptions, find, no_progress};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::InputArguments;
use crate::output::{self, Finding, UsageError};
use crate::system_state::system_state;
use crate::table::{Screen, safe};
use crate::time;
use crate::views::{
    SystemStates, capital, counted, finding_sentence, position_table, rank_words, shell_word,
};

/// Differences of clocks between two readings of the same recordings, at most, nanoseconds.
const CLOCK_NS: i64 = 1_000_000;

/// Operations of all dumps that are kept, the newest.
const MOST_ENTRIES: usize = 1_500_000;

/// Findings after the first that are printed.
const MOST_FINDINGS: usize = 5;

/// Which rank waits for which one: while a job hangs, or after it was killed.
///
/// Reads the recordings and live files of a job as they are now. Nothing is written, nothing is stopped. Two readings, one after the
/// other, show which ranks stay where they are: progress is a message, a collective operation, a wait or an operation of a window that
/// completes, or a region outside of MPI that is entered or left. The first sentence names the ranks with which the chains of
/// waits end; the table has all ranks, in groups that do the same. What a loss, a filter or a file that is elsewhere may
/// have changed is called not known. The chapter "A job hangs" of the manual has the rules.
///
/// INPUT may also be dumps of PyTorch's flight recorder, a file for each rank whose name ends with the rank, or their directory: "A
/// training job hangs".
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not all is known, 4 stuck (with --watch).\n\n\
                  Examples:\n  trace-cli stuck annals-run\n  trace-cli stuck annals-run --interval 30s\n  \
                  trace-cli stuck annals-run --watch 1m && echo ended || echo stuck\n  trace-cli stuck annals-run --json\n  trace-cli stuck /tmp/nccl_trace_rank_*"
)]
pub struct StuckArguments {
    #[command(flatten)]
    input: InputArguments,

    /// More dumps of PyTorch's flight recorder, if INPUT is one
    #[arg(value_name = "DUMP")]
    dumps: Vec<PathBuf>,

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

/// The answer about dumps as JSON.
#[derive(Serialize)]
struct DumpAnswer<'a> {
    /// The first of `sentences`.
    sentence: &'a str,
    sentences: &'a [String],
    is_stuck: bool,
    /// Why dumps cannot be read, by rank.
    unreadable: &'a BTreeMap<u32, String>,
    #[serde(flatten)]
    answer: &'a DumpFindings,
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

fn finding_sentences(found: &Findings, states: &SystemStates) -> Vec<String> {
    let shown = found.findings.iter().take(MOST_FINDINGS);
    let mut sentences: Vec<String> = shown
        .map(|of| finding_sentence(found, of, states))
        .collect();
    if found.findings.len() > MOST_FINDINGS {
        let more = found.findings.len() - MOST_FINDINGS;
        sentences.push(format!("{more} more findings: --json has all."));
    }
    sentences
}

/// Returns the sentences: the findings, and what is known of progress.
fn sentences(looked: &Looked, states: &SystemStates) -> Vec<String> {
    let found = &looked.found;
    let mut sentences = finding_sentences(found, states);
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
    sentences.extend(missing_sentence(found, "recording"));
    sentences
}

/// Returns which ranks have no recording, or no dump.
fn missing_sentence(found: &Findings, what: &str) -> Option<String> {
    let missing = &found.missing_ranks;
    let ranks: Vec<String> = missing.iter().take(20).map(u32::to_string).collect();
    let (count, ranks) = (counted(missing.len() as u64, "rank"), ranks.join(", "));
    (!missing.is_empty()).then(|| format!("There is no {what} of {count}: {ranks}."))
}

/// Writes sentences, and the table of where ranks are.
fn put(
    out: &mut dyn Write,
    input: &InputArguments,
    found: &Findings,
    states: &SystemStates,
    sentences: &[String],
) -> anyhow::Result<()> {
    for sentence in sentences {
        writeln!(out, "{}", safe(sentence))?;
    }
    if !found.positions.is_empty() {
        let table = position_table(found, states);
        write!(out, "\n{}", table.render(input.screen()))?;
    }
    Ok(())
}

/// Reads dumps. Returns them, and by rank why those of others cannot be read.
fn read_dumps(files: &[DumpFile]) -> anyhow::Result<(Vec<RankDump>, BTreeMap<u32, String>)> {
    let mut dumps: Vec<RankDump> = Vec::new();
    let mut unreadable = BTreeMap::new();
    let most_entries = MOST_ENTRIES / files.len().max(1);
    for file in files {
        let (rank, path) = (file.rank, file.path.display());
        let mut others = dumps.iter().filter(|of| of.rank == rank);
        match Dump::read(&file.path, most_entries) {
            Err(error) => {
                unreadable.insert(rank, format!("{:#}", anyhow::Error::from(error)));
            }
            Ok(dump) if others.any(|of| of.dump.has_group_of(&dump)) => {
                unreadable.insert(rank, format!("{path}: a second dump of the same groups"));
            }
            Ok(dump) => dumps.push(RankDump { rank, dump }),
        }
    }
    dumps.retain(|of| !unreadable.contains_key(&of.rank));
    match unreadable.first_key_value() {
        Some((_, why)) if dumps.is_empty() => anyhow::bail!("{why}"),
        _ => Ok((dumps, unreadable)),
    }
}

/// Returns the sentences about dumps: the findings, and what the dumps do not show.
fn dump_sentences(answer: &DumpFindings, unreadable: &BTreeMap<u32, String>) -> Vec<String> {
    let found = &answer.findings;
    let mut sentences = finding_sentences(found, &SystemStates::new());
    sentences.push(match sentences.is_empty() {
        true => "No rank is known to have waited for another one.".to_owned(),
        false => "Each dump shows its rank as it was when the dump was written, which may have been at different times.".to_owned(),
    });
    sentences.extend(missing_sentence(found, "dump"));
    for (rank, why) in unreadable.iter().take(MOST_FINDINGS) {
        sentences.push(format!("The dump of rank {rank} cannot be read: {why}."));
    }
    let more: Vec<u32> = unreadable.keys().skip(MOST_FINDINGS).copied().collect();
    if !more.is_empty() {
        sentences.push(format!("Nor can those of {}.", rank_words(&more)));
    }
    if !answer.outdated.is_empty() {
        let ranks = rank_words(&answer.outdated);
        sentences.push(format!(
            "Others completed operations with {ranks} that are not in the dumps of these: they were written earlier."
        ));
    }
    if let Some(most) = answer.overwritten.iter().map(|(_, count)| count).max() {
        let count = counted(answer.overwritten.len() as u64, "rank");
        let most = time::grouped(*most);
        sentences.push(format!(
            "Older operations of {count} were overwritten, up to {most} of one rank."
        ));
    }
    if !answer.unjudged_groups.is_empty() {
        let names = answer.unjudged_groups.iter().take(MOST_FINDINGS);
        let names: Vec<&str> = names.map(String::as_str).collect();
        let count = counted(answer.unjudged_groups.len() as u64, "group");
        sentences.push(format!(
            "Which ranks are in {count} is not known, so that no rank is missed there: {}.",
            names.join(", ")
        ));
    }
    sentences
}

/// Answers from the dumps of PyTorch's flight recorder.
fn run_dumps(
    input: &InputArguments,
    files: &[DumpFile],
    out: &mut dyn Write,
) -> anyhow::Result<Finding> {
    let (dumps, unreadable) = read_dumps(files)?;
    let ranks: Vec<u32> = unreadable.keys().copied().collect();
    let answer = dump_findings(&dumps, &ranks);
    let sentences = dump_sentences(&answer, &unreadable);
    let found = &answer.findings;
    if input.json {
        let answer = DumpAnswer {
            sentence: &sentences[0],
            sentences: &sentences,
            is_stuck: found.is_stuck(),
            unreadable: &unreadable,
            answer: &answer,
        };
        output::json(out, &answer)?;
    } else {
        put(out, input, found, &SystemStates::new(), &sentences)?;
    }
    Ok(Finding::loss(found.has_unknown()))
}

/// Returns the dumps that the arguments name, if they name dumps.
fn dumps_of(arguments: &StuckArguments) -> anyhow::Result<Option<Vec<DumpFile>>> {
    let mut paths = vec![arguments.input.input.clone()];
    paths.extend(arguments.dumps.iter().cloned());
    let files = dump_files(&paths)?;
    let is_of_recordings = arguments.watch.is_some() || arguments.local || arguments.join;
    let wrong = match (&files, arguments.dumps.first()) {
        (Some(_), _) if is_of_recordings => {
            "--watch, --local and --join are for recordings: dumps do not change".to_owned()
        }
        (None, Some(_)) => {
            "several inputs have to be dumps of PyTorch's flight recorder, and one of these is not"
                .to_owned()
        }
        _ => return Ok(files),
    };
    Err(UsageError(wrong).into())
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
    if let Some(files) = dumps_of(arguments)? {
        return run_dumps(input, &files, out);
    }
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
        put(out, input, &looked.found, &states, &sentences)?;
    }
    let is_watched = arguments.watch.is_some();
    Ok(Finding {
        is_stuck: is_watched && looked.is_stuck(),
        ..Finding::loss(looked.found.has_unknown())
    })
}
