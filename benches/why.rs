//! What `trace-cli why` costs on a large trace: wall time and memory, a process for each round.
//!
//! `cargo build --profile dist -p annals-cli && cargo bench --profile dist --bench why`; `ANNALS_BENCH_EVENTS` sets the number of events
//! (default 100 million), `ANNALS_BENCH_RANKS` the number of ranks (default 64), `ANNALS_BENCH_ROUNDS` how often the command
//! runs (default 3), `ANNALS_TRACE_CLI` the program (default `target/dist/trace-cli`), `ANNALS_BENCH_DIR` where the
//! trace is kept for the next time (default: a temporary directory).
//!
//! The ranks exchange halos and reduce, again and again. The bench fails when the answers with one job and with two differ, or
//! when one is without efficiencies.

mod program;

use annals_test_support::synthetic::Mix;
use program::{Run, number};

fn main() {
    let (directory, _scratch) = program::directory();
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", 100_000_000),
        number("ANNALS_BENCH_RANKS", 64),
    );
    let rounds = number("ANNALS_BENCH_ROUNDS", 3).max(1);
    let trace = program::trace_of(&directory, (events, ranks), None, Mix::Halo);
    let path = trace.to_string_lossy();
    println!("{path}: {events} events of {ranks} ranks");
    let mut answers = Vec::new();
    for jobs in ["1", "2"] {
        let command = ["why", &path, "--jobs", jobs];
        let file = directory.join(format!("why-{jobs}.txt"));
        program::run_into(&command, std::fs::File::create(&file).expect("a file"));
        let answer = std::fs::read_to_string(&file).expect("an answer");
        assert!(answer.contains("parallel efficiency"), "{answer}");
        answers.push(answer);
        let mut runs: Vec<Run> = (0..rounds).map(|_| program::run(&command)).collect();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let peak = runs.iter().map(|run| run.peak_kib).max().unwrap_or(0);
        println!(
            "  --jobs {jobs}: {:.2} s least, {:.2} s median, {:.2} s of processors, {} MiB",
            runs[0].seconds,
            runs[runs.len() / 2].seconds,
            runs[0].processor_seconds,
            peak >> 10
        );
    }
    assert_eq!(
        answers[0], answers[1],
        "the answer depends on the number of jobs"
    );
}
