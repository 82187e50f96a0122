//! Pipit's values of its two archives: ours are equal, but for its floating-point times.

use std::collections::BTreeMap;
use std::path::Path;

use annals_analysis::{Grouping, messages, region_times};
use annals_merger::{Query, Reader};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// By region and rank: calls, inclusive and exclusive time in nanoseconds.
type Times = BTreeMap<(String, u32), (u64, i64, i64)>;

fn times(reader: &Reader) -> Times {
    let found = region_times(reader, &Query::new(), Grouping::Rank).expect("an archive");
    let rows = found.0.regions.into_iter();
    rows.map(|row| {
        let rank = row.rank.expect("a rank");
        (
            (row.name, rank),
            (row.calls, row.inclusive_ns, row.exclusive_ns),
        )
    })
    .collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Pipit adds times in seconds as floating-point numbers; ours are rounded to a nanosecond at each enter and leave.
fn is_equal(own_ns: f64, other_ns: f64, calls: u64) -> bool {
    (own_ns - other_ns).abs() <= 2.0 * (calls + 1) as f64
}

#[test]
fn values_are_those_of_pipit() {
    let samples = Path::new(ROOT).join("../shared/reference/otf2-samples");
    if !samples.exists() {
        eprintln!("NOT TESTED: {} is not there", samples.display());
        return;
    }
    let path = Path::new(ROOT).join("tests/data/pipit/ping-pong.json");
    let expected = std::fs::read_to_string(path).expect("a file");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    for (name, expected) in expected["archives"].as_object().expect("archives") {
        let reader = Reader::open(samples.join(name).join("traces.otf2")).expect("an archive");
        let times = times(&reader);
        let imbalance = expected["load_imbalance"].as_object().expect("functions");
        for (function, expected) in imbalance {
            let of = |rank: u32| times[&(function.clone(), rank)];
            let exclusive = [of(0).2 as f64, of(1).2 as f64];
            let mean_ns = f64::midpoint(exclusive[0], exclusive[1]);
            let calls: u64 = times.values().map(|times| times.0).sum();
            let expected_ns = number(&expected["mean_ns"]);
            assert!(
                is_equal(mean_ns, expected_ns, calls),
                "{name} {function}: {mean_ns} {expected_ns}"
            );
            let ratio = exclusive[0].max(exclusive[1]) / mean_ns;
            let expected = number(&expected["max_to_mean"]);
            assert!(
                (ratio - expected).abs() < 0.01,
                "{name} {function}: {ratio} {expected}"
            );
        }
        let waits = ["MPI_Wait", "MPI_Waitall", "MPI_Recv"];
        for rank in 0..2 {
            let own = times
                .iter()
                .filter(|((region, of), _)| *of == rank && waits.contains(&region.as_str()));
            let sum = own.fold((0, 0), |sum, (_, times)| (sum.0 + times.0, sum.1 + times.1));
            let expected_ns = number(&expected["idle_time_ns"][rank as usize]);
            assert!(
                is_equal(sum.1 as f64, expected_ns, sum.0),
                "{name} {rank}: {sum:?}"
            );
        }
        let found = messages(&reader, &Query::new()).expect("an archive");
        let found = found.expect("messages").0;
        let mut matrix = [[(0, 0); 2]; 2];
        for row in &found.pairs {
            matrix[row.from_rank as usize][row.to_rank as usize] = (row.count, row.bytes);
        }
        for (from, row) in matrix.iter().enumerate() {
            for (to, (count, bytes)) in row.iter().enumerate() {
                assert_eq!(
                    *count as f64,
                    number(&expected["comm_matrix_messages"][from][to])
                );
                assert_eq!(
                    *bytes as f64,
                    number(&expected["comm_matrix_bytes"][from][to])
                );
            }
        }
    }
}
