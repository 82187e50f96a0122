//! Which losses concern an analysis.

use annals_format::{EventTypeId, TraceLoss};
use annals_merger::Query;

/// Returns whether a loss may have had events of some types, in the query's window and of its
/// streams.
pub fn concerns(
    loss: &TraceLoss,
    query: &Query,
    mut is_wanted: impl FnMut(EventTypeId) -> bool,
) -> bool {
    let is_nothing = loss.count == 0 && !loss.is_lower_bound;
    !is_nothing
        && query.window().overlaps(loss.from_ns, loss.to_ns)
        && query.takes_stream(loss.stream)
        && loss.event_type.is_none_or(&mut is_wanted)
}
