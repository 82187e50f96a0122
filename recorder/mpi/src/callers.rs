//! Redirects callers that would reach the MPI library past this one.
#![expect(unsafe_code, reason = "the loader's tables of addresses are changed")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::addresses;
use crate::library;
use crate::signatures::FUNCTIONS;

/// Redirects calls that would reach MPI past this library, by changing the addresses that the
/// loader filled in.
///
/// Open MPI's Fortran bindings call `PMPI_Send` and not `MPI_Send`; MPICH's need no redirection.
/// All callers of `MPI_Get_version` pass this library, because it does not export that function:
/// mpi4py takes it as the sign that the MPI library is in memory, and would not load it. And
/// functions that the MPI library lacks must also be missing for callers that can do without them.
pub(crate) fn adopt() {
    // SAFETY: the function below gets nothing.
    unsafe { libc::dl_iterate_phdr(Some(adopt_object), std::ptr::null_mut()) };
}

unsafe extern "C" fn adopt_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    _: *mut c_void,
) -> c_int {
    // A panic must not cross into the loader.
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: the loader's, while the call lasts.
        let info = unsafe { &*info };
        if info.dlpi_name.is_null() {
            return;
        }
        // SAFETY: the loader's string, while the call lasts.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_binding = ["libmpi_mpifh", "libmpi_usempif08"];
        let is_binding = is_binding
            .iter()
            .any(|name| file.starts_with(name.as_bytes()));
        if file.starts_with(b"libmpi") && !is_binding || file.starts_with(b"libannals") {
            return;
        }
        annals_instrument::modules::any_import(info, |import, slot| {
            let own = if is_binding {
                own_function(import)
            } else {
                own_hidden(import)
            };
            if let Some(own) = own {
                replace(slot, own);
            } else if is_lacking(import, slot) {
                replace(slot, 0);
            }
            false
        });
    });
    0
}

/// Returns the intercepting function for an import `PMPI_…`.
fn own_function(import: &CStr) -> Option<usize> {
    let name = import.to_bytes().strip_prefix(b"P")?;
    if name.ends_with(b"_f2c") || name.ends_with(b"_c2f") {
        // Internal calls of the binding, which the program does not know.
        return None;
    }
    interceptor(name)
}

/// Returns whether a caller has found a function here that the MPI library does not have.
fn is_lacking(import: &CStr, slot: usize) -> bool {
    let name = import.to_bytes();
    if !name.starts_with(b"MPI_") || !slot.is_multiple_of(size_of::<usize>()) {
        return false;
    }
    let Some(own) = interceptor(name) else {
        return false;
    };
    let word = std::ptr::with_exposed_provenance_mut::<usize>(slot);
    // SAFETY: an aligned word of a table of addresses, which others read whole.
    let found = unsafe { AtomicUsize::from_ptr(word) }.load(Ordering::Relaxed);
    found == own && !library::handle().is_null() && library::symbol(import) == 0
}

/// Returns the intercepting function for one that this library does not export.
fn own_hidden(import: &CStr) -> Option<usize> {
    if import == c"MPI_Get_version" {
        interceptor(import.to_bytes())
    } else {
        None
    }
}

fn interceptor(name: &[u8]) -> Option<usize> {
    let place = FUNCTIONS.binary_search_by(|function| function.name.to_bytes().cmp(name));
    addresses::intercepting(place.ok()?)
}

/// Writes an address into a word of the loader's tables.
fn replace(slot: usize, address: usize) {
    if !slot.is_multiple_of(size_of::<usize>()) {
        return;
    }
    let Ok(page_len) = usize::try_from(page_len_of_system()) else {
        return;
    };
    let page = std::ptr::with_exposed_provenance_mut::<c_void>(slot & !(page_len - 1));
    // SAFETY: the page that holds the word, which is mapped; writing to it is allowed from now on.
    if unsafe { libc::mprotect(page, page_len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
        return;
    }
    let word = std::ptr::with_exposed_provenance_mut::<usize>(slot);
    // SAFETY: an aligned word of a table of addresses, which others read whole.
    unsafe { AtomicUsize::from_ptr(word) }.store(address, Ordering::Release);
}

fn page_len_of_system() -> libc::c_long {
    // SAFETY: reads one number from the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}
