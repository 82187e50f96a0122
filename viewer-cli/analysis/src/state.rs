//! States: what an analysis knows of a slice of the trace.

use annals_format::{EventTypeId, TraceLoss};
use annals_merger::{Event, Item, Query, ReadSummary, Reader, Result, Sink, SliceLength};

/// A state that adds up events.
pub trait EventState: Send {
    /// How much of a trace one state adds up.
    const SLICES: SliceLength = SliceLength::Long;

    /// Adds the next event.
    fn add(&mut self, event: &Event<'_>);

    /// Takes note of a loss before the next event.
    fn lose(&mut self, _loss: &TraceLoss) {}

    /// Adds the state of the slice that follows.
    fn merge(&mut self, later: Self);
}

/// A state that adds up calls.
pub trait CallState: Sink + Send {
    /// How much of a trace one state adds up.
    const SLICES: SliceLength = SliceLength::Long;

    /// Adds the state of the slice that follows.
    fn merge(&mut self, later: Self);
}

/// Computes a state of the query's events of some types, whatever regions they refer to. `new` makes the state of a slice
/// by its number, from 0.
///
/// # Errors
/// If the storage fails.
pub fn fold_events<S: EventState>(
    reader: &Reader,
    query: &Query,
    types: impl IntoIterator<Item = EventTypeId>,
    new: impl Fn(usize) -> S + Sync,
) -> Result<(S, ReadSummary)> {
    let mut query = query.clone();
    query.set_event_types(types).clear_regions();
    let add = |state: &mut S, item: Item<'_>| match item {
        Item::Event(event) => state.add(&event),
        Item::Loss(loss) => state.lose(loss),
    };
    reader.fold_items(&query, S::SLICES, new, add, S::merge)
}

/// Computes a state of the calls that overlap the query's window. `new` makes the state of a slice by its number, from 0.
///
/// # Errors
/// If the storage fails.
pub fn fold_calls<S: CallState>(
    reader: &Reader,
    query: &Query,
    new: impl Fn(usize) -> S + Sync,
) -> Result<(S, ReadSummary)> {
    reader.fold_calls(query, S::SLICES, new, S::merge)
}
