//! What screens of `trace-cli serve` cost: 60 lanes of 1 920 columns, spread over all zoom levels, with scrolling, by HTTP.
//!
//! `cargo build --profile dist -p annals-cli && cargo bench --profile dist --bench serve`; `ANNALS_BENCH_EVENTS` sets the number of events (default 5
//! million), `ANNALS_BENCH_RANKS` the number of ranks, each with calls of depth 8 (default 128: 1 024 lanes), `ANNALS_BENCH_SCREENS` the number of
//! screens (default 5 000), `ANNALS_TRACE_CLI` the program (default `target/dist/trace-cli`), `ANNALS_BENCH_DIR` where the
//! trace is kept for the next time (default: a temporary directory).
//!
//! The page cache has nothing of the file when the server starts. Then the same screens from a forest of segments in memory, as Perfetto
//! has it (its `ImplicitSegmentForest`): all calls, 44 bytes each, and over each lane a tree of the longest calls.

mod program;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use annals_merger::{IndexOptions, Reader, no_progress};
use annals_test_support::calls::all_calls;
use annals_test_support::synthetic::{Mix, Random};
use program::{number, setting};
use rustix::fs::{Advice, fadvise};

/// Bins of a tile, as the server has them.
const TILE_BINS: i64 = 1024;
const COLUMNS: i64 = 1920;
/// Depths of a rank, and ranks of a screen.
const DEPTHS: u64 = 8;
const RANKS: u64 = 7;

/// A screen: level, first column's time, bins, first rank. A column has one bin or a part of two, as on the page.
#[derive(Clone, Copy)]
struct Screen {
    level: u8,
    from_ns: i64,
    bins: i64,
    rank: u64,
}

/// Returns screens of all levels in turn. On each level, the view moves by a quarter of its width, and by a rank, again and again.
fn screens(count: u64, ranks: u64, span_ns: i64) -> Vec<Screen> {
    let top = ((span_ns / COLUMNS).max(1) as u64).ilog2() as u64 + 1;
    let mut random = Random::new(5);
    let mut at: BTreeMap<u64, (i64, u64)> = BTreeMap::new();
    let each = (0..count).map(|number| {
        let level = number % (top + 1);
        let bins = COLUMNS + (random.draw() % COLUMNS as u64) as i64;
        let width = bins << level;
        let room = (span_ns - width).max(1);
        let place = at.entry(level).or_insert((0, 0));
        if (number / (top + 1)).is_multiple_of(8) {
            *place = ((random.draw() % room as u64) as i64, random.draw() % ranks);
        }
        place.0 = (place.0 + width / 4) % room;
        place.1 = (place.1 + 1) % ranks;
        Screen {
            level: level as u8,
            from_ns: place.0,
            bins,
            rank: place.1.min(ranks.saturating_sub(RANKS)),
        }
    });
    each.collect()
}

struct Served {
    child: Child,
    connection: BufReader<TcpStream>,
    fields: String,
    started: Instant,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    fn start(trace: &Path) -> Self {
        let started = Instant::now();
        let program = setting("ANNALS_TRACE_CLI", "target/dist/trace-cli");
        let mut child = Command::new(program)
            .arg("serve")
            .arg(trace)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("trace-cli: build it first, or set ANNALS_TRACE_CLI");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        output.read_line(&mut line).expect("an address");
        let (host, token) = line.trim().split_once("/?token=").expect("a token");
        let host = host.trim_start_matches("http://");
        let port = host.rsplit(':').next().expect("a port");
        let stream = TcpStream::connect(host).expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self {
            child,
            connection: BufReader::with_capacity(1 << 16, stream),
            fields: format!(
                "Host: {host}\r\nSec-Fetch-Site: same-origin\r\nCookie: annals-{port}={token}\r\n"
            ),
            started,
        }
    }

    fn get(&mut self, path: &str) -> Vec<u8> {
        let request = format!("GET /api/v1/traces{path} HTTP/1.1\r\n{}\r\n", self.fields);
        let sent = self.connection.get_mut().write_all(request.as_bytes());
        sent.expect("a connection");
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            self.connection.read_line(&mut line).expect("an answer");
            let field = line.trim().to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            assert!(
                !field.starts_with("http/1.1 4") && !field.starts_with("http/1.1 5"),
                "{path}: {line}"
            );
            if field.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.connection.read_exact(&mut body).expect("a body");
        body
    }

    fn id(&mut self) -> String {
        loop {
            let text = String::from_utf8(self.get("")).expect("text");
            if let Some((_, rest)) = text.split_once("\"id\":\"") {
                return rest.split('"').next().expect("an id").to_owned();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks for the tiles of a screen. Returns their bytes.
    fn show(&mut self, id: &str, screen: Screen) -> usize {
        let ranks = screen.rank..screen.rank + RANKS;
        let lanes = ranks.map(|rank| format!("t{rank}.0-{}", DEPTHS - 1));
        let lanes = lanes
            .chain(["a0.0-3".to_owned()])
            .collect::<Vec<_>>()
            .join(",");
        let first = screen.from_ns >> screen.level;
        let bins = first..=first + screen.bins;
        let tiles = bins.start() / TILE_BINS..=bins.end() / TILE_BINS;
        let tiles = tiles.map(|tile| {
            let bytes = self.get(&format!(
                "/{id}/tiles/{}/{tile}?lanes={lanes}",
                screen.level
            ));
            let count = RANKS * DEPTHS + 4;
            let head = [*b"ANTL", (count as u32).to_le_bytes()].concat();
            assert_eq!(bytes[..8], head, "not a tile of all lanes");
            bytes.len()
        });
        tiles.sum()
    }

    fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) >> 10
    }
}

/// Returns the value that a share of all is not above.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

/// Prints what screens took, milliseconds: all, and by level.
fn tell(what: &str, times: &[(u8, f64)]) {
    let sorted = |times: Vec<f64>| {
        let mut times = times;
        times.sort_by(f64::total_cmp);
        times
    };
    let all = sorted(times.iter().map(|time| time.1).collect());
    println!(
        "  {what}: p50 {:.2} ms, p99 {:.2} ms, at most {:.1} ms",
        quantile(&all, 0.5),
        quantile(&all, 0.99),
        quantile(&all, 1.0)
    );
    let mut levels: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
    for (level, time) in times {
        levels.entry(*level).or_default().push(*time);
    }
    let each = levels.into_iter().map(|(level, times)| {
        let times = sorted(times);
        format!(
            "{level}: {:.1}/{:.1}",
            quantile(&times, 0.5),
            quantile(&times, 0.99)
        )
    });
    println!(
        "    by level, p50/p99: {}",
        each.collect::<Vec<_>>().join(", ")
    );
}

/// A call in memory: begin, length, region, name, category, parent, track, flags – 44 bytes, as Perfetto has them.
struct Segments {
    /// Begins and lengths, nanoseconds.
    calls: Vec<(i64, i64)>,
    /// The forest: the longest of 2, 4, 8 … calls.
    longest: Vec<Vec<u32>>,
}

impl Segments {
    fn new(mut calls: Vec<(i64, i64)>) -> Self {
        calls.sort_unstable();
        let mut longest: Vec<Vec<u32>> = vec![(0..calls.len() as u32).collect()];
        while longest.last().is_some_and(|below| below.len() > 1) {
            let below = &longest[longest.len() - 1];
            let pairs = below.chunks(2).map(|pair| {
                let best = pair.iter().max_by_key(|at| calls[**at as usize].1);
                *best.expect("a call")
            });
            longest.push(pairs.collect());
        }
        Self { calls, longest }
    }

    /// Returns the longest call among some.
    fn query(&self, mut from: usize, mut to: usize) -> Option<u32> {
        let mut best: Option<u32> = None;
        let mut take = |at: u32| {
            let is_longer =
                best.is_none_or(|best| self.calls[best as usize].1 < self.calls[at as usize].1);
            best = if is_longer { Some(at) } else { best };
        };
        for level in &self.longest {
            if from >= to {
                break;
            }
            if from & 1 == 1 {
                take(level[from]);
                from += 1;
            }
            if to & 1 == 1 {
                to -= 1;
                take(level[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        best
    }

    fn columns(&self, screen: Screen) -> u64 {
        let mut sum = 0;
        for column in 0..COLUMNS {
            let border =
                |column: i64| screen.from_ns + ((column * screen.bins) << screen.level) / COLUMNS;
            let (from_ns, to_ns) = (border(column), border(column + 1));
            let place = |ns: i64| self.calls.partition_point(|call| call.0 < ns);
            let best = self.query(place(from_ns), place(to_ns));
            sum += best.map_or(0, u64::from);
        }
        sum
    }
}

/// Shows the same screens from memory.
fn in_memory(trace: &Path, screens: &[Screen]) {
    let started = Instant::now();
    let reader = Reader::open(trace).expect("a trace");
    let calls = all_calls(&reader);
    let mut lanes: BTreeMap<(usize, u32), Vec<(i64, i64)>> = BTreeMap::new();
    for call in &calls {
        let lane = lanes.entry((call.location, call.depth)).or_default();
        lane.push((call.from_ns, call.to_ns - call.from_ns));
    }
    let lanes: BTreeMap<(usize, u32), Segments> = lanes
        .into_iter()
        .map(|(key, calls)| (key, Segments::new(calls)))
        .collect();
    let opened = started.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for screen in screens {
        let started = Instant::now();
        let ranks = screen.rank..screen.rank + RANKS;
        let shown =
            ranks.flat_map(|rank| (0..DEPTHS).map(move |depth| (rank as usize, depth as u32)));
        let sum: u64 = shown
            .filter_map(|lane| lanes.get(&lane))
            .map(|lane| lane.columns(*screen))
            .sum();
        std::hint::black_box(sum);
        times.push((screen.level, started.elapsed().as_secs_f64() * 1e3));
    }
    let bytes = calls.len() as u64 * 44;
    println!(
        "  in memory: {} MiB of calls with 44 bytes each, ready after {opened:.1} s",
        bytes >> 20
    );
    tell("screens from memory (without groups)", &times);
}

/// Returns the trace with an overview, and prints what that costs.
fn indexed(trace: &Path, events: u64) -> PathBuf {
    let path = trace.with_extension("indexed.annals");
    if !path.exists() {
        let started = Instant::now();
        let written = IndexOptions::new().write(trace, &path, no_progress);
        written.expect("an overview");
        println!(
            "  overview built from the trace in {:.1} s",
            started.elapsed().as_secs_f64()
        );
    }
    let bytes = |path: &Path| std::fs::metadata(path).expect("a trace").len();
    let more = bytes(&path) - bytes(trace);
    println!(
        "  overview: {more} bytes, {:.3} for each event",
        more as f64 / events as f64
    );
    path
}

fn main() {
    let (directory, _scratch) = program::directory();
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", 5_000_000),
        number("ANNALS_BENCH_RANKS", 128),
    );
    let trace = program::trace_of(&directory, (events, ranks), None, Mix::Halo);
    println!("{}: {events} events of {ranks} ranks", trace.display());
    let indexed = indexed(&trace, events);
    let span_ns = Reader::open(&trace).expect("a trace").extent().last_ns;
    let screens = screens(number("ANNALS_BENCH_SCREENS", 5_000), ranks, span_ns);
    let file = std::fs::File::open(&indexed).expect("a trace");
    file.sync_all().expect("written");
    fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    let mut served = Served::start(&indexed);
    let id = served.id();
    served.get(&format!("/{id}/lanes"));
    let level = ((span_ns / COLUMNS).max(1) as u64).ilog2() as u8 + 1;
    served.show(
        &id,
        Screen {
            level,
            from_ns: 0,
            bins: COLUMNS,
            rank: 0,
        },
    );
    println!(
        "  from start to first picture: {:.0} ms",
        served.started.elapsed().as_secs_f64() * 1e3
    );
    let (mut times, mut bytes) = (Vec::new(), 0);
    for screen in &screens {
        let started = Instant::now();
        bytes += served.show(&id, *screen);
        times.push((screen.level, started.elapsed().as_secs_f64() * 1e3));
    }
    tell("screens", &times);
    println!(
        "    {} KiB each, server at most {} MiB",
        (bytes / screens.len()) >> 10,
        served.peak_mib()
    );
    drop(served);
    if events <= 20_000_000 {
        in_memory(&trace, &screens);
    }
}
