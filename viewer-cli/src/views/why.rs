//! Sentences and tables about lost time.

use std::fmt::Write as _;

use annals_analysis::{
    CauseRow, Efficiencies, EfficiencyModel, ExtraWork, HybridEfficiencies, LEAST_SHARE, LoopRow,
    LostTime, PartOfRun, PhaseRow, WaitPattern, WaitStateRow, efficiency_change,
};
use annals_format::Module;
use serde::Serialize;

use super::stuck::{capital, rank_words};
use super::{SENTENCE_NAME, counted, mpi_note, part_words};
use crate::names::shorten;
use crate::table::safe;
use crate::time;

/// The error of an input whose time cannot be analysed.
pub const INCOMPLETE_DEFINITIONS: &str =
    "the definitions of this input are incomplete: merge its recordings first";
/// A cost's `±` is named from the cost divided by this on.
const LEAST_UNCERTAIN: f64 = 100.0;
/// If the longest lateness of a cause is more than this times the median, it is the one that is named.
const MOST_MEDIANS: i64 = 10;
/// The uncertain share of the time of all ranks is named from this on.
const LEAST_UNCERTAIN_SHARE: f64 = 0.001;
/// Number of causes that are named.
const MOST_CAUSES: usize = 3;
/// Number of rows of the table of phases. If there are more phases, a row has several.
const MOST_PHASE_ROWS: usize = 40;

/// Returns a share in percent.
fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Returns the name of a region for a sentence.
fn name(region: &str) -> String {
    shorten(&safe(region), SENTENCE_NAME)
}

/// Returns how often a rank was late: in each of its calls, or in some of them.
fn how_often(cause: &CauseRow) -> String {
    let (operations, calls) = (cause.operations, cause.calls);
    let is_of_calls = !matches!(
        cause.pattern,
        WaitPattern::LateSender | WaitPattern::LateReceiver | WaitPattern::WrongOrder
    );
    match cause.pattern {
        WaitPattern::WrongOrder | WaitPattern::Lock => {
            format!("in {}", counted(operations, "call"))
        }
        _ if !is_of_calls => format!("in {}", counted(operations, "message")),
        _ if operations == calls && calls > 1 => {
            format!("in each of {} calls", time::grouped(calls))
        }
        _ => {
            let (operations, calls) = (time::grouped(operations), counted(calls, "call"));
            format!("in {operations} of {calls}")
        }
    }
}

/// Returns how late a cause was: the median, or at most, if the most is more than ten times the median.
fn how_late(cause: &CauseRow) -> String {
    if cause.max_late_ns > MOST_MEDIANS * cause.median_late_ns {
        return format!("up to {}", time::duration(cause.max_late_ns));
    }
    time::duration(cause.median_late_ns)
}

/// Returns the words for a cause.
fn subject(cause: &CauseRow) -> String {
    match &cause.thread {
        Some(thread) => format!("Thread {} of rank {}", name(thread), cause.rank),
        None => format!("Rank {}", cause.rank),
    }
}

/// Returns the sentence about a cause: rank, region, how late, how often, what it cost, and where its extra time is.
///
/// - *Late* is a rank for which another one waited because of its extra work: by the longest such part of the waits in a message
///   or an operation; the sentence has the median.
/// - *In each of N calls* it was late if it was in all of its calls of that region.
/// - The cost is that of all regions. It includes what others waited because those waited that waited for it.
/// - Its extra time is in the region in which it worked longer, by at least half of the direct cost; otherwise none is named.
/// - *Through other ranks* is the part of the cost that is not direct, if it is at least a tenth.
/// - `±` is by how much the cost may differ because of losses and errors of clocks, if that is at least a hundredth of it.
pub fn cause_sentence(cause: &CauseRow) -> String {
    let subject = subject(cause);
    let late = how_late(cause);
    let often = how_often(cause);
    let region = name(&cause.region);
    let event = match cause.pattern {
        WaitPattern::WrongOrder => {
            format!(
                "{subject} receives in the wrong order: {region} waits {late} {often} while another message is there"
            )
        }
        WaitPattern::LateSender => {
            format!("{subject} sends {late} late to {region} {often}")
        }
        WaitPattern::LateReceiver => {
            format!("{subject} receives {late} late from {region} {often}")
        }
        WaitPattern::LateBroadcast => {
            format!("{subject}, the root, enters {region} {late} late {often}")
        }
        WaitPattern::EarlyReduce => {
            format!("{subject} enters {region} {late} after its root {often}")
        }
        WaitPattern::Lock => {
            format!("{subject} has a lock for which {region} waits {late} {often}")
        }
        _ => format!("{subject} enters {region} {late} late {often}"),
    };
    let mut sentence = format!("{event}, {} of the run", percent(cause.share));
    let indirect_ns = cause.cost_ns - cause.direct_ns;
    if 10 * indirect_ns >= cause.cost_ns {
        let share = indirect_ns as f64 / cause.cost_ns as f64;
        let _ = write!(sentence, ", {} of that through other ranks", percent(share));
    }
    if LEAST_UNCERTAIN * cause.uncertain_ns as f64 >= cause.cost_ns as f64 {
        let _ = write!(sentence, " (± {})", time::duration(cause.uncertain_ns));
    }
    if cause.pattern == WaitPattern::LateSender && 2 * cause.wrong_order_ns >= cause.direct_ns {
        sentence.push_str(", mostly while another message is there");
    }
    if let Some(rank) = cause.or_rank {
        let _ = write!(
            sentence,
            "; or rank {rank} sends late, if these sends do not wait"
        );
    }
    if let Some(extra) = main_extra(cause) {
        let _ = write!(sentence, "; its extra time is in {}", place(extra));
        if extra.sampling_error_ns != 0 {
            let of_direct = |ns: i64| percent(ns as f64 / cause.direct_ns as f64);
            let (share, error) = (of_direct(extra.cost_ns), of_direct(extra.sampling_error_ns));
            let _ = write!(sentence, ", {share} of it (± {error})");
        }
        if cause.is_sampled && extra.path.is_empty() {
            sentence.push_str(", and no function has more than half of it");
        }
    } else if 2 * cause.unexplained_ns > cause.direct_ns {
        sentence.push_str("; what made it late is not known");
    }
    sentence.push('.');
    sentence
}

/// Returns the end of a call path, as far as it distinguishes it: `smooth > napms`.
fn place(extra: &ExtraWork) -> String {
    let from = extra.path.len() - extra.distinct.max(1).min(extra.path.len());
    let names: Vec<String> = extra.path[from..]
        .iter()
        .map(|region| name(region))
        .collect();
    match names.is_empty() {
        true => "no region".to_owned(),
        false => names.join(" > ") + &line_of(extra),
    }
}

/// Returns the line of a function that samples have shown, such as ` (heat.c:61)`.
fn line_of(extra: &ExtraWork) -> String {
    extra.line.as_ref().map_or_else(String::new, |line| {
        let file = Module::file_name(&line.file);
        format!(" ({}:{})", name(file), line.line)
    })
}

/// Returns where the extra work of a cause is, if most of what others waited for directly is because of it.
fn main_extra(cause: &CauseRow) -> Option<&ExtraWork> {
    let first = cause.extra.first()?;
    (2 * first.cost_ns >= cause.direct_ns).then_some(first)
}

/// Returns the causes that are worth a sentence, the most expensive first: what their extra work explains is at least a hundredth
/// of the run, and they work longer than their peers.
pub fn main_causes(lost: &LostTime) -> impl Iterator<Item = &CauseRow> {
    known_causes(lost)
        .filter(|cause| !cause.is_like_peers)
        .take(MOST_CAUSES)
}

fn known_causes(lost: &LostTime) -> impl Iterator<Item = &CauseRow> {
    let is_known = |cause: &&CauseRow| cause.share - unexplained_share(cause) >= LEAST_SHARE;
    lost.causes.iter().filter(is_known)
}

/// Returns the share of what others waited for ranks that are late no more than the others.
fn noise_share(lost: &LostTime) -> f64 {
    let noise = lost.causes.iter().filter(|cause| cause.is_like_peers);
    noise.map(|cause| cause.share).sum()
}

/// Returns the share of what others waited for a cause that its extra work does not explain.
fn unexplained_share(cause: &CauseRow) -> f64 {
    cause.share * cause.unexplained_ns as f64 / cause.cost_ns.max(1) as f64
}

/// Returns the sentence about ranks that work one after another, and its causes. `None` if that is not what costs most.
///
/// It is if the most expensive cause is a late sender with extra work in some place, if at least one other rank's cause is a
/// late sender with extra work in the same place, if none or all of them worked longer than their peers, and if at least a quarter of the cost of all of these is indirect.
fn chain_sentence(lost: &LostTime) -> Option<String> {
    let extra_place = |cause: &CauseRow| main_extra(cause).map(place);
    let first = known_causes(lost).next()?;
    let region = extra_place(first)?;
    let is_alike = |cause: &&CauseRow| {
        cause.pattern == WaitPattern::LateSender
            && cause.thread.is_none()
            && cause.is_like_peers == first.is_like_peers
            && cause.share >= LEAST_SHARE
            && extra_place(cause).as_ref() == Some(&region)
    };
    let mut chain: Vec<&CauseRow> = lost.causes.iter().filter(is_alike).collect();
    let cost_ns: i64 = chain.iter().map(|cause| cause.cost_ns).sum();
    let direct_ns: i64 = chain.iter().map(|cause| cause.direct_ns).sum();
    if !is_alike(&first) || chain.len() < 2 || 4 * (cost_ns - direct_ns) < cost_ns {
        return None;
    }
    chain.sort_by_key(|cause| cause.rank);
    let ranks: Vec<String> = chain.iter().map(|cause| cause.rank.to_string()).collect();
    let share = chain.iter().map(|cause| cause.share).sum();
    let ranks = match &ranks[..] {
        [one, other] => format!("{one} and {other}"),
        [one, .., last] if ranks.len() > 4 => format!("{one} to {last} ({} of them)", ranks.len()),
        [some @ .., last] => format!("{} and {last}", some.join(", ")),
        [] => return None,
    };
    Some(format!(
        "Ranks {ranks} work one after another in {region}: each makes the next wait in {}, {} of the run.",
        name(&first.region),
        percent(share)
    ))
}

/// Returns the sentence about the whole run. Where the trace lacks calls of MPI, that no other is known.
pub fn why_sentence(lost: &LostTime) -> String {
    if let Some(note) = mpi_note(&lost.mpi).filter(|_| !lost.mpi.knows_waits()) {
        return note;
    }
    if let Some(sentence) = chain_sentence(lost) {
        return sentence;
    }
    if let Some(cause) = main_causes(lost).next() {
        return cause_sentence(cause);
    }
    let of_one_rank = loop_sentence(lost).or_else(|| thread_sentence(lost));
    if let Some(sentence) = of_one_rank {
        return sentence;
    }
    let unit = if lost.ranks.len() == 1 {
        "thread"
    } else {
        "rank"
    };
    match lost.threads {
        0 => "No rank has events in this time.".to_owned(),
        1 => "One rank: it waits for no other.".to_owned(),
        _ if uncertain_share(lost) >= LEAST_SHARE => format!(
            "No {unit} is known to make others wait for more than 1 % of the run, but up to {} of it is uncertain.",
            percent(uncertain_share(lost))
        ),
        _ if noise_share(lost) >= LEAST_SHARE => format!(
            "No {unit} is late more than the others: which one is changes from call to call, and costs {} of the run.",
            percent(noise_share(lost))
        ),
        _ => format!("No {unit} makes others wait for more than 1 % of the run."),
    }
}

/// Returns the sentence about the tasks of an event loop: which kept it from others, and in what. `None` without tasks.
fn loop_sentence(lost: &LostTime) -> Option<String> {
    let run_ns = (lost.to_ns - lost.from_ns).max(1) as f64;
    let share = |row: &&LoopRow| row.kept_ns as f64 / run_ns;
    let longest = lost.event_loop.as_ref()?.first();
    let Some(row) = longest.filter(|row| share(row) >= LEAST_SHARE) else {
        return Some(
            "No task kept the event loop from others for more than 1 % of the run.".to_owned(),
        );
    };
    let steps = match row.steps {
        1 => String::new(),
        steps => format!(
            " in {}, {} in the longest",
            counted(steps, "step"),
            time::duration(row.longest_ns)
        ),
    };
    let place = row.region.as_deref().map_or("no region".to_owned(), name);
    Some(format!(
        "Task {} kept the event loop from {} for {}{steps}, {} of the run; most of it is in {place}.",
        name(&row.task),
        counted(row.others, "other task"),
        time::duration(row.kept_ns),
        percent(share(&row)),
    ))
}

/// Returns the sentence about the threads of a single rank that neither communicate nor work in teams: which works longest, in what.
/// `None` if fewer than two work.
fn thread_sentence(lost: &LostTime) -> Option<String> {
    let longest = lost.thread_times.iter().max_by_key(|of| of.useful_ns)?;
    let number = lost.thread_times.len() as i64;
    let sum_ns: i64 = lost.thread_times.iter().map(|of| of.useful_ns).sum();
    let run_ns = (lost.to_ns - lost.from_ns).max(1);
    let share = (longest.useful_ns - sum_ns / number) as f64 / run_ns as f64;
    if share < LEAST_SHARE {
        let number = time::grouped(number as u64);
        return Some(format!(
            "The {number} threads work equally long, within 1 % of the run."
        ));
    }
    let others_ns = (sum_ns - longest.useful_ns) / (number - 1);
    let others = match number {
        2 => "the other thread".to_owned(),
        _ => format!("the mean of {} others", time::grouped(number as u64 - 1)),
    };
    Some(format!(
        "Thread {} works longest, {}: {} more than {others}, {} of the run; its extra time is in {}.",
        name(&longest.thread),
        time::duration(longest.useful_ns),
        time::duration(longest.useful_ns - others_ns),
        percent(share),
        name(&longest.region)
    ))
}

/// Returns the share of the time of all ranks in which they may have waited or not.
fn uncertain_share(lost: &LostTime) -> f64 {
    // Of ranks with several threads, both are means.
    let uncertain_ns: f64 = lost.ranks.iter().map(|rank| rank.uncertain_ns as f64).sum();
    let all_ns = (lost.to_ns - lost.from_ns) as f64 * lost.ranks.len() as f64;
    (uncertain_ns / all_ns.max(1.0)).min(1.0)
}

/// Returns the sentence about ranks most of whose time is between calls that test and find nothing complete. `None` if there are none.
fn polling_sentence(lost: &LostTime) -> Option<String> {
    let run_ns = (lost.to_ns - lost.from_ns).max(1);
    let polls = lost
        .ranks
        .iter()
        .filter(|rank| 2 * rank.polling_ns > run_ns);
    let ranks: Vec<u32> = polls.clone().map(|rank| rank.rank).collect();
    let most_ns = polls.map(|rank| rank.polling_ns).max()?;
    let (spend, its) = match ranks.len() {
        1 => ("spends", "its"),
        _ => ("spend up to", "their"),
    };
    Some(format!(
        "{} {spend} {} of {its} time between tests (as MPI_Test) that find nothing complete: it counts as useful, work or not.",
        capital(&rank_words(&ranks)),
        percent(most_ns as f64 / run_ns as f64)
    ))
}

/// How a run compares with a reference run, usually of fewer ranks.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Scaling {
    /// Number of the reference's ranks.
    pub reference_ranks: u64,
    /// Useful time of all ranks of the reference / that of this run; in weak scaling, of a rank.
    pub computation_scaling: f64,
    /// Parallel efficiency × computation scaling.
    pub global: f64,
}

/// Returns the tree of efficiencies.
fn efficiency_tree(efficiencies: &Efficiencies, scaling: Option<&Scaling>) -> String {
    let mut text = String::new();
    let indent = if scaling.is_some() { "  " } else { "" };
    let mut line = |name: &str, factor: Option<f64>| {
        let factor = factor.map_or_else(|| "-".to_owned(), percent);
        let _ = writeln!(text, "{name:<24}{factor:>8}");
    };
    if let Some(scaling) = scaling {
        line("global efficiency", Some(scaling.global));
    }
    // Where nothing communicates, there is no such factor.
    let has_communication = efficiencies.communication.is_some();
    let factors = [
        ("parallel efficiency", Some(efficiencies.parallel)),
        ("  load balance", efficiencies.load_balance),
        ("  communication", efficiencies.communication),
        ("    serialisation", efficiencies.serialisation),
        ("    transfer", efficiencies.transfer),
    ];
    let shown = if has_communication { factors.len() } else { 2 };
    for (name, factor) in factors.into_iter().take(shown) {
        line(&format!("{indent}{name}"), factor);
    }
    if let Some(scaling) = scaling {
        line("  computation scaling", Some(scaling.computation_scaling));
    }
    text
}

/// Returns the factors of MPI and of teams, as one line for each.
fn hybrid_words(of: &HybridEfficiencies, has_mpi: bool) -> String {
    let mut text = String::new();
    if has_mpi {
        let _ = writeln!(
            text,
            "MPI (TALP): {} = communication {} x load balance {}",
            percent(of.mpi_parallel),
            percent(of.mpi_communication),
            percent(of.mpi_load_balance)
        );
    }
    let _ = writeln!(
        text,
        "Threads (TALP): {} = serialisation {} x load balance {} x scheduling {}",
        percent(of.openmp_parallel),
        percent(of.openmp_serialisation),
        percent(of.openmp_load_balance),
        percent(of.openmp_scheduling)
    );
    text
}

/// Returns the screen of `trace-cli why`, but for the commands.
pub fn why_text(lost: &LostTime, scaling: Option<&Scaling>, part: PartOfRun) -> String {
    let mut text = format!("{}\n\n", why_sentence(lost));
    let multiplicative = |of: &&Efficiencies| of.model == EfficiencyModel::Multiplicative;
    let mut factors = lost.efficiencies.iter().filter(multiplicative);
    // One thread that communicates with none has nothing to share.
    let compares =
        |of: &&Efficiencies| lost.threads > 1 || of.communication.is_some() || scaling.is_some();
    if let Some(efficiencies) = factors.next().filter(compares) {
        text.push_str(&efficiency_tree(efficiencies, scaling));
        let mut ranks = counted(lost.ranks.len() as u64, "rank");
        if lost.threads > lost.ranks.len() as u64 {
            let _ = write!(ranks, " with {}", counted(lost.threads, "thread"));
        }
        let run = time::duration(lost.to_ns - lost.from_ns);
        let part = part_words(part);
        let reference = scaling.map_or_else(String::new, |scaling| {
            let ranks = counted(scaling.reference_ranks, "rank");
            format!("; computation compared with that of {ranks}")
        });
        let _ = writeln!(
            text,
            "({ranks}, {run}, {part}; 100 % is no time lost{reference})"
        );
        if let Some(hybrid) = &lost.hybrid {
            text.push_str(&hybrid_words(hybrid, efficiencies.communication.is_some()));
        }
        if uncertain_share(lost) >= LEAST_UNCERTAIN_SHARE {
            let share = percent(uncertain_share(lost));
            let _ = writeln!(
                text,
                "Up to {share} of the time of all ranks is uncertain, because of losses, errors of clocks or calls that have not ended."
            );
        }
        let unexplained: f64 = lost.causes.iter().map(unexplained_share).sum();
        if unexplained >= LEAST_SHARE {
            let _ = writeln!(
                text,
                "{} of the time of all ranks are waits for ranks that had no more work: their messages took longer, or what they did is not known.",
                percent(unexplained)
            );
        }
        if let Some(of) = lost
            .oversubscription
            .as_ref()
            .filter(|_| !lost.causes.is_empty())
        {
            let _ = writeln!(
                text,
                "{} share {} of {}: which one is late may be the choice of the system.",
                counted(of.threads as u64, "thread"),
                counted(of.processors as u64, "processor"),
                safe(&of.host)
            );
        }
        if let Some(polling) = polling_sentence(lost) {
            let _ = writeln!(text, "{polling}");
        }
        if lost.unfinished > 0 {
            let threads = if lost.unfinished == 1 {
                "1 thread is".to_owned()
            } else {
                format!("{} threads are", time::grouped(lost.unfinished))
            };
            let _ = writeln!(
                text,
                "At the end {threads} in a call of MPI: `trace-cli stuck` says which ranks they wait for."
            );
        }
    }
    // If a sentence about several ranks is the first, each of them has a sentence as well.
    let causes: Vec<&CauseRow> = match chain_sentence(lost) {
        Some(_) => known_causes(lost).take(MOST_CAUSES).collect(),
        None => main_causes(lost).skip(1).collect(),
    };
    let mut causes = causes.into_iter().peekable();
    if causes.peek().is_some() {
        text.push_str("\nNext causes\n");
        for cause in causes {
            let _ = writeln!(text, "- {}", cause_sentence(cause));
        }
    }
    text
}

/// Returns the row of the time in MPI that no pattern explains. `None` if there is none.
pub fn other_mpi_row(lost: &LostTime) -> Option<WaitStateRow> {
    let all_ns = (lost.to_ns - lost.from_ns) as f64 * lost.threads as f64;
    (lost.other_mpi_ns > 0).then(|| WaitStateRow {
        pattern: None,
        path: vec!["(other time in MPI)".to_owned()],
        communicator: None,
        count: 0,
        wait_ns: lost.other_mpi_ns,
        max_ns: 0,
        wrong_order_ns: 0,
        uncertain_ns: 0,
        share: lost.other_mpi_ns as f64 / all_ns.max(1.0),
    })
}

/// Returns the rows of the table of phases. If there are many, a row has the mean of several that follow one another, weighted by their
/// durations.
pub fn phase_rows(lost: &LostTime) -> Vec<PhaseRow> {
    let per_row = lost.phases.len().div_ceil(MOST_PHASE_ROWS).max(1);
    let rows = lost.phases.chunks(per_row).map(|phases| {
        let mean = |factor| PhaseRow::mean(phases, factor);
        let latest = phases.iter().max_by_key(|phase| phase.late_ns);
        let latest = latest.unwrap_or(&phases[0]);
        PhaseRow {
            late_rank: latest.late_rank,
            late_ns: latest.late_ns,
            late_region: latest.late_region.clone(),
            run_ns: phases.iter().map(|phase| phase.run_ns).max().unwrap_or(0),
            efficiencies: Efficiencies {
                model: EfficiencyModel::Multiplicative,
                parallel: mean(|of| Some(of.parallel)).unwrap_or(0.0),
                load_balance: mean(|of| of.load_balance),
                communication: mean(|of| of.communication),
                serialisation: mean(|of| of.serialisation),
                transfer: mean(|of| of.transfer),
            },
            is_uncertain: phases.iter().any(|phase| phase.is_uncertain),
            ..phases[0].clone()
        }
    });
    rows.collect()
}

/// Returns the sentence on when an efficiency changes.
pub fn change_sentence(windows: &[PhaseRow]) -> String {
    let Some(change) = efficiency_change(windows) else {
        return "No efficiency changes by a tenth.\n".to_owned();
    };
    format!(
        "From {} s on, {} is {:.0} %; before, {:.0} %.\n",
        time::moment(change.at_ns),
        change.name,
        100.0 * change.after,
        100.0 * change.before
    )
}

/// Returns what is said of phases below their table.
pub fn phase_notes(lost: &LostTime) -> String {
    if lost.phases.is_empty() {
        return "No call of these regions begins and ends in the time that counts; --all counts all of it.\n".to_owned();
    }
    let mut text = String::new();
    let per_row = lost.phases.len().div_ceil(MOST_PHASE_ROWS);
    if per_row > 1 {
        let phases = time::grouped(lost.phases.len() as u64);
        let _ = writeln!(
            text,
            "({phases} phases; a row has the mean of {per_row}. --csv has each)"
        );
    }
    let latest = lost.phases.iter().max_by_key(|phase| phase.late_ns);
    if let Some(latest) = latest
        && let Some(rank) = latest.late_rank
    {
        let _ = writeln!(
            text,
            "Most is waited in phase {}, {}: all others together {} for rank {rank}, in {}.",
            latest.phase,
            latest.region,
            time::duration(latest.late_ns),
            match latest.late_region.as_str() {
                "" => "calls that are not known",
                region => region,
            }
        );
    }
    if lost.phases_left_out > 0 {
        let more = time::grouped(lost.phases_left_out);
        let _ = writeln!(text, "({more} later phases are left out)");
    }
    text
}
