//! What exports cost: events a second, processor time for each event, and peak memory of `trace-cli export`, a process for
//! each run.
//!
//! `cargo build --profile dist -p annals-cli && cargo bench --profile dist --bench export -- [EVENTS]`, by default 4 million of them;
//! `ANNALS_BENCH_EVENTS` says the same. `ANNALS_BENCH_RANKS` sets the number of ranks (default 8), `ANNALS_TRACE_CLI` the
//! program (default `target/dist/trace-cli`), `ANNALS_BENCH_DIR` where the trace is kept for the next time and the
//! exports go (default: a temporary directory), `ANNALS_BENCH_FORMATS` the formats (default: all, separated by spaces),
//! `ANNALS_BENCH_RUNS` how often each is run (default 3; the formats take turns). `events.parquet` is the one table, and
//! `parquet` all four.

use std::path::Path;

mod program;

use program::{Run, number, setting};

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

/// Exports a trace; returns the resources used and the size of the output, which is then deleted.
fn export(trace: &Path, name: &str, directory: &Path) -> (Run, u64) {
    let to = directory.join(format!("export-{name}"));
    let format = name.rsplit_once('.').map_or(name, |(_, format)| format);
    let run = program::run(&[
        "export",
        "--quiet",
        "--format",
        format,
        "-o",
        &to.to_string_lossy(),
        &trace.to_string_lossy(),
    ]);
    let bytes = bytes_of(&to);
    assert!(bytes != 0, "{name}: an export of nothing");
    let removed = match to.is_dir() {
        true => std::fs::remove_dir_all(&to),
        false => std::fs::remove_file(&to),
    };
    removed.expect("the export goes");
    (run, bytes)
}

fn main() {
    let (directory, _scratch) = program::directory();
    let mut told = std::env::args().skip(1);
    let events = told.find_map(|argument| argument.parse().ok());
    let events = events.unwrap_or_else(|| number("ANNALS_BENCH_EVENTS", 4_000_000));
    let trace = program::trace(&directory, events, number("ANNALS_BENCH_RANKS", 8), None);
    println!(
        "{}: {events} events, {} bytes",
        trace.display(),
        bytes_of(&trace)
    );
    let all =
        "events.parquet parquet perfetto chrome arrow csv jsonl folded flamegraph dot mermaid";
    let names = setting("ANNALS_BENCH_FORMATS", all);
    let names: Vec<&str> = names.split_whitespace().collect();
    let mut runs: Vec<Vec<(Run, u64)>> = vec![Vec::new(); names.len()];
    for _ in 0..number("ANNALS_BENCH_RUNS", 3).max(1) {
        for (name, runs) in names.iter().zip(&mut runs) {
            runs.push(export(&trace, name, &directory));
        }
    }
    for (name, runs) in names.iter().zip(&mut runs) {
        runs.sort_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
        let (median, bytes) = runs[runs.len() / 2];
        let rate = |run: Run| events as f64 / run.seconds / 1e6;
        let peak = runs.iter().map(|(run, _)| run.peak_kib).max().unwrap_or(0);
        println!(
            "  {name:<14} {:>6.2} million events/s (median of {}, best {:.2}), {:.0} ns of processors and {:.1} bytes \
             for each event, {} MiB",
            rate(median),
            runs.len(),
            rate(runs[0].0),
            median.processor_seconds * 1e9 / events as f64,
            bytes as f64 / events as f64,
            peak >> 10
        );
    }
}
