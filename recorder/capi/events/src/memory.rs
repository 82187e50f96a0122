//! Texts, numbers and buffers of the calling program.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "memory of the calling program is read and written"
)]

use std::ffi::{CStr, c_char, c_int, c_void};

use annals_recorder::Verbosity;
use annals_recorder::events::{
    Bind, Datatype, Enumeration, Error, ObjectHandle, PvarClass, Result, Safety, Scope, Value,
};

/// No enumeration.
pub const ENUM_NULL: c_int = -1;

/// Returns a number where the program wants it.
///
/// # Safety
/// - `to` is NULL or points to a `T` to write to.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: invariant CALLER (module docs).
        unsafe { to.write(value) };
    }
}

/// Returns a number that the program must want.
///
/// # Safety
/// - `to` is NULL or points to a `T` to write to.
pub(crate) unsafe fn must_put<T>(to: *mut T, value: T) -> Result<()> {
    if to.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: invariant CALLER (module docs).
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a text by the standard's convention: at most `length` bytes, including the zero.
///
/// If the text did not fit or was not requested, `length` becomes that of the whole text with its
/// zero.
///
/// # Safety
/// - `length` is NULL or points to a number, and `to` is NULL or has room for as many bytes.
pub(crate) unsafe fn put_text(text: &str, to: *mut c_char, length: *mut c_int) {
    if length.is_null() {
        return;
    }
    // SAFETY: invariant CALLER (module docs).
    let room = unsafe { length.read() };
    let room = usize::try_from(room).unwrap_or(0);
    if !to.is_null() && room != 0 {
        let count = text.len().min(room - 1);
        // SAFETY: at most `room` bytes are written, the zero included.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, count) };
        // SAFETY: at most `room` bytes are written, the zero included.
        unsafe { to.add(count).write(0) };
    }
    // SAFETY: invariant CALLER (module docs).
    unsafe { length.write(text.len() as c_int + 1) };
}

/// Returns a text of the program.
///
/// # Safety
/// - `text` is NULL or ends with a zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: invariant CALLER (module docs).
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::Invalid)
}

/// Reads a text that may be NULL, which means an empty one.
///
/// # Safety
/// - `text` is NULL or ends with a zero.
pub(crate) unsafe fn optional_text<'a>(from: *const c_char) -> Result<&'a str> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: invariant CALLER (module docs).
    unsafe { text(from) }
}

/// Returns the object that a pointer to its handle names.
///
/// # Safety
/// - `object` is NULL or points to a handle.
pub(crate) unsafe fn object(object: *const c_void) -> Option<ObjectHandle> {
    if object.is_null() {
        return None;
    }
    // SAFETY: invariant CALLER (module docs); of any alignment.
    let handle = unsafe { object.cast::<u64>().read_unaligned() };
    Some(ObjectHandle(handle))
}

/// Writes values as an array of C.
///
/// # Safety
/// - `to` has room for them.
pub(crate) unsafe fn put_values(values: &[Value], to: *mut c_void) {
    let mut at = to.cast::<u8>();
    for value in values {
        let mut bytes = [0; 8];
        value.put(&mut bytes);
        let size = value.datatype().size();
        // SAFETY: invariant CALLER (module docs).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, size) };
        at = at.wrapping_add(size);
    }
}

/// Bytes as numbers of any type lie in them.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct ValueBytes(pub(super) [u8; 8]);

/// Reads one of an array of values.
///
/// # Safety
/// - `from` points to more than `index` values.
pub(crate) unsafe fn value_at(datatype: Datatype, from: *const c_void, index: usize) -> Value {
    let mut place = ValueBytes([0; 8]);
    let size = datatype.size();
    let at = from.cast::<u8>().wrapping_add(index * size);
    // SAFETY: invariant CALLER (module docs); of any alignment.
    unsafe { std::ptr::copy_nonoverlapping(at, place.0.as_mut_ptr(), size) };
    Value::get(datatype, &place.0).expect("eight bytes are enough for any")
}

/// Writes one of an array of values.
///
/// # Safety
/// - `to` has room for more than `index` values of this type.
pub(crate) unsafe fn put_value(value: Value, to: *mut c_void, index: usize) {
    let at = to
        .cast::<u8>()
        .wrapping_add(index * value.datatype().size());
    // SAFETY: invariant CALLER (module docs).
    unsafe { put_values(&[value], at.cast()) };
}

fn of_code<T: Copy>(all: &[T], code: c_int) -> Result<T> {
    let index = usize::try_from(code).map_err(|_| Error::Invalid)?;
    all.get(index).copied().ok_or(Error::Invalid)
}

pub(crate) fn safety(code: c_int) -> Result<Safety> {
    of_code(&Safety::ALL, code)
}

pub(crate) fn datatype(code: c_int) -> Result<Datatype> {
    of_code(&Datatype::ALL, code)
}

pub(crate) fn class(code: c_int) -> Result<PvarClass> {
    of_code(&PvarClass::ALL, code)
}

pub(crate) fn scope(code: c_int) -> Result<Scope> {
    of_code(&Scope::ALL, code)
}

/// Returns an enumeration, or none.
pub(crate) fn enumeration(code: c_int) -> Option<Enumeration> {
    (code != ENUM_NULL).then(|| Enumeration::from_index(code))
}

/// Returns a number of things.
pub(crate) fn count(number: c_int) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::Invalid)
}

pub(crate) fn bind(code: c_int) -> Result<Bind> {
    of_code(&Bind::ALL, code)
}

pub(crate) fn verbosity(code: c_int) -> Result<Verbosity> {
    let code = u8::try_from(code).map_err(|_| Error::Invalid)?;
    Verbosity::from_code(code).ok_or(Error::Invalid)
}

/// Returns the bits of an object's handle, to be pointed to.
pub(crate) fn bits_of(object: Option<ObjectHandle>) -> u64 {
    object.map_or(0, |object| object.0)
}

/// Returns what producers' functions get for an object: a pointer to its bits, NULL if there is no object.
pub(crate) fn pointer_of(object: Option<ObjectHandle>, bits: &u64) -> *const u64 {
    object.map_or(std::ptr::null(), |_| std::ptr::from_ref(bits))
}
