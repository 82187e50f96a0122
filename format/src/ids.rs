//! Identifiers. Each is its own type, so that a region cannot be passed where a location is meant.

use std::fmt;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(u32);

        impl $name {
            /// Wraps a number from a definition.
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// Returns the number as stored in the file.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// Returns the number as an index into a dense table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id_type!(
    /// A string of the string table.
    StringId
);
id_type!(
    /// A process: one recording. Always 0 in a recording; dense, in merge order, in a trace.
    ProcessId
);
id_type!(
    /// A clock.
    ClockId
);
id_type!(
    /// A source of events.
    SourceId
);
id_type!(
    /// An event type.
    EventTypeId
);
/// Means "any event type" in a row of totals for events whose type is unknown.
pub const ANY_EVENT_TYPE: EventTypeId = EventTypeId::new(u32::MAX);

id_type!(
    /// A program or library file, as it lay in a process's memory.
    ModuleId
);
id_type!(
    /// A named span of code.
    RegionId
);
id_type!(
    /// A call path of samples.
    CallPathId
);
id_type!(
    /// A location: where events happen, usually a thread.
    LocationId
);
id_type!(
    /// A stream: the events of one source at one location.
    StreamId
);
id_type!(
    /// An object that registrations are bound to: a communicator, a window.
    ObjectId
);

/// The 128-bit identity of a recording; two recordings never share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordingId(pub [u8; 16]);

impl fmt::Display for RecordingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordingId({self})")
    }
}

/// Identity of a boot of a host: what Linux has in `/proc/sys/kernel/random/boot_id`, in the order of its digits. Zeros when it is
/// not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootId(pub [u8; 16]);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({self})")
    }
}

/// A text that is not a boot id: 32 hexadecimal digits, with any number of hyphens between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a boot id has 32 hexadecimal digits")]
pub struct BootIdError;

impl std::str::FromStr for BootId {
    type Err = BootIdError;

    fn from_str(text: &str) -> Result<Self, BootIdError> {
        let digits: Vec<u8> = text
            .trim()
            .chars()
            .filter(|c| *c != '-')
            .map(|c| c.to_digit(16).map(|digit| digit as u8).ok_or(BootIdError))
            .collect::<Result<_, _>>()?;
        let digits: [u8; 32] = digits.try_into().map_err(|_| BootIdError)?;
        Ok(Self(std::array::from_fn(|at| {
            digits[2 * at] << 4 | digits[2 * at + 1]
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_parsed_from_its_digits_and_displayed_as_them() {
        let text = "01234567-89ab-cdef-0123-456789ABCDEF\n";
        let id: BootId = text.parse().unwrap();
        assert_eq!(id.to_string(), "0123456789abcdef0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in [
            "",
            "0123",
            "0123456789abcdef0123456789abcdeg",
            &"0".repeat(33),
        ] {
            assert_eq!(wrong.parse::<BootId>(), Err(BootIdError), "{wrong}");
        }
    }
}
