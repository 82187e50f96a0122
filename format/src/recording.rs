//! A recording as its readers see it: what is there, what is not, and why.

use std::collections::BTreeMap;

use crate::block::{BlockKind, FileHeader};
use crate::chunk::{Chunk, ChunkBuilder, ChunkHeader};
use crate::definitions::{Definitions, Ended, Schema};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StreamId};
use crate::live::{LiveHeader, LiveImage, LivePage, layout};
use crate::loss::Cause;
use crate::read::ReadAt;
use crate::scan::{Problem, decode_with, read_block, read_file_header, read_footer, scan};
use crate::totals::StreamTotals;
use crate::wire::Wire;

/// Stands for "any event type" where totals have a row for events whose type is lost.
pub const ANY_EVENT_TYPE: EventTypeId = EventTypeId::new(u32::MAX);

/// Where a chunk's events are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkPlace {
    /// In the recording, the block at this offset.
    Block(u64),
    /// In the recording, but the file ends within it: only the head is there.
    Cut,
    /// In the live file: index of the page.
    Live(usize),
}

/// A chunk of a stream.
#[derive(Clone, Debug)]
pub struct StoredChunk {
    /// What its head says.
    pub header: ChunkHeader,
    /// Where its events are.
    pub place: ChunkPlace,
}

/// Events of a stream that are missing, found without decoding any chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamLoss {
    /// What is missing; none: any type.
    pub event_type: Option<EventTypeId>,
    /// Why.
    pub cause: Cause,
    /// How many events.
    pub count: u64,
    /// Whether more may be missing.
    pub is_lower_bound: bool,
    /// Before which of the stream's chunks they are missing; the number of chunks: behind the last.
    pub before_chunk: usize,
}

/// One stream of a recording.
#[derive(Clone, Debug)]
pub struct StreamContents {
    /// Its chunks, by sequence number; some may be missing.
    pub chunks: Vec<StoredChunk>,
    /// What was raised and what became of it, as far as heads and counters tell.
    pub totals: StreamTotals,
    /// Chunks that are missing.
    pub losses: Vec<StreamLoss>,
    /// Whether the stream was still open when its process ended.
    pub is_open: bool,
}

/// A recording, with its live file when there is one.
#[derive(Debug)]
pub struct Recording {
    /// Header of the file.
    pub header: FileHeader,
    /// All definitions.
    pub definitions: Definitions,
    /// All streams that are defined, have chunks or counters.
    pub streams: BTreeMap<StreamId, StreamContents>,
    /// How it ended.
    pub ended: Ended,
    /// Whether the file has a whole footer.
    pub has_footer: bool,
    /// The last moment the recorder is known to have lived, by the reference clock, nanoseconds.
    pub last_reference_ns: Option<i64>,
    /// Parts of the file that could not be used.
    pub problems: Vec<Problem>,
    pages: Vec<LivePage>,
    schema: Schema,
}

impl Recording {
    /// Reads everything about a recording but its events: the footer when there is one, else the
    /// blocks' heads; and the live file when the process did not end properly. A process that is
    /// still recording is read as it is now; read the live file first, then the recording.
    ///
    /// `is_alive` tells whether the process that a live header names still runs.
    ///
    /// # Errors
    /// If the storage fails or the file header is not one; damage behind it is noted in
    /// [`Recording::problems`].
    pub fn read(
        file: &dyn ReadAt,
        live: Option<LiveImage>,
        is_alive: impl Fn(&LiveHeader) -> bool,
    ) -> Result<Self> {
        let header = read_file_header(file)?;
        let mut recording = Self {
            header,
            definitions: Definitions::default(),
            streams: BTreeMap::new(),
            ended: Ended::Truncated,
            has_footer: false,
            last_reference_ns: None,
            problems: Vec::new(),
            pages: Vec::new(),
            schema: Schema::default(),
        };
        let mut totals: BTreeMap<StreamId, StreamTotals> = BTreeMap::new();
        let mut chunks: BTreeMap<(StreamId, u64), StoredChunk> = BTreeMap::new();
        if let Some(footer) = read_footer(file)? {
            recording.has_footer = true;
            recording.ended = Ended::Finished;
            recording.definitions = footer.definitions;
            totals.extend(footer.totals.into_iter().map(|t| (t.stream, t)));
            for (offset, header) in footer.chunks {
                let place = ChunkPlace::Block(offset);
                let key = (header.stream, header.sequence);
                chunks.entry(key).or_insert(StoredChunk { header, place });
            }
        } else {
            recording.scan_blocks(file, &mut totals, &mut chunks)?;
        }
        let mut open = BTreeMap::new();
        if let Some(live) = live.filter(|_| !recording.has_footer) {
            recording.take_live(live, &is_alive, &mut chunks, &mut open);
        }
        recording.definitions.tidy();
        recording.schema = recording.definitions.schema();
        recording.assemble(chunks, totals, open);
        Ok(recording)
    }

    fn problem(&mut self, offset: u64, length: u64, error: &FormatError) {
        self.problems.push(Problem {
            offset,
            length,
            what: error.to_string(),
        });
    }

    fn scan_blocks(
        &mut self,
        file: &dyn ReadAt,
        totals: &mut BTreeMap<StreamId, StreamTotals>,
        chunks: &mut BTreeMap<(StreamId, u64), StoredChunk>,
    ) -> Result<()> {
        for block in scan(file, &self.header, &mut self.problems)? {
            let length = block.header.block_len();
            let outcome = match block.header.kind {
                BlockKind::Chunk => decode_with(&block.head, block.offset, ChunkHeader::decode)
                    .map(|header| {
                        let place = if block.is_cut {
                            ChunkPlace::Cut
                        } else {
                            ChunkPlace::Block(block.offset)
                        };
                        let key = (header.stream, header.sequence);
                        chunks.entry(key).or_insert(StoredChunk { header, place });
                    }),
                BlockKind::Definitions if !block.is_cut => read_block(file, block.offset)
                    .and_then(|(_, _, body)| self.definitions.add_all(&body)),
                BlockKind::Totals if !block.is_cut => {
                    read_block(file, block.offset).and_then(|(_, _, body)| {
                        let mut wire = Wire::new(&body);
                        while !wire.is_empty() {
                            let stream = StreamTotals::decode(&mut wire)?;
                            totals.insert(stream.stream, stream);
                        }
                        Ok(())
                    })
                }
                _ => Ok(()),
            };
            if let Err(error) = outcome {
                self.problem(block.offset, length, &error);
            }
        }
        Ok(())
    }

    fn take_live(
        &mut self,
        live: LiveImage,
        is_alive: &impl Fn(&LiveHeader) -> bool,
        chunks: &mut BTreeMap<(StreamId, u64), StoredChunk>,
        open: &mut BTreeMap<StreamId, crate::live::LiveStream>,
    ) {
        if live.header.recording_id != self.header.recording_id {
            self.problems.push(Problem {
                offset: 0,
                length: 0,
                what: format!(
                    "the live file belongs to recording {}, not to {}: left out",
                    live.header.recording_id, self.header.recording_id
                ),
            });
            return;
        }
        self.ended = if live.state == layout::STATE_STORAGE_FAILED {
            Ended::StorageFailed
        } else if is_alive(&live.header) {
            Ended::Running
        } else {
            Ended::Killed
        };
        self.last_reference_ns = Some(live.heartbeat_ns);
        if let Err(error) = self.definitions.add_all(&live.definitions) {
            self.problem(0, 0, &error);
        }
        self.schema = self.definitions.schema();
        for page in live.pages {
            let key = (page.stream, page.sequence);
            let in_file = chunks.get(&key).map(|chunk| chunk.place);
            if matches!(in_file, Some(ChunkPlace::Block(_))) {
                continue;
            }
            let (mut header, _, outcome) = self.build_page(&page);
            if let Err(error) = outcome {
                self.problem(page.offset, page.rows.len() as u64, &error);
            }
            header.before = page.before;
            let place = ChunkPlace::Live(self.pages.len());
            chunks.insert(key, StoredChunk { header, place });
            self.pages.push(page);
        }
        open.extend(live.streams.into_iter().map(|s| (s.stream, s)));
    }

    fn build_page(&self, page: &LivePage) -> (ChunkHeader, Chunk, Result<u64>) {
        let stream = self.definitions.streams.get(&page.stream);
        let source = stream.and_then(|stream| self.definitions.sources.get(&stream.source));
        let clock = source.and_then(|source| self.definitions.clocks.get(&source.clock));
        let max_ticks = clock.map_or(u64::MAX, |clock| clock.max_ticks);
        let mut builder = ChunkBuilder::new(max_ticks);
        let outcome = builder.push_rows(&self.schema, page.base_tick, &page.rows);
        let (mut header, chunk) = builder.finish(page.stream);
        header.sequence = page.sequence;
        header.open_reference_ns = page.open_reference_ns;
        header.close_reference_ns = page.open_reference_ns;
        (header, chunk, outcome)
    }

    fn assemble(
        &mut self,
        chunks: BTreeMap<(StreamId, u64), StoredChunk>,
        mut totals: BTreeMap<StreamId, StreamTotals>,
        mut open: BTreeMap<StreamId, crate::live::LiveStream>,
    ) {
        let mut by_stream: BTreeMap<StreamId, Vec<StoredChunk>> = BTreeMap::new();
        for id in self.definitions.streams.keys() {
            by_stream.entry(*id).or_default();
        }
        for id in totals.keys().chain(open.keys()) {
            by_stream.entry(*id).or_default();
        }
        for ((stream, _), chunk) in chunks {
            by_stream.entry(stream).or_default().push(chunk);
        }
        for (stream, chunks) in by_stream {
            let known = totals.remove(&stream);
            let live = open.remove(&stream);
            let contents = assemble_stream(stream, chunks, known, live, self.ended);
            self.streams.insert(stream, contents);
        }
    }

    /// Decodes the events of a chunk. `file` is the one the recording was read from.
    ///
    /// # Errors
    /// If the chunk cannot be read, is damaged, or lies behind the end of the file.
    pub fn load(&self, file: &dyn ReadAt, chunk: &StoredChunk) -> Result<Chunk> {
        match chunk.place {
            ChunkPlace::Block(offset) => {
                let (block, head, body) = read_block(file, offset)?;
                let header = decode_with(&head, offset, ChunkHeader::decode)?;
                let is_same = block.kind == BlockKind::Chunk
                    && header.stream == chunk.header.stream
                    && header.sequence == chunk.header.sequence;
                if !is_same {
                    return Err(FormatError::Invalid {
                        offset,
                        expected: "the chunk that the index names",
                        found: format!("chunk {} of {:?}", header.sequence, header.stream),
                    });
                }
                Chunk::decode(&header, &body).map_err(|error| error.shifted(offset))
            }
            ChunkPlace::Cut => Err(FormatError::UnexpectedEnd {
                offset: file.len()?,
                expected: "the rest of a chunk",
            }),
            ChunkPlace::Live(index) => {
                let (_, chunk, _) = self.build_page(&self.pages[index]);
                Ok(chunk)
            }
        }
    }
}

fn assemble_stream(
    stream: StreamId,
    chunks: Vec<StoredChunk>,
    known: Option<StreamTotals>,
    live: Option<crate::live::LiveStream>,
    ended: Ended,
) -> StreamContents {
    let is_open = known.is_none();
    let mut present = StreamTotals::new(stream);
    for chunk in &chunks {
        let header = &chunk.header;
        present.inversions += header.inversions;
        present.largest_lateness = present.largest_lateness.max(header.largest_lateness);
        for (event_type, count) in &header.counts {
            present.row(*event_type).recorded += count;
        }
    }
    let mut losses = gaps(&chunks);
    let last_tick = chunks.last().map(|chunk| chunk.header.last_tick);

    let mut totals = match (known, &live) {
        (Some(known), _) => known,
        (None, Some(live)) => totals_from_counters(stream, live, &present, &losses),
        (None, None) => totals_from_heads(stream, &chunks, &present, &losses),
    };
    if is_open {
        let open_tick = live.as_ref().map_or(0, |live| live.open_tick);
        totals.last_tick = last_tick.unwrap_or(open_tick);
        totals.close_tick = totals.last_tick;
        totals.inversions = present.inversions;
        totals.largest_lateness = present.largest_lateness;
    }
    // What totals know of, and neither a chunk nor a gap explains, is missing behind the last chunk.
    let missing: Vec<(EventTypeId, u64)> = totals
        .rows
        .iter()
        .map(|row| {
            let here = present.get(row.event_type).map_or(0, |row| row.recorded);
            (row.event_type, row.recorded.saturating_sub(here))
        })
        .filter(|(_, count)| *count != 0)
        .collect();
    let missing_sum: u64 = missing.iter().map(|(_, count)| count).sum();
    let gaps_sum: u64 = losses.iter().map(|loss| loss.count).sum();
    let gap_places: std::collections::BTreeSet<usize> =
        losses.iter().map(|loss| loss.before_chunk).collect();
    if !is_open || live.is_some() {
        let tail = missing_sum.saturating_sub(gaps_sum);
        if tail == 0 && gap_places.len() == 1 {
            // One gap: the totals say exactly what was in it.
            let before_chunk = losses[0].before_chunk;
            losses = exact_losses(&missing, Cause::Skipped, before_chunk);
        } else if tail != 0 && gap_places.is_empty() {
            losses = exact_losses(&missing, Cause::Skipped, chunks.len());
        } else if tail != 0 {
            losses.push(StreamLoss {
                event_type: None,
                cause: Cause::Skipped,
                count: tail,
                is_lower_bound: false,
                before_chunk: chunks.len(),
            });
        }
        for (event_type, count) in missing {
            totals.row(event_type).skipped += count;
        }
    } else {
        for loss in &losses {
            let row = totals.row(loss.event_type.unwrap_or(ANY_EVENT_TYPE));
            row.skipped += loss.count;
        }
        if ended == Ended::Truncated {
            losses.push(StreamLoss {
                event_type: None,
                cause: Cause::Truncated,
                count: 0,
                is_lower_bound: true,
                before_chunk: chunks.len(),
            });
        }
    }
    StreamContents {
        chunks,
        totals,
        losses,
        is_open,
    }
}

fn exact_losses(
    missing: &[(EventTypeId, u64)],
    cause: Cause,
    before_chunk: usize,
) -> Vec<StreamLoss> {
    let each = missing.iter().map(|(event_type, count)| StreamLoss {
        event_type: Some(*event_type),
        cause,
        count: *count,
        is_lower_bound: false,
        before_chunk,
    });
    each.collect()
}

/// Chunks missing between others: counted from the successor.
fn gaps(chunks: &[StoredChunk]) -> Vec<StreamLoss> {
    let mut losses = Vec::new();
    let mut expected_sequence = 0;
    let mut recorded = 0;
    for (index, chunk) in chunks.iter().enumerate() {
        let header = &chunk.header;
        if header.sequence > expected_sequence {
            let missing = header.before.recorded.saturating_sub(recorded);
            let mut rest = missing;
            for (event_type, count) in &header.predecessor_counts {
                let count = (*count).min(rest);
                rest -= count;
                losses.push(StreamLoss {
                    event_type: Some(*event_type),
                    cause: Cause::Skipped,
                    count,
                    is_lower_bound: false,
                    before_chunk: index,
                });
            }
            if rest != 0 || header.predecessor_counts.is_empty() {
                losses.push(StreamLoss {
                    event_type: None,
                    cause: Cause::Skipped,
                    count: rest,
                    is_lower_bound: false,
                    before_chunk: index,
                });
            }
        }
        expected_sequence = header.sequence.saturating_add(1);
        recorded = header.before.recorded.saturating_add(header.event_count);
    }
    losses
}

/// Totals of a stream whose process was killed: its counters, and what its chunks hold.
fn totals_from_counters(
    stream: StreamId,
    live: &crate::live::LiveStream,
    present: &StreamTotals,
    losses: &[StreamLoss],
) -> StreamTotals {
    let mut totals = StreamTotals::new(stream);
    for row in &present.rows {
        totals.row(row.event_type).recorded = row.recorded;
    }
    for loss in losses {
        if let Some(event_type) = loss.event_type {
            totals.row(event_type).recorded += loss.count;
        }
    }
    let some_type_is_lost = losses.iter().any(|loss| loss.event_type.is_none());
    for counters in &live.counters {
        let row = totals.row(counters.event_type);
        row.raised = counters.raised;
        row.suppressed = counters.suppressed;
        row.dropped[..layout::ROW_CAUSES].copy_from_slice(&counters.dropped);
        let lost_or_suppressed = row.dropped_sum().saturating_add(row.suppressed);
        let explained = row.recorded.saturating_add(lost_or_suppressed);
        // The kill came between counting the raise and its commit (or the drop's count): that event
        // was not raised. Only the one that was being raised can be such.
        let is_in_flight = live.is_shared || live.busy == Some(counters.event_type);
        if is_in_flight && row.raised > explained && (live.is_shared || row.raised == explained + 1)
        {
            row.raised = explained;
        } else if some_type_is_lost && row.raised > explained {
            row.recorded = row.raised - lost_or_suppressed;
        }
    }
    totals
}

/// Totals of a stream of which nothing but chunks is left: lower bounds.
fn totals_from_heads(
    stream: StreamId,
    chunks: &[StoredChunk],
    present: &StreamTotals,
    losses: &[StreamLoss],
) -> StreamTotals {
    let mut totals = StreamTotals::new(stream);
    for row in &present.rows {
        totals.row(row.event_type).recorded = row.recorded;
    }
    for loss in losses {
        totals
            .row(loss.event_type.unwrap_or(ANY_EVENT_TYPE))
            .recorded += loss.count;
    }
    for row in &mut totals.rows {
        row.raised = row.recorded;
        row.raised_is_lower_bound = true;
    }
    let dropped = chunks.last().map_or(0, |chunk| {
        let header = &chunk.header;
        header.before.dropped.saturating_add(header.dropped_count)
    });
    if dropped != 0 {
        // Which types they were stands in the chunks' dropped records; a reader of the events moves
        // the counts from here to their rows.
        let row = totals.row(ANY_EVENT_TYPE);
        row.raised += dropped;
        row.raised_is_lower_bound = true;
        row.dropped[Cause::BufferFull.code() as usize] = dropped;
    }
    totals
}
