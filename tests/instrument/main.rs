//! Programs compiled with `-finstrument-functions`, and `trace-cli record`: what is recorded is compared
//! with counters that are compiled into the functions themselves, and with what uftrace counts.

mod compilers;
mod endings;
mod filters;
mod forked;
mod launchers;
mod made_code;
mod names;
mod sampling;
mod sampling_endings;
mod unwinding;

use annals_test_support::installation::installed;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Name, file, line.
type Place = (String, String, u64);

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must end within a minute.
fn run(command: &mut Command) -> Output {
    for (name, ..) in std::env::vars().filter(|(name, _)| name.starts_with("ANNALS_")) {
        command.env_remove(name);
    }
    let mut limited = Command::new("timeout");
    limited
        .arg("60")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    limited
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Returns what a command prints, when it ends well.
fn output(command: &mut Command) -> String {
    let output = run(command);
    let said = text_of(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text_of(&output.stdout)
}

/// Returns the installation of this run of the tests.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| installed(env!("CARGO_TARGET_TMPDIR"), "instrument"))
}

fn trace_cli() -> Command {
    Command::new(prefix().join("bin/trace-cli"))
}

/// Compiles a C program of this directory.
fn compile_c(source: &str, to: &Path, arguments: &[&str]) {
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-O1", "-fno-inline", "-fno-optimize-sibling-calls"]);
    compiler.args(["-Wall", "-Wextra", "-Werror", "-finstrument-functions"]);
    compiler.arg(Path::new(ROOT).join("tests/instrument").join(source));
    output(compiler.arg("-o").arg(to).args(arguments));
}

/// The program and its libraries, compiled.
struct Built {
    scratch: tempfile::TempDir,
}

impl Built {
    fn new(optimisation: &str, more: &[&str]) -> Self {
        let built = Self {
            scratch: tempfile::tempdir().expect("a directory"),
        };
        let compile = |source: &str, to: &str, arguments: &[&str]| {
            let mut compiler = Command::new("c++");
            compiler.args(["-std=c++11", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror"]);
            compiler.arg(optimisation).arg("-finstrument-functions");
            let not_ours = "/usr/include,/usr/lib,count.h";
            compiler.arg(format!(
                "-finstrument-functions-exclude-file-list={not_ours}"
            ));
            compiler.arg(Path::new(ROOT).join("tests/instrument").join(source));
            compiler
                .arg("-o")
                .arg(built.path(to))
                .args(arguments)
                .args(more);
            compiler.arg("-L").arg(built.scratch.path());
            if to != "libshapes.so" {
                compiler.args(["-lshapes", "-ldl", "-pthread"]);
                compiler.arg(format!("-Wl,-rpath,{}", built.scratch.path().display()));
            }
            output(&mut compiler);
        };
        compile("shapes.cpp", "libshapes.so", &["-shared"]);
        for name in ["first", "second", "third"] {
            let names = [
                format!("-DNAME={name}"),
                format!("-DTEXT=\"{name}\""),
                format!("-DHELPER=\"{name} helper\""),
            ];
            let mut arguments = vec!["-shared"];
            arguments.extend(names.iter().map(String::as_str));
            compile("plugin.cpp", &format!("lib{name}.so"), &arguments);
        }
        compile("program.cpp", "program", &["-pie"]);
        built
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// `trace-cli record OPTIONS -- PROGRAM HOW`.
    fn record(&self, options: &[&str], how: &str) -> Output {
        let mut record = trace_cli();
        record
            .arg("record")
            .arg("-o")
            .arg(self.path("run"))
            .args(options);
        record.arg("--").arg(self.path("program"));
        run(record.arg(self.scratch.path()).arg(how))
    }
}

/// Returns what the program itself has counted. One line for each function.
fn counted(printed: &[u8]) -> BTreeMap<Place, u64> {
    let mut counts = BTreeMap::new();
    for line in text_of(printed).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, file, line, calls] = fields[..] else {
            panic!("{line}");
        };
        // Both plug-ins have one of these.
        let name = if name.ends_with(" helper") {
            "helper(int)"
        } else {
            name
        };
        // Its parameters have names that the library's version decides.
        let place = (name.to_owned(), file.to_owned(), line.parse().unwrap());
        *counts.entry(place).or_default() += calls.parse::<u64>().unwrap();
    }
    counts.retain(|_, calls| *calls != 0);
    counts
}

fn regions(input: &Path, options: &[&str]) -> Vec<Value> {
    let mut command = trace_cli();
    let text = output(
        command
            .arg("regions")
            .arg(input)
            .arg("--json")
            .args(options),
    );
    let report: Value = serde_json::from_str(&text).expect("JSON");
    report["regions"].as_array().expect("regions").clone()
}

/// Calls by name, file and line; without the compiler's own functions.
fn recorded(regions: &[Value]) -> BTreeMap<Place, u64> {
    let mut calls = BTreeMap::new();
    for region in regions {
        let name = region["region"].as_str().expect("a name");
        let is_of_compiler = name.starts_with("_GLOBAL_") || name.starts_with("__static");
        let is_quiet = name.starts_with("Count::");
        if is_of_compiler || is_quiet {
            continue;
        }
        let name = if name.starts_with("plug(") {
            "plug"
        } else {
            name
        };
        let file = region["file"].as_str().expect("a file");
        let place = (
            name.to_owned(),
            file.to_owned(),
            region["line"].as_u64().unwrap(),
        );
        *calls.entry(place).or_default() += region["calls"].as_u64().expect("a count");
    }
    calls
}

fn names_and_counts_are_right(optimisation: &str, more: &[&str]) {
    let built = Built::new(optimisation, more);
    let output = built.record(&[], "seven");
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("1 recording in"), "{said}");
    assert!(
        said.contains("finished: ") && said.contains("dropped 0"),
        "{said}"
    );
    let counts = counted(&output.stdout);
    assert!(counts.len() >= 18, "{counts:?}");
    let regions = regions(&built.path("run"), &[]);
    assert_eq!(recorded(&regions), counts);
    // Calls that longjmp skipped are reported.
    for region in &regions {
        let is_deep = region["region"] == "deep(int)";
        let expected = if is_deep { 15 } else { 0 };
        assert_eq!(region["unleft_calls"], expected, "{region}");
        assert_eq!(region["unmatched_leaves"], 0, "{region}");
        assert_eq!(region["open_calls"], 0, "{region}");
    }
    let text = self::output(trace_cli().arg("regions").arg(built.path("run")));
    assert!(
        text.contains("deep(int): 15 calls without a leave"),
        "{text}"
    );
    // A merge keeps all of it.
    let trace = built.path("run.annals");
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    self::output(merge.arg(built.path("run")).arg("-o").arg(&trace));
    assert_eq!(recorded(&self::regions(&trace, &[])), counts);
}

#[test]
fn names_files_lines_and_counts_are_those_of_the_program() {
    names_and_counts_are_right("-O0", &[]);
}

#[test]
fn names_files_lines_and_counts_are_those_of_an_optimised_program() {
    names_and_counts_are_right("-O2", &[]);
}

#[test]
fn files_without_build_ids_are_named_on_the_host_that_ran_them() {
    names_and_counts_are_right("-O1", &["-Wl,--build-id=none"]);
}

#[test]
fn suggested_rules_are_about_names_that_functions_of_c_have_while_they_run() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("short");
    let source = Path::new(ROOT).join("tests/instrument/short.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-g", "-finstrument-functions", "-o"]);
    output(compiler.arg(&program).arg(source));
    let calls = |name: &str, options: &[&str]| {
        let directory = scratch.path().join(name);
        let mut record = trace_cli();
        record.arg("record").args(options).arg("-o").arg(&directory);
        output(record.arg("--").arg(&program));
        let regions = regions(&directory, &[]).into_iter();
        let calls = regions.map(|region| {
            let name = region["region"].as_str().unwrap().to_owned();
            (name, region["calls"].as_u64().unwrap())
        });
        calls.collect::<BTreeMap<_, _>>()
    };
    let all = calls("all", &[]);
    let expected = [("PKc", 2000), ("f", 2000), ("main", 1)];
    let expected = expected.map(|(name, calls)| (name.to_owned(), calls));
    assert_eq!(all, BTreeMap::from(expected));
    let rules = scratch.path().join("rules");
    let mut suggest = trace_cli();
    suggest
        .arg("suggest-filter")
        .arg(scratch.path().join("all"));
    output(suggest.arg("-o").arg(&rules));
    let text = std::fs::read_to_string(&rules).unwrap();
    assert!(text.contains("# f\noff region short+0x"), "{text}");
    let filter = format!("--filter=@{}", rules.display());
    let fewer = calls("fewer", &[&filter]);
    assert_eq!(fewer, BTreeMap::from([("main".to_owned(), 1)]));
}

#[test]
fn uftrace_counts_the_same_calls() {
    let has_uftrace = Command::new("uftrace").arg("--version").output().is_ok();
    if !has_uftrace {
        eprintln!("NOT TESTED: uftrace is not there (tests/run.sh installs it)");
        return;
    }
    let built = Built::new("-O1", &[]);
    let mut record = Command::new("uftrace");
    record
        .args(["record", "--no-libcall", "-d"])
        .arg(built.path("uftrace.data"));
    output(record.arg(built.path("program")).arg(built.scratch.path()));
    let mut report = Command::new("uftrace");
    report.args(["report", "--no-pager", "-f", "call", "-d"]);
    let text = output(report.arg(built.path("uftrace.data")));
    let lines = text.lines().filter_map(|line| {
        let (calls, name) = line.trim().split_once(char::is_whitespace)?;
        let name = name.trim().split('(').next()?.to_owned();
        Some((name, calls.parse::<u64>().ok()?))
    });
    let theirs: BTreeMap<String, u64> = lines.collect();
    let recorded = built.record(&[], "");
    assert!(recorded.status.success(), "{}", text_of(&recorded.stderr));
    let mut compared = 0;
    for region in regions(&built.path("run"), &[]) {
        let name = region["region"]
            .as_str()
            .unwrap()
            .split('(')
            .next()
            .unwrap();
        // uftrace continues in the forked child, and counts overloads as one function.
        let is_same = [
            "worker",
            "jump",
            "deep",
            "shapes::careful",
            "shapes::risky",
            "main",
        ];
        if is_same.contains(&name) {
            assert_eq!(
                theirs.get(name),
                region["calls"].as_u64().as_ref(),
                "{name}: {text}"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 6);
}

#[test]
fn a_stripped_program_is_named_later_from_files_with_its_build_id_and_no_others() {
    let built = Built::new("-O1", &[]);
    let whole = built.path("whole");
    std::fs::create_dir(&whole).unwrap();
    for name in ["program", "libshapes.so", "libfirst.so", "libsecond.so"] {
        std::fs::copy(built.path(name), whole.join(name)).unwrap();
        output(Command::new("strip").arg(built.path(name)));
    }
    let recorded_now = built.record(&[], "");
    let said = text_of(&recorded_now.stderr);
    assert!(said.contains("functions have no name"), "{said}");
    let counts = counted(&recorded_now.stdout);
    let run = built.path("run");
    let is_unnamed = |region: &Value| region["region"].as_str().unwrap().starts_with("program+0x");
    assert!(regions(&run, &[]).iter().any(is_unnamed));
    // Another build, with all its symbols, in the same directory.
    let other = Built::new("-O2", &[]);
    let of_other = other.scratch.path().to_str().unwrap();
    assert!(
        regions(&run, &["--symbols", of_other])
            .iter()
            .any(is_unnamed)
    );
    let of_whole = whole.to_str().unwrap();
    assert_eq!(recorded(&regions(&run, &["--symbols", of_whole])), counts);
    // Also when the trace was merged without, or with.
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    let trace = built.path("without.annals");
    output(merge.arg(&run).arg("-o").arg(&trace));
    assert!(regions(&trace, &[]).iter().any(is_unnamed));
    assert_eq!(recorded(&regions(&trace, &["--symbols", of_whole])), counts);
    let trace = built.path("with.annals");
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    output(
        merge
            .arg(&run)
            .arg("-o")
            .arg(&trace)
            .args(["--symbols", of_whole]),
    );
    assert_eq!(recorded(&regions(&trace, &[])), counts);
}

#[test]
fn a_killed_program_loses_nothing_and_leaves_nothing_elsewhere() {
    let built = Built::new("-O1", &[]);
    let live = built.path("live");
    std::fs::create_dir(&live).unwrap();
    let output = built.record(&["--live-dir", live.to_str().unwrap()], "killed");
    let said = text_of(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{said}");
    assert!(
        said.contains("ended by SIGKILL") && said.contains("killed by SIGKILL: "),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(&live).unwrap().count(), 0);
    // One whole recording.
    let run_directory = built.path("run");
    assert_eq!(std::fs::read_dir(&run_directory).unwrap().count(), 1);
    assert_eq!(
        recorded(&regions(&run_directory, &[])),
        counted(&output.stdout)
    );
    let lines = recover(&[&run_directory]);
    assert_eq!(lines[0]["state"], "whole");
}

#[test]
fn a_program_may_free_the_recorder_that_records_its_functions() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("freed");
    let source = Path::new(ROOT).join("tests/instrument/freed.c");
    let (include, libraries) = (prefix().join("include"), prefix().join("lib"));
    let mut compiler = Command::new("cc");
    compiler.args([
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-finstrument-functions",
    ]);
    compiler
        .arg(source)
        .arg("-I")
        .arg(include)
        .arg("-o")
        .arg(&program);
    compiler
        .arg("-L")
        .arg(&libraries)
        .args(["-lannals", "-pthread"]);
    compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
    output(&mut compiler);
    let run_directory = scratch.path().join("run");
    let mut record = trace_cli();
    record
        .arg("record")
        .arg("-o")
        .arg(&run_directory)
        .arg("--")
        .arg(&program);
    assert!(output(&mut record).contains("0 wrong"));
    let found = regions(&run_directory, &[]);
    // All that was recorded has its name, also what other threads called in the moment before.
    assert!(
        found.iter().all(|region| !region["region"]
            .as_str()
            .unwrap_or_default()
            .starts_with("region-")),
        "{found:?}"
    );
    let work = found.iter().find(|region| region["region"] == "work");
    let calls = work.and_then(|work| work["calls"].as_u64());
    assert!(calls.is_some_and(|calls| calls >= 1000), "{found:?}");
}

/// `trace-cli recover --json`, when nothing is lost.
fn recover(arguments: &[&Path]) -> Vec<Value> {
    let mut command = trace_cli();
    let printed = output(command.args(["recover", "--json"]).args(arguments));
    let lines = printed.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("JSON")).collect()
}

#[test]
fn recover_makes_one_recording_of_what_a_killed_program_left() {
    let built = Built::new("-O1", &[]);
    let run_directory = built.path("run");
    let mut program = Command::new(built.path("program"));
    program.arg(built.scratch.path()).arg("killed");
    program.env("ANNALS_DIR", &run_directory);
    let library = prefix().join("lib/libannals_instrument.so");
    let output = Command::new("env")
        .arg("-i")
        .arg(format!("LD_PRELOAD={}", library.display()))
        .arg(format!("ANNALS_DIR={}", run_directory.display()))
        .arg(program.get_program())
        .args(program.get_args())
        .output()
        .expect("env");
    assert_eq!(
        output.status.signal(),
        Some(9),
        "{}",
        text_of(&output.stderr)
    );
    let files = || {
        let files = std::fs::read_dir(&run_directory).expect("the recordings");
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    };
    let before = files();
    let [recording, live] = before.as_slice() else {
        panic!("{before:?}");
    };
    assert!(live.to_string_lossy().ends_with(".annals-live"));
    let calls = |input: &Path| {
        let each = regions(input, &[]);
        let each = each
            .iter()
            .map(|region| region["calls"].as_u64().expect("calls"));
        each.sum::<u64>()
    };
    let counted: u64 = counted(&output.stdout).values().sum();
    let expected = calls(&run_directory);
    assert!(expected >= counted, "{expected} calls, {counted} counted");

    // Into another directory first: everything stays.
    let elsewhere = built.path("elsewhere");
    let lines = recover(&[recording, Path::new("-o"), &elsewhere]);
    assert_eq!(lines[0]["state"], "recovered");
    assert!(lines[0]["events"].as_u64().expect("events") > 0);
    assert_eq!(files(), before);
    assert_eq!(calls(&elsewhere), expected);
    // There is one now.
    let mut again = trace_cli();
    let again = run(again
        .arg("recover")
        .arg(recording)
        .arg("-o")
        .arg(&elsewhere));
    assert_eq!(again.status.code(), Some(1), "{}", text_of(&again.stderr));

    let lines = recover(&[&run_directory]);
    assert_eq!(lines[0]["state"], "recovered");
    assert_eq!(files(), before[..1]);
    assert_eq!(calls(&run_directory), expected);
    let of_elsewhere = elsewhere.join(recording.file_name().expect("a name"));
    let bytes = |path: &Path| std::fs::read(path).expect("a recording");
    assert_eq!(bytes(recording), bytes(&of_elsewhere));
    assert_eq!(recover(&[&run_directory])[0]["state"], "whole");
    // What is cut and has no live file is left as it is.
    let length = bytes(recording).len() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(recording);
    file.expect("the recording")
        .set_len(length / 2)
        .expect("a cut");
    let mut cut = trace_cli();
    let cut = run(cut.arg("recover").arg(recording));
    assert_eq!(cut.status.code(), Some(3));
    assert!(text_of(&cut.stdout).contains("truncated"));
    assert_eq!(bytes(recording).len() as u64, length / 2);
}

#[test]
fn signals_are_passed_on() {
    let built = Built::new("-O1", &[]);
    let mut record = trace_cli();
    record
        .arg("record")
        .arg("-o")
        .arg(built.path("run"))
        .arg("--");
    record
        .arg(built.path("program"))
        .arg(built.scratch.path())
        .arg("endless");
    let started = Instant::now();
    let mut child = record
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_recording = || {
        let mut regions = trace_cli();
        let said = run(regions.arg("regions").arg(built.path("run")));
        text_of(&said.stdout).contains("fibonacci(int)")
    };
    while !is_recording() {
        assert!(started.elapsed() < Duration::from_secs(30), "it records");
        std::thread::sleep(Duration::from_millis(10));
    }
    output(
        Command::new("kill")
            .arg("-TERM")
            .arg(child.id().to_string()),
    );
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (None, Some(15)));
    let regions = regions(&built.path("run"), &[]);
    assert!(
        regions
            .iter()
            .any(|region| region["region"] == "fibonacci(int)")
    );
}

#[test]
fn recordings_of_another_run_are_not_mixed_up_with_new_ones() {
    let built = Built::new("-O1", &[]);
    let count = || {
        let files = std::fs::read_dir(built.path("run")).unwrap();
        files
            .filter(|file| file.as_ref().unwrap().path().extension() == Some("annals".as_ref()))
            .count()
    };
    assert!(built.record(&[], "").status.success());
    let refused = built.record(&[], "");
    let said = text_of(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(refused.stdout.is_empty(), "the program did not run");
    assert!(
        said.contains("1 recording of another run") && said.contains("--overwrite"),
        "{said}"
    );
    assert!(built.record(&["--add"], "").status.success());
    assert_eq!(count(), 2);
    assert!(built.record(&["--overwrite"], "").status.success());
    assert_eq!(count(), 1);
    // Ranks of one job, each with a separate recorder, in parallel.
    let ranks: Vec<_> = (0..4)
        .map(|rank| {
            let mut record = trace_cli();
            record
                .env("PMIX_NAMESPACE", "job")
                .env("PMIX_RANK", rank.to_string());
            record
                .arg("record")
                .arg("-o")
                .arg(built.path("job"))
                .arg("--");
            record.arg(built.path("program")).arg(built.scratch.path());
            record
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (rank, recorder) in ranks.into_iter().enumerate() {
        let output = recorder.wait_with_output().unwrap();
        let said = text_of(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains("1 recording in") && said.contains(&format!("rank {rank},")),
            "{said}"
        );
    }
    let main = regions(&built.path("job"), &["--region", "main"]);
    assert_eq!(
        main.len(),
        1,
        "one region in all processes, wherever they lay in memory"
    );
    assert_eq!(main[0]["calls"], 4);
}

#[test]
fn what_cannot_work_is_said_before_the_program_runs() {
    let built = Built::new("-O1", &[]);
    let mut record = trace_cli();
    record
        .env("ANNALS_LIB", built.scratch.path())
        .arg("record")
        .arg("-o")
        .arg(built.path("run"));
    // `run` takes such variables away.
    let output = record.args(["--", "true"]).output().unwrap();
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ANNALS_LIB says"), "{said}");
    let wrong = built.record(&["--buffer", "much"], "");
    let said = text_of(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(said.contains("--buffer: expected a number"), "{said}");
    let mut record = trace_cli();
    record
        .arg("record")
        .arg("-o")
        .arg(built.path("none"))
        .args(["--", "/no/such/program"]);
    let missing = run(&mut record);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text_of(&missing.stderr).contains("cannot run /no/such/program"));
    assert!(!built.path("none").exists(), "a directory for nothing");
    // Each of several ranks would make a trace of only one recording, all under the same name.
    let several = |variables: &[(&str, &str)]| {
        let mut record = trace_cli();
        record.arg("record").arg("--merge").arg("-o");
        record.arg(built.path("ranks")).args(["--", "true"]);
        let output = run(record.envs(variables.iter().copied()));
        (output.status.code(), text_of(&output.stderr))
    };
    let below_hydra = [("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    let below_srun = [
        ("SLURM_PROCID", "0"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NTASKS", "4"),
    ];
    for variables in [&below_hydra[..], &below_srun] {
        let (code, said) = several(variables);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("this is one rank of several"), "{said}");
    }
    let in_batch_script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
    let of_one = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    for variables in [&in_batch_script, &of_one] {
        assert_eq!(several(variables).0, Some(0));
    }
    // A program with nothing to record.
    let mut record = trace_cli();
    record
        .arg("record")
        .arg("-o")
        .arg(built.path("none"))
        .args(["--", "true"]);
    let nothing = run(&mut record);
    assert!(nothing.status.success());
    assert!(text_of(&nothing.stderr).contains("nothing was recorded"));
    // One that takes its recordings away.
    let gone = built.path("gone");
    let mut record = trace_cli();
    record.arg("record").arg("-o").arg(&gone);
    record.args(["--", "rm", "-r"]).arg(&gone);
    let removed = run(&mut record);
    assert!(removed.status.success());
    let said = text_of(&removed.stderr);
    assert!(said.contains("is not there any more"), "{said}");
}
