//! The table of the standard's sentences names tests that exist, in Rust and in C.

use std::collections::BTreeSet;

const TABLE: &str = include_str!("conformance.tsv");

/// Test functions by `module::name`.
fn tests_in_rust() -> BTreeSet<String> {
    let sources = [
        ("attach", include_str!("attach.rs")),
        ("drops", include_str!("drops.rs")),
        ("events", include_str!("events.rs")),
        ("order", include_str!("order.rs")),
        ("storm", include_str!("storm.rs")),
        ("variables", include_str!("variables.rs")),
    ];
    let mut tests = BTreeSet::new();
    for (module, source) in sources {
        for test in source.split("#[test]\nfn ").skip(1) {
            let (name, _) = test.split_once('(').expect("a function");
            tests.insert(format!("{module}::{name}"));
        }
    }
    tests
}

/// Functions that the C programs run.
fn tests_in_c() -> BTreeSet<String> {
    let programs = [include_str!("events.c"), include_str!("variables.c")];
    let runs = programs.iter().flat_map(|p| p.split("RUN(").skip(1));
    let names = runs.filter_map(|run| Some(run.split_once(')')?.0.to_owned()));
    names.collect()
}

/// Returns why a row, or its C column, has no test; nothing when all is well.
fn fault(row: &str, rust: &BTreeSet<String>, c: &BTreeSet<String>) -> Option<String> {
    let fields: Vec<&str> = row.split('\t').collect();
    let [section, fragment, in_rust, in_c, why] = fields[..] else {
        return Some(format!("not five columns: {row}"));
    };
    if section.is_empty() || fragment.is_empty() {
        return Some(format!("what sentence? {row}"));
    }
    for (column, tests) in [(in_rust, rust), (in_c, c)] {
        if column == "-" {
            if why.is_empty() {
                return Some(format!("neither a test nor a reason: {row}"));
            }
            continue;
        }
        for name in column.split(' ') {
            if !tests.contains(name) {
                return Some(format!("there is no test {name}: {row}"));
            }
        }
    }
    None
}

#[test]
fn every_sentence_has_its_tests_or_says_why_not() {
    let (rust, c) = (tests_in_rust(), tests_in_c());
    let rows: Vec<&str> = TABLE.lines().skip(1).collect();
    assert!(rows.len() > 80, "{}", rows.len());
    let faults: Vec<String> = rows
        .iter()
        .filter_map(|row| fault(row, &rust, &c))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let sentences: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.split("\t-\t").next().unwrap())
        .collect();
    assert_eq!(sentences.len(), rows.len(), "a row stands there twice");
}

/// The test above can fail.
#[test]
fn a_row_without_a_test_is_a_fault() {
    let (rust, c) = (tests_in_rust(), tests_in_c());
    let known = "events::displacements_ascend_from_zero_and_do_not_overlap";
    let good = format!("16\tfragment\t{known}\ttexts_are_cut_to_the_buffer\t");
    assert_eq!(fault(&good, &rust, &c), None);
    for wrong in [
        "16\tfragment\t-\t-\t".to_owned(),
        "16\tfragment\tevents::gone\t-\twhy".to_owned(),
        format!("16\tfragment\t{known}\tgone\t"),
        format!("16\tfragment\t{known}\ttexts_are_cut_to_the_buffer"),
        format!("\tfragment\t{known}\t-\twhy"),
    ] {
        assert!(fault(&wrong, &rust, &c).is_some(), "{wrong}");
    }
}
