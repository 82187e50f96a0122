//! Structures, texts and buffers from C.
//!
//! Invariant CALLER: pointers that the program passes are NULL or valid, as `annals.h` requires of
//! it.
#![expect(
    unsafe_code,
    reason = "memory of the calling program is read and written"
)]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

use annals_recorder::{
    ClockSpec as Clock, ElementType, EventTypeSchema, EventTypeSpec as EventType, Inside, Overflow,
    Reference, Role, SourceSpec as Source, Verbosity,
};

use crate::handle;
use crate::status::{Failure, Status};

/// A setting: the name of an environment variable, and a value for it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Setting {
    pub name: *const c_char,
    pub value: *const c_char,
}

/// Reads a clock.
pub type ReadClock = Option<unsafe extern "C-unwind" fn(data: *mut c_void) -> u64>;

/// A clock, to be added.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClockSpec {
    pub size: usize,
    pub name: *const c_char,
    pub ticks_per_second: u64,
    pub max_ticks: u64,
    pub read: ReadClock,
    pub data: *mut c_void,
    pub rate_error_ppb: u32,
    pub reserved: u32,
}

/// A source, to be added.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SourceSpec {
    pub size: usize,
    pub name: *const c_char,
    pub description: *const c_char,
    pub ordering: u32,
    pub overflow: u32,
    pub clock: handle::Clock,
    pub own_location: u32,
    pub reserved: u32,
}

/// One element of an event type.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Element {
    pub name: *const c_char,
    pub unit: *const c_char,
    pub r#type: u32,
    pub reference: u32,
    pub is_optional: u32,
    pub reserved: u32,
}

/// An event type, to be added.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct EventTypeSpec {
    pub size: usize,
    pub name: *const c_char,
    pub description: *const c_char,
    pub verbosity: u32,
    pub role: u32,
    pub key: *const c_char,
    pub elements: *const Element,
    pub element_count: usize,
}

/// How a recorder is doing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Statistics {
    pub size: usize,
    pub raised: u64,
    pub dropped: u64,
    pub suppressed: u64,
    pub blocked_ns: u64,
    pub snapshots: u64,
    pub written_bytes: u64,
    pub free_pages: u64,
    pub pages: u64,
    pub raised_after_finish: u64,
    pub misused: u64,
    pub is_finished: u32,
    pub is_kill_safe: u32,
    pub has_storage_failed: u32,
    pub reserved: u32,
}

/// The source's ordering codes in C.
pub const ORDERED: u32 = 0;
pub const UNORDERED: u32 = 1;
/// The overflow codes in C.
pub const OVERFLOW_DEFAULT: u32 = 0;
pub const OVERFLOW_DROP: u32 = 1;
pub const OVERFLOW_BLOCK: u32 = 2;
pub const OVERFLOW_OVERWRITE: u32 = 3;

fn wrong(why: impl Into<String>) -> Failure {
    Failure::new(Status::ErrorDefinition, why)
}

/// Structures that begin with their size, so that later versions can have more fields.
///
/// # Safety
/// - The type is `repr(C)` and its first field is `size: usize`.
/// - Zeros are a value of every field after the smallest size.
pub unsafe trait Growing: Copy {
    /// The size of the structure in the first version of the interface.
    const SMALLEST: usize = size_of::<Self>();
}

// SAFETY: `size` is the first field.
unsafe impl Growing for ClockSpec {}
// SAFETY: `size` is the first field; zeros say that there is no own location.
unsafe impl Growing for SourceSpec {
    const SMALLEST: usize = std::mem::offset_of!(SourceSpec, own_location);
}
// SAFETY: `size` is the first field.
unsafe impl Growing for EventTypeSpec {}
// SAFETY: `size` is the first field.
unsafe impl Growing for Statistics {}

/// Returns the size that the program states in a structure. It must not be smaller than the
/// smallest size that this version knows.
///
/// # Safety
/// - `pointer` is NULL or points to such a structure.
unsafe fn size_of_given<T: Growing>(pointer: *const T) -> Result<usize, Failure> {
    if pointer.is_null() {
        return Err(Status::ErrorNull.into());
    }
    // SAFETY: the size is the first field.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < T::SMALLEST || size > 4096 {
        let expected = size_of::<T>();
        let why = format!("the field `size` is the structure's sizeof ({expected}), not {size}");
        return Err(wrong(why));
    }
    Ok(size)
}

/// Reads a structure.
/// One of a later version is refused if it uses fields that this version lacks.
///
/// # Safety
/// - `pointer` is NULL or points to such a structure, of the size that it contains.
pub unsafe fn read_spec<T: Growing>(pointer: *const T) -> Result<T, Failure> {
    // SAFETY: invariant CALLER (module docs).
    let size = unsafe { size_of_given(pointer) }?;
    // SAFETY: the structure is `size` bytes long.
    let given = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|byte| *byte != 0) {
        return Err(wrong(
            "a field is used that this version of Annals does not know",
        ));
    }
    let mut spec = MaybeUninit::<T>::zeroed();
    // SAFETY: both are at least as long as what is copied; the fields after it are zeros, which the trait allows.
    unsafe {
        std::ptr::copy_nonoverlapping(given.as_ptr(), spec.as_mut_ptr().cast::<u8>(), known);
        Ok(spec.assume_init())
    }
}

/// Fills the program's statistics.
/// Fields that this version does not know become 0.
///
/// # Safety
/// - `pointer` is NULL or points to such a structure, of the size that it contains.
pub unsafe fn write_statistics(
    pointer: *mut Statistics,
    status: &annals_recorder::Status,
) -> Result<(), Failure> {
    // SAFETY: invariant CALLER (module docs).
    let size = unsafe { size_of_given(pointer.cast_const()) }?;
    let statistics = Statistics {
        size,
        raised: status.raised,
        dropped: status.dropped,
        suppressed: status.suppressed,
        blocked_ns: status.blocked.as_nanos() as u64,
        snapshots: status.snapshots,
        written_bytes: status.written_bytes,
        free_pages: status.free_pages as u64,
        pages: status.pages as u64,
        raised_after_finish: status.raised_after_finish,
        misused: status.misused,
        is_finished: status.is_finished.into(),
        is_kill_safe: status.not_kill_safe.is_none().into(),
        has_storage_failed: status.storage_failure.is_some().into(),
        reserved: 0,
    };
    // SAFETY: the structure is `size` bytes long.
    unsafe { pointer.cast::<u8>().write_bytes(0, size) };
    // SAFETY: invariant CALLER (module docs); `size` is at least this.
    unsafe { pointer.write(statistics) };
    Ok(())
}

/// Stores a result.
///
/// # Safety
/// - `place` is not NULL (see [`check_out`]) and can be written to.
pub unsafe fn put<T>(place: *mut T, value: T) {
    // SAFETY: invariant CALLER (module docs).
    unsafe { place.write(value) };
}

/// Checks that there is a place for the result, before anything is done.
pub fn check_out<T>(place: *mut T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Status::ErrorNull.into());
    }
    Ok(())
}

/// Returns a text.
///
/// # Safety
/// - `text` is NULL, or ends with a zero and lives as long as it is used.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Status::ErrorNull.into());
    }
    // SAFETY: invariant CALLER (module docs).
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| {
        let why = format!("`{}` is not UTF-8", text.to_string_lossy());
        Failure::new(Status::ErrorText, why)
    })
}

/// Returns a text that may be NULL, which means an empty one.
///
/// # Safety
/// - `text` is NULL, or ends with a zero and lives as long as it is used.
pub unsafe fn text_or_empty<'a>(given: *const c_char) -> Result<&'a str, Failure> {
    if given.is_null() {
        return Ok("");
    }
    // SAFETY: invariant CALLER (module docs).
    unsafe { text(given) }
}

/// Items from C.
///
/// # Safety
/// - `items` is NULL, or points to `count` items that live as long as they are used.
pub unsafe fn slice<'a, T>(items: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (items.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Status::ErrorNull.into()),
        (false, _) if count > isize::MAX as usize / size_of::<T>() => {
            Err(wrong("the count is larger than memory"))
        }
        // SAFETY: invariant CALLER (module docs); the count is possible.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(items, count) }),
    }
}

/// Copies a text into the program's buffer, with a zero after it.
///
/// # Safety
/// - `buffer` is NULL or has `capacity` bytes; `length` is NULL or can be written to.
pub unsafe fn give_text(
    given: &OsStr,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    let bytes = given.as_bytes();
    if !length.is_null() {
        // SAFETY: invariant CALLER (module docs).
        unsafe { length.write(bytes.len()) };
    }
    if buffer.is_null() {
        return if length.is_null() || capacity != 0 {
            Err(Status::ErrorNull.into())
        } else {
            Ok(())
        };
    }
    let Some(room) = capacity.checked_sub(1) else {
        return Err(Status::ErrorTooSmall.into());
    };
    let fits = bytes.len().min(room);
    // SAFETY: `fits` bytes and the zero are within the capacity.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast::<u8>(), fits) };
    // SAFETY: `fits` bytes and the zero are within the capacity.
    unsafe { buffer.add(fits).write(0) };
    if fits < bytes.len() {
        return Err(Status::ErrorTooSmall.into());
    }
    Ok(())
}

impl Setting {
    /// Name and value.
    ///
    /// # Safety
    /// - `text` is NULL, or ends with a zero and lives as long as it is used; for both.
    pub unsafe fn read<'a>(&self) -> Result<(&'a str, &'a OsStr), Failure> {
        // SAFETY: invariant CALLER (module docs).
        let name = unsafe { text(self.name) }?;
        if self.value.is_null() {
            return Err(Status::ErrorNull.into());
        }
        // SAFETY: invariant CALLER (module docs).
        let value = unsafe { CStr::from_ptr(self.value) };
        Ok((name, OsStr::from_bytes(value.to_bytes())))
    }
}

/// A clock of the program.
struct ProgramClock {
    read: unsafe extern "C-unwind" fn(*mut c_void) -> u64,
    data: *mut c_void,
}

// SAFETY: the header requires that the function can be called from many threads, with this pointer.
unsafe impl Send for ProgramClock {}
// SAFETY: the header requires that the function can be called from many threads, with this pointer.
unsafe impl Sync for ProgramClock {}

impl ProgramClock {
    fn read(&self) -> u64 {
        // Calls that take locks are refused meanwhile: a clock is read under a lock, too.
        let _inside = Inside::begin();
        // SAFETY: the header requires that the function can be called with this pointer as long as
        // the program runs, and does not throw.
        unsafe { (self.read)(self.data) }
    }
}

impl ClockSpec {
    /// # Safety
    /// - The pointers are valid.
    pub unsafe fn read(&self) -> Result<Clock, Failure> {
        // SAFETY: invariant CALLER (module docs).
        let name = unsafe { text(self.name) }?;
        let clock = match self.read {
            Some(read) => {
                let data = self.data;
                let clock = ProgramClock { read, data };
                Clock::readable(name, self.ticks_per_second, move || clock.read())
            }
            None => Clock::unreadable(name, self.ticks_per_second),
        };
        let clock = match self.rate_error_ppb {
            0 => clock,
            ppb => clock.rate_error_ppb(ppb),
        };
        Ok(match self.max_ticks {
            0 => clock,
            max_ticks => clock.max_ticks(max_ticks),
        })
    }
}

impl SourceSpec {
    /// # Safety
    /// - The pointers are valid.
    pub unsafe fn read(&self, recorder: u32) -> Result<Source, Failure> {
        // SAFETY: invariant CALLER (module docs).
        let name = unsafe { text(self.name) }?;
        let source = match self.ordering {
            ORDERED => Source::ordered(name),
            UNORDERED => Source::unordered(name),
            other => return Err(wrong(format!("source `{name}`: {other} is no ordering"))),
        };
        // SAFETY: invariant CALLER (module docs).
        let source = source.description(unsafe { text_or_empty(self.description) }?);
        let source = match self.overflow {
            OVERFLOW_DEFAULT => source,
            OVERFLOW_DROP => source.overflow(Overflow::Drop),
            OVERFLOW_BLOCK => source.overflow(Overflow::Block),
            OVERFLOW_OVERWRITE => source.overflow(Overflow::Overwrite),
            other => return Err(wrong(format!("source `{name}`: {other} is no overflow"))),
        };
        let source = match (self.own_location, self.reserved) {
            (0, 0) => source,
            (1, 0) => source.own_location(),
            (other, _) => {
                let why = format!(
                    "source `{name}`: `own_location` is 0 or 1, not {other}, and `reserved` 0"
                );
                return Err(wrong(why));
            }
        };
        Ok(match self.clock.bits {
            0 => source,
            _ if self.clock.recorder() != recorder => return Err(Status::ErrorHandle.into()),
            _ => source.clock(self.clock.id()),
        })
    }
}

impl EventTypeSpec {
    /// # Safety
    /// - The pointers are valid.
    pub unsafe fn read(&self) -> Result<(EventType, EventTypeSchema), Failure> {
        // SAFETY: invariant CALLER (module docs).
        let name = unsafe { text(self.name) }?;
        let code = |code: u32| u8::try_from(code).unwrap_or(u8::MAX);
        let wrong = |why: String| wrong(format!("event type `{name}`: {why}"));
        let verbosity = Verbosity::from_code(code(self.verbosity))
            .ok_or_else(|| wrong(format!("{} is no verbosity", self.verbosity)))?;
        let role = Role::from_code(code(self.role))
            .ok_or_else(|| wrong(format!("{} is no role", self.role)))?;
        // SAFETY: invariant CALLER (module docs).
        let description = unsafe { text_or_empty(self.description) }?;
        let mut spec = EventType::new(name)
            .description(description)
            .verbosity(verbosity)
            .role(role);
        let mut schema = EventTypeSchema::default();
        // SAFETY: invariant CALLER (module docs).
        for element in unsafe { slice(self.elements, self.element_count) }? {
            // SAFETY: invariant CALLER (module docs).
            let (name, unit) = unsafe { (text(element.name)?, text_or_empty(element.unit)?) };
            let wrong = |why: &str| wrong(format!("element `{name}`: {why}"));
            let element_type = ElementType::from_code(code(element.r#type))
                .ok_or_else(|| wrong("its type is no element type"))?;
            let reference = Reference::from_code(code(element.reference))
                .ok_or_else(|| wrong("its reference is not known"))?;
            if element.reserved != 0 || element.is_optional > 1 {
                return Err(wrong("`is_optional` is 0 or 1, and `reserved` 0"));
            }
            let is_integer = !element_type.is_variable() && element_type != ElementType::F64;
            spec = match reference {
                Reference::None => spec.element_in(name, unit),
                _ if !is_integer => return Err(wrong("only integers refer to something")),
                _ if !unit.is_empty() => return Err(wrong("a reference has no unit")),
                reference => spec.reference(name, reference),
            };
            let is_optional = element.is_optional != 0;
            schema.elements.push((element_type, is_optional));
        }
        if !self.key.is_null() {
            // SAFETY: invariant CALLER (module docs).
            spec = spec.key(unsafe { text(self.key) }?);
        }
        Ok((spec, schema))
    }
}
