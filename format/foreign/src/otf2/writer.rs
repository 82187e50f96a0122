//! Writes events into the chunks of a location's file.

use super::container::{CHUNK_HEADER_LEN, ChunkHeader, END_OF_BUFFER, END_OF_FILE};
use super::describe::{Field, FieldType, Frame, Record};
use super::events::{ATTRIBUTE_LIST, AttributeValue, TIMESTAMP, event_record, list_of};
use super::records::EVENTS;
use super::wire::{Endian, Output};
use annals_format::{FormatError, Result};

/// Bytes of a timestamp record.
const TIMESTAMP_LEN: usize = 9;
/// Bytes left in a chunk for the file's end.
const END_LEN: usize = 2;
/// Number of free bytes that the fast path needs in the buffer for a timestamp and an event with a shape. They take
/// fewer, but the fast path stores each integer in full width first, and so touches up to 8 bytes after the event.
const ROOM: usize = 128;
/// Length of the buffer that a writer starts with.
const FIRST_ROOM: usize = 1024;

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

/// The encoding of a field.
#[derive(Clone, Copy)]
enum Code {
    Byte,
    /// A compressed integer of at most 32 bits; all 32 set means undefined.
    Compressed32,
    /// A compressed integer of at most 64 bits; all set means undefined.
    Compressed64,
    /// A compressed signed integer, without an undefined value.
    Signed,
    /// Eight bytes.
    Fixed,
}

/// The encoding of an event record without a list: a fixed number of fields, each with its [`Code`].
#[derive(Clone, Copy)]
struct RecordShape {
    /// Maximum size of id, length and fields in bytes. 0 means that there is no shape: the record has a list, or is not
    /// known.
    max_len: u8,
    /// Whether the frame is [`Frame::Single`].
    is_single: bool,
    /// Number of fields.
    count: u8,
    /// The encoding of each field; those from `count` on are not used.
    codes: [Code; 12],
}

/// Returns the shape of a record; its `max_len` is 0 if the record has a list.
const fn shape_of(record: &Record) -> RecordShape {
    let is_single = matches!(record.frame, Frame::Single);
    let mut shape = RecordShape {
        max_len: 0,
        is_single,
        count: record.fields.len() as u8,
        codes: [Code::Byte; 12],
    };
    let mut max_len = if is_single { 1 } else { 2 };
    let mut index = 0;
    while index < record.fields.len() {
        let (code, most) = match record.fields[index].what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => {
                (Code::Byte, 1)
            }
            FieldType::C32 | FieldType::Ref32(_) | FieldType::Enum32(_) => (Code::Compressed32, 5),
            FieldType::C64 | FieldType::Ref64(_) => (Code::Compressed64, 9),
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
        max_len += most;
        index += 1;
    }
    assert!(
        TIMESTAMP_LEN + max_len as usize + 8 <= ROOM,
        "a short event fits its room"
    );
    shape.max_len = max_len;
    shape
}

/// The shapes of event records, by id.
static SHAPES: [RecordShape; 256] = {
    let mut shapes = [RecordShape {
        max_len: 0,
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

/// Writes into existing memory. The caller provides enough for the maximum size; a write past the end panics.
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
    /// Writes what `put` writes, with its length before it. `max_len` is the maximum of this length: below 255, the
    /// length takes one byte, else the long form with nine bytes.
    #[inline]
    fn put_framed(&mut self, max_len: usize, put: impl FnOnce(&mut Self)) {
        let place = self.at;
        if max_len < 255 {
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
                Code::Compressed32 => self.put_c32(value as u32),
                Code::Compressed64 => self.put_c64(value),
                Code::Signed => self.put_ci64(value as i64),
                Code::Fixed => self.put_u64(value),
            }
        }
    }

    fn put_attributes(&mut self, attributes: &[AttributeValue]) {
        self.put_byte(ATTRIBUTE_LIST);
        self.put_framed(max_attributes_len(attributes.len()), |out| {
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
        if shape.max_len == 0 {
            self.put_unshaped(event);
        } else if shape.is_single {
            self.put_shaped(shape, event.values);
        } else {
            // A record with a shape is short.
            self.put_framed(0, |out| out.put_shaped(shape, event.values));
        }
    }

    fn put_unshaped(&mut self, event: &EventToWrite<'_>) {
        match event_record(event.id) {
            Some(record) => {
                self.put_framed(max_list_record_len(record, event.values.len()), |out| {
                    put_values(record.fields, event.values, out);
                });
            }
            None => self.put_framed(event.payload.len(), |out| out.put_slice(event.payload)),
        }
    }
}

/// Writes a compressed integer at a position: the number of its bytes, then the bytes. An undefined integer is the
/// single byte 0xff. Returns the position after it. Always touches 9 bytes.
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
        Code::Compressed32 => {
            let value = value as u32;
            put_integer(place, at, value.into(), value == u32::MAX)
        }
        Code::Compressed64 => put_integer(place, at, value, value == u64::MAX),
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
const fn max_attributes_len(count: usize) -> usize {
    5 + 15 * count
}

/// Returns the maximum size of a record whose fields take at most `max_len` bytes: with its id and length.
const fn max_framed_len(max_len: usize) -> usize {
    max_len + if max_len < 255 { 2 } else { 10 }
}

/// Returns the maximum size of the fields of a record with a list. `values` is the number of values of the event.
fn max_list_record_len(record: &Record, values: usize) -> usize {
    let least = record.fields.len() - usize::from(list_of(record).is_some());
    max_fields_len(record.fields, values.max(least))
}

/// Returns the maximum size of fields that have the given number of values together.
fn max_fields_len(fields: &[Field], values: usize) -> usize {
    // All fields but the list take one value each; the list has the rest.
    let of_list = |inner: &[Field]| {
        (values + 1 - fields.len()) / inner.len() * max_fields_len(inner, inner.len())
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

/// Writes fields. A value that is missing is written as 0.
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

/// Writes the events of a location as the chunks of its file. The caller appends [`EventWriter::bytes`] to the file at
/// any time, also in the middle of a chunk; so the header of a chunk is completed later, by [`EventWriter::patches`].
#[derive(Debug)]
pub struct EventWriter {
    /// Size of each chunk in bytes.
    chunk_size: usize,
    /// Offset of the current chunk in the file.
    chunk_start: u64,
    /// Whether a chunk was begun.
    has_chunk: bool,
    /// Number of the current chunk's first event in the file, from 1.
    first: u64,
    /// Number of events written.
    count: u64,
    /// The time of the last timestamp; 0 means that this chunk has none yet.
    stamp: u64,
    /// The time of the last event.
    last_time: u64,
    /// Data to append to the file, up to `at`; the rest is free.
    buffer: Vec<u8>,
    /// Position in the buffer at which the next event is written.
    at: usize,
    /// Position at which the current chunk ends, counted from the start of the buffer; it may be beyond the buffer.
    chunk_end: usize,
    /// Position before which the fast path must end an event: the end of the chunk, or [`ROOM`] bytes before the end of
    /// the buffer if that is earlier.
    limit: usize,
    /// Changes that the caller has to make in the file after it has appended the bytes: (offset, number), where eight
    /// bytes, little-endian, are replaced by the number. They complete the headers of chunks.
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

    /// Returns how many bytes of memory its buffer takes.
    #[inline]
    pub const fn allocated(&self) -> usize {
        self.buffer.len()
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

    /// Sets [`EventWriter::limit`] after the buffer or the chunk has changed.
    fn set_limit(&mut self) {
        self.limit = self.chunk_end.min(self.buffer.len().saturating_sub(ROOM));
    }

    /// Grows the buffer so that the given number of bytes, and [`ROOM`], are free.
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
        let max_len = usize::from(shape.max_len);
        let is_short = max_len != 0 && event.attributes.is_empty();
        if !is_short || self.at + TIMESTAMP_LEN + max_len + END_LEN > self.limit {
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

    /// Appends an event of any length, in the next chunk if it does not fit the current one.
    fn write_any(&mut self, event: &EventToWrite<'_>) -> Result<()> {
        let max_len = max_event_len(event);
        if self.at + TIMESTAMP_LEN + max_len + END_LEN > self.limit {
            self.make_room(event, max_len)?;
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

    /// Makes room for an event of at most `max_len` bytes: begins the next chunk if necessary, and grows the buffer.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, event: &EventToWrite<'_>, max_len: usize) -> Result<()> {
        let needed = TIMESTAMP_LEN + max_len + END_LEN;
        if CHUNK_HEADER_LEN + needed > self.chunk_size {
            let expected = "an event that fits a chunk";
            return Err(FormatError::invalid(0, expected, max_len));
        }
        // The reference library begins the next chunk unless a timestamp, the event at its maximum size and one more
        // byte fit the current chunk. The condition is the same, so that files are identical, with one exception: an
        // event that takes its maximum size needs two more bytes, because the file's end may follow it ([`END_LEN`]).
        // With only one left, the reference writes the file's end past the chunk.
        let free = self.chunk_end - self.at;
        let has_room = free >= needed || free + 1 == needed && length_of(event, max_len) < max_len;
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

/// Returns the maximum size of an event and its additional values, without its timestamp.
fn max_event_len(event: &EventToWrite<'_>) -> usize {
    let most = usize::from(SHAPES[usize::from(event.id)].max_len);
    let most = match (most, event_record(event.id)) {
        (0, Some(record)) => max_framed_len(max_list_record_len(record, event.values.len())),
        (0, None) => event.payload.len() + 10,
        (most, _) => most,
    };
    match event.attributes.len() {
        0 => most,
        count => most + max_framed_len(max_attributes_len(count)),
    }
}

/// Returns the actual size in bytes of an event of at most `max_len` bytes, without its timestamp.
fn length_of(event: &EventToWrite<'_>, max_len: usize) -> usize {
    let mut bytes = vec![0; max_len + ROOM];
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
