//! What exports cost: events a second and peak memory of `trace-cli export`, a process for each format.
//!
//! `cargo build --release -p annals-cli && cargo bench --bench export`; `ANNALS_BENCH_EVENTS` sets the number of events
//! (default 4 million), `ANNALS_BENCH_RANKS` the number of ranks (default 8), `ANNALS_TRACE_CLI` the program (default
//! `target/release/trace-cli`), `ANNALS_BENCH_DIR` where the trace is kept for the next time and the exports go
//! (default: a temporary directory), `ANNALS_BENCH_FORMATS` the formats (default: all, separated by spaces).

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

fn make(directory: &Path, events: u64, ranks: u64) -> PathBuf {
    let path = directory.join(format!("{events}-{ranks}.annals"));
    if path.exists() {
        return path;
    }
    let inputs = directory.join("recordings");
    std::fs::create_dir_all(&inputs).expect("a directory");
    for rank in 0..ranks {
        synthetic::write_recording(&inputs, rank as u32, ranks as u32, events / ranks)
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

fn bytes_of(path: &Path) -> u64 {
    let metadata = std::fs::metadata(path).expect("an export");
    if metadata.is_file() {
        return metadata.len();
    }
    let entries = std::fs::read_dir(path).expect("a directory");
    entries
        .map(|entry| bytes_of(&entry.expect("a file").path()))
        .sum()
}

/// Seconds and peak KiB of an export.
fn export(program: &Path, trace: &Path, format: &str, to: &Path) -> (f64, u64) {
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(["export", "--quiet", "--format", format, "-o"])
        .arg(to)
        .arg(trace)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
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
            None => std::thread::sleep(std::time::Duration::from_millis(2)),
        }
    };
    assert!(status.success(), "{format}: {status}");
    (start.elapsed().as_secs_f64(), peak)
}

fn main() {
    let program = PathBuf::from(setting("ANNALS_TRACE_CLI", "target/release/trace-cli"));
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = match std::env::var_os("ANNALS_BENCH_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => scratch.path().to_owned(),
    };
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", "4000000"),
        number("ANNALS_BENCH_RANKS", "8"),
    );
    let trace = make(&directory, events, ranks);
    println!(
        "{}: {events} events, {} bytes",
        trace.display(),
        bytes_of(&trace)
    );
    let all = "parquet perfetto chrome arrow csv jsonl folded flamegraph dot mermaid";
    for format in setting("ANNALS_BENCH_FORMATS", all).split_whitespace() {
        let to = directory.join(format!("export-{format}"));
        let mut runs: Vec<(f64, u64)> = (0..3)
            .map(|_| {
                let run = export(&program, &trace, format, &to);
                let bytes = bytes_of(&to);
                let removed = match to.is_dir() {
                    true => std::fs::remove_dir_all(&to),
                    false => std::fs::remove_file(&to),
                };
                removed.expect("the export goes");
                assert!(bytes != 0, "{format}: an export of nothing");
                run
            })
            .collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let peak = runs.iter().map(|(_, peak)| *peak).max().unwrap_or(0);
        println!(
            "  {format:<11} {:>6.2} million events/s (median of 3), {} MiB",
            events as f64 / runs[1].0 / 1e6,
            peak >> 10
        );
    }
}
