//! OTF2 against its reference library: what it writes we read, what we write it reads, event for event.

mod conversion;
mod native;
mod ranks;
mod reference;
mod renamed;
mod samples;
mod variants;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_export::otf2::{ArchiveOptions, Written, write_archive};
use annals_foreign::otf2::{Anchor, DefinitionKind, FieldType, Record, records};
use annals_merger::{MergeOptions, MergePlan, Query, no_progress};
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

fn planned(inputs: &[PathBuf], output: &Path) -> MergePlan {
    let mut options = MergeOptions::new();
    options.output = Some(output.to_owned());
    options.jobs = 2;
    let plan = options.plan(inputs).unwrap();
    assert_eq!(plan.rejected(), []);
    plan
}

fn convert(inputs: &[PathBuf], output: &Path) {
    let plan = planned(inputs, output);
    plan.write_trace(output, no_progress).unwrap();
}

fn to_archive(inputs: &[PathBuf], output: &Path) {
    let options = ArchiveOptions {
        event_chunk_size: 256 << 10,
        ..ArchiveOptions::default()
    };
    write_planned(planned(inputs, output), output, options);
}

/// Writes what a merge would write as an archive.
fn write_planned(plan: MergePlan, output: &Path, options: ArchiveOptions) -> Written {
    let reader = plan.into_reader();
    write_archive(&reader, &Query::new(), output, options, no_progress).unwrap()
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

/// Returns the event with additional values in the order of their numbers: event types have them in different orders.
fn sorted(line: &str) -> String {
    let mut parsed = parse(line);
    parsed.attributes.sort_unstable();
    format!(
        "{} {} {} {:?} {:?}",
        parsed.name, parsed.location, parsed.time, parsed.values, parsed.attributes
    )
}

/// Returns what an element must show for a reference, in the archives that the reference program
/// writes.
fn name_of(kind: DefinitionKind, id: u64) -> Option<String> {
    if id == kind.undefined() {
        return Some(String::new());
    }
    Some(match kind {
        DefinitionKind::String if id == 0 => String::new(),
        DefinitionKind::SourceCodeLocation => format!("string-4:{}", 10 + id),
        DefinitionKind::CallingContext => format!("region-{id}"),
        // By the names of its members.
        DefinitionKind::Metric | DefinitionKind::Location => return None,
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

fn number_of(json: &Json) -> String {
    number(json).to_string()
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

fn check_reference(kind: DefinitionKind, id: u64, found: &Json, line: &str) {
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
        let name = match &elements["named_region"] {
            Json::String(_) if field.name == "region" => "named_region",
            _ => element_name(field.name),
        };
        let element = &elements[name];
        match field.what {
            FieldType::Ref8(kind) | FieldType::Ref32(kind) | FieldType::Ref64(kind) => {
                check_reference(kind, line.values[index], element, text);
            }
            FieldType::List8(_) => {
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
            FieldType::List32(_) => {
                for (index, value) in line.values[1..].iter().enumerate() {
                    let found = &elements[format!("argument_{}", index + 1)];
                    check_reference(DefinitionKind::String, *value, found, text);
                }
            }
            FieldType::Ci64 => assert_eq!(
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
            // Values without a separate place; the conversion back checks that they are right.
            assert!(
                elements["more_attributes"].is_string(),
                "{wanted} in {found}: {text}"
            );
            continue;
        };
        match (DefinitionKind::of_type(*type_code), type_code) {
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

/// Records that only the order within a location distinguishes.
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

        // Counts by type, as `events` prints them.
        let text = anchor.to_str().unwrap();
        let (code, told, _) = cli(&["events", "--json", text]);
        assert_eq!(code, 0);
        let told: Json = serde_json::from_str(&told).unwrap();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for row in told["event_types"].as_array().unwrap() {
            let name = row["event"].as_str().unwrap().split(':').next().unwrap();
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

/// Returns what the Python reader counts, by kind of event; it must not complain.
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

/// Returns the record that an event of ours becomes.
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

/// Every view of the reference's print takes an archive without a warning.
fn accepted(programs: &Programs, anchor: &Path) {
    for view in [
        &[][..],
        &["--show-global-defs"],
        &["--show-info"],
        &["--show-all"],
        &["--show-thumbnails"],
        &["--show-mappings"],
        &["--show-clock-offsets"],
        &["--system-tree"],
        &["--unwind-calling-context"],
        &["--timestamps=offset"],
        &["--silent", "-Werror"],
    ] {
        programs.print(anchor, view);
    }
}

/// A program that lost events on one of its ranks: the reference takes what is written of it, and says where.
#[test]
fn a_run_with_losses_is_accepted_by_every_reader() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let files = scratch.path().join("files");
    std::fs::create_dir(&files).unwrap();
    for number in 0..40 {
        let text = format!("{number} ").repeat(2_000);
        std::fs::write(files.join(number.to_string()), text).unwrap();
    }
    let demo = scratch.path().join("demo");
    let (demo_text, files) = (demo.to_str().unwrap(), files.to_str().unwrap());
    let (code, out, err) = cli(&["demo", files, "--output", demo_text]);
    assert_eq!(code, 0, "{out}{err}");
    let anchor = scratch.path().join("run.otf2");
    to_archive(std::slice::from_ref(&demo), &anchor);
    accepted(&programs, &anchor);
    let lines = programs.read(&anchor);
    let ours = json_lines(&["print", "--json", demo_text]);
    let is_loss = |line: &&String| line.starts_with("MEASUREMENT_ON_OFF");
    let losses = lines.iter().filter(is_loss).count();
    assert_eq!(lines.len() - losses, ours.len());
    let marks = programs.marks(&anchor);
    let lost = marks.iter().filter(|line| line.contains(" lost: "));
    assert_eq!(
        2 * lost.count(),
        losses,
        "off and on, and a marker, for each"
    );
    assert!(losses > 0, "the demo loses events on purpose");
    if let Some(counts) = python_counts(&anchor) {
        assert_eq!(counts.values().sum::<u64>(), lines.len() as u64);
    }
    // Read again, the markers are separate events, and written again, they are markers.
    let again = scratch.path().join("again.otf2");
    to_archive(std::slice::from_ref(&anchor), &again);
    assert_eq!(by_location(&programs.read(&again)), by_location(&lines));
    let sorted_marks = |anchor: &Path| {
        let mut marks = programs.marks(anchor);
        marks.sort();
        marks
    };
    assert_eq!(sorted_marks(&again), sorted_marks(&anchor));
    accepted(&programs, &again);
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
    accepted(programs, anchor);
    if let Some(counts) = python_counts(anchor) {
        assert_eq!(counts.values().sum::<u64>(), ours.len() as u64);
    }
    // Our own reader: names of regions, values and additional values.
    let back = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    assert_eq!(back.len(), ours.len());
    let key = |event: &Json, name: String| {
        let mut values: BTreeMap<String, String> = event["elements"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.to_string()))
            .collect();
        // What a leave names, not what it ends.
        if let Some(named) = values.remove("named_region") {
            values.insert("region".to_owned(), named);
        }
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

#[test]
fn markers_of_archives_are_events_and_markers_again() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("marked");
    let (anchor, lines) = archive(&programs, &directory, 21, 3, 200, 2_000_000_000);
    // Several chunks and several parts.
    let count = 40_000;
    programs.mark(&anchor, count);
    let file = std::fs::metadata(anchor.with_extension("marker")).unwrap();
    assert!(file.len() > 4 << 18, "{} bytes", file.len());
    let marks = programs.marks(&anchor);
    assert_eq!(marks.len() as u64, count + 5);

    // In print they are events at their times.
    let found = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    assert_eq!(found.len() as u64, lines.len() as u64 + count);
    let categories: BTreeMap<&str, Vec<&str>> = marks
        .iter()
        .filter_map(|line| line.strip_prefix("definition\t"))
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|words| (words[0], words[1..].to_vec()))
        .collect();
    let least = lines.iter().map(|line| parse(line).time).min().unwrap();
    let least = least.min(1_000_000_000_000 - 100_000);
    let mut expected: Vec<String> = Vec::new();
    for line in marks
        .iter()
        .filter_map(|line| line.strip_prefix("marker\t"))
    {
        let words: Vec<&str> = line.split('\t').collect();
        let definition = &categories[words[2]];
        let time_ns = (words[0].parse::<u64>().unwrap() - least) / 2;
        let rest = [words[1], words[2], words[3], words[4], words[5]].join("|");
        expected.push(format!("{time_ns}|{}|{rest}", definition.join("|")));
    }
    let shown = |found: &Json| {
        let e = &found["elements"];
        let text = |name: &str| e[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| number(&e[name]).to_string();
        let words = [
            number_of(&found["time_ns"]),
            text("group"),
            text("category"),
            number("severity"),
            number("duration"),
            number("definition"),
            number("scope_type"),
            number("scope"),
            text("text"),
        ];
        words.join("|")
    };
    let markers = found.iter().filter(|found| found["event"] == "MARKER");
    let mut ours: Vec<String> = markers.clone().map(shown).collect();
    assert!(
        markers.clone().all(|marker| {
            let scope = marker["elements"]["scope_name"].as_str();
            match marker["elements"]["scope_type"].as_u64() {
                Some(1) => scope == Some("location-1"),
                Some(3) => scope == Some("machine-0") || scope == Some("host-1"),
                Some(0) => scope.is_none(),
                _ => scope.is_some(),
            }
        }),
        "scopes have names"
    );
    ours.sort();
    expected.sort();
    assert_eq!(ours, expected);

    // There and back: directly, and by way of a trace; events are what they were.
    let sorted_lines = |lines: &[String]| {
        let mut lines = lines.to_vec();
        lines.sort();
        lines
    };
    let back = directory.join("back.otf2");
    to_archive(std::slice::from_ref(&anchor), &back);
    assert_eq!(sorted_lines(&programs.marks(&back)), sorted_lines(&marks));
    assert_eq!(by_location(&programs.read(&back)), by_location(&lines));
    let trace = directory.join("trace.annals");
    convert(std::slice::from_ref(&anchor), &trace);
    to_archive(&[trace], &back);
    assert_eq!(sorted_lines(&programs.marks(&back)), sorted_lines(&marks));
    assert_eq!(by_location(&programs.read(&back)), by_location(&lines));
    programs.print(&back, &["-G"]);
    let tool = Command::new("otf2-marker").arg(&back).output().unwrap();
    assert!(tool.status.success() && tool.stderr.is_empty());

    // A merge of two archives has the markers of both, with separate definitions.
    let (other, _) = archive(
        &programs,
        &scratch.path().join("other"),
        22,
        2,
        100,
        1_000_000_000,
    );
    programs.mark(&other, 50);
    let both = scratch.path().join("both.otf2");
    to_archive(&[anchor.clone(), other], &both);
    let all = programs.marks(&both);
    let definitions = all.iter().filter(|line| line.starts_with("definition"));
    assert_eq!(definitions.count(), 10);
    assert_eq!(all.len() as u64, count + 50 + 10);

    // A damaged file costs what is missing in it.
    let marker_file = anchor.with_extension("marker");
    let bytes = std::fs::read(&marker_file).unwrap();
    std::fs::write(&marker_file, &bytes[..bytes.len() / 2]).unwrap();
    let (code, out, _) = cli(&["verify", "--json", anchor.to_str().unwrap()]);
    let told: Json = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 3);
    assert!(told["totals"]["truncated"].as_u64() >= Some(1), "{told}");
    let read = told["events"].as_u64().unwrap() - lines.len() as u64;
    assert!(read > count / 3 && read < count, "{read}");
}

/// Returns what the reference's own print shows of events: name, location, time.
fn printed_by_reference(programs: &Programs, anchor: &Path) -> Vec<(String, u64, u64)> {
    let (printed, _) = programs.print_and_warn(anchor, &[]);
    let lines = printed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let location = words.next()?.parse::<u64>().ok()?;
        Some((
            name.to_owned(),
            location,
            words.next()?.parse::<u64>().ok()?,
        ))
    });
    lines.collect()
}

/// Lines of definitions, and of what the reference's print has to say against them.
fn definitions_of(
    programs: &Programs,
    anchor: &Path,
) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (printed, warnings) = programs.print_and_warn(anchor, &["-G"]);
    let warnings = warnings.iter().map(String::as_str);
    // How many events a location has is often not what its definition says.
    let plain = |line: &str| match line.split_once(", # Events: ") {
        Some((before, rest)) => {
            let behind = rest.split_once(',').map_or("", |(_, behind)| behind);
            format!("{before},{behind}")
        }
        None => line.to_owned(),
    };
    let lines: Vec<String> = printed.lines().map(plain).collect();
    (counts(lines.iter().map(String::as_str)), counts(warnings))
}

/// An archive that something else wrote: our print agrees with the reference's, event for event, and written back,
/// directly and by way of a trace, it has the same events, fields, attributes and definitions.
fn check_archive(programs: &Programs, anchor: &Path, scratch: &Path) {
    let lines = programs.read(anchor);
    let printed = printed_by_reference(programs, anchor);
    let parsed: Vec<_> = lines.iter().map(|line| parse(line)).collect();
    let parsed: Vec<_> = parsed
        .iter()
        .map(|line| (line.name.to_owned(), line.location, line.time))
        .collect();
    let mut pairs = printed.iter().zip(&parsed);
    let differing = pairs.find(|(printed, parsed)| printed != parsed);
    assert_eq!(differing, None, "{}", anchor.display());
    assert_eq!(printed.len(), parsed.len(), "{}", anchor.display());
    // Ours, in trace time.
    let (definitions, warnings) = definitions_of(programs, anchor);
    let clock = definitions
        .keys()
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
        .unwrap_or(0);
    let zero = number("Global Offset:").unwrap_or(least).min(least);
    // A start decades before the first event is none.
    let is_far = (least - zero) * 1_000_000_000 / resolution >= 1 << 60;
    let zero = if is_far { least } else { zero };
    let found = json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    let events = found.iter().filter(|event| plain_name(event) != "MARKER");
    let mut ours: Vec<(i128, String)> = events
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
    if anchor
        .parent()
        .is_some_and(|directory| directory.ends_with("backward"))
    {
        // An event that is earlier than the previous one of its location is shown at the previous
        // one's time.
        assert_eq!(ours.len(), theirs.len());
    } else {
        assert_eq!(ours, theirs, "{}", anchor.display());
    }
    let back = scratch.join("back.otf2");
    to_archive(&[anchor.to_owned()], &back);
    let trace = scratch.join("trace.annals");
    convert(&[anchor.to_owned()], &trace);
    let again = scratch.join("again.otf2");
    to_archive(&[trace], &again);
    for back in [&back, &again] {
        assert_eq!(
            by_location(&programs.read(back)),
            by_location(&lines),
            "{}",
            anchor.display()
        );
        let (written, written_warnings) = definitions_of(programs, back);
        let is_new = |line: &&String| !warnings.contains_key(*line);
        let new_warnings: Vec<&String> = written_warnings.keys().filter(is_new).collect();
        assert_eq!(new_warnings, [] as [&String; 0], "{}", anchor.display());
        let mut differing: Vec<_> = definitions
            .iter()
            .filter(|(line, count)| written.get(*line) != Some(count))
            .collect();
        differing.extend(
            written
                .iter()
                .filter(|(line, _)| !definitions.contains_key(*line)),
        );
        // What is written starts no later than its first event; of regions that say less than one of today the
        // reference reads on in the next record.
        let told = std::fs::read(anchor).unwrap();
        let is_first_format = Anchor::decode(&told).unwrap().trace_format == 1;
        differing.retain(|(line, _)| {
            !(line.starts_with("CLOCK_PROPERTIES") || is_first_format && line.starts_with("REGION"))
        });
        assert_eq!(
            differing,
            [] as [(&String, &u64); 0],
            "{}",
            anchor.display()
        );
    }
}

#[test]
fn archives_of_the_other_byte_order_are_the_same() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let (resolution, events) = (2_700_000_000, 20_000);
    let (anchor, lines) = archive(
        &programs,
        &scratch.path().join("little"),
        31,
        5,
        events,
        resolution,
    );
    programs.mark(&anchor, 100);
    let turned = variants::copy(&anchor, &scratch.path().join("big"));
    variants::turn_round(&turned);
    let marks = programs.marks(&anchor);
    assert_eq!(programs.read(&turned), lines, "the reference reads both");
    assert_eq!(programs.marks(&turned), marks);
    let shown = |anchor: &Path| {
        let (code, out, err) = cli(&["print", "--json", anchor.to_str().unwrap()]);
        assert_eq!((code, &*err), (0, ""));
        out
    };
    assert!(shown(&turned) == shown(&anchor));
    check_archive(&programs, &turned, scratch.path());
    let back = scratch.path().join("back.otf2");
    assert_eq!(programs.marks(&back).len(), marks.len());
}

#[test]
fn archives_of_older_libraries_have_what_they_had() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let (anchor, lines) = archive(
        &programs,
        &scratch.path().join("new"),
        41,
        4,
        3_000,
        1_000_000_000,
    );
    for version in [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
        (1, 5),
        (2, 0),
        (2, 2),
    ] {
        let directory = scratch.path().join(format!("{}.{}", version.0, version.1));
        let older = variants::copy(&anchor, &directory);
        variants::make_older(&older, version);
        assert_eq!(programs.read(&older), lines, "{version:?}");
        check_archive(&programs, &older, scratch.path());
    }
}

/// What no measurement system writes, but the format allows.
#[test]
fn odd_archives_are_read_and_written_back() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    for (number, kind) in reference::ODD_KINDS.iter().enumerate() {
        let anchor = programs.write_odd(&scratch.path().join(kind), number);
        if *kind == "none" {
            // Without locations the reference reads nothing.
            assert_eq!(
                json_lines(&["print", "--json", anchor.to_str().unwrap()]),
                [] as [Json; 0]
            );
            to_archive(&[anchor], &scratch.path().join("back.otf2"));
            continue;
        }
        check_archive(&programs, &anchor, scratch.path());
    }
}

/// Archives below a directory.
fn anchors_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(anchors_below(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "otf2")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The archives of real programs, where they are.
#[test]
fn archives_of_real_programs_are_read_and_written_back() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference/otf2-samples");
    let samples = std::env::var_os("ANNALS_OTF2_SAMPLES").map_or(samples, PathBuf::from);
    if !samples.exists() {
        eprintln!(
            "NOT TESTED: {} is not there (ANNALS_OTF2_SAMPLES names another place)",
            samples.display()
        );
        return;
    }
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let anchors = anchors_below(&samples);
    assert!(!anchors.is_empty());
    for anchor in anchors {
        check_archive(&programs, &anchor, scratch.path());
    }
}

/// The examples that come with the reference library.
#[test]
fn archives_of_the_reference_examples_are_read_and_written_back() {
    let examples = Path::new("/usr/share/doc/otf2-tools/otf2/examples");
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let mut anchors = Vec::new();
    for (name, flags) in [
        ("otf2_writer_example", &[][..]),
        ("otf2_pthread_writer_example", &["-pthread"]),
        ("otf2_openmp_writer_example", &["-fopenmp"]),
    ] {
        let packed = examples.join(format!("{name}.c.gz"));
        if !packed.exists() {
            eprintln!("NOT TESTED: {} is not there", packed.display());
            continue;
        }
        let directory = scratch.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let source = Command::new("gzip")
            .arg("-dc")
            .arg(&packed)
            .output()
            .unwrap();
        std::fs::write(directory.join("example.c"), source.stdout).unwrap();
        let run = |command: &mut Command| {
            let output = command.current_dir(&directory).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {errors}");
        };
        let mut compiler = Command::new("cc");
        compiler
            .args(["-w", "-o", "example", "example.c"])
            .args(flags);
        run(compiler.arg("-lopen-trace-format2"));
        run(&mut Command::new(directory.join("example")));
        anchors.extend(anchors_below(&directory));
    }
    for anchor in anchors {
        check_archive(&programs, &anchor, scratch.path());
    }
}

/// What EZTrace records of a program with threads, files and memory.
#[test]
fn archives_of_eztrace_are_read_and_written_back() {
    if Command::new("eztrace").arg("--version").output().is_err() {
        eprintln!("NOT TESTED: EZTrace (tests/run.sh installs it)");
        return;
    }
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("program");
    std::fs::write(scratch.path().join("program.c"), EZTRACE_PROGRAM).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-w", "-pthread", "-o"]).arg(&program);
    let compiled = compiler.arg(scratch.path().join("program.c")).status();
    assert!(compiled.unwrap().success());
    for modules in ["pthread", "posixio", "memory", "pthread posixio"] {
        let directory = scratch.path().join(modules.replace(' ', "-"));
        let mut eztrace = Command::new("eztrace");
        eztrace.args(["-t", modules, "-o"]).arg(&directory);
        let output = eztrace.arg(&program).current_dir(scratch.path()).output();
        let anchors = anchors_below(&directory);
        assert!(!anchors.is_empty(), "{modules}: {output:?}");
        for anchor in anchors {
            check_archive(&programs, &anchor, scratch.path());
        }
    }
}

const EZTRACE_PROGRAM: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static void *work(void *argument) {
    for (int i = 0; i < 20; i++) {
        pthread_mutex_lock(&mutex);
        usleep(10);
        pthread_mutex_unlock(&mutex);
    }
    sem_post(&semaphore);
    pthread_barrier_wait(&barrier);
    return argument;
}
int main(void) {
    pthread_t threads[3];
    pthread_barrier_init(&barrier, NULL, 4);
    sem_init(&semaphore, 0, 0);
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, NULL);
    sem_wait(&semaphore);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    char *memory = malloc(10000);
    memory = realloc(memory, 20000);
    free(memory);
    char bytes[5] = "hello";
    int file = open("file", O_CREAT | O_RDWR, 0600);
    write(file, bytes, 5);
    lseek(file, 0, SEEK_SET);
    read(file, bytes, 5);
    close(file);
    FILE *stream = fopen("file", "w");
    fwrite(bytes, 1, 5, stream);
    fclose(stream);
    return 0;
}
"#;

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
        // The counts in chunks and definitions make counts exact.
        assert_eq!(read_events + lost, locations * events, "{what}: {found}");
        assert!(
            found["damage"]
                .as_array()
                .is_some_and(|damage| !damage.is_empty()),
            "{what}"
        );
        // The others are whole, event for event, and what is written of them can be read by all.
        let back = scratch.path().join("back.otf2");
        let plan = planned(std::slice::from_ref(&anchor), &back);
        write_planned(plan, &back, ArchiveOptions::default());
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

/// Returns the events as `print` shows them, ignoring its messages.
fn events_shown(path: &Path) -> Vec<String> {
    let (code, out, err) = cli(&["print", "--json", path.to_str().unwrap()]);
    assert!([0, 3].contains(&code), "{code}: {err}");
    out.lines().map(str::to_owned).collect()
}

#[test]
fn an_archive_without_its_anchor_is_read_all_the_same() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("archive");
    let (anchor, lines) = archive(&programs, &directory, 51, 3, 40_000, 1_000_000_000);
    let files = anchor.with_extension("");
    assert!(std::fs::metadata(files.join("0.evt")).unwrap().len() > 2 << 18);
    let whole = events_shown(&anchor);
    assert_eq!(whole.len(), lines.len());
    let verified = |path: &Path| -> (i32, Json) {
        let (code, out, _) = cli(&["verify", "--json", path.to_str().unwrap()]);
        (code, serde_json::from_str(&out).unwrap())
    };
    let told = |path: &Path, what: &str| {
        let (code, told) = verified(path);
        // No event is lost, but it is not as it was.
        assert_eq!(code, 3, "{told}");
        assert!(
            told["mismatches"].as_array().is_some_and(Vec::is_empty),
            "{told}"
        );
        assert_eq!(told["events"].as_u64(), Some(lines.len() as u64), "{told}");
        let damage = told["damage"].to_string();
        assert!(damage.contains(what), "{what}: {damage}");
    };

    // Cut, wherever: what the files show is what it said.
    let bytes = std::fs::read(&anchor).unwrap();
    for length in [
        0,
        1,
        6,
        9,
        15,
        27,
        29,
        40,
        bytes.len() - 20,
        bytes.len() - 3,
    ] {
        std::fs::write(&anchor, &bytes[..length]).unwrap();
        assert!(events_shown(&anchor) == whole, "cut at {length}");
        told(&anchor, "the anchor is damaged");
    }
    let mut flipped = bytes.clone();
    flipped[12..28].fill(0xee);
    std::fs::write(&anchor, &flipped).unwrap();
    assert!(
        events_shown(&anchor) == whole,
        "sizes of chunks overwritten"
    );
    told(&anchor, "262144 bytes a chunk");

    // Missing: by its name, by the directory, by that of the events.
    std::fs::remove_file(&anchor).unwrap();
    for name in [&anchor, &directory, &files] {
        assert!(events_shown(name) == whole, "{}", name.display());
        told(
            name,
            "the anchor is missing: by what the files show, events have 262144 bytes a chunk",
        );
    }
    // The reference reads nothing of it.
    let print = Command::new("otf2-print").arg(&anchor).output().unwrap();
    assert!(!print.status.success() && print.stdout.len() < 200);

    // Written again it is whole, in chunks of any size; without its anchor that is found as well.
    let back = scratch.path().join("back.otf2");
    let plan = MergeOptions::new().plan(&[directory]).unwrap();
    let options = ArchiveOptions {
        event_chunk_size: 300_001,
        ..ArchiveOptions::default()
    };
    write_planned(plan, &back, options);
    assert_eq!(by_location(&programs.read(&back)), by_location(&lines));
    std::fs::remove_file(&back).unwrap();
    assert_eq!(events_shown(&back).len(), lines.len());
    told(&back, "300001 bytes a chunk");

    // An archive of a later format, or of another kind, is refused in words.
    for (at, value, what) in [(8, 3, "trace format"), (28, 2, "SION"), (29, 2, "zlib")] {
        let mut other = bytes.clone();
        other[at] = value;
        std::fs::write(&anchor, &other).unwrap();
        let (code, _, err) = cli(&["print", anchor.to_str().unwrap()]);
        assert!(code == 1 && err.contains(what), "{err}");
    }
}

#[test]
fn without_definitions_events_come_with_numbers_for_names() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("archive");
    let (anchor, lines) = archive(&programs, &directory, 52, 3, 2_000, 1_000_000_000);
    let path = anchor.with_extension("def");
    let bytes = std::fs::read(&path).unwrap();
    for length in [
        bytes.len() - 2,
        bytes.len() / 2,
        bytes.len() / 5,
        30,
        18,
        3,
        0,
    ] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        check_without_definitions(&programs, &anchor, &lines, &format!("cut at {length}"));
    }
    std::fs::remove_file(&path).unwrap();
    check_without_definitions(&programs, &anchor, &lines, "missing");
    // Of the anchor and all definitions nothing: the files of events alone.
    std::fs::remove_file(&anchor).unwrap();
    for file in std::fs::read_dir(anchor.with_extension("")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "def") {
            std::fs::remove_file(file).unwrap();
        }
    }
    assert_eq!(events_shown(&anchor.with_extension("")).len(), lines.len());
}

fn check_without_definitions(programs: &Programs, anchor: &Path, lines: &[String], what: &str) {
    let shown = events_shown(anchor);
    assert_eq!(shown.len(), lines.len(), "{what}");
    let (code, out, _) = cli(&["verify", "--json", anchor.to_str().unwrap()]);
    let told: Json = serde_json::from_str(&out).unwrap();
    // No event is lost, but it is not as it was.
    assert_eq!(code, 3, "{what}: {told}");
    assert!(
        told["damage"].to_string().contains("traces.def"),
        "{what}: {told}"
    );
    // What is written of it every tool reads, with the events, fields and attributes that there are.
    let back = anchor.with_file_name("back.otf2");
    to_archive(&[anchor.to_owned()], &back);
    let written = by_location(&programs.read(&back));
    assert_eq!(written, by_location(lines), "{what}");
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
    let anchor = scratch.path().join("all.otf2");
    let plan = planned(&inputs, &anchor);
    let written = write_planned(plan, &anchor, ArchiveOptions::default());
    let merged = written.summary.report.unwrap();
    assert_eq!(merged.totals.present(), expected as u64);
    assert_eq!(programs.read(&anchor).len(), expected);
    // (The Python reader takes the flags of an inter-communicator for a reference: it reads none of these.)
    programs.print(&anchor, &["-G"]);
    // Equal inputs result in equal bytes, whatever their order.
    let again = scratch.path().join("again.otf2");
    inputs.reverse();
    to_archive(&inputs, &again);
    let plan = planned(&inputs, &again);
    write_planned(plan, &again, ArchiveOptions::default());
    for name in ["def", "otf2"] {
        let bytes = |anchor: &Path| std::fs::read(anchor.with_extension(name)).unwrap();
        assert!(bytes(&anchor) == bytes(&again), "{name}");
    }
}
