//! An earlier merge's trace as an input: its chunks have events of many streams, already in order. They
//! are renumbered, moved by one constant, and merged with everything else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_format::{
    ANY_EVENT_TYPE, BootId, Cause, ClockError, ClockId, ClockKind, ClockMap, Definitions,
    ErrorKnot, EventTypeId, LossPoint, MapCursor, OrderHash, ProcessEnd, ProcessId, ReadAt,
    RecordingId, Relation, StreamGroup, StreamId, StreamTotals, Trace, TraceChunk,
    TraceChunkHeader, TraceLoss, UNBOUNDED,
};
use rustc_hash::FxHashMap;

use crate::axis::batch::Batch;
use crate::axis::proof::{self, ElementReferences, SortedStreams, StreamHashes};
use crate::axis::unify::{Numbers, by_process};
use crate::clocks::MapMover;
use crate::clocks::hosts::Hosts;
use crate::error::{MergeError, Result};
use crate::filter::Keep;
use crate::input::file::FileAt;
use crate::input::stream::{LossPlace, StreamFindings, WaitingChunk, count_elsewhere};
use crate::messages::repair::Shifts;

/// An opened trace.
#[derive(Debug)]
pub struct InputTrace {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Its contents.
    pub trace: Trace,
    pub(crate) file: FileAt,
}

impl InputTrace {
    /// Opens a trace.
    ///
    /// # Errors
    /// If the file cannot be read or is not a trace.
    pub fn open(path: &Path) -> Result<Self> {
        let format = MergeError::format(path);
        let file = FileAt::open(path)?;
        let mut trace = Trace::read(&file).map_err(format)?;
        let damaged = trace.check_rest(&file).map_err(format)?;
        trace.problems.extend(damaged);
        Ok(Self {
            path: path.to_owned(),
            file_bytes: file.len().map_err(format)?,
            trace,
            file,
        })
    }
}

/// A trace among the inputs of a merge.
#[derive(Debug)]
pub(crate) struct RenumberedTrace {
    pub(crate) input: InputTrace,
    /// Its definitions by process.
    pub(crate) own: BTreeMap<ProcessId, Definitions>,
    /// Its processes that are taken, with their numbers in the new trace.
    pub(crate) processes: BTreeMap<ProcessId, ProcessId>,
    pub(crate) numbers: Numbers,
    /// The offset to add to its times.
    pub(crate) shift_ns: i64,
    /// Bound of that one's error; and how the axis was found.
    pub(crate) error_ns: u64,
    pub(crate) relation: Relation,
}

/// A moment of a trace on the reference clock of a host.
struct Anchor {
    boot_id: BootId,
    reference_ns: i64,
    trace_ns: i64,
    error_ns: u64,
}

impl RenumberedTrace {
    pub(crate) fn new(input: InputTrace) -> Self {
        let streams = input.trace.totals.iter().map(|totals| totals.stream);
        Self {
            own: by_process(&input.trace.definitions, streams),
            input,
            processes: BTreeMap::new(),
            numbers: Numbers::default(),
            shift_ns: 0,
            error_ns: 0,
            relation: Relation::SameHost,
        }
    }

    pub(crate) fn definitions(&self) -> &Definitions {
        &self.input.trace.definitions
    }

    /// Identities of its recordings.
    pub(crate) fn recording_ids(&self) -> impl Iterator<Item = (ProcessId, RecordingId)> {
        let processes = self.definitions().processes.values();
        processes.map(|process| (process.id, process.recording_id))
    }

    fn anchor(&self) -> Option<Anchor> {
        let definitions = self.definitions();
        let boot_id = definitions.processes.values().next()?.boot_id;
        let of_boot = |process: ProcessId| {
            let process = definitions.processes.get(&process);
            process.filter(|process| process.boot_id == boot_id)
        };
        let mut best: Option<Anchor> = None;
        for clock in definitions.clocks.values() {
            let (Some(process), Some(map)) = (
                of_boot(clock.process),
                definitions.clock_maps.get(&clock.id),
            ) else {
                continue;
            };
            if map.knots.len() < 2 {
                continue;
            }
            let (tick, reference_ns, error_ns) = if clock.kind == ClockKind::Reference {
                let start = process.start_reference_ns;
                (i128::from(start), start, 0)
            } else {
                // Maps count ticks from the first point.
                let own = self.own.get(&clock.process);
                let points = own.into_iter().flat_map(|own| &own.calibration);
                let of_clock = points.filter(|point| point.clock == clock.id);
                let Some(first) = of_clock.min_by_key(|point| point.reference_ns) else {
                    continue;
                };
                (
                    i128::from(first.tick),
                    first.reference_ns,
                    first.error_ns.saturating_add(map.error_ns),
                )
            };
            if best.as_ref().is_none_or(|best| error_ns < best.error_ns) {
                best = Some(Anchor {
                    boot_id,
                    reference_ns,
                    trace_ns: MapCursor::new(map).time_ns(tick),
                    error_ns,
                });
            }
            if error_ns == 0 {
                break;
            }
        }
        best
    }

    /// Determines the position of the trace on the axis of these hosts.
    pub(crate) fn relate(&mut self, hosts: &Hosts) {
        let anchor = self.anchor();
        let host = anchor.as_ref().and_then(|anchor| hosts.get(anchor.boot_id));
        if let (Some(anchor), Some(host)) = (anchor, host) {
            let there = host.axis_ns(anchor.reference_ns);
            self.shift_ns = there.saturating_sub(anchor.trace_ns);
            self.error_ns = anchor
                .error_ns
                .saturating_add(host.error_at(anchor.reference_ns));
            self.relation = host.relation;
            return;
        }
        let zero = self.definitions().time_zero;
        let unix_ns = zero.map_or(0, |zero| zero.unix_ns);
        self.shift_ns = unix_ns.saturating_sub(hosts.unix_base_ns());
        self.error_ns = UNBOUNDED;
        self.relation = Relation::WallClock;
    }

    /// Returns when a process started and ended, in the trace's own time.
    pub(crate) fn span_of(&self, process: ProcessId) -> Option<ProcessEnd> {
        self.definitions().process_ends.get(&process).copied()
    }

    /// Returns the maps of its clocks, on the axis.
    pub(crate) fn clock_maps(&self) -> impl Iterator<Item = ClockMap> {
        let maps = self.definitions().clock_maps.values();
        let mut mover = MapMover::new(self.shift_ns);
        maps.filter_map(move |map| {
            let mut map = ClockMap {
                clock: *self.numbers.clocks.get(&map.clock)?,
                ..map.clone()
            };
            mover.move_map(&mut map);
            Some(map)
        })
    }

    /// Returns the error bounds of its clocks, on the axis. `is_shared`: whether another input has processes of a boot;
    /// then the error of the trace's position on the axis is between their clocks.
    pub(crate) fn clock_errors(
        &self,
        is_shared: impl Fn(&BootId) -> bool,
    ) -> impl Iterator<Item = ClockError> {
        let definitions = self.definitions();
        definitions.clock_errors.values().filter_map(move |error| {
            let clock = definitions.clocks.get(&error.clock)?;
            let process = definitions.processes.get(&clock.process)?;
            let number = *self.numbers.clocks.get(&error.clock)?;
            let is_shared = is_shared(&process.boot_id);
            let knots = error.knots.iter().map(|knot| {
                let host_ns = knot.host_ns.saturating_add(self.error_ns);
                ErrorKnot {
                    time_ns: knot.time_ns.saturating_add(self.shift_ns),
                    own_ns: knot
                        .own_ns
                        .saturating_add(if is_shared { host_ns } else { 0 }),
                    host_ns,
                }
            });
            Some(ClockError {
                clock: number,
                alike: self.alike(error.alike, number),
                relation: error.relation.max(self.relation),
                knots: knots.collect(),
            })
        })
    }

    /// Returns the first of the clocks that were alike, of those that are taken.
    fn alike(&self, alike: ClockId, number: ClockId) -> ClockId {
        let taken = self.numbers.clocks.get(&alike).copied();
        taken.unwrap_or_else(|| {
            let errors = self.definitions().clock_errors.values();
            let same = errors.filter(|error| error.alike == alike);
            let taken = same.filter_map(|error| self.numbers.clocks.get(&error.clock));
            taken.min().copied().unwrap_or(number)
        })
    }

    /// Returns the totals of the streams that are taken, with their numbers in the new trace; rows and hashes are those
    /// of the file.
    pub(crate) fn totals(&self) -> impl Iterator<Item = (StreamId, &StreamTotals)> {
        let totals = self.input.trace.totals.iter();
        totals.filter_map(|totals| {
            let number = self.numbers.streams.get(&totals.stream)?;
            Some((*number, totals))
        })
    }
}

/// Chunks that follow each other, and what waits of them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Chunks by number, with the least time that an event in them can have; ascending.
    pub(crate) order: Vec<(usize, i64)>,
    /// For each place in `order`, how many events the chunks before it have.
    events_before: Vec<u64>,
    next: usize,
    /// Batches that were taken in.
    batches: u64,
    /// Chunks that are loaded and not handed out: of each its streams.
    pub(crate) lanes: Vec<WaitingChunk>,
    /// Losses that no window has yet.
    pub(crate) losses: Vec<(LossPlace, TraceLoss)>,
}

impl Queue {
    /// Creates a queue of these chunks: number, least time, events.
    pub(crate) fn new(chunks: impl Iterator<Item = (usize, i64, u64)>) -> Self {
        let mut queue = Self::default();
        let mut sum = 0_u64;
        let mut least_ns = i64::MIN;
        queue.events_before.push(sum);
        for (number, first_ns, events) in chunks {
            least_ns = least_ns.max(first_ns);
            queue.order.push((number, least_ns));
            sum = sum.saturating_add(events);
            queue.events_before.push(sum);
        }
        queue
    }

    fn next_bound_ns(&self) -> Option<i64> {
        self.order.get(self.next).map(|(_, bound)| *bound)
    }

    pub(crate) fn head_ns(&self) -> Option<i64> {
        let heads = self.lanes.iter().map(|lane| lane.batch.time_ns(lane.at));
        heads.chain(self.next_bound_ns()).min()
    }

    pub(crate) fn is_all_loaded(&self) -> bool {
        self.next == self.order.len()
    }

    pub(crate) fn wanted(&self, until_ns: i64) -> std::ops::Range<usize> {
        let waiting = self.order[self.next..].iter();
        let count = waiting.take_while(|(_, bound)| *bound < until_ns || until_ns == i64::MAX);
        self.next..self.next + count.count()
    }

    pub(crate) fn events_of_chunks(&self, from_ns: i64, until_ns: i64) -> u64 {
        let place = |time_ns: i64| self.order.partition_point(|(_, bound)| *bound < time_ns);
        let (first, end) = (place(from_ns.saturating_add(1)), place(until_ns));
        self.events_before[end.max(first)] - self.events_before[first]
    }

    /// Returns the number that the next batch gets.
    pub(crate) const fn next_batch(&self) -> u64 {
        self.batches
    }

    /// Takes in a batch of the next chunk: these events of these streams.
    pub(crate) fn push(&mut self, batch: Batch, runs: &[(StreamId, Range<usize>)]) {
        let number = self.batches;
        self.batches += 1;
        let batch = Arc::new(batch);
        let runs = runs.iter().filter(|(_, run)| !run.is_empty());
        self.lanes.extend(runs.map(|(stream, run)| WaitingChunk {
            stream: *stream,
            number,
            at: run.start,
            end: run.end,
            batch: Arc::clone(&batch),
        }));
    }

    /// Marks the next chunk as done: all its batches were taken.
    pub(crate) const fn pass(&mut self) {
        self.next += 1;
    }
}

/// A chunk as it was decoded.
pub(crate) struct DecodedTrace {
    content: std::result::Result<Renumbered, String>,
    /// The unreadable part and the error: all of the chunk, or some groups. No head means that it
    /// is unreadable, too.
    damage: Option<(String, Option<TraceChunkHeader>)>,
}

/// The events of a group that are kept, with their streams.
type GroupBatch = (Batch, Vec<(StreamId, Range<usize>)>);

#[derive(Default)]
struct Renumbered {
    batches: Vec<GroupBatch>,
    /// Times of the chunk's first and last event, before a repair moves any; `None` means that it
    /// has no events.
    span_ns: Option<(i64, i64)>,
    /// Losses, each before the event of this batch with this index, or by its time.
    losses: Vec<(Option<(usize, usize)>, TraceLoss)>,
    /// Events by stream and type: kept, and left out by the filter.
    kept: FxHashMap<(StreamId, EventTypeId), u64>,
    filtered: FxHashMap<(StreamId, EventTypeId), u64>,
    /// Events of streams that are not defined.
    unplaced: u64,
    hashes: Vec<(StreamId, OrderHash)>,
}

/// Reads a trace.
#[derive(Debug)]
pub(crate) struct TraceReader<'a> {
    pub(crate) earlier: &'a RenumberedTrace,
    keep: &'a Keep,
    /// For the proof; `None` means that nothing is proved.
    references: Option<&'a ElementReferences>,
    sorted: SortedStreams,
    /// How a repair moves events, by stream; only those of which it moves any.
    shifts: FxHashMap<StreamId, &'a Shifts>,
    pub(crate) queue: Queue,
    /// Time of the last event loaded, before a repair moves it.
    front_ns: i64,
    /// Losses of the footer by chunk: the first of each; empty when they do not fit.
    losses_before: Vec<usize>,
    /// By stream of the new trace, in its numbers.
    pub(crate) totals: BTreeMap<StreamId, StreamTotals>,
    present: FxHashMap<(StreamId, EventTypeId), u64>,
    pub(crate) hashes: StreamHashes,
    /// Streams of recordings that are taken from elsewhere.
    duplicates: BTreeSet<StreamId>,
    pub(crate) unplaced: u64,
    first_error: Option<String>,
    /// Where chunks were of which even the heads cannot be read.
    headless: Option<(i64, i64)>,
    is_finished: bool,
}

impl<'a> TraceReader<'a> {
    pub(crate) fn new(
        earlier: &'a RenumberedTrace,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
        sorted: SortedStreams,
        shifts: &'a [Shifts],
    ) -> Self {
        let trace = &earlier.input.trace;
        let shifts = earlier
            .numbers
            .streams
            .iter()
            .filter_map(|(stream, number)| {
                let process = trace.definitions.process_of(*stream)?;
                let shifts = shifts.get(earlier.processes.get(&process)?.index())?;
                (!shifts.is_empty()).then_some((*number, shifts))
            });
        let taken = &earlier.processes;
        let duplicates = trace.definitions.streams.keys().filter(|stream| {
            let process = trace.definitions.process_of(**stream);
            process.is_some_and(|process| {
                trace.definitions.processes.contains_key(&process) && !taken.contains_key(&process)
            })
        });
        let mut losses_before = vec![0];
        for entry in &trace.chunks {
            let last: usize = losses_before[losses_before.len() - 1];
            let count = usize::try_from(entry.loss_count).unwrap_or(usize::MAX);
            losses_before.push(last.saturating_add(count));
        }
        if !trace.has_footer || losses_before.last() != Some(&trace.losses.len()) {
            losses_before.clear();
        }
        let mut reader = Self {
            earlier,
            keep,
            references,
            sorted,
            shifts: shifts.collect(),
            queue: Queue::default(),
            front_ns: i64::MIN,
            losses_before,
            totals: BTreeMap::new(),
            present: FxHashMap::default(),
            hashes: StreamHashes::default(),
            duplicates: duplicates.copied().collect(),
            unplaced: 0,
            first_error: None,
            headless: None,
            is_finished: false,
        };
        for stream in earlier.numbers.streams.values() {
            reader.totals.insert(*stream, StreamTotals::new(*stream));
        }
        for (stream, totals) in earlier.totals() {
            let mut totals = reader.renumbered(stream, totals);
            if !keep.is_first() {
                totals.rows.iter_mut().for_each(count_elsewhere);
            }
            reader.totals.insert(stream, totals);
        }
        reader.plan();
        if !trace.has_footer {
            // Only the heads show what is missing.
            let losses = trace.losses.iter().filter_map(|loss| reader.loss(loss));
            let losses = losses.filter(|loss| keep.has(loss.to_ns));
            let losses = losses.map(|loss| (LossPlace::Time(loss.to_ns), loss));
            let losses: Vec<_> = losses.collect();
            reader.queue.losses.extend(losses);
        }
        reader.finish_if_done();
        reader
    }

    fn time(&self, time_ns: i64) -> i64 {
        time_ns.saturating_add(self.earlier.shift_ns)
    }

    /// Returns by how much a repair moves a stream's events at a time of the axis.
    fn shift(&self, stream: StreamId, time_ns: i64) -> i64 {
        let shifts = self.shifts.get(&stream);
        shifts.map_or(0, |shifts| shifts.at(time_ns))
    }

    /// Returns the axis time of a trace time, including the largest move by a repair, which only moves forward.
    fn latest(&self, time_ns: i64) -> i64 {
        let time_ns = self.time(time_ns);
        let each = self.shifts.values().map(|shifts| shifts.most());
        time_ns.saturating_add(each.max().unwrap_or(0))
    }

    fn event_type(&self, id: EventTypeId) -> EventTypeId {
        let number = self.earlier.numbers.event_types.get(&id);
        number.copied().unwrap_or(ANY_EVENT_TYPE)
    }

    fn renumbered(&self, stream: StreamId, totals: &StreamTotals) -> StreamTotals {
        let mut to = StreamTotals {
            stream,
            rows: Vec::new(),
            order_hash: None,
            ..totals.clone()
        };
        for row in &totals.rows {
            let number = self.event_type(row.event_type);
            to.row(number).add(row);
        }
        to
    }

    fn loss(&self, loss: &TraceLoss) -> Option<TraceLoss> {
        let event_type = loss.event_type.map(|id| self.event_type(id));
        let stream = *self.earlier.numbers.streams.get(&loss.stream)?;
        let moved = |time_ns: i64| {
            let time_ns = self.time(time_ns);
            time_ns.saturating_add(self.shift(stream, time_ns))
        };
        Some(TraceLoss {
            stream,
            event_type: event_type.filter(|id| *id != ANY_EVENT_TYPE),
            from_ns: moved(loss.from_ns),
            to_ns: moved(loss.to_ns),
            ..*loss
        })
    }

    /// Finds the chunks that are needed; the others are counted by their heads.
    fn plan(&mut self) {
        let earlier = self.earlier;
        let trace = &earlier.input.trace;
        let mut chunks = Vec::new();
        for (number, entry) in trace.chunks.iter().enumerate() {
            let (first, last) = (self.time(entry.first_ns), self.latest(entry.last_ns));
            let is_wanted = entry.loss_count != 0
                || self.keep.overlaps(first, last.max(first))
                || !self.leave_out(number);
            if is_wanted {
                chunks.push((number, first, entry.event_count));
            }
        }
        self.queue = Queue::new(chunks.into_iter());
    }

    /// Counts the events of a chunk as filtered, by its head; returns whether the head could be
    /// read.
    fn leave_out(&mut self, number: usize) -> bool {
        let input = &self.earlier.input;
        let Some(head) = input.trace.head(&input.file, &input.trace.chunks[number]) else {
            return false;
        };
        for (stream, counts) in &head.counts {
            let Some(stream) = self.earlier.numbers.streams.get(stream).copied() else {
                let is_duplicate = self.duplicates.contains(stream);
                let sum = counts.iter().map(|(_, count)| *count);
                self.unplaced += if is_duplicate { 0 } else { sum.sum() };
                continue;
            };
            for (event_type, count) in counts {
                let event_type = self.event_type(*event_type);
                self.row(stream, event_type).add_filtered(*count);
            }
        }
        true
    }

    fn row(&mut self, stream: StreamId, event_type: EventTypeId) -> &mut annals_format::TypeTotals {
        let totals = self.totals.entry(stream);
        let totals = totals.or_insert_with(|| StreamTotals::new(stream));
        totals.row(event_type)
    }

    /// Returns first and last time of all chunks, and events by type as far as the index contains
    /// them.
    pub(crate) fn spans(&self, event_bytes: u64) -> impl Iterator<Item = (i64, i64, u64)> {
        let chunks = &self.earlier.input.trace.chunks;
        self.queue.order.iter().map(move |(number, first_ns)| {
            let entry = &chunks[*number];
            let bytes = entry.event_count.saturating_mul(event_bytes);
            (*first_ns, self.latest(entry.last_ns), bytes)
        })
    }

    /// Reads and decodes a chunk.
    pub(crate) fn decode(&self, place: usize) -> DecodedTrace {
        let (number, bound_ns) = self.queue.order[place];
        let input = &self.earlier.input;
        let entry = &input.trace.chunks[number];
        match input.trace.load(&input.file, entry) {
            Ok(loaded) => {
                let content = self.renumber(loaded.chunk, bound_ns);
                let damage = match &content {
                    Ok(_) => loaded
                        .damage
                        .map(|(error, lost)| (error.to_string(), Some(lost))),
                    Err(error) => Some((error.clone(), input.trace.head(&input.file, entry))),
                };
                DecodedTrace { content, damage }
            }
            Err((error, head)) => DecodedTrace {
                content: Err(error.to_string()),
                damage: Some((error.to_string(), head.map(|head| *head))),
            },
        }
    }

    fn renumber(
        &self,
        mut chunk: TraceChunk,
        bound_ns: i64,
    ) -> std::result::Result<Renumbered, String> {
        for time_ns in chunk
            .groups
            .iter_mut()
            .flat_map(|group| &mut group.times_ns)
        {
            *time_ns = time_ns.saturating_add(self.earlier.shift_ns);
        }
        let mut found = Renumbered {
            span_ns: chunk.span_ns(),
            ..Renumbered::default()
        };
        if found.span_ns.is_some_and(|(first, _)| first < bound_ns) {
            return Err(
                "its events are before the time in the index, or before the last chunk's"
                    .to_owned(),
            );
        }
        // For each event that follows a loss: its group, its index there, the loss.
        let points = chunk.losses.iter().map(|(before, loss)| {
            let place = match chunk.point_of(*before, loss) {
                LossPoint::Before(_, group, index) => Some((group as usize, index as usize)),
                LossPoint::At(_) => None,
            };
            (place, *loss)
        });
        let points: Vec<(Option<(usize, usize)>, TraceLoss)> = points.collect();
        for (number, group) in chunk.groups.into_iter().enumerate() {
            let of_group = points.iter().filter_map(|(place, loss)| {
                let (_, index) = place.filter(|(group, _)| *group == number)?;
                Some((index, *loss))
            });
            self.renumber_group(group, &of_group.collect::<Vec<_>>(), &mut found)?;
        }
        let others = points.iter().filter(|(place, _)| place.is_none());
        let others = others.filter_map(|(_, loss)| self.loss(loss));
        found.losses.extend(others.map(|loss| (None, loss)));
        Ok(found)
    }

    /// Adds the events of a group that are wanted, in the numbers of this merge. `losses`: those before events of the group.
    fn renumber_group(
        &self,
        mut group: StreamGroup,
        losses: &[(usize, TraceLoss)],
        found: &mut Renumbered,
    ) -> std::result::Result<(), String> {
        let numbers = &self.earlier.numbers;
        let event_types = group.types.iter().map(|columns| {
            let number = numbers.event_types.get(&columns.event_type);
            number
                .copied()
                .ok_or("an event type that is not in the index")
        });
        let event_types: Vec<EventTypeId> = event_types.collect::<std::result::Result<_, _>>()?;
        let selection = &self.keep.selection;
        let keeps_type = event_types.iter().map(|id| selection.takes_event_type(*id));
        let keeps_type: Vec<bool> = keeps_type.collect();
        let WantedEvents { order, ends } =
            self.wanted_events(&mut group, &event_types, &keeps_type, found);
        self.place_losses(&group, losses, &keeps_type, &order, found);
        if order.len() != group.len() || !order.is_sorted() {
            group = in_order(&group, &order);
        }
        group.ends = ends;
        if let Some(references) = self.references {
            let renumber = proof::renumber(&event_types, numbers, references);
            let types = event_types.iter().copied();
            proof::of_group(&group, &self.sorted, types, renumber, &mut found.hashes);
        }
        let runs = group.runs().collect();
        found
            .batches
            .push((Batch::of_group(group, event_types), runs));
        Ok(())
    }

    /// Moves the events of a group as causality has it, and finds those that are wanted. Counts them, and the others as
    /// filtered. `keeps_type`: by type of the group, whether its events are wanted.
    fn wanted_events(
        &self,
        group: &mut StreamGroup,
        event_types: &[EventTypeId],
        keeps_type: &[bool],
        found: &mut Renumbered,
    ) -> WantedEvents {
        let numbers = &self.earlier.numbers;
        let selection = &self.keep.selection;
        let takes_all = *self.keep == Keep::default();
        let is_moved = !self.shifts.is_empty();
        let count = group.len();
        let mut order: Vec<u32> = Vec::with_capacity(count);
        let mut ends: Vec<(StreamId, u32)> = Vec::with_capacity(group.ends.len());
        let mut kept = vec![0_u64; event_types.len()];
        let mut filtered = kept.clone();
        let runs: Vec<(StreamId, Range<usize>)> = group.runs().collect();
        for (from, run) in runs {
            let to = numbers.stream_table.get(from.get().into());
            if to == crate::axis::unify::LOST_REFERENCE {
                let is_duplicate = self.duplicates.contains(&from);
                found.unplaced += if is_duplicate { 0 } else { run.len() as u64 };
                continue;
            }
            let stream = StreamId::new(to as u32);
            let first = order.len();
            for index in run {
                let time_ns = &mut group.times_ns[index];
                let shift = match is_moved {
                    true => self.shift(stream, *time_ns),
                    false => 0,
                };
                if shift != 0 {
                    *time_ns = time_ns.saturating_add(shift);
                    group.shifts_ns.resize(count, 0);
                    let before = &mut group.shifts_ns[index];
                    *before = before.saturating_add(shift);
                }
                let place = usize::from(group.type_index[index]);
                let is_kept = takes_all
                    || keeps_type[place]
                        && selection.takes_stream(stream)
                        && self.keep.time().contains(*time_ns);
                if is_kept {
                    order.push(index as u32);
                    kept[place] += 1;
                } else {
                    filtered[place] += 1;
                }
            }
            let key = |index: &u32| {
                let index = *index as usize;
                (group.times_ns[index], group.position(index))
            };
            let own = &mut order[first..];
            if !own.is_sorted_by_key(key) {
                own.sort_by_key(key);
            }
            ends.push((stream, order.len() as u32));
            for (counts, to) in [
                (&mut kept, &mut found.kept),
                (&mut filtered, &mut found.filtered),
            ] {
                for (count, event_type) in counts.iter_mut().zip(event_types) {
                    if *count != 0 {
                        *to.entry((stream, *event_type)).or_default() += std::mem::take(count);
                    }
                }
            }
        }
        WantedEvents { order, ends }
    }

    /// Finds the place of each loss among the events of a group that are wanted, whose former indexes are in `order`.
    fn place_losses(
        &self,
        group: &StreamGroup,
        losses: &[(usize, TraceLoss)],
        keeps_type: &[bool],
        order: &[u32],
        found: &mut Renumbered,
    ) {
        if losses.is_empty() {
            return;
        }
        let kept = order.iter().zip(0_usize..);
        let places: FxHashMap<u32, usize> = kept.map(|(kept, place)| (*kept, place)).collect();
        for (index, loss) in losses {
            let Some(loss) = self.loss(loss) else {
                continue;
            };
            let place = places.get(&(*index as u32)).copied();
            // Left out only because it is in another slice.
            let is_elsewhere = keeps_type[usize::from(group.type_index[*index])]
                && self.keep.selection.takes_stream(loss.stream)
                && self.keep.window.contains(group.times_ns[*index]);
            match place {
                None if is_elsewhere => {}
                _ => {
                    let place = place.map(|index| (found.batches.len(), index));
                    found.losses.push((place, loss));
                }
            }
        }
    }

    /// Takes the next chunk in.
    pub(crate) fn take(&mut self, decoded: DecodedTrace) {
        let chunk_number = self.queue.order[self.queue.next].0;
        let bound_ns = self.queue.next_bound_ns().unwrap_or(i64::MIN);
        let is_in_order = |found: &Renumbered| {
            let first_ns = found.span_ns.map(|(first_ns, _)| first_ns);
            first_ns.is_none_or(|first_ns| first_ns >= self.front_ns)
        };
        match decoded.content {
            Ok(found) if is_in_order(&found) => {
                self.take_chunk(found, bound_ns);
                if let Some((error, Some(lost))) = decoded.damage {
                    self.first_error.get_or_insert(error);
                    self.lose_streams(chunk_number, &lost, bound_ns);
                }
            }
            Ok(_) => {
                let input = &self.earlier.input;
                let head = input
                    .trace
                    .head(&input.file, &input.trace.chunks[chunk_number]);
                self.skip(
                    chunk_number,
                    head,
                    "its events are before those of the last chunk",
                    bound_ns,
                );
            }
            Err(error) => {
                let head = decoded.damage.and_then(|(_, head)| head);
                self.skip(chunk_number, head, &error, bound_ns);
            }
        }
        self.queue.pass();
        self.finish_if_done();
    }

    fn take_chunk(&mut self, found: Renumbered, bound_ns: i64) {
        for ((stream, event_type), count) in found.filtered {
            self.row(stream, event_type).add_filtered(count);
        }
        for (key, count) in found.kept {
            *self.present.entry(key).or_default() += count;
        }
        self.unplaced += found.unplaced;
        self.hashes.add(&found.hashes);
        self.front_ns = found.span_ns.map_or(self.front_ns, |(_, last_ns)| last_ns);
        let first = self.queue.next_batch();
        for (batch, runs) in found.batches {
            self.queue.push(batch, &runs);
        }
        for (place, loss) in found.losses {
            let place = match place {
                Some((batch, index)) => LossPlace::Event(first + batch as u64, index),
                None => LossPlace::Time(loss.to_ns.max(bound_ns)),
            };
            let is_here = match place {
                LossPlace::Event(..) => true,
                LossPlace::Time(time_ns) => self.keep.has(time_ns),
            };
            if is_here {
                self.queue.losses.push((place, loss));
            }
        }
    }

    /// Counts the events of a chunk that cannot be read as lost.
    fn skip(&mut self, number: usize, head: Option<TraceChunkHeader>, error: &str, bound_ns: i64) {
        self.first_error.get_or_insert_with(|| error.to_owned());
        let trace = &self.earlier.input.trace;
        let entry = &trace.chunks[number];
        let (from_ns, to_ns) = (self.time(entry.first_ns), self.latest(entry.last_ns));
        let to_ns = to_ns.max(from_ns);
        let told = self.losses_before.get(number..number + 2);
        let told = told.and_then(|ends| trace.losses.get(ends[0]..ends[1]));
        for loss in told.unwrap_or(&[]) {
            let time_ns = self.time(loss.to_ns).clamp(from_ns, to_ns).max(bound_ns);
            let loss = self.loss(loss).filter(|_| self.keep.has(time_ns));
            let loss = loss.map(|loss| (LossPlace::Time(time_ns), loss));
            self.queue.losses.extend(loss);
        }
        let Some(head) = head else {
            let (from, to) = self.headless.unwrap_or((from_ns, to_ns));
            self.headless = Some((from.min(from_ns), to.max(to_ns)));
            return;
        };
        self.lose_streams(number, &head, bound_ns);
    }

    /// Counts the events of these streams of a chunk as lost.
    fn lose_streams(&mut self, number: usize, head: &TraceChunkHeader, bound_ns: i64) {
        let entry = &self.earlier.input.trace.chunks[number];
        let (from_ns, to_ns) = (self.time(entry.first_ns), self.latest(entry.last_ns));
        let to_ns = to_ns.max(from_ns);
        for (stream, counts) in &head.counts {
            let Some(stream) = self.earlier.numbers.streams.get(stream).copied() else {
                let is_duplicate = self.duplicates.contains(stream);
                let sum = counts.iter().map(|(_, count)| *count);
                self.unplaced += if is_duplicate { 0 } else { sum.sum() };
                continue;
            };
            for (event_type, count) in counts {
                let number = self.event_type(*event_type);
                let is_here = self.keep.has(to_ns.max(bound_ns));
                if !is_here || !self.keep.selection.takes_stream(stream) {
                    self.row(stream, number).add_filtered(*count);
                    continue;
                }
                let place = LossPlace::Time(to_ns.max(bound_ns));
                self.count_skipped(stream, number, *count, from_ns, to_ns, place);
            }
        }
    }

    /// Counts events that cannot be read as skipped between two times, and queues their loss.
    fn count_skipped(
        &mut self,
        stream: StreamId,
        event_type: EventTypeId,
        count: u64,
        from_ns: i64,
        to_ns: i64,
        place: LossPlace,
    ) {
        self.row(stream, event_type).add_loss(Cause::Skipped, count);
        let loss = TraceLoss {
            stream,
            event_type: Some(event_type).filter(|id| *id != ANY_EVENT_TYPE),
            cause: Cause::Skipped,
            count,
            is_lower_bound: false,
            from_ns,
            to_ns,
        };
        self.queue.losses.push((place, loss));
    }

    fn finish_if_done(&mut self) {
        if self.queue.is_all_loaded() && !self.is_finished {
            self.is_finished = true;
            self.finish();
        }
    }

    /// Counts events in the totals that were not found anywhere as lost in chunks without a head.
    fn finish(&mut self) {
        let Some((from_ns, to_ns)) = self.headless else {
            return;
        };
        let mut missing = Vec::new();
        for totals in self.totals.values() {
            for row in &totals.rows {
                let key = (totals.stream, row.event_type);
                let found = self.present.get(&key).copied().unwrap_or(0);
                missing.push((key, row.present().saturating_sub(found)));
            }
        }
        let place = LossPlace::Time(to_ns.max(self.front_ns));
        for ((stream, event_type), count) in missing.into_iter().filter(|(_, count)| *count != 0) {
            if !self.keep.has(to_ns) {
                self.row(stream, event_type).add_filtered(count);
                continue;
            }
            self.count_skipped(stream, event_type, count, from_ns, to_ns, place);
        }
    }

    /// Returns for each stream its totals, the findings of the read, and the difference between counts and chunks.
    pub(crate) fn conclude(&self) -> Vec<(StreamTotals, StreamFindings, u64)> {
        let mut of_stream: BTreeMap<StreamId, Vec<(EventTypeId, u64)>> = BTreeMap::new();
        for ((stream, event_type), count) in &self.present {
            let counts = of_stream.entry(*stream).or_default();
            counts.push((*event_type, *count));
        }
        let each = self.totals.values().map(|totals| {
            let mut present = of_stream.remove(&totals.stream).unwrap_or_default();
            present.sort_unstable();
            let findings = StreamFindings {
                first_error: self.first_error.clone(),
                present,
                ..StreamFindings::default()
            };
            let mut totals = totals.clone();
            for (event_type, _) in &findings.present {
                totals.row(*event_type);
            }
            let mut miscounted = 0_u64;
            for row in &totals.rows {
                let found = findings.of_type(row.event_type);
                miscounted = miscounted.saturating_add(row.present().abs_diff(found));
            }
            (totals, findings, miscounted)
        });
        each.collect()
    }
}

/// The events of a group that are wanted.
struct WantedEvents {
    /// Their former indexes, in their order.
    order: Vec<u32>,
    /// Where the events of each stream end.
    ends: Vec<(StreamId, u32)>,
}

/// Returns some of the events of a group, in another order, without its streams.
fn in_order(group: &StreamGroup, order: &[u32]) -> StreamGroup {
    fn pick<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
        if values.is_empty() {
            return Vec::new();
        }
        order.iter().map(|index| values[*index as usize]).collect()
    }
    let ordinals = group.ordinals();
    let mut of_type: Vec<Vec<u32>> = vec![Vec::new(); group.types.len()];
    for index in order {
        let place = usize::from(group.type_index[*index as usize]);
        of_type[place].push(ordinals[*index as usize]);
    }
    let types = group.types.iter().zip(&of_type).map(|(columns, ordinals)| {
        let in_order = columns
            .columns
            .iter()
            .map(|column| column.in_order(ordinals));
        annals_format::TypeColumns {
            event_type: columns.event_type,
            count: ordinals.len(),
            columns: in_order.collect(),
        }
    });
    StreamGroup {
        ends: Vec::new(),
        types: types.collect(),
        times_ns: pick(&group.times_ns, order),
        type_index: pick(&group.type_index, order),
        tick_residuals: pick(&group.tick_residuals, order),
        positions: pick(&group.positions, order),
        shifts_ns: pick(&group.shifts_ns, order),
    }
}
