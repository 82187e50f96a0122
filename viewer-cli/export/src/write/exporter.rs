//! The items of a trace that an export receives, and the trait that each format implements to
//! receive them.

use std::ops::Deref;
use std::sync::Arc;

use annals_format::{Definitions, LocationId, RegionId, StreamId, TraceLoss};
use annals_merger::{
    ChunkEvents, Close, Frame, Places, Query, ReadSummary, Reader, StreamPlace, Window,
};

/// Marks an event that belongs to no message.
pub(crate) const NO_MESSAGE: u64 = u64::MAX;

/// The information about the trace that every export needs.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The input.
    pub(crate) opened: &'a Reader,
    /// Its definitions.
    pub(crate) definitions: &'a Definitions,
    /// Where streams are.
    pub(crate) places: Places,
    /// The filter of the export.
    pub(crate) filter: &'a Query,
    /// The time window that is exported.
    pub(crate) window: Window,
    /// Locations by number.
    pub(crate) locations: Vec<LocationId>,
}

impl<'a> Context<'a> {
    /// Creates the context of an input.
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

    /// Returns rank and name of a location.
    pub(crate) fn location(&self, number: usize) -> (u32, &'a str) {
        let id = self.locations[number];
        let name = self.definitions.locations.get(&id);
        let name = name.map_or("", |location| self.definitions.string(location.name));
        (self.definitions.rank_of_location(id), name)
    }

    /// Returns the streams whose events are exported, with their places.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamPlace)> {
        let streams = self.definitions.streams.keys().copied();
        let taken = streams.filter(|stream| self.filter.takes_stream(*stream));
        taken.map(|stream| (stream, self.places.get(stream)))
    }

    /// Returns the number of a location.
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
    /// When it ended; for an open call, the end of the window.
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

/// Returns how a call ended, in a word.
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
    /// Returns the number of the message that an event sends or receives.
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

/// The items that an exporter needs.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Wants {
    /// Calls.
    pub(crate) calls: bool,
    /// Begins of calls, too.
    pub(crate) begins: bool,
    /// Whether the exporter runs in a separate thread, because writing is most of the work. Not possible with `time`,
    /// whose stacks are borrowed.
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

/// The information that is known after everything was read.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    /// Losses within the window and the filter.
    pub(crate) losses: &'a [TraceLoss],
    /// The summary of the read.
    pub(crate) outcome: &'a ReadSummary,
}

/// An export: what takes in a pass and writes a format.
pub(crate) trait Exporter {
    /// Returns the items that it needs.
    fn wants(&self) -> Wants;

    /// Receives the begin of a call, in its location's order, before everything that happens in it.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        let _ = enter;
        Ok(())
    }

    /// Receives a call that ended.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        let _ = call;
        Ok(())
    }

    /// Receives a leave of a region that was not entered.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn unmatched(&mut self, leave: &Enter) -> anyhow::Result<()> {
        let _ = leave;
        Ok(())
    }

    /// Receives time that passed at a location in the innermost of these regions.
    fn spend(&mut self, location: usize, frames: &[Frame], ns: i64) {
        let _ = (location, frames, ns);
    }

    /// Receives the events of the next chunk.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        let _ = events;
        Ok(())
    }

    /// Receives a message whose two sides are known.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn message(&mut self, message: &Message) -> anyhow::Result<()> {
        let _ = message;
        Ok(())
    }

    /// Returns why it takes nothing in any more, if it knows better than what it said.
    fn failure(self: Box<Self>) -> Option<anyhow::Error> {
        None
    }

    /// Writes the rest after everything was read, and renames the output to its final name.
    ///
    /// # Errors
    /// If the output cannot be written.
    fn finish(self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()>;
}
