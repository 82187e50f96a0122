//! The recorder from C and C++: examples, misuse, loading at run time, installation. Everything is
//! compiled against an installation in a separate directory, as a user's programs are.

mod packages;

use annals_test_support::installation::installed;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What a program links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Library {
    Shared,
    Static,
}

struct Prefix(PathBuf);

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Returns what a command prints, when it ends well.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

impl Prefix {
    /// Returns the installation of this run of the tests.
    fn get() -> &'static Self {
        static PREFIX: OnceLock<Prefix> = OnceLock::new();
        PREFIX.get_or_init(|| Self(installed(env!("CARGO_TARGET_TMPDIR"), "installed here")))
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("annals");
        command.env("PKG_CONFIG_PATH", self.0.join("lib/pkgconfig"));
        let flags = output(&mut command);
        // Spaces in the prefix are escaped.
        let escaped = flags.trim().replace("\\ ", "\0");
        escaped
            .split_whitespace()
            .map(|flag| flag.replace('\0', " "))
            .collect()
    }

    /// Compiles a program with what `pkg-config` says.
    fn compile(&self, source: &Path, library: Library, directory: &Path) -> PathBuf {
        let is_cpp = source.extension() == Some(OsStr::new("cpp"));
        let (compiler, standard) = if is_cpp {
            ("c++", "-std=c++11")
        } else {
            ("cc", "-std=gnu11")
        };
        let program = directory.join("program");
        let mut command = Command::new(compiler);
        command.args([standard, "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        command.args(self.pkg_config(&["--cflags"]));
        command.arg(source).arg("-o").arg(&program).arg("-pthread");
        match library {
            Library::Shared => {
                command.args(self.pkg_config(&["--libs"]));
                let mut path = std::ffi::OsString::from("-Wl,-rpath,");
                path.push(self.0.join("lib"));
                command.arg(path);
            }
            Library::Static => {
                command.arg(self.0.join("lib/libannals.a"));
                let libraries = self.pkg_config(&["--libs", "--static"]);
                command.args(libraries.iter().filter(|flag| *flag != "-lannals"));
            }
        }
        output(&mut command);
        let needed = output(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(
            needed.contains("libannals.so.0.1"),
            library == Library::Shared
        );
        program
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(self.0.join("bin").join(name))
    }

    /// Returns what `trace-cli NAME --json` prints, an object a line for `print`.
    fn ask(&self, name: &str, trace: &Path) -> Vec<Value> {
        let mut command = self.tool("trace-cli");
        let text = output(command.arg(name).arg(trace).arg("--json"));
        let values = serde_json::Deserializer::from_str(&text).into_iter();
        values.map(|value| value.expect("JSON")).collect()
    }

    /// Runs a program that records, and merges; `has_loss`: it says so.
    fn record(&self, program: &Path, directory: &Path, has_loss: bool) -> (String, PathBuf) {
        let run = directory.join("run");
        let mut command = Command::new(program);
        command.arg(&run);
        for (name, ..) in std::env::vars().filter(|(name, _)| name.starts_with("ANNALS_")) {
            command.env_remove(name);
        }
        let printed = output(&mut command);
        let trace = directory.join("run.annals");
        let mut merge = self.tool("trace-merge");
        let merged = merge
            .arg(&run)
            .arg("-o")
            .arg(&trace)
            .output()
            .expect("runs");
        let expected = if has_loss { 3 } else { 0 };
        assert_eq!(merged.status.code(), Some(expected), "{}", said(&merged));
        (printed, trace)
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(name)
}

fn program(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/capi").join(name)
}

/// Calls by region.
fn calls(prefix: &Prefix, trace: &Path) -> BTreeMap<String, u64> {
    let report = prefix.ask("regions", trace).remove(0);
    let regions = report["regions"].as_array().expect("regions");
    let each = regions.iter().map(|region| {
        for field in ["open_calls", "unmatched_leaves", "uncertain_calls"] {
            assert_eq!(region[field], 0, "{region}");
        }
        let name = region["region"].as_str().expect("a name").to_owned();
        (name, region["calls"].as_u64().expect("a count"))
    });
    each.collect()
}

/// Losses: source, event type, cause, count.
fn losses(prefix: &Prefix, trace: &Path) -> Vec<(String, String, String, u64)> {
    let report = prefix.ask("dropped", trace).remove(0);
    let rows = report["dropped"].as_array().expect("rows").iter();
    let text = |row: &Value, field: &str| row[field].as_str().expect("text").to_owned();
    let mut losses: Vec<_> = rows
        .map(|row| {
            let count = row["count"].as_u64().expect("a count");
            let (source, event) = (text(row, "source"), text(row, "event"));
            (source, event, text(row, "cause"), count)
        })
        .collect();
    losses.sort();
    losses
}

/// Returns the elements of all events of a type, in the trace's order.
fn elements<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    let of_type = events.iter().filter(|event| event["event"] == name);
    of_type.map(|event| &event["elements"]).collect()
}

fn workers(library: Library) {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&example("workers.c"), library, scratch.path());
    let (printed, trace) = prefix.record(&program, scratch.path(), true);
    assert_eq!(printed, "raised 12559, dropped 11, misused 0\n");

    let expected = [("step".to_owned(), 4000), ("work".to_owned(), 4)];
    assert_eq!(calls(prefix, &trace), BTreeMap::from(expected));
    let row = |source: &str, event: &str, cause: &str, count| {
        (source.to_owned(), event.to_owned(), cause.to_owned(), count)
    };
    assert_eq!(
        losses(prefix, &trace),
        [
            row("device", "sample", "no-callback-at-safety-level", 1),
            row("device", "sample", "reported-by-source", 7),
            row("threads", "note", "too-big", 3),
        ]
    );

    let events = prefix.ask("print", &trace);
    assert_eq!(events.len(), 12559 - 11);
    let loaded = elements(&events, "loaded");
    assert_eq!(loaded.len(), 400);
    assert!(loaded.iter().all(|e| e["file"] == "mesh.dat"));
    let with_worker = loaded.iter().filter(|e| !e["worker"].is_null());
    assert_eq!(with_worker.count(), 200);
    let sizes: u64 = loaded
        .iter()
        .map(|e| e["size"].as_u64().unwrap() >> 20)
        .sum();
    assert_eq!(sizes, 4 * (0..100).map(|n| n * 10).sum::<u64>());
    let interrupted = elements(&events, "interrupted");
    assert_eq!(interrupted.len(), 40);
    assert!(interrupted.iter().all(|e| e["signal"] == 10));
    let queue = elements(&events, "queue length");
    let sum: i64 = queue.iter().map(|e| e["value"].as_i64().unwrap()).sum();
    assert_eq!(
        (queue.len(), sum),
        (4000, 4 * (0..1000).map(|n| n - 500).sum::<i64>())
    );
    // In the order of the device's clock, and of the card's, whose events were raised in another
    // one.
    let levels: Vec<f64> = elements(&events, "sample")
        .iter()
        .map(|e| e["level"].as_f64().unwrap())
        .collect();
    assert_eq!(
        levels,
        (0..50).map(|n| f64::from(n) / 8.0).collect::<Vec<_>>()
    );
    let packets: Vec<&str> = elements(&events, "arrived")
        .iter()
        .map(|e| e["packet"].as_str().unwrap())
        .collect();
    let sorted = (0..50).map(|n| format!("00ff{:02x}", n ^ 1));
    assert_eq!(packets, sorted.collect::<Vec<_>>());

    let sources = prefix.ask("sources", &trace).remove(0);
    let of = |number: usize, field: &str| sources["sources"][number][field].clone();
    assert_eq!(
        [of(1, "clock"), of(2, "clock")],
        ["device clock", "card clock"]
    );
    assert_eq!(
        [of(1, "clock_kind"), of(2, "clock_kind")],
        ["readable", "unreadable"]
    );
    assert_eq!(
        [of(1, "ordering"), of(2, "ordering")],
        ["ordered", "unordered"]
    );
    assert_eq!([of(0, "streams"), of(2, "inversions")], [5, 25]);
}

#[test]
fn the_c_example_records_what_it_says_with_the_shared_library() {
    workers(Library::Shared);
}

#[test]
fn the_c_example_records_what_it_says_with_the_archive() {
    workers(Library::Static);
}

fn search(library: Library) {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&example("search.cpp"), library, scratch.path());
    let (printed, trace) = prefix.record(&program, scratch.path(), true);
    assert_eq!(printed, "raised 805, dropped 2, misused 0\n");
    // A tree of depth 6, in three threads; the scopes that exceptions left are closed.
    let expected = [("search".to_owned(), 3), ("visit".to_owned(), 3 * 127)];
    assert_eq!(calls(prefix, &trace), BTreeMap::from(expected));
    let losses = losses(prefix, &trace);
    let names = ["oracle", "question", "reported-by-source"].map(str::to_owned);
    let [source, event, cause] = names;
    assert_eq!(losses, [(source, event, cause, 2)]);

    let events = prefix.ask("print", &trace);
    let found = elements(&events, "found");
    assert_eq!(found.len(), 3);
    for elements in found {
        let is_first = elements["by"] == "thread 0";
        assert_eq!(elements["sure"].is_null(), is_first, "{elements}");
        assert_eq!(elements["leaves"], 56);
        assert_eq!(elements["where"], "search");
    }
    let failed = elements(&events, "failed");
    assert_eq!(failed.len(), 3 * 8);
    assert!(failed.iter().all(|e| e["why"] == "dead end"));
    assert_eq!(elements(&events, "asked").len(), 3);
    assert_eq!(elements(&events, "question").len(), 5);
}

#[test]
fn the_cpp_example_records_what_it_says_with_the_shared_library() {
    search(Library::Shared);
}

#[test]
fn the_cpp_example_records_what_it_says_with_the_archive() {
    search(Library::Static);
}

/// What the program says it has shown is what it has tests for.
fn conformance(name: &str, library: Library) {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let source = Path::new(ROOT).join("tests/events").join(name);
    let program = prefix.compile(&source, library, scratch.path());
    let printed = output(&mut Command::new(&program));
    let text = std::fs::read_to_string(&source).expect("the program");
    let runs = text.split("RUN(").skip(1);
    let expected: Vec<&str> = runs
        .filter_map(|run| Some(run.split_once(')')?.0))
        .collect();
    assert!(expected.len() > 10);
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_event_interface_keeps_to_the_standard_with_the_shared_library() {
    conformance("events.c", Library::Shared);
}

#[test]
fn the_event_interface_keeps_to_the_standard_with_the_archive() {
    conformance("events.c", Library::Static);
}

/// With the shared library, also where only a walk through the callers shows that a callback was left.
#[test]
fn functions_of_the_program_leave_the_event_interface_as_they_like() {
    let prefix = Prefix::get();
    for (library, is_deep) in [(Library::Shared, true), (Library::Static, false)] {
        let scratch = tempfile::tempdir().expect("a directory");
        let source = Path::new(ROOT).join("tests/events/unwinding.cpp");
        let program = prefix.compile(&source, library, scratch.path());
        let mut run = Command::new(&program);
        run.args(is_deep.then_some("deep"));
        let mut expected = Vec::new();
        for kind in [
            "event", "deferred", "dropped", "free", "clock", "pvar", "cvar",
        ] {
            for way in ["return", "throw", "longjmp", "exit", "cancel"] {
                let times = if is_deep && kind == "event" { 2 } else { 1 };
                expected.extend(std::iter::repeat_n(format!("{kind} {way}"), times));
            }
        }
        expected.push("nested throw".to_owned());
        assert_eq!(output(&mut run).lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn variables_and_categories_keep_to_the_standard_with_the_shared_library() {
    conformance("variables.c", Library::Shared);
}

#[test]
fn variables_and_categories_keep_to_the_standard_with_the_archive() {
    conformance("variables.c", Library::Static);
}

/// Everything of the process's runtime is in the recording, as it would be from Rust.
#[test]
fn a_recorder_is_attached_from_c() {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&program("attach.c"), Library::Shared, scratch.path());
    let run = scratch.path().join("run");
    let printed = output(Command::new(program).arg(&run));
    assert_eq!(printed, "0 wrong\n");
    let events = prefix.ask("print", &run);
    let sent: Vec<&Value> = elements(&events, "sent");
    let numbers: Vec<_> = sent.iter().map(|e| (&e["bytes"], &e["ratio"])).collect();
    let half = Value::from(0.5);
    let expected: Vec<_> = [7, 8, 9].map(Value::from).into_iter().collect();
    let expected: Vec<_> = expected.iter().map(|n| (n, &half)).collect();
    assert_eq!(numbers, expected);
    assert!(elements(&events, "left out").is_empty());
    let sampled = elements(&events, "queue (level)");
    let values: Vec<_> = sampled.iter().map(|e| e["value"].as_u64()).collect();
    assert_eq!(values, [Some(0), Some(5)], "at the event, and when asked");
    let losses = losses(prefix, &run);
    let causes: Vec<_> = losses.iter().map(|(_, e, c, n)| (&**e, &**c, *n)).collect();
    assert_eq!(causes, [("sent", "reported-by-source", 3)]);
    let info = output(prefix.tool("trace-cli").arg("info").arg(&run).arg("--json"));
    assert!(info.contains("cvar eager limit"), "{info}");
}

#[test]
fn the_generic_logger_prints_events_or_what_there_is() {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&example("event_logger.c"), Library::Shared, scratch.path());
    for separator in [",", ":", ";", " "] {
        let mut command = Command::new(&program);
        let names = ["pml_ob1_message_arrived", "none"].join(separator);
        let printed = output(command.env("EVENTS", names));
        let lines: Vec<&str> = printed.lines().collect();
        let event = |line: &str, number: usize| {
            let (time, rest) = line.split_once("] ").expect("a time");
            let time: f64 = time
                .trim_start_matches('[')
                .trim()
                .parse()
                .expect("seconds");
            assert!((0.0..10.0).contains(&time), "{line}");
            let source = number - 10;
            let expected = format!(
                "'pml_ob1_message_arrived' context_id=0 source={source} tag=201 sequence_number={number}"
            );
            assert_eq!(rest, expected);
        };
        assert_eq!(lines.len(), 3, "{printed}");
        event(lines[0], 10);
        assert_eq!(
            lines[1],
            "dropped 1 of 'pml_ob1_message_arrived' by source 0"
        );
        event(lines[2], 12);
    }
    let printed = output(Command::new(&program).env_remove("EVENTS"));
    let expected = "source 0 'network' (messages), ordered, 1000000000 ticks a second\n\
                    event type 0 'pml_ob1_message_arrived': context_id source tag sequence_number\n";
    assert_eq!(printed, expected);
}

/// Runs `overload.c`; what it printed, and where its recording is.
fn overload(what: &str, scratch: &Path) -> (String, PathBuf) {
    let prefix = Prefix::get();
    let program = prefix.compile(&program("overload.c"), Library::Shared, scratch);
    let run = scratch.join("run");
    let printed = output(Command::new(program).arg(what).arg(&run));
    (printed, run)
}

/// Levels of the alarms in a recording, as `print` has them.
fn levels(recording: &Path) -> Vec<u64> {
    let events = Prefix::get().ask("print", recording);
    let alarms = elements(&events, "alarm").into_iter();
    alarms
        .map(|alarm| alarm["level"].as_u64().expect("a number"))
        .collect()
}

#[test]
fn what_finds_no_room_is_dropped_and_counted_for_c_too() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (printed, run) = overload("drop", scratch.path());
    let numbers: Vec<u64> = printed
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [raised, dropped] = numbers[..] else {
        panic!("{printed}");
    };
    assert!(dropped > 0, "{printed}");
    let losses = losses(Prefix::get(), &run);
    // One row, or several if there was room in between.
    let causes: BTreeSet<_> = losses.iter().map(|(_, e, c, _)| (&**e, &**c)).collect();
    assert_eq!(causes, BTreeSet::from([("alarm", "buffer-full")]));
    assert_eq!(losses.iter().map(|loss| loss.3).sum::<u64>(), dropped);
    assert_eq!(levels(&run).len() as u64, raised - dropped);
}

#[test]
fn a_snapshot_is_taken_from_c() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (printed, run) = overload("snapshot", scratch.path());
    let (path, rest) = printed.split_once('\n').expect("two lines");
    assert_eq!(rest, "raised 101, dropped 0\n");
    assert!(Path::new(path).starts_with(&run), "{path}");
    assert_eq!(levels(Path::new(path)), (0..100).collect::<Vec<_>>());
    assert_eq!(levels(&run), (0..=100).collect::<Vec<_>>());
}

#[test]
fn triggers_fire_for_events_from_c_and_for_signals() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (printed, run) = overload("trigger", scratch.path());
    let expected = "0 before\n1 by an event\n2 by a signal\nraised 7, dropped 0\n";
    assert_eq!(printed, expected);
    for number in [1, 2] {
        let snapshot = run.join(format!("snapshot-{number}"));
        assert_eq!(levels(&snapshot), [1, 2, 3, 4, 5, 6, 7], "{number}");
    }
}

/// The contents of the recording itself are not lost with the memory file system that the live file is in.
#[test]
fn a_chosen_signal_has_all_pages_written() {
    for (what, expected, signal) in [("flush", "it goes on\n", 9), ("end", "", 15)] {
        let prefix = Prefix::get();
        let scratch = tempfile::tempdir().expect("a directory");
        let program = prefix.compile(&program("overload.c"), Library::Shared, scratch.path());
        let run = scratch.path().join("run");
        let ended = Command::new(program).arg(what).arg(&run).output();
        let ended = ended.expect("it runs");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), expected);
        let by = std::os::unix::process::ExitStatusExt::signal(&ended.status);
        assert_eq!(by, Some(signal), "{}", said(&ended));
        for file in std::fs::read_dir(&run).expect("the run") {
            let path = file.expect("an entry").path();
            if path.to_string_lossy().ends_with("-live") {
                std::fs::remove_file(path).expect("the live file goes");
            }
        }
        let mut print = prefix.tool("trace-cli");
        let printed = print.arg("print").arg(&run).arg("--json").output();
        let printed = printed.expect("it runs").stdout;
        let events = serde_json::Deserializer::from_slice(&printed).into_iter();
        let events: Vec<Value> = events.map(|event| event.expect("JSON")).collect();
        let alarms = elements(&events, "alarm").len();
        assert_eq!(alarms, 100, "{what}");
    }
}

fn misuse(library: Library) {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&program("misuse.c"), library, scratch.path());
    let mut command = Command::new("timeout");
    command
        .arg("120")
        .arg(program)
        .arg(scratch.path().join("run"));
    assert_eq!(output(&mut command), "0 wrong\n");
}

#[test]
fn misuse_gives_a_status_and_never_a_crash_with_the_shared_library() {
    misuse(Library::Shared);
}

#[test]
fn misuse_gives_a_status_and_never_a_crash_with_the_archive() {
    misuse(Library::Static);
}

#[test]
fn a_program_that_unloads_the_library_goes_on_and_loses_nothing() {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let binary = scratch.path().join("program");
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compile.args(prefix.pkg_config(&["--cflags"]));
    compile
        .arg(program("unload.c"))
        .arg("-o")
        .arg(&binary)
        .arg("-ldl");
    output(&mut compile);
    let run = scratch.path().join("run");
    let library = prefix.0.join("lib/libannals.so");
    output(Command::new(&binary).arg(library).arg(&run));
    let trace = scratch.path().join("run.annals");
    output(prefix.tool("trace-merge").arg(&run).arg("-o").arg(&trace));
    let expected = [("loaded".to_owned(), 4000)];
    assert_eq!(calls(prefix, &trace), BTreeMap::from(expected));
    output(
        prefix
            .tool("trace-cli")
            .arg("dropped")
            .arg(&trace)
            .arg("--check"),
    );
}

#[test]
fn the_event_path_calls_neither_the_loader_nor_the_allocator() {
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let program = prefix.compile(&program("calls.c"), Library::Shared, scratch.path());
    let printed = output(Command::new(program).arg(scratch.path().join("run")));
    let expected = "0 wrong, 0 refused, 0 loader calls, 0 allocations\n";
    assert_eq!(printed, expected);
}

#[test]
fn the_shared_library_is_linked_as_it_must_be() {
    let library = Prefix::get().0.join("lib/libannals.so");
    let dynamic = output(Command::new("readelf").arg("-dW").arg(&library));
    for expected in ["soname: [libannals.so.0.1]", "STATIC_TLS", "NODELETE"] {
        assert!(dynamic.contains(expected), "{expected}: {dynamic}");
    }
    let exported = output(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let names = exported.lines().filter_map(|line| line.split(' ').nth(2));
    let foreign: Vec<&str> = names.filter(|name| !name.starts_with("annals_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // What the loader keeps free for libraries that come later (glibc 2.32 and newer: 512 bytes).
    let headers = output(Command::new("readelf").arg("-lW").arg(&library));
    let segment = headers.lines().find(|line| line.trim().starts_with("TLS"));
    let size = segment.and_then(|line| line.split_whitespace().nth(5));
    let size = size.and_then(|size| usize::from_str_radix(size.trim_start_matches("0x"), 16).ok());
    assert!(size.is_some_and(|size| size <= 384), "{segment:?}");
}

/// The functions that each shared library exports are those of `tests/capi/exports`, and no other: link-time optimisation or
/// another crate in the library may neither add nor remove one.
#[test]
fn the_shared_libraries_export_what_is_listed_and_nothing_else() {
    for library in ["libannals", "libannals_instrument", "libannals_mpi"] {
        let listed = Path::new(ROOT).join(format!("tests/capi/exports/{library}.txt"));
        let listed = std::fs::read_to_string(&listed).expect("the list");
        let listed: BTreeSet<&str> = listed.lines().collect();
        let file = Prefix::get().0.join(format!("lib/{library}.so"));
        let printed = output(Command::new("nm").args(["-D", "--defined-only"]).arg(file));
        let exported: BTreeSet<&str> = printed
            .lines()
            .map(|line| line.split(' ').nth(2).expect("address, kind and name"))
            .collect();
        let missing: Vec<_> = listed.difference(&exported).collect();
        let unlisted: Vec<_> = exported.difference(&listed).collect();
        assert!(
            missing.is_empty() && unlisted.is_empty(),
            "{library}: missing {missing:?}, not listed {unlisted:?}"
        );
    }
}

#[test]
fn the_installation_is_complete_and_knows_its_version() {
    let prefix = Prefix::get();
    let version = env!("CARGO_PKG_VERSION");
    for file in [
        "bin/trace-merge",
        "bin/trace-cli",
        "lib/libannals.a",
        "lib/libannals.so",
        "lib/libannals.so.0.1",
        "lib/libannals_instrument.so",
        "lib/libannals_instrument.so.0.1",
        "include/annals.h",
        "include/annals.hpp",
        "include/annals_t.h",
        "share/man/man1/trace-cli-record.1",
        "share/man/man1/trace-merge.1",
        "share/bash-completion/completions/trace-cli",
        "share/zsh/site-functions/_trace-cli",
        "share/fish/vendor_completions.d/trace-cli.fish",
    ] {
        assert!(prefix.0.join(file).exists(), "{file}");
    }
    assert!(
        prefix
            .0
            .join(format!("lib/libannals.so.{version}"))
            .exists()
    );
    assert_eq!(prefix.pkg_config(&["--modversion"]), [version]);
}

#[test]
fn the_program_of_the_readme_compiles_and_records() {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README");
    let (_, from) = readme.split_once("```c\n").expect("a C snippet");
    let (snippet, _) = from.split_once("```").expect("its end");
    let prefix = Prefix::get();
    let scratch = tempfile::tempdir().expect("a directory");
    let source = scratch.path().join("readme.c");
    let whole = format!("#include <annals.h>\nint main(void)\n{{\n{snippet}return 0;\n}}\n");
    std::fs::write(&source, whole).expect("a file");
    let program = prefix.compile(&source, Library::Shared, scratch.path());
    let run = scratch.path().join("run");
    output(Command::new(program).env("ANNALS_DIR", &run));
    let expected = [("solve".to_owned(), 1)];
    assert_eq!(calls(prefix, &run), BTreeMap::from(expected));
}
