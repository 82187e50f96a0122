//! Compilers with their runtimes, and what `trace-cli` says of recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock, PoisonError};

use annals_test_support::installation::installed;
use serde_json::Value;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A compiler, and the runtime that its programs use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runtime {
    /// LLVM's, of this version, as `tests/run.sh` has unpacked it.
    Libomp(u32),
    /// GCC's.
    Libgomp,
}

/// All of them.
pub(crate) const RUNTIMES: [Runtime; 3] =
    [Runtime::Libomp(14), Runtime::Libomp(19), Runtime::Libgomp];

impl Runtime {
    /// Returns the directory of the runtime's library. `None` if it is the system's.
    pub(crate) fn directory(self) -> Option<PathBuf> {
        let Self::Libomp(version) = self else {
            return None;
        };
        let libraries = format!("target/libomp/{version}/usr/lib/llvm-{version}/lib");
        let directory = Path::new(ROOT).join(libraries);
        let there = directory.is_dir();
        assert!(
            there,
            "{} is missing: tests/run.sh sets it up",
            directory.display()
        );
        Some(directory)
    }

    /// Compiles a program of this directory. Returns it.
    pub(crate) fn compile(self, source: &str, more: &[&str]) -> PathBuf {
        static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("{source}-{self:?}{}", more.concat().replace('/', "-"));
        let program = scratch().join(name);
        if !compiled.insert(program.clone()) {
            return program;
        }
        let mut compiler = Command::new(match self {
            Self::Libomp(_) => "clang",
            Self::Libgomp => "gcc",
        });
        compiler.args([
            "-g",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-unknown-pragmas",
            "-fopenmp",
        ]);
        compiler.arg(Path::new(ROOT).join("tests/runtimes").join(source));
        if let Some(directory) = self.directory() {
            compiler
                .arg("-I")
                .arg(Path::new(ROOT).join("target/libomp/include"));
            compiler.arg("-L").arg(&directory);
            compiler.arg(format!("-Wl,-rpath,{}", directory.display()));
        }
        compiler.args(more).arg("-o").arg(&program).arg("-lpthread");
        output(&mut compiler);
        program
    }
}

pub(crate) fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtimes");
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).expect("a directory");
        scratch
    })
}

fn trace_cli() -> Command {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    let prefix =
        PREFIX.get_or_init(|| installed(env!("CARGO_TARGET_TMPDIR"), "runtimes-installed"));
    Command::new(prefix.join("bin/trace-cli"))
}

/// Runs a command that must end within a minute.
pub(crate) fn run(command: &mut Command) -> Output {
    let mut limited = Command::new("timeout");
    limited
        .arg("60")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, ..) in std::env::vars().filter(|(name, _)| name.starts_with("ANNALS_")) {
        limited.env_remove(name);
    }
    // There may be more threads than processors.
    limited.env("OMP_WAIT_POLICY", "passive");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            limited.env(name, value);
        }
    }
    limited
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns what a command prints, when it ends well.
pub(crate) fn output(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program that was recorded.
pub(crate) struct Recorded {
    pub(crate) directory: PathBuf,
    pub(crate) output: Output,
}

/// Records a program, with these options and this environment.
pub(crate) fn record(options: &[&str], environment: &[(&str, &str)], command: &[&str]) -> Recorded {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let directory = scratch().join(format!("run-{number}"));
    let mut record = trace_cli();
    record.arg("record").arg("-o").arg(&directory).args(options);
    record
        .envs(environment.iter().copied())
        .arg("--")
        .args(command);
    let output = run(&mut record);
    Recorded { directory, output }
}

/// Returns an answer about recordings or an archive, as JSON.
pub(crate) fn ask(arguments: &[&str], about: &Path) -> Value {
    let mut ask = trace_cli();
    ask.args(arguments).arg(about).arg("--json");
    serde_json::from_str(&output(&mut ask)).expect("JSON")
}

impl Recorded {
    /// Returns what the program and `record` have printed.
    pub(crate) fn said(&self) -> (String, String) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (text(&self.output.stdout), text(&self.output.stderr))
    }

    /// Returns an answer about the recording, as JSON.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Value {
        ask(arguments, &self.directory)
    }

    /// Returns the number of calls of each region, without where it is. Each was left, and each that was left was entered.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        let rows = self.ask(&["regions"]);
        for row in rows["regions"].as_array().expect("rows") {
            for wrong in [
                "open_calls",
                "unmatched_leaves",
                "unleft_calls",
                "uncertain_calls",
            ] {
                assert_eq!(row[wrong], 0, "{wrong}: {row}");
            }
            let name = row["region"].as_str().expect("a name");
            let place = name.find(" @").or_else(|| name.find(" in "));
            let name = place.map_or(name, |place| &name[..place]);
            *calls.entry(name.to_owned()).or_default() += row["calls"].as_u64().expect("a number");
        }
        calls
    }

    /// Returns the number of events of a type.
    pub(crate) fn events(&self, name: &str) -> u64 {
        let rows = self.ask(&["events"]);
        let rows = rows["event_types"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["event"] == name);
        row.map_or(0, |row| row["events"].as_u64().expect("a number"))
    }

    /// Returns the names of its threads, each once.
    pub(crate) fn threads(&self) -> Vec<String> {
        let rows = self.ask(&["regions", "--by", "location"]);
        let rows = rows["regions"].as_array().expect("rows");
        let names = rows.iter().filter_map(|row| row["location"].as_str());
        let name = |name: &str| name.split(" (").next().unwrap_or(name).to_owned();
        let mut names: Vec<String> = names.map(name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
