//! Rows of the overview, through a cache of its blocks.

use std::sync::Arc;

use annals_format::{LaneKey, LaneKind, OverviewEntry, OverviewRow};
use annals_merger::TraceFile;
use quick_cache::sync::Cache;
use rustc_hash::FxHashMap;

use super::bins::{BinRange, LaneRows};
use super::damage::OverviewDamage;

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
    damage: OverviewDamage,
    cache: Cache<u64, Arc<Vec<OverviewRow>>, ByRows>,
}

impl OverviewRows {
    /// Creates it without blocks.
    pub(crate) fn new() -> Self {
        Self {
            damage: OverviewDamage::default(),
            cache: Cache::with_weighter(256, MOST_CACHED_ROWS, ByRows),
        }
    }

    /// Returns what is damaged of the blocks that were read.
    pub(crate) const fn damage(&self) -> &OverviewDamage {
        &self.damage
    }

    /// Returns a block's rows. `None` if it is damaged: its bins are read from the calls then.
    fn block(&self, trace: &TraceFile, entry: &OverviewEntry) -> Option<Arc<Vec<OverviewRow>>> {
        if let Some(rows) = self.cache.get(&entry.offset) {
            return Some(rows).filter(|rows| !rows.is_empty());
        }
        // An empty one means a damaged one.
        let rows = self.damage.rows::<OverviewRow>(trace, entry);
        let rows = Arc::new(rows.unwrap_or_default());
        self.cache.insert(entry.offset, Arc::clone(&rows));
        Some(rows).filter(|rows| !rows.is_empty())
    }

    /// Returns the rows of lanes, which are in ascending order, in bins.
    pub(crate) fn of(
        &self,
        trace: Option<&TraceFile>,
        lanes: &[LaneKey],
        range: BinRange,
    ) -> Vec<LaneRows> {
        let blocks = trace.map_or(&[][..], TraceFile::overview);
        let mut found = vec![LaneRows::default(); lanes.len()];
        if blocks.is_empty() {
            found.fill(LaneRows::unknown_at_all());
        }
        let end = range.first.saturating_add(range.count.into());
        let top = blocks.iter().map(|entry| entry.last.0).max();
        let (Some(trace), Some(top)) = (trace, top) else {
            return found;
        };
        for (level, is_own) in [(range.level, true), (range.level + 1, false)] {
            let up = level - range.level;
            let bins = (range.first >> up, ((end - 1) >> up) + 1);
            // Above the highest level, the bin that has everything has the same values.
            let more = level - top.min(level);
            let stored = match more {
                0 => bins,
                _ => (i64::MIN >> top, i64::MAX >> top),
            };
            self.visit(trace, lanes, (level - more, stored), &mut |lane, row| {
                let rows = &mut found[lane];
                let Some(mut row) = row else {
                    rows.is_damaged = true;
                    return;
                };
                (row.level, row.bin) = (level, row.bin >> more);
                match is_own {
                    true if bins.0 <= row.bin && row.bin < bins.1 => rows.own.push(row),
                    true => {}
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
    pub(crate) fn depths(&self, trace: Option<&TraceFile>) -> FxHashMap<(LaneKind, u32), u32> {
        let mut depths: FxHashMap<(LaneKind, u32), u32> = FxHashMap::default();
        let Some(trace) = trace else { return depths };
        let top = trace.overview().iter().map(|entry| entry.last.0).max();
        let Some(top) = top else { return depths };
        // A lane has a row of the top level if it has one at all.
        for entry in trace.overview().iter().filter(|entry| entry.last.0 == top) {
            let rows = self.block(trace, entry).unwrap_or_default();
            for row in rows.iter().filter(|row| row.level == top) {
                let known = depths.entry((row.lane.kind, row.lane.id)).or_default();
                *known = (*known).max(row.lane.depth + 1);
            }
        }
        depths
    }

    /// Calls `take` with the rows of lanes in bins of a level, from one to before another; with `None` for lanes of which a block is damaged.
    fn visit(
        &self,
        trace: &TraceFile,
        lanes: &[LaneKey],
        bins: (u8, (i64, i64)),
        take: &mut dyn FnMut(usize, Option<OverviewRow>),
    ) {
        let (level, (from, to)) = bins;
        for entry in trace.overview() {
            // Only if it has rows of one of the lanes: those in between may be thousands.
            let before = lanes.partition_point(|lane| (level, *lane) < entry.first);
            let until = lanes.partition_point(|lane| (level, *lane) <= entry.last);
            let is_near =
                before < until && entry.from_ns >> level < to && from <= entry.to_ns >> level;
            if !is_near {
                continue;
            }
            let rows = self.block(trace, entry);
            for (number, lane) in lanes.iter().enumerate().take(until).skip(before) {
                let key = (level, *lane);
                let Some(rows) = &rows else {
                    take(number, None);
                    continue;
                };
                let at = rows.partition_point(|row| row.key() < (key.0, key.1, from));
                let rows = rows[at..].iter();
                let inside = rows.take_while(|row| (row.level, row.lane) == key && row.bin < to);
                inside.for_each(|row| take(number, Some(*row)));
            }
        }
    }
}
