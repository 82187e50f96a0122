//! The event path: one producer, one stream, no lock, no allocation, no system call but at most one
//! wake-up per page.
//!
//! Order matters here, because a kill, or a signal handler that raises events itself, can come
//! between any two instructions:
//! 1. the fork guard is read before shared memory is touched (a forked child must not);
//! 2. the busy mark is set before the raise is counted, so that a reader knows which count may be
//!    one ahead of the events, and a handler knows that this stream is in use;
//! 3. the row's bytes are stored before the commit word, which is one release store.
#![expect(
    unsafe_code,
    reason = "rows and counters are reached through raw pointers; benches/event_path shows the gain"
)]

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, compiler_fence,
};
use std::time::{Duration, Instant};

use annals_format::live::layout as l;
use annals_format::{
    Cause, EventTypeId, LocationId, ROW_DROPPED, ROW_OBSERVATION, RegionId, SourceId, StreamId,
};

use crate::clock::{TickSource, reference_ns, tsc};
use crate::gate::{Admission, Gate};
use crate::memory::{Counters, EventState, Page, bump};
use crate::options::Overflow;
use crate::row::{PutRow, RowCursor, VARINT_ROOM};
use crate::shared::Shared;
use crate::source::SourceState;
use crate::switch::SwitchedCalls;
use crate::sys::{self, GUARD_OFF, GUARD_RECORDING};
use crate::thread::QueueUse;
use crate::trigger::WatchedRegions;

/// Means "no page".
const NO_PAGE: u64 = u64::MAX;

/// Flag in `page`: the writer took the page while the stream was idle. The lower bits are the
/// number of the page's events.
const TAKEN: u64 = 1 << 62;

/// Room for what precedes an event's elements: an observation, the event type, the tick, and the
/// bytes that a store touches beyond its value.
const ROW_OVERHEAD: usize = 6 * VARINT_ROOM;

/// Most bytes of a dropped record's row.
const DROPPED_ROW_ROOM: usize = 8 * VARINT_ROOM;

/// Highest count of raised events, of one event type in one stream, that reported losses lead to.
const MAX_RAISED_BY_REPORTS: u64 = 1 << 63;

/// The region of calls that are switched whatever their region is.
const ANY_REGION: RegionId = RegionId::new(u32::MAX);

/// Busy mark of a stream that is closing. Readers take it for an event of type 0 being raised,
/// which has no effect: the counters of that type are not one ahead of its events.
const CLOSING_MARK: u64 = 1;

/// The states of a stream's cell.
/// A cell passes through these in this order, repeatedly.
pub(crate) mod phase {
    /// No thread uses it.
    pub(crate) const FREE: u32 = 0;
    /// A thread fills it in.
    pub(crate) const CLAIMED: u32 = 1;
    /// Events may be raised.
    pub(crate) const OPEN: u32 = 2;
    /// Its thread ended; the writer has to complete it.
    pub(crate) const CLOSED: u32 = 3;
}

/// A stream: what its thread records with, and what the writer may know of it. Streams live in
/// cells that are made when the recorder starts and used again and again, so that opening one
/// allocates nothing and takes no lock: it may happen in a signal handler.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Stream {
    // The fields that an event needs, first.
    /// Recorder and source, compared in one step.
    /// 0 means not open. Cells are in memory that a fork wipes, so that it reads 0 in a child.
    pub(crate) key: AtomicU64,
    /// The recorder's permission: [`crate::sys::ForkGuard`].
    guard: AtomicPtr<AtomicU32>,
    /// The busy mark in the live file.
    busy: AtomicPtr<AtomicU64>,
    /// Start of the current page's rows, with the commit word at a fixed distance before it;
    /// [`NO_ROWS`] without a page.
    start: AtomicPtr<u8>,
    /// Bytes of rows that the current page takes; 0 without a page. The writer sets 0 to get the
    /// page of an idle stream.
    room: AtomicUsize,
    /// Tick of the last recorded event, or of the opening.
    last_tick: AtomicU64,
    /// The counters of event types below 32, in the live file.
    first_counters: AtomicPtr<Counters>,
    /// This process's state of these event types; [`SHUT_STATES`] while they have no counters.
    first_states: AtomicPtr<EventState>,

    // The fields that a page needs.
    /// Whether events were dropped that no dropped record reports yet.
    has_unreported: AtomicBool,
    /// Code of the source's [`Overflow`] policy.
    overflow: AtomicU8,
    /// A stream that signal handlers use while they interrupt another one.
    is_companion: AtomicBool,
    /// The recorder's shared part.
    shared: AtomicPtr<Shared>,
    /// The state of the stream's source.
    state: AtomicPtr<SourceState>,
    /// Number of the current page in the stream; without a page, of the next one.
    sequence: AtomicU64,
    /// Number of events in all released pages.
    recorded: AtomicU64,
    /// Number of events, of all types, that this thread has counted as dropped.
    dropped: AtomicU64,
    /// Reference time of the last observation in the current page; `i64::MIN` means none.
    last_observation_ns: AtomicI64,
    /// Enters that a trigger watches, innermost last.
    pub(crate) watched: WatchedRegions,
    /// Open calls of regions whose rules have changed.
    pub(crate) switched_regions: SwitchedCalls,
    /// Open calls since the rules for all calls of the source have changed.
    switched_calls: SwitchedCalls,

    // The fields that other threads read.
    /// A value of [`phase`].
    pub(crate) phase: AtomicU32,
    /// Number of this cell, and of the stream's slot in the live file.
    pub(crate) slot: usize,
    id: AtomicU32,
    source: AtomicU32,
    /// Location id + 1.
    /// 0 means none (an unattributed row).
    location: AtomicU32,
    /// Whether the stream's definition was written.
    pub(crate) is_announced: AtomicBool,
    /// Largest tick of the source's clock, before it wraps.
    max_ticks: AtomicU64,
    open_tick: AtomicU64,
    close_tick: AtomicU64,
    /// The page that the producer writes to. Else [`NO_PAGE`], or [`TAKEN`] and a number of events.
    page: AtomicU64,
    /// Full pages that wait to be overwritten.
    pub(crate) kept_pages: AtomicU32,
    /// For each block of event types, the number + 1 of its counter segment; 0 means none.
    segments: [AtomicU16; l::SEGMENTS_PER_SLOT],
    /// The next stream on the thread's list.
    pub(crate) next: AtomicPtr<Stream>,
}

// SAFETY: every field that changes is an atomic; the raw pointers point into memory that the
// recorder's shared part keeps mapped, and are used as shared references to atomics only.
unsafe impl Send for Stream {}
// SAFETY: every field that changes is an atomic, apart from `watched` and the calls, which only the
// producer uses; the raw pointers point into memory that the recorder's shared part keeps mapped, and are
// used as shared references to atomics only.
unsafe impl Sync for Stream {}

/// The identity of a stream that is being opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) id: StreamId,
    pub(crate) source: SourceId,
    pub(crate) location: Option<LocationId>,
    pub(crate) open_tick: u64,
    pub(crate) is_companion: bool,
}

impl Stream {
    /// Makes zeroed memory a free cell.
    pub(crate) fn prepare(&mut self, slot: usize, guard: &AtomicU32, busy: &AtomicU64) {
        self.slot = slot;
        *self.guard.get_mut() = std::ptr::from_ref(guard).cast_mut();
        *self.busy.get_mut() = std::ptr::from_ref(busy).cast_mut();
        *self.page.get_mut() = NO_PAGE;
    }

    /// Fills in a claimed cell. The recorder is `shared`, which outlives the stream's use.
    pub(crate) fn fill(&self, shared: &Shared, state: &SourceState, opening: &Opening) {
        let relaxed = Ordering::Relaxed;
        self.shared
            .store(std::ptr::from_ref(shared).cast_mut(), relaxed);
        self.state
            .store(std::ptr::from_ref(state).cast_mut(), relaxed);
        self.id.store(opening.id.get(), relaxed);
        self.source.store(opening.source.get(), relaxed);
        let location = opening.location.map_or(0, |id| id.get() + 1);
        self.location.store(location, relaxed);
        self.is_companion.store(opening.is_companion, relaxed);
        self.is_announced.store(false, relaxed);
        self.max_ticks.store(state.max_ticks, relaxed);
        self.open_tick.store(opening.open_tick, relaxed);
        self.last_tick.store(opening.open_tick, relaxed);
        self.overflow.store(state.overflow.code(), relaxed);
        self.leave_page();
        self.sequence.store(0, relaxed);
        self.recorded.store(0, relaxed);
        self.dropped.store(0, relaxed);
        self.has_unreported.store(false, relaxed);
        self.last_observation_ns.store(i64::MIN, relaxed);
        self.watched.clear();
        self.switched_regions.clear();
        self.switched_calls.clear();
        self.page.store(NO_PAGE, relaxed);
        self.kept_pages.store(0, relaxed);
        self.first_states
            .store(SHUT_STATES.as_ptr().cast_mut(), relaxed);
        for segment in &self.segments {
            segment.store(0, relaxed);
        }
    }

    pub(crate) fn id(&self) -> StreamId {
        StreamId::new(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn source(&self) -> SourceId {
        SourceId::new(self.source.load(Ordering::Relaxed))
    }

    pub(crate) fn location(&self) -> Option<LocationId> {
        let number = self.location.load(Ordering::Relaxed);
        number.checked_sub(1).map(LocationId::new)
    }

    pub(crate) fn is_companion(&self) -> bool {
        self.is_companion.load(Ordering::Relaxed)
    }

    pub(crate) fn max_ticks(&self) -> u64 {
        self.max_ticks.load(Ordering::Relaxed)
    }

    pub(crate) fn open_tick(&self) -> u64 {
        self.open_tick.load(Ordering::Relaxed)
    }

    pub(crate) fn last_tick(&self) -> u64 {
        self.last_tick.load(Ordering::Relaxed)
    }

    pub(crate) fn close_tick(&self) -> u64 {
        self.close_tick.load(Ordering::Relaxed)
    }

    pub(crate) fn overwrites(&self) -> bool {
        Overflow::from_code(self.overflow.load(Ordering::Relaxed)) == Overflow::Overwrite
    }

    /// Takes the page that the producer writes to, after the recording was finished. `None` means
    /// that there is none, or that the writer took it while the stream was idle.
    pub(crate) fn take_page(&self) -> Option<u32> {
        u32::try_from(self.page.swap(NO_PAGE, Ordering::AcqRel)).ok()
    }

    /// Returns the page that the producer writes to; `None` means that it has none.
    pub(crate) fn current_page(&self) -> Option<u32> {
        u32::try_from(self.page.load(Ordering::Acquire)).ok()
    }

    /// Takes this page from an idle producer, which notices at its next event. Returns `false` if
    /// the producer is at work; it then releases the page itself.
    ///
    /// Only the writer may call this. The exchange at the end compares page numbers only: it relies
    /// on the producer not releasing the page and acquiring it again after the checks. A page that
    /// is queued for the writer cannot return, because only the writer frees it. A kept page can,
    /// if it is the oldest one and no page is free: this case is not excluded.
    pub(crate) fn take_idle_page(&self, number: u32) -> bool {
        self.room.store(0, Ordering::SeqCst);
        // From here on, a raise that begins finds no room.
        sys::barrier_in_all_threads();
        if self.busy().load(Ordering::Acquire) != 0 || self.room.load(Ordering::SeqCst) != 0 {
            return false;
        }
        let page = self.shared().memory.page(number);
        let events = page.commit().load(Ordering::Acquire) >> 32;
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let taken = self
            .page
            .compare_exchange(number.into(), TAKEN | events, order, seen);
        taken.is_ok()
    }

    /// Returns the number of the counter segment of a block of event types. `None` means that the
    /// stream has no counters for them yet.
    ///
    /// A block is 32 event types with consecutive ids. A segment is the part of the live file with
    /// a stream's counters of one block: a row ([`Counters`]) for each event type.
    pub(crate) fn segment(&self, block: usize) -> Option<usize> {
        let number = self.segments.get(block)?.load(Ordering::Acquire);
        usize::from(number).checked_sub(1)
    }

    /// Takes a counter segment for a block of event types. Returns `false` if the block has one.
    pub(crate) fn adopt_segment(
        &self,
        block: usize,
        number: usize,
        counters: *mut Counters,
        states: *mut EventState,
    ) -> bool {
        let taken = self.segments[block].compare_exchange(
            0,
            number as u16 + 1,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if taken.is_ok() && block == 0 {
            self.first_states.store(states, Ordering::Release);
            self.first_counters.store(counters, Ordering::Release);
        }
        taken.is_ok()
    }

    /// Takes the numbers of all counter segments off the stream: each when the iterator reaches it.
    pub(crate) fn take_segments(&self) -> impl Iterator<Item = usize> {
        let numbers = self.segments.iter().map(|s| s.swap(0, Ordering::AcqRel));
        numbers.filter_map(|number| usize::from(number).checked_sub(1))
    }

    #[inline]
    fn busy(&self) -> &AtomicU64 {
        // SAFETY: points into the live memory, which the shared part keeps mapped; a reference to
        // an open stream keeps that alive.
        unsafe { &*self.busy.load(Ordering::Relaxed) }
    }

    #[inline]
    fn guard(&self) -> u32 {
        // SAFETY: points into the guard's page, which the shared part keeps mapped.
        unsafe { &*self.guard.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn shared_pointer(&self) -> *const Shared {
        self.shared.load(Ordering::Relaxed)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: set by `fill`; the shared part outlives the stream's use, see
        // `thread_streams::open`.
        unsafe { &*self.shared.load(Ordering::Relaxed) }
    }

    fn source_state(&self) -> &SourceState {
        // SAFETY: as for `shared`; sources are never removed.
        unsafe { &*self.state.load(Ordering::Relaxed) }
    }

    /// Returns whether its own thread is raising an event on it.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy().load(Ordering::Relaxed) != 0
    }

    fn leave_page(&self) {
        self.room.store(0, Ordering::Relaxed);
        let none = NO_ROWS.rows.as_ptr().cast_mut().cast();
        self.start.store(none, Ordering::Relaxed);
    }

    /// Returns the commit word of the page with these rows. Its low 32 bits are the number of
    /// committed bytes, its high 32 bits the number of committed events.
    #[inline]
    fn commit(&self, start: *mut u8) -> &AtomicU64 {
        const BEFORE: usize = l::PAGE_HEADER_LEN - l::PAGE_COMMIT;
        // SAFETY: rows come after their page's header, in the live memory or in `NO_ROWS`.
        let word = unsafe { start.sub(BEFORE) };
        // SAFETY: aligned as the page is. The live memory stays mapped while this stream is
        // borrowed: a reference to an open stream keeps the recorder's shared part alive.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// Returns the counters of an event type in the live file, and its state in this process.
    /// `None` means that the stream has no counters for its block of event types yet.
    fn counters(&self, event_type: EventTypeId) -> Option<(&Counters, &EventState)> {
        let segment = self.segment(event_type.index() / l::ROWS_PER_SEGMENT)?;
        let index = event_type.index() % l::ROWS_PER_SEGMENT;
        let shared = self.shared();
        Some((
            &shared.memory.segment(segment)[index],
            &shared.streams.event_states(segment)[index],
        ))
    }

    /// Raises an event: records it, or counts it as dropped.
    /// `bound` is the most bytes that `put` writes.
    ///
    /// This is the fast path, which nearly all events take: the clock is the processor's counter,
    /// no rule or trigger applies to them, and the page has room. Any other case is detected before
    /// anything is counted, and takes the slow path. After a clock read, a processor hides some
    /// thirty instructions; so the fast path has few, and none of them is a call.
    #[inline(always)]
    pub(crate) fn raise(
        &self,
        event_type: EventTypeId,
        tick: Option<u64>,
        bound: usize,
        put: impl PutRow,
    ) {
        let is_raised = match tick {
            None => self.raise_if_plain(event_type, bound, put),
            Some(tick) => self.raise_past(event_type, tick, bound, put),
        };
        if !is_raised {
            self.raise_any(event_type, tick, bound, put);
        }
    }

    /// Tries the fast path only.
    /// Returns whether the event was recorded; if not, nothing has changed. Never panics.
    #[inline(always)]
    pub(crate) fn raise_if_plain(
        &self,
        event_type: EventTypeId,
        bound: usize,
        put: impl PutRow,
    ) -> bool {
        let relaxed = Ordering::Relaxed;
        let index = event_type.index();
        if index >= l::ROWS_PER_SEGMENT {
            return self.raise_far(event_type, bound, put);
        }
        // SAFETY: always the 32 states of a segment, or `SHUT_STATES`.
        let state = unsafe { &*self.first_states.load(relaxed).add(index) };
        let counters = self.first_counters.load(relaxed).wrapping_add(index);
        self.raise_plain(event_type, counters, state, tsc, bound, put)
    }

    /// Tries the fast path for an event that happened at this tick.
    #[inline(never)]
    fn raise_past(
        &self,
        event_type: EventTypeId,
        tick: u64,
        bound: usize,
        put: impl PutRow,
    ) -> bool {
        self.counters(event_type).is_some_and(|(counters, state)| {
            self.raise_plain(event_type, counters, state, || tick, bound, put)
        })
    }

    /// Raises two events of the same moment, with one check and one clock read.
    /// Each is counted and committed separately, so that a kill between them leaves no partial
    /// event.
    #[inline(always)]
    pub(crate) fn raise_two(
        &self,
        first: (EventTypeId, usize, impl PutRow),
        second: (EventTypeId, usize, impl PutRow),
    ) {
        let relaxed = Ordering::Relaxed;
        let (one, other) = (first.0.index(), second.0.index());
        if one >= l::ROWS_PER_SEGMENT || other >= l::ROWS_PER_SEGMENT {
            return self.raise_each(first, second);
        }
        let states = self.first_states.load(relaxed);
        let counters = self.first_counters.load(relaxed);
        // SAFETY: always the 32 states of a segment, or `SHUT_STATES`.
        let gate = unsafe { &*states.add(one) }.gate.load(relaxed);
        // SAFETY: always the 32 states of a segment, or `SHUT_STATES`.
        let other_gate = unsafe { &*states.add(other) }.gate.load(relaxed);
        let busy = self.busy();
        busy.store(u64::from(first.0.get()) + 1, relaxed);
        compiler_fence(Ordering::SeqCst);
        let start = self.start.load(relaxed);
        let commit = self.commit(start);
        let before = commit.load(relaxed);
        let offset = before as u32 as usize;
        // As in `raise_plain`.
        if self.guard() != GUARD_RECORDING
            || gate != Gate::PLAIN.0
            || other_gate != Gate::PLAIN.0
            || offset + first.1 + second.1 + 2 * ROW_OVERHEAD > self.room.load(relaxed)
        {
            busy.store(0, relaxed);
            return self.raise_each(first, second);
        }
        let tick = tsc();
        // SAFETY: with plain gates, the counters exist.
        bump(&unsafe { &*counters.wrapping_add(one) }.raised);
        // SAFETY: the page is this stream's until it is handed on, and has the room.
        let mut cursor = unsafe { Page::cursor(start, offset) };
        cursor.event_start(first.0, self.last_tick.load(relaxed), tick);
        first.2.put(&mut cursor);
        let length = cursor.offset_from(start) - offset;
        commit.store(before + (1 << 32 | length as u64), Ordering::Release);
        busy.store(u64::from(second.0.get()) + 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the page is this stream's until it is handed on, and has the room.
        bump(&unsafe { &*counters.wrapping_add(other) }.raised);
        cursor.event_start(second.0, tick, tick);
        second.2.put(&mut cursor);
        let length = cursor.offset_from(start) - offset;
        commit.store(before + (2 << 32 | length as u64), Ordering::Release);
        self.last_tick.store(tick, relaxed);
        compiler_fence(Ordering::SeqCst);
        busy.store(0, Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn raise_each(
        &self,
        first: (EventTypeId, usize, impl PutRow),
        second: (EventTypeId, usize, impl PutRow),
    ) {
        self.raise(first.0, None, first.1, first.2);
        self.raise(second.0, None, second.1, second.2);
    }

    /// Tries the fast path for event types beyond the first 32.
    #[inline(never)]
    fn raise_far(&self, event_type: EventTypeId, bound: usize, put: impl PutRow) -> bool {
        self.counters(event_type).is_some_and(|(counters, state)| {
            self.raise_plain(event_type, counters, state, tsc, bound, put)
        })
    }

    /// Tries the fast path with the given counters, which need not exist unless the gate is plain.
    /// Returns whether the event was recorded; if not, nothing has changed.
    #[inline(always)]
    fn raise_plain(
        &self,
        event_type: EventTypeId,
        counters: *const Counters,
        state: &EventState,
        now: impl FnOnce() -> u64,
        bound: usize,
        put: impl PutRow,
    ) -> bool {
        let relaxed = Ordering::Relaxed;
        let busy = self.busy();
        busy.store(u64::from(event_type.get()) + 1, relaxed);
        compiler_fence(Ordering::SeqCst);
        let start = self.start.load(relaxed);
        let commit = self.commit(start);
        let before = commit.load(relaxed);
        let offset = before as u32 as usize;
        // The thread that finishes the recording switches the guard off, passes a barrier through
        // this thread, and then waits until the busy mark is cleared.
        if self.guard() != GUARD_RECORDING
            || state.gate.load(relaxed) != Gate::PLAIN.0
            || offset + bound + ROW_OVERHEAD > self.room.load(relaxed)
        {
            busy.store(0, relaxed);
            return false;
        }
        let tick = now();
        // SAFETY: with a plain gate, the counters exist.
        let counters = unsafe { &*counters };
        bump(&counters.raised);
        // SAFETY: the page is this stream's until it is handed on, and has the room.
        let mut cursor = unsafe { Page::cursor(start, offset) };
        cursor.event_start(event_type, self.last_tick.load(relaxed), tick);
        put.put(&mut cursor);
        let length = cursor.offset_from(start) - offset;
        commit.store(before + (1 << 32 | length as u64), Ordering::Release);
        self.last_tick.store(tick, relaxed);
        compiler_fence(Ordering::SeqCst);
        busy.store(0, Ordering::Release);
        true
    }

    /// Takes the slow path, for any event: adds counters for it to the stream if there are none.
    #[cold]
    #[inline(never)]
    fn raise_any(
        &self,
        event_type: EventTypeId,
        tick: Option<u64>,
        bound: usize,
        put: impl PutRow,
    ) {
        let busy = self.busy();
        // The program may read `errno` after the event.
        let _errno = sys::ErrnoKept::new();
        // Dropped when this function ends, also by a panic in the program's own clock.
        let _mark = BusyMark::set(busy, u64::from(event_type.get()) + 1);
        if self.guard() != GUARD_RECORDING {
            self.shared().count_unrecorded();
            return;
        }
        if self.counters(event_type).is_none() {
            let block = event_type.index() / l::ROWS_PER_SEGMENT;
            self.shared().give_segment(self, block);
        }
        match self.counters(event_type) {
            Some((counters, state)) => {
                self.raise_counted(event_type, counters, state, tick, bound, put)
            }
            None => self
                .shared()
                .count_without_stream(self.source(), event_type),
        }
    }

    /// Takes the slow path for an event whose counters exist.
    fn raise_counted(
        &self,
        event_type: EventTypeId,
        counters: &Counters,
        state: &EventState,
        tick: Option<u64>,
        bound: usize,
        put: impl PutRow,
    ) {
        let relaxed = Ordering::Relaxed;
        let gate = Gate(state.gate.load(relaxed));
        let is_admitted = match gate.changed_calls() {
            Some((is_enter, switch)) => self.switched_calls.admits(ANY_REGION, is_enter, switch),
            None => gate.is_open() || self.admits(gate, counters, state, tick),
        };
        if !is_admitted {
            return;
        }
        let tick = tick.unwrap_or_else(|| self.source_state().clock.read());
        // The program's own clock may have taken so long that the recording is finished by now.
        if self.guard() != GUARD_RECORDING {
            self.shared().count_unrecorded();
            return;
        }
        bump(&counters.raised);
        let limited = Self::take_unreported_suppressed(gate, counters, state);
        let record_room = if limited == 0 { 0 } else { DROPPED_ROW_ROOM };
        let need = bound.saturating_add(ROW_OVERHEAD + record_room);
        let mut start = self.start.load(relaxed);
        let mut before = self.commit(start).load(relaxed);
        let used = before as u32 as usize;
        if used.saturating_add(need) > self.room.load(relaxed) {
            if !self.open_page(counters, tick, need) {
                return;
            }
            start = self.start.load(relaxed);
            before = self.commit(start).load(relaxed);
        }
        if limited != 0 {
            self.put_dropped(&DroppedRow {
                event_type,
                cause: Cause::RateLimited,
                count: limited,
                cumulative: counters.suppressed.load(relaxed),
                from_tick: state.suppressed_from.load(relaxed),
                to_tick: tick,
            });
            before = self.commit(start).load(relaxed);
        }
        let commit = self.commit(start);
        let row_start = before as u32 as usize;
        // SAFETY: the page is this stream's until it is handed on, and `need` bytes are free.
        let mut cursor = unsafe { Page::cursor(start, row_start) };
        if self.source_state().observation_interval_ns.is_some() {
            cursor = self.observe(cursor);
        }
        cursor.event_start(event_type, self.last_tick.load(relaxed), tick);
        put.put(&mut cursor);
        let length = cursor.offset_from(start) - row_start;
        commit.store(before + (1 << 32 | length as u64), Ordering::Release);
        self.last_tick.store(tick, relaxed);
        if gate.is_watched() {
            // SAFETY: the row was written above, and the page is still this stream's.
            let bytes = unsafe { std::slice::from_raw_parts(start.add(row_start), length) };
            self.shared().watch(self, event_type, tick, bytes);
        }
    }

    /// Checks an event against the user's rules.
    /// Returns whether it passes; if not, it is counted as suppressed, or not raised at all.
    #[cold]
    #[inline(never)]
    fn admits(
        &self,
        gate: Gate,
        counters: &Counters,
        state: &EventState,
        tick: Option<u64>,
    ) -> bool {
        let now = || tick.unwrap_or_else(|| self.source_state().clock.read());
        match gate.admit(counters.raised.load(Ordering::Relaxed), &state.limiter, now) {
            Admission::Record => true,
            Admission::Suppress => {
                let (raised, suppressed) = (&counters.raised, &counters.suppressed);
                let count = suppressed.load(Ordering::Relaxed);
                if count == state.reported_suppressed.load(Ordering::Relaxed) {
                    let last_tick = self.last_tick.load(Ordering::Relaxed);
                    state.suppressed_from.store(last_tick, Ordering::Relaxed);
                }
                bump(raised);
                bump(suppressed);
                bump(self.shared().memory.slot(self.slot).lost());
                false
            }
            Admission::NotRaised => false,
        }
    }

    /// Returns how many events the rate limit has suppressed since the last report, and marks them
    /// as reported. Under a sampling rule, it only marks them and returns 0.
    fn take_unreported_suppressed(gate: Gate, counters: &Counters, state: &EventState) -> u64 {
        if gate.is_open() {
            return 0;
        }
        let suppressed = counters.suppressed.load(Ordering::Relaxed);
        let reported = &state.reported_suppressed;
        let count = suppressed.saturating_sub(reported.load(Ordering::Relaxed));
        reported.store(suppressed, Ordering::Relaxed);
        if gate.is_limit() { count } else { 0 }
    }

    /// Writes the reference time into the page once per observation interval. Readers need it to
    /// place events whose clock wraps soon or cannot be read.
    #[cold]
    #[inline(never)]
    fn observe(&self, mut cursor: RowCursor) -> RowCursor {
        let now = reference_ns();
        let interval = self.source_state().observation_interval_ns;
        let last = self.last_observation_ns.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= interval.unwrap_or(i64::MAX) {
            cursor.varint(ROW_OBSERVATION);
            cursor.signed(now);
            self.last_observation_ns.store(now, Ordering::Relaxed);
        }
        cursor
    }

    #[cold]
    fn drop_event(&self, counters: &Counters, cause: Cause) {
        bump(&counters.dropped[cause.code() as usize]);
        bump(&self.dropped);
        bump(self.shared().memory.slot(self.slot).lost());
        self.has_unreported.store(true, Ordering::Relaxed);
    }

    /// Counts events that did not reach the recorder: their source dropped them, or no callback
    /// could take them. Writes a dropped record immediately if there is room.
    pub(crate) fn count_lost(&self, event_type: EventTypeId, count: u64, cause: Cause) {
        let _mark = BusyMark::set(self.busy(), u64::from(event_type.get()) + 1);
        if self.guard() != GUARD_RECORDING {
            self.shared().count_unrecorded();
            return;
        }
        let block = event_type.index() / l::ROWS_PER_SEGMENT;
        self.shared().give_segment(self, block);
        let Some((counters, _)) = self.counters(event_type) else {
            self.shared().count_misused();
            return;
        };
        // Counters stay where events can still be added to them.
        let count = count
            .min(MAX_RAISED_BY_REPORTS.saturating_sub(counters.raised.load(Ordering::Relaxed)));
        // Dropped first: a kill in between shows in a sum that is larger than what was raised.
        for counter in [
            &counters.dropped[cause.code() as usize],
            &counters.raised,
            &self.dropped,
            self.shared().memory.slot(self.slot).lost(),
        ] {
            let sum = counter.load(Ordering::Relaxed).saturating_add(count);
            counter.store(sum, Ordering::Relaxed);
        }
        self.has_unreported.store(true, Ordering::Relaxed);
        let now = self.source_state().clock.read_from(self.last_tick());
        self.report_drops(now, 0);
    }

    /// Gets an empty page: a free one, else the oldest kept one, else (policy `Block`) waits for
    /// one. The error is the cause to count the drop under.
    fn acquire_page(&self) -> Result<u32, Cause> {
        let shared = self.shared();
        // A handler that interrupted this thread in a queue must not wait there for itself.
        let Some(_use) = QueueUse::begin() else {
            return Err(Cause::BufferFull);
        };
        if let Some(number) = shared.take_free_page() {
            return Ok(number);
        }
        // The writer, which frees pages, is late. The pages that a flight recorder keeps are used
        // for all sources: its policy must not cause other sources to drop.
        if let Some(number) = shared.pages.take_oldest() {
            shared.give_up(number, Cause::Overwritten);
            return Ok(number);
        }
        if shared.storage_has_failed() {
            return Err(Cause::Storage);
        }
        let overflow = Overflow::from_code(self.overflow.load(Ordering::Relaxed));
        if overflow == Overflow::Block && !self.is_companion() {
            let begun = Instant::now();
            let mut pause = Duration::from_micros(10);
            while begun.elapsed() < shared.block_limit && !shared.storage_has_failed() {
                shared.wake_writer();
                sys::pause(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
                if let Some(number) = shared.take_free_page() {
                    shared.count_blocked(begun.elapsed());
                    return Ok(number);
                }
                if self.guard() != GUARD_RECORDING {
                    break;
                }
            }
            shared.count_blocked(begun.elapsed());
        }
        Err(Cause::BufferFull)
    }

    /// Releases the full page and gets an empty one. Returns `false` if the event was counted as
    /// dropped: there is no page, or it is too long for one.
    #[cold]
    #[inline(never)]
    fn open_page(&self, counters: &Counters, tick: u64, need: usize) -> bool {
        let relaxed = Ordering::Relaxed;
        let shared = self.shared();
        let whole_room = shared.memory.division().page_bytes - l::PAGE_HEADER_LEN;
        if need > whole_room {
            self.drop_event(counters, Cause::TooBig);
            return false;
        }
        if !self.release_page() {
            self.drop_event(counters, Cause::BufferFull);
            return false;
        }
        let number = match self.acquire_page() {
            Ok(number) => number,
            Err(cause) => {
                self.drop_event(counters, cause);
                return false;
            }
        };
        let page = shared.memory.page(number);
        let store = |field: usize, value: u64| page.field(field).store(value, relaxed);
        store(l::PAGE_SEQUENCE, self.sequence.load(relaxed));
        store(l::PAGE_BASE_TICK, tick);
        store(l::PAGE_OPEN_REFERENCE, reference_ns() as u64);
        // The event that opens the page is counted as raised already, but belongs into it.
        let raised = shared
            .counters_of(self)
            .map(|(_, counters, _)| counters.raised.load(relaxed))
            .fold(0, u64::saturating_add);
        store(l::PAGE_RAISED, raised.saturating_sub(1));
        store(l::PAGE_RECORDED, self.recorded.load(relaxed));
        store(l::PAGE_DROPPED, self.dropped.load(relaxed));
        shared.pages.set_owner(number, self.slot);
        page.stream()
            .store(self.id.load(relaxed) + 1, Ordering::Release);
        let (start, room) = page.room();
        self.start.store(start, relaxed);
        self.room.store(room, relaxed);
        self.page.store(number.into(), Ordering::Release);
        self.last_observation_ns.store(i64::MIN, relaxed);
        if self.has_unreported.load(relaxed) {
            self.report_drops(tick, need);
        }
        self.last_tick.store(tick, relaxed);
        true
    }

    /// Writes dropped records, as far as they and the next event fit.
    /// The rest waits for the next page (the counts are cumulative).
    fn report_drops(&self, tick: u64, need: usize) {
        let relaxed = Ordering::Relaxed;
        for (event_type, counters, state) in self.shared().counters_of(self) {
            for (code, reported) in state.reported.iter().enumerate() {
                let cause = Cause::RECORDER[code];
                if cause.is_counted_by_writer() {
                    continue;
                }
                let cumulative = counters.dropped[code].load(relaxed);
                let count = cumulative.saturating_sub(reported.load(relaxed));
                if count == 0 {
                    continue;
                }
                let commit = self.commit(self.start.load(relaxed));
                let offset = commit.load(relaxed) as u32 as usize;
                if offset + DROPPED_ROW_ROOM + need > self.room.load(relaxed) {
                    return;
                }
                self.put_dropped(&DroppedRow {
                    event_type,
                    cause,
                    count,
                    cumulative,
                    from_tick: self.last_tick.load(relaxed),
                    to_tick: tick,
                });
                reported.store(cumulative, relaxed);
            }
        }
        self.has_unreported.store(false, relaxed);
    }

    /// Writes a dropped record; the caller knows that the page has [`DROPPED_ROW_ROOM`].
    fn put_dropped(&self, dropped: &DroppedRow) {
        let DroppedRow {
            event_type,
            cause,
            count,
            cumulative,
            from_tick,
            to_tick,
        } = *dropped;
        let start = self.start.load(Ordering::Relaxed);
        let commit = self.commit(start);
        let before = commit.load(Ordering::Relaxed);
        // SAFETY: the page is this stream's, and the row's room was checked.
        let mut cursor = unsafe { Page::cursor(start, before as u32 as usize) };
        cursor.varint(ROW_DROPPED);
        cursor.varint(u64::from(event_type.get()) + 1);
        cursor.byte(cause.code());
        // A source's own counts are best effort (MPI 5.0, section 15.3.8).
        let is_lower_bound = cumulative == u64::MAX || cause == Cause::ReportedBySource;
        cursor.byte(u8::from(is_lower_bound));
        cursor.varint(count);
        cursor.varint(cumulative);
        cursor.varint(from_tick);
        cursor.varint(to_tick);
        let events = before >> 32 << 32;
        commit.store(events | cursor.offset_from(start) as u64, Ordering::Release);
    }

    /// Hands over the current page, if any: to the writer, or to the kept pages when the stream
    /// overwrites. Returns `false` in a signal handler that interrupted a queue operation.
    fn release_page(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        if self.page.load(relaxed) == NO_PAGE {
            return true;
        }
        let Some(_use) = QueueUse::begin() else {
            return false;
        };
        // The writer may take the page in between: this stream was idle for long.
        let events = self.commit(self.start.load(relaxed)).load(relaxed) >> 32;
        let was = self.page.swap(NO_PAGE, Ordering::AcqRel);
        let page = u32::try_from(was).ok();
        let events = if page.is_some() { events } else { was & !TAKEN };
        let recorded = self.recorded.load(relaxed) + events;
        self.recorded.store(recorded, relaxed);
        let shared = self.shared();
        // Before the page is released: from then on a reader that finds neither page nor chunk
        // knows that events are missing.
        let slot = shared.memory.slot(self.slot);
        slot.recorded().store(recorded, Ordering::Release);
        bump(&self.sequence);
        self.leave_page();
        match page {
            Some(number) if self.overwrites() => shared.keep_page(self, number),
            Some(number) => shared.hand_on_page(number),
            None => {}
        }
        true
    }

    /// Returns whether nothing but the writer's next turn keeps it, once it is closed.
    pub(crate) fn can_be_freed(&self) -> bool {
        !self.overwrites() || self.kept_pages.load(Ordering::Relaxed) == 0
    }

    /// Closes the stream, whose thread ends, and hands its page to the writer.
    pub(crate) fn close(&self) {
        self.key.store(0, Ordering::Relaxed);
        if self.guard() == GUARD_OFF {
            return;
        }
        {
            let _mark = BusyMark::set(self.busy(), CLOSING_MARK);
            if self.guard() == GUARD_OFF {
                return;
            }
            self.release_page();
            let close_tick = match &self.source_state().clock {
                TickSource::Unreadable(_) => self.last_tick(),
                clock => clock.read(),
            };
            self.close_tick.store(close_tick, Ordering::Relaxed);
        }
        self.phase.store(phase::CLOSED, Ordering::Release);
        self.shared().note_closing();
    }

    /// Stores the number and the name of a thread for its location, as the system has them.
    pub(crate) fn describe_thread(&self, number: u64, name: [u8; 16]) {
        let slot = self.shared().memory.slot(self.slot);
        slot.system_id().store(number, Ordering::Relaxed);
        for (word, bytes) in slot.name().iter().zip(name.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks of 8 bytes");
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
    }
}

/// The contents of a dropped record.
struct DroppedRow {
    event_type: EventTypeId,
    cause: Cause,
    count: u64,
    /// All events of this type and cause so far.
    cumulative: u64,
    from_tick: u64,
    to_tick: u64,
}

/// A stream's busy mark while its thread is at work on it: the event type's id + 1, or
/// [`CLOSING_MARK`].
struct BusyMark<'a>(&'a AtomicU64);

impl<'a> BusyMark<'a> {
    #[inline]
    fn set(busy: &'a AtomicU64, mark: u64) -> Self {
        busy.store(mark, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Self(busy)
    }
}

impl Drop for BusyMark<'_> {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.0.store(0, Ordering::Release);
    }
}

/// Replaces rows when there is no page: nothing is committed, and there is never any room.
struct NoRows {
    _header: [AtomicU64; l::PAGE_HEADER_LEN / 8],
    rows: [AtomicU64; 1],
}

static NO_ROWS: NoRows = NoRows {
    _header: [const { AtomicU64::new(0) }; l::PAGE_HEADER_LEN / 8],
    rows: [const { AtomicU64::new(0) }],
};

/// Replaces the states of event types without counters: every gate sends events to the slow path.
static SHUT_STATES: [EventState; l::ROWS_PER_SEGMENT] =
    [const { EventState::shut() }; l::ROWS_PER_SEGMENT];

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use annals_format::LiveImage;

    use crate::{EventTypeSpec, Options, Recorder};

    fn live_image(directory: &std::path::Path) -> LiveImage {
        let files = std::fs::read_dir(directory).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        let path = paths.find(|path| path.extension().is_some_and(|e| e == "annals-live"));
        LiveImage::read(&std::fs::read(path.unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_slot_knows_how_much_was_handed_on() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.live_directory = Some(directory.path().to_owned());
        options.page_bytes = Some(4096);
        let recorder = Recorder::start(&options).unwrap();
        let spec = EventTypeSpec::new("point");
        let event_type = recorder.add_event_type::<()>(&spec).unwrap();
        // The second stream gets the slot of the first, and starts at 0.
        for count in [10_000, 1] {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..count).for_each(|_| recorder.point(&event_type));
                    let image = live_image(directory.path());
                    let stream = image.streams.iter().find(|stream| !stream.is_shared);
                    let stream = stream.unwrap();
                    let mut pages = image.pages.iter();
                    let current = pages.rfind(|page| page.stream == stream.stream);
                    let current = u64::from(current.unwrap().event_count);
                    let raised: u64 = stream.counters.iter().map(|row| row.raised).sum();
                    let dropped: u64 = stream.counters.iter().flat_map(|row| row.dropped).sum();
                    assert_eq!(raised, count);
                    assert_eq!(stream.recorded + current + dropped, raised);
                    assert_eq!(stream.recorded != 0, count > 1);
                });
            });
            let start = Instant::now();
            let is_open = || {
                live_image(directory.path())
                    .streams
                    .iter()
                    .any(|s| !s.is_shared)
            };
            while is_open() {
                assert!(
                    start.elapsed() < Duration::from_secs(10),
                    "the stream closes"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        recorder.finish();
    }

    #[test]
    fn two_events_of_one_moment_are_two_events() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = Options::new(directory.path());
        options.live_directory = Some(directory.path().to_owned());
        options.page_bytes = Some(4096);
        let recorder = Recorder::start(&options).unwrap();
        let region = recorder.add_region("call").unwrap();
        let spec = EventTypeSpec::new("message").element("peer");
        let message = recorder.add_event_type::<(u32,)>(&spec).unwrap();
        // Over many pages: where one is full, each event takes the slow path.
        for peer in 0..1_000 {
            recorder.enter_with(region, &message, (peer,));
            recorder.leave_with(region, &message, (peer,));
        }
        let image = live_image(directory.path());
        let stream = image.streams.iter().find(|stream| !stream.is_shared);
        let mut raised: Vec<u64> = stream
            .unwrap()
            .counters
            .iter()
            .map(|row| row.raised)
            .collect();
        raised.retain(|count| *count != 0);
        raised.sort_unstable();
        assert_eq!(raised, [1_000, 1_000, 2_000]);
        // Without its region, the event alone.
        recorder.apply(&"off region call".parse().unwrap()).unwrap();
        recorder.enter_with(region, &message, (0,));
        recorder.leave_with(region, &message, (0,));
        let status = recorder.finish();
        assert_eq!(
            (status.raised, status.dropped, status.misused),
            (4_002, 0, 0)
        );
    }
}
