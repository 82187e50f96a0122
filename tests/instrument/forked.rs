//! Children made by fork and clone: counted, or recorded.

use super::*;

/// The program, compiled.
fn forked() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("program");
    compile_c("forked.c", &program, &["-pthread", "-ldl"]);
    scratch
}

/// What a run of the program has recorded.
struct Recorded {
    /// What `record` reports.
    said: String,
    code: Option<i32>,
    /// Calls of `work` that the processes have counted.
    counted: u64,
    /// Calls of `work` that are recorded.
    calls: u64,
    /// What `info` reports.
    info: Value,
}

impl Recorded {
    /// `trace-cli record -- program ARGUMENTS`, with this value of `ANNALS_FORK`.
    fn new(scratch: &Path, arguments: &[&str], fork: &str) -> Self {
        let directory = scratch.join(format!("{}-{fork}", arguments.join("-")));
        let mut record = trace_cli();
        record.arg("record").arg("-o").arg(&directory).arg("--");
        record.arg("env").arg(format!("ANNALS_FORK={fork}"));
        record.arg(scratch.join("program")).args(arguments);
        let ran = run(&mut record);
        let said = text_of(&ran.stderr);
        let counted = text_of(&ran.stdout).trim().parse();
        let work = regions(&directory, &["--region", "work"]);
        let info = output(trace_cli().arg("info").arg("--json").arg(&directory));
        Self {
            code: ran.status.code(),
            counted: counted.unwrap_or_else(|_| panic!("{arguments:?}: {said}")),
            calls: work[0]["calls"].as_u64().expect("a number"),
            info: serde_json::from_str(&info).expect("JSON"),
            said,
        }
    }

    fn processes(&self) -> &[Value] {
        self.info["processes"].as_array().expect("processes")
    }
}

#[test]
fn children_made_by_fork_that_call_functions_are_counted_however_the_parent_ends() {
    let scratch = forked();
    for (index, way) in [&["two-of-three"][..], &["two-of-three", "_exit"]]
        .iter()
        .enumerate()
    {
        let directory = scratch.path().join(format!("run-{index}"));
        let mut record = trace_cli();
        record.arg("record").arg("-o").arg(&directory).arg("--");
        record.arg(scratch.path().join("program")).args(*way);
        let ran = run(&mut record);
        let expected = "2 children made by fork are not recorded (ANNALS_FORK=follow records them)";
        assert!(text_of(&ran.stderr).contains(expected), "{ran:?}");
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        for command in ["info", "dropped"] {
            let said = output(trace_cli().arg(command).arg(&directory));
            assert!(said.contains(expected), "{command}: {said}");
        }
    }
}

#[test]
fn all_calls_of_children_that_are_followed_are_recorded_however_they_begin_and_end() {
    let scratch = forked();
    // How the children are made, and how many there are.
    let ways = [
        ("exit", 1),
        ("short", 1),
        ("_exit", 1),
        ("slow", 1),
        ("killed", 1),
        ("daemon", 1),
        ("clone", 1),
        ("short-clone", 1),
        ("thread", 1),
        ("chain", 5),
        ("nested", 1),
    ];
    for (way, children) in ways {
        let recorded = Recorded::new(scratch.path(), &[way], "follow");
        assert_eq!(recorded.code, Some(3), "{way}: {}", recorded.said);
        assert_eq!(recorded.calls, recorded.counted, "{way}: {}", recorded.said);
        assert!(
            !recorded.said.contains("made by fork"),
            "{way}: {}",
            recorded.said
        );
        let processes = recorded.processes();
        assert_eq!(processes.len(), children + 1, "{way}: {processes:?}");
        let is_child = |process: &&Value| process["properties"]["forked-from"].is_string();
        assert_eq!(processes.iter().filter(is_child).count(), children, "{way}");
        let parent = processes.iter().find(|process| !is_child(process));
        let parent = parent.expect("a parent")["pid"].to_string();
        let is_of_parent = |process: &&Value| process["properties"]["forked-from"] == *parent;
        assert_eq!(processes.iter().filter(is_of_parent).count(), 1, "{way}");
    }
}

#[test]
fn children_that_cannot_be_followed_are_counted() {
    let scratch = forked();
    // They end or call exec too soon; or another thread may hold a lock of the C library for good.
    for way in ["exec", "short-_exit", "locks-clone"] {
        let recorded = Recorded::new(scratch.path(), &[way], "follow");
        assert_eq!(recorded.code, Some(3), "{way}: {}", recorded.said);
        assert_eq!(recorded.calls, recorded.counted, "{way}: {}", recorded.said);
        let expected = "1 child made by fork is not recorded: it could not begin to record";
        assert!(recorded.said.contains(expected), "{way}: {}", recorded.said);
        assert_eq!(recorded.processes().len(), 1, "{way}");
    }
}

#[test]
fn no_recorder_starts_in_a_signal_handler_and_what_cannot_be_kept_is_counted() {
    let scratch = forked();
    let recorded = Recorded::new(scratch.path(), &["handler"], "follow");
    assert_eq!(recorded.code, Some(3), "{}", recorded.said);
    assert_eq!(recorded.processes().len(), 2, "{}", recorded.said);
    // 1001 events are kept; the child then makes 1000 calls outside of the handler.
    assert_eq!(recorded.counted, 200 + 3000 + 1000);
    assert_eq!(recorded.calls, 200 + 501 + 1000);
    let number = |key: &str| recorded.info[key].as_u64().expect("a number");
    let sum = number("events") + number("dropped");
    // With the parent's `main`.
    assert_eq!(sum, 2 * recorded.counted + 2, "{}", recorded.info);
}

#[test]
fn children_of_a_parent_whose_other_threads_hold_locks_are_recorded_and_end() {
    let scratch = forked();
    let recorded = Recorded::new(scratch.path(), &["locks"], "follow");
    assert_eq!(recorded.code, Some(3), "{}", recorded.said);
    assert_eq!(recorded.counted, 200 + 50 * 1000);
    assert_eq!(recorded.calls, recorded.counted, "{}", recorded.said);
    assert!(!recorded.said.contains("made by fork"), "{}", recorded.said);
    assert_eq!(recorded.processes().len(), 51);
}

#[test]
fn a_merge_that_a_child_outlives_says_so_and_can_be_made_again() {
    let scratch = forked();
    let directory = scratch.path().join("run");
    let mut record = trace_cli();
    record
        .arg("record")
        .arg("--merge")
        .arg("-o")
        .arg(&directory);
    record
        .arg("--")
        .arg(scratch.path().join("program"))
        .arg("left");
    // Ends when the child has ended, which has the same standard output.
    let ran = run(record.env("ANNALS_FORK", "follow"));
    let said = text_of(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("still runs"), "{said}");
    let trace = directory.with_extension("annals");
    assert_eq!(regions(&trace, &["--region", "work"])[0]["calls"], 200);
    output(Command::new(prefix().join("bin/trace-merge")).arg(&directory));
    assert_eq!(regions(&trace, &["--region", "work"])[0]["calls"], 1200);
}
