//! Existing settings for the loader, and the system's reports about processes.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{Check, child};
use crate::launch::Orphans;
use crate::watch::{EndProbe, Watch};

/// Checks `LD_PRELOAD` and the loader's other variables.
pub(super) fn loader_variables(library: Option<&Path>) -> Vec<Check> {
    let mut checks = Vec::new();
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    };
    if let Some(value) = set("LD_PRELOAD") {
        checks.push(preloaded_already(&value, library));
    }
    if let Some(value) = set("LD_AUDIT") {
        let says = format!(
            "LD_AUDIT is set ({value}): this library watches the loader, and sees the recorder's calls, too"
        );
        let found = json!({ "variable": "LD_AUDIT", "value": value });
        checks.push(
            Check::note("environment", found, says)
                .advice("unset it if recorded programs misbehave"),
        );
    }
    if let Some(value) = set("LD_DEBUG") {
        let says = format!(
            "LD_DEBUG is set ({value}): the loader prints messages while recorded programs run, which costs time"
        );
        let found = json!({ "variable": "LD_DEBUG", "value": value });
        checks.push(Check::note("environment", found, says).advice("unset it for measurements"));
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            "environment",
            json!({ "variable": null }),
            "LD_PRELOAD, LD_AUDIT and LD_DEBUG are not set",
        ));
    }
    checks
}

fn preloaded_already(value: &str, library: Option<&Path>) -> Check {
    let names: Vec<&str> = value
        .split([' ', ':', '\t', '\n'])
        .filter(|name| !name.is_empty())
        .collect();
    // A name without a slash is searched for by the loader.
    let missing: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| name.contains('/') && !Path::new(name).is_file())
        .collect();
    let found = json!({ "variable": "LD_PRELOAD", "libraries": names, "missing": missing });
    let list = names.join(", ");
    if let [first, ..] = missing[..] {
        let says = format!(
            "LD_PRELOAD is set ({list}), but {first} is not there: the loader complains at the start of each program"
        );
        return Check::note("environment", found, says).advice("unset it, or correct it");
    }
    let is_own = library.is_some_and(|library| names.iter().any(|name| Path::new(name) == library));
    if is_own {
        let says = format!(
            "LD_PRELOAD is set ({list}): programs are recorded even without `trace-cli record`"
        );
        return Check::note("environment", found, says)
            .advice("unset it where programs are not to be recorded");
    }
    let says = format!(
        "LD_PRELOAD is set ({list}): `trace-cli record` puts its own library before these, and keeps them"
    );
    Check::note("environment", found, says)
        .advice("unset it if they replace functions of MPI, or memory functions, and recorded programs misbehave")
}

/// Checks whether the system reports how a process ended that another one started: a rank of a launcher.
pub(super) fn ends_of_processes() -> Check {
    let system = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = system.trim().to_owned();
    let watches = Watch::begin(&std::env::temp_dir()).map(|watch| watch.end(Orphans::default()));
    let mut probe = None;
    let mut command = Command::new("/proc/self/exe");
    let ran = child::run(command.arg("--version"), |pid| {
        probe = Some(EndProbe::new(pid))
    });
    let found = |is_reported: Option<bool>| json!({ "linux": system, "is_reported": is_reported });
    let advice = "put `trace-cli record` after the launcher: mpirun -n 4 trace-cli record -o run -- ./program";
    let note = |why: String, is_reported: Option<bool>| {
        let says = format!(
            "how ranks end is known only to the launcher that started them: {why}; recordings are complete all the same"
        );
        Check::note("exit-status", found(is_reported), says).advice(advice)
    };
    if let Err(error) = watches {
        return note(
            format!("the system does not let `record` watch its directory ({error})"),
            Some(false),
        );
    }
    if let Err(error) = ran {
        return note(
            format!("no process could be started to try it ({error})"),
            None,
        );
    }
    match probe {
        Some(Ok(handle)) if handle.has_end() => Check::ok(
            "exit-status",
            found(Some(true)),
            format!(
                "this system (Linux {system}) reports how ranks of a launcher end: `trace-cli record -- mpirun …` knows it"
            ),
        ),
        Some(Ok(_)) => note(
            format!(
                "this system (Linux {system}) does not report it to others; Linux 6.15 and later do"
            ),
            Some(false),
        ),
        Some(Err(error)) => note(
            format!("this system does not support process handles (pidfd_open: {error})"),
            Some(false),
        ),
        None => note("no process could be started to try it".to_owned(), None),
    }
}

/// Says what recording needs of ptrace: nothing.
pub(super) fn tracing() -> Check {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = scope.and_then(|text| text.trim().parse::<u32>().ok());
    Check::ok(
        "ptrace",
        json!({ "is_needed": false, "ptrace_scope": scope }),
        "Annals does not use ptrace: containers need no permission for it",
    )
}
