//! Where each thread is when what was read of it ends: its open calls, what the innermost call of MPI has begun, and what its
//! process has begun and completed before.

use std::collections::{BTreeSet, VecDeque};

use annals_format::names::element;
use annals_format::{
    Definitions, EventTypeId, LocationId, ObjectId, OrderedChunk, ProcessId, RegionId, Role,
    StreamId,
};
use annals_merger::{Analysis, ByStream, Close, Frame, Pass, Peers, TraceLoss};
use rustc_hash::FxHashMap;

use crate::collectives::RANGE;
use crate::mpi_functions::MpiFunctions;
use crate::region_kinds::{RegionKind, RegionKinds};
use crate::wait_states::WINDOW_SYNC;

/// Number of begins of a series that are kept by process, to compare operations and roots.
const KEPT_BEGINS: usize = 64;

/// Calls that several processes make together, in the same order: each has a number in its series.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Series {
    /// Collective operations of a communicator, in one range of numbers: persistent operations have others.
    Collective(u64, u64),
    /// Calls that all processes of a communicator make and that are no operation, such as those that make communicators.
    Call(u64),
    /// Fences of a window.
    Fence(u64),
    /// Collective reads and writes of a file.
    File(u64),
    /// The begin of MPI in a world.
    Init(usize),
    /// The end of MPI in a world.
    Finalize(usize),
}

/// What processes must agree about in a collective operation. `None`: the event does not have it, or it may differ.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Signature {
    pub(super) operation: Option<i128>,
    /// The root, as its rank in the world of the process.
    pub(super) root: Option<i128>,
    pub(super) bytes: Option<i128>,
}

/// The other side of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Peer {
    Any,
    Known(ProcessId),
    /// A process without a recording, or with several: its rank in the world.
    Unknown(i128),
}

/// Communicator, the other side, and tag. No tag: any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Channel {
    pub(super) communicator: Option<u64>,
    pub(super) peer: Peer,
    pub(super) tag: Option<i128>,
}

impl Channel {
    /// Returns whether a receive of this channel can take a message of another one, which is whole.
    pub(super) fn takes(&self, message: &Self) -> bool {
        self.communicator == message.communicator
            && (self.peer == Peer::Any || self.peer == message.peer)
            && (self.tag.is_none() || self.tag == message.tag)
    }
}

/// What a call or a request waits for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Operation {
    /// A message, by its number in the channel if that is known.
    Receive(Channel, Option<u64>),
    /// That a message is received.
    Send(Channel, Option<u64>),
    /// Others that make the same call.
    Together(Series, u64, Signature),
    /// Another process of a window.
    Window(Option<u64>, Peer),
    /// Something that has no other process: a file, an operation of a window.
    Alone,
}

/// A begin of a call of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) number: u64,
    pub(super) signature: Signature,
    pub(super) time_ns: i64,
}

/// How many messages of a channel are known.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Count {
    /// One more than the largest number, or how many there were without numbers.
    pub(super) next: u64,
    pub(super) last_ns: i64,
}

impl Count {
    fn add(&mut self, sequence: Option<u64>, time_ns: i64) {
        self.next = match sequence {
            Some(number) => self.next.max(number.saturating_add(1)),
            None => self.next.saturating_add(1),
        };
        self.last_ns = time_ns;
    }
}

/// What a process has begun and completed.
#[derive(Default, Debug)]
pub(super) struct Done {
    /// Operations that have not been completed, by request.
    pub(super) requests: FxHashMap<u64, Operation>,
    /// By series, the newest begins, in order.
    pub(super) begun: FxHashMap<Series, VecDeque<Begin>>,
    /// Messages that were sent.
    pub(super) sent: FxHashMap<Channel, Count>,
    /// Messages that were received.
    pub(super) received: FxHashMap<Channel, Count>,
    /// When something was lost last, nanoseconds. `None`: nothing was.
    pub(super) lost_ns: Option<i64>,
}

/// Calls that ask whether something is complete, and do not wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Polling {
    pub(super) region: RegionId,
    pub(super) since_ns: i64,
    pub(super) count: u64,
}

/// Where a thread is.
#[derive(Debug)]
pub(super) struct At {
    pub(super) process: ProcessId,
    /// Open calls, the innermost first.
    pub(super) frames: Vec<(RegionId, i64)>,
    /// Whether regions may be open that are not among them, or be left.
    pub(super) is_uncertain: bool,
    /// What the innermost call of MPI waits for: operations, and requests.
    pub(super) pending: Vec<Operation>,
    pub(super) waits: Vec<u64>,
    /// Whether its last event says what it waits for, in a call that is not recorded.
    pub(super) is_in_unseen_call: bool,
    /// Whether something was completed in the call of MPI.
    has_completed: bool,
    pub(super) polling: Option<Polling>,
    /// When it made progress last, trace time, nanoseconds.
    pub(super) progress_ns: Option<i64>,
    pub(super) last_ns: Option<i64>,
    /// Whether it has called MPI.
    pub(super) has_mpi: bool,
}

impl At {
    const fn new(process: ProcessId) -> Self {
        Self {
            process,
            frames: Vec::new(),
            is_uncertain: false,
            pending: Vec::new(),
            waits: Vec::new(),
            is_in_unseen_call: false,
            has_completed: false,
            polling: None,
            progress_ns: None,
            last_ns: None,
            has_mpi: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Meaning {
    Send,
    Unsent,
    Receive,
    ReceiveStart,
    Wait,
    /// A request ends, with nothing to count.
    RequestEnd,
    CollectiveBegin,
    CollectiveEnd,
    WindowSync,
    CommunicatorCall,
    FileCollective,
    /// A request begins that waits for no other process.
    AloneStart,
}

/// Positions of the elements of an event type.
#[derive(Debug)]
struct EventColumns {
    meaning: Meaning,
    object: Option<usize>,
    peer: Option<usize>,
    tag: Option<usize>,
    request: Option<usize>,
    sequence: Option<usize>,
    operation: Option<usize>,
    root: Option<usize>,
    sent: Option<usize>,
    received: Option<usize>,
    size: Option<usize>,
}

fn event_columns(definitions: &Definitions) -> FxHashMap<EventTypeId, EventColumns> {
    let types = definitions.event_types.values();
    let types = types.filter_map(|of| {
        let place = |name| definitions.element(of.id, name);
        let meaning = match (of.role, definitions.string(of.name)) {
            (Role::Send, _) => Meaning::Send,
            (Role::Receive, _) => Meaning::Receive,
            (Role::ReceiveStart, _) => Meaning::ReceiveStart,
            (Role::Wait, _) => Meaning::Wait,
            (Role::Cancel, _) if place(element::PEER).is_some() => Meaning::Unsent,
            (Role::Cancel | Role::SendEnd, _) => Meaning::RequestEnd,
            (Role::CollectiveBegin, _) => Meaning::CollectiveBegin,
            (Role::CollectiveEnd, _) => Meaning::CollectiveEnd,
            (_, WINDOW_SYNC) => Meaning::WindowSync,
            (_, "mpi.communicator_call") => Meaning::CommunicatorCall,
            (_, "mpi.file_collective") => Meaning::FileCollective,
            (_, "mpi.rma_request" | "mpi.file_start") => Meaning::AloneStart,
            (_, "mpi.rma_end" | "mpi.file_end") => Meaning::RequestEnd,
            _ => return None,
        };
        let object = match meaning {
            Meaning::WindowSync => place("window"),
            Meaning::FileCollective => place("file"),
            _ => place(element::COMMUNICATOR),
        };
        let columns = EventColumns {
            meaning,
            object,
            peer: place(element::PEER),
            tag: place(element::TAG),
            request: place(element::REQUEST),
            sequence: place(element::SEQUENCE),
            operation: place(element::OPERATION),
            root: place(element::ROOT),
            sent: place(element::BYTES_SENT),
            received: place(element::BYTES_RECEIVED),
            size: place(element::SIZE),
        };
        Some((of.id, columns))
    });
    types.collect()
}

/// Returns the event types that say what is waited for or done.
pub(super) fn followed_types(definitions: &Definitions) -> BTreeSet<EventTypeId> {
    event_columns(definitions).into_keys().collect()
}

/// Follows all threads.
pub(super) struct Standing<'a> {
    definitions: &'a Definitions,
    pub(super) peers: Peers,
    kinds: RegionKinds,
    functions: MpiFunctions,
    columns: FxHashMap<EventTypeId, EventColumns>,
    /// By number of the location.
    pub(super) threads: Vec<At>,
    pub(super) processes: FxHashMap<ProcessId, Done>,
    /// Number of processes of communicators, as far as it is known.
    pub(super) sizes: FxHashMap<u64, u64>,
    processes_of: ByStream<u32>,
    /// The calls that begin and end MPI.
    init: Vec<RegionId>,
    finalize: Vec<RegionId>,
}

impl<'a> Standing<'a> {
    /// Begins with nothing, for the locations of [`annals_merger::Calls`].
    pub(super) fn new(definitions: &'a Definitions, locations: &[LocationId]) -> Self {
        let threads = locations.iter().map(|id| {
            let location = definitions.locations.get(id);
            At::new(location.map_or(ProcessId::new(u32::MAX), |location| location.process))
        });
        let streams = definitions.streams.keys();
        let processes_of = streams.filter_map(|id| Some((*id, definitions.process_of(*id)?.get())));
        let named = |names: &[&str]| {
            let regions = definitions.regions.values();
            let regions = regions.filter(|of| names.contains(&definitions.string(of.name)));
            regions.map(|region| region.id).collect()
        };
        Self {
            peers: Peers::of(definitions),
            kinds: RegionKinds::of(definitions),
            functions: MpiFunctions::of(definitions),
            columns: event_columns(definitions),
            threads: threads.collect(),
            processes: FxHashMap::default(),
            sizes: FxHashMap::default(),
            processes_of: processes_of.collect(),
            init: named(&["MPI_Init", "MPI_Init_thread"]),
            finalize: named(&["MPI_Finalize"]),
            definitions,
        }
    }

    pub(super) fn is_mpi(&self, region: RegionId) -> bool {
        self.kinds.get(region) == RegionKind::Mpi
    }

    fn has_mpi(&self, frames: &[Frame]) -> bool {
        let mut frames = frames.iter().rev();
        frames.any(|frame| self.is_mpi(frame.region))
    }

    /// Notes that a thread has an event: it is not in the unseen call any more in which it was. The events of one call have one time.
    fn note(&mut self, location: usize, time_ns: i64) {
        let at = &mut self.threads[location];
        let is_of_call = at.last_ns == Some(time_ns);
        at.last_ns = at.last_ns.max(Some(time_ns));
        if at.is_in_unseen_call && !is_of_call {
            at.is_in_unseen_call = false;
            at.pending.clear();
            at.waits.clear();
        }
    }

    fn progress(&mut self, location: usize, time_ns: i64) {
        let at = &mut self.threads[location];
        at.progress_ns = Some(time_ns);
        at.polling = None;
    }

    fn begin(&mut self, process: ProcessId, series: Series, begin: Begin) {
        let begun = self.processes.entry(process).or_default();
        let begun = begun.begun.entry(series).or_default();
        if begun.len() == KEPT_BEGINS {
            begun.pop_front();
        }
        begun.push_back(begin);
    }

    /// Notes a loss: what its process did until then may have had more.
    pub(super) fn note_loss(&mut self, loss: &TraceLoss) {
        if let Some(process) = self.processes_of.get(loss.stream) {
            let of = self.processes.entry(ProcessId::new(process)).or_default();
            of.lost_ns = of.lost_ns.max(Some(loss.to_ns));
        }
    }

    /// Takes out what may not be so any more: calls that were entered before a time from which on all events were read.
    pub(super) fn cut(&mut self, locations: &[LocationId], newest_from: &[(StreamId, i64)]) {
        for (stream, from_ns) in newest_from {
            let of = self.definitions.streams.get(stream);
            let location = of.and_then(|of| locations.binary_search(&of.location?).ok());
            let Some(at) = location.and_then(|number| self.threads.get_mut(number)) else {
                continue;
            };
            at.frames.retain(|(_, entered_ns)| entered_ns >= from_ns);
            at.is_uncertain = true;
            if let Some(polling) = &mut at.polling {
                polling.since_ns = polling.since_ns.max(*from_ns);
            }
        }
    }

    /// Reads the event of a message or of a call that several processes make. `None`: it is another one.
    fn seen(&mut self, location: usize, chunk: &OrderedChunk, event: usize) -> Option<Seen> {
        let of_type = chunk.columns(event);
        let columns = self.columns.get(&of_type.event_type)?;
        let ordinal = chunk.ordinal(event);
        let integer = |place: Option<usize>| of_type.columns.get(place?)?.integer(ordinal);
        let unsigned = |place| integer(place).and_then(|value| u64::try_from(value).ok());
        let process = self.threads[location].process;
        let object = unsigned(columns.object).and_then(|object| u32::try_from(object).ok());
        let object = object.and_then(|object| self.peers.object(ObjectId::new(object)));
        if let (Some(object), Some(size)) = (object, unsigned(columns.size)) {
            self.sizes.insert(object, size);
        }
        let peer = match integer(columns.peer) {
            Some(rank) if rank >= 0 => match self.peers.process(process, rank) {
                Some(known) => Peer::Known(known),
                None => Peer::Unknown(rank),
            },
            _ => Peer::Any,
        };
        Some(Seen {
            meaning: columns.meaning,
            time_ns: chunk.time_ns(event),
            process,
            channel: Channel {
                communicator: object,
                peer,
                tag: integer(columns.tag).filter(|tag| *tag >= 0),
            },
            request: unsigned(columns.request),
            sequence: unsigned(columns.sequence),
            signature: signature(
                integer(columns.operation),
                integer(columns.root).filter(|root| *root >= 0),
                integer(columns.sent),
                integer(columns.received),
            ),
        })
    }

    /// Takes an event. `call`: the call of MPI that it happens in.
    fn event(&mut self, location: usize, call: Option<RegionId>, seen: &Seen) {
        let (process, time_ns) = (seen.process, seen.time_ns);
        let operation = seen.operation();
        let done = self.processes.entry(process).or_default();
        match seen.meaning {
            Meaning::Send => done
                .sent
                .entry(seen.channel)
                .or_default()
                .add(seen.sequence, time_ns),
            Meaning::Receive => {
                let count = done.received.entry(seen.channel).or_default();
                count.add(seen.sequence, time_ns);
            }
            Meaning::Wait => self.threads[location].waits.extend(seen.request),
            _ => {}
        }
        if let Some(Operation::Together(series, number, signature)) = operation {
            let begin = Begin {
                number,
                signature,
                time_ns,
            };
            self.begin(process, series, begin);
        }
        let done = self.processes.entry(process).or_default();
        let at = &mut self.threads[location];
        match (seen.request, operation) {
            (Some(request), Some(operation)) => {
                done.requests.insert(request, operation);
                // A call that waits for its message may have a request for it all the same.
                if call.is_some_and(|call| !self.functions.get(call).is_immediate) {
                    at.waits.push(request);
                }
            }
            (Some(request), None) if seen.meaning != Meaning::Wait => {
                done.requests.remove(&request);
            }
            (None, Some(operation)) => at.pending.push(operation),
            (None, None) => {
                if let Some(place) = at.pending.iter().position(|of| seen.ends(of)) {
                    at.pending.remove(place);
                }
            }
            _ => {}
        }
        let is_wait = seen.meaning == Meaning::Wait;
        if call.is_none() && (is_wait || seen.request.is_none() && operation.is_some()) {
            at.is_in_unseen_call = true;
            at.has_mpi = true;
        }
        if seen.is_completion() {
            at.has_completed = true;
            self.progress(location, time_ns);
        }
    }
}

/// An event of a message or of a call that several processes make.
struct Seen {
    meaning: Meaning,
    time_ns: i64,
    process: ProcessId,
    channel: Channel,
    request: Option<u64>,
    sequence: Option<u64>,
    signature: Signature,
}

impl Seen {
    /// Returns what is waited for from then on.
    fn operation(&self) -> Option<Operation> {
        let (channel, sequence) = (self.channel, self.sequence);
        let object = channel.communicator;
        let together = |series: fn(u64) -> Series| {
            let (object, number) = object.zip(sequence)?;
            let none = Signature::default();
            Some(Operation::Together(series(object), number, none))
        };
        match self.meaning {
            Meaning::Send => Some(Operation::Send(channel, sequence)),
            Meaning::ReceiveStart => Some(Operation::Receive(channel, sequence)),
            Meaning::CollectiveBegin => {
                let (object, number) = object.zip(sequence)?;
                let series = Series::Collective(object, number / RANGE);
                Some(Operation::Together(series, number % RANGE, self.signature))
            }
            Meaning::WindowSync => {
                together(Series::Fence).or(Some(Operation::Window(object, channel.peer)))
            }
            Meaning::CommunicatorCall => together(Series::Call),
            Meaning::FileCollective => together(Series::File),
            Meaning::AloneStart => Some(Operation::Alone),
            Meaning::Receive
            | Meaning::Unsent
            | Meaning::Wait
            | Meaning::RequestEnd
            | Meaning::CollectiveEnd => None,
        }
    }

    /// Returns whether it is the end of something that a call waits for.
    fn ends(&self, operation: &Operation) -> bool {
        match self.meaning {
            Meaning::Receive => matches!(operation, Operation::Receive(..)),
            Meaning::Unsent => matches!(operation, Operation::Send(..)),
            _ => matches!(operation, Operation::Together(..)),
        }
    }

    const fn is_completion(&self) -> bool {
        matches!(
            self.meaning,
            Meaning::Receive | Meaning::RequestEnd | Meaning::CollectiveEnd
        )
    }
}

/// Returns what the processes of an operation must agree about (MPI 5.0, section 6.2 and the operations' own).
fn signature(
    operation: Option<i128>,
    root: Option<i128>,
    sent: Option<i128>,
    received: Option<i128>,
) -> Signature {
    use annals_format::CollectiveOperation as Op;
    let code = operation.and_then(|code| u8::try_from(code).ok());
    let bytes = match code.and_then(Op::from_code) {
        // What the root sends is what each of the others receives.
        Some(Op::Broadcast) => sent.max(received),
        Some(Op::Reduce | Op::Allreduce | Op::Scan | Op::Exscan) => sent,
        _ => None,
    };
    Signature {
        operation,
        root,
        bytes,
    }
}

impl Analysis for Standing<'_> {
    const PASS: Pass = Pass::OrderedCalls;

    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        let is_mpi = self.is_mpi(region);
        let is_outer = is_mpi && !self.has_mpi(frames);
        self.note(location, time_ns);
        let at = &mut self.threads[location];
        if !is_mpi {
            self.progress(location, time_ns);
        } else if is_outer {
            at.pending.clear();
            at.waits.clear();
            at.has_completed = false;
            at.has_mpi = true;
            let process = at.process;
            let world = self.peers.world(process);
            let series = match world {
                Some(world) if self.init.contains(&region) => Some(Series::Init(world)),
                Some(world) if self.finalize.contains(&region) => Some(Series::Finalize(world)),
                _ => None,
            };
            if let Some(series) = series {
                let signature = Signature::default();
                let begin = Begin {
                    number: 0,
                    signature,
                    time_ns,
                };
                self.begin(process, series, begin);
                let operation = Operation::Together(series, 0, signature);
                self.threads[location].pending.push(operation);
            }
        }
        0
    }

    fn close(
        &mut self,
        location: usize,
        frames: &[Frame],
        frame: &Frame,
        time_ns: i64,
        how: Close,
    ) {
        if how == Close::Open {
            let at = &mut self.threads[location];
            at.frames.push((frame.region, frame.entered_ns));
            return;
        }
        let is_mpi = self.is_mpi(frame.region);
        self.note(location, time_ns);
        if !is_mpi {
            self.progress(location, time_ns);
            return;
        }
        if self.has_mpi(frames) {
            return;
        }
        let at = &mut self.threads[location];
        let has_waited = !at.pending.is_empty() || !at.waits.is_empty();
        let is_test = self.functions.get(frame.region).is_test;
        let has_completed = at.has_completed;
        at.pending.clear();
        at.waits.clear();
        if is_test && !has_completed {
            let polling = at.polling.get_or_insert(Polling {
                region: frame.region,
                since_ns: frame.entered_ns,
                count: 0,
            });
            polling.count += 1;
        } else if has_waited || has_completed {
            self.progress(location, time_ns);
        }
    }

    fn outlast(&mut self, location: usize, _: &[Frame], _: i64, _: i64, may_be_left: bool) {
        self.threads[location].is_uncertain |= may_be_left;
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_mpi = self.is_mpi(region);
        self.note(location, time_ns);
        let at = &mut self.threads[location];
        at.has_mpi |= is_mpi;
        if !is_mpi {
            self.progress(location, time_ns);
        }
    }

    fn ordered(&mut self, chunk: &OrderedChunk) {
        for (_, loss) in chunk.losses() {
            self.note_loss(loss);
        }
    }

    fn other(&mut self, location: usize, frames: &[Frame], chunk: &OrderedChunk, event: usize) {
        self.note(location, chunk.time_ns(event));
        let mut calls = frames.iter().rev().map(|frame| frame.region);
        let call = calls.find(|region| self.is_mpi(*region));
        if let Some(seen) = self.seen(location, chunk, event) {
            self.event(location, call, &seen);
        }
    }
}

impl<'a> Standing<'a> {
    /// Returns whether events of a type say what is waited for or done: true if it is a call that several processes make, false if it is
    /// a message. `None`: neither.
    pub(super) fn is_of_series(&self, event_type: EventTypeId) -> Option<bool> {
        let meaning = self.columns.get(&event_type)?.meaning;
        Some(matches!(
            meaning,
            Meaning::CollectiveBegin
                | Meaning::WindowSync
                | Meaning::CommunicatorCall
                | Meaning::FileCollective
        ))
    }

    /// Returns the definitions.
    pub(super) const fn definitions(&self) -> &'a Definitions {
        self.definitions
    }
}
