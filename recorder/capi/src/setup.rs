//! Starting, defining, looking, finishing.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals.h` requires of
//! it.
#![expect(
    unsafe_code,
    reason = "exported functions with pointers of the calling program"
)]

use annals_recorder::names::element;
use std::ffi::{OsStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use annals_recorder::{ElementType, EventTypeSchema, Options, Role, Rules, SETTINGS, THREADS};

use crate::call::{setup, with_recorder};
use crate::handle::{Clock, EventType, Recorder, Region, Source};
use crate::spec::{
    ClockSpec, EventTypeSpec, ReadClock, Setting, SourceSpec, Statistics, check_out, give_text,
    put, read_spec, slice, text, text_or_empty, write_statistics,
};
use crate::status::{Failure, Status};
use crate::table;

/// The environment is ignored.
pub const ENVIRONMENT_IGNORED: u32 = 0;
/// The environment overrides the settings.
pub const ENVIRONMENT_WINS: u32 = 1;
/// The settings override the environment.
pub const ENVIRONMENT_FILLS: u32 = 2;

/// The recorder that was made global.
/// 0 means none.
static GLOBAL: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
pub extern "C" fn annals_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// # Safety
/// - The pointers are NULL or valid, as the header has it. So for all functions here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_start(
    settings: *const Setting,
    count: usize,
    environment: u32,
    recorder: *mut Recorder,
) -> Status {
    setup(|| {
        check_out(recorder)?;
        let mut options = Options::new("annals-run");
        match environment {
            ENVIRONMENT_IGNORED | ENVIRONMENT_WINS => {}
            ENVIRONMENT_FILLS => options.set_from_env()?,
            other => {
                let why = format!("invalid value {other} for `environment`: expected 0, 1 or 2");
                return Err(Failure::new(Status::ErrorSetting, why));
            }
        }
        // SAFETY: invariant CALLER (module docs).
        for setting in unsafe { slice(settings, count) }? {
            // SAFETY: invariant CALLER (module docs).
            let (name, value) = unsafe { setting.read() }?;
            // Like an empty variable, an empty setting of this name is ignored.
            if !value.is_empty() || !SETTINGS.iter().any(|known| known.variable == name) {
                options.set(name, value)?;
            }
        }
        if environment == ENVIRONMENT_WINS {
            options.set_from_env()?;
        }
        let number = table::add(|| Ok(annals_recorder::Recorder::start(&options)?))?;
        // SAFETY: checked above.
        unsafe { put(recorder, Recorder::new(number)?) };
        Ok(())
    })
}

/// # Safety
/// - `statistics` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_finish(recorder: Recorder, statistics: *mut Statistics) -> Status {
    with_recorder(recorder, |recorder| {
        if recorder.is_inherited() {
            return Err(Status::ErrorForked.into());
        }
        let status = recorder.finish();
        if statistics.is_null() {
            return Ok(());
        }
        // SAFETY: invariant CALLER (module docs).
        unsafe { write_statistics(statistics, &status) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_free(recorder: Recorder) -> Status {
    setup(|| {
        if !table::remove(recorder.number()) {
            return Err(Status::ErrorHandle.into());
        }
        let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
        let _ = GLOBAL.compare_exchange(recorder.bits, 0, order, seen);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_make_global(recorder: Recorder) -> Status {
    with_recorder(recorder, |_| {
        GLOBAL.store(recorder.bits, Ordering::SeqCst);
        Ok(())
    })
}

/// Returns the global recorder, which is kept until the process ends from now on. If there is none, or this is a forked child and the
/// recorder is its parent's, `start` starts one, which is made global.
///
/// # Errors
/// If none can be started, or there are too many.
pub fn global_or(
    start: impl FnOnce() -> Result<annals_recorder::Recorder, Failure>,
) -> Result<&'static annals_recorder::Recorder, Failure> {
    let global = annals_global();
    if let Some(recorder) = table::pin(global.number())
        && !recorder.is_inherited()
    {
        return Ok(recorder);
    }
    let number = table::add(start)?;
    let made = Recorder::new(number)?;
    let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
    // A program that makes one global at this moment has two recordings.
    let _ = GLOBAL.compare_exchange(global.bits, made.bits, order, seen);
    table::pin(number).ok_or_else(|| Status::ErrorHandle.into())
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_global() -> Recorder {
    let bits = GLOBAL.load(Ordering::SeqCst);
    Recorder { bits }
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_set_rank(recorder: Recorder, rank: u32, rank_count: u32) -> Status {
    with_recorder(recorder, |recorder| {
        let rank_count = (rank_count != 0).then_some(rank_count);
        if rank_count.is_some_and(|count| rank >= count) {
            let why = format!("invalid rank {rank}: expected less than the number of ranks");
            return Err(Failure::new(Status::ErrorDefinition, why));
        }
        Ok(recorder.set_rank(rank, rank_count)?)
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_property(
    recorder: Recorder,
    key: *const c_char,
    value: *const c_char,
) -> Status {
    with_recorder(recorder, |recorder| {
        // SAFETY: invariant CALLER (module docs).
        let (key, value) = unsafe { (text(key)?, text(value)?) };
        Ok(recorder.add_property(key, value)?)
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_clock(
    recorder: Recorder,
    spec: *const ClockSpec,
    clock: *mut Clock,
) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(clock)?;
        // SAFETY: invariant CALLER (module docs).
        let spec = unsafe { read_spec(spec)?.read()? };
        let id = recorder.add_clock(&spec)?;
        // SAFETY: checked above.
        unsafe { put(clock, Clock::new(recorder.number(), id)?) };
        Ok(())
    })
}

/// # Safety
/// - `read` is NULL, or can be called with this data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_calibrate(
    recorder: Recorder,
    clock: Clock,
    read: ReadClock,
    data: *mut c_void,
) -> Status {
    with_recorder(recorder, |recorder| {
        let read = read.ok_or(Status::ErrorNull)?;
        if clock.recorder() != recorder.number() {
            return Err(Status::ErrorHandle.into());
        }
        // SAFETY: invariant CALLER (module docs).
        recorder.calibrate(clock.id(), || unsafe { read(data) })?;
        Ok(())
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_source(
    recorder: Recorder,
    spec: *const SourceSpec,
    source: *mut Source,
) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(source)?;
        // SAFETY: invariant CALLER (module docs).
        let spec = unsafe { read_spec(spec)?.read(recorder.number())? };
        let id = recorder.add_source(&spec)?;
        // SAFETY: checked above.
        unsafe { put(source, Source::new(recorder.number(), id)?) };
        Ok(())
    })
}

/// # Safety
/// - The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_threads(recorder: Recorder, source: *mut Source) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(source)?;
        // SAFETY: checked above.
        unsafe { put(source, Source::new(recorder.number(), THREADS)?) };
        Ok(())
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_region(
    recorder: Recorder,
    name: *const c_char,
    region: *mut Region,
) -> Status {
    let none = std::ptr::null();
    // SAFETY: invariant CALLER (module docs).
    unsafe { annals_add_region_at(recorder, name, none, 0, none, region) }
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_region_at(
    recorder: Recorder,
    name: *const c_char,
    file: *const c_char,
    line: u32,
    group: *const c_char,
    region: *mut Region,
) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(region)?;
        // SAFETY: invariant CALLER (module docs).
        let (name, file) = unsafe { (text(name)?, text_or_empty(file)?) };
        // SAFETY: invariant CALLER (module docs).
        let group = unsafe { text_or_empty(group) }?;
        let id = recorder.add_region_at(name, file, line, group)?;
        // SAFETY: checked above.
        unsafe { put(region, Region::new(recorder.number(), id)?) };
        Ok(())
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_event_type(
    recorder: Recorder,
    spec: *const EventTypeSpec,
    event_type: *mut EventType,
) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(event_type)?;
        // SAFETY: invariant CALLER (module docs).
        let (spec, schema) = unsafe { read_spec(spec)?.read()? };
        let id = recorder.add_dynamic_event_type(&spec, schema)?.id();
        // SAFETY: checked above.
        unsafe { put(event_type, EventType::new(recorder.number(), id)?) };
        Ok(())
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_add_metric(
    recorder: Recorder,
    name: *const c_char,
    unit: *const c_char,
    r#type: u32,
    metric: *mut EventType,
) -> Status {
    with_recorder(recorder, |recorder| {
        check_out(metric)?;
        // SAFETY: invariant CALLER (module docs).
        let (name, unit) = unsafe { (text(name)?, text_or_empty(unit)?) };
        let element_type = u8::try_from(r#type).ok().and_then(ElementType::from_code);
        let element_type = element_type.filter(|element_type| !element_type.is_variable());
        let wrong = || {
            let why = format!("metric `{name}`: expected the type of a number");
            Failure::new(Status::ErrorDefinition, why)
        };
        let spec = annals_recorder::EventTypeSpec::new(name)
            .role(Role::Metric)
            .element_in(element::VALUE, unit);
        let schema = EventTypeSchema {
            elements: vec![(element_type.ok_or_else(wrong)?, false)],
        };
        let id = recorder.add_dynamic_event_type(&spec, schema)?.id();
        // SAFETY: checked above.
        unsafe { put(metric, EventType::new(recorder.number(), id)?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_pause(recorder: Recorder) -> Status {
    switch(recorder, annals_recorder::Recorder::pause)
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_resume(recorder: Recorder) -> Status {
    switch(recorder, annals_recorder::Recorder::resume)
}

/// Neither locks nor allocates: for signal handlers as well.
fn switch(recorder: Recorder, work: impl FnOnce(&annals_recorder::Recorder)) -> Status {
    let done = table::with(recorder.number(), |recorder| {
        work(recorder);
        Status::of_raise(recorder.raiser().state())
    });
    done.unwrap_or(Status::ErrorHandle)
}

/// # Safety
/// - The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_apply(recorder: Recorder, rules: *const c_char) -> Status {
    with_recorder(recorder, |recorder| {
        // SAFETY: invariant CALLER (module docs).
        let rules: Rules = unsafe { text(rules) }?.parse()?;
        Ok(recorder.apply(&rules)?)
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_snapshot(
    recorder: Recorder,
    path: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    with_recorder(recorder, |recorder| {
        let snapshot = recorder.snapshot()?;
        if path.is_null() && length.is_null() {
            return Ok(());
        }
        // SAFETY: invariant CALLER (module docs).
        unsafe { give_text(snapshot.as_os_str(), path, capacity, length) }
    })
}

/// # Safety
/// - The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_read_statistics(
    recorder: Recorder,
    statistics: *mut Statistics,
) -> Status {
    with_recorder(recorder, |recorder| {
        // SAFETY: invariant CALLER (module docs).
        unsafe { write_statistics(statistics, &recorder.status()) }
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_recording_path(
    recorder: Recorder,
    path: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    with_recorder(recorder, |recorder| {
        let status = recorder.status();
        // SAFETY: invariant CALLER (module docs).
        unsafe { give_text(status.path.as_os_str(), path, capacity, length) }
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_storage_failure(
    recorder: Recorder,
    why: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    with_recorder(recorder, |recorder| {
        let failure = recorder.status().storage_failure.unwrap_or_default();
        // SAFETY: invariant CALLER (module docs).
        unsafe { give_text(OsStr::new(&failure), why, capacity, length) }
    })
}

/// # Safety
/// - The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_not_kill_safe(
    recorder: Recorder,
    why: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    with_recorder(recorder, |recorder| {
        let failure = recorder.status().not_kill_safe.unwrap_or_default();
        // SAFETY: invariant CALLER (module docs).
        unsafe { give_text(OsStr::new(&failure), why, capacity, length) }
    })
}
