//! Committed events and drop counts survive when a process is killed with SIGKILL.
//!
//! The child records numbered events from several threads, and acknowledges each in a shared page after the call has
//! returned. `ANNALS_KILLS` sets the number of kills (default 300).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use annals_format::{BlockKind, Cause, SYNC, Value};
use annals_merger::{InputRecording, MergeOptions, Reader, Window, no_progress, recover, verify};
use annals_recorder::{EventTypeSpec, Options, Overflow, Recorder};
use annals_test_support::page::SharedPage;

const THREADS: usize = 3;
const CHILD: &str = "ANNALS_KILLED_CHILD";

/// Acknowledgements: a word for each thread, each on a separate cache line.
fn word_of(thread: usize) -> usize {
    8 * thread
}

/// Not a separate test: what the killed process runs.
/// Returns `trace-merge`.
fn trace_merge() -> &'static str {
    annals_test_support::programs::trace_merge(
        env!("CARGO_BIN_EXE_trace-cli"),
        env!("CARGO_TARGET_TMPDIR"),
    )
}

#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let (policy, directory) = task.split_once(' ').expect("a policy and a directory");
    let directory = Path::new(directory);
    let acknowledged = SharedPage::open(&directory.join("acknowledged"));
    let mut options = Options::new(directory.join("recordings"));
    options.rank = Some(0);
    options.rank_count = Some(1);
    // Small pages and few of them: many switches, and drops.
    options.buffer_bytes = 400 << 10;
    options.page_bytes = Some(4096);
    if policy == "overwrite" {
        options.overflow = Overflow::Overwrite;
    }
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = EventTypeSpec::new("mark")
        .element("thread")
        .element("number");
    let mark = recorder
        .add_event_type::<(u32, u64)>(&mark)
        .expect("an event type");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (recorder, acknowledged) = (&recorder, &acknowledged);
            scope.spawn(move || {
                for number in 0.. {
                    recorder.raise(&mark, (thread as u32, number));
                    acknowledged.tell(word_of(thread), number + 1);
                }
            });
        }
    });
}

fn wait_for_events(acknowledged: &SharedPage) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while (0..THREADS).any(|thread| acknowledged.get(word_of(thread)) == 0) {
        assert!(Instant::now() < deadline, "the child records");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let kills = std::env::var("ANNALS_KILLS").ok();
    let kills: u64 = kills.and_then(|text| text.parse().ok()).unwrap_or(300);
    let mut random = 0x2545_f491_4f6c_dd1d_u64 ^ u64::from(std::process::id());
    let (mut runs_with_drops, mut runs_with_index_blocks) = (0, 0);
    for kill in 0..kills {
        let scratch = tempfile::tempdir().expect("a directory");
        let acknowledged = SharedPage::open(&scratch.path().join("acknowledged"));
        // One in four is a flight recorder.
        let policy = if kill % 4 == 3 { "overwrite" } else { "drop" };
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, format!("{policy} {}", scratch.path().display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a child");
        wait_for_events(&acknowledged);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_micros(random % 12_000));
        child.kill().expect("the child is killed");
        child.wait().expect("the child is gone");
        let known = std::array::from_fn(|thread| acknowledged.get(word_of(thread)));
        let recordings = scratch.path().join("recordings");
        runs_with_index_blocks += u64::from(has_index_block(&recordings));
        runs_with_drops += u64::from(check(&recordings, known));
        check_recovery(&recordings, known);
        if kill % 20 == 0 {
            check_merge(&recordings);
        }
    }
    assert!(
        runs_with_drops > kills / 10,
        "drops are part of what is tested"
    );
    assert!(
        runs_with_index_blocks > kills / 10,
        "so are recordings with index blocks: {runs_with_index_blocks} of {kills}"
    );
}

/// Returns whether the recording has a block with a part of its index.
fn has_index_block(recordings: &Path) -> bool {
    let files = std::fs::read_dir(recordings).expect("the recordings");
    let mut paths = files.map(|file| file.expect("a file").path());
    let recording = paths.find(|path| path.extension().is_some_and(|name| name == "annals"));
    let bytes = std::fs::read(recording.expect("the recording")).expect("the recording");
    let begin = [&SYNC[..], &[BlockKind::Index.code()]].concat();
    bytes.windows(begin.len()).any(|window| window == begin)
}

/// Compares what is left with what was acknowledged; returns whether there were drops.
fn check(recordings: &Path, acknowledged: [u64; THREADS]) -> bool {
    let opened = Reader::open(recordings).expect("the recording is readable");
    let d = opened.definitions();
    let mut last: [Option<u64>; THREADS] = [None; THREADS];
    let mut recovered = [0_u64; THREADS];
    let mut streams = BTreeMap::new();
    let mut last_ns = i64::MIN;
    let outcome = opened
        .for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
            for row in chunk.rows() {
                let (Value::U32(thread), Value::U64(number)) = (row.value(0), row.value(1)) else {
                    panic!("the elements of a mark");
                };
                let thread = thread as usize;
                assert!(
                    last[thread].is_none_or(|last| last < number),
                    "in order, nothing twice"
                );
                last[thread] = Some(number);
                recovered[thread] += 1;
                streams.insert(row.stream(), thread);
                assert!(row.time_ns() >= last_ns, "times ascend");
                last_ns = row.time_ns();
            }
            Ok(())
        })
        .expect("the recording is readable");
    let ends: Vec<_> = d
        .process_ends
        .values()
        .map(|end| end.ended.name())
        .collect();
    assert_eq!(ends, ["killed"]);
    assert!(outcome.complete, "nothing was skipped or truncated");
    for row in outcome.totals.iter().flat_map(|totals| &totals.rows) {
        assert!(row.is_balanced(), "{row:?}");
        assert_eq!((row.skipped, row.truncated), (0, 0));
    }
    let mut dropped = [0_u64; THREADS];
    for loss in &outcome.losses {
        let causes = [Cause::BufferFull, Cause::Overwritten];
        assert!(causes.contains(&loss.cause), "{loss:?}");
        assert!(!loss.is_lower_bound);
        // A stream of which every event was dropped does not say whose it was.
        if let Some(thread) = streams.get(&loss.stream) {
            dropped[*thread] += loss.count;
        }
    }
    for thread in 0..THREADS {
        if !streams.values().any(|known| *known == thread) {
            continue;
        }
        let explained = recovered[thread] + dropped[thread];
        assert!(
            acknowledged[thread] <= explained && explained <= acknowledged[thread] + 1,
            "thread {thread}: acknowledged {}, recovered {}, dropped {}",
            acknowledged[thread],
            recovered[thread],
            dropped[thread]
        );
    }
    let sum: u64 = outcome.losses.iter().map(|loss| loss.count).sum();
    let explained = recovered.iter().sum::<u64>() + sum;
    let known: u64 = acknowledged.iter().sum();
    assert!(known <= explained && explained <= known + THREADS as u64);
    sum != 0
}

/// One clean recording takes the place of recording and live file: with the same events, counts and losses.
fn check_recovery(recordings: &Path, acknowledged: [u64; THREADS]) {
    let files = || {
        let files = std::fs::read_dir(recordings).expect("the recordings");
        let mut files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        files
    };
    let trace = recordings.with_file_name("before.annals");
    let inputs = [recordings.to_owned()];
    let merged = |trace: &Path| {
        let plan = MergeOptions::new().plan(&inputs).expect("a recording");
        plan.write_trace(trace, no_progress).expect("a trace")
    };
    let before = merged(&trace);
    let before_files = files();
    let input = InputRecording::open(&before_files[0]).expect("the recording");
    let recovered = recover(&input, None)
        .expect("a recovery")
        .expect("a live file");
    assert_eq!(recovered.path, before_files[0]);
    assert_eq!(files(), before_files[..1], "one clean recording is left");
    let again = InputRecording::open(&recovered.path).expect("the recording");
    assert!(again.recording.has_footer && again.live_path.is_none());
    assert_eq!(recover(&again, None).expect("nothing to do"), None);
    check(recordings, acknowledged);
    let verified = verify(&trace, &inputs).expect("a trace");
    assert!(verified.holds(), "{:?}", verified.mismatches);
    let after = merged(&recordings.with_file_name("after.annals"));
    assert_eq!(after.losses, before.losses);
    assert_eq!(after.report.inputs[0].ended.name(), "killed");
    assert!(
        after
            .report
            .streams
            .iter()
            .all(|stream| stream.miscounted == 0)
    );
}

/// `trace-merge` takes it in and says how the rank ended.
fn check_merge(recordings: &Path) {
    let output = recordings.with_file_name("run.annals");
    let result = Command::new(trace_merge())
        .arg(recordings)
        .arg("-o")
        .arg(&output)
        .args(["--report", "-"])
        .output()
        .expect("trace-merge runs");
    let said = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.status.code(), Some(3), "{said}");
    assert!(said.contains("was killed"), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&result.stdout).expect("a report");
    assert_eq!(report["inputs"][0]["ended"], "killed");
    let opened = Reader::open(&output).expect("a trace");
    let outcome = opened.summary().expect("a trace");
    let present = annals_merger::Sums::of(&outcome.totals).present();
    assert_eq!(report["totals"]["recorded"], present);
}
