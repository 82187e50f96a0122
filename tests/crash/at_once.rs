//! Programs that use the same files concurrently: each output is the complete output of one of them, and no event is
//! lost between them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use annals_format::{CompressionLevel, SourceOrder};
use annals_merger::{InputRecording, Reader};
use annals_recorder::{EventTypeSpec, Options, Recorder};
use annals_test_support::{MARK, REFERENCE, Row, TestRecording, TestStream, sums_by_type};

/// Returns `trace-merge`.
fn trace_merge() -> &'static str {
    annals_test_support::programs::trace_merge(
        env!("CARGO_BIN_EXE_trace-cli"),
        env!("CARGO_TARGET_TMPDIR"),
    )
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn merge(input: &Path, output: &Path) -> Command {
    let mut command = Command::new(trace_merge());
    command.arg(input).arg("-o").arg(output).arg("-q");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn recover(input: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg("recover").arg(input);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.into_string().expect("a name"))
        .collect()
}

/// Writes a recording of `events` events.
fn recording(directory: &Path, events: u64) {
    let rows = (0..events).map(|n| Row::Event(MARK, 5_000_000_000 + n * 100, n * n));
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: (events % 251) as u16,
        start_ns: 5_000_000_000,
        end_ns: 5_000_000_000 + events as i64 * 100,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(5_000_000_000, rows.collect())],
        }],
        has_footer: true,
    };
    std::fs::create_dir_all(directory).expect("a directory");
    recording.write(directory, CompressionLevel::None);
}

#[test]
fn mergers_of_one_output_at_once_leave_the_whole_trace_of_one_of_them() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut wholes = Vec::new();
    for events in [20_000, 30_000] {
        let input = scratch.path().join(format!("in-{events}"));
        recording(&input, events);
        let output = scratch.path().join(format!("{events}.annals"));
        let merged = merge(&input, &output).output().expect("trace-merge runs");
        assert_eq!(merged.status.code(), Some(0), "{}", said(&merged));
        wholes.push((input, std::fs::read(&output).expect("a trace")));
    }
    let directory = scratch.path().join("out");
    std::fs::create_dir(&directory).expect("a directory");
    let output = directory.join("run.annals");
    let stop = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        // At any time, a reader finds the trace of one of them.
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !stop.load(Ordering::Relaxed) {
                if let Ok(bytes) = std::fs::read(&output) {
                    assert!(wholes.iter().any(|(_, whole)| *whole == bytes));
                    looks += 1;
                }
                std::thread::yield_now();
            }
            looks
        });
        for _ in 0..5 {
            let begun: Vec<Child> = (0..4)
                .map(|number| merge(&wholes[number % 2].0, &output).spawn())
                .map(|child| child.expect("trace-merge runs"))
                .collect();
            for child in begun {
                let merged = child.wait_with_output().expect("trace-merge runs");
                assert_eq!(merged.status.code(), Some(0), "{}", said(&merged));
            }
        }
        stop.store(true, Ordering::Relaxed);
        looking.join().expect("one of the traces, whole")
    });
    assert!(looks > 0);
    assert_eq!(names(&directory), BTreeSet::from(["run.annals".to_owned()]));
}

const CHILD: &str = "ANNALS_CHILD_AT_ONCE";
/// Events that each child raises.
const EVENTS: u64 = 2000;

/// Returns a process that records as a rank of a run, and ends so or so.
fn child(directory: &Path, run: &str, rank: u32, how: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args([
            "child_that_records",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, format!("{how} {run} {rank} {}", directory.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

/// Not a separate test: the process that records.
#[test]
fn child_that_records() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let [how, run, rank, directory] = task.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        panic!("four words");
    };
    let mut options = Options::new(directory);
    options.run = Some(run.to_owned());
    options.rank = Some(rank.parse().expect("a number"));
    options.rank_count = Some(2);
    options.buffer_bytes = 256 << 10;
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = EventTypeSpec::new("mark").element("number");
    let mark = recorder
        .add_event_type::<(u64,)>(&mark)
        .expect("an event type");
    (0..EVENTS).for_each(|number| recorder.raise(&mark, (number,)));
    if how == "killed" {
        let killed = Command::new("kill")
            .args(["-9", &std::process::id().to_string()])
            .status();
        panic!("still there: {killed:?}");
    }
    recorder.finish();
}

#[test]
fn recoveries_and_readers_at_once_lose_nothing_of_a_killed_process() {
    for _ in 0..5 {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("run");
        let started: Vec<Child> = (0..2)
            .map(|rank| child(&directory, "run", rank, "killed"))
            .collect();
        for mut child in started {
            assert_eq!(child.wait().expect("a child").code(), None);
        }
        assert_eq!(names(&directory).len(), 4);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A reader finds every event at any time.
            let reading = scope.spawn(|| {
                let mut reads = 0;
                while !stop.load(Ordering::Relaxed) || reads == 0 {
                    for path in recordings(&directory) {
                        let input = InputRecording::open(&path).expect("a recording");
                        let streams = input.recording.streams.values();
                        let rows = streams.flat_map(|stream| &stream.totals.rows);
                        let (present, lost) = rows.fold((0, 0), |(present, lost), row| {
                            (present + row.present(), lost + row.skipped + row.truncated)
                        });
                        assert_eq!((present, lost), (EVENTS, 0), "{}", path.display());
                        assert!(input.recording.has_footer || input.live_path.is_some());
                        reads += 1;
                    }
                }
            });
            let started: Vec<Child> = (0..4)
                .map(|_| recover(&directory).spawn().expect("trace-cli runs"))
                .collect();
            for child in started {
                let recovered = child.wait_with_output().expect("trace-cli runs");
                assert_eq!(recovered.status.code(), Some(0), "{}", said(&recovered));
            }
            stop.store(true, Ordering::Relaxed);
            reading.join().expect("every event, whenever it is read");
        });
        assert_eq!(names(&directory).len(), 2, "{:?}", names(&directory));
        let sums = sums_by_type(&directory)["mark"];
        assert_eq!((sums.raised, sums.recorded), (2 * EVENTS, 2 * EVENTS));
    }
}

fn recordings(directory: &Path) -> Vec<PathBuf> {
    let names = names(directory).into_iter();
    let names = names.filter(|name| name.ends_with(".annals"));
    names.map(|name| directory.join(name)).collect()
}

#[test]
fn jobs_that_share_a_directory_are_kept_apart_by_their_runs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("shared");
    // Two concurrent jobs of two ranks each; one rank of the second job is killed.
    let started: Vec<Child> = [("one", 0), ("two", 0), ("one", 1), ("two", 1)]
        .map(|(run, rank)| {
            let how = if (run, rank) == ("two", 1) {
                "killed"
            } else {
                "finished"
            };
            child(&directory, run, rank, how)
        })
        .into();
    for mut child in started {
        child.wait().expect("a child");
    }
    let files = recordings(&directory);
    assert_eq!(files.len(), 4);
    for run in ["one", "two"] {
        // Names say whose they are, and the recordings know.
        let of_run: Vec<&PathBuf> = files
            .iter()
            .filter(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(run))
            })
            .collect();
        assert_eq!(of_run.len(), 2);
        let output = scratch.path().join(format!("{run}.annals"));
        let merged = Command::new(trace_merge())
            .args(&of_run)
            .arg("-o")
            .arg(&output)
            .output()
            .expect("trace-merge runs");
        // A killed process is reported, though nothing of it is lost.
        let code = if run == "two" { 3 } else { 0 };
        assert_eq!(merged.status.code(), Some(code), "{}", said(&merged));
        assert!(!said(&merged).contains("several runs"), "{}", said(&merged));
        let opened = Reader::open(&output).expect("a trace");
        let runs = opened.definitions().processes.values();
        let runs: BTreeSet<&str> = runs
            .map(|process| opened.definitions().string(process.run))
            .collect();
        assert_eq!(runs, BTreeSet::from([run]));
        let sums = sums_by_type(&output)["mark"];
        assert_eq!((sums.raised, sums.recorded), (2 * EVENTS, 2 * EVENTS));
    }
    // All together: every event is there, and it is reported that the ranks are of several runs.
    let output = scratch.path().join("all.annals");
    let merged = merge(&directory, &output)
        .arg("--report")
        .arg(scratch.path().join("report.json"))
        .output();
    let merged = merged.expect("trace-merge runs");
    assert_eq!(merged.status.code(), Some(3), "{}", said(&merged));
    let sums = sums_by_type(&output)["mark"];
    assert_eq!((sums.raised, sums.recorded), (4 * EVENTS, 4 * EVENTS));
    let report = std::fs::read(scratch.path().join("report.json")).expect("the report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("the report");
    assert_eq!(
        report["shared_ranks"].as_array().map(Vec::len),
        Some(2),
        "{report}"
    );
}
