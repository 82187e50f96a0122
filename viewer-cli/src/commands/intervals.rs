//! `trace-cli intervals`: from a begin to its end, tied by a key: queues, requests, operations.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use annals_format::{Definitions, EventType, EventTypeId, Role, Spread};
use annals_merger::{Places, Query, ReadSummary, Reader, Window};
use anyhow::bail;
use clap::Args;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputArguments, opt_duration, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::table::{Align, Table, safe};
use crate::time;
use crate::walk::{bin_of, bin_start, bounded, concerns, walk};

/// What was begun and not ended is remembered up to this number.
const MOST_OPEN: usize = 1 << 22;

/// Pairs of event types that begin and end something: how many, how long, how many at once.
///
/// A begin and an end belong together when they have the same key in the same process; of several with one key the
/// oldest ends first. Without --begin and --end, pairs are found by the roles begin and end, and by names:
/// X_begin/X_end, X_start/X_end, X_started/X_complete, X_insert/X_remove, X_enqueued/X_dequeued. The key is the
/// types' key element, else the element that both have: request, key, id, or their only integer. In a window,
/// what was begun before it counts as unmatched. `~` marks rows that a loss may have changed. `*` marks times of rows in which
/// several intervals of one key, or without a key, were open concurrently: which end belongs to which begin is not known then.
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

    /// With --json: the largest number in flight in each of so many parts of the window
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    points: u16,
}

/// A pair of event types.
#[derive(Clone, Copy, Debug)]
struct Pair {
    begin: EventTypeId,
    end: EventTypeId,
    /// Place of the key in each; none: no key.
    keys: Option<(usize, usize)>,
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
) -> anyhow::Result<Vec<Pair>> {
    let key = arguments.key.as_deref();
    if let (Some(begin), Some(end)) = (&arguments.begin, &arguments.end) {
        let (begin, end) = (by_name(definitions, begin)?, by_name(definitions, end)?);
        return Ok(vec![Pair {
            begin: begin.id,
            end: end.id,
            keys: keys(definitions, begin, end, key)?,
        }]);
    }
    let types = || definitions.event_types.values();
    let known: BTreeMap<&str, &EventType> =
        types().map(|t| (definitions.string(t.name), t)).collect();
    let mut pairs = Vec::new();
    for begin in types() {
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
        // Types of the roles whose names tell nothing: the next end is meant.
        let end = end.or_else(|| {
            let is_begin = begin.role == Role::Begin;
            let mut ends = types().filter(|t| t.role == Role::End && t.id > begin.id);
            ends.next().filter(|_| is_begin)
        });
        if let Some(end) = end {
            pairs.push(Pair {
                begin: begin.id,
                end: end.id,
                keys: keys(definitions, begin, end, key)?,
            });
        }
    }
    Ok(pairs)
}

/// One row. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
struct IntervalRow {
    begin: String,
    end: String,
    key: Option<String>,
    /// Null: all ranks together.
    rank: Option<u32>,
    count: u64,
    /// Begun and not ended.
    open: u64,
    /// Ended without a begin.
    unmatched: u64,
    total_ns: i64,
    mean_ns: Option<i64>,
    min_ns: Option<i64>,
    max_ns: Option<i64>,
    p50_ns: Option<i64>,
    p95_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_in_flight: u64,
    /// Several intervals of one key, or without a key, were open in a process concurrently, and were ended in the order of their
    /// begins: min, max and percentiles are those of this pairing, not of single intervals. Count and max_in_flight are exact; total
    /// and mean are, too, unless some intervals are open or unmatched.
    is_paired_in_order: bool,
    /// The largest number in flight in each part of the window.
    in_flight: Vec<Point>,
    is_uncertain: bool,
    /// Events of the two types that were lost, of those whose type is known.
    lost: u64,
    lost_is_lower_bound: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    from_ns: i64,
    count: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Intervals {
    intervals: Vec<IntervalRow>,
}

#[derive(Default)]
struct Tally {
    durations: Spread,
    unmatched: u64,
    in_flight: u64,
    most: u64,
    is_paired_in_order: bool,
    /// By part that something changed in: the largest number in it, and the last.
    parts: BTreeMap<usize, (u64, u64)>,
}

impl Tally {
    fn change(&mut self, part: usize, more: i64) {
        let before = self.in_flight;
        self.in_flight = before.saturating_add_signed(more);
        self.most = self.most.max(self.in_flight);
        let (most, last) = self.parts.entry(part).or_insert((before, before));
        *most = (*most).max(self.in_flight);
        *last = self.in_flight;
    }

    fn points(&self, window: Window, parts: usize) -> Vec<Point> {
        let mut last = 0;
        let points = (0..parts).map(|part| {
            let (most, at_end) = self.parts.get(&part).copied().unwrap_or((last, last));
            last = at_end;
            Point {
                from_ns: bin_start(window, parts, part),
                count: most,
            }
        });
        points.collect()
    }
}

/// What an event type is to the pairs.
#[derive(Clone, Copy)]
struct Use {
    pair: usize,
    is_begin: bool,
}

/// Intervals that wait for their ends, by pair, process and key.
#[derive(Default)]
struct Waiting {
    open: FxHashMap<(usize, u32, i128), VecDeque<i64>>,
    count: usize,
    over_limit: u64,
}

struct Measured {
    /// By pair and rank; rank none: all.
    tallies: BTreeMap<(usize, Option<u32>), Tally>,
    over_limit: u64,
    outcome: ReadSummary,
    window: Window,
}

fn measure(
    opened: &Reader,
    filter: &Query,
    window: Window,
    pairs: &[Pair],
    arguments: &IntervalsArguments,
) -> anyhow::Result<Measured> {
    let places = Places::of(opened.definitions());
    let mut uses: FxHashMap<EventTypeId, Use> = FxHashMap::default();
    for (pair, types) in pairs.iter().enumerate() {
        for (event_type, is_begin) in [(types.begin, true), (types.end, false)] {
            uses.entry(event_type).or_insert(Use { pair, is_begin });
        }
    }
    let parts_of = bounded(opened, window);
    let parts = usize::from(arguments.points);
    let mut tallies: BTreeMap<(usize, Option<u32>), Tally> = BTreeMap::new();
    for pair in 0..pairs.len() {
        tallies.insert((pair, None), Tally::default());
    }
    let mut waiting = Waiting::default();
    let outcome = walk(
        opened,
        filter,
        window,
        &uses,
        |event, Use { pair, is_begin }| {
            let place = places.get(event.stream());
            let key = pairs[pair].keys.and_then(|(begin, end)| {
                event
                    .element(if is_begin { begin } else { end })
                    .as_integer()
            });
            let key = (pair, place.process.get(), key.unwrap_or(0));
            let part = bin_of(parts_of, parts, event.time());
            let mut rows = vec![(pair, None)];
            rows.extend(arguments.by_rank.then_some((pair, Some(place.rank))));
            if is_begin {
                if waiting.count >= MOST_OPEN {
                    waiting.over_limit += 1;
                    return;
                }
                waiting.count += 1;
                waiting.open.entry(key).or_default().push_back(event.time());
                for row in rows {
                    tallies.entry(row).or_default().change(part, 1);
                }
                return;
            }
            let begun = waiting.open.get_mut(&key);
            let begun = begun.and_then(|queue| Some((queue.pop_front()?, queue.is_empty())));
            // With others of its key open, it may be the end of any of them.
            let is_paired_in_order = begun.is_some_and(|(_, is_last)| !is_last);
            if let Some((_, true)) = begun {
                waiting.open.remove(&key);
            }
            waiting.count -= usize::from(begun.is_some());
            for row in rows {
                let tally = tallies.entry(row).or_default();
                match begun {
                    Some((begun_ns, _)) => {
                        tally.durations.add(event.time() - begun_ns);
                        tally.is_paired_in_order |= is_paired_in_order;
                        tally.change(part, -1);
                    }
                    None => tally.unmatched += 1,
                }
            }
        },
    )?;
    Ok(Measured {
        tallies,
        over_limit: waiting.over_limit,
        outcome,
        window: parts_of,
    })
}

fn rows(
    opened: &Reader,
    filter: &Query,
    window: Window,
    pairs: &[Pair],
    measured: &Measured,
    parts: usize,
) -> Vec<IntervalRow> {
    let definitions = opened.definitions();
    let places = Places::of(definitions);
    let rows = measured.tallies.iter().map(|((number, rank), tally)| {
        let pair = pairs[*number];
        let is_of = |event_type: EventTypeId| event_type == pair.begin || event_type == pair.end;
        let losses = measured.outcome.losses.iter().filter(|loss| {
            let is_here = rank.is_none_or(|rank| places.get(loss.stream).rank == rank);
            is_here && !loss.cause.is_suppressed() && concerns(loss, filter, window, is_of)
        });
        let losses: Vec<_> = losses.collect();
        let known = losses.iter().filter(|loss| loss.event_type.is_some());
        let element = pair
            .keys
            .and_then(|(begin, _)| definitions.event_types[&pair.begin].elements.get(begin));
        let d = &tally.durations;
        IntervalRow {
            begin: definitions.event_type_name(pair.begin),
            end: definitions.event_type_name(pair.end),
            key: element.map(|element| definitions.string(element.name).to_owned()),
            rank: *rank,
            count: d.count(),
            open: tally.in_flight,
            unmatched: tally.unmatched,
            total_ns: d.sum(),
            mean_ns: d.mean(),
            min_ns: d.min(),
            max_ns: d.max(),
            p50_ns: d.percentile(50),
            p95_ns: d.percentile(95),
            p99_ns: d.percentile(99),
            max_in_flight: tally.most,
            is_paired_in_order: tally.is_paired_in_order,
            in_flight: tally.points(measured.window, parts),
            is_uncertain: !losses.is_empty(),
            lost: known.map(|loss| loss.count).fold(0, u64::saturating_add),
            lost_is_lower_bound: losses
                .iter()
                .any(|loss| loss.is_lower_bound || loss.event_type.is_none()),
        }
    });
    rows.collect()
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
    let measured = measure(&opened, &filter, window, &pairs, arguments)?;
    warn_of_damage(&opened, &measured.outcome);
    if measured.over_limit != 0 {
        eprintln!(
            "{} begins are left out: more than {MOST_OPEN} intervals were open at once",
            measured.over_limit
        );
    }
    let parts = usize::from(arguments.points);
    let intervals = rows(&opened, &filter, window, &pairs, &measured, parts);
    if arguments.input.json {
        output::json(out, &Intervals { intervals })?;
    } else {
        let mut table = Table::new(&[
            ("interval", Align::Left),
            ("key", Align::Left),
            ("rank", Align::Right),
            ("count", Align::Right),
            ("open", Align::Right),
            ("unmatched", Align::Right),
            ("total", Align::Right),
            ("mean", Align::Right),
            ("min", Align::Right),
            ("p95", Align::Right),
            ("max", Align::Right),
            ("max in flight", Align::Right),
        ]);
        for row in &intervals {
            let mark = if row.is_uncertain { "~" } else { "" };
            let of_one = if row.is_paired_in_order { "*" } else { "" };
            // The sum of all times does not depend on the pairing when every begin has its end.
            let of_all = if row.open + row.unmatched != 0 {
                of_one
            } else {
                ""
            };
            table.row(vec![
                format!("{} .. {}", safe(&row.begin), safe(&row.end)),
                safe(row.key.as_deref().unwrap_or("-")),
                row.rank
                    .map_or_else(|| "all".to_owned(), |rank| rank.to_string()),
                format!("{mark}{}", row.count),
                format!("{mark}{}", row.open),
                format!("{mark}{}", row.unmatched),
                format!("{mark}{of_all}{}", time::duration(row.total_ns)),
                format!("{mark}{of_all}{}", opt_duration(row.mean_ns)),
                format!("{of_one}{}", opt_duration(row.min_ns)),
                format!("{of_one}{}", opt_duration(row.p95_ns)),
                format!("{of_one}{}", opt_duration(row.max_ns)),
                format!("{mark}{}", row.max_in_flight),
            ]);
        }
        out.write_all(table.render().as_bytes())?;
        if intervals.iter().any(|row| row.is_paired_in_order) {
            writeln!(
                out,
                "* several intervals that no key distinguishes were open concurrently and are paired in the order of their begins: \
                 not the times of single intervals; count, mean and max in flight do not depend on it, the mean only if \
                 none is open or unmatched"
            )?;
        }
    }
    Ok(Finding::loss(measured.outcome.has_skipped_now))
}
