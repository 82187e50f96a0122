//! Sentences and tables about lost time.

use std::fmt::Write as _;

use annals_analysis::{
    CauseRow, Efficiencies, EfficiencyModel, LostTime, RankTimes, WaitPattern, WaitStateRow,
};

use super::{SENTENCE_NAME, counted};
use crate::names::cut_middle;
use crate::table::{Align, Table, safe};
use crate::time;

/// The error of an input whose time cannot be analysed.
pub const INCOMPLETE_DEFINITIONS: &str =
    "the definitions of this input are incomplete: merge its recordings first";
/// Causes whose cost is a smaller share of the time of all ranks are not named.
pub const LEAST_SHARE: f64 = 0.01;
/// Number of causes that are named.
const MOST_CAUSES: usize = 3;

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
        WaitPattern::WrongOrder => format!("in {}", counted(operations, "call")),
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

/// Returns the sentence about a cause: rank, region, how late, how often, what it cost, and where its extra time is.
///
/// - *Late* is a rank for which another one waited: by the longest of these waits in a message or an operation; the
///   sentence has the median.
/// - *In each of N calls* it was late if it was in all of its calls of that region.
/// - The cost includes what others waited because those waited that waited for it.
/// - Its extra time is in the region that has at least half of the cost that is known by region; otherwise none is named.
/// - *Through other ranks* is the part of the cost that is not direct, if it is at least a tenth.
/// - `±` is by how much the cost may differ because of losses.
pub fn cause_sentence(cause: &CauseRow) -> String {
    let rank = cause.rank;
    let late = time::duration(cause.median_late_ns);
    let often = how_often(cause);
    let region = name(&cause.region);
    let event = match cause.pattern {
        WaitPattern::WrongOrder => {
            format!(
                "Rank {rank} receives in the wrong order: {region} waits {late} {often} while another message is there"
            )
        }
        WaitPattern::LateSender => {
            format!("Rank {rank} sends {late} late to {region} {often}")
        }
        WaitPattern::LateReceiver => {
            format!("Rank {rank} receives {late} late from {region} {often}")
        }
        WaitPattern::LateBroadcast => {
            format!("Rank {rank}, the root, enters {region} {late} late {often}")
        }
        WaitPattern::EarlyReduce => {
            format!("Rank {rank} enters {region} {late} after its root {often}")
        }
        _ => format!("Rank {rank} enters {region} {late} late {often}"),
    };
    let mut sentence = format!("{event}, {} of the run", percent(cause.share));
    let indirect_ns = cause.cost_ns - cause.direct_ns;
    if 10 * indirect_ns >= cause.cost_ns {
        let share = indirect_ns as f64 / cause.cost_ns as f64;
        let _ = write!(sentence, ", {} of that through other ranks", percent(share));
    }
    if cause.uncertain_ns > 0 {
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
    match lost.ranks.len() {
        0 => "Nothing is known of any rank.".to_owned(),
        1 => "One rank: it waits for no other.".to_owned(),
        _ => "No rank makes others wait for more than 1 % of the run.".to_owned(),
    }
}

/// Returns the tree of efficiencies.
fn efficiency_tree(efficiencies: &Efficiencies) -> String {
    let mut text = String::new();
    let mut line = |name: &str, factor: Option<f64>| {
        let factor = factor.map_or_else(|| "-".to_owned(), percent);
        let _ = writeln!(text, "{name:<24}{factor:>8}");
    };
    line("parallel efficiency", Some(efficiencies.parallel));
    line("  load balance", efficiencies.load_balance);
    line("  communication", Some(efficiencies.communication));
    line("    serialisation", efficiencies.serialisation);
    line("    transfer", efficiencies.transfer);
    text
}

/// Returns the screen of `trace-cli why`, but for the commands.
pub fn why_text(lost: &LostTime) -> String {
    let mut text = format!("{}\n\n", why_sentence(lost));
    let multiplicative = |of: &&Efficiencies| of.model == EfficiencyModel::Multiplicative;
    if let Some(efficiencies) = lost.efficiencies.iter().find(multiplicative) {
        text.push_str(&efficiency_tree(efficiencies));
        let ranks = counted(lost.ranks.len() as u64, "rank");
        let run = time::duration(lost.to_ns - lost.from_ns);
        let _ = writeln!(text, "({ranks}, {run}; 100 % is no time lost)");
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
    let mut table = Table::new(&[
        ("rank", Align::Right),
        ("useful", Align::Right),
        ("in MPI", Align::Right),
        ("idle", Align::Optional),
        ("waits", Align::Right),
        ("makes others wait", Align::Right),
    ]);
    for times in ranks {
        table.row(vec![
            times.rank.to_string(),
            time::duration(times.useful_ns),
            time::duration(times.mpi_ns),
            time::duration(times.idle_ns),
            time::duration(times.wait_ns),
            time::duration(times.caused_ns),
        ]);
    }
    table
}

/// Returns the table of wait states by pattern and call path.
pub fn wait_state_table(rows: &[WaitStateRow]) -> Table {
    let mut table = Table::new(&[
        ("wait state", Align::Left),
        ("call path", Align::Name),
        ("waits", Align::Right),
        ("sum", Align::Right),
        ("% of run", Align::Right),
        ("longest", Align::Right),
        ("±", Align::Optional),
    ]);
    for row in rows {
        let path: Vec<String> = row.path.iter().map(|region| safe(region)).collect();
        table.row(vec![
            pattern_name(row.pattern).to_owned(),
            path.join(" > "),
            time::grouped(row.count),
            time::duration(row.wait_ns),
            format!("{:.1}", row.share * 100.0),
            time::duration(row.max_ns),
            time::duration(row.uncertain_ns),
        ]);
    }
    table
}
