//! Event types, and the schemas that rows and columns are decoded by.

use super::codes::{Reference, Role, Verbosity};
use super::record::{
    Record, put_optional_u32, read_code, read_code_or, read_optional_u32, read_string,
};
use crate::error::{FormatError, Result};
use crate::ids::{EventTypeId, StringId};
use crate::value::ElementType;
use crate::wire::{Put, Wire};

/// Maximum number of elements of an event type.
pub const MAX_ELEMENTS: usize = 256;

/// One typed field of an event type.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Element {
    /// Its name, unique in the event type.
    pub name: StringId,
    /// The type of its values.
    pub element_type: ElementType,
    /// Whether events may lack it.
    pub is_optional: bool,
    /// The kind of definition that an integer refers to.
    pub reference: Reference,
    /// Unit of the values; the empty string if they have none.
    pub unit: StringId,
    /// Width of the value, in bits, in the program that raised the event; 0 means the width of the element type.
    pub original_bits: u8,
}

impl Element {
    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.name.get().into());
        out.push(self.element_type.code());
        out.push(self.is_optional.into());
        out.push(self.reference.code());
        out.put_varint(self.unit.get().into());
        out.push(self.original_bits);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            name: read_string(w)?,
            element_type: read_code(w, "element type", ElementType::from_code)?,
            is_optional: w.u8("optional flag")? != 0,
            reference: read_code_or(w, "reference kind", Reference::from_code, Reference::None)?,
            unit: read_string(w)?,
            original_bits: w.u8("original width")?,
        })
    }
}

/// A type of events.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EventType {
    /// Its number.
    pub id: EventTypeId,
    /// Its name, unique in a recording.
    pub name: StringId,
    /// Meaning of its events, for human readers.
    pub description: StringId,
    /// The readers it is meant for.
    pub verbosity: Verbosity,
    /// Meaning of its events for analyses.
    pub role: Role,
    /// Index of the element whose value an interval's begin and end have in common, so that readers can match them.
    /// `None` means that there is no such element.
    pub key_element: Option<u8>,
    /// Its fields, in order.
    pub elements: Vec<Element>,
}

impl Record for EventType {
    const KIND: u64 = 8;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.name.get().into());
        out.put_varint(self.description.get().into());
        out.push(self.verbosity.code());
        out.push(self.role.code());
        put_optional_u32(out, self.key_element.map(u32::from));
        out.put_varint(self.elements.len() as u64);
        self.elements.iter().for_each(|element| element.put(out));
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let id = EventTypeId::new(w.varint_u32("event type id")?);
        let name = read_string(w)?;
        let description = read_string(w)?;
        let verbosity = read_code_or(
            w,
            "verbosity",
            Verbosity::from_code,
            Verbosity::DeveloperAll,
        )?;
        let role = read_code_or(w, "role", Role::from_code, Role::Point)?;
        let start = w.position();
        let key_element = read_optional_u32(w, "key element")?;
        let count = w.count(6, "number of elements")?;
        if count > MAX_ELEMENTS || key_element.is_some_and(|key| key as usize >= count) {
            return Err(FormatError::invalid(
                start,
                "at most 256 elements and a key among them",
                format!("{count} elements, key {key_element:?}"),
            ));
        }
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(Element::read(w)?);
        }
        Ok(Self {
            id,
            name,
            description,
            verbosity,
            role,
            key_element: key_element.map(|key| key as u8),
            elements,
        })
    }
}

/// The element types of event types: enough to decode rows.
#[derive(Clone, Default, Debug)]
pub struct Schema {
    event_types: Vec<Option<EventTypeSchema>>,
}

/// The element types of one event type.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct EventTypeSchema {
    /// Type and optionality of each element, in order.
    pub elements: Vec<(ElementType, bool)>,
}

impl EventTypeSchema {
    /// Returns the schema of an event type.
    pub fn of(event_type: &EventType) -> Self {
        let elements = event_type.elements.iter();
        Self {
            elements: elements
                .map(|element| (element.element_type, element.is_optional))
                .collect(),
        }
    }

    /// Returns whether rows of the type carry a presence bitmap.
    pub fn has_optional(&self) -> bool {
        self.elements.iter().any(|(_, is_optional)| *is_optional)
    }
}

impl Schema {
    /// Event types with ids from this number on have no schema. The format permits them; this limits the table.
    pub const MAX_EVENT_TYPES: usize = 1 << 20;

    /// Adds an event type, or ignores it if its id is [`Schema::MAX_EVENT_TYPES`] or higher.
    pub fn add(&mut self, event_type: &EventType) {
        self.set(event_type.id, EventTypeSchema::of(event_type));
    }

    /// Sets the schema of an event type, as [`Schema::add`] does.
    pub(crate) fn set(&mut self, id: EventTypeId, schema: EventTypeSchema) {
        let index = id.index();
        if index >= Self::MAX_EVENT_TYPES {
            return;
        }
        if self.event_types.len() <= index {
            self.event_types.resize(index + 1, None);
        }
        self.event_types[index] = Some(schema);
    }

    /// Returns the schema of an event type, or `None` if [`Schema::add`] was not called for it or ignored it.
    pub fn get(&self, id: EventTypeId) -> Option<&EventTypeSchema> {
        self.event_types.get(id.index())?.as_ref()
    }
}
