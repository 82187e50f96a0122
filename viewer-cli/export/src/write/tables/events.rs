//! The table of events: a row for each, a column for each element.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_format::{Definitions, ElementType, EventTypeId, Reference, Value};
use annals_merger::{ChunkEvents, EventRange};
use arrow_array::builder::{LargeBinaryBuilder, LargeStringBuilder};
use arrow_array::{ArrayRef, Float64Array, Int64Array, UInt64Array, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rustc_hash::FxHashMap;

use super::names::Shared;
use super::{BATCH_ROWS, integers, name_type};
use crate::values::put_value_json;
use crate::write::exporter::Context;
use crate::write::rows::{ColumnRows, Rows};

/// Maximum number of elements with a separate column; others share the column `elements`.
const MOST_COLUMNS: usize = 256;

fn field(name: &str, data_type: DataType, is_nullable: bool) -> Field {
    Field::new(name, data_type, is_nullable)
}

/// The type of an element's values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Integer,
    Unsigned,
    Float,
    Text,
    Bytes,
    Name(Reference),
}

impl Class {
    fn of(element: &annals_format::Element) -> Self {
        match (element.reference, element.element_type) {
            (Reference::None | Reference::Rank, ElementType::U64) => Self::Unsigned,
            (_, ElementType::F64) => Self::Float,
            (_, ElementType::String) => Self::Text,
            (_, ElementType::Bytes) => Self::Bytes,
            (Reference::None | Reference::Rank, _) => Self::Integer,
            (reference, _) => Self::Name(reference),
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Integer => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Float => DataType::Float64,
            Self::Text => DataType::LargeUtf8,
            Self::Bytes => DataType::LargeBinary,
            Self::Name(_) => name_type(),
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Integer => "i64",
            Self::Unsigned => "u64",
            Self::Float => "f64",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Name(_) => "name",
        }
    }
}

/// A column of the elements of one name.
#[derive(Clone, Debug)]
struct Wide {
    class: Class,
    at: FxHashMap<EventTypeId, usize>,
}

/// The table of events.
#[derive(Debug)]
pub(crate) struct EventsTable {
    pub(crate) schema: SchemaRef,
    wide: Vec<Wide>,
    /// By event type, elements without a column.
    rest: FxHashMap<EventTypeId, Vec<usize>>,
    /// The definitions that describe these elements, if there are any.
    definitions: Option<Definitions>,
}

const EVENT_COLUMNS: [&str; 5] = ["time_ns", "rank", "location", "source", "event"];

/// Returns a name that no column has yet, ignoring case, since many engines do not distinguish it.
fn column_name(wanted: &str, taken: &mut Vec<String>) -> String {
    let wanted = match crate::text::safe(wanted) {
        empty if empty.is_empty() => "element".to_owned(),
        name => name,
    };
    let mut name = wanted.clone();
    let mut number = 1;
    while taken.contains(&name.to_lowercase()) {
        number += 1;
        name = format!("{wanted}_{number}");
    }
    taken.push(name.to_lowercase());
    name
}

impl EventsTable {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let mut columns: BTreeMap<&str, BTreeMap<Class, FxHashMap<EventTypeId, usize>>> =
            BTreeMap::new();
        let types = d.event_types.values();
        for event_type in types.filter(|t| context.filter.takes_event_type(t.id)) {
            for (at, element) in event_type.elements.iter().enumerate() {
                let of_name = columns.entry(d.string(element.name)).or_default();
                let places = of_name.entry(Class::of(element)).or_default();
                places.entry(event_type.id).or_insert(at);
            }
        }
        let mut taken: Vec<String> = EVENT_COLUMNS.map(str::to_owned).to_vec();
        taken.push("elements".to_owned());
        let mut fields = vec![
            field("time_ns", DataType::Int64, false),
            field("rank", DataType::Int64, false),
            field("location", name_type(), true),
            field("source", name_type(), false),
            field("event", name_type(), false),
        ];
        let mut wide = Vec::new();
        let mut rest: FxHashMap<EventTypeId, Vec<usize>> = FxHashMap::default();
        for (name, classes) in columns {
            let is_alone = classes.len() == 1;
            for (class, at) in classes {
                if wide.len() >= MOST_COLUMNS {
                    for (event_type, at) in at {
                        rest.entry(event_type).or_default().push(at);
                    }
                    continue;
                }
                let wanted = match is_alone {
                    true => name.to_owned(),
                    false => format!("{name}_{}", class.suffix()),
                };
                let name = column_name(&wanted, &mut taken);
                fields.push(field(&name, class.data_type(), true));
                wide.push(Wide { class, at });
            }
        }
        if !rest.is_empty() {
            rest.values_mut().for_each(|places| places.sort_unstable());
            fields.push(field("elements", DataType::LargeUtf8, true));
        }
        Self {
            schema: Arc::new(Schema::new(fields)),
            wide,
            definitions: (!rest.is_empty()).then(|| d.clone()),
            rest,
        }
    }

    /// Returns the events of a chunk as rows.
    pub(crate) fn rows(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        events: &Arc<ChunkEvents>,
    ) -> impl Iterator<Item = Rows> {
        let count = events.len();
        (0..count).step_by(BATCH_ROWS).map(move |start| {
            Rows::ByColumn(Box::new(EventRows {
                table: Arc::clone(self),
                shared: Arc::clone(shared),
                events: EventRange::new(events, start..count.min(start + BATCH_ROWS)),
            }))
        })
    }

    /// Returns the elements without a separate column, as JSON.
    fn rest_array(&self, d: &Definitions, range: &EventRange) -> ArrayRef {
        let mut builder = LargeStringBuilder::new();
        let mut text = Vec::new();
        let events = range.events();
        let types: Vec<EventTypeId> = events.event_types().collect();
        for event in range.numbers() {
            let event_type = types[events.type_place(event)];
            let places = self.rest.get(&event_type).map_or(&[][..], Vec::as_slice);
            text.clear();
            for at in places {
                let element = &d.event_types[&event_type].elements[*at];
                let value = events.value(event, *at);
                if value == Value::Absent {
                    continue;
                }
                text.push(if text.is_empty() { b'{' } else { b',' });
                crate::values::put_json(&mut text, d.string(element.name));
                text.push(b':');
                put_value_json(&mut text, d, element, value);
            }
            if text.is_empty() {
                builder.append_null();
            } else {
                text.push(b'}');
                builder.append_value(annals_format::text_of(&text));
            }
        }
        Arc::new(builder.finish())
    }
}

/// Events of a chunk, of which columns are made one by one: a table may have many.
struct EventRows {
    table: Arc<EventsTable>,
    shared: Arc<Shared>,
    events: EventRange,
}

impl ColumnRows for EventRows {
    fn len(&self) -> usize {
        self.events.numbers().len()
    }

    fn column(&self, at: usize) -> ArrayRef {
        let (table, shared, events) = (&*self.table, &*self.shared, &self.events);
        let places = events.streams().map(|stream| shared.place(stream));
        match at {
            0 => integers(events.times().collect()),
            1 => integers(places.map(|place| place.rank).collect()),
            2 => shared.location_array(places.map(|place| place.location).collect()),
            3 => {
                let sources = places.map(|place| place.source).collect();
                shared.sources.array(sources, None)
            }
            4 => {
                let types = events.events().event_types();
                let keys: Vec<i32> = types
                    .map(|event_type| shared.event_types.key(event_type.get().into()))
                    .collect();
                let each = events.type_places().map(|place| keys[place]);
                shared.event_types.array(each.collect(), None)
            }
            _ => match (table.wide.get(at - EVENT_COLUMNS.len()), &table.definitions) {
                (Some(wide), _) => wide.array(shared, events),
                (None, Some(definitions)) => table.rest_array(definitions, events),
                (None, None) => new_null_array(&DataType::LargeUtf8, self.len()),
            },
        }
    }

    fn schema(&self) -> &SchemaRef {
        &self.table.schema
    }
}

impl Wide {
    fn array(&self, shared: &Shared, events: &EventRange) -> ArrayRef {
        let element = |event_type: EventTypeId| self.at.get(&event_type).copied();
        match self.class {
            Class::Text => {
                let mut builder = LargeStringBuilder::new();
                for value in events.values(element) {
                    match value.as_bytes() {
                        Some(bytes) => builder.append_value(annals_format::text_of_value(bytes)),
                        None => builder.append_null(),
                    }
                }
                Arc::new(builder.finish())
            }
            Class::Bytes => {
                let mut builder = LargeBinaryBuilder::new();
                events
                    .values(element)
                    .for_each(|value| builder.append_option(value.as_bytes()));
                Arc::new(builder.finish())
            }
            Class::Integer | Class::Unsigned | Class::Float | Class::Name(_) => {
                let numbers = events.number_column(element);
                let length = numbers.bits.len();
                let valid = (numbers.count != length).then(|| {
                    let valid = BooleanBuffer::new(numbers.validity.into(), 0, length);
                    NullBuffer::new(valid)
                });
                self.number_array(shared, numbers.bits, valid)
            }
        }
    }

    fn number_array(
        &self,
        shared: &Shared,
        values: Vec<u64>,
        valid: Option<NullBuffer>,
    ) -> ArrayRef {
        match self.class {
            Class::Unsigned => Arc::new(UInt64Array::new(values.into(), valid)),
            Class::Float => {
                let values: Vec<f64> = values.into_iter().map(f64::from_bits).collect();
                Arc::new(Float64Array::new(values.into(), valid))
            }
            Class::Name(reference) => match shared.of_reference(reference) {
                Some(names) => {
                    let keys = values.into_iter().map(|value| names.key(value)).collect();
                    names.array(keys, valid)
                }
                None => new_null_array(&name_type(), values.len()),
            },
            _ => {
                let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
                Arc::new(Int64Array::new(values.into(), valid))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_differ_by_more_than_the_case_of_letters() {
        let mut taken = vec!["rank".to_owned()];
        assert_eq!(column_name("Rank", &mut taken), "Rank_2");
        assert_eq!(column_name("rank", &mut taken), "rank_3");
        assert_eq!(column_name("", &mut taken), "element");
        assert_eq!(column_name("a\nb", &mut taken), "a\\nb");
    }
}
