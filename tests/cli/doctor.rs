//! `trace-cli doctor`: real programs of all kinds, directories that cannot be used, wrong settings; what it prints and how it ends.

use annals_test_support::installation::installed;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;

/// What `--json` prints.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    ok: bool,
    checks: Vec<Check>,
    summary: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    check: String,
    status: String,
    found: Value,
    says: String,
    advice: Option<String>,
}

impl Report {
    /// Returns the checks of this name.
    fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Check> {
        self.checks.iter().filter(move |check| check.check == name)
    }

    /// Returns the worst status of the checks of this name.
    fn status(&self, name: &str) -> &str {
        let has = |status: &str| self.named(name).any(|check| check.status == status);
        let known = ["problem", "note", "ok"];
        known
            .into_iter()
            .find(|status| has(status))
            .unwrap_or("none")
    }

    /// Returns the sentences of the checks of this name.
    fn says(&self, name: &str) -> String {
        let lines = self.named(name).map(|check| {
            format!(
                "{}; {}",
                check.says,
                check.advice.as_deref().unwrap_or_default()
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Returns an installation of Annals, made once.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| installed(env!("CARGO_TARGET_TMPDIR"), "doctor-prefix"))
}

/// Returns the installed `trace-cli`, with an environment that says nothing of Annals, the loader, or sanitizers.
fn doctor() -> Command {
    let mut command = Command::new(prefix().join("bin/trace-cli"));
    for (name, _) in std::env::vars_os() {
        let is_ours = name.as_encoded_bytes().starts_with(b"ANNALS_");
        if is_ours || name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" || name == "ASAN_OPTIONS" {
            command.env_remove(name);
        }
    }
    command.arg("doctor");
    command
}

fn doctor_json() -> Command {
    let mut command = doctor();
    command.arg("--json");
    command
}

fn report_of(command: &mut Command) -> Report {
    let output = command.output().expect("trace-cli runs");
    let report: Report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let has_problem = report.checks.iter().any(|check| check.status == "problem");
    assert_eq!(report.ok, !has_problem);
    assert_eq!(
        output.status.code(),
        Some(i32::from(has_problem)),
        "{report:#?}"
    );
    assert!(output.stderr.is_empty(), "{output:?}");
    report
}

fn report_on(scratch: &Path, programs: &[&str]) -> Report {
    report_of(doctor_json().current_dir(scratch).args(programs))
}

fn cc(scratch: &Path, arguments: &[&str]) -> Output {
    let source = scratch.join("program.c");
    if !source.exists() {
        let text = "int twice(int x) { return 2 * x; }\nint main(void) { return twice(0); }\n";
        fs::write(source, text).expect("a source");
    }
    let mut cc = Command::new("cc");
    cc.current_dir(scratch).args(arguments);
    cc.output().expect("cc runs")
}

/// Compiles a program. Returns whether the compiler can.
fn compiles(scratch: &Path, name: &str, flags: &[&str]) -> bool {
    let mut arguments = vec!["program.c", "-g", "-o", name];
    arguments.extend(flags);
    let output = cc(scratch, &arguments);
    if !output.status.success() {
        eprintln!(
            "NOT TESTED: cc {flags:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    output.status.success()
}

fn executable(path: &Path, contents: &[u8]) {
    fs::write(path, contents).expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("permissions");
}

#[test]
fn a_machine_that_can_record_has_no_problem_and_nothing_is_left_behind() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    let report = report_on(scratch, &[]);
    assert!(report.ok, "{report:#?}");
    for name in [
        "settings",
        "clock",
        "directory",
        "live-file",
        "recorder",
        "limits",
        "memory",
        "library",
        "sampling",
        "environment",
        "exit-status",
        "ptrace",
        "mpi-launcher",
        "mpi-libraries",
        "openmp",
    ] {
        assert_ne!(report.status(name), "none", "{name}: {report:#?}");
    }
    assert_eq!(report.status("recorder"), "ok");
    assert_eq!(report.status("library"), "ok");
    assert!(
        report.summary.starts_with("Recording works here"),
        "{}",
        report.summary
    );
    assert_eq!(fs::read_dir(scratch).expect("a directory").count(), 0);
    for check in &report.checks {
        assert!(check.found.is_object(), "{check:?}");
        assert!(!check.says.is_empty(), "{check:?}");
    }
}

#[test]
fn each_check_is_a_line_and_the_last_line_sums_up() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    assert!(compiles(scratch, "solver", &["-finstrument-functions"]));
    let output = doctor().current_dir(scratch).arg("./solver").output();
    let output = output.expect("trace-cli runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.pop().expect("a summary");
    assert!(
        last.ends_with("Of ./solver, functions will be recorded."),
        "{last}"
    );
    for line in lines {
        let status = line.split_whitespace().next().expect("a status");
        assert!(matches!(status, "ok" | "note" | "problem"), "{line}");
    }
}

#[test]
fn what_recording_costs_is_measured_by_kind_of_program() {
    let scratch = tempfile::tempdir().unwrap();
    let output = scratch.path().join("run");
    let mut command = doctor_json();
    let report = report_of(command.arg("--cost").arg("-o").arg(&output));
    let costs: Vec<&Check> = report.named("cost").collect();
    let programs: Vec<&Value> = costs.iter().map(|check| &check.found["program"]).collect();
    assert_eq!(programs, ["functions", "messages", "metrics"]);
    for check in &costs {
        let figure = |name: &str| check.found[name].as_f64().unwrap();
        // The writer's work is in addition to the program's, which has at least a clock to read.
        assert!(
            figure("all_threads_ns_per_event") > figure("thread_ns_per_event"),
            "{check:?}"
        );
        assert!(figure("bytes_per_event") > 0.1, "{check:?}");
        let dropped = check.found["dropped"].as_u64().unwrap();
        assert_eq!(check.status == "ok", dropped == 0, "{check:?}");
    }
    assert_eq!(
        fs::read_dir(scratch.path()).unwrap().count(),
        0,
        "nothing is left"
    );
    // Without being asked for it takes no time.
    assert_eq!(report_of(&mut doctor_json()).named("cost").count(), 0);
    let nowhere = scratch.path().join("file/run");
    fs::write(scratch.path().join("file"), "").unwrap();
    let report = report_of(doctor_json().arg("--cost").arg("-o").arg(nowhere));
    assert_eq!(report.status("cost"), "problem");
    assert!(
        report.says("cost").contains("Not a directory"),
        "{}",
        report.says("cost")
    );
}

#[test]
fn what_is_said_of_a_dynamic_program_is_what_a_recording_does() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    assert!(compiles(
        scratch,
        "instrumented",
        &["-finstrument-functions"]
    ));
    assert!(compiles(
        scratch,
        "stripped",
        &["-finstrument-functions", "-s"]
    ));
    assert!(compiles(scratch, "plain", &[]));
    for (name, functions, preload) in [
        ("./instrumented", "ok", "ok"),
        ("./stripped", "note", "ok"),
        ("./plain", "note", "ok"),
    ] {
        let report = report_on(scratch, &[name]);
        assert_eq!(report.status("program-functions"), functions, "{report:#?}");
        assert_eq!(report.status("program-preload"), preload, "{report:#?}");
    }
    assert!(
        report_on(scratch, &["./stripped"])
            .says("program-functions")
            .contains("no symbols")
    );
    assert!(
        report_on(scratch, &["./plain"])
            .says("program-functions")
            .contains("-finstrument-functions")
    );
    for (name, is_recorded) in [("./instrumented", true), ("./plain", false)] {
        assert_eq!(is_recorded_by_record(scratch, name), is_recorded, "{name}");
    }
}

/// Records a program, and returns whether there is a recording afterwards.
fn is_recorded_by_record(scratch: &Path, program: &str) -> bool {
    let run = scratch.join("run");
    let _ = fs::remove_dir_all(&run);
    let mut record = Command::new(prefix().join("bin/trace-cli"));
    record.args(["record", "--quiet", "-o"]).arg(&run);
    record.arg("--").arg(program).current_dir(scratch);
    record.output().expect("trace-cli runs");
    let files = fs::read_dir(&run).into_iter().flatten().flatten();
    files
        .into_iter()
        .any(|file| file.path().extension().is_some_and(|end| end == "annals"))
}

#[test]
fn programs_into_which_nothing_can_be_preloaded_are_problems() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    let hooked = "-finstrument-functions";
    assert!(compiles(scratch, "plain", &[hooked]));
    let mut cases: Vec<(&str, &str)> = Vec::new();
    for (name, flag) in [("./static", "-static"), ("./static-pie", "-static-pie")] {
        if compiles(scratch, name, &[flag, hooked]) {
            assert!(!is_recorded_by_record(scratch, name), "{name}");
            cases.push((name, "statically linked"));
        }
    }
    let musl = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    assert!(compiles(scratch, "musl", &[musl]));
    cases.push(("./musl", "musl"));
    assert!(compiles(
        scratch,
        "loaderless",
        &["-Wl,--dynamic-linker=/nowhere/ld.so"]
    ));
    cases.push(("./loaderless", "/nowhere/ld.so"));
    // Of another machine, and of another class.
    let bytes = fs::read(scratch.join("plain")).expect("a program");
    for (name, place, value) in [("arm", 18, 40_u8), ("narrow", 4, 1)] {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        executable(&scratch.join(name), &bytes);
    }
    cases.extend([("./arm", "Arm"), ("./narrow", "32-bit")]);
    if compiles(scratch, "thirty-two", &["-m32"]) {
        cases.push(("./thirty-two", "32-bit x86"));
    }
    fs::write(
        scratch.join("own.c"),
        "void __cyg_profile_func_enter(void *a, void *b) {}\n",
    )
    .expect("a source");
    for (name, part) in cases {
        let report = report_on(scratch, &[name]);
        assert_eq!(
            report.status("program-preload"),
            "problem",
            "{name}: {report:#?}"
        );
        assert!(
            report.says("program-preload").contains(part),
            "{name}: {report:#?}"
        );
        assert!(report.summary.contains("Nothing of"), "{}", report.summary);
    }
    assert!(compiles(scratch, "own", &[hooked, "own.c"]));
    let report = report_on(scratch, &["./own"]);
    assert!(
        report
            .says("program-functions")
            .contains("its own __cyg_profile_func_enter"),
        "{report:#?}"
    );
}

#[test]
fn programs_with_other_rights_than_their_caller_s_are_problems() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    assert!(compiles(scratch, "own", &["-finstrument-functions"]));
    fs::copy(scratch.join("own"), scratch.join("other")).expect("a copy");
    let other = scratch.join("other");
    // Only root can give a file away.
    let is_given = chown(&other, Some(65534), None).is_ok();
    for path in [&scratch.join("own"), &other] {
        fs::set_permissions(path, Permissions::from_mode(0o4755)).expect("permissions");
    }
    let report = report_on(scratch, &["./own"]);
    assert_eq!(report.status("program-preload"), "note", "{report:#?}");
    if is_given {
        let report = report_on(scratch, &["./other"]);
        assert_eq!(report.status("program-preload"), "problem", "{report:#?}");
        assert!(
            report.says("program-preload").contains("set-user-id"),
            "{report:#?}"
        );
        // The loader complains about a library that is not there, unless it ignores it.
        for (name, is_heeded) in [("own", true), ("other", false)] {
            let mut program = Command::new(scratch.join(name));
            let output = program.env("LD_PRELOAD", "/nowhere/lib.so").output();
            let output = output.expect("the program runs");
            assert_eq!(!output.stderr.is_empty(), is_heeded, "{name}: {output:?}");
        }
    } else {
        eprintln!("NOT TESTED: a set-user-id program of another user (only root can make one)");
    }
}

#[test]
fn sanitizers_are_named_with_what_makes_them_work() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    let hooked = "-finstrument-functions";
    if compiles(scratch, "asan", &[hooked, "-fsanitize=address"]) {
        let report = report_on(scratch, &["./asan"]);
        assert_eq!(report.status("program-sanitizer"), "problem", "{report:#?}");
        assert!(
            report
                .says("program-sanitizer")
                .contains("verify_asan_link_order=0"),
            "{report:#?}"
        );
        assert!(!is_recorded_by_record(scratch, "./asan"));
        let option = ("ASAN_OPTIONS", "verify_asan_link_order=0");
        let report = report_of(
            doctor_json()
                .current_dir(scratch)
                .arg("./asan")
                .env(option.0, option.1),
        );
        assert_eq!(report.status("program-sanitizer"), "ok", "{report:#?}");
    }
    if compiles(
        scratch,
        "asan-static",
        &[hooked, "-fsanitize=address", "-static-libasan"],
    ) {
        let report = report_on(scratch, &["./asan-static"]);
        assert_eq!(report.status("program-sanitizer"), "ok", "{report:#?}");
        assert!(is_recorded_by_record(scratch, "./asan-static"));
    }
    if compiles(scratch, "tsan", &[hooked, "-fsanitize=thread"]) {
        let report = report_on(scratch, &["./tsan"]);
        assert_eq!(report.status("program-sanitizer"), "note", "{report:#?}");
    }
}

#[test]
fn files_that_are_no_programs_are_problems_and_nothing_hangs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    assert!(compiles(scratch, "plain", &[]));
    let bytes = fs::read(scratch.join("plain")).expect("a program");
    for length in [4, 17, 63, 100, 700, 3000, bytes.len() - 1000] {
        executable(&scratch.join(format!("cut-{length}")), &bytes[..length]);
        // Whatever is left of it, there is an answer.
        report_on(scratch, &[&format!("./cut-{length}")]);
    }
    executable(&scratch.join("empty"), b"");
    executable(&scratch.join("text"), b"hello\n");
    executable(&scratch.join("loop"), b"#!./loop\n");
    executable(&scratch.join("nameless"), b"#!\n");
    executable(&scratch.join("huge"), b"\x7fELF");
    let huge = fs::File::options().write(true).open(scratch.join("huge"));
    huge.and_then(|file| file.set_len(1 << 36))
        .expect("a sparse file");
    fs::write(scratch.join("data"), "x").expect("a file");
    assert!(
        Command::new("mkfifo")
            .arg(scratch.join("pipe"))
            .status()
            .expect("mkfifo runs")
            .success()
    );
    fs::set_permissions(scratch.join("pipe"), Permissions::from_mode(0o755)).expect("permissions");
    assert!(
        cc(scratch, &["-c", "program.c", "-o", "object.o"])
            .status
            .success()
    );
    fs::set_permissions(scratch.join("object.o"), Permissions::from_mode(0o755))
        .expect("permissions");
    for (name, part) in [
        ("./empty", "is an empty file"),
        ("./text", "neither a program in ELF nor a script"),
        ("./loop", "so on without end"),
        ("./nameless", "without the name of its interpreter"),
        ("./data", "is not executable"),
        ("./pipe", "is not a regular file"),
        (".", "is a directory"),
        ("/", "is a directory"),
        ("./nothing", "cannot be found"),
        ("no-such-program", "in no directory of PATH"),
        ("plain", "name it as ./plain"),
        ("./cut-700", "damaged or cut off"),
        ("./object.o", "an object file"),
    ] {
        let report = report_on(scratch, &[name]);
        assert_eq!(report.status("program"), "problem", "{name}: {report:#?}");
        assert!(report.says("program").contains(part), "{name}: {report:#?}");
    }
    let report = report_on(scratch, &["./huge"]);
    assert!(!report.ok, "{report:#?}");
}

#[test]
fn of_a_script_its_interpreter_counts() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    executable(&scratch.join("direct"), b"#! /bin/sh -e\n");
    executable(&scratch.join("by-env"), b"#!/usr/bin/env -S sh -e\n");
    executable(&scratch.join("missing"), b"#!/nowhere/interpreter\n");
    for name in ["./direct", "./by-env"] {
        let report = report_on(scratch, &[name]);
        assert!(
            report.says("program").contains("is a script"),
            "{report:#?}"
        );
        assert_eq!(report.status("program-preload"), "ok", "{report:#?}");
    }
    let report = report_on(scratch, &["./missing"]);
    assert_eq!(report.status("program"), "problem", "{report:#?}");
}

#[test]
fn a_command_line_is_read_as_record_reads_it() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    assert!(compiles(scratch, "solver", &["-finstrument-functions"]));
    let report = report_on(scratch, &["--", "sh", "-n", "./solver"]);
    let programs: Vec<&str> = report.named("program").map(|check| &*check.says).collect();
    assert!(
        programs.iter().any(|says| says.starts_with("./solver")),
        "{report:#?}"
    );
    assert_eq!(report.status("program-functions"), "ok", "{report:#?}");
}

#[test]
fn directories_that_cannot_be_used_are_problems() {
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path();
    fs::write(scratch.join("file"), "").expect("a file");
    for name in ["file", "/proc/annals-run", "/dev/null"] {
        let report = report_on(scratch, &["-o", name]);
        assert_eq!(report.status("directory"), "problem", "{name}: {report:#?}");
        assert!(
            report.summary.contains("see directory"),
            "{}",
            report.summary
        );
    }
    let report = report_of(
        doctor_json()
            .current_dir(scratch)
            .env("ANNALS_LIVE_DIR", "/nowhere"),
    );
    assert_eq!(report.status("live-file"), "problem", "{report:#?}");
}

/// Runs `trace-cli doctor` with a file system at `$1` that only this process sees. Returns `None` if none can be mounted here.
fn on_a_mount(options: &str, more: &str) -> Option<Report> {
    let scratch = tempfile::tempdir().expect("a directory");
    let script = format!(
        r#"mount -t tmpfs -o {options} tmpfs "$1" || exit 77; cd "$1" && {more} exec "$2" doctor --json -o "$1/run" ./*"#
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "bash", "-c", &script, "bash"]);
    command
        .arg(scratch.path())
        .arg(prefix().join("bin/trace-cli"));
    let output = command.output().expect("unshare runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || said.starts_with("unshare: ") {
        eprintln!("NOT TESTED: a file system with {options} (none can be mounted here): {said}");
        return None;
    }
    let report = serde_json::from_slice(&output.stdout);
    Some(report.unwrap_or_else(|error| panic!("{error}: {output:?}")))
}

#[test]
fn a_disk_without_room_for_the_buffer_is_a_problem() {
    let Some(report) = on_a_mount("size=2m", "") else {
        return;
    };
    assert_eq!(report.status("directory"), "problem", "{report:#?}");
    assert_eq!(report.status("live-file"), "problem", "{report:#?}");
    assert!(
        report.says("live-file").contains("No space left"),
        "{report:#?}"
    );
    let full = on_a_mount(
        "size=64k",
        "{ cat /dev/zero > full 2> /dev/null; true; } &&",
    );
    let full = full.expect("as before");
    assert!(!full.ok, "{full:#?}");
    assert!(
        full.summary.starts_with("Recording will not work"),
        "{}",
        full.summary
    );
}

#[test]
fn read_only_and_noexec_file_systems_are_problems() {
    let Some(report) = on_a_mount("size=64m", r#"mount -o remount,ro "$1" &&"#) else {
        return;
    };
    assert_eq!(report.status("directory"), "problem", "{report:#?}");
    assert!(
        report.says("directory").contains("Read-only"),
        "{report:#?}"
    );
    let report = on_a_mount(
        "size=64m",
        r#"cp /bin/true true && mount -o remount,noexec "$1" &&"#,
    );
    let report = report.expect("as before");
    assert!(report.says("program").contains("noexec"), "{report:#?}");
    let lib = prefix().join("lib").display().to_string();
    let copy = format!(
        r#"cp {lib}/libannals*.so . && mount -o remount,noexec "$1" && export ANNALS_LIB="$1" &&"#
    );
    let report = on_a_mount("size=512m", &copy).expect("as before");
    assert_eq!(report.status("library"), "problem", "{report:#?}");
    assert!(report.says("library").contains("noexec"), "{report:#?}");
}

#[test]
fn a_limit_on_the_size_of_files_is_a_problem_and_does_not_end_the_check() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1; exec \"$0\" doctor --json"]);
    command
        .arg(prefix().join("bin/trace-cli"))
        .current_dir(scratch.path());
    // Through a pipe: the limit is on files.
    let output = command.output().expect("sh runs");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report.status("limits"), "problem", "{report:#?}");
    assert!(report.says("limits").contains("ulimit -f"), "{report:#?}");
}

#[test]
fn a_user_who_may_start_no_thread_gets_an_answer() {
    let scratch = tempfile::tempdir().expect("a directory");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).expect("permissions");
    let mut command = Command::new("bash");
    let limited = "ulimit -u 1; exec setpriv --reuid 65534 --clear-groups \"$0\" doctor --json";
    command.args(["-c", limited]).current_dir(scratch.path());
    let output = command.arg(prefix().join("bin/trace-cli")).output();
    let output = output.expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("setpriv") || said.contains("ermission denied") {
        eprintln!("NOT TESTED: a user without threads (only root can become another): {said}");
        return;
    }
    let report: Report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report.status("recorder"), "problem", "{report:#?}");
}

#[test]
fn wrong_and_misspelt_settings_are_pointed_out() {
    let scratch = tempfile::tempdir().expect("a directory");
    let with = |name: &str, value: &str| {
        report_of(doctor_json().current_dir(scratch.path()).env(name, value))
    };
    for (name, value, status, part) in [
        ("ANNALS_BUFFER", "lots", "problem", "ANNALS_BUFFER"),
        ("ANNALS_CLOCK", "sundial", "problem", "`tsc`"),
        ("ANNALS_FILTER", "@/nowhere", "problem", "/nowhere"),
        (
            "ANNALS_BUFER",
            "32M",
            "note",
            "did you mean `ANNALS_BUFFER`?",
        ),
        (
            "ANNALS_MPI_REGION",
            "coll",
            "note",
            "did you mean `ANNALS_MPI_REGIONS`?",
        ),
        ("ANNALS_BUFFER", "32M", "ok", "ANNALS_BUFFER"),
    ] {
        let report = with(name, value);
        assert_eq!(
            report.status("settings"),
            status,
            "{name}={value}: {report:#?}"
        );
        assert!(report.says("settings").contains(part), "{report:#?}");
    }
    let report = with("ANNALS_BUFFER", "1K");
    assert!(
        !report.ok || report.status("recorder") == "ok",
        "{report:#?}"
    );
    let report = with("ANNALS_LIB", "/nowhere");
    assert_eq!(report.status("library"), "problem", "{report:#?}");
    assert!(report.summary.contains("see library"), "{}", report.summary);
}

#[test]
fn what_is_preloaded_already_is_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let own = prefix().join("lib/libannals_mpi.so");
    let own = fs::canonicalize(own).expect("the library");
    let mut command = doctor_json();
    command.current_dir(scratch.path()).env("LD_PRELOAD", &own);
    let report = report_of(&mut command);
    assert_eq!(report.status("environment"), "note", "{report:#?}");
    assert!(
        report.says("environment").contains("even without"),
        "{report:#?}"
    );
    // The loader itself complains about one that is not there.
    let mut command = doctor();
    command.current_dir(scratch.path()).arg("--json");
    let output = command
        .env("LD_PRELOAD", "/nowhere/lib.so")
        .output()
        .expect("trace-cli runs");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report");
    assert!(
        report
            .says("environment")
            .contains("/nowhere/lib.so is not there"),
        "{report:#?}"
    );
    assert_eq!(report.status("library"), "ok", "{report:#?}");
}

#[test]
fn it_works_with_an_empty_environment_and_ends_as_documented() {
    let scratch = tempfile::tempdir().expect("a directory");
    let report = report_of(doctor_json().current_dir(scratch.path()).env_clear());
    assert_eq!(report.status("recorder"), "ok", "{report:#?}");
    let mut command = doctor();
    let output = command
        .arg("--no-such-option")
        .output()
        .expect("trace-cli runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let mut command = doctor();
    let output = command
        .current_dir(scratch.path())
        .arg("./nothing")
        .output();
    assert_eq!(output.expect("trace-cli runs").status.code(), Some(1));
}
