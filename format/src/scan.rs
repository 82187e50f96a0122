//! Finding blocks: by the footer when it is whole, else by a scan that steps over damage.

use std::collections::HashMap;

use crate::block::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, FILE_HEADER_LEN, FileHeader, SYNC, TAIL_LEN,
    decode_tail,
};
use crate::chunk::ChunkHeader;
use crate::error::{FormatError, Result};
use crate::footer::{Footer, TraceIndexEntry};
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
    /// What is wrong.
    pub what: String,
}

/// Appends a problem; one that goes on where the last one ended becomes part of it, so that damage
/// costs memory by its places and not by its bytes.
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
    /// The body is not complete: the file ends, or another block stands, within it.
    pub(crate) is_cut: bool,
}

/// A footer, and whether each of its definitions could be read.
pub(crate) type FoundFooter = (Footer, Result<()>);

/// Reads the file header.
pub(crate) fn read_file_header(file: &dyn ReadAt) -> Result<FileHeader> {
    let length = file.len()?.min(FILE_HEADER_LEN as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes)?;
    FileHeader::decode(&bytes)
}

/// The footer, if the file ends with a whole one.
pub(crate) fn read_footer(file: &dyn ReadAt) -> Result<Option<FoundFooter>> {
    let offset = footer_offset(file)?;
    Ok(offset.and_then(|offset| read_footer_at(file, offset)))
}

/// Where the footer is that the file's tail points to.
pub(crate) fn footer_offset(file: &dyn ReadAt) -> Result<Option<u64>> {
    let length = file.len()?;
    if length < (FILE_HEADER_LEN + TAIL_LEN) as u64 {
        return Ok(None);
    }
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(length - TAIL_LEN as u64, &mut tail)?;
    Ok(decode_tail(&tail))
}

fn read_footer_at(file: &dyn ReadAt, offset: u64) -> Option<FoundFooter> {
    let (header, _, body) = read_block(file, offset).ok()?;
    if header.kind != BlockKind::Footer {
        return None;
    }
    let (footer, outcome) = Footer::decode_stepping_over(&body).ok()?;
    Some((footer, outcome.map_err(|error| error.shifted(offset))))
}

/// The footer among the blocks that a scan met, when the tail that should point to it is lost, or does not
/// any more because blocks before it are. One that does not name every chunk before it is not this file's: a
/// resync may have found it in an event. Chunks are where they were met.
pub(crate) fn find_footer(file: &dyn ReadAt, blocks: &[FoundBlock]) -> Option<FoundFooter> {
    let is_footer = |block: &&FoundBlock| block.header.kind == BlockKind::Footer && !block.is_cut;
    let last = blocks.iter().rev().find(is_footer)?;
    let (mut footer, outcome) = read_footer_at(file, last.offset)?;
    let of_recording = footer.chunks.iter().enumerate();
    let of_recording: HashMap<_, _> = of_recording
        .map(|(index, (_, head))| ((head.stream, head.sequence), index))
        .collect();
    // Of two that say the same, the first counts.
    for block in blocks.iter().rev() {
        match block.header.kind {
            BlockKind::Chunk => {
                let head = decode_with(&block.head, block.offset, ChunkHeader::decode).ok()?;
                let index = of_recording.get(&(head.stream, head.sequence))?;
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
    Some((footer, outcome))
}

/// Reads the header of the block at `offset`.
pub(crate) fn read_block_header(file: &dyn ReadAt, offset: u64) -> Result<BlockHeader> {
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact_at(offset, &mut bytes)?;
    BlockHeader::decode(&bytes).map_err(|error| error.shifted(offset))
}

/// Reads the block at `offset`: header, head, body as it is stored and not checked yet.
pub(crate) fn read_stored_block(
    file: &dyn ReadAt,
    offset: u64,
) -> Result<(BlockHeader, Vec<u8>, Vec<u8>)> {
    let header = read_block_header(file, offset)?;
    if offset.saturating_add(header.block_len()) > file.len()? {
        return Err(FormatError::UnexpectedEnd {
            offset: file.len()?,
            expected: "the rest of a block",
        });
    }
    let mut rest = vec![0; header.head_len as usize + header.body_len as usize];
    let start = offset + BLOCK_HEADER_LEN as u64;
    file.read_exact_at(start, &mut rest)?;
    let stored = rest.split_off(header.head_len as usize);
    header
        .check_head(&rest)
        .map_err(|error| error.shifted(start))?;
    Ok((header, rest, stored))
}

/// Reads a block, whole and checked, and decompresses its body.
pub(crate) fn read_block(
    file: &dyn ReadAt,
    offset: u64,
) -> Result<(BlockHeader, Vec<u8>, Vec<u8>)> {
    let (header, head, stored) = read_stored_block(file, offset)?;
    let start = offset + BLOCK_HEADER_LEN as u64 + head.len() as u64;
    let body = header
        .open_body(&stored)
        .map_err(|error| error.shifted(start))?;
    Ok((header, head, body))
}

/// Walks the blocks from the file header on; damage is stepped over and noted. Gives the blocks of these
/// kinds.
pub(crate) fn scan(
    file: &dyn ReadAt,
    file_header: &FileHeader,
    kinds: &[BlockKind],
    problems: &mut Vec<Problem>,
) -> Result<Vec<FoundBlock>> {
    let length = file.len()?;
    let mut offset = u64::from(file_header.header_len);
    let mut found = Vec::new();
    while offset < length {
        match read_head(file, offset, length) {
            Ok(mut block) => {
                let mut end = offset + block.header.block_len();
                if block.is_cut {
                    // The middle of the file may be what is missing: look for what stands behind it.
                    let body = offset + BLOCK_HEADER_LEN as u64 + u64::from(block.header.head_len);
                    let next = next_block(file, body, length)?;
                    let what = if next == length {
                        format!("the file ends {} bytes before the block does", end - length)
                    } else {
                        "another block stands where the block's body should be".to_owned()
                    };
                    let problem = Problem {
                        offset,
                        length: next - offset,
                        what,
                    };
                    note(problems, problem);
                    end = next;
                }
                offset = end;
                if kinds.contains(&block.header.kind) {
                    let has_head = matches!(
                        block.header.kind,
                        BlockKind::Chunk | BlockKind::TraceChunk | BlockKind::Snapshot
                    );
                    if !has_head {
                        block.head = Vec::new();
                    }
                    found.push(block);
                }
            }
            // The end; or a recording that was amended goes on behind it.
            Err(_) if is_tail(file, offset, length)? => offset += TAIL_LEN as u64,
            Err(error) => {
                let next = next_sync(file, offset + 1, length)?;
                let problem = Problem {
                    offset,
                    length: next - offset,
                    what: error.to_string(),
                };
                note(problems, problem);
                offset = next;
            }
        }
    }
    Ok(found)
}

fn is_tail(file: &dyn ReadAt, offset: u64, length: u64) -> Result<bool> {
    if length - offset < TAIL_LEN as u64 {
        return Ok(false);
    }
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(offset, &mut tail)?;
    Ok(decode_tail(&tail).is_some())
}

fn read_head(file: &dyn ReadAt, offset: u64, length: u64) -> Result<FoundBlock> {
    let available = (length - offset).min(BLOCK_HEADER_LEN as u64) as usize;
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact_at(offset, &mut bytes[..available])?;
    let header = BlockHeader::decode(&bytes[..available]).map_err(|error| error.shifted(offset))?;
    let start = offset + BLOCK_HEADER_LEN as u64;
    let head_end = start + u64::from(header.head_len);
    if head_end > length {
        return Err(FormatError::UnexpectedEnd {
            offset: length,
            expected: "the rest of a block's head",
        });
    }
    let mut head = vec![0; header.head_len as usize];
    file.read_exact_at(start, &mut head)?;
    header
        .check_head(&head)
        .map_err(|error| error.shifted(start))?;
    Ok(FoundBlock {
        offset,
        is_cut: offset + header.block_len() > length,
        header,
        head,
    })
}

/// The next place at or behind `from` where a sync mark stands, or the file's end.
fn next_sync(file: &dyn ReadAt, from: u64, length: u64) -> Result<u64> {
    // Small at first: where marks are many, each search is short.
    const FIRST_WINDOW: u64 = 1 << 8;
    const LARGEST_WINDOW: u64 = 1 << 16;
    let mut step = FIRST_WINDOW;
    let mut start = from;
    let mut window = Vec::new();
    while start < length {
        let size = (length - start).min(step + SYNC.len() as u64 - 1);
        window.resize(size as usize, 0);
        file.read_exact_at(start, &mut window)?;
        let hit = window.windows(SYNC.len()).position(|bytes| bytes == SYNC);
        if let Some(position) = hit {
            return Ok(start + position as u64);
        }
        start += step;
        step = (step * 2).min(LARGEST_WINDOW);
    }
    Ok(length)
}

/// The next place at or behind `from` where a block with an intact header and head stands, or the
/// file's end.
fn next_block(file: &dyn ReadAt, from: u64, length: u64) -> Result<u64> {
    let mut offset = next_sync(file, from, length)?;
    while offset < length && read_head(file, offset, length).is_err() {
        offset = next_sync(file, offset + 1, length)?;
    }
    Ok(offset)
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
    use crate::testing::{FileMaker, chunk};

    fn scanned(bytes: &[u8], kinds: &[BlockKind]) -> (Vec<FoundBlock>, Vec<Problem>) {
        let header = FileHeader::decode(bytes).unwrap();
        let mut problems = Vec::new();
        let file = bytes.to_vec();
        let found = scan(&file, &header, kinds, &mut problems).unwrap();
        (found, problems)
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
}
