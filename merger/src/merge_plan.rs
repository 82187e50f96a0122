//! A merge that is planned, and what can be done with it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_format::{Definitions, RecordingId, Snapshot};

use crate::clocks::ClockFit;
use crate::error::Result;
use crate::input::find::RejectedInput;
use crate::input::recording::InputRecording;
use crate::input::trace::InputTrace;
use crate::merge::{Merge, Merged, inputs, output};
use crate::options::MergeOptions;
use crate::read::Reader;
use crate::settled::Plan;
use crate::stages::{self, Stage};

impl MergeOptions {
    /// Finds and opens the inputs, and determines everything that must be known before the events are merged:
    /// processes, definitions, relations of clocks, moves of a repair.
    ///
    /// # Errors
    /// If a path does not exist, nothing can be read, the options do not fit the inputs, or the merge is strict and an input
    /// cannot be used.
    pub fn plan(self, paths: &[PathBuf]) -> Result<MergePlan> {
        let opened = stages::during(Stage::Plan, || inputs::open(paths, &self))?;
        let (merge, rejected) = Merge::new(opened, self)?;
        Ok(MergePlan { merge, rejected })
    }
}

/// A merge that is planned: inputs are open, definitions and clocks are settled, events are not read yet.
#[derive(Debug)]
pub struct MergePlan {
    merge: Merge,
    rejected: Vec<RejectedInput>,
}

impl MergePlan {
    /// Returns the definitions of the trace.
    pub const fn definitions(&self) -> &Definitions {
        &self.merge.definitions
    }

    /// Returns how well the clocks are known.
    pub fn fits(&self) -> &[ClockFit] {
        &self.merge.axis.fits
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
    /// [`MergeError::Stopped`](crate::MergeError::Stopped) if `progress` stopped it; if the storage fails, the merge is strict and incomplete, or the
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
        let write = || output::write_trace(&self.merge, path.as_ref(), open, progress);
        let merged = stages::during(Stage::Finish, write)?;
        Ok(self.complete(merged))
    }

    /// Reads what the merge would write.
    pub fn into_reader(self) -> Reader {
        Reader::of_merge(self.merge, self.rejected)
    }

    fn complete(&self, mut merged: Merged) -> Merged {
        merged.report.reject(self.rejected.clone());
        merged
    }
}
