//! Values by handle of the library: any thread reads them without a lock.
//!
//! Why the table is right without a model of its interleavings. Only a thread that has a handle from
//! the library inserts, removes or reads it, and the program orders these calls: a handle is used
//! after it was made and before it is freed (MPI 5.0, section 2.5.1). So for the entry of a handle
//! that is read, neither value nor handle changes meanwhile. Any other entry may change while it is
//! read, but never reads as this handle: its value is loaded first, with acquire order, and then its
//! handle, which is therefore the one that was stored before that value, or a later one. A later one
//! is not this handle, because a handle is in one entry at most (`insert` removes it first). An entry
//! that is being filled has a null value, and its filler owns it by the exchange of 0 for `TAKEN`.
//! Values live at least as long as they are in the table.
#![expect(
    unsafe_code,
    reason = "values are raw pointers, which live as long as they are in the table"
)]

use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::sync::lock;

const BUCKETS: usize = 512;
const BUCKET: usize = 8;

/// Returns the hash of a handle. MPICH's handles count up, Open MPI's are addresses.
#[inline(always)]
pub(crate) const fn hash(handle: usize) -> usize {
    (handle ^ handle >> 6 ^ handle >> 15).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// A null value: the entry is free.
#[derive(Debug)]
struct Entry<T> {
    handle: AtomicUsize,
    value: AtomicPtr<T>,
}

/// A table of values by handle, which live as long as they are in the table.
/// A thread inserts and removes only handles that the library has given to it; so no two threads do
/// either with one handle at the same time.
#[derive(Debug)]
pub(crate) struct HandleMap<T: 'static> {
    entries: [[Entry<T>; BUCKET]; BUCKETS],
    /// Values of handles whose bucket is full.
    others: Mutex<Option<HashMap<usize, &'static T>>>,
    other_count: AtomicUsize,
}

impl<T: Sync> HandleMap<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const {
                [const {
                    Entry {
                        handle: AtomicUsize::new(0),
                        value: AtomicPtr::new(null_mut()),
                    }
                }; BUCKET]
            }; BUCKETS],
            others: Mutex::new(None),
            other_count: AtomicUsize::new(0),
        }
    }

    fn bucket(&self, handle: usize) -> &[Entry<T>; BUCKET] {
        &self.entries[hash(handle) % BUCKETS]
    }

    #[inline(always)]
    pub(crate) fn get(&self, handle: usize) -> Option<&'static T> {
        for entry in self.bucket(handle) {
            let value = entry.value.load(Ordering::Acquire);
            if !value.is_null() && entry.handle.load(Ordering::Relaxed) == handle {
                // SAFETY: what `insert` was given; its handle is in use, so it is in the table.
                return unsafe { value.as_ref() };
            }
        }
        if self.other_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.others).as_ref()?.get(&handle).copied()
    }

    /// Inserts a value for a handle, and replaces its previous one.
    pub(crate) fn insert(&self, handle: usize, value: &'static T) {
        self.remove(handle);
        /// An entry that is being filled.
        const TAKEN: usize = usize::MAX;
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let value = std::ptr::from_ref(value).cast_mut();
        for entry in self.bucket(handle) {
            if entry.value.load(Ordering::Acquire).is_null()
                && entry.handle.compare_exchange(0, TAKEN, order, seen).is_ok()
            {
                entry.handle.store(handle, Ordering::Relaxed);
                entry.value.store(value, Ordering::Release);
                return;
            }
        }
        let mut others = lock(&self.others);
        let others = others.get_or_insert_default();
        // SAFETY: the reference that was given.
        others.insert(handle, unsafe { &*value });
        self.other_count.store(others.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, handle: usize) -> Option<&'static T> {
        for entry in self.bucket(handle) {
            let value = entry.value.load(Ordering::Acquire);
            if !value.is_null() && entry.handle.load(Ordering::Relaxed) == handle {
                entry.value.store(null_mut(), Ordering::Release);
                entry.handle.store(0, Ordering::Release);
                // SAFETY: what `insert` was given, and was in the table until now.
                return unsafe { value.as_ref() };
            }
        }
        if self.other_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut others = lock(&self.others);
        let others = others.get_or_insert_default();
        let removed = others.remove(&handle);
        self.other_count.store(others.len(), Ordering::Release);
        removed
    }
}
