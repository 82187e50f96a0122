//! Records for a long time at a steady rate, and holds what must not grow or drift against what it was: memory, descriptors,
//! counters.
//!
//!     cargo run --profile dist --example soak -- plain 60
//!     cargo run --profile dist --example soak -- later 60
//!     cargo run --profile dist --example soak -- flight 60
//!
//! Arguments: `plain` (a recording of everything), `later` (the same, compressed after the end) or `flight` (the flight recorder, with a
//! snapshot every ten seconds); minutes (default 1); events a second (default 2000000; more than the threads can raise is as fast as
//! they can); directory (default: a temporary one, on the disk); `block` if threads wait when the buffer is full, instead of dropping. Exit code 1 when something is not as it should be. For ten minutes, the plain
//! mode needs about 1 GB of disk, `later` 8 GB.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_format::CompressionLevel;
use annals_merger::{InputRecording, Reader, Sums, Window, compress};
use annals_recorder::{Compression, EventTypeSpec, Options, Overflow, Recorder};

const THREADS: usize = 2;
/// Events of one turn of a thread: it enters a region, marks, measures and leaves.
const EVENTS_OF_A_TURN: u64 = 4;
/// What anonymous memory may grow by when nothing is kept: the allocator's own unrest.
const UNREST_KIB: u64 = 2048;

/// What the process has at a moment.
#[derive(Clone, Copy, Debug)]
struct Needs {
    anonymous_kib: u64,
    descriptors: usize,
    threads: u64,
}

impl Needs {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Self {
            anonymous_kib: field("RssAnon:"),
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count),
            threads: field("Threads:"),
        }
    }
}

struct Plan {
    is_flight: bool,
    is_later: bool,
    is_blocking: bool,
    length: Duration,
    events_a_second: u64,
    directory: Option<PathBuf>,
}

fn plan() -> Option<Plan> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next()?;
    if !["plain", "later", "flight"].contains(&mode.as_str()) {
        return None;
    }
    let minutes = arguments
        .next()
        .map_or(Some(1.0), |text| text.parse().ok())?;
    let events_a_second = arguments
        .next()
        .map_or(Some(2_000_000), |text| text.parse().ok())?;
    let directory = arguments.next().map(PathBuf::from);
    let is_blocking = match arguments.next() {
        None => false,
        // A flight recorder overwrites.
        Some(policy) if policy == "block" && mode != "flight" => true,
        Some(_) => return None,
    };
    Some(Plan {
        is_flight: mode == "flight",
        is_later: mode == "later",
        is_blocking,
        length: Duration::try_from_secs_f64(60.0 * minutes).ok()?,
        events_a_second,
        directory,
    })
}

/// Raises events at the rate until `stop` is set; counts them after each burst.
fn work(recorder: &Recorder, events_a_second: u64, stop: &AtomicBool, raised: &AtomicU64) {
    let region = recorder.add_region("solve").expect("a region");
    let spec = EventTypeSpec::new("mark").element("number").element("size");
    let mark = recorder
        .add_event_type::<(u64, u32)>(&spec)
        .expect("an event type");
    let load = recorder.add_metric::<i64>("load", "%").expect("a metric");
    let begun = Instant::now();
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_micros() * u128::from(events_a_second) / 1_000_000;
        while u128::from(number * EVENTS_OF_A_TURN) < due {
            recorder.enter(region);
            recorder.raise(&mark, (number, (number % 4096) as u32));
            recorder.metric(&load, (number % 100) as i64);
            recorder.leave(region);
            number += 1;
            if number.is_multiple_of(1024) {
                raised.store(number * EVENTS_OF_A_TURN, Ordering::Release);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        raised.store(number * EVENTS_OF_A_TURN, Ordering::Release);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> ExitCode {
    let Some(plan) = plan() else {
        eprintln!("soak plain|later|flight [MINUTES [EVENTS A SECOND [DIRECTORY [block]]]]");
        return ExitCode::from(2);
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = plan.directory.clone();
    let directory = directory.unwrap_or_else(|| scratch.path().to_owned());
    let mut options = Options::new(&directory);
    if plan.is_flight {
        options.overflow = Overflow::Overwrite;
    }
    if plan.is_blocking {
        options.overflow = Overflow::Block;
    }
    if plan.is_later {
        options.compression = Compression::Later;
    }
    let recorder = Recorder::start(&options).expect("a recorder");
    let raised: [AtomicU64; THREADS] = std::array::from_fn(|_| AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let mut problems: Vec<String> = Vec::new();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for raised in &raised {
            let (recorder, stop) = (&recorder, &stop);
            let rate = plan.events_a_second / THREADS as u64;
            scope.spawn(move || work(recorder, rate, stop, raised));
        }
        watch(&plan, &recorder, &raised, begun, &mut problems);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64();
    let status = recorder.finish();
    let told: u64 = raised
        .iter()
        .map(|raised| raised.load(Ordering::Acquire))
        .sum();
    if told != status.raised {
        problems.push(format!(
            "{told} events were raised, and the recorder counted {}",
            status.raised
        ));
    }
    problems.extend(status.storage_failure.map(|why| format!("storage: {why}")));

    if plan.is_later {
        let begun = Instant::now();
        let input = InputRecording::open(&status.path).expect("the recording");
        let level = CompressionLevel::default();
        let compressed = compress(&input, level, |_| ControlFlow::Continue(()));
        println!(
            "compressed in {:.1} s: {compressed:?}",
            begun.elapsed().as_secs_f64()
        );
    }
    // What is on the disk, against the counters.
    let opened = Reader::open(&status.path).expect("the recording");
    let mut read = 0_u64;
    let outcome = opened.for_each_chunk(Window::ALL, |chunk: annals_format::TraceChunk| {
        read += chunk.len() as u64;
        Ok(())
    });
    let outcome = outcome.expect("the recording");
    let sums = Sums::of(&outcome.totals);
    if !outcome.complete || read != sums.recorded {
        problems.push(format!(
            "{read} events are read of {} that were recorded",
            sums.recorded
        ));
    }
    if (sums.raised, sums.dropped) != (status.raised, status.dropped) {
        problems.push(format!(
            "the recording says {sums:?}, the recorder {} and {}",
            status.raised, status.dropped
        ));
    }
    if sums.raised != sums.recorded + sums.dropped + sums.suppressed {
        problems.push(format!("counters that do not add up: {sums:?}"));
    }
    println!(
        "{:.0} s: {} raised ({:.2} M/s), {} recorded, {} dropped, {} bytes",
        seconds,
        sums.raised,
        sums.raised as f64 / seconds / 1e6,
        sums.recorded,
        sums.dropped,
        status.written_bytes
    );
    for problem in &problems {
        println!("WRONG: {problem}");
    }
    ExitCode::from(u8::from(!problems.is_empty()))
}

/// Checks the recorder every second while the threads record; prints the state ten times in all.
fn watch(
    plan: &Plan,
    recorder: &Recorder,
    raised: &[AtomicU64],
    begun: Instant,
    problems: &mut Vec<String>,
) {
    let warm = plan.length.min(Duration::from_secs(60)) / 4;
    let mut first: Option<Needs> = None;
    let mut most = 0;
    let mut told = Duration::ZERO;
    let mut snapshot = Duration::ZERO;
    while begun.elapsed() < plan.length {
        std::thread::sleep(Duration::from_secs(1));
        let elapsed = begun.elapsed();
        if plan.is_flight && elapsed >= snapshot + Duration::from_secs(10) {
            snapshot = elapsed;
            match recorder.snapshot() {
                Ok(path) => {
                    let directory = path.parent().expect("a directory of its own");
                    std::fs::remove_dir_all(directory).expect("the snapshot goes");
                }
                Err(error) => problems.push(format!("snapshot: {error}")),
            }
        }
        // The counters of threads that go on: what was raised before is counted, and what is counted was raised before
        // the second look, but for the burst that each is at.
        let sum = || {
            raised
                .iter()
                .map(|raised| raised.load(Ordering::Acquire))
                .sum::<u64>()
        };
        let before = sum();
        let status = recorder.status();
        let after = sum() + raised.len() as u64 * 1024 * EVENTS_OF_A_TURN;
        if status.raised < before || status.raised > after {
            problems.push(format!(
                "between {before} and {after} events were raised, {} are counted",
                status.raised
            ));
        }
        let needs = Needs::now();
        if elapsed < warm {
            continue;
        }
        let first = *first.get_or_insert(needs);
        most = most.max(needs.anonymous_kib);
        if elapsed >= told + plan.length / 10 {
            told = elapsed;
            println!(
                "{:5.0} s: {} raised, {} dropped, {} bytes, memory {} KiB, {} descriptors, {} threads",
                elapsed.as_secs_f64(),
                status.raised,
                status.dropped,
                status.written_bytes,
                needs.anonymous_kib,
                needs.descriptors,
                needs.threads
            );
        }
        if needs.anonymous_kib > first.anonymous_kib + UNREST_KIB {
            problems.push(format!(
                "memory grew from {} to {} KiB",
                first.anonymous_kib, needs.anonymous_kib
            ));
        }
        if needs.descriptors != first.descriptors || needs.threads != first.threads {
            problems.push(format!("{first:?} became {needs:?}"));
        }
        if problems.len() > 10 {
            return;
        }
    }
    println!("most anonymous memory {most} KiB");
}
