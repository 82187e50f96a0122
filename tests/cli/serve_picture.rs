//! The picture that the page of `trace-cli serve` draws is the one that follows from all calls.

use std::ffi::OsStr;
use std::path::Path;

use annals_merger::Reader;
use annals_test_support::calls::all_calls;
use annals_test_support::mpi_script::{Deed, Script};
use annals_test_support::synthetic::Random;

use crate::browser;
use crate::serve::{serve, trace_of};

const REGIONS: [&str; 8] = [
    "main", "assemble", "solve", "MPI_Send", "exchange", "write", "copy", "norm",
];

/// Returns what a thread does at random: bursts of calls of few nanoseconds, long calls, calls without length, and time between calls.
fn random_deeds(random: &mut Random, events: usize) -> Vec<(i64, Deed)> {
    let mut deeds = Vec::with_capacity(events + 8);
    let mut open: Vec<&'static str> = Vec::new();
    let mut at_ns = (random.draw() % 5_000) as i64;
    let (mut shortest, mut longest) = (0, 4);
    while deeds.len() < events {
        if deeds.len().is_multiple_of(150) {
            shortest = random.draw() % 10;
            longest = shortest + 1 + random.draw() % 8;
        }
        let bits = shortest + random.draw() % (longest - shortest + 1);
        at_ns += match random.draw() % 8 {
            0 => 0,
            _ => (random.draw() % (1 << bits)) as i64,
        };
        let is_leave = match open.len() {
            0 => false,
            5 => true,
            _ => random.draw().is_multiple_of(2),
        };
        if is_leave {
            let region = open.pop().expect("a call is open");
            deeds.push((at_ns, Deed::Leave(region)));
        } else {
            let region = REGIONS[(random.draw() % REGIONS.len() as u64) as usize];
            open.push(region);
            deeds.push((at_ns, Deed::Enter(region)));
        }
    }
    // Half of the threads end within their calls.
    if random.draw().is_multiple_of(2) {
        while let Some(region) = open.pop() {
            at_ns += 1_000;
            deeds.push((at_ns, Deed::Leave(region)));
        }
    }
    deeds
}

/// Writes all calls of a trace into a file.
fn write_calls(trace: &Path, path: &Path) {
    let reader = Reader::open(trace).expect("a trace");
    let locations: Vec<u32> = reader
        .definitions()
        .locations
        .keys()
        .map(|id| id.get())
        .collect();
    let first_ns = reader.extent().first_ns;
    let calls: Vec<_> = all_calls(&reader)
        .iter()
        .map(|call| {
            let (begin_ns, end_ns) = (call.from_ns - first_ns, call.to_ns - first_ns);
            let location = locations[call.location];
            serde_json::json!([
                location,
                call.depth,
                call.region.get(),
                begin_ns,
                end_ns,
                call.has_ended,
                call.drawn_to_ns - first_ns
            ])
        })
        .collect();
    let all =
        serde_json::json!({"first": first_ns, "last": reader.extent().last_ns, "calls": calls});
    std::fs::write(path, all.to_string()).expect("a file");
}

/// Lets a browser draw a trace, and compares the pictures with its calls.
fn compare(directory: &Path, script: &Script, kind: &str) {
    let run = trace_of(directory, "run.annals", script);
    let calls = directory.join("calls.json");
    write_calls(&run, &calls);
    let served = serve(&[&run]);
    let arguments = [
        OsStr::new(&served.address),
        OsStr::new(kind),
        calls.as_os_str(),
    ];
    browser::check("serve.mjs", &arguments);
}

#[test]
fn drawn_pictures_are_those_of_the_calls() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut script = Script::new(12);
    script.threads = 3;
    let mut random = Random::new(200);
    for thread in 0..12 {
        let deeds = random_deeds(&mut random, 6_000);
        script.rank(thread, &deeds);
    }
    compare(scratch.path(), &script, "pictures");
}

/// 20 000 lanes; with `ANNALS_LONG=1`, 100 000.
#[test]
fn drawn_pictures_of_very_many_lanes_are_those_of_the_calls() {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    let threads = if is_long { 100_000 } else { 20_000 };
    let scratch = tempfile::tempdir().expect("a directory");
    let mut script = Script::of_threads(threads);
    let mut random = Random::new(201);
    for thread in 0..threads {
        let deeds = random_deeds(&mut random, 6);
        script.rank(thread, &deeds);
    }
    compare(scratch.path(), &script, "lanes");
}
