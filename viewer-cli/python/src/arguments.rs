//! Arguments of tables, as Python passes them.

use std::str::FromStr;

use annals_format::{Definitions, units};
use annals_merger::{EventFilter, FilterError, Query, Window, regions_like};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::errors;

/// Returns a time in nanoseconds: a number of them, or a text such as `1.5s`.
fn time(name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    if let Ok(text) = value.cast::<PyString>() {
        let parsed = units::parse_time(&text.to_cow()?);
        return parsed.map_err(|error| errors::of_unit(name, &error));
    }
    let wrong = || {
        let why = format!("{name}: an int in nanoseconds, or a text such as \"1.5s\"");
        PyTypeError::new_err(why)
    };
    // A float would have no nanoseconds after a few days. Integers of NumPy are ones, too.
    if value.is_instance_of::<PyBool>() {
        return Err(wrong());
    }
    let index = value.call_method0("__index__").map_err(|_| wrong())?;
    let time = index.extract();
    time.map_err(|_| PyValueError::new_err(format!("{name}: {index} is no 64-bit number")))
}

/// Returns one name, or several, as a list that commas separate.
fn names(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.extract();
    }
    let wrong = || PyTypeError::new_err(format!("{argument}: a str, or a sequence of str"));
    let mut all: Vec<String> = Vec::new();
    for each in value.try_iter().map_err(|_| wrong())? {
        all.push(each?.extract().map_err(|_| wrong())?);
    }
    if all.is_empty() {
        return Err(PyValueError::new_err(format!("{argument}: empty")));
    }
    Ok(all.join(","))
}

/// Returns a part of a filter.
pub(crate) fn parsed<T: FromStr<Err = FilterError>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|error| errors::of_filter(&error))
}

/// Returns ranks as the filter has them: a number, several, or a text such as `0,4-7`.
fn ranks(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = value.cast::<PyString>() {
        return text.extract();
    }
    let wrong =
        |_| PyTypeError::new_err("ranks: an int, a sequence of int, or a text such as \"0,4-7\"");
    if let Ok(rank) = value.extract::<u32>() {
        return Ok(rank.to_string());
    }
    let mut all: Vec<String> = Vec::new();
    for each in value.try_iter().map_err(wrong)? {
        all.push(each?.extract::<u32>().map_err(wrong)?.to_string());
    }
    if all.is_empty() {
        return Err(PyValueError::new_err("ranks: empty"));
    }
    Ok(all.join(","))
}

/// What of a trace a table has.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Arguments<'py> {
    start: Option<Bound<'py, PyAny>>,
    end: Option<Bound<'py, PyAny>>,
    ranks: Option<Bound<'py, PyAny>>,
    locations: Option<Bound<'py, PyAny>>,
    regions: Option<Bound<'py, PyAny>>,
    events: Option<Bound<'py, PyAny>>,
}

impl Arguments<'_> {
    /// Returns the window of time.
    ///
    /// # Errors
    /// If a time is none, or the window ends before it starts.
    pub(crate) fn window(&self) -> PyResult<Window> {
        let start = self.start.as_ref().map(|value| time("start", value));
        let end = self.end.as_ref().map(|value| time("end", value));
        let window = Window {
            from_ns: start.transpose()?.unwrap_or(i64::MIN),
            to_ns: end.transpose()?.unwrap_or(i64::MAX),
        };
        if window.from_ns > window.to_ns {
            return Err(PyValueError::new_err(
                "the window ends before it starts: start is later than end",
            ));
        }
        Ok(window)
    }

    /// Returns the query.
    ///
    /// # Errors
    /// If a value is of a wrong type, or a name matches nothing.
    pub(crate) fn query(&self, definitions: &Definitions) -> PyResult<Query> {
        let list = |name, value: &Option<Bound<'_, PyAny>>| {
            let globs = value.as_ref().map(|value| parsed(&names(name, value)?));
            globs.transpose()
        };
        let filter = EventFilter {
            ranks: self
                .ranks
                .as_ref()
                .map(|value| parsed(&ranks(value)?))
                .transpose()?,
            sources: None,
            locations: list("locations", &self.locations)?,
            event_types: list("name", &self.events)?,
        };
        let query = Query::select(&filter, definitions);
        let mut query = query.map_err(|error| errors::of_filter(&error))?;
        query.set_window(self.window()?);
        if let Some(regions) = list("regions", &self.regions)? {
            let found = regions_like(&regions, definitions);
            query.set_regions(found.map_err(|error| errors::of_filter(&error))?);
        }
        Ok(query)
    }
}
