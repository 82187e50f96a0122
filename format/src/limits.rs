//! Bounds on a reader's time and memory for each stored byte of a file (SPEC.md, Limits).
//!
//! Columns of equal values and zstd make a few bytes into millions of values. A block therefore stores at least as many
//! bytes as its content is worth: [`Content::least_stored`]. A writer whose encoding is shorter adds zero bytes.

use crate::error::{FormatError, Result};

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
/// A reader's work for the body of a block, in addition to its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Content {
    /// Events and element values of a chunk or trace chunk; locations and steps of a snapshot; regions and buckets of
    /// the statistics.
    pub items: u64,
    /// Bytes of all strings and bytes of a chunk or trace chunk, each dictionary entry counted as often as it is used.
    pub text_bytes: u64,
}

impl Content {
    /// Returns the least length that a body with this content is stored in, bytes; `raw_len` is its decompressed
    /// length.
    pub(crate) fn least_stored(self, raw_len: usize) -> u64 {
        let beyond = |count: u64, free: u64, each: u64| count.saturating_sub(free).div_ceil(each);
        beyond(raw_len as u64, FREE_BYTES, BYTES_PER_STORED_BYTE)
            .max(beyond(self.items, FREE_ITEMS, ITEMS_PER_STORED_BYTE))
            .max(beyond(self.text_bytes, FREE_TEXT, TEXT_PER_STORED_BYTE))
    }

    /// Returns the most items that a body of this stored length may have.
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
