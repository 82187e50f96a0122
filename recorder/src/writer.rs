//! The writer thread: turns full pages into chunks, keeps the clocks calibrated, ends the
//! recording.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use annals_format::live::layout as l;
use annals_format::names::property;
use annals_format::{
    Cause, ChunkBuilder, Cumulative, EventTypeId, RowScanner, StreamId, StreamTotals,
    put_before_rows,
};

use crate::clock::{TickSource, reference_ns};
use crate::deferral::Deferral;
use crate::definer::Definer;
use crate::memory::{Page, PageCopy};
use crate::options::{Compression, Options};
use crate::rest::Worker;
use crate::shared::Shared;
use crate::snapshot;
use crate::stream::Stream;
use crate::sync::lock;
use crate::sys;
use crate::trigger::signalled_ns;

/// How often the writer looks without being woken: bounds the age of the live file's heartbeat, and
/// how long a full page waits while there are free ones.
const LONGEST_NAP: Duration = Duration::from_nanos(l::LONGEST_HEARTBEAT_NS);
/// The longest nap while a trigger may fire by a signal, which wakes no thread.
const TRIGGER_NAP: Duration = Duration::from_millis(5);

/// Upper limit of times: it can be added to any moment.
const LONGEST: Duration = Duration::from_secs(1 << 31);

/// The writer's data for a stream that is still open.
#[derive(Debug, Default)]
struct Progress {
    recorded: HashMap<EventTypeId, u64>,
    recorded_sum: u64,
    /// Chunks in the recording.
    chunks: u64,
    last_counts: Vec<(EventTypeId, u64)>,
    inversions: u64,
    largest_lateness: u64,
    last_tick: Option<u64>,
    /// The page at the last search for idle streams, its commit word, and when both were first
    /// found so.
    idle: Option<(u32, u64, Instant)>,
}

/// The writer's own state; lives in its thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    settings: Settings,
    progress: HashMap<StreamId, Progress>,
    announced: u64,
    closed: u64,
    builder: ChunkBuilder,
    scanner: RowScanner,
    deferral: Deferral,
    body: Vec<u8>,
    /// The recording has as many bytes as it may.
    is_full: bool,
    syncer: snapshot::Syncer,
}

/// The options that the writer needs.
pub(crate) struct Settings {
    path: PathBuf,
    calibration_period: Duration,
    flush_interval: Duration,
    /// With the time at which each was served last.
    flush_signals: Vec<(i32, i64)>,
    compression: Compression,
    pre_trigger: Option<Duration>,
    post_trigger: Duration,
    max_file_bytes: Option<u64>,
}

impl Settings {
    pub(crate) fn new(options: &Options, path: PathBuf) -> Self {
        Self {
            path,
            calibration_period: options
                .calibration_period
                .clamp(Duration::from_millis(1), LONGEST),
            flush_interval: options.flush_interval.min(LONGEST),
            flush_signals: options
                .flush_signals
                .iter()
                .map(|signal| (*signal, reference_ns()))
                .collect(),
            compression: options.compression,
            pre_trigger: options.pre_trigger.map(|time| time.min(LONGEST)),
            post_trigger: options.post_trigger.min(LONGEST),
            max_file_bytes: options.max_file_bytes,
        }
    }
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, stop: Arc<AtomicBool>, settings: Settings) -> Self {
        let has_size_limit = settings.max_file_bytes.is_some();
        let mut deferral = Deferral::new(settings.compression, has_size_limit);
        deferral.look(&settings.path);
        Self {
            syncer: snapshot::Syncer::new(Arc::clone(&shared)),
            shared,
            stop,
            settings,
            progress: HashMap::new(),
            announced: 0,
            closed: 0,
            builder: ChunkBuilder::new(u64::MAX),
            scanner: RowScanner::default(),
            deferral,
            body: Vec::new(),
            is_full: false,
        }
    }

    /// Works until it is asked to stop, then completes the recording.
    pub(crate) fn run(mut self, worker: &Worker) {
        // Early points bound the error of short recordings; then one a period.
        let mut wait = Duration::from_millis(10).min(self.settings.calibration_period);
        let mut due = Instant::now() + wait;
        let has_triggers = self.shared.triggers.signals().next().is_some();
        let longest = if has_triggers || !self.settings.flush_signals.is_empty() {
            TRIGGER_NAP
        } else {
            LONGEST_NAP
        };
        let mut looked = Instant::now();
        // All writers of a host wake at the same moments: programs whose processes wait for each
        // other, on as many processors, pause once and not one after the other.
        let nap_ns = LONGEST_NAP.as_nanos() as i64;
        let next_turn = || (reference_ns() / nap_ns + 1) * nap_ns;
        let mut turn_ns = next_turn();
        loop {
            let is_last = self.stop.load(Ordering::Acquire);
            let is_turn = reference_ns() >= turn_ns;
            if is_turn {
                turn_ns = next_turn();
            }
            self.round(is_last || is_turn);
            self.serve_trigger(is_last);
            self.serve_flush_signals();
            if is_last {
                break;
            }
            let now = Instant::now();
            if now >= due {
                if !lock(&self.shared.storage).check() {
                    self.note_failure();
                }
                self.deferral.look(&self.settings.path);
                let _ = Definer::lock(&self.shared).calibrate_all();
                wait = (wait * 10).min(self.settings.calibration_period);
                due = now + wait;
            }
            let flush = self.settings.flush_interval;
            if !flush.is_zero() && now >= looked + flush / 2 {
                looked = now;
                self.flush_idle(now);
            }
            let heartbeat = self.shared.memory.word(l::HEARTBEAT);
            heartbeat.store(reference_ns() as u64, Ordering::Relaxed);
            let until_turn = u64::try_from(turn_ns - reference_ns()).unwrap_or(0);
            let nap = longest.min(Duration::from_nanos(until_turn));
            let nap = due.saturating_duration_since(now).min(nap);
            worker.rest(|| std::thread::park_timeout(nap));
        }
        self.complete();
    }

    /// Looks what there is to do; full pages wait for their turn, while there are free ones.
    fn round(&mut self, is_turn: bool) {
        self.shared.memory.populate(self.shared.pages.to_prepare());
        // Closings before pages: a thread hands its last page on before it closes its stream.
        let closed = self.shared.closed();
        let closings: Vec<usize> = if closed == self.closed {
            Vec::new()
        } else {
            self.shared
                .streams
                .closed()
                .map(|stream| stream.slot)
                .collect()
        };
        if is_turn || !closings.is_empty() || self.shared.pages.are_wanted() {
            self.write_full();
        }
        self.evict();
        let is_done = self.close_streams(&closings);
        if is_done {
            self.closed = closed;
        }
    }

    /// Writes all full pages.
    fn write_full(&mut self) {
        if self.shared.pages.has_full() {
            self.announce();
            self.shared.flush_definitions();
        }
        while !self.shared.storage_has_failed() {
            let Some(number) = self.shared.pages.take_full() else {
                break;
            };
            self.seal_or_keep(number);
        }
    }

    /// Writes a page; one that cannot be written waits for the end.
    fn seal_or_keep(&mut self, number: u32) {
        if !self.seal(number) {
            self.shared.pages.push_full(number);
        }
    }

    /// Defines the streams that threads opened.
    fn announce(&mut self) {
        let opened = self.shared.opened();
        if opened != self.announced {
            let outcome = Definer::lock(&self.shared).announce();
            if outcome.is_ok() {
                self.announced = opened;
            }
        }
    }

    fn note_failure(&self) {
        self.shared
            .status
            .has_storage_failed
            .store(true, Ordering::Relaxed);
    }

    /// Drops the oldest pages until there are enough free ones for the threads to continue.
    fn evict(&mut self) {
        let pages = &self.shared.pages;
        while pages.free_count() < pages.reserve() {
            let Some(number) = pages.take_oldest() else {
                return;
            };
            self.give_up(number, Cause::Overwritten);
        }
    }

    fn give_up(&self, number: u32, cause: Cause) {
        self.shared.give_up(number, cause);
        self.shared.pages.free(number);
    }

    /// Takes the partly filled pages of streams that have been idle for the flush interval.
    fn flush_idle(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        for stream in shared.streams.in_use() {
            let Some(number) = stream.current_page() else {
                continue;
            };
            let commit = shared.memory.page(number).commit().load(Ordering::Acquire);
            let progress = self.progress.entry(stream.id()).or_default();
            match progress.idle {
                Some((page, seen, since)) if page == number && seen == commit => {
                    if now.duration_since(since) < self.settings.flush_interval
                        || commit == 0
                        || shared.storage_has_failed()
                    {
                        continue;
                    }
                    progress.idle = None;
                    // Chunks of a stream are written in their order.
                    self.write_full();
                    if stream.take_idle_page(number) {
                        if stream.overwrites() {
                            shared.keep_page(stream, number);
                            continue;
                        }
                        self.announce();
                        shared.flush_definitions();
                        self.seal_or_keep(number);
                    }
                }
                _ => progress.idle = Some((number, commit, now)),
            }
        }
    }

    /// Writes what all streams have, if a signal asked for that; and ends the program, if the
    /// signal would have.
    fn serve_flush_signals(&mut self) {
        if self.shared.is_flush_asked.swap(false, Ordering::AcqRel) {
            self.flush_all();
        }
        let mut asked = None;
        for (signal, served_ns) in &mut self.settings.flush_signals {
            let time_ns = signalled_ns(*signal);
            if time_ns > *served_ns {
                *served_ns = time_ns;
                asked = Some(*signal);
            }
        }
        let Some(signal) = asked else { return };
        self.flush_all();
        if sys::ends_programs(signal) {
            sys::end_by(signal);
        }
    }

    /// Writes the partly filled pages of all streams, but those that overwrite. A producer that is
    /// at work on its page just now hands it on with its next event.
    fn flush_all(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.announce();
        let _ = Definer::lock(&shared).calibrate_all();
        shared.flush_definitions();
        for stream in shared.streams.in_use() {
            let Some(number) = stream.current_page() else {
                continue;
            };
            let commit = shared.memory.page(number).commit().load(Ordering::Acquire);
            if commit == 0 || stream.overwrites() || shared.storage_has_failed() {
                continue;
            }
            self.write_full();
            if stream.take_idle_page(number) {
                self.announce();
                shared.flush_definitions();
                self.seal_or_keep(number);
            }
        }
        self.round(true);
    }

    /// Writes a page's rows as a chunk and frees the page. False when writing fails: the page stays
    /// as it is, and the live file keeps its events.
    fn seal(&mut self, number: u32) -> bool {
        let shared = Arc::clone(&self.shared);
        let page = shared.memory.page(number);
        let rows = page.committed_rows();
        if !rows.is_empty() {
            let written = shared.storage_status.written();
            let most = self.settings.max_file_bytes.unwrap_or(u64::MAX);
            // Full for good: a shorter chunk that still fits would come after a gap.
            self.is_full |= written.saturating_add(rows.len() as u64) > most;
            if self.is_full {
                self.give_up(number, Cause::SizeLimit);
                return true;
            }
            if !self.write_chunk(number, &page, rows) {
                self.note_failure();
                return false;
            }
        }
        shared.free_kept(number, page);
        shared.pages.free(number);
        true
    }

    fn write_chunk(&mut self, number: u32, page: &Page<'_>, rows: &[u8]) -> bool {
        let shared = Arc::clone(&self.shared);
        let owner = shared.owner(number);
        let (stream, overwrites) = (owner.id(), owner.overwrites());
        let field = |offset: usize| page.field(offset).load(Ordering::Relaxed);
        let given_up = if overwrites {
            self.totals(owner, 0, 0)
        } else {
            StreamTotals::new(stream)
        };
        let base_tick = field(l::PAGE_BASE_TICK);
        let schema = shared.schema();
        let may_be_rows =
            !overwrites && owner.max_ticks() == u64::MAX && self.deferral.stores_rows();
        let as_rows = match may_be_rows {
            true => self.scanner.scan(&schema, stream, base_tick, rows),
            false => None,
        };
        let is_rows = as_rows.is_some();
        let builder = &mut self.builder;
        let mut header = as_rows.unwrap_or_else(|| {
            builder.restart(owner.max_ticks());
            let outcome = builder.push_rows(&schema, base_tick, rows);
            debug_assert!(
                outcome.is_ok(),
                "rows are written by this crate: {outcome:?}"
            );
            builder.complete(stream)
        });
        let progress = self.progress.entry(stream).or_default();
        header.sequence = field(l::PAGE_SEQUENCE);
        header.open_reference_ns = field(l::PAGE_OPEN_REFERENCE) as i64;
        header.close_reference_ns = reference_ns();
        header.before = Cumulative {
            raised: field(l::PAGE_RAISED),
            recorded: field(l::PAGE_RECORDED),
            dropped: field(l::PAGE_DROPPED),
        };
        if overwrites {
            // Chunks are numbered as they are written to the recording; what was given up before is
            // not missing from it. The page stores the number as well: it is the chunk's until the
            // page is freed.
            header.sequence = progress.chunks;
            let sequence = page.field(l::PAGE_SEQUENCE);
            sequence.store(progress.chunks, Ordering::Release);
            header.before.recorded = progress.recorded_sum;
            let sum = given_up.rows.iter().map(|row| {
                let counts = row.dropped.iter();
                let own = counts.filter(|(cause, _)| cause.is_counted_by_writer());
                own.map(|(_, count)| count).sum::<u64>()
            });
            if progress.chunks != 0 {
                header.before.dropped += sum.sum::<u64>();
            } else {
                let records = snapshot::overwritten_records(owner, &given_up, header.first_tick);
                let count: u64 = records.iter().map(|record| record.count).sum();
                header.dropped_count = header.dropped_count.saturating_add(count);
                let records = records.into_iter().map(|record| (0, record));
                builder.dropped().splice(0..0, records);
            }
        }
        let progress = self.progress.entry(stream).or_default();
        header.predecessor_counts = progress.last_counts.clone();
        let counts = header.counts.clone();
        let (inversions, lateness) = (header.inversions, header.largest_lateness);
        let (event_count, last_tick) = (header.event_count, header.last_tick);
        self.body.clear();
        let is_written = if is_rows {
            put_before_rows(&header, &schema, base_tick, &mut self.body);
            self.deferral.watch(rows.len(), || {
                lock(&shared.storage).append_row_chunk(&header, &self.body, rows)
            })
        } else {
            builder.encode(&mut self.body);
            let content = builder.content();
            lock(&shared.storage).append_chunk(&header, &self.body, content)
        };
        if !is_written {
            return false;
        }
        for (event_type, count) in &counts {
            *progress.recorded.entry(*event_type).or_default() += count;
        }
        progress.chunks += 1;
        progress.recorded_sum += event_count;
        progress.last_counts = counts;
        progress.inversions += inversions;
        progress.largest_lateness = progress.largest_lateness.max(lateness);
        if event_count != 0 {
            progress.last_tick = Some(last_tick);
        }
        true
    }

    /// Completes streams whose threads have ended; false when some must wait.
    fn close_streams(&mut self, slots: &[usize]) -> bool {
        let shared = Arc::clone(&self.shared);
        let has_pages = |slot: usize| {
            let stream = shared.streams.cell(slot);
            stream.overwrites() && stream.kept_pages.load(Ordering::Relaxed) != 0
        };
        let (ready, waiting): (Vec<usize>, Vec<usize>) =
            slots.iter().partition(|slot| !has_pages(**slot));
        if ready.is_empty() {
            return waiting.is_empty();
        }
        self.announce();
        let streams: Vec<&Stream> = ready
            .iter()
            .map(|slot| shared.streams.cell(*slot))
            .collect();
        let totals: Vec<StreamTotals> = streams
            .iter()
            .map(|stream| self.totals(stream, stream.last_tick(), stream.close_tick()))
            .collect();
        shared.flush_definitions();
        let is_written =
            !shared.storage_has_failed() && lock(&shared.storage).append_totals(&totals);
        if !is_written {
            // Cells and counters stay: only the live file has the totals of these streams.
            self.note_failure();
            return true;
        }
        // A thread that applies rules to streams holds this lock: the segments that it finds in a
        // stream stay the stream's.
        let registry = lock(&shared.registry);
        shared.count_closed(&totals);
        for stream in streams {
            self.progress.remove(&stream.id());
            shared.streams.take_back(&shared.memory, stream);
        }
        drop(registry);
        waiting.is_empty()
    }

    fn totals(&self, stream: &Stream, last_tick: u64, close_tick: u64) -> StreamTotals {
        let mut totals = StreamTotals::new(stream.id());
        totals.last_tick = last_tick;
        totals.close_tick = close_tick;
        let none = Progress::default();
        let progress = self.progress.get(&stream.id()).unwrap_or(&none);
        totals.inversions = progress.inversions;
        totals.largest_lateness = progress.largest_lateness;
        let slot = self.shared.memory.slot(stream.slot);
        let busy = slot.busy().load(Ordering::Acquire);
        for (event_type, counters, _) in self.shared.counters_of(stream) {
            let raised = counters.raised.load(Ordering::Relaxed);
            let recorded = progress.recorded.get(&event_type).copied().unwrap_or(0);
            if raised == 0 && recorded == 0 {
                continue;
            }
            let row = totals.row(event_type);
            row.raised = raised;
            row.recorded = recorded;
            row.suppressed = counters.suppressed.load(Ordering::Relaxed);
            for (cause, counter) in Cause::RECORDER.into_iter().zip(&counters.dropped) {
                row.dropped.set(cause, counter.load(Ordering::Relaxed));
            }
            // A thread was stopped in the middle of a raise: that event is after the cut.
            let explained = recorded
                .saturating_add(row.dropped_sum())
                .saturating_add(row.suppressed);
            let is_ahead = explained.checked_add(1) == Some(row.raised);
            if busy == u64::from(event_type.get()) + 1 && is_ahead {
                row.raised = explained;
            }
        }
        totals
    }

    /// Copies of the pages of every stream that overwrites, oldest first, by slot. Threads that
    /// find no free page meanwhile may overwrite newer ones than they should: so this copies, and
    /// no more.
    fn copy_pages(&self) -> HashMap<usize, Vec<PageCopy>> {
        let shared = &self.shared;
        let mut current = Vec::new();
        for stream in shared.streams.in_use().filter(|stream| stream.overwrites()) {
            // A thread that is between two pages has given up one and not shown the next.
            let attempts = (0..1000).map(|_| {
                std::thread::yield_now();
                stream.current_page()
            });
            let first = stream.current_page();
            let page = first.or_else(|| attempts.take_while(|_| stream.is_busy()).flatten().next());
            current.extend(page.map(|page| (stream.slot, page)));
        }
        // Earlier pages of the stream were handed on before its current page became visible.
        let full = shared.pages.take_all_kept();
        let mut pages: HashMap<usize, Vec<PageCopy>> = HashMap::new();
        for number in &full {
            let slot = shared.owner(*number).slot;
            let copy = shared.memory.page(*number).copy();
            pages.entry(slot).or_default().extend(copy);
        }
        shared.pages.put_back(&full);
        for (slot, number) in current {
            let copy = shared.memory.page(number).copy();
            let id = shared.streams.cell(slot).id();
            let of_slot = pages.entry(slot).or_default();
            let is_new = |copy: &PageCopy| {
                let is_known = of_slot.iter().any(|known| known.sequence == copy.sequence);
                copy.stream == id && !is_known
            };
            let copy = copy.filter(is_new);
            of_slot.extend(copy);
        }
        for of_slot in pages.values_mut() {
            of_slot.sort_by_key(|page| page.sequence);
        }
        pages
    }

    /// Writes a snapshot when a trigger fired and its time after the trigger is over.
    fn serve_trigger(&mut self, is_last: bool) {
        let Some(trigger_ns) = self.shared.triggers.pending() else {
            return;
        };
        let post_ns = self.settings.post_trigger.as_nanos() as i64;
        if !is_last && reference_ns() < trigger_ns.saturating_add(post_ns) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        shared.snapshots_begun.fetch_add(1, Ordering::SeqCst);
        let trigger = shared.triggers.serve();
        let pre_ns = self.settings.pre_trigger.map(|time| time.as_nanos() as i64);
        let number = shared.snapshots_begun.load(Ordering::Relaxed);
        let request = snapshot::Request {
            number,
            trigger: &trigger,
            trigger_ns,
            from_ns: pre_ns.map_or(i64::MIN, |pre| trigger_ns.saturating_sub(pre)),
        };
        let path = snapshot::path(&self.settings.path, number);
        let pages = self.copy_pages();
        let level = self.settings.compression.level();
        let outcome = snapshot::write(&shared, &path, level, &request, &pages);
        self.syncer.hand_over(outcome);
    }

    /// Runs the last round: pages of streams that are still open, totals, footer.
    fn complete(mut self) {
        let shared = Arc::clone(&self.shared);
        self.announce();
        shared.flush_definitions();
        let mut waiting = shared.pages.take_all_kept();
        for stream in shared.streams.in_use() {
            if let Some(number) = stream.take_page() {
                if stream.overwrites() {
                    stream.kept_pages.fetch_add(1, Ordering::Relaxed);
                }
                waiting.push(number);
            }
        }
        let mut is_sealed = |number: &u32| {
            // A page that could not be written keeps its stream.
            !shared.storage_has_failed() && self.seal(*number)
        };
        let sealed = waiting
            .iter()
            .take_while(|number| is_sealed(number))
            .count();
        let mut totals = Vec::new();
        for stream in shared.streams.in_use() {
            let clock = shared.source(stream.source()).map(|source| &source.clock);
            let progress = self.progress.get(&stream.id());
            let last_tick = progress.and_then(|progress| progress.last_tick);
            let last_tick = last_tick.unwrap_or(stream.open_tick());
            let close_tick = clock.and_then(TickSource::read_safely).unwrap_or(last_tick);
            totals.push(self.totals(stream, last_tick, close_tick));
        }
        totals.sort_by_key(|totals| totals.stream);
        let definitions = {
            let mut definer = Definer::lock(&self.shared);
            let _ = definer.calibrate_all();
            let children = shared.memory.word(l::CHILDREN).load(Ordering::Relaxed);
            if children != 0 {
                let _ = definer.property(property::UNRECORDED_CHILDREN, &children.to_string());
            }
            definer.close();
            definer.definitions().clone()
        };
        let mut storage = lock(&self.shared.storage);
        let is_complete =
            !self.shared.storage_has_failed() && storage.finish(&definitions, &totals);
        drop(storage);
        if is_complete {
            if let Some(path) = self.shared.memory.path() {
                let _ = std::fs::remove_file(path);
            }
            // Readers that have the live file open read the recording after it, and find its
            // footer.
            self.shared.memory.release();
        } else {
            self.note_failure();
            if self.shared.memory.path().is_none() {
                // No live file keeps these: they go with the process.
                for number in &waiting[sealed..] {
                    self.give_up(*number, Cause::Storage);
                }
                while let Some(number) = self.shared.pages.take_full() {
                    self.give_up(number, Cause::Storage);
                }
            }
            let now = reference_ns() as u64;
            let memory = &self.shared.memory;
            memory.word(l::HEARTBEAT).store(now, Ordering::Relaxed);
            let state = memory.word(l::STATE);
            state.store(l::STATE_STORAGE_FAILED, Ordering::Release);
        }
        self.syncer.finish();
    }
}
