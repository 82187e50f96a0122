//! Names of threads: those that Python has for them.
//!
//! The recorder names a location when its thread raises the first event, after the name that the system has for the thread. Before
//! version 3.14, Python does not pass its names on to the system. So the thread has its name for the system during that event alone.
#![expect(unsafe_code, reason = "the system is asked for the name of a thread")]

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

/// Longest name of a thread, bytes.
const MOST_NAME: usize = 15;

/// Number of recorders that this process has had.
static RECORDERS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Number of the recorder for which the thread has raised an event.
    static RAISED: Cell<u32> = const { Cell::new(0) };
}

/// Takes note that another recorder begins, to which no thread is known.
pub(crate) fn begin() {
    RECORDERS.fetch_add(1, Ordering::Relaxed);
}

/// Raises an event. If it is the thread's first, the thread has the name that Python has for it meanwhile.
#[inline]
pub(crate) fn named<T>(py: Python<'_>, raise: impl FnOnce() -> T) -> T {
    let recorder = RECORDERS.load(Ordering::Relaxed);
    if RAISED.replace(recorder) == recorder {
        return raise();
    }
    let before = system_name();
    if let Some(name) = python_name(py) {
        set_system_name(&name);
    }
    let raised = raise();
    set_system_name(&before);
    raised
}

/// Returns the name that Python has for the calling thread. `None` if it knows none, or if the program does not use `threading`.
fn python_name(py: Python<'_>) -> Option<CString> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let threading = modules.get_item("threading").ok()?;
    // `current_thread()` adds a thread that it does not know.
    let number = threading.call_method0("get_ident").ok()?;
    let thread = threading.getattr("_active").ok()?.get_item(number).ok()?;
    let name: String = thread.getattr("name").ok()?.extract().ok()?;
    CString::new(shorten(&name)).ok()
}

/// Returns a name in at most [`MOST_NAME`] bytes: numbers at the end of names distinguish threads.
fn shorten(name: &str) -> String {
    if name.len() <= MOST_NAME {
        return name.to_owned();
    }
    let start = name.floor_char_boundary(6);
    let end = name.ceil_char_boundary(name.len() - 7);
    format!("{}..{}", &name[..start], &name[end..])
}

fn system_name() -> CString {
    let mut name = [0_u8; MOST_NAME + 1];
    // SAFETY: the call writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|byte| *byte == 0);
    CString::new(&name[..end.unwrap_or(MOST_NAME)]).unwrap_or_default()
}

fn set_system_name(name: &CString) {
    // SAFETY: the call reads a text that ends with 0.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
