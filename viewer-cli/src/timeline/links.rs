//! What connects the lanes of a timeline: messages, and who waited for whom.

use std::collections::BTreeSet;

use annals_analysis::{
    CollectiveInstance, Wait, bin_of, for_each_collective, for_each_message, message_waits,
};
use annals_format::{Definitions, EventTypeId, RegionId, Role, StreamId};
use annals_merger::{ByStream, Message, Query, Reader, Window};

use super::layout::{MessageLine, Request};

/// Messages that are kept as lines, at most. Of more of them, evenly spread ones are kept.
const MOST_LINES: usize = 2000;

/// A trace with at most this many events before the window's end is read from its start to match messages, without being
/// asked to.
const FEW_EVENTS: u64 = 2_000_000;

/// A time in which a lane waited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneWait {
    /// Trace time at which it begins, nanoseconds.
    pub from_ns: i64,
    /// Trace time at which it ends, nanoseconds: when what was waited for came, or the call around was left.
    pub to_ns: i64,
    /// Region and level of the call that waits. `None` if it lies in no call.
    pub call: Option<(RegionId, u32)>,
    /// Who waited for whom.
    pub wait: Wait,
}

/// Messages and waits of a window.
#[derive(Debug)]
pub(super) struct Links {
    /// Some of the messages, in the order in which they were matched.
    pub(super) lines: Vec<MessageLine>,
    /// Number of messages.
    pub(super) count: u64,
    /// Number of messages by the column of their send.
    pub(super) by_column: Vec<u64>,
    /// By lane: its waits, by the time at which they begin.
    pub(super) waits: Vec<Vec<LaneWait>>,
}

/// What links are gathered for.
pub(super) struct Lanes<'a> {
    pub(super) definitions: &'a Definitions,
    pub(super) window: Window,
    pub(super) columns: usize,
    pub(super) of_streams: &'a ByStream<usize>,
    pub(super) count: usize,
}

impl Lanes<'_> {
    /// Returns the lane of a stream.
    fn lane(&self, stream: StreamId) -> Option<usize> {
        self.of_streams.get(stream)
    }

    /// Whether a time is at least half a column long within the window: shorter ones are not to be seen.
    fn is_visible(&self, from_ns: i64, to_ns: i64) -> bool {
        let span = i128::from(self.window.to_ns) - i128::from(self.window.from_ns);
        i128::from(self.window.clip(from_ns, to_ns)) * 2 * self.columns as i128 >= span
    }
}

impl Links {
    fn new(lanes: &Lanes<'_>) -> Self {
        Self {
            lines: Vec::new(),
            count: 0,
            by_column: vec![0; lanes.columns],
            waits: vec![Vec::new(); lanes.count],
        }
    }

    fn add_message(&mut self, lanes: &Lanes<'_>, message: &Message, stride: &mut u64) {
        for wait in message_waits(message) {
            if let Some(lane) = lanes.lane(wait.waiting.stream)
                && lanes.is_visible(wait.from_ns, wait.to_ns)
            {
                self.waits[lane].push(LaneWait {
                    from_ns: wait.from_ns,
                    to_ns: wait.to_ns,
                    call: None,
                    wait: wait.named(lanes.definitions),
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

    fn add_collective(&mut self, lanes: &Lanes<'_>, operation: &CollectiveInstance<'_>) {
        let to_ns = operation.last.time_ns;
        for begin in operation.begins {
            if let Some(lane) = lanes.lane(begin.stream)
                && lanes.is_visible(begin.time_ns, to_ns)
            {
                self.waits[lane].push(LaneWait {
                    from_ns: begin.time_ns,
                    to_ns,
                    call: None,
                    wait: operation.wait(begin, lanes.definitions),
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
        lanes: &Lanes<'_>,
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
        // What a lane waits for in the window may come after it.
        let span = lanes.window.to_ns.saturating_sub(lanes.window.from_ns);
        let window = Window {
            to_ns: lanes.window.to_ns.saturating_add(span),
            ..lanes.window
        };
        let query = filter.within(window);
        let mut stride = 1;
        for_each_message(reader, &query, |message| {
            links.add_message(lanes, message, &mut stride);
        })?;
        // All members are needed to know the last one.
        let all = Query::new().within(window);
        for_each_collective(reader, &all, |operation| {
            links.add_collective(lanes, operation);
        })?;
        for waits in &mut links.waits {
            waits.sort_by_key(|wait| (wait.from_ns, wait.to_ns));
        }
        Ok(links)
    }
}
