//! The footer: definitions, index and totals in one place. It only speeds things up; a scan of the
//! blocks finds the same, but for the totals of streams that were still open.

use crate::chunk::ChunkHeader;
use crate::definitions::Definitions;
use crate::error::{FormatError, Result};
use crate::ids::EventTypeId;
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
    /// The entry of a chunk at this offset.
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
    /// It stands before the chunk with this sequence number; as many as there are chunks: behind the last.
    pub chunk: u64,
}

/// The content of a footer block.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Footer {
    /// Every definition of the file.
    pub definitions: Definitions,
    /// The chunks of a recording: offset of the block, head.
    pub chunks: Vec<(u64, ChunkHeader)>,
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
}

/// The footer of a recording as it grows: index and totals in the bytes that they will have, and what is full of the
/// index compressed, because a recorder keeps them as long as it runs.
#[derive(Clone, Default, Debug)]
pub struct RecordingIndex {
    chunk_count: u64,
    packed: Vec<PackedHeads>,
    chunks: Vec<u8>,
    totals_count: u64,
    totals: Vec<u8>,
}

/// A part of the index, compressed.
#[derive(Clone, Debug)]
struct PackedHeads {
    compressed: Box<[u8]>,
    len: usize,
}

impl RecordingIndex {
    /// So many bytes of heads are compressed at a time: those of a busy recorder to less than half.
    const PART_BYTES: usize = 1 << 16;

    /// Adds a chunk: offset of its block, and its head as it stands there.
    pub fn add_chunk(&mut self, offset: u64, head: &[u8]) {
        self.chunk_count += 1;
        self.chunks.put_varint(offset);
        self.chunks.put_bytes(head);
        let len = self.chunks.len();
        // What cannot be compressed stays as it is.
        if len >= Self::PART_BYTES
            && let Ok(compressed) = zstd::bulk::compress(&self.chunks, 1)
        {
            let compressed = compressed.into_boxed_slice();
            self.packed.push(PackedHeads { compressed, len });
            self.chunks.clear();
        }
    }

    /// Adds the totals of a stream.
    pub fn add_totals(&mut self, totals: &StreamTotals) {
        self.totals_count += 1;
        totals.encode(&mut self.totals);
    }

    /// Appends the body of the footer block.
    ///
    /// # Errors
    /// If zstd cannot set itself up.
    pub fn encode(&self, definitions: &Definitions, out: &mut Vec<u8>) -> std::io::Result<()> {
        let mut section = Vec::new();
        definitions.encode(&mut section);
        out.put_bytes(&section);
        self.put_chunks(out)?;
        out.put_bytes(&[0]);
        let mut section = Vec::new();
        section.put_varint(self.totals_count);
        section.extend_from_slice(&self.totals);
        out.put_bytes(&section);
        out.put_bytes(&[0]);
        Ok(())
    }

    fn put_chunks(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let mut section = Vec::new();
        section.put_varint(self.chunk_count);
        for part in &self.packed {
            section.extend(zstd::bulk::decompress(&part.compressed, part.len)?);
        }
        section.extend_from_slice(&self.chunks);
        out.put_bytes(&section);
        Ok(())
    }
}

/// Appends the index of chunks.
fn put_chunks(chunks: &[(u64, ChunkHeader)], out: &mut Vec<u8>) {
    let mut section = Vec::new();
    section.put_varint(chunks.len() as u64);
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
        let mut section = Vec::new();
        self.definitions.encode(&mut section);
        out.put_bytes(&section);

        put_chunks(&self.chunks, out);

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
        section.put_varint(self.totals.len() as u64);
        for totals in &self.totals {
            totals.encode(&mut section);
        }
        out.put_bytes(&section);

        section.clear();
        section.put_varint(self.losses.len() as u64);
        for loss in &self.losses {
            loss.encode(&mut section);
        }
        out.put_bytes(&section);

        if self.snapshots.is_empty() && self.statistics.is_none() {
            return;
        }
        section.clear();
        section.put_varint(self.snapshots.len() as u64);
        for entry in &self.snapshots {
            let mut fields = Vec::new();
            fields.put_varint(entry.offset);
            fields.put_varint(entry.chunk);
            section.put_bytes(&fields);
        }
        out.put_bytes(&section);

        if let Some(offset) = self.statistics {
            section.clear();
            section.put_varint(offset);
            out.put_bytes(&section);
        }
    }

    /// Reads the body of a footer block.
    ///
    /// # Errors
    /// If it ends early or contradicts the format.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let (footer, outcome) = Self::decode_stepping_over(body)?;
        outcome.map(|()| footer)
    }

    /// Reads the body of a footer block; a definition that contradicts the format costs only itself and
    /// comes back as the second error.
    pub(crate) fn decode_stepping_over(body: &[u8]) -> Result<(Self, Result<(), FormatError>)> {
        let mut w = Wire::new(body);
        let mut footer = Self::default();
        let outcome = footer.definitions.add_all(w.bytes("definitions")?);

        let mut section = Wire::new(w.bytes("index of chunks")?);
        let count = section.count(2, "number of chunks")?;
        for _ in 0..count {
            let offset = section.varint("offset of a chunk")?;
            let mut head = Wire::new(section.bytes("head of a chunk")?);
            footer
                .chunks
                .push((offset, ChunkHeader::decode(&mut head)?));
        }

        let mut section = Wire::new(w.bytes("index of trace chunks")?);
        let count = section.count(2, "number of trace chunks")?;
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
            footer.statistics = Some(section.varint("offset of the statistics")?);
        }
        Ok((footer, outcome))
    }
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
            chunk: fields.varint("number of the chunk behind a snapshot")?,
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

    #[test]
    fn a_growing_index_gives_the_footer_of_a_recording() {
        let (header, _) = testing::chunk(0, 0, &[0, 1, 0]);
        let mut totals = StreamTotals::new(header.stream);
        totals.row(testing::ty(1)).raised = 300;
        // More than one part, and a rest.
        let offsets = || (0..20_000_u64).map(|number| 64 + number * number);
        let footer = Footer {
            definitions: testing::definitions(),
            chunks: offsets().map(|offset| (offset, header.clone())).collect(),
            totals: vec![totals.clone(), totals.clone()],
            ..Footer::default()
        };
        let mut expected = Vec::new();
        footer.encode(&mut expected);
        let mut index = RecordingIndex::default();
        let mut head = Vec::new();
        header.encode(&mut head);
        for offset in offsets() {
            index.add_chunk(offset, &head);
        }
        for _ in &footer.totals {
            index.add_totals(&totals);
        }
        assert!(index.packed.len() > 1);
        let kept: usize = index.packed.iter().map(|part| part.compressed.len()).sum();
        assert!(kept * 3 < expected.len(), "{kept} of {}", expected.len());
        let mut found = Vec::new();
        index.encode(&footer.definitions, &mut found).unwrap();
        assert_eq!(found, expected);
    }
}
