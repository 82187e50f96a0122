//! Clock fits: how ticks of each clock become trace time.
//!
//! Every host has one reference clock (`CLOCK_MONOTONIC`), shared by its processes. Calibration points
//! tie a clock to it; hosts are tied to each other by their wall clocks. The axis is the reference
//! clock of the first process's host, shifted so that the trace starts at 0.

use std::collections::BTreeMap;

use annals_format::ticks::unwrap_near;
use annals_format::{Clock, ClockId, ClockKind, ClockMap, MapCursor};

/// Points closer than this share a knot: their errors would bend the slope between them.
const KNOT_SPACING_NS: i64 = 50_000_000;
/// Two points this close together say less about the rate than its nominal value does.
const LEAST_SPAN_NS: i64 = 1_000_000;

/// A calibration point on the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) tick: i128,
    pub(crate) time_ns: i64,
    pub(crate) error_ns: u64,
}

/// How well a clock is known: for the report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockFit {
    /// The clock, by its number in the trace.
    pub clock: ClockId,
    /// Calibration points that were used.
    pub points: usize,
    /// Knots of the map.
    pub knots: usize,
    /// Bound of the error at the knots, nanoseconds.
    pub error_ns: u64,
    /// Largest distance of a point from the map, nanoseconds.
    pub largest_residual_ns: u64,
}

/// Undoes the wraps of calibration ticks: each is near where the one before says it should be.
pub(crate) fn unwrap_points(clock: &Clock, raw: &[(u64, i64, u64)]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::with_capacity(raw.len());
    for &(tick, time_ns, error_ns) in raw {
        let tick = match points.last() {
            None => i128::from(tick),
            Some(last) => {
                let passed_ns = i128::from(time_ns) - i128::from(last.time_ns);
                let expected = last.tick.saturating_add(ticks_in(clock, passed_ns));
                unwrap_near(tick, expected, clock.max_ticks).0
            }
        };
        points.push(Point {
            tick,
            time_ns,
            error_ns,
        });
    }
    points
}

/// Ticks that pass in a time at the nominal rate.
pub(crate) fn ticks_in(clock: &Clock, ns: i128) -> i128 {
    ns.saturating_mul(clock.ticks_per_second.into())
        .div_euclid(1_000_000_000)
}

/// A second knot that continues from `from` at the nominal rate, far enough for rounding not to matter.
fn nominal_knot(clock: &Clock, from: (i128, i64)) -> (i128, i64) {
    // A whole number of seconds keeps the rate exact.
    let seconds = 1_i128;
    (
        from.0 + i128::from(clock.ticks_per_second) * seconds,
        from.1.saturating_add(1_000_000_000),
    )
}

/// Fits a map through points, sorted by time. `clock` gives the nominal rate.
pub(crate) fn fit(id: ClockId, clock: &Clock, points: &[Point]) -> (ClockMap, ClockFit) {
    let mut knots: Vec<Point> = Vec::new();
    if clock.kind == ClockKind::Reference {
        // The axis itself: any two points of it.
        knots.extend(points.first());
    } else {
        choose_knots(points, &mut knots);
    }
    let first = knots.first().copied().unwrap_or(Point {
        tick: 0,
        time_ns: 0,
        error_ns: u64::MAX,
    });
    let mut pairs: Vec<(i128, i64)> = knots.iter().map(|knot| (knot.tick, knot.time_ns)).collect();
    let span_ns = knots
        .last()
        .map_or(0, |last| last.time_ns.saturating_sub(first.time_ns));
    if pairs.len() < 2 || span_ns < LEAST_SPAN_NS {
        pairs = vec![(first.tick, first.time_ns)];
        pairs.push(nominal_knot(clock, pairs[0]));
    }
    let error_ns = knots
        .iter()
        .map(|knot| knot.error_ns)
        .max()
        .unwrap_or(u64::MAX);
    let map = ClockMap {
        clock: id,
        error_ns,
        knots: pairs,
    };
    let mut cursor = MapCursor::new(&map);
    let residuals = points
        .iter()
        .map(|point| cursor.time_ns(point.tick).abs_diff(point.time_ns));
    let fit = ClockFit {
        clock: id,
        points: points.len(),
        knots: map.knots.len(),
        error_ns,
        largest_residual_ns: residuals.max().unwrap_or(0),
    };
    (map, fit)
}

/// The best point of each stretch of [`KNOT_SPACING_NS`], ascending in both directions.
fn choose_knots(points: &[Point], knots: &mut Vec<Point>) {
    let Some(first) = points.first() else { return };
    let mut stretch_start = first.time_ns;
    let mut best: Option<Point> = None;
    let mut push = |point: Option<Point>| {
        let Some(point) = point else { return };
        let ascends = knots
            .last()
            .is_none_or(|last: &Point| point.tick > last.tick && point.time_ns > last.time_ns);
        if ascends {
            knots.push(point);
        }
    };
    for point in points {
        if point.time_ns.saturating_sub(stretch_start) >= KNOT_SPACING_NS {
            push(best.take());
            stretch_start = point.time_ns;
        }
        if best.is_none_or(|best| point.error_ns < best.error_ns) {
            best = Some(*point);
        }
    }
    push(best);
    // A short recording lies in one stretch; its ends say more about the rate than one point.
    if knots.len() < 2
        && let Some(last) = points.last()
        && last.time_ns.saturating_sub(first.time_ns) >= LEAST_SPAN_NS
        && last.tick > first.tick
    {
        *knots = vec![*first, *last];
    }
}

/// Offset of each host's reference clock to the axis, from the wall clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostOffsets {
    by_boot: BTreeMap<[u8; 16], i64>,
    base: Option<i64>,
}

impl HostOffsets {
    /// Takes in a process: the first one's host is the axis, the first of each host speaks for it.
    pub(crate) fn add(&mut self, boot_id: [u8; 16], unix_offset_ns: i64) {
        let base = *self.base.get_or_insert(unix_offset_ns);
        self.by_boot
            .entry(boot_id)
            .or_insert(unix_offset_ns.saturating_sub(base));
    }

    /// Axis time of a reference reading, before the shift to 0.
    pub(crate) fn axis_ns(&self, boot_id: [u8; 16], reference_ns: i64) -> i64 {
        let offset = self.by_boot.get(&boot_id).copied().unwrap_or(0);
        reference_ns.saturating_add(offset)
    }

    /// Wall clock minus axis, nanoseconds.
    pub(crate) fn unix_base_ns(&self) -> i64 {
        self.base.unwrap_or(0)
    }

    /// Number of hosts (boots).
    pub(crate) fn hosts(&self) -> usize {
        self.by_boot.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::{ProcessId, StringId};

    fn clock(ticks_per_second: u64, max_ticks: u64) -> Clock {
        Clock {
            id: ClockId::new(0),
            process: ProcessId::new(0),
            name: StringId::new(0),
            kind: ClockKind::Readable,
            ticks_per_second,
            rate_error_ppb: 0,
            max_ticks,
        }
    }

    #[test]
    fn points_of_a_small_clock_are_unwrapped() {
        let clock = clock(1000, 99);
        let raw: Vec<(u64, i64, u64)> = (0..50_i64)
            .map(|n| ((n as u64 * 30 + 7) % 100, n * 30_000_000, 10))
            .collect();
        let points = unwrap_points(&clock, &raw);
        for (n, point) in points.iter().enumerate() {
            assert_eq!(point.tick, n as i128 * 30 + 7);
        }
    }

    #[test]
    fn a_wide_bracket_loses_against_a_narrow_one_nearby() {
        let clock = clock(1_000_000_000, u64::MAX);
        let points: Vec<Point> = (0..100_i64)
            .map(|n| {
                let is_bad = n % 10 == 5;
                Point {
                    tick: i128::from(n) * 10_000_000 + if is_bad { 400_000 } else { 0 },
                    time_ns: n * 10_000_000,
                    error_ns: if is_bad { 500_000 } else { 20 },
                }
            })
            .collect();
        let (map, fit) = fit(ClockId::new(0), &clock, &points);
        assert_eq!(fit.error_ns, 20);
        assert_eq!(MapCursor::new(&map).time_ns(123_456_789), 123_456_789);
    }

    #[test]
    fn one_point_goes_on_at_the_nominal_rate() {
        let clock = clock(2_000_000_000, u64::MAX);
        let point = Point {
            tick: 500,
            time_ns: 1000,
            error_ns: 5,
        };
        let (map, _) = fit(ClockId::new(0), &clock, &[point]);
        assert_eq!(MapCursor::new(&map).time_ns(700), 1100);
    }
}
