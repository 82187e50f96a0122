//! How fast recordings are merged into a trace: events per second of wall and of processor time, with one
//! job and with two, and the trace read back.
//!
//! `cargo bench --profile dist --bench merge`; `ANNALS_BENCH_EVENTS` sets the number of events (default 4 million),
//! `ANNALS_BENCH_RANKS` the numbers of ranks (default `4,64,1024`), `ANNALS_BENCH_ROUNDS` the number of
//! rounds (default 5), `ANNALS_BENCH_DIR` a directory that keeps the recordings. `ANNALS_BENCH_CAUSALITY=off` leaves messages unchecked: one event in ten is one.
//! `ANNALS_BENCH_MIX=halo` takes the events of a program that exchanges halos and reduces.

use std::path::Path;
use std::time::Instant;

use annals_merger::{Causality, MergeOptions, Reader, Stage, Window, measure_stages, no_progress};

use annals_test_support::synthetic::{self, Mix};

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn number(text: &str) -> u64 {
    text.trim().parse().expect("a number")
}

#[expect(
    unsafe_code,
    reason = "the processor time of the process is a system call"
)]
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Seconds of wall and of processor time.
type Seconds = [f64; 2];

fn merge(inputs: &Path, output: &Path, jobs: usize, events: u64) -> Seconds {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut options = MergeOptions::new();
    options.output = Some(output.to_owned());
    options.jobs = jobs;
    if setting("ANNALS_BENCH_CAUSALITY", "check") == "off" {
        options.causality = Causality::Off;
    }
    let plan = options.plan(&[inputs.to_owned()]).expect("inputs");
    let merged = plan.write_trace(output, no_progress).expect("a trace");
    let seconds = [start.elapsed().as_secs_f64(), cpu_seconds() - cpu];
    assert_eq!(
        merged.report.totals.present(),
        events,
        "all events are there"
    );
    seconds
}

/// Prints what share of the processor time each stage of a merge with one job takes, and what speed-up follows for more
/// threads (Amdahl 1967): what one thread does stays as it is.
fn print_stages(inputs: &Path, output: &Path, events: u64) {
    let ([_, cpu], times) = measure_stages(|| merge(inputs, output, 1, events));
    let of_all = |ns: u64| ns as f64 / 1e9 / cpu;
    let shares = Stage::ALL
        .iter()
        .zip(times)
        .map(|(stage, ns)| (stage, of_all(ns)));
    let mut shares: Vec<(&Stage, f64)> = shares.collect();
    let sum: f64 = shares.iter().map(|(_, share)| share).sum();
    let serial = shares.iter().filter(|(stage, _)| stage.is_serial());
    let serial: f64 = serial.map(|(_, share)| share).sum();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let each = shares.iter().map(|(stage, share)| {
        let mark = if stage.is_serial() { "*" } else { "" };
        format!("{}{mark} {:.1} %", stage.name(), 100.0 * share)
    });
    println!("  stages: {}", each.collect::<Vec<_>>().join(", "));
    let speed_ups = [2.0, 8.0, 32.0, 64.0].map(|threads: f64| {
        format!(
            "{:.1} with {threads}",
            1.0 / (serial + (1.0 - serial) / threads)
        )
    });
    println!(
        "  sum {:.1} %; *one thread does {:.1} %: speed-up at most {}",
        100.0 * sum,
        100.0 * serial,
        speed_ups.join(", ")
    );
}

fn read(trace: &Path, events: u64) -> Seconds {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let opened = Reader::open(trace).expect("a trace");
    let (mut last, mut found) = (i64::MIN, 0);
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::OrderedChunk| {
        found += chunk.len() as u64;
        let mut times_ns = chunk.times_ns();
        assert!(times_ns.next().is_none_or(|first| first >= last));
        last = times_ns.last().unwrap_or(last);
        Ok(())
    });
    outcome.expect("a trace");
    assert_eq!(found, events, "all events can be read");
    [start.elapsed().as_secs_f64(), cpu_seconds() - cpu]
}

fn print(what: &str, events: u64, mut all: Vec<Seconds>) {
    let mut rates = [0, 1].map(|which| {
        all.sort_by(|a, b| a[which].total_cmp(&b[which]));
        let rate = |seconds: f64| events as f64 / seconds / 1e6;
        [rate(all[0][which]), rate(all[all.len() / 2][which])]
    });
    let [wall, cpu] = &mut rates;
    println!(
        "  {what}: {:.1} M events/s best, {:.1} median; by processor time {:.1} best, {:.1} median",
        wall[0], wall[1], cpu[0], cpu[1]
    );
}

fn main() {
    let events = number(&setting("ANNALS_BENCH_EVENTS", "4000000"));
    let mix: Mix = setting("ANNALS_BENCH_MIX", "random")
        .parse()
        .expect("a mix");
    let rounds = number(&setting("ANNALS_BENCH_ROUNDS", "5"));
    for ranks in setting("ANNALS_BENCH_RANKS", "4,64,1024").split(',') {
        let ranks = number(ranks) as u32;
        let scratch = tempfile::tempdir().expect("a directory");
        let of_rank = events / u64::from(ranks);
        let inputs = match std::env::var_os("ANNALS_BENCH_DIR") {
            Some(kept) => Path::new(&kept).join(format!("{mix:?}-{ranks}-{of_rank}")),
            None => scratch.path().join("recordings"),
        };
        if !inputs.exists() {
            std::fs::create_dir_all(&inputs).expect("a directory");
            for rank in 0..ranks {
                synthetic::write_stretched(&inputs, rank, ranks, of_rank, 1, mix)
                    .expect("a recording");
            }
        }
        let events = of_rank * u64::from(ranks);
        let output = scratch.path().join("run.annals");
        let mut seconds: [Vec<Seconds>; 3] = Default::default();
        for _ in 0..rounds {
            for jobs in [1, 2] {
                seconds[jobs - 1].push(merge(&inputs, &output, jobs, events));
            }
            seconds[2].push(read(&output, events));
        }
        let bytes = std::fs::metadata(&output).expect("a trace").len();
        println!(
            "{ranks} ranks, {events} events, {:.2} bytes an event",
            bytes as f64 / events as f64
        );
        print_stages(&inputs, &output, events);
        let [one, two, reading] = seconds;
        let least = |all: &[Seconds]| all.iter().map(|each| each[0]).fold(f64::MAX, f64::min);
        println!("  measured with 2: {:.2}", least(&one) / least(&two));
        print("merge, 1 job", events, one);
        print("merge, 2 jobs", events, two);
        print("reading the trace", events, reading);
    }
}
