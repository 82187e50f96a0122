//! Messages with both sides, for readers of a trace: matched by the rules of the causality check.
//!
//! [`MessageExtractor`] extracts the events of messages from chunks; several threads may share it.
//! [`MessagePairs`] matches them in the order of the trace. It keeps at most [`MESSAGES_IN_FLIGHT`] of them to each
//! sixteenth of the processes; events that it drops for this are counted in [`MessageCounts::over_limit`].

use std::ops::Range;
use std::sync::Arc;

use annals_format::{
    CollectiveOperation, Column, Definitions, EventPlace, EventTypeId, OrderedChunk, ProcessId,
    Reference, RegionId, StreamId,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ReadSummary;
use crate::messages::causality::MESSAGES_IN_FLIGHT;
use crate::messages::collectives::{Carry, ConcludedOperation};
use crate::messages::matching::{Matcher, MessageCounts};
use crate::messages::{
    Extractor, Mark, MessageBatch, MessageContent, MessageLosses, PointToPointKind, SEVERAL,
    TypeKind, TypePlan,
};

/// The call in which a message was sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallAround {
    /// Number of its location among those of the definitions.
    pub location: u32,
    /// Number of calls around it.
    pub depth: u32,
    /// Its region.
    pub region: RegionId,
    /// A number of the caller's choice.
    pub tag: u32,
    /// Trace time of its enter, nanoseconds.
    pub entered_ns: i64,
    /// Trace time of its leave, nanoseconds. `None` if it was not left up to the last event that is known.
    pub left_ns: Option<i64>,
    /// Whether events were lost between its enter and the event: its leave and the enter of another call may be among them.
    pub is_uncertain: bool,
}

impl CallAround {
    /// Returns the key that identifies a call in a trace.
    const fn key(&self) -> CallKey {
        (self.location, self.depth, self.entered_ns)
    }
}

/// Location, depth and time of the enter of a call.
type CallKey = (u32, u32, i64);

/// One side of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSide {
    /// Number of the event among those of the trace of which [`MessageExtractor::is_message`] is true, from 0.
    pub number: u64,
    /// Number of the event in its chunk.
    pub index: u32,
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Its process.
    pub process: ProcessId,
    /// Its stream.
    pub stream: StreamId,
    /// The element `bytes`.
    pub bytes: Option<u64>,
    /// The element `tag`.
    pub tag: Option<i64>,
    /// The element `communicator`, and what it refers to.
    pub communicator: Option<(Reference, u64)>,
    /// The call around it. `None` if there is none, or if the caller did not set it.
    pub call: Option<CallAround>,
    /// What [`MessageEvents::set_carry`] was called with. 0 if it was not called.
    pub carry: i64,
}

/// What a process did in a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectivePart {
    /// The process.
    pub process: ProcessId,
    /// Its place in the communicator. `None` means that it is not known.
    pub place: Option<u32>,
    /// Its begin. `None` if that is not known.
    pub begin: Option<CollectiveSide>,
    /// Its end. `None` if that is not known.
    pub end: Option<CollectiveSide>,
    /// Whether others may wait for it: it sends something, or it is a barrier.
    pub sends: bool,
    /// Whether it may wait for others: it receives something, or it is a barrier.
    pub receives: bool,
}

/// A begin or an end of a collective operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveSide {
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Its stream.
    pub stream: StreamId,
    /// The element `communicator`, and what it refers to.
    pub communicator: Option<(Reference, u64)>,
    /// The call around it. `None` if there is none, or if the caller did not set it.
    pub call: Option<CallAround>,
    /// What [`MessageEvents::set_carry`] was called with. 0 if it was not called.
    pub carry: i64,
}

/// A collective operation that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WholeCollective {
    /// Number that no other operation of the trace has.
    pub id: u64,
    /// Number of its communicator, which all its processes have in common.
    pub communicator: usize,
    /// Which operation it is. `None` if that is not known.
    pub operation: Option<CollectiveOperation>,
    /// Number of processes. `None` if that is not known.
    pub size: Option<u64>,
    /// The root. `None` if it has none, or none that is known.
    pub root: Option<ProcessId>,
    /// Whether its processes describe it differently.
    pub is_inconsistent: bool,
    /// What its processes did, in no particular order.
    pub parts: Vec<CollectivePart>,
}

/// An end of a collective operation, at the time when it was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollectiveEnd {
    /// [`WholeCollective::id`] of the operation.
    pub id: u64,
    /// Its process.
    pub process: ProcessId,
    /// The end.
    pub side: CollectiveSide,
    /// Largest [`CollectiveSide::carry`] of the begins for which it waits, as far as they have been fed. `None` if it waits
    /// for none.
    pub latest_begin: Option<i64>,
}

/// A message of which both sides are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The send.
    pub send: MessageSide,
    /// Its receive.
    pub receive: MessageSide,
}

impl Message {
    /// Returns the size in bytes that the send has, or else the receive.
    pub fn bytes(&self) -> Option<u64> {
        self.send.bytes.or(self.receive.bytes)
    }

    /// Returns the tag that the send has, or else the receive.
    pub fn tag(&self) -> Option<i64> {
        self.send.tag.or(self.receive.tag)
    }

    /// Returns the communicator that the send has, or else the receive.
    pub fn communicator(&self) -> Option<(Reference, u64)> {
        self.send.communicator.or(self.receive.communicator)
    }
}

/// Role of an event of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Role {
    /// The start or the cancellation of one.
    #[default]
    Other,
    Send,
    Receive,
    CollectiveBegin,
    CollectiveEnd,
}

/// Data of an event that the matcher keeps until its partner is found. Small, because every event
/// in flight has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Detail {
    bytes: u64,
    tag: i64,
    communicator: u64,
    entered_ns: i64,
    left_ns: i64,
    carry: i64,
    index: u32,
    stream: StreamId,
    location: u32,
    depth: u32,
    region: RegionId,
    call_tag: u32,
    role: Role,
    reference: Option<Reference>,
    has_call: bool,
    is_uncertain: bool,
}

impl Detail {
    /// Values that mean that the event has no bytes, no tag, or a call that was not left.
    const NO_BYTES: u64 = u64::MAX;
    const NO_TAG: i64 = i64::MIN;
    const NOT_LEFT: i64 = i64::MAX;

    fn communicator(&self) -> Option<(Reference, u64)> {
        self.reference
            .map(|reference| (reference, self.communicator))
    }

    fn call(&self) -> Option<CallAround> {
        self.has_call.then_some(CallAround {
            location: self.location,
            depth: self.depth,
            region: self.region,
            tag: self.call_tag,
            entered_ns: self.entered_ns,
            left_ns: (self.left_ns != Self::NOT_LEFT).then_some(self.left_ns),
            is_uncertain: self.is_uncertain,
        })
    }

    const fn set_call(&mut self, call: CallAround) {
        (self.has_call, self.is_uncertain) = (true, call.is_uncertain);
        (self.location, self.depth) = (call.location, call.depth);
        (self.region, self.call_tag) = (call.region, call.tag);
        self.entered_ns = call.entered_ns;
        self.left_ns = match call.left_ns {
            Some(left_ns) => left_ns,
            None => Self::NOT_LEFT,
        };
    }
}

impl Carry for Detail {
    fn carry(&self) -> i64 {
        self.carry
    }
}

impl Default for Detail {
    fn default() -> Self {
        Self {
            bytes: Self::NO_BYTES,
            tag: Self::NO_TAG,
            communicator: 0,
            entered_ns: 0,
            left_ns: Self::NOT_LEFT,
            carry: 0,
            index: 0,
            stream: StreamId::new(0),
            location: 0,
            depth: 0,
            region: RegionId::new(0),
            call_tag: 0,
            role: Role::Other,
            reference: None,
            has_call: false,
            is_uncertain: false,
        }
    }
}

/// The events of messages of one or several chunks that follow each other.
#[derive(Debug, Default)]
pub struct MessageEvents {
    batch: MessageBatch<Detail>,
    /// The next event that [`MessageEvents::set_call`] checks.
    next: usize,
    /// The first event of the last chunk.
    chunk_start: usize,
}

impl MessageEvents {
    /// Returns whether there are neither events nor losses of them.
    pub fn is_empty(&self) -> bool {
        self.batch.events.is_empty() && self.batch.losses.is_empty()
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.batch.events.len()
    }

    /// Sets the call around the event with this number in the last chunk. Numbers must ascend. Returns the number of the
    /// event among these, or `None` if it is not one of them.
    pub fn set_call(&mut self, index: usize, call: CallAround) -> Option<usize> {
        let rest = self.batch.details.get_mut(self.next..)?;
        let passed = rest
            .iter()
            .position(|detail| detail.index as usize >= index)?;
        let detail = &mut rest[passed];
        self.next += passed;
        if detail.index as usize != index {
            return None;
        }
        detail.set_call(call);
        Some(self.next)
    }

    /// Returns the number of the first event after the event with this number in the last chunk. Numbers must
    /// ascend.
    pub fn after(&mut self, index: usize) -> usize {
        let rest = self.batch.details.get(self.next..).unwrap_or_default();
        let passed = rest
            .iter()
            .take_while(|detail| detail.index as usize <= index);
        self.next += passed.count();
        self.next
    }

    /// Returns the size of an event's message in bytes. `None` if it is not known.
    pub fn bytes(&self, event: usize) -> Option<u64> {
        let detail = self.batch.details.get(event)?;
        (detail.bytes != Detail::NO_BYTES).then_some(detail.bytes)
    }

    /// Returns the process of an event and its request. `None` if it has none.
    pub fn request(&self, event: usize) -> Option<(ProcessId, u64)> {
        let event = self.batch.events.get(event)?;
        let process = ProcessId::new(event.process);
        event.has_request().then_some((process, event.request))
    }

    /// Returns the number of the first event of the last chunk.
    pub const fn chunk_start(&self) -> usize {
        self.chunk_start
    }

    /// Returns whether an event is a send.
    pub fn is_send(&self, event: usize) -> bool {
        self.has_role(event, Role::Send)
    }

    /// Returns whether an event is a receive.
    pub fn is_receive(&self, event: usize) -> bool {
        self.has_role(event, Role::Receive)
    }

    /// Returns whether an event begins a receive.
    pub fn is_receive_start(&self, event: usize) -> bool {
        let event = self.batch.events.get(event);
        event.is_some_and(|event| match event.content {
            MessageContent::PointToPoint(of) => of.kind == PointToPointKind::ReceiveStart,
            MessageContent::Collective(_) => false,
        })
    }

    fn has_role(&self, event: usize, role: Role) -> bool {
        let detail = self.batch.details.get(event);
        detail.is_some_and(|detail| detail.role == role)
    }

    /// Returns an event's trace time, nanoseconds, and its stream.
    pub fn place(&self, event: usize) -> Option<(i64, StreamId)> {
        let time_ns = self.batch.events.get(event)?.time_ns;
        Some((time_ns, self.batch.details.get(event)?.stream))
    }

    /// Returns the call around an event.
    pub fn call(&self, event: usize) -> Option<CallAround> {
        self.batch.details.get(event)?.call()
    }

    /// Changes the tag of every call.
    pub fn map_call_tags(&mut self, new: impl Fn(u32) -> u32) {
        for detail in self
            .batch
            .details
            .iter_mut()
            .filter(|detail| detail.has_call)
        {
            detail.call_tag = new(detail.call_tag);
        }
    }

    /// Sets a number of the caller's choice that the sides of messages and collective operations have.
    pub fn set_carry(&mut self, event: usize, carry: i64) {
        if let Some(detail) = self.batch.details.get_mut(event) {
            detail.carry = carry;
        }
    }

    /// Sets when the call around an event was left.
    pub fn set_left(&mut self, event: usize, left_ns: i64) {
        if let Some(detail) = self.batch.details.get_mut(event) {
            detail.left_ns = left_ns;
        }
    }

    /// Returns the events of the last chunk in the global order: for each, its number in the chunk,
    /// and whether it is a send.
    pub fn of_chunk(&self) -> impl Iterator<Item = (u32, bool)> {
        let details = self.batch.details[self.chunk_start..].iter();
        details.map(|detail| (detail.index, detail.role == Role::Send))
    }
}

/// Extracts the events of messages from chunks.
#[derive(Debug)]
pub struct MessageExtractor {
    extractor: Extractor,
}

impl MessageExtractor {
    /// Creates an extractor of the messages of a summary's input.
    ///
    /// Returns `None` if no event type is of messages, or if the definitions are not those of a
    /// whole trace.
    pub fn of(definitions: &Definitions, summary: &ReadSummary) -> Option<Self> {
        let mut both = Self::with_collectives(definitions, summary)?;
        both.extractor.leave_out_collectives();
        Some(both).filter(Self::has_messages)
    }

    /// Returns whether any event type is of messages between two processes.
    pub fn has_messages(&self) -> bool {
        self.extractor.has_messages()
    }

    /// Creates an extractor of messages and collective operations, of whichever there are. Returns `None` if the definitions
    /// are not those of a whole trace.
    ///
    /// At the end of a trace with losses, collective operations prove which messages without
    /// sequence numbers match.
    pub fn with_collectives(definitions: &Definitions, summary: &ReadSummary) -> Option<Self> {
        let losses = MessageLosses::of(definitions, &summary.totals, &summary.losses);
        let extractor = Extractor::of_losses(definitions, &losses)?;
        Some(Self { extractor })
    }

    /// Returns whether events of a type are of messages.
    pub fn is_message(&self, event_type: EventTypeId) -> bool {
        self.extractor.is_message(event_type)
    }

    /// Appends the events of a chunk that are before a time, nanoseconds. `i64::MAX` means all.
    pub fn extract(&self, chunk: &OrderedChunk, until_ns: i64, events: &mut MessageEvents) {
        events.chunk_start = events.batch.events.len();
        events.next = events.chunk_start;
        let detail =
            |plan: &TypePlan, columns: &[Column], place: &EventPlace, index: usize, stream| {
                let ordinal = place.ordinal as usize;
                let integer = |place: Option<usize>| columns.get(place?)?.integer(ordinal);
                let unsigned = |place| integer(place).and_then(|value| u64::try_from(value).ok());
                let role = match plan.kind {
                    TypeKind::PointToPoint(PointToPointKind::Send) => Role::Send,
                    TypeKind::PointToPoint(PointToPointKind::Receive) => Role::Receive,
                    TypeKind::PointToPoint(_) => Role::Other,
                    TypeKind::Collective { is_begin: true } => Role::CollectiveBegin,
                    TypeKind::Collective { is_begin: false } => Role::CollectiveEnd,
                };
                let is_side = role != Role::Other;
                let communicator = plan.communicator.filter(|_| is_side);
                let tag = integer(plan.tag.filter(|_| is_side));
                let communicator = communicator
                    .and_then(|(place, reference)| Some((reference, integer(Some(place))? as u64)));
                Some(Detail {
                    role,
                    index: index as u32,
                    stream,
                    bytes: unsigned(plan.bytes.filter(|_| is_side)).unwrap_or(Detail::NO_BYTES),
                    tag: tag
                        .and_then(|tag| i64::try_from(tag).ok())
                        .unwrap_or(Detail::NO_TAG),
                    communicator: communicator.map_or(0, |(_, value)| value),
                    reference: communicator.map(|(reference, _)| reference),
                    ..Detail::default()
                })
            };
        let places = chunk.places().enumerate();
        let batch = &mut events.batch;
        self.extractor
            .append(chunk.chunk(), places, until_ns, batch, detail);
    }
}

/// Matches sends and receives, from the beginning of a trace on.
#[derive(Debug)]
pub struct MessagePairs {
    extractor: Arc<MessageExtractor>,
    matcher: Matcher<Detail>,
    /// Calls with sends in flight that were open when the events were fed, with their leaves as soon as these are known.
    open: FxHashMap<CallKey, Option<i64>>,
    /// Number of these calls at which those without sends in flight are removed.
    open_limit: usize,
}

impl MessagePairs {
    /// Creates a matcher for the events of an extractor.
    pub fn new(extractor: Arc<MessageExtractor>) -> Self {
        let mut matcher = extractor.extractor.matcher(MESSAGES_IN_FLIGHT);
        matcher.feed(&extractor.extractor.suppressed_losses(), &mut |_, _| {});
        Self {
            extractor,
            matcher,
            open: FxHashMap::default(),
            open_limit: MESSAGES_IN_FLIGHT,
        }
    }

    /// Returns the extractor of the events.
    pub const fn extractor(&self) -> &Arc<MessageExtractor> {
        &self.extractor
    }

    /// Returns the number that the next event gets.
    pub const fn next_number(&self) -> u64 {
        self.matcher.fed()
    }

    /// Reports that a call was left in which a message was sent, and that was open when the send was fed.
    pub fn leave(&mut self, call: &CallAround, left_ns: i64) {
        if let Some(left) = self.open.get_mut(&call.key()) {
            *left = Some(left_ns);
        }
    }

    /// Requests whole collective operations, for [`MessagePairs::take_ends`] and [`MessagePairs::take_collectives`]. The
    /// extractor must be one [with collective operations](MessageExtractor::with_collectives).
    pub fn keep_collectives(&mut self) {
        self.matcher.keep_whole();
    }

    /// Returns the ends of collective operations since the last call.
    pub fn take_ends(&mut self) -> impl Iterator<Item = CollectiveEnd> {
        let ended = self.matcher.take_ended().into_iter();
        ended.map(|ended| CollectiveEnd {
            id: ended.id,
            process: ProcessId::new(ended.end.process),
            side: collective_side(ended.end),
            latest_begin: ended.latest_begin,
        })
    }

    /// Returns the collective operations that were completed since the last call.
    pub fn take_collectives(&mut self) -> impl Iterator<Item = WholeCollective> {
        self.matcher.take_concluded().into_iter().map(whole)
    }

    /// Processes the next events, and calls `paired` with each message that is matched.
    pub fn feed(&mut self, events: &MessageEvents, paired: impl FnMut(Message)) {
        self.feed_some(events, 0..events.len(), paired);
    }

    /// Processes the next events, those of a range, as [`MessagePairs::feed`] does. Ranges follow each other up to the
    /// number of events.
    pub fn feed_some(
        &mut self,
        events: &MessageEvents,
        range: Range<usize>,
        mut paired: impl FnMut(Message),
    ) {
        for detail in &events.batch.details[range.clone()] {
            let is_open = detail.role == Role::Send && detail.left_ns == Detail::NOT_LEFT;
            if let Some(call) = detail.call().filter(|_| is_open) {
                self.open.entry(call.key()).or_default();
            }
        }
        let open = &self.open;
        self.matcher
            .feed_some(&events.batch, range, &mut |send, receive| {
                pair(open, send, receive, &mut paired);
            });
        if self.open.len() > self.open_limit {
            let waiting = self.matcher.waiting();
            let calls = waiting.filter_map(|mark| Some(mark.detail.call()?.key()));
            let calls: FxHashSet<CallKey> = calls.collect();
            self.open.retain(|key, _| calls.contains(key));
            self.open_limit = MESSAGES_IN_FLIGHT.max(2 * self.open.len());
        }
    }

    /// Processes the next chunk, and calls `paired` with each message that is matched. The sides of
    /// these messages have no calls.
    pub fn take(&mut self, chunk: &OrderedChunk, paired: impl FnMut(Message)) {
        let mut events = MessageEvents::default();
        self.extractor.extract(chunk, i64::MAX, &mut events);
        self.feed(&events, paired);
    }

    /// Ends the matching, and calls `paired` with each message that only the end of the trace
    /// proves to be matched. Returns the counts of all sends and receives.
    pub fn finish(mut self, paired: impl FnMut(Message)) -> MessageCounts {
        self.end(paired)
    }

    /// Ends the matching as [`MessagePairs::finish`] does, for a caller that then takes the collective operations.
    pub fn end(&mut self, mut paired: impl FnMut(Message)) -> MessageCounts {
        let open = &self.open;
        self.matcher
            .finish(&mut |send, receive| pair(open, send, receive, &mut paired));
        self.matcher.counts()
    }
}

/// Calls `paired` if a pair is a message. `open` contains the leaves of calls that were open when
/// their sends were fed.
fn pair(
    open: &FxHashMap<CallKey, Option<i64>>,
    send: Mark<Detail>,
    receive: Mark<Detail>,
    paired: &mut impl FnMut(Message),
) {
    if (send.detail.role, receive.detail.role) != (Role::Send, Role::Receive) {
        return;
    }
    let mut message = Message {
        send: side(send),
        receive: side(receive),
    };
    if let Some(call) = &mut message.send.call
        && call.left_ns.is_none()
    {
        call.left_ns = open.get(&call.key()).copied().flatten();
    }
    paired(message);
}

fn whole(whole: ConcludedOperation<Detail>) -> WholeCollective {
    let code = u8::try_from(whole.operation).ok();
    let parts = whole.parts.iter().map(|part| CollectivePart {
        process: ProcessId::new(part.process),
        place: u32::try_from(part.place).ok(),
        begin: part.begin.map(collective_side),
        end: part.end.map(collective_side),
        sends: part.sends,
        receives: part.receives,
    });
    WholeCollective {
        id: whole.id,
        communicator: whole.communicator,
        operation: code.and_then(CollectiveOperation::from_code),
        size: (whole.size != 0).then_some(whole.size),
        root: whole
            .root
            .filter(|root| *root < SEVERAL)
            .map(ProcessId::new),
        is_inconsistent: whole.is_inconsistent,
        parts: parts.collect(),
    }
}

fn collective_side(mark: Mark<Detail>) -> CollectiveSide {
    let detail = mark.detail;
    CollectiveSide {
        time_ns: mark.time_ns,
        stream: detail.stream,
        communicator: detail.communicator(),
        call: detail.call(),
        carry: detail.carry,
    }
}

fn side(mark: Mark<Detail>) -> MessageSide {
    let detail = mark.detail;
    MessageSide {
        number: mark.number,
        index: detail.index,
        time_ns: mark.time_ns,
        process: ProcessId::new(mark.process),
        stream: detail.stream,
        bytes: (detail.bytes != Detail::NO_BYTES).then_some(detail.bytes),
        tag: (detail.tag != Detail::NO_TAG).then_some(detail.tag),
        communicator: detail.communicator(),
        call: detail.call(),
        carry: detail.carry,
    }
}
