use proptest::prelude::*;

use super::*;

fn every_event(values: &[u64]) -> Vec<(u8, Vec<u64>)> {
    let mut next = values.iter().copied().cycle();
    let mut value = |what: FieldType| {
        let value: u64 = next.next().unwrap_or(0);
        match what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) | FieldType::Type => {
                value & 0xff
            }
            FieldType::C32 | FieldType::Enum32(_) | FieldType::Ref32(_) => value & 0xffff_ffff,
            _ => value,
        }
    };
    let records = records::EVENTS.iter();
    records
        .map(|record| {
            let mut values = Vec::new();
            for field in record.fields {
                match field.what {
                    FieldType::List8(inner) | FieldType::List32(inner) => {
                        let count = value(FieldType::U64) % 40;
                        for _ in 0..count {
                            values.extend(inner.iter().map(|field| value(field.what)));
                        }
                    }
                    what => values.push(value(what)),
                }
            }
            (record.id, values)
        })
        .collect()
}

fn read_all(file: &[u8], chunk_size: usize) -> Vec<(u8, u64, Vec<u64>, Vec<AttributeValue>)> {
    let mut found = Vec::new();
    for chunk in file.chunks(chunk_size) {
        let (mut reader, header) = EventReader::of_chunk(chunk).unwrap();
        assert_eq!(header.first, found.len() as u64 + 1);
        loop {
            match reader.next_item().unwrap() {
                Item::Event => found.push((
                    reader.id,
                    reader.time,
                    reader.values.clone(),
                    reader.attributes.clone(),
                )),
                Item::Unreadable => panic!("unreadable"),
                Item::EndOfChunk | Item::EndOfFile => break,
            }
        }
        assert_eq!(header.last, found.len() as u64);
    }
    found
}

#[test]
fn ids_of_events_follow_each_other() {
    for (index, record) in records::EVENTS.iter().enumerate() {
        assert_eq!(usize::from(record.id), index + 10);
        let single = [12, 13, 16, 17, 20, 21, 24, 28, 29, 30].contains(&record.id);
        assert_eq!(record.frame == Frame::Single, single, "{}", record.name);
    }
}

#[test]
fn definitions_of_old_versions_lack_fields() {
    let region = Record::find(records::DEFINITIONS, 15).unwrap();
    let payload = [1, 7, 1, 2, 1, 3, 1, 0xff, 0, 0, 1, 9];
    let data = read_fields(region, &payload, Endian::Little).unwrap();
    assert_eq!(data[0], Datum::Bits(7));
    assert_eq!(data[4], Datum::Bits(0xffff_ffff));
    assert_eq!(data[7], Datum::Bits(9), "canonical name");
    assert!(data[8..].iter().all(|datum| *datum == Datum::Absent));
}

#[test]
fn a_clock_is_corrected_between_points_as_the_reference_does() {
    let point = |time, offset| ClockOffset {
        time,
        offset,
        standard_deviation: 0.0,
    };
    let (mut none, _) = ClockCorrection::new(&[point(5, 100)]);
    assert_eq!(none.correct(7), 7, "one point has no effect");
    let points = [point(100, 10), point(200, 20), point(300, 0)];
    let (mut correction, is_whole) = ClockCorrection::new(&points);
    assert!(is_whole);
    let expected = [
        (0, 0),
        (100, 110),
        (105, 115),
        (115, 127),
        (200, 220),
        (250, 260),
        (400, 380),
    ];
    for (time, corrected) in expected {
        assert_eq!(correction.correct(time), corrected, "{time}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_read_as_written(
        values in prop::collection::vec(prop_oneof![any::<u64>(), 0..300_u64, Just(u64::MAX), Just(0)], 1..200),
        attributes in prop::collection::vec((any::<u32>(), 0_u8..27, any::<u64>()), 0..30),
        rounds in 1_usize..200,
    ) {
        let chunk_size = LEAST_CHUNK as usize;
        let mut writer = EventWriter::new(LEAST_CHUNK);
        let mut expected = Vec::new();
        let mut file = Vec::new();
        let mut patches = Vec::new();
        let mut time = 3;
        for round in 0..rounds {
            for (id, values) in every_event(&values[round % values.len()..]) {
                time += values.first().copied().unwrap_or(0) & 3;
                let count = (time as usize) % (attributes.len() + 1);
                let list: Vec<AttributeValue> = attributes[..count].iter().map(|(attribute, type_code, bits)| {
                    let mut out = Vec::new();
                    out.put_value(*type_code, *bits);
                    let bits = Input::new(&out, Endian::Little).value(*type_code).unwrap();
                    AttributeValue { attribute: *attribute, type_code: *type_code, bits }
                }).collect();
                let event = EventToWrite { id, time, values: &values, attributes: &list, payload: &[] };
                writer.write(event).unwrap();
                expected.push((id, time, values, list));
            }
            file.extend_from_slice(writer.bytes());
            writer.clear();
            patches.append(&mut writer.patches);
        }
        writer.finish();
        file.extend_from_slice(writer.bytes());
        patches.append(&mut writer.patches);
        for (at, value) in patches {
            file[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
        prop_assert_eq!(read_all(&file, chunk_size), expected);
    }

    #[test]
    fn definitions_read_as_written(seed in prop::collection::vec(any::<u64>(), 1..100)) {
        let mut next = seed.iter().copied().cycle();
        for record in records::DEFINITIONS.iter().chain(records::LOCAL_DEFINITIONS).chain(records::MARKERS) {
            let data = data_of(record.fields, &mut next);
            let mut out = Vec::new();
            put_record(record, &data, &mut out);
            let mut writer = RecordWriter::new(LEAST_CHUNK);
            let mut file = Vec::new();
            writer.write(&out, &mut file).unwrap();
            writer.finish(&mut file);
            let mut raw = RawRecords::new(&file).unwrap();
            let found = raw.next().unwrap().unwrap();
            prop_assert_eq!(found.id, record.id);
            prop_assert_eq!(read_fields(record, found.payload, Endian::Little).unwrap(), data);
            prop_assert!(raw.next().is_none());
            prop_assert_eq!(raw.end, Some(ChunkEnd::File));
        }
    }

    #[test]
    fn no_parser_fails_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000), is_chunk: bool) {
        let mut bytes = bytes;
        if is_chunk && bytes.len() > 18 {
            bytes[0] = 3;
            bytes[1] = 0x42;
        }
        super::exercise(&bytes);
    }
}

fn data_of(fields: &[Field], next: &mut impl Iterator<Item = u64>) -> Vec<Datum> {
    let mut type_code = 0;
    let mut data = Vec::new();
    for field in fields {
        let value = next.next().unwrap_or(0);
        data.push(match field.what {
            FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) => Datum::Bits(value & 0xff),
            FieldType::Type => {
                type_code = (value % 26) as u8;
                Datum::Bits(type_code.into())
            }
            FieldType::C32 | FieldType::Enum32(_) | FieldType::Ref32(_) => {
                Datum::Bits(value & 0xffff_ffff)
            }
            FieldType::U64
            | FieldType::C64
            | FieldType::Ref64(_)
            | FieldType::Ci64
            | FieldType::F64 => Datum::Bits(value),
            FieldType::Value => {
                let mut out = Vec::new();
                out.put_value(type_code, value);
                Datum::Bits(Input::new(&out, Endian::Little).value(type_code).unwrap())
            }
            FieldType::Text => Datum::Text(format!("text {value}").into_bytes()),
            FieldType::IdMap => {
                Datum::Pairs(vec![(0, value), (1, value / 3)], value.is_multiple_of(2))
            }
            FieldType::List8(inner) | FieldType::List32(inner) => {
                let items = (0..value % 30).map(|_| data_of(inner, next));
                if inner.len() == 1 {
                    Datum::Numbers(items.filter_map(|item| item[0].bits()).collect())
                } else {
                    Datum::List(items.collect())
                }
            }
        });
    }
    data
}

#[test]
fn a_chunk_says_its_byte_order() {
    let mut chunk = vec![3, 0x23];
    chunk.extend_from_slice(&1_u64.to_be_bytes());
    chunk.extend_from_slice(&3_u64.to_be_bytes());
    chunk.push(5);
    chunk.extend_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
    // An attribute of type UINT16 and one of type FLOAT; Enter of region 0x0a0b.
    chunk.extend_from_slice(&[6, 14, 1, 2, 1, 1, 2, 0x11, 0x12, 1, 2, 9, 0x3f, 0x80, 0, 0]);
    chunk.extend_from_slice(&[12, 2, 0x0a, 0x0b]);
    // MpiSend to 0x010203, with a length of 0x0102030405060708; an unknown record; ProgramEnd with -1.
    chunk.extend_from_slice(&[14, 16, 3, 1, 2, 3, 0, 1, 9, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    chunk.extend_from_slice(&[200, 3, 7, 8, 9]);
    chunk.extend_from_slice(&[84, 1, 0xff, 2, 1]);
    let (mut reader, header) = EventReader::of_chunk(&chunk).unwrap();
    assert_eq!(
        (header.endian, header.first, header.last),
        (Endian::Big, 1, 3)
    );
    assert_eq!(reader.next_item().unwrap(), Item::Event);
    assert_eq!((reader.id, reader.time), (12, 0x0102_0304_0506_0708));
    assert_eq!(reader.values, [0x0a0b]);
    let values: Vec<u64> = reader.attributes.iter().map(|value| value.bits).collect();
    assert_eq!(values, [0x1112, u64::from(1_f32.to_bits())]);
    assert_eq!(reader.next_item().unwrap(), Item::Event);
    assert_eq!(reader.values, [0x01_0203, 0, 9, 0x0102_0304_0506_0708]);
    assert!(reader.attributes.is_empty());
    assert_eq!(reader.next_item().unwrap(), Item::Event);
    assert_eq!((reader.id, reader.payload), (200, &[7, 8, 9][..]));
    assert!(reader.record().is_none());
    assert_eq!(reader.next_item().unwrap(), Item::Event);
    assert_eq!(reader.values, [u64::MAX]);
    assert_eq!(reader.next_item().unwrap(), Item::EndOfFile);
}

#[test]
fn one_unreadable_event_costs_itself_only() {
    let mut chunk = vec![3, 0x42];
    chunk.extend_from_slice(&[0; 16]);
    // MpiSend with an integer of nine bytes; one whose fields are longer than itself; Enter.
    chunk.extend_from_slice(&[14, 4, 9, 1, 2, 3]);
    chunk.extend_from_slice(&[14, 3, 1, 2, 0]);
    chunk.extend_from_slice(&[12, 1, 5, 0]);
    let (mut reader, _) = EventReader::of_chunk(&chunk).unwrap();
    assert_eq!(reader.next_item().unwrap(), Item::Unreadable);
    assert_eq!(reader.next_item().unwrap(), Item::Unreadable);
    assert_eq!(reader.next_item().unwrap(), Item::Event);
    assert_eq!(reader.values, [5]);
    assert_eq!(reader.next_item().unwrap(), Item::EndOfChunk);
}
