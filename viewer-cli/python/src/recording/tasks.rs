//! Locations of asyncio tasks.
//!
//! A task has a location while it lives, which is a source with an own location. Locations of tasks that ended are used again, the
//! first one first, so that a program with many short tasks has few. Which task is at work there from when on, says the event
//! `asyncio.task`.
//!
//! A task works in steps: its event loop calls it, until it awaits something that is not there yet. Between its steps it is in the
//! region `await`. Where steps begin and end, the module `_tasks` in Python reports, for event loops of `asyncio`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::FxHashMap;

use super::library::{ElementSpec, Functions, Handle, Value, element_type, role};
use super::threads;
use super::under_lock::UnderLock;

/// Most tasks that have a location at a time. Events of others are counted as dropped.
const MOST_TASKS: usize = 128;

/// Where events are that are raised now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// At the thread's location.
    Thread,
    /// At the location of a task, by its number.
    Task(usize),
    /// Nowhere: there are too many tasks.
    Full,
}

/// The event types of tasks, and their locations.
#[derive(Debug)]
struct Tasks {
    functions: &'static Functions,
    recorder: Handle,
    threads: Handle,
    /// `None` before the first task.
    types: Option<Types>,
    /// Sources, by number.
    sources: Vec<Handle>,
    free: BinaryHeap<Reverse<usize>>,
    /// By address of the task: where it is, and whether it is in the region `await`.
    places: FxHashMap<usize, (Place, bool)>,
}

/// Event types of tasks.
#[derive(Clone, Copy, Debug)]
struct Types {
    enter: Handle,
    leave: Handle,
    begin: Handle,
    /// The region in which tasks are between their steps.
    awaits: Handle,
}

impl Types {
    fn add(functions: &Functions, recorder: Handle) -> PyResult<Self> {
        let region = [ElementSpec {
            name: "region".to_owned(),
            kind: element_type::U32,
            is_region: true,
        }];
        let name = [ElementSpec {
            name: "name".to_owned(),
            kind: element_type::STRING,
            is_region: false,
        }];
        let add = |what: &str, description: &str, role, elements: &[ElementSpec]| {
            functions.add_event_type(recorder, what, description, role, elements)
        };
        Ok(Self {
            enter: add(
                "asyncio.enter",
                "A region of a task begins",
                role::ENTER,
                &region,
            )?,
            leave: add(
                "asyncio.leave",
                "A region of a task ends",
                role::LEAVE,
                &region,
            )?,
            begin: add(
                "asyncio.task",
                "A task has its first event here",
                role::POINT,
                &name,
            )?,
            awaits: functions.add_region(recorder, "await", "", 0, "asyncio.wait")?,
        })
    }
}

/// Functions of `asyncio`.
struct Asyncio {
    running_loop: Py<PyAny>,
    current_task: Py<PyAny>,
}

static TASKS: UnderLock<Option<Tasks>> = UnderLock::new(None);
static ASYNCIO: UnderLock<Option<Asyncio>> = UnderLock::new(None);

/// Prepares locations for tasks of a recorder.
pub(crate) fn begin(
    py: Python<'_>,
    functions: &'static Functions,
    recorder: Handle,
) -> PyResult<()> {
    threads::begin();
    let tasks = Tasks {
        threads: functions.threads(recorder)?,
        types: None,
        functions,
        recorder,
        sources: Vec::new(),
        free: BinaryHeap::new(),
        places: FxHashMap::default(),
    };
    TASKS.with(py, |state| *state = Some(tasks));
    Ok(())
}

/// Enters or leaves a region at a place.
#[inline]
pub(crate) fn raise(
    py: Python<'_>,
    functions: &Functions,
    place: Place,
    region: Handle,
    is_enter: bool,
) {
    if place == Place::Thread {
        threads::named(py, || match is_enter {
            true => functions.enter(region),
            false => functions.leave(region),
        });
        return;
    }
    TASKS.with(py, |state| {
        let Some(tasks) = state else { return };
        let Some(types) = tasks.types else { return };
        let event_type = if is_enter { types.enter } else { types.leave };
        match place {
            Place::Task(number) => {
                let values = [Value::region(region)];
                functions.raise_on(tasks.sources[number], event_type, &values);
            }
            _ => functions.report_dropped(tasks.threads, event_type),
        }
    });
}

/// Returns where events of the calling thread are now.
pub(crate) fn place(py: Python<'_>) -> Place {
    let Some(task) = current_task(py) else {
        return Place::Thread;
    };
    let address = task.as_ptr() as usize;
    let known = TASKS.with(py, |state| match state {
        Some(tasks) => tasks.places.get(&address).map(|known| known.0),
        None => Some(Place::Thread),
    });
    known.unwrap_or_else(|| add(py, &task).unwrap_or(Place::Thread))
}

/// Returns the task that the calling thread is at work on.
fn current_task(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    let functions = ASYNCIO.with(py, |state| {
        let known = state.as_ref()?;
        Some((
            known.running_loop.clone_ref(py),
            known.current_task.clone_ref(py),
        ))
    });
    let (running_loop, current_task) = match functions {
        Some(found) => found,
        None => find_asyncio(py)?,
    };
    let running = running_loop.bind(py).call0().ok()?;
    if running.is_none() {
        return None;
    }
    let task = current_task.bind(py).call1((running,)).ok()?;
    (!task.is_none()).then_some(task)
}

/// Finds the functions of `asyncio`, if the program uses it.
fn find_asyncio(py: Python<'_>) -> Option<(Py<PyAny>, Py<PyAny>)> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let asyncio = modules.get_item("asyncio").ok()?;
    // Not yet there while it is being imported.
    let running_loop = asyncio.getattr("_get_running_loop").ok()?.unbind();
    let current_task = asyncio.getattr("current_task").ok()?.unbind();
    let found = (running_loop.clone_ref(py), current_task.clone_ref(py));
    // Without it, times between steps are part of the regions around them.
    let _ = py
        .import("annals_trace._tasks")
        .and_then(|module| module.call_method0("follow"));
    ASYNCIO.with(py, |state| {
        *state = Some(Asyncio {
            running_loop,
            current_task,
        });
    });
    Some(found)
}

/// Assigns a location to a task.
fn add(py: Python<'_>, task: &Bound<'_, PyAny>) -> PyResult<Place> {
    let name = task.call_method0("get_name")?;
    let name = name.cast::<PyString>()?.to_cow()?.into_owned();
    let place = TASKS.with(py, |state| {
        let Some(tasks) = state else {
            return Ok(Place::Thread);
        };
        let types = match tasks.types {
            Some(types) => types,
            None => *tasks
                .types
                .insert(Types::add(tasks.functions, tasks.recorder)?),
        };
        let place = tasks.take()?;
        tasks.places.insert(task.as_ptr() as usize, (place, false));
        if let Place::Task(number) = place
            && let Some(value) = Value::bytes(element_type::STRING, name.as_bytes())
        {
            tasks
                .functions
                .raise_on(tasks.sources[number], types.begin, &[value]);
        }
        PyResult::Ok(place)
    })?;
    let ended = wrap_pyfunction!(task_ended, py)?;
    task.call_method1("add_done_callback", (ended,))?;
    Ok(place)
}

impl Tasks {
    fn take(&mut self) -> PyResult<Place> {
        if let Some(Reverse(number)) = self.free.pop() {
            return Ok(Place::Task(number));
        }
        let number = self.sources.len();
        if number >= MOST_TASKS {
            return Ok(Place::Full);
        }
        let name = format!("asyncio task {number}");
        self.sources
            .push(self.functions.add_source(self.recorder, &name)?);
        Ok(Place::Task(number))
    }
}

/// A step of a task begins or ends, which is still to do something.
#[pyfunction]
pub(crate) fn task_step(py: Python<'_>, task: &Bound<'_, PyAny>, is_begin: bool) {
    TASKS.with(py, |state| {
        if let Some(tasks) = state {
            tasks.step(task.as_ptr() as usize, is_begin);
        }
    });
}

impl Tasks {
    /// Enters the region `await` of a task that has a location, or leaves it, unless that was done.
    fn step(&mut self, address: usize, is_begin: bool) {
        let Some((Place::Task(number), awaits)) = self.places.get_mut(&address) else {
            return;
        };
        if let Some(types) = self.types
            && *awaits == is_begin
        {
            *awaits = !is_begin;
            let event_type = if is_begin { types.leave } else { types.enter };
            let source = self.sources[*number];
            let region = [Value::region(types.awaits)];
            self.functions.raise_on(source, event_type, &region);
        }
    }
}

/// The location of a task that has ended is free.
#[pyfunction]
fn task_ended(py: Python<'_>, task: Bound<'_, PyAny>) {
    TASKS.with(py, |state| {
        let address = task.as_ptr() as usize;
        if let Some(tasks) = state {
            tasks.step(address, true);
            if let Some((Place::Task(number), _)) = tasks.places.remove(&address) {
                tasks.free.push(Reverse(number));
            }
        }
    });
}
