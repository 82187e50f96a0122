//! Which layout of a trace's chunk is cheapest to merge and to read: a prototype, for a decision.
//!
//! `cargo bench --bench layout`; settings as in `benches/analyses`. The events of a synthetic trace are split by stream, as a
//! merge has them, and chunk by chunk written and read in three layouts:
//!
//! - *now*: every column in the global order;
//! - *A*: times and streams in the global order; types, elements and residuals by stream;
//! - *B*: everything by stream; a reader finds the order again by sorting.
//!
//! Each figure is the shortest of several rounds, in nanoseconds per event, one thread. The readers' sums must be equal.

mod program;
mod synthetic;

use std::ops::ControlFlow;
use std::time::Instant;

use annals_format::wire::Wire;
use annals_format::{put_ints, read_ints};
use annals_merger::{Query, Reader};
use program::number;

/// The events of one stream in a chunk: times, types, residuals, and by type the values of its elements, one after the other.
#[derive(Clone, Default)]
struct Run {
    times: Vec<u64>,
    types: Vec<u16>,
    residuals: Vec<u64>,
    values: Vec<Vec<u64>>,
}

/// A chunk as it is stored: columns of integers; by type, the values of the type's events.
#[derive(Default)]
struct Columns {
    times: Vec<u64>,
    streams: Vec<u32>,
    types: Vec<u16>,
    residuals: Vec<u64>,
    values: Vec<Vec<u64>>,
}

impl Columns {
    fn clear(&mut self, types: usize) {
        self.times.clear();
        self.streams.clear();
        self.types.clear();
        self.residuals.clear();
        self.values.resize(types, Vec::new());
        self.values.iter_mut().for_each(Vec::clear);
    }

    /// Appends the columns; `by_stream`: the number of streams, if all is grouped by them.
    fn encode(&self, by_stream: Option<usize>, out: &mut Vec<u8>) {
        let mut deltas = Vec::with_capacity(self.times.len());
        let mut last = 0_u64;
        for time in &self.times {
            // A stream begins before where the one before it ends.
            let step = time.wrapping_sub(last) as i64;
            deltas.push((step << 1 ^ step >> 63) as u64);
            last = *time;
        }
        put_ints(&deltas, out);
        match by_stream {
            None => put_ints(&self.streams, out),
            Some(count) => put_ints(&lengths(&self.streams, count), out),
        }
        put_ints(&self.types, out);
        put_ints(&self.residuals, out);
        self.values.iter().for_each(|values| put_ints(values, out));
    }

    /// Reads columns back; `counts`: events, streams, and values by type.
    fn decode(&mut self, bytes: &[u8], (events, streams): (usize, usize), values: &[usize]) {
        let mut wire = Wire::new(bytes);
        let mut last = 0_u64;
        self.times = read_ints(&mut wire, events).expect("times");
        for time in &mut self.times {
            last = last.wrapping_add((*time >> 1) ^ (*time & 1).wrapping_neg());
            *time = last;
        }
        let ids = read_ints(&mut wire, streams).expect("streams");
        self.streams = ids.into_iter().map(|id| id as u32).collect();
        let types = read_ints(&mut wire, events).expect("types");
        self.types = types.into_iter().map(|id| id as u16).collect();
        self.residuals = read_ints(&mut wire, events).expect("residuals");
        let each = values.iter();
        let each = each.map(|count| read_ints(&mut wire, *count).expect("values"));
        self.values = each.collect();
    }
}

/// How many events each stream has.
fn lengths(streams: &[u32], count: usize) -> Vec<u32> {
    let mut lengths = vec![0; count];
    streams.iter().for_each(|s| lengths[*s as usize] += 1);
    lengths
}

/// The global order of runs, as (stream, index in it), by a radix sort of the times' low bits.
fn order(runs: &[Run], keys: &mut Vec<(u64, u32, u32)>, spare: &mut Vec<(u64, u32, u32)>) {
    keys.clear();
    for (stream, run) in runs.iter().enumerate() {
        let each = run.times.iter().enumerate();
        keys.extend(each.map(|(index, time)| (*time, stream as u32, index as u32)));
    }
    sort(keys, spare);
}

fn sort(keys: &mut Vec<(u64, u32, u32)>, spare: &mut Vec<(u64, u32, u32)>) {
    const BITS: u32 = 11;
    let first = keys.iter().map(|key| key.0).min().unwrap_or(0);
    let last = keys.iter().map(|key| key.0).max().unwrap_or(0);
    let width = 64 - (last - first).leading_zeros();
    spare.resize(keys.len(), (0, 0, 0));
    for pass in 0..width.div_ceil(BITS) {
        let digit = |key: u64| ((key - first) >> (pass * BITS)) as usize & ((1 << BITS) - 1);
        let mut places = [0_u32; 1 << BITS];
        keys.iter().for_each(|key| places[digit(key.0)] += 1);
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        for key in keys.iter() {
            let place = &mut places[digit(key.0)];
            spare[*place as usize] = *key;
            *place += 1;
        }
        std::mem::swap(keys, spare);
    }
}

/// Where the next values of every stream and type are among those of the type.
fn starts(lengths: &[u32], types: &[u16], elements: &[usize]) -> (Vec<u32>, Vec<u32>) {
    let mut next = vec![0_u32; elements.len()];
    let (mut events, mut values, mut at) = (Vec::new(), Vec::new(), 0);
    for length in lengths {
        events.push(at);
        values.extend_from_slice(&next);
        for of_type in &types[at as usize..(at + length) as usize] {
            next[usize::from(*of_type)] += elements[usize::from(*of_type)] as u32;
        }
        at += length;
    }
    (events, values)
}

/// Times of the steps, and bytes.
#[derive(Clone, Copy, Default)]
struct Cost {
    gather: f64,
    encode: f64,
    pack: f64,
    unpack: f64,
    decode: f64,
    walk: f64,
    of_stream: f64,
    bytes: usize,
}

/// What the readers add up: times, streams and all values, in a way that depends on their order.
fn mix(sum: u64, value: u64) -> u64 {
    sum.rotate_left(1).wrapping_add(value)
}

struct Bench {
    elements: Vec<usize>,
    streams: usize,
}

impl Bench {
    fn gather(&self, layout: usize, runs: &[Run], keys: &[(u64, u32, u32)], to: &mut Columns) {
        to.clear(self.elements.len());
        if layout < 2 {
            to.times.extend(keys.iter().map(|key| key.0));
            to.streams.extend(keys.iter().map(|key| key.1));
        }
        if layout == 0 {
            let mut next = vec![0_usize; runs.len() * self.elements.len()];
            for (_, stream, index) in keys {
                let run = &runs[*stream as usize];
                let of_type = run.types[*index as usize];
                to.types.push(of_type);
                to.residuals.push(run.residuals[*index as usize]);
                let of_type = usize::from(of_type);
                let at = &mut next[*stream as usize * self.elements.len() + of_type];
                let values = &run.values[of_type][*at..*at + self.elements[of_type]];
                to.values[of_type].extend_from_slice(values);
                *at += self.elements[of_type];
            }
            return;
        }
        for (stream, run) in runs.iter().enumerate() {
            if layout == 2 {
                to.times.extend_from_slice(&run.times);
                to.streams.extend(run.times.iter().map(|_| stream as u32));
            }
            to.types.extend_from_slice(&run.types);
            to.residuals.extend_from_slice(&run.residuals);
            for (values, more) in to.values.iter_mut().zip(&run.values) {
                values.extend_from_slice(more);
            }
        }
    }

    /// Adds up all events in the global order.
    fn walk(&self, layout: usize, columns: &Columns, keys: &mut Vec<(u64, u32, u32)>) -> u64 {
        let types = self.elements.len();
        let mut sum = 0;
        let mut add = |time: u64, stream: u32, of_type: usize, residual: u64, at: &mut u32| {
            sum = mix(mix(mix(sum, time), stream.into()), residual);
            let count = self.elements[of_type];
            let values = &columns.values[of_type][*at as usize..*at as usize + count];
            sum = values.iter().fold(sum, |sum, value| mix(sum, *value));
            *at += count as u32;
        };
        if layout == 0 {
            let mut next = vec![0_u32; types];
            for index in 0..columns.times.len() {
                let of_type = usize::from(columns.types[index]);
                let (time, stream) = (columns.times[index], columns.streams[index]);
                add(
                    time,
                    stream,
                    of_type,
                    columns.residuals[index],
                    &mut next[of_type],
                );
            }
            return sum;
        }
        let counts = match layout {
            1 => lengths(&columns.streams, self.streams),
            _ => columns.streams.clone(),
        };
        let (mut events, mut values) = starts(&counts, &columns.types, &self.elements);
        let mut step = |time: u64, stream: u32| {
            let at = &mut events[stream as usize];
            let of_type = usize::from(columns.types[*at as usize]);
            let residual = columns.residuals[*at as usize];
            *at += 1;
            add(
                time,
                stream,
                of_type,
                residual,
                &mut values[stream as usize * types + of_type],
            );
        };
        if layout == 1 {
            for (time, stream) in columns.times.iter().zip(&columns.streams) {
                step(*time, *stream);
            }
            return sum;
        }
        keys.clear();
        let mut times = columns.times.iter();
        for (stream, count) in counts.iter().enumerate() {
            let of_stream = times.by_ref().take(*count as usize);
            keys.extend(of_stream.map(|time| (*time, stream as u32, 0)));
        }
        let mut spare = Vec::new();
        sort(keys, &mut spare);
        keys.iter()
            .for_each(|(time, stream, _)| step(*time, *stream));
        sum
    }

    /// Visits the types of every stream's events, stream by stream: what following calls needs.
    fn by_stream(&self, layout: usize, columns: &Columns) -> u64 {
        let mut sums = vec![0_u64; self.streams];
        if layout < 2 {
            let lengths = lengths(&columns.streams, self.streams);
            let (mut next, _) = starts(&lengths, &columns.types, &self.elements);
            for (index, stream) in columns.streams.iter().enumerate() {
                let of_type = match layout {
                    0 => columns.types[index],
                    _ => columns.types[next[*stream as usize] as usize],
                };
                next[*stream as usize] += u32::from(layout == 1);
                let sum = &mut sums[*stream as usize];
                *sum = mix(*sum, columns.times[index] + u64::from(of_type));
            }
        } else {
            let mut at = 0;
            for (sum, count) in sums.iter_mut().zip(&columns.streams) {
                let range = at..at + *count as usize;
                at = range.end;
                let each = columns.times[range.clone()]
                    .iter()
                    .zip(&columns.types[range]);
                *sum = each.fold(0, |sum, (time, of_type)| {
                    mix(sum, time + u64::from(*of_type))
                });
            }
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    fn round(&self, runs: &[Run], costs: &mut [Cost; 3], sort_ns: &mut f64) {
        let events: usize = runs.iter().map(|run| run.times.len()).sum();
        let per_event = |start: Instant| start.elapsed().as_secs_f64() * 1e9 / events as f64;
        let least =
            |cost: &mut f64, now: f64| *cost = if *cost == 0.0 { now } else { cost.min(now) };
        let (mut keys, mut spare) = (Vec::new(), Vec::new());
        let start = Instant::now();
        order(runs, &mut keys, &mut spare);
        least(sort_ns, per_event(start));
        let counts: Vec<usize> = (0..self.elements.len())
            .map(|of_type| runs.iter().map(|run| run.values[of_type].len()).sum())
            .collect();
        let mut found = Vec::new();
        for (layout, cost) in costs.iter_mut().enumerate() {
            let (mut columns, mut raw) = (Columns::default(), Vec::new());
            // Once for the memory.
            for _ in 0..2 {
                let start = Instant::now();
                self.gather(layout, runs, &keys, &mut columns);
                least(&mut cost.gather, per_event(start));
                raw.clear();
                let start = Instant::now();
                columns.encode((layout == 2).then_some(self.streams), &mut raw);
                least(&mut cost.encode, per_event(start));
            }
            let start = Instant::now();
            let packed = zstd::bulk::compress(&raw, 1).expect("zstd");
            least(&mut cost.pack, per_event(start));
            cost.bytes = packed.len();
            let start = Instant::now();
            let raw = zstd::bulk::decompress(&packed, raw.len()).expect("zstd");
            least(&mut cost.unpack, per_event(start));
            let streams = if layout == 2 { self.streams } else { events };
            let start = Instant::now();
            columns.decode(&raw, (events, streams), &counts);
            least(&mut cost.decode, per_event(start));
            let mut sums = (0, 0);
            for _ in 0..2 {
                let start = Instant::now();
                sums.0 = self.walk(layout, &columns, &mut keys.clone());
                least(&mut cost.walk, per_event(start));
                let start = Instant::now();
                sums.1 = std::hint::black_box(self.by_stream(layout, &columns));
                least(&mut cost.of_stream, per_event(start));
            }
            found.push(sums);
        }
        assert!(found.iter().all(|sums| *sums == found[0]), "readers differ");
    }
}

fn main() {
    let (directory, _scratch) = program::directory();
    let (events, ranks) = (
        number("ANNALS_BENCH_EVENTS", 4_000_000),
        number("ANNALS_BENCH_RANKS", 64),
    );
    let trace = program::trace(&directory, events, ranks, None);
    let reader = Reader::open(&trace).expect("a trace");
    let types = reader.definitions().event_types.values();
    let bench = Bench {
        elements: types.map(|event_type| event_type.elements.len()).collect(),
        streams: reader.definitions().streams.len(),
    };
    let empty = Run {
        values: vec![Vec::new(); bench.elements.len()],
        ..Run::default()
    };
    let chunk = (64 * bench.streams).clamp(65_536, 1 << 20);
    let mut runs = vec![empty.clone(); bench.streams];
    let (mut waiting, mut costs, mut sort_ns) = (0, [Cost::default(); 3], 0.0);
    let mut rounds = number("ANNALS_BENCH_ROUNDS", 20);
    reader
        .for_each_event(&Query::new(), |event| {
            let run = &mut runs[event.stream().index()];
            run.times.push(event.time() as u64);
            run.types.push(event.event_type().get() as u16);
            // As the residuals of a clock of 2.6 GHz: 0 to 2.
            run.residuals.push(event.time() as u64 % 3);
            let values = event.elements().filter_map(|value| value.as_integer());
            run.values[event.event_type().index()].extend(values.map(|value| value as u64));
            waiting += 1;
            if waiting == chunk {
                bench.round(&runs, &mut costs, &mut sort_ns);
                runs.fill(empty.clone());
                waiting = 0;
                rounds -= 1;
            }
            if rounds == 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .expect("the trace is read");
    println!(
        "{} streams, {chunk} events in a chunk; ns per event, least",
        bench.streams
    );
    println!("radix sort of (time, stream, index): {sort_ns:.1}");
    println!("layout  gather encode  zstd | unzstd decode   walk  by stream | bytes per event");
    for (name, cost) in ["now", "A", "B"].into_iter().zip(costs) {
        println!(
            "{name:<6} {:>7.1} {:>6.1} {:>5.1} | {:>6.1} {:>6.1} {:>6.1} {:>10.1} | {:.2}",
            cost.gather,
            cost.encode,
            cost.pack,
            cost.unpack,
            cost.decode,
            cost.walk,
            cost.of_stream,
            cost.bytes as f64 / chunk as f64,
        );
    }
}
