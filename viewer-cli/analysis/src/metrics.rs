//! Values of metrics over time.

use annals_format::{EventTypeId, StreamId, Value};
use annals_merger::{
    Analysis, Event, ExactSum, Pass, Places, Query, ReadSummary, Reader, Result, SliceLength,
    Window,
};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::bins::{bin_of, bin_start, bounded};
use crate::losses::concerns;

/// The values in a part of the window.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MetricPoint {
    /// Trace time at which the part starts, nanoseconds.
    pub from_ns: i64,
    /// Number of values.
    pub count: u64,
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
    /// The last.
    pub last: f64,
}

/// One metric at one location.
#[derive(Clone, Debug)]
pub struct MetricRow {
    /// Name of the event type.
    pub name: String,
    /// Name of the element.
    pub element: String,
    /// Its unit.
    pub unit: String,
    /// Rank of the process.
    pub rank: u32,
    /// Name of the location.
    pub location: Option<String>,
    /// Number of values.
    pub count: u64,
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The largest.
    pub max: f64,
    /// The first.
    pub first: f64,
    /// The last.
    pub last: f64,
    /// Change from the first value to the last, per second. `None` if all values are of one moment.
    pub rate_per_s: Option<f64>,
    /// Whether a loss may have changed the row.
    pub is_uncertain: bool,
    /// By part of the window. Parts without values are left out.
    pub points: Vec<MetricPoint>,
}

crate::columns! {
    MetricRow, uncertain is_uncertain, json points;
    "metric" Name headed "metric", |row| &row.name;
    "element" Name headed "element", |row| &row.element;
    "unit" Text if_any "unit", |row| &row.unit;
    "rank" Number headed "rank", |row| row.rank;
    "location" Name headed "location", |row| &row.location;
    "count" Count marked "values", |row| row.count;
    "min" Number marked "min", |row| row.min;
    "mean" Number marked "mean", |row| row.mean;
    "max" Number marked "max", |row| row.max;
    "first" Number, |row| row.first;
    "last" Number marked_if_room "last", |row| row.last;
    "rate_per_s" Number if_room "a second", |row| row.rate_per_s;
    "is_uncertain" Flag, |row| row.is_uncertain;
}

#[derive(Clone, Debug)]
struct Sum {
    count: u64,
    min: f64,
    max: f64,
    sum: ExactSum,
    last: f64,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            count: 0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            sum: ExactSum::default(),
            last: 0.0,
        }
    }
}

impl Sum {
    fn add(&mut self, value: f64, integer: Option<i128>) {
        self.count += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        match integer {
            Some(integer) => self.sum.add_integer(integer),
            None => self.sum.add(value),
        }
        self.last = value;
    }

    fn merge(&mut self, later: &Self) {
        self.count += later.count;
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.sum.merge(&later.sum);
        self.last = later.last;
    }

    fn mean(&self) -> f64 {
        self.sum.value() / self.count.max(1) as f64
    }
}

struct Series {
    all: Sum,
    first: (i64, f64),
    last_ns: i64,
    parts: FxHashMap<usize, Sum>,
}

struct MetricState<'a> {
    types: &'a FxHashMap<EventTypeId, usize>,
    window: Window,
    parts: usize,
    series: FxHashMap<(EventTypeId, StreamId), Series>,
}

impl Analysis for MetricState<'_> {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Long;

    fn event(&mut self, event: &Event<'_>) {
        let Some(at) = self.types.get(&event.event_type()) else {
            return;
        };
        let (value, integer) = match event.element(*at) {
            Value::F64(value) if value.is_finite() => (value, None),
            Value::F64(_) => return,
            other => match other.as_integer() {
                Some(integer) => (integer as f64, Some(integer)),
                None => return,
            },
        };
        let time_ns = event.time();
        let series = self.series.entry((event.event_type(), event.stream()));
        let series = series.or_insert_with(|| Series {
            all: Sum::default(),
            first: (time_ns, value),
            last_ns: time_ns,
            parts: FxHashMap::default(),
        });
        series.all.add(value, integer);
        series.last_ns = time_ns;
        let part = bin_of(self.window, self.parts, time_ns);
        series.parts.entry(part).or_default().add(value, integer);
    }

    fn merge(&mut self, later: Self) {
        for (key, series) in later.series {
            match self.series.entry(key) {
                std::collections::hash_map::Entry::Vacant(vacant) => {
                    vacant.insert(series);
                }
                std::collections::hash_map::Entry::Occupied(mut occupied) => {
                    let own = occupied.get_mut();
                    own.all.merge(&series.all);
                    own.last_ns = series.last_ns;
                    for (part, sum) in &series.parts {
                        own.parts.entry(*part).or_default().merge(sum);
                    }
                }
            }
        }
    }
}

/// Returns the values of some elements in a query's window, by event type and stream. `types` has the place of the element in
/// each event type; `parts` is the number of parts of the window.
///
/// # Errors
/// If the storage fails.
pub fn metrics(
    reader: &Reader,
    query: &Query,
    types: &FxHashMap<EventTypeId, usize>,
    parts: usize,
) -> Result<(Vec<MetricRow>, ReadSummary)> {
    let definitions = reader.definitions();
    let places = Places::of(definitions);
    let window = bounded(reader, query.window());
    let new = |_| MetricState {
        types,
        window,
        parts,
        series: FxHashMap::default(),
    };
    let (state, summary) = reader.run(&query.of_event_types(types.keys().copied()), new)?;
    let mut all: Vec<_> = state.series.into_iter().collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    let losses = summary.losses.iter();
    let losses =
        losses.filter(|loss| !loss.cause.is_suppressed() && concerns(loss, query, |_| true));
    let lost: FxHashSet<(StreamId, Option<EventTypeId>)> =
        losses.map(|loss| (loss.stream, loss.event_type)).collect();
    let rows = all.into_iter().map(|((event_type, stream), series)| {
        let place = places.get(stream);
        let element = &definitions.event_types[&event_type].elements[types[&event_type]];
        let passed = i128::from(series.last_ns) - i128::from(series.first.0);
        let change = series.all.last - series.first.1;
        let is_lost = |event_type| lost.contains(&(stream, event_type));
        let mut parts_with_values: Vec<_> = series.parts.iter().collect();
        parts_with_values.sort_unstable_by_key(|(part, _)| **part);
        let points = parts_with_values
            .into_iter()
            .map(|(part, sum)| MetricPoint {
                from_ns: bin_start(window, parts, *part),
                count: sum.count,
                min: sum.min,
                mean: sum.mean(),
                max: sum.max,
                last: sum.last,
            });
        MetricRow {
            name: definitions.event_type_name(event_type),
            element: definitions.string(element.name).to_owned(),
            unit: definitions.string(element.unit).to_owned(),
            rank: place.rank,
            location: place.location.clone(),
            count: series.all.count,
            min: series.all.min,
            mean: series.all.mean(),
            max: series.all.max,
            first: series.first.1,
            last: series.all.last,
            rate_per_s: (passed > 0).then(|| change / (passed as f64 / 1e9)),
            is_uncertain: is_lost(Some(event_type)) || is_lost(None),
            points: points.collect(),
        }
    });
    Ok((rows.collect(), summary))
}
