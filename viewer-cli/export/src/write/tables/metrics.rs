//! The table of values of metrics.

use std::sync::Arc;

use annals_format::names::element;
use annals_format::{EventTypeId, Role, StreamId, Value};
use rustc_hash::FxHashMap;

use super::ColumnType::Name;
use super::names::Shared;
use super::{Column, ExportedRow, Gathered, column};
use crate::write::exporter::{Context, Events};
use crate::write::rows::Rows;

/// A value of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    time_ns: i64,
    stream: StreamId,
    event_type: EventTypeId,
    /// Number of the text.
    unit: u32,
    value: f64,
}

impl ExportedRow for Sample {
    const COLUMNS: &'static [Column<Self>] = &[
        column!("time_ns", integer, |sample| sample.time_ns),
        column!("rank", integer, |sample, shared| shared
            .place(sample.stream)
            .rank),
        Column::nullable("location", Name, |shared, rows| {
            let places = rows.iter().map(|sample| shared.place(sample.stream));
            shared.location_array(places.map(|place| place.location).collect())
        }),
        Column::new("source", Name, |shared, rows| {
            let places = rows.iter().map(|sample| shared.place(sample.stream));
            shared
                .sources
                .array(places.map(|place| place.source).collect(), None)
        }),
        Column::new("metric", Name, |shared, rows| {
            let types = rows.iter().map(|sample| sample.event_type.get().into());
            let keys = types.map(|event_type| shared.event_types.key(event_type));
            shared.event_types.array(keys.collect(), None)
        }),
        Column::new("unit", Name, |shared, rows| {
            let keys = rows
                .iter()
                .map(|sample| shared.units.key(sample.unit.into()));
            shared.units.array(keys.collect(), None)
        }),
        column!("value", float, |sample| sample.value),
    ];
}

/// The table of metrics.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    /// By event type: the element, and the number of its unit.
    types: FxHashMap<EventTypeId, (usize, u32)>,
    rows: Gathered<Sample>,
}

/// Returns which element of each metric is its value.
pub(crate) fn metrics_of(context: &Context<'_>) -> FxHashMap<EventTypeId, usize> {
    let d = context.definitions;
    let types = d.event_types.values();
    let types = types.filter(|t| t.role == Role::Metric && context.filter.takes_event_type(t.id));
    types
        .filter_map(|t| Some((t.id, d.element(t.id, element::VALUE)?)))
        .collect()
}

/// Returns a value as a number.
fn number_of(value: Value<'_>) -> Option<f64> {
    match value {
        Value::F64(value) => Some(value),
        other => other.as_integer().map(|value| value as f64),
    }
}

impl MetricsTable {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let types = metrics_of(context).into_iter();
        let unit = |id: &EventTypeId, at: usize| d.event_types[id].elements[at].unit;
        Self {
            types: types
                .map(|(id, at)| (id, (at, unit(&id, at).get())))
                .collect(),
            rows: Gathered::new(),
        }
    }

    /// Adds the values that events have. `write` receives batches of rows.
    ///
    /// # Errors
    /// Those of `write`.
    pub(crate) fn push(
        &mut self,
        events: &Events<'_>,
        shared: &Arc<Shared>,
        mut write: impl FnMut(Rows) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let types = events.event_types();
        let types: Vec<_> = types.map(|id| (id, self.types.get(&id))).collect();
        if types.iter().all(|(_, found)| found.is_none()) {
            return Ok(());
        }
        for event in 0..events.len() {
            let (event_type, Some((at, unit))) = types[events.type_place(event)] else {
                continue;
            };
            let Some(value) = number_of(events.value(event, *at)) else {
                continue;
            };
            let sample = Sample {
                time_ns: events.time(event),
                stream: events.stream(event),
                event_type,
                unit: *unit,
                value,
            };
            if let Some(rows) = self.rows.push(sample, shared) {
                write(rows)?;
            }
        }
        Ok(())
    }

    /// Takes all rows that wait.
    pub(crate) fn take(&mut self, shared: &Arc<Shared>) -> Rows {
        self.rows.take(shared)
    }
}
