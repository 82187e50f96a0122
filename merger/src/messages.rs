//! Events of messages and collective operations. They are extracted from a chunk of the trace by
//! the roles of its event types, so that the matching reads no other events.

pub(crate) mod across;
pub(crate) mod causality;
pub(crate) mod collectives;
pub(crate) mod matching;
pub(crate) mod pairs;
pub(crate) mod peers;
pub(crate) mod repair;

use annals_format::names::element;
use std::collections::BTreeMap;

use annals_format::{
    CollectiveOperation, Column, Definitions, Ended, EventPlace, EventType, EventTypeId, LossPoint,
    Reference, Role, StreamId, StreamTotals, TraceChunk, TraceLoss, TypeColumns, TypeTotals,
};
use rustc_hash::FxHashMap;

use crate::messages::across::AcrossWorlds;
use crate::messages::collectives::Carry;
use crate::messages::matching::Matcher;

/// A process that is not among the inputs, or no process at all.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Any process, as the peer of a receive-start.
pub(crate) const ANYBODY: u32 = u32::MAX - 1;
/// A process that is not known because several recordings have its rank.
pub(crate) const SEVERAL: u32 = u32::MAX - 2;
/// A missing `request`, `sequence` or `communicator`.
pub(crate) const NONE: u64 = u64::MAX;
/// Any tag, in a receive-start. In other events, no tag is negative.
pub(crate) const ANY_TAG: i64 = -1;

/// Number of shards into which the matching is divided. The limits of messages in flight are those of each shard, so
/// results may depend on it (SPEC.md, *Messages of the overview*).
pub(crate) const SHARDS: usize = 16;

/// Number of ranks of a world that are looked up by index. Larger ranks are in a hash map.
const DENSE_RANKS: usize = 1 << 20;
/// Number of worlds whose ranks are looked up by index.
const DENSE_WORLDS: usize = 8;

/// A step in the life of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PointToPointKind {
    Send,
    Receive,
    ReceiveStart,
    /// The end of a started receive that takes no message.
    Cancel,
    /// The withdrawal of a recorded send whose message was not sent.
    Unsent,
}

impl PointToPointKind {
    /// Returns whether it is an event of the process that sends.
    const fn is_of_sender(self) -> bool {
        matches!(self, Self::Send | Self::Unsent)
    }
}

/// The order that a collective operation imposes on its begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Semantics {
    AllToAll,
    OneToAll,
    AllToOne,
    Prefix,
    Nothing,
}

/// Number of bytes that a process sends and receives in a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moved {
    /// The event has no number of bytes.
    Unknown,
    /// Sum of the bytes sent and received.
    Total(u64),
    /// Bytes sent, and bytes received.
    Apart(u64, u64),
}

impl Moved {
    const fn is_nothing(self) -> bool {
        matches!(self, Self::Total(0) | Self::Apart(0, 0))
    }
}

impl Semantics {
    /// Returns the order that an operation imposes in a process that moves these bytes.
    ///
    /// For operations with a count for each process, only both sums show whether this process takes
    /// part.
    const fn of(operation: Option<CollectiveOperation>, moved: Moved) -> Self {
        use CollectiveOperation as Op;
        let Some(operation) = operation else {
            return Self::Nothing;
        };
        let is_apart = matches!(moved, Moved::Apart(..));
        match operation {
            Op::Barrier => Self::AllToAll,
            _ if moved.is_nothing() => Self::Nothing,
            Op::Allgather
            | Op::Alltoall
            | Op::Allreduce
            | Op::ReduceScatter
            | Op::ReduceScatterBlock => Self::AllToAll,
            Op::Allgatherv if is_apart => Self::AllToAll,
            Op::Broadcast | Op::Scatter => Self::OneToAll,
            Op::Scatterv if is_apart => Self::OneToAll,
            Op::Gather | Op::Reduce => Self::AllToOne,
            Op::Gatherv if is_apart => Self::AllToOne,
            Op::Scan | Op::Exscan => Self::Prefix,
            Op::Allgatherv | Op::Scatterv | Op::Gatherv | Op::Alltoallv | Op::Alltoallw => {
                Self::Nothing
            }
        }
    }
}

/// Returns whether others wait for the process of a begin, or the process of an end waits for
/// others.
const fn takes_part(is_begin: bool, operation: Option<CollectiveOperation>, moved: Moved) -> bool {
    match (operation, moved) {
        // A barrier moves no bytes.
        (Some(CollectiveOperation::Barrier), _) => true,
        (_, Moved::Apart(sent, received)) => {
            if is_begin {
                sent != 0
            } else {
                received != 0
            }
        }
        _ => true,
    }
}

/// One event of a message or a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MessageEvent {
    pub(crate) time_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) request: u64,
    pub(crate) process: u32,
    pub(crate) clock: u32,
    pub(crate) content: MessageContent,
}

impl MessageEvent {
    pub(crate) const fn has_request(&self) -> bool {
        self.request != NONE
    }

    /// Returns what a matcher keeps of the event. `number` is its number among the message events of the trace.
    pub(crate) const fn mark<D: Copy>(&self, number: u64, detail: D) -> Mark<D> {
        Mark {
            number,
            time_ns: self.time_ns,
            process: self.process,
            clock: self.clock,
            detail,
        }
    }
}

/// The content of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum MessageContent {
    PointToPoint(PointToPoint),
    Collective(Collective),
}

/// The content of an event of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PointToPoint {
    pub(crate) tag: i64,
    pub(crate) sequence: u64,
    /// The other process.
    pub(crate) peer: u32,
    /// The thread, as the low 16 bits of the location's number. Rarely, two threads have the same
    /// value.
    pub(crate) thread: u16,
    pub(crate) kind: PointToPointKind,
}

impl PointToPoint {
    /// Returns the process that receives the message of an event with this content.
    const fn receiver(&self, event: &MessageEvent) -> u32 {
        if self.kind.is_of_sender() {
            self.peer
        } else {
            event.process
        }
    }
}

/// The content of a begin or an end of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Collective {
    /// Place of the process in the communicator. A negative value means that it is not known.
    pub(crate) place: i64,
    /// Number of processes. 0 means that it is not known.
    pub(crate) size: u32,
    /// Number of the operation among those of the communicator.
    pub(crate) sequence: u64,
    pub(crate) root: u32,
    /// Code of the operation.
    pub(crate) operation: u16,
    pub(crate) is_begin: bool,
    pub(crate) semantics: Semantics,
    /// Whether the process of a begin sends, or the process of an end receives. Only such an end
    /// waits, and only for such begins.
    pub(crate) takes_part: bool,
}

/// One event of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark<D = ()> {
    /// Number of the event among the message events of the trace.
    pub(crate) number: u64,
    pub(crate) time_ns: i64,
    pub(crate) process: u32,
    pub(crate) clock: u32,
    /// Data of the event that the caller of the matcher needs.
    pub(crate) detail: D,
}

/// Kinds of a process's events that may be missing because of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Lost {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
    pub(crate) collectives: bool,
}

impl Lost {
    pub(crate) const ALL: Self = Self {
        sends: true,
        receives: true,
        collectives: true,
    };

    pub(crate) const fn is_any(self) -> bool {
        self.sends || self.receives || self.collectives
    }

    pub(crate) const fn add(&mut self, more: Self) {
        self.sends |= more.sends;
        self.receives |= more.receives;
        self.collectives |= more.collectives;
    }

    const fn of(plan: Option<TypeKind>) -> Self {
        let (sends, receives, collectives) = match plan {
            Some(TypeKind::PointToPoint(PointToPointKind::Send | PointToPointKind::Unsent)) => {
                (true, false, false)
            }
            Some(TypeKind::PointToPoint(_)) => (false, true, false),
            Some(TypeKind::Collective { .. }) => (false, false, true),
            None => (false, false, false),
        };
        Self {
            sends,
            receives,
            collectives,
        }
    }
}

/// The messages of a chunk, in its order.
#[derive(Debug, Default)]
pub(crate) struct MessageBatch<D = ()> {
    pub(crate) events: Vec<MessageEvent>,
    /// Losses that may contain message events: index of the event after the loss, process, and
    /// kinds of events.
    pub(crate) losses: Vec<(usize, u32, Lost)>,
    /// The detail for the [`Mark`] of each event. If one is missing, the default is used.
    pub(crate) details: Vec<D>,
}

/// An event of a message in its chunk.
pub(crate) struct EventColumns<'a> {
    plan: &'a TypePlan,
    columns: &'a [Column],
    ordinal: usize,
    pub(crate) stream: StreamId,
}

/// Which side of a message an event is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventRole {
    Send,
    Receive,
}

impl EventColumns<'_> {
    /// Returns the element `bytes`, if the event has it.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let value = self.columns.get(self.plan.bytes?)?.integer(self.ordinal)?;
        u64::try_from(value).ok()
    }

    /// Returns which side it is. `None` if it is neither.
    pub(crate) const fn role(&self) -> Option<EventRole> {
        match self.plan.kind {
            TypeKind::PointToPoint(PointToPointKind::Send) => Some(EventRole::Send),
            TypeKind::PointToPoint(PointToPointKind::Receive) => Some(EventRole::Receive),
            _ => None,
        }
    }
}

/// What losses of a trace may have had of messages.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct MessageLosses {
    /// By stream, the kinds of events that a loss without an event type may have had. Of other streams it may have had all.
    pub(crate) carries: BTreeMap<StreamId, Lost>,
    /// Kinds of events that were suppressed at unknown times.
    pub(crate) suppressed: Vec<(StreamId, Lost)>,
}

impl MessageLosses {
    /// Returns what the losses of a trace with these totals may have had.
    pub(crate) fn of(
        definitions: &Definitions,
        totals: &[StreamTotals],
        losses: &[TraceLoss],
    ) -> Self {
        let of_streams = totals.iter().map(|totals| {
            let raised = totals.rows.iter().filter(|row| row.raised != 0);
            let is_vague = |row: &TypeTotals| {
                row.raised_is_lower_bound || row.event_type == annals_format::ANY_EVENT_TYPE
            };
            let lost = if totals.rows.iter().any(is_vague) {
                Lost::ALL
            } else {
                carried(definitions, raised.map(|row| row.event_type))
            };
            (totals.stream, lost)
        });
        let carries = of_streams.collect();
        // Events that sampling leaves out are counted, without an interval.
        let mut known: FxHashMap<(StreamId, EventTypeId), u64> = FxHashMap::default();
        for loss in losses.iter().filter(|loss| loss.cause.is_suppressed()) {
            if let Some(event_type) = loss.event_type {
                *known.entry((loss.stream, event_type)).or_default() += loss.count;
            }
        }
        let suppressed = totals.iter().filter_map(|of_stream| {
            let stream = of_stream.stream;
            let sampled = of_stream.rows.iter().filter(|row| {
                let known = known.get(&(stream, row.event_type)).copied();
                row.suppressed > known.unwrap_or(0)
            });
            let lost = carried(definitions, sampled.map(|row| row.event_type));
            lost.is_any().then_some((stream, lost))
        });
        Self {
            suppressed: suppressed.collect(),
            carries,
        }
    }

    /// Returns whether messages are matched as with other such losses in a trace with these losses.
    pub(crate) fn agrees(&self, other: &Self, losses: &[TraceLoss]) -> bool {
        let of = |all: &Self, stream| all.carries.get(&stream).copied().unwrap_or(Lost::ALL);
        let mut vague = losses.iter().filter(|loss| loss.event_type.is_none());
        self.suppressed == other.suppressed
            && vague.all(|loss| of(self, loss.stream) == of(other, loss.stream))
    }
}

fn is_dense(mut ids: impl Iterator<Item = usize>) -> bool {
    let mut next = 0..;
    ids.all(|id| next.next() == Some(id))
}

/// The content of all events of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TypeKind {
    PointToPoint(PointToPointKind),
    Collective { is_begin: bool },
}

impl TypeKind {
    fn of(definitions: &Definitions, event_type: &EventType) -> Option<Self> {
        if definitions.is_wait(event_type.id) {
            return None;
        }
        Some(match event_type.role {
            Role::Send => Self::PointToPoint(PointToPointKind::Send),
            Role::Receive => Self::PointToPoint(PointToPointKind::Receive),
            Role::ReceiveStart => Self::PointToPoint(PointToPointKind::ReceiveStart),
            Role::Cancel => Self::PointToPoint(PointToPointKind::Cancel),
            Role::CollectiveBegin => Self::Collective { is_begin: true },
            Role::CollectiveEnd => Self::Collective { is_begin: false },
            _ => return None,
        })
    }
}

/// Indices of the elements of an event type of the trace that the matching needs.
#[derive(Clone, Debug)]
struct TypePlan {
    kind: TypeKind,
    communicator: Option<(usize, Reference)>,
    /// The peer; for a collective operation, the root.
    peer: Option<usize>,
    tag: Option<usize>,
    place: Option<usize>,
    request: Option<usize>,
    sequence: Option<usize>,
    size: Option<usize>,
    operation: Option<usize>,
    bytes: Option<usize>,
    bytes_sent: Option<usize>,
    bytes_received: Option<usize>,
}

impl TypePlan {
    const fn is_point_to_point(&self) -> bool {
        matches!(self.kind, TypeKind::PointToPoint(_))
    }

    fn of(definitions: &Definitions, event_type: &EventType) -> Option<Self> {
        let place = |name: &str| {
            let mut elements = event_type.elements.iter();
            elements.position(|element| definitions.string(element.name) == name)
        };
        let kind = match TypeKind::of(definitions, event_type)? {
            TypeKind::PointToPoint(PointToPointKind::Cancel) if place(element::PEER).is_some() => {
                TypeKind::PointToPoint(PointToPointKind::Unsent)
            }
            kind => kind,
        };
        let is_collective = matches!(kind, TypeKind::Collective { .. });
        let communicator = place(element::COMMUNICATOR);
        Some(Self {
            kind,
            communicator: communicator.map(|place| (place, event_type.elements[place].reference)),
            peer: place(if is_collective {
                element::ROOT
            } else {
                element::PEER
            }),
            tag: place(element::TAG),
            place: place(element::PLACE),
            request: place(element::REQUEST),
            sequence: place(element::SEQUENCE),
            size: place(element::SIZE),
            operation: place(element::OPERATION),
            bytes: place(element::BYTES),
            bytes_sent: place(element::BYTES_SENT),
            bytes_received: place(element::BYTES_RECEIVED),
        })
    }
}

/// Process, clock and thread of the events of a stream.
#[derive(Clone, Copy, Debug)]
struct StreamPlace {
    process: u32,
    clock: u32,
    thread: u16,
    /// Kinds of events that may be missing because of a loss without an event type.
    lost: Lost,
}

/// Extracts messages from chunks. All threads share it.
#[derive(Debug)]
pub(crate) struct Extractor {
    /// Plans by event type of the trace. `None` means that its events are not messages.
    types: Vec<Option<TypePlan>>,
    /// Places by stream.
    streams: Vec<StreamPlace>,
    /// World of each process. Numbers have a meaning only within a world.
    world_of: Vec<usize>,
    /// Processes by world and rank in it.
    ranks: Vec<Vec<u32>>,
    far_ranks: FxHashMap<(usize, u32), u32>,
    /// Numbers of communicators by object.
    objects: Vec<u64>,
    across: AcrossWorlds,
    /// Kinds of events that were suppressed at unknown times, by process. They cannot be matched by
    /// counting.
    suppressed: Vec<(u32, Lost)>,
    /// Whether the trace contains the end of the run: every process finished by itself, and no
    /// filter or slice left anything out.
    has_end: bool,
}

/// Returns whether every process finished by itself, and no filter or slice left anything out.
fn has_end(definitions: &Definitions) -> bool {
    let ends = &definitions.process_ends;
    let mut processes = definitions.processes.keys();
    definitions.filters.is_empty()
        && definitions.slice.is_none()
        && processes.all(|process| {
            let end = ends.get(process);
            end.is_some_and(|end| end.ended == Ended::Finished)
        })
}

impl Extractor {
    /// Creates an extractor. Returns `None` if no event type has messages.
    ///
    /// `carries` contains, by stream, the kinds of events that may be missing because of a loss
    /// without an event type.
    pub(crate) fn of(
        definitions: &Definitions,
        carries: &BTreeMap<annals_format::StreamId, Lost>,
    ) -> Option<Self> {
        let extractor = Self::new(definitions, carries);
        let has_any = extractor.types.iter().any(Option::is_some);
        has_any.then_some(extractor)
    }

    /// Creates an extractor, even if no event type has messages.
    pub(crate) fn new(
        definitions: &Definitions,
        carries: &BTreeMap<annals_format::StreamId, Lost>,
    ) -> Self {
        let types = definitions.event_types.values();
        let types: Vec<Option<TypePlan>> = types.map(|t| TypePlan::of(definitions, t)).collect();
        let mut extractor = Self {
            types,
            suppressed: Vec::new(),
            streams: Vec::new(),
            world_of: Vec::new(),
            ranks: Vec::new(),
            far_ranks: FxHashMap::default(),
            objects: Vec::new(),
            across: AcrossWorlds::of(definitions),
            has_end: has_end(definitions),
        };
        extractor.number_ranks(definitions);
        for (id, stream) in &definitions.streams {
            let source = definitions.sources.get(&stream.source);
            extractor.streams.push(StreamPlace {
                process: source.map_or(NOBODY, |source| source.process.get()),
                clock: source.map_or(NOBODY, |source| source.clock.get()),
                thread: stream.location.map_or(0, |location| location.get() as u16),
                lost: carries.get(id).copied().unwrap_or(Lost::ALL),
            });
        }
        // Objects of one name are one communicator, no matter which process of the world defined
        // them.
        let mut names = BTreeMap::new();
        for object in definitions.objects.values() {
            let next = names.len() as u64;
            let world = extractor.world_of.get(object.process.index()).copied();
            let name = (world, object.kind, object.name);
            let number = *names.entry(name).or_insert(next);
            extractor.objects.push(1 << 62 | number);
        }
        for (object, same) in extractor.across.communicators() {
            if let Some(number) = extractor.objects.get_mut(object.index()) {
                *number = 3 << 61 | u64::from(same.get());
            }
        }
        extractor
    }

    /// Creates an extractor of messages and collective operations, if the definitions are those of a whole trace.
    pub(crate) fn of_losses(definitions: &Definitions, losses: &MessageLosses) -> Option<Self> {
        let is_whole = is_dense(definitions.processes.keys().map(|id| id.index()))
            && is_dense(definitions.streams.keys().map(|id| id.index()))
            && is_dense(definitions.event_types.keys().map(|id| id.index()))
            && is_dense(definitions.objects.keys().map(|id| id.index()))
            && definitions
                .ranks
                .keys()
                .all(|id| definitions.processes.contains_key(id));
        if !is_whole {
            return None;
        }
        let mut extractor = Self::new(definitions, &losses.carries);
        for (stream, lost) in &losses.suppressed {
            extractor.suppress(*stream, *lost);
        }
        Some(extractor)
    }

    /// Returns the losses that a matcher must know before the first message: of events that were suppressed at unknown times.
    pub(crate) fn suppressed_losses<D: Default>(&self) -> MessageBatch<D> {
        let losses = self.suppressed.iter();
        MessageBatch {
            losses: losses.map(|(process, lost)| (0, *process, *lost)).collect(),
            ..MessageBatch::default()
        }
    }

    /// Marks messages of a stream's process as unmatchable from the start on.
    ///
    /// `lost` contains the kinds of events that were suppressed at unknown times.
    fn suppress(&mut self, stream: StreamId, lost: Lost) {
        if let Some(place) = self.streams.get(stream.index()).filter(|_| lost.is_any()) {
            self.suppressed.push((place.process, lost));
        }
    }

    /// Returns whether any event type is of messages between two processes.
    pub(crate) fn has_messages(&self) -> bool {
        let mut plans = self.types.iter().flatten();
        plans.any(TypePlan::is_point_to_point)
    }

    fn leave_out_collectives(&mut self) {
        for plan in &mut self.types {
            *plan = plan.take().filter(TypePlan::is_point_to_point);
        }
    }

    fn number_ranks(&mut self, definitions: &Definitions) {
        let mut worlds = BTreeMap::new();
        for (id, rank) in &definitions.ranks {
            let process = definitions.processes.get(id);
            let next = worlds.len();
            let name = definitions.worlds.get(id).map(|world| world.name);
            let name = name.filter(|name| !definitions.string(*name).is_empty());
            let world = *worlds
                .entry((process.map(|process| process.run), name))
                .or_insert(next);
            self.world_of.resize(id.index() + 1, world);
            self.world_of[id.index()] = world;
            self.ranks.resize(worlds.len(), Vec::new());
            let Some(own) = definitions.rank_in_world(*id).filter(|_| !rank.is_assigned) else {
                continue;
            };
            let index = own as usize;
            let entry = if index < DENSE_RANKS && world < DENSE_WORLDS {
                let ranks = &mut self.ranks[world];
                ranks.resize(ranks.len().max(index + 1), NOBODY);
                &mut ranks[index]
            } else {
                self.far_ranks.entry((world, own)).or_insert(NOBODY)
            };
            *entry = if *entry == NOBODY { id.get() } else { SEVERAL };
        }
    }

    /// Returns the number of processes.
    pub(crate) fn processes(&self) -> usize {
        self.world_of.len()
    }

    /// Creates a matcher of the messages, with at most `limit` of them in flight in each shard.
    pub(crate) fn matcher<D: Carry>(&self, limit: usize) -> Matcher<D> {
        Matcher::new(self.processes(), limit, self.has_end)
    }

    pub(crate) fn process_of_rank(&self, process: u32, rank: i128) -> u32 {
        let Ok(rank) = u32::try_from(rank) else {
            return NOBODY;
        };
        let Some(world) = self.world_of.get(process as usize) else {
            return NOBODY;
        };
        let found = match self.ranks[*world].get(rank as usize) {
            Some(found) => Some(found),
            None => self.far_ranks.get(&(*world, rank)),
        };
        found
            .copied()
            .unwrap_or_else(|| self.across.process(process, rank))
    }

    /// Returns a number of a world, changed so that it differs from numbers of other worlds.
    fn of_world(&self, process: u32, value: u64) -> u64 {
        /// 2⁶⁴ divided by the golden ratio: multiples of it lie far apart.
        const APART: u64 = 0x9e37_79b9_7f4a_7c15;
        match self.world_of.get(process as usize) {
            Some(world) if value != NONE => value.wrapping_add(APART.wrapping_mul(*world as u64)),
            _ => value,
        }
    }

    /// Returns whether events of a type of the trace are messages.
    pub(crate) fn is_message(&self, event_type: EventTypeId) -> bool {
        self.types
            .get(event_type.index())
            .is_some_and(Option::is_some)
    }

    /// Returns the messages of a chunk of the trace, without details.
    pub(crate) fn extract<D: Default>(&self, chunk: &TraceChunk) -> MessageBatch<D> {
        let mut batch = MessageBatch::default();
        let places = self.places(chunk);
        let places = places.iter().enumerate();
        self.append(chunk, places, i64::MAX, &mut batch, |_, _, _, _, _| None);
        batch
    }

    /// Returns the messages of a chunk of the trace, with a detail of each event.
    pub(crate) fn extract_with<D: Default>(
        &self,
        chunk: &TraceChunk,
        mut detail: impl FnMut(&EventColumns<'_>) -> D,
    ) -> MessageBatch<D> {
        let mut batch = MessageBatch::default();
        let places = self.places(chunk);
        let places = places.iter().enumerate();
        let of_event =
            |plan: &TypePlan, columns: &[Column], place: &EventPlace, _: usize, stream| {
                Some(detail(&EventColumns {
                    plan,
                    columns,
                    ordinal: place.ordinal as usize,
                    stream,
                }))
            };
        self.append(chunk, places, i64::MAX, &mut batch, of_event);
        batch
    }

    /// Returns the places of a chunk's messages, in the order of the trace.
    fn places(&self, chunk: &TraceChunk) -> Vec<EventPlace> {
        // Few of the events are messages: only these are sorted.
        let mut places = Vec::new();
        for (number, group) in chunk.groups.iter().enumerate() {
            let is_message = group
                .types
                .iter()
                .map(|of_type| self.is_message(of_type.event_type));
            let is_message: Vec<bool> = is_message.collect();
            if !is_message.contains(&true) {
                continue;
            }
            let mut ordinals = vec![0_u32; is_message.len()];
            for (run, (_, indexes)) in group.runs().enumerate() {
                for index in indexes {
                    let place = usize::from(group.type_index[index]);
                    if is_message[place] {
                        places.push(EventPlace {
                            group: number as u32,
                            run: run as u32,
                            index: index as u32,
                            ordinal: ordinals[place],
                        });
                        ordinals[place] += 1;
                    }
                }
            }
        }
        chunk.sort(&mut places);
        places
    }

    /// Appends the messages among these events of a chunk that are before a time (`i64::MAX` means all), with the detail
    /// that `detail` returns for the plan and the columns of an event, its place, its number and its stream.
    fn append<'c, D>(
        &self,
        chunk: &'c TraceChunk,
        places: impl Iterator<Item = (usize, &'c EventPlace)>,
        until_ns: i64,
        batch: &mut MessageBatch<D>,
        mut detail: impl FnMut(&TypePlan, &[Column], &EventPlace, usize, StreamId) -> Option<D>,
    ) {
        let is_before = |time_ns: i64| time_ns < until_ns || until_ns == i64::MAX;
        let losses = chunk.losses.iter().filter_map(|(before, loss)| {
            let (process, lost) = self.lost(loss);
            let counts = lost.is_any() && is_before(loss.from_ns);
            counts.then(|| (chunk.point_of(*before, loss), process, lost))
        });
        let mut losses: Vec<(LossPoint, u32, Lost)> = losses.collect();
        losses.sort_by_key(|(point, ..)| point.key());
        let mut losses = losses.into_iter().peekable();
        let plan = |of_type: &TypeColumns| self.types.get(of_type.event_type.index())?.as_ref();
        let groups = chunk.groups.iter();
        let plans = groups.map(|group| group.types.iter().map(plan).collect());
        let plans: Vec<Vec<Option<&TypePlan>>> = plans.collect();
        for (number, event) in places {
            let group = &chunk.groups[event.group as usize];
            let index = event.index as usize;
            let time_ns = group.times_ns[index];
            if !is_before(time_ns) {
                break;
            }
            let place = usize::from(group.type_index[index]);
            let Some(plan) = plans[event.group as usize][place] else {
                continue;
            };
            while let Some((_, process, lost)) =
                losses.next_if(|(point, ..)| !point.is_after(time_ns, event))
            {
                batch.losses.push((batch.events.len(), process, lost));
            }
            let stream = group.ends[event.run as usize].0;
            let columns = &group.types[place].columns;
            let at = self.place_of(stream);
            let of_event = self.event(plan, columns, event.ordinal as usize, at);
            batch.events.push(MessageEvent {
                time_ns,
                ..of_event
            });
            batch
                .details
                .extend(detail(plan, columns, event, number, stream));
        }
        for (_, process, lost) in losses {
            batch.losses.push((batch.events.len(), process, lost));
        }
    }

    #[inline]
    fn place_of(&self, stream: annals_format::StreamId) -> StreamPlace {
        let found = self.streams.get(stream.index()).copied();
        found.unwrap_or(StreamPlace {
            process: NOBODY,
            clock: NOBODY,
            thread: 0,
            lost: Lost::default(),
        })
    }

    fn lost(&self, loss: &TraceLoss) -> (u32, Lost) {
        let place = self.place_of(loss.stream);
        let lost = match loss.event_type {
            None => place.lost,
            Some(event_type) => {
                let plan = self.types.get(event_type.index()).and_then(Option::as_ref);
                Lost::of(plan.map(|plan| plan.kind))
            }
        };
        (place.process, lost)
    }

    #[inline]
    fn event(
        &self,
        plan: &TypePlan,
        columns: &[Column],
        ordinal: usize,
        at: StreamPlace,
    ) -> MessageEvent {
        let process = at.process;
        let integer = |place: Option<usize>| columns.get(place?)?.integer(ordinal);
        let number = |place| integer(place).map_or(NONE, |value| value as u64);
        let sequence = || integer(plan.sequence).map_or(NONE, |v| u64::try_from(v).unwrap_or(NONE));
        let communicator = match plan.communicator {
            None => NONE,
            Some((place, reference)) => {
                let value = number(Some(place));
                match reference {
                    Reference::Object => {
                        let object = usize::try_from(value).ok();
                        let known = object.and_then(|object| self.objects.get(object));
                        known.copied().unwrap_or(NONE)
                    }
                    // Numbers have a meaning only within their world.
                    Reference::String => 1 << 61 | self.of_world(process, value),
                    _ => self.of_world(process, value),
                }
            }
        };
        let content = match plan.kind {
            TypeKind::PointToPoint(kind) => {
                let is_start = kind == PointToPointKind::ReceiveStart;
                let peer = match integer(plan.peer) {
                    None if is_start => ANYBODY,
                    None => NOBODY,
                    Some(rank) if is_start && u32::try_from(rank).is_err() => ANYBODY,
                    Some(rank) => self.process_of_rank(process, rank),
                };
                let tag = integer(plan.tag).and_then(|tag| i64::try_from(tag).ok());
                MessageContent::PointToPoint(PointToPoint {
                    tag: tag.map_or(ANY_TAG, |tag| tag.max(ANY_TAG)),
                    sequence: sequence(),
                    peer,
                    thread: at.thread,
                    kind,
                })
            }
            TypeKind::Collective { is_begin } => {
                let operation_code = integer(plan.operation).and_then(|v| u64::try_from(v).ok());
                let operation = operation_code
                    .and_then(|code| u8::try_from(code).ok())
                    .and_then(CollectiveOperation::from_code);
                let bytes = |place| integer(place).and_then(|value| u64::try_from(value).ok());
                let moved = match (bytes(plan.bytes_sent), bytes(plan.bytes_received)) {
                    (Some(sent), Some(received)) => Moved::Apart(sent, received),
                    _ => bytes(plan.bytes).map_or(Moved::Unknown, Moved::Total),
                };
                let root = integer(plan.peer);
                let place = integer(plan.place).and_then(|place| i64::try_from(place).ok());
                let size = integer(plan.size).and_then(|size| u32::try_from(size).ok());
                MessageContent::Collective(Collective {
                    place: place.map_or(-1, |place| place.max(-1)),
                    size: size.unwrap_or(0),
                    sequence: sequence(),
                    root: root.map_or(NOBODY, |rank| self.process_of_rank(process, rank)),
                    operation: operation_code.map_or(u16::MAX, |code| code as u16),
                    is_begin,
                    semantics: Semantics::of(operation, moved),
                    takes_part: takes_part(is_begin, operation, moved),
                })
            }
        };
        MessageEvent {
            time_ns: 0,
            communicator,
            request: number(plan.request),
            process,
            clock: at.clock,
            content,
        }
    }
}

/// Returns the kinds of message events that a stream had, given the event types that its counters
/// count.
///
/// A loss without an event type may contain events of all these kinds.
pub(crate) fn carried(
    definitions: &Definitions,
    raised: impl Iterator<Item = EventTypeId>,
) -> Lost {
    let mut carried = Lost::default();
    for event_type in raised {
        let event_type = definitions.event_types.get(&event_type);
        let kind = event_type.and_then(|event_type| TypeKind::of(definitions, event_type));
        carried.add(Lost::of(kind));
    }
    carried
}
