//! What a stored byte may turn into: bounds on a reader's time and memory for each byte of a file (SPEC.md, Limits).
//!
//! Columns of equal values and zstd make a few bytes into millions of values. A block therefore stores at least as many
//! bytes as its content is worth: [`Content::least_stored`]. A writer whose encoding is shorter adds zero bytes.

use crate::error::{FormatError, Result};
use crate::read::ReadAt;

/// Decompressed bytes of any block, whatever its stored length.
const FREE_BYTES: u64 = 4096;
/// Further decompressed bytes for each stored byte.
const BYTES_PER_STORED_BYTE: u64 = 32;
/// Items of any block, whatever its stored length.
const FREE_ITEMS: u64 = 4096;
/// Further items for each stored byte.
const ITEMS_PER_STORED_BYTE: u64 = 64;
/// Text of any block, bytes, whatever its stored length.
const FREE_TEXT: u64 = 1 << 16;
/// Further bytes of text for each stored byte.
const TEXT_PER_STORED_BYTE: u64 = 1024;
/// Most memory that the definitions of a file may take, bytes.
const MAX_DEFINITIONS_MEMORY: u64 = (4 << 30) - 1;
/// Memory that the definitions of any file may take, bytes.
const FREE_DEFINITIONS_MEMORY: u64 = 64 << 20;
/// Further memory for definitions for each byte of the file.
const DEFINITIONS_MEMORY_PER_BYTE: u64 = 128;
/// Ids of definitions in any file are below this.
const FREE_IDS: u64 = 1 << 16;
/// Further ids for each byte of the file: writers number definitions from 0, and readers have tables by id.
const IDS_PER_BYTE: u64 = 16;
/// Bytes of damaged heads that a scan reads in any file.
const FREE_DAMAGED_HEADS: u64 = 64 << 20;
/// Further bytes of damaged heads for each byte of the file.
const DAMAGED_HEADS_PER_BYTE: u64 = 8;

/// What a reader makes of the body of a block, beyond its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Content {
    /// Events and element values of a chunk or trace chunk; locations and steps of a snapshot; regions and buckets of
    /// the statistics.
    pub items: u64,
    /// Bytes of all strings and bytes of a chunk or trace chunk, each dictionary entry counted as often as it is used.
    pub text_bytes: u64,
}

impl Content {
    /// The least length that a body with this content is stored in, bytes; `raw_len` is its decompressed length.
    pub(crate) fn least_stored(self, raw_len: usize) -> u64 {
        let beyond = |count: u64, free: u64, each: u64| count.saturating_sub(free).div_ceil(each);
        beyond(raw_len as u64, FREE_BYTES, BYTES_PER_STORED_BYTE)
            .max(beyond(self.items, FREE_ITEMS, ITEMS_PER_STORED_BYTE))
            .max(beyond(self.text_bytes, FREE_TEXT, TEXT_PER_STORED_BYTE))
    }

    /// The most items that a body of this stored length may have.
    pub(crate) const fn max_items(stored: usize) -> u64 {
        (stored as u64)
            .saturating_mul(ITEMS_PER_STORED_BYTE)
            .saturating_add(FREE_ITEMS)
    }

    /// Checks that a block stores as many bytes as its content is worth.
    ///
    /// # Errors
    /// If it stores fewer.
    pub(crate) fn check(self, raw_len: usize, stored: usize) -> Result<()> {
        let least = self.least_stored(raw_len);
        if least <= stored as u64 {
            return Ok(());
        }
        let found = format!(
            "{stored} bytes for {raw_len} decompressed bytes, {} items and {} bytes of text",
            self.items, self.text_bytes
        );
        let expected = "a body of as many bytes as its content is worth";
        Err(FormatError::invalid(0, expected, found))
    }
}

/// What one file may cost its reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLimits {
    /// Chunks that it has room for.
    pub(crate) chunks: u64,
    /// Memory that its definitions may take, bytes.
    pub(crate) definitions_memory: u64,
    /// Ids of its definitions are below this.
    pub(crate) ids: u64,
    /// Bytes of damaged heads that a scan reads before it stops.
    pub(crate) damaged_heads: u64,
}

impl FileLimits {
    /// The limits of a file of this length.
    pub(crate) const fn of_length(length: u64) -> Self {
        let memory = length.saturating_mul(DEFINITIONS_MEMORY_PER_BYTE);
        let memory = memory.saturating_add(FREE_DEFINITIONS_MEMORY);
        let heads = length.saturating_mul(DAMAGED_HEADS_PER_BYTE);
        Self {
            chunks: length / crate::block::BLOCK_HEADER_LEN as u64,
            definitions_memory: if memory < MAX_DEFINITIONS_MEMORY {
                memory
            } else {
                MAX_DEFINITIONS_MEMORY
            },
            ids: length.saturating_mul(IDS_PER_BYTE).saturating_add(FREE_IDS),
            damaged_heads: heads.saturating_add(FREE_DAMAGED_HEADS),
        }
    }

    /// The limits of a file as it is now.
    pub(crate) fn of(file: &dyn ReadAt) -> Result<Self> {
        file.len().map(Self::of_length)
    }
}
