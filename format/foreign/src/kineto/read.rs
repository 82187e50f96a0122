//! A file is read: its events are put on disk, sorted, and what is needed of all of them is kept.

use std::cmp::Reverse;
use std::io;
use std::path::{Path, PathBuf};

use annals_format::Problem;
use rustc_hash::FxHashMap;

use super::agree::Agreed;
use super::calls::{CallTable, kind_of};
use super::json::{Event, Header, Json, Number, Text};
use super::link::Links;
use super::sorted::{Kind, NO_CALL, NONE, Place, Record, Sorted, Sorter};
use crate::compressed;
use crate::conversion::{DIGEST_START, Options, digest};
use crate::error::{ForeignError, Result};

/// Number of locations of a file.
const MOST_LOCATIONS: usize = 1 << 12;
/// Number of names of slices of a file, and their bytes. Slices with other names have one in common.
const MOST_NAMES: usize = 1 << 17;
const MOST_NAME_BYTES: usize = 8 << 20;
/// Number of places with problems that are kept.
const MOST_PROBLEMS: usize = 1000;
/// Number of events after which progress is reported.
const EVENTS_A_REPORT: u64 = 1 << 14;
/// Number of blocks of a set of correlations.
const MOST_BLOCKS: usize = 1 << 10;

/// A thread, or a stream of a device.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// Numbers of the process or device and of the thread or stream, as they are in the file.
    pub(super) process: String,
    pub(super) thread: String,
    pub(super) is_device: bool,
    /// The name that the file has for it.
    pub(super) name: String,
}

/// A set of numbers many of which follow one another.
#[derive(Default)]
pub(super) struct NumberSet {
    blocks: FxHashMap<u64, Box<[u64; 1024]>>,
}

impl NumberSet {
    /// Adds a number. Returns whether it is new; false also if there is no room.
    pub(super) fn add(&mut self, number: u64) -> bool {
        let is_full = self.blocks.len() >= MOST_BLOCKS;
        let block = match self.blocks.entry(number >> 16) {
            std::collections::hash_map::Entry::Vacant(_) if is_full => return false,
            entry => entry.or_insert_with(|| Box::new([0; 1024])),
        };
        let bit = 1 << (number & 63);
        let word = &mut block[(number >> 6 & 1023) as usize];
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(super) fn has(&self, number: u64) -> bool {
        let block = self.blocks.get(&(number >> 16));
        block.is_some_and(|block| block[(number >> 6 & 1023) as usize] >> (number & 63) & 1 == 1)
    }
}

/// What is left out or guessed, for readers.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    /// Events that are no slices or moments: counters.
    pub(super) counters: u64,
    /// Slices whose names had no room.
    pub(super) unnamed: u64,
    /// Operations that are matched by their order, and those that are not matched.
    pub(super) by_order: u64,
    pub(super) unmatched: u64,
    /// Whether neither the file nor its name has its rank.
    pub(super) is_rank_assumed: bool,
}

/// A file that has been read.
pub(super) struct ReadTrace {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    /// Its rank, once that is decided.
    pub(super) rank: u32,
    pub(super) locations: Vec<Location>,
    pub(super) table: CallTable,
    pub(super) sorted: Sorted,
    /// Correlations of runtime calls, and of what runs on devices.
    pub(super) launches: NumberSet,
    pub(super) launched: NumberSet,
    pub(super) operations: Links,
    /// By the number of their events in the file: operations, and their numbers in their groups.
    pub(super) agreed: FxHashMap<u64, (usize, Agreed)>,
    /// Identity of the contents.
    pub(super) identity: u128,
    /// First and last time, nanoseconds, without the base.
    pub(super) span: Option<(i64, i64)>,
    pub(super) bytes: u64,
    pub(super) problems: Vec<Problem>,
    pub(super) counts: Counts,
    pub(super) keeps_arguments: bool,
}

impl ReadTrace {
    /// Sets what is agreed of an operation.
    pub(super) fn agree(&mut self, number: usize, agreed: Agreed) {
        let order = self.operations.operations[number].order;
        self.agreed.insert(order, (number, agreed));
    }
}

/// Takes the events of a file.
struct Reading {
    sorter: Sorter,
    locations: Vec<Location>,
    location_numbers: FxHashMap<String, u32>,
    /// Names of threads and processes by their numbers, from events that may be before or after all others.
    thread_names: FxHashMap<String, String>,
    names: Vec<u8>,
    name_numbers: FxHashMap<String, u32>,
    table: CallTable,
    launches: NumberSet,
    launched: NumberSet,
    identity: u64,
    events: u64,
    span: Option<(i64, i64)>,
    problems: Vec<Problem>,
    counts: Counts,
    keeps_arguments: bool,
    key: String,
}

/// Reads a file.
///
/// # Errors
/// If it cannot be opened, it has no events, its events cannot be written, or the conversion was stopped.
pub(super) fn read(
    path: &Path,
    directory: &Path,
    sorting_bytes: usize,
    options: &Options<'_>,
) -> Result<ReadTrace> {
    let io = ForeignError::io("read", path);
    let not_written = ForeignError::not_written(directory);
    let source = compressed::open(path).map_err(io)?;
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    let mut json = Json::new(source, options.keeps_arguments);
    let mut reading = Reading {
        sorter: Sorter::new(directory, sorting_bytes).map_err(not_written)?,
        locations: Vec::new(),
        location_numbers: FxHashMap::default(),
        thread_names: FxHashMap::default(),
        names: Vec::new(),
        name_numbers: FxHashMap::default(),
        table: CallTable::default(),
        launches: NumberSet::default(),
        launched: NumberSet::default(),
        identity: 0,
        events: 0,
        span: None,
        problems: Vec::new(),
        counts: Counts::default(),
        keeps_arguments: options.keeps_arguments,
        key: String::new(),
    };
    let mut stopped = None;
    let outcome = json.read(|event| {
        let taken = reading.take(event).map_err(not_written);
        let reported = match reading.events.is_multiple_of(EVENTS_A_REPORT) {
            true => options.report(0),
            false => Ok(()),
        };
        stopped = taken.and(reported).err();
        stopped.is_none()
    });
    if let Some(error) = stopped {
        return Err(error);
    }
    if let Err(error) = outcome {
        let offset = json.offset();
        if reading.events == 0 {
            let what = format!("at byte {offset}: {error}");
            return Err(io(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let what = format!("the rest cannot be read: {error}");
        reading.problems.push(Problem::new(offset, 0, what));
    }
    if reading.events == 0 {
        let what = "it has no events: a member `traceEvents` expected";
        return Err(io(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    options.report(bytes)?;
    reading
        .finish(path, bytes, json.header)
        .map_err(not_written)
}

impl Reading {
    fn problem(&mut self, what: &str) {
        if self.problems.len() < MOST_PROBLEMS {
            let what = format!("event {}: {what}", self.events);
            self.problems.push(Problem::new(0, 0, what));
        }
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        self.events += 1;
        let (kind, duration_ns) = match event.phase.as_str() {
            "X" if event.category == "Trace" => return Ok(()),
            "X" => (kind_of(event), event.duration_ns),
            "i" if event.category == "cpu_instant_event" => (Kind::Instant, Some(0)),
            "C" => {
                self.counts.counters += 1;
                return Ok(());
            }
            "M" => {
                self.take_name(event);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let Some(start_ns) = event.start_ns else {
            self.problem("expected a time `ts` in microseconds");
            return Ok(());
        };
        let duration_ns = duration_ns.and_then(|duration| u64::try_from(duration).ok());
        let Some(duration_ns) = duration_ns else {
            self.problem("expected a duration `dur` in microseconds, not below 0");
            return Ok(());
        };
        let end_ns = start_ns.saturating_add_unsigned(duration_ns);
        let span = self.span.get_or_insert((start_ns, end_ns));
        *span = (span.0.min(start_ns), span.1.max(end_ns));
        self.identity = (self.identity.rotate_left(5) ^ start_ns as u64 ^ duration_ns << 32)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Some(location) = self.location(event, kind) else {
            self.problem("too many threads and streams: it is left out");
            return Ok(());
        };
        let correlation = event.unsigned(Number::Correlation).unwrap_or(NONE);
        if correlation != NONE && correlation != 0 {
            match kind {
                Kind::Runtime => drop(self.launches.add(correlation)),
                kind if kind.is_on_device() => drop(self.launched.add(correlation)),
                _ => {}
            }
        }
        let record = Record {
            place: Place {
                location,
                start_ns,
                duration_ns: Reverse(duration_ns),
                order: self.events,
            },
            kind,
            region: self.region(event),
            call: self.table.add(event, kind).unwrap_or(NO_CALL),
            correlation,
            external_id: event.unsigned(Number::ExternalId).unwrap_or(NONE),
        };
        let text = self.text(event, kind);
        self.sorter.add(record, text.as_bytes())
    }

    /// Returns what is kept of the arguments of an event, in the order of the elements of its type (`types`), each but the last with a
    /// tabulator after it.
    fn text(&self, event: &Event, kind: Kind) -> String {
        let number = |number| {
            let value = event.number(number);
            value.map_or_else(String::new, |value| value.to_string())
        };
        if kind == Kind::Instant {
            let [bytes, total] = [Number::MemoryBytes, Number::TotalAllocated].map(number);
            return format!("{bytes}\t{total}");
        }
        if self.keeps_arguments {
            return event.arguments.clone();
        }
        if kind.is_on_device() {
            let [grid, block] = [Text::Grid, Text::Block].map(|text| event.text(text));
            return format!("{}\t{grid}\t{block}", number(Number::Bytes));
        }
        event.text(Text::Dimensions).to_owned()
    }

    fn take_name(&mut self, event: &Event) {
        if event.name != "thread_name" || self.thread_names.len() >= MOST_LOCATIONS {
            return;
        }
        let key = format!("{}\0{}", event.process, event.thread);
        let name = event.text(Text::Name).trim().to_owned();
        self.thread_names.insert(key, name);
    }

    fn location(&mut self, event: &Event, kind: Kind) -> Option<u32> {
        let is_device = kind.is_on_device() || event.category == "gpu_user_annotation";
        self.key.clear();
        self.key.extend([&event.process, "\0", &event.thread]);
        if let Some(known) = self.location_numbers.get(&self.key) {
            self.locations[*known as usize].is_device |= is_device;
            return Some(*known);
        }
        if self.locations.len() >= MOST_LOCATIONS {
            return None;
        }
        let number = self.locations.len() as u32;
        self.locations.push(Location {
            process: event.process.clone(),
            thread: event.thread.clone(),
            is_device,
            name: String::new(),
        });
        self.location_numbers.insert(self.key.clone(), number);
        Some(number)
    }

    /// Returns the number of the region of an event: of its name and its category.
    fn region(&mut self, event: &Event) -> u32 {
        let place = |key: &mut String, name: &str| {
            key.clear();
            key.extend([&event.category, "\0", name]);
        };
        place(&mut self.key, &event.name);
        if let Some(known) = self.name_numbers.get(&self.key) {
            return *known;
        }
        let is_full = self.name_numbers.len() >= MOST_NAMES || self.names.len() >= MOST_NAME_BYTES;
        if is_full {
            self.counts.unnamed += 1;
            place(&mut self.key, "(other names)");
            if let Some(known) = self.name_numbers.get(&self.key) {
                return *known;
            }
            if self.names.len() >= 2 * MOST_NAME_BYTES {
                return 0;
            }
        }
        let number = self.name_numbers.len() as u32;
        self.names.extend((self.key.len() as u32).to_le_bytes());
        self.names.extend(self.key.as_bytes());
        self.name_numbers.insert(self.key.clone(), number);
        number
    }

    fn finish(mut self, path: &Path, bytes: u64, header: Header) -> io::Result<ReadTrace> {
        for location in &mut self.locations {
            let key = format!("{}\0{}", location.process, location.thread);
            location.name = self.thread_names.remove(&key).unwrap_or_default();
        }
        let identity = digest(DIGEST_START, &self.identity.to_le_bytes());
        let identity = digest(identity, &self.events.to_le_bytes());
        let identity = digest(identity, &header.base_ns.to_le_bytes());
        if self.counts.unnamed != 0 {
            let what = format!(
                "{} events have names for which there is no room",
                self.counts.unnamed
            );
            self.problem(&what);
        }
        if self.table.left_out != 0 {
            let what = format!(
                "{} calls of collective operations are too many",
                self.table.left_out
            );
            self.problem(&what);
        }
        Ok(ReadTrace {
            path: path.to_owned(),
            rank: 0,
            locations: self.locations,
            table: self.table,
            sorted: self.sorter.finish(&self.names)?,
            launches: self.launches,
            launched: self.launched,
            operations: Links::default(),
            agreed: FxHashMap::default(),
            identity: digest(identity, &header.rank.unwrap_or(0).to_le_bytes()),
            header,
            span: self.span,
            bytes,
            problems: self.problems,
            counts: self.counts,
            keeps_arguments: self.keeps_arguments,
        })
    }
}
