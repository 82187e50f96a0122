//! The fields of a line.

use thiserror::Error;

/// A line that is not what the format says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("byte {offset} of the line: expected {expected}")]
pub struct LineError {
    /// Where it was found: bytes from the start of the line.
    pub offset: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// Reads a line from left to right.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    line: &'a [u8],
    offset: usize,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(line: &'a [u8]) -> Self {
        Self { line, offset: 0 }
    }

    pub(super) const fn error(&self, expected: &'static str) -> LineError {
        LineError {
            offset: self.offset,
            expected,
        }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        &self.line[self.offset..]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.line.get(self.offset).copied()
    }

    /// Skips a byte if it is the next one.
    pub(super) fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.offset += usize::from(is_next);
        is_next
    }

    /// Skips a byte.
    pub(super) fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), LineError> {
        if self.skip(byte) {
            return Ok(());
        }
        Err(self.error(expected))
    }

    /// Skips everything up to and including some bytes.
    pub(super) fn skip_past(
        &mut self,
        bytes: &[u8],
        expected: &'static str,
    ) -> Result<(), LineError> {
        let found = self.rest().windows(bytes.len());
        match found.into_iter().position(|window| window == bytes) {
            Some(place) => {
                self.offset += place + bytes.len();
                Ok(())
            }
            None => Err(self.error(expected)),
        }
    }

    /// Reads an unsigned number.
    pub(super) fn unsigned(&mut self, expected: &'static str) -> Result<u64, LineError> {
        let start = self.offset;
        let mut number = 0_u64;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let next = number.checked_mul(10);
            let next = next.and_then(|next| next.checked_add(u64::from(digit - b'0')));
            number = next.ok_or_else(|| self.error("a number below 2^64"))?;
            self.offset += 1;
        }
        if self.offset == start {
            return Err(self.error(expected));
        }
        Ok(number)
    }

    /// Reads a number that may be negative.
    pub(super) fn signed(&mut self, expected: &'static str) -> Result<i64, LineError> {
        let is_negative = self.skip(b'-');
        let magnitude = i128::from(self.unsigned(expected)?);
        let number = if is_negative { -magnitude } else { magnitude };
        i64::try_from(number).map_err(|_| self.error("a number of 64 bits with its sign"))
    }

    /// Reads a number of 32 bits.
    pub(super) fn small(&mut self, expected: &'static str) -> Result<u32, LineError> {
        let number = self.unsigned(expected)?;
        u32::try_from(number).map_err(|_| self.error("a number below 2^32"))
    }

    /// Reads a colon, then a number.
    pub(super) fn next(&mut self, expected: &'static str) -> Result<u64, LineError> {
        self.expect(b':', "a colon")?;
        self.unsigned(expected)
    }

    /// Reads a colon, then a number of 32 bits.
    pub(super) fn next_small(&mut self, expected: &'static str) -> Result<u32, LineError> {
        self.expect(b':', "a colon")?;
        self.small(expected)
    }

    /// Reads a colon, then a number that may be negative.
    pub(super) fn next_signed(&mut self, expected: &'static str) -> Result<i64, LineError> {
        self.expect(b':', "a colon")?;
        self.signed(expected)
    }

    /// Checks that the line ends here.
    pub(super) fn end(&self) -> Result<(), LineError> {
        match self.rest().trim_ascii().is_empty() {
            true => Ok(()),
            false => Err(self.error("the end of the line")),
        }
    }
}
