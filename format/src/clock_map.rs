//! Ticks to trace time and back, in integers.

use crate::definitions::ClockMap;

/// A piecewise linear map through knots; beyond the first and last knot the nearest piece goes on.
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

    /// Trace time of an unwrapped tick, nanoseconds: rounded down, saturating at the ends of `i64`.
    #[inline]
    pub fn time_ns(&mut self, tick: i128) -> i64 {
        self.seek(|knot| tick < knot.0);
        let (tick_a, time_a) = self.map.knots[self.piece];
        let (tick_b, time_b) = self.map.knots[self.piece + 1];
        scale(tick, tick_a, tick_b, time_a.into(), time_b.into())
            .clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The unwrapped tick that stands for a trace time: an event's own tick is this plus its residual.
    #[inline]
    pub fn tick(&mut self, time_ns: i64) -> i128 {
        self.seek(|knot| time_ns < knot.1);
        let (tick_a, time_a) = self.map.knots[self.piece];
        let (tick_b, time_b) = self.map.knots[self.piece + 1];
        scale(time_ns.into(), time_a.into(), time_b.into(), tick_a, tick_b)
    }
}

/// `to_a + (from − from_a) · (to_b − to_a) / (from_b − from_a)`, rounded down.
#[inline]
fn scale(from: i128, from_a: i128, from_b: i128, to_a: i128, to_b: i128) -> i128 {
    let distance = from - from_a;
    let (rise, run) = (to_b - to_a, from_b - from_a);
    let product = distance.saturating_mul(rise);
    // 64-bit division is several times faster, and almost always enough.
    if let (Ok(product), Ok(run)) = (i64::try_from(product), i64::try_from(run)) {
        return to_a + i128::from(product.div_euclid(run));
    }
    to_a + product.div_euclid(run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ClockId;

    fn map(knots: &[(i128, i64)]) -> ClockMap {
        ClockMap {
            clock: ClockId::new(0),
            error_ns: 0,
            knots: knots.to_vec(),
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
    fn extreme_ticks_saturate() {
        let map = map(&[(0, 0), (1, 1_000_000_000)]);
        let mut cursor = MapCursor::new(&map);
        assert_eq!(cursor.time_ns(i128::MAX / 2), i64::MAX);
        assert_eq!(cursor.time_ns(i128::MIN / 2), i64::MIN);
    }
}
