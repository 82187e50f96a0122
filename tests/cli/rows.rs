//! Every table has one name for each column and the same values, however it is printed.

use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::CollectiveOperation as Op;
use annals_test_support::mpi_script::{Deed, Script};
use serde_json::Value;

use crate::serve::{trace, trace_of};

fn cli(arguments: &[&str], input: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg(arguments[0]).arg(input).args(&arguments[1..]);
    let output = command.output().expect("trace-cli");
    let said = String::from_utf8_lossy(&output.stderr);
    let is_read = matches!(output.status.code(), Some(0 | 3));
    assert!(is_read, "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str], input: &Path) -> Value {
    serde_json::from_str(&cli(&[arguments, &["--json"]].concat(), input)).expect("JSON")
}

/// Returns the columns and rows of comma-separated values.
fn parsed(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let columns = reader.headers().expect("columns").iter();
    let columns = columns.map(str::to_owned).collect();
    let rows = reader.records().map(|row| {
        let row = row.expect("a row");
        row.iter().map(str::to_owned).collect()
    });
    (columns, rows.collect())
}

/// Returns a value of JSON as comma-separated values have it. `None` if it is made of several.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        Value::Bool(holds) => Some(holds.to_string()),
        Value::Number(number) => Some(match number.as_i64() {
            Some(number) => number.to_string(),
            None => number.as_f64().expect("a number").to_string(),
        }),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns whether two values are the same, numbers but for what reading them has rounded.
fn is_same(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-12 * one.abs(),
        _ => one == other,
    }
}

/// Checks that columns have the values of rows of JSON.
fn check(what: &str, columns: &[String], rows: &[Vec<String>], expected: &[Value]) {
    assert_eq!(rows.len(), expected.len(), "{what}");
    for (row, expected) in rows.iter().zip(expected) {
        for (name, cell) in columns.iter().zip(row) {
            let value = expected.get(name);
            let value = value.unwrap_or_else(|| panic!("{what}: no {name} in {expected}"));
            if let Some(text) = plain(value) {
                assert!(is_same(cell, &text), "{what}: {name} is {cell} and {text}");
            }
        }
        let names = expected.as_object().expect("a row").iter();
        let single = names.filter(|(_, value)| plain(value).is_some());
        // The share of the whole run is not known in a table of some ranks.
        for (name, _) in single.filter(|(name, _)| *name != "share") {
            assert!(columns.contains(name), "{what}: {name} is in JSON only");
        }
    }
}

/// Returns a recording with samples.
fn sampled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/samples/heat.annals")
}

/// Three ranks that send to each other, and meet.
fn script() -> Script {
    let mut script = Script::new(3);
    for rank in 0..3 {
        let late = 10 * i64::from(rank as u32);
        let to = (rank as u32 + 1) % 3;
        script.rank(
            rank,
            &[
                (0, Deed::Enter("solve")),
                (40 + late, Deed::Leave("solve")),
                (40 + late, Deed::Enter("MPI_Send")),
                (41 + late, Deed::Send(to, 8)),
                (50 + late, Deed::Leave("MPI_Send")),
                (50 + late, Deed::Enter("MPI_Recv")),
                (75 + late, Deed::Receive((rank as u32 + 2) % 3, 8)),
                (76 + late, Deed::Leave("MPI_Recv")),
                (100 + late, Deed::Enter("MPI_Barrier")),
                (100 + late, Deed::Begin(Op::Barrier, 0)),
                (130, Deed::End(Op::Barrier, 0)),
                (130, Deed::Leave("MPI_Barrier")),
            ],
        );
    }
    script
}

#[test]
fn comma_separated_values_and_json_have_the_same_columns_and_values() {
    let scratch = tempfile::tempdir().expect("a directory");
    let messages = trace_of(scratch.path(), "messages.annals", &script());
    let synthetic = trace(scratch.path(), "synthetic.annals", 3, 3_000, true);
    let second = synthetic.to_str().expect("a path");
    let sampled = sampled();
    let tables: [(&[&str], &str); 19] = [
        (&["regions"], "/regions"),
        (&["regions", "--by", "rank"], "/regions"),
        (&["regions", "--by", "location"], "/regions"),
        (&["regions", "--tree"], "/tree"),
        (&["messages"], "/pairs"),
        (&["collectives"], "/collectives"),
        (&["why"], "/causes"),
        (&["why", "--by", "rank"], "/ranks"),
        (&["why", "--by", "region"], "/wait_states"),
        (&["why", "--by", "path"], "/critical_path/regions"),
        (&["why", "--phase", "solve"], "/phases"),
        (&["sources"], "/sources"),
        (&["events"], "/event_types"),
        (&["dropped"], "/dropped"),
        (&["diff", second, "--all"], "/regions"),
        (&["intervals"], "/intervals"),
        (&["samples"], "/rows"),
        (&["samples", "--by", "line,rank"], "/rows"),
        (&["samples", "--tree"], "/tree"),
    ];
    let mut seen = 0;
    for input in [&messages, &synthetic, &sampled] {
        for (arguments, place) in tables {
            let has_answer = |arguments: &[&str]| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
                command.arg(arguments[0]).arg(input).args(&arguments[1..]);
                command
                    .output()
                    .is_ok_and(|output| output.status.code() != Some(1))
            };
            // Without such events, there is an error.
            if !has_answer(arguments) {
                continue;
            }
            let (columns, mut rows) = parsed(&cli(&[arguments, &["--csv"]].concat(), input));
            let answer = json(arguments, input);
            let expected = answer.pointer(place).and_then(Value::as_array);
            let expected = expected.unwrap_or_else(|| panic!("{arguments:?}: no {place}"));
            if arguments.contains(&"region") {
                // Time in MPI that is no wait is not among the rows of JSON.
                rows.retain(|row| !row[0].is_empty());
            }
            check(&format!("{arguments:?}"), &columns, &rows, expected);
            seen += rows.len();
            let total = answer["rows_total"].as_u64();
            assert_eq!(total, Some(expected.len() as u64), "{arguments:?}");
            let first = json(&[arguments, &["--top", "1"]].concat(), input);
            assert_eq!(first["rows_total"].as_u64(), total, "{arguments:?}");
            let first = first.pointer(place).and_then(Value::as_array);
            assert_eq!(
                first.expect("rows").len(),
                expected.len().min(1),
                "{arguments:?}"
            );
        }
    }
    assert!(seen > 50, "{seen} rows were compared");
}

/// Returns columns and rows of an exported table.
fn exported(table: &str, input: &Path, directory: &Path) -> (Vec<String>, Vec<Vec<String>>) {
    let output = directory.join(table);
    let output = output.to_str().expect("a path");
    let export = ["export", "--format", "csv", "--table", table, "-o", output];
    cli(&export, input);
    let mut files = std::fs::read_dir(output).expect("a directory").flatten();
    let file = files.find(|file| file.path().extension().is_some_and(|of| of == "csv"));
    parsed(&std::fs::read_to_string(file.expect("a table").path()).expect("text"))
}

#[test]
fn exported_tables_have_the_columns_and_values_of_answers() {
    let scratch = tempfile::tempdir().expect("a directory");
    let input = trace_of(scratch.path(), "messages.annals", &script());
    let sampled = sampled();
    let tables: [(&Path, &str, &[&str], &str); 4] = [
        (
            &input,
            "regions",
            &["regions", "--by", "location"],
            "/regions",
        ),
        (
            &sampled,
            "samples",
            &["samples", "--by", "location"],
            "/rows",
        ),
        (
            &input,
            "critical_path",
            &["why", "--by", "path"],
            "/critical_path/regions",
        ),
        (&input, "efficiency", &["why"], "/efficiencies"),
    ];
    for (input, table, arguments, place) in tables {
        let (columns, rows) = exported(table, input, scratch.path());
        let answer = json(arguments, input);
        let expected = answer.pointer(place).and_then(Value::as_array);
        check(table, &columns, &rows, expected.expect("rows"));
    }
}

#[test]
fn the_help_of_export_names_every_column() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let help = command.args(["export", "--help"]).output().expect("help");
    let help = String::from_utf8(help.stdout).expect("text");
    let scratch = tempfile::tempdir().expect("a directory");
    let input = trace_of(scratch.path(), "messages.annals", &script());
    // Columns of events follow from the trace, those of regions are those of the command.
    let tables = [
        "calls",
        "messages",
        "drops",
        "collectives",
        "wait_states",
        "critical_path",
        "efficiency",
        "locations",
        "samples",
    ];
    for table in tables {
        let (_, section) = help
            .split_once(&format!("\n  {table}"))
            .unwrap_or_else(|| panic!("{table} is not described"));
        // Lines are broken again, without their indentation.
        let ends = tables
            .iter()
            .filter_map(|next| section.find(&format!("\n  {next}")));
        let end = ends.chain(section.find("\nParquet files")).min();
        let section = &section[..end.unwrap_or(section.len())];
        let is_part = |c: char| !c.is_alphanumeric() && c != '_';
        let words: Vec<&str> = section.split(is_part).collect();
        let (columns, _) = exported(table, &input, scratch.path());
        for column in columns {
            assert!(words.contains(&&*column), "{table} has {column}: {section}");
        }
    }
}
