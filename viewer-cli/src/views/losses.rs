//! Losses as rows and as a table.

use std::collections::BTreeMap;

use annals_format::{Cause, EventTypeId, StreamId, TraceLoss};
use annals_merger::{Places, Reader};
use serde::Serialize;

use crate::table::{Align, Screen, Table, safe};
use crate::time::{grouped, moment};

/// One loss.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LossRow {
    rank: u32,
    source: String,
    location: Option<String>,
    event_type: Option<String>,
    count: u64,
    is_lower_bound: bool,
    cause: &'static str,
    from_ns: i64,
    to_ns: i64,
}

/// Returns the row of a loss.
pub fn loss_row(opened: &Reader, places: &Places, loss: &TraceLoss) -> LossRow {
    let place = places.get(loss.stream);
    let definitions = opened.definitions();
    LossRow {
        rank: place.rank,
        source: place.source.clone(),
        location: place.location.clone(),
        event_type: loss.event_type.map(|id| definitions.event_type_name(id)),
        count: loss.count,
        is_lower_bound: loss.is_lower_bound,
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

/// Returns losses as text: a table, or a sentence if there are none.
pub fn loss_text(opened: &Reader, losses: &[TraceLoss], screen: Screen) -> String {
    let table = loss_table(opened, losses);
    if table.is_empty() {
        return "nothing was lost\n".to_owned();
    }
    table.render(screen)
}

/// Returns losses as a table.
pub fn loss_table(opened: &Reader, losses: &[TraceLoss]) -> Table {
    let places = Places::of(opened.definitions());
    let mut table = Table::new(&[
        ("rank", Align::Right),
        ("source", Align::Left),
        ("location", Align::Name),
        ("event type", Align::Name),
        ("count", Align::Right),
        ("cause", Align::Left),
        ("from s", Align::Right),
        ("to s", Align::Right),
    ]);
    for loss in losses {
        let row = loss_row(opened, &places, loss);
        let least = if row.is_lower_bound { ">=" } else { "" };
        table.row(vec![
            row.rank.to_string(),
            safe(&row.source),
            safe(row.location.as_deref().unwrap_or("-")),
            safe(row.event_type.as_deref().unwrap_or("(any)")),
            format!("{least}{}", grouped(row.count)),
            row.cause.to_owned(),
            moment(row.from_ns),
            moment(row.to_ns),
        ]);
    }
    table
}
