//! Functions that are called for the first time just before a program ends have their names, however it ends.

use std::io::BufRead;

use super::*;

/// The program and its plug-in, compiled as C.
fn crash() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a directory");
    compile_c("crash.c", &scratch.path().join("crash"), &["-ldl"]);
    let plugin = scratch.path().join("libplugin.so");
    compile_c("crash_plugin.c", &plugin, &["-shared", "-fPIC"]);
    scratch
}

/// Returns the names of the regions that are entered last, from the outermost on.
fn last_enters(run: &Path, count: usize) -> Vec<String> {
    let printed = output(trace_cli().arg("print").arg(run));
    let enters = printed.lines().filter_map(|line| {
        let (event, region) = line.rsplit_once(" region=")?;
        event.ends_with(" enter").then(|| region.to_owned())
    });
    let enters: Vec<String> = enters.collect();
    enters[enters.len().saturating_sub(count)..].to_vec()
}

/// `trace-cli record -o RUN -- crash HOW PLUGIN`.
fn record_crash(scratch: &Path, run: &Path, how: &str) -> Command {
    let mut record = trace_cli();
    record.arg("record").arg("-o").arg(run).arg("--");
    record.arg(scratch.join("crash")).arg(how);
    record.arg(scratch.join("libplugin.so"));
    record
}

/// Starts the program without `trace-cli record`, with its library preloaded.
fn preloaded(scratch: &Path, run: &Path, how: &str) -> Command {
    let mut program = Command::new(scratch.join("crash"));
    program.arg(how).arg(scratch.join("libplugin.so"));
    program.env_clear().env("ANNALS_DIR", run);
    let library = prefix().join("lib/libannals_instrument.so");
    program.env("LD_PRELOAD", library);
    program
}

#[test]
fn functions_in_which_a_program_ends_have_their_names() {
    let scratch = crash();
    for how in ["crash", "kill", "abort", "exit", "plugin"] {
        for round in 0..4 {
            let run_directory = scratch.path().join(format!("{how}-{round}"));
            run(&mut record_crash(scratch.path(), &run_directory, how));
            let expected: &[&str] = match how {
                "plugin" => &["crashing", "deep", "plugged", "inner"],
                _ => &["leaf", "crashing", "deep"],
            };
            assert_eq!(
                last_enters(&run_directory, expected.len()),
                expected,
                "{how}, round {round}"
            );
            let regions = regions(&run_directory, &["--region", "deep"]);
            assert_eq!(regions[0]["open_calls"], 1, "{how}: {regions:?}");
        }
    }
}

#[test]
fn functions_are_named_when_nothing_has_completed_the_recording() {
    let scratch = crash();
    let run_directory = scratch.path().join("run");
    let killed = preloaded(scratch.path(), &run_directory, "plugin").output();
    assert_eq!(killed.expect("it runs").status.signal(), Some(11));
    let expected = ["crashing", "deep", "plugged", "inner"];
    assert_eq!(last_enters(&run_directory, 4), expected);
    // A merge has them, too.
    let trace = scratch.path().join("run.annals");
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    let merged = run(merge.arg(&run_directory).arg("-o").arg(&trace));
    assert_eq!(merged.status.code(), Some(3), "its process was killed");
    assert_eq!(last_enters(&trace, 4), expected);
    // A recovery keeps them: without the program, and without the live file.
    recover(&[&run_directory]);
    std::fs::remove_file(scratch.path().join("crash")).expect("the program");
    std::fs::remove_file(scratch.path().join("libplugin.so")).expect("its plug-in");
    assert_eq!(last_enters(&run_directory, 4), expected);
    output(trace_cli().arg("verify").arg(&trace).arg(&run_directory));
}

#[test]
fn functions_of_a_run_that_hangs_are_named_also_when_its_recorder_is_killed() {
    let scratch = crash();
    let run_directory = scratch.path().join("run");
    let mut record = record_crash(scratch.path(), &run_directory, "hang");
    let mut record = record.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let printed = record.stdout.take().expect("a pipe");
    let read = std::io::BufReader::new(printed).read_line(&mut line);
    assert_eq!((read.expect("a line"), line.trim()), (6, "hangs"));
    let expected = ["leaf", "crashing", "deep"];
    assert_eq!(last_enters(&run_directory, 3), expected, "while it hangs");
    record.kill().expect("a signal");
    record.wait().expect("its end");
    assert_eq!(
        last_enters(&run_directory, 3),
        expected,
        "without trace-cli"
    );
    let info = output(trace_cli().arg("info").arg(&run_directory).arg("--json"));
    let info: Value = serde_json::from_str(&info).expect("JSON");
    let pid = info["processes"][0]["pid"].as_u64().expect("a process");
    output(Command::new("kill").args(["-KILL", &pid.to_string()]));
    assert_eq!(last_enters(&run_directory, 3), expected, "after kill -9");
}

/// Returns the row of a region.
fn region<'a>(regions: &'a [Value], name: &str) -> &'a Value {
    let found = regions.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {regions:?}"))
}

/// A program that is in `hot` when it ends, after 100 ms in `prepare`; a thread of it waits in `idle`.
fn hot() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = ["-fno-inline", "-pthread"];
    compile_c("hot.c", &scratch.path().join("hot"), &options);
    scratch
}

/// A program that waited for a killed process knows its exit; the end of another one is known by its last heartbeat.
#[test]
fn calls_that_are_open_at_the_end_last_until_then_however_it_ends() {
    let scratch = hot();
    for how in ["kill", "segv", "abort", "exit", "limit", "bare"] {
        let run_directory = scratch.path().join(how);
        let library = prefix().join("lib/libannals_instrument.so");
        let mut program = match how {
            // Only this test waits for it.
            "bare" => Command::new(scratch.path().join("hot")),
            _ => {
                let mut record = trace_cli();
                record.arg("record").arg("-q").arg("-o").arg(&run_directory);
                record.arg("--");
                if how == "limit" {
                    record.args(["timeout", "-s", "KILL", "0.6"]);
                }
                record.arg(scratch.path().join("hot"));
                record
            }
        };
        if how == "bare" {
            program.env_clear().env("ANNALS_DIR", &run_directory);
            program.env("LD_PRELOAD", library);
        }
        program.arg(match how {
            "limit" => "loop",
            "bare" => "kill",
            how => how,
        });
        let ended = program.output().expect("it runs");
        assert!(!ended.status.success() || how == "exit", "{how}: {ended:?}");
        let regions = regions(&run_directory, &[]);
        let ns = |name: &str, field: &str| {
            let row = region(&regions, name);
            row[field].as_i64().expect("a number")
        };
        // The program was in it for 400 ms or, with a limit of 600 ms, nearly 500.
        let (time_ns, more_ns) = (ns("hot", "inclusive_ns"), ns("hot", "inclusive_more_ns"));
        let least_ns = 390_000_000;
        assert!(time_ns + more_ns >= least_ns, "{how}: {regions:?}");
        assert!(time_ns <= 2_000_000_000, "{how}: {regions:?}");
        match how {
            "bare" => assert!(more_ns > 0, "{regions:?}"),
            _ => assert_eq!(more_ns, 0, "{how}: {regions:?}"),
        }
        for name in ["hot", "main", "idle"] {
            let row = region(&regions, name);
            let is_open = (&row["open_calls"], &row["time_is_uncertain"]);
            assert_eq!(is_open, (&1.into(), &true.into()), "{how}: {row:?}");
        }
        let prepare = region(&regions, "prepare");
        assert_eq!(prepare["time_is_uncertain"], false, "{how}");
        assert_eq!(ns("idle", "exclusive_ns"), ns("idle", "inclusive_ns"));
        let text = output(trace_cli().arg("regions").arg(&run_directory));
        assert!(
            text.contains("hot: 1 call open at the end"),
            "{how}: {text}"
        );
        // Merged, they are the same.
        let trace = scratch.path().join(format!("{how}.annals"));
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        run(merge.arg(&run_directory).arg("-o").arg(&trace));
        assert_eq!(self::regions(&trace, &[]), regions, "{how}");
    }
}
