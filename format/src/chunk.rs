//! Chunks of a recording: a run of one stream's events, in columns.

mod builder;
mod row;
mod row_chunk;

pub use builder::ChunkBuilder;
pub use row::{
    ROW_DROPPED, ROW_EVENT, ROW_FAR_TICK, ROW_OBSERVATION, put_dropped_row, put_row_start,
    row_element, visit_rows,
};
pub(crate) use row_chunk::read_row_chunk;
pub use row_chunk::{RowScanner, put_before_rows};

use crate::block::{BlockKind, BlockWriter};
use crate::column::Column;
use crate::definitions::MAX_ELEMENTS;
use crate::error::{FormatError, Result};
use crate::ids::{ANY_EVENT_TYPE, EventTypeId, StreamId};
use crate::ints::{put_codes, put_growing, put_ints, read_ints};
use crate::limits::Content;
use crate::loss::{Cause, DroppedRecord};
use crate::value::{ElementType, Value};
use crate::wire::{Put, Wire};

/// Most events in a chunk.
pub const MAX_CHUNK_EVENTS: usize = 1 << 22;
/// Most element values in a chunk: what decoding may allocate.
pub const MAX_CHUNK_VALUES: usize = 1 << 24;
/// Most event types in a chunk.
pub(crate) const MAX_CHUNK_TYPES: usize = u16::MAX as usize;

/// Events raised, recorded and dropped since a stream's start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cumulative {
    /// Raised.
    pub raised: u64,
    /// Committed.
    pub recorded: u64,
    /// Dropped, for whatever cause.
    pub dropped: u64,
}

/// Contents of a chunk's head, which is readable without the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its number in the stream, from 0.
    pub sequence: u64,
    /// Events in it.
    pub event_count: u64,
    /// Sum of the counts of its dropped records.
    pub dropped_count: u64,
    /// Raw tick of its first event.
    pub first_tick: u64,
    /// Smallest tick, relative to the first, wraps undone; never positive.
    pub min_offset: i64,
    /// Largest tick, relative to the first, wraps undone; never negative.
    pub max_offset: i64,
    /// Raw tick of its last event.
    pub last_tick: u64,
    /// Events whose tick lies below that of an earlier event of the chunk.
    pub inversions: u64,
    /// The largest distance, in ticks, by which one did.
    pub largest_lateness: u64,
    /// Reference clock when the chunk was opened, nanoseconds.
    pub open_reference_ns: i64,
    /// Reference clock when it was closed, nanoseconds.
    pub close_reference_ns: i64,
    /// Counts since the stream's start, at the chunk's opening.
    pub before: Cumulative,
    /// Events by event type, ascending.
    pub counts: Vec<(EventTypeId, u64)>,
    /// The counts of the stream's chunk before this one.
    pub predecessor_counts: Vec<(EventTypeId, u64)>,
}

fn put_counts(counts: &[(EventTypeId, u64)], out: &mut Vec<u8>) {
    out.put_varint(counts.len() as u64);
    for (event_type, count) in counts {
        out.put_varint(event_type.get().into());
        out.put_varint(*count);
    }
}

/// Counts by event type, ascending.
pub(crate) fn read_counts(wire: &mut Wire<'_>) -> Result<Vec<(EventTypeId, u64)>> {
    let start = wire.position();
    let length = wire.count(2, "number of event types")?;
    if length > MAX_CHUNK_TYPES {
        return Err(too_many_types(start, length));
    }
    let mut counts: Vec<(EventTypeId, u64)> = Vec::with_capacity(length);
    for _ in 0..length {
        let start = wire.position();
        let event_type = EventTypeId::new(wire.varint_u32("event type id")?);
        if counts.last().is_some_and(|(last, _)| *last >= event_type) {
            return Err(FormatError::invalid(
                start,
                "ascending event types",
                event_type.get(),
            ));
        }
        counts.push((event_type, wire.varint("number of events")?));
    }
    Ok(counts)
}

fn too_many_types(position: usize, found: impl ToString) -> FormatError {
    FormatError::invalid(position, "at most 65535 event types", found)
}

/// Appends an optional event type, as encoded in losses. [`ANY_EVENT_TYPE`], which totals use for
/// any type, is written as `None`.
pub(crate) fn put_loss_type(event_type: Option<EventTypeId>, out: &mut Vec<u8>) {
    let event_type = event_type.filter(|id| *id != ANY_EVENT_TYPE);
    out.put_varint(event_type.map_or(0, |id| u64::from(id.get()) + 1));
}

impl ChunkHeader {
    /// Appends the head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.stream.get().into());
        out.put_varint(self.sequence);
        out.put_varint(self.event_count);
        out.put_varint(self.dropped_count);
        out.put_varint(self.first_tick);
        out.put_signed(self.min_offset);
        out.put_signed(self.max_offset);
        out.put_varint(self.last_tick);
        out.put_varint(self.inversions);
        out.put_varint(self.largest_lateness);
        out.put_signed(self.open_reference_ns);
        out.put_signed(self.close_reference_ns);
        out.put_varint(self.before.raised);
        out.put_varint(self.before.recorded);
        out.put_varint(self.before.dropped);
        put_counts(&self.counts, out);
        put_counts(&self.predecessor_counts, out);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If it ends early, or its counts contradict each other or the limits.
    pub fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let header = Self {
            stream: StreamId::new(w.varint_u32("stream id")?),
            sequence: w.varint("chunk sequence number")?,
            event_count: w.varint("number of events")?,
            dropped_count: w.varint("number of dropped events")?,
            first_tick: w.varint("first tick")?,
            min_offset: w.signed("smallest tick")?,
            max_offset: w.signed("largest tick")?,
            last_tick: w.varint("last tick")?,
            inversions: w.varint("number of inversions")?,
            largest_lateness: w.varint("largest lateness")?,
            open_reference_ns: w.signed("reference clock at opening")?,
            close_reference_ns: w.signed("reference clock at closing")?,
            before: Cumulative {
                raised: w.varint("raised before")?,
                recorded: w.varint("recorded before")?,
                dropped: w.varint("dropped before")?,
            },
            counts: read_counts(w)?,
            predecessor_counts: read_counts(w)?,
        };
        let sum = header
            .counts
            .iter()
            .try_fold(0_u64, |sum, (_, count)| sum.checked_add(*count));
        if header.event_count > MAX_CHUNK_EVENTS as u64 || sum != Some(header.event_count) {
            return Err(FormatError::invalid(
                w.position(),
                "a number of events within the limits that is the sum by event type",
                header.event_count,
            ));
        }
        Ok(header)
    }
}

/// The columns of one event type in a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeColumns {
    /// Which event type.
    pub event_type: EventTypeId,
    /// Events of the type in the chunk.
    pub count: usize,
    /// One column per element.
    pub columns: Vec<Column>,
}

impl TypeColumns {
    /// Takes all events away; the columns keep their memory when the elements are the same.
    fn restart(&mut self, elements: impl Iterator<Item = ElementType> + Clone) {
        let is_same = elements
            .clone()
            .eq(self.columns.iter().map(Column::element_type));
        if !is_same {
            self.columns = elements.map(Column::new).collect();
        }
        self.clear();
    }

    /// Takes all events away; the columns keep their memory.
    fn clear(&mut self) {
        self.columns.iter_mut().for_each(Column::clear);
        self.count = 0;
    }

    /// Creates the columns of an event type without events.
    pub fn new(event_type: EventTypeId, elements: impl Iterator<Item = ElementType>) -> Self {
        Self {
            event_type,
            count: 0,
            columns: elements.map(Column::new).collect(),
        }
    }
}

/// Appends the event types of a chunk with their element types, and each event's.
pub(crate) fn put_type_table(types: &[TypeColumns], type_index: &[u16], out: &mut Vec<u8>) {
    out.put_varint(types.len() as u64);
    for columns in types {
        out.put_varint(columns.event_type.get().into());
        out.put_varint(columns.count as u64);
        out.put_varint(columns.columns.len() as u64);
        out.extend(columns.columns.iter().map(|c| c.element_type().code()));
    }
    put_codes(type_index, out);
}

/// Returns the inverse of [`put_type_table`]: columns still empty. `max_items` bounds events and element values
/// together.
pub(crate) fn read_type_table(
    wire: &mut Wire<'_>,
    event_count: usize,
    max_items: u64,
) -> Result<(Vec<TypeColumns>, Vec<u16>)> {
    let max_values = max_items.saturating_sub(event_count as u64);
    let max_values = max_values.min(MAX_CHUNK_VALUES as u64) as usize;
    let start = wire.position();
    let length = wire.count(3, "number of event types")?;
    if length > MAX_CHUNK_TYPES {
        return Err(too_many_types(start, length));
    }
    let mut types = Vec::with_capacity(length);
    let mut values = 0_usize;
    for _ in 0..length {
        let event_type = EventTypeId::new(wire.varint_u32("event type id")?);
        let start = wire.position();
        let count = wire.varint("number of events")?.min(1 << 32) as usize;
        let elements = wire.count(1, "number of elements")?;
        values = values.saturating_add(count.saturating_mul(elements));
        if elements > MAX_ELEMENTS || count > event_count || values > max_values {
            return Err(FormatError::invalid(
                start,
                "columns within the limits",
                format!("{count} events of {elements} elements"),
            ));
        }
        let start = wire.position();
        let codes = wire.take(elements, "element types")?;
        let mut kinds = Vec::with_capacity(elements);
        for code in codes {
            kinds.push(
                ElementType::from_code(*code)
                    .ok_or_else(|| FormatError::invalid(start, "an element type", code))?,
            );
        }
        let mut columns = TypeColumns::new(event_type, kinds.into_iter());
        columns.count = count;
        types.push(columns);
    }
    let start = wire.position();
    let mut counts = vec![0_usize; length];
    let mut type_index = Vec::with_capacity(event_count);
    for index in read_ints(wire, event_count)? {
        let Some(count) = counts.get_mut(index.min(1 << 32) as usize) else {
            return Err(FormatError::invalid(start, "an index of the types", index));
        };
        *count += 1;
        type_index.push(index as u16);
    }
    if let Some(wrong) = (0..length).find(|index| counts[*index] != types[*index].count) {
        return Err(FormatError::invalid(
            start,
            "as many events of a type as its columns hold",
            format!("{} of {}", counts[wrong], types[wrong].count),
        ));
    }
    Ok((types, type_index))
}

pub(crate) fn put_columns(types: &[TypeColumns], out: &mut Vec<u8>) {
    for columns in types {
        columns.columns.iter().for_each(|column| column.put(out));
    }
}

pub(crate) fn read_columns(wire: &mut Wire<'_>, types: &mut [TypeColumns]) -> Result<()> {
    for columns in types {
        let count = columns.count;
        for column in &mut columns.columns {
            *column = Column::read(wire, column.element_type(), count)?;
        }
    }
    Ok(())
}

/// Appends what a body has after the ticks.
fn put_after_ticks(
    types: &[TypeColumns],
    type_index: &[u16],
    dropped: &[(u32, DroppedRecord)],
    observations: &[(u32, i64)],
    out: &mut Vec<u8>,
) {
    put_type_table(types, type_index, out);
    put_columns(types, out);
    out.put_varint(dropped.len() as u64);
    for (index, record) in dropped {
        out.put_varint((*index).into());
        put_dropped(record, out);
    }
    out.put_varint(observations.len() as u64);
    let indexes: Vec<u32> = observations.iter().map(|(index, _)| *index).collect();
    let times: Vec<i64> = observations.iter().map(|(_, time_ns)| *time_ns).collect();
    put_ints(&indexes, out);
    put_ints(&times, out);
}

/// The events of a chunk, decoded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Chunk {
    /// Raw tick of each event.
    pub ticks: Vec<u64>,
    /// For each event, the index of its type in `types`.
    pub type_index: Vec<u16>,
    /// The columns, by event type, ascending.
    pub types: Vec<TypeColumns>,
    /// Dropped records, each before the event with this index.
    pub dropped: Vec<(u32, DroppedRecord)>,
    /// Reference clock readings, nanoseconds, each just before the event with this index was raised.
    pub observations: Vec<(u32, i64)>,
}

impl Chunk {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_growing(&self.ticks, out);
        let Self {
            types,
            type_index,
            dropped,
            observations,
            ..
        } = self;
        put_after_ticks(types, type_index, dropped, observations, out);
    }

    /// Returns what the body has beyond its bytes.
    pub fn content(&self) -> Content {
        content_of(self.ticks.len(), &self.types)
    }

    /// Appends the whole block of the chunk, which has this head, to `out`.
    pub fn put_block(&self, header: &ChunkHeader, blocks: &mut BlockWriter, out: &mut Vec<u8>) {
        let (mut head, mut body) = (Vec::new(), Vec::new());
        header.encode(&mut head);
        self.encode(&mut body);
        blocks.write_with(BlockKind::Chunk, &head, &body, self.content(), out);
    }

    /// Reads the body of a chunk with this head.
    ///
    /// # Errors
    /// If the body ends early or contradicts the format or its head.
    pub fn decode(header: &ChunkHeader, body: &[u8]) -> Result<Self> {
        Self::decode_within(header, body, u64::MAX)
    }

    /// Reads the body of a chunk that may contain at most `max_items` items.
    pub(crate) fn decode_within(header: &ChunkHeader, body: &[u8], max_items: u64) -> Result<Self> {
        let mut w = Wire::new(body);
        check_events(header.event_count, max_items)?;
        let event_count = header.event_count as usize;
        let ticks = read_ints(&mut w, event_count)?;
        let (mut types, type_index) = read_type_table(&mut w, event_count, max_items)?;
        read_columns(&mut w, &mut types)?;
        let mut chunk = Self {
            ticks,
            type_index,
            types,
            ..Self::default()
        };
        let start = w.position();
        let count = w.count(8, "number of dropped records")?;
        for _ in 0..count {
            let start = w.position();
            let index = w.varint_u32("position of a dropped record")?;
            if index as usize > event_count {
                return Err(FormatError::invalid(
                    start,
                    "the index of an event, or of the end",
                    format!("{index} of {event_count}"),
                ));
            }
            chunk.dropped.push((index, read_dropped(&mut w)?));
        }
        let dropped_count = dropped_count(&chunk.dropped);
        if dropped_count != header.dropped_count {
            return Err(FormatError::invalid(
                start,
                "as many dropped events as the head states",
                format!("{dropped_count}, {} in the head", header.dropped_count),
            ));
        }
        let start = w.position();
        let count = w.varint("number of observations")?.min(1 << 32) as usize;
        if count > event_count + 1 {
            return Err(FormatError::invalid(
                start,
                "an observation an event",
                count,
            ));
        }
        let indexes = read_ints(&mut w, count)?;
        let times = read_ints(&mut w, count)?;
        let pairs = indexes.into_iter().zip(times);
        chunk.observations = pairs
            .map(|(index, time)| (index.min(event_count as u64) as u32, time as i64))
            .collect();
        let mut counts = chunk.types.iter().map(|t| (t.event_type, t.count as u64));
        if !header.counts.iter().copied().eq(&mut counts) {
            return Err(FormatError::invalid(
                0,
                "the event types of the head",
                "others",
            ));
        }
        Ok(chunk)
    }

    /// Returns, for each event, its index in the columns of its type.
    pub fn ordinals(&self) -> Vec<u32> {
        ordinals(&self.type_index, self.types.len())
    }

    /// Returns the events, in order.
    pub fn rows(&self) -> impl Iterator<Item = ChunkRow<'_>> {
        rows(&self.types, &self.type_index)
    }
}

/// An event of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkRow<'a> {
    /// Its index in the chunk.
    pub index: usize,
    /// Its event type.
    pub event_type: EventTypeId,
    columns: &'a [Column],
    ordinal: usize,
}

impl<'a> ChunkRow<'a> {
    /// Returns the value of an element by its position in the definition of the event type. [`Value::Absent`] if there
    /// is none.
    pub fn value(&self, element: usize) -> Value<'a> {
        let column = self.columns.get(element);
        column.map_or(Value::Absent, |column| column.get(self.ordinal))
    }

    /// Returns the values of all its elements.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let ordinal = self.ordinal;
        self.columns.iter().map(move |column| column.get(ordinal))
    }
}

/// Returns the events of a chunk with these columns and, by event, the number of its type among
/// these.
pub(crate) fn rows<'a>(
    types: &'a [TypeColumns],
    type_index: &'a [u16],
) -> impl Iterator<Item = ChunkRow<'a>> {
    let mut next = vec![0_usize; types.len()];
    type_index.iter().enumerate().map(move |(index, of_type)| {
        let columns = &types[usize::from(*of_type)];
        let ordinal = next[usize::from(*of_type)];
        next[usize::from(*of_type)] += 1;
        ChunkRow {
            index,
            event_type: columns.event_type,
            columns: &columns.columns,
            ordinal,
        }
    })
}

/// Returns what the columns of some events are worth.
pub(crate) fn content_of(events: usize, types: &[TypeColumns]) -> Content {
    let values = types
        .iter()
        .map(|columns| columns.count * columns.columns.len());
    let columns = types.iter().flat_map(|columns| &columns.columns);
    Content {
        items: (events + values.sum::<usize>()) as u64,
        text_bytes: columns.map(Column::text_bytes).fold(0, u64::saturating_add),
    }
}

/// Checks a number of events before anything is allocated for them.
pub(crate) fn check_events(events: u64, max_items: u64) -> Result<()> {
    if events <= max_items {
        return Ok(());
    }
    let expected = "no more events than the stored bytes are worth";
    Err(FormatError::invalid(0, expected, events))
}

/// Returns, for each event, its index in the columns of its type.
pub fn ordinals(type_index: &[u16], type_count: usize) -> Vec<u32> {
    let mut next = vec![0_u32; type_count];
    let each = type_index.iter().map(|index| {
        let ordinal = &mut next[usize::from(*index)];
        *ordinal += 1;
        *ordinal - 1
    });
    each.collect()
}

/// Counts the events that the records report as dropped. Suppressed events do not count.
fn dropped_count(records: &[(u32, DroppedRecord)]) -> u64 {
    let dropped = records
        .iter()
        .filter(|(_, record)| record.cause.is_dropped());
    dropped.fold(0, |sum, (_, record)| sum.saturating_add(record.count))
}

fn read_dropped(w: &mut Wire<'_>) -> Result<DroppedRecord> {
    let event_type = match w.varint_u32("event type of a dropped record")? {
        0 => None,
        id => Some(EventTypeId::new(id - 1)),
    };
    let start = w.position();
    let code = w.u8("cause of a dropped record")?;
    let cause = Cause::from_code(code)
        .filter(|cause| !cause.is_of_reader())
        .ok_or_else(|| FormatError::invalid(start, "a recorder's cause", code))?;
    Ok(DroppedRecord {
        event_type,
        cause,
        is_lower_bound: w.u8("lower bound flag")? != 0,
        count: w.varint("dropped count")?,
        cumulative: w.varint("cumulative dropped count")?,
        from_tick: w.varint("last good tick")?,
        to_tick: w.varint("next good tick")?,
    })
}

fn put_dropped(record: &DroppedRecord, out: &mut Vec<u8>) {
    put_loss_type(record.event_type, out);
    out.push(record.cause.code());
    out.push(record.is_lower_bound.into());
    out.put_varint(record.count);
    out.put_varint(record.cumulative);
    out.put_varint(record.from_tick);
    out.put_varint(record.to_tick);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::Schema;
    use crate::testing::event_type;

    fn put_row(event_type: u32, rows: &mut Vec<u8>) {
        put_row_start(EventTypeId::new(event_type), 0, 1, rows);
    }

    fn record(event_type: Option<EventTypeId>, count: u64) -> DroppedRecord {
        DroppedRecord {
            event_type,
            cause: Cause::BufferFull,
            count,
            is_lower_bound: false,
            cumulative: count,
            from_tick: 0,
            to_tick: 1,
        }
    }

    /// Returns a chunk of three events with a dropped record at this index.
    fn chunk_with_drop(index: u32, record: DroppedRecord) -> (ChunkHeader, Chunk) {
        let mut schema = Schema::default();
        schema.add(&event_type(0, &[], false));
        let mut rows = Vec::new();
        (0..3).for_each(|_| put_row(0, &mut rows));
        let mut builder = ChunkBuilder::new(u64::MAX);
        builder.push_rows(&schema, 0, &rows).unwrap();
        let (mut header, mut chunk) = builder.finish(StreamId::new(0));
        header.dropped_count = record.count;
        chunk.dropped.push((index, record));
        (header, chunk)
    }

    fn encoded(chunk: &Chunk) -> Vec<u8> {
        let mut body = Vec::new();
        chunk.encode(&mut body);
        body
    }

    #[test]
    fn the_65536th_event_type_of_a_chunk_is_refused() {
        let mut schema = Schema::default();
        let mut rows = Vec::new();
        for id in 0..65_536 {
            schema.add(&event_type(id, &[], false));
            put_row(id, &mut rows);
        }
        let mut builder = ChunkBuilder::new(u64::MAX);
        let error = builder.push_rows(&schema, 0, &rows).unwrap_err();
        assert!(error.to_string().contains("65535 event types"), "{error}");
        let (header, chunk) = builder.finish(StreamId::new(0));
        assert_eq!(header.event_count, 65_535);
        assert_eq!(Chunk::decode(&header, &encoded(&chunk)).unwrap(), chunk);
    }

    #[test]
    fn a_builder_keeps_to_the_values_that_a_reader_accepts() {
        let mut schema = Schema::default();
        schema.add(&event_type(0, &[ElementType::U32; MAX_ELEMENTS], true));
        let fitting = MAX_CHUNK_VALUES / MAX_ELEMENTS;
        let mut rows = Vec::new();
        for _ in 0..=fitting {
            put_row(0, &mut rows);
            rows.extend([0; MAX_ELEMENTS / 8]);
        }
        let mut builder = ChunkBuilder::new(u64::MAX);
        let error = builder.push_rows(&schema, 0, &rows).unwrap_err();
        assert!(error.to_string().contains("16777216"), "{error}");
        let (header, chunk) = builder.finish(StreamId::new(0));
        assert_eq!(header.event_count, fitting as u64);
        assert!(Chunk::decode(&header, &encoded(&chunk)).is_ok());
    }

    #[test]
    fn of_several_observations_of_an_event_the_last_counts() {
        let mut schema = Schema::default();
        schema.add(&event_type(0, &[], false));
        let mut rows = Vec::new();
        for time_ns in [42, -56, 49] {
            rows.put_varint(ROW_OBSERVATION);
            rows.put_signed(time_ns);
        }
        put_row(0, &mut rows);
        let mut builder = ChunkBuilder::new(u64::MAX);
        assert_eq!(builder.push_rows(&schema, 0, &rows).unwrap(), 1);
        let (header, chunk) = builder.finish(StreamId::new(0));
        assert_eq!(chunk.observations, [(0, 49)]);
        assert_eq!(Chunk::decode(&header, &encoded(&chunk)).unwrap(), chunk);
    }

    #[test]
    fn dropped_records_must_sum_up_to_the_head() {
        let (mut header, chunk) = chunk_with_drop(3, record(None, 7));
        let body = encoded(&chunk);
        assert_eq!(Chunk::decode(&header, &body).unwrap(), chunk);
        header.dropped_count = 8;
        assert!(Chunk::decode(&header, &body).is_err());
    }

    #[test]
    fn a_dropped_record_behind_the_end_is_refused() {
        let (header, chunk) = chunk_with_drop(4, record(None, 7));
        assert!(Chunk::decode(&header, &encoded(&chunk)).is_err());
    }

    #[test]
    fn a_drop_of_the_reserved_type_is_one_of_any_type() {
        let (header, chunk) = chunk_with_drop(0, record(Some(ANY_EVENT_TYPE), 1));
        let read = Chunk::decode(&header, &encoded(&chunk)).unwrap();
        assert_eq!(read.dropped, [(0, record(None, 1))]);
        let mut row = Vec::new();
        put_dropped_row(&record(Some(ANY_EVENT_TYPE), 1), &mut row);
        let mut builder = ChunkBuilder::new(u64::MAX);
        builder.push_rows(&Schema::default(), 0, &row).unwrap();
        assert_eq!(builder.finish(StreamId::new(0)).1.dropped, read.dropped);
    }

    #[test]
    fn counts_of_a_head_ascend() {
        let (mut header, _) = chunk_with_drop(0, record(None, 1));
        for order in [[1, 0], [1, 1]] {
            header.counts = order.map(|id| (EventTypeId::new(id), 1)).to_vec();
            header.event_count = 2;
            let mut head = Vec::new();
            header.encode(&mut head);
            assert!(ChunkHeader::decode(&mut Wire::new(&head)).is_err());
        }
    }
}
