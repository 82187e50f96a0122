//! Reads in a separate thread.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use annals_analysis::{Grouping, LocationNames, region_times};
use annals_format::{LocationId, Snapshot, Step};
use annals_merger::{Reader, Window};
use anyhow::anyhow;

use super::Shown;
use super::details::{self, Details};
use super::search::{self, Hit, Search};
use super::view::View;
use crate::table::{Screen, Table};
use crate::timeline::{
    LaneRow, Layout, Legend, MessageLines, Request, Run, TimelineLane, lane_label, lanes_of,
};
use crate::views::rows_with_outside;
use annals_analysis::{bin_of, bin_start};

/// Regions that are shown.
const MOST_REGIONS: usize = 40;

/// A request to the reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) view: View,
    /// Lane and column under the cursor.
    pub(super) cursor: (usize, usize),
    pub(super) search: Option<Search>,
}

/// A result of the reader.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Picture(Picture),
    Details(Box<Details>),
    Found(Search, Option<Hit>),
    /// How far a search is.
    Searching(i64),
    Failed(String),
}

/// A timeline, and what belongs to it.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) view: View,
    pub(super) layout: Layout,
    /// Number of places at which the view was sampled; `None` means that all of it was read.
    pub(super) places: Option<usize>,
    /// The statistics of the view, as lines.
    pub(super) statistics: Vec<String>,
}

/// Reads for the viewer.
#[derive(Debug)]
pub(super) struct ReaderThread {
    requests: Sender<Wanted>,
    replies: Receiver<Reply>,
}

impl ReaderThread {
    pub(super) fn start(shown: Shown) -> anyhow::Result<Self> {
        let (requests, wanted) = channel();
        let (found, replies) = channel();
        let work = Work {
            shown,
            wanted,
            found,
            next: None,
        };
        std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || work.run())?;
        Ok(Self { requests, replies })
    }

    /// Asks: what was asked before and is not read yet, is not wanted any more.
    pub(super) fn ask(&self, wanted: Wanted) -> anyhow::Result<()> {
        self.requests.send(wanted).map_err(|_| gone())
    }

    /// Returns what was read since.
    pub(super) fn reply(&self) -> anyhow::Result<Option<Reply>> {
        match self.replies.try_recv() {
            Ok(reply) => Ok(Some(reply)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }
}

fn gone() -> anyhow::Error {
    anyhow!("the thread that reads the trace has ended")
}

struct Work {
    shown: Shown,
    wanted: Receiver<Wanted>,
    found: Sender<Reply>,
    /// The request that arrived during a read.
    next: Option<Wanted>,
}

impl Work {
    /// Returns whether something newer is wanted.
    fn is_outdated(&mut self) -> bool {
        if let Some(wanted) = self.wanted.try_iter().last() {
            self.next = Some(wanted);
        }
        self.next.is_some()
    }

    fn run(mut self) {
        let mut drawn: Option<View> = None;
        let mut detailed = None;
        let mut searched: Option<Search> = None;
        loop {
            let newest = self.wanted.try_iter().last().or_else(|| self.next.take());
            let Some(wanted) = newest.or_else(|| self.wanted.recv().ok()) else {
                return;
            };
            self.next = None;
            let mut outcome = Ok(());
            if wanted.search.is_some() && searched != wanted.search {
                searched.clone_from(&wanted.search);
                outcome = wanted.search.map_or(Ok(()), |search| self.search(search));
            }
            if outcome.is_ok() && drawn != Some(wanted.view) {
                detailed = None;
                outcome = self.draw(wanted.view).map(|is_whole| {
                    drawn = is_whole.then_some(wanted.view);
                });
            }
            if outcome.is_ok() && !self.is_outdated() && detailed != Some(wanted.cursor) {
                detailed = Some(wanted.cursor);
                outcome = self.details(wanted.view, wanted.cursor);
            }
            let told = outcome.or_else(|error| self.tell(Reply::Failed(format!("{error:#}"))));
            if told.is_err() {
                // The viewer is gone.
                return;
            }
        }
    }

    fn tell(&self, reply: Reply) -> anyhow::Result<()> {
        self.found.send(reply).map_err(|_| gone())
    }

    fn search(&mut self, search: Search) -> anyhow::Result<()> {
        let mut told = Ok(());
        let hit = {
            let (found, wanted, next) = (&self.found, &self.wanted, &mut self.next);
            let go_on = |at_ns: i64| {
                told = found.send(Reply::Searching(at_ns)).map_err(|_| gone());
                *next = wanted.try_iter().last().or_else(|| next.take());
                told.is_ok()
                    && next
                        .as_ref()
                        .is_none_or(|w| w.search.as_ref() == Some(&search))
            };
            search::run(&self.shown, &search, go_on)?
        };
        told?;
        match hit {
            search::SearchOutcome::Hit(hit) => self.tell(Reply::Found(search, Some(hit))),
            search::SearchOutcome::None => self.tell(Reply::Found(search, None)),
            search::SearchOutcome::Stopped => Ok(()),
        }
    }

    fn details(&self, view: View, cursor: (usize, usize)) -> anyhow::Result<()> {
        let details = details::gather(&self.shown, view, cursor)?;
        self.tell(Reply::Details(Box::new(details)))
    }

    /// Draws; whether to the end, or until something else was wanted.
    fn draw(&mut self, view: View) -> anyhow::Result<bool> {
        if events_in(&self.shown.opened, view.window) > self.shown.most_events
            && self
                .shown
                .opened
                .trace()
                .is_some_and(|trace| !trace.snapshots().is_empty())
        {
            return self.draw_places(view);
        }
        let request = Request {
            window: view.window,
            columns: view.columns,
            lanes: view.lanes,
            first_lane: Some(view.first_lane),
            levels: 1,
            messages: None,
        };
        let (layout, _) = Layout::of(&self.shown.opened, &self.shown.filter, request)?;
        let picture = |statistics, layout| Picture {
            view,
            layout,
            places: None,
            statistics,
        };
        self.tell(Reply::Picture(picture(
            vec!["reading …".to_owned()],
            layout.clone(),
        )))?;
        if self.is_outdated() {
            return Ok(false);
        }
        let (opened, filter) = (&self.shown.opened, &self.shown.arguments);
        let query = filter.query(opened.definitions(), view.window)?;
        let (times, _) = region_times(opened, &query, Grouping::None)?;
        let mut rows = rows_with_outside(&times);
        rows.truncate(MOST_REGIONS);
        let table = Table::of(&rows).render(Screen::columns(view.columns));
        let statistics = table.lines().map(str::to_owned).collect();
        self.tell(Reply::Picture(picture(statistics, layout)))?;
        Ok(true)
    }

    /// Returns the coarse picture of a view with too many events: what every lane was in, at more and more places.
    fn draw_places(&mut self, view: View) -> anyhow::Result<bool> {
        let mut states: Vec<Option<Snapshot>> = vec![None; view.columns];
        let mut count = 0;
        let mut told = 0;
        // 0, 1/2, 1/4, 3/4, 1/8, …: bits in reverse order.
        let bits = view.columns.next_power_of_two().trailing_zeros();
        for step in 0..1_usize << bits {
            let column = match bits {
                0 => 0,
                bits => step.reverse_bits() >> (usize::BITS - bits),
            };
            if column >= view.columns {
                continue;
            }
            states[column] = Some(self.shown.opened.open_at(place_in(view, column))?);
            count += 1;
            if count == 8 || count == view.columns || count - told >= 16 {
                told = count;
                self.tell(Reply::Picture(self.picture_of(view, &states, count)))?;
            }
            if self.is_outdated() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn picture_of(&self, view: View, states: &[Option<Snapshot>], count: usize) -> Picture {
        let definitions = self.shown.opened.definitions();
        let shown = lanes_of(definitions, &self.shown.filter);
        let shown = shown.into_iter().skip(view.first_lane);
        let shown: Vec<LocationId> = shown.take(view.lanes).collect();
        // Each column shows the last sampled place before it, or the first one.
        let mut nearest = states.iter().position(Option::is_some).unwrap_or(0);
        let mut cells = vec![vec![None; view.columns]; shown.len()];
        let mut shares = std::collections::BTreeMap::new();
        for column in 0..view.columns {
            let is_here = states[column].is_some();
            if is_here {
                nearest = column;
            }
            let Some(state) = &states[nearest] else {
                continue;
            };
            for (lane, location) in shown.iter().enumerate() {
                let found = state.locations.iter().find(|s| s.location == *location);
                let open = found.and_then(|state| {
                    state.steps.iter().rev().find_map(|step| match step {
                        Step::Enter { region, .. } => Some(*region),
                        Step::Leave(_) => None,
                    })
                });
                cells[lane][column] = open.filter(|id| self.shown.filter.takes_region(*id));
                if let Some(region) = cells[lane][column].filter(|_| is_here) {
                    *shares.entry(region).or_insert(0_i64) += 1;
                }
            }
        }
        let mut regions: Vec<_> = shares.into_iter().collect();
        regions.sort_by_key(|(region, times)| (std::cmp::Reverse(*times), *region));
        let whole: i64 = regions.iter().map(|(_, times)| times).sum();
        let span = view.window.to_ns - view.window.from_ns;
        let each_ns = span / i64::try_from(count.max(1)).unwrap_or(1);
        let legend = regions.iter().map(|(region, times)| Legend {
            name: definitions.region_name(*region),
            exclusive_ns: times.saturating_mul(each_ns),
            is_uncertain: true,
        });
        let names = LocationNames::new(definitions);
        let place_of = |id| regions.iter().position(|(region, _)| *region == id);
        let lanes = shown.iter().zip(&cells).map(|(id, cells)| {
            let mut runs: Vec<Run> = Vec::new();
            for (column, region) in cells.iter().enumerate() {
                let Some(region) = region.and_then(place_of) else {
                    continue;
                };
                match runs.last_mut() {
                    Some(last) if last.to == column && last.region == region => last.to += 1,
                    _ => runs.push(Run {
                        from: column,
                        to: column + 1,
                        region,
                        calls: None,
                        call_ns: None,
                    }),
                }
            }
            TimelineLane {
                rank: definitions.rank_of_location(*id),
                name: names.get(*id).to_owned(),
                label: lane_label(&names, definitions, *id),
                rows: vec![LaneRow { runs }],
                waits: Vec::new(),
                waited_ns: Vec::new(),
                gaps: Vec::new(),
                metric: None,
            }
        });
        let mut statistics = vec![format!(
            "share of {count} places sampled ({} events: zoom in to count)",
            events_in(&self.shown.opened, view.window)
        )];
        statistics.extend(regions.iter().take(40).map(|(region, times)| {
            let share = *times as f64 * 100.0 / whole.max(1) as f64;
            let name = crate::table::safe(&definitions.region_name(*region));
            format!("{share:>5.1} %  {name}")
        }));
        let mut layout = Layout {
            window: view.window,
            columns: view.columns,
            lanes: lanes.collect(),
            messages: MessageLines::default(),
            longest_waits: Vec::new(),
            legend: legend.collect(),
            outside: "outside of all regions",
            notes: Vec::new(),
        };
        self.mark_gaps(&mut layout, &shown);
        Picture {
            view,
            layout,
            places: Some(count),
            statistics,
        }
    }

    fn mark_gaps(&self, layout: &mut Layout, shown: &[LocationId]) {
        let Ok(summary) = self.shown.opened.summary() else {
            return;
        };
        let streams = &self.shown.opened.definitions().streams;
        for loss in &summary.losses {
            let location = streams.get(&loss.stream).and_then(|s| s.location);
            let lane = shown.iter().position(|id| Some(*id) == location);
            let Some(lane) = lane.filter(|_| !loss.cause.is_suppressed()) else {
                continue;
            };
            if !layout.window.overlaps(loss.from_ns, loss.to_ns) {
                continue;
            }
            layout.lanes[lane].gaps.push(crate::timeline::Gap {
                from: bin_of(layout.window, layout.columns, loss.from_ns),
                to: bin_of(layout.window, layout.columns, loss.to_ns) + 1,
                count: loss.count,
                is_lower_bound: loss.is_lower_bound,
                cause: loss.cause.name(),
            });
        }
    }
}

/// Returns a place in a column. It differs between columns, so that a pattern that repeats at the columns' pace does
/// not look constant. (Fibonacci hashing: D. Knuth, "The Art of Computer Programming" 3, §6.4.)
fn place_in(view: View, column: usize) -> i64 {
    let start = bin_start(view.window, view.columns, column);
    let width = bin_start(view.window, view.columns, column + 1).abs_diff(start);
    let share = (column as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let offset = (u128::from(share) * u128::from(width)) >> 64;
    start.saturating_add_unsigned(offset as u64)
}

/// Returns the number of events in a window by the index, which counts whole chunks.
fn events_in(opened: &Reader, window: Window) -> u64 {
    let before = |ns| opened.events_before(ns);
    before(window.to_ns).saturating_sub(before(window.from_ns))
}
