//! The timeline as a picture, on whatever can draw boxes, lines and text.

use annals_analysis::{Colour, region_colour};
use annals_merger::Window;

use super::font::{fitted, text_width};
use super::layout::{MessageLine, MetricRow, TimelineLane};
use super::{Layout, Run, ticks};
use crate::names::shorten;
use crate::svg::{Anchor, Svg};
use crate::table::safe;
use crate::time;
use crate::views::{numbered, wait_sentence};

/// The meaning of a hatched box.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hatch {
    /// Events were lost.
    Lost,
    /// The lane waited for another.
    Waiting,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Stroke {
    /// Its colour.
    pub colour: Colour,
    /// Its width in pixels.
    pub width: f64,
    /// Its opacity, from 0 to 1.
    pub opacity: f64,
}

/// How a text is drawn.
#[derive(Clone, Copy, Debug)]
pub struct TextStyle {
    /// Where it is held.
    pub anchor: Anchor,
    /// Height of its letters in pixels.
    pub size: f64,
    /// Its colour.
    pub colour: Colour,
}

/// A surface to draw pictures on. Lengths are in pixels.
pub trait Canvas {
    /// Draws a filled box: x, y, width, height. The title is shown when it is pointed at, where that can be.
    fn rect(&mut self, at: [f64; 4], fill: Colour, title: &str);
    /// Draws a hatched box over what is there.
    fn hatch(&mut self, at: [f64; 4], hatch: Hatch, title: &str);
    /// Draws a line from (x1, y1) to (x2, y2).
    fn line(&mut self, at: [f64; 4], stroke: Stroke);
    /// Draws a filled polygon.
    fn polygon(&mut self, points: &[(f64, f64)], fill: Colour);
    /// Draws a filled circle.
    fn circle(&mut self, x: f64, y: f64, radius: f64, fill: Colour);
    /// Draws a text, its baseline at y.
    fn text(&mut self, x: f64, y: f64, style: TextStyle, text: &str);
}

const MARGIN: f64 = 12.0;
/// Height of a row, if the lanes do not become higher than [`MOST_HEIGHT`] by it.
const ROW: f64 = 16.0;
/// Height of a row of very many.
const LEAST_ROW: f64 = 2.0;
/// Height of the lanes from which on rows are made lower.
const MOST_HEIGHT: f64 = 3000.0;
/// Rows from this height on are separated.
const SEPARATE: f64 = 6.0;
/// Distance of the labels of two lanes, at least.
const LABEL: f64 = 13.0;
const METRIC: f64 = 26.0;
const DENSITY: f64 = 30.0;
/// Between two lanes, and between parts of the text below.
const GAP: f64 = 6.0;
const LINE: f64 = 17.0;
/// Where the lanes begin.
const TOP: f64 = 52.0;
/// Widest label of a lane.
const MOST_LABEL: f64 = 190.0;
/// Regions that the legend names.
const MOST_NAMES: usize = 24;
/// Columns of the legend, at most.
const LEGEND_COLUMNS: usize = 3;
/// Width of a column of the legend, at least.
const LEGEND_WIDTH: f64 = 280.0;
/// A loss that is narrower is filled, not hatched.
const LEAST_HATCH: f64 = 6.0;
/// With more messages, their density is drawn instead of a line for each.
const MOST_LINES: usize = 250;
/// Columns of time that share a step of the density.
const DENSITY_COLUMNS: usize = 4;
const SMALL: f64 = 10.0;
const NORMAL: f64 = 11.0;
const LARGE: f64 = 15.0;

const BLACK: Colour = Colour(0x22, 0x22, 0x22);
const DARK: Colour = Colour(0x55, 0x55, 0x55);
const WHITE: Colour = Colour(0xff, 0xff, 0xff);
/// Background of lanes: outside of all regions.
const OUTSIDE: Colour = Colour(0xec, 0xec, 0xec);
const GREY: Colour = Colour(0xb0, 0xb0, 0xb0);
/// A loss.
pub(super) const RED: Colour = Colour(0xcc, 0x33, 0x11);
const BLUE: Colour = Colour(0x88, 0xaa, 0xcc);

const fn style(anchor: Anchor, size: f64, colour: Colour) -> TextStyle {
    TextStyle {
        anchor,
        size,
        colour,
    }
}

const MESSAGE: Stroke = Stroke {
    colour: BLACK,
    width: 0.8,
    opacity: 0.65,
};

const AXIS: Stroke = Stroke {
    colour: GREY,
    width: 1.0,
    opacity: 1.0,
};

/// The explanation of a sign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Outside,
    Waiting,
    Message,
    Density,
    Lost,
}

impl Sign {
    fn text(self, layout: &Layout) -> String {
        let text = match self {
            Self::Outside => layout.outside,
            Self::Waiting => "waits for another rank",
            Self::Message => "message, from send to receive",
            Self::Density => {
                let count = time::grouped(layout.messages.count);
                return format!("number of messages by time ({count} in all)");
            }
            Self::Lost => "events were lost",
        };
        text.to_owned()
    }
}

/// The measures of a picture.
struct Sheet<'a> {
    layout: &'a Layout,
    /// Where time begins, pixels from the left.
    left: f64,
    /// Height of a row.
    row: f64,
    /// Between two lanes.
    gap: f64,
    has_density: bool,
    signs: Vec<Sign>,
}

impl<'a> Sheet<'a> {
    fn new(layout: &'a Layout) -> Self {
        let labels = layout
            .lanes
            .iter()
            .map(|lane| text_width(&safe(&lane.label), NORMAL));
        let widest = labels.fold(60.0, f64::max).min(MOST_LABEL);
        let has_lines = !layout.messages.lines.is_empty();
        let has_density = layout.messages.count > MOST_LINES as u64;
        let mut signs = vec![Sign::Outside];
        let any = |is: fn(&TimelineLane) -> bool| layout.lanes.iter().any(is);
        signs.extend(any(|lane| !lane.waits.is_empty()).then_some(Sign::Waiting));
        signs.extend((has_lines && !has_density).then_some(Sign::Message));
        signs.extend(has_density.then_some(Sign::Density));
        signs.extend(any(|lane| !lane.gaps.is_empty()).then_some(Sign::Lost));
        let rows: usize = layout.lanes.iter().map(|lane| lane.rows.len().max(1)).sum();
        let row = (MOST_HEIGHT / rows.max(1) as f64).floor();
        let row = row.clamp(LEAST_ROW, ROW);
        Self {
            layout,
            row,
            gap: if row == ROW { GAP } else { (row / 4.0).floor() },
            left: (MARGIN + widest + 8.0).round(),
            has_density,
            signs,
        }
    }

    fn width(&self) -> f64 {
        self.left + self.layout.columns as f64 + MARGIN
    }

    fn height_of(&self, lane: &TimelineLane) -> f64 {
        let metric = if lane.metric.is_some() { METRIC } else { 0.0 };
        self.row * lane.rows.len().max(1) as f64 + metric
    }

    /// Returns the height of a bar: less than that of its row if there is room.
    fn bar(&self) -> f64 {
        if self.row >= SEPARATE {
            self.row - 1.0
        } else {
            self.row
        }
    }

    /// Returns the height of the lanes.
    fn lanes_height(&self) -> f64 {
        let lanes = self
            .layout
            .lanes
            .iter()
            .map(|lane| self.height_of(lane) + self.gap);
        lanes.sum()
    }

    fn legend_columns(&self) -> usize {
        let room = self.width() - 2.0 * MARGIN;
        ((room / LEGEND_WIDTH) as usize).clamp(1, LEGEND_COLUMNS)
    }

    fn legend_lines(&self) -> usize {
        let regions = self.layout.legend.len();
        let more = usize::from(regions > MOST_NAMES);
        regions.min(MOST_NAMES).div_ceil(self.legend_columns()) + more
    }

    fn height(&self) -> f64 {
        let density = if self.has_density { DENSITY } else { 0.0 };
        let lines = self.legend_lines()
            + self.signs.len().div_ceil(self.legend_columns())
            + self.layout.longest_waits.len()
            + self.layout.notes.len();
        let breaks = 1 + usize::from(!self.layout.longest_waits.is_empty());
        TOP + self.lanes_height()
            + density
            + 34.0
            + lines as f64 * LINE
            + breaks as f64 * GAP
            + MARGIN
    }

    fn x(&self, time_ns: i64) -> f64 {
        let Window { from_ns, to_ns } = self.layout.window;
        let span = (to_ns as f64 - from_ns as f64).max(1.0);
        let passed = time_ns as f64 - from_ns as f64;
        self.left + (passed / span).clamp(0.0, 1.0) * self.layout.columns as f64
    }
}

/// Returns the width and height of the picture.
pub fn size(layout: &Layout) -> (f64, f64) {
    let sheet = Sheet::new(layout);
    (sheet.width(), sheet.height())
}

/// Draws a picture with this title.
pub fn draw(layout: &Layout, title: &str, canvas: &mut dyn Canvas) {
    let sheet = Sheet::new(layout);
    draw_title(&sheet, title, canvas);
    let mut y = TOP;
    let mut tops = Vec::with_capacity(layout.lanes.len());
    let mut last_label = f64::NEG_INFINITY;
    for lane in &layout.lanes {
        tops.push(y);
        if y - last_label >= LABEL {
            last_label = y;
            draw_label(&sheet, lane, y, canvas);
        }
        draw_lane(&sheet, lane, y, canvas);
        y += sheet.height_of(lane) + sheet.gap;
    }
    if sheet.has_density {
        draw_density(&sheet, y, canvas);
        y += DENSITY;
    } else {
        let middle = |lane: usize| {
            let rows = layout.lanes[lane].rows.len().max(1) as f64;
            tops[lane] + sheet.row * rows / 2.0
        };
        for line in &layout.messages.lines {
            draw_message(&sheet, line, middle(line.from.0), middle(line.to.0), canvas);
        }
    }
    for (number, named) in layout.longest_waits.iter().enumerate() {
        let (from_ns, to_ns) = (named.wait.from_ns, named.wait.from_ns + named.wait.wait_ns);
        let rows = layout.lanes[named.lane].rows.len().max(1);
        let level = named.level.min(rows - 1) as f64;
        let (left, right) = (sheet.x(from_ns), sheet.x(to_ns));
        // Of a long wait, the start is left for the name.
        let middle = f64::midpoint(left, right);
        let x = middle.max(right - 12.0);
        let y = tops[named.lane] + sheet.row * level + sheet.row / 2.0;
        draw_number(number + 1, x, y, canvas);
    }
    draw_axis(&sheet, y, canvas);
    draw_below(&sheet, y + 34.0, canvas);
}

fn draw_title(sheet: &Sheet<'_>, title: &str, canvas: &mut dyn Canvas) {
    let layout = sheet.layout;
    let room = sheet.width() - 2.0 * MARGIN;
    let title = fitted(&safe(title), LARGE, room);
    canvas.text(MARGIN, 24.0, style(Anchor::Start, LARGE, BLACK), &title);
    let mut ranks: Vec<u32> = layout.lanes.iter().map(|lane| lane.rank).collect();
    ranks.dedup();
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let Window { from_ns, to_ns } = layout.window;
    let text = format!(
        "{} rank{}, {} lane{}, {} from {} to {}",
        ranks.len(),
        plural(ranks.len()),
        layout.lanes.len(),
        plural(layout.lanes.len()),
        time::duration(to_ns.saturating_sub(from_ns)),
        time::duration(from_ns),
        time::duration(to_ns)
    );
    let text = fitted(&text, NORMAL, room);
    canvas.text(MARGIN, 41.0, style(Anchor::Start, NORMAL, DARK), &text);
}

fn draw_label(sheet: &Sheet<'_>, lane: &TimelineLane, y: f64, canvas: &mut dyn Canvas) {
    let label = fitted(&safe(&lane.label), NORMAL, MOST_LABEL);
    let end = style(Anchor::End, NORMAL, BLACK);
    canvas.text(sheet.left - 8.0, y + 11.5, end, &label);
}

fn draw_lane(sheet: &Sheet<'_>, lane: &TimelineLane, y: f64, canvas: &mut dyn Canvas) {
    let layout = sheet.layout;
    let rows = lane.rows.len().max(1) as f64;
    let whole = [sheet.left, y, layout.columns as f64, sheet.row * rows];
    canvas.rect(whole, OUTSIDE, "");
    for (level, row) in lane.rows.iter().enumerate() {
        for run in &row.runs {
            draw_bar(sheet, run, y + sheet.row * level as f64, canvas);
        }
    }
    for wait in &lane.waits {
        let level = wait.call.map_or(0, |(_, level)| level as usize);
        if level < lane.rows.len().max(1) {
            let (from, to) = (sheet.x(wait.from_ns), sheet.x(wait.to_ns));
            let at = [
                from,
                y + sheet.row * level as f64,
                (to - from).max(0.5),
                ROW - 1.0,
            ];
            canvas.hatch(at, Hatch::Waiting, &wait_sentence(&wait.wait));
        }
    }
    for (level, row) in lane.rows.iter().enumerate() {
        for run in &row.runs {
            draw_name(sheet, lane, run, y + sheet.row * level as f64, canvas);
        }
    }
    for gap in &lane.gaps {
        let least = if gap.is_lower_bound { "at least " } else { "" };
        let title = format!(
            "lost: {least}{} ({})",
            numbered(gap.count, "event"),
            gap.cause
        );
        let wide = (gap.to - gap.from) as f64;
        let at = [
            sheet.left + gap.from as f64,
            y,
            wide.max(2.0),
            sheet.row * rows,
        ];
        if wide < LEAST_HATCH {
            canvas.rect(at, RED, &title);
        } else {
            canvas.hatch(at, Hatch::Lost, &title);
        }
    }
    if let Some(metric) = &lane.metric {
        draw_metric(sheet, metric, y + sheet.row * rows, canvas);
    }
}

fn draw_bar(sheet: &Sheet<'_>, run: &Run, y: f64, canvas: &mut dyn Canvas) {
    let name = &sheet.layout.legend[run.region].name;
    let fill = region_colour(name).filled(run.fill, OUTSIDE);
    let (left, right) = match run.call_ns {
        Some((from_ns, to_ns)) => (sheet.x(from_ns).round(), sheet.x(to_ns).round()),
        None => (sheet.left + run.from as f64, sheet.left + run.to as f64),
    };
    canvas.rect(
        [left, y, (right - left).max(1.0), sheet.bar()],
        fill,
        &title(sheet.layout, run),
    );
}

/// Writes the name of a bar's region into it, if there is room.
fn draw_name(sheet: &Sheet<'_>, lane: &TimelineLane, run: &Run, y: f64, canvas: &mut dyn Canvas) {
    const PADDING: f64 = 4.0;
    let name = &sheet.layout.legend[run.region].name;
    let (left, right) = (sheet.left + run.from as f64, sheet.left + run.to as f64);
    // A hatched part that the bar begins with; the name is in the wider part.
    let hatched = lane.waits.iter().find_map(|wait| {
        let (from, to) = (sheet.x(wait.from_ns), sheet.x(wait.to_ns));
        (from <= left + 1.0 && to > left).then(|| to.min(right))
    });
    let (left, right, ink) = match hatched {
        Some(end) if end - left > right - end => (left, end, BLACK),
        Some(end) => (end, right, region_colour(name).ink()),
        None => (left, right, region_colour(name).ink()),
    };
    let room = right - left - 2.0 * PADDING;
    if room < 3.0 * SMALL || sheet.row < SMALL {
        return;
    }
    let columns = (room / (SMALL * 0.6)) as usize;
    let label = shorten(&safe(name), columns);
    // A small part of a name says less than none.
    if text_width(&label, SMALL) > room || label.chars().count() < name.chars().count().min(6) {
        return;
    }
    let style = style(Anchor::Start, SMALL, ink);
    canvas.text(left + PADDING, y + sheet.row - 5.0, style, &label);
}

/// Returns the description of a bar.
fn title(layout: &Layout, run: &Run) -> String {
    let name = &layout.legend[run.region].name;
    if let Some((from_ns, to_ns)) = run.call_ns.filter(|_| run.is_whole) {
        let took = time::duration(to_ns - from_ns);
        let (from, to) = (time::duration(from_ns), time::duration(to_ns));
        return format!("{name}: {took}, {from} .. {to}");
    }
    let border = |column| time::duration(layout.time.start_ns(column));
    let (from, to) = (border(run.from), border(run.to));
    match run.calls {
        Some(calls) => {
            let calls = numbered(calls, "call");
            format!("mostly {name}, {calls} that end here: {from} .. {to}")
        }
        None => format!("mostly {name}: {from} .. {to}"),
    }
}

/// Draws a message as an arrow from the height of one lane to that of another.
fn draw_message(
    sheet: &Sheet<'_>,
    line: &MessageLine,
    from_y: f64,
    to_y: f64,
    canvas: &mut dyn Canvas,
) {
    /// Length and half the width of an arrow's head.
    const HEAD: (f64, f64) = (6.0, 2.2);
    let (from, to) = ((sheet.x(line.from.1), from_y), (sheet.x(line.to.1), to_y));
    canvas.line([from.0, from.1, to.0, to.1], MESSAGE);
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy);
    if length < HEAD.0 {
        return;
    }
    let (ux, uy) = (dx / length, dy / length);
    let base = (to.0 - ux * HEAD.0, to.1 - uy * HEAD.0);
    let points = [
        to,
        (base.0 - uy * HEAD.1, base.1 + ux * HEAD.1),
        (base.0 + uy * HEAD.1, base.1 - ux * HEAD.1),
    ];
    canvas.polygon(&points, BLACK);
}

/// Draws steps above a floor: x of each step's start and its height as a share of the room.
fn draw_steps(
    sheet: &Sheet<'_>,
    steps: &[(usize, f64)],
    [top, floor]: [f64; 2],
    canvas: &mut dyn Canvas,
) {
    let right = sheet.left + sheet.layout.columns as f64;
    let mut points = Vec::with_capacity(2 * steps.len() + 2);
    for (place, (column, share)) in steps.iter().enumerate() {
        let next = steps.get(place + 1);
        let (start, y) = (sheet.left + *column as f64, floor - (floor - top) * share);
        points.push((start, y));
        points.push((next.map_or(right, |next| sheet.left + next.0 as f64), y));
    }
    if let (Some(first), Some(last)) = (points.first().copied(), points.last().copied()) {
        points.push((last.0, floor));
        points.push((first.0, floor));
        canvas.polygon(&points, BLUE);
    }
}

fn draw_density(sheet: &Sheet<'_>, top: f64, canvas: &mut dyn Canvas) {
    let floor = top + DENSITY - 4.0;
    let counts = sheet.layout.messages.by_column.chunks(DENSITY_COLUMNS);
    let counts: Vec<u64> = counts.map(|columns| columns.iter().sum()).collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let steps = counts.iter().enumerate();
    let steps = steps.map(|(place, count)| (place * DENSITY_COLUMNS, *count as f64 / most as f64));
    draw_steps(
        sheet,
        &steps.collect::<Vec<_>>(),
        [top + 2.0, floor],
        canvas,
    );
    let end = style(Anchor::End, NORMAL, BLACK);
    canvas.text(sheet.left - 8.0, floor - 6.0, end, "messages");
}

fn draw_metric(sheet: &Sheet<'_>, metric: &MetricRow, top: f64, canvas: &mut dyn Canvas) {
    let floor = top + METRIC - 2.0;
    let known = || metric.values.iter().flatten();
    let low = known().fold(0.0_f64, |low, value| low.min(*value));
    let high = known().fold(low, |high, value| high.max(*value));
    let tall = if high > low { high - low } else { 1.0 };
    let values = metric.values.iter().enumerate();
    let steps = values.filter_map(|(column, value)| Some((column, ((*value)? - low) / tall)));
    draw_steps(
        sheet,
        &steps.collect::<Vec<_>>(),
        [top + 4.0, floor],
        canvas,
    );
    let name = fitted(&safe(&metric.name), SMALL, MOST_LABEL);
    let end = style(Anchor::End, SMALL, DARK);
    canvas.text(sheet.left - 8.0, floor - 5.0, end, &name);
}

/// Draws a number in a circle.
fn draw_number(number: usize, x: f64, y: f64, canvas: &mut dyn Canvas) {
    canvas.circle(x, y, 7.0, BLACK);
    let middle = style(Anchor::Middle, SMALL, WHITE);
    canvas.text(x, y + 3.6, middle, &number.to_string());
}

fn draw_axis(sheet: &Sheet<'_>, y: f64, canvas: &mut dyn Canvas) {
    let right = sheet.left + sheet.layout.columns as f64;
    canvas.line([sheet.left, y, right, y], AXIS);
    for tick in ticks(sheet.layout.window, (sheet.layout.columns / 90).max(2)) {
        let x = sheet.x(tick.time_ns);
        canvas.line([x, y, x, y + 5.0], AXIS);
        let half = text_width(&tick.label, NORMAL) / 2.0;
        // Labels stay within the picture.
        let x = x.clamp(
            MARGIN + half,
            (sheet.width() - half - 2.0).max(MARGIN + half),
        );
        canvas.text(
            x,
            y + 18.0,
            style(Anchor::Middle, NORMAL, BLACK),
            &tick.label,
        );
    }
}

/// Draws legend, signs, waits and notes.
fn draw_below(sheet: &Sheet<'_>, top: f64, canvas: &mut dyn Canvas) {
    let layout = sheet.layout;
    let columns = sheet.legend_columns();
    let wide = (sheet.width() - 2.0 * MARGIN) / columns as f64;
    let start = style(Anchor::Start, NORMAL, BLACK);
    let place_of = |place: usize, y: f64| {
        let x = MARGIN + wide * (place % columns) as f64;
        (x, y + LINE * (place / columns) as f64)
    };
    let mut y = top + 10.0;
    let whole: i64 = layout.legend.iter().map(|entry| entry.exclusive_ns).sum();
    for (place, entry) in layout.legend.iter().take(MOST_NAMES).enumerate() {
        let (x, line) = place_of(place, y);
        canvas.rect([x, line - 9.0, 14.0, 10.0], region_colour(&entry.name), "");
        let took = format!("  {}", entry.time(whole));
        let room = wide - 20.0 - 10.0 - text_width(&took, NORMAL);
        let letters = (room / (NORMAL * 0.6)) as usize;
        let name = fitted(&shorten(&safe(&entry.name), letters), NORMAL, room);
        canvas.text(x + 20.0, line, start, &(name + &took));
    }
    y += LINE * layout.legend.len().min(MOST_NAMES).div_ceil(columns) as f64;
    if layout.legend.len() > MOST_NAMES {
        let text = format!("{} more regions", layout.legend.len() - MOST_NAMES);
        canvas.text(MARGIN, y, start, &text);
        y += LINE;
    }
    y += GAP;
    for (place, sign) in sheet.signs.iter().enumerate() {
        let (x, line) = place_of(place, y);
        draw_sign(*sign, [x, line - 9.0, 14.0, 10.0], canvas);
        let text = fitted(&sign.text(layout), NORMAL, wide - 30.0);
        canvas.text(x + 20.0, line, start, &text);
    }
    y += LINE * sheet.signs.len().div_ceil(columns) as f64;
    let room = sheet.width() - 2.0 * MARGIN;
    if !layout.longest_waits.is_empty() {
        y += GAP;
    }
    for (number, sentence) in layout.wait_sentences().enumerate() {
        draw_number(number + 1, MARGIN + 7.0, y - 4.0, canvas);
        let text = fitted(&sentence, NORMAL, room - 20.0);
        canvas.text(MARGIN + 20.0, y, start, &text);
        y += LINE;
    }
    for note in &layout.notes {
        let text = fitted(&safe(note), NORMAL, room);
        canvas.text(MARGIN, y, style(Anchor::Start, NORMAL, DARK), &text);
        y += LINE;
    }
}

fn draw_sign(sign: Sign, [x, y, width, height]: [f64; 4], canvas: &mut dyn Canvas) {
    let at = [x, y, width, height];
    let middle = y + height / 2.0;
    match sign {
        Sign::Outside => canvas.rect(at, OUTSIDE, ""),
        Sign::Waiting => {
            canvas.rect(at, DARK, "");
            canvas.hatch(at, Hatch::Waiting, "");
        }
        Sign::Message => {
            canvas.line([x, middle, x + width, middle], MESSAGE);
            let tip = (x + width, middle);
            let points = [
                tip,
                (tip.0 - 6.0, middle - 2.2),
                (tip.0 - 6.0, middle + 2.2),
            ];
            canvas.polygon(&points, BLACK);
        }
        Sign::Density => canvas.rect(at, BLUE, ""),
        Sign::Lost => canvas.hatch(at, Hatch::Lost, ""),
    }
}

struct OnSvg(Svg);

impl Canvas for OnSvg {
    fn rect(&mut self, at: [f64; 4], fill: Colour, title: &str) {
        self.0.rect(at, &fill.hex(), title);
    }

    fn hatch(&mut self, at: [f64; 4], hatch: Hatch, title: &str) {
        let fill = match hatch {
            Hatch::Lost => "url(#lost)",
            Hatch::Waiting => "url(#waiting)",
        };
        self.0.rect(at, fill, title);
    }

    fn line(&mut self, at: [f64; 4], stroke: Stroke) {
        self.0
            .line(at, &stroke.colour.hex(), stroke.width, stroke.opacity);
    }

    fn polygon(&mut self, points: &[(f64, f64)], fill: Colour) {
        self.0.area(points, &fill.hex());
    }

    fn circle(&mut self, x: f64, y: f64, radius: f64, fill: Colour) {
        self.0.circle(x, y, radius, &fill.hex());
    }

    fn text(&mut self, x: f64, y: f64, style: TextStyle, text: &str) {
        self.0
            .text_in(x, y, style.size, style.anchor, &style.colour.hex(), text);
    }
}

/// Returns the picture as SVG.
pub fn svg(layout: &Layout, title: &str) -> String {
    let (width, height) = size(layout);
    let mut canvas = OnSvg(Svg::new(width, height));
    canvas.0.raw(
        "<defs><pattern id=\"lost\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#ffffff\" \
         fill-opacity=\"0.7\"/><rect width=\"2.5\" height=\"6\" fill=\"#cc3311\"/></pattern>\
         <pattern id=\"waiting\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(-45)\"><rect width=\"5\" height=\"5\" fill=\"#ffffff\" \
         fill-opacity=\"0.5\"/><rect width=\"1.5\" height=\"5\" fill=\"#ffffff\" fill-opacity=\"0.6\"/>\
         </pattern></defs>\n",
    );
    draw(layout, title, &mut canvas);
    canvas.0.finish()
}
