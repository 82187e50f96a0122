//! The recorder of the process, and what is raised by hand.

use std::path::PathBuf;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};

use super::library::{ElementSpec, Functions, Handle, Value, element_type, functions, role};
use super::tasks::{self, Place};
use super::threads;
use super::under_lock::UnderLock;

/// The process's recorder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current {
    pub(crate) functions: &'static Functions,
    pub(crate) recorder: Handle,
    process: u32,
}

static CURRENT: UnderLock<Option<Current>> = UnderLock::new(None);

/// Returns the recorder of this process, if it has one.
pub(crate) fn current(py: Python<'_>) -> Option<Current> {
    let current = CURRENT.with(py, |state| *state);
    current.filter(|current| current.process == std::process::id())
}

/// The recorder of the process.
#[pyclass(frozen, module = "annals_trace")]
pub(crate) struct NativeRecorder {
    current: Current,
    /// Whether this object started it, and not `trace-cli record`, a library, or an earlier object.
    #[pyo3(get)]
    is_own: bool,
}

#[pymethods]
impl NativeRecorder {
    /// Starts a recorder, or joins the one that the process has.
    #[new]
    fn new(
        py: Python<'_>,
        library: PathBuf,
        settings: Vec<(String, String)>,
        is_recorded: bool,
    ) -> PyResult<Self> {
        let functions = functions(&library)?;
        let global = functions.global().filter(|global| {
            let statistics = functions.statistics(*global);
            statistics.is_ok_and(|statistics| statistics.is_finished == 0)
        });
        let (recorder, is_own) = match global {
            Some(recorder) => (recorder, false),
            None => {
                // `trace-cli record` has its settings in the environment.
                let recorder = functions.start(if is_recorded { &[] } else { &settings })?;
                functions.make_global(recorder)?;
                (recorder, !is_recorded)
            }
        };
        let current = Current {
            functions,
            recorder,
            process: std::process::id(),
        };
        let before = CURRENT.with(py, |state| state.replace(current));
        if before.is_none_or(|before| before.recorder != recorder) {
            tasks::begin(py, functions, recorder)?;
        }
        Ok(Self { current, is_own })
    }

    /// Whether it is this process's: not in a forked child.
    #[getter]
    fn is_here(&self) -> bool {
        self.current.process == std::process::id()
    }

    /// Path of the recording.
    #[getter]
    fn path(&self) -> PyResult<PathBuf> {
        self.functions()
            .path(self.current.recorder)
            .map(PathBuf::from)
    }

    /// Finishes the recording. Returns what was recorded.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (functions, recorder) = (self.functions(), self.current.recorder);
        let statistics = py.detach(|| functions.finish(recorder))?;
        dictionary(py, &statistics)
    }

    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dictionary(py, &self.functions().statistics(self.current.recorder)?)
    }

    fn pause(&self) -> PyResult<()> {
        self.functions().pause(self.current.recorder, true)
    }

    fn resume(&self) -> PyResult<()> {
        self.functions().pause(self.current.recorder, false)
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<PathBuf> {
        let (functions, recorder) = (self.functions(), self.current.recorder);
        let path = py.detach(|| functions.snapshot(recorder))?;
        Ok(PathBuf::from(path))
    }

    fn add_property(&self, key: &str, value: &str) -> PyResult<()> {
        self.functions()
            .add_property(self.current.recorder, key, value)
    }

    fn region(&self, name: &str, file: &str, line: u32) -> PyResult<Region> {
        let region = self
            .functions()
            .add_region(self.current.recorder, name, file, line, "")?;
        Ok(Region {
            current: self.current,
            region,
        })
    }

    fn metric(&self, name: &str, unit: &str, kind: &str) -> PyResult<EventType> {
        let kind = kind_of(kind)?;
        let event_type = self
            .functions()
            .add_metric(self.current.recorder, name, unit, kind)?;
        Ok(EventType {
            current: self.current,
            event_type,
            elements: vec![(name.to_owned(), kind)],
        })
    }

    fn event_type(
        &self,
        name: &str,
        description: &str,
        elements: Vec<(String, String)>,
    ) -> PyResult<EventType> {
        let elements = elements.into_iter();
        let elements = elements.map(|(name, kind)| Ok((name, kind_of(&kind)?)));
        let elements: Vec<(String, u32)> = elements.collect::<PyResult<_>>()?;
        let specs: Vec<ElementSpec> = elements
            .iter()
            .map(|(name, kind)| ElementSpec {
                name: name.clone(),
                kind: *kind,
                is_region: false,
            })
            .collect();
        let recorder = self.current.recorder;
        let functions = self.functions();
        let event_type =
            functions.add_event_type(recorder, name, description, role::POINT, &specs)?;
        Ok(EventType {
            current: self.current,
            event_type,
            elements,
        })
    }
}

impl NativeRecorder {
    fn functions(&self) -> &'static Functions {
        self.current.functions
    }
}

fn kind_of(kind: &str) -> PyResult<u32> {
    Ok(match kind {
        "int" => element_type::I64,
        "unsigned" => element_type::U64,
        "float" => element_type::F64,
        "str" => element_type::STRING,
        "bytes" => element_type::BYTES,
        other => {
            let why = format!("an element's type is int, float, str or bytes, not {other}");
            return Err(PyTypeError::new_err(why));
        }
    })
}

fn dictionary<'py>(
    py: Python<'py>,
    statistics: &super::library::Statistics,
) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, value) in [
        ("raised", statistics.raised),
        ("dropped", statistics.dropped),
        ("suppressed", statistics.suppressed),
        ("raised_after_finish", statistics.raised_after_finish),
        ("misused", statistics.misused),
        ("written_bytes", statistics.written_bytes),
        ("blocked_ns", statistics.blocked_ns),
        ("snapshots", statistics.snapshots),
    ] {
        result.set_item(name, value)?;
    }
    for (name, value) in [
        ("is_finished", statistics.is_finished),
        ("is_kill_safe", statistics.is_kill_safe),
        ("has_storage_failed", statistics.has_storage_failed),
    ] {
        result.set_item(name, value != 0)?;
    }
    Ok(result)
}

/// A region, as a context manager that may be used any number of times, also inside itself.
#[pyclass(frozen, module = "annals_trace")]
pub(crate) struct Region {
    current: Current,
    region: Handle,
}

#[pymethods]
impl Region {
    fn __enter__(&self, py: Python<'_>) {
        let place = tasks::place(py);
        tasks::raise(py, self.current.functions, place, self.region, true);
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        let place: Place = tasks::place(py);
        tasks::raise(py, self.current.functions, place, self.region, false);
    }
}

/// An event type, or a metric: its one element is the value.
#[pyclass(frozen, module = "annals_trace")]
pub(crate) struct EventType {
    current: Current,
    event_type: Handle,
    elements: Vec<(String, u32)>,
}

#[pymethods]
impl EventType {
    /// Raises an event with these values.
    fn record(&self, py: Python<'_>, values: &Bound<'_, PyTuple>) -> PyResult<()> {
        if values.len() != self.elements.len() {
            let why = format!(
                "{} values for {} elements",
                values.len(),
                self.elements.len()
            );
            return Err(PyValueError::new_err(why));
        }
        let mut raised: Vec<Value> = Vec::with_capacity(self.elements.len());
        // Texts that are not stored as UTF-8 live until the event is raised.
        let mut texts: Vec<std::borrow::Cow<'_, str>> = Vec::new();
        let each: Vec<Bound<'_, PyAny>> = values.iter().collect();
        for ((name, kind), value) in self.elements.iter().zip(&each) {
            if *kind == element_type::STRING
                && let Ok(text) = value.cast::<PyString>()
            {
                let text = text.to_cow();
                texts.push(text.map_err(|error| wrong(name, &error.to_string()))?);
            }
        }
        let mut texts = texts.iter();
        for ((name, kind), value) in self.elements.iter().zip(&each) {
            raised.push(value_of(name, *kind, value, &mut texts)?);
        }
        let functions = self.current.functions;
        let status = threads::named(py, || functions.raise(self.event_type, &raised));
        functions.check_raised(status)
    }
}

fn wrong(name: &str, why: &str) -> PyErr {
    PyTypeError::new_err(format!("{name}: {why}"))
}

/// Returns a value as the recorder takes it. Texts are taken from `texts`, in order.
fn value_of<'t>(
    name: &str,
    kind: u32,
    value: &Bound<'_, PyAny>,
    texts: &mut impl Iterator<Item = &'t std::borrow::Cow<'t, str>>,
) -> PyResult<Value> {
    if value.is_none() {
        return Ok(Value::ABSENT);
    }
    let is_number = value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyBool>()
        || value.hasattr("__index__")?
        || value.hasattr("__float__")?;
    let too_long = || PyValueError::new_err(format!("{name}: 4 GiB or more"));
    match kind {
        element_type::I64 if value.hasattr("__index__")? => {
            let number = value.call_method0("__index__")?.extract::<i64>();
            number
                .map(Value::integer)
                .map_err(|_| wrong(name, "no 64-bit integer"))
        }
        element_type::U64 if value.hasattr("__index__")? => {
            let number = value.call_method0("__index__")?.extract::<u64>();
            number
                .map(Value::unsigned)
                .map_err(|_| wrong(name, "no unsigned 64-bit integer"))
        }
        element_type::F64 if is_number => value.extract::<f64>().map(Value::float),
        element_type::STRING if value.is_instance_of::<PyString>() => {
            let text = texts.next().map(|text| text.as_bytes());
            Value::bytes(kind, text.unwrap_or_default()).ok_or_else(too_long)
        }
        element_type::BYTES => {
            let bytes = value.cast::<PyBytes>();
            let bytes = bytes.map_err(|_| wrong(name, "is of type bytes"))?;
            Value::bytes(kind, bytes.as_bytes()).ok_or_else(too_long)
        }
        element_type::STRING => Err(wrong(name, "is of type str")),
        element_type::F64 => Err(wrong(name, "is a number")),
        _ => Err(wrong(name, "is an int")),
    }
}

/// Returns the recorder of this process.
///
/// # Errors
/// If there is none.
pub(crate) fn needed(py: Python<'_>) -> PyResult<Current> {
    current(py).ok_or_else(|| {
        PyRuntimeError::new_err("this process has no recorder: make an annals_trace.Recorder first")
    })
}
