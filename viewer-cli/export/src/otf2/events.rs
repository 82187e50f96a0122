//! Converts our events to records of OTF2: events that were made of such records back to these, all others by their
//! roles.

use annals_foreign::otf2::records::{ids, marker_ids};
use annals_foreign::otf2::{AttributeValue, DefinitionKind, FieldType, event_record, types};
use annals_format::names::element;
use annals_format::wire::Wire;
use annals_format::{
    Column, Element, ElementType, EventType, EventTypeId, ProcessId, Reference, Role, TypeColumns,
    Value,
};

use super::definitions::OutputDefinitions;
use super::inputs::UNDEFINED;
use annals_foreign::otf2::conventions::{
    MOST_ARGUMENTS, MOST_VALUES, NAMED_REGION, element_name, read_attributes,
};

/// How a value of ours becomes one of OTF2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conversion {
    /// As it is.
    Same,
    /// A double becomes a float.
    Float,
    Region,
    String,
    /// An object of an archive, by its number there.
    Object(DefinitionKind),
    /// Text or bytes become a string; bytes by their digits.
    Text,
    /// The name of one of our references.
    Name(Reference),
    /// A time of the archive.
    Ticks,
}

/// A value of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldValue {
    Column(usize, Conversion),
    Constant(u64),
    /// The columns of a list of strings, up to the first that is absent.
    Strings(usize, usize),
    /// More values of a list, as bytes.
    Rest(usize, bool),
}

/// How the events of one type of one archive, or of ours, are written.
#[derive(Clone, Debug)]
pub(crate) enum EventPlan {
    /// As the record that they were made of.
    Record {
        id: u8,
        parts: Vec<FieldValue>,
        /// Column, attribute, type.
        attributes: Vec<(usize, u32, u8, Conversion)>,
        more_attributes: Option<usize>,
        payload: Option<usize>,
    },
    /// As the marker that they were.
    Marker(MarkerPlan),
    /// Not at all: OTF2 has no record of what a call waits for.
    LeftOut,
    /// By role.
    Role(RolePlan),
}

/// The columns of an event type that is made of markers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkerPlan {
    pub(crate) text: usize,
    pub(crate) duration: usize,
    pub(crate) definition: usize,
    pub(crate) scope_type: usize,
    pub(crate) scope: usize,
}

impl MarkerPlan {
    fn new(place: impl Fn(&str) -> Option<usize>) -> Option<Self> {
        Some(Self {
            text: place("text")?,
            duration: place("duration")?,
            definition: place("definition")?,
            scope_type: place("scope_type")?,
            scope: place("scope")?,
        })
    }
}

/// How events of our own are written.
#[derive(Clone, Debug)]
pub(crate) struct RolePlan {
    role: Role,
    /// Of a point, the parameter; of a metric, the metric and the type of its value.
    definition: (u64, u8),
    text: u64,
    region: Option<usize>,
    communicator: Option<(usize, Reference)>,
    peer: Option<usize>,
    tag: Option<usize>,
    bytes: Option<usize>,
    bytes_sent: Option<usize>,
    bytes_received: Option<usize>,
    request: Option<usize>,
    root: Option<usize>,
    size: Option<usize>,
    operation: Option<usize>,
    value: Option<usize>,
    call_path: Option<usize>,
    /// Of events that the role's record cannot hold.
    parameter: u64,
    /// Column, attribute, type, and whether the role's record has it: all elements.
    attributes: Vec<(usize, u32, u8, Conversion, bool)>,
}

/// Returns type and conversion of one of our elements as an additional value.
fn attribute_type(element: &Element) -> (u8, Conversion) {
    let how = match element.reference {
        Reference::Region => return (14, Conversion::Region),
        Reference::String => return (types::STRING, Conversion::String),
        Reference::Location
        | Reference::Source
        | Reference::EventType
        | Reference::Object
        | Reference::CallPath => {
            return (types::STRING, Conversion::Name(element.reference));
        }
        Reference::None | Reference::Rank => Conversion::Same,
    };
    let code = match (element.element_type, element.original_bits) {
        (ElementType::U32, 8) => types::UINT8,
        (ElementType::U32, 16) => types::UINT16,
        (ElementType::U32, _) => types::UINT32,
        (ElementType::I32, 8) => types::INT8,
        (ElementType::I32, 16) => types::INT16,
        (ElementType::I32, _) => types::INT32,
        (ElementType::I64, _) => types::INT64,
        (ElementType::U64, _) => types::UINT64,
        (ElementType::F64, 32) => return (types::FLOAT, Conversion::Float),
        (ElementType::F64, _) => types::DOUBLE,
        (ElementType::String | ElementType::Bytes, _) => return (types::STRING, Conversion::Text),
    };
    (code, how)
}

fn way_of_type(type_code: u8) -> Conversion {
    match DefinitionKind::of_type(type_code) {
        Some(DefinitionKind::String) => Conversion::String,
        Some(DefinitionKind::Region) => Conversion::Region,
        Some(DefinitionKind::Location) => Conversion::Object(DefinitionKind::Location),
        Some(kind) => Conversion::Object(kind),
        None if type_code == types::FLOAT => Conversion::Float,
        None => Conversion::Same,
    }
}

impl EventPlan {
    /// Plans the records for the events of a type in a process.
    pub(crate) fn new(
        outgoing: &mut OutputDefinitions<'_>,
        process: ProcessId,
        event_type: EventTypeId,
    ) -> Option<Self> {
        let d = outgoing.ours.event_types.get(&event_type)?;
        let key = (process, Reference::EventType, event_type.get());
        let archive = outgoing.archive_of(process);
        if let (Some(archive), Some(foreign)) = (archive, outgoing.ours.foreign.get(&key))
            && let Some(plan) = Self::of_record(outgoing, archive, d, &foreign.body)
        {
            return Some(plan);
        }
        if outgoing.ours.is_wait(event_type) {
            return Some(Self::LeftOut);
        }
        Some(Self::Role(RolePlan::new(outgoing, d)))
    }

    fn of_record(
        outgoing: &OutputDefinitions<'_>,
        archive: usize,
        d: &EventType,
        body: &[u8],
    ) -> Option<Self> {
        let mut wire = Wire::new(body);
        let id = wire.u8("record").ok()?;
        let type_count = wire.count(1, "types").ok()?;
        let type_codes = wire.take(type_count, "types").ok()?;
        let mut attributes = Vec::new();
        while wire.remaining() != 0 {
            let attribute = wire.varint_u32("attribute").ok()?;
            let type_code = wire.u8("type").ok()?;
            let attribute =
                outgoing.incoming[archive].map(DefinitionKind::Attribute, attribute.into()) as u32;
            attributes.push((0, attribute, type_code, way_of_type(type_code)));
        }
        let name = |element: &Element| outgoing.ours.string(element.name);
        let names = d.elements.iter().map(name);
        let place = |wanted: &str| names.clone().position(|name| name == wanted);
        if id == marker_ids::MARKER {
            return MarkerPlan::new(place).map(Self::Marker);
        }
        let last = d.elements.len().checked_sub(1);
        let is_more = |at: &usize| {
            let element = &d.elements[*at];
            name(element).starts_with("more_attributes")
                && element.element_type == ElementType::Bytes
        };
        let more_attributes = last.filter(is_more);
        let end = more_attributes.unwrap_or(d.elements.len());
        let first = end.checked_sub(attributes.len())?;
        for (index, attribute) in attributes.iter_mut().enumerate() {
            attribute.0 = first + index;
        }
        let mut parts = Vec::new();
        let mut payload = None;
        match event_record(id) {
            None => payload = Some(place("payload")?),
            Some(_) if id == ids::METRIC => {
                parts.push(FieldValue::Column(
                    place("metric")?,
                    Conversion::Object(DefinitionKind::Metric),
                ));
                // A composition beyond the limit; without values, nothing is written.
                if let (true, Some(values)) = (type_codes.is_empty(), place("values")) {
                    parts.push(FieldValue::Rest(values, false));
                }
                for (index, type_code) in type_codes.iter().enumerate().take(MOST_VALUES) {
                    parts.push(FieldValue::Constant((*type_code).into()));
                    parts.push(FieldValue::Column(1 + index, Conversion::Same));
                }
                if type_codes.len() > MOST_VALUES {
                    parts.push(FieldValue::Rest(1 + MOST_VALUES, false));
                }
            }
            Some(record) => {
                for field in record.fields {
                    let how = match field.what {
                        FieldType::Ref8(DefinitionKind::String)
                        | FieldType::Ref32(DefinitionKind::String) => Conversion::String,
                        FieldType::Ref8(DefinitionKind::Region)
                        | FieldType::Ref32(DefinitionKind::Region) => Conversion::Region,
                        FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind) => {
                            Conversion::Object(kind)
                        }
                        FieldType::U64 => Conversion::Ticks,
                        FieldType::List8(_) | FieldType::List32(_) => {
                            let count = (1..=MOST_ARGUMENTS)
                                .take_while(|number| place(&format!("argument_{number}")).is_some())
                                .count();
                            if let Some(start) = place("argument_1") {
                                parts.push(FieldValue::Strings(start, start + count));
                            }
                            if let Some(rest) = place("more_arguments") {
                                parts.push(FieldValue::Rest(rest, true));
                            }
                            continue;
                        }
                        _ => Conversion::Same,
                    };
                    let named = place(NAMED_REGION).filter(|at| id == ids::LEAVE && *at < first);
                    let column = named.or_else(|| place(element_name(field)));
                    parts.push(FieldValue::Column(column?, how));
                }
            }
        }
        Some(Self::Record {
            id,
            parts,
            attributes,
            more_attributes,
            payload,
        })
    }
}

impl RolePlan {
    fn new(outgoing: &mut OutputDefinitions<'_>, d: &EventType) -> Self {
        let ours = outgoing.ours;
        let place = |name: &str| {
            let mut elements = d.elements.iter();
            elements.position(|element| ours.string(element.name) == name)
        };
        let region = place(element::REGION);
        let region = region.filter(|at| d.elements[*at].reference == Reference::Region);
        let communicator = place(element::COMMUNICATOR);
        let communicator = communicator.map(|at| (at, d.elements[at].reference));
        let value = place(element::VALUE).filter(|at| !d.elements[*at].element_type.is_variable());
        let call_path = place(element::CALL_PATH);
        let call_path = call_path.filter(|at| d.elements[*at].reference == Reference::CallPath);
        let is_message = communicator.is_some() && place(element::PEER).is_some();
        let role = match d.role {
            Role::Enter | Role::Leave if region.is_none() => Role::Point,
            Role::Send | Role::Receive if !is_message => Role::Point,
            Role::SendEnd | Role::ReceiveStart | Role::Cancel
                if place(element::REQUEST).is_none() =>
            {
                Role::Point
            }
            Role::CollectiveEnd if communicator.is_none() => Role::Point,
            Role::Metric if value.is_none() => Role::Point,
            Role::Sample if call_path.is_none() => Role::Point,
            role => role,
        };
        let name = ours.string(d.name);
        let definition = match (role, value) {
            (Role::Metric, Some(value)) => {
                let element = &d.elements[value];
                let type_code = match element.element_type {
                    ElementType::F64 => types::DOUBLE,
                    ElementType::I32 | ElementType::I64 => types::INT64,
                    _ => types::UINT64,
                };
                let unit = ours.string(element.unit);
                (outgoing.metric(name, unit, type_code), type_code)
            }
            _ => (u64::MAX, 0),
        };
        let attributes = d.elements.iter().enumerate().map(|(index, element)| {
            let (type_code, how) = attribute_type(element);
            let id = outgoing.attribute(ours.string(element.name), type_code);
            (index, id as u32, type_code, how)
        });
        let attributes: Vec<_> = attributes.collect();
        let is_told = |index: usize| {
            let used = match role {
                Role::Enter | Role::Leave => [region, None, None, None, None],
                Role::Send | Role::Receive => [
                    communicator.map(|c| c.0),
                    place(element::PEER),
                    place(element::TAG),
                    place(element::BYTES),
                    place(element::REQUEST),
                ],
                Role::SendEnd | Role::ReceiveStart | Role::Cancel => {
                    [place(element::REQUEST), None, None, None, None]
                }
                Role::Metric => [value, None, None, None, None],
                Role::Sample => [call_path, None, None, None, None],
                _ => [None; 5],
            };
            used.contains(&Some(index))
        };
        let attributes = attributes
            .into_iter()
            .map(|(index, id, type_code, how)| (index, id, type_code, how, is_told(index)));
        let text = outgoing.string(d.role.name());
        let is_always = value.is_some_and(|value| !d.elements[value].is_optional);
        let parameter = match role {
            Role::Enter | Role::Leave | Role::CollectiveBegin => UNDEFINED,
            Role::Metric if is_always => UNDEFINED,
            _ => outgoing.parameter(name),
        };
        Self {
            role,
            definition,
            text,
            region,
            communicator,
            peer: place(element::PEER),
            tag: place(element::TAG),
            bytes: place(element::BYTES),
            bytes_sent: place(element::BYTES_SENT),
            bytes_received: place(element::BYTES_RECEIVED),
            request: place(element::REQUEST),
            root: place(element::ROOT),
            size: place(element::SIZE),
            operation: place(element::OPERATION),
            value,
            call_path,
            parameter,
            attributes: attributes.collect(),
        }
    }
}

/// An event as it is to be written.
#[derive(Debug, Default)]
pub(crate) struct Translated {
    pub(crate) id: u8,
    pub(crate) values: Vec<u64>,
    pub(crate) attributes: Vec<AttributeValue>,
    pub(crate) payload: Vec<u8>,
}

/// Where an event is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRow<'a> {
    pub(crate) columns: &'a [Column],
    pub(crate) ordinal: usize,
    /// The archive that its process is of.
    pub(crate) archive: Option<usize>,
    /// Whose ranks its elements have. Their numbers start at the first rank of the process's world.
    pub(crate) process: ProcessId,
    pub(crate) first_rank: u32,
    /// Number of the location in the archive that is written.
    pub(crate) location: usize,
}

impl EventRow<'_> {
    fn integer(&self, column: Option<usize>) -> Option<i128> {
        self.columns.get(column?)?.get(self.ordinal).as_integer()
    }
}

fn convert(
    outgoing: &mut OutputDefinitions<'_>,
    place: EventRow<'_>,
    column: usize,
    how: Conversion,
    ticks: &impl Fn(u64) -> u64,
) -> Option<u64> {
    let value = place.columns.get(column)?.get(place.ordinal);
    match value {
        Value::String(text) => return Some(outgoing.string(&annals_format::text_of(text))),
        Value::Bytes(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            return Some(outgoing.string(&digits));
        }
        _ => {}
    }
    let bits = value.to_bits()?;
    Some(convert_bits(outgoing, place.archive, how, bits, ticks))
}

#[inline]
fn convert_bits(
    outgoing: &mut OutputDefinitions<'_>,
    archive: Option<usize>,
    how: Conversion,
    bits: u64,
    ticks: &impl Fn(u64) -> u64,
) -> u64 {
    match (how, archive) {
        (Conversion::Same | Conversion::Text, _) => bits,
        (Conversion::Ticks, _) => ticks(bits),
        (Conversion::Float, _) => u64::from((f64::from_bits(bits) as f32).to_bits()),
        (Conversion::String, _) => outgoing.string_of(bits),
        (Conversion::Region, Some(archive)) => outgoing.incoming[archive].region(bits),
        (Conversion::Region, None) => outgoing.region(bits),
        (Conversion::Object(DefinitionKind::Location), Some(archive)) => {
            outgoing.incoming[archive].map(DefinitionKind::Location, bits)
        }
        (Conversion::Object(expected), archive) => {
            let object = usize::try_from(bits).ok();
            let object = object.and_then(|at| outgoing.objects.get(at).copied().flatten());
            let known = object.filter(|(kind, _)| *kind == expected).zip(archive);
            let undefined = expected.undefined();
            known.map_or(undefined, |((kind, id), archive)| {
                outgoing.incoming[archive].map(kind, id)
            })
        }
        (Conversion::Name(reference), _) => outgoing.name_of(reference, bits),
    }
}

/// Makes a record of an event.
pub(crate) fn translate(
    outgoing: &mut OutputDefinitions<'_>,
    plan: &EventPlan,
    place: EventRow<'_>,
    ticks: &impl Fn(u64) -> u64,
    out: &mut Translated,
) {
    out.values.clear();
    out.attributes.clear();
    out.payload.clear();
    match plan {
        EventPlan::Record {
            id,
            parts,
            attributes,
            more_attributes,
            payload,
        } => {
            out.id = *id;
            for part in parts {
                put_part(outgoing, *part, place, ticks, &mut out.values);
            }
            for (column, attribute, type_code, how) in attributes {
                if let Some(bits) = convert(outgoing, place, *column, *how, ticks) {
                    out.attributes.push(AttributeValue {
                        attribute: *attribute,
                        type_code: *type_code,
                        bits,
                    });
                }
            }
            let bytes = |column: Option<usize>| {
                let column = place.columns.get(column?)?;
                column.get(place.ordinal).as_bytes()
            };
            if let (Some(more), Some(archive)) = (bytes(*more_attributes), place.archive) {
                let archive = &outgoing.incoming[archive];
                out.attributes
                    .extend(read_attributes(more).into_iter().map(|value| {
                        let kind = DefinitionKind::of_type(value.type_code);
                        AttributeValue {
                            attribute: archive
                                .map(DefinitionKind::Attribute, value.attribute.into())
                                as u32,
                            bits: kind.map_or(value.bits, |kind| archive.map(kind, value.bits)),
                            ..value
                        }
                    }));
            }
            out.payload
                .extend_from_slice(bytes(*payload).unwrap_or(&[]));
        }
        // They are no events of a location.
        EventPlan::Marker(_) | EventPlan::LeftOut => {}
        EventPlan::Role(plan) => by_role(outgoing, plan, place, ticks, out),
    }
}

fn put_part(
    outgoing: &mut OutputDefinitions<'_>,
    part: FieldValue,
    place: EventRow<'_>,
    ticks: &impl Fn(u64) -> u64,
    values: &mut Vec<u64>,
) {
    match part {
        FieldValue::Constant(value) => values.push(value),
        FieldValue::Column(column, how) => {
            let value = convert(outgoing, place, column, how, ticks);
            values.push(value.unwrap_or(UNDEFINED));
        }
        FieldValue::Strings(start, end) => {
            for column in start..end {
                match convert(outgoing, place, column, Conversion::String, ticks) {
                    Some(value) => values.push(value),
                    None => break,
                }
            }
        }
        FieldValue::Rest(column, is_of_strings) => {
            let value = place.columns.get(column).map(|c| c.get(place.ordinal));
            let bytes = value.and_then(Value::as_bytes).unwrap_or(&[]);
            for eight in bytes.as_chunks::<8>().0 {
                let value = u64::from_le_bytes(*eight);
                let archive = place.archive.filter(|_| is_of_strings);
                let archive = archive.map(|archive| &outgoing.incoming[archive]);
                values.push(
                    archive.map_or(value, |archive| archive.map(DefinitionKind::String, value)),
                );
            }
        }
    }
}

/// Returns the record of a message.
const fn message_record(is_send: bool, has_request: bool) -> u8 {
    match (is_send, has_request) {
        (true, false) => ids::MPI_SEND,
        (true, true) => ids::MPI_ISEND,
        (false, false) => ids::MPI_RECV,
        (false, true) => ids::MPI_IRECV,
    }
}

fn by_role(
    outgoing: &mut OutputDefinitions<'_>,
    plan: &RolePlan,
    place: EventRow<'_>,
    ticks: &impl Fn(u64) -> u64,
    out: &mut Translated,
) {
    let number = |column| place.integer(column).map(|value| value as u64);
    let bytes = number(plan.bytes).unwrap_or(0);
    let request = number(plan.request);
    let communicator = plan.communicator.and_then(|(column, reference)| {
        let value = number(Some(column))?;
        Some(outgoing.communicator_of(reference, value))
    });
    let rank = |column| {
        let rank = u32::try_from(place.integer(column)?).ok()?;
        outgoing.rank_in_run(place.process, place.first_rank, rank)
    };
    let peer = rank(plan.peer);
    let tag = number(plan.tag).unwrap_or(0) & 0xffff_ffff;
    let region = |outgoing: &mut OutputDefinitions<'_>| {
        let region = number(plan.region);
        region.map_or(UNDEFINED, |region| outgoing.region(region))
    };
    let mut is_whole = true;
    match (plan.role, communicator, peer) {
        (Role::Enter | Role::Leave, ..) => {
            let is_enter = plan.role == Role::Enter;
            out.id = if is_enter { ids::ENTER } else { ids::LEAVE };
            out.values.push(region(outgoing));
        }
        (Role::Send | Role::Receive, Some(communicator), Some(peer)) => {
            out.id = message_record(plan.role == Role::Send, request.is_some());
            out.values.extend([peer.into(), communicator, tag, bytes]);
            out.values.extend(request);
        }
        (Role::SendEnd, ..) if request.is_some() => out.id = ids::MPI_ISEND_COMPLETE,
        (Role::ReceiveStart, ..) if request.is_some() => out.id = ids::MPI_IRECV_REQUEST,
        (Role::Cancel, ..) if request.is_some() => out.id = ids::MPI_REQUEST_CANCELLED,
        (Role::CollectiveBegin, ..) => out.id = ids::MPI_COLLECTIVE_BEGIN,
        (Role::CollectiveEnd, Some(communicator), _) => {
            out.id = ids::MPI_COLLECTIVE_END;
            let operation = number(plan.operation).unwrap_or(0) & 0xff;
            let root = rank(plan.root).map_or(UNDEFINED, u64::from);
            if let Some(size) = number(plan.size) {
                outgoing.note_member(communicator, place.process, size);
            }
            // Of a producer that only has their sum, all bytes are in the first.
            let apart = number(plan.bytes_sent).zip(number(plan.bytes_received));
            let (sent, received) = apart.unwrap_or((bytes, 0));
            out.values
                .extend([operation, communicator, root, sent, received]);
        }
        (Role::Metric, ..) => {
            out.id = ids::METRIC;
            let column = plan.value.and_then(|column| place.columns.get(column));
            let bits = column.and_then(|column| column.get(place.ordinal).to_bits());
            match bits {
                Some(bits) => {
                    let (metric, type_code) = plan.definition;
                    out.values.extend([metric, type_code.into(), bits]);
                }
                None => is_whole = false,
            }
        }
        (Role::Sample, ..) => {
            out.id = ids::CALLING_CONTEXT_SAMPLE;
            let path = number(plan.call_path);
            let sample = path.and_then(|path| outgoing.sample(place.process, place.location, path));
            is_whole = sample.is_some();
            out.values.extend(sample.into_iter().flatten());
        }
        _ => is_whole = false,
    }
    let is_of_request = matches!(
        out.id,
        ids::MPI_ISEND_COMPLETE | ids::MPI_IRECV_REQUEST | ids::MPI_REQUEST_CANCELLED
    );
    if is_of_request && out.values.is_empty() && is_whole {
        out.values.extend(request);
    }
    if !is_whole {
        out.id = ids::PARAMETER_STRING;
        out.values.clear();
        out.values.extend([plan.parameter, plan.text]);
    }
    let attributes = plan.attributes.iter();
    for (column, attribute, type_code, how, _) in attributes.filter(|of| !(of.4 && is_whole)) {
        if let Some(bits) = convert(outgoing, place, *column, *how, ticks) {
            out.attributes.push(AttributeValue {
                attribute: *attribute,
                type_code: *type_code,
                bits,
            });
        }
    }
}

/// The events of one type in a chunk as records of one form: made together, column by column.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) id: u8,
    /// Values of all events, one event after the other.
    values: Vec<u64>,
    width: usize,
    attributes: Vec<AttributeValue>,
    attribute_count: usize,
    scratch: Vec<u64>,
}

impl Rows {
    #[inline]
    pub(crate) fn values(&self, ordinal: usize) -> &[u64] {
        &self.values[ordinal * self.width..][..self.width]
    }

    #[inline]
    pub(crate) fn attributes(&self, ordinal: usize) -> &[AttributeValue] {
        &self.attributes[ordinal * self.attribute_count..][..self.attribute_count]
    }

    fn start(&mut self, id: u8, width: usize, count: usize) {
        self.id = id;
        self.width = width;
        self.values.clear();
        self.values.resize(width * count, 0);
    }

    /// Fills the place of a value from a column; returns whether the column has a value for each
    /// event.
    fn fill(&mut self, place: usize, column: Option<&Column>, map: impl FnMut(u64) -> u64) -> bool {
        if !take_bits(column, &mut self.scratch, map) {
            return false;
        }
        let each = self
            .values
            .iter_mut()
            .skip(place)
            .step_by(self.width.max(1));
        each.zip(&self.scratch).for_each(|(to, from)| *to = *from);
        true
    }

    fn fill_constant(&mut self, place: usize, value: u64) {
        let each = self
            .values
            .iter_mut()
            .skip(place)
            .step_by(self.width.max(1));
        each.for_each(|to| *to = value);
    }

    /// Adds additional values of the columns that are not left out.
    fn add_attributes(
        &mut self,
        outgoing: &mut OutputDefinitions<'_>,
        archive: Option<usize>,
        columns: &TypeColumns,
        attributes: &[(usize, u32, u8, Conversion)],
    ) -> bool {
        let count = columns.count;
        let blank = AttributeValue {
            attribute: 0,
            type_code: 0,
            bits: 0,
        };
        self.attribute_count = attributes.len();
        self.attributes.clear();
        self.attributes.resize(count * attributes.len(), blank);
        for (place, (column, attribute, type_code, how)) in attributes.iter().enumerate() {
            let is_variable = |column: &Column| column.element_type().is_variable();
            let is_text = columns.columns.get(*column).is_some_and(is_variable);
            if is_text {
                self.scratch.clear();
                for ordinal in 0..count {
                    let at = EventRow {
                        columns: &columns.columns,
                        ordinal,
                        archive,
                        first_rank: 0,
                        process: ProcessId::new(0),
                        location: 0,
                    };
                    match convert(outgoing, at, *column, *how, &|tick| tick) {
                        Some(bits) => self.scratch.push(bits),
                        None => return false,
                    }
                }
            } else {
                let map = |bits| convert_bits(outgoing, archive, *how, bits, &|tick| tick);
                if !take_bits(columns.columns.get(*column), &mut self.scratch, map) {
                    return false;
                }
            }
            let each = self.attributes.iter_mut().skip(place);
            let each = each.step_by(attributes.len());
            for (to, bits) in each.zip(&self.scratch) {
                *to = AttributeValue {
                    attribute: *attribute,
                    type_code: *type_code,
                    bits: *bits,
                };
            }
        }
        true
    }

    /// Makes records of all events of a type in a chunk. False: they are not all alike, and each must be translated.
    /// `has_own_ticks`: times in fields stay as they are.
    pub(crate) fn make(
        &mut self,
        outgoing: &mut OutputDefinitions<'_>,
        plan: &EventPlan,
        archive: Option<usize>,
        columns: &TypeColumns,
        has_own_ticks: bool,
    ) -> bool {
        match plan {
            EventPlan::Marker(_) | EventPlan::LeftOut => false,
            EventPlan::Role(plan) => self.make_by_role(outgoing, plan, archive, columns),
            EventPlan::Record {
                id,
                parts,
                attributes,
                more_attributes: None,
                payload: None,
            } => {
                self.start(*id, parts.len(), columns.count);
                for (place, part) in parts.iter().enumerate() {
                    let is_filled = match part {
                        FieldValue::Column(_, Conversion::Ticks) if !has_own_ticks => false,
                        FieldValue::Column(column, how) => {
                            let map =
                                |bits| convert_bits(outgoing, archive, *how, bits, &|tick| tick);
                            self.fill(place, columns.columns.get(*column), map)
                        }
                        FieldValue::Constant(value) => {
                            self.fill_constant(place, *value);
                            true
                        }
                        FieldValue::Strings(..) | FieldValue::Rest(..) => false,
                    };
                    if !is_filled {
                        return false;
                    }
                }
                self.add_attributes(outgoing, archive, columns, attributes)
            }
            EventPlan::Record { .. } => false,
        }
    }

    fn make_by_role(
        &mut self,
        outgoing: &mut OutputDefinitions<'_>,
        plan: &RolePlan,
        archive: Option<usize>,
        columns: &TypeColumns,
    ) -> bool {
        let count = columns.count;
        let column = |at: Option<usize>| at.and_then(|at| columns.columns.get(at));
        let is_number =
            |at: Option<usize>| column(at).is_none_or(|c| c.element_type() != ElementType::F64);
        let numbers = [plan.peer, plan.tag, plan.bytes, plan.request];
        if !numbers.into_iter().all(is_number) {
            return false;
        }
        let mut is_whole = true;
        match (plan.role, plan.communicator, column(plan.request)) {
            (Role::Enter | Role::Leave, ..) => {
                self.start(
                    if plan.role == Role::Enter {
                        ids::ENTER
                    } else {
                        ids::LEAVE
                    },
                    1,
                    count,
                );
                if !self.fill(0, column(plan.region), |region| outgoing.region(region)) {
                    return false;
                }
            }
            // Where a rank is in the archive differs from one process to the next.
            (Role::Send | Role::Receive, Some(_), _) if outgoing.has_worlds => return false,
            (Role::Send | Role::Receive, Some((of, reference)), request) => {
                let id = message_record(plan.role == Role::Send, request.is_some());
                self.start(id, if request.is_some() { 5 } else { 4 }, count);
                let mut is_peer = true;
                let peer = |peer| {
                    is_peer &= peer <= u64::from(u32::MAX);
                    peer
                };
                let is_filled = self.fill(0, column(plan.peer), peer) && is_peer;
                let communicator = |value| outgoing.communicator_of(reference, value);
                let is_filled = is_filled
                    && is_number(Some(of))
                    && self.fill(1, column(Some(of)), communicator)
                    && (plan.tag.is_none()
                        || self.fill(2, column(plan.tag), |tag| tag & 0xffff_ffff))
                    && (plan.bytes.is_none() || self.fill(3, column(plan.bytes), |bytes| bytes))
                    && (request.is_none() || self.fill(4, request, |request| request));
                if !is_filled {
                    return false;
                }
            }
            (Role::SendEnd | Role::ReceiveStart | Role::Cancel, _, Some(request)) => {
                let id = match plan.role {
                    Role::SendEnd => ids::MPI_ISEND_COMPLETE,
                    Role::ReceiveStart => ids::MPI_IRECV_REQUEST,
                    _ => ids::MPI_REQUEST_CANCELLED,
                };
                self.start(id, 1, count);
                if !self.fill(0, Some(request), |request| request) {
                    return false;
                }
            }
            (Role::CollectiveBegin, ..) => self.start(ids::MPI_COLLECTIVE_BEGIN, 0, count),
            // What their root is, or whether there is one, differs from one to the next.
            (Role::CollectiveEnd, ..) => return false,
            // Each changes some of the calls of the one before.
            (Role::Sample, ..) => return false,
            (Role::Metric, ..) => {
                let (metric, type_code) = plan.definition;
                self.start(ids::METRIC, 3, count);
                self.fill_constant(0, metric);
                self.fill_constant(1, type_code.into());
                if !self.fill(2, column(plan.value), |bits| bits) {
                    return false;
                }
            }
            _ => {
                is_whole = false;
                self.start(ids::PARAMETER_STRING, 2, count);
                self.fill_constant(0, plan.parameter);
                self.fill_constant(1, plan.text);
            }
        }
        let attributes = plan.attributes.iter();
        let attributes = attributes.filter(|(.., is_told)| !(is_whole && *is_told));
        let attributes: Vec<_> = attributes
            .map(|(column, attribute, type_code, how, _)| (*column, *attribute, *type_code, *how))
            .collect();
        self.add_attributes(outgoing, archive, columns, &attributes)
    }
}

/// Returns the bits of all values of a column, mapped; false: there is none, one is absent, or it is of text.
fn take_bits(column: Option<&Column>, out: &mut Vec<u64>, mut map: impl FnMut(u64) -> u64) -> bool {
    let Some((column, bits)) = column.and_then(|column| Some((column, column.bits()?))) else {
        return false;
    };
    out.clear();
    bits.extend_into(0..bits.len(), out);
    match column.element_type() {
        ElementType::U32 => out
            .iter_mut()
            .for_each(|bits| *bits = map(*bits & 0xffff_ffff)),
        ElementType::I32 => {
            let wide = |bits: u64| i64::from(bits as u32 as i32) as u64;
            out.iter_mut().for_each(|bits| *bits = map(wide(*bits)));
        }
        _ => out.iter_mut().for_each(|bits| *bits = map(*bits)),
    }
    true
}
