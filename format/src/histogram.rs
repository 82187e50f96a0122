//! Log-linear histograms: percentiles in bounded memory.

use crate::error::{FormatError, Result};

/// Buckets of every power of two: percentiles are within 1/64 of the truth.
const BUCKETS: u64 = 32;

/// Numbers of buckets are below this: that of the largest value of 63 bits is the last.
const BUCKET_COUNT: usize = 1888;

/// A log-linear histogram of values that are not negative, as HdrHistogram has it. Percentiles are within 1.6 % of the exact
/// ones (nearest rank), and exact below 64.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Histogram {
    count: u64,
    sum: i128,
    min: i64,
    max: i64,
    /// Bucket of the first of `counts`.
    first: usize,
    counts: Vec<u64>,
}

fn bucket_of(value: u64) -> usize {
    if value < 2 * BUCKETS {
        return value as usize;
    }
    let shift = value.ilog2() - BUCKETS.ilog2();
    (u64::from(shift) * BUCKETS + (value >> shift)) as usize
}

/// Returns the middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * BUCKETS {
        return bucket;
    }
    let shift = bucket / BUCKETS - 1;
    let low = (bucket - shift * BUCKETS) << shift;
    low + (1 << shift) / 2
}

impl Histogram {
    /// Makes a histogram of what a file has of it: the smallest and the largest value and the sum of all, and the number of
    /// values of some buckets, by number of the bucket.
    ///
    /// # Errors
    /// If there is no such histogram.
    pub(crate) fn from_parts(
        min: i64,
        max: i64,
        sum: i64,
        buckets: impl Iterator<Item = (u64, u64)>,
    ) -> Result<Self> {
        let mut histogram = Self {
            min,
            max,
            sum: sum.into(),
            ..Self::default()
        };
        for (bucket, count) in buckets {
            let number = usize::try_from(bucket).unwrap_or(usize::MAX);
            let lowest = histogram.first + histogram.counts.len();
            let is_next = number < BUCKET_COUNT && (histogram.count == 0 || number >= lowest);
            let all = histogram.count.checked_add(count).filter(|_| count != 0);
            let (Some(all), true) = (all, is_next) else {
                let expected = "ascending buckets below 1888, counts whose sum has 64 bits";
                return Err(FormatError::invalid(0, expected, bucket));
            };
            histogram.count_in(number, count);
            histogram.count = all;
        }
        Ok(histogram)
    }

    /// Buckets from the lowest that has values to the highest.
    pub(crate) const fn slots(&self) -> usize {
        self.counts.len()
    }

    /// Returns how many values each bucket has that has any, by number of the bucket, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let counts = counts.filter(|(_, count)| **count != 0);
        counts.map(|(at, count)| ((self.first + at) as u64, *count))
    }

    /// Takes a value in; one below 0 counts as 0 for percentiles.
    #[inline]
    pub fn add(&mut self, value: i64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count_in(bucket_of(value.max(0) as u64), 1);
    }

    #[inline]
    fn count_in(&mut self, bucket: usize, count: u64) {
        match self.counts.get_mut(bucket.wrapping_sub(self.first)) {
            Some(counted) => *counted += count,
            None => self.count_beyond(bucket, count),
        }
    }

    /// Counts in a bucket below the first, or above the last so far.
    #[cold]
    fn count_beyond(&mut self, bucket: usize, count: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = self.first - bucket;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    /// Takes in what another has.
    pub fn add_all(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (other.min, other.max);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        // Both ends are there then, and all buckets in between.
        self.count_in(other.first, 0);
        self.count_in(other.first + other.counts.len().saturating_sub(1), 0);
        let own = self.counts.iter_mut().skip(other.first - self.first);
        for (own, count) in own.zip(&other.counts) {
            *own += count;
        }
    }

    /// Returns the number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns their sum, which saturates at the ends of 64 bits.
    pub fn sum(&self) -> i64 {
        self.sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Returns the smallest; `None` without values.
    pub fn min(&self) -> Option<i64> {
        (self.count != 0).then_some(self.min)
    }

    /// Returns the largest.
    pub fn max(&self) -> Option<i64> {
        (self.count != 0).then_some(self.max)
    }

    /// Returns the mean, rounded towards 0.
    pub fn mean(&self) -> Option<i64> {
        (self.count != 0).then(|| (self.sum / i128::from(self.count)) as i64)
    }

    /// Returns the smallest value that at least `percent` percent of the values do not exceed.
    pub fn percentile(&self, percent: u32) -> Option<i64> {
        let rank = (u128::from(self.count) * u128::from(percent))
            .div_ceil(100)
            .max(1);
        let mut passed = 0_u128;
        for (at, count) in self.counts.iter().enumerate() {
            passed += u128::from(*count);
            if passed >= rank {
                let value = value_of(self.first + at).min(i64::MAX as u64) as i64;
                return Some(value.clamp(self.min, self.max));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_below_their_number() {
        assert_eq!(bucket_of(i64::MAX as u64), BUCKET_COUNT - 1);
    }

    #[test]
    fn percentiles_are_near_the_exact_ones() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for bits in [3, 10, 30, 62] {
            for count in [1, 2, 7, 100, 5000] {
                let mut values: Vec<i64> =
                    (0..count).map(|_| (next() >> (64 - bits)) as i64).collect();
                let (mut whole, mut half) = (
                    Histogram::default(),
                    [Histogram::default(), Histogram::default()],
                );
                for (index, value) in values.iter().enumerate() {
                    whole.add(*value);
                    half[index % 2].add(*value);
                }
                let [mut sum, other] = half;
                sum.add_all(&other);
                values.sort_unstable();
                for percent in [1, 50, 95, 99, 100] {
                    let rank = (values.len() * percent as usize).div_ceil(100).max(1);
                    let exact = values[rank - 1];
                    let found = whole.percentile(percent).unwrap();
                    assert!(
                        found.abs_diff(exact) <= exact as u64 / 63,
                        "{found} for {exact}"
                    );
                    assert_eq!(sum.percentile(percent), Some(found));
                }
                assert_eq!(
                    (whole.min(), whole.max()),
                    (values.first().copied(), values.last().copied())
                );
                assert_eq!((sum.count(), sum.sum()), (whole.count(), whole.sum()));
            }
        }
        assert_eq!(Histogram::default().percentile(50), None);
    }
}
