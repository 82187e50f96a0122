//! One pass over a location's events, before any is used: which parts its file has, what types of events are in
//! them, and what they refer to. Parts can be decoded alone then, and damage is known and counted.

use super::open_regions::OpenRegions;
use crate::otf2::records::ids;
use crate::otf2::{
    AttributeValue, ChunkHeader, ClockCorrection, DefinitionKind, Endian, EventReader, FieldType,
    Item, LocalDefinitions, event_record, records,
};
use annals_format::{Cause, FormatError, Problem, ReadAt};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

/// Number of events in a part, which is decoded in one piece.
pub(crate) const PART_EVENTS: u32 = 1 << 14;

/// Times of one part are less apart than this, so that they fit where distances are kept.
pub(crate) const PART_TICKS: u64 = 1 << 62;

/// Kinds of additional values that an event type has places for.
pub(crate) const MOST_ATTRIBUTES: usize = 150;

/// Maximum number of compositions of metric events of one location that get separate event types.
const MOST_METRICS: usize = 4096;

/// Key by which events of one location are counted: the id of their record, or, above these, a composition of metrics.
pub(crate) type Key = u32;

/// The first key of a composition.
pub(crate) const FIRST_COMPOSITION: Key = 256;

/// Fields of a collective operation's end that describe its begin: operation, communicator, root, sent, received.
pub(crate) type Collective = [u64; 5];

/// A part of a location's file.
#[derive(Clone, Debug)]
pub(crate) struct FilePart {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) endian: Endian,
    /// The time before its first record, not corrected.
    pub(crate) time: u64,
    /// Where the correction of the clock is then.
    pub(crate) interval: usize,
    pub(crate) events: u64,
    /// Corrected times.
    pub(crate) first: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) last: u64,
    pub(crate) inversions: u64,
    pub(crate) largest_lateness: u64,
    /// Events by key.
    pub(crate) counts: Vec<(Key, u64)>,
    /// The end of the operation that begins last in it, if that end is after it.
    pub(crate) collective_behind: Option<Collective>,
    /// The regions that are open before it. Empty if no leave of the location names another region than its enter.
    pub(crate) open: OpenRegions,
}

impl FilePart {
    /// Returns a part without events, whose first one is of this time.
    pub(crate) fn starting(offset: u64, endian: Endian, time: u64) -> Self {
        Self {
            offset,
            length: 0,
            endian,
            time,
            interval: 0,
            events: 0,
            first: time,
            least: time,
            most: time,
            last: time,
            inversions: 0,
            largest_lateness: 0,
            counts: Vec::new(),
            collective_behind: None,
            open: OpenRegions::default(),
        }
    }
}

/// Events that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct LostEvents {
    pub(crate) before_part: usize,
    pub(crate) key: Option<Key>,
    pub(crate) cause: Cause,
    pub(crate) count: u64,
    pub(crate) is_lower_bound: bool,
}

/// Numbers that were met.
#[derive(Clone, Default, Debug)]
pub(crate) struct Numbers {
    dense: Vec<u64>,
    sparse: FxHashSet<u64>,
}

impl Numbers {
    const DENSE: u64 = 1 << 20;

    #[inline]
    pub(crate) fn add(&mut self, number: u64) {
        if number >= Self::DENSE {
            self.sparse.insert(number);
            return;
        }
        let (word, bit) = (number as usize / 64, number % 64);
        if self.dense.len() <= word {
            self.dense.resize(word + 1, 0);
        }
        self.dense[word] |= 1 << bit;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        let words = self.dense.iter().enumerate();
        let dense = words.flat_map(|(word, bits)| {
            let set = (0..64).filter(move |bit| bits >> bit & 1 != 0);
            set.map(move |bit| word as u64 * 64 + bit)
        });
        dense.chain(self.sparse.iter().copied())
    }
}

/// Definitions that a location's events refer to.
pub(crate) type Seen = [Numbers; DefinitionKind::COUNT];

/// The result of the pass over a location.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) parts: Vec<FilePart>,
    pub(crate) lost: Vec<LostEvents>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) seen: Seen,
    /// Additional values by record, attribute and type.
    pub(crate) attributes: BTreeSet<(u8, u32, u8)>,
    /// Records with more kinds of them than have places.
    pub(crate) overflowing: BTreeSet<u8>,
    /// Compositions of metrics: which, and the types of the values; by key from [`FIRST_COMPOSITION`] on.
    pub(crate) compositions: Vec<(u64, Vec<u8>)>,
    /// Most arguments of a program.
    pub(crate) arguments: usize,
    /// Leaves that name another region than the one that they end.
    pub(crate) renamed: u64,
    /// Events by key.
    pub(crate) counts: BTreeMap<Key, u64>,
    pub(crate) bytes: u64,
}

impl Scanned {
    pub(crate) fn nothing() -> Self {
        Self {
            parts: Vec::new(),
            lost: Vec::new(),
            problems: Vec::new(),
            seen: Seen::default(),
            attributes: BTreeSet::new(),
            overflowing: BTreeSet::new(),
            compositions: Vec::new(),
            arguments: 0,
            renamed: 0,
            counts: BTreeMap::new(),
            bytes: 0,
        }
    }

    pub(crate) fn count_lost(
        &mut self,
        key: Option<Key>,
        cause: Cause,
        count: u64,
        is_lower_bound: bool,
    ) {
        self.lost.push(LostEvents {
            before_part: self.parts.len(),
            key,
            cause,
            count,
            is_lower_bound,
        });
    }

    fn problem(&mut self, offset: u64, length: u64, what: impl Into<String>) {
        self.problems.push(Problem::new(offset, length, what));
    }

    /// Names the file in the problems.
    fn name_file_in_problems(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for problem in &mut self.problems {
            problem.what = format!("{name}: {}", problem.what);
        }
    }
}

/// By record: which values are references.
type References = [Vec<(usize, DefinitionKind)>; 256];

fn references() -> References {
    let mut table: References = std::array::from_fn(|_| Vec::new());
    for record in records::EVENTS {
        let fields = record.fields.iter().enumerate();
        table[usize::from(record.id)] = fields
            .filter_map(|(index, field)| match field.what {
                FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind) => {
                    Some((index, kind))
                }
                _ => None,
            })
            .collect();
    }
    table
}

/// A part under construction.
struct OpenPart {
    offset: u64,
    time: u64,
    interval: usize,
    first: Option<u64>,
    least: u64,
    most: u64,
    last: u64,
    inversions: u64,
    largest_lateness: u64,
    events: u32,
    has_open_begin: bool,
    /// Taken with its first event.
    open: OpenRegions,
}

impl OpenPart {
    fn new(offset: u64, time: u64, interval: usize) -> Self {
        Self {
            offset,
            time,
            interval,
            first: None,
            least: u64::MAX,
            most: 0,
            last: 0,
            inversions: 0,
            largest_lateness: 0,
            events: 0,
            has_open_begin: false,
            open: OpenRegions::default(),
        }
    }
}

/// The pass over a location.
struct Scan<'a> {
    found: Scanned,
    local: &'a LocalDefinitions,
    correction: ClockCorrection,
    /// The last time and what it was corrected to.
    corrected: (u64, u64),
    references: References,
    counts: [u64; 256],
    composition_counts: Vec<u64>,
    known_compositions: FxHashMap<Vec<u8>, u32>,
    known_attributes: FxHashSet<(u8, u32, u8)>,
    attributes_of: [u16; 256],
    scratch: Vec<u8>,
    /// Parts whose last collective operation has not ended yet.
    waiting: Vec<usize>,
    /// Events by number, lost ones included.
    numbered: u64,
    open: OpenRegions,
}

impl Scan<'_> {
    fn count_lost(&mut self, key: Option<Key>, cause: Cause, count: u64, is_lower_bound: bool) {
        self.open.note_gap();
        self.found.count_lost(key, cause, count, is_lower_bound);
    }

    fn close(&mut self, open: &mut OpenPart, endian: Endian, end: u64) {
        let mut counts: Vec<(Key, u64)> = Vec::new();
        let each = self.counts.iter_mut().chain(&mut self.composition_counts);
        for (key, count) in each.enumerate() {
            if *count != 0 {
                counts.push((key as Key, *count));
                *self.found.counts.entry(key as Key).or_default() += *count;
                *count = 0;
            }
        }
        if open.events == 0 {
            return;
        }
        if open.has_open_begin {
            self.waiting.push(self.found.parts.len());
        }
        self.found.parts.push(FilePart {
            offset: open.offset,
            length: end - open.offset,
            endian,
            time: open.time,
            interval: open.interval,
            events: open.events.into(),
            first: open.first.unwrap_or(0),
            least: open.least,
            most: open.most,
            last: open.last,
            inversions: open.inversions,
            largest_lateness: open.largest_lateness,
            counts,
            collective_behind: None,
            open: std::mem::take(&mut open.open),
        });
    }

    #[inline]
    fn time(&mut self, time: u64) -> u64 {
        if self.corrected.0 != time {
            self.corrected = (time, self.correction.correct(time));
        }
        self.corrected.1
    }

    #[inline]
    fn event(&mut self, reader: &mut EventReader<'_>, open: &mut OpenPart) {
        let id = reader.id;
        let mut key = Key::from(id);
        if open.events == 0 {
            open.open = self.open.at_start_of_part();
        }
        if let Some(record) = event_record(id) {
            self.local
                .globalize(record, &mut reader.values, &mut reader.attributes);
            for (index, kind) in &self.references[usize::from(id)] {
                self.found.seen[*kind as usize].add(reader.values[*index]);
            }
            match id {
                ids::METRIC => key = self.composition(&reader.values),
                ids::PROGRAM_BEGIN => {
                    let arguments = &reader.values[1..];
                    self.found.arguments = self.found.arguments.max(arguments.len());
                    for argument in arguments {
                        self.found.seen[DefinitionKind::String as usize].add(*argument);
                    }
                }
                ids::ENTER => self.open.enter(reader.values[0]),
                ids::LEAVE => {
                    let region = reader.values[0];
                    self.found.renamed += u64::from(self.open.leave(region) != region);
                }
                // While it is off, enters and leaves are not recorded.
                ids::MEASUREMENT_ON_OFF => self.open.note_gap(),
                ids::MPI_COLLECTIVE_BEGIN => open.has_open_begin = true,
                ids::MPI_COLLECTIVE_END => {
                    open.has_open_begin = false;
                    for part in self.waiting.drain(..) {
                        let values = reader.values.first_chunk().copied();
                        self.found.parts[part].collective_behind = values;
                    }
                }
                _ => {}
            }
        } else {
            self.local.globalize_attributes(&mut reader.attributes);
        }
        for (index, attribute) in reader.attributes.iter().enumerate() {
            let key = |value: &AttributeValue| (value.attribute, value.type_code);
            let before = &reader.attributes[index.saturating_sub(64)..index];
            if before.iter().any(|value| key(value) == key(attribute)) {
                // The second value of one attribute has no separate place.
                self.found.overflowing.insert(id);
            }
            let of_event = (id, attribute.attribute, attribute.type_code);
            if self.known_attributes.insert(of_event) {
                self.found.seen[DefinitionKind::Attribute as usize].add(attribute.attribute.into());
                let count = &mut self.attributes_of[usize::from(id)];
                if usize::from(*count) < MOST_ATTRIBUTES {
                    *count += 1;
                    self.found.attributes.insert(of_event);
                } else {
                    self.known_attributes.remove(&of_event);
                    self.found.overflowing.insert(id);
                }
            }
            if let Some(kind) = DefinitionKind::of_type(attribute.type_code) {
                self.found.seen[kind as usize].add(attribute.bits);
            }
        }
        let time = self.time(reader.time);
        if id == ids::BUFFER_FLUSH {
            // This time is corrected in the same way, after the event's own time.
            let _ = self.correction.correct(reader.values[0]);
        }
        open.first.get_or_insert(time);
        if time < open.most {
            open.inversions += 1;
            open.largest_lateness = open.largest_lateness.max(open.most - time);
        }
        open.least = open.least.min(time);
        open.most = open.most.max(time);
        open.last = time;
        open.events += 1;
        if key < FIRST_COMPOSITION {
            self.counts[key as usize] += 1;
        } else {
            self.composition_counts[(key - FIRST_COMPOSITION) as usize] += 1;
        }
    }

    fn composition(&mut self, values: &[u64]) -> Key {
        self.scratch.clear();
        self.scratch.extend_from_slice(&values[0].to_le_bytes());
        let types = values[1..].iter().step_by(2);
        self.scratch.extend(types.map(|type_code| *type_code as u8));
        if let Some(known) = self.known_compositions.get(&self.scratch) {
            return FIRST_COMPOSITION + known;
        }
        let number = self.found.compositions.len();
        if number >= MOST_METRICS {
            return ids::METRIC.into();
        }
        let composition = (values[0], self.scratch[8..].to_vec());
        self.found.compositions.push(composition);
        self.composition_counts.push(0);
        self.known_compositions
            .insert(self.scratch.clone(), number as u32);
        FIRST_COMPOSITION + number as u32
    }

    /// Reads a chunk; returns whether the file ends in it, or the error that stopped the reading and its offset.
    fn chunk(&mut self, bytes: &[u8], offset: u64) -> Result<bool, (FormatError, u64)> {
        let (mut reader, header) = EventReader::of_chunk(bytes).map_err(|error| (error, 0))?;
        let endian = header.endian;
        // How many events the chunk should have, where its numbers go on from those before.
        let told = header.last.checked_sub(self.numbered);
        let told = told.filter(|told| {
            header.first == self.numbered + 1 && (1..=bytes.len() as u64).contains(told)
        });
        let due = told.map(|told| self.numbered + told);
        let start = reader.position() as u64;
        let mut open = OpenPart::new(offset + start, reader.time, self.correction.place());
        let mut before = start;
        loop {
            let item = reader.next_item();
            let is_far = |open: &OpenPart, time: u64| {
                open.events != 0
                    && open.least.abs_diff(time).max(open.most.abs_diff(time)) > PART_TICKS
            };
            match item {
                Ok(Item::Event) => {
                    let place = self.correction.place();
                    let time = self.time(reader.time);
                    if is_far(&open, time) {
                        self.close(&mut open, endian, offset + before);
                        // The part's first record is a timestamp.
                        open = OpenPart::new(offset + before, 0, place);
                    }
                    self.event(&mut reader, &mut open);
                    self.numbered += 1;
                    before = reader.position() as u64;
                    if open.events == PART_EVENTS {
                        self.close(&mut open, endian, offset + before);
                        open = OpenPart::new(offset + before, reader.time, self.correction.place());
                    }
                }
                Ok(Item::Unreadable) => {
                    self.numbered += 1;
                    self.close(&mut open, endian, offset + before);
                    let what = format!(
                        "the fields of a {} contradict the format",
                        name_of(reader.id)
                    );
                    let length = reader.position() as u64 - before;
                    self.found.problem(offset + before, length, what);
                    self.count_lost(Some(reader.id.into()), Cause::Skipped, 1, false);
                    before = reader.position() as u64;
                    open = OpenPart::new(offset + before, reader.time, self.correction.place());
                }
                Ok(end) => {
                    self.close(&mut open, endian, offset + before);
                    if reader.unreadable_lists != 0 {
                        let lists = reader.unreadable_lists;
                        let what = format!(
                            "{lists} lists of attributes contradict the format: their events come without"
                        );
                        self.found.problem(offset, bytes.len() as u64, what);
                    }
                    if let Some(missing) = due.and_then(|due| due.checked_sub(self.numbered))
                        && missing != 0
                    {
                        let what =
                            format!("{missing} events fewer than the chunk's header declares");
                        self.found.problem(offset, bytes.len() as u64, what);
                        self.count_lost(None, Cause::Skipped, missing, false);
                        self.numbered += missing;
                    }
                    return Ok(end == Item::EndOfFile);
                }
                Err(error) => {
                    self.close(&mut open, endian, offset + before);
                    return Err((error, before));
                }
            }
        }
    }
}

fn name_of(id: u8) -> String {
    match event_record(id) {
        Some(record) => record.capitals.to_owned(),
        None => format!("UNKNOWN_{id}"),
    }
}

/// How the data of a location ends.
enum DataEnd {
    /// With the record that says so.
    Marked,
    /// Without it, although all of the file could be read.
    Unmarked,
    /// With a part of the file that is not known.
    Damaged(Cause),
}

/// Reads the events of a location once. `expected`: how many it should have.
pub(crate) fn scan(
    path: &Path,
    file: &File,
    chunk_size: u64,
    local: &LocalDefinitions,
    correction: ClockCorrection,
    expected: Option<u64>,
) -> Scanned {
    let mut scan = Scan::new(local, correction);
    let length = match file.len() {
        Ok(length) => length,
        Err(error) => {
            scan.found.problem(0, 0, error.to_string());
            0
        }
    };
    scan.found.bytes = length;
    let cause = match scan.read_chunks(file, length, chunk_size) {
        DataEnd::Marked => None,
        DataEnd::Unmarked => {
            let what = "the end of the file expected, but the data ends there";
            scan.found.problem(length, 0, what);
            (expected != Some(scan.numbered)).then_some(Cause::Truncated)
        }
        DataEnd::Damaged(cause) => Some(cause),
    };
    if let Some(cause) = cause {
        scan.count_missing_at_end(cause, expected);
    }
    scan.found.name_file_in_problems(path);
    if scan.found.renamed == 0 {
        let parts = scan.found.parts.iter_mut();
        parts.for_each(|part| part.open = OpenRegions::default());
    }
    scan.found
}

impl<'a> Scan<'a> {
    fn new(local: &'a LocalDefinitions, correction: ClockCorrection) -> Self {
        let mut scan = Self {
            found: Scanned::nothing(),
            local,
            correction,
            corrected: (0, 0),
            references: references(),
            counts: [0; 256],
            composition_counts: Vec::new(),
            known_compositions: FxHashMap::default(),
            known_attributes: FxHashSet::default(),
            attributes_of: [0; 256],
            scratch: Vec::new(),
            waiting: Vec::new(),
            numbered: 0,
            open: OpenRegions::default(),
        };
        scan.corrected.1 = scan.correction.correct(0);
        scan
    }

    /// Reads the chunks of a file up to its end, or to the first that the storage cannot read.
    fn read_chunks(&mut self, file: &File, length: u64, chunk_size: u64) -> DataEnd {
        let mut buffer = Vec::new();
        let mut offset = 0;
        let mut has_ended = false;
        // Why the part of the file before this is not known, if it is not.
        let mut damage: Option<Cause> = None;
        while offset < length && !has_ended {
            buffer.resize((length - offset).min(chunk_size) as usize, 0);
            if let Err(error) = file.read_exact_at(offset, &mut buffer) {
                let problem = Problem::unreadable(offset, buffer.len() as u64, &error);
                self.found.problems.push(problem);
                damage = Some(Cause::Skipped);
                break;
            }
            if let Some(cause) = damage
                && let Ok(header) = ChunkHeader::decode(&buffer)
            {
                self.count_missing_before(&header, cause, length);
                damage = None;
            }
            match self.chunk(&buffer, offset) {
                Ok(is_end) => has_ended = is_end,
                Err((error, at)) => {
                    let is_cut = matches!(error, FormatError::UnexpectedEnd { .. })
                        && (buffer.len() as u64) < chunk_size;
                    let rest = buffer.len() as u64 - at;
                    let problem = Problem::unreadable(offset + at, rest, &error.shifted(offset));
                    self.found.problems.push(problem);
                    damage.get_or_insert(if is_cut {
                        Cause::Truncated
                    } else {
                        Cause::Skipped
                    });
                }
            }
            offset += chunk_size;
        }
        match damage {
            Some(cause) => DataEnd::Damaged(cause),
            None if has_ended => DataEnd::Marked,
            None => DataEnd::Unmarked,
        }
    }

    /// Counts the events that are missing before a chunk as lost, by the number of its first event. A file of `length`
    /// bytes cannot have more events than bytes.
    fn count_missing_before(&mut self, header: &ChunkHeader, cause: Cause, length: u64) {
        let missing = header.first.wrapping_sub(1).wrapping_sub(self.numbered);
        if missing <= length {
            if missing != 0 {
                self.count_lost(None, cause, missing, false);
            }
            self.numbered += missing;
        } else {
            self.count_lost(None, cause, 1, true);
            self.numbered += 1;
        }
    }

    /// Counts the events that are missing at the end as lost: at least one if their number is unknown.
    fn count_missing_at_end(&mut self, cause: Cause, expected: Option<u64>) {
        match expected.and_then(|expected| expected.checked_sub(self.numbered)) {
            Some(0) => {}
            Some(missing) => self.count_lost(None, cause, missing, false),
            None => self.count_lost(None, cause, 1, true),
        }
    }
}
