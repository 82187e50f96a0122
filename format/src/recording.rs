//! A recording as its readers see it: what is there, what is not, and why.

mod live_regions;
mod stream_losses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::block::{BlockKind, FileHeader};
use crate::chunk::{Chunk, ChunkBuilder, ChunkHeader, read_row_chunk};
use crate::definitions::{
    Definition, Definitions, Ended, Location, LocationKind, Schema, Stream, UNBOUNDED,
};
use crate::error::{FormatError, Result};
use crate::file_limits::FileLimits;
use crate::ids::{ANY_EVENT_TYPE, EventTypeId, ProcessId, StreamId, StringId};
use crate::limits::Content;
use crate::live::{LiveHeader, LiveImage, LivePage, LiveStream, layout};
use crate::loss::{Cause, DroppedRecord};
use crate::read::ReadAt;
use crate::scan::{
    FoundFooter, Problem, check_block, check_rest, decode_with, find_footer, footer_offset,
    note_tail, read_block, read_block_head, read_block_header, read_body, read_file_header,
    read_footer, scan,
};
use crate::totals::{StreamTotals, TypeTotals};
use crate::wire::Wire;

use stream_losses::{FoundStream, sum};

/// Where a chunk's events are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkPlace {
    /// In the recording, the block at this offset.
    Block(u64),
    /// In the recording, but its body is cut off: only the head is there.
    Cut,
    /// In the live file: index of the page.
    Live(usize),
}

/// A chunk of a stream.
#[derive(Clone, Debug)]
pub struct StoredChunk {
    /// The contents of its head.
    pub header: ChunkHeader,
    /// Where its events are.
    pub place: ChunkPlace,
}

/// Events of a stream that are missing, found without decoding any chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamLoss {
    /// The type of the missing events; `None` means any type.
    pub event_type: Option<EventTypeId>,
    /// Why.
    pub cause: Cause,
    /// How many events.
    pub count: u64,
    /// Whether more may be missing.
    pub is_lower_bound: bool,
    /// Index of the stream's chunk before which they are missing; the number of chunks if they are
    /// missing after the last one.
    pub before_chunk: usize,
}

/// One stream of a recording.
#[derive(Clone, Debug)]
pub struct StreamContents {
    /// Its chunks, by sequence number; some may be missing.
    pub chunks: Vec<StoredChunk>,
    /// The number of raised events and what became of them, as far as heads and counters show.
    pub totals: StreamTotals,
    /// Missing events.
    pub losses: Vec<StreamLoss>,
    /// Whether the stream was still open when its process ended: the recording has no final totals of it, or a recovery
    /// wrote them.
    pub is_open: bool,
}

/// A recording, with its live file when there is one.
#[derive(Debug)]
pub struct Recording {
    /// Header of the file.
    pub header: FileHeader,
    /// All definitions. Shared, because a merge of many recordings leaves most without any.
    pub definitions: Arc<Definitions>,
    /// All streams that are defined, have chunks or counters. Boxed, because a map's node reserves room for several
    /// values, and most recordings have few.
    pub streams: BTreeMap<StreamId, Box<StreamContents>>,
    /// How it ended.
    pub ended: Ended,
    /// Whether the file has a whole footer.
    pub has_footer: bool,
    /// The last moment the recorder is known to have lived, by the reference clock, nanoseconds.
    pub last_reference_ns: Option<i64>,
    /// How much later than that its process may have ended, nanoseconds: see
    /// [`ProcessEnd::end_error_ns`](crate::ProcessEnd::end_error_ns).
    pub end_error_ns: u64,
    /// Parts of the file that could not be used.
    pub problems: Vec<Problem>,
    /// Where the footer is that the tail points to. `None` if the file was scanned, and so read as a whole.
    tail_footer: Option<u64>,
    /// Where the block begins that the file's end cuts.
    pub(crate) cut_at: Option<u64>,
    /// Where the footer is that a scan found as the last block of the file, without the tail that should follow it.
    pub(crate) footer_without_tail: Option<u64>,
    /// The parts of the live file that could not be read.
    live_loss: LiveLoss,
    /// Pages of the live file whose events are in no intact block of the file; [`ChunkPlace::Live`] is an index.
    pages: Vec<LivePage>,
    /// Dropped records about what a stream overwrote before its first chunk, for streams whose first chunk is a page;
    /// by index of that page. A recorder that finishes writes such records into the chunk.
    overwritten: BTreeMap<usize, Vec<DroppedRecord>>,
    /// The schema that the rows of the pages are decoded by.
    schema: Schema,
}

/// The parts of a live file that could not be read.
#[derive(Clone, Copy, Default, Debug)]
struct LiveLoss {
    /// Number of committed events that could not be decoded from the rows of their page, or whose page has the stream
    /// and sequence number of an earlier page.
    events: u64,
    /// Whether some of its definitions could not be read.
    definitions_unreadable: bool,
    /// Whether it has counters of streams whose slots are lost.
    slots_are_lost: bool,
    /// Whether the live file is cut off.
    is_cut: bool,
}

/// Information of a live file about streams that were open.
#[derive(Default)]
struct OpenStreams {
    streams: BTreeMap<StreamId, LiveStream>,
    /// For pages, by stream and sequence number: how many committed events could not be decoded from their rows.
    undecoded: BTreeMap<(StreamId, u64), u64>,
}

impl Recording {
    /// Reads everything about a recording but its events: the footer when there is one, else the
    /// blocks' heads; and the live file when the process did not end properly. A process that is
    /// still recording is read as it is now; read the live file first, then the recording.
    ///
    /// `is_alive` returns whether the process that a live header names still runs.
    ///
    /// # Errors
    /// If the storage fails or the file header is invalid; damage after the header is noted in
    /// [`Recording::problems`].
    pub fn read(
        file: &dyn ReadAt,
        live: Option<LiveImage>,
        is_alive: impl Fn(&LiveHeader) -> bool,
    ) -> Result<Self> {
        let header = read_file_header(file)?;
        let mut recording = Self {
            header,
            definitions: Arc::default(),
            streams: BTreeMap::new(),
            ended: Ended::Truncated,
            has_footer: false,
            last_reference_ns: None,
            end_error_ns: UNBOUNDED,
            problems: Vec::new(),
            tail_footer: None,
            cut_at: None,
            footer_without_tail: None,
            live_loss: LiveLoss::default(),
            pages: Vec::new(),
            overwritten: BTreeMap::new(),
            schema: Schema::default(),
        };
        let limits = FileLimits::of(file)?;
        let mut totals: BTreeMap<StreamId, StreamTotals> = BTreeMap::new();
        let mut chunks: BTreeMap<(StreamId, u64), StoredChunk> = BTreeMap::new();
        match read_footer(file, &limits)? {
            Ok(footer) => {
                recording.tail_footer = footer_offset(file)?;
                recording.take_footer(footer, &mut totals, &mut chunks);
            }
            Err(tail) => {
                recording.scan_blocks(file, &limits, tail, &mut totals, &mut chunks)?;
            }
        }
        let mut open = OpenStreams::default();
        if let Some(live) = live.filter(|_| !recording.has_footer) {
            recording.take_live(file, live, &is_alive, &mut chunks, &mut open);
        }
        Arc::make_mut(&mut recording.definitions).tidy();
        recording.assemble_streams(chunks, totals, open);
        Ok(recording)
    }

    /// Checks the rest of a file with a whole footer, which [`Recording::read`] did not read: definitions and indexes
    /// that the footer repeats. Returns the damage there; it costs no data.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn check_rest(&self, file: &dyn ReadAt) -> Result<Vec<Problem>> {
        let Some(footer) = self.tail_footer else {
            return Ok(Vec::new());
        };
        let chunks = self.streams.values().flat_map(|stream| &stream.chunks);
        let in_file = chunks.filter_map(|chunk| match chunk.place {
            ChunkPlace::Block(offset) => Some(offset),
            _ => None,
        });
        check_rest(file, &self.header, footer, &in_file.collect())
    }

    /// Returns the damage of the file: [`Recording::problems`] without the block that is cut off by the file's end,
    /// which a kill leaves.
    pub fn damage(&self) -> impl Iterator<Item = &Problem> {
        let problems = self.problems.iter();
        problems.filter(|problem| Some(problem.offset) != self.cut_at)
    }

    /// Describes what could not be read of the recording and its live file, and a [recovery](Recording::recover) would
    /// leave out. `None` means that nothing is missing, which the counters prove: every event that was raised is here,
    /// or was dropped or suppressed.
    pub fn describe_missing(&self) -> Option<String> {
        let rows = || {
            let streams = self.streams.values();
            streams.flat_map(|contents| &contents.totals.rows)
        };
        let skipped = sum(rows().map(|row| row.skipped.saturating_add(row.truncated)));
        if skipped.max(self.live_loss.events) != 0 {
            let events = skipped.max(self.live_loss.events);
            return Some(format!("{events} events that cannot be read"));
        }
        if self.live_loss.is_cut {
            return Some("no end: parts of the live file are missing".to_owned());
        }
        if self.live_loss.definitions_unreadable {
            return Some("definitions that cannot be read".to_owned());
        }
        if self.live_loss.slots_are_lost || rows().any(|row| row.raised_is_lower_bound) {
            return Some("counters that cannot be read".to_owned());
        }
        let is_wrong = rows().any(|row| !row.is_balanced());
        is_wrong.then(|| "counters that contradict each other".to_owned())
    }

    /// Returns whether some of its events are in a live file only. [`Recording::load`] needs the definitions of their
    /// streams, sources and clocks.
    pub const fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    fn problem(&mut self, offset: u64, length: u64, error: &FormatError) {
        self.problems
            .push(Problem::unreadable(offset, length, error));
    }

    /// Takes over the definitions, totals and chunks that a footer contains.
    fn take_footer(
        &mut self,
        found: FoundFooter,
        totals: &mut BTreeMap<StreamId, StreamTotals>,
        chunks: &mut BTreeMap<(StreamId, u64), StoredChunk>,
    ) {
        if let Err(error) = found.all_definitions {
            self.problem(0, 0, &error);
        }
        let footer = found.footer;
        self.has_footer = true;
        self.definitions = Arc::new(footer.definitions);
        let end = self.definitions.process_ends.get(&ProcessId::new(0));
        self.ended = end.map_or(Ended::Finished, |end| end.ended);
        self.last_reference_ns = end.map(|end| end.end_ns);
        self.end_error_ns = end.map_or(0, |end| end.end_error_ns);
        totals.extend(footer.totals.into_iter().map(|t| (t.stream, t)));
        for (offset, header) in footer.chunks {
            let place = ChunkPlace::Block(offset);
            let key = (header.stream, header.sequence);
            chunks.entry(key).or_insert(StoredChunk { header, place });
        }
    }

    /// Reads a file without a usable tail: scans its blocks, and takes over the footer if a scan finds one, else the
    /// heads of the chunks, the definitions and the totals. `tail` is why the tail did not lead to a footer.
    fn scan_blocks(
        &mut self,
        file: &dyn ReadAt,
        limits: &FileLimits,
        tail: Option<Problem>,
        totals: &mut BTreeMap<StreamId, StreamTotals>,
        chunks: &mut BTreeMap<(StreamId, u64), StoredChunk>,
    ) -> Result<()> {
        const KINDS: [BlockKind; 6] = [
            BlockKind::Chunk,
            BlockKind::RowChunk,
            BlockKind::Definitions,
            BlockKind::Totals,
            BlockKind::Index,
            BlockKind::Footer,
        ];
        let scanned = scan(file, &self.header, limits, &KINDS, &mut self.problems)?;
        self.cut_at = scanned.cut_at;
        let blocks = scanned.blocks;
        let footer = find_footer(file, &blocks, limits, &mut self.problems);
        note_tail(file, tail, footer.is_some(), &mut self.problems)?;
        if let Some(footer) = footer {
            let last = blocks
                .last()
                .filter(|block| block.header.kind == BlockKind::Footer);
            let last = last.map(|block| (block.offset, block.offset + block.header.block_len()));
            let length = file.len()?;
            self.footer_without_tail = last.filter(|(_, end)| *end == length).map(|last| last.0);
            self.take_footer(footer, totals, chunks);
            return Ok(());
        }
        for block in blocks {
            let length = block.header.block_len();
            let outcome = match block.header.kind {
                BlockKind::Chunk | BlockKind::RowChunk => {
                    decode_with(&block.head, block.offset, ChunkHeader::decode).map(|header| {
                        let place = if block.is_cut {
                            ChunkPlace::Cut
                        } else {
                            ChunkPlace::Block(block.offset)
                        };
                        let key = (header.stream, header.sequence);
                        chunks.entry(key).or_insert(StoredChunk { header, place });
                    })
                }
                BlockKind::Definitions if !block.is_cut => {
                    read_block(file, block.offset).and_then(|(_, _, body)| {
                        Arc::make_mut(&mut self.definitions).add_all_within(&body, limits)
                    })
                }
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

    /// Takes over what the live file has beyond the recording: how the process ended, definitions, pages as chunks,
    /// and the counters of open streams.
    fn take_live(
        &mut self,
        file: &dyn ReadAt,
        live: LiveImage,
        is_alive: &impl Fn(&LiveHeader) -> bool,
        chunks: &mut BTreeMap<(StreamId, u64), StoredChunk>,
        open: &mut OpenStreams,
    ) {
        if live.header.recording_id != self.header.recording_id {
            self.problems.push(Problem::new(
                0,
                0,
                format!(
                    "the live file belongs to recording {}, not to {}: left out",
                    live.header.recording_id, self.header.recording_id
                ),
            ));
            return;
        }
        let missing = live.describe_missing();
        self.ended = if live.state == layout::STATE_STORAGE_FAILED {
            Ended::StorageFailed
        } else if is_alive(&live.header) {
            Ended::Running
        } else if missing.is_some() {
            Ended::Truncated
        } else {
            Ended::Killed
        };
        // The program that waited for the process has noted when it ended.
        let noted = self.definitions.process_ends.get(&ProcessId::new(0));
        let noted = noted.filter(|_| self.ended != Ended::Running);
        (self.last_reference_ns, self.end_error_ns) = match noted {
            Some(end) => (Some(end.end_ns), end.end_error_ns),
            None => (Some(live.heartbeat_ns), layout::LONGEST_HEARTBEAT_NS),
        };
        if let Some(what) = missing {
            self.live_loss.is_cut = true;
            self.problems.push(Problem::new(0, 0, what));
        }
        if let Err(error) = Arc::make_mut(&mut self.definitions).add_all(&live.definitions) {
            self.live_loss.definitions_unreadable = true;
            self.problem(0, 0, &error);
        }
        self.define_open_streams(&live);
        live_regions::define(Arc::make_mut(&mut self.definitions), &live);
        self.schema = self.definitions.schema();
        for page in live.pages {
            let key = (page.stream, page.sequence);
            match chunks.get(&key).map(|chunk| chunk.place) {
                // The recorder was killed after it wrote the chunk and before it freed the page.
                Some(ChunkPlace::Block(offset)) if check_block(file, offset).is_ok() => continue,
                Some(ChunkPlace::Live(_)) => {
                    self.live_loss.events += u64::from(page.event_count);
                    continue;
                }
                _ => {}
            }
            let (mut header, _, outcome) = self.build_page(&page);
            let undecoded = u64::from(page.event_count).saturating_sub(header.event_count);
            if let Err(error) = outcome {
                self.problem(page.offset, page.rows.len() as u64, &error);
            } else if undecoded != 0 {
                self.problems.push(Problem::new(
                    page.offset,
                    page.rows.len() as u64,
                    format!("{undecoded} committed events are not in the page's rows"),
                ));
            }
            if undecoded != 0 {
                self.live_loss.events += undecoded;
                open.undecoded.insert(key, undecoded);
            }
            header.before = page.before;
            let place = ChunkPlace::Live(self.pages.len());
            chunks.insert(key, StoredChunk { header, place });
            self.pages.push(page);
        }
        let streams = live.streams.into_iter().filter(|open| !open.lacks_counters);
        open.streams.extend(streams.map(|s| (s.stream, s)));
        let definitions = &self.definitions;
        let streams = definitions.streams.values();
        let placed: BTreeSet<_> = streams.filter_map(|stream| stream.location).collect();
        let mut threads = definitions.locations.values();
        // A thread is defined with its stream; where nothing can be read of the definitions, nothing is known of slots either.
        let has_lost_thread =
            threads.any(|of| of.kind == LocationKind::Thread && !placed.contains(&of.id));
        self.live_loss.slots_are_lost = self.ended != Ended::Running
            && (live.unnamed_segments != 0
                || self.live_loss.definitions_unreadable
                || has_lost_thread);
    }

    /// Defines streams that were opened so recently that their only definition is in their slots.
    fn define_open_streams(&mut self, live: &LiveImage) {
        let process = ProcessId::new(0);
        for open in &live.streams {
            if self.definitions.streams.contains_key(&open.stream) {
                continue;
            }
            if let Some(id) = open.location
                && !self.definitions.locations.contains_key(&id)
            {
                let known = self.definitions.strings.iter();
                let known = known.into_iter().find(|(_, text)| **text == open.name);
                let name = known.map(|(id, _)| *id).unwrap_or_else(|| {
                    let last = self.definitions.strings.keys().next_back();
                    let id = StringId::new(last.map_or(0, |id| id.get().saturating_add(1)));
                    let string = Definition::String(id, open.name.clone());
                    Arc::make_mut(&mut self.definitions).add(string);
                    id
                });
                Arc::make_mut(&mut self.definitions).add(Definition::Location(Location {
                    id,
                    process,
                    name,
                    kind: LocationKind::Thread,
                    system_id: open.system_id,
                }));
            }
            Arc::make_mut(&mut self.definitions).add(Definition::Stream(Stream {
                id: open.stream,
                source: open.source,
                location: open.location,
            }));
        }
    }

    /// Decodes the rows of a page and returns the head and body of the chunk that they make. The result contains the
    /// number of events, or the damage at which the decoding stopped: the chunk then has the events before it.
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
        // The recorder was alive then, and the page was open.
        let last_ns = self.last_reference_ns.unwrap_or(page.open_reference_ns);
        header.close_reference_ns = last_ns.max(page.open_reference_ns);
        (header, chunk, outcome)
    }

    /// Fills in the streams: groups the chunks by stream, and computes each stream's totals and losses.
    fn assemble_streams(
        &mut self,
        chunks: BTreeMap<(StreamId, u64), StoredChunk>,
        mut totals: BTreeMap<StreamId, StreamTotals>,
        mut open: OpenStreams,
    ) {
        let mut by_stream: BTreeMap<StreamId, Vec<StoredChunk>> = BTreeMap::new();
        for id in self.definitions.streams.keys() {
            by_stream.entry(*id).or_default();
        }
        for id in totals.keys().chain(open.streams.keys()) {
            by_stream.entry(*id).or_default();
        }
        for ((stream, _), chunk) in chunks {
            by_stream.entry(stream).or_default().push(chunk);
        }
        for (stream, mut chunks) in by_stream {
            chunks.shrink_to_fit();
            let known = totals.remove(&stream);
            let live = open.streams.remove(&stream);
            let undecoded = chunks.iter().map(|chunk| {
                let header = &chunk.header;
                let undecoded = open.undecoded.get(&(header.stream, header.sequence));
                undecoded.copied().unwrap_or(0)
            });
            let parts = FoundStream {
                stream,
                undecoded: undecoded.collect(),
                chunks,
                ended: self.ended,
            };
            let open_tick = live.as_ref().map(|live| live.open_tick);
            let mut contents = parts.assemble(known, live);
            if let Some(open_tick) = open_tick {
                self.note_overwritten(&mut contents, open_tick);
            }
            self.streams.insert(stream, Box::new(contents));
        }
        self.add_unknown_stream();
    }

    /// Adds an undefined stream of unknown counts if there may be streams of which nothing is left: without it, what the
    /// others count would read as all that was raised.
    fn add_unknown_stream(&mut self) {
        let contents = || self.streams.values();
        let is_known = |row: &TypeTotals| !row.raised_is_lower_bound;
        let all_are_known = contents().all(|contents| contents.totals.rows.iter().all(is_known));
        let is_cut = self.ended == Ended::Truncated && all_are_known;
        // A file in which nothing is defined is no recording of a process.
        let is_empty = self.streams.is_empty()
            && self.definitions.processes.is_empty()
            && !self.live_loss.definitions_unreadable;
        if is_empty || !is_cut && !self.live_loss.slots_are_lost {
            return;
        }
        let last = self.streams.keys().next_back();
        let Some(number) = last.map_or(Some(0), |last| last.get().checked_add(1)) else {
            return;
        };
        let stream = StreamId::new(number);
        let parts = FoundStream {
            stream,
            chunks: Vec::new(),
            undecoded: Vec::new(),
            ended: self.ended,
        };
        let contents = parts.assemble(None, None);
        self.streams.insert(stream, Box::new(contents));
    }

    /// Adds dropped records about what a stream overwrote before its first chunk, if that chunk is a page of the live
    /// file. `open_tick` is the tick at which the stream was opened.
    fn note_overwritten(&mut self, contents: &mut StreamContents, open_tick: u64) {
        let Some(first) = contents.chunks.first_mut() else {
            return;
        };
        let ChunkPlace::Live(page) = first.place else {
            return;
        };
        if first.header.event_count == 0 {
            return;
        }
        let rows = contents.totals.rows.iter();
        let counts = rows.map(|row| (row.event_type, row.dropped.of(Cause::Overwritten)));
        let records =
            counts.filter(|(event_type, count)| *count != 0 && *event_type != ANY_EVENT_TYPE);
        let records = records.map(|(event_type, count)| DroppedRecord {
            event_type: Some(event_type),
            cause: Cause::Overwritten,
            is_lower_bound: false,
            count,
            cumulative: count,
            from_tick: open_tick,
            to_tick: first.header.first_tick,
        });
        let records: Vec<DroppedRecord> = records.collect();
        let count = sum(records.iter().map(|record| record.count));
        first.header.dropped_count = first.header.dropped_count.saturating_add(count);
        if !records.is_empty() {
            self.overwritten.insert(page, records);
        }
    }

    /// Returns how many bytes the body of a chunk has, decompressed; `None` for one that is in no block of the file.
    /// `file` is the one the recording was read from.
    ///
    /// # Errors
    /// If the block cannot be read or its header is damaged.
    pub fn body_len(&self, file: &dyn ReadAt, chunk: &StoredChunk) -> Result<Option<u64>> {
        let ChunkPlace::Block(offset) = chunk.place else {
            return Ok(None);
        };
        let header = read_block_header(file, offset)?;
        Ok(Some(header.raw_len.into()))
    }

    /// Decodes the events of a chunk. `file` is the one the recording was read from.
    ///
    /// # Errors
    /// If the chunk cannot be read, is damaged, or is beyond the end of the file.
    pub fn load(&self, file: &dyn ReadAt, chunk: &StoredChunk) -> Result<Chunk> {
        match chunk.place {
            ChunkPlace::Block(offset) => {
                // Readers rely on the index: a head that differs from it is damage. The body is not read then: an index
                // may name one large block many times.
                let (block, head) = read_block_head(file, offset)?;
                let header = decode_with(&head, offset, ChunkHeader::decode)?;
                let is_chunk = matches!(block.kind, BlockKind::Chunk | BlockKind::RowChunk);
                if !is_chunk || header != chunk.header {
                    return Err(FormatError::Invalid {
                        offset,
                        expected: "the chunk that the index names",
                        found: format!("chunk {} of {:?}", header.sequence, header.stream),
                    });
                }
                let body = read_body(file, offset, &block)?;
                let max_items = Content::max_items(block.body_len as usize);
                let chunk = match block.kind {
                    BlockKind::RowChunk => read_row_chunk(&header, &body, max_items),
                    _ => Chunk::decode_within(&header, &body, max_items),
                };
                let chunk = chunk.and_then(|chunk| {
                    block.check_content(chunk.content())?;
                    Ok(chunk)
                });
                chunk.map_err(|error| error.shifted(offset))
            }
            ChunkPlace::Cut => Err(FormatError::UnexpectedEnd {
                offset: file.len()?,
                expected: "the rest of a chunk",
            }),
            ChunkPlace::Live(index) => {
                let (_, mut chunk, _) = self.build_page(&self.pages[index]);
                let overwritten = self.overwritten.get(&index).into_iter().flatten();
                let overwritten = overwritten.map(|record| (0, *record));
                chunk.dropped.splice(0..0, overwritten);
                Ok(chunk)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{FILE_HEADER_LEN, FileKind};
    use crate::definitions::{Definition, ProcessEnd};
    use crate::testing::{FileMaker, LiveMaker, STREAM, chunk, rows, ty};

    fn file(chunks: impl IntoIterator<Item = (ChunkHeader, Chunk)>) -> Vec<u8> {
        let mut file = FileMaker::new(FileKind::Recording);
        for chunk in chunks {
            file.chunk(chunk);
        }
        file.bytes
    }

    fn read_as(file: &[u8], live: Option<&LiveMaker>, is_alive: bool) -> Recording {
        let live = live.map(LiveMaker::image);
        Recording::read(&file.to_vec(), live, |_| is_alive).unwrap()
    }

    /// Returns stream 0 of a file and the live file of a killed process.
    fn killed(file: &[u8], live: &LiveMaker) -> Box<StreamContents> {
        read_as(file, Some(live), false)
            .streams
            .remove(&STREAM)
            .unwrap()
    }

    /// Returns losses as (event type, count, place).
    fn lost(contents: &StreamContents) -> Vec<(Option<u32>, u64, usize)> {
        let each = contents.losses.iter().map(|loss| {
            let event_type = loss.event_type.map(EventTypeId::get);
            (event_type, loss.count, loss.before_chunk)
        });
        each.collect()
    }

    /// Returns the row of an event type as (raised, recorded, skipped).
    fn row(contents: &StreamContents, event_type: EventTypeId) -> (u64, u64, u64) {
        let row = contents.totals.get(event_type).unwrap();
        (row.raised, row.recorded, row.skipped)
    }

    fn is_balanced(contents: &StreamContents) -> bool {
        contents.totals.rows.iter().all(TypeTotals::is_balanced)
    }

    #[test]
    fn what_was_handed_on_and_is_nowhere_is_skipped_by_type() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 5);
        live.raised(0, 0, 3);
        live.raised(0, 1, 2);
        let contents = killed(&file([chunk(0, 0, &[0, 1])]), &live);
        assert_eq!(lost(&contents), [(Some(0), 2, 1), (Some(1), 1, 1)]);
        assert_eq!(row(&contents, ty(0)), (3, 3, 2));
        assert_eq!(row(&contents, ty(1)), (2, 2, 1));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn pages_of_a_live_file_that_is_cut_off_are_read_and_the_rest_is_truncated() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 0, 4);
        let rows = rows(&[0, 0]);
        live.page(0, (0, 0), 2, &rows);
        let second = live.page(1, (1, 2), 2, &rows);
        live.bytes.truncate(second);
        let recording = read_as(&file([]), Some(&live), false);
        assert_eq!(recording.ended, Ended::Truncated);
        assert_eq!(recording.streams[&STREAM].chunks.len(), 1);
        let problem = recording.problems.first().unwrap();
        assert!(problem.what.contains("cut off"), "{}", problem.what);
        assert!(recording.describe_missing().is_some());
    }

    #[test]
    fn a_stream_whose_only_chunk_is_lost_has_lost_all_it_handed_on() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 3);
        live.raised(0, 2, 3);
        let contents = killed(&file([]), &live);
        assert_eq!(lost(&contents), [(Some(2), 3, 0)]);
        assert_eq!(row(&contents, ty(2)), (3, 3, 3));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn the_event_in_flight_is_not_taken_for_a_lost_one() {
        let mut live = LiveMaker::new();
        let slot = live.slot(0, 0, 3);
        live.word(slot + layout::SLOT_BUSY, 2);
        live.raised(0, 0, 3);
        live.raised(0, 1, 1);
        let contents = killed(&file([]), &live);
        assert_eq!(lost(&contents), [(Some(0), 3, 0)]);
        assert_eq!(row(&contents, ty(0)), (3, 3, 3));
        assert_eq!(row(&contents, ty(1)), (0, 0, 0));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn what_was_raised_and_is_nowhere_is_skipped() {
        // Raised, but neither in a page nor handed on.
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 0, 3);
        let contents = killed(&file([]), &live);
        assert_eq!(lost(&contents), [(Some(0), 3, 0)]);
        assert_eq!(row(&contents, ty(0)), (3, 3, 3));
        assert!(is_balanced(&contents));
        // Two events are missing in pages that were handed on, and the counters miss four.
        live.slot(0, 0, 2);
        live.raised(0, 1, 1);
        let contents = killed(&file([]), &live);
        let count: u64 = contents.losses.iter().map(|loss| loss.count).sum();
        assert_eq!(count, 4);
        assert_eq!(row(&contents, ty(0)), (3, 3, 3));
        assert_eq!(row(&contents, ty(1)), (1, 1, 1));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn counters_that_are_lost_leave_unknown_counts() {
        // Two events are present, and the counters say one.
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.page(0, (0, 0), 2, &rows(&[0, 0]));
        live.raised(0, 0, 1);
        let contents = killed(&file([]), &live);
        assert_eq!(row(&contents, ty(0)), (2, 2, 0));
        let any = contents.totals.get(ANY_EVENT_TYPE).unwrap();
        assert!(any.raised_is_lower_bound);
        let last = contents.losses.last().unwrap();
        assert!(last.is_lower_bound && last.cause == Cause::Skipped);
        // The slot counted drops that no counter has.
        let mut live = LiveMaker::new();
        let slot = live.slot(0, 0, 0);
        live.page(0, (0, 0), 1, &rows(&[0]));
        live.raised(0, 0, 1);
        live.word(slot + layout::SLOT_LOST, 5);
        let recording = read_as(&file([]), Some(&live), false);
        assert!(recording.describe_missing().is_some());
        // Counters without a slot: of which stream is not known.
        let mut live = LiveMaker::new();
        live.slot(0, 0, 1);
        let second = live.slot(1, 1, 0);
        live.page(0, (0, 0), 1, &rows(&[0]));
        live.raised(0, 0, 1);
        assert_eq!(
            read_as(&file([]), Some(&live), false).describe_missing(),
            None
        );
        live.word(second + layout::SLOT_SEGMENTS, 0);
        live.raised(1, 3, 7);
        let recording = read_as(&file([]), Some(&live), false);
        assert!(recording.describe_missing().is_some());
        let (_, unknown) = recording.streams.iter().next_back().unwrap();
        assert!(unknown.totals.rows[0].raised_is_lower_bound);
    }

    #[test]
    fn counters_that_cannot_be_true_are_not_corrected() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.slot(1, 1, 0);
        let counters = live.raised(0, 0, 5);
        let dropped = |cause: Cause| layout::ROW_DROPPED + 8 * usize::from(cause.code());
        live.word(counters + dropped(Cause::ReportedBySource), 1 << 38);
        let recording = read_as(&file([]), Some(&live), false);
        let row = recording.streams[&STREAM].totals.get(ty(0)).unwrap();
        assert_eq!((row.raised, row.dropped_sum()), (5, 1 << 38));
        assert!(!row.is_balanced());
        let what = recording.describe_missing().unwrap();
        assert!(what.contains("contradict"), "{what}");
    }

    #[test]
    fn rows_that_are_zeros_are_damage() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 0, 2);
        live.page(0, (0, 0), 2, &[rows(&[0]), vec![0; 64]].concat());
        let recording = read_as(&file([]), Some(&live), false);
        assert_eq!(recording.problems.len(), 1);
        assert_eq!(lost(&recording.streams[&STREAM]), [(Some(0), 1, 1)]);
    }

    #[test]
    fn lost_events_without_counters_are_of_any_type() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 4);
        let contents = killed(&file([]), &live);
        // There may be more: the counters are lost.
        assert_eq!(lost(&contents), [(None, 4, 0), (None, 0, 0)]);
        assert_eq!(row(&contents, ANY_EVENT_TYPE), (4, 4, 4));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn a_running_process_balances_at_the_moment_of_the_reading() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 2);
        live.page(0, (1, 2), 1, &rows(&[1]));
        // Events are raised after the pages were read, and chunks are written after the counters
        // were read.
        live.raised(0, 1, 9);
        let file = file([chunk(0, 0, &[0, 0])]);
        let mut recording = read_as(&file, Some(&live), true);
        assert_eq!(recording.ended, Ended::Running);
        let contents = recording.streams.remove(&STREAM).unwrap();
        assert!(contents.losses.is_empty());
        assert_eq!(row(&contents, ty(0)), (2, 2, 0));
        assert_eq!(row(&contents, ty(1)), (1, 1, 0));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn a_running_process_hides_no_damage() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 5);
        live.raised(0, 0, 9);
        let file = file([chunk(0, 0, &[0, 0])]);
        let mut recording = read_as(&file, Some(&live), true);
        let contents = recording.streams.remove(&STREAM).unwrap();
        assert_eq!(lost(&contents), [(None, 3, 1)]);
        assert_eq!(row(&contents, ty(0)), (2, 2, 0));
        assert_eq!(row(&contents, ANY_EVENT_TYPE), (3, 3, 3));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn a_shared_row_takes_back_all_that_were_in_flight() {
        let mut live = LiveMaker::new();
        let slot = live.slot(0, 0, 0);
        live.bytes[slot + layout::SLOT_IS_SHARED] = 1;
        let counters = live.raised(0, 0, 5);
        live.word(counters + layout::ROW_DROPPED, 3);
        let contents = killed(&file([]), &live);
        assert_eq!(row(&contents, ty(0)), (3, 0, 0));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn committed_events_that_a_page_does_not_give_are_skipped() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 0, 3);
        // The second of three events is of an undefined type.
        live.page(0, (0, 0), 3, &rows(&[0, 9, 0]));
        let mut recording = read_as(&file([]), Some(&live), false);
        assert_eq!(recording.problems.len(), 1);
        let contents = recording.streams.remove(&STREAM).unwrap();
        assert_eq!(lost(&contents), [(Some(0), 2, 1)]);
        assert_eq!(row(&contents, ty(0)), (3, 3, 2));
        assert!(is_balanced(&contents));
        // Also when rows are missing without a trace.
        live.page(0, (0, 0), 3, &rows(&[0]));
        let mut recording = read_as(&file([]), Some(&live), false);
        assert_eq!(recording.problems.len(), 1);
        let contents = recording.streams.remove(&STREAM).unwrap();
        assert_eq!(lost(&contents), [(Some(0), 2, 1)]);
        assert!(is_balanced(&contents));
    }

    #[test]
    fn a_damaged_page_between_others_is_counted_once() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 3);
        live.raised(0, 0, 4);
        live.page(0, (0, 0), 3, &rows(&[0, 9, 0]));
        live.page(1, (1, 3), 1, &rows(&[0]));
        let contents = killed(&file([]), &live);
        assert_eq!(lost(&contents), [(Some(0), 2, 1)]);
        assert_eq!(row(&contents, ty(0)), (4, 4, 2));
        assert!(is_balanced(&contents));
    }

    #[test]
    fn drops_before_a_chunk_opened_are_counted_once() {
        // The record in front of the second chunk's first event counts what its head counts as dropped before.
        let (first, mut second) = (chunk(0, 0, &[0]), chunk(1, 1, &[1]));
        let record = DroppedRecord {
            event_type: Some(ty(0)),
            cause: Cause::BufferFull,
            is_lower_bound: false,
            count: 804,
            cumulative: 804,
            from_tick: 0,
            to_tick: 100,
        };
        second.1.dropped.push((0, record));
        (second.0.dropped_count, second.0.before.dropped) = (804, 804);
        let recording = read_as(&file([first, second]), None, false);
        let totals = &recording.streams[&STREAM].totals;
        let dropped = totals.get(ANY_EVENT_TYPE).unwrap().dropped_sum();
        assert_eq!(dropped, 804);
    }

    #[test]
    fn a_tail_that_points_beyond_the_file_is_reported_and_the_blocks_are_scanned() {
        let mut maker = FileMaker::new(FileKind::Recording);
        let starts = [0, 1, 2].map(|n| maker.chunk(chunk(n, n, &[0])));
        maker.totals(&[(0, 3)]);
        maker.finish();
        // So much is missing that the footer is beyond the end.
        let bytes = [&maker.bytes[..starts[0]], &maker.bytes[starts[2]..]].concat();
        let recording = read_as(&bytes, None, false);
        assert!(recording.has_footer, "the scan finds it");
        assert_eq!(recording.problems.len(), 1, "{:?}", recording.problems);
        assert!(recording.check_rest(&bytes).unwrap().is_empty());
        let contents = &recording.streams[&STREAM];
        let loaded = contents.chunks.iter();
        let loaded = loaded.filter(|chunk| recording.load(&bytes, chunk).is_ok());
        assert_eq!(loaded.count(), 1);
    }

    #[test]
    fn a_footer_that_names_a_wrong_index_block_is_reported() {
        let mut maker = FileMaker::new(FileKind::Recording);
        maker.chunk(chunk(0, 0, &[0]));
        maker.chunk(chunk(1, 1, &[0]));
        maker.index_block();
        maker.totals(&[(0, 2)]);
        maker.move_index_blocks(8);
        maker.finish();
        let recording = read_as(&maker.bytes, None, false);
        assert!(recording.has_footer);
        assert_eq!(recording.streams[&STREAM].chunks.len(), 2);
        assert_eq!(recording.problems.len(), 1);
    }

    #[test]
    fn a_page_takes_the_place_of_a_chunk_whose_body_is_damaged() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 2);
        live.raised(0, 0, 2);
        live.page(0, (0, 0), 2, &rows(&[0, 0]));
        let mut maker = FileMaker::new(FileKind::Recording);
        let at = maker.chunk(chunk(0, 0, &[0, 0]));
        let end = maker.bytes.len();
        assert!(at < end);
        maker.bytes[end - 1] ^= 1;
        let contents = killed(&maker.bytes, &live);
        assert_eq!(contents.chunks[0].place, ChunkPlace::Live(0));
        assert!(contents.losses.is_empty());
    }

    #[test]
    fn a_chunk_with_fewer_events_than_its_successor_knows_of_is_a_gap() {
        let recording = read_as(&file([chunk(0, 0, &[0]), chunk(1, 3, &[1])]), None, false);
        let contents = &recording.streams[&STREAM];
        assert_eq!(lost(contents)[0], (None, 2, 1));
        assert_eq!(row(contents, ANY_EVENT_TYPE), (2, 2, 2));
    }

    #[test]
    fn a_gap_names_no_type_that_lost_nothing() {
        let (mut header, events) = chunk(3, 4, &[0]);
        header.predecessor_counts = vec![(ty(0), 3), (ty(1), 0), (ty(2), 5)];
        let recording = read_as(&file([(header, events)]), None, false);
        let contents = &recording.streams[&STREAM];
        assert_eq!(lost(contents)[..2], [(Some(0), 3, 0), (Some(2), 1, 0)]);
        assert_eq!(contents.losses.len(), 3, "and the open end");
    }

    #[test]
    fn a_missing_chunk_of_unknown_content_is_still_a_gap() {
        let recording = read_as(&file([chunk(0, 0, &[0]), chunk(2, 1, &[0])]), None, false);
        let contents = &recording.streams[&STREAM];
        assert_eq!(lost(contents)[0], (None, 0, 1));
        // Also when totals say that no event is missing.
        let mut file = FileMaker::new(FileKind::Recording);
        file.chunk(chunk(0, 0, &[0]));
        file.chunk(chunk(2, 1, &[0]));
        file.totals(&[(0, 2)]);
        let contents = &read_as(&file.bytes, None, false).streams[&STREAM];
        assert_eq!(lost(contents), [(None, 0, 1)]);
    }

    #[test]
    fn counts_beyond_64_bits_saturate() {
        let mut heads = [
            chunk(1, u64::MAX, &[0]),
            chunk(2, 0, &[0]),
            chunk(4, u64::MAX, &[]),
        ];
        for (header, _) in &mut heads {
            header.inversions = u64::MAX;
            header.before.dropped = u64::MAX;
            header.predecessor_counts = vec![(ty(0), u64::MAX)];
        }
        let bytes = file(heads);
        let recording = read_as(&bytes, None, false);
        let contents = &recording.streams[&STREAM];
        assert_eq!(contents.totals.inversions, u64::MAX);
        assert_eq!(row(contents, ty(0)).1, u64::MAX);
        let mut live = LiveMaker::new();
        live.slot(0, 0, u64::MAX);
        let counters = live.raised(0, 0, u64::MAX);
        live.word(counters + layout::ROW_SUPPRESSED, u64::MAX);
        live.page(0, (7, u64::MAX), u32::MAX.into(), &rows(&[0, 9]));
        killed(&bytes, &live);
        let mut file = FileMaker::new(FileKind::Recording);
        file.totals(&[(0, u64::MAX), (1, u64::MAX)]);
        let contents = &read_as(&file.bytes, None, false).streams[&STREAM];
        assert_eq!(row(contents, ty(1)).2, u64::MAX);
    }

    #[test]
    fn a_footer_without_its_tail_is_a_footer() {
        let mut maker = FileMaker::new(FileKind::Recording);
        maker.chunk(chunk(0, 0, &[0]));
        maker.totals(&[(0, 1)]);
        maker.footer();
        for tail in [&[][..], &[0; 10], &[0; 24], &[7; 100]] {
            let bytes = [&maker.bytes, tail].concat();
            let recording = read_as(&bytes, None, false);
            assert!(recording.has_footer);
            assert_eq!(recording.ended, Ended::Finished);
            assert!(recording.streams[&STREAM].losses.is_empty());
            assert_eq!(recording.problems.len(), 1, "{:?}", recording.problems);
        }
    }

    #[test]
    fn a_footer_that_does_not_name_every_chunk_is_not_the_files() {
        let mut maker = FileMaker::new(FileKind::Recording);
        maker.footer();
        maker.chunk(chunk(0, 0, &[0]));
        let recording = read_as(&maker.bytes, None, false);
        assert!(!recording.has_footer);
        assert_eq!(recording.streams[&STREAM].chunks.len(), 1);
    }

    #[test]
    fn a_footer_serves_when_a_block_before_it_is_missing_or_stands_twice() {
        let mut maker = FileMaker::new(FileKind::Recording);
        let definitions_len = maker.bytes.len() - FILE_HEADER_LEN;
        let starts = [0, 1, 2].map(|n| maker.chunk(chunk(n, n, &[0])));
        let end = maker.totals(&[(0, 3)]);
        maker.finish();
        let bytes = maker.bytes;
        let without = |from: usize, to: usize| [&bytes[..from], &bytes[to..]].concat();
        let check = |bytes: &[u8], readable: usize| {
            let bytes = bytes.to_vec();
            let recording = Recording::read(&bytes, None, |_| false).unwrap();
            assert!(recording.has_footer);
            let chunks = &recording.streams[&STREAM].chunks;
            let loaded = chunks
                .iter()
                .filter(|chunk| recording.load(&bytes, chunk).is_ok());
            assert_eq!((chunks.len(), loaded.count()), (3, readable));
        };
        check(&bytes, 3);
        check(
            &without(FILE_HEADER_LEN, FILE_HEADER_LEN + definitions_len),
            3,
        );
        check(&without(starts[0], starts[1]), 2);
        check(&without(starts[2], end), 2);
        let twice = [&bytes[..starts[1]], &bytes[starts[0]..]].concat();
        check(&twice, 3);
    }

    #[test]
    fn the_footer_says_how_the_process_ended() {
        for ended in [Ended::Killed, Ended::StorageFailed, Ended::Finished] {
            let mut maker = FileMaker::new(FileKind::Recording);
            maker.define_in_footer(Definition::ProcessEnd(ProcessEnd {
                process: ProcessId::new(0),
                ended,
                start_ns: 0,
                end_ns: 0,
                end_error_ns: 0,
            }));
            maker.finish();
            assert_eq!(read_as(&maker.bytes, None, false).ended, ended);
        }
    }

    #[test]
    fn a_chunk_that_lost_its_middle_costs_only_itself() {
        let mut maker = FileMaker::new(FileKind::Recording);
        maker.chunk(chunk(0, 0, &[0]));
        let mut long = chunk(1, 1, &[1; 5000]);
        long.1
            .ticks
            .iter_mut()
            .enumerate()
            .for_each(|(n, tick)| *tick += (n * n) as u64);
        let at = maker.chunk(long);
        maker.bytes.truncate(at + 200);
        maker.chunk(chunk(2, 5001, &[0]));
        let recording = read_as(&maker.bytes, None, false);
        let contents = &recording.streams[&STREAM];
        let places: Vec<bool> = contents
            .chunks
            .iter()
            .map(|chunk| chunk.place == ChunkPlace::Cut)
            .collect();
        assert_eq!(places, [false, true, false]);
        assert_eq!(contents.chunks[1].header.event_count, 5000);
        assert!(recording.load(&maker.bytes, &contents.chunks[1]).is_err());
        assert!(recording.load(&maker.bytes, &contents.chunks[2]).is_ok());
    }

    #[test]
    fn of_two_pages_of_one_chunk_the_first_counts() {
        let mut live = LiveMaker::new();
        live.slot(0, 0, 0);
        live.raised(0, 0, 1);
        live.page(0, (0, 0), 1, &rows(&[0]));
        live.page(1, (0, 0), 2, &rows(&[0, 0]));
        let contents = killed(&file([]), &live);
        assert_eq!(contents.chunks.len(), 1);
        assert_eq!(row(&contents, ty(0)), (1, 1, 0));
    }
}
