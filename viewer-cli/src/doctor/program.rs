//! Programs that are named: what their files are, and what of them will be recorded.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::contents::{Use, contents};
use super::elf::{Elf, Machine};
use super::mounts::is_noexec;
use super::preloading::{self, Named};
use super::{Check, Request, Status, loader, path_value};
use crate::table::safe;

/// The name of the checks of this module.
const NAME: &str = "program";

/// Interpreters that the kernel runs one after another for a script.
const MOST_INTERPRETERS: usize = 4;

/// Properties of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machinery<'a> {
    /// The library that is preloaded. `None` means that there is none that works.
    pub(super) library: Option<&'a Path>,
    /// The kind of the launcher that starts the programs. `None` means that it is not known.
    pub(super) launcher: Option<&'static str>,
}

/// The result for one program.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) checks: Vec<Check>,
    /// A sentence about the parts of it that will be recorded.
    pub(super) summary: String,
}

/// Checks all programs of a request: those that are named, and those of the command line.
pub(super) fn programs(request: &Request, machinery: Machinery<'_>) -> Vec<Verdict> {
    let mut named: Vec<(OsString, Use)> = request
        .programs
        .iter()
        .map(|name| (name.clone(), Use::Recorded))
        .collect();
    if let Some((first, rest)) = request.command.split_first() {
        // Treats arguments that are executable files as programs, like `record` does.
        let is_program = |argument: &&OsString| {
            let path = Path::new(argument);
            path.components().count() > 1 && path.is_file() && loader::is_executable(path)
        };
        let others: Vec<OsString> = rest.iter().filter(is_program).cloned().collect();
        let of_first = if others.is_empty() {
            Use::Recorded
        } else {
            Use::Starter
        };
        named.push((first.clone(), of_first));
        named.extend(others.into_iter().map(|name| (name, Use::Recorded)));
    }
    named
        .iter()
        .map(|(name, how)| program(name, *how, machinery))
        .collect()
}

fn program(name: &OsStr, how: Use, machinery: Machinery<'_>) -> Verdict {
    let shown = safe(&name.to_string_lossy());
    let directory = Path::new(name).is_dir().then(|| PathBuf::from(name));
    let Some(path) = loader::in_path(name).or(directory) else {
        return not_in_path(name, &shown);
    };
    let named = Named {
        path: &path,
        shown: &shown,
    };
    file(named, how, machinery, MOST_INTERPRETERS)
}

fn not_in_path(name: &OsStr, shown: &str) -> Verdict {
    let found = json!({ "path": null, "name": name.to_string_lossy() });
    let check = Check::problem(NAME, found, format!("{shown} is in no directory of PATH"));
    let advice = if Path::new(name).exists() {
        format!("name it as ./{shown}")
    } else {
        "correct its name, or name its path".to_owned()
    };
    Verdict {
        checks: vec![check.advice(advice)],
        summary: format!("{shown} cannot be started."),
    }
}

/// Returns the verdict of a program that cannot be started.
fn cannot_start(named: Named<'_>, why: String, advice: &str) -> Verdict {
    let found = json!({ "path": path_value(named.path) });
    let check = Check::problem(NAME, found, format!("{} {why}", named.shown));
    Verdict {
        checks: vec![check.advice(advice)],
        summary: format!("{} cannot be started.", named.shown),
    }
}

fn file(named: Named<'_>, how: Use, machinery: Machinery<'_>, interpreters: usize) -> Verdict {
    let path = named.path;
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            return cannot_start(
                named,
                format!("cannot be found: {error}"),
                "correct its name",
            );
        }
    };
    if metadata.is_dir() {
        return cannot_start(named, "is a directory".to_owned(), "name a program in it");
    }
    // Not opened either: reading from a pipe waits for its writer.
    if !metadata.is_file() {
        return cannot_start(named, "is not a regular file".to_owned(), "name a program");
    }
    if !loader::is_executable(path) {
        return match is_noexec(path) {
            Some(true) => cannot_start(
                named,
                "is on a file system that is mounted noexec: no program there can be started"
                    .to_owned(),
                "copy it to another file system",
            ),
            _ => cannot_start(
                named,
                "is not executable for you".to_owned(),
                "make it executable: chmod +x",
            ),
        };
    }
    let (file, head) = match loader::open(path) {
        Ok(opened) => opened,
        Err(error) => {
            let says = format!(
                "{} can be executed but not read ({error}): whether it can be recorded is not known",
                named.shown
            );
            let found = json!({ "path": path_value(path), "kind": "unreadable" });
            return Verdict {
                checks: vec![Check::note(NAME, found, says)],
                summary: format!("Of {}, it is not known what will be recorded.", named.shown),
            };
        }
    };
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(named, line, machinery, interpreters);
    }
    let Some(machine) = Machine::of(&head) else {
        let why = if metadata.len() == 0 {
            "is an empty file"
        } else {
            "is neither a program in ELF nor a script that begins with #!"
        };
        return cannot_start(named, why.to_owned(), "name the program that it starts");
    };
    elf(named, file, machine, how, machinery)
}

/// Checks the interpreter of a script.
fn script(named: Named<'_>, line: &[u8], machinery: Machinery<'_>, interpreters: usize) -> Verdict {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    let mut words = words.filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let Some(interpreter) = words.next() else {
        let why = "is a script without the name of its interpreter".to_owned();
        return cannot_start(named, why, "write the interpreter after #!");
    };
    if interpreters == 0 {
        let why = "is a script whose interpreter is a script, and so on without end".to_owned();
        return cannot_start(named, why, "name a program as the interpreter after #!");
    }
    let is_env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
    // `env -S python3 -u`, and `env NAME=value python3`.
    let is_name =
        |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    let by_env = words.find(is_name).filter(|_| is_env);
    let name = by_env.unwrap_or(interpreter);
    let shown = safe(&name.to_string_lossy());
    let found = json!({ "path": path_value(named.path), "kind": "script", "interpreter": name.to_string_lossy() });
    let says = format!(
        "{} is a script: what counts is its interpreter, {shown}",
        named.shown
    );
    let path: Option<PathBuf> = match by_env {
        Some(name) => loader::in_path(name),
        None => Some(PathBuf::from(name)),
    };
    let inner = match &path {
        Some(path) => {
            let inner = Named {
                path,
                shown: &shown,
            };
            file(inner, Use::Starter, machinery, interpreters - 1)
        }
        None => not_in_path(name, &shown),
    };
    let mut checks = vec![Check::ok(NAME, found, says)];
    checks.extend(inner.checks);
    Verdict {
        checks,
        summary: format!("{} is a script. {}", named.shown, inner.summary),
    }
}

fn elf(
    named: Named<'_>,
    file: fs::File,
    machine: Machine,
    how: Use,
    machinery: Machinery<'_>,
) -> Verdict {
    let shown = named.shown;
    let facts = json!({ "path": path_value(named.path), "kind": "elf", "machine": machine.name() });
    let nothing = format!("Nothing of {shown} will be recorded.");
    let Some(own) = loader::own_machine() else {
        let says = format!(
            "{shown} is a program for {}; what this one is for cannot be read (/proc)",
            machine.name()
        );
        return Verdict {
            checks: vec![Check::note(NAME, facts, says)],
            summary: format!("Of {shown}, it is not known what will be recorded."),
        };
    };
    if let Some(check) = preloading::other_machine(named, machine, own) {
        return Verdict {
            checks: vec![check],
            summary: nothing,
        };
    }
    let elf = match Elf::read(file) {
        Ok(elf) => elf,
        Err(error) => {
            let why = format!("is damaged or cut off: {error}");
            return cannot_start(named, why, "build or copy it again");
        }
    };
    if !matches!(elf.kind, 2 | 3) {
        let why = "is an object file or a core file, not a program".to_owned();
        return cannot_start(named, why, "link it, or name the program");
    }
    let says = format!("{shown} is a program for {}", machine.name());
    let mut checks = vec![Check::ok(NAME, facts, says)];
    let of_preload = preloading::preloading(named, &elf, machinery.library);
    let is_impossible = of_preload
        .iter()
        .any(|check| check.status == Status::Problem);
    let is_tried = of_preload.iter().any(|check| check.status == Status::Ok);
    checks.extend(of_preload);
    if is_impossible {
        let links_annals = elf.needed.iter().any(|name| name.starts_with("libannals"));
        let summary = if links_annals {
            format!("Of {shown}, only what it raises through Annals will be recorded.")
        } else {
            format!("Nothing of {shown} will be recorded by preloading.")
        };
        return Verdict { checks, summary };
    }
    let contents = contents(named, &elf, how, machinery.launcher);
    checks.extend(contents.checks);
    let summary = match (contents.obstacle, machinery.library) {
        (Some(obstacle), _) => format!("{shown} will not be recorded: {obstacle}."),
        (None, None) => nothing,
        (None, Some(_)) if !is_tried => {
            format!("Whether {shown} can be recorded could not be checked.")
        }
        (None, Some(_)) => contents.summary,
    };
    Verdict { checks, summary }
}
