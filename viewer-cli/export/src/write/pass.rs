//! One pass over a trace, from which every export is made: calls as they begin and end, events chunk by chunk, messages
//! as they are matched, and the losses at the end.

use std::sync::Arc;

use annals_format::{EventTypeId, OrderedChunk, RegionId, Role, TraceLoss};
use annals_merger::{
    Analysis, Calls, ChunkEvents, Close, Frame, MergeError, MessageCounts, MessageEvents,
    MessageExtractor, MessagePairs, Query, ReadSummary, Reader,
};
use rustc_hash::FxHashMap;

use crate::write::exporter::{
    Call, Context, Ending, Enter, Events, Exporter, Message, NO_MESSAGE, Wants,
};
use crate::write::relay::Relay;

/// An open call.
#[derive(Clone, Copy)]
struct Open {
    /// `None` means that it is not exported.
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
    /// By location: whether the calls that are open at the begin of the window were reported.
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

    /// Reports the calls that are open at the begin of the window, at a location's first moment in it.
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

impl Analysis for Driver<'_> {
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

/// Reads the exported data once and passes it to an exporter; returns the summary of the read.
///
/// # Errors
/// If the input cannot be read or the output not be written.
pub(crate) fn run<'a>(
    context: &'a Context<'a>,
    exporter: Box<dyn Exporter + Send + 'a>,
    strict: bool,
    progress: &mut dyn FnMut(u64),
) -> anyhow::Result<(ReadSummary, Option<MessageCounts>)> {
    let wants = exporter.wants();
    if !wants.apart {
        return pass(context, exporter, wants, strict, progress);
    }
    std::thread::scope(|scope| match Relay::start(scope, exporter) {
        Ok(relay) => pass(context, Box::new(relay), wants, strict, progress),
        Err(exporter) => pass(context, exporter, wants, strict, progress),
    })
}

fn pass<'a>(
    context: &'a Context<'a>,
    mut exporter: Box<dyn Exporter + Send + '_>,
    mut wants: Wants,
    strict: bool,
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
        calls.read(opened, &mut driver, look)
    } else {
        opened.for_each_chunk(window, |chunk| look(chunk, &mut driver))
    };
    let (late, messages) = (driver.failure.take(), driver.messages.take());
    if let Some(error) = failure.or(late) {
        return Err(exporter.failure().unwrap_or(error));
    }
    let outcome = outcome?;
    if let Some(what) = outcome.gap().filter(|_| strict) {
        return Err(MergeError::Incomplete { what }.into());
    }
    let losses = outcome.losses.iter();
    let query = context.filter.within(window);
    let losses = losses.filter(|loss| query.takes_loss(loss));
    let losses: Vec<TraceLoss> = losses.copied().collect();
    let counts = messages.map(|messages| messages.pairs.finish(|_| {}));
    exporter.finish(&Ending {
        losses: &losses,
        outcome: &outcome,
    })?;
    Ok((outcome, counts))
}
