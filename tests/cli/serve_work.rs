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
