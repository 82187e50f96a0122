//! What questions to a large trace cost: wall time and memory of `trace-cli`, a process for each question.
//!
//! `cargo build --profile dist -p annals-cli && cargo bench --profile dist --bench queries`; `ANNALS_BENCH_EVENTS` sets the number of
//! events (default 10 million), `ANNALS_BENCH_RANKS` the number of ranks (default 1024), `ANNALS_BENCH_SECONDS` how
//! long the trace is (default 100), `ANNALS_TRACE_CLI` the program (default `target/dist/trace-cli`),
//! `ANNALS_BENCH_DIR` where the trace is kept for the next time (default: a temporary directory).

mod program;

use program::{Run, number};

fn main() {
    let (directory, _scratch) = program::directory();
    let seconds = number("ANNALS_BENCH_SECONDS", 100);
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", 10_000_000),
        number("ANNALS_BENCH_RANKS", 1024),
    );
    let trace = program::trace(&directory, events, ranks, Some(seconds));
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    println!("{}: {bytes} bytes", trace.display());
    let path = trace.to_string_lossy();
    let tell = |arguments: &[&str]| {
        let command = [&[arguments[0], &path], &arguments[1..]].concat();
        let mut all: Vec<Run> = (0..5).map(|_| program::run(&command)).collect();
        all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let peak = all.iter().map(|run| run.peak_kib).max().unwrap_or(0);
        println!(
            "  {:<44} {:.3} s median, {:.3} s worst, {peak} KiB",
            arguments.join(" "),
            all[2].seconds,
            all[4].seconds,
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
