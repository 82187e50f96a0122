//! Values of elements as text.

use std::io::Write;

use annals_format::{Definitions, Element, Value};

use annals_merger::Event;

use crate::text::safe;

/// Appends text as a JSON string.
pub fn put_json(line: &mut Vec<u8>, text: &str) {
    // Writing into memory does not fail.
    let _ = serde_json::to_writer(line, text);
}

/// Returns the name of the definition that an integer refers to. `None` means that it is a plain
/// value.
pub fn referred(definitions: &Definitions, element: &Element, value: Value<'_>) -> Option<String> {
    annals_analysis::referred(definitions, element.reference, value.as_integer()?)
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Appends a value as JSON, references by name.
pub fn put_value_json(
    line: &mut Vec<u8>,
    definitions: &Definitions,
    element: &Element,
    value: Value<'_>,
) {
    if let Some(name) = referred(definitions, element, value) {
        return put_json(line, &name);
    }
    let _ = match value {
        Value::I32(value) => write!(line, "{value}"),
        Value::U32(value) => write!(line, "{value}"),
        Value::I64(value) => write!(line, "{value}"),
        Value::U64(value) => write!(line, "{value}"),
        // JSON has no infinities and no NaN.
        Value::F64(value) if value.is_finite() => {
            let _ = serde_json::to_writer(&mut *line, &value);
            Ok(())
        }
        Value::F64(_) | Value::Absent => write!(line, "null"),
        Value::String(bytes) => {
            put_json(line, &annals_format::text_of_value(bytes));
            Ok(())
        }
        Value::Bytes(bytes) => write!(line, "\"{}\"", hex(bytes)),
    };
}

/// Appends a value for people, references by name, control characters escaped.
pub fn put_value_text(
    line: &mut Vec<u8>,
    definitions: &Definitions,
    element: &Element,
    value: Value<'_>,
) {
    if let Some(name) = referred(definitions, element, value) {
        line.extend_from_slice(safe(&name).as_bytes());
        return;
    }
    let _ = match value {
        Value::I32(value) => write!(line, "{value}"),
        Value::U32(value) => write!(line, "{value}"),
        Value::I64(value) => write!(line, "{value}"),
        Value::U64(value) => write!(line, "{value}"),
        Value::F64(value) => write!(line, "{value}"),
        Value::String(bytes) => write!(line, "{:?}", annals_format::text_of_value(bytes)),
        Value::Bytes(bytes) => write!(line, "0x{}", hex(bytes)),
        Value::Absent => Ok(()),
    };
}

/// Returns the elements of an event that are there, with their values.
fn elements_of<'a>(event: &Event<'a>) -> impl Iterator<Item = (&'a Element, Value<'a>)> {
    let event = *event;
    let elements = event.definition().map_or(&[][..], |d| &d.elements);
    let values = elements
        .iter()
        .enumerate()
        .map(move |(at, element)| (element, event.element(at)));
    values.filter(|(_, value)| *value != Value::Absent)
}

/// Appends an event's elements, as ` name=value`.
pub fn put_elements(line: &mut Vec<u8>, definitions: &Definitions, event: &Event<'_>) {
    for (element, value) in elements_of(event) {
        // Writing into memory does not fail.
        let _ = write!(line, " {}=", safe(definitions.string(element.name)));
        put_value_text(line, definitions, element, value);
    }
}

/// Appends an event's elements, as `"name":value`, separated by commas.
pub fn put_elements_json(line: &mut Vec<u8>, definitions: &Definitions, event: &Event<'_>) {
    for (index, (element, value)) in elements_of(event).enumerate() {
        if index != 0 {
            line.push(b',');
        }
        put_json(line, definitions.string(element.name));
        line.push(b':');
        put_value_json(line, definitions, element, value);
    }
}
