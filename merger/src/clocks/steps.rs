//! Clocks that were set while they ran: detects the steps between their calibration points.

use annals_format::ticks::unwrap_near;
use annals_format::{Clock, ClockKind};

use crate::clocks::hosts::{RATE_PPB, parts_of};
use crate::clocks::{Point, ticks_in};

/// A smaller deviation does not mean that the clock was set: it may have a coarse resolution, or
/// was slewed.
const LEAST_STEP_NS: u64 = 10_000_000;

/// Number of runs before and after one from which the clock's rate is estimated.
const AROUND: usize = 4;
/// Maximum number of steps that are undone for a clock; later ones count in the error bound.
const MOST_EPOCHS: usize = 4096;

/// A stretch of a clock's time in which it was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch {
    /// The offset to add to its ticks so that they continue the previous ones.
    pub(crate) shift: i128,
    /// The earliest and the latest moment at which it may have ticked so, reference clock.
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
}

/// Between two points, a clock did not go on as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stray {
    /// Reference times of the points.
    pub(crate) between: (i64, i64),
    /// How wrong times in between may be, nanoseconds.
    pub(crate) wrong_ns: u64,
}

/// The calibration points of a clock, with ticks that neither start again nor were ever set.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ClockPoints {
    pub(crate) points: Vec<Point>,
    pub(crate) strays: Vec<Stray>,
    /// Empty for a clock that was not set.
    pub(crate) epochs: Vec<Epoch>,
    /// The farthest that it was set, nanoseconds.
    pub(crate) largest_step_ns: u64,
}

/// From one point to the next.
#[derive(Clone, Copy, Debug)]
struct Run {
    passed_ns: i128,
    /// Ticks that should have passed by the nominal rate, and how many more did, wraps undone.
    expected: i128,
    more: i128,
}

impl Run {
    fn between(clock: &Clock, from: (u64, i64, u64), to: (u64, i64, u64)) -> Self {
        let passed_ns = i128::from(to.1) - i128::from(from.1);
        let expected = ticks_in(clock, passed_ns);
        let tick = i128::from(from.0);
        let near = unwrap_near(to.0, tick.saturating_add(expected), clock.max_ticks).0;
        Self {
            passed_ns,
            expected,
            more: near.saturating_sub(tick).saturating_sub(expected),
        }
    }

    /// Returns how many more ticks would have passed in another run at the rate of this one. `None` means that no clock
    /// has such a rate.
    fn drift_in(&self, other: &Self) -> Option<i128> {
        const PART: i128 = 10;
        let is_plausible = self.more.saturating_abs() <= self.expected / PART;
        let drift = self.more.saturating_mul(other.passed_ns) / self.passed_ns.max(1);
        is_plausible.then_some(drift)
    }
}

/// Returns how many more ticks than at the nominal rate may have passed in a run, if the clock had the rate of the runs
/// around it.
fn drifts_of<'a>(run: &Run, around: impl Iterator<Item = &'a Run>) -> Vec<i128> {
    let drifts = around.filter_map(|other| other.drift_in(run));
    let mut drifts: Vec<i128> = drifts.collect();
    if drifts.len() < AROUND {
        drifts.push(0);
        return drifts;
    }
    // Some of them may be steps themselves.
    drifts.sort_unstable();
    vec![drifts[drifts.len() / 2]]
}

/// Undoes wraps and steps of calibration ticks: each is near the tick that the previous one predicts. A clock has its
/// nominal rate, or the rate just before or after.
pub(crate) fn unwrap_points(clock: &Clock, raw: &[(u64, i64, u64)]) -> ClockPoints {
    let mut found = ClockPoints::default();
    // The others are read by the processor, or are the reference itself.
    let is_own = matches!(clock.kind, ClockKind::Readable | ClockKind::Unreadable);
    let runs = raw.windows(2);
    let runs: Vec<Run> = runs
        .map(|two| Run::between(clock, two[0], two[1]))
        .collect();
    for (index, &(tick, time_ns, error_ns)) in raw.iter().enumerate() {
        let mut point = Point {
            tick: tick.into(),
            time_ns,
            error_ns,
        };
        if let (Some(last), Some(before)) = (found.points.last().copied(), index.checked_sub(1)) {
            let run = runs[before];
            let more = if is_own {
                found.follow(clock, &runs, before, last, point)
            } else {
                run.more
            };
            point.tick = last.tick.saturating_add(run.expected).saturating_add(more);
        }
        found.points.push(point);
    }
    found
}

impl ClockPoints {
    /// Records what a clock did in a run between two points. Returns by how many ticks it advanced beyond its nominal rate,
    /// without the step by which it was set.
    fn follow(
        &mut self,
        clock: &Clock,
        runs: &[Run],
        number: usize,
        last: Point,
        here: Point,
    ) -> i128 {
        let run = runs[number];
        let around = number.saturating_sub(AROUND)..(number + 1 + AROUND).min(runs.len());
        let others = around.filter(|place| *place != number);
        let drifts = drifts_of(&run, others.map(|place| &runs[place]));
        let wrong = drifts
            .iter()
            .map(|drift| run.more.saturating_sub(*drift).saturating_abs());
        let wrong_ns = ns_of(clock, wrong.min().unwrap_or(0));
        let rate_ppb = u128::from(clock.rate_error_ppb) + RATE_PPB;
        let allowed_ns = parts_of(here.time_ns.abs_diff(last.time_ns), rate_ppb)
            .saturating_add(here.error_ns)
            .saturating_add(last.error_ns)
            .saturating_add(ns_of(clock, 2));
        if wrong_ns <= allowed_ns {
            return run.more;
        }
        // If the clock was set, the step is relative to its rate before, not to its nominal rate.
        let step = run.more.saturating_sub(drifts[0]);
        let step_ns = ns_of(clock, step);
        let is_far = wrong_ns - allowed_ns >= LEAST_STEP_NS && run.passed_ns > 0;
        let is_step = is_far && self.epochs.len() < MOST_EPOCHS;
        self.strays.push(Stray {
            between: (last.time_ns, here.time_ns),
            wrong_ns: if is_step {
                allowed_ns
            } else {
                wrong_ns.max(step_ns)
            },
        });
        if !is_step {
            return run.more;
        }
        let shift = self.epochs.last().map_or(0, |epoch| epoch.shift);
        let from_ns = last.time_ns.saturating_sub_unsigned(last.error_ns);
        let to_ns = here.time_ns.saturating_add_unsigned(here.error_ns);
        self.begin_epoch(shift, shift.saturating_sub(step), from_ns, to_ns);
        self.largest_step_ns = self.largest_step_ns.max(step_ns);
        drifts[0]
    }

    /// Begins an epoch: between two moments, the clock was set, and its shift changed.
    fn begin_epoch(&mut self, old_shift: i128, new_shift: i128, before_ns: i64, after_ns: i64) {
        match self.epochs.last_mut() {
            Some(last) => last.to_ns = after_ns,
            None => self.epochs.push(Epoch {
                shift: old_shift,
                from_ns: i64::MIN,
                to_ns: after_ns,
            }),
        }
        self.epochs.push(Epoch {
            shift: new_shift,
            from_ns: before_ns,
            to_ns: i64::MAX,
        });
    }
}

/// Returns the duration of `ticks` ticks, rounded up.
fn ns_of(clock: &Clock, ticks: i128) -> u64 {
    let ns = ticks.unsigned_abs().saturating_mul(1_000_000_000);
    let ns = ns.div_ceil(clock.ticks_per_second.into());
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::tests::clock;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn points_of_a_small_clock_are_unwrapped() {
        let clock = clock(1000, 99);
        let raw: Vec<(u64, i64, u64)> = (0..50_i64)
            .map(|n| ((n as u64 * 30 + 7) % 100, n * 30_000_000, 10))
            .collect();
        let found = unwrap_points(&clock, &raw);
        for (n, point) in found.points.iter().enumerate() {
            assert_eq!(point.tick, n as i128 * 30 + 7);
        }
        assert!(found.epochs.is_empty() && found.strays.is_empty());
    }

    #[test]
    fn a_clock_that_was_set_goes_on_from_where_it_was() {
        let clock = clock(SECOND as u64, u64::MAX);
        // Set back by an hour after the third point, and forward by two seconds after the sixth.
        let set = |n: i64| match n {
            ..3 => 0,
            3..6 => -3600 * SECOND,
            _ => -3598 * SECOND,
        };
        let raw = (0..9_i64).map(|n| ((7200 * SECOND + n * SECOND + set(n)) as u64, n * SECOND, 5));
        let found = unwrap_points(&clock, &raw.collect::<Vec<_>>());
        for (n, point) in (0..).zip(&found.points) {
            assert_eq!(point.tick, i128::from(7200 * SECOND + n * SECOND));
        }
        let epochs = found.epochs.iter();
        let epochs: Vec<_> = epochs
            .map(|epoch| (epoch.shift / i128::from(SECOND), epoch.from_ns, epoch.to_ns))
            .collect();
        let expected = [
            (0, i64::MIN, 3 * SECOND + 5),
            (3600, 2 * SECOND - 5, 6 * SECOND + 5),
            (3598, 5 * SECOND - 5, i64::MAX),
        ];
        assert_eq!(epochs, expected);
        assert_eq!(found.largest_step_ns, 3600 * SECOND as u64);
    }

    #[test]
    fn a_clock_of_another_rate_than_it_says_is_not_set_all_the_time() {
        let clock = clock(SECOND as u64, u64::MAX);
        // Two per cent too fast, and set back by a second after the fifth point.
        let raw = (0..9_i64).map(|n| {
            let set = if n < 5 { 0 } else { -SECOND };
            (
                (100 * SECOND + n * 1_020_000_000 + set) as u64,
                n * SECOND,
                5,
            )
        });
        let found = unwrap_points(&clock, &raw.collect::<Vec<_>>());
        assert_eq!((found.epochs.len(), found.strays.len()), (2, 1));
        for (n, point) in (0..).zip(&found.points) {
            assert_eq!(point.tick, i128::from(100 * SECOND + n * 1_020_000_000));
        }
    }

    #[test]
    fn what_is_set_all_the_time_is_not_followed_for_ever() {
        let clock = clock(SECOND as u64, u64::MAX);
        let raw = (0..20_000_i64).map(|n| {
            let tick = (10_000_000 + n) * SECOND + n % 2 * 3600 * SECOND;
            (tick as u64, n * SECOND, 5)
        });
        let found = unwrap_points(&clock, &raw.collect::<Vec<_>>());
        assert!(found.epochs.len() <= MOST_EPOCHS + 1);
        assert_eq!(found.strays.len(), 19_999);
        // Beyond, it counts in the bound.
        let last = found.strays.last().expect("strays");
        assert!(last.wrong_ns >= 3500 * SECOND as u64, "{last:?}");
    }

    #[test]
    fn leaps_and_drift_are_no_steps_but_leaps_count_in_the_bound() {
        let clock = clock(SECOND as u64, u64::MAX);
        let drifting = (0..9_i64).map(|n| ((n * SECOND + n * 150_000) as u64, n * SECOND, 5));
        let found = unwrap_points(&clock, &drifting.collect::<Vec<_>>());
        assert!(found.epochs.is_empty() && found.strays.is_empty());
        // Every four milliseconds.
        let leaping = (0..9_i64).map(|n| {
            let tick = n * 1_001_000_000 / 4_000_000 * 4_000_000;
            (tick as u64, n * 1_001_000_000, 5)
        });
        let found = unwrap_points(&clock, &leaping.collect::<Vec<_>>());
        assert!(found.epochs.is_empty());
        assert!(found.strays.iter().all(|stray| stray.wrong_ns <= 4_000_000));
        assert!(!found.strays.is_empty());
    }
}
