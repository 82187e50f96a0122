//! Bins: equal parts of a time window.

use annals_merger::{Reader, Window};

/// Returns the part of a window in which the trace lies: bins are made of it.
pub fn bounded(reader: &Reader, window: Window) -> Window {
    Window {
        from_ns: if window.from_ns == i64::MIN {
            0
        } else {
            window.from_ns
        },
        to_ns: if window.to_ns == i64::MAX {
            reader.extent().end_ns.saturating_add(1)
        } else {
            window.to_ns
        },
    }
}

/// Returns the number of the bin of a time. Times outside of the window belong to the first or the last bin.
pub fn bin_of(window: Window, bins: usize, time_ns: i64) -> usize {
    let span = i128::from(window.to_ns) - i128::from(window.from_ns);
    let passed = i128::from(time_ns) - i128::from(window.from_ns);
    let bin = passed * bins as i128 / span.max(1);
    bin.clamp(0, bins as i128 - 1) as usize
}

/// Returns the time at which a bin starts, nanoseconds.
pub fn bin_start(window: Window, bins: usize, bin: usize) -> i64 {
    let span = i128::from(window.to_ns) - i128::from(window.from_ns);
    let passed = (span * bin as i128).div_euclid(bins.max(1) as i128);
    (i128::from(window.from_ns) + passed) as i64
}
