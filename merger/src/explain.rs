//! Explains why one event of a trace precedes another.

use annals_format::{
    ClockId, Definitions, EventTypeId, OrderedChunk, ProcessId, StreamId, TraceChunk,
};

use crate::clocks::bounds::Bounds;
use crate::error::Result;
use crate::messages::causality::MESSAGES_IN_FLIGHT;
use crate::messages::{Extractor, Lost, Mark, MessageBatch};
use crate::read::Reader;
use crate::window::Window;

/// How often the messages are read for a path; each time finds at least one more step.
const MOST_PASSES: usize = 16;

/// A user's name for an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventName {
    /// Rank, name of the location, number among the events there in the order of the trace, from 0.
    Place(u32, String, u64),
    /// The first event at or after a trace time, nanoseconds.
    Time(i64),
}

/// An event that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundEvent {
    /// Its number in the trace, from 0.
    pub number: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its type.
    pub event_type: EventTypeId,
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// By how much causality repair moved it, nanoseconds.
    pub shift_ns: i64,
    /// Messages of the trace before it, and up to it.
    messages: (u64, u64),
}

/// One message of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Process that sent, or began a collective operation.
    pub from: ProcessId,
    /// When, trace time, nanoseconds.
    pub from_ns: i64,
    /// Process that received, or ended it.
    pub to: ProcessId,
    /// When, trace time, nanoseconds.
    pub to_ns: i64,
}

/// The rule that ordered two events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rule {
    /// They are of one stream, in this order.
    SameStream,
    /// Their clocks are farther apart than they can be wrong.
    ClockGap,
    /// Messages lead from the first to the second.
    MessagePath(Vec<Hop>),
    /// Nothing: they are concurrent. Equal times are ordered by rank, recording and stream, others by
    /// what their clocks say.
    Concurrent,
}

/// The reason why one event precedes another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The first event.
    pub first: FoundEvent,
    /// The second event.
    pub second: FoundEvent,
    /// The rule that ordered them.
    pub rule: Rule,
    /// How far apart they are by their clocks, without what repair moved, nanoseconds.
    pub gap_ns: i64,
    /// Bound of the error of `gap_ns`, nanoseconds; `None` means that there is none.
    pub bound_ns: Option<u64>,
    /// Messages that lead from the second to the first: the order contradicts them.
    pub contradiction: Vec<Hop>,
    /// Whether losses, or too many messages in flight, may hide a message path.
    pub may_miss_messages: bool,
}

/// For a process: the number of the message from which on its events happened after another event, and the message that
/// proves it.
type Reached = Option<(u64, Option<(Mark, Mark)>)>;

/// The messages that lead from one event to another, if they do.
struct Search<'a> {
    opened: &'a Reader,
    extractor: Option<Extractor>,
    may_miss: bool,
}

impl Search<'_> {
    /// Reads all messages, and passes matched pairs to `paired`.
    fn read(&mut self, mut paired: impl FnMut(Mark, Mark)) -> Result<()> {
        let Some(extractor) = &self.extractor else {
            return Ok(());
        };
        let mut matcher = extractor.matcher(MESSAGES_IN_FLIGHT);
        matcher.pair_all();
        self.opened
            .for_each_chunk(Window::ALL, |chunk: TraceChunk| {
                let batch: MessageBatch = extractor.extract(&chunk);
                matcher.feed(&batch, &mut paired);
                Ok(())
            })?;
        matcher.finish(&mut paired);
        let (counts, of_collectives) = (matcher.counts(), matcher.collective_counts());
        let missed = counts.unmatchable_by_loss
            + counts.over_limit
            + of_collectives.unmatchable_by_loss
            + of_collectives.over_limit;
        self.may_miss |= missed != 0;
        Ok(())
    }

    fn path(&mut self, a: (u32, &FoundEvent), b: (u32, &FoundEvent)) -> Result<Option<Vec<Hop>>> {
        let Some(extractor) = &self.extractor else {
            return Ok(None);
        };
        let mut reached: Vec<Reached> = vec![None; extractor.processes()];
        if let Some(start) = reached.get_mut(a.0 as usize) {
            *start = Some((a.1.messages.0, None));
        }
        for _ in 0..MOST_PASSES {
            let mut has_changed = false;
            self.read(|from, to| {
                let is_behind = reached
                    .get(from.process as usize)
                    .copied()
                    .flatten()
                    .is_some_and(|(number, _)| number <= from.number);
                let known = reached.get_mut(to.process as usize);
                let Some(known) = known.filter(|_| is_behind) else {
                    return;
                };
                if known.is_none_or(|(number, _)| to.number < number) {
                    *known = Some((to.number, Some((from, to))));
                    has_changed = true;
                }
            })?;
            if !has_changed {
                break;
            }
        }
        let arrived = reached.get(b.0 as usize).copied().flatten();
        if arrived.is_none_or(|(number, hop)| hop.is_none() || number >= b.1.messages.1) {
            return Ok(None);
        }
        let mut hops = Vec::new();
        let mut process = b.0;
        while let Some((_, Some((from, to)))) = reached.get(process as usize).copied().flatten() {
            hops.push(Hop {
                from: ProcessId::new(from.process),
                from_ns: from.time_ns,
                to: ProcessId::new(to.process),
                to_ns: to.time_ns,
            });
            process = from.process;
            if hops.len() > reached.len() {
                break;
            }
        }
        hops.reverse();
        Ok(Some(hops))
    }
}

fn is_at(definitions: &Definitions, stream: StreamId, rank: u32, location: &str) -> bool {
    let found = || {
        let stream = definitions.streams.get(&stream)?;
        let source = definitions.sources.get(&stream.source)?;
        let of_process = definitions.ranks.get(&source.process)?;
        let at = definitions.locations.get(&stream.location?)?;
        Some(of_process.rank == rank && definitions.string(at.name) == location)
    };
    found().unwrap_or(false)
}

/// Finds two events and determines what ordered them, or returns the index of a name that no event
/// has.
///
/// # Errors
/// If the input cannot be read.
pub fn explain(
    opened: &Reader,
    names: [&EventName; 2],
) -> Result<std::result::Result<Explanation, usize>> {
    let definitions = opened.definitions();
    let carries = definitions
        .streams
        .keys()
        .map(|stream| (*stream, Lost::ALL));
    let extractor = Extractor::of(definitions, &carries.collect());
    let mut found: [Option<FoundEvent>; 2] = [None; 2];
    let mut seen = [0_u64; 2];
    let (mut number, mut messages) = (0_u64, 0_u64);
    opened.for_each_chunk(Window::ALL, |chunk: OrderedChunk| {
        let is_message = |index: usize| {
            let event_type = chunk.columns(index).event_type;
            extractor.as_ref().is_some_and(|e| e.is_message(event_type))
        };
        for index in 0..chunk.len() {
            let (stream, time_ns) = (chunk.stream(index), chunk.time_ns(index));
            let up_to = messages + u64::from(is_message(index));
            for (which, name) in names.iter().enumerate() {
                let is_it = match name {
                    EventName::Time(wanted_ns) => time_ns >= *wanted_ns,
                    EventName::Place(rank, location, position) => {
                        let is_here = is_at(definitions, stream, *rank, location);
                        seen[which] += u64::from(is_here);
                        is_here && seen[which] == position + 1
                    }
                };
                if is_it && found[which].is_none() {
                    found[which] = Some(FoundEvent {
                        number,
                        stream,
                        event_type: chunk.columns(index).event_type,
                        time_ns,
                        shift_ns: chunk.shift_ns(index),
                        messages: (messages, up_to),
                    });
                }
            }
            messages = up_to;
            number += 1;
        }
        Ok(())
    })?;
    let (first, second) = match found {
        [None, _] => return Ok(Err(0)),
        [_, None] => return Ok(Err(1)),
        [Some(a), Some(b)] if a.number <= b.number => (a, b),
        [Some(a), Some(b)] => (b, a),
    };
    let clock = |event: &FoundEvent| {
        let stream = definitions.streams.get(&event.stream);
        let source = stream.and_then(|stream| definitions.sources.get(&stream.source));
        source.map_or(ClockId::new(u32::MAX), |source| source.clock)
    };
    let process = |event: &FoundEvent| {
        definitions
            .process_of(event.stream)
            .map_or(u32::MAX, |process| process.get())
    };
    let read = |event: &FoundEvent| event.time_ns.saturating_sub(event.shift_ns);
    let gap_ns = read(&second).saturating_sub(read(&first));
    let bounds = Bounds::of(definitions);
    let bound_ns = bounds.between(
        (clock(&first), read(&first)),
        (clock(&second), read(&second)),
    );
    let mut search = Search {
        opened,
        extractor,
        may_miss: false,
    };
    let ends = ((process(&first), &first), (process(&second), &second));
    let is_beyond = bound_ns.is_some_and(|bound| gap_ns > 0 && gap_ns.unsigned_abs() > bound);
    let mut contradiction = Vec::new();
    let rule = if first.stream == second.stream {
        Rule::SameStream
    } else {
        contradiction = search.path(ends.1, ends.0)?.unwrap_or_default();
        if is_beyond {
            Rule::ClockGap
        } else {
            let path = search.path(ends.0, ends.1)?;
            path.map_or(Rule::Concurrent, Rule::MessagePath)
        }
    };
    Ok(Ok(Explanation {
        first,
        second,
        rule,
        gap_ns,
        bound_ns,
        contradiction,
        may_miss_messages: search.may_miss,
    }))
}
