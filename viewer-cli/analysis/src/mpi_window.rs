//! The window that counts if none is asked for: without the start and the end of MPI.
//!
//! `MPI_Init` and `MPI_Finalize` may take longer than all the rest, and show little about the
//! program.

use annals_format::{Definitions, RegionId};
use annals_merger::calls::{CallSink, Close, Frame};
use annals_merger::{Calls, Query, Reader, Result, Sink, Window};
use rustc_hash::FxHashSet;

use crate::bins::bounded;

const START: [&str; 2] = ["MPI_Init", "MPI_Init_thread"];
const END: [&str; 1] = ["MPI_Finalize"];

/// The calls that start and end MPI.
struct Ends {
    start: FxHashSet<RegionId>,
    end: FxHashSet<RegionId>,
    /// Trace time of the first leave of a start, nanoseconds.
    first_started_ns: Option<i64>,
    /// Trace time of the last enter of an end, nanoseconds.
    last_ended_ns: Option<i64>,
}

impl CallSink for Ends {
    fn enter(&mut self, _: usize, _: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        if self.end.contains(&region) {
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

impl Sink for Ends {
    const BY_LOCATION: bool = true;
}

fn regions(definitions: &Definitions, names: &[&str]) -> FxHashSet<RegionId> {
    let regions = definitions.regions.values();
    let named = regions.filter(|region| names.contains(&definitions.string(region.name)));
    named.map(|region| region.id).collect()
}

/// Returns the part of a window between the first leave of `MPI_Init` and the last enter of `MPI_Finalize`. `None` if the
/// window has neither, or nothing between them.
///
/// # Errors
/// If the storage fails.
pub fn without_start_and_end(
    reader: &Reader,
    filter: &Query,
    whole: Window,
) -> Result<Option<Window>> {
    let definitions = reader.definitions();
    let mut ends = Ends {
        start: regions(definitions, &START),
        end: regions(definitions, &END),
        first_started_ns: None,
        last_ended_ns: None,
    };
    let span = whole.to_ns.saturating_sub(whole.from_ns);
    let read = |window: Window, ends: &mut Ends| {
        Calls::new(definitions, &filter.within(window)).run(reader, ends)
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
            if let Some(ended_ns) = ends.last_ended_ns.filter(|ended| *ended >= from_ns) {
                found.to_ns = ended_ns.saturating_add(1);
                break;
            }
        }
    }
    Ok((found != whole && found.from_ns < found.to_ns).then_some(found))
}

/// Returns the query in the window that counts if none is asked for: of an MPI program, without its start and end.
///
/// # Errors
/// If the storage fails.
pub fn without_start_and_end_of_all(reader: &Reader, query: &Query) -> Result<Query> {
    if query.window() != Window::ALL {
        return Ok(query.clone());
    }
    let whole = bounded(reader, Window::ALL);
    // Whatever the query takes, the same time counts.
    let found = without_start_and_end(reader, &Query::new(), whole)?;
    Ok(found.map_or_else(|| query.clone(), |found| query.within(found)))
}
