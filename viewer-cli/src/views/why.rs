//! Sentences and tables about lost time.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use annals_analysis::{
    CauseRow, Efficiencies, EfficiencyModel, LostTime, PathRank, PathRegion, PhaseRow, RankTimes,
    WaitPattern, WaitStateRow,
};
use serde::Serialize;

use super::{OUTSIDE, SENTENCE_NAME, counted};
use crate::names::cut_middle;
use crate::table::{Align, Screen, Table, safe};
use crate::time;

/// The error of an input whose time cannot be analysed.
pub const INCOMPLETE_DEFINITIONS: &str =
    "the definitions of this input are incomplete: merge its recordings first";
/// Causes whose cost is a smaller share of the time of all ranks are not named.
pub const LEAST_SHARE: f64 = 0.01;
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
    cut_middle(&safe(region), SENTENCE_NAME)
}

/// Returns the English name of a pattern.
pub const fn pattern_name(pattern: WaitPattern) -> &'static str {
    match pattern {
        WaitPattern::LateSender => "late sender",
        WaitPattern::WrongOrder => "wrong order",
        WaitPattern::LateReceiver => "late receiver",
        WaitPattern::Barrier => "wait at barrier",
        WaitPattern::BarrierCompletion => "barrier completion",
        WaitPattern::AllToAll => "wait at N x N",
        WaitPattern::AllToAllCompletion => "N x N completion",
        WaitPattern::LateBroadcast => "late broadcast",
        WaitPattern::EarlyReduce => "early reduce",
        WaitPattern::EarlyScan => "early scan",
        WaitPattern::Fence => "wait at fence",
        WaitPattern::ThreadBarrier => "wait at thread barrier",
        WaitPattern::Lock => "wait for lock",
    }
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
/// - Its extra time is in the region that has at least half of the cost that is known by region; otherwise none is named.
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
    let known: i64 = cause.extra.iter().map(|extra| extra.cost_ns).sum();
    let main = cause
        .extra
        .first()
        .filter(|extra| 2 * extra.cost_ns >= known);
    if let Some(extra) = main {
        let place = match extra.path.last() {
            Some(region) => name(region),
            None => "no region".to_owned(),
        };
        let _ = write!(sentence, "; its extra time is in {place}");
    }
    sentence.push('.');
    sentence
}

/// Returns the causes that are worth a sentence, the most expensive first.
pub fn main_causes(lost: &LostTime) -> impl Iterator<Item = &CauseRow> {
    let causes = lost.causes.iter().take(MOST_CAUSES);
    causes.filter(|cause| cause.share >= LEAST_SHARE)
}

/// Returns the sentence about ranks that work one after another, and its causes. `None` if that is not what costs most.
///
/// It is if the most expensive cause is a late sender with extra work in some region, if at least one other rank's cause is a
/// late sender with extra work in the same region, and if at least a quarter of the cost of all of these is indirect.
fn chain_sentence(lost: &LostTime) -> Option<String> {
    let place = |cause: &CauseRow| Some(cause.extra.first()?.path.last()?.clone());
    let first = main_causes(lost).next()?;
    let region = place(first)?;
    let is_alike = |cause: &&CauseRow| {
        cause.pattern == WaitPattern::LateSender
            && cause.thread.is_none()
            && cause.share >= LEAST_SHARE
            && place(cause).as_ref() == Some(&region)
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
        "Ranks {ranks} work one after another in {}: each makes the next wait in {}, {} of the run.",
        name(&region),
        name(&first.region),
        percent(share)
    ))
}

/// Returns the sentence about the whole run.
pub fn why_sentence(lost: &LostTime) -> String {
    if let Some(sentence) = chain_sentence(lost) {
        return sentence;
    }
    if let Some(cause) = main_causes(lost).next() {
        return cause_sentence(cause);
    }
    match lost.threads {
        0 => "No rank has events in this time.".to_owned(),
        1 => "One rank: it waits for no other.".to_owned(),
        _ if uncertain_share(lost) >= LEAST_SHARE => format!(
            "No rank is known to make others wait for more than 1 % of the run, but up to {} of it is uncertain.",
            percent(uncertain_share(lost))
        ),
        _ => "No rank makes others wait for more than 1 % of the run.".to_owned(),
    }
}

/// Returns the share of the time of all ranks in which they may have waited or not.
fn uncertain_share(lost: &LostTime) -> f64 {
    // Of ranks with several threads, both are means.
    let uncertain_ns: f64 = lost.ranks.iter().map(|rank| rank.uncertain_ns as f64).sum();
    let all_ns = (lost.to_ns - lost.from_ns) as f64 * lost.ranks.len() as f64;
    (uncertain_ns / all_ns.max(1.0)).min(1.0)
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
    let factors = [
        ("parallel efficiency", Some(efficiencies.parallel)),
        ("  load balance", efficiencies.load_balance),
        ("  communication", Some(efficiencies.communication)),
        ("    serialisation", efficiencies.serialisation),
        ("    transfer", efficiencies.transfer),
    ];
    for (name, factor) in factors {
        line(&format!("{indent}{name}"), factor);
    }
    if let Some(scaling) = scaling {
        line("  computation scaling", Some(scaling.computation_scaling));
    }
    text
}

/// Returns the screen of `trace-cli why`, but for the commands.
pub fn why_text(lost: &LostTime, scaling: Option<&Scaling>) -> String {
    let mut text = format!("{}\n\n", why_sentence(lost));
    let multiplicative = |of: &&Efficiencies| of.model == EfficiencyModel::Multiplicative;
    if let Some(efficiencies) = lost.efficiencies.iter().find(multiplicative) {
        text.push_str(&efficiency_tree(efficiencies, scaling));
        let mut ranks = counted(lost.ranks.len() as u64, "rank");
        if lost.threads > lost.ranks.len() as u64 {
            let _ = write!(ranks, " with {}", counted(lost.threads, "thread"));
        }
        let run = time::duration(lost.to_ns - lost.from_ns);
        let reference = scaling.map_or_else(String::new, |scaling| {
            let ranks = counted(scaling.reference_ranks, "rank");
            format!("; computation compared with that of {ranks}")
        });
        let _ = writeln!(text, "({ranks}, {run}; 100 % is no time lost{reference})");
        if uncertain_share(lost) >= LEAST_UNCERTAIN_SHARE {
            let share = percent(uncertain_share(lost));
            let _ = writeln!(
                text,
                "Up to {share} of the time of all ranks is uncertain, because of losses, errors of clocks or calls that have not ended."
            );
        }
        if lost.unfinished > 0 {
            let threads = if lost.unfinished == 1 {
                "1 thread is".to_owned()
            } else {
                format!("{} threads are", time::grouped(lost.unfinished))
            };
            let _ = writeln!(
                text,
                "At the end {threads} in a call of MPI: what such a call waits for is not known."
            );
        }
    }
    // If a sentence about several ranks is the first, each of them has its own sentence as well.
    let said = usize::from(chain_sentence(lost).is_none());
    let mut causes = main_causes(lost).skip(said).peekable();
    if causes.peek().is_some() {
        text.push_str("\nNext causes\n");
        for cause in causes {
            let _ = writeln!(text, "- {}", cause_sentence(cause));
        }
    }
    text
}

/// Returns the table of ranks.
pub fn rank_table(ranks: &[RankTimes]) -> Table {
    // A column without any time is left out.
    let is_idle = ranks.iter().any(|times| times.idle_ns > 0);
    let is_uncertain = ranks.iter().any(|times| times.uncertain_ns > 0);
    let columns = [
        (true, ("rank", Align::Right)),
        (true, ("useful", Align::Right)),
        (true, ("in MPI", Align::Right)),
        (is_idle, ("idle", Align::Optional)),
        (true, ("waits", Align::Right)),
        (is_uncertain, ("±", Align::Optional)),
        (true, ("waits caused", Align::Right)),
    ];
    let shown = columns.iter().filter(|column| column.0);
    let shown: Vec<_> = shown.map(|column| column.1).collect();
    let mut table = Table::new(&shown);
    for times in ranks {
        let cells = [
            times.rank.to_string(),
            time::duration(times.useful_ns),
            time::duration(times.mpi_ns),
            time::duration(times.idle_ns),
            time::duration(times.wait_ns),
            time::duration(times.uncertain_ns),
            time::duration(times.caused_ns),
        ];
        let cells = cells.into_iter().zip(&columns);
        table.row(
            cells
                .filter(|(_, column)| column.0)
                .map(|(cell, _)| cell)
                .collect(),
        );
    }
    table
}

/// Returns the table of wait states by pattern and call path.
pub fn wait_state_table(rows: &[WaitStateRow]) -> Table {
    // A single communicator is the same in every row.
    let communicators = rows.iter().filter_map(|row| row.communicator.as_deref());
    let communicators: BTreeSet<&str> = communicators.collect();
    let has_several = communicators.len() > 1;
    let mut columns = vec![("wait state", Align::Left), ("call path", Align::Name)];
    columns.extend(has_several.then_some(("communicator", Align::Name)));
    columns.extend([
        ("waits", Align::Right),
        ("sum", Align::Right),
        ("% of run", Align::Right),
        ("longest", Align::Right),
    ]);
    let is_uncertain = rows.iter().any(|row| row.uncertain_ns > 0);
    if is_uncertain {
        columns.push(("±", Align::Optional));
    }
    let has_wrong_order = rows.iter().any(|row| row.wrong_order_ns > 0);
    if has_wrong_order {
        columns.push(("in wrong order", Align::Optional));
    }
    let mut table = Table::new(&columns);
    for row in rows {
        let path: Vec<String> = row.path.iter().map(|region| safe(region)).collect();
        let mut cells = vec![pattern_name(row.pattern).to_owned(), path.join(" > ")];
        cells.extend(has_several.then(|| safe(row.communicator.as_deref().unwrap_or("-"))));
        cells.extend([
            time::grouped(row.count),
            time::duration(row.wait_ns),
            format!("{:.1}", row.share * 100.0),
            time::duration(row.max_ns),
        ]);
        if is_uncertain {
            cells.push(time::duration(row.uncertain_ns));
        }
        if has_wrong_order {
            cells.push(time::duration(row.wrong_order_ns));
        }
        table.row(cells);
    }
    table
}

/// Returns the table of phases. If there are many, a row has the mean of several that follow one another.
pub fn phase_table(lost: &LostTime, screen: Screen) -> String {
    let mut table = Table::new(&[
        ("phase", Align::Right),
        ("from", Align::Right),
        ("longest", Align::Right),
        ("parallel eff.", Align::Right),
        ("load balance", Align::Right),
        ("communication", Align::Right),
        ("serialisation", Align::Right),
        ("transfer", Align::Right),
        ("", Align::Optional),
    ]);
    let per_row = lost.phases.len().div_ceil(MOST_PHASE_ROWS).max(1);
    for phases in lost.phases.chunks(per_row) {
        let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
            continue;
        };
        let number = match phases.len() {
            1 => first.phase.to_string(),
            _ => format!("{}–{}", first.phase, last.phase),
        };
        let longest_ns = phases.iter().map(|phase| phase.run_ns).max();
        let mean = |factor: fn(&Efficiencies) -> Option<f64>| mean_of(phases, factor);
        let lost_in = phases.iter().filter(|phase| phase.is_uncertain).count();
        table.row(vec![
            number,
            format!("{} s", time::moment(first.from_ns)),
            time::duration(longest_ns.unwrap_or(0)),
            mean(|of| Some(of.parallel)),
            mean(|of| of.load_balance),
            mean(|of| Some(of.communication)),
            mean(|of| of.serialisation),
            mean(|of| of.transfer),
            match lost_in {
                0 => String::new(),
                _ => "losses".to_owned(),
            },
        ]);
    }
    if lost.phases.is_empty() {
        return "No call of these regions begins and ends in the time that counts; --all counts all of it.\n".to_owned();
    }
    let mut text = table.render(screen);
    if per_row > 1 {
        let phases = time::grouped(lost.phases.len() as u64);
        let _ = writeln!(
            text,
            "({phases} phases; a row has the mean of {per_row}. --csv has each)"
        );
    }
    if lost.phases_left_out > 0 {
        let more = time::grouped(lost.phases_left_out);
        let _ = writeln!(text, "({more} later phases are left out)");
    }
    text
}

/// Returns the mean of a factor, weighted by the phases' durations.
fn mean_of(phases: &[PhaseRow], factor: fn(&Efficiencies) -> Option<f64>) -> String {
    let known = phases.iter().filter_map(|phase| {
        let run_ns = phase.run_ns.max(1) as f64;
        Some((factor(&phase.efficiencies)? * run_ns, run_ns))
    });
    let sum = known.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    if sum.1 > 0.0 {
        percent(sum.0 / sum.1)
    } else {
        "-".to_owned()
    }
}

/// Returns the tables of the critical path: by region, and by rank.
pub fn path_table(lost: &LostTime, screen: Screen) -> String {
    let Some(path) = &lost.critical_path else {
        return String::new();
    };
    let regions = path_region_table(&path.regions).render(screen);
    format!("{regions}\n{}", path_rank_table(&path.ranks).render(screen))
}

/// Returns the table of what was done on the critical path.
pub fn path_region_table(regions: &[PathRegion]) -> Table {
    let mut table = Table::new(&[
        ("on the critical path", Align::Name),
        ("time", Align::Right),
        ("% of path", Align::Right),
        ("mean of ranks", Align::Right),
        ("critical imbalance", Align::Right),
    ]);
    for row in regions {
        table.row(vec![
            safe(row.region.as_deref().unwrap_or(OUTSIDE)),
            time::duration(row.path_ns),
            format!("{:.1}", row.share * 100.0),
            time::duration(row.mean_ns),
            time::duration(row.imbalance_ns),
        ]);
    }
    table
}

/// Returns the table of where the critical path was.
pub fn path_rank_table(ranks: &[PathRank]) -> Table {
    let mut table = Table::new(&[
        ("rank", Align::Right),
        ("time", Align::Right),
        ("% of path", Align::Right),
    ]);
    for row in ranks {
        table.row(vec![
            row.rank.to_string(),
            time::duration(row.path_ns),
            format!("{:.1}", row.share * 100.0),
        ]);
    }
    table
}
