//! Clocks that cannot be read at will: what their events' ticks and the moments at which these were observed say.
//!
//! An event is observed after it has happened, with an unknown delay. So all points (tick, moment of observation) lie
//! on one side of the line that the clock is, and the line that lies below all of them with the least lateness in sum
//! is an edge of their lower convex hull, the one above their mean tick (Moon, Skelly and Towsley 1999; Zhang, Liu and
//! Xia 2002).

use std::collections::BTreeMap;

use annals_format::ticks::unwrap_near;
use annals_format::{Clock, UNBOUNDED};

use crate::clocks::{Point, ticks_in};

/// Points that are kept: of longer and longer stretches of time, the tightest of each.
const MOST_STRETCHES: usize = 4096;
/// How long a stretch is at first, nanoseconds.
const STRETCH_NS: i64 = 1_000_000;
/// Of observations that are closer together, how late they were says more than the clock's rate.
const LEAST_RUN_NS: i128 = 1_000_000_000;

/// A tick, unwrapped, and when it was observed.
type Observation = (i128, i64);

/// The observations of one clock.
pub(crate) struct Observed<'a> {
    clock: &'a Clock,
    /// The previous observation, which shows how often the clock has started again since.
    last: Option<Observation>,
    stretch_ns: i64,
    /// The tightest observation of each stretch, by the number of the stretch.
    tightest: BTreeMap<i64, Observation>,
}

impl<'a> Observed<'a> {
    pub(crate) fn new(clock: &'a Clock) -> Self {
        Self {
            clock,
            last: None,
            stretch_ns: STRETCH_NS,
            tightest: BTreeMap::new(),
        }
    }

    /// Takes in a raw tick and the reading of the reference clock at which it was observed.
    pub(crate) fn push(&mut self, tick: u64, observed_ns: i64) {
        let (last, last_ns) = self.last.unwrap_or((tick.into(), observed_ns));
        let passed = i128::from(observed_ns) - i128::from(last_ns);
        let expected = last.saturating_add(ticks_in(self.clock, passed));
        let (tick, _) = unwrap_near(tick, expected, self.clock.max_ticks);
        self.last = Some((tick, observed_ns));
        self.keep(observed_ns.div_euclid(self.stretch_ns), (tick, observed_ns));
        while self.tightest.len() > MOST_STRETCHES {
            self.widen();
        }
    }

    fn keep(&mut self, stretch: i64, observation: Observation) {
        let best = self.tightest.entry(stretch).or_insert(observation);
        *best = tighter(self.clock, *best, observation);
    }

    /// Makes two stretches one.
    fn widen(&mut self) {
        self.stretch_ns = self.stretch_ns.saturating_mul(2);
        for (stretch, observation) in std::mem::take(&mut self.tightest) {
            self.keep(stretch.div_euclid(2), observation);
        }
    }

    /// Returns two points of the line that fits best, or one if the line contradicts the clock's nominal rate. Even the
    /// delay of the tightest observations is unknown: their errors have no bound.
    pub(crate) fn points(&self) -> Vec<Point> {
        let observations = self.tightest.values().copied();
        let mut observations: Vec<Observation> = observations.collect();
        observations.sort_unstable();
        let line = edge_at_mean(&observations);
        let line = line.filter(|(a, b)| has_rate(self.clock, *a, *b));
        let best = observations.iter().copied();
        let best = best.reduce(|best, next| tighter(self.clock, best, next));
        let points = match line {
            Some((a, b)) => vec![a, b],
            None => best.into_iter().collect(),
        };
        let points = points.into_iter().map(|(tick, time_ns)| Point {
            tick,
            time_ns,
            error_ns: UNBOUNDED,
        });
        points.collect()
    }
}

/// Returns that of two observations with the shorter delay after its event, if the clock has its nominal rate.
fn tighter(clock: &Clock, a: Observation, b: Observation) -> Observation {
    let passed = i128::from(b.1) - i128::from(a.1);
    let ticks = b.0.saturating_sub(a.0);
    if ticks > ticks_in(clock, passed) {
        b
    } else {
        a
    }
}

/// Returns the edge of the lower convex hull at the mean of the ticks. Observations ascend.
fn edge_at_mean(observations: &[Observation]) -> Option<(Observation, Observation)> {
    let mut hull: Vec<Observation> = Vec::new();
    for next in observations {
        // The second of three is dropped when it is not below the line through the others.
        while let [.., a, b] = hull[..] {
            let (run, rise) = (b.0 - a.0, i128::from(b.1) - i128::from(a.1));
            let (run_next, rise_next) = (next.0 - a.0, i128::from(next.1) - i128::from(a.1));
            if rise.saturating_mul(run_next) < rise_next.saturating_mul(run) {
                break;
            }
            hull.pop();
        }
        // Of several with one tick the first is the lowest.
        if hull.last().is_none_or(|last| last.0 < next.0) {
            hull.push(*next);
        }
    }
    let first = observations.first()?.0;
    let sum = observations
        .iter()
        .fold(0_i128, |sum, (tick, _)| sum.saturating_add(tick - first));
    let mean = first + sum / observations.len() as i128;
    let behind = hull.partition_point(|(tick, _)| *tick <= mean);
    let end = behind.clamp(1, hull.len().max(2) - 1);
    Some((*hull.get(end - 1)?, *hull.get(end)?))
}

/// Returns whether a line is long enough and has the rate that the clock is said to have, within the bound of that.
fn has_rate(clock: &Clock, a: Observation, b: Observation) -> bool {
    const BILLION: i128 = 1_000_000_000;
    let passed_ns = i128::from(b.1) - i128::from(a.1);
    if passed_ns < LEAST_RUN_NS {
        return false;
    }
    let by_ticks = (b.0 - a.0).saturating_mul(BILLION);
    let by_times = passed_ns.saturating_mul(clock.ticks_per_second.into());
    let allowed = (by_times / BILLION).saturating_mul(clock.rate_error_ppb.into());
    by_ticks.saturating_sub(by_times).abs() <= allowed
}

#[cfg(test)]
mod tests {
    use annals_format::{ClockId, ClockKind, ProcessId, StringId};

    use super::*;

    fn clock(max_ticks: u64, rate_error_ppb: u32) -> Clock {
        Clock {
            id: ClockId::new(0),
            process: ProcessId::new(0),
            name: StringId::new(0),
            kind: ClockKind::Unreadable,
            ticks_per_second: 1_000_000_000,
            rate_error_ppb,
            max_ticks,
        }
    }

    /// Observes a clock that is too fast by `ppm` parts in a million: every millisecond, late by up to `most_ns`.
    fn observe(clock: &Clock, seconds: i64, most_ns: i64, ppm: i64) -> Vec<Point> {
        let mut observed = Observed::new(clock);
        for number in 0..seconds * 1000 {
            let true_ns = number * 1_000_000;
            let ticks = i128::from(true_ns + true_ns / 1_000_000 * ppm);
            let tick = ticks % (i128::from(clock.max_ticks) + 1);
            let late_ns = number * 7919 % 101 * most_ns / 100;
            observed.push(tick as u64, 5_000_000_000 + true_ns + late_ns);
        }
        observed.points()
    }

    #[test]
    fn the_rate_is_found_below_all_that_came_late() {
        let clock = clock(9_999_999, 100_000);
        let points = observe(&clock, 60, 300_000, 70);
        let [a, b] = points[..] else {
            panic!("{points:?}")
        };
        let rate = (b.tick - a.tick) * 1_000_000 / i128::from(b.time_ns - a.time_ns) - 1_000_000;
        assert!((69..=71).contains(&rate), "{rate} ppm");
        // And none is late.
        for point in points {
            let true_ns = point.tick - point.tick * 70 / 1_000_070;
            assert!((i128::from(point.time_ns) - 5_000_000_000 - true_ns).abs() <= 2);
        }
    }

    #[test]
    fn a_rate_that_the_clock_is_not_said_to_have_is_not_taken() {
        assert_eq!(observe(&clock(u64::MAX, 20_000), 60, 300_000, 70).len(), 1);
        // Whole numbers of ticks are no other rate.
        assert_eq!(observe(&clock(u64::MAX, 0), 60, 0, 0).len(), 2);
    }

    #[test]
    fn one_observation_is_one_point_and_none_is_none() {
        let clock = clock(u64::MAX, 0);
        let mut observed = Observed::new(&clock);
        assert_eq!(observed.points(), []);
        observed.push(70, 90);
        let points = observed.points();
        assert_eq!(
            (points.len(), points[0].tick, points[0].time_ns),
            (1, 70, 90)
        );
        observed.push(70, 80);
        let points = observed.points();
        assert_eq!(
            (points.len(), points[0].tick, points[0].time_ns),
            (1, 70, 80)
        );
    }

    #[test]
    fn hostile_ticks_and_times_do_not_overflow() {
        for max_ticks in [0, 1, u64::MAX] {
            let clock = Clock {
                ticks_per_second: u64::MAX,
                ..clock(max_ticks, u32::MAX)
            };
            let mut observed = Observed::new(&clock);
            for observed_ns in [i64::MIN, i64::MAX, 0, i64::MIN, -1, i64::MAX] {
                for tick in [0, u64::MAX, 1] {
                    observed.push(tick, observed_ns);
                }
            }
            assert!(observed.points().len() <= 2);
        }
    }
}
