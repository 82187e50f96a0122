//! Raising events.
#![expect(
    unsafe_code,
    reason = "values come from C; benches/c_path shows what a call costs"
)]

use std::ffi::c_void;

use annals_recorder::{Raiser, Refusal, SourceId, THREADS, Value as RecorderValue};

use crate::call::raise;
use crate::handle::{EventType, Region, Source};
use crate::status::Status;

/// The type of a value that is not there.
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

impl Value {
    /// The bytes of a string or bytes value.
    ///
    /// # Safety
    /// - The value is of such a type, and `length` bytes at its pointer can be read.
    #[inline(always)]
    unsafe fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the union's member for these types.
        let start: *const u8 = unsafe { self.r#as.bytes }.cast();
        if start.is_null() {
            return (self.length == 0).then_some(&[]);
        }
        // SAFETY: the caller's promise.
        Some(unsafe { std::slice::from_raw_parts(start, self.length as usize) })
    }

    /// What the recorder takes; none when this is no value.
    ///
    /// # Safety
    /// - The pointer of a string or bytes value is good for its length.
    #[inline(always)]
    unsafe fn read(&self) -> Option<RecorderValue<'_>> {
        let value = &self.r#as;
        // SAFETY: every pattern of bits is a value of the number types; the pointer is the caller's
        // promise.
        unsafe {
            Some(match self.r#type {
                TYPE_ABSENT => RecorderValue::Absent,
                1 => RecorderValue::I32(value.i32),
                2 => RecorderValue::U32(value.u32),
                3 => RecorderValue::I64(value.i64),
                4 => RecorderValue::U64(value.u64),
                5 => RecorderValue::F64(value.f64),
                6 => RecorderValue::String(self.bytes()?),
                7 => RecorderValue::Bytes(self.bytes()?),
                _ => return None,
            })
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_enter(region: Region) -> Status {
    raise(region.recorder(), |raiser| raiser.enter(region.id()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn annals_leave(region: Region) -> Status {
    raise(region.recorder(), |raiser| raiser.leave(region.id()))
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
    raise(recorder, |raiser: Raiser<'_>| -> Result<(), Refusal> {
        // SAFETY: the caller's promise.
        let values = values.iter().map(|value| unsafe { value.read() });
        raiser.raise(source, tick, id, values)
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
