//! An overview of the calls of a window: how much time is in MPI and idle, by row of locations and part of the window, and
//! the longest single calls.
//!
//! A call is as long as the time in itself, without the calls that it makes: otherwise, those of `main` would always be the
//! longest. A call that continues from slice to slice of the trace adds up its parts when the slices are merged.

use annals_format::{LocationId, RegionId};
use annals_merger::{
    Analysis, Calls, Close, Frame, Query, ReadSummary, Reader, Result, SliceLength, Window,
};
use serde::Serialize;

use crate::bins::bounded;
use crate::locations::LocationNames;
use crate::region_kinds::{RegionKind, RegionKinds};

/// Number of the longest calls that are kept: of useful regions, and of all others.
pub const MOST_LONG_CALLS: usize = 20;

/// Time of a row in one part of the window, nanoseconds. The rest is useful, or the locations did not run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct BinTimes {
    /// Time in MPI, with what MPI calls.
    pub mpi_ns: i64,
    /// Time in which the runtime of threads waits, or in a state other than running.
    pub idle_ns: i64,
}

/// A single call. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct LongCall {
    /// Name of the region.
    pub region: String,
    /// What kind of work it is.
    pub kind: RegionKind,
    /// Rank of the location.
    pub rank: u32,
    /// Name of the location.
    pub location: String,
    /// Trace time at which it was entered.
    pub entered_ns: i64,
    /// Trace time at which it ended.
    pub end_ns: i64,
    /// Time in the call itself, within the window.
    pub own_ns: i64,
    /// Whether a loss may have changed its times.
    pub is_uncertain: bool,
}

crate::columns! {
    LongCall, uncertain is_uncertain;
    "region" Name headed "region", |row| &row.region;
    "kind" Text, |row| row.kind.name();
    "rank" Number headed "rank", |row| row.rank;
    "location" Name headed "location", |row| &row.location;
    "entered_ns" Moment headed "from", |row| row.entered_ns;
    "end_ns" Moment, |row| row.end_ns;
    "exclusive_ns" Duration marked "exclusive", |row| row.own_ns;
    "" Duration marked "inclusive", |row| row.end_ns.saturating_sub(row.entered_ns);
    "is_uncertain" Flag, |row| row.is_uncertain;
}

/// The calls of a window.
#[derive(Clone, Debug, Serialize)]
pub struct CallOverview {
    /// Start of the window, trace time in nanoseconds.
    pub from_ns: i64,
    /// Length of a part of the window, nanoseconds. The last one may end after the window.
    pub bin_ns: i64,
    /// Times by row and part of the window.
    pub rows: Vec<Vec<BinTimes>>,
    /// The calls of useful regions with the most time in themselves, the longest first.
    pub useful: Vec<LongCall>,
    /// The calls of MPI, and of regions that are idle, with the most time in themselves, the longest first.
    pub others: Vec<LongCall>,
}

/// What all slices share.
struct Shared {
    window: Window,
    bin_ns: i64,
    kinds: RegionKinds,
    /// By number of the location: its row.
    row_of: Vec<Option<usize>>,
    shape: (usize, usize),
}

/// A call that is open.
#[derive(Clone, Copy)]
struct OpenCall {
    region: RegionId,
    entered_ns: i64,
    own_ns: i64,
}

/// A call that has ended.
#[derive(Clone, Copy)]
struct EndedCall {
    open: OpenCall,
    location: usize,
    kind: RegionKind,
    end_ns: i64,
    is_uncertain: bool,
}

impl EndedCall {
    /// Returns the key by which the longest calls are first.
    fn key(&self) -> (std::cmp::Reverse<i64>, i64, usize, RegionId) {
        let open = &self.open;
        let longest = std::cmp::Reverse(open.own_ns);
        (longest, open.entered_ns, self.location, open.region)
    }
}

/// The longest of the calls that it was given.
#[derive(Default)]
struct Longest(Vec<EndedCall>);

impl Longest {
    fn add(&mut self, call: EndedCall) {
        let is_full = self.0.len() == MOST_LONG_CALLS;
        let is_short = |last: &EndedCall| last.open.own_ns > call.open.own_ns;
        if call.open.own_ns <= 0 || (is_full && self.0.last().is_some_and(is_short)) {
            return;
        }
        let place = self.0.partition_point(|other| other.key() <= call.key());
        self.0.insert(place, call);
        self.0.truncate(MOST_LONG_CALLS);
    }
}

/// The calls of a location in a slice.
#[derive(Default)]
struct LocationCalls {
    open: Vec<OpenCall>,
    /// Number of the open calls, from the outermost on, that were entered before the slice.
    resumed: usize,
    /// Calls that were entered before the slice and ended in it, the innermost first.
    ended: Vec<EndedCall>,
}

/// A slice of the trace.
struct OverviewState<'a> {
    shared: &'a Shared,
    rows: Vec<Vec<BinTimes>>,
    locations: Vec<LocationCalls>,
    useful: Longest,
    others: Longest,
}

/// Returns the tag of a call: what kind of work it is, where MPI includes what MPI calls.
fn tag_of(kind: RegionKind, around: &[Frame]) -> u32 {
    let outer = around
        .last()
        .map_or(RegionKind::Useful, |frame| kind_of(frame.tag));
    match (outer, kind) {
        (RegionKind::Mpi, _) | (_, RegionKind::Mpi) => 1,
        (_, RegionKind::Idle) => 2,
        (_, RegionKind::Useful) => 0,
    }
}

const fn kind_of(tag: u32) -> RegionKind {
    match tag {
        0 => RegionKind::Useful,
        1 => RegionKind::Mpi,
        _ => RegionKind::Idle,
    }
}

impl OverviewState<'_> {
    fn add(&mut self, call: EndedCall) {
        match call.kind {
            RegionKind::Useful => self.useful.add(call),
            RegionKind::Mpi | RegionKind::Idle => self.others.add(call),
        }
    }

    fn open(&mut self, location: usize, around: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        let open = &mut self.locations[location].open;
        open.truncate(around.len());
        open.push(OpenCall {
            region,
            entered_ns: at_ns,
            own_ns: 0,
        });
        tag_of(self.shared.kinds.get(region), around)
    }

    /// Adds time of a row to the parts of the window that it is in.
    fn fill(&mut self, row: usize, kind: RegionKind, from_ns: i64, to_ns: i64) {
        let Shared { window, bin_ns, .. } = *self.shared;
        let bins = &mut self.rows[row];
        let mut at_ns = from_ns;
        while at_ns < to_ns {
            let bin = (at_ns.saturating_sub(window.from_ns) / bin_ns) as usize;
            let end_ns = window
                .from_ns
                .saturating_add((bin as i64 + 1).saturating_mul(bin_ns));
            let end_ns = end_ns.min(to_ns);
            // A window may be longer than its length can be expressed.
            let Some(times) = bins.get_mut(bin).filter(|_| end_ns > at_ns) else {
                return;
            };
            match kind {
                RegionKind::Mpi => times.mpi_ns = times.mpi_ns.saturating_add(end_ns - at_ns),
                RegionKind::Idle => times.idle_ns = times.idle_ns.saturating_add(end_ns - at_ns),
                RegionKind::Useful => {}
            }
            at_ns = end_ns;
        }
    }
}

impl Analysis for OverviewState<'_> {
    const SLICES: SliceLength = SliceLength::Long;

    #[inline]
    fn enter(&mut self, location: usize, around: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        self.open(location, around, region, time_ns)
    }

    fn resume(&mut self, location: usize, around: &[Frame], region: RegionId, at_ns: i64) -> u32 {
        let tag = self.open(location, around, region, at_ns);
        self.locations[location].resumed = around.len() + 1;
        tag
    }

    #[inline]
    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let window = self.shared.window;
        let (from_ns, to_ns) = (from_ns.max(window.from_ns), to_ns.min(window.to_ns));
        let Some(frame) = frames.last().filter(|_| from_ns < to_ns) else {
            return;
        };
        if let Some(open) = self.locations[location].open.get_mut(frames.len() - 1) {
            open.own_ns = open.own_ns.saturating_add(to_ns.saturating_sub(from_ns));
        }
        let kind = kind_of(frame.tag);
        let row = self.shared.row_of.get(location).copied().flatten();
        if let Some(row) = row.filter(|_| kind != RegionKind::Useful) {
            self.fill(row, kind, from_ns, to_ns);
        }
    }

    #[inline]
    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, end_ns: i64, how: Close) {
        let of = &mut self.locations[location];
        let Some(open) = of.open.get(around.len()).copied() else {
            return;
        };
        of.open.truncate(around.len());
        let call = EndedCall {
            open,
            location,
            kind: kind_of(frame.tag),
            end_ns,
            is_uncertain: frame.is_uncertain || how == Close::Unleft,
        };
        if around.len() < of.resumed {
            of.resumed = around.len();
            of.ended.push(call);
        } else {
            self.add(call);
        }
    }

    fn merge(&mut self, later: Self) {
        for (row, of_later) in self.rows.iter_mut().zip(&later.rows) {
            for (times, more) in row.iter_mut().zip(of_later) {
                times.mpi_ns = times.mpi_ns.saturating_add(more.mpi_ns);
                times.idle_ns = times.idle_ns.saturating_add(more.idle_ns);
            }
        }
        let mut ended = Vec::new();
        for (of, next) in self.locations.iter_mut().zip(later.locations) {
            let is_same =
                |a: &OpenCall, b: &OpenCall| (a.region, a.entered_ns) == (b.region, b.entered_ns);
            for mut call in next.ended {
                let place = of.open.iter().rposition(|open| is_same(open, &call.open));
                if let Some(place) = place {
                    call.open.own_ns = call.open.own_ns.saturating_add(of.open[place].own_ns);
                    of.open.truncate(place);
                }
                if place.is_some_and(|place| place < of.resumed) {
                    of.ended.push(call);
                } else {
                    ended.push(call);
                }
            }
            let mut open = next.open;
            for (open, earlier) in open.iter_mut().zip(&of.open) {
                if is_same(open, earlier) {
                    open.own_ns = open.own_ns.saturating_add(earlier.own_ns);
                }
            }
            of.resumed = of.resumed.min(next.resumed);
            of.open = open;
        }
        let all = later.useful.0.into_iter().chain(later.others.0);
        all.chain(ended).for_each(|call| self.add(call));
    }
}

/// Finds the longest calls in the query's window, and the times of rows in `bins` parts of it. `row_of` returns the row of a
/// location, below `rows`; `None` leaves the location out of the rows.
///
/// # Errors
/// If the storage fails.
pub fn call_overview(
    reader: &Reader,
    query: &Query,
    rows: usize,
    bins: usize,
    row_of: impl Fn(LocationId) -> Option<usize>,
) -> Result<(CallOverview, ReadSummary)> {
    let definitions = reader.definitions();
    let window = bounded(reader, query.window());
    let numbered = Calls::new(definitions, query).locations().to_vec();
    let span_ns = window.to_ns.saturating_sub(window.from_ns).max(1);
    let bins = bins.max(1);
    let shared = Shared {
        window,
        bin_ns: span_ns.div_euclid(bins as i64) + i64::from(span_ns % bins as i64 != 0),
        kinds: RegionKinds::of(definitions),
        row_of: numbered
            .iter()
            .map(|id| row_of(*id).filter(|row| *row < rows))
            .collect(),
        shape: (rows, bins),
    };
    let new = |_| OverviewState {
        shared: &shared,
        rows: vec![vec![BinTimes::default(); shared.shape.1]; shared.shape.0],
        locations: numbered.iter().map(|_| LocationCalls::default()).collect(),
        useful: Longest::default(),
        others: Longest::default(),
    };
    let (mut state, summary) = reader.run(query, new)?;
    // These were open where the window begins.
    let ended: Vec<EndedCall> = state
        .locations
        .iter_mut()
        .flat_map(|of| of.ended.drain(..))
        .collect();
    ended.into_iter().for_each(|call| state.add(call));
    let names = LocationNames::new(definitions);
    let named = |longest: Longest| {
        let calls = longest.0.into_iter().map(|call| LongCall {
            region: definitions.region_name(call.open.region),
            kind: call.kind,
            rank: definitions.rank_of_location(numbered[call.location]),
            location: names.get(numbered[call.location]).to_owned(),
            entered_ns: call.open.entered_ns,
            end_ns: call.end_ns,
            own_ns: call.open.own_ns,
            is_uncertain: call.is_uncertain,
        });
        calls.collect()
    };
    let overview = CallOverview {
        from_ns: window.from_ns,
        bin_ns: shared.bin_ns,
        rows: state.rows,
        useful: named(state.useful),
        others: named(state.others),
    };
    Ok((overview, summary))
}

#[cfg(test)]
mod tests {
    use annals_format::Definitions;

    use super::*;

    const WINDOW: Window = Window {
        from_ns: 0,
        to_ns: 100,
    };

    fn shared() -> Shared {
        Shared {
            window: WINDOW,
            bin_ns: 25,
            kinds: RegionKinds::of(&Definitions::default()),
            row_of: vec![Some(0)],
            shape: (1, 4),
        }
    }

    fn state(shared: &Shared) -> OverviewState<'_> {
        OverviewState {
            shared,
            rows: vec![vec![BinTimes::default(); shared.shape.1]; shared.shape.0],
            locations: vec![LocationCalls::default()],
            useful: Longest::default(),
            others: Longest::default(),
        }
    }

    fn frame(region: u32, entered_ns: i64) -> Frame {
        Frame {
            region: RegionId::new(region),
            entered_ns,
            is_uncertain: false,
            is_outermost: true,
            tag: 0,
        }
    }

    /// Returns region, enter, end and own time of the longest calls.
    fn longest(state: &OverviewState<'_>) -> Vec<(u32, i64, i64, i64)> {
        let calls = state.useful.0.iter();
        let parts = calls.map(|call| {
            let OpenCall {
                region,
                entered_ns,
                own_ns,
            } = call.open;
            (region.get(), entered_ns, call.end_ns, own_ns)
        });
        parts.collect()
    }

    /// Region 0 from 0 to 90 calls region 1 from 10 to 70, which calls region 2 from 30 to 40. Slices end at 20 and 35.
    #[test]
    fn a_call_adds_up_over_slices() {
        let shared = shared();
        let (outer, inner, deep) = (frame(0, 0), frame(1, 10), frame(2, 30));
        let mut first = state(&shared);
        first.enter(0, &[], outer.region, 0);
        first.spend(0, &[outer], 0, 10);
        first.enter(0, &[outer], inner.region, 10);
        first.spend(0, &[outer, inner], 10, 20);
        let mut second = state(&shared);
        second.resume(0, &[], outer.region, 0);
        second.resume(0, &[outer], inner.region, 10);
        second.spend(0, &[outer, inner], 20, 30);
        second.enter(0, &[outer, inner], deep.region, 30);
        second.spend(0, &[outer, inner, deep], 30, 35);
        let mut third = state(&shared);
        third.resume(0, &[], outer.region, 0);
        third.resume(0, &[outer], inner.region, 10);
        third.resume(0, &[outer, inner], deep.region, 30);
        third.spend(0, &[outer, inner, deep], 35, 40);
        third.close(0, &[outer, inner], &deep, 40, Close::Left);
        third.spend(0, &[outer, inner], 40, 70);
        third.close(0, &[outer], &inner, 70, Close::Left);
        third.spend(0, &[outer], 70, 90);
        third.close(0, &[], &outer, 90, Close::Left);
        first.merge(second);
        first.merge(third);
        assert_eq!(
            longest(&first),
            [(1, 10, 70, 50), (0, 0, 90, 30), (2, 30, 40, 10)]
        );
        assert!(first.locations[0].ended.is_empty());
    }

    #[test]
    fn time_is_in_the_parts_of_the_window_that_it_lies_in() {
        let shared = shared();
        let mut state = state(&shared);
        let mpi = Frame {
            tag: 1,
            ..frame(0, -50)
        };
        state.spend(0, &[mpi], -50, 30);
        state.spend(0, &[Frame { tag: 2, ..mpi }], 60, 1000);
        let bins: Vec<(i64, i64)> = state.rows[0]
            .iter()
            .map(|times| (times.mpi_ns, times.idle_ns))
            .collect();
        assert_eq!(bins, [(25, 0), (5, 0), (0, 15), (0, 25)]);
    }

    #[test]
    fn the_longest_calls_are_kept() {
        let shared = shared();
        let mut state = state(&shared);
        for number in 0..50 {
            state.add(EndedCall {
                open: OpenCall {
                    region: RegionId::new(0),
                    entered_ns: number,
                    own_ns: 1 + number % 7,
                },
                location: 0,
                kind: RegionKind::Useful,
                end_ns: number + 10,
                is_uncertain: false,
            });
        }
        let kept = longest(&state);
        assert_eq!(kept.len(), MOST_LONG_CALLS);
        let firsts: Vec<(i64, i64)> = kept.iter().take(8).map(|call| (call.3, call.1)).collect();
        let expected = [
            (7, 6),
            (7, 13),
            (7, 20),
            (7, 27),
            (7, 34),
            (7, 41),
            (7, 48),
            (6, 5),
        ];
        assert_eq!(firsts, expected);
    }
}
