//! Samples of call paths, of a program that measures its functions itself, and that does what a sampler must not disturb.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::{ROOT, output, prefix, run, text_of, trace_cli};

/// What takes the samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Kernel,
    /// Where the system refuses perf_event_open.
    Timers,
}

impl Engine {
    const ALL: [Self; 2] = [Self::Kernel, Self::Timers];

    /// Returns the command, run where the system has this engine. `refuse` is the program that takes perf_event_open away.
    fn of(self, command: Command, refuse: &Path) -> Command {
        match self {
            Self::Kernel => command,
            Self::Timers => {
                let mut refused = Command::new(refuse);
                refused.arg(command.get_program()).args(command.get_args());
                for (name, value) in command.get_envs() {
                    refused.env(name, value.expect("a value"));
                }
                refused
            }
        }
    }
}

/// A program that is compiled without instrumentation, in a separate directory.
pub(crate) struct Sampled {
    scratch: tempfile::TempDir,
}

impl Sampled {
    /// Compiles the program and two libraries.
    fn new() -> Self {
        let sampled = Self::of("sampled.c", &[]);
        sampled.compile("refuse.c", "refuse", &[]);
        for name in ["libone.so", "libtwo.so"] {
            let code = "int of_library(int n) { volatile double s = 0; for (int i = 1; i < n; i++) s += 1.0 / i; return s > 0; }";
            let source = sampled.path("library.c");
            std::fs::write(&source, code).unwrap();
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-g", "-shared", "-fPIC"]).arg(source);
            output(compiler.arg("-o").arg(sampled.path(name)));
        }
        sampled
    }

    /// Compiles one of the sources of these tests, with these options, too.
    pub(crate) fn of(source: &str, options: &[&str]) -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        let sampled = Self { scratch };
        sampled.compile(source, "sampled", options);
        sampled
    }

    fn compile(&self, source: &str, program: &str, options: &[&str]) {
        let source = Path::new(ROOT).join("tests/instrument").join(source);
        let mut compiler = Command::new("cc");
        compiler.args([
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fomit-frame-pointer",
        ]);
        compiler.args(options).arg(source);
        compiler.arg("-o").arg(self.path(program));
        output(compiler.args(["-ldl", "-pthread"]));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn plain(&self, mode: &str) -> Output {
        let mut program = Command::new(self.path("sampled"));
        run(program
            .args(mode.split(' '))
            .current_dir(self.scratch.path()))
    }

    /// Records the program with samples of this engine.
    pub(crate) fn record(&self, engine: Engine, mode: &str) -> Output {
        let record = engine.of(trace_cli(), &self.path("refuse"));
        self.record_by(record, &[], mode)
    }

    /// Records the program, in front of the program what `before` says.
    fn record_by(&self, mut record: Command, before: &[&str], mode: &str) -> Output {
        record.args(["record", "--sample", "-q", "--overwrite", "-o", "run", "--"]);
        record
            .args(before)
            .arg(self.path("sampled"))
            .args(mode.split(' '));
        run(record.current_dir(self.scratch.path()))
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> String {
        let mut ask = trace_cli();
        ask.arg(arguments[0]).arg("run").args(&arguments[1..]);
        output(ask.current_dir(self.scratch.path()))
    }

    /// Returns the call paths as `--folded` has them, without the thread, and their nanoseconds.
    pub(crate) fn folded(&self) -> Vec<(Vec<String>, u64)> {
        let folded = self.ask(&["samples", "--folded"]);
        let lines = folded.lines().map(|line| {
            let (path, ns) = line.rsplit_once(' ').expect("a number");
            let calls = path.split(';').skip(2).map(str::to_owned).collect();
            (calls, ns.parse().expect("a number"))
        });
        lines.collect()
    }
}

/// Shares of three functions of which the program knows the processor time: each within three standard deviations and what
/// reading the clocks takes.
#[test]
fn shares_of_functions_are_those_that_the_program_measures() {
    let sampled = Sampled::new();
    for engine in Engine::ALL {
        check_shares(&sampled, engine);
    }
}

fn check_shares(sampled: &Sampled, engine: Engine) {
    let recorded = sampled.record(engine, "shares 6000");
    let said = text_of(&recorded.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let answer: Value = serde_json::from_str(&sampled.ask(&["samples", "--json"])).unwrap();
    let way = &answer["sampling"][0];
    let period_s = way["period_ns"].as_f64().expect("a period") / 1e9;
    let is_by_timers = way["engine"]
        .as_str()
        .is_some_and(|engine| engine.starts_with("timers"));
    assert_eq!(is_by_timers, engine == Engine::Timers, "{way}");
    let mean_s = answer["time_ns"].as_f64().expect("a time")
        / 1e9
        / answer["samples"].as_f64().expect("samples");
    // The kernel may be late, on processors that are shared; the answer says so.
    assert!(
        mean_s > 0.9 * period_s && mean_s < 4.0 * period_s,
        "{mean_s} s, said: {period_s} s"
    );
    let says_mean = sampled
        .ask(&["samples"])
        .contains("On average, a sample represents");
    assert_eq!(says_mean, (mean_s / period_s - 1.0).abs() >= 0.1);
    let rows = answer["rows"].as_array().expect("rows");
    let total_s = |name: &str| {
        let of = rows.iter().filter(|row| row["function"] == name);
        of.map(|row| row["total_ns"].as_f64().unwrap() / 1e9)
            .sum::<f64>()
    };
    for pair in words.chunks(2) {
        let (name, truth): (&str, f64) = (pair[0], pair[1].parse().expect("seconds"));
        let found = total_s(name);
        let deviation = (truth * mean_s).sqrt();
        // After a lost sample, the next one represents a period only.
        let lost_s = 2.0 * period_s * answer["lost"].as_f64().expect("a number");
        assert!(
            (found - truth).abs() <= 3.0 * deviation + 0.02 * truth + lost_s,
            "{engine:?}: {name}: {found} s, truly {truth} s"
        );
    }
    // Inlined into its caller, and below a recursion that counts once.
    assert!((total_s("middle") - total_s("holds")).abs() < 0.01 * total_s("holds"));
    assert!((total_s("deeper") - total_s("large")).abs() < 0.01 * total_s("large"));
    let known = [&["_start"][..], &["main"], &["shares"]].concat();
    let whole = |path: &[String]| {
        known
            .iter()
            .all(|name| path.iter().any(|call| call == name))
    };
    let folded = sampled.folded();
    let all: u64 = folded.iter().map(|path| path.1).sum();
    let from_start: u64 = folded
        .iter()
        .filter(|path| whole(&path.0))
        .map(|path| path.1)
        .sum();
    assert!(
        from_start as f64 > 0.97 * all as f64,
        "{from_start} of {all} ns are below main"
    );
}

/// Output and exit code are those of the program alone, whatever it does, and no path has a call that the program does not make.
#[test]
fn a_sampled_program_does_what_it_does_alone_and_no_call_is_invented() {
    let sampled = Sampled::new();
    // Function, and which callers it may have within the program, its direct one first.
    let callers: &[(&str, &[&str])] = &[
        ("small", &["shares", "handler"]),
        ("holds", &["shares"]),
        ("deeper", &["deeper", "shares"]),
        ("short_life", &["start_thread", "__clone3", "(unknown)"]),
        ("jumps", &["jumps", "main", "forced"]),
        ("children", &["main", "forced"]),
        ("signals", &["main"]),
        ("sweeps", &["main"]),
        // Below it, unloading needs more of the stack than a sample has.
        ("forced", &["main", "(unknown)"]),
        ("overflows", &["main", "forced"]),
        ("exits", &["start_thread", "__clone3", "(unknown)"]),
        ("untabled", &["(unknown)"]),
        ("of_library", &["main"]),
    ];
    let modes = [
        "threads 800",
        "long-threads",
        "children",
        "jumps",
        "signals",
        "contexts",
        "untabled",
        "exit 7",
        "libraries 40 ./libone.so ./libtwo.so",
        "sweeps",
        "overflows 20",
        "execs 12",
        "forced ./libone.so ./libtwo.so",
    ];
    for (mode, engine) in modes
        .iter()
        .flat_map(|mode| Engine::ALL.map(|engine| (*mode, engine)))
    {
        let (plain, recorded) = (sampled.plain(mode), sampled.record(engine, mode));
        let mode = format!("{mode}, {engine:?}");
        assert_eq!(text_of(&recorded.stdout), text_of(&plain.stdout), "{mode}");
        assert_eq!(
            recorded.status,
            plain.status,
            "{mode}: {}",
            text_of(&recorded.stderr)
        );
        for (path, _) in sampled.folded() {
            for pair in path.windows(2) {
                let known = callers.iter().find(|(function, _)| *function == pair[1]);
                let is_known = known.is_none_or(|(_, callers)| callers.contains(&pair[0].as_str()));
                assert!(
                    is_known,
                    "{mode}: {} does not call {}: {path:?}",
                    pair[0], pair[1]
                );
            }
        }
    }
}

/// A program that closes all descriptors keeps those that it opens after that.
#[test]
fn the_programs_descriptors_are_its_own() {
    let sampled = Sampled::new();
    for engine in Engine::ALL {
        let recorded = sampled.record(engine, "descriptors");
        assert_eq!(text_of(&recorded.stdout), "64 descriptors\n");
        assert_eq!(recorded.status.signal(), None);
    }
}

/// Samples of a thread are at the location at which its other events are, and all threads that live for some time have some.
#[test]
fn threads_are_sampled_at_their_locations() {
    let sampled = Sampled::new();
    for engine in Engine::ALL {
        check_threads(&sampled, engine);
    }
}

fn check_threads(sampled: &Sampled, engine: Engine) {
    sampled.record(engine, "long-threads");
    let csv = sampled.ask(&["samples", "--by", "function,location", "--csv"]);
    let of_large = csv
        .lines()
        .filter(|line| line.contains(",large,") || line.starts_with("large,"));
    assert!(of_large.count() >= 4, "{csv}");
    let info: Value = serde_json::from_str(&sampled.ask(&["info", "--json"])).unwrap();
    let locations = info["locations"].as_u64().expect("a number");
    assert!(locations <= 9, "{info}");
}

/// Samples by a signal: the program that sets a handler for it gets it, and the answer says what is missing. So do threads that end
/// before they are found.
#[test]
fn what_is_not_sampled_is_said() {
    let sampled = Sampled::new();
    sampled.record(Engine::Timers, "signals");
    let said = sampled.ask(&["samples"]);
    assert!(
        said.contains("the program has set a handler for signal"),
        "{said}"
    );
    for engine in Engine::ALL {
        sampled.record(engine, "threads 800");
        let said = sampled.ask(&["samples"]);
        assert!(
            said.contains("threads that ended soon used"),
            "{engine:?}: {said}"
        );
    }
    // `record` says at its beginning that calls may be interrupted.
    let mut record = Engine::Timers.of(trace_cli(), &sampled.path("refuse"));
    record.args([
        "record",
        "--sample=20ms",
        "--overwrite",
        "-o",
        "run",
        "--",
        "true",
    ]);
    let recorded = run(record.current_dir(sampled.scratch.path()));
    let said = text_of(&recorded.stderr);
    let first = said.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("samples: one each 20.00 ms of processor time, by timers")
            && first.contains("may be interrupted"),
        "{said}"
    );
}

/// Where the system refuses it, the program runs, and the recording and the answer say why there are no samples.
#[test]
fn what_the_system_refuses_is_said() {
    let sampled = Sampled::new();
    let strace = [
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=perf_event_open,process_vm_readv",
        "-e",
        "inject=perf_event_open,process_vm_readv:error=EACCES",
        "-o",
        "/dev/null",
    ];
    let recorded = sampled.record_by(trace_cli(), &strace, "shares 10");
    assert!(recorded.status.success());
    assert!(
        text_of(&recorded.stderr)
            .contains("no samples are taken: perf_event_open is not permitted"),
        "{}",
        text_of(&recorded.stderr)
    );
    let mut ask = trace_cli();
    let asked = run(ask
        .args(["samples", "run"])
        .current_dir(sampled.scratch.path()));
    let said = text_of(&asked.stdout) + &text_of(&asked.stderr);
    assert!(said.contains("perf_event_open is not permitted"), "{said}");
    let doctor = |before: &[&str]| -> Value {
        let words = [before, &["trace-cli", "doctor", "--json"]].concat();
        let mut doctor = Command::new(words[0]);
        doctor.args(&words[1..]).current_dir(sampled.scratch.path());
        let path = std::env::var("PATH").unwrap_or_default();
        doctor.env("PATH", format!("{}:{path}", prefix().join("bin").display()));
        let report: Value = serde_json::from_str(&text_of(&run(&mut doctor).stdout)).unwrap();
        let checks = report["checks"].as_array().expect("checks").clone();
        let of = checks
            .into_iter()
            .find(|check| check["check"] == "sampling");
        of.expect("a check of sampling")
    };
    assert_eq!(doctor(&["env"])["status"], "ok");
    let refuse = sampled.path("refuse");
    let by_timers = doctor(&[refuse.to_str().expect("a path")]);
    assert_eq!(by_timers["found"]["works"], true, "{by_timers}");
    assert!(
        by_timers["says"]
            .as_str()
            .is_some_and(|says| says.contains("by timers")),
        "{by_timers}"
    );
    let refused = doctor(&strace);
    assert_eq!(refused["status"], "note", "{refused}");
    assert!(
        refused["says"]
            .as_str()
            .is_some_and(|says| says.contains("not permitted")),
        "{refused}"
    );
    let wrong = run(trace_cli().args(["record", "--sample=1us", "--", "true"]));
    assert!(
        text_of(&wrong.stderr).contains("at least 100us"),
        "{}",
        text_of(&wrong.stderr)
    );
}
