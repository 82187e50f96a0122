//! Writing rows: compact, branch-poor, their length known before the clock is read, into memory that the caller has checked for room.
#![expect(
    unsafe_code,
    reason = "rows are written through raw pointers; benches/event_path shows the gain"
)]

use annals_format::wire::zigzag;
use annals_format::{EventTypeId, ROW_EVENT, ROW_FAR_TICK};

/// Most bytes of one varint, and the room a fixed-size store may touch beyond its value.
pub(crate) const VARINT_ROOM: usize = 10;

/// Where the next byte of a row goes.
#[derive(Clone, Copy, Debug)]
pub struct RowCursor(*mut u8);

impl RowCursor {
    /// A cursor at `start`.
    ///
    /// # Safety
    /// - Everything written through the cursor stays within memory that belongs to the caller alone:
    ///   the caller checks the room for a row (its bound) before it starts one.
    pub(crate) unsafe fn new(start: *mut u8) -> Self {
        Self(start)
    }

    /// Bytes written since `start`.
    pub(crate) fn offset_from(self, start: *mut u8) -> usize {
        self.0 as usize - start as usize
    }

    /// Writes a varint. Values below 2²⁸ take no branch on their length; below 2⁷, the usual ones,
    /// one that is always predicted.
    #[inline]
    pub(crate) fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.byte(value as u8);
        } else if value < 1 << 28 {
            let v = value as u32;
            let spread =
                (v & 0x7f) | (v & 0x3f80) << 1 | (v & 0x1f_c000) << 2 | (v & 0xfe0_0000) << 3;
            // ⌈bits / 7⌉ for 1 to 28 bits.
            let length = ((32 - (v | 1).leading_zeros()) * 9 + 64) >> 6;
            let continued = 0x0080_8080_u32 & !(u32::MAX << (8 * (length - 1)));
            // SAFETY: the caller of `new` has room for VARINT_ROOM bytes per varint, more than 4.
            unsafe {
                self.0
                    .cast::<[u8; 4]>()
                    .write_unaligned((spread | continued).to_le_bytes());
            }
            // SAFETY: within the same room.
            self.0 = unsafe { self.0.add(length as usize) };
        } else {
            *self = self.long_varint(value);
        }
    }

    /// By value: a cursor whose address goes to a call that is not inlined lives in memory, and every
    /// row would wait for it.
    #[cold]
    #[inline(never)]
    fn long_varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
        self
    }

    /// Writes a zigzag varint.
    #[inline]
    pub(crate) fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }

    /// Writes what an event's row begins with. How long it is does not depend on the tick, but for a
    /// branch that is taken after a pause: the next row's address must not wait for this one's clock
    /// read.
    #[inline]
    pub(crate) fn event_start(&mut self, event_type: EventTypeId, from: u64, tick: u64) {
        self.varint(u64::from(event_type.get()) + ROW_EVENT);
        let step = tick.wrapping_sub(from);
        if step < u64::from(ROW_FAR_TICK) {
            self.half_word(step as u16);
        } else {
            *self = self.far_tick(tick);
        }
    }

    #[cold]
    #[inline(never)]
    fn far_tick(mut self, tick: u64) -> Self {
        self.half_word(ROW_FAR_TICK);
        self.word(tick);
        self
    }

    #[inline]
    fn half_word(&mut self, value: u16) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe {
            self.0
                .cast::<[u8; 2]>()
                .write_unaligned(value.to_le_bytes())
        };
        // SAFETY: as above.
        self.0 = unsafe { self.0.add(2) };
    }

    /// Writes one byte.
    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe { self.0.write(byte) };
        // SAFETY: as above.
        self.0 = unsafe { self.0.add(1) };
    }

    /// Writes eight bytes, little-endian.
    #[inline]
    pub(crate) fn word(&mut self, value: u64) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe {
            self.0
                .cast::<[u8; 8]>()
                .write_unaligned(value.to_le_bytes())
        };
        // SAFETY: as above.
        self.0 = unsafe { self.0.add(8) };
    }

    /// Writes a varint length and the bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        // SAFETY: the row's bound counted these bytes; a page and a program's bytes do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
        // SAFETY: as above.
        self.0 = unsafe { self.0.add(bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::wire::Put;

    #[test]
    fn varints_are_those_of_the_format() {
        let mut values: Vec<u64> = (0..64)
            .flat_map(|bit| {
                let power = 1_u64 << bit;
                [power - 1, power, power + 1]
            })
            .collect();
        values.push(u64::MAX);
        for value in values {
            let mut expected = Vec::new();
            expected.put_varint(value);
            let mut memory = [0_u8; 16];
            let start = memory.as_mut_ptr();
            // SAFETY: 16 bytes are more than VARINT_ROOM.
            let mut cursor = unsafe { RowCursor::new(start) };
            cursor.varint(value);
            let length = cursor.offset_from(start);
            assert_eq!(&memory[..length], expected, "{value}");
        }
    }
}
