//! Chunks of a trace: a run of the global order, in columns.

use std::collections::BTreeMap;

use crate::chunk::{
    ChunkRow, MAX_CHUNK_EVENTS, TypeColumns, check_events, content_of, ordinals, put_columns,
    put_loss_type, put_type_table, read_columns, read_counts, read_type_table, rows,
};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::ints::{Word, put_codes, put_growing, put_ints, read_ints};
use crate::limits::Content;
use crate::loss::Cause;
use crate::wire::{Put, Wire};

/// A loss of one stream on the merged axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceLoss {
    /// Which stream.
    pub stream: StreamId,
    /// What was lost; none: any type.
    pub event_type: Option<EventTypeId>,
    /// Why.
    pub cause: Cause,
    /// How many events.
    pub count: u64,
    /// Whether more may have been lost.
    pub is_lower_bound: bool,
    /// Trace time of the last event before the loss, nanoseconds.
    pub from_ns: i64,
    /// Trace time of the next event after it, nanoseconds; the process's end when there is none.
    pub to_ns: i64,
}

impl TraceLoss {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        body.put_varint(self.stream.get().into());
        put_loss_type(self.event_type, &mut body);
        body.push(self.cause.code());
        body.put_varint(self.count);
        body.push(self.is_lower_bound.into());
        body.put_signed(self.from_ns);
        body.put_signed(self.to_ns);
        out.put_bytes(&body);
    }

    pub(crate) fn decode(wire: &mut Wire<'_>) -> Result<Self> {
        let mut w = Wire::new(wire.bytes("loss record")?);
        let stream = StreamId::new(w.varint_u32("stream id")?);
        let event_type = match w.varint_u32("event type of a loss")? {
            0 => None,
            id => Some(EventTypeId::new(id - 1)),
        };
        let start = w.position();
        let code = w.u8("cause of a loss")?;
        let cause = Cause::from_code(code)
            .ok_or_else(|| FormatError::invalid(start, "a known cause", code))?;
        Ok(Self {
            stream,
            event_type,
            cause,
            count: w.varint("lost count")?,
            is_lower_bound: w.u8("lower bound flag")? != 0,
            from_ns: w.signed("last good time")?,
            to_ns: w.signed("next good time")?,
        })
    }
}

/// What a trace chunk's head tells without its body being read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceChunkHeader {
    /// Its number in the trace, from 0.
    pub sequence: u64,
    /// Events in it.
    pub event_count: u64,
    /// Loss records in it.
    pub loss_count: u64,
    /// Trace time of its first event, nanoseconds.
    pub first_ns: i64,
    /// Trace time of its last event, nanoseconds.
    pub last_ns: i64,
    /// Events by stream and event type, both ascending.
    pub counts: Vec<(StreamId, Vec<(EventTypeId, u64)>)>,
}

impl TraceChunkHeader {
    /// Appends the head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.sequence);
        out.put_varint(self.event_count);
        out.put_varint(self.loss_count);
        out.put_signed(self.first_ns);
        out.put_signed(self.last_ns);
        out.put_varint(self.counts.len() as u64);
        for (stream, counts) in &self.counts {
            out.put_varint(stream.get().into());
            out.put_varint(counts.len() as u64);
            for (event_type, count) in counts {
                out.put_varint(event_type.get().into());
                out.put_varint(*count);
            }
        }
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If it ends early or its counts contradict each other or the limits.
    pub fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let mut header = Self {
            sequence: w.varint("chunk sequence number")?,
            event_count: w.varint("number of events")?,
            loss_count: w.varint("number of losses")?,
            first_ns: w.signed("first time")?,
            last_ns: w.signed("last time")?,
            counts: Vec::new(),
        };
        let streams = w.count(2, "number of streams")?;
        let mut sum = 0_u64;
        for _ in 0..streams {
            let start = w.position();
            let stream = StreamId::new(w.varint_u32("stream id")?);
            if header
                .counts
                .last()
                .is_some_and(|(last, _)| *last >= stream)
            {
                return Err(FormatError::invalid(
                    start,
                    "ascending streams",
                    stream.get(),
                ));
            }
            let counts = read_counts(w)?;
            sum = counts
                .iter()
                .fold(sum, |sum, (_, count)| sum.saturating_add(*count));
            header.counts.push((stream, counts));
        }
        if header.event_count > MAX_CHUNK_EVENTS as u64 || sum != header.event_count {
            return Err(FormatError::invalid(
                w.position(),
                "a number of events within the limits that is the sum by event type",
                header.event_count,
            ));
        }
        Ok(header)
    }
}

/// The events of a trace chunk, decoded: a run of the global order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceChunk {
    /// Trace time of each event, nanoseconds, ascending.
    pub times_ns: Vec<i64>,
    /// Stream of each event.
    pub streams: Vec<StreamId>,
    /// For each event, the index of its type in `types`.
    pub type_index: Vec<u16>,
    /// The columns, by event type.
    pub types: Vec<TypeColumns>,
    /// For each event, its unwrapped tick less the one its clock's map gives for its time.
    pub tick_residuals: Vec<i64>,
    /// For each event of a stream that was sorted, its position in the stream; else 0. Empty: 0 for all.
    pub positions: Vec<u64>,
    /// For each event, by how much causality repair moved it, nanoseconds. Empty: 0 for all.
    pub shifts_ns: Vec<i64>,
    /// Losses, each before the event with this index.
    pub losses: Vec<(u32, TraceLoss)>,
}

/// Counts by stream and type. Streams interleave event by event, so a dense table is several times
/// faster than a map; a map stands in where bytes from a file would make the table large.
enum CountTable {
    Dense { width: usize, counts: Vec<u64> },
    Sparse(BTreeMap<(usize, usize), u64>),
}

impl CountTable {
    const LARGEST: usize = 1 << 20;

    fn new(streams: usize, types: usize) -> Self {
        match streams.checked_mul(types) {
            Some(size) if size <= Self::LARGEST => Self::Dense {
                width: types,
                counts: vec![0; size],
            },
            _ => Self::Sparse(BTreeMap::new()),
        }
    }

    #[inline]
    fn count(&mut self, stream: usize, place: usize) {
        match self {
            Self::Dense { width, counts } => counts[stream * *width + place] += 1,
            Self::Sparse(counts) => *counts.entry((stream, place)).or_default() += 1,
        }
    }

    /// The counts of a stream that are not 0, with their places, ascending.
    fn row(&self, stream: usize) -> Vec<(usize, u64)> {
        match self {
            Self::Dense { width, counts } => {
                let row = counts[stream * width..][..*width]
                    .iter()
                    .copied()
                    .enumerate();
                row.filter(|(_, count)| *count != 0).collect()
            }
            Self::Sparse(counts) => {
                let row = counts.range((stream, 0)..=(stream, usize::MAX));
                row.map(|((_, place), count)| (*place, *count)).collect()
            }
        }
    }
}

/// The streams of some events, ascending, and the place of each.
struct Ranks {
    streams: Vec<StreamId>,
    /// By stream; empty when the numbers are too large for a table.
    places: Vec<u32>,
}

impl Ranks {
    /// Stream numbers beyond this come from a damaged file, which must not decide about a table.
    const LARGEST: usize = 1 << 20;

    fn of(of_events: &[StreamId]) -> Self {
        let highest = of_events.iter().max().map_or(0, |stream| stream.index());
        if highest >= Self::LARGEST {
            let mut streams = of_events.to_vec();
            streams.sort_unstable();
            streams.dedup();
            let places = Vec::new();
            return Self { streams, places };
        }
        let mut places = vec![0; highest + 1];
        of_events
            .iter()
            .for_each(|stream| places[stream.index()] = 1);
        let mut streams = Vec::new();
        for (number, place) in places.iter_mut().enumerate() {
            if *place == 1 {
                *place = streams.len() as u32;
                streams.push(StreamId::new(number as u32));
            }
        }
        if of_events.is_empty() {
            streams.clear();
        }
        Self { streams, places }
    }

    #[inline]
    fn of_stream(&self, stream: StreamId) -> usize {
        match self.places.get(stream.index()) {
            Some(place) => *place as usize,
            None => {
                let found = self.streams.binary_search(&stream);
                found.expect("the list has every stream")
            }
        }
    }
}

fn signed(values: Vec<u64>) -> Vec<i64> {
    values.into_iter().map(|value| value as i64).collect()
}

/// A column of which all values are 0, as it is stored.
const ZEROS: [u8; 2] = [0, 0];

/// Appends a column that most chunks have nothing but 0 in.
fn put_rare<T: Word>(values: &[T], count: usize, out: &mut Vec<u8>) {
    if values.is_empty() && count != 0 {
        out.extend_from_slice(&ZEROS);
    } else {
        put_ints(values, out);
    }
}

/// Reads such a column; empty when it has nothing but 0.
fn read_rare(w: &mut Wire<'_>, count: usize) -> Result<Vec<u64>> {
    if count != 0 && w.starts_with(&ZEROS) {
        w.take(ZEROS.len(), "a column of zeros")?;
        return Ok(Vec::new());
    }
    read_ints(w, count)
}

impl TraceChunk {
    /// Number of events.
    pub fn len(&self) -> usize {
        self.times_ns.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.times_ns.is_empty()
    }

    /// Position of an event in its stream, where that was sorted; else 0.
    #[inline]
    pub fn position(&self, index: usize) -> u64 {
        self.positions.get(index).copied().unwrap_or(0)
    }

    /// By how much causality repair moved an event, nanoseconds.
    #[inline]
    pub fn shift_ns(&self, index: usize) -> i64 {
        self.shifts_ns.get(index).copied().unwrap_or(0)
    }

    /// Events by stream and event type, both ascending.
    fn counts(&self) -> Vec<(StreamId, Vec<(EventTypeId, u64)>)> {
        let ranks = Ranks::of(&self.streams);
        let streams = &ranks.streams;
        // Places in the table ascend by event type.
        let mut order: Vec<usize> = (0..self.types.len()).collect();
        order.sort_by_key(|index| self.types[*index].event_type);
        let mut places = vec![0; order.len()];
        for (place, index) in order.iter().enumerate() {
            places[*index] = place;
        }
        let mut table = CountTable::new(streams.len(), self.types.len());
        for (stream, index) in self.streams.iter().zip(&self.type_index) {
            table.count(ranks.of_stream(*stream), places[usize::from(*index)]);
        }
        let rows = streams.iter().enumerate().map(|(rank, stream)| {
            let mut counts: Vec<(EventTypeId, u64)> = Vec::new();
            for (place, count) in table.row(rank) {
                let event_type = self.types[order[place]].event_type;
                match counts.last_mut() {
                    Some((last, sum)) if *last == event_type => *sum += count,
                    _ => counts.push((event_type, count)),
                }
            }
            (*stream, counts)
        });
        rows.collect()
    }

    /// The head that goes with these events.
    pub fn header(&self, sequence: u64) -> TraceChunkHeader {
        self.header_of(sequence, self.counts())
    }

    /// The head that goes with these events, for whoever has counted them by stream and event type.
    pub fn header_of(
        &self,
        sequence: u64,
        counts: Vec<(StreamId, Vec<(EventTypeId, u64)>)>,
    ) -> TraceChunkHeader {
        let from_losses = || self.losses.first().map(|(_, loss)| loss.to_ns);
        TraceChunkHeader {
            sequence,
            event_count: self.len() as u64,
            loss_count: self.losses.len() as u64,
            first_ns: self
                .times_ns
                .first()
                .copied()
                .or_else(from_losses)
                .unwrap_or(0),
            last_ns: self
                .times_ns
                .last()
                .copied()
                .or_else(from_losses)
                .unwrap_or(0),
            counts,
        }
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_growing(&self.times_ns, out);
        put_codes(&self.streams, out);
        put_type_table(&self.types, &self.type_index, out);
        put_columns(&self.types, out);
        put_codes(&self.tick_residuals, out);
        put_rare(&self.positions, self.len(), out);
        put_rare(&self.shifts_ns, self.len(), out);
        out.put_varint(self.losses.len() as u64);
        for (index, loss) in &self.losses {
            out.put_varint((*index).into());
            loss.encode(out);
        }
    }

    /// What the body has beyond its bytes.
    pub fn content(&self) -> Content {
        content_of(self.len(), &self.types)
    }

    /// Reads the body of a chunk with this head.
    ///
    /// # Errors
    /// If the body ends early or contradicts the format or its head.
    pub fn decode(header: &TraceChunkHeader, body: &[u8]) -> Result<Self> {
        Self::decode_within(header, body, u64::MAX)
    }

    /// Reads the body of a chunk that may have this many items.
    pub(crate) fn decode_within(
        header: &TraceChunkHeader,
        body: &[u8],
        max_items: u64,
    ) -> Result<Self> {
        let mut w = Wire::new(body);
        check_events(header.event_count, max_items)?;
        let count = header.event_count as usize;
        let times_ns = signed(read_ints(&mut w, count)?);
        if !times_ns.is_sorted() {
            return Err(FormatError::invalid(0, "ascending times", "others"));
        }
        let mut streams = Vec::with_capacity(count);
        for id in read_ints(&mut w, count)? {
            let id = u32::try_from(id)
                .map_err(|_| FormatError::invalid(w.position(), "a stream id", id))?;
            streams.push(StreamId::new(id));
        }
        let (mut types, type_index) = read_type_table(&mut w, count, max_items)?;
        read_columns(&mut w, &mut types)?;
        let mut chunk = Self {
            times_ns,
            streams,
            type_index,
            types,
            tick_residuals: signed(read_ints(&mut w, count)?),
            positions: read_rare(&mut w, count)?,
            shifts_ns: signed(read_rare(&mut w, count)?),
            losses: Vec::new(),
        };
        let start = w.position();
        let losses = w.count(8, "number of losses")?;
        if losses as u64 != header.loss_count {
            return Err(FormatError::invalid(
                start,
                "as many losses as the head states",
                format!("{losses}, {} in the head", header.loss_count),
            ));
        }
        for _ in 0..losses {
            let start = w.position();
            let index = w.varint_u32("position of a loss")?;
            if index as usize > count {
                return Err(FormatError::invalid(
                    start,
                    "the index of an event, or of the end",
                    format!("{index} of {count}"),
                ));
            }
            chunk.losses.push((index, TraceLoss::decode(&mut w)?));
        }
        let found = chunk.header(header.sequence);
        if found.counts != header.counts {
            return Err(FormatError::invalid(
                0,
                "the streams and event types of the head",
                "others",
            ));
        }
        Ok(chunk)
    }

    /// For each event, its index in the columns of its type.
    pub fn ordinals(&self) -> Vec<u32> {
        ordinals(&self.type_index, self.types.len())
    }

    /// The events, in order.
    pub fn rows(&self) -> impl Iterator<Item = ChunkRow<'_>> {
        rows(&self.types, &self.type_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ANY_EVENT_TYPE;

    fn chunk_with_loss(index: u32, event_type: Option<EventTypeId>) -> TraceChunk {
        let mut columns = TypeColumns::new(EventTypeId::new(0), std::iter::empty());
        columns.count = 1;
        TraceChunk {
            times_ns: vec![5],
            streams: vec![StreamId::new(0)],
            type_index: vec![0],
            types: vec![columns],
            tick_residuals: vec![0],
            positions: Vec::new(),
            shifts_ns: Vec::new(),
            losses: vec![(
                index,
                TraceLoss {
                    stream: StreamId::new(0),
                    event_type,
                    cause: Cause::Skipped,
                    count: 3,
                    is_lower_bound: false,
                    from_ns: 5,
                    to_ns: 6,
                },
            )],
        }
    }

    fn encoded(chunk: &TraceChunk) -> Vec<u8> {
        let mut body = Vec::new();
        chunk.encode(&mut body);
        body
    }

    #[test]
    fn losses_must_be_as_many_as_in_the_head() {
        let chunk = chunk_with_loss(1, None);
        let mut header = chunk.header(0);
        assert_eq!(
            TraceChunk::decode(&header, &encoded(&chunk)).unwrap(),
            chunk
        );
        header.loss_count = 2;
        assert!(TraceChunk::decode(&header, &encoded(&chunk)).is_err());
    }

    #[test]
    fn a_loss_behind_the_end_is_refused() {
        let chunk = chunk_with_loss(2, None);
        assert!(TraceChunk::decode(&chunk.header(0), &encoded(&chunk)).is_err());
    }

    #[test]
    fn a_loss_of_the_reserved_type_is_one_of_any_type() {
        let chunk = chunk_with_loss(0, Some(ANY_EVENT_TYPE));
        let read = TraceChunk::decode(&chunk.header(0), &encoded(&chunk)).unwrap();
        assert_eq!(read, chunk_with_loss(0, None));
    }

    #[test]
    fn streams_of_a_head_ascend() {
        let mut header = chunk_with_loss(0, None).header(0);
        let counts = header.counts[0].clone();
        header.event_count = 2;
        header.counts.push(counts);
        let mut head = Vec::new();
        header.encode(&mut head);
        assert!(TraceChunkHeader::decode(&mut Wire::new(&head)).is_err());
    }
}
