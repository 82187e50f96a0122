//! Limits of a reader's work for one file, in chunks, definitions and damaged heads (SPEC.md,
//! Limits).

use crate::block::BLOCK_HEADER_LEN;
use crate::error::Result;
use crate::read::ReadAt;

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

/// Limits of a reader's work for one file.
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
    /// Returns the limits of a file of this length.
    pub(crate) const fn of_length(length: u64) -> Self {
        let memory = length.saturating_mul(DEFINITIONS_MEMORY_PER_BYTE);
        let memory = memory.saturating_add(FREE_DEFINITIONS_MEMORY);
        let heads = length.saturating_mul(DAMAGED_HEADS_PER_BYTE);
        Self {
            chunks: length / BLOCK_HEADER_LEN as u64,
            definitions_memory: if memory < MAX_DEFINITIONS_MEMORY {
                memory
            } else {
                MAX_DEFINITIONS_MEMORY
            },
            ids: length.saturating_mul(IDS_PER_BYTE).saturating_add(FREE_IDS),
            damaged_heads: heads.saturating_add(FREE_DAMAGED_HEADS),
        }
    }

    /// Returns the limits of a file by its current length.
    pub(crate) fn of(file: &dyn ReadAt) -> Result<Self> {
        file.len().map(Self::of_length)
    }
}
