//! Matches receives with sends, and begins with ends of collective operations, as SPEC.md (*Messages and collective
//! operations*) defines. Works in one pass over the events in the order of the trace, and keeps the messages in flight.
//!
//! The work is divided into shards, which need nothing of each other before the end: channels by the receiving process, and
//! collective operations by communicator. Results are the same whether the events of a batch are processed in their order or
//! shard by shard, in however many threads.

mod channels;
#[cfg(test)]
mod tests;

use std::ops::{AddAssign, Range};

use serde::Serialize;

use crate::messages::collectives::{
    Carry, CollectiveCounts, Collectives, ConcludedOperation, EndedPart,
};
use crate::messages::matching::channels::{Channels, END};
use crate::messages::{Lost, Mark, MessageBatch, MessageContent, MessageEvent, SHARDS};

/// Prefetch distance: number of messages whose channels are fetched before they are processed. The
/// next channel cannot be predicted, and with many channels the processor would wait for the memory
/// of each.
const MESSAGES_AHEAD: usize = 16;

/// Counts of the messages of all processes.
///
/// `sends` and `receives` count all events. Each of them is matched, or is counted in one of the
/// fields after `matched` other than `open_receives`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct MessageCounts {
    /// Sends.
    pub sends: u64,
    /// Receives.
    pub receives: u64,
    /// Pairs of a send and a receive.
    pub matched: u64,
    /// Sends for which the recordings contain no receive.
    pub unmatched_sends: u64,
    /// Receives for which the recordings contain no send.
    pub unmatched_receives: u64,
    /// Sends and receives after a loss, whose partner cannot be determined.
    pub unmatchable_by_loss: u64,
    /// Sends and receives that were dropped because too many messages were in flight.
    pub over_limit: u64,
    /// Sends and receives whose peer is not a rank with exactly one recording.
    pub without_peer: u64,
    /// Receives with a request that were started, and neither completed nor were cancelled: freed ones, and those that the program
    /// did not wait for. Which messages they took is not known. Counted only if the trace contains the end of the run.
    pub open_receives: u64,
}

impl AddAssign for MessageCounts {
    fn add_assign(&mut self, other: Self) {
        self.sends += other.sends;
        self.receives += other.receives;
        self.matched += other.matched;
        self.unmatched_sends += other.unmatched_sends;
        self.unmatched_receives += other.unmatched_receives;
        self.unmatchable_by_loss += other.unmatchable_by_loss;
        self.over_limit += other.over_limit;
        self.without_peer += other.without_peer;
        self.open_receives += other.open_receives;
    }
}

/// Returns the shard of an event.
#[inline]
fn shard_of(event: &MessageEvent) -> usize {
    match &event.content {
        MessageContent::PointToPoint(message) => message.receiver(event) as usize % SHARDS,
        // The numbers of communicators are small, or differ in few bits.
        MessageContent::Collective(_) => {
            let hash = event.communicator.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (hash >> 32) as usize % SHARDS
        }
    }
}

/// A batch of events, divided among the shards.
#[derive(Debug)]
pub(crate) struct ShardedBatch<D = ()> {
    batch: MessageBatch<D>,
    /// Indices of the events, shard by shard: those of messages, then those of collective operations.
    order: Vec<u32>,
    /// The end of each of these in `order`.
    ends: [usize; 2 * SHARDS],
}

impl<D> ShardedBatch<D> {
    /// Divides a batch.
    pub(crate) fn of(batch: MessageBatch<D>) -> Self {
        let part = |event: &MessageEvent| {
            let is_collective = matches!(event.content, MessageContent::Collective(_));
            2 * shard_of(event) + usize::from(is_collective)
        };
        let mut ends = [0; 2 * SHARDS];
        let parts: Vec<u8> = batch.events.iter().map(|event| part(event) as u8).collect();
        parts.iter().for_each(|part| ends[usize::from(*part)] += 1);
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        // `ends` has the starts now; each becomes the end while its part is filled.
        let mut order = vec![0; parts.len()];
        for (index, part) in (0..).zip(parts) {
            let next = &mut ends[usize::from(part)];
            order[*next] = index;
            *next += 1;
        }
        Self { batch, order, ends }
    }

    /// Returns the number of events.
    pub(crate) const fn len(&self) -> usize {
        self.batch.events.len()
    }

    /// Returns whether there are neither events nor losses.
    pub(crate) const fn is_empty(&self) -> bool {
        self.batch.events.is_empty() && self.batch.losses.is_empty()
    }

    /// Returns the time of the last event, nanoseconds. `None` if there are none.
    pub(crate) fn last_ns(&self) -> Option<i64> {
        self.batch.events.last().map(|last| last.time_ns)
    }

    /// Returns the events of a shard, with their indices.
    fn events(
        &self,
        shard: usize,
        is_collective: bool,
    ) -> impl ExactSizeIterator<Item = (usize, &MessageEvent)> + Clone {
        let part = 2 * shard + usize::from(is_collective);
        let start = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        let indices = self.order[start..self.ends[part]].iter();
        indices.map(|index| (*index as usize, &self.batch.events[*index as usize]))
    }

    /// Returns the mark of the event with an index. `first` is the number of the first one.
    fn mark(&self, first: u64, index: usize) -> Mark<D>
    where
        D: Copy + Default,
    {
        let event = &self.batch.events[index];
        let detail = self.batch.details.get(index).copied();
        event.mark(first + index as u64, detail.unwrap_or_default())
    }
}

/// A shard of a matcher.
#[derive(Debug)]
pub(crate) struct Shard<'a, D> {
    number: usize,
    channels: &'a mut Channels<D>,
    collectives: &'a mut Collectives<D>,
}

impl<D: Carry> Shard<'_, D> {
    /// Processes the messages of this shard. `first` is the number of the first event of the batch.
    pub(crate) fn feed_messages(
        &mut self,
        batch: &ShardedBatch<D>,
        first: u64,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let channels = &mut *self.channels;
        let mut losses = batch.batch.losses.iter().peekable();
        let events = batch.events(self.number, false);
        let mut ahead = events.clone();
        for (count, (index, event)) in events.enumerate() {
            if count.is_multiple_of(MESSAGES_AHEAD) {
                let mut slots = [END; MESSAGES_AHEAD];
                for (slot, (_, event)) in slots.iter_mut().zip(&mut ahead) {
                    *slot = channels.fetch_channel(event);
                }
                slots
                    .into_iter()
                    .for_each(|slot| channels.fetch_waiting(slot));
            }
            while let Some((at, process, lost)) = losses.next_if(|loss| loss.0 <= index) {
                channels.lose(*process, *lost, first + *at as u64);
            }
            channels.take(event, batch.mark(first, index), paired);
        }
        for (at, process, lost) in losses {
            channels.lose(*process, *lost, first + *at as u64);
        }
    }

    /// Processes the collective operations of this shard, as [`Shard::feed_messages`] does.
    pub(crate) fn feed_collectives(
        &mut self,
        batch: &ShardedBatch<D>,
        first: u64,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let losses = batch.batch.losses.iter();
        let mut losses = losses.filter(|loss| loss.2.collectives).peekable();
        for (index, event) in batch.events(self.number, true) {
            while let Some((_, process, _)) = losses.next_if(|loss| loss.0 <= index) {
                self.collectives.lose(*process);
            }
            self.collectives
                .take(event, batch.mark(first, index), paired);
        }
        losses.for_each(|(_, process, _)| self.collectives.lose(*process));
    }
}

/// Matcher of sends and receives and of collective operations, with what is in flight.
#[derive(Debug)]
pub(crate) struct Matcher<D = ()> {
    /// By shard.
    channels: Vec<Channels<D>>,
    /// By shard, too.
    collectives: Vec<Collectives<D>>,
    next_number: u64,
    /// Whether the trace contains the end of the run, which proves more matches.
    has_end: bool,
}

impl<D: Carry> Matcher<D> {
    /// Creates a matcher. `limit` is the maximum number of messages in flight in a shard; `has_end` is whether the trace
    /// contains the end of the run.
    pub(crate) fn new(processes: usize, limit: usize, has_end: bool) -> Self {
        let channels = (0..SHARDS).map(|shard| Channels::new(shard, processes, limit));
        let collectives = (0..SHARDS).map(|shard| Collectives::new(shard, limit));
        Self {
            channels: channels.collect(),
            collectives: collectives.collect(),
            next_number: 0,
            has_end,
        }
    }

    /// Requests that every pair of collective operations is reported as soon as it is known.
    pub(crate) fn pair_all(&mut self) {
        self.collectives.iter_mut().for_each(Collectives::pair_all);
    }

    /// Requests whole collective operations, for [`Matcher::take_ended`] and [`Matcher::take_concluded`].
    pub(crate) fn keep_whole(&mut self) {
        self.collectives
            .iter_mut()
            .for_each(Collectives::keep_whole);
    }

    /// Returns the number of message events that were processed.
    pub(crate) const fn fed(&self) -> u64 {
        self.next_number
    }

    /// Returns the counts of sends and receives.
    pub(crate) fn counts(&self) -> MessageCounts {
        let mut sum = MessageCounts::default();
        self.channels
            .iter()
            .for_each(|channels| sum += channels.counts);
        sum
    }

    /// Returns the counts of collective operations.
    pub(crate) fn collective_counts(&self) -> CollectiveCounts {
        let mut sum = CollectiveCounts::default();
        self.collectives.iter().for_each(|of| sum += of.counts);
        sum
    }

    /// Returns the events that wait for their partners.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Mark<D>> {
        self.channels.iter().flat_map(Channels::waiting)
    }

    /// Returns the ends of collective operations since the last call, in the order of the trace.
    pub(crate) fn take_ended(&mut self) -> Vec<EndedPart<D>> {
        let all = self.collectives.iter_mut();
        let mut ended: Vec<EndedPart<D>> = all.flat_map(|of| of.ended.drain(..)).collect();
        ended.sort_by_key(|ended| ended.end.number);
        ended
    }

    /// Returns the collective operations that were concluded since the last call, in the order of their last events.
    pub(crate) fn take_concluded(&mut self) -> Vec<ConcludedOperation<D>> {
        let all = self.collectives.iter_mut();
        let mut concluded: Vec<ConcludedOperation<D>> =
            all.flat_map(|of| of.concluded.drain(..)).collect();
        concluded.sort_by_cached_key(ConcludedOperation::last);
        concluded
    }

    /// Records that events of a process may be missing at this point.
    pub(crate) fn lose(&mut self, process: u32, lost: Lost) {
        for channels in &mut self.channels {
            channels.lose(process, lost, self.next_number);
        }
        if lost.collectives {
            self.collectives.iter_mut().for_each(|of| of.lose(process));
        }
    }

    /// Processes the next messages, in the order of the trace. Calls `paired` with two events of
    /// which the second cannot be before the first.
    pub(crate) fn feed(
        &mut self,
        batch: &MessageBatch<D>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        self.feed_some(batch, 0..batch.events.len(), paired);
    }

    /// Processes the events of a range of a batch, and the losses before them; at the batch's end, also those after them.
    pub(crate) fn feed_some(
        &mut self,
        batch: &MessageBatch<D>,
        range: Range<usize>,
        paired: &mut impl FnMut(Mark<D>, Mark<D>),
    ) {
        let first_loss = batch.losses.partition_point(|loss| loss.0 < range.start);
        let mut losses = batch.losses[first_loss..].iter().peekable();
        for index in range.clone() {
            let event = &batch.events[index];
            if index.is_multiple_of(MESSAGES_AHEAD) {
                let rest = &batch.events[index..];
                self.fetch_ahead(&rest[..rest.len().min(MESSAGES_AHEAD)]);
            }
            while let Some((_, process, lost)) = losses.next_if(|loss| loss.0 <= index) {
                self.lose(*process, *lost);
            }
            let detail = batch.details.get(index).copied().unwrap_or_default();
            let mark = event.mark(self.next_number, detail);
            self.next_number += 1;
            let shard = shard_of(event);
            match &event.content {
                MessageContent::PointToPoint(_) => self.channels[shard].take(event, mark, paired),
                MessageContent::Collective(_) => self.collectives[shard].take(event, mark, paired),
            }
        }
        if range.end == batch.events.len() {
            losses.for_each(|(_, process, lost)| self.lose(*process, *lost));
        }
    }

    /// Prefetches the channels of these messages, and the first events that wait in them.
    fn fetch_ahead(&self, events: &[MessageEvent]) {
        let mut places = [(0, END); MESSAGES_AHEAD];
        for (place, event) in places.iter_mut().zip(events) {
            let shard = shard_of(event);
            *place = (shard, self.channels[shard].fetch_channel(event));
        }
        for (shard, slot) in places {
            self.channels[shard].fetch_waiting(slot);
        }
    }

    /// Returns the shards, which must then process this number of events, and the number of the first of these.
    pub(crate) fn shards(
        &mut self,
        events: usize,
    ) -> (u64, impl ExactSizeIterator<Item = Shard<'_, D>>) {
        let first = self.next_number;
        self.next_number += events as u64;
        let all = self.channels.iter_mut().zip(&mut self.collectives);
        let shards = all
            .enumerate()
            .map(|(number, (channels, collectives))| Shard {
                number,
                channels,
                collectives,
            });
        (first, shards)
    }

    /// Pairs the messages that are still in flight as far as possible, and counts the others.
    pub(crate) fn finish(&mut self, paired: &mut impl FnMut(Mark<D>, Mark<D>)) {
        for collectives in &mut self.collectives {
            collectives.finish(self.has_end, paired);
        }
        for channels in &mut self.channels {
            channels.finish(&self.collectives, self.has_end, paired);
        }
    }
}
