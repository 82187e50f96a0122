//! Drawing.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::app::{App, LABEL};
use super::reader::Picture;
use crate::names::{cut_middle, shorten, width};
use crate::time::duration;
use annals_analysis::{Colour, FULL, bin_of, bin_start, region_colour};

use crate::timeline::terminal::block;

const HELP: [&str; 15] = [
    "←  →        move the cursor in time (with Shift: by ten columns)",
    "↑  ↓  k  j  choose a lane (Page Up, Page Down: by a page)",
    "h  l        half a screen earlier, later",
    "Home  End   to the start and the end of the trace",
    "+  -        zoom in and out at the cursor",
    "Enter       the region under the cursor fills the screen",
    "0           the whole trace",
    "/           look for a region or event type by a part of its name",
    "n  N        the next one, the one before",
    "g  G        to the next gap, to the one before: where events were lost",
    "q           leave",
    "",
    "Below: the calls and events under the cursor, and the statistics of what is shown.",
    "░ waits for another rank. ▒ events were lost here. A column has the deepest region",
    "with half of it, and is as high as calls fill it.",
];

const KEYS: &str = "←→ cursor  ↑↓ lane  +- zoom  h l pan  Enter into  / n N search  g G gaps  0 all  ? help  q quit";

/// The contents of a cell of a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown<'a> {
    Nothing,
    Gap,
    Region {
        name: &'a str,
        fill: u8,
        is_waiting: bool,
    },
}

pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let buffer = frame.buffer_mut();
    let plain = Style::default();
    put(
        buffer,
        area,
        0,
        0,
        &app.heading(),
        plain.add_modifier(Modifier::BOLD),
    );
    draw_axis(app, buffer, area);
    for row in 0..app.view.lanes {
        draw_lane(app, buffer, area, row, has_colour);
    }
    let below = 2 + app.view.lanes;
    if app.panel != 0 {
        draw_panel(app, buffer, area, below);
    }
    let last = usize::from(area.height).saturating_sub(1);
    let (text, style) = match (&app.prompt, app.message.is_empty()) {
        (Some(typed), _) => (format!("/{typed}_"), plain.add_modifier(Modifier::BOLD)),
        (None, false) => (app.message.clone(), plain.add_modifier(Modifier::BOLD)),
        (None, true) => (KEYS.to_owned(), plain.add_modifier(Modifier::DIM)),
    };
    put(buffer, area, 0, last, &text, style);
    if app.shows_help {
        draw_help(buffer, area);
    }
}

/// Writes a line of text, as far as there is room.
fn put(buffer: &mut Buffer, area: Rect, x: usize, y: usize, text: &str, style: Style) {
    let (Ok(x), Ok(y)) = (u16::try_from(x), u16::try_from(y)) else {
        return;
    };
    if x < area.width && y < area.height {
        let room = usize::from(area.width - x);
        buffer.set_stringn(area.x + x, area.y + y, text, room, style);
    }
}

fn draw_axis(app: &App, buffer: &mut Buffer, area: Rect) {
    let each = 16;
    let dim = Style::default().add_modifier(Modifier::DIM);
    for column in (0..app.view.columns).step_by(each) {
        let start = bin_start(app.view.window, app.view.columns, column);
        let mark = format!("│{}", duration(start));
        put(buffer, area, LABEL + column, 1, &mark, dim);
    }
    put(buffer, area, LABEL + app.column, 1, "▼", Style::default());
}

fn draw_lane(app: &App, buffer: &mut Buffer, area: Rect, row: usize, has_colour: bool) {
    let lane = app.view.first_lane + row;
    let Some(label) = app.lanes.get(lane) else {
        return;
    };
    let is_chosen = lane == app.lane;
    let mark = if is_chosen { '>' } else { ' ' };
    let label = cut_middle(&format!("{mark}{label}"), LABEL - 1);
    let style = if is_chosen {
        Style::default().add_modifier(Modifier::REVERSED)
    } else {
        Style::default()
    };
    let y = 2 + row;
    put(
        buffer,
        area,
        0,
        y,
        &format!("{label:<width$}", width = LABEL - 1),
        style,
    );
    put(buffer, area, LABEL - 1, y, "│", Style::default());
    let mut cells = vec![Shown::Nothing; app.view.columns];
    if let Some(picture) = &app.picture {
        fill(app, picture, lane, &mut cells);
    }
    let mut from = 0;
    for run in cells.chunk_by(|a, b| a == b) {
        draw_run(buffer, area, LABEL + from, y, run[0], run.len(), has_colour);
        from += run.len();
    }
    if is_chosen {
        let (x, y) = (LABEL + app.column, y);
        if x < usize::from(area.width) && y < usize::from(area.height) {
            let cell = &mut buffer[(area.x + x as u16, area.y + y as u16)];
            let style = cell.style().add_modifier(Modifier::REVERSED);
            cell.set_style(style).set_symbol("◆");
        }
    }
}

/// Fills a lane from a picture that may be of another view: the old picture is shown until the new one is read.
fn fill<'a>(app: &App, picture: &'a Picture, lane: usize, cells: &mut [Shown<'a>]) {
    let lane = lane.checked_sub(picture.view.first_lane);
    let Some(lane) = lane.and_then(|lane| picture.layout.lanes.get(lane)) else {
        return;
    };
    let mut drawn = vec![Shown::Nothing; picture.view.columns];
    for run in lane.rows.iter().flat_map(|row| &row.runs) {
        let name = picture.layout.legend[run.region].name.as_str();
        drawn[run.from..run.to].fill(Shown::Region {
            name,
            fill: run.fill,
            is_waiting: false,
        });
    }
    for column in lane.waiting_columns(&picture.layout) {
        if let Shown::Region { is_waiting, .. } = &mut drawn[column] {
            *is_waiting = true;
        }
    }
    for gap in &lane.gaps {
        let end = gap.to.min(drawn.len());
        drawn[gap.from.min(end)..end].fill(Shown::Gap);
    }
    let (view, old) = (app.view, picture.view);
    for (column, cell) in cells.iter_mut().enumerate() {
        if (view.window, view.columns) == (old.window, old.columns) {
            *cell = drawn[column];
            continue;
        }
        let middle = bin_start(view.window, 2 * view.columns, 2 * column + 1);
        if old.window.contains(middle) {
            *cell = drawn[bin_of(old.window, old.columns, middle)];
        }
    }
}

/// Draws columns of a lane that show the same.
fn draw_run(
    buffer: &mut Buffer,
    area: Rect,
    x: usize,
    y: usize,
    shown: Shown<'_>,
    length: usize,
    has_colour: bool,
) {
    let (text, style) = match shown {
        Shown::Nothing => return,
        Shown::Gap => {
            let style = if has_colour {
                Style::default().fg(Color::Red)
            } else {
                Style::default()
            };
            ("▒".repeat(length), style)
        }
        Shown::Region {
            name,
            fill,
            is_waiting,
        } => {
            let name = crate::table::safe(name);
            let label = shorten(&name, length.saturating_sub(1));
            // A name that does not fit says less than none.
            let label = if label.chars().count() >= name.chars().count().min(3) {
                label
            } else {
                String::new()
            };
            let sign = match (has_colour, is_waiting) {
                (true, true) => '░',
                (true, false) if fill == FULL => ' ',
                (true, false) => block(fill),
                (false, true) => '-',
                (false, false) if 2 * fill >= FULL => '=',
                (false, false) => '.',
            };
            let text = format!("{label}{}", sign.to_string().repeat(length - width(&label)));
            let colour = region_colour(&name);
            let as_rgb = |Colour(r, g, b)| Color::Rgb(r, g, b);
            let style = match has_colour {
                false => Style::default(),
                true if fill == FULL => {
                    Style::default().bg(as_rgb(colour)).fg(as_rgb(colour.ink()))
                }
                true => Style::default().fg(as_rgb(colour)),
            };
            (text, style)
        }
    };
    put(buffer, area, x, y, &text, style);
}

fn draw_panel(app: &App, buffer: &mut Buffer, area: Rect, top: usize) {
    let width = usize::from(area.width);
    let half = (width / 2).max(1);
    let dim = Style::default().add_modifier(Modifier::DIM);
    put(buffer, area, 0, top, &"─".repeat(width), dim);
    let label = app.lanes.get(app.lane).map_or("", String::as_str);
    let heading = format!(" {} s, {label} ", crate::time::moment(app.time_ns()));
    let heading = cut_middle(&heading, half.saturating_sub(1));
    put(buffer, area, 1, top, &heading, Style::default());
    put(
        buffer,
        area,
        half + 1,
        top,
        " what is shown ",
        Style::default(),
    );
    let nothing = [String::new()];
    let details = app.details().unwrap_or(&nothing);
    for (row, line) in details.iter().take(app.panel).enumerate() {
        let line = cut_middle(line, half - 1);
        put(buffer, area, 0, top + 1 + row, &line, Style::default());
    }
    let statistics = app
        .picture
        .as_ref()
        .filter(|p| p.view.window == app.view.window);
    let statistics = statistics.map_or(&[][..], |picture| &picture.statistics);
    for (row, line) in statistics.iter().take(app.panel).enumerate() {
        put(buffer, area, half, top + 1 + row, line, Style::default());
    }
}

fn draw_help(buffer: &mut Buffer, area: Rect) {
    let width = HELP
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
        + 4;
    let left = usize::from(area.width).saturating_sub(width) / 2;
    let top = usize::from(area.height).saturating_sub(HELP.len() + 2) / 2;
    let style = Style::default().add_modifier(Modifier::REVERSED);
    for row in 0..HELP.len() + 2 {
        let line = row.checked_sub(1).and_then(|row| HELP.get(row)).copied();
        let line = format!("  {:<width$}", line.unwrap_or_default(), width = width - 2);
        put(buffer, area, left, top + row, &line, style);
    }
}
