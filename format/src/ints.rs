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

/// Integers of a column, in blocks: a column need not be stored as deltas to be encoded so.
trait Blocks {
    type Item: Word;

    fn len(&self) -> usize;

    /// Calls `each` with one block after the other.
    fn for_each(&self, each: impl FnMut(&[Self::Item]));
}

/// A number of a column, as it is in memory. Blocks are encoded in their own width: of narrow numbers, processors work on many at
/// a time.
pub trait Word: Copy + PartialEq {
    /// Returns the number as 64 bits, sign-extended if it is signed.
    fn word(self) -> u64;

    /// Returns the bits that one of them has, or both.
    #[must_use]
    fn or(self, other: Self) -> Self;
}

macro_rules! word {
    ($($kind:ty),*) => {$(
        impl Word for $kind {
            #[inline]
            fn word(self) -> u64 {
                self as u64
            }

            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }
        }
    )*};
}

word!(u16, u32, u64, i64);

impl Word for StreamId {
    #[inline]
    fn word(self) -> u64 {
        self.get().into()
    }

    #[inline]
    fn or(self, other: Self) -> Self {
        Self::new(self.get() | other.get())
    }
}

impl<T: Word> Blocks for [T] {
    type Item = T;

    fn len(&self) -> usize {
        self.len()
    }

    fn for_each(&self, each: impl FnMut(&[T])) {
        self.chunks(BLOCK).for_each(each);
    }
}

/// The difference of each value, except the first, to the previous one.
struct Deltas<'a, T>(&'a [T]);

impl<T: Word> Blocks for Deltas<'_, T> {
    type Item = u64;

    fn len(&self) -> usize {
        self.0.len() - 1
    }

    fn for_each(&self, mut each: impl FnMut(&[u64])) {
        let mut buffer = [0; BLOCK];
        for start in (0..self.len()).step_by(BLOCK) {
            let block = &mut buffer[..(self.len() - start).min(BLOCK)];
            let pairs = self.0[start..=start + block.len()].windows(2);
            for (place, pair) in block.iter_mut().zip(pairs) {
                *place = zigzag(pair[1].word().wrapping_sub(pair[0].word()) as i64);
            }
            each(block);
        }
    }
}

/// Differences that are known already, below 2³¹.
struct Steps<'a>(&'a [u32]);

impl Blocks for Steps<'_> {
    type Item = u32;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn for_each(&self, mut each: impl FnMut(&[u32])) {
        let mut buffer = [0; BLOCK];
        for steps in self.0.chunks(BLOCK) {
            let block = &mut buffer[..steps.len()];
            for (place, step) in block.iter_mut().zip(steps) {
                *place = step << 1;
            }
            each(block);
        }
    }
}

/// Returns base and width of a block. The base is the smallest value, read as signed; the width is
/// that of the offsets from it.
fn base_and_width<T: Word>(block: &[T]) -> (i64, u8) {
    let Some(first) = block.first() else {
        return (0, 0);
    };
    let bits = block.iter().fold(*first, |bits, value| bits.or(*value));
    if bits.word() < 1 << 15 {
        // The case of nearly all blocks, in numbers that processors compare many at a time.
        let (least, most) = block.iter().fold((i16::MAX, 0), |(least, most), value| {
            let value = value.word() as i16;
            (least.min(value), most.max(value))
        });
        return (least.into(), width_of((most - least) as u64));
    }
    let mut least = i64::MAX;
    let mut most = i64::MIN;
    for value in block {
        least = least.min(value.word() as i64);
        most = most.max(value.word() as i64);
    }
    (least, width_of((most as u64).wrapping_sub(least as u64)))
}

/// Returns base and width of each block.
fn ranges(values: &(impl Blocks + ?Sized)) -> Vec<(i64, u8)> {
    let mut ranges = Vec::with_capacity(values.len().div_ceil(BLOCK));
    values.for_each(|block| ranges.push(base_and_width(block)));
    ranges
}

/// Estimates the size in bytes of the blocks of a number of values.
fn length_in_blocks(count: usize, ranges: &[(i64, u8)]) -> usize {
    let mut length = 0;
    let mut left = count;
    for (_, width) in ranges {
        let here = left.min(BLOCK);
        length += 3 + usize::from(*width) * here;
        left -= here;
    }
    length
}

/// Appends blocks, whose base and width are known.
fn put_blocks(values: &(impl Blocks + ?Sized), ranges: &[(i64, u8)], out: &mut Vec<u8>) {
    let mut ranges = ranges.iter();
    values.for_each(|block| {
        let known = ranges.next().copied();
        let (base, width) = known.unwrap_or_else(|| base_and_width(block));
        out.put_signed(base);
        out.push(width);
        let low = base as u64;
        let values = block.iter().map(|value| value.word());
        match width {
            0 => {}
            1 => out.extend(values.map(|value| value.wrapping_sub(low) as u8)),
            2 => put_fixed(
                values.map(|value| (value.wrapping_sub(low) as u16).to_le_bytes()),
                out,
            ),
            4 => put_fixed(
                values.map(|value| (value.wrapping_sub(low) as u32).to_le_bytes()),
                out,
            ),
            _ => put_fixed(
                values.map(|value| value.wrapping_sub(low).to_le_bytes()),
                out,
            ),
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
    put_best(values, true, out);
}

/// Appends integers like [`put_ints`], for columns with few distinct numbers (event types, streams): deltas are only
/// tried for short columns.
pub(crate) fn put_codes<T: Word>(values: &[T], out: &mut Vec<u8>) {
    put_best(values, values.len() < BLOCK, out);
}

fn put_best<T: Word>(values: &[T], tries_deltas: bool, out: &mut Vec<u8>) {
    let Some(first) = values.first().map(|first| first.word() as i64) else {
        return;
    };
    let plain = ranges(values);
    if plain.iter().all(|range| *range == (first, 0)) {
        out.push(CONSTANT);
        out.put_signed(first);
        return;
    }
    let plain_len = length_in_blocks(values.len(), &plain);
    // Below two bytes a value, deltas cannot gain what they cost to undo.
    if tries_deltas && plain_len > values.len() * 5 / 4 {
        let deltas = ranges(&Deltas(values));
        if length_in_blocks(values.len() - 1, &deltas) < plain_len {
            put_deltas(first, &Deltas(values), &deltas, out);
            return;
        }
    }
    out.push(PLAIN);
    put_blocks(values, &plain, out);
}

fn put_deltas(first: i64, deltas: &impl Blocks, ranges: &[(i64, u8)], out: &mut Vec<u8>) {
    out.push(DELTA);
    out.put_signed(first);
    put_blocks(deltas, ranges, out);
}

/// Appends a column that is known to grow slowly (ticks, times): as deltas, without looking further.
pub fn put_growing<T: Word>(values: &[T], out: &mut Vec<u8>) {
    if let Some(first) = values.first() {
        put_deltas(first.word() as i64, &Deltas(values), &[], out);
    }
}

/// Appends a column like [`put_growing`], from its first value and the steps to the others, each below 2³¹.
pub(crate) fn put_steps(first: u64, steps: &[u32], out: &mut Vec<u8>) {
    put_deltas(first as i64, &Steps(steps), &[], out);
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
            put_blocks(values.as_slice(), &[], &mut plain);
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
