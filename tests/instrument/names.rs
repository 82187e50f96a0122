//! Tables of a program whose names are long.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ROOT, output, trace_cli};

/// Returns the lines of a table in the given number of columns, without the sentence before it.
fn table(arguments: &[&str], run: &Path, columns: &str) -> Vec<String> {
    let mut command = trace_cli();
    command.arg(arguments[0]).arg(run).args(&arguments[1..]);
    let text = output(command.env("COLUMNS", columns));
    let has_sentence = matches!(arguments[0], "regions" | "flat") && !arguments.contains(&"--tree");
    let table = match text.split_once("\n\n") {
        Some((_, table)) if has_sentence => table,
        _ => &text,
    };
    table.lines().map(str::to_owned).collect()
}

#[test]
fn names_that_are_not_utf_8_are_shown_so_that_their_bytes_can_be_found() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    let source = scratch.path().join("main.c");
    std::fs::write(
        &source,
        "void work(void) {}\nint main(void) { work(); return 0; }\n",
    )
    .expect("a file");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O0", "-finstrument-functions", "-s"])
        .arg(&source);
    output(compiler.arg("-o").arg(&program));
    let run = scratch.path().join("run");
    let mut record = trace_cli();
    output(
        record
            .arg("record")
            .arg("-o")
            .arg(&run)
            .arg("--")
            .arg(&program),
    );
    let info = output(trace_cli().arg("info").arg(&run));
    assert!(info.contains("caf\\xe9"), "{info}");
    // It has no symbols: its functions are called after the file.
    let regions = output(trace_cli().arg("regions").arg(&run));
    assert!(regions.contains("caf\\xe9+0x"), "{regions}");
}

#[test]
fn rules_by_function_names_are_looked_up_and_those_that_match_nothing_are_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("steps");
    let source = scratch.path().join("steps.cpp");
    let text = "#include <unistd.h>\nnamespace mesh { void assemble(int) { usleep(10); } }\nvoid solve() { usleep(10); }\n\
                int main() { for (int i = 0; i < 2000; i++) { mesh::assemble(i); solve(); } }\n";
    std::fs::write(&source, text).expect("a file");
    let mut compiler = Command::new("c++");
    compiler
        .args(["-O0", "-g", "-finstrument-functions"])
        .arg(&source);
    output(compiler.arg("-o").arg(&program));
    let record = |rules: &str, run: &str| {
        let run = scratch.path().join(run);
        let mut record = trace_cli();
        record
            .arg("record")
            .arg("-o")
            .arg(&run)
            .args(["--filter", rules, "--"]);
        let said = record
            .arg(&program)
            .output()
            .expect("trace-cli runs")
            .stderr;
        let left = std::fs::read_dir(&run).expect("a directory").count();
        assert_eq!(left, 1, "nothing but the recording is left");
        let mut regions = trace_cli();
        let json = output(regions.arg("regions").arg(&run).arg("--json"));
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let rows = json["regions"].as_array().expect("rows").clone();
        let calls = move |name: &str| {
            let row = rows
                .iter()
                .find(|row| row["region"].as_str().is_some_and(|n| n.contains(name)));
            row.map_or(0, |row| row["calls"].as_u64().expect("a number"))
        };
        (String::from_utf8_lossy(&said).into_owned(), calls)
    };
    let (said, calls) = record(
        "off region mesh::*; off region nowhere*; off event nothing",
        "run",
    );
    assert!(
        said.contains("the rule `off region nowhere*` matched nothing"),
        "{said}"
    );
    assert!(
        said.contains("the rule `off event nothing` matched nothing"),
        "{said}"
    );
    assert!(!said.contains("mesh"), "{said}");
    assert_eq!(calls("solve"), 2000);
    assert_eq!(calls("mesh::assemble"), 0);
    let (said, calls) = record("off region *; on region solve*", "other");
    assert!(!said.contains("matched nothing"), "{said}");
    assert_eq!(calls("solve"), 2000, "the last rule that fits decides");
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
    let names: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row["region"].as_str())
        .collect();
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

#[test]
fn fortran_names_are_those_of_the_source() {
    let text = "module work\ncontains\n  subroutine nap(n)\n    integer, intent(in) :: n\n    call helper(n)\n  end subroutine\n\
                end module\nsubroutine helper(n)\n  integer, intent(in) :: n\n  if (n < 0) stop 1\nend subroutine\n\
                program heat\n  use work\n  call nap(1)\n  call inner()\ncontains\n  subroutine inner()\n    call nap(2)\n  \
                end subroutine\nend program\n";
    let scratch = tempfile::tempdir().expect("a directory");
    let source = scratch.path().join("heat.f90");
    std::fs::write(&source, text).expect("a file");
    let names = |with: &str, run: &str| {
        let program = scratch.path().join("heat");
        let mut compiler = Command::new("gfortran");
        compiler.args(["-O0", "-finstrument-functions", with]);
        compiler.arg(&source).arg("-J").arg(scratch.path());
        output(compiler.arg("-o").arg(&program));
        let run = scratch.path().join(run);
        let mut record = trace_cli();
        output(
            record
                .arg("record")
                .arg("-o")
                .arg(&run)
                .arg("--")
                .arg(&program),
        );
        let regions = output(trace_cli().arg("regions").arg(&run).arg("--json"));
        let regions: Value = serde_json::from_str(&regions).expect("JSON");
        let rows = regions["regions"].as_array().expect("rows").iter();
        let names = rows.map(|row| row["region"].as_str().expect("a name").to_owned());
        names.collect::<BTreeSet<String>>()
    };
    let expected = ["helper", "inner", "main", "program heat", "work::nap"];
    assert_eq!(
        names("-g", "with"),
        BTreeSet::from(expected.map(str::to_owned))
    );
    let expected = ["helper_", "inner.0", "main", "program", "work::nap"];
    assert_eq!(
        names("-g0", "without"),
        BTreeSet::from(expected.map(str::to_owned))
    );
}
