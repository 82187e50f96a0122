//! The timeline as a picture, on whatever can draw boxes, lines and text.

use super::{Colour, Layout, Run, colour};
use crate::svg::{Anchor, Svg};
use crate::table::safe;
use crate::time;
use annals_analysis::bin_start;

/// What pictures are drawn on. Lengths in pixels.
pub trait Canvas {
    /// A filled box: x, y, width, height; the title is shown when it is pointed at, where that can be.
    fn rect(&mut self, at: [f64; 4], fill: Colour, title: &str);
    /// A hatched box.
    fn hatch(&mut self, at: [f64; 4], title: &str);
    /// A line from (x1, y1) to (x2, y2).
    fn line(&mut self, at: [f64; 4], colour: Colour);
    /// A filled shape.
    fn area(&mut self, points: &[(f64, f64)], fill: Colour);
    /// A text, its baseline at y.
    fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str);
}

/// Columns beside those of time, pixels.
pub const LEFT: f64 = 150.0;
const RIGHT: f64 = 20.0;
const ROW: f64 = 14.0;
const METRIC: f64 = 24.0;
const GAP: f64 = 6.0;
const LINE: f64 = 16.0;
/// Regions that the legend names.
const MOST_NAMES: usize = 24;
const BLACK: Colour = Colour(0x22, 0x22, 0x22);
const PALE: Colour = Colour(0xf2, 0xf2, 0xf2);
const GREY: Colour = Colour(0xb0, 0xb0, 0xb0);
const BLUE: Colour = Colour(0x88, 0xaa, 0xcc);

fn height_of(lane: &super::Lane) -> f64 {
    let metric = if lane.metric.is_some() { METRIC } else { 0.0 };
    ROW * lane.rows.len().max(1) as f64 + metric
}

/// Width and height that the picture takes.
pub fn size(layout: &Layout) -> (f64, f64) {
    let lanes = layout.lanes.iter().map(|lane| height_of(lane) + GAP);
    let names = layout.legend.len().min(MOST_NAMES).div_ceil(3) as f64;
    let notes = layout.notes.len() as f64 + 2.0;
    let height = 30.0 + lanes.sum::<f64>() + 24.0 + (names + notes) * LINE;
    (LEFT + layout.columns as f64 + RIGHT, height)
}

/// Draws it.
pub fn draw(layout: &Layout, canvas: &mut dyn Canvas) {
    let (width, _) = size(layout);
    let span = (layout.window.to_ns as f64 - layout.window.from_ns as f64).max(1.0);
    let x = |time_ns: i64| {
        let passed = time_ns as f64 - layout.window.from_ns as f64;
        LEFT + (passed / span).clamp(0.0, 1.0) * layout.columns as f64
    };
    let mut y = 24.0;
    let mut middles = Vec::new();
    for lane in &layout.lanes {
        let rows = lane.rows.len().max(1) as f64;
        let name = format!("{} {}", lane.rank, lane.name);
        canvas.text((LEFT - 8.0, y + ROW - 3.0), Anchor::End, &shortened(&name));
        canvas.rect([LEFT, y, layout.columns as f64, ROW * rows], PALE, "");
        for (level, row) in lane.rows.iter().enumerate() {
            for run in &row.runs {
                let at = [
                    LEFT + run.from as f64,
                    y + ROW * level as f64,
                    (run.to - run.from) as f64,
                    ROW - 1.0,
                ];
                canvas.rect(at, colour(run.region), &title(layout, run));
            }
        }
        for gap in &lane.gaps {
            let least = if gap.is_lower_bound { "at least " } else { "" };
            let title = format!("lost: {least}{} events ({})", gap.count, gap.cause);
            let wide = (gap.to - gap.from) as f64;
            canvas.hatch(
                [LEFT + gap.from as f64, y, wide.max(2.0), ROW * rows],
                &title,
            );
        }
        middles.push(y + ROW * rows / 2.0);
        y += ROW * rows;
        if let Some(metric) = &lane.metric {
            draw_metric(metric, y, canvas);
            y += METRIC;
        }
        y += GAP;
    }
    for trip in &layout.trips {
        let (from, to) = (middles[trip.from.0], middles[trip.to.0]);
        canvas.line([x(trip.from.1), from, x(trip.to.1), to], BLACK);
    }
    canvas.line([LEFT, y, width - RIGHT, y], GREY);
    // As many times as can be read beside each other.
    let parts = (layout.columns / 80).clamp(1, 8);
    for part in 0..=parts {
        let time_ns = bin_start(layout.window, parts, part);
        canvas.line([x(time_ns), y, x(time_ns), y + 4.0], GREY);
        let anchor = match part {
            0 => Anchor::Start,
            part if part == parts => Anchor::End,
            _ => Anchor::Middle,
        };
        canvas.text((x(time_ns), y + 16.0), anchor, &time::duration(time_ns));
    }
    draw_legend(layout, y + 34.0, canvas);
}

/// What a bar stands for.
fn title(layout: &Layout, run: &Run) -> String {
    let name = &layout.legend[run.region].name;
    if let Some((from_ns, to_ns)) = run.call_ns {
        let took = time::duration(to_ns - from_ns);
        let (from, to) = (time::duration(from_ns), time::duration(to_ns));
        return format!("{name}: {took}, {from} .. {to}");
    }
    let border = |column| time::duration(bin_start(layout.window, layout.columns, column));
    let (from, to) = (border(run.from), border(run.to));
    match run.calls {
        Some(calls) => format!("mostly {name}, {calls} calls: {from} .. {to}"),
        None => format!("mostly {name}: {from} .. {to}"),
    }
}

fn shortened(name: &str) -> String {
    const MOST: usize = 22;
    let name = safe(name);
    if name.chars().count() <= MOST {
        return name;
    }
    let short: String = name.chars().take(MOST - 2).collect();
    format!("{short}..")
}

fn draw_metric(metric: &super::MetricRow, top: f64, canvas: &mut dyn Canvas) {
    let floor = top + METRIC - 2.0;
    let known = || metric.values.iter().flatten();
    let low = known().fold(0.0_f64, |low, value| low.min(*value));
    let high = known().fold(low, |high, value| high.max(*value));
    let tall = if high > low { high - low } else { 1.0 };
    let y = |value: f64| floor - (METRIC - 6.0) * ((value - low) / tall);
    let points = metric.values.iter().enumerate();
    let points = points.filter_map(|(column, value)| Some((LEFT + column as f64, y((*value)?))));
    let mut shape: Vec<(f64, f64)> = points.collect();
    if let (Some(first), Some(last)) = (shape.first().copied(), shape.last().copied()) {
        shape.push((last.0 + 1.0, last.1));
        shape.push((last.0 + 1.0, floor));
        shape.push((first.0, floor));
        canvas.area(&shape, BLUE);
    }
    let name = shortened(&metric.name);
    canvas.text((LEFT - 8.0, floor - 4.0), Anchor::End, &name);
}

fn draw_legend(layout: &Layout, top: f64, canvas: &mut dyn Canvas) {
    let wide = (layout.columns as f64 + LEFT) / 3.0;
    let mut y = top;
    for (place, entry) in layout.legend.iter().take(MOST_NAMES).enumerate() {
        let x = 10.0 + wide * (place % 3) as f64;
        let line = y + LINE * (place / 3) as f64;
        canvas.rect([x, line - 10.0, 10.0, 10.0], colour(place), "");
        let text = format!("{}  {}", entry.name, time::duration(entry.exclusive_ns));
        canvas.text((x + 16.0, line), Anchor::Start, &text);
    }
    y += LINE * layout.legend.len().min(MOST_NAMES).div_ceil(3) as f64;
    if layout.legend.len() > MOST_NAMES {
        let text = format!("{} more regions", layout.legend.len() - MOST_NAMES);
        canvas.text((10.0, y), Anchor::Start, &text);
        y += LINE;
    }
    for note in &layout.notes {
        canvas.text((10.0, y), Anchor::Start, note);
        y += LINE;
    }
}

struct OnSvg(Svg);

impl Canvas for OnSvg {
    fn rect(&mut self, at: [f64; 4], fill: Colour, title: &str) {
        self.0.rect(at, &fill.hex(), title);
    }

    fn hatch(&mut self, at: [f64; 4], title: &str) {
        self.0.rect(at, "url(#lost)", title);
    }

    fn line(&mut self, at: [f64; 4], colour: Colour) {
        self.0.line(at, &colour.hex(), 0.7);
    }

    fn area(&mut self, points: &[(f64, f64)], fill: Colour) {
        self.0.area(points, &fill.hex());
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.0.text(at, 11.0, anchor, text);
    }
}

/// The picture as SVG.
pub fn svg(layout: &Layout) -> String {
    let (width, height) = size(layout);
    let mut canvas = OnSvg(Svg::new(width, height));
    canvas.0.raw(
        "<defs><pattern id=\"lost\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#ffffff\" \
         fill-opacity=\"0.7\"/><rect width=\"2.5\" height=\"6\" fill=\"#cc3311\"/></pattern></defs>\n",
    );
    draw(layout, &mut canvas);
    canvas.0.finish()
}
