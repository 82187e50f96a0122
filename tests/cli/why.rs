//! `trace-cli why`: what its sentences say, and when.

use std::process::{Command, Output};

use annals_format::CollectiveOperation as Op;
use annals_test_support::mpi_script::{Deed, Script};
use serde_json::Value;

/// Runs `trace-cli why` on what is left of a script after losses.
fn why_of_rest(script: &Script, lost: &[(usize, usize, usize)], arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), lost);
    let mut why = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    why.arg("why").arg(directory.path()).args(arguments);
    why.output().expect("trace-cli")
}

fn answer(script: &Script, arguments: &[&str]) -> String {
    let output = why_of_rest(script, &[], arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn first_line(script: &Script) -> String {
    answer(script, &[]).lines().next().unwrap_or("").to_owned()
}

fn json(script: &Script, arguments: &[&str]) -> Value {
    let text = answer(script, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Returns a program of two ranks that meet at a barrier in each of some steps; rank 1 is late by `late_ns` in those of the
/// first `late` steps. A step takes 100 µs, the barrier 1 µs.
fn barriers(steps: i64, late: i64, late_ns: i64) -> Script {
    const STEP_NS: i64 = 100_000;
    let mut script = Script::new(2);
    for rank in 0..2 {
        script.rank(rank, &[(0, Deed::Enter("main"))]);
        for step in 0..steps {
            let from_ns = step * STEP_NS;
            let meet_ns = from_ns + 50_000 + if step < late { late_ns } else { 0 };
            let enter_ns = if rank == 1 { meet_ns } else { from_ns + 50_000 };
            let deeds = [
                (from_ns, Deed::Enter("time_step")),
                (from_ns, Deed::Enter("assemble")),
                (enter_ns, Deed::Leave("assemble")),
                (enter_ns, Deed::Enter("MPI_Barrier")),
                (enter_ns, Deed::Begin(Op::Barrier, 0)),
                (meet_ns + 1_000, Deed::End(Op::Barrier, 0)),
                (meet_ns + 1_000, Deed::Leave("MPI_Barrier")),
                (from_ns + STEP_NS, Deed::Leave("time_step")),
            ];
            script.rank(rank, &deeds);
        }
        script.rank(rank, &[(steps * STEP_NS, Deed::Leave("main"))]);
    }
    script
}

#[test]
fn each_call_is_late_or_some_are() {
    assert_eq!(
        first_line(&barriers(10, 10, 20_000)),
        "Rank 1 enters MPI_Barrier 20.00 us late in each of 10 calls, 10.0 % of the run; its extra time is in assemble."
    );
    assert_eq!(
        first_line(&barriers(10, 4, 20_000)),
        "Rank 1 enters MPI_Barrier 20.00 us late in 4 of 10 calls, 4.0 % of the run; its extra time is in assemble."
    );
}

#[test]
fn a_cause_of_less_than_a_percent_is_not_named() {
    // 0.99 % of the time of both ranks, and 1.01 %.
    assert_eq!(
        first_line(&barriers(10, 10, 1_980)),
        "No rank makes others wait for more than 1 % of the run."
    );
    let named = first_line(&barriers(10, 10, 2_020));
    assert!(named.starts_with("Rank 1 enters MPI_Barrier"), "{named}");
}

#[test]
fn of_equal_causes_the_lower_rank_is_first() {
    let mut script = Script::new(4);
    for (rank, peer) in [(3, 2), (0, 1)] {
        let sender = [
            (0, Deed::Enter("main")),
            (800, Deed::Enter("MPI_Send")),
            (801, Deed::Send(peer as u32, 1)),
            (802, Deed::Leave("MPI_Send")),
            (1_000, Deed::Leave("main")),
        ];
        let receiver = [
            (0, Deed::Enter("main")),
            (300, Deed::Enter("MPI_Recv")),
            (802, Deed::Receive(rank as u32, 1)),
            (803, Deed::Leave("MPI_Recv")),
            (1_000, Deed::Leave("main")),
        ];
        script.rank(rank, &sender).rank(peer, &receiver);
    }
    let found = json(&script, &[]);
    assert_eq!(found["wait_states"][0]["communicator"], "0");
    assert_eq!(found["worst"][0]["communicator"], "0");
    let ranks = [&found["causes"][0]["rank"], &found["causes"][1]["rank"]];
    assert_eq!(ranks, [0, 3]);
    assert_eq!(found["causes"][0]["cost_ns"], found["causes"][1]["cost_ns"]);
}

#[test]
fn one_rank_no_mpi_and_nothing_have_their_sentences() {
    let mut script = Script::new(1);
    assert_eq!(first_line(&script), "No rank has events in this time.");
    script.rank(0, &[(0, Deed::Enter("main")), (900, Deed::Leave("main"))]);
    assert_eq!(first_line(&script), "One rank: it waits for no other.");
    let mut script = Script::new(2);
    for rank in 0..2 {
        script.rank(
            rank,
            &[(0, Deed::Enter("main")), (900, Deed::Leave("main"))],
        );
    }
    let text = answer(&script, &[]);
    assert!(
        text.starts_with("No rank makes others wait for more than 1 % of the run.\n"),
        "{text}"
    );
    assert!(text.contains("parallel efficiency      100.0 %"), "{text}");
}

#[test]
fn what_losses_may_change_is_said() {
    let script = barriers(10, 10, 20_000);
    // Without losses, there is no ±.
    let whole = answer(&script, &["--by", "rank"]);
    assert!(!whole.contains('±'), "{whole}");
    // The third barrier of rank 0 is lost, from its enter on.
    let events = 1 + 2 * 8;
    let output = why_of_rest(&script, &[(0, events + 3, events + 7)], &["--by", "rank"]);
    let rest = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(rest.contains('±'), "{rest}");
    // Everything but the first and the last event of each rank.
    let last = script.ranks[0].len() - 1;
    let output = why_of_rest(&script, &[(0, 1, last), (1, 1, last)], &[]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.starts_with(
            "No rank is known to make others wait for more than 1 % of the run, but up to 100.0 % of it is uncertain."
        ),
        "{text}"
    );
    assert!(
        text.contains("of the time of all ranks is uncertain, because of losses"),
        "{text}"
    );
}

#[test]
fn a_window_without_events_has_no_negative_length() {
    let script = barriers(2, 0, 0);
    // Between two events: all compute.
    let found = json(&script, &["--from", "10us", "--to", "20us"]);
    let (from_ns, to_ns) = (found["from_ns"].as_i64(), found["to_ns"].as_i64());
    assert!(from_ns <= to_ns, "{found}");
}

#[test]
fn a_step_is_a_phase() {
    let script = barriers(3, 2, 20_000);
    let found = json(&script, &["--phase", "time_*"]);
    let phases = found["phases"].as_array().expect("phases");
    let numbers: Vec<u64> = phases
        .iter()
        .filter_map(|row| row["phase"].as_u64())
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    // Both ranks need 100 µs; in the barrier, rank 0 has 21 µs and rank 1 has 1 µs.
    let useful = |row: usize| phases[row]["parallel"].as_f64();
    assert_eq!(useful(0), Some(0.89));
    assert_eq!(useful(2), Some(0.99));
    let table = answer(&script, &["--phase", "time_step"]);
    assert!(table.contains("89.0"), "{table}");
    let csv = answer(&script, &["--by", "phase", "--phase", "time_step", "--csv"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let usage = why_of_rest(&script, &[], &["--by", "phase"]);
    assert_eq!(usage.status.code(), Some(2));
    let why = String::from_utf8_lossy(&usage.stderr).into_owned();
    assert!(why.contains("--phase REGION"), "{why}");
    let unknown = why_of_rest(&script, &[], &["--phase", "tim_step"]);
    let why = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        !unknown.status.success() && why.contains("tim_step"),
        "{why}"
    );
}

#[test]
fn efficiencies_over_time_are_those_of_each_window_and_say_when_they_change() {
    // Rank 1 is late in the second half: the steps of the script in reverse would be its first.
    let mut script = Script::new(2);
    for rank in 0..2 {
        script.rank(rank, &[(0, Deed::Enter("main"))]);
        for step in 0..20 {
            let from_ns = step * 100_000;
            let late_ns = if step < 10 { 0 } else { 40_000 };
            let meet_ns = from_ns + 50_000 + late_ns;
            let enter_ns = if rank == 1 { meet_ns } else { from_ns + 50_000 };
            let deeds = [
                (enter_ns, Deed::Enter("MPI_Barrier")),
                (enter_ns, Deed::Begin(Op::Barrier, 0)),
                (meet_ns + 1_000, Deed::End(Op::Barrier, 0)),
                (meet_ns + 1_000, Deed::Leave("MPI_Barrier")),
            ];
            script.rank(rank, &deeds);
        }
        script.rank(rank, &[(2_000_000, Deed::Leave("main"))]);
    }
    let text = answer(&script, &["--over-time", "8"]);
    assert!(
        text.ends_with("From 0.001000000 s on, load balance is 80 %; before, 100 %.\n"),
        "{text}"
    );
    let found = json(&script, &["--over-time", "8"]);
    let rows = found["phases"].as_array().expect("rows");
    assert_eq!(rows.len(), 8);
    for row in rows {
        let time = |name: &str| format!("{}ns", row[name].as_i64().expect("a time"));
        let (from, to) = (time("from_ns"), time("to_ns"));
        let window = json(&script, &["--from", &from, "--to", &to]);
        let own = window["efficiencies"]
            .as_array()
            .expect("efficiencies")
            .iter();
        let mut own = own.filter(|of| of["model"] == "multiplicative");
        let own = own.next().expect("a model");
        for name in [
            "parallel",
            "load_balance",
            "communication",
            "serialisation",
            "transfer",
        ] {
            assert_eq!(row[name], own[name], "{name} {from} {to}");
        }
    }
    let even = answer(&barriers(20, 20, 10_000), &["--over-time", "5"]);
    assert!(
        even.ends_with("No efficiency changes by a tenth.\n"),
        "{even}"
    );
}

#[test]
fn many_phases_share_rows() {
    let table = answer(&barriers(100, 0, 0), &["--phase", "time_step"]);
    assert!(
        table.contains("100 phases; a row has the mean of 3"),
        "{table}"
    );
    assert!(
        table.lines().count() == 39 && table.contains("99.0"),
        "{table}"
    );
}

#[test]
fn the_critical_path_adds_up_to_the_run() {
    let script = barriers(10, 10, 20_000);
    let found = json(&script, &["--by", "path"]);
    let path = &found["critical_path"];
    let sum = |rows: &Value| -> i64 {
        let rows = rows.as_array().expect("rows").iter();
        rows.filter_map(|row| row["path_ns"].as_i64()).sum()
    };
    assert_eq!(sum(&path["regions"]), 1_000_000);
    assert_eq!(sum(&path["ranks"]), 1_000_000);
    assert_eq!(path["regions"][0]["region"], "assemble");
    // Each step, 70 µs of rank 1 in `assemble`; the mean of both is 60 µs.
    assert_eq!(path["regions"][0]["path_ns"], 700_000);
    assert_eq!(path["regions"][0]["imbalance_ns"], 100_000);
    let table = answer(&script, &["--by", "path"]);
    assert!(table.contains("critical imbalance"), "{table}");
    assert!(json(&script, &[]).get("critical_path").is_none());
}

#[test]
fn a_reference_shows_the_scaling() {
    let directory = tempfile::tempdir().expect("a directory");
    barriers(10, 0, 0).write(directory.path(), &[]);
    let reference = directory.path().to_string_lossy();
    let script = barriers(20, 0, 0);
    let found = json(&script, &["--reference", &reference]);
    // Twice the work on as many ranks.
    assert_eq!(found["scaling"]["computation_scaling"], 0.5);
    assert_eq!(found["scaling"]["global"], 0.5 * 0.99);
    let text = answer(&script, &["--reference", &reference, "--weak"]);
    assert!(text.contains("global efficiency         49.5 %"), "{text}");
    let missing = why_of_rest(&script, &[], &["--reference", "/nowhere/trace.annals"]);
    let why = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        !missing.status.success() && why.contains("/nowhere/trace.annals"),
        "{why}"
    );
    assert_eq!(
        why_of_rest(&script, &[], &["--weak"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_temporary_directory_that_takes_no_file_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    barriers(2, 0, 0).write(directory.path(), &[]);
    let mut why = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    why.arg("why").arg(directory.path()).args(["--by", "path"]);
    let output = why.env("TMPDIR", "/nowhere/at/all").output();
    let output = output.expect("trace-cli");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && error.contains("/nowhere/at/all"),
        "{error}"
    );
}

#[test]
fn a_late_thread_is_named_with_its_rank() {
    let mut script = Script::of_threads(3);
    script.rank(0, &[(0, Deed::Enter("main"))]);
    for step in 0..10 {
        let from_ns = step * 10_000;
        for thread in 0..3 {
            // Thread 2 works 6 us longer than the others.
            let late_ns = if thread == 2 { 6_000 } else { 0 };
            let deeds = [
                (0, Deed::Enter("!$omp parallel @a.c:7")),
                (10, Deed::Enter("solve")),
                (1_000 + late_ns, Deed::Leave("solve")),
                (
                    1_000 + late_ns,
                    Deed::Enter("!$omp implicit barrier @a.c:9"),
                ),
                (7_010, Deed::Leave("!$omp implicit barrier @a.c:9")),
                (7_010, Deed::Leave("!$omp parallel @a.c:7")),
            ];
            script.rank(thread, &deeds.map(|(at_ns, deed)| (from_ns + at_ns, deed)));
        }
    }
    script.rank(0, &[(100_000, Deed::Leave("main"))]);
    let first = first_line(&script);
    assert_eq!(
        first,
        "Thread thread 2 of rank 0 enters !$omp implicit barrier @a.c:9 6.000 us late in each of 10 calls, \
         40.0 % of the run; its extra time is in !$omp parallel @a.c:7 > solve."
    );
    let text = answer(&script, &[]);
    assert!(
        text.contains("(1 rank with 3 threads, 100.0 us, the whole run;"),
        "{text}"
    );
    let found = json(&script, &[]);
    assert_eq!(found["causes"][0]["thread"], "thread 2");
    assert_eq!(found["causes"][0]["cost_ns"], 120_000);
    assert_eq!(found["ranks"][0]["wait_ns"], 40_000);
}

#[test]
fn what_a_call_waits_for_that_has_not_ended_is_uncertain() {
    let mut script = Script::new(2);
    script.rank(
        0,
        &[
            (0, Deed::Enter("main")),
            (1_000_000, Deed::Enter("MPI_Send")),
        ],
    );
    script.rank(
        0,
        &[
            (1_000_100, Deed::Send(1, 1)),
            (1_000_200, Deed::Leave("MPI_Send")),
        ],
    );
    script.rank(
        1,
        &[(0, Deed::Enter("main")), (100_000, Deed::Enter("MPI_Recv"))],
    );
    script.rank(
        1,
        &[
            (1_000_300, Deed::Receive(0, 1)),
            (1_000_400, Deed::Leave("MPI_Recv")),
        ],
    );
    assert!(first_line(&script).starts_with("Rank 0 sends 900.0 us late to MPI_Recv in 1 message"));
    let text = answer(&script, &["--to", "500us"]);
    assert!(
        text.starts_with(
            "No rank is known to make others wait for more than 1 % of the run, but up to 40.0 % of it is uncertain."
        ),
        "{text}"
    );
    assert!(
        text.contains("At the end 1 thread is in a call of MPI"),
        "{text}"
    );
}

#[test]
fn options_that_would_do_nothing_are_refused_and_filters_are_said() {
    let script = barriers(10, 10, 20_000);
    for arguments in [
        &["--phase", "main", "--by", "rank"][..],
        &["--reference", ".", "--by", "rank"],
        &["--reference", ".", "--csv"],
    ] {
        let output = why_of_rest(&script, &[], arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let text = answer(&script, &["--rank", "0"]);
    let said = "Waits of rank 0; the efficiencies are those of all ranks.\n";
    assert!(text.starts_with(said), "{text}");
    let text = answer(&script, &["--phase", "main", "--to", "1us"]);
    assert!(
        text.contains("No call of these regions begins and ends in the time that counts"),
        "{text}"
    );
}

/// Returns a program whose main thread starts three workers and waits for their ends without a recorded call; worker 2 parses
/// longer.
fn workers() -> Script {
    let mut script = Script::of_threads(4);
    script.rank(
        0,
        &[
            (0, Deed::Enter("main")),
            (10_000, Deed::Enter("read_input")),
        ],
    );
    script.rank(0, &[(20_000, Deed::Leave("read_input"))]);
    for thread in 1..4 {
        let parsed_ns = if thread == 2 { 337_000 } else { 210_000 };
        let from_ns = 20_000 + 100 * thread as i64;
        let deeds = [
            (0, Deed::Enter("worker")),
            (1_000, Deed::Enter("parse")),
            (1_000 + parsed_ns, Deed::Leave("parse")),
            (2_000 + parsed_ns, Deed::Leave("worker")),
        ];
        script.rank(thread, &deeds.map(|(at_ns, deed)| (from_ns + at_ns, deed)));
    }
    script.rank(0, &[(380_000, Deed::Leave("main"))]);
    script
}

#[test]
fn threads_of_a_rank_without_mpi_are_compared() {
    let script = workers();
    let text = answer(&script, &[]);
    assert!(
        text.starts_with(
            "Thread thread 2 works longest, 339.0 us: 127.0 us more than the mean of 2 others, 22.3 % of the run; \
             its extra time is in parse.\n"
        ),
        "{text}"
    );
    assert!(text.contains("  load balance            75.0 %"), "{text}");
    assert!(
        text.contains("(1 rank with 3 threads, 380.0 us, the whole run;"),
        "{text}"
    );
    for absent in ["communication", "serialisation", "transfer"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let found = json(&script, &[]);
    assert_eq!(found["efficiencies"][0]["communication"], Value::Null);
    assert_eq!(found["thread_times"][1]["thread"], "thread 2");
    assert_eq!(found["thread_times"][1]["useful_ns"], 339_000);
}

#[test]
fn a_region_that_waits_for_the_ends_of_threads_is_not_the_hot_one() {
    let directory = tempfile::tempdir().expect("a directory");
    workers().write(directory.path(), &[]);
    let said = |arguments: &[&str]| {
        let mut trace = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        trace.args(arguments).arg(directory.path());
        let output = trace.output().expect("trace-cli");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let regions = said(&["regions"]);
    assert!(
        regions.starts_with("parse took most time itself: 757.0 us"),
        "{regions}"
    );
    assert!(
        regions.contains("main (calls nothing; waits?)"),
        "{regions}"
    );
    let flat = said(&["flat"]);
    assert!(
        flat.starts_with(
            "In the whole run, the locations differ most in parse: rank 0 thread 2 spent 337.0 us"
        ),
        "{flat}"
    );
    // A thread that works between the ends of others does not wait.
    let mut script = workers();
    script.rank(0, &[(380_000, Deed::Enter("main"))]);
    for at_ns in (381..900).map(|at_us| at_us * 1_000) {
        script.rank(
            0,
            &[
                (at_ns, Deed::Enter("solve")),
                (at_ns + 500, Deed::Leave("solve")),
            ],
        );
    }
    script.rank(0, &[(900_000, Deed::Leave("main"))]);
    let first = first_line(&script);
    assert!(first.starts_with("Thread main works longest"), "{first}");
}
