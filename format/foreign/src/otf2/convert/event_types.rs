//! The event types of an archive: one for each record that occurs (of metrics one for each composition), with
//! an element for each field and each additional value that some event of it has.

use super::numbering::Strings;
use super::scan::{FIRST_COMPOSITION, Key, Scanned};
use crate::otf2::conventions::{MOST_ARGUMENTS, MOST_VALUES, NAMED_REGION, element_name};
use crate::otf2::records::{ids, marker_ids};
use crate::otf2::{
    DefinitionKind, Enumeration, FieldType, GlobalDefinitions, Record, enums, event_record, types,
};
use annals_format::names::element;
use annals_format::wire::Put;
use annals_format::{
    Definition, Element, ElementType, EventType, EventTypeId, Reference, Role, Verbosity,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Where an element has its value from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ElementSource {
    /// A field.
    Value(usize),
    /// A field that refers to something.
    Reference(usize, DefinitionKind),
    /// The region that a leave ends.
    Ended,
    /// A field that is a time.
    Time(usize),
    /// The rank in the run of the rank in this field, of the communicator in that.
    Rank(usize, usize),
    /// How many processes the communicator in this field has.
    Size(usize),
    /// The own rank in the communicator in this field.
    Place(usize),
    /// The call path of the calling context in this field.
    CallPath(usize),
    /// The region of the calling context in this field.
    RegionOfContext(usize),
    /// The period of the generator of interrupts in this field.
    Period(usize),
    /// The sum of two fields.
    Sum(usize, usize),
    /// A field from the end of the collective operation.
    Collective(CollectiveField),
    /// The value at this index of a list; absent if the list is shorter.
    Item(usize),
    /// The string at this index of a list.
    TextItem(usize),
    /// The rest of the list, as bytes: eight for each value.
    Rest(usize),
    /// An unknown record's bytes.
    Payload,
    /// An additional value: attribute and type.
    Attribute(u32, u8),
    /// Additional values that have no separate place, as bytes.
    Attributes,
    /// Of a marker.
    Marker(MarkerField),
}

/// A field of an event that was made from a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MarkerField {
    Category,
    Group,
    Severity,
    Text,
    Duration,
    ScopeType,
    ScopeName,
    Scope,
    Definition,
}

/// A field of a collective operation's begin that is taken from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollectiveField {
    Communicator,
    Operation,
    Root,
    Bytes,
    BytesSent,
    BytesReceived,
    Place,
    Size,
}

impl CollectiveField {
    pub(crate) const fn element_type(self) -> ElementType {
        match self {
            Self::Bytes | Self::BytesSent | Self::BytesReceived => ElementType::U64,
            Self::Communicator | Self::Operation | Self::Root | Self::Place | Self::Size => {
                ElementType::U32
            }
        }
    }
}

/// An event type and how its columns are filled.
#[derive(Debug)]
pub(crate) struct EventTypePlan {
    pub(crate) id: EventTypeId,
    /// Id of the record.
    record: u8,
    /// Of a composition of metrics, the types of the values.
    types: Vec<u8>,
    pub(crate) definition: EventType,
    pub(crate) sources: Vec<ElementSource>,
    /// Columns of additional values.
    pub(crate) attributes: FxHashMap<(u32, u8), usize>,
    /// The first column of an additional value.
    pub(crate) first_attribute: usize,
}

impl EventTypePlan {
    /// Returns what a writer of archives has to know of the event type, as the format's description
    /// says.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = vec![self.record];
        body.put_varint(self.types.len() as u64);
        body.extend_from_slice(&self.types);
        for from in &self.sources[self.first_attribute..] {
            if let ElementSource::Attribute(attribute, type_code) = from {
                body.put_varint((*attribute).into());
                body.push(*type_code);
            }
        }
        body
    }
}

/// The event types of an archive.
#[derive(Debug, Default)]
pub(crate) struct EventTypes {
    pub(crate) plans: Vec<EventTypePlan>,
    /// Plans by the id of the record.
    by_record: BTreeMap<u8, usize>,
    /// Plans by composition of metrics: the class, and the types of the values.
    by_composition: FxHashMap<(u64, Vec<u8>), usize>,
}

/// Elements under construction.
struct Elements<'a> {
    strings: &'a mut Strings,
    elements: Vec<Element>,
    sources: Vec<ElementSource>,
    names: BTreeSet<String>,
}

impl Elements<'_> {
    fn add(&mut self, name: &str, element_type: ElementType, from: ElementSource) -> &mut Element {
        let mut unique = name.to_owned();
        let mut number = 2;
        while unique.is_empty() || !self.names.insert(unique.clone()) {
            unique = format!("{name} ({number})");
            number += 1;
        }
        let reference = match from {
            ElementSource::Ended => Reference::Region,
            ElementSource::Reference(_, kind) => reference_of(kind),
            ElementSource::Rank(..) | ElementSource::Collective(CollectiveField::Root) => {
                Reference::Rank
            }
            ElementSource::TextItem(_) => Reference::String,
            ElementSource::CallPath(_) => Reference::CallPath,
            ElementSource::RegionOfContext(_) => Reference::Region,
            ElementSource::Collective(CollectiveField::Communicator) => Reference::Object,
            ElementSource::Attribute(_, type_code) => {
                DefinitionKind::of_type(type_code).map_or(Reference::None, reference_of)
            }
            _ => Reference::None,
        };
        let is_optional = !matches!(
            from,
            ElementSource::Value(_)
                | ElementSource::Reference(..)
                | ElementSource::Ended
                | ElementSource::Time(_)
                | ElementSource::RegionOfContext(_)
                | ElementSource::Sum(..)
                | ElementSource::Payload
                | ElementSource::Marker(
                    MarkerField::Text
                        | MarkerField::Duration
                        | MarkerField::ScopeType
                        | MarkerField::Scope
                        | MarkerField::Definition
                )
        );
        self.elements.push(Element {
            name: self.strings.intern(&unique),
            element_type,
            is_optional,
            reference,
            unit: self.strings.intern(""),
            original_bits: 0,
        });
        self.sources.push(from);
        self.elements.last_mut().expect("one was added")
    }
}

fn reference_of(kind: DefinitionKind) -> Reference {
    match kind {
        DefinitionKind::String => Reference::String,
        DefinitionKind::Region => Reference::Region,
        // Ours are of one process, an archive's of all.
        DefinitionKind::Location => Reference::None,
        _ => Reference::Object,
    }
}

/// Returns type and original width of a typed value.
fn type_of(type_code: u8) -> (ElementType, u8) {
    match type_code {
        types::UINT8 => (ElementType::U32, 8),
        types::UINT16 => (ElementType::U32, 16),
        types::INT8 => (ElementType::I32, 8),
        types::INT16 => (ElementType::I32, 16),
        types::INT32 => (ElementType::I32, 0),
        types::INT64 => (ElementType::I64, 0),
        types::FLOAT => (ElementType::F64, 32),
        types::DOUBLE => (ElementType::F64, 0),
        types::UINT32 | 11 | 12 | 14..=25 => (ElementType::U32, 0),
        _ => (ElementType::U64, 0),
    }
}

fn role_of(record: &Record) -> Role {
    match record.name {
        "Enter" | "CallingContextEnter" => Role::Enter,
        "Leave" | "CallingContextLeave" => Role::Leave,
        "CallingContextSample" => Role::Sample,
        "MpiSend" | "MpiIsend" => Role::Send,
        "MpiRecv" | "MpiIrecv" => Role::Receive,
        "MpiIsendComplete" => Role::SendEnd,
        "MpiIrecvRequest" => Role::ReceiveStart,
        "MpiRequestCancelled" => Role::Cancel,
        "MpiCollectiveBegin" => Role::CollectiveBegin,
        "MpiCollectiveEnd" => Role::CollectiveEnd,
        "NonBlockingCollectiveComplete" => Role::Collective,
        "Metric" => Role::Metric,
        "ThreadAcquireLock" | "OmpAcquireLock" => Role::Acquire,
        "ThreadReleaseLock" | "OmpReleaseLock" => Role::Release,
        _ => Role::Point,
    }
}

/// Returns the description of an event type: the names of the values of its enumerations.
fn description_of(record: &Record) -> String {
    let mut text = format!("{} of OTF2 {}", record.name, record.since);
    for field in record.fields {
        if let FieldType::Enum8(enumeration) | FieldType::Enum32(enumeration) = field.what {
            let values = enumeration.values.iter();
            let values: Vec<String> = values
                .map(|(code, name)| format!("{code} {name}"))
                .collect();
            text += &format!("; {}: {}", element_name(field), values.join(", "));
        }
    }
    text
}

/// Adds what a calling context says: the call path of a sample, or the region that is entered or left. `has_weight`: an additional
/// value says what each sample represents, as in what we have written.
fn add_context(record: &Record, has_weight: bool, elements: &mut Elements<'_>) {
    let generator = record.place("interrupt_generator");
    match (record.place("calling_context"), generator) {
        (Some(context), Some(generator)) => {
            let path = ElementSource::CallPath(context);
            elements.add(element::CALL_PATH, ElementType::U32, path);
            if !has_weight {
                let unit = elements.strings.intern("ns");
                let weight = ElementSource::Period(generator);
                elements.add(element::WEIGHT, ElementType::U64, weight).unit = unit;
            }
        }
        (Some(context), None) => {
            let region = ElementSource::RegionOfContext(context);
            elements.add(element::REGION, ElementType::U32, region);
        }
        (None, _) => {}
    }
}

fn add_fields(record: &Record, arguments: usize, has_weight: bool, elements: &mut Elements<'_>) {
    let communicator = record.place("communicator");
    if let Some(communicator) = communicator {
        let rank = ["receiver", "sender", "root"];
        if let Some(rank) = rank.iter().find_map(|name| record.place(name)) {
            let name = if record.fields[rank].name == "root" {
                "root"
            } else {
                "peer"
            };
            elements.add(
                name,
                ElementType::U32,
                ElementSource::Rank(rank, communicator),
            );
        }
    }
    let sizes = (record.place("size_sent"), record.place("size_received"));
    if let (Some(sent), Some(received), Some(communicator)) = (sizes.0, sizes.1, communicator) {
        elements.add(
            "bytes",
            ElementType::U64,
            ElementSource::Sum(sent, received),
        );
        elements.add(
            "place",
            ElementType::U32,
            ElementSource::Place(communicator),
        );
        elements.add("size", ElementType::U32, ElementSource::Size(communicator));
    }
    if record.name == "MpiCollectiveBegin" {
        use CollectiveField as Of;
        let named = [
            ("communicator", Of::Communicator),
            ("operation", Of::Operation),
            ("root", Of::Root),
            ("bytes", Of::Bytes),
            ("bytes_sent", Of::BytesSent),
            ("bytes_received", Of::BytesReceived),
            ("place", Of::Place),
            ("size", Of::Size),
        ];
        for (name, of) in named {
            elements.add(name, of.element_type(), ElementSource::Collective(of));
        }
    }
    add_context(record, has_weight, elements);
    for (index, field) in record.fields.iter().enumerate() {
        let mut name = element_name(field);
        if name == element::REGION && elements.sources.contains(&ElementSource::Ended) {
            name = NAMED_REGION;
        }
        match field.what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Type => {
                let element = elements.add(name, ElementType::U32, ElementSource::Value(index));
                element.original_bits = 8;
            }
            FieldType::C32 | FieldType::Enum32(_) => {
                elements.add(name, ElementType::U32, ElementSource::Value(index));
            }
            FieldType::C64 => {
                elements.add(name, ElementType::U64, ElementSource::Value(index));
            }
            FieldType::Ci64 => {
                elements.add(name, ElementType::I64, ElementSource::Value(index));
            }
            FieldType::U64 | FieldType::F64 => {
                let unit = elements.strings.intern("ticks");
                elements
                    .add(name, ElementType::U64, ElementSource::Time(index))
                    .unit = unit;
            }
            FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind) => {
                elements.add(
                    name,
                    ElementType::U32,
                    ElementSource::Reference(index, kind),
                );
            }
            // A program's arguments: the only list outside of metrics.
            FieldType::List8(_) | FieldType::List32(_) => {
                let named = arguments.min(MOST_ARGUMENTS);
                for number in 0..named {
                    let name = format!("argument_{}", number + 1);
                    elements.add(
                        &name,
                        ElementType::U32,
                        ElementSource::TextItem(index + number),
                    );
                }
                if arguments > named {
                    let rest = ElementSource::Rest(index + named);
                    elements.add("more_arguments", ElementType::Bytes, rest);
                }
            }
            FieldType::Text | FieldType::Value | FieldType::IdMap => {}
        }
    }
}

/// The parts of event types that the passes over the locations found.
#[derive(Default)]
struct FoundRecords<'a> {
    /// Ids of records.
    records: BTreeSet<u8>,
    /// Compositions of metrics: the class, and the types of the values.
    compositions: BTreeSet<(u64, &'a [u8])>,
    /// Additional values by record: attribute and type.
    attributes: BTreeMap<u8, BTreeSet<(u32, u8)>>,
    /// Records with more kinds of them than have places.
    overflowing: BTreeSet<u8>,
    /// Most arguments of a program.
    arguments: usize,
    /// Whether a leave names another region than the one that it ends.
    has_renamed: bool,
}

impl<'a> FoundRecords<'a> {
    fn of(scanned: &'a [Scanned], definitions: &GlobalDefinitions) -> Self {
        let mut found = Self::default();
        for scanned in scanned {
            let counted = scanned.counts.keys().copied();
            let lost = scanned.lost.iter().filter_map(|lost| lost.key);
            let records = counted.chain(lost).filter(|key| *key < FIRST_COMPOSITION);
            found.records.extend(records.map(|key| key as u8));
            for (metric, types) in &scanned.compositions {
                let class = class_of(definitions, *metric);
                found.compositions.insert((class, types));
            }
            for (record, attribute, type_code) in &scanned.attributes {
                let of_record = found.attributes.entry(*record).or_default();
                of_record.insert((*attribute, *type_code));
            }
            found.overflowing.extend(&scanned.overflowing);
            found.arguments = found.arguments.max(scanned.arguments);
            found.has_renamed |= scanned.renamed != 0;
        }
        found
    }
}

/// Event types under construction.
struct EventTypesBuilder<'a> {
    definitions: &'a GlobalDefinitions,
    found: &'a FoundRecords<'a>,
    strings: &'a mut Strings,
    /// Names that are taken.
    names: BTreeSet<String>,
    event_types: EventTypes,
}

impl EventTypesBuilder<'_> {
    /// Adds the event type of a record. Of metrics, it has those whose composition has no event type.
    fn add_record(&mut self, record: u8) {
        let place = self.event_types.plans.len();
        self.event_types.by_record.insert(record, place);
        let arguments = self.found.arguments;
        let mut attributes = self.found.attributes.get(&record).into_iter().flatten();
        let has_weight = attributes.any(|(attribute, type_code)| {
            let name = self
                .definitions
                .name(DefinitionKind::Attribute, u64::from(*attribute));
            *type_code == types::UINT64 && name == element::WEIGHT
        });
        let is_renamed = record == ids::LEAVE && self.found.has_renamed;
        self.add(record, &[], |elements| {
            if is_renamed {
                elements.add(element::REGION, ElementType::U32, ElementSource::Ended);
            }
            plan_record(record, arguments, has_weight, elements)
        });
    }

    /// Adds the event type of a composition of metrics.
    fn add_composition(&mut self, class: u64, types: &[u8]) {
        let place = self.event_types.plans.len();
        let by_composition = &mut self.event_types.by_composition;
        by_composition.insert((class, types.to_vec()), place);
        let definitions = self.definitions;
        self.add(ids::METRIC, types, |elements| {
            add_metric(definitions, class, types, elements)
        });
    }

    /// Adds an event type: the elements that `plan` adds, which returns name, description and role, and those of the
    /// record's additional values.
    fn add(
        &mut self,
        record: u8,
        types: &[u8],
        plan: impl FnOnce(&mut Elements<'_>) -> (String, String, Role),
    ) {
        let mut elements = Elements {
            strings: self.strings,
            elements: Vec::new(),
            sources: Vec::new(),
            names: BTreeSet::new(),
        };
        let (name, description, role) = plan(&mut elements);
        let first_attribute = elements.elements.len();
        let attributes = self.found.attributes.get(&record);
        let has_more = self.found.overflowing.contains(&record);
        let of_attribute = add_attributes(self.definitions, attributes, has_more, &mut elements);
        let Elements {
            elements, sources, ..
        } = elements;
        let id = EventTypeId::new(self.event_types.plans.len() as u32);
        let mut unique = name.clone();
        if !self.names.insert(unique.clone()) {
            unique = format!("{name} ({})", id.get());
            self.names.insert(unique.clone());
        }
        let definition = EventType {
            id,
            name: self.strings.intern(&unique),
            description: self.strings.intern(&description),
            verbosity: Verbosity::UserBasic,
            role,
            key_element: None,
            elements,
        };
        self.event_types.plans.push(EventTypePlan {
            id,
            record,
            types: types.to_vec(),
            definition,
            sources,
            attributes: of_attribute,
            first_attribute,
        });
    }
}

/// Adds the elements of a record that is no composition of metrics. Returns name, description and role of its event type.
fn plan_record(
    record: u8,
    arguments: usize,
    has_weight: bool,
    elements: &mut Elements<'_>,
) -> (String, String, Role) {
    if record == marker_ids::MARKER {
        return add_marker(elements);
    }
    let Some(known) = event_record(record) else {
        elements.add("payload", ElementType::Bytes, ElementSource::Payload);
        let name = format!("UNKNOWN_{record}");
        let description = "a record that this version does not know".to_owned();
        return (name, description, Role::Point);
    };
    if record == ids::METRIC {
        // Of compositions beyond the limit.
        let metric = ElementSource::Reference(0, DefinitionKind::Metric);
        elements.add("metric", ElementType::U32, metric);
        elements.add("values", ElementType::Bytes, ElementSource::Rest(1));
        return ("METRIC".to_owned(), description_of(known), Role::Point);
    }
    add_fields(known, arguments, has_weight, elements);
    let name = known.capitals.to_owned();
    (name, description_of(known), role_of(known))
}

/// Adds an element for each additional value, as long as there is room, and one for all others. Returns the place of each
/// value's element.
fn add_attributes(
    definitions: &GlobalDefinitions,
    attributes: Option<&BTreeSet<(u32, u8)>>,
    has_more: bool,
    elements: &mut Elements<'_>,
) -> FxHashMap<(u32, u8), usize> {
    let room = (annals_format::MAX_ELEMENTS - 1).saturating_sub(elements.elements.len());
    let mut places = FxHashMap::default();
    for (attribute, type_code) in attributes.into_iter().flatten().take(room) {
        places.insert((*attribute, *type_code), elements.elements.len());
        let name = definitions.name(DefinitionKind::Attribute, u64::from(*attribute));
        let name = if name.is_empty() {
            format!("attribute {attribute}")
        } else {
            name
        };
        let (element_type, bits) = type_of(*type_code);
        let from = ElementSource::Attribute(*attribute, *type_code);
        elements.add(&name, element_type, from).original_bits = bits;
    }
    if has_more || attributes.is_some_and(|attributes| attributes.len() > room) {
        let all = ElementSource::Attributes;
        elements.add("more_attributes", ElementType::Bytes, all);
    }
    places
}

impl EventTypes {
    /// Plans an event type for each record and each composition of metrics that the passes over the locations found.
    pub(crate) fn of(
        scanned: &[Scanned],
        definitions: &GlobalDefinitions,
        strings: &mut Strings,
    ) -> Self {
        // An archive must not cost more event types than a chunk can name.
        const MOST_TYPES: usize = 20_000;
        let found = FoundRecords::of(scanned, definitions);
        let mut builder = EventTypesBuilder {
            definitions,
            found: &found,
            strings,
            names: BTreeSet::new(),
            event_types: Self::default(),
        };
        for record in &found.records {
            builder.add_record(*record);
        }
        for (class, types) in found.compositions.iter().take(MOST_TYPES) {
            builder.add_composition(*class, types);
        }
        builder.event_types
    }

    /// Returns the plan for a key of a location.
    pub(crate) fn plan(
        &self,
        definitions: &GlobalDefinitions,
        scanned: &Scanned,
        key: Key,
    ) -> Option<&EventTypePlan> {
        let place = match key.checked_sub(FIRST_COMPOSITION) {
            None => self.by_record.get(&(key as u8)),
            Some(composition) => {
                let (metric, types) = scanned.compositions.get(composition as usize)?;
                let class = class_of(definitions, *metric);
                let known = self.by_composition.get(&(class, types.clone()));
                known.or_else(|| self.by_record.get(&ids::METRIC))
            }
        };
        place.map(|place| &self.plans[*place])
    }

    /// Returns the plan for a record that is no metric.
    pub(crate) fn plan_of_record(&self, record: u8) -> Option<&EventTypePlan> {
        let place = self.by_record.get(&record)?;
        Some(&self.plans[*place])
    }

    /// Definitions of all event types.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = Definition> {
        let plans = self.plans.iter();
        plans.map(|plan| Definition::EventType(plan.definition.clone()))
    }
}

fn add_marker(elements: &mut Elements<'_>) -> (String, String, Role) {
    let mut add = |name: &str, element_type: ElementType, of: MarkerField| {
        elements
            .add(name, element_type, ElementSource::Marker(of))
            .original_bits = match of {
            MarkerField::Severity | MarkerField::ScopeType => 8,
            _ => 0,
        };
    };
    add("category", ElementType::String, MarkerField::Category);
    add("text", ElementType::String, MarkerField::Text);
    add("severity", ElementType::U32, MarkerField::Severity);
    add("group", ElementType::String, MarkerField::Group);
    add("scope_name", ElementType::String, MarkerField::ScopeName);
    add("scope_type", ElementType::U32, MarkerField::ScopeType);
    add("scope", ElementType::U64, MarkerField::Scope);
    add("duration", ElementType::U64, MarkerField::Duration);
    add("definition", ElementType::U32, MarkerField::Definition);
    if let Some(duration) = elements.elements.iter_mut().rev().nth(1) {
        duration.unit = elements.strings.intern("ticks");
    }
    let names = |enumeration: &Enumeration| {
        let values = enumeration.values.iter();
        let values: Vec<String> = values
            .map(|(code, name)| format!("{code} {name}"))
            .collect();
        values.join(", ")
    };
    let (severity, scope) = (names(&enums::SEVERITY), names(&enums::MARKER_SCOPE));
    let description =
        format!("Marker of OTF2 1.2, added by a tool; severity: {severity}; scope_type: {scope}");
    ("MARKER".to_owned(), description, Role::Point)
}

/// Returns the class of a metric; of one that is not defined, itself.
fn class_of(definitions: &GlobalDefinitions, metric: u64) -> u64 {
    let class = definitions.metric_class(metric);
    class
        .and_then(|class| class.own_id())
        .map_or(metric, |(_, id)| id)
}

fn add_metric(
    definitions: &GlobalDefinitions,
    class: u64,
    type_codes: &[u8],
    elements: &mut Elements<'_>,
) -> (String, String, Role) {
    let members = definitions.metric_members(class);
    elements.add(
        "metric",
        ElementType::U32,
        ElementSource::Reference(0, DefinitionKind::Metric),
    );
    for (index, type_code) in type_codes.iter().enumerate().take(MOST_VALUES) {
        let member = members.get(index);
        let member =
            member.and_then(|member| definitions.find(DefinitionKind::MetricMember, *member));
        let named = member.and_then(|member| member.bits("name"));
        let name = match named {
            // A role's word.
            _ if type_codes.len() == 1 => "value".to_owned(),
            Some(name) => definitions.string(name).into_owned(),
            None => format!("value {index}"),
        };
        let unit = member.map(|member| unit_of(definitions, member));
        let unit = elements.strings.intern(&unit.unwrap_or_default());
        let (element_type, _) = type_of(match *type_code {
            types::INT64 => types::INT64,
            types::DOUBLE => types::DOUBLE,
            _ => types::UINT64,
        });
        // Types and values alternate after the metric.
        let from = ElementSource::Item(2 + 2 * index);
        let element = elements.add(&name, element_type, from);
        element.unit = unit;
        element.is_optional = false;
    }
    if type_codes.len() > MOST_VALUES {
        let rest = ElementSource::Rest(1 + 2 * MOST_VALUES);
        elements.add("more_values", ElementType::Bytes, rest);
    }
    let mut names = definitions.name(DefinitionKind::Metric, class);
    if let Some((end, _)) = names.char_indices().nth(150) {
        names.truncate(end);
        names.push('…');
    }
    let descriptions = members.iter().filter_map(|member| {
        let member = definitions.find(DefinitionKind::MetricMember, *member)?;
        let description = definitions.string(member.bits("description")?).into_owned();
        (!description.is_empty()).then_some(description)
    });
    let descriptions: Vec<String> = descriptions.take(10).collect();
    let kinds = type_codes.iter().map(u8::to_string);
    let kinds = kinds.collect::<Vec<_>>().join(",");
    let mut description = format!("Metric of OTF2 1.0, class {class}, value types {kinds}");
    if !descriptions.is_empty() {
        description = format!("{}; {description}", descriptions.join("; "));
    }
    let name = if names.is_empty() {
        format!("METRIC:{class}")
    } else {
        format!("METRIC:{names}")
    };
    (name, description, Role::Metric)
}

/// Returns a metric's unit, with the power that its values have to be multiplied by.
fn unit_of(definitions: &GlobalDefinitions, member: &crate::otf2::GlobalDefinition) -> String {
    let unit = definitions.string(member.bits("unit").unwrap_or(u64::MAX));
    let exponent = member.bits("exponent").unwrap_or(0) as i64;
    let base = match member.bits("base") {
        Some(0) => 2,
        _ => 10,
    };
    match exponent {
        0 => unit.into_owned(),
        exponent => format!("{base}^{exponent} {unit}").trim_end().to_owned(),
    }
}
