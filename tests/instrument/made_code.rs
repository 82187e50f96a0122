//! Samples in code that a program makes while it runs, and names as runtimes do for `perf`.

use std::process::Command;

use serde_json::Value;

use crate::sampling::{Engine, Sampled};
use crate::{output, run, text_of, trace_cli};

/// The time of each code is what the program measures itself, within three standard deviations, and nothing is guessed of its callers.
#[test]
fn code_that_a_program_makes_has_the_names_that_it_writes() {
    let sampled = Sampled::of("made_code.c", &[]);
    let directory = sampled.path("");
    let directory = directory.to_str().expect("text");
    for mode in ["map", "late", &format!("dump {directory}")] {
        let recorded = sampled.record(Engine::Kernel, mode);
        let said = text_of(&recorded.stdout);
        let truth: Vec<&str> = said.split_whitespace().collect();
        assert!(
            recorded.status.success() && truth.len() >= 2,
            "{mode}: {}",
            text_of(&recorded.stderr)
        );
        remove_names(&recorded.stderr);
        let folded = sampled.folded();
        let samples: Value =
            serde_json::from_str(&sampled.ask(&["samples", "--json"])).expect("JSON");
        // On a busy machine, a ring may be full before it is emptied.
        let lost_s = samples["lost"].as_f64().expect("a number") * 1e-3;
        for pair in truth.chunks(2) {
            let (name, truth): (&str, f64) = (pair[0], pair[1].parse().expect("seconds"));
            let of_name = |path: &&(Vec<String>, u64)| {
                let last = path.0.last().expect("a call");
                last.starts_with(name)
            };
            let found = folded
                .iter()
                .filter(of_name)
                .map(|path| path.1 as f64 / 1e9);
            let found: f64 = found.sum();
            let deviation = (truth * 1e-3).sqrt();
            let error = 3.0 * deviation + 0.02 * truth;
            assert!(
                (truth - error - lost_s..=truth + error).contains(&found),
                "{mode}: {name}: {found} s and {lost_s} s lost, truly {truth} s: {folded:#?}"
            );
            for (path, _) in folded.iter().filter(of_name) {
                assert_eq!(path[..path.len() - 1], ["(unknown)"], "{mode}: {path:?}");
            }
        }
        let all = format!("{folded:?}");
        assert!(
            !all.contains("made_other") && !all.contains("made_never"),
            "{mode}: {all}"
        );
        let modules = sampled.ask(&["samples", "--by", "module"]);
        assert!(modules.contains("made at run time"), "{modules}");
    }
    // Without names, an address is one.
    let recorded = sampled.record(Engine::Kernel, "code");
    let page = u64::from_str_radix(text_of(&recorded.stdout).trim(), 16).expect("an address");
    let is_there = |path: &(Vec<String>, u64)| {
        let last = path.0.last().and_then(|last| last.strip_prefix("0x"));
        last.is_some_and(|last| {
            u64::from_str_radix(last, 16).is_ok_and(|last| last / 4096 == page / 4096)
        })
    };
    let folded = sampled.folded();
    let found: u64 = folded
        .iter()
        .filter(|path| is_there(path))
        .map(|path| path.1)
        .sum();
    assert!(found > 100_000_000, "{folded:#?}");
}

/// Removes the files in `/tmp` that a program has printed.
fn remove_names(printed: &[u8]) {
    for path in text_of(printed)
        .lines()
        .filter(|line| line.starts_with("/tmp/"))
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the path of a Python 3.13 that writes names for `perf`.
fn python_for_perf() -> Option<String> {
    let of_pyenv = "ls \"${PYENV_ROOT:-$HOME/.pyenv}\"/versions/3.13.*/bin/python";
    let of_pyenv = Command::new("sh").args(["-c", of_pyenv]).output().ok()?;
    let of_pyenv = text_of(&of_pyenv.stdout);
    let find = "import os, sys; sys.activate_stack_trampoline('perf'); print(sys.executable); os.remove('/tmp/perf-%d.map' % os.getpid())";
    let mut all = std::iter::once("python3.13").chain(of_pyenv.lines());
    all.find_map(|python| {
        let found = Command::new(python).args(["-c", find]).output().ok()?;
        let path = text_of(&found.stdout).trim().to_owned();
        found.status.success().then_some(path)
    })
}

/// CPython writes the names of its functions for `perf`: to a map, or a dump, which it writes at its end.
#[test]
fn functions_of_python_have_their_names() {
    let Some(python) = python_for_perf() else {
        eprintln!(
            "NOT TESTED: names of Python's functions (no Python 3.13 that writes them on PATH, nor in pyenv)"
        );
        return;
    };
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("burns.py");
    let code = "import os\nprint('/tmp/perf-%d.map' % os.getpid())\nprint('/tmp/jit-%d.dump' % os.getpid())\n\ndef burn(n):\n    total = 0\n    for i in range(n):\n        total += i * i\n    return total\n\ndef other(n):\n    return burn(n)\n\nfor _ in range(20):\n    other(200_000)\n";
    std::fs::write(&program, code).expect("a file");
    for option in ["perf", "perf_jit"] {
        let mut record = trace_cli();
        record.args([
            "record",
            "--sample",
            "-q",
            "--overwrite",
            "-o",
            "run",
            "--",
            &python,
            "-X",
            option,
        ]);
        let recorded = run(record.arg(&program).current_dir(scratch.path()));
        assert!(recorded.status.success(), "{}", text_of(&recorded.stderr));
        remove_names(&recorded.stdout);
        let mut ask = trace_cli();
        let rows = output(
            ask.args(["samples", "run", "--json"])
                .current_dir(scratch.path()),
        );
        let rows: Value = serde_json::from_str(&rows).expect("JSON");
        let rows = rows["rows"].as_array().expect("rows");
        let is_burn = |row: &&Value| {
            row["function"]
                .as_str()
                .is_some_and(|name| name.starts_with("py::burn:"))
        };
        let of_all: f64 = rows.iter().filter_map(|row| row["self_ns"].as_f64()).sum();
        let of_burn = rows
            .iter()
            .find(is_burn)
            .and_then(|row| row["total_ns"].as_f64());
        assert!(
            of_burn.is_some_and(|of_burn| of_burn > of_all / 2.0),
            "{option}: {rows:#?}"
        );
    }
}
