//! One pass over a trace, from which every export is made: calls as they begin and end, events chunk by chunk, messages
//! as they are matched, and the losses at the end.

use std::ops::Deref;
use std::sync::Arc;

use annals_format::{
    Definitions, EventTypeId, LocationId, OrderedChunk, RegionId, Role, StreamId, TraceLoss,
};
use annals_merger::calls::{CallSink, Close, Frame};
use annals_merger::{
    Calls, ChunkEvents, MergeError, MessageCounts, MessageEvents, MessageExtractor, MessagePairs,
    Places, Query, ReadSummary, Reader, Sink, StreamPlace, Window,
};
use rustc_hash::FxHashMap;

use crate::write::relay::Relay;

/// Stands for an event that is of no message.
pub(crate) const NO_MESSAGE: u64 = u64::MAX;

/// What every export knows of the trace.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The input.
    pub(crate) opened: &'a Reader,
    /// Its definitions.
    pub(crate) definitions: &'a Definitions,
    /// Where streams are.
    pub(crate) places: Places,
    /// What is exported.
    pub(crate) filter: &'a Query,
    /// The same in time.
    pub(crate) window: Window,
    /// Locations by number.
    pub(crate) locations: Vec<LocationId>,
}

impl<'a> Context<'a> {
    /// Of an input.
    pub(crate) fn new(opened: &'a Reader, filter: &'a Query, window: Window) -> Self {
        let definitions = opened.definitions();
        Self {
            opened,
            definitions,
            places: Places::of(definitions),
            filter,
            window,
            locations: definitions.locations.keys().copied().collect(),
        }
    }

    /// Rank and name of a location.
    pub(crate) fn location(&self, number: usize) -> (u32, &'a str) {
        let id = self.locations[number];
        let name = self.definitions.locations.get(&id);
        let name = name.map_or("", |location| self.definitions.string(location.name));
        (self.definitions.rank_of_location(id), name)
    }

    /// Streams whose events are exported, with their places.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamPlace)> {
        let streams = self.definitions.streams.keys().copied();
        let taken = streams.filter(|stream| self.filter.takes_stream(*stream));
        taken.map(|stream| (stream, self.places.get(stream)))
    }

    /// Number of a location.
    pub(crate) fn number_of(&self, location: LocationId) -> Option<usize> {
        self.locations.binary_search(&location).ok()
    }
}

/// A call that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enter {
    /// Number of its location.
    pub(crate) location: usize,
    /// Which region.
    pub(crate) region: RegionId,
    /// When it begins, or the window does if that is later; nanoseconds.
    pub(crate) time_ns: i64,
}

/// A call that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Its number: calls are numbered as they begin.
    pub(crate) number: u64,
    /// Number of the innermost exported call around it.
    pub(crate) parent: Option<u64>,
    /// Number of its location.
    pub(crate) location: usize,
    /// Which region.
    pub(crate) region: RegionId,
    /// When it was entered, maybe before the window; nanoseconds.
    pub(crate) begin_ns: i64,
    /// When it ended; for one that is open, the end of what is looked at.
    pub(crate) end_ns: i64,
    /// Its time within the window.
    pub(crate) inclusive_ns: i64,
    /// The part of it that no call inside had.
    pub(crate) exclusive_ns: i64,
    /// Calls around it.
    pub(crate) depth: usize,
    /// A loss lies in it: enters or leaves may be missing.
    pub(crate) is_uncertain: bool,
    /// Its region is not open further out.
    pub(crate) is_outermost: bool,
    /// How it ended.
    pub(crate) how: Close,
}

/// How a call ended, in a word.
pub(crate) const fn ending(how: Close) -> &'static str {
    match how {
        Close::Left => "left",
        Close::Unleft => "unleft",
        Close::Open => "open",
    }
}

/// A message of which both sides are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// Its number: that of its send among the messages' events.
    pub(crate) number: u64,
    /// When it was sent, nanoseconds.
    pub(crate) send_ns: i64,
    /// When it was received, nanoseconds.
    pub(crate) receive_ns: i64,
    /// Stream of the send.
    pub(crate) from: StreamId,
    /// Stream of the receive.
    pub(crate) to: StreamId,
    /// Its sides were matched after the chunk of the receive.
    pub(crate) is_late: bool,
}

/// The exported events of a chunk, with what is known of them.
#[derive(Debug)]
pub(crate) struct Events<'a> {
    /// The events.
    pub(crate) of_chunk: &'a Arc<ChunkEvents>,
    /// Numbers of messages, by index of the event in the chunk; 2^64 − 1: of none. Empty: none has any.
    pub(crate) messages: &'a [u64],
    /// By type of the chunk: its events are calls' enters and leaves.
    pub(crate) is_move: &'a [bool],
}

impl Events<'_> {
    /// Number of the message that an event sends or receives.
    pub(crate) fn message(&self, event: usize) -> Option<u64> {
        let number = self.messages.get(self.index(event)).copied();
        number.filter(|number| *number != NO_MESSAGE)
    }
}

impl Deref for Events<'_> {
    type Target = ChunkEvents;

    fn deref(&self) -> &ChunkEvents {
        self.of_chunk
    }
}

/// What an export has to be told.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Wants {
    /// Calls.
    pub(crate) calls: bool,
    /// That they begin, too.
    pub(crate) begins: bool,
    /// All of it in a thread of its own, because writing is most of the work; not time, whose stacks are borrowed.
    pub(crate) apart: bool,
    /// Only if the filter takes the event types that they are made of.
    pub(crate) calls_by_type: bool,
    /// Time passing, by call path.
    pub(crate) time: bool,
    /// Events.
    pub(crate) events: bool,
    /// Messages.
    pub(crate) messages: bool,
}

/// What is known when all was read.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    /// Losses that are looked at.
    pub(crate) losses: &'a [TraceLoss],
    /// What reading showed.
    pub(crate) outcome: &'a ReadSummary,
}

/// An export: what takes in a pass and writes a format.
pub(crate) trait Exporter {
    /// What it has to be told.
    fn wants(&self) -> Wants;

    /// A call begins; in its location's order, before what happens in it.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        let _ = enter;
        Ok(())
    }

    /// A call ended.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        let _ = call;
        Ok(())
    }

    /// A region was left that was not entered.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn unmatched(&mut self, leave: &Enter) -> anyhow::Result<()> {
        let _ = leave;
        Ok(())
    }

    /// Time passed at a location in the innermost of these regions.
    fn spend(&mut self, location: usize, frames: &[Frame], ns: i64) {
        let _ = (location, frames, ns);
    }

    /// Events of the next chunk.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        let _ = events;
        Ok(())
    }

    /// A message was received.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn message(&mut self, message: &Message) -> anyhow::Result<()> {
        let _ = message;
        Ok(())
    }

    /// Why it takes nothing in any more, if it knows better than what it said.
    fn failure(self: Box<Self>) -> Option<anyhow::Error> {
        None
    }

    /// All was read: writes the rest, and gives the output its name.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn finish(self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()>;
}

/// An open call.
#[derive(Clone, Copy)]
struct Open {
    /// None: it is not exported.
    number: Option<u64>,
    /// The innermost exported one from here on.
    innermost: Option<u64>,
    exclusive_ns: i64,
}

struct Messages {
    pairs: MessagePairs,
    of_rows: Vec<u64>,
    matched: Vec<Message>,
}

impl Messages {
    fn of(opened: &Reader) -> annals_merger::Result<Option<Self>> {
        let definitions = opened.definitions();
        let is_side = |role| matches!(role, Role::Send | Role::Receive);
        let mut types = definitions.event_types.values();
        if !types.any(|event_type| is_side(event_type.role)) {
            return Ok(None);
        }
        let summary = opened.summary()?;
        let extractor = MessageExtractor::of(definitions, &summary);
        Ok(extractor.map(|extractor| Self {
            pairs: MessagePairs::new(Arc::new(extractor)),
            of_rows: Vec::new(),
            matched: Vec::new(),
        }))
    }

    /// Numbers the messages of a chunk and matches them.
    fn take(&mut self, chunk: &OrderedChunk) {
        self.of_rows.clear();
        self.matched.clear();
        let mut events = MessageEvents::default();
        self.pairs.extractor().extract(chunk, i64::MAX, &mut events);
        let first = self.pairs.next_number();
        for (number, (row, is_send)) in (first..).zip(events.of_chunk()) {
            if self.of_rows.is_empty() {
                self.of_rows.resize(chunk.len(), NO_MESSAGE);
            }
            if is_send {
                self.of_rows[row as usize] = number;
            }
        }
        let (of_rows, matched) = (&mut self.of_rows, &mut self.matched);
        self.pairs.feed(&events, |message| {
            let (send, receive) = (message.send, message.receive);
            let is_late = receive.number < first;
            if !is_late {
                of_rows[receive.index as usize] = send.number;
            }
            matched.push(Message {
                number: send.number,
                send_ns: send.time_ns,
                receive_ns: receive.time_ns,
                from: send.stream,
                to: receive.stream,
                is_late,
            });
        });
    }
}

struct Driver<'a> {
    context: &'a Context<'a>,
    exporter: &'a mut dyn Exporter,
    wants: Wants,
    /// By location.
    open: Vec<Vec<Open>>,
    /// By location: the calls that are open where the window begins were told of.
    has_begun: Vec<bool>,
    next_call: u64,
    messages: Option<Messages>,
    is_move: FxHashMap<EventTypeId, bool>,
    /// The filter, within the window.
    query: Query,
    failure: Option<anyhow::Error>,
    told: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Driver<'_> {
    fn note(&mut self, outcome: anyhow::Result<()>) {
        if let Err(error) = outcome
            && self.failure.is_none()
        {
            self.failure = Some(error);
        }
    }

    /// Tells of the calls that are open where the window begins, at a location's first moment in it.
    fn reach(&mut self, location: usize, frames: &[Frame], time_ns: i64) {
        if self.has_begun[location] || time_ns < self.context.window.from_ns {
            return;
        }
        self.has_begun[location] = true;
        if !self.wants.begins {
            return;
        }
        for (frame, open) in frames.iter().zip(self.open[location].clone()) {
            if open.number.is_some() {
                let enter = Enter {
                    location,
                    region: frame.region,
                    time_ns: frame.entered_ns.max(self.context.window.from_ns),
                };
                let outcome = self.exporter.enter(&enter);
                self.note(outcome);
            }
        }
    }

    fn look(&mut self, chunk: OrderedChunk) -> anyhow::Result<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        self.told += chunk.len() as u64;
        (self.progress)(self.told);
        if !self.wants.events && self.messages.is_none() {
            return Ok(());
        }
        if let Some(messages) = &mut self.messages {
            messages.take(&chunk);
        }
        let window = self.context.window;
        let last_ns = chunk.times_ns().last();
        if self.wants.events && last_ns.is_some_and(|last_ns| last_ns >= window.from_ns) {
            let of_chunk = ChunkEvents::of(chunk, self.context.definitions, &self.query);
            let is_move = of_chunk.event_types();
            let is_move: Vec<bool> = is_move.map(|id| self.is_move.contains_key(&id)).collect();
            if !of_chunk.is_empty() {
                let messages = self.messages.as_ref();
                self.exporter.events(&Events {
                    of_chunk: &Arc::new(of_chunk),
                    messages: messages.map_or(&[], |messages| &messages.of_rows),
                    is_move: &is_move,
                })?;
            }
        }
        let filter = self.context.filter;
        let matched = self.messages.as_ref().map(|messages| &messages.matched);
        for message in matched.into_iter().flatten() {
            let is_taken = filter.takes_stream(message.from) || filter.takes_stream(message.to);
            if is_taken && window.contains(message.receive_ns) {
                self.exporter.message(message)?;
            }
        }
        Ok(())
    }
}

impl CallSink for Driver<'_> {
    fn enter(&mut self, location: usize, frames: &[Frame], region: RegionId, time_ns: i64) -> u32 {
        if !self.wants.calls {
            return 0;
        }
        self.reach(location, frames, time_ns);
        let is_taken = self.context.filter.takes_region(region);
        let parent = self.open[location].last().and_then(|open| open.innermost);
        let number = is_taken.then(|| {
            self.next_call += 1;
            self.next_call
        });
        self.open[location].push(Open {
            number,
            innermost: number.or(parent),
            exclusive_ns: 0,
        });
        if is_taken && self.wants.begins && self.has_begun[location] {
            let outcome = self.exporter.enter(&Enter {
                location,
                region,
                time_ns,
            });
            self.note(outcome);
        }
        0
    }

    fn spend(&mut self, location: usize, frames: &[Frame], from_ns: i64, to_ns: i64) {
        let ns = self.context.window.clip(from_ns, to_ns);
        if self.wants.calls
            && let Some(open) = self.open[location].last_mut()
        {
            open.exclusive_ns += ns;
        }
        if self.wants.time && ns != 0 {
            self.exporter.spend(location, frames, ns);
        }
    }

    fn close(
        &mut self,
        location: usize,
        frames: &[Frame],
        frame: &Frame,
        time_ns: i64,
        how: Close,
    ) {
        if !self.wants.calls {
            return;
        }
        // Those around it first; then the call itself, which is no frame any more.
        let is_first = !self.has_begun[location] && time_ns >= self.context.window.from_ns;
        self.reach(location, frames, time_ns);
        let Some(open) = self.open[location].pop() else {
            return;
        };
        let (Some(number), true) = (open.number, self.has_begun[location]) else {
            return;
        };
        let window = self.context.window;
        if is_first && self.wants.begins {
            let outcome = self.exporter.enter(&Enter {
                location,
                region: frame.region,
                time_ns: frame.entered_ns.max(window.from_ns),
            });
            self.note(outcome);
        }
        let around = self.open[location].last();
        let outcome = self.exporter.leave(&Call {
            number,
            parent: around.and_then(|open| open.innermost),
            location,
            region: frame.region,
            begin_ns: frame.entered_ns,
            end_ns: time_ns,
            inclusive_ns: window.clip(frame.entered_ns, time_ns),
            exclusive_ns: open.exclusive_ns,
            depth: frames.len(),
            is_uncertain: frame.is_uncertain,
            is_outermost: frame.is_outermost,
            how,
        });
        self.note(outcome);
    }

    fn unmatched(&mut self, location: usize, region: RegionId, time_ns: i64) {
        let is_taken = self.context.filter.takes_region(region);
        if self.wants.calls && is_taken && self.context.window.contains(time_ns) {
            let outcome = self.exporter.unmatched(&Enter {
                location,
                region,
                time_ns,
            });
            self.note(outcome);
        }
    }
}

impl Sink for Driver<'_> {}

/// Reads what is exported once, and gives it to an exporter; gives what reading showed.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub(crate) fn run<'a>(
    context: &'a Context<'a>,
    exporter: Box<dyn Exporter + Send + 'a>,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<(ReadSummary, Option<MessageCounts>)> {
    let wants = exporter.wants();
    if !wants.apart {
        return pass(context, exporter, wants, progress);
    }
    std::thread::scope(|scope| match Relay::start(scope, exporter) {
        Ok(relay) => pass(context, Box::new(relay), wants, progress),
        Err(exporter) => pass(context, exporter, wants, progress),
    })
}

fn pass<'a>(
    context: &'a Context<'a>,
    mut exporter: Box<dyn Exporter + Send + '_>,
    mut wants: Wants,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<(ReadSummary, Option<MessageCounts>)> {
    let (opened, window) = (context.opened, context.window);
    let mut calls = Calls::new(context.definitions, &context.filter.within(context.window));
    let types = context.definitions.event_types.keys().copied();
    let moves: Vec<EventTypeId> = types.filter(|id| calls.has_moves(*id)).collect();
    if wants.calls_by_type {
        wants.calls &= moves.iter().any(|id| context.filter.takes_event_type(*id));
    }
    let messages = match wants.messages {
        true => Messages::of(opened)?,
        false => None,
    };
    // Messages are matched from the beginning.
    calls.from_start = messages.is_some();
    let mut driver = Driver {
        context,
        exporter: &mut *exporter,
        wants,
        open: vec![Vec::new(); context.locations.len()],
        has_begun: vec![false; context.locations.len()],
        next_call: 0,
        messages,
        is_move: moves.into_iter().map(|id| (id, true)).collect(),
        query: context.filter.within(window),
        failure: None,
        told: 0,
        progress,
    };
    let is_of_calls = wants.calls || wants.time;
    let mut failure = None;
    let mut look = |chunk: OrderedChunk, driver: &mut Driver<'_>| {
        driver.look(chunk).map_err(|error| {
            failure = Some(error);
            MergeError::Stopped
        })
    };
    let outcome = if is_of_calls || driver.messages.is_some() {
        calls.read_until(opened, &mut driver, look)
    } else {
        opened.for_each_chunk(window, |chunk| look(chunk, &mut driver))
    };
    let (late, messages) = (driver.failure.take(), driver.messages.take());
    if let Some(error) = failure.or(late) {
        return Err(exporter.failure().unwrap_or(error));
    }
    let outcome = outcome?;
    let losses = outcome.losses.iter();
    let query = context.filter.within(window);
    let losses = losses.filter(|loss| query.takes_loss(loss));
    let losses: Vec<TraceLoss> = losses.copied().collect();
    let counts = messages.map(|messages| messages.pairs.finish());
    exporter.finish(&Ending {
        losses: &losses,
        outcome: &outcome,
    })?;
    Ok((outcome, counts))
}
