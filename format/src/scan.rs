//! Finding blocks: by the footer when it is whole, else by a scan that steps over damage.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::block::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, FILE_HEADER_LEN, FileHeader, SYNC, TAIL_LEN,
    decode_tail,
};
use crate::chunk::ChunkHeader;
use crate::error::{FormatError, Result};
use crate::file_limits::FileLimits;
use crate::footer::{Footer, IndexEntry, TraceIndexEntry, decode_some_of_index};
use crate::ids::StreamId;
use crate::read::ReadAt;
use crate::snapshot::SnapshotHeader;
use crate::trace_chunk::TraceChunkHeader;
use crate::wire::Wire;

/// A part of a file that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it covers.
    pub length: u64,
    /// The problem.
    pub what: String,
}

impl Problem {
    /// Returns a problem of the bytes from `offset` on.
    pub fn new(offset: u64, length: u64, what: impl Into<String>) -> Self {
        let what = what.into();
        Self {
            offset,
            length,
            what,
        }
    }

    /// Returns the problem that the bytes from `offset` on cannot be read.
    pub fn unreadable(offset: u64, length: u64, error: &FormatError) -> Self {
        Self::new(offset, length, error.message_at(offset))
    }
}

/// Appends a problem, or extends the last one if they are adjacent. Memory use thus depends on the
/// number of damaged places, not of damaged bytes.
fn note(problems: &mut Vec<Problem>, problem: Problem) {
    match problems.last_mut() {
        Some(last) if last.offset.saturating_add(last.length) == problem.offset => {
            last.length = last.length.saturating_add(problem.length);
        }
        _ => problems.push(problem),
    }
}

/// A block that a scan met, its head intact.
#[derive(Clone, Debug)]
pub(crate) struct FoundBlock {
    pub(crate) offset: u64,
    pub(crate) header: BlockHeader,
    /// Of a chunk or a snapshot; of other kinds empty.
    pub(crate) head: Vec<u8>,
    /// The body is not complete: the file ends, or another block starts, within it.
    pub(crate) is_cut: bool,
}

/// A footer as it was read.
pub(crate) struct FoundFooter {
    pub(crate) footer: Footer,
    /// Whether each of its definitions could be read.
    pub(crate) all_definitions: Result<()>,
}

/// Reads the file header.
pub(crate) fn read_file_header(file: &dyn ReadAt) -> Result<FileHeader> {
    let length = file.len()?.min(FILE_HEADER_LEN as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes)?;
    FileHeader::decode(&bytes)
}

/// Returns the footer that the file's tail points to, with the chunks of its index blocks; or why the file must be
/// scanned, as a problem of the file. A file without a tail has no such problem: its writer did not finish.
pub(crate) fn read_footer(
    file: &dyn ReadAt,
    limits: &FileLimits,
) -> Result<Result<FoundFooter, Option<Problem>>> {
    let Some(offset) = footer_offset(file)? else {
        return Ok(Err(None));
    };
    let length = file.len()?;
    let read = || {
        let mut found = read_footer_at(file, offset, limits)?;
        found.footer.chunks = all_chunks(file, limits.chunks, &mut found.footer)?;
        Ok(found)
    };
    Ok(read().map_err(|error: FormatError| {
        Some(Problem::new(
            length - TAIL_LEN as u64,
            TAIL_LEN as u64,
            format!("the tail points to byte {offset}, where no usable footer is: {error}"),
        ))
    }))
}

/// Returns the chunks of a footer with those of its index blocks.
///
/// # Errors
/// If an index block cannot be read, or they name another number of chunks than the footer says.
fn all_chunks(file: &dyn ReadAt, most: u64, footer: &mut Footer) -> Result<Vec<IndexEntry>> {
    let count = footer.chunks_in_blocks;
    let mut chunks = Vec::new();
    for offset in &footer.index_blocks {
        chunks.append(&mut read_index_block(file, *offset, most)?);
        if chunks.len() as u64 > count {
            break;
        }
    }
    if chunks.len() as u64 != count {
        let expected = "as many chunks in index blocks as the footer says";
        let found = format!("{} of {count}", chunks.len());
        return Err(FormatError::invalid(0, expected, found));
    }
    chunks.append(&mut footer.chunks);
    Ok(chunks)
}

/// Reads the index block at `offset`.
fn read_index_block(file: &dyn ReadAt, offset: u64, most: u64) -> Result<Vec<IndexEntry>> {
    let header = read_block_header(file, offset)?;
    if header.kind != BlockKind::Index {
        let found = format!("kind {}", header.kind.code());
        return Err(FormatError::invalid(0, "an index block", found).shifted(offset));
    }
    let (_, _, body) = read_block(file, offset)?;
    decode_some_of_index(&body, most).map_err(|error| error.shifted(offset))
}

/// Returns where the footer is that the file's tail points to.
pub(crate) fn footer_offset(file: &dyn ReadAt) -> Result<Option<u64>> {
    let length = file.len()?;
    if length < (FILE_HEADER_LEN + TAIL_LEN) as u64 {
        return Ok(None);
    }
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(length - TAIL_LEN as u64, &mut tail)?;
    Ok(decode_tail(&tail))
}

fn read_footer_at(file: &dyn ReadAt, offset: u64, limits: &FileLimits) -> Result<FoundFooter> {
    let header = read_block_header(file, offset)?;
    if header.kind != BlockKind::Footer {
        let found = format!("kind {}", header.kind.code());
        return Err(FormatError::invalid(0, "a footer block", found).shifted(offset));
    }
    let (_, _, body) = read_block(file, offset)?;
    let shift = |error: FormatError| error.shifted(offset);
    let (footer, outcome) = Footer::decode_stepping_over(&body, limits).map_err(shift)?;
    Ok(FoundFooter {
        footer,
        all_definitions: outcome.map_err(shift),
    })
}

/// Returns the footer among the blocks that a scan met, when the tail that should point to it is lost, or does not any
/// more because blocks before it are. One that does not name every chunk before it is not this file's: a resync may
/// have found it in an event; but chunks that only a lost index block named may be any. Chunks are where they were met.
pub(crate) fn find_footer(
    file: &dyn ReadAt,
    blocks: &[FoundBlock],
    limits: &FileLimits,
    problems: &mut Vec<Problem>,
) -> Option<FoundFooter> {
    let is_footer = |block: &&FoundBlock| block.header.kind == BlockKind::Footer && !block.is_cut;
    let last = blocks.iter().rev().find(is_footer)?;
    let FoundFooter {
        mut footer,
        all_definitions,
    } = read_footer_at(file, last.offset, limits).ok()?;
    let mut damaged = Vec::new();
    let mut unnamed = take_index_blocks(file, blocks, limits.chunks, &mut footer, &mut damaged);
    let of_recording = footer.chunks.iter().enumerate();
    let mut of_recording: HashMap<_, _> = of_recording
        .map(|(index, (_, head))| (key(head), index))
        .collect();
    // Of two that say the same, the first counts.
    for block in blocks.iter().rev() {
        match block.header.kind {
            BlockKind::Chunk | BlockKind::RowChunk => {
                let head = decode_with(&block.head, block.offset, ChunkHeader::decode).ok()?;
                let Some(index) = of_recording.get(&key(&head)) else {
                    unnamed = unnamed.checked_sub(1)?;
                    of_recording.insert(key(&head), footer.chunks.len());
                    footer.chunks.push((block.offset, head));
                    continue;
                };
                let (offset, named) = &mut footer.chunks[*index];
                if *named != head {
                    return None;
                }
                *offset = block.offset;
            }
            BlockKind::TraceChunk => {
                let head = decode_with(&block.head, block.offset, TraceChunkHeader::decode).ok()?;
                let sequence = usize::try_from(head.sequence).ok()?;
                let named = footer.trace_chunks.get_mut(sequence)?;
                let found = TraceIndexEntry::new(block.offset, &head);
                named.offset = found.offset;
                if *named != found {
                    return None;
                }
            }
            BlockKind::Snapshot => {
                let head = decode_with(&block.head, block.offset, SnapshotHeader::decode);
                let chunk = head.map(|head| head.chunk);
                let mut snapshots = footer.snapshots.iter_mut();
                let named = snapshots.find(|entry| chunk.as_ref().is_ok_and(|c| *c == entry.chunk));
                named
                    .into_iter()
                    .for_each(|entry| entry.offset = block.offset);
            }
            _ => {}
        }
    }
    problems.append(&mut damaged);
    Some(FoundFooter {
        footer,
        all_definitions,
    })
}

/// Adds the contents of the scanned index blocks to a footer. Returns the number of chunks in them that the scan did
/// not find or cannot read.
fn take_index_blocks(
    file: &dyn ReadAt,
    blocks: &[FoundBlock],
    most: u64,
    footer: &mut Footer,
    problems: &mut Vec<Problem>,
) -> u64 {
    let mut unnamed = footer.chunks_in_blocks;
    let is_index = |block: &&FoundBlock| block.header.kind == BlockKind::Index && !block.is_cut;
    let mut known: HashSet<_> = footer.chunks.iter().map(|(_, head)| key(head)).collect();
    for block in blocks.iter().filter(is_index) {
        match read_index_block(file, block.offset, most) {
            Ok(mut chunks) => {
                chunks.retain(|(_, head)| known.insert(key(head)));
                chunks.truncate(usize::try_from(unnamed).unwrap_or(usize::MAX));
                unnamed -= chunks.len() as u64;
                footer.chunks.append(&mut chunks);
            }
            Err(error) => {
                let problem = Problem::unreadable(block.offset, block.header.block_len(), &error);
                note(problems, problem);
            }
        }
    }
    unnamed
}

/// Returns the key that identifies a chunk of a recording.
fn key(head: &ChunkHeader) -> (StreamId, u64) {
    (head.stream, head.sequence)
}

/// Reads the header of the block at `offset`.
pub(crate) fn read_block_header(file: &dyn ReadAt, offset: u64) -> Result<BlockHeader> {
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact_at(offset, &mut bytes)?;
    BlockHeader::decode(&bytes).map_err(|error| error.shifted(offset))
}

/// Reads header and head of the block at `offset`.
pub(crate) fn read_block_head(file: &dyn ReadAt, offset: u64) -> Result<(BlockHeader, Vec<u8>)> {
    let header = read_block_header(file, offset)?;
    let start = offset + BLOCK_HEADER_LEN as u64;
    if start.saturating_add(header.head_len.into()) > file.len()? {
        return Err(FormatError::UnexpectedEnd {
            offset: file.len()?,
            expected: "the rest of a block's head",
        });
    }
    let mut head = vec![0; header.head_len as usize];
    file.read_exact_at(start, &mut head)?;
    header
        .check_head(&head)
        .map_err(|error| error.shifted(start))?;
    Ok((header, head))
}

/// Reads the body of the block at `offset` as it is stored, unchecked.
fn read_stored_body(file: &dyn ReadAt, offset: u64, header: &BlockHeader) -> Result<Vec<u8>> {
    if offset.saturating_add(header.block_len()) > file.len()? {
        return Err(FormatError::UnexpectedEnd {
            offset: file.len()?,
            expected: "the rest of a block",
        });
    }
    let mut stored = vec![0; header.body_len as usize];
    file.read_exact_at(body_offset(offset, header), &mut stored)?;
    Ok(stored)
}

pub(crate) const fn body_offset(offset: u64, header: &BlockHeader) -> u64 {
    offset + BLOCK_HEADER_LEN as u64 + header.head_len as u64
}

/// Reads the body of the block at `offset`, checked and decompressed.
pub(crate) fn read_body(file: &dyn ReadAt, offset: u64, header: &BlockHeader) -> Result<Vec<u8>> {
    let stored = read_stored_body(file, offset, header)?;
    header
        .open_body(&stored)
        .map_err(|error| error.shifted(body_offset(offset, header)))
}

/// Reads the block at `offset`: header, head, body as it is stored and not checked yet.
pub(crate) fn read_stored_block(
    file: &dyn ReadAt,
    offset: u64,
) -> Result<(BlockHeader, Vec<u8>, Vec<u8>)> {
    let (header, head) = read_block_head(file, offset)?;
    let stored = read_stored_body(file, offset, &header)?;
    Ok((header, head, stored))
}

/// Reads a block, whole and checked, and decompresses its body.
pub(crate) fn read_block(
    file: &dyn ReadAt,
    offset: u64,
) -> Result<(BlockHeader, Vec<u8>, Vec<u8>)> {
    let (header, head) = read_block_head(file, offset)?;
    let body = read_body(file, offset, &header)?;
    Ok((header, head, body))
}

/// Checks the block at `offset` without decompressing its body. Returns its bytes in the file.
pub(crate) fn check_block(file: &dyn ReadAt, offset: u64) -> Result<u64> {
    let (header, _, stored) = read_stored_block(file, offset)?;
    let checked = header.check_body(&stored);
    checked.map_err(|error| error.shifted(body_offset(offset, &header)))?;
    Ok(header.block_len())
}

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// The blocks of the kinds that were asked for.
    pub(crate) blocks: Vec<FoundBlock>,
    /// Where the block begins that the file's end cuts: its writer was killed, or had no room.
    pub(crate) cut_at: Option<u64>,
}

/// Walks the blocks from the file header on; damage is stepped over and noted. Returns the blocks of these kinds.
pub(crate) fn scan(
    file: &dyn ReadAt,
    file_header: &FileHeader,
    limits: &FileLimits,
    kinds: &[BlockKind],
    problems: &mut Vec<Problem>,
) -> Result<Scanned> {
    let mut scan = Scan {
        file,
        length: file.len()?,
        damaged_heads: limits.damaged_heads,
    };
    let mut offset = u64::from(file_header.header_len);
    let mut blocks = Vec::new();
    let mut cut_at = None;
    while offset < scan.length {
        match scan.read_head(offset)? {
            Head::Intact(mut block) => {
                let mut end = offset + block.header.block_len();
                if block.is_cut {
                    // The middle of the file may be missing: search for the next block.
                    let body = offset + BLOCK_HEADER_LEN as u64 + u64::from(block.header.head_len);
                    let next = scan.next_block(body)?;
                    let what = if next == scan.length {
                        cut_at = Some(offset);
                        format!("the file ends {} bytes before the block does", end - next)
                    } else {
                        "another block begins within the block's body".to_owned()
                    };
                    let problem = Problem::new(offset, next - offset, what);
                    note(problems, problem);
                    end = next;
                }
                offset = end;
                if kinds.contains(&block.header.kind) {
                    let has_head = matches!(
                        block.header.kind,
                        BlockKind::Chunk
                            | BlockKind::RowChunk
                            | BlockKind::TraceChunk
                            | BlockKind::Snapshot
                    );
                    if !has_head {
                        block.head = Vec::new();
                    }
                    blocks.push(block);
                }
            }
            // The end; or a recording that was amended continues after it.
            Head::Damaged { .. } if is_tail(file, offset, scan.length)? => {
                offset += TAIL_LEN as u64;
            }
            Head::Damaged {
                error,
                block_end,
                is_cut,
            } => {
                let next = match block_end {
                    // The body may hold the blocks of a recorded file.
                    Some(end) if scan.is_border(end)? => end,
                    _ => scan.next_sync(offset + 1)?,
                };
                if is_cut && next == scan.length {
                    cut_at = Some(offset);
                }
                let problem = Problem::unreadable(offset, next - offset, &error);
                note(problems, problem);
                offset = next;
            }
            Head::TooMany => {
                let problem = Problem::new(
                    offset,
                    scan.length - offset,
                    "the heads of too many blocks are damaged: the rest is not read",
                );
                note(problems, problem);
                offset = scan.length;
            }
        }
    }
    Ok(Scanned { blocks, cut_at })
}

/// The item that a scan finds at an offset.
enum Head {
    /// A block whose header and head are intact.
    Intact(FoundBlock),
    /// Something else.
    Damaged {
        error: FormatError,
        /// Where the block ends, if its header is intact and the file has room for it.
        block_end: Option<u64>,
        /// The file ends within the header or the head of a block.
        is_cut: bool,
    },
    /// More damaged heads than a scan reads.
    TooMany,
}

/// A scan of a file.
struct Scan<'a> {
    file: &'a dyn ReadAt,
    length: u64,
    /// Bytes of damaged heads that may still be read.
    damaged_heads: u64,
}

impl Scan<'_> {
    fn read_head(&mut self, offset: u64) -> Result<Head> {
        let available = (self.length - offset).min(BLOCK_HEADER_LEN as u64) as usize;
        let mut bytes = [0; BLOCK_HEADER_LEN];
        self.file.read_exact_at(offset, &mut bytes[..available])?;
        let header = match BlockHeader::decode(&bytes[..available]) {
            Ok(header) => header,
            Err(error) => {
                let is_cut = available < BLOCK_HEADER_LEN
                    && bytes[..available.min(SYNC.len())] == SYNC[..available.min(SYNC.len())];
                return Ok(Head::Damaged {
                    error: error.shifted(offset),
                    block_end: None,
                    is_cut,
                });
            }
        };
        let start = offset + BLOCK_HEADER_LEN as u64;
        let end = offset + header.block_len();
        if start + u64::from(header.head_len) > self.length {
            return Ok(Head::Damaged {
                error: FormatError::UnexpectedEnd {
                    offset: self.length,
                    expected: "the rest of a block's head",
                },
                block_end: None,
                is_cut: true,
            });
        }
        let Some(left) = self.damaged_heads.checked_sub(header.head_len.into()) else {
            return Ok(Head::TooMany);
        };
        let mut head = vec![0; header.head_len as usize];
        self.file.read_exact_at(start, &mut head)?;
        if let Err(error) = header.check_head(&head) {
            self.damaged_heads = left;
            return Ok(Head::Damaged {
                error: error.shifted(start),
                block_end: Some(end).filter(|end| *end <= self.length),
                is_cut: false,
            });
        }
        Ok(Head::Intact(FoundBlock {
            offset,
            is_cut: end > self.length,
            header,
            head,
        }))
    }

    /// Returns whether a block can end at this offset: the file ends there, or an intact block header or a tail is
    /// there.
    fn is_border(&self, offset: u64) -> Result<bool> {
        if offset == self.length || is_tail(self.file, offset, self.length)? {
            return Ok(true);
        }
        if self.length - offset < BLOCK_HEADER_LEN as u64 {
            return Ok(false);
        }
        Ok(read_block_header(self.file, offset).is_ok())
    }

    /// Returns the next offset from `from` on where a sync mark is, or the file's end.
    fn next_sync(&self, from: u64) -> Result<u64> {
        // Small at first: where marks are many, each search is short.
        const FIRST_WINDOW: u64 = 1 << 8;
        const LARGEST_WINDOW: u64 = 1 << 16;
        let mut step = FIRST_WINDOW;
        let mut start = from;
        let mut window = Vec::new();
        while start < self.length {
            let size = (self.length - start).min(step + SYNC.len() as u64 - 1);
            window.resize(size as usize, 0);
            self.file.read_exact_at(start, &mut window)?;
            let hit = window.windows(SYNC.len()).position(|bytes| bytes == SYNC);
            if let Some(position) = hit {
                return Ok(start + position as u64);
            }
            start += step;
            step = (step * 2).min(LARGEST_WINDOW);
        }
        Ok(self.length)
    }

    /// Returns the next offset from `from` on where a block with an intact header and head is, or the file's end.
    fn next_block(&mut self, from: u64) -> Result<u64> {
        let mut offset = self.next_sync(from)?;
        while offset < self.length {
            match self.read_head(offset)? {
                Head::Intact(_) => break,
                Head::Damaged { .. } => offset = self.next_sync(offset + 1)?,
                Head::TooMany => offset = self.length,
            }
        }
        Ok(offset)
    }
}

/// Checks what a whole footer makes unnecessary to read: the blocks before it, except chunks, which are checked when they
/// are loaded. `footer`: where the tail points to. `chunks`: the offsets of the chunks. Returns what is damaged.
pub(crate) fn check_rest(
    file: &dyn ReadAt,
    file_header: &FileHeader,
    footer: u64,
    chunks: &BTreeSet<u64>,
) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let end = footer.min(file.len()?);
    let mut offset = u64::from(file_header.header_len);
    while offset < end {
        let next_known = || {
            let behind = chunks.range(offset + 1..).next();
            behind.map_or(end, |next| end.min(*next))
        };
        let length = if chunks.contains(&offset) {
            read_block_header(file, offset).map(|header| header.block_len())
        } else if is_tail(file, offset, end)? {
            Ok(TAIL_LEN as u64)
        } else {
            check_block(file, offset).inspect_err(|error| {
                let problem = Problem::unreadable(offset, next_known() - offset, error);
                note(&mut problems, problem);
            })
        };
        offset = match length {
            Ok(length) => offset.saturating_add(length),
            Err(_) => next_known(),
        };
    }
    Ok(problems)
}

/// Notes why the tail did not lead to the footer, unless the scan found damage that explains it. `tail`: what
/// [`read_footer`] returned. A file that has neither tail nor footer ends early, and that is not noted here.
pub(crate) fn note_tail(
    file: &dyn ReadAt,
    tail: Option<Problem>,
    has_footer: bool,
    problems: &mut Vec<Problem>,
) -> Result<()> {
    if !problems.is_empty() {
        return Ok(());
    }
    let missing = Problem::new(
        file.len()?,
        0,
        "the tail is missing: the footer was found by a scan",
    );
    problems.extend(tail.or(has_footer.then_some(missing)));
    Ok(())
}

fn is_tail(file: &dyn ReadAt, offset: u64, length: u64) -> Result<bool> {
    if length - offset < TAIL_LEN as u64 {
        return Ok(false);
    }
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(offset, &mut tail)?;
    Ok(decode_tail(&tail).is_some())
}

/// Decodes all of a head or body with `decode`.
pub(crate) fn decode_with<T>(
    bytes: &[u8],
    base: u64,
    decode: impl FnOnce(&mut Wire<'_>) -> Result<T>,
) -> Result<T> {
    decode(&mut Wire::new(bytes)).map_err(|error| error.shifted(base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::FileKind;
    use crate::recording::Recording;
    use crate::testing::{FileMaker, chunk};
    use crate::wire::Put;

    fn scanned(bytes: &[u8], kinds: &[BlockKind]) -> (Vec<FoundBlock>, Vec<Problem>) {
        let header = FileHeader::decode(bytes).unwrap();
        let mut problems = Vec::new();
        let file = bytes.to_vec();
        let limits = FileLimits::of(&file).unwrap();
        let found = scan(&file, &header, &limits, kinds, &mut problems).unwrap();
        (found.blocks, problems)
    }

    #[test]
    fn damage_without_a_gap_is_one_problem() {
        let mut file = FileMaker::new(FileKind::Recording);
        let start = file.bytes.len() as u64;
        for _ in 0..100_000 {
            file.bytes.extend_from_slice(&SYNC);
        }
        let before = std::time::Instant::now();
        let (_, problems) = scanned(&file.bytes, &[]);
        assert!(before.elapsed().as_secs() < 5, "{:?}", before.elapsed());
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].offset, start);
        assert_eq!(problems[0].length, file.bytes.len() as u64 - start);
    }

    #[test]
    fn only_heads_of_chunks_are_kept() {
        let mut file = FileMaker::new(FileKind::Recording);
        file.block(BlockKind::Unknown(77), &[1; 5000], &[]);
        file.block(BlockKind::Totals, &[1; 5000], &[]);
        file.chunk(chunk(0, 0, &[0]));
        let (found, _) = scanned(&file.bytes, &[BlockKind::Totals, BlockKind::Chunk]);
        let kinds: Vec<BlockKind> = found.iter().map(|block| block.header.kind).collect();
        assert_eq!(kinds, [BlockKind::Totals, BlockKind::Chunk]);
        assert!(found[0].head.is_empty());
        assert!(!found[1].head.is_empty());
    }

    #[test]
    fn a_block_that_lost_its_middle_does_not_swallow_the_blocks_behind_it() {
        let mut file = FileMaker::new(FileKind::Recording);
        let at = file.block(BlockKind::Unknown(99), &[], &[0; 4096]);
        file.bytes.truncate(at + BLOCK_HEADER_LEN + 100);
        // A mark without a block is no reason to stop looking.
        file.bytes.extend_from_slice(&SYNC);
        let next = file.chunk(chunk(0, 0, &[0]));
        let (found, problems) = scanned(&file.bytes, &[BlockKind::Unknown(99), BlockKind::Chunk]);
        assert!(found[0].is_cut && !found[1].is_cut);
        assert_eq!(found[1].offset, next as u64);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].length, (next - at) as u64);
    }

    /// Returns a recording with six chunks in three index blocks, one chunk in the footer, and totals that are only in
    /// the footer. Also returns where its blocks start, and its end.
    fn indexed() -> (Vec<u8>, Vec<usize>) {
        let mut file = FileMaker::new(FileKind::Recording);
        let mut starts = vec![FILE_HEADER_LEN];
        for sequence in 0..7 {
            starts.push(file.chunk(chunk(sequence, sequence * 3, &[0, 1, 2])));
            if sequence % 2 == 1 {
                starts.push(file.index_block());
            }
        }
        let totals = file.totals(&[(0, 8), (1, 7), (2, 7)]);
        file.bytes.truncate(totals);
        starts.push(file.bytes.len());
        file.finish();
        starts.push(file.bytes.len());
        (file.bytes, starts)
    }

    /// Returns the chunks that a reader finds with their events, and the problems it notes.
    fn read(bytes: &[u8]) -> (Vec<u64>, usize) {
        let file = bytes.to_vec();
        let recording = Recording::read(&file, None, |_| false).unwrap();
        assert!(recording.has_footer);
        let contents = &recording.streams[&StreamId::new(0)];
        let raised: u64 = contents.totals.rows.iter().map(|row| row.raised).sum();
        assert_eq!(raised, 22, "the totals of the footer");
        let whole = contents.chunks.iter().filter(|stored| {
            let loaded = recording.load(&file, stored);
            loaded.is_ok_and(|chunk| chunk.type_index.len() == 3)
        });
        let whole = whole.map(|stored| stored.header.sequence).collect();
        (whole, recording.problems.len())
    }

    fn is_index(bytes: &[u8], start: usize) -> bool {
        bytes[start + 8] == BlockKind::Index.code()
    }

    #[test]
    fn chunks_of_index_blocks_are_found() {
        let (bytes, starts) = indexed();
        assert_eq!(
            starts
                .iter()
                .filter(|s| **s < bytes.len() && is_index(&bytes, **s))
                .count(),
            3
        );
        assert_eq!(read(&bytes), ((0..7).collect(), 0));
        let limits = FileLimits::of(&bytes).unwrap();
        let found = read_footer(&bytes, &limits).unwrap();
        let footer = found.expect("without a scan").footer;
        assert_eq!((footer.chunks.len(), footer.chunks_in_blocks), (7, 6));
    }

    #[test]
    fn an_index_block_with_a_byte_flipped_costs_nothing() {
        let (bytes, starts) = indexed();
        for block in starts.windows(2).filter(|block| is_index(&bytes, block[0])) {
            for at in block[0]..block[1] {
                let mut flipped = bytes.clone();
                flipped[at] ^= 0x55;
                let (whole, problems) = read(&flipped);
                assert_eq!(whole, (0..7).collect::<Vec<_>>(), "byte {at}");
                // Reserved bytes of a block's header are in its checksum.
                assert_eq!(problems, 1, "byte {at}");
            }
        }
    }

    #[test]
    fn blocks_of_an_indexed_recording_dropped_doubled_or_swapped_cost_at_most_themselves() {
        let (bytes, starts) = indexed();
        let blocks: Vec<&[u8]> = starts
            .windows(2)
            .map(|block| &bytes[block[0]..block[1]])
            .collect();
        let last = blocks.len() - 1;
        let is_chunk = |block: &[u8]| block[8] == BlockKind::Chunk.code();
        let file = |blocks: &[&[u8]]| [&bytes[..FILE_HEADER_LEN], &blocks.concat()].concat();
        for number in 0..last {
            let mut dropped = blocks.clone();
            let gone = dropped.remove(number);
            let (whole, _) = read(&file(&dropped));
            let expected = 7 - usize::from(is_chunk(gone));
            assert_eq!(whole.len(), expected, "without block {number}");

            let mut doubled = blocks.clone();
            doubled.insert(number, blocks[number]);
            assert_eq!(read(&file(&doubled)).0.len(), 7, "block {number} twice");

            if number != 0 {
                let mut swapped = blocks.clone();
                swapped.swap(number - 1, number);
                let moved = blocks[number - 1..=number].iter();
                let moved = moved.filter(|block| is_chunk(block)).count();
                let (whole, _) = read(&file(&swapped));
                assert!(whole.len() + moved >= 7, "block {number} before the last");
            }
        }
    }

    /// Returns the body of an index block with `count` chunks, in far fewer bytes than they would
    /// need in a file.
    fn bomb(count: u64) -> Vec<u8> {
        let (header, _) = chunk(0, 0, &[]);
        let mut head = Vec::new();
        header.encode(&mut head);
        let mut body = Vec::new();
        body.put_varint(count);
        for _ in 0..count {
            body.put_varint(0);
            body.put_bytes(&head);
        }
        body
    }

    #[test]
    fn an_index_of_more_chunks_than_the_file_has_room_for_is_not_read() {
        let mut file = FileMaker::new(FileKind::Recording);
        file.chunk(chunk(0, 0, &[0, 1, 2]));
        let room = FileLimits::of(&file.bytes).unwrap().chunks;
        assert!(decode_some_of_index(&bomb(room), room).is_ok());
        assert!(decode_some_of_index(&bomb(room + 1), room).is_err());
        let mut footer = Vec::new();
        footer.put_bytes(&[]);
        footer.put_bytes(&bomb(100));
        (0..3).for_each(|_| footer.put_bytes(&[0]));
        let of_room = |room: u64| FileLimits::of_length(room * BLOCK_HEADER_LEN as u64);
        assert!(Footer::decode_stepping_over(&footer, &of_room(100)).is_ok());
        assert!(Footer::decode_stepping_over(&footer, &of_room(99)).is_err());
    }

    #[test]
    fn a_footer_that_names_one_index_block_for_very_many_is_not_used() {
        let mut file = FileMaker::new(FileKind::Recording);
        file.chunk(chunk(0, 0, &[0, 1, 2]));
        let at = file.index_block() as u64;
        let mut footer = Footer {
            index_blocks: vec![at; 1000],
            chunks_in_blocks: 1,
            ..Footer::default()
        };
        let most = FileLimits::of(&file.bytes).unwrap().chunks;
        assert!(all_chunks(&file.bytes, most, &mut footer).is_err());
        let mut body = Vec::new();
        footer.encode(&mut body);
        assert!(Footer::decode(&body).is_err(), "not ascending");
    }
}
