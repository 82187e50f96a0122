//! The values of bins that events have, next to those of calls.

use annals_format::{Definitions, MessageOverview, MessageRow, TraceChunk};

use crate::error::Result;
use crate::messages::MessageLosses;
use crate::overview::message_bins::{Batch, MessageBins, MessageSource};
use crate::overview::writer::OverviewWriter;
use crate::trace_file::TraceFile;

/// Extracts from chunks what bins have values of. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct BinSource {
    messages: Option<MessageSource>,
}

/// What bins have values of, of a chunk.
#[derive(Debug)]
pub(crate) struct BinBatch {
    messages: Option<Batch>,
    events: u64,
}

/// The values of all bins of a trace, without the places of blocks.
#[derive(Debug)]
pub(crate) struct FoundBins {
    pub(crate) messages: Option<(MessageOverview, Vec<MessageRow>)>,
}

impl BinSource {
    /// Determines what a trace has. `losses`: what losses may have had of its messages.
    pub(crate) fn of(definitions: &Definitions, losses: MessageLosses) -> Self {
        Self {
            messages: MessageSource::of(definitions, &losses),
        }
    }

    /// Returns what a chunk has.
    pub(crate) fn extract(&self, chunk: &TraceChunk) -> BinBatch {
        let events = chunk.groups.iter().map(|group| group.times_ns.len() as u64);
        BinBatch {
            messages: self.messages.as_ref().map(|source| source.extract(chunk)),
            events: events.sum(),
        }
    }
}

impl FoundBins {
    /// Writes the rows. Returns the overview of messages, if there is one.
    pub(crate) fn write(
        self,
        overview: &mut OverviewWriter,
        file: &mut TraceFile,
    ) -> Result<Option<MessageOverview>> {
        let Some((mut messages, rows)) = self.messages else {
            return Ok(None);
        };
        messages.blocks = overview.write_messages(&rows, file)?;
        Ok(Some(messages))
    }
}

/// Adds up what the events of a trace have, in its order.
#[derive(Debug)]
pub(crate) struct EventBins<'a> {
    messages: Option<MessageBins<'a>>,
    events: u64,
}

impl<'a> EventBins<'a> {
    pub(crate) fn new(source: &'a BinSource) -> Self {
        Self {
            messages: source.messages.as_ref().map(MessageBins::new),
            events: 0,
        }
    }

    /// Takes what the next chunk has.
    pub(crate) fn take(&mut self, batch: &BinBatch) {
        self.events += batch.events;
        if let (Some(bins), Some(batch)) = (&mut self.messages, &batch.messages) {
            bins.take(batch);
        }
    }

    /// Returns the values of all bins.
    pub(crate) fn finish(self) -> FoundBins {
        let events = self.events;
        FoundBins {
            messages: self.messages.map(|bins| bins.finish(events)),
        }
    }
}
