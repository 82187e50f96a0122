//! What questions to a large trace cost: wall time and memory of `trace-cli`, a process for each question.
//!
//! `cargo build --release -p annals-cli && cargo bench --bench queries`; `ANNALS_BENCH_EVENTS` sets the number of
//! events (default 10 million), `ANNALS_BENCH_RANKS` the number of ranks (default 1024), `ANNALS_BENCH_SECONDS` how
//! long the trace is (default 100), `ANNALS_TRACE_CLI` the program (default `target/release/trace-cli`),
//! `ANNALS_BENCH_DIR` where the trace is kept for the next time (default: a temporary directory).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use annals_merger::{WriteOptions, plan_merge, write_trace};

mod synthetic;

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn number(name: &str, otherwise: &str) -> u64 {
    setting(name, otherwise).trim().parse().expect("a number")
}

fn make(directory: &Path) -> PathBuf {
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", "10000000"),
        number("ANNALS_BENCH_RANKS", "1024"),
    );
    let seconds = number("ANNALS_BENCH_SECONDS", "100");
    let path = directory.join(format!("{events}-{ranks}-{seconds}.annals"));
    if path.exists() {
        return path;
    }
    let inputs = directory.join("recordings");
    std::fs::create_dir_all(&inputs).expect("a directory");
    let of_rank = events / ranks;
    // The mean step of the events makes the trace as long as it is to be.
    let ticks = seconds * synthetic::TICKS_PER_SECOND;
    let stretch = ticks / (of_rank * synthetic::MEAN_STEP).max(1);
    for rank in 0..ranks {
        synthetic::write_stretched(&inputs, rank as u32, ranks as u32, of_rank, stretch.max(1))
            .expect("a recording");
    }
    let (merge, _) = plan_merge(std::slice::from_ref(&inputs), Some(&path)).expect("inputs");
    let options = WriteOptions {
        compression: annals_format::CompressionLevel::default(),
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
    };
    write_trace(&merge, &path, options, |_| {}).expect("a trace");
    std::fs::remove_dir_all(&inputs).expect("the recordings go");
    path
}

/// Seconds and peak KiB of a question.
fn ask(program: &Path, arguments: &[&str], trace: &Path) -> (f64, u64) {
    let start = Instant::now();
    let mut child = Command::new(program)
        .arg(arguments[0])
        .arg(trace)
        .args(&arguments[1..])
        .stdout(Stdio::null())
        .spawn()
        .expect("trace-cli: build it first, or set ANNALS_TRACE_CLI");
    let mut peak = 0;
    let status = loop {
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        let line = text.unwrap_or_default();
        let line = line.lines().find(|line| line.starts_with("VmHWM:"));
        let found = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        peak = peak.max(found.unwrap_or(0));
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_micros(500)),
        }
    };
    assert!(status.success(), "{arguments:?}: {status}");
    (start.elapsed().as_secs_f64(), peak)
}

fn main() {
    let program = PathBuf::from(setting("ANNALS_TRACE_CLI", "target/release/trace-cli"));
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = match std::env::var_os("ANNALS_BENCH_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => scratch.path().to_owned(),
    };
    let trace = make(&directory);
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    let seconds = number("ANNALS_BENCH_SECONDS", "100");
    println!("{}: {bytes} bytes", trace.display());
    let tell = |arguments: &[&str]| {
        let mut all: Vec<(f64, u64)> = (0..5).map(|_| ask(&program, arguments, &trace)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let peak = all.iter().map(|(_, peak)| *peak).max().unwrap_or(0);
        println!(
            "  {:<44} {:.3} s median, {:.3} s worst, {} KiB",
            arguments.join(" "),
            all[2].0,
            all[4].0,
            peak
        );
    };
    for command in ["info", "dropped", "sources"] {
        tell(&[command]);
    }
    for from_ms in [0, seconds * 500, seconds * 1000 - 20] {
        let (from, to) = (format!("{from_ms}ms"), format!("{}ms", from_ms + 10));
        for command in ["print", "regions", "timeline"] {
            tell(&[command, "--from", &from, "--to", &to]);
        }
    }
    tell(&["regions"]);
}
