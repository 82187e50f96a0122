//! Archives of MPI jobs: which location is a rank's, what is left out, the members of communicators, the roles of MPI's functions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::planned;
use annals_export::otf2::{ArchiveOptions, Written};
use annals_format::{
    BootId, ClockKind, ClockSpec, CompressionLevel, ElementSpec, ElementType, EventTypeId,
    LocationKind, ObjectId, ProcessSpec, RecordingBuilder, RecordingId, Reference, Role,
    SourceOrder, StreamId, Value,
};
use proptest::prelude::*;

/// What a thread of a rank does.
#[derive(Clone, Default, Debug)]
struct Thread {
    /// Calls of the program.
    calls: u32,
    /// Messages to the next rank, with as many from the one before.
    messages: u32,
    /// Collective operations: communicator, and how many processes it has.
    collectives: Vec<(u32, u32)>,
    /// Events of what a call waits for.
    waits: u32,
}

const fn element(name: &str, reference: Reference) -> ElementSpec<'_> {
    ElementSpec {
        name,
        element_type: ElementType::U32,
        is_optional: false,
        reference,
        unit: "",
        original_bits: 0,
    }
}

fn builder(rank: u32, ranks: u32) -> (RecordingBuilder, annals_format::ClockId) {
    let mut id = [0x77; 16];
    id[12..].copy_from_slice(&rank.to_be_bytes());
    let process = ProcessSpec {
        recording_id: RecordingId(id),
        run: "ranks",
        host: "host",
        boot_id: BootId([7; 16]),
        pid: 100 + rank,
        start_unix_ns: 1_700_000_000_000_000_000,
        start_reference_ns: 1_000,
        command: "program",
    };
    let mut builder = RecordingBuilder::new(&process, CompressionLevel::None).unwrap();
    builder.rank(rank, Some(ranks));
    let spec = ClockSpec {
        kind: ClockKind::Reference,
        ticks_per_second: 1_000_000_000,
        rate_error_ppb: 0,
        max_ticks: u64::MAX,
    };
    let clock = builder.clock("clock", &spec);
    (builder, clock)
}

/// Writes the recording of a rank: a location for each thread, and after each a stream in which nothing is.
fn write(directory: &Path, rank: u32, ranks: u32, threads: &[Thread]) {
    let (mut builder, clock) = builder(rank, ranks);
    let source = builder.source("threads", SourceOrder::Ordered, clock);
    let completions = builder.source("completions", SourceOrder::Unordered, clock);
    let region = builder.region("work", "", 0, "");
    for number in 0..3 {
        builder.object("communicator", &format!("communicator {number}"));
    }
    let message = [
        element("communicator", Reference::Object),
        element("peer", Reference::Rank),
        element("tag", Reference::None),
        element("bytes", Reference::None),
    ];
    let collective = [
        element("communicator", Reference::Object),
        element("operation", Reference::None),
        element("size", Reference::None),
    ];
    let of_region = [element("region", Reference::Region)];
    let waited = [element("request", Reference::None)];
    builder.event_type("enter", Role::Enter, &of_region);
    builder.event_type("leave", Role::Leave, &of_region);
    builder.event_type("send", Role::Send, &message);
    builder.event_type("receive", Role::Receive, &message);
    builder.event_type("begin", Role::CollectiveBegin, &collective);
    builder.event_type("end", Role::CollectiveEnd, &collective);
    builder.event_type("wait", Role::Wait, &waited);
    let streams: Vec<StreamId> = (0..threads.len())
        .map(|number| {
            let name = format!("thread {number}");
            let location = builder.location(&name, LocationKind::Thread, 0);
            builder.stream(completions, location, 1_000);
            builder.stream(source, location, 1_000)
        })
        .collect();
    let of = Value::U32;
    for ((number, thread), stream) in threads.iter().enumerate().zip(streams) {
        let mut events: Vec<(u32, Vec<Value<'_>>)> = Vec::new();
        for _ in 0..thread.calls {
            events.push((0, vec![of(region.get())]));
            events.push((1, vec![of(region.get())]));
        }
        let tag = of(number as u32);
        for _ in 0..thread.messages {
            let to = (rank + 1) % ranks;
            events.push((2, vec![of(0), of(to), tag, of(8)]));
            let from = (rank + ranks - 1) % ranks;
            events.push((3, vec![of(0), of(from), tag, of(8)]));
        }
        for (communicator, size) in &thread.collectives {
            for event_type in [4, 5] {
                let object = ObjectId::new(*communicator).get();
                events.push((event_type, vec![of(object), of(0), of(*size)]));
            }
        }
        events.extend((0..thread.waits).map(|_| (6, vec![of(1)])));
        let count = events.len() as u64;
        if count != 0 {
            let mut chunk = builder.chunk(stream, 1_000);
            for (at, (event_type, values)) in (1_000..).zip(&events) {
                chunk.event(EventTypeId::new(*event_type), at, values);
            }
            chunk.finish(1_000).unwrap();
        }
        builder.close_stream(stream, 1_000 + count);
    }
    let path = directory.join(format!("ranks-{rank}.annals"));
    std::fs::write(path, builder.finish()).unwrap();
}

fn print(anchor: &Path, view: &[&str]) -> String {
    let mut print = Command::new("otf2-print");
    let output = print.args(view).arg(anchor).output();
    let output = output.expect("otf2-print: run tests/run.sh");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{view:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn archive_of(job: &[Vec<Thread>], scratch: &Path) -> (PathBuf, Written) {
    let inputs = scratch.join("inputs");
    std::fs::create_dir(&inputs).unwrap();
    for (rank, threads) in job.iter().enumerate() {
        write(&inputs, rank as u32, job.len() as u32, threads);
    }
    let anchor = scratch.join("job.otf2");
    let plan = planned(&[inputs], &anchor);
    let written = crate::write_planned(plan, &anchor, ArchiveOptions::default());
    (anchor, written)
}

/// Returns the numbers in `<>` in a text.
fn references(text: &str) -> Vec<u64> {
    let parts = text.split('<').skip(1);
    let numbers = parts.map(|part| part.split('>').next().unwrap().parse().unwrap());
    numbers.collect()
}

/// Returns locations by number: rank, name, number of events.
fn locations(definitions: &str) -> BTreeMap<u64, (u64, String, u64)> {
    let lines = definitions
        .lines()
        .filter(|line| line.starts_with("LOCATION "));
    let parsed = lines.map(|line| {
        let id = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let name = line.split('"').nth(1).unwrap().to_owned();
        let events = line.split("# Events: ").nth(1).unwrap();
        let events = events.split(',').next().unwrap().parse().unwrap();
        let rank = line.split("\"rank ").nth(1).unwrap();
        let rank = rank.split('"').next().unwrap().parse().unwrap();
        (id, (rank, name, events))
    });
    parsed.collect()
}

fn check_job(job: &[Vec<Thread>]) {
    let scratch = tempfile::tempdir().unwrap();
    let (anchor, merged) = archive_of(job, scratch.path());
    let definitions = print(&anchor, &["-G"]);
    let found = locations(&definitions);
    let events = |thread: &Thread| {
        u64::from(2 * (thread.calls + thread.messages)) + 2 * thread.collectives.len() as u64
    };
    let spoken =
        |thread: &Thread| 2 * u64::from(thread.messages) + 2 * thread.collectives.len() as u64;
    // By rank, which thread is its location, if anything shows it.
    let mut chosen: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut others, mut left_out) = (0, 0);
    for (rank, threads) in job.iter().enumerate() {
        let rank = rank as u64;
        let of_rank = found.values().filter(|location| location.0 == rank);
        let of_rank: BTreeSet<(String, u64)> = of_rank
            .map(|location| (location.1.clone(), location.2))
            .collect();
        let expected = threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| events(thread) != 0);
        let expected: BTreeSet<(String, u64)> = expected
            .map(|(number, thread)| (format!("thread {number}"), events(thread)))
            .collect();
        if expected.is_empty() {
            let empty: Vec<u64> = of_rank.iter().map(|location| location.1).collect();
            assert_eq!(empty, [0], "a process is there without events, too");
        } else {
            assert_eq!(of_rank, expected);
            let most = (0..threads.len()).rev();
            let most = most.max_by_key(|at| (spoken(&threads[*at]), events(&threads[*at])));
            chosen.insert(rank, most.unwrap());
        }
        let all = threads.iter().map(spoken);
        others += all.clone().sum::<u64>() - all.max().unwrap();
        left_out += threads
            .iter()
            .map(|thread| u64::from(thread.waits))
            .sum::<u64>();
    }
    let files = std::fs::read_dir(anchor.with_extension(""))
        .unwrap()
        .count();
    assert_eq!(
        files,
        2 * found.len(),
        "no files of locations that are left out"
    );
    let archive = merged.report;
    assert_eq!(archive.left_out.values().sum::<u64>(), left_out);
    let has_communicator = definitions.contains("Type: COMM_LOCATIONS");
    assert_eq!(
        has_communicator,
        job.iter().flatten().any(|thread| spoken(thread) != 0)
    );
    if !has_communicator {
        return;
    }
    assert_eq!(archive.at_other_locations, others);
    let group = definitions
        .lines()
        .find(|line| line.contains("Type: COMM_LOCATIONS"));
    let members = references(group.unwrap().split(" Member").nth(1).unwrap());
    assert_eq!(members.len(), job.len());
    for (rank, member) in members.iter().enumerate() {
        assert_eq!(found[member].0, rank as u64);
        if let Some(thread) = chosen.get(&(rank as u64)) {
            assert_eq!(found[member].1, format!("thread {thread}"));
        }
    }
    // Each message names the location of its peer's rank.
    for line in print(&anchor, &[]).lines() {
        let peer = line
            .split_once("Receiver: ")
            .or_else(|| line.split_once("Sender: "));
        if let Some((_, peer)) = peer {
            let rank: usize = peer.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(references(peer)[0], members[rank], "{line}");
        }
    }
}

#[test]
fn a_rank_is_at_the_location_that_communicates_and_empty_locations_are_left_out() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let some = |most: u32| prop_oneof![Just(0), 0..most];
    let thread = (some(20), some(8), some(3), some(3));
    let thread = thread.prop_map(|(calls, messages, collectives, waits)| Thread {
        calls,
        messages,
        collectives: vec![(1, 4); collectives as usize],
        waits,
    });
    let job = prop::collection::vec(prop::collection::vec(thread, 1..4), 1..5);
    let outcome = runner.run(&job, |job| {
        check_job(&job);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_communicator_has_the_ranks_that_its_collectives_show() {
    let rank = |collectives: &[(u32, u32)]| {
        vec![Thread {
            messages: 1,
            collectives: collectives.to_vec(),
            ..Thread::default()
        }]
    };
    // 0 is of all, 1 of two; of the three processes of 2, one has no event of it.
    let job = [
        rank(&[(0, 4), (2, 3)]),
        rank(&[(0, 4), (1, 2)]),
        rank(&[(0, 4), (2, 3)]),
        rank(&[(0, 4), (1, 2)]),
    ];
    let scratch = tempfile::tempdir().unwrap();
    let (anchor, merged) = archive_of(&job, scratch.path());
    let definitions = print(&anchor, &["-G"]);
    let members = |communicator: u32| {
        let name = format!("Name: \"communicator {communicator}\"");
        let mut lines = definitions.lines();
        let comm = lines.find(|line| line.starts_with("COMM ") && line.contains(&name));
        let group = comm.unwrap().split("Group: ").nth(1).unwrap();
        let group = references(group.split(", Parent").next().unwrap())[0].to_string();
        let mut groups = definitions
            .lines()
            .filter(|line| line.starts_with("GROUP "));
        let group = groups.find(|line| line.split_whitespace().nth(1) == Some(&group));
        let group = group.unwrap();
        let members = references(group.split(" Member").nth(1).unwrap());
        let places = locations(&definitions);
        let ranks: Vec<u64> = members.iter().map(|member| places[member].0).collect();
        (ranks, group.contains("GLOBAL_MEMBERS"))
    };
    assert_eq!(members(0), (vec![0, 1, 2, 3], false));
    assert_eq!(members(1), (vec![1, 3], true));
    assert_eq!(members(2), (vec![0, 1, 2, 3], false));
    assert_eq!(merged.report.communicators_of_all, 1);
    // Read again, peers and roots are the ranks that they were.
    let printed = crate::json_lines(&["print", "--json", anchor.to_str().unwrap()]);
    let peers = printed.iter().filter(|event| event["event"] == "MPI_SEND");
    let peers: BTreeSet<(u64, u64)> = peers
        .map(|event| {
            let number = |json: &serde_json::Value| json.as_u64().unwrap();
            (number(&event["rank"]), number(&event["elements"]["peer"]))
        })
        .collect();
    assert_eq!(peers, (0..4).map(|rank| (rank, (rank + 1) % 4)).collect());
}

/// Returns the roles of regions by their names, with the paradigm.
fn roles(functions: &[&str]) -> BTreeMap<String, (String, String)> {
    let scratch = tempfile::tempdir().unwrap();
    let (mut builder, clock) = builder(0, 1);
    let source = builder.source("threads", SourceOrder::Ordered, clock);
    let location = builder.location("main", LocationKind::Thread, 0);
    let stream = builder.stream(source, location, 1_000);
    let region = [element("region", Reference::Region)];
    let enter = builder.event_type("enter", Role::Enter, &region);
    let regions: Vec<u32> = functions
        .iter()
        .map(|function| builder.region(function, "", 0, "mpi.any").get())
        .collect();
    let mut chunk = builder.chunk(stream, 1_000);
    for (at, region) in (1_000..).zip(regions) {
        chunk.event(enter, at, &[Value::U32(region)]);
    }
    chunk.finish(1_000).unwrap();
    builder.close_stream(stream, 2_000_000);
    let input = scratch.path().join("roles.annals");
    std::fs::write(&input, builder.finish()).unwrap();
    let anchor = scratch.path().join("roles.otf2");
    crate::to_archive(&[input], &anchor);
    let definitions = print(&anchor, &["-G"]);
    let lines = definitions
        .lines()
        .filter(|line| line.starts_with("REGION "));
    let found = lines.map(|line| {
        let after = |what: &str| {
            let rest = line.split(what).nth(1).unwrap();
            rest.split(',').next().unwrap().to_owned()
        };
        let name = line.split('"').nth(1).unwrap().to_owned();
        (name, (after("Role: "), after("Paradigm: ")))
    });
    found.collect()
}

#[test]
fn functions_of_mpi_have_the_roles_that_score_p_writes() {
    let mut expected: BTreeMap<&str, &str> = BTreeMap::new();
    for line in include_str!("score-p-roles.txt").lines() {
        let (role, functions) = line.split_once(": ").unwrap();
        expected.extend(functions.split(' ').map(|function| (function, role)));
    }
    assert!(expected.len() > 200, "{}", expected.len());
    let functions: Vec<&str> = expected.keys().copied().collect();
    for (function, (role, paradigm)) in roles(&functions) {
        assert_eq!(role, expected[&*function], "{function}");
        assert!(paradigm.starts_with("\"MPI\" <"), "{function}: {paradigm}");
    }
}

/// Returns the role that follows from what the recorder records of a function beyond enter and leave, if that decides it.
fn role_of_class(class: &str) -> Option<&'static str> {
    let (class, operation) = class.split_once('=').unwrap_or((class, ""));
    Some(match (class, operation) {
        ("collective" | "icollective" | "collective_init", operation) => match operation {
            "0" => "BARRIER",
            "1" | "4" | "5" => "COLL_ONE2ALL",
            "2" | "3" | "12" => "COLL_ALL2ONE",
            "14" | "15" => "COLL_OTHER",
            _ => "COLL_ALL2ALL",
        },
        (
            "send" | "isend" | "send_init" | "psend_init" | "sendrecv" | "isendrecv" | "recv"
            | "irecv" | "recv_init" | "precv_init" | "mrecv" | "imrecv" | "mprobe" | "improbe"
            | "probe",
            _,
        ) => "POINT2POINT",
        ("file_access" | "file_request", _) => "FILE_IO",
        ("file_open" | "file_close", _) => "FILE_IO_METADATA",
        (
            "wait" | "waitall" | "waitany" | "waitsome" | "test" | "testall" | "testany"
            | "testsome" | "start" | "startall" | "cancel" | "request_free" | "comm_new"
            | "comm_idup" | "comm_other" | "comm_free" | "win_sync" | "win_free" | "set_name"
            | "type_free" | "init" | "finalize" | "abort" | "pcontrol",
            _,
        ) => "FUNCTION",
        _ => return None,
    })
}

#[test]
fn every_function_that_is_recorded_has_the_role_of_its_class() {
    let table = include_str!("../../recorder/mpi/functions.tsv");
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let classes: BTreeMap<&str, &str> = lines
        .map(|line| {
            let mut fields = line.split('\t');
            (fields.next().unwrap(), fields.nth(1).unwrap())
        })
        .collect();
    let functions: Vec<&str> = classes.keys().copied().collect();
    let mut decided = 0;
    for (function, (role, _)) in roles(&functions) {
        let class = classes[&*function];
        let expected = role_of_class(class);
        decided += u32::from(expected.is_some());
        let is_right = match expected {
            Some(expected) => role == expected,
            None if class.starts_with("rma") => role == "RMA" || role == "ATOMIC",
            None => true,
        };
        assert!(is_right, "{function}, {class}: {role}");
    }
    assert!(decided > 300, "{decided}");
}
