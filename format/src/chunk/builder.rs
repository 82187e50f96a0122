//! From the rows of live pages to chunks.

use super::row::{ROW_DROPPED, ROW_EVENT, ROW_FAR_TICK, ROW_OBSERVATION, RowValue, read_elements};
use super::{
    Chunk, ChunkHeader, Cumulative, MAX_CHUNK_EVENTS, MAX_CHUNK_TYPES, MAX_CHUNK_VALUES,
    TypeColumns, content_of, dropped_count, put_after_ticks, read_dropped, too_many_types,
};
use crate::column::Column;
use crate::definitions::{EventTypeSchema, Schema};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::ints::{put_growing, put_steps};
use crate::limits::Content;
use crate::loss::DroppedRecord;
use crate::ticks::distance;
use crate::value::ElementType;
use crate::wire::{Wire, short_varint, unzigzag, zigzag};

/// Turns rows, in the encoding of a live page, into a chunk, and measures their disorder.
///
/// Everything that the recorder writes passes here: an instruction for each event is paid by the program, where no processor is
/// idle. Rows of the most frequent kind are taken, and appended to their columns, a batch at a time.
#[derive(Debug)]
pub struct ChunkBuilder {
    ticks: Ticks,
    type_index: Vec<u16>,
    types: Vec<TypeColumns>,
    /// Some types that have slots are not in the chunk.
    has_types_of_others: bool,
    dropped: Vec<(u32, DroppedRecord)>,
    observations: Vec<(u32, i64)>,
    /// By event type.
    slots: Vec<Slot>,
    /// By the first byte of a row.
    plain: Box<[PlainSlot; 256]>,
    /// Values of plain types that are not in their columns yet: [`BATCH`] places for each column, bits as in rows.
    staged: Vec<u64>,
    /// How much of `staged` is in use; the rest keeps its memory.
    staged_used: usize,
    /// Columns of event types that no event of this chunk had yet: their memory is used again.
    spare: Vec<TypeColumns>,
    batch: Batch,
    /// Element values in the columns.
    values: usize,
}

/// The places of the events of a type.
#[derive(Clone, Copy, Default, Debug)]
struct Slot {
    /// Index in the chunk's types + 1; 0: no event of it so far.
    place: u16,
    /// Plain types: where they are in [`ChunkBuilder::plain`].
    plain_code: Option<u8>,
}

/// The places of the events of a plain type: one whose elements are at most eight integers that are always there, and whose number
/// is a byte.
#[derive(Clone, Copy, Debug)]
struct PlainSlot {
    /// Where the values of its first column begin in [`ChunkBuilder::staged`].
    start: u32,
    /// The place of the next of them.
    next: u32,
    /// Index in the chunk's types.
    place: u16,
    /// How many elements it has; [`NOT_PLAIN`]: no plain type of this chunk begins its rows so.
    elements: u8,
}

/// See [`PlainSlot::elements`].
const NOT_PLAIN: u8 = u8::MAX;

const NO_PLAIN_SLOT: PlainSlot = PlainSlot {
    start: 0,
    next: 0,
    place: 0,
    elements: NOT_PLAIN,
};

/// Number of events that are appended to their columns together.
const BATCH: usize = 256;

/// Events on their way into a chunk: of each, the ticks since the one before, and above [`PLACE_SHIFT`] bits the index of its type in
/// the chunk's types.
#[derive(Clone, Copy, Debug)]
struct Batch {
    events: [u64; BATCH],
    count: usize,
}

const PLACE_SHIFT: u32 = 32;

/// Bytes of input that a plain row may need, as it is read in words: event type, tick, and eight elements of at most eight bytes.
pub(super) const PLAIN_ROW: usize = MOST_BEFORE_WORD + 8;
/// Where in a row a word may begin. A power of 2 less 1, so that processors need not compare.
const MOST_BEFORE_WORD: usize = 127;

/// Most ticks of a step: twice as many must fit, too.
pub(super) const MOST_STEP: u64 = (1 << 31) - 1;

/// Takes plain rows, up to the first of another kind, and at most as many as there are places for in a batch. Of these, the type is
/// in the chunk already, and at least [`PLAIN_ROW`] bytes of input are left. Returns their number and their length in bytes.
fn take_plain_rows(
    plain: &mut [PlainSlot; 256],
    staged: &mut [u64],
    events: &mut [u64],
    now: &mut u64,
    rows: &[u8],
) -> (usize, usize) {
    let mut rest = rows;
    let mut tick = *now;
    let mut taken = 0;
    for event in events {
        let Some(row) = rest.first_chunk::<PLAIN_ROW>() else {
            break;
        };
        let word = word_at(row, 0);
        let slot = &mut plain[(word & 0xff) as usize];
        let mut step = word >> 8 & 0xffff;
        let mut length = 4;
        let is_short = slot.elements == 1 && word & CONTINUED == 0;
        if is_short && step != u64::from(ROW_FAR_TICK) {
            // The most frequent rows of all: a region, and little time since the row before.
            staged[slot.next as usize] = word >> 24 & 0x7f;
        } else if let Some(taken) = take_plain_row(slot, staged, tick, row) {
            (step, length) = taken;
        } else {
            break;
        }
        *event = step | u64::from(slot.place) << PLACE_SHIFT;
        slot.next += 1;
        tick = tick.wrapping_add(step);
        rest = &rest[length..];
        taken += 1;
    }
    *now = tick;
    (taken, rows.len() - rest.len())
}

/// In the word that a row with a near tick begins with: the first element's varint is longer than a byte.
pub(super) const CONTINUED: u64 = 0x8000_0000;

/// Takes the elements of a plain row. Returns its step since a tick, and its length in bytes; `None` if it is no plain row.
#[inline(never)]
fn take_plain_row(
    slot: &PlainSlot,
    staged: &mut [u64],
    tick: u64,
    row: &[u8; PLAIN_ROW],
) -> Option<(u64, usize)> {
    let mut step = word_at(row, 1) & 0xffff;
    let mut length = 3;
    if step == u64::from(ROW_FAR_TICK) {
        step = word_at(row, 3).wrapping_sub(tick);
        length = 11;
    }
    if slot.elements == NOT_PLAIN || step > MOST_STEP {
        return None;
    }
    let mut place = slot.next as usize;
    for _ in 0..slot.elements {
        let (bits, bytes) = short_varint(word_at(row, length))?;
        staged[place] = bits;
        place += BATCH;
        length += bytes;
    }
    Some((step, length))
}

#[inline]
pub(super) fn word_at(row: &[u8; PLAIN_ROW], from: usize) -> u64 {
    let bytes = row[from & MOST_BEFORE_WORD..].first_chunk();
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The ticks of the events of a chunk.
#[derive(Clone, Debug)]
struct Ticks {
    /// The largest tick of the clock.
    max: u64,
    /// From where the first step counts.
    base: u64,
    /// The tick of the last event that is in a batch or here.
    now: u64,
    /// Each tick's distance to the one before, as long as they all are steps of at most [`MOST_STEP`].
    steps: Vec<u32>,
    /// The ticks, once they are not.
    wide: Vec<u64>,
    is_wide: bool,
}

impl Ticks {
    const fn new(max: u64) -> Self {
        Self {
            max,
            base: 0,
            now: 0,
            steps: Vec::new(),
            wide: Vec::new(),
            // The distances of a clock with another range are found at the end.
            is_wide: max != u64::MAX,
        }
    }

    fn restart(&mut self, max: u64) {
        self.steps.clear();
        self.wide.clear();
        (self.max, self.is_wide) = (max, max != u64::MAX);
    }

    /// Takes the steps of a batch, whose last event is at the present tick.
    fn extend(&mut self, steps: impl Iterator<Item = u32> + Clone) {
        if !self.is_wide {
            self.steps.extend(steps);
            return;
        }
        let sum: u64 = steps.clone().map(u64::from).sum();
        let mut tick = self.now.wrapping_sub(sum);
        self.wide.extend(steps.map(|step| {
            tick = tick.wrapping_add(step.into());
            tick
        }));
    }

    /// Makes ticks of the steps.
    fn widen(&mut self) {
        if !std::mem::replace(&mut self.is_wide, true) {
            let mut tick = self.base;
            self.wide.extend(self.steps.drain(..).map(|step| {
                tick = tick.wrapping_add(step.into());
                tick
            }));
        }
    }

    /// Appends a tick that is no step from the one before.
    fn push_wide(&mut self, tick: u64) {
        self.widen();
        self.wide.push(tick);
        self.now = tick;
    }

    fn last(&self) -> u64 {
        self.wide.last().copied().unwrap_or(self.now)
    }

    const fn len(&self) -> usize {
        self.steps.len() + self.wide.len()
    }

    fn first(&self) -> Option<u64> {
        let first = self.steps.first();
        let first = first.map(|step| self.base.wrapping_add((*step).into()));
        first.or_else(|| self.wide.first().copied())
    }

    fn disorder(&self) -> Disorder {
        match self.first() {
            Some(first) if !self.is_wide => Disorder {
                max_offset: self.now.wrapping_sub(first) as i64,
                ..Disorder::default()
            },
            _ => Disorder::of(&self.wide, self.max),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match (self.first(), self.steps.get(1..)) {
            (Some(first), Some(steps)) if !self.is_wide => put_steps(first, steps, out),
            _ => put_growing(&self.wide, out),
        }
    }

    fn into_ticks(mut self) -> Vec<u64> {
        self.widen();
        self.wide
    }
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
            ticks: Ticks::new(max_ticks),
            type_index: Vec::new(),
            types: Vec::new(),
            has_types_of_others: false,
            dropped: Vec::new(),
            observations: Vec::new(),
            slots: Vec::new(),
            plain: Box::new([NO_PLAIN_SLOT; 256]),
            staged: Vec::new(),
            staged_used: 0,
            spare: Vec::new(),
            batch: Batch {
                events: [0; BATCH],
                count: 0,
            },
            values: 0,
        }
    }

    /// Starts another chunk in the memory of this one, which is complete: of a stream of the same recording, whose clock has
    /// this largest tick.
    pub fn restart(&mut self, max_ticks: u64) {
        self.ticks.restart(max_ticks);
        self.values = 0;
        self.type_index.clear();
        self.dropped.clear();
        self.observations.clear();
        if std::mem::take(&mut self.has_types_of_others) {
            self.slots.clear();
            self.plain.fill(NO_PLAIN_SLOT);
            self.staged_used = 0;
            self.spare.append(&mut self.types);
        } else {
            // Most chunks have the types of the one before.
            self.types.iter_mut().for_each(TypeColumns::clear);
        }
    }

    /// Returns the dropped records, each before the event with this index.
    pub const fn dropped(&mut self) -> &mut Vec<(u32, DroppedRecord)> {
        &mut self.dropped
    }

    fn events(&self) -> usize {
        self.ticks.len() + self.batch.count
    }

    /// Makes a place for an event type's columns. Returns it; `None` when there are as many types as a chunk may have.
    #[cold]
    fn add_type(&mut self, event_type: EventTypeId, schema: &EventTypeSchema) -> Option<usize> {
        let place = self.types.len();
        if place == MAX_CHUNK_TYPES {
            return None;
        }
        let index = event_type.index();
        if self.slots.len() <= index {
            self.slots.resize(index + 1, Slot::default());
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
        self.types.push(columns);
        let plain_code = plain_code(event_type, schema);
        if let Some(code) = plain_code {
            let start = self.staged_used;
            self.staged_used += schema.elements.len() * BATCH;
            let length = self.staged.len().max(self.staged_used);
            self.staged.resize(length, 0);
            self.plain[usize::from(code)] = PlainSlot {
                start: start as u32,
                next: start as u32,
                place: place as u16,
                elements: schema.elements.len() as u8,
            };
        }
        self.slots[index] = Slot {
            place: place as u16 + 1,
            plain_code,
        };
        Some(place)
    }

    /// Appends plain rows. Returns their length in bytes.
    fn push_plain_rows(&mut self, rows: &[u8]) -> usize {
        let mut at = 0;
        loop {
            if self.batch.count == BATCH {
                self.empty_batch();
            }
            let is_near_full = self.ticks.len() + BATCH > MAX_CHUNK_EVENTS
                || self.values + 8 * BATCH > MAX_CHUNK_VALUES;
            if is_near_full {
                return at;
            }
            let (events, bytes) = take_plain_rows(
                &mut self.plain,
                &mut self.staged,
                &mut self.batch.events[self.batch.count..],
                &mut self.ticks.now,
                &rows[at..],
            );
            self.batch.count += events;
            at += bytes;
            if self.batch.count < BATCH {
                return at;
            }
        }
    }

    /// Appends what is in the batch to the columns.
    fn empty_batch(&mut self) {
        let count = std::mem::take(&mut self.batch.count);
        let events = self.batch.events[..count].iter();
        self.ticks.extend(events.clone().map(|event| *event as u32));
        let places = events.map(|event| (event >> PLACE_SHIFT) as u16);
        self.type_index.extend(places);
        for columns in &mut self.types {
            let slot = self.slots[columns.event_type.index()];
            let Some(code) = slot.plain_code else {
                continue;
            };
            let slot = &mut self.plain[usize::from(code)];
            let (mut start, count) = (slot.start as usize, (slot.next - slot.start) as usize);
            slot.next = slot.start;
            columns.count += count;
            self.values += count * columns.columns.len();
            for column in &mut columns.columns {
                column.extend_bits(&self.staged[start..start + count]);
                start += BATCH;
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
        let before = self.events();
        if before == 0 {
            (self.ticks.base, self.ticks.now) = (base_tick, base_tick);
        } else {
            self.empty_batch();
            self.ticks.widen();
            self.ticks.now = base_tick;
        }
        while !w.is_empty() {
            let start = w.position();
            let length = self.push_plain_rows(&rows[start..]);
            if length != 0 {
                w.skip(length);
                continue;
            }
            let code = w.varint("kind of a row")?;
            let index = self.events() as u32;
            match code {
                ROW_DROPPED => {
                    let record = read_dropped(&mut w)?;
                    if record.count == 0 && !record.is_lower_bound {
                        // The pages of a file that a crash of the machine left as zeros.
                        return Err(FormatError::invalid(start, "a count of dropped events", 0));
                    }
                    self.dropped.push((index, record));
                }
                ROW_OBSERVATION => {
                    let time_ns = w.signed("reference clock")?;
                    // A recorder writes one an event; of more, as damage makes them, the last is the nearest.
                    match self.observations.last_mut() {
                        Some(last) if last.0 == index => last.1 = time_ns,
                        _ => self.observations.push((index, time_ns)),
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
                    let tick = if step == ROW_FAR_TICK {
                        w.u64("tick of a row")?
                    } else {
                        self.ticks.now.wrapping_add(u64::from(step))
                    };
                    let place = self.push_elements(event_type, schema, start, &mut w)?;
                    self.push_event(tick, place);
                }
            }
        }
        Ok((self.events() - before) as u64)
    }

    /// Appends an event whose elements are already there.
    fn push_event(&mut self, tick: u64, place: usize) {
        let step = tick.wrapping_sub(self.ticks.now);
        if step > MOST_STEP {
            self.empty_batch();
            self.type_index.push(place as u16);
            self.ticks.push_wide(tick);
            return;
        }
        // There is room: all rows are preceded by an attempt to take plain ones.
        let batch = &mut self.batch;
        batch.events[batch.count] = step | (place as u64) << PLACE_SHIFT;
        batch.count += 1;
        self.ticks.now = tick;
    }

    /// Appends the elements of an event. Returns the index of its type in the chunk's types.
    fn push_elements(
        &mut self,
        event_type: EventTypeId,
        schema: &EventTypeSchema,
        start: usize,
        w: &mut Wire<'_>,
    ) -> Result<usize> {
        let most = MAX_CHUNK_VALUES - schema.elements.len();
        if self.values + 8 * BATCH > most {
            self.empty_batch();
            if self.values > most {
                return Err(FormatError::invalid(
                    start,
                    "at most 16777216 element values",
                    self.values + schema.elements.len(),
                ));
            }
        }
        let known = self.slots.get(event_type.index());
        let place = match known.map_or(0, |slot| slot.place) {
            0 => self
                .add_type(event_type, schema)
                .ok_or_else(|| too_many_types(start, "another one"))?,
            place => usize::from(place) - 1,
        };
        if let Some(code) = self.slots[event_type.index()].plain_code {
            let slot = &mut self.plain[usize::from(code)];
            let mut at = slot.next as usize;
            read_elements(schema, w, |index, value| {
                if let RowValue::Bits(bits) = value {
                    let is_signed = is_signed(schema.elements[index].0);
                    self.staged[at] = if is_signed { zigzag(bits as i64) } else { bits };
                }
                at += BATCH;
            })?;
            slot.next += 1;
        } else {
            let columns = &mut self.types[place];
            let mut pushed = 0;
            let outcome = read_elements(schema, w, |index, value| {
                let column = &mut columns.columns[index];
                match value {
                    RowValue::Bits(bits) => column.push_bits(bits),
                    RowValue::Text(bytes) => column.push_text(bytes),
                    RowValue::Absent => column.push_absent(),
                }
                pushed = index + 1;
            });
            if let Err(error) = outcome {
                // Columns stay of one length.
                columns.columns[..pushed].iter_mut().for_each(Column::pop);
                return Err(error);
            }
            columns.count += 1;
            self.values += schema.elements.len();
        }
        Ok(place)
    }

    /// Completes the chunk like [`ChunkBuilder::complete`]. Returns its head and the chunk.
    pub fn finish(mut self, stream: StreamId) -> (ChunkHeader, Chunk) {
        let header = self.complete(stream);
        let chunk = Chunk {
            ticks: self.ticks.into_ticks(),
            type_index: self.type_index,
            types: self.types,
            dropped: self.dropped,
            observations: self.observations,
        };
        (header, chunk)
    }

    /// Completes the chunk: nothing more is appended until it is restarted. Returns what its head says; the fields that only the
    /// writer knows are left at 0.
    pub fn complete(&mut self, stream: StreamId) -> ChunkHeader {
        self.empty_batch();
        for columns in &mut self.types {
            let slot = self.slots[columns.event_type.index()];
            if slot.plain_code.is_some() {
                let signed = columns.columns.iter_mut();
                let signed = signed.filter(|column| is_signed(column.element_type()));
                signed.for_each(|column| column.map_bits(|bits| unzigzag(bits) as u64));
            }
        }
        self.sort_types();
        let disorder = self.ticks.disorder();
        let is_any = self.ticks.len() != 0;
        ChunkHeader {
            stream,
            sequence: 0,
            event_count: self.ticks.len() as u64,
            dropped_count: dropped_count(&self.dropped),
            first_tick: self.ticks.first().unwrap_or_default(),
            min_offset: disorder.min_offset,
            max_offset: disorder.max_offset,
            last_tick: if is_any { self.ticks.last() } else { 0 },
            inversions: disorder.inversions,
            largest_lateness: disorder.largest_lateness,
            open_reference_ns: 0,
            close_reference_ns: 0,
            before: Cumulative::default(),
            counts: self
                .types
                .iter()
                .map(|columns| (columns.event_type, columns.count as u64))
                .collect(),
            predecessor_counts: Vec::new(),
        }
    }

    /// Appends the body of the complete chunk, as [`Chunk::encode`] does.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ticks.encode(out);
        put_after_ticks(
            &self.types,
            &self.type_index,
            &self.dropped,
            &self.observations,
            out,
        );
    }

    /// Returns what the body of the complete chunk has beyond its bytes.
    pub fn content(&self) -> Content {
        content_of(self.ticks.len(), &self.types)
    }

    /// Orders the types, and takes away those of which the chunk has no event.
    fn sort_types(&mut self) {
        let is_used = |columns: &TypeColumns| columns.count != 0;
        let are_all_used = self.types.iter().all(is_used);
        if are_all_used && self.types.is_sorted_by_key(|columns| columns.event_type) {
            return;
        }
        self.has_types_of_others |= !are_all_used;
        let types = std::mem::take(&mut self.types).into_iter().enumerate();
        let mut types: Vec<(usize, TypeColumns)> = types.collect();
        types.sort_by_key(|(_, columns)| columns.event_type);
        let mut rank = vec![0_u16; types.len()];
        for (before, columns) in types {
            if !is_used(&columns) {
                self.spare.push(columns);
                continue;
            }
            let place = self.types.len() as u16;
            rank[before] = place;
            let slot = &mut self.slots[columns.event_type.index()];
            slot.place = place + 1;
            if let Some(code) = slot.plain_code {
                self.plain[usize::from(code)].place = place;
            }
            self.types.push(columns);
        }
        for index in &mut self.type_index {
            *index = rank[usize::from(*index)];
        }
    }
}

const fn is_signed(kind: ElementType) -> bool {
    matches!(kind, ElementType::I32 | ElementType::I64)
}

/// Returns whether the elements of an event type are at most eight integers that are always there.
pub(super) fn is_plain(schema: &EventTypeSchema) -> bool {
    use ElementType::{I32, I64, U32, U64};
    let elements = &schema.elements;
    let mut each = elements.iter();
    elements.len() <= 8
        && each.all(|(kind, is_optional)| matches!(kind, I32 | U32 | I64 | U64) && !is_optional)
}

/// Returns the first byte of the rows of an event type, if it is a plain one.
fn plain_code(event_type: EventTypeId, schema: &EventTypeSchema) -> Option<u8> {
    let code = u8::try_from(u64::from(event_type.get()) + ROW_EVENT).ok()?;
    (code < 0x80 && is_plain(schema)).then_some(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::{RowScanner, put_before_rows, put_row_start};
    use crate::ints::testing::interesting;
    use crate::value::Value;
    use crate::wire::Put;

    /// Event types of all kinds of rows: number, element types, whether they are optional.
    const TYPES: [(u32, &[ElementType], bool); 6] = [
        (0, &[], false),
        (1, &[ElementType::U32], false),
        (
            2,
            &[ElementType::I64, ElementType::U64, ElementType::I32],
            false,
        ),
        (3, &[ElementType::U64], true),
        (4, &[ElementType::String], false),
        (200, &[ElementType::U64], false),
    ];

    /// An event: index of its type, ticks since the one before, bits of its elements.
    type Event = (usize, u64, u64);

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let step = prop_oneof![
            20 => 0..300_u64,
            2 => 65_000..66_000_u64,
            1 => interesting(),
        ];
        let bits = prop_oneof![8 => 0..300_u64, 1 => interesting()];
        prop::collection::vec((0..TYPES.len(), step, bits), 0..900)
    }

    fn schema() -> Schema {
        let mut schema = Schema::default();
        for (number, kinds, is_optional) in TYPES {
            let event_type = crate::testing::event_type(number, kinds, is_optional);
            schema.add(&event_type);
        }
        schema
    }

    /// Returns an element's value.
    fn value(kind: ElementType, is_optional: bool, bits: u64) -> Value<'static> {
        match kind {
            _ if is_optional && bits.is_multiple_of(3) => Value::Absent,
            ElementType::String => Value::String(&b"abcdefgh"[..(bits % 8) as usize]),
            _ => Value::from_bits(kind, bits),
        }
    }

    fn put_value(value: Value<'_>, rows: &mut Vec<u8>) {
        match value {
            Value::I32(number) => rows.put_signed(number.into()),
            Value::I64(number) => rows.put_signed(number),
            Value::U32(number) => rows.put_varint(number.into()),
            Value::U64(number) => rows.put_varint(number),
            Value::String(text) => {
                rows.put_varint(text.len() as u64);
                rows.extend_from_slice(text);
            }
            _ => {}
        }
    }

    /// An event as it is expected: its tick, the number of its type, its values.
    type Expected<'a> = (u64, u32, Vec<Value<'a>>);

    /// Returns rows of events from a tick on, and the events.
    fn rows(events: &[Event], base: u64) -> (Vec<u8>, Vec<Expected<'static>>) {
        let (mut rows, mut expected, mut tick) = (Vec::new(), Vec::new(), base);
        for (index, step, bits) in events {
            let (number, kinds, is_optional) = TYPES[*index];
            let next = tick.wrapping_add(*step);
            put_row_start(EventTypeId::new(number), tick, next, &mut rows);
            tick = next;
            let values = kinds.iter().map(|kind| value(*kind, is_optional, *bits));
            let values: Vec<Value<'_>> = values.collect();
            if is_optional {
                rows.push((values[0] != Value::Absent).into());
            }
            values.iter().for_each(|value| put_value(*value, &mut rows));
            expected.push((tick, number, values));
        }
        (rows, expected)
    }

    /// Returns the events of a chunk as [`rows`] does.
    fn contents(chunk: &Chunk) -> Vec<Expected<'_>> {
        let each = chunk.rows().zip(&chunk.ticks);
        let each = each.map(|(row, tick)| (*tick, row.event_type.get(), row.values().collect()));
        each.collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn chunks_have_what_rows_have(
            chunks in prop::collection::vec((events(), interesting()), 1..4),
            max_ticks in prop_oneof![4 => Just(u64::MAX), 1 => Just(1_000_000_u64)],
        ) {
            let schema = schema();
            let mut scanner = RowScanner::default();
            let mut again = ChunkBuilder::new(max_ticks);
            for (events, base) in chunks {
                let (rows, expected) = rows(&events, base);
                let mut builder = ChunkBuilder::new(max_ticks);
                prop_assert_eq!(builder.push_rows(&schema, base, &rows).unwrap(), events.len() as u64);
                let (header, chunk) = builder.finish(StreamId::new(0));
                prop_assert_eq!(&contents(&chunk), &expected);
                let disorder = Disorder::of(&chunk.ticks, max_ticks);
                prop_assert_eq!((header.min_offset, header.max_offset), (disorder.min_offset, disorder.max_offset));
                prop_assert_eq!(header.inversions, disorder.inversions);
                prop_assert_eq!(header.last_tick, chunk.ticks.last().copied().unwrap_or_default());
                let mut body = Vec::new();
                chunk.encode(&mut body);
                let decoded = Chunk::decode(&header, &body).unwrap();
                prop_assert_eq!(contents(&decoded), expected);
                // So is the chunk that is made in the memory of another.
                again.restart(max_ticks);
                again.push_rows(&schema, base, &rows).unwrap();
                prop_assert_eq!(again.complete(StreamId::new(0)), header.clone());
                let mut other = Vec::new();
                again.encode(&mut other);
                prop_assert_eq!(other, body);
                // A row chunk has the same head and events; one whose ticks go back, or too far, cannot be.
                let is_narrow = max_ticks != u64::MAX;
                let scanned = scanner.scan(&schema, StreamId::new(0), base, &rows).filter(|_| !is_narrow);
                let is_row_chunk = !events.is_empty() && header.inversions == 0 && header.max_offset != i64::MAX;
                prop_assert_eq!(scanned.as_ref(), Some(&header).filter(|_| is_row_chunk && !is_narrow));
                if let Some(header) = scanned {
                    let mut body = Vec::new();
                    put_before_rows(&header, &schema, base, &mut body);
                    body.extend_from_slice(&rows);
                    prop_assert_eq!(Chunk::decode_rows(&header, &body).unwrap(), chunk);
                }
            }
        }
    }

    #[test]
    fn ticks_that_grow_by_more_than_half_a_clock_go_back() {
        let late = Disorder::of(&[5, u64::MAX - 4], u64::MAX);
        assert_eq!((late.inversions, late.largest_lateness), (1, 10));
        assert_eq!((late.min_offset, late.max_offset), (-10, 0));
        let sorted = Disorder::of(&[5, 7, 1 << 62], u64::MAX);
        assert_eq!((sorted.inversions, sorted.max_offset), (0, (1 << 62) - 5));
    }
}
