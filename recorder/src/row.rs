//! Writing rows: compact, branch-poor, their length known before the clock is read, into memory
//! that the caller has checked for room.
#![expect(
    unsafe_code,
    reason = "rows are written through raw pointers; benches/event_path shows the gain"
)]

use annals_format::wire::zigzag;
use annals_format::{EventTypeId, ROW_EVENT, ROW_FAR_TICK};

/// Most bytes of one varint, and the room a fixed-size store may touch beyond its value.
pub(crate) const VARINT_ROOM: usize = 16;

/// Writes the elements of an event into its row.
/// A trait and not a closure, so that its method can be marked as always inlined: as a separate
/// call, it would pass the cursor and the values through memory (benches/c_path).
pub(crate) trait PutRow: Copy {
    /// Writes the elements. Inlined always.
    fn put(self, row: &mut RowCursor);
}

/// The position of the next byte of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowCursor(*mut u8);

impl RowCursor {
    /// Creates a cursor at `start`.
    ///
    /// # Safety
    /// - Everything written through the cursor stays within memory that belongs to the caller
    ///   alone: the caller checks the room for a row (its bound) before it starts one.
    pub(crate) unsafe fn new(start: *mut u8) -> Self {
        Self(start)
    }

    /// Returns the number of bytes written since `start`.
    pub(crate) fn offset_from(self, start: *mut u8) -> usize {
        self.0 as usize - start as usize
    }

    /// Writes a varint. Values below 2⁷, the usual ones, take a branch that is always predicted,
    /// those below 2¹⁴ another one; below 2⁵⁶ there is none on their length. No call: what an event
    /// keeps in registers stays there.
    #[inline(always)]
    pub(crate) fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.byte(value as u8);
            return;
        }
        if value < 0x4000 {
            self.half_word((value << 1 & 0x7f00 | value & 0x7f | 0x80) as u16);
            return;
        }
        let low = value & (u64::MAX >> 8);
        let mut spread = (low & 0x0fff_ffff) | (low & 0x00ff_ffff_f000_0000) << 4;
        spread = (spread & 0x0000_3fff_0000_3fff) | (spread & 0x0fff_c000_0fff_c000) << 2;
        spread = (spread & 0x007f_007f_007f_007f) | (spread & 0x3f80_3f80_3f80_3f80) << 1;
        if value >> 56 == 0 {
            // ⌈bits / 7⌉ for 1 to 56 bits.
            let length = ((64 - (value | 1).leading_zeros()) * 9 + 64) >> 6;
            let continued = 0x8080_8080_8080_8080 & !(u64::MAX << (8 * (length - 1)));
            self.store(spread | continued, length as usize);
        } else {
            self.store(spread | 0x8080_8080_8080_8080, 8);
            let rest = value >> 56;
            self.store(
                (rest & 0x7f) | (rest & 0x80) << 1 | (rest & 0x80),
                1 + (rest >> 7) as usize,
            );
        }
    }

    /// Stores eight bytes, `length` of which count.
    #[inline(always)]
    fn store(&mut self, bytes: u64, length: usize) {
        // SAFETY: the caller of `new` has room for VARINT_ROOM bytes per varint.
        unsafe {
            self.0
                .cast::<[u8; 8]>()
                .write_unaligned(bytes.to_le_bytes());
        }
        // SAFETY: within the same room.
        self.0 = unsafe { self.0.add(length) };
    }

    /// Writes a zigzag varint.
    #[inline(always)]
    pub(crate) fn signed(&mut self, value: i64) {
        self.varint(zigzag(value));
    }

    /// Writes what an event's row begins with. How long it is does not depend on the tick, but for
    /// a branch that is taken after a pause: the next row's address must not wait for this one's
    /// clock read.
    #[inline(always)]
    pub(crate) fn event_start(&mut self, event_type: EventTypeId, from: u64, tick: u64) {
        self.varint(u64::from(event_type.get()) + ROW_EVENT);
        let step = tick.wrapping_sub(from);
        if step < u64::from(ROW_FAR_TICK) {
            self.half_word(step as u16);
        } else {
            self.half_word(ROW_FAR_TICK);
            self.word(tick);
        }
    }

    #[inline(always)]
    fn half_word(&mut self, value: u16) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe {
            self.0
                .cast::<[u8; 2]>()
                .write_unaligned(value.to_le_bytes())
        };
        // SAFETY: the caller of `new` has room for the whole row.
        self.0 = unsafe { self.0.add(2) };
    }

    /// Writes one byte.
    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe { self.0.write(byte) };
        // SAFETY: the caller of `new` has room for the whole row.
        self.0 = unsafe { self.0.add(1) };
    }

    /// Writes eight bytes, little-endian.
    #[inline(always)]
    pub(crate) fn word(&mut self, value: u64) {
        // SAFETY: the caller of `new` has room for the whole row.
        unsafe {
            self.0
                .cast::<[u8; 8]>()
                .write_unaligned(value.to_le_bytes())
        };
        // SAFETY: the caller of `new` has room for the whole row.
        self.0 = unsafe { self.0.add(8) };
    }

    /// Writes a varint length and the bytes. Short ones, the usual names, are copied as two halves
    /// that may overlap: a call would cost more than all the rest of the row.
    #[inline(always)]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        // SAFETY: the row's bound counted these bytes; a page and a program's bytes do not overlap.
        unsafe {
            match bytes.len() {
                16..=32 => put_halves::<16>(bytes, self.0),
                8..16 => put_halves::<8>(bytes, self.0),
                4..8 => put_halves::<4>(bytes, self.0),
                _ => std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()),
            }
        }
        // SAFETY: the row's bound counted these bytes; a page and a program's bytes do not overlap.
        self.0 = unsafe { self.0.add(bytes.len()) };
    }
}

/// Copies the first and the last `N` of `N` to `2 N` bytes.
///
/// # Safety
/// - `to` has room for the bytes, and is none of them.
#[inline(always)]
unsafe fn put_halves<const N: usize>(bytes: &[u8], to: *mut u8) {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else {
        return;
    };
    // SAFETY: within the room that the caller promises.
    unsafe { to.cast::<[u8; N]>().write_unaligned(*first) };
    // SAFETY: within the room that the caller promises.
    unsafe {
        to.add(bytes.len() - N)
            .cast::<[u8; N]>()
            .write_unaligned(*last)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_format::wire::Put;

    #[test]
    fn bytes_of_every_length_are_copied() {
        let all: Vec<u8> = (1..=80).collect();
        for length in 0..=all.len() {
            let mut memory = [0xff_u8; 128];
            let start = memory.as_mut_ptr();
            // SAFETY: 128 bytes are more than 80 and a varint.
            let mut cursor = unsafe { RowCursor::new(start) };
            cursor.bytes(&all[..length]);
            let end = cursor.offset_from(start);
            assert_eq!(end, 1 + length);
            assert_eq!(memory[0], length as u8);
            assert_eq!(memory[1..end], all[..length]);
            assert!(memory[end..].iter().all(|byte| *byte == 0xff), "{length}");
        }
    }

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
            let mut memory = [0_u8; 24];
            let start = memory.as_mut_ptr();
            // SAFETY: 24 bytes are more than VARINT_ROOM.
            let mut cursor = unsafe { RowCursor::new(start) };
            cursor.varint(value);
            let length = cursor.offset_from(start);
            assert_eq!(&memory[..length], expected, "{value}");
        }
    }
}
