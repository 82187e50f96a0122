//! `trace-cli sources`: the sources of events, with the order they promise and their clocks.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{SourceId, SourceOrder};
use serde::Serialize;

use super::{TableArguments, warn_of_damage};
use crate::output::Finding;
use annals_merger::Places;

/// One source.
#[derive(Clone, Debug)]
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

impl SourceRow {
    fn kept_ordering(&self) -> String {
        let broken = if self.broke_promise { " (broken)" } else { "" };
        format!("{}{broken}", self.ordering)
    }
}

annals_analysis::columns! {
    SourceRow;
    "rank" Number headed "rank", |row| row.rank;
    "source" Name headed "source", |row| &row.name;
    "description" Text, |row| &row.description;
    "ordering" Text, |row| row.ordering;
    "" Text headed "ordering", |row| row.kept_ordering();
    "clock" Name headed "clock", |row| &row.clock;
    "clock_kind" Text, |row| row.clock_kind;
    "ticks_per_second" Count if_room "ticks/s", |row| row.ticks_per_second;
    "max_ticks" Count, |row| row.max_ticks;
    "clock_error_ns" Number headed "± ns", |row| row.clock_error_ns;
    "streams" Count headed "streams", |row| row.streams;
    "events" Count headed "events", |row| row.events;
    "dropped" Count headed "dropped", |row| row.dropped;
    "inversions" Count if_room "inversions", |row| row.inversions;
    "largest_lateness_ticks" Count if_room "largest lateness", |row| row.largest_lateness_ticks;
    "broke_promise" Flag, |row| row.broke_promise;
}

#[derive(Clone, Debug, Serialize)]
struct Sources {
    sources: Vec<SourceRow>,
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub fn run(arguments: &TableArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let opened = arguments.input.open_heads()?;
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
    let mut sources: Vec<SourceRow> = rows.into_values().collect();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut sources);
        arguments.rows.json(out, &Sources { sources }, total)?;
    } else {
        arguments
            .rows
            .put(out, &sources, arguments.input.screen())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
