//! How fast recordings are merged into a trace: events per second, with one job and with two.
//!
//! `cargo bench --bench merge`; `ANNALS_BENCH_EVENTS` sets the number of events (default 4 million),
//! `ANNALS_BENCH_ROUNDS` the number of rounds (default 5).

use std::path::{Path, PathBuf};
use std::time::Instant;

use annals_merger::{Opened, Window, WriteOptions, plan_merge, write_trace};
use annals_recorder::{EventTypeSpec, Options, Recorder, Role};

const PROCESSES: u32 = 4;
const THREADS: u64 = 4;

fn setting(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Records one process's share: regions, and one event in ten a message with four elements.
fn record(directory: &Path, rank: u32, events: u64) -> u64 {
    let mut options = Options::new(directory);
    options.rank = Some(rank);
    options.rank_count = Some(PROCESSES);
    options.buffer_bytes = 64 << 20;
    let recorder = Recorder::start(&options).expect("a recorder");
    let regions: Vec<_> = (0..64)
        .map(|n| {
            recorder
                .add_region(&format!("region {n}"))
                .expect("a region")
        })
        .collect();
    let send = EventTypeSpec::new("send")
        .role(Role::Send)
        .element("communicator")
        .element("peer")
        .element("tag")
        .element_in("bytes", "bytes");
    let send = recorder
        .add_event_type::<(u32, u32, i32, u64)>(&send)
        .expect("an event type");
    let per_thread = events / THREADS;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (recorder, regions, send) = (&recorder, &regions, &send);
            scope.spawn(move || {
                let mut word = 0x9e37_79b9_7f4a_7c15 ^ (u64::from(rank) << 32 | thread);
                let mut raised = 0;
                while raised < per_thread {
                    word ^= word << 13;
                    word ^= word >> 7;
                    word ^= word << 17;
                    let region = regions[(word % 64) as usize];
                    recorder.enter(region);
                    for _ in 0..word >> 60 {
                        std::hint::black_box(word);
                    }
                    if word >> 32 & 3 == 0 {
                        recorder.raise(send, (0, (word >> 40) as u32 & 3, 7, word >> 50));
                        raised += 1;
                    }
                    recorder.leave(region);
                    raised += 2;
                    // The writer keeps up: nothing is to be dropped here.
                    if raised % 50_000 < 3 {
                        std::thread::sleep(std::time::Duration::from_millis(4));
                    }
                }
            });
        }
    });
    let status = recorder.finish();
    let opened = Opened::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    annals_merger::Sums::of(&outcome.totals).present()
}

fn main() {
    let events = setting("ANNALS_BENCH_EVENTS", 4_000_000);
    let rounds = setting("ANNALS_BENCH_ROUNDS", 5);
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs: PathBuf = scratch.path().join("recordings");
    let recorded: u64 = (0..PROCESSES)
        .map(|rank| record(&inputs, rank, events / u64::from(PROCESSES)))
        .sum();
    println!("merging {recorded} events of {PROCESSES} processes x {THREADS} threads");
    let output = scratch.path().join("run.annals");
    let mut best = [f64::INFINITY; 2];
    let mut all: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (index, jobs) in [1, 2].into_iter().enumerate() {
            let start = Instant::now();
            let (merge, _) =
                plan_merge(std::slice::from_ref(&inputs), Some(&output)).expect("inputs");
            let options = WriteOptions {
                compression: annals_format::CompressionLevel::default(),
                jobs,
            };
            let (merged, _) = write_trace(&merge, &output, options, |_| {}).expect("a trace");
            let seconds = start.elapsed().as_secs_f64();
            assert_eq!(
                merged.report.totals.present(),
                recorded,
                "all events are there"
            );
            best[index] = best[index].min(seconds);
            all[index].push(seconds);
        }
    }
    let bytes = std::fs::metadata(&output).expect("a trace").len();
    for (index, jobs) in [1, 2].into_iter().enumerate() {
        all[index].sort_by(f64::total_cmp);
        let median = all[index][all[index].len() / 2];
        println!(
            "{jobs} job(s): {:.1} M events/s best, {:.1} M events/s median; {:.2} bytes per event",
            recorded as f64 / best[index] / 1e6,
            recorded as f64 / median / 1e6,
            bytes as f64 / recorded as f64
        );
    }
    let opened = Opened::open(&output).expect("a trace");
    let mut last = i64::MIN;
    let mut read = 0;
    let start = Instant::now();
    opened
        .read(Window::ALL, |chunk| {
            read += chunk.len() as u64;
            assert!(chunk.times_ns.first().is_none_or(|first| *first >= last));
            last = chunk.times_ns.last().copied().unwrap_or(last);
            Ok(())
        })
        .expect("a trace");
    assert_eq!(read, recorded, "all events can be read");
    println!(
        "reading the trace: {:.1} M events/s",
        read as f64 / start.elapsed().as_secs_f64() / 1e6
    );
}
