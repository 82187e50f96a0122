//! By how much times of two locations may differ from each other, because their clocks do.

use annals_format::{ClockId, Definitions};
use annals_merger::Bounds;
use rustc_hash::FxHashMap;

/// A location whose clock is not known, or of which no error is known: an archive has none.
const UNKNOWN: (ClockId, ClockId) = (ClockId::new(u32::MAX), ClockId::new(u32::MAX));

/// The errors of the locations' clocks.
#[derive(Clone, Debug)]
pub(super) struct ClockErrors {
    bounds: Bounds,
    /// By location: its clock, and the first of those that tick as that one.
    clocks: Vec<(ClockId, ClockId)>,
    /// Whether all of them tick as one.
    is_one: bool,
}

impl ClockErrors {
    pub(super) fn new(definitions: &Definitions) -> Self {
        let numbers: FxHashMap<_, usize> = definitions.locations.keys().copied().zip(0..).collect();
        let mut clocks = vec![UNKNOWN; definitions.locations.len()];
        for stream in definitions.streams.values() {
            let number = stream.location.and_then(|location| numbers.get(&location));
            let source = definitions.sources.get(&stream.source);
            let clock = source.map(|source| source.clock);
            let error = clock.and_then(|clock| definitions.clock_errors.get(&clock));
            if let (Some(number), Some(error)) = (number, error) {
                clocks[*number] = (error.clock, error.alike);
            }
        }
        Self {
            bounds: Bounds::of(definitions),
            is_one: clocks.windows(2).all(|pair| pair[0].1 == pair[1].1),
            clocks,
        }
    }

    /// Returns the bound of the error of the difference of two times of locations, nanoseconds: 0 if both clocks tick as one or
    /// if nothing is known of them, [`i64::MAX`] without a bound.
    pub(super) fn between(&self, one: (u32, i64), other: (u32, i64)) -> i64 {
        let of = |location: u32| self.clocks[location as usize];
        let (clock, other_clock) = (of(one.0), of(other.0));
        if clock.1 == other_clock.1 || clock == UNKNOWN || other_clock == UNKNOWN {
            return 0;
        }
        let bound = self
            .bounds
            .between((clock.0, one.1), (other_clock.0, other.1));
        bound.map_or(i64::MAX, |bound| i64::try_from(bound).unwrap_or(i64::MAX))
    }

    /// Returns one of some locations for each different clock. Empty if all clocks of the trace tick as one.
    pub(super) fn different(&self, locations: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut different: Vec<u32> = Vec::new();
        if self.is_one {
            return different;
        }
        for location in locations {
            let alike = self.clocks[location as usize].1;
            let is_known = |of: &u32| self.clocks[*of as usize].1 == alike;
            if !different.iter().any(is_known) {
                different.push(location);
            }
        }
        different
    }

    /// Returns the largest such bound between a location and some others.
    pub(super) fn among(&self, location: u32, time_ns: i64, others: &[u32]) -> i64 {
        let errors = others
            .iter()
            .map(|other| self.between((location, time_ns), (*other, time_ns)));
        errors.max().unwrap_or(0)
    }
}

/// Returns by how much a wait may differ if one of its times is wrong by at most an error, nanoseconds. `reached_ns` is how
/// long after the enter that was entered for which was waited, or less than 0 if it was before; a wait is at most as long as
/// its call.
pub(super) fn wait_error(reached_ns: i64, length_ns: i64, error_ns: i64) -> i64 {
    let wait = |reached_ns: i64| reached_ns.clamp(0, length_ns.max(0));
    let least_ns = wait(reached_ns.saturating_sub(error_ns));
    let most_ns = wait(reached_ns.saturating_add(error_ns));
    (wait(reached_ns) - least_ns).max(most_ns - wait(reached_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_wrong_by_no_more_than_the_clocks_and_its_call() {
        assert_eq!(wait_error(100, 500, 0), 0);
        assert_eq!(wait_error(100, 500, 30), 30);
        assert_eq!(wait_error(10, 500, 30), 30, "it may be 40");
        assert_eq!(wait_error(490, 500, 30), 30, "it may be 460");
        assert_eq!(wait_error(-20, 500, 30), 10, "it may be 10");
        assert_eq!(wait_error(-40, 500, 30), 0);
        assert_eq!(wait_error(100, 500, i64::MAX), 400);
        assert_eq!(wait_error(i64::MIN, 500, 30), 0);
    }
}
