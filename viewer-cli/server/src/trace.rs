//! A trace that is served.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_analysis::{BinRange, LaneBin, Lanes};
use annals_format::{BinRow, LaneKey, LaneKind};
use annals_merger::{LaneGroups, Query, ReadOptions, Reader, Result, StopFlag, Symbols, TraceFile};
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

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
    lanes: Arc<Lanes>,
    /// The file that the user named, and what it was then.
    file: Option<(PathBuf, Identity)>,
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
    /// Opens a trace. `named` is the file that the user named, if it is the trace itself; `overview` the overview that
    /// the trace lacks.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn open(
        path: &Path,
        name: String,
        named: Option<&Path>,
        overview: Option<Reader>,
        symbols: Symbols,
    ) -> Result<Self> {
        // Before it is opened: a file that takes its place in between is another one then.
        let identity = Identity::at(path);
        let mut options = ReadOptions::new();
        options.symbols = symbols;
        let reader = Reader::open_with(&[path.to_owned()], options)?;
        let file = named
            .zip(identity.clone())
            .map(|(named, identity)| (named.to_owned(), identity));
        let lanes = Lanes::open(&reader, overview);
        let digest = Sha256::digest(format!("{path:?} {identity:?}").as_bytes());
        let id = digest
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Self {
            id,
            name,
            reader: Arc::new(reader),
            lanes: Arc::new(lanes),
            file,
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
        self.lanes.overview(&self.reader)
    }

    /// Returns its locations and groups.
    pub(crate) fn groups(&self) -> &LaneGroups {
        self.lanes.groups()
    }

    /// Returns the rows of a block of the overview. `None` if it is damaged, which is noted.
    pub(crate) fn rows<R: BinRow>(&self, overview: &TraceFile, entry: &R::Entry) -> Option<Vec<R>> {
        self.lanes.rows(overview, entry)
    }

    /// Returns what is wrong with the blocks of the overview that were read.
    pub(crate) fn damage(&self) -> Vec<String> {
        self.lanes.damage(&self.reader)
    }

    /// Returns the lanes of rows, as the overview has them, and what the user asked for: groups with the same locations share lanes.
    fn lanes(&self, rows: &[RowLanes]) -> Vec<LaneKey> {
        let lanes = rows.iter().flat_map(|row| {
            let (kind, id) = self.groups().stored(row.kind, row.id);
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
            let query = Query::new();
            let (bins, _) = self.lanes.bins(&self.reader, wide, &missing, &query)?;
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
        self.lanes.depths(&self.reader)
    }
}

/// Cuts the bins of a lane in a range into ranges of `count` bins each. The range has a multiple of these.
fn split_bins(bins: Vec<LaneBin>, range: BinRange, count: u32) -> Vec<(BinRange, Vec<LaneBin>)> {
    let starts = (0..range.count).step_by(count as usize);
    let mut parts: Vec<(BinRange, Vec<LaneBin>)> = starts
        .map(|start| {
            let first = range.first + i64::from(start);
            (
                BinRange {
                    first,
                    count,
                    ..range
                },
                Vec::new(),
            )
        })
        .collect();
    for mut bin in bins {
        while bin.count != 0 {
            let (number, place) = (bin.place / count, bin.place % count);
            let (part, bins) = &mut parts[number as usize];
            let inside = bin.count.min(count - place);
            let end_ns = part.start_ns(i64::from(place + inside));
            let is_cut = inside < bin.count;
            bins.push(LaneBin {
                place,
                count: inside,
                only_ns: bin
                    .only_ns
                    .map(|only| (only.0, if is_cut { end_ns } else { only.1 })),
                ..bin
            });
            bin.place += inside;
            bin.count -= inside;
            bin.only_ns = bin.only_ns.map(|only| (only.0.max(end_ns), only.1));
        }
    }
    parts
}
