//! Counts of single durations: exact below 1 024 ticks, then within 1.6 %.

/// Bits of a value that are kept.
const KEPT: u32 = 6;
const EXACT: u64 = 1 << 10;
const SLOTS: usize = EXACT as usize + (64 - 10) * (1 << KEPT);

/// A histogram of ticks.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u32]>,
    max: u64,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; SLOTS].into(),
            max: 0,
            sum: 0,
        }
    }
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub(crate) fn add(&mut self, ticks: u64) {
        let slot = &mut self.counts[slot_of(ticks)];
        *slot = slot.saturating_add(1);
        self.max = self.max.max(ticks);
        self.sum += 1;
    }

    /// Returns how many were counted.
    pub(crate) const fn count(&self) -> u64 {
        self.sum
    }

    /// Returns the longest, ticks.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// Returns the duration that this part (of 1) of all does not exceed, ticks.
    pub(crate) fn quantile(&self, part: f64) -> u64 {
        let wanted = (part * self.sum as f64).ceil() as u64;
        let mut seen = 0;
        for (slot, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted.max(1) {
                return start_of(slot).min(self.max);
            }
        }
        self.max
    }
}

const fn slot_of(ticks: u64) -> usize {
    if ticks < EXACT {
        return ticks as usize;
    }
    let power = ticks.ilog2();
    let kept = ticks >> (power - KEPT) & ((1 << KEPT) - 1);
    EXACT as usize + ((power as usize - 10) << KEPT) + kept as usize
}

/// Returns the least duration of a slot.
const fn start_of(slot: usize) -> u64 {
    if slot < EXACT as usize {
        return slot as u64;
    }
    let above = slot - EXACT as usize;
    let power = 10 + (above >> KEPT) as u32;
    let kept = above as u64 & ((1 << KEPT) - 1);
    (1 << KEPT | kept) << (power - KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_found_within_its_slot() {
        for power in 0..64 {
            for ticks in [1_u64 << power, (1 << power) + (1 << power) / 3] {
                let start = start_of(slot_of(ticks));
                assert!(start <= ticks && ticks - start <= ticks / 64, "{ticks}");
            }
        }
        assert!(slot_of(u64::MAX) < SLOTS);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_durations() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ticks| histogram.add(ticks));
        assert_eq!(histogram.quantile(0.5), 500);
        assert_eq!(histogram.quantile(0.999), 999);
        assert_eq!(histogram.max(), 1000);
        assert_eq!(histogram.count(), 1000);
    }
}
