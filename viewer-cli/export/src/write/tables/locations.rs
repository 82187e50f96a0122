//! The table of locations.

use std::collections::BTreeMap;

use annals_format::{Definitions, LocationId, LocationKind, StreamId, StreamTotals};
use annals_merger::{Query, Reader};

/// A location with events, losses or none.
#[derive(Clone, Debug)]
pub(crate) struct LocationRow {
    number: i64,
    rank: i64,
    name: String,
    kind: LocationKind,
    host: String,
    process_id: i64,
    thread_id: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    streams: u64,
    events: u64,
    lost: u64,
}

impl LocationRow {
    /// Returns the locations of which a query takes a stream.
    ///
    /// # Errors
    /// If the storage fails.
    pub(super) fn all(reader: &Reader, query: &Query) -> annals_merger::Result<Vec<Self>> {
        let d: &Definitions = reader.definitions();
        let names = annals_analysis::LocationNames::new(d);
        let totals = reader.summary()?.totals.into_iter();
        let totals: BTreeMap<StreamId, StreamTotals> =
            totals.map(|totals| (totals.stream, totals)).collect();
        let mut counts: BTreeMap<LocationId, Counts> = BTreeMap::new();
        for stream in d.streams.values().filter(|s| query.takes_stream(s.id)) {
            let Some(location) = stream.location else {
                continue;
            };
            let counts = counts.entry(location).or_default();
            counts.streams += 1;
            for row in totals
                .get(&stream.id)
                .map_or(&[][..], |totals| &totals.rows)
            {
                let lost = row.dropped_sum() + row.skipped + row.truncated;
                counts.events = counts.events.saturating_add(row.present());
                counts.lost = counts.lost.saturating_add(lost);
            }
        }
        let rows = (0..).zip(d.locations.values());
        let rows = rows.filter_map(|(number, location)| {
            let process = d.processes.get(&location.process);
            Some(Self {
                number,
                rank: d.rank_of_location(location.id).into(),
                name: names.get(location.id).to_owned(),
                kind: location.kind,
                host: process.map_or_else(String::new, |p| d.string(p.host).to_owned()),
                process_id: process.map_or(0, |process| process.pid.into()),
                thread_id: location.system_id,
                counts: *counts.get(&location.id)?,
            })
        });
        Ok(rows.collect())
    }
}

annals_analysis::columns! {
    LocationRow;
    "number" Number, |row| row.number;
    "rank" Number, |row| row.rank;
    "location" Name, |row| &row.name;
    "kind" Text, |row| match row.kind {
        LocationKind::Thread => "thread",
        LocationKind::Device => "device",
    };
    "host" Name, |row| &row.host;
    "process_id" Number, |row| row.process_id;
    "thread_id" Count, |row| (row.thread_id != 0).then_some(row.thread_id);
    "streams" Count, |row| row.counts.streams;
    "events" Count, |row| row.counts.events;
    "lost" Count, |row| row.counts.lost;
}
