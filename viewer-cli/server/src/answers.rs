//! Answers to questions about a trace, as JSON. Trace times are decimal text: numbers of JavaScript are exact up to 2⁵³ only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use annals_analysis::{
    Grouping, LocationNames, LostTimeOptions, PartOfRun, RegionKinds, SampleBy, SampleOptions,
    WaitPattern, for_each_collective, for_each_message, lost_time, metrics, operation_name,
    part_of_run, referred, region_colour, region_times, samples,
};
use annals_format::names::element;
use annals_format::{
    Definitions, Element, EventTypeId, LaneKind, LocationId, RegionId, Role, StreamId,
    Value as EventValue,
};
use annals_merger::{Call, Close, Event, Query, Result, Window};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use crate::event_bins::{self, curve_of_events};
use crate::parameters::{RowLanes, letter};
use crate::trace::ServedTrace;
use annals_analysis::BinRange;
use annals_analysis::longest_wait_states;

/// Most events before the end of a window that are read to match messages unless all is asked for.
pub(crate) const FEW_EVENTS: u64 = 4_000_000;
/// Most messages, operations, waits and losses of an answer.
const MOST_ITEMS: usize = 4000;
/// Most rows of a table.
const MOST_ROWS: usize = 200;
/// How long the end of a call is looked for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Longest name in a list of all, characters.
const MOST_NAME: usize = 200;

/// Returns a trace time as text.
fn time(ns: i64) -> String {
    ns.to_string()
}

fn short(name: &str) -> String {
    match name.char_indices().nth(MOST_NAME) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// Returns names, groups and regions.
///
/// # Errors
/// If the storage fails.
pub(crate) fn lanes(trace: &ServedTrace) -> Result<Value> {
    let definitions = trace.reader.definitions();
    let summary = trace.reader.summary()?;
    let depths = trace.depths();
    let depth = |kind, id| depths.get(&trace.groups().stored(kind, id)).copied();
    let names = LocationNames::new(definitions);
    let errors = clock_errors(definitions);
    let locations = trace.groups().locations().iter().map(|id| {
        let process = definitions
            .locations
            .get(id)
            .map_or(0, |location| location.process.get());
        json!({
            "id": id.get(), "name": short(names.get(*id)), "process": process,
            "rank": definitions.rank_of_location(*id), "depth": depth(LaneKind::Location, id.get()),
            "clock_error_ns": errors.get(id),
        })
    });
    let groups = trace.groups().groups().map(|((kind, id), numbers)| {
        let name = match kind {
            LaneKind::Process => {
                let rank = definitions.rank_of(annals_format::ProcessId::new(id));
                format!("rank {rank}")
            }
            LaneKind::Host | LaneKind::Source => {
                short(definitions.string(annals_format::StringId::new(id)))
            }
            LaneKind::All | LaneKind::Location => "all".to_owned(),
        };
        json!({
            "lane": format!("{}{id}", letter(kind)), "kind": kind_name(kind), "name": name,
            "locations": numbers, "depth": depth(kind, id),
        })
    });
    let kinds = RegionKinds::of(definitions);
    let regions = definitions.regions.keys().map(|id| {
        let name = definitions.region_name(*id);
        let colour = region_colour(&name);
        json!([
            id.get(),
            short(&name),
            colour.hex(),
            colour.ink().hex(),
            kinds.get(*id).name()
        ])
    });
    let metrics = metric_types(definitions);
    let metrics = metrics.keys().map(|id| {
        let name = definitions
            .event_types
            .get(id)
            .map_or("", |of| definitions.string(of.name));
        json!([id.get(), short(name)])
    });
    let of_overview = trace.damage();
    let complete = summary.complete && of_overview.is_empty();
    let (part, chosen) = part_of_run(&trace.reader, &Query::new(), trace.shows_all)?;
    let part = (chosen == PartOfRun::WithoutStartAndEnd)
        .then(|| [time(part.window().from_ns), time(part.window().to_ns)]);
    let overview = trace.overview();
    let damage = summary.damage.iter().take(20);
    let damage = damage.map(|(_, problem)| format!("byte {}: {}", problem.offset, problem.what));
    let damage = damage.chain(of_overview);
    Ok(json!({
        "name": trace.name,
        "from_ns": time(trace.reader.extent().first_ns.min(trace.reader.extent().end_ns)),
        "to_ns": time(trace.reader.extent().end_ns),
        "parallel_part": part,
        "events": trace.reader.events_before(i64::MAX).to_string(),
        "complete": complete,
        "damage": damage.collect::<Vec<String>>(),
        "locations": locations.collect::<Vec<Value>>(),
        "groups": groups.collect::<Vec<Value>>(),
        "regions": regions.collect::<Vec<Value>>(),
        "metrics": metrics.collect::<Vec<Value>>(),
        "has_message_bins": overview.is_some_and(|of| of.message_overview().is_some()),
        "has_metric_bins": overview.is_some_and(|of| of.metric_overview().is_some()),
    }))
}

const fn kind_name(kind: LaneKind) -> &'static str {
    match kind {
        LaneKind::Location => "location",
        LaneKind::Process => "process",
        LaneKind::Host => "host",
        LaneKind::Source => "source",
        LaneKind::All => "all",
    }
}

/// Returns the largest error of the clocks of each location, nanoseconds.
fn clock_errors(definitions: &Definitions) -> FxHashMap<LocationId, u64> {
    let mut errors: FxHashMap<LocationId, u64> = FxHashMap::default();
    for stream in definitions.streams.values() {
        let source = definitions.sources.get(&stream.source);
        let map = source.and_then(|source| definitions.clock_maps.get(&source.clock));
        if let (Some(location), Some(map)) = (stream.location, map) {
            let known = errors.entry(location).or_default();
            *known = (*known).max(map.error_ns);
        }
    }
    errors
}

/// Returns the event types of metrics, and the place of the value among the elements of each.
fn metric_types(definitions: &Definitions) -> FxHashMap<EventTypeId, usize> {
    let types = definitions.event_types.values();
    let types = types.filter(|event_type| event_type.role == Role::Metric);
    let types = types.filter_map(|event_type| {
        let mut elements = event_type.elements.iter();
        let at = elements.position(|of| definitions.string(of.name) == element::VALUE);
        Some((event_type.id, at?))
    });
    types.collect()
}

/// Returns bins with all values.
///
/// # Errors
/// If the storage fails.
pub(crate) fn bins(trace: &ServedTrace, range: BinRange, rows: &[RowLanes]) -> Result<Value> {
    let lanes = trace.bins(range, rows)?;
    let lanes = lanes.iter().map(|bins| {
        let bins = bins.iter().map(|bin| {
            json!({
                "bin": time(range.first.saturating_add(bin.place.into())), "count": bin.count,
                "calls": bin.calls.to_string(), "busy_ns": time(bin.busy_ns),
                "region": bin.region.map(RegionId::get), "region_ns": time(bin.region_ns),
                "longest_ns": time(bin.longest_ns),
            })
        });
        bins.collect::<Vec<Value>>()
    });
    Ok(json!({"level": range.level, "lanes": lanes.collect::<Vec<Vec<Value>>>()}))
}

fn query_of(trace: &ServedTrace, window: Window, rows: &[RowLanes]) -> Query {
    let mut query = Query::new();
    query.set_window(window);
    if !rows.is_empty() {
        let numbers = rows
            .iter()
            .flat_map(|row| trace.groups().members(row.kind, row.id));
        let locations: BTreeSet<LocationId> = numbers
            .map(|number| trace.groups().locations()[number])
            .collect();
        query.set_locations(trace.reader.definitions(), &locations);
    }
    query
}

/// Returns the regions of a window.
///
/// # Errors
/// If the storage fails.
pub(crate) fn regions(trace: &ServedTrace, window: Window, rows: &[RowLanes]) -> Result<Value> {
    let query = query_of(trace, window, rows);
    let (times, _) = region_times(&trace.reader, &query, Grouping::None)?;
    let total = times.regions.len();
    let regions = times.regions.iter().take(MOST_ROWS);
    Ok(json!({
        "regions": regions.collect::<Vec<_>>(), "count": total, "run_ns": time(times.run_ns),
    }))
}

/// Returns in which functions the threads of a window, of some rows or all, spent processor time by samples. `null`: there are none.
///
/// # Errors
/// If the storage fails.
pub(crate) fn samples_of(
    trace: &ServedTrace,
    window: Window,
    rows: &[RowLanes],
    is_all: bool,
) -> Result<Value> {
    let query = query_of(trace, window, rows);
    let before = trace.reader.events_before(window.to_ns);
    if before > FEW_EVENTS && !is_all {
        return Ok(json!({"events_to_read": before.to_string()}));
    }
    let Some((found, _)) = samples(&trace.reader, &query, SampleOptions::default())? else {
        return Ok(Value::Null);
    };
    let functions = found.rows(SampleBy::Function, Grouping::None);
    let count = functions.len();
    let functions = functions.iter().take(MOST_ROWS).collect::<Vec<_>>();
    Ok(json!({"functions": functions, "count": count, "samples": found.summary.samples}))
}

/// Returns the waits of a window, of some rows or all: tables, and single waits for the picture.
///
/// # Errors
/// If the storage fails.
pub(crate) fn waits(
    trace: &ServedTrace,
    window: Window,
    rows: &[RowLanes],
    is_all: bool,
) -> Result<Value> {
    let before = trace.reader.events_before(window.to_ns);
    if before > FEW_EVENTS && !is_all {
        return Ok(json!({"events_to_read": before.to_string()}));
    }
    let query = query_of(trace, window, rows);
    let Some((lost, _)) = lost_time(&trace.reader, &query, &LostTimeOptions::default())? else {
        return Ok(json!({"waits": [], "wait_states": [], "causes": []}));
    };
    if !lost.mpi.knows_waits() {
        return Ok(json!({"mpi": lost.mpi}));
    }
    let waits = longest_wait_states(&trace.reader, &query, MOST_ITEMS)?;
    let waits = waits.iter().map(|wait| {
        json!({
            "location": wait.location, "from_ns": time(wait.from_ns), "wait_ns": wait.wait_ns,
            "pattern": wait.pattern, "wait_state": wait.pattern.words(), "for": wait.cause,
        })
    });
    let causes = lost.causes.iter().take(MOST_ROWS);
    let states = lost.wait_states.iter().take(MOST_ROWS);
    let states = states.map(|row| {
        let mut state = json!(row);
        state["wait_state"] = row.pattern.map_or("no wait", WaitPattern::words).into();
        state
    });
    Ok(json!({
        "waits": waits.collect::<Vec<Value>>(),
        "wait_states": states.collect::<Vec<_>>(),
        "causes": causes.collect::<Vec<_>>(),
    }))
}

/// Returns the messages and collective operations of a window.
///
/// # Errors
/// If the storage fails.
pub(crate) fn messages(trace: &ServedTrace, window: Window, is_all: bool) -> Result<Value> {
    let before = trace.reader.events_before(window.to_ns);
    if before > FEW_EVENTS && !is_all {
        return Ok(json!({"events_to_read": before.to_string()}));
    }
    let definitions = trace.reader.definitions();
    let query = query_of(trace, window, &[]);
    let location = |id: StreamId| {
        let stream = definitions.streams.get(&id);
        stream
            .and_then(|stream| stream.location)
            .map(LocationId::get)
    };
    let mut lines = Longest::default();
    for_each_message(&trace.reader, &query, |message| {
        let (send, receive) = (&message.send, &message.receive);
        lines.add(receive.time_ns.saturating_sub(send.time_ns), || {
            json!({
                "from": location(send.stream), "from_ns": time(send.time_ns),
                "to": location(receive.stream), "to_ns": time(receive.time_ns),
                "bytes": message.bytes().map(|bytes| bytes.to_string()),
                "tag": message.tag(),
            })
        });
    })?;
    let mut operations = Longest::default();
    for_each_collective(&trace.reader, &query, |operation| {
        let first = operation.begins.iter().map(|begin| begin.time_ns).min();
        let imbalance_ns = operation
            .last
            .time_ns
            .saturating_sub(first.unwrap_or_default());
        operations.add(imbalance_ns, || {
            let wait = operation.wait(&operation.last, definitions);
            let begins = operation.begins.iter().take(MOST_ROWS);
            let begins = begins.map(|begin| json!([location(begin.stream), time(begin.time_ns)]));
            json!({
                "cause": wait.cause, "members": operation.begins.len(),
                "last": location(operation.last.stream), "to_ns": time(operation.last.time_ns),
                "begins": begins.collect::<Vec<Value>>(),
            })
        });
    })?;
    Ok(json!({
        "messages": lines.items(), "message_count": lines.count.to_string(),
        "operations": operations.items(), "operation_count": operations.count.to_string(),
    }))
}

/// Returns the metrics of the bins that a window touches.
///
/// # Errors
/// If the storage fails.
pub(crate) fn metric_bins(trace: &ServedTrace, window: Window, columns: u32) -> Result<Value> {
    let types = metric_types(trace.reader.definitions());
    event_bins::metric_curves(trace, window, columns, &types)
}

/// The longest of many items.
#[derive(Default)]
struct Longest {
    kept: Vec<(i64, Value)>,
    count: u64,
    /// Nothing shorter is kept.
    least: i64,
}

impl Longest {
    fn add(&mut self, length: i64, item: impl FnOnce() -> Value) {
        self.count += 1;
        if self.count > MOST_ITEMS as u64 && length <= self.least {
            return;
        }
        self.kept.push((length, item()));
        if self.kept.len() >= 2 * MOST_ITEMS {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_by_key(|kept| std::cmp::Reverse(kept.0));
        self.kept.truncate(MOST_ITEMS);
        self.least = self.kept.last().map_or(0, |kept| kept.0);
    }

    fn items(&mut self) -> Vec<Value> {
        self.cut();
        std::mem::take(&mut self.kept)
            .into_iter()
            .map(|kept| kept.1)
            .collect()
    }
}

/// Returns the metrics of a window.
///
/// # Errors
/// If the storage fails.
pub(crate) fn metric_curves(trace: &ServedTrace, window: Window, columns: u32) -> Result<Value> {
    let types = metric_types(trace.reader.definitions());
    let mut query = query_of(trace, window, &[]);
    query.set_event_types(types.keys().copied());
    let (rows, _) = metrics(&trace.reader, &query, &types, columns as usize)?;
    let count = rows.len();
    let rows = rows.iter().take(MOST_ROWS).map(curve_of_events);
    Ok(json!({"metrics": rows.collect::<Vec<_>>(), "count": count}))
}

/// Returns the regions and locations whose name has a text, whatever its case.
///
/// # Errors
/// If the storage fails.
pub(crate) fn search(trace: &ServedTrace, text: &str) -> Result<Value> {
    let definitions = trace.reader.definitions();
    let text = text.to_lowercase();
    let statistics = trace
        .reader
        .trace()
        .and_then(|of| of.region_statistics().ok()?);
    let statistics =
        statistics.map(|statistics| statistics.regions.into_iter().collect::<BTreeMap<_, _>>());
    let found = definitions.regions.keys().filter_map(|id| {
        let name = definitions.region_name(*id);
        name.to_lowercase().contains(&text).then(|| {
            let calls = statistics
                .as_ref()
                .map(|all| all.get(id).map_or(0, |of| of.calls));
            (calls, *id, name)
        })
    });
    let mut found: Vec<(Option<u64>, RegionId, String)> = found.collect();
    found.sort_by(|a, b| (b.0, &a.2).cmp(&(a.0, &b.2)));
    let count = found.len();
    let regions = found.into_iter().take(MOST_ROWS).map(|(calls, id, name)| {
        json!({"region": id.get(), "name": name, "calls": calls.map(|calls| calls.to_string())})
    });
    let names = LocationNames::new(definitions);
    let ids = trace.groups().locations().iter();
    let has_text = |id: &&LocationId| {
        let rank = definitions.rank_of_location(**id);
        format!("rank {rank} {}", names.get(**id))
            .to_lowercase()
            .contains(&text)
    };
    let locations = ids.filter(has_text).take(MOST_ROWS).map(|id| {
        json!({"location": id.get(), "rank": definitions.rank_of_location(*id), "name": names.get(*id)})
    });
    Ok(json!({
        "regions": regions.collect::<Vec<Value>>(), "region_count": count,
        "locations": locations.collect::<Vec<Value>>(),
    }))
}

/// Returns the next enter of a region after a time, or the last one before it.
///
/// # Errors
/// If the storage fails.
pub(crate) fn find(
    trace: &ServedTrace,
    region: RegionId,
    from_ns: i64,
    is_backward: bool,
) -> Result<Value> {
    let definitions = trace.reader.definitions();
    let types = definitions.event_types.values();
    let enters = types.filter(|of| of.role == Role::Enter).map(|of| of.id);
    let mut query = Query::new();
    query.set_event_types(enters).set_regions([region]);
    let mut found = None;
    let look = |window: Window| -> Result<Option<(i64, Option<LocationId>)>> {
        let mut found = None;
        trace
            .reader
            .for_each_event(&query.within(window), |event| {
                found = Some((event.time(), event.location_id()));
                match is_backward {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
        Ok(found)
    };
    if is_backward {
        let (mut to_ns, mut span_ns) = (from_ns, 1_i64 << 20);
        let first_ns = trace.reader.extent().first_ns;
        while found.is_none() && to_ns > first_ns {
            let window = Window {
                from_ns: to_ns.saturating_sub(span_ns),
                to_ns,
            };
            found = look(window)?;
            (to_ns, span_ns) = (window.from_ns, span_ns.saturating_mul(4));
        }
    } else {
        let (from_ns, to_ns) = (from_ns.saturating_add(1), i64::MAX);
        found = look(Window { from_ns, to_ns })?;
    }
    Ok(match found {
        Some((at_ns, location)) => {
            json!({"at_ns": time(at_ns), "location": location.map(LocationId::get)})
        }
        None => json!({"at_ns": null}),
    })
}

/// Returns the calls of a location that are open at a time, from the outermost on, and the events in the innermost.
///
/// # Errors
/// If the storage fails.
pub(crate) fn calls(trace: &ServedTrace, location: LocationId, at_ns: i64) -> Result<Value> {
    let definitions = trace.reader.definitions();
    let mut query = Query::new();
    query
        .set_window(Window {
            from_ns: at_ns,
            to_ns: i64::MAX,
        })
        .set_locations(definitions, &BTreeSet::from([location]));
    let started = Instant::now();
    let mut open: BTreeMap<usize, (Value, i64, i64)> = BTreeMap::new();
    let add = |call: &Call<'_>| {
        if call.begin <= at_ns {
            let region = definitions.regions.get(&call.region);
            let file = region.map_or("", |region| definitions.string(region.file));
            let value = json!({
                "depth": call.depth, "region": call.region.get(), "name": call.name(),
                "file": file, "line": region.map_or(0, |region| region.line),
                "begin_ns": time(call.begin), "end_ns": time(call.end),
                "duration_ns": call.duration().to_string(),
                "is_open": call.how == Close::Open, "is_uncertain": call.is_uncertain,
            });
            open.insert(call.depth, (value, call.begin, call.end));
        }
        let is_late = started.elapsed() > PATIENCE;
        // Nothing that was open then ends after the outermost call.
        match call.depth == 0 || is_late {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    trace.reader.for_each_call(&query, add)?;
    let known = trace.reader.open_at(at_ns.saturating_add(1))?;
    let state = known
        .locations
        .iter()
        .find(|state| state.location == location);
    for (depth, (region, entered_ns, _)) in
        state.into_iter().flat_map(|state| state.open()).enumerate()
    {
        open.entry(depth).or_insert_with(|| {
            let value = json!({
                "depth": depth, "region": region.get(), "name": definitions.region_name(region),
                "begin_ns": time(entered_ns), "end_ns": null,
            });
            (value, entered_ns, i64::MAX)
        });
    }
    let innermost = open
        .values()
        .last()
        .map(|(_, begin_ns, end_ns)| (*begin_ns, *end_ns));
    let events = match innermost {
        Some((begin_ns, end_ns)) => events_between(trace, location, begin_ns, end_ns)?,
        None => Vec::new(),
    };
    let calls = open.into_values().map(|(value, ..)| value);
    Ok(json!({"calls": calls.collect::<Vec<Value>>(), "events": events}))
}

/// Returns the first events of a location from one time to another, with their elements.
fn events_between(
    trace: &ServedTrace,
    location: LocationId,
    from_ns: i64,
    to_ns: i64,
) -> Result<Vec<Value>> {
    let window = Window {
        from_ns,
        to_ns: to_ns.saturating_add(1),
    };
    let mut query = Query::new();
    query
        .set_window(window)
        .set_locations(trace.reader.definitions(), &BTreeSet::from([location]));
    let definitions = trace.reader.definitions();
    let mut events = Vec::new();
    trace.reader.for_each_event(&query, |event| {
        let elements = event.definition().map_or(&[][..], |d| &d.elements);
        let values = elements.iter().enumerate().filter_map(|(at, element)| {
            let value = event.element(at);
            let name = definitions.string(element.name);
            let text = text_of_element(definitions, event, element, value);
            (value != EventValue::Absent).then(|| json!([name, short(&text)]))
        });
        let region = event.region_name();
        events.push(json!({
            "time_ns": time(event.time()), "name": event.name(), "region": region,
            "elements": values.collect::<Vec<Value>>(),
        }));
        match events.len() < 40 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })?;
    Ok(events)
}

/// Returns the value of an element for people: what it refers to, and collective operations, by name.
fn text_of_element(
    definitions: &Definitions,
    event: &Event<'_>,
    element: &Element,
    value: EventValue<'_>,
) -> String {
    let number = value.as_integer();
    let name = number.and_then(|number| referred(definitions, element.reference, number));
    let role = event.definition().map(|event_type| event_type.role);
    let is_collective = matches!(role, Some(Role::CollectiveBegin | Role::CollectiveEnd));
    let is_operation = is_collective && definitions.string(element.name) == element::OPERATION;
    match name {
        Some(name) => name,
        None if is_operation => operation_name(number),
        None => value.to_string(),
    }
}

/// Returns the losses of a window: those with the most events first.
///
/// # Errors
/// If the storage fails.
pub(crate) fn losses(trace: &ServedTrace, window: Window) -> Result<Value> {
    let definitions = trace.reader.definitions();
    let summary = trace.reader.summary()?;
    let inside = summary.losses.iter().filter(|loss| {
        (loss.count != 0 || loss.is_lower_bound) && window.overlaps(loss.from_ns, loss.to_ns)
    });
    let mut inside: Vec<_> = inside.collect();
    let count = inside.len();
    inside.sort_by_key(|loss| std::cmp::Reverse(loss.count));
    let losses = inside.into_iter().take(MOST_ITEMS).map(|loss| {
        let stream = definitions.streams.get(&loss.stream);
        let location = stream.and_then(|stream| stream.location);
        json!({
            "location": location.map(LocationId::get), "from_ns": time(loss.from_ns),
            "to_ns": time(loss.to_ns), "count": loss.count.to_string(),
            "is_lower_bound": loss.is_lower_bound, "cause": loss.cause.name(),
            "is_suppressed": loss.cause.is_suppressed(),
        })
    });
    Ok(json!({"losses": losses.collect::<Vec<Value>>(), "count": count}))
}
