//! Messages by pair of ranks: count, bytes, latency, and the waits of senders and receivers.
//!
//! A message counts when its receive lies in the window and its send is not after the window. The
//! latency is the time from the send to the receive. A late sender makes the receiver wait from the
//! enter of the call around the receive to the send. A late receiver makes the sender wait from the
//! send to the enter of the receiver's call, while the sender is in the call around its send and
//! unless that call is non-blocking.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use annals_format::{Definitions, EventTypeId, Histogram, OrderedChunk, ProcessId, RegionId, Role};
use annals_merger::{
    Analysis, CallAround, Close, Frame, Message, MessageCounts, MessageEvents, MessageExtractor,
    MessagePairs, Pass, Places, Query, ReadSummary, Reader, Result, SliceLength, Window,
};
use serde::Serialize;

use crate::losses::concerns;
use crate::mpi_coverage::MpiCoverage;
use crate::waits::{LateSide, LongestWaits, MessageWaits, Wait};

/// The messages of a pair of ranks. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct MessagePairRow {
    /// Rank of the senders.
    pub from_rank: u32,
    /// Rank of the receivers.
    pub to_rank: u32,
    /// Number of messages.
    pub count: u64,
    /// Bytes of the messages whose size the send or the receive contains.
    pub bytes: u64,
    /// Shortest latency.
    pub min_latency_ns: Option<i64>,
    /// Mean latency, rounded down.
    pub mean_latency_ns: Option<i64>,
    /// 95th percentile of the latency.
    pub p95_latency_ns: Option<i64>,
    /// Longest latency.
    pub max_latency_ns: Option<i64>,
    /// Messages whose receiver waited for the send.
    /// Like the other waits, `None` where the trace lacks calls of MPI.
    pub late_senders: Option<u64>,
    /// Total waiting time of these receivers.
    pub late_sender_wait_ns: Option<i64>,
    /// Messages whose sender waited for the receiver.
    pub late_receivers: Option<u64>,
    /// Total waiting time of these senders.
    pub late_receiver_wait_ns: Option<i64>,
    /// Whether a loss may have changed the row.
    pub is_uncertain: bool,
}

crate::columns! {
    MessagePairRow, uncertain is_uncertain;
    "from_rank" Number headed "from", |row| row.from_rank;
    "to_rank" Number headed "to", |row| row.to_rank;
    "count" Count marked "count", |row| row.count;
    "bytes" Bytes marked "bytes", |row| row.bytes;
    "min_latency_ns" Duration if_room "latency min", |row| row.min_latency_ns;
    "mean_latency_ns" Duration headed "mean", |row| row.mean_latency_ns;
    "p95_latency_ns" Duration if_room "p95", |row| row.p95_latency_ns;
    "max_latency_ns" Duration headed "max", |row| row.max_latency_ns;
    "late_senders" Count if_any "late senders", |row| row.late_senders;
    "late_sender_wait_ns" Duration if_any "wait", |row| row.late_sender_wait_ns;
    "late_receivers" Count if_any "late receivers", |row| row.late_receivers;
    "late_receiver_wait_ns" Duration if_any "wait", |row| row.late_receiver_wait_ns;
    "is_uncertain" Flag, |row| row.is_uncertain;
}

/// The messages of a window.
#[derive(Clone, Debug, Serialize)]
pub struct Messages {
    /// By pair of ranks, most waiting first, then most bytes.
    pub pairs: Vec<MessagePairRow>,
    /// The longest waits for single messages, the longest first. `None` where the trace lacks calls of MPI.
    pub longest_waits: Option<Vec<Wait>>,
    /// What of MPI the trace does not have.
    #[serde(skip_serializing_if = "MpiCoverage::is_whole")]
    pub mpi: MpiCoverage,
    /// Messages whose receive lies in a call. For other messages, it is not known whether a process
    /// waited.
    pub received_in_calls: u64,
    /// Counts of all sends and receives from the trace's beginning to the window's end.
    #[serde(flatten)]
    pub counts: MessageCounts,
}

#[derive(Default)]
struct Tally {
    latency: Histogram,
    bytes: u64,
    late_senders: (u64, i64),
    late_receivers: (u64, i64),
}

impl Tally {
    fn add(&mut self, message: &Message, waits: &MessageWaits) {
        let (send_ns, receive_ns) = (message.send.time_ns, message.receive.time_ns);
        self.latency.add(receive_ns - send_ns);
        self.bytes = self.bytes.saturating_add(message.bytes().unwrap_or(0));
        for wait in waits.of(message) {
            let sum = match wait.late {
                LateSide::Sender => &mut self.late_senders,
                LateSide::Receiver => &mut self.late_receivers,
            };
            sum.0 += 1;
            sum.1 += wait.to_ns - wait.from_ns;
        }
    }
}

/// Data that all threads share.
struct Shared<'a> {
    extractor: Arc<MessageExtractor>,
    query: &'a Query,
    window: Window,
}

impl<'a> Shared<'a> {
    /// `None` if no event type is of messages.
    fn of(reader: &Reader, query: &'a Query) -> Result<Option<Self>> {
        let definitions = reader.definitions();
        let whole = reader.summary()?;
        // Without losses, or without the trace's end, collective operations prove nothing.
        let extractor = if whole.losses.is_empty() || query.window().to_ns != i64::MAX {
            MessageExtractor::of(definitions, &whole)
        } else {
            MessageExtractor::with_collectives(definitions, &whole)
        };
        let extractor = extractor.filter(MessageExtractor::has_messages);
        Ok(extractor.map(|extractor| Self {
            extractor: Arc::new(extractor),
            query,
            window: query.window(),
        }))
    }

    fn is_wanted(&self, message: &Message) -> bool {
        let is_taken = |stream| self.query.takes_stream(stream);
        (is_taken(message.send.stream) || is_taken(message.receive.stream))
            && self.window.contains(message.receive.time_ns)
    }
}

/// Matcher of the messages. Only the first state has it: messages are matched in the order of the
/// trace.
struct Matched<V> {
    pairs: MessagePairs,
    visit: V,
}

impl<V: FnMut(&Message)> Matched<V> {
    fn feed(&mut self, shared: &Shared<'_>, events: &MessageEvents) {
        let visit = &mut self.visit;
        self.pairs.feed(events, |message| {
            if shared.is_wanted(&message) {
                visit(&message);
            }
        });
    }

    fn finish(mut self, shared: &Shared<'_>) -> MessageCounts {
        self.pairs.finish(|message| {
            if shared.is_wanted(&message) {
                (self.visit)(&message);
            }
        })
    }
}

/// A send in a call that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OpenSend {
    /// Number of the send among the events that wait. `None` means that it was matched, or waits in
    /// the matcher.
    event: Option<usize>,
    call: CallAround,
}

/// The messages of a slice.
struct MessageState<'a, V> {
    shared: &'a Shared<'a>,
    matched: Option<Matched<V>>,
    events: MessageEvents,
    /// Sends whose calls are open, by location, the innermost last.
    open: Vec<Vec<OpenSend>>,
    /// Locations with sends among the events that wait.
    touched: Vec<usize>,
    /// Calls that were open at the start of the slice, with the times of their leaves.
    left: Vec<(CallAround, i64)>,
}

impl<V: FnMut(&Message)> MessageState<'_, V> {
    /// The tag of calls that were entered in an earlier slice.
    const RESUMED: u32 = 1;

    /// Matches the events that wait.
    fn flush(&mut self) {
        let Some(matched) = self.matched.as_mut().filter(|_| !self.events.is_empty()) else {
            return;
        };
        matched.feed(self.shared, &self.events);
        self.events = MessageEvents::default();
        for location in self.touched.drain(..) {
            let open = &mut self.open[location];
            open.iter_mut().for_each(|send| send.event = None);
            open.dedup();
        }
    }
}

impl<V: FnMut(&Message)> Analysis for MessageState<'_, V> {
    const PASS: Pass = Pass::OrderedCalls;
    const SLICES: SliceLength = SliceLength::Short;

    fn resume(&mut self, _: usize, _: &[Frame], _: RegionId, _: i64) -> u32 {
        Self::RESUMED
    }

    fn close(&mut self, location: usize, around: &[Frame], frame: &Frame, time_ns: i64, _: Close) {
        let depth = around.len() as u32;
        let open = &mut self.open[location];
        while let Some(send) = open.pop_if(|send| send.call.depth >= depth) {
            match (send.event, &mut self.matched) {
                (Some(event), _) => self.events.set_left(event, time_ns),
                (None, Some(matched)) => matched.pairs.leave(&send.call, time_ns),
                (None, None) => {}
            }
        }
        if frame.tag == Self::RESUMED {
            let call = CallAround {
                location: location as u32,
                depth,
                region: frame.region,
                tag: 0,
                entered_ns: frame.entered_ns,
                left_ns: None,
                is_uncertain: frame.is_uncertain,
            };
            self.left.push((call, time_ns));
        }
    }

    fn ordered(&mut self, chunk: &OrderedChunk) {
        self.flush();
        let until_ns = self.shared.window.to_ns;
        self.shared
            .extractor
            .extract(chunk, until_ns, &mut self.events);
    }

    fn other(&mut self, location: usize, frames: &[Frame], _: &OrderedChunk, event: usize) {
        let Some(frame) = frames.last() else { return };
        let call = CallAround {
            location: location as u32,
            depth: frames.len() as u32 - 1,
            region: frame.region,
            tag: 0,
            entered_ns: frame.entered_ns,
            left_ns: None,
            is_uncertain: frame.is_uncertain,
        };
        if let Some(event) = self.events.set_call(event, call)
            && self.events.is_send(event)
        {
            let open = &mut self.open[location];
            open.push(OpenSend {
                event: Some(event),
                call,
            });
            if self.matched.is_some() {
                self.touched.push(location);
            }
        }
    }

    fn merge(&mut self, later: Self) {
        self.flush();
        let Some(matched) = &mut self.matched else {
            return;
        };
        for (call, left_ns) in &later.left {
            matched.pairs.leave(call, *left_ns);
        }
        matched.feed(self.shared, &later.events);
    }
}

/// Matches the messages from the trace's beginning, and calls `visit` with those of the query's
/// window that have a stream of the query on either side, in the order in which they were matched.
///
/// Returns the counts of all sends and receives up to the window's end, or `None` if no event type
/// is of messages.
///
/// # Errors
/// If the storage fails.
pub fn for_each_message<V: FnMut(&Message) + Send>(
    reader: &Reader,
    query: &Query,
    visit: V,
) -> Result<Option<(MessageCounts, ReadSummary)>> {
    let Some(shared) = Shared::of(reader, query)? else {
        return Ok(None);
    };
    let visit = Mutex::new(Some(visit));
    let take_visit = |slice| match visit.lock() {
        Ok(mut visit) if slice == 0 => visit.take(),
        _ => None,
    };
    let locations = reader.definitions().locations.len();
    let new = |slice| MessageState {
        shared: &shared,
        matched: take_visit(slice).map(|visit| Matched {
            pairs: MessagePairs::new(Arc::clone(&shared.extractor)),
            visit,
        }),
        events: MessageEvents::default(),
        open: vec![Vec::new(); locations],
        touched: Vec::new(),
        left: Vec::new(),
    };
    let (mut state, summary) = reader.run(&from_start(query), new)?;
    state.flush();
    let counts = state.matched.map(|matched| matched.finish(&shared));
    Ok(Some((counts.unwrap_or_default(), summary)))
}

/// Returns the query for matching: everything from the trace's start to the end of a query's
/// window.
fn from_start(query: &Query) -> Query {
    Query::new().within(Window {
        from_ns: i64::MIN,
        ..query.window()
    })
}

/// The losses that may have changed messages, by rank: when the first one began.
#[derive(Debug)]
pub struct MessageLosses {
    of_senders: BTreeMap<u32, i64>,
    of_receivers: BTreeMap<u32, i64>,
}

impl MessageLosses {
    /// Finds them up to the end of the query's window.
    pub fn new(definitions: &Definitions, summary: &ReadSummary, query: &Query) -> Self {
        let everything = from_start(query);
        let places = Places::of(definitions);
        // The other side of a message may be lost, or a message in between. A loss of enters or leaves may have changed how
        // long a process waited.
        let first_without = |sides: &[Role]| {
            let is_of = |id: EventTypeId| {
                let event_type = definitions.event_types.get(&id);
                event_type.is_some_and(|event_type| {
                    sides.contains(&event_type.role)
                        || [Role::Cancel, Role::Enter, Role::Leave].contains(&event_type.role)
                }) && !definitions.is_wait(id)
            };
            let mut first: BTreeMap<u32, i64> = BTreeMap::new();
            for loss in &summary.losses {
                if !loss.cause.is_suppressed() && concerns(loss, &everything, is_of) {
                    let from_ns = first
                        .entry(places.get(loss.stream).rank)
                        .or_insert(i64::MAX);
                    *from_ns = (*from_ns).min(loss.from_ns);
                }
            }
            first
        };
        Self {
            of_senders: first_without(&[Role::Send]),
            of_receivers: first_without(&[Role::Receive, Role::ReceiveStart]),
        }
    }

    /// Returns whether a loss may have changed a message between two ranks, of which both sides are at `until_ns` or before.
    pub fn may_have_changed(&self, from_rank: u32, to_rank: u32, until_ns: i64) -> bool {
        let is_before = |from_ns: Option<&i64>| from_ns.is_some_and(|from_ns| *from_ns <= until_ns);
        is_before(self.of_senders.get(&from_rank)) || is_before(self.of_receivers.get(&to_rank))
    }
}

/// Returns the messages of the query's window that have a stream of the query on either side.
///
/// Returns `None` if no event type is of messages.
///
/// # Errors
/// If the storage fails.
pub fn messages(reader: &Reader, query: &Query) -> Result<Option<(Messages, ReadSummary)>> {
    let definitions = reader.definitions();
    let processes = definitions.processes.keys();
    let ranks: Vec<u32> = processes.map(|id| definitions.rank_of(*id)).collect();
    let rank = |process: ProcessId| ranks.get(process.index()).copied().unwrap_or(0);
    let mut tallies: BTreeMap<(u32, u32), Tally> = BTreeMap::new();
    let mut longest = LongestWaits::default();
    let waits = MessageWaits::new(definitions);
    let mut known_calls = 0;
    // If regions are chosen, only messages that are sent or received in one of them.
    let is_taken = |message: &Message| {
        let calls = [message.send.call, message.receive.call]
            .into_iter()
            .flatten();
        !query.is_by_region()
            || calls
                .into_iter()
                .any(|call| query.takes_region(call.region))
    };
    let visit = |message: &Message| {
        let key = (rank(message.send.process), rank(message.receive.process));
        if !is_taken(message) {
            return;
        }
        known_calls += u64::from(message.receive.call.is_some());
        tallies.entry(key).or_default().add(message, &waits);
        for wait in waits.of(message) {
            longest.add(wait.to_ns - wait.from_ns, || wait.named(definitions));
        }
    };
    let Some((counts, summary)) = for_each_message(reader, query, visit)? else {
        return Ok(None);
    };
    let losses = MessageLosses::new(definitions, &summary, query);
    let mpi = MpiCoverage::of(definitions);
    let are_known = mpi.knows_waits();
    let rows = tallies
        .iter()
        .map(|((from_rank, to_rank), tally)| MessagePairRow {
            from_rank: *from_rank,
            to_rank: *to_rank,
            count: tally.latency.count(),
            bytes: tally.bytes,
            min_latency_ns: tally.latency.min(),
            mean_latency_ns: tally.latency.mean(),
            p95_latency_ns: tally.latency.percentile(95),
            max_latency_ns: tally.latency.max(),
            late_senders: are_known.then_some(tally.late_senders.0),
            late_sender_wait_ns: are_known.then_some(tally.late_senders.1),
            late_receivers: are_known.then_some(tally.late_receivers.0),
            late_receiver_wait_ns: are_known.then_some(tally.late_receivers.1),
            is_uncertain: losses.may_have_changed(*from_rank, *to_rank, i64::MAX),
        });
    let mut pairs: Vec<MessagePairRow> = rows.collect();
    pairs.sort_by_key(|row| {
        let waits = [row.late_sender_wait_ns, row.late_receiver_wait_ns];
        let wait_ns = waits.into_iter().flatten().fold(0, i64::saturating_add);
        (Reverse((wait_ns, row.bytes)), row.from_rank, row.to_rank)
    });
    let found = Messages {
        pairs,
        longest_waits: are_known.then(|| longest.into_sorted()),
        mpi,
        received_in_calls: known_calls,
        counts,
    };
    Ok(Some((found, summary)))
}
