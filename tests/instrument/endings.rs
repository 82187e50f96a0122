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
