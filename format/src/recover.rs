//! One clean recording out of what a killed process left, its recording and its live file; or out of one with row chunks.

use std::collections::BTreeMap;

use crate::block::{BlockKind, BlockWriter, CompressionLevel, check_len, encode_tail};
use crate::chunk::ChunkHeader;
use crate::definitions::{Definition, Definitions, ProcessEnd};
use crate::error::{FormatError, Result};
use crate::footer::RecordingIndex;
use crate::ids::{ProcessId, StreamId};
use crate::read::ReadAt;
use crate::recording::{ChunkPlace, Recording, StoredChunk, StreamContents};
use crate::scan::{check_block, read_block_header};
use crate::totals::StreamTotals;

/// The data that completes a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// Length in bytes of the file's beginning that stays: all but a block that is cut off at its end.
    pub kept: u64,
    /// Bytes to write after it: the chunks of the live file, then definitions, totals, index, footer and tail.
    pub bytes: Vec<u8>,
    /// Events that were in the live file only.
    pub events: u64,
}

impl Recording {
    /// Returns the bytes to append to a recording so that its live file is no longer needed. A reader then finds the
    /// same events, counts and losses, and that the process was killed.
    ///
    /// Returns `None` when there is nothing to recover: the recording has its footer and its tail, or it was read without
    /// a live file. The process must not run any more.
    ///
    /// # Errors
    /// If the storage fails, or there are more definitions or counts than a block can have.
    pub fn recover(&self, file: &dyn ReadAt, level: CompressionLevel) -> Result<Option<Recovery>> {
        let length = file.len()?;
        if let Some(footer) = self.footer_without_tail {
            return Ok(Some(Recovery {
                kept: length,
                bytes: encode_tail(footer).to_vec(),
                events: 0,
            }));
        }
        let Some(last_ns) = self.last_reference_ns.filter(|_| !self.has_footer) else {
            return Ok(None);
        };
        let kept = self.cut_at.unwrap_or(length);
        let mut blocks = BlockWriter::new(level).map_err(|source| FormatError::Io {
            offset: length,
            error: source,
        })?;
        let mut definitions = Definitions::clone(&self.definitions);
        definitions.add(Definition::ProcessEnd(ProcessEnd {
            process: ProcessId::new(0),
            ended: self.ended,
            start_ns: definitions
                .processes
                .values()
                .next()
                .map_or(last_ns, |process| process.start_reference_ns),
            end_ns: last_ns,
            end_error_ns: self.end_error_ns,
        }));
        let mut recovery = Recovery {
            kept,
            bytes: Vec::new(),
            events: 0,
        };
        // All of them once more: a reader that has no footer finds those of the live file, too.
        let mut records = Vec::new();
        definitions.encode(&mut records);
        check_len(&records)?;
        blocks.write(BlockKind::Definitions, &[], &records, &mut recovery.bytes);
        let mut index = RecordingIndex::default();
        let mut totals = Vec::new();
        let mut chunks: BTreeMap<u64, ChunkHeader> = BTreeMap::new();
        for (stream, contents) in &self.streams {
            self.recover_stream(
                file,
                *stream,
                contents,
                &mut blocks,
                &mut recovery,
                &mut chunks,
            )?;
            put_totals(&contents.totals, &mut index, &mut totals);
        }
        check_len(&totals)?;
        blocks.write(BlockKind::Totals, &[], &totals, &mut recovery.bytes);
        let chunks = chunks.iter().map(|(offset, header)| (*offset, header));
        let bytes = &mut recovery.bytes;
        put_end(kept, index, &definitions, chunks, &mut blocks, bytes)?;
        Ok(Some(recovery))
    }

    /// Returns whether the events of a chunk are stored as rows, which [`Recording::in_columns`] compresses.
    ///
    /// # Errors
    /// If its block cannot be read.
    pub fn is_of_rows(&self, file: &dyn ReadAt, chunk: &StoredChunk) -> Result<bool> {
        let ChunkPlace::Block(offset) = chunk.place else {
            return Ok(false);
        };
        Ok(read_block_header(file, offset)?.kind == BlockKind::RowChunk)
    }

    /// Returns the block of a chunk, with its events in columns, compressed; one that has them so is copied.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is in no block of the file.
    pub fn in_columns(
        &self,
        file: &dyn ReadAt,
        chunk: &StoredChunk,
        blocks: &mut BlockWriter,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        match chunk.place {
            ChunkPlace::Block(offset) if !self.is_of_rows(file, chunk)? => {
                let length = check_block(file, offset)?;
                out.resize(length as usize, 0);
                file.read_exact_at(offset, &mut out)?;
            }
            _ => {
                let events = self.load(file, chunk)?;
                events.put_block(&chunk.header, blocks, &mut out);
            }
        }
        Ok(out)
    }

    /// Returns the first block of a recording that is written anew: all definitions.
    ///
    /// # Errors
    /// If there are more than a block can have.
    pub fn definitions_block(&self, blocks: &mut BlockWriter) -> Result<Vec<u8>> {
        let (mut records, mut out) = (Vec::new(), Vec::new());
        self.definitions.encode(&mut records);
        check_len(&records)?;
        blocks.write(BlockKind::Definitions, &[], &records, &mut out);
        Ok(out)
    }

    /// Returns the last blocks of a recording that is written anew, from `offset` on: totals, index and footer, with the tail. `chunks`: the
    /// offsets and heads of all of its chunks, in the order of the file.
    ///
    /// # Errors
    /// If there are more definitions or counts than a block can have.
    pub fn last_blocks<'a>(
        &self,
        offset: u64,
        chunks: impl Iterator<Item = (u64, &'a ChunkHeader)>,
        blocks: &mut BlockWriter,
    ) -> Result<Vec<u8>> {
        let mut index = RecordingIndex::default();
        let (mut totals, mut out) = (Vec::new(), Vec::new());
        for contents in self.streams.values() {
            put_totals(&contents.totals, &mut index, &mut totals);
        }
        check_len(&totals)?;
        blocks.write(BlockKind::Totals, &[], &totals, &mut out);
        put_end(offset, index, &self.definitions, chunks, blocks, &mut out)?;
        Ok(out)
    }

    /// Writes the chunks of a stream that are in the live file.
    fn recover_stream(
        &self,
        file: &dyn ReadAt,
        stream: StreamId,
        contents: &StreamContents,
        blocks: &mut BlockWriter,
        recovery: &mut Recovery,
        chunks: &mut BTreeMap<u64, ChunkHeader>,
    ) -> Result<()> {
        let mut previous: Option<ChunkHeader> = None;
        for (number, stored) in contents.chunks.iter().enumerate() {
            let mut header = stored.header.clone();
            match stored.place {
                ChunkPlace::Block(offset) => {
                    chunks.insert(offset, header.clone());
                }
                // The head stays, with an empty body, which no reader can decode: its events are skipped, and
                // the interval of what is missing stays known.
                ChunkPlace::Cut => {
                    let mut head = Vec::new();
                    header.encode(&mut head);
                    let offset = recovery.kept + recovery.bytes.len() as u64;
                    blocks.write(BlockKind::Chunk, &head, &[], &mut recovery.bytes);
                    chunks.insert(offset, header.clone());
                }
                ChunkPlace::Live(_) => {
                    let chunk = self.load(file, stored)?;
                    // Pages that were overwritten are no gap: chunks are numbered in their order here, as a recorder
                    // does it.
                    let lost = contents
                        .losses
                        .iter()
                        .filter(|loss| loss.before_chunk == number);
                    let is_gap = lost.clone().count() != 0;
                    let lost = lost.fold(0, |sum: u64, loss| sum.saturating_add(loss.count));
                    let (sequence, recorded) = previous.as_ref().map_or((0, 0), |previous| {
                        let recorded = previous.before.recorded;
                        (
                            previous.sequence.saturating_add(1),
                            recorded.saturating_add(previous.event_count),
                        )
                    });
                    header.stream = stream;
                    header.sequence = sequence.saturating_add(is_gap.into());
                    header.before.recorded = recorded.saturating_add(lost);
                    header.predecessor_counts = match &previous {
                        Some(previous) if !is_gap => previous.counts.clone(),
                        _ => Vec::new(),
                    };
                    let offset = recovery.kept + recovery.bytes.len() as u64;
                    chunk.put_block(&header, blocks, &mut recovery.bytes);
                    recovery.events = recovery.events.saturating_add(header.event_count);
                    chunks.insert(offset, header.clone());
                }
            }
            previous = Some(header);
        }
        Ok(())
    }
}

/// Appends the totals of a stream. Without what a reader missed: every reader finds that again.
fn put_totals(totals: &StreamTotals, index: &mut RecordingIndex, out: &mut Vec<u8>) {
    let mut totals = totals.clone();
    for row in &mut totals.rows {
        (row.skipped, row.truncated) = (0, 0);
    }
    totals.encode(out);
    index.add_totals(&totals);
}

/// Appends index, footer and tail to bytes that are at `start` in the file. `index` has the totals.
fn put_end<'a>(
    start: u64,
    mut index: RecordingIndex,
    definitions: &Definitions,
    chunks: impl Iterator<Item = (u64, &'a ChunkHeader)>,
    blocks: &mut BlockWriter,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (offset, header) in chunks {
        let mut head = Vec::new();
        header.encode(&mut head);
        index.add_chunk(offset, &head);
        if let Some(body) = index.full_block() {
            let offset = start + out.len() as u64;
            blocks.write(BlockKind::Index, &[], &body, out);
            index.block_written(offset);
        }
    }
    let offset = start + out.len() as u64;
    let mut body = Vec::new();
    index.encode(definitions, &mut body);
    check_len(&body)?;
    blocks.write(BlockKind::Footer, &[], &body, out);
    out.extend_from_slice(&encode_tail(offset));
    Ok(())
}
