//! Chunks: every file but the anchor is a sequence of them, each readable alone.

use super::describe::{Field, FieldType, Frame, Record};
use super::wire::{Endian, Input, Output};
use annals_format::{FormatError, Result};

/// Bytes of a chunk's header.
pub const CHUNK_HEADER_LEN: usize = 18;
/// The rest of the chunk is padding.
pub(crate) const END_OF_CHUNK: u8 = 0;
/// The last byte of a file.
pub(crate) const END_OF_BUFFER: u8 = 1;
/// Nothing follows in the file.
pub(crate) const END_OF_FILE: u8 = 2;
const CHUNK: u8 = 3;

/// The header of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkHeader {
    /// Byte order of the whole chunk.
    pub endian: Endian,
    /// Number of its first event in the file, from 1; a hint.
    pub first: u64,
    /// Number of its last event; a hint.
    pub last: u64,
}

impl ChunkHeader {
    /// Reads the header at the start of a chunk.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(chunk: &[u8]) -> Result<Self> {
        let mut input = Input::new(chunk, Endian::Little);
        let mark = input.u8("the start of a chunk")?;
        if mark != CHUNK {
            return Err(FormatError::invalid(0, "the start of a chunk (3)", mark));
        }
        let code = input.u8("byte order of a chunk")?;
        let endian = Endian::from_code(code).ok_or_else(|| {
            let found = format!("{code:#04x}");
            FormatError::invalid(1, "byte order 0x42 or 0x23", found)
        })?;
        input.set_endian(endian);
        Ok(Self {
            endian,
            first: input.u64("number of the first event")?,
            last: input.u64("number of the last event")?,
        })
    }

    /// Appends a header in our byte order.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[CHUNK, Endian::Little.code()]);
        out.put_u64(self.first);
        out.put_u64(self.last);
    }
}

/// Determines the size of a file's chunks from the position of the second chunk header. `None` means that `start`
/// contains no second header. Unless the file is shorter, `start` should be as long as the largest chunk and a header.
pub fn chunk_size_of(start: &[u8], is_of_events: bool) -> Option<u64> {
    let first = ChunkHeader::decode(start).ok()?;
    let least = super::anchor::LEAST_CHUNK as usize;
    let is_next = |at: usize| {
        let Some(header) = start
            .get(at..)
            .and_then(|rest| ChunkHeader::decode(rest).ok())
        else {
            return false;
        };
        if header.endian != first.endian {
            return false;
        }
        if !is_of_events {
            return (header.first, header.last) == (1, 0);
        }
        // The chunk and its event numbers continue those of the previous chunk; a timestamp follows
        // the header.
        let count = header.last.wrapping_add(1).wrapping_sub(header.first);
        header.first == first.last.wrapping_add(1)
            && count <= super::anchor::MOST_CHUNK
            && start
                .get(at + CHUNK_HEADER_LEN)
                .is_none_or(|byte| *byte == 5)
    };
    let place = |at: &usize| start[*at] == CHUNK && is_next(*at);
    (least..start.len()).find(place).map(|at| at as u64)
}

/// A value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datum {
    /// The field is of a later version than the file.
    Absent,
    /// An integer, a reference, an enumeration; of a floating-point number the bits.
    Bits(u64),
    /// Text.
    Text(Vec<u8>),
    /// A list of one field each.
    Numbers(Vec<u64>),
    /// A list of several fields each.
    List(Vec<Vec<Datum>>),
    /// Pairs of local and global ids, and whether the local ones are 0, 1, ….
    Pairs(Vec<(u64, u64)>, bool),
}

impl Datum {
    /// Returns the bits, if it has any.
    pub const fn bits(&self) -> Option<u64> {
        match self {
            Self::Bits(bits) => Some(*bits),
            _ => None,
        }
    }

    /// Returns the text; empty when there is none.
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            _ => &[],
        }
    }

    /// Returns the items of a list of one field each.
    pub fn numbers(&self) -> &[u64] {
        match self {
            Self::Numbers(numbers) => numbers,
            _ => &[],
        }
    }
}

fn read_field(input: &mut Input<'_>, field: &Field, type_code: &mut u8) -> Result<Datum> {
    let name = field.name;
    Ok(Datum::Bits(match field.what {
        FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) => input.u8(name)?.into(),
        FieldType::Type => {
            *type_code = input.u8(name)?;
            (*type_code).into()
        }
        FieldType::U64 | FieldType::F64 => input.u64(name)?,
        FieldType::C32 | FieldType::Enum32(_) | FieldType::Ref32(_) => input.c32(name)?.into(),
        FieldType::C64 | FieldType::Ci64 | FieldType::Ref64(_) => input.c64(name)?,
        FieldType::Value => input.value(*type_code)?,
        FieldType::Text => return Ok(Datum::Text(input.text(name)?.to_vec())),
        FieldType::IdMap => return read_id_map(input),
        FieldType::List8(fields) => {
            let count = input.u8(name)?;
            return read_list(input, fields, count.into());
        }
        FieldType::List32(fields) => {
            let count = input.c32(name)?;
            return read_list(input, fields, count as usize);
        }
    }))
}

fn read_list(input: &mut Input<'_>, fields: &[Field], count: usize) -> Result<Datum> {
    let at = input.position();
    // Each item takes a byte at least.
    if count > input.remaining() {
        let expected = "a number of items that the record has room for";
        return Err(FormatError::invalid(at, expected, count));
    }
    if let [field] = fields {
        let mut numbers = Vec::with_capacity(count);
        for _ in 0..count {
            let item = read_field(input, field, &mut 0)?;
            numbers.push(item.bits().unwrap_or(0));
        }
        return Ok(Datum::Numbers(numbers));
    }
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(read_all(input, fields)?);
    }
    Ok(Datum::List(items))
}

fn read_all(input: &mut Input<'_>, fields: &[Field]) -> Result<Vec<Datum>> {
    let mut type_code = 0;
    let each = fields.iter();
    each.map(|field| read_field(input, field, &mut type_code))
        .collect()
}

fn read_id_map(input: &mut Input<'_>) -> Result<Datum> {
    let at = input.position();
    let count = input.c64("number of pairs")?;
    let mode = input.u8("mode of a mapping table")?;
    if count > input.remaining() as u64 {
        let expected = "a number of pairs that the record has room for";
        return Err(FormatError::invalid(at, expected, count));
    }
    let mut pairs = Vec::with_capacity(count as usize);
    for number in 0..count {
        let local = match mode {
            0 => number,
            _ => input.c64("a local id")?,
        };
        pairs.push((local, input.c64("a global id")?));
    }
    Ok(Datum::Pairs(pairs, mode == 0))
}

/// Reads the fields of a record; those that an older version did not have are absent.
///
/// # Errors
/// If a field ends early or cannot be.
pub fn read_fields(record: &Record, payload: &[u8], endian: Endian) -> Result<Vec<Datum>> {
    let mut input = Input::new(payload, endian);
    let mut type_code = 0;
    let mut is_appended = false;
    let mut data = Vec::with_capacity(record.fields.len());
    for field in record.fields {
        is_appended |= field.since.is_some();
        if is_appended && input.remaining() == 0 {
            data.push(Datum::Absent);
        } else {
            data.push(read_field(&mut input, field, &mut type_code)?);
        }
    }
    Ok(data)
}

/// Appends fields; returns the difference between their maximum and their actual length. A missing datum ends the
/// record.
fn put_fields(fields: &[Field], data: &[Datum], out: &mut Vec<u8>) -> usize {
    let mut slack = 0;
    let mut type_code = 0;
    for (field, datum) in fields.iter().zip(data) {
        if *datum == Datum::Absent {
            break;
        }
        let bits = datum.bits().unwrap_or(0);
        match field.what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) => out.push(bits as u8),
            FieldType::Type => {
                type_code = bits as u8;
                out.push(type_code);
            }
            FieldType::U64 | FieldType::F64 => out.put_u64(bits),
            FieldType::C32 | FieldType::Enum32(_) | FieldType::Ref32(_) => out.put_c32(bits as u32),
            FieldType::C64 | FieldType::Ref64(_) => out.put_c64(bits),
            FieldType::Ci64 => out.put_ci64(bits as i64),
            FieldType::Value => {
                let before = out.len();
                out.put_value(type_code, bits);
                slack += 9_usize.saturating_sub(out.len() - before);
            }
            FieldType::Text => out.put_text(datum.text()),
            FieldType::IdMap => {
                let Datum::Pairs(pairs, is_dense) = datum else {
                    continue;
                };
                out.put_c64(pairs.len() as u64);
                out.push((!is_dense).into());
                for (local, global) in pairs {
                    if !is_dense {
                        out.put_c64(*local);
                    }
                    out.put_c64(*global);
                }
            }
            FieldType::List8(inner) | FieldType::List32(inner) => {
                let items = match datum {
                    Datum::List(items) => items.as_slice(),
                    _ => &[],
                };
                let count = items.len() + datum.numbers().len();
                match field.what {
                    FieldType::List8(_) => out.push(count as u8),
                    _ => out.put_c32(count as u32),
                }
                for item in items {
                    slack += put_fields(inner, item, out);
                }
                for number in datum.numbers() {
                    put_fields(inner, &[Datum::Bits(*number)], out);
                }
            }
        }
    }
    slack
}

/// Appends a record with id and length.
pub fn put_record(record: &Record, data: &[Datum], out: &mut Vec<u8>) {
    debug_assert!(
        record.frame == Frame::Length,
        "events have their own writer"
    );
    let mut payload = Vec::new();
    let slack = put_fields(record.fields, data, &mut payload);
    out.push(record.id);
    out.put_record_length(payload.len(), payload.len() + slack);
    out.extend_from_slice(&payload);
}

/// A record of definitions, markers or snapshots in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawRecord<'a> {
    /// Where it starts in the chunk.
    pub offset: usize,
    /// Its id.
    pub id: u8,
    /// Its fields.
    pub payload: &'a [u8],
}

/// How the records of a chunk end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkEnd {
    /// The file continues with the next chunk.
    Chunk,
    /// Nothing follows.
    File,
}

/// The records of a chunk of definitions or markers. What they are is up to the caller.
#[derive(Debug)]
pub struct RawRecords<'a> {
    input: Input<'a>,
    endian: Endian,
    /// How the chunk ended, once it has.
    pub end: Option<ChunkEnd>,
    is_failed: bool,
}

impl<'a> RawRecords<'a> {
    /// Creates a reader of a chunk with its header.
    ///
    /// # Errors
    /// If the header is none.
    pub fn new(chunk: &'a [u8]) -> Result<Self> {
        let header = ChunkHeader::decode(chunk)?;
        let mut input = Input::new(chunk, header.endian);
        input.seek(CHUNK_HEADER_LEN);
        Ok(Self {
            input,
            endian: header.endian,
            end: None,
            is_failed: false,
        })
    }

    /// Creates a reader of a part of a chunk that starts at a record.
    pub const fn of_part(part: &'a [u8], endian: Endian) -> Self {
        Self {
            input: Input::new(part, endian),
            endian,
            end: None,
            is_failed: false,
        }
    }

    /// Returns where the next record is.
    pub const fn position(&self) -> usize {
        self.input.position()
    }

    /// Returns the chunk's byte order.
    pub const fn endian(&self) -> Endian {
        self.endian
    }

    fn read(&mut self) -> Result<Option<RawRecord<'a>>> {
        let offset = self.input.position();
        // A chunk may be full to its last byte.
        if self.input.remaining() == 0 && offset >= super::anchor::LEAST_CHUNK as usize {
            self.end = Some(ChunkEnd::Chunk);
            return Ok(None);
        }
        let id = self.input.u8("a record, or the end of the chunk")?;
        self.end = match id {
            END_OF_CHUNK => Some(ChunkEnd::Chunk),
            END_OF_FILE | END_OF_BUFFER => Some(ChunkEnd::File),
            _ => None,
        };
        if self.end.is_some() {
            return Ok(None);
        }
        let length = self.input.record_length()?;
        let payload = self.input.take(length, "the fields of a record")?;
        Ok(Some(RawRecord {
            offset,
            id,
            payload,
        }))
    }
}

impl<'a> Iterator for RawRecords<'a> {
    type Item = Result<RawRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end.is_some() || self.is_failed {
            return None;
        }
        let read = self.read();
        self.is_failed = read.is_err();
        read.transpose()
    }
}

/// Writes a file of records, chunk by chunk.
#[derive(Debug)]
pub struct RecordWriter {
    chunk_size: usize,
    used: usize,
    /// Records written.
    pub count: u64,
}

impl RecordWriter {
    /// Creates a writer of chunks of this size.
    pub const fn new(chunk_size: u64) -> Self {
        Self {
            chunk_size: chunk_size as usize,
            used: 0,
            count: 0,
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        ChunkHeader {
            endian: Endian::Little,
            first: 1,
            last: 0,
        }
        .encode(out);
        self.used = CHUNK_HEADER_LEN;
    }

    /// Appends a record as [`put_record`] made it.
    ///
    /// # Errors
    /// If it is larger than a chunk.
    pub fn write(&mut self, record: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if record.len() + CHUNK_HEADER_LEN + 2 > self.chunk_size {
            let expected = "a record that fits a chunk";
            return Err(FormatError::invalid(0, expected, record.len()));
        }
        if self.used == 0 {
            self.start(out);
        }
        if self.used + record.len() + 2 > self.chunk_size {
            out.resize(out.len() + self.chunk_size - self.used, 0);
            self.start(out);
        }
        out.extend_from_slice(record);
        self.used += record.len();
        self.count += 1;
        Ok(())
    }

    /// Appends the file's end.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if self.used == 0 {
            self.start(out);
        }
        out.extend_from_slice(&[END_OF_FILE, END_OF_BUFFER]);
    }
}
