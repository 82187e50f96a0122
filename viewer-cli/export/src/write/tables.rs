//! A trace as tables: which there are, their columns, and their rows as record batches.

use annals_format::names::element;
use std::collections::BTreeMap;
use std::sync::Arc;

use annals_analysis::{LateSide, LocationNames, MessageWaits, RegionRow};
use annals_format::{
    Definitions, ElementType, EventTypeId, Reference, RegionId, Role, StreamId, StringId,
    TraceLoss, Value,
};
use arrow_array::builder::{LargeBinaryBuilder, LargeStringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, UInt64Array, new_null_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use rustc_hash::FxHashMap;

use crate::TableKind;
use crate::values::put_value_json;
use crate::write::exporter::{Call, Context, Events, ending};
use crate::write::rows::{ColumnRows, Rows};
use annals_merger::{ByStream, ChunkEvents, EventRange, Message};

/// Maximum number of elements with a separate column; others share the column `elements`.
const MOST_COLUMNS: usize = 256;
/// Rows of a batch, at most.
pub(crate) const BATCH_ROWS: usize = 1 << 16;

impl TableKind {
    /// Returns the column whose rank a row belongs to.
    pub(crate) const fn rank_column(self) -> &'static str {
        match self {
            Self::Messages => "to_rank",
            _ => "rank",
        }
    }

    /// Returns the column by whose time rows are sorted; calls that are open at the end follow.
    pub(crate) const fn time_column(self) -> Option<&'static str> {
        match self {
            Self::Events | Self::Metrics => Some("time_ns"),
            Self::Calls => Some("end_ns"),
            Self::Messages => Some("receive_ns"),
            Self::Drops => Some("to_ns"),
            Self::Regions => None,
        }
    }
}

/// Returns the type of texts with few distinct values: a dictionary.
fn name_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn field(name: &str, data_type: DataType, is_nullable: bool) -> Field {
    Field::new(name, data_type, is_nullable)
}

/// Names of one kind of definition, and which of them an id is.
#[derive(Clone, Debug)]
struct Names {
    values: ArrayRef,
    near: Vec<i32>,
    far: FxHashMap<u32, i32>,
    unknown: i32,
}

impl Names {
    const LARGEST: usize = 1 << 20;

    fn of(each: impl Iterator<Item = (u32, String)>) -> Self {
        let mut numbers: FxHashMap<String, i32> = FxHashMap::default();
        let mut values: Vec<String> = Vec::new();
        let (mut near, mut far) = (Vec::new(), FxHashMap::default());
        for (id, name) in each {
            let number = *numbers.entry(name.clone()).or_insert_with(|| {
                values.push(name);
                values.len() as i32 - 1
            });
            let index = id as usize;
            if index >= Self::LARGEST {
                far.insert(id, number);
                continue;
            }
            let length = near.len().max(index + 1);
            near.resize(length, -1);
            near[index] = number;
        }
        let unknown = values.len() as i32;
        values.push("(unknown)".to_owned());
        near.iter_mut()
            .filter(|key| **key < 0)
            .for_each(|key| *key = unknown);
        Self {
            values: Arc::new(StringArray::from(values)),
            near,
            far,
            unknown,
        }
    }

    #[inline]
    fn key(&self, id: u64) -> i32 {
        match self.near.get(id as usize) {
            Some(key) if id < Self::LARGEST as u64 => *key,
            _ => u32::try_from(id)
                .ok()
                .and_then(|id| self.far.get(&id).copied())
                .unwrap_or(self.unknown),
        }
    }

    fn array(&self, keys: Vec<i32>, valid: Option<NullBuffer>) -> ArrayRef {
        let keys = Int32Array::new(keys.into(), valid);
        let array = DictionaryArray::<Int32Type>::try_new(keys, Arc::clone(&self.values));
        Arc::new(array.expect("every key is one of the names"))
    }
}

/// Where events of a stream are, by numbers of names.
#[derive(Clone, Copy, Debug)]
struct StreamPlace {
    rank: i64,
    /// Of the stream; −1: none.
    location: i32,
    source: i32,
}

/// Where calls of a location are, by numbers of names.
#[derive(Clone, Copy, Debug)]
struct LocationPlace {
    rank: i64,
    location: i32,
    host: i32,
    /// The system's id of the thread. 0 means that there is none.
    thread_id: u64,
}

/// Data that rows of several tables need.
#[derive(Debug)]
pub(crate) struct Shared {
    locations: Names,
    sources: Names,
    regions: Names,
    event_types: Names,
    strings: Option<Names>,
    objects: Names,
    by_stream: ByStream<StreamPlace>,
    lost: StreamPlace,
    by_location: Vec<LocationPlace>,
    /// Source files, by region.
    files: Names,
    /// Lines in them that are known.
    lines: FxHashMap<RegionId, u32>,
    /// Hosts, by process.
    hosts: Names,
    waits: MessageWaits,
}

impl Shared {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let text = |id: StringId| d.string(id).to_owned();
        let locations = d.locations.values();
        let names = LocationNames::new(d);
        let locations = Names::of(locations.map(|l| (l.id.get(), names.get(l.id).to_owned())));
        let sources = Names::of(d.sources.values().map(|s| (s.id.get(), text(s.name))));
        let place = |stream: &annals_format::Stream| {
            let place = context.places.get(stream.id);
            let location = stream.location.filter(|id| d.locations.contains_key(id));
            let found = StreamPlace {
                rank: place.rank.into(),
                location: location.map_or(-1, |id| locations.key(id.get().into())),
                source: sources.key(stream.source.get().into()),
            };
            (stream.id, found)
        };
        let hosts = Names::of(d.processes.values().map(|p| (p.id.get(), text(p.host))));
        let by_location = (0..context.locations.len()).map(|number| {
            let (rank, _) = context.location(number);
            let id = context.locations[number];
            let location = d.locations.get(&id);
            LocationPlace {
                rank: rank.into(),
                location: locations.key(id.get().into()),
                host: hosts.key(location.map_or(u64::MAX, |l| l.process.get().into())),
                thread_id: location.map_or(0, |location| location.system_id),
            }
        });
        let regions = d.regions.values();
        let lines = regions.filter(|region| region.line != 0);
        let refers_to_strings = d.event_types.values().any(|event_type| {
            let mut elements = event_type.elements.iter();
            elements.any(|element| element.reference == Reference::String)
        });
        Self {
            by_stream: d.streams.values().map(place).collect(),
            by_location: by_location.collect(),
            files: Names::of(d.regions.values().map(|r| (r.id.get(), text(r.file)))),
            lines: lines.map(|region| (region.id, region.line)).collect(),
            hosts,
            waits: MessageWaits::new(d),
            lost: StreamPlace {
                rank: 0,
                location: -1,
                source: sources.unknown,
            },
            regions: Names::of(d.regions.keys().map(|id| (id.get(), d.region_name(*id)))),
            event_types: Names::of(
                d.event_types
                    .keys()
                    .map(|id| (id.get(), d.event_type_name(*id))),
            ),
            strings: refers_to_strings.then(|| {
                let strings = d.strings.iter();
                Names::of(strings.map(|(id, text)| (id.get(), text.clone())))
            }),
            objects: Names::of(d.objects.values().map(|o| (o.id.get(), text(o.name)))),
            locations,
            sources,
        }
    }

    fn place(&self, stream: StreamId) -> StreamPlace {
        self.by_stream.get(stream).unwrap_or(self.lost)
    }

    fn of_reference(&self, reference: Reference) -> Option<&Names> {
        match reference {
            Reference::None | Reference::Rank => None,
            Reference::String => self.strings.as_ref(),
            Reference::Region => Some(&self.regions),
            Reference::Location => Some(&self.locations),
            Reference::Source => Some(&self.sources),
            Reference::EventType => Some(&self.event_types),
            Reference::Object => Some(&self.objects),
        }
    }

    fn location_array(&self, keys: Vec<i32>) -> ArrayRef {
        let has_none = keys.iter().any(|key| *key < 0);
        let valid = has_none.then(|| keys.iter().map(|key| *key >= 0).collect::<Vec<bool>>());
        let keys = keys.into_iter().map(|key| key.max(0)).collect();
        self.locations.array(keys, valid.map(NullBuffer::from))
    }
}

fn integers(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(Arc::clone(schema), columns).expect("columns as the schema has them")
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

    fn batch(&self) -> RecordBatch {
        let schema = &self.table.schema;
        let columns = (0..schema.fields().len()).map(|at| self.column(at));
        batch(schema, columns.collect())
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
                        Some(bytes) => builder.append_value(annals_format::text_of(bytes)),
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

/// Rows that are gathered one by one.
pub(crate) trait Gathered {
    /// Returns the columns.
    fn schema(&self) -> &SchemaRef;
    /// Returns the number of rows that wait.
    fn len(&self) -> usize;
    /// Takes all waiting rows.
    fn take(&mut self, shared: &Arc<Shared>) -> Rows;
}

/// Takes what was gathered, of which `make` makes rows in another thread.
fn make_later<T: Send + 'static>(
    gathered: &mut Vec<T>,
    schema: &SchemaRef,
    shared: &Arc<Shared>,
    make: impl FnOnce(&SchemaRef, &Shared, &[T]) -> RecordBatch + Send + 'static,
) -> Rows {
    let rows = std::mem::take(gathered);
    let (schema, shared) = (Arc::clone(schema), Arc::clone(shared));
    Rows::Later(rows.len(), Box::new(move || make(&schema, &shared, &rows)))
}

/// The table of calls.
#[derive(Debug)]
pub(crate) struct CallsTable {
    schema: SchemaRef,
    rows: Vec<Call>,
}

impl CallsTable {
    pub(crate) fn new() -> Self {
        let schema = Schema::new(vec![
            field("call", DataType::Int64, false),
            field("parent", DataType::Int64, true),
            field("rank", DataType::Int64, false),
            field("location", name_type(), true),
            field("region", name_type(), false),
            field("begin_ns", DataType::Int64, false),
            field("end_ns", DataType::Int64, false),
            field("inclusive_ns", DataType::Int64, false),
            field("exclusive_ns", DataType::Int64, false),
            field("depth", DataType::Int64, false),
            field("is_outermost", DataType::Boolean, false),
            field("is_uncertain", DataType::Boolean, false),
            field("ended", name_type(), false),
            field("file", name_type(), false),
            field("line", DataType::Int64, true),
            field("host", name_type(), false),
            field("thread_id", DataType::UInt64, true),
        ]);
        Self {
            schema: Arc::new(schema),
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, call: &Call) {
        self.rows.push(*call);
    }
}

/// Names that are known beforehand.
fn words(words: &[&'static str], each: impl Iterator<Item = &'static str>) -> ArrayRef {
    let keys = each.map(|word| words.iter().position(|known| *known == word));
    let keys: Vec<i32> = keys.map(|key| key.unwrap_or(0) as i32).collect();
    let values: ArrayRef = Arc::new(StringArray::from(words.to_vec()));
    let array = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), values);
    Arc::new(array.expect("every word is known"))
}

impl Gathered for CallsTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn take(&mut self, shared: &Arc<Shared>) -> Rows {
        make_later(&mut self.rows, &self.schema, shared, calls)
    }
}

fn calls(schema: &SchemaRef, shared: &Shared, rows: &[Call]) -> RecordBatch {
    let numbers = |of: fn(&Call) -> i64| integers(rows.iter().map(of).collect());
    let flags = |of: fn(&Call) -> bool| -> ArrayRef {
        Arc::new(BooleanArray::from(
            rows.iter().map(of).collect::<Vec<bool>>(),
        ))
    };
    let parents = rows
        .iter()
        .map(|call| call.parent.map(|parent| parent as i64));
    let places = || rows.iter().map(|call| shared.by_location[call.location]);
    let ranks = places().map(|place| place.rank).collect();
    let locations = places().map(|place| place.location).collect();
    let hosts = places().map(|place| place.host).collect();
    let thread_ids = places().map(|place| (place.thread_id != 0).then_some(place.thread_id));
    let region = |call: &Call| u64::from(call.region.get());
    let lines = rows
        .iter()
        .map(|call| shared.lines.get(&call.region).map(|line| i64::from(*line)));
    let regions = rows
        .iter()
        .map(|call| shared.regions.key(call.region.get().into()));
    let columns = vec![
        numbers(|call| call.number as i64),
        Arc::new(Int64Array::from_iter(parents)),
        integers(ranks),
        shared.location_array(locations),
        shared.regions.array(regions.collect(), None),
        numbers(|call| call.begin_ns),
        numbers(|call| call.end_ns),
        numbers(|call| call.inclusive_ns),
        numbers(|call| call.exclusive_ns),
        numbers(|call| call.depth as i64),
        flags(|call| call.is_outermost),
        flags(|call| call.is_uncertain),
        words(
            &["left", "unleft", "open"],
            rows.iter().map(|call| ending(call.how)),
        ),
        shared.files.array(
            rows.iter()
                .map(|call| shared.files.key(region(call)))
                .collect(),
            None,
        ),
        Arc::new(Int64Array::from_iter(lines)),
        shared.hosts.array(hosts, None),
        Arc::new(UInt64Array::from_iter(thread_ids)),
    ];
    batch(schema, columns)
}

/// The table of messages.
#[derive(Debug)]
pub(crate) struct MessagesTable {
    schema: SchemaRef,
    rows: Vec<Message>,
}

impl MessagesTable {
    pub(crate) fn new() -> Self {
        let schema = Schema::new(vec![
            field("send_ns", DataType::Int64, false),
            field("receive_ns", DataType::Int64, false),
            field("latency_ns", DataType::Int64, false),
            field("from_rank", DataType::Int64, false),
            field("from_location", name_type(), true),
            field("to_rank", DataType::Int64, false),
            field("to_location", name_type(), true),
            field("communicator", DataType::LargeUtf8, true),
            field("tag", DataType::Int64, true),
            field("bytes", DataType::UInt64, true),
            field("late_sender_wait_ns", DataType::Int64, true),
            field("late_receiver_wait_ns", DataType::Int64, true),
        ]);
        Self {
            schema: Arc::new(schema),
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, message: &Message) {
        self.rows.push(*message);
    }
}

impl Gathered for MessagesTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn take(&mut self, shared: &Arc<Shared>) -> Rows {
        make_later(&mut self.rows, &self.schema, shared, messages)
    }
}

fn messages(schema: &SchemaRef, shared: &Shared, rows: &[Message]) -> RecordBatch {
    let numbers = |of: fn(&Message) -> i64| integers(rows.iter().map(of).collect());
    let wait = |late| {
        let of_message = |message: &Message| {
            // Without the receiver's call, the wait is not known.
            message.receive.call?;
            let wait = shared.waits.of(message).find(|wait| wait.late == late);
            Some(wait.map_or(0, |wait| wait.to_ns - wait.from_ns))
        };
        Arc::new(Int64Array::from_iter(rows.iter().map(of_message)))
    };
    let side = |of: fn(&Message) -> StreamId| {
        let places = rows.iter().map(|message| shared.place(of(message)));
        let (ranks, locations): (Vec<i64>, Vec<i32>) =
            places.map(|place| (place.rank, place.location)).unzip();
        (integers(ranks), shared.location_array(locations))
    };
    let ((from_rank, from), (to_rank, to)) = (side(|m| m.send.stream), side(|m| m.receive.stream));
    let mut communicators = LargeStringBuilder::new();
    for message in rows {
        communicators.append_option(message.communicator().map(|(reference, number)| {
            match shared.of_reference(reference) {
                Some(names) => {
                    let names_of = names.values.as_any().downcast_ref::<StringArray>();
                    let names_of = names_of.expect("names are text");
                    names_of.value(names.key(number) as usize).to_owned()
                }
                None => number.to_string(),
            }
        }));
    }
    let columns = vec![
        numbers(|message| message.send.time_ns),
        numbers(|message| message.receive.time_ns),
        numbers(|message| {
            let (send, receive) = (message.send.time_ns, message.receive.time_ns);
            receive.saturating_sub(send)
        }),
        from_rank,
        from,
        to_rank,
        to,
        Arc::new(communicators.finish()),
        Arc::new(Int64Array::from_iter(rows.iter().map(Message::tag))),
        Arc::new(UInt64Array::from_iter(rows.iter().map(Message::bytes))),
        wait(LateSide::Sender),
        wait(LateSide::Receiver),
    ];
    batch(schema, columns)
}

/// The table of metrics.
#[derive(Debug)]
pub(crate) struct MetricsTable {
    schema: SchemaRef,
    /// By event type: the element, and the number of its unit.
    types: FxHashMap<EventTypeId, (usize, u32)>,
    units: Arc<Names>,
    rows: Vec<Sample>,
}

/// When, where, of what event type, in which unit, how much.
type Sample = (i64, StreamId, EventTypeId, u32, f64);

/// Returns which element of each metric is its value.
pub(crate) fn metrics_of(context: &Context<'_>) -> FxHashMap<EventTypeId, usize> {
    let d = context.definitions;
    let types = d.event_types.values();
    let types = types.filter(|t| t.role == Role::Metric && context.filter.takes_event_type(t.id));
    types
        .filter_map(|t| Some((t.id, d.element(t.id, element::VALUE)?)))
        .collect()
}

/// Returns a value as a number.
pub(crate) fn number_of(value: Value<'_>) -> Option<f64> {
    match value {
        Value::F64(value) => Some(value),
        other => other.as_integer().map(|value| value as f64),
    }
}

impl MetricsTable {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        let d = context.definitions;
        let types = metrics_of(context);
        let unit = |id: &EventTypeId, at: usize| d.event_types[id].elements[at].unit;
        let units = types.iter().map(|(id, at)| unit(id, *at));
        let units = Names::of(units.map(|unit| (unit.get(), d.string(unit).to_owned())));
        let types = types
            .into_iter()
            .map(|(id, at)| (id, (at, unit(&id, at).get())));
        let schema = Schema::new(vec![
            field("time_ns", DataType::Int64, false),
            field("rank", DataType::Int64, false),
            field("location", name_type(), true),
            field("source", name_type(), false),
            field("metric", name_type(), false),
            field("unit", name_type(), false),
            field("value", DataType::Float64, false),
        ]);
        Self {
            schema: Arc::new(schema),
            types: types.collect(),
            units: Arc::new(units),
            rows: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, events: &Events<'_>) {
        let types = events.event_types();
        let types: Vec<_> = types.map(|id| (id, self.types.get(&id))).collect();
        if types.iter().all(|(_, found)| found.is_none()) {
            return;
        }
        for event in 0..events.len() {
            let (event_type, Some((at, unit))) = types[events.type_place(event)] else {
                continue;
            };
            if let Some(value) = number_of(events.value(event, *at)) {
                let (time_ns, stream) = (events.time(event), events.stream(event));
                self.rows.push((time_ns, stream, event_type, *unit, value));
            }
        }
    }
}

impl Gathered for MetricsTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn take(&mut self, shared: &Arc<Shared>) -> Rows {
        let units = Arc::clone(&self.units);
        make_later(
            &mut self.rows,
            &self.schema,
            shared,
            move |schema, shared, rows| metrics(schema, shared, &units, rows),
        )
    }
}

fn metrics(schema: &SchemaRef, shared: &Shared, units: &Names, rows: &[Sample]) -> RecordBatch {
    let places: Vec<StreamPlace> = rows.iter().map(|row| shared.place(row.1)).collect();
    let types = rows
        .iter()
        .map(|row| shared.event_types.key(row.2.get().into()));
    let keys = rows.iter().map(|row| units.key(row.3.into()));
    let columns: Vec<ArrayRef> = vec![
        integers(rows.iter().map(|row| row.0).collect()),
        integers(places.iter().map(|place| place.rank).collect()),
        shared.location_array(places.iter().map(|place| place.location).collect()),
        shared
            .sources
            .array(places.iter().map(|place| place.source).collect(), None),
        shared.event_types.array(types.collect(), None),
        units.array(keys.collect(), None),
        Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.4))),
    ];
    batch(schema, columns)
}

/// Returns what kind of loss this is, in a word.
pub(crate) fn kind_of(loss: &TraceLoss) -> &'static str {
    match loss.cause {
        cause if cause.is_suppressed() => "suppressed",
        cause if cause.is_of_reader() => "skipped",
        _ => "dropped",
    }
}

/// Returns the columns of the table of losses.
pub(crate) fn drops_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        field("rank", DataType::Int64, false),
        field("location", name_type(), true),
        field("source", name_type(), false),
        field("event", name_type(), true),
        field("count", DataType::UInt64, false),
        field("is_lower_bound", DataType::Boolean, false),
        field("kind", name_type(), false),
        field("cause", DataType::Utf8, false),
        field("from_ns", DataType::Int64, false),
        field("to_ns", DataType::Int64, false),
    ]))
}

/// Returns losses as a batch, in order of the time of the next event.
pub(crate) fn drops(schema: &SchemaRef, shared: &Shared, losses: &[TraceLoss]) -> RecordBatch {
    let mut losses = losses.to_vec();
    losses.sort_by_key(|loss| loss.to_ns);
    let places: Vec<StreamPlace> = losses
        .iter()
        .map(|loss| shared.place(loss.stream))
        .collect();
    let types = losses.iter().map(|loss| {
        let event_type = loss.event_type;
        event_type.map_or(0, |id| shared.event_types.key(id.get().into()))
    });
    let known: Vec<bool> = losses
        .iter()
        .map(|loss| loss.event_type.is_some())
        .collect();
    let flags: Vec<bool> = losses.iter().map(|loss| loss.is_lower_bound).collect();
    let columns: Vec<ArrayRef> = vec![
        integers(places.iter().map(|place| place.rank).collect()),
        shared.location_array(places.iter().map(|place| place.location).collect()),
        shared
            .sources
            .array(places.iter().map(|place| place.source).collect(), None),
        shared
            .event_types
            .array(types.collect(), Some(NullBuffer::from(known))),
        Arc::new(UInt64Array::from_iter_values(
            losses.iter().map(|loss| loss.count),
        )),
        Arc::new(BooleanArray::from(flags)),
        words(
            &["dropped", "suppressed", "skipped"],
            losses.iter().map(kind_of),
        ),
        Arc::new(StringArray::from_iter_values(
            losses.iter().map(|loss| loss.cause.name()),
        )),
        integers(losses.iter().map(|loss| loss.from_ns).collect()),
        integers(losses.iter().map(|loss| loss.to_ns).collect()),
    ];
    batch(schema, columns)
}

/// Returns the columns of the table of regions.
pub(crate) fn regions_schema() -> SchemaRef {
    let number = |name: &str| field(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![
        field("region", DataType::Utf8, false),
        number("rank"),
        field("location", DataType::Utf8, true),
        field("file", DataType::Utf8, false),
        number("line"),
        field("calls", DataType::UInt64, false),
        field("uncertain_calls", DataType::UInt64, false),
        field("uncertain_calls_is_lower_bound", DataType::Boolean, false),
        number("inclusive_ns"),
        number("exclusive_ns"),
        number("min_ns"),
        number("mean_ns"),
        number("max_ns"),
        number("p50_ns"),
        number("p95_ns"),
        number("p99_ns"),
        field("open_calls", DataType::UInt64, false),
        field("unleft_calls", DataType::UInt64, false),
        field("unmatched_leaves", DataType::UInt64, false),
        field("time_is_uncertain", DataType::Boolean, false),
    ]))
}

/// Returns rows of regions as a batch.
pub(crate) fn regions(schema: &SchemaRef, rows: &[RegionRow]) -> RecordBatch {
    let text = |of: fn(&RegionRow) -> Option<&str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(rows.iter().map(of)))
    };
    let number = |of: fn(&RegionRow) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(rows.iter().map(of)))
    };
    let count = |of: fn(&RegionRow) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
    };
    let flag = |of: fn(&RegionRow) -> bool| -> ArrayRef {
        Arc::new(BooleanArray::from(
            rows.iter().map(of).collect::<Vec<bool>>(),
        ))
    };
    let columns = vec![
        text(|row| Some(&row.name)),
        number(|row| row.rank.map(i64::from)),
        text(|row| row.location.as_deref()),
        text(|row| Some(&row.file)),
        number(|row| Some(row.line.into())),
        count(|row| row.calls),
        count(|row| row.uncertain_calls),
        flag(|row| row.uncertain_calls_is_lower_bound),
        number(|row| Some(row.inclusive_ns)),
        number(|row| Some(row.exclusive_ns)),
        number(|row| row.min_ns),
        number(|row| row.mean_ns),
        number(|row| row.max_ns),
        number(|row| row.p50_ns),
        number(|row| row.p95_ns),
        number(|row| row.p99_ns),
        count(|row| row.open_calls),
        count(|row| row.unleft_calls),
        count(|row| row.unmatched_leaves),
        flag(|row| row.time_is_uncertain),
    ];
    batch(schema, columns)
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

    #[test]
    fn what_no_definition_names_is_unknown() {
        let names = Names::of([(3, "c".to_owned()), (1 << 30, "far".to_owned())].into_iter());
        let array = names.array(
            [3, 1 << 30, 2, 77, u64::MAX]
                .map(|id| names.key(id))
                .to_vec(),
            None,
        );
        let array = array
            .as_any()
            .downcast_ref::<DictionaryArray<Int32Type>>()
            .unwrap();
        let text = array.downcast_dict::<StringArray>().unwrap();
        let text: Vec<_> = text.into_iter().flatten().collect();
        assert_eq!(text, ["c", "far", "(unknown)", "(unknown)", "(unknown)"]);
    }
}
