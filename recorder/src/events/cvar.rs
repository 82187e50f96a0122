//! Control variables: settings that can be read and perhaps set (MPI 4.1 §16.3.6).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use annals_format::Verbosity;

use super::enumeration::Enumeration;
use super::error::Result;
use super::types::{Bind, Datatype, ObjectHandle, Value};

/// When and where a control variable may be changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Scope {
    /// Never: it is constant.
    Constant = 0,
    /// Not by users, but it may change.
    ReadOnly = 1,
    /// Perhaps, in this process alone.
    Local = 2,
    /// Perhaps, in a group of processes, to consistent values.
    Group = 3,
    /// Perhaps, in a group of processes, to the same value.
    GroupEqual = 4,
    /// Perhaps, in all processes, to consistent values.
    All = 5,
    /// Perhaps, in all processes, to the same value.
    AllEqual = 6,
}

impl Scope {
    /// All scopes, in the order of their codes.
    pub const ALL: [Self; 7] = [
        Self::Constant,
        Self::ReadOnly,
        Self::Local,
        Self::Group,
        Self::GroupEqual,
        Self::All,
        Self::AllEqual,
    ];

    pub(crate) const fn is_writable(self) -> bool {
        !matches!(self, Self::Constant | Self::ReadOnly)
    }
}

type Read = Arc<dyn Fn(Option<ObjectHandle>, &mut [Value]) + Send + Sync>;
type Write = Arc<dyn Fn(Option<ObjectHandle>, &[Value]) -> Result<()> + Send + Sync>;

/// A control variable, to be added.
#[derive(Clone)]
pub struct CvarSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) verbosity: Verbosity,
    pub(crate) scope: Scope,
    pub(crate) datatype: Datatype,
    pub(crate) enumeration: Option<Enumeration>,
    pub(crate) bind: Bind,
    pub(crate) initial: Vec<Value>,
    pub(crate) read: Option<Read>,
    pub(crate) write: Option<Write>,
}

impl fmt::Debug for CvarSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CvarSpec")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl CvarSpec {
    /// Creates a variable with one value, which the runtime stores unless [`CvarSpec::access`] is
    /// called.
    pub fn new(name: impl Into<String>, scope: Scope, initial: Value) -> Self {
        Self::with_values(name, scope, initial.datatype(), vec![initial])
    }

    /// Creates a variable with a text.
    /// `capacity` is the number of bytes stored for it, including the zero at its end.
    pub fn text(name: impl Into<String>, scope: Scope, text: &str, capacity: usize) -> Self {
        let bytes = text.bytes().take(capacity.saturating_sub(1));
        let values = bytes.chain(std::iter::repeat(0)).take(capacity.max(1));
        let values = values.map(Value::Char).collect();
        Self::with_values(name, scope, Datatype::Char, values)
    }

    /// Creates a variable with several values.
    pub fn with_values(
        name: impl Into<String>,
        scope: Scope,
        datatype: Datatype,
        initial: Vec<Value>,
    ) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            scope,
            datatype,
            enumeration: None,
            bind: Bind::NoObject,
            initial,
            read: None,
            write: None,
        }
    }

    /// Sets what the variable controls; for variables of a group, which group.
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
    #[must_use]
    pub const fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Reads and writes the value through functions of the producer.
    /// `write` may refuse with [`Error::CvarSetNotNow`](super::Error::CvarSetNotNow) or
    /// [`Error::CvarSetNever`](super::Error::CvarSetNever).
    #[must_use]
    pub fn access(
        mut self,
        read: impl Fn(Option<ObjectHandle>, &mut [Value]) + Send + Sync + 'static,
        write: impl Fn(Option<ObjectHandle>, &[Value]) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Arc::new(read));
        self.write = Some(Arc::new(write));
        self
    }
}

/// The description of a control variable, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CvarInfo {
    /// Its name; no other control variable has it.
    pub name: String,
    /// Description of what it sets; may be empty.
    pub description: String,
    /// Its intended audience.
    pub verbosity: Verbosity,
    /// Type of its values.
    pub datatype: Datatype,
    /// Names of its values.
    pub enumeration: Option<Enumeration>,
    /// The kind of object it is bound to.
    pub bind: Bind,
    /// When and where it may be changed.
    pub scope: Scope,
}

pub(crate) struct CvarState {
    pub(crate) info: CvarInfo,
    pub(crate) count: usize,
    pub(crate) kept: Box<[AtomicU64]>,
    pub(crate) read: Option<Read>,
    pub(crate) write: Option<Write>,
}

impl fmt::Debug for CvarState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CvarState")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct CvarHandleState {
    pub(crate) cvar: usize,
    pub(crate) object: Option<ObjectHandle>,
    pub(crate) is_live: AtomicBool,
}

/// A handle of a control variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CvarHandle(pub(crate) i32);

impl CvarHandle {
    /// Returns the handle as a number, for other languages; never negative.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Returns the handle that has this number; any number is safe to use.
    pub const fn from_number(number: i32) -> Self {
        Self(number)
    }
}
