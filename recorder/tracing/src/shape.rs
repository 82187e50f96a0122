//! Event types that fit the values of a callsite.
//! `tracing` provides the names of fields beforehand, and their types only with the values, so the
//! first event of each shape defines its event type.

use std::sync::OnceLock;

use annals_recorder::{
    DynamicEventType, ElementType, EventTypeSchema, EventTypeSpec, Recorder, RecorderError,
    Reference, Role, THREADS, Value,
};
use tracing::Metadata;

use crate::fields::{MOST_FIELDS, Seen, ValueKind, Values};
use crate::level::verbosity;

/// Most shapes that the values of one callsite may have.
/// Beyond that, all values are texts.
const MOST_SHAPES: usize = 4;

/// Names that are tried for an event type when its own is taken.
const MOST_NAMES: usize = 16;

/// Most elements before the fields.
const MOST_LEADING: usize = 3;

/// What the values belong to, which determines the elements before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The begin of a span's life: `span`, `region`, `parent`.
    New,
    /// Values that a span got later: `span`.
    Record,
    /// An event: `span`, when it is in one.
    Event,
}

impl Purpose {
    const fn leading(self) -> &'static [(&'static str, ElementType, bool)] {
        match self {
            Self::New => &[
                ("span", ElementType::U64, false),
                ("region", ElementType::U32, false),
                ("parent", ElementType::U64, true),
            ],
            Self::Record => &[("span", ElementType::U64, false)],
            Self::Event => &[("span", ElementType::U64, true)],
        }
    }

    /// Returns the event type's name and place; of several with that name, the one with this
    /// number.
    fn spec(self, metadata: &Metadata<'_>, number: usize) -> EventTypeSpec {
        let (target, name) = (metadata.target(), metadata.name());
        let file = metadata.file().unwrap_or_default();
        let line = metadata.line().unwrap_or_default();
        let (name, role, what) = match self {
            Self::New => (format!("{target}::{name}"), Role::Begin, "a span of"),
            Self::Record => (
                format!("{target}::{name} record"),
                Role::Point,
                "later values of a span of",
            ),
            // The name that `tracing` generates for events contains the file's whole path.
            Self::Event if name == format!("event {file}:{line}") => {
                (format!("{target}:{line}"), Role::Point, "an event of")
            }
            Self::Event => (format!("{target}::{name}"), Role::Point, "an event of"),
        };
        let name = if number == 1 {
            name
        } else {
            format!("{name} ({number})")
        };
        EventTypeSpec::new(name)
            .description(format!("{what} {file}:{line}"))
            .verbosity(verbosity(*metadata.level()))
            .role(role)
    }
}

/// An event type whose elements take values of these kinds.
#[derive(Debug)]
struct EventShape {
    /// `None` means that the recorder has no room for it.
    event_type: Option<DynamicEventType>,
    /// By field; absent: there is no element for it.
    kinds: [ValueKind; MOST_FIELDS],
}

impl EventShape {
    fn fits(&self, seen: &[Seen]) -> bool {
        let mut pairs = seen.iter().zip(&self.kinds);
        pairs.all(|(value, kind)| value.kind() == ValueKind::Absent || value.kind() == *kind)
    }
}

/// The shapes of a callsite's values, so far.
#[derive(Debug)]
pub(crate) struct Shapes {
    purpose: Purpose,
    known: [OnceLock<Box<EventShape>>; MOST_SHAPES],
    all_text: OnceLock<Box<EventShape>>,
}

/// Why an event could not be raised: the recorder takes no more definitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

impl Shapes {
    pub(crate) const fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            known: [const { OnceLock::new() }; MOST_SHAPES],
            all_text: OnceLock::new(),
        }
    }

    /// Raises an event with these values after the leading elements of its purpose.
    pub(crate) fn raise(
        &self,
        recorder: &Recorder,
        metadata: &Metadata<'_>,
        leading: &[Value<'_>],
        values: &mut Values<'_>,
    ) -> Result<(), NoRoom> {
        let count = metadata.fields().len();
        let shape = match self.find(recorder, metadata, values.seen(count)) {
            Some(shape) => shape,
            None => {
                values.write_all_as_text(count);
                let mut kinds = [ValueKind::Absent; MOST_FIELDS];
                let of_fields = kinds.iter_mut().take(count);
                of_fields.for_each(|kind| *kind = ValueKind::Text);
                let place = &self.all_text;
                self.settle(place, recorder, metadata, kinds)
                    .ok_or(NoRoom)?
            }
        };
        let event_type = shape.event_type.as_ref().ok_or(NoRoom)?;
        let mut elements = [Value::Absent; MOST_LEADING + MOST_FIELDS];
        elements[..leading.len()].copy_from_slice(leading);
        let mut used = leading.len();
        for (value, kind) in values.seen(count).iter().zip(&shape.kinds) {
            if *kind != ValueKind::Absent {
                elements[used] = match *value {
                    Seen::Absent => Value::Absent,
                    Seen::I64(value) => Value::I64(value),
                    Seen::U64(value) => Value::U64(value),
                    Seen::F64(value) => Value::F64(value),
                    Seen::Bool(value) => Value::U32(value.into()),
                    Seen::Text(start, end) => Value::String(values.bytes(start, end)),
                    Seen::Bytes(start, end) => Value::Bytes(values.bytes(start, end)),
                };
                used += 1;
            }
        }
        recorder.raise_dynamic(THREADS, None, event_type, &elements[..used]);
        Ok(())
    }

    /// Returns the first shape that fits, or a new one if none does.
    /// Returns `None` if there may be no more.
    fn find(
        &self,
        recorder: &Recorder,
        metadata: &Metadata<'_>,
        seen: &[Seen],
    ) -> Option<&EventShape> {
        let mut kinds = [ValueKind::Absent; MOST_FIELDS];
        for place in &self.known {
            let shape = match place.get() {
                Some(shape) => shape,
                None => {
                    let values = seen.iter().zip(&mut kinds);
                    values
                        .filter(|(value, _)| value.kind() != ValueKind::Absent)
                        .for_each(|(value, kind)| *kind = value.kind());
                    self.settle(place, recorder, metadata, kinds)?
                }
            };
            // Another thread may have stored another shape there.
            if shape.fits(seen) {
                return Some(shape);
            }
            kinds = shape.kinds;
        }
        None
    }

    /// Puts a shape into a free place; none while definitions are not possible at all.
    #[cold]
    fn settle<'a>(
        &self,
        place: &'a OnceLock<Box<EventShape>>,
        recorder: &Recorder,
        metadata: &Metadata<'_>,
        kinds: [ValueKind; MOST_FIELDS],
    ) -> Option<&'a EventShape> {
        if let Some(shape) = place.get() {
            return Some(shape);
        }
        let event_type = match self.define(recorder, metadata, &kinds) {
            Ok(event_type) => Some(event_type),
            Err(RecorderError::InClock | RecorderError::Finished) => return None,
            Err(_) => None,
        };
        Some(place.get_or_init(|| Box::new(EventShape { event_type, kinds })))
    }

    fn define(
        &self,
        recorder: &Recorder,
        metadata: &Metadata<'_>,
        kinds: &[ValueKind],
    ) -> annals_recorder::Result<DynamicEventType> {
        let mut outcome = Err(RecorderError::Finished);
        for number in 1..=MOST_NAMES {
            let (spec, schema) = self.describe(metadata, kinds, number);
            outcome = recorder.add_dynamic_event_type(&spec, schema);
            if !matches!(outcome, Err(RecorderError::Conflict { .. })) {
                break;
            }
        }
        outcome
    }

    fn describe(
        &self,
        metadata: &Metadata<'_>,
        kinds: &[ValueKind],
        number: usize,
    ) -> (EventTypeSpec, EventTypeSchema) {
        let mut spec = self.purpose.spec(metadata, number);
        let mut schema = EventTypeSchema::default();
        let mut names: Vec<String> = Vec::new();
        for (name, element_type, is_optional) in self.purpose.leading() {
            spec = match *name {
                "region" => spec.reference(*name, Reference::Region),
                _ => spec.element(*name),
            };
            names.push((*name).to_owned());
            schema.elements.push((*element_type, *is_optional));
        }
        if self.purpose == Purpose::New {
            spec = spec.key("span");
        }
        for (field, kind) in metadata.fields().iter().zip(kinds) {
            let element_type = match kind {
                ValueKind::Absent => continue,
                ValueKind::I64 => ElementType::I64,
                ValueKind::U64 => ElementType::U64,
                ValueKind::F64 => ElementType::F64,
                ValueKind::Bool => ElementType::U32,
                ValueKind::Text => ElementType::String,
                ValueKind::Bytes => ElementType::Bytes,
            };
            let mut name = field.name().to_owned();
            while names.contains(&name) {
                name.insert_str(0, "field.");
            }
            spec = spec.element(&name);
            names.push(name);
            schema.elements.push((element_type, true));
        }
        (spec, schema)
    }
}
