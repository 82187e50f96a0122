//! What a plan says of a merge, and a merge that does as a plan says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use annals_format::{Definition, Definitions, SharedClockMap};

use crate::error::Result;
use crate::merge::Merge;
use crate::messages::causality::{Causality, RepairReport, ViolationReport};
use crate::messages::repair::Shifts;
use crate::settled::{Digits, Plan, PlannedRepair, VERSION};

/// Returns the definitions that a plan settles.
fn settled(definitions: &Definitions) -> Vec<u8> {
    let maps = SharedClockMap::of(definitions.clock_maps.values()).into_iter();
    let errors = definitions.clock_errors.values().cloned();
    let ends = definitions.process_ends.values().copied();
    let location_ends = definitions.location_ends.values().copied();
    let zero = definitions.time_zero.map(Definition::TimeZero);
    let records = maps.map(Definition::SharedClockMap);
    let records = records.chain(errors.map(Definition::ClockError));
    let records = records.chain(ends.map(Definition::ProcessEnd)).chain(zero);
    let records = records.chain(location_ends.map(Definition::LocationEnd));
    let mut bytes = Vec::new();
    records.for_each(|record| record.encode(&mut bytes));
    bytes
}

/// Returns the inputs' files with their lengths in bytes: recordings in merge order, then traces.
fn lengths(merge: &Merge) -> impl Iterator<Item = (&Path, u64)> {
    let recordings = merge.inputs().map(|input| (&*input.path, input.file_bytes));
    let traces = merge.input_traces();
    recordings.chain(traces.map(|input| (&*input.path, input.file_bytes)))
}

impl Plan {
    /// Returns the plan of a merge. A repair must be planned before.
    pub(crate) fn of(merge: &Merge) -> Self {
        let shifts = merge
            .moves
            .shifts
            .iter()
            .map(|shifts| shifts.knots().to_vec());
        let repair = merge.moves.repair.as_ref().map(|repair| PlannedRepair {
            processes: repair.processes,
            over_limit: repair.over_limit,
            count: repair.before.count,
            beyond_error: repair.before.beyond_error,
            largest_ns: repair.before.largest_ns,
            mean_ns: repair.before.mean_ns,
        });
        Self {
            path: PathBuf::new(),
            version: VERSION,
            recordings: merge.recording_ids().map(|id| id.to_string()).collect(),
            lengths: lengths(merge).map(|(_, bytes)| bytes).collect(),
            causality: merge.options.causality.name().to_owned(),
            definitions: Digits(settled(&merge.definitions)),
            quantiles_ns: merge.quantiles(),
            shifts: shifts.collect(),
            corrections: merge.axis.hosts.corrections().to_vec(),
            repair,
        }
    }

    /// Checks that a merge has the inputs of the plan: their identities and lengths.
    fn check_inputs(&self, merge: &Merge) -> Result<()> {
        let recordings: Vec<String> = merge.recording_ids().map(|id| id.to_string()).collect();
        if recordings != self.recordings {
            let known: BTreeSet<&String> = self.recordings.iter().collect();
            let why = match recordings.iter().find(|id| !known.contains(id)) {
                Some(id) => format!("recording {id} was not there when it was made"),
                None => "it has recordings that are not given".to_owned(),
            };
            return Err(self.refuse(why));
        }
        if lengths(merge).count() != self.lengths.len() {
            return Err(self.refuse("its inputs are other files".to_owned()));
        }
        let mut both = lengths(merge).zip(&self.lengths);
        match both.find(|((_, bytes), planned)| bytes != *planned) {
            None => Ok(()),
            Some(((path, bytes), planned)) => Err(self.refuse(format!(
                "{} has {bytes} bytes, and had {planned} when it was made",
                path.display()
            ))),
        }
    }

    /// Has a merge do as planned, instead of [`Merge::plan_repair`] and its own clock fits.
    ///
    /// # Errors
    /// If the plan is of other inputs, or of another version or way to treat messages.
    pub(crate) fn apply(&self, merge: &mut Merge) -> Result<()> {
        let refuse = |why: String| self.refuse(why);
        if self.version != VERSION {
            return Err(refuse(format!(
                "version {VERSION} expected, found {}",
                self.version
            )));
        }
        self.check_inputs(merge)?;
        // Without a repair, whether messages are checked makes no difference to the plan.
        let is_repair = |name: &str| name == Causality::Repair.name();
        if is_repair(&self.causality) != is_repair(merge.options.causality.name()) {
            let (plan, now) = (&self.causality, merge.options.causality.name());
            return Err(refuse(format!(
                "it was made with causality {plan}, not {now}"
            )));
        }
        let mut planned = Definitions::default();
        let outcome = planned.add_all(&self.definitions.0);
        outcome.map_err(|error| refuse(error.to_string()))?;
        let hosts = merge
            .follow_corrections(&self.corrections)
            .ok_or_else(|| refuse("its hosts are others".to_owned()))?;
        let own = &mut merge.definitions;
        let is_whole = planned.clock_maps.keys().eq(own.clock_maps.keys())
            && planned.clock_errors.keys().eq(own.clock_errors.keys())
            && planned.process_ends.keys().eq(own.process_ends.keys())
            && planned.location_ends.keys().eq(own.location_ends.keys())
            && planned.time_zero.is_some()
            && (self.shifts.is_empty() || self.shifts.len() >= own.processes.len());
        if !is_whole {
            return Err(refuse("its clocks and processes are others".to_owned()));
        }
        own.clock_maps = planned.clock_maps;
        own.clock_errors = planned.clock_errors;
        own.process_ends = planned.process_ends;
        own.location_ends = planned.location_ends;
        own.time_zero = planned.time_zero;
        let shifts = self
            .shifts
            .iter()
            .map(|knots| Shifts::of_knots(knots.clone()));
        let shifts: Option<Vec<Shifts>> = shifts.collect();
        merge.moves.shifts =
            shifts.ok_or_else(|| refuse("times of shifts do not ascend".to_owned()))?;
        merge.moves.repair = self.repair.as_ref().map(|repair| RepairReport {
            before: ViolationReport {
                count: repair.count,
                beyond_error: repair.beyond_error,
                largest_ns: repair.largest_ns,
                mean_ns: repair.mean_ns,
            },
            processes: repair.processes,
            over_limit: repair.over_limit,
            hosts,
            ..RepairReport::default()
        });
        merge.follow_plan();
        Ok(())
    }
}
