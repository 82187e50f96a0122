//! Ticks to trace time and back, in integers.

use crate::definitions::ClockMap;
use crate::ticks::residual;

/// A piecewise linear map through knots; the first and last pieces extend beyond the outer knots.
/// Monotone: a later tick never gets an earlier time.
#[derive(Clone, Debug)]
pub struct MapCursor<'a> {
    map: &'a ClockMap,
    piece: usize,
}

impl<'a> MapCursor<'a> {
    /// Starts at the first piece; asking in ascending order is fast.
    pub const fn new(map: &'a ClockMap) -> Self {
        Self { map, piece: 0 }
    }

    fn seek(&mut self, is_before: impl Fn(&(i128, i64)) -> bool) {
        let knots = &self.map.knots;
        let is_right = |piece: usize| {
            (piece == 0 || !is_before(&knots[piece]))
                && (piece + 2 >= knots.len() || is_before(&knots[piece + 1]))
        };
        if !is_right(self.piece) {
            let behind = knots.partition_point(|knot| !is_before(knot));
            self.piece = behind.saturating_sub(1).min(knots.len() - 2);
        }
    }

    /// Returns the trace time of an unwrapped tick, nanoseconds: rounded down, saturating at the
    /// ends of `i64`.
    #[inline]
    pub fn time_ns(&mut self, tick: i128) -> i64 {
        self.seek(|knot| tick < knot.0);
        let (tick_a, time_a) = self.map.knots[self.piece];
        let (tick_b, time_b) = self.map.knots[self.piece + 1];
        scale(tick, tick_a, tick_b, time_a.into(), time_b.into())
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Appends the trace times of unwrapped ticks of a clock, and their residuals: what [`MapCursor::time_ns`] and
    /// [`MapCursor::residual`] return for each, only faster.
    pub fn convert(
        &mut self,
        ticks: &[u64],
        max_ticks: u64,
        times_ns: &mut Vec<i64>,
        residuals: &mut Vec<i64>,
    ) {
        let first = times_ns.len();
        times_ns.resize(first + ticks.len(), 0);
        let before = residuals.len();
        residuals.resize(before + ticks.len(), 0);
        let places = times_ns[first..].iter_mut().zip(&mut residuals[before..]);
        let mut fast = FastPiece::NONE;
        for (&tick, (time, residual)) in ticks.iter().zip(places) {
            if let Some(found) = fast.convert(tick) {
                (*time, *residual) = found;
                continue;
            }
            let unwrapped = i128::from(tick);
            *time = self.time_ns(unwrapped);
            let piece = self.piece;
            *residual = self.residual(unwrapped, *time, max_ticks);
            fast = FastPiece::of(self.map, piece).unwrap_or(FastPiece::NONE);
        }
    }

    /// Returns the residual of an unwrapped tick at a trace time: added to [`MapCursor::tick`] of that time, it yields
    /// the raw tick back, modulo (`max_ticks` + 1).
    pub fn residual(&mut self, tick: i128, time_ns: i64, max_ticks: u64) -> i64 {
        residual(tick, self.tick(time_ns), max_ticks)
    }

    /// Returns the unwrapped tick that corresponds to a trace time: an event's own tick is this plus its residual.
    #[inline]
    pub fn tick(&mut self, time_ns: i64) -> i128 {
        self.seek(|knot| time_ns < knot.1);
        let (tick_a, time_a) = self.map.knots[self.piece];
        let (tick_b, time_b) = self.map.knots[self.piece + 1];
        scale(time_ns.into(), time_a.into(), time_b.into(), tick_a, tick_b)
    }
}

/// A piece whose ticks and times are small enough for 64 bits: divisions by its run and its rise become
/// multiplications.
#[derive(Clone, Copy)]
struct FastPiece {
    tick_a: u64,
    time_a: i64,
    run: Divisor,
    rise: Divisor,
    /// Distances below this lie in the piece, and their products fit.
    end: u64,
}

impl FastPiece {
    const NONE: Self = Self {
        tick_a: 0,
        time_a: 0,
        run: Divisor::ONE,
        rise: Divisor::ONE,
        end: 0,
    };

    fn of(map: &ClockMap, piece: usize) -> Option<Self> {
        let (tick_a, time_a) = *map.knots.get(piece)?;
        let (tick_b, time_b) = *map.knots.get(piece + 1)?;
        let run = u64::try_from(tick_b.checked_sub(tick_a)?).ok()?;
        let rise = u64::try_from(time_b.checked_sub(time_a)?).ok()?;
        let (run_by, rise_by) = (Divisor::new(run)?, Divisor::new(rise)?);
        Some(Self {
            tick_a: u64::try_from(tick_a).ok()?,
            time_a,
            run: run_by,
            rise: rise_by,
            end: run.min(u64::MAX / rise),
        })
    }

    /// Returns trace time and residual of a tick within this piece.
    #[inline]
    fn convert(&self, tick: u64) -> Option<(i64, i64)> {
        let distance = tick.checked_sub(self.tick_a).filter(|d| *d < self.end)?;
        let passed = self.run.divide(distance * self.rise.divisor);
        // Not above `distance · rise`: the dividend was computed from it, rounded down.
        let back = self.rise.divide(passed * self.run.divisor);
        Some((self.time_a + passed as i64, (distance - back) as i64))
    }
}

/// Exact division by an invariant number: the reciprocal rounded down results in a quotient that is too small by two at
/// most.
#[derive(Clone, Copy)]
struct Divisor {
    divisor: u64,
    reciprocal: u64,
}

impl Divisor {
    const ONE: Self = Self {
        divisor: 1,
        reciprocal: u64::MAX,
    };

    /// Prepares the division by `divisor`. Returns `None` for 0.
    fn new(divisor: u64) -> Option<Self> {
        let reciprocal = u64::MAX.checked_div(divisor)?;
        Some(Self {
            divisor,
            reciprocal,
        })
    }

    #[inline]
    fn divide(self, number: u64) -> u64 {
        let mut quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        let mut rest = number - quotient * self.divisor;
        while rest >= self.divisor {
            rest -= self.divisor;
            quotient += 1;
        }
        quotient
    }
}

/// Computes `to_a + ⌊(from − from_a) · (to_b − to_a) / (from_b − from_a)⌋` exactly, then clamps it
/// to 128 bits.
#[inline]
fn scale(from: i128, from_a: i128, from_b: i128, to_a: i128, to_b: i128) -> i128 {
    let differences = (
        from.checked_sub(from_a),
        to_b.checked_sub(to_a),
        from_b.checked_sub(from_a),
    );
    if let (Some(distance), Some(rise), Some(run @ 1..)) = differences
        && let Some(product) = distance.checked_mul(rise)
    {
        // 64-bit division is several times faster, and almost always enough.
        if let (Ok(product), Ok(run)) = (i64::try_from(product), i64::try_from(run)) {
            return to_a.saturating_add(i128::from(product.div_euclid(run)));
        }
        return to_a.saturating_add(product.div_euclid(run));
    }
    scale_wide(from, from_a, from_b, to_a, to_b)
}

/// Computes [`scale`] if a difference or the product needs more than 128 bits; a map that does not
/// rise is constant.
#[cold]
fn scale_wide(from: i128, from_a: i128, from_b: i128, to_a: i128, to_b: i128) -> i128 {
    if from_b <= from_a || to_b <= to_a {
        return to_a;
    }
    let (rise, run) = (to_b.abs_diff(to_a), from_b.abs_diff(from_a));
    let (quotient, has_rest) = mul_div(from.abs_diff(from_a), rise, run);
    if from >= from_a {
        to_a.saturating_add_unsigned(quotient)
    } else {
        to_a.saturating_sub_unsigned(quotient.saturating_add(has_rest.into()))
    }
}

/// Computes `a · b / c` and whether the division leaves a rest; `u128::MAX` when it does not fit.
fn mul_div(a: u128, b: u128, c: u128) -> (u128, bool) {
    const HALF: u32 = 64;
    const LOW: u128 = u64::MAX as u128;
    let (a_high, a_low, b_high, b_low) = (a >> HALF, a & LOW, b >> HALF, b & LOW);
    let low_low = a_low * b_low;
    let middle = a_low * b_high + (low_low >> HALF);
    let cross = a_high * b_low + (middle & LOW);
    let high = a_high * b_high + (middle >> HALF) + (cross >> HALF);
    let low = cross << HALF | low_low & LOW;
    if high >= c {
        return (u128::MAX, true);
    }
    // Long division, bit by bit: the rest stays below `c`, so that doubling it shifts out one bit at most.
    let (mut rest, mut quotient) = (high, 0);
    for bit in (0..u128::BITS).rev() {
        let carries = rest >> 127 == 1;
        rest = rest << 1 | low >> bit & 1;
        quotient <<= 1;
        if carries || rest >= c {
            rest = rest.wrapping_sub(c);
            quotient |= 1;
        }
    }
    (quotient, rest != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClockId;

    fn map(knots: &[(i128, i64)]) -> ClockMap {
        ClockMap {
            clock: ClockId::new(0),
            error_ns: 0,
            knots: knots.into(),
        }
    }

    #[test]
    fn pieces_join_and_the_ends_go_on() {
        let map = map(&[(0, 1000), (100, 1200), (200, 1250)]);
        let mut cursor = MapCursor::new(&map);
        let times = [-50, 0, 50, 100, 150, 200, 300].map(|tick| cursor.time_ns(tick));
        assert_eq!(times, [900, 1000, 1100, 1200, 1225, 1250, 1300]);
        assert_eq!(cursor.time_ns(50), 1100);
        let ticks = [900, 1000, 1200, 1250, 1300].map(|time| cursor.tick(time));
        assert_eq!(ticks, [-50, 0, 100, 200, 300]);
    }

    #[test]
    fn the_map_is_monotone_for_a_fast_clock() {
        let map = map(&[(7, 0), (2_596_000_007, 1_000_000_003)]);
        let mut cursor = MapCursor::new(&map);
        let mut last = i64::MIN;
        for tick in (0..100_000_i128).map(|n| n * 7919) {
            let time = cursor.time_ns(tick);
            assert!(time >= last);
            last = time;
        }
    }

    #[test]
    fn times_beyond_64_bits_are_clamped_behind_a_late_knot() {
        let map = map(&[(0, 5), (1, 1_000_000_000)]);
        let mut cursor = MapCursor::new(&map);
        for tick in [i128::MAX, i128::MAX / 2] {
            assert_eq!(cursor.time_ns(tick), i64::MAX);
            assert_eq!(cursor.time_ns(-tick), i64::MIN);
        }
    }

    #[test]
    fn maps_as_wide_as_128_bits_are_exact() {
        let map = map(&[(i128::MIN, 0), (i128::MAX, 10)]);
        let mut cursor = MapCursor::new(&map);
        let ticks = [i128::MIN, -1, 0, i128::MAX - 1, i128::MAX];
        assert_eq!(ticks.map(|tick| cursor.time_ns(tick)), [0, 4, 5, 9, 10]);
        // 2 · (2¹²⁸ − 1) ∕ 10 above the first knot, rounded down.
        assert_eq!(cursor.tick(2), i128::MIN + (u128::MAX / 5) as i128);
        assert_eq!(cursor.tick(i64::MAX), i128::MAX);
        assert_eq!(cursor.tick(i64::MIN), i128::MIN);
    }

    #[test]
    fn a_map_that_does_not_rise_stays() {
        let map = map(&[(7, 3), (7, 3)]);
        assert_eq!(MapCursor::new(&map).time_ns(100), 3);
        assert_eq!(MapCursor::new(&map).tick(100), 7);
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn wide_and_narrow_arithmetic_agree(
            from: i64, from_a: i64, run in 1..i64::MAX, to_a: i64, rise in 1..i64::MAX,
        ) {
            let [from, from_a, run, to_a, rise] = [from, from_a, run, to_a, rise].map(i128::from);
            let narrow = scale(from, from_a, from_a + run, to_a, to_a + rise);
            let wide = scale_wide(from, from_a, from_a + run, to_a, to_a + rise);
            prop_assert_eq!(narrow, wide);
        }

        #[test]
        fn many_ticks_convert_as_one_by_one(
            knots in prop::collection::vec((1..3_000_000_000_u64, 0..2_000_000_000_u64), 2..5),
            start in (0..u64::MAX / 2, -1_000_000_000_i64..1 << 40),
            ticks in prop::collection::vec(0..12_000_000_000_u64, 1..200),
        ) {
            let (mut tick, mut time) = (i128::from(start.0), start.1);
            let mut pairs = vec![(tick, time)];
            for (run, rise) in knots {
                tick += i128::from(run);
                time += rise as i64;
                pairs.push((tick, time));
            }
            let map = map(&pairs);
            let ticks: Vec<u64> = ticks.into_iter().map(|t| t.wrapping_add(start.0).wrapping_sub(1 << 30)).collect();
            let (mut times, mut residuals) = (Vec::new(), Vec::new());
            MapCursor::new(&map).convert(&ticks, u64::MAX, &mut times, &mut residuals);
            for (index, tick) in ticks.iter().enumerate() {
                let mut cursor = MapCursor::new(&map);
                let time = cursor.time_ns((*tick).into());
                prop_assert_eq!(times[index], time);
                prop_assert_eq!(i128::from(residuals[index]), i128::from(*tick) - cursor.tick(time));
            }
        }

        #[test]
        fn division_is_exact(number: u64, divisor in 1..=u64::MAX, small in 1..1000_u64) {
            for divisor in [divisor, small] {
                prop_assert_eq!(Divisor::new(divisor).unwrap().divide(number), number / divisor);
            }
        }

        #[test]
        fn no_map_overflows(from: i128, from_a: i128, from_b: i128, to_a: i128, to_b: i128) {
            scale(from, from_a, from_b, to_a, to_b);
        }
    }

    #[test]
    fn extreme_ticks_saturate() {
        let map = map(&[(0, 0), (1, 1_000_000_000)]);
        let mut cursor = MapCursor::new(&map);
        assert_eq!(cursor.time_ns(i128::MAX / 2), i64::MAX);
        assert_eq!(cursor.time_ns(i128::MIN / 2), i64::MIN);
    }
}
