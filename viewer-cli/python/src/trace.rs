//! An opened trace.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use annals_analysis::SampleBy;
use annals_export::{SampleTable, TableKind};
use annals_merger::{ReadOptions, Reader};
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
    let reader = waiting::run(py, move |stop| {
        let mut options = ReadOptions::new();
        options.stop = stop.clone();
        let reader = Reader::open_with(&to_open, options);
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

    /// Returns a table. `of_samples`, of the table of samples: what its rows are of, and whether only samples outside of MPI count.
    #[pyo3(signature = (kind, columns, arguments, of_samples=None))]
    fn _table(
        slf: Bound<'_, Self>,
        kind: &str,
        columns: Option<Vec<String>>,
        arguments: Arguments<'_>,
        of_samples: Option<(String, bool)>,
    ) -> PyResult<Table> {
        let reader = slf.get().reader()?;
        let kind = TableKind::ALL
            .into_iter()
            .find(|known| known.name() == kind);
        let kind = kind.ok_or_else(|| PyValueError::new_err("no such table"))?;
        let query = arguments.query(reader.definitions())?;
        let of_samples = of_samples.map(|(by, outside_mpi)| {
            let mut all = [SampleBy::Function, SampleBy::Line, SampleBy::Module].into_iter();
            let by = all.find(|known| known.name() == by);
            let by = by.ok_or_else(|| PyValueError::new_err("by: function, line or module"))?;
            Ok::<_, PyErr>(SampleTable { by, outside_mpi })
        });
        let of_samples = of_samples.transpose()?.unwrap_or_default();
        Table::new(
            slf.unbind(),
            &reader,
            query,
            kind,
            of_samples,
            columns.as_deref(),
        )
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
