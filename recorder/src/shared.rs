//! Data that a recorder's threads share: memory, page queues, streams, definitions, counters
//! without a stream.
//!
//! This module and `stream` need each other: a stream that drops a page counts in the counters of
//! the page's owner, and streams live in cells that are shared.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use annals_format::live::layout as l;
use annals_format::{
    Cause, EventTypeId, EventTypeSchema, LocationId, RegionId, Schema, SourceId, StreamId,
    StreamTotals, visit_rows,
};

use crate::clock::TickSource;
use crate::elements::RowShape;
use crate::gate::Gates;
use crate::limits::{MAX_EVENT_TYPES, MAX_SOURCES};
use crate::memory::{Counters, EventState, LiveMemory, Page};
use crate::options::{Options, Overflow};
use crate::pages::Pages;
use crate::registry::{DefinitionSink, Registry};
use crate::rules::RuleBook;
use crate::source::SourceState;
use crate::status::StatusCounters;
use crate::storage::{Storage, StorageStatus};
use crate::stream::{Opening, Stream};
use crate::streams::Streams;
use crate::switch::Switch;
use crate::sync::lock;
use crate::sys::{self, ForkGuard};
use crate::thread;
use crate::thread_locations::ThreadLocations;
use crate::trigger::{Sight, Triggers};

/// The part of a recorder that its threads share.
pub(crate) struct Shared {
    /// Identifies a recorder in its process; never 0.
    pub(crate) number: u32,
    /// The key of the streams of source 0; those of the others follow.
    pub(crate) first_key: u64,
    pub(crate) guard: ForkGuard,
    pub(crate) streams: Streams,
    pub(crate) memory: LiveMemory,
    pub(crate) pages: Pages,
    /// The layout of each event type's rows, for threads that must not lock.
    pub(crate) row_shapes: Box<[OnceLock<RowShape>]>,
    pub(crate) gates: Gates,
    pub(crate) triggers: Triggers,
    pub(crate) rules: RuleBook,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) storage: Mutex<Storage>,
    pub(crate) writer: OnceLock<Thread>,
    pub(crate) status: StatusCounters,
    /// How long an event may wait for a page.
    pub(crate) block_limit: Duration,
    pub(crate) overflow: Overflow,
    /// Path of the last snapshot, or why there is none.
    pub(crate) last_snapshot: Mutex<Result<PathBuf, String>>,
    pub(crate) snapshot_done: Condvar,
    /// Regions that have a number.
    region_count: AtomicU32,
    /// Module entries of the live file that are taken.
    module_entries: AtomicUsize,
    /// The recording is finished, or is being finished.
    is_finishing: AtomicBool,
    next_stream: AtomicU32,
    next_location: AtomicU32,
    pub(crate) thread_locations: ThreadLocations,
    /// Streams that were opened, and that their threads closed, since the start.
    opened: AtomicU64,
    closed: AtomicU64,
    /// Threads that count an event without a stream just now.
    in_flight: AtomicU64,
    /// The writer thread has ended.
    pub(crate) is_writer_gone: AtomicBool,
    /// Whether a thread has waited in vain for a stream.
    pub(crate) is_short_of_streams: AtomicBool,
    pub(crate) snapshots_begun: AtomicU64,
    /// Whether a write of everything was requested.
    pub(crate) is_flush_asked: AtomicBool,
    pub(crate) storage_status: Arc<StorageStatus>,
    pub(crate) sources: Box<[OnceLock<SourceState>]>,
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
        Ok(Self {
            number,
            first_key: u64::from(number) << 32,
            streams: Streams::new(&guard, &memory)?,
            guard,
            memory,
            pages,
            row_shapes: (0..MAX_EVENT_TYPES).map(|_| OnceLock::new()).collect(),
            gates: Gates::new(),
            triggers: Triggers::new(options.triggers.clone()),
            rules: RuleBook::new(options.rules.clone()),
            registry: Mutex::default(),
            storage: Mutex::new(storage),
            writer: OnceLock::new(),
            status: StatusCounters::default(),
            block_limit: options.block_limit,
            overflow: options.overflow,
            last_snapshot: Mutex::new(Err("none was written".to_owned())),
            snapshot_done: Condvar::new(),
            region_count: AtomicU32::new(0),
            module_entries: AtomicUsize::new(0),
            is_finishing: AtomicBool::new(false),
            next_stream: AtomicU32::new(0),
            next_location: AtomicU32::new(0),
            thread_locations: ThreadLocations::new(),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            is_writer_gone: AtomicBool::new(false),
            is_short_of_streams: AtomicBool::new(false),
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

    /// Returns the stream that a page belongs to, until the page is freed.
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

    /// Queues a page that a producer has filled.
    pub(crate) fn hand_on_page(&self, number: u32) {
        if self.pages.push_full(number) {
            self.wake_writer();
        }
    }

    /// Keeps a page that a producer has filled and that may be overwritten.
    pub(crate) fn keep_page(&self, stream: &Stream, number: u32) {
        stream.kept_pages.fetch_add(1, Ordering::Relaxed);
        if self.pages.keep(number) {
            self.wake_writer();
        }
    }

    /// Counts a page's events as lost, and makes it free to be used again. Counts before page: a
    /// kill in between shows in a sum that is larger than what was raised.
    pub(crate) fn give_up(&self, number: u32, cause: Cause) {
        const NEAR: usize = 64;
        let stream = self.owner(number);
        let page = self.memory.page(number);
        let mut near = [0_u32; NEAR];
        let add = |event_type: EventTypeId, count: u64| {
            let block = event_type.index() / l::ROWS_PER_SEGMENT;
            if let Some(segment) = stream.segment(block).filter(|_| count != 0) {
                let counters =
                    &self.memory.segment(segment)[event_type.index() % l::ROWS_PER_SEGMENT];
                counters.dropped[cause.code() as usize].fetch_add(count, Ordering::Relaxed);
            }
        };
        visit_rows(
            page.committed_rows(),
            |id| self.row_schema(id),
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

    /// Frees a page of a stream, which does not keep it any more.
    pub(crate) fn free_kept(&self, number: u32, page: Page<'_>) {
        let stream = self.owner(number);
        if stream.overwrites() {
            stream.kept_pages.fetch_sub(1, Ordering::Relaxed);
        }
        page.reset();
    }

    /// Counts an event that was raised while nothing is recorded.
    /// After the finish or in a forked child it is counted; while the user has switched recording
    /// off it is not raised.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_unrecorded(&self) {
        if !self.guard.is_open() {
            self.status.after_cut.fetch_add(1, Ordering::Relaxed);
            if self.guard.is_new_child() {
                // The memory of the live file is the parent's, too.
                let children = self.memory.word(l::CHILDREN);
                children.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes this forked child, which has a recording now, out of the parent's count of children that nothing records.
    pub(crate) fn forget_child(&self) {
        if !self.guard.is_new_child() {
            let children = self.memory.word(l::CHILDREN);
            children.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn count_misused(&self) {
        self.status.misused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_blocked(&self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.status.blocked_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts an event that has no stream.
    #[cold]
    pub(crate) fn count_without_stream(&self, source: SourceId, event_type: EventTypeId) {
        let cause = if thread::has_ended() {
            Cause::ThreadEnded
        } else {
            Cause::NoStream
        };
        self.count_lost_without_stream(source, event_type, 1, cause);
    }

    /// Tries this, and where it fails while the writer has streams of ended threads to free, again for at most a second
    /// until it has: threads may begin and end faster than it works. When that was in vain, no thread waits any more.
    pub(crate) fn when_freed<T>(&self, attempt: impl Fn() -> Option<T>) -> Option<T> {
        attempt().or_else(|| self.wait_until_freed(attempt))
    }

    #[cold]
    fn wait_until_freed<T>(&self, attempt: impl Fn() -> Option<T>) -> Option<T> {
        const LONGEST: Duration = Duration::from_secs(1);
        const NAP: Duration = Duration::from_micros(100);
        let begun = Instant::now();
        while !self.is_short_of_streams.load(Ordering::Acquire)
            && !self.is_writer_gone.load(Ordering::Acquire)
            && !self.storage_has_failed()
            && self.streams.closed().any(Stream::can_be_freed)
        {
            if begun.elapsed() >= LONGEST {
                self.is_short_of_streams.store(true, Ordering::Release);
                break;
            }
            self.wake_writer();
            std::thread::sleep(NAP);
            let found = attempt();
            if found.is_some() {
                return found;
            }
        }
        attempt()
    }

    /// Counts events without a stream as dropped, for the given cause.
    pub(crate) fn count_lost_without_stream(
        &self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
        cause: Cause,
    ) {
        // The thread that finishes the recording waits for this, too.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        if self.guard.word().load(Ordering::SeqCst) == crate::sys::GUARD_RECORDING {
            self.count_unattributed(source, event_type, count.min(1 << 40), cause);
        } else {
            self.count_unrecorded();
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether no thread counts an event without a stream.
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
            self.count_misused();
            return;
        };
        let stream = self.streams.cell(state.unattributed);
        let block = event_type.index() / l::ROWS_PER_SEGMENT;
        let Some(segment) = stream.segment(block) else {
            self.count_misused();
            return;
        };
        let counters = &self.memory.segment(segment)[event_type.index() % l::ROWS_PER_SEGMENT];
        counters.raised.fetch_add(count, Ordering::Relaxed);
        counters.dropped[cause.code() as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the state of a source.
    pub(crate) fn source(&self, source: SourceId) -> Option<&SourceState> {
        self.sources.get(source.index()).and_then(OnceLock::get)
    }

    pub(crate) fn next_stream_id(&self) -> StreamId {
        StreamId::new(self.next_stream.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_location_id(&self) -> LocationId {
        LocationId::new(self.next_location.fetch_add(1, Ordering::Relaxed))
    }

    /// Forgets the location of the calling thread, which ends: another one may get its number.
    pub(crate) fn forget_this_thread(&self) {
        if self.thread_locations.is_used() {
            self.thread_locations.remove(sys::thread_number() as u32);
        }
    }

    /// Makes a new stream visible to readers of the live file, with its first counters.
    pub(crate) fn publish(&self, stream: &Stream, opening: &Opening) {
        let slot = self.memory.slot(stream.slot);
        let relaxed = Ordering::Relaxed;
        slot.busy().store(0, relaxed);
        slot.open_tick().store(opening.open_tick, relaxed);
        slot.recorded().store(0, relaxed);
        slot.lost().store(0, relaxed);
        slot.source().store(opening.source.get(), relaxed);
        let location = opening.location.map_or(0, |id| id.get() + 1);
        slot.location().store(location, relaxed);
        let is_shared = opening.location.is_none();
        slot.is_shared().store(is_shared.into(), relaxed);
        for block in 0..l::SEGMENTS_PER_SLOT {
            slot.segment(block).store(0, relaxed);
        }
        self.when_freed(|| self.give_segment(stream, 0).then_some(()));
        slot.stream().store(opening.id.get() + 1, Ordering::Release);
    }

    /// Assigns the counters of 32 event types to a stream; returns false when there are none left.
    pub(crate) fn give_segment(&self, stream: &Stream, block: usize) -> bool {
        let open = |states: &[EventState]| self.set_gates(stream, block, states);
        self.streams.give_segment(&self.memory, stream, block, open)
    }

    fn set_gates(&self, stream: &Stream, block: usize, states: &[EventState]) {
        let Some(state) = self.source(stream.source()) else {
            return;
        };
        let is_plain_clock =
            matches!(state.clock, TickSource::Tsc) && state.observation_interval_ns.is_none();
        for (index, event_state) in states.iter().enumerate() {
            let id = EventTypeId::new((block * l::ROWS_PER_SEGMENT + index) as u32);
            // Repeated until the rules did not change meanwhile: a thread that changes them sets
            // the gates as well, and the older answer must not remain.
            loop {
                let gate = || {
                    let rate = state.ticks_per_second;
                    self.gates.gate(id, state.switch(), is_plain_clock, rate)
                };
                let answer = gate();
                event_state.gate.store(answer.0, Ordering::SeqCst);
                if gate() == answer {
                    break;
                }
            }
        }
    }

    /// Returns whether the rules have switched an event type, or its source, off: no event of it is recorded, nor counts for one that
    /// is.
    pub(crate) fn is_off(&self, source: SourceId, event_type: EventTypeId) -> bool {
        let source = self.source(source);
        let switch = source.map_or(Switch::first(false), SourceState::switch);
        let gate = self.gates.gate(event_type, switch, true, 1);
        gate.is_off() && gate.changed_calls().is_none()
    }

    /// Returns the types of an event type's elements. Takes no lock.
    pub(crate) fn row_schema(&self, event_type: EventTypeId) -> Option<&EventTypeSchema> {
        self.row_shape(event_type).map(|shape| &shape.schema)
    }

    /// Returns what a raise needs to know of an event type's rows. Takes no lock.
    #[inline]
    pub(crate) fn row_shape(&self, event_type: EventTypeId) -> Option<&RowShape> {
        let shape = self.row_shapes.get(event_type.index());
        shape.and_then(OnceLock::get)
    }

    /// Returns the number of a new region, or `None` when references cannot distinguish more.
    pub(crate) fn next_region_id(&self) -> Option<RegionId> {
        const MOST: u32 = 1 << 24;
        let next = |count: u32| (count < MOST).then_some(count + 1);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let count = self
            .region_count
            .fetch_update(order.0, order.1, next)
            .ok()?;
        // A forked child has its parent's memory.
        if self.guard.is_on() {
            self.memory.put_region_count(count + 1);
        }
        Some(RegionId::new(count))
    }

    /// Returns the number of the next module entry of the live file, or `None` if there are no more.
    pub(crate) fn next_module_entry(&self) -> Option<usize> {
        let number = self.module_entries.fetch_add(1, Ordering::Relaxed);
        (number < l::MODULE_COUNT).then_some(number)
    }

    /// Returns whether a region has a number; takes no lock.
    #[inline]
    pub(crate) fn has_region(&self, region: RegionId) -> bool {
        region.get() < self.region_count.load(Ordering::Acquire)
    }

    /// Marks the begin of the finish: from now on, a guard that is off means finished, not a forked
    /// child.
    pub(crate) fn begin_to_finish(&self) {
        self.is_finishing.store(true, Ordering::SeqCst);
    }

    /// Returns whether the recording is finished, or is being finished.
    pub(crate) fn is_finishing(&self) -> bool {
        self.is_finishing.load(Ordering::SeqCst)
    }

    /// Brings the rules, as they are now, to all streams.
    pub(crate) fn renew_gates(&self) {
        (0..l::SEGMENTS_PER_SLOT).for_each(|block| self.renew_gates_of(block));
    }

    /// Applies the current rules to 32 event types in all streams.
    /// Cells in any phase: one that is being opened may have read the rules before they changed.
    pub(crate) fn renew_gates_of(&self, block: usize) {
        for stream in self.streams.all() {
            if let Some(segment) = stream.segment(block) {
                self.set_gates(stream, block, self.streams.event_states(segment));
            }
        }
    }

    /// Returns all counters of a stream with their event types and states.
    pub(crate) fn counters_of<'a>(
        &'a self,
        stream: &'a Stream,
    ) -> impl Iterator<Item = (EventTypeId, &'a Counters, &'a EventState)> {
        let blocks =
            (0..l::SEGMENTS_PER_SLOT).filter_map(|block| Some((block, stream.segment(block)?)));
        blocks.flat_map(|(block, segment)| {
            let counters = self.memory.segment(segment).iter();
            let with_states = counters.zip(self.streams.event_states(segment));
            with_states
                .enumerate()
                .map(move |(index, (counters, state))| {
                    let number = (block * l::ROWS_PER_SEGMENT + index) as u32;
                    (EventTypeId::new(number), counters, state)
                })
        })
    }

    /// Shows an event to the triggers; its row was committed.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch(&self, stream: &Stream, event_type: EventTypeId, tick: u64, row: &[u8]) {
        let rate = self.source(stream.source());
        let fires = self.triggers.match_event(&Sight {
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

    /// Returns how many streams were opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    pub(crate) fn note_closing(&self) {
        self.closed.fetch_add(1, Ordering::Release);
        self.wake_writer();
    }

    /// Adds the sums of streams whose counters are released.
    pub(crate) fn count_closed(&self, totals: &[StreamTotals]) {
        for row in totals.iter().flat_map(|totals| &totals.rows) {
            let sums = [row.raised, row.dropped_sum(), row.suppressed];
            for (counter, sum) in self.status.closed.iter().zip(sums) {
                counter.fetch_add(sum, Ordering::Relaxed);
            }
        }
    }

    /// Returns the current numbers of events raised, dropped and suppressed.
    pub(crate) fn sums(&self) -> [u64; 3] {
        // Not while a stream moves from the open ones to the closed ones. A forked child has
        // neither, and must not wait for a lock that its parent held.
        let _registry = self.guard.is_on().then(|| lock(&self.registry));
        let mut sums = std::array::from_fn(|n| self.status.closed[n].load(Ordering::Relaxed));
        for (_, counters, _) in self
            .streams
            .in_use()
            .flat_map(|stream| self.counters_of(stream))
        {
            let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let dropped = counters.dropped.iter().map(load);
            let parts = [
                load(&counters.raised),
                dropped.fold(0, u64::saturating_add),
                load(&counters.suppressed),
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = u64::saturating_add(*sum, part);
            }
        }
        sums
    }

    /// Returns how many streams their threads closed so far.
    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns where records of definitions are stored.
    pub(crate) fn definition_sink(&self) -> DefinitionSink<'_> {
        DefinitionSink {
            memory: &self.memory,
            storage: &self.storage,
            status: &self.storage_status,
        }
    }

    /// Writes definitions that only the live file has to the recording.
    pub(crate) fn flush_definitions(&self) {
        lock(&self.registry).flush(&self.definition_sink());
    }

    /// Returns the row schemas of all event types.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        lock(&self.registry).schema()
    }

    /// Reports that a snapshot was written, or why it could not be.
    pub(crate) fn note_snapshot(&self, outcome: std::io::Result<PathBuf>) {
        let mut last = lock(&self.last_snapshot);
        *last = outcome.map_err(|error| error.to_string());
        self.status.snapshots.fetch_add(1, Ordering::Release);
        self.snapshot_done.notify_all();
    }
}
