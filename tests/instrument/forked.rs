//! Children made by fork, which nothing records.

use std::process::Command;

use crate::{ROOT, output, text_of, trace_cli};

#[test]
fn children_made_by_fork_that_call_functions_are_counted_however_the_parent_ends() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-finstrument-functions"]);
    let source = std::path::Path::new(ROOT).join("tests/instrument/forked.c");
    output(compiler.arg(source).arg("-o").arg(&program));
    for (way, code) in [(&[][..], 0), (&["_exit"], 1)] {
        let run = scratch.path().join(format!("run-{}", way.len()));
        let mut record = trace_cli();
        record.arg("record").arg("-o").arg(&run).arg("--");
        record.arg(&program).args(way);
        let said = record.output().expect("trace-cli");
        let expected = "2 children made by fork are not recorded";
        assert!(text_of(&said.stderr).contains(expected), "{said:?}");
        assert_eq!(said.status.code(), Some(code), "{said:?}");
        for command in ["info", "dropped"] {
            let said = trace_cli().arg(command).arg(&run).output();
            let said = text_of(&said.expect("trace-cli").stdout);
            assert!(said.contains(expected), "{command}: {said}");
        }
    }
}
