//! What a recorder's threads share: memory, page queues, definitions, counters without a stream.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use annals_format::live::layout as l;
use annals_format::{
    CalibrationPoint, Cause, Clock, ClockId, ClockKind, Definition, Definitions, Element,
    ElementType, EventType, EventTypeId, EventTypeSchema, Location, LocationId, LocationKind,
    Object, ObjectId, ProcessId, Property, Region, RegionId, Registration, Schema, Source,
    SourceId, Stream as StreamDefinition, StreamId, StreamTotals, StringId, visit_rows,
};

use crate::clock::TickSource;
use crate::control::Control;
use crate::elements::Shape;
use crate::error::{RecorderError, Result};
use crate::memory::{CounterRow, LiveMemory, OwnRow, Page};
use crate::options::{Options, Overflow};
use crate::pages::Pages;
use crate::rules::{Rules, Subject, Verdict};
use crate::storage::{Storage, StorageStatus};
use crate::stream::{Opening, Stream, phase};
use crate::streams::Streams;
use crate::sys::ForkGuard;
use crate::trigger::{Sight, Triggers};

/// Most sources of one recorder.
pub(crate) const MAX_SOURCES: usize = 256;
/// Most event types of one recorder: a slot's counter segments hold no more.
pub(crate) const MAX_EVENT_TYPES: usize = l::SEGMENTS_PER_SLOT * l::ROWS_PER_SEGMENT;
/// After this many bytes of a recording, definitions in it are written a second time.
const REPEAT_DEFINITIONS_BYTES: u64 = 4 << 20;
/// Most bytes of definitions that wait for their second copy.
const MAX_WRITTEN_ONCE: usize = 1 << 20;
/// The process of a recording.
pub(crate) const PROCESS: ProcessId = ProcessId::new(0);

/// A clock that wraps, or cannot be read, needs observations at least this often to be placed.
const OBSERVED_BELOW_NS: u128 = 24 * 3600 * 1_000_000_000;

/// A lock whose holder panicked still protects sound data here: all of it is counters and tables that
/// are whole between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the event path needs to know of a source.
#[derive(Debug)]
pub(crate) struct SourceState {
    pub(crate) clock: TickSource,
    pub(crate) max_ticks: u64,
    pub(crate) ticks_per_second: u64,
    pub(crate) observation_interval_ns: Option<i64>,
    pub(crate) overflow: Overflow,
    /// What threads raise for it happens at locations of its own.
    pub(crate) has_own_location: bool,
    /// The rules switched it off.
    is_off: AtomicBool,
    /// Slot of the stream that counts losses that had no stream.
    unattributed: usize,
}

/// Counters that the status shows.
#[derive(Debug, Default)]
pub(crate) struct StatusCounters {
    pub(crate) after_cut: AtomicU64,
    pub(crate) unknown_type: AtomicU64,
    pub(crate) has_storage_failed: AtomicBool,
    pub(crate) blocked_ns: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    /// Sums of the streams that were closed: raised, dropped, suppressed.
    closed: [AtomicU64; 3],
}

/// Tables of definitions, and what hangs on them.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) definitions: Definitions,
    strings: HashMap<String, StringId>,
    event_types: HashMap<String, EventTypeId>,
    regions: HashMap<(StringId, StringId, u32, StringId), RegionId>,
    pub(crate) clocks: Vec<TickSource>,
    rules: Rules,
    /// Records that are not in the recording yet.
    pending: Vec<u8>,
    /// Records that are in the recording once. The live file keeps them until they are there twice, so that no damaged
    /// block of a recording without a footer costs a definition.
    written_once: Vec<u8>,
    /// Bytes of the recording when records were last written the second time.
    repeated_at: u64,
    schema: Arc<Schema>,
    is_finished: bool,
}

/// A recorder, as its threads see it.
pub(crate) struct Shared {
    /// Tells recorders of one process apart; never 0.
    pub(crate) number: u32,
    /// The key of the streams of source 0; those of the others follow.
    pub(crate) first_key: u64,
    pub(crate) guard: ForkGuard,
    pub(crate) streams: Streams,
    pub(crate) memory: LiveMemory,
    pub(crate) pages: Pages,
    /// What rows of each event type look like, for whoever must not lock.
    shapes: Box<[OnceLock<Shape>]>,
    pub(crate) control: Control,
    pub(crate) triggers: Triggers,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) storage: Mutex<Storage>,
    pub(crate) writer: OnceLock<Thread>,
    pub(crate) status: StatusCounters,
    /// How long an event may wait for a page.
    pub(crate) block_limit: Duration,
    overflow: Overflow,
    /// Path of the last snapshot, or why there is none.
    pub(crate) last_snapshot: Mutex<Result<PathBuf, String>>,
    pub(crate) snapshot_done: Condvar,
    /// Regions that have a number.
    region_count: AtomicU32,
    /// The recording is finished, or is being finished.
    is_finishing: AtomicBool,
    next_stream: AtomicU32,
    next_location: AtomicU32,
    /// Streams that were opened, and that their threads closed, since the start.
    opened: AtomicU64,
    closed: AtomicU64,
    /// Threads that count an event without a stream just now.
    in_flight: AtomicU64,
    /// The writer thread is gone.
    pub(crate) is_writer_gone: AtomicBool,
    pub(crate) snapshots_begun: AtomicU64,
    /// Somebody wants everything written.
    pub(crate) is_flush_asked: AtomicBool,
    pub(crate) storage_status: Arc<StorageStatus>,
    sources: Box<[OnceLock<SourceState>]>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        guard: ForkGuard,
        memory: LiveMemory,
        storage: Storage,
        options: &Options,
    ) -> std::io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let storage_status = storage.status();
        let division = *memory.division();
        let pages = Pages::new(&division);
        memory.populate(pages.to_prepare());
        let registry = Registry {
            rules: options.rules.clone(),
            ..Registry::default()
        };
        Ok(Self {
            number,
            first_key: u64::from(number) << 32,
            streams: Streams::new(&guard, &memory)?,
            guard,
            memory,
            pages,
            shapes: (0..MAX_EVENT_TYPES).map(|_| OnceLock::new()).collect(),
            control: Control::new(),
            triggers: Triggers::new(options.triggers.clone()),
            registry: Mutex::new(registry),
            storage: Mutex::new(storage),
            writer: OnceLock::new(),
            status: StatusCounters::default(),
            block_limit: options.block_limit,
            overflow: options.overflow,
            last_snapshot: Mutex::new(Err("none was written".to_owned())),
            snapshot_done: Condvar::new(),
            region_count: AtomicU32::new(0),
            is_finishing: AtomicBool::new(false),
            next_stream: AtomicU32::new(0),
            next_location: AtomicU32::new(0),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            is_writer_gone: AtomicBool::new(false),
            snapshots_begun: AtomicU64::new(0),
            is_flush_asked: AtomicBool::new(false),
            storage_status,
            sources: (0..MAX_SOURCES).map(|_| OnceLock::new()).collect(),
        })
    }

    pub(crate) fn storage_has_failed(&self) -> bool {
        self.status.has_storage_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// The stream that a page belongs to, until the page is freed.
    pub(crate) fn owner(&self, page: u32) -> &Stream {
        self.streams.cell(self.pages.owner(page))
    }

    /// Takes a free page.
    pub(crate) fn take_free_page(&self) -> Option<u32> {
        let page = self.pages.take_free();
        if self.pages.wants_more() || self.pages.are_wanted() {
            self.wake_writer();
        }
        page
    }

    /// A producer is done with a page.
    pub(crate) fn hand_on_page(&self, number: u32) {
        if self.pages.push_full(number) {
            self.wake_writer();
        }
    }

    /// A producer that overwrites is done with a page.
    pub(crate) fn keep_page(&self, stream: &Stream, number: u32) {
        stream.kept_pages.fetch_add(1, Ordering::Relaxed);
        if self.pages.keep(number) {
            self.wake_writer();
        }
    }

    /// Counts a page's events as lost, and makes it free to be used again. Counts before page: a kill in
    /// between shows in a sum that is larger than what was raised.
    pub(crate) fn give_up(&self, number: u32, cause: Cause) {
        const NEAR: usize = 64;
        let stream = self.owner(number);
        let page = self.memory.page(number);
        let mut near = [0_u32; NEAR];
        let add = |event_type: EventTypeId, count: u64| {
            let block = event_type.index() / l::ROWS_PER_SEGMENT;
            if let Some(segment) = stream.segment(block).filter(|_| count != 0) {
                let row = &self.memory.segment(segment)[event_type.index() % l::ROWS_PER_SEGMENT];
                row.dropped[cause.code() as usize].fetch_add(count, Ordering::Relaxed);
            }
        };
        visit_rows(
            page.committed_rows(),
            |id| self.shape(id),
            |event_type| match near.get_mut(event_type.index()) {
                Some(count) => *count += 1,
                None => add(event_type, 1),
            },
        );
        for (number, count) in near.iter().enumerate() {
            add(EventTypeId::new(number as u32), u64::from(*count));
        }
        self.free_kept(number, page);
    }

    /// A page of a stream is empty: the stream no longer waits for it.
    pub(crate) fn free_kept(&self, number: u32, page: Page<'_>) {
        let stream = self.owner(number);
        if stream.overwrites() {
            stream.kept_pages.fetch_sub(1, Ordering::Relaxed);
        }
        page.reset();
    }

    /// An event came while nothing is recorded: behind the finish or in a forked child it is counted;
    /// while the user has switched recording off it is not raised.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_unrecorded(&self) {
        if !self.guard.is_on() {
            self.status.after_cut.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn count_unknown_type(&self) {
        self.status.unknown_type.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_blocked(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.status.blocked_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts an event that has no stream to stand in.
    #[cold]
    pub(crate) fn count_without_stream(&self, source: SourceId, event_type: EventTypeId) {
        self.lose_without_stream(source, event_type, 1, Cause::NoStream);
    }

    /// The same for events that were lost for another reason.
    pub(crate) fn lose_without_stream(
        &self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
        cause: Cause,
    ) {
        // Whoever finishes the recording waits for this, too.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if self.guard.word().load(Ordering::SeqCst) == crate::sys::GUARD_RECORDING {
            self.count_unattributed(source, event_type, count.min(1 << 40), cause);
        } else {
            self.count_unrecorded();
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no thread counts an event without a stream.
    pub(crate) fn is_settled(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) == 0
    }

    fn count_unattributed(
        &self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
        cause: Cause,
    ) {
        let Some(state) = self.source(source) else {
            self.count_unknown_type();
            return;
        };
        let stream = self.streams.cell(state.unattributed);
        let block = event_type.index() / l::ROWS_PER_SEGMENT;
        let Some(segment) = stream.segment(block) else {
            self.count_unknown_type();
            return;
        };
        let row = &self.memory.segment(segment)[event_type.index() % l::ROWS_PER_SEGMENT];
        row.raised.fetch_add(count, Ordering::Relaxed);
        row.dropped[cause.code() as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// What is known of a source.
    pub(crate) fn source(&self, source: SourceId) -> Option<&SourceState> {
        self.sources.get(source.index()).and_then(OnceLock::get)
    }

    pub(crate) fn next_stream_id(&self) -> StreamId {
        StreamId::new(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_location_id(&self) -> LocationId {
        LocationId::new(self.next_location.fetch_add(1, Ordering::Relaxed))
    }

    /// Shows a new stream to readers of the live file, and gives it its first counters.
    pub(crate) fn publish(&self, stream: &Stream, opening: &Opening) {
        let slot = self.memory.slot(stream.slot);
        let relaxed = Ordering::Relaxed;
        slot.busy().store(0, relaxed);
        slot.open_tick().store(opening.open_tick, relaxed);
        slot.recorded().store(0, relaxed);
        slot.source().store(opening.source.get(), relaxed);
        let location = opening.location.map_or(0, |id| id.get() + 1);
        slot.location().store(location, relaxed);
        let is_shared = opening.location.is_none();
        slot.is_shared().store(is_shared.into(), relaxed);
        for block in 0..l::SEGMENTS_PER_SLOT {
            slot.segment(block).store(0, relaxed);
        }
        self.give_segment(stream, 0);
        slot.stream().store(opening.id.get() + 1, Ordering::Release);
    }

    /// Gives a stream the counters of 32 event types; false when there are none left.
    pub(crate) fn give_segment(&self, stream: &Stream, block: usize) -> bool {
        let open = |own: &[OwnRow]| self.set_gates(stream, block, own);
        self.streams.give_segment(&self.memory, stream, block, open)
    }

    fn set_gates(&self, stream: &Stream, block: usize, rows: &[OwnRow]) {
        let Some(state) = self.source(stream.source()) else {
            return;
        };
        let is_plain_clock =
            matches!(state.clock, TickSource::Tsc) && state.observation_interval_ns.is_none();
        for (index, own) in rows.iter().enumerate() {
            let id = EventTypeId::new((block * l::ROWS_PER_SEGMENT + index) as u32);
            // Until the rules did not change while they were looked at: whoever changes them comes here
            // as well, and neither must leave the older answer.
            loop {
                let gate = || {
                    let is_off = state.is_off.load(Ordering::SeqCst);
                    let rate = state.ticks_per_second;
                    self.control.gate(id, is_off, is_plain_clock, rate)
                };
                let answer = gate();
                own.gate.store(answer.0, Ordering::SeqCst);
                if gate() == answer {
                    break;
                }
            }
        }
    }

    /// Whether the rules have switched an event type, or its source, off.
    pub(crate) fn is_off(&self, source: SourceId, event_type: EventTypeId) -> bool {
        let is_off = self
            .source(source)
            .is_some_and(|source| source.is_off.load(Ordering::SeqCst));
        self.control.gate(event_type, is_off, true, 1).is_off()
    }

    /// What an event type's rows look like.
    pub(crate) fn shape(&self, event_type: EventTypeId) -> Option<&EventTypeSchema> {
        self.form(event_type).map(|shape| &shape.schema)
    }

    /// The same with what a raise needs of it.
    #[inline]
    pub(crate) fn form(&self, event_type: EventTypeId) -> Option<&Shape> {
        let shape = self.shapes.get(event_type.index());
        shape.and_then(OnceLock::get)
    }

    /// The number of a new region; none when there are as many as references can tell apart.
    pub(crate) fn next_region_id(&self) -> Option<RegionId> {
        const MOST: u32 = 1 << 24;
        let next = |count: u32| (count < MOST).then_some(count + 1);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let count = self.region_count.fetch_update(order.0, order.1, next);
        count.ok().map(RegionId::new)
    }

    /// Whether a region has a number; takes no lock.
    #[inline]
    pub(crate) fn has_region(&self, region: RegionId) -> bool {
        region.get() < self.region_count.load(Ordering::Acquire)
    }

    /// From now on, a guard that is off means: finished, and not: a forked child.
    pub(crate) fn begin_to_finish(&self) {
        self.is_finishing.store(true, Ordering::SeqCst);
    }

    /// Whether the recording is finished, or is being finished.
    pub(crate) fn is_finishing(&self) -> bool {
        self.is_finishing.load(Ordering::SeqCst)
    }

    /// Brings the rules, as they are now, to all streams.
    fn renew_gates(&self) {
        (0..l::SEGMENTS_PER_SLOT).for_each(|block| self.renew_gates_of(block));
    }

    /// The same for 32 event types. Cells in any phase: one that is being opened may have looked at the
    /// rules before they changed.
    fn renew_gates_of(&self, block: usize) {
        for stream in self.streams.all() {
            if let Some(segment) = stream.segment(block) {
                self.set_gates(stream, block, self.streams.own_rows(segment));
            }
        }
    }

    /// All counters of a stream, with their event types.
    pub(crate) fn rows_of<'a>(
        &'a self,
        stream: &'a Stream,
    ) -> impl Iterator<Item = (EventTypeId, &'a CounterRow, &'a OwnRow)> {
        let blocks =
            (0..l::SEGMENTS_PER_SLOT).filter_map(|block| Some((block, stream.segment(block)?)));
        blocks.flat_map(|(block, segment)| {
            let rows = self.memory.segment(segment).iter();
            let rows = rows.zip(self.streams.own_rows(segment));
            rows.enumerate().map(move |(index, (row, own))| {
                let number = (block * l::ROWS_PER_SEGMENT + index) as u32;
                (EventTypeId::new(number), row, own)
            })
        })
    }

    /// Shows an event to the triggers; its row was committed.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch(&self, stream: &Stream, event_type: EventTypeId, tick: u64, row: &[u8]) {
        let rate = self.source(stream.source());
        let fires = self.triggers.see(&Sight {
            event_type,
            tick,
            row,
            regions: &stream.watched,
            ticks_per_second: rate.map_or(1, |source| source.ticks_per_second),
            max_ticks: stream.max_ticks(),
        });
        if let Some(trigger) = fires
            && self.triggers.fire(Some(trigger))
        {
            self.wake_writer();
        }
    }

    pub(crate) fn note_opening(&self) {
        self.opened.fetch_add(1, Ordering::Release);
    }

    /// How many streams were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    pub(crate) fn note_closing(&self) {
        self.closed.fetch_add(1, Ordering::Release);
        self.wake_writer();
    }

    /// Keeps the sums of streams whose counters are given back.
    pub(crate) fn count_closed(&self, totals: &[StreamTotals]) {
        for row in totals.iter().flat_map(|totals| &totals.rows) {
            let sums = [row.raised, row.dropped_sum(), row.suppressed];
            for (counter, sum) in self.status.closed.iter().zip(sums) {
                counter.fetch_add(sum, Ordering::Relaxed);
            }
        }
    }

    /// Events raised, dropped and suppressed so far, as the counters show them now.
    pub(crate) fn sums(&self) -> [u64; 3] {
        // Not while a stream goes from the open ones to the closed ones; a forked child has neither, and
        // must not wait for a lock that its parent held.
        let _registry = self.guard.is_on().then(|| lock(&self.registry));
        let mut sums = std::array::from_fn(|n| self.status.closed[n].load(Ordering::Relaxed));
        for (_, row, _) in self
            .streams
            .in_use()
            .flat_map(|stream| self.rows_of(stream))
        {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let dropped = row.dropped.iter().map(load);
            let parts = [
                load(&row.raised),
                dropped.fold(0, u64::saturating_add),
                load(&row.suppressed),
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = u64::saturating_add(*sum, part);
            }
        }
        sums
    }

    /// How many streams their threads closed so far.
    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Acquire)
    }

    /// Changes what is recorded, from now on.
    pub(crate) fn apply(&self, rules: &Rules) -> Result<()> {
        let mut registry = lock(&self.registry);
        registry.check_open()?;
        registry.rules.extend(rules);
        registry.renew_rules(self);
        self.renew_gates();
        Ok(())
    }

    /// Puts definitions that only the live file has into the recording.
    pub(crate) fn flush_definitions(&self) {
        lock(&self.registry).flush(self);
    }

    /// What rows of any event type look like.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.schema_of(&lock(&self.registry))
    }

    pub(crate) fn schema_of(&self, registry: &Registry) -> Arc<Schema> {
        Arc::clone(&registry.schema)
    }

    /// A snapshot was written, or could not be.
    pub(crate) fn note_snapshot(&self, outcome: std::io::Result<PathBuf>) {
        let mut last = lock(&self.last_snapshot);
        *last = outcome.map_err(|error| error.to_string());
        self.status.snapshots.fetch_add(1, Ordering::Release);
        self.snapshot_done.notify_all();
    }
}

impl Registry {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_finished {
            return Err(RecorderError::Finished);
        }
        Ok(())
    }

    /// No definition comes after this.
    pub(crate) fn close(&mut self) {
        self.is_finished = true;
    }

    /// Writes records that are not in the recording yet; and the second copy of others, if it is due.
    fn flush(&mut self, shared: &Shared) {
        if !self.pending.is_empty() && lock(&shared.storage).append_definitions(&self.pending) {
            self.written_once.append(&mut self.pending);
        }
        let since = shared.storage_status.written() - self.repeated_at;
        if since >= REPEAT_DEFINITIONS_BYTES || self.written_once.len() >= MAX_WRITTEN_ONCE {
            self.repeat(shared);
        }
    }

    /// Writes the second copy of all records that are in the recording once, and empties the live file's area.
    fn repeat(&mut self, shared: &Shared) {
        let is_due = self.pending.is_empty() && !self.written_once.is_empty();
        if is_due && lock(&shared.storage).append_definitions(&self.written_once) {
            self.written_once.clear();
            self.repeated_at = shared.storage_status.written();
            shared.memory.clear_definitions();
        }
    }

    /// Adds a definition. It is in the live file, or in the recording, when this returns.
    pub(crate) fn add(&mut self, shared: &Shared, definition: Definition) -> Result<()> {
        self.check_open()?;
        let mut record = Vec::new();
        definition.encode(&mut record);
        if shared.memory.path().is_none() {
            self.pending.extend_from_slice(&record);
            self.flush(shared);
        } else {
            if !shared.memory.append_definitions(&record) {
                self.flush(shared);
                self.repeat(shared);
                if !shared.memory.append_definitions(&record) {
                    return Err(RecorderError::Full {
                        what: "definitions",
                    });
                }
            }
            self.pending.extend_from_slice(&record);
        }
        self.definitions.add(definition);
        Ok(())
    }

    /// The id of a string, added when it is new.
    pub(crate) fn string(&mut self, shared: &Shared, text: &str) -> Result<StringId> {
        if let Some(id) = self.strings.get(text) {
            return Ok(*id);
        }
        let id = StringId::new(self.strings.len() as u32);
        self.add(shared, Definition::String(id, text.to_owned()))?;
        self.strings.insert(text.to_owned(), id);
        Ok(id)
    }

    pub(crate) fn property(&mut self, shared: &Shared, key: &str, value: &str) -> Result<()> {
        let key = self.string(shared, key)?;
        let value = self.string(shared, value)?;
        let property = Property {
            process: PROCESS,
            key,
            value,
        };
        self.add(shared, Definition::Property(property))
    }

    pub(crate) fn clock(
        &mut self,
        shared: &Shared,
        name: &str,
        ticks: TickSource,
        ticks_per_second: u64,
        rate_error_ppb: u32,
        max_ticks: u64,
    ) -> Result<ClockId> {
        if ticks_per_second == 0 {
            return Err(RecorderError::Definition {
                name: name.to_owned(),
                why: "a clock has at least one tick per second".to_owned(),
            });
        }
        let clock = Clock {
            id: ClockId::new(self.clocks.len() as u32),
            process: PROCESS,
            name: self.string(shared, name)?,
            kind: match ticks {
                TickSource::Tsc => ClockKind::Tsc,
                TickSource::Reference => ClockKind::Reference,
                TickSource::Function(_) => ClockKind::Readable,
                TickSource::Unreadable(_) => ClockKind::Unreadable,
            },
            ticks_per_second,
            rate_error_ppb,
            max_ticks,
        };
        let id = clock.id;
        self.add(shared, Definition::Clock(clock))?;
        self.clocks.push(match ticks {
            // A specification may be used for several.
            TickSource::Unreadable(_) => TickSource::Unreadable(Arc::default()),
            ticks => ticks,
        });
        self.calibrate(shared, id)?;
        Ok(id)
    }

    /// The definition of a clock that is read by others, if at all.
    pub(crate) fn unreadable_clock(&self, id: ClockId) -> Result<Clock> {
        let clock = self.definitions.clocks.get(&id);
        let clock = clock.ok_or(RecorderError::Unknown {
            what: "clock",
            number: id.get(),
        })?;
        if clock.kind == ClockKind::Unreadable {
            return Ok(clock.clone());
        }
        Err(RecorderError::Definition {
            name: self.definitions.string(clock.name).to_owned(),
            why: "the recorder calibrates this clock itself".to_owned(),
        })
    }

    /// Notes where a clock that is read by others stands.
    pub(crate) fn tie(
        &mut self,
        shared: &Shared,
        clock: &Clock,
        point: CalibrationPoint,
    ) -> Result<()> {
        if let TickSource::Unreadable(tied) = &self.clocks[clock.id.index()] {
            tied.set(clock, &point);
        }
        self.add(shared, Definition::Calibration(point))
    }

    fn calibrate(&mut self, shared: &Shared, id: ClockId) -> Result<()> {
        let clock = self.definitions.clocks.get(&id);
        let point: Option<CalibrationPoint> =
            clock.and_then(|clock| self.clocks[id.index()].calibrate(clock));
        match point {
            Some(point) => self.add(shared, Definition::Calibration(point)),
            None => Ok(()),
        }
    }

    /// Takes a calibration point of every clock that can be read.
    pub(crate) fn calibrate_all(&mut self, shared: &Shared) -> Result<()> {
        (0..self.clocks.len()).try_for_each(|n| self.calibrate(shared, ClockId::new(n as u32)))
    }

    pub(crate) fn source(
        &mut self,
        shared: &Shared,
        name: &str,
        description: &str,
        ordering: annals_format::SourceOrder,
        clock: ClockId,
        (overflow, has_own_location): (Option<Overflow>, bool),
    ) -> Result<SourceId> {
        self.check_open()?;
        let definition = self.definitions.clocks.get(&clock);
        let definition = definition.ok_or(RecorderError::Unknown {
            what: "clock",
            number: clock.get(),
        })?;
        let id = SourceId::new(self.definitions.sources.len() as u32);
        if id.index() >= MAX_SOURCES {
            return Err(RecorderError::Full { what: "sources" });
        }
        let (max_ticks, ticks_per_second) = (definition.max_ticks, definition.ticks_per_second);
        let period_ns = (u128::from(max_ticks) + 1) * 1_000_000_000 / u128::from(ticks_per_second);
        let ticks = self.clocks[clock.index()].clone();
        let is_observed =
            period_ns < OBSERVED_BELOW_NS || matches!(ticks, TickSource::Unreadable(_));
        // Sixteen to a period; a clock that cannot be read gets at most a thousand a second.
        let interval_ns = (period_ns / 16).min(1_000_000) as i64;
        let source = Source {
            id,
            process: PROCESS,
            name: self.string(shared, name)?,
            description: self.string(shared, description)?,
            ordering,
            clock,
        };
        self.add(shared, Definition::Source(source))?;
        let open_tick = ticks.read();
        let no_room = || RecorderError::Full {
            what: "open streams",
        };
        let stream = shared.streams.claim().ok_or_else(no_room)?;
        let is_off = self.rules.verdict(Subject::Source, name, None) == Verdict::Off;
        let state = SourceState {
            clock: ticks,
            max_ticks,
            ticks_per_second,
            observation_interval_ns: is_observed.then_some(interval_ns),
            overflow: overflow.unwrap_or(shared.overflow),
            has_own_location,
            is_off: AtomicBool::new(is_off),
            unattributed: stream.slot,
        };
        let opening = Opening {
            id: shared.next_stream_id(),
            source: id,
            location: None,
            open_tick,
            is_companion: false,
        };
        stream.fill(shared, &state, &opening);
        stream.is_announced.store(true, Ordering::Relaxed);
        self.add(shared, stream_definition(stream))?;
        let _ = shared.sources[id.index()].set(state);
        shared.publish(stream, &opening);
        stream.phase.store(phase::OPEN, Ordering::Release);
        let blocks = self.event_types.len().div_ceil(l::ROWS_PER_SEGMENT);
        if (0..blocks).any(|block| !shared.give_segment(stream, block)) {
            return Err(RecorderError::Full {
                what: "event counters",
            });
        }
        Ok(id)
    }

    /// Works out all gates again.
    fn renew_rules(&self, shared: &Shared) {
        let text = |id: StringId| self.definitions.strings.get(&id).map_or("", String::as_str);
        let rules = &self.rules;
        for source in self.definitions.sources.values() {
            let is_off = rules.verdict(Subject::Source, text(source.name), None) == Verdict::Off;
            if let Some(state) = shared.source(source.id) {
                state.is_off.store(is_off, Ordering::SeqCst);
            }
        }
        for (id, event_type) in &self.definitions.event_types {
            let kind = (event_type.verbosity, event_type.role);
            let name = text(event_type.name);
            let is_watched = shared.control.gate(*id, false, true, 1).is_watched();
            let control = &shared.control;
            control.rule_event_type(rules, *id, name, kind, is_watched);
        }
        for (id, region) in &self.definitions.regions {
            let name = text(region.name);
            shared.control.rule_region(rules, *id, name);
        }
    }

    /// Defines what threads opened since the last time: the live file's slots tell of it until then.
    pub(crate) fn announce(&mut self, shared: &Shared) -> Result<()> {
        let news = shared.streams.in_use();
        for stream in news.filter(|stream| !stream.is_announced.load(Ordering::Relaxed)) {
            if let Some(id) = stream.location()
                && !self.definitions.locations.contains_key(&id)
            {
                let slot = shared.memory.slot(stream.slot);
                let system_id = slot.system_id().load(Ordering::Relaxed);
                let [a, b] = slot.name().map(|word| word.load(Ordering::Relaxed));
                let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
                let mut name =
                    annals_format::live::thread_name(&bytes, system_id, std::process::id());
                let state = shared.source(stream.source());
                if state.is_some_and(|state| state.has_own_location)
                    && let Some(source) = self.definitions.sources.get(&stream.source())
                    && let Some(source) = self.definitions.strings.get(&source.name)
                {
                    name = format!("{name} {source}");
                }
                let location = Location {
                    id,
                    process: PROCESS,
                    name: self.string(shared, &name)?,
                    kind: LocationKind::Thread,
                    system_id,
                };
                self.add(shared, Definition::Location(location))?;
            }
            self.add(shared, stream_definition(stream))?;
            stream.is_announced.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn region(
        &mut self,
        shared: &Shared,
        name: &str,
        file: &str,
        line: u32,
        group: &str,
    ) -> Result<RegionId> {
        let name = self.string(shared, name)?;
        let file = self.string(shared, file)?;
        let group = self.string(shared, group)?;
        let key = (name, file, line, group);
        if let Some(id) = self.regions.get(&key) {
            return Ok(*id);
        }
        self.check_open()?;
        let full = RecorderError::Full { what: "regions" };
        let id = shared.next_region_id().ok_or(full)?;
        let region = Region {
            id,
            name,
            file,
            line,
            group,
        };
        self.new_region(shared, region)?;
        self.regions.insert(key, id);
        Ok(id)
    }

    pub(crate) fn object(&mut self, shared: &Shared, kind: &str, name: &str) -> Result<ObjectId> {
        let object = Object {
            id: ObjectId::new(self.definitions.objects.len() as u32),
            process: PROCESS,
            kind: self.string(shared, kind)?,
            name: self.string(shared, name)?,
        };
        self.add(shared, Definition::Object(object))?;
        Ok(object.id)
    }

    pub(crate) fn registration(
        &mut self,
        shared: &Shared,
        event_type: EventTypeId,
        object: Option<ObjectId>,
    ) -> Result<()> {
        let unknown = |what, number| Err(RecorderError::Unknown { what, number });
        if !self.definitions.event_types.contains_key(&event_type) {
            return unknown("event type", event_type.get());
        }
        if let Some(object) = object
            && !self.definitions.objects.contains_key(&object)
        {
            return unknown("object", object.get());
        }
        let registration = Registration {
            process: PROCESS,
            event_type,
            object,
        };
        self.add(shared, Definition::Registration(registration))
    }

    /// Takes a region in that has its number.
    pub(crate) fn new_region(&mut self, shared: &Shared, region: Region) -> Result<()> {
        let text = self.definitions.string(region.name);
        shared.triggers.watch_region(region.id, text);
        shared.control.rule_region(&self.rules, region.id, text);
        self.add(shared, Definition::Region(region))
    }

    /// Defines an event type; one that is the same in everything gives its id again.
    pub(crate) fn event_type(
        &mut self,
        shared: &Shared,
        name: &str,
        define: impl FnOnce(&mut Self, EventTypeId) -> Result<EventType>,
    ) -> Result<EventTypeId> {
        self.check_open()?;
        let known = self.event_types.get(name).copied();
        let id = known.unwrap_or_else(|| EventTypeId::new(self.event_types.len() as u32));
        if id.index() >= MAX_EVENT_TYPES {
            return Err(RecorderError::Full {
                what: "event types",
            });
        }
        let event_type = define(self, id)?;
        if known.is_some() {
            if self.definitions.event_types.get(&id) == Some(&event_type) {
                return Ok(id);
            }
            return Err(RecorderError::Conflict {
                name: name.to_owned(),
            });
        }
        let text = |id: StringId| self.definitions.strings.get(&id).map_or("", String::as_str);
        let elements: Vec<(&str, ElementType, bool)> = event_type
            .elements
            .iter()
            .map(|e| (text(e.name), e.element_type, e.is_optional))
            .collect();
        let role = event_type.role;
        let is_watched = shared.triggers.watch_event_type(id, name, role, &elements);
        let kind = (event_type.verbosity, role);
        let control = &shared.control;
        control.rule_event_type(&self.rules, id, name, kind, is_watched);
        // Counters first: a type without them could be raised and not counted. Streams of threads take
        // theirs with the first event; without any left, these count.
        let block = id.index() / l::ROWS_PER_SEGMENT;
        for stream in shared.streams.in_use().filter(|s| s.location().is_none()) {
            if !shared.give_segment(stream, block) {
                return Err(RecorderError::Full {
                    what: "event counters",
                });
            }
        }
        shared.renew_gates_of(block);
        let _ = shared.shapes[id.index()].set(Shape::new(EventTypeSchema::of(&event_type)));
        let mut schema = (*self.schema).clone();
        schema.add(&event_type);
        self.add(shared, Definition::EventType(event_type))?;
        self.schema = Arc::new(schema);
        self.event_types.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The elements of an event type, from names, types, units and references.
    pub(crate) fn element(
        &mut self,
        shared: &Shared,
        element: &crate::definition::ElementSpec,
        element_type: annals_format::ElementType,
        is_optional: bool,
    ) -> Result<Element> {
        Ok(Element {
            name: self.string(shared, &element.name)?,
            element_type,
            is_optional,
            reference: element.reference,
            unit: self.string(shared, &element.unit)?,
            original_bits: 0,
        })
    }
}

fn stream_definition(stream: &Stream) -> Definition {
    Definition::Stream(StreamDefinition {
        id: stream.id(),
        source: stream.source(),
        location: stream.location(),
    })
}
