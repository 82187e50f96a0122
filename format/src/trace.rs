//! A trace as its readers see it.

use std::collections::BTreeMap;

use crate::bin_rows::{BinRow, content, decode_bins};
use crate::block::{BlockHeader, BlockKind, FileHeader, StoredBody};
use crate::definitions::Definitions;
use crate::error::{FormatError, Result};
use crate::file_limits::FileLimits;
use crate::footer::{SnapshotEntry, TraceIndexEntry};
use crate::ids::{ANY_EVENT_TYPE, EventTypeId, StreamId};
use crate::limits::Content;
use crate::loss::Cause;
use crate::message_rows::MessageOverview;
use crate::metric_rows::MetricOverview;
use crate::overview::OverviewEntry;
use crate::read::ReadAt;
use crate::retired::{self, Retired};
use crate::scan::{
    FoundBlock, FoundFooter, Problem, body_offset, check_rest, decode_with, find_footer,
    footer_offset, note_tail, read_block, read_block_head, read_block_header, read_file_header,
    read_footer, read_stored_block, scan,
};
use crate::snapshot::{Snapshot, SnapshotHeader};
use crate::statistics::RegionStatistics;
use crate::totals::{StreamTotals, TypeTotals};
use crate::trace_chunk::{GroupReader, TraceChunk, TraceChunkHeader, TraceLoss};

/// A trace: definitions, index, totals and losses; events are loaded chunk by chunk.
#[derive(Debug)]
pub struct Trace {
    /// Header of the file.
    pub header: FileHeader,
    /// All definitions.
    pub definitions: Definitions,
    /// Its chunks, in order.
    pub chunks: Vec<TraceIndexEntry>,
    /// Totals of every stream.
    pub totals: Vec<StreamTotals>,
    /// Every loss that the merge knew of.
    pub losses: Vec<TraceLoss>,
    /// Where reading can start other than at the beginning, in order.
    pub snapshots: Vec<TraceSnapshot>,
    /// Offset of the block with the statistics of its calls, if it has them.
    pub statistics: Option<u64>,
    /// The blocks of its overview, if it has one.
    pub overview: Vec<OverviewEntry>,
    /// The messages of its overview, if it has them.
    pub messages: Option<MessageOverview>,
    /// The metrics of its overview, if it has them.
    pub metrics: Option<MetricOverview>,
    /// Whether the file has a whole footer.
    pub has_footer: bool,
    /// Parts of the file that could not be used.
    pub problems: Vec<Problem>,
    /// Where the footer is that the tail points to. `None` if the file was scanned, and so read as a whole.
    tail_footer: Option<u64>,
}

/// Where reading can start: open regions as they are before a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceSnapshot {
    /// As the file says.
    pub entry: SnapshotEntry,
    /// Index of that chunk in [`Trace::chunks`]; the number of chunks means after the last one.
    pub before: usize,
}

/// Maximum number of places with missing chunks that are distinguished in a scanned trace.
const MAX_GAPS: usize = 256;

/// Information from the heads of a trace's chunks.
#[derive(Default)]
struct Found {
    expected_sequence: u64,
    rows: BTreeMap<(StreamId, EventTypeId), TypeTotals>,
    /// Of chunks whose bodies are cut off.
    losses: Vec<TraceLoss>,
    /// Where chunks are missing: times of the events around, nanoseconds.
    gaps: Vec<(i64, i64)>,
    last_ns: Option<i64>,
}

impl Found {
    fn count(&mut self, head: &TraceChunkHeader, is_cut: bool) {
        if head.sequence > self.expected_sequence {
            let from_ns = self.last_ns.unwrap_or(head.first_ns.min(0));
            let to_ns = head.first_ns.max(from_ns);
            let is_room = self.gaps.len() < MAX_GAPS;
            match self.gaps.last_mut() {
                // A loss each for every stream: a bounded number of gaps, the last one wide.
                Some(last) if !is_room => last.1 = to_ns,
                _ => self.gaps.push((from_ns, to_ns)),
            }
        }
        self.expected_sequence = head.sequence.saturating_add(1);
        for (stream, counts) in &head.counts {
            for (event_type, count) in counts {
                let row = self.rows.entry((*stream, *event_type));
                let row = row.or_insert_with(|| TypeTotals::new(*event_type));
                row.raised = row.raised.saturating_add(*count);
                row.raised_is_lower_bound = true;
                row.recorded = row.recorded.saturating_add(*count);
                if is_cut {
                    row.add_loss(Cause::Truncated, *count);
                    self.losses.push(TraceLoss {
                        stream: *stream,
                        event_type: Some(*event_type),
                        cause: Cause::Truncated,
                        count: *count,
                        is_lower_bound: false,
                        from_ns: head.first_ns,
                        to_ns: head.last_ns,
                    });
                }
            }
        }
        self.last_ns = Some(head.last_ns);
    }
}

impl Trace {
    /// Reads everything about a trace but its events.
    ///
    /// # Errors
    /// If the storage fails or the file header is invalid; damage after the header is noted in
    /// [`Trace::problems`].
    pub fn read(file: &dyn ReadAt) -> Result<Self> {
        let header = read_file_header(file)?;
        let mut trace = Self {
            header,
            definitions: Definitions::default(),
            chunks: Vec::new(),
            totals: Vec::new(),
            losses: Vec::new(),
            snapshots: Vec::new(),
            statistics: None,
            overview: Vec::new(),
            messages: None,
            metrics: None,
            has_footer: false,
            problems: Vec::new(),
            tail_footer: None,
        };
        let limits = FileLimits::of(file)?;
        match read_footer(file, &limits)? {
            Ok(footer) => {
                trace.tail_footer = footer_offset(file)?;
                trace.take_footer(footer)?;
            }
            Err(tail) => trace.scan_blocks(file, &limits, tail)?,
        }
        let first = trace.chunks.first().map(|first| first.offset);
        let block = first.and_then(|offset| read_block_header(file, offset).ok().zip(Some(offset)));
        block.map_or(Ok(()), |(block, offset)| check_is_in_use(&block, offset))?;
        Ok(trace)
    }

    /// Checks everything but chunks in a file with a whole footer: definitions that the footer repeats, snapshots, the
    /// statistics. Returns what is damaged there; no event is lost with it.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn check_rest(&self, file: &dyn ReadAt) -> Result<Vec<Problem>> {
        let Some(footer) = self.tail_footer else {
            return Ok(Vec::new());
        };
        let chunks = self.chunks.iter().map(|entry| entry.offset);
        check_rest(file, &self.header, footer, &chunks.collect())
    }

    /// Takes over what a footer has.
    ///
    /// # Errors
    /// If a development version wrote it.
    fn take_footer(&mut self, found: FoundFooter) -> Result<()> {
        match found.all_definitions {
            Err(error @ FormatError::Retired { .. }) => return Err(error),
            Err(error) => self.problems.push(Problem::unreadable(0, 0, &error)),
            Ok(()) => {}
        }
        let footer = found.footer;
        self.has_footer = true;
        self.definitions = footer.definitions;
        self.chunks = footer.trace_chunks;
        self.totals = footer.totals;
        // Readers look streams up.
        self.totals.sort_by_key(|totals| totals.stream);
        self.losses = footer.losses;
        self.statistics = footer.statistics;
        self.overview = footer.overview;
        self.messages = footer.messages;
        self.metrics = footer.metrics;
        let count = self.chunks.len();
        let snapshots = footer.snapshots.into_iter().filter_map(|entry| {
            let before = usize::try_from(entry.chunk)
                .ok()
                .filter(|chunk| *chunk <= count)?;
            Some(TraceSnapshot { entry, before })
        });
        self.snapshots = snapshots.collect();
        Ok(())
    }

    fn scan_blocks(
        &mut self,
        file: &dyn ReadAt,
        limits: &FileLimits,
        tail: Option<Problem>,
    ) -> Result<()> {
        let mut kinds = vec![
            BlockKind::TraceChunk,
            BlockKind::Snapshot,
            BlockKind::Definitions,
            BlockKind::Footer,
        ];
        kinds.extend(retired::blocks());
        let blocks = scan(file, &self.header, limits, &kinds, &mut self.problems)?.blocks;
        let footer = find_footer(file, &blocks, limits, &mut self.problems);
        note_tail(file, tail, footer.is_some(), &mut self.problems)?;
        if let Some(footer) = footer {
            return self.take_footer(footer);
        }
        let mut found = Found::default();
        for block in blocks {
            check_is_in_use(&block.header, block.offset)?;
            let outcome = match block.header.kind {
                BlockKind::Definitions if !block.is_cut => read_block(file, block.offset)
                    .and_then(|(_, _, body)| self.definitions.add_all_within(&body, limits)),
                BlockKind::TraceChunk => {
                    decode_with(&block.head, block.offset, TraceChunkHeader::decode)
                        .map(|head| self.take_head(&mut found, &block, &head))
                }
                BlockKind::Snapshot if !block.is_cut => {
                    decode_with(&block.head, block.offset, SnapshotHeader::decode)
                        .map(|head| self.take_snapshot(&found, block.offset, head.chunk))
                }
                _ => Ok(()),
            };
            if let Err(error) = outcome {
                if matches!(error, FormatError::Retired { .. }) {
                    return Err(error.shifted(block.offset));
                }
                self.problems.push(Problem::unreadable(
                    block.offset,
                    block.header.block_len(),
                    &error,
                ));
            }
        }
        self.conclude(found);
        self.read_losses(file, limits);
        Ok(())
    }

    fn take_head(&mut self, found: &mut Found, block: &FoundBlock, head: &TraceChunkHeader) {
        let expected = found.expected_sequence;
        if head.sequence != expected {
            self.problems.push(Problem::new(
                block.offset,
                0,
                format!("chunk {expected} expected, found chunk {}", head.sequence),
            ));
        }
        if head.sequence < expected {
            // The first of two counts.
            return;
        }
        found.count(head, block.is_cut);
        if !block.is_cut {
            self.chunks.push(TraceIndexEntry::new(block.offset, head));
        }
    }

    /// Adds a snapshot that the scan found, if its position agrees with its number.
    fn take_snapshot(&mut self, found: &Found, offset: u64, chunk: u64) {
        let last = self.snapshots.last().map(|last| last.entry.chunk);
        if chunk >= found.expected_sequence && last.is_none_or(|last| last < chunk) {
            self.snapshots.push(TraceSnapshot {
                entry: SnapshotEntry { offset, chunk },
                before: self.chunks.len(),
            });
        }
    }

    /// Computes totals and losses of a trace without a footer: lower bounds.
    fn conclude(&mut self, found: Found) {
        let mut totals: BTreeMap<StreamId, StreamTotals> = BTreeMap::new();
        for id in self.definitions.streams.keys() {
            totals.insert(*id, StreamTotals::new(*id));
        }
        for ((stream, _), row) in found.rows {
            let totals = totals.entry(stream);
            let totals = totals.or_insert_with(|| StreamTotals::new(stream));
            totals.rows.push(row);
        }
        if totals.is_empty() {
            // Its definitions and chunks are lost: an undefined stream represents those that are not known.
            let unknown = StreamId::new(0);
            totals.insert(unknown, StreamTotals::new(unknown));
        }
        for totals in totals.values_mut().filter(|totals| totals.rows.is_empty()) {
            // An empty table would read as "nothing was raised".
            totals.row(ANY_EVENT_TYPE).raised_is_lower_bound = true;
        }
        self.totals = totals.into_values().collect();
        self.losses = found.losses;
        let end_ns = self.definitions.time_zero.map_or(0, |zero| zero.end_ns);
        let last_ns = found.last_ns.unwrap_or(0);
        let end = (Cause::Truncated, last_ns, end_ns.max(last_ns));
        let gaps = found
            .gaps
            .into_iter()
            .map(|(from, to)| (Cause::Skipped, from, to));
        // Of what is missing nothing is known: it may be any stream's.
        for (cause, from_ns, to_ns) in gaps.chain([end]) {
            let of_stream = self.totals.iter().map(|totals| TraceLoss {
                stream: totals.stream,
                event_type: None,
                cause,
                count: 0,
                is_lower_bound: true,
                from_ns,
                to_ns,
            });
            self.losses.extend(of_stream);
        }
        self.losses
            .sort_by_key(|loss| (loss.to_ns, loss.from_ns, loss.stream));
    }

    /// Adds the losses that the chunks' frames contain to those of a trace without a footer, which would repeat them. What
    /// is damaged is found when the chunk is read.
    fn read_losses(&mut self, file: &dyn ReadAt, limits: &FileLimits) {
        let mut room = limits.definitions_memory / size_of::<TraceLoss>() as u64;
        let mut found = Vec::new();
        for entry in &self.chunks {
            let Some(head) = self.head(file, entry) else {
                continue;
            };
            let Some(left) = room.checked_sub(head.loss_count) else {
                self.problems.push(Problem::new(
                    entry.offset,
                    0,
                    format!(
                        "{} losses: more than a file of this size may have",
                        head.loss_count
                    ),
                ));
                break;
            };
            room = left;
            if let Ok(loaded) = self.load_streams(file, entry, |_| false) {
                found.extend(loaded.chunk.losses.into_iter().map(|(_, loss)| loss));
            }
        }
        let mut by_stream: BTreeMap<StreamId, &mut StreamTotals> = BTreeMap::new();
        by_stream.extend(self.totals.iter_mut().map(|totals| (totals.stream, totals)));
        for loss in &found {
            let Some(totals) = by_stream.get_mut(&loss.stream) else {
                continue;
            };
            let row = totals.row(loss.event_type.unwrap_or(ANY_EVENT_TYPE));
            row.raised = row.raised.saturating_add(loss.count);
            row.raised_is_lower_bound = true;
            if loss.cause.is_of_reader() {
                row.recorded = row.recorded.saturating_add(loss.count);
            }
            row.add_loss(loss.cause, loss.count);
        }
        self.losses.extend(found);
        self.losses
            .sort_by_key(|loss| (loss.to_ns, loss.from_ns, loss.stream));
    }

    /// Returns the head of a chunk: its events by stream and type. `None` means that it is damaged,
    /// or differs from the index.
    pub fn head(&self, file: &dyn ReadAt, entry: &TraceIndexEntry) -> Option<TraceChunkHeader> {
        let (_, head) = read_head_at(file, entry.offset).ok()?;
        (TraceIndexEntry::new(entry.offset, &head) == *entry).then_some(head)
    }

    /// Reads a snapshot. `file` is the one the trace was read from.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is another than the index says.
    pub fn load_snapshot(&self, file: &dyn ReadAt, at: &TraceSnapshot) -> Result<Snapshot> {
        let offset = at.entry.offset;
        let (block, head, body) = read_block(file, offset)?;
        let is_snapshot = block.kind == BlockKind::Snapshot;
        let header = is_snapshot.then(|| decode_with(&head, offset, SnapshotHeader::decode));
        match header.transpose()? {
            Some(header) if header.chunk == at.entry.chunk => block
                .check_content(header.content())
                .and_then(|()| Snapshot::decode(&header, &body))
                .map_err(|error| error.shifted(offset)),
            other => Err(FormatError::Invalid {
                offset,
                expected: "the snapshot that the index names",
                found: other.map_or_else(
                    || format!("{:?}", block.kind),
                    |header| format!("one before chunk {}", header.chunk),
                ),
            }),
        }
    }

    /// Returns the offset of the footer. `None` if there is none, or no tail that points to it.
    pub const fn footer_offset(&self) -> Option<u64> {
        self.tail_footer
    }

    /// Reads the statistics of all calls of the trace. `None` means that it has none. `file` is the one the trace was
    /// read from.
    ///
    /// # Errors
    /// If they cannot be read, are damaged, or are not where the index says.
    pub fn load_statistics(&self, file: &dyn ReadAt) -> Result<Option<RegionStatistics>> {
        let Some(offset) = self.statistics else {
            return Ok(None);
        };
        let (block, head, body) = read_block(file, offset)?;
        if block.kind != BlockKind::Statistics {
            return Err(FormatError::Invalid {
                offset,
                expected: "the statistics that the index names",
                found: format!("{:?}", block.kind),
            });
        }
        let max_items = Content::max_items(block.body_len as usize);
        let read = RegionStatistics::decode_within(&head, &body, max_items);
        read.map(Some).map_err(|error| error.shifted(offset))
    }

    /// Reads a block of the overview: its rows of a type. `file` is the one the trace was read from.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is another than the footer says.
    pub fn load_bins<R: BinRow>(&self, file: &dyn ReadAt, entry: &R::Entry) -> Result<Vec<R>> {
        let offset = R::offset(entry);
        let (block, head, body) = read_block(file, offset)?;
        let other = |found: String| FormatError::Invalid {
            offset,
            expected: "the block of bins that the footer names",
            found,
        };
        if block.kind != R::KIND {
            return Err(other(format!("{:?}", block.kind)));
        }
        let shifted = |error: FormatError| error.shifted(offset);
        let rows = decode_bins(&head, &body).map_err(shifted)?;
        block.check_content(content(&rows)).map_err(shifted)?;
        match R::entry(offset, &rows).as_ref() == Some(entry) {
            true => Ok(rows),
            false => Err(other("other rows".to_owned())),
        }
    }

    /// Decodes the events of all streams of a chunk.
    ///
    /// # Errors
    /// If [`Trace::load_streams`] fails.
    pub fn load(
        &self,
        file: &dyn ReadAt,
        entry: &TraceIndexEntry,
    ) -> Result<LoadedChunk, (FormatError, Option<Box<TraceChunkHeader>>)> {
        self.load_streams(file, entry, |_| true)
    }

    /// Decodes the events of a chunk that some streams have: the groups in which there is one of them. `file` is the one the
    /// trace was read from.
    ///
    /// # Errors
    /// If the chunk cannot be read or its head or its losses are damaged; with the head when that is intact, so that the
    /// loss can be counted.
    pub fn load_streams(
        &self,
        file: &dyn ReadAt,
        entry: &TraceIndexEntry,
        is_wanted: impl Fn(StreamId) -> bool,
    ) -> Result<LoadedChunk, (FormatError, Option<Box<TraceChunkHeader>>)> {
        let load = || {
            // The body is read only if the head is the one of the index, which may name one large block many times.
            let (block, header) = read_head_at(file, entry.offset)?;
            if TraceIndexEntry::new(entry.offset, &header) != *entry {
                return Err(FormatError::Invalid {
                    offset: entry.offset,
                    expected: "the chunk that the index names",
                    found: format!("chunk {}", header.sequence),
                });
            }
            read_events(file, entry.offset, &block, &header, is_wanted)
        };
        load().map_err(|error| (error, self.head(file, entry).map(Box::new)))
    }
}

/// Reads and decodes the trace chunk of the block at an offset.
///
/// # Errors
/// If it cannot be read or is damaged.
pub fn read_trace_chunk(file: &dyn ReadAt, offset: u64) -> Result<TraceChunk> {
    let (block, header) = read_head_at(file, offset)?;
    let loaded = read_events(file, offset, &block, &header, |_| true)?;
    match loaded.damage {
        None => Ok(loaded.chunk),
        Some((error, _)) => Err(error),
    }
}

/// The readable part of a chunk.
#[derive(Debug)]
pub struct LoadedChunk {
    /// The events.
    pub chunk: TraceChunk,
    /// The first error, and a head that has nothing but the streams of the damaged groups.
    pub damage: Option<(FormatError, TraceChunkHeader)>,
}

/// Reads and decodes the body of the trace chunk at an offset, given the state before it.
fn read_events(
    file: &dyn ReadAt,
    offset: u64,
    block: &BlockHeader,
    header: &TraceChunkHeader,
    is_wanted: impl Fn(StreamId) -> bool,
) -> Result<LoadedChunk> {
    let frames = header.frames.iter();
    let stored_len: u64 = frames.map(|frame| u64::from(frame.stored_len)).sum();
    let body_at = body_offset(offset, block);
    if stored_len != u64::from(block.body_len) || block.compression != 0 {
        return Err(FormatError::Invalid {
            offset,
            expected: "frames that fill the body",
            found: format!("{stored_len} of {} bytes", block.body_len),
        });
    }
    if body_at.saturating_add(stored_len) > file.len()? {
        return Err(FormatError::UnexpectedEnd {
            offset: file.len()?,
            expected: "the rest of a block",
        });
    }
    let mut loaded = LoadedChunk {
        chunk: TraceChunk::default(),
        damage: None,
    };
    let mut reader = GroupReader::new(header);
    let mut stored = Vec::new();
    while let Some(frame) = reader.next_frame() {
        let counts = &header.counts[frame.streams.clone()];
        if !counts.is_empty() && !counts.iter().any(|(stream, _)| is_wanted(*stream)) {
            continue;
        }
        let at = body_at + frame.range.start;
        stored.resize((frame.range.end - frame.range.start) as usize, 0);
        file.read_exact_at(at, &mut stored)?;
        let Err(error) = reader.read(&frame, &stored, &mut loaded.chunk) else {
            continue;
        };
        let error = error.shifted(at);
        if counts.is_empty() {
            return Err(error);
        }
        let lost = |header: TraceChunkHeader| TraceChunkHeader {
            counts: Vec::new(),
            frames: Vec::new(),
            ..header
        };
        let damage = loaded
            .damage
            .get_or_insert_with(|| (error, lost(header.clone())));
        damage.1.counts.extend_from_slice(counts);
    }
    if let Some((_, lost)) = &mut loaded.damage {
        let counts = lost.counts.iter().flat_map(|(_, counts)| counts);
        lost.event_count = counts.map(|(_, count)| count).sum();
    }
    Ok(loaded)
}

fn check_is_trace_chunk(block: &BlockHeader, offset: u64) -> Result<()> {
    if block.kind == BlockKind::TraceChunk {
        return Ok(());
    }
    check_is_in_use(block, offset)?;
    Err(FormatError::Invalid {
        offset,
        expected: "a trace chunk",
        found: format!("{:?}", block.kind),
    })
}

/// # Errors
/// If only development versions wrote blocks of its kind.
fn check_is_in_use(block: &BlockHeader, offset: u64) -> Result<()> {
    match Retired::Block(block.kind.code()).name() {
        Some(found) => Err(FormatError::Retired { offset, found }),
        None => Ok(()),
    }
}

/// Reads the block header and the head of the trace chunk at an offset.
fn read_head_at(file: &dyn ReadAt, offset: u64) -> Result<(BlockHeader, TraceChunkHeader)> {
    let (block, head) = read_block_head(file, offset)?;
    check_is_trace_chunk(&block, offset)?;
    let header = decode_with(&head, offset, TraceChunkHeader::decode)?;
    Ok((block, header))
}

/// A trace chunk as it is stored: its head, and its body, compressed as it may be.
#[derive(Debug)]
pub struct StoredTraceChunk {
    /// The head.
    pub header: TraceChunkHeader,
    /// The body.
    pub body: StoredBody,
}

/// Reads the trace chunk whose block is at `offset` without decoding it; verifies its checksums.
///
/// # Errors
/// If it cannot be read or is damaged.
pub fn read_stored_trace_chunk(file: &dyn ReadAt, offset: u64) -> Result<StoredTraceChunk> {
    let (block, head, stored) = read_stored_block(file, offset)?;
    check_is_trace_chunk(&block, offset)?;
    block
        .check_body(&stored)
        .map_err(|error| error.shifted(offset))?;
    Ok(StoredTraceChunk {
        header: decode_with(&head, offset, TraceChunkHeader::decode)?,
        body: StoredBody::of_block(&block, stored),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::FileKind;
    use crate::retired::RETIRED;
    use crate::testing::{FileMaker, STREAM, trace_chunk, ty};
    use crate::wire::Put;

    #[test]
    fn a_missing_chunk_is_a_gap_of_unknown_size_in_every_stream() {
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &trace_chunk(10, 3));
        maker.trace_chunk(2, &trace_chunk(50, 3));
        let trace = Trace::read(&maker.bytes).unwrap();
        let skipped = trace
            .losses
            .iter()
            .filter(|loss| loss.cause == Cause::Skipped);
        let found: Vec<_> = skipped
            .map(|loss| {
                assert!(loss.is_lower_bound && loss.event_type.is_none());
                (loss.stream.get(), loss.count, loss.from_ns, loss.to_ns)
            })
            .collect();
        assert_eq!(found, [(0, 0, 12, 50), (1, 0, 12, 50)]);
        let truncated = trace.losses.len() - found.len();
        assert_eq!(truncated, 2, "the end is open in both");
    }

    #[test]
    fn losses_of_a_trace_without_a_footer_are_those_of_its_chunks() {
        let loss = |count, cause| TraceLoss {
            stream: STREAM,
            event_type: Some(ty(0)),
            cause,
            count,
            is_lower_bound: false,
            from_ns: 11,
            to_ns: 12,
        };
        let mut chunk = trace_chunk(10, 3);
        chunk.losses = vec![
            (1, loss(7, Cause::BufferFull)),
            (1, loss(2, Cause::RateLimited)),
            (1, loss(4, Cause::Skipped)),
        ];
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &chunk);
        let trace = Trace::read(&maker.bytes).unwrap();
        let counted: u64 = trace.losses.iter().map(|loss| loss.count).sum();
        assert_eq!(counted, 7 + 2 + 4);
        let row = trace.totals[0].get(ty(0)).unwrap();
        let counts = (row.raised, row.recorded, row.dropped_sum(), row.suppressed);
        assert_eq!(counts, (3 + 7 + 2 + 4, 3 + 4, 7, 2));
        assert_eq!(row.skipped, 4);
        assert!(row.is_balanced() && row.raised_is_lower_bound);
    }

    #[test]
    fn a_trace_of_which_nothing_is_left_does_not_know_what_was_raised() {
        let maker = FileMaker::new(FileKind::Trace);
        let trace = Trace::read(&maker.bytes).unwrap();
        assert!(
            trace
                .totals
                .iter()
                .all(|totals| totals.rows[0].raised_is_lower_bound)
        );
        let header = &maker.bytes[..crate::block::FILE_HEADER_LEN];
        let trace = Trace::read(&header.to_vec()).unwrap();
        assert!(trace.totals[0].rows[0].raised_is_lower_bound);
        assert!(trace.losses[0].is_lower_bound);
    }

    #[test]
    fn a_chunk_that_stands_twice_counts_once() {
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &trace_chunk(10, 3));
        maker.trace_chunk(0, &trace_chunk(10, 3));
        let trace = Trace::read(&maker.bytes).unwrap();
        assert_eq!(trace.chunks.len(), 1);
        assert_eq!(trace.problems.len(), 1);
        assert_eq!(trace.totals[0].get(ty(0)).unwrap().recorded, 3);
    }

    #[test]
    fn a_footer_without_its_tail_is_a_footer() {
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &trace_chunk(10, 3));
        maker.totals(&[(0, 3)]);
        maker.footer();
        let trace = Trace::read(&maker.bytes).unwrap();
        assert!(trace.has_footer);
        assert!(trace.losses.is_empty());
        assert!(trace.problems[0].what.contains("the tail is missing"));
        assert_eq!(
            trace
                .load(&maker.bytes, &trace.chunks[0])
                .unwrap()
                .chunk
                .len(),
            3
        );
    }

    #[test]
    fn a_footer_serves_when_a_block_before_it_is_missing() {
        let mut maker = FileMaker::new(FileKind::Trace);
        let first = maker.trace_chunk(0, &trace_chunk(10, 3));
        let second = maker.trace_chunk(1, &trace_chunk(20, 3));
        maker.totals(&[(0, 6)]);
        maker.finish();
        let bytes = [&maker.bytes[..first], &maker.bytes[second..]].concat();
        let trace = Trace::read(&bytes).unwrap();
        assert!(trace.has_footer);
        assert_eq!(trace.totals[0].get(ty(0)).unwrap().recorded, 6);
        assert!(trace.load(&bytes, &trace.chunks[1]).is_ok());
        // The second chunk is at the offset of the first.
        assert_eq!(trace.chunks[0].offset, trace.chunks[1].offset);
        assert!(matches!(
            trace.load(&bytes, &trace.chunks[0]),
            Err((_, None))
        ));
    }

    /// Returns the groups that are read of a chunk with three of them, by stream, and what is
    /// damaged.
    fn read_groups(bytes: &[u8], is_wanted: impl Fn(StreamId) -> bool) -> (Vec<u32>, Vec<u32>) {
        let bytes = bytes.to_vec();
        let trace = Trace::read(&bytes).unwrap();
        let loaded = trace.load_streams(&bytes, &trace.chunks[0], is_wanted);
        let loaded = loaded.unwrap();
        let read = loaded.chunk.runs().map(|(_, stream, _)| stream.get());
        let lost = loaded.damage.iter().flat_map(|(_, head)| {
            let counts = head.counts.iter();
            counts.map(|(stream, _)| stream.get())
        });
        (read.collect(), lost.collect())
    }

    #[test]
    fn a_damaged_frame_costs_only_its_group() {
        let mut maker = FileMaker::new(FileKind::Trace);
        let mut chunk = crate::testing::groups(&[5000, 5000, 3]);
        // Columns that do not shrink to nothing, so that every frame has bytes to damage.
        for group in &mut chunk.groups {
            let residuals = group.tick_residuals.iter_mut().enumerate();
            residuals.for_each(|(index, residual)| *residual = index as i64 * 7919 % 251);
        }
        let start = maker.trace_chunk(0, &chunk);
        let end = maker.bytes.len();
        maker.totals(&[(0, 10_003)]);
        maker.finish();
        assert_eq!(read_groups(&maker.bytes, |_| true), (vec![0, 1, 2], vec![]));
        let one = |stream: StreamId| stream.get() == 1;
        assert_eq!(read_groups(&maker.bytes, one), (vec![1], vec![]));
        let (block, _) = read_head_at(&maker.bytes, start as u64).unwrap();
        let body = body_offset(start as u64, &block) as usize;
        let mut seen = [0; 3];
        for at in (body..end).step_by(97) {
            maker.bytes[at] ^= 0x55;
            let (read, lost) = read_groups(&maker.bytes, |_| true);
            let [damaged] = lost[..] else {
                panic!("one group is lost, found {lost:?}")
            };
            seen[damaged as usize] += 1;
            let others: Vec<u32> = (0..3).filter(|stream| *stream != damaged).collect();
            assert_eq!(read, others);
            // Readers that do not need it do not notice.
            let wanted = |stream: StreamId| stream.get() != damaged;
            assert_eq!(read_groups(&maker.bytes, wanted), (others, vec![]));
            maker.bytes[at] ^= 0x55;
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
    }

    #[test]
    fn a_trace_of_a_development_version_is_refused_in_words() {
        for (code, name) in RETIRED {
            let mut maker = FileMaker::new(FileKind::Trace);
            match code {
                Retired::Block(kind) => maker.block(BlockKind::from_code(kind), &[], &[]),
                Retired::Definition(kind) => {
                    let mut record = Vec::new();
                    record.put_varint(kind);
                    record.put_bytes(&[1, 2, 3]);
                    maker.block(BlockKind::Definitions, &[], &record)
                }
            };
            let error = Trace::read(&maker.bytes).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            assert!(error.contains("merge the recordings again"), "{error}");
        }
    }

    #[test]
    fn a_chunk_that_is_cut_off_is_truncated_by_type() {
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &trace_chunk(10, 3));
        let length = maker.bytes.len();
        maker.bytes.truncate(length - 1);
        let trace = Trace::read(&maker.bytes).unwrap();
        assert!(trace.chunks.is_empty());
        let row = trace.totals[0].get(ty(0)).unwrap();
        assert_eq!((row.recorded, row.truncated, row.present()), (3, 3, 0));
        let counted = trace.losses.iter().find(|loss| loss.count != 0).unwrap();
        assert_eq!((counted.stream, counted.count), (STREAM, 3));
    }

    #[test]
    fn a_hundred_thousand_streams_are_counted_quickly() {
        let mut maker = FileMaker::new(FileKind::Trace);
        let counts = (0..100_000).map(|id| (StreamId::new(id), vec![(ty(0), 1)]));
        let header = TraceChunkHeader {
            event_count: 100_000,
            counts: counts.collect(),
            frames: vec![crate::frames::Frame {
                streams: 100_000,
                compression: 0,
                stored_len: 0,
                raw_len: 0,
                crc: 0,
            }],
            ..TraceChunkHeader::default()
        };
        let mut head = Vec::new();
        header.encode(&mut head);
        maker.block(BlockKind::TraceChunk, &head, &[]);
        let before = std::time::Instant::now();
        let trace = Trace::read(&maker.bytes).unwrap();
        assert!(before.elapsed().as_secs() < 5, "{:?}", before.elapsed());
        assert_eq!(trace.totals.len(), 100_000);
        assert!(trace.totals.is_sorted_by_key(|totals| totals.stream));
    }

    #[test]
    fn snapshots_are_found_by_footer_and_by_scan() {
        let make = |has_footer: bool| {
            let mut maker = FileMaker::new(FileKind::Trace);
            maker.trace_chunk(0, &trace_chunk(10, 3));
            maker.snapshot(1);
            maker.trace_chunk(1, &trace_chunk(20, 3));
            let end = maker.snapshot(2);
            if has_footer {
                maker.finish();
            }
            (maker.bytes, end)
        };
        for has_footer in [true, false] {
            let (mut bytes, end) = make(has_footer);
            let trace = Trace::read(&bytes).unwrap();
            let found = trace.snapshots.iter().map(|at| at.before);
            assert_eq!(found.collect::<Vec<_>>(), [1, 2], "footer: {has_footer}");
            for at in &trace.snapshots {
                let read = trace.load_snapshot(&bytes, at).unwrap();
                assert_eq!(read, crate::testing::snapshot());
            }
            // Damage costs the snapshot it is in.
            bytes[end + crate::BLOCK_HEADER_LEN + 5] ^= 1;
            let trace = Trace::read(&bytes).unwrap();
            assert!(trace.load_snapshot(&bytes, &trace.snapshots[0]).is_ok());
            assert!(trace.load_snapshot(&bytes, &trace.snapshots[1]).is_err());
            assert!(
                trace
                    .chunks
                    .iter()
                    .all(|entry| trace.load(&bytes, entry).is_ok())
            );
        }
    }

    #[test]
    fn a_snapshot_behind_a_missing_chunk_stands_before_the_next_one() {
        let mut maker = FileMaker::new(FileKind::Trace);
        maker.trace_chunk(0, &trace_chunk(10, 3));
        maker.snapshot(2);
        maker.trace_chunk(2, &trace_chunk(50, 3));
        // One that is of a place that was passed is not used.
        maker.snapshot(1);
        let trace = Trace::read(&maker.bytes).unwrap();
        let found = trace.snapshots.iter().map(|at| (at.entry.chunk, at.before));
        assert_eq!(found.collect::<Vec<_>>(), [(2, 1)]);
    }
}
