//! The primitive encodings: little-endian integers, varints, length-prefixed bytes.

use byteorder::{ByteOrder, LittleEndian as LE};

use crate::error::{FormatError, Result};

/// Most bytes a 64-bit varint takes.
pub const MAX_VARINT_LEN: usize = 10;

/// Maps signed to unsigned so that small magnitudes stay small: 0, −1, 1, −2 → 0, 1, 2, 3.
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Returns the inverse of [`zigzag`].
pub const fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Appends values to a byte vector.
pub trait Put {
    /// Appends a LEB128 varint, seven bits a byte, least significant first.
    fn put_varint(&mut self, value: u64);
    /// Appends a zigzag varint.
    fn put_signed(&mut self, value: i64) {
        self.put_varint(zigzag(value));
    }
    /// Appends a varint length, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Appends a zigzag varint of 128 bits: unwrapped ticks can exceed 64.
    fn put_wide(&mut self, value: i128);
}

impl Put for Vec<u8> {
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.extend_from_slice(bytes);
    }

    fn put_wide(&mut self, value: i128) {
        let mut rest = ((value << 1) ^ (value >> 127)) as u128;
        while rest >= 0x80 {
            self.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.push(rest as u8);
    }
}

/// Returns the varint that the bytes of a little-endian word begin with, and its length; `None` if it is longer than
/// the word.
#[inline]
pub(crate) fn short_varint(word: u64) -> Option<(u64, usize)> {
    if word & 0x80 == 0 {
        return Some((word & 0x7f, 1));
    }
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    // All bytes up to the first without a continuation bit, seven bits each, pushed together: no branch
    // on the length, which jitters.
    let length = (ends.trailing_zeros() as usize + 1) / 8;
    let mut word = word & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    Some((
        word & 0x0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4,
        length,
    ))
}

/// Reads values off a byte slice, with the offset for errors.
#[derive(Clone, Debug)]
pub struct Wire<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Wire<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// Returns the number of bytes read so far.
    pub const fn position(&self) -> usize {
        self.position
    }

    /// Returns the number of bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.position
    }

    /// Returns whether everything has been read.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Skips bytes that were read directly from the slice.
    pub(crate) fn skip(&mut self, count: usize) {
        self.position = (self.position + count).min(self.bytes.len());
    }

    /// Returns whether these bytes come next.
    pub fn starts_with(&self, bytes: &[u8]) -> bool {
        self.bytes[self.position..].starts_with(bytes)
    }

    /// Takes the next `count` bytes.
    pub fn take(&mut self, count: usize, expected: &'static str) -> Result<&'a [u8]> {
        if count > self.remaining() {
            return Err(FormatError::UnexpectedEnd {
                offset: self.bytes.len() as u64,
                expected,
            });
        }
        let taken = &self.bytes[self.position..self.position + count];
        self.position += count;
        Ok(taken)
    }

    /// Takes an array of known size.
    pub fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N]> {
        let taken = self.take(N, expected)?;
        Ok(taken.try_into().expect("take returned N bytes"))
    }

    /// Takes one byte.
    pub fn u8(&mut self, expected: &'static str) -> Result<u8> {
        Ok(self.take(1, expected)?[0])
    }

    /// Takes two bytes, little-endian.
    pub fn u16(&mut self, expected: &'static str) -> Result<u16> {
        Ok(LE::read_u16(self.take(2, expected)?))
    }

    /// Takes four bytes, little-endian.
    pub fn u32(&mut self, expected: &'static str) -> Result<u32> {
        Ok(LE::read_u32(self.take(4, expected)?))
    }

    /// Takes eight bytes, little-endian.
    pub fn u64(&mut self, expected: &'static str) -> Result<u64> {
        Ok(LE::read_u64(self.take(8, expected)?))
    }

    /// Takes a varint of at most 64 bits.
    #[inline]
    pub fn varint(&mut self, expected: &'static str) -> Result<u64> {
        let start = self.position;
        let Some(bytes) = self.bytes.get(start..start + 8) else {
            return self.slow_varint(expected);
        };
        match short_varint(LE::read_u64(bytes)) {
            Some((value, length)) => {
                self.position += length;
                Ok(value)
            }
            None => self.slow_varint(expected),
        }
    }

    #[inline(never)]
    fn slow_varint(&mut self, expected: &'static str) -> Result<u64> {
        let start = self.position;
        let mut value = 0_u64;
        for index in 0..MAX_VARINT_LEN {
            let byte = self.u8(expected)?;
            if index == MAX_VARINT_LEN - 1 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(FormatError::invalid(
            start,
            expected,
            "a varint longer than 64 bits",
        ))
    }

    /// Takes a zigzag varint.
    #[inline]
    pub fn signed(&mut self, expected: &'static str) -> Result<i64> {
        self.varint(expected).map(unzigzag)
    }

    /// Takes a zigzag varint of at most 128 bits.
    pub fn wide(&mut self, expected: &'static str) -> Result<i128> {
        let start = self.position;
        let mut value = 0_u128;
        for index in 0..19 {
            let byte = self.u8(expected)?;
            if index == 18 && byte > 3 {
                break;
            }
            value |= u128::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(((value >> 1) as i128) ^ -((value & 1) as i128));
            }
        }
        Err(FormatError::invalid(
            start,
            expected,
            "a varint longer than 128 bits",
        ))
    }

    /// Takes a varint that must fit 32 bits: ids and small counts.
    pub fn varint_u32(&mut self, expected: &'static str) -> Result<u32> {
        let start = self.position;
        let value = self.varint(expected)?;
        u32::try_from(value)
            .map_err(|_| FormatError::invalid(start, expected, format!("{value}, beyond 32 bits")))
    }

    /// Takes a varint count of things that follow and take at least `least_bytes` each: a count
    /// that the rest of the bytes cannot hold is refused before anything is allocated for it.
    pub fn count(&mut self, least_bytes: usize, expected: &'static str) -> Result<usize> {
        let start = self.position;
        let value = self.varint(expected)?;
        if value > (self.remaining() / least_bytes.max(1)) as u64 {
            return Err(FormatError::invalid(
                start,
                expected,
                format!("{value} items in {} bytes", self.remaining()),
            ));
        }
        Ok(value as usize)
    }

    /// Takes a varint length and that many bytes.
    pub fn bytes(&mut self, expected: &'static str) -> Result<&'a [u8]> {
        let length = self.count(1, expected)?;
        self.take(length, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, signed: i64, wide: i128) {
            let mut bytes = Vec::new();
            bytes.put_varint(value);
            bytes.put_signed(signed);
            bytes.put_wide(wide);
            let mut wire = Wire::new(&bytes);
            prop_assert_eq!(wire.varint("v").unwrap(), value);
            prop_assert_eq!(wire.signed("s").unwrap(), signed);
            prop_assert_eq!(wire.wide("w").unwrap(), wide);
            prop_assert!(wire.is_empty());
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            let mut wire = Wire::new(&bytes);
            while wire.varint("v").is_ok() {}
            let mut wire = Wire::new(&bytes);
            while wire.wide("w").is_ok() {}
            let mut wire = Wire::new(&bytes);
            while wire.bytes("b").is_ok() {}
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused() {
        let mut bytes = Vec::new();
        bytes.put_varint(u64::MAX);
        assert!(Wire::new(&bytes).count(1, "items").is_err());
    }
}
