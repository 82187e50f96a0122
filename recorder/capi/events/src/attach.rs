//! The recorder as a tool: attaching one to the process's runtime.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals_t.h` requires
//! of it.
#![expect(
    unsafe_code,
    reason = "exported functions; their pointers come from the program"
)]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_recorder::Inside;
use annals_recorder::events::{Attach, AttachError, Attachment, Error, Result, attach};

use crate::memory::{must_put, put_text, text};
use crate::{call, call_through};
use annals_capi::handle::Recorder;
use annals_capi::spec::{Growing, read_spec};
use annals_capi::status::{Failure, Status, remember};
use annals_capi::table;

/// The parts of the runtime that are recorded. The lists of patterns end with NULL.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AttachSpec {
    pub size: usize,
    pub events: *const *const c_char,
    pub pvars: *const *const c_char,
    pub cvars: *const *const c_char,
    pub sample_at: *const *const c_char,
    pub sample_every_ns: u64,
}

// SAFETY: `size` is the first field.
unsafe impl Growing for AttachSpec {}

/// An attachment in C: its number, as a pointer that is never followed.
pub type AttachmentHandle = *mut c_void;

/// Attachments by number, and how many there ever were.
static ATTACHED: Mutex<(BTreeMap<usize, Arc<Attachment>>, usize)> =
    Mutex::new((BTreeMap::new(), 0));

/// Works with the table; in a handler that interrupted such work, it would wait for itself.
fn with_table<T>(
    work: impl FnOnce(&mut (BTreeMap<usize, Arc<Attachment>>, usize)) -> T,
) -> Result<T> {
    let inside = Inside::begin();
    if inside.was_inside() {
        return Err(Error::NotAccessible);
    }
    Ok(work(
        &mut ATTACHED.lock().unwrap_or_else(PoisonError::into_inner),
    ))
}

fn find(attachment: AttachmentHandle) -> Result<Arc<Attachment>> {
    let found = with_table(|(table, _)| table.get(&attachment.addr()).cloned())?;
    found.ok_or(Error::InvalidHandle)
}

/// Reads the patterns up to NULL.
/// Returns `None` if there is no list.
///
/// # Safety
/// - `list` is NULL or points to texts that end with a zero, with NULL after the last.
unsafe fn patterns<'a>(list: *const *const c_char) -> Result<Option<Vec<&'a str>>> {
    if list.is_null() {
        return Ok(None);
    }
    let mut patterns = Vec::new();
    loop {
        // SAFETY: invariant CALLER (module docs); not past the NULL.
        let pattern = unsafe { list.add(patterns.len()).read() };
        if pattern.is_null() {
            return Ok(Some(patterns));
        }
        // SAFETY: invariant CALLER (module docs).
        patterns.push(unsafe { text(pattern)? });
    }
}

impl AttachSpec {
    /// # Safety
    /// - The lists are as [`patterns`] has them.
    unsafe fn read(&self) -> Result<Attach> {
        let mut what = Attach::new();
        // SAFETY: invariant CALLER (module docs).
        if let Some(events) = unsafe { patterns(self.events)? } {
            what = what.events(&events);
        }
        // SAFETY: invariant CALLER (module docs).
        if let Some(pvars) = unsafe { patterns(self.pvars)? } {
            what = what.pvars(&pvars);
        }
        // SAFETY: invariant CALLER (module docs).
        if let Some(cvars) = unsafe { patterns(self.cvars)? } {
            what = what.cvars(&cvars);
        }
        // SAFETY: invariant CALLER (module docs).
        if let Some(events) = unsafe { patterns(self.sample_at)? } {
            what = what.sample_at(&events);
        }
        if self.sample_every_ns != 0 {
            what = what.sample_every(Duration::from_nanos(self.sample_every_ns));
        }
        Ok(what)
    }
}

/// Returns the error in this interface's words; in more words for `annals_last_error`.
fn error_of(error: AttachError) -> Error {
    let (error, why) = match error {
        AttachError::Runtime(error) => (error, error.to_string()),
        AttachError::Recorder(error) => {
            let failure = Failure::from(error);
            let error = match failure.status {
                Status::ErrorFull => Error::OutOfHandles,
                Status::ErrorSystem => Error::Memory,
                Status::ErrorFinished | Status::ErrorForked => Error::InvalidHandle,
                _ => Error::Invalid,
            };
            (error, failure.why)
        }
        AttachError::Thread(error) => (Error::Memory, error.to_string()),
        error => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            (
                Error::Invalid,
                format!("{error}: {}", cause.unwrap_or_default()),
            )
        }
    };
    remember(Failure::new(Status::ErrorDefinition, why));
    error
}

/// # Safety
/// - `spec` is NULL or valid with all it points to, `attachment` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_attach(
    recorder: Recorder,
    spec: *const AttachSpec,
    attachment: *mut AttachmentHandle,
) -> i32 {
    call_through(|runtime| {
        if attachment.is_null() {
            return Err(Error::Invalid);
        }
        let mut what = Attach::new();
        if !spec.is_null() {
            // SAFETY: invariant CALLER (module docs).
            let spec = unsafe { read_spec(spec) }.map_err(|failure| {
                remember(failure);
                Error::Invalid
            })?;
            // SAFETY: invariant CALLER (module docs).
            what = unsafe { spec.read()? };
        }
        let attached = table::with(recorder.number(), |recorder| {
            attach(runtime, recorder, &what).map_err(error_of)
        });
        let attached = Arc::new(attached.ok_or(Error::InvalidHandle)??);
        let number = with_table(|(table, count)| {
            *count += 1;
            table.insert(*count, attached);
            *count
        })?;
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(attachment, std::ptr::without_provenance_mut(number)) }
    })
}

/// # Safety
/// - `attachment` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_detach(attachment: *mut AttachmentHandle) -> i32 {
    call_through(|runtime| {
        if attachment.is_null() {
            return Err(Error::Invalid);
        }
        // Where registrations cannot be freed, nothing is taken out.
        if !runtime.can_change() {
            return Err(Error::NotAccessible);
        }
        // SAFETY: invariant CALLER (module docs).
        let number = unsafe { attachment.read() }.addr();
        let taken = with_table(|(table, _)| table.remove(&number))?;
        drop(taken.ok_or(Error::InvalidHandle)?);
        // SAFETY: invariant CALLER (module docs).
        unsafe { must_put(attachment, std::ptr::null_mut()) }
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_attachment_look(attachment: AttachmentHandle) -> i32 {
    call_through(|runtime| {
        if !runtime.can_change() {
            return Err(Error::NotAccessible);
        }
        find(attachment)?.look();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C-unwind" fn annals_t_attachment_sample(attachment: AttachmentHandle) -> i32 {
    call_through(|_| {
        find(attachment)?.sample();
        Ok(())
    })
}

/// # Safety
/// - `problems_len` is NULL or valid, `problems` is NULL or has room for as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn annals_t_attachment_problems(
    attachment: AttachmentHandle,
    problems: *mut c_char,
    problems_len: *mut c_int,
) -> i32 {
    call(|runtime| {
        if !runtime.can_change() {
            return Err(Error::NotAccessible);
        }
        let text = find(attachment)?.problems().join("\n");
        // SAFETY: invariant CALLER (module docs).
        unsafe { put_text(&text, problems, problems_len) };
        Ok(())
    })
}
