//! Events one by one, as filters and windows choose them.

use annals_format::{Column, Definitions, EventTypeId, StreamId, TraceChunk, TraceLoss, Value};
use annals_merger::{Opened, Outcome, Window};
use rustc_hash::FxHashMap;

use crate::filter::Filter;

/// An event of a wanted type.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a, T> {
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Its stream.
    pub stream: StreamId,
    /// What its type was wanted for.
    pub tag: T,
    columns: &'a [Column],
    ordinal: usize,
}

impl<T> Event<'_, T> {
    /// The value of one of its elements.
    pub fn value(&self, element: usize) -> Value<'_> {
        match self.columns.get(element) {
            Some(column) => column.get(self.ordinal),
            None => Value::Absent,
        }
    }

    /// The same, when it is an integer.
    pub fn integer(&self, element: usize) -> Option<i128> {
        self.value(element).as_integer()
    }
}

/// Visits the events of some types in a window, in global order.
///
/// # Errors
/// If the input cannot be read.
pub fn walk<T: Copy>(
    opened: &Opened,
    filter: &Filter,
    window: Window,
    wanted: &FxHashMap<EventTypeId, T>,
    mut visit: impl FnMut(&Event<'_, T>),
) -> anyhow::Result<Outcome> {
    let outcome = opened.read(window, |chunk| {
        each(&chunk, filter, window, wanted, &mut visit);
        Ok(())
    })?;
    Ok(outcome)
}

fn each<T: Copy>(
    chunk: &TraceChunk,
    filter: &Filter,
    window: Window,
    wanted: &FxHashMap<EventTypeId, T>,
    visit: &mut impl FnMut(&Event<'_, T>),
) {
    let types = chunk.types.iter();
    let types: Vec<_> = types
        .map(|columns| {
            Some((
                *wanted.get(&columns.event_type)?,
                columns.columns.as_slice(),
            ))
        })
        .collect();
    if types.iter().all(Option::is_none) {
        return;
    }
    let mut next = vec![0_usize; types.len()];
    for (index, type_index) in chunk.type_index.iter().enumerate() {
        let type_index = usize::from(*type_index);
        let ordinal = next[type_index];
        next[type_index] += 1;
        let Some((tag, columns)) = types[type_index] else {
            continue;
        };
        let (time_ns, stream) = (chunk.times_ns[index], chunk.streams[index]);
        if window.contains(time_ns) && filter.takes_stream(stream) {
            visit(&Event {
                time_ns,
                stream,
                tag,
                columns,
                ordinal,
            });
        }
    }
}

/// Whether a loss may have had events of these types, in this window, of these streams.
pub fn concerns(
    loss: &TraceLoss,
    filter: &Filter,
    window: Window,
    mut is_wanted: impl FnMut(EventTypeId) -> bool,
) -> bool {
    let is_nothing = loss.count == 0 && !loss.is_lower_bound;
    !is_nothing
        && window.overlaps(loss.from_ns, loss.to_ns)
        && filter.takes_stream(loss.stream)
        && loss.event_type.is_none_or(&mut is_wanted)
}

/// Place of an element of an event type, by name.
pub fn element_of(definitions: &Definitions, event_type: EventTypeId, name: &str) -> Option<usize> {
    let event_type = definitions.event_types.get(&event_type)?;
    let mut elements = event_type.elements.iter();
    elements.position(|element| definitions.string(element.name) == name)
}

/// The window as far as the trace goes: what bins are made of.
pub fn bounded(opened: &Opened, window: Window) -> Window {
    Window {
        from_ns: if window.from_ns == i64::MIN {
            0
        } else {
            window.from_ns
        },
        to_ns: if window.to_ns == i64::MAX {
            opened.end_ns().saturating_add(1)
        } else {
            window.to_ns
        },
    }
}

/// Number of the bin of a time among so many of a window with an end.
pub fn bin_of(window: Window, bins: usize, time_ns: i64) -> usize {
    let span = i128::from(window.to_ns) - i128::from(window.from_ns);
    let passed = i128::from(time_ns) - i128::from(window.from_ns);
    let bin = passed * bins as i128 / span.max(1);
    bin.clamp(0, bins as i128 - 1) as usize
}

/// When a bin starts.
pub fn bin_start(window: Window, bins: usize, bin: usize) -> i64 {
    let span = i128::from(window.to_ns) - i128::from(window.from_ns);
    let passed = (span * bin as i128).div_euclid(bins.max(1) as i128);
    (i128::from(window.from_ns) + passed) as i64
}
