//! A program that uses `tracing`, as a contestant: with the registry of spans alone, with Annals'
//! layer, and with tracing-chrome's. A region is a span that is made, entered, left and closed.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use annals_merger::Reader;
use annals_recorder::{Options, Recorder};
use annals_tracing::AnnalsLayer;
use tracing::dispatcher::{DefaultGuard, Dispatch, set_default};
use tracing::span::EnteredSpan;
use tracing::{info, info_span};
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

use crate::contestant::{Check, Contestant, Lane};
use crate::processor::process_cpu_ns;
use crate::workload::REGIONS;

/// How long tracing-chrome's thread may take to write what it was sent.
const LONGEST_FLUSH: Duration = Duration::from_secs(60);

enum Listener {
    Alone,
    Annals(Recorder),
    Chrome(Mutex<FlushGuard>, Arc<Written>),
}

/// The program and its listener.
pub(crate) struct Instrumented {
    dispatch: Dispatch,
    listener: Listener,
    raised: u64,
    /// Processor time of the whole process: when the round began, and of all rounds.
    round_began_ns: u64,
    all_threads_ns: u64,
}

impl Instrumented {
    /// Without a listener.
    pub(crate) fn alone() -> Self {
        Self::new(Dispatch::new(Registry::default()), Listener::Alone)
    }

    /// Annals listens, to the making and the close of spans as well when `with_lives` is set.
    /// tracing-chrome does not.
    ///
    /// # Errors
    /// Those of the recorder.
    pub(crate) fn annals(directory: &Path, with_lives: bool) -> Result<Self, String> {
        let recorder = Recorder::start(&Options::new(directory));
        let recorder = recorder.map_err(|error| error.to_string())?;
        let layer = AnnalsLayer::new(&recorder).map_err(|error| error.to_string())?;
        let dispatch = Dispatch::new(Registry::default().with(layer.lives(with_lives)));
        Ok(Self::new(dispatch, Listener::Annals(recorder)))
    }

    /// tracing-chrome listens; its output is counted and discarded.
    pub(crate) fn chrome() -> Self {
        let written = Arc::new(Written::default());
        let writer = Lines {
            written: Arc::clone(&written),
            line: Vec::new(),
        };
        let (layer, guard) = ChromeLayerBuilder::new()
            .writer(writer)
            .include_args(true)
            .build();
        let dispatch = Dispatch::new(Registry::default().with(layer));
        Self::new(dispatch, Listener::Chrome(Mutex::new(guard), written))
    }

    const fn new(dispatch: Dispatch, listener: Listener) -> Self {
        Self {
            dispatch,
            listener,
            raised: 0,
            round_began_ns: 0,
            all_threads_ns: 0,
        }
    }
}

impl Contestant for Instrumented {
    type Lane = TracingLane;

    fn prepare(&mut self, _: usize) -> Result<(), String> {
        self.round_began_ns = process_cpu_ns();
        Ok(())
    }

    fn lane(&self, _: usize) -> TracingLane {
        TracingLane {
            dispatch: self.dispatch.clone(),
            guard: None,
        }
    }

    fn settle(&mut self, raised: u64) -> Result<(), String> {
        self.raised += raised;
        if let Listener::Chrome(guard, written) = &self.listener {
            // Its queue has no bound: what is in it would be worked off while others are measured.
            let before = written.flushes.load(Ordering::Acquire);
            guard.lock().unwrap_or_else(PoisonError::into_inner).flush();
            let begun = Instant::now();
            while written.flushes.load(Ordering::Acquire) == before {
                if begun.elapsed() > LONGEST_FLUSH {
                    return Err("tracing-chrome does not come to an end".to_owned());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.all_threads_ns += process_cpu_ns() - self.round_began_ns;
        Ok(())
    }

    fn finish(&mut self) -> Result<Check, String> {
        let raised = self.raised;
        let each_ns = self.all_threads_ns as f64 / raised.max(1) as f64;
        let cost = format!("{each_ns:.0} ns of CPU each, all threads and the program itself");
        match &self.listener {
            Listener::Alone => Ok(Check {
                raised,
                how: format!("nobody listens; {cost}"),
                ..Check::default()
            }),
            Listener::Annals(recorder) => {
                let (read, lost) = events_in(&recorder.finish().path)?;
                if read + lost != raised {
                    return Err(format!("{raised} raised, {read} read, {lost} lost"));
                }
                Ok(Check {
                    raised,
                    read: Some(read),
                    lost,
                    how: format!(
                        "annals-merger: every enter, leave and event is read or counted as dropped; {cost}"
                    ),
                })
            }
            Listener::Chrome(_, written) => {
                let read = written.events.load(Ordering::Relaxed);
                let lost = raised.checked_sub(read);
                let lost = lost.ok_or_else(|| format!("{raised} raised, {read} written"))?;
                Ok(Check {
                    raised,
                    read: Some(read),
                    lost,
                    how: format!("events in what tracing-chrome writes; {cost}"),
                })
            }
        }
    }
}

/// Enters, leaves and events that a recording has, and that it counts as dropped; spans' lives are not
/// among them.
fn events_in(path: &Path) -> Result<(u64, u64), String> {
    let text = |error: annals_merger::MergeError| error.to_string();
    let opened = Reader::open(path).map_err(text)?;
    let outcome = opened.summary().map_err(text)?;
    let (mut read, mut lost) = (0, 0);
    for row in outcome.totals.iter().flat_map(|totals| &totals.rows) {
        let name = opened.definitions().event_type_name(row.event_type);
        if !name.starts_with("tracing.new") && !name.starts_with("tracing.close") {
            read += row.recorded;
            lost += row.dropped_sum();
        }
    }
    Ok((read, lost))
}

/// What tracing-chrome has written.
#[derive(Default)]
struct Written {
    events: AtomicU64,
    flushes: AtomicU64,
}

/// Counts the events in a stream of lines.
struct Lines {
    written: Arc<Written>,
    line: Vec<u8>,
}

impl Lines {
    fn end_line(&mut self) {
        let is_event = |line: &[u8]| {
            let kinds: [&[u8]; 3] = [b"\"ph\":\"B\"", b"\"ph\":\"E\"", b"\"ph\":\"i\""];
            kinds
                .iter()
                .any(|kind| line.windows(8).any(|part| part == *kind))
        };
        if is_event(&self.line) {
            self.written.events.fetch_add(1, Ordering::Relaxed);
        }
        self.line.clear();
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            self.line.extend_from_slice(part);
            if parts.peek().is_some() {
                self.end_line();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // The line before the one to come is whole but for its comma.
        self.end_line();
        self.written.flushes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// One thread of the program.
pub(crate) struct TracingLane {
    dispatch: Dispatch,
    guard: Option<DefaultGuard>,
}

type Enter = fn() -> EnteredSpan;

/// As many callsites as there are regions: names are part of a callsite.
macro_rules! regions {
    ($($name:literal)*) => {
        [$({
            fn enter() -> EnteredSpan {
                info_span!($name).entered()
            }
            enter
        }),*]
    };
}

static ENTER: [Enter; REGIONS as usize] = regions!(
    "00" "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13" "14" "15"
    "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27" "28" "29" "30" "31"
    "32" "33" "34" "35" "36" "37" "38" "39" "40" "41" "42" "43" "44" "45" "46" "47"
    "48" "49" "50" "51" "52" "53" "54" "55" "56" "57" "58" "59" "60" "61" "62" "63"
);

impl Lane for TracingLane {
    type Open = EnteredSpan;

    fn begin(&mut self) {
        self.guard = Some(set_default(&self.dispatch));
    }

    fn end(&mut self) {
        self.guard = None;
    }

    #[inline(never)]
    fn enter(&mut self, region: u32) -> EnteredSpan {
        ENTER[region as usize]()
    }

    #[inline(never)]
    fn leave(&mut self, _: u32, open: EnteredSpan) {
        drop(open);
    }

    #[inline(never)]
    fn three(&mut self, a: u32, b: u32, c: u64) {
        info!(a, b, c);
    }

    #[inline(never)]
    fn send(
        &mut self,
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
        request: u64,
        datatype: u32,
    ) {
        info!(receiver, communicator, tag, length, request, datatype);
    }

    #[inline(never)]
    fn point(&mut self, kind: u32, value: u32) {
        match kind {
            0 => info!(name: "point 0", value),
            1 => info!(name: "point 1", value),
            2 => info!(name: "point 2", value),
            _ => info!(name: "point 3", value),
        }
    }

    #[inline(never)]
    fn metric(&mut self, value: i64) {
        info!(name: "metric", value);
    }

    #[inline(never)]
    fn note(&mut self) {
        info!("state changed");
    }
}
