//! Whether a library can be preloaded into a program.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid, getgid, getuid};
use serde_json::{Value, json};

use super::elf::{Elf, Machine};
use super::library::{Loaded, ask_loader};
use super::mounts::is_nosuid;
use super::{Check, path_value};
use crate::preload;

/// The name of the checks of this module.
const NAME: &str = "program-preload";

/// Where the file is, and what it is called in messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) path: &'a Path,
    pub(super) shown: &'a str,
}

impl Named<'_> {
    fn found(&self, why: &str) -> Value {
        json!({ "path": path_value(self.path), "obstacle": why })
    }

    fn problem(&self, why: &str, says: String, advice: &str) -> Check {
        Check::problem(NAME, self.found(why), says).advice(advice)
    }
}

/// Checks a program for another machine than this library's. Returns `None` if it is for the same.
pub(super) fn other_machine(named: Named<'_>, of_program: Machine, own: Machine) -> Option<Check> {
    if of_program == own {
        return None;
    }
    let shown = named.shown;
    let (theirs, ours) = (of_program.name(), own.name());
    Some(named.problem(
        "machine",
        format!(
            "{shown} is a program for {theirs}: the library for {ours} cannot be loaded into it, and nothing of it is recorded"
        ),
        "compile it for this machine, or use an Annals that was built for that one",
    ))
}

/// Checks whether a program has a loader that can load the library, and whether that heeds `LD_PRELOAD`.
pub(super) fn preloading(named: Named<'_>, elf: &Elf, library: Option<&Path>) -> Vec<Check> {
    let shown = named.shown;
    let Some(interpreter) = &elf.interpreter else {
        // An executable, or a library that says that it is one.
        let is_library = elf.kind == 3 && !elf.is_pie && !elf.needed.is_empty();
        let (why, what, advice) = if is_library {
            ("library", "a library, not a program", "name the program")
        } else {
            (
                "static",
                "statically linked",
                "link it dynamically (without -static), or let it record itself with libannals.a",
            )
        };
        return vec![named.problem(
            why,
            format!(
                "{shown} is {what}: nothing can be preloaded into it, so that neither functions nor calls of MPI are recorded"
            ),
            advice,
        )];
    };
    if interpreter
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .starts_with("ld-musl-")
    {
        return vec![named.problem(
            "musl",
            format!(
                "{shown} is linked with musl (its loader is {interpreter}): the library needs the GNU C library, and with it \
                 preloaded the program does not start"
            ),
            "compile it with the GNU C library to record it",
        )];
    }
    if !Path::new(interpreter).exists() {
        return vec![named.problem(
            "no-loader",
            format!("{shown} asks for the loader {interpreter}, which is not there: it cannot be started"),
            "install the C library that it was built for",
        )];
    }
    let mut checks: Vec<Check> = privileged(named).into_iter().collect();
    if checks
        .iter()
        .any(|check| check.status == super::Status::Problem)
    {
        return checks;
    }
    checks.push(ask(named, interpreter, library));
    checks
}

fn ask(named: Named<'_>, interpreter: &str, library: Option<&Path>) -> Check {
    let shown = named.shown;
    let list = library.and_then(|library| Some((library, preload::preload(&[library]).ok()?)));
    let Some((library, list)) = list else {
        let says = format!(
            "{shown} is dynamically linked, but without a library that works (see library) it could not be tried"
        );
        return Check::note(NAME, named.found("no-library"), says);
    };
    let absolute = std::path::absolute(named.path).unwrap_or_else(|_| named.path.to_owned());
    let (loaded, missing) = ask_loader(interpreter, &absolute, library, &list);
    if let Some(first) = missing.first() {
        let mut found = named.found("missing");
        found["missing"] = json!(missing);
        let says = format!(
            "{shown} needs {}, which the loader does not find: it cannot be started",
            missing.join(", ")
        );
        return Check::problem(NAME, found, says)
            .advice(format!("set LD_LIBRARY_PATH to the directory of {first}"));
    }
    match loaded {
        Loaded::Yes => Check::ok(
            NAME,
            json!({ "path": path_value(named.path), "obstacle": null }),
            format!("the loader of {shown} loads the library before the program's own"),
        ),
        Loaded::No(why) => named.problem(
            "refused",
            format!("the loader of {shown} does not load the library: {why}"),
            "use an Annals that was built for the C library of this program",
        ),
        Loaded::Unknown(why) => {
            let says = format!(
                "whether the loader of {shown} loads the library could not be checked: {why}"
            );
            Check::note(NAME, named.found("unknown"), says)
        }
    }
}

/// Checks for what makes the loader ignore `LD_PRELOAD`: a program that runs with other rights than its caller's.
fn privileged(named: Named<'_>) -> Option<Check> {
    let shown = named.shown;
    let metadata = named.path.metadata().ok()?;
    let mode = metadata.mode();
    let (is_setuid, is_setgid) = (mode & 0o4000 != 0, mode & 0o2000 != 0 && mode & 0o010 != 0);
    let has_capabilities = has_capabilities(named.path);
    let (user, group) = (metadata.uid(), metadata.gid());
    let what = match (is_setuid, is_setgid) {
        (true, _) => format!("set-user-id of user {user}"),
        (false, true) => format!("set-group-id of group {group}"),
        (false, false) if has_capabilities => "a program with file capabilities".to_owned(),
        (false, false) => return None,
    };
    let obstacle = if is_setuid || is_setgid {
        "set-id"
    } else {
        "capabilities"
    };
    if is_nosuid(named.path) == Some(true) {
        let says =
            format!("{shown} is {what}, but on a file system where that has no effect (nosuid)");
        return Some(Check::note(NAME, named.found(obstacle), says));
    }
    // The kernel sets the loader's secure-execution mode if privileges change (execve(2),
    // ld.so(8)).
    let changes_user = is_setuid && (user != geteuid().as_raw() || user != getuid().as_raw());
    let changes_group = is_setgid && (group != getegid().as_raw() || group != getgid().as_raw());
    let gains = has_capabilities && !getuid().is_root();
    if changes_user || changes_group || gains {
        return Some(named.problem(
            obstacle,
            format!("{shown} is {what}: the loader ignores LD_PRELOAD for it, and nothing of it is recorded"),
            "record a copy of it without these rights (cp makes one)",
        ));
    }
    let says = format!(
        "{shown} is {what}: that changes nothing for you, but for other users the loader ignores LD_PRELOAD"
    );
    Some(Check::note(NAME, named.found(obstacle), says))
}

fn has_capabilities(path: &Path) -> bool {
    let mut buffer = [0_u8; 64];
    let name = OsStr::new("security.capability");
    rustix::fs::getxattr(path, name, &mut buffer[..]).is_ok()
}
