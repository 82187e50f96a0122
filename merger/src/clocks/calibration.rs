//! Which calibration points of a run are kept: every process has one a second, as long as it runs.

use std::collections::BTreeMap;

use annals_format::{ClockId, ClockKind, Definitions};

/// Calibration points of all recordings together that are kept, and what each clock may have at least: a run has one for
/// every process and second.
const MOST_POINTS: usize = 1 << 20;
const LEAST_POINTS: usize = 256;

/// Returns the maximum number of points of each clock in a run of `processes` processes.
pub(crate) fn most_points(processes: usize) -> usize {
    (MOST_POINTS / processes.max(1)).max(LEAST_POINTS)
}

/// Reduces each clock to at most about `most` calibration points: its first, its last, and the best of each stretch
/// between. Clocks that a program defines keep all, because wraps and steps are undone from one point to the next.
pub(crate) fn thin(definitions: &mut Definitions, most: usize) {
    let Definitions {
        calibration,
        clocks,
        ..
    } = definitions;
    if calibration.len() <= most {
        return;
    }
    let mut of_clocks: BTreeMap<ClockId, Vec<usize>> = BTreeMap::new();
    for (index, point) in calibration.iter().enumerate() {
        of_clocks.entry(point.clock).or_default().push(index);
    }
    let mut is_kept = vec![false; calibration.len()];
    for (clock, places) in of_clocks {
        let is_steady = |kind: ClockKind| matches!(kind, ClockKind::Reference | ClockKind::Tsc);
        let clock = clocks.get(&clock);
        let is_own = clock.is_none_or(|clock| !is_steady(clock.kind));
        let stretch = if is_own {
            1
        } else {
            places.len().div_ceil(most)
        };
        let error_ns = |place: &&usize| calibration[**place].error_ns;
        let best = places.chunks(stretch);
        let best = best.filter_map(|stretch| stretch.iter().min_by_key(error_ns));
        let ends = places.first().into_iter().chain(places.last());
        best.chain(ends).for_each(|place| is_kept[*place] = true);
    }
    let mut is_kept = is_kept.into_iter();
    calibration.retain(|_| is_kept.next().unwrap_or(true));
    calibration.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use annals_format::{CalibrationPoint, Clock, ClockKind, Definition, ProcessId, StringId};

    use super::*;

    #[test]
    fn of_many_calibration_points_the_best_stay_and_those_at_the_ends() {
        let mut definitions = Definitions::default();
        for (id, kind) in [(1, ClockKind::Tsc), (2, ClockKind::Readable)] {
            definitions.add(Definition::Clock(Clock {
                id: ClockId::new(id),
                process: ProcessId::new(0),
                name: StringId::new(0),
                kind,
                ticks_per_second: 1_000_000,
                rate_error_ppb: 0,
                max_ticks: u64::MAX,
            }));
        }
        for number in 0..1000_u64 {
            for clock in [1, 2] {
                definitions.add(Definition::Calibration(CalibrationPoint {
                    clock: ClockId::new(clock),
                    tick: number,
                    reference_ns: number as i64 * 1000,
                    error_ns: if number % 10 == 4 { 20 } else { 30 },
                    unix_offset_ns: 0,
                }));
            }
        }
        thin(&mut definitions, 100);
        let ticks = |clock: u32| -> Vec<u64> {
            let points = definitions.calibration.iter();
            let own = points.filter(|point| point.clock == ClockId::new(clock));
            own.map(|point| point.tick).collect()
        };
        let best = (0..100).map(|stretch| stretch * 10 + 4);
        let expected: Vec<u64> = [0].into_iter().chain(best).chain([999]).collect();
        assert_eq!(ticks(1), expected);
        assert_eq!(ticks(2).len(), 1000);
    }
}
