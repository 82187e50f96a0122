//! From paths to a planned merge: recordings, traces and archives are found, opened, and rejected by name where they cannot be
//! used.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_foreign::{ConversionDirectory, Foreign, ForeignError};
use annals_format::{Definitions, FileKind, RecordingId};
use annals_symbols::Symbols;

use crate::error::{MergeError, Result};
use crate::input::find::{Found, RejectedInput, find, kind_of};
use crate::input::recording::{InputRecording, Inputs};
use crate::input::trace::InputTrace;
use crate::options::MergeOptions;
use crate::stages::{self, Stage};
use crate::workers::Workers;

/// Of more recordings than this the definitions are packed until all of them are opened; this is also the number that is opened at a
/// time.
pub(super) const MOST_UNPACKED: usize = 256;

/// Fewer recordings for each thread are not worth starting it.
const RECORDINGS_PER_THREAD: usize = 16;

fn nothing_readable(rejected: &[RejectedInput]) -> MergeError {
    MergeError::NothingReadable {
        count: rejected.len(),
        first: rejected.first().map_or_else(String::new, |input| {
            format!("{}: {}", input.path.display(), input.why)
        }),
    }
}

/// Opened inputs.
pub(crate) struct OpenedInputs {
    pub(super) recordings: Inputs,
    pub(super) traces: Vec<InputTrace>,
    /// Files of recordings that may be copies of others, cut soon after their start.
    pub(super) copies: Vec<PathBuf>,
    /// Whether their events cannot be read.
    pub(super) heads_only: bool,
    /// Inputs that cannot be used.
    pub(super) rejected: Vec<RejectedInput>,
}

impl OpenedInputs {
    /// Returns the identities of all recordings whose process is defined, also those in traces.
    pub(crate) fn recording_ids(&self) -> BTreeSet<RecordingId> {
        let recordings = self.recordings.iter();
        let recordings = recordings.filter(|input| input.defines_process());
        let recordings = recordings.map(|input| input.recording.header.recording_id);
        let of_traces = self.traces.iter();
        let of_traces = of_traces.flat_map(|input| input.trace.definitions.processes.values());
        recordings
            .chain(of_traces.map(|process| process.recording_id))
            .collect()
    }

    /// Returns whether traces are among them.
    pub(crate) const fn has_traces(&self) -> bool {
        !self.traces.is_empty()
    }
}

/// Opens recordings, traces of other formats, and traces that are named themselves.
///
/// # Errors
/// If a path does not exist, the output is a recording, none of the files can be used, or a trace of another format cannot be
/// converted.
pub(crate) fn open(paths: &[PathBuf], options: &MergeOptions) -> Result<OpenedInputs> {
    let output = options.output.as_deref();
    if let Some(path) = output
        && path.is_file()
        && matches!(kind_of(path), Ok(FileKind::Recording))
    {
        let path = path.to_owned();
        return Err(MergeError::OutputIsRecording { path });
    }
    let found = find(paths, output)?;
    let traces = named_traces(paths, &found);
    let Found {
        recordings,
        foreign,
        mut rejected,
        ..
    } = found;
    if [
        recordings.len(),
        traces.len(),
        foreign.len(),
        rejected.len(),
    ] == [0; 4]
    {
        return Err(MergeError::NoRecordings {
            path: paths.first().cloned().unwrap_or_default(),
        });
    }
    let mut inputs = open_recordings(&recordings, options, &mut rejected)?;
    let copies = reject_without_process(&mut inputs, &mut rejected);
    let heads_only = options.part.heads_only && inputs.is_empty() && traces.is_empty();
    for group in Foreign::grouped(foreign) {
        inputs.extend(open_foreign(&group, options, heads_only, &mut rejected)?);
    }
    let traces = open_traces(traces, &options.symbols, &mut rejected);
    if inputs.is_empty() && traces.is_empty() {
        return Err(nothing_readable(&rejected));
    }
    Ok(OpenedInputs {
        recordings: inputs,
        traces,
        copies,
        heads_only,
        rejected,
    })
}

/// Returns the files that a merge of paths reads, so that other processes can read the same ones by name: recordings,
/// archives, and traces that are inputs. Files that cannot be used are in the list, too. `output` is no input of its directory.
///
/// # Errors
/// If a path does not exist, a directory cannot be listed, or there are none.
pub fn list_inputs(paths: &[PathBuf], output: Option<&Path>) -> Result<Vec<PathBuf>> {
    let found = find(paths, output)?;
    let traces = named_traces(paths, &found);
    let rejected = found.rejected.into_iter().map(|input| input.path);
    let foreign = found
        .foreign
        .iter()
        .map(|foreign| foreign.path().to_owned());
    let files = found.recordings.into_iter().chain(foreign);
    let files = files.chain(traces).chain(rejected);
    let files: Vec<PathBuf> = files.collect();
    if files.is_empty() {
        return Err(MergeError::NoRecordings {
            path: paths.first().cloned().unwrap_or_default(),
        });
    }
    Ok(files)
}

/// Returns the traces that are inputs. In a directory, a trace next to recordings is an earlier merge of them; it is an
/// input if it is named itself, or is next to traces only.
fn named_traces(paths: &[PathBuf], found: &Found) -> Vec<PathBuf> {
    let others = found.recordings.iter().map(PathBuf::as_path);
    let others = others.chain(found.foreign.iter().map(Foreign::path));
    let others = others.chain(found.rejected.iter().map(|input| input.path.as_path()));
    let with_others: BTreeSet<_> = others.filter_map(Path::parent).collect();
    let is_alone = |trace: &Path| trace.parent().is_some_and(|at| !with_others.contains(at));
    let traces = found.traces.iter();
    let traces = traces.filter(|trace| paths.contains(trace) || is_alone(trace));
    traces.cloned().collect()
}

/// Names the functions of what another program or a merge has completed.
fn name_functions(symbols: &Symbols, definitions: &mut Definitions) {
    let found = symbols.resolve(definitions);
    found.into_iter().for_each(|record| definitions.add(record));
}

/// Opens recordings, several at a time. Of many, the definitions are packed until all of them are opened.
fn open_recordings(
    paths: &[PathBuf],
    options: &MergeOptions,
    rejected: &mut Vec<RejectedInput>,
) -> Result<Inputs> {
    let share = options.part.share;
    let is_packed = paths.len() > MOST_UNPACKED;
    let open = |number: usize| -> Result<Box<InputRecording>> {
        let mut input = InputRecording::open(&paths[number])?;
        let is_others = share.is_some_and(|share| !share.has(number, paths.len()));
        if is_others && input.check_has_process().is_ok() {
            input.leave_out();
            return Ok(Box::new(input));
        }
        input.check_rest()?;
        options
            .symbols
            .name_functions(Arc::make_mut(&mut input.recording.definitions));
        if is_packed {
            input.pack_definitions();
        }
        Ok(Box::new(input))
    };
    let open = |number| stages::during(Stage::Open, || open(number));
    // Other processes open the other shares.
    let most_jobs = if share.is_some() { 1 } else { options.jobs };
    let workers = Workers::new(most_jobs.min(paths.len() / RECORDINGS_PER_THREAD))?;
    let mut inputs = Inputs::new();
    for start in (0..paths.len()).step_by(MOST_UNPACKED) {
        let end = paths.len().min(start + MOST_UNPACKED);
        let opened = workers.map(start..end, open);
        let before = inputs.len();
        for (path, opened) in paths[start..end].iter().zip(opened) {
            match opened {
                Ok(input) => inputs.push(input),
                Err(error) => rejected.push(RejectedInput {
                    path: path.clone(),
                    why: error.without_path(),
                }),
            }
        }
        if is_packed {
            InputRecording::pack_together(&mut inputs[before..]);
        }
    }
    Ok(inputs)
}

/// Converts traces of another format that belong together. Returns their processes.
///
/// # Errors
/// If the conversion cannot be written: half of a trace is no answer.
fn open_foreign(
    group: &[Foreign],
    options: &MergeOptions,
    is_heads_only: bool,
    rejected: &mut Vec<RejectedInput>,
) -> Result<Inputs> {
    let Some(first) = group.first().map(Foreign::path) else {
        return Ok(Inputs::new());
    };
    let conversion = match &options.temporary_directory {
        Some(named) => ConversionDirectory::new(named),
        None => ConversionDirectory::for_trace(first),
    };
    let conversion = conversion.map_err(MergeError::io("make a directory to convert", first))?;
    let conversion = Arc::new(conversion);
    let stop = &options.part.stop;
    let how = annals_foreign::Options {
        jobs: options.jobs.max(1),
        is_heads_only,
        rank_pattern: options.rank_from.as_deref(),
        keeps_arguments: options.all_arguments,
        progress: &|_| match stop.is_stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        },
    };
    let mut inputs = Inputs::new();
    let each = Foreign::convert_all(group, conversion.path(), &how);
    for (path, converted) in group.iter().map(Foreign::path).zip(each) {
        let mut reject = |why: String| {
            let path = path.to_owned();
            rejected.push(RejectedInput { path, why });
        };
        match converted {
            Ok(converted) if converted.is_empty() => reject("it has no records".to_owned()),
            Ok(converted) => {
                for converted in converted {
                    let mut input = InputRecording::of_foreign(path, converted, &conversion)?;
                    let definitions = Arc::make_mut(&mut input.recording.definitions);
                    name_functions(&options.symbols, definitions);
                    inputs.push(Box::new(input));
                }
            }
            Err(error @ (ForeignError::NotWritten { .. } | ForeignError::Stopped)) => {
                return Err(MergeError::of_foreign(error, &conversion));
            }
            Err(error) => reject(MergeError::of_foreign(error, &conversion).without_path()),
        }
    }
    Ok(inputs)
}

/// Opens traces of earlier merges.
fn open_traces(
    paths: Vec<PathBuf>,
    symbols: &Symbols,
    rejected: &mut Vec<RejectedInput>,
) -> Vec<InputTrace> {
    let mut opened = Vec::new();
    for path in paths {
        match InputTrace::open(&path) {
            Ok(input) if input.trace.definitions.processes.is_empty() => {
                let why = "its definitions are lost: no process is in it".to_owned();
                rejected.push(RejectedInput { path, why });
            }
            Ok(input) if input.trace.definitions.slice.is_some() => {
                let why = "a slice of a merge: join all of its slices first".to_owned();
                rejected.push(RejectedInput { path, why });
            }
            Ok(mut input) => {
                name_functions(symbols, &mut input.trace.definitions);
                input.trace.definitions.apply_symbols();
                opened.push(input);
            }
            Err(error) => rejected.push(RejectedInput {
                why: error.without_path(),
                path,
            }),
        }
    }
    opened
}

/// Rejects recordings that do not name their process. Returns the files of those that may be copies of others, cut soon
/// after their start.
fn reject_without_process(inputs: &mut Inputs, rejected: &mut Vec<RejectedInput>) -> Vec<PathBuf> {
    let id_of = |input: &InputRecording| input.recording.header.recording_id;
    let unnamed = inputs.extract_if(.., |input| input.check_has_process().is_err());
    let unnamed: Inputs = unnamed.collect();
    if unnamed.is_empty() {
        return Vec::new();
    }
    let ids: BTreeSet<_> = inputs.iter().map(|input| id_of(input)).collect();
    let mut copies = Vec::new();
    for input in unnamed {
        match input.check_has_process() {
            Err(error) if !ids.contains(&id_of(&input)) => rejected.push(RejectedInput {
                why: error.without_path(),
                path: input.path,
            }),
            _ => copies.push(input.path),
        }
    }
    copies
}
