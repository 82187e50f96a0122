//! Element types and values.

use std::fmt;

/// The type of an element. MPI_T's seven datatypes map onto these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ElementType {
    /// Signed, 32 bits.
    I32 = 1,
    /// Unsigned, 32 bits.
    U32 = 2,
    /// Signed, 64 bits.
    I64 = 3,
    /// Unsigned, 64 bits.
    U64 = 4,
    /// IEEE 754 double.
    F64 = 5,
    /// Text, usually UTF-8; any bytes are kept.
    String = 6,
    /// Bytes without meaning to Annals.
    Bytes = 7,
}

impl ElementType {
    /// Returns the type with this code, if there is one.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::I32,
            2 => Self::U32,
            3 => Self::I64,
            4 => Self::U64,
            5 => Self::F64,
            6 => Self::String,
            7 => Self::Bytes,
            _ => return None,
        })
    }

    /// Returns the code in the file.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns whether values are of variable length.
    pub const fn is_variable(self) -> bool {
        matches!(self, Self::String | Self::Bytes)
    }

    /// Returns the name in definitions and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::String => "string",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One value of an element.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Of an [`ElementType::I32`].
    I32(i32),
    /// Of an [`ElementType::U32`].
    U32(u32),
    /// Of an [`ElementType::I64`].
    I64(i64),
    /// Of an [`ElementType::U64`].
    U64(u64),
    /// Of an [`ElementType::F64`].
    F64(f64),
    /// Of an [`ElementType::String`].
    String(&'a [u8]),
    /// Of an [`ElementType::Bytes`].
    Bytes(&'a [u8]),
    /// An optional element that this event does not have.
    Absent,
}

/// Text for people: numbers in decimal, strings as they are (what is not UTF-8 is replaced), bytes in hexadecimal, and `-` for
/// an absent element.
impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::I32(value) => value.fmt(f),
            Self::U32(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::String(bytes) => f.write_str(&crate::text_of_value(bytes)),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Absent => f.write_str("-"),
        }
    }
}

impl<'a> Value<'a> {
    /// Returns the type of the value; `None` when absent.
    pub const fn element_type(self) -> Option<ElementType> {
        Some(match self {
            Self::I32(_) => ElementType::I32,
            Self::U32(_) => ElementType::U32,
            Self::I64(_) => ElementType::I64,
            Self::U64(_) => ElementType::U64,
            Self::F64(_) => ElementType::F64,
            Self::String(_) => ElementType::String,
            Self::Bytes(_) => ElementType::Bytes,
            Self::Absent => return None,
        })
    }

    /// Returns the value as 64 bits (signed ones sign-extended, doubles by their bits); `None` when
    /// absent or of variable length.
    pub const fn to_bits(self) -> Option<u64> {
        Some(match self {
            Self::I32(value) => value as i64 as u64,
            Self::U32(value) => value as u64,
            Self::I64(value) => value as u64,
            Self::U64(value) => value,
            Self::F64(value) => value.to_bits(),
            Self::String(_) | Self::Bytes(_) | Self::Absent => return None,
        })
    }

    /// Returns the inverse of [`Value::to_bits`]; [`Value::Absent`] for types of variable length.
    pub const fn from_bits(element_type: ElementType, bits: u64) -> Self {
        match element_type {
            ElementType::I32 => Self::I32(bits as i32),
            ElementType::U32 => Self::U32(bits as u32),
            ElementType::I64 => Self::I64(bits as i64),
            ElementType::U64 => Self::U64(bits),
            ElementType::F64 => Self::F64(f64::from_bits(bits)),
            ElementType::String | ElementType::Bytes => Self::Absent,
        }
    }

    /// Returns the integer, whatever its width and sign; `None` for the other types.
    pub fn as_integer(self) -> Option<i128> {
        Some(match self {
            Self::I32(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I64(value) => value.into(),
            Self::U64(value) => value.into(),
            _ => return None,
        })
    }

    /// Returns the bytes of a string or bytes value.
    pub const fn as_bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::String(bytes) | Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}
