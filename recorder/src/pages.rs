//! Pages on their way: free, full, or kept to be overwritten. They travel whole, by number, through
//! queues that hold every page there is, so that a push never fails.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::memory::Division;

/// Free pages that are used again before all others, in bytes: what was written last is still in a
/// cache, and a program that raises few events touches few pages.
const HOT_BYTES: usize = 512 << 10;

/// Pages beyond the used ones that are in memory already, so that the event path does not wait for
/// the kernel, in bytes.
const AHEAD_BYTES: usize = 1 << 20;

/// The pages of a recorder.
#[derive(Debug)]
pub(crate) struct Pages {
    count: usize,
    page_bytes: usize,
    hot: ArrayQueue<u32>,
    cold: ArrayQueue<u32>,
    /// The first page that was never used.
    /// No page after it was used either.
    fresh: AtomicUsize,
    /// Pages before this one are in memory.
    prepared: AtomicUsize,
    full: ArrayQueue<u32>,
    /// Full pages of streams that overwrite, oldest first.
    /// Those that are in a snapshot already are in the first queue.
    kept: [ArrayQueue<u32>; 2],
    /// Slot of the stream that each page belongs to, while it does.
    owner: Box<[AtomicU32]>,
}

impl Pages {
    pub(crate) fn new(division: &Division) -> Self {
        let count = division.page_count;
        let page_bytes = division.page_bytes;
        Self {
            count,
            page_bytes,
            hot: ArrayQueue::new((HOT_BYTES / page_bytes).clamp(1, count)),
            cold: ArrayQueue::new(count),
            fresh: AtomicUsize::new(0),
            prepared: AtomicUsize::new(0),
            full: ArrayQueue::new(count),
            kept: std::array::from_fn(|_| ArrayQueue::new(count)),
            owner: (0..count).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns how many pages are free.
    pub(crate) fn free_count(&self) -> usize {
        let fresh = self.fresh.load(Ordering::Relaxed).min(self.count);
        self.hot.len() + self.cold.len() + self.count - fresh
    }

    /// Returns how many free pages the writer keeps for streams that overwrite.
    pub(crate) fn reserve(&self) -> usize {
        (self.count / 8).max(2)
    }

    /// Takes a free page.
    pub(crate) fn take_free(&self) -> Option<u32> {
        self.hot.pop().or_else(|| self.cold.pop()).or_else(|| {
            // Past the end no page is taken. The counter grows at most once per attempt.
            let fresh = self.fresh.load(Ordering::Relaxed) < self.count;
            let number = fresh.then(|| self.fresh.fetch_add(1, Ordering::Relaxed))?;
            (number < self.count).then_some(number as u32)
        })
    }

    /// Frees a page.
    pub(crate) fn free(&self, number: u32) {
        if let Err(number) = self.hot.push(number) {
            let _ = self.cold.push(number);
        }
    }

    /// Returns whether the writer should bring more pages into memory soon.
    pub(crate) fn wants_more(&self) -> bool {
        let prepared = self.prepared.load(Ordering::Relaxed);
        let fresh = self.fresh.load(Ordering::Relaxed);
        prepared < self.count && fresh + self.ahead() / 2 >= prepared
    }

    fn ahead(&self) -> usize {
        (AHEAD_BYTES / self.page_bytes).max(2)
    }

    /// Returns the pages to bring into memory next.
    /// Called by one thread at a time.
    pub(crate) fn to_prepare(&self) -> Range<usize> {
        let prepared = self.prepared.load(Ordering::Relaxed);
        let fresh = self.fresh.load(Ordering::Relaxed).min(self.count);
        // Some at least, so that this is not called for each page.
        let end = (fresh + self.ahead()).clamp(prepared, self.count);
        self.prepared.store(end, Ordering::Relaxed);
        prepared..end
    }

    /// Queues a full page.
    /// Returns whether the writer should be woken.
    pub(crate) fn push_full(&self, number: u32) -> bool {
        let _ = self.full.push(number);
        self.are_wanted()
    }

    /// Returns whether the writer should turn full pages into free ones now.
    /// The writer also wakes periodically, at the same time as those of the host's other processes;
    /// it must not alternate with the program page by page.
    pub(crate) fn are_wanted(&self) -> bool {
        let full = self.full.len();
        full != 0 && (full >= self.count * 3 / 8 || self.free_count() <= self.count / 4)
    }

    /// Takes the next full page.
    pub(crate) fn take_full(&self) -> Option<u32> {
        self.full.pop()
    }

    pub(crate) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Keeps a full page, to be overwritten later.
    /// Returns whether the writer should free pages.
    pub(crate) fn keep(&self, number: u32) -> bool {
        let _ = self.kept[1].push(number);
        self.free_count() <= 2 * self.reserve()
    }

    /// Takes the oldest page that may be overwritten.
    pub(crate) fn take_oldest(&self) -> Option<u32> {
        self.kept.iter().find_map(ArrayQueue::pop)
    }

    /// Takes all pages that may be overwritten, oldest first.
    /// Until they are put back, no thread overwrites them.
    pub(crate) fn take_all_kept(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.take_oldest()).collect()
    }

    /// Puts back the pages that are in a snapshot: they are the oldest.
    pub(crate) fn put_back(&self, pages: &[u32]) {
        for number in pages {
            let _ = self.kept[0].push(*number);
        }
    }

    /// Returns the slot of the stream that a page belongs to, until the page is freed.
    pub(crate) fn owner(&self, number: u32) -> usize {
        self.owner[number as usize].load(Ordering::Relaxed) as usize
    }

    /// Assigns a page to the stream with this slot.
    pub(crate) fn set_owner(&self, number: u32, slot: usize) {
        self.owner[number as usize].store(slot as u32, Ordering::Relaxed);
    }
}
