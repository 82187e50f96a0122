//! Events, written into the chunks of a location's file.

use super::container::{CHUNK_HEADER_LEN, ChunkHeader, END_OF_BUFFER, END_OF_FILE};
use super::describe::{Field, FieldType, Frame, Record};
use super::events::{ATTRIBUTE_LIST, AttributeValue, TIMESTAMP, event_record, list_of};
use super::records::EVENTS;
use super::wire::{Endian, Output};
use crate::error::{FormatError, Result};

/// Bytes of a timestamp record.
const TIMESTAMP_LEN: usize = 9;
/// Bytes left in a chunk for the file's end.
const END_LEN: usize = 2;
/// Free bytes that a write of a short event and its timestamp needs. This is more than their size, because an integer
/// is stored in full width first: a write may touch this number of bytes after the end of the written data.
const ROOM: usize = 128;
/// Room that a writer starts with.
const FIRST_ROOM: usize = 4096;

/// An event to be written.
#[derive(Clone, Copy, Debug)]
pub struct EventToWrite<'a> {
    /// Its id.
    pub id: u8,
    /// Its time.
    pub time: u64,
    /// Its fields, as [`EventReader::values`](super::EventReader::values) has them.
    pub values: &'a [u64],
    /// Its additional values.
    pub attributes: &'a [AttributeValue],
    /// Of a record that is not known, its bytes.
    pub payload: &'a [u8],
}

/// How a field is written.
#[derive(Clone, Copy)]
enum Code {
    Byte,
    Narrow,
    Wide,
    Signed,
    Fixed,
}

/// A record without a list, in the form that the writer iterates over.
#[derive(Clone, Copy)]
struct RecordShape {
    /// Most bytes that it takes; 0: it has a list, or is not known.
    at_most: u8,
    is_single: bool,
    count: u8,
    codes: [Code; 12],
}

const fn shape_of(record: &Record) -> RecordShape {
    let is_single = matches!(record.frame, Frame::Single);
    let mut shape = RecordShape {
        at_most: 0,
        is_single,
        count: record.fields.len() as u8,
        codes: [Code::Byte; 12],
    };
    let mut at_most = if is_single { 1 } else { 2 };
    let mut index = 0;
    while index < record.fields.len() {
        let (code, most) = match record.fields[index].what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => {
                (Code::Byte, 1)
            }
            FieldType::C32 | FieldType::Ref32(_) | FieldType::Enum32(_) => (Code::Narrow, 5),
            FieldType::C64 | FieldType::Ref64(_) => (Code::Wide, 9),
            FieldType::Ci64 => (Code::Signed, 9),
            FieldType::U64 | FieldType::F64 => (Code::Fixed, 8),
            FieldType::List8(_)
            | FieldType::List32(_)
            | FieldType::Text
            | FieldType::Value
            | FieldType::IdMap => {
                return shape;
            }
        };
        shape.codes[index] = code;
        at_most += most;
        index += 1;
    }
    assert!(
        TIMESTAMP_LEN + at_most as usize + 8 <= ROOM,
        "a short event fits its room"
    );
    shape.at_most = at_most;
    shape
}

/// By the id of the record.
static SHAPES: [RecordShape; 256] = {
    let mut shapes = [RecordShape {
        at_most: 0,
        is_single: false,
        count: 0,
        codes: [Code::Byte; 12],
    }; 256];
    let mut index = 0;
    while index < EVENTS.len() {
        shapes[EVENTS[index].id as usize] = shape_of(&EVENTS[index]);
        index += 1;
    }
    shapes
};

/// Writes into room that is there. What does not fit is an error of the caller: it knows how much it takes at most.
struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Output for Cursor<'_> {
    #[inline]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn put_slice(&mut self, slice: &[u8]) {
        self.bytes[self.at..self.at + slice.len()].copy_from_slice(slice);
        self.at += slice.len();
    }

    #[inline]
    fn put_compressed(&mut self, value: u64) {
        let length = 8 - value.leading_zeros() as usize / 8;
        let place = &mut self.bytes[self.at..self.at + 9];
        place[0] = length as u8;
        place[1..].copy_from_slice(&value.to_le_bytes());
        self.at += 1 + length;
    }
}

impl Cursor<'_> {
    /// Writes what `put` puts, with its length before it: in the long form when what it takes at most does not fit
    /// the short.
    #[inline]
    fn put_framed(&mut self, at_most: usize, put: impl FnOnce(&mut Self)) {
        let place = self.at;
        if at_most < 255 {
            self.put_byte(0);
            put(self);
            self.bytes[place] = (self.at - place - 1) as u8;
        } else {
            self.put_byte(0xff);
            self.put_u64(0);
            put(self);
            let length = (self.at - place - 9) as u64;
            self.bytes[place + 1..place + 9].copy_from_slice(&length.to_le_bytes());
        }
    }

    fn put_shaped(&mut self, shape: &RecordShape, values: &[u64]) {
        for (index, code) in shape.codes[..usize::from(shape.count)].iter().enumerate() {
            let value = values.get(index).copied().unwrap_or(0);
            match code {
                Code::Byte => self.put_byte(value as u8),
                Code::Narrow => self.put_c32(value as u32),
                Code::Wide => self.put_c64(value),
                Code::Signed => self.put_ci64(value as i64),
                Code::Fixed => self.put_u64(value),
            }
        }
    }

    fn put_attributes(&mut self, attributes: &[AttributeValue]) {
        self.put_byte(ATTRIBUTE_LIST);
        self.put_framed(most_of_attributes(attributes.len()), |out| {
            out.put_c32(attributes.len() as u32);
            for value in attributes {
                out.put_c32(value.attribute);
                out.put_byte(value.type_code);
                out.put_value(value.type_code, value.bits);
            }
        });
    }

    fn put_event(&mut self, event: &EventToWrite<'_>) {
        self.put_byte(event.id);
        let shape = &SHAPES[usize::from(event.id)];
        if shape.at_most == 0 {
            self.put_long(event);
        } else if shape.is_single {
            self.put_shaped(shape, event.values);
        } else {
            self.put_framed(0, |out| out.put_shaped(shape, event.values));
        }
    }

    fn put_long(&mut self, event: &EventToWrite<'_>) {
        match event_record(event.id) {
            Some(record) => {
                self.put_framed(most_of_list(record, event.values.len()), |out| {
                    put_values(record.fields, event.values, out);
                });
            }
            None => self.put_framed(event.payload.len(), |out| out.put_slice(event.payload)),
        }
    }
}

/// Writes a compressed integer at a position; returns the position after it.
#[inline(always)]
fn put_integer(place: &mut [u8; ROOM], at: usize, value: u64, is_undefined: bool) -> usize {
    let length = 8 - value.leading_zeros() as usize / 8;
    place[at] = if is_undefined { 0xff } else { length as u8 };
    place[at + 1..at + 9].copy_from_slice(&value.to_le_bytes());
    at + 1 + if is_undefined { 0 } else { length }
}

/// Writes a field at a position; returns the position after it.
#[inline(always)]
fn put_field(place: &mut [u8; ROOM], at: usize, code: Code, value: u64) -> usize {
    match code {
        Code::Narrow => {
            let value = value as u32;
            put_integer(place, at, value.into(), value == u32::MAX)
        }
        Code::Wide => put_integer(place, at, value, value == u64::MAX),
        Code::Signed => put_integer(place, at, value, false),
        Code::Byte => {
            place[at] = value as u8;
            at + 1
        }
        Code::Fixed => {
            place[at..at + 8].copy_from_slice(&value.to_le_bytes());
            at + 8
        }
    }
}

/// Returns the maximum size of a list of attributes, without id and length.
const fn most_of_attributes(count: usize) -> usize {
    5 + 15 * count
}

/// Returns the maximum size of id, length and `at_most` bytes.
const fn framed(at_most: usize) -> usize {
    at_most + if at_most < 255 { 2 } else { 10 }
}

/// Returns the maximum size of the fields of a record with a list.
fn most_of_list(record: &Record, values: usize) -> usize {
    let least = record.fields.len() - usize::from(list_of(record).is_some());
    most_bytes(record.fields, values.max(least))
}

/// Returns the maximum size of an event's fields.
fn most_bytes(fields: &[Field], values: usize) -> usize {
    let of_list = |inner: &[Field]| {
        (values + 1 - fields.len()) / inner.len() * most_bytes(inner, inner.len())
    };
    let of_fields = fields.iter().map(|field| match field.what {
        FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => 1,
        FieldType::C32 | FieldType::Ref32(_) | FieldType::Enum32(_) => 5,
        FieldType::C64 | FieldType::Ref64(_) | FieldType::Ci64 => 9,
        FieldType::U64 | FieldType::F64 => 8,
        FieldType::List8(inner) => 1 + of_list(inner),
        FieldType::List32(inner) => 5 + of_list(inner),
        FieldType::Text | FieldType::Value | FieldType::IdMap => 0,
    });
    of_fields.sum()
}

fn put_values(fields: &[Field], values: &[u64], out: &mut Cursor<'_>) {
    for (index, field) in fields.iter().enumerate() {
        let value = values.get(index).copied().unwrap_or(0);
        match field.what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => {
                out.put_byte(value as u8)
            }
            FieldType::C32 | FieldType::Ref32(_) | FieldType::Enum32(_) => {
                out.put_c32(value as u32)
            }
            FieldType::C64 | FieldType::Ref64(_) => out.put_c64(value),
            FieldType::Ci64 => out.put_ci64(value as i64),
            FieldType::U64 | FieldType::F64 => out.put_u64(value),
            FieldType::List8(inner) | FieldType::List32(inner) => {
                // Lists end their records.
                let items = values.get(index..).unwrap_or(&[]).chunks_exact(inner.len());
                let is_short = matches!(field.what, FieldType::List8(_));
                let count = if is_short {
                    items.len().min(255)
                } else {
                    items.len()
                };
                match is_short {
                    true => out.put_byte(count as u8),
                    false => out.put_c32(count as u32),
                }
                for item in items.take(count) {
                    put_values(inner, item, out);
                }
            }
            FieldType::Text | FieldType::Value | FieldType::IdMap => {}
        }
    }
}

/// Writes the events of a location. Bytes are handed out as they come; of a chunk that was begun, the header
/// is completed later.
#[derive(Debug)]
pub struct EventWriter {
    chunk_size: usize,
    /// Where the current chunk starts in the file.
    chunk_start: u64,
    has_chunk: bool,
    first: u64,
    count: u64,
    /// The time of the last timestamp; 0 means that this chunk has none yet.
    stamp: u64,
    last_time: u64,
    /// Data to append to the file, up to `at`; the rest is free.
    buffer: Vec<u8>,
    at: usize,
    /// Where the current chunk ends, counted as `at` is.
    chunk_end: usize,
    /// Up to where an event may take bytes: of the room and of the chunk.
    limit: usize,
    /// Where in the file eight bytes have to be replaced by this number.
    pub patches: Vec<(u64, u64)>,
}

impl EventWriter {
    /// Creates a writer of chunks of this size.
    pub const fn new(chunk_size: u64) -> Self {
        Self {
            chunk_size: chunk_size as usize,
            chunk_start: 0,
            has_chunk: false,
            first: 1,
            count: 0,
            stamp: 0,
            last_time: 0,
            buffer: Vec::new(),
            at: 0,
            chunk_end: 0,
            limit: 0,
            patches: Vec::new(),
        }
    }

    /// Returns the number of events written.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time of the last event.
    pub const fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Returns how many bytes are to be appended to the file.
    #[inline]
    pub const fn pending(&self) -> usize {
        self.at
    }

    /// Returns the bytes to be appended to the file.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.at]
    }

    /// Removes the bytes from the buffer after they were appended; its memory stays allocated.
    pub fn clear(&mut self) {
        self.chunk_end -= self.at;
        self.at = 0;
        self.set_limit();
    }

    /// Removes the bytes from the buffer and frees its memory.
    pub fn release(&mut self) {
        self.buffer = Vec::new();
        self.clear();
    }

    fn set_limit(&mut self) {
        self.limit = self.chunk_end.min(self.buffer.len().saturating_sub(ROOM));
    }

    /// Makes room for the given number of bytes.
    fn reserve(&mut self, bytes: usize) {
        let needed = self.at + bytes + ROOM;
        if self.buffer.len() < needed {
            let length = needed.max(2 * self.buffer.len()).max(FIRST_ROOM);
            self.buffer.resize(length, 0);
        }
        self.set_limit();
    }

    fn append(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn start_chunk(&mut self) {
        self.has_chunk = true;
        self.first = self.count + 1;
        self.chunk_end = self.at + self.chunk_size;
        let header = ChunkHeader {
            endian: Endian::Little,
            first: self.first,
            last: self.count,
        };
        let mut bytes = Vec::with_capacity(CHUNK_HEADER_LEN);
        header.encode(&mut bytes);
        self.append(&bytes);
        self.stamp = 0;
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
        let shape = &SHAPES[usize::from(event.id)];
        let at_most = usize::from(shape.at_most);
        let is_short = at_most != 0 && event.attributes.is_empty();
        if !is_short || self.at + TIMESTAMP_LEN + at_most + END_LEN > self.limit {
            return self.write_any(&event);
        }
        let Some(place) = self.buffer[self.at..].first_chunk_mut() else {
            return self.write_any(&event);
        };
        let mut at = 0;
        if event.time != self.stamp || event.time == 0 {
            place[0] = TIMESTAMP;
            place[1..TIMESTAMP_LEN].copy_from_slice(&event.time.to_le_bytes());
            at = TIMESTAMP_LEN;
            self.stamp = event.time;
        }
        place[at] = event.id;
        let value = |index: usize| event.values.get(index).copied().unwrap_or(0);
        if shape.is_single {
            at = put_field(place, at + 1, shape.codes[0], value(0));
        } else {
            let length_at = at + 1;
            at += 2;
            for (index, code) in shape.codes[..usize::from(shape.count)].iter().enumerate() {
                at = put_field(place, at, *code, value(index));
            }
            place[length_at] = (at - length_at - 1) as u8;
        }
        self.at += at;
        self.count += 1;
        self.last_time = event.time;
        Ok(())
    }

    /// Appends an event of any length, in the next chunk if it must.
    fn write_any(&mut self, event: &EventToWrite<'_>) -> Result<()> {
        let at_most = most_of(event);
        if self.at + TIMESTAMP_LEN + at_most + END_LEN > self.limit {
            self.make_room(event, at_most)?;
        }
        let mut out = Cursor {
            bytes: &mut self.buffer[self.at..],
            at: 0,
        };
        if event.time != self.stamp || event.time == 0 {
            out.put_byte(TIMESTAMP);
            out.put_u64(event.time);
            self.stamp = event.time;
        }
        if !event.attributes.is_empty() {
            out.put_attributes(event.attributes);
        }
        out.put_event(event);
        self.at += out.at;
        self.count += 1;
        self.last_time = event.time;
        Ok(())
    }

    /// Makes room for an event of at most `at_most` bytes, in the next chunk if necessary.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, event: &EventToWrite<'_>, at_most: usize) -> Result<()> {
        let needed = TIMESTAMP_LEN + at_most + END_LEN;
        if CHUNK_HEADER_LEN + needed > self.chunk_size {
            let expected = "an event that fits a chunk";
            return Err(FormatError::invalid(0, expected, at_most));
        }
        // Decides as the reference library does, so that files are identical, with one exception: two bytes must be
        // left for the file's end. The reference writes past the end when only one is left.
        let free = self.chunk_end - self.at;
        let has_room = free >= needed || free + 1 == needed && length_of(event, at_most) < at_most;
        if !self.has_chunk {
            self.start_chunk();
        } else if !has_room {
            self.reserve(free);
            self.buffer[self.at..self.at + free].fill(0);
            self.at += free;
            self.close_chunk();
            self.chunk_start += self.chunk_size as u64;
            self.start_chunk();
        }
        self.reserve(needed);
        Ok(())
    }

    /// Appends the file's end.
    pub fn finish(&mut self) {
        if !self.has_chunk {
            self.start_chunk();
        }
        self.close_chunk();
        self.append(&[END_OF_FILE, END_OF_BUFFER]);
    }
}

/// Returns the maximum size of an event and its additional values.
fn most_of(event: &EventToWrite<'_>) -> usize {
    let most = usize::from(SHAPES[usize::from(event.id)].at_most);
    let most = match (most, event_record(event.id)) {
        (0, Some(record)) => framed(most_of_list(record, event.values.len())),
        (0, None) => event.payload.len() + 10,
        (most, _) => most,
    };
    match event.attributes.len() {
        0 => most,
        count => most + framed(most_of_attributes(count)),
    }
}

/// Returns the size in bytes of an event of at most `at_most` bytes.
fn length_of(event: &EventToWrite<'_>, at_most: usize) -> usize {
    let mut bytes = vec![0; at_most + ROOM];
    let mut out = Cursor {
        bytes: &mut bytes,
        at: 0,
    };
    if !event.attributes.is_empty() {
        out.put_attributes(event.attributes);
    }
    out.put_event(event);
    out.at
}
