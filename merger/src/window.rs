//! A window of trace time: what a question is about; and slices of it.

use annals_format::Slice;

/// One of several slices of a merge's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceNumber {
    /// Which slice, from 1.
    pub number: u32,
    /// How many slices there are.
    pub of: u32,
}

/// A window of trace time, nanoseconds: from ≤ time < to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// First moment.
    pub from_ns: i64,
    /// First moment after the window.
    pub to_ns: i64,
}

impl Default for Window {
    fn default() -> Self {
        Self::ALL
    }
}

impl Window {
    /// All of time.
    pub const ALL: Self = Self {
        from_ns: i64::MIN,
        to_ns: i64::MAX,
    };

    /// Returns the stretch of time that a slice has.
    pub(crate) fn of_slice(slice: &Slice) -> Self {
        Self {
            from_ns: slice.from_ns.unwrap_or(i64::MIN),
            to_ns: slice.to_ns.unwrap_or(i64::MAX),
        }
    }

    /// Returns whether a time lies within.
    pub const fn contains(&self, time_ns: i64) -> bool {
        self.overlaps(time_ns, time_ns)
    }

    /// Returns whether a stretch of time, both ends included, has a part within. The end of time ends no window.
    pub const fn overlaps(&self, first_ns: i64, last_ns: i64) -> bool {
        self.from_ns <= last_ns && (first_ns < self.to_ns || self.to_ns == i64::MAX)
    }

    /// Returns how much of an interval lies within, nanoseconds.
    #[inline]
    pub fn clip(&self, from_ns: i64, to_ns: i64) -> i64 {
        let (from_ns, to_ns) = (from_ns.max(self.from_ns), to_ns.min(self.to_ns));
        to_ns.saturating_sub(from_ns).max(0)
    }
}
