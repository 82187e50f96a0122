//! Samples: where threads spent processor time, by function, line or module, with its statistical error.
//!
//! A sample represents processor time of its thread. The samples of a place add up to an estimate of the time spent there: *n* samples
//! that each represent *t* are *n t* ± √*n* *t*, one standard deviation.

mod rows;
mod sums;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use annals_format::names::property;
use annals_format::{Definitions, LocationId, ProcessId};
use annals_merger::{Query, ReadSummary, Reader, Result};
use rustc_hash::FxHashMap;
use serde::Serialize;

pub use self::rows::{PlaceNames, SampleRow, SampleTreeRow, UNKNOWN};
use self::sums::{Chosen, SampleState};
pub use self::sums::{SampleOptions, SampleSum};
pub use self::tree::{SampleBy, SampleNode, SamplePlace, SampleTree};
use crate::locations::LocationNames;
use crate::losses::concerns;
use crate::region_statistics::{Group, Grouping};

/// How threads of some ranks were sampled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Sampling {
    /// What takes the samples, such as `perf-event`.
    pub engine: String,
    /// Processor time for which a sample is asked, nanoseconds. `None` if unknown.
    pub period_ns: Option<u64>,
    /// The ranks.
    pub ranks: BTreeSet<u32>,
}

/// Why threads of some ranks were not sampled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct NotSampled {
    /// The reason.
    pub reason: String,
    /// The ranks.
    pub ranks: BTreeSet<u32>,
}

/// What is known of the samples of a query as a whole.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct SampleSummary {
    /// Number of samples.
    pub samples: u64,
    /// Processor time that they represent, nanoseconds.
    pub time_ns: i64,
    /// One standard deviation of that, nanoseconds.
    pub error_ns: i64,
    /// Samples that were taken in the window but are lost, wherever they were.
    pub lost: u64,
    /// Whether more may be lost.
    pub lost_is_lower_bound: bool,
    /// Samples whose paths are cut: their outermost callers are not known.
    pub cut: u64,
    /// How threads were sampled.
    pub sampling: Vec<Sampling>,
    /// Why threads were not.
    pub not_sampled: Vec<NotSampled>,
}

/// The samples of a query, by location and call path.
#[derive(Debug)]
pub struct Samples<'r> {
    definitions: &'r Definitions,
    /// By location and number of a call path.
    sums: BTreeMap<(LocationId, u32), SampleSum>,
    in_order: BTreeMap<LocationId, Vec<(u32, i64)>>,
    /// Locations with lost samples. `None`: which location is not known.
    lost: BTreeSet<Option<LocationId>>,
    /// All of them together.
    pub summary: SampleSummary,
}

/// Returns the samples of a query in its window; if the query has regions, only those that were taken in a call of one of them. `None` if
/// no type of event is of samples.
///
/// # Errors
/// If the storage fails.
pub fn samples<'r>(
    reader: &'r Reader,
    query: &Query,
    options: SampleOptions,
) -> Result<Option<(Samples<'r>, ReadSummary)>> {
    let definitions = reader.definitions();
    let Some(chosen) = Chosen::of(definitions, query, options) else {
        return Ok(None);
    };
    let (state, outcome) = reader.run(query, |_| SampleState::new(&chosen))?;
    let locations: Vec<LocationId> = definitions.locations.keys().copied().collect();
    let sums = state.sums.into_iter();
    let sums = sums.map(|((location, path), sum)| ((locations[location], path), sum));
    let in_order = state.in_order.into_iter();
    let in_order = in_order.map(|(location, samples)| (locations[location], samples));
    let (sampling, not_sampled) = sampling(definitions, query);
    let mut samples = Samples {
        definitions,
        sums: sums.collect(),
        in_order: in_order.collect(),
        lost: BTreeSet::new(),
        summary: SampleSummary {
            sampling,
            not_sampled,
            ..SampleSummary::default()
        },
    };
    samples.count_losses(query, &chosen, &outcome);
    let mut all = SampleSum::default();
    samples.sums.values().for_each(|sum| all.merge(sum));
    samples.summary.samples = all.count;
    samples.summary.time_ns = all.time_ns;
    samples.summary.error_ns = all.error_ns();
    samples.summary.cut = samples.tree(SampleBy::Function).cut();
    Ok(Some((samples, outcome)))
}

impl Samples<'_> {
    fn count_losses(&mut self, query: &Query, chosen: &Chosen, outcome: &ReadSummary) {
        let totals = outcome.totals.iter();
        let sampled = totals.filter(|stream| {
            let mut types = stream.rows.iter().map(|row| row.event_type);
            types.any(|event_type| chosen.is_sample(event_type))
        });
        let streams: BTreeSet<_> = sampled.map(|stream| stream.stream).collect();
        for loss in &outcome.losses {
            // A loss of events of any type may be of samples where there are some.
            let is_of_samples = match loss.event_type {
                Some(event_type) => chosen.is_sample(event_type),
                None => streams.contains(&loss.stream),
            };
            if is_of_samples && !loss.cause.is_suppressed() && concerns(loss, query, |_| true) {
                let stream = self.definitions.streams.get(&loss.stream);
                self.lost.insert(stream.and_then(|stream| stream.location));
                self.summary.lost = self.summary.lost.saturating_add(loss.count);
                self.summary.lost_is_lower_bound |= loss.is_lower_bound;
            }
        }
    }

    /// Returns the time of a part of the samples as a share of that of all.
    fn share(&self, time_ns: i64) -> f64 {
        match self.summary.time_ns {
            0 => 0.0,
            all => time_ns as f64 / all as f64,
        }
    }

    /// Returns the samples by function, line or module, those with most time first.
    pub fn rows(&self, by: SampleBy, grouping: Grouping) -> Vec<SampleRow> {
        let names = LocationNames::new(self.definitions);
        let group = |location| Group::of(self.definitions, grouping, location);
        let mut groups: BTreeMap<Group, Vec<(u32, SampleSum)>> = BTreeMap::new();
        for ((location, path), sum) in &self.sums {
            groups
                .entry(group(*location))
                .or_default()
                .push((*path, *sum));
        }
        let lost: BTreeSet<Option<Group>> = self
            .lost
            .iter()
            .map(|location| location.map(group))
            .collect();
        let mut rows = Vec::new();
        for (group, sums) in groups {
            let (rank, location) = match group {
                Group::All => (None, None),
                Group::Rank(rank) => (Some(rank), None),
                Group::Location(location) => (
                    Some(self.definitions.rank_of_location(location)),
                    Some(names.get(location).to_owned()),
                ),
            };
            let is_uncertain = lost.contains(&None) || lost.contains(&Some(group));
            let tree = SampleTree::of(self.definitions, by, sums.into_iter());
            let places = tree.by_place().into_iter();
            rows.extend(places.map(|(place, (own, total))| SampleRow {
                names: PlaceNames::of(self.definitions, place, by),
                rank,
                location: location.clone(),
                own,
                total,
                share: self.share(own.time_ns),
                is_line: by == SampleBy::Line,
                is_uncertain,
            }));
        }
        rows.sort_by(|one, other| one.order().cmp(&other.order()));
        rows
    }

    /// Returns the tree of the call paths of all locations.
    pub fn tree(&self, by: SampleBy) -> SampleTree {
        let sums = self.sums.iter().map(|((_, path), sum)| (*path, *sum));
        SampleTree::of(self.definitions, by, sums)
    }

    /// Returns the trees of the call paths of each location, by function.
    pub fn trees(&self) -> impl Iterator<Item = (LocationId, SampleTree)> {
        let locations: BTreeSet<LocationId> = self.sums.keys().map(|key| key.0).collect();
        locations.into_iter().map(|location| {
            let sums = self.sums.range((location, 0)..=(location, u32::MAX));
            let sums = sums.map(|((_, path), sum)| (*path, *sum));
            let tree = SampleTree::of(self.definitions, SampleBy::Function, sums);
            (location, tree)
        })
    }

    /// Returns the tree by function as rows, callers first, those with most time first.
    pub fn tree_rows(&self) -> Vec<SampleTreeRow> {
        let tree = self.tree(SampleBy::Function);
        let mut indices: FxHashMap<usize, usize> = FxHashMap::default();
        let mut rows = Vec::new();
        tree.walk(|depth, number, node| {
            indices.insert(number, rows.len());
            rows.push(SampleTreeRow {
                parent: node.caller.and_then(|caller| indices.get(&caller).copied()),
                depth,
                names: PlaceNames::of(self.definitions, node.place, SampleBy::Function),
                own: node.own,
                total: node.total,
                share: self.share(node.total.time_ns),
                is_uncertain: !self.lost.is_empty(),
            });
        });
        rows
    }

    /// Returns the samples of each location in order, if [`SampleOptions::in_order`] asked for it: numbers of call paths, and the
    /// processor time in each until the next, nanoseconds.
    pub const fn in_order(&self) -> &BTreeMap<LocationId, Vec<(u32, i64)>> {
        &self.in_order
    }
}

/// Returns how the threads of a query's processes were sampled, and why they were not.
pub fn sampling(definitions: &Definitions, query: &Query) -> (Vec<Sampling>, Vec<NotSampled>) {
    let streams = definitions.streams.keys().copied();
    let streams = streams.filter(|stream| query.takes_stream(*stream));
    let chosen: BTreeSet<ProcessId> = streams
        .filter_map(|stream| definitions.process_of(stream))
        .collect();
    let mut by_value: BTreeMap<(&str, &str), BTreeSet<u32>> = BTreeMap::new();
    for of in &definitions.properties {
        if chosen.contains(&of.process) {
            let key = (definitions.string(of.key), definitions.string(of.value));
            let ranks = by_value.entry(key).or_default();
            ranks.insert(definitions.rank_of(of.process));
        }
    }
    let (mut sampling, mut not_sampled) = (Vec::new(), Vec::new());
    for ((key, value), ranks) in by_value {
        match key {
            property::SAMPLING => {
                let parts = value.rsplit_once(' ');
                let parts = parts.and_then(|(engine, period)| Some((engine, period.parse().ok()?)));
                sampling.push(Sampling {
                    engine: parts.map_or(value, |parts| parts.0).to_owned(),
                    period_ns: parts.map(|parts| parts.1),
                    ranks,
                });
            }
            property::NOT_SAMPLED => not_sampled.push(NotSampled {
                reason: value.to_owned(),
                ranks,
            }),
            _ => {}
        }
    }
    (sampling, not_sampled)
}
