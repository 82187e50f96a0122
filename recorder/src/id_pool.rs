//! Numbers that threads claim and release with single atomic operations: safe in signal handlers,
//! whatever they interrupt.

use crate::sync::{AtomicU64, Ordering};

/// A set of numbers below a limit, each free or claimed.
#[derive(Debug)]
pub(crate) struct IdPool {
    /// A bit a number: claimed.
    words: Box<[AtomicU64]>,
    limit: usize,
}

impl IdPool {
    /// Creates a pool in which all numbers below `limit` are free.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            words: (0..limit.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            limit,
        }
    }

    /// Claims the lowest free number, or returns `None` if all are taken.
    /// The writes of the number's last owner, before the release, are visible.
    pub(crate) fn claim(&self) -> Option<usize> {
        for (index, word) in self.words.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones() as usize;
                let number = index * 64 + bit;
                if number >= self.limit {
                    return None;
                }
                let with = seen | 1 << bit;
                match word.compare_exchange(seen, with, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(number),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Returns a number to the pool. Only its owner may do so.
    pub(crate) fn release(&self, number: usize) {
        self.words[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_claimed_once_and_comes_back() {
        let pool = IdPool::new(130);
        let all: Vec<usize> = std::iter::from_fn(|| pool.claim()).collect();
        assert!(all.iter().copied().eq(0..130));
        pool.release(64);
        assert_eq!((pool.claim(), pool.claim()), (Some(64), None));
    }
}

/// Every interleaving of a few threads: `RUSTFLAGS="--cfg loom" cargo test -p annals-recorder --lib
/// models`.
#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    use loom::thread;

    use super::IdPool;

    /// Two threads claim, use and release one counter segment.
    /// Neither observes half of the other's work.
    #[test]
    fn a_claimed_number_belongs_to_one_thread() {
        loom::model(|| {
            let shared = Arc::new((IdPool::new(1), UnsafeCell::new(0)));
            let use_it = |shared: &(IdPool, UnsafeCell<u32>)| {
                if let Some(number) = shared.0.claim() {
                    #[expect(unsafe_code, reason = "loom checks that no two accesses meet")]
                    // SAFETY: the claim makes it this thread's; that is what is checked.
                    shared.1.with_mut(|value| unsafe { *value += 1 });
                    shared.0.release(number);
                }
            };
            let other = Arc::clone(&shared);
            let thread = thread::spawn(move || use_it(&other));
            use_it(&shared);
            thread.join().unwrap();
            assert_eq!(shared.0.claim(), Some(0));
        });
    }

    /// The finish of a recording against a raise (`Stream::raise`, `Session::finish`): a counted
    /// event is in what the writer reads afterwards. The barrier in all threads is a fence on both
    /// sides here.
    #[test]
    fn an_event_is_recorded_before_the_cut_or_not_at_all() {
        loom::model(|| {
            let guard = Arc::new(AtomicBool::new(true));
            let busy = Arc::new(AtomicU64::new(0));
            let commit = Arc::new(AtomicU64::new(0));
            let producer = {
                let (guard, busy, commit) =
                    (Arc::clone(&guard), Arc::clone(&busy), Arc::clone(&commit));
                thread::spawn(move || {
                    busy.store(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    let is_recorded = guard.load(Ordering::Relaxed);
                    if is_recorded {
                        commit.store(1, Ordering::Release);
                    }
                    busy.store(0, Ordering::Release);
                    is_recorded
                })
            };
            guard.swap(false, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            while busy.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
            let seen = commit.load(Ordering::Acquire);
            let is_recorded = producer.join().unwrap();
            assert_eq!(seen == 1, is_recorded);
        });
    }

    const NONE: u32 = u32::MAX;

    /// The writer takes the page of an idle stream (`Stream::take_idle_page`) against a raise: the
    /// page has one owner, and the row is in it or in the next one.
    #[test]
    fn an_idle_page_is_taken_or_left_whole() {
        loom::model(|| {
            let page = Arc::new(AtomicU32::new(7));
            let room = Arc::new(AtomicUsize::new(1));
            let busy = Arc::new(AtomicU64::new(0));
            let rows = Arc::new(UnsafeCell::new(0));
            let producer = {
                let (page, room, busy, rows) = (
                    Arc::clone(&page),
                    Arc::clone(&room),
                    Arc::clone(&busy),
                    Arc::clone(&rows),
                );
                thread::spawn(move || {
                    busy.store(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    if room.load(Ordering::Relaxed) != 0 {
                        #[expect(unsafe_code, reason = "loom checks that no two accesses meet")]
                        // SAFETY: the page is the producer's; that is what is checked.
                        rows.with_mut(|rows| unsafe { *rows += 1 });
                    } else {
                        // Hands on what is its own, and opens another.
                        let _ = page.swap(NONE, Ordering::AcqRel);
                        page.store(8, Ordering::Release);
                        room.store(1, Ordering::Relaxed);
                    }
                    busy.store(0, Ordering::Release);
                })
            };
            room.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let is_idle = busy.load(Ordering::Acquire) == 0 && room.load(Ordering::SeqCst) == 0;
            let order = Ordering::AcqRel;
            if is_idle
                && page
                    .compare_exchange(7, NONE, order, Ordering::Relaxed)
                    .is_ok()
            {
                #[expect(unsafe_code, reason = "loom checks that no two accesses meet")]
                // SAFETY: the page is the writer's now; that is what is checked.
                rows.with_mut(|rows| unsafe { *rows += 1 });
            }
            producer.join().unwrap();
        });
    }
}
