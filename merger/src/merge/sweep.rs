//! The sweep over the axis: loads chunks when their time is reached, and cuts strips of equally many events.
//!
//! The ends of strips depend on the order alone: they are a fixed number of events apart. The time of loading and the
//! number of threads do not affect them.

use annals_format::{TraceLoss, fetch_ahead};
use rustc_hash::FxHashMap;

use crate::axis::strip::{Strip, StripPlace, StripSlice};
use crate::error::MergeError;
use crate::input::reader::{InputOutcome, InputReader};
use crate::input::stream::{LossPlace, WaitingChunk};
use crate::stages::{self, Stage};
use crate::workers::Workers;

/// Number of strips in progress for each thread, so that none waits long for the others.
const STRIPS_PER_THREAD: usize = 4;

/// Number of readers from which on each has so few events in a strip that several strips are
/// processed together.
const MANY_READERS: usize = 256;

/// Minimum number of strips that are loaded together, since each load checks every stream.
const STRIPS_AHEAD: usize = 4;

/// Maximum number of strips in progress.
const STRIPS_AT_ONCE: usize = 16;

/// Memory for an event of a strip, bytes: from its decoded chunk to its encoded one, which also waits while later
/// strips are processed.
const EVENT_BYTES: u64 = 144;

/// Events of each stream in a strip, if there are many streams: each stream costs a strip something.
const EVENTS_PER_STREAM: usize = 64;

/// Most events of a strip of many streams.
const MOST_EVENTS: usize = 1 << 18;

/// Prefetch distance, in lanes.
const LANES_AHEAD: usize = 4;

/// Prefetch distance, in lanes, of the batches: where their times are is known only when these are in the cache.
const BATCHES_AHEAD: usize = 2 * LANES_AHEAD;

/// Longest step of the sweep, nanoseconds.
const LONGEST_NS: i64 = 1 << 60;

/// When so few events are left to choose from, their times are gathered rather than searched for in every stream.
const FEW_EVENTS: usize = 1 << 13;

/// How far a merge has come.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    /// By stream.
    readers: Vec<InputReader<'a>>,
    /// Events of a strip.
    strip_events: usize,
    /// All events before this time are loaded.
    loaded_ns: i64,
    /// How many of these are in no strip yet.
    ready: usize,
    /// How long it takes, about, until a strip's events have happened.
    span_ns: i64,
    /// Number of strips in progress.
    at_once: usize,
    is_done: bool,
}

/// Where a strip ends.
#[derive(Debug)]
struct Border {
    /// Some of the events at this time may be before it, and some after.
    time_ns: i64,
    /// Lane by lane, the first event after it.
    ends: Vec<usize>,
}

impl<'a> Sweep<'a> {
    /// Creates a sweep over all events of `streams` streams. Strips have `strip_events` events, more with many streams;
    /// the memory limit determines how many of them are in progress.
    pub(crate) fn new(
        readers: Vec<InputReader<'a>>,
        streams: usize,
        strip_events: usize,
        memory_bytes: u64,
    ) -> Self {
        let strip_events = strip_events.max(1);
        let for_streams = streams.saturating_mul(EVENTS_PER_STREAM);
        let strip_events = strip_events.max(for_streams.min(MOST_EVENTS));
        let at_once = memory_bytes / EVENT_BYTES.saturating_mul(strip_events as u64);
        Self {
            strip_events,
            at_once: at_once.clamp(1, STRIPS_AT_ONCE as u64) as usize,
            readers,
            loaded_ns: i64::MIN,
            ready: 0,
            span_ns: 1_000_000,
            is_done: false,
        }
    }

    /// Returns what is left of the readers when all was read.
    pub(crate) fn into_outcomes(self) -> impl Iterator<Item = InputOutcome<'a>> {
        self.readers
            .into_iter()
            .filter_map(InputReader::into_outcome)
    }

    /// Returns why what one of the readers needs cannot be read, when that is no loss but a
    /// failure.
    pub(crate) fn failure(&mut self) -> Option<MergeError> {
        self.readers.iter_mut().find_map(InputReader::failure)
    }

    /// Strips that one thread works on together.
    pub(crate) fn bundle(&self) -> usize {
        match self.readers.len() {
            MANY_READERS.. => STRIPS_AHEAD.min(self.at_once),
            _ => 1,
        }
    }

    /// Returns the maximum number of strips in progress with this number of threads.
    pub(crate) fn at_once(&self, threads: usize) -> usize {
        let bundles = match threads {
            // A single thread waits for no other, and its strip is still in its cache.
            1 => 1,
            _ => threads.saturating_mul(STRIPS_PER_THREAD),
        };
        bundles.saturating_mul(self.bundle()).min(self.at_once)
    }

    /// Returns the next strips, in order, `most` or fewer; an empty list means the end.
    pub(crate) fn next_strips(&mut self, workers: &Workers, most: usize) -> Vec<Strip<'a>> {
        let mut strips = Vec::with_capacity(most);
        if self.is_done {
            return strips;
        }
        let wanted = self.strip_events.saturating_mul(most);
        if self.ready <= wanted {
            let at_once = self.at_once(workers.count());
            let strips = at_once.max(STRIPS_AHEAD.min(self.at_once));
            let ahead = self.strip_events.saturating_mul(strips);
            self.load_events(workers, ahead);
        }
        while strips.len() < most && self.ready > self.strip_events {
            strips.extend(self.cut_events(self.strip_events));
            self.ready -= self.strip_events;
        }
        if self.ready <= self.strip_events && self.is_all_loaded() {
            self.is_done = true;
            strips.extend(self.cut(None));
        }
        strips
    }

    fn head_ns(&self) -> Option<i64> {
        self.readers.iter().filter_map(InputReader::head_ns).min()
    }

    fn is_all_loaded(&self) -> bool {
        self.readers.iter().all(InputReader::is_all_loaded)
    }

    fn lanes(&self) -> impl Iterator<Item = &WaitingChunk> {
        self.readers.iter().flat_map(InputReader::lanes)
    }

    /// Loads until more than `wanted` events are ready, or all are loaded.
    fn load_events(&mut self, workers: &Workers, wanted: usize) {
        while !self.is_all_loaded() {
            let Some(head_ns) = self.head_ns().filter(|_| self.ready <= wanted) else {
                return;
            };
            let from_ns = head_ns.max(self.loaded_ns);
            // Up to the estimated time of the last wanted event. Never in small steps: each step
            // checks every stream.
            let missing = (wanted - self.ready).max(self.strip_events / 2) as i128 + 1;
            let span_ns = i128::from(self.span_ns) * missing / self.strip_events as i128;
            let span_ns = span_ns.clamp(1, LONGEST_NS.into()) as i64;
            // Where few events are followed by many, a step must not load them all.
            let span_ns = self.affordable(from_ns, span_ns, (missing as u64).saturating_mul(2));
            self.loaded_ns = from_ns.saturating_add(span_ns);
            self.load(workers);
            let count = self.count_before(self.loaded_ns);
            let found = count - self.ready;
            self.ready = count;
            let rate = i128::from(span_ns) * self.strip_events as i128 / found.max(1) as i128;
            // Never more than eight times what it was: the next step may find more.
            let most = i128::from(span_ns).saturating_mul(8);
            self.span_ns = rate.min(most).clamp(1, LONGEST_NS.into()) as i64;
        }
        self.ready = self.lanes().map(WaitingChunk::len).sum();
    }

    /// Loads all chunks with events before the time up to which all is to be loaded.
    fn load(&mut self, workers: &Workers) {
        loop {
            let readers = self.readers.iter().enumerate();
            let wanted: Vec<(usize, usize)> = readers
                .flat_map(|(reader, r)| {
                    r.wanted(self.loaded_ns).map(move |number| (reader, number))
                })
                .collect();
            if wanted.is_empty() {
                return;
            }
            let readers = &self.readers;
            let decode = |(reader, number): &(usize, usize)| {
                stages::during(Stage::Decode, || readers[*reader].decode(*number))
            };
            let decoded: Vec<_> = match wanted.as_slice() {
                [only] => vec![decode(only)],
                _ => workers.map(&wanted, decode),
            };
            for ((reader, _), decoded) in wanted.into_iter().zip(decoded) {
                self.readers[reader].take(decoded);
            }
        }
    }

    /// Returns the longest step, out of this one and its repeated halves, in which at most `most` events begin to be
    /// needed.
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
        let mut ahead = self.lanes();
        ahead.by_ref().take(LANES_AHEAD).for_each(drop);
        let counts = self.lanes().map(|lane| {
            if let Some(later) = ahead.next() {
                later.batch.fetch_times(later.at);
            }
            lane.first_from(lane.at, until_ns) - lane.at
        });
        counts.sum()
    }

    /// Cuts a strip of the next `count` events; there must be more.
    fn cut_events(&mut self, count: usize) -> Option<Strip<'a>> {
        let border = self.border(count, self.head_ns()?);
        self.cut(Some(border))
    }

    /// Returns the border after `count` events in the global order. There must be more, and `head_ns` is the first's
    /// time.
    fn border(&self, count: usize, head_ns: i64) -> Border {
        // How many are before `low_ns` is at most `count`, before `high_ns` more. Lane by lane, the first event that is not
        // before them: each access to a lane leaves less of it to search.
        let (mut low_ns, mut below) = (head_ns, 0);
        let mut high_ns = i64::MAX;
        let mut above = None;
        let lanes: Vec<&WaitingChunk> = self.lanes().collect();
        let mut lows: Vec<usize> = lanes.iter().map(|lane| lane.at).collect();
        let mut highs: Vec<usize> = lanes.iter().map(|lane| lane.end).collect();
        let mut found = Vec::with_capacity(lows.len());
        let mut guess_ns = head_ns.saturating_add(self.span_ns);
        while above.is_none_or(|above: usize| above - below > FEW_EVENTS)
            && high_ns.abs_diff(low_ns) > 1
        {
            let guess = guess_ns.clamp(low_ns.saturating_add(1), high_ns - 1);
            let before = find(&lanes, guess, &lows, &highs, &mut found);
            if before <= count {
                (low_ns, below) = (guess, before);
                std::mem::swap(&mut lows, &mut found);
            } else {
                (high_ns, above) = (guess, Some(before));
                std::mem::swap(&mut highs, &mut found);
            }
            let span = i128::from(high_ns) - i128::from(low_ns);
            guess_ns = match above {
                // A little beyond where it should be, so that both ends come near.
                Some(above) => {
                    let missing = (count - below) as i128 * 2 + 1;
                    let part = span * missing / ((above - below) as i128 * 2);
                    // Where times are uneven, half the way is sure to get there.
                    let part = part.clamp(span / 16, span - span / 16);
                    (i128::from(low_ns) + part) as i64
                }
                None => {
                    let done = (i128::from(low_ns) - i128::from(head_ns)).max(1);
                    let next = i128::from(head_ns) + done.saturating_mul(2);
                    next.min(i64::MAX.into()) as i64
                }
            };
        }
        let mut times = Vec::with_capacity(FEW_EVENTS);
        for ((lane, low), high) in lanes.iter().zip(&lows).zip(&highs) {
            lane.batch.put_times(*low..*high, &mut times);
        }
        let time_ns = match times.get(count - below) {
            Some(_) => *times.select_nth_unstable(count - below).1,
            None => low_ns,
        };
        let before = find(&lanes, time_ns, &lows, &highs, &mut found);
        self.share_ties(time_ns, count - before, &mut found);
        Border {
            time_ns,
            ends: found,
        }
    }

    /// Moves the ends of lanes after the first `more` events at a time, in the global order. The ends are before all of
    /// them.
    fn share_ties(&self, time_ns: i64, mut more: usize, ends: &mut [usize]) {
        if more == 0 {
            return;
        }
        let until_ns = time_ns.saturating_add(1);
        let mut ties = Vec::new();
        for (number, (lane, end)) in self.lanes().zip(&*ends).enumerate() {
            let count = lane.first_from(*end, until_ns) - end;
            if count != 0 {
                ties.push((lane.stream, number, count));
            }
        }
        // Lanes of a stream are in its order.
        ties.sort_by_key(|(stream, ..)| *stream);
        for (_, number, count) in ties {
            let own = count.min(more);
            ends[number] += own;
            more -= own;
        }
    }

    /// Takes the events and losses before a border out of the readers. `None` means all.
    fn cut(&mut self, border: Option<Border>) -> Option<Strip<'a>> {
        let until_ns = border.as_ref().map_or(i64::MAX, |border| border.time_ns);
        let mut ends = border.map(|border| border.ends.into_iter());
        // Each with its reader and the number of its batch there.
        let mut slices: Vec<(StripSlice<'a>, usize, u64)> = Vec::new();
        let mut found: Vec<(usize, LossPlace, TraceLoss)> = Vec::new();
        for (number, reader) in self.readers.iter_mut().enumerate() {
            let names = reader.numbers();
            for lane in reader.lanes_mut() {
                let end = ends.as_mut().map_or(Some(lane.end), Iterator::next);
                let end = end.unwrap_or(lane.end);
                if end > lane.at {
                    let slice = StripSlice {
                        stream: lane.stream,
                        numbers: names,
                        batch: lane.batch.clone(),
                        range: lane.at..end,
                    };
                    slices.push((slice, number, lane.number));
                    lane.at = end;
                }
            }
            if !reader.losses().is_empty() {
                let losses = reader.losses().iter();
                found.extend(losses.map(|(place, loss)| (number, *place, *loss)));
            }
            reader.lanes_mut().retain(|lane| lane.at < lane.end);
        }
        // Traces and runs have many streams.
        if !slices.is_sorted_by_key(|(slice, ..)| slice.stream) {
            slices.sort_by_key(|(slice, ..)| slice.stream);
        }
        let mut losses = Vec::new();
        if !found.is_empty() {
            let mut of_batches: FxHashMap<(usize, u64), Vec<usize>> = FxHashMap::default();
            for (number, (_, reader, batch)) in slices.iter().enumerate() {
                of_batches
                    .entry((*reader, *batch))
                    .or_default()
                    .push(number);
            }
            let place_of = |reader: usize, place: LossPlace| match place {
                LossPlace::Event(batch, index) => {
                    let numbers = of_batches.get(&(reader, batch))?;
                    let is_here = |number: &&usize| slices[**number].0.range.contains(&index);
                    let slice = numbers.iter().find(is_here)?;
                    Some(StripPlace::Event(*slice, index))
                }
                LossPlace::Time(time_ns) => {
                    (time_ns <= until_ns).then_some(StripPlace::Time(time_ns))
                }
            };
            let mut left: Vec<bool> = Vec::with_capacity(found.len());
            for (reader, place, loss) in &found {
                let here = place_of(*reader, *place);
                left.push(here.is_none());
                losses.extend(here.map(|here| (here, *loss)));
            }
            let mut left = left.into_iter();
            for reader in &mut self.readers {
                reader.losses().retain(|_| left.next().unwrap_or(true));
            }
        }
        let slices: Vec<StripSlice<'a>> = slices.into_iter().map(|(slice, ..)| slice).collect();
        let is_empty = slices.is_empty() && losses.is_empty();
        (!is_empty).then_some(Strip { slices, losses })
    }
}

/// Finds, lane by lane, the first event between two that is not before a time. Returns how many events are before these.
fn find(
    lanes: &[&WaitingChunk],
    time_ns: i64,
    lows: &[usize],
    highs: &[usize],
    found: &mut Vec<usize>,
) -> usize {
    found.clear();
    let mut count = 0;
    for (number, lane) in lanes.iter().enumerate() {
        if let Some(later) = lanes.get(number + BATCHES_AHEAD) {
            fetch_ahead(std::slice::from_ref(&*later.batch), 0);
        }
        if let Some(later) = lanes.get(number + LANES_AHEAD) {
            later.batch.fetch_times(lows[number + LANES_AHEAD]);
        }
        let at = lane.batch.first_from(lows[number]..highs[number], time_ns);
        count += at - lane.at;
        found.push(at);
    }
    count
}
