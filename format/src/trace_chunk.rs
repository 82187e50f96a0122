//! Chunks of a trace: a run of the global order, stored stream by stream.

use std::ops::Range;

use crate::block::{BlockKind, BlockWriter, StoredBody};
use crate::chunk::{MAX_CHUNK_EVENTS, MAX_CHUNK_VALUES, content_of, put_loss_type, read_counts};
use crate::error::{FormatError, Result};
use crate::frames::{Frame, StoredFrames, read_frames};
use crate::ids::{EventTypeId, StreamId};
use crate::limits::Content;
use crate::loss::Cause;
use crate::stream_group::{StreamCounts, StreamGroup};
use crate::wire::{Put, Wire};

/// A loss of one stream on the merged axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceLoss {
    /// Which stream.
    pub stream: StreamId,
    /// The type of the lost events; `None` means any type.
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

/// Contents of a trace chunk's head, which is readable without the body.
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
    pub counts: Vec<StreamCounts>,
    /// The frames of the body: one of losses if there are any, then the groups of streams.
    pub frames: Vec<Frame>,
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
        out.put_varint(self.frames.len() as u64);
        self.frames.iter().for_each(|frame| frame.encode(out));
    }

    /// Returns the number of events of a stream.
    pub fn events_of(&self, stream: StreamId) -> u64 {
        let found = self.counts.binary_search_by_key(&stream, |(id, _)| *id);
        let counts = found.map_or(&[][..], |at| &self.counts[at].1);
        counts.iter().map(|(_, count)| count).sum()
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
            frames: Vec::new(),
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
        header.frames = read_frames(w, header.loss_count != 0, &header.counts)?;
        Ok(header)
    }
}

/// The events of a trace chunk: a run of the global order, stream by stream. [`TraceChunk::order`] finds the global order
/// again.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceChunk {
    /// Groups of streams, ascending by stream. One that was not read is not among them.
    pub groups: Vec<StreamGroup>,
    /// Losses, by stream, each before the event of its stream with this index in the chunk, from 0; the number of those
    /// events means after the last.
    pub losses: Vec<(u32, TraceLoss)>,
}

impl TraceChunk {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.groups.iter().map(StreamGroup::len).sum()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.groups.iter().all(StreamGroup::is_empty)
    }

    /// Returns the trace times of the first and the last event, nanoseconds. `None` if there are no
    /// events.
    pub fn span_ns(&self) -> Option<(i64, i64)> {
        let spans = self.groups.iter().filter_map(StreamGroup::span_ns);
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Returns the runs of all streams: each group, stream, and the indexes of its events in the
    /// group.
    pub fn runs(&self) -> impl Iterator<Item = (&StreamGroup, StreamId, Range<usize>)> {
        let groups = self.groups.iter();
        groups.flat_map(|group| group.runs().map(move |(stream, run)| (group, stream, run)))
    }

    /// Returns whether a stream has events in it.
    pub fn has_stream(&self, stream: StreamId) -> bool {
        self.place_of(stream, 0).is_some()
    }

    /// Returns the losses of a stream, in order.
    pub fn losses_of(&self, stream: StreamId) -> &[(u32, TraceLoss)] {
        let start = self
            .losses
            .partition_point(|(_, loss)| loss.stream < stream);
        let rest = &self.losses[start..];
        &rest[..rest.partition_point(|(_, loss)| loss.stream == stream)]
    }

    /// Returns the head for these events, without frames.
    pub fn header(&self, sequence: u64) -> TraceChunkHeader {
        let mut counts = Vec::new();
        self.groups
            .iter()
            .for_each(|group| group.count(&mut counts));
        self.header_of(sequence, counts)
    }

    /// Returns the head for these events, for a caller that has already counted them by stream and
    /// event type.
    pub fn header_of(&self, sequence: u64, counts: Vec<StreamCounts>) -> TraceChunkHeader {
        let from_losses = || self.losses.iter().map(|(_, loss)| loss.to_ns).min();
        let at = || from_losses().map_or((0, 0), |at| (at, at));
        let (first_ns, last_ns) = self.span_ns().unwrap_or_else(at);
        TraceChunkHeader {
            sequence,
            event_count: self.len() as u64,
            loss_count: self.losses.len() as u64,
            first_ns,
            last_ns,
            counts,
            frames: Vec::new(),
        }
    }

    /// Encodes and stores the body, and notes its frames in its head.
    ///
    /// # Errors
    /// If the body would be longer than [`crate::MAX_CHUNK_BODY_LEN`].
    pub fn store(
        &self,
        header: &mut TraceChunkHeader,
        writer: &mut BlockWriter,
    ) -> Result<StoredBody> {
        let mut stored = StoredFrames::default();
        let mut raw = Vec::new();
        if !self.losses.is_empty() {
            raw.put_varint(self.losses.len() as u64);
            for (index, loss) in &self.losses {
                raw.put_varint((*index).into());
                loss.encode(&mut raw);
            }
            stored.push(0, writer.store(&raw, Content::default()));
        }
        for group in &self.groups {
            raw.clear();
            let cuts = group.encode(header.first_ns, &mut raw);
            let body = writer.store_parts(&raw, &cuts, content_of(group.len(), &group.types));
            stored.push(group.ends.len() as u32, body);
        }
        let (frames, body) = stored.finish()?;
        header.frames = frames;
        Ok(body)
    }

    /// Appends a whole block of these events.
    ///
    /// # Errors
    /// If [`TraceChunk::store`] fails.
    pub fn put_block(
        &self,
        sequence: u64,
        writer: &mut BlockWriter,
        out: &mut Vec<u8>,
    ) -> Result<TraceChunkHeader> {
        let mut header = self.header(sequence);
        let body = self.store(&mut header, writer)?;
        let mut head = Vec::new();
        header.encode(&mut head);
        body.put_block(BlockKind::TraceChunk, &head, out);
        Ok(header)
    }

    /// Reads the body of a chunk with this head.
    ///
    /// # Errors
    /// If the body ends early or contradicts the format or its head.
    pub fn decode(header: &TraceChunkHeader, body: &[u8]) -> Result<Self> {
        let mut chunk = Self::default();
        let mut reader = GroupReader::new(header);
        while let Some(frame) = reader.next_frame() {
            let stored = frame.range.clone();
            let stored = usize::try_from(stored.start)
                .ok()
                .zip(usize::try_from(stored.end).ok());
            let stored = stored.and_then(|(start, end)| body.get(start..end));
            let stored = stored.ok_or(FormatError::UnexpectedEnd {
                offset: body.len() as u64,
                expected: "a frame",
            })?;
            reader.read(&frame, stored, &mut chunk)?;
        }
        Ok(chunk)
    }
}

/// A frame of a chunk that is read.
#[derive(Clone, Debug)]
pub(crate) struct NextFrame {
    frame: Frame,
    /// Its position in the body.
    pub(crate) range: Range<u64>,
    /// The streams that it contains, as indexes in the counts of the head. An empty range means
    /// that it contains the losses.
    pub(crate) streams: Range<usize>,
}

/// Iterates over the frames of a chunk.
#[derive(Debug)]
pub(crate) struct GroupReader<'a> {
    header: &'a TraceChunkHeader,
    frames: std::slice::Iter<'a, Frame>,
    offset: u64,
    stream: usize,
    values: u64,
}

impl<'a> GroupReader<'a> {
    pub(crate) fn new(header: &'a TraceChunkHeader) -> Self {
        Self {
            header,
            frames: header.frames.iter(),
            offset: 0,
            stream: 0,
            values: 0,
        }
    }

    pub(crate) fn next_frame(&mut self) -> Option<NextFrame> {
        let frame = *self.frames.next()?;
        let (start, stream) = (self.offset, self.stream);
        self.offset += u64::from(frame.stored_len);
        self.stream += frame.streams as usize;
        Some(NextFrame {
            frame,
            range: start..self.offset,
            streams: stream..self.stream,
        })
    }

    /// Takes in what a frame has, given as it is stored.
    pub(crate) fn read(
        &mut self,
        next: &NextFrame,
        stored: &[u8],
        chunk: &mut TraceChunk,
    ) -> Result<()> {
        let raw = next.frame.open(stored)?;
        let mut w = Wire::new(&raw);
        if next.streams.is_empty() {
            chunk.losses = self.read_losses(&mut w)?;
            return Ok(());
        }
        let counts = &self.header.counts[next.streams.clone()];
        let (first_ns, last_ns) = (self.header.first_ns, self.header.last_ns);
        let max_items = Content::max_items(stored.len());
        let group = StreamGroup::decode(&mut w, first_ns, last_ns, counts, max_items)?;
        let content = content_of(group.len(), &group.types);
        content.check(raw.len(), stored.len())?;
        self.values = self.values.saturating_add(content.items);
        if self.values > (MAX_CHUNK_EVENTS + MAX_CHUNK_VALUES) as u64 {
            return Err(FormatError::invalid(
                0,
                "no more values than a chunk may have",
                self.values,
            ));
        }
        chunk.groups.push(group);
        Ok(())
    }

    fn read_losses(&self, w: &mut Wire<'_>) -> Result<Vec<(u32, TraceLoss)>> {
        let start = w.position();
        let count = w.count(8, "number of losses")?;
        if count as u64 != self.header.loss_count {
            return Err(FormatError::invalid(
                start,
                "as many losses as the head states",
                format!("{count}, {} in the head", self.header.loss_count),
            ));
        }
        let mut losses: Vec<(u32, TraceLoss)> = Vec::with_capacity(count);
        for _ in 0..count {
            let start = w.position();
            let index = w.varint_u32("position of a loss")?;
            let loss = TraceLoss::decode(w)?;
            let events = self.header.events_of(loss.stream);
            if u64::from(index) > events {
                return Err(FormatError::invalid(
                    start,
                    "the index of an event of the loss's stream, or of the end",
                    format!("{index} of {events}"),
                ));
            }
            let place = |(index, loss): &(u32, TraceLoss)| (loss.stream, *index);
            if losses
                .last()
                .is_some_and(|last| place(last) > (loss.stream, index))
            {
                return Err(FormatError::invalid(
                    start,
                    "losses that ascend by stream and place",
                    format!("stream {}, place {index}", loss.stream.get()),
                ));
            }
            losses.push((index, loss));
        }
        Ok(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::CompressionLevel;
    use crate::frames::LEAST_GROUP_EVENTS;
    use crate::ids::ANY_EVENT_TYPE;
    use crate::testing::{groups, trace_chunk};

    fn chunk_with_loss(index: u32, event_type: Option<EventTypeId>) -> TraceChunk {
        let loss = TraceLoss {
            stream: StreamId::new(0),
            event_type,
            cause: Cause::Skipped,
            count: 3,
            is_lower_bound: false,
            from_ns: 5,
            to_ns: 6,
        };
        TraceChunk {
            losses: vec![(index, loss)],
            ..trace_chunk(5, 1)
        }
    }

    /// Returns a chunk in its stored form.
    fn stored(chunk: &TraceChunk) -> (TraceChunkHeader, Vec<u8>) {
        let mut writer = BlockWriter::new(CompressionLevel::None).unwrap();
        let mut header = chunk.header(0);
        let body = chunk.store(&mut header, &mut writer).unwrap();
        (header, body.bytes)
    }

    fn read(header: &TraceChunkHeader) -> Result<TraceChunkHeader> {
        let mut head = Vec::new();
        header.encode(&mut head);
        TraceChunkHeader::decode(&mut Wire::new(&head))
    }

    #[test]
    fn losses_must_be_as_many_as_in_the_head() {
        let chunk = chunk_with_loss(1, None);
        let (mut header, body) = stored(&chunk);
        assert_eq!(read(&header).unwrap(), header);
        assert_eq!(TraceChunk::decode(&header, &body).unwrap(), chunk);
        header.loss_count = 2;
        assert!(TraceChunk::decode(&header, &body).is_err());
    }

    #[test]
    fn a_loss_behind_the_end_is_refused() {
        let (header, body) = stored(&chunk_with_loss(2, None));
        assert!(TraceChunk::decode(&header, &body).is_err());
    }

    #[test]
    fn a_loss_of_the_reserved_type_is_one_of_any_type() {
        let (header, body) = stored(&chunk_with_loss(0, Some(ANY_EVENT_TYPE)));
        let read = TraceChunk::decode(&header, &body).unwrap();
        assert_eq!(read, chunk_with_loss(0, None));
    }

    #[test]
    fn streams_of_a_head_ascend() {
        let (mut header, _) = stored(&chunk_with_loss(0, None));
        let counts = header.counts[0].clone();
        header.event_count = 2;
        header.frames[1].streams = 2;
        header.counts.push(counts);
        assert!(read(&header).is_err());
    }

    #[test]
    fn small_groups_are_refused_but_for_the_last() {
        let large = LEAST_GROUP_EVENTS as usize;
        for (counts, is_right) in [([large, 1], true), ([large - 1, 1], false)] {
            let (header, _) = stored(&groups(&counts));
            assert_eq!(read(&header).is_ok(), is_right, "{counts:?}");
        }
    }

    #[test]
    fn frames_have_all_streams_of_the_head() {
        let (header, _) = stored(&groups(&[4096, 1]));
        for streams in [0, 2] {
            let mut header = header.clone();
            header.frames[1].streams = streams;
            assert!(read(&header).is_err());
        }
        let mut header = header;
        header.frames.pop();
        assert!(read(&header).is_err());
    }

    #[test]
    fn other_counts_than_the_heads_are_refused() {
        let (mut header, body) = stored(&groups(&[4096, 2]));
        TraceChunk::decode(&header, &body).unwrap();
        header.counts[1].1[0].0 = EventTypeId::new(1);
        assert!(TraceChunk::decode(&header, &body).is_err());
    }

    #[test]
    fn times_beyond_the_heads_are_refused() {
        let (mut header, body) = stored(&groups(&[4096, 2]));
        header.last_ns -= 1;
        assert!(TraceChunk::decode(&header, &body).is_err());
    }

    #[test]
    fn the_order_is_by_time_and_then_by_stream() {
        let mut chunk = groups(&[4096, 3, 2]);
        // Times: 0 .. 4095; 10, 11, 12; 20, 21.
        chunk.losses = vec![
            (
                1,
                TraceLoss {
                    stream: StreamId::new(1),
                    ..chunk_with_loss(0, None).losses[0].1
                },
            ),
            (
                2,
                TraceLoss {
                    stream: StreamId::new(2),
                    to_ns: 4095,
                    ..chunk_with_loss(0, None).losses[0].1
                },
            ),
        ];
        let order = crate::order::OrderedChunk::from(chunk);
        assert!(order.times_ns().is_sorted());
        let groups = (10..17).map(|event| order.place(event).group);
        assert_eq!(groups.collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1, 0]);
        // Before the second event of stream 1; and, after the last of stream 2, before what is at its end.
        let losses = order.losses().map(|(at, loss)| (at, loss.stream.get()));
        assert_eq!(losses.collect::<Vec<_>>(), [(13, 1), (4100, 2)]);
    }
}
