//! `trace-cli intervals`: from a begin to its end, tied by a key: queues, requests, operations.

use std::collections::BTreeMap;
use std::io::Write;

use annals_analysis::{IntervalPair, MOST_OPEN_INTERVALS};
use annals_format::{Definitions, EventType, Role};
use anyhow::bail;
use clap::Args;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments, UsageError};

/// Events that begin and end something: how many, how long, how many open.
///
/// A begin and an end belong together when they have the same key in the same process; of several with one key the
/// oldest ends first. Without --begin and --end, pairs are found by the roles begin and end, and by names:
/// X_begin/X_end, X_start/X_end, X_started/X_complete, X_insert/X_remove, X_enqueued/X_dequeued. The key is the
/// types' key element, else the element that both have: request, key, id, or their only integer. With a time window,
/// intervals that began before it count as unmatched. `~` marks rows that a loss may have changed. *Paired
/// in order* are rows in which several intervals of one key, or without a key, were open concurrently: it is then unknown which end
/// belongs to which begin.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli intervals run.annals\n  trace-cli intervals run.annals \
                  --begin unex_insert --end unex_remove --key request --by-rank\n  \
                  trace-cli intervals run.annals --json --points 200"
)]
pub struct IntervalsArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Event type that begins an interval
    #[arg(long, value_name = "EVENT", requires = "end")]
    begin: Option<String>,

    /// Event type that ends it
    #[arg(long, value_name = "EVENT", requires = "begin")]
    end: Option<String>,

    /// Element that ties them
    #[arg(long, value_name = "ELEMENT")]
    key: Option<String>,

    /// A row for each rank
    #[arg(long)]
    by_rank: bool,

    /// With --json: the largest number in flight in each of N parts of the window
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    points: u16,

    #[command(flatten)]
    rows: RowsArguments,
}

/// How names of begins and ends differ.
const ENDINGS: [(&str, &str); 9] = [
    ("_begin", "_end"),
    ("_start", "_end"),
    ("_started", "_complete"),
    ("_started", "_completed"),
    ("_start", "_complete"),
    ("_start", "_stop"),
    ("insert", "remove"),
    ("enqueued", "dequeued"),
    ("enqueue", "dequeue"),
];

fn names<'a>(definitions: &'a Definitions, event_type: &'a EventType) -> Vec<&'a str> {
    let elements = event_type.elements.iter();
    let integers = elements.filter(|e| !e.element_type.is_variable());
    integers.map(|e| definitions.string(e.name)).collect()
}

/// Places of the key in both types.
fn keys(
    definitions: &Definitions,
    begin: &EventType,
    end: &EventType,
    wanted: Option<&str>,
) -> anyhow::Result<Option<(usize, usize)>> {
    let both = |name: &str| {
        let begin = definitions.element(begin.id, name)?;
        Some((begin, definitions.element(end.id, name)?))
    };
    if let Some(name) = wanted {
        let Some(found) = both(name) else {
            let begin_name = definitions.string(begin.name);
            let known = names(definitions, begin).join(", ");
            bail!(UsageError(format!(
                "no element {name} in both event types; {begin_name} has: {known}"
            )));
        };
        return Ok(Some(found));
    }
    if let (Some(begin), Some(end)) = (begin.key_element, end.key_element) {
        return Ok(Some((begin as usize, end as usize)));
    }
    let named = ["request", "key", "id", "handle"]
        .iter()
        .find_map(|name| both(name));
    let shared = || {
        let mut shared = names(definitions, begin).into_iter().filter_map(both);
        shared.next().filter(|_| shared.next().is_none())
    };
    Ok(named.or_else(shared))
}

fn by_name<'a>(definitions: &'a Definitions, name: &str) -> anyhow::Result<&'a EventType> {
    let mut types = definitions.event_types.values();
    match types.find(|event_type| definitions.string(event_type.name) == name) {
        Some(event_type) => Ok(event_type),
        None => {
            let known = definitions.event_types.values();
            let known = known.map(|event_type| definitions.string(event_type.name));
            let near = crate::did_you_mean::did_you_mean(name, known);
            bail!("no event type `{name}`{near}; see `trace-cli events`")
        }
    }
}

fn find_pairs(
    definitions: &Definitions,
    arguments: &IntervalsArguments,
) -> anyhow::Result<Vec<IntervalPair>> {
    let key = arguments.key.as_deref();
    if let (Some(begin), Some(end)) = (&arguments.begin, &arguments.end) {
        let (begin, end) = (by_name(definitions, begin)?, by_name(definitions, end)?);
        return Ok(vec![IntervalPair {
            begin: begin.id,
            end: end.id,
            keys: keys(definitions, begin, end, key)?,
        }]);
    }
    let types = definitions.event_types.values();
    let known: BTreeMap<&str, &EventType> = types
        .clone()
        .map(|t| (definitions.string(t.name), t))
        .collect();
    let mut pairs = Vec::new();
    // The end type of the lowest id that is above the ids still to come.
    let mut next_end = None;
    for begin in types.rev() {
        let after = next_end;
        if begin.role == Role::End {
            next_end = Some(begin);
        }
        let name = definitions.string(begin.name);
        let is_other = matches!(
            begin.role,
            Role::Enter | Role::Leave | Role::Send | Role::Receive
        );
        if is_other {
            continue;
        }
        let end = ENDINGS.iter().find_map(|(from, to)| {
            let base = name.strip_suffix(from)?;
            known.get(format!("{base}{to}").as_str()).copied()
        });
        // If the names show no pairs, a begin type belongs to the next end type.
        let end = end.or_else(|| after.filter(|_| begin.role == Role::Begin));
        if let Some(end) = end {
            pairs.push(IntervalPair {
                begin: begin.id,
                end: end.id,
                keys: keys(definitions, begin, end, key)?,
            });
        }
    }
    pairs.reverse();
    Ok(pairs)
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, an event type or element is not there, or the output cannot be written.
pub fn run(arguments: &IntervalsArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let mut pairs = find_pairs(opened.definitions(), arguments)?;
    pairs.retain(|pair| filter.takes_event_type(pair.begin) && filter.takes_event_type(pair.end));
    if pairs.is_empty() {
        bail!(
            "no event types begin and end intervals, by their names or roles: name them with --begin \
             and --end (see `trace-cli events`)"
        );
    }
    let parts = usize::from(arguments.points);
    let (mut found, outcome) =
        annals_analysis::intervals(&opened, &filter, &pairs, arguments.by_rank, parts)?;
    warn_of_damage(&opened, &outcome);
    if found.over_limit != 0 {
        eprintln!(
            "{} begins are left out: more than {MOST_OPEN_INTERVALS} intervals were open at the same time",
            found.over_limit
        );
    }
    let screen = arguments.input.screen();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut found.intervals);
        arguments.rows.json(out, &found, total)?;
    } else {
        arguments.rows.put(out, &found.intervals, screen)?;
        let mut rows = found.intervals.iter();
        if !arguments.rows.csv && rows.any(|row| row.is_paired_in_order) {
            writeln!(
                out,
                "paired in order: several intervals that no key distinguishes were open concurrently and are paired in the order of their \
                 begins: not the times of single intervals; count, mean and max in flight do not depend on it, the mean only if none is open \
                 or unmatched"
            )?;
        }
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
