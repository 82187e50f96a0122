//! The metrics of a timeline: means by column.

use std::collections::BTreeMap;

use annals_analysis::bin_of;
use annals_format::names::element;
use annals_format::{Definitions, EventTypeId, OrderedChunk, Role, Value};
use annals_merger::{ByStream, Query, Reader, Result, Window};
use rustc_hash::FxHashMap;

use super::layout::MetricRow;

/// Sum and number of a metric's values by column.
type Sums = Vec<(f64, u64)>;

/// Values of metrics, summed up by lane and column.
pub(super) struct MetricSums {
    types: FxHashMap<EventTypeId, usize>,
    /// By lane: the first event type of it, and its values.
    of_lane: BTreeMap<usize, (EventTypeId, Sums)>,
    pub(super) left_out: bool,
}

impl MetricSums {
    /// Adds up the metrics that a filter takes, which are read only if there are any.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub(super) fn of(
        reader: &Reader,
        filter: &Query,
        window: Window,
        columns: usize,
        lanes: &ByStream<usize>,
    ) -> Result<Self> {
        let definitions = reader.definitions();
        let types = definitions.event_types.values();
        let types = types.filter(|t| t.role == Role::Metric && filter.takes_event_type(t.id));
        let types = types.filter_map(|t| Some((t.id, definitions.element(t.id, element::VALUE)?)));
        let mut sums = Self {
            types: types.collect(),
            of_lane: BTreeMap::new(),
            left_out: false,
        };
        if !sums.types.is_empty() {
            reader.for_each_chunk(window, |chunk: OrderedChunk| {
                sums.add_chunk(&chunk, window, columns, lanes);
                Ok(())
            })?;
        }
        Ok(sums)
    }

    fn add_chunk(
        &mut self,
        chunk: &OrderedChunk,
        window: Window,
        columns: usize,
        lanes: &ByStream<usize>,
    ) {
        if !chunk
            .types()
            .any(|t| self.types.contains_key(&t.event_type))
        {
            return;
        }
        for (event, time_ns) in chunk.times_ns().enumerate() {
            let event_type = chunk.columns(event).event_type;
            let (Some(at), Some(lane)) =
                (self.types.get(&event_type), lanes.get(chunk.stream(event)))
            else {
                continue;
            };
            if !window.contains(time_ns) {
                continue;
            }
            let value = match chunk.value(event, *at) {
                Value::F64(value) => Some(value),
                other => other.as_integer().map(|value| value as f64),
            };
            let Some(value) = value.filter(|value| value.is_finite()) else {
                continue;
            };
            let sums = self.of_lane.entry(lane);
            let (first, sums) = sums.or_insert_with(|| (event_type, vec![(0.0, 0); columns]));
            if *first != event_type {
                self.left_out = true;
                continue;
            }
            let sum = &mut sums[bin_of(window, columns, time_ns)];
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }

    pub(super) fn row(&self, lane: usize, definitions: &Definitions) -> Option<MetricRow> {
        let (event_type, sums) = self.of_lane.get(&lane)?;
        let mut last = None;
        let values = sums.iter().map(|(sum, count)| {
            if *count != 0 {
                last = Some(sum / *count as f64);
            }
            last
        });
        Some(MetricRow {
            name: definitions.event_type_name(*event_type),
            values: values.collect(),
        })
    }
}
