//! What reading some bytes costs: memory and processor time, held against the bounds that SPEC.md states.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that reading any file may take, bytes.
const FREE_BYTES: usize = 256 << 20;
/// Further memory for each byte of the file.
const BYTES_PER_BYTE: usize = 2048;
/// Processor time that reading any file may take, nanoseconds.
const FREE_NS: u64 = 1_000_000_000;
/// Further processor time for each byte of the file, nanoseconds.
const NS_PER_BYTE: u64 = 10_000;
/// How much slower a build with sanitizers, or without optimisation, may be.
const SLOWER: u64 = 8;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn add(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the processor time of this thread in nanoseconds; 0 where the system does not report it.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Does something with a file of this length.
///
/// # Panics
/// If it takes more memory or time than SPEC.md states.
pub(crate) fn bounded<T>(length: usize, read: impl FnOnce() -> T) -> T {
    let (bytes, started_ns) = (NOW.load(Ordering::Relaxed), processor_ns());
    MOST.store(bytes, Ordering::Relaxed);
    let result = read();
    let taken = MOST.load(Ordering::Relaxed).saturating_sub(bytes);
    let most = FREE_BYTES + BYTES_PER_BYTE * length;
    assert!(
        taken <= most,
        "{taken} bytes of memory for a file of {length} bytes"
    );
    let passed_ns = processor_ns().saturating_sub(started_ns);
    let most_ns = SLOWER * (FREE_NS + NS_PER_BYTE * length as u64);
    assert!(
        passed_ns <= most_ns,
        "{passed_ns} ns for a file of {length} bytes"
    );
    result
}
