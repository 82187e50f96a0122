//! Memory that is wanted soon. Chunks of many streams lie in memory, and a merge takes a little of each: processors
//! cannot guess where it looks next, and would wait for every line.
#![expect(
    unsafe_code,
    reason = "instructions that Rust's library has no other name for"
)]

/// Prefetches the element at `index` of a slice into the processor's cache; does nothing if the index is out of range.
/// Only the time of the next access changes.
#[inline(always)]
pub fn fetch_ahead<T>(slice: &[T], index: usize) {
    let Some(place) = slice.get(index) else {
        return;
    };
    let place = std::ptr::from_ref(place);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing into the program; the place is in the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a hint, which reads nothing into the program; the place is in the slice.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{place}]",
            place = in(reg) place,
            options(nostack, readonly, preserves_flags)
        );
    }
    let _ = place;
}
