//! Answers of analyses, as `trace-cli` prints them with `--json`: by one process, or from parts that several counted.

use std::path::PathBuf;

use annals_analysis::{
    CostSums, Grouping, LostTime, LostTimeOptions, PartOfRun, RecordingCost, RegionNames,
    RegionSums, WithTotal, region_times,
};
use annals_merger::{EventFilter, MergeError, Query, ReadOptions, Reader, Share};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arguments::parsed;
use crate::errors;
use crate::waiting;

/// Opens inputs, to be read in `jobs` threads; 0 means one for each processor.
fn open(paths: &[PathBuf], jobs: usize, mut options: ReadOptions) -> PyResult<Reader> {
    if jobs != 0 {
        options.jobs = jobs;
    }
    Reader::open_with(paths, options).map_err(|error| errors::of_read(&error))
}

/// Returns an answer as text, with its number of rows.
fn json(answer: &impl serde::Serialize, rows_total: usize) -> PyResult<String> {
    let text = serde_json::to_string_pretty(&WithTotal { answer, rows_total });
    let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(text + "\n")
}

fn absent(why: &str) -> PyErr {
    PyValueError::new_err(why.to_owned())
}

fn of_read(error: MergeError) -> PyErr {
    errors::of_read(&error)
}

/// Makes the answer of `messages`.
fn messages(reader: &Reader, query: &Query) -> PyResult<String> {
    let found = annals_analysis::messages(reader, query);
    let why = "no event type is a message: nothing has the role send or receive";
    let (found, _) = found.map_err(of_read)?.ok_or_else(|| absent(why))?;
    json(&found, found.pairs.len())
}

/// Makes the answer of `collectives`.
fn collectives(reader: &Reader, query: &Query) -> PyResult<String> {
    let found = annals_analysis::collectives(reader, query);
    let why = "no event type begins collective operations: nothing has the role collective-begin";
    let (found, _) = found.map_err(of_read)?.ok_or_else(|| absent(why))?;
    json(&found, found.collectives.len())
}

/// The answer of `why`.
#[derive(serde::Serialize)]
struct Why {
    #[serde(flatten)]
    lost: LostTime,
    part: PartOfRun,
    recording_cost: Option<RecordingCost>,
}

/// Makes the answer of `why`.
fn why(reader: &Reader) -> PyResult<String> {
    let (query, part) =
        annals_analysis::part_of_run(reader, &Query::new(), false).map_err(of_read)?;
    let found = annals_analysis::lost_time(reader, &query, &LostTimeOptions::default());
    let why = "the definitions of this input are incomplete: merge its recordings first";
    let (lost, outcome) = found.map_err(of_read)?.ok_or_else(|| absent(why))?;
    let costs = CostSums::of(reader.definitions(), outcome.totals.iter());
    let rows = lost.causes.len();
    let answer = Why {
        lost,
        part,
        recording_cost: costs.share(),
    };
    json(&answer, rows)
}

/// Returns the answer of `regions`, `messages`, `collectives` or `why`.
#[pyfunction]
pub(crate) fn answer(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    what: String,
    jobs: usize,
) -> PyResult<String> {
    waiting::run(py, move |stop| {
        let reader = open(&paths, jobs, ReadOptions::new())?.stopped_by(stop);
        let query = Query::new();
        match &*what {
            "regions" => {
                let times = region_times(&reader, &query, Grouping::None);
                let (times, _) = times.map_err(of_read)?;
                json(&times, times.regions.len())
            }
            "messages" => messages(&reader, &query),
            "collectives" => collectives(&reader, &query),
            "why" => why(&reader),
            _ => Err(absent("what: regions, messages, collectives or why")),
        }
    })
}

/// Returns the files that are the inputs at these paths.
#[pyfunction]
pub(crate) fn list_inputs(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<PathBuf>> {
    waiting::run(py, move |_| {
        annals_merger::list_inputs(&paths, None).map_err(of_read)
    })
}

/// Counts regions of the `number`-th of `of` groups of processes, from 0. Returns its sums, or `None` if there is no such group.
#[pyfunction]
pub(crate) fn region_sums(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    number: usize,
    of: usize,
    jobs: usize,
) -> PyResult<Option<Py<PyBytes>>> {
    if number >= of {
        return Err(absent("number is less than of"));
    }
    let bytes = waiting::run(py, move |stop| {
        let (reader, query) = if are_recordings(&paths)? {
            let mut options = ReadOptions::new();
            options.share = Some(Share { number, of });
            (open(&paths, jobs.max(1), options)?, Query::new())
        } else {
            match open_ranks(&paths, number, of, jobs)? {
                Some(opened) => opened,
                None => return Ok(None),
            }
        };
        let reader = reader.stopped_by(stop);
        let sums = RegionSums::of(&reader, &query, Grouping::None);
        let encoded = sums.map_err(of_read)?.0.encode(reader.definitions());
        let why =
            "there are too many regions for their counts to be passed on: call without an executor";
        Ok(Some(encoded.ok_or_else(|| absent(why))?))
    })?;
    Ok(bytes.map(|bytes| PyBytes::new(py, &bytes).unbind()))
}

/// Returns whether the inputs are recordings only, of which each process can open its share.
fn are_recordings(paths: &[PathBuf]) -> PyResult<bool> {
    let found = annals_merger::find(paths, None).map_err(of_read)?;
    let inputs = annals_merger::list_inputs(paths, None).map_err(of_read)?;
    Ok(inputs.len() == found.recordings.len() + found.rejected.len())
}

/// Opens inputs for the `number`-th of `of` groups of ranks. `None` if there is no such group.
fn open_ranks(
    paths: &[PathBuf],
    number: usize,
    of: usize,
    jobs: usize,
) -> PyResult<Option<(Reader, Query)>> {
    let mut heads = ReadOptions::new();
    heads.heads_only = true;
    let all = open(paths, jobs, heads)?;
    let definitions = all.definitions();
    let processes = definitions.processes.keys();
    let mut ranks: Vec<u32> = processes.map(|id| definitions.rank_of(*id)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let border = |number: usize| ranks.len() * number / of.max(1);
    let group = ranks.get(border(number)..border(number + 1));
    let Some((first, last)) = group.and_then(|group| Some((group.first()?, group.last()?))) else {
        return Ok(None);
    };
    let filter = EventFilter {
        ranks: Some(parsed(&format!("{first}-{last}"))?),
        ..EventFilter::default()
    };
    let mut options = ReadOptions::new();
    options.filter = filter.clone();
    let reader = open(paths, jobs, options)?;
    let query = Query::select(&filter, reader.definitions());
    let query = query.map_err(|error| errors::of_filter(&error))?;
    Ok(Some((reader, query)))
}

/// Returns the answer of `regions` from the sums of all groups.
#[pyfunction]
pub(crate) fn regions_of_sums(py: Python<'_>, sums: Vec<Vec<u8>>) -> PyResult<String> {
    waiting::run(py, move |_| {
        let mut names = RegionNames::default();
        let mut all = RegionSums::default();
        for bytes in &sums {
            let part = RegionSums::decode(bytes, &mut names);
            all.merge(part.ok_or_else(|| absent("these are no sums of regions"))?);
        }
        let times = all.into_times(names.definitions(), |_| true);
        json(&times, times.regions.len())
    })
}
