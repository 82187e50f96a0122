//! Exceptions.

use annals_format::units::UnitError;
use annals_merger::{FilterError, MergeError};
use pyo3::PyErr;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyRuntimeError, PyValueError};

/// Returns the exception of an error of reading.
pub(crate) fn of_read(error: &MergeError) -> PyErr {
    let text = chain(error);
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
                _ => PyOSError::new_err(text),
            };
        }
        source = cause.source();
    }
    PyValueError::new_err(text)
}

/// Returns the exception of an error of a table or an analysis.
pub(crate) fn of_any(error: &anyhow::Error) -> PyErr {
    match error.downcast_ref::<MergeError>() {
        Some(error) => of_read(error),
        None if error.downcast_ref::<FilterError>().is_some() => {
            PyValueError::new_err(format!("{error:#}"))
        }
        None => PyRuntimeError::new_err(format!("{error:#}")),
    }
}

/// Returns the exception of a wrong argument.
pub(crate) fn of_argument(error: &anyhow::Error) -> PyErr {
    PyValueError::new_err(format!("{error:#}"))
}

/// Returns the exception of a name that matches nothing.
pub(crate) fn of_filter(error: &FilterError) -> PyErr {
    PyValueError::new_err(chain(error))
}

/// Returns the exception of a time that is none.
pub(crate) fn of_unit(name: &str, error: &UnitError) -> PyErr {
    PyValueError::new_err(format!("{name}: {error}"))
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
