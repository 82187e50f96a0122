//! Rows of the overview, through a cache of its blocks.

use std::sync::Arc;

use annals_format::{LaneKey, LaneKind, OverviewEntry, OverviewRow};
use annals_merger::Reader;
use quick_cache::sync::Cache;
use rustc_hash::FxHashMap;

use crate::lane_bins::{BinRange, LaneRows};

/// Number of rows of the blocks that are kept: 32 MiB.
const MOST_CACHED_ROWS: u64 = (32 << 20) / size_of::<OverviewRow>() as u64;

#[derive(Clone, Debug)]
struct ByRows;

impl quick_cache::Weighter<u64, Arc<Vec<OverviewRow>>> for ByRows {
    fn weight(&self, _: &u64, rows: &Arc<Vec<OverviewRow>>) -> u64 {
        rows.len().max(1) as u64
    }
}

/// The rows of a trace's overview.
#[derive(Debug)]
pub(crate) struct OverviewRows {
    cache: Cache<u64, Arc<Vec<OverviewRow>>, ByRows>,
}

impl OverviewRows {
    /// Creates it without blocks.
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::with_weighter(256, MOST_CACHED_ROWS, ByRows),
        }
    }

    /// Returns a block's rows; none if it is damaged: its bins are read from the calls then.
    fn block(&self, reader: &Reader, entry: &OverviewEntry) -> Arc<Vec<OverviewRow>> {
        if let Some(rows) = self.cache.get(&entry.offset) {
            return rows;
        }
        let rows = Arc::new(reader.load_overview(entry).unwrap_or_default());
        self.cache.insert(entry.offset, Arc::clone(&rows));
        rows
    }

    /// Returns the rows of lanes, which are in ascending order, in bins.
    pub(crate) fn of(&self, reader: &Reader, lanes: &[LaneKey], range: BinRange) -> Vec<LaneRows> {
        let mut found = vec![LaneRows::default(); lanes.len()];
        let above = BinRange {
            level: range.level + 1,
            first: range.first >> 1,
            count: range.count / 2 + 1,
        };
        let top = reader.overview().iter().map(|entry| entry.last.0).max();
        for (range, is_own) in [(range, true), (above, false)] {
            // Above the highest level, the bin with everything has the values of its half.
            let more = range.level - top.unwrap_or(range.level).min(range.level);
            let stored = BinRange {
                level: range.level - more,
                first: range.first << more,
                count: (range.count << more.min(16)).max(range.count),
            };
            self.add(reader, lanes, stored, &mut |lane, mut row| {
                (row.level, row.bin) = (range.level, row.bin >> more);
                let rows = &mut found[lane];
                match is_own {
                    true => rows.own.push(row),
                    false => rows.above.push(row),
                }
            });
        }
        for rows in &mut found {
            rows.own.sort_unstable_by_key(|row| row.bin);
            rows.above.sort_unstable_by_key(|row| row.bin);
        }
        found
    }

    /// Returns the number of depths that each group or location has, as far as bins of the highest levels say.
    pub(crate) fn depths(&self, reader: &Reader) -> FxHashMap<(LaneKind, u32), u32> {
        let mut depths: FxHashMap<(LaneKind, u32), u32> = FxHashMap::default();
        let top = reader.overview().iter().map(|entry| entry.last.0).max();
        let Some(top) = top else { return depths };
        // A lane has a row of the top level if it has one at all.
        for entry in reader.overview().iter().filter(|entry| entry.last.0 == top) {
            for row in self
                .block(reader, entry)
                .iter()
                .filter(|row| row.level == top)
            {
                let known = depths.entry((row.lane.kind, row.lane.id)).or_default();
                *known = (*known).max(row.lane.depth + 1);
            }
        }
        depths
    }

    fn add(
        &self,
        reader: &Reader,
        lanes: &[LaneKey],
        range: BinRange,
        add: &mut dyn FnMut(usize, OverviewRow),
    ) {
        let (Some(first), Some(last)) = (lanes.first(), lanes.last()) else {
            return;
        };
        let (first, last) = ((range.level, *first), (range.level, *last));
        let window = range.window();
        let end = range.first.saturating_add(range.count.into());
        for entry in reader.overview() {
            let is_near = entry.first <= last
                && first <= entry.last
                && entry.from_ns < window.to_ns
                && window.from_ns < entry.to_ns;
            if !is_near {
                continue;
            }
            let rows = self.block(reader, entry);
            for (number, lane) in lanes.iter().enumerate() {
                let key = (range.level, *lane);
                if key < entry.first || entry.last < key {
                    continue;
                }
                let at = rows.partition_point(|row| row.key() < (key.0, key.1, range.first));
                let rows = rows[at..].iter();
                let inside = rows.take_while(|row| (row.level, row.lane) == key && row.bin < end);
                inside.for_each(|row| add(number, *row));
            }
        }
    }
}
