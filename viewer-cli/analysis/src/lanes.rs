//! The lanes of a trace, by bins of time: what every picture of calls over time is made of.
//!
//! Bins come from the overview where it has their rows and everything is wanted, and from the calls themselves elsewhere. Both have the
//! same values (SPEC.md, *Overview*), so that all pictures of a trace are exact, and alike.

mod bins;
mod cache;
mod columns;
mod damage;
mod overview_rows;

use annals_format::{BinRow, Definitions, LaneKey, LaneKind, OverviewDensity, Role};
use annals_merger::{LaneGroups, Query, ReadSummary, Reader, Result, TraceFile};
use rustc_hash::FxHashMap;

pub use self::bins::{BinRange, LaneBin};
pub use self::cache::{OverviewCache, open_overview_file};
pub use self::columns::{FULL, LaneColumn, OwnTime, TimeColumns, fill_step, innermost, own_times};

use self::bins::{LaneRows, lane_bins};
use self::overview_rows::OverviewRows;

/// The lanes of a trace. What was read of its overview is kept.
#[derive(Debug)]
pub struct Lanes {
    /// A file with the overview that the trace lacks.
    overview: Option<Reader>,
    groups: LaneGroups,
    density: OverviewDensity,
    rows: OverviewRows,
}

impl Lanes {
    /// Opens the lanes of what was opened. `overview` is a file with the overview that the trace lacks.
    pub fn open(reader: &Reader, overview: Option<Reader>) -> Self {
        let locations = reader.definitions().locations.len();
        let density = match reader.trace() {
            Some(trace) => trace.density(locations),
            None => OverviewDensity::new(locations),
        };
        Self {
            overview,
            groups: LaneGroups::of(reader.definitions()),
            density,
            rows: OverviewRows::new(),
        }
    }

    /// Returns the locations and groups that have lanes.
    pub const fn groups(&self) -> &LaneGroups {
        &self.groups
    }

    /// Returns the file that has the overview. `None` of recordings without one.
    pub fn overview<'a>(&'a self, reader: &'a Reader) -> Option<&'a TraceFile> {
        self.overview.as_ref().unwrap_or(reader).trace()
    }

    /// Returns the rows of a block of the overview. `None` if it is damaged, which is noted.
    pub fn rows<R: BinRow>(&self, overview: &TraceFile, entry: &R::Entry) -> Option<Vec<R>> {
        self.rows.damage().rows(overview, entry)
    }

    /// Returns what is wrong with the blocks of the overview that were read, and with the first ones.
    pub fn damage(&self, reader: &Reader) -> Vec<String> {
        let overview = self.overview(reader);
        overview.map_or_else(Vec::new, |trace| self.rows.damage().check(trace))
    }

    /// Returns the number of depths that each group or location has, as far as the overview says.
    pub fn depths(&self, reader: &Reader) -> FxHashMap<(LaneKind, u32), u32> {
        self.rows.depths(self.overview(reader))
    }

    /// Returns the bins of lanes, by lane, in order: those that are not empty. The lanes are ascending, none is there twice, and groups with
    /// the locations of another lane are [that](LaneGroups::stored). The window of the query does not matter. If the query chooses regions, the
    /// depth of a call is the number of such calls around it.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn bins(
        &self,
        reader: &Reader,
        range: BinRange,
        lanes: &[LaneKey],
        query: &Query,
    ) -> Result<(Vec<Vec<LaneBin>>, ReadSummary)> {
        let known = match self.is_whole(reader.definitions(), lanes, query) {
            true => self.rows.of(self.overview(reader), lanes, range),
            false => vec![LaneRows::unknown_at_all(); lanes.len()],
        };
        let (groups, density) = (&self.groups, &self.density);
        let (bins, read) = lane_bins(reader, groups, density, (range, query), lanes, &known)?;
        let summary = read.map_or_else(|| reader.summary(), Ok)?;
        Ok((bins, summary))
    }

    /// Returns whether a query takes all calls of some lanes.
    fn is_whole(&self, definitions: &Definitions, lanes: &[LaneKey], query: &Query) -> bool {
        let mut types = definitions.event_types.values();
        let is_taken = !query.is_by_region()
            && types.all(|of| {
                !matches!(of.role, Role::Enter | Role::Leave) || query.takes_event_type(of.id)
            });
        let mut streams = definitions.streams.values();
        let mut wanted = vec![false; self.groups.locations().len()];
        for lane in lanes {
            let members = self.groups.members(lane.kind, lane.id);
            members.for_each(|number| wanted[number] = true);
        }
        let is_wanted = |id| {
            let number = self.groups.locations().binary_search(&id);
            number.is_ok_and(|number| wanted[number])
        };
        is_taken
            && streams.all(|stream| {
                query.takes_stream(stream.id) || !stream.location.is_some_and(is_wanted)
            })
    }
}
