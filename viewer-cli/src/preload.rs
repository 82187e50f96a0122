//! The library that `trace-cli record` preloads: where it is, and what the loader is asked to load.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// File name of the library that records functions and MPI.
pub const LIBRARY: &str = "libannals_mpi.so";

/// File name of the library that records functions only. It is in the same directory.
pub const FUNCTIONS_LIBRARY: &str = "libannals_instrument.so";

/// The environment variable that says where the library is: its file, or the directory that holds it.
pub const LIBRARY_VARIABLE: &str = "ANNALS_LIB";

/// Returns the path of the library that records functions and MPI.
///
/// # Errors
/// If it is neither where the environment says nor where it is installed.
pub fn library() -> anyhow::Result<PathBuf> {
    if let Some(given) = std::env::var_os(LIBRARY_VARIABLE).filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        let file = if given.is_dir() {
            given.join(LIBRARY)
        } else {
            given
        };
        anyhow::ensure!(
            file.is_file(),
            "{} is not there, where {LIBRARY_VARIABLE} says that {LIBRARY} is",
            file.display()
        );
        return Ok(std::path::absolute(file)?);
    }
    let program = std::env::current_exe().context("cannot determine the path of trace-cli")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let places = [beside.join(LIBRARY), beside.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file());
    let found = found.map(std::fs::canonicalize).transpose()?;
    found.with_context(|| {
        format!(
            "{LIBRARY} is neither in the directory of trace-cli ({}) nor in ../lib: install it there, or set its directory \
             ({LIBRARY_VARIABLE}=DIR)",
            beside.display()
        )
    })
}

/// Returns the value of `LD_PRELOAD`: these libraries, then what the environment asks for already.
///
/// # Errors
/// If the loader would take the path of one for several.
pub fn preload(libraries: &[&Path]) -> anyhow::Result<OsString> {
    let mut list = OsString::new();
    for path in libraries {
        let has_separator = path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b" :\t\n".contains(b));
        anyhow::ensure!(
            !has_separator,
            "the loader cannot preload {}: its path has a blank or a colon",
            path.display()
        );
        if !list.is_empty() {
            list.push(OsStr::new(":"));
        }
        list.push(path);
    }
    let before = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
    if let Some(before) = before {
        list.push(OsStr::new(":"));
        list.push(before);
    }
    Ok(list)
}
