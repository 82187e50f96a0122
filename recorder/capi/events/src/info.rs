//! Hints as separate objects.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(unsafe_code, reason = "exported functions; info objects are pointers")]

use std::ffi::{c_char, c_int};

use annals_recorder::events::{Error, Info, Result};

use crate::call;
use crate::memory::{must_put, put, put_text, text};

/// Returns the hints that a program passed.
/// NULL means no hints.
///
/// # Safety
/// - `info` is NULL or an info object that is not freed.
pub(crate) unsafe fn hints<'a>(info: *mut Info) -> &'a Info {
    const NONE: &Info = &Info::new();
    // SAFETY: invariant CALLER (module docs).
    unsafe { info.as_ref() }.unwrap_or(NONE)
}

/// Stores a new info object with hints for the program.
///
/// # Safety
/// - `to` points to a place for an info object, or is NULL: then nothing is stored.
pub(crate) unsafe fn give(info: impl FnOnce() -> Info, to: *mut *mut Info) {
    if !to.is_null() {
        // SAFETY: invariant CALLER (module docs).
        unsafe { put(to, Box::into_raw(Box::new(info()))) };
    }
}

/// # Safety
/// - `info` is NULL or an info object that is not freed.
unsafe fn of<'a>(info: *mut Info) -> Result<&'a mut Info> {
    // SAFETY: invariant CALLER (module docs).
    unsafe { info.as_mut() }.ok_or(Error::Invalid)
}

/// # Safety
/// - `info` is NULL or a place for an info object.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_create(info: *mut *mut Info) -> i32 {
    call(|_| {
        if info.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        unsafe { give(Info::new, info) };
        Ok(())
    })
}

/// # Safety
/// - `info` is NULL or points to an info object, or to NULL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_free(info: *mut *mut Info) -> i32 {
    call(|_| {
        if info.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: invariant CALLER (module docs).
        let object = unsafe { info.replace(std::ptr::null_mut()) };
        if object.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: made by `give`, and not freed.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    })
}

/// # Safety
/// - `info` is an info object; `key` and `value` end with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_set(
    info: *mut Info,
    key: *const c_char,
    value: *const c_char,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let (info, key, value) = unsafe { (of(info)?, text(key)?, text(value)?) };
        info.set(key, value);
        Ok(())
    })
}

/// # Safety
/// - `info` is an info object, `key` ends with a zero, and the rest is NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_get(
    info: *mut Info,
    key: *const c_char,
    value: *mut c_char,
    value_len: *mut c_int,
    flag: *mut c_int,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let (info, key) = unsafe { (of(info)?, text(key)?) };
        let found = info.get(key);
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(flag, found.is_some().into())? };
        if let Some(found) = found {
            // SAFETY: invariant CALLER (module docs).
            unsafe { put_text(found, value, value_len) };
        }
        Ok(())
    })
}

/// # Safety
/// - `info` is an info object, `nkeys` NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_get_nkeys(
    info: *mut Info,
    nkeys: *mut c_int,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let info = unsafe { of(info)? };
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(nkeys, info.iter().len() as c_int) }
    })
}

/// # Safety
/// - `info` is an info object; `key` and `key_len` are NULL or valid.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn annals_t_info_get_nthkey(
    info: *mut Info,
    n: c_int,
    key: *mut c_char,
    key_len: *mut c_int,
) -> i32 {
    call(|_| {
        // SAFETY: invariant CALLER (module docs).
        let info = unsafe { of(info)? };
        let mut keys = info.iter();
        let nth = usize::try_from(n).ok().and_then(|n| keys.nth(n));
        let (name, _) = nth.ok_or(Error::InvalidIndex)?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(name, key, key_len) };
        Ok(())
    })
}
