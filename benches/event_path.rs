//! Measures what an event costs the program that raises it, compared with its floor: the same clock read and the same
//! number of bytes stored, in the same run, interleaved. Then measures its total cost in all threads, and on disk.
//!
//! `cargo bench --profile dist --bench event_path`; `ANNALS_BENCH_ROUNDS` sets the number of rounds (default 15).

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use annals_merger::{Reader, Sums};
use annals_recorder::{
    EventType, EventTypeSpec, Metric, Options, Recorder, RegionId, Text, tsc, tsc_is_invariant,
};

const PAIRS: usize = 100_000;
const REGIONS: usize = 64;

/// A cheap generator: what the program does must not be predictable, and not cost much.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Program {
    recorder: Recorder,
    regions: Vec<RegionId>,
    three: EventType<(u32, u32, u64)>,
    points: Vec<EventType<(u32,)>>,
    note: EventType<(Text,)>,
    load: Metric<i64>,
}

impl Program {
    fn start(directory: &Path) -> Self {
        let mut options = Options::new(directory);
        options.rank = Some(0);
        let recorder = Recorder::start(&options).expect("a recorder");
        let regions = (0..REGIONS)
            .map(|n| {
                recorder
                    .add_region(&format!("region {n}"))
                    .expect("a region")
            })
            .collect();
        let three = EventTypeSpec::new("three")
            .element("a")
            .element("b")
            .element("c");
        let points = (0..4)
            .map(|n| {
                let spec = EventTypeSpec::new(format!("point {n}")).element("value");
                recorder.add_event_type(&spec).expect("an event type")
            })
            .collect();
        let note = EventTypeSpec::new("note").element("text");
        Self {
            regions,
            three: recorder.add_event_type(&three).expect("an event type"),
            points,
            note: recorder.add_event_type(&note).expect("an event type"),
            load: recorder.add_metric("load", "").expect("a metric"),
            recorder,
        }
    }

    #[inline(never)]
    fn pair(&self, region: RegionId) {
        self.recorder.enter(region);
        self.recorder.leave(region);
    }

    #[inline(never)]
    fn three(&self, a: u32, b: u32, c: u64) {
        self.recorder.raise(&self.three, (a, b, c));
    }

    /// Returns the mix of the size figures: nine event types, 64 regions. Without `records` it does
    /// all the rest: what the program itself costs.
    fn mixed<const RECORDS: bool>(&self, random: &mut Random) -> u64 {
        let mut events = 0;
        for _ in 0..PAIRS {
            let word = random.next();
            let region = black_box(self.regions[(word % REGIONS as u64) as usize]);
            if RECORDS {
                self.recorder.enter(region);
            }
            // Work of varying length: jitter in the times.
            for _ in 0..(word >> 8) % 32 {
                black_box(word);
            }
            events += 2;
            let kind = black_box(word >> 32 & 15);
            events += u64::from(kind < 7);
            if RECORDS {
                match kind {
                    0..=3 => {
                        let point = &self.points[(word >> 36 & 3) as usize];
                        self.recorder.raise(point, (word as u32 >> 20,));
                    }
                    4 => self.three(word as u32 & 7, 42, 4096),
                    5 => self.recorder.metric(&self.load, (word & 1023) as i64),
                    6 => self.recorder.raise(&self.note, (b"state changed",)),
                    _ => {}
                }
                self.recorder.leave(region);
            }
        }
        events
    }
}

/// The floor: clock reads and stores of the same size into memory that is used again and again.
struct Floor {
    memory: Vec<u8>,
    at: usize,
    commit: std::sync::atomic::AtomicU64,
}

impl Floor {
    const BYTES: usize = 64 << 10;

    fn new() -> Self {
        Self {
            memory: vec![0; Self::BYTES + 16],
            at: 0,
            commit: std::sync::atomic::AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn store(&mut self, clock: impl Fn() -> u64, size: usize) {
        let tick = clock();
        if self.at + size > Self::BYTES {
            self.at = 0;
        }
        self.memory[self.at..self.at + 8].copy_from_slice(&tick.to_le_bytes());
        self.at += size;
        self.commit
            .store(self.at as u64, std::sync::atomic::Ordering::Release);
    }

    #[inline(never)]
    fn pair(&mut self, clock: impl Fn() -> u64) {
        self.store(&clock, 4);
        self.store(&clock, 4);
    }

    #[inline(never)]
    fn one(&mut self, clock: impl Fn() -> u64) {
        self.store(&clock, 8);
    }
}

fn per_call_ns(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for number in 0..calls {
        call(number);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn cpu_ns() -> u64 {
    // Field 1 of schedstat is this thread's; the sum over the tasks is the process's.
    let tasks = std::fs::read_dir("/proc/self/task").expect("the process has tasks");
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

struct Series(Vec<f64>);

impl Series {
    fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

fn show(name: &str, series: &Series, floor: Option<&Series>) {
    let ratio = floor.map_or_else(String::new, |floor| {
        format!(
            "   {:.2} x floor (min), {:.2} x (median)",
            series.min() / floor.min(),
            series.median() / floor.median()
        )
    });
    println!(
        "{name:<42} {:>7.1} ns min {:>7.1} ns median{ratio}",
        series.min(),
        series.median()
    );
}

fn main() {
    let rounds = std::env::var("ANNALS_BENCH_ROUNDS").ok();
    let rounds: usize = rounds.and_then(|text| text.parse().ok()).unwrap_or(15);
    let scratch = tempfile::tempdir().expect("a directory");
    let clock = if tsc_is_invariant() {
        "tsc"
    } else {
        "monotonic"
    };
    println!("event path, clock {clock}, {rounds} rounds of {PAIRS} pairs, interleaved");

    let program = Program::start(scratch.path());
    let mut floor = Floor::new();
    let mut series: [Series; 4] = std::array::from_fn(|_| Series(Vec::new()));
    let mut raised = 0_u64;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..rounds {
        let mut region = || program.regions[(random.next() % REGIONS as u64) as usize];
        let regions: Vec<RegionId> = (0..1024).map(|_| region()).collect();
        series[0].0.push(per_call_ns(PAIRS, |_| floor.pair(tsc)));
        series[1]
            .0
            .push(per_call_ns(PAIRS, |n| program.pair(regions[n % 1024])));
        series[2].0.push(per_call_ns(PAIRS, |_| floor.one(tsc)));
        series[3].0.push(per_call_ns(PAIRS, |n| {
            program.three(n as u32 & 7, 42, 4096)
        }));
        raised += 3 * PAIRS as u64;
        // The writer catches up: what is measured is the event path, not a full buffer.
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    black_box(&floor.memory);
    show("floor of a pair: 2 x (clock, 4 bytes)", &series[0], None);
    show("enter + leave", &series[1], Some(&series[0]));
    show("floor of an event: clock, 8 bytes", &series[2], None);
    show("event with three elements", &series[3], Some(&series[2]));
    let path = program.recorder.finish().path;
    let outcome = Reader::open(&path)
        .and_then(|opened| opened.summary())
        .expect("a recording");
    let sums = Sums::of(&outcome.totals);
    assert_eq!(sums.raised, raised, "every event is counted");
    assert_eq!(
        sums.recorded + sums.dropped,
        raised,
        "and recorded or dropped"
    );
    println!("dropped {} of {raised}", sums.dropped);

    let program = Program::start(scratch.path());
    let mut costs = [0; 2];
    let mut raised = 0;
    for _ in 0..rounds {
        for (records, cost) in costs.iter_mut().enumerate() {
            let before = cpu_ns();
            if records == 1 {
                raised += program.mixed::<true>(&mut random);
                // Until the writer is done with it, too.
                std::thread::sleep(std::time::Duration::from_millis(30));
            } else {
                program.mixed::<false>(&mut random);
            }
            *cost += cpu_ns() - before;
        }
    }
    let cpu = costs[1].saturating_sub(costs[0]);
    let status = program.recorder.finish();
    let opened = Reader::open(&status.path).expect("a recording");
    let outcome = opened.summary().expect("a recording");
    let sums = Sums::of(&outcome.totals);
    assert_eq!(sums.raised, raised, "every event is counted");
    let bytes = opened.origin().bytes;
    println!(
        "mix of 9 event types and {REGIONS} regions: {:.1} ns of CPU per event, encoding, compression \
         and writing included, the program's own work not; {:.2} bytes per event on disk; dropped \
         {} of {raised}",
        cpu as f64 / raised as f64,
        bytes as f64 / sums.present() as f64,
        sums.dropped
    );
}
