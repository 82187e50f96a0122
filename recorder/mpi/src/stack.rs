//! QMPI: this library as one tool of several in a stack that the MPI library manages, if it has
//! that interface and its list of tools contains `annals`.
//!
//! In QMPI, a program's call enters the library, which passes it to the first tool that has
//! registered for the function; each tool passes it to the next, and the last one is the library
//! itself. Functions have numbers, which differ between versions and are defined in headers only.
//! They are determined here: after the last tool, each number has the library's own function, and
//! those are exported by their names (`QMPI_Send`). A function whose number is not found is
//! recorded as without a stack, before the library.
//!
//! A program's call passes this library twice: as `MPI_Send`, which a preloaded library intercepts,
//! and in the stack. The first pass only stores that a call of the program is in progress. Until
//! this tool forwards it, all calls that arrive at its place in the stack were made from that call
//! by the tools in front, and are recorded: the call itself, one that they call in its place, and
//! additional calls of theirs. While this tool forwards a call, calls that arrive here are internal
//! to the library or to a tool after this one (they call `PMPI_Send`, which enters the stack, too),
//! and are not recorded. Nor are calls that arrive in a thread that is in no call of the program: a
//! program that calls `PMPI_Send` bypasses all tools on purpose, as it does without a stack.
//!
//! Invariant CALLER: the arguments of a call are those that the program passed, as MPI requires of
//! it.
#![expect(
    unsafe_code,
    reason = "functions of a C library, found at run time, and functions that it calls"
)]

use annals_recorder::say;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::addresses;
use crate::library;
use crate::signatures::{COUNT, FUNCTIONS};

/// Name of this tool in the list.
const NAME: &CStr = c"annals";

/// The list of tools, as MPICH's environment has it under each of the prefixes of its control
/// variables.
const LISTS: [&str; 3] = [
    "MPIR_CVAR_QMPI_TOOL_LIST",
    "MPIR_PARAM_QMPI_TOOL_LIST",
    "MPICH_QMPI_TOOL_LIST",
];

/// Upper bound for the numbers of functions.
const MOST_NUMBERS: c_int = 1 << 13;
/// Upper bound for the number of tools in a list.
const MOST_TOOLS: usize = 1 << 8;

type RegisterName = unsafe extern "C" fn(*const c_char, extern "C" fn(c_int)) -> c_int;
type RegisterFunction = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;
type GetFunction = unsafe extern "C" fn(c_int, c_int, *mut usize, *mut c_int) -> c_int;

/// This tool's number in the stack.
/// 0 means that it is in none.
static TOOL: AtomicI32 = AtomicI32::new(0);

/// By number of the function: its number in QMPI, + 1.
/// 0 means that it is not recorded in the stack.
static NUMBERS: [AtomicI32; COUNT] = [const { AtomicI32::new(0) }; COUNT];

/// By number of the function: the next tool, and its function.
static NEXT_TOOL: [AtomicI32; COUNT] = [const { AtomicI32::new(0) }; COUNT];
static NEXT: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

thread_local! {
    /// Whether a call of the program is on its way to this tool: what arrives in the stack was made
    /// of it by tools in front.
    static IS_IN_FRONT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether calls of a function are recorded in the stack.
#[inline(always)]
pub(crate) fn has(index: usize) -> bool {
    NUMBERS[index].load(Ordering::Relaxed) != 0
}

/// Returns this tool's number in the stack, or `None` if it is in none.
pub(crate) fn place() -> Option<i32> {
    Some(TOOL.load(Ordering::Acquire)).filter(|tool| *tool != 0)
}

/// Makes a call of the program that enters the stack.
pub(crate) fn enter<T>(call: impl FnOnce() -> T) -> T {
    let before = IS_IN_FRONT.replace(true);
    let result = call();
    IS_IN_FRONT.set(before);
    result
}

/// Returns whether a call that arrives at this tool's position is recorded, because the program
/// or a tool in front of this one made it.
pub(crate) fn is_recorded() -> bool {
    IS_IN_FRONT.get()
}

/// Forwards a call that has arrived at this tool's place.
/// Calls that arrive meanwhile come from the library, or from a tool after this one. Calls that
/// arrive later, before the program's call has returned, come from tools in front again.
pub(crate) fn pass_on<T>(call: impl FnOnce() -> T) -> T {
    let before = IS_IN_FRONT.replace(false);
    let result = call();
    IS_IN_FRONT.set(before);
    result
}

/// Returns the next function after this tool, and its tool's number.
pub(crate) fn next(index: usize) -> (usize, i32) {
    match NEXT[index].load(Ordering::Acquire) {
        0 => find_next(index),
        next => (next, NEXT_TOOL[index].load(Ordering::Relaxed)),
    }
}

/// Finds all functions in one pass, because the library frees its tables in MPI_Finalize and may be
/// called later.
#[cold]
fn find_next(index: usize) -> (usize, i32) {
    let tool = TOOL.load(Ordering::Acquire);
    if let Some(get) = get_function() {
        for (place, number) in NUMBERS.iter().enumerate() {
            let number = number.load(Ordering::Relaxed) - 1;
            if number < 0 {
                continue;
            }
            let (mut function, mut next) = (0, 0);
            // SAFETY: this tool's number, a function's, and valid places.
            unsafe { get(tool, number, &raw mut function, &raw mut next) };
            NEXT_TOOL[place].store(next, Ordering::Relaxed);
            NEXT[place].store(function, Ordering::Release);
        }
    }
    let next = NEXT[index].load(Ordering::Acquire);
    (next, NEXT_TOOL[index].load(Ordering::Relaxed))
}

fn get_function() -> Option<GetFunction> {
    let get = address(c"QMPI_Get_function");
    // SAFETY: the library's function of this name has this type.
    (get != 0).then(|| unsafe { std::mem::transmute::<usize, GetFunction>(get) })
}

/// Returns a function of QMPI's; before the MPI library is known, one that all objects of the
/// program may call.
fn address(name: &CStr) -> usize {
    // SAFETY: the name is a C string.
    match unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr() {
        0 => library::symbol(name),
        global => global,
    }
}

/// Returns whether the list of tools names this one.
fn is_listed() -> bool {
    let lists = LISTS.iter().filter_map(std::env::var_os);
    let mut names = lists.map(|list| list.to_string_lossy().into_owned());
    names.any(|list| {
        list.split(':')
            .any(|name| name.as_bytes() == NAME.to_bytes())
    })
}

/// Registers the tool before the MPI library searches for it, because a listed tool that is missing
/// ends the program. Calls nothing if the list does not name the tool: the library would read its
/// settings earlier than without the tool.
pub(crate) fn register(is_library_known: bool) {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if IS_REGISTERED.load(Ordering::Acquire) || !is_listed() {
        return;
    }
    let name = c"QMPI_Register_tool_name";
    // SAFETY: the name is a C string.
    let mut register = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
    if register == 0 && is_library_known {
        register = library::symbol(name);
    }
    if register == 0 || IS_REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the library's function of this name has this type.
    let register: RegisterName = unsafe { std::mem::transmute(register) };
    // SAFETY: a C string that stays, and a function that may be called at any time.
    unsafe { register(NAME.as_ptr(), begin) };
}

/// Called when the library has added this tool to its stack.
extern "C" fn begin(tool: c_int) {
    // A panic must not cross into the library.
    let _ = std::panic::catch_unwind(|| begin_as(tool));
}

fn begin_as(tool: c_int) {
    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
    // The list may name it twice: once is enough.
    if tool <= 0 || TOOL.compare_exchange(0, tool, order, seen).is_err() {
        return;
    }
    let register = address(c"QMPI_Register_function");
    let numbers = if register == 0 {
        Vec::new()
    } else {
        numbers(tool)
    };
    if numbers.is_empty() {
        say(
            "the numbers of QMPI's functions were not found: MPI is recorded as without a stack of tools",
        );
        return;
    }
    // SAFETY: the library's function of this name has this type.
    let register: RegisterFunction = unsafe { std::mem::transmute(register) };
    for (index, number) in numbers {
        let Some(function) = addresses::stacked(index) else {
            continue;
        };
        // SAFETY: this tool's number, the function's, and a function of its type in QMPI.
        if unsafe { register(tool, number, function) } == 0 {
            NUMBERS[index].store(number + 1, Ordering::Release);
        }
    }
}

/// Functions of the table, and their numbers in QMPI.
fn numbers(tool: c_int) -> Vec<(usize, c_int)> {
    let Some(get) = get_function() else {
        return Vec::new();
    };
    let mut known: HashMap<usize, Option<usize>> = HashMap::new();
    for (index, function) in FUNCTIONS.iter().enumerate() {
        if let Some(own) = library::own_function(function.name) {
            // Two functions at one address cannot be distinguished.
            let entry = known.entry(own).or_insert(Some(index));
            if *entry != Some(index) {
                *entry = None;
            }
        }
    }
    let mut numbers = Vec::new();
    for number in 0..MOST_NUMBERS {
        // Numbers after the last one must not be requested.
        if known.is_empty() {
            break;
        }
        let (mut function, mut next) = (0, tool);
        for _ in 0..MOST_TOOLS {
            // SAFETY: a tool's number, and valid places.
            unsafe { get(next, number, &raw mut function, &raw mut next) };
            if next == 0 {
                break;
            }
        }
        match known.remove(&function) {
            Some(Some(index)) => numbers.push((index, number)),
            Some(None) => {}
            // A function that the table does not have.
            None if function != 0 && library::is_in_library(function) => {}
            None => break,
        }
    }
    numbers
}
