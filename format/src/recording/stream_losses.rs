//! The losses of a stream: what its counters, its totals and its chunks do not have in common.

use std::collections::{BTreeMap, BTreeSet};

use super::{StoredChunk, StreamContents, StreamLoss};
use crate::definitions::Ended;
use crate::ids::{ANY_EVENT_TYPE, EventTypeId, StreamId};
use crate::live::{LiveCounters, LiveStream};
use crate::loss::Cause;
use crate::totals::{StreamTotals, TypeTotals};

/// Returns where a loss of any type counts in the totals.
fn row_of(event_type: Option<EventTypeId>) -> EventTypeId {
    event_type.unwrap_or(ANY_EVENT_TYPE)
}

/// Adds counts up, at most to the largest.
pub(super) fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The contents of a recording and its live file for one stream.
pub(super) struct FoundStream {
    pub(super) stream: StreamId,
    pub(super) chunks: Vec<StoredChunk>,
    /// For each chunk, the number of committed events that could not be decoded from the rows of its page.
    pub(super) undecoded: Vec<u64>,
    pub(super) ended: Ended,
}

impl FoundStream {
    /// Computes the stream's totals and losses. `known`: the totals that the recording has; `live`: its counters in the live
    /// file.
    pub(super) fn assemble(
        self,
        known: Option<StreamTotals>,
        live: Option<LiveStream>,
    ) -> StreamContents {
        let is_open = known.is_none();
        let mut inversions = 0_u64;
        let mut largest_lateness = 0;
        let mut present: BTreeMap<EventTypeId, u64> = BTreeMap::new();
        for chunk in &self.chunks {
            let header = &chunk.header;
            inversions = inversions.saturating_add(header.inversions);
            largest_lateness = largest_lateness.max(header.largest_lateness);
            for (event_type, count) in &header.counts {
                let sum = present.entry(*event_type).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        let (mut losses, end) = self.gaps();
        // Events that were dropped after their commit are counted by cause, and are not missing.
        let mut given_up = live.as_ref().map_or(0, LiveStream::given_up);
        for loss in &mut losses {
            let part = loss.count.min(given_up);
            loss.count -= part;
            given_up -= part;
        }
        if live.as_ref().is_some_and(|live| live.given_up() != 0) {
            losses.retain(|loss| loss.count != 0);
        }
        let has_counts = !is_open || live.is_some();
        let mut totals = match (known, &live) {
            (Some(known), _) => known,
            (None, Some(live)) => {
                // Events that the stream has handed on, but that are in no page and no chunk.
                self.lose(
                    &mut losses,
                    live.recorded.saturating_sub(end).saturating_sub(given_up),
                    self.chunks.len(),
                );
                self.totals_from_counters(live, &present, &losses)
            }
            (None, None) => self.totals_from_heads(&present, &losses),
        };
        if is_open {
            let last_tick = self.chunks.last().map(|chunk| chunk.header.last_tick);
            let open_tick = live.as_ref().map_or(0, |live| live.open_tick);
            totals.last_tick = last_tick.unwrap_or(open_tick);
            totals.close_tick = totals.last_tick;
            totals.inversions = inversions;
            totals.largest_lateness = largest_lateness;
        }
        if has_counts {
            self.place_missing(&mut totals, &present, &mut losses);
        } else {
            for loss in &losses {
                let row = totals.row(row_of(loss.event_type));
                row.add_loss(loss.cause, loss.count);
            }
        }
        if self.ended != Ended::Running && totals.rows.iter().any(|row| row.raised_is_lower_bound) {
            losses.push(StreamLoss {
                event_type: None,
                cause: self.cause_of_unknown(),
                count: 0,
                is_lower_bound: true,
                before_chunk: self.chunks.len(),
            });
        }
        // A recovered recording says so by a closing tick that is no other than the last one.
        let is_early = matches!(self.ended, Ended::Killed | Ended::StorageFailed);
        let is_open = is_open || is_early && totals.close_tick == totals.last_tick;
        StreamContents {
            chunks: self.chunks,
            totals,
            losses,
            is_open,
        }
    }

    /// Returns the cause of losses that nothing counts: the file ends early, or counters were in a damaged part of the
    /// live file.
    fn cause_of_unknown(&self) -> Cause {
        match self.ended {
            Ended::Truncated => Cause::Truncated,
            _ => Cause::Skipped,
        }
    }

    /// Counts events that are in the totals but in no chunk as skipped, and determines where they are missing: after
    /// the last chunk, unless a gap explains them.
    fn place_missing(
        &self,
        totals: &mut StreamTotals,
        present: &BTreeMap<EventTypeId, u64>,
        losses: &mut Vec<StreamLoss>,
    ) {
        let missing: Vec<(EventTypeId, u64)> = totals
            .rows
            .iter()
            .map(|row| {
                let here = present.get(&row.event_type).copied().unwrap_or(0);
                (row.event_type, row.recorded.saturating_sub(here))
            })
            .filter(|(_, count)| *count != 0)
            .collect();
        let missing_sum = sum(missing.iter().map(|(_, count)| *count));
        let gaps_sum = sum(losses.iter().map(|loss| loss.count));
        let places: BTreeSet<usize> = losses.iter().map(|loss| loss.before_chunk).collect();
        let tail = missing_sum.saturating_sub(gaps_sum);
        if tail == 0 && places.len() == 1 && !missing.is_empty() {
            // One gap: the totals say exactly what was in it.
            *losses = exact_losses(&missing, losses[0].before_chunk);
        } else if tail != 0 && places.is_empty() {
            *losses = exact_losses(&missing, self.chunks.len());
        } else {
            self.lose(losses, tail, self.chunks.len());
        }
        if totals.rows.iter().any(|row| row.truncated != 0) {
            let at_end = |loss: &&mut StreamLoss| loss.before_chunk == self.chunks.len();
            let at_end = losses.iter_mut().filter(at_end);
            at_end.for_each(|loss| loss.cause = Cause::Truncated);
        }
        for (event_type, count) in missing {
            let row = totals.row(event_type);
            // What a conversion of another format has missed is counted already.
            let counted = row.skipped.saturating_add(row.truncated);
            row.add_loss(Cause::Skipped, count.saturating_sub(counted));
        }
    }

    /// Adds a loss of any type, unless it is one of nothing.
    fn lose(&self, losses: &mut Vec<StreamLoss>, count: u64, before_chunk: usize) {
        if count != 0 {
            losses.push(skipped(None, count, before_chunk));
        }
    }

    /// Returns the events that are missing between chunks, counted from the chunk after the gap,
    /// and those of pages that cannot be read. Also returns the number of events that the stream
    /// had recorded after its last chunk.
    fn gaps(&self) -> (Vec<StreamLoss>, u64) {
        let mut losses = Vec::new();
        let mut expected_sequence = 0;
        let mut recorded = 0_u64;
        for (index, (chunk, undecoded)) in self.chunks.iter().zip(&self.undecoded).enumerate() {
            let header = &chunk.header;
            let missing = header.before.recorded.saturating_sub(recorded);
            if header.sequence > expected_sequence {
                let known = losses.len();
                let mut rest = missing;
                for (event_type, count) in &header.predecessor_counts {
                    let count = (*count).min(rest);
                    rest -= count;
                    if count != 0 {
                        losses.push(skipped(Some(*event_type), count, index));
                    }
                }
                // Also when nothing is known of the chunk but that it is missing.
                if rest != 0 || losses.len() == known {
                    losses.push(skipped(None, rest, index));
                }
            } else {
                // No chunk is missing, but one before has fewer events than its stream recorded.
                self.lose(&mut losses, missing, index);
            }
            self.lose(&mut losses, *undecoded, index + 1);
            expected_sequence = header.sequence.saturating_add(1);
            recorded = header
                .before
                .recorded
                .saturating_add(header.event_count)
                .saturating_add(*undecoded);
        }
        (losses, recorded)
    }

    /// Returns the totals of a stream that was open, from its counters and its chunks.
    fn totals_from_counters(
        &self,
        live: &LiveStream,
        present: &BTreeMap<EventTypeId, u64>,
        losses: &[StreamLoss],
    ) -> StreamTotals {
        let mut recorded = present.clone();
        let mut of_any_type = 0_u64;
        for loss in losses {
            let sum = match loss.event_type {
                Some(event_type) => recorded.entry(event_type).or_default(),
                None => &mut of_any_type,
            };
            *sum = sum.saturating_add(loss.count);
        }
        let mut rows: BTreeMap<EventTypeId, TypeTotals> = BTreeMap::new();
        for counters in &live.counters {
            let mut row = TypeTotals::new(counters.event_type);
            row.raised = counters.raised;
            row.suppressed = counters.suppressed;
            for cause in Cause::RECORDER {
                row.dropped
                    .set(cause, counters.dropped[usize::from(cause.code())]);
            }
            rows.insert(counters.event_type, row);
        }
        for (event_type, count) in recorded {
            let row = rows.entry(event_type);
            row.or_insert_with(|| TypeTotals::new(event_type)).recorded = count;
        }
        // The process was killed after a page's events were counted as dropped and before the page was freed: its
        // events are here. Or it was killed between the two counts of a reported loss.
        for row in rows.values_mut() {
            let excess = explained(row).saturating_sub(row.raised);
            let is_busy = live.busy == Some(row.event_type);
            let is_of_kill = |cause: &Cause| {
                let is_reported = matches!(cause, Cause::ReportedBySource | Cause::NoCallback);
                cause.is_counted_by_writer() || is_busy && is_reported
            };
            let causes = || Cause::RECORDER.into_iter().filter(is_of_kill);
            if excess > sum(causes().map(|cause| row.dropped.of(cause))) {
                // Counts that cannot be true stay as they are.
                continue;
            }
            let mut excess = excess;
            for cause in causes() {
                let count = row.dropped.of(cause);
                let part = count.min(excess);
                row.dropped.set(cause, count - part);
                excess -= part;
            }
        }
        if self.ended == Ended::Running {
            // Counters were read before or after an event's page or chunk: events that are not in both were raised
            // after the moment that this reading describes.
            for row in rows.values_mut() {
                row.raised = explained(row);
            }
        } else {
            self.take_back_in_flight(live, of_any_type, &mut rows);
        }
        // Events that were raised, and neither dropped nor suppressed, were recorded. What no page and no chunk has is
        // missing, and the counters show its types.
        let mut unexplained_sum = 0_u64;
        for row in rows.values_mut() {
            let unexplained = row.raised.saturating_sub(explained(row));
            row.recorded = row.recorded.saturating_add(unexplained);
            unexplained_sum = unexplained_sum.saturating_add(unexplained);
        }
        let of_unknown_type = of_any_type.saturating_sub(unexplained_sum);
        let counters_are_lost = self.ended != Ended::Running && {
            let counted = live.counters.iter().map(LiveCounters::lost);
            of_unknown_type != 0
                || live.lost > sum(counted)
                || rows.values().any(|row| row.raised < row.recorded)
        };
        for row in rows.values_mut().filter(|row| row.raised < row.recorded) {
            row.raised = explained(row);
        }
        if of_unknown_type != 0 || counters_are_lost {
            let mut any = TypeTotals::new(ANY_EVENT_TYPE);
            (any.recorded, any.raised) = (of_unknown_type, of_unknown_type);
            any.raised_is_lower_bound = counters_are_lost;
            rows.insert(ANY_EVENT_TYPE, any);
        }
        let mut totals = StreamTotals::new(self.stream);
        totals.rows = rows.into_values().collect();
        totals
    }

    /// Corrects the counts of an event that was being raised when the process was killed, between counting the raise
    /// and its commit (or the drop's count): that event does not count as raised. In a row of one stream this can only
    /// be the one event that was being raised; in a shared row it can be many. Any other difference between the
    /// counters remains visible.
    fn take_back_in_flight(
        &self,
        live: &LiveStream,
        of_any_type: u64,
        rows: &mut BTreeMap<EventTypeId, TypeTotals>,
    ) {
        if live.is_shared {
            for row in rows.values_mut() {
                row.raised = row.raised.min(explained(row));
            }
            return;
        }
        let unexplained = |row: &TypeTotals| row.raised.saturating_sub(explained(row));
        let all = sum(rows.values().map(unexplained));
        let busy = live.busy.and_then(|busy| rows.get_mut(&busy));
        if let Some(row) = busy.filter(|row| unexplained(row) != 0)
            && all > of_any_type
        {
            row.raised -= 1;
        }
    }

    /// Returns the least number of events that were dropped, as the heads say. A record in front of a chunk's first
    /// event counts drops from before the chunk was opened; the next head counts them, too: the two sums overlap.
    fn least_dropped(&self) -> u64 {
        let heads = || self.chunks.iter().map(|chunk| &chunk.header);
        let before = heads().map(|header| header.before.dropped).max();
        before
            .unwrap_or(0)
            .max(sum(heads().map(|header| header.dropped_count)))
    }

    /// Returns the totals of a stream of which only chunks are left: lower bounds.
    fn totals_from_heads(
        &self,
        present: &BTreeMap<EventTypeId, u64>,
        losses: &[StreamLoss],
    ) -> StreamTotals {
        let mut recorded = present.clone();
        for loss in losses {
            let sum = recorded.entry(row_of(loss.event_type)).or_default();
            *sum = sum.saturating_add(loss.count);
        }
        let mut totals = StreamTotals::new(self.stream);
        for (event_type, count) in recorded {
            let mut row = TypeTotals::new(event_type);
            row.recorded = count;
            row.raised = count;
            row.raised_is_lower_bound = true;
            totals.rows.push(row);
        }
        let dropped = self.least_dropped();
        if dropped != 0 {
            // The chunks' dropped records name the types; a reader of the events moves the counts from here to
            // their rows.
            let row = totals.row(ANY_EVENT_TYPE);
            row.raised = row.raised.saturating_add(dropped);
            row.raised_is_lower_bound = true;
            row.dropped.set(Cause::BufferFull, dropped);
        }
        if totals.rows.is_empty() {
            // An empty table would read as "nothing was raised".
            totals.row(ANY_EVENT_TYPE).raised_is_lower_bound = true;
        }
        totals
    }
}

/// Returns what became of the raised events of a row.
fn explained(row: &TypeTotals) -> u64 {
    row.recorded
        .saturating_add(row.dropped_sum())
        .saturating_add(row.suppressed)
}

const fn skipped(event_type: Option<EventTypeId>, count: u64, before_chunk: usize) -> StreamLoss {
    StreamLoss {
        event_type,
        cause: Cause::Skipped,
        count,
        is_lower_bound: false,
        before_chunk,
    }
}

fn exact_losses(missing: &[(EventTypeId, u64)], before_chunk: usize) -> Vec<StreamLoss> {
    let each = missing.iter().map(|(event_type, count)| {
        let event_type = Some(*event_type).filter(|id| *id != ANY_EVENT_TYPE);
        skipped(event_type, *count, before_chunk)
    });
    each.collect()
}
