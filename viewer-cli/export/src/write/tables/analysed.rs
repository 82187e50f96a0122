//! Tables whose rows an analysis finds in a pass of its kind, and those that need no events.

use std::sync::Arc;

use annals_analysis::{
    Delay, Grouping, LostTimeOptions, MessageLosses, Row, SampleOptions, WaitObserver, WaitState,
    first_loss_of_collectives, for_each_collective, for_each_message, lost_time, part_of_run,
    region_times, samples, wait_states_once,
};
use annals_merger::{MessageCounts, Query, Reader};

use super::collectives::Operation;
use super::locations::LocationRow;
use super::messages::MessageRow;
use super::wait_states::SingleWait;
use super::{Gathered, OfAnalysis, Shared, TableRow};
use crate::write::rows::Rows;
use crate::{SampleTable, TableKind};

/// Receives rows. Rows that are given after an error are left out.
type Write<'w> = dyn FnMut(Rows) -> anyhow::Result<()> + Send + 'w;

/// A table that is not made of the events or calls of a common pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Analysed {
    kind: TableKind,
    of_samples: SampleTable,
}

impl Analysed {
    /// Returns it if the kind is of that sort. `of_samples` is what rows of the table of samples are of.
    pub(crate) const fn of(kind: TableKind, of_samples: SampleTable) -> Option<Self> {
        match kind {
            TableKind::Events | TableKind::Calls | TableKind::Metrics | TableKind::Drops => None,
            TableKind::Regions
            | TableKind::Messages
            | TableKind::Collectives
            | TableKind::WaitStates
            | TableKind::CriticalPath
            | TableKind::Efficiency
            | TableKind::Locations
            | TableKind::Samples => Some(Self { kind, of_samples }),
        }
    }
}

/// Gathers rows of an analysis into batches.
struct Batches<'w, T> {
    gathered: Gathered<T>,
    shared: &'w Arc<Shared>,
    write: &'w mut Write<'w>,
    outcome: anyhow::Result<()>,
}

impl<'w, T: TableRow> Batches<'w, T> {
    fn new(shared: &'w Arc<Shared>, write: &'w mut Write<'w>) -> Self {
        Self {
            gathered: Gathered::new(),
            shared,
            write,
            outcome: Ok(()),
        }
    }

    fn push(&mut self, row: T) {
        if self.outcome.is_ok()
            && let Some(rows) = self.gathered.push(row, self.shared)
        {
            self.outcome = (self.write)(rows);
        }
    }

    /// Writes the last rows.
    fn finish(mut self) -> anyhow::Result<()> {
        self.outcome?;
        (self.write)(self.gathered.take(self.shared))
    }
}

/// Writes the rows of an analysis.
fn put_all<'w, T: Row + Send>(
    shared: &'w Arc<Shared>,
    write: &'w mut Write<'w>,
    rows: Vec<T>,
) -> anyhow::Result<()> {
    let mut batches = Batches::new(shared, write);
    let rows = rows.into_iter().map(OfAnalysis);
    rows.for_each(|row| batches.push(row));
    batches.finish()
}

impl WaitObserver for Batches<'_, SingleWait> {
    fn wait(&mut self, wait: &WaitState) {
        self.push(SingleWait::of(wait));
    }

    fn wrong_order(&mut self, _: &WaitState, _: i64) {}

    fn avoidable(&mut self, _: &WaitState, _: i64) {}

    fn delay(&mut self, _: &Delay<'_>) {}
}

/// Finds the rows of a table and passes them to `write`, in batches. Returns what became of all sends and receives, of the
/// table of messages. Waits, efficiencies and the critical path are those between `MPI_Init` and `MPI_Finalize` if the query
/// has no window. Where a trace does not have what the analysis needs, there are no rows.
///
/// # Errors
/// If the storage fails; those of `write`.
pub(crate) fn each_row<'w>(
    table: Analysed,
    reader: &Reader,
    query: &Query,
    shared: &'w Arc<Shared>,
    write: &'w mut Write<'w>,
) -> anyhow::Result<Option<MessageCounts>> {
    match table.kind {
        TableKind::Messages => {
            let mut rows = Batches::new(shared, write);
            let losses = MessageLosses::new(reader.definitions(), &reader.summary()?, query);
            let found = for_each_message(reader, query, |message| {
                rows.push(MessageRow::new(message, shared, &losses));
            })?;
            rows.finish()?;
            return Ok(found.map(|(counts, _)| counts));
        }
        TableKind::Collectives => {
            let mut rows = Batches::new(shared, write);
            let definitions = reader.definitions();
            let loss_ns = first_loss_of_collectives(definitions, &reader.summary()?, query);
            for_each_collective(reader, query, |instance| {
                rows.push(Operation::of(instance, loss_ns));
            })?;
            rows.finish()?;
        }
        TableKind::WaitStates => {
            let rows = Batches::new(shared, write);
            if !shared.waits.are_known() {
                rows.finish()?;
                return Ok(None);
            }
            let (query, _) = part_of_run(reader, query, false)?;
            if let Some((rows, _)) = wait_states_once(reader, &query, &[], rows)? {
                rows.finish()?;
            }
        }
        TableKind::CriticalPath | TableKind::Efficiency => {
            let options = LostTimeOptions {
                phases: Vec::new(),
                critical_path: table.kind == TableKind::CriticalPath,
            };
            let (query, _) = part_of_run(reader, query, false)?;
            let found = lost_time(reader, &query, &options)?.map(|(lost, _)| lost);
            let (path, efficiencies) = found
                .map(|lost| (lost.critical_path, lost.efficiencies))
                .unwrap_or_default();
            if table.kind == TableKind::CriticalPath {
                let regions = path.map(|path| path.regions).unwrap_or_default();
                put_all(shared, write, regions)?;
            } else {
                put_all(shared, write, efficiencies)?;
            }
        }
        TableKind::Samples => {
            let options = SampleOptions {
                outside_mpi: table.of_samples.outside_mpi,
                ..SampleOptions::default()
            };
            let found = samples(reader, query, options)?;
            let rows = found.map(|(found, _)| found.rows(table.of_samples.by, Grouping::Location));
            put_all(shared, write, rows.unwrap_or_default())?;
        }
        TableKind::Locations => {
            let locations = LocationRow::all(reader, query)?;
            put_all(shared, write, locations)?;
        }
        TableKind::Regions => {
            let (times, _) = region_times(reader, query, Grouping::Location)?;
            put_all(shared, write, times.regions)?;
        }
        TableKind::Events | TableKind::Calls | TableKind::Metrics | TableKind::Drops => {
            unreachable!("{} is no table of an analysis", table.kind.name())
        }
    }
    Ok(None)
}
