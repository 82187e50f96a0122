//! Functions that tools call: sources, event types, registrations, instances, enumerations.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use annals_recorder::events::{
    Callback, Dropped, Enumeration, Error, Info, Instance, Registration, Result, Safety,
};

use crate::info::{give, hints};
use crate::memory::{ENUM_NULL, must_put, object, put, put_text, safety, text};
use crate::{INITIALISED, call, call_through, is_elsewhere, tool_call, tool_call_through};

/// A registration handle in C: its number, as a pointer that is never followed.
pub(crate) type EventRegistration = *mut c_void;
/// An instance in C.
pub(crate) type EventInstance = *mut c_void;

pub(crate) type EventCallback =
    Option<unsafe extern "C-unwind" fn(EventInstance, EventRegistration, c_int, *mut c_void)>;
pub(crate) type FreeCallback =
    Option<unsafe extern "C-unwind" fn(EventRegistration, c_int, *mut c_void)>;
pub(crate) type DroppedCallback =
    Option<unsafe extern "C-unwind" fn(i64, EventRegistration, c_int, c_int, *mut c_void)>;

fn registration(handle: EventRegistration) -> Registration {
    Registration::from_bits(handle.addr() as u64)
}

fn handle_of(registration: Registration) -> EventRegistration {
    std::ptr::without_provenance_mut(registration.to_bits() as usize)
}

const _: () = assert!(size_of::<usize>() == 8, "registration handles have 64 bits");

/// # Safety
/// - `provided` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_init_thread(
    required: c_int,
    provided: *mut c_int,
) -> i32 {
    // Whatever thread level is required, all threads may call all functions.
    const MULTIPLE: c_int = 3;
    call(|_| {
        if !(0..=MULTIPLE).contains(&required) {
            return Err(Error::Invalid);
        }
        INITIALISED.fetch_add(1, Ordering::AcqRel);
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(provided, MULTIPLE) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn annals_t_finalize() -> i32 {
    call(|_| {
        let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
        let less = |count: i32| (count > 0).then_some(count - 1);
        let taken = INITIALISED.fetch_update(order, seen, less);
        taken.map(|_| ()).map_err(|_| Error::NotInitialized)
    })
}

/// # Safety
/// - `num_sources` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_source_get_num(num_sources: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(num_sources, runtime.source_count()) })
}

/// # Safety
/// - Each pointer is NULL or valid, those of texts for as many bytes as their lengths contain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_source_get_info(
    source_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    ordering: *mut c_int,
    ticks_per_second: *mut i64,
    max_ticks: *mut i64,
    info: *mut *mut Info,
) -> i32 {
    tool_call(|runtime| {
        let source = runtime.source_info(source_index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&source.name, name, name_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&source.description, desc, desc_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(ordering, source.ordering as c_int) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(ticks_per_second, source.ticks_per_second as i64) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(max_ticks, source.max_ticks as i64) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { give(|| source.info.clone(), info) };
        Ok(())
    })
}

/// # Safety
/// - `timestamp` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_source_get_timestamp(
    source_index: c_int,
    timestamp: *mut i64,
) -> i32 {
    tool_call_through(|runtime| {
        let tick = runtime.source_timestamp(source_index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(timestamp, tick as i64) }
    })
}

/// # Safety
/// - `num_events` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_get_num(num_events: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(num_events, runtime.event_count()) })
}

/// # Safety
/// - Each pointer is NULL or valid: texts for as many bytes, and arrays for as many elements, as
///   their lengths contain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_get_info(
    event_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    array_of_datatypes: *mut c_int,
    array_of_displacements: *mut isize,
    num_elements: *mut c_int,
    enumtype: *mut c_int,
    info: *mut *mut Info,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let event = runtime.event_info(event_index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&event.name, name, name_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(verbosity, event.verbosity as c_int) };
        if !num_elements.is_null() {
            // SAFETY: invariant CALLER (module docs).
            let room = usize::try_from(unsafe { num_elements.read() }).unwrap_or(0);
            for (index, datatype) in event.datatypes.iter().enumerate().take(room) {
                if !array_of_datatypes.is_null() {
                    // SAFETY: within the array, whose length is `room`.
                    unsafe { array_of_datatypes.add(index).write(*datatype as c_int) };
                }
                if !array_of_displacements.is_null() {
                    let at = event.displacements[index] as isize;
                    // SAFETY: within the array, whose length is `room`.
                    unsafe { array_of_displacements.add(index).write(at) };
                }
            }
            // SAFETY: within the array, whose length is `room`.
            unsafe { num_elements.write(event.datatypes.len() as c_int) };
        }
        let names = event.enumeration.map_or(ENUM_NULL, Enumeration::index);
        // SAFETY: within the array, whose length is `room`.
        unsafe { put(enumtype, names) };
        // SAFETY: within the array, whose length is `room`.
        unsafe { give(|| event.info.clone(), info) };
        // SAFETY: within the array, whose length is `room`.
        unsafe { put_text(&event.description, desc, desc_len) };
        // SAFETY: within the array, whose length is `room`.
        unsafe { put(bind, event.bind as c_int) };
        Ok(())
    })
}

/// # Safety
/// - `name` is NULL or ends with a zero, `event_index` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_get_index(
    name: *const c_char,
    event_index: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let index = runtime.event_index(unsafe { text(name)? })?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(event_index, index) }
    })
}

/// # Safety
/// - Each pointer is NULL or valid; `info` is an info object.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_handle_alloc(
    event_index: c_int,
    obj_handle: *mut c_void,
    info: *mut Info,
    event_registration: *mut EventRegistration,
) -> i32 {
    tool_call(|runtime| {
        if event_registration.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (object, hints) = unsafe { (object(obj_handle), hints(info)) };
        let registration = runtime.handle_alloc(event_index, object, hints)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(event_registration, handle_of(registration)) }
    })
}

/// # Safety
/// - `info` is NULL or an info object.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_handle_set_info(
    event_registration: EventRegistration,
    info: *mut Info,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    let hints = unsafe { hints(info) };
    tool_call(|runtime| runtime.handle_set_info(registration(event_registration), hints))
}

/// # Safety
/// - `info_used` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_handle_get_info(
    event_registration: EventRegistration,
    info_used: *mut *mut Info,
) -> i32 {
    tool_call(|runtime| {
        let info = runtime.handle_get_info(registration(event_registration))?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { give(|| info, info_used) };
        Ok(())
    })
}

/// # Safety
/// - `info` is NULL or an info object; the function may be called with `user_data` until the
///   registration is over or has another.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_register_callback(
    event_registration: EventRegistration,
    cb_safety: c_int,
    info: *mut Info,
    user_data: *mut c_void,
    event_cb_function: EventCallback,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    let hints = unsafe { hints(info) };
    let data = user_data.expose_provenance();
    tool_call(|runtime| {
        let level = safety(cb_safety)?;
        let callback = event_cb_function.map(|function| {
            let call = move |instance: &Instance<'_>, registration, required: Safety| {
                let instance = std::ptr::from_ref(instance).cast_mut().cast();
                let user_data = std::ptr::with_exposed_provenance_mut(data);
                // SAFETY: `annals_t.h` requires of registered functions that they may be called.
                unsafe {
                    function(
                        instance,
                        handle_of(registration),
                        required as c_int,
                        user_data,
                    )
                };
            };
            Callback::foreign(call, is_elsewhere(function as usize)).user_data(data)
        });
        let registration = registration(event_registration);
        runtime.register_callback(registration, level, hints, callback)
    })
}

/// # Safety
/// - `info` is NULL or an info object.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_callback_set_info(
    event_registration: EventRegistration,
    cb_safety: c_int,
    info: *mut Info,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    let hints = unsafe { hints(info) };
    let registration = registration(event_registration);
    tool_call(|runtime| runtime.callback_set_info(registration, safety(cb_safety)?, hints))
}

/// # Safety
/// - `info_used` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_callback_get_info(
    event_registration: EventRegistration,
    cb_safety: c_int,
    info_used: *mut *mut Info,
) -> i32 {
    tool_call(|runtime| {
        let registration = registration(event_registration);
        let info = runtime.callback_get_info(registration, safety(cb_safety)?)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { give(|| info, info_used) };
        Ok(())
    })
}

fn call_free(registration: Registration, required: Safety, [function, data]: [usize; 2]) {
    type Function = unsafe extern "C-unwind" fn(EventRegistration, c_int, *mut c_void);
    let function = std::ptr::with_exposed_provenance::<()>(function);
    // SAFETY: only `annals_t_event_handle_free` passes it on, and has it from a function of this
    // type.
    let function = unsafe { std::mem::transmute::<*const (), Function>(function) };
    let user_data = std::ptr::with_exposed_provenance_mut(data);
    // SAFETY: `annals_t.h` requires of the free callback that it may be called.
    unsafe { function(handle_of(registration), required as c_int, user_data) };
}

/// # Safety
/// - The function may be called with `user_data`, in any thread, until it was.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_handle_free(
    event_registration: EventRegistration,
    user_data: *mut c_void,
    free_cb_function: FreeCallback,
) -> i32 {
    let data = user_data.expose_provenance();
    tool_call_through(|runtime| {
        let registration = registration(event_registration);
        match free_cb_function {
            None => runtime.handle_free_raw(registration, None, [0; 2]),
            Some(function) => {
                let address = (function as *const ()).expose_provenance();
                runtime.handle_free_raw(registration, Some(call_free), [address, data])
            }
        }
    })
}

/// # Safety
/// - The function may be called until the registration is over or has another.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_set_dropped_handler(
    event_registration: EventRegistration,
    dropped_cb_function: DroppedCallback,
) -> i32 {
    tool_call(|runtime| {
        let handler = dropped_cb_function.map(|function| {
            move |dropped: &Dropped| {
                let count = i64::try_from(dropped.count).unwrap_or(i64::MAX);
                let registration = handle_of(dropped.registration);
                let required = dropped.required as c_int;
                let user_data = std::ptr::with_exposed_provenance_mut(dropped.user_data);
                // SAFETY: `annals_t.h` requires of registered functions that they may be called.
                unsafe { function(count, registration, dropped.source, required, user_data) };
            }
        });
        let is_elsewhere = dropped_cb_function.is_some_and(|f| is_elsewhere(f as usize));
        let registration = registration(event_registration);
        runtime.set_foreign_dropped_handler(registration, handler, is_elsewhere)
    })
}

/// # Safety
/// - `instance` is NULL or what the running callback was called with.
unsafe fn instance<'a>(instance: EventInstance) -> Result<&'a Instance<'a>> {
    // SAFETY: invariant CALLER (module docs).
    unsafe { instance.cast::<Instance<'a>>().as_ref() }.ok_or(Error::InvalidHandle)
}

/// # Safety
/// - `event_instance` is NULL or what the running callback was called with, `buffer` has room.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_read(
    event_instance: EventInstance,
    element_index: c_int,
    buffer: *mut c_void,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let instance = unsafe { instance(event_instance)? };
        let index = usize::try_from(element_index).map_err(|_| Error::InvalidIndex)?;
        let value = instance.read(index)?;
        if buffer.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        unsafe { crate::memory::put_values(&[value], buffer) };
        Ok(())
    })
}

/// # Safety
/// - `event_instance` is NULL or what the running callback was called with, `buffer` has room for
///   the event type's extent.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_copy(
    event_instance: EventInstance,
    buffer: *mut c_void,
) -> i32 {
    call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let instance = unsafe { instance(event_instance)? };
        if buffer.is_null() {
            return Err(Error::Invalid);
        }
        let extent = runtime.event_info(instance.event_type())?.extent();
        // SAFETY: invariant CALLER (module docs).
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), extent) };
        instance.copy(buffer)
    })
}

/// # Safety
/// - `event_instance` is NULL or what the running callback was called with, `event_timestamp` NULL
///   or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_get_timestamp(
    event_instance: EventInstance,
    event_timestamp: *mut i64,
) -> i32 {
    call_through(|_| {
        // SAFETY: invariant CALLER (module docs).
        let tick = unsafe { instance(event_instance)? }.timestamp()?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(event_timestamp, tick as i64) }
    })
}

/// # Safety
/// - `event_instance` is NULL or what the running callback was called with, `source_index` NULL or
///   valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_event_get_source(
    event_instance: EventInstance,
    source_index: *mut c_int,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let source = unsafe { instance(event_instance)? }.source();
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(source_index, source) }
    })
}

/// # Safety
/// - Each pointer is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_enum_get_info(
    enumtype: c_int,
    num: *mut c_int,
    name: *mut c_char,
    name_len: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let enumeration = runtime.enumeration(Enumeration::from_index(enumtype))?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(num, enumeration.items.len() as c_int) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&enumeration.name, name, name_len) };
        Ok(())
    })
}

/// # Safety
/// - Each pointer is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_enum_get_item(
    enumtype: c_int,
    index: c_int,
    value: *mut c_int,
    name: *mut c_char,
    name_len: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let enumeration = runtime.enumeration(Enumeration::from_index(enumtype))?;
        let (item, item_name) = enumeration.item(index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(value, item) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(item_name, name, name_len) };
        Ok(())
    })
}
