//! `trace-cli dropped`: what was lost, when and why; and whether the counts add up.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{ANY_EVENT_TYPE, Cause, EventTypeId, StreamId, TraceChunk, TraceLoss};
use annals_merger::{Places, Query, ReadSummary, Reader, Sums, TraceFile, Window};
use clap::Args;
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments};
use crate::table::safe;
use crate::time;
use crate::views::{LossRow, loss_rows, summed, unrecorded_children};

/// Lost events: how many, of which type, where, when and why.
///
/// With --check, every count is verified against the events themselves: exit code 0 when
/// raised = recorded + dropped + suppressed holds everywhere and nothing was lost, 3 when it holds and
/// something was lost, 1 when it does not hold. Where the disk was full, the first line says when, and rows are added up as with
/// --sum. With --check, or where the trace has an index, sends and receives whose peer is not known are counted, too.
#[derive(Clone, Debug, Args)]
pub struct DroppedArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// One row per rank, source, location, event type and cause
    #[arg(long)]
    sum: bool,

    #[command(flatten)]
    rows: RowsArguments,

    /// Read all events and verify the counts
    #[arg(long)]
    check: bool,
}

/// A stream and event type whose counts do not add up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Mismatch {
    rank: u32,
    source: String,
    location: Option<String>,
    #[serde(rename = "event")]
    event_type: Option<String>,
    raised: u64,
    recorded: u64,
    dropped: u64,
    suppressed: u64,
    skipped: u64,
    truncated: u64,
    filtered: u64,
    /// Events of the stream and type that were read.
    found: u64,
    /// Number of lost events in the dropped records of the stream and type.
    told: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Dropped {
    dropped: Vec<LossRow>,
    suppressed: Vec<LossRow>,
    skipped: Vec<LossRow>,
    totals: Sums,
    complete: bool,
    /// Sends and receives whose peer is not known. Absent where the input has no messages, or they were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_without_peer: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<CheckResult>,
}

#[derive(Clone, Debug, Serialize)]
struct CheckResult {
    balanced: bool,
    mismatches: Vec<Mismatch>,
}

/// Reads all events and holds them, and the dropped records, against the totals.
fn check(opened: &Reader) -> anyhow::Result<(CheckResult, ReadSummary)> {
    let mut found: BTreeMap<(StreamId, EventTypeId), u64> = BTreeMap::new();
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: TraceChunk| {
        for (stream, counts) in chunk.header(0).counts {
            for (event_type, count) in counts {
                *found.entry((stream, event_type)).or_default() += count;
            }
        }
        Ok(())
    })?;
    let mut told: BTreeMap<(StreamId, EventTypeId), u64> = BTreeMap::new();
    for loss in outcome.losses.iter().filter(|loss| loss.cause.is_dropped()) {
        let event_type = loss.event_type.unwrap_or(ANY_EVENT_TYPE);
        let sum = told.entry((loss.stream, event_type)).or_default();
        *sum = sum.saturating_add(loss.count);
    }
    let places = Places::of(opened.definitions());
    let mut mismatches = Vec::new();
    for totals in &outcome.totals {
        for row in &totals.rows {
            let key = (totals.stream, row.event_type);
            let found = found.remove(&key).unwrap_or(0);
            let told = told.remove(&key).unwrap_or(0);
            let holds = row.is_balanced() && row.present() == found && row.dropped_sum() == told;
            if !holds {
                mismatches.push(mismatch(opened, &places, totals.stream, row, found, told));
            }
        }
    }
    // Events or records of which the totals know nothing.
    for ((stream, event_type), count) in found {
        let row = annals_format::TypeTotals::new(event_type);
        mismatches.push(mismatch(opened, &places, stream, &row, count, 0));
    }
    for ((stream, event_type), count) in told.into_iter().filter(|(_, count)| *count != 0) {
        let row = annals_format::TypeTotals::new(event_type);
        mismatches.push(mismatch(opened, &places, stream, &row, 0, count));
    }
    let result = CheckResult {
        balanced: mismatches.is_empty(),
        mismatches,
    };
    Ok((result, outcome))
}

/// Returns the number of sends and receives whose peer is not known. `None` if there are no messages, or if all events would have to
/// be read for it and are not.
fn without_peer(opened: &Reader, is_read: bool) -> anyhow::Result<Option<u64>> {
    if let Some(overview) = opened.trace().and_then(TraceFile::message_overview) {
        return Ok(Some(overview.totals.without_peer));
    }
    if !is_read {
        return Ok(None);
    }
    let found = annals_analysis::messages(opened, &Query::new())?;
    Ok(found.map(|(messages, _)| messages.counts.without_peer))
}

fn mismatch(
    opened: &Reader,
    places: &Places,
    stream: StreamId,
    row: &annals_format::TypeTotals,
    found: u64,
    told: u64,
) -> Mismatch {
    let place = places.get(stream);
    let name = opened.definitions().event_type_name(row.event_type);
    Mismatch {
        rank: place.rank,
        source: place.source.clone(),
        location: place.location.clone(),
        event_type: (row.event_type != ANY_EVENT_TYPE).then_some(name),
        raised: row.raised,
        recorded: row.recorded,
        dropped: row.dropped_sum(),
        suppressed: row.suppressed,
        skipped: row.skipped,
        truncated: row.truncated,
        filtered: row.filtered,
        found,
        told,
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, a filter matches nothing, or the output cannot be written.
pub fn run(arguments: &DroppedArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let (check, outcome) = if arguments.check {
        let (check, outcome) = check(&opened)?;
        (Some(check), outcome)
    } else {
        (None, opened.summary()?)
    };
    warn_of_damage(&opened, &outcome);
    let mut losses: Vec<TraceLoss> = outcome
        .losses
        .iter()
        .filter(|loss| filter.takes_loss(loss))
        .copied()
        .collect();
    let full_ns = losses.iter().filter(|loss| loss.cause == Cause::Storage);
    let full_ns = full_ns.map(|loss| loss.from_ns).min();
    // When the disk is full, every stream and event type has losses to the end: their number says nothing.
    if arguments.sum || (full_ns.is_some() && !arguments.input.json && !arguments.rows.csv) {
        losses = summed(&losses);
    }
    let totals = Sums::of(&outcome.totals);
    let complete = outcome.complete && opened.rejected().is_empty();
    let without_peer = without_peer(&opened, arguments.check)?;
    if arguments.input.json {
        let total = arguments.rows.cut(&mut losses);
        let rows = |is_wanted: fn(Cause) -> bool| {
            loss_rows(&opened, losses.iter().filter(|loss| is_wanted(loss.cause)))
        };
        let result = Dropped {
            dropped: rows(Cause::is_dropped),
            suppressed: rows(Cause::is_suppressed),
            skipped: rows(Cause::is_of_reader),
            totals,
            complete,
            messages_without_peer: without_peer,
            check: check.clone(),
        };
        arguments.rows.json(out, &result, total)?;
    } else if arguments.rows.csv {
        arguments
            .rows
            .put(out, &loss_rows(&opened, &losses), arguments.input.screen())?;
    } else {
        if let Some(full_ns) = full_ns {
            writeln!(
                out,
                "the disk was full at {} s, or the file could not be written for another reason; later events are missing",
                time::moment(full_ns)
            )?;
        }
        if losses.is_empty() {
            writeln!(out, "nothing was lost")?;
        }
        arguments
            .rows
            .put(out, &loss_rows(&opened, &losses), arguments.input.screen())?;
        let least = if totals.raised_is_lower_bound {
            "at least "
        } else {
            ""
        };
        writeln!(
            out,
            "\nraised {least}{} = recorded {} + dropped {} + suppressed {}; of the recorded, \
             skipped {}, truncated {}",
            totals.raised,
            totals.recorded,
            totals.dropped,
            totals.suppressed,
            totals.skipped,
            totals.truncated
        )?;
        let d = opened.definitions();
        if let Some(children) = unrecorded_children(d.unrecorded_children(), d.follows_forks()) {
            writeln!(out, "{children}")?;
        }
        if let Some(without_peer) = without_peer.filter(|count| *count != 0) {
            writeln!(
                out,
                "{} sends and receives are recorded whose peer is not known: they are no messages of the trace",
                time::grouped(without_peer)
            )?;
        }
        if let Some(check) = &check {
            print_check(check, out)?;
        }
    }
    let has_loss = !complete || totals.dropped | totals.skipped | totals.truncated != 0;
    Ok(match check {
        Some(check) => Finding {
            has_loss,
            has_failed: !check.balanced,
            ..Finding::FINE
        },
        None => Finding::loss(outcome.has_skipped_now),
    })
}

fn print_check(check: &CheckResult, out: &mut dyn Write) -> anyhow::Result<()> {
    if check.balanced {
        writeln!(
            out,
            "checked: raised = recorded + dropped + suppressed, for every stream and event type"
        )?;
    }
    for m in &check.mismatches {
        writeln!(
            out,
            "DOES NOT ADD UP: rank {}, {}, {}, {}: raised {}, recorded {}, dropped {}, suppressed \
             {}, skipped {}, truncated {}, filtered {}; events found {}, drops reported {}",
            m.rank,
            safe(&m.source),
            safe(m.location.as_deref().unwrap_or("-")),
            safe(m.event_type.as_deref().unwrap_or("(any)")),
            m.raised,
            m.recorded,
            m.dropped,
            m.suppressed,
            m.skipped,
            m.truncated,
            m.filtered,
            m.found,
            m.told
        )?;
    }
    Ok(())
}
