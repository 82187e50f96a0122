//! Collective operations: who came last, and how long the others waited for it.
//!
//! The k-th begin of a communicator in a process belongs to the k-th in the others. An operation counts when all members that
//! the trace knows have begun it, and the last of them did so in the window. A member waits from its begin to the last one's.
//! Slices gather the begins; they are counted in the order of the trace.

use annals_format::names::element;
use std::collections::BTreeMap;

use annals_format::{
    CollectiveOperation, Definitions, EventTypeId, ObjectId, Reference, Role, StringId,
};
use annals_merger::{Event, Places, Query, ReadSummary, Reader, Result, SliceLength, Window};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::losses::concerns;
use crate::state::{EventState, fold_events};

/// Operations that wait for members, at most.
const MOST_OPEN: usize = 1 << 20;

/// Begins that the first slice gathers before it counts them.
const GATHERED: usize = 1 << 14;

/// Waiting of one rank. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveWait {
    /// The rank.
    pub rank: u32,
    /// How long it waited.
    pub wait_ns: i64,
    /// How often it came last.
    pub last: u64,
}

/// An operation of a communicator. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveRow {
    /// Name of the operation.
    pub operation: String,
    /// Name of the communicator.
    pub communicator: String,
    /// Largest number of members.
    pub members: usize,
    /// How many of them.
    pub count: u64,
    /// Waiting of all ranks.
    pub wait_ns: i64,
    /// Mean time from the first begin to the last.
    pub mean_imbalance_ns: Option<i64>,
    /// Longest time from the first begin to the last.
    pub max_imbalance_ns: i64,
    /// By rank.
    pub ranks: Vec<CollectiveWait>,
    /// Whether a loss may have changed the row.
    pub is_uncertain: bool,
}

/// The collective operations of a window.
#[derive(Clone, Debug, Serialize)]
pub struct Collectives {
    /// By operation and communicator, most waiting first.
    pub collectives: Vec<CollectiveRow>,
    /// Operations that not all members began.
    pub incomplete: u64,
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
struct BeginType {
    communicator: Option<usize>,
    operation: Option<usize>,
    size: Option<usize>,
}

fn communicator_name(
    definitions: &Definitions,
    (event_type, at, value): (EventTypeId, Option<usize>, i128),
) -> String {
    let event_type = definitions.event_types.get(&event_type);
    let element = event_type.and_then(|event_type| event_type.elements.get(at?));
    let number = u32::try_from(value).ok();
    match (element.map(|element| element.reference), number) {
        (Some(Reference::Object), Some(number)) => {
            match definitions.objects.get(&ObjectId::new(number)) {
                Some(object) => definitions.string(object.name).to_owned(),
                None => value.to_string(),
            }
        }
        (Some(Reference::String), Some(number)) => {
            definitions.string(StringId::new(number)).to_owned()
        }
        _ => value.to_string(),
    }
}

/// A begin of an operation.
struct Begin {
    /// Number of its communicator in the slice.
    communicator: u32,
    process: u32,
    rank: u32,
    time_ns: i64,
    operation: Option<i128>,
    size: Option<usize>,
}

/// An operation that began.
struct Instance {
    operation: Option<i128>,
    size: Option<usize>,
    /// Rank and time of each begin.
    begins: Vec<(u32, i64)>,
}

#[derive(Default)]
struct Communicator {
    name: String,
    /// By process, how many operations it began.
    begun: FxHashMap<u32, u64>,
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

/// The counting. Only the first state has it.
#[derive(Default)]
struct Gathered {
    /// Numbers of the communicators, by name.
    numbers: BTreeMap<String, usize>,
    communicators: Vec<Communicator>,
    /// By operation and communicator.
    tallies: FxHashMap<(Option<i128>, usize), Tally>,
    open: usize,
    incomplete: u64,
}

impl Gathered {
    fn communicator(&mut self, name: String) -> usize {
        if let Some(number) = self.numbers.get(&name) {
            return *number;
        }
        self.communicators.push(Communicator {
            name: name.clone(),
            ..Communicator::default()
        });
        let number = self.communicators.len() - 1;
        self.numbers.insert(name, number);
        number
    }

    fn count(&mut self, communicator: usize, instance: &Instance, window: Window) {
        let last = instance.begins.iter().max_by_key(|begin| begin.1);
        let first = instance.begins.iter().map(|begin| begin.1).min();
        let (Some((last_rank, last_ns)), Some(first_ns)) = (last.copied(), first) else {
            return;
        };
        if !window.contains(last_ns) {
            return;
        }
        let tally = self.tallies.entry((instance.operation, communicator));
        let tally = tally.or_default();
        tally.members = tally.members.max(instance.begins.len());
        tally.count += 1;
        let imbalance_ns = last_ns - first_ns;
        tally.imbalance_ns += i128::from(imbalance_ns);
        tally.max_imbalance_ns = tally.max_imbalance_ns.max(imbalance_ns);
        for (rank, begin_ns) in &instance.begins {
            let of_rank = tally.ranks.entry(*rank).or_default();
            of_rank.0 += last_ns - begin_ns;
            tally.wait_ns += last_ns - begin_ns;
        }
        tally.ranks.entry(last_rank).or_default().1 += 1;
    }

    fn begin(&mut self, number: usize, begin: &Begin, window: Window) {
        let communicator = &mut self.communicators[number];
        let next = communicator.begun.entry(begin.process).or_default();
        let place = *next;
        *next += 1;
        let instance = communicator.open.entry(place).or_insert_with(|| {
            self.open += 1;
            Instance {
                operation: begin.operation,
                size: begin.size,
                begins: Vec::with_capacity(begin.size.unwrap_or(0).min(64)),
            }
        });
        instance.begins.push((begin.rank, begin.time_ns));
        instance.operation = instance.operation.or(begin.operation);
        let is_whole = instance
            .size
            .is_some_and(|size| instance.begins.len() >= size);
        let done = if is_whole {
            communicator.open.remove(&place)
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
            self.count(number, &instance, window);
        }
    }

    /// Counts the operations of unknown size that all processes began which ever began one of the communicator.
    fn finish(&mut self, window: Window) {
        for number in 0..self.communicators.len() {
            let communicator = &mut self.communicators[number];
            let members = communicator.begun.len();
            for instance in std::mem::take(&mut communicator.open).into_values() {
                if instance.size.is_none() && instance.begins.len() == members {
                    self.count(number, &instance, window);
                } else {
                    self.incomplete += 1;
                }
            }
        }
    }
}

/// What all threads share.
struct Shared<'a> {
    definitions: &'a Definitions,
    types: FxHashMap<EventTypeId, BeginType>,
    places: Places,
    window: Window,
}

/// The begins of a slice.
struct CollectiveState<'a> {
    shared: &'a Shared<'a>,
    gathered: Option<Gathered>,
    /// Numbers of the communicators, by event type and value of the element.
    numbers: FxHashMap<(EventTypeId, i128), u32>,
    names: Vec<String>,
    begins: Vec<Begin>,
}

impl CollectiveState<'_> {
    fn flush(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            feed(gathered, self.shared.window, &self.names, &self.begins);
            self.begins.clear();
        }
    }
}

fn feed(gathered: &mut Gathered, window: Window, names: &[String], begins: &[Begin]) {
    let names = names.iter();
    let numbers: Vec<usize> = names
        .map(|name| gathered.communicator(name.clone()))
        .collect();
    for begin in begins {
        gathered.begin(numbers[begin.communicator as usize], begin, window);
    }
}

impl EventState for CollectiveState<'_> {
    const SLICES: SliceLength = SliceLength::Short;

    fn add(&mut self, event: &Event<'_>) {
        let shared = self.shared;
        let event_type = event.event_type();
        let Some(begin) = shared.types.get(&event_type) else {
            return;
        };
        let integer = |at: Option<usize>| at.and_then(|at| event.element(at).as_integer());
        let value = integer(begin.communicator).unwrap_or(-1);
        let next = self.names.len() as u32;
        let number = *self.numbers.entry((event_type, value)).or_insert(next);
        if number == next {
            let place = (event_type, begin.communicator, value);
            self.names
                .push(communicator_name(shared.definitions, place));
        }
        let place = shared.places.get(event.stream());
        let size = integer(begin.size).and_then(|size| usize::try_from(size).ok());
        self.begins.push(Begin {
            communicator: number,
            process: place.process.get(),
            rank: place.rank,
            time_ns: event.time(),
            operation: integer(begin.operation),
            size: size.filter(|size| *size != 0),
        });
        if self.gathered.is_some() && self.begins.len() >= GATHERED {
            self.flush();
        }
    }

    fn merge(&mut self, later: Self) {
        self.flush();
        if let Some(gathered) = &mut self.gathered {
            feed(gathered, self.shared.window, &later.names, &later.begins);
        }
    }
}

/// Returns the collective operations of a query, counted from the trace's beginning. `None` if no event type of the query begins
/// collective operations.
///
/// # Errors
/// If the storage fails.
pub fn collectives(reader: &Reader, query: &Query) -> Result<Option<(Collectives, ReadSummary)>> {
    let definitions = reader.definitions();
    let types = definitions.event_types.values();
    let types = types.filter(|t| t.role == Role::CollectiveBegin && query.takes_event_type(t.id));
    let types = types.map(|t| {
        let begin = BeginType {
            communicator: definitions.element(t.id, element::COMMUNICATOR),
            operation: definitions.element(t.id, element::OPERATION),
            size: definitions.element(t.id, element::SIZE),
        };
        (t.id, begin)
    });
    let types: FxHashMap<EventTypeId, BeginType> = types.collect();
    if types.is_empty() {
        return Ok(None);
    }
    let window = query.window();
    // Operations are counted from the beginning: the k-th of each process belong together.
    let until = query.within(Window {
        from_ns: i64::MIN,
        ..window
    });
    let wanted: Vec<EventTypeId> = types.keys().copied().collect();
    let shared = Shared {
        definitions,
        types,
        places: Places::of(definitions),
        window,
    };
    let new = |slice| CollectiveState {
        shared: &shared,
        gathered: (slice == 0).then(Gathered::default),
        numbers: FxHashMap::default(),
        names: Vec::new(),
        begins: Vec::new(),
    };
    let (mut state, summary) = fold_events(reader, &until, wanted, new)?;
    state.flush();
    let mut gathered = state.gathered.unwrap_or_default();
    gathered.finish(window);
    let is_lost = summary.losses.iter().any(|loss| {
        let is_collective = |id: EventTypeId| {
            let role = definitions.event_types.get(&id).map(|t| t.role);
            role == Some(Role::CollectiveBegin)
        };
        !loss.cause.is_suppressed() && concerns(loss, &until, is_collective)
    });
    let rows = gathered.tallies.iter();
    let rows = rows.map(|((operation, communicator), tally)| {
        let ranks = tally.ranks.iter();
        let ranks = ranks.map(|(rank, (wait_ns, last))| CollectiveWait {
            rank: *rank,
            wait_ns: *wait_ns,
            last: *last,
        });
        CollectiveRow {
            operation: operation_name(*operation),
            communicator: gathered.communicators[*communicator].name.clone(),
            members: tally.members,
            count: tally.count,
            wait_ns: tally.wait_ns,
            mean_imbalance_ns: Some((tally.imbalance_ns / i128::from(tally.count.max(1))) as i64),
            max_imbalance_ns: tally.max_imbalance_ns,
            ranks: ranks.collect(),
            is_uncertain: is_lost,
        }
    });
    let mut rows: Vec<CollectiveRow> = rows.collect();
    rows.sort_by(|a, b| {
        let name = |row: &CollectiveRow| (row.operation.clone(), row.communicator.clone());
        (b.wait_ns, name(a)).cmp(&(a.wait_ns, name(b)))
    });
    let found = Collectives {
        collectives: rows,
        incomplete: gathered.incomplete,
    };
    Ok(Some((found, summary)))
}
