//! The writer thread: turns full pages into chunks, keeps the clocks calibrated, ends the recording.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals_format::live::layout as l;
use annals_format::{ChunkBuilder, Cumulative, EventTypeId, StreamId, StreamTotals};

use crate::clock::{TickSource, reference_ns};
use crate::memory::Page;
use crate::shared::{Closing, Shared, lock};
use crate::stream::{NO_PAGE, StreamShared};

/// How often the writer looks without being woken: bounds the age of the live file's heartbeat.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// What the writer knows of a stream that is still open.
#[derive(Debug, Default)]
struct Progress {
    recorded: HashMap<EventTypeId, u64>,
    last_counts: Vec<(EventTypeId, u64)>,
    inversions: u64,
    largest_lateness: u64,
    last_tick: Option<u64>,
}

/// The writer's own state; lives in its thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    calibration_period: Duration,
    progress: HashMap<StreamId, Progress>,
    /// Totals of the streams that were closed: the footer has them all.
    closed: Vec<StreamTotals>,
    body: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stop: Arc<AtomicBool>,
        calibration_period: Duration,
    ) -> Self {
        Self {
            shared,
            stop,
            calibration_period: calibration_period.max(Duration::from_millis(1)),
            progress: HashMap::new(),
            closed: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Works until it is told to stop, then completes the recording.
    pub(crate) fn run(mut self) {
        // Early points bound the error of short recordings; then one a period.
        let mut wait = Duration::from_millis(10).min(self.calibration_period);
        let mut due = Instant::now() + wait;
        loop {
            let is_last = self.stop.load(Ordering::Acquire);
            self.round();
            if is_last {
                break;
            }
            let now = Instant::now();
            if now >= due {
                let _ = lock(&self.shared.registry).calibrate_all(&self.shared);
                wait = (wait * 10).min(self.calibration_period);
                due = now + wait;
            }
            let heartbeat = self.shared.memory.word(l::HEARTBEAT);
            heartbeat.store(reference_ns() as u64, Ordering::Relaxed);
            std::thread::park_timeout(due.saturating_duration_since(now).min(LONGEST_NAP));
        }
        self.complete();
    }

    fn round(&mut self) {
        // Closings before pages: a thread hands its last page on before it closes its stream.
        let closings = std::mem::take(&mut *lock(&self.shared.closing));
        if !self.shared.full_pages.is_empty() {
            self.shared.flush_definitions();
        }
        while !self.shared.storage_has_failed() {
            let Some(number) = self.shared.full_pages.pop() else {
                break;
            };
            self.seal(number);
        }
        self.close_streams(closings);
    }

    fn note_failure(&self) {
        self.shared
            .status
            .has_storage_failed
            .store(true, Ordering::Relaxed);
    }

    /// Writes a page's rows as a chunk and frees the page. When writing fails the page stays as it
    /// is: the live file keeps its events.
    fn seal(&mut self, number: u32) {
        let shared = Arc::clone(&self.shared);
        let page = shared.memory.page(number);
        let rows = page.committed_rows();
        if !rows.is_empty() && !self.write_chunk(&page, rows) {
            self.note_failure();
            return;
        }
        page.reset();
        let _ = self.shared.free_pages.push(number);
    }

    fn write_chunk(&mut self, page: &Page<'_>, rows: &[u8]) -> bool {
        let field = |offset: usize| page.field(offset).load(Ordering::Relaxed);
        let stream = StreamId::new(page.stream().load(Ordering::Acquire).wrapping_sub(1));
        let max_ticks = {
            let registry = lock(&self.shared.registry);
            let open = registry.open.iter().find(|open| open.id == stream);
            open.map_or(u64::MAX, |open| open.max_ticks)
        };
        let mut builder = ChunkBuilder::new(max_ticks);
        let outcome = builder.push_rows(&self.shared.schema(), field(l::PAGE_BASE_TICK), rows);
        debug_assert!(
            outcome.is_ok(),
            "rows are written by this crate: {outcome:?}"
        );
        let (mut header, chunk) = builder.finish(stream);
        header.sequence = field(l::PAGE_SEQUENCE);
        header.open_reference_ns = field(l::PAGE_OPEN_REFERENCE) as i64;
        header.close_reference_ns = reference_ns();
        header.before = Cumulative {
            raised: field(l::PAGE_RAISED),
            recorded: field(l::PAGE_RECORDED),
            dropped: field(l::PAGE_DROPPED),
        };
        let progress = self.progress.entry(stream).or_default();
        header.predecessor_counts = progress.last_counts.clone();
        let counts = header.counts.clone();
        let (inversions, lateness) = (header.inversions, header.largest_lateness);
        let last_tick = (header.event_count != 0).then_some(header.last_tick);
        self.body.clear();
        chunk.encode(&mut self.body);
        if !lock(&self.shared.storage).append_chunk(header, &self.body) {
            return false;
        }
        for (event_type, count) in &counts {
            *progress.recorded.entry(*event_type).or_default() += count;
        }
        progress.last_counts = counts;
        progress.inversions += inversions;
        progress.largest_lateness = progress.largest_lateness.max(lateness);
        progress.last_tick = last_tick.or(progress.last_tick);
        true
    }

    fn close_streams(&mut self, closings: Vec<Closing>) {
        if closings.is_empty() {
            return;
        }
        let totals: Vec<StreamTotals> = closings
            .iter()
            .map(|closing| self.totals(&closing.stream, closing.last_tick, closing.close_tick))
            .collect();
        self.shared.flush_definitions();
        let is_written =
            !self.shared.storage_has_failed() && lock(&self.shared.storage).append_totals(&totals);
        if !is_written {
            // Slots and counters stay: the live file is all that tells of these streams.
            self.note_failure();
            return;
        }
        let mut registry = lock(&self.shared.registry);
        for closing in &closings {
            registry.take_back(&self.shared, &closing.stream);
            self.progress.remove(&closing.stream.id);
        }
        drop(registry);
        self.closed.extend(totals);
    }

    fn totals(&self, stream: &StreamShared, last_tick: u64, close_tick: u64) -> StreamTotals {
        let mut totals = StreamTotals::new(stream.id);
        totals.last_tick = last_tick;
        totals.close_tick = close_tick;
        let none = Progress::default();
        let progress = self.progress.get(&stream.id).unwrap_or(&none);
        totals.inversions = progress.inversions;
        totals.largest_lateness = progress.largest_lateness;
        let slot = self.shared.memory.slot(stream.slot);
        let busy = slot.busy().load(Ordering::Acquire);
        for (event_type, counters) in stream.rows() {
            let raised = counters.raised.load(Ordering::Relaxed);
            let recorded = progress.recorded.get(&event_type).copied().unwrap_or(0);
            if raised == 0 && recorded == 0 {
                continue;
            }
            let row = totals.row(event_type);
            row.raised = raised;
            row.recorded = recorded;
            row.suppressed = counters.suppressed.load(Ordering::Relaxed);
            for (dropped, counter) in row.dropped.iter_mut().zip(&counters.dropped) {
                *dropped = counter.load(Ordering::Relaxed);
            }
            // A thread that was stopped in the middle of a raise: that one comes after the cut.
            let explained = row.recorded + row.dropped_sum() + row.suppressed;
            if busy == u64::from(event_type.get()) + 1 && row.raised == explained + 1 {
                row.raised = explained;
            }
        }
        totals
    }

    /// The last round: pages of streams that are still open, totals, footer.
    fn complete(mut self) {
        let open = lock(&self.shared.registry).open.clone();
        self.shared.flush_definitions();
        for stream in &open {
            let number = stream.page.swap(NO_PAGE, Ordering::AcqRel);
            if number != NO_PAGE && !self.shared.storage_has_failed() {
                self.seal(number);
            }
        }
        let mut totals = std::mem::take(&mut self.closed);
        for stream in &open {
            let clock = self.clock_of(stream);
            let close_tick = clock.read();
            let progress = self.progress.get(&stream.id);
            let last_tick = progress.and_then(|progress| progress.last_tick);
            let last_tick = last_tick.unwrap_or(stream.open_tick);
            let is_readable = !matches!(clock, TickSource::Unreadable);
            let close_tick = if is_readable { close_tick } else { last_tick };
            totals.push(self.totals(stream, last_tick, close_tick));
        }
        totals.sort_by_key(|totals| totals.stream);
        let definitions = {
            let mut registry = lock(&self.shared.registry);
            let _ = registry.calibrate_all(&self.shared);
            registry.close();
            registry.definitions.clone()
        };
        let mut storage = lock(&self.shared.storage);
        let is_complete = !self.shared.storage_has_failed() && storage.finish(definitions, totals);
        drop(storage);
        if is_complete {
            if let Some(path) = self.shared.memory.path() {
                let _ = std::fs::remove_file(path);
            }
        } else {
            self.note_failure();
            let now = reference_ns() as u64;
            let memory = &self.shared.memory;
            memory.word(l::HEARTBEAT).store(now, Ordering::Relaxed);
            let state = memory.word(l::STATE);
            state.store(l::STATE_STORAGE_FAILED, Ordering::Release);
        }
    }

    fn clock_of(&self, stream: &StreamShared) -> TickSource {
        let registry = lock(&self.shared.registry);
        let source = registry.definitions.sources.get(&stream.source);
        let clock = source.and_then(|source| registry.clocks.get(source.clock.index()));
        clock.cloned().unwrap_or(TickSource::Unreadable)
    }
}
