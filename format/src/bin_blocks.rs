//! Blocks of rows that have values of bins of time: their list in the footer.

use crate::error::{FormatError, Result};
use crate::overview::{LaneKind, level_of};
use crate::wire::{Put, Wire};

/// The level of a row's bin, what its values are of, and the bin's number: rows are in this order.
pub type BinKey = (u8, LaneKind, i64);

/// A block of such rows in the footer's list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BinBlock {
    /// Offset of the block in the file.
    pub offset: u64,
    /// Key of its first row.
    pub first: BinKey,
    /// Key of its last row.
    pub last: BinKey,
}

impl BinBlock {
    /// Returns the entry of a block from the keys of its rows.
    pub(crate) fn of<R>(offset: u64, rows: &[R], key: impl Fn(&R) -> BinKey) -> Option<Self> {
        Some(Self {
            offset,
            first: key(rows.first()?),
            last: key(rows.last()?),
        })
    }

    /// Least number of bytes of an entry, with its length.
    pub(crate) const LEAST_BYTES: usize = 8;

    /// Returns whether the block may have rows of some bins of a level: from one to before another.
    pub fn may_have(&self, level: u8, kind: LaneKind, from: i64, to: i64) -> bool {
        self.first < (level, kind, to) && (level, kind, from) <= self.last
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.offset);
        for (level, kind, bin) in [self.first, self.last] {
            out.put_varint(level.into());
            out.put_varint(kind.code());
            out.put_signed(bin);
        }
    }

    pub(crate) fn decode(w: &mut Wire<'_>) -> Result<Self> {
        let offset = w.varint("offset of a block of bins")?;
        let mut key = || {
            let level = level_of(w.varint("level of a bin")?)?;
            let kind = kind_of(w.varint("kind of a group")?)?;
            Ok((level, kind, w.signed("number of a bin")?))
        };
        Ok(Self {
            offset,
            first: key()?,
            last: key()?,
        })
    }
}

/// Encodes the list of blocks.
pub(crate) fn encode_blocks(blocks: &[BinBlock], out: &mut Vec<u8>) {
    out.put_varint(blocks.len() as u64);
    for block in blocks {
        let mut fields = Vec::new();
        block.encode(&mut fields);
        out.put_bytes(&fields);
    }
}

/// Decodes the list of blocks, which must be in the order of their places and of their rows: none is there twice.
pub(crate) fn decode_blocks(w: &mut Wire<'_>) -> Result<Vec<BinBlock>> {
    let count = w.count(BinBlock::LEAST_BYTES, "number of blocks of bins")?;
    let mut blocks: Vec<BinBlock> = Vec::new();
    for _ in 0..count {
        let start = w.position();
        let block = BinBlock::decode(&mut Wire::new(w.bytes("entry of a block of bins")?))?;
        let follows = |last: &BinBlock| last.offset < block.offset && last.last <= block.first;
        if blocks.last().is_some_and(|last| !follows(last)) {
            let expected = "blocks of bins in the order of the file and of their rows";
            return Err(FormatError::invalid(start, expected, block.offset));
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// Returns the kind of a group with a code.
pub(crate) fn kind_of(code: u64) -> Result<LaneKind> {
    let invalid = || FormatError::invalid(0, "a kind of lane", code);
    LaneKind::from_code(code).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overview::MAX_BIN_LEVEL;

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_written(
            keys in prop::collection::vec((0..=MAX_BIN_LEVEL, 0..5_u64, any::<i64>()), 0..20),
        ) {
            let blocks = keys.iter().map(|(level, code, bin)| {
                let key = (*level, kind_of(*code).expect("a kind"), *bin);
                BinBlock { offset: 0, first: key, last: key }
            });
            let mut blocks: Vec<BinBlock> = blocks.collect();
            blocks.sort_by_key(|block| block.first);
            (0..).zip(&mut blocks).for_each(|(offset, block)| block.offset = offset);
            let mut bytes = Vec::new();
            encode_blocks(&blocks, &mut bytes);
            prop_assert_eq!(&decode_blocks(&mut Wire::new(&bytes)).expect("blocks"), &blocks);
            if blocks.len() > 1 {
                blocks[1].offset = 0;
                bytes.clear();
                encode_blocks(&blocks, &mut bytes);
                prop_assert!(decode_blocks(&mut Wire::new(&bytes)).is_err());
            }
        }

        #[test]
        fn no_bytes_make_the_list_panic(bytes: Vec<u8>) {
            let _ = decode_blocks(&mut Wire::new(&bytes));
        }
    }

    #[test]
    fn a_block_may_have_what_is_between_its_keys() {
        let block = BinBlock {
            offset: 9,
            first: (3, LaneKind::Location, 5),
            last: (4, LaneKind::Location, 2),
        };
        assert!(block.may_have(3, LaneKind::Location, 5, 6));
        assert!(block.may_have(3, LaneKind::All, -7, -6));
        assert!(block.may_have(4, LaneKind::Location, 2, 9));
        assert!(!block.may_have(3, LaneKind::Location, 0, 5));
        assert!(!block.may_have(4, LaneKind::Location, 3, 9));
        assert!(!block.may_have(4, LaneKind::Host, 0, 9));
    }
}
