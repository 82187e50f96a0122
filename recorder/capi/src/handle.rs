//! Handles: numbers that contain a recorder, a kind of thing, and an id.

use annals_recorder::{ClockId, EventTypeId, RegionId, SourceId};

use crate::status::{Failure, Status};

const KIND_SHIFT: u32 = 28;
const ID_MASK: u32 = (1 << KIND_SHIFT) - 1;

/// No id that was ever given.
const NO_ID: u32 = u32::MAX;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident, $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(C)]
        pub struct $name {
            pub bits: u64,
        }

        impl $name {
            #[allow(dead_code, reason = "not every kind is looked into")]
            fn pack(recorder: u32, id: u32) -> Result<Self, Failure> {
                if id > ID_MASK {
                    return Err(Status::ErrorFull.into());
                }
                let low = $kind << KIND_SHIFT | id;
                Ok(Self { bits: u64::from(recorder) << 32 | u64::from(low) })
            }

            /// Returns the number of the recorder; 0 names none.
            #[inline]
            pub const fn recorder(self) -> u32 {
                (self.bits >> 32) as u32
            }

            /// Returns the id, one that names nothing when this is not a handle of its kind.
            #[inline]
            const fn id_bits(self) -> u32 {
                let low = self.bits as u32;
                if low >> KIND_SHIFT == $kind { low & ID_MASK } else { NO_ID }
            }
        }
    )*};
}

handles! {
    /// A recorder.
    Recorder, 1;
    /// A region.
    Region, 2;
    /// An event type.
    EventType, 3;
    /// A source.
    Source, 4;
    /// A clock.
    Clock, 5;
}

impl Recorder {
    pub fn new(recorder: u32) -> Result<Self, Failure> {
        Self::pack(recorder, 0)
    }

    /// Returns the number of the recorder; 0 when this is no handle of one.
    pub const fn number(self) -> u32 {
        if self.id_bits() == 0 {
            self.recorder()
        } else {
            0
        }
    }
}

impl Region {
    pub fn new(recorder: u32, id: RegionId) -> Result<Self, Failure> {
        Self::pack(recorder, id.get())
    }

    #[inline]
    pub const fn id(self) -> RegionId {
        RegionId::new(self.id_bits())
    }
}

impl EventType {
    /// The event type that no recorder has.
    pub const NONE: EventTypeId = EventTypeId::new(NO_ID);

    pub fn new(recorder: u32, id: EventTypeId) -> Result<Self, Failure> {
        Self::pack(recorder, id.get())
    }

    #[inline]
    pub const fn id(self) -> EventTypeId {
        EventTypeId::new(self.id_bits())
    }
}

impl Source {
    pub fn new(recorder: u32, id: SourceId) -> Result<Self, Failure> {
        Self::pack(recorder, id.get())
    }

    #[inline]
    pub const fn id(self) -> SourceId {
        SourceId::new(self.id_bits())
    }
}

impl Clock {
    pub fn new(recorder: u32, id: ClockId) -> Result<Self, Failure> {
        Self::pack(recorder, id.get())
    }

    pub const fn id(self) -> ClockId {
        ClockId::new(self.id_bits())
    }
}
