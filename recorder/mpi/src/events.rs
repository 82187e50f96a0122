//! The library's own events (MPI_T): all its sources and event types, also those that appear later,
//! recorded from type information alone.
//!
//! Rules that hold for all libraries cover what the standard leaves open and what libraries get
//! wrong: the interface is begun once, and released only where a library requires that; one
//! callback, which takes no lock, is registered at every level that is safe; payloads that a
//! library cannot provide are not requested; and sources are read only from calls of the program,
//! never from threads of this library or inside a callback.
#![expect(
    unsafe_code,
    reason = "functions of a C library, found at run time, and callbacks for it"
)]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use annals_recorder::{
    ClockId, ClockSpec, DynamicEventType, ENTER, ElementType, EventTypeSchema, EventTypeSpec,
    LEAVE, Recorder, Reference, SourceId, SourceSpec, Value, Verbosity, say,
};

use crate::abi::{Abi, AbiKind};
use crate::handles::HandleMap;
use crate::library::{self, library_functions};
use crate::mpi_t::{self, Constants, TEXT_ROOM, element_type, text};
use crate::performance;
use crate::settings::{self, Chosen, words};
use crate::sync::lock;

/// Default pairs of name endings of event types that begin and end a region.
const PAIRS: &str = "_begin=_end _start=_end _start=_stop _started=_completed _started=_complete \
                     _enter=_exit _enter=_leave _entered=_left";

/// Maximum number of elements of an event's payload that are recorded.
const MOST_ELEMENTS: usize = 16;
/// Period at which the clocks of sources are tied to the reference clock: the period of the
/// recorder's own clock.
const CALIBRATION_PERIOD_NS: i64 = 1_000_000_000;
/// Maximum number of sources that are distinguished.
const MOST_SOURCES: usize = 64;
type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void);
type Dropped = unsafe extern "C" fn(i64, *mut c_void, c_int, c_int, *mut c_void);

library_functions! {
    Interface;
    source_get_num c"PMPI_T_source_get_num" (count: *mut c_int);
    source_get_info c"PMPI_T_source_get_info"
        (index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char, desc_len: *mut c_int,
            ordering: *mut c_int, ticks: *mut i64, max: *mut i64, info: *mut usize);
    source_get_timestamp c"PMPI_T_source_get_timestamp" (index: c_int, tick: *mut i64);
    event_get_num c"PMPI_T_event_get_num" (count: *mut c_int);
    event_get_info c"PMPI_T_event_get_info"
        (index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, types: *mut usize,
            displacements: *mut isize, elements: *mut c_int, names: *mut usize, info: *mut usize,
            desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int);
    event_handle_alloc c"PMPI_T_event_handle_alloc"
        (index: c_int, object: *const usize, info: usize, registration: *mut *mut c_void);
    event_register_callback c"PMPI_T_event_register_callback"
        (registration: *mut c_void, level: c_int, info: usize, data: *const c_void, callback: Callback);
    event_set_dropped_handler c"PMPI_T_event_set_dropped_handler"
        (registration: *mut c_void, handler: Dropped);
    event_handle_free c"PMPI_T_event_handle_free"
        (registration: *mut c_void, data: *const c_void, callback: *const c_void);
    event_read c"PMPI_T_event_read" (instance: *mut c_void, element: c_int, to: *mut u64);
    event_get_timestamp c"PMPI_T_event_get_timestamp" (instance: *mut c_void, tick: *mut i64);
    event_get_source c"PMPI_T_event_get_source" (instance: *mut c_void, source: *mut c_int);
    cvar_get_num c"PMPI_T_cvar_get_num" (count: *mut c_int);
    cvar_get_info c"PMPI_T_cvar_get_info"
        (index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, datatype: *mut usize,
            names: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int, scope: *mut c_int);
    cvar_handle_alloc c"PMPI_T_cvar_handle_alloc"
        (index: c_int, object: *const c_void, handle: *mut *mut c_void, count: *mut c_int);
    cvar_handle_free c"PMPI_T_cvar_handle_free" (handle: *mut *mut c_void);
    cvar_read c"PMPI_T_cvar_read" (handle: *mut c_void, to: *mut c_void);
    enum_get_item c"PMPI_T_enum_get_item"
        (names: usize, index: c_int, value: *mut c_int, name: *mut c_char, name_len: *mut c_int);
}

/// Defects of a library, by its version text.
#[derive(Clone, Copy, Debug)]
struct Quirks {
    /// Reading a payload aborts the process.
    has_no_payload: bool,
    /// The handle that it returns for the names of elements is not valid.
    has_no_names: bool,
    /// Callbacks above MPI_RESTRICTED are never called and damage memory.
    is_restricted: bool,
    /// Each query returns an info that prevents some work of the library when MPI begins. The
    /// library returns no info if none is requested.
    gives_infos: bool,
    /// The last drops are reported when a registration is freed, even after MPI_Finalize.
    tells_rest_when_freed: bool,
}

/// Returns whether the interface must be released before the last instance of MPI ends.
/// Otherwise the next instance has no shared memory: Open MPI (main branch of 2026,
/// `ompi/mpi/tool/finalize.c.in`) closes its components for good only then. MPICH's must be
/// released after that: it removes the variables that the library itself still uses
/// (`src/mpi_t/mpit_finalize.c`).
fn must_end_before_mpi() -> bool {
    library::version().contains("Open MPI")
}

impl Quirks {
    fn of(abi: &Abi, version: &str) -> Self {
        // MPICH 4.3.2, 5.0.1 and its main branch of 2026, 5.1.0a1: event_read and event_copy end in
        // an assertion about datatypes, and `enumtype` is not filled in; its library for the
        // standard's binary interface never delivers at the two highest levels. No earlier version
        // is known to be better.
        let is_mpich = version.contains("MPICH");
        // Open MPI's main branch of 2026, 6.1.0a1.
        let is_open_mpi = version.contains("Open MPI");
        let is_bad = is_mpich && mpich_version(version).is_none_or(|version| version < (5, 2));
        let has_no_payload = match std::env::var(settings::PAYLOADS)
            .unwrap_or_default()
            .as_str()
        {
            "on" => false,
            "off" => true,
            "" | "auto" => is_bad,
            other => {
                let found = other.escape_debug();
                settings::note(format!(
                    "{}: `on`, `off` or `auto` were expected, found `{found}`",
                    settings::PAYLOADS
                ));
                is_bad
            }
        };
        Self {
            has_no_payload,
            has_no_names: is_bad,
            is_restricted: is_mpich && abi.kind == AbiKind::Standard,
            gives_infos: is_open_mpi,
            tells_rest_when_freed: is_open_mpi,
        }
    }
}

/// Reads the major and minor version of MPICH from its version text:
/// `MPICH Version: 5.0.2`.
fn mpich_version(said: &str) -> Option<(u32, u32)> {
    let (_, behind) = said.split_once("MPICH Version:")?;
    let mut numbers = behind.trim_start().split(['.', '\n']);
    let mut number = || numbers.next()?.trim().parse().ok();
    Some((number()?, number()?))
}

/// One event type of the library's; never freed.
#[derive(Debug)]
struct Known {
    event_type: DynamicEventType,
    elements: Vec<ElementType>,
    /// Whether the payload can be read.
    has_payload: bool,
    /// The object that the registration is bound to.
    object: Option<u32>,
    half: Option<Half>,
    /// Number of events whose source was not known yet.
    early: AtomicU64,
}

/// An event type that begins or ends a region.
#[derive(Clone, Copy, Debug)]
struct Half {
    /// Number of the region, plus 1. 0 means that there is no event type for the other end.
    region: &'static AtomicU32,
    is_begin: bool,
}

/// Ends of names that make pairs.
#[derive(Debug)]
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn from_env() -> Result<Self, String> {
        let list = std::env::var(settings::PAIRS).unwrap_or_default();
        let list = match list.trim() {
            "" => PAIRS,
            "none" => "",
            list => list,
        };
        let pair = |word: &str| match word.split_once('=') {
            Some((begin, end)) if !begin.is_empty() && !end.is_empty() => {
                Ok((begin.to_owned(), end.to_owned()))
            }
            _ => Err(format!(
                "{}: pairs such as `_begin=_end` were expected, found `{}`",
                settings::PAIRS,
                word.escape_debug()
            )),
        };
        words(list).map(pair).collect::<Result<_, _>>().map(Self)
    }

    /// Returns what an event type may be half of: the names of region and other half, and whether
    /// it begins.
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, String, bool)> {
        let each = self
            .0
            .iter()
            .flat_map(|(begin, end)| [(begin, end, true), (end, begin, false)]);
        each.filter_map(move |(own, other, is_begin)| {
            let region = name.strip_suffix(own.as_str())?;
            Some((region, format!("{region}{other}"), is_begin))
        })
    }
}

/// Event types by their index, for those that are bound to objects of the program's.
#[derive(Clone, Debug)]
struct Bound {
    index: i32,
    to_window: bool,
    event_type: DynamicEventType,
    elements: Vec<ElementType>,
    has_payload: bool,
    half: Option<Half>,
}

/// The progress of searching.
#[derive(Debug)]
struct Progress {
    sources: i32,
    events: i32,
    bound: Vec<Bound>,
    chosen: Option<Chosen>,
    /// Event types that are half of a pair, by name.
    halves: HashMap<String, Half>,
}

/// Everything that callbacks need.
#[derive(Debug)]
struct Events {
    interface: Interface,
    recorder: &'static Recorder,
    quirks: Quirks,
    abi: Abi,
    pairs: Pairs,
    progress: Mutex<Progress>,
}

/// The events. Empty if the library has none, or the user wants none. Never freed.
static EVENTS: std::sync::OnceLock<Events> = std::sync::OnceLock::new();
/// The recorder's id of each source, plus 1, by the library's index.
static SOURCES: [AtomicU32; MOST_SOURCES] = [const { AtomicU32::new(0) }; MOST_SOURCES];
/// The recorder's id of each source's clock, plus 1, by the library's index.
static CLOCKS: [AtomicU32; MOST_SOURCES] = [const { AtomicU32::new(0) }; MOST_SOURCES];
/// Time at which the clocks of the sources were last tied to the reference clock. 0 means never.
static CALIBRATED_NS: AtomicI64 = AtomicI64::new(0);
/// Object that a registration is bound to: whether it is a window, and its handle.
type BoundTo = Option<(bool, usize)>;

/// All registrations, by the object that they are bound to.
static REGISTRATIONS: Mutex<BTreeMap<BoundTo, Vec<usize>>> = Mutex::new(BTreeMap::new());
/// Held while registrations are made or freed: a new one may have the address of a freed one.
static REGISTERING: Mutex<()> = Mutex::new(());
/// By registration: Open MPI's dropped handler gets no user data.
static REGISTERED: HandleMap<Known> = HandleMap::new();
/// Whether there were events or variables when the interface was released, so that later ones are
/// missing.
static IS_MISSED: AtomicBool = AtomicBool::new(false);
/// Returns the events, as long as the interface is not released.
fn active() -> Option<&'static Events> {
    EVENTS.get().filter(|_| !mpi_t::is_released())
}

/// Begins to record events. Called once, before MPI_Init.
pub(crate) fn begin(recorder: &'static Recorder, abi: &Abi, version: &str) -> Result<(), String> {
    let chosen = Chosen::from_env(settings::EVENTS)?;
    if chosen.as_ref().is_some_and(|chosen| chosen.is_only("none")) {
        return Ok(());
    }
    let pairs = Pairs::from_env()?;
    let interface = Interface::load();
    let has_events = interface.event_get_num.is_there() && interface.source_get_num.is_there();
    if !has_events || !mpi_t::is_there(abi) {
        chosen.iter().for_each(note_unused);
        return Ok(());
    }
    let events = Events {
        interface,
        recorder,
        quirks: Quirks::of(abi, version),
        abi: abi.clone(),
        pairs,
        progress: Mutex::new(Progress {
            sources: 0,
            events: 0,
            bound: Vec::new(),
            chosen,
            halves: HashMap::new(),
        }),
    };
    let _ = EVENTS.set(events);
    if let Some(events) = EVENTS.get() {
        events.poll_sources();
        let sources = lock(&events.progress).sources;
        events.calibrate_all(sources);
    }
    mpi_t::start_ticker();
    Ok(())
}

fn note_unused(chosen: &Chosen) {
    chosen.note_unused(settings::EVENTS, "event type");
}

/// Notes which of the names that the user chose match no event type so far. Called when MPI_Init
/// has returned.
pub(crate) fn note_unused_names() {
    if let Some(events) = active() {
        lock(&events.progress).chosen.iter().for_each(note_unused);
    }
}

/// Records the present values of the chosen control variables as properties of the recording.
pub(crate) fn write_variables(recorder: &Recorder, abi: &Abi) -> Result<(), String> {
    let Some(chosen) = Chosen::from_env(settings::CVARS)? else {
        return Ok(());
    };
    let interface = Interface::load();
    let mut count = 0;
    // SAFETY: a valid place.
    if !mpi_t::is_there(abi) || !unsafe { interface.cvar_get_num(&raw mut count) } {
        return Ok(());
    }
    for index in 0..count {
        let mut name = [0; TEXT_ROOM];
        let mut desc = [0; TEXT_ROOM];
        let (mut name_len, mut desc_len) = (TEXT_ROOM as c_int, TEXT_ROOM as c_int);
        let (mut verbosity, mut datatype, mut enumeration, mut bind, mut scope) = (0, 0, 0, 0, 0);
        // SAFETY: valid places, and how long they are.
        let is_there = unsafe {
            interface.cvar_get_info(
                index,
                name.as_mut_ptr(),
                &raw mut name_len,
                &raw mut verbosity,
                &raw mut datatype,
                &raw mut enumeration,
                desc.as_mut_ptr(),
                &raw mut desc_len,
                &raw mut bind,
                &raw mut scope,
            )
        };
        let name = text(&name);
        let is_bound = bind != Constants::of(abi.kind).no_object;
        if !is_there || is_bound || !chosen.has(&name) {
            continue;
        }
        if let Some(value) = variable(&interface, abi, index, datatype) {
            let key = format!("mpi.cvar.{name}");
            recorder
                .add_property(&key, &value)
                .map_err(|error| error.to_string())?;
        }
    }
    chosen.note_unused(settings::CVARS, "control variable");
    Ok(())
}

/// Returns the value of a control variable as text.
fn variable(interface: &Interface, abi: &Abi, index: i32, datatype: usize) -> Option<String> {
    /// Maximum number of bytes of a variable that is read.
    const ROOM: usize = 1 << 16;
    let is_text = match abi.kind {
        AbiKind::Mpich => abi.handle(datatype) == 0x4c00_0101,
        AbiKind::OpenMpi => library::object(c"ompi_mpi_char") == datatype && datatype != 0,
        AbiKind::Standard => datatype == 0x243,
    };
    let element = element_type(abi, datatype);
    let width = match element {
        _ if is_text => 1,
        Some(ElementType::I32 | ElementType::U32) => 4,
        Some(_) => 8,
        None => return None,
    };
    let (mut handle, mut count) = (null_mut(), 0);
    // SAFETY: bound to nothing, and valid places.
    if !unsafe { interface.cvar_handle_alloc(index, null(), &raw mut handle, &raw mut count) } {
        return None;
    }
    let count = usize::try_from(count).unwrap_or(0);
    let mut bytes = vec![0_u8; ROOM];
    // SAFETY: the handle just made; as many bytes as the library announced, and not more than there
    // are.
    let is_read =
        count * width < ROOM && unsafe { interface.cvar_read(handle, bytes.as_mut_ptr().cast()) };
    // SAFETY: the handle just made; as many bytes as the library announced, and not more than there
    // are.
    unsafe { interface.cvar_handle_free(&raw mut handle) };
    if !is_read {
        return None;
    }
    if is_text {
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        return Some(annals_recorder::text_of(text.to_bytes()).into_owned());
    }
    let values = bytes[..count * width].chunks_exact(width).map(|bytes| {
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        match element {
            Some(ElementType::I32) => (word as u32 as i32).to_string(),
            Some(ElementType::I64) => (word as i64).to_string(),
            Some(ElementType::F64) => f64::from_bits(word).to_string(),
            _ => word.to_string(),
        }
    });
    Some(values.collect::<Vec<String>>().join(" "))
}

/// Searches for new sources and event types, and lets the library deliver events.
/// Called from a call of the program, not in a callback.
#[cold]
#[inline(never)]
pub(crate) fn poll() {
    mpi_t::set_due(false);
    performance::sample();
    let Some(events) = active() else { return };
    events.poll_sources();
    // If this fails, another thread is already polling.
    let Ok(sources) = events.progress.try_lock().map(|progress| progress.sources) else {
        return;
    };
    let now_ns = Recorder::reference_ns();
    let last_ns = CALIBRATED_NS.load(Ordering::Relaxed);
    if last_ns == 0 || now_ns - last_ns >= CALIBRATION_PERIOD_NS {
        CALIBRATED_NS.store(now_ns, Ordering::Relaxed);
        return events.calibrate_all(sources);
    }
    for index in 0..sources {
        // Some sources deliver events in this call: the lock is not held.
        let _ = events.read_clock(index);
    }
}

/// Polls for the last time, before MPI_Finalize.
pub(crate) fn finish() {
    CALIBRATED_NS.store(0, Ordering::Relaxed);
    poll();
}

/// Adds an object of the program to which event types may be bound.
pub(crate) fn bind(handle: usize, object: u32, is_window: bool) {
    let Some(events) = active() else { return };
    let bound: Vec<Bound> = {
        let progress = lock(&events.progress);
        let fitting = progress
            .bound
            .iter()
            .filter(|bound| bound.to_window == is_window);
        fitting.cloned().collect()
    };
    for bound in bound {
        events.register(bound.index, Some((handle, object)), &bound);
    }
}

/// Removes an object of the program, and first all registrations bound to it.
/// Otherwise the library would continue to deliver for the next object with the same handle, and
/// would have no room for more.
pub(crate) fn unbind(handle: usize, is_window: bool) {
    if let Some(events) = active() {
        events.free(Some((is_window, handle)));
    }
}

/// Collects, after MPI_Finalize, what the library has not reported yet, if it does that now.
pub(crate) fn end() {
    let Some(events) = active() else { return };
    if events.quirks.tells_rest_when_freed {
        events.free_all();
    }
}

/// Prepares for the end of the last session, if MPI was not begun otherwise.
pub(crate) fn before_last_end(recorder: &Recorder) {
    if must_end_before_mpi() {
        finish();
        release(recorder);
        if IS_MISSED.load(Ordering::Acquire) {
            let what = "the library's own events and performance variables (MPI_T) are recorded until the last session ends, \
                        not while it ends";
            let _ = recorder.add_property("mpi.t.released", what);
        }
    }
}

/// Prepares for MPI to begin again after its end.
pub(crate) fn before_next_begin(recorder: &Recorder) {
    release(recorder);
    if IS_MISSED.load(Ordering::Acquire) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let what = "MPI begins a second time: from here on, its own events and performance variables (MPI_T) are \
                        neither recorded nor counted, because MPI libraries fail when a tool keeps them";
            settings::note(what.to_owned());
            let _ = recorder.add_property("mpi.t.ended", what);
        });
    }
}

/// Releases the interface and all handles of it, for good. MPICH (its main branch of 2026,
/// `src/mpi_t/mpit.c`) ends the process with `Assertion pvar->active != TRUE` when it begins again
/// while a tool still has it: the variables of the first time are there, then.
fn release(recorder: &Recorder) {
    if !mpi_t::has_begun() || recorder.is_inherited() {
        return;
    }
    // Another thread that is searching for new sources must finish first.
    let events = EVENTS.get();
    let looking = events.map(|events| lock(&events.progress));
    if mpi_t::mark_released() {
        return;
    }
    drop(looking);
    let has_variables = performance::release();
    let has_events = !lock(&REGISTRATIONS).is_empty();
    IS_MISSED.store(has_variables || has_events, Ordering::Release);
    if let Some(events) = events {
        events.free_all();
    }
    mpi_t::release();
}

impl Events {
    fn free_all(&self) {
        let all: Vec<_> = lock(&REGISTRATIONS).keys().copied().collect();
        all.into_iter().for_each(|bound_to| self.free(bound_to));
    }

    /// Frees the registrations that are bound to something.
    fn free(&self, bound_to: BoundTo) {
        let of = lock(&REGISTRATIONS).remove(&bound_to);
        for registration in of.into_iter().flatten() {
            let place = std::ptr::with_exposed_provenance_mut(registration);
            let _registering = lock(&REGISTERING);
            // SAFETY: what `register` obtained, once. It reports drops during this call: callbacks
            // take no lock.
            unsafe { self.interface.event_handle_free(place, null(), null()) };
            REGISTERED.remove(registration);
        }
    }

    /// Reports that the library has no room for another registration: events are raised that are
    /// neither recorded nor counted.
    fn tell_unregistered(&self, index: i32) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let what = "the MPI library takes no more registrations: from here on, events of new objects and types \
                        are neither recorded nor counted";
            say(format_args!("{what} (event type {index})"));
            let _ = self.recorder.add_property("mpi.t.unregistered", what);
        });
    }

    /// Returns the address to which a library may write an info, or null if it must not.
    fn place_of_info(&self, info: &mut usize) -> *mut usize {
        if self.quirks.gives_infos {
            null_mut()
        } else {
            info
        }
    }

    /// Reads a source's clock.
    /// Returns `None` if it cannot be read.
    fn read_clock(&self, index: i32) -> Option<u64> {
        let mut tick = 0;
        // SAFETY: a valid place.
        let is_read = unsafe { self.interface.source_get_timestamp(index, &raw mut tick) };
        is_read.then(|| u64::try_from(tick).ok()).flatten()
    }

    /// Ties the clocks of the given number of sources to the reference clock.
    fn calibrate_all(&self, sources: i32) {
        for (index, clock) in (0..sources).zip(&CLOCKS) {
            let clock = clock.load(Ordering::Acquire).checked_sub(1);
            // Some sources deliver events in this call: the lock is not held.
            let now = self.read_clock(index).map(Cell::new);
            if let (Some(clock), Some(now)) = (clock, now) {
                let read = || {
                    now.set(self.read_clock(index).unwrap_or(now.get()));
                    now.get()
                };
                // When nothing can be defined any more, its events place it.
                let _ = self.recorder.calibrate(ClockId::new(clock), read);
            }
        }
    }

    fn poll_sources(&self) {
        let Ok(mut progress) = self.progress.try_lock() else {
            // Another thread is already polling, or this one is in a callback.
            return;
        };
        let (mut sources, mut events) = (0, 0);
        // SAFETY: a valid place.
        unsafe { self.interface.source_get_num(&raw mut sources) };
        // SAFETY: a valid place.
        unsafe { self.interface.event_get_num(&raw mut events) };
        // Counts may shrink, and indices may have holes: each missing index is requested once.
        for index in progress.sources..sources.min(MOST_SOURCES as i32) {
            self.add_source(index);
        }
        progress.sources = progress.sources.max(sources.min(MOST_SOURCES as i32));
        let new = progress.events..events;
        progress.events = progress.events.max(events);
        for index in new {
            self.add_event(index, &mut progress);
        }
    }

    fn add_source(&self, index: i32) {
        let mut name = [0; TEXT_ROOM];
        let mut desc = [0; TEXT_ROOM];
        let (mut name_len, mut desc_len) = (TEXT_ROOM as c_int, TEXT_ROOM as c_int);
        let (mut ordering, mut ticks, mut max, mut info) = (0, 0, 0, self.abi.info_null);
        let info = self.place_of_info(&mut info);
        // SAFETY: valid places, and how long they are.
        let is_there = unsafe {
            self.interface.source_get_info(
                index,
                name.as_mut_ptr(),
                &raw mut name_len,
                desc.as_mut_ptr(),
                &raw mut desc_len,
                &raw mut ordering,
                &raw mut ticks,
                &raw mut max,
                info,
            )
        };
        if !is_there || ticks <= 0 {
            return;
        }
        let name = text(&name);
        // Not to be read by the recorder's threads, but from the program's calls.
        let clock = ClockSpec::unreadable(&name, ticks as u64);
        let clock = clock.max_ticks(
            u64::try_from(max)
                .ok()
                .filter(|max| *max > 0)
                .unwrap_or(u64::MAX),
        );
        let Ok(clock) = self.recorder.add_clock(&clock) else {
            return;
        };
        CLOCKS[index as usize].store(clock.get() + 1, Ordering::Release);
        let is_ordered = ordering == Constants::of(self.abi.kind).ordered;
        let spec = if is_ordered {
            SourceSpec::ordered(&name)
        } else {
            SourceSpec::unordered(&name)
        };
        let spec = spec.description(text(&desc)).clock(clock).own_location();
        if let Ok(source) = self.recorder.add_source(&spec) {
            SOURCES[index as usize].store(source.get() + 1, Ordering::Release);
        }
    }

    /// Returns the names of an event type's elements, as far as the library provides them.
    fn element_names(&self, names: usize, count: usize) -> Vec<String> {
        let mut found: Vec<String> = (0..count).map(|index| format!("element{index}")).collect();
        if names == 0 || self.quirks.has_no_names {
            return found;
        }
        for (index, name) in found.iter_mut().enumerate() {
            let (mut value, mut length) = (0, TEXT_ROOM as c_int);
            let mut place = [0; TEXT_ROOM];
            let to = (&raw mut value, place.as_mut_ptr(), &raw mut length);
            // SAFETY: an enumeration that the library returned, and valid places.
            let is_there = unsafe {
                self.interface
                    .enum_get_item(names, index as c_int, to.0, to.1, to.2)
            };
            let said = text(&place);
            if is_there && !said.is_empty() {
                *name = said;
            }
        }
        // Each name once: otherwise the recorder would reject them.
        let distinct: std::collections::BTreeSet<&String> = found.iter().collect();
        if distinct.len() != found.len() {
            found = (0..count).map(|index| format!("element{index}")).collect();
        }
        found
    }

    fn add_event(&self, index: i32, progress: &mut Progress) {
        let mut name = [0; TEXT_ROOM];
        let mut desc = [0; TEXT_ROOM];
        let (mut name_len, mut desc_len) = (TEXT_ROOM as c_int, TEXT_ROOM as c_int);
        let (mut verbosity, mut count) = (0, MOST_ELEMENTS as c_int);
        let mut types = [0_usize; MOST_ELEMENTS];
        let mut displacements = [0_isize; MOST_ELEMENTS];
        let (mut names, mut info, mut bind) = (0, self.abi.info_null, 0);
        let info = self.place_of_info(&mut info);
        // SAFETY: valid places, and how long they are.
        let is_there = unsafe {
            self.interface.event_get_info(
                index,
                name.as_mut_ptr(),
                &raw mut name_len,
                &raw mut verbosity,
                types.as_mut_ptr(),
                displacements.as_mut_ptr(),
                &raw mut count,
                &raw mut names,
                info,
                desc.as_mut_ptr(),
                &raw mut desc_len,
                &raw mut bind,
            )
        };
        let name = text(&name);
        let is_chosen = progress
            .chosen
            .as_ref()
            .is_none_or(|chosen| chosen.has(&name));
        if !is_there || !is_chosen {
            return;
        }
        let count = usize::try_from(count).unwrap_or(0).min(MOST_ELEMENTS);
        // MPICH's handles take four bytes each.
        let datatype = |at: usize| match self.abi.kind {
            AbiKind::Mpich => types[at / 2] >> (32 * (at % 2)) & 0xffff_ffff,
            AbiKind::OpenMpi | AbiKind::Standard => types[at],
        };
        let elements: Option<Vec<ElementType>> = (0..count)
            .map(|at| element_type(&self.abi, datatype(at)))
            .collect();
        let has_payload = elements.is_some() && !self.quirks.has_no_payload;
        let elements = elements.filter(|_| has_payload).unwrap_or_default();
        let no_object = Constants::of(self.abi.kind).no_object;
        let bound = match bind - no_object {
            0 => None,
            1 => Some(false),
            8 => Some(true),
            // Bound to a kind of object that this library does not know.
            _ => return,
        };
        let mut spec = EventTypeSpec::new(&name)
            .description(text(&desc))
            .verbosity(Verbosity::DeveloperAll);
        for element in self.element_names(names, elements.len()) {
            spec = spec.element(element);
        }
        let mut schema: Vec<(ElementType, bool)> =
            elements.iter().map(|element| (*element, false)).collect();
        if bound.is_some() {
            spec = spec.reference("bound to", Reference::Object);
            schema.push((ElementType::U32, false));
        }
        let schema = EventTypeSchema { elements: schema };
        let Ok(event_type) = self.recorder.add_dynamic_event_type(&spec, schema) else {
            return;
        };
        let of = Bound {
            index,
            to_window: bound == Some(true),
            event_type,
            elements,
            has_payload,
            half: self.half_of(&name, progress),
        };
        if bound.is_some() {
            progress.bound.push(of);
        } else {
            self.register(index, None, &of);
        }
    }

    /// Returns what an event type begins or ends; the region exists when both halves do.
    fn half_of(&self, name: &str, progress: &mut Progress) -> Option<Half> {
        let (mut of_region, mut found) = (None, None);
        for (region, other, is_begin) in self.pairs.of(name) {
            of_region.get_or_insert(is_begin);
            if let Some(other) = progress.halves.get(&other)
                && other.is_begin != is_begin
                && other.region.load(Ordering::Relaxed) == 0
                && let Ok(id) = self.recorder.add_region_at(region, "", 0, "mpi.t")
            {
                other.region.store(id.get() + 1, Ordering::Release);
                found = Some(Half {
                    region: other.region,
                    is_begin,
                });
                break;
            }
        }
        let half = found.or_else(|| {
            Some(Half {
                region: Box::leak(Box::new(AtomicU32::new(0))),
                is_begin: of_region?,
            })
        })?;
        progress.halves.insert(name.to_owned(), half);
        Some(half)
    }

    fn register(&self, index: i32, object: Option<(usize, u32)>, of: &Bound) {
        let known: &'static Known = Box::leak(Box::new(Known {
            event_type: of.event_type,
            elements: of.elements.clone(),
            has_payload: of.has_payload,
            object: object.map(|(_, object)| object),
            half: of.half,
            early: AtomicU64::new(0),
        }));
        let handle = object.map(|(handle, _)| handle);
        let place = handle.as_ref().map_or(null(), std::ptr::from_ref);
        let mut registration = null_mut();
        let info = self.abi.info_null;
        let _registering = lock(&REGISTERING);
        // SAFETY: the place of a valid handle or none, and a valid place. Libraries have a limit of
        // these.
        if !unsafe {
            self.interface
                .event_handle_alloc(index, place, info, &raw mut registration)
        } {
            self.tell_unregistered(index);
            return;
        }
        REGISTERED.insert(registration.addr(), known);
        let bound_to = handle.map(|handle| (of.to_window, handle));
        lock(&REGISTRATIONS)
            .entry(bound_to)
            .or_default()
            .push(registration.expose_provenance());
        // SAFETY: the registration just made. Before callbacks: no drop is missed between the two.
        unsafe {
            self.interface
                .event_set_dropped_handler(registration, on_dropped)
        };
        let levels = Constants::of(self.abi.kind).levels;
        let most = if self.quirks.is_restricted { 2 } else { 4 };
        let data: *const c_void = std::ptr::from_ref(known).cast();
        for level in &levels[..most] {
            // SAFETY: the registration just made; the callback's argument is never freed.
            unsafe {
                self.interface
                    .event_register_callback(registration, *level, info, data, on_event)
            };
        }
        let object = known.object.map(annals_recorder::ObjectId::new);
        let _ = self
            .recorder
            .add_registration(known.event_type.id(), object);
    }
}

unsafe extern "C" fn on_event(instance: *mut c_void, _: *mut c_void, _: c_int, data: *mut c_void) {
    let Some(events) = EVENTS.get() else { return };
    // SAFETY: what `register` passed, or null.
    let Some(known) = (unsafe { data.cast::<Known>().cast_const().as_ref() }) else {
        return;
    };
    let (mut source, mut tick) = (0, 0);
    // SAFETY: the library's instance, while the callback lasts, and a valid place.
    unsafe { events.interface.event_get_source(instance, &raw mut source) };
    // SAFETY: the library's instance, while the callback lasts, and a valid place.
    unsafe {
        events
            .interface
            .event_get_timestamp(instance, &raw mut tick)
    };
    let id = usize::try_from(source)
        .ok()
        .and_then(|index| SOURCES.get(index));
    let id = id.map_or(0, |id| id.load(Ordering::Acquire));
    let Some(id) = id.checked_sub(1) else {
        // Is handled in the program's next call.
        known.early.fetch_add(1, Ordering::Relaxed);
        mpi_t::set_due(true);
        return;
    };
    let early = known.early.swap(0, Ordering::Relaxed);
    if early != 0 {
        let (source, event_type) = (SourceId::new(id), known.event_type.id());
        events.recorder.report_dropped(source, event_type, early);
    }
    let mut values = [Value::Absent; MOST_ELEMENTS + 1];
    let mut count = 0;
    for element in &known.elements {
        let mut word = 0_u64;
        if known.has_payload {
            // SAFETY: what `register` passed; no element that is recorded is longer than a word.
            unsafe {
                events
                    .interface
                    .event_read(instance, count as c_int, &raw mut word)
            };
        }
        values[count] = match element {
            ElementType::I32 => Value::I32(word as u32 as i32),
            ElementType::U32 => Value::U32(word as u32),
            ElementType::I64 => Value::I64(word as i64),
            ElementType::F64 => Value::F64(f64::from_bits(word)),
            _ => Value::U64(word),
        };
        count += 1;
    }
    if let Some(object) = known.object {
        values[count] = Value::U32(object);
        count += 1;
    }
    let (source, tick) = (SourceId::new(id), Some(tick as u64));
    events
        .recorder
        .raise_dynamic(source, tick, &known.event_type, &values[..count]);
    if let Some(half) = known.half
        && let Some(region) = half.region.load(Ordering::Acquire).checked_sub(1)
    {
        let event_type = if half.is_begin { ENTER } else { LEAVE };
        let values: &[Value<'_>] = &[Value::U32(region)];
        // The recorder counts rejected events.
        let _ = events
            .recorder
            .raiser()
            .raise(source, tick, event_type, values);
    }
}

unsafe extern "C" fn on_dropped(
    count: i64,
    registration: *mut c_void,
    source: c_int,
    _: c_int,
    _: *mut c_void,
) {
    let (Some(events), Some(known)) = (EVENTS.get(), REGISTERED.get(registration.addr())) else {
        return;
    };
    let id = usize::try_from(source)
        .ok()
        .and_then(|index| SOURCES.get(index));
    let id = id.map_or(0, |id| id.load(Ordering::Acquire));
    if let (Some(id), Ok(count)) = (id.checked_sub(1), u64::try_from(count)) {
        let source = SourceId::new(id);
        events
            .recorder
            .report_dropped(source, known.event_type.id(), count);
    }
}
