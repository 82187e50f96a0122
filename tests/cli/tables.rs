//! The tables of `trace-cli` against an oracle that computes them from the printed events, the simple way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::{CompressionLevel, SourceOrder};
use annals_merger::{MergeOptions, Reader, no_progress};
use proptest::prelude::*;
use serde_json::Value;

use annals_test_support::deeds::{START_NS, ranks, write};
use annals_test_support::{ENTER, LEAVE, REFERENCE, REGION_NAMES, Row, TestRecording, TestStream};

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

/// Returns all events and losses, as `print` has them.
fn printed(input: &Path) -> Vec<Value> {
    let text = cli(&["print", "--json", "--losses"], input);
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

/// Returns a trace with small chunks of the recordings in a directory.
fn merged(inputs: &Path, chunk_events: usize) -> PathBuf {
    let path = inputs.join("trace.annals");
    let mut options = MergeOptions::new();
    options.chunk_events = chunk_events;
    options.compression = CompressionLevel::None;
    options.jobs = 3;
    let plan = options.plan(&[inputs.to_owned()]).expect("recordings");
    assert!(plan.rejected().is_empty());
    plan.write_trace(&path, no_progress).expect("a trace");
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

/// Returns when each location was closed.
fn closed(trace: &Path) -> BTreeMap<Key, i64> {
    let reader = Reader::open(trace).expect("a trace");
    let definitions = reader.definitions();
    let ends = definitions.locations.values().filter_map(|location| {
        let rank = definitions.rank_of_location(location.id);
        let key = (rank.into(), definitions.string(location.name).to_owned());
        Some((key, definitions.end_of_location(location.id)?.0))
    });
    ends.collect()
}

/// Returns the calls of every location at the end of a window.
fn calls(trace: &Path, lines: &[Value], to_ns: i64) -> BTreeMap<Key, Location> {
    let closed = closed(trace);
    let mut locations: BTreeMap<Key, Location> = BTreeMap::new();
    let mut open: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    // The last event, and the last enter or leave unless one may be missing after it.
    let mut ends: BTreeMap<Key, (i64, Option<i64>)> = BTreeMap::new();
    let mut lost_after: BTreeMap<Key, Option<i64>> = BTreeMap::new();
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
                if let Some(end) = ends.get_mut(&key) {
                    lost_after.insert(key, end.1);
                }
            }
            continue;
        }
        let time_ns = number(&line["time_ns"]);
        is_over |= time_ns >= to_ns;
        let event = line["event"].as_str().expect("a name");
        let end = ends.entry(key).or_insert((time_ns, None));
        end.0 = time_ns;
        if is_over || event != "enter" && event != "leave" {
            continue;
        }
        end.1 = Some(time_ns);
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
        let Some((last_ns, last_move_ns)) = ends.get(&key).copied() else {
            continue;
        };
        let last_ns = last_ns.max(closed.get(&key).copied().unwrap_or(last_ns));
        let has_ended = last_ns < to_ns;
        let is_lost = last_move_ns.is_some() && lost_after.get(&key) == Some(&last_move_ns);
        let end_ns = match (has_ended, is_lost) {
            (false, _) => to_ns,
            (true, true) => last_move_ns.expect("there was one"),
            (true, false) => last_ns,
        };
        for call in stack {
            let call = &mut locations.get_mut(&key).expect("known").calls[call];
            call.to_ns = end_ns;
            call.is_uncertain |= has_ended;
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
    trace: &Path,
    lines: &[Value],
    (from_ns, to_ns): (i64, i64),
    group: impl Fn(&Key) -> String,
) -> BTreeMap<(String, String), Expected> {
    let mut all: BTreeMap<(String, String), Expected> = BTreeMap::new();
    let inside = |from: i64, to: i64| (to.min(to_ns) - from.max(from_ns)).max(0);
    for (key, location) in calls(trace, lines, to_ns) {
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
                "left" if call.is_uncertain => {}
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
    let mut expected = expected(trace, lines, window, group);
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
        let name = row["region"].as_str().expect("a name").to_owned();
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

/// Checks that the statistics of the merge are equal to those of reading the whole trace.
fn check_stored(trace: &Path) {
    let stored = json(&["regions"], trace);
    let counted = json(&["regions", "--from", "-1ns", "--to", "1000000ns"], trace);
    assert_eq!(stored["regions"], counted["regions"]);
    let opened = annals_merger::Reader::open(trace).expect("a trace");
    let trace = opened.trace().expect("a trace");
    assert!(
        trace
            .region_statistics()
            .is_ok_and(|stored| stored.is_some())
    );
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
        let path = format!("{caller}/{}", row["region"].as_str().expect("a name"));
        let counts = ["calls", "inclusive_ns", "exclusive_ns"].map(|name| number(&row[name]));
        tree.insert(path.clone(), counts.into());
        paths.push(path);
    }
    let inside = |from: i64, to: i64| (to.min(to_ns) - from.max(from_ns)).max(0);
    let mut expected = Tree::new();
    for location in calls(trace, lines, to_ns).into_values() {
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
        check_stored(&trace);
    }

    /// A part shows what the whole shows there, whatever was open where it begins.
    #[test]
    fn a_slice_shows_what_the_whole_trace_shows(
        ranks in ranks(),
        chunk_events in 20..400_usize,
        bounds in (0..40_000_i64, 0..40_000_i64),
    ) {
        let scratch = tempfile::tempdir().expect("a directory");
        write(&ranks, scratch.path());
        let trace = merged(scratch.path(), chunk_events);
        let (from, to) = (bounds.0.min(bounds.1), bounds.0.max(bounds.1) + 1);
        let bounds = [format!("{from}ns"), format!("{to}ns")];
        let window = ["--from", &bounds[0], "--to", &bounds[1]];
        let part = scratch.path().join("part.annals");
        let output = part.to_str().expect("a name");
        cli(&[&["slice"][..], &window, &["-o", output]].concat(), &trace);
        let verified = annals_merger::verify(&part, &[]).expect("a trace");
        prop_assert!(verified.holds(), "{:?}", verified.mismatches);
        check_stored(&part);
        let of = |path: &Path| {
            let mut regions = json(&[&["regions", "--by", "location"][..], &window].concat(), path);
            // A part does not contain the events after the window. So it cannot know whether a thread continues, nor
            // that losses after the window happened later.
            for row in regions["regions"].as_array_mut().expect("rows") {
                for name in ["inclusive_ns", "exclusive_ns", "share", "time_is_uncertain"] {
                    row.as_object_mut().expect("a row").remove(name);
                }
            }
            regions["regions"].as_array_mut().expect("rows").sort_by_key(ToString::to_string);
            regions["regions"].as_array().expect("rows").iter().filter(|row| row["calls"] != 0).cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(of(&part), of(&trace));
        prop_assert_eq!(printed(&part).iter().filter(|line| line.get("event").is_some()).count(), {
            let lines = printed(&trace);
            let inside = |line: &&Value| (from..to).contains(&number(&line["time_ns"]));
            lines.iter().filter(|line| line.get("event").is_some()).filter(inside).count()
        });
        // The events that opened the calls are not in the part, but the snapshot is.
        if let Some(first) = json(&["regions", "--tree"], &part)["tree"].as_array().expect("rows").first() {
            prop_assert!(first["depth"] == 0);
        }
    }

    /// Some events are lost, and the losses are reported: the true number of calls is within the bounds.
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
                // Its interval is between the good events around it, as a recorder reports it.
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
            streams: vec![TestStream { clock: 0, ordering: SourceOrder::Ordered, chunks: vec![(START_NS, rows)] }],
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
            let row = rows.iter().find(|row| row["region"] == *name);
            let (calls, uncertain) = row.map_or((0, 0), |row| {
                (number(&row["calls"]), number(&row["uncertain_calls"]))
            });
            prop_assert!(calls.abs_diff(truth) <= uncertain as u64, "{name}: {calls} ± {uncertain}, truly {truth}");
        }
    }
}

/// Xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Recordings of three ranks that send and receive, work on jobs, meet in collective operations and report a metric, in
/// an order drawn at random. In their middle, events of one type of rank 1 may be lost.
fn record(directory: &Path, seed: u64, lost: Option<&str>) {
    use annals_recorder::{ENTER, EventTypeSpec, Options, Recorder, Reference, Role, THREADS};
    let mut random = Random(seed);
    let recorders: Vec<_> = (0..3)
        .map(|rank| {
            let mut options = Options::new(directory);
            options.run = Some("tables".to_owned());
            options.rank = Some(rank);
            options.rank_count = Some(3);
            Recorder::start(&options).expect("a recorder")
        })
        .collect();
    let message = |name: &str, role: Role| {
        let spec = EventTypeSpec::new(name).role(role);
        let spec = spec
            .element("communicator")
            .reference("peer", Reference::Rank);
        spec.element("tag").element("bytes")
    };
    let ranks: Vec<_> = recorders
        .iter()
        .map(|r| {
            let regions =
                [r.add_region("compute"), r.add_region("exchange")].map(|id| id.expect("a region"));
            let send = r.add_event_type::<(u32, u32, u32, u64)>(&message("send", Role::Send));
            let receive =
                r.add_event_type::<(u32, u32, u32, u64)>(&message("receive", Role::Receive));
            let started =
                r.add_event_type::<(u64,)>(&EventTypeSpec::new("job_started").element("request"));
            let complete =
                r.add_event_type::<(u64,)>(&EventTypeSpec::new("job_complete").element("request"));
            let collective = EventTypeSpec::new("meet").role(Role::CollectiveBegin);
            let collective = collective
                .element("communicator")
                .element("operation")
                .element("size");
            let collective = r.add_event_type::<(u32, u32, u32)>(&collective);
            let metric = r.add_metric::<f64>("memory", "bytes").expect("a metric");
            let other = r.add_event_type::<()>(&EventTypeSpec::new("other"));
            let other = other.expect("a type");
            (
                regions,
                [send.expect("a type"), receive.expect("a type")],
                [started.expect("a type"), complete.expect("a type")],
                collective.expect("a type"),
                metric,
                other,
            )
        })
        .collect();
    let mut open = [const { Vec::new() }; 3];
    for number in 0..4000 {
        let rank = random.below(3) as usize;
        let (r, (regions, messages, jobs, collective, metric, _)) =
            (&recorders[rank], &ranks[rank]);
        if let Some(lost) = lost.filter(|_| number == 2000) {
            let (r, (_, messages, jobs, collective, metric, other)) = (&recorders[1], &ranks[1]);
            let event_type = match lost {
                "enter" => ENTER,
                "send" => messages[0].id(),
                "receive" => messages[1].id(),
                "job_started" => jobs[0].id(),
                "job_complete" => jobs[1].id(),
                "meet" => collective.id(),
                "memory" => metric.id(),
                _ => other.id(),
            };
            r.report_dropped(THREADS, event_type, 3);
        }
        match random.below(10) {
            0 | 1 => {
                let region = regions[random.below(2) as usize];
                r.enter(region);
                open[rank].push(region);
            }
            2 | 3 => {
                if let Some(region) = open[rank].pop() {
                    r.leave(region);
                }
            }
            kind @ (4 | 5) => {
                let values = (
                    0,
                    random.below(3) as u32,
                    random.below(2) as u32,
                    random.below(5000),
                );
                r.raise(&messages[kind as usize - 4], values);
            }
            kind @ (6 | 7) => r.raise(&jobs[kind as usize - 6], (random.below(6),)),
            8 => r.raise(collective, (random.below(2) as u32, 11, 3)),
            _ => r.metric(metric, random.below(1000) as f64 / 8.0),
        }
    }
    for recorder in recorders {
        let dropped = recorder.finish().dropped;
        assert!(dropped == 0 || lost.is_some());
    }
}

fn is(line: &Value, event: &str) -> bool {
    line["event"] == event
}

fn element(line: &Value, name: &str) -> i64 {
    number(&line["elements"][name])
}

fn check_durations(row: &Value, durations: &mut [i64]) {
    durations.sort_unstable();
    assert_eq!(row["min_ns"].as_i64(), durations.first().copied(), "{row}");
    assert_eq!(row["max_ns"].as_i64(), durations.last().copied(), "{row}");
    for (name, percent) in [("p50_ns", 50), ("p95_ns", 95), ("p99_ns", 99)] {
        if !durations.is_empty() {
            let rank = (durations.len() * percent).div_ceil(100).max(1);
            assert!(near(&row[name], durations[rank - 1]), "{name} of {row}");
        }
    }
}

fn check_intervals(trace: &Path, inside: &[Value], bounds: &[String; 2]) {
    let found = json(
        &[
            "intervals",
            "--by-rank",
            "--from",
            &bounds[0],
            "--to",
            &bounds[1],
        ],
        trace,
    );
    let rows = found["intervals"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "all, and three ranks");
    for row in rows {
        assert_eq!(
            (&row["begin"], &row["end"]),
            (&"job_started".into(), &"job_complete".into())
        );
        assert_eq!(row["key"], "request");
        assert_eq!(row["is_uncertain"], false);
        let mut open: BTreeMap<(i64, i64), Vec<i64>> = BTreeMap::new();
        let (mut durations, mut unmatched, mut flight, mut most) = (Vec::new(), 0, 0, 0);
        for line in inside {
            if !row["rank"].is_null() && row["rank"] != line["rank"] {
                continue;
            }
            if !is(line, "job_started") && !is(line, "job_complete") {
                continue;
            }
            let key = (number(&line["rank"]), element(line, "request"));
            let begun = open.entry(key).or_default();
            if is(line, "job_started") {
                begun.push(number(&line["time_ns"]));
                flight += 1;
                most = flight.max(most);
            } else if begun.is_empty() {
                unmatched += 1;
            } else {
                durations.push(number(&line["time_ns"]) - begun.remove(0));
                flight -= 1;
            }
        }
        assert_eq!(number(&row["count"]), durations.len() as i64);
        assert_eq!(number(&row["unmatched"]), unmatched);
        assert_eq!(number(&row["open"]), flight);
        assert_eq!(number(&row["max_in_flight"]), most);
        let points = row["in_flight"].as_array().expect("points");
        assert_eq!(
            points.iter().map(|point| number(&point["count"])).max(),
            Some(most)
        );
        assert_eq!(number(&row["total_ns"]), durations.iter().sum::<i64>());
        check_durations(row, &mut durations);
    }
}

/// Count, bytes, latencies, and the four numbers about waiting.
type Exchanged = (i64, i64, Vec<i64>, [i64; 4]);

fn check_messages(
    trace: &Path,
    lines: &[Value],
    (from_ns, to_ns): (i64, i64),
    bounds: &[String; 2],
) {
    let found = json(
        &["messages", "--from", &bounds[0], "--to", &bounds[1]],
        trace,
    );
    let locations = calls(trace, lines, to_ns);
    // The innermost call around a moment.
    let around = |line: &Value| -> Option<(i64, i64)> {
        let time_ns = number(&line["time_ns"]);
        // A call that is open at the end continues, as far as is known.
        let left = |call: &Call| match call.how {
            "open" => i64::MAX,
            _ => call.to_ns,
        };
        let calls = locations[&key_of(line)].calls.iter();
        let around = calls.filter(|call| call.from_ns <= time_ns && time_ns <= left(call));
        around.map(|call| (call.from_ns, left(call))).next_back()
    };
    let mut sides: BTreeMap<(i64, i64, i64, i64), [Vec<&Value>; 2]> = BTreeMap::new();
    for line in lines
        .iter()
        .filter(|line| is(line, "send") || is(line, "receive"))
    {
        let (own, peer) = (number(&line["rank"]), element(line, "peer"));
        let is_send = is(line, "send");
        let (from, to) = if is_send { (own, peer) } else { (peer, own) };
        let key = (
            element(line, "communicator"),
            from,
            to,
            element(line, "tag"),
        );
        sides.entry(key).or_default()[usize::from(!is_send)].push(line);
    }
    let mut pairs: BTreeMap<(i64, i64), Exchanged> = BTreeMap::new();
    for ((_, from, to, _), [sends, receives]) in &sides {
        for (send, receive) in sends.iter().zip(receives) {
            let (sent, received) = (number(&send["time_ns"]), number(&receive["time_ns"]));
            if !(from_ns..to_ns).contains(&received) || sent >= to_ns {
                continue;
            }
            let pair = pairs.entry((*from, *to)).or_default();
            pair.0 += 1;
            pair.1 += element(send, "bytes");
            pair.2.push(received - sent);
            let Some((entered, _)) = around(receive) else {
                continue;
            };
            let wait = sent.min(received) - entered;
            if wait > 0 {
                pair.3[0] += 1;
                pair.3[1] += wait;
            }
            let Some((_, left)) = around(send) else {
                continue;
            };
            let wait = entered.min(left) - sent;
            if wait > 0 {
                pair.3[2] += 1;
                pair.3[3] += wait;
            }
        }
    }
    for row in found["pairs"].as_array().expect("rows") {
        let key = (number(&row["from_rank"]), number(&row["to_rank"]));
        let (count, bytes, latencies, waits) = pairs.remove(&key).expect("a pair");
        assert_eq!(
            (number(&row["count"]), number(&row["bytes"])),
            (count, bytes),
            "{row}"
        );
        assert_eq!(
            row["min_latency_ns"].as_i64(),
            latencies.iter().min().copied()
        );
        assert_eq!(
            row["max_latency_ns"].as_i64(),
            latencies.iter().max().copied()
        );
        assert_eq!(
            number(&row["mean_latency_ns"]),
            latencies.iter().sum::<i64>() / count
        );
        let names = [
            "late_senders",
            "late_sender_wait_ns",
            "late_receivers",
            "late_receiver_wait_ns",
        ];
        assert_eq!(names.map(|name| number(&row[name])), waits, "{row}");
        assert_eq!(row["is_uncertain"], false);
    }
    assert!(pairs.is_empty(), "not in the table: {pairs:?}");
}

fn check_collectives(
    trace: &Path,
    lines: &[Value],
    (from_ns, to_ns): (i64, i64),
    bounds: &[String; 2],
) {
    let found = json(
        &["collectives", "--from", &bounds[0], "--to", &bounds[1]],
        trace,
    );
    let mut begins: BTreeMap<(i64, i64), Vec<i64>> = BTreeMap::new();
    for line in lines
        .iter()
        .filter(|line| is(line, "meet") && number(&line["time_ns"]) < to_ns)
    {
        let key = (element(line, "communicator"), number(&line["rank"]));
        begins
            .entry(key)
            .or_default()
            .push(number(&line["time_ns"]));
    }
    let mut expected: BTreeMap<String, (i64, i64, i64)> = BTreeMap::new();
    for communicator in 0..2 {
        let of_ranks = [0, 1, 2].map(|rank| {
            begins
                .get(&(communicator, rank))
                .cloned()
                .unwrap_or_default()
        });
        let whole = of_ranks.iter().map(Vec::len).min().unwrap_or(0);
        let of_number = |number: usize| of_ranks.each_ref().map(|of_rank| of_rank[number]);
        for begun in (0..whole).map(of_number) {
            let (first, last) = (
                *begun.iter().min().expect("three"),
                *begun.iter().max().expect("three"),
            );
            if (from_ns..to_ns).contains(&last) {
                let row = expected.entry(communicator.to_string()).or_default();
                row.0 += 1;
                row.1 += begun.iter().map(|begin| last - begin).sum::<i64>();
                row.2 = row.2.max(last - first);
            }
        }
    }
    let rows = found["collectives"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| {
            assert_eq!(row["operation"], "allreduce");
            let of_ranks = row["ranks"].as_array().expect("ranks").iter();
            let sum: i64 = of_ranks.map(|rank| number(&rank["wait_ns"])).sum();
            assert_eq!(sum, number(&row["wait_ns"]));
            let values = ["count", "wait_ns", "max_imbalance_ns"].map(|name| number(&row[name]));
            (
                row["communicator"].as_str().expect("a name").to_owned(),
                values.into(),
            )
        });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected);
}

fn check_metrics(trace: &Path, inside: &[Value], bounds: &[String; 2]) {
    let found = json(
        &["metrics", "--from", &bounds[0], "--to", &bounds[1]],
        trace,
    );
    let mut values: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for line in inside.iter().filter(|line| is(line, "memory")) {
        let value = line["elements"]["value"].as_f64().expect("a number");
        values.entry(number(&line["rank"])).or_default().push(value);
    }
    for row in found["metrics"].as_array().expect("rows") {
        let values = values.remove(&number(&row["rank"])).expect("a rank");
        assert_eq!(
            (&row["metric"], &row["unit"]),
            (&"memory".into(), &"bytes".into())
        );
        let value = |name: &str| row[name].as_f64().expect("a number");
        assert_eq!(value("count"), values.len() as f64);
        assert_eq!(
            value("min"),
            values.iter().copied().fold(f64::INFINITY, f64::min)
        );
        assert_eq!(
            value("max"),
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        );
        assert_eq!(
            (value("first"), value("last")),
            (values[0], values[values.len() - 1])
        );
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((value("mean") - mean).abs() < 1e-6);
        let points = row["points"].as_array().expect("points").iter();
        assert_eq!(
            points.map(|point| number(&point["count"])).sum::<i64>(),
            values.len() as i64
        );
    }
    assert!(values.is_empty());
}

fn check_histograms(
    trace: &Path,
    inside: &[Value],
    lines: &[Value],
    (from_ns, to_ns): (i64, i64),
    bounds: &[String; 2],
) {
    let locations = calls(trace, lines, to_ns);
    let whole = locations.values().flat_map(|location| &location.calls);
    let whole = whole.filter(|call| call.how == "left" && call.from_ns >= from_ns);
    let compute = whole.filter(|call| call.region == "compute");
    let durations: Vec<f64> = compute
        .map(|call| (call.to_ns - call.from_ns) as f64)
        .collect();
    let sends = inside.iter().filter(|line| is(line, "send"));
    let bytes: Vec<f64> = sends.map(|line| element(line, "bytes") as f64).collect();
    let asked = [
        (vec!["--region", "compute"], &durations),
        (
            vec!["--region", "compute", "--log", "--bins", "7"],
            &durations,
        ),
        (
            vec![
                "--event",
                "send",
                "--element",
                "bytes",
                "--min",
                "100",
                "--max",
                "3000",
            ],
            &bytes,
        ),
    ];
    for (more, values) in asked {
        let arguments = [
            &["histogram", "--from", &bounds[0], "--to", &bounds[1]][..],
            &more,
        ]
        .concat();
        let found = json(&arguments, trace);
        assert_eq!(number(&found["count"]), values.len() as i64, "{more:?}");
        let bins = found["bins"].as_array().expect("bins");
        let edge = |bin: usize, name: &str| bins[bin][name].as_f64().expect("a number");
        let last = bins.len() - 1;
        let mut placed = 0;
        for (bin, row) in bins.iter().enumerate() {
            let (from, to) = (edge(bin, "from"), edge(bin, "to"));
            let is_in =
                |value: &&f64| **value >= from && (**value < to || (bin == last && **value <= to));
            let expected = values.iter().filter(is_in).count() as i64;
            let found = number(&row["count"]);
            // The largest value lies at the last edge, which is computed: half an ulp may be missing.
            let is_last = bin == last && more.contains(&"--log");
            assert!(
                found == expected || is_last,
                "{more:?}: bin {bin}: {found}, not {expected}"
            );
            placed += found;
        }
        let outside = number(&found["below"]) + number(&found["above"]);
        assert_eq!(placed + outside, values.len() as i64, "{more:?}");
    }
}

fn check_flat(trace: &Path, bounds: &[String; 2]) {
    let window = ["--from", &bounds[0], "--to", &bounds[1]];
    let flat = json(&[&["flat"][..], &window].concat(), trace);
    let regions = json(&[&["regions", "--by", "rank"][..], &window].concat(), trace);
    let regions = regions["regions"].as_array().expect("rows");
    let groups = number(&flat["groups"]);
    for row in flat["regions"].as_array().expect("rows") {
        let of_ranks = regions
            .iter()
            .filter(|other| other["region"] == row["region"]);
        let times: Vec<i64> = of_ranks
            .map(|other| number(&other["exclusive_ns"]))
            .collect();
        let (sum, max) = (times.iter().sum::<i64>(), times.iter().max().copied());
        assert_eq!(number(&row["sum_ns"]), sum);
        assert_eq!(row["max_ns"].as_i64(), max);
        assert_eq!(number(&row["mean_ns"]), (sum as f64 / groups as f64) as i64);
        let slowest = row["shares"].as_array().expect("shares").iter();
        let slowest = slowest.filter(|share| share["rank"] == row["slowest_rank"]);
        assert!(
            slowest
                .map(|share| share["exclusive_ns"].as_i64())
                .all(|time| time == max)
        );
    }
}

#[test]
fn the_other_tables_are_what_the_printed_events_say() {
    for seed in [0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4321, 77] {
        let scratch = tempfile::tempdir().expect("a directory");
        record(scratch.path(), seed, None);
        let trace = merged(scratch.path(), 300);
        let lines = printed(&trace);
        let times: Vec<i64> = lines.iter().map(|line| number(&line["time_ns"])).collect();
        let at = |share: usize| times[(times.len() - 1) * share / 10];
        for window in [(0, i64::MAX - 1), (at(2), at(6)), (at(5), at(9) + 1)] {
            let bounds = [format!("{}ns", window.0), format!("{}ns", window.1)];
            let is_inside =
                |line: &&Value| (window.0..window.1).contains(&number(&line["time_ns"]));
            let inside: Vec<Value> = lines.iter().filter(is_inside).cloned().collect();
            check_intervals(&trace, &inside, &bounds);
            check_messages(&trace, &lines, window, &bounds);
            check_collectives(&trace, &lines, window, &bounds);
            check_metrics(&trace, &inside, &bounds);
            check_histograms(&trace, &inside, &lines, window, &bounds);
            check_flat(&trace, &bounds);
        }
    }
}

/// Returns the rows of an exported table, by name of the column.
fn exported(trace: &Path, table: &str) -> Vec<BTreeMap<String, String>> {
    let text = cli(
        &[
            "export", "--quiet", "-f", "csv", "--table", table, "-o", "-",
        ],
        trace,
    );
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let rows = lines.map(|line| {
        let values = line.split(',').map(str::to_owned);
        names
            .iter()
            .map(|name| (*name).to_owned())
            .zip(values)
            .collect()
    });
    rows.collect()
}

/// Rows of messages and operations are marked from the first loss on that may have changed them.
fn check_marked_rows(trace: &Path, lost: &str) {
    let time =
        |row: &BTreeMap<String, String>, name: &str| -> i64 { row[name].parse().expect("a time") };
    let drops = exported(trace, "drops");
    let from_ns = drops.iter().map(|row| time(row, "from_ns")).min();
    let from_ns = from_ns.expect("a loss");
    let mut marks = [0, 0];
    for row in exported(trace, "messages") {
        let of_rank_1 = match lost {
            "send" => row["from_rank"] == "1",
            "receive" => row["to_rank"] == "1",
            "enter" => row["from_rank"] == "1" || row["to_rank"] == "1",
            _ => false,
        };
        let until_ns = time(&row, "send_ns").max(time(&row, "receive_ns"));
        let is_expected = of_rank_1 && until_ns >= from_ns;
        assert_eq!(
            row["is_uncertain"],
            is_expected.to_string(),
            "{lost} lost: {row:?}"
        );
        marks[usize::from(is_expected)] += usize::from(of_rank_1);
    }
    if lost == "enter" {
        assert!(
            !marks.contains(&0),
            "messages before the loss and after it: {marks:?}"
        );
    }
    let mut marks = [0, 0];
    for row in exported(trace, "collectives") {
        let is_expected = lost == "meet" && time(&row, "last_begin_ns") >= from_ns;
        assert_eq!(
            row["is_uncertain"],
            is_expected.to_string(),
            "{lost} lost: {row:?}"
        );
        marks[usize::from(is_expected)] += 1;
    }
    assert!(marks[0] != 0, "operations before the loss");
}

#[test]
fn what_a_loss_may_have_changed_is_marked_and_nothing_else() {
    let all = [
        "enter",
        "send",
        "receive",
        "job_started",
        "job_complete",
        "meet",
        "memory",
        "other",
    ];
    for lost in all {
        let scratch = tempfile::tempdir().expect("a directory");
        record(scratch.path(), 99, Some(lost));
        let trace = merged(scratch.path(), 300);
        let check = |command: &[&str], is_expected: &dyn Fn(&Value) -> bool| {
            let found = json(command, &trace);
            let rows = found[command[0]].as_array().or(found["pairs"].as_array());
            let rows = rows.unwrap_or_else(|| panic!("{command:?}: {found}"));
            assert!(!rows.is_empty(), "{command:?}");
            for row in rows {
                let is_marked = row["is_uncertain"].as_bool().expect("a mark");
                assert_eq!(
                    is_marked,
                    is_expected(row),
                    "{lost} lost: {command:?}: {row}"
                );
            }
        };
        check(&["messages"], &|row| match lost {
            "send" => row["from_rank"] == 1,
            "receive" => row["to_rank"] == 1,
            "enter" => row["from_rank"] == 1 || row["to_rank"] == 1,
            _ => false,
        });
        check_marked_rows(&trace, lost);
        check(&["intervals", "--by-rank"], &|row| {
            // Without a rank: of all of them together.
            lost.starts_with("job") && (row["rank"] == 1 || row["rank"].is_null())
        });
        check(&["collectives"], &|_| lost == "meet");
        check(&["metrics"], &|row| lost == "memory" && row["rank"] == 1);
        let histogram = json(&["histogram", "--region", "compute"], &trace);
        assert_eq!(
            histogram["is_uncertain"],
            lost == "enter",
            "{lost} lost: {histogram}"
        );
        let regions = json(&["regions", "--by", "rank"], &trace);
        for row in regions["regions"].as_array().expect("rows") {
            let is_expected = lost == "enter" && row["rank"] == 1;
            let is_uncertain = is_expected || row["open_calls"] != 0;
            assert_eq!(row["time_is_uncertain"], is_uncertain, "{lost} lost: {row}");
            assert_eq!(row["uncertain_calls"], if is_expected { 3 } else { 0 });
        }
    }
}
