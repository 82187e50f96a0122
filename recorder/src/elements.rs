//! The element values of an event, as Rust types.

use annals_format::{ElementType, EventTypeSchema, RegionId, Value};

use crate::row::{RowCursor, VARINT_ROOM};

/// Marks a string element; its value is a `&str` or any bytes that mean text.
#[derive(Clone, Copy, Debug)]
pub enum Text {}

/// Marks a bytes element; its value is a `&[u8]`.
#[derive(Clone, Copy, Debug)]
pub enum Blob {}

mod sealed {
    /// Rows are written without checks behind a bound: only this crate says what a bound is.
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

    /// Most bytes that the value takes in a row.
    fn bound(value: Self::Value<'_>) -> usize;
    /// Writes the value into a row; the row has room for its bound.
    #[doc(hidden)]
    fn put(value: Self::Value<'_>, row: &mut RowCursor);
    /// Whether the value is there.
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

            #[inline]
            fn bound(_: $type) -> usize {
                VARINT_ROOM
            }

            #[inline]
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

    #[inline]
    fn bound(_: Self) -> usize {
        VARINT_ROOM
    }

    #[inline]
    fn put(value: Self, row: &mut RowCursor) {
        row.word(value.to_bits());
    }
}

impl ElementKind for RegionId {
    type Value<'a> = Self;
    const TYPE: ElementType = ElementType::U32;

    #[inline]
    fn bound(_: Self) -> usize {
        VARINT_ROOM
    }

    #[inline]
    fn put(value: Self, row: &mut RowCursor) {
        row.varint(value.get().into());
    }
}

impl ElementKind for Text {
    type Value<'a> = &'a [u8];
    const TYPE: ElementType = ElementType::String;

    #[inline]
    fn bound(value: &[u8]) -> usize {
        VARINT_ROOM + value.len()
    }

    #[inline]
    fn put(value: &[u8], row: &mut RowCursor) {
        row.bytes(value);
    }
}

impl ElementKind for Blob {
    type Value<'a> = &'a [u8];
    const TYPE: ElementType = ElementType::Bytes;

    #[inline]
    fn bound(value: &[u8]) -> usize {
        VARINT_ROOM + value.len()
    }

    #[inline]
    fn put(value: &[u8], row: &mut RowCursor) {
        row.bytes(value);
    }
}

impl<T: ElementKind> ElementKind for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;
    const TYPE: ElementType = T::TYPE;
    const IS_OPTIONAL: bool = true;

    #[inline]
    fn bound(value: Self::Value<'_>) -> usize {
        value.map_or(0, T::bound)
    }

    #[inline]
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

/// The element types of an event type: a tuple of up to eight [`ElementKind`]s. Sealed as they are.
pub trait Elements: Sealed {
    /// The values that one event carries.
    type Values<'a>: Copy;

    /// The element types and whether each is optional.
    fn schema() -> EventTypeSchema;
    /// Most bytes that the values take in a row.
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

    #[inline]
    fn bound((): ()) -> usize {
        0
    }

    #[inline]
    fn put((): (), _: &mut RowCursor) {}
}

macro_rules! tuple_elements {
    ($($kind:ident $value:ident),+) => {
        impl<$($kind: ElementKind),+> Sealed for ($($kind,)+) {}

        impl<$($kind: ElementKind),+> Elements for ($($kind,)+) {
            type Values<'a> = ($($kind::Value<'a>,)+);

            fn schema() -> EventTypeSchema {
                EventTypeSchema { elements: vec![$(($kind::TYPE, $kind::IS_OPTIONAL)),+] }
            }

            #[inline]
            fn bound(($($value,)+): Self::Values<'_>) -> usize {
                1 $(+ $kind::bound($value))+
            }

            #[inline]
            fn put(($($value,)+): Self::Values<'_>, row: &mut RowCursor) {
                if false $(|| $kind::IS_OPTIONAL)+ {
                    // At most eight elements: the presence bitmap is one byte.
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

/// What a row with values known only at run time needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Most bytes that the values take.
    pub(crate) bound: usize,
    has_optional: bool,
}

/// How values fit a schema; none unless they are as many, of the same types, and absent only where that
/// is allowed.
#[inline]
pub(crate) fn fit<'v>(
    schema: &EventTypeSchema,
    values: impl ExactSizeIterator<Item = Option<Value<'v>>>,
) -> Option<Fit> {
    let elements = schema.elements.as_slice();
    if values.len() != elements.len() {
        return None;
    }
    let mut fit = Fit {
        bound: elements.len().div_ceil(8) + elements.len() * VARINT_ROOM,
        has_optional: false,
    };
    for ((element_type, is_optional), value) in elements.iter().zip(values) {
        let value = value?;
        let fits = match value.element_type() {
            Some(found) => found == *element_type,
            None => *is_optional,
        };
        if !fits {
            return None;
        }
        fit.bound = fit
            .bound
            .saturating_add(value.as_bytes().map_or(0, <[u8]>::len));
        fit.has_optional |= *is_optional;
    }
    Some(fit)
}

/// Writes values that fit.
#[inline]
pub(crate) fn put_values<'v>(
    fit: Fit,
    values: impl Iterator<Item = Option<Value<'v>>> + Clone,
    row: &mut RowCursor,
) {
    let values = values.flatten();
    if fit.has_optional {
        let (mut byte, mut bit) = (0_u8, 1_u8);
        for value in values.clone() {
            if value != Value::Absent {
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
    for value in values {
        match value {
            Value::I32(value) => row.signed(value.into()),
            Value::I64(value) => row.signed(value),
            Value::U32(value) => row.varint(value.into()),
            Value::U64(value) => row.varint(value),
            Value::F64(value) => row.word(value.to_bits()),
            Value::String(bytes) | Value::Bytes(bytes) => row.bytes(bytes),
            Value::Absent => {}
        }
    }
}
