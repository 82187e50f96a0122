//! Inputs of a sweep: one stream of a recording, or a trace or a run with many streams.

use std::ops::Range;

use annals_format::{EventTypeId, StreamId, TraceChunk, TraceLoss};
use rustc_hash::FxHashMap;

use crate::axis::unify::Numbers;
use crate::error::MergeError;
use crate::input::run::RunReader;
use crate::input::stream::{Decoded, LossPlace, StreamOutcome, StreamReader, WaitingChunk};
use crate::input::trace::{DecodedTrace, TraceReader};
use crate::input::unplaced::UnplacedStream;

#[derive(Debug)]
pub(crate) enum InputReader<'a> {
    Stream(Box<StreamReader<'a>>),
    Unplaced(Box<UnplacedStream<'a>>),
    Trace(Box<TraceReader<'a>>),
    Run(Box<RunReader<'a>>),
}

/// Summary kept after a reader has read everything, for totals and report.
#[derive(Debug)]
pub(crate) enum InputOutcome<'a> {
    Stream(Box<StreamOutcome<'a>>),
    Trace(Box<TraceReader<'a>>),
}

/// A chunk as it was decoded.
pub(crate) enum DecodedChunk {
    Stream(Decoded),
    Trace(DecodedTrace),
    Run(annals_format::Result<TraceChunk>),
}

impl<'a> InputReader<'a> {
    /// Returns the least time of what was not handed out. `None` means the end.
    pub(crate) fn head_ns(&self) -> Option<i64> {
        match self {
            Self::Stream(reader) => reader.head_ns(),
            Self::Unplaced(_) => None,
            Self::Trace(reader) => reader.queue.head_ns(),
            Self::Run(reader) => reader.queue.head_ns(),
        }
    }

    /// Returns what is left when all was read; of a run nothing, since others read what it has.
    pub(crate) fn into_outcome(self) -> Option<InputOutcome<'a>> {
        match self {
            Self::Stream(reader) => Some(InputOutcome::Stream(Box::new(reader.into_outcome()))),
            Self::Unplaced(stream) => Some(InputOutcome::Stream(Box::new(stream.outcome))),
            Self::Trace(reader) => Some(InputOutcome::Trace(reader)),
            Self::Run(_) => None,
        }
    }

    /// Returns whether every chunk was taken in.
    pub(crate) fn is_all_loaded(&self) -> bool {
        match self {
            Self::Stream(reader) => reader.is_all_loaded(),
            Self::Unplaced(_) => true,
            Self::Trace(reader) => reader.queue.is_all_loaded(),
            Self::Run(reader) => reader.queue.is_all_loaded(),
        }
    }

    /// Chunks that are loaded and not handed out.
    pub(crate) fn lanes(&self) -> &Vec<WaitingChunk> {
        match self {
            Self::Stream(reader) => &reader.lanes,
            Self::Unplaced(stream) => &stream.lanes,
            Self::Trace(reader) => &reader.queue.lanes,
            Self::Run(reader) => &reader.queue.lanes,
        }
    }

    pub(crate) fn lanes_mut(&mut self) -> &mut Vec<WaitingChunk> {
        match self {
            Self::Stream(reader) => &mut reader.lanes,
            Self::Unplaced(stream) => &mut stream.lanes,
            Self::Trace(reader) => &mut reader.queue.lanes,
            Self::Run(reader) => &mut reader.queue.lanes,
        }
    }

    /// Returns the losses that are in no strip yet.
    pub(crate) fn losses(&mut self) -> &mut Vec<(LossPlace, TraceLoss)> {
        match self {
            Self::Stream(reader) => &mut reader.losses,
            Self::Unplaced(stream) => &mut stream.losses,
            Self::Trace(reader) => &mut reader.queue.losses,
            Self::Run(reader) => &mut reader.queue.losses,
        }
    }

    /// Returns the number of events in chunks that begin after one time and before another, loaded
    /// or not.
    pub(crate) fn events_of_chunks(&self, from_ns: i64, until_ns: i64) -> u64 {
        match self {
            Self::Stream(reader) => reader.events_of_chunks(from_ns, until_ns),
            Self::Unplaced(_) => 0,
            Self::Trace(reader) => reader.queue.events_of_chunks(from_ns, until_ns),
            Self::Run(reader) => reader.queue.events_of_chunks(from_ns, until_ns),
        }
    }

    /// Returns the chunks that must be loaded before the events before a time are known: numbers for [`Self::decode`],
    /// to be followed by [`Self::take`] in this order. Ask again until there are none.
    pub(crate) fn wanted(&self, until_ns: i64) -> Range<usize> {
        match self {
            Self::Stream(reader) => reader.wanted(until_ns),
            Self::Unplaced(_) => 0..0,
            Self::Trace(reader) => reader.queue.wanted(until_ns),
            Self::Run(reader) => reader.queue.wanted(until_ns),
        }
    }

    /// Reads and decodes a chunk.
    pub(crate) fn decode(&self, number: usize) -> DecodedChunk {
        match self {
            Self::Stream(reader) => DecodedChunk::Stream(reader.decode(number)),
            Self::Unplaced(_) => unreachable!("it wants no chunk"),
            Self::Trace(reader) => DecodedChunk::Trace(reader.decode(number)),
            Self::Run(reader) => DecodedChunk::Run(reader.decode(number)),
        }
    }

    /// Takes the next chunk in.
    pub(crate) fn take(&mut self, decoded: DecodedChunk) {
        match (self, decoded) {
            (Self::Stream(reader), DecodedChunk::Stream(decoded)) => reader.take(decoded),
            (Self::Trace(reader), DecodedChunk::Trace(decoded)) => reader.take(decoded),
            (Self::Run(reader), DecodedChunk::Run(decoded)) => reader.take(decoded),
            _ => unreachable!("a reader gets what it decoded"),
        }
    }

    /// Returns the stream that all events are of, or the first of several.
    pub(crate) fn stream(&self) -> StreamId {
        match self {
            Self::Stream(reader) => reader.stream,
            Self::Unplaced(stream) => stream.outcome.stream,
            Self::Trace(_) | Self::Run(_) => StreamId::new(0),
        }
    }

    /// Returns how events' references are to be renumbered.
    pub(crate) fn numbers(&self) -> &'a Numbers {
        match self {
            Self::Stream(reader) => reader.numbers,
            Self::Unplaced(stream) => stream.outcome.numbers,
            Self::Trace(reader) => &reader.earlier.numbers,
            Self::Run(reader) => reader.numbers,
        }
    }

    /// Returns why what it needs cannot be read, when that is no loss but a failure.
    pub(crate) fn failure(&mut self) -> Option<MergeError> {
        match self {
            Self::Run(reader) => reader.failure.take(),
            Self::Stream(_) | Self::Unplaced(_) | Self::Trace(_) => None,
        }
    }

    /// Returns its chunks: first and last time, and at most how many bytes their events take when they are decoded.
    /// `sizes`: of an event, by type.
    pub(crate) fn spans(&self, sizes: &FxHashMap<EventTypeId, u64>) -> Vec<(i64, i64, u64)> {
        match self {
            Self::Stream(reader) => reader.spans_by_heads(sizes).collect(),
            Self::Trace(reader) => {
                let largest = sizes.values().max().copied().unwrap_or(64);
                reader.spans(largest).collect()
            }
            Self::Run(_) | Self::Unplaced(_) => Vec::new(),
        }
    }

    /// Returns first and last time of its chunks and the size of their events, read from each chunk
    /// if that is more exact.
    pub(crate) fn measured_spans(
        &self,
        sizes: &FxHashMap<EventTypeId, u64>,
    ) -> Vec<(i64, i64, u64)> {
        match self {
            Self::Stream(reader) => reader.spans_by_bodies(sizes).collect(),
            Self::Unplaced(_) | Self::Trace(_) | Self::Run(_) => self.spans(sizes),
        }
    }
}
