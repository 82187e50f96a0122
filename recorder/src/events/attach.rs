//! The recorder as a tool: it registers for a runtime's events, and records them without knowing
//! any of them.
//!
//! Everything is made from what the interface reports: event types from names, datatypes and
//! descriptions, clocks from sources, metrics from performance variables. Of the recorder, only
//! what any program may use is used.

use annals_format::names::element;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use annals_format::wire::zigzag;
use annals_format::{
    ElementType, EventTypeSchema, ObjectId, Reference, Role, SourceId, Value as Recorded,
};
use globset::{Glob, GlobSet, GlobSetBuilder};

use super::cvar::CvarInfo;
use super::error::Error;
use super::instance::Instance;
use super::pvar::{PvarHandle, PvarSession};
use super::registration::{Callback, Registration};
use super::runtime::{Object, Runtime};
use super::table::Table;
use super::types::{Bind, Datatype, Info, ObjectHandle, Safety, Value};
use crate::builtin::THREADS;
use crate::error::RecorderError;
use crate::event_type::DynamicEventType;
use crate::recorder::Recorder;
use crate::row::{PutRow, RowCursor, VARINT_ROOM};
use crate::spec::{ClockSpec, EventTypeSpec, SourceSpec};

/// The parts of a runtime that are recorded.
#[derive(Clone, Debug)]
pub struct Attach {
    events: Vec<String>,
    pvars: Vec<String>,
    cvars: Vec<String>,
    sample_at: Vec<String>,
    period: Option<Duration>,
}

impl Default for Attach {
    fn default() -> Self {
        Self::new()
    }
}

impl Attach {
    /// Returns all event types, and all control variables as properties; no performance variables.
    pub fn new() -> Self {
        Self {
            events: vec!["*".to_owned()],
            pvars: Vec::new(),
            cvars: vec!["*".to_owned()],
            sample_at: Vec::new(),
            period: None,
        }
    }

    /// Selects only event types with these names; `*`, `?`, `[a-z]` and `{a,b}` are patterns.
    #[must_use]
    pub fn events(mut self, globs: &[&str]) -> Self {
        self.events = globs.iter().map(|&glob| glob.to_owned()).collect();
        self
    }

    /// Samples performance variables with these names, as metrics.
    #[must_use]
    pub fn pvars(mut self, globs: &[&str]) -> Self {
        self.pvars = globs.iter().map(|&glob| glob.to_owned()).collect();
        self
    }

    /// Selects only control variables with these names.
    #[must_use]
    pub fn cvars(mut self, globs: &[&str]) -> Self {
        self.cvars = globs.iter().map(|&glob| glob.to_owned()).collect();
        self
    }

    /// Samples the performance variables periodically, in a separate thread.
    /// Their producers' functions are called there.
    #[must_use]
    pub const fn sample_every(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Samples the performance variables after every event of these types, in the thread that
    /// raises it.
    #[must_use]
    pub fn sample_at(mut self, globs: &[&str]) -> Self {
        self.sample_at = globs.iter().map(|&glob| glob.to_owned()).collect();
        self
    }
}

/// Why a recorder could not be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A pattern is none.
    #[error("invalid pattern for names")]
    Pattern(#[from] globset::Error),
    /// The recorder refused something.
    #[error("the recorder refused a definition")]
    Recorder(#[from] RecorderError),
    /// The runtime refused something.
    #[error("the runtime refused a call")]
    Runtime(#[from] Error),
    /// The sampling thread could not be started.
    #[error("the sampling thread could not be started")]
    Thread(#[from] std::io::Error),
}

fn globs(patterns: &[String]) -> Result<GlobSet, AttachError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern)?);
    }
    Ok(set.build()?)
}

/// Sources of the recorder, by index of the runtime's.
type Sources = Box<[OnceLock<SourceId>]>;

/// Registrations and definitions so far.
#[derive(Default)]
struct Progress {
    sources: usize,
    objects: HashMap<usize, ObjectId>,
    /// Event types that are defined, or could not be.
    event_types: HashMap<i32, Option<DynamicEventType>>,
    registrations: Vec<Registered>,
    pvars: HashSet<(i32, Option<usize>)>,
    pvar_types: HashMap<i32, Option<DynamicEventType>>,
    cvars: HashSet<(i32, Option<usize>)>,
    problems: Vec<String>,
}

struct Registered {
    event_type: i32,
    /// Its place among the runtime's objects.
    object: Option<usize>,
    registration: Registration,
}

/// A performance variable that is sampled.
struct Sampled {
    handle: PvarHandle,
    items: usize,
    object: Option<ObjectId>,
    event_type: DynamicEventType,
}

struct Sampler {
    runtime: Runtime,
    recorder: Recorder,
    session: PvarSession,
    sampled: Table<Sampled>,
}

impl Sampler {
    /// Records every variable's value as it is now. Takes no lock.
    fn sample(&self) {
        for sampled in self.sampled.iter() {
            for item in 0..sampled.items {
                let read = self
                    .runtime
                    .pvar_read_item(self.session, sampled.handle, item);
                let Ok(value) = read else { continue };
                let mut text = [0; 1];
                let mut values = [Recorded::Absent; 3];
                values[0] = recorded(value, &mut text);
                let mut count = 1;
                if sampled.items > 1 {
                    values[count] = Recorded::U32(item as u32);
                    count += 1;
                }
                if let Some(object) = sampled.object {
                    values[count] = Recorded::U32(object.get());
                    count += 1;
                }
                let values = &values[..count];
                self.recorder
                    .raise_dynamic(THREADS, None, &sampled.event_type, values);
            }
        }
    }
}

struct Inner {
    runtime: Runtime,
    recorder: Recorder,
    events: GlobSet,
    pvars: GlobSet,
    cvars: GlobSet,
    sample_at: GlobSet,
    sources: Arc<Sources>,
    sampler: Arc<Sampler>,
    progress: Mutex<Progress>,
}

/// A recorder that is attached to a runtime, until this is dropped.
pub struct Attachment {
    inner: Arc<Inner>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").finish_non_exhaustive()
    }
}

/// Attaches a recorder to a runtime: it records what the runtime raises, and what is added later.
///
/// It records every instance of the event types, with its elements, on its source, which gets a
/// clock of the recorder; dropped instances, with the source's reasons; the registrations and what
/// they are bound to; performance variables as metrics, and control variables as properties `cvar
/// NAME` of the process.
///
/// The instances of a bound event type have an additional element, `object`.
///
/// # Errors
/// If a pattern is not valid, the recorder is finished, or the runtime cannot be asked here. What
/// cannot be recorded later, or as a single item, is reported by [`Attachment::problems`].
pub fn attach(
    runtime: &Runtime,
    recorder: &Recorder,
    what: &Attach,
) -> Result<Attachment, AttachError> {
    let session = runtime.pvar_session_create()?;
    let sampler = Sampler {
        runtime: runtime.clone(),
        recorder: recorder.clone(),
        session,
        sampled: Table::default(),
    };
    let inner = Arc::new(Inner {
        runtime: runtime.clone(),
        recorder: recorder.clone(),
        events: globs(&what.events)?,
        pvars: globs(&what.pvars)?,
        cvars: globs(&what.cvars)?,
        sample_at: globs(&what.sample_at)?,
        sources: Arc::new((0..256).map(|_| OnceLock::new()).collect()),
        sampler: Arc::new(sampler),
        progress: Mutex::default(),
    });
    let weak: Weak<Inner> = Arc::downgrade(&inner);
    runtime.on_change(move || {
        let inner = weak.upgrade();
        inner.is_some_and(|inner| {
            inner.search();
            true
        })
    });
    let mut attachment = Attachment {
        inner,
        stop: Arc::default(),
        thread: None,
    };
    attachment.inner.recorder.add_property("attached", "tool")?;
    attachment.inner.search();
    if let Some(period) = what.period {
        attachment.thread = Some(attachment.sample_every(period)?);
    }
    Ok(attachment)
}

impl Attachment {
    /// Looks for what was added to the runtime. It is done whenever something is; performance and
    /// control variables are looked for here only.
    pub fn look(&self) {
        self.inner.search();
    }

    /// Samples the performance variables now. Takes no lock.
    pub fn sample(&self) {
        self.inner.sampler.sample();
    }

    /// Returns what could not be recorded so far, and why.
    pub fn problems(&self) -> Vec<String> {
        self.inner.progress().problems.clone()
    }

    fn sample_every(&self, period: Duration) -> std::io::Result<JoinHandle<()>> {
        let stop = Arc::clone(&self.stop);
        let sampler = Arc::clone(&self.inner.sampler);
        let run = move || {
            let (is_over, changed) = &*stop;
            let mut guard = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                drop(guard);
                sampler.sample();
                let next = is_over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(next, period, |is_over| !*is_over);
                guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        let thread = std::thread::Builder::new().name("annals-sampler".to_owned());
        crate::sys::with_signals_blocked(|| thread.spawn(run))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.stop;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let runtime = &self.inner.runtime;
        for registered in self.inner.progress().registrations.drain(..) {
            // Events that were not reported yet are reported during this call.
            let _ = runtime.handle_free(registered.registration, None::<fn(Registration, Safety)>);
        }
        let _ = runtime.pvar_session_free(self.inner.sampler.session);
    }
}

const fn element_type(datatype: Datatype) -> ElementType {
    match datatype {
        Datatype::Int => ElementType::I32,
        Datatype::Unsigned => ElementType::U32,
        Datatype::UnsignedLong | Datatype::UnsignedLongLong => ElementType::U64,
        Datatype::Count => ElementType::I64,
        Datatype::Char => ElementType::String,
        Datatype::Double => ElementType::F64,
    }
}

/// Returns a value for the recorder; a character's byte needs a place.
#[inline]
fn recorded(value: Value, text: &mut [u8; 1]) -> Recorded<'_> {
    match value {
        Value::Int(value) => Recorded::I32(value),
        Value::Unsigned(value) => Recorded::U32(value),
        Value::UnsignedLong(value) | Value::UnsignedLongLong(value) => Recorded::U64(value),
        Value::Count(value) => Recorded::I64(value),
        Value::Double(value) => Recorded::F64(value),
        Value::Char(0) => Recorded::String(&[]),
        Value::Char(value) => {
            *text = [value];
            Recorded::String(text)
        }
    }
}

/// Data that a callback needs to record an instance: all that is known in advance.
struct Recording {
    recorder: Recorder,
    sources: Arc<Sources>,
    event_type: DynamicEventType,
    object: Option<ObjectId>,
    /// Most bytes that the elements take in a row.
    bound: usize,
    sampler: Option<Arc<Sampler>>,
}

/// An instance's row: its elements as the event type was defined from them, and its object. They
/// fit: the raise saw to it that they are those of the instance's event type, which stay the same
/// for ever.
#[derive(Clone, Copy)]
struct InstanceRow<'a> {
    instance: &'a Instance<'a>,
    object: Option<ObjectId>,
}

impl PutRow for InstanceRow<'_> {
    #[inline(always)]
    fn put(self, to: &mut RowCursor) {
        // A local cursor stays in a register.
        let mut row = *to;
        for value in self.instance.values {
            put_value(*value, &mut row);
        }
        if !self.instance.memory.is_empty() {
            row = put_memory(self.instance, row);
        }
        if let Some(object) = self.object {
            row.varint(object.get().into());
        }
        *to = row;
    }
}

/// Most bytes that a value of any datatype takes in a row.
const VALUE_BOUND: usize = VARINT_ROOM + 1;

/// Writes a value as one of its [`element_type`].
#[inline(always)]
fn put_value(value: Value, row: &mut RowCursor) {
    let integer = match value {
        Value::Int(value) => zigzag(value.into()),
        Value::Unsigned(value) => value.into(),
        Value::UnsignedLong(value) | Value::UnsignedLongLong(value) => value,
        Value::Count(value) => zigzag(value),
        Value::Double(value) => return row.word(value.to_bits()),
        Value::Char(0) => return row.bytes(&[]),
        Value::Char(value) => return row.bytes(&[value]),
    };
    row.varint(integer);
}

/// Writes the elements that lie in memory.
#[inline(never)]
fn put_memory(instance: &Instance<'_>, mut row: RowCursor) -> RowCursor {
    for element in 0..instance.element_count() {
        // The memory has all of them: this was checked when the event was raised.
        if let Ok(value) = instance.read(element) {
            put_value(value, &mut row);
        }
    }
    row
}

impl Recording {
    #[inline]
    fn record(&self, instance: &Instance<'_>) {
        let Some(source) = self.source(instance.source()) else {
            return;
        };
        // Where the time is not fixed, the recorder reads the same clock itself.
        let tick = instance.known_timestamp();
        let row = InstanceRow {
            instance,
            object: self.object,
        };
        let event_type = &self.event_type;
        self.recorder
            .raise_row(source, tick, event_type, self.bound, row);
        if let Some(sampler) = &self.sampler {
            sampler.sample();
        }
    }

    #[inline]
    fn source(&self, index: i32) -> Option<SourceId> {
        self.sources.get(index as usize)?.get().copied()
    }
}

impl Inner {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what is new.
    fn search(&self) {
        let progress = &mut *self.progress();
        self.look_for_sources(progress);
        let objects: Vec<&Object> = self.runtime.objects().collect();
        self.look_for_events(progress, &objects);
        self.look_for_pvars(progress, &objects);
        self.look_for_cvars(progress, &objects);
    }

    fn look_for_sources(&self, progress: &mut Progress) {
        let count = self.runtime.source_count() as usize;
        for index in progress.sources..count {
            progress.sources = index + 1;
            if let Err(error) = self.add_source(index) {
                let problem = format!("source {index}: {error}");
                progress.problems.push(problem);
            }
        }
    }

    fn add_source(&self, index: usize) -> Result<(), AttachError> {
        let info = self.runtime.source_info(index as i32)?;
        let mut source = match info.ordering {
            annals_format::SourceOrder::Ordered => SourceSpec::ordered(&info.name),
            annals_format::SourceOrder::Unordered => SourceSpec::unordered(&info.name),
        };
        source = source.description(&info.description);
        // The recorder's own clock is the same one, and its cheapest.
        if !(info.is_processor_clock && self.recorder.uses_processor_clock()) {
            let clock = if info.is_readable {
                let runtime = self.runtime.clone();
                let read = move || runtime.source_timestamp(index as i32).unwrap_or(0);
                ClockSpec::readable(&info.name, info.ticks_per_second, read)
            } else {
                ClockSpec::unreadable(&info.name, info.ticks_per_second)
            };
            let clock = clock.max_ticks(info.max_ticks);
            source = source.clock(self.recorder.add_clock(&clock)?);
        }
        let source = self.recorder.add_source(&source)?;
        if let Some(place) = self.sources.get(index) {
            let _ = place.set(source);
        }
        Ok(())
    }

    /// Returns the objects of a kind that something is bound to, by their place; of those with one
    /// handle, the last: handles are used again.
    fn bound_to(objects: &[&Object], bind: Bind) -> Vec<(Option<usize>, Option<ObjectHandle>)> {
        if bind == Bind::NoObject {
            return vec![(None, None)];
        }
        let mut last = HashMap::new();
        for (place, object) in objects.iter().enumerate() {
            if object.kind == bind {
                last.insert(object.handle, place);
            }
        }
        let mut bound: Vec<_> = last.into_iter().map(|(h, p)| (Some(p), Some(h))).collect();
        bound.sort_unstable();
        bound
    }

    fn object(
        &self,
        progress: &mut Progress,
        objects: &[&Object],
        place: usize,
    ) -> Result<ObjectId, RecorderError> {
        if let Some(id) = progress.objects.get(&place) {
            return Ok(*id);
        }
        let object = objects[place];
        let id = self.recorder.add_object(object.kind.name(), &object.name)?;
        progress.objects.insert(place, id);
        Ok(id)
    }

    fn look_for_events(&self, progress: &mut Progress, objects: &[&Object]) {
        for event_type in 0..self.runtime.event_count() {
            let Ok(info) = self.runtime.event_info(event_type) else {
                continue;
            };
            if !self.events.is_match(&info.name) {
                continue;
            }
            for (place, handle) in Self::bound_to(objects, info.bind) {
                let is_known =
                    |known: &Registered| known.event_type == event_type && known.object == place;
                if progress.registrations.iter().any(is_known) {
                    continue;
                }
                let registered = self.register(progress, objects, event_type, place, handle);
                if let Err(error) = registered {
                    let problem = format!("event type {}: {error}", info.name);
                    if !progress.problems.contains(&problem) {
                        progress.problems.push(problem);
                    }
                }
            }
            // A handle that names another object now: what it named before is no more.
            let bound = Self::bound_to(objects, info.bind);
            progress.registrations.retain(|known| {
                let is_kept = known.event_type != event_type
                    || bound.iter().any(|(place, _)| *place == known.object);
                if !is_kept {
                    let none = None::<fn(Registration, Safety)>;
                    let _ = self.runtime.handle_free(known.registration, none);
                }
                is_kept
            });
        }
    }

    fn define(&self, event_type: i32) -> Result<DynamicEventType, AttachError> {
        let info = self.runtime.event_info(event_type)?;
        let mut spec = EventTypeSpec::new(&info.name)
            .description(&info.description)
            .verbosity(info.verbosity);
        let mut schema = EventTypeSchema::default();
        let names = info
            .enumeration
            .map(|names| self.runtime.enumeration(names));
        let names = names.transpose()?;
        for (index, datatype) in info.datatypes.iter().enumerate() {
            let name = names.and_then(|names| names.name_of(index as i32));
            spec = match name {
                Some(name) => spec.element(name),
                None => spec.element(format!("element {index}")),
            };
            schema.elements.push((element_type(*datatype), false));
        }
        if info.bind != Bind::NoObject {
            let is_taken = names.is_some_and(|n| n.items.iter().any(|(_, n)| n == "object"));
            let name = if is_taken { "bound object" } else { "object" };
            spec = spec.reference(name, Reference::Object);
            schema.elements.push((ElementType::U32, false));
        }
        Ok(self.recorder.add_dynamic_event_type(&spec, schema)?)
    }

    fn register(
        &self,
        progress: &mut Progress,
        objects: &[&Object],
        event_type: i32,
        place: Option<usize>,
        handle: Option<ObjectHandle>,
    ) -> Result<(), AttachError> {
        let defined = match progress.event_types.get(&event_type) {
            Some(Some(defined)) => *defined,
            // It was tried, and the problem was reported.
            Some(None) => return Ok(()),
            None => {
                let defined = self.define(event_type);
                let kept = defined.as_ref().ok().cloned();
                progress.event_types.insert(event_type, kept);
                defined?
            }
        };
        let object = place.map(|place| self.object(progress, objects, place));
        let object = object.transpose()?;
        self.recorder.add_registration(defined.id(), object)?;
        let info = self.runtime.event_info(event_type)?;
        let samples = self.sample_at.is_match(&info.name);
        let recording = Arc::new(Recording {
            recorder: self.recorder.clone(),
            sources: Arc::clone(&self.sources),
            event_type: defined,
            object,
            bound: VALUE_BOUND * (info.datatypes.len() + usize::from(object.is_some())),
            sampler: samples.then(|| Arc::clone(&self.sampler)),
        });
        let registration = self
            .runtime
            .handle_alloc(event_type, handle, &Info::new())?;
        progress.registrations.push(Registered {
            event_type,
            object: place,
            registration,
        });
        let told = Arc::clone(&recording);
        let handler = move |dropped: &super::registration::Dropped| {
            let Some(source) = told.source(dropped.source) else {
                return;
            };
            let event_type = told.event_type.id();
            let lost = dropped.reported.saturating_add(dropped.undelivered);
            if lost != 0 {
                told.recorder.report_dropped(source, event_type, lost);
            }
            let unheard = dropped.no_callback.iter();
            let unheard = unheard.fold(0, |sum: u64, count| sum.saturating_add(*count));
            if unheard != 0 {
                told.recorder
                    .report_no_callbacks(source, event_type, unheard);
            }
        };
        self.runtime
            .set_dropped_handler(registration, Some(handler))?;
        // The most careful first: from here on, nothing is dropped for want of a callback.
        for level in Safety::ALL.into_iter().rev() {
            let recording = Arc::clone(&recording);
            let callback = Callback::new(move |instance, _, _| recording.record(instance));
            self.runtime
                .register_callback(registration, level, &Info::new(), Some(callback))?;
        }
        Ok(())
    }

    fn look_for_pvars(&self, progress: &mut Progress, objects: &[&Object]) {
        for index in 0..self.runtime.pvar_count() {
            let Ok(info) = self.runtime.pvar_info(index) else {
                continue;
            };
            if !self.pvars.is_match(&info.name) {
                continue;
            }
            for (place, handle) in Self::bound_to(objects, info.bind) {
                if !progress.pvars.insert((index, place)) {
                    continue;
                }
                if let Err(error) = self.add_pvar(progress, objects, index, place, handle) {
                    let problem = format!("performance variable {}: {error}", info.name);
                    progress.problems.push(problem);
                }
            }
        }
    }

    fn add_pvar(
        &self,
        progress: &mut Progress,
        objects: &[&Object],
        index: i32,
        place: Option<usize>,
        handle: Option<ObjectHandle>,
    ) -> Result<(), AttachError> {
        let info = self.runtime.pvar_info(index)?;
        let object = place.map(|place| self.object(progress, objects, place));
        let object = object.transpose()?;
        let session = self.sampler.session;
        let (handle, items) = self.runtime.pvar_handle_alloc(session, index, handle)?;
        if !info.is_continuous {
            self.runtime.pvar_start(session, handle)?;
        }
        let event_type = match progress.pvar_types.get(&index) {
            Some(Some(event_type)) => *event_type,
            Some(None) => return Ok(()),
            None => {
                let mut spec = EventTypeSpec::new(format!("{} ({})", info.name, info.class.name()))
                    .description(&info.description)
                    .verbosity(info.verbosity)
                    .role(Role::Metric)
                    .element(element::VALUE);
                let mut schema = EventTypeSchema::default();
                schema.elements.push((element_type(info.datatype), false));
                if items > 1 {
                    spec = spec.element("item");
                    schema.elements.push((ElementType::U32, false));
                }
                if object.is_some() {
                    spec = spec.reference("object", Reference::Object);
                    schema.elements.push((ElementType::U32, false));
                }
                let defined = self.recorder.add_dynamic_event_type(&spec, schema);
                let kept = defined.as_ref().ok().cloned();
                progress.pvar_types.insert(index, kept);
                defined?
            }
        };
        self.sampler.sampled.push_with(|_| Sampled {
            handle,
            items,
            object,
            event_type,
        });
        Ok(())
    }

    fn look_for_cvars(&self, progress: &mut Progress, objects: &[&Object]) {
        for index in 0..self.runtime.cvar_count() {
            let Ok(info) = self.runtime.cvar_info(index) else {
                continue;
            };
            if !self.cvars.is_match(&info.name) {
                continue;
            }
            for (place, handle) in Self::bound_to(objects, info.bind) {
                if !progress.cvars.insert((index, place)) {
                    continue;
                }
                let object = place.map(|place| objects[place]);
                if let Err(error) = self.add_cvar(index, info, object, handle) {
                    let problem = format!("control variable {}: {error}", info.name);
                    progress.problems.push(problem);
                }
            }
        }
    }

    fn add_cvar(
        &self,
        index: i32,
        info: &CvarInfo,
        object: Option<&Object>,
        handle: Option<ObjectHandle>,
    ) -> Result<(), AttachError> {
        let (handle, _) = self.runtime.cvar_handle_alloc(index, handle)?;
        let values = self.runtime.cvar_read(handle);
        let _ = self.runtime.cvar_handle_free(handle);
        let names = info
            .enumeration
            .map(|names| self.runtime.enumeration(names));
        let text = text_of(&values?, names.transpose()?);
        let key = match object {
            Some(object) => format!("cvar {} of {}", info.name, object.name),
            None => format!("cvar {}", info.name),
        };
        self.recorder.add_property(&key, &text)?;
        Ok(())
    }
}

/// Values as a text: characters up to the zero, else numbers, or their names.
fn text_of(values: &[Value], names: Option<&super::enumeration::EnumerationInfo>) -> String {
    let texts = values.iter().map(|value| match *value {
        Value::Int(value) => {
            let name = names.and_then(|names| names.name_of(value));
            name.map_or_else(|| value.to_string(), str::to_owned)
        }
        Value::Unsigned(value) => value.to_string(),
        Value::UnsignedLong(value) | Value::UnsignedLongLong(value) => value.to_string(),
        Value::Count(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Char(_) => String::new(),
    });
    let characters: Vec<u8> = values
        .iter()
        .map_while(|value| match value {
            Value::Char(0) => None,
            Value::Char(byte) => Some(*byte),
            _ => None,
        })
        .collect();
    if matches!(values.first(), Some(Value::Char(_))) {
        return annals_format::text_of(&characters).into_owned();
    }
    texts.collect::<Vec<_>>().join(", ")
}
