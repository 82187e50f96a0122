//! Connections between the lanes of a timeline: messages and waits.

use std::collections::BTreeSet;

use annals_analysis::{
    CollectiveInstance, MessageWaits, MpiCoverage, Wait, bin_of, bin_start, for_each_collective,
    for_each_message,
};
use annals_format::{Definitions, EventTypeId, Role, StreamId};
use annals_merger::{ByStream, Message, Query, Reader, Window};

use super::layout::{LaneWait, MessageLine, Request};
use crate::views::mpi_note;

/// Messages that are kept as lines, at most. Of more of them, evenly spread ones are kept.
const MOST_LINES: usize = 2000;

/// Maximum number of events before the window's end for which a trace is read from its start by default, to match
/// messages; and in the window, for which times of regions are added up from all calls.
pub const FEW_EVENTS: u64 = 2_000_000;

/// Maximum number of waits that are too short to be drawn but are kept until the longest of them
/// are known.
const MOST_SHORT: usize = 4096;

/// Number of waits that are too short to be drawn but are kept: enough for the longest, even if some turn out to be in
/// no call.
const MOST_LONGEST: usize = 64;

/// Messages and waits of a window.
#[derive(Debug)]
pub(super) struct Links {
    /// Some of the messages, in the order in which they were matched.
    pub(super) lines: Vec<MessageLine>,
    /// Number of messages.
    pub(super) count: u64,
    /// Number of messages by the column of their send.
    pub(super) by_column: Vec<u64>,
    /// By lane: its waits that are long enough to be drawn or among the longest, in order of their begin.
    pub(super) waits: Vec<Vec<LaneWait>>,
    /// By lane and column: how long the lane waited, nanoseconds, all waits together.
    pub(super) waited_ns: Vec<Vec<i64>>,
    /// Waits that are too short to be drawn: candidates for the longest ones, with their lanes.
    short: Vec<(usize, LaneWait)>,
}

/// The lanes for which links are gathered.
pub(super) struct LinkedLanes<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) window: Window,
    pub(super) columns: usize,
    pub(super) waits: MessageWaits,
    pub(super) of_streams: &'a ByStream<usize>,
    pub(super) count: usize,
}

impl LinkedLanes<'_> {
    /// Returns the lane of a stream.
    fn lane(&self, stream: StreamId) -> Option<usize> {
        self.of_streams.get(stream)
    }

    /// Returns whether an interval is at least half a column long within the window: shorter ones are not drawn.
    fn is_visible(&self, from_ns: i64, to_ns: i64) -> bool {
        let span = i128::from(self.window.to_ns) - i128::from(self.window.from_ns);
        i128::from(self.window.clip(from_ns, to_ns)) * 2 * self.columns as i128 >= span
    }
}

impl Links {
    fn new(lanes: &LinkedLanes<'_>) -> Self {
        Self {
            lines: Vec::new(),
            count: 0,
            by_column: vec![0; lanes.columns],
            waits: vec![Vec::new(); lanes.count],
            waited_ns: vec![vec![0; lanes.columns]; lanes.count],
            short: Vec::new(),
        }
    }

    /// Adds a wait of a lane, if it lies in the window.
    fn add_wait(
        &mut self,
        lanes: &LinkedLanes<'_>,
        lane: usize,
        from_ns: i64,
        to_ns: i64,
        named: impl FnOnce() -> Wait,
    ) {
        let window = lanes.window;
        if window.clip(from_ns, to_ns) <= 0 {
            return;
        }
        let first = bin_of(window, lanes.columns, from_ns.max(window.from_ns));
        let last = bin_of(window, lanes.columns, to_ns.min(window.to_ns) - 1);
        for column in first..=last {
            let of_column = Window {
                from_ns: bin_start(window, lanes.columns, column),
                to_ns: bin_start(window, lanes.columns, column + 1),
            };
            self.waited_ns[lane][column] += of_column.clip(from_ns, to_ns);
        }
        let wait = LaneWait {
            from_ns,
            to_ns,
            call: None,
            wait: named(),
        };
        if lanes.is_visible(from_ns, to_ns) {
            self.waits[lane].push(wait);
            return;
        }
        self.short.push((lane, wait));
        if self.short.len() >= MOST_SHORT {
            self.keep_longest(MOST_SHORT / 8);
        }
    }

    /// Keeps the longest of the waits that are too short to be drawn.
    fn keep_longest(&mut self, most: usize) {
        self.short.sort_by_key(|(lane, wait)| {
            let length = wait.to_ns.saturating_sub(wait.from_ns);
            (std::cmp::Reverse(length), wait.from_ns, *lane)
        });
        self.short.truncate(most);
    }

    fn add_message(&mut self, lanes: &LinkedLanes<'_>, message: &Message, stride: &mut u64) {
        for wait in lanes.waits.of(message) {
            if let Some(lane) = lanes.lane(wait.waiting.stream) {
                self.add_wait(lanes, lane, wait.from_ns, wait.to_ns, || {
                    wait.named(lanes.definitions)
                });
            }
        }
        let (send, receive) = (&message.send, &message.receive);
        let (Some(from), Some(to)) = (lanes.lane(send.stream), lanes.lane(receive.stream)) else {
            return;
        };
        let first = send.time_ns.min(receive.time_ns);
        if !lanes
            .window
            .overlaps(first, send.time_ns.max(receive.time_ns))
        {
            return;
        }
        self.by_column[bin_of(lanes.window, lanes.columns, send.time_ns)] += 1;
        if self.count.is_multiple_of(*stride) {
            self.lines.push(MessageLine {
                from: (from, send.time_ns),
                to: (to, receive.time_ns),
            });
        }
        self.count += 1;
        if self.lines.len() > MOST_LINES {
            *stride *= 2;
            let mut number = 0;
            self.lines.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    fn add_collective(&mut self, lanes: &LinkedLanes<'_>, operation: &CollectiveInstance<'_>) {
        let to_ns = operation.last.time_ns;
        for begin in operation.begins {
            if let Some(lane) = lanes.lane(begin.stream) {
                self.add_wait(lanes, lane, begin.time_ns, to_ns, || {
                    operation.wait(begin, lanes.definitions)
                });
            }
        }
    }

    /// Gathers the messages and waits of the lanes. Pushes a note if they are left out because too much must be read.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub(super) fn of(
        reader: &Reader,
        filter: &Query,
        request: Request,
        lanes: &LinkedLanes<'_>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Self> {
        let mut links = Self::new(lanes);
        let linking = |role| matches!(role, Role::Send | Role::Receive | Role::CollectiveBegin);
        let types = lanes.definitions.event_types.values();
        let of_links: BTreeSet<EventTypeId> =
            types.filter(|t| linking(t.role)).map(|t| t.id).collect();
        if of_links.is_empty() || request.messages == Some(false) {
            return Ok(links);
        }
        let before = reader.events_before(lanes.window.to_ns);
        if request.messages.is_none() && before > FEW_EVENTS {
            notes.push(
                "messages and waits are not drawn: to match them, the trace must be read from its start \
                 (--messages does that)"
                    .to_owned(),
            );
            return Ok(links);
        }
        // The end of a wait in the window may be after the window: all of the trace is read if it is short.
        let is_short =
            request.messages == Some(true) || reader.events_before(i64::MAX) <= FEW_EVENTS;
        let span = lanes.window.to_ns.saturating_sub(lanes.window.from_ns);
        let window = Window {
            from_ns: lanes.window.from_ns,
            to_ns: match is_short {
                true => i64::MAX,
                false => lanes.window.to_ns.saturating_add(span),
            },
        };
        let query = filter.within(window);
        let mut stride = 1;
        for_each_message(reader, &query, |message| {
            links.add_message(lanes, message, &mut stride);
        })?;
        if lanes.waits.are_known() {
            // All members are needed to know the last one.
            let all = Query::new().within(window);
            for_each_collective(reader, &all, |operation| {
                links.add_collective(lanes, operation);
            })?;
        } else if let Some(note) = mpi_note(&MpiCoverage::of(lanes.definitions)) {
            notes.push(note);
        }
        links.keep_longest(MOST_LONGEST);
        for (lane, wait) in std::mem::take(&mut links.short) {
            links.waits[lane].push(wait);
        }
        for waits in &mut links.waits {
            waits.sort_by_key(|wait| (wait.from_ns, wait.to_ns));
        }
        Ok(links)
    }
}
