//! Common parts of the record types of definitions: the trait [`Record`], and readers and writers
//! of fields that occur in several of them.

use crate::error::{FormatError, Result};
use crate::ids::{ProcessId, StringId};
use crate::wire::{Put, Wire};

/// A type whose values are stored as definition records of one kind.
pub(super) trait Record: Sized {
    /// Number of the kind in SPEC.md's table of definitions.
    const KIND: u64;

    /// Returns the id that the record defines or describes: the highest one if there are several, 0 if there is none.
    /// Readers refuse a record whose id exceeds what a file of this length can define.
    fn highest_id(&self) -> u32;

    /// Appends the body of the record.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads the body of a record.
    ///
    /// # Errors
    /// If the body ends early or a field contradicts SPEC.md.
    fn read(wire: &mut Wire<'_>) -> Result<Self>;
}

/// Appends an optional number as a varint: 0 if it is absent, else the number + 1.
pub(super) fn put_optional_u32(out: &mut Vec<u8>, value: Option<u32>) {
    out.put_varint(value.map_or(0, |value| u64::from(value) + 1));
}

/// Reads an optional number, a varint: 0 if it is absent, else the number + 1.
pub(super) fn read_optional_u32(
    wire: &mut Wire<'_>,
    expected: &'static str,
) -> Result<Option<u32>> {
    let start = wire.position();
    match wire.varint(expected)? {
        0 => Ok(None),
        value => u32::try_from(value - 1)
            .map(Some)
            .map_err(|_| FormatError::invalid(start, expected, value)),
    }
}

/// Appends one end of a time window: a flag, then the time.
pub(super) fn put_bound(out: &mut Vec<u8>, bound: Option<i64>) {
    out.push(bound.is_some().into());
    out.put_signed(bound.unwrap_or(0));
}

/// Reads one end of a time window.
pub(super) fn read_bound(wire: &mut Wire<'_>) -> Result<Option<i64>> {
    let is_there = wire.u8("flag of a bound")? != 0;
    let bound = wire.signed("bound of a stretch of time")?;
    Ok(is_there.then_some(bound))
}

/// Reads the id of a process.
pub(super) fn read_process(wire: &mut Wire<'_>) -> Result<ProcessId> {
    wire.varint_u32("process id").map(ProcessId::new)
}

/// Reads the id of a string.
pub(super) fn read_string(wire: &mut Wire<'_>) -> Result<StringId> {
    wire.varint_u32("string id").map(StringId::new)
}

/// Reads a code; an unknown one is an error.
pub(super) fn read_code<T>(
    wire: &mut Wire<'_>,
    expected: &'static str,
    from_code: impl Fn(u8) -> Option<T>,
) -> Result<T> {
    let start = wire.position();
    let code = wire.u8(expected)?;
    from_code(code)
        .ok_or_else(|| FormatError::invalid(start, expected, format!("unknown code {code}")))
}

/// Reads a code whose meaning a later minor version may have extended. An unknown one is read as
/// `otherwise`, so that the definition stays usable.
pub(super) fn read_code_or<T>(
    wire: &mut Wire<'_>,
    expected: &'static str,
    from_code: impl Fn(u8) -> Option<T>,
    otherwise: T,
) -> Result<T> {
    Ok(from_code(wire.u8(expected)?).unwrap_or(otherwise))
}
