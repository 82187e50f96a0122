//! Traces of PyTorch's profiler (Kineto): a file of JSON for each process, in the format of Chrome's traces.
//!
//! From the bottom up: `decimal` reads times without rounding, `json` hands out one event at a time, `sorted` keeps them on disk in
//! the order of their lanes, `calls` knows which event is a call of a collective operation, `read` turns a file into all that, `link` connects calls with
//! kernels, `agree` numbers the operations of all files of a job, and `write` makes the recordings.
//!
//! Each file is read once. What only its end says (its rank, the base of its times) is needed when the recordings are written.

mod agree;
mod calls;
mod decimal;
mod json;
mod link;
mod nesting;
mod read;
mod sorted;
mod types;
mod write;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::compressed;
use crate::conversion::{Converted, Format, Options};
use crate::error::{ForeignError, Result};

/// Number of bytes in which a file shows what it is.
const START_BYTES: u64 = 4096;
/// Members of which a trace has one at its start.
const MEMBERS: [&str; 5] = [
    "\"schemaVersion\"",
    "\"deviceProperties\"",
    "\"distributedInfo\"",
    "\"traceEvents\"",
    "\"traceName\"",
];
/// Memory for events that wait to be sorted, of all files that are read at a time, bytes.
const SORTING_BYTES: usize = 64 << 20;
/// Number of files that are read at a time.
const MOST_JOBS: usize = 8;

/// Traces of PyTorch's profiler, by their files.
pub(crate) struct Traces;

fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// Returns the start of a file, decompressed. As much of it as can be read.
fn start_of(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    if let Ok(file) = compressed::open(path) {
        // The rest of a damaged file does not matter here.
        let _ = file.take(START_BYTES).read_to_end(&mut start);
    }
    start
}

impl Format for Traces {
    fn expected(&self, path: &Path) -> Option<&'static str> {
        is_named(path).then_some("a trace of PyTorch's profiler in JSON")
    }

    fn at(&self, path: &Path) -> Option<PathBuf> {
        self.expected(path)?;
        let start = start_of(path);
        let start = String::from_utf8_lossy(&start);
        let is_trace = start.trim_start().starts_with('{')
            && MEMBERS.iter().any(|member| start.contains(member));
        is_trace.then(|| path.to_owned())
    }

    /// With traces, files of such names that cannot be read as JSON at all are listed, too: each may be one that is damaged.
    fn in_directory(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let paths: io::Result<Vec<PathBuf>> = std::fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect();
        let named = paths?.into_iter();
        let mut named: Vec<PathBuf> = named
            .filter(|path| is_named(path) && path.is_file())
            .collect();
        if !named.iter().any(|path| self.at(path).is_some()) {
            return Ok(Vec::new());
        }
        named.retain(|path| {
            let is_other = |first: &u8| first.is_ascii_graphic();
            self.at(path).is_some() || !start_of(path).first().is_some_and(is_other)
        });
        Ok(named)
    }

    fn is_joint(&self) -> bool {
        true
    }

    fn convert(&self, path: &Path, into: &Path, options: &Options<'_>) -> Result<Vec<Converted>> {
        let mut all = self.convert_all(&[path.to_owned()], into, options);
        all.pop().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn convert_all(
        &self,
        paths: &[PathBuf],
        into: &Path,
        options: &Options<'_>,
    ) -> Vec<Result<Vec<Converted>>> {
        let jobs = options.jobs.clamp(1, MOST_JOBS);
        let sorting_bytes = SORTING_BYTES / jobs;
        let mut each = in_parallel(jobs, paths, |path| {
            let mut trace = read::read(path, into, sorting_bytes, options)?;
            let links = link::link(&trace.sorted, &trace.table);
            trace.operations = links.map_err(ForeignError::io("read", path))?;
            Ok(trace)
        });
        agree::assign_ranks(&mut each, paths, options.rank_pattern);
        let mut read: Vec<&mut read::ReadTrace> = each.iter_mut().flatten().collect();
        let communicators = agree::number(&mut read);
        let numbered: Vec<(usize, &Result<read::ReadTrace>)> = each.iter().enumerate().collect();
        let written = in_parallel(jobs, &numbered, |(number, trace)| {
            let trace = trace.as_ref().ok()?;
            let path = into.join(format!("{number}.converted"));
            let converted = write::write(trace, &communicators, &path);
            Some(converted.map_err(ForeignError::not_written(&path)))
        });
        let each = each.into_iter().zip(written);
        each.map(|(trace, converted)| match converted {
            Some(converted) => converted.map(|converted| vec![converted]),
            None => trace.map(|_| Vec::new()),
        })
        .collect()
    }
}

/// Calls a function for each of some values, in several threads. Returns the results in the order of the values.
fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    values: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(values.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(value) = values.get(number) else {
                        break;
                    };
                    let result = work(value);
                    let mut results = results.lock().unwrap_or_else(|error| error.into_inner());
                    results.push((number, result));
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(|error| error.into_inner());
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
