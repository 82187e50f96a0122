//! An opened trace.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use annals_export::TableKind;
use annals_merger::{Reader, Symbols};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::analyses;
use crate::arguments::Arguments;
use crate::errors;
use crate::table::Table;
use crate::waiting;

/// A trace, or recordings that are merged while they are read.
#[pyclass(frozen, subclass, module = "annals_trace")]
pub(crate) struct Trace {
    paths: Vec<PathBuf>,
    /// `None` when it is closed.
    reader: Mutex<Option<Arc<Reader>>>,
}

impl Trace {
    /// # Errors
    /// If it is closed.
    pub(crate) fn reader(&self) -> PyResult<Arc<Reader>> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.as_ref().map(Arc::clone);
        reader.ok_or_else(|| PyValueError::new_err("the trace is closed: open it again"))
    }
}

/// Opens one input or several.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Trace> {
    let to_open = paths.clone();
    let reader = waiting::run(py, move |_| {
        let reader = Reader::open_all(&to_open, &Symbols::default());
        reader.map_err(|error| errors::of_read(&error))
    })?;
    Ok(Trace {
        paths,
        reader: Mutex::new(Some(Arc::new(reader))),
    })
}

#[pymethods]
impl Trace {
    /// The inputs.
    #[getter]
    fn paths(&self) -> Vec<PathBuf> {
        self.paths.clone()
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.reader().is_err()
    }

    /// Closes it. Streams that have begun continue.
    fn close(&self) {
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns a table.
    #[pyo3(signature = (kind, columns, arguments))]
    fn _table(
        slf: Bound<'_, Self>,
        kind: &str,
        columns: Option<Vec<String>>,
        arguments: Arguments<'_>,
    ) -> PyResult<Table> {
        let reader = slf.get().reader()?;
        let kind = TableKind::ALL
            .into_iter()
            .find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| PyValueError::new_err("no such table"))?;
        let query = arguments.query(reader.definitions())?;
        Table::new(slf.unbind(), &reader, query, kind, columns.as_deref())
    }

    /// Returns what a summary shows.
    fn _summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reader = self.reader()?;
        analyses::summary(py, reader)
    }

    /// Returns messages between ranks: ranks, counts, bytes, and whether losses may have changed them.
    fn _message_pairs(
        &self,
        py: Python<'_>,
        arguments: Arguments<'_>,
    ) -> PyResult<analyses::Pairs> {
        let reader = self.reader()?;
        let query = arguments.query(reader.definitions())?;
        analyses::message_pairs(py, reader, query)
    }

    /// Returns the borders of parts of the window, and the time of each region in them.
    fn _time_profile(
        &self,
        py: Python<'_>,
        parts: usize,
        arguments: Arguments<'_>,
    ) -> PyResult<analyses::Profile> {
        let reader = self.reader()?;
        let query = arguments.query(reader.definitions())?;
        analyses::time_profile(py, reader, query, parts)
    }

    /// Returns the number of chunks that were decoded so far.
    fn _decoded_chunks(&self) -> PyResult<u64> {
        Ok(self.reader()?.decoded_chunks())
    }
}
