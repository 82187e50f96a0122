//! `trace-cli collectives`: who waits in collective operations.

use std::collections::BTreeMap;
use std::io::Write;

use annals_format::{CollectiveOperation, Definitions, EventTypeId, Reference, Role};
use annals_merger::{Places, Query, ReadSummary, Reader, Window};
use anyhow::bail;
use clap::Args;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{InputArguments, warn_of_damage};
use crate::csv::{Csv, Maybe};
use crate::filter::{FilterArguments, WindowArguments};
use crate::output::{self, Finding};
use crate::table::{Align, Table, safe};
use crate::time;
use crate::walk::{concerns, walk};

/// Operations that wait for members, at most.
const MOST_OPEN: usize = 1 << 20;

/// Collective operations: who came last, and how long the others waited for it.
///
/// The k-th begin of a communicator in a process belongs to the k-th in the others. An operation counts when all
/// members that the trace knows have begun it and the last of them did so in the window. A member waits from its
/// begin to the last one's. Imbalance is from the first begin to the last. `~` marks what a loss may have changed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  trace-cli collectives run.annals\n  \
                  trace-cli collectives run.annals --json --from 1s")]
pub struct CollectivesArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    window: WindowArguments,
    #[command(flatten)]
    filter: FilterArguments,

    /// A row for each operation and communicator, as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Waiting of one rank. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
struct RankRow {
    rank: u32,
    wait_ns: i64,
    /// How often it came last.
    last: u64,
}

/// An operation of a communicator. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
struct OperationRow {
    operation: String,
    communicator: String,
    members: usize,
    count: u64,
    wait_ns: i64,
    mean_imbalance_ns: Option<i64>,
    max_imbalance_ns: i64,
    ranks: Vec<RankRow>,
    is_uncertain: bool,
}

#[derive(Clone, Debug, Serialize)]
struct Collectives {
    collectives: Vec<OperationRow>,
    /// Operations that not all members began.
    incomplete: u64,
}

fn operation_name(operation: Option<i128>) -> String {
    let code = operation.and_then(|code| u8::try_from(code).ok());
    match (operation, code.and_then(CollectiveOperation::from_code)) {
        (_, Some(operation)) => operation.name().to_owned(),
        (Some(number), None) => format!("operation {number}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Places of the elements of an event type.
#[derive(Clone, Copy)]
struct Begin {
    event_type: EventTypeId,
    communicator: Option<usize>,
    operation: Option<usize>,
    size: Option<usize>,
}

fn communicator_name(definitions: &Definitions, begin: Begin, value: i128) -> String {
    let element = begin.communicator.and_then(|at| {
        definitions
            .event_types
            .get(&begin.event_type)?
            .elements
            .get(at)
    });
    let number = u32::try_from(value).ok();
    match (element.map(|element| element.reference), number) {
        (Some(Reference::Object), Some(number)) => {
            let object = definitions
                .objects
                .get(&annals_format::ObjectId::new(number));
            object.map_or_else(
                || value.to_string(),
                |object| definitions.string(object.name).to_owned(),
            )
        }
        (Some(Reference::String), Some(number)) => definitions
            .string(annals_format::StringId::new(number))
            .to_owned(),
        _ => value.to_string(),
    }
}

/// An operation that began.
struct Instance {
    operation: Option<i128>,
    size: Option<usize>,
    /// Process, rank, begin.
    begins: Vec<(u32, u32, i64)>,
}

#[derive(Default)]
struct Communicator {
    /// By process, how many it began.
    begun: BTreeMap<u32, u64>,
    /// By number.
    open: BTreeMap<u64, Instance>,
}

#[derive(Default)]
struct Tally {
    members: usize,
    count: u64,
    wait_ns: i64,
    imbalance_ns: i128,
    max_imbalance_ns: i64,
    ranks: BTreeMap<u32, (i64, u64)>,
}

#[derive(Default)]
struct Gathered {
    communicators: BTreeMap<String, Communicator>,
    tallies: BTreeMap<(String, String), Tally>,
    open: usize,
    incomplete: u64,
}

impl Gathered {
    fn count(&mut self, communicator: &str, instance: &Instance, window: Window) {
        let last = instance.begins.iter().max_by_key(|begin| begin.2);
        let first = instance.begins.iter().map(|begin| begin.2).min();
        let (Some(last), Some(first_ns)) = (last.copied(), first) else {
            return;
        };
        if !window.contains(last.2) {
            return;
        }
        let key = (operation_name(instance.operation), communicator.to_owned());
        let tally = self.tallies.entry(key).or_default();
        tally.members = tally.members.max(instance.begins.len());
        tally.count += 1;
        let imbalance_ns = last.2 - first_ns;
        tally.imbalance_ns += i128::from(imbalance_ns);
        tally.max_imbalance_ns = tally.max_imbalance_ns.max(imbalance_ns);
        for (_, rank, begin_ns) in &instance.begins {
            let of_rank = tally.ranks.entry(*rank).or_default();
            of_rank.0 += last.2 - begin_ns;
            tally.wait_ns += last.2 - begin_ns;
        }
        tally.ranks.entry(last.1).or_default().1 += 1;
    }

    fn begin(
        &mut self,
        name: &str,
        (process, rank, time_ns): (u32, u32, i64),
        operation: Option<i128>,
        size: Option<usize>,
        window: Window,
    ) {
        if !self.communicators.contains_key(name) {
            self.communicators
                .insert(name.to_owned(), Communicator::default());
        }
        let Some(communicator) = self.communicators.get_mut(name) else {
            return;
        };
        let next = communicator.begun.entry(process).or_default();
        let number = *next;
        *next += 1;
        let instance = communicator.open.entry(number).or_insert_with(|| {
            self.open += 1;
            Instance {
                operation,
                size,
                begins: Vec::new(),
            }
        });
        instance.begins.push((process, rank, time_ns));
        instance.operation = instance.operation.or(operation);
        let is_whole = instance
            .size
            .is_some_and(|size| instance.begins.len() >= size);
        let done = if is_whole {
            communicator.open.remove(&number)
        } else if self.open > MOST_OPEN {
            self.incomplete += 1;
            self.open -= 1;
            communicator.open.pop_first();
            None
        } else {
            None
        };
        if let Some(instance) = done {
            self.open -= 1;
            self.count(name, &instance, window);
        }
    }

    /// Operations whose number of members nothing tells have all that ever began one of the communicator.
    fn finish(&mut self, window: Window) {
        for (name, communicator) in std::mem::take(&mut self.communicators) {
            let members = communicator.begun.len();
            for instance in communicator.open.into_values() {
                if instance.size.is_none() && instance.begins.len() == members {
                    self.count(&name, &instance, window);
                } else {
                    self.incomplete += 1;
                }
            }
        }
    }
}

fn measure(
    opened: &Reader,
    filter: &Query,
    window: Window,
) -> anyhow::Result<(Collectives, ReadSummary)> {
    let definitions = opened.definitions();
    let types = definitions.event_types.values();
    let types = types.filter(|t| t.role == Role::CollectiveBegin && filter.takes_event_type(t.id));
    let types = types.map(|t| {
        let begin = Begin {
            event_type: t.id,
            communicator: definitions.element(t.id, "communicator"),
            operation: definitions.element(t.id, "operation"),
            size: definitions.element(t.id, "size"),
        };
        (t.id, begin)
    });
    let types: FxHashMap<EventTypeId, Begin> = types.collect();
    if types.is_empty() {
        bail!("no event type begins collective operations: nothing has the role collective-begin");
    }
    let places = Places::of(definitions);
    // Operations are counted from the beginning: the k-th of each process belong together.
    let until = Window {
        from_ns: i64::MIN,
        ..window
    };
    let mut gathered = Gathered::default();
    let mut names: FxHashMap<(EventTypeId, i128), String> = FxHashMap::default();
    let outcome = walk(opened, filter, until, &types, |event, begin| {
        let value = begin
            .communicator
            .and_then(|at| event.element(at).as_integer())
            .unwrap_or(-1);
        let name = names
            .entry((begin.event_type, value))
            .or_insert_with(|| communicator_name(definitions, begin, value));
        let place = places.get(event.stream());
        let size = begin.size.and_then(|at| event.element(at).as_integer());
        let size = size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|size| *size != 0);
        let operation = begin
            .operation
            .and_then(|at| event.element(at).as_integer());
        let at = (place.process.get(), place.rank, event.time());
        gathered.begin(name, at, operation, size, window);
    })?;
    gathered.finish(window);
    let is_lost = outcome.losses.iter().any(|loss| {
        let is_collective = |id: EventTypeId| {
            let role = definitions.event_types.get(&id).map(|t| t.role);
            role == Some(Role::CollectiveBegin)
        };
        !loss.cause.is_suppressed() && concerns(loss, filter, until, is_collective)
    });
    let rows = gathered.tallies.into_iter();
    let rows = rows.map(|((operation, communicator), tally)| {
        let ranks = tally.ranks.iter().map(|(rank, (wait_ns, last))| RankRow {
            rank: *rank,
            wait_ns: *wait_ns,
            last: *last,
        });
        OperationRow {
            operation,
            communicator,
            members: tally.members,
            count: tally.count,
            wait_ns: tally.wait_ns,
            mean_imbalance_ns: Some((tally.imbalance_ns / i128::from(tally.count.max(1))) as i64),
            max_imbalance_ns: tally.max_imbalance_ns,
            ranks: ranks.collect(),
            is_uncertain: is_lost,
        }
    });
    let mut collectives: Vec<OperationRow> = rows.collect();
    collectives.sort_by_key(|row| std::cmp::Reverse(row.wait_ns));
    let result = Collectives {
        collectives,
        incomplete: gathered.incomplete,
    };
    Ok((result, outcome))
}

/// Runs the command.
///
/// # Errors
/// If the input cannot be read, has no collective operations, or the output cannot be written.
pub fn run(arguments: &CollectivesArguments, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let (opened, window) = arguments.input.open_window(&arguments.window)?;
    let filter = arguments.filter.query(opened.definitions(), window)?;
    let (found, outcome) = measure(&opened, &filter, window)?;
    warn_of_damage(&opened, &outcome);
    let most_waiting =
        |row: &OperationRow| row.ranks.iter().rev().max_by_key(|r| r.wait_ns).cloned();
    let most_late = |row: &OperationRow| row.ranks.iter().rev().max_by_key(|r| r.last).cloned();
    if arguments.input.json {
        output::json(out, &found)?;
    } else if arguments.csv {
        let columns = [
            "operation",
            "communicator",
            "members",
            "count",
            "wait_ns",
            "mean_imbalance_ns",
            "max_imbalance_ns",
            "is_uncertain",
        ];
        let mut csv = Csv::new(out, &columns)?;
        for row in &found.collectives {
            csv.row(&[
                &row.operation,
                &row.communicator,
                &row.members,
                &row.count,
                &row.wait_ns,
                &Maybe(row.mean_imbalance_ns),
                &row.max_imbalance_ns,
                &row.is_uncertain,
            ])?;
        }
    } else {
        let mut table = Table::new(&[
            ("operation", Align::Left),
            ("communicator", Align::Left),
            ("members", Align::Right),
            ("count", Align::Right),
            ("waiting", Align::Right),
            ("mean imbalance", Align::Right),
            ("max imbalance", Align::Right),
            ("waits most", Align::Left),
            ("last most often", Align::Left),
        ]);
        for row in &found.collectives {
            let mark = if row.is_uncertain { "~" } else { "" };
            let waits =
                most_waiting(row).map(|r| format!("rank {} {}", r.rank, time::duration(r.wait_ns)));
            let late = most_late(row).map(|r| format!("rank {} ({} times)", r.rank, r.last));
            table.row(vec![
                row.operation.clone(),
                safe(&row.communicator),
                row.members.to_string(),
                format!("{mark}{}", row.count),
                format!("{mark}{}", time::duration(row.wait_ns)),
                format!("{mark}{}", super::opt_duration(row.mean_imbalance_ns)),
                format!("{mark}{}", time::duration(row.max_imbalance_ns)),
                waits.unwrap_or_default(),
                late.unwrap_or_default(),
            ]);
        }
        out.write_all(table.render().as_bytes())?;
        if found.incomplete != 0 {
            writeln!(
                out,
                "{} operations were not begun by all members",
                found.incomplete
            )?;
        }
    }
    Ok(Finding::loss(outcome.has_skipped_now))
}
