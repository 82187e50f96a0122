//! What reading and writing archives agree on: how an archive's records appear in recordings, and recordings in archives.

use super::records::marker_ids;
use super::{
    Anchor, AttributeValue, DefinitionKind, Endian, Field, Input, Output, Record, records,
};
use annals_format::Result;

/// The first word of the creator of archives that are written here.
pub const CREATOR: &str = "Annals";

/// The format's name in foreign records.
pub const FORMAT: &str = "OTF2";

/// Id of the first foreign record of an archive that contains a definition of markers. Those with lower ids contain its
/// anchor and its other definitions.
pub const FIRST_OF_MARKERS: u32 = 1 << 31;

/// The region, in archives, of callers that are not known.
pub const UNKNOWN_CALLER: &str = "(unknown)";

/// Returns the text that replaces an undefined string.
pub fn text_of_undefined(number: u64) -> String {
    format!("string {number}")
}

/// Returns the number of an undefined string from the text that replaces it.
pub fn number_of_undefined(text: &str) -> Option<u64> {
    let number = text.strip_prefix("string ")?.parse().ok()?;
    (text_of_undefined(number) == text).then_some(number)
}

/// The kinds of definitions that are objects ([`annals_format::Object`]) in recordings. Objects have one sequence of
/// ids, in this order.
pub const OBJECTS: [DefinitionKind; 13] = [
    DefinitionKind::Attribute,
    DefinitionKind::Group,
    DefinitionKind::Metric,
    DefinitionKind::Comm,
    DefinitionKind::Parameter,
    DefinitionKind::RmaWin,
    DefinitionKind::SourceCodeLocation,
    DefinitionKind::CallingContext,
    DefinitionKind::InterruptGenerator,
    DefinitionKind::IoFile,
    DefinitionKind::IoHandle,
    DefinitionKind::LocationGroup,
    DefinitionKind::IoParadigm,
];

/// The region that a leave names, if that need not be the one that it ends.
pub const NAMED_REGION: &str = "named_region";

/// Returns what an element is called: where a role has a word for the field, by that one.
pub fn element_name(field: &Field) -> &'static str {
    match field.name {
        "receiver" | "sender" => "rank_in_communicator",
        "msg_tag" => "tag",
        "msg_length" => "bytes",
        "request_id" => "request",
        "collective_op" => "operation",
        "root" => "root_in_communicator",
        "size_sent" => "bytes_sent",
        "size_received" => "bytes_received",
        other => other,
    }
}

/// Maximum number of arguments of a program that have separate places.
pub const MOST_ARGUMENTS: usize = 50;

/// Maximum number of values of a metric event that have separate places.
pub const MOST_VALUES: usize = 100;

/// Appends a value in the encoding of a list of attributes.
pub(super) fn put_attribute(value: &AttributeValue, out: &mut Vec<u8>) {
    out.put_c32(value.attribute);
    out.push(value.type_code);
    out.put_value(value.type_code, value.bits);
}

/// Returns the values of an element of additional values that have no separate place.
pub fn read_attributes(bytes: &[u8]) -> Vec<AttributeValue> {
    let mut input = Input::new(bytes, Endian::Little);
    let mut values = Vec::new();
    while input.remaining() != 0 {
        let mut read = || -> Result<AttributeValue> {
            let attribute = input.c32("an attribute")?;
            let type_code = input.u8("a type")?;
            let bits = input.value(type_code)?;
            Ok(AttributeValue {
                attribute,
                type_code,
                bits,
            })
        };
        let Ok(value) = read() else { break };
        values.push(value);
    }
    values
}

/// Returns the record of a definition of markers.
pub fn definition_record() -> &'static Record {
    Record::find(records::MARKERS, marker_ids::DEF_MARKER).expect("the table has it")
}

/// Returns the record of a marker.
pub fn marker_record() -> &'static Record {
    Record::find(records::MARKERS, marker_ids::MARKER).expect("the table has it")
}

/// Returns the kind of definition that a marker's scope names.
pub const fn kind_of_scope(scope_type: u64) -> Option<DefinitionKind> {
    Some(match scope_type {
        1 => DefinitionKind::Location,
        2 => DefinitionKind::LocationGroup,
        3 => DefinitionKind::SystemTreeNode,
        4 => DefinitionKind::Group,
        5 => DefinitionKind::Comm,
        _ => return None,
    })
}

/// Returns whether a start of 0 means that the archive's tool has not set it, by its length and its first and last event: times are since
/// the host was started then. Ours are since the start of the trace.
pub fn is_start_unset(anchor: &Anchor, length: u64, first: u64, last: u64) -> bool {
    let is_ours = anchor.creator.starts_with(CREATOR);
    !is_ours && (last > length || first > last - first)
}
