//! The lanes of a timeline: which locations have one, in which order, and what they are called.

use std::collections::BTreeSet;

use annals_analysis::LocationNames;
use annals_format::{Definitions, LocationId};
use annals_merger::Query;

/// Name of the location of a process's first thread.
const MAIN: &str = "main";

/// Returns the locations that have streams which a filter takes. They are sorted by rank; in each rank the first thread
/// is first and the others follow by name, so that all ranks have the same order.
pub fn lanes_of(definitions: &Definitions, filter: &Query) -> Vec<LocationId> {
    let streams = definitions.streams.values();
    let streams = streams.filter(|stream| filter.takes_stream(stream.id));
    let taken: BTreeSet<LocationId> = streams.filter_map(|stream| stream.location).collect();
    let locations = taken.iter().filter_map(|id| definitions.locations.get(id));
    let mut all: Vec<LocationId> = locations.map(|location| location.id).collect();
    all.sort_by_cached_key(|id| {
        let name = definitions.string(definitions.locations[id].name);
        (
            definitions.rank_of_location(*id),
            definitions.locations[id].process,
            name != MAIN,
            by_number(name),
            *id,
        )
    });
    all
}

/// Splits a name into its text and the number at its end, so that `worker 10` follows `worker 9`.
fn by_number(name: &str) -> (String, u64) {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[text.len()..].parse().unwrap_or(0);
    (text.to_owned(), number)
}

/// Returns the locations that are drawn, and the number of those that could be.
pub(super) fn choose(
    definitions: &Definitions,
    filter: &Query,
    first: Option<usize>,
    most: usize,
) -> (Vec<LocationId>, usize) {
    let mut all = lanes_of(definitions, filter);
    let count = all.len();
    let most = most.max(1);
    if let Some(first) = first {
        all = all.into_iter().skip(first).take(most).collect();
    } else if count > most {
        // Evenly spread, the first and the last among them.
        let step = |n: usize| n * (count - 1) / (most - 1).max(1);
        all = (0..most).map(|n| all[step(n)]).collect();
        all.dedup();
    }
    (all, count)
}

/// Returns the label of a location's lane.
pub fn lane_label(names: &LocationNames, definitions: &Definitions, id: LocationId) -> String {
    format!(
        "rank {} · {}",
        definitions.rank_of_location(id),
        names.get(id)
    )
}
