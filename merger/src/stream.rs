//! One stream's events on the axis: chunk by chunk in order for an ordered source, sorted with the
//! exact bound that the chunks' heads give for an unordered one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use annals_format::ticks::{distance, unwrap_near};
use annals_format::{
    Cause, Chunk, Clock, ClockKind, ClockMap, EventTypeId, MapCursor, StoredChunk, StreamContents,
    StreamId, StreamTotals, TraceLoss,
};

use crate::input::InputRecording;
use crate::unify::Numbers;

/// How a stream's raw ticks become axis times.
#[derive(Debug)]
pub(crate) struct StreamClock<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) map: &'a ClockMap,
    /// Axis time of the process's reference clock reading 0.
    pub(crate) reference_offset_ns: i64,
}

impl StreamClock<'_> {
    fn expected_tick(&self, cursor: &mut MapCursor<'_>, reference_ns: i64) -> i128 {
        cursor.tick(reference_ns.saturating_add(self.reference_offset_ns))
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
            return cursor.time_ns(tick.into());
        }
        let expected = cursor.tick(near_ns);
        let (unwrapped, _) = unwrap_near(tick, expected, self.clock.max_ticks);
        cursor.time_ns(unwrapped)
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

/// A decoded chunk on the axis.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) times_ns: Vec<i64>,
    pub(crate) residuals: Vec<i64>,
    pub(crate) ordinals: Vec<u32>,
    pub(crate) chunk: Chunk,
    /// The event types of the trace, by index in `chunk.types`.
    pub(crate) event_types: Vec<EventTypeId>,
    /// Position in the stream of the first event.
    pub(crate) base_position: u64,
    losses: VecDeque<(u32, TraceLoss)>,
    /// Events not handed out yet; only for sorted streams.
    left: usize,
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
    /// Events handed out, by event type of the recording.
    pub(crate) present: BTreeMap<EventTypeId, u64>,
}

/// An event of a cursor: which batch, which index in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventAt {
    pub(crate) batch: usize,
    pub(crate) index: usize,
}

/// Reads one stream.
#[derive(Debug)]
pub(crate) struct StreamCursor<'a> {
    pub(crate) stream: StreamId,
    pub(crate) input: &'a InputRecording,
    pub(crate) numbers: &'a Numbers,
    contents: &'a StreamContents,
    clock: StreamClock<'a>,
    is_sorted: bool,
    process_start_ns: i64,
    process_end_ns: i64,
    /// Chunks still to be loaded, in the order in which they are.
    order: VecDeque<usize>,
    /// Lower bound of the times in each chunk of `order` (sorted streams).
    lower_bounds: Vec<i64>,
    /// Loaded batches; freed ones are none.
    batches: Vec<Option<Batch>>,
    free: Vec<usize>,
    /// Ordered: the batch and index of the head.
    head: Option<EventAt>,
    /// Sorted: events loaded and not handed out: time, position, batch, index.
    heap: BinaryHeap<Reverse<(i64, u64, usize, usize)>>,
    /// Time of the last event handed out.
    front_ns: Option<i64>,
    due_losses: VecDeque<TraceLoss>,
    /// What dropped records told, by event type and cause.
    reported: BTreeMap<(Option<EventTypeId>, Cause), u64>,
    pub(crate) totals: StreamTotals,
    pub(crate) findings: StreamFindings,
    is_finished: bool,
}

impl<'a> StreamCursor<'a> {
    pub(crate) fn new(
        stream: StreamId,
        input: &'a InputRecording,
        numbers: &'a Numbers,
        contents: &'a StreamContents,
        clock: StreamClock<'a>,
        is_sorted: bool,
        (process_start_ns, process_end_ns): (i64, i64),
    ) -> Self {
        let mut cursor = Self {
            stream,
            input,
            numbers,
            contents,
            is_sorted,
            process_start_ns,
            process_end_ns,
            order: (0..contents.chunks.len()).collect(),
            lower_bounds: Vec::new(),
            batches: Vec::new(),
            free: Vec::new(),
            head: None,
            heap: BinaryHeap::new(),
            front_ns: None,
            due_losses: VecDeque::new(),
            reported: BTreeMap::new(),
            totals: contents.totals.clone(),
            findings: StreamFindings::default(),
            is_finished: false,
            clock,
        };
        if is_sorted {
            cursor.plan_sorting();
        }
        cursor.advance();
        cursor
    }

    /// Orders the chunks by the smallest time in them: when the merge has come to that time, and not
    /// before, the chunk must be there.
    fn plan_sorting(&mut self) {
        let chunks = &self.contents.chunks;
        self.lower_bounds = (0..chunks.len())
            .map(|index| self.lower_bound(index))
            .collect();
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_by_key(|index| (self.lower_bounds[*index], *index));
        self.order = order.into();
    }

    fn lower_bound(&self, index: usize) -> i64 {
        self.clock
            .bounds(self.input, &self.contents.chunks[index])
            .0
    }

    /// Axis time of the next event or loss; none: the stream is at its end.
    pub(crate) fn head_ns(&self) -> Option<i64> {
        if self.is_sorted {
            return self.heap.peek().map(|Reverse((time_ns, ..))| *time_ns);
        }
        let head = self.head?;
        Some(self.batch(head.batch).times_ns[head.index])
    }

    /// A loaded batch.
    pub(crate) fn batch(&self, batch: usize) -> &Batch {
        self.batches[batch]
            .as_ref()
            .expect("a batch stays until its last event is handed out")
    }

    /// Losses that stand before the head (behind the last event, when the stream is at its end).
    pub(crate) fn take_losses(&mut self) -> impl Iterator<Item = TraceLoss> {
        std::mem::take(&mut self.due_losses).into_iter()
    }

    pub(crate) fn has_losses(&self) -> bool {
        !self.due_losses.is_empty()
    }

    /// Position in the stream of an event.
    pub(crate) fn position_of(&self, at: EventAt) -> u64 {
        if !self.is_sorted {
            return 0;
        }
        self.batch(at.batch)
            .base_position
            .saturating_add(at.index as u64)
    }

    /// The head event; [`Self::advance`] goes on behind it.
    pub(crate) fn head(&self) -> Option<EventAt> {
        if self.is_sorted {
            let Reverse((_, _, batch, index)) = *self.heap.peek()?;
            return Some(EventAt { batch, index });
        }
        self.head
    }

    /// How many events from the head on lie in the same batch before the key (time, index of the
    /// stream) of another stream, with nothing standing between them.
    pub(crate) fn run_length(&self, is_before: impl Fn(i64) -> bool) -> usize {
        let Some(head) = self.head() else { return 0 };
        if self.is_sorted {
            return 1;
        }
        let batch = self.batch(head.batch);
        let end = batch
            .losses
            .front()
            .map_or(batch.times_ns.len(), |(index, _)| *index as usize);
        let times = &batch.times_ns[head.index..end.max(head.index + 1)];
        1 + times[1..]
            .iter()
            .take_while(|time| is_before(**time))
            .count()
    }

    /// Goes on by `count` events of the head's batch.
    pub(crate) fn skip(&mut self, count: usize) {
        if self.is_sorted {
            if let Some(Reverse((time_ns, _, number, _))) = self.heap.pop() {
                self.front_ns = Some(time_ns);
                let batch = self.batches[number]
                    .as_mut()
                    .expect("a batch stays until its last event is handed out");
                batch.left -= 1;
                if batch.left == 0 {
                    self.release(number);
                }
            }
        } else if let Some(head) = &mut self.head {
            head.index += count;
            let number = head.batch;
            let batch = self.batches[number]
                .as_ref()
                .expect("a batch stays until its last event is handed out");
            self.front_ns = Some(batch.times_ns[head.index - 1]);
            if head.index == batch.times_ns.len() {
                self.due_losses
                    .extend(batch.losses.iter().map(|(_, loss)| *loss));
                self.release(number);
                self.head = None;
            }
        }
        self.advance();
    }

    fn release(&mut self, number: usize) {
        self.batches[number] = None;
        self.free.push(number);
    }

    fn store(&mut self, batch: Batch) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.batches[number] = Some(batch);
                number
            }
            None => {
                self.batches.push(Some(batch));
                self.batches.len() - 1
            }
        }
    }

    /// Loads what must be there for the head to be right.
    fn advance(&mut self) {
        if self.is_sorted {
            while let Some(next) = self.order.front() {
                let bound = self.lower_bounds[*next];
                if self.head_ns().is_some_and(|head_ns| head_ns < bound) {
                    break;
                }
                self.load_next();
            }
            self.move_due_losses();
        } else {
            while self.head.is_none() && !self.order.is_empty() {
                self.load_next();
            }
            if let Some(head) = self.head {
                let batch = self.batches[head.batch]
                    .as_mut()
                    .expect("the head's batch is loaded");
                while let Some((_, loss)) = batch
                    .losses
                    .pop_front_if(|loss| loss.0 as usize <= head.index)
                {
                    self.due_losses.push_back(loss);
                }
            }
        }
        if self.head().is_none() && self.order.is_empty() && !self.is_finished {
            self.is_finished = true;
            self.finish();
        }
    }

    /// Sorted streams: losses come when the order has reached the end of their interval.
    fn move_due_losses(&mut self) {
        let head_ns = self.head_ns().unwrap_or(i64::MAX);
        let mut due: Vec<TraceLoss> = Vec::new();
        for batch in self.batches.iter_mut().flatten() {
            while let Some((_, loss)) = batch.losses.pop_front_if(|(_, loss)| loss.to_ns <= head_ns)
            {
                due.push(loss);
            }
        }
        due.sort_by_key(|loss| (loss.to_ns, loss.event_type, loss.cause));
        self.due_losses.extend(due);
    }

    fn trace_type(&self, event_type: Option<EventTypeId>) -> Option<EventTypeId> {
        event_type.and_then(|id| self.numbers.event_types.get(&id).copied())
    }

    fn load_next(&mut self) {
        let Some(index) = self.order.pop_front() else {
            return;
        };
        let contents = self.contents;
        let stored = &contents.chunks[index];
        let header = &stored.header;
        let mut before: Vec<TraceLoss> = Vec::new();
        for loss in contents.losses.iter().filter(|l| l.before_chunk == index) {
            let first_ns = self.clock.bounds(self.input, stored).0;
            before.push(TraceLoss {
                stream: self.stream,
                event_type: self.trace_type(loss.event_type),
                cause: loss.cause,
                count: loss.count,
                is_lower_bound: loss.is_lower_bound,
                from_ns: self.last_good_ns().min(first_ns),
                to_ns: first_ns,
            });
        }
        let loaded = self.input.recording.load(&self.input.file, stored);
        let chunk = match loaded {
            Ok(chunk) => chunk,
            Err(error) => {
                self.findings.unreadable_chunks += 1;
                let first_error = &mut self.findings.first_error;
                first_error.get_or_insert_with(|| error.to_string());
                let (from_ns, to_ns) = self.clock.bounds(self.input, stored);
                let cause = match stored.place {
                    annals_format::ChunkPlace::Cut => Cause::Truncated,
                    _ => Cause::Skipped,
                };
                for (event_type, count) in &header.counts {
                    self.totals.row(*event_type).add_loss(cause, *count);
                    before.push(TraceLoss {
                        stream: self.stream,
                        event_type: self.trace_type(Some(*event_type)),
                        cause,
                        count: *count,
                        is_lower_bound: false,
                        from_ns: self.last_good_ns().min(from_ns),
                        to_ns,
                    });
                }
                self.due_losses.extend(before);
                return;
            }
        };
        self.due_losses.extend(before);
        self.take_chunk(header.open_reference_ns, header.before.recorded, chunk);
    }

    /// Where a loss that comes next begins.
    fn last_good_ns(&self) -> i64 {
        self.front_ns.unwrap_or(self.process_start_ns)
    }

    fn take_chunk(&mut self, open_reference_ns: i64, base_position: u64, chunk: Chunk) {
        let (ticks, ambiguous) = self.clock.unwrap(open_reference_ns, &chunk);
        self.findings.ambiguous += ambiguous;
        let mut map = MapCursor::new(self.clock.map);
        let mut times_ns: Vec<i64> = ticks.iter().map(|tick| map.time_ns(*tick)).collect();
        // An ordered source promises that a time behind the one before is the clock's fault, not the
        // event's. A sorted stream can only meet one when its head's bounds were wrong.
        let mut front = self.front_ns.unwrap_or(i64::MIN);
        for time in &mut times_ns {
            if *time < front {
                self.findings.clamped += 1;
                let clamp = front.abs_diff(*time);
                self.findings.largest_clamp_ns = self.findings.largest_clamp_ns.max(clamp);
                *time = front;
            }
            if !self.is_sorted {
                front = *time;
            }
        }
        let pairs = ticks.iter().zip(&times_ns);
        let residuals = pairs
            .map(|(tick, time)| {
                let residual = tick.saturating_sub(map.tick(*time));
                residual.clamp(i64::MIN.into(), i64::MAX.into()) as i64
            })
            .collect();
        let mut losses = VecDeque::with_capacity(chunk.dropped.len());
        for (index, record) in &chunk.dropped {
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
            let near_ns = times_ns
                .get(*index as usize)
                .or(times_ns.last())
                .copied()
                .unwrap_or_else(|| {
                    open_reference_ns.saturating_add(self.clock.reference_offset_ns)
                });
            let to_ns = self.clock.time_near(record.to_tick, near_ns);
            let from_ns = self.clock.time_near(record.from_tick, near_ns);
            losses.push_back((
                *index,
                TraceLoss {
                    stream: self.stream,
                    event_type: self.trace_type(record.event_type),
                    cause: record.cause,
                    count,
                    is_lower_bound: record.is_lower_bound,
                    from_ns: from_ns.min(to_ns),
                    to_ns,
                },
            ));
        }
        for columns in &chunk.types {
            *self.findings.present.entry(columns.event_type).or_default() += columns.count as u64;
        }
        let count = times_ns.len();
        let event_types = chunk.types.iter().map(|columns| {
            let number = self.numbers.event_types.get(&columns.event_type);
            number.copied().unwrap_or(columns.event_type)
        });
        let batch = Batch {
            event_types: event_types.collect(),
            ordinals: chunk.ordinals(),
            residuals,
            chunk,
            base_position,
            losses,
            left: count,
            times_ns,
        };
        if count == 0 {
            self.due_losses
                .extend(batch.losses.into_iter().map(|(_, loss)| loss));
            return;
        }
        let times: Vec<(i64, u64)> = if self.is_sorted {
            let positions =
                (0..count).map(|index| batch.base_position.saturating_add(index as u64));
            batch.times_ns.iter().copied().zip(positions).collect()
        } else {
            Vec::new()
        };
        let number = self.store(batch);
        if self.is_sorted {
            let events = times.into_iter().enumerate();
            self.heap.extend(
                events.map(|(index, (time, position))| Reverse((time, position, number, index))),
            );
        } else {
            self.head = Some(EventAt {
                batch: number,
                index: 0,
            });
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
                self.due_losses.push_back(TraceLoss {
                    stream: self.stream,
                    event_type: self.trace_type(loss.event_type),
                    cause: loss.cause,
                    count: loss.count,
                    is_lower_bound: loss.is_lower_bound,
                    from_ns,
                    to_ns: end_ns,
                });
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
                    self.due_losses.push_back(TraceLoss {
                        stream: self.stream,
                        event_type,
                        cause,
                        count,
                        is_lower_bound: dropped == u64::MAX || row.raised_is_lower_bound,
                        from_ns,
                        to_ns: close_ns,
                    });
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
