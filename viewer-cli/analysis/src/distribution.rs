//! How durations of calls, or values of an element, are distributed.

use annals_format::{EventTypeId, TraceLoss, Value};
use annals_merger::{
    Analysis, Calls, Close, Event, ExactSum, Frame, Pass, Query, ReadSummary, Reader, Result,
    SliceLength,
};
use rustc_hash::FxHashMap;

use crate::losses::concerns;

/// The kind of values.
#[derive(Clone, Debug)]
pub enum Values {
    /// Durations in nanoseconds of the calls of the query's regions that were entered and left in its window.
    Durations,
    /// Values of an element: event types, with the place of the element in each. Values that are not finite numbers are left
    /// out.
    Element(FxHashMap<EventTypeId, usize>),
}

/// A state that values are added to.
trait ValueState: Send + Sized {
    fn add(&mut self, value: Number);

    /// Notes a call that has not ended.
    fn note_open(&mut self) {}

    fn merge(&mut self, later: Self);
}

/// A value as it is stored.
#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// Returns an element's value. `None` if it is no finite number.
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::F64(value) => value.is_finite().then_some(Self::Float(value)),
            other => other.as_integer().map(Self::Integer),
        }
    }

    const fn as_f64(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

/// Adds the values of events.
struct OfEvents<'a, S> {
    types: &'a FxHashMap<EventTypeId, usize>,
    state: S,
}

impl<S: ValueState> Analysis for OfEvents<'_, S> {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Long;

    fn event(&mut self, event: &Event<'_>) {
        let at = self.types.get(&event.event_type());
        if let Some(value) = at.and_then(|at| Number::of(event.element(*at))) {
            self.state.add(value);
        }
    }

    fn merge(&mut self, later: Self) {
        self.state.merge(later.state);
    }
}

/// Adds the durations of calls.
struct OfCalls<'a, S> {
    query: &'a Query,
    state: S,
}

impl<S: ValueState> Analysis for OfCalls<'_, S> {
    const SLICES: SliceLength = SliceLength::AnyOrder;

    fn close(&mut self, _: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        let is_counted = self.query.window().contains(frame.entered_ns);
        if !is_counted || !self.query.takes_region(frame.region) {
            return;
        }
        match how {
            // Of a call with a loss in it, it is not known whether the leave is its own.
            Close::Left if frame.is_uncertain => {}
            Close::Left => {
                let duration = i128::from(time_ns) - i128::from(frame.entered_ns);
                self.state.add(Number::Integer(duration));
            }
            Close::Open => self.state.note_open(),
            Close::Unleft => {}
        }
    }

    fn merge(&mut self, later: Self) {
        self.state.merge(later.state);
    }
}

impl Values {
    fn fold<S: ValueState>(
        &self,
        reader: &Reader,
        query: &Query,
        new: impl Fn() -> S + Sync,
    ) -> Result<(S, ReadSummary)> {
        match self {
            Self::Durations => {
                let new = |_| OfCalls {
                    query,
                    state: new(),
                };
                let (state, summary) = reader.run(query, new)?;
                Ok((state.state, summary))
            }
            Self::Element(types) => {
                let new = |_| OfEvents {
                    types,
                    state: new(),
                };
                let (state, summary) =
                    reader.run(&query.of_event_types(types.keys().copied()), new)?;
                Ok((state.state, summary))
            }
        }
    }

    /// Reads all values once: their number, extent and sum.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn extent(&self, reader: &Reader, query: &Query) -> Result<Extent> {
        let (extent, _) = self.fold(reader, query, Extent::default)?;
        Ok(extent)
    }

    /// Reads all values once, and counts them by bin. A bin is from its edge, included, to the next one, excluded; the last bin
    /// includes its end. `limit`: values above it are above the last bin, if it is more than the last edge.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn count(
        &self,
        reader: &Reader,
        query: &Query,
        edges: &[f64],
        limit: f64,
    ) -> Result<(Bins, ReadSummary)> {
        let (counter, summary) = self.fold(reader, query, || BinCounter {
            edges,
            limit,
            bins: Bins {
                counts: vec![0; edges.len().saturating_sub(1)],
                below: 0,
                above: 0,
            },
        })?;
        Ok((counter.bins, summary))
    }

    /// Returns whether a loss may have had such values.
    pub fn may_have_lost(&self, loss: &TraceLoss, calls: &Calls, query: &Query) -> bool {
        match self {
            Self::Durations => {
                let (enters, leaves) = calls.role_of_loss(loss);
                (enters || leaves) && concerns(loss, query, |_| true)
            }
            Self::Element(types) => {
                !loss.cause.is_suppressed() && concerns(loss, query, |id| types.contains_key(&id))
            }
        }
    }
}

/// Number, extent and sum of values.
#[derive(Clone, Default, Debug)]
pub struct Extent {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: ExactSum,
    /// The smallest and the largest. `None` if there are no values.
    pub range: Option<(f64, f64)>,
    /// The smallest above 0.
    pub smallest_positive: Option<f64>,
    /// Of durations: calls that were open at the end, which have none.
    pub open_calls: u64,
}

impl Extent {
    /// Widens the range to two values and all between them.
    fn widen(&mut self, min: f64, max: f64) {
        let known = self.range.unwrap_or((min, max));
        self.range = Some((known.0.min(min), known.1.max(max)));
    }

    fn note_positive(&mut self, value: f64) {
        let known = self.smallest_positive.unwrap_or(value);
        self.smallest_positive = Some(known.min(value));
    }
}

impl ValueState for Extent {
    fn add(&mut self, value: Number) {
        self.count += 1;
        match value {
            Number::Integer(value) => self.sum.add_integer(value),
            Number::Float(value) => self.sum.add(value),
        }
        let value = value.as_f64();
        self.widen(value, value);
        if value > 0.0 {
            self.note_positive(value);
        }
    }

    fn note_open(&mut self) {
        self.open_calls += 1;
    }

    fn merge(&mut self, later: Self) {
        self.count += later.count;
        self.open_calls += later.open_calls;
        self.sum.merge(&later.sum);
        if let Some(range) = later.range {
            self.widen(range.0, range.1);
        }
        if let Some(value) = later.smallest_positive {
            self.note_positive(value);
        }
    }
}

/// Values by bin.
#[derive(Clone, Default, Debug)]
pub struct Bins {
    /// By bin.
    pub counts: Vec<u64>,
    /// Values before the first bin.
    pub below: u64,
    /// Values after the last bin.
    pub above: u64,
}

struct BinCounter<'a> {
    edges: &'a [f64],
    limit: f64,
    bins: Bins,
}

impl ValueState for BinCounter<'_> {
    fn add(&mut self, value: Number) {
        let value = value.as_f64();
        let (Some(first), Some(last)) = (self.edges.first(), self.edges.last()) else {
            return;
        };
        if value < *first {
            self.bins.below += 1;
        } else if value > last.max(self.limit) {
            self.bins.above += 1;
        } else {
            let bin = self.edges.partition_point(|edge| *edge <= value) - 1;
            let last = self.bins.counts.len().saturating_sub(1);
            if let Some(count) = self.bins.counts.get_mut(bin.min(last)) {
                *count += 1;
            }
        }
    }

    fn merge(&mut self, later: Self) {
        for (count, more) in self.bins.counts.iter_mut().zip(&later.bins.counts) {
            *count += more;
        }
        self.bins.below += later.bins.below;
        self.bins.above += later.bins.above;
    }
}
