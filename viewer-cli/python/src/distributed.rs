//! The parts of a merge that other processes do: the plan, slices of time, and putting these together.

use std::ops::ControlFlow;
use std::path::PathBuf;

use annals_merger::{
    JoinOptions, MergeError, MergeOptions, OutputError, OutputKind, Plan, Replace, SliceNumber,
    StopFlag, check_slice, list_inputs,
};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::errors;
use crate::waiting;

fn of_merge(error: MergeError) -> PyErr {
    match &error {
        MergeError::Output(OutputError::OtherKind { .. }) => errors::of_read(&error),
        MergeError::Output(output) => PyOSError::new_err(output.to_string()),
        _ => errors::of_read(&error),
    }
}

/// Returns a progress callback that ends the work when the flag is set.
fn until(stop: &StopFlag) -> impl FnMut(u64) -> ControlFlow<()> {
    let stop = stop.clone();
    move |_| match stop.is_stopped() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Returns options of a merge in `jobs` threads; 0 means one for each processor.
fn options(jobs: usize) -> MergeOptions {
    let mut options = MergeOptions::new();
    if jobs != 0 {
        options.jobs = jobs;
    }
    options
}

/// Returns the files that a merge of paths into an output reads. Fails if the output exists and is no trace.
#[pyfunction]
pub(crate) fn merge_inputs(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    output: PathBuf,
) -> PyResult<Vec<PathBuf>> {
    waiting::run(py, move |_| {
        let checked = Replace::Only(OutputKind::TRACE).check(&output);
        checked.map_err(|error| of_merge(error.into()))?;
        list_inputs(&paths, Some(&output)).map_err(of_merge)
    })
}

/// Plans a merge of inputs, and writes the plan to a file. `causality`: `off`, `check` or `repair`.
#[pyfunction]
pub(crate) fn write_plan(
    py: Python<'_>,
    inputs: Vec<PathBuf>,
    path: PathBuf,
    causality: String,
    jobs: usize,
) -> PyResult<()> {
    waiting::run(py, move |_| {
        let mut options = options(jobs);
        options.causality = annals_merger::Causality::ALL
            .into_iter()
            .find(|known| known.name() == causality)
            .ok_or_else(|| {
                let why = format!("causality: `{causality}`, expected off, check or repair");
                PyValueError::new_err(why)
            })?;
        options.output = Some(path.clone());
        let plan = options.plan(&inputs).map_err(of_merge)?;
        let written = plan.settled().write(&path, Replace::Any);
        written.map_err(of_merge)
    })
}

/// Writes slice `number` of `of` of a planned merge of inputs. Returns the number of its events.
#[pyfunction]
pub(crate) fn write_slice(
    py: Python<'_>,
    inputs: Vec<PathBuf>,
    plan: PathBuf,
    path: PathBuf,
    number: u32,
    of: u32,
    jobs: usize,
) -> PyResult<u64> {
    waiting::run(py, move |stop| {
        let mut options = options(jobs);
        let plan = Plan::read(&plan).map_err(of_merge)?;
        options.causality = plan.causality().map_err(of_merge)?;
        options.settled = Some(plan);
        options.slice = Some(SliceNumber { number, of });
        options.output = Some(path.clone());
        // What is there is a slice that was damaged.
        options.force = true;
        let planned = options.plan(&inputs).map_err(of_merge)?;
        let merged = planned.write_trace(&path, until(stop)).map_err(of_merge)?;
        Ok(merged.report.totals.present())
    })
}

/// Returns `None` if a file is slice `number` of `of`, and whole; else what is wrong with it.
#[pyfunction]
pub(crate) fn why_no_slice(
    py: Python<'_>,
    path: PathBuf,
    number: u32,
    of: u32,
) -> PyResult<Option<String>> {
    waiting::run(py, move |stop| {
        let checked = check_slice(&path, SliceNumber { number, of }, until(stop));
        Ok(checked.err().map(|error| error.to_string()))
    })
}

/// Puts slices together. Returns numbers of events and bytes, and whether nothing is missing.
#[pyfunction]
pub(crate) fn join_slices(
    py: Python<'_>,
    slices: Vec<PathBuf>,
    output: PathBuf,
) -> PyResult<(u64, u64, bool)> {
    waiting::run(py, move |stop| {
        let joined = JoinOptions::new().join(&slices, &output, until(stop));
        let joined = joined.map_err(of_merge)?;
        let sums = joined.sums;
        let is_complete =
            joined.complete && sums.dropped == 0 && sums.skipped == 0 && sums.truncated == 0;
        Ok((sums.present(), joined.bytes, is_complete))
    })
}
