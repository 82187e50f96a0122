//! `trace-cli explain`: what ordered two events.

use std::io::Write;

use annals_format::{Definitions, ProcessId, units};
use annals_merger::{EventName, FoundEvent, Hop, Places, Rule, explain};
use clap::Args;
use serde::Serialize;

use super::InputArguments;
use crate::output::{self, Finding, UsageError};
use crate::table::safe;
use crate::time;

/// Explains the order of two events
///
/// An event is named RANK/LOCATION/POSITION, the position counting the events there in the order of the
/// trace from 0, or by a time such as 1.5s: the first event at or after it.
///
/// Rules: `same-stream`, `clock-gap` (farther apart than the clocks can be wrong), `message-path`, and
/// `concurrent`: nothing but what the clocks say, or with equal times rank, recording and stream.
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ExplainArguments {
    #[command(flatten)]
    input: InputArguments,

    /// One event: RANK/LOCATION/POSITION, or a time
    #[arg(value_name = "A", value_parser = parse_name)]
    a: EventName,

    /// The other
    #[arg(value_name = "B", value_parser = parse_name)]
    b: EventName,
}

fn parse_name(text: &str) -> Result<EventName, String> {
    let parts = text.split_once('/').and_then(|(rank, rest)| {
        let (location, position) = rest.rsplit_once('/')?;
        Some((
            rank.parse().ok()?,
            location.to_owned(),
            position.parse().ok()?,
        ))
    });
    match parts {
        Some((rank, location, position)) => Ok(EventName::Place(rank, location, position)),
        None if text.contains('/') => Err(format!(
            "`{text}` is no RANK/LOCATION/POSITION, such as 0/main/17"
        )),
        None => units::parse_time(text)
            .map(EventName::Time)
            .map_err(|error| error.to_string()),
    }
}

#[derive(Clone, Debug, Serialize)]
struct EventRow {
    rank: u32,
    location: Option<String>,
    source: String,
    event: String,
    time_ns: i64,
    shift_ns: i64,
}

#[derive(Clone, Debug, Serialize)]
struct HopRow {
    from_rank: u32,
    from_ns: i64,
    to_rank: u32,
    to_ns: i64,
}

#[derive(Clone, Debug, Serialize)]
struct ExplanationRow {
    first: EventRow,
    second: EventRow,
    /// `same-stream`, `clock-gap`, `message-path`, `concurrent`.
    rule: &'static str,
    /// Apart by their clocks, before repair moved anything.
    gap_ns: i64,
    /// Bound of the error of that; null when there is none.
    bound_ns: Option<u64>,
    path: Vec<HopRow>,
    /// Messages that lead the other way.
    contradiction: Vec<HopRow>,
    /// Whether losses may hide a message path.
    may_miss_messages: bool,
}

fn rank(definitions: &Definitions, process: ProcessId) -> u32 {
    definitions.ranks.get(&process).map_or(0, |rank| rank.rank)
}

fn hops(definitions: &Definitions, hops: &[Hop]) -> Vec<HopRow> {
    let rows = hops.iter().map(|hop| HopRow {
        from_rank: rank(definitions, hop.from),
        from_ns: hop.from_ns,
        to_rank: rank(definitions, hop.to),
        to_ns: hop.to_ns,
    });
    rows.collect()
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, has no such event, or the output cannot be written.
pub fn run(arguments: &ExplainArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.input.open()?;
    let d = opened.definitions();
    let names = [&arguments.a, &arguments.b];
    let found = match explain(&opened, names)? {
        Ok(found) => found,
        Err(which) => {
            let what = match names[which] {
                EventName::Place(rank, location, position) => {
                    format!("no event {rank}/{location}/{position}")
                }
                EventName::Time(time_ns) => {
                    format!("no event at or after {}", time::moment(*time_ns))
                }
            };
            return Err(UsageError(what).into());
        }
    };
    let places = Places::of(d);
    let row = |event: &FoundEvent| {
        let place = places.get(event.stream);
        EventRow {
            rank: place.rank,
            location: place.location.clone(),
            source: place.source.clone(),
            event: d.event_type_name(event.event_type),
            time_ns: event.time_ns,
            shift_ns: event.shift_ns,
        }
    };
    let (rule, path) = match &found.rule {
        Rule::SameStream => ("same-stream", Vec::new()),
        Rule::ClockGap => ("clock-gap", Vec::new()),
        Rule::MessagePath(path) => ("message-path", hops(d, path)),
        Rule::Concurrent => ("concurrent", Vec::new()),
    };
    let explanation = ExplanationRow {
        first: row(&found.first),
        second: row(&found.second),
        rule,
        gap_ns: found.gap_ns,
        bound_ns: found.bound_ns,
        path,
        contradiction: hops(d, &found.contradiction),
        may_miss_messages: found.may_miss_messages,
    };
    if arguments.input.json {
        output::json(out, &explanation)?;
    } else {
        write_text(&explanation, out)?;
    }
    Ok(Finding::FINE)
}

fn write_text(found: &ExplanationRow, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, event) in [("first", &found.first), ("second", &found.second)] {
        let location = event.location.as_deref().unwrap_or("-");
        let moved = match event.shift_ns {
            0 => String::new(),
            shift => format!(", moved by {}", time::duration(shift)),
        };
        writeln!(
            out,
            "{name}: {} s, rank {}, {}, {}, {}{moved}",
            time::moment(event.time_ns),
            event.rank,
            safe(&event.source),
            safe(location),
            safe(&event.event),
        )?;
    }
    let gap = time::duration(found.gap_ns.saturating_abs());
    let order = match found.gap_ns {
        0 => "at the time of the first".to_owned(),
        1.. => format!("{gap} after the first"),
        _ => format!("{gap} before the first"),
    };
    let bound = match found.bound_ns {
        Some(bound) => format!(
            "wrong by at most {}",
            time::duration(bound.min(1 << 62) as i64)
        ),
        None => "with an unknown error".to_owned(),
    };
    let apart = format!("by its clock, the second event is {order}, {bound}");
    match found.rule {
        "same-stream" => writeln!(out, "same stream: in the order in which it has them")?,
        "clock-gap" => writeln!(out, "clock gap: {apart}")?,
        "message-path" => writeln!(
            out,
            "message path: {apart}, but messages lead from one to the other"
        )?,
        _ if found.first.time_ns == found.second.time_ns => {
            writeln!(
                out,
                "concurrent: {apart}; events of equal time are sorted by rank, recording and stream"
            )?;
        }
        _ => writeln!(out, "concurrent: {apart}, and no message path was found")?,
    }
    for (what, hops) in [
        ("", &found.path),
        ("against the order: ", &found.contradiction),
    ] {
        for hop in hops {
            writeln!(
                out,
                "  {what}rank {} at {} s to rank {} at {} s",
                hop.from_rank,
                time::moment(hop.from_ns),
                hop.to_rank,
                time::moment(hop.to_ns)
            )?;
        }
    }
    if found.may_miss_messages {
        writeln!(out, "losses may hide messages between them")?;
    }
    Ok(())
}
