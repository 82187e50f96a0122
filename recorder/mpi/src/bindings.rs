//! Calls of Fortran bindings, which reach MPI as `PMPI_…`: those of the program are intercepted, those that a binding makes for
//! itself are not.
//!
//! A binding is an object that has Fortran's procedures of MPI (`mpi_send_`, `mpi_send_f08ts_`, `ompi_send_f`, …) and calls
//! `PMPI_…`; neither its name nor its version matters. Such a procedure calls the function of its name for the program. What else it
//! calls is for itself: Open MPI's `mpi_alltoallv_` asks for the size of the communicator first, MPICH's `mpi_cart_sub_f08_` for the
//! number of dimensions. One slot of the loader's table serves both: the return address distinguishes them.
//!
//! So the slots lead to [`enter`], an entry for each function. It continues at the intercepting function if the caller is
//! the procedure of the function's name, and at the library's function otherwise. Code that belongs to no procedure, such as a
//! helper in C of a binding, calls for the program what may wait for another process (MPICH's helper of MPI_Comm_spawn), and for
//! itself all else (the datatypes of arrays that are not contiguous).
#![expect(
    unsafe_code,
    reason = "functions that continue at addresses, with the arguments as they were passed"
)]

use std::arch::naked_asm;
use std::collections::HashMap;
use std::ffi::CString;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use annals_instrument::modules;

use crate::addresses;
use crate::library;
use crate::signatures::{COUNT, FUNCTIONS};
use crate::sync::lock;

/// A procedure of a binding: its addresses, and the number of its function.
type Procedure = (Range<usize>, usize);

/// Of all bindings.
#[derive(Clone, Default)]
struct Table {
    /// In ascending order of their addresses.
    procedures: Vec<Procedure>,
    /// Where each binding is.
    objects: Vec<Range<usize>>,
}

/// Replaced, never freed: calls in progress read it.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());

/// Fewest procedures of a binding: a program's library may happen to have a few functions of such names.
const FEWEST: usize = 16;

/// Adds the procedures of an object, if it is a binding. Returns whether it is a new one; `None` if it is none.
///
/// The MPI library is no binding, nor is a tool that wraps its functions: both have these functions themselves.
pub(crate) fn add(info: &libc::dl_phdr_info) -> Option<bool> {
    static ADDING: Mutex<()> = Mutex::new(());
    let object = modules::range_of(info)?;
    if table().is_some_and(|table| table.objects.contains(&object)) {
        return Some(false);
    }
    let (mut added, mut has_functions) = (Vec::new(), false);
    modules::each_export(info, |name, range| {
        let name = name.to_bytes();
        let is_function = FUNCTIONS
            .binary_search_by(|function| function.name.to_bytes().cmp(name))
            .is_ok();
        has_functions |= is_function && !is_conversion(name);
        if let Some(number) = procedure(numbers_by_name(), name).filter(|_| !range.is_empty()) {
            added.push((range, number));
        }
    });
    added.sort_by_key(|(range, _)| range.start);
    added.dedup_by_key(|(range, _)| range.start);
    if has_functions || added.len() < FEWEST {
        return None;
    }
    let _adding = lock(&ADDING);
    let mut next = table().cloned().unwrap_or_default();
    // Another object may have been there before.
    let is_other = |range: &Range<usize>| range.end <= object.start || range.start >= object.end;
    next.procedures.retain(|(range, _)| is_other(range));
    next.objects.retain(is_other);
    next.procedures.extend(added);
    next.procedures.sort_by_key(|(range, _)| range.start);
    next.objects.push(object);
    TABLE.store(Box::into_raw(Box::new(next)), Ordering::Release);
    Some(true)
}

fn table() -> Option<&'static Table> {
    // SAFETY: null, or a table that is never freed nor changed.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// Functions by their names in small letters, without `MPI_` or `MPIX_`, and without the `_c` of large counts.
fn numbers_by_name() -> &'static HashMap<Vec<u8>, usize> {
    static NUMBERS: OnceLock<HashMap<Vec<u8>, usize>> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        let names = FUNCTIONS.iter().enumerate();
        names
            .map(|(number, function)| (plain(function.name.to_bytes()), number))
            .collect()
    })
}

fn plain(function: &[u8]) -> Vec<u8> {
    let start = function.iter().position(|byte| *byte == b'_');
    let name = start.map_or(function, |start| &function[start + 1..]);
    name.strip_suffix(b"_c")
        .unwrap_or(name)
        .to_ascii_lowercase()
}

/// What follows the function's name in symbols of procedures.
const ENDINGS: [&str; 15] = [
    "",
    "_",
    "__",
    "_f",
    "_f08",
    "_f08_",
    "_f08ts_",
    "_f08_large_",
    "_f08ts_large_",
    "_wrapper_f08",
    "_wrapper_f08_c",
    "_cptr",
    "_cptr_",
    "_cptr__",
    "_cptr_f",
];

/// Returns the number of the function that a Fortran procedure of this symbol calls: the longest name that the symbol continues
/// with, as in `mpi_comm_create_group_`, `pmpir_recv_f08ts_`, `MPI_SEND`, `ompi_send_wrapper_f08`.
fn procedure(numbers: &HashMap<Vec<u8>, usize>, symbol: &[u8]) -> Option<usize> {
    const PREFIXES: [&str; 7] = ["mpi", "pmpi", "pmpir", "mpix", "pmpix", "pmpixr", "ompi"];
    let symbol = symbol.to_ascii_lowercase();
    let start = symbol.iter().position(|byte| *byte == b'_')?;
    let is_known = PREFIXES
        .iter()
        .any(|known| known.as_bytes() == &symbol[..start]);
    let mut name = &symbol[start + 1..];
    while is_known && !name.is_empty() {
        if let Some(number) = numbers.get(name) {
            let ending = &symbol[start + 1 + name.len()..];
            let ending = ending
                .strip_prefix(b"_c")
                .filter(|rest| rest.first() != Some(&b'p'))
                .unwrap_or(ending);
            return ENDINGS
                .iter()
                .any(|known| known.as_bytes() == ending)
                .then_some(*number);
        }
        let last = name.iter().rposition(|byte| *byte == b'_')?;
        name = &name[..last];
    }
    None
}

/// Returns whether this function only converts a handle or a status between C and Fortran: bindings call it for themselves.
pub(crate) fn is_conversion(function: &[u8]) -> bool {
    ["_f2c", "_c2f", "_f082c", "_c2f08", "_f2f08", "_f082f"]
        .iter()
        .any(|ending| function.ends_with(ending.as_bytes()))
}

/// Returns the entry for a function that bindings call.
pub(crate) fn entry(index: usize) -> usize {
    first_entry() + index * ENTRY_LENGTH
}

fn first_entry() -> usize {
    let start = (enter as unsafe extern "C" fn() as *const ()).addr();
    start.next_multiple_of(ENTRY_LENGTH)
}

/// Bytes of an entry.
#[cfg(target_arch = "x86_64")]
const ENTRY_LENGTH: usize = 16;
/// Bytes of an entry.
#[cfg(target_arch = "aarch64")]
const ENTRY_LENGTH: usize = 8;

/// An entry for each function: continues at the address that [`route`] returns, with the arguments as they were passed.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".balign {length}",
        ".rept {count}",
        "lea r11, [rip]",
        "jmp 2f",
        ".balign {length}",
        ".endr",
        "2:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rdx",
        ".cfi_adjust_cfa_offset 8",
        "push rcx",
        ".cfi_adjust_cfa_offset 8",
        "push r8",
        ".cfi_adjust_cfa_offset 8",
        "push r9",
        ".cfi_adjust_cfa_offset 8",
        // The number of vector registers, of MPI_Pcontrol.
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, r11",
        "mov rsi, [rsp + 56]",
        "call {route}",
        "mov r11, rax",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "pop r9",
        ".cfi_adjust_cfa_offset -8",
        "pop r8",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rdx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp r11",
        ".cfi_endproc",
        length = const ENTRY_LENGTH,
        count = const COUNT,
        route = sym route,
    )
}

/// An entry for each function: continues at the address that [`route`] returns, with the arguments as they were passed.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn enter() {
    naked_asm!(
        ".cfi_startproc",
        ".balign {length}",
        ".rept {count}",
        "adr x16, .",
        "b 2f",
        ".endr",
        "2:",
        "stp x29, x30, [sp, #-80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset x29, -80",
        ".cfi_offset x30, -72",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "mov x0, x16",
        "mov x1, x30",
        "bl {route}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        ".cfi_restore x29",
        ".cfi_restore x30",
        ".cfi_def_cfa_offset 0",
        "br x16",
        ".cfi_endproc",
        length = const ENTRY_LENGTH,
        count = const COUNT,
        route = sym route,
    )
}

/// Returns where a call continues that has come to an entry (an address in it), and returns to this address.
extern "C" fn route(entry: usize, return_address: usize) -> usize {
    let index = (entry - first_entry()) / ENTRY_LENGTH;
    let intercepting = addresses::intercepting(index);
    match intercepting.filter(|_| is_of_program(index, return_address)) {
        Some(intercepting) => intercepting,
        None => passed(index),
    }
}

/// Returns whether a call that returns to this address is the program's.
fn is_of_program(index: usize, return_address: usize) -> bool {
    let Some(table) = table() else { return true };
    match caller(&table.procedures, return_address) {
        Some(number) if number == index => true,
        Some(number) => {
            let name = |number: usize| FUNCTIONS[number].name.to_bytes();
            plain(name(number)) == plain(name(index))
        }
        None => {
            // The last thing that a procedure does may be a jump: then the call returns to the program.
            let mut objects = table.objects.iter();
            let is_inside = objects.any(|object| object.contains(&return_address));
            !is_inside || FUNCTIONS[index].waits
        }
    }
}

/// Returns the number of the function of the procedure that has this return address.
fn caller(procedures: &[Procedure], return_address: usize) -> Option<usize> {
    // The instruction after a call may be the first one after the procedure.
    let call = return_address.wrapping_sub(1);
    let place = procedures.partition_point(|(range, _)| range.start <= call);
    let (range, number) = procedures.get(place.checked_sub(1)?)?;
    range.contains(&call).then_some(*number)
}

/// Returns the library's function of the name `PMPI_…`, which the slot had.
fn passed(index: usize) -> usize {
    static PASSED: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];
    match PASSED[index].load(Ordering::Relaxed) {
        0 => find_passed(index, &PASSED[index]),
        address => address,
    }
}

#[cold]
fn find_passed(index: usize, known: &AtomicUsize) -> usize {
    let name = [b"P", FUNCTIONS[index].name.to_bytes()].concat();
    let found = CString::new(name).map_or(0, |name| library::symbol(&name));
    if found == 0 {
        return library::next(index);
    }
    known.store(found, Ordering::Relaxed);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_are_known_by_their_symbols() {
        let numbers = numbers_by_name();
        for (symbol, expected) in [
            ("mpi_send_", "send"),
            ("MPI_SEND", "send"),
            ("mpi_send__", "send"),
            ("ompi_send_f", "send"),
            ("ompi_send_wrapper_f08", "send"),
            ("mpi_recv_f08ts_", "recv"),
            ("pmpir_recv_f08ts_large_", "recv"),
            ("mpi_send_c_f08ts_", "send"),
            ("ompi_send_wrapper_f08_c", "send"),
            ("mpi_win_allocate_cptr_", "win_allocate"),
            ("pmpi_comm_rank_f08_", "comm_rank"),
            ("mpi_comm_create_group_", "comm_create_group"),
            ("mpi_comm_create_f08_", "comm_create"),
            ("pmpixr_comm_shrink_f08_", "comm_shrink"),
            ("MPIX_Barrier_init_f", "barrier_init"),
        ] {
            let found = procedure(numbers, symbol.as_bytes());
            let found = found.map(|number| plain(FUNCTIONS[number].name.to_bytes()));
            assert_eq!(found.as_deref(), Some(expected.as_bytes()), "{symbol}");
        }
        for symbol in [
            "mpi",
            "mpi_",
            "mpirinitf_",
            "ompi_fortran_string_f2c",
            "send_",
            "my_mpi_send_",
        ] {
            assert_eq!(procedure(numbers, symbol.as_bytes()), None, "{symbol}");
        }
    }

    #[test]
    fn entries_know_their_function_and_calls_their_procedure() {
        assert_eq!(first_entry() % ENTRY_LENGTH, 0);
        for index in [0, 1, COUNT - 1] {
            // As the entry's code makes it.
            let inside = entry(index) + if cfg!(target_arch = "x86_64") { 7 } else { 0 };
            assert_eq!((inside - first_entry()) / ENTRY_LENGTH, index);
        }
        let procedures = [(100..200, 1), (200..260, 2), (300..310, 3)];
        let of = |address| caller(&procedures, address);
        assert_eq!(
            [of(100), of(101), of(200), of(201)],
            [None, Some(1), Some(1), Some(2)]
        );
        assert_eq!(
            [of(260), of(261), of(310), of(311)],
            [Some(2), None, Some(3), None]
        );
    }
}
