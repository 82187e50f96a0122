//! Intervals between events that begin and events that end something: how long, and how many at a time.
//!
//! A begin and an end belong together when they are of one process and have the same key; of several that are open with one
//! key, the first that began ends first. Slices gather the events; they are paired in the order of the trace.

use std::collections::{BTreeMap, VecDeque};

use annals_format::{EventTypeId, Histogram};
use annals_merger::{
    Analysis, Event, Pass, Places, Query, ReadSummary, Reader, Result, SliceLength, Window,
};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::bins::{bin_of, bin_start, bounded};
use crate::losses::concerns;

/// Intervals that may be open at one time; begins beyond that are left out.
pub const MOST_OPEN_INTERVALS: usize = 1 << 22;

/// Events that the first slice gathers before it pairs them.
const GATHERED: usize = 1 << 16;

/// Event types that begin and end intervals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntervalPair {
    /// Begins.
    pub begin: EventTypeId,
    /// Ends.
    pub end: EventTypeId,
    /// The places of the key among the elements of both. `None` if there is no key.
    pub keys: Option<(usize, usize)>,
}

/// The intervals of a pair of event types. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct IntervalRow {
    /// Name of the event type of the begins.
    pub begin: String,
    /// Name of the event type of the ends.
    pub end: String,
    /// Name of the key.
    pub key: Option<String>,
    /// The rank. `None` means all ranks together.
    pub rank: Option<u32>,
    /// Number of intervals with begin and end.
    pub count: u64,
    /// Begun and not ended.
    pub open: u64,
    /// Ended without a begin.
    pub unmatched: u64,
    /// Sum of all durations.
    pub total_ns: i64,
    /// Mean duration, rounded down.
    pub mean_ns: Option<i64>,
    /// Shortest duration.
    pub min_ns: Option<i64>,
    /// Longest duration.
    pub max_ns: Option<i64>,
    /// Median.
    pub p50_ns: Option<i64>,
    /// 95th percentile.
    pub p95_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// Largest number of intervals that were open concurrently.
    pub max_in_flight: u64,
    /// Several intervals of one key, or without a key, were open in a process concurrently, and were ended in the order of their
    /// begins: min, max and percentiles are those of this pairing, not of single intervals. Count and max_in_flight are exact; total
    /// and mean are, too, unless some intervals are open or unmatched.
    pub is_paired_in_order: bool,
    /// The largest number in flight in each part of the window.
    pub in_flight: Vec<IntervalPoint>,
    /// Whether a loss may have changed the row.
    pub is_uncertain: bool,
    /// Events of the two types that were lost, of those whose type is known.
    pub lost: u64,
    /// Whether more may be lost.
    pub lost_is_lower_bound: bool,
}

crate::columns! {
    IntervalRow, uncertain is_uncertain, json in_flight;
    "begin" Name, |row| &row.begin;
    "end" Name, |row| &row.end;
    "" Name headed "interval", |row| format!("{} .. {}", row.begin, row.end);
    "key" Name headed "key", |row| &row.key;
    "rank" Number if_any "rank", |row| row.rank;
    "count" Count marked "count", |row| row.count;
    "open" Count marked "open", |row| row.open;
    "unmatched" Count marked_if_room "unmatched", |row| row.unmatched;
    "total_ns" Duration marked "total", |row| row.total_ns;
    "mean_ns" Duration marked "mean", |row| row.mean_ns;
    "min_ns" Duration if_room "min", |row| row.min_ns;
    "p50_ns" Duration, |row| row.p50_ns;
    "p95_ns" Duration if_room "p95", |row| row.p95_ns;
    "p99_ns" Duration, |row| row.p99_ns;
    "max_ns" Duration headed "max", |row| row.max_ns;
    "max_in_flight" Count marked_if_room "max in flight", |row| row.max_in_flight;
    "is_paired_in_order" Flag if_any "paired in order", |row| row.is_paired_in_order;
    "is_uncertain" Flag, |row| row.is_uncertain;
    "lost" Count, |row| row.lost;
    "lost_is_lower_bound" Flag, |row| row.lost_is_lower_bound;
}

/// The largest number of intervals that were open concurrently in a part of the window.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct IntervalPoint {
    /// Trace time at which the part starts, nanoseconds.
    pub from_ns: i64,
    /// The number.
    pub count: u64,
}

/// The intervals of a window.
#[derive(Clone, Debug, Serialize)]
pub struct Intervals {
    /// By pair of event types, and by rank if that was asked for.
    pub intervals: Vec<IntervalRow>,
    /// Begins that are left out because too many intervals were open.
    #[serde(skip)]
    pub over_limit: u64,
}

#[derive(Default)]
struct Tally {
    durations: Histogram,
    unmatched: u64,
    in_flight: u64,
    most: u64,
    is_paired_in_order: bool,
    /// By part that something changed in: the largest number in it, and the last.
    parts: BTreeMap<usize, (u64, u64)>,
    /// The part of the last change, with its numbers: nearly all changes are in the part of the one before.
    current: Option<(usize, (u64, u64))>,
}

impl Tally {
    fn change(&mut self, part: usize, more: i64) {
        let before = self.in_flight;
        self.in_flight = before.saturating_add_signed(more);
        self.most = self.most.max(self.in_flight);
        let (most, last) = match &mut self.current {
            Some((current, numbers)) if *current == part => numbers,
            _ => {
                self.keep_current();
                let numbers = self.parts.get(&part).copied().unwrap_or((before, before));
                &mut self.current.insert((part, numbers)).1
            }
        };
        *most = (*most).max(self.in_flight);
        *last = self.in_flight;
    }

    fn keep_current(&mut self) {
        let (parts, current) = (&mut self.parts, self.current.take());
        parts.extend(current);
    }

    fn points(&self, window: Window, parts: usize) -> Vec<IntervalPoint> {
        let mut last = 0;
        let points = (0..parts).map(|part| {
            let (most, at_end) = self.parts.get(&part).copied().unwrap_or((last, last));
            last = at_end;
            IntervalPoint {
                from_ns: bin_start(window, parts, part),
                count: most,
            }
        });
        points.collect()
    }
}

/// The role of an event type in the pairs.
#[derive(Clone, Copy)]
struct Use {
    pair: usize,
    is_begin: bool,
}

/// Pair, process, rank and key of intervals.
type Key = (usize, u32, u32, i128);

/// A begin or an end.
#[derive(Clone, Copy)]
struct Item {
    time_ns: i64,
    /// Number of its key in the slice.
    key: u32,
    part: u32,
    is_begin: bool,
}

/// Data that all threads share.
struct Shared<'a> {
    uses: FxHashMap<EventTypeId, Use>,
    pairs: &'a [IntervalPair],
    places: Places,
    window: Window,
    parts: usize,
    is_by_rank: bool,
}

/// The pairing. Only the first state has it.
#[derive(Default)]
struct Paired {
    /// Places of the begins that wait for their ends in `queues`.
    open: FxHashMap<Key, u32>,
    queues: Vec<VecDeque<i64>>,
    free: Vec<u32>,
    waiting: usize,
    over_limit: u64,
    /// The number of a row's tally, by pair and rank; rank `None`: all.
    rows: BTreeMap<(usize, Option<u32>), usize>,
    tallies: Vec<Tally>,
}

impl Paired {
    fn row(&mut self, pair: usize, rank: Option<u32>) -> usize {
        let next = self.tallies.len();
        let row = *self.rows.entry((pair, rank)).or_insert(next);
        if row == next {
            self.tallies.push(Tally::default());
        }
        row
    }

    /// Returns the place of an empty queue.
    fn new_queue(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.queues.push(VecDeque::new());
            self.queues.len() as u32 - 1
        })
    }

    fn feed(&mut self, shared: &Shared<'_>, keys: &[Key], items: &[Item]) {
        let of_keys = keys.iter().map(|key| {
            let rank = shared.is_by_rank.then_some(key.2);
            let of_rank = rank.map(|rank| self.row(key.0, Some(rank)));
            let known = self.open.get(key).copied();
            let queue = known.unwrap_or_else(|| self.new_queue());
            (queue, known.is_some(), self.row(key.0, None), of_rank)
        });
        let of_keys: Vec<(u32, bool, usize, Option<usize>)> = of_keys.collect();
        for item in items {
            let (queue, _, of_all, of_rank) = of_keys[item.key as usize];
            let queue = &mut self.queues[queue as usize];
            let rows = [Some(of_all), of_rank].into_iter().flatten();
            let part = item.part as usize;
            if item.is_begin {
                if self.waiting >= MOST_OPEN_INTERVALS {
                    self.over_limit += 1;
                    continue;
                }
                self.waiting += 1;
                queue.push_back(item.time_ns);
                rows.for_each(|row| self.tallies[row].change(part, 1));
                continue;
            }
            let begun = queue.pop_front();
            self.waiting -= usize::from(begun.is_some());
            for row in rows {
                let tally = &mut self.tallies[row];
                match begun {
                    Some(begun_ns) => {
                        tally.durations.add(item.time_ns - begun_ns);
                        // With others of its key open, it may be the end of any of them.
                        tally.is_paired_in_order |= !queue.is_empty();
                        tally.change(part, -1);
                    }
                    None => tally.unmatched += 1,
                }
            }
        }
        for (key, (queue, is_known, ..)) in keys.iter().zip(of_keys) {
            let is_open = !self.queues[queue as usize].is_empty();
            if is_open && !is_known {
                self.open.insert(*key, queue);
            }
            if !is_open {
                self.free.push(queue);
                if is_known {
                    self.open.remove(key);
                }
            }
        }
    }
}

/// The begins and ends of a slice.
struct IntervalState<'a> {
    shared: &'a Shared<'a>,
    paired: Option<Paired>,
    numbers: FxHashMap<Key, u32>,
    keys: Vec<Key>,
    items: Vec<Item>,
}

impl IntervalState<'_> {
    fn flush(&mut self) {
        if let Some(paired) = &mut self.paired {
            paired.feed(self.shared, &self.keys, &self.items);
            self.items.clear();
            self.keys.clear();
            self.numbers.clear();
        }
    }
}

impl Analysis for IntervalState<'_> {
    const PASS: Pass = Pass::Events;
    const SLICES: SliceLength = SliceLength::Short;

    fn event(&mut self, event: &Event<'_>) {
        let shared = self.shared;
        let Some(Use { pair, is_begin }) = shared.uses.get(&event.event_type()).copied() else {
            return;
        };
        let key = shared.pairs[pair].keys.and_then(|(begin, end)| {
            let at = if is_begin { begin } else { end };
            event.element(at).as_integer()
        });
        let place = shared.places.get(event.stream());
        let key = (pair, place.process.get(), place.rank, key.unwrap_or(0));
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
        }
        self.items.push(Item {
            time_ns: event.time(),
            key: number,
            part: match shared.parts {
                0 | 1 => 0,
                parts => bin_of(shared.window, parts, event.time()) as u32,
            },
            is_begin,
        });
        if self.paired.is_some() && self.items.len() >= GATHERED {
            self.flush();
        }
    }

    fn merge(&mut self, later: Self) {
        self.flush();
        if let Some(paired) = &mut self.paired {
            paired.feed(self.shared, &later.keys, &later.items);
        }
    }
}

/// What losses took of some event types.
#[derive(Clone, Copy, Default)]
struct Lost {
    is_any: bool,
    /// Events whose type is known.
    count: u64,
    is_lower_bound: bool,
}

impl Lost {
    fn add(&mut self, more: Self) {
        self.is_any |= more.is_any;
        self.count = self.count.saturating_add(more.count);
        self.is_lower_bound |= more.is_lower_bound;
    }
}

/// The losses in a query by rank and event type. Rank `None`: all; event type `None`: it is not known.
struct LostByType(FxHashMap<(Option<u32>, Option<EventTypeId>), Lost>);

impl LostByType {
    fn new(summary: &ReadSummary, query: &Query, shared: &Shared<'_>) -> Self {
        let mut found: FxHashMap<_, Lost> = FxHashMap::default();
        let losses = summary.losses.iter();
        let losses = losses.filter(|loss| !loss.cause.is_suppressed());
        for loss in losses.filter(|loss| concerns(loss, query, |_| true)) {
            let is_known = loss.event_type.is_some();
            let lost = Lost {
                is_any: true,
                count: if is_known { loss.count } else { 0 },
                is_lower_bound: loss.is_lower_bound || !is_known,
            };
            let rank = shared.places.get(loss.stream).rank;
            for rank in [None, Some(rank)] {
                let of = found.entry((rank, loss.event_type)).or_default();
                of.add(lost);
            }
        }
        Self(found)
    }

    /// Returns the losses that may have had begins or ends of a pair.
    fn of_pair(&self, pair: &IntervalPair, rank: Option<u32>) -> Lost {
        let end = (pair.end != pair.begin).then_some(pair.end);
        let types = [Some(Some(pair.begin)), end.map(Some), Some(None)];
        let mut sum = Lost::default();
        for event_type in types.into_iter().flatten() {
            sum.add(self.0.get(&(rank, event_type)).copied().unwrap_or_default());
        }
        sum
    }
}

/// Returns the intervals between events of the query. `parts` is the number of parts of the window in which intervals in flight
/// are counted.
///
/// # Errors
/// If the storage fails.
pub fn intervals(
    reader: &Reader,
    query: &Query,
    pairs: &[IntervalPair],
    is_by_rank: bool,
    parts: usize,
) -> Result<(Intervals, ReadSummary)> {
    let definitions = reader.definitions();
    let mut uses: FxHashMap<EventTypeId, Use> = FxHashMap::default();
    for (pair, types) in pairs.iter().enumerate() {
        for (event_type, is_begin) in [(types.begin, true), (types.end, false)] {
            uses.entry(event_type).or_insert(Use { pair, is_begin });
        }
    }
    let types: Vec<EventTypeId> = uses.keys().copied().collect();
    let shared = Shared {
        uses,
        pairs,
        places: Places::of(definitions),
        window: bounded(reader, query.window()),
        parts,
        is_by_rank,
    };
    let new = |slice| IntervalState {
        shared: &shared,
        paired: (slice == 0).then(Paired::default),
        numbers: FxHashMap::default(),
        keys: Vec::new(),
        items: Vec::new(),
    };
    let (mut state, summary) = reader.run(&query.of_event_types(types), new)?;
    state.flush();
    let mut paired = state.paired.unwrap_or_default();
    for pair in 0..pairs.len() {
        paired.row(pair, None);
    }
    paired.tallies.iter_mut().for_each(Tally::keep_current);
    let lost = LostByType::new(&summary, query, &shared);
    let rows = paired.rows.iter().map(|((number, rank), tally)| {
        let (pair, tally) = (pairs[*number], &paired.tallies[*tally]);
        let lost = lost.of_pair(&pair, *rank);
        let element = pair
            .keys
            .and_then(|(begin, _)| definitions.event_types[&pair.begin].elements.get(begin));
        let d = &tally.durations;
        IntervalRow {
            begin: definitions.event_type_name(pair.begin),
            end: definitions.event_type_name(pair.end),
            key: element.map(|element| definitions.string(element.name).to_owned()),
            rank: *rank,
            count: d.count(),
            open: tally.in_flight,
            unmatched: tally.unmatched,
            total_ns: d.sum(),
            mean_ns: d.mean(),
            min_ns: d.min(),
            max_ns: d.max(),
            p50_ns: d.percentile(50),
            p95_ns: d.percentile(95),
            p99_ns: d.percentile(99),
            max_in_flight: tally.most,
            is_paired_in_order: tally.is_paired_in_order,
            in_flight: tally.points(shared.window, parts),
            is_uncertain: lost.is_any,
            lost: lost.count,
            lost_is_lower_bound: lost.is_lower_bound,
        }
    });
    let intervals = Intervals {
        intervals: rows.collect(),
        over_limit: paired.over_limit,
    };
    Ok((intervals, summary))
}
