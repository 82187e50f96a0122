//! Samples of call paths in archives.

use std::path::Path;

use crate::{Json, cli, number};

/// An archive of the reference library: its calling contexts are call paths, its generators of interrupts say what a sample represents.
#[test]
fn samples_of_archives_are_samples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/otf2-python/bin/python");
    if !python.exists() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let archive = scratch.path().join("a");
    let mut writer = std::process::Command::new(python);
    writer.arg(root.join("tests/otf2/samples.py")).arg(&archive);
    assert!(writer.status().unwrap().success());
    let anchor = archive.join("traces.otf2");
    let again = scratch.path().join("again.otf2");
    crate::to_archive(std::slice::from_ref(&anchor), &again);
    for anchor in [anchor, again] {
        let anchor = anchor.to_str().unwrap();
        let (code, out, err) = cli(&["samples", anchor, "--by", "line", "--json"]);
        assert_eq!(code, 0, "{err}");
        let answer: Json = serde_json::from_str(&out).unwrap();
        let rows = answer["rows"].as_array().unwrap().iter();
        let mut rows: Vec<(String, [i128; 4])> = rows
            .map(|row| {
                let name = format!("{} {}", row["function"].as_str().unwrap(), row["line"]);
                let numbers = ["samples", "self_ns", "total_samples", "total_ns"];
                (name, numbers.map(|name| number(&row[name])))
            })
            .collect();
        rows.sort();
        let ms = 1_000_000;
        let expected = [
            ("main 10", [0, 0, 14, 20 * ms]),
            // Of the counter, what a sample represents is not known.
            ("relax 30", [9, 10 * ms, 11, 14 * ms]),
            ("relax 31", [2, 4 * ms, 2, 4 * ms]),
            ("solve 20", [3, 6 * ms, 14, 20 * ms]),
        ];
        let expected = expected.map(|(name, numbers)| (name.to_owned(), numbers));
        assert_eq!(rows, expected);
        let ways = answer["sampling"].to_string();
        assert!(
            ways.contains(r#""engine":"timer","period_ns":2000000"#)
                && ways.contains(r#""engine":"PAPI_TOT_INS","period_ns":null"#),
            "{ways}"
        );
        let (_, out, _) = cli(&["regions", anchor, "--csv"]);
        let calls = |name: &str| {
            let mut lines = out.lines();
            lines.any(|line| line.contains(&format!("{name},")) && line.contains(",1,"))
        };
        assert!(calls("main") && calls("solve"), "{out}");
    }
}
