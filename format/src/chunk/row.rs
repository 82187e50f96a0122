//! Rows: events, dropped records and observations as they are in live pages.

use super::{put_dropped, read_dropped};
use crate::definitions::EventTypeSchema;
use crate::error::Result;
use crate::ids::EventTypeId;
use crate::loss::DroppedRecord;
use crate::value::{ElementType, Value};
use crate::wire::{Put, Wire};

/// First varint of a row that is a dropped record.
pub const ROW_DROPPED: u64 = 0;
/// First varint of a row that is an observation.
pub const ROW_OBSERVATION: u64 = 1;
/// First varint of an event's row, less its event type id.
pub const ROW_EVENT: u64 = 2;
/// Tick step of an event's row that says: the tick itself follows, 8 bytes.
pub const ROW_FAR_TICK: u16 = u16::MAX;

/// An element's value in a row.
pub(super) enum RowValue<'a> {
    Bits(u64),
    Text(&'a [u8]),
    Absent,
}

/// Reads the elements of an event's row, and calls `each` with the index and the value of each.
#[inline]
pub(super) fn read_elements<'a>(
    schema: &EventTypeSchema,
    w: &mut Wire<'a>,
    mut each: impl FnMut(usize, RowValue<'a>),
) -> Result<()> {
    let present = if schema.has_optional() {
        w.take(
            schema.elements.len().div_ceil(8),
            "presence bitmap of a row",
        )?
    } else {
        &[]
    };
    for (index, (element_type, is_optional)) in schema.elements.iter().enumerate() {
        if *is_optional && present[index / 8] >> (index % 8) & 1 == 0 {
            each(index, RowValue::Absent);
            continue;
        }
        each(
            index,
            match element_type {
                ElementType::I32 | ElementType::I64 => {
                    RowValue::Bits(w.signed("a signed element")? as u64)
                }
                ElementType::U32 | ElementType::U64 => {
                    RowValue::Bits(w.varint("an unsigned element")?)
                }
                ElementType::F64 => RowValue::Bits(w.u64("an f64 element")?),
                ElementType::String | ElementType::Bytes => {
                    RowValue::Text(w.bytes("a text element")?)
                }
            },
        );
    }
    Ok(())
}

/// Returns the value of one element of an event's row, without allocating; `None` if the row does
/// not fit the schema or the element does not exist.
pub fn row_element<'a>(schema: &EventTypeSchema, row: &'a [u8], index: usize) -> Option<Value<'a>> {
    let mut wire = Wire::new(row);
    let mut code = wire.varint("kind of a row").ok()?;
    if code == ROW_OBSERVATION {
        wire.signed("reference clock").ok()?;
        code = wire.varint("kind of a row").ok()?;
    }
    if code < ROW_EVENT {
        return None;
    }
    if wire.u16("tick step of a row").ok()? == ROW_FAR_TICK {
        wire.u64("tick of a row").ok()?;
    }
    let element_type = schema.elements.get(index)?.0;
    let mut found = None;
    let each = |at: usize, value: RowValue<'a>| {
        if at == index {
            found = Some(match value {
                RowValue::Bits(bits) => Value::from_bits(element_type, bits),
                RowValue::Text(bytes) if element_type == ElementType::String => {
                    Value::String(bytes)
                }
                RowValue::Text(bytes) => Value::Bytes(bytes),
                RowValue::Absent => Value::Absent,
            });
        }
    };
    read_elements(schema, &mut wire, each).ok()?;
    found
}

/// Calls `each` with the event type of every event in the rows of a page, up to the first row that cannot
/// be read; allocates nothing.
pub fn visit_rows<'s>(
    rows: &[u8],
    schema_of: impl Fn(EventTypeId) -> Option<&'s EventTypeSchema>,
    mut each: impl FnMut(EventTypeId),
) {
    let mut wire = Wire::new(rows);
    while !wire.is_empty() {
        let mut row = || -> Result<Option<EventTypeId>> {
            let code = wire.varint("kind of a row")?;
            if code == ROW_DROPPED {
                read_dropped(&mut wire)?;
                return Ok(None);
            }
            if code == ROW_OBSERVATION {
                wire.signed("reference clock")?;
                return Ok(None);
            }
            let number = u32::try_from(code - ROW_EVENT).unwrap_or(u32::MAX);
            let event_type = EventTypeId::new(number);
            if wire.u16("tick step of a row")? == ROW_FAR_TICK {
                wire.u64("tick of a row")?;
            }
            if let Some(schema) = schema_of(event_type) {
                read_elements(schema, &mut wire, |_, _| {})?;
            }
            Ok(Some(event_type))
        };
        match row() {
            Ok(Some(event_type)) => each(event_type),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Appends what an event's row begins with: its event type and its tick, `from` being that of the
/// event before.
pub fn put_row_start(event_type: EventTypeId, from: u64, tick: u64, out: &mut Vec<u8>) {
    out.put_varint(u64::from(event_type.get()) + ROW_EVENT);
    let step = tick.wrapping_sub(from);
    if step < u64::from(ROW_FAR_TICK) {
        out.extend_from_slice(&(step as u16).to_le_bytes());
    } else {
        out.extend_from_slice(&ROW_FAR_TICK.to_le_bytes());
        out.extend_from_slice(&tick.to_le_bytes());
    }
}

/// Appends the row of a dropped record.
pub fn put_dropped_row(record: &DroppedRecord, out: &mut Vec<u8>) {
    out.put_varint(ROW_DROPPED);
    put_dropped(record, out);
}
