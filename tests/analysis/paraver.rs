//! Traces of the Paraver format: a small one, value by value, and the efficiencies of real ones.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use annals_analysis::{
    Efficiencies, EfficiencyModel, LostTime, LostTimeOptions, WaitPattern, lost_time,
};
use annals_merger::{Query, Reader, Value};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn lost(path: &Path) -> LostTime {
    let reader = Reader::open(path).expect("a trace");
    let found = lost_time(&reader, &Query::new(), &LostTimeOptions::default()).expect("a trace");
    found.expect("whole definitions").0
}

fn multiplicative(lost: &LostTime) -> Efficiencies {
    let mut models = lost.efficiencies.iter();
    let found = models.find(|found| found.model == EfficiencyModel::Multiplicative);
    *found.expect("efficiencies")
}

#[test]
fn a_small_trace_is_read_value_by_value() {
    for name in ["two.prv", "two.prv.gz"] {
        let path = Path::new(ROOT).join("tests/data/paraver").join(name);
        let reader = Reader::open(&path).expect("a trace");
        let mut seen = Vec::new();
        reader
            .for_each_event(&Query::new(), |event| {
                let values = event.values().map(|(name, value)| match value {
                    Value::I64(number) => format!(" {name}={number}"),
                    _ => format!(" {}", event.region_name().unwrap_or_default()),
                });
                let values: String = values.collect();
                let (time, rank, name) = (event.time(), event.rank(), event.name());
                seen.push(format!("{time} {rank} {name}{values}"));
                ControlFlow::Continue(())
            })
            .expect("a trace");
        let expected = std::fs::read_to_string(path.with_file_name("two.txt")).expect("a file");
        assert_eq!(seen.join("\n") + "\n", expected, "{name}");
        let lost = lost(&path);
        assert!(lost.messages.matched == 1 && lost.messages.unmatched_sends == 0);
        let rows: Vec<(Option<WaitPattern>, u64, i64)> = lost
            .wait_states
            .iter()
            .map(|row| (row.pattern, row.count, row.wait_ns))
            .collect();
        let expected = [
            (Some(WaitPattern::LateSender), 1, 2000),
            (Some(WaitPattern::LateBroadcast), 1, 2000),
        ];
        assert_eq!(rows, expected);
        let first = &lost.causes[0];
        assert_eq!((first.rank, first.cost_ns), (0, 4000));
        // Late to the receive because of `assemble`, and to the broadcast because of work in no region.
        let extra = first
            .extra
            .iter()
            .map(|extra| (extra.path.join(">"), extra.cost_ns));
        let extra: Vec<(String, i64)> = extra.collect();
        assert_eq!(
            extra,
            [(String::new(), 2000), ("assemble".to_owned(), 2000)]
        );
    }
}

/// Efficiencies of EPOCH, as BSC's `modelfactors` computed them.
#[test]
fn efficiencies_are_those_of_the_reference_tool() {
    let samples = PathBuf::from(ROOT).join("../shared/reference/analysis-samples/epoch");
    let Ok(table) = std::fs::read_to_string(samples.join("precomputed.csv")) else {
        println!("NOT TESTED: the traces of EPOCH are not here");
        return;
    };
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().expect("columns").split(',').collect();
    let mut reference: Option<f64> = None;
    for line in lines {
        let values: Vec<&str> = line.split(',').collect();
        let expected = |name: &str| -> f64 {
            let at = columns.iter().position(|column| *column == name);
            values[at.expect("a column")].parse().expect("a number")
        };
        let ranks = values[0];
        let lost = lost(&samples.join(format!("epoch_{ranks}proc.prv.gz")));
        let found = multiplicative(&lost);
        let useful: i64 = lost.ranks.iter().map(|rank| rank.useful_ns).sum();
        let scaling = *reference.get_or_insert(useful as f64) / useful as f64;
        let factors = [
            ("Parallel Efficiency", Some(found.parallel)),
            ("MPI Load Balance", found.load_balance),
            ("MPI Communication Efficiency", found.communication),
            ("MPI Serialisation Efficiency", found.serialisation),
            ("MPI Transfer Efficiency", found.transfer),
            ("Computation Scaling", Some(scaling)),
            ("Global Efficiency", Some(scaling * found.parallel)),
        ];
        for (name, factor) in factors {
            let factor = factor.expect("a factor");
            let expected = expected(name);
            println!("{ranks} {name}: {factor:.4}, expected {expected:.4}");
            assert!(
                (factor - expected).abs() <= 0.01,
                "{ranks} {name}: {factor} {expected}"
            );
        }
    }
}

/// Returns the lines of a thread that takes part in a broadcast of a communicator with root task 1.
fn broadcast(application: u32, task: u32, at: u64) -> String {
    let thread = format!("2:1:{application}:{task}:1");
    let root = if task == 1 { ":50100003:1" } else { "" };
    format!(
        "{thread}:{at}:50000002:7:50100001:8:50100002:8:50100004:1{root}\n{thread}:{}:50000002:0\n",
        at + 50
    )
}

#[test]
fn applications_are_kept_apart() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("three.prv");
    let labels = Path::new(ROOT).join("tests/data/paraver/two.pcf");
    std::fs::copy(labels, path.with_extension("pcf")).expect("a file");
    // By application: threads and node of each task.
    let applications: [&[(u32, u32)]; 3] =
        [&[(1, 1), (1, 2)], &[(2, 1)], &[(1, 2), (1, 1), (1, 2)]];
    for separator in [",", ":"] {
        let described = applications.iter().map(|tasks| {
            let each = tasks
                .iter()
                .map(|(threads, node)| format!("{threads}:{node}"));
            format!("{}({})", tasks.len(), each.collect::<Vec<_>>().join(","))
        });
        let described = described.collect::<Vec<_>>().join(separator);
        let mut text = format!("#Paraver (21/01/2022 at 16:37):10000_ns:2(4,4):3:{described},3\n");
        // In each, communicator 1 has all tasks, in the reverse order.
        for (number, tasks) in (1..).zip(applications) {
            let members = (1..=tasks.len()).rev().map(|task| format!(":{task}"));
            let members: String = members.collect();
            text += &format!("c:{number}:1:{}{members}\n", tasks.len());
        }
        // In each that has two tasks, the first sends to the second, at one time and with one tag.
        for (number, tasks) in (1_u32..).zip(applications) {
            let bytes = 100 * number;
            if tasks.len() > 1 {
                text += &format!("3:1:{number}:1:1:100:110:2:{number}:2:1:100:200:{bytes}:9\n");
            }
        }
        text += "2:1:2:1:2:150:123456:7\n";
        for (number, tasks) in (1_u32..).zip(applications) {
            (1..=tasks.len() as u32).for_each(|task| text += &broadcast(number, task, 1000));
        }
        std::fs::write(&path, text).expect("a file");
        let reader = Reader::open(&path).expect("a trace");
        let definitions = reader.definitions();
        let mut locations: Vec<(u32, &str, &str)> = definitions
            .locations
            .values()
            .map(|location| {
                let process = &definitions.processes[&location.process];
                (
                    definitions.rank_of_location(location.id),
                    definitions.string(process.host),
                    definitions.string(location.name),
                )
            })
            .collect();
        locations.sort_unstable();
        let expected = [
            (0, "node 1", "thread 1.1.1"),
            (1, "node 2", "thread 1.2.1"),
            (2, "node 1", "thread 2.1.1"),
            (2, "node 1", "thread 2.1.2"),
            (3, "node 2", "thread 3.1.1"),
            (4, "node 1", "thread 3.2.1"),
            (5, "node 2", "thread 3.3.1"),
        ];
        assert_eq!(locations, expected);
        let mut seen = std::collections::BTreeSet::new();
        reader
            .for_each_event(&Query::new(), |event| {
                let values: Vec<(&str, Value<'_>)> = event.values().collect();
                let number = |wanted: &str| {
                    let found = values.iter().find(|(name, _)| *name == wanted);
                    match found.expect("a value").1 {
                        Value::I64(number) => number,
                        value => panic!("{value:?}"),
                    }
                };
                let (rank, name) = (event.rank(), event.name());
                let what = match name {
                    "send" | "receive" => [number("peer"), number("bytes"), number("sequence")],
                    "collective begin" => [
                        number("communicator") >> 32,
                        number("size"),
                        number("place"),
                    ],
                    _ => return ControlFlow::Continue(()),
                };
                seen.insert((rank, name.to_string(), what));
                ControlFlow::Continue(())
            })
            .expect("a trace");
        let begin = |rank, what| (rank, "collective begin".to_owned(), what);
        let expected = [
            begin(0, [1, 2, 1]),
            begin(1, [1, 2, 0]),
            begin(2, [2, 1, 0]),
            begin(3, [3, 3, 2]),
            begin(4, [3, 3, 1]),
            begin(5, [3, 3, 0]),
            (0, "send".to_owned(), [1, 100, 0]),
            (1, "receive".to_owned(), [0, 100, 0]),
            (3, "send".to_owned(), [4, 300, 0]),
            (4, "receive".to_owned(), [3, 300, 0]),
        ];
        assert_eq!(seen, expected.into_iter().collect());
        let lost = lost(&path);
        assert_eq!(
            (lost.messages.matched, lost.messages.unmatched_sends),
            (2, 0)
        );
    }
}

#[test]
fn a_bad_first_line_is_named_with_file_place_and_what_was_expected() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("bad.prv");
    for (header, offset, expected) in [
        (
            "2:2(1:1,1:1),1",
            14,
            "a colon or a comma, and the next application",
        ),
        ("1:2(1:1,1:1),1(1:1)", 12, "the end of the line"),
        (
            "2:2(1:1,1:1);1(1:1)",
            12,
            "a colon or a comma, and the next application",
        ),
        ("2:2(1:1),1(1:1)", 7, "a comma, and the next task"),
        ("2:2(1:1,1:1),x", 13, "the number of communicators"),
    ] {
        let before = "#Paraver (21/01/2022 at 16:37):2000_ns:0:";
        std::fs::write(&path, format!("{before}{header}\n")).expect("a file");
        let error = Reader::open(&path).expect_err("no trace");
        let mut chain = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            chain += &format!(": {error}");
            source = error.source();
        }
        let place = format!("at byte {}: expected {expected}", before.len() + offset);
        assert!(
            chain.contains("bad.prv") && chain.contains(&place),
            "{header}: {chain}"
        );
    }
}

#[test]
fn a_communicator_of_tasks_of_other_applications_is_reported() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("members.prv");
    let header = "#Paraver (21/01/2022 at 16:37):2000_ns:0:2:2(1:1,1:1),1(1:1)";
    for (line, is_right) in [
        ("c:1:1:2:1:2", true),
        ("c:2:1:1:1", true),
        ("c:2:1:2:1:2", false),
        ("c:3:1:1:1", false),
        ("c:1:1:1:0", false),
    ] {
        let text = format!("{header}\n{line}\n2:1:1:1:1:0:123456:1\n");
        std::fs::write(&path, text).expect("a file");
        let reader = Reader::open(&path).expect("a trace");
        let report = reader.summary().expect("a trace").report.expect("a report");
        let damage: Vec<&str> = report
            .inputs
            .iter()
            .flat_map(|input| &input.damage)
            .map(|damage| damage.what.as_str())
            .collect();
        let expected = "expected a communicator of tasks that its application has";
        assert_eq!(
            damage,
            if is_right { vec![] } else { vec![expected] },
            "{line}"
        );
    }
}
