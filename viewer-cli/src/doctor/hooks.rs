//! What an event costs that the hooks of compiled functions raise: measured in a child of this program into which the library is
//! preloaded.
#![expect(unsafe_code, reason = "the hooks are C functions")]

use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

use super::child;
use crate::preload::{self, FUNCTIONS_LIBRARY};

/// Number of calls of a round, and of rounds.
const CALLS: u64 = 40_000;
const ROUNDS: usize = 3;
/// Functions that are called.
const FUNCTIONS: usize = 64;

/// Returns the processor time that this thread has used, and that all threads have used, nanoseconds.
pub(super) fn used_ns() -> (i64, i64) {
    let read = |clock: ClockId| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    (read(ClockId::ThreadCPUTime), read(ClockId::ProcessCPUTime))
}

type Hook = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// Returns the path of the library with the hooks.
///
/// # Errors
/// If it is not there.
pub(super) fn library() -> anyhow::Result<PathBuf> {
    let library = preload::library()?.with_file_name(FUNCTIONS_LIBRARY);
    anyhow::ensure!(library.is_file(), "{} is not there", library.display());
    Ok(library)
}

/// Measures what an enter or a leave costs the thread that calls functions, nanoseconds of processor time: the least, the median
/// and the most. The recording is in this directory.
///
/// # Errors
/// If the child cannot be run, or records nothing.
pub(super) fn costs(library: &Path, directory: &Path) -> anyhow::Result<[f64; 3]> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"ANNALS_") {
            command.env_remove(name);
        }
    }
    command
        .args(["doctor", "--measure-hooks"])
        .env("LD_PRELOAD", preload::preload(&[library])?)
        .env("ANNALS_DIR", directory)
        .env("ANNALS_OVERFLOW", "block")
        .env("ANNALS_COMPRESSION", "later");
    let answer = child::run(&mut command, |_| {})?;
    let figures = answer.output.split_whitespace().map(str::parse::<f64>);
    let mut figures: Vec<f64> = figures.collect::<Result<_, _>>()?;
    figures.sort_by(f64::total_cmp);
    anyhow::ensure!(figures.len() == ROUNDS, "no answer");
    Ok([figures[0], figures[ROUNDS / 2], figures[ROUNDS - 1]])
}

/// Measures it in this process, and returns the figures of all rounds, separated by spaces.
///
/// # Errors
/// If there are no hooks.
pub(super) fn measure() -> anyhow::Result<String> {
    let [enter, leave] = [c"__cyg_profile_func_enter", c"__cyg_profile_func_exit"].map(hook);
    let hooks = enter.zip(leave).context("no hooks are loaded")?;
    call(None);
    let rounds = (0..ROUNDS).map(|_| {
        let alone = call(None);
        let recorded = call(Some(hooks));
        ((recorded - alone) / (2 * CALLS) as f64).to_string()
    });
    Ok(rounds.collect::<Vec<String>>().join(" "))
}

fn hook(name: &CStr) -> Option<Hook> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the symbol is a function of this type (GCC's manual, -finstrument-functions), or there is none.
    unsafe { std::mem::transmute::<*mut c_void, Option<Hook>>(found) }
}

/// Calls functions in turn. Returns the processor time of this thread, nanoseconds.
#[inline(never)]
fn call(hooks: Option<(Hook, Hook)>) -> f64 {
    let before = used_ns().0;
    for number in 0..CALLS {
        let place = call as *const () as usize + number as usize % FUNCTIONS * 16;
        let function = std::ptr::without_provenance_mut(place);
        let mut value = number;
        if let Some((enter, _)) = hooks {
            // SAFETY: the hooks take any addresses.
            unsafe { enter(function, function) };
        }
        for _ in 0..32 {
            value = black_box(value.rotate_left(5) ^ number);
        }
        if let Some((_, leave)) = hooks {
            // SAFETY: the hooks take any addresses.
            unsafe { leave(function, function) };
        }
    }
    (used_ns().0 - before) as f64
}
