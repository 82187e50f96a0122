//! In which call paths, or functions that samples have shown, a rank worked longer than its peers.

use std::cmp::Reverse;

use annals_format::Definitions;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::call_paths::CallPaths;
use crate::lost_time_rows::SampledLine;
use crate::sampled_work::{SampledWork, difference_error_ns, sampled_work};
use crate::wait_states::CommunicationTimes;

/// A rank works longer than its peers if it is by more than their median divided by this, or by more than noise: the median
/// divided by [`LEAST_NOISE`], twice their median deviation, and twice the standard deviation of the work itself.
const MUCH: i64 = 4;
/// The median of the peers divided by this is noise, whatever their deviation.
const LEAST_NOISE: i64 = 50;
/// Number of places that are kept of a cause.
const MOST_PLACES: usize = 3;

/// The work of causes in call paths.
pub(crate) struct Work<'a> {
    definitions: &'a Definitions,
    paths: &'a CallPaths,
    /// By call path and cause: the sum, and its standard deviation, nanoseconds.
    by_path: FxHashMap<u32, FxHashMap<u32, (i64, f64)>>,
    /// Number of causes that there may be.
    units: usize,
}

/// A place in which a cause worked longer than those that waited for it.
pub(crate) struct Place {
    /// How many of the names, the innermost ones, distinguish it from other places that end with the same name.
    pub(crate) distinct: usize,
    /// Names of regions and functions, from the outermost on.
    pub(crate) names: Vec<String>,
    pub(crate) line: Option<SampledLine>,
    /// What others waited because of it, and by how much that may differ because of samples, nanoseconds.
    pub(crate) cost_ns: i64,
    pub(crate) error_ns: i64,
    /// Whether the cause worked longer there than its peers, in all.
    pub(crate) is_longer: bool,
    /// Whether samples show that it waited for other threads of its process, or that it did not run.
    pub(crate) may_wait_for_threads: bool,
}

/// The work of a cause in some paths, and that of its peers, nanoseconds.
struct Comparison {
    own_ns: i64,
    deviation_ns: f64,
    others_ns: Vec<i64>,
}

impl<'a> Work<'a> {
    pub(crate) fn of(
        unit_of: &impl Fn(u32) -> u32,
        times: &'a CommunicationTimes,
        definitions: &'a Definitions,
    ) -> Self {
        let mut by_path: FxHashMap<u32, FxHashMap<u32, (i64, f64)>> = FxHashMap::default();
        for ((location, path), work) in &times.work {
            let of_path = by_path.entry(*path).or_default();
            let of = of_path.entry(unit_of(*location)).or_default();
            *of = (of.0 + work.sum_ns, of.1.hypot(work.deviation_ns()));
        }
        let seen = (0..).zip(&times.locations);
        let seen = seen.filter(|(_, times)| times.span_ns.is_some());
        let units: FxHashSet<u32> = seen.map(|(location, _)| unit_of(location)).collect();
        Self {
            definitions,
            paths: &times.paths,
            by_path,
            units: units.len(),
        }
    }

    /// Returns the places of a cause's extra work, `extra` by call path, the largest first. `period_ns` is that of its samples, `most_callers`
    /// the largest number of names that distinguish a place.
    pub(crate) fn places(
        &self,
        unit: u32,
        extra: &FxHashMap<u32, i64>,
        period_ns: i64,
        most_callers: usize,
    ) -> Vec<Place> {
        let (mut rest, sampled) = sampled_work(self.definitions, self.paths, extra);
        let mut places = Vec::new();
        for work in sampled {
            match self.function(unit, &work, period_ns, most_callers) {
                Some(place) => places.push(place),
                None => *rest.entry(work.around).or_default() += work.ns,
            }
        }
        let names = |path| self.paths.names(path, self.definitions);
        places.extend(rest.into_iter().map(|(path, cost_ns)| {
            Place {
                distinct: self.paths.distinct(path, most_callers),
                names: names(path),
                line: None,
                cost_ns,
                error_ns: 0,
                may_wait_for_threads: period_ns != 0 && path == CallPaths::OUTSIDE,
                is_longer: self
                    .compare(unit, [path].into_iter())
                    .is_none_or(|of| of.is_longer()),
            }
        }));
        places.sort_by(|a, b| {
            let key = |place: &Place| Reverse(place.cost_ns);
            key(a).cmp(&key(b)).then_with(|| a.names.cmp(&b.names))
        });
        places.truncate(MOST_PLACES);
        places
    }

    /// Returns the place of a function that samples have shown. `None` if the difference to the peers is within the errors of the samples.
    fn function(
        &self,
        unit: u32,
        work: &SampledWork,
        period_ns: i64,
        most_callers: usize,
    ) -> Option<Place> {
        let of = self.compare(unit, work.paths(self.definitions, self.paths))?;
        let more_ns = of.more_ns();
        let (mean_ns, peers) = (of.median_ns() as f64, of.others_ns.len());
        let error_ns = difference_error_ns(of.own_ns, mean_ns, peers, period_ns as f64);
        let is_known = more_ns > 0 && more_ns as f64 > error_ns;
        let file = self.definitions.string(work.file);
        is_known.then(|| Place {
            distinct: work.distinct(self.definitions, self.paths, most_callers),
            names: work.names(self.definitions, self.paths),
            line: (work.line != 0).then(|| SampledLine {
                file: file.to_owned(),
                line: work.line,
            }),
            cost_ns: work.ns,
            error_ns: (error_ns / more_ns as f64 * work.ns as f64) as i64,
            is_longer: of.is_longer(),
            may_wait_for_threads: work.waits_for_threads,
        })
    }

    /// Compares the work of a cause in some paths with that of its peers. `None` if there was no work.
    fn compare(&self, unit: u32, paths: impl Iterator<Item = u32>) -> Option<Comparison> {
        let mut by_unit: FxHashMap<u32, (i64, f64)> = FxHashMap::default();
        for (unit, work) in paths.filter_map(|path| self.by_path.get(&path)).flatten() {
            let of = by_unit.entry(*unit).or_default();
            *of = (of.0 + work.0, of.1.hypot(work.1));
        }
        if by_unit.is_empty() {
            return None;
        }
        let (own_ns, deviation_ns) = by_unit.remove(&unit).unwrap_or_default();
        let mut others_ns: Vec<i64> = by_unit.values().map(|work| work.0).collect();
        others_ns.resize(others_ns.len().max(self.units.saturating_sub(1)), 0);
        others_ns.sort_unstable();
        Some(Comparison {
            own_ns,
            deviation_ns,
            others_ns,
        })
    }
}

impl Comparison {
    fn median_ns(&self) -> i64 {
        lower_median(&self.others_ns)
    }

    fn more_ns(&self) -> i64 {
        self.own_ns - self.median_ns()
    }

    /// Returns whether the cause worked longer than its peers, by more than they differ from each other.
    fn is_longer(&self) -> bool {
        let median_ns = self.median_ns();
        let deviations = self.others_ns.iter().map(|ns| (ns - median_ns).abs());
        let mut deviations: Vec<i64> = deviations.collect();
        deviations.sort_unstable();
        let noise_ns = (2 * lower_median(&deviations))
            .max(median_ns / LEAST_NOISE)
            .max((2.0 * self.deviation_ns) as i64);
        self.more_ns() > noise_ns || self.more_ns() > median_ns / MUCH
    }
}

/// Returns the lower median of ascending numbers. 0 of none.
fn lower_median(of: &[i64]) -> i64 {
    of.get(of.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}
