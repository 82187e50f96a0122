//! The timeline in a terminal: a line for each lane, a character for each column.

use std::fmt::Write as _;

use super::{Layout, colour};
use crate::table::safe;
use crate::time;
use annals_analysis::bin_start;

/// Columns beside those of time.
pub const LABEL: usize = 20;

/// How a region is shown without colour.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Regions that the legend names.
const MOST_NAMES: usize = 12;

fn letter(place: usize) -> char {
    LETTERS.get(place).map_or('+', |letter| char::from(*letter))
}

fn paint(text: &mut String, place: usize, has_colour: bool, count: usize) {
    if has_colour {
        let c = colour(place);
        let _ = write!(text, "\u{1b}[38;2;{};{};{}m", c.0, c.1, c.2);
        text.extend(std::iter::repeat_n('█', count));
        text.push_str("\u{1b}[0m");
    } else {
        text.extend(std::iter::repeat_n(letter(place), count));
    }
}

fn fitted(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return format!("{text:<width$}");
    }
    let mut short: String = text.chars().take(width - 1).collect();
    short.push('…');
    short
}

/// What a column of a lane shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Gap,
    Region(usize),
}

/// The picture as lines of text.
pub fn render(layout: &Layout, has_colour: bool) -> String {
    let mut text = String::new();
    for lane in &layout.lanes {
        let name = format!("{} {}", lane.rank, safe(&lane.name));
        let _ = write!(text, "{}│", fitted(&name, LABEL - 1));
        let mut columns = vec![Shown::Nothing; layout.columns];
        for run in lane.rows.iter().flat_map(|row| &row.runs) {
            columns[run.from..run.to].fill(Shown::Region(run.region));
        }
        for gap in &lane.gaps {
            columns[gap.from..gap.to.min(layout.columns)].fill(Shown::Gap);
        }
        for run in columns.chunk_by(|a, b| a == b) {
            match run[0] {
                Shown::Nothing => text.extend(std::iter::repeat_n('·', run.len())),
                Shown::Gap if has_colour => {
                    text.push_str("\u{1b}[31m");
                    text.extend(std::iter::repeat_n('▒', run.len()));
                    text.push_str("\u{1b}[0m");
                }
                Shown::Gap => text.extend(std::iter::repeat_n('▒', run.len())),
                Shown::Region(place) => paint(&mut text, place, has_colour, run.len()),
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
    let each = 16;
    let marks = (layout.columns / each).max(1);
    text.extend(std::iter::repeat_n(' ', LABEL - 1));
    text.push('└');
    for column in 0..layout.columns {
        text.push(if column % each == 0 { '┴' } else { '─' });
    }
    text.push('\n');
    text.extend(std::iter::repeat_n(' ', LABEL));
    for mark in 0..marks {
        let start = bin_start(layout.window, layout.columns, mark * each);
        let _ = write!(text, "{:<each$}", time::duration(start));
    }
    while text.ends_with(' ') {
        text.pop();
    }
    text.push('\n');
}

fn legend(layout: &Layout, has_colour: bool, text: &mut String) {
    let whole: i64 = layout.legend.iter().map(|entry| entry.exclusive_ns).sum();
    for (place, entry) in layout.legend.iter().take(MOST_NAMES).enumerate() {
        text.push_str("  ");
        paint(text, place, has_colour, 1);
        let share = entry.exclusive_ns as f64 * 100.0 / whole.max(1) as f64;
        let _ = writeln!(
            text,
            " {}  {} ({share:.1} %)",
            safe(&entry.name),
            time::duration(entry.exclusive_ns)
        );
    }
    if layout.legend.len() > MOST_NAMES {
        let _ = writeln!(
            text,
            "  … {} more regions",
            layout.legend.len() - MOST_NAMES
        );
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
        let _ = writeln!(
            text,
            "  ▒ events were lost: {least}{lost} in {} places",
            gaps.count()
        );
    }
    if !layout.trips.is_empty() {
        let _ = writeln!(
            text,
            "  {} messages: lines are drawn with --svg or --png",
            layout.trips.len()
        );
    }
}
