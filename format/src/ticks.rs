//! Arithmetic on ticks of clocks that start again at 0 after their largest tick.

/// Returns the distance from `from` to `to` on a clock whose largest tick is `max_ticks`: the one of smallest
/// magnitude, and of two such the positive one. Ticks beyond `max_ticks` are taken modulo (`max_ticks` + 1). When
/// `max_ticks` is `u64::MAX` it is the wrapped difference read as signed, so that a tie (2⁶³ either way) is `i64::MIN`.
pub fn distance(from: u64, to: u64, max_ticks: u64) -> i64 {
    if max_ticks == u64::MAX {
        return to.wrapping_sub(from) as i64;
    }
    let modulus = max_ticks + 1;
    let forward = if from <= to && to <= max_ticks {
        to - from
    } else {
        let (from, to) = (from % modulus, to % modulus);
        if from <= to {
            to - from
        } else {
            modulus - (from - to)
        }
    };
    if forward <= modulus / 2 {
        forward as i64
    } else {
        -((modulus - forward) as i64)
    }
}

/// Returns the unwrapped tick nearest to `expected` that reads `tick` on the clock, and whether
/// another one is about as near (within an eighth of the period), so that the choice is ambiguous.
///
/// Expectations beyond ± 2¹²⁵ are taken as that: no clock gets there, and nothing overflows.
pub fn unwrap_near(tick: u64, expected: i128, max_ticks: u64) -> (i128, bool) {
    const FARTHEST: i128 = 1 << 125;
    let expected = expected.clamp(-FARTHEST, FARTHEST);
    let modulus = i128::from(max_ticks) + 1;
    let tick = i128::from(tick) % modulus;
    let behind = (expected - tick).rem_euclid(modulus);
    let below = expected - behind;
    let nearest = if behind * 2 <= modulus {
        below
    } else {
        below + modulus
    };
    let is_ambiguous = (behind * 2 - modulus).abs() * 4 < modulus;
    (nearest, is_ambiguous)
}

/// Returns what is added to the unwrapped tick `map_tick` so that the sum reads as `tick` does on the clock: their
/// difference, or where that needs more than 64 bits, the one of smallest magnitude modulo (`max_ticks` + 1).
pub fn residual(tick: i128, map_tick: i128, max_ticks: u64) -> i64 {
    let difference = tick.checked_sub(map_tick);
    if let Some(residual) = difference.and_then(|difference| i64::try_from(difference).ok()) {
        return residual;
    }
    let modulus = i128::from(max_ticks) + 1;
    let forward = (tick.rem_euclid(modulus) - map_tick.rem_euclid(modulus)).rem_euclid(modulus);
    // At most 2⁶⁴ − 1, and 2⁶⁴ less than itself where it is more than 2⁶³ − 1.
    i64::try_from(forward).unwrap_or_else(|_| (forward - modulus) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_take_the_short_way_round() {
        assert_eq!(distance(98, 3, 99), 5);
        assert_eq!(distance(3, 98, 99), -5);
        assert_eq!(distance(10, 60, 99), 50);
        assert_eq!(distance(u64::MAX, 1, u64::MAX), 2);
        assert_eq!(distance(1, u64::MAX, u64::MAX), -2);
        assert_eq!(distance(0, 0, 0), 0);
        assert_eq!(distance(u64::MAX - 1, 0, u64::MAX - 1), 1);
    }

    #[test]
    fn a_residual_of_any_size_gives_the_tick_back() {
        let ticks = [0, 1, 99, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        let of_map = [i128::MIN, -1 << 100, -1, 0, 7, 1 << 64, 1 << 100, i128::MAX];
        for max_ticks in [0, 1, 98, 99, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            let modulus = i128::from(max_ticks) + 1;
            for tick in ticks.iter().filter(|tick| **tick <= max_ticks) {
                for map_tick in of_map {
                    let residual = residual((*tick).into(), map_tick, max_ticks);
                    let sum = map_tick.rem_euclid(modulus) + i128::from(residual);
                    assert_eq!(
                        sum.rem_euclid(modulus),
                        i128::from(*tick),
                        "{map_tick} {max_ticks}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_tie_is_positive_but_for_full_width_clocks() {
        assert_eq!(distance(0, 5, 9), 5);
        assert_eq!(distance(5, 0, 9), 5);
        assert_eq!(distance(0, 1 << 63, u64::MAX), i64::MIN);
        assert_eq!(distance(1 << 63, 0, u64::MAX), i64::MIN);
        assert_eq!(distance(0, 14, 9), 4);
    }

    #[test]
    fn hostile_expectations_do_not_overflow() {
        for expected in [i128::MIN, i128::MAX] {
            for max_ticks in [0, 99, u64::MAX] {
                let (unwrapped, _) = unwrap_near(5, expected, max_ticks);
                assert_eq!(unwrapped > 0, expected > 0);
            }
        }
    }

    #[test]
    fn unwrapping_finds_the_nearest_turn() {
        assert_eq!(unwrap_near(5, 1003, 99), (1005, false));
        assert_eq!(unwrap_near(98, 1003, 99), (998, false));
        assert_eq!(unwrap_near(5, -3, 99), (5, false));
        assert_eq!(unwrap_near(95, -3, 99), (-5, false));
        assert!(unwrap_near(50, 1000, 99).1);
        assert_eq!(
            unwrap_near(3, i128::from(u64::MAX) + 2, u64::MAX).0,
            i128::from(u64::MAX) + 4
        );
    }
}
