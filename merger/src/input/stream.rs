//! One stream's events on the axis: its chunks are loaded when the merge reaches them. For an ordered source they
//! follow each other. For an unordered one several may be open, which the exact bounds in their heads determine.

mod records;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use annals_format::{
    Cause, Chunk, ChunkHeader, ChunkPlace, ClockKind, EventTypeId, FormatError, MapCursor,
    OrderHash, Problem, StoredChunk, StreamContents, StreamId, StreamLoss, StreamTotals, TraceLoss,
};

use rustc_hash::FxHashMap;

use crate::axis::batch::Batch;
use crate::axis::proof::{self, ElementReferences, Read};
use crate::axis::unify::Numbers;
use crate::filter::Keep;
use crate::input::recording::InputRecording;
use crate::input::ticks::StreamClock;

use records::{PlacedRecord, Reported};

/// The findings of reading a stream, for totals and report.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFindings {
    /// Events whose wraps the references do not decide.
    pub(crate) ambiguous: u64,
    /// Events of an ordered source that were moved up to the time of the one before.
    pub(crate) clamped: u64,
    /// The largest such move, nanoseconds.
    pub(crate) largest_clamp_ns: u64,
    /// The error of the first chunk that could not be decoded.
    pub(crate) first_error: Option<String>,
    /// Blocks of the recording that could not be decoded, with the number of their events.
    pub(crate) unreadable: Vec<(Problem, u64)>,
    /// Events that were read, by event type of the recording, ascending.
    pub(crate) present: Vec<(EventTypeId, u64)>,
}

impl StreamFindings {
    fn count(&mut self, event_type: EventTypeId, count: u64) {
        let found = self.present.binary_search_by_key(&event_type, |row| row.0);
        match found {
            Ok(index) => self.present[index].1 += count,
            Err(index) => {
                // A run may have very many streams, most with few types.
                self.present.reserve_exact(1);
                self.present.insert(index, (event_type, count));
            }
        }
    }

    /// Returns the number of events of a type that were read.
    pub(crate) fn of_type(&self, event_type: EventTypeId) -> u64 {
        let found = self.present.binary_search_by_key(&event_type, |row| row.0);
        found.map_or(0, |index| self.present[index].1)
    }
}

/// Where a loss is placed in the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LossPlace {
    /// Before the event with this index of the lane with this number.
    Event(u64, usize),
    /// After the events before this time.
    Time(i64),
}

/// A chunk that waits to be handed out.
#[derive(Clone, Debug)]
pub(crate) struct WaitingChunk {
    pub(crate) stream: StreamId,
    /// The number of its batch among those of the reader.
    pub(crate) number: u64,
    pub(crate) batch: Arc<Batch>,
    /// The next event.
    pub(crate) at: usize,
    /// Events from here on are left out.
    pub(crate) end: usize,
}

impl WaitingChunk {
    /// Returns the number of events that wait.
    pub(crate) fn len(&self) -> usize {
        self.end - self.at
    }

    /// Returns the first event from `from` on that is not before a time.
    pub(crate) fn first_from(&self, from: usize, time_ns: i64) -> usize {
        self.batch.first_from(from..self.end, time_ns)
    }
}

/// A chunk as it was decoded; nothing of the stream's past is known yet.
pub(crate) struct Decoded {
    batch: annals_format::Result<Batch>,
    ambiguous: u64,
    dropped: Vec<PlacedRecord>,
    /// By type of the batch, the recording's event type.
    event_types: Vec<EventTypeId>,
    /// Events of types that the filter leaves out.
    filtered: Vec<(EventTypeId, u64)>,
    /// Of the batch, as it was decoded.
    hash: Option<OrderHash>,
}

/// When a chunk's events were.
struct EventTimes {
    /// Times on the axis, causality's shifts included.
    times_ns: Vec<i64>,
    residuals: Vec<i64>,
    /// By how much causality moves each event. `None` if it moves none.
    shifts: Option<Vec<i64>>,
    /// Events for whose ticks there is more than one reading.
    ambiguous: u64,
}

impl EventTimes {
    /// Keeps only the times of some events, by their indexes.
    fn keep(&mut self, kept: &[u32]) {
        let of_events = [
            Some(&mut self.times_ns),
            Some(&mut self.residuals),
            self.shifts.as_mut(),
        ];
        for values in of_events.into_iter().flatten() {
            *values = kept.iter().map(|index| values[*index as usize]).collect();
        }
    }

    /// Returns the times by the clocks, without the shifts of a repair.
    fn read_ns(&self) -> Cow<'_, [i64]> {
        match &self.shifts {
            None => Cow::Borrowed(&self.times_ns),
            Some(shifts) => {
                let pairs = self.times_ns.iter().zip(shifts);
                let read_ns = pairs.map(|(time, shift)| time.wrapping_sub(*shift));
                Cow::Owned(read_ns.collect())
            }
        }
    }
}

/// A chunk that is to be loaded.
#[derive(Clone, Copy, Debug)]
struct Planned {
    /// Its index among the stream's.
    chunk: usize,
    /// The least time that an event in it can have; `None` means not before the end of the previous
    /// chunk.
    bound_ns: Option<i64>,
    /// The largest time that an event in it can have.
    end_ns: i64,
    /// How many events the planned chunks before it have, as their heads say.
    events_before: u64,
    /// The time of the last event that was left out before.
    left_out_ns: Option<i64>,
}

/// Summary kept after a stream has been read. The reader itself is dropped: with very many streams, readers would
/// dominate memory.
#[derive(Debug)]
pub(crate) struct StreamOutcome<'a> {
    pub(crate) stream: StreamId,
    pub(crate) input: &'a InputRecording,
    pub(crate) numbers: &'a Numbers,
    pub(crate) totals: Cow<'a, StreamTotals>,
    pub(crate) findings: StreamFindings,
    /// Order hash of the events taken in.
    pub(crate) hash: OrderHash,
}

/// A stream as its recording has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedStream<'a> {
    /// Its number in the trace.
    pub(crate) stream: StreamId,
    pub(crate) input: &'a InputRecording,
    pub(crate) numbers: &'a Numbers,
    pub(crate) contents: &'a StreamContents,
    /// Start and end of its process, trace time.
    pub(crate) process_start_ns: i64,
    pub(crate) process_end_ns: i64,
}

/// Reads one stream.
#[derive(Debug)]
pub(crate) struct StreamReader<'a> {
    pub(crate) stream: StreamId,
    pub(crate) input: &'a InputRecording,
    pub(crate) numbers: &'a Numbers,
    contents: &'a StreamContents,
    /// Losses of the contents, by the chunk that they precede.
    recorded_losses: Cow<'a, [StreamLoss]>,
    clock: StreamClock<'a>,
    keep: &'a Keep,
    /// For the proof; `None` means that nothing is proved.
    references: Option<&'a ElementReferences>,
    is_sorted: bool,
    process_start_ns: i64,
    process_end_ns: i64,
    /// Chunks in the order in which they are loaded.
    order: Vec<Planned>,
    /// Events of all of them, as their heads say.
    planned_events: u64,
    /// Place in `order` of the next one.
    next: usize,
    /// Chunks that are loaded and not handed out.
    pub(crate) lanes: Vec<WaitingChunk>,
    loaded: u64,
    /// Time of the first event loaded, and of the last.
    first_ns: Option<i64>,
    front_ns: Option<i64>,
    /// Time of the last event that was left out without being loaded.
    left_out_ns: Option<i64>,
    /// Losses that no strip has yet.
    pub(crate) losses: Vec<(LossPlace, TraceLoss)>,
    /// The losses in dropped records, by event type and cause.
    reported: BTreeMap<(Option<EventTypeId>, Cause), Reported>,
    /// Where chunks are missing, cannot be read, or were overwritten: times of the events around, nanoseconds.
    gaps: Vec<(i64, i64)>,
    /// The recording's, as long as nothing has to be counted otherwise.
    pub(crate) totals: Cow<'a, StreamTotals>,
    pub(crate) findings: StreamFindings,
    /// Order hash of the events taken in.
    pub(crate) hash: OrderHash,
    is_finished: bool,
}

impl<'a> StreamReader<'a> {
    /// Plans in which order the stream's chunks are loaded. `references`: for the proof. `None` means nothing is proved.
    pub(crate) fn new(
        recorded: RecordedStream<'a>,
        clock: StreamClock<'a>,
        keep: &'a Keep,
        references: Option<&'a ElementReferences>,
        is_sorted: bool,
    ) -> Self {
        let RecordedStream {
            stream,
            input,
            numbers,
            contents,
            process_start_ns,
            process_end_ns,
        } = recorded;
        let mut reader = Self {
            stream,
            input,
            numbers,
            contents,
            recorded_losses: Cow::Borrowed(&contents.losses),
            keep,
            references,
            is_sorted,
            process_start_ns,
            process_end_ns,
            order: Vec::new(),
            planned_events: 0,
            next: 0,
            lanes: Vec::new(),
            loaded: 0,
            first_ns: None,
            front_ns: None,
            left_out_ns: None,
            losses: Vec::new(),
            reported: BTreeMap::new(),
            gaps: Vec::new(),
            totals: Cow::Borrowed(&contents.totals),
            findings: StreamFindings::default(),
            hash: OrderHash::default(),
            is_finished: false,
            clock,
        };
        let place = |loss: &StreamLoss| loss.before_chunk;
        if !reader.recorded_losses.is_sorted_by_key(place) {
            reader.recorded_losses.to_mut().sort_by_key(place);
        }
        if !keep.is_first() {
            let rows = reader.totals.to_mut().rows.iter_mut();
            rows.for_each(count_elsewhere);
        }
        if reader.clock.head_is_vague() && reader.totals.inversions != 0 {
            // The distance of two ticks is wrong beyond half a period of the clock.
            let found = reader.clock.disorder(input, &contents.chunks, is_sorted);
            let totals = reader.totals.to_mut();
            (totals.inversions, totals.largest_lateness) = found;
        }
        reader.plan();
        for planned in &mut reader.order {
            planned.events_before = reader.planned_events;
            let events = contents.chunks[planned.chunk].header.event_count;
            reader.planned_events = reader.planned_events.saturating_add(events);
        }
        reader.finish_if_done();
        reader
    }

    /// Returns what is left when all was read.
    pub(crate) fn into_outcome(self) -> StreamOutcome<'a> {
        StreamOutcome {
            stream: self.stream,
            input: self.input,
            numbers: self.numbers,
            totals: self.totals,
            findings: self.findings,
            hash: self.hash,
        }
    }

    /// Finds the order in which chunks are needed: when the merge has come to the smallest time in a
    /// chunk, and not before, it must be there.
    fn plan(&mut self) {
        let chunks = &self.contents.chunks;
        if !self.keep.selection.takes_stream(self.stream) {
            chunks.iter().for_each(|stored| self.leave_out(stored));
            return;
        }
        let is_new = self.newest();
        if !self.is_sorted && self.clock.head_is_vague() {
            let old = chunks.iter().zip(&is_new).filter(|(_, is_new)| !*is_new);
            old.for_each(|(stored, _)| self.leave_out(stored));
            let planned = (0..chunks.len()).filter(|chunk| is_new[*chunk]);
            let planned = planned.map(|chunk| Planned {
                chunk,
                bound_ns: None,
                end_ns: i64::MAX,
                events_before: 0,
                left_out_ns: None,
            });
            self.order = planned.collect();
            return;
        }
        let mut front_ns = i64::MIN;
        let mut planned = Vec::with_capacity(chunks.len());
        for (index, stored) in chunks.iter().enumerate() {
            let (least, most) = self.clock.bounds(self.input, stored, self.is_sorted);
            // An event of an ordered source is not before an event that the source raised earlier.
            let bound = if self.is_sorted {
                least
            } else {
                least.max(front_ns)
            };
            front_ns = front_ns.max(most);
            let is_wanted = is_new[index]
                && (self.keep.overlaps(bound, most.max(bound))
                    || stored.header.dropped_count != 0
                    || !self.losses_before(index).is_empty());
            planned.push((bound, index, most, is_wanted));
        }
        if self.is_sorted {
            planned.sort_by_key(|(bound, index, ..)| (*bound, *index));
        }
        let wanted = planned.iter().filter(|(.., is_wanted)| *is_wanted);
        self.order.reserve_exact(wanted.count());
        for (bound, index, most, is_wanted) in planned {
            if is_wanted {
                self.order.push(Planned {
                    chunk: index,
                    bound_ns: Some(bound),
                    end_ns: most.max(bound),
                    events_before: 0,
                    left_out_ns: self.left_out_ns,
                });
            } else {
                self.leave_out(&chunks[index]);
                self.left_out_ns = self.left_out_ns.max(Some(most));
            }
        }
    }

    /// Returns by chunk whether it is among the newest that are read.
    fn newest(&self) -> Vec<bool> {
        let chunks = &self.contents.chunks;
        let newest = &self.keep.newest;
        let oldest = chunks.len().saturating_sub(newest.chunks);
        let mut is_new = vec![true; chunks.len()];
        let mut left = newest.chunks;
        for (stored, is_new) in chunks[..oldest].iter().zip(&mut is_new).rev() {
            let types = stored.header.counts.iter();
            let mut types = types.filter_map(|(id, _)| self.numbers.event_types.get(id));
            *is_new = left != 0 && types.any(|id| newest.types.contains(id));
            left -= usize::from(*is_new);
        }
        is_new
    }

    /// Returns the losses that the recording has before the chunk with this index.
    fn losses_before(&self, chunk: usize) -> &[StreamLoss] {
        let losses = &self.recorded_losses;
        let first = losses.partition_point(|loss| loss.before_chunk < chunk);
        let after = losses[first..].partition_point(|loss| loss.before_chunk == chunk);
        &losses[first..first + after]
    }

    /// Counts the events of a chunk as filtered, or as there if heads are all that is wanted; it is never loaded.
    fn leave_out(&mut self, stored: &StoredChunk) {
        for (event_type, count) in &stored.header.counts {
            match self.keep.heads_only {
                true => self.findings.count(*event_type, *count),
                false => self.totals.to_mut().row(*event_type).add_filtered(*count),
            }
        }
    }

    /// Returns the least time of what is not loaded. `None` means that all is loaded.
    fn next_bound_ns(&self) -> Option<i64> {
        let planned = self.order.get(self.next)?;
        Some(planned.bound_ns.or(self.front_ns).unwrap_or(i64::MIN))
    }

    /// Returns the least time of what was not handed out. `None` means the stream's end.
    pub(crate) fn head_ns(&self) -> Option<i64> {
        let heads = self.lanes.iter().map(|lane| lane.batch.time_ns(lane.at));
        heads.chain(self.next_bound_ns()).min()
    }

    /// Returns the number of events in chunks that begin after one time and before another, loaded or not. Chunks whose
    /// begin is not known in advance do not count.
    pub(crate) fn events_of_chunks(&self, from_ns: i64, until_ns: i64) -> u64 {
        let events_before = |time_ns: i64| {
            let is_before = |planned: &Planned| planned.bound_ns.is_some_and(|b| b < time_ns);
            let place = self.order.partition_point(is_before);
            let planned = self.order.get(place);
            planned.map_or(self.planned_events, |planned| planned.events_before)
        };
        let first = events_before(from_ns.saturating_add(1));
        events_before(until_ns).saturating_sub(first)
    }

    /// Returns first and last time of all chunks, and an estimate of their events' bytes.
    fn spans(
        &self,
        bytes_of: impl Fn(&StoredChunk, u64) -> u64,
    ) -> impl Iterator<Item = (i64, i64, u64)> {
        self.order.iter().map(move |planned| {
            let first_ns = planned.bound_ns.unwrap_or(i64::MIN);
            let span_ns = planned.end_ns.abs_diff(first_ns);
            let bytes = bytes_of(&self.contents.chunks[planned.chunk], span_ns);
            (first_ns, planned.end_ns, bytes)
        })
    }

    /// Returns the chunks: first and last time, and at most how many bytes they take when they are decoded, by what
    /// their heads say. `sizes`: of an event, by type.
    pub(crate) fn spans_by_heads(
        &self,
        sizes: &FxHashMap<EventTypeId, u64>,
    ) -> impl Iterator<Item = (i64, i64, u64)> {
        self.spans(|stored, _| {
            let bytes = stored.header.counts.iter().map(|(event_type, count)| {
                let size = self.trace_type(Some(*event_type));
                let size = size.and_then(|id| sizes.get(&id)).copied().unwrap_or(64);
                count.saturating_mul(size)
            });
            bytes.fold(0, u64::saturating_add)
        })
    }

    /// Returns first and last time of all chunks, and their events' bytes by the sizes of their
    /// bodies, which are read from the file.
    pub(crate) fn spans_by_bodies(
        &self,
        sizes: &FxHashMap<EventTypeId, u64>,
    ) -> impl Iterator<Item = (i64, i64, u64)> {
        let by_heads = self.spans_by_heads(sizes);
        let by_bodies = self.spans(|stored, span_ns| match self.input.body_len(stored) {
            None => u64::MAX,
            Some(body) => {
                let header = &stored.header;
                let each = Batch::event_bytes(span_ns, self.is_sorted);
                let of_events = header.event_count.saturating_mul(each);
                let of_types = Batch::type_bytes(header.counts.len());
                body.saturating_add(of_events).saturating_add(of_types)
            }
        });
        let pairs = by_heads.zip(by_bodies);
        pairs.map(|((first, last, most), (_, _, bytes))| (first, last, bytes.min(most)))
    }

    /// Returns whether every chunk was taken in.
    pub(crate) fn is_all_loaded(&self) -> bool {
        self.next == self.order.len()
    }

    /// Returns the chunks that must be loaded before the events before a time are known: numbers for [`Self::decode`],
    /// to be followed by [`Self::take`] in this order. Ask again until there are none.
    pub(crate) fn wanted(&self, until_ns: i64) -> std::ops::Range<usize> {
        let mut end = self.next;
        while let Some(planned) = self.order.get(end) {
            let bound = match planned.bound_ns {
                Some(bound) => bound,
                None if end == self.next => self.front_ns.unwrap_or(i64::MIN),
                None => break,
            };
            // The end of time means all.
            if bound >= until_ns && until_ns != i64::MAX {
                break;
            }
            end += 1;
        }
        self.next..end
    }

    fn trace_type(&self, event_type: Option<EventTypeId>) -> Option<EventTypeId> {
        event_type.and_then(|id| self.numbers.event_types.get(&id).copied())
    }

    /// Reads and decodes a chunk.
    pub(crate) fn decode(&self, number: usize) -> Decoded {
        let number = self.order[number].chunk;
        match self.input.load(&self.contents.chunks[number]) {
            Ok(chunk) => self.on_axis(number, chunk),
            Err(error) => Decoded {
                batch: Err(error),
                ambiguous: 0,
                dropped: Vec::new(),
                event_types: Vec::new(),
                filtered: Vec::new(),
                hash: None,
            },
        }
    }

    /// Brings the events of the stream's chunk with this index onto the axis, and leaves out those of types that are not
    /// wanted.
    fn on_axis(&self, number: usize, mut chunk: Chunk) -> Decoded {
        let stored = &self.contents.chunks[number];
        let mut times = self.times_of(&stored.header, &chunk);
        let records = std::mem::take(&mut chunk.dropped);
        let mut dropped = self.place_records(number, records, &times.read_ns());
        let types = chunk.types.iter();
        let event_types: Vec<EventTypeId> = types.map(|columns| columns.event_type).collect();
        let of_trace = event_types.iter().map(|event_type| {
            let number = self.numbers.event_types.get(event_type);
            number.copied().unwrap_or(*event_type)
        });
        let of_trace: Vec<EventTypeId> = of_trace.collect();
        let mut filtered = Vec::new();
        let mut places = None;
        if !self.keep.selection.takes_all_event_types() {
            let kept = self.filter_types(&mut chunk, &of_trace, &mut filtered);
            times.keep(&kept);
            for placed in &mut dropped {
                placed.before = kept.partition_point(|kept| *kept < placed.before) as u32;
            }
            places = Some(kept);
        }
        let base_position = stored.header.before.recorded;
        let hash = self.references.map(|references| {
            let read = Read {
                times_ns: &times.read_ns(),
                residuals: &times.residuals,
                type_index: &chunk.type_index,
                types: &chunk.types,
                event_types: &of_trace,
            };
            let position = |index: usize| {
                let place = places.as_ref().map_or(index as u32, |places| places[index]);
                base_position.saturating_add(place.into())
            };
            let position = self.is_sorted.then_some(position);
            read.hash(0..times.times_ns.len(), self.numbers, references, position)
        });
        let mut batch = Batch::new(
            chunk,
            of_trace,
            base_position,
            times.times_ns,
            times.residuals,
            self.is_sorted,
            places,
        );
        if let Some(shifts) = times.shifts {
            batch.set_shifts(shifts);
        }
        Decoded {
            batch: Ok(batch),
            ambiguous: times.ambiguous,
            dropped,
            event_types,
            filtered,
            hash,
        }
    }

    /// Computes the times of a chunk's events from their ticks.
    fn times_of(&self, header: &ChunkHeader, chunk: &Chunk) -> EventTimes {
        let (mut times_ns, mut residuals) = (Vec::new(), Vec::new());
        let mut map = MapCursor::new(self.clock.map);
        let max_ticks = self.clock.clock.max_ticks;
        let mut ambiguous = 0;
        if self.clock.wraps() {
            let found = self.clock.unwrap(header, chunk, self.is_sorted);
            ambiguous = found.ambiguous;
            let mut steps = found.steps.into_iter();
            for tick in found.ticks {
                let time_ns = map.time_ns(tick);
                // Of the tick as it was read.
                let read = tick.saturating_sub(steps.next().unwrap_or(0));
                times_ns.push(time_ns);
                residuals.push(map.residual(read, time_ns, max_ticks));
            }
        } else {
            map.convert(&chunk.ticks, max_ticks, &mut times_ns, &mut residuals);
        }
        let shifts = self.clock.shifts.map(|shifts| {
            let shifts: Vec<i64> = times_ns.iter().map(|time| shifts.at(*time)).collect();
            for (time_ns, shift) in times_ns.iter_mut().zip(&shifts) {
                *time_ns = time_ns.saturating_add(*shift);
            }
            shifts
        });
        EventTimes {
            times_ns,
            residuals,
            shifts,
            ambiguous,
        }
    }

    /// Takes the events of types that are not wanted out of a chunk, and counts them in `filtered`. `of_trace`: the event
    /// types of the trace, by type of the chunk. Returns the former indexes of the events that are left.
    fn filter_types(
        &self,
        chunk: &mut Chunk,
        of_trace: &[EventTypeId],
        filtered: &mut Vec<(EventTypeId, u64)>,
    ) -> Vec<u32> {
        let selection = &self.keep.selection;
        let keeps = of_trace.iter().map(|id| selection.takes_event_type(*id));
        let keeps: Vec<bool> = keeps.collect();
        let of_types = chunk.types.iter().zip(&keeps).filter(|(_, keeps)| !**keeps);
        filtered.extend(of_types.map(|(columns, _)| (columns.event_type, columns.count as u64)));
        keep_types(chunk, &keeps)
    }

    /// Takes the next chunk in.
    pub(crate) fn take(&mut self, decoded: Decoded) {
        // Nothing at or after this time was handed out: the merge loads chunks first.
        let bound_ns = self.next_bound_ns().unwrap_or(i64::MIN);
        let planned = self.order[self.next];
        let index = planned.chunk;
        self.next += 1;
        let last_ns = self.front_ns.max(planned.left_out_ns);
        let last_good_ns = last_ns.unwrap_or(self.process_start_ns);
        let number = self.loaded;
        self.loaded += 1;
        let contents = self.contents;
        let stored = &contents.chunks[index];
        let clamped = self.findings.clamped;
        let kept = decoded.batch.map(|batch| self.place_batch(batch, bound_ns));
        let first_place = match &kept {
            Ok((_, range)) if !range.is_empty() && range.start == 0 && !self.is_sorted => {
                LossPlace::Event(number, 0)
            }
            _ => LossPlace::Time(
                self.clock
                    .bounds(self.input, stored, self.is_sorted)
                    .0
                    .max(bound_ns),
            ),
        };
        let first_ns = self.clock.bounds(self.input, stored, self.is_sorted).0;
        let is_gap = !self.losses_before(index).is_empty();
        if is_gap || index == 0 && self.has_overwritten() {
            self.gaps.push((last_good_ns.min(first_ns), first_ns));
        }
        let is_here = self.keep.has(first_ns.max(bound_ns));
        let losses = self.losses_before(index).iter().filter(|_| is_here);
        let losses = losses.map(|loss| {
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(loss.event_type),
                cause: loss.cause,
                count: loss.count,
                is_lower_bound: loss.is_lower_bound,
                from_ns: last_good_ns.min(first_ns),
                to_ns: first_ns,
            };
            (first_place, loss)
        });
        let losses: Vec<_> = losses.collect();
        self.losses.extend(losses);
        self.findings.ambiguous += decoded.ambiguous;
        for (event_type, count) in decoded.filtered {
            self.totals.to_mut().row(event_type).add_filtered(count);
        }
        match kept {
            Ok((batch, range)) => {
                let is_as_decoded = clamped == self.findings.clamped && range == (0..batch.len());
                self.hash_taken(&batch, &range, decoded.hash.filter(|_| is_as_decoded));
                for mut placed in decoded.dropped {
                    let (from_ns, to_ns) = self.interval_of(&placed, &batch, last_ns);
                    (placed.from_ns, placed.to_ns) = (Some(from_ns), to_ns);
                    self.add_record(number, &batch, &range, &placed, bound_ns);
                }
                self.take_batch(number, batch, range, &decoded.event_types);
            }
            Err(error) => self.skip(stored, &error, bound_ns, last_good_ns),
        }
        self.finish_if_done();
    }

    /// Returns whether the stream overwrote events before its first chunk.
    fn has_overwritten(&self) -> bool {
        let rows = self.totals.rows.iter();
        rows.map(|row| row.dropped.of(Cause::Overwritten))
            .any(|count| count != 0)
    }

    /// Takes events into the order hash; `known`: theirs.
    fn hash_taken(&mut self, batch: &Batch, range: &Range<usize>, known: Option<OrderHash>) {
        let Some(references) = self.references else {
            return;
        };
        let run = known
            .unwrap_or_else(|| proof::of_batch(batch, range.clone(), self.numbers, references));
        self.hash = self.hash.then(run);
    }

    /// Moves a chunk's events after all previous ones, and finds which of them are in the window.
    fn place_batch(&mut self, mut batch: Batch, bound_ns: i64) -> (Batch, Range<usize>) {
        if batch.len() == 0 {
            return (batch, 0..0);
        }
        // An ordered source promises its order: a time that is earlier than the previous one is the clock's fault, not
        // the event's. A sorted stream can only meet one when its head's bounds were wrong.
        let front_ns = match self.front_ns {
            Some(front_ns) if !self.is_sorted => front_ns.max(bound_ns),
            _ => bound_ns,
        };
        if !batch.ascends_from(front_ns) {
            let mut map = MapCursor::new(self.clock.map);
            let (moved, farthest) = batch.clamp(front_ns, &mut map, self.clock.clock.max_ticks);
            self.findings.clamped += moved;
            self.findings.largest_clamp_ns = self.findings.largest_clamp_ns.max(farthest);
        }
        let window = self.keep.time();
        let start = batch.first_from(0..batch.len(), window.from_ns);
        let end = match window.to_ns {
            i64::MAX => batch.len(),
            to_ns => batch.first_from(start..batch.len(), to_ns),
        };
        (batch, start..end)
    }

    fn take_batch(
        &mut self,
        number: u64,
        batch: Batch,
        range: Range<usize>,
        event_types: &[EventTypeId],
    ) {
        let mut counts = vec![0; event_types.len()];
        batch.count_types(range.clone(), &mut counts);
        for ((event_type, columns), count) in event_types.iter().zip(&batch.types).zip(counts) {
            self.findings.count(*event_type, count.into());
            let outside = columns.count as u64 - u64::from(count);
            if outside != 0 {
                self.totals.to_mut().row(*event_type).add_filtered(outside);
            }
        }
        if batch.len() == 0 {
            return;
        }
        let (first_ns, last_ns) = (batch.time_ns(0), batch.time_ns(batch.len() - 1));
        self.first_ns = Some(self.first_ns.map_or(first_ns, |first| first.min(first_ns)));
        self.front_ns = Some(self.front_ns.map_or(last_ns, |front| front.max(last_ns)));
        if range.is_empty() {
            return;
        }
        self.lanes.push(WaitingChunk {
            stream: self.stream,
            number,
            batch: Arc::new(batch),
            at: range.start,
            end: range.end,
        });
        // Lanes are sorted by their positions.
        if self.is_sorted {
            self.lanes.sort_by_key(|lane| lane.batch.base_position());
        }
    }

    /// Returns the interval of all gaps from this one on. `None` if there are none.
    fn gaps_from(&self, first: usize) -> Option<(i64, i64)> {
        let gaps = self.gaps.get(first..).unwrap_or_default();
        let from_ns = gaps.iter().map(|gap| gap.0).min()?;
        let to_ns = gaps.iter().map(|gap| gap.1).max()?;
        Some((from_ns, to_ns))
    }

    /// Counts the events of a chunk that cannot be read as lost.
    fn skip(
        &mut self,
        stored: &StoredChunk,
        error: &FormatError,
        bound_ns: i64,
        last_good_ns: i64,
    ) {
        let (from_ns, to_ns) = self.clock.bounds(self.input, stored, self.is_sorted);
        if !self.keep.has(to_ns.max(bound_ns)) {
            self.leave_out(stored);
            return;
        }
        self.gaps.push((last_good_ns.min(from_ns), to_ns));
        let first_error = &mut self.findings.first_error;
        first_error.get_or_insert_with(|| error.to_string());
        if let ChunkPlace::Block(offset) = stored.place {
            let problem = Problem::unreadable(offset, 0, error);
            let events = stored.header.event_count;
            self.findings.unreadable.push((problem, events));
        }
        let cause = match stored.place {
            ChunkPlace::Cut => Cause::Truncated,
            _ => Cause::Skipped,
        };
        for (event_type, count) in &stored.header.counts {
            self.totals
                .to_mut()
                .row(*event_type)
                .add_loss(cause, *count);
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(Some(*event_type)),
                cause,
                count: *count,
                is_lower_bound: false,
                from_ns: last_good_ns.min(from_ns),
                to_ns,
            };
            let place = LossPlace::Time(to_ns.max(bound_ns));
            self.losses.push((place, loss));
        }
    }

    fn finish_if_done(&mut self) {
        if self.next == self.order.len() && !self.is_finished {
            self.is_finished = true;
            self.finish();
        }
    }

    /// Ends the stream: adds losses after the last chunk, and those that are in counters but in no record.
    fn finish(&mut self) {
        let last_good_ns = self.front_ns.max(self.left_out_ns);
        let last_good_ns = last_good_ns.unwrap_or(self.process_start_ns);
        // A sorted stream has no one place where events are missing.
        let from_ns = if self.is_sorted && !self.gaps.is_empty() {
            self.process_start_ns.min(last_good_ns)
        } else {
            last_good_ns
        };
        let end_ns = self.process_end_ns.max(last_good_ns);
        // A clock that only its events have shown has no tick for the moment of the closing.
        let is_unknown = self.clock.clock.kind == ClockKind::Unreadable
            && self.totals.close_tick == self.totals.last_tick;
        let is_closed = !self.contents.is_open && !is_unknown;
        let close_ns = if is_closed {
            let [last_ns, near_ns] = [last_good_ns, end_ns].map(|ns| self.clock.unmoved(ns));
            let within = last_ns..=near_ns;
            let close_ns = self
                .clock
                .time_near(self.totals.close_tick, near_ns, within);
            close_ns.clamp(last_good_ns, end_ns)
        } else {
            end_ns
        };
        let chunk_count = self.contents.chunks.len();
        let at_end = self.losses_before(chunk_count).to_vec();
        for loss in at_end {
            let to_ns = if is_closed { close_ns } else { end_ns };
            self.gaps.push((from_ns, to_ns));
            if !self.keep.has(end_ns) {
                continue;
            }
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(loss.event_type),
                cause: loss.cause,
                count: loss.count,
                is_lower_bound: loss.is_lower_bound,
                from_ns,
                to_ns: end_ns,
            };
            self.losses.push((LossPlace::Time(end_ns), loss));
        }
        self.move_dropped_to_their_rows();
        let mut losses = Vec::new();
        for row in &self.totals.rows {
            for (cause, dropped) in row.dropped.iter() {
                let is_any = row.event_type == annals_format::ANY_EVENT_TYPE;
                let event_type = (!is_any).then_some(row.event_type);
                let reported = self.reported.get(&(event_type, cause));
                let reported = reported.copied().unwrap_or_default();
                let count = dropped.saturating_sub(reported.count);
                if count == 0 || !self.keep.has(close_ns) {
                    continue;
                }
                // Chunks of a sorted stream do not come in the order of their records.
                let first_gap = if self.is_sorted { 0 } else { reported.gaps };
                let in_gaps = self.gaps_from(first_gap);
                let (from_ns, to_ns) = match cause {
                    // Of what a stream overwrote, the last was before the first event that is left.
                    Cause::Overwritten => {
                        let to_ns = self.first_ns.unwrap_or(close_ns);
                        (self.process_start_ns.min(to_ns), to_ns)
                    }
                    _ => {
                        let of_gaps_ns = in_gaps.map_or(from_ns, |(gap_ns, _)| gap_ns);
                        (of_gaps_ns.min(from_ns), close_ns)
                    }
                };
                let loss = TraceLoss {
                    stream: self.stream,
                    event_type: self.trace_type(event_type),
                    cause,
                    count,
                    is_lower_bound: dropped == u64::MAX || row.raised_is_lower_bound,
                    from_ns,
                    to_ns,
                };
                losses.push((LossPlace::Time(close_ns), loss));
            }
        }
        self.losses.append(&mut losses);
    }

    /// Assigns dropped events to types for a stream without counters: heads contain only their
    /// number, records contain the types.
    fn move_dropped_to_their_rows(&mut self) {
        if !self.totals.rows.iter().any(|row| row.raised_is_lower_bound) {
            return;
        }
        let totals = self.totals.to_mut();
        let mut reported_sum = 0_u64;
        for ((event_type, cause), reported) in &self.reported {
            let count = reported.count;
            let row = totals.row(event_type.unwrap_or(annals_format::ANY_EVENT_TYPE));
            if cause.is_suppressed() {
                row.suppressed = count;
            } else {
                row.dropped.set(*cause, count);
                reported_sum = reported_sum.saturating_add(count);
            }
            row.raised = row
                .recorded
                .saturating_add(row.dropped_sum())
                .saturating_add(row.suppressed);
            row.raised_is_lower_bound = true;
        }
        let any = totals.row(annals_format::ANY_EVENT_TYPE);
        let others = any
            .dropped
            .of(Cause::BufferFull)
            .saturating_sub(reported_sum);
        any.dropped.set(Cause::BufferFull, others);
        any.raised = any.recorded.saturating_add(any.dropped_sum());
        any.raised_is_lower_bound = true;
        // A row of 0 means nothing next to other rows; a single one means that nothing is known.
        let is_alone = totals.rows.len() == 1;
        totals.rows.retain(|row| {
            is_alone || row.raised != 0 || row.event_type != annals_format::ANY_EVENT_TYPE
        });
    }
}

/// Counts events that are missing at an unknown time as filtered, because the first slice already
/// counts them as missing.
pub(crate) fn count_elsewhere(row: &mut annals_format::TypeTotals) {
    row.add_filtered(row.skipped.saturating_add(row.truncated));
    (row.skipped, row.truncated) = (0, 0);
}

/// Keeps the events of some types, by type of the chunk; returns their former indexes.
fn keep_types(chunk: &mut Chunk, keeps: &[bool]) -> Vec<u32> {
    let indexes = chunk.type_index.iter().enumerate();
    let kept: Vec<u32> = indexes
        .filter(|(_, place)| keeps[usize::from(**place)])
        .map(|(index, _)| index as u32)
        .collect();
    chunk.type_index.retain(|place| keeps[usize::from(*place)]);
    for (columns, _) in chunk
        .types
        .iter_mut()
        .zip(keeps)
        .filter(|(_, keeps)| !**keeps)
    {
        columns.count = 0;
        for column in &mut columns.columns {
            *column = column.in_order(&[]);
        }
    }
    kept
}
