//! Which receive took which send, for whoever reads a trace: the rules are those of the causality check.

use std::collections::BTreeMap;

use annals_format::{Definitions, EventTypeId, ProcessId, StreamTotals, TraceChunk};
use rustc_hash::FxHashSet;

use crate::messages::causality::MESSAGES_IN_FLIGHT;
use crate::messages::matching::{Matcher, MessageCounts};
use crate::messages::{Extractor, Mark, carried};

/// One side of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageSide {
    /// Number of the event among those that [`MessagePairs::is_message`] of the trace, from 0.
    pub number: u64,
    /// Trace time, nanoseconds.
    pub time_ns: i64,
    /// Its process.
    pub process: ProcessId,
}

/// Matches sends and receives, chunk by chunk, from the beginning of a trace.
#[derive(Debug)]
pub struct MessagePairs {
    extractor: Extractor,
    matcher: Matcher,
}

fn is_dense(mut ids: impl Iterator<Item = usize>) -> bool {
    let mut next = 0..;
    ids.all(|id| next.next() == Some(id))
}

impl MessagePairs {
    /// None when no event type is of messages, or the definitions are not those of a whole trace.
    pub fn of(definitions: &Definitions, totals: &[StreamTotals]) -> Option<Self> {
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
        let of_streams = totals.iter().map(|totals| {
            let raised = totals.rows.iter().filter(|row| row.raised != 0);
            let is_vague = |row: &annals_format::TypeTotals| {
                row.raised_is_lower_bound || row.event_type == annals_format::ANY_EVENT_TYPE
            };
            let lost = if totals.rows.iter().any(is_vague) {
                crate::messages::Lost::ALL
            } else {
                carried(definitions, raised.map(|row| row.event_type))
            };
            (totals.stream, lost)
        });
        let carries: BTreeMap<_, _> = of_streams.collect();
        let extractor = Extractor::of(definitions, &carries)?;
        let matcher = Matcher::new(extractor.processes(), MESSAGES_IN_FLIGHT);
        Some(Self { extractor, matcher })
    }

    /// Whether events of a type are numbered.
    pub fn is_message(&self, event_type: EventTypeId) -> bool {
        self.extractor.is_message(event_type)
    }

    /// Takes the next chunk in; `paired` gets the earlier and the later side of what belongs together: a send and its
    /// receive, or two events of a collective operation.
    pub fn take(&mut self, chunk: &TraceChunk, mut paired: impl FnMut(MessageSide, MessageSide)) {
        let side = |mark: Mark| MessageSide {
            number: mark.number,
            time_ns: mark.time_ns,
            process: ProcessId::new(mark.process),
        };
        let batch = self.extractor.extract(chunk);
        self.matcher
            .feed(&batch, &mut |from, to| paired(side(from), side(to)));
    }

    /// Numbers of the sides that may still find their partner: as many as may be in flight at most.
    pub fn waiting(&self) -> FxHashSet<u64> {
        self.matcher.waiting().map(|mark| mark.number).collect()
    }

    /// What became of the rest.
    pub fn finish(mut self) -> MessageCounts {
        self.matcher.finish(&mut |_, _| {});
        self.matcher.counts
    }
}
