//! Clock fits: how ticks of each clock become trace time.
//!
//! Every host has one reference clock (`CLOCK_MONOTONIC`), shared by its processes. Calibration points
//! tie a clock to it; [`crate::clocks::hosts`] relates hosts to each other. The axis is the reference clock of
//! the first process's host, shifted so that the trace starts at 0.

pub(crate) mod bounds;
pub(crate) mod calibration;
pub(crate) mod hosts;
pub(crate) mod hulls;
pub(crate) mod observed;
pub(crate) mod offsets;
pub(crate) mod steps;
pub(crate) mod together;

use std::collections::HashMap;
use std::sync::Arc;

use annals_format::{Clock, ClockId, ClockKind, ClockMap, MapCursor, UNBOUNDED};

use crate::clocks::hosts::{Host, parts_of, scaled};
use crate::clocks::steps::{ClockPoints, Epoch, Stray};

/// Points closer than this share a knot: their errors would bend the slope between them.
const KNOT_SPACING_NS: i64 = 50_000_000;
/// Two points this close together say less about the rate than its nominal value does.
const LEAST_SPAN_NS: i64 = 1_000_000;
/// Knots of all hosts' maps together, however long the run is.
const MOST_KNOTS: usize = 1 << 20;
/// Most knots of one map: an hour has as many stretches of that spacing.
const MOST_OF_MAP: usize = 1 << 16;
/// Number of knots that a map may have however many hosts there are: an hour of one process whose clock is tied to its
/// host once a second.
const LEAST_OF_MAP: usize = 1 << 12;
/// How far a clock's rate departs from its mean between two points, and beyond the last, parts per 10⁹.
const WANDER_PPB: u128 = 1_000;

/// A calibration point: unwrapped tick, and reference time.
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
    /// How often it was set while it ran.
    pub steps: usize,
    /// The farthest that it was, nanoseconds.
    pub largest_step_ns: u64,
    /// Between these it was not set; empty: it was not at all.
    pub(crate) epochs: Arc<[Epoch]>,
    /// How wrong it may be.
    pub(crate) own: Arc<OwnError>,
}

impl ClockFit {
    /// Returns the fit of a clock from the trace of an earlier merge.
    pub(crate) fn of_trace(map: &ClockMap, points: usize) -> Self {
        Self {
            clock: map.clock,
            points,
            knots: map.knots.len(),
            error_ns: map.error_ns,
            largest_residual_ns: 0,
            steps: 0,
            largest_step_ns: 0,
            epochs: Arc::default(),
            own: Arc::new(OwnError::UNKNOWN),
        }
    }
}

/// Ticks that pass in a time at the nominal rate.
pub(crate) fn ticks_in(clock: &Clock, ns: i128) -> i128 {
    ns.saturating_mul(clock.ticks_per_second.into())
        .div_euclid(1_000_000_000)
}

/// Returns a second knot that continues from `from` at the nominal rate, far enough for rounding not to matter.
fn nominal_knot(clock: &Clock, from: (i128, i64)) -> (i128, i64) {
    // A whole number of seconds keeps the rate exact.
    let seconds = 1_i128;
    (
        from.0 + i128::from(clock.ticks_per_second) * seconds,
        from.1.saturating_add(1_000_000_000),
    )
}

/// Returns the maximum number of knots of a map in a run on `hosts` hosts.
pub(crate) fn most_knots(hosts: usize) -> usize {
    (MOST_KNOTS / hosts.max(1)).clamp(LEAST_OF_MAP, MOST_OF_MAP)
}

/// Fits a map through points, sorted by time. `clock` contains the nominal rate.
pub(crate) fn fit(
    id: ClockId,
    clock: &Clock,
    found: &ClockPoints,
    most_knots: usize,
) -> (ClockMap, ClockFit) {
    let points = &found.points[..];
    let mut knots: Vec<Point> = Vec::new();
    if clock.kind == ClockKind::Reference {
        // The axis itself: any two points of it.
        knots.extend(points.first());
    } else {
        choose_knots(points, most_knots, &mut knots);
        drop_wide(&mut knots);
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
    let is_nominal = pairs.len() < 2 || span_ns < LEAST_SPAN_NS;
    if is_nominal {
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
        knots: pairs.into(),
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
        steps: found.epochs.len().saturating_sub(1),
        largest_step_ns: found.largest_step_ns,
        epochs: found.epochs.clone().into(),
        own: Arc::new(
            if knots.is_empty() || knots.iter().any(|knot| knot.error_ns == UNBOUNDED) {
                OwnError::UNKNOWN
            } else {
                OwnError::of(clock, &knots, is_nominal, &found.strays)
            },
        ),
    };
    (map, fit)
}

/// Drops knots that say less than the line between their neighbours: read while the process was
/// descheduled, they have wide brackets.
fn drop_wide(knots: &mut Vec<Point>) {
    let mut kept: Vec<Point> = Vec::with_capacity(knots.len());
    for (index, knot) in knots.iter().enumerate() {
        let (Some(last), Some(next)) = (kept.last(), knots.get(index + 1)) else {
            kept.push(*knot);
            continue;
        };
        let run = next.time_ns.abs_diff(last.time_ns);
        let (from_last, to_next) = (
            knot.time_ns.abs_diff(last.time_ns),
            next.time_ns.abs_diff(knot.time_ns),
        );
        let between = scaled(last.error_ns, to_next, run)
            .saturating_add(scaled(next.error_ns, from_last, run))
            .saturating_add(parts_of(from_last.min(to_next), WANDER_PPB));
        if knot.error_ns <= between {
            kept.push(*knot);
        }
    }
    *knots = kept;
}

/// Chooses the best point of each stretch of [`KNOT_SPACING_NS`] (longer stretches if there would be too many knots),
/// ascending in tick and time.
fn choose_knots(points: &[Point], most_knots: usize, knots: &mut Vec<Point>) {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return;
    };
    let span_ns = last.time_ns.saturating_sub(first.time_ns);
    let spacing_ns = KNOT_SPACING_NS.max(span_ns / most_knots.max(1) as i64);
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
        if point.time_ns.saturating_sub(stretch_start) >= spacing_ns {
            push(best.take());
            stretch_start = point.time_ns;
        }
        if best.is_none_or(|best| point.error_ns < best.error_ns) {
            best = Some(*point);
        }
    }
    push(best);
    // A short recording lies in one stretch; its ends say more about the rate than one point.
    if knots.len() < 2 && span_ns >= LEAST_SPAN_NS && last.tick > first.tick {
        *knots = vec![*first, *last];
    }
}

/// The error bound of a fit relative to its host's reference clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnError {
    /// Reference time and bound at the knots.
    knots: Vec<(i64, u64)>,
    /// For each piece, how far the rates of its neighbours let the clock be from the line.
    bends: Vec<u64>,
    /// Sudden steps of the clock before the first knot, and after the last one.
    outside: (u64, u64),
    /// Bound of the nominal rate's error, for a clock that is tied once.
    rate_error_ppb: u32,
    /// A tick is a stretch of time, and times are rounded.
    tick_ns: u64,
}

impl OwnError {
    const UNKNOWN: Self = Self {
        knots: Vec::new(),
        bends: Vec::new(),
        outside: (0, 0),
        rate_error_ppb: 0,
        tick_ns: 0,
    };

    fn of(clock: &Clock, knots: &[Point], is_nominal: bool, wrong: &[Stray]) -> Self {
        let knots = if is_nominal {
            &knots[..knots.len().min(1)]
        } else {
            knots
        };
        let tick_ns = match clock.kind {
            ClockKind::Reference => 0,
            _ => 1_000_000_000_u64.div_ceil(clock.ticks_per_second.max(1)) + 1,
        };
        // The end of a piece at its neighbour's rate, minus its actual end.
        let strays = knots.windows(3).map(|three| {
            let run = three[1].tick.saturating_sub(three[0].tick).max(1);
            let rise = i128::from(three[1].time_ns) - i128::from(three[0].time_ns);
            let next = three[2].tick.saturating_sub(three[1].tick);
            let expected = next.saturating_mul(rise) / run;
            let stray = i128::from(three[2].time_ns) - i128::from(three[1].time_ns) - expected;
            u64::try_from(stray.unsigned_abs()).unwrap_or(UNBOUNDED)
        });
        let strays: Vec<u64> = strays.collect();
        let bends = (0..knots.len().saturating_sub(1)).map(|piece| {
            let before = piece.checked_sub(1).and_then(|before| strays.get(before));
            let behind = strays.get(piece);
            let largest = before.into_iter().chain(behind).max().copied().unwrap_or(0);
            // Twice what a steady change of the rate does (a parabola's distance from its chord).
            let bend = largest.div_ceil(4);
            // Sudden steps may have been anywhere in between.
            let (from_ns, to_ns) = (knots[piece].time_ns, knots[piece + 1].time_ns);
            let behind = wrong.partition_point(|stray| stray.between.1 <= from_ns);
            let within = wrong[behind..].iter();
            let within = within.take_while(|stray| stray.between.0 < to_ns);
            within.fold(bend, |sum, stray| sum.saturating_add(stray.wrong_ns))
        });
        let sum = |wrong: &[Stray]| {
            let each = wrong.iter().map(|stray| stray.wrong_ns);
            each.fold(0, u64::saturating_add)
        };
        let ends = knots.first().zip(knots.last());
        let outside = ends.map_or((0, 0), |(first, last)| {
            let before = wrong.partition_point(|stray| stray.between.0 < first.time_ns);
            let behind = wrong.partition_point(|stray| stray.between.1 <= last.time_ns);
            (sum(&wrong[..before]), sum(&wrong[behind..]))
        });
        Self {
            bends: bends.collect(),
            outside,
            knots: knots
                .iter()
                .map(|knot| (knot.time_ns, knot.error_ns))
                .collect(),
            rate_error_ppb: match clock.kind {
                // It is what the others are wrong against.
                ClockKind::Reference => 0,
                _ => clock.rate_error_ppb,
            },
            tick_ns,
        }
    }

    /// Returns the bound at a reading of the reference clock.
    pub(crate) fn at(&self, reference_ns: i64) -> u64 {
        let knots = &self.knots;
        let error = match knots[..] {
            [] => return UNBOUNDED,
            [(at, error)] => {
                let passed = reference_ns.abs_diff(at);
                error
                    .saturating_add(parts_of(passed, self.rate_error_ppb.into()))
                    .saturating_add(if reference_ns < at {
                        self.outside.0
                    } else {
                        self.outside.1
                    })
            }
            _ => {
                let behind = knots.partition_point(|(at, _)| *at <= reference_ns);
                let piece = behind.clamp(1, knots.len() - 1);
                let ((a, error_a), (b, error_b)) = (knots[piece - 1], knots[piece]);
                let run = b.abs_diff(a);
                let (from_a, from_b) = (reference_ns.abs_diff(a), reference_ns.abs_diff(b));
                let both = error_a
                    .saturating_add(error_b)
                    .saturating_add(self.bends[piece - 1].saturating_mul(4));
                if reference_ns < a {
                    error_a
                        .saturating_add(scaled(both, from_a, run))
                        .saturating_add(parts_of(from_a, WANDER_PPB))
                        .saturating_add(self.outside.0)
                } else if reference_ns > b {
                    error_b
                        .saturating_add(scaled(both, from_b, run))
                        .saturating_add(parts_of(from_b, WANDER_PPB))
                        .saturating_add(self.outside.1)
                } else {
                    scaled(error_a, from_b, run)
                        .saturating_add(scaled(error_b, from_a, run))
                        .saturating_add(self.bends[piece - 1])
                }
            }
        };
        error.saturating_add(self.tick_ns)
    }

    /// Moments between which the bound is about linear.
    pub(crate) fn corners(&self) -> impl Iterator<Item = i64> {
        // Just within the ends of each piece, where its bend begins and ends to count.
        let knots = self.knots.iter();
        knots.flat_map(|(at, _)| [at.saturating_sub(1), *at, at.saturating_add(1)])
    }
}

/// Returns a fit to a host's reference clock, on the axis.
pub(crate) fn on_axis(map: &ClockMap, kind: ClockKind, host: &Host) -> ClockMap {
    if kind == ClockKind::Reference {
        return ClockMap {
            clock: map.clock,
            error_ns: map.error_ns,
            knots: Arc::clone(&host.map.knots),
        };
    }
    let mut ticks: Vec<i128> = map.knots.iter().map(|knot| knot.0).collect();
    let is_straight = host.map.knots.len() == 2 && {
        let (a, b) = (host.map.knots[0], host.map.knots[1]);
        b.0 - a.0 == i128::from(b.1) - i128::from(a.1)
    };
    if !is_straight {
        let mut inverse = MapCursor::new(map);
        for (reference, _) in &host.map.knots[..] {
            let reference = (*reference).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            let mut knots = map.knots.iter();
            // Two knots that close would bend the slope between them.
            if knots.all(|knot| knot.1.abs_diff(reference) >= LEAST_SPAN_NS as u64) {
                ticks.push(inverse.tick(reference));
            }
        }
        ticks.sort_unstable();
    }
    let (mut cursor, mut to_axis) = (MapCursor::new(map), MapCursor::new(&host.map));
    let mut knots: Vec<(i128, i64)> = Vec::with_capacity(ticks.len());
    for tick in ticks {
        let time_ns = to_axis.time_ns(cursor.time_ns(tick).into());
        if knots
            .last()
            .is_none_or(|last| tick > last.0 && time_ns > last.1)
        {
            knots.push((tick, time_ns));
        }
    }
    // At the end of time.
    let is_map = knots.len() >= 2;
    ClockMap {
        clock: map.clock,
        error_ns: map.error_ns,
        knots: if is_map {
            knots.into()
        } else {
            Arc::clone(&map.knots)
        },
    }
}

/// Knots of a clock map.
type Knots = Arc<[(i128, i64)]>;

/// Moves clock maps along the axis; those that share their knots go on sharing them.
#[derive(Debug)]
pub(crate) struct MapMover {
    by_ns: i64,
    /// By where they lie, the old and the new knots: none of these is freed meanwhile.
    moved: HashMap<*const (i128, i64), (Knots, Knots)>,
}

impl MapMover {
    /// Creates a mover that moves maps later by `by_ns`.
    pub(crate) fn new(by_ns: i64) -> Self {
        Self {
            by_ns,
            moved: HashMap::new(),
        }
    }

    /// Moves a map.
    pub(crate) fn move_map(&mut self, map: &mut ClockMap) {
        let by_ns = self.by_ns;
        let known = self.moved.entry(map.knots.as_ptr());
        let (_, moved) = known.or_insert_with(|| {
            let knots = map.knots.iter();
            let moved = knots.map(|(tick, time_ns)| (*tick, time_ns.saturating_add(by_ns)));
            (Arc::clone(&map.knots), ascending(moved.collect()).into())
        });
        map.knots = Arc::clone(moved);
    }
}

/// Returns the first of knots that ascend strictly in tick and time: those at the ends of 64 bits may not. At least
/// two.
fn ascending(mut knots: Vec<(i128, i64)>) -> Vec<(i128, i64)> {
    let mut last: Option<(i128, i64)> = None;
    knots.retain(|knot| {
        let ascends = last.is_none_or(|last| knot.0 > last.0 && knot.1 > last.1);
        last = if ascends { Some(*knot) } else { last };
        ascends
    });
    if let [(tick, time_ns)] = knots[..] {
        match (tick.checked_add(1), time_ns.checked_add(1)) {
            (Some(tick), Some(time_ns)) => knots.push((tick, time_ns)),
            _ => knots.insert(0, (tick.saturating_sub(1), time_ns.saturating_sub(1))),
        }
    }
    knots
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use annals_format::{ProcessId, StringId};

    pub(crate) fn clock(ticks_per_second: u64, max_ticks: u64) -> Clock {
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

    fn of_points(points: &[Point]) -> ClockPoints {
        ClockPoints {
            points: points.to_vec(),
            ..ClockPoints::default()
        }
    }

    #[test]
    fn knots_ascend_also_at_the_ends_of_time() {
        for by_ns in [i64::MIN, -5, 0, 7, i64::MAX] {
            for first_ns in [i64::MIN, -3, i64::MAX - 4_000] {
                let mut map = ClockMap {
                    clock: ClockId::new(0),
                    error_ns: 0,
                    knots: [
                        (0, first_ns),
                        (10, first_ns + 1_000),
                        (20, first_ns + 2_000),
                    ]
                    .into(),
                };
                MapMover::new(by_ns).move_map(&mut map);
                assert!(map.knots.len() >= 2, "{by_ns} {first_ns}");
                let ascends = |a: &(i128, i64), b: &(i128, i64)| a.0 < b.0 && a.1 < b.1;
                assert!(map.knots.is_sorted_by(ascends), "{:?}", map.knots);
            }
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
        let (map, fit) = fit(ClockId::new(0), &clock, &of_points(&points), MOST_OF_MAP);
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
        let (map, _) = fit(ClockId::new(0), &clock, &of_points(&[point]), MOST_OF_MAP);
        assert_eq!(MapCursor::new(&map).time_ns(700), 1100);
    }
}
