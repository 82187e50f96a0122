//! What sentences call things: numbers with nouns, differences of times, files that are replaced.

use std::path::Path;
use std::process::Command;

use annals_test_support::mpi_script::{Deed, Script};

/// Runs a command that succeeds. Returns what it printed, and its standard error.
fn said(directory: &Path, arguments: &[&str]) -> [String; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    let output = command.args(arguments).current_dir(directory).output();
    let output = output.expect("trace-cli");
    assert!(output.status.success(), "{output:?}");
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("UTF-8"))
}

/// Writes recordings of ranks that call `solve`, 250 us later on each next rank.
fn record(ranks: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut script = Script::new(ranks);
    for rank in 0..ranks {
        let at_ns = 250_000 * rank as i64;
        script.rank(
            rank,
            &[
                (at_ns, Deed::Enter("solve")),
                (at_ns + 1_000, Deed::Leave("solve")),
            ],
        );
    }
    let run = directory.path().join("run");
    std::fs::create_dir(&run).expect("a directory");
    script.write(&run, &[]);
    directory
}

#[test]
fn one_recording_is_not_one_recordings() {
    let directory = record(1);
    let merge = ["merge", "run", "-o", "run.annals"];
    let [_, merged] = said(directory.path(), &merge);
    assert!(
        merged.contains("run.annals: 2 events of 1 recording, "),
        "{merged}"
    );
    let [verified, _] = said(directory.path(), &["verify", "run.annals", "run"]);
    assert!(
        verified.contains(
            "2 events in 1 stream; order hash of 1 stream checked; compared with 1 recording"
        ),
        "{verified}"
    );
}

#[test]
fn what_replaces_an_earlier_file_says_so() {
    let directory = record(1);
    for (arguments, output) in [
        (["merge", "run", "-o", "run.annals"], "run.annals"),
        (["export", "run", "-o", "calls.csv"], "calls.csv"),
    ] {
        let expected = format!("{output}: replaced an earlier file\n");
        let [_, first] = said(directory.path(), &arguments);
        assert!(!first.contains("replaced"), "{first}");
        let [_, second] = said(directory.path(), &arguments);
        assert!(second.contains(&expected), "{second}");
        let [_, quiet] = said(directory.path(), &[&arguments[..], &["--quiet"]].concat());
        assert!(!quiet.contains("replaced"), "{quiet}");
    }
}

#[test]
fn the_distance_of_two_events_is_none_of_clocks() {
    let directory = record(2);
    let [text, _] = said(
        directory.path(),
        &["explain", "run", "0/main/0", "1/main/0"],
    );
    assert!(
        text.contains("clock gap: by its clock, the second event is 250.0 us after the first, wrong by at most 0 ns"),
        "{text}"
    );
    let [text, _] = said(
        directory.path(),
        &["explain", "run", "1/main/1", "1/main/0"],
    );
    assert!(text.contains("same stream"), "{text}");
}
