//! A table of a trace.

use std::sync::Arc;

use annals_merger::{Query, Reader};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::columns::Gathered;
use crate::errors;
use crate::stream::TableStream;
use crate::trace::Trace;
use crate::waiting;

/// A table of a trace. Nothing is read before a consumer asks for rows, and each consumer reads from the first row on.
#[pyclass(frozen, module = "annals_trace")]
pub(crate) struct Table {
    trace: Py<Trace>,
    table: annals_export::Table,
}

impl Table {
    /// # Errors
    /// If the table has no such column.
    pub(crate) fn new(
        trace: Py<Trace>,
        reader: &Arc<Reader>,
        query: Query,
        kind: annals_export::TableKind,
        of_samples: annals_export::SampleTable,
        columns: Option<&[String]>,
    ) -> PyResult<Self> {
        let table = annals_export::Table::new(reader, query, kind, columns);
        let mut table = table.map_err(|error| errors::of_argument(&error))?;
        table.set_samples(of_samples);
        Ok(Self { trace, table })
    }

    /// # Errors
    /// If the trace is closed.
    fn opened(&self) -> PyResult<&annals_export::Table> {
        self.trace.get().reader().map(|_| &self.table)
    }
}

#[pymethods]
impl Table {
    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.table.columns().map(str::to_owned).collect()
    }

    /// Types of the columns, by name, as Arrow calls them.
    #[getter]
    fn column_types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let types = PyDict::new(py);
        for field in self.table.schema().fields() {
            types.set_item(field.name(), field.data_type().to_string())?;
        }
        Ok(types)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore it: consumers convert.
        let _ = requested_schema;
        let stream = TableStream::new(self.opened()?.batches());
        let stream = FFI_ArrowArrayStream::new(Box::new(stream));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.opened()?.schema().as_ref());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// Reads all rows. Returns for each column its name, its kind, and its memory.
    fn _gather(&self, py: Python<'_>) -> PyResult<Vec<crate::columns::Named>> {
        let mut batches = self.opened()?.batches();
        waiting::run(py, move |stop| {
            let mut gathered = Gathered::new(&batches.schema());
            while !stop.is_stopped() {
                match batches.next() {
                    Some(Ok(batch)) => gathered.add(&batch),
                    Some(Err(error)) => return Err(errors::of_any(&error)),
                    None => break,
                }
            }
            Ok(gathered.finish())
        })
    }

    /// Counts the rows, which reads them.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        let mut batches = self.opened()?.batches();
        waiting::run(py, move |stop| {
            let mut count = 0;
            while !stop.is_stopped() {
                match batches.next() {
                    Some(Ok(batch)) => count += batch.num_rows() as u64,
                    Some(Err(error)) => return Err(errors::of_any(&error)),
                    None => break,
                }
            }
            Ok(count)
        })
    }

    fn __repr__(&self) -> String {
        let columns: Vec<&str> = self.table.columns().collect();
        format!(
            "<annals_trace.Table of {}: {}>",
            self.table.kind().name(),
            columns.join(", ")
        )
    }
}
