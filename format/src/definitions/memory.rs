//! Bookkeeping of the tables that is not part of their contents: the memory they take, and which
//! entries their lists have. It is not compared.

use std::collections::HashSet;
use std::hash::Hash;

use super::clock::CalibrationPoint;
use super::definition::Definition;
use crate::wire::Wire;

/// The entries of a list, so that an equal entry is found without searching the list.
#[derive(Clone, Debug)]
pub(super) struct KnownEntries<T>(HashSet<T>);

impl<T> Default for KnownEntries<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T> PartialEq for KnownEntries<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for KnownEntries<T> {}

impl<T: Copy + Eq + Hash> KnownEntries<T> {
    /// Appends an entry to the list unless the list has it.
    pub(super) fn push(&mut self, list: &mut Vec<T>, entry: T) {
        if self.0.len() != list.len() {
            // The list is a public field: the program has changed it.
            self.0 = list.iter().copied().collect();
        }
        if self.0.insert(entry) {
            list.push(entry);
        }
    }
}

/// Upper bound of the memory that the definitions read so far take, bytes.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct MemoryTaken(u64);

impl PartialEq for MemoryTaken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MemoryTaken {}

impl MemoryTaken {
    /// Returns whether the next record may be decoded: its length bounds the memory that it takes.
    pub(super) fn has_room_for(self, mut record: Wire<'_>, most: u64) -> bool {
        /// Calibration points have the largest ratio: one byte of a record becomes ten bytes of
        /// memory. Only the clocks of a shared clock map exceed that, but not while they are decoded:
        /// then they are no larger than their record.
        const MEMORY_PER_BYTE: u64 = 10;
        let kind = record.varint("kind of a definition");
        let length = kind.and_then(|_| record.varint("length of a definition"));
        // An invalid length counts as 0 here: decoding the record returns the error.
        let length = length.unwrap_or(0).min(record.remaining() as u64);
        self.0.saturating_add(length * MEMORY_PER_BYTE) <= most
    }

    /// Counts a definition whose record has `record` bytes. Returns false, and counts nothing, if more
    /// than `most` bytes would be taken.
    pub(super) fn count(&mut self, definition: &Definition, record: usize, most: u64) -> bool {
        let bytes = match definition {
            Definition::Calibrations(points) => {
                points.len() as u64 * size_of::<CalibrationPoint>() as u64
            }
            // A clock takes one byte of the record and an entry in the table of maps; a knot takes two.
            Definition::SharedClockMap(map) => {
                128 + 80 * map.clocks.len() as u64 + 32 * map.knots.len() as u64
            }
            // The densest lists are the knots of a clock map: 2 bytes become 32.
            _ => 128 + 16 * record as u64,
        };
        let sum = self.0.saturating_add(bytes);
        let has_room = sum <= most;
        self.0 = if has_room { sum } else { self.0 };
        has_room
    }
}
