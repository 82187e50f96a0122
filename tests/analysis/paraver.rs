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
