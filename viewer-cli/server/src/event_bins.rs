//! Messages and metrics of bins: from the overview, as JSON.

use std::collections::BTreeMap;

use annals_analysis::{MetricRow, metrics};
use annals_format::names::element;
use annals_format::{
    BinBlock, EventTypeId, LaneKind, MAX_BIN_LEVEL, MessageRow, NO_LOCATION, StreamId,
};
use annals_merger::{ExactSum, Places, Query, Result, TraceFile, Window};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use crate::parameters::letter;
use crate::trace::ServedTrace;
use annals_analysis::BinRange;

/// Most bins of pairs of an answer, and most pairs.
const MOST_ITEMS: usize = 4000;
/// Most events that are read for bins that the overview has not.
const MOST_EVENTS: u64 = 20_000_000;
/// Most rows of a table.
const MOST_ROWS: usize = 200;

/// Returns a trace time as text.
fn time(ns: i64) -> String {
    ns.to_string()
}

/// Returns the bins of a level that a window of a trace touches, as far as the trace has events. `None` if it has none there.
fn bins_of(trace: &ServedTrace, window: Window, level: u8) -> Option<BinRange> {
    let (first_ns, last_ns) = (
        trace.reader.extent().first_ns,
        trace.reader.extent().last_ns,
    );
    if first_ns > last_ns || !window.overlaps(first_ns, last_ns) {
        return None;
    }
    let first = window.from_ns.max(first_ns) >> level;
    let last = (window.to_ns - 1).min(last_ns) >> level;
    let count = last.abs_diff(first).saturating_add(1);
    Some(BinRange {
        level,
        first,
        count: u32::try_from(count).unwrap_or(u32::MAX),
    })
}

/// Returns the bins of the least level from `least` on of which a window touches at most `columns`; on the level `top` more, too. `None` if the
/// trace has no events there.
fn range_of(
    trace: &ServedTrace,
    window: Window,
    columns: u32,
    levels: (u8, u8),
) -> Option<BinRange> {
    let (least, top) = levels;
    let mut found = None;
    for level in least..=top.max(least) {
        let range = bins_of(trace, window, level)?;
        found = Some(range);
        if range.count <= columns {
            break;
        }
    }
    found
}

/// Returns whether bins are not much longer than the part of a window in which the trace has events.
fn is_fine(trace: &ServedTrace, window: Window, range: BinRange) -> bool {
    let inside = |window: Window| {
        let from_ns = window.from_ns.max(trace.reader.extent().first_ns);
        let to_ns = window
            .to_ns
            .min(trace.reader.extent().last_ns.saturating_add(1));
        i128::from(to_ns) - i128::from(from_ns)
    };
    inside(range.window()) <= 2 * inside(window)
}

/// Returns the rows of messages of some bins. `None` if a block of them is damaged.
fn message_rows(trace: &ServedTrace, kind: LaneKind, range: BinRange) -> Option<Vec<MessageRow>> {
    let overview = trace.overview()?;
    let end = range.first.saturating_add(range.count.into());
    let bins = range.first..end;
    let blocks = overview.message_overview()?.blocks.iter();
    let mut found = Vec::new();
    for entry in blocks.filter(|of| of.may_have(range.level, kind, range.first, end)) {
        let rows: Vec<MessageRow> = trace.rows(overview, entry)?;
        let rows = rows.into_iter();
        found.extend(
            rows.filter(|row| {
                (row.level, row.kind) == (range.level, kind) && bins.contains(&row.bin)
            }),
        );
    }
    Some(found)
}

/// Returns the messages of a window from the overview: of the finest groups whose bins fit, by pair, and by pair and bin.
/// Without an overview that fits, the level is null.
pub(crate) fn messages(trace: &ServedTrace, window: Window, columns: u32) -> Value {
    let Some(overview) = trace.overview().and_then(TraceFile::message_overview) else {
        return json!({"level": null, "damage": []});
    };
    let top = overview.blocks.last().map_or(0, |last| last.last.0);
    for (kind, least) in &overview.least_levels {
        let Some(mut range) = range_of(trace, window, columns, (*least, top)) else {
            continue;
        };
        // Fewer, longer bins if there are too many pairs in them, or a block is damaged.
        let mut rows = message_rows(trace, *kind, range);
        while range.level < top && rows.as_ref().is_none_or(|rows| rows.len() > MOST_ITEMS) {
            let Some(longer) = bins_of(trace, window, range.level + 1) else {
                break;
            };
            if !is_fine(trace, window, longer) {
                break;
            }
            (range, rows) = (longer, message_rows(trace, *kind, longer));
        }
        if let Some(rows) = rows.filter(|_| is_fine(trace, window, range)) {
            let mut answer = message_answer(*kind, range, &rows);
            answer["damage"] = json!(trace.damage());
            let totals = &overview.totals;
            answer["run"] = json!({
                "sends": totals.sends.to_string(), "receives": totals.receives.to_string(),
                "matched": totals.matched.to_string(),
                "unmatched_sends": totals.unmatched_sends.to_string(),
                "unmatched_receives": totals.unmatched_receives.to_string(),
                "unmatchable_by_loss": totals.unmatchable_by_loss.to_string(),
                "over_limit": totals.over_limit.to_string(),
                "without_peer": totals.without_peer.to_string(),
            });
            return answer;
        }
    }
    json!({"level": null, "damage": trace.damage()})
}

/// Count, bytes, longest.
type Sum = (u64, u64, i64);

fn message_answer(kind: LaneKind, range: BinRange, rows: &[MessageRow]) -> Value {
    let mut pairs: BTreeMap<(u32, u32), Sum> = BTreeMap::new();
    for row in rows {
        let sum = pairs.entry((row.from, row.to)).or_insert((0, 0, i64::MIN));
        sum.0 += row.count;
        sum.1 = sum.1.saturating_add(row.bytes);
        sum.2 = sum.2.max(row.longest_ns);
    }
    let lane = |id: u32| match (kind, id) {
        (LaneKind::Location, NO_LOCATION) => Value::Null,
        _ => json!(format!("{}{id}", letter(kind))),
    };
    let values = |pair: (u32, u32), sum: Sum| {
        json!({
            "from": lane(pair.0), "to": lane(pair.1), "count": sum.0.to_string(),
            "bytes": sum.1.to_string(), "longest_ns": time(sum.2),
        })
    };
    let pair_count = pairs.len();
    let all = pairs.values().fold((0_u64, 0_u64), |all, sum| {
        (all.0 + sum.0, all.1.saturating_add(sum.1))
    });
    let mut most: Vec<((u32, u32), Sum)> = pairs.into_iter().collect();
    most.sort_by_key(|(pair, sum)| (std::cmp::Reverse(sum.0), *pair));
    let pairs = most.iter().take(MOST_ITEMS);
    let mut bins: Vec<&MessageRow> = rows.iter().collect();
    bins.sort_by_key(|row| std::cmp::Reverse(row.count));
    let bins = bins.into_iter().take(MOST_ITEMS).map(|row| {
        let mut value = values((row.from, row.to), (row.count, row.bytes, row.longest_ns));
        value["bin"] = json!(time(row.bin));
        value
    });
    let window = range.window();
    json!({
        "level": range.level, "from_ns": time(window.from_ns), "to_ns": time(window.to_ns),
        "count": all.0.to_string(), "bytes": all.1.to_string(),
        "pairs": pairs.map(|(pair, sum)| values(*pair, *sum)).collect::<Vec<Value>>(),
        "pair_count": pair_count,
        "bins": bins.collect::<Vec<Value>>(), "bin_count": rows.len(),
    })
}

/// A curve: how many values, the least, the greatest, their sum; and its points.
#[derive(Default)]
struct Curve {
    count: u64,
    range: Option<(f64, f64)>,
    sum: ExactSum,
    points: Vec<Value>,
}

type Curves = BTreeMap<(EventTypeId, StreamId), Curve>;

/// Returns the metrics of some bins. `None` if a block of them is damaged.
fn stored_curves(trace: &ServedTrace, blocks: &[BinBlock], range: BinRange) -> Option<Curves> {
    let end = range.first.saturating_add(range.count.into());
    let bins = range.first..end;
    let near = |of: &&BinBlock| of.may_have(range.level, LaneKind::Location, bins.start, end);
    let mut curves = Curves::new();
    for entry in blocks.iter().filter(near) {
        let rows: Vec<annals_format::MetricRow> = trace.rows(trace.overview()?, entry)?;
        let rows = rows.into_iter();
        for row in rows.filter(|row| row.level == range.level && bins.contains(&row.bin)) {
            let curve = curves.entry((row.event_type, row.stream)).or_default();
            curve.count += row.count;
            let (min, max) = curve.range.unwrap_or((row.min, row.max));
            curve.range = Some((min.min(row.min), max.max(row.max)));
            if row.sum.is_finite() {
                curve.sum.add(row.sum);
            }
            curve.points.push(json!({
                "from_ns": time(row.bin << range.level), "min": row.min,
                "mean": row.sum / row.count.max(1) as f64, "max": row.max,
            }));
        }
    }
    Some(curves)
}

/// Returns the metrics of the bins that a window touches, from the overview; where it has none of them, from the events, if they are few. `types` has the
/// place of the value in each event type.
///
/// # Errors
/// If the storage fails.
pub(crate) fn metric_curves(
    trace: &ServedTrace,
    window: Window,
    columns: u32,
    types: &FxHashMap<EventTypeId, usize>,
) -> Result<Value> {
    let overview = trace.overview().and_then(TraceFile::metric_overview);
    let stored = overview.and_then(|overview| {
        let top = overview.blocks.last()?.last.0;
        let range = range_of(trace, window, columns, (overview.least_level, top))?;
        let fine = Some(range).filter(|range| is_fine(trace, window, *range))?;
        Some((fine, stored_curves(trace, &overview.blocks, fine)?))
    });
    if let Some((range, curves)) = stored {
        let bins = range.window();
        let count = curves.len();
        let shown = curves.into_iter().take(MOST_ROWS);
        let summary = trace.reader.summary()?;
        let losses = summary
            .losses
            .iter()
            .filter(|loss| bins.overlaps(loss.from_ns, loss.to_ns) && !loss.cause.is_suppressed());
        let lost = losses.map(|loss| (loss.stream, loss.event_type)).collect();
        let places = Places::of(trace.reader.definitions());
        let rows = shown.map(|(key, curve)| curve_value(trace, &places, &lost, key, curve));
        return Ok(curves_answer(trace, range, rows.collect(), count));
    }
    let before = |ns: i64| trace.reader.events_before(ns);
    let events = before(window.to_ns).saturating_sub(before(window.from_ns));
    let range = range_of(trace, window, columns, (0, MAX_BIN_LEVEL));
    let Some(range) = range.filter(|_| events <= MOST_EVENTS) else {
        let damage = trace.damage();
        return Ok(json!({"level": null, "metrics": [], "metric_count": 0, "damage": damage}));
    };
    let mut query = Query::new();
    query.set_window(range.window());
    query.set_event_types(types.keys().copied());
    let (rows, _) = metrics(&trace.reader, &query, types, range.count as usize)?;
    let count = rows.len();
    let rows = rows.iter().take(MOST_ROWS).map(curve_of_events);
    Ok(curves_answer(trace, range, rows.collect(), count))
}

fn curves_answer(trace: &ServedTrace, range: BinRange, rows: Vec<Value>, count: usize) -> Value {
    let window = range.window();
    json!({
        "level": range.level, "from_ns": time(window.from_ns), "to_ns": time(window.to_ns),
        "metrics": rows, "metric_count": count, "damage": trace.damage(),
    })
}

/// Returns a curve that was read from events.
pub(crate) fn curve_of_events(row: &MetricRow) -> Value {
    let points = row.points.iter().map(|point| {
        json!({
            "from_ns": time(point.from_ns), "min": point.min, "mean": point.mean, "max": point.max,
        })
    });
    json!({
        "name": row.name, "element": row.element, "unit": row.unit, "rank": row.rank,
        "location": row.location, "count": row.count.to_string(), "min": row.min,
        "mean": row.mean, "max": row.max, "is_uncertain": row.is_uncertain,
        "points": points.collect::<Vec<Value>>(),
    })
}

/// Returns a curve of the overview.
fn curve_value(
    trace: &ServedTrace,
    places: &Places,
    lost: &FxHashSet<(StreamId, Option<EventTypeId>)>,
    key: (EventTypeId, StreamId),
    curve: Curve,
) -> Value {
    let (event_type, stream) = key;
    let definitions = trace.reader.definitions();
    let place = places.get(stream);
    let elements = definitions.event_types.get(&event_type);
    let mut elements = elements.into_iter().flat_map(|of| &of.elements);
    let value = elements.find(|of| definitions.string(of.name) == element::VALUE);
    let is_lost = |event_type| lost.contains(&(stream, event_type));
    let (min, max) = curve.range.unwrap_or_default();
    json!({
        "name": definitions.event_type_name(event_type), "element": element::VALUE,
        "unit": value.map_or("", |of| definitions.string(of.unit)), "rank": place.rank,
        "location": place.location, "count": curve.count.to_string(), "min": min,
        "mean": curve.sum.value() / curve.count.max(1) as f64, "max": max,
        "is_uncertain": is_lost(Some(event_type)) || is_lost(None), "points": curve.points,
    })
}
