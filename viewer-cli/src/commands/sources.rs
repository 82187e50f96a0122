//! `trace-cli sources`: the sources of events, with the order they promise and their clocks.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{SourceId, SourceOrder};
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::output::{self, Finding};
use crate::table::{Align, Table, safe};
use crate::time;
use annals_merger::Places;

/// One source.
#[derive(Clone, Debug, Serialize)]
struct SourceRow {
    rank: u32,
    name: String,
    description: String,
    ordering: &'static str,
    clock: String,
    clock_kind: &'static str,
    ticks_per_second: u64,
    max_ticks: u64,
    clock_error_ns: Option<u64>,
    streams: usize,
    events: u64,
    dropped: u64,
    /// Events whose tick lies below an earlier one's in their stream.
    inversions: u64,
    largest_lateness_ticks: u64,
    broke_promise: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Sources {
    sources: Vec<SourceRow>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &InputArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.open()?;
    let outcome = opened.summary()?;
    warn_of_damage(&opened, &outcome);
    let d = opened.definitions();
    let places = Places::of(d);
    let mut rows: BTreeMap<SourceId, SourceRow> = BTreeMap::new();
    for (id, source) in &d.sources {
        let clock = d.clocks.get(&source.clock);
        let map = d.clock_maps.get(&source.clock);
        let rank = d.ranks.get(&source.process);
        rows.insert(
            *id,
            SourceRow {
                rank: rank.map_or(0, |rank| rank.rank),
                name: d.string(source.name).to_owned(),
                description: d.string(source.description).to_owned(),
                ordering: source.ordering.name(),
                clock: clock.map_or_else(String::new, |c| d.string(c.name).to_owned()),
                clock_kind: clock.map_or("unknown", |clock| clock.kind.name()),
                ticks_per_second: clock.map_or(0, |clock| clock.ticks_per_second),
                max_ticks: clock.map_or(0, |clock| clock.max_ticks),
                clock_error_ns: map.map(|map| map.error_ns).filter(|e| *e != u64::MAX),
                streams: 0,
                events: 0,
                dropped: 0,
                inversions: 0,
                largest_lateness_ticks: 0,
                broke_promise: false,
            },
        );
    }
    for totals in &outcome.totals {
        let place = places.get(totals.stream);
        let Some(row) = rows.get_mut(&place.source_id) else {
            continue;
        };
        row.streams += usize::from(place.location_id.is_some());
        for counts in &totals.rows {
            row.events = row.events.saturating_add(counts.present());
            row.dropped = row.dropped.saturating_add(counts.dropped_sum());
        }
        row.inversions = row.inversions.saturating_add(totals.inversions);
        row.largest_lateness_ticks = row.largest_lateness_ticks.max(totals.largest_lateness);
        let ordering = d.sources[&place.source_id].ordering;
        row.broke_promise = ordering == SourceOrder::Ordered && row.inversions != 0;
    }
    let sources: Vec<SourceRow> = rows.into_values().collect();
    if arguments.json {
        output::json(out, &Sources { sources })?;
    } else {
        let mut table = Table::new(&[
            ("rank", Align::Right),
            ("source", Align::Name),
            ("ordering", Align::Left),
            ("clock", Align::Name),
            ("ticks/s", Align::Optional),
            ("± ns", Align::Right),
            ("streams", Align::Right),
            ("events", Align::Right),
            ("dropped", Align::Right),
            ("inversions", Align::Optional),
            ("largest lateness", Align::Optional),
        ]);
        for row in &sources {
            let broken = if row.broke_promise { " (broken)" } else { "" };
            table.row(vec![
                row.rank.to_string(),
                safe(&row.name),
                format!("{}{broken}", row.ordering),
                safe(&row.clock),
                time::grouped(row.ticks_per_second),
                row.clock_error_ns
                    .map_or_else(|| "-".to_owned(), |e| e.to_string()),
                row.streams.to_string(),
                time::grouped(row.events),
                time::grouped(row.dropped),
                time::grouped(row.inversions),
                time::grouped(row.largest_lateness_ticks),
            ]);
        }
        out.write_all(table.render(arguments.screen()).as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
