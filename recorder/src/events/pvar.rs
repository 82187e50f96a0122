//! Performance variables: what a producer knows about itself, as numbers (MPI 4.1 §16.3.7).
//!
//! A variable has one value in its producer, and each handle makes its own of it: what was counted
//! since the handle was started or reset, the highest level since then. So sessions do not disturb
//! each other, and writing changes a handle's value only. All that is done with a handle takes no
//! lock.

use std::fmt;
use std::sync::Arc;

use annals_format::Verbosity;

use super::enumeration::Enumeration;
use super::types::{Bind, Datatype, ObjectHandle, Value};

/// The kind of a performance variable's value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PvarClass {
    /// One of several states; an [`Datatype::Int`].
    State = 0,
    /// How much of a resource is in use.
    Level = 1,
    /// How large a resource is.
    Size = 2,
    /// Which part of a resource is in use, from 0 to 1; a [`Datatype::Double`].
    Percentage = 3,
    /// The most that was in use.
    HighWatermark = 4,
    /// The least that was in use.
    LowWatermark = 5,
    /// How often something happened.
    Counter = 6,
    /// The sum of something.
    Aggregate = 7,
    /// The sum of times; of a [`Datatype::Double`], in seconds.
    Timer = 8,
    /// Something else.
    Generic = 9,
}

impl PvarClass {
    /// All classes, in the order of their codes.
    pub const ALL: [Self; 10] = [
        Self::State,
        Self::Level,
        Self::Size,
        Self::Percentage,
        Self::HighWatermark,
        Self::LowWatermark,
        Self::Counter,
        Self::Aggregate,
        Self::Timer,
        Self::Generic,
    ];

    /// Returns its name in recordings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Level => "level",
            Self::Size => "size",
            Self::Percentage => "percentage",
            Self::HighWatermark => "high-watermark",
            Self::LowWatermark => "low-watermark",
            Self::Counter => "counter",
            Self::Aggregate => "aggregate",
            Self::Timer => "timer",
            Self::Generic => "generic",
        }
    }

    /// Returns whether variables of this class have values of this type.
    pub const fn allows(self, datatype: Datatype) -> bool {
        let is_unsigned = matches!(
            datatype,
            Datatype::Unsigned | Datatype::UnsignedLong | Datatype::UnsignedLongLong
        );
        let is_double = matches!(datatype, Datatype::Double);
        match self {
            Self::State => matches!(datatype, Datatype::Int),
            Self::Percentage => is_double,
            Self::Counter => is_unsigned,
            Self::Generic => true,
            _ => is_unsigned || is_double,
        }
    }

    pub(crate) const fn behaviour(self) -> Behaviour {
        match self {
            Self::Counter | Self::Aggregate | Self::Timer => Behaviour::Sum,
            Self::HighWatermark => Behaviour::Highest,
            Self::LowWatermark => Behaviour::Lowest,
            _ => Behaviour::Current,
        }
    }
}

/// The value of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behaviour {
    Current,
    Sum,
    Highest,
    Lowest,
}

/// A change of a variable's handles, as reported to its producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PvarNotice {
    /// A handle was allocated.
    Allocated,
    /// A handle was started.
    Started,
    /// A handle was stopped.
    Stopped,
    /// A handle was freed.
    Freed,
}

pub(crate) type Read = Arc<dyn Fn(Option<ObjectHandle>, usize) -> Value + Send + Sync>;
pub(crate) type Count = Arc<dyn Fn(Option<ObjectHandle>) -> usize + Send + Sync>;
pub(crate) type Notify = Arc<dyn Fn(PvarNotice, Option<ObjectHandle>) + Send + Sync>;

/// A performance variable, to be added.
#[derive(Clone)]
pub struct PvarSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) verbosity: Verbosity,
    pub(crate) class: PvarClass,
    pub(crate) datatype: Datatype,
    pub(crate) enumeration: Option<Enumeration>,
    pub(crate) bind: Bind,
    pub(crate) is_readonly: bool,
    pub(crate) is_continuous: bool,
    pub(crate) is_atomic: bool,
    pub(crate) items: usize,
    pub(crate) count: Option<Count>,
    pub(crate) read: Option<Read>,
    pub(crate) notify: Option<Notify>,
}

impl fmt::Debug for PvarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PvarSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl PvarSpec {
    /// Creates a variable with one value, which the runtime stores ([`super::Pvar::set`],
    /// [`super::Pvar::add`]) unless [`PvarSpec::read`] is called. It can be started, stopped,
    /// written, and atomically read and reset.
    pub fn new(name: impl Into<String>, class: PvarClass, datatype: Datatype) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            class,
            datatype,
            enumeration: None,
            bind: Bind::NoObject,
            is_readonly: false,
            is_continuous: false,
            is_atomic: true,
            items: 1,
            count: None,
            read: None,
            notify: None,
        }
    }

    /// Sets what the variable reports; for timers that are not doubles, also the unit.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the intended audience of the variable.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Names the values of an integer.
    #[must_use]
    pub const fn enumeration(mut self, enumeration: Enumeration) -> Self {
        self.enumeration = Some(enumeration);
        self
    }

    /// Sets the kind of object that the variable is bound to.
    /// Such a variable needs [`PvarSpec::read`].
    #[must_use]
    pub const fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Makes the variable read-only: it cannot be written or reset.
    #[must_use]
    pub const fn readonly(mut self) -> Self {
        self.is_readonly = true;
        self.is_atomic = false;
        self
    }

    /// Makes the variable continuous: it is always active, and cannot be started or stopped.
    #[must_use]
    pub const fn continuous(mut self) -> Self {
        self.is_continuous = true;
        self
    }

    /// Makes the variable not atomic: it cannot be read and reset in one call.
    #[must_use]
    pub const fn not_atomic(mut self) -> Self {
        self.is_atomic = false;
        self
    }

    /// Sets the number of values.
    #[must_use]
    pub const fn items(mut self, items: usize) -> Self {
        self.items = items;
        self
    }

    /// Determines the number of values by a function of the object; for bound variables.
    #[must_use]
    pub fn count(
        mut self,
        count: impl Fn(Option<ObjectHandle>) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.count = Some(Arc::new(count));
        self
    }

    /// Reads the value of each item through a function of the producer: the sum, level or state as
    /// the producer has it. It must be safe in the contexts in which the variable is read.
    #[must_use]
    pub fn read(
        mut self,
        read: impl Fn(Option<ObjectHandle>, usize) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Arc::new(read));
        self
    }

    /// Notifies the producer of what happens to handles.
    #[must_use]
    pub fn notify(
        mut self,
        notify: impl Fn(PvarNotice, Option<ObjectHandle>) + Send + Sync + 'static,
    ) -> Self {
        self.notify = Some(Arc::new(notify));
        self
    }
}

/// The description of a performance variable, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PvarInfo {
    /// Its name; no other variable of its class has it.
    pub name: String,
    /// Description of the reported quantity. May be empty.
    pub description: String,
    /// Its intended audience.
    pub verbosity: Verbosity,
    /// The kind of its value.
    pub class: PvarClass,
    /// Type of its values.
    pub datatype: Datatype,
    /// Names of its values.
    pub enumeration: Option<Enumeration>,
    /// The kind of object it is bound to.
    pub bind: Bind,
    /// Whether it cannot be written or reset.
    pub is_readonly: bool,
    /// Whether it is always active, and cannot be started or stopped.
    pub is_continuous: bool,
    /// Whether it can be read and reset in one call.
    pub is_atomic: bool,
}

/// A session: a tool's own view of the performance variables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvarSession(pub(crate) i32);

/// A handle of a performance variable, in a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PvarHandle(pub(crate) i32);

macro_rules! numbered {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the handle as a number, for other languages; never negative.
            pub const fn number(self) -> i32 {
                self.0
            }

            /// Returns the handle that has this number; any number is safe to use.
            pub const fn from_number(number: i32) -> Self {
                Self(number)
            }
        }
    )*};
}

numbered!(PvarSession, PvarHandle);
