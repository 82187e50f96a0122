//! Statistics of the calls of a whole trace, by region: so that the question asked most costs what its answer does.

use crate::error::{FormatError, Result};
use crate::histogram::Histogram;
use crate::ids::RegionId;
use crate::ints::{put_growing, put_ints, read_ints};
use crate::limits::Content;
use crate::snapshot::read_ids;
use crate::wire::{Put, Wire};

/// Most regions of the statistics of a trace.
pub const MAX_STATISTICS_REGIONS: usize = 1 << 20;

/// Most buckets of all regions together: those from the lowest of a region that has values to its highest.
const MAX_BUCKETS: usize = 1 << 22;

const BUCKETS_EXPECTED: &str = "at most 4194304 buckets";

const IS_TIME_UNCERTAIN: u64 = 1;

/// The calls of one region. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CallStatistics {
    /// Enters.
    pub calls: u64,
    /// Time in the region, regions it called included; recursion is not counted twice.
    pub inclusive_ns: i64,
    /// Time in the region itself.
    pub exclusive_ns: i64,
    /// By how much the inclusive time may be more: calls that were open at the end may have lasted longer.
    pub inclusive_more_ns: i64,
    /// By how much the exclusive time may be more.
    pub exclusive_more_ns: i64,
    /// How long its calls without a call around them may have been left already at the ends of their locations, after losses.
    pub unclear_ns: i64,
    /// Durations of the calls whose enter and leave are both there, without a loss between them.
    pub completed: Histogram,
    /// Calls that were still open at the end.
    pub open_calls: u64,
    /// Leaves without an enter.
    pub unmatched_leaves: u64,
    /// Calls that were never left, and ended with a region around them: `longjmp` does that.
    pub unleft_calls: u64,
    /// Whether a loss between enter and leave, or a call that was never left, may have changed the times.
    pub is_time_uncertain: bool,
}

impl CallStatistics {
    /// Takes in the statistics of other calls.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.inclusive_ns = self.inclusive_ns.saturating_add(other.inclusive_ns);
        self.exclusive_ns = self.exclusive_ns.saturating_add(other.exclusive_ns);
        self.inclusive_more_ns = self
            .inclusive_more_ns
            .saturating_add(other.inclusive_more_ns);
        self.exclusive_more_ns = self
            .exclusive_more_ns
            .saturating_add(other.exclusive_more_ns);
        self.unclear_ns = self.unclear_ns.saturating_add(other.unclear_ns);
        self.completed.add_all(&other.completed);
        self.open_calls += other.open_calls;
        self.unmatched_leaves += other.unmatched_leaves;
        self.unleft_calls += other.unleft_calls;
        self.is_time_uncertain |= other.is_time_uncertain;
    }
}

/// Statistics of the calls of a trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RegionStatistics {
    /// By region, ascending.
    pub regions: Vec<(RegionId, CallStatistics)>,
}

impl RegionStatistics {
    /// Returns whether there is more than a block of them may hold.
    pub fn is_too_much(&self) -> bool {
        let slots = self
            .regions
            .iter()
            .map(|(_, calls)| calls.completed.slots());
        self.regions.len() > MAX_STATISTICS_REGIONS || slots.sum::<usize>() > MAX_BUCKETS
    }

    /// Returns what the body has beyond its bytes.
    pub fn content(&self) -> Content {
        let buckets = self.regions.iter();
        let buckets = buckets.map(|(_, calls)| calls.completed.buckets().count());
        Content {
            items: (self.regions.len() + buckets.sum::<usize>()) as u64,
            text_bytes: 0,
        }
    }

    /// Appends the head of their block.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        out.put_varint(self.regions.len() as u64);
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ids: Vec<u32> = self.regions.iter().map(|(id, _)| id.get()).collect();
        put_growing(&ids, out);
        let mut put = |field: &dyn Fn(&CallStatistics) -> u64| {
            let values = self.regions.iter().map(|(_, calls)| field(calls));
            put_ints(&values.collect::<Vec<u64>>(), out);
        };
        put(&|calls| calls.calls);
        put(&|calls| calls.inclusive_ns as u64);
        put(&|calls| calls.exclusive_ns as u64);
        put(&|calls| calls.open_calls);
        put(&|calls| calls.unmatched_leaves);
        put(&|calls| calls.unleft_calls);
        put(&|calls| match calls.is_time_uncertain {
            true => IS_TIME_UNCERTAIN,
            false => 0,
        });
        put(&|calls| calls.completed.min().unwrap_or(0) as u64);
        put(&|calls| calls.completed.max().unwrap_or(0) as u64);
        put(&|calls| calls.completed.sum() as u64);
        put(&|calls| calls.completed.buckets().count() as u64);
        let buckets = || self.regions.iter().flat_map(|(_, c)| c.completed.buckets());
        put_ints(
            &buckets().map(|(bucket, _)| bucket).collect::<Vec<u64>>(),
            out,
        );
        put_ints(
            &buckets().map(|(_, count)| count).collect::<Vec<u64>>(),
            out,
        );
        let mut put = |field: &dyn Fn(&CallStatistics) -> i64| {
            let values = self.regions.iter().map(|(_, calls)| field(calls) as u64);
            put_ints(&values.collect::<Vec<u64>>(), out);
        };
        put(&|calls| calls.inclusive_more_ns);
        put(&|calls| calls.exclusive_more_ns);
        put(&|calls| calls.unclear_ns);
    }

    /// Reads the head and the body of a block.
    ///
    /// # Errors
    /// If they end early, contradict the format or go beyond its limits.
    pub fn decode(head: &[u8], body: &[u8]) -> Result<Self> {
        Self::decode_within(head, body, u64::MAX)
    }

    /// Reads the head and the body of a block that may contain at most `max_items` items.
    pub(crate) fn decode_within(head: &[u8], body: &[u8], max_items: u64) -> Result<Self> {
        let count = Wire::new(head).varint("number of regions")?;
        let most = max_items.min(MAX_STATISTICS_REGIONS as u64);
        if count > most {
            let expected = "no more regions than the limits allow";
            return Err(FormatError::invalid(0, expected, count));
        }
        let count = count as usize;
        let mut w = Wire::new(body);
        let ids = read_ids(&mut w, count, "a region id")?;
        if !ids.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::invalid(0, "ascending regions", "others"));
        }
        let mut column = || read_ints(&mut w, count);
        let (calls, inclusive, exclusive) = (column()?, column()?, column()?);
        let (open, unmatched, unleft, flags) = (column()?, column()?, column()?, column()?);
        let (min, max, sum, lengths) = (column()?, column()?, column()?, column()?);
        let start = w.position();
        let buckets = lengths.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let most = max_items.saturating_sub(count as u64);
        if buckets > most.min(MAX_BUCKETS as u64) {
            return Err(FormatError::invalid(start, BUCKETS_EXPECTED, buckets));
        }
        let numbers = read_ints(&mut w, buckets as usize)?;
        let counts = read_ints(&mut w, buckets as usize)?;
        // Earlier writers end here.
        let mut more: [Vec<u64>; 3] = std::array::from_fn(|_| vec![0; count]);
        if !w.is_empty() {
            for column in &mut more {
                *column = read_ints(&mut w, count)?;
            }
        }
        let mut each = numbers.into_iter().zip(counts);
        let (mut regions, mut slots) = (Vec::with_capacity(count), 0);
        for (row, id) in ids.into_iter().enumerate() {
            let own = each.by_ref().take(lengths[row] as usize);
            let (min, max, sum) = (min[row] as i64, max[row] as i64, sum[row] as i64);
            let completed = Histogram::from_parts(min, max, sum, own);
            let completed = completed.map_err(|error| error.shifted(start as u64))?;
            slots += completed.slots();
            if slots > MAX_BUCKETS {
                return Err(FormatError::invalid(start, BUCKETS_EXPECTED, slots));
            }
            let of_region = CallStatistics {
                calls: calls[row],
                inclusive_ns: inclusive[row] as i64,
                exclusive_ns: exclusive[row] as i64,
                inclusive_more_ns: more[0][row] as i64,
                exclusive_more_ns: more[1][row] as i64,
                unclear_ns: more[2][row] as i64,
                completed,
                open_calls: open[row],
                unmatched_leaves: unmatched[row],
                unleft_calls: unleft[row],
                is_time_uncertain: flags[row] & IS_TIME_UNCERTAIN != 0,
            };
            regions.push((RegionId::new(id), of_region));
        }
        Ok(Self { regions })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statistics() -> impl Strategy<Value = RegionStatistics> {
        let durations = prop::collection::vec(-3..i64::MAX, 0..20);
        let numbers = any::<(u32, i64, i64, u32, u32, u32, bool, i64, i64, i64)>();
        let of_region = (numbers, durations).prop_map(|(numbers, durations)| {
            let mut completed = Histogram::default();
            durations
                .iter()
                .for_each(|duration| completed.add(*duration / 40));
            CallStatistics {
                calls: numbers.0.into(),
                inclusive_ns: numbers.1,
                exclusive_ns: numbers.2,
                completed,
                open_calls: numbers.3.into(),
                unmatched_leaves: numbers.4.into(),
                unleft_calls: numbers.5.into(),
                is_time_uncertain: numbers.6,
                inclusive_more_ns: numbers.7,
                exclusive_more_ns: numbers.8,
                unclear_ns: numbers.9,
            }
        });
        prop::collection::btree_map(any::<u32>(), of_region, 0..20).prop_map(|regions| {
            let regions = regions.into_iter();
            RegionStatistics {
                regions: regions
                    .map(|(id, calls)| (RegionId::new(id), calls))
                    .collect(),
            }
        })
    }

    proptest! {
        #[test]
        fn statistics_are_read_as_they_were_written(statistics in statistics()) {
            let (mut head, mut body) = (Vec::new(), Vec::new());
            statistics.encode_head(&mut head);
            statistics.encode(&mut body);
            let read = RegionStatistics::decode(&head, &body).expect("statistics");
            for ((id, a), (other, b)) in statistics.regions.iter().zip(&read.regions) {
                prop_assert_eq!(id, other);
                for percent in [1, 50, 95, 100] {
                    prop_assert_eq!(a.completed.percentile(percent), b.completed.percentile(percent));
                }
                prop_assert_eq!(a, b);
            }
            prop_assert_eq!(statistics.regions.len(), read.regions.len());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(head: Vec<u8>, body: Vec<u8>, count in 0..40_u8) {
            let _ = RegionStatistics::decode(&head, &body);
            let _ = RegionStatistics::decode(&[count], &body);
        }
    }
}
