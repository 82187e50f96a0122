//! A trace as its readers see it.

use crate::block::{BlockKind, FileHeader};
use crate::definitions::Definitions;
use crate::error::{FormatError, Result};
use crate::footer::{Footer, TraceIndexEntry};
use crate::ids::StreamId;
use crate::loss::Cause;
use crate::read::ReadAt;
use crate::scan::{Problem, decode_with, read_block, read_file_header, read_footer, scan};
use crate::totals::StreamTotals;
use crate::trace_chunk::{TraceChunk, TraceChunkHeader, TraceLoss};

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
    /// Whether the file has a whole footer.
    pub has_footer: bool,
    /// Parts of the file that could not be used.
    pub problems: Vec<Problem>,
}

impl Trace {
    /// Reads everything about a trace but its events.
    ///
    /// # Errors
    /// If the storage fails or the file header is not one; damage behind it is noted in
    /// [`Trace::problems`].
    pub fn read(file: &dyn ReadAt) -> Result<Self> {
        let header = read_file_header(file)?;
        let mut trace = Self {
            header,
            definitions: Definitions::default(),
            chunks: Vec::new(),
            totals: Vec::new(),
            losses: Vec::new(),
            has_footer: false,
            problems: Vec::new(),
        };
        if let Some(footer) = read_footer(file)? {
            trace.has_footer = true;
            trace.take_footer(footer);
        } else {
            trace.scan_blocks(file)?;
        }
        Ok(trace)
    }

    fn take_footer(&mut self, footer: Footer) {
        self.definitions = footer.definitions;
        self.chunks = footer.trace_chunks;
        self.totals = footer.totals;
        self.losses = footer.losses;
    }

    fn scan_blocks(&mut self, file: &dyn ReadAt) -> Result<()> {
        let mut expected = 0;
        for block in scan(file, &self.header, &mut self.problems)? {
            let outcome = match block.header.kind {
                BlockKind::Definitions if !block.is_cut => read_block(file, block.offset)
                    .and_then(|(_, _, body)| self.definitions.add_all(&body)),
                BlockKind::TraceChunk => {
                    decode_with(&block.head, block.offset, TraceChunkHeader::decode).map(|head| {
                        if head.sequence != expected {
                            self.problems.push(Problem {
                                offset: block.offset,
                                length: 0,
                                what: format!(
                                    "chunk {expected} expected, found chunk {}",
                                    head.sequence
                                ),
                            });
                        }
                        expected = head.sequence.saturating_add(1);
                        self.count_from_head(&head, block.is_cut);
                        if !block.is_cut {
                            self.chunks.push(TraceIndexEntry::new(block.offset, &head));
                        }
                    })
                }
                _ => Ok(()),
            };
            if let Err(error) = outcome {
                self.problems.push(Problem {
                    offset: block.offset,
                    length: block.header.block_len(),
                    what: error.to_string(),
                });
            }
        }
        for id in self.definitions.streams.keys() {
            if !self.totals.iter().any(|totals| totals.stream == *id) {
                self.totals.push(StreamTotals::new(*id));
            }
        }
        self.totals.sort_by_key(|totals| totals.stream);
        let end_ns = self.definitions.time_zero.map_or(0, |zero| zero.end_ns);
        let last_ns = self.chunks.last().map_or(0, |chunk| chunk.last_ns);
        let truncated = self.totals.iter().map(|totals| TraceLoss {
            stream: totals.stream,
            event_type: None,
            cause: Cause::Truncated,
            count: 0,
            is_lower_bound: true,
            from_ns: last_ns,
            to_ns: end_ns.max(last_ns),
        });
        self.losses.extend(truncated);
        Ok(())
    }

    fn stream_totals(&mut self, stream: StreamId) -> &mut StreamTotals {
        let found = self.totals.iter().position(|t| t.stream == stream);
        let index = found.unwrap_or_else(|| {
            self.totals.push(StreamTotals::new(stream));
            self.totals.len() - 1
        });
        &mut self.totals[index]
    }

    fn count_from_head(&mut self, head: &TraceChunkHeader, is_cut: bool) {
        for (stream, counts) in &head.counts {
            let totals = self.stream_totals(*stream);
            for (event_type, count) in counts {
                let row = totals.row(*event_type);
                row.raised = row.raised.saturating_add(*count);
                row.raised_is_lower_bound = true;
                row.recorded = row.recorded.saturating_add(*count);
                if is_cut {
                    row.truncated = row.truncated.saturating_add(*count);
                }
            }
        }
    }

    /// Decodes the events of a chunk. `file` is the one the trace was read from.
    ///
    /// # Errors
    /// If the chunk cannot be read or is damaged; with the head when that is intact, so that the
    /// loss can be counted.
    pub fn load(
        &self,
        file: &dyn ReadAt,
        entry: &TraceIndexEntry,
    ) -> Result<TraceChunk, (FormatError, Option<TraceChunkHeader>)> {
        let head = read_head_only(file, entry.offset);
        let load = || {
            let (block, head, body) = read_block(file, entry.offset)?;
            if block.kind != BlockKind::TraceChunk {
                return Err(FormatError::Invalid {
                    offset: entry.offset,
                    expected: "a trace chunk",
                    found: format!("{:?}", block.kind),
                });
            }
            let header = decode_with(&head, entry.offset, TraceChunkHeader::decode)?;
            TraceChunk::decode(&header, &body).map_err(|error| error.shifted(entry.offset))
        };
        load().map_err(|error| (error, head))
    }
}

fn read_head_only(file: &dyn ReadAt, offset: u64) -> Option<TraceChunkHeader> {
    use crate::block::{BLOCK_HEADER_LEN, BlockHeader};
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact_at(offset, &mut bytes).ok()?;
    let block = BlockHeader::decode(&bytes).ok()?;
    let mut head = vec![0; block.head_len as usize];
    file.read_exact_at(offset + BLOCK_HEADER_LEN as u64, &mut head)
        .ok()?;
    block.check_head(&head).ok()?;
    decode_with(&head, offset, TraceChunkHeader::decode).ok()
}
