//! Details of the place under the cursor.

use std::io::Write as _;
use std::ops::ControlFlow;

use annals_format::RegionId;
use annals_merger::{Analysis, Calls, Close, Frame, Window};

use super::Shown;
use super::search::stretch;
use super::view::View;
use crate::names::shorten;
use crate::table::safe;
use crate::time::{duration, moment};
use crate::timeline::lanes_of;
use crate::values::put_elements;
use annals_analysis::{bin_start, bounded};

/// Lines of calls and of events, at most.
const MOST_LINES: usize = 40;
/// Columns of a region's name.
const MOST_NAME: usize = 60;

/// Maximum number of events in which the end of a call is searched.
const MOST_EVENTS: u64 = 300_000;

/// The calls and events of a lane in a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Details {
    pub(super) view: View,
    pub(super) cursor: (usize, usize),
    pub(super) lines: Vec<String>,
}

#[derive(Clone, Debug)]
struct Call {
    region: RegionId,
    depth: usize,
    entered_ns: i64,
    ended_ns: i64,
    how: Close,
    is_uncertain: bool,
}

struct Gatherer {
    number: usize,
    column: Window,
    calls: Vec<Call>,
    more: u64,
}

impl Analysis for Gatherer {
    fn close(
        &mut self,
        location: usize,
        frames: &[Frame],
        frame: &Frame,
        time_ns: i64,
        how: Close,
    ) {
        if location != self.number || !self.column.overlaps(frame.entered_ns, time_ns) {
            return;
        }
        if self.calls.len() >= 10 * MOST_LINES {
            self.more += 1;
            return;
        }
        self.calls.push(Call {
            region: frame.region,
            depth: frames.len(),
            entered_ns: frame.entered_ns,
            ended_ns: time_ns,
            how,
            is_uncertain: frame.is_uncertain,
        });
    }
}

/// Gathers what a lane has in a column.
pub(super) fn gather(shown: &Shown, view: View, cursor: (usize, usize)) -> anyhow::Result<Details> {
    let (lane, at) = cursor;
    let definitions = shown.opened.definitions();
    let from_ns = bin_start(view.window, view.columns, at);
    let column = Window {
        from_ns,
        to_ns: bin_start(view.window, view.columns, at + 1).max(from_ns + 1),
    };
    let mut details = Details {
        view,
        cursor,
        lines: Vec::new(),
    };
    let Some(location) = lanes_of(definitions, &shown.filter).get(lane).copied() else {
        return Ok(details);
    };
    // As far as the ends of calls are cheap to find.
    let whole = bounded(&shown.opened, Window::ALL);
    let mut window = stretch(&shown.opened, from_ns, true, MOST_EVENTS, whole);
    window.to_ns = window.to_ns.max(column.to_ns);
    let mut calls = Calls::new(definitions, &shown.filter.within(window));
    let number = calls
        .locations()
        .binary_search(&location)
        .unwrap_or(usize::MAX);
    let mut gatherer = Gatherer {
        number,
        column,
        calls: Vec::new(),
        more: 0,
    };
    calls.run(&shown.opened, &mut gatherer)?;
    let (mut lines, mut more) = (Vec::new(), 0_u64);
    let query = shown.filter.within(column);
    shown.opened.for_each_event(&query, |event| {
        if event.location_id() != Some(location) {
            return ControlFlow::Continue(());
        }
        if lines.len() >= MOST_LINES {
            more += 1;
            return ControlFlow::Continue(());
        }
        let mut line = Vec::new();
        // Writing into memory does not fail.
        let _ = write!(line, "{} {}", moment(event.time()), safe(event.name()));
        put_elements(&mut line, definitions, event);
        lines.push(String::from_utf8_lossy(&line).into_owned());
        ControlFlow::Continue(())
    })?;
    gatherer
        .calls
        .sort_by_key(|call| (call.entered_ns, call.depth));
    for call in &gatherer.calls {
        details.lines.push(line_of(shown, call));
    }
    details.lines.truncate(MOST_LINES);
    let hidden = gatherer.calls.len() as u64 + gatherer.more - details.lines.len() as u64;
    if hidden != 0 {
        details.lines.push(format!("… {hidden} more calls"));
    }
    details.lines.append(&mut lines);
    if more != 0 {
        details.lines.push(format!("… {more} more events"));
    }
    Ok(details)
}

fn line_of(shown: &Shown, call: &Call) -> String {
    let definitions = shown.opened.definitions();
    let definition = definitions.regions.get(&call.region);
    let place = definition.filter(|region| region.line != 0).map(|region| {
        let file = safe(definitions.string(region.file));
        format!("  {file}:{}", region.line)
    });
    let how_long = match call.how {
        Close::Left => duration(call.ended_ns - call.entered_ns),
        Close::Unleft => format!("{}, never left", duration(call.ended_ns - call.entered_ns)),
        Close::Open => format!("more than {}", duration(call.ended_ns - call.entered_ns)),
    };
    format!(
        "{:indent$}{}  {}{how_long} from {}{}",
        "",
        shorten(&safe(&definitions.region_name(call.region)), MOST_NAME),
        if call.is_uncertain { "~" } else { "" },
        moment(call.entered_ns),
        place.unwrap_or_default(),
        indent = 2 * call.depth.min(10),
    )
}
