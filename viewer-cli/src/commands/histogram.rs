//! `trace-cli histogram`: how durations of a region, or values of an element, are distributed.

use std::io::Write;
use std::path::PathBuf;

use annals_analysis::Values;
use annals_format::{EventTypeId, TraceLoss};
use annals_merger::{Calls, Query, ReadSummary, Reader, Window};
use anyhow::bail;
use clap::Args;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::file::{ForceArgument, SVG};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding, UsageError};
use crate::svg::{Anchor, Svg};
use crate::table::safe;
use crate::time;
use crate::views::{counted, numbered};

/// How long calls took (--region), or which values events had, as a histogram.
///
/// Calls are those that were entered and left in the window. Bins are equally wide between the smallest and the
/// largest value, or between --min and --max; with --log their ends grow by a factor. What lies outside is counted.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:\n  trace-cli histogram run.annals --region solve\n  \
                  trace-cli histogram run.annals --event send --element bytes --log\n  \
                  trace-cli histogram run.annals --region 'MPI_*' --svg durations.svg"
)]
pub struct HistogramArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// Element whose values are counted, of the event types that --event selects
    #[arg(long, value_name = "NAME")]
    element: Option<String>,

    /// Number of bins
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    bins: u16,

    /// Start of the first bin (durations: ns)
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    min: Option<f64>,

    /// End of the last bin
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    max: Option<f64>,

    /// Bins that grow
    #[arg(long)]
    log: bool,

    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    force: ForceArgument,
}

/// One bin: from ≤ value < to, the last one its end included.
#[derive(Clone, Copy, Debug, Serialize)]
struct Bin {
    from: f64,
    to: f64,
    count: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Histogram {
    /// `duration` or the element's name.
    of: String,
    unit: String,
    count: u64,
    below: u64,
    above: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    open_calls: u64,
    is_uncertain: bool,
    bins: Vec<Bin>,
}

fn values_of(
    arguments: &HistogramArguments,
    opened: &Reader,
    query: &Query,
) -> anyhow::Result<Values> {
    let Some(name) = &arguments.element else {
        if arguments.filter.region.is_none() {
            bail!(UsageError(
                "no values are selected: expected --region NAME, or --event TYPE with --element NAME"
                    .to_owned()
            ));
        }
        return Ok(Values::Durations);
    };
    let definitions = opened.definitions();
    let types = definitions.event_types.keys();
    let types = types.filter(|id| query.takes_event_type(**id));
    let found = types.filter_map(|id| Some((*id, definitions.element(*id, name)?)));
    let found: FxHashMap<EventTypeId, usize> = found.collect();
    if found.is_empty() {
        let elements = definitions.event_types.values();
        let elements = elements.flat_map(|event_type| &event_type.elements);
        let names = elements.map(|element| definitions.string(element.name));
        let near = crate::did_you_mean::did_you_mean(name, names);
        bail!("no element `{name}` in these event types{near}; see `trace-cli events`");
    }
    Ok(Values::Element(found))
}

/// Returns the ends of bins between two values: one more than there are bins.
fn edges(min: f64, max: f64, bins: usize, is_log: bool) -> Vec<f64> {
    let max = if max > min { max } else { min + 1.0 };
    let each = 0..=bins;
    if is_log {
        let low = if min > 0.0 { min } else { 1.0 };
        let high = max.max(low * 2.0);
        let factor = (high / low).ln();
        let edges = each.map(|n| low * (factor * n as f64 / bins as f64).exp());
        return edges.collect();
    }
    each.map(|n| min + (max - min) * (n as f64 / bins as f64))
        .collect()
}

fn measure(
    arguments: &HistogramArguments,
    opened: &Reader,
    window: Window,
) -> anyhow::Result<(Histogram, ReadSummary)> {
    let query = arguments.filter.query(opened.definitions(), window)?;
    let values = values_of(arguments, opened, &query)?;
    let extent = values.extent(opened, &query)?;
    let start = match arguments.log {
        true => extent.smallest_positive,
        false => extent.range.map(|range| range.0),
    };
    let min = arguments.min.or(start).unwrap_or(0.0);
    let max = arguments
        .max
        .unwrap_or_else(|| extent.range.map_or(1.0, |range| range.1));
    if min > max || (arguments.log && arguments.min.is_some_and(|min| min <= 0.0)) {
        let why = "--min must be below --max, and above 0 with --log";
        bail!(UsageError(why.to_owned()));
    }
    let edges = edges(min, max, arguments.bins.into(), arguments.log);
    let (found, outcome) = values.count(opened, &query, &edges, max)?;
    let calls = Calls::new(opened.definitions(), &query);
    let unit = match &values {
        Values::Durations => "ns".to_owned(),
        Values::Element(types) => {
            let first = types.iter().min_by_key(|(id, _)| **id);
            let element = first.and_then(|(id, at)| {
                let event_type = opened.definitions().event_types.get(id)?;
                event_type.elements.get(*at)
            });
            element.map_or_else(String::new, |e| {
                opened.definitions().string(e.unit).to_owned()
            })
        }
    };
    let is_lost = |loss: &TraceLoss| values.may_have_lost(loss, &calls, &query);
    let is_uncertain = outcome.losses.iter().any(is_lost);
    let bins = found.counts.iter().enumerate().map(|(bin, count)| Bin {
        from: edges[bin],
        to: edges[bin + 1],
        count: *count,
    });
    let histogram = Histogram {
        of: arguments
            .element
            .clone()
            .unwrap_or_else(|| "duration".to_owned()),
        unit,
        count: extent.count,
        below: found.below,
        above: found.above,
        min: extent.range.map(|range| range.0),
        max: extent.range.map(|range| range.1),
        mean: (extent.count != 0).then(|| extent.sum.value() / extent.count as f64),
        open_calls: extent.open_calls,
        is_uncertain,
        bins: bins.collect(),
    };
    Ok((histogram, outcome))
}

impl Histogram {
    fn value(&self, value: f64) -> String {
        if self.unit == "ns" {
            return time::duration(value.round() as i64);
        }
        let unit = safe(&self.unit);
        let digits = if value.fract() == 0.0 || value.abs() >= 1e6 {
            0
        } else {
            3
        };
        format!("{value:.digits$} {unit}").trim_end().to_owned()
    }

    fn render(&self) -> String {
        use std::fmt::Write as _;
        const WIDTH: usize = 50;
        const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
        let mut text = String::new();
        let mark = if self.is_uncertain { "~" } else { "" };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| self.value(v));
        let _ = writeln!(
            text,
            "{mark}{} of {}: min {}, mean {}, max {}",
            numbered(self.count, "value"),
            safe(&self.of),
            number(self.min),
            number(self.mean),
            number(self.max)
        );
        let most = self
            .bins
            .iter()
            .map(|bin| bin.count)
            .max()
            .unwrap_or(0)
            .max(1);
        let names: Vec<String> = self.bins.iter().map(|bin| self.value(bin.from)).collect();
        let width = names
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0);
        for (bin, name) in self.bins.iter().zip(&names) {
            let eighths = (u128::from(bin.count) * (WIDTH * 8) as u128 / u128::from(most)) as usize;
            // A bin that is not empty is visible.
            let eighths = if bin.count == 0 { 0 } else { eighths.max(1) };
            let mut bar = "█".repeat(eighths / 8);
            if eighths % 8 != 0 {
                bar.push(EIGHTHS[eighths % 8]);
            }
            let _ = writeln!(text, "{name:>width$} │{bar} {}", bin.count);
        }
        if self.below + self.above != 0 {
            let _ = writeln!(text, "{} below, {} above", self.below, self.above);
        }
        if self.open_calls != 0 {
            let calls = counted(self.open_calls, "call");
            let _ = writeln!(text, "{calls} open at the end: not among these values");
        }
        if self.is_uncertain {
            text.push_str("~ events were lost that may have changed this\n");
        }
        text
    }

    fn svg(&self) -> String {
        let (width, height, left, bottom, top) = (800.0, 400.0, 60.0, 50.0, 30.0);
        let mut svg = Svg::new(width, height);
        let most = self
            .bins
            .iter()
            .map(|bin| bin.count)
            .max()
            .unwrap_or(0)
            .max(1);
        let each = (width - left - 20.0) / self.bins.len() as f64;
        let floor = height - bottom;
        let mark = if self.is_uncertain { "~" } else { "" };
        svg.text(
            left,
            18.0,
            13.0,
            Anchor::Start,
            &format!("{}: {mark}{}", self.of, numbered(self.count, "value")),
        );
        for (number, bin) in self.bins.iter().enumerate() {
            let tall = (floor - top) * bin.count as f64 / most as f64;
            let x = left + each * number as f64;
            let title = format!(
                "{} .. {}: {}",
                self.value(bin.from),
                self.value(bin.to),
                bin.count
            );
            svg.rect([x, floor - tall, each * 0.95, tall], "#4477aa", &title);
        }
        svg.line([left, floor, width - 20.0, floor], "#333333", 1.0, 1.0);
        for number in 0..=4_usize {
            let at = number * self.bins.len() / 4;
            let edge = match self.bins.get(at) {
                Some(bin) => bin.from,
                None => self.bins.last().map_or(0.0, |bin| bin.to),
            };
            let x = left + each * at as f64;
            svg.text(x, floor + 18.0, 11.0, Anchor::Middle, &self.value(edge));
        }
        svg.text(left - 6.0, top + 8.0, 11.0, Anchor::End, &most.to_string());
        svg.text(left - 6.0, floor, 11.0, Anchor::End, "0");
        svg.finish()
    }
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, what is asked for is not there, or the output cannot be written.
pub fn run(arguments: &HistogramArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    arguments
        .force
        .check_picture(arguments.svg.as_deref(), SVG, "svg")?;
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let (histogram, outcome) = measure(arguments, &opened, window)?;
    warn_of_damage(&opened, &outcome);
    if let Some(path) = &arguments.svg {
        arguments
            .force
            .write(path, histogram.svg().as_bytes(), SVG)?;
    }
    if arguments.input.json {
        output::json(out, &histogram)?;
    } else if arguments.svg.is_none() {
        out.write_all(histogram.render().as_bytes())?;
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
