//! Archives whose leaves name other regions than their enters, and whose clock has no start.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_foreign::otf2::records::{self, ids};
use annals_foreign::otf2::{Anchor, Datum, EventToWrite, EventWriter, RecordWriter, put_record};
use annals_merger::{Close, Query, Reader};
use proptest::prelude::*;

use crate::reference::Programs;

/// An enter or a leave of a region, by its number.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(u64),
    Leave(u64),
}

const REGIONS: u64 = 6;

/// The region of no enter: only leaves name it.
const RENAMED: u64 = REGIONS;

/// Resolution, start, length, and wall clock of an archive.
type Clock = [u64; 4];

fn definitions(clock: Clock, events: u64) -> Vec<(&'static str, Vec<Datum>)> {
    let bits = |values: &[u64]| values.iter().copied().map(Datum::Bits).collect::<Vec<_>>();
    let mut all = vec![("ClockProperties", bits(&clock))];
    let names = ["", "main", "process", "node", "machine"].map(str::to_owned);
    let regions = (0..=REGIONS).map(|region| format!("region {region}"));
    for (number, name) in (0..).zip(names.into_iter().chain(regions)) {
        let text = Datum::Text(name.into_bytes());
        all.push(("String", vec![Datum::Bits(number), text]));
    }
    let undefined = u64::from(u32::MAX);
    all.push(("SystemTreeNode", bits(&[0, 3, 4, undefined])));
    all.push(("LocationGroup", bits(&[0, 2, 1, 0, undefined])));
    all.push(("Location", bits(&[0, 1, 1, events, 0])));
    for region in 0..=REGIONS {
        let name = 5 + region;
        let region = [region, name, 0, 0, undefined, 0, 0, name, 1, 1, 0];
        all.push(("Region", bits(&region)));
    }
    all
}

/// Writes an archive of one location. `steps`: with their times.
fn write(directory: &Path, creator: &str, clock: Clock, steps: &[(u64, Step)]) -> PathBuf {
    const CHUNK: u64 = 256 << 10;
    std::fs::create_dir_all(directory.join("traces")).unwrap();
    let mut events = EventWriter::new(CHUNK);
    for (time, step) in steps {
        let (id, region) = match *step {
            Step::Enter(region) => (ids::ENTER, region),
            Step::Leave(region) => (ids::LEAVE, region),
        };
        let event = EventToWrite {
            id,
            time: *time,
            values: &[region],
            attributes: &[],
            payload: &[],
        };
        events.write(event).unwrap();
    }
    events.finish();
    let mut bytes = events.bytes().to_vec();
    for (at, value) in &events.patches {
        bytes[*at as usize..][..8].copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(directory.join("traces/0.evt"), bytes).unwrap();
    let mut none = Vec::new();
    RecordWriter::new(CHUNK).finish(&mut none);
    std::fs::write(directory.join("traces/0.def"), none).unwrap();
    let mut writer = RecordWriter::new(CHUNK);
    let (mut file, mut bytes) = (Vec::new(), Vec::new());
    for (name, data) in definitions(clock, steps.len() as u64) {
        let mut records = records::DEFINITIONS.iter();
        let record = records.find(|record| record.name == name).unwrap();
        bytes.clear();
        put_record(record, &data, &mut bytes);
        writer.write(&bytes, &mut file).unwrap();
    }
    let definition_count = writer.count;
    writer.finish(&mut file);
    std::fs::write(directory.join("traces.def"), file).unwrap();
    let anchor = Anchor {
        anchor_format: 3,
        trace_format: 2,
        version: [3, 0, 0],
        event_chunk_size: CHUNK,
        definition_chunk_size: CHUNK,
        location_count: 1,
        definition_count,
        machine: String::new(),
        creator: creator.to_owned(),
        description: String::new(),
        properties: Vec::new(),
        trace_id: Some(1),
        snapshot_count: 0,
        thumbnail_count: 0,
    };
    let mut bytes = Vec::new();
    anchor.encode(&mut bytes);
    let path = directory.join("traces.otf2");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// A call: region, begin, end, how it ended.
type FoundCall = (u64, i64, i64, Close);

/// When and how a call ended.
type End = Option<(i64, Close)>;

/// Returns the calls of a sequence of steps, and how many leaves end none. The stack is a list of all calls so far.
fn calls_of(steps: &[(u64, Step)]) -> (Vec<FoundCall>, u64) {
    let last = steps.last().map_or(0, |step| step.0 as i64);
    let mut calls: Vec<(u64, i64, End)> = Vec::new();
    let mut unmatched = 0;
    for (time, step) in steps {
        let time = *time as i64;
        match *step {
            Step::Enter(region) => calls.push((region, time, None)),
            Step::Leave(region) => {
                let open = |call: &(u64, i64, End)| call.2.is_none();
                let of_name = calls
                    .iter()
                    .rposition(|call| open(call) && call.0 == region);
                let innermost = calls.iter().rposition(open);
                match of_name.or(innermost) {
                    None => unmatched += 1,
                    Some(at) => {
                        for call in calls[at + 1..].iter_mut().filter(|call| open(call)) {
                            call.2 = Some((time, Close::Unleft));
                        }
                        calls[at].2 = Some((time, Close::Left));
                    }
                }
            }
        }
    }
    let calls = calls.into_iter().map(|(region, begin, end)| {
        let (end, how) = end.unwrap_or((last, Close::Open));
        (region, begin, end, how)
    });
    (calls.collect(), unmatched)
}

/// Returns the calls of an archive, ordered, and how many leaves `regions` reports without an enter.
fn read(anchor: &Path) -> (Vec<FoundCall>, u64) {
    let reader = Reader::open(anchor).unwrap();
    let mut calls = Vec::new();
    let read = reader.for_each_call(&Query::new(), |call| {
        let region = call.name();
        let region = region.strip_prefix("region ").unwrap().parse().unwrap();
        calls.push((region, call.begin, call.end, call.how));
        ControlFlow::Continue(())
    });
    read.unwrap();
    let (_, out, _) = crate::cli(&["regions", "--json", anchor.to_str().unwrap()]);
    let table: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = table["regions"].as_array().unwrap().iter();
    let unmatched = rows.map(|row| row["unmatched_leaves"].as_u64().unwrap());
    (calls, unmatched.sum())
}

fn check(programs: &Programs, steps: &[(u64, Step)]) {
    let scratch = tempfile::tempdir().unwrap();
    let length = steps.last().map_or(0, |step| step.0);
    let anchor = write(
        scratch.path(),
        "test",
        [1_000_000_000, 0, length, u64::MAX],
        steps,
    );
    let order = |call: &FoundCall| (call.1, call.2, call.0);
    let (mut expected, unmatched) = calls_of(steps);
    let (mut found, counted) = read(&anchor);
    expected.sort_by_key(order);
    found.sort_by_key(order);
    assert_eq!(found, expected);
    assert_eq!(counted, unmatched);
    // Written back, and written as a trace in between, leaves name what they named.
    let lines = programs.read(&anchor);
    let trace = scratch.path().join("run.annals");
    crate::convert(std::slice::from_ref(&anchor), &trace);
    for from in [anchor, trace] {
        let back = scratch.path().join("back").join("traces.otf2");
        crate::to_archive(&[from], &back);
        assert_eq!(programs.read(&back), lines);
    }
}

#[test]
fn a_leave_of_another_name_ends_the_innermost_call() {
    let programs = Programs::compile();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let step = prop_oneof![
        (0..REGIONS).prop_map(Step::Enter),
        (0..=RENAMED).prop_map(Step::Leave),
    ];
    let outcome = runner.run(&prop::collection::vec(step, 1..120), |steps| {
        let steps: Vec<(u64, Step)> = (0..).step_by(7).zip(steps).collect();
        check(&programs, &steps);
        Ok(())
    });
    outcome.unwrap();
    // Of several parts, deep, with calls that go on from part to part.
    let mut seed = 1_u64;
    let mut depth = 0_u64;
    let long = (0..60_000_u64).map(|at| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = seed >> 33;
        let goal = if at < 30_000 { 40 } else { 3 };
        let step = match random % 64 < 32 + goal - depth.min(goal + 30) {
            true => Step::Enter(random / 64 % REGIONS),
            false if random.is_multiple_of(3) => Step::Leave(RENAMED),
            false => Step::Leave(random / 64 % REGIONS),
        };
        match step {
            Step::Enter(_) => depth += 1,
            Step::Leave(_) => depth = depth.saturating_sub(1),
        }
        (at * 5, step)
    });
    check(&programs, &long.collect::<Vec<_>>());
}

#[test]
fn a_start_of_zero_that_is_not_set_is_the_first_event() {
    // Times since the host was started, a day ago: the run lasted a second.
    const BOOT: u64 = 86_400_000_000_000;
    let steps = [
        (BOOT, Step::Enter(0)),
        (BOOT + 1_000_000_000, Step::Leave(0)),
    ];
    let soon = [(500, Step::Enter(0)), (2_000, Step::Leave(0))];
    for (creator, clock, steps, begin) in [
        (
            "lo2s",
            [1_000_000_000, 0, 1_000_000_000, u64::MAX],
            &steps,
            0,
        ),
        (
            "lo2s",
            [1_000_000_000, 0, BOOT + 1_000_000_000, 5],
            &steps,
            0,
        ),
        (
            "lo2s",
            [1_000_000_000, BOOT - 7, 1_000_000_007, 5],
            &steps,
            7,
        ),
        // From the trace's start on: 500 ns before the first event are short.
        ("other", [1_000_000_000, 0, 2_000, u64::MAX], &soon, 500),
        (
            "Annals 0.1.0",
            [1_000_000_000, 0, BOOT + 1_000_000_000, 5],
            &steps,
            BOOT as i64,
        ),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let anchor = write(scratch.path(), creator, clock, steps);
        let back = scratch.path().join("back.otf2");
        crate::to_archive(std::slice::from_ref(&anchor), &back);
        for anchor in [anchor, back] {
            let (calls, _) = read(&anchor);
            assert_eq!((calls.len(), calls[0].1), (1, begin), "{creator} {clock:?}");
        }
    }
}
