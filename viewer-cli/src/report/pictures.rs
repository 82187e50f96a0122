//! Pictures as SVG in the page: bars, areas over time, and the heat map. Labels are text of the page where they can be, so that
//! they stay readable on small screens.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, PreEscaped, html};

use super::figures::RankGroup;
use super::text;

/// A part of a bar.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Its class in the style sheet: what it means.
    pub(super) class: &'static str,
    /// Its length, from 0 to 1.
    pub(super) share: f64,
}

/// A bar with its label and value.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// Its label, to the left.
    pub(super) label: String,
    /// Its value, to the right.
    pub(super) value: String,
    /// Its parts, from left to right.
    pub(super) segments: Vec<Segment>,
    /// Its description.
    pub(super) title: String,
}

/// Returns a group of bars. They are as wide as the page allows.
pub(super) fn bars(bars: &[Bar]) -> Markup {
    /// The width of a whole bar, in units of the picture.
    const WIDE: f64 = 1000.0;
    html! {
        div.bars {
            @for bar in bars {
                span.label { bdi { (text::cell(&bar.label)) } }
                svg viewBox="0 0 1000 16" preserveAspectRatio="none" role="img" aria-label=(text::sentence(&bar.title)) {
                    title { (text::sentence(&bar.title)) }
                    rect.empty width="1000" height="16" {}
                    @let starts = starts(&bar.segments);
                    @for (segment, start) in bar.segments.iter().zip(starts) {
                        rect class=(segment.class) x={ (rounded(start * WIDE)) }
                            width={ (rounded(segment.share * WIDE)) } height="16" {}
                    }
                }
                span.value { (bar.value) }
            }
        }
    }
}

/// Returns where each segment starts.
fn starts(segments: &[Segment]) -> Vec<f64> {
    let starts = segments.iter().scan(0.0, |end, segment| {
        let start = *end;
        *end += segment.share;
        Some(start)
    });
    starts.collect()
}

/// Returns a number with one decimal, without a zero at the end.
fn rounded(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns the meaning of classes.
pub(super) fn legend(entries: &[(&'static str, &str)]) -> Markup {
    html! {
        ul.legend {
            @for (class, meaning) in entries {
                li {
                    svg viewBox="0 0 14 14" aria-hidden="true" { rect class=(class) width="14" height="14" {} }
                    (meaning)
                }
            }
        }
    }
}

/// A row of areas over time.
#[derive(Clone, Debug)]
pub(super) struct AreaRow {
    /// Its label, to the left.
    pub(super) label: String,
    /// Its description.
    pub(super) title: String,
    /// Shares by part of the time, from 0 to 1: from the bottom up, and from the top down.
    pub(super) bottom: Vec<f64>,
    /// Shares on top of those of `bottom`.
    pub(super) middle: Vec<f64>,
    /// Shares from the top down.
    pub(super) top: Vec<f64>,
}

/// Height of a row of areas, in units of the picture.
const TALL: f64 = 100.0;

/// Returns the outline of an area between two heights by part of the time. Nothing if it has no height anywhere.
fn area(from: &[f64], to: &[f64]) -> Option<String> {
    let heights: Vec<(i64, i64)> = from
        .iter()
        .zip(to)
        .map(|(from, to)| {
            let y = |share: f64| ((1.0 - share.clamp(0.0, 1.0)) * TALL).round() as i64;
            (y(*from), y(*to))
        })
        .collect();
    if heights.iter().all(|(from, to)| from == to) {
        return None;
    }
    let mut path = String::new();
    let mut start = 0;
    // A closed outline for each run of parts in which the area has a height.
    for run in heights.chunk_by(|a, b| (a.0 == a.1) == (b.0 == b.1)) {
        if run.first().is_some_and(|(from, to)| from != to) {
            let (mut last, mut at) = (None, start);
            let _ = write!(
                path,
                "M{start} {}",
                run.first().map_or(0, |heights| heights.0)
            );
            for (_, to) in run {
                if last != Some(*to) {
                    let _ = write!(path, "V{to}");
                }
                at += 1;
                let _ = write!(path, "H{at}");
                last = Some(*to);
            }
            let mut last = None;
            for (from, _) in run.iter().rev() {
                if last != Some(*from) {
                    let _ = write!(path, "V{from}");
                }
                at -= 1;
                let _ = write!(path, "H{at}");
                last = Some(*from);
            }
            path.push('Z');
        }
        start += run.len();
    }
    Some(path)
}

/// Returns rows of areas over time, with the times at which the parts of the axis begin and end.
pub(super) fn areas(rows: &[AreaRow], axis: &[String]) -> Markup {
    html! {
        div.areas {
            @for row in rows {
                span.label { (row.label) }
                @let columns = row.bottom.len();
                @let ceiling = row.bottom.iter().zip(&row.middle).map(|(a, b)| a + b).collect::<Vec<f64>>();
                @let hanging = row.top.iter().map(|share| 1.0 - share).collect::<Vec<f64>>();
                svg viewBox={ "0 0 " (columns) " 100" } preserveAspectRatio="none" role="img" aria-label=(row.title) {
                    title { (row.title) }
                    rect.useful width=(columns) height="100" {}
                    @if let Some(path) = area(&vec![0.0; columns], &row.bottom) { path.mpi d=(path) {} }
                    @if let Some(path) = area(&row.bottom, &ceiling) { path.idle d=(path) {} }
                    @if let Some(path) = area(&hanging, &vec![1.0; columns]) { path.empty d=(path) {} }
                }
            }
            span.label {}
            div.axis aria-hidden="true" { @for tick in axis { span { (tick) } } }
        }
    }
}

/// A cell of the heat map.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct HeatCell {
    /// What the colour shows.
    pub(super) value: u64,
    /// Number of messages.
    pub(super) count: u64,
    /// Bytes of the messages.
    pub(super) bytes: u64,
}

/// Number of colours of the heat map.
const COLOURS: usize = 10;

/// Returns the heat map: rows send, columns receive. `describe` returns the text of a cell.
pub(super) fn heat_map(
    groups: &[RankGroup],
    cells: &BTreeMap<(usize, usize), HeatCell>,
    title: &str,
    describe: impl Fn(usize, usize, &HeatCell) -> String,
) -> Markup {
    /// Units of the picture: for the labels, and for all cells.
    const LABELS: f64 = 44.0;
    const CELLS: f64 = 320.0;
    let count = groups.len().max(1);
    let size = CELLS / count as f64;
    let most = cells
        .values()
        .map(|cell| cell.value)
        .max()
        .unwrap_or(0)
        .max(1);
    let gap = if size > 8.0 { 1.0 } else { 0.0 };
    let mut body = String::new();
    for ((from, to), cell) in cells {
        // The square root shows small values next to large ones.
        let share = (cell.value as f64 / most as f64).sqrt();
        let colour = ((share * COLOURS as f64) as usize).min(COLOURS - 1);
        let (x, y) = (LABELS + size * *to as f64, LABELS + size * *from as f64);
        let rect = html! {
            rect class={ "heat" (colour) } x=(rounded(x)) y=(rounded(y)) width=(rounded(size - gap)) height=(rounded(size - gap)) {
                title { (describe(*from, *to, cell)) }
            }
        };
        body.push_str(&rect.into_string());
    }
    let step = count.div_ceil(8).max(1);
    let ticks = (0..count).step_by(step).filter_map(|place| {
        let middle = LABELS + size * (place as f64 + 0.5);
        Some((middle, groups.get(place)?.first))
    });
    let ticks: Vec<(f64, u32)> = ticks.collect();
    html! {
        svg.heat viewBox="0 0 370 370" role="img" aria-label=(title) {
            title { (title) }
            rect.empty x=(LABELS) y=(LABELS) width=(CELLS) height=(CELLS) {}
            (PreEscaped(body))
            @for (middle, rank) in &ticks {
                text x=(rounded(*middle)) y="40" text-anchor="middle" { (rank) }
                text x="40" y=(rounded(middle + 3.5)) text-anchor="end" { (rank) }
            }
            text x="204" y="14" text-anchor="middle" { "receiving rank" }
            text x="-204" y="11" text-anchor="middle" transform="rotate(-90)" { "sending rank" }
        }
    }
}

/// Returns the colours of the heat map from nothing to the largest value. The scale is that of square roots.
pub(super) fn heat_scale(most: &str) -> Markup {
    html! {
        p.scale {
            span { "0" }
            svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                @for colour in 0..COLOURS {
                    rect class={ "heat" (colour) } x=(10 * colour) width="10" height="10" {}
                }
            }
            span { (most) " (by square root)" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_is_drawn_where_it_has_a_height() {
        assert_eq!(area(&[0.0, 0.0], &[0.0, 0.0]), None);
        assert_eq!(
            area(&[0.0, 0.0, 0.0], &[0.0, 0.5, 0.5]).as_deref(),
            Some("M1 100V50H2H3V100H2H1Z")
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(rounded(12.04), "12");
        assert_eq!(rounded(0.25), "0.2");
    }
}
