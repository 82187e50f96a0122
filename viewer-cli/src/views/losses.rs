//! Losses as rows and as a table.

use std::collections::BTreeMap;

use annals_format::{Cause, EventTypeId, StreamId, TraceLoss};
use annals_merger::{Places, Reader};

use crate::time::grouped;

/// One loss.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LossRow {
    rank: u32,
    source: String,
    location: Option<String>,
    event_type: Option<String>,
    count: u64,
    is_lower_bound: bool,
    kind: &'static str,
    cause: &'static str,
    from_ns: i64,
    to_ns: i64,
}

impl LossRow {
    fn least_count(&self) -> String {
        let least = if self.is_lower_bound { ">=" } else { "" };
        format!("{least}{}", grouped(self.count))
    }
}

annals_analysis::columns! {
    LossRow;
    "rank" Number headed "rank", |row| row.rank;
    "source" Text headed "source", |row| &row.source;
    "location" Name headed "location", |row| &row.location;
    "event" Name, |row| &row.event_type;
    "" Name headed "event type", |row| row.event_type.as_deref().unwrap_or("(any)");
    "count" Count, |row| row.count;
    "" Number headed "count", |row| row.least_count();
    "is_lower_bound" Flag, |row| row.is_lower_bound;
    "kind" Text, |row| row.kind;
    "cause" Text headed "cause", |row| row.cause;
    "from_ns" Moment headed "from", |row| row.from_ns;
    "to_ns" Moment headed "to", |row| row.to_ns;
}

/// Returns the row of a loss.
fn loss_row(opened: &Reader, places: &Places, loss: &TraceLoss) -> LossRow {
    let place = places.get(loss.stream);
    let definitions = opened.definitions();
    LossRow {
        rank: place.rank,
        source: place.source.clone(),
        location: place.location.clone(),
        event_type: loss.event_type.map(|id| definitions.event_type_name(id)),
        count: loss.count,
        is_lower_bound: loss.is_lower_bound,
        kind: loss.cause.kind(),
        cause: loss.cause.name(),
        from_ns: loss.from_ns,
        to_ns: loss.to_ns,
    }
}

/// Adds up losses by stream, event type and cause, in that order.
pub fn summed(losses: &[TraceLoss]) -> Vec<TraceLoss> {
    let mut sums: BTreeMap<(StreamId, Option<EventTypeId>, Cause), TraceLoss> = BTreeMap::new();
    for loss in losses {
        let key = (loss.stream, loss.event_type, loss.cause);
        sums.entry(key)
            .and_modify(|sum| {
                sum.count = sum.count.saturating_add(loss.count);
                sum.is_lower_bound |= loss.is_lower_bound;
                sum.from_ns = sum.from_ns.min(loss.from_ns);
                sum.to_ns = sum.to_ns.max(loss.to_ns);
            })
            .or_insert(*loss);
    }
    sums.into_values().collect()
}

/// Returns losses as rows.
pub fn loss_rows<'l>(
    opened: &Reader,
    losses: impl IntoIterator<Item = &'l TraceLoss>,
) -> Vec<LossRow> {
    let places = Places::of(opened.definitions());
    let rows = losses
        .into_iter()
        .map(|loss| loss_row(opened, &places, loss));
    rows.collect()
}
