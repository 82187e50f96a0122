//! The values of bins that events have, next to those of calls.

use annals_format::{
    Definitions, Footer, MessageOverview, MessageRow, MetricOverview, MetricRow, TraceChunk,
};

use crate::error::Result;
use crate::messages::MessageLosses;
use crate::overview::message_bins::{Batch, MessageBins, MessageSource};
use crate::overview::metric_bins::{MetricBins, MetricSource, MetricValue};
use crate::overview::writer::OverviewWriter;
use crate::trace_writer::TraceWriter;

/// Extracts from chunks what bins have values of. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct BinSource {
    messages: Option<MessageSource>,
    metrics: Option<MetricSource>,
}

/// What bins have values of, of a chunk.
#[derive(Debug)]
pub(crate) struct BinBatch {
    messages: Option<Batch>,
    metrics: Vec<MetricValue>,
    events: u64,
}

/// The values of all bins of a trace, without the places of blocks.
#[derive(Debug)]
pub(crate) struct FoundBins {
    pub(crate) messages: Option<(MessageOverview, Vec<MessageRow>)>,
    pub(crate) metrics: Option<(MetricOverview, Vec<MetricRow>)>,
}

impl BinSource {
    /// Determines what a trace has. `losses`: what losses may have had of its messages.
    pub(crate) fn of(definitions: &Definitions, losses: MessageLosses) -> Self {
        Self {
            messages: MessageSource::of(definitions, &losses),
            metrics: MetricSource::of(definitions),
        }
    }

    /// Leaves messages out. Returns what extracts them, for a caller that matches them anyway.
    pub(crate) fn take_messages(&mut self) -> Option<MessageSource> {
        self.messages.take()
    }

    /// Leaves metrics out.
    pub(crate) fn leave_out_metrics(&mut self) {
        self.metrics = None;
    }

    /// Returns what a chunk has.
    pub(crate) fn extract(&self, chunk: &TraceChunk) -> BinBatch {
        let events = chunk.groups.iter().map(|group| group.times_ns.len() as u64);
        let metrics = self.metrics.as_ref().map(|source| source.extract(chunk));
        BinBatch {
            messages: self.messages.as_ref().map(|source| source.extract(chunk)),
            metrics: metrics.unwrap_or_default(),
            events: events.sum(),
        }
    }
}

impl FoundBins {
    /// Writes the rows, and adds their lists of blocks to a footer.
    pub(crate) fn write(
        self,
        overview: &mut OverviewWriter,
        file: &mut TraceWriter,
        footer: &mut Footer,
    ) -> Result<()> {
        if let Some((mut messages, rows)) = self.messages {
            messages.blocks = overview.write_rows(&rows, file)?;
            footer.messages = Some(messages);
        }
        if let Some((mut metrics, rows)) = self.metrics {
            metrics.blocks = overview.write_rows(&rows, file)?;
            footer.metrics = Some(metrics);
        }
        Ok(())
    }
}

/// Adds up what the events of a trace have, in its order.
#[derive(Debug)]
pub(crate) struct EventBins<'a> {
    messages: Option<MessageBins<'a>>,
    metrics: MetricBins,
    events: u64,
}

impl<'a> EventBins<'a> {
    pub(crate) fn new(source: &'a BinSource) -> Self {
        Self {
            messages: source.messages.as_ref().map(MessageBins::new),
            metrics: MetricBins::new(),
            events: 0,
        }
    }

    /// Takes what the next chunk has.
    pub(crate) fn take(&mut self, batch: &BinBatch) {
        self.events += batch.events;
        if let (Some(bins), Some(batch)) = (&mut self.messages, &batch.messages) {
            bins.take(batch);
        }
        self.metrics.take(&batch.metrics);
    }

    /// Returns the number of events so far.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the values of all bins.
    pub(crate) fn finish(self) -> FoundBins {
        let events = self.events;
        FoundBins {
            messages: self.messages.map(|bins| bins.finish(events)),
            metrics: self.metrics.finish(events),
        }
    }
}
