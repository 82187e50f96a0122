//! Integers of a column, each block of them in the cheapest fitting encoding, and in memory no wider
//! than they are in the file.

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::cache::fetch_ahead;
use crate::error::{FormatError, Result};
use crate::ids::StreamId;
use crate::wire::{Put, Wire, unzigzag, zigzag};

/// Values that share a base and a width.
const BLOCK: usize = 256;

const CONSTANT: u8 = 0;
const PLAIN: u8 = 1;
const DELTA: u8 = 2;

const WIDTHS: [u8; 5] = [0, 1, 2, 4, 8];

/// Returns the narrowest width in bytes, out of 0, 1, 2, 4, 8, that holds values up to `largest`.
const fn width_of(largest: u64) -> u8 {
    match largest {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Integers of a column, read in blocks: a column need not be 64 bits wide in memory, nor be stored as deltas, to be
/// encoded.
trait Blocks {
    fn len(&self) -> usize;

    /// Fills `block` with the values from index `start` on; `block` is no longer than what there is.
    fn fill(&self, start: usize, block: &mut [u64]);

    /// Calls `each` with one block after the other.
    fn for_each(&self, mut each: impl FnMut(&[u64])) {
        let mut buffer = [0; BLOCK];
        for start in (0..self.len()).step_by(BLOCK) {
            let block = &mut buffer[..(self.len() - start).min(BLOCK)];
            self.fill(start, block);
            each(block);
        }
    }
}

/// A number of a column, as it is in memory.
pub trait Word: Copy + PartialEq {
    /// Returns the number as 64 bits, sign-extended if it is signed.
    fn word(self) -> u64;
}

impl Word for u64 {
    #[inline]
    fn word(self) -> u64 {
        self
    }
}

impl Word for i64 {
    #[inline]
    fn word(self) -> u64 {
        self as u64
    }
}

impl Word for u32 {
    #[inline]
    fn word(self) -> u64 {
        self.into()
    }
}

impl Word for u16 {
    #[inline]
    fn word(self) -> u64 {
        self.into()
    }
}

impl Word for StreamId {
    #[inline]
    fn word(self) -> u64 {
        self.get().into()
    }
}

impl<T: Word> Blocks for [T] {
    fn len(&self) -> usize {
        self.len()
    }

    fn fill(&self, start: usize, block: &mut [u64]) {
        let values = &self[start..start + block.len()];
        for (place, value) in block.iter_mut().zip(values) {
            *place = value.word();
        }
    }
}

/// The difference of each value, except the first, to the previous one.
struct Deltas<'a, T>(&'a [T]);

impl<T: Word> Blocks for Deltas<'_, T> {
    fn len(&self) -> usize {
        self.0.len() - 1
    }

    fn fill(&self, start: usize, block: &mut [u64]) {
        let pairs = self.0[start..=start + block.len()].windows(2);
        for (place, pair) in block.iter_mut().zip(pairs) {
            *place = zigzag(pair[1].word().wrapping_sub(pair[0].word()) as i64);
        }
    }
}

/// Returns base and width of a block. The base is the smallest value, read as signed; the width is
/// that of the offsets from it.
fn base_and_width(block: &[u64]) -> (i64, u8) {
    let bits = block.iter().fold(0, |bits, value| bits | value);
    if bits < 1 << 15 {
        // The case of nearly all blocks, in numbers that processors compare many at a time.
        let (least, most) = block.iter().fold((i16::MAX, 0), |(least, most), value| {
            let value = *value as i16;
            (least.min(value), most.max(value))
        });
        return (least.into(), width_of((most - least) as u64));
    }
    let mut least = i64::MAX;
    let mut most = i64::MIN;
    for &value in block {
        least = least.min(value as i64);
        most = most.max(value as i64);
    }
    (least, width_of((most as u64).wrapping_sub(least as u64)))
}

/// Estimates the size of a column's blocks in bytes.
fn length_in_blocks(values: &(impl Blocks + ?Sized)) -> usize {
    let mut length = 0;
    values.for_each(|block| length += 3 + usize::from(base_and_width(block).1) * block.len());
    length
}

fn put_blocks(values: &(impl Blocks + ?Sized), out: &mut Vec<u8>) {
    values.for_each(|block| {
        let (base, width) = base_and_width(block);
        out.put_signed(base);
        out.push(width);
        let offsets = block.iter().map(|value| value.wrapping_sub(base as u64));
        match width {
            0 => {}
            1 => put_fixed(offsets.map(|offset| [offset as u8]), out),
            2 => put_fixed(offsets.map(|offset| (offset as u16).to_le_bytes()), out),
            4 => put_fixed(offsets.map(|offset| (offset as u32).to_le_bytes()), out),
            _ => put_fixed(offsets.map(u64::to_le_bytes), out),
        }
    });
}

fn put_fixed<const N: usize>(values: impl ExactSizeIterator<Item = [u8; N]>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + values.len() * N, 0);
    for (place, value) in out[start..].chunks_exact_mut(N).zip(values) {
        place.copy_from_slice(&value);
    }
}

/// Appends a column of integers (for signed ones: sign-extended). The count is known to the reader.
pub fn put_ints<T: Word>(values: &[T], out: &mut Vec<u8>) {
    if put_if_constant(values, out) {
        return;
    }
    let plain_len = length_in_blocks(values);
    // Below two bytes a value, deltas cannot gain what they cost to undo.
    if plain_len > values.len() * 5 / 4 && length_in_blocks(&Deltas(values)) < plain_len {
        put_growing(values, out);
        return;
    }
    out.push(PLAIN);
    put_blocks(values, out);
}

/// Appends integers like [`put_ints`], for columns with few distinct numbers (event types, streams): deltas are only
/// tried for short columns.
pub(crate) fn put_codes<T: Word>(values: &[T], out: &mut Vec<u8>) {
    if values.len() < BLOCK {
        put_ints(values, out);
    } else if !put_if_constant(values, out) {
        out.push(PLAIN);
        put_blocks(values, out);
    }
}

/// Appends a column that has no values, or one value only; false when it has several.
fn put_if_constant<T: Word>(values: &[T], out: &mut Vec<u8>) -> bool {
    let Some(&first) = values.first() else {
        return true;
    };
    let is_constant = values.iter().all(|value| *value == first);
    if is_constant {
        put_constant(first.word(), out);
    }
    is_constant
}

fn put_constant(value: u64, out: &mut Vec<u8>) {
    out.push(CONSTANT);
    out.put_signed(value as i64);
}

/// Appends a column that is known to grow slowly (ticks, times): as deltas, without looking further.
pub fn put_growing<T: Word>(values: &[T], out: &mut Vec<u8>) {
    let Some(first) = values.first() else { return };
    out.push(DELTA);
    out.put_signed(first.word() as i64);
    put_blocks(&Deltas(values), out);
}

/// Integers of a column, no wider in memory than their range asks for: chunks of many streams wait in memory while
/// they are merged.
#[derive(Clone, Debug)]
pub struct Ints {
    /// The base to which every offset is added.
    base: u64,
    offsets: Offsets,
}

#[derive(Clone, Debug)]
enum Offsets {
    /// The given number of zeros.
    Same(usize),
    Bytes(Vec<u8>),
    Halves(Vec<u16>),
    Words(Vec<u32>),
    Whole(Vec<u64>),
}

impl Default for Ints {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u64>> for Ints {
    fn from(values: Vec<u64>) -> Self {
        Self {
            base: 0,
            offsets: Offsets::Whole(values),
        }
    }
}

impl PartialEq for Ints {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && (0..self.len()).all(|index| self.get(index) == other.get(index))
    }
}

impl Eq for Ints {}

impl Ints {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        match &self.offsets {
            Offsets::Same(count) => *count,
            Offsets::Bytes(offsets) => offsets.len(),
            Offsets::Halves(offsets) => offsets.len(),
            Offsets::Words(offsets) => offsets.len(),
            Offsets::Whole(offsets) => offsets.len(),
        }
    }

    /// Returns the value at `index`.
    ///
    /// # Panics
    /// If there are fewer values.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        let offset = match &self.offsets {
            Offsets::Same(count) => {
                assert!(index < *count, "a value of the column");
                0
            }
            Offsets::Bytes(offsets) => offsets[index].into(),
            Offsets::Halves(offsets) => offsets[index].into(),
            Offsets::Words(offsets) => offsets[index].into(),
            Offsets::Whole(offsets) => offsets[index],
        };
        self.base.wrapping_add(offset)
    }

    /// Has the processor fetch the value at `index`, if there is one: it is wanted soon.
    #[inline]
    pub fn fetch_ahead(&self, index: usize) {
        match &self.offsets {
            Offsets::Same(_) => {}
            Offsets::Bytes(offsets) => fetch_ahead(offsets, index),
            Offsets::Halves(offsets) => fetch_ahead(offsets, index),
            Offsets::Words(offsets) => fetch_ahead(offsets, index),
            Offsets::Whole(offsets) => fetch_ahead(offsets, index),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Appends the values with these indexes.
    ///
    /// # Panics
    /// If there are fewer values.
    pub fn extend_into(&self, range: std::ops::Range<usize>, values: &mut Vec<u64>) {
        let base = self.base;
        match &self.offsets {
            Offsets::Same(count) => {
                assert!(range.end <= *count, "values of the column");
                values.resize(values.len() + range.len(), base);
            }
            Offsets::Bytes(offsets) => {
                values.extend(
                    offsets[range]
                        .iter()
                        .map(|o| base.wrapping_add((*o).into())),
                );
            }
            Offsets::Halves(offsets) => {
                values.extend(
                    offsets[range]
                        .iter()
                        .map(|o| base.wrapping_add((*o).into())),
                );
            }
            Offsets::Words(offsets) => {
                values.extend(
                    offsets[range]
                        .iter()
                        .map(|o| base.wrapping_add((*o).into())),
                );
            }
            Offsets::Whole(offsets) => {
                values.extend(offsets[range].iter().map(|o| base.wrapping_add(*o)));
            }
        }
    }

    /// Returns the values in words, to be changed.
    #[inline]
    pub(crate) fn wide(&mut self) -> &mut Vec<u64> {
        if !matches!((self.base, &self.offsets), (0, Offsets::Whole(_))) {
            let mut values = Vec::with_capacity(self.len());
            self.extend_into(0..self.len(), &mut values);
            *self = Self::from(values);
        }
        match &mut self.offsets {
            Offsets::Whole(values) => values,
            _ => unreachable!("made whole above"),
        }
    }

    /// Reads a column of `count` integers.
    ///
    /// # Errors
    /// If the column ends early or its encoding is unknown.
    pub(crate) fn read(wire: &mut Wire<'_>, count: usize) -> Result<Self> {
        if count == 0 {
            return Ok(Self::default());
        }
        let start = wire.position();
        match wire.u8("encoding of a column")? {
            CONSTANT => Ok(Self {
                base: wire.signed("value of a column")? as u64,
                offsets: Offsets::Same(count),
            }),
            PLAIN => Self::read_plain(wire, count),
            DELTA => {
                let first = wire.signed("first value of a column")? as u64;
                let mut values = Vec::with_capacity(count);
                values.push(first);
                let mut previous = first;
                each_block(wire, count - 1, |base, width, bytes, length| {
                    let start = values.len();
                    extend(&mut values, base, width, bytes, length);
                    for value in &mut values[start..] {
                        previous = previous.wrapping_add(unzigzag(*value) as u64);
                        *value = previous;
                    }
                })?;
                Ok(values.into())
            }
            other => Err(FormatError::invalid(
                start,
                "column encoding 0 (constant), 1 (plain) or 2 (delta)",
                other,
            )),
        }
    }

    fn read_plain(wire: &mut Wire<'_>, count: usize) -> Result<Self> {
        // First the range of all blocks.
        let mut ahead = wire.clone();
        let mut least = i64::MAX;
        let mut most = i128::from(i64::MIN);
        each_block(&mut ahead, count, |base, width, bytes, _| {
            let span = match width {
                0 => 0,
                1 => bytes
                    .iter()
                    .map(|byte| u32::from(*byte))
                    .max()
                    .map_or(0, i128::from),
                2 => bytes
                    .chunks_exact(2)
                    .map(LE::read_u16)
                    .max()
                    .map_or(0, i128::from),
                4 => bytes
                    .chunks_exact(4)
                    .map(LE::read_u32)
                    .max()
                    .map_or(0, i128::from),
                _ => i128::from(u64::MAX),
            };
            least = least.min(base as i64);
            most = most.max(i128::from(base as i64) + span);
        })?;
        let base = least as u64;
        let range = u64::try_from(most - i128::from(least)).unwrap_or(u64::MAX);
        let offsets = match width_of(range) {
            0 | 1 => {
                let mut values: Vec<u8> = Vec::with_capacity(count);
                each_block(wire, count, |block, width, bytes, length| {
                    let shift = block.wrapping_sub(base) as u8;
                    match width {
                        0 => values.resize(values.len() + length, shift),
                        _ => values.extend(bytes.iter().map(|byte| shift.wrapping_add(*byte))),
                    }
                })?;
                Offsets::Bytes(values)
            }
            2 => {
                let mut values: Vec<u16> = Vec::with_capacity(count);
                each_block(wire, count, |block, width, bytes, length| {
                    let shift = block.wrapping_sub(base) as u16;
                    match width {
                        0 => values.resize(values.len() + length, shift),
                        1 => values.extend(bytes.iter().map(|b| shift.wrapping_add((*b).into()))),
                        _ => values.extend(
                            (bytes.chunks_exact(2)).map(|b| shift.wrapping_add(LE::read_u16(b))),
                        ),
                    }
                })?;
                Offsets::Halves(values)
            }
            4 => {
                let mut values: Vec<u32> = Vec::with_capacity(count);
                each_block(wire, count, |block, width, bytes, length| {
                    let shift = block.wrapping_sub(base) as u32;
                    match width {
                        0 => values.resize(values.len() + length, shift),
                        1 => values.extend(bytes.iter().map(|b| shift.wrapping_add((*b).into()))),
                        2 => values.extend(
                            (bytes.chunks_exact(2))
                                .map(|b| shift.wrapping_add(LE::read_u16(b).into())),
                        ),
                        _ => values.extend(
                            (bytes.chunks_exact(4)).map(|b| shift.wrapping_add(LE::read_u32(b))),
                        ),
                    }
                })?;
                Offsets::Words(values)
            }
            _ => {
                let mut values = Vec::with_capacity(count);
                each_block(wire, count, |block, width, bytes, length| {
                    extend(&mut values, block, width, bytes, length);
                })?;
                return Ok(values.into());
            }
        };
        Ok(Self { base, offsets })
    }

    /// Appends the column.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match (&self.offsets, self.base) {
            (Offsets::Whole(values), 0) => put_ints(values, out),
            _ => put_ints(&self.iter().collect::<Vec<u64>>(), out),
        }
    }
}

/// Calls `each` with base, width, bytes and length of the blocks of `count` integers.
fn each_block(
    wire: &mut Wire<'_>,
    count: usize,
    mut each: impl FnMut(u64, u8, &[u8], usize),
) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let length = left.min(BLOCK);
        let base = wire.signed("base of a block")? as u64;
        let start = wire.position();
        let width = wire.u8("width of a block")?;
        if !WIDTHS.contains(&width) {
            return Err(FormatError::invalid(start, "width 0, 1, 2, 4 or 8", width));
        }
        let bytes = wire.take(length * usize::from(width), "values of a block")?;
        each(base, width, bytes, length);
        left -= length;
    }
    Ok(())
}

fn extend(values: &mut Vec<u64>, base: u64, width: u8, bytes: &[u8], length: usize) {
    match width {
        0 => values.resize(values.len() + length, base),
        1 => values.extend(bytes.iter().map(|b| base.wrapping_add(u64::from(*b)))),
        2 => values
            .extend((bytes.chunks_exact(2)).map(|b| base.wrapping_add(u64::from(LE::read_u16(b))))),
        4 => values
            .extend((bytes.chunks_exact(4)).map(|b| base.wrapping_add(u64::from(LE::read_u32(b))))),
        _ => values.extend((bytes.chunks_exact(8)).map(|b| base.wrapping_add(LE::read_u64(b)))),
    }
}

/// Reads a column of `count` integers.
///
/// # Errors
/// If the column ends early or its encoding is unknown.
pub fn read_ints(wire: &mut Wire<'_>, count: usize) -> Result<Vec<u64>> {
    let mut ints = Ints::read(wire, count)?;
    Ok(std::mem::take(ints.wide()))
}

#[cfg(test)]
pub(crate) mod testing {
    use proptest::prelude::*;

    /// Integers at the borders of everything.
    pub(crate) fn interesting() -> impl Strategy<Value = u64> {
        prop_oneof![
            Just(0),
            Just(u64::MAX),
            Just(1 << 63),
            0..200_u64,
            any::<u64>(),
            any::<i16>().prop_map(|v| i64::from(v) as u64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::testing::interesting;
    use super::*;
    use proptest::prelude::*;

    /// Generates values whose blocks have different ranges.
    fn in_ranges() -> impl Strategy<Value = Vec<u64>> {
        let block = (
            interesting(),
            0..4_u32,
            prop::collection::vec(any::<u64>(), BLOCK),
        );
        let block = block.prop_map(|(base, width, offsets)| {
            let mask = (1_u64 << (8 * (1 << width) % 64)) - 1;
            let each = offsets.into_iter();
            each.map(|offset| base.wrapping_add(offset & mask))
                .collect::<Vec<u64>>()
        });
        prop::collection::vec(block, 1..4).prop_map(|blocks| blocks.concat())
    }

    proptest! {
        #[test]
        fn columns_round_trip(
            values in prop_oneof![prop::collection::vec(interesting(), 0..900), in_ranges()],
        ) {
            for put in [put_ints::<u64>, put_growing::<u64>] {
                let mut out = Vec::new();
                put(&values, &mut out);
                let mut wire = Wire::new(&out);
                let mut read = Ints::read(&mut wire, values.len()).unwrap();
                prop_assert!(wire.is_empty());
                prop_assert!(read.iter().eq(values.iter().copied()));
                let mut again = Vec::new();
                read.put(&mut again);
                let mut wire = Wire::new(&again);
                prop_assert_eq!(&read_ints(&mut wire, values.len()).unwrap(), &values);
                prop_assert_eq!(read.wide(), &values);
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, count in 0..2000_usize) {
            let _ = read_ints(&mut Wire::new(&bytes), count);
        }
    }

    #[test]
    fn small_numbers_take_little_memory() {
        for (largest, expected) in [(256_u64, 1), (60_000, 2), (1 << 22, 4)] {
            let values: Vec<u64> = (0..1024).map(|n| (1 << 40) + n * 7919 % largest).collect();
            let mut plain = vec![PLAIN];
            put_blocks(values.as_slice(), &mut plain);
            let read = Ints::read(&mut Wire::new(&plain), 1024).unwrap();
            let bytes = match read.offsets {
                Offsets::Bytes(_) => 1,
                Offsets::Halves(_) => 2,
                Offsets::Words(_) => 4,
                Offsets::Same(_) | Offsets::Whole(_) => 0,
            };
            assert_eq!(bytes, expected, "{largest}");
        }
    }
}
