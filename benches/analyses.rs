//! What analyses of a large trace gain from a second thread: `trace-cli` with `--jobs 1` and `--jobs 2`, in turn.
//!
//! `cargo build --profile dist -p annals-cli && cargo bench --profile dist --bench analyses`; `ANNALS_BENCH_EVENTS` sets the number of
//! events (default 40 million), `ANNALS_BENCH_RANKS` the number of ranks (default 64), `ANNALS_BENCH_ROUNDS` how often each
//! command runs (default 5), `ANNALS_TRACE_CLI` the program (default `target/dist/trace-cli`), `ANNALS_BENCH_DIR` where
//! the trace is kept for the next time (default: a temporary directory). The bench fails when the outputs differ.
//!
//! A tenth of the events are messages, most of which never match; one event in 32 begins a collective operation.
//!
//! Measured on an idle machine with two cores (AMD Zen 4) and the defaults: the median time with one job, divided by
//! that with two, is 1.87 for `regions --rank`, 1.72 for `flat`, 1.83 for `messages`, 1.75 for `collectives`, 1.79
//! for `intervals`, 1.89 and 1.82 for `histogram`, 1.85 for `metrics`, 1.83 for `diff`, and 1.14 for `regions
//! --tree`. One thread alone adds up calls to a tree, and one alone pairs intervals and the begins of collective
//! operations; other threads only decode and gather.

mod program;

use annals_test_support::synthetic;
use std::fs::File;

use program::{Run, number};

/// The commands. `--rank` leaves out one rank, so that no stored statistics can answer.
const COMMANDS: [&str; 10] = [
    "regions --rank 0-62",
    "regions --tree",
    "flat",
    "messages",
    "collectives",
    "intervals --begin point_a --end point_b",
    "histogram --region * --log",
    "histogram --event send --element bytes",
    "metrics --event point_a --element value",
    "diff TRACE --rank 0-62",
];

/// Returns the shortest and the median time, seconds, and the largest peak of memory, KiB.
fn summary(runs: &mut [Run]) -> (f64, f64, u64) {
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or(0);
    (runs[0].seconds, runs[runs.len() / 2].seconds, peak)
}

fn main() {
    let (directory, _scratch) = program::directory();
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", 40_000_000),
        number("ANNALS_BENCH_RANKS", 64),
    );
    let rounds = number("ANNALS_BENCH_ROUNDS", 5).max(1);
    let trace = program::trace_of(
        &directory,
        (events, ranks),
        None,
        synthetic::Mix::Collectives,
    );
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    println!("{}: {events} events, {bytes} bytes", trace.display());
    println!(
        "{:<42} {:>15} {:>15} {:>11} {:>17}",
        "seconds (min, median)", "1 job", "2 jobs", "ratio", "peak KiB 1, 2 jobs"
    );
    let path = trace.to_string_lossy();
    let outputs = tempfile::tempdir().expect("a directory");
    for command in COMMANDS {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        let rest: Vec<String> = rest
            .split_whitespace()
            .map(|argument| match argument {
                "TRACE" => path.clone().into_owned(),
                // Names have spaces.
                other => other.replace("point_", "point "),
            })
            .collect();
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (jobs, runs) in ["1", "2"].into_iter().zip(&mut runs) {
                let mut arguments = vec![name, &path];
                arguments.extend(rest.iter().map(String::as_str));
                arguments.extend(["--json", "--jobs", jobs]);
                let output = File::create(outputs.path().join(jobs)).expect("a file");
                runs.push(program::run_into(&arguments, output));
            }
            let read = |jobs: &str| std::fs::read(outputs.path().join(jobs)).expect("an output");
            assert!(read("1") == read("2"), "{command}: the outputs differ");
        }
        let [one, two] = runs.each_mut().map(|runs| summary(runs));
        println!(
            "{command:<42} {:>7.3} {:>7.3} {:>7.3} {:>7.3} {:>5.2} {:>5.2} {:>8} {:>8}",
            one.0,
            one.1,
            two.0,
            two.1,
            one.0 / two.0,
            one.1 / two.1,
            one.2,
            two.2,
        );
    }
}
