//! Round times for the axis of a timeline.

use annals_merger::Window;

/// A mark of the axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tick {
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// The time with its unit.
    pub label: String,
}

/// Units of labels: their length in powers of ten of a nanosecond, and their name.
const UNITS: [(u32, &str); 4] = [(9, "s"), (6, "ms"), (3, "us"), (0, "ns")];

/// Returns at most `most` round times in a window, at distances of 1, 2 or 5 times a power of ten.
pub fn ticks(window: Window, most: usize) -> Vec<Tick> {
    let (from_ns, to_ns) = (i128::from(window.from_ns), i128::from(window.to_ns));
    let span = to_ns - from_ns;
    if span <= 0 {
        return Vec::new();
    }
    let steps =
        (0..=18).flat_map(|power| [1, 2, 5].map(|digit| (digit * 10_i128.pow(power), power)));
    let mut fitting = steps.filter(|(step, _)| span / step < most.max(1) as i128);
    let Some((step, power)) = fitting.next() else {
        return Vec::new();
    };
    // The unit in which the last label has at least one digit before the point.
    let largest = from_ns.abs().max(to_ns.abs());
    let unit = UNITS.iter().find(|(unit, _)| largest >= 10_i128.pow(*unit));
    let (unit, name) = unit.copied().unwrap_or((0, "ns"));
    let decimals = unit.saturating_sub(power) as usize;
    let first = from_ns.div_euclid(step) + i128::from(from_ns.rem_euclid(step) != 0);
    let times = (first..).map(|number| number * step);
    let times = times.take_while(|time_ns| *time_ns < to_ns);
    let tick = |time_ns: i128| {
        let scale = 10_i128.pow(unit);
        let (whole, rest) = (time_ns.abs() / scale, time_ns.abs() % scale);
        let rest = format!("{rest:0width$}", width = unit as usize);
        let sign = if time_ns < 0 { "-" } else { "" };
        let label = match decimals {
            0 => format!("{sign}{whole} {name}"),
            _ => format!("{sign}{whole}.{} {name}", &rest[..decimals]),
        };
        Tick {
            time_ns: time_ns as i64,
            label,
        }
    };
    times.map(tick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from_ns: i64, to_ns: i64, most: usize) -> Vec<String> {
        let found = ticks(Window { from_ns, to_ns }, most);
        found.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(0, 1_429_000_000, 8),
            [
                "0.0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1.0 s", "1.2 s", "1.4 s"
            ]
        );
        assert_eq!(labels(3, 40, 4), ["10 ns", "20 ns", "30 ns"]);
        assert_eq!(
            labels(1_221_300_000, 1_221_700_000, 5),
            ["1.2213 s", "1.2214 s", "1.2215 s", "1.2216 s"]
        );
        assert_eq!(labels(-1500, 1500, 4), ["-1 us", "0 us", "1 us"]);
        assert_eq!(labels(0, 0, 4), [""; 0]);
    }

    #[test]
    fn the_longest_window_has_ticks() {
        let count = labels(i64::MIN, i64::MAX, 8).len();
        assert!((2..=8).contains(&count), "{count}");
    }
}
