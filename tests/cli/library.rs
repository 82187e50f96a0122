//! The library's examples, run on a trace and on recordings, say what the commands say.

use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::CompressionLevel;
use annals_merger::{Analysis, Event, Pass, SliceLength};

/// The times of all events.
struct Times(Vec<i64>);

impl Analysis for Times {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Short;

    fn event(&mut self, event: &Event<'_>) {
        self.0.push(event.time());
    }

    fn merge(&mut self, mut later: Self) {
        self.0.append(&mut later.0);
    }
}

/// Returns the path of an example that `cargo build --examples` has built, relative to this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let target = test
        .parent()
        .and_then(Path::parent)
        .expect("a target directory");
    let path = target.join("examples").join(name);
    assert!(
        path.exists(),
        "{}: run `cargo build --workspace --examples`",
        path.display()
    );
    path
}

fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_examples_of_the_library_print_events_and_calls_and_merge() {
    let (scratch, recording) = super::trace::nested_file();
    let trace = scratch.path().join("merged.annals");
    let merged = lines(Command::new(example("merge")).arg(&trace).arg(&recording));
    assert!(merged[0].contains("9 events"), "{merged:?}");
    for input in [&recording, &trace] {
        let printed = lines(Command::new(example("print_events")).arg(input));
        assert_eq!(printed.len(), 10, "{printed:?}");
        assert_eq!(printed[0], "0 ns, rank 0, thread 0: enter region=0");
        assert_eq!(printed[7], "5 events lost: buffer-full");
        assert_eq!(printed[8], "90000 ns, rank 0, thread 0: mark number=7");
        let calls = lines(Command::new(example("longest_calls")).arg(input).arg("s*"));
        let expected = [
            "solve: 30000 ns from 40000 ns, rank 0, thread 0",
            "solve: 20000 ns from 10000 ns, rank 0, thread 0",
        ];
        assert_eq!(calls, expected);
    }
    let wrong = Command::new(example("print_events"))
        .arg(scratch.path().join("none"))
        .output();
    assert!(!wrong.expect("it runs").status.success());
}

#[test]
fn events_of_a_query_are_those_of_its_names_window_and_elements() {
    use annals_merger::{
        EventFilter, MergeOptions, Query, ReadOptions, Reader, Value, Window, no_progress,
        regions_like,
    };
    use std::ops::ControlFlow;

    let directory = tempfile::tempdir().expect("a directory");
    for rank in 0..2 {
        super::trace::nested(rank).write(directory.path(), CompressionLevel::None);
    }
    let reader = Reader::open(directory.path()).expect("recordings");
    let count = |query: &Query| {
        let mut count = 0;
        let summary = reader.for_each_event(query, |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert!(summary.expect("they are read").is_some());
        count
    };
    assert_eq!(count(&Query::new()), 18);
    let of_rank = EventFilter {
        ranks: Some("1".parse().expect("a rank")),
        event_types: Some("enter".parse().expect("a glob")),
        ..EventFilter::default()
    };
    let mut query = Query::select(&of_rank, reader.definitions()).expect("a query");
    assert_eq!(count(&query), 4);
    query.set_regions(
        regions_like(&"solve".parse().expect("a glob"), reader.definitions()).expect("regions"),
    );
    assert_eq!(count(&query), 2);
    query.set_window(Window {
        from_ns: 20_000,
        to_ns: 60_000,
    });
    assert_eq!(count(&query), 1);

    // A window's calls are those that overlap it: `main`, which is open all the time, too.
    let mut in_window = Query::new();
    in_window.set_window(Window {
        from_ns: 12_000,
        to_ns: 15_000,
    });
    let mut calls = Vec::new();
    let summary = reader.for_each_call(&in_window, |call| {
        calls.push((call.name(), call.begin, call.depth));
        ControlFlow::Continue(())
    });
    assert!(summary.expect("they are read").is_some());
    calls.sort();
    let expected = [
        ("main", 0, 0),
        ("main", 0, 0),
        ("solve", 10_000, 1),
        ("solve", 10_000, 1),
    ];
    let expected = expected.map(|(name, begin, depth)| (name.to_owned(), begin, depth));
    assert_eq!(calls, expected);

    // States of slices add up to the same, on a trace too, with any number of threads.
    let trace = directory.path().join("trace.annals");
    let mut options = MergeOptions::new();
    options.chunk_events = 1;
    let plan = options
        .plan(&[directory.path().to_owned()])
        .expect("a plan");
    plan.write_trace(&trace, no_progress).expect("a trace");
    let mut results = Vec::new();
    for (input, jobs) in [(directory.path(), 1), (&trace, 1), (&trace, 3)] {
        let mut options = ReadOptions::new();
        options.jobs = jobs;
        let reader = Reader::open_with(&[input.to_owned()], options).expect("recordings");
        let read = reader.run(&Query::new(), |_| Times(Vec::new()));
        let (Times(times), summary) = read.expect("they are read");
        assert_eq!((times.len(), summary.losses.len()), (18, 2));
        results.push(times);
    }
    assert!(
        results
            .iter()
            .all(|times| times.is_sorted() && *times == results[0])
    );

    // An element is absent from event types that have none of the name; a callback stops the pass.
    let mut query = Query::new();
    let number = query.element("number");
    let mut found = Vec::new();
    let stopped = reader.for_each_event(&query, |event| {
        let value = event.value(number);
        if value != Value::Absent {
            found.push((event.rank(), event.name().to_owned(), value.as_integer()));
        }
        match found.len() {
            1 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    assert!(stopped.expect("they are read").is_none());
    assert_eq!(found, [(0, "mark".to_owned(), Some(7))]);
}

#[test]
fn a_progress_callback_stops_a_merge_or_a_verification_and_nothing_is_left() {
    use annals_export::otf2::{ArchiveOptions, write_archive};
    use annals_merger::{MergeError, MergeOptions, Query, VerifyOptions, no_progress};
    use std::ops::ControlFlow;

    let (scratch, recording) = super::trace::nested_file();
    let stop = |_| ControlFlow::Break(());
    let plan = MergeOptions::new().plan(&[recording]).expect("a plan");
    let out = scratch.path().join("out");
    std::fs::create_dir(&out).expect("a directory");
    let trace = out.join("run.annals");
    let stopped = plan.write_trace(&trace, stop).map(|_| ());
    assert!(matches!(stopped, Err(MergeError::Stopped)), "{stopped:?}");
    let left = || std::fs::read_dir(&out).expect("the directory").count();
    assert_eq!(left(), 0, "no file, temporary or not");
    plan.write_trace(&trace, no_progress).expect("a trace");
    let (archive, all) = (out.join("run.otf2"), Query::new());
    let reader = plan.into_reader();
    let stopped = write_archive(&reader, &all, &archive, ArchiveOptions::default(), stop);
    assert!(matches!(stopped, Err(MergeError::Stopped)), "{stopped:?}");
    assert_eq!(left(), 1, "only the trace");
    let stopped = VerifyOptions::new().verify(&trace, stop);
    assert!(matches!(stopped, Err(MergeError::Stopped)));
    let verified = VerifyOptions::new().verify(&trace, no_progress);
    assert!(verified.expect("a trace").holds());
}
