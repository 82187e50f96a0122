//! Which part of a run commands show: tables the whole run, `why` and first views the part between `MPI_Init` and `MPI_Finalize`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use annals_format::names::property::MPI_MISSING_FINALIZE;
use annals_format::{
    CollectiveOperation as Op, CompressionLevel, Definition, Property, StringId, amend,
};
use annals_merger::InputRecording;
use annals_test_support::mpi_script::{Deed, Script};
use serde_json::Value;

use crate::serve::serve;

fn text(arguments: &[&str], input: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg(arguments[0]).arg(input).args(&arguments[1..]);
    let output = command.env("NO_COLOR", "1").output().expect("trace-cli");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

fn window(arguments: &[&str], input: &Path) -> (i64, i64) {
    let json: Value = serde_json::from_str(&text(arguments, input)).expect("JSON");
    let number = |name: &str| json[name].as_i64().expect("a time");
    (number("from_ns"), number("to_ns"))
}

/// Two ranks that start MPI for 400 us, work for 100 us, the second one for 120, meet, and end MPI for 300 us; or the second one ends
/// 200 us after it has met the first.
fn run(directory: &Path, is_finalized: bool) {
    let mut script = Script::new(2);
    let at = |us: i64| us * 1_000;
    for rank in 0..2 {
        let entered = 500 + 20 * rank as i64;
        script.rank(
            rank,
            &[
                (0, Deed::Enter("MPI_Init")),
                (at(400), Deed::Leave("MPI_Init")),
                (at(400), Deed::Enter("solve")),
                (at(entered), Deed::Leave("solve")),
                (at(entered), Deed::Enter("MPI_Barrier")),
                (at(entered), Deed::Begin(Op::Barrier, 0)),
                (at(521), Deed::End(Op::Barrier, 0)),
                (at(521), Deed::Leave("MPI_Barrier")),
            ],
        );
        let last = match rank == 0 || is_finalized {
            true => ("MPI_Finalize", 600, 900),
            false => ("solve", 521, 721),
        };
        let (name, from, to) = last;
        script.rank(
            rank,
            &[(at(from), Deed::Enter(name)), (at(to), Deed::Leave(name))],
        );
    }
    script.write(directory, &[]);
}

#[test]
fn the_part_between_start_and_end_of_mpi_is_first_and_tables_are_of_all() {
    let scratch = tempfile::tempdir().expect("a directory");
    run(scratch.path(), true);
    let input = scratch.path();
    // `why`, the first view of `timeline`, and `report` agree.
    let part = window(&["why", "--json"], input);
    assert_eq!(part.1 - part.0, 200_001);
    assert_eq!(window(&["timeline", "--json"], input), part);
    let page = scratch.path().join("page.html");
    let report = ["report", "--json", "-o", &*page.to_string_lossy()];
    assert_eq!(window(&report, input), part);
    // Whatever ranks and regions are shown.
    let solve = ["timeline", "--json", "--region", "solve", "--rank", "1"];
    assert_eq!(window(&solve, input), part);
    let whole = window(&["why", "--all", "--json"], input);
    assert_eq!(whole.1 - whole.0, 900_000);
    for (arguments, part) in [
        (&["why"][..], "between MPI_Init and MPI_Finalize"),
        (
            &["why", "--by", "rank"],
            "between MPI_Init and MPI_Finalize",
        ),
        (&["why", "--all"], "the whole run"),
        (&["why", "--from", "450us"], "the time window"),
        (&["timeline"], "between MPI_Init and MPI_Finalize"),
        (&["timeline", "--all"], "the whole run"),
        (&["flat"], "In the whole run"),
        (&["flat", "--from", "450us"], "In the window"),
    ] {
        let text = text(arguments, input);
        assert!(text.contains(part), "{arguments:?}: {text}");
    }
    for (all, shown) in [(None, Some(200_001)), (Some("--all"), None)] {
        let arguments: Vec<&Path> = all.into_iter().map(Path::new).chain([input]).collect();
        let part = &serve(&arguments).ask("lanes")["parallel_part"];
        let at = |index: usize| part[index].as_str()?.parse::<i64>().ok();
        assert_eq!(
            at(0).zip(at(1)).map(|(from, to)| to - from),
            shown,
            "{part}"
        );
    }
    let diff = text(&["diff", &*input.to_string_lossy()], input);
    assert!(diff.starts_with("Both whole runs"), "{diff}");
    // Most of the run is in MPI_Init; the first sentence has what the program did.
    for (arguments, first) in [
        (
            &["regions"][..],
            "solve took most time itself: 220.0 us, 12.2 % of the run",
        ),
        (
            &["flat"],
            "In the whole run, the ranks differ most in MPI_Barrier",
        ),
    ] {
        let text = text(arguments, input);
        let line = text.lines().next().expect("a line");
        assert!(line.starts_with(first), "{line}");
        let (first, second) = line.split_once(". ").expect("two sentences");
        assert!(!first.contains("MPI_Init"), "{line}");
        assert!(
            second.contains("MPI_Init and MPI_Finalize took 77.8 %"),
            "{line}"
        );
    }
    let json: Value = serde_json::from_str(&text(&["regions", "--json"], input)).expect("JSON");
    let rows = json["regions"].as_array().expect("rows").iter();
    let start = rows.filter(|row| row["region"] == "MPI_Init");
    assert_eq!(
        start.map(|row| row["calls"].as_u64()).collect::<Vec<_>>(),
        [Some(2)]
    );
}

#[test]
fn a_run_that_is_not_finalized_counts_to_its_end() {
    let scratch = tempfile::tempdir().expect("a directory");
    run(scratch.path(), false);
    for file in fs::read_dir(scratch.path()).expect("a directory") {
        let path = file.expect("a file").path();
        let input = InputRecording::open(&path).expect("a recording");
        let definitions = &input.recording.definitions;
        if definitions.ranks.values().all(|rank| rank.rank == 0) {
            continue;
        }
        let process = *definitions.processes.keys().next().expect("a process");
        let last = definitions.strings.keys().next_back().expect("strings");
        let [key, value] = [1, 2].map(|more| StringId::new(last.get() + more));
        let mut records = Vec::new();
        let property = Property {
            process,
            key,
            value,
        };
        for record in [
            Definition::String(key, MPI_MISSING_FINALIZE.to_owned()),
            Definition::String(value, "MPI_Finalize".to_owned()),
            Definition::Property(property),
        ] {
            record.encode(&mut records);
        }
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.expect("the recording");
        let amendment = amend(&file, &records, CompressionLevel::default()).expect("room");
        let written = file.write_all_at(&amendment.bytes, amendment.offset);
        written.expect("written");
    }
    let part = window(&["why", "--json"], scratch.path());
    assert_eq!(part.1 - part.0, 500_000);
}
