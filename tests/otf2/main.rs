//! OTF2 against its reference library: what it writes we read, what we write it reads, event for event.

mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::otf2::{Kind, Record, What, records};
use annals_merger::{ArchiveOptions, WriteOptions, plan_merge, write_archive, write_trace};
use reference::Programs;
use serde_json::Value as Json;

fn cli(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn json_lines(arguments: &[&str]) -> Vec<Json> {
    let (code, out, err) = cli(arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn convert(inputs: &[PathBuf], output: &Path) {
    let (merge, rejected) = plan_merge(inputs, Some(output)).unwrap();
    assert_eq!(rejected, []);
    let options = WriteOptions {
        compression: "1".parse().unwrap(),
        jobs: 2,
    };
    write_trace(&merge, output, options, |_| {}).unwrap();
}

fn to_archive(inputs: &[PathBuf], output: &Path) {
    let (merge, rejected) = plan_merge(inputs, Some(output)).unwrap();
    assert_eq!(rejected, []);
    let options = ArchiveOptions {
        jobs: 2,
        event_chunk_size: 256 << 10,
    };
    write_archive(&merge, output, options, |_| {}).unwrap();
}

/// A line of the reference reader.
struct Line<'a> {
    name: &'a str,
    location: u64,
    time: u64,
    values: Vec<u64>,
    attributes: Vec<(u32, u8, u64)>,
}

fn parse(line: &str) -> Line<'_> {
    let (event, attributes) = line.split_once(" |").unwrap();
    let mut words = event.split(' ');
    let name = words.next().unwrap();
    let mut numbers = words.map(|word| word.parse::<u64>().unwrap());
    let (location, time) = (numbers.next().unwrap(), numbers.next().unwrap());
    let attributes = attributes.split_whitespace().map(|word| {
        let mut parts = word.split(':').map(|part| part.parse::<u64>().unwrap());
        let mut next = || parts.next().unwrap();
        (next() as u32, next() as u8, next())
    });
    Line {
        name,
        location,
        time,
        values: numbers.collect(),
        attributes: attributes.collect(),
    }
}

/// The same event with additional values in the order of their numbers: an event type has them in its own order.
fn sorted(line: &str) -> String {
    let mut parsed = parse(line);
    parsed.attributes.sort_unstable();
    format!(
        "{} {} {} {:?} {:?}",
        parsed.name, parsed.location, parsed.time, parsed.values, parsed.attributes
    )
}

/// What an element must show for a reference, in the archives that the reference program writes.
fn name_of(kind: Kind, id: u64) -> Option<String> {
    if id == kind.undefined() {
        return Some(String::new());
    }
    Some(match kind {
        Kind::String if id == 0 => String::new(),
        Kind::SourceCodeLocation => format!("string-4:{}", 10 + id),
        Kind::CallingContext => format!("region-{id}"),
        // By the names of its members.
        Kind::Metric | Kind::Location => return None,
        kind => format!("{}-{id}", kind.name()),
    })
}

fn number(json: &Json) -> i128 {
    let number = json
        .as_number()
        .unwrap_or_else(|| panic!("a number, not {json}"));
    number
        .as_i128()
        .unwrap_or_else(|| number.as_f64().unwrap() as i128)
}

fn element_name(name: &str) -> &str {
    match name {
        "receiver" | "sender" => "rank_in_communicator",
        "msg_tag" => "tag",
        "msg_length" => "bytes",
        "request_id" => "request",
        "collective_op" => "operation",
        "root" => "root_in_communicator",
        "size_sent" => "bytes_sent",
        "size_received" => "bytes_received",
        other => other,
    }
}

fn check_reference(kind: Kind, id: u64, found: &Json, line: &str) {
    match name_of(kind, id) {
        // Lost ones have no name, or one that says so.
        Some(name) if name.is_empty() && id != 0 => {}
        Some(name) => assert_eq!(found.as_str(), Some(&*name), "{line}"),
        None => {}
    }
}

/// JSON's numbers are read to the last bit but one.
fn check_float(expected: f64, found: &Json, text: &str) {
    match found.as_f64() {
        Some(found) => assert!(
            (found - expected).abs() <= expected.abs() * 1e-15,
            "{found}: {text}"
        ),
        None => assert!(found.is_null() && !expected.is_finite(), "{found}: {text}"),
    }
}

fn check_event(record: &Record, line: &Line<'_>, found: &Json, text: &str) {
    let elements = &found["elements"];
    for (index, field) in record.fields.iter().enumerate() {
        let element = &elements[element_name(field.name)];
        match field.what {
            What::Ref8(kind) | What::Ref32(kind) | What::Ref64(kind) => {
                check_reference(kind, line.values[index], element, text);
            }
            What::List8(_) => {
                let values: Vec<u64> = line.values[1..]
                    .iter()
                    .skip(1)
                    .step_by(2)
                    .copied()
                    .collect();
                for (index, value) in values.iter().enumerate() {
                    let name = if values.len() == 1 {
                        "value".to_owned()
                    } else {
                        format!("member-{index}")
                    };
                    let found = &elements[name];
                    match index % 3 {
                        0 => assert_eq!(found.as_u64(), Some(*value), "{text}"),
                        1 => assert_eq!(found.as_i64(), Some(*value as i64), "{text}"),
                        _ => check_float(f64::from_bits(*value), found, text),
                    }
                }
            }
            What::List32(_) => {
                for (index, value) in line.values[1..].iter().enumerate() {
                    let found = &elements[format!("argument_{}", index + 1)];
                    check_reference(Kind::String, *value, found, text);
                }
            }
            What::Ci64 => assert_eq!(
                number(element),
                i128::from(line.values[index] as i64),
                "{text}"
            ),
            _ => assert_eq!(number(element), i128::from(line.values[index]), "{text}"),
        }
    }
    for (attribute, type_code, bits) in &line.attributes {
        // Several types of one attribute are several elements.
        let wanted = format!("attribute-{attribute}");
        let members = elements.as_object().unwrap().iter();
        let named = members.filter(|(name, _)| name.split(" (").next() == Some(&*wanted));
        let mut named =
            named.filter(|_| line.attributes.iter().filter(|a| a.0 == *attribute).count() == 1);
        let Some((_, found)) = named.next() else {
            // What has no place of its own; that it is right shows on the way back.
            assert!(
                elements["more_attributes"].is_string(),
                "{wanted} in {found}: {text}"
            );
            continue;
        };
        match (Kind::of_type(*type_code), type_code) {
            (Some(kind), _) => check_reference(kind, *bits, found, text),
            (None, 9) => assert_eq!(
                found.as_f64().unwrap() as f32,
                f32::from_bits(*bits as u32),
                "{text}"
            ),
            (None, 10) => check_float(f64::from_bits(*bits), found, text),
            (None, 5..=8) => assert_eq!(number(found), i128::from(*bits as i64), "{text}"),
            (None, _) => assert_eq!(number(found), i128::from(*bits), "{text}"),
        }
    }
}

/// Event types of metrics are named by their classes.
fn plain_name(found: &Json) -> String {
    let name = found["event"].as_str().unwrap();
    name.split(':').next().unwrap().to_owned()
}

fn counts<'a>(names: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    names.for_each(|name| *counts.entry(name.to_owned()).or_default() += 1);
    counts
}

/// Compares `print` with what the reference reader read, in its order of (time, location).
fn compare_print(anchor: &Path, expected: &[String], resolution: u64) {
    let found = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    assert_eq!(found.len(), expected.len());
    let lines: Vec<Line<'_>> = expected.iter().map(|line| parse(line)).collect();
    // Ours are ordered by rank, then location; theirs by location.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    let by_location = |found: &Json| found["location"].as_str().unwrap().to_owned();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let ids: std::collections::BTreeSet<u64> = lines.iter().map(|line| line.location).collect();
    for (index, id) in ids.iter().enumerate() {
        names.insert(*id, format!("location-{index}"));
    }
    order.sort_by_key(|index| (&names[&lines[*index].location], *index));
    let mut ours: Vec<usize> = (0..found.len()).collect();
    ours.sort_by_key(|index| (by_location(&found[*index]), *index));
    let zero = 1_000_000_000_000_u64;
    let least = lines.iter().map(|line| line.time).min().unwrap().min(zero);
    for (theirs, ours) in order.iter().zip(&ours) {
        let (line, text, found) = (&lines[*theirs], &expected[*theirs], &found[*ours]);
        assert_eq!(plain_name(found), line.name, "{text}\n{found}");
        assert_eq!(by_location(found), names[&line.location], "{text}");
        let ns = |time: u64| {
            (i128::from(time) - i128::from(zero)) * 1_000_000_000 / i128::from(resolution)
        };
        let time_ns = ns(line.time) - ns(least);
        let off = (i128::from(found["time_ns"].as_i64().unwrap()) - time_ns).abs();
        assert!(
            off <= i128::from(resolution != 1_000_000_000),
            "{off}: {text}\n{found}"
        );
        let mut all = records::EVENTS.iter();
        let record = all.find(|record| record.capitals == line.name).unwrap();
        check_event(record, line, found, text);
    }
}

fn archive(
    programs: &Programs,
    to: &Path,
    seed: u64,
    locations: u32,
    events: u64,
    resolution: u64,
) -> (PathBuf, Vec<String>) {
    let anchor = programs.write(to, seed, locations, events, resolution);
    let lines = programs.read(&anchor);
    assert_eq!(lines.len() as u64, u64::from(locations) * events);
    (anchor, lines)
}

/// Records that may be told apart by the order within a location only.
fn by_location(lines: &[String]) -> BTreeMap<u64, Vec<String>> {
    let mut each: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in lines {
        each.entry(parse(line).location)
            .or_default()
            .push(sorted(line));
    }
    each
}

#[test]
fn every_event_record_of_the_reference_library_is_read_and_written_back() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    for (seed, locations, events, resolution) in [
        (1, 5, 3_000, 1_000_000_000),
        (2, 1, 60_000, 2_700_000_000),
        (3, 8, 500, 1_000_000),
    ] {
        let directory = scratch.path().join(format!("archive-{seed}"));
        let (anchor, lines) = archive(&programs, &directory, seed, locations, events, resolution);
        let all = counts(lines.iter().map(|line| parse(line).name));
        let is_large = u64::from(locations) * events > 10_000;
        assert!(!is_large || all.len() == 78, "{} records of 78", all.len());
        compare_print(&anchor, &lines, resolution);

        // Counts by type, as `events` tells them.
        let text = anchor.to_str().unwrap();
        let (code, told, _) = cli(&["events", "--json", text]);
        assert_eq!(code, 0);
        let told: Json = serde_json::from_str(&told).unwrap();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for row in told["event_types"].as_array().unwrap() {
            let name = row["name"].as_str().unwrap().split(':').next().unwrap();
            *sums.entry(name.to_owned()).or_default() += row["events"].as_u64().unwrap();
        }
        assert_eq!(sums, all);

        // There and back: directly, and by way of a trace.
        let back = directory.join("back.otf2");
        to_archive(std::slice::from_ref(&anchor), &back);
        let read = programs.read(&back);
        assert_eq!(by_location(&read), by_location(&lines), "straight back");
        let trace = directory.join("trace.annals");
        convert(std::slice::from_ref(&anchor), &trace);
        let back = directory.join("again.otf2");
        to_archive(&[trace], &back);
        let read = programs.read(&back);
        assert_eq!(by_location(&read), by_location(&lines), "by way of a trace");
        let definitions = |anchor: &Path| -> BTreeMap<String, u64> {
            counts(programs.print(anchor, &["-G"]).lines())
        };
        let (theirs, ours) = (definitions(&anchor), definitions(&back));
        let differing = theirs
            .iter()
            .filter(|(line, count)| ours.get(*line) != Some(count));
        let differing: Vec<_> = differing.collect();
        assert_eq!(
            differing,
            [] as [(&String, &u64); 0],
            "of {} lines",
            theirs.len()
        );
        assert_eq!(ours.len(), theirs.len());
    }
}
