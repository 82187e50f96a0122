//! Event types as they are described (MPI 4.1 §16.3.8.3).

use annals_format::Verbosity;

use super::enumeration::Enumeration;
use super::error::{Error, Result};
use super::types::{Bind, Datatype, Info};

/// Most elements of an event type.
const MAX_ELEMENTS: usize = 255;

#[derive(Clone, Debug)]
struct ElementSpec {
    name: String,
    datatype: Datatype,
    displacement: Option<usize>,
}

/// An event type, to be added.
#[derive(Clone, Debug)]
pub struct EventTypeSpec {
    pub(crate) name: String,
    description: String,
    verbosity: Verbosity,
    elements: Vec<ElementSpec>,
    bind: Bind,
    hints: Info,
    callback_hints: Info,
}

impl EventTypeSpec {
    /// Creates an event type with this name, without elements.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            elements: Vec::new(),
            bind: Bind::NoObject,
            hints: Info::new(),
            callback_hints: Info::new(),
        }
    }

    /// Sets the description of the event type.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Sets the intended audience of the event type.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Adds an element, after the existing ones, at the displacement that C would choose.
    #[must_use]
    pub fn element(mut self, name: impl Into<String>, datatype: Datatype) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            datatype,
            displacement: None,
        });
        self
    }

    /// Adds an element at the given displacement in bytes.
    #[must_use]
    pub fn element_at(
        mut self,
        name: impl Into<String>,
        datatype: Datatype,
        displacement: usize,
    ) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            datatype,
            displacement: Some(displacement),
        });
        self
    }

    /// Sets the kind of object that its registrations are bound to.
    #[must_use]
    pub const fn bind(mut self, bind: Bind) -> Self {
        self.bind = bind;
        self
    }

    /// Supports a hint of registrations, with its default. Others are ignored.
    #[must_use]
    pub fn hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.hints.set(key, value);
        self
    }

    /// Supports a hint of callbacks, with its default. Others are ignored.
    #[must_use]
    pub fn callback_hint(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.callback_hints.set(key, value);
        self
    }

    /// Returns the names of the elements.
    pub(crate) fn element_names(&self) -> impl Iterator<Item = &str> {
        self.elements.iter().map(|element| element.name.as_str())
    }

    /// Returns where the elements lie; ascending from 0, and none in another one.
    fn displacements(&self) -> Result<Vec<usize>> {
        let mut end = 0_usize;
        let mut displacements = Vec::new();
        for element in &self.elements {
            let size = element.datatype.size();
            let at = element
                .displacement
                .unwrap_or_else(|| end.next_multiple_of(size));
            if at < end || (displacements.is_empty() && at != 0) {
                return Err(Error::Invalid);
            }
            displacements.push(at);
            end = at.checked_add(size).ok_or(Error::Invalid)?;
        }
        Ok(displacements)
    }

    /// Checks names and sizes against the interface's rules.
    pub(crate) fn check(&self) -> Result<()> {
        let has_nul = |text: &str| text.contains('\0');
        let mut names: Vec<&str> = self.element_names().collect();
        names.sort_unstable();
        let is_good = !self.name.is_empty()
            && !has_nul(&self.name)
            && !has_nul(&self.description)
            && names.iter().all(|name| !name.is_empty() && !has_nul(name))
            && names.windows(2).all(|pair| pair[0] != pair[1])
            && names.len() <= MAX_ELEMENTS;
        if is_good { Ok(()) } else { Err(Error::Invalid) }
    }
}

/// The description of an event type, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EventInfo {
    /// Its name; no other event type has it.
    pub name: String,
    /// Description of what it reports. May be empty.
    pub description: String,
    /// Its intended audience.
    pub verbosity: Verbosity,
    /// Types of its elements.
    pub datatypes: Vec<Datatype>,
    /// Where they lie in a copy, bytes; ascending from 0.
    pub displacements: Vec<usize>,
    /// Names of the elements: the item with the value *i* names element *i*. None without elements.
    pub enumeration: Option<Enumeration>,
    /// The kind of object its registrations are bound to.
    pub bind: Bind,
    /// The hints of registrations that it supports, with their defaults.
    pub info: Info,
}

impl EventInfo {
    /// Returns the bytes that a copy of an instance takes.
    pub fn extent(&self) -> usize {
        let last = self.displacements.last().zip(self.datatypes.last());
        last.map_or(0, |(displacement, datatype)| displacement + datatype.size())
    }
}

/// An event type, as its producer described it, and its index.
#[derive(Debug)]
pub(crate) struct EventTypeData {
    pub(crate) index: usize,
    pub(crate) info: EventInfo,
    pub(crate) callback_hints: Info,
}

impl EventTypeData {
    pub(crate) fn new(
        index: usize,
        spec: &EventTypeSpec,
        enumeration: Option<Enumeration>,
    ) -> Result<Self> {
        Ok(Self {
            index,
            info: EventInfo {
                name: spec.name.clone(),
                description: spec.description.clone(),
                verbosity: spec.verbosity,
                datatypes: spec.elements.iter().map(|e| e.datatype).collect(),
                displacements: spec.displacements()?,
                enumeration,
                bind: spec.bind,
                info: spec.hints.clone(),
            },
            callback_hints: spec.callback_hints.clone(),
        })
    }

    /// Returns whether its registrations are bound to an object.
    #[inline]
    pub(crate) fn is_bound(&self) -> bool {
        self.info.bind != Bind::NoObject
    }
}
