//! OTF2 against its reference library: what it writes we read, what we write it reads, event for event.

mod native;
mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::otf2::{Kind, Record, What, records};
use annals_merger::{ArchiveOptions, WriteOptions, plan_merge, write_archive, write_trace};
use proptest::prelude::*;
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
    let zero = 1_000_000_000_000_u64 - 100_000;
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

/// What the Python reader counts, by kind of event; it must not complain.
fn python_counts(anchor: &Path) -> Option<BTreeMap<String, u64>> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/otf2-python/bin/python");
    if !python.exists() {
        eprintln!("NOT TESTED: the Python reader (tests/run.sh installs it)");
        return None;
    }
    let program = "import collections, otf2, sys
with otf2.reader.open(sys.argv[1]) as trace:
    counts = collections.Counter(type(event).__name__ for _, event in trace.events)
    assert sum(location.number_of_events for location in trace.definitions.locations) == sum(counts.values())
    for name, count in counts.items(): print(name, count)";
    let output = Command::new(python)
        .args(["-W", "error", "-c", program])
        .arg(anchor)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let pairs = text.lines().map(|line| line.split_once(' ').unwrap());
    Some(
        pairs
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect(),
    )
}

/// The record that an event of ours becomes.
fn record_of(event: &Json) -> &'static str {
    match event["event"].as_str().unwrap() {
        "enter" => "ENTER",
        "leave" => "LEAVE",
        "counter" | "gauge" => "METRIC",
        "maybe" if event["elements"].get("value").is_some() => "METRIC",
        "send" => "MPI_SEND",
        "isend" => "MPI_ISEND",
        "receive" => "MPI_RECV",
        "irecv" => "MPI_IRECV",
        "start" => "MPI_IRECV_REQUEST",
        "sent" => "MPI_ISEND_COMPLETE",
        "cancel" => "MPI_REQUEST_CANCELLED",
        "collective-begin" => "MPI_COLLECTIVE_BEGIN",
        "collective-end" => "MPI_COLLECTIVE_END",
        _ => "PARAMETER_STRING",
    }
}

fn check_native(programs: &Programs, inputs: &Path, anchor: &Path) {
    to_archive(&[inputs.to_owned()], anchor);
    let ours = json_lines(&["print", "--json", inputs.to_str().unwrap()]);
    let read = programs.read(anchor);
    let theirs: Vec<Line<'_>> = read.iter().map(|line| parse(line)).collect();
    let mut theirs: Vec<(i64, &str)> = theirs
        .iter()
        .map(|line| (line.time as i64, line.name))
        .collect();
    let mut expected: Vec<(i64, &str)> = ours
        .iter()
        .map(|event| (event["time_ns"].as_i64().unwrap(), record_of(event)))
        .collect();
    theirs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(theirs, expected);
    for view in [
        &[][..],
        &["-G"],
        &["-I"],
        &["-A"],
        &["--show-all"],
        &["--system-tree"],
    ] {
        programs.print(anchor, view);
    }
    if let Some(counts) = python_counts(anchor) {
        assert_eq!(counts.values().sum::<u64>(), ours.len() as u64);
    }
    // Our own reader: names of regions, values and additional values.
    let back = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    assert_eq!(back.len(), ours.len());
    let key = |event: &Json, name: String| {
        let values: BTreeMap<String, String> = event["elements"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect();
        (event["time_ns"].as_i64().unwrap(), name, values)
    };
    // Events of one moment and kind come in any order.
    let mut there: BTreeMap<(i64, String), Vec<BTreeMap<String, String>>> = BTreeMap::new();
    for event in &back {
        let (time, name, values) = key(event, plain_name(event));
        there.entry((time, name)).or_default().push(values);
    }
    for event in &ours {
        let (time, name, expected) = key(event, record_of(event).to_owned());
        let candidates = there.get_mut(&(time, name.clone())).unwrap();
        let has = |values: &BTreeMap<String, String>, element: &String, value: &String| {
            // An attribute with the name of something that the reader makes of the record has another.
            let is_it = |(name, found): (&String, &String)| {
                name.split(" (").next() == Some(element) && found == value
            };
            values.iter().any(is_it)
        };
        let is_this = |values: &BTreeMap<String, String>| {
            expected
                .iter()
                .all(|(element, value)| has(values, element, value))
        };
        let found = candidates.iter().position(is_this);
        let found = found.unwrap_or_else(|| panic!("{name} {expected:?} among {candidates:?}"));
        candidates.swap_remove(found);
    }
}

#[test]
fn what_is_written_is_accepted_by_every_reader() {
    let programs = Programs::compile();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 12,
        max_shrink_iters: 20,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let event = (0_u8..3, 0..native::TYPE_COUNT, any::<u64>(), any::<u64>());
    let ranks = prop::collection::vec(prop::collection::vec(event, 0..120), 1..4);
    let outcome = runner.run(&ranks, |ranks| {
        let scratch = tempfile::tempdir().unwrap();
        let inputs = scratch.path().join("inputs");
        std::fs::create_dir(&inputs).unwrap();
        for (rank, events) in ranks.iter().enumerate() {
            native::write(&inputs, rank as u32, ranks.len() as u32, events);
        }
        check_native(&programs, &inputs, &scratch.path().join("native.otf2"));
        Ok(())
    });
    outcome.unwrap();
}

/// The archives of real programs, where they are.
#[test]
fn archives_of_real_programs_are_read_and_written_back() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference/otf2-samples");
    let samples = std::env::var_os("ANNALS_OTF2_SAMPLES").map_or(samples, PathBuf::from);
    let Ok(directories) = std::fs::read_dir(&samples) else {
        eprintln!(
            "NOT TESTED: {} is not there (ANNALS_OTF2_SAMPLES names another place)",
            samples.display()
        );
        return;
    };
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    for directory in directories {
        let files = std::fs::read_dir(directory.unwrap().path()).unwrap();
        let mut files = files.map(|file| file.unwrap().path());
        let Some(anchor) = files.find(|path| path.extension().is_some_and(|e| e == "otf2")) else {
            continue;
        };
        let lines = programs.read(&anchor);
        // The reference's own print, event for event.
        let printed = programs.print(&anchor, &[]);
        let printed = printed.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?;
            let location = words.next()?.parse::<u64>().ok()?;
            Some((
                name.to_owned(),
                location,
                words.next()?.parse::<u64>().ok()?,
            ))
        });
        let printed: Vec<_> = printed.collect();
        let parsed = lines.iter().map(|line| parse(line));
        let parsed: Vec<_> = parsed
            .map(|line| (line.name.to_owned(), line.location, line.time))
            .collect();
        assert_eq!(printed, parsed);
        // Ours, in trace time.
        let clock = programs.print(&anchor, &["-G"]);
        let clock = clock
            .lines()
            .find(|line| line.starts_with("CLOCK_PROPERTIES"));
        let number = |name: &str| {
            let rest = clock
                .and_then(|line| line.split_once(name))
                .map(|(_, rest)| rest);
            rest.and_then(|rest| rest.split(',').next()?.trim().parse::<i128>().ok())
        };
        let resolution = number("Ticks per Seconds:")
            .filter(|r| *r != 0)
            .unwrap_or(1_000_000_000);
        let least = parsed
            .iter()
            .map(|(.., time)| i128::from(*time))
            .min()
            .unwrap();
        let zero = number("Global Offset:").unwrap_or(least).min(least);
        let found = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
        let mut ours: Vec<(i128, String)> = found
            .iter()
            .map(|event| (event["time_ns"].as_i64().unwrap().into(), plain_name(event)))
            .collect();
        let mut theirs: Vec<(i128, String)> = parsed
            .iter()
            .map(|(name, _, time)| {
                (
                    (i128::from(*time) - zero) * 1_000_000_000 / resolution,
                    name.clone(),
                )
            })
            .collect();
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs, "{}", anchor.display());
        let back = scratch.path().join("back.otf2");
        to_archive(std::slice::from_ref(&anchor), &back);
        assert_eq!(by_location(&programs.read(&back)), by_location(&lines));
        let trace = scratch.path().join("trace.annals");
        convert(std::slice::from_ref(&anchor), &trace);
        to_archive(&[trace], &back);
        assert_eq!(by_location(&programs.read(&back)), by_location(&lines));
    }
}

#[test]
fn a_damaged_file_costs_its_own_location_only() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let (locations, events) = (4_u64, 60_000_u64);
    let (anchor, lines) = archive(
        &programs,
        &scratch.path().join("whole"),
        5,
        4,
        events,
        1_000_000_000,
    );
    let files = anchor.with_extension("");
    let victim = files.join("1.evt");
    let bytes = std::fs::read(&victim).unwrap();
    assert!(bytes.len() > 3 << 18, "several chunks");
    let read = |text: &str| -> (i32, Json) {
        let (code, out, _) = cli(&["verify", "--json", text]);
        (code, serde_json::from_str(&out).unwrap())
    };
    let text = anchor.to_str().unwrap();
    let (code, whole) = read(text);
    assert_eq!(
        (code, whole["events"].as_u64()),
        (0, Some(locations * events))
    );
    let others = |lines: &[String]| -> BTreeMap<u64, Vec<String>> {
        let mut each = by_location(lines);
        each.remove(&1);
        each
    };
    let cut = |length: usize| bytes[..length].to_vec();
    let mut in_the_middle = bytes.clone();
    // No such size of an integer, over and over: nothing in this chunk can be read from here on.
    in_the_middle[(1 << 18) + 5_000..(1 << 18) + 9_000].fill(0x0b);
    let mut no_header = bytes.clone();
    no_header[1 << 18] = 9;
    let cases = [
        ("cut within a record", Some(cut(bytes.len() / 2 + 1_001))),
        ("cut at a chunk", Some(cut(1 << 18))),
        ("empty", Some(Vec::new())),
        ("missing", None),
        ("damaged in the middle", Some(in_the_middle)),
        ("a chunk without a header", Some(no_header)),
    ];
    for (what, damaged) in cases {
        match damaged {
            Some(damaged) => std::fs::write(&victim, damaged).unwrap(),
            None => std::fs::remove_file(&victim).unwrap(),
        }
        let (code, found) = read(text);
        assert_eq!(code, 3, "{what}: {found}");
        let totals = &found["totals"];
        let number = |name: &str| totals[name].as_u64().unwrap();
        let lost = number("skipped") + number("truncated");
        let read_events = found["events"].as_u64().unwrap();
        assert!(
            lost > 0 && read_events >= (locations - 1) * events,
            "{what}: {found}"
        );
        // What chunks and definitions tell makes counts exact.
        assert_eq!(read_events + lost, locations * events, "{what}: {found}");
        assert!(
            found["damage"]
                .as_array()
                .is_some_and(|damage| !damage.is_empty()),
            "{what}"
        );
        // The others are whole, event for event, and what is written of them can be read by all.
        let back = scratch.path().join("back.otf2");
        let (merge, rejected) = plan_merge(std::slice::from_ref(&anchor), Some(&back)).unwrap();
        assert_eq!(rejected, [], "{what}");
        write_archive(&merge, &back, ArchiveOptions::default(), |_| {}).unwrap();
        let written = programs.read(&back);
        assert_eq!(others(&written), others(&lines), "{what}");
        let of_victim = by_location(&written).remove(&1).unwrap_or_default();
        let shown = of_victim
            .iter()
            .filter(|line| line.starts_with("MEASUREMENT_ON_OFF") && line.contains("[2]"));
        assert!(shown.count() > 0, "{what}: the loss is not shown");
        let marked = Command::new("otf2-marker").arg(&back).output().unwrap();
        assert!(
            String::from_utf8_lossy(&marked.stdout).contains("lost"),
            "{what}"
        );
        std::fs::write(&victim, &bytes).unwrap();
    }
    // The reference reads none of them then.
    std::fs::remove_file(&victim).unwrap();
    let print = Command::new("otf2-print").arg(&anchor).output().unwrap();
    assert!(!print.status.success());
}

#[test]
fn several_archives_and_recordings_are_merged_at_once() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let mut inputs = Vec::new();
    let mut expected = 0;
    for (seed, resolution) in [(11, 1_000_000_000), (12, 2_000_000_000)] {
        let directory = scratch.path().join(seed.to_string());
        let (anchor, lines) = archive(&programs, &directory, seed, 3, 400, resolution);
        expected += lines.len();
        inputs.push(anchor);
    }
    let native = scratch.path().join("native");
    std::fs::create_dir(&native).unwrap();
    let events: Vec<_> = (0..200_u64)
        .map(|n| ((n % 3) as u8, n as usize, n * 7, n * 31))
        .collect();
    native::write(&native, 0, 1, &events);
    expected += events.len();
    inputs.push(native);
    let (merge, rejected) = plan_merge(&inputs, None).unwrap();
    assert_eq!(rejected, []);
    let anchor = scratch.path().join("all.otf2");
    let (merged, _) = write_archive(&merge, &anchor, ArchiveOptions::default(), |_| {}).unwrap();
    assert_eq!(merged.report.totals.present(), expected as u64);
    assert_eq!(programs.read(&anchor).len(), expected);
    // (The Python reader takes the flags of an inter-communicator for a reference: it reads none of these.)
    programs.print(&anchor, &["-G"]);
    // The same inputs give the same bytes, whatever their order.
    let again = scratch.path().join("again.otf2");
    inputs.reverse();
    to_archive(&inputs, &again);
    let (merge, _) = plan_merge(&inputs, None).unwrap();
    write_archive(
        &merge,
        &again,
        ArchiveOptions {
            jobs: 2,
            ..ArchiveOptions::default()
        },
        |_| {},
    )
    .unwrap();
    for name in ["def", "otf2"] {
        let bytes = |anchor: &Path| std::fs::read(anchor.with_extension(name)).unwrap();
        assert!(bytes(&anchor) == bytes(&again), "{name}");
    }
}
