//! Totals: per stream and event type, how many events were raised and what became of them.

use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::loss::{Cause, RECORDER_CAUSES};
use crate::wire::{Put, Wire};

/// Counts by cause of what a recorder dropped. Most event types of most streams have no losses, and a run may have very
/// many of them: without losses this takes one word.
#[derive(Clone, Default, Debug)]
pub struct DroppedCounts(Option<Box<[u64; RECORDER_CAUSES]>>);

impl DroppedCounts {
    /// Nothing was dropped.
    pub const NONE: Self = Self(None);

    /// Returns the counts by code of the cause.
    fn by_code(&self) -> &[u64; RECORDER_CAUSES] {
        const ZEROS: [u64; RECORDER_CAUSES] = [0; RECORDER_CAUSES];
        self.0.as_deref().unwrap_or(&ZEROS)
    }

    /// Returns the number of events dropped for this cause; 0 for a cause that no recorder counts.
    pub fn of(&self, cause: Cause) -> u64 {
        let count = self.by_code().get(usize::from(cause.code()));
        count.copied().unwrap_or(0)
    }

    /// Sets the count of a cause that a recorder counts.
    pub fn set(&mut self, cause: Cause, count: u64) {
        if self.of(cause) == count {
            return;
        }
        let counts = self.0.get_or_insert_default();
        if let Some(to) = counts.get_mut(usize::from(cause.code())) {
            *to = count;
        }
    }

    /// Adds to the count of a cause, up to the largest number.
    pub fn add(&mut self, cause: Cause, count: u64) {
        self.set(cause, self.of(cause).saturating_add(count));
    }

    /// Returns every cause that a recorder counts, by code, and the number of events dropped for
    /// it.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::RECORDER.into_iter().zip(*self.by_code())
    }

    /// Returns the number of events dropped for any cause.
    pub fn sum(&self) -> u64 {
        let counts = self.by_code().iter();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl PartialEq for DroppedCounts {
    fn eq(&self, other: &Self) -> bool {
        self.by_code() == other.by_code()
    }
}

impl Eq for DroppedCounts {}

/// Counts of the raised events of one event type in one stream.
///
/// The identity: `raised = recorded + dropped + suppressed`, and in a trace
/// `recorded = present + skipped + truncated + filtered`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeTotals {
    /// Which event type.
    pub event_type: EventTypeId,
    /// Counted at the raise.
    pub raised: u64,
    /// Whether more may have been raised than could be counted.
    pub raised_is_lower_bound: bool,
    /// Committed to the recording.
    pub recorded: u64,
    /// Left out because the user asked for less.
    pub suppressed: u64,
    /// Dropped, by cause.
    pub dropped: DroppedCounts,
    /// Recorded, but in a chunk that a reader could not decode.
    pub skipped: u64,
    /// Recorded, but beyond the end of a file that ends early.
    pub truncated: u64,
    /// Recorded, but left out by the filter of the merge.
    pub filtered: u64,
}

impl TypeTotals {
    /// Returns all zero.
    pub const fn new(event_type: EventTypeId) -> Self {
        Self {
            event_type,
            raised: 0,
            raised_is_lower_bound: false,
            recorded: 0,
            suppressed: 0,
            dropped: DroppedCounts::NONE,
            skipped: 0,
            truncated: 0,
            filtered: 0,
        }
    }

    /// Adds the counts of another row, whatever its event type.
    pub fn add(&mut self, other: &Self) {
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut self.raised, other.raised);
        self.raised_is_lower_bound |= other.raised_is_lower_bound;
        add(&mut self.recorded, other.recorded);
        add(&mut self.suppressed, other.suppressed);
        for (cause, count) in other.dropped.iter() {
            self.dropped.add(cause, count);
        }
        add(&mut self.skipped, other.skipped);
        add(&mut self.truncated, other.truncated);
        add(&mut self.filtered, other.filtered);
    }

    /// Returns the number of events dropped for any cause.
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.sum()
    }

    /// Returns the number of events that a reader of this file finds: those recorded, minus later
    /// losses.
    pub const fn present(&self) -> u64 {
        self.recorded
            .saturating_sub(self.skipped)
            .saturating_sub(self.truncated)
            .saturating_sub(self.filtered)
    }

    /// Returns whether `raised = recorded + dropped + suppressed` holds (at least, for a lower
    /// bound).
    pub fn is_balanced(&self) -> bool {
        let explained = u128::from(self.recorded)
            + u128::from(self.suppressed)
            + self
                .dropped
                .iter()
                .map(|(_, c)| u128::from(c))
                .sum::<u128>();
        u128::from(self.raised) == explained
    }

    /// Counts events as left out by a filter.
    pub fn add_filtered(&mut self, count: u64) {
        self.filtered = self.filtered.saturating_add(count);
    }

    /// Adds to the count of a cause.
    pub fn add_loss(&mut self, cause: Cause, count: u64) {
        let counter = match cause {
            Cause::Skipped => &mut self.skipped,
            Cause::Truncated => &mut self.truncated,
            Cause::RateLimited => &mut self.suppressed,
            dropped => return self.dropped.add(dropped, count),
        };
        *counter = counter.saturating_add(count);
    }
}

/// The totals of one stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamTotals {
    /// Which stream.
    pub stream: StreamId,
    /// Tick of the last event that was recorded (raw); the opening tick when there was none.
    pub last_tick: u64,
    /// Tick when the stream was closed, or the last known one.
    pub close_tick: u64,
    /// Measured disorder: events whose tick lies below that of an earlier event.
    pub inversions: u64,
    /// The largest distance, in ticks, by which one did.
    pub largest_lateness: u64,
    /// By event type, ascending.
    pub rows: Vec<TypeTotals>,
    /// Of a trace's stream: the order hash over its events in this file.
    pub order_hash: Option<u64>,
}

impl StreamTotals {
    /// Creates totals without rows.
    pub const fn new(stream: StreamId) -> Self {
        Self {
            stream,
            last_tick: 0,
            close_tick: 0,
            inversions: 0,
            largest_lateness: 0,
            rows: Vec::new(),
            order_hash: None,
        }
    }

    /// Returns the row of an event type, added when there is none.
    pub fn row(&mut self, event_type: EventTypeId) -> &mut TypeTotals {
        let found = self
            .rows
            .binary_search_by_key(&event_type, |row| row.event_type);
        let index = found.unwrap_or_else(|index| {
            self.rows.insert(index, TypeTotals::new(event_type));
            index
        });
        &mut self.rows[index]
    }

    /// Returns the row of an event type, if there is one.
    pub fn get(&self, event_type: EventTypeId) -> Option<&TypeTotals> {
        let found = self
            .rows
            .binary_search_by_key(&event_type, |row| row.event_type);
        found.ok().map(|index| &self.rows[index])
    }

    /// Appends the totals.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        body.put_varint(self.stream.get().into());
        body.put_varint(self.last_tick);
        body.put_varint(self.close_tick);
        body.put_varint(self.inversions);
        body.put_varint(self.largest_lateness);
        body.put_varint(self.rows.len() as u64);
        for row in &self.rows {
            let mut fields = Vec::new();
            fields.put_varint(row.event_type.get().into());
            fields.put_varint(row.raised);
            fields.push(row.raised_is_lower_bound.into());
            fields.put_varint(row.recorded);
            fields.put_varint(row.suppressed);
            fields.put_varint(row.skipped);
            fields.put_varint(row.truncated);
            fields.put_varint(row.filtered);
            for (cause, count) in row.dropped.iter() {
                if count != 0 {
                    fields.push(cause.code());
                    fields.put_varint(count);
                }
            }
            body.put_bytes(&fields);
        }
        if let Some(hash) = self.order_hash {
            body.extend_from_slice(&hash.to_le_bytes());
        }
        out.put_bytes(&body);
    }

    /// Reads the totals of one stream.
    ///
    /// # Errors
    /// If they end early or name an unknown cause.
    pub fn decode(wire: &mut Wire<'_>) -> Result<Self> {
        let mut w = Wire::new(wire.bytes("totals of a stream")?);
        let mut totals = Self::new(StreamId::new(w.varint_u32("stream id")?));
        totals.last_tick = w.varint("last tick")?;
        totals.close_tick = w.varint("closing tick")?;
        totals.inversions = w.varint("number of inversions")?;
        totals.largest_lateness = w.varint("largest lateness")?;
        let count = w.count(2, "number of rows")?;
        for _ in 0..count {
            let mut f = Wire::new(w.bytes("row of totals")?);
            let mut row = TypeTotals::new(EventTypeId::new(f.varint_u32("event type id")?));
            row.raised = f.varint("raised count")?;
            row.raised_is_lower_bound = f.u8("lower bound flag")? != 0;
            row.recorded = f.varint("recorded count")?;
            row.suppressed = f.varint("suppressed count")?;
            row.skipped = f.varint("skipped count")?;
            row.truncated = f.varint("truncated count")?;
            row.filtered = f.varint("filtered count")?;
            while !f.is_empty() {
                let start = f.position();
                let code = f.u8("cause")?;
                let cause = Cause::from_code(code).filter(|cause| cause.is_dropped());
                let Some(cause) = cause else {
                    return Err(FormatError::invalid(start, "a recorder's cause", code));
                };
                row.dropped.set(cause, f.varint("dropped count")?);
            }
            totals.rows.push(row);
        }
        if w.remaining() >= 8 {
            totals.order_hash = Some(w.u64("order hash")?);
        }
        totals.rows.sort_by_key(|row| row.event_type);
        // Nearly all streams have few, and a run has many streams.
        totals.rows.shrink_to_fit();
        Ok(totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_saturate() {
        let mut row = TypeTotals::new(EventTypeId::new(0));
        for cause in [Cause::Skipped, Cause::Truncated, Cause::TooBig] {
            row.add_loss(cause, u64::MAX);
            row.add_loss(cause, 1);
        }
        assert_eq!((row.skipped, row.truncated), (u64::MAX, u64::MAX));
        assert_eq!(row.dropped_sum(), u64::MAX);
        assert_eq!(row.present(), 0);
    }

    #[test]
    fn totals_round_trip() {
        let mut totals = StreamTotals::new(StreamId::new(7));
        totals.last_tick = 99;
        totals.close_tick = u64::MAX;
        totals.inversions = 3;
        totals.largest_lateness = 1 << 40;
        let row = totals.row(EventTypeId::new(4));
        row.raised = 10;
        row.recorded = 7;
        row.add_loss(Cause::BufferFull, 2);
        row.add_loss(Cause::TooBig, 1);
        assert!(row.is_balanced());
        totals.row(EventTypeId::new(1)).suppressed = 5;
        totals.order_hash = Some(u64::MAX - 1);
        let mut bytes = Vec::new();
        totals.encode(&mut bytes);
        assert_eq!(
            StreamTotals::decode(&mut Wire::new(&bytes)).unwrap(),
            totals
        );
        for length in 0..bytes.len() {
            assert!(StreamTotals::decode(&mut Wire::new(&bytes[..length])).is_err());
        }
    }
}
