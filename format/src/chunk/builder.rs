//! From the rows of live pages to chunks.

use super::row::{ROW_DROPPED, ROW_EVENT, ROW_FAR_TICK, ROW_OBSERVATION, RowValue, read_elements};
use super::{
    Chunk, ChunkHeader, Cumulative, MAX_CHUNK_EVENTS, MAX_CHUNK_TYPES, MAX_CHUNK_VALUES,
    TypeColumns, dropped_count, read_dropped, too_many_types,
};
use crate::column::Column;
use crate::definitions::{EventTypeSchema, Schema};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::ticks::distance;
use crate::value::ElementType;
use crate::wire::{Wire, short_varint, unzigzag, zigzag};

/// Turns rows, in the encoding of a live page, into a chunk, and measures their disorder.
#[derive(Debug)]
pub struct ChunkBuilder {
    chunk: Chunk,
    /// By event type.
    slots: Vec<Slot>,
    /// The columns of plain event types, until the chunk is complete: bits as stored in rows.
    plain: Vec<Vec<u64>>,
    /// How many of `plain` are in use; the others keep their memory.
    plain_used: usize,
    /// Columns of event types that no event of this chunk had yet: their memory is used again.
    spare: Vec<TypeColumns>,
    batch: Batch,
    max_ticks: u64,
    /// Element values taken in.
    values: usize,
}

/// Where the events of a type go.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    /// Index in the chunk's types + 1; 0: no event of it so far.
    place: u16,
    /// Plain types: their first column in [`ChunkBuilder::plain`].
    first: u32,
    /// Plain types, those whose elements are at most eight integers that are always there: how many.
    elements: Option<u8>,
    /// Bit i: element i is signed.
    signed: u8,
    /// Events in the chunk.
    count: u32,
}

/// Number of events whose ticks and types are appended together.
const BATCH: usize = 64;

/// Ticks and types of events, on their way into a chunk.
#[derive(Clone, Copy, Debug)]
struct Batch {
    ticks: [u64; BATCH],
    types: [u16; BATCH],
}

/// How much was taken over into a batch.
#[derive(Clone, Copy, Default, Debug)]
struct BatchSize {
    events: usize,
    values: usize,
    bytes: usize,
}

/// Maximum number of bytes of a row that [`take_batch`] reads: event type, tick, and eight elements of at most eight
/// bytes, read in words.
const PLAIN_ROW: usize = 11 + 8 * 8;

/// Reads rows of the most frequent kind, up to the first row of another kind, and at most a batch. Such a row is an
/// event of a type that the chunk already has, all its elements are integers, and at least [`PLAIN_ROW`] bytes of input
/// are left.
///
/// Everything the recorder writes passes here: an instruction costs a quarter of a nanosecond an event.
fn take_batch(
    slots: &mut [Slot],
    plain: &mut [Vec<u64>],
    batch: &mut Batch,
    mut now: u64,
    rows: &[u8],
) -> BatchSize {
    let mut taken = BatchSize::default();
    let Batch { ticks, types } = batch;
    for (tick, place) in ticks.iter_mut().zip(types) {
        let Some(row) = rows[taken.bytes..].first_chunk::<PLAIN_ROW>() else {
            return taken;
        };
        let code = usize::from(row[0]).wrapping_sub(ROW_EVENT as usize);
        let Some(slot) = slots.get_mut(code) else {
            return taken;
        };
        let Some(elements) = slot.elements.filter(|_| row[0] < 0x80) else {
            return taken;
        };
        let word = |from: usize| {
            let bytes = row[from..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let step = u16::from_le_bytes([row[1], row[2]]);
        let (next, mut length) = if step == ROW_FAR_TICK {
            (word(3), 11)
        } else {
            (now.wrapping_add(u64::from(step)), 3)
        };
        let first = slot.first as usize;
        if elements == 1 {
            let Some((bits, bytes)) = short_varint(word(length)) else {
                return taken;
            };
            plain[first].push(bits);
            length += bytes;
        } else {
            let columns = &mut plain[first..][..usize::from(elements)];
            for index in 0..columns.len() {
                let Some((bits, bytes)) = short_varint(word(length)) else {
                    columns[..index].iter_mut().for_each(|column| {
                        column.pop();
                    });
                    return taken;
                };
                columns[index].push(bits);
                length += bytes;
            }
        }
        slot.count += 1;
        now = next;
        *tick = now;
        *place = slot.place - 1;
        taken.events += 1;
        taken.values += usize::from(elements);
        taken.bytes += length;
    }
    taken
}

/// How far the ticks of a chunk are from chronological order.
#[derive(Default)]
struct Disorder {
    min_offset: i64,
    max_offset: i64,
    inversions: u64,
    largest_lateness: u64,
}

impl Disorder {
    fn of(ticks: &[u64], max_ticks: u64) -> Self {
        let mut disorder = Self::default();
        let Some(&first) = ticks.first() else {
            return disorder;
        };
        let whole = i64::try_from(ticks[ticks.len() - 1].wrapping_sub(first));
        if let Ok(whole) = whole
            && max_ticks == u64::MAX
            && ticks.is_sorted()
        {
            // The case of nearly all chunks, in one pass that the compiler vectorizes.
            disorder.max_offset = whole;
            return disorder;
        }
        let (mut front_tick, mut front_offset) = (first, 0_i64);
        for &tick in &ticks[1..] {
            let step = distance(front_tick, tick, max_ticks);
            let offset = front_offset.saturating_add(step);
            if step < 0 {
                disorder.inversions += 1;
                disorder.largest_lateness = disorder.largest_lateness.max(step.unsigned_abs());
                disorder.min_offset = disorder.min_offset.min(offset);
            } else {
                (front_tick, front_offset) = (tick, offset);
                disorder.max_offset = disorder.max_offset.max(offset);
            }
        }
        disorder
    }
}

impl ChunkBuilder {
    /// Creates a builder for a stream whose clock has this largest tick.
    pub fn new(max_ticks: u64) -> Self {
        Self {
            chunk: Chunk::default(),
            slots: Vec::new(),
            plain: Vec::new(),
            plain_used: 0,
            spare: Vec::new(),
            batch: Batch {
                ticks: [0; BATCH],
                types: [0; BATCH],
            },
            max_ticks,
            values: 0,
        }
    }

    /// Starts another chunk, of a stream whose clock has this largest tick, in the memory of this one.
    pub fn restart(&mut self, max_ticks: u64) {
        self.max_ticks = max_ticks;
        self.values = 0;
        self.slots.clear();
        self.plain.iter_mut().for_each(Vec::clear);
        self.plain_used = 0;
        self.chunk.ticks.clear();
        self.chunk.type_index.clear();
        self.chunk.dropped.clear();
        self.chunk.observations.clear();
        self.spare.append(&mut self.chunk.types);
    }

    /// Returns the place of an event type's columns; `None` when there are as many types as a chunk
    /// may have.
    #[cold]
    fn slot_for(&mut self, event_type: EventTypeId, schema: &EventTypeSchema) -> Option<usize> {
        let index = event_type.index();
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::default());
        }
        if self.slots[index].place == 0 {
            if self.chunk.types.len() == MAX_CHUNK_TYPES {
                return None;
            }
            let elements = schema
                .elements
                .iter()
                .map(|(element_type, _)| *element_type);
            let mut spare = self.spare.iter();
            let columns = match spare.position(|spare| spare.event_type == event_type) {
                Some(known) => {
                    let mut columns = self.spare.swap_remove(known);
                    columns.restart(elements);
                    columns
                }
                None => TypeColumns::new(event_type, elements),
            };
            self.chunk.types.push(columns);
            self.slots[index] = Slot {
                place: self.chunk.types.len() as u16,
                ..self.plain_slot(schema)
            };
        }
        Some(usize::from(self.slots[index].place) - 1)
    }

    /// Returns the slot of an event type, with separate columns when the type is plain.
    fn plain_slot(&mut self, schema: &EventTypeSchema) -> Slot {
        let is_integer = |kind: ElementType| {
            use ElementType::{I32, I64, U32, U64};
            matches!(kind, I32 | U32 | I64 | U64)
        };
        let elements = &schema.elements;
        let mut kinds = elements.iter();
        let is_plain = elements.len() <= 8
            && kinds.all(|(kind, is_optional)| is_integer(*kind) && !is_optional);
        if !is_plain {
            return Slot::default();
        }
        let first = self.plain_used;
        self.plain_used += elements.len();
        if self.plain.len() < self.plain_used {
            self.plain.resize_with(self.plain_used, Vec::new);
        }
        let signed = elements
            .iter()
            .enumerate()
            .fold(0, |bits, (index, (kind, _))| {
                let is_signed = matches!(kind, ElementType::I32 | ElementType::I64);
                bits | u8::from(is_signed) << index
            });
        Slot {
            first: first as u32,
            elements: Some(elements.len() as u8),
            signed,
            ..Slot::default()
        }
    }

    /// Appends plain rows, and returns their length in bytes.
    fn push_plain_rows(&mut self, tick: &mut u64, rows: &[u8]) -> usize {
        let chunk = &mut self.chunk;
        let mut at = 0;
        loop {
            let is_near_full = chunk.ticks.len() + BATCH > MAX_CHUNK_EVENTS
                || self.values + 8 * BATCH > MAX_CHUNK_VALUES;
            if is_near_full {
                return at;
            }
            let batch = &mut self.batch;
            let (slots, plain) = (&mut self.slots, &mut self.plain);
            let taken = take_batch(slots, plain, batch, *tick, &rows[at..]);
            let ticks = &batch.ticks[..taken.events];
            *tick = ticks.last().copied().unwrap_or(*tick);
            chunk.ticks.extend_from_slice(ticks);
            chunk
                .type_index
                .extend_from_slice(&batch.types[..taken.events]);
            self.values += taken.values;
            at += taken.bytes;
            if taken.events < BATCH {
                return at;
            }
        }
    }

    /// Appends rows; the tick of the first is relative to `base_tick`. Returns the number of rows
    /// that are events.
    ///
    /// # Errors
    /// At the first row that cannot be read, the rows before it taken in; also beyond
    /// [`MAX_CHUNK_EVENTS`] events, [`MAX_CHUNK_VALUES`] values or 65535 event types.
    pub fn push_rows(&mut self, schema: &Schema, base_tick: u64, rows: &[u8]) -> Result<u64> {
        let mut w = Wire::new(rows);
        let mut tick = base_tick;
        let before = self.chunk.ticks.len();
        while !w.is_empty() {
            let start = w.position();
            let length = self.push_plain_rows(&mut tick, &rows[start..]);
            if length != 0 {
                w.skip(length);
                continue;
            }
            let code = w.varint("kind of a row")?;
            let index = self.chunk.ticks.len() as u32;
            match code {
                ROW_DROPPED => {
                    let record = read_dropped(&mut w)?;
                    self.chunk.dropped.push((index, record));
                }
                ROW_OBSERVATION => {
                    let time_ns = w.signed("reference clock")?;
                    // A recorder writes one an event; of more, as damage makes them, the last is the nearest.
                    match self.chunk.observations.last_mut() {
                        Some(last) if last.0 == index => last.1 = time_ns,
                        _ => self.chunk.observations.push((index, time_ns)),
                    }
                }
                _ => {
                    let number = u32::try_from(code - ROW_EVENT).unwrap_or(u32::MAX);
                    let event_type = EventTypeId::new(number);
                    let schema = schema.get(event_type).ok_or_else(|| {
                        FormatError::invalid(start, "a defined event type", number)
                    })?;
                    if index as usize >= MAX_CHUNK_EVENTS {
                        return Err(FormatError::invalid(start, "at most 4194304 events", index));
                    }
                    let step = w.u16("tick step of a row")?;
                    let at = if step == ROW_FAR_TICK {
                        w.u64("tick of a row")?
                    } else {
                        tick.wrapping_add(u64::from(step))
                    };
                    self.push_event(event_type, schema, start, &mut w)?;
                    tick = at;
                    self.chunk.ticks.push(tick);
                }
            }
        }
        Ok((self.chunk.ticks.len() - before) as u64)
    }

    #[inline]
    fn push_event(
        &mut self,
        event_type: EventTypeId,
        schema: &EventTypeSchema,
        start: usize,
        w: &mut Wire<'_>,
    ) -> Result<()> {
        let values = self.values + schema.elements.len();
        if values > MAX_CHUNK_VALUES {
            return Err(FormatError::invalid(
                start,
                "at most 16777216 element values",
                values,
            ));
        }
        let known = self.slots.get(event_type.index());
        let place = match known.map_or(0, |slot| slot.place) {
            0 => self
                .slot_for(event_type, schema)
                .ok_or_else(|| too_many_types(start, "another one"))?,
            place => usize::from(place) - 1,
        };
        let columns = &mut self.chunk.types[place].columns;
        let slot = &mut self.slots[event_type.index()];
        let plain = &mut self.plain[slot.first as usize..];
        let mut pushed = 0;
        let outcome = read_elements(schema, w, |index, value| {
            match value {
                RowValue::Bits(bits) if slot.elements.is_some() => {
                    let is_signed = slot.signed >> index & 1 == 1;
                    plain[index].push(if is_signed { zigzag(bits as i64) } else { bits });
                }
                RowValue::Bits(bits) => columns[index].push_bits(bits),
                RowValue::Text(bytes) => columns[index].push_text(bytes),
                RowValue::Absent => columns[index].push_absent(),
            }
            pushed = index + 1;
        });
        if let Err(error) = outcome {
            // Columns stay of one length.
            if slot.elements.is_some() {
                plain[..pushed].iter_mut().for_each(|column| {
                    column.pop();
                });
            } else {
                columns[..pushed].iter_mut().for_each(Column::pop);
            }
            if slot.count == 0 {
                self.chunk.types.pop();
                *slot = Slot::default();
            }
            return Err(error);
        }
        slot.count += 1;
        self.values = values;
        self.chunk.type_index.push(place as u16);
        Ok(())
    }

    /// Returns the chunk and what its head says; the fields that only the writer knows are left at
    /// 0.
    pub fn finish(mut self, stream: StreamId) -> (ChunkHeader, Chunk) {
        let (header, _) = self.complete(stream);
        (header, self.chunk)
    }

    /// Completes the chunk like [`ChunkBuilder::finish`], but the builder can be restarted.
    pub fn complete(&mut self, stream: StreamId) -> (ChunkHeader, &mut Chunk) {
        self.fill_types();
        self.sort_types();
        let chunk = &mut self.chunk;
        let disorder = Disorder::of(&chunk.ticks, self.max_ticks);
        let header = ChunkHeader {
            stream,
            sequence: 0,
            event_count: chunk.ticks.len() as u64,
            dropped_count: dropped_count(&chunk.dropped),
            first_tick: chunk.ticks.first().copied().unwrap_or_default(),
            min_offset: disorder.min_offset,
            max_offset: disorder.max_offset,
            last_tick: chunk.ticks.last().copied().unwrap_or_default(),
            inversions: disorder.inversions,
            largest_lateness: disorder.largest_lateness,
            open_reference_ns: 0,
            close_reference_ns: 0,
            before: Cumulative::default(),
            counts: chunk
                .types
                .iter()
                .map(|columns| (columns.event_type, columns.count as u64))
                .collect(),
            predecessor_counts: Vec::new(),
        };
        (header, chunk)
    }

    /// Sets the counts of all types, and the columns of the plain ones.
    fn fill_types(&mut self) {
        for slot in self.slots.iter().filter(|slot| slot.place != 0) {
            let columns = &mut self.chunk.types[usize::from(slot.place) - 1];
            columns.count = slot.count as usize;
            if slot.elements.is_none() {
                continue;
            }
            let bits = &mut self.plain[slot.first as usize..];
            for (index, (column, bits)) in columns.columns.iter_mut().zip(bits).enumerate() {
                if slot.signed >> index & 1 == 1 {
                    bits.iter_mut()
                        .for_each(|bits| *bits = unzigzag(*bits) as u64);
                }
                column.swap_bits(bits);
            }
        }
    }

    fn sort_types(&mut self) {
        let types = &mut self.chunk.types;
        if types.is_sorted_by_key(|columns| columns.event_type) {
            return;
        }
        let mut order: Vec<u16> = (0..types.len() as u16).collect();
        order.sort_by_key(|slot| types[usize::from(*slot)].event_type);
        let mut rank = vec![0_u16; types.len()];
        for (place, slot) in order.iter().enumerate() {
            rank[usize::from(*slot)] = place as u16;
        }
        types.sort_by_key(|columns| columns.event_type);
        for index in &mut self.chunk.type_index {
            *index = rank[usize::from(*index)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_grow_by_more_than_half_a_clock_go_back() {
        let late = Disorder::of(&[5, u64::MAX - 4], u64::MAX);
        assert_eq!((late.inversions, late.largest_lateness), (1, 10));
        assert_eq!((late.min_offset, late.max_offset), (-10, 0));
        let sorted = Disorder::of(&[5, 7, 1 << 62], u64::MAX);
        assert_eq!((sorted.inversions, sorted.max_offset), (0, (1 << 62) - 5));
    }
}
