//! Passes over the events of some types, and the bins of a window.

use std::ops::ControlFlow;

use annals_format::{EventTypeId, TraceLoss};
use annals_merger::{Event, Query, ReadSummary, Reader, Window};
use anyhow::Context;
use rustc_hash::FxHashMap;

/// Visits the events of some types in a window, in global order, whatever regions they refer to.
///
/// # Errors
/// If the input cannot be read.
pub fn walk<T: Copy>(
    opened: &Reader,
    filter: &Query,
    window: Window,
    wanted: &FxHashMap<EventTypeId, T>,
    mut visit: impl FnMut(&Event<'_>, T),
) -> anyhow::Result<ReadSummary> {
    let mut query = filter.within(window);
    query
        .set_event_types(wanted.keys().copied())
        .clear_regions();
    let summary = opened.for_each_event(&query, |event| {
        if let Some(what) = wanted.get(&event.event_type()) {
            visit(event, *what);
        }
        ControlFlow::Continue(())
    })?;
    summary.context("nothing stops this pass")
}

/// Whether a loss may have had events of these types, in this window, of these streams.
pub fn concerns(
    loss: &TraceLoss,
    filter: &Query,
    window: Window,
    mut is_wanted: impl FnMut(EventTypeId) -> bool,
) -> bool {
    let is_nothing = loss.count == 0 && !loss.is_lower_bound;
    !is_nothing
        && window.overlaps(loss.from_ns, loss.to_ns)
        && filter.takes_stream(loss.stream)
        && loss.event_type.is_none_or(&mut is_wanted)
}

/// The window as far as the trace goes: what bins are made of.
pub fn bounded(opened: &Reader, window: Window) -> Window {
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
