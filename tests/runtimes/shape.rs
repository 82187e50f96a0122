//! A program of the shape of one that Score-P has recorded by OMPT: both tables are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::{ROOT, Runtime, ask, record};

/// Returns the calls of each kind of constructs, the number of places of parallel regions, and of threads.
fn table(directory: &Path, words: &[(&str, &[&str])]) -> (BTreeMap<String, u64>, usize, usize) {
    let rows = ask(&["regions", "--by", "location"], directory);
    let rows: &[Value] = rows["regions"].as_array().expect("rows");
    let name = |row: &Value| row["region"].as_str().expect("a name").to_owned();
    let calls = words.iter().map(|(word, names)| {
        let of_kind = rows
            .iter()
            .filter(|row| names.contains(&place_of(&name(row)).0));
        let calls = of_kind.map(|row| row["calls"].as_u64().expect("a number"));
        ((*word).to_owned(), calls.sum())
    });
    let calls = calls.collect();
    let parallel = rows.iter().map(name);
    let parallel = parallel.filter(|name| place_of(name).0 == "!$omp parallel");
    let locations = rows.iter().filter_map(|row| row["location"].as_str());
    let places: BTreeSet<String> = parallel.collect();
    (
        calls,
        places.len(),
        locations.collect::<BTreeSet<_>>().len(),
    )
}

/// Returns the name of a construct, and where it is.
fn place_of(name: &str) -> (&str, &str) {
    let (construct, place) = name.split_once('@').unwrap_or((name, ""));
    (construct.trim_end(), place)
}

#[test]
fn a_recording_has_the_table_that_score_ps_archive_of_the_same_shape_has() {
    let samples = "../shared/reference/analysis-samples/casita/1_scorep-ompt-host-nested";
    let archive = Path::new(ROOT).join(samples).join("traces.otf2");
    let program = Runtime::Libomp(19).compile("shape.c", &[]);
    let recorded = record(&[], &[], &[program.to_str().expect("UTF-8")]);
    assert!(recorded.output.status.success(), "{:?}", recorded.said());
    let own = [
        ("member of a team", &["!$omp parallel"][..]),
        ("loop", &["!$omp for schedule(static)"]),
        ("barrier", &["!$omp implicit barrier"]),
    ];
    let own = table(&recorded.directory, &own);
    let all = ["member of a team", "loop", "barrier"].map(|word| (word.to_owned(), 24));
    assert_eq!(own, (all.into(), 4, 10));
    if !archive.is_file() {
        eprintln!("NOT TESTED: {} is not there", archive.display());
        return;
    }
    let of_archive = [
        ("member of a team", &["!$omp implicit_task"][..]),
        ("loop", &["!$omp loop"]),
        ("barrier", &["!$omp barrier"]),
    ];
    assert_eq!(table(&archive, &of_archive), own);
}
