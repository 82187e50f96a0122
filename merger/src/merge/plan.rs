//! A plan: what a merge settles before it reads events, kept for merges of the same inputs elsewhere or later,
//! slice by slice.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use annals_format::{Definition, Definitions, SharedClockMap};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::clocks::hosts::Correction;
use crate::error::{MergeError, Result};
use crate::merge::Merge;
use crate::messages::causality::{Causality, RepairReport, ViolationReport};
use crate::messages::repair::Shifts;
use crate::whole_file::{OutputError, Replace, WholeFile};

/// The version that is read and written. The first had no corrections of hosts' clocks, the second no lengths of inputs.
const VERSION: u32 = 3;

/// A plan in the form of its file, JSON. Times are trace times, nanoseconds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its file, for errors.
    #[serde(skip)]
    path: PathBuf,
    version: u32,
    /// Identities of the recordings, in merge order.
    recordings: Vec<String>,
    /// Lengths of the inputs' files, bytes: those of recordings in merge order, then those of traces.
    #[serde(default)]
    lengths: Vec<u64>,
    /// `off`, `check` or `repair`.
    causality: String,
    /// Clock maps, clock errors, process ends and time zero: definition records in hexadecimal digits.
    definitions: Digits,
    /// Between each of these and the next about equally many bytes of events happen.
    quantiles_ns: Vec<i64>,
    /// By process, how a repair moves its events: time and shift.
    shifts: Vec<Vec<(i64, i64)>>,
    /// The corrections of hosts' clocks by messages, in the order in which they were found.
    #[serde(default)]
    corrections: Vec<Correction>,
    repair: Option<PlannedRepair>,
}

/// Bytes that are hexadecimal digits in the file. They are written and read digit by digit: a plan of many recordings has megabytes of them.
#[derive(Debug)]
struct Digits(Vec<u8>);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let digits = Cow::<str>::deserialize(deserializer)?;
        let bytes = digits.as_bytes().chunks(2).map(|pair| {
            let pair = std::str::from_utf8(pair).ok();
            let pair = pair.filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        let bytes =
            bytes.ok_or_else(|| D::Error::custom("its definitions are no hexadecimal digits"))?;
        Ok(Self(bytes))
    }
}

/// The findings of a repair before it moved anything.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedRepair {
    processes: u64,
    over_limit: u64,
    count: u64,
    beyond_error: u64,
    largest_ns: u64,
    mean_ns: u64,
}

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
        let shifts = merge.shifts.iter().map(|shifts| shifts.knots().to_vec());
        let repair = merge.repair.as_ref().map(|repair| PlannedRepair {
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
            causality: merge.causality.name().to_owned(),
            definitions: Digits(settled(&merge.definitions)),
            quantiles_ns: merge.quantiles(),
            shifts: shifts.collect(),
            corrections: merge.hosts.corrections().to_vec(),
            repair,
        }
    }

    /// Returns how the merge that was planned treats messages. A merge by the plan must treat them likewise.
    ///
    /// # Errors
    /// If the plan names no such treatment.
    pub fn causality(&self) -> Result<Causality> {
        let mut all = Causality::ALL.into_iter();
        let found = all.find(|causality| causality.name() == self.causality);
        found.ok_or_else(|| self.refuse(format!("its causality is `{}`", self.causality)))
    }

    fn refuse(&self, why: String) -> MergeError {
        MergeError::NoPlan {
            path: self.path.clone(),
            why,
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

    /// Returns where slices may end.
    pub(crate) fn quantiles_ns(&self) -> &[i64] {
        &self.quantiles_ns
    }

    /// Writes the plan, as JSON. `replace`: which existing files it may replace.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path, replace: Replace) -> Result<()> {
        let mut file = WholeFile::create(path, replace)?;
        let written = serde_json::to_writer(&mut file, self);
        written.map_err(|error| OutputError::not_written(path, error.into()))?;
        Ok(file.finish()?)
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// If the file cannot be read or is no plan.
    pub fn read(path: &Path) -> Result<Self> {
        let io = MergeError::io("read", path);
        let bytes = std::fs::read(path).map_err(io)?;
        Self::parse(&bytes, path)
    }

    /// Parses what such a file holds; `path` is for errors.
    ///
    /// # Errors
    /// If it is no plan.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let parsed = serde_json::from_slice(bytes);
        let plan: Self = parsed.map_err(|error| MergeError::NoPlan {
            path: path.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            ..plan
        })
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
        if is_repair(&self.causality) != is_repair(merge.causality.name()) {
            let (plan, now) = (&self.causality, merge.causality.name());
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
        merge.shifts = shifts.ok_or_else(|| refuse("times of shifts do not ascend".to_owned()))?;
        merge.repair = self.repair.as_ref().map(|repair| RepairReport {
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
