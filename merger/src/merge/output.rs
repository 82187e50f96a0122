//! Writing the trace: chunks as they come, snapshots between them, statistics, footer.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use annals_format::{
    BlockKind, BlockWriter, CompressionLevel, Definitions, FileHeader, FileKind, Footer,
    RecordingId, Snapshot, StoredBody, StreamTotals, TraceChunkHeader, TraceIndexEntry, TraceLoss,
    encode_tail,
};

use crate::axis::strip::UnnumberedChunk;
use crate::calls::moves::ChunkMoves;
use crate::calls::region_types::RegionTypes;
use crate::calls::snapshots::SnapshotWriter;
use crate::calls::statistics::ChunkSpan;
use crate::calls::statistics::TraceCalls;
use crate::error::{MergeError, Result};
use crate::merge::{Merge, Merged};
use crate::messages::MessageLosses;
use crate::overview::event_bins::{BinBatch, BinSource, EventBins, FoundBins};
use crate::overview::groups::LaneGroups;
use crate::overview::message_bins::{MessageCounter, MessageSource};
use crate::overview::writer::OverviewWriter;
use crate::stages::{self, Stage};
use crate::trace_writer::TraceWriter;

/// Returns the trace's identity: a digest of its inputs', so that the same inputs give the same
/// bytes.
fn trace_id(merge: &Merge) -> RecordingId {
    // FNV-1a with 128 bits (Fowler, Noll, Vo): a name, not a protection.
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for id in merge.recording_ids() {
        for byte in id.0 {
            hash ^= u128::from(byte);
            hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    RecordingId(hash.to_le_bytes())
}

/// A chunk of the trace, encoded but for its number.
struct Encoded {
    header: TraceChunkHeader,
    body: StoredBody,
    /// The enters and leaves of the chunk.
    moves: ChunkMoves,
    /// What the overview has of it.
    bins: Option<BinBatch>,
}

/// Encodes chunks in several threads: what one needs again and again is kept.
struct Encoder<'a> {
    level: CompressionLevel,
    types: &'a RegionTypes,
    bins: Option<&'a BinSource>,
    spare: Mutex<Vec<BlockWriter>>,
}

impl Encoder<'_> {
    fn encode(&self, part: UnnumberedChunk) -> std::io::Result<Encoded> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare().pop();
        let mut writer = match found {
            Some(found) => found,
            None => BlockWriter::new(self.level)?,
        };
        let UnnumberedChunk { chunk, mut header } = part;
        let body = stages::during(Stage::Encode, || chunk.store(&mut header, &mut writer));
        spare().push(writer);
        let body = body.map_err(|error| {
            let at = format!("the events at {} ns: {error}", header.first_ns);
            std::io::Error::other(at)
        })?;
        let find = || ChunkMoves::of_chunk(self.types, &chunk);
        let moves = stages::during(Stage::Calls, find);
        let extract = |bins: &BinSource| bins.extract(&chunk);
        Ok(Encoded {
            bins: stages::during(Stage::Extract, || self.bins.map(extract)),
            moves,
            header,
            body,
        })
    }
}

/// Writes the chunks of a trace.
#[derive(Default)]
struct ChunkWriter {
    index: Vec<TraceIndexEntry>,
    /// What a chunk needs again and again is kept.
    head: Vec<u8>,
    block: Vec<u8>,
}

impl ChunkWriter {
    fn write(
        &mut self,
        header: &TraceChunkHeader,
        body: &StoredBody,
        file: &mut TraceWriter,
    ) -> Result<()> {
        self.head.clear();
        header.encode(&mut self.head);
        self.block.clear();
        body.put_block(BlockKind::TraceChunk, &self.head, &mut self.block);
        self.index.push(TraceIndexEntry::new(file.offset(), header));
        file.write(&self.block)
    }
}

/// Runs a merge and writes the trace. Regions of `open` are open where it begins. `progress` gets the number of events
/// written so far, and can stop the merge.
///
/// # Errors
/// If the output cannot be written, or must not be because it would not be complete: nothing is left under its name
/// then.
pub(crate) fn write_trace(
    merge: &Merge,
    path: &Path,
    open: &Snapshot,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Merged> {
    let io = MergeError::io("write", path);
    let level = merge.options.compression;
    let mut file = TraceWriter::create(path, merge.options.force, merge.jobs())?;
    start_trace(&mut file, trace_id(merge), &merge.definitions, level)?;
    let mut chunks = ChunkWriter::default();
    let mut events = 0;
    let types = RegionTypes::of(&merge.definitions);
    let mut snapshots = SnapshotWriter::new(&types, &merge.definitions, level, path)?;
    snapshots.begin(open, &mut file)?;
    // What an earlier slice has left open is not known.
    let has_overview = merge.options.overview && merge.definitions.slice.is_none();
    let mut source = has_overview.then(|| BinSource::of(&merge.definitions, assumed_losses(merge)));
    let checked = source.as_mut().and_then(|all| checked_messages(all, merge));
    let mut messages = checked.as_ref().map(MessageCounter::new);
    let encoder = Encoder {
        level,
        types: &types,
        bins: source.as_ref(),
        spare: Mutex::default(),
    };
    let mut bins = source.as_ref().map(EventBins::new);
    let groups = has_overview.then(|| LaneGroups::of(&merge.definitions));
    let mut calls = TraceCalls::new(&types, merge.jobs(), groups)?;
    let mut overview = OverviewWriter::new(level, path)?;
    calls.begin(&types, open);
    let encode = |part: UnnumberedChunk| encoder.encode(part);
    let mut merged = merge.run_with(true, messages.as_mut(), &encode, &mut |encoded| {
        let encoded = encoded.map_err(io)?;
        let (mut header, moves) = (encoded.header, encoded.moves);
        if let (Some(bins), Some(of_chunk)) = (&mut bins, &encoded.bins) {
            stages::during(Stage::Match, || bins.take(of_chunk));
        }
        header.sequence = chunks.index.len() as u64;
        stages::during(Stage::Snapshot, || {
            let span = ChunkSpan {
                first_ns: header.first_ns,
                last_ns: header.last_ns,
                events: header.event_count,
            };
            snapshots.take_chunk(header.sequence, moves, span, &mut calls, &mut file)?;
            overview.take(calls.take_rows(), &mut file)
        })?;
        chunks.write(&header, &encoded.body, &mut file)?;
        events += header.event_count;
        match progress(events) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(MergeError::Stopped),
        }
    })?;

    if let Some(what) = merged.report.gap().filter(|_| merge.options.strict) {
        return Err(MergeError::Incomplete { what });
    }
    let snapshots = snapshots.finish(chunks.index.len() as u64, Some(&mut calls), &mut file)?;
    calls.end(&types);
    overview.take(calls.take_rows(), &mut file)?;
    let mut footer = Footer::default();
    if let Some(bins) = bins {
        let found = found_bins(bins, messages, merge, &merged);
        found.write(&mut overview, &mut file, &mut footer)?;
    }
    let overview = overview.finish(&mut file)?;
    let statistics = calls.finish().filter(|_| !types.is_empty());
    let statistics = statistics.map(|statistics| file.write_statistics(&statistics, level));
    let statistics = statistics.transpose()?;
    merged.bytes = finish_trace(
        file,
        &merge.definitions,
        Footer {
            trace_chunks: chunks.index,
            snapshots,
            statistics,
            overview,
            ..footer
        },
        &merged.totals,
        &merged.losses,
        level,
    )?;
    Ok(merged)
}

/// Returns what losses may have had of messages, as far as the totals of the inputs say.
fn assumed_losses(merge: &Merge) -> MessageLosses {
    MessageLosses {
        carries: merge.carries(),
        ..MessageLosses::default()
    }
}

/// Takes the messages out of what bins are made of, if the check of causality matches them anyway.
fn checked_messages(source: &mut BinSource, merge: &Merge) -> Option<MessageSource> {
    match merge.checks_as_readers_match() {
        true => source.take_messages(),
        false => None,
    }
}

/// Returns the values of bins that the events of a trace have: of messages only if losses have had what was assumed. `checked`
/// has the messages that the check of causality matched.
fn found_bins(
    bins: EventBins<'_>,
    checked: Option<MessageCounter<'_>>,
    merge: &Merge,
    merged: &Merged,
) -> FoundBins {
    let events = bins.events();
    let mut found = bins.finish();
    if let (Some(checked), Some(causality)) = (checked, &merged.report.causality) {
        found.messages = Some(checked.finish(&causality.messages, events));
    }
    let losses = &merged.losses;
    let known = MessageLosses::of(&merge.definitions, &merged.totals, losses);
    if !known.agrees(&assumed_losses(merge), losses) {
        found.messages = None;
    }
    found
}

/// Writes a trace's header and definitions.
pub(crate) fn start_trace(
    file: &mut TraceWriter,
    id: RecordingId,
    definitions: &Definitions,
    level: CompressionLevel,
) -> Result<()> {
    file.write(&FileHeader::new(FileKind::Trace, id).encode())?;
    let mut records = Vec::new();
    definitions.encode(&mut records);
    let what = "the definitions of all processes";
    file.write_block(BlockKind::Definitions, what, &[], &records, level)?;
    Ok(())
}

/// Writes a trace's footer and renames the file to its final name. `footer` has the positions of its chunks, snapshots
/// and statistics. Returns the length of the trace in bytes.
pub(crate) fn finish_trace(
    mut file: TraceWriter,
    definitions: &Definitions,
    footer: Footer,
    totals: &[StreamTotals],
    losses: &[TraceLoss],
    level: CompressionLevel,
) -> Result<u64> {
    let mut body = Vec::new();
    footer.encode_with(definitions, totals, losses, &mut body);
    let what = "the index of chunks, definitions and losses";
    let footer_offset = file.write_block(BlockKind::Footer, what, &[], &body, level)?;
    file.write(&encode_tail(footer_offset))?;
    file.complete()
}
