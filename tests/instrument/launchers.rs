//! `trace-cli record` within what a launcher starts, and around it: Open MPI and MPICH.

use super::*;

/// The launchers that `tests/run.sh` sets up.
const LAUNCHERS: [&str; 2] = ["openmpi", "mpich"];

fn mpirun(launcher: &str) -> Command {
    let directory = Path::new(ROOT).join("target/mpi").join(launcher);
    let program = directory.join("bin/mpirun");
    assert!(
        program.is_file(),
        "{} is missing: tests/run.sh sets it up",
        program.display()
    );
    let mut mpirun = Command::new(program);
    mpirun.args(["-n", "2"]);
    if launcher == "openmpi" {
        mpirun.args(["--map-by", ":OVERSUBSCRIBE"]);
        // Containers have no other user.
        for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            mpirun.env(variable, "1");
        }
    }
    mpirun
}

/// Appends a command and its arguments to those of another.
fn behind(mut command: Command, inner: &Command) -> Command {
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        value.map(|value| command.env(name, value));
    }
    command
}

#[test]
fn every_process_of_a_launcher_has_a_recording_wherever_record_stands() {
    let built = Built::new("-O1", &[]);
    for launcher in LAUNCHERS {
        for is_inside in [true, false] {
            let what = format!("{launcher}, record inside: {is_inside}");
            let run_directory = built.path(&format!("run-{launcher}-{is_inside}"));
            let mut record = trace_cli();
            record.arg("record").arg("-o").arg(&run_directory).arg("--");
            let mut program = Command::new(built.path("program"));
            program.arg(built.scratch.path()).arg("");
            let mut command = if is_inside {
                behind(mpirun(launcher), &behind(record, &program))
            } else {
                behind(record, &behind(mpirun(launcher), &program))
            };
            let ended = run(&mut command);
            let said = text_of(&ended.stderr);
            assert!(ended.status.success(), "{what}: {said}");
            let files = std::fs::read_dir(&run_directory).expect("the recordings");
            let names: Vec<String> = files
                .map(|file| text_of(file.expect("a file").file_name().as_encoded_bytes()))
                .collect();
            assert_eq!(names.len(), 2, "{what}: {names:?} {said}");
            let trace = built.path("run.annals");
            let mut merge = Command::new(prefix().join("bin/trace-merge"));
            merge.arg(&run_directory).arg("-o").arg(&trace);
            let report = output(merge.args(["--report", "-"]));
            let report: Value = serde_json::from_str(&report).expect("a report");
            assert_eq!(report["complete"], true, "{what}: {report}");
            let inputs = report["inputs"].as_array().expect("inputs");
            let ranks: Vec<&Value> = inputs.iter().map(|input| &input["rank"]).collect();
            assert_eq!(ranks, [0, 1], "{what}");
            let is_assigned = |input: &Value| input["rank_is_assigned"] == true;
            assert!(!inputs.iter().any(is_assigned), "{what}: {report}");
            // What the forked child calls is not recorded; on the terminal that Open MPI provides, its lines are
            // printed.
            let printed = text_of(&ended.stdout);
            let lines = printed.lines().filter(|line| !line.starts_with("third"));
            let lines: String = lines.map(|line| format!("{line}\n")).collect();
            let counts = counted(lines.as_bytes());
            assert_eq!(recorded(&regions(&trace, &[])), counts, "{what}");
        }
    }
}

#[test]
fn a_process_in_a_time_namespace_has_the_clock_of_its_host() {
    let built = Built::new("-O1", &[]);
    let inside = ["unshare", "--time", "--fork", "--monotonic", "100000"];
    let can_be = Command::new(inside[0])
        .args(&inside[1..])
        .arg("true")
        .output();
    if !can_be.is_ok_and(|ended| ended.status.success()) {
        eprintln!("NOT TESTED: time namespaces (none can be made here)");
        return;
    }
    let run_directory = built.path("run-namespace");
    let mut record = trace_cli();
    record.arg("record").arg("-o").arg(&run_directory);
    // Outside, inside, and outside again.
    let program = built.path("program");
    let script = format!("\"$@\" && {} \"$@\" && \"$@\"", inside.join(" "));
    record.args(["--", "sh", "-c", &script, "sh"]).arg(program);
    record.arg(built.scratch.path()).arg("");
    let ended = run(&mut record);
    assert!(
        ended.status.success(),
        "{}: {}",
        ended.status,
        text_of(&ended.stderr)
    );
    let info = output(trace_cli().arg("info").arg(&run_directory).arg("--json"));
    let info: Value = serde_json::from_str(&info).expect("JSON");
    let processes = info["processes"].as_array().expect("processes");
    let mut starts: Vec<(&Value, i64)> = processes
        .iter()
        .map(|of| (&of["pid"], of["start_ns"].as_i64().expect("a time")))
        .collect();
    starts.sort_by_key(|(_, start)| *start);
    assert_eq!(starts.len(), 3, "{info}");
    let span = starts[2].1 - starts[0].1;
    assert!(span < 60_000_000_000, "{starts:?}");
}
