//! Events: read from a chunk one after the other, and written.

use super::container::{CHUNK_HEADER_LEN, ChunkHeader, END_OF_BUFFER, END_OF_CHUNK, END_OF_FILE};
use super::describe::{Field, Frame, Record, What};
use super::records::EVENTS;
use super::wire::{Endian, Input, Output};
use crate::error::{FormatError, Result};

const TIMESTAMP: u8 = 5;
const ATTRIBUTE_LIST: u8 = 6;
const ENTER: u8 = 12;
const LEAVE: u8 = 13;

/// An event's additional value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeValue {
    /// Which attribute.
    pub attribute: u32,
    /// Type of the value.
    pub type_code: u8,
    /// Its bits, as [`Input::value`] gives them.
    pub bits: u64,
}

/// What stands next in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// An event: [`EventReader::record`], [`EventReader::values`] and so on tell which.
    Event,
    /// An event whose fields contradict the format; its length tells where the next one is.
    Unreadable,
    /// The chunk ends here; the file goes on with the next.
    EndOfChunk,
    /// Nothing follows in the file.
    EndOfFile,
}

/// The record of an event by its id.
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

    /// Where the next record is.
    pub const fn position(&self) -> usize {
        self.input.position()
    }

    /// The last event's record; none for one that is unknown.
    pub fn record(&self) -> Option<&'static Record> {
        event_record(self.id)
    }

    /// Goes to the next event.
    ///
    /// # Errors
    /// If the chunk goes on with what is no record, or ends within one. Nothing behind can be read.
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

    /// A chunk may be full to its last byte; a part ends where it was cut.
    fn is_at_full_end(&self) -> bool {
        !self.is_whole_chunk || self.input.position() >= super::anchor::LEAST_CHUNK as usize
    }

    fn read_event(&mut self, id: u8) -> Result<Item> {
        self.id = id;
        let record = event_record(id);
        if let Some(record) = record
            && record.frame == Frame::Single
        {
            let is_narrow = matches!(record.fields[0].what, What::C32 | What::Ref32(_));
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
        // In place: what lies behind the record's end is not its own, and shows by the position.
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
            What::C32 | What::Ref32(_) | What::Enum32(_) => input.c32(name)?.into(),
            What::C64 | What::Ref64(_) | What::Ci64 => input.c64(name)?,
            What::U8 | What::Enum8(_) | What::Ref8(_) | What::Type => input.u8(name)?.into(),
            What::U64 | What::F64 => input.u64(name)?,
            What::List8(inner) => {
                let count = input.u8(name)?;
                for _ in 0..count {
                    read_values(input, inner, values)?;
                }
                continue;
            }
            What::List32(inner) => {
                let count = input.c32(name)?;
                for _ in 0..count {
                    read_values(input, inner, values)?;
                }
                continue;
            }
            // No event has them.
            What::Text | What::Value | What::IdMap => continue,
        };
        values.push(value);
    }
    Ok(())
}

/// How many values an item of a record's list has, and before which value the list starts.
pub fn list_of(record: &Record) -> Option<(usize, usize)> {
    let place = record
        .fields
        .iter()
        .position(|field| matches!(field.what, What::List8(_) | What::List32(_)))?;
    match record.fields[place].what {
        What::List8(inner) | What::List32(inner) => Some((place, inner.len())),
        _ => None,
    }
}

/// An event to be written.
#[derive(Clone, Copy, Debug)]
pub struct EventToWrite<'a> {
    /// Its id.
    pub id: u8,
    /// Its time.
    pub time: u64,
    /// Its fields, as [`EventReader::values`] has them.
    pub values: &'a [u64],
    /// Its additional values.
    pub attributes: &'a [AttributeValue],
    /// Of a record that is not known, its bytes.
    pub payload: &'a [u8],
}

/// Writes the events of a location. Bytes are handed out as they come; of a chunk that was begun, the header
/// is completed later.
#[derive(Debug)]
pub struct EventWriter {
    chunk_size: usize,
    /// Where the current chunk starts in the file.
    chunk_start: u64,
    /// Bytes of it.
    used: usize,
    first: u64,
    count: u64,
    time: Option<u64>,
    last_time: u64,
    /// Bytes to be appended to the file.
    pub out: Vec<u8>,
    /// Where in the file eight bytes have to be replaced by this number.
    pub patches: Vec<(u64, u64)>,
    scratch: Vec<u8>,
    /// Most bytes of an event by its id; 0: it has a list, or is not known.
    bounds: [u8; 256],
}

/// Bytes that a short event is made of: enough for the longest of those that have no list.
struct Short {
    bytes: [u8; 64],
    at: usize,
}

impl Short {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn put_compressed(&mut self, value: u64) {
        let length = 8 - value.leading_zeros() as usize / 8;
        let place = &mut self.bytes[self.at..self.at + 9];
        place[0] = length as u8;
        place[1..].copy_from_slice(&value.to_le_bytes());
        self.at += 1 + length;
    }

    #[inline]
    fn put_values(&mut self, fields: &[Field], values: &[u64]) {
        for (index, field) in fields.iter().enumerate() {
            let value = values.get(index).copied().unwrap_or(0);
            match field.what {
                What::C32 | What::Ref32(_) | What::Enum32(_) => match value as u32 {
                    u32::MAX => self.push(0xff),
                    value => self.put_compressed(value.into()),
                },
                What::C64 | What::Ref64(_) => match value {
                    u64::MAX => self.push(0xff),
                    value => self.put_compressed(value),
                },
                What::Ci64 => self.put_compressed(value),
                What::U64 | What::F64 => {
                    self.bytes[self.at..self.at + 8].copy_from_slice(&value.to_le_bytes());
                    self.at += 8;
                }
                _ => self.push(value as u8),
            }
        }
    }
}

/// Most bytes of each event that has no list.
fn bounds() -> [u8; 256] {
    let mut bounds = [0; 256];
    for record in EVENTS.iter().filter(|record| list_of(record).is_none()) {
        let frame = match record.frame {
            Frame::Single => 1,
            Frame::Length => 2,
        };
        let most = frame + most_bytes(record.fields, record.fields.len());
        bounds[usize::from(record.id)] = most as u8;
    }
    bounds
}

impl EventWriter {
    /// For chunks of this size.
    pub fn new(chunk_size: u64) -> Self {
        Self {
            chunk_size: chunk_size as usize,
            chunk_start: 0,
            used: 0,
            first: 1,
            count: 0,
            time: None,
            last_time: 0,
            out: Vec::new(),
            patches: Vec::new(),
            scratch: Vec::new(),
            bounds: bounds(),
        }
    }

    /// Events written.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Time of the last.
    pub const fn last_time(&self) -> u64 {
        self.last_time
    }

    fn start_chunk(&mut self) {
        self.first = self.count + 1;
        ChunkHeader {
            endian: Endian::Little,
            first: self.first,
            last: self.count,
        }
        .encode(&mut self.out);
        self.used = CHUNK_HEADER_LEN;
        self.time = None;
    }

    fn close_chunk(&mut self) {
        if self.count >= self.first {
            self.patches.push((self.chunk_start + 10, self.count));
        }
    }

    /// Appends an event.
    ///
    /// # Errors
    /// If it is larger than a chunk.
    #[inline]
    pub fn write(&mut self, event: EventToWrite<'_>) -> Result<()> {
        if let (ENTER | LEAVE, [], [region, ..]) = (event.id, event.attributes, event.values) {
            let mut short = [0; 10];
            short[0] = event.id;
            short[1..9].copy_from_slice(&u64::from(*region as u32).to_le_bytes());
            // The size comes between; as many bytes as the region takes.
            let length = 4 - (*region as u32).leading_zeros() as usize / 8;
            short.copy_within(1..5, 2);
            short[1] = length as u8;
            let is_undefined = *region as u32 == u32::MAX;
            let end = if is_undefined { 2 } else { 2 + length };
            if is_undefined {
                short[1] = 0xff;
            }
            self.append(event.time, 6, &short[..end]);
            return Ok(());
        }
        let at_most = self.bounds[usize::from(event.id)];
        match event_record(event.id) {
            Some(record) if at_most != 0 && event.attributes.is_empty() => {
                let mut short = Short {
                    bytes: [0; 64],
                    at: 0,
                };
                short.push(event.id);
                if record.frame == Frame::Length {
                    short.push(0);
                    short.put_values(record.fields, event.values);
                    short.bytes[1] = short.at as u8 - 2;
                } else {
                    short.put_values(record.fields, event.values);
                }
                self.append(event.time, at_most.into(), &short.bytes[..short.at]);
                Ok(())
            }
            _ => self.write_long(event),
        }
    }

    fn write_long(&mut self, event: EventToWrite<'_>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let at_most =
            put_attributes(event.attributes, &mut scratch) + put_event(&event, &mut scratch);
        let at_most = at_most.max(scratch.len());
        let fits = 9 + at_most + 2 + CHUNK_HEADER_LEN <= self.chunk_size;
        let length = scratch.len();
        if fits {
            self.append(event.time, at_most, &scratch);
        }
        self.scratch = scratch;
        if fits {
            return Ok(());
        }
        let expected = "an event that fits a chunk";
        Err(FormatError::invalid(0, expected, length))
    }

    /// Appends an event that takes so many bytes at most.
    #[inline]
    fn append(&mut self, time: u64, at_most: usize, bytes: &[u8]) {
        // As the reference decides, so that files are the same, but for this: two bytes must be left for
        // the file's end, behind which it writes when one is left.
        let free = self.chunk_size - self.used;
        let has_room = 9 + at_most < free && 9 + bytes.len() + 2 <= free;
        if self.used == 0 {
            self.start_chunk();
        } else if !has_room {
            self.out.resize(self.out.len() + free, 0);
            self.close_chunk();
            self.chunk_start += self.chunk_size as u64;
            self.start_chunk();
        }
        if self.time != Some(time) || time == 0 {
            let mut stamp = [TIMESTAMP; 9];
            stamp[1..].copy_from_slice(&time.to_le_bytes());
            self.out.extend_from_slice(&stamp);
            self.time = Some(time);
            self.used += 9;
        }
        self.out.extend_from_slice(bytes);
        self.used += bytes.len();
        self.count += 1;
        self.last_time = time;
    }

    /// Appends the file's end.
    pub fn finish(&mut self) {
        if self.used == 0 {
            self.start_chunk();
        }
        self.close_chunk();
        self.out.extend_from_slice(&[END_OF_FILE, END_OF_BUFFER]);
    }
}

/// Appends a list of attributes; gives how many bytes it takes at most.
fn put_attributes(attributes: &[AttributeValue], out: &mut Vec<u8>) -> usize {
    if attributes.is_empty() {
        return 0;
    }
    let at_most = 5 + 15 * attributes.len();
    let mut list = Vec::with_capacity(at_most);
    list.put_c32(attributes.len() as u32);
    for value in attributes {
        list.put_c32(value.attribute);
        list.push(value.type_code);
        list.put_value(value.type_code, value.bits);
    }
    out.push(ATTRIBUTE_LIST);
    out.put_record_length(list.len(), at_most);
    out.extend_from_slice(&list);
    at_most + if at_most < 255 { 2 } else { 10 }
}

/// Most bytes that the fields of an event take.
fn most_bytes(fields: &[Field], values: usize) -> usize {
    let of_fields = fields.iter().map(|field| match field.what {
        What::U8 | What::Enum8(_) | What::Ref8(_) | What::Type => 1,
        What::C32 | What::Ref32(_) | What::Enum32(_) => 5,
        What::C64 | What::Ref64(_) | What::Ci64 => 9,
        What::U64 | What::F64 => 8,
        What::List8(inner) => {
            1 + (values + 1 - fields.len()) / inner.len() * most_bytes(inner, inner.len())
        }
        What::List32(inner) => {
            5 + (values + 1 - fields.len()) / inner.len() * most_bytes(inner, inner.len())
        }
        What::Text | What::Value | What::IdMap => 0,
    });
    of_fields.sum()
}

fn put_values(fields: &[Field], values: &[u64], out: &mut Vec<u8>) {
    for (index, field) in fields.iter().enumerate() {
        let value = values.get(index).copied().unwrap_or(0);
        match field.what {
            What::U8 | What::Enum8(_) | What::Ref8(_) | What::Type => out.push(value as u8),
            What::C32 | What::Ref32(_) | What::Enum32(_) => out.put_c32(value as u32),
            What::C64 | What::Ref64(_) => out.put_c64(value),
            What::Ci64 => out.put_ci64(value as i64),
            What::U64 | What::F64 => out.put_u64(value),
            What::List8(inner) | What::List32(inner) => {
                // Lists end their records.
                let items = values.get(index..).unwrap_or(&[]).chunks_exact(inner.len());
                match field.what {
                    What::List8(_) => out.push(items.len().min(255) as u8),
                    _ => out.put_c32(items.len() as u32),
                }
                let most = if matches!(field.what, What::List8(_)) {
                    255
                } else {
                    usize::MAX
                };
                for item in items.take(most) {
                    put_values(inner, item, out);
                }
            }
            What::Text | What::Value | What::IdMap => {}
        }
    }
}

/// Appends an event; gives how many bytes it takes at most.
fn put_event(event: &EventToWrite<'_>, out: &mut Vec<u8>) -> usize {
    out.push(event.id);
    let Some(record) = event_record(event.id) else {
        out.put_record_length(event.payload.len(), event.payload.len());
        out.extend_from_slice(event.payload);
        return event.payload.len() + 10;
    };
    if record.frame == Frame::Single {
        put_values(record.fields, event.values, out);
        return 1 + most_bytes(record.fields, 1);
    }
    let at_most = most_bytes(
        record.fields,
        event
            .values
            .len()
            .max(record.fields.len() - usize::from(list_of(record).is_some())),
    );
    if at_most < 255 {
        let place = out.len();
        out.push(0);
        put_values(record.fields, event.values, out);
        out[place] = (out.len() - place - 1) as u8;
        return at_most + 2;
    }
    let mut payload = Vec::with_capacity(at_most);
    put_values(record.fields, event.values, &mut payload);
    out.put_record_length(payload.len(), at_most);
    out.extend_from_slice(&payload);
    at_most + 10
}
