//! Answers that are not tables.

use std::sync::Arc;

use annals_merger::{Query, Reader};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use crate::errors;
use crate::waiting;

/// Messages between two ranks: from, to, count, bytes, whether a loss may have changed them.
pub(crate) type Pairs = Vec<(u32, u32, u64, u64, bool)>;

/// Returns the messages of a query, by pair of ranks.
pub(crate) fn message_pairs(py: Python<'_>, reader: Arc<Reader>, query: Query) -> PyResult<Pairs> {
    waiting::run(py, move |stop| {
        let reader = reader.stopped_by(stop);
        let found = annals_analysis::messages(&reader, &query);
        let found = found.map_err(|error| errors::of_read(&error))?;
        let pairs = found
            .map(|(messages, _)| messages.pairs)
            .unwrap_or_default();
        let pairs = pairs.iter().map(|pair| {
            (
                pair.from_rank,
                pair.to_rank,
                pair.count,
                pair.bytes,
                pair.is_uncertain,
            )
        });
        Ok(pairs.collect())
    })
}

/// Borders of parts of a window, and by name of a region its times in them: nanoseconds.
pub(crate) type Profile = (Vec<i64>, Vec<(String, Vec<i64>)>);

/// Returns the time of each region in parts of a query's window, of which there is at least one.
pub(crate) fn time_profile(
    py: Python<'_>,
    reader: Arc<Reader>,
    query: Query,
    parts: usize,
) -> PyResult<Profile> {
    waiting::run(py, move |stop| {
        let reader = reader.stopped_by(stop);
        let found = annals_analysis::time_profile(&reader, &query, parts.max(1));
        let (profile, _) = found.map_err(|error| errors::of_read(&error))?;
        // Regions of one name count as one.
        let mut names: Vec<(String, Vec<i64>)> = Vec::new();
        let mut places: FxHashMap<String, usize> = FxHashMap::default();
        for (region, times) in profile.regions {
            let name = reader.definitions().region_name(region);
            match places.get(&name) {
                Some(at) => {
                    let all = &mut names[*at].1;
                    all.iter_mut()
                        .zip(times)
                        .for_each(|(all, time)| *all += time);
                }
                None => {
                    places.insert(name.clone(), names.len());
                    names.push((name, times));
                }
            }
        }
        Ok((profile.edges_ns, names))
    })
}

/// Returns what is known of a trace without its events, if it is one: numbers, times, losses.
pub(crate) fn summary(py: Python<'_>, reader: Arc<Reader>) -> PyResult<Bound<'_, PyDict>> {
    let of_reader = Arc::clone(&reader);
    let summary = waiting::run(py, move |stop| {
        let summary = of_reader.stopped_by(stop).summary();
        summary.map_err(|error| errors::of_read(&error))
    })?;
    let d = reader.definitions();
    let rows = || summary.totals.iter().flat_map(|totals| &totals.rows);
    let (events, lost) = (
        rows().map(|row| row.present()).sum::<u64>(),
        rows()
            .map(|row| row.dropped_sum() + row.skipped + row.truncated)
            .sum::<u64>(),
    );
    let mut ranks: Vec<u32> = d.processes.keys().map(|id| d.rank_of(*id)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut hosts: Vec<&str> = d.processes.values().map(|p| d.string(p.host)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let known = |ns: i64| (ns != i64::MIN && ns != i64::MAX).then_some(ns);
    let result = PyDict::new(py);
    result.set_item("events", events)?;
    result.set_item("lost", lost)?;
    result.set_item("is_complete", summary.complete)?;
    result.set_item("first_ns", known(reader.extent().first_ns))?;
    result.set_item("last_ns", known(reader.extent().last_ns))?;
    result.set_item("ranks", ranks)?;
    result.set_item("hosts", hosts)?;
    result.set_item("locations", d.locations.len())?;
    result.set_item("regions", d.regions.len())?;
    result.set_item(
        "event_types",
        d.event_types
            .keys()
            .map(|id| d.event_type_name(*id))
            .collect::<Vec<_>>(),
    )?;
    Ok(result)
}
