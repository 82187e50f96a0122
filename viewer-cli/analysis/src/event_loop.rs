//! Tasks of an event loop that keep others from going on: they take turns on one thread.
//!
//! A task works in *steps*, between which it is in a region of the group `asyncio.wait`. While one has a long step, others whose
//! awaiting is over have to wait for its end. Which these are, is not recorded: they are those that go on one after the other when
//! it has ended, before the loop has nothing to do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use annals_format::{Definitions, EventTypeId, LocationId, RegionId, Role, Value};
use annals_merger::{Event, Query, Reader, Result};
use serde::Serialize;

/// Name of the event with which a task begins to use a location.
const TASK: &str = "asyncio.task";
/// Group of the region in which a task is between its steps.
const AWAIT_GROUP: &str = "asyncio.wait";
/// Shorter steps keep no task, nanoseconds.
const LEAST_STEP_NS: i64 = 1_000_000;
/// The loop has nothing to do if no step follows another one for so long, nanoseconds.
const IDLE_NS: i64 = 1_000_000;
/// Number of rows that are kept.
const MOST_ROWS: usize = 10;

/// A task that kept the event loop from others, in steps with most time in one region. Times in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LoopRow {
    /// Name of the task.
    pub task: String,
    /// The region. `None` if most of the time is outside of all.
    pub region: Option<String>,
    /// Number of steps.
    pub steps: u64,
    /// Sum of their lengths.
    pub kept_ns: i64,
    /// The longest.
    pub longest_ns: i64,
    /// Number of other tasks that waited for the end of a step, at most.
    pub others: u64,
}

/// Returns whether tasks are in a region between their steps.
pub(crate) fn is_await(definitions: &Definitions, region: RegionId) -> bool {
    let region = definitions.regions.get(&region);
    region.is_some_and(|region| definitions.string(region.group) == AWAIT_GROUP)
}

/// Returns the locations of tasks of an event loop, which are no processors: those with events of the type `asyncio.task`.
///
/// # Errors
/// If the storage fails.
pub fn task_locations(reader: &Reader) -> Result<BTreeSet<LocationId>> {
    let definitions = reader.definitions();
    let types = types_named(definitions, TASK);
    if types.is_empty() {
        return Ok(BTreeSet::new());
    }
    let summary = reader.summary()?;
    let begun = summary.totals.iter().filter(|totals| {
        let mut rows = totals.rows.iter();
        rows.any(|row| row.recorded != 0 && types.contains(&row.event_type))
    });
    let locations = begun.filter_map(|totals| definitions.streams.get(&totals.stream)?.location);
    Ok(locations.collect())
}

fn types_named(definitions: &Definitions, name: &str) -> BTreeSet<EventTypeId> {
    let types = definitions.event_types.keys().copied();
    types
        .filter(|id| definitions.event_type_name(*id) == name)
        .collect()
}

/// A step of a task, as far as its events are read.
#[derive(Clone, Default)]
struct Task {
    name: String,
    /// Open calls, from the outermost on.
    open: Vec<RegionId>,
    /// When it began to await. `None` while it works.
    awaits_ns: Option<i64>,
    from_ns: i64,
    last_ns: i64,
    /// Time by region in the step.
    spent: Vec<(Option<RegionId>, i64)>,
    /// Whether the step is among those after which others go on.
    is_kept: bool,
}

/// A step after which others go on.
struct Keeper {
    task: String,
    region: Option<RegionId>,
    from_ns: i64,
    length_ns: i64,
    others: BTreeSet<LocationId>,
}

/// Follows the steps of all tasks.
struct Loop<'a> {
    definitions: &'a Definitions,
    tasks: BTreeMap<LocationId, Task>,
    /// The location of the last event, and when that was.
    last: Option<(LocationId, i64)>,
    keepers: Vec<Keeper>,
    rows: BTreeMap<(String, Option<RegionId>), LoopRow>,
}

impl Loop<'_> {
    fn add(&mut self, event: &Event<'_>, location: LocationId) {
        let time_ns = event.time();
        let is_enter = event.role() == Role::Enter;
        let region = event.region();
        let is_await = region.is_some_and(|region| is_await(self.definitions, region));
        let is_begin = is_await && !is_enter;
        if is_begin || region.is_none() {
            self.go_on(location, time_ns);
        }
        // Of a window, a step may have begun before it.
        let task = self.tasks.entry(location).or_insert_with(|| Task {
            name: "unknown".to_owned(),
            from_ns: time_ns,
            last_ns: time_ns,
            ..Task::default()
        });
        match region {
            None => {
                *task = Task {
                    name: name_of(event),
                    from_ns: time_ns,
                    ..Task::default()
                };
            }
            Some(_) if is_begin => {
                task.awaits_ns = None;
                (task.from_ns, task.is_kept) = (time_ns, false);
                task.spent.clear();
            }
            Some(region) => {
                task.spend(time_ns);
                if is_await {
                    task.awaits_ns = Some(time_ns);
                } else if is_enter {
                    task.open.push(region);
                } else if let Some(at) = task.open.iter().rposition(|open| *open == region) {
                    task.open.truncate(at);
                }
            }
        }
        task.last_ns = time_ns;
        self.last = Some((location, time_ns));
    }

    /// Takes note that a task begins a step.
    fn go_on(&mut self, location: LocationId, time_ns: i64) {
        let Some((before, last_ns)) = self.last else {
            return;
        };
        if time_ns - last_ns > IDLE_NS {
            self.end_keepers();
        }
        if let Some(task) = self.tasks.get_mut(&before)
            && task.last_ns - task.from_ns >= LEAST_STEP_NS
            && time_ns - last_ns <= IDLE_NS
            && !std::mem::replace(&mut task.is_kept, true)
        {
            let longest = task.spent.iter().max_by_key(|spent| spent.1);
            self.keepers.push(Keeper {
                task: task.name.clone(),
                region: longest.and_then(|spent| spent.0),
                from_ns: task.from_ns,
                length_ns: task.last_ns - task.from_ns,
                others: BTreeSet::new(),
            });
        }
        let awaits_ns = self.tasks.get(&location).and_then(|task| task.awaits_ns);
        for keeper in &mut self.keepers {
            if awaits_ns.is_some_and(|awaits_ns| awaits_ns <= keeper.from_ns) {
                keeper.others.insert(location);
            }
        }
    }

    fn end_keepers(&mut self) {
        for keeper in self
            .keepers
            .drain(..)
            .filter(|keeper| !keeper.others.is_empty())
        {
            let definitions = self.definitions;
            let row = self.rows.entry((keeper.task.clone(), keeper.region));
            let row = row.or_insert_with(|| LoopRow {
                task: keeper.task,
                region: keeper.region.map(|region| definitions.region_name(region)),
                steps: 0,
                kept_ns: 0,
                longest_ns: 0,
                others: 0,
            });
            row.steps += 1;
            row.kept_ns += keeper.length_ns;
            row.longest_ns = row.longest_ns.max(keeper.length_ns);
            row.others = row.others.max(keeper.others.len() as u64);
        }
    }
}

impl Task {
    /// Assigns the time since the last event to the innermost region.
    fn spend(&mut self, time_ns: i64) {
        let region = self.open.last().copied();
        let ns = time_ns - self.last_ns;
        match self.spent.iter_mut().find(|spent| spent.0 == region) {
            Some(spent) => spent.1 += ns,
            None => self.spent.push((region, ns)),
        }
    }
}

fn name_of(event: &Event<'_>) -> String {
    match event.element(0) {
        Value::String(name) => annals_format::text_of_value(name).into_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Returns the tasks that kept the event loop from others in the query's window, those with the longest time first. `None` without
/// tasks.
///
/// # Errors
/// If the storage fails.
pub fn event_loop(reader: &Reader, query: &Query) -> Result<Option<Vec<LoopRow>>> {
    let definitions = reader.definitions();
    let locations = task_locations(reader)?;
    if locations.is_empty() {
        return Ok(None);
    }
    let mut types = types_named(definitions, TASK);
    let calls = definitions.event_types.values();
    let calls = calls.filter(|of| matches!(of.role, Role::Enter | Role::Leave));
    types.extend(calls.map(|of| of.id));
    let mut followed = Loop {
        definitions,
        tasks: BTreeMap::new(),
        last: None,
        keepers: Vec::new(),
        rows: BTreeMap::new(),
    };
    reader.for_each_event(&query.of_event_types(types), |event| {
        if let Some(location) = event.location_id().filter(|id| locations.contains(id)) {
            followed.add(event, location);
        }
        ControlFlow::Continue(())
    })?;
    followed.end_keepers();
    let mut rows: Vec<LoopRow> = followed.rows.into_values().collect();
    rows.sort_by_key(|row| Reverse(row.kept_ns));
    rows.truncate(MOST_ROWS);
    Ok(Some(rows))
}
