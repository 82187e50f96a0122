//! Snapshots of a trace under construction: written as often as their share of its bytes allows.

use std::path::Path;

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Definitions, Snapshot, SnapshotEntry,
};

use crate::calls::moves::ChunkMoves;
use crate::calls::region_types::RegionTypes;
use crate::calls::stacks::Stacks;
use crate::calls::statistics::{ChunkSpan, TraceCalls};
use crate::error::{MergeError, Result};
use crate::trace_writer::TraceWriter;

/// At most one of this number of a trace's bytes belongs to a snapshot.
const BYTES_PER_SNAPSHOT_BYTE: u64 = 20;

/// Writes snapshots between the chunks of a trace.
pub(crate) struct SnapshotWriter<'a> {
    types: &'a RegionTypes,
    /// Of a slice, and of slices that are joined. In a whole merge the statistics have the stacks.
    stacks: Stacks,
    writer: BlockWriter,
    block: Vec<u8>,
    entries: Vec<SnapshotEntry>,
    /// Bytes of all snapshots so far.
    written: u64,
    /// Bytes of one, for each step and location in it, in 256ths.
    rate: u64,
    /// A slice must end with one, at any cost: without it the following slices cannot have any.
    is_slice: bool,
    /// The stacks are not known, or too large: no snapshot any more.
    is_lost: bool,
}

impl<'a> SnapshotWriter<'a> {
    pub(crate) fn new(
        types: &'a RegionTypes,
        definitions: &Definitions,
        level: CompressionLevel,
        path: &Path,
    ) -> Result<Self> {
        let is_slice = definitions.slice.is_some();
        let writer = BlockWriter::new(level).map_err(MergeError::io("write", path))?;
        Ok(Self {
            types,
            stacks: Stacks::new(types, is_slice),
            writer,
            block: Vec::new(),
            entries: Vec::new(),
            written: 0,
            rate: 0,
            is_slice,
            is_lost: types.is_empty(),
        })
    }

    /// Begins with regions open, and writes them down before the first chunk.
    pub(crate) fn begin(&mut self, open: &Snapshot, file: &mut TraceWriter) -> Result<()> {
        self.follow(open);
        if self.is_lost || open.locations.is_empty() {
            return Ok(());
        }
        self.write(0, open, true, file)
    }

    /// Applies the enters and leaves of a chunk or a slice.
    pub(crate) fn follow(&mut self, later: &Snapshot) {
        if self.is_lost {
            return;
        }
        self.stacks.follow(self.types, later);
        self.is_lost = self.stacks.is_too_much();
    }

    /// Notes that the open calls are unknown from here on.
    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    fn may_cost(&self, bytes: u64, file: &TraceWriter) -> bool {
        let all = self.written.saturating_add(bytes);
        all.saturating_mul(BYTES_PER_SNAPSHOT_BYTE) <= file.offset()
    }

    fn is_due(&self, chunk: u64, size: usize, file: &TraceWriter) -> bool {
        let is_new = self.entries.last().is_none_or(|last| last.chunk < chunk);
        let expected = (size as u64).saturating_mul(self.rate) >> 8;
        !self.is_lost && is_new && self.may_cost(expected, file)
    }

    /// Writes the snapshot before a chunk, if it may cost as much.
    pub(crate) fn before_chunk(&mut self, chunk: u64, file: &mut TraceWriter) -> Result<()> {
        if chunk == 0 || !self.is_due(chunk, self.stacks.size(), file) {
            return Ok(());
        }
        let snapshot = self.stacks.snapshot(self.types);
        self.write(chunk, &snapshot, false, file)
    }

    /// Takes the next chunk of a merge in, whose calls were counted up to here: writes the snapshot before it, if it may
    /// cost as much, and counts its calls.
    pub(crate) fn take_chunk(
        &mut self,
        chunk: u64,
        moves: ChunkMoves,
        span: ChunkSpan,
        calls: &mut TraceCalls,
        file: &mut TraceWriter,
    ) -> Result<()> {
        if self.is_slice {
            self.before_chunk(chunk, file)?;
            if !self.is_lost {
                self.stacks.take_moves(&moves);
                self.is_lost = self.stacks.is_too_much();
            }
        } else {
            self.before_counted(chunk, calls, file)?;
        }
        calls.take(moves, span);
        Ok(())
    }

    /// Writes a snapshot like [`SnapshotWriter::before_chunk`], but of the calls that were counted.
    fn before_counted(
        &mut self,
        chunk: u64,
        calls: &mut TraceCalls,
        file: &mut TraceWriter,
    ) -> Result<()> {
        if chunk == 0 || !self.is_due(chunk, calls.size(), file) {
            return Ok(());
        }
        match calls.snapshot(self.types) {
            Some(snapshot) => self.write(chunk, &snapshot, false, file),
            None => {
                self.is_lost = true;
                Ok(())
            }
        }
    }

    /// Writes a snapshot, if one is due, of the calls that are open between two chunks of a slice.
    pub(crate) fn within(
        &mut self,
        chunk: u64,
        later: &Snapshot,
        file: &mut TraceWriter,
    ) -> Result<()> {
        let size = later.locations.iter().map(|state| state.steps.len() + 1);
        if !self.is_due(chunk, self.stacks.size() + size.sum::<usize>(), file) {
            return Ok(());
        }
        let mut stacks = Stacks::new(self.types, self.is_slice);
        stacks.follow(self.types, &self.stacks.snapshot(self.types));
        stacks.follow(self.types, later);
        if stacks.is_too_much() {
            return Ok(());
        }
        self.write(chunk, &stacks.snapshot(self.types), false, file)
    }

    fn write(
        &mut self,
        chunk: u64,
        snapshot: &Snapshot,
        must_be: bool,
        file: &mut TraceWriter,
    ) -> Result<()> {
        let header = snapshot.header(chunk);
        let (mut head, mut body) = (Vec::new(), Vec::new());
        header.encode(&mut head);
        snapshot.encode(&mut body);
        self.block.clear();
        let kind = BlockKind::Snapshot;
        self.writer
            .write_with(kind, &head, &body, header.content(), &mut self.block);
        let bytes = self.block.len() as u64;
        let size = header.steps + header.locations;
        self.rate = (bytes << 8) / size.max(1);
        if !must_be && !self.may_cost(bytes, file) {
            return Ok(());
        }
        self.entries.push(SnapshotEntry {
            offset: file.offset(),
            chunk,
        });
        self.written += bytes;
        file.write(&self.block)
    }

    /// Writes the snapshot after the last of `chunks` chunks. Returns the index of all snapshots. `calls`: those of a
    /// merge.
    pub(crate) fn finish(
        mut self,
        chunks: u64,
        calls: Option<&mut TraceCalls>,
        file: &mut TraceWriter,
    ) -> Result<Vec<SnapshotEntry>> {
        match calls {
            _ if self.is_slice && !self.is_lost => {
                let snapshot = self.stacks.snapshot(self.types);
                self.write(chunks, &snapshot, true, file)?;
            }
            Some(calls) if !self.is_slice => self.before_counted(chunks, calls, file)?,
            _ => self.before_chunk(chunks, file)?,
        }
        Ok(self.entries)
    }
}
