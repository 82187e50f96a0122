//! Performance variables: what tools and producers call.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::ffi::{c_char, c_int, c_void};

use annals_recorder::events::{
    Datatype, Enumeration, Error, Pvar, PvarHandle, PvarInfo, PvarNotice, PvarSession, PvarSpec,
    Result, Runtime, Value,
};

use crate::memory::{
    ENUM_NULL, ValueBytes, bind, bits_of, class, count, datatype, enumeration, must_put, object,
    optional_text, pointer_of, put, put_text, put_value, text, value_at, verbosity,
};
use crate::{call, tool_call, tool_call_through};

/// A session in C: its number and 1, as a pointer that is never followed.
pub type Session = *mut c_void;
/// A handle in C, with the same representation.
pub type Handle = *mut c_void;

/// In place of a handle: all of the session.
pub const ALL_HANDLES: usize = usize::MAX;

/// The producer's functions, each of which may be missing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PvarFunctions {
    pub read: PvarRead,
    pub count: PvarCount,
    pub notify: PvarNotify,
}

pub type PvarRead =
    Option<unsafe extern "C-unwind" fn(*mut c_void, *const u64, c_int, *mut c_void)>;
pub type PvarCount = Option<unsafe extern "C-unwind" fn(*mut c_void, *const u64) -> c_int>;
pub type PvarNotify = Option<unsafe extern "C-unwind" fn(*mut c_void, c_int, *const u64)>;

/// The notices that producers get, in C.
pub const NOTICE_ALLOCATED: c_int = 0;
pub const NOTICE_STARTED: c_int = 1;
pub const NOTICE_STOPPED: c_int = 2;
pub const NOTICE_FREED: c_int = 3;

/// Returns the number of a handle that the program passes as a pointer. For NULL and for pointers
/// that are no handle, returns a number that is never used.
fn number_of(pointer: *mut c_void) -> i32 {
    i32::try_from(pointer.addr()).map_or(-1, |number| number - 1)
}

fn pointer_to(number: i32) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize + 1)
}

fn session_of(session: Session) -> PvarSession {
    PvarSession::from_number(number_of(session))
}

fn handle_of(handle: Handle) -> PvarHandle {
    PvarHandle::from_number(number_of(handle))
}

/// # Safety
/// - `num_pvar` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_get_num(num_pvar: *mut c_int) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    tool_call(|runtime| unsafe { must_put(num_pvar, runtime.pvar_count()) })
}

/// # Safety
/// - Each pointer is NULL or valid, those of texts for as many bytes as their lengths contain.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_get_info(
    pvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    var_class: *mut c_int,
    datatype: *mut c_int,
    enumtype: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        let pvar: &PvarInfo = runtime.pvar_info(pvar_index)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&pvar.name, name, name_len) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&pvar.description, desc, desc_len) };
        let names = pvar.enumeration.map_or(ENUM_NULL, Enumeration::index);
        for (to, value) in [
            (verbosity, pvar.verbosity as c_int),
            (var_class, pvar.class as c_int),
            (datatype, pvar.datatype as c_int),
            (enumtype, names),
            (bind, pvar.bind as c_int),
            (readonly, pvar.is_readonly.into()),
            (continuous, pvar.is_continuous.into()),
            (atomic, pvar.is_atomic.into()),
        ] {
            // SAFETY: invariant CALLER (module docs).
            unsafe { put(to, value) };
        }
        Ok(())
    })
}

/// # Safety
/// - `name` is NULL or ends with a zero, `pvar_index` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_get_index(
    name: *const c_char,
    var_class: c_int,
    pvar_index: *mut c_int,
) -> i32 {
    tool_call(|runtime| {
        // SAFETY: invariant CALLER (module docs).
        let index = runtime.pvar_index(unsafe { text(name)? }, class(var_class)?)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(pvar_index, index) }
    })
}

/// # Safety
/// - `session` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_session_create(session: *mut Session) -> i32 {
    tool_call(|runtime| {
        if session.is_null() {
            return Err(Error::Invalid);
        }
        let created = runtime.pvar_session_create()?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(session, pointer_to(created.number())) }
    })
}

/// # Safety
/// - `session` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_session_free(session: *mut Session) -> i32 {
    tool_call_through(|runtime| {
        if session.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        runtime.pvar_session_free(session_of(unsafe { session.read() }))?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(session, std::ptr::null_mut()) }
    })
}

/// # Safety
/// - `obj_handle`, `handle` and `count` are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_handle_alloc(
    session: Session,
    pvar_index: c_int,
    obj_handle: *mut c_void,
    handle: *mut Handle,
    count: *mut c_int,
) -> i32 {
    tool_call_through(|runtime| {
        if handle.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let object = unsafe { object(obj_handle) };
        let session = session_of(session);
        let (allocated, items) = runtime.pvar_handle_alloc(session, pvar_index, object)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(count, items as c_int) };
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(handle, pointer_to(allocated.number())) }
    })
}

/// # Safety
/// - `handle` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_handle_free(
    session: Session,
    handle: *mut Handle,
) -> i32 {
    tool_call_through(|runtime| {
        if handle.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let freed = handle_of(unsafe { handle.read() });
        runtime.pvar_handle_free(session_of(session), freed)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(handle, std::ptr::null_mut()) }
    })
}

/// Applies an operation to one handle, or to all of a session.
fn one_or_all(
    session: Session,
    handle: Handle,
    one: impl FnOnce(&Runtime, PvarSession, PvarHandle) -> Result<()>,
    all: impl FnOnce(&Runtime, PvarSession) -> Result<()>,
) -> i32 {
    tool_call_through(|runtime| match handle.addr() {
        ALL_HANDLES => all(runtime, session_of(session)),
        _ => one(runtime, session_of(session), handle_of(handle)),
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_pvar_start(session: Session, handle: Handle) -> i32 {
    let (one, all) = (Runtime::pvar_start, Runtime::pvar_start_all);
    one_or_all(session, handle, one, all)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_pvar_stop(session: Session, handle: Handle) -> i32 {
    let (one, all) = (Runtime::pvar_stop, Runtime::pvar_stop_all);
    one_or_all(session, handle, one, all)
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_pvar_reset(session: Session, handle: Handle) -> i32 {
    let (one, all) = (Runtime::pvar_reset, Runtime::pvar_reset_all);
    one_or_all(session, handle, one, all)
}

/// # Safety
/// - `buf` is NULL or has room for the variable's values.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_read(
    session: Session,
    handle: Handle,
    buf: *mut c_void,
) -> i32 {
    tool_call_through(|runtime| {
        let (session, handle) = (session_of(session), handle_of(handle));
        runtime.pvar_of(session, handle)?;
        if buf.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let to = |item, value| unsafe { put_value(value, buf, item) };
        runtime.pvar_read_with(session, handle, to).map(drop)
    })
}

/// # Safety
/// - `buf` is NULL or has the variable's values.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_write(
    session: Session,
    handle: Handle,
    buf: *const c_void,
) -> i32 {
    tool_call_through(|runtime| {
        let (session, handle) = (session_of(session), handle_of(handle));
        runtime.pvar_of(session, handle)?;
        if buf.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let from = |item, datatype| unsafe { value_at(datatype, buf, item) };
        runtime.pvar_write_with(session, handle, from)
    })
}

/// # Safety
/// - `buf` is NULL or has room for the variable's values.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_readreset(
    session: Session,
    handle: Handle,
    buf: *mut c_void,
) -> i32 {
    tool_call_through(|runtime| {
        let (session, handle) = (session_of(session), handle_of(handle));
        runtime.pvar_of(session, handle)?;
        if buf.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let to = |item, value| unsafe { put_value(value, buf, item) };
        runtime.pvar_read_reset_with(session, handle, to).map(drop)
    })
}

fn with_functions(
    mut spec: PvarSpec,
    functions: PvarFunctions,
    data: *mut c_void,
    datatype: Datatype,
) -> PvarSpec {
    let data = data.expose_provenance();
    if let Some(read) = functions.read {
        spec = spec.read(move |object, item| {
            let (bits, mut place) = (bits_of(object), ValueBytes([0; 8]));
            let to = (&raw mut place).cast();
            let data = std::ptr::with_exposed_provenance_mut(data);
            // SAFETY: `annals_t.h` requires of a variable's functions that they may be called.
            unsafe { read(data, pointer_of(object, &bits), item as c_int, to) };
            Value::get(datatype, &place.0).expect("eight bytes are enough for any")
        });
    }
    if let Some(count) = functions.count {
        spec = spec.count(move |object| {
            let bits = bits_of(object);
            let data = std::ptr::with_exposed_provenance_mut(data);
            // SAFETY: `annals_t.h` requires of a variable's functions that they may be called.
            let items = unsafe { count(data, pointer_of(object, &bits)) };
            usize::try_from(items).unwrap_or(0)
        });
    }
    if let Some(notify) = functions.notify {
        spec = spec.notify(move |notice, object| {
            let notice = match notice {
                PvarNotice::Allocated => NOTICE_ALLOCATED,
                PvarNotice::Started => NOTICE_STARTED,
                PvarNotice::Stopped => NOTICE_STOPPED,
                PvarNotice::Freed => NOTICE_FREED,
                // None that this interface has a number for.
                _ => return,
            };
            let bits = bits_of(object);
            let data = std::ptr::with_exposed_provenance_mut(data);
            // SAFETY: `annals_t.h` requires of a variable's functions that they may be called.
            unsafe { notify(data, notice, pointer_of(object, &bits)) };
        });
    }
    spec
}

/// # Safety
/// - Texts are NULL or end with a zero, `functions` and `pvar` are NULL or valid; the functions may
///   be called with `data` in any thread, for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_add_pvar(
    name: *const c_char,
    verbosity_level: c_int,
    var_class: c_int,
    value_type: c_int,
    enumtype: c_int,
    desc: *const c_char,
    bind_kind: c_int,
    readonly: c_int,
    continuous: c_int,
    atomic: c_int,
    items: c_int,
    functions: *const PvarFunctions,
    data: *mut c_void,
    pvar: *mut *const Pvar,
) -> i32 {
    call(|runtime| {
        if pvar.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let (name, desc) = unsafe { (text(name)?, optional_text(desc)?) };
        let datatype = datatype(value_type)?;
        let mut spec = PvarSpec::new(name, class(var_class)?, datatype)
            .description(desc)
            .verbosity(verbosity(verbosity_level)?)
            .bind(bind(bind_kind)?)
            .items(count(items)?);
        if let Some(names) = enumeration(enumtype) {
            spec = spec.enumeration(names);
        }
        if readonly != 0 && atomic != 0 {
            return Err(Error::Invalid);
        }
        if readonly != 0 {
            spec = spec.readonly();
        }
        if continuous != 0 {
            spec = spec.continuous();
        }
        if atomic == 0 {
            spec = spec.not_atomic();
        }
        // SAFETY: invariant CALLER (module docs).
        if let Some(functions) = unsafe { functions.as_ref() } {
            spec = with_functions(spec, *functions, data, datatype);
        }
        let added = runtime.add_pvar(&spec)?;
        // SAFETY: invariant CALLER (module docs); it stays for ever, as the variable does.
        unsafe { must_put(pvar, Box::into_raw(Box::new(added)).cast_const()) }
    })
}

/// Passes on what a producer reports of an item of its variable.
///
/// # Safety
/// - `pvar` is NULL or what was added, `value` is NULL or points to a value of its datatype.
unsafe fn say(
    pvar: *const Pvar,
    item: c_int,
    value: *const c_void,
    say: impl FnOnce(&Pvar, usize, Value) -> Result<()>,
) -> i32 {
    call(|runtime| {
        // SAFETY: invariant CALLER (module docs); it stays for ever.
        let pvar = unsafe { pvar.as_ref() }.ok_or(Error::InvalidHandle)?;
        let item = usize::try_from(item).map_err(|_| Error::InvalidIndex)?;
        if value.is_null() {
            return Err(Error::Invalid);
        }
        let datatype = runtime.pvar_info(pvar.index())?.datatype;
        // SAFETY: invariant CALLER (module docs).
        let value = unsafe { value_at(datatype, value, 0) };
        say(pvar, item, value)
    })
}

/// # Safety
/// - `pvar` is NULL or what was added, `value` is NULL or points to a value of its datatype.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_set(
    pvar: *const Pvar,
    item: c_int,
    value: *const c_void,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { say(pvar, item, value, Pvar::set) }
}

/// # Safety
/// - `pvar` is NULL or what was added, `value` is NULL or points to a value of its datatype.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_add(
    pvar: *const Pvar,
    item: c_int,
    value: *const c_void,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { say(pvar, item, value, Pvar::add) }
}

/// # Safety
/// - `pvar` is NULL or what was added, `value` is NULL or points to a value of its datatype.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_pvar_notice(
    pvar: *const Pvar,
    item: c_int,
    value: *const c_void,
) -> i32 {
    // SAFETY: invariant CALLER (module docs).
    unsafe { say(pvar, item, value, Pvar::notice) }
}
