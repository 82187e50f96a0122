//! The stream of a table that a consumer reads by Arrow's C interface.

use std::time::{Duration, Instant};

use annals_export::{Batches, Waited};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::Python;

use crate::waiting::{LOOK, has_lock, is_main_thread};

/// Batches of a table. A consumer may read it from any thread, with or without Python's lock: while it waits, it does not have
/// it. In the main thread it looks for signals.
pub(crate) struct TableStream {
    batches: Batches,
    looked: Instant,
    is_ended: bool,
}

impl TableStream {
    pub(crate) fn new(batches: Batches) -> Self {
        Self {
            batches,
            looked: Instant::now(),
            is_ended: false,
        }
    }

    fn wait(&mut self, longest: Duration) -> anyhow::Result<Waited> {
        if !has_lock() {
            return self.batches.wait(longest);
        }
        Python::attach(|py| py.detach(|| self.batches.wait(longest)))
    }

    /// # Errors
    /// If a signal's handler has raised an exception. It is raised again when the consumer returns to Python.
    fn look_for_signals(&mut self) -> Result<(), ArrowError> {
        if self.looked.elapsed() < LOOK || !is_main_thread() {
            return Ok(());
        }
        self.looked = Instant::now();
        Python::attach(|py| {
            py.check_signals().map_err(|error| {
                let is_interrupt =
                    error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py);
                let text = error.to_string();
                if is_interrupt {
                    interrupt_again();
                }
                ArrowError::ExternalError(format!("interrupted: {text}").into())
            })
        })
    }
}

/// Has Python's handler of Ctrl-C run once more, as soon as Python runs.
#[expect(unsafe_code, reason = "Python's interface for that is in C")]
fn interrupt_again() {
    // SAFETY: the function has no conditions.
    unsafe { pyo3::ffi::PyErr_SetInterrupt() };
}

impl Iterator for TableStream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_ended {
            let found = self.wait(LOOK);
            if let Err(error) = self.look_for_signals() {
                self.is_ended = true;
                return Some(Err(error));
            }
            match found {
                Ok(Waited::Batch(batch)) => return Some(Ok(batch)),
                Ok(Waited::Nothing) => {}
                Ok(Waited::End) => self.is_ended = true,
                Err(error) => {
                    self.is_ended = true;
                    let text = format!("{error:#}");
                    return Some(Err(ArrowError::ExternalError(text.into())));
                }
            }
        }
        None
    }
}

impl RecordBatchReader for TableStream {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}
