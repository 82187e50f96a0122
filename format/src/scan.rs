//! Finding blocks: by the footer when it is whole, else by a scan that steps over damage.

use crate::block::{
    BLOCK_HEADER_LEN, BlockHeader, BlockKind, FILE_HEADER_LEN, FileHeader, SYNC, TAIL_LEN,
    decode_tail,
};
use crate::error::{FormatError, Result};
use crate::footer::Footer;
use crate::read::ReadAt;
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

/// A block that a scan met, its head intact.
#[derive(Clone, Debug)]
pub(crate) struct FoundBlock {
    pub(crate) offset: u64,
    pub(crate) header: BlockHeader,
    pub(crate) head: Vec<u8>,
    /// The file ends within the body.
    pub(crate) is_cut: bool,
}

/// Reads the file header.
pub(crate) fn read_file_header(file: &dyn ReadAt) -> Result<FileHeader> {
    let length = file.len()?.min(FILE_HEADER_LEN as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(0, &mut bytes)?;
    FileHeader::decode(&bytes)
}

/// The footer, if the file ends with a whole one.
pub(crate) fn read_footer(file: &dyn ReadAt) -> Result<Option<Footer>> {
    let length = file.len()?;
    if length < (FILE_HEADER_LEN + TAIL_LEN) as u64 {
        return Ok(None);
    }
    let mut tail = [0; TAIL_LEN];
    file.read_exact_at(length - TAIL_LEN as u64, &mut tail)?;
    let Some(offset) = decode_tail(&tail) else {
        return Ok(None);
    };
    let Ok((header, _, body)) = read_block(file, offset) else {
        return Ok(None);
    };
    if header.kind != BlockKind::Footer {
        return Ok(None);
    }
    Ok(Footer::decode(&body).ok())
}

/// Reads the block at `offset`: header, head, body decompressed.
pub(crate) fn read_block(
    file: &dyn ReadAt,
    offset: u64,
) -> Result<(BlockHeader, Vec<u8>, Vec<u8>)> {
    let mut bytes = [0; BLOCK_HEADER_LEN];
    file.read_exact_at(offset, &mut bytes)?;
    let header = BlockHeader::decode(&bytes).map_err(|error| error.shifted(offset))?;
    if offset.saturating_add(header.block_len()) > file.len()? {
        return Err(FormatError::UnexpectedEnd {
            offset: file.len()?,
            expected: "the rest of a block",
        });
    }
    let mut rest = vec![0; header.head_len as usize + header.body_len as usize];
    let start = offset + BLOCK_HEADER_LEN as u64;
    file.read_exact_at(start, &mut rest)?;
    let (head, stored) = rest.split_at(header.head_len as usize);
    header
        .check_head(head)
        .map_err(|error| error.shifted(start))?;
    let body = header
        .open_body(stored)
        .map_err(|error| error.shifted(start + head.len() as u64))?;
    let head = head.to_vec();
    Ok((header, head, body))
}

/// Walks the blocks from the file header on; damage is stepped over and noted.
pub(crate) fn scan(
    file: &dyn ReadAt,
    file_header: &FileHeader,
    problems: &mut Vec<Problem>,
) -> Result<Vec<FoundBlock>> {
    let length = file.len()?;
    let mut offset = u64::from(file_header.header_len);
    let mut found = Vec::new();
    while offset < length {
        match read_head(file, offset, length) {
            Ok(block) => {
                let end = offset + block.header.block_len();
                if block.is_cut {
                    problems.push(Problem {
                        offset,
                        length: length - offset,
                        what: format!("the file ends {} bytes before the block does", end - length),
                    });
                }
                offset = end;
                found.push(block);
            }
            Err(error) if is_tail(file, offset, length)? => {
                drop(error);
                break;
            }
            Err(error) => {
                let next = next_sync(file, offset + 1, length)?;
                problems.push(Problem {
                    offset,
                    length: next - offset,
                    what: error.to_string(),
                });
                offset = next;
            }
        }
    }
    Ok(found)
}

fn is_tail(file: &dyn ReadAt, offset: u64, length: u64) -> Result<bool> {
    if length - offset != TAIL_LEN as u64 {
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
    const WINDOW: u64 = 1 << 16;
    let mut start = from;
    let mut window = Vec::new();
    while start < length {
        let size = (length - start).min(WINDOW + SYNC.len() as u64 - 1);
        window.resize(size as usize, 0);
        file.read_exact_at(start, &mut window)?;
        let hit = window.windows(SYNC.len()).position(|bytes| bytes == SYNC);
        if let Some(position) = hit {
            return Ok(start + position as u64);
        }
        start += WINDOW;
    }
    Ok(length)
}

/// Decodes all of a head or body with `decode`.
pub(crate) fn decode_with<T>(
    bytes: &[u8],
    base: u64,
    decode: impl FnOnce(&mut Wire<'_>) -> Result<T>,
) -> Result<T> {
    decode(&mut Wire::new(bytes)).map_err(|error| error.shifted(base))
}
