//! Integers, text and typed values in the encoding of an archive's files.

use byteorder::{BE, ByteOrder, LE};

use super::describe::types;
use annals_format::{FormatError, Result};

/// The byte order of a chunk: it applies to integers of fixed width and to the bytes of compressed ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Endian {
    /// Least significant byte first: 0x42.
    #[default]
    Little,
    /// Most significant byte first: 0x23.
    Big,
}

impl Endian {
    /// Returns the order that a byte of a header names.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0x42 => Some(Self::Little),
            0x23 => Some(Self::Big),
            _ => None,
        }
    }

    /// Returns the byte in headers.
    pub const fn code(self) -> u8 {
        match self {
            Self::Little => 0x42,
            Self::Big => 0x23,
        }
    }
}

/// Reads from bytes; knows where it is.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Input<'a> {
    /// Creates an input at the start of bytes.
    pub const fn new(bytes: &'a [u8], endian: Endian) -> Self {
        Self {
            bytes,
            at: 0,
            endian,
        }
    }

    /// Returns how many bytes were taken.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Returns how many are left.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Sets the position; a position beyond the end becomes the end.
    pub fn seek(&mut self, at: usize) {
        self.at = at.min(self.bytes.len());
    }

    /// Reads on in another byte order.
    pub const fn set_endian(&mut self, endian: Endian) {
        self.endian = endian;
    }

    #[cold]
    fn end(&self, expected: &'static str) -> FormatError {
        FormatError::UnexpectedEnd {
            offset: self.bytes.len() as u64,
            expected,
        }
    }

    /// Returns the next bytes.
    ///
    /// # Errors
    /// If there are fewer bytes.
    #[inline]
    pub fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        match rest.get(..length) {
            Some(taken) => {
                self.at += length;
                Ok(taken)
            }
            None => Err(self.end(expected)),
        }
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// At the end.
    #[inline]
    pub fn u8(&mut self, expected: &'static str) -> Result<u8> {
        match self.bytes.get(self.at) {
            Some(byte) => {
                self.at += 1;
                Ok(*byte)
            }
            None => Err(self.end(expected)),
        }
    }

    /// Reads two bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u16(&mut self, expected: &'static str) -> Result<u16> {
        let bytes = self.take(2, expected)?;
        Ok(match self.endian {
            Endian::Little => LE::read_u16(bytes),
            Endian::Big => BE::read_u16(bytes),
        })
    }

    /// Reads four bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u32(&mut self, expected: &'static str) -> Result<u32> {
        let bytes = self.take(4, expected)?;
        Ok(match self.endian {
            Endian::Little => LE::read_u32(bytes),
            Endian::Big => BE::read_u32(bytes),
        })
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn u64(&mut self, expected: &'static str) -> Result<u64> {
        let bytes = self.take(8, expected)?;
        Ok(match self.endian {
            Endian::Little => LE::read_u64(bytes),
            Endian::Big => BE::read_u64(bytes),
        })
    }

    #[cold]
    fn bad_size(&self, size: u8) -> FormatError {
        FormatError::Invalid {
            offset: self.at as u64 - 1,
            expected: "the size of a compressed integer",
            found: size.to_string(),
        }
    }

    #[inline]
    fn compressed(&mut self, most: u8, expected: &'static str) -> Result<u64> {
        let size = self.u8(expected)?;
        match size {
            0 => return Ok(0),
            0xff => return Ok(u64::MAX >> (64 - 8 * u32::from(most))),
            size if size > most => return Err(self.bad_size(size)),
            _ => {}
        }
        let length = usize::from(size);
        // A single read of eight bytes, if there are enough.
        if let Some(wide) = self.bytes.get(self.at..self.at + 8) {
            self.at += length;
            let shift = 64 - 8 * u32::from(size);
            return Ok(match self.endian {
                Endian::Little => LE::read_u64(wide) << shift >> shift,
                Endian::Big => BE::read_u64(wide) >> shift,
            });
        }
        let bytes = self.take(length, expected)?;
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Ok(match self.endian {
            Endian::Little => bytes.iter().rev().fold(0, add),
            Endian::Big => bytes.iter().fold(0, add),
        })
    }

    /// Returns a compressed integer of at most 32 bits.
    ///
    /// # Errors
    /// If it ends early or its size is invalid.
    #[inline]
    pub fn c32(&mut self, expected: &'static str) -> Result<u32> {
        self.compressed(4, expected).map(|value| value as u32)
    }

    /// Returns a compressed integer of at most 64 bits.
    ///
    /// # Errors
    /// If it ends early or its size is invalid.
    #[inline]
    pub fn c64(&mut self, expected: &'static str) -> Result<u64> {
        self.compressed(8, expected)
    }

    /// Reads text up to its NUL.
    ///
    /// # Errors
    /// If there is no NUL.
    pub fn text(&mut self, expected: &'static str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| self.end(expected))?;
        self.at += end + 1;
        Ok(&rest[..end])
    }

    /// Returns a value by the code of its type: its bits, signed ones sign-extended to 64.
    ///
    /// # Errors
    /// If it ends early or its size is invalid.
    pub fn value(&mut self, type_code: u8) -> Result<u64> {
        const EXPECTED: &str = "a value";
        Ok(match type_code {
            types::UINT8 => self.u8(EXPECTED)?.into(),
            types::UINT16 => self.u16(EXPECTED)?.into(),
            types::INT8 => self.u8(EXPECTED)? as i8 as i64 as u64,
            types::INT16 => self.u16(EXPECTED)? as i16 as i64 as u64,
            types::INT32 => self.c32(EXPECTED)? as i32 as i64 as u64,
            types::FLOAT => self.u32(EXPECTED)?.into(),
            types::DOUBLE => self.u64(EXPECTED)?,
            types::UINT32 | 11 | 12 | 14..=25 => self.c32(EXPECTED)?.into(),
            _ => self.c64(EXPECTED)?,
        })
    }

    /// Returns the length of a record.
    ///
    /// # Errors
    /// If it ends early.
    #[inline]
    pub fn record_length(&mut self) -> Result<usize> {
        const EXPECTED: &str = "the length of a record";
        let short = self.u8(EXPECTED)?;
        if short != 0xff {
            return Ok(short.into());
        }
        let long = self.u64(EXPECTED)?;
        Ok(usize::try_from(long).unwrap_or(usize::MAX))
    }
}

/// Appends in the little-endian order that our writer uses.
pub trait Output {
    /// Appends a byte.
    fn put_byte(&mut self, byte: u8);
    /// Appends bytes unchanged.
    fn put_slice(&mut self, slice: &[u8]);
    /// Appends the size of an integer and its bytes, as few as possible.
    fn put_compressed(&mut self, value: u64);

    /// Appends eight bytes.
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.put_slice(&value.to_le_bytes());
    }

    /// Appends a compressed integer, in as few bytes as possible; all bits set (of 32) means
    /// undefined.
    #[inline]
    fn put_c32(&mut self, value: u32) {
        match value {
            u32::MAX => self.put_byte(0xff),
            value => self.put_compressed(value.into()),
        }
    }

    /// Appends a compressed integer, in as few bytes as possible; all bits set means undefined.
    #[inline]
    fn put_c64(&mut self, value: u64) {
        match value {
            u64::MAX => self.put_byte(0xff),
            value => self.put_compressed(value),
        }
    }

    /// Appends a compressed signed integer: negative ones take all eight bytes.
    #[inline]
    fn put_ci64(&mut self, value: i64) {
        self.put_compressed(value as u64);
    }

    /// Appends text and its NUL; a NUL within the text ends it.
    fn put_text(&mut self, text: &[u8]) {
        let end = text.iter().position(|byte| *byte == 0);
        self.put_slice(&text[..end.unwrap_or(text.len())]);
        self.put_byte(0);
    }

    /// Appends a value by the code of its type, from its bits.
    fn put_value(&mut self, type_code: u8, bits: u64) {
        match type_code {
            types::UINT8 | types::INT8 => self.put_byte(bits as u8),
            types::UINT16 | types::INT16 => self.put_slice(&(bits as u16).to_le_bytes()),
            // Signed, all bits set is a value and takes four bytes.
            types::INT32 => self.put_compressed(bits & 0xffff_ffff),
            types::FLOAT => self.put_slice(&(bits as u32).to_le_bytes()),
            types::DOUBLE => self.put_u64(bits),
            types::INT64 => self.put_ci64(bits as i64),
            types::UINT32 | 11 | 12 | 14..=25 => self.put_c32(bits as u32),
            _ => self.put_c64(bits),
        }
    }

    /// Appends the length of a record, in the long form if the record's maximum length does not fit the short form.
    fn put_record_length(&mut self, length: usize, at_most: usize) {
        if at_most < 255 && length < 255 {
            self.put_byte(length as u8);
        } else {
            self.put_byte(0xff);
            self.put_u64(length as u64);
        }
    }
}

impl Output for Vec<u8> {
    fn put_byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put_slice(&mut self, slice: &[u8]) {
        self.extend_from_slice(slice);
    }

    fn put_compressed(&mut self, value: u64) {
        let length = 8 - value.leading_zeros() as usize / 8;
        self.push(length as u8);
        self.extend_from_slice(&value.to_le_bytes()[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn compressed_integers_are_those_of_the_facts() {
        let mut out = Vec::new();
        out.put_c64(0);
        out.put_c64(200);
        out.put_c64(u64::MAX);
        out.put_ci64(200);
        out.put_ci64(-1);
        out.put_c32(u32::MAX);
        let expected = [&[0, 1, 0xc8, 0xff, 1, 0xc8, 8][..], &[0xff; 8], &[0xff]];
        assert_eq!(out, expected.concat());
        let mut input = Input::new(&[1, 0, 0xff, 2, 0, 1], Endian::Big);
        assert_eq!(
            input.c32("").unwrap(),
            0,
            "not minimal, as OTF2 1.x wrote it"
        );
        assert_eq!(input.c64("").unwrap(), u64::MAX);
        assert_eq!(input.c32("").unwrap(), 1);
        assert!(
            Input::new(&[5, 0, 0, 0, 0, 0], Endian::Little)
                .c32("")
                .is_err()
        );
        assert!(Input::new(&[9; 12], Endian::Little).c64("").is_err());
        assert!(Input::new(&[3, 1, 1], Endian::Little).c64("").is_err());
    }

    proptest! {
        #[test]
        fn values_read_as_written(bits: u64, shift in 0_u32..64, type_code in 0_u8..30) {
            let bits = bits >> shift;
            let bits = match type_code {
                1 => bits & 0xff,
                2 => bits & 0xffff,
                5 => bits as i8 as i64 as u64,
                6 => bits as i16 as i64 as u64,
                7 => bits as i32 as i64 as u64,
                3 | 9 | 11 | 12 | 14..=25 => bits & 0xffff_ffff,
                _ => bits,
            };
            let mut out = Vec::new();
            out.put_value(type_code, bits);
            for padding in [0, 9] {
                out.resize(out.len() + padding, 7);
                let mut input = Input::new(&out, Endian::Little);
                prop_assert_eq!(input.value(type_code).unwrap(), bits);
            }
        }
    }
}
