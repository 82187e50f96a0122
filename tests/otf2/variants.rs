//! Archives as other machines and older libraries write them, made of those that the reference library writes here.

use std::fs;
use std::path::{Path, PathBuf};

use annals_foreign::otf2::{
    Anchor, Datum, Field, FieldType, Frame, RawRecords, Record, RecordWriter, event_record,
    put_record, read_fields, records,
};

/// Turns the integers of a file round, in place: whatever the byte order, they take the same bytes.
struct Turn<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Turn<'_> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes[self.at - 1]
    }

    /// Returns an integer of fixed width, little-endian until now.
    fn fixed(&mut self, width: usize) -> u64 {
        let place = &mut self.bytes[self.at..self.at + width];
        let value = place
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte));
        place.reverse();
        self.at += width;
        value
    }

    fn compressed(&mut self) -> u64 {
        match self.byte() {
            0xff => u64::MAX,
            width => self.fixed(width.into()),
        }
    }

    fn length(&mut self) -> usize {
        match self.byte() {
            0xff => self.fixed(8) as usize,
            short => short.into(),
        }
    }

    fn text(&mut self) {
        while self.byte() != 0 {}
    }

    fn value(&mut self, type_code: u8) {
        match type_code {
            1 | 5 => self.at += 1,
            2 | 6 => drop(self.fixed(2)),
            9 => drop(self.fixed(4)),
            10 => drop(self.fixed(8)),
            _ => drop(self.compressed()),
        }
    }

    fn fields(&mut self, fields: &[Field], end: usize) {
        let mut type_code = 0;
        for field in fields {
            // Fields that the version does not have.
            if self.at == end {
                return;
            }
            match field.what {
                FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) => self.at += 1,
                FieldType::Type => type_code = self.byte(),
                FieldType::Value => self.value(type_code),
                FieldType::U64 | FieldType::F64 => drop(self.fixed(8)),
                FieldType::Text => self.text(),
                FieldType::C32
                | FieldType::Enum32(_)
                | FieldType::Ref32(_)
                | FieldType::C64
                | FieldType::Ref64(_)
                | FieldType::Ci64 => drop(self.compressed()),
                FieldType::IdMap => {
                    let count = self.compressed();
                    let mode = self.byte();
                    for _ in 0..count * (1 + u64::from(mode != 0)) {
                        self.compressed();
                    }
                }
                FieldType::List8(inner) => {
                    for _ in 0..self.byte() {
                        self.fields(inner, usize::MAX);
                    }
                }
                FieldType::List32(inner) => {
                    for _ in 0..self.compressed() {
                        self.fields(inner, usize::MAX);
                    }
                }
            }
        }
    }

    fn framed(&mut self, record: Option<&Record>) {
        let length = self.length();
        let end = self.at + length;
        if let Some(record) = record {
            self.fields(record.fields, end);
        }
        self.at = end;
    }

    fn header(&mut self) {
        assert_eq!(self.bytes[..2], [3, 0x42]);
        self.bytes[1] = 0x23;
        self.at = 2;
    }

    fn events(&mut self) {
        self.header();
        self.fixed(8);
        self.fixed(8);
        loop {
            match self.byte() {
                0 | 2 => return,
                5 => drop(self.fixed(8)),
                6 => {
                    let end = self.length() + self.at;
                    for _ in 0..self.compressed() {
                        self.compressed();
                        let type_code = self.byte();
                        self.value(type_code);
                    }
                    assert_eq!(self.at, end);
                }
                id => match event_record(id) {
                    Some(record) if record.frame == Frame::Single => drop(self.compressed()),
                    record => self.framed(record),
                },
            }
        }
    }

    fn definitions(&mut self, table: &'static [Record]) {
        self.header();
        self.fixed(8);
        self.fixed(8);
        loop {
            match self.byte() {
                0 | 2 => return,
                id => self.framed(Record::find(table, id)),
            }
        }
    }

    fn anchor(&mut self) {
        self.header();
        // The magic, five bytes of versions; substrate and compression; machine, creator, description.
        self.at = 12;
        self.fixed(8);
        self.fixed(8);
        self.at += 2;
        self.fixed(8);
        self.fixed(8);
        for _ in 0..3 {
            self.text();
        }
        for _ in 0..self.fixed(4) {
            self.text();
            self.text();
        }
        self.fixed(8);
        self.fixed(4);
        self.fixed(4);
    }
}

/// Copies an archive; returns the anchor of the copy.
pub(crate) fn copy(anchor: &Path, to: &Path) -> PathBuf {
    let events = anchor.with_extension("");
    let name = anchor.file_stem().unwrap();
    fs::create_dir_all(to.join(name)).unwrap();
    for extension in ["otf2", "def", "marker"] {
        let file = anchor.with_extension(extension);
        if file.exists() {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    }
    for file in fs::read_dir(events).unwrap() {
        let file = file.unwrap().path();
        fs::copy(&file, to.join(name).join(file.file_name().unwrap())).unwrap();
    }
    to.join(anchor.file_name().unwrap())
}

/// Makes an archive one of a machine with the other byte order.
pub(crate) fn turn_round(anchor: &Path) {
    let told = Anchor::decode(&fs::read(anchor).unwrap()).unwrap();
    let change = |path: &Path, size: u64, turn: &dyn Fn(&mut Turn<'_>)| {
        let mut bytes = fs::read(path).unwrap();
        for bytes in bytes.chunks_mut(size as usize) {
            turn(&mut Turn { bytes, at: 0 });
        }
        fs::write(path, bytes).unwrap();
    };
    let size = told.definition_chunk_size;
    change(&anchor.with_extension("def"), size, &|turn| {
        turn.definitions(records::DEFINITIONS);
    });
    let markers = anchor.with_extension("marker");
    if markers.exists() {
        change(&markers, size, &|turn| turn.definitions(records::MARKERS));
    }
    for file in fs::read_dir(anchor.with_extension("")).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "evt") {
            change(&path, told.event_chunk_size, &|turn| turn.events());
        } else {
            change(&path, size, &|turn| {
                turn.definitions(records::LOCAL_DEFINITIONS);
            });
        }
    }
    change(anchor, 1 << 30, &|turn| turn.anchor());
}

/// Takes out of the global definitions what versions later than `version` (major, minor) have added.
pub(crate) fn make_older(anchor: &Path, version: (u32, u32)) {
    let number = |text: &str| {
        let (major, minor) = text.split_once('.').unwrap();
        (major.parse::<u32>().unwrap(), minor.parse::<u32>().unwrap())
    };
    let mut told = Anchor::decode(&fs::read(anchor).unwrap()).unwrap();
    let path = anchor.with_extension("def");
    let mut writer = RecordWriter::new(told.definition_chunk_size);
    let mut out = Vec::new();
    for chunk in fs::read(&path)
        .unwrap()
        .chunks(told.definition_chunk_size as usize)
    {
        let records = RawRecords::new(chunk).unwrap();
        let endian = records.endian();
        for raw in records {
            let raw = raw.unwrap();
            let record = Record::find(records::DEFINITIONS, raw.id).unwrap();
            if number(record.since) > version {
                continue;
            }
            let mut data = read_fields(record, raw.payload, endian).unwrap();
            let added = |field: &Field| field.since.is_some_and(|since| number(since) > version);
            if let Some(first) = record.fields.iter().position(added) {
                data[first..].fill(Datum::Absent);
            }
            let mut bytes = Vec::new();
            put_record(record, &data, &mut bytes);
            writer.write(&bytes, &mut out).unwrap();
        }
    }
    told.definition_count = writer.count;
    writer.finish(&mut out);
    fs::write(path, out).unwrap();
    let mut bytes = Vec::new();
    told.version = [version.0 as u8, version.1 as u8, 0];
    told.encode(&mut bytes);
    fs::write(anchor, bytes).unwrap();
}
