//! Dropped records of a stream: where each loss is on the axis, and what the records count together.

use std::ops::Range;

use annals_format::{Cause, ClockKind, DroppedRecord, TraceLoss};

use super::{LossPlace, StreamReader};
use crate::axis::batch::Batch;

/// The losses of one event type and cause in dropped records.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Reported {
    /// Events, from the stream's start to the last record.
    pub(super) count: u64,
    /// Gaps that were known when the last record was read.
    pub(super) gaps: usize,
}

/// A dropped record of a chunk, placed on the axis.
#[derive(Clone, Copy)]
pub(super) struct PlacedRecord {
    /// Index of the event that it precedes.
    pub(super) before: u32,
    pub(super) record: DroppedRecord,
    /// Start of its interval. `None` means that it depends on the last event before the chunk.
    pub(super) from_ns: Option<i64>,
    pub(super) to_ns: i64,
}

impl StreamReader<'_> {
    /// Places a chunk's dropped records on the axis, by the times of the events around them, which `times_ns` has without
    /// the moves of a repair.
    pub(super) fn place_records(
        &self,
        chunk: usize,
        records: Vec<(u32, DroppedRecord)>,
        times_ns: &[i64],
    ) -> Vec<PlacedRecord> {
        let header = &self.contents.chunks[chunk].header;
        let axis = |reference_ns: i64| self.clock.host.axis_ns(reference_ns);
        let open_ns = axis(header.open_reference_ns);
        let close_ns = axis(header.close_reference_ns.max(header.open_reference_ns));
        let placed = records.into_iter().map(|(index, record)| {
            let last = (index as usize).checked_sub(1);
            let last_ns = last.and_then(|last| times_ns.get(last)).copied();
            let next_ns = times_ns.get(index as usize).copied();
            let to_ns = if self.has_unknown_ticks(&record) {
                self.clock.moved(next_ns.unwrap_or(close_ns))
            } else if self.is_sorted {
                let near_ns = next_ns.or(last_ns).unwrap_or(open_ns);
                let any = i64::MIN..=i64::MAX;
                self.clock.time_near(record.to_tick, near_ns, any)
            } else {
                let least_ns = last_ns.unwrap_or(i64::MIN);
                let most_ns = next_ns.unwrap_or_else(|| self.end_of_chunk(chunk));
                let near_ns = next_ns.unwrap_or(close_ns.min(most_ns)).max(least_ns);
                let within = least_ns..=most_ns;
                self.clock.time_near(record.to_tick, near_ns, within)
            };
            let around_ns = match self.is_sorted && !self.has_unknown_ticks(&record) {
                true => last_ns.or(next_ns),
                false => last_ns,
            };
            let from_ns = around_ns.map(|ns| self.record_start(&record, ns));
            PlacedRecord {
                before: index,
                record,
                from_ns: from_ns.map(|from_ns| from_ns.min(to_ns)),
                to_ns,
            }
        });
        placed.collect()
    }

    /// Returns the latest time at which anything happened before the next chunk, without the moves of a repair.
    fn end_of_chunk(&self, chunk: usize) -> i64 {
        if !self.clock.head_is_vague() {
            return i64::MAX;
        }
        let next = self.contents.chunks.get(chunk + 1);
        let opened_ns = next.map(|next| self.clock.host.axis_ns(next.header.open_reference_ns));
        opened_ns.unwrap_or_else(|| self.clock.unmoved(self.process_end_ns))
    }

    /// Returns when the interval of a dropped record starts. `last_ns`: the last event before it, without the moves of a
    /// repair.
    fn record_start(&self, record: &DroppedRecord, last_ns: i64) -> i64 {
        let within = if self.is_sorted {
            i64::MIN..=i64::MAX
        } else if record.cause.is_suppressed() {
            // Other events may have followed the one after which events were suppressed.
            i64::MIN..=last_ns
        } else {
            last_ns..=i64::MAX
        };
        self.clock.time_near(record.from_tick, last_ns, within)
    }

    /// Returns the interval of a record of a chunk that was taken in: of an ordered source, between the events around it.
    /// `last_ns`: the last event before the chunk. `None` means that there is none.
    pub(super) fn interval_of(
        &self,
        placed: &PlacedRecord,
        batch: &Batch,
        last_ns: Option<i64>,
    ) -> (i64, i64) {
        let PlacedRecord { before, record, .. } = placed;
        let from_ns = placed.from_ns.unwrap_or_else(|| match last_ns {
            Some(last_ns) => self.record_start(record, self.clock.unmoved(last_ns)),
            None if self.has_unknown_ticks(record) => self.process_start_ns,
            None => {
                // The stream's opening. Where the clock does not show it, not before the process's start.
                let start_ns = self.clock.unmoved(self.process_start_ns);
                let within = match self.clock.head_is_vague() {
                    true => start_ns..=i64::MAX,
                    false => i64::MIN..=i64::MAX,
                };
                self.clock.time_near(record.from_tick, start_ns, within)
            }
        });
        if self.is_sorted {
            return (from_ns.min(placed.to_ns), placed.to_ns);
        }
        let index = *before as usize;
        let event_ns = |index| (index < batch.len()).then(|| batch.time_ns(index));
        let last_ns = index.checked_sub(1).and_then(event_ns).or(last_ns);
        let last_ns = last_ns.unwrap_or(i64::MIN);
        let next_ns = event_ns(index).unwrap_or(i64::MAX);
        let to_ns = placed.to_ns.clamp(last_ns, next_ns.max(last_ns));
        let from_ns = match record.cause.is_suppressed() {
            true => from_ns,
            false => from_ns.max(last_ns),
        };
        (from_ns.min(to_ns), to_ns)
    }

    /// Returns whether nothing but events has shown the clock when a record was made: both ticks are those of the last
    /// event.
    fn has_unknown_ticks(&self, record: &DroppedRecord) -> bool {
        self.clock.clock.kind == ClockKind::Unreadable && record.from_tick == record.to_tick
    }

    /// Counts what a dropped record of a chunk reports, and queues its loss where it is in the window. `number`: that of
    /// the chunk's batch.
    pub(super) fn add_record(
        &mut self,
        number: u64,
        batch: &Batch,
        range: &Range<usize>,
        placed: &PlacedRecord,
        bound_ns: i64,
    ) {
        let PlacedRecord { record, to_ns, .. } = placed;
        let from_ns = placed.from_ns.unwrap_or(*to_ns);
        let key = (record.event_type, record.cause);
        if record.cause == Cause::Overwritten && self.gaps.is_empty() {
            // A recording without totals: only the record says that there were events before the first chunk.
            self.gaps.push((from_ns, *to_ns));
        }
        let before = self.reported.get(&key).copied().unwrap_or_default();
        // A cumulative count includes what the records of a missing chunk counted; that works only when chunks
        // come in their own order.
        let missing = if self.is_sorted || record.cause.is_suppressed() {
            0
        } else {
            record
                .cumulative
                .saturating_sub(before.count)
                .saturating_sub(record.count)
        };
        let count = before
            .count
            .saturating_add(missing)
            .saturating_add(record.count);
        let gaps = self.gaps.len();
        self.reported.insert(key, Reported { count, gaps });
        let gap_ns = self.gaps_from(before.gaps);
        let gap_ns = gap_ns.unwrap_or((self.process_start_ns.min(from_ns), from_ns));
        self.lose_in_gap(record, missing, gap_ns, bound_ns);
        let index = placed.before as usize;
        let time_ns = (*to_ns).max(bound_ns);
        let is_event = !self.is_sorted
            && index < batch.len()
            && self.keep.window.contains(batch.time_ns(index));
        let place = match is_event {
            // Before an event of another slice.
            true if !range.contains(&index) => return,
            true => LossPlace::Event(number, index),
            false if !self.keep.has(time_ns) => return,
            false => LossPlace::Time(time_ns),
        };
        let loss = TraceLoss {
            stream: self.stream,
            event_type: self.trace_type(record.event_type),
            cause: record.cause,
            count: record.count,
            is_lower_bound: record.is_lower_bound,
            from_ns,
            to_ns: *to_ns,
        };
        self.losses.push((place, loss));
    }

    /// Counts drops that only records in missing chunks reported.
    fn lose_in_gap(
        &mut self,
        record: &DroppedRecord,
        count: u64,
        gap_ns: (i64, i64),
        bound_ns: i64,
    ) {
        let (from_ns, to_ns) = gap_ns;
        let time_ns = to_ns.max(bound_ns);
        if count == 0 || !self.keep.has(time_ns) {
            return;
        }
        let loss = TraceLoss {
            stream: self.stream,
            event_type: self.trace_type(record.event_type),
            cause: record.cause,
            count,
            is_lower_bound: false,
            from_ns,
            to_ns,
        };
        self.losses.push((LossPlace::Time(time_ns), loss));
    }
}
