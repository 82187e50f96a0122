//! The recorder: starting, defining, raising, finishing.

use annals_format::names;
use annals_format::names::element;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use annals_format::{
    BootId, ClockId, Definition, EventType as EventTypeDefinition, EventTypeId, EventTypeSchema,
    HostOffset, LiveHeader, ObjectId, Process, Rank, RecordingId, Reference, RegionId, Role,
    SourceId, SourceOrder, Value, Verbosity, World,
};

use crate::clock::{self, TickSource, reference_ns, unix_ns};
use crate::definition::EventTypeSpec;
use crate::elements::{ElementKind, Elements, Typed};
use crate::error::{RecorderError, Result};
use crate::memory::{Division, LiveMemory};
use crate::options::{Options, Overflow};
use crate::raiser::Raiser;
use crate::row::PutRow;
use crate::rules::Rules;
use crate::shared::{PROCESS, Registry, Shared, lock};
use crate::storage::{OwnFile, Sink, Storage};
use crate::sys::{self, ForkGuard};
use crate::thread;
use crate::trigger::signal_fires;
use crate::writer::{Settings, Writer};

/// The source of the process's own events: ordered, one stream per thread.
pub const THREADS: SourceId = SourceId::new(0);

/// The environment variable with which a command that starts programs tells its recordings from others.
pub const RECORDED_BY: &str = "ANNALS_RECORDED_BY";

/// How long `finish` waits for a thread that was stopped in the middle of a raise.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// How long a second `finish` waits for the first.
const LONGEST_FINISH: Duration = Duration::from_secs(60);

/// An event type whose elements are known at compile time.
#[derive(Debug)]
pub struct EventType<E> {
    id: EventTypeId,
    recorder: u32,
    elements: PhantomData<fn(E)>,
}

impl<E> Clone for EventType<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for EventType<E> {}

impl<E> EventType<E> {
    /// Its number in the recording.
    pub const fn id(&self) -> EventTypeId {
        self.id
    }
}

/// An event type whose elements are known at run time only.
#[derive(Clone, Copy, Debug)]
pub struct DynamicEventType {
    id: EventTypeId,
    recorder: u32,
}

impl DynamicEventType {
    /// Its number in the recording.
    pub const fn id(&self) -> EventTypeId {
        self.id
    }
}

/// A metric: an event type with the role [`Role::Metric`] and one element `value`.
#[derive(Clone, Copy, Debug)]
pub struct Metric<T>(EventType<(T,)>);

impl<T> Metric<T> {
    /// Its event type's number, as [`Recorder::report_dropped`] takes it.
    pub const fn id(&self) -> EventTypeId {
        self.0.id()
    }
}

/// A clock, to be added.
#[derive(Clone, Debug)]
pub struct ClockSpec {
    name: String,
    ticks: TickSource,
    ticks_per_second: u64,
    rate_error_ppb: u32,
    max_ticks: u64,
}

/// How far the rate of a clock is from what its program says, unless that says how far, parts per 10⁹: two crystals of
/// ± 100 parts per million.
const RATE_ERROR_PPB: u32 = 200_000;

impl ClockSpec {
    /// A clock that `read` reads at any time. It runs on the threads that raise events.
    pub fn readable(
        name: impl Into<String>,
        ticks_per_second: u64,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            ticks: TickSource::Function(Arc::new(read)),
            ticks_per_second,
            rate_error_ppb: RATE_ERROR_PPB,
            max_ticks: u64::MAX,
        }
    }

    /// A clock that only shows in its events: raise them with [`Recorder::raise_at`].
    pub fn unreadable(name: impl Into<String>, ticks_per_second: u64) -> Self {
        Self {
            name: name.into(),
            ticks: TickSource::Unreadable(Arc::default()),
            ticks_per_second,
            rate_error_ppb: RATE_ERROR_PPB,
            max_ticks: u64::MAX,
        }
    }

    /// The bound of the rate's error against the host's reference clock, parts per 10⁹; 0: exact by definition, as of a
    /// clock that is made of the reference clock. Without it 200 000. It counts where the clock is tied to the reference
    /// once, or only by its events.
    #[must_use]
    pub const fn rate_error_ppb(mut self, rate_error_ppb: u32) -> Self {
        self.rate_error_ppb = rate_error_ppb;
        self
    }

    /// The largest tick before the clock starts again at 0; any value.
    #[must_use]
    pub const fn max_ticks(mut self, max_ticks: u64) -> Self {
        self.max_ticks = max_ticks;
        self
    }
}

/// A source, to be added.
#[derive(Clone, Debug)]
pub struct SourceSpec {
    name: String,
    description: String,
    ordering: SourceOrder,
    clock: Option<ClockId>,
    overflow: Option<Overflow>,
    has_own_location: bool,
}

impl SourceSpec {
    /// A source that promises chronological order, stamped by the recorder's clock.
    pub fn ordered(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            ordering: SourceOrder::Ordered,
            clock: None,
            overflow: None,
            has_own_location: false,
        }
    }

    /// A source that promises nothing about order.
    pub fn unordered(name: impl Into<String>) -> Self {
        Self {
            ordering: SourceOrder::Unordered,
            ..Self::ordered(name)
        }
    }

    /// Says what it is.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Says which clock stamps its events.
    #[must_use]
    pub const fn clock(mut self, clock: ClockId) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Says that what each thread raises for it happens at a location of its own, beside the thread's: regions of
    /// the source do not nest with those of the program.
    #[must_use]
    pub const fn own_location(mut self) -> Self {
        self.has_own_location = true;
        self
    }

    /// Says what happens to its events when no page is free; else [`Options::overflow`] does.
    #[must_use]
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }
}

/// How a recorder is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The recording's file.
    pub path: PathBuf,
    /// Why the live file could not be had; none: a killed process loses no committed event.
    pub not_kill_safe: Option<String>,
    /// Why writing failed, once it did; events since then are dropped, or wait in the live file.
    pub storage_failure: Option<String>,
    /// Events raised, the dropped and suppressed ones included. While threads record, this and the next
    /// two are from slightly different moments.
    pub raised: u64,
    /// Events dropped.
    pub dropped: u64,
    /// Events that sampling and rate limits left out.
    pub suppressed: u64,
    /// How long events waited for a free page, all threads together.
    pub blocked: Duration,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Bytes written to the recording.
    pub written_bytes: u64,
    /// Buffer pages that are free.
    pub free_pages: usize,
    /// Buffer pages there are.
    pub pages: usize,
    /// Events raised after the recording was finished, or in a forked child.
    pub raised_after_finish: u64,
    /// Events raised with an event type of another recorder; nothing of them is recorded.
    pub misused: u64,
    /// Whether the recording is finished.
    pub is_finished: bool,
}

/// Records the events of this process into one file. Cheap to clone; the recording is finished when
/// the last clone goes, at [`Recorder::finish`], or when the process exits.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The shared part once more, for the event path.
    shared: Arc<Shared>,
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.finish();
    }
}

#[derive(Debug)]
struct Core {
    shared: Arc<Shared>,
    path: PathBuf,
    not_kill_safe: Option<String>,
    stop: Arc<AtomicBool>,
    /// The process that may finish the recording.
    pid: u32,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Recorders that process exit must finish.
static RUNNING: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

extern "C" fn finish_all() {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        let running = std::mem::take(&mut *lock(&RUNNING));
        for core in running.iter().filter_map(Weak::upgrade) {
            core.finish();
        }
    });
}

impl Recorder {
    /// Starts recording.
    ///
    /// # Errors
    /// If the directory or the recording cannot be created, or the system cannot give memory that a
    /// forked child does not share (before Linux 4.14). That the live file cannot be had is no error:
    /// [`Status::not_kill_safe`] tells.
    pub fn start(options: &Options) -> Result<Self> {
        Self::start_with(options, |file| Ok(Box::new(OwnFile::new(file)?)))
    }

    /// The same with something between the recorder and its file.
    pub(crate) fn start_with(
        options: &Options,
        sink: impl FnOnce(std::fs::File) -> std::io::Result<Box<dyn Sink>>,
    ) -> Result<Self> {
        sys::without_size_signal(|| Self::start_quietly(options, sink))
    }

    fn start_quietly(
        options: &Options,
        sink: impl FnOnce(std::fs::File) -> std::io::Result<Box<dyn Sink>>,
    ) -> Result<Self> {
        let io = in_file;
        let directory = &options.directory;
        std::fs::create_dir_all(directory).map_err(io("create", directory))?;
        let host = sys::host_name();
        let pid = std::process::id();
        let run = options.run.clone();
        let run = run.unwrap_or_else(|| format!("{:x}-{pid}", unix_ns() / 1_000_000));
        let stem = format!("{}-{}-{pid}", file_name_part(&run), file_name_part(&host));
        let (file, path) = Storage::create_file(directory, &stem)
            .map_err(io("create a recording in", directory))?;
        let live_path = live_path(options, &path);
        let sink = sink(file).map_err(io("look at", &path));
        let started = sink
            .and_then(|sink| Self::start_at(options, sink, path.clone(), &live_path, &run, &host));
        if started.is_err() {
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_file(&live_path);
        }
        started
    }

    fn start_at(
        options: &Options,
        sink: Box<dyn Sink>,
        path: PathBuf,
        live_path: &Path,
        run: &str,
        host: &str,
    ) -> Result<Self> {
        let io = in_file;
        let pid = std::process::id();
        let id = RecordingId(sys::random_id());
        let storage = Storage::start(sink, id, options.compression).map_err(io("write", &path))?;
        let division = Division::of(options.buffer_bytes, options.page_bytes);
        let (memory, failure) =
            LiveMemory::create(live_path, division).map_err(io("map memory for", live_path))?;
        let no_memory = "get memory that fork wipes, for";
        let guard = ForkGuard::new().map_err(io(no_memory, &path))?;
        sys::register_barrier();
        thread::prepare();
        thread::release_finished();
        memory.write_header(LiveHeader {
            recording_id: id,
            boot_id: sys::boot_id(),
            pid,
            process_start: process_start(),
            page_size: 0,
            page_count: 0,
            pages_offset: 0,
            slots_offset: 0,
            slot_count: 0,
            segment_count: 0,
            segments_offset: 0,
            definitions_offset: 0,
            definitions_capacity: 0,
        });
        let shared = Shared::new(guard, memory, storage, options).map_err(io(no_memory, &path))?;
        let shared = Arc::new(shared);
        define_process(&shared, options, id, run, host)?;
        if live_path.parent() != path.parent() {
            // From now on a kill costs nothing: the recording says where its live file is.
            shared.flush_definitions();
            if let Some(why) = shared.storage_status.failure() {
                return Err(io("write", &path)(std::io::Error::other(why.to_owned())));
            }
        }

        for signal in shared.triggers.signals() {
            if !sys::handle_signal(signal, signal_fires) {
                return Err(RecorderError::Setting {
                    name: "a trigger",
                    expected: "a signal that the program does not handle itself",
                    found: format!("signal {signal}"),
                });
            }
        }
        for signal in &options.flush_signals {
            if !sys::is_ignored(*signal) && !sys::handle_signal(*signal, signal_fires) {
                return Err(RecorderError::Setting {
                    name: "ANNALS_FLUSH_SIGNAL",
                    expected: "signals that the program does not handle itself",
                    found: format!("signal {signal}"),
                });
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writer = Writer::new(
            Arc::clone(&shared),
            Arc::clone(&stop),
            Settings::new(options, path.clone()),
        );
        let builder = std::thread::Builder::new().name("annals-writer".to_owned());
        let thread = sys::with_signals_blocked(|| {
            let shared = Arc::clone(&shared);
            builder.spawn(move || {
                sys::yield_to_the_program();
                thread::record_nothing_here();
                let run = std::panic::AssertUnwindSafe(|| writer.run());
                if std::panic::catch_unwind(run).is_err() {
                    shared.storage_status.fail("the writer thread panicked");
                    let failed = &shared.status.has_storage_failed;
                    failed.store(true, Ordering::Release);
                }
                shared.is_writer_gone.store(true, Ordering::Release);
                shared.snapshot_done.notify_all();
            })
        })
        .map_err(io("start the writer thread of", &path))?;
        let _ = shared.writer.set(thread.thread().clone());
        let core = Arc::new(Core {
            shared,
            path,
            not_kill_safe: failure.map(|error| error.to_string()),
            stop,
            pid,
            writer: Mutex::new(Some(thread)),
        });
        lock(&RUNNING).push(Arc::downgrade(&core));
        sys::on_process_exit(finish_all);
        Ok(Self {
            shared: Arc::clone(&core.shared),
            handle: Arc::new(Handle { core }),
        })
    }

    #[inline]
    fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn define<T>(
        &self,
        define: impl FnOnce(&Shared, &mut Registry) -> Result<T>,
    ) -> Result<T> {
        let shared = self.shared();
        if !shared.guard.is_on() {
            return Err(RecorderError::Finished);
        }
        if clock::is_in_clock() {
            return Err(RecorderError::InClock);
        }
        sys::without_size_signal(|| define(shared, &mut lock(&shared.registry)))
    }

    /// Says which rank this process is, when it becomes known after the start.
    ///
    /// # Errors
    /// If the recording is finished, or the buffer has no room for another definition.
    pub fn set_rank(&self, rank: u32, rank_count: Option<u32>) -> Result<()> {
        self.define(|shared, registry| {
            registry.add(
                shared,
                Definition::Rank(Rank {
                    process: PROCESS,
                    rank,
                    rank_count,
                    is_assigned: false,
                }),
            )
        })
    }

    /// Says which world the rank counts in, of several in the run that each count from 0: the same name in all its
    /// processes, another in every other world. The launcher's name for it is known already.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn set_world(&self, name: &str) -> Result<()> {
        self.define(|shared, registry| define_world(shared, registry, name))
    }

    /// Adds a property of the process: something a reader may want to know.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn add_property(&self, key: &str, value: &str) -> Result<()> {
        self.define(|shared, registry| registry.property(shared, key, value))
    }

    /// Stores an offset between the reference clocks of two hosts, usually [`Recorder::boot_id`] and
    /// another's, as a message there and back measures it: this process reads [`Recorder::reference_ns`],
    /// the other host answers with its own reading, this process reads again.
    ///
    /// The merge relates hosts by these, with their bounds. Worth having: at least one at the start and
    /// one at the end, each the one with the shortest round trip of many.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn add_host_offset(&self, offset: HostOffset) -> Result<()> {
        self.define(|shared, registry| registry.add(shared, Definition::HostOffset(offset)))
    }

    /// Identity of this host since it was started: processes that share it share the reference clock.
    pub fn boot_id() -> BootId {
        sys::boot_id()
    }

    /// The reference clock, nanoseconds.
    pub fn reference_ns() -> i64 {
        clock::reference_ns()
    }

    /// Adds a clock.
    ///
    /// # Errors
    /// If its rate is 0, and as [`Recorder::set_rank`].
    pub fn add_clock(&self, spec: &ClockSpec) -> Result<ClockId> {
        self.define(|shared, registry| {
            registry.clock(
                shared,
                &spec.name,
                spec.ticks.clone(),
                spec.ticks_per_second,
                spec.rate_error_ppb,
                spec.max_ticks,
            )
        })
    }

    /// Ties a clock that the recorder cannot read ([`ClockSpec::unreadable`]) to the host's reference clock, at this
    /// moment: `read` reads it, some times in a row, on this thread. It may raise events. Two such moments, some time
    /// apart, say what the clock's events alone cannot: how wrong their times may be at most.
    ///
    /// # Errors
    /// If the clock is not one of this recorder, or one that the recorder reads itself, and as [`Recorder::set_rank`].
    ///
    /// # Panics
    /// If `read` does.
    pub fn calibrate(&self, clock: ClockId, read: impl Fn() -> u64) -> Result<()> {
        let definition = self.define(|_, registry| registry.unreadable_clock(clock))?;
        // Not while others wait for the definitions: what it raises may need them.
        let point = clock::calibrate_by(&definition, read);
        self.define(|shared, registry| registry.tie(shared, &definition, point))
    }

    /// Adds a source.
    ///
    /// # Errors
    /// If its clock is not one of this recorder, and as [`Recorder::set_rank`].
    pub fn add_source(&self, spec: &SourceSpec) -> Result<SourceId> {
        self.define(|shared, registry| {
            let clock = spec.clock.unwrap_or(ClockId::new(0));
            let (name, description) = (&spec.name, &spec.description);
            registry.source(
                shared,
                name,
                description,
                spec.ordering,
                clock,
                (spec.overflow, spec.has_own_location),
            )
        })
    }

    /// Adds a region, or finds the one that is the same.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn add_region(&self, name: &str) -> Result<RegionId> {
        self.add_region_at(name, "", 0, "")
    }

    /// Adds a region with its source file, line (0: unknown) and group, or finds the one that is the
    /// same.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn add_region_at(
        &self,
        name: &str,
        file: &str,
        line: u32,
        group: &str,
    ) -> Result<RegionId> {
        self.define(|shared, registry| registry.region(shared, name, file, line, group))
    }

    /// Adds an event type whose elements have the types `E`, a tuple; or finds the one that is the
    /// same.
    ///
    /// # Errors
    /// If the names do not match the tuple, the name is taken by a different event type, and as
    /// [`Recorder::set_rank`].
    pub fn add_event_type<E: Elements>(&self, spec: &EventTypeSpec) -> Result<EventType<E>> {
        let id =
            self.define(|shared, registry| define_type(shared, registry, spec, &E::schema()))?;
        Ok(EventType {
            id,
            recorder: self.shared().number,
            elements: PhantomData,
        })
    }

    /// Adds an event type whose element types are known only now.
    ///
    /// # Errors
    /// As [`Recorder::add_event_type`].
    pub fn add_dynamic_event_type(
        &self,
        spec: &EventTypeSpec,
        schema: EventTypeSchema,
    ) -> Result<DynamicEventType> {
        let id = self.define(|shared, registry| define_type(shared, registry, spec, &schema))?;
        Ok(DynamicEventType {
            id,
            recorder: self.shared().number,
        })
    }

    /// Adds an object that events may refer to ([`Reference::Object`]) and registrations may be bound to:
    /// its kind, as `communicator` or `window`, and its name.
    ///
    /// # Errors
    /// As [`Recorder::set_rank`].
    pub fn add_object(&self, kind: &str, name: &str) -> Result<ObjectId> {
        self.define(|shared, registry| registry.object(shared, kind, name))
    }

    /// Tells that events of this type are recorded because a tool registered for them, for this object if
    /// they are bound.
    ///
    /// # Errors
    /// If the event type or the object is not one of this recorder, and as [`Recorder::set_rank`].
    pub fn add_registration(
        &self,
        event_type: EventTypeId,
        object: Option<ObjectId>,
    ) -> Result<()> {
        self.define(|shared, registry| registry.registration(shared, event_type, object))
    }

    /// Adds a metric with this unit.
    ///
    /// # Errors
    /// As [`Recorder::add_event_type`].
    pub fn add_metric<T: ElementKind>(&self, name: &str, unit: &str) -> Result<Metric<T>> {
        let spec = EventTypeSpec::new(name)
            .role(Role::Metric)
            .element_in(element::VALUE, unit);
        self.add_event_type(&spec).map(Metric)
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

    #[inline(always)]
    fn enter_or_leave(&self, event_type: EventTypeId, region: RegionId) {
        let bound = RegionId::bound(region);
        if self.shared().control.is_region_off(region) {
            return;
        }
        let row = Typed::<(RegionId,)>(&(region,));
        thread::raise(self.shared(), THREADS, event_type, None, bound, row);
    }

    /// Enters a region and raises an event of the process's own source at the same moment: one clock read for
    /// both. Where rules leave the region out, the event alone.
    #[inline(always)]
    pub fn enter_with<E: Elements>(
        &self,
        region: RegionId,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let shared = self.shared();
        if event_type.recorder != shared.number {
            shared.count_unknown_type();
        } else if shared.control.is_region_off(region) {
            self.raise_typed(THREADS, None, event_type, values);
        } else {
            let enter = Typed::<(RegionId,)>(&(region,));
            let event = Typed::<E>(&values);
            let first = (ENTER, RegionId::bound(region), enter);
            let second = (event_type.id, E::bound(values), event);
            thread::raise_two(shared, THREADS, first, second);
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
            shared.count_unknown_type();
        } else if shared.control.is_region_off(region) {
            self.raise_typed(THREADS, None, event_type, values);
        } else {
            let event = Typed::<E>(&values);
            let leave = Typed::<(RegionId,)>(&(region,));
            let first = (event_type.id, E::bound(values), event);
            let second = (LEAVE, RegionId::bound(region), leave);
            thread::raise_two(shared, THREADS, first, second);
        }
    }

    /// Enters a region until the guard goes.
    #[must_use = "the region is left when the guard goes"]
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
            shared.count_unknown_type();
            return;
        }
        let bound = E::bound(values);
        let row = Typed::<E>(&values);
        thread::raise(shared, source, event_type.id, tick, bound, row);
    }

    /// Counts events that a source told it dropped itself. They stand in the recording as raised and
    /// dropped, marked as an estimate; a count that does not fit 64 bits stays at the largest. They lie between the
    /// last event and now, as far as that is known: of a clock that the recorder cannot read, by the last
    /// [`Recorder::calibrate`]; without one, at the last event.
    pub fn report_dropped(&self, source: SourceId, event_type: EventTypeId, count: u64) {
        // What is refused is counted.
        let _ = self.raiser().report_dropped(source, event_type, count);
    }

    /// Counts an event that no callback was registered for at the safety level of its context.
    pub fn report_no_callback(&self, source: SourceId, event_type: EventTypeId) {
        self.report_no_callbacks(source, event_type, 1);
    }

    /// The same for so many events.
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
            shared.count_unknown_type();
            return;
        }
        // What is refused is counted.
        let _ = self.raiser().raise(source, tick, event_type.id, values);
    }

    /// Raises an event with a row that fits the event type, and takes no more bytes than `bound`; both ids
    /// are of this recorder.
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
        thread::raise(self.shared(), source, event_type.id, tick, bound, row);
    }

    /// Raises by numbers, as callers from other languages do.
    #[inline]
    pub fn raiser(&self) -> Raiser<'_> {
        Raiser::new(self.shared())
    }

    /// How the recorder is doing.
    pub fn status(&self) -> Status {
        let core = &self.handle.core;
        let shared = &core.shared;
        let [raised, dropped, suppressed] = shared.sums();
        let storage = &shared.storage_status;
        Status {
            path: core.path.clone(),
            not_kill_safe: core.not_kill_safe.clone(),
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
            misused: shared.status.unknown_type.load(Ordering::Relaxed),
            is_finished: !shared.guard.is_on(),
        }
    }

    /// Whether events are recorded: not while it is paused, behind the finish, or in a forked child. For
    /// whoever must do work to raise an event; costs one load.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.shared().guard.word().load(Ordering::Relaxed) == sys::GUARD_RECORDING
    }

    /// Whether the recorder's own clock, that of sources without one of theirs, is the processor's counter.
    pub fn uses_processor_clock(&self) -> bool {
        let source = self.shared().source(THREADS);
        source.is_some_and(|source| matches!(source.clock, TickSource::Tsc))
    }

    /// Whether the rules leave a region on. [`Recorder::enter`] and [`Recorder::leave`] ask themselves;
    /// this is for event types of one's own that enter and leave regions.
    #[inline]
    pub fn is_region_on(&self, region: RegionId) -> bool {
        !self.shared().control.is_region_off(region)
    }

    /// Switches recording off: until [`Recorder::resume`], nothing is raised. Costs an event one load.
    pub fn pause(&self) {
        self.shared().guard.pause(true);
    }

    /// Switches recording on again.
    pub fn resume(&self) {
        self.shared().guard.pause(false);
    }

    /// Changes what is recorded, from now on and in all threads: the rules come behind those that hold
    /// already, and so decide first.
    ///
    /// # Errors
    /// If the recording is finished.
    pub fn apply(&self, rules: &Rules) -> Result<()> {
        self.define(|_, _| Ok(()))?;
        self.shared().apply(rules)
    }

    /// Has the writer write what streams hold in partly filled pages, but those that [`Overflow::Overwrite`], and
    /// calibrate the clocks. Waits for nothing.
    pub fn flush(&self) {
        let shared = self.shared();
        shared.is_flush_asked.store(true, Ordering::Release);
        shared.wake_writer();
    }

    /// Writes what streams that [`Overflow::Overwrite`] hold now, as a recording of its own:
    /// `snapshot-N/` beside the recording. Waits until it is written, with the events of
    /// [`Options::post_trigger`].
    ///
    /// # Errors
    /// If the snapshot cannot be written, or the recording is finished meanwhile.
    pub fn snapshot(&self) -> Result<PathBuf> {
        let shared = self.shared();
        self.define(|_, _| Ok(()))?;
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

    /// Finishes the recording: what is raised from now on is counted in the status only. Later calls
    /// change nothing.
    pub fn finish(&self) -> Status {
        self.handle.core.finish();
        self.status()
    }

    /// Makes this the recorder that [`crate::region!`] uses; the last call counts. The process then
    /// keeps it until it exits.
    pub fn make_global(&self) {
        crate::global::set(self.clone());
    }

    /// Tells recorders of one process apart; never 0, and never used again.
    pub fn number(&self) -> u32 {
        self.shared().number
    }

    /// Whether this is a forked child, and the recording its parent's.
    pub fn is_inherited(&self) -> bool {
        self.handle.core.is_inherited()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The thread is the parent's; its handle would detach one of this process.
            std::mem::forget(lock(&self.writer).take());
        }
    }
}

impl Core {
    /// Whether this is a forked child, and the recording its parent's.
    fn is_inherited(&self) -> bool {
        std::process::id() != self.pid
    }

    fn finish(&self) {
        let shared = &self.shared;
        if self.is_inherited() {
            return;
        }
        shared.begin_to_finish();
        if !shared.guard.switch_off() {
            // Another thread is at it, or was.
            let begun = Instant::now();
            while !shared.is_writer_gone.load(Ordering::Acquire) && begun.elapsed() < LONGEST_FINISH
            {
                sys::pause(Duration::from_millis(1));
            }
            return;
        }
        sys::barrier_in_all_threads();
        let deadline = Instant::now() + SETTLE_TIME;
        for stream in shared.streams.all() {
            let busy = shared.memory.slot(stream.slot).busy();
            while busy.load(Ordering::Acquire) != 0 && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
        while !shared.is_settled() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        self.stop.store(true, Ordering::Release);
        shared.wake_writer();
        if let Some(writer) = lock(&self.writer).take() {
            let _ = writer.join();
        }
    }
}

/// Leaves its region when it goes.
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

/// The event type of entered regions, in every recording.
pub const ENTER: EventTypeId = EventTypeId::new(0);
/// The event type of left regions, in every recording.
pub const LEAVE: EventTypeId = EventTypeId::new(1);

fn define_type(
    shared: &Shared,
    registry: &mut Registry,
    spec: &EventTypeSpec,
    schema: &EventTypeSchema,
) -> Result<EventTypeId> {
    let wrong = |why: String| RecorderError::Definition {
        name: spec.name.clone(),
        why,
    };
    if spec.elements.len() != schema.elements.len() {
        return Err(wrong(format!(
            "{} elements are named, {} have a type",
            spec.elements.len(),
            schema.elements.len()
        )));
    }
    if schema.elements.len() > annals_format::MAX_ELEMENTS {
        return Err(wrong("at most 256 elements are possible".to_owned()));
    }
    for (index, element) in spec.elements.iter().enumerate() {
        if spec.elements[..index]
            .iter()
            .any(|e| e.name == element.name)
        {
            return Err(wrong(format!("two elements are named `{}`", element.name)));
        }
    }
    let key_element = match &spec.key_element {
        None => None,
        Some(key) => {
            let position = spec.elements.iter().position(|e| e.name == *key);
            let missing = || wrong(format!("the key `{key}` is not one of the elements"));
            Some(position.ok_or_else(missing)? as u8)
        }
    };
    registry.event_type(shared, &spec.name, |registry, id| {
        let mut elements = Vec::new();
        for (element, (element_type, is_optional)) in spec.elements.iter().zip(&schema.elements) {
            elements.push(registry.element(shared, element, *element_type, *is_optional)?);
        }
        Ok(EventTypeDefinition {
            id,
            name: registry.string(shared, &spec.name)?,
            description: registry.string(shared, &spec.description)?,
            verbosity: spec.verbosity,
            role: spec.role,
            key_element,
            elements,
        })
    })
}

fn define_world(shared: &Shared, registry: &mut Registry, name: &str) -> Result<()> {
    let world = World {
        process: PROCESS,
        name: registry.string(shared, name)?,
        first_rank: 0,
    };
    registry.add(shared, Definition::World(world))
}

fn define_process(
    shared: &Shared,
    options: &Options,
    id: RecordingId,
    run: &str,
    host: &str,
) -> Result<()> {
    let registry = &mut *lock(&shared.registry);
    registry.string(shared, "")?;
    let arguments = sys::arguments();
    let process = Process {
        id: PROCESS,
        recording_id: id,
        run: registry.string(shared, run)?,
        host: registry.string(shared, host)?,
        boot_id: sys::boot_id(),
        pid: std::process::id(),
        start_unix_ns: unix_ns(),
        start_reference_ns: reference_ns(),
        command: registry.string(shared, &arguments.join(" "))?,
    };
    registry.add(shared, Definition::Process(process))?;
    if let Some(rank) = options.rank {
        let rank = Rank {
            process: PROCESS,
            rank,
            rank_count: options.rank_count,
            is_assigned: false,
        };
        registry.add(shared, Definition::Rank(rank))?;
        if let Some(name) = &options.world {
            define_world(shared, registry, name)?;
        }
    }
    // Absolute, and only then useful: readers look beside the recording first.
    let live_file = shared.memory.path().map(std::path::absolute);
    let live_file = live_file
        .and_then(std::result::Result::ok)
        .unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    let properties = [
        ("executable", executable.to_string_lossy().into_owned()),
        ("directory", directory.to_string_lossy().into_owned()),
        ("processors", sys::processors()),
        ("affinity", sys::affinity()),
        ("system", sys::kernel()),
        ("recorder", format!("annals {}", env!("CARGO_PKG_VERSION"))),
        (
            names::property::LIVE_FILE,
            live_file.to_string_lossy().into_owned(),
        ),
    ];
    for (key, value) in properties {
        registry.property(shared, key, &value)?;
    }
    if let Ok(command) = std::env::var(RECORDED_BY) {
        registry.property(shared, names::property::RECORDED_BY, &command)?;
    }
    match TickSource::choose(options.clock) {
        TickSource::Tsc => {
            let (rate, error_ppb) = clock::tsc_rate();
            registry.clock(shared, "tsc", TickSource::Tsc, rate, error_ppb, u64::MAX)?;
        }
        _ => {
            let reference = TickSource::Reference;
            registry.clock(shared, "monotonic", reference, 1_000_000_000, 0, u64::MAX)?;
        }
    }
    let source = registry.source(
        shared,
        "threads",
        "the program's threads",
        SourceOrder::Ordered,
        ClockId::new(0),
        (None, false),
    )?;
    debug_assert_eq!(source, THREADS);
    for (name, role, description) in [
        ("enter", Role::Enter, "a region was entered"),
        ("leave", Role::Leave, "a region was left"),
    ] {
        let spec = EventTypeSpec::new(name)
            .description(description)
            .verbosity(Verbosity::UserBasic)
            .role(role)
            .reference(element::REGION, Reference::Region);
        define_type(shared, registry, &spec, &<(RegionId,)>::schema())?;
    }
    Ok(())
}

/// What goes wrong with a file, from the system's word.
fn in_file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RecorderError {
    let path = path.to_owned();
    move |source| RecorderError::Io {
        action,
        path,
        source,
    }
}

fn file_name_part(text: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') {
            c
        } else {
            '_'
        }
    };
    let mut name: String = text.chars().map(safe).take(64).collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
}

fn live_path(options: &Options, recording: &Path) -> PathBuf {
    let mut name = recording
        .file_name()
        .map(std::ffi::OsStr::to_owned)
        .unwrap_or_default();
    name.push("-live");
    let in_memory = Path::new("/dev/shm");
    let directory = match &options.live_directory {
        Some(directory) => directory.as_path(),
        None if sys::is_network_file_system(&options.directory) && in_memory.is_dir() => in_memory,
        None => &options.directory,
    };
    directory.join(name)
}

/// Start of this process in the system's units. Not kept: a forked child has its own.
fn process_start() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name, field 2, may hold spaces and parentheses; field 22 is the start.
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = behind_name.split_whitespace().nth(19);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}
