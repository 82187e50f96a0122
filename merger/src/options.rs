//! How inputs are merged, and the merge that follows from that.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{CompressionLevel, Definitions, RecordingId, Snapshot};

use crate::clocks::ClockFit;
use crate::clocks::offsets::ClockOffsets;
use crate::error::{MergeError, Result};
use crate::filter::EventFilter;
use crate::input::find::RejectedInput;
use crate::input::recording::InputRecording;
use crate::input::symbols::Symbols;
use crate::input::trace::InputTrace;
use crate::merge::inputs::{self, PlannedInputs, Share};
use crate::merge::plan::Plan;
use crate::merge::{CHUNK_EVENTS, MEMORY_LIMIT_BYTES, Merge, Merged, output};
use crate::messages::causality::{Causality, MESSAGES_IN_FLIGHT};
use crate::otf2::{self, ArchiveOptions};
use crate::read::Reader;
use crate::stages::{self, Stage};
use crate::window::{SliceNumber, Window};
use crate::workers::default_jobs;

/// How inputs are merged. Each field has a default; set those that differ:
///
/// ```no_run
/// use annals_merger::{Causality, MergeOptions, no_progress};
///
/// let mut options = MergeOptions::new();
/// options.causality = Causality::Repair;
/// options.jobs = 2;
/// let plan = options.plan(&["annals-run".into()])?;
/// let merged = plan.write_trace("run.annals", no_progress)?;
/// println!("{} events, {} bytes", merged.report.totals.present(), merged.bytes);
/// # Ok::<(), annals_merger::MergeError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct MergeOptions {
    /// Files that have names for functions without one. Default: those that the recordings name.
    pub symbols: Symbols,
    /// Offsets between the clocks of hosts, measured by the user. Default: those in the recordings.
    pub clock_offsets: Option<ClockOffsets>,
    /// The treatment of messages that are received before they are sent. Default: they are counted.
    pub causality: Causality,
    /// Maximum number of messages in flight to one sixteenth of the processes (every sixteenth one), about 150 bytes each;
    /// more are counted, not matched.
    pub messages_in_flight: usize,
    /// Which events are kept; the others are counted as filtered. Default: all.
    pub filter: EventFilter,
    /// The window of trace time in which events are kept. Default: all of time.
    pub window: Window,
    /// Which slice of time is written; [`JoinOptions`](crate::JoinOptions) put slices together. Default: `None`, the whole merge.
    pub slice: Option<SliceNumber>,
    /// The decisions of an earlier run for the same inputs: see [`MergePlan::settled`]. Default: `None`, which means
    /// that they are made anew.
    pub settled: Option<Plan>,
    /// The file that will be written: it is never taken for an input. Default: `None`.
    pub output: Option<PathBuf>,
    /// Compression of the trace.
    pub compression: CompressionLevel,
    /// Threads that decode, merge and encode. Default: one for each processor.
    pub jobs: usize,
    /// Memory that the merge may take, about, bytes. What does not fit is merged in several passes, to the same trace. Of very
    /// many streams, definitions and indexes alone take more (12 KiB for each): events then get a quarter of the limit.
    pub memory_limit_bytes: u64,
    /// The directory of the temporary files of several passes. They have no names, and end with the process. Default: `None`, the
    /// directory of [`MergeOptions::output`], or else the current one.
    pub temporary_directory: Option<PathBuf>,
    /// Events of a chunk of the trace; of more than 1 024 streams, 64 for each stream, at most 262 144. Default: 65 536.
    pub chunk_events: usize,
    /// Whether an incomplete merge is an error: an input that is damaged or cut off, a rank that is missing. Default: false.
    pub strict: bool,
    /// Whether the trace has an overview: values of spans of time, from which pictures of any part of it are read. Slices have none.
    /// With it, a merge takes a quarter to two fifths longer. Default: false.
    pub overview: bool,
    /// Whether an existing output of another kind is replaced. Default: false.
    pub force: bool,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            symbols: Symbols::default(),
            clock_offsets: None,
            causality: Causality::Check,
            messages_in_flight: MESSAGES_IN_FLIGHT,
            filter: EventFilter::default(),
            window: Window::ALL,
            slice: None,
            settled: None,
            output: None,
            compression: CompressionLevel::default(),
            jobs: default_jobs(),
            memory_limit_bytes: MEMORY_LIMIT_BYTES,
            temporary_directory: None,
            chunk_events: CHUNK_EVENTS,
            strict: false,
            overview: false,
            force: false,
        }
    }
}

impl MergeOptions {
    /// Creates options with their defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Finds and opens the inputs, and determines everything that must be known before the events are merged:
    /// processes, definitions, relations of clocks, moves of a repair.
    ///
    /// # Errors
    /// If a path does not exist, nothing can be read, the options do not fit the inputs, or the merge is strict and an input
    /// cannot be used.
    pub fn plan(self, paths: &[PathBuf]) -> Result<MergePlan> {
        let output = self.output.as_deref();
        let offsets = self.clock_offsets.as_ref();
        let PlannedInputs {
            mut merge,
            rejected,
        } = stages::during(Stage::Plan, || {
            inputs::open(
                paths,
                output,
                &self.symbols,
                offsets,
                Share::ALL,
                self.jobs.max(1),
            )
        })?;
        if let Some(input) = rejected.first().filter(|_| self.strict) {
            let what = format!("{}: {}", input.path.display(), input.why);
            return Err(MergeError::Incomplete { what });
        }
        merge.causality = self.causality;
        merge.messages_in_flight = self.messages_in_flight;
        merge.memory_limit_bytes = self.memory_limit_bytes;
        merge.chunk_events = self.chunk_events;
        merge.is_strict = self.strict;
        merge.has_overview = self.overview;
        merge.force = self.force;
        let beside = || output.and_then(Path::parent).map(Path::to_owned);
        let temporary = self.temporary_directory.clone().or_else(beside);
        if let Some(directory) = temporary.filter(|path| !path.as_os_str().is_empty()) {
            merge.temporary_directory = directory;
        }
        match &self.settled {
            Some(settled) => settled.apply(&mut merge)?,
            None => merge.plan_repair(self.jobs)?,
        }
        let quantiles_ns = self.slice.map(|_| match &self.settled {
            Some(settled) => settled.quantiles_ns().to_vec(),
            None => merge.quantiles(),
        });
        if !self.filter.is_empty() || self.window != Window::ALL {
            merge.filter(&self.filter, self.window)?;
        }
        if let (Some(slice), Some(quantiles_ns)) = (self.slice, &quantiles_ns) {
            merge.slice(slice, quantiles_ns)?;
        }
        Ok(MergePlan {
            merge,
            rejected,
            compression: self.compression,
            jobs: self.jobs.max(1),
        })
    }
}

/// A merge that is planned: inputs are open, definitions and clocks are settled, events are not read yet.
#[derive(Debug)]
pub struct MergePlan {
    merge: Merge,
    rejected: Vec<RejectedInput>,
    compression: CompressionLevel,
    jobs: usize,
}

impl MergePlan {
    /// Returns the definitions of the trace.
    pub const fn definitions(&self) -> &Definitions {
        &self.merge.definitions
    }

    /// Returns how well the clocks are known.
    pub fn fits(&self) -> &[ClockFit] {
        &self.merge.fits
    }

    /// Inputs that cannot be used, with the reason.
    pub fn rejected(&self) -> &[RejectedInput] {
        &self.rejected
    }

    /// Returns the recordings among the inputs.
    pub fn recordings(&self) -> impl Iterator<Item = &InputRecording> {
        self.merge.inputs()
    }

    /// Returns the traces of earlier merges among the inputs.
    pub fn traces(&self) -> impl Iterator<Item = &InputTrace> {
        self.merge.input_traces()
    }

    /// Returns the identities of all recordings, in the order of the merge.
    pub fn recording_ids(&self) -> impl Iterator<Item = RecordingId> {
        self.merge.recording_ids()
    }

    /// Returns the number of events in the inputs by the heads of their chunks, for a progress bar.
    pub fn expected_events(&self) -> u64 {
        self.merge.expected_events()
    }

    /// Returns what was settled, for other processes that write slices of this merge.
    pub fn settled(&self) -> Plan {
        Plan::of(&self.merge)
    }

    /// Merges, and writes the trace. `progress` gets the number of events written so far, and can stop the merge.
    ///
    /// # Errors
    /// [`MergeError::Stopped`] if `progress` stopped it; if the storage fails, the merge is strict and incomplete, or the
    /// trace would not hold what was read. Nothing is left under the output's name then.
    pub fn write_trace(
        &self,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Merged> {
        self.write_trace_from(path, &Snapshot::default(), progress)
    }

    /// Merges, and writes the trace of a window in whose beginning regions are open.
    ///
    /// # Errors
    /// Those of [`MergePlan::write_trace`].
    pub fn write_trace_from(
        &self,
        path: impl AsRef<Path>,
        open: &Snapshot,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Merged> {
        let how = output::OutputOptions {
            compression: self.compression,
            jobs: self.jobs,
        };
        let write = || output::write_trace(&self.merge, path.as_ref(), how, open, progress);
        let merged = stages::during(Stage::Finish, write)?;
        Ok(self.complete(merged))
    }

    /// Merges, and writes an OTF2 archive. `path` names the anchor (`*.otf2`), or a directory for one.
    ///
    /// # Errors
    /// Those of [`MergePlan::write_trace`]; if something else than an archive is there.
    pub fn write_archive(
        &self,
        path: impl AsRef<Path>,
        options: ArchiveOptions,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Merged> {
        let path = path.as_ref();
        let merged = otf2::write_archive(&self.merge, path, self.jobs, options, progress)?;
        Ok(self.complete(merged))
    }

    /// Reads what the merge would write.
    pub fn into_reader(self) -> Reader {
        Reader::of_merge(self.merge, self.rejected, self.jobs)
    }

    fn complete(&self, mut merged: Merged) -> Merged {
        merged.report.reject(self.rejected.clone());
        merged
    }
}
