//! A table that only grows: an index, once given, names the same thing for ever, and looking it up
//! takes no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries in the first chunk; each chunk has twice as many as the one before.
const FIRST: usize = 16;
const CHUNKS: usize = 20;

type Chunk<T> = Box<[OnceLock<T>]>;

/// Things by index, from 0 without holes.
#[derive(Debug)]
pub(crate) struct Table<T> {
    chunks: [OnceLock<Chunk<T>>; CHUNKS],
    length: AtomicUsize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            length: AtomicUsize::new(0),
        }
    }
}

/// Returns the chunk of an index, and the place in it.
const fn place(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST + 1).ilog2() as usize;
    (chunk, index - FIRST * ((1 << chunk) - 1))
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)?.get()
    }

    /// Returns what a number of the interface, perhaps a negative one, names.
    pub(crate) fn at(&self, index: i32) -> Option<&T> {
        self.get(usize::try_from(index).ok()?)
    }

    /// Adds a value made from its index.
    /// The caller makes sure that no other thread adds meanwhile. Returns `None` if the table is
    /// full.
    pub(crate) fn push_with(&self, make: impl FnOnce(usize) -> T) -> Option<&T> {
        let index = self.length.load(Ordering::Relaxed);
        let (chunk, at) = place(index);
        let size = FIRST << chunk;
        let chunk = self.chunks.get(chunk)?;
        let chunk = chunk.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect());
        let added = chunk[at].get_or_init(|| make(index));
        self.length.store(index + 1, Ordering::Release);
        Some(added)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn things_keep_their_index_while_the_table_grows() {
        let table = Table::default();
        let first: *const usize = table.push_with(|index| index).unwrap();
        for number in 1..1000 {
            assert_eq!(table.push_with(|index| index), Some(&number));
        }
        assert!((0..1000).all(|index| table.get(index) == Some(&index)));
        assert!(std::ptr::eq(first, table.get(0).unwrap()));
        assert_eq!(
            (table.len(), table.get(1000), table.at(-1)),
            (1000, None, None)
        );
        assert!(table.iter().copied().eq(0..1000));
    }
}
