//! Collective operations: which process began last, and how long the others waited for it.
//!
//! Begins with equal sequence numbers in a communicator belong to one operation; without such
//! numbers, the k-th begin of a process belongs to the k-th of the others, up to the first loss of
//! begins in the process. An operation counts if all members that the trace knows have begun it,
//! and the last of them did so in the window. A member waits from its begin until the last member's
//! begin. Slices gather the begins, which are then counted in the order of the trace.

use std::collections::BTreeMap;
use std::sync::Mutex;

use annals_format::names::element;
use annals_format::{
    CollectiveOperation, Definitions, EventTypeId, Reference, Role, StreamId, TraceLoss,
};
use annals_merger::{
    Analysis, Event, Pass, Places, Query, ReadSummary, Reader, Result, SliceLength, Window,
};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::communicators::communicator_name;
use crate::losses::concerns;
use crate::mpi_coverage::MpiCoverage;
use crate::waits::{LongestWaits, Wait, WaitCause, location_of};

/// Maximum number of operations that wait for members.
const MOST_OPEN: usize = 1 << 20;

/// Length of the ranges in which persistent operations are numbered, one range for each request
/// (SPEC.md, *Messages and collective operations*).
pub(crate) const RANGE: u64 = 1 << 40;

/// Number of begins that the first slice gathers before it counts them.
const GATHERED: usize = 1 << 16;

/// Waiting of one rank in collective operations. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveWait {
    /// The rank.
    pub rank: u32,
    /// Waiting time of the rank.
    pub wait_ns: i64,
    /// Number of operations that the rank began last.
    pub last: u64,
}

/// An operation of a communicator. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct CollectiveRow {
    /// Name of the operation.
    pub operation: String,
    /// Name of the communicator.
    pub communicator: String,
    /// Largest number of members.
    pub members: usize,
    /// Number of operations.
    pub count: u64,
    /// Waiting time of all ranks. Like the other waits, `None` where the trace lacks calls of MPI.
    pub wait_ns: Option<i64>,
    /// Mean time from the first begin to the last.
    pub mean_imbalance_ns: Option<i64>,
    /// Longest time from the first begin to the last.
    pub max_imbalance_ns: Option<i64>,
    /// Waiting by rank.
    pub ranks: Option<Vec<CollectiveWait>>,
    /// Whether a loss may have changed the row.
    pub is_uncertain: bool,
}

impl CollectiveRow {
    /// Returns the rank for which `of` is the largest, the first of several.
    fn most<K: Ord>(&self, of: impl Fn(&CollectiveWait) -> K) -> Option<&CollectiveWait> {
        self.ranks
            .as_ref()?
            .iter()
            .rev()
            .max_by_key(|wait| of(wait))
    }

    fn most_waiting(&self) -> Option<&CollectiveWait> {
        self.most(|wait| wait.wait_ns)
    }

    fn most_late(&self) -> Option<&CollectiveWait> {
        self.most(|wait| wait.last)
    }
}

crate::columns! {
    CollectiveRow, uncertain is_uncertain, json ranks;
    "operation" Name headed "operation", |row| &row.operation;
    "communicator" Name headed "communicator", |row| &row.communicator;
    "members" Number headed "members", |row| row.members;
    "count" Count marked "count", |row| row.count;
    "wait_ns" Duration marked "waiting", |row| row.wait_ns;
    "mean_imbalance_ns" Duration marked_if_room "mean imbalance", |row| row.mean_imbalance_ns;
    "max_imbalance_ns" Duration marked "max imbalance", |row| row.max_imbalance_ns;
    "most_waiting_rank" Number, |row| row.most_waiting().map(|of| of.rank);
    "" Text headed "waits most", |row| row.most_waiting().map(|of| format!("rank {}", of.rank));
    "most_waiting_ns" Duration if_room "it waits", |row| row.most_waiting().map(|of| of.wait_ns);
    "most_late_rank" Number, |row| row.most_late().map(|of| of.rank);
    "" Text headed "last most often", |row| row.most_late().map(|of| format!("rank {}", of.rank));
    "most_late_count" Count if_room "times", |row| row.most_late().map(|of| of.last);
    "is_uncertain" Flag, |row| row.is_uncertain;
}

/// The collective operations of a window.
#[derive(Clone, Debug, Serialize)]
pub struct Collectives {
    /// By operation and communicator, most waiting first.
    pub collectives: Vec<CollectiveRow>,
    /// The longest waits of single members, the longest first. `None` where the trace lacks calls of MPI.
    pub longest_waits: Option<Vec<Wait>>,
    /// What of MPI the trace does not have.
    #[serde(skip_serializing_if = "MpiCoverage::is_whole")]
    pub mpi: MpiCoverage,
    /// Operations that not all members began.
    pub incomplete: u64,
    /// The last of these, of each communicator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_incomplete: Vec<IncompleteCollective>,
}

/// An operation that not all members of its communicator began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct IncompleteCollective {
    /// Name of the operation.
    pub operation: String,
    /// Name of the communicator.
    pub communicator: String,
    /// Number of the operation among those of the communicator, from 1.
    pub number: u64,
    /// The ranks that began it, sorted.
    pub begun: Vec<u32>,
    /// The ranks that did not, of those that began another one of the communicator, sorted.
    pub missing: Vec<u32>,
    /// How many more members did not: they began none that is known.
    pub others: u64,
}

/// A member's begin of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveBegin {
    /// Number of the process among those of the communicator, in the order of their first begins.
    pub member: u32,
    /// The stream with the event.
    pub stream: StreamId,
    /// Trace time, nanoseconds.
    pub time_ns: i64,
}

/// A collective operation that all members have begun.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveInstance<'a> {
    /// Code of the operation, as [`CollectiveOperation`] defines it.
    pub operation: Option<i128>,
    /// Name of the communicator.
    pub communicator: &'a str,
    /// The begins of its members, at least one.
    pub begins: &'a [CollectiveBegin],
    /// The last of the begins: the others wait for it.
    pub last: CollectiveBegin,
}

impl CollectiveInstance<'_> {
    /// Returns the name of the operation.
    pub fn operation_name(&self) -> String {
        operation_name(self.operation)
    }

    /// Returns a member's wait for the last one, from its own begin on, with names instead of
    /// numbers.
    pub fn wait(&self, begin: &CollectiveBegin, definitions: &Definitions) -> Wait {
        Wait {
            rank: definitions.rank_of_stream(begin.stream),
            location: location_of(definitions, begin.stream),
            from_ns: begin.time_ns,
            wait_ns: self.last.time_ns - begin.time_ns,
            for_rank: definitions.rank_of_stream(self.last.stream),
            cause: WaitCause::Collective {
                operation: operation_name(self.operation),
                communicator: self.communicator.to_owned(),
            },
        }
    }
}

/// Returns the name of the operation with a code.
pub fn operation_name(operation: Option<i128>) -> String {
    let code = operation.and_then(|code| u8::try_from(code).ok());
    match (operation, code.and_then(CollectiveOperation::from_code)) {
        (_, Some(operation)) => operation.name().to_owned(),
        (Some(number), None) => format!("operation {number}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Indices of the elements of an event type.
#[derive(Clone, Copy)]
struct BeginType {
    communicator: Option<usize>,
    operation: Option<usize>,
    size: Option<usize>,
    sequence: Option<usize>,
}

/// Properties that several begins of a slice share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct BeginKey {
    event_type: EventTypeId,
    /// Value of the element that names the communicator.
    communicator: i128,
    stream: StreamId,
    operation: Option<i128>,
    size: Option<usize>,
}

/// A begin of an operation.
struct Begin {
    /// Number of its [`BeginKey`] in the slice.
    member: u32,
    /// Number of the operation among those of the communicator. `None` means that the event has
    /// none.
    sequence: Option<u64>,
    time_ns: i64,
}

/// An operation that at least one process has begun.
struct Instance {
    operation: Option<i128>,
    size: Option<usize>,
    begins: Vec<CollectiveBegin>,
}

#[derive(Default)]
struct Communicator {
    name: String,
    /// Numbers, by process of the trace, of the processes that began an operation.
    processes: FxHashMap<u32, u32>,
    /// By process, its rank and the number of its next operation without a sequence number.
    begun: Vec<(u32, u64)>,
    /// Operations that not all members have begun, by number.
    open: BTreeMap<u64, Instance>,
    /// By range, the number below which operations were dropped. Operations of persistent requests
    /// are in ranges above [`RANGE`].
    oldest: FxHashMap<u64, u64>,
}

impl Communicator {
    fn process(&mut self, process: u32, rank: u32) -> u32 {
        let next = self.begun.len() as u32;
        let number = *self.processes.entry(process).or_insert(next);
        if number == next {
            self.begun.push((rank, 0));
        }
        number
    }

    /// Describes an operation that not all members have begun.
    fn incomplete(&self, place: u64, instance: &Instance) -> IncompleteCollective {
        let has_begun = |number: usize| {
            let mut begins = instance.begins.iter();
            begins.any(|begin| begin.member as usize == number)
        };
        let ranks = |is_begun: bool| {
            let each = self.begun.iter().enumerate();
            let each = each.filter(|(number, _)| has_begun(*number) == is_begun);
            let mut ranks: Vec<u32> = each.map(|(_, (rank, _))| *rank).collect();
            ranks.sort_unstable();
            ranks
        };
        let size = instance.size.unwrap_or(0).max(self.begun.len());
        IncompleteCollective {
            operation: operation_name(instance.operation),
            communicator: self.name.clone(),
            number: place % RANGE + 1,
            begun: ranks(true),
            missing: ranks(false),
            others: (size - self.begun.len()) as u64,
        }
    }

    /// Drops the open operation with the smallest number.
    fn give_up_oldest(&mut self) {
        if let Some((number, _)) = self.open.pop_first() {
            self.oldest.insert(number / RANGE, number + 1);
        }
    }
}

/// A process's part in the operations of a row.
#[derive(Clone, Copy, Default)]
struct ProcessPart {
    /// Number of operations in which it took part.
    count: u64,
    wait_ns: i64,
    /// Number of operations that it began last.
    last: u64,
}

#[derive(Default)]
struct Tally {
    members: usize,
    count: u64,
    wait_ns: i64,
    imbalance_ns: i128,
    max_imbalance_ns: i64,
    /// By process of the communicator.
    parts: Vec<ProcessPart>,
}

/// Counts of operations in progress. Only the first state has them.
struct Gathered<V> {
    /// Function that is called with each operation of the window.
    visit: V,
    /// Numbers of the communicators, by name.
    numbers: FxHashMap<String, usize>,
    communicators: Vec<Communicator>,
    /// Tallies by operation and communicator.
    tallies: FxHashMap<(Option<i128>, usize), Tally>,
    open: usize,
    /// Processes with a begin that may be lost. Their later begins without sequence numbers cannot
    /// be counted.
    lossy: FxHashSet<u32>,
    incomplete: u64,
    last_incomplete: Vec<IncompleteCollective>,
    /// Empty vectors for reuse.
    spare: Vec<Vec<CollectiveBegin>>,
}

impl<V: FnMut(&CollectiveInstance<'_>)> Gathered<V> {
    fn new(visit: V) -> Self {
        Self {
            visit,
            numbers: FxHashMap::default(),
            communicators: Vec::new(),
            tallies: FxHashMap::default(),
            open: 0,
            lossy: FxHashSet::default(),
            incomplete: 0,
            last_incomplete: Vec::new(),
            spare: Vec::new(),
        }
    }

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

    fn count(&mut self, communicator: usize, instance: &Instance, query: &Query) {
        let window = query.window();
        let last = instance.begins.iter().max_by_key(|begin| begin.time_ns);
        let first = instance.begins.iter().map(|begin| begin.time_ns).min();
        let (Some(last), Some(first_ns)) = (last.copied(), first) else {
            return;
        };
        let last_ns = last.time_ns;
        let mut begins = instance.begins.iter();
        if !window.contains(last_ns) || !begins.any(|begin| query.takes_stream(begin.stream)) {
            return;
        }
        (self.visit)(&CollectiveInstance {
            operation: instance.operation,
            communicator: &self.communicators[communicator].name,
            begins: &instance.begins,
            last,
        });
        let tally = self.tallies.entry((instance.operation, communicator));
        let tally = tally.or_default();
        let processes = self.communicators[communicator].begun.len();
        tally.parts.resize(processes, ProcessPart::default());
        tally.members = tally.members.max(instance.begins.len());
        tally.count += 1;
        let imbalance_ns = last_ns - first_ns;
        tally.imbalance_ns += i128::from(imbalance_ns);
        tally.max_imbalance_ns = tally.max_imbalance_ns.max(imbalance_ns);
        for begin in &instance.begins {
            let part = &mut tally.parts[begin.member as usize];
            part.count += 1;
            part.wait_ns += last_ns - begin.time_ns;
            tally.wait_ns += last_ns - begin.time_ns;
        }
        tally.parts[last.member as usize].last += 1;
    }

    /// Adds the next begin of a process of a communicator, by their numbers.
    fn begin(
        &mut self,
        number: usize,
        process: u32,
        member: &BeginKey,
        begin: &Begin,
        query: &Query,
    ) {
        let time_ns = begin.time_ns;
        let communicator = &mut self.communicators[number];
        let (_, next) = &mut communicator.begun[process as usize];
        let place = begin.sequence.unwrap_or(*next);
        *next = place.saturating_add(1);
        let oldest = communicator.oldest.get(&(place / RANGE));
        if oldest.is_some_and(|oldest| place < *oldest) {
            // Its operation was dropped.
            return;
        }
        let instance = communicator.open.entry(place).or_insert_with(|| {
            self.open += 1;
            Instance {
                operation: member.operation,
                size: member.size,
                begins: self.spare.pop().unwrap_or_default(),
            }
        });
        instance.begins.push(CollectiveBegin {
            member: process,
            stream: member.stream,
            time_ns,
        });
        instance.operation = instance.operation.or(member.operation);
        let is_whole = instance
            .size
            .is_some_and(|size| instance.begins.len() >= size);
        if is_whole {
            if let Some(mut instance) = communicator.open.remove(&place) {
                self.open -= 1;
                self.count(number, &instance, query);
                instance.begins.clear();
                self.spare.push(instance.begins);
            }
        } else if self.open > MOST_OPEN {
            communicator.give_up_oldest();
            self.open -= 1;
            self.incomplete += 1;
        }
    }

    /// Counts the operations of unknown size that were begun by all processes that ever began one
    /// of the communicator.
    fn finish(&mut self, query: &Query) {
        for number in 0..self.communicators.len() {
            let communicator = &mut self.communicators[number];
            let members = communicator.begun.len();
            let mut last = None;
            for (place, instance) in std::mem::take(&mut communicator.open) {
                if instance.size.is_none() && instance.begins.len() == members {
                    self.count(number, &instance, query);
                } else {
                    self.incomplete += 1;
                    last = Some((place, instance));
                }
            }
            if let Some((place, instance)) = last {
                let row = self.communicators[number].incomplete(place, &instance);
                self.last_incomplete.push(row);
            }
        }
    }

    fn feed(&mut self, shared: &Shared<'_>, gathered: &SliceBegins) {
        let SliceBegins {
            members,
            begins,
            losses,
            ..
        } = gathered;
        let mut losses = losses.iter().peekable();
        // Many members belong to one communicator.
        let mut known: FxHashMap<(EventTypeId, i128), usize> = FxHashMap::default();
        let places = members.iter().map(|member| {
            let key = (member.event_type, member.communicator);
            let communicator = *known
                .entry(key)
                .or_insert_with(|| self.communicator(shared.communicator_name(member)));
            let place = shared.places.get(member.stream);
            let process = self.communicators[communicator].process(place.process.get(), place.rank);
            (communicator, process, place.process.get())
        });
        let places: Vec<(usize, u32, u32)> = places.collect();
        for (number, begin) in begins.iter().enumerate() {
            while let Some((_, process)) = losses.next_if(|loss| loss.0 <= number) {
                self.lossy.insert(*process);
            }
            let member = begin.member as usize;
            let (communicator, process, of_trace) = places[member];
            if begin.sequence.is_none() && self.lossy.contains(&of_trace) {
                continue;
            }
            self.begin(communicator, process, &members[member], begin, shared.query);
        }
        self.lossy.extend(losses.map(|(_, process)| process));
    }
}

/// Data that all threads share.
struct Shared<'a> {
    definitions: &'a Definitions,
    types: FxHashMap<EventTypeId, BeginType>,
    places: Places,
    query: &'a Query,
}

impl Shared<'_> {
    /// Returns the name of a member's communicator.
    fn communicator_name(&self, member: &BeginKey) -> String {
        let (definitions, value) = (self.definitions, member.communicator);
        let event_type = definitions.event_types.get(&member.event_type);
        let at = self.types[&member.event_type].communicator;
        let element = event_type.and_then(|event_type| event_type.elements.get(at?));
        let reference = element.map_or(Reference::None, |element| element.reference);
        communicator_name(definitions, reference, value)
    }
}

/// The begins of a slice, and the losses between them.
#[derive(Default)]
struct SliceBegins {
    numbers: FxHashMap<BeginKey, u32>,
    members: Vec<BeginKey>,
    begins: Vec<Begin>,
    /// Losses: number of the begin after the loss, and process.
    losses: Vec<(usize, u32)>,
}

impl SliceBegins {
    fn clear(&mut self) {
        self.numbers.clear();
        self.members.clear();
        self.begins.clear();
        self.losses.clear();
    }
}

/// State of a thread that gathers begins.
struct CollectiveState<'a, V> {
    shared: &'a Shared<'a>,
    gathered: Option<Gathered<V>>,
    slice: SliceBegins,
}

impl<V: FnMut(&CollectiveInstance<'_>)> CollectiveState<'_, V> {
    fn flush(&mut self) {
        if let Some(gathered) = &mut self.gathered {
            gathered.feed(self.shared, &self.slice);
            self.slice.clear();
        }
    }
}

impl<V: FnMut(&CollectiveInstance<'_>) + Send> Analysis for CollectiveState<'_, V> {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Short;

    fn event(&mut self, event: &Event<'_>) {
        let event_type = event.event_type();
        let Some(begin) = self.shared.types.get(&event_type) else {
            return;
        };
        let integer = |at: Option<usize>| at.and_then(|at| event.element(at).as_integer());
        let size = integer(begin.size).and_then(|size| usize::try_from(size).ok());
        let member = BeginKey {
            event_type,
            communicator: integer(begin.communicator).unwrap_or(-1),
            stream: event.stream(),
            operation: integer(begin.operation),
            size: size.filter(|size| *size != 0),
        };
        let slice = &mut self.slice;
        let next = slice.members.len() as u32;
        let number = *slice.numbers.entry(member).or_insert(next);
        if number == next {
            slice.members.push(member);
        }
        let sequence = integer(begin.sequence);
        slice.begins.push(Begin {
            member: number,
            sequence: sequence.and_then(|sequence| u64::try_from(sequence).ok()),
            time_ns: event.time(),
        });
        if self.gathered.is_some() && self.slice.begins.len() >= GATHERED {
            self.flush();
        }
    }

    fn loss(&mut self, loss: &TraceLoss) {
        let is_begin = |id: EventTypeId| self.shared.types.contains_key(&id);
        if concerns(loss, &Query::new(), is_begin) {
            let process = self.shared.places.get(loss.stream).process.get();
            self.slice.losses.push((self.slice.begins.len(), process));
        }
    }

    fn merge(&mut self, later: Self) {
        self.flush();
        if let Some(gathered) = &mut self.gathered {
            gathered.feed(self.shared, &later.slice);
        }
    }
}

impl<'a> Shared<'a> {
    /// `None` if no event type of the query begins collective operations.
    fn of(definitions: &'a Definitions, query: &'a Query) -> Option<Self> {
        let types = definitions.event_types.values();
        let types =
            types.filter(|t| t.role == Role::CollectiveBegin && query.takes_event_type(t.id));
        let types = types.map(|t| {
            let begin = BeginType {
                communicator: definitions.element(t.id, element::COMMUNICATOR),
                operation: definitions.element(t.id, element::OPERATION),
                size: definitions.element(t.id, element::SIZE),
                sequence: definitions.element(t.id, element::SEQUENCE),
            };
            (t.id, begin)
        });
        let types: FxHashMap<EventTypeId, BeginType> = types.collect();
        (!types.is_empty()).then(|| Self {
            definitions,
            types,
            places: Places::of(definitions),
            query,
        })
    }
}

/// Counts the collective operations of the query's window, from the trace's beginning on. Returns
/// `None` if no event type of the query begins collective operations.
fn gather<V: FnMut(&CollectiveInstance<'_>) + Send>(
    reader: &Reader,
    query: &Query,
    visit: V,
) -> Result<Option<(Gathered<V>, ReadSummary)>> {
    let Some(shared) = Shared::of(reader.definitions(), query) else {
        return Ok(None);
    };
    let wanted: Vec<EventTypeId> = shared.types.keys().copied().collect();
    let visit = Mutex::new(Some(visit));
    let take_visit = |slice| match visit.lock() {
        Ok(mut visit) if slice == 0 => visit.take(),
        _ => None,
    };
    let new = |slice| CollectiveState {
        shared: &shared,
        gathered: take_visit(slice).map(Gathered::new),
        slice: SliceBegins::default(),
    };
    let (mut state, summary) = reader.run(&from_start(query).of_event_types(wanted), new)?;
    state.flush();
    let gathered = state.gathered.map(|mut gathered| {
        gathered.finish(query);
        gathered
    });
    Ok(gathered.map(|gathered| (gathered, summary)))
}

/// Returns the query for counting: everything from the trace's start to the end of the query's
/// window. Members of ranks that are not chosen count, too.
fn from_start(query: &Query) -> Query {
    Query::new().within(Window {
        from_ns: i64::MIN,
        ..query.window()
    })
}

/// Calls `visit` with each collective operation that all members have begun, the last of them in the query's window. Returns
/// `None` if no event type of the query begins collective operations.
///
/// # Errors
/// If the storage fails.
pub fn for_each_collective<V: FnMut(&CollectiveInstance<'_>) + Send>(
    reader: &Reader,
    query: &Query,
    visit: V,
) -> Result<Option<ReadSummary>> {
    let found = gather(reader, query, visit)?;
    Ok(found.map(|(_, summary)| summary))
}

/// Returns when the first loss began that may have changed which operations are found up to the end of the query's window.
pub fn first_loss_of_collectives(
    definitions: &Definitions,
    summary: &ReadSummary,
    query: &Query,
) -> Option<i64> {
    let until = from_start(query);
    let is_collective = |id: EventTypeId| {
        let role = definitions.event_types.get(&id).map(|t| t.role);
        role == Some(Role::CollectiveBegin)
    };
    let losses = summary.losses.iter();
    let losses =
        losses.filter(|loss| !loss.cause.is_suppressed() && concerns(loss, &until, is_collective));
    losses.map(|loss| loss.from_ns).min()
}

/// Returns the collective operations of a query, counted from the trace's beginning.
///
/// Returns `None` if no event type of the query begins collective operations.
///
/// # Errors
/// If the storage fails.
pub fn collectives(reader: &Reader, query: &Query) -> Result<Option<(Collectives, ReadSummary)>> {
    let definitions = reader.definitions();
    let mut longest = LongestWaits::default();
    let visit = |instance: &CollectiveInstance<'_>| {
        for begin in instance.begins {
            let wait_ns = instance.last.time_ns - begin.time_ns;
            longest.add(wait_ns, || instance.wait(begin, definitions));
        }
    };
    let Some((gathered, summary)) = gather(reader, query, visit)? else {
        return Ok(None);
    };
    let mpi = MpiCoverage::of(definitions);
    let are_known = mpi.knows_waits();
    let is_lost = first_loss_of_collectives(definitions, &summary, query).is_some();
    let rows = gathered.tallies.iter();
    let rows = rows.map(|((operation, communicator), tally)| {
        let communicator = &gathered.communicators[*communicator];
        // Processes of several runs may have the same rank.
        let mut ranks: BTreeMap<u32, CollectiveWait> = BTreeMap::new();
        for ((rank, _), part) in communicator.begun.iter().zip(&tally.parts) {
            if part.count == 0 {
                continue;
            }
            let of_rank = ranks.entry(*rank).or_insert(CollectiveWait {
                rank: *rank,
                wait_ns: 0,
                last: 0,
            });
            of_rank.wait_ns += part.wait_ns;
            of_rank.last += part.last;
        }
        CollectiveRow {
            operation: operation_name(*operation),
            communicator: communicator.name.clone(),
            members: tally.members,
            count: tally.count,
            wait_ns: are_known.then_some(tally.wait_ns),
            mean_imbalance_ns: are_known
                .then(|| (tally.imbalance_ns / i128::from(tally.count.max(1))) as i64),
            max_imbalance_ns: are_known.then_some(tally.max_imbalance_ns),
            ranks: are_known.then(|| ranks.into_values().collect()),
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
        last_incomplete: gathered.last_incomplete,
        longest_waits: are_known.then(|| longest.into_sorted()),
        mpi,
    };
    Ok(Some((found, summary)))
}
