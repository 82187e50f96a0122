//! The sweep over the axis: loads chunks when their time comes, and cuts windows.

use rayon::ThreadPool;
use rayon::prelude::*;

use annals_format::TraceLoss;

use crate::stream::{LossPlace, StreamReader};
use crate::window::{Slice, Window, WindowPlace};

/// Windows that are worked on at once. The same for any number of threads: it decides what is loaded
/// when, and so when a chunk is found to be damaged.
const WINDOWS_AT_ONCE: usize = 16;

/// Events of each stream in a window, if there are many streams: each stream costs a window something.
const EVENTS_PER_STREAM: usize = 128;

/// Longest step of the sweep, nanoseconds.
const LONGEST_NS: i64 = 1 << 60;

/// How far a merge has come.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    /// By stream.
    readers: Vec<StreamReader<'a>>,
    /// Events of a window, about.
    chunk_events: usize,
    /// All events before this time are handed out.
    now_ns: i64,
    /// How long the next window is, if it turns out so.
    span_ns: i64,
    is_done: bool,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(readers: Vec<StreamReader<'a>>, chunk_events: usize) -> Self {
        Self {
            readers,
            chunk_events: chunk_events.max(1),
            now_ns: i64::MIN,
            span_ns: 1_000_000,
            is_done: false,
        }
    }

    pub(crate) fn into_readers(self) -> Vec<StreamReader<'a>> {
        self.readers
    }

    /// The next windows, in order; none at the end.
    pub(crate) fn next_windows(&mut self, pool: &ThreadPool) -> Vec<Window<'a>> {
        let wanted = WINDOWS_AT_ONCE;
        let mut windows = Vec::with_capacity(wanted);
        if let Some(head_ns) = self.head_ns() {
            // What the windows will need, all at once.
            let from_ns = head_ns.max(self.now_ns);
            let ahead = self.span_ns.saturating_mul(wanted as i64).min(LONGEST_NS);
            let most = (wanted * 2 * self.chunk_events) as u64;
            let ahead = self.affordable(from_ns, ahead, most);
            self.load(pool, from_ns.saturating_add(ahead));
        }
        while windows.len() < wanted && !self.is_done {
            windows.extend(self.next_window(pool));
        }
        windows
    }

    fn head_ns(&self) -> Option<i64> {
        self.readers.iter().filter_map(StreamReader::head_ns).min()
    }

    /// Loads all chunks with events before a time.
    fn load(&mut self, pool: &ThreadPool, until_ns: i64) {
        loop {
            let readers = self.readers.iter().enumerate();
            let wanted: Vec<(usize, usize)> = readers
                .flat_map(|(reader, r)| r.wanted(until_ns).map(move |number| (reader, number)))
                .collect();
            if wanted.is_empty() {
                return;
            }
            let readers = &self.readers;
            let decode = |(reader, number): &(usize, usize)| readers[*reader].decode(*number);
            let decoded: Vec<_> = if wanted.len() == 1 {
                wanted.iter().map(decode).collect()
            } else {
                pool.install(|| wanted.par_iter().map(decode).collect())
            };
            for ((reader, _), decoded) in wanted.into_iter().zip(decoded) {
                self.readers[reader].take(decoded, self.now_ns);
            }
        }
    }

    /// Cuts the next window: about as many events as a chunk of the trace has, by times alone.
    fn next_window(&mut self, pool: &ThreadPool) -> Option<Window<'a>> {
        let Some(head_ns) = self.head_ns() else {
            self.is_done = true;
            return self.cut(self.now_ns, None);
        };
        let from_ns = head_ns.max(self.now_ns);
        let open = self.readers.iter().filter(|r| r.head_ns().is_some());
        // By content alone: the same events always give the same chunks.
        let target = open.count() * EVENTS_PER_STREAM;
        let target = target.clamp(self.chunk_events, 2 * self.chunk_events);
        let mut span = self.span_ns;
        let mut is_shrinking = false;
        loop {
            // Where few events are followed by many, a window that looks for more must not load them all.
            let affordable = self.affordable(from_ns, span, 4 * target as u64);
            is_shrinking |= affordable < span;
            span = affordable;
            let until_ns = from_ns.saturating_add(span);
            self.load(pool, until_ns);
            let count = self.count_before(until_ns);
            if count > 2 * target && span > 1 {
                is_shrinking = true;
                let share = i128::from(span) * target as i128 / count as i128;
                span = (share as i64).clamp(1, span - 1);
                continue;
            }
            let is_whole = count >= target / 2 || is_shrinking || span >= LONGEST_NS;
            if !is_whole && self.has_more(until_ns) {
                span = span.saturating_mul(2).min(LONGEST_NS);
                continue;
            }
            let next = i128::from(span) * target as i128 / count.max(1) as i128;
            self.span_ns = next.clamp(1, LONGEST_NS.into()) as i64;
            if self.has_more(until_ns) {
                let window = self.cut(from_ns, Some(until_ns));
                self.now_ns = until_ns;
                return window;
            }
            self.is_done = true;
            return self.cut(from_ns, None);
        }
    }

    /// The longest step, of this one and its halves, in which no more than so many events begin to be
    /// needed. By content alone: what is loaded already counts as well.
    fn affordable(&self, from_ns: i64, span_ns: i64, most: u64) -> i64 {
        let mut span_ns = span_ns;
        let needed = |span_ns: i64| {
            let until_ns = from_ns.saturating_add(span_ns);
            let each = self
                .readers
                .iter()
                .map(|reader| reader.events_of_chunks(from_ns, until_ns));
            each.fold(0, u64::saturating_add)
        };
        while span_ns > 1 && needed(span_ns) > most {
            span_ns /= 2;
        }
        span_ns
    }

    fn count_before(&self, until_ns: i64) -> usize {
        let lanes = self.readers.iter().flat_map(|reader| &reader.lanes);
        lanes
            .map(|lane| lane.batch.first_from(lane.at, until_ns) - lane.at)
            .sum()
    }

    /// Whether events come at or behind a time up to which all is loaded.
    fn has_more(&self, until_ns: i64) -> bool {
        until_ns != i64::MAX && self.readers.iter().any(|reader| reader.has_from(until_ns))
    }

    /// Takes the events before a time out of the readers, and the losses that stand there; none: all.
    fn cut(&mut self, from_ns: i64, until_ns: Option<i64>) -> Option<Window<'a>> {
        let mut slices = Vec::new();
        let mut losses = Vec::new();
        for reader in &mut self.readers {
            let first = slices.len();
            let mut numbers = Vec::new();
            for lane in &mut reader.lanes {
                let end = match until_ns {
                    Some(until_ns) => lane.batch.first_from(lane.at, until_ns),
                    None => lane.batch.len(),
                };
                if end > lane.at {
                    numbers.push(lane.number);
                    slices.push(Slice {
                        stream: reader.stream,
                        numbers: reader.numbers,
                        batch: lane.batch.clone(),
                        range: lane.at..end,
                    });
                    lane.at = end;
                }
            }
            reader.lanes.retain(|lane| lane.at < lane.batch.len());
            if reader.losses.is_empty() {
                continue;
            }
            let place_of = |place: LossPlace| match place {
                LossPlace::Event(number, index) => {
                    let slice = numbers.iter().position(|n| *n == number)? + first;
                    let is_here = slices[slice].range.contains(&index);
                    is_here.then_some(WindowPlace::Event(slice, index))
                }
                LossPlace::Time(time_ns) => until_ns
                    .is_none_or(|until_ns| time_ns < until_ns)
                    .then_some(WindowPlace::Time(time_ns)),
            };
            reader
                .losses
                .retain(|(place, loss): &(LossPlace, TraceLoss)| {
                    let here = place_of(*place);
                    losses.extend(here.map(|here| (here, *loss)));
                    here.is_none()
                });
        }
        let is_empty = slices.is_empty() && losses.is_empty();
        (!is_empty).then_some(Window {
            from_ns,
            slices,
            losses,
        })
    }
}
