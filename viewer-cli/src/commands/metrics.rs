//! `trace-cli metrics`: values over time.

use annals_format::names::element;
use std::io::Write;
use std::path::PathBuf;

use annals_analysis::{MetricPoint, MetricRow, bin_of, bin_start, bounded};
use annals_format::{EventTypeId, Role};
use annals_merger::{Query, ReadSummary, Reader, Window};
use anyhow::bail;
use clap::Args;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{Finding, RowsArguments};
use crate::svg::{Anchor, Svg};
use crate::table::{Align, Table, number};
use crate::time::moment;

/// Values of metrics over time, and how fast they change.
///
/// Metrics are event types with the role metric; --event with --element treats any number as a metric. In JSON and CSV
/// every row has the values in --points equal parts of the window. `~` marks rows that a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli metrics run.annals\n  \
                  trace-cli metrics run.annals --event memory --csv --points 100 > memory.csv\n  \
                  trace-cli metrics run.annals --event send --element bytes --svg bytes.svg")]
pub struct MetricsArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Element that holds the value
    #[arg(long, value_name = "NAME")]
    element: Option<String>,

    /// Parts of the window
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    points: u16,

    #[command(flatten)]
    rows: RowsArguments,

    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

/// The values of a metric in a part of the window.
#[derive(Clone, Debug)]
struct PointRow {
    metric: MetricRow,
    point: MetricPoint,
}

impl PointRow {
    fn of_metric(mut metric: MetricRow) -> impl Iterator<Item = Self> {
        let points = std::mem::take(&mut metric.points).into_iter();
        points.map(move |point| Self {
            metric: metric.clone(),
            point,
        })
    }
}

annals_analysis::columns! {
    PointRow;
    "metric" Name, |row| &row.metric.name;
    "element" Name, |row| &row.metric.element;
    "unit" Text, |row| &row.metric.unit;
    "rank" Number, |row| row.metric.rank;
    "location" Name, |row| &row.metric.location;
    "from_ns" Moment, |row| row.point.from_ns;
    "count" Count, |row| row.point.count;
    "min" Number, |row| row.point.min;
    "mean" Number, |row| row.point.mean;
    "max" Number, |row| row.point.max;
    "last" Number, |row| row.point.last;
}

#[derive(Clone, Debug, Serialize)]
struct Metrics {
    metrics: Vec<MetricRow>,
}

fn wanted(
    opened: &Reader,
    filter: &Query,
    element: Option<&str>,
) -> anyhow::Result<FxHashMap<EventTypeId, usize>> {
    let definitions = opened.definitions();
    let types = definitions.event_types.values();
    let types = types.filter(|t| filter.takes_event_type(t.id));
    let types = types.filter(|t| element.is_some() || t.role == Role::Metric);
    let found = types.filter_map(|t| {
        let at = definitions.element(t.id, element.unwrap_or(element::VALUE))?;
        Some((t.id, at))
    });
    let found: FxHashMap<_, _> = found.collect();
    if found.is_empty() {
        match element {
            Some(name) => bail!("no element `{name}` in these event types; see `trace-cli events`"),
            None => bail!(
                "no event type is a metric: name one with --event and its number with --element (see \
                 `trace-cli events`)"
            ),
        }
    }
    Ok(found)
}

fn measure(
    arguments: &MetricsArguments,
    opened: &Reader,
    window: Window,
) -> anyhow::Result<(Vec<MetricRow>, ReadSummary)> {
    let query = arguments.filter.query(opened.definitions(), window)?;
    let types = wanted(opened, &query, arguments.element.as_deref())?;
    let parts = usize::from(arguments.points);
    Ok(annals_analysis::metrics(opened, &query, &types, parts)?)
}

/// Returns a line of a character for each part of the window.
fn sparkline(row: &MetricRow, whole: Window, parts: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut line = vec![' '; parts];
    let span = row.max - row.min;
    for point in &row.points {
        let level = if span > 0.0 {
            (point.mean - row.min) / span * 7.0
        } else {
            3.0
        };
        let part = bin_of(whole, parts, point.from_ns);
        line[part] = LEVELS[level.round().clamp(0.0, 7.0) as usize];
    }
    line.into_iter().collect()
}

fn svg(rows: &[MetricRow], whole: Window) -> String {
    const MOST: usize = 40;
    let (width, left, each) = (900.0, 200.0, 70.0);
    let shown = &rows[..rows.len().min(MOST)];
    let mut svg = Svg::new(width, each * shown.len() as f64 + 50.0);
    let span = (whole.to_ns as f64 - whole.from_ns as f64).max(1.0);
    let x = |time_ns: i64| {
        left + (width - left - 20.0) * ((time_ns as f64 - whole.from_ns as f64) / span)
    };
    for (number_of, row) in shown.iter().enumerate() {
        let floor = each * (number_of + 1) as f64;
        let (low, high) = (row.min.min(0.0), row.max.max(0.0));
        let tall = if high > low { high - low } else { 1.0 };
        let y = |value: f64| floor - (each - 16.0) * ((value - low) / tall);
        let mark = if row.is_uncertain { "~" } else { "" };
        let location = row.location.as_deref().unwrap_or("-");
        let name = format!("{mark}{} {}", row.name, row.element);
        svg.text(left - 8.0, floor - 30.0, 12.0, Anchor::End, &name);
        let place = format!("rank {} {location}", row.rank);
        svg.text(left - 8.0, floor - 16.0, 10.0, Anchor::End, &place);
        let range = format!("{} .. {} {}", number(row.min), number(row.max), row.unit);
        svg.text(left - 8.0, floor - 4.0, 10.0, Anchor::End, &range);
        let mut shape = Vec::new();
        for point in &row.points {
            shape.push((x(point.from_ns), y(point.mean)));
        }
        if let (Some(first), Some(last)) = (shape.first().copied(), shape.last().copied()) {
            shape.push((last.0, y(0.0)));
            shape.push((first.0, y(0.0)));
            svg.area(&shape, "#88aacc");
        }
        svg.line([left, y(0.0), width - 20.0, y(0.0)], "#999999", 0.5, 1.0);
    }
    let floor = each * shown.len() as f64 + 18.0;
    for part in 0..=4 {
        let time_ns = bin_start(whole, 4, part);
        svg.text(
            x(time_ns),
            floor,
            10.0,
            Anchor::Middle,
            &format!("{} s", moment(time_ns)),
        );
    }
    if rows.len() > MOST {
        let text = format!("{} more rows are not shown", rows.len() - MOST);
        svg.text(left, floor + 20.0, 11.0, Anchor::Start, &text);
    }
    svg.finish()
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, there is no such metric, or the output cannot be written.
pub fn run(arguments: &MetricsArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments
        .force
        .check_picture(arguments.svg.as_deref(), SVG, "svg")?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let (mut metrics, outcome) = measure(arguments, &opened, window)?;
    let whole = bounded(&opened, window);
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.svg {
        arguments
            .force
            .write(path, svg(&metrics, whole).as_bytes(), SVG)?;
    }
    let screen = arguments.input.screen();
    if arguments.input.json {
        let total = arguments.rows.cut(&mut metrics);
        arguments.rows.json(out, &Metrics { metrics }, total)?;
    } else if arguments.rows.csv {
        let points = metrics.into_iter().flat_map(PointRow::of_metric);
        arguments
            .rows
            .put(out, &points.collect::<Vec<_>>(), screen)?;
    } else if arguments.svg.is_none() {
        const LINE: usize = 30;
        let lines = metrics.iter().map(|row| sparkline(row, whole, LINE));
        let mut table = Table::of(&metrics);
        table.add_column(("over time", Align::Left), lines);
        arguments
            .rows
            .put_table(out, table, screen, metrics.len())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
