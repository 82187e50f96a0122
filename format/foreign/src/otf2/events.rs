//! Events: read from a chunk one after the other.

use super::container::{CHUNK_HEADER_LEN, ChunkHeader, END_OF_BUFFER, END_OF_CHUNK, END_OF_FILE};
use super::describe::{Field, FieldType, Frame, Record};
use super::records::EVENTS;
use super::wire::{Endian, Input};
use annals_format::{FormatError, Result};

pub(super) const TIMESTAMP: u8 = 5;
pub(super) const ATTRIBUTE_LIST: u8 = 6;
const ENTER: u8 = 12;
const LEAVE: u8 = 13;

/// An event's additional value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeValue {
    /// Which attribute.
    pub attribute: u32,
    /// Type of the value.
    pub type_code: u8,
    /// Its bits, as [`Input::value`] returns them.
    pub bits: u64,
}

/// The next item in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event: [`EventReader::record`], [`EventReader::values`] and so on return its contents.
    Event,
    /// An event whose fields contradict the format; the next one is found by its length.
    Unreadable,
    /// The chunk ends here; the file continues with the next.
    EndOfChunk,
    /// Nothing follows in the file.
    EndOfFile,
}

/// Returns the record of an event by its id.
#[inline]
pub fn event_record(id: u8) -> Option<&'static Record> {
    let first = EVENTS[0].id;
    EVENTS.get(usize::from(id.checked_sub(first)?))
}

/// Reads the events of a chunk, or of a part of one.
#[derive(Debug)]
pub struct EventReader<'a> {
    input: Input<'a>,
    /// The last event's id.
    pub id: u8,
    /// Its time, not corrected.
    pub time: u64,
    /// Its fields in order: integers by their bits, lists by their items one after the other. Of an unknown
    /// record none.
    pub values: Vec<u64>,
    /// Its additional values.
    pub attributes: Vec<AttributeValue>,
    /// The bytes of an unknown record.
    pub payload: &'a [u8],
    /// Lists of attributes, up to here, that contradict the format: their events come without.
    pub unreadable_lists: u64,
    is_whole_chunk: bool,
}

impl<'a> EventReader<'a> {
    /// Reads a chunk with its header.
    ///
    /// # Errors
    /// If the header is none.
    pub fn of_chunk(chunk: &'a [u8]) -> Result<(Self, ChunkHeader)> {
        let header = ChunkHeader::decode(chunk)?;
        let mut reader = Self::of_part(chunk, header.endian, 0);
        reader.input.seek(CHUNK_HEADER_LEN);
        reader.is_whole_chunk = true;
        Ok((reader, header))
    }

    /// Reads a part of a chunk that starts at a record, at this time.
    pub const fn of_part(part: &'a [u8], endian: Endian, time: u64) -> Self {
        Self {
            input: Input::new(part, endian),
            id: 0,
            time,
            values: Vec::new(),
            attributes: Vec::new(),
            payload: &[],
            unreadable_lists: 0,
            is_whole_chunk: false,
        }
    }

    /// Returns where the next record is.
    pub const fn position(&self) -> usize {
        self.input.position()
    }

    /// Returns the last event's record; `None` for one that is unknown.
    pub fn record(&self) -> Option<&'static Record> {
        event_record(self.id)
    }

    /// Advances to the next event.
    ///
    /// # Errors
    /// If the next bytes are not a record, or the chunk ends within one. The rest of the chunk
    /// cannot be read.
    #[inline]
    pub fn next_item(&mut self) -> Result<Item> {
        self.attributes.clear();
        self.values.clear();
        loop {
            if self.input.remaining() == 0 && self.is_at_full_end() {
                return Ok(Item::EndOfChunk);
            }
            let id = self.input.u8("an event, or the end of the chunk")?;
            match id {
                TIMESTAMP => self.time = self.input.u64("a timestamp")?,
                ENTER | LEAVE => {
                    self.id = id;
                    let region = self.input.c32("region")?;
                    self.values.push(region.into());
                    return Ok(Item::Event);
                }
                END_OF_CHUNK => return Ok(Item::EndOfChunk),
                END_OF_FILE => return Ok(Item::EndOfFile),
                ATTRIBUTE_LIST => self.read_attributes()?,
                END_OF_BUFFER | 3 | 4 | 7..=9 => {
                    let at = self.input.position() - 1;
                    return Err(FormatError::invalid(at, "an event", id));
                }
                id => return self.read_event(id),
            }
        }
    }

    /// Returns whether the data may end here without an end-of-chunk record: a chunk may be full to
    /// its last byte, and a part ends where it was cut.
    fn is_at_full_end(&self) -> bool {
        !self.is_whole_chunk || self.input.position() >= super::anchor::LEAST_CHUNK as usize
    }

    fn read_event(&mut self, id: u8) -> Result<Item> {
        self.id = id;
        let record = event_record(id);
        if let Some(record) = record
            && record.frame == Frame::Single
        {
            let is_narrow = matches!(record.fields[0].what, FieldType::C32 | FieldType::Ref32(_));
            let value = if is_narrow {
                self.input.c32(record.fields[0].name)?.into()
            } else {
                self.input.c64(record.fields[0].name)?
            };
            self.values.push(value);
            return Ok(Item::Event);
        }
        let length = self.input.record_length()?;
        let start = self.input.position();
        self.payload = self.input.take(length, "the fields of an event")?;
        let Some(record) = record else {
            return Ok(Item::Event);
        };
        // Reads in place: a read beyond the record's end is detected by the position.
        let end = self.input;
        self.input.seek(start);
        let is_read = read_values(&mut self.input, record.fields, &mut self.values).is_ok();
        let is_within = self.input.position() <= start + length;
        self.input = end;
        if is_read && is_within {
            return Ok(Item::Event);
        }
        self.values.clear();
        Ok(Item::Unreadable)
    }

    fn read_attributes(&mut self) -> Result<()> {
        let length = self.input.record_length()?;
        let start = self.input.position();
        self.input.take(length, "a list of attributes")?;
        let end = self.input;
        self.input.seek(start);
        let known = self.attributes.len();
        if self.read_attribute_list(start + length).is_err() {
            self.attributes.truncate(known);
            self.unreadable_lists += 1;
        }
        self.input = end;
        Ok(())
    }

    fn read_attribute_list(&mut self, end: usize) -> Result<()> {
        let at = self.input.position();
        let count = self.input.c32("number of attributes")?;
        for _ in 0..count {
            let attribute = self.input.c32("an attribute")?;
            let type_code = self.input.u8("type of an attribute's value")?;
            let bits = self.input.value(type_code)?;
            if self.input.position() > end {
                let expected = "as many attributes as the list has room for";
                return Err(FormatError::invalid(at, expected, count));
            }
            self.attributes.push(AttributeValue {
                attribute,
                type_code,
                bits,
            });
        }
        Ok(())
    }
}

fn read_values(input: &mut Input<'_>, fields: &[Field], values: &mut Vec<u64>) -> Result<()> {
    for field in fields {
        let name = field.name;
        let value = match field.what {
            FieldType::C32 | FieldType::Ref32(_) | FieldType::Enum32(_) => input.c32(name)?.into(),
            FieldType::C64 | FieldType::Ref64(_) | FieldType::Ci64 => input.c64(name)?,
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => {
                input.u8(name)?.into()
            }
            FieldType::U64 | FieldType::F64 => input.u64(name)?,
            FieldType::List8(inner) => {
                let count = input.u8(name)?;
                for _ in 0..count {
                    read_values(input, inner, values)?;
                }
                continue;
            }
            FieldType::List32(inner) => {
                let count = input.c32(name)?;
                for _ in 0..count {
                    read_values(input, inner, values)?;
                }
                continue;
            }
            // No event has them.
            FieldType::Text | FieldType::Value | FieldType::IdMap => continue,
        };
        values.push(value);
    }
    Ok(())
}

/// Returns the index of a record's list among its fields, and how many values each item of the list has. `None` means
/// that the record has no list.
pub fn list_of(record: &Record) -> Option<(usize, usize)> {
    let place = record
        .fields
        .iter()
        .position(|field| matches!(field.what, FieldType::List8(_) | FieldType::List32(_)))?;
    match record.fields[place].what {
        FieldType::List8(inner) | FieldType::List32(inner) => Some((place, inner.len())),
        _ => None,
    }
}
