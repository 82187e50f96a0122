//! How a program that merges keeps its memory.
#![allow(unsafe_code, reason = "the system's allocator is set by a C function")]

/// Bytes from which the system's allocator maps a block by itself: its greatest.
const MAPPED_BYTES: libc::c_int = 32 << 20;
/// Free bytes that it keeps rather than give them back.
const KEPT_BYTES: libc::c_int = 1 << 30;

/// Makes the allocator keep freed memory for reuse. Windows of a merge allocate and free some MiB each. By default the
/// GNU allocator returns them to the system each time, and every page of the next window is a fault (a tenth of a
/// merge's time). The peak stays unchanged.
///
/// For programs, before they merge; it holds for all of the process. Other allocators have it their own way.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt may be called at any time; what it does not know it leaves.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Returns freed memory to the system, between one kind of work and the next: the next one cannot reuse what the
/// previous one left, and with very many streams both need much. Takes milliseconds.
pub(crate) fn give_freed_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
