//! Files that commands write: they replace only files of the same kind, and have their names only when they are on the
//! disk.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_recorder::{EventTypeSpec, Options, Recorder};

const CLI: &str = env!("CARGO_BIN_EXE_trace-cli");
use crate::trace_merge;
/// Names what a child of this test does: see [`child`].
const CHILD: &str = "ANNALS_TEST_CHILD";

/// What every kind of output is written from.
struct Inputs {
    directory: tempfile::TempDir,
}

impl Inputs {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let demo = directory.path().join("demo");
        let output = Command::new(CLI).arg("demo").arg("-o").arg(&demo).output();
        assert!(output.expect("trace-cli runs").status.success());
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn trace(&self) -> PathBuf {
        self.path("demo/run.annals")
    }

    /// Returns the command of one kind of output; `OUT`, `TRACE`, `RECORDINGS`, `MERGED` and `trace-merge` in
    /// its words are paths.
    fn command(&self, words: &[&str], output: &Path) -> Vec<OsString> {
        let word = |word: &&str| match *word {
            "OUT" => output.into(),
            "TRACE" => self.trace().into(),
            "RECORDINGS" => self.path("demo").into(),
            "trace-merge" => trace_merge().into(),
            "MERGED" => self.path("merged.annals").into(),
            word => word.into(),
        };
        words.iter().map(word).collect()
    }
}

/// Each kind of a single file: how it is called, and what writes it.
const FILES: &[(&str, &[&str])] = &[
    (
        "out.annals",
        &["trace-merge", "-q", "RECORDINGS", "-o", "OUT"],
    ),
    (
        "report",
        &[
            "trace-merge",
            "-q",
            "RECORDINGS",
            "-o",
            "MERGED",
            "--report",
            "OUT",
        ],
    ),
    (
        "plan",
        &[
            "trace-merge",
            "-q",
            "RECORDINGS",
            "-o",
            "MERGED",
            "--write-plan",
            "OUT",
        ],
    ),
    (
        "part.annals",
        &[CLI, "slice", "TRACE", "--from", "1ms", "-o", "OUT"],
    ),
    ("indexed.annals", &[CLI, "index", "TRACE", "-o", "OUT"]),
    ("out.pftrace", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.json", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.json.gz", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.parquet", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.arrow", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.folded", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.svg", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.csv", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.jsonl", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.dot", &[CLI, "export", "TRACE", "-o", "OUT"]),
    ("out.mmd", &[CLI, "export", "TRACE", "-o", "OUT"]),
    (
        "merged.csv",
        &["trace-merge", "-q", "RECORDINGS", "-o", "OUT"],
    ),
    ("page.html", &[CLI, "report", "TRACE", "-o", "OUT"]),
    ("timeline.svg", &[CLI, "timeline", "TRACE", "--svg", "OUT"]),
    ("timeline.png", &[CLI, "timeline", "TRACE", "--png", "OUT"]),
    (
        "histogram.svg",
        &[
            CLI,
            "histogram",
            "TRACE",
            "--region",
            "work",
            "--svg",
            "OUT",
        ],
    ),
    ("metrics.svg", &[CLI, "metrics", "TRACE", "--svg", "OUT"]),
    (
        "filter",
        &[
            CLI,
            "suggest-filter",
            "TRACE",
            "--at-least",
            "1",
            "-o",
            "OUT",
        ],
    ),
];

fn run(command: &[OsString], more: &[&str]) -> (bool, String) {
    let output = Command::new(&command[0])
        .args(&command[1..])
        .args(more)
        .output();
    let output = output.expect("it runs");
    let is_done = matches!(output.status.code(), Some(0 | 3));
    (
        is_done,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn an_output_replaces_only_a_file_of_its_kind() {
    const OTHER: &str = "int main(void) { return 0; }\n";
    let inputs = Inputs::new();
    for (name, words) in FILES {
        let output = inputs.path(name);
        let command = inputs.command(words, &output);
        // Nothing, an empty file, its own kind.
        for text in [None, Some("")] {
            text.into_iter()
                .for_each(|text| std::fs::write(&output, text).expect("a file"));
            let (is_done, said) = run(&command, &[]);
            assert!(is_done, "{name}: {said}");
        }
        let (is_done, said) = run(&command, &[]);
        assert!(is_done, "{name}: {said}");
        let made = std::fs::read(&output).expect("the output");
        assert!(!made.is_empty(), "{name}");
        std::fs::write(&output, OTHER).expect("a file");
        let (is_done, said) = run(&command, &[]);
        assert!(!is_done, "{name} replaced a C source");
        assert!(
            said.contains("is not a") && said.contains("--force"),
            "{name}: {said}"
        );
        assert_eq!(
            std::fs::read_to_string(&output).expect("the source"),
            OTHER,
            "{name}"
        );
        let (is_done, said) = run(&command, &["--force"]);
        assert!(is_done, "{name}: {said}");
        assert_ne!(
            std::fs::read(&output).expect("the output"),
            OTHER.as_bytes(),
            "{name}"
        );
    }
    let names = std::fs::read_dir(inputs.directory.path()).expect("the directory");
    let mut names = names.map(|entry| entry.expect("an entry").file_name());
    assert!(names.all(|name| !name.to_string_lossy().ends_with(".tmp")));
}

/// A system call that matters for what is on the disk after a crash of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Call {
    Write(PathBuf),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// Runs a command below strace. Returns its calls, in order.
fn calls(command: &[OsString], log: &Path, variables: &[(&str, &str)]) -> Vec<Call> {
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "0", "-e"])
        .arg("trace=write,writev,pwrite64,fsync,fdatasync,rename,renameat,renameat2,copy_file_range,sendfile")
        .arg("-o")
        .arg(log)
        .args(command)
        .envs(variables.iter().copied())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("strace runs: install it");
    assert!(
        matches!(status.code(), Some(0 | 3 | 137)) || status.signal().is_some(),
        "{command:?}: {status}"
    );
    let text = std::fs::read_to_string(log).expect("the log");
    text.lines().filter_map(call).collect()
}

/// Reads a line such as `123 fsync(3</a/b>) = 0`.
fn call(line: &str) -> Option<Call> {
    let (_, line) = line.split_once(char::is_whitespace)?;
    let line = line.trim_start();
    let has_failed = line.contains(") = -1") || !line.contains("(");
    if has_failed {
        return None;
    }
    let (name, rest) = line.split_once('(')?;
    let of_descriptor = || {
        let (_, rest) = rest.split_once('<')?;
        Some(PathBuf::from(rest.split_once('>')?.0))
    };
    match name {
        "write" | "writev" | "pwrite64" => of_descriptor().map(Call::Write),
        // The second descriptor is written to.
        "copy_file_range" => rest
            .rsplit_once('<')
            .and_then(|(_, rest)| Some(Call::Write(PathBuf::from(rest.split_once('>')?.0)))),
        "sendfile" => of_descriptor().map(Call::Write),
        "fsync" | "fdatasync" => of_descriptor().map(Call::Sync),
        _ => {
            let mut quoted = rest.split('"').skip(1).step_by(2);
            let (from, to) = (quoted.next()?, quoted.next()?);
            Some(Call::Rename(from.into(), to.into()))
        }
    }
}

/// Checks that a file was written, synced, renamed, and its directory synced, in this order.
fn check_order(what: &str, calls: &[Call], file: &Path) {
    let renames =
        |call: &Call| matches!(call, Call::Rename(_, to) if to == file || file.starts_with(to));
    let Some(renamed) = calls.iter().rposition(renames) else {
        panic!(
            "{what}: {} got its name otherwise: {calls:#?}",
            file.display()
        );
    };
    let Call::Rename(from, to) = &calls[renamed] else {
        unreachable!("it is a rename");
    };
    let made = match file.strip_prefix(to) {
        Ok(below) if !below.as_os_str().is_empty() => from.join(below),
        _ => from.clone(),
    };
    let last_write = calls
        .iter()
        .rposition(|call| *call == Call::Write(made.clone()));
    let synced = calls[..renamed]
        .iter()
        .rposition(|call| *call == Call::Sync(made.clone()));
    assert!(
        last_write.is_some(),
        "{what}: nothing was written to {}: {calls:#?}",
        made.display()
    );
    assert!(
        synced.is_some() && synced > last_write,
        "{what}: not synced before its name: {calls:#?}"
    );
    let parent = to.parent().expect("a directory").to_owned();
    let is_parent_synced = calls[renamed..].contains(&Call::Sync(parent));
    assert!(
        is_parent_synced,
        "{what}: its directory was not synced: {calls:#?}"
    );
}

#[test]
fn every_output_is_written_synced_renamed_and_its_directory_synced() {
    let inputs = Inputs::new();
    let log = inputs.path("strace.log");
    let none: &[(&str, &str)] = &[];
    for (name, words) in FILES {
        let output = inputs.path(name);
        check_order(
            name,
            &calls(&inputs.command(words, &output), &log, none),
            &output,
        );
    }
    // A new directory, and one that is there.
    for _ in 0..2 {
        let tables = inputs.path("tables");
        let words = [CLI, "export", "TRACE", "--format", "parquet", "-o", "OUT"];
        let found = calls(&inputs.command(&words, &tables), &log, none);
        for table in ["events.parquet", "calls.parquet", "messages.parquet"] {
            check_order(table, &found, &tables.join(table));
        }
    }
    // An archive, whose anchor is the last.
    let anchor = inputs.path("archive/run.otf2");
    let found = calls(
        &inputs.command(&["trace-merge", "-q", "RECORDINGS", "-o", "OUT"], &anchor),
        &log,
        none,
    );
    check_order("the anchor", &found, &anchor);
    check_order("the definitions", &found, &anchor.with_extension("def"));
    let events = std::fs::read_dir(anchor.with_extension("")).expect("the locations");
    let events: Vec<PathBuf> = events.map(|entry| entry.expect("a file").path()).collect();
    assert!(!events.is_empty());
    events
        .iter()
        .for_each(|file| check_order("a location", &found, file));
    let place = |to: &Path| {
        let is_it = |call: &Call| matches!(call, Call::Rename(_, path) if path == to);
        found.iter().rposition(is_it)
    };
    let (last, definitions) = (place(&anchor), place(&anchor.with_extension("def")));
    assert!(
        last > definitions && last > place(&anchor.with_extension("")),
        "{found:#?}"
    );
    let parent = anchor.parent().expect("a directory").to_owned();
    let between = &found[definitions.expect("a rename")..last.expect("a rename")];
    assert!(
        between.contains(&Call::Sync(parent)),
        "the anchor may be there without the rest: {found:#?}"
    );
}

/// What this test does as a child of itself; nothing as a test.
#[test]
fn child() {
    let Ok(deed) = std::env::var(CHILD) else {
        return;
    };
    let mut options = Options::from_env().expect("options");
    options.overflow = annals_recorder::Overflow::Overwrite;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = EventTypeSpec::new("mark").element("number");
    let mark = recorder.add_event_type::<(u64,)>(&mark).expect("a type");
    (0..1000).for_each(|number| recorder.raise(&mark, (number,)));
    if deed == "snapshot" {
        recorder.snapshot().expect("a snapshot");
        recorder.finish();
        return;
    }
    if deed == "torn" {
        // Destroys definitions: such a live file is not recovered, but moved to the directory of
        // its recording.
        let live = options.live_directory.expect("a directory");
        let live = files(&live, "").pop().expect("a live file");
        let live = std::fs::File::options()
            .write(true)
            .open(live)
            .expect("the live file");
        std::os::unix::fs::FileExt::write_all_at(&live, &[0; 8], 2048).expect("it is written");
    }
    let own = std::process::id().to_string();
    let _ = Command::new("kill").args(["-9", &own]).status();
    unreachable!("it is killed");
}

fn child_command() -> Vec<OsString> {
    let test = std::env::current_exe().expect("this test");
    let words = ["--exact", "outputs::child", "--test-threads=1"];
    let words = words.map(OsString::from);
    std::iter::once(test.into_os_string())
        .chain(words)
        .collect()
}

/// Returns the files below a directory whose names end so.
fn files(directory: &Path, end: &str) -> Vec<PathBuf> {
    let entries = walkdir::WalkDir::new(directory).into_iter();
    let paths = entries.map(|entry| entry.expect("an entry").into_path());
    paths
        .filter(|path| path.is_file() && path.to_string_lossy().ends_with(end))
        .collect()
}

#[test]
fn a_snapshot_is_synced_after_it_has_its_name_by_a_thread_of_its_own() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("run");
    let log = scratch.path().join("strace.log");
    let variables = [
        ("ANNALS_DIR", directory.to_str().expect("text")),
        (CHILD, "snapshot"),
    ];
    let found = calls(&child_command(), &log, &variables);
    let snapshot = files(&directory.join("snapshot-1"), ".annals")
        .pop()
        .expect("a snapshot");
    let is_named = |call: &Call| matches!(call, Call::Rename(_, to) if *to == snapshot);
    let named = found.iter().position(is_named).expect("a rename");
    let mut after = found[named..]
        .iter()
        .filter(|call| matches!(call, Call::Sync(_)));
    let parent = snapshot.parent().expect("a directory").to_owned();
    for path in [snapshot.clone(), parent, directory] {
        assert_eq!(after.next(), Some(&Call::Sync(path)), "{found:#?}");
    }
    // The thread that wrote it does not wait for the disk.
    let text = std::fs::read_to_string(&log).expect("the log");
    let thread_of = |what: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(what) && line.contains("snapshot-1"));
        line.and_then(|line| line.split_whitespace().next())
            .expect("a call")
            .to_owned()
    };
    assert_ne!(thread_of("fsync("), thread_of("rename("), "{text}");
}

#[test]
fn recovered_recordings_and_live_files_brought_home_are_synced_before_they_have_their_names() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("run");
    let live = scratch.path().join("live");
    std::fs::create_dir(&live).expect("a directory");
    let variables = [
        ("ANNALS_DIR", directory.to_str().expect("text")),
        ("ANNALS_LIVE_DIR", live.to_str().expect("text")),
        (CHILD, "killed"),
    ];
    let child = child_command();
    let status = Command::new(&child[0])
        .args(&child[1..])
        .envs(variables)
        .output();
    assert!(status.expect("it runs").status.signal().is_some());
    let log = scratch.path().join("strace.log");
    let command = [
        CLI.into(),
        "recover".into(),
        directory.clone().into_os_string(),
    ];
    let found = calls(&command, &log, &[]);
    let recording = files(&directory, ".annals").pop().expect("a recording");
    check_order("a recovered recording", &found, &recording);
    assert_eq!(
        files(&live, ""),
        Vec::<PathBuf>::new(),
        "the live file is removed"
    );

    let mut command: Vec<OsString> = [CLI, "record", "--quiet", "-o"].map(OsString::from).into();
    command.push(scratch.path().join("torn").into());
    command.push("--".into());
    command.extend(child);
    let live = live.to_str().expect("text");
    let variables = [("ANNALS_LIVE_DIR", live), (CHILD, "torn")];
    let found = calls(&command, &log, &variables);
    let home = files(&scratch.path().join("torn"), "-live").pop();
    check_order(
        "a live file",
        &found,
        &home.expect("the live file, beside its recording"),
    );
    assert_eq!(files(Path::new(live), ""), Vec::<PathBuf>::new());
}
