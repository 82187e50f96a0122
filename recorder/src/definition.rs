//! How event types are described by the program that raises them.

use annals_format::{Reference, Role, Verbosity};

/// One element of an event type, to be defined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElementSpec {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) reference: Reference,
}

/// An event type, to be defined: [`crate::Recorder::add_event_type`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventTypeSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) verbosity: Verbosity,
    pub(crate) role: Role,
    pub(crate) key_element: Option<String>,
    pub(crate) elements: Vec<ElementSpec>,
}

impl EventTypeSpec {
    /// An event type with this name, a [`Role::Point`] without elements.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            verbosity: Verbosity::UserBasic,
            role: Role::Point,
            key_element: None,
            elements: Vec::new(),
        }
    }

    /// Says what the event type tells.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Says for whom it is.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = verbosity;
        self
    }

    /// Says what it means to analysis; the role's elements have fixed names: see [`Role`].
    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Adds an element.
    #[must_use]
    pub fn element(self, name: impl Into<String>) -> Self {
        self.element_in(name, "")
    }

    /// Adds an element whose values have a unit, such as `bytes` or `ns`.
    #[must_use]
    pub fn element_in(mut self, name: impl Into<String>, unit: impl Into<String>) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            unit: unit.into(),
            reference: Reference::None,
        });
        self
    }

    /// Adds an integer element that refers to something.
    #[must_use]
    pub fn reference(mut self, name: impl Into<String>, reference: Reference) -> Self {
        self.elements.push(ElementSpec {
            name: name.into(),
            unit: String::new(),
            reference,
        });
        self
    }

    /// Says which element ties the begin of an interval to its end.
    #[must_use]
    pub fn key(mut self, name: impl Into<String>) -> Self {
        self.key_element = Some(name.into());
        self
    }
}
