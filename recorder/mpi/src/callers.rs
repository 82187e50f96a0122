//! Redirects callers that would reach the MPI library past this one, and those that would find
//! functions here that are nowhere else.
#![expect(unsafe_code, reason = "the loader's tables of addresses are changed")]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use annals_instrument::modules::{Import, any_import, read, replace};

use crate::addresses;
use crate::bindings;
use crate::library::{self, Loads};
use crate::signatures::FUNCTIONS;
use crate::unseen;

/// Redirects calls that would reach MPI past this library, by changing the addresses that the
/// loader filled in.
///
/// Fortran bindings call `PMPI_Send` and not `MPI_Send`: Open MPI's always, MPICH's in the procedures of `mpi_f08` without a buffer.
/// All callers of `MPI_Get_version` pass this library, because it does not export that function:
/// mpi4py takes it as the sign that the MPI library is in memory, and would not load it. And
/// functions that no other library has must also be missing for callers that can do without them.
pub(crate) fn adopt() {
    adopt_from(0, false);
}

/// Redirects calls of objects that were loaded since the last call. At the end (`is_end`), notes those that bindings among them may
/// have made.
pub(crate) fn adopt_loaded(is_end: bool) {
    static ADOPTED: Mutex<(Loads, usize)> = Mutex::new((Loads::NONE, 0));
    // Not waited for: what is called below looks names up, too, and other threads may hold the loader's
    // lock.
    let Ok(mut adopted) = ADOPTED.try_lock() else {
        return;
    };
    let loads = library::loads();
    let (earlier, count) = *adopted;
    if loads != earlier {
        // New objects are the last ones.
        let is_longer = loads.removed == earlier.removed;
        *adopted = (loads, adopt_from(if is_longer { count } else { 0 }, is_end));
        annals_runtimes::adopt();
    }
}

/// Redirects calls of the objects from this one on, in the loader's order. Returns the number of all
/// objects.
fn adopt_from(first: usize, is_end: bool) -> usize {
    let (mut found, mut has_hidden) = (BTreeSet::new(), false);
    let mut past = Vec::new();
    let count = each_import(first, |import, caller| {
        match (caller, profiled(import.name)) {
            (Caller::Program { base }, Some(function)) => past.push((function, base)),
            (Caller::Binding { is_new: true }, Some(function)) if is_end => {
                unseen::note(function, unseen::PAST);
            }
            _ => {}
        }
        has_hidden |= caller.is_binding() || own_hidden(import.name).is_some();
        found.extend(found_here(&import));
    });
    // A tool calls `PMPI_…` for the calls that this library forwards to it.
    past.retain(|(function, base)| library::object_of_next(*function) != Some(*base));
    for (function, _) in past {
        unseen::note(function, unseen::PAST);
    }
    if found.is_empty() && !has_hidden {
        return count;
    }
    // The loader may be asked only when it does not call any more. Where there is no MPI library, callers
    // that cannot do without a function keep it: their call reports that.
    found.retain(|function| !library::is_there(FUNCTIONS[*function].name));
    let is_known = library::is_known();
    let has_version = library::is_there(c"MPI_Get_version");
    each_import(first, |import, caller| {
        let function = of_binding(import.name).filter(|_| caller.is_binding());
        if let Some(function) = function {
            if !replace(import.slot, bindings::entry(function)) {
                unseen::note(function, unseen::PAST);
            }
        } else if let Some(own) = own_hidden(import.name).filter(|_| has_version) {
            replace(import.slot, own);
        } else if let Some(function) = found_here(&import)
            && found.contains(&function)
            && (import.is_weak || is_known)
        {
            replace(import.slot, 0);
        }
    })
}

/// An object that calls MPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    /// A Fortran binding, whose calls are redirected.
    Binding { is_new: bool },
    /// The program, or one of its libraries, at this address.
    Program { base: usize },
}

impl Caller {
    const fn is_binding(self) -> bool {
        matches!(self, Self::Binding { .. })
    }
}

/// Objects that are read, in the loader's order.
struct Reading<'a> {
    first: usize,
    count: usize,
    /// Gets an import of an object, and what that is.
    work: &'a mut dyn FnMut(Import<'_>, Caller),
}

/// Reads the imports of the objects from this one on. The MPI library's own imports and this library's
/// are left out. Returns the number of all objects.
fn each_import(first: usize, mut work: impl FnMut(Import<'_>, Caller)) -> usize {
    let mut reading = Reading {
        first,
        count: 0,
        work: &mut work,
    };
    // SAFETY: the function below gets this pointer, while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(read_object), (&raw mut reading).cast()) };
    reading.count
}

unsafe extern "C" fn read_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    reading: *mut c_void,
) -> c_int {
    // SAFETY: the pointer that `each_import` passed.
    let reading = unsafe { &mut *reading.cast::<Reading<'_>>() };
    reading.count += 1;
    if reading.count <= reading.first {
        return 0;
    }
    // A panic must not cross into the loader.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the loader's, while the call lasts.
        let info = unsafe { &*info };
        if info.dlpi_name.is_null() {
            return;
        }
        // SAFETY: the loader's string, while the call lasts.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_of_library = [&b"libmpi"[..], b"libmca_", b"mca_"];
        let is_of_library = is_of_library.iter().any(|name| file.starts_with(name));
        if file.starts_with(b"libannals") {
            return;
        }
        let base = info.dlpi_addr as usize;
        let calls_past = any_import(info, |import| profiled(import.name).is_some());
        let caller = match calls_past.then(|| bindings::add(info)).flatten() {
            Some(is_new) => Caller::Binding { is_new },
            None if is_of_library => return,
            None => Caller::Program { base },
        };
        any_import(info, |import| {
            (reading.work)(import, caller);
            false
        });
    }));
    0
}

/// Returns the number of the function of an import `PMPI_…` that the program may call.
fn profiled(import: &CStr) -> Option<usize> {
    let name = import.to_bytes().strip_prefix(b"P")?;
    number_of(name).filter(|_| !bindings::is_conversion(name))
}

/// Returns the number of the function of an import by which a binding would pass this library, or would call it for itself.
fn of_binding(import: &CStr) -> Option<usize> {
    let name = import.to_bytes();
    profiled(import).or_else(|| number_of(name).filter(|_| bindings::is_conversion(name)))
}

/// Notes that the program has found a function in the MPI library, past this one: `found` by a name.
pub(crate) fn note_lookup(name: &CStr, found: usize) -> bool {
    let Some(function) = number_of(name.to_bytes()).or_else(|| profiled(name)) else {
        return false;
    };
    let is_past = found != 0 && addresses::intercepting(function) != Some(found);
    is_past && own_hidden(name).is_none() && unseen::note(function, unseen::PAST)
}

/// Returns the number of the function that a caller has found here.
fn found_here(import: &Import<'_>) -> Option<usize> {
    let name = import.name.to_bytes();
    if !name.starts_with(b"MPI") || !import.slot.is_multiple_of(size_of::<usize>()) {
        return None;
    }
    let function = number_of(name)?;
    (addresses::intercepting(function) == Some(read(import.slot))).then_some(function)
}

/// Returns the intercepting function for one that this library does not export.
fn own_hidden(import: &CStr) -> Option<usize> {
    if import == c"MPI_Get_version" {
        addresses::intercepting(number_of(import.to_bytes())?)
    } else {
        None
    }
}

/// Returns the address of the intercepting function of this name, if no other library has a function
/// of the name.
pub(crate) fn own_alone(name: &CStr) -> Option<usize> {
    let own = addresses::intercepting(number_of(name.to_bytes())?)?;
    (!library::is_there(name)).then_some(own)
}

fn number_of(name: &[u8]) -> Option<usize> {
    let place = FUNCTIONS.binary_search_by(|function| function.name.to_bytes().cmp(name));
    place.ok()
}
