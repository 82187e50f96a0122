//! Tables of a program whose names are long.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ROOT, output, trace_cli};

/// The lines of a table in so many columns.
fn table(arguments: &[&str], run: &Path, columns: &str) -> Vec<String> {
    let mut command = trace_cli();
    command.arg(arguments[0]).arg(run).args(&arguments[1..]);
    let text = output(command.env("COLUMNS", columns));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn tables_of_a_cpp_program_fit_the_terminal_and_json_has_whole_names() {
    let scratch = tempfile::tempdir().expect("a directory");
    let (program, run) = (scratch.path().join("templates"), scratch.path().join("run"));
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-g", "-O0", "-finstrument-functions"]);
    compiler.arg(Path::new(ROOT).join("tests/instrument/templates.cpp"));
    output(compiler.arg("-o").arg(&program));
    let mut record = trace_cli();
    output(
        record
            .arg("record")
            .arg("-o")
            .arg(&run)
            .arg("--")
            .arg(&program),
    );

    let rules = scratch.path().join("rules");
    let rules = rules.to_str().expect("text");
    let commands: [&[&str]; 9] = [
        &["regions"],
        &["regions", "--by", "location"],
        &["regions", "--tree"],
        &["flat", "--top", "30"],
        &["suggest-filter", "--at-least", "8", "-o", rules],
        &["dropped"],
        &["events"],
        &["sources"],
        &["diff", run.to_str().expect("text"), "--all"],
    ];
    for arguments in commands {
        for columns in ["80", "120"] {
            let lines = table(arguments, &run, columns);
            let most: usize = columns.parse().expect("a number");
            // Sentences may follow.
            for line in lines.iter().take_while(|line| !line.is_empty()) {
                let width = line.chars().count();
                assert!(width <= most, "{arguments:?} {columns}: {width}: {line}");
            }
        }
    }

    let json: Value = {
        let mut command = trace_cli();
        serde_json::from_str(&output(command.arg("regions").arg(&run).arg("--json"))).expect("JSON")
    };
    let rows = json["regions"].as_array().expect("rows");
    let names: BTreeSet<&str> = rows.iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.iter().any(|name| name.len() > 200), "{names:#?}");
    let mangled = names.iter().filter(|name| name.starts_with("_Z"));
    assert_eq!(mangled.count(), 0, "{names:#?}");
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("std::swap<mesh::Cell>(")),
        "{names:#?}"
    );

    // Every name in a table at 80 columns is different, and so is every name of the program.
    let lines = table(&["regions"], &run, "80");
    let is_first = lines[0].starts_with("region");
    let of_line = |line: &String| {
        let words: Vec<&str> = line.split("  ").filter(|word| !word.is_empty()).collect();
        let name = if is_first {
            words.first()
        } else {
            words.last()
        };
        name.map(|name| name.trim().to_owned())
    };
    let shown: Vec<String> = lines[1..=names.len()].iter().filter_map(of_line).collect();
    let different: BTreeSet<&String> = shown.iter().collect();
    assert_eq!(
        (shown.len(), different.len()),
        (names.len(), names.len()),
        "{lines:#?}"
    );

    let full = {
        let mut command = trace_cli();
        command.arg("regions").arg(&run).arg("--full-names");
        output(command.env("COLUMNS", "80"))
    };
    for name in names {
        assert!(full.contains(name), "{name}");
    }
}
