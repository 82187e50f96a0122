//! Raising events.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals.h` requires of
//! it.
#![expect(
    unsafe_code,
    reason = "values come from C; benches/c_path shows what a call costs"
)]

use std::ffi::c_void;

use annals_recorder::{EventTypeId, Raise, Raiser, RawValue, Refusal, SourceId, THREADS};

use crate::call::{raise, raise_guarded};
use crate::handle::{EventType, Region, Source};
use crate::status::Status;

/// The type of a value that is not there.
pub const TYPE_ABSENT: u32 = 0;

/// The value of an element.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Value {
    pub r#type: u32,
    pub length: u32,
    pub r#as: ValueAs,
}

/// A value's own bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub union ValueAs {
    pub i32: i32,
    pub u32: u32,
    pub i64: i64,
    pub u64: u64,
    pub f64: f64,
    pub bytes: *const c_void,
}

// Of a narrow number, the lower half of the bits is read.
#[cfg(target_endian = "big")]
compile_error!("annals_value is read as little-endian processors store it");

impl Value {
    /// Returns what the recorder takes.
    ///
    /// # Safety
    /// - The pointer of a string or bytes value is valid for its length.
    #[inline(always)]
    unsafe fn raw(&self) -> RawValue<'_> {
        // SAFETY: every pattern of bits is a number.
        let bits = unsafe { self.r#as.u64 };
        // SAFETY: invariant CALLER (module docs).
        unsafe { RawValue::new(self.r#type, self.length, bits) }
    }
}

/// Values whose pointers are valid, as the code that creates this has checked.
#[derive(Clone, Copy)]
struct FromC<'a>(&'a [Value]);

impl<'a> annals_recorder::Values<'a> for FromC<'a> {
    #[inline(always)]
    fn len(self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn get(self, index: usize) -> RawValue<'a> {
        // SAFETY: the type's invariant: the pointers are valid.
        unsafe { self.0[index].raw() }
    }
}

#[derive(Clone, Copy)]
struct Enter(Region);

impl Raise for Enter {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        raiser.enter(self.0.id())
    }
}

#[derive(Clone, Copy)]
struct Leave(Region);

impl Raise for Leave {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        raiser.leave(self.0.id())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_enter(region: Region) -> Status {
    let number = region.recorder();
    raise(number, Enter(region), || {
        raise_guarded(number, Enter(region))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_leave(region: Region) -> Status {
    let number = region.recorder();
    raise(number, Leave(region), || {
        raise_guarded(number, Leave(region))
    })
}

/// An event of the process's own source, now.
/// It is not the more general [`EventOn`] with two fixed fields: what the type fixes is known on
/// the whole path, also beyond the call that catches panics.
#[derive(Clone, Copy)]
struct Event<'a> {
    event_type: EventTypeId,
    values: FromC<'a>,
}

impl Raise for Event<'_> {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        raiser.raise(THREADS, None, self.event_type, self.values)
    }
}

/// Raises an event with [`raise_guarded`]. Its own arguments fit registers, which an [`Event`] does not: see [`raise`].
#[inline(never)]
fn long_event(event_type: EventType, values: FromC<'_>) -> Status {
    let event = Event {
        event_type: event_type.id(),
        values,
    };
    raise_guarded(event_type.recorder(), event)
}

/// Returns values from C, or `None` when they are missing.
///
/// # Safety
/// - `values` is NULL, or points to `count` values whose pointers are valid.
#[inline(always)]
unsafe fn from_c<'a>(values: *const Value, count: usize) -> Option<FromC<'a>> {
    let values = match (values.is_null(), count) {
        (_, 0) => &[],
        (true, _) => return None,
        // SAFETY: invariant CALLER (module docs).
        (false, _) => unsafe { std::slice::from_raw_parts(values, count) },
    };
    Some(FromC(values))
}

/// # Safety
/// - As the header has it: `values` points to `count` values whose pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_raise(
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: invariant CALLER (module docs).
    let Some(values) = (unsafe { from_c(values, count) }) else {
        return Status::ErrorNull;
    };
    let event = Event {
        event_type: event_type.id(),
        values,
    };
    let long = || long_event(event_type, values);
    raise(event_type.recorder(), event, long)
}

/// An event of any source, now or at a tick.
#[derive(Clone, Copy)]
struct EventOn<'a> {
    source: SourceId,
    tick: Option<u64>,
    event: Event<'a>,
}

impl Raise for EventOn<'_> {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        raiser.raise(
            self.source,
            self.tick,
            self.event.event_type,
            self.event.values,
        )
    }
}

/// # Safety
/// - `values` is NULL, or points to `count` values whose pointers are valid.
unsafe fn raise_on(
    source: Source,
    tick: Option<u64>,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    let recorder = source.recorder();
    // SAFETY: invariant CALLER (module docs).
    let Some(values) = (unsafe { from_c(values, count) }) else {
        return Status::ErrorNull;
    };
    let event_type = id_in(recorder, event_type);
    let event = EventOn {
        source: source.id(),
        tick,
        event: Event { event_type, values },
    };
    raise(recorder, event, || raise_guarded(recorder, event))
}

/// Returns the id of an event type for this recorder: of none when it is another's.
#[inline(always)]
fn id_in(recorder: u32, event_type: EventType) -> EventTypeId {
    if event_type.recorder() == recorder {
        event_type.id()
    } else {
        EventType::NONE
    }
}

/// # Safety
/// - As the header has it: `values` points to `count` values whose pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_raise_on(
    source: Source,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: invariant CALLER (module docs).
    unsafe { raise_on(source, None, event_type, values, count) }
}

/// # Safety
/// - As the header has it: `values` points to `count` values whose pointers are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn annals_raise_at(
    source: Source,
    tick: u64,
    event_type: EventType,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: invariant CALLER (module docs).
    unsafe { raise_on(source, Some(tick), event_type, values, count) }
}

/// Events that are reported and were not observed.
#[derive(Clone, Copy)]
enum Missed {
    /// That the source dropped.
    Dropped(u64),
    /// That no callback was there for.
    NoCallback,
}

#[derive(Clone, Copy)]
struct Miss {
    source: SourceId,
    event_type: EventTypeId,
    missed: Missed,
}

impl Raise for Miss {
    #[inline(always)]
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal> {
        match self.missed {
            Missed::Dropped(count) => raiser.report_dropped(self.source, self.event_type, count),
            Missed::NoCallback => raiser.report_no_callback(self.source, self.event_type),
        }
    }
}

fn miss(source: Source, event_type: EventType, missed: Missed) -> Status {
    let miss = Miss {
        source: source.id(),
        event_type: id_in(source.recorder(), event_type),
        missed,
    };
    raise_guarded(source.recorder(), miss)
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_report_dropped(
    source: Source,
    event_type: EventType,
    count: u64,
) -> Status {
    miss(source, event_type, Missed::Dropped(count))
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_report_no_callback(source: Source, event_type: EventType) -> Status {
    miss(source, event_type, Missed::NoCallback)
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_tsc() -> u64 {
    annals_recorder::tsc()
}

#[unsafe(no_mangle)]
pub extern "C" fn annals_tsc_is_invariant() -> i32 {
    annals_recorder::tsc_is_invariant().into()
}
