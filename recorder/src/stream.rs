//! The event path: one producer, one stream, no lock, no allocation, no system call but one wake-up
//! per page.
//!
//! Order matters here, because a kill can come between any two instructions:
//! 1. the fork guard is read before shared memory is touched (a forked child must not);
//! 2. the busy mark stands before the raise is counted, so that a reader knows which count may be one
//!    ahead of the events;
//! 3. the row's bytes stand before the commit word, which is one release store.
#![expect(
    unsafe_code,
    reason = "rows and counters are reached through raw pointers; benches/event_path shows the gain"
)]

use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use annals_format::live::layout as l;
use annals_format::{Cause, EventTypeId, ROW_DROPPED, ROW_OBSERVATION, SourceId, StreamId};

use crate::clock::{TickSource, reference_ns};
use crate::memory::{CounterRow, Page, SegmentRows, bump};
use crate::row::{RowCursor, VARINT_ROOM};
use crate::shared::Shared;

/// Stands for "no page".
pub(crate) const NO_PAGE: u32 = u32::MAX;

/// Room for what precedes an event's elements: an observation, the event type, the tick, and the
/// bytes that a store touches beyond its value.
const ROW_OVERHEAD: usize = 6 * VARINT_ROOM;

/// Most bytes of a dropped record's row.
const DROPPED_ROW_ROOM: usize = 8 * VARINT_ROOM;

/// What other threads may know of an open stream.
#[derive(Debug)]
pub(crate) struct StreamShared {
    pub(crate) id: StreamId,
    pub(crate) source: SourceId,
    pub(crate) slot: usize,
    pub(crate) max_ticks: u64,
    pub(crate) open_tick: u64,
    /// The page that the producer writes to.
    pub(crate) page: AtomicU32,
    /// Counters, 32 event types each; null: none of them is defined yet.
    pub(crate) segments: [AtomicPtr<SegmentRows>; l::SEGMENTS_PER_SLOT],
}

impl StreamShared {
    /// The counters of an event type.
    #[inline]
    pub(crate) fn row(&self, event_type: EventTypeId) -> Option<&CounterRow> {
        let segment = self
            .segments
            .get(event_type.index() / l::ROWS_PER_SEGMENT)?;
        let rows = segment.load(Ordering::Acquire);
        if rows.is_null() {
            return None;
        }
        // SAFETY: a segment pointer stays valid while the recorder's shared part lives, which the
        // stream's owner keeps alive.
        let rows = unsafe { &*rows };
        Some(&rows[event_type.index() % l::ROWS_PER_SEGMENT])
    }

    /// All counters, with their event types.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (EventTypeId, &CounterRow)> {
        let limit = (l::SEGMENTS_PER_SLOT * l::ROWS_PER_SEGMENT) as u32;
        (0..limit).map_while(|number| {
            let event_type = EventTypeId::new(number);
            Some((event_type, self.row(event_type)?))
        })
    }
}

/// The producer's side of a stream. Belongs to one thread.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Arc<StreamShared>,
    clock: TickSource,
    /// The recorder's permission: [`crate::sys::ForkGuard`].
    guard: *const AtomicU32,
    busy: *const AtomicU64,
    /// Start of the current page's rows; null: no page.
    start: Cell<*mut u8>,
    offset: Cell<usize>,
    room: Cell<usize>,
    commit: Cell<*const AtomicU64>,
    events: Cell<u64>,
    last_tick: Cell<u64>,
    sequence: Cell<u64>,
    recorded: Cell<u64>,
    dropped: Cell<u64>,
    has_unreported: Cell<bool>,
    /// Reference time between observations, nanoseconds; none: the clock needs none.
    observation_interval_ns: Option<i64>,
    last_observation_ns: Cell<i64>,
}

impl StreamState {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stream: Arc<StreamShared>,
        clock: TickSource,
        observation_interval_ns: Option<i64>,
    ) -> Self {
        let busy: *const AtomicU64 = shared.memory.slot(stream.slot).busy();
        let guard: *const AtomicU32 = shared.guard.word();
        Self {
            last_tick: Cell::new(stream.open_tick),
            shared,
            stream,
            clock,
            guard,
            busy,
            start: Cell::new(null_mut()),
            offset: Cell::new(0),
            room: Cell::new(0),
            commit: Cell::new(null()),
            events: Cell::new(0),
            sequence: Cell::new(0),
            recorded: Cell::new(0),
            dropped: Cell::new(0),
            has_unreported: Cell::new(false),
            observation_interval_ns,
            last_observation_ns: Cell::new(i64::MIN),
        }
    }

    #[inline]
    fn busy(&self) -> &AtomicU64 {
        // SAFETY: points into the live memory, which `shared` keeps mapped.
        unsafe { &*self.busy }
    }

    #[inline]
    fn is_on(&self) -> bool {
        // SAFETY: points into the guard's page, which `shared` keeps mapped.
        let guard = unsafe { &*self.guard };
        guard.load(Ordering::Relaxed) != 0
    }

    /// Raises an event: records it, or counts it as dropped. `bound` is the most bytes that `put`
    /// writes.
    #[inline]
    pub(crate) fn raise(
        &self,
        event_type: EventTypeId,
        tick: Option<u64>,
        bound: usize,
        put: impl FnOnce(&mut RowCursor),
    ) {
        if !self.is_on() {
            self.shared.count_after_cut();
            return;
        }
        let busy = self.busy();
        if busy.load(Ordering::Relaxed) != 0 {
            // A signal handler interrupted this thread's own raise.
            self.shared
                .count_without_stream(self.stream.source, event_type);
            return;
        }
        busy.store(u64::from(event_type.get()) + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // Once more: whoever finishes the recording switches the guard off, passes a barrier through
        // this thread, and then waits for the busy mark to go.
        if self.is_on() {
            match self.stream.row(event_type) {
                Some(row) => self.raise_counted(event_type, row, tick, bound, put),
                None => self.shared.count_unknown_type(),
            }
        } else {
            self.shared.count_after_cut();
        }
        compiler_fence(Ordering::SeqCst);
        busy.store(0, Ordering::Release);
    }

    #[inline]
    fn raise_counted(
        &self,
        event_type: EventTypeId,
        row: &CounterRow,
        tick: Option<u64>,
        bound: usize,
        put: impl FnOnce(&mut RowCursor),
    ) {
        let tick = match tick {
            Some(tick) => tick,
            None => self.clock.read(),
        };
        bump(&row.raised);
        let need = bound.saturating_add(ROW_OVERHEAD);
        if self.offset.get().saturating_add(need) > self.room.get()
            && !self.open_page(row, tick, need)
        {
            return;
        }
        // SAFETY: the page is this stream's until it is handed on, and `need` bytes are free.
        let mut cursor = unsafe { Page::cursor(self.start.get(), self.offset.get()) };
        if self.observation_interval_ns.is_some() {
            cursor = self.observe(cursor);
        }
        cursor.event_start(event_type, self.last_tick.get(), tick);
        put(&mut cursor);
        let offset = cursor.offset_from(self.start.get());
        let events = self.events.get() + 1;
        // SAFETY: points into the page's header, which lives as long as `shared`.
        let commit = unsafe { &*self.commit.get() };
        commit.store(events << 32 | offset as u64, Ordering::Release);
        self.offset.set(offset);
        self.events.set(events);
        self.last_tick.set(tick);
    }

    /// Writes down the reference clock when it has moved on enough: what the events of a clock that
    /// wraps soon, or cannot be read, are placed by.
    #[cold]
    #[inline(never)]
    fn observe(&self, mut cursor: RowCursor) -> RowCursor {
        let now = reference_ns();
        let interval = self.observation_interval_ns.unwrap_or(i64::MAX);
        if now.saturating_sub(self.last_observation_ns.get()) >= interval {
            cursor.varint(ROW_OBSERVATION);
            cursor.signed(now);
            self.last_observation_ns.set(now);
        }
        cursor
    }

    #[cold]
    fn drop_event(&self, row: &CounterRow, cause: Cause) {
        bump(&row.dropped[cause.code() as usize]);
        self.dropped.set(self.dropped.get() + 1);
        self.has_unreported.set(true);
    }

    /// Hands the full page on and takes a free one; false when the event was counted as dropped.
    #[cold]
    #[inline(never)]
    fn open_page(&self, row: &CounterRow, tick: u64, need: usize) -> bool {
        let whole_room = self.shared.memory.division().page_bytes - l::PAGE_HEADER_LEN;
        if need > whole_room {
            self.drop_event(row, Cause::TooBig);
            return false;
        }
        self.hand_on_page();
        let Some(number) = self.shared.free_pages.pop() else {
            let cause = if self.shared.storage_has_failed() {
                Cause::Storage
            } else {
                Cause::BufferFull
            };
            self.drop_event(row, cause);
            return false;
        };
        let page = self.shared.memory.page(number);
        let store = |field: usize, value: u64| page.field(field).store(value, Ordering::Relaxed);
        store(l::PAGE_SEQUENCE, self.sequence.get());
        store(l::PAGE_BASE_TICK, tick);
        store(l::PAGE_OPEN_REFERENCE, reference_ns() as u64);
        // The event that opens the page is counted as raised already, but belongs into it.
        let raised: u64 = self
            .stream
            .rows()
            .map(|(_, row)| row.raised.load(Ordering::Relaxed))
            .fold(0, u64::saturating_add);
        store(l::PAGE_RAISED, raised.saturating_sub(1));
        store(l::PAGE_RECORDED, self.recorded.get());
        store(l::PAGE_DROPPED, self.dropped.get());
        page.stream()
            .store(self.stream.id.get() + 1, Ordering::Release);
        self.stream.page.store(number, Ordering::Release);
        let (start, room) = page.room();
        self.start.set(start);
        self.room.set(room);
        self.offset.set(0);
        self.commit.set(page.commit());
        self.events.set(0);
        self.last_observation_ns.set(i64::MIN);
        if self.has_unreported.get() {
            self.report_drops(tick, need);
        }
        self.last_tick.set(tick);
        true
    }

    /// Writes dropped records, as far as they and the event that comes fit; the rest waits for the
    /// next page (its counts are cumulative).
    fn report_drops(&self, tick: u64, need: usize) {
        for (event_type, row) in self.stream.rows() {
            for (code, reported) in row.reported.iter().enumerate() {
                let cumulative = row.dropped[code].load(Ordering::Relaxed);
                let count = cumulative.saturating_sub(reported.load(Ordering::Relaxed));
                if count == 0 {
                    continue;
                }
                if self.offset.get() + DROPPED_ROW_ROOM + need > self.room.get() {
                    return;
                }
                // SAFETY: the page is this stream's, and the row's room was checked.
                let mut cursor = unsafe { Page::cursor(self.start.get(), self.offset.get()) };
                cursor.varint(ROW_DROPPED);
                cursor.varint(u64::from(event_type.get()) + 1);
                cursor.byte(code as u8);
                cursor.byte(u8::from(cumulative == u64::MAX));
                cursor.varint(count);
                cursor.varint(cumulative);
                cursor.varint(self.last_tick.get());
                cursor.varint(tick);
                let offset = cursor.offset_from(self.start.get());
                self.offset.set(offset);
                // SAFETY: points into the page's header, which lives as long as `shared`.
                let commit = unsafe { &*self.commit.get() };
                commit.store(offset as u64, Ordering::Release);
                reported.store(cumulative, Ordering::Relaxed);
            }
        }
        self.has_unreported.set(false);
    }

    fn hand_on_page(&self) {
        let number = self.stream.page.load(Ordering::Relaxed);
        if number == NO_PAGE {
            return;
        }
        self.recorded.set(self.recorded.get() + self.events.get());
        // Before the page is handed on: from then on a reader that finds neither page nor chunk knows
        // that events are missing.
        let slot = self.shared.memory.slot(self.stream.slot);
        slot.recorded()
            .store(self.recorded.get(), Ordering::Release);
        self.sequence.set(self.sequence.get() + 1);
        self.stream.page.store(NO_PAGE, Ordering::Relaxed);
        self.start.set(null_mut());
        self.room.set(0);
        self.offset.set(0);
        self.shared.hand_on_page(number);
    }

    /// The thread ends: what it holds goes to the writer.
    pub(crate) fn close(&self) {
        if !self.is_on() {
            return;
        }
        let busy = self.busy();
        busy.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.is_on() {
            self.hand_on_page();
            let close_tick = match self.clock {
                TickSource::Unreadable => self.last_tick.get(),
                _ => self.clock.read(),
            };
            self.shared
                .close_stream(&self.stream, self.last_tick.get(), close_tick);
        }
        busy.store(0, Ordering::Release);
    }
}

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
}
