//! Jobs that hang, are slow or end badly: `trace-cli stuck` says which rank waits for which one, while they are there and after they were killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Flavour, flavours, prefix, text_of};

/// A way to hang or to end: see `stuck.c`.
struct Case {
    way: &'static str,
    /// What the first sentence contains.
    says: &'static [&'static str],
    /// Whether ranks wait that cannot go on.
    is_stuck: bool,
    /// Whether Open MPI hangs in this way as well, in CI.
    is_short: bool,
}

const fn case(way: &'static str, says: &'static [&'static str], is_stuck: bool) -> Case {
    Case {
        way,
        says,
        is_stuck,
        is_short: false,
    }
}

const OTHERS_IN_BARRIER: &str =
    "anks 0, 1 and 3 wait for it in MPI_Barrier, their 6th collective on MPI_COMM_WORLD";
const IN_BARRIER: &str = "MPI_Barrier, its 6th collective on MPI_COMM_WORLD";
const MISSES: &str = "do not match";
const OTHER: &str = "collective on MPI_COMM_WORLD/dup.0 {0-3}";

/// Ways to hang. The sentences are those of a job that is there; of one that was killed, waits are in the past.
const HANGS: [Case; 19] = [
    case(
        "loop",
        &["Rank 2 is outside of MPI", OTHERS_IN_BARRIER],
        false,
    ),
    case(
        "sleep",
        &["Rank 2 is outside of MPI", OTHERS_IN_BARRIER],
        false,
    ),
    case(
        "order",
        &[
            "rank 2 is in MPI_Allreduce, its 6th collective on MPI_COMM_WORLD",
            "anks 0, 1 and 3 are in MPI_Barrier, their 6th",
            MISSES,
        ],
        true,
    ),
    case(
        "root",
        &[
            "root 0",
            "root 2",
            "MPI_Bcast, ",
            "6th collective on MPI_COMM_WORLD",
            MISSES,
        ],
        true,
    ),
    case(
        "communicator",
        &[
            "Ranks 0 to 3 wait for each other",
            "rank 2 in MPI_Barrier, its 1st",
            OTHER,
            "anks 0, 1 and 3 in MPI_Barrier, their 6th",
        ],
        true,
    ),
    case(
        "two",
        &[
            "Ranks 0 to 3 wait for each other",
            "anks 0 and 1 in MPI_Barrier, their 1st",
            OTHER,
            "anks 2 and 3 in MPI_Barrier, their 6th",
        ],
        true,
    ),
    case(
        "sends",
        &[
            "Ranks 0 to 3 wait for each other",
            "rank 0 in MPI_Send to 1, tag 7",
            "rank 3 in MPI_Send to 0, tag 7",
        ],
        true,
    ),
    Case {
        is_short: true,
        ..case(
            "cycle",
            &[
                "Ranks 1 and 2 wait for each other",
                "rank 1 in MPI_Recv from 2, tag 4",
                "rank 2 in MPI_Recv from 1, tag 4",
                "Ranks 0 and 3 wait for them in MPI_Barrier, their 6th collective on MPI_COMM_WORLD",
            ],
            true,
        )
    },
    Case {
        is_short: true,
        ..case(
            "tag",
            &[
                "Ranks 0 and 1 wait for each other",
                "rank 1 in MPI_Recv from 0, tag 5 (0 has sent 1 message with tag 4 that is not received)",
                IN_BARRIER,
            ],
            true,
        )
    },
    case(
        "wait",
        &[
            "Ranks 1 and 3 wait for each other",
            "rank 3 in MPI_Wait for a message from 1, tag 11",
            IN_BARRIER,
        ],
        true,
    ),
    case(
        "probe",
        &[
            "Ranks 1 and 3 wait for each other",
            "rank 1 in MPI_Probe from 3, any tag",
            IN_BARRIER,
        ],
        true,
    ),
    case(
        "fence",
        &[
            "Ranks 0 to 3 wait for each other",
            "MPI_Win_fence, their 2nd fence of MPI_COMM_WORLD/window.0",
            "rank 2 in MPI_Barrier, its 6th",
        ],
        true,
    ),
    case(
        "half",
        &[
            "Rank 3 is outside of MPI",
            "Rank 1 waits for it in MPI_Barrier, its 1st collective on MPI_COMM_WORLD/split.0 {1,3}",
        ],
        false,
    ),
    case(
        "file",
        &[
            "Ranks 0 to 3 wait for each other",
            "MPI_File_write_all, their 1st collective access of",
            "rank 2 in MPI_Barrier, its 6th",
        ],
        true,
    ),
    Case {
        is_short: true,
        ..case(
            "thread",
            &[
                "Rank 0 is outside of MPI",
                "of rank 0 is in MPI_Recv from 1, tag 99",
                "anks 1 to 3 wait for it in MPI_Barrier, their 16th collective on MPI_COMM_WORLD",
            ],
            false,
        )
    },
    case(
        "finalize",
        &[
            "Rank 2 is outside of MPI",
            "Ranks 0, 1 and 3 wait for it in MPI_Finalize",
        ],
        false,
    ),
    case(
        "poll",
        &[
            "Ranks 1 and 2 wait for each other",
            "rank 2 in MPI_Test for a message from 1, tag 3",
            IN_BARRIER,
        ],
        true,
    ),
    case(
        "spawn",
        &["Rank 4 is in MPI_Init_thread: whether rank 5 did what that needs is not known"],
        false,
    ),
    // It moves again, but not in the time between the two readings.
    case(
        "compute",
        &["Rank 2 is outside of MPI", OTHERS_IN_BARRIER],
        false,
    ),
];

/// Ways to end badly, with the first sentence.
const ENDS: [Case; 3] = [
    case(
        "signal",
        &[
            "Rank 2 was killed by SIGSEGV",
            "Ranks 0, 1 and 3 waited for it in MPI_Barrier, their 6th collective on MPI_COMM_WORLD",
        ],
        true,
    ),
    case(
        "return",
        &[
            "Rank 2 exited with 0 without MPI_Finalize",
            "Ranks 0, 1 and 3 waited for it in MPI_Barrier, their 6th collective on MPI_COMM_WORLD",
        ],
        true,
    ),
    case("abort", &["Rank 2 called MPI_Abort with 5"], false),
];

/// A recorded job. Its processes are killed when it is dropped.
struct Job {
    record: Child,
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
                && !arguments.windows(6).any(|part| part == b"record")
        });
        ours.map(|process| process.file_name().to_string_lossy().into_owned())
            .collect()
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.record.try_wait(), Ok(Some(_)))
    }

    /// Kills all processes; `record` ends with them.
    fn kill(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let processes = self.processes();
            if (processes.is_empty() && self.has_ended()) || Instant::now() > deadline {
                break;
            }
            let mut kill = Command::new("kill");
            let kill = kill.arg("-KILL").args(processes).stderr(Stdio::null());
            let _ = kill.status();
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.record.kill();
        let _ = self.record.wait();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a program of four ranks below `record`, which is started before the launcher.
fn start(flavour: &Flavour, case: &Case, directory: &Path) -> Job {
    // Under a name for itself: jobs are killed by it.
    let program = directory.with_extension("program");
    std::fs::copy(flavour.program("stuck.c"), &program).expect("a program");
    let launch = flavour.launch("");
    let mut record = Command::new(prefix().join("bin/trace-cli"));
    let _ = std::fs::remove_dir_all(directory);
    record.args(["record", "--overwrite", "-o"]).arg(directory);
    record
        .arg("--")
        .arg(launch.get_program())
        .args(launch.get_args());
    record.arg(&program).arg(case.way);
    for (name, value) in launch.get_envs() {
        match value {
            Some(value) => record.env(name, value),
            None => record.env_remove(name),
        };
    }
    record.current_dir(flavour.scratch());
    let record = record.stdout(Stdio::null()).stderr(Stdio::null());
    Job {
        record: record.spawn().expect("trace-cli"),
        program,
    }
}

fn stuck(directory: &Path, arguments: &[&str]) -> Output {
    let mut stuck = Command::new(prefix().join("bin/trace-cli"));
    let stuck = stuck.arg("stuck").arg(directory).args(arguments);
    stuck.output().expect("trace-cli runs")
}

fn answer(directory: &Path, arguments: &[&str]) -> Value {
    let said = stuck(directory, arguments);
    serde_json::from_slice(&said.stdout).unwrap_or_default()
}

/// Returns whether a sentence has all parts, in the past if the job has ended.
fn says(sentence: &str, parts: &[&str], has_ended: bool) -> bool {
    parts.iter().all(|part| {
        let past = part
            .replace(" wait for", " waited for")
            .replace(" waits for", " waited for")
            .replace("ank 0 is ", "ank 0 was ")
            .replace("ank 2 is ", "ank 2 was ")
            .replace("ank 3 is ", "ank 3 was ")
            .replace(" are in ", " were in ");
        sentence.contains(if has_ended { past.as_str() } else { part })
    })
}

/// The cases of a library: of one all, of the other some, unless ANNALS_LONG is set.
fn is_chosen(flavour: &Flavour, case: &Case) -> bool {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    is_long || flavour.name == "mpich" || case.is_short
}

fn four_ranks() -> impl Iterator<Item = Flavour> {
    let flavours = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    flavours.map(|mut flavour| {
        flavour.processes = 4;
        flavour
    })
}

/// Looks until the first sentence is the expected one, or time is over. Returns the last answer.
fn look_until(job: &mut Job, flavour: &Flavour, case: &Case, directory: &Path) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        if job.has_ended() {
            // Open MPI's server does not always start on a busy machine, and says so.
            *job = start(flavour, case, directory);
        }
        let found = answer(directory, &["--json", "--interval", "200ms"]);
        let sentence = found["sentence"].as_str().unwrap_or_default();
        if says(sentence, case.says, false) || Instant::now() > deadline {
            return found;
        }
    }
}

#[test]
fn a_job_that_hangs_is_explained_while_it_does_and_after_it_was_killed() {
    for flavour in four_ranks() {
        for case in HANGS.iter().filter(|case| is_chosen(&flavour, case)) {
            let what = format!("{} {}", flavour.name, case.way);
            let directory = flavour.scratch().join(format!("stuck-{}", case.way));
            let mut job = start(&flavour, case, &directory);
            let found = look_until(&mut job, &flavour, case, &directory);
            let sentence = found["sentence"].as_str().unwrap_or_default();
            assert!(says(sentence, case.says, false), "{what}: {found:#}");
            assert_eq!(found["is_stuck"], case.is_stuck, "{what}: {found:#}");
            if case.way == "cycle" {
                let watched = stuck(&directory, &["--watch", "300ms"]);
                assert_eq!(watched.status.code(), Some(4), "{what}: {watched:?}");
            }
            job.kill();
            if case.way == "spawn" {
                continue;
            }
            let found = answer(&directory, &["--json"]);
            let sentence = found["sentence"].as_str().unwrap_or_default();
            assert!(says(sentence, case.says, true), "{what}, killed: {found:#}");
            assert_eq!(found["is_running"], false, "{what}: {found:#}");
        }
    }
}

#[test]
fn a_job_that_ended_badly_is_explained_by_stuck_and_why() {
    for flavour in four_ranks() {
        for case in ENDS.iter().filter(|case| is_chosen(&flavour, case)) {
            let what = format!("{} {}", flavour.name, case.way);
            let directory = flavour.scratch().join(format!("ended-{}", case.way));
            let mut job = start(&flavour, case, &directory);
            let _ = job.record.wait();
            let found = answer(&directory, &["--json"]);
            let sentence = found["sentence"].as_str().unwrap_or_default();
            assert!(says(sentence, case.says, false), "{what}: {found:#}");
            let mut why = Command::new(prefix().join("bin/trace-cli"));
            let why = why.arg("why").arg(&directory).output();
            let first = text_of(&why.expect("trace-cli").stdout);
            let first = first.lines().next().unwrap_or_default();
            assert!(says(first, case.says, false), "{what}: {first}");
        }
    }
}

#[test]
fn nobody_is_accused_of_what_is_slow_or_not_known() {
    let flavour = four_ranks().find(|flavour| flavour.name == "mpich");
    let flavour = flavour.expect("a library");
    let slow = case("slow", &[], false);
    let directory = flavour.scratch().join("stuck-slow");
    let mut job = start(&flavour, &slow, &directory);
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let found = answer(&directory, &["--json", "--interval", "1500ms"]);
        let ranks = found["progress"].as_array().map_or(0, Vec::len);
        if ranks == 4 || Instant::now() > deadline {
            break found;
        }
    };
    assert_eq!(found["findings"], Value::Array(Vec::new()), "{found:#}");
    let said = found["sentence"].as_str().unwrap_or_default();
    assert!(
        said.contains("made progress") && said.contains("no rank is stuck"),
        "{said}"
    );
    job.kill();

    let well = case("well", &[], false);
    let directory = flavour.scratch().join("stuck-well");
    let _ = start(&flavour, &well, &directory).record.wait();
    let found = answer(&directory, &["--json"]);
    assert_eq!(found["findings"], Value::Array(Vec::new()), "{found:#}");
    assert_eq!(found["is_stuck"], false);

    // Without the events, or the files, that say it, what others did is not known, and no rank is said to wait for what is not there.
    let mut filtered = flavour.clone();
    filtered.set("ANNALS_FILTER", "off event mpi.send");
    let tag = case(
        "tag",
        &["Rank 1 is in MPI_Recv from 0, tag 5: whether rank 0 did what that needs is not known"],
        false,
    );
    let directory = flavour.scratch().join("stuck-filtered");
    let mut job = start(&filtered, &tag, &directory);
    let found = look_until(&mut job, &filtered, &tag, &directory);
    let sentence = found["sentence"].as_str().unwrap_or_default();
    assert!(says(sentence, tag.says, false), "{found:#}");
    assert_eq!(found["is_stuck"], false, "{found:#}");
    assert_eq!(
        stuck(&directory, &["--interval", "0s"]).status.code(),
        Some(3)
    );
    job.kill();
}

/// A rank whose events are lost may have done anything: what others wait for is not known.
#[test]
fn what_is_lost_accuses_no_rank() {
    let flavour = four_ranks().find(|flavour| flavour.name == "mpich");
    let mut flavour = flavour.expect("a library");
    // The rank that polls fills its buffer, and its recording may have no more.
    flavour.set("ANNALS_BUFFER", "64K");
    flavour.set("ANNALS_PAGE", "4K");
    flavour.set("ANNALS_MAX_BYTES", "8K");
    let poll = case(
        "poll",
        &[
            "MPI_Barrier, their 6th collective on MPI_COMM_WORLD",
            "whether rank 2 did what that needs is not known",
        ],
        false,
    );
    let directory = flavour.scratch().join("stuck-lost");
    let mut job = start(&flavour, &poll, &directory);
    let found = look_until(&mut job, &flavour, &poll, &directory);
    let sentence = found["sentence"].as_str().unwrap_or_default();
    assert!(says(sentence, poll.says, false), "{found:#}");
    assert_eq!(found["is_stuck"], false, "{found:#}");
    assert_eq!(
        stuck(&directory, &["--interval", "0s"]).status.code(),
        Some(3)
    );
    job.kill();
}

/// Runs a command where another memory file system is in place of a directory.
fn without(directory: &Path, arguments: &[&std::ffi::OsStr]) -> Output {
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs none \"$1\" && shift && exec \"$@\"";
    command
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(directory);
    command.args(arguments).output().expect("unshare")
}

#[test]
fn live_files_that_cannot_be_seen_are_brought_together() {
    let flavour = four_ranks().find(|flavour| flavour.name == "mpich");
    let mut flavour = flavour.expect("a library");
    let live = tempfile::tempdir_in("/dev/shm").expect("a directory");
    flavour.set("ANNALS_LIVE_DIR", &live.path().to_string_lossy());
    let cycle = HANGS
        .iter()
        .find(|case| case.way == "cycle")
        .expect("a case");
    let directory = flavour.scratch().join("stuck-elsewhere");
    let mut job = start(&flavour, cycle, &directory);
    let found = look_until(&mut job, &flavour, cycle, &directory);
    let sentence = found["sentence"].as_str().unwrap_or_default();
    assert!(says(sentence, cycle.says, false), "{found:#}");

    let cli = prefix().join("bin/trace-cli");
    let ask = [cli.as_os_str(), "stuck".as_ref(), directory.as_os_str()];
    let said = without(live.path(), &ask);
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    let text = text_of(&said.stdout);
    assert!(
        text.contains("are not visible here") && text.contains("--local"),
        "{text}"
    );
    assert!(!text.contains("wait for"), "{text}");

    let state = tempfile::tempdir().expect("a directory");
    let path = state.path().to_string_lossy();
    for _ in 0..2 {
        let said = stuck(&directory, &["--local", "-o", &path]);
        assert!(said.status.success(), "{said:?}");
    }
    let join = [
        cli.as_os_str(),
        "stuck".as_ref(),
        state.path().as_os_str(),
        "--join".as_ref(),
    ];
    let said = without(live.path(), &join);
    let text = text_of(&said.stdout);
    let first = text.lines().next().unwrap_or_default();
    assert!(says(first, cycle.says, false), "{said:?}");
    job.kill();
}
