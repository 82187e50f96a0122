//! Functions as regions, by `sys.monitoring` (PEP 669, Python 3.12 and later).
//!
//! Python calls a callback when a function begins, resumes or ends. Each code object is examined when it begins for the first time:
//! it has a region, or it is not recorded, and then Python is asked to call no more for it, where that is possible. What was at
//! work before recording began has an end without a begin: a depth for each thread shows it.
#![expect(
    unsafe_code,
    reason = "callbacks are C functions, without what PyO3 does for each call: benches/python.py"
)]

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use annals_merger::Globs;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::FxHashMap;

use super::library::{Functions, Handle};
use super::recorder::needed;
use super::tasks::{self, Place};
use super::under_lock::UnderLock;
use crate::arguments::parsed;

/// `code.co_flags` of coroutines and of asynchronous generators.
const IS_ASYNCHRONOUS: u32 = 0x80 | 0x200;
/// Code objects and functions in C that are remembered, at most. Others are not recorded.
const MOST_REMEMBERED: usize = 1 << 20;

/// What is known of a code object.
#[derive(Clone, Copy, Debug)]
struct Code {
    /// `None` if it is not recorded.
    region: Option<Handle>,
    /// Whether it belongs to a task: its begin may be where a task resumes.
    is_asynchronous: bool,
}

impl Code {
    const fn is_followed(self) -> bool {
        self.region.is_some() || self.is_asynchronous
    }
}

/// Which functions are recorded.
struct Chosen {
    /// Globs of modules. `None` means all.
    modules: Option<Globs>,
    /// Globs of modules that are left out.
    without: Option<Globs>,
    /// Modules of the standard library, which are left out. Empty if they are recorded.
    standard: rustc_hash::FxHashSet<String>,
}

impl Chosen {
    fn has(&self, module: &str) -> bool {
        let package = module.split('.').next().unwrap_or_default();
        if package == "annals_trace" {
            return false;
        }
        let is_named = self
            .modules
            .as_ref()
            .map(|modules| modules.is_match(module));
        let is_left_out = self
            .without
            .as_ref()
            .is_some_and(|globs| globs.is_match(module));
        !is_left_out && is_named.unwrap_or_else(|| !self.standard.contains(package))
    }
}

struct Monitor {
    functions: &'static Functions,
    recorder: Handle,
    chosen: Chosen,
    codes: FxHashMap<usize, Code>,
    /// Functions in C: regions, by address of the function or of its object.
    functions_in_c: FxHashMap<usize, Handle>,
    /// What has an address that may be none of another object.
    kept: Vec<Py<PyAny>>,
}

static MONITOR: UnderLock<Option<Monitor>> = UnderLock::new(None);
/// `sys.monitoring.DISABLE`.
static DISABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(null_mut());

thread_local! {
    /// Number of followed calls of this thread that are open, outside of tasks.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where the task is that this thread is at work on, and the number of its open calls.
    static TASK: Cell<(Place, usize)> = const { Cell::new((Place::Thread, 0)) };
}

/// What Python called for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Begin,
    End,
}

/// Follows a begin or an end of a code object. Returns whether Python need not call for it again.
#[inline]
fn follow(py: Python<'_>, code: *mut ffi::PyObject, moment: Moment) -> bool {
    let known = MONITOR.with(py, |state| {
        let monitor = state.as_ref()?;
        let code = monitor.codes.get(&(code as usize)).copied();
        Some((monitor.functions, code))
    });
    let Some((functions, known)) = known else {
        return true;
    };
    // What ends without a begin is ignored.
    let code = match (known, moment) {
        (Some(code), _) => code,
        (None, Moment::Begin) => learn(py, code),
        (None, Moment::End) => return false,
    };
    if !code.is_followed() {
        return true;
    }
    let (mut place, open) = TASK.get();
    let is_in_task = open != 0;
    match moment {
        Moment::Begin => {
            if !is_in_task {
                place = match code.is_asynchronous {
                    true => tasks::place(py),
                    false => Place::Thread,
                };
            }
            match place {
                Place::Thread => DEPTH.set(DEPTH.get() + 1),
                _ => TASK.set((place, open + 1)),
            }
        }
        Moment::End if is_in_task => TASK.set((place, open - 1)),
        Moment::End => {
            place = Place::Thread;
            let Some(depth) = DEPTH.get().checked_sub(1) else {
                return false;
            };
            DEPTH.set(depth);
        }
    }
    if let Some(region) = code.region {
        tasks::raise(py, functions, place, region, moment == Moment::Begin);
    }
    false
}

/// Checks a code object that begins for the first time.
#[cold]
fn learn(py: Python<'_>, address: *mut ffi::PyObject) -> Code {
    // SAFETY: Python passes a code object, which is alive during the call.
    let code = unsafe { Bound::from_borrowed_ptr(py, address) };
    const UNRECORDED: Code = Code {
        region: None,
        is_asynchronous: false,
    };
    // Its end would not be known again.
    let has_room = MONITOR.with(py, |state| {
        let monitor = state.as_ref();
        monitor.is_some_and(|monitor| monitor.codes.len() < MOST_REMEMBERED)
    });
    if !has_room {
        return UNRECORDED;
    }
    let learnt = examine(py, &code).unwrap_or(UNRECORDED);
    MONITOR.with(py, |state| {
        if let Some(monitor) = state {
            monitor.codes.insert(address as usize, learnt);
            monitor.kept.push(code.unbind());
        }
    });
    learnt
}

fn examine(py: Python<'_>, code: &Bound<'_, PyAny>) -> PyResult<Code> {
    let flags: u32 = code.getattr("co_flags")?.extract()?;
    let is_asynchronous = flags & IS_ASYNCHRONOUS != 0;
    // A callback in C has no frame: the innermost one is that of the code.
    let frame = py.import("sys")?.call_method1("_getframe", (0,))?;
    let globals = frame.getattr("f_globals")?;
    let module = globals.cast::<PyDict>()?.get_item("__name__")?;
    let module = match &module {
        Some(name) => name.cast::<PyString>()?.to_cow()?.into_owned(),
        None => String::new(),
    };
    let name: String = code.getattr("co_qualname")?.extract()?;
    let file: String = code.getattr("co_filename")?.extract()?;
    let line: u32 = code.getattr("co_firstlineno")?.extract()?;
    MONITOR.with(py, |state| {
        let Some(monitor) = state else {
            return Ok(Code {
                region: None,
                is_asynchronous,
            });
        };
        let region = match monitor.chosen.has(&module) {
            true => {
                let name = match module.is_empty() {
                    true => name,
                    false => format!("{module}.{name}"),
                };
                Some(
                    monitor
                        .functions
                        .add_region(monitor.recorder, &name, &file, line, "")?,
                )
            }
            false => None,
        };
        Ok(Code {
            region,
            is_asynchronous,
        })
    })
}

/// Follows a call of a function in C, from a code object.
#[inline]
fn follow_in_c(
    py: Python<'_>,
    code: *mut ffi::PyObject,
    callable: *mut ffi::PyObject,
    moment: Moment,
) {
    // SAFETY: Python passes an object, and its types are there.
    let (is_python, is_builtin) = unsafe {
        let kind = ffi::Py_TYPE(callable);
        (
            std::ptr::eq(kind, function_type()) || std::ptr::eq(kind, method_type()),
            std::ptr::eq(kind, &raw mut ffi::PyCFunction_Type),
        )
    };
    if is_python {
        return;
    }
    // A method of an object is another object at each call; its function is the same.
    let address = match is_builtin {
        // SAFETY: the object is of that type.
        true => unsafe { ffi::PyCFunction_GetFunction(callable) }.map_or(0, |of| of as usize),
        false => callable as usize,
    };
    let known = MONITOR.with(py, |state| {
        let monitor = state.as_ref()?;
        let caller = monitor.codes.get(&(code as usize))?;
        caller.region?;
        Some((
            monitor.functions,
            monitor.functions_in_c.get(&address).copied(),
        ))
    });
    let Some((functions, known)) = known else {
        return;
    };
    let (place, open) = TASK.get();
    let is_in_task = open != 0;
    let place = if is_in_task { place } else { Place::Thread };
    let region = match (known, moment) {
        (Some(region), _) => region,
        (None, Moment::Begin) => match learn_in_c(py, address, callable, is_builtin) {
            Some(region) => region,
            None => return,
        },
        (None, Moment::End) => return,
    };
    let depth = if is_in_task { open } else { DEPTH.get() };
    // An end needs the begin of the function and that of its caller.
    let next = match moment {
        Moment::Begin => depth + 1,
        Moment::End if depth >= 1 => depth - 1,
        Moment::End => return,
    };
    match is_in_task {
        true => TASK.set((place, next)),
        false => DEPTH.set(next),
    }
    tasks::raise(py, functions, place, region, moment == Moment::Begin);
}

#[cold]
fn learn_in_c(
    py: Python<'_>,
    address: usize,
    callable: *mut ffi::PyObject,
    is_builtin: bool,
) -> Option<Handle> {
    // SAFETY: Python passes an object, which is alive during the call.
    let callable = unsafe { Bound::from_borrowed_ptr(py, callable) };
    let text = |object: &Bound<'_, PyAny>, name: &str| -> Option<String> {
        object.getattr(name).ok()?.extract().ok()
    };
    let name =
        text(&callable, "__qualname__").or_else(|| text(&callable.get_type(), "__qualname__"))?;
    let module = text(&callable, "__module__")
        .or_else(|| text(&callable.getattr("__objclass__").ok()?, "__module__"));
    let name = match module.filter(|module| module != "builtins") {
        Some(module) => format!("{module}.{name}"),
        None => name,
    };
    MONITOR.with(py, |state| {
        let monitor = state.as_mut()?;
        if monitor.functions_in_c.len() >= MOST_REMEMBERED {
            return None;
        }
        let region = monitor
            .functions
            .add_region(monitor.recorder, &name, "", 0, "")
            .ok()?;
        monitor.functions_in_c.insert(address, region);
        if !is_builtin {
            monitor.kept.push(callable.unbind());
        }
        Some(region)
    })
}

/// The types of functions and methods in Python.
static TYPES: [AtomicPtr<ffi::PyTypeObject>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

fn function_type() -> *mut ffi::PyTypeObject {
    TYPES[0].load(Ordering::Relaxed)
}

fn method_type() -> *mut ffi::PyTypeObject {
    TYPES[1].load(Ordering::Relaxed)
}

/// Returns a new reference to what a callback returns.
fn answer(is_disabled: bool) -> *mut ffi::PyObject {
    let object = match is_disabled {
        true => DISABLE.load(Ordering::Relaxed),
        false => null_mut(),
    };
    // SAFETY: `None` and `DISABLE` are there as long as Python is.
    unsafe {
        let object = if object.is_null() {
            ffi::Py_None()
        } else {
            object
        };
        ffi::Py_INCREF(object);
        object
    }
}

type Arguments = *mut *mut ffi::PyObject;

/// Runs a callback. No panic leaves it.
///
/// # Safety
/// - Python calls with its lock, with at least as many arguments as the event has.
unsafe fn callback(work: impl FnOnce(Python<'_>) -> bool) -> *mut ffi::PyObject {
    // SAFETY: the condition of this function.
    let py = unsafe { Python::assume_attached() };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(py)));
    answer(outcome.unwrap_or(true))
}

/// A begin or an end of a code object. Not every event can be disabled: exceptions that are thrown into frames or leave them cannot.
unsafe extern "C" fn on_code<const IS_BEGIN: bool, const CAN_BE_DISABLED: bool>(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    let moment = if IS_BEGIN { Moment::Begin } else { Moment::End };
    // SAFETY: Python calls it so: the code object first.
    unsafe { callback(|py| follow(py, *arguments, moment) && CAN_BE_DISABLED) }
}

/// A begin or an end of a call in a code object. It cannot be disabled for one function alone.
unsafe extern "C" fn on_call<const IS_BEGIN: bool>(
    _: *mut ffi::PyObject,
    arguments: Arguments,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    let moment = if IS_BEGIN { Moment::Begin } else { Moment::End };
    // SAFETY: Python calls it so: code, offset, callable, first argument.
    unsafe {
        callback(|py| {
            follow_in_c(py, *arguments, *arguments.add(2), moment);
            false
        })
    }
}

/// Returns a callback as an object of Python.
fn object<'py>(
    py: Python<'py>,
    name: &'static std::ffi::CStr,
    function: ffi::PyCFunctionFast,
) -> PyResult<Bound<'py, PyAny>> {
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFast: function,
        },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: null_mut(),
    }));
    // SAFETY: the definition lives as long as the process.
    unsafe {
        let made = ffi::PyCFunction_NewEx(definition, null_mut(), null_mut());
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// Begins to record functions. `modules` and `without` are globs, separated by commas.
#[pyfunction]
pub(crate) fn monitor(
    py: Python<'_>,
    modules: Option<String>,
    without: Option<String>,
    standard_library: bool,
    c_functions: bool,
) -> PyResult<()> {
    let current = needed(py)?;
    let set = |patterns: Option<String>| patterns.map(|text| parsed(&text)).transpose();
    let sys = py.import("sys")?;
    let monitoring = sys.getattr("monitoring").map_err(|_| {
        PyRuntimeError::new_err(
            "functions are recorded by sys.monitoring, which Python 3.12 and later have: use regions and decorators here",
        )
    })?;
    let standard = match standard_library {
        true => rustc_hash::FxHashSet::default(),
        false => {
            let names = sys.getattr("stdlib_module_names")?.try_iter()?;
            names
                .map(|name| name?.extract::<String>())
                .collect::<PyResult<_>>()?
        }
    };
    let chosen = Chosen {
        modules: set(modules)?,
        without: set(without)?,
        standard,
    };
    let tool = monitoring.getattr("PROFILER_ID")?;
    let owner = monitoring.call_method1("get_tool", (&tool,))?;
    if !owner.is_none() {
        let why = format!(
            "{owner} records functions in this process already (sys.monitoring.PROFILER_ID)"
        );
        return Err(PyRuntimeError::new_err(why));
    }
    let types = py.import("types")?;
    for (slot, name) in TYPES.iter().zip(["FunctionType", "MethodType"]) {
        slot.store(types.getattr(name)?.as_ptr().cast(), Ordering::Relaxed);
    }
    DISABLE.store(monitoring.getattr("DISABLE")?.as_ptr(), Ordering::Relaxed);
    monitoring.call_method1("use_tool_id", (&tool, "annals_trace"))?;
    MONITOR.with(py, |state| {
        *state = Some(Monitor {
            functions: current.functions,
            recorder: current.recorder,
            chosen,
            codes: FxHashMap::default(),
            functions_in_c: FxHashMap::default(),
            kept: Vec::new(),
        });
    });
    let events = monitoring.getattr("events")?;
    let mut callbacks: Vec<(&str, &'static std::ffi::CStr, ffi::PyCFunctionFast)> = vec![
        ("PY_START", c"annals_begin", on_code::<true, true>),
        ("PY_RESUME", c"annals_begin", on_code::<true, true>),
        ("PY_RETURN", c"annals_end", on_code::<false, true>),
        ("PY_YIELD", c"annals_end", on_code::<false, true>),
        ("PY_THROW", c"annals_throw", on_code::<true, false>),
        ("PY_UNWIND", c"annals_unwind", on_code::<false, false>),
    ];
    if c_functions {
        callbacks.push(("CALL", c"annals_call", on_call::<true>));
        callbacks.push(("C_RETURN", c"annals_c_end", on_call::<false>));
        callbacks.push(("C_RAISE", c"annals_c_end", on_call::<false>));
    }
    let mut wanted = 0_u32;
    for (event, name, function) in callbacks {
        let event = events.getattr(event)?;
        let callback = object(py, name, function)?;
        monitoring.call_method1("register_callback", (&tool, &event, callback))?;
        wanted |= event.extract::<u32>()?;
    }
    // C_RETURN and C_RAISE are part of CALL.
    let c_ends = events.getattr("C_RETURN")?.extract::<u32>()?
        | events.getattr("C_RAISE")?.extract::<u32>()?;
    monitoring.call_method1("set_events", (&tool, wanted & !c_ends))?;
    Ok(())
}

/// Ends recording functions. Calls that are open stay so.
#[pyfunction]
pub(crate) fn stop_monitoring(py: Python<'_>) -> PyResult<()> {
    let was_there = MONITOR.with(py, |state| state.is_some());
    if !was_there {
        return Ok(());
    }
    let monitoring = py.import("sys")?.getattr("monitoring")?;
    let tool = monitoring.getattr("PROFILER_ID")?;
    monitoring.call_method1("set_events", (&tool, 0))?;
    monitoring.call_method1("free_tool_id", (&tool,))?;
    // Callbacks that were disabled are enabled again.
    monitoring.call_method0("restart_events")?;
    let ended = MONITOR.with(py, |state| state.take());
    drop(ended);
    Ok(())
}
