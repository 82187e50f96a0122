//! `trace-cli serve`: the work for requests.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serve::{Served, mpi_trace, serve, trace};

const PATIENCE: Duration = Duration::from_secs(120);
const ALL: &str = "from=-9223372036854775808&to=9223372036854775807";

/// Returns the processor time of a server, in ticks of the system.
fn processor_ticks(served: &Served) -> u64 {
    let path = format!("/proc/{}/stat", served.child.id());
    let stat = std::fs::read_to_string(path).expect("a process");
    let fields = stat.rsplit_once(')').expect("a name").1;
    let number = |field: &str| -> u64 { field.parse().expect("a number") };
    fields.split_whitespace().skip(11).take(2).map(number).sum()
}

/// Waits until a server uses no more processor time. Returns what it has used.
fn ticks_at_rest(served: &Served) -> u64 {
    let started = Instant::now();
    let mut ticks = processor_ticks(served);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = processor_ticks(served);
        if now == ticks {
            return now;
        }
        assert!(started.elapsed() < PATIENCE, "the server does not rest");
        ticks = now;
    }
}

#[test]
fn work_for_clients_that_are_gone_ends() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 8, 300_000, true);
    let served = serve(&[&run]);
    let id = served.id();
    let path = format!("/api/v1/traces/{id}/waits?{ALL}&all=yes");
    let before = ticks_at_rest(&served);
    assert_eq!(served.get(&path).status, 200);
    let whole = ticks_at_rest(&served) - before;
    let before = ticks_at_rest(&served);
    let clients = 150;
    for _ in 0..clients {
        let mut stream = served.connect();
        let request = format!("GET {path} HTTP/1.1\r\n{}\r\n", served.own_fields());
        stream.write_all(request.as_bytes()).expect("sent");
        // Time enough for its work to begin, and not to end.
        std::thread::sleep(Duration::from_millis(20));
    }
    let spent = ticks_at_rest(&served) - before;
    println!("{spent} ticks for {clients} clients that are gone; {whole} for one that waits");
    assert!(
        spent < whole * clients / 2,
        "{spent} ticks for {clients} clients that are gone; {whole} for one that waits"
    );
    // All places are free again.
    served.ask("lanes");
}

/// Returns the sum of all waits in the table of an answer, nanoseconds.
fn sum_of(waits: &Value) -> i64 {
    let states = waits["wait_states"].as_array().expect("wait states");
    let time = |state: &Value| state["wait_ns"].as_i64().expect("a time");
    states.iter().map(time).sum()
}

#[test]
fn waits_of_some_rows_are_theirs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = mpi_trace(scratch.path(), "run.annals", 10);
    let served = serve(&[&run]);
    let all = served.ask(&format!("waits?{ALL}"));
    let singles = all["waits"].as_array().expect("waits");
    let locations = served.ask("lanes")["locations"].clone();
    let (mut sum, mut waiting) = (0, 0);
    for location in locations.as_array().expect("locations") {
        let id = &location["id"];
        let own = served.ask(&format!("waits?{ALL}&lanes=t{id}.0"));
        let expected: Vec<&Value> = singles
            .iter()
            .filter(|wait| wait["location"] == *id)
            .collect();
        let found: Vec<&Value> = own["waits"].as_array().expect("waits").iter().collect();
        assert_eq!(found, expected, "location {id}");
        waiting += usize::from(!found.is_empty());
        sum += sum_of(&own);
    }
    assert!(0 < waiting && waiting < 4, "{all}");
    assert_eq!(sum, sum_of(&all));
    // A group has those of all its locations.
    assert_eq!(sum_of(&served.ask(&format!("waits?{ALL}&lanes=a0.0"))), sum);
    let id = served.id();
    for lanes in ["", "t", "x0.0", "t0.0&lanes=t1.0"] {
        let path = format!("/api/v1/traces/{id}/waits?{ALL}&lanes={lanes}");
        assert_eq!(served.get(&path).status, 400, "{lanes}");
    }
}

/// Waits until the first input has a state. Returns what the server says of it.
fn wait_for(served: &Served, state: &str) -> Value {
    let started = Instant::now();
    loop {
        let first = served.traces().remove(0);
        if first["state"] == state {
            return first;
        }
        assert!(started.elapsed() < PATIENCE, "{first}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_file_that_is_written_again_step_by_step_is_opened_at_last() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, true);
    let other = trace(scratch.path(), "other.annals", 3, 1_000, true);
    let other = std::fs::read(other).expect("a trace");
    let served = serve(&[&run]);
    let before = served.id();
    // As `cp` does: not a new file in its place.
    std::fs::write(&run, &other[..20]).expect("a file");
    wait_for(&served, "failed");
    let lanes = format!("/api/v1/traces/{before}/lanes");
    assert_eq!(served.get(&lanes).status, 410);
    std::fs::write(&run, &other).expect("a file");
    let after = wait_for(&served, "ready");
    assert_ne!(after["id"], *before);
    let locations = served.ask("lanes")["locations"].clone();
    assert_eq!(locations.as_array().map(Vec::len), Some(3));
    // It is removed, and there again.
    std::fs::remove_file(&run).expect("removed");
    wait_for(&served, "failed");
    std::fs::write(&run, &other).expect("a file");
    wait_for(&served, "ready");
}

#[test]
fn many_clients_ask_while_the_file_is_replaced() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 20_000, false);
    let other = trace(scratch.path(), "other.annals", 3, 20_000, false);
    let served = serve(&[&run]);
    let id = served.id();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (served, id) = (&served, &id);
            scope.spawn(move || {
                for round in 0..40 {
                    let level = 10 + (client + round) % 16;
                    let path = format!("tiles/{level}/0?lanes=a0.0-3,t0.0-3");
                    let answer = served.get(&format!("/api/v1/traces/{id}/{path}"));
                    // What is answered is of the first file.
                    match answer.status {
                        200 => assert_eq!(&answer.body[..4], b"ANTL"),
                        status => assert_eq!(status, 410, "{path}"),
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        std::fs::rename(&other, &run).expect("replaced");
    });
    let after = wait_for(&served, "ready");
    assert_ne!(after["id"], *id);
    let locations = served.ask("lanes")["locations"].clone();
    assert_eq!(locations.as_array().map(Vec::len), Some(3));
}

#[test]
fn windows_without_anything_have_nothing() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = trace(scratch.path(), "run.annals", 2, 2_000, true);
    let served = serve(&[&run]);
    let id = served.id();
    for window in ["from=5&to=4", "from=5&to=5", "from=5", "to=5"] {
        for what in ["regions", "waits", "messages", "losses", "metrics"] {
            let more = if what == "metrics" { "&columns=9" } else { "" };
            let path = format!("/api/v1/traces/{id}/{what}?{window}{more}");
            assert_eq!(served.get(&path).status, 400, "{path}");
        }
    }
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    for window in [
        "from=-9223372036854775808&to=-9223372036854775807",
        "from=9223372036854775806&to=9223372036854775807",
    ] {
        for (what, list) in [
            ("regions", "regions"),
            ("waits", "waits"),
            ("messages", "messages"),
            ("losses", "losses"),
            ("metrics", "metrics"),
        ] {
            let more = match what {
                "metrics" => "&columns=9",
                "waits" | "messages" => "&all=yes",
                _ => "",
            };
            let path = format!("{what}?{window}{more}");
            let found = served.ask(&path);
            assert!(empty(&found[list]), "{path}: {found}");
        }
    }
    let found = served.ask(&format!("calls?location=0&at={}", i64::MIN));
    assert!(empty(&found["calls"]), "{found}");
    // Calls that never end are open for ever.
    let found = served.ask(&format!("calls?location=0&at={}", i64::MAX));
    let calls = found["calls"].as_array().expect("calls");
    assert!(calls.iter().all(|call| call["end_ns"].is_null()), "{found}");
    for (from, direction) in [(i64::MAX, "forward"), (i64::MIN, "backward")] {
        let path = format!("find?region=0&from={from}&direction={direction}");
        assert!(served.ask(&path)["at_ns"].is_null(), "{path}");
    }
    for index in ["-8589934591", "8589934591"] {
        let path = format!("/api/v1/traces/{id}/tiles/20/{index}?lanes=a0.0,t0.0");
        let tile = served.get(&path);
        assert_eq!(
            (tile.status, &tile.body[8..12]),
            (200, &[0; 4][..]),
            "{path}"
        );
    }
}

#[test]
fn waits_and_operations_have_the_words_of_the_manual() {
    let scratch = tempfile::tempdir().expect("a directory");
    let run = mpi_trace(scratch.path(), "run.annals", 10);
    let served = serve(&[&run]);
    let waits = served.ask(&format!("waits?{ALL}"));
    let words = |rows: &Value| -> Vec<String> {
        let rows = rows.as_array().expect("rows").iter();
        let words = rows.map(|row| row["wait_state"].as_str().expect("words").to_owned());
        words.collect()
    };
    for list in ["waits", "wait_states"] {
        let words = words(&waits[list]);
        assert!(
            words.contains(&"late sender".to_owned()),
            "{list}: {words:?}"
        );
    }
    let locations = served.ask("lanes")["locations"].clone();
    let found = served.ask(&format!("calls?location={}&at=265000", locations[0]["id"]));
    let text = found["events"].to_string();
    assert!(text.contains(r#"["operation","barrier"]"#), "{found}");
}
