//! One stream's events on the axis: its chunks are loaded when the merge comes to them. For an ordered
//! source they follow each other; of an unordered one several may be open, and the exact bounds that
//! their heads give tell which.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_format::ticks::{distance, unwrap_near};
use annals_format::{
    Cause, Chunk, Clock, ClockKind, ClockMap, DroppedRecord, EventTypeId, MapCursor, StoredChunk,
    StreamContents, StreamId, StreamTotals, TraceLoss,
};

use crate::batch::Batch;
use crate::hosts::Host;
use crate::input::InputRecording;
use crate::repair::Shifts;
use crate::unify::Numbers;

/// How a stream's raw ticks become axis times.
#[derive(Debug)]
pub(crate) struct StreamClock<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) map: &'a ClockMap,
    /// Where the process's reference clock is the clock of.
    pub(crate) host: &'a Host,
    /// By how much causality repair moves its process.
    pub(crate) shifts: Option<&'a Shifts>,
}

impl StreamClock<'_> {
    fn moved(&self, time_ns: i64) -> i64 {
        self.shifts.map_or(time_ns, |shifts| shifts.moved(time_ns))
    }

    fn expected_tick(&self, cursor: &mut MapCursor<'_>, reference_ns: i64) -> i128 {
        cursor.tick(self.host.axis_ns(reference_ns))
    }

    /// Whether wraps must be undone: the other clocks count nanoseconds or cycles since boot in 64 bits.
    fn wraps(&self) -> bool {
        matches!(self.clock.kind, ClockKind::Readable | ClockKind::Unreadable)
    }

    /// Unwrapped ticks of a chunk, and how many of them are ambiguous.
    pub(crate) fn unwrap(&self, open_reference_ns: i64, chunk: &Chunk) -> (Vec<i128>, u64) {
        let mut ticks = Vec::with_capacity(chunk.ticks.len());
        if !self.wraps() {
            ticks.extend(chunk.ticks.iter().map(|tick| i128::from(*tick)));
            return (ticks, 0);
        }
        let max_ticks = self.clock.max_ticks;
        let mut cursor = MapCursor::new(self.map);
        let mut ambiguous = 0;
        let mut observations = chunk.observations.iter().peekable();
        let mut expected = self.expected_tick(&mut cursor, open_reference_ns);
        let is_observed = !chunk.observations.is_empty();
        let mut previous: Option<(u64, i128)> = None;
        for (index, tick) in chunk.ticks.iter().enumerate() {
            while let Some((_, time_ns)) = observations.next_if(|o| o.0 as usize <= index) {
                expected = self.expected_tick(&mut cursor, *time_ns);
            }
            let unwrapped = match previous {
                // Without observations the period is so long that the short way round is right.
                Some((last, unwrapped)) if !is_observed => {
                    unwrapped + i128::from(distance(last, *tick, max_ticks))
                }
                _ => {
                    let (unwrapped, is_ambiguous) = unwrap_near(*tick, expected, max_ticks);
                    ambiguous += u64::from(is_ambiguous);
                    unwrapped
                }
            };
            previous = Some((*tick, unwrapped));
            ticks.push(unwrapped);
        }
        (ticks, ambiguous)
    }

    /// Axis time of one raw tick that was read at about this axis time.
    pub(crate) fn time_near(&self, tick: u64, near_ns: i64) -> i64 {
        let mut cursor = MapCursor::new(self.map);
        if !self.wraps() {
            return self.moved(cursor.time_ns(tick.into()));
        }
        let expected = cursor.tick(near_ns);
        let (unwrapped, _) = unwrap_near(tick, expected, self.clock.max_ticks);
        self.moved(cursor.time_ns(unwrapped))
    }

    /// Whether a chunk's head cannot tell the bounds of its times: the clock may wrap between two
    /// events, and the observations that count the wraps stand in the body.
    fn head_is_vague(&self) -> bool {
        const LONG_NS: u128 = 24 * 3600 * 1_000_000_000;
        let period_ns = (u128::from(self.clock.max_ticks) + 1) * 1_000_000_000
            / u128::from(self.clock.ticks_per_second);
        self.wraps() && (period_ns < LONG_NS || self.clock.kind == ClockKind::Unreadable)
    }

    /// Bounds of a chunk's axis times: from its head where that can tell them, else from its events.
    pub(crate) fn bounds(&self, input: &InputRecording, stored: &StoredChunk) -> (i64, i64) {
        let (first, last) = self.read_bounds(input, stored);
        (self.moved(first), self.moved(last))
    }

    /// The same as the clock says.
    fn read_bounds(&self, input: &InputRecording, stored: &StoredChunk) -> (i64, i64) {
        let header = &stored.header;
        let mut cursor = MapCursor::new(self.map);
        if !self.wraps() {
            let first = i128::from(header.first_tick);
            return (
                cursor.time_ns(first + i128::from(header.min_offset)),
                cursor.time_ns(first + i128::from(header.max_offset)),
            );
        }
        let expected = self.expected_tick(&mut cursor, header.open_reference_ns);
        let first = unwrap_near(header.first_tick, expected, self.clock.max_ticks).0;
        if !self.head_is_vague() {
            return (
                cursor.time_ns(first + i128::from(header.min_offset)),
                cursor.time_ns(first + i128::from(header.max_offset)),
            );
        }
        let ticks = input.recording.load(&input.file, stored).map(|chunk| {
            let (ticks, _) = self.unwrap(header.open_reference_ns, &chunk);
            ticks
        });
        let ticks = ticks.unwrap_or_default();
        let least = ticks.iter().min().copied().unwrap_or(first);
        let most = ticks.iter().max().copied().unwrap_or(first);
        (cursor.time_ns(least), cursor.time_ns(most))
    }
}

/// What a stream's reading found: for totals and report.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamFindings {
    /// Events whose wraps the references do not decide.
    pub(crate) ambiguous: u64,
    /// Events of an ordered source that were moved up to the time of the one before.
    pub(crate) clamped: u64,
    /// The largest such move, nanoseconds.
    pub(crate) largest_clamp_ns: u64,
    /// Chunks that could not be decoded, with the reason of the first.
    pub(crate) unreadable_chunks: u64,
    pub(crate) first_error: Option<String>,
    /// Events that were read, by event type of the recording.
    pub(crate) present: BTreeMap<EventTypeId, u64>,
}

/// Where a loss stands in the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LossPlace {
    /// Before the event with this index of the lane with this number.
    Event(u64, usize),
    /// Behind the events before this time.
    Time(i64),
}

/// A chunk that waits to be handed out.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// Tells the lanes of a stream apart.
    pub(crate) number: u64,
    pub(crate) batch: Arc<Batch>,
    /// The next event.
    pub(crate) at: usize,
}

/// A chunk as it was decoded; nothing of the stream's past is known yet.
pub(crate) struct Decoded {
    batch: std::result::Result<Batch, String>,
    ambiguous: u64,
    /// Dropped records with the index of the event they precede, and their interval on the axis.
    dropped: Vec<(u32, DroppedRecord, (i64, i64))>,
    present: Vec<(EventTypeId, u64)>,
}

/// Reads one stream.
#[derive(Debug)]
pub(crate) struct StreamReader<'a> {
    pub(crate) stream: StreamId,
    pub(crate) input: &'a InputRecording,
    pub(crate) numbers: &'a Numbers,
    contents: &'a StreamContents,
    clock: StreamClock<'a>,
    is_sorted: bool,
    process_start_ns: i64,
    process_end_ns: i64,
    /// Chunks in the order in which they are loaded, with the least time that an event in them can have;
    /// none: not before the end of the chunk before.
    order: Vec<(usize, Option<i64>)>,
    /// For each place in `order`, how many events the chunks before it have, as their heads say.
    events_before: Vec<u64>,
    next: usize,
    /// Chunks that are loaded and not handed out.
    pub(crate) lanes: Vec<Lane>,
    loaded: u64,
    /// Time of the last event loaded (ordered sources), else of the last handed out.
    front_ns: Option<i64>,
    /// Losses that no window has yet.
    pub(crate) losses: Vec<(LossPlace, TraceLoss)>,
    /// What dropped records told, by event type and cause.
    reported: BTreeMap<(Option<EventTypeId>, Cause), u64>,
    pub(crate) totals: StreamTotals,
    pub(crate) findings: StreamFindings,
    is_finished: bool,
}

impl<'a> StreamReader<'a> {
    pub(crate) fn new(
        stream: StreamId,
        input: &'a InputRecording,
        numbers: &'a Numbers,
        contents: &'a StreamContents,
        clock: StreamClock<'a>,
        is_sorted: bool,
        (process_start_ns, process_end_ns): (i64, i64),
    ) -> Self {
        let mut reader = Self {
            stream,
            input,
            numbers,
            contents,
            is_sorted,
            process_start_ns,
            process_end_ns,
            order: Vec::new(),
            events_before: Vec::new(),
            next: 0,
            lanes: Vec::new(),
            loaded: 0,
            front_ns: None,
            losses: Vec::new(),
            reported: BTreeMap::new(),
            totals: contents.totals.clone(),
            findings: StreamFindings::default(),
            is_finished: false,
            clock,
        };
        reader.plan();
        let mut sum = 0_u64;
        reader.events_before.push(sum);
        for (index, _) in &reader.order {
            sum = sum.saturating_add(contents.chunks[*index].header.event_count);
            reader.events_before.push(sum);
        }
        reader.finish_if_done();
        reader
    }

    /// Finds the order in which chunks are needed: when the merge has come to the smallest time in a
    /// chunk, and not before, it must be there.
    fn plan(&mut self) {
        let chunks = &self.contents.chunks;
        if !self.is_sorted && self.clock.head_is_vague() {
            self.order = (0..chunks.len()).map(|index| (index, None)).collect();
            return;
        }
        let mut front_ns = i64::MIN;
        let bounds = chunks.iter().enumerate().map(|(index, stored)| {
            let (least, most) = self.clock.bounds(self.input, stored);
            // What an ordered source raised is not before what it raised before.
            let bound = if self.is_sorted {
                least
            } else {
                least.max(front_ns)
            };
            front_ns = front_ns.max(most);
            (index, Some(bound))
        });
        self.order = bounds.collect();
        if self.is_sorted {
            self.order.sort_by_key(|(index, bound)| (*bound, *index));
        }
    }

    /// Least time of what is not loaded; none when all is.
    fn next_bound_ns(&self) -> Option<i64> {
        let (_, bound) = self.order.get(self.next)?;
        Some(bound.or(self.front_ns).unwrap_or(i64::MIN))
    }

    /// Least time of what was not handed out; none at the stream's end.
    pub(crate) fn head_ns(&self) -> Option<i64> {
        let heads = self.lanes.iter().map(|lane| lane.batch.time_ns(lane.at));
        heads.chain(self.next_bound_ns()).min()
    }

    /// Events of the chunks that begin behind one time and before another, loaded or not. Chunks of which
    /// that is not known beforehand do not count.
    pub(crate) fn events_of_chunks(&self, from_ns: i64, until_ns: i64) -> u64 {
        let place = |time_ns: i64| {
            let is_before = |(_, bound): &(usize, Option<i64>)| bound.is_some_and(|b| b < time_ns);
            self.order.partition_point(is_before)
        };
        let (first, end) = (place(from_ns.saturating_add(1)), place(until_ns));
        self.events_before[end.max(first)] - self.events_before[first]
    }

    /// Whether events come at or behind a time up to which all is loaded.
    pub(crate) fn has_from(&self, time_ns: i64) -> bool {
        let is_behind = |lane: &Lane| lane.batch.time_ns(lane.batch.len() - 1) >= time_ns;
        self.next < self.order.len() || self.lanes.iter().any(is_behind)
    }

    /// The chunks that must be loaded before the events before a time are known: numbers for
    /// [`Self::decode`], to be followed by [`Self::take`] in this order. Ask again until there are none.
    pub(crate) fn wanted(&self, until_ns: i64) -> std::ops::Range<usize> {
        let mut end = self.next;
        while let Some((_, bound)) = self.order.get(end) {
            let bound = match bound {
                Some(bound) => *bound,
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
        let stored = &self.contents.chunks[self.order[number].0];
        match self.input.recording.load(&self.input.file, stored) {
            Ok(chunk) => self.on_axis(stored, chunk),
            Err(error) => Decoded {
                batch: Err(error.to_string()),
                ambiguous: 0,
                dropped: Vec::new(),
                present: Vec::new(),
            },
        }
    }

    fn on_axis(&self, stored: &StoredChunk, mut chunk: Chunk) -> Decoded {
        let open_reference_ns = stored.header.open_reference_ns;
        let (mut times_ns, mut residuals) = (Vec::new(), Vec::new());
        let mut map = MapCursor::new(self.clock.map);
        let mut ambiguous = 0;
        if self.clock.wraps() {
            let (ticks, undecided) = self.clock.unwrap(open_reference_ns, &chunk);
            ambiguous = undecided;
            for tick in ticks {
                let time_ns = map.time_ns(tick);
                let residual = tick.saturating_sub(map.tick(time_ns));
                times_ns.push(time_ns);
                residuals.push(residual.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
            }
        } else {
            map.convert(&chunk.ticks, &mut times_ns, &mut residuals);
        }
        let shifts = self.clock.shifts.map(|shifts| {
            let shifts: Vec<i64> = times_ns.iter().map(|time| shifts.at(*time)).collect();
            for (time_ns, shift) in times_ns.iter_mut().zip(&shifts) {
                *time_ns = time_ns.saturating_add(*shift);
            }
            shifts
        });
        let dropped = std::mem::take(&mut chunk.dropped).into_iter();
        let dropped = dropped.map(|(index, record)| {
            let near_ns = times_ns.get(index as usize).or(times_ns.last()).copied();
            let near_ns = near_ns.unwrap_or_else(|| self.clock.host.axis_ns(open_reference_ns));
            let to_ns = self.clock.time_near(record.to_tick, near_ns);
            let from_ns = self.clock.time_near(record.from_tick, near_ns);
            (index, record, (from_ns.min(to_ns), to_ns))
        });
        let dropped = dropped.collect();
        let types = chunk.types.iter();
        let present = types
            .clone()
            .map(|columns| (columns.event_type, columns.count as u64));
        let present = present.collect();
        let event_types = types.map(|columns| {
            let number = self.numbers.event_types.get(&columns.event_type);
            number.copied().unwrap_or(columns.event_type)
        });
        let event_types = event_types.collect();
        let base_position = stored.header.before.recorded;
        let mut batch = Batch::new(
            chunk,
            event_types,
            base_position,
            times_ns,
            residuals,
            self.is_sorted,
        );
        shifts
            .into_iter()
            .for_each(|shifts| batch.set_shifts(shifts));
        Decoded {
            batch: Ok(batch),
            ambiguous,
            dropped,
            present,
        }
    }

    /// Takes the next chunk in. `handed_out_ns` is the time up to which the merge is done.
    pub(crate) fn take(&mut self, decoded: Decoded, handed_out_ns: i64) {
        let index = self.order[self.next].0;
        self.next += 1;
        let number = self.loaded;
        self.loaded += 1;
        let contents = self.contents;
        let stored = &contents.chunks[index];
        let first_place = match &decoded.batch {
            Ok(batch) if batch.len() != 0 && !self.is_sorted => LossPlace::Event(number, 0),
            _ => LossPlace::Time(self.clock.bounds(self.input, stored).0.max(handed_out_ns)),
        };
        for loss in contents.losses.iter().filter(|l| l.before_chunk == index) {
            let first_ns = self.clock.bounds(self.input, stored).0;
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(loss.event_type),
                cause: loss.cause,
                count: loss.count,
                is_lower_bound: loss.is_lower_bound,
                from_ns: self.last_good_ns().min(first_ns),
                to_ns: first_ns,
            };
            self.losses.push((first_place, loss));
        }
        self.findings.ambiguous += decoded.ambiguous;
        match decoded.batch {
            Ok(batch) => {
                for (event_type, count) in decoded.present {
                    *self.findings.present.entry(event_type).or_default() += count;
                }
                self.take_dropped(number, batch.len(), &decoded.dropped, handed_out_ns);
                self.take_batch(number, batch, handed_out_ns);
            }
            Err(error) => self.skip(stored, error, handed_out_ns),
        }
        self.finish_if_done();
    }

    fn take_batch(&mut self, number: u64, mut batch: Batch, handed_out_ns: i64) {
        if batch.len() == 0 {
            return;
        }
        // An ordered source promises that a time behind the one before is the clock's fault, not the
        // event's. A sorted stream can only meet one when its head's bounds were wrong.
        let front_ns = match self.front_ns {
            Some(front_ns) if !self.is_sorted => front_ns.max(handed_out_ns),
            _ => handed_out_ns,
        };
        if !batch.ascends_from(front_ns) {
            let mut map = MapCursor::new(self.clock.map);
            let (moved, farthest) = batch.clamp(front_ns, &mut map);
            self.findings.clamped += moved;
            self.findings.largest_clamp_ns = self.findings.largest_clamp_ns.max(farthest);
        }
        let last_ns = batch.time_ns(batch.len() - 1);
        self.front_ns = Some(self.front_ns.map_or(last_ns, |front| front.max(last_ns)));
        self.lanes.push(Lane {
            number,
            batch: Arc::new(batch),
            at: 0,
        });
        // Lanes stand in the order of their positions.
        if self.is_sorted {
            self.lanes.sort_by_key(|lane| lane.batch.base_position());
        }
    }

    fn take_dropped(
        &mut self,
        number: u64,
        events: usize,
        dropped: &[(u32, DroppedRecord, (i64, i64))],
        handed_out_ns: i64,
    ) {
        for (index, record, (from_ns, to_ns)) in dropped {
            let key = (record.event_type, record.cause);
            let told = self.reported.entry(key).or_default();
            // Cumulative counts include what a lost chunk's records told; that works only when chunks
            // come in their own order.
            let count = if self.is_sorted || record.cause.is_suppressed() {
                record.count
            } else {
                record.cumulative.saturating_sub(*told).max(record.count)
            };
            *told = told.saturating_add(count);
            let index = *index as usize;
            let place = if self.is_sorted || index >= events {
                LossPlace::Time((*to_ns).max(handed_out_ns))
            } else {
                LossPlace::Event(number, index)
            };
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(record.event_type),
                cause: record.cause,
                count,
                is_lower_bound: record.is_lower_bound,
                from_ns: *from_ns,
                to_ns: *to_ns,
            };
            self.losses.push((place, loss));
        }
    }

    /// A chunk that cannot be read: its events are counted as lost.
    fn skip(&mut self, stored: &StoredChunk, error: String, handed_out_ns: i64) {
        self.findings.unreadable_chunks += 1;
        self.findings.first_error.get_or_insert(error);
        let (from_ns, to_ns) = self.clock.bounds(self.input, stored);
        let cause = match stored.place {
            annals_format::ChunkPlace::Cut => Cause::Truncated,
            _ => Cause::Skipped,
        };
        for (event_type, count) in &stored.header.counts {
            self.totals.row(*event_type).add_loss(cause, *count);
            let loss = TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(Some(*event_type)),
                cause,
                count: *count,
                is_lower_bound: false,
                from_ns: self.last_good_ns().min(from_ns),
                to_ns,
            };
            let place = LossPlace::Time(to_ns.max(handed_out_ns));
            self.losses.push((place, loss));
        }
    }

    /// Where a loss that comes next begins.
    fn last_good_ns(&self) -> i64 {
        self.front_ns.unwrap_or(self.process_start_ns)
    }

    fn finish_if_done(&mut self) {
        if self.next == self.order.len() && !self.is_finished {
            self.is_finished = true;
            self.finish();
        }
    }

    /// The stream's end: losses behind the last chunk, and what counters know of and no record told.
    fn finish(&mut self) {
        // A sorted stream has no one place where records are missing.
        let from_ns = if self.is_sorted && self.findings.unreadable_chunks != 0 {
            self.process_start_ns
        } else {
            self.last_good_ns()
        };
        let end_ns = self.process_end_ns.max(self.last_good_ns());
        let close_ns = if self.contents.is_open {
            end_ns
        } else {
            self.clock
                .time_near(self.totals.close_tick, end_ns)
                .clamp(from_ns, end_ns)
        };
        let chunk_count = self.contents.chunks.len();
        for loss in &self.contents.losses {
            if loss.before_chunk == chunk_count {
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
        }
        self.move_dropped_to_their_rows();
        for row in &self.totals.rows {
            for cause in Cause::RECORDER {
                let dropped = row.dropped[cause.code() as usize];
                let is_any = row.event_type == annals_format::ANY_EVENT_TYPE;
                let event_type = (!is_any).then_some(row.event_type);
                let told = self.reported.get(&(event_type, cause)).copied();
                let count = dropped.saturating_sub(told.unwrap_or(0));
                if count != 0 {
                    let event_type =
                        event_type.and_then(|id| self.numbers.event_types.get(&id).copied());
                    let loss = TraceLoss {
                        stream: self.stream,
                        event_type,
                        cause,
                        count,
                        is_lower_bound: dropped == u64::MAX || row.raised_is_lower_bound,
                        from_ns,
                        to_ns: close_ns,
                    };
                    self.losses.push((LossPlace::Time(close_ns), loss));
                }
            }
        }
    }

    /// A stream without counters knows from its heads only how much was dropped; the records say of
    /// which types.
    fn move_dropped_to_their_rows(&mut self) {
        if !self.totals.rows.iter().any(|row| row.raised_is_lower_bound) {
            return;
        }
        let mut told_sum = 0_u64;
        for ((event_type, cause), count) in &self.reported {
            let row = self
                .totals
                .row(event_type.unwrap_or(annals_format::ANY_EVENT_TYPE));
            if cause.is_suppressed() {
                row.suppressed = *count;
            } else {
                row.dropped[cause.code() as usize] = *count;
                told_sum = told_sum.saturating_add(*count);
            }
            row.raised = row
                .recorded
                .saturating_add(row.dropped_sum())
                .saturating_add(row.suppressed);
            row.raised_is_lower_bound = true;
        }
        let any = self.totals.row(annals_format::ANY_EVENT_TYPE);
        let code = Cause::BufferFull.code() as usize;
        any.dropped[code] = any.dropped[code].saturating_sub(told_sum);
        any.raised = any.recorded.saturating_add(any.dropped_sum());
        any.raised_is_lower_bound = true;
        self.totals
            .rows
            .retain(|row| row.raised != 0 || row.event_type != annals_format::ANY_EVENT_TYPE);
    }
}
