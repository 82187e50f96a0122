//! The timeline in a terminal: a line for each lane, a character for each column.

use std::fmt::Write as _;

use annals_analysis::{FULL, bin_of, region_colour};

use super::layout::TimelineLane;
use super::{Layout, ticks};
use crate::names::{cut_middle, shorten, width};
use crate::table::safe;
use crate::time;

/// Columns of the labels, with the line after them.
pub const LABEL: usize = 20;

/// Columns that the lanes do not use: those of the labels, and one at the right.
pub const MARGIN: &str = "rank 0 · main       │ ";

/// How a region is shown without colour. Waiting within it is shown by the small letter.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Regions that the legend names.
const MOST_NAMES: usize = 12;

/// Columns of a name in the legend.
const NAME: usize = 60;

/// Columns between two marks of the axis.
const MARKS: usize = 18;

/// Characters of a region: without colour its letter, with colour blocks.
fn paint(text: &mut String, layout: &Layout, region: Region, has_colour: bool, count: usize) {
    if has_colour {
        let c = region_colour(&layout.legend[region.place].name);
        let _ = write!(text, "\u{1b}[38;2;{};{};{}m", c.0, c.1, c.2);
        let block = if region.is_waiting {
            '░'
        } else {
            block(region.fill)
        };
        text.extend(std::iter::repeat_n(block, count));
        text.push_str("\u{1b}[0m");
    } else {
        let letter = LETTERS
            .get(region.place)
            .map_or('+', |letter| char::from(*letter));
        let letter = match region.is_waiting {
            true if letter == '+' => '-',
            true => letter.to_ascii_lowercase(),
            false => letter,
        };
        text.extend(std::iter::repeat_n(letter, count));
    }
}

/// Returns the block that is as high as a column is full.
pub(crate) fn block(fill: u8) -> char {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let step = usize::from(fill.clamp(1, FULL)) * BLOCKS.len() / usize::from(FULL);
    BLOCKS[step.saturating_sub(1)]
}

fn fitted(text: &str, columns: usize) -> String {
    let short = cut_middle(text, columns);
    let pad = columns.saturating_sub(width(&short));
    format!("{short}{:pad$}", "")
}

/// A region in a column.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Region {
    /// Its place in the legend.
    place: usize,
    /// How full the column is.
    fill: u8,
    is_waiting: bool,
}

/// The contents of a column of a lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Gap,
    Region(Region),
}

/// Returns what the columns of a lane show.
fn columns_of(layout: &Layout, lane: &TimelineLane) -> Vec<Shown> {
    let mut columns = vec![Shown::Nothing; layout.columns];
    for run in lane.rows.iter().flat_map(|row| &row.runs) {
        columns[run.from..run.to].fill(Shown::Region(Region {
            place: run.region,
            fill: run.fill,
            is_waiting: false,
        }));
    }
    for column in lane.waiting_columns(layout) {
        if let Shown::Region(region) = &mut columns[column] {
            region.is_waiting = true;
        }
    }
    for gap in &lane.gaps {
        columns[gap.from..gap.to.min(layout.columns)].fill(Shown::Gap);
    }
    columns
}

/// Returns the picture as lines of text, with this title.
pub fn render(layout: &Layout, title: &str, has_colour: bool) -> String {
    let mut text = String::new();
    let span = layout.window.to_ns.saturating_sub(layout.window.from_ns);
    let _ = writeln!(
        text,
        "{}: {} from {} to {}",
        safe(title),
        time::duration(span),
        time::duration(layout.window.from_ns),
        time::duration(layout.window.to_ns)
    );
    for lane in &layout.lanes {
        let _ = write!(text, "{}│", fitted(&safe(&lane.label), LABEL - 1));
        for run in columns_of(layout, lane).chunk_by(|a, b| a == b) {
            match run[0] {
                Shown::Nothing => text.extend(std::iter::repeat_n('·', run.len())),
                Shown::Gap if has_colour => {
                    text.push_str("\u{1b}[31m");
                    text.extend(std::iter::repeat_n('▒', run.len()));
                    text.push_str("\u{1b}[0m");
                }
                Shown::Gap => text.extend(std::iter::repeat_n('▒', run.len())),
                Shown::Region(region) => paint(&mut text, layout, region, has_colour, run.len()),
            }
        }
        text.push('\n');
        if let Some(metric) = &lane.metric {
            let name = format!("  {}", safe(&metric.name));
            let _ = writeln!(
                text,
                "{}│{}",
                fitted(&name, LABEL - 1),
                area(&metric.values)
            );
        }
    }
    axis(layout, &mut text);
    legend(layout, has_colour, &mut text);
    for (number, sentence) in layout.wait_sentences().enumerate() {
        let _ = writeln!(text, "  {}. {sentence}", number + 1);
    }
    for note in &layout.notes {
        let _ = writeln!(text, "note: {}", safe(note));
    }
    text
}

fn area(values: &[Option<f64>]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let known = || values.iter().flatten();
    let low = known().fold(0.0_f64, |low, value| low.min(*value));
    let high = known().fold(low, |high, value| high.max(*value));
    let level = |value: f64| {
        let share = if high > low {
            (value - low) / (high - low)
        } else {
            0.0
        };
        LEVELS[(share * 7.0).round().clamp(0.0, 7.0) as usize]
    };
    values
        .iter()
        .map(|value| value.map_or(' ', level))
        .collect()
}

fn axis(layout: &Layout, text: &mut String) {
    let ticks = ticks(layout.window, (layout.columns / MARKS).max(2));
    let mut line = vec!['─'; layout.columns];
    let mut labels = String::new();
    for tick in &ticks {
        let column = bin_of(layout.window, layout.columns, tick.time_ns);
        line[column] = '┴';
        // A label that would not fit in the line is left out.
        if column >= width(&labels) && column + width(&tick.label) <= layout.columns {
            labels.extend(std::iter::repeat_n(' ', column - width(&labels)));
            labels.push_str(&tick.label);
            labels.push(' ');
        }
    }
    text.extend(std::iter::repeat_n(' ', LABEL - 1));
    text.push('└');
    text.extend(line);
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', LABEL));
    text.push_str(labels.trim_end());
    text.push('\n');
}

fn legend(layout: &Layout, has_colour: bool, text: &mut String) {
    let whole: i64 = layout.legend.iter().map(|entry| entry.exclusive_ns).sum();
    for (place, entry) in layout.legend.iter().take(MOST_NAMES).enumerate() {
        text.push_str("  ");
        let region = Region {
            place,
            fill: FULL,
            is_waiting: false,
        };
        paint(text, layout, region, has_colour, 1);
        let name = shorten(&safe(&entry.name), NAME);
        let _ = writeln!(text, " {name}  {}", entry.time(whole));
    }
    if layout.legend.len() > MOST_NAMES {
        let _ = writeln!(
            text,
            "  … {} more regions",
            layout.legend.len() - MOST_NAMES
        );
    }
    let _ = writeln!(text, "  · {}", layout.outside);
    if layout.lanes.iter().any(|lane| !lane.waits.is_empty()) {
        text.push_str(match has_colour {
            true => "  ░ waits for another rank\n",
            false => "  small letters: waits for another rank\n",
        });
    }
    if layout.lanes.iter().any(|lane| !lane.gaps.is_empty()) {
        let gaps = layout.lanes.iter().flat_map(|lane| &lane.gaps);
        let lost = gaps
            .clone()
            .fold(0_u64, |sum, gap| sum.saturating_add(gap.count));
        let least = if gaps.clone().any(|gap| gap.is_lower_bound) {
            "at least "
        } else {
            ""
        };
        let places = gaps.count();
        let plural = if places == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "  ▒ events were lost: {least}{lost} in {places} place{plural}"
        );
    }
    if layout.messages.count != 0 {
        let count = layout.messages.count;
        let (noun, verb) = if count == 1 {
            ("message", "is")
        } else {
            ("messages", "are")
        };
        let _ = writeln!(
            text,
            "  {} {noun}, which {verb} drawn with --svg or --png",
            time::grouped(count)
        );
    }
}
