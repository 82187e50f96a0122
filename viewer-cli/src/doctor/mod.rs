//! Whether this machine and its environment are fit for recording, and what will work.
//!
//! Each check reads facts from the system and turns them into a [`Check`]: a status, what was found, and a sentence. A check that says
//! `ok` has been made; what cannot be checked is a note that says so.

pub(crate) mod child;
mod contents;
pub(crate) mod cost;
mod directory;
mod elf;
mod environment;
mod hooks;
mod library;
pub(crate) mod loader;
mod machine;
mod memory;
mod mounts;
mod mpi;
mod preloading;
mod program;
pub(crate) mod sampling;
mod settings;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::preload::LIBRARY;

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is as recording needs it.
    Ok,
    /// Recording works, but something is worth knowing, or could not be checked.
    Note,
    /// Something will not work.
    Problem,
}

impl Status {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// The kind of recording that a problem prevents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    /// All recording.
    Recorder,
    /// Recording of functions and MPI by a preloaded library.
    Preload,
    /// Recording of one program, or nothing.
    One,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Its name, which does not change between versions.
    pub check: &'static str,
    /// The result.
    pub status: Status,
    /// Facts, by name.
    pub found: Value,
    /// A sentence about the finding and its consequences.
    pub says: String,
    /// Advice to the user. `None` means that there is nothing to do.
    pub advice: Option<String>,
    /// The kind of recording that a problem prevents.
    #[serde(skip)]
    scope: Scope,
}

impl Check {
    fn new(check: &'static str, status: Status, found: Value, says: impl Into<String>) -> Self {
        Self {
            check,
            status,
            found,
            says: says.into(),
            advice: None,
            scope: Scope::One,
        }
    }

    fn ok(check: &'static str, found: Value, says: impl Into<String>) -> Self {
        Self::new(check, Status::Ok, found, says)
    }

    fn note(check: &'static str, found: Value, says: impl Into<String>) -> Self {
        Self::new(check, Status::Note, found, says)
    }

    fn problem(check: &'static str, found: Value, says: impl Into<String>) -> Self {
        Self::new(check, Status::Problem, found, says)
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    fn preventing(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }
}

/// The subject of the checks.
#[derive(Clone, Default, Debug)]
pub struct Request {
    /// The directory for recordings. `None` means the one that the environment names, or the default.
    pub output: Option<PathBuf>,
    /// Programs, each by its path or a name that is searched for in `PATH`.
    pub programs: Vec<OsString>,
    /// A command line: its program, and programs among its arguments.
    pub command: Vec<OsString>,
    /// Whether to measure what recording costs.
    pub cost: bool,
}

/// The results of all checks.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whether there is no problem.
    pub ok: bool,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
    /// A summary of what will work.
    pub summary: String,
}

/// Measures what an event costs that the hooks of a library raise that is loaded into this process: nanoseconds, for each round.
///
/// # Errors
/// If there are none.
pub fn measure_hooks() -> anyhow::Result<String> {
    hooks::measure()
}

/// Makes all checks.
pub fn examine(request: &Request) -> Report {
    let (options, mut checks) = settings::settings(request.output.as_deref());
    checks.push(machine::clock(options.clock));
    checks.extend(directory::directory(&options));
    checks.extend(machine::limits(options.buffer_bytes as u64));
    checks.push(memory::memory(options.buffer_bytes as u64));
    let (library, of_library) = library::library();
    checks.extend(of_library);
    checks.extend(sampling::check(library.as_deref()));
    checks.extend(environment::loader_variables(library.as_deref()));
    checks.push(environment::ends_of_processes());
    checks.push(environment::tracing());
    let libraries = loader::Libraries::read();
    let launcher = mpi::Launcher::of(&request.command);
    checks.extend(mpi::mpi(&launcher, &libraries));
    checks.push(mpi::openmp(&libraries));
    let machinery = program::Machinery {
        library: library.as_deref(),
        launcher: launcher.kind,
    };
    if request.cost {
        checks.extend(cost::costs(&options.directory));
    }
    let verdicts = program::programs(request, machinery);
    let mut parts = vec![of_machine(&checks)];
    for verdict in verdicts {
        parts.push(verdict.summary);
        checks.extend(verdict.checks);
    }
    Report {
        ok: checks.iter().all(|check| check.status != Status::Problem),
        summary: parts.join(" "),
        checks,
    }
}

/// Returns the summary of what works on this machine, whatever the program.
fn of_machine(checks: &[Check]) -> String {
    let preventing = |scope: Scope| {
        let problems = checks
            .iter()
            .filter(|check| check.status == Status::Problem && check.scope == scope);
        let mut names: Vec<&str> = problems.map(|check| check.check).collect();
        names.dedup();
        names.join(", ")
    };
    let (recorder, preload) = (preventing(Scope::Recorder), preventing(Scope::Preload));
    // One that could not be tried has no problem either.
    let is_tried = checks.iter().any(|check| {
        check.check == "library" && check.status == Status::Ok && check.found["name"] == LIBRARY
    });
    match (&*recorder, &*preload) {
        ("", "") if !is_tried => "Programs can record what they raise through Annals themselves; whether functions and calls of MPI can \
                 be recorded could not be checked."
            .to_owned(),
        ("", "") => "Recording works here: what programs raise through Annals, and, under `trace-cli record`, functions \
                     compiled with -finstrument-functions and calls of MPI."
            .to_owned(),
        ("", preload) => format!(
            "Programs can record what they raise through Annals themselves, but functions and calls of MPI cannot be recorded \
             (see {preload})."
        ),
        (recorder, "") => format!("Recording will not work as it should (see {recorder})."),
        (recorder, preload) => format!(
            "Recording will not work as it should (see {recorder}), and functions and calls of MPI cannot be recorded (see {preload})."
        ),
    }
}

/// Returns a path as a value of JSON.
fn path_value(path: &std::path::Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}
