//! Messages by bin of time and pair of locations, of processes, of hosts, and all (SPEC.md, *Messages of the overview*).

use std::collections::BTreeSet;

use annals_format::{
    Definitions, LaneKind, MessageOverview, MessageRow, MessageTotals, NO_LOCATION, TraceChunk,
};

use crate::messages::causality::MESSAGES_IN_FLIGHT;
use crate::messages::collectives::Carry;
use crate::messages::matching::{Matcher, MessageCounts};
use crate::messages::{EventColumns, EventRole, Extractor, Mark, MessageBatch, MessageLosses};
use crate::overview::bin_table::{BinTable, Row, Sum};

/// Most rows of a kind of groups.
const MOST_ROWS: usize = 1 << 17;
/// Rows of a kind of groups that even a short trace may have.
const FEW_ROWS: usize = 1 << 8;
/// Number of events for each row.
const EVENTS_OF_ROW: u64 = 1 << 7;

/// The numbers of a group by kind: of the location, the process, the host.
type Numbers = [u32; 3];

/// What an event of a message has that the matcher keeps.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Side {
    bytes: Option<u64>,
    stream: u32,
    role: Option<EventRole>,
}

impl Side {
    /// Returns what an event has.
    pub(crate) fn of(event: &EventColumns<'_>) -> Self {
        Self {
            bytes: event.bytes(),
            stream: event.stream.get(),
            role: event.role(),
        }
    }
}

impl Carry for Side {
    fn carry(&self) -> i64 {
        0
    }
}

/// The messages of a chunk.
pub(super) type Batch = MessageBatch<Side>;

/// Extracts messages from chunks. All threads share it.
#[derive(Debug)]
pub(crate) struct MessageSource {
    extractor: Extractor,
    /// By stream.
    numbers: Vec<Numbers>,
    /// The kinds of groups that have rows.
    kinds: Vec<LaneKind>,
}

impl MessageSource {
    /// Returns what extracts the messages of a trace. `None` if it can have none, or if it is not whole.
    pub(super) fn of(definitions: &Definitions, losses: &MessageLosses) -> Option<Self> {
        let extractor = Extractor::of_losses(definitions, losses)?;
        if !extractor.has_messages() {
            return None;
        }
        let numbers = definitions.streams.values().map(|stream| {
            let location = stream
                .location
                .and_then(|id| definitions.locations.get(&id));
            let source = definitions.sources.get(&stream.source);
            let process = location.map(|location| location.process);
            let process = process.or_else(|| source.map(|source| source.process));
            let host = process.and_then(|id| definitions.processes.get(&id));
            [
                location.map_or(NO_LOCATION, |location| location.id.get()),
                process.map_or(NO_LOCATION, |process| process.get()),
                host.map_or(NO_LOCATION, |process| process.host.get()),
            ]
        });
        Some(Self {
            extractor,
            numbers: numbers.collect(),
            kinds: kinds_of(definitions),
        })
    }

    /// Returns the messages of a chunk.
    pub(super) fn extract(&self, chunk: &TraceChunk) -> Batch {
        self.extractor.extract_with(chunk, Side::of)
    }
}

/// Returns the kinds of groups of which a trace has fewer than of the kind before.
fn kinds_of(definitions: &Definitions) -> Vec<LaneKind> {
    let hosts = definitions.processes.values().map(|process| process.host);
    let hosts: BTreeSet<_> = hosts.collect();
    let mut last = definitions.locations.len();
    let mut kinds = vec![LaneKind::Location];
    for (kind, count) in [
        (LaneKind::Process, definitions.processes.len()),
        (LaneKind::Host, hosts.len()),
        (LaneKind::All, 1),
    ] {
        if count < last {
            kinds.push(kind);
            last = count;
        }
    }
    kinds
}

/// Messages that were received in a bin.
#[derive(Clone, Debug, Default)]
struct MessageSum {
    count: u64,
    bytes: u64,
    longest_ns: Option<i64>,
}

impl Sum for MessageSum {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

type Table = BinTable<(u32, u32), MessageSum>;

/// Counts messages, which are matched elsewhere, by bin.
#[derive(Debug)]
pub(crate) struct MessageCounter<'a> {
    source: &'a MessageSource,
    /// By kind.
    tables: Vec<Table>,
}

impl<'a> MessageCounter<'a> {
    pub(crate) fn new(source: &'a MessageSource) -> Self {
        let tables = source.kinds.iter().map(|_| BinTable::new(MOST_ROWS));
        Self {
            tables: tables.collect(),
            source,
        }
    }

    /// Creates a counter without counts that can be merged into this one.
    pub(crate) fn empty(&self) -> Self {
        Self {
            source: self.source,
            tables: self.tables.iter().map(Table::empty).collect(),
        }
    }

    /// Returns the largest number of sums of a table.
    pub(crate) fn most_sums(&self) -> usize {
        let tables = self.tables.iter();
        tables.map(Table::len).max().unwrap_or(0)
    }

    /// Adds what another counter of the same messages has counted.
    pub(crate) fn merge(&mut self, other: Self) {
        for (table, other) in self.tables.iter_mut().zip(other.tables) {
            table.merge(other);
        }
    }

    /// Counts a pair of events, if it is a message.
    pub(crate) fn count(&mut self, send: Mark<Side>, receive: Mark<Side>) {
        let roles = (send.detail.role, receive.detail.role);
        if roles != (Some(EventRole::Send), Some(EventRole::Receive)) {
            return;
        }
        let bytes = send.detail.bytes.or(receive.detail.bytes).unwrap_or(0);
        let length_ns = receive.time_ns.saturating_sub(send.time_ns);
        let numbers = |side: Side| self.source.numbers.get(side.stream as usize).copied();
        let (Some(from), Some(to)) = (numbers(send.detail), numbers(receive.detail)) else {
            return;
        };
        for (kind, table) in self.source.kinds.iter().zip(&mut self.tables) {
            let number = |numbers: &Numbers| match kind {
                LaneKind::Location => numbers[0],
                LaneKind::Process => numbers[1],
                LaneKind::Host => numbers[2],
                LaneKind::Source | LaneKind::All => 0,
            };
            let pair = (number(&from), number(&to));
            if let Some(sum) = table.at(pair, receive.time_ns) {
                sum.count += 1;
                sum.bytes = sum.bytes.saturating_add(bytes);
                sum.longest_ns = sum.longest_ns.max(Some(length_ns));
            }
        }
    }

    /// Returns the overview of a trace with a number of events and these counts of messages, without blocks, and its rows.
    pub(crate) fn finish(
        self,
        counts: &MessageCounts,
        events: u64,
    ) -> (MessageOverview, Vec<MessageRow>) {
        let most = usize::try_from(events / EVENTS_OF_ROW).unwrap_or(MOST_ROWS);
        let most = most.clamp(FEW_ROWS, MOST_ROWS);
        let mut rows = Vec::new();
        let mut least_levels = Vec::new();
        for (kind, table) in self.source.kinds.iter().zip(self.tables) {
            if let Some((least, of_kind)) = table.finish(most) {
                least_levels.push((*kind, least));
                rows.extend(of_kind.into_iter().map(|row| row_of(*kind, row)));
            }
        }
        rows.sort_unstable_by_key(MessageRow::key);
        let overview = MessageOverview {
            totals: MessageTotals {
                sends: counts.sends,
                receives: counts.receives,
                matched: counts.matched,
                unmatched_sends: counts.unmatched_sends,
                unmatched_receives: counts.unmatched_receives,
                unmatchable_by_loss: counts.unmatchable_by_loss,
                over_limit: counts.over_limit,
                without_peer: counts.without_peer,
            },
            least_levels,
            blocks: Vec::new(),
        };
        (overview, rows)
    }
}

/// Matches the messages of a trace, and counts them by bin.
#[derive(Debug)]
pub(super) struct MessageBins<'a> {
    matcher: Matcher<Side>,
    counter: MessageCounter<'a>,
}

impl<'a> MessageBins<'a> {
    pub(super) fn new(source: &'a MessageSource) -> Self {
        let mut matcher = source.extractor.matcher(MESSAGES_IN_FLIGHT);
        matcher.feed(&source.extractor.suppressed_losses(), &mut |_, _| {});
        Self {
            matcher,
            counter: MessageCounter::new(source),
        }
    }

    /// Takes the messages of the next chunk.
    pub(super) fn take(&mut self, batch: &Batch) {
        let counter = &mut self.counter;
        self.matcher.feed(batch, &mut |send, receive| {
            counter.count(send, receive);
        });
    }

    /// Ends the matching. Returns the overview of a trace with a number of events, without blocks, and its rows.
    pub(super) fn finish(mut self, events: u64) -> (MessageOverview, Vec<MessageRow>) {
        let counter = &mut self.counter;
        self.matcher.finish(&mut |send, receive| {
            counter.count(send, receive);
        });
        self.counter.finish(&self.matcher.counts(), events)
    }
}

fn row_of(kind: LaneKind, row: Row<(u32, u32), MessageSum>) -> MessageRow {
    let (level, bin, (from, to), sum) = row;
    MessageRow {
        level,
        kind,
        bin,
        from,
        to,
        count: sum.count,
        bytes: sum.bytes,
        longest_ns: sum.longest_ns.unwrap_or(0),
    }
}
