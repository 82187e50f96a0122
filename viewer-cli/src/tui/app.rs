//! The state of the viewer: time, lanes, cursor; and its changes by keys.

use annals_format::LocationId;
use annals_merger::Window;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::Shown;
use super::details::Details;
use super::reader::{Picture, Reply, Wanted};
use super::search::Search;
use super::view::View;
use crate::time::{duration, moment};
use crate::timeline::{lane_label, lanes_of};
use annals_analysis::{LocationNames, bin_of, bin_start, bounded, part_of_run};

/// Width of the labels next to the columns of time.
pub(super) const LABEL: usize = 20;

/// The shortest view, nanoseconds.
const SHORTEST_NS: i64 = 10;

/// A loss that the viewer can jump to.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    from_ns: i64,
    to_ns: i64,
    lane: Option<usize>,
    what: String,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) title: String,
    /// The trace.
    pub(super) whole: Window,
    pub(super) view: View,
    /// Label of every lane.
    pub(super) lanes: Vec<String>,
    locations: Vec<LocationId>,
    gaps: Vec<Gap>,
    /// The gap that was gone to; none once the cursor moved.
    at_gap: Option<usize>,
    /// The lane under the cursor.
    pub(super) lane: usize,
    /// The column under the cursor.
    pub(super) column: usize,
    pub(super) picture: Option<Picture>,
    details: Option<Details>,
    /// Trace time that was gone to, nanoseconds. It is the cursor's as long as the cursor is in its column.
    target_ns: Option<i64>,
    search: Option<Search>,
    sought: String,
    /// A name that is being typed.
    pub(super) prompt: Option<String>,
    pub(super) message: String,
    pub(super) shows_help: bool,
    /// Lines of the lower part.
    pub(super) panel: usize,
    asked: Option<Wanted>,
}

impl App {
    pub(super) fn new(shown: &Shown) -> anyhow::Result<Self> {
        let definitions = shown.opened.definitions();
        let locations = lanes_of(definitions, &shown.filter);
        let names = LocationNames::new(definitions);
        let label = |id: &LocationId| crate::table::safe(&lane_label(&names, definitions, *id));
        let lanes: Vec<String> = locations.iter().map(label).collect();
        let summary = shown.opened.summary()?;
        let losses = summary.losses.iter().filter(|loss| {
            let is_nothing = loss.count == 0 && !loss.is_lower_bound;
            !is_nothing && !loss.cause.is_suppressed() && shown.filter.takes_stream(loss.stream)
        });
        let mut gaps: Vec<Gap> = losses
            .map(|loss| {
                let stream = definitions.streams.get(&loss.stream);
                let location = stream.and_then(|stream| stream.location);
                let lane = locations.iter().position(|id| Some(*id) == location);
                let of = loss.event_type.map(|id| definitions.event_type_name(id));
                let what = format!(
                    "{}{} {} lost ({}){}",
                    if loss.is_lower_bound { "at least " } else { "" },
                    loss.count,
                    crate::table::safe(of.as_deref().unwrap_or("events")),
                    loss.cause.name(),
                    lane.map_or_else(String::new, |lane| { format!(", {}", lanes[lane]) }),
                );
                Gap {
                    from_ns: loss.from_ns,
                    to_ns: loss.to_ns,
                    lane,
                    what,
                }
            })
            .collect();
        gaps.sort_by_key(|gap| (gap.from_ns, gap.lane));
        let whole = bounded(&shown.opened, Window::ALL);
        let asked = shown.filter.within(shown.window);
        let (first, _) = part_of_run(&shown.opened, &asked, false)?;
        let first = bounded(&shown.opened, first.window());
        Ok(Self {
            title: shown.title.clone(),
            whole,
            view: View {
                window: first,
                columns: 0,
                first_lane: 0,
                lanes: 0,
            },
            lanes,
            locations,
            gaps,
            at_gap: None,
            lane: 0,
            column: 0,
            picture: None,
            details: None,
            target_ns: None,
            search: None,
            sought: String::new(),
            prompt: None,
            message: String::new(),
            shows_help: false,
            panel: 0,
            asked: None,
        })
    }

    pub(super) fn resize(&mut self, width: usize, height: usize) {
        let columns = width.saturating_sub(LABEL).max(1);
        self.panel = match height {
            0..16 => 0,
            16..24 => 5,
            _ => (height / 3).clamp(8, 16),
        };
        let lanes = height.saturating_sub(4 + self.panel).max(1);
        if (columns, lanes) != (self.view.columns, self.view.lanes) {
            self.column = self.column * columns / self.view.columns.max(1);
            self.view.columns = columns;
            self.view.lanes = lanes;
        }
        self.column = self.column.min(columns - 1);
        self.show_lane(self.lane);
    }

    /// Returns the next request to the reader. `None` means that it was already sent.
    pub(super) fn next_request(&mut self) -> Option<Wanted> {
        let wanted = Wanted {
            view: self.view,
            cursor: (self.lane, self.column),
            search: self.search.clone(),
        };
        if self.asked.as_ref() == Some(&wanted) {
            return None;
        }
        self.asked = Some(wanted.clone());
        Some(wanted)
    }

    pub(super) fn take(&mut self, reply: Reply) {
        match reply {
            Reply::Picture(picture) => self.picture = Some(*picture),
            Reply::Details(details) => self.details = Some(*details),
            Reply::Searching(at_ns) => {
                if self.search.is_some() {
                    self.message = format!("looking for {} at {} …", self.sought, moment(at_ns));
                }
            }
            Reply::Found(search, hit) if self.search.as_ref() == Some(&search) => {
                self.search = None;
                let Some(hit) = hit else {
                    let where_ = if search.is_forward { "after" } else { "before" };
                    self.message = format!("no {} {where_} the cursor", self.sought);
                    return;
                };
                let lane = self
                    .locations
                    .iter()
                    .position(|id| Some(*id) == hit.location);
                self.go_to(hit.time_ns, lane);
                let lane = lane.map_or_else(String::new, |lane| format!(", {}", self.lanes[lane]));
                let name = crate::table::safe(&hit.name);
                self.message = format!("{name} at {} s{lane}", moment(hit.time_ns));
            }
            Reply::Found(..) => {}
            Reply::Failed(why) => {
                self.search = None;
                self.message = why;
            }
        }
    }

    /// Returns what is under the cursor, if it has been read.
    pub(super) fn details(&self) -> Option<&[String]> {
        let details = self.details.as_ref()?;
        let is_here = details.view.window == self.view.window
            && details.view.columns == self.view.columns
            && details.cursor == (self.lane, self.column);
        is_here.then_some(&details.lines)
    }

    /// Returns the trace time under the cursor: that which was gone to if it lies in the cursor's column, else the start of
    /// the column.
    pub(super) fn time_ns(&self) -> i64 {
        let start_ns = bin_start(self.view.window, self.view.columns, self.column);
        self.target().unwrap_or(start_ns)
    }

    /// Returns the trace time that was gone to, if it lies in the cursor's column.
    fn target(&self) -> Option<i64> {
        let is_here = |target: &i64| {
            let column = bin_of(self.view.window, self.view.columns, *target);
            self.view.window.contains(*target) && column == self.column
        };
        self.target_ns.filter(is_here)
    }

    fn span_ns(&self) -> i64 {
        self.view.window.to_ns - self.view.window.from_ns
    }

    /// Shows so much time from then on, within the trace; the cursor stays at its time if that is shown.
    fn show(&mut self, from_ns: i64, span_ns: i64) {
        let cursor_ns = self.time_ns();
        let longest = (self.whole.to_ns - self.whole.from_ns).max(SHORTEST_NS);
        let span_ns = span_ns.clamp(SHORTEST_NS, longest);
        let latest = (self.whole.to_ns - span_ns).max(self.whole.from_ns);
        let from_ns = from_ns.clamp(self.whole.from_ns, latest);
        self.view.window = Window {
            from_ns,
            to_ns: from_ns + span_ns,
        };
        self.column = bin_of(self.view.window, self.view.columns, cursor_ns);
    }

    fn zoom(&mut self, times: i64, by: i64) {
        let cursor_ns = self.time_ns();
        let span_ns = (self.span_ns() as i128 * i128::from(times) / i128::from(by)) as i64;
        let before = i128::from(cursor_ns - self.view.window.from_ns) * i128::from(times);
        self.show(cursor_ns - (before / i128::from(by)) as i64, span_ns);
    }

    fn pan(&mut self, columns: i64) {
        let step = (i128::from(self.span_ns()) * i128::from(columns)
            / self.view.columns.max(1) as i128) as i64;
        let column = self.column;
        self.show(
            self.view.window.from_ns.saturating_add(step),
            self.span_ns(),
        );
        self.column = column;
    }

    fn move_by(&mut self, columns: i64) {
        let last = self.view.columns as i64 - 1;
        let target = self.column as i64 + columns;
        if !(0..=last).contains(&target) {
            self.pan(target - target.clamp(0, last));
        }
        self.column = target.clamp(0, last) as usize;
    }

    fn show_lane(&mut self, lane: usize) {
        self.lane = lane.min(self.lanes.len().saturating_sub(1));
        let (first, shown) = (self.view.first_lane, self.view.lanes);
        if self.lane < first {
            self.view.first_lane = self.lane;
        } else if self.lane >= first + shown {
            self.view.first_lane = self.lane + 1 - shown;
        }
    }

    /// Moves the cursor to a moment of a lane, and the view if necessary.
    fn go_to(&mut self, time_ns: i64, lane: Option<usize>) {
        if !self.view.window.contains(time_ns) {
            self.show(time_ns - self.span_ns() / 2, self.span_ns());
        }
        self.column = bin_of(self.view.window, self.view.columns, time_ns);
        self.target_ns = Some(time_ns);
        if let Some(lane) = lane {
            self.show_lane(lane);
        }
    }

    fn go_to_gap(&mut self, is_forward: bool) {
        let next = match (self.at_gap, is_forward) {
            (Some(at), true) => Some(at + 1).filter(|next| *next < self.gaps.len()),
            (Some(at), false) => at.checked_sub(1),
            (None, true) => {
                let next_ns = bin_start(self.view.window, self.view.columns, self.column + 1);
                let at_ns = self.time_ns();
                // One that is under the cursor counts.
                let is_next = |gap: &Gap| gap.to_ns >= next_ns || gap.from_ns >= at_ns;
                self.gaps.iter().position(is_next)
            }
            (None, false) => {
                let at_ns = self.time_ns();
                self.gaps.iter().rposition(|gap| gap.from_ns < at_ns)
            }
        };
        let Some(next) = next else {
            self.message = match (self.gaps.len(), is_forward) {
                (0, _) => "nothing was lost".to_owned(),
                (_, true) => "no gap after the cursor".to_owned(),
                (_, false) => "no gap before the cursor".to_owned(),
            };
            return;
        };
        let gap = self.gaps[next].clone();
        let length = gap.to_ns.saturating_sub(gap.from_ns).max(1);
        let columns = self.view.columns.max(1) as i64;
        // Long enough to be visible, and complete.
        let is_tiny = self.span_ns() / columns > length;
        let span_ns = if is_tiny || length > self.span_ns() / 2 {
            length.saturating_mul(4)
        } else {
            self.span_ns()
        };
        self.show(gap.from_ns.saturating_sub((span_ns - length) / 2), span_ns);
        self.go_to(
            gap.from_ns.clamp(self.whole.from_ns, self.whole.to_ns - 1),
            gap.lane,
        );
        self.at_gap = Some(next);
        self.message = format!("gap {} of {}: {}", next + 1, self.gaps.len(), gap.what);
    }

    /// Zooms until the region under the cursor fills the view.
    fn zoom_into(&mut self) {
        let Some(picture) = self
            .picture
            .as_ref()
            .filter(|p| p.view.window == self.view.window)
        else {
            return;
        };
        let lane = self.lane.checked_sub(picture.view.first_lane);
        let lane = lane.and_then(|lane| picture.layout.lanes.get(lane));
        let mut runs = lane
            .iter()
            .flat_map(|lane| &lane.rows)
            .flat_map(|row| &row.runs);
        if let Some(run) = runs.find(|run| (run.from..run.to).contains(&self.column)) {
            let start = |column| bin_start(self.view.window, self.view.columns, column);
            let (from_ns, to_ns) = (start(run.from), start(run.to));
            self.show(from_ns, to_ns - from_ns);
        }
    }

    fn look_for(&mut self, is_forward: bool) {
        if self.sought.is_empty() {
            self.message = "nothing was looked for yet: / and a name".to_owned();
            return;
        }
        // After all of the cursor's column: what is found in it would be found again.
        let next_ns = bin_start(self.view.window, self.view.columns, self.column + 1);
        let from_ns = match (self.target(), is_forward) {
            // The last hit.
            (Some(target_ns), _) => target_ns,
            (None, true) => next_ns.max(self.time_ns() + 1) - 1,
            (None, false) => self.time_ns(),
        };
        self.search = Some(Search {
            name: self.sought.clone(),
            from_ns,
            is_forward,
        });
        self.message = format!("looking for {} …", self.sought);
    }

    /// Obeys a key; whether that is the end.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if let Some(typed) = &mut self.prompt {
            match key.code {
                KeyCode::Char(c) => typed.push(c),
                KeyCode::Backspace => {
                    typed.pop();
                }
                KeyCode::Esc => self.prompt = None,
                KeyCode::Enter => {
                    let typed = self.prompt.take().unwrap_or_default();
                    if !typed.is_empty() {
                        self.sought = typed;
                        self.look_for(true);
                    }
                }
                _ => {}
            }
            return false;
        }
        self.message.clear();
        if self.shows_help {
            // Any key closes the help, also the one that ends the program elsewhere.
            self.shows_help = false;
            return false;
        }
        let far = if key.modifiers.contains(KeyModifiers::SHIFT) {
            10
        } else {
            1
        };
        let half = (self.view.columns as i64 / 2).max(1);
        let page = self.view.lanes.max(1);
        let is_move = !matches!(key.code, KeyCode::Char('g' | 'G'));
        if is_move {
            self.at_gap = None;
            // A pending search must not move the cursor back after the user has moved it.
            self.search = None;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Left => self.move_by(-far),
            KeyCode::Right => self.move_by(far),
            KeyCode::Char('h') => self.pan(-half),
            KeyCode::Char('l') => self.pan(half),
            KeyCode::Up | KeyCode::Char('k') => self.show_lane(self.lane.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.show_lane(self.lane + 1),
            KeyCode::PageUp => self.show_lane(self.lane.saturating_sub(page)),
            KeyCode::PageDown => self.show_lane(self.lane + page),
            KeyCode::Home => {
                self.show(self.whole.from_ns, self.span_ns());
                self.column = 0;
            }
            KeyCode::End => {
                self.show(self.whole.to_ns, self.span_ns());
                self.column = self.view.columns - 1;
            }
            KeyCode::Char('+' | '=') => self.zoom(1, 2),
            KeyCode::Char('-' | '_') => self.zoom(2, 1),
            KeyCode::Char('0') => self.show(self.whole.from_ns, i64::MAX),
            KeyCode::Enter => self.zoom_into(),
            KeyCode::Char('g') => self.go_to_gap(true),
            KeyCode::Char('G') => self.go_to_gap(false),
            KeyCode::Char('/') => self.prompt = Some(String::new()),
            KeyCode::Char('n') => self.look_for(true),
            KeyCode::Char('N') => self.look_for(false),
            KeyCode::Char('?') => self.shows_help = true,
            _ => {}
        }
        false
    }

    /// Returns what is shown, in words.
    pub(super) fn heading(&self) -> String {
        let window = self.view.window;
        let state = match &self.picture {
            Some(picture) if picture.view == self.view => "",
            _ => "reading …",
        };
        format!(
            "{}  {} … {} s  {} of {}  {state}",
            self.title,
            moment(window.from_ns),
            moment(window.to_ns),
            duration(self.span_ns()),
            duration(self.whole.to_ns - self.whole.from_ns),
        )
    }
}
