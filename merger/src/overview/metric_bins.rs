//! Values of metrics by bin of time and stream (SPEC.md, *Metrics of the overview*).

use annals_format::names::element;
use annals_format::{
    Definitions, EventTypeId, MetricOverview, MetricRow, Role, StreamId, TraceChunk, Value,
};

use crate::exact_sum::ExactSum;
use crate::overview::bin_table::{BinTable, Sum};

/// Most rows.
const MOST_ROWS: usize = 1 << 16;
/// Rows that even a short trace may have.
const FEW_ROWS: usize = 1 << 8;
/// Number of events for each row.
const EVENTS_OF_ROW: u64 = 1 << 8;

/// A number as it was recorded.
#[derive(Clone, Copy, Debug)]
enum Number {
    Integer(i128),
    Float(f64),
}

/// A value of a metric: its stream, event type and trace time.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricValue {
    stream: StreamId,
    event_type: EventTypeId,
    time_ns: i64,
    number: Number,
}

/// Extracts the values of metrics from chunks. All threads share it.
#[derive(Debug)]
pub(super) struct MetricSource {
    /// By event type, the place of the value among its elements. `None`: it is no metric.
    places: Vec<Option<usize>>,
}

impl MetricSource {
    /// Returns what extracts the metrics of a trace. `None` if it has none.
    pub(super) fn of(definitions: &Definitions) -> Option<Self> {
        let mut places = Vec::new();
        for (id, event_type) in &definitions.event_types {
            let mut elements = event_type.elements.iter();
            let place = elements.position(|of| definitions.string(of.name) == element::VALUE);
            if event_type.role == Role::Metric && place.is_some() {
                places.resize(id.index() + 1, None);
                places[id.index()] = place;
            }
        }
        (!places.is_empty()).then_some(Self { places })
    }

    /// Returns the values of a chunk.
    pub(super) fn extract(&self, chunk: &TraceChunk) -> Vec<MetricValue> {
        let mut values = Vec::new();
        for group in &chunk.groups {
            let of_types = group.types.iter().map(|of_type| {
                let place = *self.places.get(of_type.event_type.index())?;
                Some((of_type.event_type, of_type.columns.get(place?)?))
            });
            let of_types: Vec<_> = of_types.collect();
            if of_types.iter().all(Option::is_none) {
                continue;
            }
            let mut ordinals = vec![0; of_types.len()];
            for (stream, run) in group.runs() {
                for index in run {
                    let place = usize::from(group.type_index[index]);
                    let ordinal = ordinals[place];
                    ordinals[place] += 1;
                    let Some((event_type, column)) = of_types[place] else {
                        continue;
                    };
                    let number = match column.get(ordinal) {
                        Value::F64(value) if value.is_finite() => Number::Float(value),
                        Value::F64(_) => continue,
                        other => match other.as_integer() {
                            Some(integer) => Number::Integer(integer),
                            None => continue,
                        },
                    };
                    values.push(MetricValue {
                        stream,
                        event_type,
                        time_ns: group.times_ns[index],
                        number,
                    });
                }
            }
        }
        values
    }
}

/// The values of a bin.
#[derive(Clone, Debug)]
struct MetricSum {
    count: u64,
    min: f64,
    max: f64,
    sum: ExactSum,
}

impl Default for MetricSum {
    fn default() -> Self {
        Self {
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: ExactSum::default(),
        }
    }
}

impl Sum for MetricSum {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum.merge(&other.sum);
    }
}

/// Adds up the metrics of a trace by bin.
#[derive(Debug)]
pub(super) struct MetricBins {
    table: BinTable<(StreamId, EventTypeId), MetricSum>,
}

impl MetricBins {
    pub(super) fn new() -> Self {
        Self {
            table: BinTable::new(MOST_ROWS),
        }
    }

    /// Takes values.
    pub(super) fn take(&mut self, values: &[MetricValue]) {
        for of in values {
            let Some(sum) = self.table.at((of.stream, of.event_type), of.time_ns) else {
                return;
            };
            sum.count += 1;
            let value = match of.number {
                Number::Integer(integer) => {
                    sum.sum.add_integer(integer);
                    integer as f64
                }
                Number::Float(value) => {
                    sum.sum.add(value);
                    value
                }
            };
            sum.min = sum.min.min(value);
            sum.max = sum.max.max(value);
        }
    }

    /// Returns the overview of a trace with a number of events, without blocks, and its rows. `None` if there are no values, or those of
    /// too many streams.
    pub(super) fn finish(self, events: u64) -> Option<(MetricOverview, Vec<MetricRow>)> {
        let most = usize::try_from(events / EVENTS_OF_ROW).unwrap_or(MOST_ROWS);
        let (least_level, rows) = self.table.finish(most.clamp(FEW_ROWS, MOST_ROWS))?;
        let rows = rows.into_iter();
        let rows = rows.map(|(level, bin, (stream, event_type), sum)| MetricRow {
            level,
            bin,
            stream,
            event_type,
            count: sum.count,
            min: sum.min,
            max: sum.max,
            sum: sum.sum.value(),
        });
        let mut rows: Vec<MetricRow> = rows.collect();
        rows.sort_unstable_by_key(MetricRow::key);
        let overview = MetricOverview {
            least_level,
            blocks: Vec::new(),
        };
        (!rows.is_empty()).then_some((overview, rows))
    }
}
