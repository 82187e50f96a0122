//! Programs of which only some calls of MPI are recorded: what depends on the others is not known, and no figure of it appears.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Run, flavours, prefix, text_of};

/// Returns the exit code and the output of a command about a trace.
pub(crate) fn answer(trace: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(prefix().join("bin/trace-cli"));
    command.arg(arguments[0]).arg(trace);
    let output = command.args(&arguments[1..]).output().expect("trace-cli");
    (output.status.code(), text_of(&output.stdout))
}

/// Checks that all commands first say which calls are missing, and that none has a figure that depends on them.
fn check_unknown(run: &Run, first: &str, code: i32) {
    let page = run.trace().with_extension("html");
    let page = page.to_string_lossy();
    let report = ["report", "-o", &*page];
    for arguments in [
        &["why"][..],
        &["why", "--by", "rank"],
        &report,
        &["info"],
        &["messages"],
        &["collectives"],
    ] {
        let (found, text) = answer(&run.trace(), arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
        assert!(text.starts_with(first), "{arguments:?}: {text}");
        assert!(!text.contains('%'), "{arguments:?}: {text}");
    }
    let shown = std::fs::read_to_string(&*page).expect("the page");
    assert!(shown.contains(first), "{shown}");
    let efficiencies = shown.split("id=\"efficiencies\"").nth(1);
    let balance = efficiencies.and_then(|rest| rest.split("id=\"messages\"").next());
    assert!(!balance.expect("sections").contains('%'), "{shown}");
    let (_, json) = answer(&run.trace(), &["why", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for figure in ["efficiencies", "ranks", "causes", "wait_states", "worst"] {
        assert!(json[figure].is_null(), "{figure}: {json}");
    }
    for arguments in [&["why", "--csv"][..], &["why", "--by", "rank", "--csv"]] {
        let (_, table) = answer(&run.trace(), arguments);
        assert_eq!(table.lines().count(), 1, "{table}");
    }
    let (_, json) = answer(&run.trace(), &["messages", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["longest_waits"].is_null(), "{json}");
    let (_, json) = answer(&run.trace(), &["collectives", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for row in json["collectives"].as_array().expect("rows") {
        assert!(row["wait_ns"].is_null(), "{json}");
    }
}

#[test]
fn calls_past_the_recorder_make_waits_unknown() {
    for flavour in flavours() {
        let program = flavour.program("unseen.c");
        let run = flavour.record(&program, &[], false);
        let first = "Not all calls of MPI are recorded: those of MPI_Barrier and MPI_Recv bypass the recorder; waits and efficiencies \
                     are not known.\n";
        check_unknown(&run, first.trim_end(), 3);
    }
}

#[test]
fn what_the_user_leaves_out_is_not_known_and_no_loss() {
    for flavour in flavours().take(3) {
        let program = flavour.program("late.c");
        let filtered = |filter: &str| {
            let mut flavour = flavour.clone();
            flavour.set("ANNALS_FILTER", filter);
            flavour.record(&program, &[], false)
        };
        let run = filtered("off region MPI_Recv");
        let first = "The settings of the recording left out MPI_Recv: waits and efficiencies are not known.";
        check_unknown(&run, first, 0);
        // No wait depends on this one.
        let run = filtered("off region MPI_Comm_rank");
        let (code, text) = answer(&run.trace(), &["why"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with("Rank 1 "), "{text}");
    }
}
