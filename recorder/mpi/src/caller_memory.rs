//! Places in a caller's memory: arrays, handles, texts.
//!
//! Invariant CALLER: a place is an argument of a call, which is valid for what MPI reads and writes
//! there.
#![expect(unsafe_code, reason = "the memory of a call's arguments is read")]

use crate::abi::Abi;

/// An array or a place in the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallerMemory(pub(crate) usize);

impl CallerMemory {
    pub(crate) const fn is_null(self) -> bool {
        self.0 == 0
    }

    fn read<T: Copy>(self, index: usize) -> T {
        let start = std::ptr::with_exposed_provenance::<T>(self.0);
        // SAFETY: invariant CALLER (module docs).
        unsafe { start.wrapping_add(index).read_unaligned() }
    }

    #[inline(always)]
    pub(crate) fn int(self, index: usize) -> i32 {
        self.read(index)
    }

    /// Returns a count: of 64 bits in large-count functions.
    #[inline(always)]
    pub(crate) fn count(self, is_wide: bool, index: usize) -> i64 {
        if is_wide {
            self.read(index)
        } else {
            i64::from(self.int(index))
        }
    }

    #[inline(always)]
    pub(crate) fn handle(self, abi: &Abi, index: usize) -> usize {
        if abi.handle_len() == 4 {
            self.read::<u32>(index) as usize
        } else {
            self.read(index)
        }
    }

    /// Returns a file's handle, an address in every binary interface.
    pub(crate) fn address(self, index: usize) -> usize {
        self.read(index)
    }

    /// Returns a C string's bytes.
    pub(crate) fn text<'a>(self) -> &'a [u8] {
        if self.is_null() {
            return b"";
        }
        let start = std::ptr::with_exposed_provenance(self.0);
        // SAFETY: invariant CALLER (module docs).
        unsafe { std::ffi::CStr::from_ptr(start) }.to_bytes()
    }
}
