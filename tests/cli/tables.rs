//! The tables of `trace-cli` against an oracle that computes them from the printed events, the simple way.

#[path = "../support/deeds.rs"]
mod deeds;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::{CompressionLevel, Ordering};
use annals_merger::{WriteOptions, plan_merge, write_trace};
use proptest::prelude::*;
use serde_json::Value;

use crate::deeds::{START_NS, ranks, write};
use crate::support::{ENTER, LEAVE, REFERENCE, REGION_NAMES, Row, TestRecording, TestStream};

fn cli(arguments: &[&str], input: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(&arguments[..1])
        .arg(input)
        .args(&arguments[1..])
        .output()
        .expect("trace-cli runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str], input: &Path) -> Value {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    serde_json::from_str(&cli(&arguments, input)).expect("JSON")
}

/// All events and losses, as `print` has them.
fn printed(input: &Path) -> Vec<Value> {
    let text = cli(&["print", "--json", "--losses"], input);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// A trace with small chunks of the recordings in a directory.
fn merged(inputs: &Path, chunk_events: usize) -> PathBuf {
    let path = inputs.join("trace.annals");
    let (mut merge, rejected) = plan_merge(&[inputs.to_owned()], None).expect("recordings");
    assert!(rejected.is_empty());
    merge.chunk_events = chunk_events;
    let options = WriteOptions {
        compression: CompressionLevel::None,
        jobs: 1,
    };
    write_trace(&merge, &path, options, |_| {}).expect("a trace");
    path
}

/// A call of a region at one location.
#[derive(Clone, Debug)]
struct Call {
    region: String,
    caller: Option<usize>,
    from_ns: i64,
    to_ns: i64,
    /// `left`, `unleft` or `open`.
    how: &'static str,
    is_uncertain: bool,
}

/// A location's calls, and its leaves without an enter.
#[derive(Default)]
struct Location {
    calls: Vec<Call>,
    unmatched: Vec<(String, i64)>,
}

type Key = (i64, String);

fn key_of(line: &Value) -> Key {
    let location = line["location"].as_str().expect("a location");
    (number(&line["rank"]), location.to_owned())
}

fn is_region_loss(line: &Value) -> bool {
    matches!(line["lost"].as_str(), None | Some("enter" | "leave"))
}

/// The calls of every location as they stand at the end of a window.
fn calls(lines: &[Value], to_ns: i64) -> BTreeMap<Key, Location> {
    let mut locations: BTreeMap<Key, Location> = BTreeMap::new();
    let mut open: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    let mut ends: BTreeMap<Key, i64> = BTreeMap::new();
    let mut is_over = false;
    for line in lines {
        let key = key_of(line);
        let location = locations.entry(key.clone()).or_default();
        let stack = open.entry(key.clone()).or_default();
        if line.get("cause").is_some() {
            if !is_over && is_region_loss(line) {
                stack
                    .iter()
                    .for_each(|call| location.calls[*call].is_uncertain = true);
            }
            continue;
        }
        let time_ns = number(&line["time_ns"]);
        is_over |= time_ns >= to_ns;
        let event = line["event"].as_str().expect("a name");
        if event != "enter" && event != "leave" {
            continue;
        }
        ends.insert(key, time_ns.min(to_ns));
        if is_over {
            continue;
        }
        let region = line["elements"]["region"]
            .as_str()
            .expect("a region")
            .to_owned();
        if event == "enter" {
            let caller = stack.last().copied();
            stack.push(location.calls.len());
            location.calls.push(Call {
                region,
                caller,
                from_ns: time_ns,
                to_ns: i64::MAX,
                how: "open",
                is_uncertain: false,
            });
            continue;
        }
        if !stack
            .iter()
            .any(|call| location.calls[*call].region == region)
        {
            location.unmatched.push((region, time_ns));
            continue;
        }
        loop {
            let call = &mut location.calls[stack.pop().expect("the region is open")];
            call.to_ns = time_ns;
            call.how = if call.region == region {
                "left"
            } else {
                "unleft"
            };
            if call.how == "left" {
                break;
            }
        }
    }
    for (key, stack) in open {
        for call in stack {
            locations.get_mut(&key).expect("known").calls[call].to_ns = ends[&key];
        }
    }
    locations
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    calls: i64,
    inclusive_ns: i64,
    exclusive_ns: i64,
    durations: Vec<i64>,
    open_calls: i64,
    unmatched_leaves: i64,
    unleft_calls: i64,
    uncertain_calls: i64,
    time_is_uncertain: bool,
}

/// Statistics by group and region. `group` names the group of a location.
fn expected(
    lines: &[Value],
    (from_ns, to_ns): (i64, i64),
    group: impl Fn(&Key) -> String,
) -> BTreeMap<(String, String), Expected> {
    let mut all: BTreeMap<(String, String), Expected> = BTreeMap::new();
    let inside = |from: i64, to: i64| (to.min(to_ns) - from.max(from_ns)).max(0);
    for (key, location) in calls(lines, to_ns) {
        let group = group(&key);
        for (index, call) in location.calls.iter().enumerate() {
            let to = all.entry((group.clone(), call.region.clone())).or_default();
            let mut callers = std::iter::successors(call.caller, |at| location.calls[*at].caller);
            if !callers.any(|at| location.calls[at].region == call.region) {
                to.inclusive_ns += inside(call.from_ns, call.to_ns);
            }
            let callees = location
                .calls
                .iter()
                .filter(|callee| callee.caller == Some(index));
            let callees = callees.map(|callee| inside(callee.from_ns, callee.to_ns));
            to.exclusive_ns += inside(call.from_ns, call.to_ns) - callees.sum::<i64>();
            if call.to_ns >= from_ns {
                to.time_is_uncertain |= call.is_uncertain || call.how == "unleft";
            }
            if call.from_ns < from_ns {
                continue;
            }
            to.calls += 1;
            match call.how {
                "left" => to.durations.push(call.to_ns - call.from_ns),
                "unleft" => to.unleft_calls += 1,
                _ => to.open_calls += 1,
            }
        }
        for (region, time_ns) in location.unmatched {
            let to = all.entry((group.clone(), region)).or_default();
            to.unmatched_leaves += i64::from(time_ns >= from_ns);
        }
    }
    for line in lines
        .iter()
        .filter(|line| line.get("cause").is_some() && is_region_loss(line))
    {
        let overlaps = number(&line["to_ns"]) >= from_ns && number(&line["from_ns"]) < to_ns;
        for region in REGION_NAMES.iter().filter(|_| overlaps) {
            let to = all
                .entry((group(&key_of(line)), (*region).to_owned()))
                .or_default();
            to.time_is_uncertain = true;
            if line["lost"] != "leave" {
                to.uncertain_calls += number(&line["count"]);
            }
        }
    }
    all.retain(|_, e| {
        e.calls != 0 || e.inclusive_ns != 0 || e.unmatched_leaves != 0 || e.uncertain_calls != 0
    });
    all
}

fn near(found: &Value, exact: i64) -> bool {
    number(found).abs_diff(exact) <= exact as u64 / 63
}

fn check_regions(trace: &Path, lines: &[Value], window: (i64, i64), by: Option<&str>) {
    let bounds = [format!("{}ns", window.0), format!("{}ns", window.1)];
    let mut arguments = vec!["regions", "--from", &bounds[0], "--to", &bounds[1]];
    arguments.extend(by.iter().flat_map(|by| ["--by", by]));
    let found = json(&arguments, trace);
    let group = |(rank, location): &Key| match by {
        Some("rank") => rank.to_string(),
        Some(_) => format!("{rank} {location}"),
        None => String::new(),
    };
    let mut expected = expected(lines, window, group);
    for row in found["regions"].as_array().expect("rows") {
        let group = match by {
            Some("rank") => row["rank"].to_string(),
            Some(_) => format!(
                "{} {}",
                row["rank"],
                row["location"].as_str().expect("a name")
            ),
            None => String::new(),
        };
        let name = row["name"].as_str().expect("a name").to_owned();
        let mut e = expected
            .remove(&(group, name))
            .unwrap_or_else(|| panic!("{row}"));
        let found = Expected {
            calls: number(&row["calls"]),
            inclusive_ns: number(&row["inclusive_ns"]),
            exclusive_ns: number(&row["exclusive_ns"]),
            durations: Vec::new(),
            open_calls: number(&row["open_calls"]),
            unmatched_leaves: number(&row["unmatched_leaves"]),
            unleft_calls: number(&row["unleft_calls"]),
            uncertain_calls: number(&row["uncertain_calls"]),
            time_is_uncertain: row["time_is_uncertain"] == true,
        };
        let mut durations = std::mem::take(&mut e.durations);
        assert_eq!(found, e, "{row} in {window:?}");
        durations.sort_unstable();
        let Some(last) = durations.last() else {
            assert!(row["min_ns"].is_null() && row["mean_ns"].is_null() && row["p95_ns"].is_null());
            continue;
        };
        assert_eq!(
            (number(&row["min_ns"]), number(&row["max_ns"])),
            (durations[0], *last)
        );
        let sum: i64 = durations.iter().sum();
        assert_eq!(number(&row["mean_ns"]), sum / durations.len() as i64);
        for (name, percent) in [("p50_ns", 50), ("p95_ns", 95), ("p99_ns", 99)] {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            assert!(
                near(&row[name], durations[rank - 1]),
                "{name} of {row}: {}",
                durations[rank - 1]
            );
        }
    }
    assert!(expected.is_empty(), "not in the table: {expected:?}");
}

/// By path of names: calls, inclusive and exclusive time.
type Tree = BTreeMap<String, (i64, i64, i64)>;

fn check_tree(trace: &Path, lines: &[Value], (from_ns, to_ns): (i64, i64)) {
    let bounds = [format!("{from_ns}ns"), format!("{to_ns}ns")];
    let found = json(
        &[
            "regions", "--tree", "--from", &bounds[0], "--to", &bounds[1],
        ],
        trace,
    );
    let rows = found["tree"].as_array().expect("rows");
    let mut paths: Vec<String> = Vec::new();
    let mut tree = Tree::new();
    for row in rows {
        let caller = row["parent"]
            .as_u64()
            .map_or("", |parent| &paths[parent as usize]);
        let path = format!("{caller}/{}", row["name"].as_str().expect("a name"));
        let counts = ["calls", "inclusive_ns", "exclusive_ns"].map(|name| number(&row[name]));
        tree.insert(path.clone(), counts.into());
        paths.push(path);
    }
    let inside = |from: i64, to: i64| (to.min(to_ns) - from.max(from_ns)).max(0);
    let mut expected = Tree::new();
    for location in calls(lines, to_ns).into_values() {
        for (index, call) in location.calls.iter().enumerate() {
            let callers = std::iter::successors(Some(index), |at| location.calls[*at].caller);
            let names: Vec<&str> = callers
                .map(|at| location.calls[at].region.as_str())
                .collect();
            let path: String = names.iter().rev().flat_map(|name| ["/", name]).collect();
            let callees = location
                .calls
                .iter()
                .filter(|callee| callee.caller == Some(index));
            let callees = callees.map(|callee| inside(callee.from_ns, callee.to_ns));
            let to = expected.entry(path).or_default();
            to.0 += i64::from(call.from_ns >= from_ns);
            to.1 += inside(call.from_ns, call.to_ns);
            to.2 += inside(call.from_ns, call.to_ns) - callees.sum::<i64>();
        }
    }
    expected.retain(|_, (calls, inclusive_ns, _)| *calls != 0 || *inclusive_ns != 0);
    assert_eq!(tree, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn regions_are_what_the_printed_events_say(
        ranks in ranks(),
        chunk_events in 20..400_usize,
        bounds in prop::collection::vec((0..40_000_i64, 0..40_000_i64), 3),
        by in prop::sample::select(vec![None, Some("rank"), Some("location")]),
    ) {
        let scratch = tempfile::tempdir().expect("a directory");
        write(&ranks, scratch.path());
        let trace = merged(scratch.path(), chunk_events);
        let lines = printed(&trace);
        for (a, b) in bounds {
            let window = (a.min(b), a.max(b) + 1);
            check_regions(&trace, &lines, window, by);
            check_tree(&trace, &lines, window);
        }
        check_regions(&trace, &lines, (-1, 1_000_000), by);
    }

    /// Of events that were really there, some are lost and told: the true number of calls is within the bounds.
    #[test]
    fn uncertain_calls_bound_the_truth(
        deeds in prop::collection::vec((any::<bool>(), 0..4_u64, 0..10_u8), 1..400),
        window in (0..4000_i64, 0..4000_i64),
        names_types: bool,
    ) {
        let (from_ns, to_ns) = (window.0.min(window.1), window.0.max(window.1) + 1);
        let mut truth: BTreeMap<u64, i64> = BTreeMap::new();
        let mut rows = Vec::new();
        let mut last = 0;
        for (index, (is_enter, region, fate)) in deeds.iter().enumerate() {
            let time_ns = 10 * (index as i64 + 1);
            let tick = REFERENCE.tick(START_NS + time_ns);
            let event_type = if *is_enter { ENTER } else { LEAVE };
            if *is_enter && (from_ns..to_ns).contains(&time_ns) {
                *truth.entry(*region).or_default() += 1;
            }
            if *fate < 2 {
                // Its interval is that of the good events around it, as a recorder tells.
                let next = deeds.iter().enumerate().skip(index).find(|(_, deed)| deed.2 >= 2);
                let next_ns = next.map_or(time_ns, |(index, _)| 10 * (index as i64 + 1));
                let named = names_types.then_some(event_type);
                rows.push(Row::Dropped(named, 1, REFERENCE.tick(START_NS + last), REFERENCE.tick(START_NS + next_ns)));
            } else {
                last = time_ns;
                rows.push(Row::Event(event_type, tick, *region));
            }
        }
        let recording = TestRecording {
            rank: Some(0),
            rank_count: None,
            id: 0,
            start_ns: START_NS,
            end_ns: START_NS + 10_000,
            clocks: vec![REFERENCE],
            streams: vec![TestStream { clock: 0, ordering: Ordering::Ordered, chunks: vec![(START_NS, rows)] }],
            has_footer: true,
        };
        let scratch = tempfile::tempdir().expect("a directory");
        recording.write(scratch.path(), CompressionLevel::None);
        let trace = merged(scratch.path(), 30);
        let bounds = [format!("{from_ns}ns"), format!("{to_ns}ns")];
        let found = json(&["regions", "--from", &bounds[0], "--to", &bounds[1]], &trace);
        let rows = found["regions"].as_array().expect("rows");
        for (region, name) in REGION_NAMES.iter().enumerate() {
            let truth = truth.get(&(region as u64)).copied().unwrap_or(0);
            let row = rows.iter().find(|row| row["name"] == *name);
            let (calls, uncertain) = row.map_or((0, 0), |row| {
                (number(&row["calls"]), number(&row["uncertain_calls"]))
            });
            prop_assert!(calls.abs_diff(truth) <= uncertain as u64, "{name}: {calls} ± {uncertain}, truly {truth}");
        }
    }
}
