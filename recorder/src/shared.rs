//! What a recorder's threads share: memory, page queues, definitions, counters without a stream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Thread, ThreadId};

use annals_format::live::layout as l;
use annals_format::{
    CalibrationPoint, Cause, Clock, ClockId, ClockKind, Definition, Definitions, Element,
    EventType, EventTypeId, Location, LocationId, LocationKind, ProcessId, Property, Region,
    RegionId, Schema, Source, SourceId, Stream, StreamId, StringId,
};
use crossbeam_queue::ArrayQueue;

use crate::clock::TickSource;
use crate::error::{RecorderError, Result};
use crate::memory::LiveMemory;
use crate::storage::Storage;
use crate::stream::{NO_PAGE, StreamShared, StreamState};
use crate::sys::{self, ForkGuard};

/// Most sources of one recorder.
pub(crate) const MAX_SOURCES: usize = 256;
/// Most event types of one recorder: a slot's counter segments hold no more.
pub(crate) const MAX_EVENT_TYPES: usize = l::SEGMENTS_PER_SLOT * l::ROWS_PER_SEGMENT;
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
    clock: TickSource,
    max_ticks: u64,
    observation_interval_ns: Option<i64>,
    /// Losses that had no stream.
    unattributed: Arc<StreamShared>,
}

/// A stream whose thread ended.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) stream: Arc<StreamShared>,
    pub(crate) last_tick: u64,
    pub(crate) close_tick: u64,
}

/// Counters that the status shows.
#[derive(Debug, Default)]
pub(crate) struct StatusCounters {
    pub(crate) after_cut: AtomicU64,
    pub(crate) unknown_type: AtomicU64,
    pub(crate) has_storage_failed: AtomicBool,
}

/// Tables of definitions, and what hangs on them.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) definitions: Definitions,
    strings: HashMap<String, StringId>,
    event_types: HashMap<String, EventTypeId>,
    regions: HashMap<(StringId, StringId, u32, StringId), RegionId>,
    locations: HashMap<ThreadId, LocationId>,
    pub(crate) clocks: Vec<TickSource>,
    pub(crate) open: Vec<Arc<StreamShared>>,
    next_stream: u32,
    free_slots: Vec<usize>,
    free_segments: Vec<usize>,
    /// Records that are not in the recording yet.
    pending: Vec<u8>,
    schema: Arc<Schema>,
    is_finished: bool,
}

/// A recorder, as its threads see it.
pub(crate) struct Shared {
    /// Tells recorders of one process apart; never 0.
    pub(crate) number: u32,
    pub(crate) guard: ForkGuard,
    pub(crate) memory: LiveMemory,
    pub(crate) free_pages: ArrayQueue<u32>,
    pub(crate) full_pages: ArrayQueue<u32>,
    pub(crate) closing: Mutex<Vec<Closing>>,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) storage: Mutex<Storage>,
    pub(crate) writer: OnceLock<Thread>,
    pub(crate) status: StatusCounters,
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
    pub(crate) fn new(guard: ForkGuard, memory: LiveMemory, storage: Storage) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let division = *memory.division();
        let free_pages = ArrayQueue::new(division.page_count);
        for number in 0..division.page_count as u32 {
            let _ = free_pages.push(number);
        }
        let registry = Registry {
            free_slots: (0..division.slot_count).rev().collect(),
            free_segments: (0..division.segment_count).rev().collect(),
            ..Registry::default()
        };
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            guard,
            memory,
            free_pages,
            full_pages: ArrayQueue::new(division.page_count),
            closing: Mutex::new(Vec::new()),
            registry: Mutex::new(registry),
            storage: Mutex::new(storage),
            writer: OnceLock::new(),
            status: StatusCounters::default(),
            sources: (0..MAX_SOURCES).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn storage_has_failed(&self) -> bool {
        self.status.has_storage_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn wake_writer(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// A producer is done with a page.
    pub(crate) fn hand_on_page(&self, number: u32) {
        // The queue holds every page there is.
        let _ = self.full_pages.push(number);
        self.wake_writer();
    }

    #[cold]
    pub(crate) fn count_after_cut(&self) {
        self.status.after_cut.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_unknown_type(&self) {
        self.status.unknown_type.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an event that has no stream to stand in.
    #[cold]
    pub(crate) fn count_without_stream(&self, source: SourceId, event_type: EventTypeId) {
        let source = self.sources.get(source.index()).and_then(OnceLock::get);
        let Some(row) = source.and_then(|source| source.unattributed.row(event_type)) else {
            self.count_unknown_type();
            return;
        };
        row.raised.fetch_add(1, Ordering::Relaxed);
        row.dropped[Cause::NoStream.code() as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the calling thread's stream of a source.
    pub(crate) fn open_stream(self: &Arc<Self>, source: SourceId) -> Result<StreamState> {
        let state = self.sources.get(source.index()).and_then(OnceLock::get);
        let state = state.ok_or(RecorderError::Unknown {
            what: "source",
            number: source.get(),
        })?;
        let mut registry = lock(&self.registry);
        let location = registry.location_of_this_thread(self)?;
        let open_tick = state.clock.read();
        let stream =
            registry.open_stream(self, source, Some(location), state.max_ticks, open_tick)?;
        registry.open.push(Arc::clone(&stream));
        Ok(StreamState::new(
            Arc::clone(self),
            stream,
            state.clock.clone(),
            state.observation_interval_ns,
        ))
    }

    /// The thread of a stream ends.
    pub(crate) fn close_stream(&self, stream: &Arc<StreamShared>, last_tick: u64, close_tick: u64) {
        let closing = Closing {
            stream: Arc::clone(stream),
            last_tick,
            close_tick,
        };
        lock(&self.closing).push(closing);
        self.wake_writer();
    }

    /// Puts definitions that only the live file has into the recording.
    pub(crate) fn flush_definitions(&self) {
        lock(&self.registry).flush(self);
    }

    /// What rows of any event type look like.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        Arc::clone(&lock(&self.registry).schema)
    }
}

impl Registry {
    fn check_open(&self) -> Result<()> {
        if self.is_finished {
            return Err(RecorderError::Finished);
        }
        Ok(())
    }

    /// No definition comes after this.
    pub(crate) fn close(&mut self) {
        self.is_finished = true;
    }

    fn flush(&mut self, shared: &Shared) {
        if !self.pending.is_empty() && lock(&shared.storage).append_definitions(&self.pending) {
            self.pending.clear();
            shared.memory.clear_definitions();
        }
    }

    /// Takes a definition in. It stands in the live file, or in the recording, when this returns.
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
                TickSource::Unreadable => ClockKind::Unreadable,
            },
            ticks_per_second,
            rate_error_ppb,
            max_ticks,
        };
        let id = clock.id;
        self.add(shared, Definition::Clock(clock))?;
        self.clocks.push(ticks);
        self.calibrate(shared, id)?;
        Ok(id)
    }

    fn calibrate(&mut self, shared: &Shared, id: ClockId) -> Result<()> {
        let point: Option<CalibrationPoint> = self.clocks[id.index()].calibrate(id);
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
        ordering: annals_format::Ordering,
        clock: ClockId,
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
        let max_ticks = definition.max_ticks;
        let period_ns =
            (u128::from(max_ticks) + 1) * 1_000_000_000 / u128::from(definition.ticks_per_second);
        let ticks = self.clocks[clock.index()].clone();
        let is_observed = period_ns < OBSERVED_BELOW_NS || matches!(ticks, TickSource::Unreadable);
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
        let unattributed = self.open_stream(shared, id, None, max_ticks, open_tick)?;
        let state = SourceState {
            clock: ticks,
            max_ticks,
            observation_interval_ns: is_observed.then_some(interval_ns),
            unattributed: Arc::clone(&unattributed),
        };
        self.open.push(unattributed);
        let _ = shared.sources[id.index()].set(state);
        Ok(id)
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
        let region = Region {
            id: RegionId::new(self.regions.len() as u32),
            name,
            file,
            line,
            group,
        };
        let id = region.id;
        self.add(shared, Definition::Region(region))?;
        self.regions.insert(key, id);
        Ok(id)
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
        // Counters first: a type without them could be raised and not counted.
        for stream in self.open.clone() {
            self.give_segment(shared, &stream, id.index() / l::ROWS_PER_SEGMENT)?;
        }
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

    fn location_of_this_thread(&mut self, shared: &Shared) -> Result<LocationId> {
        let thread = std::thread::current();
        if let Some(id) = self.locations.get(&thread.id()) {
            return Ok(*id);
        }
        let system_id = sys::thread_number();
        let name = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("thread {system_id}"),
        };
        let location = Location {
            id: LocationId::new(self.definitions.locations.len() as u32),
            process: PROCESS,
            name: self.string(shared, &name)?,
            kind: LocationKind::Thread,
            system_id,
        };
        let id = location.id;
        self.add(shared, Definition::Location(location))?;
        self.locations.insert(thread.id(), id);
        Ok(id)
    }

    /// Gives a stream the counters for 32 event types.
    fn give_segment(&mut self, shared: &Shared, stream: &StreamShared, block: usize) -> Result<()> {
        if !stream.segments[block].load(Ordering::Relaxed).is_null() {
            return Ok(());
        }
        let number = self.free_segments.pop().ok_or(RecorderError::Full {
            what: "event counters",
        })?;
        let rows = shared.memory.segment(number);
        for row in rows {
            let counters = [&row.raised, &row.suppressed].into_iter();
            let counters = counters.chain(&row.dropped).chain(&row.reported);
            counters.for_each(|counter| counter.store(0, Ordering::Relaxed));
        }
        shared
            .memory
            .slot(stream.slot)
            .segment(block)
            .store(number as u16 + 1, Ordering::Release);
        let rows = std::ptr::from_ref(rows).cast_mut();
        stream.segments[block].store(rows, Ordering::Release);
        Ok(())
    }

    fn open_stream(
        &mut self,
        shared: &Shared,
        source: SourceId,
        location: Option<LocationId>,
        max_ticks: u64,
        open_tick: u64,
    ) -> Result<Arc<StreamShared>> {
        self.check_open()?;
        let slot_number = self.free_slots.pop().ok_or(RecorderError::Full {
            what: "open streams",
        })?;
        let stream = Arc::new(StreamShared {
            id: StreamId::new(self.next_stream),
            source,
            slot: slot_number,
            max_ticks,
            open_tick,
            page: AtomicU32::new(NO_PAGE),
            segments: std::array::from_fn(|_| AtomicPtr::default()),
        });
        let slot = shared.memory.slot(slot_number);
        slot.busy().store(0, Ordering::Relaxed);
        slot.open_tick().store(open_tick, Ordering::Relaxed);
        slot.recorded().store(0, Ordering::Relaxed);
        let is_shared = location.is_none();
        slot.is_shared().store(is_shared.into(), Ordering::Relaxed);
        (0..l::SEGMENTS_PER_SLOT).for_each(|block| slot.segment(block).store(0, Ordering::Relaxed));
        let blocks = self.event_types.len().div_ceil(l::ROWS_PER_SEGMENT);
        let definition = Stream {
            id: stream.id,
            source,
            location,
        };
        let outcome = (0..blocks)
            .try_for_each(|block| self.give_segment(shared, &stream, block))
            .and_then(|()| self.add(shared, Definition::Stream(definition)));
        if let Err(error) = outcome {
            self.take_back(shared, &stream);
            return Err(error);
        }
        self.next_stream += 1;
        slot.stream().store(stream.id.get() + 1, Ordering::Release);
        Ok(stream)
    }

    /// Slot and counters of a stream become free; its totals stand in the recording by now.
    pub(crate) fn take_back(&mut self, shared: &Shared, stream: &StreamShared) {
        let slot = shared.memory.slot(stream.slot);
        slot.stream().store(0, Ordering::Release);
        for block in 0..l::SEGMENTS_PER_SLOT {
            let number = slot.segment(block).swap(0, Ordering::AcqRel);
            if number != 0 {
                self.free_segments.push(usize::from(number) - 1);
            }
        }
        self.free_slots.push(stream.slot);
        self.open.retain(|other| other.id != stream.id);
    }
}
