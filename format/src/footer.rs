//! The footer: definitions, index and totals in one place. It only speeds things up; a scan of the
//! blocks finds the same, but for the totals of streams that were still open.

use crate::chunk::ChunkHeader;
use crate::definitions::Definitions;
use crate::error::{FormatError, Result};
use crate::file_limits::FileLimits;
use crate::ids::EventTypeId;
use crate::message_rows::MessageOverview;
use crate::metric_rows::MetricOverview;
use crate::overview::OverviewEntry;
use crate::totals::StreamTotals;
use crate::trace_chunk::{TraceChunkHeader, TraceLoss};
use crate::wire::{Put, Wire};

/// A trace chunk in the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceIndexEntry {
    /// Offset of the chunk's block in the file.
    pub offset: u64,
    /// Events in it.
    pub event_count: u64,
    /// Loss records in it.
    pub loss_count: u64,
    /// Trace time of its first event, nanoseconds.
    pub first_ns: i64,
    /// Trace time of its last event, nanoseconds.
    pub last_ns: i64,
    /// Event types that occur in it, ascending.
    pub event_types: Vec<EventTypeId>,
}

impl TraceIndexEntry {
    /// Returns the entry of a chunk at this offset.
    pub fn new(offset: u64, header: &TraceChunkHeader) -> Self {
        let rows = header.counts.iter().flat_map(|(_, counts)| counts);
        let mut event_types: Vec<EventTypeId> = rows.map(|(event_type, _)| *event_type).collect();
        event_types.sort_unstable();
        event_types.dedup();
        Self {
            offset,
            event_count: header.event_count,
            loss_count: header.loss_count,
            first_ns: header.first_ns,
            last_ns: header.last_ns,
            event_types,
        }
    }
}

/// A snapshot in the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotEntry {
    /// Offset of its block in the file.
    pub offset: u64,
    /// Sequence number of the chunk that follows the snapshot; the number of chunks if it is after the last one.
    pub chunk: u64,
}

/// The content of a footer block.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Footer {
    /// Every definition of the file.
    pub definitions: Definitions,
    /// The chunks of a recording, but those of its index blocks.
    pub chunks: Vec<IndexEntry>,
    /// How many chunks its index blocks have.
    pub chunks_in_blocks: u64,
    /// The chunks of a trace.
    pub trace_chunks: Vec<TraceIndexEntry>,
    /// Totals of every stream.
    pub totals: Vec<StreamTotals>,
    /// Every loss of a trace, once more.
    pub losses: Vec<TraceLoss>,
    /// The snapshots of a trace, ascending by chunk.
    pub snapshots: Vec<SnapshotEntry>,
    /// Offset of the block with the statistics of a trace's calls, if it has them.
    pub statistics: Option<u64>,
    /// Offsets of the index blocks of a recording, ascending.
    pub index_blocks: Vec<u64>,
    /// The blocks of the overview of a trace, in the order of the file.
    pub overview: Vec<OverviewEntry>,
    /// The messages of the overview of a trace, if it has them.
    pub messages: Option<MessageOverview>,
    /// The metrics of the overview of a trace, if it has them.
    pub metrics: Option<MetricOverview>,
}

/// The footer of a recording as it grows: index and totals in the bytes that they will have. What is full of the index
/// becomes a block of the file, because a recorder would keep it as long as it runs.
#[derive(Clone, Default, Debug)]
pub struct RecordingIndex {
    chunk_count: u64,
    blocks: Vec<u64>,
    chunks_in_blocks: u64,
    chunks: Vec<u8>,
    totals_count: u64,
    totals: Vec<u8>,
}

impl RecordingIndex {
    /// Number of bytes of heads in an index block, which is some hundred chunks.
    const BLOCK_BYTES: usize = 1 << 12;

    /// Adds a chunk: the offset of its block, and a copy of its head.
    pub fn add_chunk(&mut self, offset: u64, head: &[u8]) {
        self.chunk_count += 1;
        self.chunks.put_varint(offset);
        self.chunks.put_bytes(head);
    }

    /// Adds the totals of a stream.
    pub fn add_totals(&mut self, totals: &StreamTotals) {
        self.totals_count += 1;
        totals.encode(&mut self.totals);
    }

    /// Returns the body of the index block to write now, or `None` if there are too few heads for one. After writing
    /// it, the caller must call [`block_written`](Self::block_written).
    pub fn full_block(&self) -> Option<Vec<u8>> {
        (self.chunks.len() >= Self::BLOCK_BYTES).then(|| self.block())
    }

    /// Returns the body of an index block with all that is in none yet.
    pub(crate) fn block(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.chunks.len() + 8);
        body.put_varint(self.chunk_count - self.chunks_in_blocks);
        body.extend_from_slice(&self.chunks);
        body
    }

    /// Records that the last body which [`full_block`](Self::full_block) returned was written to
    /// the block at `offset`.
    pub fn block_written(&mut self, offset: u64) {
        self.blocks.push(offset);
        self.chunks_in_blocks = self.chunk_count;
        self.chunks.clear();
    }

    /// Appends the body of the footer block.
    pub fn encode(&self, definitions: &Definitions, out: &mut Vec<u8>) {
        let mut section = Vec::new();
        definitions.encode(&mut section);
        out.put_bytes(&section);
        section.clear();
        section.put_varint(self.chunk_count);
        section.extend_from_slice(&self.chunks);
        out.put_bytes(&section);
        out.put_bytes(&[0]);
        section.clear();
        section.put_varint(self.totals_count);
        section.extend_from_slice(&self.totals);
        out.put_bytes(&section);
        out.put_bytes(&[0]);
        let last = LastSections {
            blocks: &self.blocks,
            chunks_in_blocks: self.chunks_in_blocks,
            ..LastSections::default()
        };
        last.encode(out);
    }
}

/// The sections that not every footer has.
#[derive(Default)]
struct LastSections<'a> {
    snapshots: &'a [SnapshotEntry],
    statistics: Option<u64>,
    blocks: &'a [u64],
    chunks_in_blocks: u64,
    overview: &'a [OverviewEntry],
    messages: Option<&'a MessageOverview>,
    metrics: Option<&'a MetricOverview>,
}

impl LastSections<'_> {
    /// Appends them, as far as the last that is there.
    fn encode(&self, out: &mut Vec<u8>) {
        let mut sections = vec![Vec::new(); 6];
        sections[0].put_varint(self.snapshots.len() as u64);
        for entry in self.snapshots {
            let mut fields = Vec::new();
            fields.put_varint(entry.offset);
            fields.put_varint(entry.chunk);
            sections[0].put_bytes(&fields);
        }
        if let Some(offset) = self.statistics {
            sections[1].put_varint(offset);
        }
        sections[2].put_varint(self.chunks_in_blocks);
        sections[2].put_varint(self.blocks.len() as u64);
        for offset in self.blocks {
            sections[2].put_varint(*offset);
        }
        sections[3].put_varint(self.overview.len() as u64);
        for entry in self.overview {
            let mut fields = Vec::new();
            entry.encode(&mut fields);
            sections[3].put_bytes(&fields);
        }
        if let Some(messages) = self.messages {
            messages.encode(&mut sections[4]);
        }
        if let Some(metrics) = self.metrics {
            metrics.encode(&mut sections[5]);
        }
        let is_there = [
            !self.snapshots.is_empty(),
            self.statistics.is_some(),
            !self.blocks.is_empty(),
            !self.overview.is_empty(),
            self.messages.is_some(),
            self.metrics.is_some(),
        ];
        let count = is_there.iter().rposition(|is_there| *is_there);
        for section in &sections[..count.map_or(0, |last| last + 1)] {
            out.put_bytes(section);
        }
    }
}

/// A chunk of a recording in the index: offset of its block, its head.
pub type IndexEntry = (u64, ChunkHeader);

/// Reads an entry of the index of chunks.
fn decode_entry(w: &mut Wire<'_>) -> Result<IndexEntry> {
    let offset = w.varint("offset of a chunk")?;
    let mut head = Wire::new(w.bytes("head of a chunk")?);
    Ok((offset, ChunkHeader::decode(&mut head)?))
}

/// Reads the body of an index block.
///
/// # Errors
/// If it ends early or contradicts the format.
pub fn decode_index_block(body: &[u8]) -> Result<Vec<IndexEntry>> {
    decode_some_of_index(body, u64::MAX)
}

/// Reads the body of an index block of a file that has no room for more chunks than `most`.
pub(crate) fn decode_some_of_index(body: &[u8], most: u64) -> Result<Vec<IndexEntry>> {
    let mut w = Wire::new(body);
    let count = w.count(2, "number of chunks")?;
    check_count(count as u64, most)?;
    (0..count).map(|_| decode_entry(&mut w)).collect()
}

fn check_count(count: u64, most: u64) -> Result<()> {
    if count > most {
        let expected = "no more chunks than the file has room for";
        return Err(FormatError::invalid(0, expected, count));
    }
    Ok(())
}

/// Appends the index of chunks, of which there are `count` with those of index blocks.
fn put_chunks(chunks: &[IndexEntry], count: u64, out: &mut Vec<u8>) {
    let mut section = Vec::new();
    section.put_varint(count);
    for (offset, header) in chunks {
        let mut head = Vec::new();
        header.encode(&mut head);
        section.put_varint(*offset);
        section.put_bytes(&head);
    }
    out.put_bytes(&section);
}

impl Footer {
    /// Appends the body of the footer block.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(&self.definitions, &self.totals, &self.losses, out);
    }

    /// Encodes the footer with definitions, totals and losses that are stored elsewhere: with many processes they are
    /// large.
    pub fn encode_with(
        &self,
        definitions: &Definitions,
        totals: &[StreamTotals],
        losses: &[TraceLoss],
        out: &mut Vec<u8>,
    ) {
        let mut section = Vec::new();
        definitions.encode(&mut section);
        out.put_bytes(&section);

        let chunk_count = self.chunks.len() as u64 + self.chunks_in_blocks;
        put_chunks(&self.chunks, chunk_count, out);

        section.clear();
        section.put_varint(self.trace_chunks.len() as u64);
        for entry in &self.trace_chunks {
            let mut fields = Vec::new();
            fields.put_varint(entry.offset);
            fields.put_varint(entry.event_count);
            fields.put_varint(entry.loss_count);
            fields.put_signed(entry.first_ns);
            fields.put_signed(entry.last_ns);
            fields.put_varint(entry.event_types.len() as u64);
            for event_type in &entry.event_types {
                fields.put_varint(event_type.get().into());
            }
            section.put_bytes(&fields);
        }
        out.put_bytes(&section);

        section.clear();
        section.put_varint(totals.len() as u64);
        for of_stream in totals {
            of_stream.encode(&mut section);
        }
        out.put_bytes(&section);

        section.clear();
        section.put_varint(losses.len() as u64);
        for loss in losses {
            loss.encode(&mut section);
        }
        out.put_bytes(&section);

        let last = LastSections {
            snapshots: &self.snapshots,
            statistics: self.statistics,
            blocks: &self.index_blocks,
            chunks_in_blocks: self.chunks_in_blocks,
            overview: &self.overview,
            messages: self.messages.as_ref(),
            metrics: self.metrics.as_ref(),
        };
        last.encode(out);
    }

    /// Reads the body of a footer block.
    ///
    /// # Errors
    /// If it ends early or contradicts the format.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let limits = FileLimits::of_length(u64::MAX);
        let (footer, outcome) = Self::decode_stepping_over(body, &limits)?;
        outcome.map(|()| footer)
    }

    /// Takes the entries of the index of chunks that are not in index blocks.
    fn take_chunks(&mut self, mut section: Wire<'_>, count: u64) -> Result<()> {
        let too_few = || {
            let expected = "as many chunks as index blocks have, or more";
            FormatError::invalid(section.position(), expected, count)
        };
        let here = count
            .checked_sub(self.chunks_in_blocks)
            .ok_or_else(too_few)?;
        for _ in 0..here {
            self.chunks.push(decode_entry(&mut section)?);
        }
        Ok(())
    }

    /// Reads the body of the footer block of a file with these limits. A definition that contradicts the format costs
    /// only itself, and is returned as the second error.
    pub(crate) fn decode_stepping_over(
        body: &[u8],
        limits: &FileLimits,
    ) -> Result<(Self, Result<(), FormatError>)> {
        let most = limits.chunks;
        let mut w = Wire::new(body);
        let mut footer = Self::default();
        let definitions = w.bytes("definitions")?;
        let outcome = footer.definitions.add_all_within(definitions, limits);

        let mut section = Wire::new(w.bytes("index of chunks")?);
        let chunk_count = section.varint("number of chunks")?;
        check_count(chunk_count, most)?;
        let chunks = section;

        let mut section = Wire::new(w.bytes("index of trace chunks")?);
        let count = section.count(2, "number of trace chunks")?;
        check_count(count as u64, most)?;
        for _ in 0..count {
            let mut fields = Wire::new(section.bytes("entry of the index")?);
            let mut entry = TraceIndexEntry {
                offset: fields.varint("offset of a chunk")?,
                event_count: fields.varint("number of events")?,
                loss_count: fields.varint("number of losses")?,
                first_ns: fields.signed("first time")?,
                last_ns: fields.signed("last time")?,
                event_types: Vec::new(),
            };
            let types = fields.count(1, "number of event types")?;
            for _ in 0..types {
                let id = fields.varint_u32("event type id")?;
                entry.event_types.push(EventTypeId::new(id));
            }
            footer.trace_chunks.push(entry);
        }

        let mut section = Wire::new(w.bytes("totals")?);
        let count = section.count(2, "number of streams")?;
        for _ in 0..count {
            footer.totals.push(StreamTotals::decode(&mut section)?);
        }

        let mut section = Wire::new(w.bytes("losses")?);
        let count = section.count(2, "number of losses")?;
        for _ in 0..count {
            footer.losses.push(TraceLoss::decode(&mut section)?);
        }
        if w.remaining() != 0 {
            footer.snapshots = decode_snapshots(w.bytes("index of snapshots")?)?;
        }
        if w.remaining() != 0 {
            let mut section = Wire::new(w.bytes("place of the statistics")?);
            if !section.is_empty() {
                footer.statistics = Some(section.varint("offset of the statistics")?);
            }
        }
        if w.remaining() != 0 {
            let mut section = Wire::new(w.bytes("places of index blocks")?);
            footer.chunks_in_blocks = section.varint("number of chunks in index blocks")?;
            footer.index_blocks = decode_index_blocks(&mut section)?;
        }
        if w.remaining() != 0 {
            let mut section = Wire::new(w.bytes("blocks of the overview")?);
            let count = section.count(12, "number of overview blocks")?;
            for _ in 0..count {
                let mut fields = Wire::new(section.bytes("entry of the overview")?);
                footer.overview.push(OverviewEntry::decode(&mut fields)?);
            }
        }
        if w.remaining() != 0 {
            let mut section = Wire::new(w.bytes("messages of the overview")?);
            if !section.is_empty() {
                footer.messages = Some(MessageOverview::decode(&mut section)?);
            }
        }
        if w.remaining() != 0 {
            let mut section = Wire::new(w.bytes("metrics of the overview")?);
            if !section.is_empty() {
                footer.metrics = Some(MetricOverview::decode(&mut section)?);
            }
        }
        footer.take_chunks(chunks, chunk_count)?;
        Ok((footer, outcome))
    }
}

fn decode_index_blocks(section: &mut Wire<'_>) -> Result<Vec<u64>> {
    let count = section.count(1, "number of index blocks")?;
    let mut blocks: Vec<u64> = Vec::with_capacity(count);
    for _ in 0..count {
        let start = section.position();
        let offset = section.varint("offset of an index block")?;
        if blocks.last().is_some_and(|last| *last >= offset) {
            let expected = "index blocks in the order of the file";
            return Err(FormatError::invalid(start, expected, offset));
        }
        blocks.push(offset);
    }
    Ok(blocks)
}

fn decode_snapshots(section: &[u8]) -> Result<Vec<SnapshotEntry>> {
    let mut section = Wire::new(section);
    let count = section.count(3, "number of snapshots")?;
    let mut snapshots: Vec<SnapshotEntry> = Vec::with_capacity(count);
    for _ in 0..count {
        let start = section.position();
        let mut fields = Wire::new(section.bytes("entry of the index")?);
        let entry = SnapshotEntry {
            offset: fields.varint("offset of a snapshot")?,
            chunk: fields.varint("number of the chunk after a snapshot")?,
        };
        if snapshots
            .last()
            .is_some_and(|last| last.chunk >= entry.chunk)
        {
            let expected = "snapshots in the order of the chunks";
            return Err(FormatError::invalid(start, expected, entry.chunk));
        }
        snapshots.push(entry);
    }
    Ok(snapshots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Returns a footer's index as a recorder writes it, and the bodies of its index blocks by their offsets.
    fn grown(footer: &Footer) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
        let mut index = RecordingIndex::default();
        let mut blocks = Vec::new();
        for (offset, header) in &footer.chunks {
            let mut head = Vec::new();
            header.encode(&mut head);
            index.add_chunk(*offset, &head);
            if let Some(body) = index.full_block() {
                index.block_written(offset + 1);
                blocks.push((offset + 1, body));
            }
            assert!(index.chunks.capacity() < 2 * RecordingIndex::BLOCK_BYTES);
        }
        footer.totals.iter().for_each(|t| index.add_totals(t));
        let mut body = Vec::new();
        index.encode(&footer.definitions, &mut body);
        (body, blocks)
    }

    fn footer_of(chunks: u64) -> Footer {
        let (header, _) = testing::chunk(0, 0, &[0, 1, 0]);
        let mut totals = StreamTotals::new(header.stream);
        totals.row(testing::ty(1)).raised = 300;
        let offsets = (0..chunks).map(|number| 64 + number * number * 4);
        Footer {
            definitions: testing::definitions(),
            chunks: offsets.map(|offset| (offset, header.clone())).collect(),
            totals: vec![totals.clone(), totals],
            ..Footer::default()
        }
    }

    #[test]
    fn whichever_last_sections_a_footer_has_are_read_back() {
        for number in 0..8_u8 {
            let has = |bit: u8| number >> bit & 1 != 0;
            let snapshot = SnapshotEntry {
                offset: 7,
                chunk: 3,
            };
            let footer = Footer {
                snapshots: has(0).then_some(snapshot).into_iter().collect(),
                statistics: has(1).then_some(300),
                index_blocks: if has(2) { vec![64, 500] } else { Vec::new() },
                chunks_in_blocks: if has(2) { 9 } else { 0 },
                ..footer_of(2)
            };
            let mut body = Vec::new();
            footer.encode(&mut body);
            assert_eq!(Footer::decode(&body).unwrap(), footer);
        }
    }

    #[test]
    fn an_index_that_fills_no_block_is_in_the_footer() {
        let footer = footer_of(20);
        let mut expected = Vec::new();
        footer.encode(&mut expected);
        assert_eq!(grown(&footer), (expected, Vec::new()));
    }

    #[test]
    fn a_growing_index_is_in_blocks_and_the_rest_in_the_footer() {
        let footer = footer_of(20_000);
        let (body, blocks) = grown(&footer);
        assert!(blocks.len() > 10);
        let mut found = Footer::decode(&body).unwrap();
        let mut again = Vec::new();
        found.encode(&mut again);
        assert_eq!(again, body);
        assert!(found.chunks.len() < 300);
        let offsets: Vec<u64> = blocks.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(found.index_blocks, offsets);
        let bodies = blocks.iter().map(|(_, body)| decode_index_block(body));
        let mut chunks: Vec<IndexEntry> = bodies.flat_map(Result::unwrap).collect();
        assert_eq!(chunks.len() as u64, found.chunks_in_blocks);
        chunks.append(&mut found.chunks);
        (found.index_blocks, found.chunks_in_blocks) = (Vec::new(), 0);
        assert_eq!(Footer { chunks, ..found }, footer);
    }
}
