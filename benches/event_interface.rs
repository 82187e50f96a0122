//! Measures what raising an event costs in the event interface: without a registration, compared with an empty loop;
//! with one callback that does nothing; with the recorder attached, compared with the floor of an event (the same clock
//! read and the same number of bytes stored). All in one run, interleaved.
//!
//! `cargo bench --profile dist --bench event_interface`; `ANNALS_BENCH_ROUNDS` sets the number of rounds (default 300).

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use annals_recorder::events::{
    Attach, Callback, Datatype, EventType, EventTypeSpec, Info, Runtime, Safety, Source,
    SourceSpec, Value, attach,
};
use annals_recorder::{Options, Recorder, tsc};

/// Few enough that some rounds pass without an interruption.
const RAISES: usize = 20_000;

/// A runtime with one source, whose clock is the processor's counter, and one event type.
struct Producer {
    runtime: Runtime,
    source: Source,
    event: EventType,
}

impl Producer {
    fn new() -> Self {
        let runtime = Runtime::new();
        let spec = SourceSpec::ordered("bench").processor_clock();
        let source = runtime.add_source(&spec).expect("a source");
        let spec = EventTypeSpec::new("event")
            .element("a", Datatype::Int)
            .element("b", Datatype::UnsignedLong);
        let event = runtime.add_event_type(&spec).expect("an event type");
        Self {
            runtime,
            source,
            event,
        }
    }

    #[inline(always)]
    fn raise(&self, number: usize) {
        let values = [Value::Int(number as i32 & 7), Value::UnsignedLong(4096)];
        let raised = self.event.raise(&self.source, Safety::None, &values);
        debug_assert!(raised.is_ok());
    }
}

/// The floor: a clock read, and stores of the same size into memory that is used again and again.
struct Floor {
    memory: Vec<u8>,
    at: usize,
    commit: AtomicU64,
}

impl Floor {
    const BYTES: usize = 64 << 10;

    #[inline(always)]
    fn store(&mut self, number: usize) {
        let tick = tsc();
        if self.at + 8 > Self::BYTES {
            self.at = 0;
        }
        let word = tick ^ number as u64;
        self.memory[self.at..self.at + 8].copy_from_slice(&word.to_le_bytes());
        self.at += 8;
        self.commit.store(self.at as u64, Ordering::Release);
    }
}

fn per_call_ns(mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for number in 0..RAISES {
        call(black_box(number));
    }
    start.elapsed().as_nanos() as f64 / RAISES as f64
}

struct Series(&'static str, Vec<f64>);

impl Series {
    fn min(&self) -> f64 {
        self.1.iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn median(&self) -> f64 {
        let mut sorted = self.1.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    fn show(&self, base: &Self) {
        let (min, median) = (self.min(), self.median());
        let (more, more_median) = (min - base.min(), median - base.median());
        println!(
            "{:<42} {min:7.2} ns (min) {median:7.2} ns (median)   {more:+.2} / {more_median:+.2} ns to {}",
            self.0, base.0
        );
    }
}

fn main() {
    let rounds: usize = std::env::var("ANNALS_BENCH_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(300);
    let nobody = Producer::new();

    let heard = Producer::new();
    let registration = heard.runtime.handle_alloc(0, None, &Info::new());
    let registration = registration.expect("a registration");
    let calls = Arc::new(AtomicU64::new(0));
    let no_op = Callback::new(|_, _, _| {});
    let callback = Some(no_op);
    heard
        .runtime
        .register_callback(registration, Safety::None, &Info::new(), callback)
        .expect("a callback");

    // A second producer, whose callback counts its calls: the results are checked.
    let checked = Producer::new();
    let registration = checked.runtime.handle_alloc(0, None, &Info::new());
    let counted = Arc::clone(&calls);
    let callback = Callback::new(move |instance, _, _| {
        assert_eq!(instance.read(1), Ok(Value::UnsignedLong(4096)));
        counted.fetch_add(1, Ordering::Relaxed);
    });
    checked
        .runtime
        .register_callback(
            registration.expect("a registration"),
            Safety::None,
            &Info::new(),
            Some(callback),
        )
        .expect("a callback");
    (0..1000).for_each(|number| checked.raise(number));
    assert_eq!(calls.load(Ordering::Relaxed), 1000);

    let directory = std::env::temp_dir().join(format!("annals-bench-{}", std::process::id()));
    let mut options = Options::new(&directory);
    options.rank = Some(0);
    let recorder = Recorder::start(&options).expect("a recorder");
    let recorded = Producer::new();
    let attachment = attach(&recorded.runtime, &recorder, &Attach::new()).expect("attached");

    let mut floor = Floor {
        memory: vec![0; Floor::BYTES],
        at: 0,
        commit: AtomicU64::new(0),
    };
    let mut series = [
        Series("an empty loop", Vec::new()),
        Series("raise, nobody registered", Vec::new()),
        Series("raise, one callback that does nothing", Vec::new()),
        Series("the floor: clock, stores", Vec::new()),
        Series("raise, the recorder attached", Vec::new()),
    ];
    for _ in 0..rounds {
        series[0].1.push(per_call_ns(|number| {
            black_box(number);
        }));
        series[1].1.push(per_call_ns(|number| nobody.raise(number)));
        series[2].1.push(per_call_ns(|number| heard.raise(number)));
        series[3].1.push(per_call_ns(|number| floor.store(number)));
        series[4]
            .1
            .push(per_call_ns(|number| recorded.raise(number)));
    }
    drop(attachment);
    let status = recorder.finish();
    assert_eq!(status.raised, (rounds * RAISES) as u64, "all were raised");
    assert_eq!(status.misused, 0);
    assert!(status.dropped < status.raised, "some were recorded");
    let _ = std::fs::remove_dir_all(&directory);

    for (index, base) in [(1, 0), (2, 0), (4, 3)] {
        series[index].show(&series[base]);
    }
}
