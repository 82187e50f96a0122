//! `trace-cli` at work on a large trace: how long it takes, what it costs the processors, how much memory it has at most.
#![allow(dead_code, reason = "every bench uses its part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use annals_merger::{MergeOptions, no_progress};

use annals_test_support::synthetic::{self, Mix};

/// Returns a setting of the environment.
pub(crate) fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

/// One that is a number.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    let text = setting(name, &otherwise.to_string());
    text.trim().parse().expect("a number")
}

/// Returns the directory for traces, and a guard that deletes it at the end if it is a temporary
/// one.
pub(crate) fn directory() -> (PathBuf, Option<tempfile::TempDir>) {
    match std::env::var_os("ANNALS_BENCH_DIR") {
        Some(directory) => (PathBuf::from(directory), None),
        None => {
            let scratch = tempfile::tempdir().expect("a directory");
            (scratch.path().to_owned(), Some(scratch))
        }
    }
}

/// Returns a trace of `events` events of `ranks` ranks, and creates it if it does not exist. Events are about 200 ns
/// apart in each rank, or far enough that all take `seconds`.
pub(crate) fn trace(directory: &Path, events: u64, ranks: u64, seconds: Option<u64>) -> PathBuf {
    trace_of(directory, (events, ranks), seconds, Mix::Random)
}

/// Makes a trace as [`trace`] does, of a mix of events.
pub(crate) fn trace_of(
    directory: &Path,
    (events, ranks): (u64, u64),
    seconds: Option<u64>,
    mix: Mix,
) -> PathBuf {
    let length = seconds.map_or_else(String::new, |seconds| format!("-{seconds}"));
    let path = directory.join(format!(
        "{events}-{ranks}{length}{}.annals",
        match mix {
            Mix::Random => "",
            Mix::Collectives => "-collectives",
            Mix::Halo => "-halo",
        }
    ));
    if path.exists() {
        return path;
    }
    let inputs = directory.join("recordings");
    std::fs::create_dir_all(&inputs).expect("a directory");
    let of_rank = events / ranks;
    let stretch = seconds.map_or(1, |seconds| {
        let ticks = seconds * synthetic::TICKS_PER_SECOND;
        (ticks / (of_rank * synthetic::MEAN_STEP).max(1)).max(1)
    });
    for rank in 0..ranks {
        let (rank, ranks) = (rank as u32, ranks as u32);
        synthetic::write_stretched(&inputs, rank, ranks, of_rank, stretch, mix)
            .expect("a recording");
    }
    let plan = MergeOptions::new().plan(std::slice::from_ref(&inputs));
    let merged = plan.expect("inputs").write_trace(&path, no_progress);
    merged.expect("a trace");
    std::fs::remove_dir_all(&inputs).expect("the recordings go");
    path
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// From start to end.
    pub(crate) seconds: f64,
    /// Of all its threads, to a hundredth.
    pub(crate) processor_seconds: f64,
    /// At most.
    pub(crate) peak_kib: u64,
}

/// Runs `trace-cli` (or what `ANNALS_TRACE_CLI` names) with these arguments, without its output.
pub(crate) fn run(arguments: &[&str]) -> Run {
    run_into(arguments, Stdio::null())
}

/// Runs `trace-cli` as [`run`] does, with its output somewhere.
pub(crate) fn run_into(arguments: &[&str], output: impl Into<Stdio>) -> Run {
    let program = setting("ANNALS_TRACE_CLI", "target/dist/trace-cli");
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .expect("trace-cli: build it first, or set ANNALS_TRACE_CLI");
    let (mut peak_kib, mut ticks) = (0, 0);
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{}/{name}", child.id()));
        text.unwrap_or_default()
    };
    let status_of = || {
        let text = read("status");
        let line = text.lines().find(|line| line.starts_with("VmHWM:"));
        let peak = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        // After the name, which is in brackets: user and system time are the 12th and the 13th
        // field.
        let text = read("stat");
        let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let times = rest.split_whitespace().skip(11).take(2);
        let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
        (peak, ticks)
    };
    // A dead process keeps its times until it is waited for.
    while !read("stat").contains(") Z ") {
        let (peak, now) = status_of();
        peak_kib = peak_kib.max(peak.unwrap_or(0));
        ticks = ticks.max(now);
        std::thread::sleep(Duration::from_micros(500));
    }
    ticks = ticks.max(status_of().1);
    let seconds = start.elapsed().as_secs_f64();
    let status = child.wait().expect("a child");
    assert!(status.success(), "{arguments:?}: {status}");
    Run {
        seconds,
        processor_seconds: ticks as f64 / 100.0,
        peak_kib,
    }
}
