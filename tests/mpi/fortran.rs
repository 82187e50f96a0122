//! Programs in Fortran, by each of its ways to MPI: every call is recorded once, and none that a binding makes for itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::check_messages;
use crate::support::{Flavour, Run, flavours, output, source};
use crate::unseen::answer;

/// A way to MPI, by the settings of `routes.F90`.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    settings: &'static [&'static str],
}

/// With `ANNALS_LONG=1` all of them, else the first ones.
const WAYS: [Way; 6] = [
    Way {
        name: "mpi_f08",
        settings: &["ROUTE=8"],
    },
    Way {
        name: "mpif.h",
        settings: &["ROUTE=1", "IERROR"],
    },
    Way {
        name: "mpi_f08 with mpif.h",
        settings: &["ROUTE=8", "IERROR", "OTHER"],
    },
    Way {
        name: "mpi",
        settings: &["ROUTE=2", "IERROR"],
    },
    Way {
        name: "mpi_f08, with ierror",
        settings: &["ROUTE=8", "IERROR"],
    },
    Way {
        name: "mpi with mpi_f08",
        settings: &["ROUTE=2", "IERROR", "OTHER"],
    },
];

fn compiled(flavour: &Flavour, way: Way) -> PathBuf {
    let name: String = way.settings.join("-").replace('=', "");
    let directory = flavour.scratch().join(format!("routes-{name}"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("routes");
    let mut compile = flavour.compile_fortran().expect("a compiler");
    compile.args(["-O1", "-cpp", "-w", "-ffree-line-length-none"]);
    compile
        .arg("-fallow-argument-mismatch")
        .arg("-J")
        .arg(&directory);
    compile.args(way.settings.iter().map(|setting| format!("-D{setting}")));
    // Large counts are not in Open MPI's modules of these versions.
    if way.settings.contains(&"ROUTE=8") && flavour.name.contains("mpich") {
        compile.arg("-DLARGE");
    }
    // Debian's MPICH fails to start processes.
    if flavour.name.contains("openmpi") {
        compile.arg("-DSPAWN");
    }
    compile.arg(source("routes.F90"));
    if way.settings.contains(&"OTHER") {
        compile.arg(source("other.F90"));
    }
    output(compile.arg("-o").arg(&program));
    program
}

/// Returns how often the processes called each function, as they have printed it.
fn printed(run: &Run) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in run.lines() {
        let Some(line) = line.strip_prefix("COUNT ") else {
            continue;
        };
        let (name, times) = line.trim().split_once(' ').expect("a name and a number");
        let times: u64 = times.parse().expect("a number");
        *calls.entry(name.to_owned()).or_insert(0) += times;
    }
    calls
}

#[test]
fn each_call_of_a_fortran_program_is_recorded_once() {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    for flavour in flavours().filter(|flavour| flavour.has_fortran()) {
        for way in WAYS.iter().take(if is_long { WAYS.len() } else { 3 }) {
            let shown = format!("{}, {}", flavour.name, way.name);
            let program = compiled(&flavour, *way);
            let file = program.with_extension("data");
            let file = file.to_string_lossy();
            let plain = flavour.run(&program, &[&file]);
            let run = flavour.record(&program, &[&file], false);
            let started = usize::from(flavour.name.contains("openmpi"));
            let right = vec!["wrong 0"; flavour.processes as usize + started];
            for run in [&plain, &run] {
                let lines = run.lines();
                let lines = lines.into_iter().map(str::trim);
                let wrong: Vec<&str> = lines.filter(|line| line.starts_with("wrong")).collect();
                assert_eq!(
                    (run.code, wrong),
                    (Some(0), right.clone()),
                    "{shown}: {}",
                    run.said
                );
            }
            assert_eq!(run.calls(), printed(&run), "{shown}");
            assert!(check_messages(&run, flavour.name) > 0, "{shown}");
        }
    }
}

/// What a user asks of a program that waits for a rank.
#[test]
fn why_says_the_same_of_a_program_with_mpi_f08_under_each_library() {
    for flavour in flavours().filter(|flavour| flavour.has_fortran()) {
        let program = flavour.program("late.f90");
        let run = flavour.record(&program, &[], false);
        let (code, text) = answer(&run.trace(), &["why"]);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.starts_with("Rank 0 sends"), "{}: {text}", flavour.name);
        let (_, json) = answer(&run.trace(), &["why", "--json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        // Three ranks wait 15 ms in each of ten steps; a busy machine adds to that.
        let cost_ns = json["causes"][0]["cost_ns"].as_u64().expect("a number");
        let expected_ns = 10 * 3 * 15_000_000;
        assert!(
            (expected_ns / 2..expected_ns * 3).contains(&cost_ns),
            "{json}"
        );
    }
}
