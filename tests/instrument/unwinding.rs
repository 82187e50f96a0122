//! Functions that are left by exceptions, longjmp, the ends of their threads, and cancellation.

use std::process::Command;

use crate::{ROOT, Value, output, regions, trace_cli};

#[test]
fn functions_that_are_left_end_where_they_were_left() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("program");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++11", "-g", "-O1", "-fno-inline", "-pthread"]);
    compiler.args(["-fno-optimize-sibling-calls", "-finstrument-functions"]);
    compiler.arg("-finstrument-functions-exclude-file-list=/usr/include");
    let source = std::path::Path::new(ROOT).join("tests/instrument/unwinding.cpp");
    output(compiler.arg(source).arg("-o").arg(&program));
    for way in ["throw", "longjmp", "exit", "cancel"] {
        let run = scratch.path().join(way);
        let mut record = trace_cli();
        record.arg("record").arg("-o").arg(&run).arg("--");
        let printed = output(record.arg(&program).arg(way));
        let calls: u64 = printed.trim().parse().expect("a number");
        let regions = regions(&run, &[]);
        let row = |name: &str| {
            let found = regions.iter().find(|region| region["region"] == name);
            found.unwrap_or_else(|| panic!("{way}: {name}"))
        };
        let is = |name: &str, field: &str, expected: u64| {
            assert_eq!(
                row(name)[field],
                Value::from(expected),
                "{way}: {}",
                row(name)
            );
        };
        is("innermost()", "calls", calls);
        is("middle(int)", "calls", 3 * calls);
        // Where a jump skipped them, no hook is called at the end.
        let skipped = if way == "longjmp" { 40 } else { 0 };
        is("innermost()", "unleft_calls", skipped);
        is("middle(int)", "unleft_calls", 3 * skipped);
        for name in ["main", "thread(void*)", "middle(int)", "innermost()"] {
            is(name, "unmatched_leaves", 0);
            is(name, "open_calls", 0);
        }
        is("thread(void*)", "calls", 40);
    }
}
