//! Clocks that were set while they ran: where their calibration points say that they went on elsewhere.

use annals_format::ticks::unwrap_near;
use annals_format::{Clock, ClockKind};

use crate::clocks::hosts::parts_of;
use crate::clocks::{Point, ticks_in};

/// How far a clock's rate may be from what it is said to be beside the bound that is said, parts per 10⁹.
const RATE_PPB: u128 = 200_000;
/// A clock that is off by less was not set: it may be one that goes on in leaps, or was slewed.
const LEAST_STEP_NS: u64 = 10_000_000;

/// A stretch of a clock's time in which it was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch {
    /// What has to be added to its ticks for them to go on from those before.
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

/// Undoes wraps and steps of calibration ticks: each is near where the one before says it should be.
pub(crate) fn unwrap_points(clock: &Clock, raw: &[(u64, i64, u64)]) -> ClockPoints {
    let mut found = ClockPoints::default();
    let rate_ppb = u128::from(clock.rate_error_ppb) + RATE_PPB;
    let mut shift = 0_i128;
    for &(tick, time_ns, error_ns) in raw {
        let tick = match found.points.last() {
            None => i128::from(tick),
            Some(last) => {
                let passed = i128::from(time_ns) - i128::from(last.time_ns);
                let expected = last.tick.saturating_add(ticks_in(clock, passed));
                let near = expected.saturating_sub(shift);
                let near = unwrap_near(tick, near, clock.max_ticks).0;
                let near = near.saturating_add(shift);
                let wrong = near.saturating_sub(expected);
                let wrong_ns = ns_of(clock, wrong);
                let passed_ns = time_ns.abs_diff(last.time_ns);
                let drift_ns = parts_of(passed_ns, rate_ppb);
                let read_ns = error_ns.saturating_add(last.error_ns);
                let allowed_ns = drift_ns
                    .saturating_add(read_ns)
                    .saturating_add(ns_of(clock, 2));
                // The others are read by the processor, or are the reference itself.
                let is_own = matches!(clock.kind, ClockKind::Readable | ClockKind::Unreadable);
                let is_stray = is_own && wrong_ns > allowed_ns;
                let is_step = is_stray && wrong_ns >= LEAST_STEP_NS && passed > 0;
                if is_stray {
                    found.strays.push(Stray {
                        between: (last.time_ns, time_ns),
                        wrong_ns: if is_step { allowed_ns } else { wrong_ns },
                    });
                }
                if is_step {
                    found.set(shift, shift.saturating_sub(wrong), (last.time_ns, time_ns));
                    found.largest_step_ns = found.largest_step_ns.max(wrong_ns);
                    shift = shift.saturating_sub(wrong);
                    expected
                } else {
                    near
                }
            }
        };
        found.points.push(Point {
            tick,
            time_ns,
            error_ns,
        });
    }
    found
}

impl ClockPoints {
    /// The clock was set between two moments.
    fn set(&mut self, from: i128, to: i128, (before_ns, behind_ns): (i64, i64)) {
        match self.epochs.last_mut() {
            Some(last) => last.to_ns = behind_ns,
            None => self.epochs.push(Epoch {
                shift: from,
                from_ns: i64::MIN,
                to_ns: behind_ns,
            }),
        }
        self.epochs.push(Epoch {
            shift: to,
            from_ns: before_ns,
            to_ns: i64::MAX,
        });
    }
}

/// How long so many ticks are, rounded up.
fn ns_of(clock: &Clock, ticks: i128) -> u64 {
    let ns = ticks.unsigned_abs().saturating_mul(1_000_000_000);
    let ns = ns.div_ceil(clock.ticks_per_second.into());
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use annals_format::{ClockId, ProcessId, StringId};

    use super::*;

    const SECOND: i64 = 1_000_000_000;

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
        let found = unwrap_points(&clock, &raw);
        for (n, point) in found.points.iter().enumerate() {
            assert_eq!(point.tick, n as i128 * 30 + 7);
        }
        assert!(found.epochs.is_empty() && found.strays.is_empty());
    }

    #[test]
    fn a_clock_that_was_set_goes_on_from_where_it_was() {
        let clock = clock(SECOND as u64, u64::MAX);
        // Back by an hour behind the third point, on by two seconds behind the sixth.
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
            (0, i64::MIN, 3 * SECOND),
            (3600, 2 * SECOND, 6 * SECOND),
            (3598, 5 * SECOND, i64::MAX),
        ];
        assert_eq!(epochs, expected);
        assert_eq!(found.largest_step_ns, 3600 * SECOND as u64);
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
