//! The words that producers and consumers share: datatypes and values, safety levels, what things
//! are bound to, hints.

use std::collections::BTreeMap;

/// Most values of one variable: a wrong number must not make the program run out of memory.
pub(crate) const MAX_ITEMS: usize = 1 << 20;

/// The datatype of an element or a variable: the seven of the interface (MPI 4.1 §16.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Datatype {
    /// `MPI_INT`: 32 bits.
    Int = 0,
    /// `MPI_UNSIGNED`: 32 bits.
    Unsigned = 1,
    /// `MPI_UNSIGNED_LONG`: 64 bits.
    UnsignedLong = 2,
    /// `MPI_UNSIGNED_LONG_LONG`: 64 bits.
    UnsignedLongLong = 3,
    /// `MPI_COUNT`: 64 bits, signed.
    Count = 4,
    /// `MPI_CHAR`: one byte of a text; variables of this type hold a text that ends with a zero.
    Char = 5,
    /// `MPI_DOUBLE`.
    Double = 6,
}

impl Datatype {
    /// All seven, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Int,
        Self::Unsigned,
        Self::UnsignedLong,
        Self::UnsignedLongLong,
        Self::Count,
        Self::Char,
        Self::Double,
    ];

    /// Returns the bytes that a value takes, also what its displacement is a multiple of.
    pub const fn size(self) -> usize {
        match self {
            Self::Char => 1,
            Self::Int | Self::Unsigned => 4,
            Self::UnsignedLong | Self::UnsignedLongLong | Self::Count | Self::Double => 8,
        }
    }
}

/// A value of an element or a variable.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// Of [`Datatype::Int`].
    Int(i32),
    /// Of [`Datatype::Unsigned`].
    Unsigned(u32),
    /// Of [`Datatype::UnsignedLong`].
    UnsignedLong(u64),
    /// Of [`Datatype::UnsignedLongLong`].
    UnsignedLongLong(u64),
    /// Of [`Datatype::Count`].
    Count(i64),
    /// Of [`Datatype::Char`].
    Char(u8),
    /// Of [`Datatype::Double`].
    Double(f64),
}

impl Value {
    /// Returns its datatype.
    #[inline]
    pub const fn datatype(self) -> Datatype {
        match self {
            Self::Int(_) => Datatype::Int,
            Self::Unsigned(_) => Datatype::Unsigned,
            Self::UnsignedLong(_) => Datatype::UnsignedLong,
            Self::UnsignedLongLong(_) => Datatype::UnsignedLongLong,
            Self::Count(_) => Datatype::Count,
            Self::Char(_) => Datatype::Char,
            Self::Double(_) => Datatype::Double,
        }
    }

    /// Returns the value in 64 bits.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        match self {
            Self::Int(value) => value as u32 as u64,
            Self::Unsigned(value) => value as u64,
            Self::UnsignedLong(value) | Self::UnsignedLongLong(value) => value,
            Self::Count(value) => value as u64,
            Self::Char(value) => value as u64,
            Self::Double(value) => value.to_bits(),
        }
    }

    /// Returns the value of a datatype that these bits are.
    #[inline]
    pub(crate) const fn of_bits(datatype: Datatype, bits: u64) -> Self {
        match datatype {
            Datatype::Int => Self::Int(bits as i32),
            Datatype::Unsigned => Self::Unsigned(bits as u32),
            Datatype::UnsignedLong => Self::UnsignedLong(bits),
            Datatype::UnsignedLongLong => Self::UnsignedLongLong(bits),
            Datatype::Count => Self::Count(bits as i64),
            Datatype::Char => Self::Char(bits as u8),
            Datatype::Double => Self::Double(f64::from_bits(bits)),
        }
    }

    /// Writes the value as the program's own C code reads it: in the processor's byte order. False
    /// when the bytes are too few, and nothing was written.
    #[inline]
    pub fn put(self, to: &mut [u8]) -> bool {
        // A lint forbids this for files; here the reader is the same process.
        #[expect(clippy::host_endian_bytes, reason = "memory of this process")]
        let bytes = self.bits().to_ne_bytes();
        let size = self.datatype().size();
        let Some(to) = to.get_mut(..size) else {
            return false;
        };
        let start = if cfg!(target_endian = "big") {
            8 - size
        } else {
            0
        };
        to.copy_from_slice(&bytes[start..start + size]);
        true
    }

    /// Reads a value in C's memory layout. Returns `None` when there are too few bytes.
    #[inline]
    pub fn get(datatype: Datatype, from: &[u8]) -> Option<Self> {
        let size = datatype.size();
        let mut bytes = [0; 8];
        let start = if cfg!(target_endian = "big") {
            8 - size
        } else {
            0
        };
        bytes[start..start + size].copy_from_slice(from.get(..size)?);
        #[expect(clippy::host_endian_bytes, reason = "memory of this process")]
        let bits = u64::from_ne_bytes(bytes);
        Some(Self::of_bits(datatype, bits))
    }
}

/// The safety of a callback: requirements that a context has, and that a callback meets (MPI 4.1
/// §16.3.8.2, table 21). Each level includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Safety {
    /// Nothing is restricted.
    None = 0,
    /// Of the functions of MPI, only those of the tool interface and its clocks may be called.
    Restricted = 1,
    /// Also thread-safe and reentrant.
    ThreadSafe = 2,
    /// Also safe in signal handlers.
    AsyncSignalSafe = 3,
}

impl Safety {
    /// All levels, the lowest first.
    pub const ALL: [Self; 4] = [
        Self::None,
        Self::Restricted,
        Self::ThreadSafe,
        Self::AsyncSignalSafe,
    ];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The kind of object that something must be bound to (MPI 4.1 §16.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Bind {
    /// No object: it is about the whole process.
    NoObject = 0,
    /// A communicator.
    Communicator = 1,
    /// A datatype.
    Datatype = 2,
    /// An error handler.
    ErrorHandler = 3,
    /// A file.
    File = 4,
    /// A group.
    Group = 5,
    /// A reduction operator.
    Op = 6,
    /// A request.
    Request = 7,
    /// A window.
    Window = 8,
    /// A message.
    Message = 9,
    /// An info object.
    Info = 10,
    /// A session.
    Session = 11,
}

impl Bind {
    /// All kinds, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::NoObject,
        Self::Communicator,
        Self::Datatype,
        Self::ErrorHandler,
        Self::File,
        Self::Group,
        Self::Op,
        Self::Request,
        Self::Window,
        Self::Message,
        Self::Info,
        Self::Session,
    ];

    /// Returns what such an object is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoObject => "",
            Self::Communicator => "communicator",
            Self::Datatype => "datatype",
            Self::ErrorHandler => "error handler",
            Self::File => "file",
            Self::Group => "group",
            Self::Op => "operator",
            Self::Request => "request",
            Self::Window => "window",
            Self::Message => "message",
            Self::Info => "info",
            Self::Session => "session",
        }
    }
}

/// An object's handle, as its own library has it: any number. That it is no longer an object's,
/// only the producer can know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectHandle(pub u64);

/// Hints: keys and values.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Info(BTreeMap<String, String>);

impl Info {
    /// Creates a set without hints.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Sets a hint.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(key, value);
        self
    }

    /// Sets a hint.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.0.insert(key.into(), value.into());
    }

    /// Returns the value of a hint.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns all hints, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the values of keys that are here already; the others are ignored.
    pub(crate) fn update(&mut self, hints: &Self) {
        for (key, value) in &hints.0 {
            if let Some(known) = self.0.get_mut(key) {
                known.clone_from(value);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_lie_in_memory_as_c_has_them() {
        let mut memory = [0_u8; 8];
        for (value, size) in [
            (Value::Int(-2), 4),
            (Value::Unsigned(u32::MAX), 4),
            (Value::UnsignedLong(u64::MAX - 1), 8),
            (Value::UnsignedLongLong(3), 8),
            (Value::Count(i64::MIN), 8),
            (Value::Char(b'x'), 1),
            (Value::Double(-0.5), 8),
        ] {
            assert_eq!(value.datatype().size(), size);
            assert!(!value.put(&mut memory[..size - 1]));
            assert!(value.put(&mut memory));
            assert_eq!(Value::get(value.datatype(), &memory), Some(value));
            assert_eq!(Value::get(value.datatype(), &memory[..size - 1]), None);
        }
        assert!(Value::Int(-2).put(&mut memory));
        #[expect(clippy::host_endian_bytes, reason = "memory of this process")]
        let bytes = (-2_i32).to_ne_bytes();
        assert_eq!(memory[..4], bytes);
    }
}
