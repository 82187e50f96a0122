//! The libraries that are preloaded: where they are, and whether the loader really loads them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::child::{self, Answer};
use super::mounts::is_noexec;
use super::{Check, Scope, loader, path_value};
use crate::preload::{self, FUNCTIONS_LIBRARY, LIBRARY};

/// The loader's message about a library that it was asked to preload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Loaded {
    /// It was loaded.
    Yes,
    /// It was not, for this reason.
    No(String),
    /// The loader was not asked: the program has none, or it did not answer.
    Unknown(String),
}

/// Checks the libraries. Returns that for functions and MPI, if it can be preloaded.
pub(super) fn library() -> (Option<PathBuf>, Vec<Check>) {
    let library = match preload::library() {
        Ok(library) => library,
        Err(error) => {
            let check = Check::problem("library", json!({ "path": null }), format!("{error:#}"));
            let advice = format!(
                "install Annals with recorder/capi/install.sh, or set {}=DIR",
                preload::LIBRARY_VARIABLE
            );
            return (None, vec![check.advice(advice).preventing(Scope::Preload)]);
        }
    };
    let check = one(&library, LIBRARY, "functions and MPI");
    let works = check.status != super::Status::Problem;
    let mut checks = vec![check];
    let functions = library.with_file_name(FUNCTIONS_LIBRARY);
    if functions.is_file() {
        let mut check = one(&functions, FUNCTIONS_LIBRARY, "functions only");
        check.scope = Scope::One;
        checks.push(check);
    } else {
        let found = json!({ "path": null, "name": FUNCTIONS_LIBRARY });
        let says = format!(
            "{FUNCTIONS_LIBRARY} is not next to {LIBRARY}: `trace-cli record` does not need it, but programs that link it do"
        );
        checks.push(
            Check::note("library", found, says).advice("install it with recorder/capi/install.sh"),
        );
    }
    (works.then_some(library), checks)
}

fn one(library: &Path, name: &str, what: &str) -> Check {
    let found = |is_loaded: Option<bool>| {
        json!({
            "path": path_value(library),
            "name": name,
            "is_noexec": is_noexec(library),
            "is_loaded": is_loaded,
        })
    };
    let shown = library.display();
    let problem = |why: String, advice: &str| {
        Check::problem("library", found(Some(false)), why)
            .advice(advice)
            .preventing(Scope::Preload)
    };
    if is_noexec(library) == Some(true) {
        return problem(
            format!("{shown} is on a file system that is mounted noexec: no program can load it"),
            "install it on another file system, or set ANNALS_LIB=DIR",
        );
    }
    let list = match preload::preload(&[library]) {
        Ok(list) => list,
        Err(error) => {
            return problem(
                error.to_string(),
                "install it at a path without blanks and colons",
            );
        }
    };
    match try_with_true(library, &list) {
        Loaded::Yes => Check::ok(
            "library",
            found(Some(true)),
            format!("{shown} ({what}) is there, and a program was started with it"),
        ),
        Loaded::No(why) => problem(
            format!("{shown} ({what}) cannot be preloaded: {why}"),
            "install the library that was built for this system",
        ),
        Loaded::Unknown(why) => Check::note(
            "library",
            found(None),
            format!(
                "{shown} ({what}) is there, but whether the loader loads it could not be checked: {why}"
            ),
        ),
    }
}

/// Starts `true` with the library: first so that the loader lists what it loads, then in earnest.
fn try_with_true(library: &Path, list: &OsStr) -> Loaded {
    let named = [
        OsStr::new("true"),
        OsStr::new("/bin/true"),
        OsStr::new("/usr/bin/true"),
    ];
    let mut programs = named.iter().filter_map(|name| loader::in_path(name));
    let Some(program) = programs.find(|program| loader::is_executable(program)) else {
        return Loaded::Unknown("there is no program `true` to try it with".to_owned());
    };
    let interpreter = loader::read(&program).and_then(|elf| elf.interpreter);
    let Some(interpreter) = interpreter else {
        let why = format!("{} is statically linked", program.display());
        return Loaded::Unknown(why);
    };
    match ask_loader(&interpreter, &program, library, list) {
        (Loaded::Yes, _) => {}
        (other, _) => return other,
    }
    let mut command = Command::new(&program);
    let answer = child::run(command.env("LD_PRELOAD", list), |_| {});
    match answer {
        Ok(answer) if answer.is_success() => loaded(&answer, library, true),
        Ok(answer) => match answer.status {
            Some(_) => Loaded::No(format!(
                "{} fails with it: {}",
                program.display(),
                answer.errors.lines().next().unwrap_or("without a message")
            )),
            None => Loaded::No(format!("{} does not end with it", program.display())),
        },
        Err(error) => Loaded::Unknown(error.to_string()),
    }
}

/// Asks a loader what it would load for a program: the program itself is not run. Returns what became of the library, and the names
/// of libraries that were not found.
pub(super) fn ask_loader(
    interpreter: &str,
    program: &Path,
    library: &Path,
    list: &OsStr,
) -> (Loaded, Vec<String>) {
    if !is_glibc_loader(interpreter) {
        return (
            Loaded::Unknown(format!("{interpreter} is no loader of the GNU C library")),
            Vec::new(),
        );
    }
    let mut command = Command::new(interpreter);
    command.arg("--list").arg(program).env("LD_PRELOAD", list);
    let answer = match child::run(&mut command, |_| {}) {
        Ok(answer) => answer,
        Err(error) => return (Loaded::Unknown(error.to_string()), Vec::new()),
    };
    let missing = answer.output.lines().filter_map(|line| {
        let (name, _) = line.split_once(" => not found")?;
        Some(name.trim().to_owned())
    });
    let missing = missing.collect();
    if answer.status.is_none() {
        let why = format!(
            "{interpreter} did not answer within {} s",
            child::LIMIT.as_secs()
        );
        return (Loaded::Unknown(why), missing);
    }
    let path = library.to_string_lossy();
    let is_listed = answer.output.lines().any(|line| line.contains(&*path));
    (loaded(&answer, library, is_listed), missing)
}

/// Returns whether this is a loader that lists what it loads: others might run the program.
fn is_glibc_loader(interpreter: &str) -> bool {
    let name = interpreter.rsplit('/').next().unwrap_or_default();
    ["ld-linux", "ld64.so", "ld.so"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Returns what a loader said of a library in its messages.
fn loaded(answer: &Answer, library: &Path, is_listed: bool) -> Loaded {
    let path = library.to_string_lossy();
    let about = answer.errors.lines().find(|line| line.contains(&*path));
    match about {
        // `ERROR: ld.so: object '…' from LD_PRELOAD cannot be preloaded (reason): ignored.`
        Some(line) if line.contains("cannot be preloaded") => {
            let reason = line
                .rsplit_once("preloaded (")
                .map_or(line, |(_, rest)| rest);
            let reason = reason.strip_suffix("): ignored.").unwrap_or(reason);
            Loaded::No(reason.to_owned())
        }
        Some(line) => Loaded::No(line.trim().to_owned()),
        None if is_listed => Loaded::Yes,
        None => {
            let first = answer.errors.lines().next();
            Loaded::No(first.unwrap_or("the loader does not list it").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_messages_are_understood() {
        let library = Path::new("/lib/libannals_mpi.so");
        let answer = |errors: &str| Answer {
            status: None,
            output: String::new(),
            errors: errors.to_owned(),
        };
        let message = "ERROR: ld.so: object '/lib/libannals_mpi.so' from LD_PRELOAD cannot be preloaded (wrong ELF class: ELFCLASS64): ignored.\n";
        assert_eq!(
            loaded(&answer(message), library, true),
            Loaded::No("wrong ELF class: ELFCLASS64".to_owned())
        );
        let other = message.replace("annals_mpi", "other");
        assert_eq!(loaded(&answer(&other), library, true), Loaded::Yes);
        assert!(matches!(loaded(&answer(""), library, false), Loaded::No(_)));
        assert!(is_glibc_loader("/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_glibc_loader("/lib/ld-musl-x86_64.so.1"));
    }
}
