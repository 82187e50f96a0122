//! Tests of the tables of definitions and their records.

use super::*;
use crate::ids::{BootId, RecordingId};
use crate::value::ElementType;
use crate::wire::Put;

fn all_kinds() -> Vec<Definition> {
    let s = StringId::new;
    vec![
        Definition::String(s(0), String::new()),
        Definition::String(s(1), "grüße".to_owned()),
        Definition::Process(Process {
            id: ProcessId::new(0),
            recording_id: RecordingId([7; 16]),
            run: s(1),
            host: s(0),
            boot_id: BootId([9; 16]),
            pid: 4711,
            start_unix_ns: 1_700_000_000_000_000_000,
            start_reference_ns: -5,
            command: s(1),
        }),
        Definition::Rank(Rank {
            process: ProcessId::new(0),
            rank: 3,
            rank_count: Some(4),
            is_assigned: false,
        }),
        Definition::Property(Property {
            process: ProcessId::new(0),
            key: s(0),
            value: s(1),
        }),
        Definition::Clock(Clock {
            id: ClockId::new(1),
            process: ProcessId::new(0),
            name: s(1),
            kind: ClockKind::Tsc,
            ticks_per_second: 2_596_000_000,
            rate_error_ppb: 100_000,
            max_ticks: u64::MAX,
        }),
        Definition::Calibration(CalibrationPoint {
            clock: ClockId::new(1),
            tick: u64::MAX,
            reference_ns: 12,
            error_ns: 25,
            unix_offset_ns: 1_700_000_000_000_000_000,
        }),
        Definition::Calibrations(
            [
                (7, 100, 25),
                (u64::MAX, i64::MAX, 0),
                (8, i64::MIN, u64::MAX),
            ]
            .map(|(tick, reference_ns, error_ns)| CalibrationPoint {
                clock: ClockId::new(1),
                tick,
                reference_ns,
                error_ns,
                unix_offset_ns: reference_ns.wrapping_neg(),
            })
            .to_vec(),
        ),
        Definition::Source(Source {
            id: SourceId::new(2),
            process: ProcessId::new(0),
            name: s(1),
            description: s(0),
            ordering: SourceOrder::Unordered,
            clock: ClockId::new(1),
        }),
        Definition::EventType(EventType {
            id: EventTypeId::new(5),
            name: s(1),
            description: s(0),
            verbosity: Verbosity::TunerDetail,
            role: Role::Begin,
            key_element: Some(0),
            elements: vec![Element {
                name: s(1),
                element_type: ElementType::U64,
                is_optional: true,
                reference: Reference::Object,
                unit: s(0),
                original_bits: 32,
            }],
        }),
        Definition::Region(Region {
            id: RegionId::new(8),
            name: s(1),
            file: s(0),
            line: 12,
            group: s(0),
        }),
        Definition::RegionSet(RegionSet {
            process: ProcessId::new(0),
            regions: vec![RegionId::new(8), RegionId::new(500)],
        }),
        Definition::Location(Location {
            id: LocationId::new(0),
            process: ProcessId::new(0),
            name: s(1),
            kind: LocationKind::Device,
            system_id: 77,
        }),
        Definition::Stream(Stream {
            id: StreamId::new(0),
            source: SourceId::new(2),
            location: None,
        }),
        Definition::Object(Object {
            id: ObjectId::new(0),
            process: ProcessId::new(0),
            kind: s(0),
            name: s(1),
        }),
        Definition::RemoteMembers(RemoteMembers {
            process: ProcessId::new(0),
            object: ObjectId::new(0),
            made: s(1),
            parent: Some(ObjectId::new(7)),
            side: 2,
            place: 3,
            local: 4,
            remote: u32::MAX,
            first: FIRST_REMOTE,
            from_ns: -5,
            to_ns: i64::MAX,
        }),
        Definition::Registration(Registration {
            process: ProcessId::new(0),
            event_type: EventTypeId::new(5),
            object: Some(ObjectId::new(0)),
        }),
        Definition::SharedClockMap(SharedClockMap {
            clocks: [3, 4, u32::MAX].map(ClockId::new).to_vec(),
            error_ns: u64::MAX,
            knots: [(i128::MIN, i64::MIN), (0, -1), (i128::MAX, i64::MAX)].into(),
        }),
        Definition::ProcessEnd(ProcessEnd {
            process: ProcessId::new(0),
            ended: Ended::Killed,
            start_ns: 0,
            end_ns: 99,
            end_error_ns: 100,
        }),
        Definition::LocationEnd(LocationEnd {
            location: LocationId::new(2),
            end_ns: -9,
        }),
        Definition::TimeZero(TimeZero {
            unix_ns: 1,
            end_ns: 2,
            reference_ns: Some(-3),
        }),
        Definition::Module(Module {
            id: ModuleId::new(0),
            process: ProcessId::new(0),
            path: s(1),
            build_id: vec![0xab; 20],
            base: 0x5555_5555_4000,
            loaded_ns: -7,
            unloaded_ns: Some(90),
        }),
        Definition::Function(Function {
            region: RegionId::new(8),
            module: ModuleId::new(0),
            offset: 0x1139,
        }),
        Definition::Symbol(Symbol {
            region: RegionId::new(8),
            name: s(1),
            file: s(0),
            line: 30,
        }),
        Definition::CallPath(CallPath {
            id: CallPathId::new(4),
            caller: Some(CallPathId::new(1)),
            place: CodePlace::Address(Some(ModuleId::new(0)), 0x1140),
        }),
        Definition::CodeLines(CodeLines {
            module: ModuleId::new(0),
            address: 0x1140,
            frames: vec![CodeFrame {
                name: s(1),
                file: s(0),
                line: 30,
                at_file: s(0),
                at_line: 31,
            }],
        }),
        Definition::Filter(Filter {
            from_ns: Some(-5),
            to_ns: None,
            ranks: s(1),
            sources: s(0),
            locations: s(0),
            event_types: s(1),
        }),
        Definition::Slice(Slice {
            number: 2,
            of: 5,
            from_ns: Some(-7),
            to_ns: None,
        }),
        Definition::HostOffset(HostOffset {
            from: BootId([1; 16]),
            to: BootId([2; 16]),
            reference_ns: 5_000,
            offset_ns: -300,
            error_ns: 1_200,
        }),
        Definition::ClockError(ClockError {
            clock: ClockId::new(1),
            alike: ClockId::new(0),
            relation: Relation::Measured,
            knots: [(0, 25, 1_200), (1_000, 40, UNBOUNDED)]
                .map(|(time_ns, own_ns, host_ns)| ErrorKnot {
                    time_ns,
                    own_ns,
                    host_ns,
                })
                .to_vec(),
        }),
    ]
}

/// Numbers of the kinds in SPEC.md's table of definitions.
fn kinds_of_the_specification() -> Vec<u64> {
    let (_, table) = include_str!("../../SPEC.md")
        .split_once("The fields of each kind, in order:")
        .unwrap();
    let (table, _) = table.split_once("```").unwrap();
    table
        .lines()
        .filter_map(|line| line.split('|').nth(1)?.trim().parse().ok())
        .collect()
}

#[test]
fn the_kinds_are_those_of_the_specification() {
    let mut kinds: Vec<u64> = Definition::KINDS.iter().map(|(kind, _)| *kind).collect();
    kinds.sort_unstable();
    assert_eq!(
        kinds,
        kinds_of_the_specification(),
        "{:?}",
        Definition::KINDS
    );
}

#[test]
fn definitions_take_no_more_memory_than_they_may() {
    let mut record = Vec::new();
    Definition::String(StringId::new(7), "a".repeat(16 << 20)).encode(&mut record);
    // The largest file, and one of a megabyte.
    let limits = [(u64::MAX, 15, "4095 MiB"), (2 << 20, 1, "320 MiB")];
    for (length, expected, most) in limits {
        let limits = FileLimits::of_length(length);
        let mut read = Definitions::default();
        let mut add = |number| {
            let outcome = read.add_all_within(&record, &limits);
            Some((number, outcome.err()?))
        };
        let (number, error) = (0..20).find_map(&mut add).unwrap();
        assert_eq!(number, expected, "records of 256 MiB each");
        assert!(error.to_string().contains(most), "{error}");
        assert_eq!(read.strings.len(), 1);
    }
    let mut read = Definitions::default();
    while read.add_all(&record).is_ok() {}
    // A smaller one has room still.
    let mut record = Vec::new();
    Definition::String(StringId::new(8), "b".to_owned()).encode(&mut record);
    read.add_all(&record).unwrap();
    assert_eq!(read.string(StringId::new(8)), "b");
}

#[test]
fn every_kind_round_trips_and_the_table_gives_all_back() {
    let mut bytes = Vec::new();
    let mut table = Definitions::default();
    for definition in all_kinds() {
        definition.encode(&mut bytes);
        table.add(definition);
    }
    let mut wire = Wire::new(&bytes);
    for definition in all_kinds() {
        assert_eq!(Definition::decode(&mut wire).unwrap(), Some(definition));
    }
    let mut again = Vec::new();
    table.encode(&mut again);
    let mut read = Definitions::default();
    read.add_all(&again).unwrap();
    assert_eq!(read, table);
}

#[test]
fn bounds_are_linear_between_their_knots_and_never_too_small() {
    let knots = [(0, 10, 100), (1_000, 13, 40), (2_000, 13, UNBOUNDED)];
    let error = ClockError {
        clock: ClockId::new(0),
        alike: ClockId::new(0),
        relation: Relation::File,
        knots: knots
            .map(|(time_ns, own_ns, host_ns)| ErrorKnot {
                time_ns,
                own_ns,
                host_ns,
            })
            .to_vec(),
    };
    let at = [-5, 0, 500, 999, 1_000, 1_500, 3_000].map(|time| error.at(time));
    let unbounded = (13, UNBOUNDED);
    let expected = [
        (10, 100),
        (10, 100),
        (12, 70),
        (13, 41),
        (13, 40),
        unbounded,
        unbounded,
    ];
    assert_eq!(at, expected);
}

#[test]
fn unknown_kinds_and_longer_bodies_are_stepped_over() {
    let mut bytes = Vec::new();
    bytes.put_varint(900);
    bytes.put_bytes(b"from the future");
    bytes.put_varint(17);
    bytes.put_bytes(&[2, 4, 5, 99]);
    let mut table = Definitions::default();
    table.add_all(&bytes).unwrap();
    let zero = TimeZero {
        unix_ns: 1,
        end_ns: 2,
        reference_ns: Some(-3),
    };
    assert_eq!(table.time_zero, Some(zero));
}

#[test]
fn a_broken_record_costs_only_itself() {
    let mut bytes = Vec::new();
    Definition::String(StringId::new(1), "before".to_owned()).encode(&mut bytes);
    // A clock of an unknown kind.
    bytes.put_varint(5);
    bytes.put_bytes(&[0, 0, 0, 9, 1, 0, 0]);
    // An event type that ends early.
    bytes.put_varint(8);
    bytes.put_bytes(&[0]);
    Definition::String(StringId::new(2), "behind".to_owned()).encode(&mut bytes);
    let mut table = Definitions::default();
    let error = table.add_all(&bytes).unwrap_err();
    assert!(error.to_string().contains("clock kind"), "{error}");
    assert_eq!(table.string(StringId::new(1)), "before");
    assert_eq!(table.string(StringId::new(2)), "behind");
    assert_eq!((table.clocks.len(), table.event_types.len()), (0, 0));
}

#[test]
fn a_hundred_thousand_equal_or_different_entries_are_quick_to_tell_apart() {
    let mut bytes = Vec::new();
    for id in 0..100_000 {
        let property = Property {
            process: ProcessId::new(0),
            key: StringId::new(id),
            value: StringId::new(id),
        };
        let registration = Registration {
            process: ProcessId::new(0),
            event_type: EventTypeId::new(id),
            object: None,
        };
        for _ in 0..2 {
            Definition::Property(property).encode(&mut bytes);
            Definition::Registration(registration).encode(&mut bytes);
        }
    }
    let mut table = Definitions::default();
    let start = std::time::Instant::now();
    table.add_all(&bytes).unwrap();
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    let counts = (table.properties.len(), table.registrations.len());
    assert_eq!(counts, (100_000, 100_000));
    // Also when a program has changed the lists itself.
    table.properties.truncate(1);
    let first = table.properties[0];
    table.add(Definition::Property(first));
    assert_eq!(table.properties.len(), 1);
}

#[test]
fn cut_and_flipped_definitions_never_panic() {
    let mut bytes = Vec::new();
    all_kinds().iter().for_each(|d| d.encode(&mut bytes));
    for length in 0..bytes.len() {
        let _ = Definitions::default().add_all(&bytes[..length]);
    }
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1 << bit;
            let _ = Definitions::default().add_all(&flipped);
        }
    }
}

#[test]
fn a_place_in_code_is_read_as_it_was_written() {
    let places = [
        CodePlace::Unknown,
        CodePlace::Address(None, u64::MAX),
        CodePlace::Address(Some(ModuleId::new(3)), 0x1140),
        CodePlace::Line(RegionId::new(8), StringId::new(1), 31),
    ];
    for (number, place) in places.into_iter().enumerate() {
        let id = CallPathId::new(number as u32);
        let caller = number
            .checked_sub(1)
            .map(|number| CallPathId::new(number as u32));
        let written = Definition::CallPath(CallPath { id, caller, place });
        let mut bytes = Vec::new();
        written.encode(&mut bytes);
        assert_eq!(
            Definition::decode(&mut Wire::new(&bytes)).unwrap(),
            Some(written)
        );
    }
}

#[test]
fn a_call_path_has_no_caller_with_a_larger_number() {
    let mut body = Vec::new();
    body.put_varint(4);
    body.put_varint(5);
    body.push(0);
    let mut bytes = Vec::new();
    bytes.put_varint(31);
    bytes.put_bytes(&body);
    let error = Definition::decode(&mut Wire::new(&bytes)).unwrap_err();
    assert!(error.to_string().contains("a smaller number"), "{error}");
}
