//! Rows that have values of bins of time, in blocks of their kind.

use crate::block::BlockKind;
use crate::error::{FormatError, Result};
use crate::ints::{put_ints, read_ints};
use crate::limits::Content;
use crate::wire::{Put, Wire};

/// Most rows of a block.
pub const MAX_OVERVIEW_ROWS: usize = 1 << 16;

/// A row with values of a bin of time. The rows of each such type are in blocks of a kind.
pub trait BinRow: Copy + 'static {
    /// The kind of the blocks.
    const KIND: BlockKind;
    /// The order of the rows, for messages.
    const ORDER: &'static str;
    /// A number for each column: an array.
    type Values: AsRef<[u64]> + AsMut<[u64]> + Default;
    /// A block in the footer's list.
    type Entry: PartialEq;
    /// What rows are in order of.
    type Key: Ord;

    /// Returns what the rows of a block are in order of. None is there twice.
    fn key(&self) -> Self::Key;

    /// Returns its numbers.
    fn values(&self) -> Self::Values;

    /// Returns the row with these numbers.
    ///
    /// # Errors
    /// If a number is none of its column.
    fn of(values: &Self::Values) -> Result<Self>;

    /// Returns the entry of the block at an offset with these rows, which must be in order. `None` without rows.
    fn entry(offset: u64, rows: &[Self]) -> Option<Self::Entry>;

    /// Returns where the block of an entry is.
    fn offset(entry: &Self::Entry) -> u64;
}

/// Appends the head and the body of the block of some rows, which must be in order. Returns what the body has beyond its bytes.
pub fn encode_bins<R: BinRow>(rows: &[R], head: &mut Vec<u8>, body: &mut Vec<u8>) -> Content {
    head.put_varint(rows.len() as u64);
    for column in 0..R::Values::default().as_ref().len() {
        let values = rows.iter().map(|row| row.values().as_ref()[column]);
        put_ints(&values.collect::<Vec<u64>>(), body);
    }
    content(rows)
}

pub(crate) const fn content<R>(rows: &[R]) -> Content {
    Content {
        items: rows.len() as u64,
        text_bytes: 0,
    }
}

/// Reads the head and the body of a block of rows.
///
/// # Errors
/// If they end early, contradict the format or go beyond its limits.
pub fn decode_bins<R: BinRow>(head: &[u8], body: &[u8]) -> Result<Vec<R>> {
    let count = Wire::new(head).varint("number of rows")?;
    if count > MAX_OVERVIEW_ROWS as u64 {
        return Err(FormatError::invalid(0, "at most 65536 rows", count));
    }
    let mut w = Wire::new(body);
    let mut values = R::Values::default();
    let columns = values
        .as_ref()
        .iter()
        .map(|_| read_ints(&mut w, count as usize));
    let columns: Vec<Vec<u64>> = columns.collect::<Result<_>>()?;
    let row = |at: usize| {
        let row = values.as_mut().iter_mut().zip(&columns);
        row.for_each(|(value, column)| *value = column[at]);
        R::of(&values)
    };
    let rows: Vec<R> = (0..count as usize).map(row).collect::<Result<_>>()?;
    match rows.is_sorted_by(|a, b| a.key() < b.key()) {
        true => Ok(rows),
        false => Err(FormatError::invalid(0, R::ORDER, "others")),
    }
}

/// Returns a number of 32 bits.
pub(crate) fn number_of(number: u64, expected: &'static str) -> Result<u32> {
    u32::try_from(number).map_err(|_| FormatError::invalid(0, expected, number))
}
