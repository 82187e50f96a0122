//! Raising events.
#![expect(
    unsafe_code,
    reason = "values come from C; benches/c_path shows what a call costs"
)]

use std::ffi::c_void;

use annals_recorder::{Raiser, RawValue, Refusal, SourceId, THREADS};

use crate::call::raise;
use crate::handle::{EventType, Region, Source};
use crate::status::Status;

/// The type of a value that is not there.
#[cfg(test)]
pub(crate) const TYPE_ABSENT: u32 = 0;

/// The value of an element.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Value {
    pub(crate) r#type: u32,
    pub(crate) length: u32,
    pub(crate) r#as: ValueAs,
}

/// A value's own bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union ValueAs {
    pub(crate) i32: i32,
    pub(crate) u32: u32,
    pub(crate) i64: i64,
    pub(crate) u64: u64,
    pub(crate) f64: f64,
    pub(crate) bytes: *const c_void,
}

// Of a narrow number, the lower half of the bits is looked at.
#[cfg(target_endian = "big")]
compile_error!("annals_value is read as little-endian processors store it");

impl Value {
    /// What the recorder takes.
    ///
    /// # Safety
    /// - The pointer of a string or bytes value is good for its length.
    #[inline(always)]
    unsafe fn raw(&self) -> RawValue<'_> {
        // SAFETY: every pattern of bits is a number.
        let bits = unsafe { self.r#as.u64 };
        // SAFETY: the caller's promise.
        unsafe { RawValue::new(self.r#type, self.length, bits) }
    }
}

/// Values whose pointers are good: who makes this says so.
#[derive(Clone, Copy)]
struct FromC<'a>(&'a [Value]);

impl<'a> annals_recorder::Values<'a> for FromC<'a> {
    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn get(self, index: usize) -> RawValue<'a> {
        // SAFETY: as the type says.
        unsafe { self.0[index].raw() }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_enter(region: Region) -> Status {
    raise(region.recorder(), move |raiser| raiser.enter(region.id()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_leave(region: Region) -> Status {
    raise(region.recorder(), move |raiser| raiser.leave(region.id()))
}

/// Raises an event with values from C.
///
/// # Safety
/// - `values` is NULL, or points to `count` values whose pointers are good.
#[inline(always)]
unsafe fn raise_values(
    recorder: u32,
    source: SourceId,
    tick: Option<u64>,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    let values = match (values.is_null(), count) {
        (_, 0) => &[],
        (true, _) => return Status::ErrorNull,
        // SAFETY: the caller's promise.
        (false, _) => unsafe { std::slice::from_raw_parts(values, count) },
    };
    let id = if event_type.recorder() == recorder {
        event_type.id()
    } else {
        EventType::NONE
    };
    raise(recorder, move |raiser: Raiser<'_>| -> Result<(), Refusal> {
        raiser.raise(source, tick, id, FromC(values))
    })
}

/// # Safety
/// - As the header has it: `values` points to `count` values whose pointers are good.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn annals_raise(
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    let recorder = event_type.recorder();
    // SAFETY: the caller's promise.
    unsafe { raise_values(recorder, THREADS, None, event_type, values, count) }
}

/// # Safety
/// - As [`annals_raise`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn annals_raise_on(
    source: Source,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    let (recorder, source) = (source.recorder(), source.id());
    // SAFETY: the caller's promise.
    unsafe { raise_values(recorder, source, None, event_type, values, count) }
}

/// # Safety
/// - As [`annals_raise`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn annals_raise_at(
    source: Source,
    tick: u64,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    let (recorder, source) = (source.recorder(), source.id());
    // SAFETY: the caller's promise.
    unsafe { raise_values(recorder, source, Some(tick), event_type, values, count) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_report_dropped(
    source: Source,
    event_type: EventType,
    count: u64,
) -> Status {
    let id = if event_type.recorder() == source.recorder() {
        event_type.id()
    } else {
        EventType::NONE
    };
    raise(source.recorder(), |raiser| {
        raiser.report_dropped(source.id(), id, count)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_report_no_callback(
    source: Source,
    event_type: EventType,
) -> Status {
    let id = if event_type.recorder() == source.recorder() {
        event_type.id()
    } else {
        EventType::NONE
    };
    raise(source.recorder(), |raiser| {
        raiser.report_no_callback(source.id(), id)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_tsc() -> u64 {
    annals_recorder::tsc()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_tsc_is_invariant() -> i32 {
    annals_recorder::tsc_is_invariant().into()
}
