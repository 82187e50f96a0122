//! `dlsym`, which programs call: it does not find functions that only this library has.
//!
//! Programs that work with and without MPI search for its functions. The loader would find those of
//! this library also where there is no MPI library. All other lookups are the system's: it gets the
//! call as the program made it, with the return address, by which it knows the caller.
//!
//! A program that has loaded a library calls this function to use it. So this is also the time to
//! change what the library has found here.
//!
//! Sanitizers and replaced allocators look functions up before they work, where nothing else may be
//! called. They search for the next function, without a library, and the sanitizers before this
//! library is initialized.
#![expect(
    unsafe_code,
    reason = "the loader's function is replaced, and called by address"
)]

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::ptr::null_mut;

use annals_recorder::uncancelled;

use crate::addresses;
use crate::callers;
use crate::library::{self, Lookup};
use crate::unseen;

/// Replaces the system's function of this name: continues at the function that `choose` returns.
///
/// # Safety
/// - The requirements of the system's function hold.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {choose}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        choose = sym choose,
    )
}

/// Replaces the system's function of this name: continues at the function that `choose` returns.
///
/// # Safety
/// - The requirements of the system's function hold.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x0, x1, [sp, #16]",
        "bl {choose}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        choose = sym choose,
    )
}

/// Returns the function that answers a lookup: the system's, or [`find_nothing`].
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> Lookup {
    if addresses::intercepting(0).is_none() {
        return library::system_lookup();
    }
    let has_library = handle != libc::RTLD_NEXT && handle != libc::RTLD_DEFAULT;
    // A panic must not cross into the program.
    let is_hidden = catch_unwind(|| {
        if has_library {
            uncancelled(|| callers::adopt_loaded(false));
        }
        // SAFETY: the requirement of `dlsym`.
        let is_hidden = unsafe { is_hidden(handle, name) };
        if has_library && !is_hidden && !name.is_null() {
            // SAFETY: the requirement of `dlsym`.
            unsafe { note_past(handle, name) };
        }
        is_hidden
    });
    if is_hidden.unwrap_or(false) {
        find_nothing
    } else {
        library::system_lookup()
    }
}

/// Returns whether a lookup would find a function that only this library has.
///
/// # Safety
/// - The requirements of `dlsym` hold.
unsafe fn is_hidden(handle: *mut c_void, name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: the requirement of `dlsym`: the name is a C string.
    let name = unsafe { CStr::from_ptr(name) };
    if !name.to_bytes().starts_with(b"MPI") {
        return false;
    }
    let Some(own) = callers::own_alone(name) else {
        return false;
    };
    // The next one after the caller cannot be asked for here; no library after this one has it.
    let all = if handle == libc::RTLD_NEXT {
        libc::RTLD_DEFAULT
    } else {
        handle
    };
    // SAFETY: the caller's handle, and a C string.
    unsafe { library::system_lookup()(all, name.as_ptr()) }.addr() == own
}

/// Notes a lookup that finds a function of the MPI library past this one.
///
/// # Safety
/// - The requirements of `dlsym` hold.
unsafe fn note_past(handle: *mut c_void, name: *const c_char) {
    // SAFETY: the requirement of `dlsym`: the name is a C string.
    let symbol = unsafe { CStr::from_ptr(name) };
    let bytes = symbol.to_bytes();
    if !bytes.starts_with(b"MPI_") && !bytes.starts_with(b"PMPI_") {
        return;
    }
    // SAFETY: the caller's handle, and a C string.
    let found = unsafe { library::system_lookup()(handle, name) }.addr();
    if callers::note_lookup(symbol, found)
        && let Some(recorder) = annals_instrument::started()
    {
        uncancelled(|| unseen::store(recorder));
    }
}

/// Finds nothing: no library after this one has the function. The system notes the error.
unsafe extern "C" fn find_nothing(_: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the requirement of `dlsym`: the name is a C string.
    unsafe { library::system_lookup()(libc::RTLD_NEXT, name) };
    null_mut()
}
