//! The recorder's threads, and moments at which all of them rest: then none of them holds a lock of the C library.
//!
//! A child that is made by a system call other than `fork` has the C library's locks as they are at that moment. A lock that one of these
//! threads holds then is held for good in the child.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

/// Flag: the threads are asked to rest. The lower bits are the number of those at work.
const ASKED: u64 = 1 << 63;

static STATE: AtomicU64 = AtomicU64::new(0);

/// The recorder's threads in this process.
static WORKERS: AtomicU32 = AtomicU32::new(0);

/// The process that these numbers are of: a forked child has none of its parent's threads.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// How long a thread rests at most when it is asked to, and how long the one that asks waits.
const LONGEST_REST: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// How long they wait before they look again.
const NAP: Duration = Duration::from_micros(50);

/// A thread of the recorder, which is at work unless it rests. Made before the thread is.
#[derive(Debug)]
pub struct Worker(());

impl Worker {
    /// Counts a thread that will be created now.
    pub fn begin() -> Self {
        let process = std::process::id();
        if PROCESS.swap(process, Ordering::SeqCst) != process {
            STATE.store(0, Ordering::SeqCst);
            WORKERS.store(0, Ordering::SeqCst);
        }
        WORKERS.fetch_add(1, Ordering::SeqCst);
        STATE.fetch_add(1, Ordering::SeqCst);
        Self(())
    }

    /// Rests while `wait` runs, which must neither allocate nor use the C library's locks, and for at most half a second more if it is asked to.
    pub fn rest(&self, wait: impl FnOnce()) {
        STATE.fetch_sub(1, Ordering::SeqCst);
        wait();
        let mut begun = None;
        while STATE.load(Ordering::SeqCst) & ASKED != 0
            && begun.get_or_insert_with(Instant::now).elapsed() < LONGEST_REST
        {
            sys::pause(NAP);
        }
        STATE.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::SeqCst);
        WORKERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `work` while the recorder's threads rest: without them after 200 ms. `work` is passed whether they rest, and the process has no
/// other thread than these and the calling one. Neither locks nor allocates.
pub fn while_at_rest<T>(work: impl FnOnce(bool) -> T) -> T {
    if !is_alone() {
        return work(false);
    }
    STATE.fetch_or(ASKED, Ordering::SeqCst);
    let begun = Instant::now();
    while STATE.load(Ordering::SeqCst) != ASKED && begun.elapsed() < LONGEST_WAIT {
        sys::pause(NAP);
    }
    let outcome = work(STATE.load(Ordering::SeqCst) == ASKED && is_alone());
    STATE.fetch_and(!ASKED, Ordering::SeqCst);
    outcome
}

/// Returns whether the process has no other threads than the calling one and the recorder's.
fn is_alone() -> bool {
    let ours = WORKERS.load(Ordering::SeqCst) as usize;
    PROCESS.load(Ordering::SeqCst) == std::process::id()
        && sys::thread_count().is_some_and(|count| count <= ours + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_worker_that_is_asked_to_rest_waits_until_the_work_is_done() {
        static IS_AT_WORK: AtomicBool = AtomicBool::new(true);
        let worker = Worker::begin();
        STATE.fetch_or(ASKED, Ordering::SeqCst);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                worker.rest(|| IS_AT_WORK.store(false, Ordering::SeqCst));
                IS_AT_WORK.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(10));
            assert!(!IS_AT_WORK.load(Ordering::SeqCst));
            STATE.fetch_and(!ASKED, Ordering::SeqCst);
        });
        assert!(IS_AT_WORK.load(Ordering::SeqCst));
    }
}
