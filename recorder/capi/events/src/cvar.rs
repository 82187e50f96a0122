//! Control variables: what tools and producers call.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;

use annals_recorder::events::{
    CvarHandle as Handle, CvarSpec, Datatype, Enumeration, Error, ObjectHandle, Result, Value,
};

use crate::memory::{
    ENUM_NULL, bind, bits_of, count, datatype, enumeration, must_put, object, optional_text,
    pointer_of, put, put_text, put_values, scope, text, value_at, verbosity,
};
use crate::{call, tool_call, tool_call_through};

/// A handle in C: its number and 1, as a pointer that is never followed.
pub(crate) type CvarHandle = *mut c_void;

pub(crate) type CvarRead =
    Option<unsafe extern "C-unwind" fn(*mut c_void, *const u64, *mut c_void)>;
pub(crate) type CvarWrite =
    Option<unsafe extern "C-unwind" fn(*mut c_void, *const u64, *const c_void) -> c_int>;

fn handle_of(handle: CvarHandle) -> Handle {
    let number = i32::try_from(handle.addr()).map_or(-1, |number| number - 1);
    Handle::from_number(number)
}

/// # Safety
/// - `num_cvar` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_get_num(num_cvar: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(num_cvar, runtime.cvar_count()) })
}

/// # Safety
/// - Each pointer is NULL or valid, those of texts for as many bytes as their lengths contain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_get_info(
    cvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut c_int,
    enumtype: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let cvar = runtime.cvar_info(cvar_index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&cvar.name, name, name_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&cvar.description, desc, desc_len) };
        let names = cvar.enumeration.map_or(ENUM_NULL, Enumeration::index);
        for (to, value) in [
            (verbosity, cvar.verbosity as c_int),
            (datatype, cvar.datatype as c_int),
            (enumtype, names),
            (bind, cvar.bind as c_int),
            (scope, cvar.scope as c_int),
        ] {
            // SAFETY: invariant CALLER (module docs).
            unsafe { put(to, value) };
        }
        Ok(())
    })
}

/// # Safety
/// - `name` is NULL or ends with a zero, `cvar_index` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_get_index(
    name: *const c_char,
    cvar_index: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let index = runtime.cvar_index(unsafe { text(name)? })?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(cvar_index, index) }
    })
}

/// # Safety
/// - `obj_handle`, `handle` and `count` are NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_handle_alloc(
    cvar_index: c_int,
    obj_handle: *mut c_void,
    handle: *mut CvarHandle,
    count: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        if handle.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let object = unsafe { object(obj_handle) };
        let (allocated, values) = runtime.cvar_handle_alloc(cvar_index, object)?;
        let number = allocated.number() as usize + 1;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(count, values as c_int) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(handle, std::ptr::without_provenance_mut(number)) }
    })
}

/// # Safety
/// - `handle` is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_handle_free(handle: *mut CvarHandle) -> i32 {
    tool_call(|runtime| {
        if handle.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        runtime.cvar_handle_free(handle_of(unsafe { handle.read() }))?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(handle, std::ptr::null_mut()) }
    })
}

/// # Safety
/// - `buf` is NULL or has room for the variable's values.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_read(
    handle: CvarHandle,
    buf: *mut c_void,
) -> i32 {
    tool_call_through(|runtime| {
        let values = runtime.cvar_read(handle_of(handle))?;
        if buf.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_values(&values, buf) };
        Ok(())
    })
}

/// Reads an array of values.
///
/// # Safety
/// - `from` points to `count` values.
unsafe fn values(datatype: Datatype, from: *const c_void, count: usize) -> Vec<Value> {
    // SAFETY: invariant CALLER (module docs).
    let value = |index| unsafe { value_at(datatype, from, index) };
    (0..count).map(value).collect()
}

/// # Safety
/// - `buf` is NULL or has the variable's values.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_cvar_write(
    handle: CvarHandle,
    buf: *const c_void,
) -> i32 {
    tool_call_through(|runtime| {
        let handle = handle_of(handle);
        let (info, count) = runtime.cvar_of(handle)?;
        if buf.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let values = ManuallyDrop::new(unsafe { values(info.datatype, buf, count) });
        let outcome = runtime.cvar_write(handle, &values);
        drop(ManuallyDrop::into_inner(values));
        outcome
    })
}

/// Converts the result of a producer's function.
fn outcome(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let known = Error::ALL.into_iter().find(|error| error.code() == code);
    Err(known.unwrap_or(Error::Invalid))
}

/// Allocates room for the given number of values, aligned for all of them. It is lost if the function that gets it is left by an
/// exception or a jump ([`call_through`](crate::call_through)).
fn room(datatype: Datatype, count: usize) -> ManuallyDrop<Vec<u64>> {
    ManuallyDrop::new(vec![0; (count * datatype.size()).div_ceil(8)])
}

/// # Safety
/// - Texts are NULL or end with a zero, `initial` points to `num_values` values, `cvar_index` is
///   NULL or valid; the functions may be called with `data` in any thread, for ever.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_add_cvar(
    name: *const c_char,
    verbosity_level: c_int,
    value_type: c_int,
    enumtype: c_int,
    desc: *const c_char,
    bind_kind: c_int,
    scope_code: c_int,
    num_values: c_int,
    initial: *const c_void,
    read: CvarRead,
    write: CvarWrite,
    data: *mut c_void,
    cvar_index: *mut c_int,
) -> i32 {
    let data = data.expose_provenance();
    call(|runtime| {
        let (datatype, count) = (datatype(value_type)?, count(num_values)?);
        // Both or neither, because a variable's values are in one place.
        if cvar_index.is_null() || initial.is_null() || read.is_some() != write.is_some() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (name, desc) = unsafe { (text(name)?, optional_text(desc)?) };
        // SAFETY: invariant CALLER (module docs).
        let initial = unsafe { values(datatype, initial, count) };
        let mut spec = CvarSpec::with_values(name, scope(scope_code)?, datatype, initial)
            .description(desc)
            .verbosity(verbosity(verbosity_level)?)
            .bind(bind(bind_kind)?);
        if let Some(names) = enumeration(enumtype) {
            spec = spec.enumeration(names);
        }
        if let (Some(read), Some(write)) = (read, write) {
            let get = move |object: Option<ObjectHandle>, values: &mut [Value]| {
                let mut room = room(datatype, values.len());
                let to = room.as_mut_ptr().cast::<c_void>();
                // SAFETY: there is room for all of them.
                unsafe { put_values(values, to) };
                let bits = bits_of(object);
                let data = std::ptr::with_exposed_provenance_mut(data);
                // SAFETY: `annals_t.h` requires of a variable's functions that they may be called.
                unsafe { read(data, pointer_of(object, &bits), to) };
                for (index, value) in values.iter_mut().enumerate() {
                    // SAFETY: all of them are there.
                    *value = unsafe { value_at(datatype, to, index) };
                }
                drop(ManuallyDrop::into_inner(room));
            };
            let set = move |object: Option<ObjectHandle>, values: &[Value]| {
                let mut room = room(datatype, values.len());
                let from = room.as_mut_ptr().cast::<c_void>();
                // SAFETY: there is room for all of them.
                unsafe { put_values(values, from) };
                let bits = bits_of(object);
                let data = std::ptr::with_exposed_provenance_mut(data);
                // SAFETY: `annals_t.h` requires of a variable's functions that they may be called.
                let code = unsafe { write(data, pointer_of(object, &bits), from) };
                drop(ManuallyDrop::into_inner(room));
                outcome(code)
            };
            spec = spec.access(get, set);
        }
        let added = runtime.add_cvar(&spec)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(cvar_index, added) }
    })
}
