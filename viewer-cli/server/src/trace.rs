//! A trace that is served.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::{LaneKey, LaneKind, OverviewDensity};
use annals_merger::{LaneGroups, ReadOptions, Reader, Result, StopFlag, Symbols, TraceFile};
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use crate::lane_bins::{BinRange, LaneBin, LaneRows, lane_bins, split_bins};
use crate::overview_damage::OverviewDamage;
use crate::overview_rows::OverviewRows;
use crate::parameters::RowLanes;
use crate::tile;

/// Bytes of tiles that are kept.
const MOST_TILE_BYTES: u64 = 32 << 20;

#[derive(Clone, Debug)]
struct ByBytes;

impl quick_cache::Weighter<(BinRange, LaneKey), Arc<Vec<LaneBin>>> for ByBytes {
    fn weight(&self, _: &(BinRange, LaneKey), bins: &Arc<Vec<LaneBin>>) -> u64 {
        (bins.len() * size_of::<LaneBin>() + 128) as u64
    }
}

/// Bins that were asked for, by range and lane.
type BinCache = Cache<(BinRange, LaneKey), Arc<Vec<LaneBin>>, ByBytes>;

/// Events up to which neighbours of a tile are read with it: two chunks of most traces, and what the chunk has that they begin in.
const MOST_NEIGHBOURS: u64 = 1 << 17;

/// Bins of all lanes up to which neighbours are read: a screen's 64 lanes of eight tiles. Each takes some bytes while events are read.
const MOST_NEIGHBOUR_BINS: u64 = 1 << 19;

/// What distinguishes a file from another one, or from what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Identity {
    /// Returns the identity of a file. `None` if there is none.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path)
            .ok()
            .map(|metadata| Self::of(&metadata))
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// A trace that is open. A clone of it shares what has been read.
#[derive(Clone)]
pub(crate) struct ServedTrace {
    /// Whether the first view is of the whole run.
    pub(crate) shows_all: bool,
    /// Its id in addresses.
    pub(crate) id: String,
    /// What the user calls it.
    pub(crate) name: String,
    /// Its events.
    pub(crate) reader: Arc<Reader>,
    /// Its overview: its own, or that of a file made for it.
    overview: Option<Arc<Reader>>,
    /// How dense it is.
    density: Arc<OverviewDensity>,
    /// Its locations and groups.
    pub(crate) groups: Arc<LaneGroups>,
    /// The file that the user named, and what it was then.
    file: Option<(PathBuf, Identity)>,
    /// What is damaged of the overview.
    damage: Arc<OverviewDamage>,
    rows: Arc<OverviewRows>,
    bins: Arc<BinCache>,
}

impl std::fmt::Debug for ServedTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedTrace")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ServedTrace {
    /// Opens a trace. `named` is the file that the user named, if it is the trace itself; `overview` a file with the overview that
    /// the trace lacks.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn open(
        path: &Path,
        name: String,
        named: Option<&Path>,
        overview: Option<&Path>,
        symbols: Symbols,
    ) -> Result<Self> {
        // Before it is opened: a file that takes its place in between is another one then.
        let identity = Identity::at(path);
        let mut options = ReadOptions::new();
        options.symbols = symbols;
        let reader = Reader::open_with(&[path.to_owned()], options)?;
        let overview = overview.map(Reader::open).transpose()?;
        let file = named
            .zip(identity.clone())
            .map(|(named, identity)| (named.to_owned(), identity));
        let groups = LaneGroups::of(reader.definitions());
        let locations = reader.definitions().locations.len();
        let density = match reader.trace() {
            Some(trace) => trace.density(locations),
            None => OverviewDensity::new(locations),
        };
        let damage = Arc::new(OverviewDamage::default());
        let digest = Sha256::digest(format!("{path:?} {identity:?}").as_bytes());
        let id = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            id,
            name,
            groups: Arc::new(groups),
            density: Arc::new(density),
            reader: Arc::new(reader),
            overview: overview.map(Arc::new),
            file,
            rows: Arc::new(OverviewRows::new(Arc::clone(&damage))),
            damage,
            bins: Arc::new(BinCache::with_weighter(4096, MOST_TILE_BYTES, ByBytes)),
            shows_all: false,
        })
    }

    /// Returns the trace for one request: it reads no more events once `stop` is stopped.
    pub(crate) fn stopped_by(&self, stop: &StopFlag) -> Self {
        Self {
            reader: Arc::new(self.reader.stopped_by(stop)),
            ..self.clone()
        }
    }

    /// Returns whether the file that the user named is another one now.
    pub(crate) fn is_replaced(&self) -> bool {
        let Some((path, identity)) = &self.file else {
            return false;
        };
        Identity::at(path).as_ref() != Some(identity)
    }

    /// Returns the file that has the overview. `None` of recordings without one.
    pub(crate) fn overview(&self) -> Option<&TraceFile> {
        self.overview.as_deref().unwrap_or(&self.reader).trace()
    }

    /// Returns the damaged blocks of the overview that were read.
    pub(crate) fn overview_damage(&self) -> &OverviewDamage {
        &self.damage
    }

    /// Returns what is wrong with the blocks of the overview that were read.
    pub(crate) fn damage(&self) -> Vec<String> {
        let overview = self.overview();
        overview.map_or_else(Vec::new, |trace| self.damage.check(trace))
    }

    /// Returns the lanes of rows, as the overview has them, and what the user asked for: groups with the same locations share lanes.
    fn lanes(&self, rows: &[RowLanes]) -> Vec<LaneKey> {
        let lanes = rows.iter().flat_map(|row| {
            let (kind, id) = self.groups.stored(row.kind, row.id);
            (row.first..=row.last).map(move |depth| LaneKey { kind, id, depth })
        });
        lanes.collect()
    }

    /// Returns the bins of the lanes of rows, depth by depth, row by row.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn bins(
        &self,
        range: BinRange,
        rows: &[RowLanes],
    ) -> Result<Vec<Arc<Vec<LaneBin>>>> {
        let lanes = self.lanes(rows);
        let mut found: Vec<Option<Arc<Vec<LaneBin>>>> = lanes
            .iter()
            .map(|lane| self.bins.get(&(range, *lane)))
            .collect();
        let missing = lanes
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_none());
        let mut missing: Vec<LaneKey> = missing.map(|(lane, _)| *lane).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let wide = self.neighbours(range, missing.len());
            let known: Vec<LaneRows> = self.rows.of(self.overview(), &missing, wide);
            let bins = lane_bins(
                &self.reader,
                &self.groups,
                &self.density,
                wide,
                &missing,
                &known,
            )?;
            let mut asked = Vec::with_capacity(missing.len());
            for (lane, bins) in missing.iter().zip(bins) {
                for (part, bins) in split_bins(bins, wide, range.count) {
                    let bins = Arc::new(bins);
                    if part == range {
                        asked.push(Arc::clone(&bins));
                    }
                    self.bins.insert((part, *lane), bins);
                }
            }
            for (lane, found) in lanes.iter().zip(&mut found) {
                if let Ok(at) = missing.binary_search(lane) {
                    *found = Some(Arc::clone(&asked[at]));
                }
            }
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the range that is read with a range of some lanes: that of several of its length, if they have few events and bins. A screen
    /// shows some that follow each other, and all of them may be in the same chunk.
    fn neighbours(&self, range: BinRange, lanes: usize) -> BinRange {
        let length = i64::from(range.count);
        let whole = [8, 4, 2].into_iter().filter_map(|ranges: u32| {
            let count = range.count.checked_mul(ranges)?;
            let first = range.first.div_euclid(length * i64::from(ranges));
            let first = first.checked_mul(count.into())?;
            Some(BinRange {
                first,
                count,
                ..range
            })
        });
        let before = |ns: i64| self.reader.events_before(ns);
        let has_few = |wide: &BinRange| {
            let window = wide.window();
            let length_ns = i128::from(wide.count) << wide.level;
            let is_in_time = i128::from(window.to_ns) - i128::from(window.from_ns) == length_ns;
            is_in_time
                && u64::from(wide.count) * lanes as u64 <= MOST_NEIGHBOUR_BINS
                && before(window.to_ns).saturating_sub(before(window.from_ns)) <= MOST_NEIGHBOURS
        };
        let is_aligned = range.first % length == 0;
        whole.filter(|_| is_aligned).find(has_few).unwrap_or(range)
    }

    /// Returns a tile of the lanes of rows.
    ///
    /// # Errors
    /// If the storage fails.
    pub(crate) fn tile(&self, range: BinRange, rows: &[RowLanes]) -> Result<Vec<u8>> {
        Ok(tile::encode(&self.bins(range, rows)?, range))
    }

    /// Returns the depth up to which the overview has lanes, by kind and number.
    pub(crate) fn depths(&self) -> rustc_hash::FxHashMap<(LaneKind, u32), u32> {
        self.rows.depths(self.overview())
    }
}
