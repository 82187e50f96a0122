//! `trace-cli suggest-filter`: what it counts, and that its filter leaves out exactly what it says.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use annals_format::{CompressionLevel, SourceOrder};
use annals_recorder::Value as ElementValue;
use annals_recorder::{
    ElementType, EventTypeSchema, EventTypeSpec, Options, Recorder, Role, Rules,
};
use annals_test_support::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Criteria {
    shorter_than_ns: i64,
    at_least: u64,
    top: Option<u64>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Region {
    region: String,
    calls: u64,
    uncertain_calls: u64,
    uncertain_calls_is_lower_bound: bool,
    mean_ns: i64,
    time_is_uncertain: bool,
    events_saved: u64,
    bytes_saved_estimate: u64,
    share: f64,
    rule: String,
    rule_is_exact: bool,
    also_switched_off: Vec<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Suggestions {
    criteria: Criteria,
    regions: Vec<Region>,
    candidates: usize,
    events_saved: u64,
    bytes_saved_estimate: u64,
    share: f64,
    events: u64,
    bytes: u64,
    bytes_per_event: Option<f64>,
    filter: String,
    /// Empty: no region here is a function that a compiler could leave out.
    #[serde(rename = "compiler_flags")]
    _compiler_flags: [Value; 0],
}

impl Suggestions {
    fn names(&self) -> Vec<&str> {
        let names = self.regions.iter().map(|region| region.region.as_str());
        names.collect()
    }
}

fn run<S: AsRef<OsStr>>(command: &str, input: &Path, more: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .arg(command)
        .arg(input)
        .args(more)
        .output()
        .expect("trace-cli runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn suggest(input: &Path, more: &[&str]) -> Suggestions {
    let mut more = more.to_vec();
    more.push("--json");
    let result = run("suggest-filter", input, &more);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    serde_json::from_slice(&result.stdout).expect("the JSON that is promised")
}

fn text(input: &Path, more: &[&str]) -> String {
    let result = run("suggest-filter", input, more);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    String::from_utf8(result.stdout).expect("UTF-8")
}

/// Calls of every region that was called, as `regions` has them.
fn calls(input: &Path) -> Vec<(String, u64)> {
    let result = run("regions", input, &["--json"]);
    let json: Value = serde_json::from_slice(&result.stdout).expect("JSON");
    let rows = json["regions"].as_array().expect("an array").iter();
    let mut calls: Vec<(String, u64)> = rows
        .map(|row| {
            let name = row["region"].as_str().expect("a name").to_owned();
            (name, row["calls"].as_u64().expect("a count"))
        })
        .collect();
    calls.sort();
    calls
}

/// main [0, 100), in it solve [10, 30) and [40, 70), in the second exchange [50, 60); a loss of 5
/// enters in [72, 80); a leave of solve without its enter at 85; a mark at 90. Microseconds.
fn nested() -> (tempfile::TempDir, PathBuf) {
    let at = |us: u64| 1_000_000 + us * 1000;
    let rows = vec![
        Row::Event(ENTER, at(0), 0),
        Row::Event(ENTER, at(10), 1),
        Row::Event(LEAVE, at(30), 1),
        Row::Event(ENTER, at(40), 1),
        Row::Event(ENTER, at(50), 2),
        Row::Event(LEAVE, at(60), 2),
        Row::Event(LEAVE, at(70), 1),
        Row::Dropped(Some(ENTER), 5, at(72), at(80)),
        Row::Event(LEAVE, at(85), 1),
        Row::Event(MARK, at(90), 7),
        Row::Event(LEAVE, at(100), 0),
    ];
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: 1_000_000,
        end_ns: 1_200_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let path = recording.write(scratch.path(), CompressionLevel::Zstd(1));
    (scratch, path)
}

#[test]
fn events_saved_are_the_enters_and_leaves_that_are_there() {
    let (_scratch, path) = nested();
    let found = suggest(&path, &["--at-least", "1", "--shorter-than", "26us"]);
    assert_eq!(found.names(), ["solve", "exchange"], "by events saved");
    assert_eq!(found.criteria.shorter_than_ns, 26_000);
    assert_eq!((found.criteria.at_least, found.criteria.top), (1, None));
    let solve = &found.regions[0];
    assert_eq!((solve.calls, solve.mean_ns), (2, 25_000));
    assert_eq!(solve.events_saved, 5, "a leave without its enter, too");
    assert_eq!(solve.uncertain_calls, 5, "as `regions` says");
    assert!(!solve.uncertain_calls_is_lower_bound && solve.time_is_uncertain);
    assert_eq!(solve.rule, "off region solve");
    assert!(solve.rule_is_exact && solve.also_switched_off.is_empty());
    assert_eq!(found.events, 10);
    let bytes = std::fs::metadata(&path).expect("the file").len();
    assert_eq!(found.bytes, bytes);
    assert_eq!(found.bytes_per_event, Some(bytes as f64 / 10.0));
    let about = |events: u64| (events as f64 * bytes as f64 / 10.0).round() as u64;
    assert_eq!(solve.bytes_saved_estimate, about(5));
    assert_eq!(solve.share, 0.5);
    assert_eq!(found.events_saved, 7);
    assert_eq!(found.bytes_saved_estimate, about(7));
    assert_eq!(found.share, 0.7);
    // The mean has to lie below.
    let found = suggest(&path, &["--at-least", "1", "--shorter-than", "25us"]);
    assert_eq!(found.names(), ["exchange"]);
    let found = suggest(&path, &["--at-least", "2", "--shorter-than", "1s"]);
    assert_eq!(found.names(), ["solve"]);
}

#[test]
fn a_window_and_filters_choose_what_is_counted() {
    let (_scratch, path) = nested();
    let window = ["--at-least", "1", "--from", "20us", "--to", "71us"];
    let found = suggest(&path, &[&window[..], &["--shorter-than", "1s"]].concat());
    // In it: solve is left, entered and left, exchange is entered and left.
    assert_eq!(found.names(), ["solve", "exchange"]);
    let solve = &found.regions[0];
    assert_eq!((solve.calls, solve.events_saved), (1, 3));
    assert_eq!(solve.uncertain_calls, 0, "the loss lies outside");
    assert_eq!(found.events, 5);
    // A call that the window's end cuts has no duration.
    let window = ["--at-least", "1", "--from", "20us", "--to", "55us"];
    let found = suggest(&path, &[&window[..], &["--shorter-than", "1s"]].concat());
    assert_eq!(found.names(), Vec::<String>::new());
    let found = suggest(
        &path,
        &["--region", "ex*", "--at-least", "1", "--shorter-than", "1s"],
    );
    assert_eq!(found.names(), ["exchange"]);
    assert_eq!(found.share, 0.2, "of all events");
}

#[test]
fn top_bounds_rules_and_sums() {
    let (_scratch, path) = nested();
    let all = ["--at-least", "1", "--shorter-than", "1s", "--top", "1"];
    let found = suggest(&path, &all);
    assert_eq!(found.names(), ["solve"]);
    // main's only call has a loss in it: how long it took is unknown, and so no candidate.
    assert_eq!((found.candidates, found.events_saved), (2, 5));
    assert!(!found.filter.contains("main"), "{}", found.filter);
    let shown = text(&path, &all);
    assert!(shown.contains("Without 1 of 2 regions: 5 of 10 events saved (50.0 %), about"));
}

#[test]
fn the_text_marks_losses_and_ends_in_the_filter() {
    let (_scratch, path) = nested();
    let shown = text(&path, &["--at-least", "1", "--shorter-than", "1s"]);
    let solve = shown.lines().find(|line| line.starts_with("solve"));
    let cells: Vec<&str> = solve.expect("its row").split_whitespace().collect();
    assert_eq!(cells[..4], ["solve", "2", "5", "~25.00"]);
    let pasted = &shown[shown.find("\n# ").expect("the filter")..];
    pasted.parse::<Rules>().expect("rules");
    let rules: Vec<&str> = pasted.lines().filter(|l| l.starts_with("off ")).collect();
    assert_eq!(rules, ["off region solve", "off region exchange"]);
}

#[test]
fn nothing_to_suggest_is_fine_and_says_what_comes_close() {
    let (scratch, path) = nested();
    let shown = text(&path, &[]);
    assert!(shown.contains("No region has at least 1000 calls and a mean below 10.00 us."));
    assert!(shown.contains("solve: 2 calls, mean 25.00 us"), "{shown}");
    assert!(suggest(&path, &[]).regions.is_empty());
    let filter = scratch.path().join("filter");
    let result = run(
        "suggest-filter",
        &path,
        &[OsStr::new("-o"), filter.as_os_str()],
    );
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let written = std::fs::read_to_string(&filter).expect("the filter");
    assert!(written.parse::<Rules>().expect("rules").is_empty());
}

#[test]
fn the_output_replaces_a_filter_and_nothing_else() {
    let (scratch, path) = nested();
    let before = std::fs::read(&path).expect("the recording");
    let write = |file: &Path| {
        let more = ["--at-least", "1", "--shorter-than", "1s", "--output"];
        let mut more = more.map(OsStr::new).to_vec();
        more.push(file.as_os_str());
        run("suggest-filter", &path, &more)
    };
    let result = write(&path);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        said(&result).contains("is not a filter"),
        "{}",
        said(&result)
    );
    assert_eq!(std::fs::read(&path).expect("the recording"), before);
    let text = scratch.path().join("notes");
    std::fs::write(&text, "off to lunch").expect("a file");
    assert_eq!(write(&text).status.code(), Some(1));
    let filter = scratch.path().join("my filter");
    std::fs::write(&filter, "off region x\n").expect("a file");
    let result = write(&filter);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let hint = format!("ANNALS_FILTER='@{}'", filter.display());
    assert!(said(&result).contains(&hint), "{}", said(&result));
    let written = std::fs::read_to_string(&filter).expect("the filter");
    assert!(written.contains("\noff region solve\n") && !written.contains("region x"));
    let shown = String::from_utf8_lossy(&result.stdout).into_owned();
    assert!(
        !shown.contains("off region"),
        "it went to the file: {shown}"
    );
}

#[test]
fn exit_codes_are_those_of_the_other_commands() {
    let (_scratch, path) = nested();
    for wrong in [
        &["--top", "0"][..],
        &["--shorter-than", "5"],
        &["--at-least", "-1"],
        &["--from", "2s", "--to", "1s"],
    ] {
        let code = run("suggest-filter", &path, wrong).status.code();
        assert_eq!(code, Some(2), "{wrong:?}");
    }
    let code = run("suggest-filter", &path, &["--region", "nobody"]).status;
    assert_eq!(code.code(), Some(1));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let damaged = run::<&str>("suggest-filter", &data.join("flipped-body.annals"), &[]);
    assert_eq!(damaged.status.code(), Some(3), "{}", said(&damaged));
}

/// Pairs of names, the first frequent, the second similar to it and rare.
const PAIRS: [(&str, &str); 14] = [
    ("solve", "solver"),
    (
        "std::vec<int, 3>::operator[]",
        "std::vec<int, 3>::operator[",
    ),
    ("a*", "ab"),
    ("what?", "whats"),
    ("[a-c]", "b"),
    ("{x,y}", "x"),
    ("[!n]", "m"),
    ("!n", "n"),
    ("back\\slash", "backslash"),
    (" space at the ends ", "space at the ends"),
    ("\u{2003}wide", "wide"),
    ("#comment", "comment"),
    ("off region *", "off region all"),
    ("", "empty"),
];

/// Frequent names that no rule can hold, each with one that is not similar enough to match.
const INEXACT: [(&str, &str); 3] = [
    ("a;b", "a;;b"),
    ("two\nlines", "two lines more"),
    ("\u{1b}[1m", "[1m"),
];

fn record(recorder: &Recorder) {
    for (often, rarely) in PAIRS.into_iter().chain(INEXACT) {
        let often = recorder.add_region(often).expect("a region");
        let rarely = recorder.add_region(rarely).expect("a region");
        for _ in 0..20 {
            drop(recorder.region(often));
        }
        drop(recorder.region(rarely));
    }
}

const CHILD: &str = "ANNALS_TEST_SUGGEST_FILTER";

/// The program that is recorded: this test, run again with settings in its environment.
#[test]
fn records_when_asked() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let recorder = Recorder::start(&Options::from_env().expect("settings")).expect("a recorder");
    record(&recorder);
    recorder.finish();
}

fn record_in_a_process(directory: &Path, filter: Option<&Path>) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command
        .args(["suggest_filter::records_when_asked", "--exact"])
        .env(CHILD, "1")
        .env("ANNALS_DIR", directory)
        .env_remove("ANNALS_FILTER");
    if let Some(filter) = filter {
        command.env("ANNALS_FILTER", format!("@{}", filter.display()));
    }
    let result = command.output().expect("it runs");
    assert!(result.status.success(), "{}", said(&result));
}

#[test]
fn a_recording_with_the_filter_lacks_the_regions_suggested_and_no_others() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (without, with) = (scratch.path().join("without"), scratch.path().join("with"));
    record_in_a_process(&without, None);
    let filter = scratch.path().join("filter.txt");
    let more = ["--at-least", "20", "--shorter-than", "1h", "-o"];
    let mut more = more.map(OsStr::new).to_vec();
    more.push(filter.as_os_str());
    let result = run("suggest-filter", &without, &more);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(!result.stdout.contains(&0x1b));
    let found = suggest(&without, &["--at-least", "20", "--shorter-than", "1h"]);
    assert_eq!(found.regions.len(), PAIRS.len() + INEXACT.len());
    assert_eq!(
        found.events,
        calls(&without).iter().map(|(_, n)| 2 * n).sum::<u64>()
    );
    let exact = found.regions.iter().filter(|region| region.rule_is_exact);
    assert_eq!(exact.count(), PAIRS.len());
    let written = std::fs::read_to_string(&filter).expect("the filter");
    assert_eq!(written, found.filter);
    assert_eq!(written.matches("? replaces").count(), INEXACT.len());
    assert!(!written.contains('\u{1b}'));

    record_in_a_process(&with, Some(&filter));
    let expected: Vec<(String, u64)> = calls(&without)
        .into_iter()
        .filter(|(_, calls)| *calls < 20)
        .collect();
    assert_eq!(expected.len(), PAIRS.len() + INEXACT.len());
    assert_eq!(calls(&with), expected);
    let after = suggest(&with, &[]);
    assert_eq!(after.events, found.events - found.events_saved);
}

#[test]
fn what_an_inexact_rule_matches_besides_is_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let often = recorder.add_region("a;b").expect("a region");
    recorder.add_region("a:b").expect("a region");
    (0..3).for_each(|_| drop(recorder.region(often)));
    recorder.finish();
    let found = suggest(scratch.path(), &["--at-least", "3", "--shorter-than", "1h"]);
    assert_eq!(found.regions[0].rule, "off region a?b");
    assert_eq!(found.regions[0].also_switched_off, ["a:b"]);
    assert!(
        found
            .filter
            .contains("# It matches, too: a:b\noff region a?b\n")
    );
}

#[test]
fn regions_of_one_name_count_as_one_and_own_event_types_save_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    for line in [1, 2] {
        let region = recorder.add_region_at("twice", "file", line, "");
        let region = region.expect("a region");
        (0..5).for_each(|_| drop(recorder.region(region)));
    }
    let own = recorder.add_region("own").expect("a region");
    let add = |name: &str, role| {
        let spec = EventTypeSpec::new(name).role(role).element("region");
        let schema = EventTypeSchema {
            elements: vec![(ElementType::U32, false)],
        };
        recorder
            .add_dynamic_event_type(&spec, schema)
            .expect("an event type")
    };
    let (enter, leave) = (add("own.enter", Role::Enter), add("own.leave", Role::Leave));
    for event_type in [&enter, &leave].into_iter().cycle().take(20) {
        let values = [ElementValue::U32(own.get())];
        recorder.raise_dynamic(annals_recorder::THREADS, None, event_type, &values);
    }
    recorder.finish();
    assert!(calls(scratch.path()).contains(&("own".to_owned(), 10)));
    let found = suggest(scratch.path(), &["--at-least", "6", "--shorter-than", "1h"]);
    assert_eq!(found.names(), ["twice"]);
    assert_eq!((found.regions[0].calls, found.events_saved), (10, 20));
    assert_eq!(found.events, 40);
}
