//! Bounds on the clocks of two hosts by their messages: every message from one to the other bounds their offset on one
//! side, and the convex hulls of both directions bound offset and rate.
//!
//! After Duda, Harrus, Haddad and Bernard, "Estimating global time in distributed systems" (1987), and
//! Ashton, "Algorithms for off-line clock synchronisation" (1995). All arithmetic is exact.

use serde::{Deserialize, Serialize};

/// Points that wait to be taken into a hull.
const WAITING: usize = 4096;
/// Rates are numbers of 2⁻⁴⁰ parts.
pub(crate) const RATE_BITS: u32 = 40;
/// No two clocks' rates are farther apart: one part in a thousand.
const LARGEST_RATE: i128 = (1 << RATE_BITS) / 1000;

/// The upper convex hull of points, ascending; the lower one when their values are negated.
#[derive(Clone, Debug, Default)]
struct Hull {
    corners: Vec<(i64, i64)>,
    waiting: Vec<(i64, i64)>,
}

impl Hull {
    fn add(&mut self, time_ns: i64, value: i64) {
        self.waiting.push((time_ns, value));
        if self.waiting.len() >= WAITING {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let mut points = std::mem::take(&mut self.corners);
        points.append(&mut self.waiting);
        points.sort_unstable();
        for (time, value) in points {
            let hull = &mut self.corners;
            if hull.last().is_some_and(|last| last.0 == time) {
                // Ascending by value: the one before is below.
                hull.pop();
            }
            while let [.., a, b] = hull[..] {
                let run = |from: (i64, i64)| i128::from(time) - i128::from(from.0);
                let rise = |from: (i64, i64)| i128::from(value) - i128::from(from.1);
                let (run_b, rise_b) = (
                    i128::from(b.0) - i128::from(a.0),
                    i128::from(b.1) - i128::from(a.1),
                );
                // b is not above the line from a to the new one.
                if rise_b * run(a) > rise(a) * run_b {
                    break;
                }
                hull.pop();
            }
            self.corners.push((time, value));
        }
    }

    /// Returns how far a point rises at most above a line of this rate through `at_ns`, in 2⁻⁴⁰ ns.
    fn support(&self, rate: i128, at_ns: i64) -> i128 {
        let each = self.corners.iter().map(|(time, value)| {
            let passed = i128::from(*time) - i128::from(at_ns);
            (i128::from(*value) << RATE_BITS) - rate * passed
        });
        each.max().unwrap_or(i128::MIN)
    }
}

/// How good a fit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quality {
    Accurate,
    Approximate,
    OneDirection,
    Inconsistent,
}

impl Quality {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Accurate => "accurate",
            Self::Approximate => "approximate",
            Self::OneDirection => "one-direction",
            Self::Inconsistent => "inconsistent",
        }
    }
}

/// The correction of one host's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fit {
    pub(crate) quality: Quality,
    start_ns: i64,
    /// Correction at `start_ns`, in 2⁻⁴⁰ ns; `rate` is its change for each later ns.
    offset: i128,
    rate: i128,
    /// Bounds at the start and at the end, as long as the true offset is a line.
    pub(crate) bounds: Option<(u64, u64)>,
}

impl Fit {
    /// Returns whether its line is better than none.
    pub(crate) fn is_used(&self) -> bool {
        self.quality != Quality::Inconsistent
    }

    /// Returns what has to be added at a time.
    pub(crate) fn at(&self, time_ns: i64) -> i64 {
        let passed = i128::from(time_ns) - i128::from(self.start_ns);
        let added = self.offset.saturating_add(self.rate.saturating_mul(passed)) >> RATE_BITS;
        added.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// Messages between two hosts: what has to be added to the times of one of them, the child.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hulls {
    /// At least this (messages to the child); at most that, negated (messages from it).
    least: Hull,
    most: Hull,
    pub(crate) messages: u64,
}

/// Returns the place of the maximum of a concave function of an integer.
fn maximum(mut low: i128, mut high: i128, value: impl Fn(i128) -> i128) -> i128 {
    while high - low > 2 {
        let third = (high - low) / 3;
        let (a, b) = (low + third, high - third);
        if value(a) < value(b) {
            low = a + 1;
        } else {
            high = b;
        }
    }
    (low..=high).max_by_key(|rate| value(*rate)).unwrap_or(low)
}

impl Hulls {
    /// Adds a message to the child: when it was received by the child's clock, and sent by the
    /// other's.
    pub(crate) fn child_received(&mut self, received_ns: i64, sent_ns: i64) {
        self.messages += 1;
        self.least
            .add(received_ns, sent_ns.saturating_sub(received_ns));
    }

    /// Adds a message from the child: when it was sent by the child's clock, and received by the other's.
    pub(crate) fn child_sent(&mut self, sent_ns: i64, received_ns: i64) {
        self.messages += 1;
        // Negated: the lower hull.
        self.most.add(sent_ns, sent_ns.saturating_sub(received_ns));
    }

    /// Returns what the other host's own correction adds to both sides.
    pub(crate) fn moved(mut self, by: &Fit) -> Self {
        self.settle();
        for (time, value) in &mut self.least.corners {
            *value = value.saturating_add(by.at(*time));
        }
        for (time, value) in &mut self.most.corners {
            *value = value.saturating_sub(by.at(*time));
        }
        // Rounding may have bent them.
        self.settle();
        self
    }

    fn settle(&mut self) {
        self.least.settle();
        self.most.settle();
    }

    pub(crate) fn is_both(&mut self) -> bool {
        self.settle();
        !self.least.corners.is_empty() && !self.most.corners.is_empty()
    }

    /// Returns the line with the largest distance from both hulls between two moments. `None` without messages, and when
    /// nothing has to be added.
    pub(crate) fn fit(mut self, start_ns: i64, end_ns: i64) -> Option<Fit> {
        self.settle();
        let (has_least, has_most) = (
            !self.least.corners.is_empty(),
            !self.most.corners.is_empty(),
        );
        let one_sided = |offset: i128| Fit {
            quality: Quality::OneDirection,
            start_ns,
            offset,
            rate: 0,
            bounds: None,
        };
        let at = start_ns;
        match (has_least, has_most) {
            (false, false) => return None,
            // As little as contradicts nothing.
            (true, false) => return Some(one_sided(self.least.support(0, at).max(0))),
            (false, true) => return Some(one_sided((-self.most.support(0, at)).min(0))),
            (true, true) => {}
        }
        if self.least.support(0, at) <= 0 && self.most.support(0, at) <= 0 {
            // The current times contradict no message.
            return None;
        }
        self.line(start_ns, end_ns, LARGEST_RATE, false)
    }

    /// Returns the line of [`Hulls::fit`] also if nothing has to be added. `largest_rate`: in parts of 2⁻⁴⁰. `is_steady`: a line without a rate is
    /// taken if it contradicts no message, so that durations stay what they are. `None` without messages in both directions.
    pub(crate) fn line(
        &mut self,
        start_ns: i64,
        end_ns: i64,
        largest_rate: i128,
        is_steady: bool,
    ) -> Option<Fit> {
        if !self.is_both() {
            return None;
        }
        let at = start_ns;
        let low = |rate: i128, at: i64| self.least.support(rate, at);
        let high = |rate: i128, at: i64| -self.most.support(-rate, at);
        let gap = |rate: i128| high(rate, at) - low(rate, at);
        let rate = match is_steady && gap(0) >= 0 {
            true => 0,
            false => maximum(-largest_rate, largest_rate, gap),
        };
        let offset = (high(rate, at) + low(rate, at)) / 2;
        let is_accurate = gap(rate) >= 0;
        let bounds = is_accurate.then(|| {
            // Rates of the lines that contradict nothing: from here to there.
            let (mut inside, mut outside) = (rate, -largest_rate - 1);
            while inside - outside > 1 {
                let middle = outside + (inside - outside) / 2;
                *(if gap(middle) >= 0 {
                    &mut inside
                } else {
                    &mut outside
                }) = middle;
            }
            let least_rate = inside;
            (inside, outside) = (rate, largest_rate + 1);
            while outside - inside > 1 {
                let middle = inside + (outside - inside) / 2;
                *(if gap(middle) >= 0 {
                    &mut inside
                } else {
                    &mut outside
                }) = middle;
            }
            let most_rate = inside;
            let bound = |at_ns: i64| {
                let passed = i128::from(at_ns) - i128::from(start_ns);
                let chosen = offset + rate * passed;
                let top = maximum(least_rate, most_rate, |rate| high(rate, at_ns));
                let bottom = maximum(least_rate, most_rate, |rate| -low(rate, at_ns));
                let above = high(top, at_ns) - chosen;
                let below = chosen - low(bottom, at_ns);
                let farthest = (above.max(below) >> RATE_BITS) + 1;
                u64::try_from(farthest).unwrap_or(u64::MAX)
            };
            (bound(start_ns), bound(end_ns))
        });
        let unfitted = gap(0).min(2 * high(0, at)).min(-2 * low(0, at));
        let quality = if is_accurate {
            Quality::Accurate
        } else if gap(rate) > unfitted {
            Quality::Approximate
        } else {
            Quality::Inconsistent
        };
        Some(Fit {
            quality,
            start_ns,
            offset,
            rate,
            bounds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_true_line_is_found_to_within_its_bounds(
            offset in -1_000_000_000..1_000_000_000_i64, rate_ppb in -200_000..200_000_i64,
            messages in prop::collection::vec((0..10_000_000_000_i64, 1..100_000_i64, any::<bool>()), 2..200),
        ) {
            // The correction of the child's times is a linear function of these times.
            let added = |time: i64| {
                offset + (i128::from(time) * i128::from(rate_ppb)).div_euclid(1_000_000_000) as i64
            };
            let mut hulls = Hulls::default();
            for (time, latency, is_to_child) in &messages {
                if *is_to_child {
                    hulls.child_received(*time, time + added(*time) - latency);
                } else {
                    hulls.child_sent(*time, time + added(*time) + latency);
                }
            }
            let is_both = hulls.is_both();
            let Some(fit) = hulls.fit(0, 10_000_000_000) else {
                // Zero fits as well.
                for (time, latency, is_to_child) in &messages {
                    let slack = if *is_to_child { -added(*time) } else { added(*time) };
                    prop_assert!(slack + latency >= 0);
                }
                return Ok(());
            };
            prop_assert_eq!(is_both, fit.quality == Quality::Accurate);
            if let Some((start, end)) = fit.bounds {
                // A nanosecond for each of three roundings.
                prop_assert!(fit.at(0).abs_diff(added(0)) <= start + 3);
                let at_end = fit.at(10_000_000_000).abs_diff(added(10_000_000_000));
                prop_assert!(at_end <= end + 3, "{} > {}", at_end, end);
                for (time, latency, is_to_child) in &messages {
                    let slack = i128::from(fit.at(*time)) - i128::from(added(*time));
                    let slack = if *is_to_child { slack } else { -slack };
                    prop_assert!(slack + i128::from(*latency) >= -1);
                }
            }
        }

        #[test]
        fn a_hull_is_nowhere_below_its_points(
            points in prop::collection::vec((-1000..1000_i64, -1000..1000_i64), 1..300),
            rate in -LARGEST_RATE..LARGEST_RATE,
        ) {
            let mut hull = Hull::default();
            points.iter().for_each(|(time, value)| hull.add(*time, *value));
            hull.settle();
            let expected = points.iter().map(|(t, v)| (i128::from(*v) << RATE_BITS) - rate * i128::from(*t));
            prop_assert_eq!(hull.support(rate, 0), expected.max().unwrap());
        }
    }
}
