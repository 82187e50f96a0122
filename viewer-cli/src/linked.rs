//! What the files of a program are linked to: whether another runtime of OpenMP can serve it, and which variable its Kokkos reads.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol};

use crate::doctor::child;
use crate::doctor::loader::Libraries;
use crate::output::UsageError;

/// Names of the files of runtimes of OpenMP.
const RUNTIMES: [&str; 3] = ["libgomp", "libomp", "libiomp5"];

/// Returns a program's file and those of the libraries that the loader would load for it.
pub(crate) fn files(program: &Path) -> Vec<PathBuf> {
    let mut files = vec![program.to_owned()];
    let Some(interpreter) = interpreter(program) else {
        return files;
    };
    let listed = child::run(Command::new(interpreter).arg("--list").arg(program), |_| {});
    let listed = listed.map(|answer| answer.output).unwrap_or_default();
    // `	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`.
    files.extend(listed.lines().filter_map(|line| {
        let (_, path) = line.split_once(" => ")?;
        let (path, _) = path.rsplit_once(" (")?;
        Some(PathBuf::from(path))
    }));
    files
}

/// Returns the loader that a program asks for.
fn interpreter(program: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = fs::read(program).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let section = file.section_by_name(".interp")?.data().ok()?;
    let path = section.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns the dynamic symbols of a file that it defines, or takes from others.
fn symbols(path: &Path, is_defined: bool) -> BTreeSet<String> {
    let bytes = fs::read(path).unwrap_or_default();
    let Ok(file) = object::File::parse(&*bytes) else {
        return BTreeSet::new();
    };
    let symbols = file.dynamic_symbols();
    let symbols = symbols.filter(|symbol| symbol.is_undefined() != is_defined);
    let names = symbols.filter_map(|symbol| symbol.name().ok());
    // `omp_set_lock@OMP_3.0`.
    let names = names.map(|name| name.split('@').next().unwrap_or(name).to_owned());
    names.collect()
}

fn is_runtime(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    RUNTIMES.iter().any(|runtime| name.starts_with(runtime))
}

/// Returns LLVM's runtime of OpenMP, which can be preloaded into these programs: it has everything that they and their libraries call
/// of OpenMP.
///
/// # Errors
/// If there is none, or it lacks a function: the first one is named.
pub(crate) fn libomp<'a>(programs: impl Iterator<Item = &'a Path>) -> Result<PathBuf, UsageError> {
    let libraries = Libraries::read();
    let named = libraries.named(|name| name.starts_with("libomp.so"));
    let Some(libomp) = named.first().map(|library| library.path.clone()) else {
        return Err(UsageError(
            "--openmp libomp: there is no libomp.so where the loader searches (LD_LIBRARY_PATH=DIR: also there)".to_owned(),
        ));
    };
    let known = symbols(&libomp, true);
    for file in programs.flat_map(files).filter(|file| !is_runtime(file)) {
        let calls = symbols(&file, false);
        let of_openmp = |name: &&String| name.starts_with("GOMP_") || name.starts_with("omp_");
        if let Some(missing) = calls
            .iter()
            .filter(of_openmp)
            .find(|name| !known.contains(*name))
        {
            return Err(UsageError(format!(
                "--openmp libomp: {} calls {missing}, which {} does not have",
                file.display(),
                libomp.display()
            )));
        }
    }
    Ok(libomp)
}

/// Returns the variables by which Kokkos finds the library: what the environment has already stays first. Older versions of Kokkos read
/// only one, and newer ones warn of it: it is set if one of these programs has such a version.
pub(crate) fn kokkos_variables<'a>(
    library: &Path,
    programs: impl Iterator<Item = &'a Path>,
) -> Vec<(&'static str, OsString)> {
    const NEW: &str = "KOKKOS_TOOLS_LIBS";
    const OLD: &str = "KOKKOS_PROFILE_LIBRARY";
    let with = |name: &'static str| {
        let mut list = std::env::var_os(name).unwrap_or_default();
        if !list.is_empty() {
            list.push(";");
        }
        list.push(library);
        (name, list)
    };
    let is_old = |program: &Path| {
        let files = files(program);
        // The program may contain Kokkos itself.
        let is_kokkos = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            file == program || name.contains("kokkos")
        };
        let files = files.iter().filter(|file| is_kokkos(file));
        let files: Vec<Vec<u8>> = files.filter_map(|file| fs::read(file).ok()).collect();
        let has = |name: &str| files.iter().any(|bytes| has_text(bytes, name.as_bytes()));
        has(OLD) && !has(NEW)
    };
    let mut variables = vec![with(NEW)];
    if programs.into_iter().any(is_old) {
        variables.push(with(OLD));
    }
    variables
}

/// Returns whether bytes contain a text.
fn has_text(bytes: &[u8], text: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(place) = rest.iter().position(|byte| *byte == text[0]) {
        rest = &rest[place..];
        if rest.starts_with(text) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_wherever_they_are() {
        for (bytes, expected) in [
            (&b"KOKKOS_TOOLS_LIBS"[..], true),
            (b"KKOKKOS_TOOLS_LIBS\0", true),
            (b"KOKKOS_TOOLS_LIB", false),
            (b"", false),
        ] {
            assert_eq!(has_text(bytes, b"KOKKOS_TOOLS_LIBS"), expected);
        }
    }

    #[test]
    fn a_programs_files_are_those_that_the_loader_would_load() {
        let program = std::env::current_exe().expect("this program");
        let files = files(&program);
        assert_eq!(files[0], program);
        assert!(
            files.iter().any(|file| file.ends_with("libc.so.6")),
            "{files:?}"
        );
        assert!(symbols(&program, false).contains("malloc"));
    }
}
