//! Whichever storage call a program is killed at, or fails: what is read stays as it is, what is written appears whole or
//! not at all, and what was acknowledged is there.
//!
//! Every call of every program is met.
#![expect(
    unsafe_code,
    reason = "a signal that ends a process, and where a function is"
)]

mod faults;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use annals_format::{CompressionLevel, Ended, SourceOrder};
use annals_merger::{InputRecording, Reader, recover};
use annals_recorder::{EventTypeSpec, Options, Overflow, Recorder};
use annals_test_support::page::SharedPage;
use annals_test_support::{
    ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream, sums_by_type,
};
use faults::{Standing, copy, faulty, is_leftover, logged, said, standing};

/// Returns `trace-merge`.
fn trace_merge() -> &'static str {
    annals_test_support::programs::trace_merge(
        env!("CARGO_BIN_EXE_trace-cli"),
        env!("CARGO_TARGET_TMPDIR"),
    )
}

/// A program that writes: `IN` in its arguments is the directory of its inputs, `OUT` that of its outputs.
struct Tool {
    name: &'static str,
    is_merge: bool,
    arguments: &'static str,
    /// Which inputs it gets.
    inputs: &'static str,
    /// Its only output, of which there may be another one before.
    output: Option<&'static str>,
    /// That file is there when all are.
    last: Option<&'static str>,
}

const fn tool(name: &'static str, arguments: &'static str, inputs: &'static str) -> Tool {
    Tool {
        name,
        is_merge: false,
        arguments,
        inputs,
        output: None,
        last: None,
    }
}

const fn merge(name: &'static str, arguments: &'static str, inputs: &'static str) -> Tool {
    Tool {
        is_merge: true,
        ..tool(name, arguments, inputs)
    }
}

const TOOLS: [Tool; 16] = [
    Tool {
        output: Some("run.annals"),
        ..merge("merge", "IN -o OUT/run.annals", "finished")
    },
    Tool {
        output: Some("run.annals"),
        ..merge(
            "merge of a killed process",
            "IN -o OUT/run.annals",
            "killed",
        )
    },
    merge(
        "merge with a report and a plan",
        "IN -o OUT/run.annals --report OUT/report.json --write-plan OUT/plan.json --causality repair",
        "finished",
    ),
    merge(
        "merge in little memory",
        "IN -o OUT/run.annals --memory-limit 64K --jobs 1",
        "finished",
    ),
    Tool {
        last: Some("run.otf2"),
        ..merge("merge into an archive", "IN -o OUT/run.otf2", "finished")
    },
    Tool {
        output: Some("run.json"),
        ..merge(
            "merge into another format",
            "IN -o OUT/run.json",
            "finished",
        )
    },
    Tool {
        output: Some("run.annals"),
        ..merge(
            "join",
            "--join IN/1.annals IN/2.annals -o OUT/run.annals",
            "slices",
        )
    },
    tool("recover elsewhere", "recover IN -o OUT", "killed"),
    Tool {
        output: Some("part.annals"),
        ..tool(
            "slice",
            "slice IN/run.annals --from 100us --to 600us -o OUT/part.annals",
            "trace",
        )
    },
    tool("split", "split IN/run.annals --every 400us -o OUT", "trace"),
    Tool {
        output: Some("run.pftrace"),
        ..tool(
            "export of a file",
            "export IN/run.annals --quiet -o OUT/run.pftrace",
            "trace",
        )
    },
    Tool {
        output: Some("run.csv.gz"),
        ..tool(
            "export of a compressed file",
            "export IN/run.annals --quiet -o OUT/run.csv.gz",
            "trace",
        )
    },
    tool(
        "export of tables",
        "export IN/run.annals --quiet --format parquet -o OUT/tables",
        "trace",
    ),
    Tool {
        output: Some("run.svg"),
        ..tool(
            "a picture",
            "timeline IN/run.annals --svg OUT/run.svg",
            "trace",
        )
    },
    Tool {
        output: Some("run.html"),
        ..tool("a page", "report IN/run.annals -o OUT/run.html", "trace")
    },
    Tool {
        output: Some("run.png"),
        ..tool(
            "a picture of pixels",
            "timeline IN/run.annals --png OUT/run.png",
            "trace",
        )
    },
];

impl Tool {
    fn command(&self, inputs: &Path, outputs: &Path) -> Command {
        let mut command = Command::new(if self.is_merge {
            trace_merge()
        } else {
            env!("CARGO_BIN_EXE_trace-cli")
        });
        for argument in self.arguments.split(' ') {
            let (inputs, outputs) = (inputs.to_str(), outputs.to_str());
            let argument = argument.replace("IN", inputs.expect("a name"));
            command.arg(argument.replace("OUT", outputs.expect("a name")));
        }
        if self.output.is_some() {
            // The existing file is of no known kind.
            command.arg("--force");
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

fn recording(rank: u32) -> TestRecording {
    let at = |us: u64| 5_000_000_000 + us * 1000;
    let rows = (0..120_u64).flat_map(|n| {
        [
            Row::Event(ENTER, at(n * 7), n % 4),
            Row::Event(MARK, at(n * 7 + 2), n),
            Row::Event(LEAVE, at(n * 7 + 5), n % 4),
        ]
    });
    let rows: Vec<Row> = rows.collect();
    TestRecording {
        rank: Some(rank),
        rank_count: Some(2),
        id: rank as u16,
        start_ns: at(0) as i64,
        end_ns: at(1000) as i64,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: rows
                .chunks(60)
                .map(|rows| (at(0) as i64, rows.to_vec()))
                .collect(),
        }],
        has_footer: true,
    }
}

/// Returns the inputs that tools get, each in a separate directory.
fn stock() -> &'static Path {
    static STOCK: OnceLock<PathBuf> = OnceLock::new();
    STOCK.get_or_init(|| {
        let stock =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stock-{}", std::process::id()));
        let directory = |name: &str| {
            let directory = stock.join(name);
            fs::create_dir_all(&directory).expect("a directory");
            directory
        };
        let finished = directory("finished");
        for rank in 0..2 {
            recording(rank).write(&finished, CompressionLevel::None);
        }
        let killed = directory("killed");
        let scratch = tempfile::tempdir().expect("a directory");
        let mut child = child("plain", scratch.path());
        assert!(!child.output().expect("a child").status.success());
        copy(&scratch.path().join(RECORDINGS), &killed);
        assert_eq!(standing(&killed).len(), 2, "a recording and its live file");
        let run = |arguments: &[&str]| {
            let output = Command::new(trace_merge())
                .args(arguments)
                .arg("-q")
                .output()
                .expect("trace-merge runs");
            assert!(output.status.success(), "{}", said(&output));
        };
        let finished = finished.to_str().expect("a name");
        let to = |directory: &Path, name: &str| {
            directory.join(name).to_str().expect("a name").to_owned()
        };
        run(&[finished, "-o", &to(&directory("trace"), "run.annals")]);
        let slices = directory("slices");
        let plan = to(&slices, "plan.json");
        let (first, second) = (to(&slices, "1.annals"), to(&slices, "2.annals"));
        run(&[
            finished,
            "-o",
            &first,
            "--write-plan",
            &plan,
            "--slice",
            "1/2",
        ]);
        run(&[finished, "-o", &second, "--plan", &plan, "--slice", "2/2"]);
        stock
    })
}

/// What a tool does without a fault: its outputs, exit code, and storage calls.
struct Whole {
    standing: Standing,
    code: Option<i32>,
    calls: Vec<String>,
}

fn whole(tool: &Tool, scratch: &Path) -> Whole {
    let outputs = scratch.join("whole");
    fs::create_dir(&outputs).expect("a directory");
    let mut command = tool.command(&stock().join(tool.inputs), &outputs);
    let (output, calls) = logged(&mut command, "count 0", scratch);
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 3)),
        "{}: {}",
        tool.name,
        said(&output)
    );
    assert!(calls.len() >= 3, "{}: {calls:?}", tool.name);
    let standing = standing(&outputs);
    assert!(!standing.is_empty() && !standing.keys().any(|name| is_leftover(name)));
    Whole {
        standing,
        code,
        calls,
    }
}

/// Returns a directory of outputs, with another file under the output's name if that is wanted.
fn outputs(tool: &Tool, scratch: &Path, has_before: bool) -> (PathBuf, Standing) {
    let outputs = scratch.join("out");
    let _ = fs::remove_dir_all(&outputs);
    fs::create_dir(&outputs).expect("a directory");
    if let Some(name) = tool.output.filter(|_| has_before) {
        fs::write(outputs.join(name), b"before").expect("a file");
    }
    let before = standing(&outputs);
    (outputs, before)
}

/// Every name has what it had before, or what it is to have.
fn check_names(tool: &Tool, found: &Standing, before: &Standing, whole: &Whole, when: &str) {
    let named = found.iter().filter(|(name, _)| !is_leftover(name));
    for (name, bytes) in named.clone() {
        let is_fine = whole.standing.get(name) == Some(bytes) || before.get(name) == Some(bytes);
        assert!(
            is_fine,
            "{when}: {} is neither old nor whole",
            name.display()
        );
    }
    for name in before.keys() {
        assert!(
            found.contains_key(name),
            "{when}: {} is gone",
            name.display()
        );
    }
    if let Some(last) = tool.last.filter(|last| found.contains_key(Path::new(last))) {
        assert_eq!(
            named.count(),
            whole.standing.len(),
            "{when}: {last} is there"
        );
    }
}

#[test]
fn a_tool_that_is_killed_at_any_storage_call_leaves_inputs_alone_and_nothing_half_under_a_name() {
    let mut kills = 0;
    for tool in &TOOLS {
        let scratch = tempfile::tempdir().expect("a directory");
        let whole = whole(tool, scratch.path());
        let inputs = stock().join(tool.inputs);
        let inputs_before = standing(&inputs);
        for number in 1..=whole.calls.len() {
            for how in ["kill", "tear"] {
                let when = format!(
                    "{}, {how} at {number}: {}",
                    tool.name,
                    whole.calls[number - 1]
                );
                let (outputs, before) = outputs(tool, scratch.path(), how == "tear");
                let mut command = tool.command(&inputs, &outputs);
                let killed = faulty(&mut command, &format!("{how} {number}"), scratch.path());
                assert_eq!(killed.status.code(), None, "{when}: {}", said(&killed));
                kills += 1;
                check_names(tool, &standing(&outputs), &before, &whole, &when);
                assert!(standing(&inputs) == inputs_before, "{when}: inputs stay");
            }
            // Leftovers are in nobody's way.
            let outputs = scratch.path().join("out");
            let mut found = standing(&outputs);
            found.retain(|name, _| !is_leftover(name));
            if found == whole.standing {
                continue;
            }
            let again = tool.command(&inputs, &outputs).output().expect("a tool");
            let when = format!(
                "{}, behind a kill at {number}: {}",
                tool.name,
                whole.calls[number - 1]
            );
            assert_eq!(again.status.code(), whole.code, "{when}: {}", said(&again));
            let mut found = standing(&outputs);
            found.retain(|name, _| !is_leftover(name));
            assert!(found == whole.standing, "{when}: the second run writes all");
        }
    }
    eprintln!("{kills} kills");
}

#[test]
fn a_tool_whose_storage_fails_at_any_call_says_so_and_leaves_what_was_there() {
    let mut failures = 0;
    for tool in &TOOLS {
        let scratch = tempfile::tempdir().expect("a directory");
        let whole = whole(tool, scratch.path());
        let inputs = stock().join(tool.inputs);
        let inputs_before = standing(&inputs);
        for (number, call) in (1..).zip(&whole.calls) {
            for how in ["EIO", "full"] {
                let when = format!("{}, {how} at {number}: {call}", tool.name);
                let (outputs, before) = outputs(tool, scratch.path(), number % 2 == 0);
                let mut command = tool.command(&inputs, &outputs);
                let failed = faulty(&mut command, &format!("{how} {number}"), scratch.path());
                let text = said(&failed);
                failures += 1;
                let mut found = standing(&outputs);
                check_names(tool, &found, &before, &whole, &when);
                assert!(standing(&inputs) == inputs_before, "{when}: inputs stay");
                if failed.status.code() == whole.code {
                    // What failed was not needed: to take away what is of no use any more, for one.
                    found.retain(|name, _| !is_leftover(name));
                    assert!(found == whole.standing, "{when}: {text}");
                    continue;
                }
                assert_eq!(failed.status.code(), Some(1), "{when}: {text}");
                let why = if how == "EIO" {
                    "Input/output"
                } else {
                    "No space left"
                };
                assert!(text.contains(why), "{when}: {text}");
                let left = found.keys().filter(|name| is_leftover(name));
                assert_eq!(left.count(), 0, "{when}: {:?}", found.keys());
            }
        }
    }
    eprintln!("{failures} failures");
}

#[test]
fn short_writes_and_interrupted_calls_cost_a_tool_nothing() {
    for tool in &TOOLS {
        let scratch = tempfile::tempdir().expect("a directory");
        let whole = whole(tool, scratch.path());
        let (outputs, _) = outputs(tool, scratch.path(), true);
        let mut command = tool.command(&stock().join(tool.inputs), &outputs);
        let (output, calls) = logged(&mut command, "short 1", scratch.path());
        assert_eq!(
            output.status.code(),
            whole.code,
            "{}: {}",
            tool.name,
            said(&output)
        );
        assert!(standing(&outputs) == whole.standing, "{}", tool.name);
        assert!(calls.len() > whole.calls.len(), "writes were short");
    }
}

#[test]
fn a_recovery_in_place_that_is_killed_or_fails_at_any_call_loses_nothing_and_can_be_done_again() {
    let scratch = tempfile::tempdir().expect("a directory");
    let killed = stock().join("killed");
    let run = scratch.path().join("run");
    let begin = |fault: &str| {
        let _ = fs::remove_dir_all(&run);
        copy(&killed, &run);
        let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        command.arg("recover").arg(&run);
        logged(&mut command, fault, scratch.path())
    };
    let sums = sums_by_type(&killed);
    assert!(sums["mark"].raised > 1000);
    let (done, calls) = begin("count 0");
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(sums_by_type(&run), sums);
    let clean = standing(&run);
    assert_eq!(clean.len(), 1, "one clean recording is left");
    for (number, call) in (1..).zip(&calls) {
        for how in ["kill", "tear", "EIO", "ENOSPC", "full"] {
            let when = format!("{how} at {number}: {call}");
            let (outcome, _) = begin(&format!("{how} {number}"));
            match how {
                "kill" | "tear" => assert_eq!(outcome.status.code(), None, "{when}"),
                _ => assert!(
                    matches!(outcome.status.code(), Some(0 | 1)),
                    "{when}: {}",
                    said(&outcome)
                ),
            }
            assert_eq!(sums_by_type(&run), sums, "{when}");
            let opened = Reader::open(&run).expect("a recording");
            let ends: Vec<Ended> = opened
                .definitions()
                .process_ends
                .values()
                .map(|end| end.ended)
                .collect();
            assert_eq!(ends, [Ended::Killed], "{when}");
            // Again, without a fault.
            let again = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
                .arg("recover")
                .arg(&run)
                .output()
                .expect("trace-cli runs");
            assert_eq!(again.status.code(), Some(0), "{when}: {}", said(&again));
            let mut found = standing(&run);
            found.retain(|name, _| !is_leftover(name));
            assert!(found == clean, "{when}: {:?}", found.keys());
        }
    }
    let (short, _) = begin("short 1");
    assert_eq!(short.status.code(), Some(0), "{}", said(&short));
    assert!(standing(&run) == clean);
}

const CHILD: &str = "ANNALS_FAULTY_CHILD";
/// Where the child records, in its directory.
const RECORDINGS: &str = "recordings";
/// Events that the child raises; they fill many pages.
const EVENTS: u64 = 3000;

fn child(how: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args([
            "child_that_records",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, format!("{how} {}", directory.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Words of the page that the child shares: the number of events whose recording was acknowledged.
const TOLD: usize = 0;
/// 1 when it has finished and no storage failed, 2 when some did.
const FINISHED: usize = 1;
/// Events that were dropped.
const DROPPED: usize = 2;
/// 1 when there is no live file.
const NOT_KILL_SAFE: usize = 3;
/// Of each of two snapshots: 1 when it was written, 2 when it was not.
const SNAPSHOTS: usize = 4;

fn open_page(directory: &Path) -> SharedPage {
    SharedPage::open(&directory.join("acknowledged"))
}

/// Not a separate test: a process that records, and ends in the given way.
#[test]
fn child_that_records() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let (how, directory) = task.split_once(' ').expect("a way and a directory");
    let directory = Path::new(directory);
    let acknowledged = open_page(directory);
    let mut options = Options::new(directory.join(RECORDINGS));
    options.run = Some("run".to_owned());
    let is_recorded = how.starts_with("recorded");
    if is_recorded {
        options.set_from_env().expect("what trace-cli record says");
    }
    options.buffer_bytes = 128 << 10;
    options.page_bytes = Some(4096);
    options.calibration_period = std::time::Duration::from_secs(60);
    if how == "overwrite" {
        options.overflow = Overflow::Overwrite;
    }
    let Ok(recorder) = Recorder::start(&options) else {
        return;
    };
    let raise = |name: &str, from: u64, to: u64| {
        let spec = EventTypeSpec::new(name).element("number");
        let mark = recorder
            .add_event_type::<(u64,)>(&spec)
            .expect("an event type");
        for number in from..to {
            recorder.raise(&mark, (number,));
            acknowledged.tell(TOLD, number + 1);
        }
    };
    if is_recorded {
        record::call_a_function(&recorder);
    }
    raise("mark", 0, EVENTS / 2);
    let snapshot = |number: usize| {
        if how == "overwrite" {
            let outcome = recorder.snapshot();
            acknowledged.tell(SNAPSHOTS + number, 1 + u64::from(outcome.is_err()));
        }
    };
    snapshot(0);
    std::thread::scope(|scope| {
        scope.spawn(|| raise("mark of a thread", EVENTS / 2, EVENTS));
    });
    snapshot(1);
    if how == "plain" || how == record::KILLED {
        // SAFETY: ends the process.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let status = recorder.finish();
    // A function is entered and left.
    let more = if is_recorded { 2 } else { 0 };
    assert_eq!(status.raised, EVENTS + more);
    acknowledged.tell(FINISHED, u64::from(status.storage_failure.is_some()) + 1);
    acknowledged.tell(DROPPED, status.dropped);
    acknowledged.tell(NOT_KILL_SAFE, status.not_kill_safe.is_some().into());
}

/// Storage calls of the child that records.
fn calls_of_child(how: &str) -> Vec<String> {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut command = child(how, scratch.path());
    let (output, calls) = logged(&mut command, "count 0", &scratch.path().join(RECORDINGS));
    assert!(output.status.success(), "{}", said(&output));
    assert!(calls.len() > 8, "{calls:?}");
    calls
}

/// What is there, against what was acknowledged: all of it, recorded or counted.
fn check_recording(recordings: &Path, acknowledged: &SharedPage, when: &str) {
    let told = acknowledged.get(TOLD);
    let opened = Reader::open(recordings);
    let Ok(opened) = opened else {
        assert_eq!(
            told, 0,
            "{when}: nothing can be read, and {told} events were acknowledged"
        );
        return;
    };
    drop(opened);
    let sums = sums_by_type(recordings);
    let marks = sums.iter().filter(|(name, _)| name.starts_with("mark"));
    let (mut raised, mut explained) = (0, 0);
    for (_, sum) in marks {
        raised += sum.raised;
        explained += sum.recorded + sum.dropped;
        assert_eq!((sum.skipped, sum.truncated), (0, 0), "{when}");
    }
    assert_eq!(raised, explained, "{when}");
    assert!(
        told <= raised && raised <= told + 1,
        "{when}: {told} acknowledged, {raised} found"
    );
}

/// Checks that all snapshots are complete, and that those that were reported as written exist. Returns the number of
/// unfinished files.
fn check_snapshots(recordings: &Path, acknowledged: &SharedPage, when: &str) -> usize {
    let mut leftovers = 0;
    for number in 0..2 {
        let directory = recordings.join(format!("snapshot-{}", number + 1));
        let files = fs::read_dir(&directory).into_iter().flatten();
        let files = files.map(|file| file.expect("a file").path());
        let (left, named): (Vec<_>, Vec<_>) = files.partition(|path| is_leftover(path));
        leftovers += left.len();
        match acknowledged.get(SNAPSHOTS + number) {
            1 => assert_eq!(named.len(), 1, "{when}: snapshot {number} is there"),
            2 => assert!(
                named.is_empty(),
                "{when}: snapshot {number} was not written"
            ),
            _ => {}
        }
        for path in named {
            let snapshot = InputRecording::open(&path).expect("a snapshot").recording;
            let is_whole = snapshot.has_footer && snapshot.problems.is_empty();
            assert!(is_whole, "{when}: {}", path.display());
            assert!(sums_by_type(&directory)["mark"].raised > 0, "{when}");
        }
    }
    leftovers
}

fn main_recording(recordings: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(recordings)
        .ok()?
        .map(|file| file.expect("a file").path());
    files.find(|path| path.extension().is_some_and(|e| e == "annals"))
}

#[test]
fn a_recorder_that_is_killed_at_any_storage_call_loses_nothing_that_was_acknowledged() {
    let (mut kills, mut leftovers) = (0, 0);
    for policy in ["finish", "overwrite"] {
        // The number of writes varies with the timing of threads: the loop does not stop at the number that was
        // counted.
        for number in 1.. {
            let mut was_killed = false;
            for how in ["kill", "tear"] {
                let scratch = tempfile::tempdir().expect("a directory");
                let acknowledged = open_page(scratch.path());
                let recordings = scratch.path().join(RECORDINGS);
                let mut command = child(policy, scratch.path());
                let ended = faulty(&mut command, &format!("{how} {number}"), &recordings);
                let when = format!("{policy}, {how} at {number}");
                was_killed |= ended.status.code().is_none();
                kills += u64::from(ended.status.code().is_none());
                check_recording(&recordings, &acknowledged, &when);
                let left = check_snapshots(&recordings, &acknowledged, &when);
                if let Some(path) = main_recording(&recordings)
                    && let Ok(input) = InputRecording::open(&path)
                {
                    recover(&input, None).expect("a recovery");
                    check_recording(&recordings, &acknowledged, &format!("{when}, recovered"));
                }
                if left != 0 {
                    // An unfinished file disturbs neither readers nor the next program's snapshots.
                    leftovers += left;
                    let next = child(policy, scratch.path()).output().expect("a child");
                    assert!(next.status.success(), "{when}: {}", said(&next));
                    assert_eq!(acknowledged.get(SNAPSHOTS), 1, "{when}");
                    assert_eq!(acknowledged.get(SNAPSHOTS + 1), 1, "{when}");
                    for number in 1..=2 {
                        let snapshot = recordings.join(format!("snapshot-{number}"));
                        assert!(sums_by_type(&snapshot)["mark"].raised > 0, "{when}");
                    }
                }
            }
            if !was_killed {
                assert!(number > 8, "the recorder writes");
                break;
            }
        }
    }
    assert!(leftovers > 10, "snapshots are met in the making");
    eprintln!("{kills} kills");
}

#[test]
fn a_recorder_whose_storage_fails_at_any_call_counts_what_it_cannot_write() {
    let (mut failures, mut unwritten_snapshots) = (0, 0);
    for (policy, how) in [
        ("finish", "EIO"),
        ("finish", "full"),
        ("overwrite", "full"),
        ("overwrite", "EIO"),
    ] {
        let calls = calls_of_child(policy).len();
        for number in 1..=calls {
            let scratch = tempfile::tempdir().expect("a directory");
            let acknowledged = open_page(scratch.path());
            let recordings = scratch.path().join(RECORDINGS);
            let mut command = child(policy, scratch.path());
            let ended = faulty(&mut command, &format!("{how} {number}"), &recordings);
            let when = format!("{policy}, {how} at {number}");
            // Whatever the storage does, the program continues.
            assert!(ended.status.success(), "{when}: {}", said(&ended));
            failures += 1;
            let left = check_snapshots(&recordings, &acknowledged, &when);
            assert_eq!(left, 0, "{when}: nothing is left of a snapshot that failed");
            let unwritten = (0..2).filter(|n| acknowledged.get(SNAPSHOTS + n) == 2);
            let unwritten = unwritten.count();
            assert!(
                how == "full" || unwritten < 2,
                "{when}: the next one is written"
            );
            unwritten_snapshots += unwritten;
            if acknowledged.get(TOLD) == 0 {
                // It could not start, and left nothing.
                assert!(main_recording(&recordings).is_none(), "{when}");
                continue;
            }
            assert_eq!(acknowledged.get(TOLD), EVENTS, "{when}");
            if acknowledged.get(NOT_KILL_SAFE) != 0 && acknowledged.get(FINISHED) == 2 {
                // No live file, and no room for the recording: the recorder said both, and counts in its status.
                assert!(acknowledged.get(DROPPED) > 0, "{when}");
                continue;
            }
            check_recording(&recordings, &acknowledged, &when);
        }
    }
    assert!(unwritten_snapshots > 10, "snapshots fail, too");
    eprintln!("{failures} failures");
}

#[test]
fn short_writes_and_interrupted_calls_cost_a_recorder_nothing() {
    for policy in ["finish", "overwrite"] {
        let scratch = tempfile::tempdir().expect("a directory");
        let acknowledged = open_page(scratch.path());
        let recordings = scratch.path().join(RECORDINGS);
        let mut command = child(policy, scratch.path());
        let ended = faulty(&mut command, "short 1", &recordings);
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(acknowledged.get(TOLD), EVENTS);
        assert_eq!(
            acknowledged.get(FINISHED),
            1,
            "the recorder finished, and its storage did not fail"
        );
        check_recording(&recordings, &acknowledged, policy);
        check_snapshots(&recordings, &acknowledged, policy);
    }
}
