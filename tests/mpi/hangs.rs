//! Processes that hang: their live files show what they wait for, even after they were killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Flavour, flavours, prefix};

/// An event: its name, and elements as text.
type ExpectedEvent = (&'static str, &'static [(&'static str, &'static str)]);

/// The expected last events of the rank that waits.
type Expected = &'static [ExpectedEvent];

const COMMUNICATOR: (&str, &str) = ("communicator", "MPI_COMM_WORLD/dup.0 {0-2}");

/// Expected events, by function that hangs.
const CASES: [(&str, Expected); 8] = [
    (
        "MPI_Recv",
        &[(
            "mpi.blocking_receive_start",
            &[
                COMMUNICATOR,
                ("peer", "1"),
                ("tag", "11"),
                ("sequence", "0"),
            ],
        )],
    ),
    (
        "MPI_Ssend",
        &[(
            "mpi.send",
            &[
                COMMUNICATOR,
                ("peer", "1"),
                ("tag", "12"),
                ("sequence", "0"),
            ],
        )],
    ),
    ("MPI_Wait", &[("mpi.wait", &[("count", "1")])]),
    (
        "MPI_Waitall",
        &[
            ("mpi.wait", &[("count", "2")]),
            ("mpi.wait", &[("count", "2")]),
        ],
    ),
    (
        "MPI_Probe",
        &[(
            "mpi.blocking_receive_start",
            &[COMMUNICATOR, ("peer", "1"), ("tag", "15")],
        )],
    ),
    (
        "MPI_Barrier",
        &[(
            "mpi.collective_begin",
            &[COMMUNICATOR, ("operation", "0"), ("sequence", "3")],
        )],
    ),
    (
        "MPI_Allreduce",
        &[(
            "mpi.collective_begin",
            &[COMMUNICATOR, ("operation", "11"), ("sequence", "3")],
        )],
    ),
    (
        "MPI_Win_fence",
        &[(
            "mpi.window_sync",
            &[
                COMMUNICATOR,
                ("window", "MPI_COMM_WORLD/dup.0 {0-2}/window.0"),
                ("sequence", "1"),
            ],
        )],
    ),
];

/// A job that hangs. Its processes are killed when it is dropped.
struct Job {
    launcher: Child,
    program: PathBuf,
}

impl Job {
    /// Returns the processes of the program, including those that launched it.
    fn processes(&self) -> Vec<String> {
        let name = self.program.as_os_str().as_encoded_bytes();
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let ours = all.filter(|process| {
            let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            arguments.windows(name.len()).any(|part| part == name)
        });
        ours.map(|process| process.file_name().to_string_lossy().into_owned())
            .collect()
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.launcher.try_wait(), Ok(Some(_)))
    }

    fn kill(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let processes = self.processes();
            if processes.is_empty() || Instant::now() > deadline {
                break;
            }
            let mut kill = Command::new("kill");
            let kill = kill.arg("-KILL").args(processes).stderr(Stdio::null());
            let _ = kill.status();
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.launcher.wait();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(flavour: &Flavour, program: &Path, function: &str, directory: &Path) -> Child {
    let preload = prefix().join("lib/libannals_mpi.so");
    let mut command = flavour.launch(&preload.to_string_lossy());
    command
        .env("ANNALS_DIR", directory)
        .arg(program)
        .arg(function);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a launcher")
}

/// Returns the events of rank 0, or none as long as its recording does not know its rank.
fn events(directory: &Path) -> Vec<Value> {
    let mut print = Command::new(prefix().join("bin/trace-cli"));
    let print = print
        .args(["print", "--rank", "0", "--json"])
        .arg(directory);
    let printed = print.output().expect("trace-cli runs");
    let text = String::from_utf8_lossy(&printed.stdout);
    let lines = text.lines().map(serde_json::from_str);
    lines.map(|line| line.expect("JSON")).collect()
}

/// Returns whether the last events are the enter of the function and the expected events.
fn shows(events: &[Value], function: &str, expected: Expected) -> bool {
    let Some((enter, last)) = events
        .len()
        .checked_sub(expected.len() + 1)
        .and_then(|start| events[start..].split_first())
    else {
        return false;
    };
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let has = |event: &Value, expected: &ExpectedEvent| {
        let (name, elements) = expected;
        let mut elements = elements.iter();
        event["event"] == *name
            && elements.all(|(element, value)| text(&event["elements"][*element]) == *value)
    };
    let region = text(&enter["elements"]["region"]);
    region == function
        && last
            .iter()
            .zip(expected)
            .all(|(event, expected)| has(event, expected))
}

#[test]
fn a_rank_that_hangs_shows_what_it_waits_for_also_after_it_was_killed() {
    let flavours = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    for mut flavour in flavours {
        flavour.processes = 3;
        let program = flavour.program("hang.c");
        for (function, expected) in CASES {
            let what = format!("{} {function}", flavour.name);
            let directory = flavour.scratch().join(format!("hang-{function}"));
            let _ = std::fs::remove_dir_all(&directory);
            std::fs::create_dir_all(&directory).expect("a directory");
            let launcher = launch(&flavour, &program, function, &directory);
            let program = program.clone();
            let mut job = Job { launcher, program };
            let deadline = Instant::now() + Duration::from_secs(90);
            let shown = loop {
                std::thread::sleep(Duration::from_millis(200));
                if job.has_ended() {
                    // Open MPI's server does not always start on a busy machine, and says so.
                    job.launcher = launch(&flavour, &job.program, function, &directory);
                }
                let events = events(&directory);
                if shows(&events, function, expected) || Instant::now() > deadline {
                    break events;
                }
            };
            let last =
                |events: &[Value]| format!("{:?}", events.iter().rev().take(4).collect::<Vec<_>>());
            assert!(
                shows(&shown, function, expected),
                "{what}: {}",
                last(&shown)
            );
            job.kill();
            let left = events(&directory);
            assert!(
                shows(&left, function, expected),
                "{what}, killed: {}",
                last(&left)
            );
        }
    }
}
