//! Which of the traces among the inputs each recording is taken from, when several have it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use annals_format::{ProcessId, RecordingId};

use crate::filter::{Said, said};
use crate::input::trace::RenumberedTrace;

/// A trace that may hold other events of a recording than the trace that it is taken from.
pub(super) struct PartialTrace {
    pub(super) path: PathBuf,
    /// The trace that the recording is taken from.
    pub(super) taken: PathBuf,
    pub(super) recording: RecordingId,
}

/// Selects which recordings are taken from which trace.
#[derive(Default)]
pub(super) struct ChosenTraces {
    /// Number of a trace, its process that is taken, and the recording.
    pub(super) taken: Vec<(usize, ProcessId, RecordingId)>,
    /// Traces of which something is taken from elsewhere, and nothing is missing.
    pub(super) duplicates: Vec<PathBuf>,
    pub(super) parts: Vec<PartialTrace>,
}

impl ChosenTraces {
    /// Chooses, for each recording that is not among those `seen`, the trace that has most of it; of several, the first.
    pub(super) fn of(traces: &[RenumberedTrace], seen: &BTreeSet<RecordingId>) -> Self {
        let held: Vec<BTreeMap<ProcessId, Held>> = traces.iter().map(Held::of).collect();
        let what = |(number, process): (usize, ProcessId)| held[number].get(&process);
        let events = |place| what(place).map_or(0, |held| held.present);
        let mut best: BTreeMap<RecordingId, (usize, ProcessId)> = BTreeMap::new();
        for (number, trace) in traces.iter().enumerate() {
            for (process, id) in trace.recording_ids().filter(|(_, id)| !seen.contains(id)) {
                let here = (number, process);
                let best = best.entry(id).or_insert(here);
                if events(here) > events(*best) {
                    *best = here;
                }
            }
        }
        let mut chosen = Self::default();
        for (number, trace) in traces.iter().enumerate() {
            let (mut has_duplicate, mut others) = (false, None);
            for (process, id) in trace.recording_ids() {
                let here = (number, process);
                match best.get(&id) {
                    Some(best) if *best == here => chosen.taken.push((number, process, id)),
                    Some(best) if Held::may_differ(what(here), what(*best)) => {
                        others.get_or_insert((best.0, id));
                    }
                    // Nothing is given twice by a trace that left all of it out.
                    _ => {
                        let held = what(here);
                        has_duplicate |= held.is_none_or(|h| h.present != 0 || h.missing == 0);
                    }
                }
            }
            let path = || trace.input.path.clone();
            if let Some((taken, id)) = others {
                let taken = traces[taken].input.path.clone();
                chosen.parts.push(PartialTrace {
                    path: path(),
                    taken,
                    recording: id,
                });
            } else if has_duplicate {
                chosen.duplicates.push(path());
            }
        }
        chosen
    }
}

/// The contents of a trace for one process.
#[derive(PartialEq, Eq)]
struct Held {
    present: u64,
    /// Events that the trace does not have, or has not found.
    missing: u64,
    /// By stream of the process and by event type, events that are there, and those that were recorded.
    rows: Vec<(u64, u64)>,
    /// The filters of the merge that made it.
    filters: Vec<Said>,
}

impl Held {
    fn of(trace: &RenumberedTrace) -> BTreeMap<ProcessId, Self> {
        let definitions = trace.definitions();
        let filters = definitions.filters.iter();
        let filters: Vec<Said> = filters.map(|filter| said(filter, definitions)).collect();
        let mut each: BTreeMap<ProcessId, Self> = BTreeMap::new();
        for totals in &trace.input.trace.totals {
            let Some(process) = definitions.process_of(totals.stream) else {
                continue;
            };
            let held = each.entry(process).or_insert_with(|| Self {
                present: 0,
                missing: 0,
                rows: Vec::new(),
                filters: filters.clone(),
            });
            for row in &totals.rows {
                let (present, recorded) = (row.present(), row.recorded);
                held.present = held.present.saturating_add(present);
                held.missing = held
                    .missing
                    .saturating_add(recorded.saturating_sub(present));
                held.rows.push((present, recorded));
            }
        }
        each
    }

    /// Returns whether one that is not taken may have events that the one that is taken has not.
    fn may_differ(left: Option<&Self>, taken: Option<&Self>) -> bool {
        let (Some(left), Some(taken)) = (left, taken) else {
            return false;
        };
        left.present != 0 && taken.missing != 0 && left != taken
    }
}
