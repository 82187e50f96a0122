//! Kills `trace-cli record` at any of its storage calls, or lets the call fail: the program and its recordings are as
//! without the fault.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::time::{Duration, SystemTime};

use annals_merger::{InputRecording, Reader, verify};
use annals_recorder::{ModuleSpec, Recorder};

use crate::faults::{copy, is_leftover, library, logged, said, standing};
use crate::{EVENTS, TOLD, check_recording, child, open_page, stock, trace_merge};
use annals_test_support::page::SharedPage;

/// How the child ends that is recorded: by itself, or killed.
const FINISHES: &str = "recorded";
pub(crate) const KILLED: &str = "recorded-killed";

/// The child's output is its own.
const WORDS: &str = "the program's own words";

/// Calls a function that has a name only in the symbols of its file: one of the preloaded library.
pub(crate) fn call_a_function(recorder: &Recorder) {
    println!("{WORDS}");
    // SAFETY: an address of a function; the information is written where it is said.
    let found = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        let outcome = libc::dladdr(
            libc::rmdir as *const () as *const libc::c_void,
            &raw mut found,
        );
        assert!(outcome != 0, "a function of the preloaded library");
        found
    };
    let base = found.dli_fbase.addr() as u64;
    let spec = ModuleSpec {
        path: std::env::var("ANNALS_LIB").expect("the library"),
        build_id: Vec::new(),
        base,
    };
    let module = recorder.add_module(&spec).expect("a module");
    let raiser = recorder.raiser();
    let region = raiser.reserve_region().expect("a region");
    let offset = (libc::rmdir as *const ()).addr() as u64 - base;
    let defined = recorder.define_function(region, module, offset);
    defined.expect("a function");
    recorder.enter(region);
    recorder.leave(region);
}

/// One way to run it.
struct Way {
    name: &'static str,
    child: &'static str,
    /// Recordings of an earlier run are there, and to be removed.
    has_earlier: bool,
    is_merged: bool,
    is_below_launcher: bool,
}

const WAYS: [Way; 4] = [
    Way {
        name: "a program that ends by itself, merged",
        child: FINISHES,
        has_earlier: false,
        is_merged: true,
        is_below_launcher: false,
    },
    Way {
        name: "a killed program",
        child: KILLED,
        has_earlier: false,
        is_merged: false,
        is_below_launcher: false,
    },
    Way {
        name: "in the place of an earlier run",
        child: FINISHES,
        has_earlier: true,
        is_merged: false,
        is_below_launcher: false,
    },
    Way {
        name: "a rank of a launcher",
        child: FINISHES,
        has_earlier: false,
        is_merged: false,
        is_below_launcher: true,
    },
];

/// What a run left, and what it said.
struct Ran {
    output: Output,
    calls: Vec<String>,
    scratch: tempfile::TempDir,
    acknowledged: SharedPage,
}

impl Ran {
    fn area(&self) -> PathBuf {
        self.scratch.path().join("area")
    }

    fn run(&self) -> PathBuf {
        self.area().join("run")
    }

    fn trace(&self) -> PathBuf {
        self.area().join("run.annals")
    }

    /// Returns whether the program was started at all.
    fn has_program_run(&self) -> bool {
        self.acknowledged.get(TOLD) != 0
    }
}

/// Returns the exit code in the convention of shells: 128 plus the number of the signal that ended
/// the process.
fn shell_code(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| 128 + signal);
    status.code().or(signal).expect("it has ended")
}

impl Way {
    /// Returns the code of the program without a fault.
    fn code(&self) -> i32 {
        if self.child == KILLED { 128 + 9 } else { 0 }
    }

    fn command(&self, scratch: &Path) -> Command {
        let area = scratch.join("area");
        let program = child(self.child, scratch);
        let mut record = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        record.arg("record").arg("-o").arg(area.join("run"));
        record.arg("--live-dir").arg(area.join("live"));
        if self.is_merged {
            record.arg("--merge");
        }
        if self.has_earlier {
            record.arg("--overwrite");
        }
        record.arg("--").arg(program.get_program());
        record.args(program.get_args());
        for (name, value) in program.get_envs() {
            record.env(name, value.expect("a value"));
        }
        if self.is_below_launcher {
            record.env("ANNALS_RANK", "0").env("ANNALS_RANKS", "1");
        }
        record.env("ANNALS_LIB", library());
        record.env("FAULTS_PROGRAM", "trace-cli");
        record.stdout(Stdio::piped()).stderr(Stdio::piped());
        record
    }

    fn run(&self, fault: &str) -> Ran {
        let scratch = tempfile::tempdir().expect("a directory");
        let area = scratch.path().join("area");
        fs::create_dir_all(area.join("live")).expect("a directory");
        if self.has_earlier {
            copy(&stock().join("killed"), &area.join("run"));
            // A younger one may be of a process of this run that has just begun.
            let then = SystemTime::now() - Duration::from_secs(3600);
            for name in standing(&area.join("run")).keys() {
                let file = File::open(area.join("run").join(name)).expect("a file");
                file.set_modified(then).expect("a time");
            }
        }
        let acknowledged = open_page(scratch.path());
        let (output, calls) = logged(&mut self.command(scratch.path()), fault, &area);
        Ran {
            output,
            calls,
            scratch,
            acknowledged,
        }
    }

    /// What is there is whole, or can still be made so.
    fn check(&self, ran: &Ran, when: &str) {
        if ran.has_program_run() {
            assert_eq!(ran.acknowledged.get(TOLD), EVENTS, "{when}");
            check_recording(&ran.run(), &ran.acknowledged, when);
            let said = String::from_utf8_lossy(&ran.output.stdout);
            assert!(said.contains(WORDS), "{when}: {said}");
        }
        if ran.trace().exists() {
            let verified = verify(&ran.trace(), &[ran.run()]).expect("a trace");
            assert!(verified.holds(), "{when}: {:?}", verified.mismatches);
            let opened = Reader::open(ran.trace()).expect("a trace");
            assert!(opened.origin().has_footer, "{when}: the trace is whole");
        }
    }

    /// What could not be done is done by hand.
    fn make_whole(&self, ran: &Ran, when: &str) {
        if !ran.has_program_run() {
            // A second run: no file of the first one prevents it.
            let again = self.command(ran.scratch.path()).output();
            let again = again.expect("trace-cli runs");
            assert_eq!(
                shell_code(again.status),
                self.code(),
                "{when}: {}",
                said(&again)
            );
            self.check_clean(ran, when);
            return;
        }
        let mut recover = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let recovered = recover.arg("recover").arg(ran.run()).output();
        let recovered = recovered.expect("trace-cli runs");
        assert_eq!(
            recovered.status.code(),
            Some(0),
            "{when}: {}",
            said(&recovered)
        );
        let told = String::from_utf8_lossy(&recovered.stdout);
        self.check_clean(ran, &format!("{when}; recover: {told}"));
        let mut merge = Command::new(trace_merge());
        let merged = merge.arg(ran.run()).arg("-o").arg(ran.trace()).output();
        let merged = merged.expect("trace-merge runs");
        assert!(
            matches!(merged.status.code(), Some(0 | 3)),
            "{when}: {}",
            said(&merged)
        );
        check_recording(&ran.trace(), &ran.acknowledged, when);
    }

    /// There is one recording, whole, and no live file.
    fn check_clean(&self, ran: &Ran, when: &str) {
        let mut found = standing(&ran.area());
        found.retain(|name, bytes| bytes.is_some() && !is_leftover(name));
        found.remove(Path::new("run.annals"));
        assert_eq!(found.len(), 1, "{when}: {:?}", found.keys());
        let (name, _) = found.first_key_value().expect("one");
        let recording = InputRecording::open(&ran.area().join(name)).expect("a recording");
        assert!(recording.recording.has_footer, "{when}");
        check_recording(&ran.run(), &ran.acknowledged, when);
    }

    /// Storage calls without a fault.
    fn calls(&self) -> Vec<String> {
        let whole = self.run("count 0");
        let said = said(&whole.output);
        assert_eq!(
            shell_code(whole.output.status),
            self.code(),
            "{}: {said}",
            self.name
        );
        assert!(said.contains("1 recording in"), "{}: {said}", self.name);
        let is_named = !said.contains("functions have no name");
        assert!(is_named, "{}: {said}", self.name);
        self.check(&whole, self.name);
        self.check_clean(&whole, self.name);
        assert_eq!(whole.trace().exists(), self.is_merged);
        let names_functions = whole.calls.iter().any(|call| call.starts_with("pwrite"));
        assert!(names_functions, "{}: {:?}", self.name, whole.calls);
        whole.calls
    }
}

#[test]
fn a_record_that_is_killed_at_any_storage_call_loses_nothing_and_can_be_made_up_for() {
    let mut kills = 0;
    for way in &WAYS {
        for (number, call) in (1..).zip(way.calls()) {
            for how in ["kill", "tear"] {
                let when = format!("{}, {how} at {number}: {call}", way.name);
                let ran = way.run(&format!("{how} {number}"));
                assert_eq!(ran.output.status.code(), None, "{when}");
                way.check(&ran, &when);
                way.make_whole(&ran, &when);
                kills += 1;
            }
        }
    }
    eprintln!("{kills} kills");
}

#[test]
fn a_record_whose_storage_fails_at_any_call_says_so_and_changes_nothing_for_the_program() {
    let mut failures = 0;
    for way in &WAYS {
        for (number, call) in (1..).zip(way.calls()) {
            for how in ["EIO", "full"] {
                let when = format!("{}, {how} at {number}: {call}", way.name);
                let ran = way.run(&format!("{how} {number}"));
                let (code, said) = (shell_code(ran.output.status), said(&ran.output));
                failures += 1;
                way.check(&ran, &when);
                let why = if how == "EIO" {
                    "Input/output"
                } else {
                    "No space left"
                };
                if said.contains(why) {
                    let area = ran.area();
                    let line = said.lines().find(|line| line.contains(why));
                    let is_named = line.is_some_and(|l| l.contains(area.to_str().expect("a name")));
                    assert!(is_named, "{when}: the file is named: {said}");
                }
                let expected = match way.code() {
                    _ if !ran.has_program_run() => 1,
                    // A launcher would end the other ranks.
                    0 if said.contains(why) && !way.is_below_launcher => 1,
                    code => code,
                };
                assert_eq!(code, expected, "{when}: {said}");
                let found = standing(&ran.area());
                let left = found.keys().filter(|name| is_leftover(name));
                assert_eq!(left.count(), 0, "{when}: {:?}", found.keys());
                if !said.contains(why) {
                    // What failed takes no space, or is of no use any more.
                    way.check_clean(&ran, &when);
                }
                way.make_whole(&ran, &when);
            }
        }
    }
    eprintln!("{failures} failures");
}

#[test]
fn short_writes_and_interrupted_calls_cost_a_record_nothing() {
    for way in &WAYS {
        let calls = way.calls().len();
        let ran = way.run("short 1");
        let said = said(&ran.output);
        assert_eq!(
            shell_code(ran.output.status),
            way.code(),
            "{}: {said}",
            way.name
        );
        way.check(&ran, way.name);
        way.check_clean(&ran, way.name);
        assert!(ran.calls.len() > calls, "{}: writes were short", way.name);
        assert_eq!(ran.trace().exists(), way.is_merged);
    }
}

/// Problems are reported, whatever the files are called, and the program does not notice.
#[test]
fn a_record_tells_what_it_cannot_read_and_where_a_kill_would_have_cost_something() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = scratch.path().join("run");
    fs::create_dir(&run).expect("a directory");
    let program = child(FINISHES, scratch.path());
    let acknowledged = open_page(scratch.path());
    let mut record = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    record.current_dir(&run).env("ANNALS_LIB", library());
    record.args([
        "record",
        "-o",
        ".",
        "--merge",
        "--live-dir",
        "no/such/directory",
    ]);
    // An empty file that claims to be a recording, with an escape in its name; and the file of a process that was killed
    // before its recorder had defined it.
    let mut killed = standing(&stock().join("killed")).into_keys();
    let killed = killed.find(|name| name.extension().is_some_and(|is| is == "annals"));
    record.args([
        "--",
        "sh",
        "-c",
        ": > \"$1\"; head -c 64 \"$2\" > begun.annals; shift 2; exec \"$@\"",
        "sh",
        "odd\x1b[31m.annals",
    ]);
    record.arg(stock().join("killed").join(killed.expect("a recording")));
    record.arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        record.env(name, value.expect("a value"));
    }
    let output = record.output().expect("trace-cli runs");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("odd\\u{1b}[31m.annals cannot be read: "),
        "{said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
    assert!(said.contains(", nor can 1 more"), "{said}");
    assert!(said.contains("1 recording in ."), "{said}");
    assert!(said.contains("no live file could be made"), "{said}");
    // Next to the directory, with its name.
    let trace = scratch.path().join("run.annals");
    assert!(trace.exists(), "{said}");
    check_recording(&trace, &acknowledged, &said);
}
