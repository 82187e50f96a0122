//! Reads in a separate thread.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use annals_analysis::{Grouping, region_times};
use anyhow::anyhow;

use super::Shown;
use super::details::{self, Details};
use super::search::{self, Hit, Search};
use super::view::View;
use crate::table::{Screen, Table, safe};
use crate::timeline::{Layout, Request, events_in};
use crate::views::rows_with_outside;

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
    Picture(Box<Picture>),
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
        let request = Request {
            window: view.window,
            columns: view.columns,
            lanes: view.lanes,
            first_lane: Some(view.first_lane),
            levels: 1,
            messages: None,
        };
        let Shown {
            opened,
            lanes,
            filter,
            ..
        } = &self.shown;
        let (layout, _) = Layout::of(opened, lanes, filter, request)?;
        let is_read = events_in(opened, view.window) <= self.shown.most_events;
        let statistics = match is_read {
            true => vec!["reading …".to_owned()],
            false => times_of(&layout),
        };
        let picture = |statistics, layout| {
            Reply::Picture(Box::new(Picture {
                view,
                layout,
                statistics,
            }))
        };
        self.tell(picture(statistics, layout.clone()))?;
        if !is_read {
            return Ok(true);
        }
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
        self.tell(picture(statistics, layout))?;
        Ok(true)
    }
}

/// Returns the times of the regions that a picture shows, as lines.
fn times_of(layout: &Layout) -> Vec<String> {
    let whole: i64 = layout.legend.iter().map(|entry| entry.exclusive_ns).sum();
    let shown = layout.legend.iter().take(MOST_REGIONS);
    let lines = shown.map(|entry| format!("{}  {}", entry.time(whole), safe(&entry.name)));
    let heading = "time in these lanes (zoom in to count calls)".to_owned();
    std::iter::once(heading).chain(lines).collect()
}
