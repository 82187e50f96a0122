//! Sentences and a table about ranks that wait, and those for which they wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use annals_analysis::{
    Finding, FindingKind, Findings, Life, Origin, Position, Stay, WaitFor, WaitKind,
};

use annals_merger::Reader;

use super::{SENTENCE_NAME, counted};
use crate::names::cut_middle;
use crate::process_end::ProcessEnd;
use crate::table::{Align, Table, safe};
use crate::time;

/// Ranks that a sentence lists, at most.
const MOST_RANKS: usize = 6;
/// Groups of ranks that a sentence about several describes.
const MOST_GROUPS: usize = 3;
/// Groups of ranks that wait for each other of which a sentence says where they are.
const MOST_PARTS: usize = 5;
/// Rows of the table.
const MOST_ROWS: usize = 20;

fn name(text: &str) -> String {
    cut_middle(&safe(text), SENTENCE_NAME)
}

/// Returns ranks as ranges: `1 to 3, 5`.
fn ranges(ranks: &[u32]) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, to)) if to.checked_add(1) == Some(*rank) => *to = *rank,
            _ => ranges.push((*rank, *rank)),
        }
    }
    let text = |(from, to): &(u32, u32)| match to - from {
        0 => from.to_string(),
        1 => format!("{from}, {to}"),
        _ => format!("{from} to {to}"),
    };
    ranges.iter().map(text).collect()
}

/// Returns ranks for a sentence: `rank 2`, `ranks 0, 1 and 3`, `ranks 0 to 5`, `97 ranks`.
pub(crate) fn rank_words(ranks: &[u32]) -> String {
    let all = ranges(ranks);
    let separate: Vec<&str> = all.iter().flat_map(|range| range.split(", ")).collect();
    match separate.as_slice() {
        [] => "no rank".to_owned(),
        [one] if ranks.len() == 1 => format!("rank {one}"),
        [one] => format!("ranks {one}"),
        [rest @ .., last] if separate.len() <= MOST_RANKS => {
            format!("ranks {} and {last}", rest.join(", "))
        }
        _ => counted(ranks.len() as u64, "rank"),
    }
}

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

/// Returns a number in an order: `1st`, `12th`, `23rd`.
pub(crate) fn ordinal(number: u64) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{}{ending}", time::grouped(number))
}

/// Returns what a wait is for: `from 2, tag 4`, `its 6th collective on MPI_COMM_WORLD`. Empty: the call says all.
fn wait_words(wait: &WaitFor, whose: &str) -> String {
    let object = wait.object.as_deref().map(name);
    let on = |kind: &str| {
        let number = wait.number.map(ordinal).unwrap_or_default();
        let object = object
            .as_deref()
            .unwrap_or("a communicator that is not known");
        format!("{whose} {number} {kind} {object}")
    };
    let message = |way: &str| {
        let peer = wait
            .peer
            .map_or_else(|| "any rank".to_owned(), |rank| rank.to_string());
        if wait.is_guess {
            let peer = match wait.peer {
                None => "a rank that is not known",
                Some(_) => &*peer,
            };
            let object = object.as_deref().unwrap_or_default();
            return format!("{way} {peer}, on {object} (matched by order: a guess)");
        }
        let mut text = match wait.tag {
            Some(tag) => format!("{way} {peer}, tag {tag}"),
            None => format!("{way} {peer}, any tag"),
        };
        if let Some(object) = object
            .as_deref()
            .filter(|object| *object != "MPI_COMM_WORLD")
        {
            let _ = write!(text, ", on {object}");
        }
        text
    };
    match wait.kind {
        WaitKind::Receive => message("from"),
        WaitKind::Send => message("to"),
        WaitKind::Collective => match (wait.root, wait.others.is_empty()) {
            (Some(root), false) => format!("{} with root {root}", on("collective on")),
            _ => on("collective on"),
        },
        WaitKind::Call => on("such call on"),
        WaitKind::Fence => on("fence of"),
        WaitKind::File => on("collective access of"),
        WaitKind::Window => match wait.peer {
            Some(rank) => format!("with {rank}"),
            None => String::new(),
        },
        WaitKind::Init | WaitKind::Finalize | WaitKind::Alone => String::new(),
        WaitKind::Request => "a request that was begun before what was read".to_owned(),
    }
}

/// Returns the call that a thread is in, with what it waits for. `whose`: `its` or `their`.
fn call_words(position: &Position, whose: &str) -> String {
    if position.stay == Stay::Polls {
        return polling_words(position);
    }
    let function = match (&position.function, position.waits.first()) {
        (Some(function), _) => name(function),
        // Calls of MPI are not recorded as regions.
        (None, Some(wait)) => match (wait.kind, &wait.operation) {
            (WaitKind::Receive, _) => "a receive".to_owned(),
            (_, Some(operation)) => name(operation),
            _ => "a call of MPI".to_owned(),
        },
        (None, None) => "a call of MPI".to_owned(),
    };
    // Of several, those that are not done yet.
    let has_open = position.waits.iter().any(|wait| !wait.is_met);
    let open = position
        .waits
        .iter()
        .filter(|wait| !has_open || !wait.is_met);
    let kind = open.clone().next().map(|wait| wait.kind);
    let mut waits: Vec<String> = Vec::new();
    for wait in open {
        let text = wait_words(wait, whose);
        if !text.is_empty() && !waits.contains(&text) {
            waits.push(text);
        }
    }
    let separator = if position.is_any { " or " } else { " and " };
    match waits.len() {
        0 => function,
        1 if matches!(kind, Some(WaitKind::Receive | WaitKind::Send)) => {
            let lower = function.to_ascii_lowercase();
            let is_of_requests = lower.contains("wait") || lower.contains("test");
            match (is_of_requests, kind) {
                (true, Some(WaitKind::Receive)) => format!("{function} for a message {}", waits[0]),
                (true, _) => format!("{function} for the end of a message {}", waits[0]),
                (false, _) => format!("{function} {}", waits[0]),
            }
        }
        1 => format!("{function}, {}", waits[0]),
        count if count <= MOST_GROUPS => format!("{function}: {}", waits.join(separator)),
        count => format!(
            "{function}: {}{separator}{} more",
            waits[..MOST_GROUPS].join(separator),
            count - MOST_GROUPS
        ),
    }
}

/// Returns the innermost region outside of MPI, for a sentence: `, in swap`.
fn in_region(position: &Position) -> String {
    match position.regions.last() {
        Some(region) if region != "main" => format!(", in {}", name(region)),
        _ => String::new(),
    }
}

/// Returns the regions of a thread for the table, the innermost last; `…`: there may be others around.
fn region_path(position: &Position) -> String {
    let regions: Vec<String> = position.regions.iter().map(|region| name(region)).collect();
    let shown = &regions[regions.len().saturating_sub(3)..];
    let is_cut = shown.len() < regions.len() || position.is_partial;
    let start = if is_cut { "… " } else { "" };
    match shown {
        [] if position.is_partial => "…".to_owned(),
        [] => String::new(),
        shown => format!("{start}{}", shown.join(" > ")),
    }
}

/// What the system says about a thread: see [`crate::system_state`].
pub type SystemStates = BTreeMap<(u32, Option<String>), String>;

fn system_words(position: &Position, states: &SystemStates) -> String {
    let key = (position.rank, position.thread.clone());
    states
        .get(&key)
        .map_or_else(String::new, |state| format!(" ({state})"))
}

/// Returns the newest operation of a rank that is in none, as far as its dump shows.
fn last_operation(position: &Position, whose: &str) -> String {
    match position.function {
        Some(_) => format!("after {}", call_words(position, whose)),
        None => "at all".to_owned(),
    }
}

/// Returns where ranks are that are outside of MPI or poll.
fn elsewhere(
    ranks: &[u32],
    position: &Position,
    findings: &Findings,
    states: &SystemStates,
) -> String {
    if findings.origin == Origin::Dumps {
        let (_, whose) = is_or_are(ranks, position);
        let (last, place) = (last_operation(position, whose), in_region(position));
        let who = capital(&rank_words(ranks));
        return format!("{who} had entered no operation {last}{place}");
    }
    let since = time::duration(findings.at_ns.saturating_sub(position.since_ns).max(0));
    let least = if position.is_partial { "at least " } else { "" };
    let system = system_words(position, states);
    let who = capital(&rank_words(ranks));
    let is_over = position.ending.life == Life::UntilEnd;
    if position.stay == Stay::Polls {
        let (verb, time) = match (is_over, ranks.len()) {
            (true, _) => ("polled", "for"),
            (false, 1) => ("polls", "since"),
            (false, _) => ("poll", "since"),
        };
        let (calls, place) = (polling_words(position), in_region(position));
        return format!("{who} {verb} in {calls}{place}, {time} {least}{since}{system}");
    }
    let place = match position.regions.last() {
        Some(region) => format!("outside of MPI, in {}", name(region)),
        None if position.is_partial => "outside of MPI, in a region that is not known".to_owned(),
        None => "outside of MPI".to_owned(),
    };
    let (verb, _) = is_or_are(ranks, position);
    match is_over {
        true => format!("{who} {verb} {place}, without an event for {since}"),
        false => format!("{who} {verb} {place}, without an event since {since}{system}"),
    }
}

/// Returns the call with which a thread polls, and for what: `MPI_Test for a message from 1, tag 3`.
fn polling_words(position: &Position) -> String {
    let calls = position
        .function
        .as_deref()
        .map_or_else(|| "MPI".to_owned(), name);
    let each = position.waits.iter().map(|wait| match wait.kind {
        WaitKind::Receive => format!("a message {}", wait_words(wait, "its")),
        WaitKind::Send => format!("the end of a message {}", wait_words(wait, "its")),
        _ => wait_words(wait, "its"),
    });
    let mut waits: Vec<String> = each.filter(|wait| !wait.is_empty()).collect();
    waits.dedup();
    match waits.len() {
        0 => calls,
        count if count <= MOST_GROUPS => format!("{calls} for {}", waits.join(" or ")),
        count => format!("{calls} for {} or {} more", waits[0], count - 1),
    }
}

/// Groups of positions in which ranks do the same, the largest first.
fn groups<'a>(positions: impl Iterator<Item = &'a Position>) -> Vec<(Vec<u32>, &'a Position)> {
    let mut groups: BTreeMap<(String, String, String), (Vec<u32>, &Position)> = BTreeMap::new();
    for position in positions {
        let state = match (position.ending.life, position.stay) {
            (Life::Running | Life::UntilEnd, stay) => format!("{stay:?}"),
            (life, _) => format!("{life:?} {:?}", position.ending.system),
        };
        let key = (state, call_words(position, "their"), region_path(position));
        let group = groups.entry(key).or_insert_with(|| (Vec::new(), position));
        // Positions are by rank.
        if group.0.last() != Some(&position.rank) {
            group.0.push(position.rank);
        }
        if position.since_ns < group.1.since_ns {
            group.1 = position;
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|(ranks, position)| (std::cmp::Reverse(ranks.len()), position.since_ns));
    groups
}

/// Returns what others wait in for the ranks of a finding: `; ranks 0 and 3 wait for them in MPI_Barrier, …, since 33 s`.
fn waiting_sentence(findings: &Findings, finding: &Finding) -> String {
    let in_mpi = findings.positions_of(&finding.waiting);
    let in_mpi = in_mpi
        .filter(|position| position.stay != Stay::Outside && position.ending.life != Life::Ended);
    let all = groups(in_mpi);
    let Some((ranks, position)) = all.first() else {
        return String::new();
    };
    let them = if finding.ranks.len() == 1 {
        "it"
    } else {
        "them"
    };
    let verb = match (findings.is_running, ranks.len()) {
        (true, 1) => "waits",
        (true, _) => "wait",
        (false, _) => "waited",
    };
    let (_, whose) = is_or_are(ranks, position);
    let (call, time) = (call_words(position, whose), time_there(findings, position));
    let who = capital(&rank_words(ranks));
    let mut text = format!("{who} {verb} for {them} in {call}, {time}");
    let others = finding.waiting.len().saturating_sub(ranks.len());
    if others != 0 {
        let _ = write!(text, ", and {}", counted(others as u64, "more rank"));
    }
    text
}

fn ended_words(position: &Position) -> String {
    let ending = &position.ending;
    let end = ProcessEnd {
        abort_code: ending.abort_code.clone(),
        missing_finalize: ending.missing_finalize.clone(),
        system: ending.system.clone(),
    };
    let how = match (end.cause(), &ending.system) {
        (Some(cause), _) => cause,
        (None, Some(system)) if !system.starts_with("exit ") => {
            format!("was killed by {}", safe(system))
        }
        (None, _) => end.system_clause().unwrap_or_else(|| "ended".to_owned()),
    };
    let place = match (position.stay, position.regions.last()) {
        // Some libraries return from MPI_Abort.
        _ if ending.abort_code.is_some() => String::new(),
        (Stay::InMpi, _) => format!(" in {}{}", call_words(position, "its"), in_region(position)),
        (_, Some(region)) => format!(" in {}", name(region)),
        (_, None) => String::new(),
    };
    format!("{how}{place} at {}", time::duration(ending.at_ns))
}

/// Groups of ranks that do the same, each with the position of one.
type Groups<'a> = [(Vec<u32>, &'a Position)];

/// Joins what is said of groups, as far as a sentence has room.
fn join(groups: &Groups<'_>, say: impl Fn(&[u32], &Position) -> String) -> String {
    let parts = groups.iter().take(MOST_PARTS);
    let mut parts: Vec<String> = parts
        .map(|(ranks, position)| say(ranks, position))
        .collect();
    if groups.len() > MOST_PARTS {
        parts.push(format!("and {} more groups", groups.len() - MOST_PARTS));
    }
    parts.join("; ")
}

/// Returns in which call ranks are: `ranks 0 and 1 are in MPI_Barrier, their 6th collective on MPI_COMM_WORLD`.
fn are_in_call(ranks: &[u32], position: &Position) -> String {
    let (verb, whose) = is_or_are(ranks, position);
    let (call, place) = (call_words(position, whose), in_region(position));
    format!("{} {verb} in {call}{place}", rank_words(ranks))
}

fn mismatch_sentence(findings: &Findings, finding: &Finding) -> String {
    let groups = groups(findings.positions_of(&finding.ranks));
    let mut text = capital(&join(&groups, are_in_call));
    let others = groups.iter().flat_map(|(_, position)| &position.waits);
    let mut others = others.flat_map(|wait| wait.others.iter().map(move |other| (wait, other)));
    // Those that are in their call are named already.
    let other = others.find(|(_, (rank, _))| !finding.ranks.contains(rank));
    if let Some((wait, (rank, call))) = other {
        let number = wait.number.map(ordinal).unwrap_or_default();
        let _ = write!(text, "; the {number} of rank {rank} is {}", safe(call));
    }
    text.push_str(": they do not match");
    text
}

fn cycle_sentence(findings: &Findings, finding: &Finding) -> String {
    let positions = findings.positions_of(&finding.ranks);
    let mut groups = groups(positions.filter(|position| !position.waits.is_empty()));
    groups.sort_by_key(|(_, position)| position.since_ns);
    let parts = join(&groups, |ranks, position| {
        let (_, whose) = is_or_are(ranks, position);
        let (call, place) = (call_words(position, whose), in_region(position));
        format!("{} in {call}{place}{}", rank_words(ranks), hint(position))
    });
    let how = match (findings.is_running, finding.ranks.len()) {
        (true, 1) => "waits for itself",
        (false, 1) => "waited for itself",
        (true, _) => "wait for each other",
        (false, _) => "waited for each other",
    };
    format!("{} {how}: {parts}", capital(&rank_words(&finding.ranks)))
}

/// Returns what nearly fits a receive that has no message.
fn hint(position: &Position) -> String {
    let found = position
        .waits
        .iter()
        .find_map(|wait| Some((wait, wait.unreceived.as_ref()?)));
    let Some((wait, (tag, communicator, count))) = found else {
        return String::new();
    };
    let messages = counted(*count, "message");
    let peer = wait
        .peer
        .map_or_else(|| "any".to_owned(), |rank| rank.to_string());
    let on = match wait.object.as_deref() == Some(communicator) {
        true => String::new(),
        false => format!(" on {}", name(communicator)),
    };
    format!(
        " ({peer} has sent {messages} with tag {tag}{on} that {} not received)",
        if *count == 1 { "is" } else { "are" }
    )
}

fn in_call_sentence(findings: &Findings, finding: &Finding) -> String {
    let groups = groups(findings.positions_of(&finding.ranks));
    capital(&join(&groups, |ranks, position| {
        let mut met = position.waits.iter().filter(|wait| wait.is_met);
        let is_enough = position.is_any || position.waits.iter().all(|wait| wait.is_met);
        let wait = met.next().filter(|_| is_enough);
        let why = match wait.map(|wait| wait.kind) {
            Some(WaitKind::Receive) => " (the message was sent)",
            Some(WaitKind::Send) => " (a receive for it was begun)",
            Some(_) => " (all others have begun it)",
            None => "",
        };
        let (call, time) = (are_in_call(ranks, position), time_there(findings, position));
        format!("{call}, {time}{why}")
    }))
}

/// Returns how long a thread is there, or was: `since 3 s`, `for 3 s`; of a dump, which does not say when it was written, since when.
fn time_there(findings: &Findings, position: &Position) -> String {
    if findings.origin == Origin::Dumps {
        return format!("entered at {} UTC", time::date(position.since_ns));
    }
    let time = time::duration(findings.at_ns.saturating_sub(position.since_ns).max(0));
    let preposition = if findings.is_running { "since" } else { "for" };
    format!("{preposition} {time}")
}

/// Returns the verb and the possessive for some ranks, in the past if they are not there any more.
const fn is_or_are(ranks: &[u32], position: &Position) -> (&'static str, &'static str) {
    let is_over = matches!(position.ending.life, Life::UntilEnd | Life::Ended);
    match (is_over, ranks.len()) {
        (false, 1) => ("is", "its"),
        (false, _) => ("are", "their"),
        (true, 1) => ("was", "its"),
        (true, _) => ("were", "their"),
    }
}

fn ended_sentence(findings: &Findings, finding: &Finding) -> String {
    let mut ended: Vec<&Position> = findings.positions_of(&finding.ranks).collect();
    ended.sort_by_key(|position| (position.ending.at_ns, position.rank));
    ended.dedup_by_key(|position| position.rank);
    let parts = ended.iter().take(MOST_GROUPS);
    let parts = parts.map(|of| format!("rank {} {}", of.rank, ended_words(of)));
    let mut text = capital(&parts.collect::<Vec<String>>().join("; "));
    if ended.len() > MOST_GROUPS {
        let _ = write!(text, "; {} more ended", ended.len() - MOST_GROUPS);
    }
    text
}

fn elsewhere_sentence(findings: &Findings, finding: &Finding, states: &SystemStates) -> String {
    let of_ranks = findings.positions_of(&finding.ranks);
    let (in_mpi, outside): (Vec<&Position>, Vec<&Position>) =
        of_ranks.partition(|position| position.stay == Stay::InMpi);
    let groups = groups(outside.into_iter());
    let mut text = join(&groups, |ranks, of| elsewhere(ranks, of, findings, states));
    for other in in_mpi.iter().take(MOST_GROUPS) {
        let thread = other.thread.as_deref().map_or_else(String::new, name);
        let (call, place) = (call_words(other, "its"), in_region(other));
        let (verb, _) = is_or_are(&[other.rank], other);
        let _ = write!(
            text,
            "; thread {thread} of rank {} {verb} in {call}{place}",
            other.rank
        );
    }
    text
}

fn unknown_sentence(findings: &Findings, finding: &Finding) -> String {
    let of_ranks = findings.positions_of(&finding.ranks);
    let groups = groups(of_ranks.filter(|of| of.waits.iter().any(|wait| !wait.unknown.is_empty())));
    if groups.is_empty() {
        return format!("What {} did last is not known", rank_words(&finding.ranks));
    }
    capital(&join(&groups, |ranks, position| {
        let of = position.waits.iter().flat_map(|wait| &wait.unknown);
        let unknown: BTreeSet<u32> = of.copied().collect();
        let unknown: Vec<u32> = unknown.into_iter().collect();
        let (call, others) = (are_in_call(ranks, position), rank_words(&unknown));
        format!("{call}: whether {others} did what that needs is not known")
    }))
}

/// Returns the sentence about the first finding of a run that ended badly. `None` if it ended well, or if nothing is known of why it ended.
///
/// # Errors
/// If the storage fails.
pub fn bad_end_sentence(reader: &Reader) -> annals_merger::Result<Option<String>> {
    let Some(findings) = annals_analysis::bad_end(reader)? else {
        return Ok(None);
    };
    let first = findings.findings.first();
    let first =
        first.filter(|finding| !matches!(finding.kind, FindingKind::InCall | FindingKind::Unknown));
    Ok(first.map(|finding| finding_sentence(&findings, finding, &SystemStates::new())))
}

/// Returns the sentence about a finding.
pub fn finding_sentence(findings: &Findings, finding: &Finding, states: &SystemStates) -> String {
    let about = match finding.kind {
        FindingKind::Ended => ended_sentence(findings, finding),
        FindingKind::Mismatch => mismatch_sentence(findings, finding),
        FindingKind::Cycle => cycle_sentence(findings, finding),
        FindingKind::InCall => in_call_sentence(findings, finding),
        FindingKind::Elsewhere | FindingKind::Polls => {
            elsewhere_sentence(findings, finding, states)
        }
        FindingKind::Unknown => unknown_sentence(findings, finding),
    };
    match waiting_sentence(findings, finding) {
        waiting if waiting.is_empty() => format!("{about}."),
        waiting => format!("{about}. {waiting}."),
    }
}

/// Returns the table of groups of ranks that do the same.
pub fn position_table(findings: &Findings, states: &SystemStates) -> Table {
    let are_dumps = findings.origin == Origin::Dumps;
    let columns = [
        ("ranks", Align::Left),
        ("where", Align::Left),
        (if are_dumps { "entered" } else { "since" }, Align::Right),
        ("in", Align::Name),
    ];
    let mut table = Table::new(&columns);
    let all = groups(findings.positions.iter());
    for (ranks, position) in all.iter().take(MOST_ROWS) {
        let place = match (position.ending.life, position.stay) {
            (Life::Unknown, _) => "not known".to_owned(),
            (Life::Ended, _) => ended_words(position),
            (_, Stay::InMpi) => {
                let whose = if ranks.len() == 1 { "its" } else { "their" };
                format!(
                    "{}{}",
                    call_words(position, whose),
                    system_words(position, states)
                )
            }
            (_, Stay::Polls) => {
                format!("polls in {}", polling_words(position))
            }
            (_, Stay::Outside) if are_dumps => {
                let whose = if ranks.len() == 1 { "its" } else { "their" };
                match position.function {
                    Some(_) => last_operation(position, whose),
                    None => "in no operation".to_owned(),
                }
            }
            (_, Stay::Outside) => format!("outside of MPI{}", system_words(position, states)),
        };
        let since = match position.ending.life {
            Life::Unknown => String::new(),
            _ if are_dumps => time::date(position.since_ns),
            _ => time::duration(findings.at_ns.saturating_sub(position.since_ns).max(0)),
        };
        let mut of_ranks = ranges(ranks).join(", ");
        if of_ranks.len() > 24 {
            of_ranks = counted(ranks.len() as u64, "rank");
        }
        if let Some(thread) = &position.thread {
            let _ = write!(of_ranks, " {}", name(thread));
        }
        table.row(vec![of_ranks, place, since, region_path(position)]);
    }
    if all.len() > MOST_ROWS {
        let more = format!("… {} more groups: --json has all", all.len() - MOST_ROWS);
        table.row(vec![String::new(), more, String::new(), String::new()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_by_ranges_as_far_as_a_sentence_has_room() {
        let cases: [(&[u32], &str); 6] = [
            (&[2], "rank 2"),
            (&[1, 2], "ranks 1 and 2"),
            (&[0, 1, 3], "ranks 0, 1 and 3"),
            (&[0, 1, 2, 3], "ranks 0 to 3"),
            (&[0, 2, 3, 4, 9], "ranks 0, 2 to 4 and 9"),
            (&[0, 2, 4, 6, 8, 10, 12], "7 ranks"),
        ];
        for (ranks, expected) in cases {
            assert_eq!(rank_words(ranks), expected);
        }
        assert_eq!(ranges(&[1, 2, 5]), ["1, 2", "5"]);
    }

    #[test]
    fn numbers_in_an_order_have_their_endings() {
        let numbers = [1, 2, 3, 4, 11, 12, 13, 21, 102, 1_000_003];
        let expected = [
            "1st",
            "2nd",
            "3rd",
            "4th",
            "11th",
            "12th",
            "13th",
            "21st",
            "102nd",
            "1,000,003rd",
        ];
        for (number, expected) in numbers.into_iter().zip(expected) {
            assert_eq!(ordinal(number), expected);
        }
    }
}
