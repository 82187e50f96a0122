//! Locations of threads, by the numbers that the system has for them: for streams that one thread opens for another.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals_format::LocationId;

/// Number of entries. Threads whose numbers differ by a multiple of it do not fit together; the system counts them up.
const ENTRIES: usize = 4096;

/// Which location a thread has. Lock-free.
#[derive(Debug)]
pub(crate) struct ThreadLocations {
    is_used: AtomicBool,
    /// Number of the thread in the high half, location + 1 in the low one; 0 means free.
    entries: Box<[AtomicU64]>,
}

impl ThreadLocations {
    pub(crate) fn new() -> Self {
        Self {
            is_used: AtomicBool::new(false),
            entries: (0..ENTRIES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Has threads look here from now on when they open their first stream.
    pub(crate) fn begin(&self) {
        self.is_used.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::SeqCst)
    }

    /// Returns the location of a thread: the one that is noted here, or this one, which is noted then.
    pub(crate) fn get_or(&self, thread: u32, new: impl FnOnce() -> LocationId) -> LocationId {
        let entry = &self.entries[thread as usize % ENTRIES];
        let found = entry.load(Ordering::SeqCst);
        if let Some(location) = of_entry(found, thread) {
            return location;
        }
        let new = new();
        let value = u64::from(thread) << 32 | u64::from(new.get() + 1);
        let (order, free) = (Ordering::SeqCst, 0);
        match entry.compare_exchange(free, value, order, order) {
            Ok(_) => new,
            // Another thread's, or noted just now.
            Err(found) => of_entry(found, thread).unwrap_or(new),
        }
    }

    /// Forgets a thread, which has ended.
    pub(crate) fn remove(&self, thread: u32) {
        let entry = &self.entries[thread as usize % ENTRIES];
        let found = entry.load(Ordering::SeqCst);
        if of_entry(found, thread).is_some() {
            let (order, free) = (Ordering::SeqCst, 0);
            let _ = entry.compare_exchange(found, free, order, order);
        }
    }
}

fn of_entry(entry: u64, thread: u32) -> Option<LocationId> {
    let is_of_thread = entry >> 32 == u64::from(thread);
    let location = (entry as u32).checked_sub(1)?;
    is_of_thread.then_some(LocationId::new(location))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_location_until_it_is_forgotten() {
        let locations = ThreadLocations::new();
        let next = |number| move || LocationId::new(number);
        assert_eq!(locations.get_or(7, next(0)).get(), 0);
        assert_eq!(locations.get_or(7, next(1)).get(), 0);
        // Both do not fit.
        assert_eq!(locations.get_or(7 + ENTRIES as u32, next(2)).get(), 2);
        assert_eq!(locations.get_or(7, next(3)).get(), 0);
        locations.remove(7 + ENTRIES as u32);
        assert_eq!(locations.get_or(7, next(3)).get(), 0);
        locations.remove(7);
        assert_eq!(locations.get_or(7, next(4)).get(), 4);
    }
}
