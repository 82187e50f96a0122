//! Sums by bin of time, of which only as many are kept as fit: the bins become longer instead.
//!
//! The result does not depend on the order of the additions: a level is given up only if the sums that it has already are too many.

use std::hash::Hash;

use annals_format::MAX_BIN_LEVEL;
use rustc_hash::FxHashMap;

/// A sum that another one can be added to.
pub(super) trait Sum: Clone + Default {
    /// Adds another sum.
    fn merge(&mut self, other: Self);
}

/// A row: the level and the number of its bin, what its sum is of, the sum.
pub(super) type Row<K, S> = (u8, i64, K, S);

/// Sums by key and bin.
#[derive(Debug)]
pub(super) struct BinTable<K, S> {
    level: u8,
    /// Most sums of a level that is kept.
    most: usize,
    sums: FxHashMap<(K, i64), S>,
    /// There are more keys than that.
    is_full: bool,
}

impl<K: Copy + Ord + Hash, S: Sum> BinTable<K, S> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            level: 0,
            most,
            sums: FxHashMap::default(),
            is_full: false,
        }
    }

    /// Creates a table without sums that can be merged into this one.
    pub(super) fn empty(&self) -> Self {
        Self {
            level: self.level,
            is_full: self.is_full,
            ..Self::new(self.most)
        }
    }

    /// Returns the number of sums.
    pub(super) fn len(&self) -> usize {
        self.sums.len()
    }

    /// Returns the sum of a key at a time. `None` if no level has room for all keys.
    #[inline]
    pub(super) fn at(&mut self, key: K, time_ns: i64) -> Option<&mut S> {
        if self.sums.len() > self.most {
            self.lengthen();
        }
        if self.is_full {
            return None;
        }
        let bin = time_ns >> self.level;
        Some(self.sums.entry((key, bin)).or_default())
    }

    /// Adds the sums of another table. The result is that of one table to which all was added.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.is_full |= other.is_full;
        if self.is_full {
            self.sums.clear();
            return;
        }
        let level = self.level.max(other.level);
        for table in [&mut *self, &mut other] {
            if table.level < level {
                let mut sums = sorted(&mut table.sums);
                (table.level..level).for_each(|_| join(&mut sums));
                table.sums.extend(sums);
                table.level = level;
            }
        }
        for (key, sum) in other.sums {
            self.sums.entry(key).or_default().merge(sum);
        }
        if self.sums.len() > self.most {
            self.lengthen();
        }
    }

    /// Drops levels that have too many rows, with those above, already now. About half of the room is free then.
    fn lengthen(&mut self) {
        let mut sums = sorted(&mut self.sums);
        let Some(up) = least(&counts(&sums, self.level), self.most) else {
            self.is_full = true;
            return;
        };
        (0..up).for_each(|_| join(&mut sums));
        self.level += up as u8;
        self.sums.extend(sums);
    }

    /// Returns the least level from which on all levels together have at most `most` rows, and the rows, level by level, of each
    /// level up to the first of which one bin has everything. `None` if there is no such level.
    pub(super) fn finish(mut self, most: usize) -> Option<(u8, Vec<Row<K, S>>)> {
        if self.is_full {
            return None;
        }
        let mut sums = sorted(&mut self.sums);
        if sums.is_empty() {
            return Some((0, Vec::new()));
        }
        let counts = counts(&sums, self.level);
        let least = least(&counts, most)?;
        let mut found = Vec::with_capacity(counts[least..].iter().sum());
        for up in 0..counts.len() {
            let level = self.level + up as u8;
            if up >= least {
                let of_level = sums.iter().cloned();
                found.extend(of_level.map(|((key, bin), sum)| (level, bin, key, sum)));
            }
            join(&mut sums);
        }
        Some((self.level + least as u8, found))
    }
}

/// Returns the number of rows of each level from that of the sums up to the first of which one bin has everything.
fn counts<K: Copy + Ord, S>(sums: &[((K, i64), S)], level: u8) -> Vec<usize> {
    let mut bins: Vec<(K, i64)> = sums.iter().map(|sum| sum.0).collect();
    let first = bins.iter().map(|bin| bin.1).min().unwrap_or(0);
    let last = bins.iter().map(|bin| bin.1).max().unwrap_or(0);
    let most_up = MAX_BIN_LEVEL - level;
    let top = (0..most_up).find(|up| first >> up == last >> up);
    let mut counts = vec![bins.len()];
    for _ in 0..top.unwrap_or(most_up) {
        bins.iter_mut().for_each(|bin| bin.1 >>= 1);
        bins.dedup();
        counts.push(bins.len());
    }
    counts
}

/// Returns the number of the first level that has at most `most` rows with those above. `None` if there is none.
fn least(counts: &[usize], most: usize) -> Option<usize> {
    let mut rows = 0;
    let fits = |count: &&usize| {
        rows += **count;
        rows <= most
    };
    let fitting = counts.iter().rev().take_while(fits).count();
    (fitting > 0).then(|| counts.len() - fitting)
}

/// Takes all sums, in order.
fn sorted<K: Copy + Ord + Hash, S>(sums: &mut FxHashMap<(K, i64), S>) -> Vec<((K, i64), S)> {
    let mut all: Vec<((K, i64), S)> = sums.drain().collect();
    all.sort_unstable_by_key(|sum| sum.0);
    all
}

/// Makes bins twice as long.
fn join<K: Copy + Ord, S: Sum>(sums: &mut Vec<((K, i64), S)>) {
    sums.iter_mut().for_each(|sum| sum.0.1 >>= 1);
    sums.dedup_by(|later, sum| {
        let is_same = later.0 == sum.0;
        if is_same {
            sum.1.merge(std::mem::take(&mut later.1));
        }
        is_same
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    impl Sum for u64 {
        fn merge(&mut self, other: Self) {
            *self += other;
        }
    }

    /// Returns the rows of a level.
    fn level_of(values: &[(u32, i64)], level: u8) -> BTreeMap<(i64, u32), u64> {
        let mut rows = BTreeMap::new();
        for (key, time_ns) in values {
            *rows.entry((time_ns >> level, *key)).or_default() += 1;
        }
        rows
    }

    proptest! {
        #[test]
        fn the_least_level_is_the_first_that_fits_in_any_order(
            values in prop::collection::vec((0..6_u32, prop_oneof![-900..900_i64, 5_000..5_010_i64]), 1..300),
            kept in 1..40_usize,
            part in 1..40_usize,
            split in 1..4_usize,
        ) {
            let most = kept.min(part);
            let mut table = BinTable::new(kept);
            let mut other = BinTable::new(kept);
            for (key, time_ns) in &values {
                table.at(*key, *time_ns).into_iter().for_each(|sum: &mut u64| *sum += 1);
            }
            for (key, time_ns) in values.iter().rev() {
                other.at(*key, *time_ns).into_iter().for_each(|sum: &mut u64| *sum += 1);
            }
            let (mut one, mut two) = (BinTable::new(kept), BinTable::new(kept));
            for (number, (key, time_ns)) in values.iter().enumerate() {
                let part = if number % split == 0 { &mut one } else { &mut two };
                part.at(*key, *time_ns).into_iter().for_each(|sum: &mut u64| *sum += 1);
            }
            one.merge(two);
            let (found, other) = (table.finish(most), other.finish(most));
            let is_one = |level: &u8| {
                let bins: Vec<i64> = values.iter().map(|value| value.1 >> level).collect();
                bins.iter().all(|bin| *bin == bins[0])
            };
            let top = (0..=MAX_BIN_LEVEL).find(is_one).unwrap_or(MAX_BIN_LEVEL);
            let fits = |level: &u8| {
                let rows = (*level..=top).map(|level| level_of(&values, level).len());
                rows.sum::<usize>() <= most
            };
            let expected = (0..=top).find(fits);
            prop_assert_eq!(found.as_ref().map(|found| found.0), expected);
            let sorted = |found: Option<(u8, Vec<Row<u32, u64>>)>| {
                let mut rows = found.map_or_else(Vec::new, |found| found.1);
                rows.sort_unstable();
                rows
            };
            let rows = sorted(found);
            prop_assert_eq!(&rows, &sorted(other));
            prop_assert_eq!(&rows, &sorted(one.finish(most)));
            let levels = expected.map_or(0..0, |least| least..top + 1);
            let wanted = levels.flat_map(|level| {
                let rows = level_of(&values, level).into_iter();
                rows.map(move |((bin, key), count)| (level, bin, key, count))
            });
            prop_assert_eq!(rows, wanted.collect::<Vec<_>>());
        }
    }
}
