//! Programs that are cut at a random instant: what `trace-cli regions` says of them against what they did.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use annals_format::SourceOrder;
use annals_test_support::deeds::START_NS;
use annals_test_support::{ENTER, LEAVE, REFERENCE, REGION_NAMES, Row, TestRecording, TestStream};
use proptest::prelude::*;
use serde_json::Value;

/// An enter of a region, or the leave of the innermost one.
#[derive(Clone, Copy, Debug)]
struct Step {
    time_ns: i64,
    is_enter: bool,
    region: u64,
    /// Of those that are drawn as lost: whether it is.
    is_lost: bool,
}

/// What a thread would do if nothing ended it: regions nest, and it begins with an enter that is recorded.
fn thread() -> impl Strategy<Value = Vec<Step>> {
    let drawn = (1..40_i64, 0..5_u64, prop::bool::weighted(0.2));
    prop::collection::vec(drawn, 1..60).prop_map(|drawn| {
        let mut time_ns = 0;
        let mut open = Vec::new();
        let steps = drawn.into_iter().map(|(gap_ns, what, is_lost)| {
            time_ns += gap_ns;
            // Every second one a leave, as long as something is open.
            let is_enter = open.is_empty() || (what < 4 && gap_ns % 2 == 0);
            let region = match is_enter {
                true => {
                    open.push(what % 4);
                    what % 4
                }
                false => open.pop().expect("an open region"),
            };
            Step {
                time_ns,
                is_enter,
                region,
                is_lost,
            }
        });
        let mut steps: Vec<Step> = steps.collect();
        steps[0].is_lost = false;
        steps
    })
}

/// Which events are lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Nothing,
    /// Some, anywhere.
    Some,
    /// All from this one on.
    Tail(prop::sample::Index),
}

/// Time that was spent in a region: inclusive, exclusive.
#[derive(Clone, Copy, Default, Debug)]
struct Spent {
    calls: i64,
    inclusive_ns: i64,
    exclusive_ns: i64,
}

/// Adds what a thread did up to a time; returns how long no region was open.
fn run(steps: &[Step], end_ns: i64, spent: &mut BTreeMap<u64, Spent>) -> i64 {
    let mut open: Vec<u64> = Vec::new();
    let (mut last_ns, mut outside_ns) = (0, 0);
    let end = Step {
        time_ns: end_ns,
        is_enter: false,
        region: 0,
        is_lost: false,
    };
    let before = steps.iter().take_while(|step| step.time_ns <= end_ns);
    for step in before.chain([&end]) {
        let passed_ns = step.time_ns - last_ns;
        let mut regions = open.clone();
        regions.sort_unstable();
        regions.dedup();
        for region in regions {
            spent.entry(region).or_default().inclusive_ns += passed_ns;
        }
        match open.last() {
            Some(top) => spent.entry(*top).or_default().exclusive_ns += passed_ns,
            None => outside_ns += passed_ns,
        }
        last_ns = step.time_ns;
        if step.is_enter {
            spent.entry(step.region).or_default().calls += 1;
            open.push(step.region);
        } else {
            open.pop();
        }
    }
    outside_ns
}

/// Returns the rows of a thread up to a time; how many enters of them are lost is added.
fn rows(steps: &[Step], lost: Lost, end_ns: i64, are_named: bool, enters: &mut u64) -> Vec<Row> {
    let tick = |time_ns: i64| REFERENCE.tick(START_NS + time_ns);
    let before: Vec<&Step> = steps.iter().filter(|step| step.time_ns <= end_ns).collect();
    let is_lost = |index: usize| match lost {
        Lost::Nothing => false,
        Lost::Some => before[index].is_lost,
        Lost::Tail(from) => index > from.index(before.len()),
    };
    let mut last_ns = 0;
    let rows = before.iter().enumerate().map(|(index, step)| {
        let event_type = if step.is_enter { ENTER } else { LEAVE };
        if !is_lost(index) {
            last_ns = step.time_ns;
            return Row::Event(event_type, tick(step.time_ns), step.region);
        }
        *enters += u64::from(step.is_enter || !are_named);
        // Between the recorded events around it.
        let next = (index..before.len()).find(|next| !is_lost(*next));
        let next_ns = next.map_or(end_ns, |next| before[next].time_ns);
        let named = are_named.then_some(event_type);
        Row::Dropped(named, 1, tick(last_ns), tick(next_ns))
    });
    rows.collect()
}

fn regions(input: &Path) -> Value {
    let mut regions = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let answer = regions.arg("regions").arg(input).arg("--json").output();
    let answer = answer.expect("trace-cli runs");
    serde_json::from_slice(&answer.stdout).expect("JSON")
}

fn number(row: &Value, field: &str) -> i64 {
    row[field].as_i64().expect("a number")
}

/// What is asked of the answer for a time: where nothing is uncertain, it is the truth; where only ends are, its interval contains it.
fn check(of: &str, truth_ns: i64, answer: (i64, i64), is_exact: bool, is_interval: bool) {
    let (least_ns, more_ns) = answer;
    if is_exact {
        assert_eq!((least_ns, more_ns), (truth_ns, 0), "{of}");
    }
    if is_interval {
        let most_ns = least_ns + more_ns;
        let holds = (least_ns..=most_ns).contains(&truth_ns);
        assert!(holds, "{of}: {least_ns} to {most_ns}, truly {truth_ns}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A process is killed at an instant; of that, only the last heartbeat before it is known, or the instant itself.
    #[test]
    fn a_program_that_is_cut_at_any_instant_is_told_truly(
        threads in prop::collection::vec(thread(), 1..4),
        cut in any::<prop::sample::Index>(),
        (is_waited_for, silent_ns) in (any::<bool>(), 0..=100_i64),
        lost in prop_oneof![
            2 => Just(Lost::Nothing),
            1 => Just(Lost::Some),
            2 => any::<prop::sample::Index>().prop_map(Lost::Tail),
        ],
        are_named: bool,
    ) {
        // Every thread has entered its first region.
        let first_ns = threads.iter().map(|steps| steps[0].time_ns).max().expect("a thread");
        let last_ns = threads.iter().map(|steps| steps[steps.len() - 1].time_ns).max();
        let length_ns = last_ns.expect("a thread") - first_ns + 100;
        let end_ns = first_ns + cut.index(length_ns as usize) as i64;
        let mut lost_enters = 0;
        let all_rows = threads.iter().map(|steps| rows(steps, lost, end_ns, are_named, &mut lost_enters));
        let all_rows: Vec<Vec<Row>> = all_rows.collect();
        let recorded_ns = all_rows.iter().flatten().filter_map(|row| match row {
            Row::Event(_, tick, _) => Some(*tick as i64 - START_NS),
            _ => None,
        });
        let heartbeat_ns = recorded_ns.max().unwrap_or(0).max(end_ns - silent_ns);
        let known_ns = if is_waited_for { end_ns } else { heartbeat_ns };
        let recording = TestRecording {
            rank: Some(0),
            rank_count: None,
            id: 0,
            start_ns: START_NS,
            end_ns: START_NS + known_ns,
            clocks: vec![REFERENCE],
            streams: all_rows.into_iter().map(|rows| TestStream {
                clock: 0,
                ordering: SourceOrder::Ordered,
                chunks: vec![(START_NS, rows)],
            }).collect(),
            has_footer: true,
        };
        let scratch = tempfile::tempdir().expect("a directory");
        recording.write_killed(scratch.path(), if is_waited_for { 0 } else { 100 });
        let mut truth = BTreeMap::new();
        let outside_ns: i64 = threads.iter().map(|steps| run(steps, end_ns, &mut truth)).sum();
        let found = regions(scratch.path());
        let trace = scratch.path().join("trace.annals");
        let plan = annals_merger::MergeOptions::new().plan(&[scratch.path().to_owned()]);
        plan.expect("a recording").write_trace(&trace, annals_merger::no_progress).expect("a trace");
        prop_assert_eq!(&regions(&trace), &found);
        // Of an enter that is lost, nothing says how long its call took, nor that others were not the innermost one.
        let is_interval = !matches!(lost, Lost::Some) && lost_enters == 0;
        let answered = found["regions"].as_array().expect("rows");
        for (region, name) in REGION_NAMES.iter().enumerate() {
            let spent: Spent = truth.get(&(region as u64)).copied().unwrap_or_default();
            let Some(row) = answered.iter().find(|row| row["region"] == *name) else {
                prop_assert!(spent.calls == 0 || lost_enters != 0, "{} is missing: {:?}", name, spent);
                continue;
            };
            let (calls, uncertain) = (number(row, "calls"), number(row, "uncertain_calls"));
            prop_assert!(calls.abs_diff(spent.calls) <= uncertain as u64, "{}: {:?}", row, spent);
            let is_exact = row["time_is_uncertain"] == false && uncertain == 0;
            for (field, more, truth_ns) in [
                ("inclusive_ns", "inclusive_more_ns", spent.inclusive_ns),
                ("exclusive_ns", "exclusive_more_ns", spent.exclusive_ns),
            ] {
                let answer = (number(row, field), number(row, more));
                check(&format!("{field} of {name}: {row}"), truth_ns, answer, is_exact, is_interval);
            }
        }
        let outside = &found["outside"][0];
        let answer = (number(outside, "time_ns"), number(outside, "more_ns"));
        let is_exact = outside["is_uncertain"] == false;
        check("outside of all regions", outside_ns, answer, is_exact, is_interval);
    }
}
