//! The element values of an event, as Rust types, and as they are known at run time only.
#![expect(
    unsafe_code,
    reason = "values from other languages bring their bytes by address"
)]

use annals_format::wire::zigzag;
use annals_format::{ElementType, EventTypeSchema, RegionId, Value};

use crate::row::{PutRow, RowCursor, VARINT_ROOM};

/// Marks a string element; its value is a `&str` or any bytes that mean text.
#[derive(Clone, Copy, Debug)]
pub enum Text {}

/// Marks a bytes element; its value is a `&[u8]`.
#[derive(Clone, Copy, Debug)]
pub enum Blob {}

mod sealed {
    /// Rows are written without checks, within a bound.
    /// Only this crate may define the bound of a type.
    pub trait Sealed {}
}

use sealed::Sealed;

/// A type that an element can have. Sealed: the types of this crate are all there are.
pub trait ElementKind: Sealed {
    /// The value that an event carries.
    type Value<'a>: Copy;
    /// The element type in the file.
    const TYPE: ElementType;
    /// Whether the value may be absent.
    const IS_OPTIONAL: bool = false;

    /// Returns the most bytes that the value takes in a row.
    fn bound(value: Self::Value<'_>) -> usize;
    /// Writes the value into a row; the row has room for its bound.
    #[doc(hidden)]
    fn put(value: Self::Value<'_>, row: &mut RowCursor);
    /// Returns whether the value is there.
    #[doc(hidden)]
    #[inline]
    fn is_present(_: Self::Value<'_>) -> bool {
        true
    }
}

macro_rules! integer_kind {
    ($($type:ty => $element:ident, $put:ident as $wide:ty;)*) => {$(
        impl Sealed for $type {}

        impl ElementKind for $type {
            type Value<'a> = $type;
            const TYPE: ElementType = ElementType::$element;

            #[inline(always)]
            fn bound(_: $type) -> usize {
                VARINT_ROOM
            }

            #[inline(always)]
            fn put(value: $type, row: &mut RowCursor) {
                row.$put(<$wide>::from(value));
            }
        }
    )*};
}

integer_kind! {
    i32 => I32, signed as i64;
    u32 => U32, varint as u64;
    i64 => I64, signed as i64;
    u64 => U64, varint as u64;
}

impl Sealed for f64 {}
impl Sealed for RegionId {}
impl Sealed for Text {}
impl Sealed for Blob {}
impl<T: ElementKind> Sealed for Option<T> {}
impl Sealed for () {}

impl ElementKind for f64 {
    type Value<'a> = Self;
    const TYPE: ElementType = ElementType::F64;

    #[inline(always)]
    fn bound(_: Self) -> usize {
        VARINT_ROOM
    }

    #[inline(always)]
    fn put(value: Self, row: &mut RowCursor) {
        row.word(value.to_bits());
    }
}

impl ElementKind for RegionId {
    type Value<'a> = Self;
    const TYPE: ElementType = ElementType::U32;

    #[inline(always)]
    fn bound(_: Self) -> usize {
        VARINT_ROOM
    }

    #[inline(always)]
    fn put(value: Self, row: &mut RowCursor) {
        row.varint(value.get().into());
    }
}

impl ElementKind for Text {
    type Value<'a> = &'a [u8];
    const TYPE: ElementType = ElementType::String;

    #[inline(always)]
    fn bound(value: &[u8]) -> usize {
        VARINT_ROOM + value.len()
    }

    #[inline(always)]
    fn put(value: &[u8], row: &mut RowCursor) {
        row.bytes(value);
    }
}

impl ElementKind for Blob {
    type Value<'a> = &'a [u8];
    const TYPE: ElementType = ElementType::Bytes;

    #[inline(always)]
    fn bound(value: &[u8]) -> usize {
        VARINT_ROOM + value.len()
    }

    #[inline(always)]
    fn put(value: &[u8], row: &mut RowCursor) {
        row.bytes(value);
    }
}

impl<T: ElementKind> ElementKind for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;
    const TYPE: ElementType = T::TYPE;
    const IS_OPTIONAL: bool = true;

    #[inline(always)]
    fn bound(value: Self::Value<'_>) -> usize {
        value.map_or(0, T::bound)
    }

    #[inline(always)]
    fn put(value: Self::Value<'_>, row: &mut RowCursor) {
        if let Some(value) = value {
            T::put(value, row);
        }
    }

    #[inline]
    fn is_present(value: Self::Value<'_>) -> bool {
        value.is_some()
    }
}

/// The element types of an event type: a tuple of up to nine [`ElementKind`]s, up to eight if any of them is
/// optional. Sealed as they are.
pub trait Elements: Sealed {
    /// The values that one event carries.
    type Values<'a>: Copy;

    /// Returns the element types and whether each is optional.
    fn schema() -> EventTypeSchema;
    /// Returns the most bytes that the values take in a row.
    fn bound(values: Self::Values<'_>) -> usize;
    /// Writes the values into a row.
    #[doc(hidden)]
    fn put(values: Self::Values<'_>, row: &mut RowCursor);
}

impl Elements for () {
    type Values<'a> = ();

    fn schema() -> EventTypeSchema {
        EventTypeSchema::default()
    }

    #[inline(always)]
    fn bound(_: ()) -> usize {
        0
    }

    #[inline(always)]
    fn put(_: (), _: &mut RowCursor) {}
}

macro_rules! tuple_elements {
    ($($kind:ident $value:ident),+) => {
        impl<$($kind: ElementKind),+> Sealed for ($($kind,)+) {}

        impl<$($kind: ElementKind),+> Elements for ($($kind,)+) {
            type Values<'a> = ($($kind::Value<'a>,)+);

            fn schema() -> EventTypeSchema {
                EventTypeSchema { elements: vec![$(($kind::TYPE, $kind::IS_OPTIONAL)),+] }
            }

            #[inline(always)]
            fn bound(($($value,)+): Self::Values<'_>) -> usize {
                1 $(+ $kind::bound($value))+
            }

            #[inline(always)]
            fn put(($($value,)+): Self::Values<'_>, row: &mut RowCursor) {
                if false $(|| $kind::IS_OPTIONAL)+ {
                    // The presence bitmap is one byte.
                    const {
                        let is_any = false $(|| $kind::IS_OPTIONAL)+;
                        assert!(!is_any || [$($kind::IS_OPTIONAL),+].len() <= 8);
                    }
                    let mut present = 0_u8;
                    let mut bit = 1_u8;
                    $(
                        if $kind::is_present($value) {
                            present |= bit;
                        }
                        bit = bit.wrapping_shl(1);
                    )+
                    let _ = bit;
                    row.byte(present);
                }
                $($kind::put($value, row);)+
            }
        }
    };
}

tuple_elements!(A a);
tuple_elements!(A a, B b);
tuple_elements!(A a, B b, C c);
tuple_elements!(A a, B b, C c, D d);
tuple_elements!(A a, B b, C c, D d, E e);
tuple_elements!(A a, B b, C c, D d, E e, F f);
tuple_elements!(A a, B b, C c, D d, E e, F f, G g);
tuple_elements!(A a, B b, C c, D d, E e, F f, G g, H h);
tuple_elements!(A a, B b, C c, D d, E e, F f, G g, H h, I i);

/// A row with the elements `E`. It refers to the values: a copy of what has just been written,
/// field by field, would wait until the processor has written all of them (some 5 of 70 ns that a
/// ping-pong under Open MPI took longer).
pub(crate) struct Typed<'v, 'a, E: Elements>(pub(crate) &'v E::Values<'a>);

impl<E: Elements> Clone for Typed<'_, '_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Elements> Copy for Typed<'_, '_, E> {}

impl<E: Elements> PutRow for Typed<'_, '_, E> {
    #[inline(always)]
    fn put(self, row: &mut RowCursor) {
        E::put(*self.0, row);
    }
}

/// A row with values that fit.
#[derive(Clone, Copy)]
pub(crate) struct Raw<I> {
    pub(crate) fit: Fit,
    pub(crate) values: I,
}

impl<'v, I: Values<'v>> PutRow for Raw<I> {
    #[inline(always)]
    fn put(self, row: &mut RowCursor) {
        put_values(self.fit, self.values, row);
    }
}

/// Values known at run time only, in whatever memory their callers have them.
pub trait Values<'v>: Copy {
    /// Returns the number of values.
    fn len(self) -> usize;

    /// Returns whether there are no values.
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the value with this index, which is below the number of values.
    fn get(self, index: usize) -> RawValue<'v>;
}

impl<'v> Values<'v> for &[Value<'v>] {
    #[inline(always)]
    fn len(self) -> usize {
        <[Value<'v>]>::len(self)
    }

    #[inline(always)]
    fn get(self, index: usize) -> RawValue<'v> {
        RawValue::of(self[index])
    }
}

/// A value as it is in memory, whatever its type: values that are known only at run time are raised
/// from it. Its types are distinguished by comparisons, which a processor predicts, and not by a
/// jump to a separate place for each type, which it does not (benches/c_path).
#[derive(Clone, Copy, Debug)]
pub struct RawValue<'v> {
    /// Code of its element type.
    /// 0 means that the value is absent.
    code: u32,
    length: u32,
    /// A number's bits, of the lower half for 32 bits; else where the bytes are.
    bits: u64,
    bytes: std::marker::PhantomData<&'v [u8]>,
}

impl<'v> RawValue<'v> {
    /// Creates a value with the code of an element type, or 0 for one that is absent.
    /// Any other code never fits.
    ///
    /// # Safety
    /// - With the code of a string or of bytes, `bits` is 0 or the address of `length` bytes that
    ///   are valid for `'v`.
    #[inline(always)]
    pub const unsafe fn new(code: u32, length: u32, bits: u64) -> Self {
        let bytes = std::marker::PhantomData;
        Self {
            code,
            length,
            bits,
            bytes,
        }
    }

    /// Converts a value.
    /// A text that is longer than the longest event is cut, and the event is dropped.
    pub(crate) fn of(value: Value<'v>) -> Self {
        let code = value.element_type().map_or(0, ElementType::code).into();
        let (length, bits) = match value.as_bytes() {
            Some(bytes) => (bytes.len(), bytes.as_ptr().expose_provenance() as u64),
            None => (0, value.to_bits().unwrap_or(0)),
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        // SAFETY: where the value's bytes are, for as long as they are.
        unsafe { Self::new(code, length, bits) }
    }

    #[inline(always)]
    const fn is_variable(self) -> bool {
        self.code >= ElementType::String as u32
    }

    /// Returns whether a string or bytes value has no address.
    #[inline(always)]
    const fn lacks_bytes(self) -> bool {
        self.bits == 0 && self.length != 0
    }

    /// Returns the integer as it is stored in the row.
    #[inline(always)]
    const fn integer(self) -> u64 {
        let is_narrow = self.code <= ElementType::U32 as u32;
        let is_signed = self.code & 1 == 1;
        let sign = if is_narrow {
            self.bits as i32 as i64
        } else {
            self.bits as i64
        };
        let unsigned = if is_narrow {
            self.bits as u32 as u64
        } else {
            self.bits
        };
        if is_signed { zigzag(sign) } else { unsigned }
    }

    /// Appends the bytes of a string or bytes value whose pointer is valid.
    #[inline(always)]
    fn put_bytes(self, row: &mut RowCursor) {
        let bytes: &[u8] = if self.length == 0 {
            &[]
        } else {
            let start = std::ptr::with_exposed_provenance(self.bits as usize);
            // SAFETY: promised to `new`; a value without an address does not fit and is not read.
            unsafe { std::slice::from_raw_parts(start, self.length as usize) }
        };
        row.bytes(bytes);
    }

    #[inline(always)]
    fn put(self, row: &mut RowCursor) {
        if self.code.wrapping_sub(1) < ElementType::U64 as u32 {
            row.varint(self.integer());
        } else if self.is_variable() {
            self.put_bytes(row);
        } else if self.code != 0 {
            row.word(self.bits);
        }
    }
}

// The integer's kind, by the bits of the code.
const _: () = assert!(ElementType::I32 as u32 == 1 && ElementType::U32 as u32 == 2);
const _: () = assert!(ElementType::I64 as u32 == 3 && ElementType::U64 as u32 == 4);
const _: () = assert!(ElementType::String as u32 == 6 && ElementType::Bytes as u32 == 7);

/// Most elements that are written by code made for their number.
pub(crate) const MOST_FEW: usize = 8;

/// The layout of an event type's rows, as far as a raise needs it.
#[derive(Debug)]
pub(crate) struct RowShape {
    pub(crate) schema: EventTypeSchema,
    /// By element, the code of its type; of event types whose elements are all numbers, and all
    /// there.
    numbers: Option<Box<[u32]>>,
    /// The codes of 1 to [`MOST_FEW`] elements that are all there: a byte each, the first one
    /// lowest.
    few: u64,
    /// How many these are; 0 for other event types.
    few_count: usize,
    /// The types of these elements.
    pub(crate) few_are: Few,
}

/// The types of an event type's few elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Few {
    /// Integers without a sign.
    Unsigned,
    /// Integers.
    Integers,
    /// One, a text or bytes.
    OneText,
    /// Anything.
    Any,
}

impl RowShape {
    pub(crate) fn new(schema: EventTypeSchema) -> Self {
        let elements = &schema.elements;
        let code = |(element_type, is_optional): &(ElementType, bool)| {
            (!is_optional).then_some(*element_type as u32)
        };
        let codes: Option<Box<[u32]>> = elements.iter().map(code).collect();
        let few = codes.as_deref().filter(|codes| codes.len() <= MOST_FEW);
        let few = few.unwrap_or_default();
        let pack = |packed, code: &u32| packed << 8 | u64::from(*code);
        let is_integer = |code: &u32| *code <= ElementType::U64 as u32;
        let few_are = match few {
            [code] if *code >= ElementType::String as u32 => Few::OneText,
            codes if !codes.iter().all(is_integer) => Few::Any,
            codes if codes.iter().any(|code| code & 1 == 1) => Few::Integers,
            _ => Few::Unsigned,
        };
        Self {
            few: few.iter().rev().fold(0, pack),
            few_count: few.len(),
            few_are,
            numbers: codes.filter(|_| elements.iter().all(|(kind, _)| !kind.is_variable())),
            schema,
        }
    }

    /// Returns whether these values fit, and are numbers.
    /// For event types of numbers, nothing else is checked: the bound of the row follows from the
    /// number of values alone.
    #[inline(always)]
    pub(crate) fn fits_numbers<'v>(&self, values: impl Values<'v>) -> bool {
        let Some(numbers) = &self.numbers else {
            return false;
        };
        // In this order: the values' number is then known to be good for each of them.
        let mut codes = numbers.iter().enumerate();
        values.len() == numbers.len() && codes.all(|(index, code)| values.get(index).code == *code)
    }

    /// Returns whether these `N` values have the types of the elements.
    /// For event types with few elements.
    #[inline(always)]
    pub(crate) fn fits_few<'v, const N: usize>(&self, values: impl Values<'v>) -> bool {
        let (mut packed, mut all) = (0, 0);
        for index in 0..N {
            let code = values.get(index).code;
            packed |= u64::from(code) << (8 * index);
            all |= code;
        }
        // A code larger than a byte would overwrite its neighbour.
        packed == self.few && self.few_count == N && all <= u32::from(u8::MAX)
    }
}

/// A row with `N` values that are integers, and fit; without `SIGNED`, they are unsigned.
#[derive(Clone, Copy)]
pub(crate) struct Integers<I, const N: usize, const SIGNED: bool>(pub(crate) I);

impl<I, const N: usize, const SIGNED: bool> Integers<I, N, SIGNED> {
    /// Most bytes that the values take.
    pub(crate) const BOUND: usize = N * VARINT_ROOM;
}

impl<'v, I: Values<'v>, const N: usize, const SIGNED: bool> PutRow for Integers<I, N, SIGNED> {
    #[inline(always)]
    fn put(self, to: &mut RowCursor) {
        // A local cursor stays in a register.
        let mut row = *to;
        for index in 0..N {
            let value = self.0.get(index);
            if SIGNED {
                row.varint(value.integer());
            } else if value.code == ElementType::U32 as u32 {
                row.varint(u64::from(value.bits as u32));
            } else {
                row.varint(value.bits);
            }
        }
        *to = row;
    }
}

/// A row with one text or bytes value that is there, and fits.
#[derive(Clone, Copy)]
pub(crate) struct OneText<'v>(RawValue<'v>);

impl<'v> OneText<'v> {
    /// Creates the row of one text, and returns it with the most bytes that it takes.
    /// Returns `None` if the bytes are missing.
    #[inline(always)]
    pub(crate) fn new(value: RawValue<'v>) -> Option<(Self, usize)> {
        let bound = VARINT_ROOM.saturating_add(value.length as usize);
        (!value.lacks_bytes()).then_some((Self(value), bound))
    }
}

impl PutRow for OneText<'_> {
    #[inline(always)]
    fn put(self, to: &mut RowCursor) {
        let mut row = *to;
        self.0.put_bytes(&mut row);
        *to = row;
    }
}

/// A row with `N` values that are all there, and fit.
#[derive(Clone, Copy)]
pub(crate) struct Present<I, const N: usize>(I);

impl<'v, I: Values<'v>, const N: usize> Present<I, N> {
    /// Returns values of the right types, and the maximum size that they take. `None` means that
    /// the bytes of a value are missing.
    #[inline(always)]
    pub(crate) fn new(values: I) -> Option<(Self, usize)> {
        let mut bound = N * VARINT_ROOM;
        for index in 0..N {
            let value = values.get(index);
            if value.is_variable() {
                if value.lacks_bytes() {
                    return None;
                }
                bound = bound.saturating_add(value.length as usize);
            }
        }
        Some((Self(values), bound))
    }
}

impl<'v, I: Values<'v>, const N: usize> PutRow for Present<I, N> {
    #[inline(always)]
    fn put(self, to: &mut RowCursor) {
        let mut row = *to;
        for index in 0..N {
            self.0.get(index).put(&mut row);
        }
        *to = row;
    }
}

/// A row with values that are numbers, and fit.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<I>(pub(crate) I);

impl<'v, I: Values<'v>> Numbers<I> {
    /// Returns the most bytes that the values take.
    #[inline(always)]
    pub(crate) fn bound(self) -> usize {
        self.0.len() * VARINT_ROOM
    }
}

impl<'v, I: Values<'v>> PutRow for Numbers<I> {
    #[inline(always)]
    fn put(self, to: &mut RowCursor) {
        // A local cursor stays in a register.
        let mut row = *to;
        for index in 0..self.0.len() {
            let value = self.0.get(index);
            if value.code <= ElementType::U64 as u32 {
                row.varint(value.integer());
            } else {
                row.word(value.bits);
            }
        }
        *to = row;
    }
}

/// The size of a row with values that are known only at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Most bytes that the values take.
    pub(crate) bound: usize,
    has_optional: bool,
}

/// Returns how values fit a schema.
/// Returns `None` unless there are as many as elements, with the same types, and absent only where
/// that is allowed.
#[inline(always)]
pub(crate) fn fit<'v>(schema: &EventTypeSchema, values: impl Values<'v>) -> Option<Fit> {
    let elements = schema.elements.as_slice();
    if values.len() != elements.len() {
        return None;
    }
    let mut fit = Fit {
        bound: elements.len().div_ceil(8) + elements.len() * VARINT_ROOM,
        has_optional: false,
    };
    for (index, (element_type, is_optional)) in elements.iter().enumerate() {
        let value = values.get(index);
        let is_absent = value.code == 0 && *is_optional;
        if value.code != *element_type as u32 && !is_absent {
            return None;
        }
        if value.is_variable() {
            if value.lacks_bytes() {
                return None;
            }
            fit.bound = fit.bound.saturating_add(value.length as usize);
        }
        fit.has_optional |= *is_optional;
    }
    Some(fit)
}

/// Writes values that fit.
#[inline(always)]
pub(crate) fn put_values<'v>(fit: Fit, values: impl Values<'v>, to: &mut RowCursor) {
    // A local cursor stays in a register.
    let mut row = *to;
    if fit.has_optional {
        let (mut byte, mut bit) = (0_u8, 1_u8);
        for index in 0..values.len() {
            let value = values.get(index);
            if value.code != 0 {
                byte |= bit;
            }
            bit = bit.rotate_left(1);
            if bit == 1 {
                row.byte(std::mem::take(&mut byte));
            }
        }
        if bit != 1 {
            row.byte(byte);
        }
    }
    for index in 0..values.len() {
        values.get(index).put(&mut row);
    }
    *to = row;
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<'v> Values<'v> for &[RawValue<'v>] {
        fn len(self) -> usize {
            <[RawValue<'v>]>::len(self)
        }

        fn get(self, index: usize) -> RawValue<'v> {
            self[index]
        }
    }

    /// Values look alike in a row, whichever way they are raised.
    #[test]
    fn values_known_at_run_time_make_the_same_row() {
        type Typed = (i32, u32, i64, u64, f64, Text, Blob, Option<i32>);
        let write = |put: &dyn Fn(&mut RowCursor)| {
            let mut memory = [0_u8; 256];
            let start = memory.as_mut_ptr();
            // SAFETY: 256 bytes are more than any bound here.
            let mut row = unsafe { RowCursor::new(start) };
            put(&mut row);
            memory[..row.offset_from(start)].to_vec()
        };
        for (number, text) in [(-1, "text"), (i64::MIN, ""), (i64::MAX, "long"), (7, "x")] {
            let absent = (number < 0).then_some(number as i32);
            let typed = (
                number as i32,
                number as u32,
                number,
                number as u64,
                number as f64,
                text.as_bytes(),
                text.as_bytes(),
                absent,
            );
            let values = [
                Value::I32(number as i32),
                Value::U32(number as u32),
                Value::I64(number),
                Value::U64(number as u64),
                Value::F64(number as f64),
                Value::String(text.as_bytes()),
                Value::Bytes(text.as_bytes()),
                absent.map_or(Value::Absent, Value::I32),
            ];
            let raw = values.as_slice();
            let fit = fit(&Typed::schema(), raw).expect("they fit");
            assert!(fit.bound >= Typed::bound(typed));
            assert!(!RowShape::new(Typed::schema()).fits_numbers(raw));
            let expected = write(&|row| Typed::put(typed, row));
            assert_eq!(write(&|row| put_values(fit, raw, row)), expected);
        }
        // Those of numbers alone, in fewer steps.
        for number in [-1, 0, 1, 200, i64::MIN, i64::MAX] {
            let typed = (
                number as i32,
                number as u32,
                number,
                number as u64,
                number as f64,
            );
            let values = [
                Value::I32(number as i32),
                Value::U32(number as u32),
                Value::I64(number),
                Value::U64(number as u64),
                Value::F64(number as f64),
            ];
            let shape = RowShape::new(<(i32, u32, i64, u64, f64)>::schema());
            assert!(shape.fits_numbers(values.as_slice()));
            assert!(!shape.fits_numbers(&values[..4]));
            let mut other = values;
            other[2] = Value::U64(1);
            assert!(!shape.fits_numbers(other.as_slice()));
            other[2] = Value::Absent;
            assert!(!shape.fits_numbers(other.as_slice()));
            let row = Numbers(values.as_slice());
            assert!(row.bound() + 1 >= <(i32, u32, i64, u64, f64)>::bound(typed));
            let expected = write(&|row| <(i32, u32, i64, u64, f64)>::put(typed, row));
            assert_eq!(write(&|to| row.put(to)), expected, "{number}");
        }
        // And those of few elements, by code for their number.
        for number in [-1, 0, 1, 200, 20_000, i64::MIN, i64::MAX] {
            let (a, b, c) = (number as i32, number as u32, number as u64);
            let values = [Value::I32(a), Value::U32(b), Value::U64(c)];
            let signed = RowShape::new(<(i32, u32, u64)>::schema());
            assert_eq!(signed.few_are, Few::Integers);
            assert!(signed.fits_few::<3>(values.as_slice()));
            let expected = write(&|row| <(i32, u32, u64)>::put((a, b, c), row));
            let row = Integers::<_, 3, true>(values.as_slice());
            assert_eq!(write(&|to| row.put(to)), expected, "{number}");
            let (row, bound) = Present::<_, 3>::new(values.as_slice()).expect("all there");
            assert!(bound >= expected.len());
            assert_eq!(write(&|to| row.put(to)), expected, "{number}");

            let unsigned = RowShape::new(<(u32, u64)>::schema());
            assert_eq!(unsigned.few_are, Few::Unsigned);
            assert!(unsigned.fits_few::<2>(&values[1..]));
            let expected = write(&|row| <(u32, u64)>::put((b, c), row));
            let row = Integers::<_, 2, false>(&values[1..]);
            assert_eq!(write(&|to| row.put(to)), expected, "{number}");

            // One more or fewer, another type, an absent one.
            assert!(!signed.fits_few::<2>(&values[..2]));
            assert!(!unsigned.fits_few::<3>(values.as_slice()));
            let absent = [values[1], values[2], Value::Absent];
            assert!(!unsigned.fits_few::<3>(absent.as_slice()));
            assert!(!signed.fits_few::<3>(absent.as_slice()));
            let optional = RowShape::new(<(Option<u32>,)>::schema());
            assert!(!optional.fits_few::<1>([Value::Absent].as_slice()));
            let code = 2 | 4 << 8;
            let wide = [RawValue {
                code,
                ..RawValue::of(values[1])
            }; 2];
            assert!(!unsigned.fits_few::<2>(wide.as_slice()));
        }
        let texts = RowShape::new(<(Text, f64)>::schema());
        assert_eq!(texts.few_are, Few::Any);
        let values = [Value::String(b"text"), Value::F64(0.5)];
        assert!(texts.fits_few::<2>(values.as_slice()) && !texts.fits_numbers(values.as_slice()));
        let (row, bound) = Present::<_, 2>::new(values.as_slice()).expect("all there");
        let expected = write(&|row| <(Text, f64)>::put((b"text", 0.5), row));
        assert!(bound >= expected.len());
        assert_eq!(write(&|to| row.put(to)), expected);
        let mut missing = values.map(RawValue::of);
        missing[0].bits = 0;
        assert!(Present::<_, 2>::new(missing.as_slice()).is_none());
        // Neither in number, nor in type, nor absent where that is not allowed, nor of no type at
        // all.
        let schema = <(u32, Option<Text>)>::schema();
        let raw = |code| {
            [
                RawValue {
                    code,
                    ..RawValue::of(Value::U32(1))
                },
                RawValue::of(Value::Absent),
            ]
        };
        assert!(fit(&schema, raw(2).as_slice()).is_some());
        assert!(fit(&schema, &raw(2)[..1]).is_none());
        for code in [0, 1, 3, 6, 8, 77, u32::MAX] {
            assert!(fit(&schema, raw(code).as_slice()).is_none(), "{code}");
        }
    }
}
