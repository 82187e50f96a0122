//! Functions that producers call: sources, event types, raising.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::ffi::{c_char, c_int, c_void};

use annals_recorder::events::{
    Error, EventType, EventTypeSpec, Raising, Result, Source, SourceSpec,
};

use crate::memory::{
    bind, count, datatype, must_put, object, optional_text, put, safety, text, verbosity,
};
use crate::{call, call_through};

/// Reads a source's clock.
pub type ReadSourceClock = Option<unsafe extern "C-unwind" fn(data: *mut c_void) -> i64>;

/// The ordering codes in C.
const UNORDERED: c_int = 1;
/// The source numbers its events.
pub const SEQUENCED: c_int = 1;

/// # Safety
/// - Texts are NULL or end with a zero, `source` is NULL or valid, and the clock may be read in any
///   thread, for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_source(
    name: *const c_char,
    desc: *const c_char,
    ordering: c_int,
    ticks_per_second: i64,
    max_ticks: i64,
    read: ReadSourceClock,
    data: *mut c_void,
    flags: c_int,
    buffered: c_int,
    source: *mut *const Source,
) -> i32 {
    let data = data.expose_provenance();
    call(|runtime| {
        if source.is_null() || !(0..=UNORDERED).contains(&ordering) {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (name, desc) = unsafe { (text(name)?, optional_text(desc)?) };
        let number = |value: i64| u64::try_from(value).map_err(|_| Error::Invalid);
        let mut spec = match ordering {
            UNORDERED => SourceSpec::unordered(name),
            _ => SourceSpec::ordered(name),
        };
        spec = spec
            .description(desc)
            .ticks_per_second(number(ticks_per_second)?);
        if max_ticks != 0 {
            spec = spec.max_ticks(number(max_ticks)?);
        }
        if let Some(read) = read {
            spec = spec.clock(move || {
                let data = std::ptr::with_exposed_provenance_mut(data);
                // SAFETY: `annals_t.h` requires of a source's clock that it may be read.
                unsafe { read(data) as u64 }
            });
        }
        if flags & SEQUENCED != 0 {
            spec = spec.sequenced();
        }
        spec = spec.buffered(usize::try_from(buffered).map_err(|_| Error::Invalid)?);
        let added = runtime.add_source(&spec)?;
        // SAFETY: invariant CALLER (module docs); it stays for ever, as the source does.
        unsafe { must_put(source, Box::into_raw(Box::new(added)).cast_const()) }
    })
}

/// # Safety
/// - Texts are NULL or end with a zero, the arrays have `num_elements` elements, and `event` is
///   NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_event_type(
    name: *const c_char,
    desc: *const c_char,
    verbosity_level: c_int,
    num_elements: c_int,
    element_names: *const *const c_char,
    array_of_datatypes: *const c_int,
    array_of_displacements: *const isize,
    bind_kind: c_int,
    event: *mut *const EventType,
) -> i32 {
    call(|runtime| {
        let count = count(num_elements)?;
        let has_arrays = !element_names.is_null() && !array_of_datatypes.is_null();
        if event.is_null() || (count != 0 && !has_arrays) {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (name, desc) = unsafe { (text(name)?, optional_text(desc)?) };
        let mut spec = EventTypeSpec::new(name)
            .description(desc)
            .verbosity(verbosity(verbosity_level)?)
            .bind(bind(bind_kind)?);
        for index in 0..count {
            // SAFETY: invariant CALLER (module docs); within the arrays.
            let element = unsafe { text(element_names.add(index).read())? };
            // SAFETY: invariant CALLER (module docs); within the arrays.
            let datatype = datatype(unsafe { array_of_datatypes.add(index).read() })?;
            spec = if array_of_displacements.is_null() {
                spec.element(element, datatype)
            } else {
                // SAFETY: invariant CALLER (module docs); within the arrays.
                let at = unsafe { array_of_displacements.add(index).read() };
                let at = usize::try_from(at).map_err(|_| Error::Invalid)?;
                spec.element_at(element, datatype, at)
            };
        }
        let added = runtime.add_event_type(&spec)?;
        // SAFETY: invariant CALLER (module docs); it stays for ever, as the event type does.
        unsafe { must_put(event, Box::into_raw(Box::new(added)).cast_const()) }
    })
}

/// # Safety
/// - Texts are NULL or end with a zero, the arrays have `num` elements, and `enumtype` is NULL or
///   valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_enum(
    name: *const c_char,
    num: c_int,
    values: *const c_int,
    names: *const *const c_char,
    enumtype: *mut c_int,
) -> i32 {
    call(|runtime| {
        let count = count(num)?;
        if enumtype.is_null() || values.is_null() || names.is_null() {
            return Err(Error::Invalid);
        }
        let mut items = Vec::new();
        for index in 0..count {
            // SAFETY: invariant CALLER (module docs); within the arrays.
            let item = unsafe { (values.add(index).read(), text(names.add(index).read())?) };
            items.push(item);
        }
        // SAFETY: invariant CALLER (module docs).
        let name = unsafe { text(name)? };
        let added = runtime.add_enumeration(name, &items)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(enumtype, added.index()) }
    })
}

/// # Safety
/// - `name` is NULL or ends with a zero, `obj_handle` is NULL or points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_object(
    bind_kind: c_int,
    obj_handle: *const c_void,
    name: *const c_char,
) -> i32 {
    call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let (handle, name) = unsafe { (object(obj_handle), text(name)?) };
        runtime.add_object(bind(bind_kind)?, handle.ok_or(Error::Invalid)?, name)
    })
}

/// # Safety
/// - `source` and `event` are NULL or what was added.
#[inline]
unsafe fn both<'a>(
    event: *const EventType,
    source: *const Source,
) -> Result<(&'a EventType, &'a Source)> {
    // SAFETY: invariant CALLER (module docs); they stay for ever.
    match unsafe { (event.as_ref(), source.as_ref()) } {
        (Some(event), Some(source)) => Ok((event, source)),
        _ => Err(Error::InvalidHandle),
    }
}

/// # Safety
/// - `data` has the event type's extent; the other pointers are NULL or valid.
unsafe fn raising<'a>(
    event: &EventType,
    observed: *const i64,
    obj_handle: *const c_void,
    data: *const c_void,
) -> Result<(Raising, &'a [u8])> {
    let extent = event.extent();
    let memory = match (data.is_null(), extent) {
        (_, 0) => &[],
        (true, _) => return Err(Error::Invalid),
        // SAFETY: invariant CALLER (module docs).
        (false, _) => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), extent) },
    };
    let raising = Raising {
        // SAFETY: invariant CALLER (module docs).
        observed: unsafe { observed.as_ref() }.map(|tick| *tick as u64),
        // SAFETY: invariant CALLER (module docs).
        object: unsafe { object(obj_handle) },
    };
    Ok((raising, memory))
}

/// # Safety
/// - `event` is what was added.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_is_wanted(event: *const EventType) -> c_int {
    // SAFETY: invariant CALLER (module docs).
    let event = unsafe { event.as_ref() };
    event.is_some_and(EventType::is_wanted).into()
}

/// # Safety
/// - `event` and `source` are what was added, `data` has the event type's extent, `observed` and
///   `obj_handle` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_raise(
    event: *const EventType,
    source: *const Source,
    cb_safety: c_int,
    observed: *const i64,
    obj_handle: *const c_void,
    data: *const c_void,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    if let Some(event) = unsafe { event.as_ref() }
        && !event.is_wanted()
    {
        return 0;
    }
    call_through(|_| {
        // SAFETY: invariant CALLER (module docs).
        let (event, source) = unsafe { both(event, source)? };
        // SAFETY: invariant CALLER (module docs).
        let (raising, memory) = unsafe { raising(event, observed, obj_handle, data)? };
        event.raise_memory(source, safety(cb_safety)?, raising, memory)
    })
}

/// # Safety
/// - `event` and `source` are what was added, `data` has the event type's extent, `observed` and
///   `obj_handle` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_raise_deferred(
    event: *const EventType,
    source: *const Source,
    observed: *const i64,
    obj_handle: *const c_void,
    data: *const c_void,
) -> i32 {
    call_through(|_| {
        // SAFETY: invariant CALLER (module docs).
        let (event, source) = unsafe { both(event, source)? };
        // SAFETY: invariant CALLER (module docs).
        let (raising, memory) = unsafe { raising(event, observed, obj_handle, data)? };
        event.raise_memory_deferred(source, raising, memory)
    })
}

/// # Safety
/// - `source` is what was added, `count` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_deliver(
    source: *const Source,
    cb_safety: c_int,
    count: *mut c_int,
) -> i32 {
    call_through(|_| {
        // SAFETY: invariant CALLER (module docs).
        let source = unsafe { source.as_ref() }.ok_or(Error::InvalidHandle)?;
        let delivered = source.deliver(safety(cb_safety)?);
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(count, delivered as c_int) };
        Ok(())
    })
}

/// # Safety
/// - `event` and `source` are what was added, `obj_handle` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_report_dropped(
    event: *const EventType,
    source: *const Source,
    obj_handle: *const c_void,
    count: i64,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let (event, source) = unsafe { both(event, source)? };
        let count = u64::try_from(count).map_err(|_| Error::Invalid)?;
        // SAFETY: invariant CALLER (module docs).
        event.report_dropped(source, unsafe { object(obj_handle) }, count);
        Ok(())
    })
}
