//! The recorder that programs use: raising events, and what it does on request.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use annals_format::{BootId, EventTypeId, RegionId, SourceId, Value};

use crate::builtin::{ENTER, LEAVE, THREADS};
use crate::clock::{self, TickSource};
use crate::definer::Definer;
use crate::elements::{ElementKind, Elements, Typed};
use crate::error::{RecorderError, Result};
use crate::event_type::{DynamicEventType, EventType, Metric};
use crate::options::Options;
use crate::raiser::Raiser;
use crate::row::PutRow;
use crate::rules::Rules;
use crate::session::Session;
use crate::shared::Shared;
use crate::status::Status;
use crate::storage::{OwnFile, Sink};
use crate::sync::lock;
use crate::sys;
use crate::thread_streams;

mod definitions;

/// Records the events of this process into one file.
/// Cheap to clone. The recording is finished when the last clone is dropped, at
/// [`Recorder::finish`], or when the process exits.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The shared part once more, for the event path.
    shared: Arc<Shared>,
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    session: Arc<Session>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.finish();
    }
}

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// If the directory or the recording cannot be created, or the system cannot give memory that a
    /// forked child does not share (before Linux 4.14). A live file that cannot be created is no
    /// error: [`Status::not_kill_safe`] reports it.
    pub fn start(options: &Options) -> Result<Self> {
        Self::start_with(options, |file| Ok(Box::new(OwnFile::new(file)?)))
    }

    /// Starts a recording of this process, which is a forked child of the recorder's process: see [`Self::is_inherited`].
    ///
    /// The child is no rank, also if its parent is one. The parent counts it as a child that nothing records until
    /// [`Self::forget_child`]. Where the parent had other threads, call this only in a child made by `fork`: of other children, the C library's locks may be held
    /// by threads that do not exist in them.
    ///
    /// # Errors
    /// If this is no forked child, or the recording cannot be started: see [`Self::start`].
    pub fn start_in_child(&self, options: &Options) -> Result<Self> {
        if !self.is_inherited() {
            return Err(RecorderError::NotForked);
        }
        let mut options = options.clone();
        options.forked_from = Some(self.handle.session.pid);
        Self::start(&options)
    }

    /// Takes this process, a forked child of the recorder's process that has a recording now, out of the number of children that nothing
    /// records. Call it once. Has no effect in another process.
    pub fn forget_child(&self) {
        if self.is_inherited() {
            self.shared().forget_child();
        }
    }

    /// Starts recording, with `sink` between the recorder and its file.
    pub(crate) fn start_with(
        options: &Options,
        sink: impl FnOnce(std::fs::File) -> std::io::Result<Box<dyn Sink>>,
    ) -> Result<Self> {
        let session = Session::start(options, sink)?;
        Ok(Self {
            shared: Arc::clone(&session.shared),
            handle: Arc::new(Handle { session }),
        })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs `define` with the registry locked, unless nothing can be defined any more.
    pub(crate) fn define<T>(
        &self,
        define: impl FnOnce(&mut Definer<'_>) -> Result<T>,
    ) -> Result<T> {
        let shared = self.shared();
        if !shared.guard.is_on() {
            return Err(RecorderError::Finished);
        }
        if clock::is_in_clock() {
            return Err(RecorderError::InClock);
        }
        sys::without_size_signal(|| define(&mut Definer::lock(shared)))
    }

    /// Returns the identity of this host since its boot: processes that share it share the
    /// reference clock.
    pub fn boot_id() -> BootId {
        sys::boot_id()
    }

    /// Returns the reference clock, nanoseconds.
    pub fn reference_ns() -> i64 {
        clock::reference_ns()
    }

    /// Enters a region.
    #[inline]
    pub fn enter(&self, region: RegionId) {
        self.enter_or_leave(ENTER, region);
    }

    /// Leaves a region.
    #[inline]
    pub fn leave(&self, region: RegionId) {
        self.enter_or_leave(LEAVE, region);
    }

    /// Returns the tick now, by the clock of the process's own source: for [`Recorder::enter_at`] and
    /// [`Recorder::raise_since`].
    pub fn tick(&self) -> u64 {
        let source = self.shared().source(THREADS);
        source.map_or(0, |source| source.clock.read())
    }

    /// Enters a region at this tick of the clock of the process's own source.
    pub fn enter_at(&self, region: RegionId, tick: u64) {
        let shared = self.shared();
        if thread_streams::admits_call(shared, region, true) {
            let (bound, row) = (RegionId::bound(region), Typed::<(RegionId,)>(&(region,)));
            thread_streams::raise(shared, THREADS, ENTER, Some(tick), bound, row);
        }
    }

    /// Leaves a region at this tick of the clock of the process's own source.
    pub fn leave_at(&self, region: RegionId, tick: u64) {
        let shared = self.shared();
        if thread_streams::admits_call(shared, region, false) {
            let (bound, row) = (RegionId::bound(region), Typed::<(RegionId,)>(&(region,)));
            thread_streams::raise(shared, THREADS, LEAVE, Some(tick), bound, row);
        }
    }

    /// Leaves a region at this tick of the clock of the process's own source, which is in the past. If the calling thread has raised
    /// events since, it is left at the tick of the last one.
    pub fn leave_since(&self, region: RegionId, tick: u64) {
        self.leave_at(
            region,
            tick.max(thread_streams::last_tick(self.shared(), THREADS)),
        );
    }

    /// Names the location of the calling thread, up to 16 bytes. Has no effect on one whose events were written already, nor on the
    /// process's first thread. To be called before the thread's first event.
    pub fn name_thread(&self, name: &[u8]) {
        let mut padded = [0; 16];
        let length = name.len().min(padded.len());
        padded[..length].copy_from_slice(&name[..length]);
        if self.is_recording() {
            thread_streams::name_thread(self.shared(), padded);
        }
    }

    /// Begins the calling thread's events at this tick of the clock of the process's own source: its first ones happened before now.
    /// Has no effect if the thread has raised an event.
    pub fn begin_thread_at(&self, tick: u64) {
        let shared = self.shared();
        if self.is_recording() {
            thread_streams::open_at(shared, tick);
        }
    }

    #[inline(always)]
    fn enter_or_leave(&self, event_type: EventTypeId, region: RegionId) {
        let bound = RegionId::bound(region);
        if !thread_streams::admits_call(self.shared(), region, event_type == ENTER) {
            return;
        }
        let row = Typed::<(RegionId,)>(&(region,));
        thread_streams::raise(self.shared(), THREADS, event_type, None, bound, row);
    }

    /// Enters a region and raises an event of the process's own source at the same moment: one
    /// clock read for both. Where rules leave the region out, the event alone.
    #[inline(always)]
    pub fn enter_with<E: Elements>(
        &self,
        region: RegionId,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let shared = self.shared();
        if event_type.recorder != shared.number {
            shared.count_misused();
        } else if !thread_streams::admits_call(shared, region, true) {
            self.raise_typed(THREADS, None, event_type, values);
        } else {
            let enter = Typed::<(RegionId,)>(&(region,));
            let event = Typed::<E>(&values);
            let first = (ENTER, RegionId::bound(region), enter);
            let second = (event_type.id, E::bound(values), event);
            thread_streams::raise_two(shared, THREADS, first, second);
        }
    }

    /// Raises an event of the process's own source and leaves a region at the same moment, as
    /// [`Recorder::enter_with`].
    #[inline(always)]
    pub fn leave_with<E: Elements>(
        &self,
        region: RegionId,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let shared = self.shared();
        if event_type.recorder != shared.number {
            shared.count_misused();
        } else if !thread_streams::admits_call(shared, region, false) {
            self.raise_typed(THREADS, None, event_type, values);
        } else {
            let event = Typed::<E>(&values);
            let leave = Typed::<(RegionId,)>(&(region,));
            let first = (event_type.id, E::bound(values), event);
            let second = (LEAVE, RegionId::bound(region), leave);
            thread_streams::raise_two(shared, THREADS, first, second);
        }
    }

    /// Enters a region until the guard is dropped.
    #[must_use = "the region is left when the guard is dropped"]
    pub fn region(&self, region: RegionId) -> RegionGuard<'_> {
        self.enter(region);
        RegionGuard {
            recorder: self,
            region,
        }
    }

    /// Raises an event of the process's own source, now.
    #[inline]
    pub fn raise<E: Elements>(&self, event_type: &EventType<E>, values: E::Values<'_>) {
        self.raise_typed(THREADS, None, event_type, values);
    }

    /// Raises an event without elements.
    #[inline]
    pub fn point(&self, event_type: &EventType<()>) {
        self.raise(event_type, ());
    }

    /// Records the value of a metric.
    #[inline]
    pub fn metric<T: ElementKind>(&self, metric: &Metric<T>, value: T::Value<'_>) {
        self.raise(&metric.0, (value,));
    }

    /// Raises an event of a source, now by the source's clock.
    #[inline]
    pub fn raise_on<E: Elements>(
        &self,
        source: SourceId,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        self.raise_typed(source, None, event_type, values);
    }

    /// Raises an event of a source that happened at this tick of the source's clock.
    #[inline]
    pub fn raise_at<E: Elements>(
        &self,
        source: SourceId,
        tick: u64,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        self.raise_typed(source, Some(tick), event_type, values);
    }

    /// Raises an event of the process's own source that happened at this tick of its clock, and that
    /// is known only now. If the calling thread has raised events since, it gets the tick of the last
    /// one, because the source is ordered.
    pub fn raise_since<E: Elements>(
        &self,
        tick: u64,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let tick = tick.max(thread_streams::last_tick(self.shared(), THREADS));
        self.raise_typed(THREADS, Some(tick), event_type, values);
    }

    #[inline]
    fn raise_typed<E: Elements>(
        &self,
        source: SourceId,
        tick: Option<u64>,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let shared = self.shared();
        if event_type.recorder != shared.number {
            shared.count_misused();
            return;
        }
        let bound = E::bound(values);
        let row = Typed::<E>(&values);
        thread_streams::raise(shared, source, event_type.id, tick, bound, row);
    }

    /// Counts events that a source reports as dropped by itself.
    ///
    /// They are in the recording as raised and dropped, marked as an estimate. A count that does
    /// not fit 64 bits stays at the largest value. The drops are placed between the last event and
    /// now, as far as that is known: for a clock that the recorder cannot read, by the last
    /// [`Recorder::calibrate`], or without one at the last event.
    pub fn report_dropped(&self, source: SourceId, event_type: EventTypeId, count: u64) {
        // Refused events are counted.
        let _ = self.raiser().report_dropped(source, event_type, count);
    }

    /// Counts an event that no callback was registered for at the safety level of its context.
    pub fn report_no_callback(&self, source: SourceId, event_type: EventTypeId) {
        self.report_no_callbacks(source, event_type, 1);
    }

    /// Counts a number of events that no callback was registered for at the safety level of their
    /// contexts.
    pub fn report_no_callbacks(&self, source: SourceId, event_type: EventTypeId, count: u64) {
        let raiser = self.raiser();
        let _ = raiser.report_no_callbacks(source, event_type, count);
    }

    /// Raises an event whose elements are known at run time only. Values that do not fit the event
    /// type are counted as misused and not recorded.
    pub fn raise_dynamic(
        &self,
        source: SourceId,
        tick: Option<u64>,
        event_type: &DynamicEventType,
        values: &[Value<'_>],
    ) {
        let shared = self.shared();
        if event_type.recorder != shared.number {
            shared.count_misused();
            return;
        }
        // Refused events are counted.
        let _ = self.raiser().raise(source, tick, event_type.id, values);
    }

    /// Raises an event with a row that fits the event type, and takes no more bytes than `bound`;
    /// both ids are of this recorder.
    #[inline(always)]
    pub(crate) fn raise_row(
        &self,
        source: SourceId,
        tick: Option<u64>,
        event_type: &DynamicEventType,
        bound: usize,
        row: impl PutRow,
    ) {
        debug_assert_eq!(event_type.recorder, self.shared().number);
        thread_streams::raise(self.shared(), source, event_type.id, tick, bound, row);
    }

    /// Raises by numbers, as callers from other languages do.
    #[inline]
    pub fn raiser(&self) -> Raiser<'_> {
        Raiser::new(self.shared())
    }

    /// Returns how the recorder is doing.
    pub fn status(&self) -> Status {
        let session = &self.handle.session;
        let shared = &session.shared;
        let [raised, dropped, suppressed] = shared.sums();
        let storage = &shared.storage_status;
        Status {
            path: session.path.clone(),
            not_kill_safe: session.not_kill_safe.clone(),
            storage_failure: storage.failure().map(str::to_owned),
            raised,
            dropped,
            suppressed,
            blocked: Duration::from_nanos(shared.status.blocked_ns.load(Ordering::Relaxed)),
            snapshots: shared.status.snapshots.load(Ordering::Relaxed),
            written_bytes: storage.written(),
            free_pages: shared.pages.free_count(),
            pages: shared.memory.division().page_count,
            raised_after_finish: shared.status.after_cut.load(Ordering::Relaxed),
            misused: shared.status.misused.load(Ordering::Relaxed),
            is_finished: !shared.guard.is_on(),
        }
    }

    /// Returns whether events are recorded: not while it is paused, after the finish, or in a
    /// forked child. For callers that must do work to raise an event. Costs one load.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared().guard.word().load(Ordering::Relaxed) == sys::GUARD_RECORDING
    }

    /// Returns whether the recorder's own clock is the processor's counter.
    /// Sources without a separate clock use the recorder's.
    pub fn uses_processor_clock(&self) -> bool {
        let source = self.shared().source(THREADS);
        source.is_some_and(|source| matches!(source.clock, TickSource::Tsc))
    }

    /// Returns whether the rules have an enter of a region recorded. Call it once for each enter.
    /// [`Recorder::enter`] checks this itself; it is for the program's own event types that enter and leave regions.
    #[inline]
    pub fn admits_enter(&self, region: RegionId) -> bool {
        thread_streams::admits_call(self.shared(), region, true)
    }

    /// Returns whether a leave of a region is recorded: if its enter was, also if rules have changed since. Call it once for each
    /// leave. [`Recorder::leave`] checks this itself.
    #[inline]
    pub fn admits_leave(&self, region: RegionId) -> bool {
        thread_streams::admits_call(self.shared(), region, false)
    }

    /// Switches recording off: until [`Recorder::resume`], nothing is raised. Costs an event one
    /// load.
    pub fn pause(&self) {
        self.shared().guard.pause(true);
    }

    /// Switches recording on again.
    pub fn resume(&self) {
        self.shared().guard.pause(false);
    }

    /// Changes what is recorded, from now on and in all threads.
    /// The new rules are added after the existing ones, and so decide first. Calls that are open stay whole: their leaves are
    /// recorded if their enters were.
    ///
    /// # Errors
    /// If the recording is finished.
    pub fn apply(&self, rules: &Rules) -> Result<()> {
        self.define(|definer| definer.apply(rules))
    }

    /// Asks the writer to calibrate the clocks and to write partly filled pages, except those of
    /// streams that [`Overflow::Overwrite`](crate::Overflow::Overwrite). Returns without waiting.
    pub fn flush(&self) {
        let shared = self.shared();
        shared.is_flush_asked.store(true, Ordering::Release);
        shared.wake_writer();
    }

    /// Writes what streams that [`Overflow::Overwrite`](crate::Overflow::Overwrite) hold now, as a
    /// separate recording: `snapshot-N/` next to the recording.
    ///
    /// Waits until it is written, with the events of [`Options::post_trigger`].
    ///
    /// # Errors
    /// If the snapshot cannot be written, or the recording is finished meanwhile.
    pub fn snapshot(&self) -> Result<PathBuf> {
        let shared = self.shared();
        self.define(|_| Ok(()))?;
        let mut last = lock(&shared.last_snapshot);
        // One that began before this call may miss what was raised since.
        let begun = shared.snapshots_begun.load(Ordering::SeqCst);
        shared.triggers.fire(None);
        shared.wake_writer();
        while shared.status.snapshots.load(Ordering::Acquire) <= begun {
            if shared.is_writer_gone.load(Ordering::Acquire) {
                return Err(RecorderError::Finished);
            }
            let wait = Duration::from_millis(50);
            let waited = shared.snapshot_done.wait_timeout(last, wait);
            last = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        last.clone().map_err(|why| RecorderError::Snapshot { why })
    }

    /// Finishes the recording: what is raised from now on is counted in the status only. Later
    /// calls change nothing.
    pub fn finish(&self) -> Status {
        self.handle.session.finish();
        self.status()
    }

    /// Has a function called before the recording is finished, by [`Recorder::finish`] or when the process ends: first while events
    /// are recorded, then again when none is any more, and definitions can still be added. It runs in the thread that finishes. It
    /// is not called in a forked child, nor when the process is killed.
    pub fn before_finish(&self, call: fn()) {
        self.handle.session.before_finish(call);
    }

    /// Returns the number that identifies this recorder in its process; never 0, and never used
    /// again.
    pub fn number(&self) -> u32 {
        self.shared().number
    }

    /// Returns whether this is a forked child, and the recording its parent's.
    pub fn is_inherited(&self) -> bool {
        self.handle.session.is_inherited()
    }
}

/// Leaves its region when it is dropped.
#[derive(Debug)]
pub struct RegionGuard<'a> {
    recorder: &'a Recorder,
    region: RegionId,
}

impl Drop for RegionGuard<'_> {
    fn drop(&mut self) {
        self.recorder.leave(self.region);
    }
}
