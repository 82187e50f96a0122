//! Which part of a run counts if no time window is asked for.
//!
//! Tables of calls, exports and comparisons are of the whole run. Waits, efficiencies and first views are of the parallel
//! part, without the start and the end of MPI: `MPI_Init` and `MPI_Finalize` may take longer than all the rest, and show little
//! about the program.

use annals_format::names::property;
use annals_format::{Definitions, Ended, ProcessId, RegionId};
use annals_merger::{Analysis, Calls, Close, Frame, Query, Reader, Result, Window};
use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::bins::bounded;

const START: [&str; 2] = ["MPI_Init", "MPI_Init_thread"];
const END: [&str; 1] = ["MPI_Finalize"];

/// How the part of a run was chosen that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartOfRun {
    /// The whole run.
    Whole,
    /// From the first return of `MPI_Init` to the last call of `MPI_Finalize`; to the end, if a rank did not call that.
    WithoutStartAndEnd,
    /// The user asked for a time window.
    Given,
}

/// Returns whether a region starts or ends MPI.
pub fn starts_or_ends_mpi(name: &str) -> bool {
    START.contains(&name) || END.contains(&name)
}

/// The calls that start and end MPI.
struct Ends {
    start: FxHashSet<RegionId>,
    end: FxHashSet<RegionId>,
    /// Trace time of the first leave of a start, nanoseconds.
    first_started_ns: Option<i64>,
    /// Trace time of the last enter of an end, nanoseconds.
    last_ended_ns: Option<i64>,
    /// By location: its process.
    process_of: Vec<ProcessId>,
    /// Processes that may not have ended MPI: no end of them was found yet.
    unended: FxHashSet<ProcessId>,
}

impl Analysis for Ends {
    fn enter(&mut self, lane: usize, _: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        if self.end.contains(&region) {
            if let Some(process) = self.process_of.get(lane) {
                self.unended.remove(process);
            }
            self.last_ended_ns = self.last_ended_ns.max(Some(time_ns));
        }
        0
    }

    fn close(&mut self, _: usize, _: &[Frame], frame: &Frame, time_ns: i64, how: Close) {
        if self.start.contains(&frame.region) && how == Close::Left {
            let first = self.first_started_ns.unwrap_or(time_ns);
            self.first_started_ns = Some(first.min(time_ns));
        }
    }
}

fn regions(definitions: &Definitions, names: &[&str]) -> FxHashSet<RegionId> {
    let regions = definitions.regions.values();
    let named = regions.filter(|region| names.contains(&definitions.string(region.name)));
    named.map(|region| region.id).collect()
}

/// Returns the ranks that did not end well: they may have ended without `MPI_Finalize`.
fn badly_ended(definitions: &Definitions) -> FxHashSet<ProcessId> {
    let helpers = definitions.helpers();
    let ranks = definitions.ranks.keys();
    let ranks = ranks.filter(|id| !helpers.contains_key(id));
    let is_bad = |id: &&ProcessId| {
        let end = definitions.process_ends.get(id);
        let noted = [property::MPI_MISSING_FINALIZE, property::MPI_ABORT];
        let mut properties = definitions.properties.iter();
        end.is_some_and(|end| end.ended != Ended::Finished)
            || properties
                .any(|of| of.process == **id && noted.contains(&definitions.string(of.key)))
    };
    ranks.filter(is_bad).copied().collect()
}

/// Returns the part of a run between the first leave of `MPI_Init` and the last enter of `MPI_Finalize`, whatever ranks, regions or
/// events a command shows of it; to the end, if a rank has not called `MPI_Finalize`. `None` if that is all of it.
fn parallel_part(reader: &Reader) -> Result<Option<Window>> {
    let whole = bounded(reader, Window::ALL);
    let definitions = reader.definitions();
    let locations = definitions.locations.values();
    let mut ends = Ends {
        start: regions(definitions, &START),
        end: regions(definitions, &END),
        first_started_ns: None,
        last_ended_ns: None,
        process_of: locations.map(|location| location.process).collect(),
        unended: badly_ended(definitions),
    };
    let span = whole.to_ns.saturating_sub(whole.from_ns);
    let read = |window: Window, ends: &mut Ends| {
        Calls::new(definitions, &Query::new().within(window)).run(reader, ends)
    };
    // Both are usually near the ends of the trace: it is read in growing parts.
    let parts = || [6, 4, 2, 0].map(|shift| span >> shift);
    let mut found = whole;
    if !ends.start.is_empty() {
        for part in parts() {
            let to_ns = whole.from_ns.saturating_add(part);
            read(Window { to_ns, ..whole }, &mut ends)?;
            if let Some(started_ns) = ends.first_started_ns {
                found.from_ns = started_ns;
                break;
            }
        }
    }
    if !ends.end.is_empty() {
        for part in parts() {
            let from_ns = whole.to_ns.saturating_sub(part);
            ends.last_ended_ns = None;
            read(Window { from_ns, ..whole }, &mut ends)?;
            let ended_ns = ends.last_ended_ns.filter(|ended| *ended >= from_ns);
            if let Some(ended_ns) = ended_ns.filter(|_| ends.unended.is_empty()) {
                found.to_ns = ended_ns.saturating_add(1);
                break;
            }
        }
    }
    Ok((found != whole && found.from_ns < found.to_ns).then_some(found))
}

/// Returns the query of the part that counts if the query has no time window, and which part that is. `is_all`: the whole run counts.
///
/// # Errors
/// If the storage fails.
pub fn part_of_run(reader: &Reader, query: &Query, is_all: bool) -> Result<(Query, PartOfRun)> {
    if query.window() != Window::ALL {
        return Ok((query.clone(), PartOfRun::Given));
    }
    let part = if is_all { None } else { parallel_part(reader)? };
    Ok(match part {
        Some(part) => (query.within(part), PartOfRun::WithoutStartAndEnd),
        None => (query.clone(), PartOfRun::Whole),
    })
}
