//! Analyses run over slices of a trace, by several threads: the answers are those of one thread, and those of the
//! recordings, which are one slice.

use annals_test_support::synthetic;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use annals_format::{BLOCK_HEADER_LEN, BlockHeader, BlockKind};
use annals_merger::{MergeOptions, Query, Reader, Role, SliceNumber, no_progress};

const COMMANDS: [&str; 10] = [
    "regions --rank 0-6",
    "regions --by location",
    "regions --tree --top 500",
    "flat",
    "messages --from 2ms --to 25ms",
    "collectives",
    "intervals --begin point_a --end point_b --by-rank",
    "histogram --region * --log",
    "histogram --event send --element bytes",
    "metrics --event point_a --element value --points 7",
];

fn answer(command: &str, input: &Path, jobs: &str) -> String {
    let mut arguments = command.split(' ');
    let output = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .arg(arguments.next().expect("a command"))
        .arg(input)
        .args(arguments.map(|argument| argument.replace("point_", "point ")))
        .args(["--json", "--jobs", jobs])
        .output()
        .expect("trace-cli runs");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{command}");
    String::from_utf8(output.stdout).expect("text")
}

/// The first line in which two answers differ.
fn check_same(what: &str, found: &str, expected: &str) {
    let differing = found.lines().zip(expected.lines()).enumerate();
    let first = differing.filter(|(_, (a, b))| a != b).take(3);
    let first: Vec<_> = first.collect();
    assert!(found == expected, "{what}: {first:#?}");
}

#[test]
fn analyses_of_slices_add_up_to_those_of_the_whole() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recordings = scratch.path().join("recordings");
    std::fs::create_dir(&recordings).expect("a directory");
    let ranks = 8;
    for rank in 0..ranks {
        synthetic::write_stretched(
            &recordings,
            rank,
            ranks,
            150_000,
            1,
            synthetic::Mix::Collectives,
        )
        .expect("a recording");
    }
    let trace = scratch.path().join("run.annals");
    let plan = MergeOptions::new().plan(std::slice::from_ref(&recordings));
    let merged = plan.expect("recordings").write_trace(&trace, no_progress);
    merged.expect("a trace");
    for command in COMMANDS {
        let of_recordings = answer(command, &recordings, "1");
        assert!(of_recordings.len() > 100, "{command}: {of_recordings}");
        for jobs in ["1", "3"] {
            let found = answer(command, &trace, jobs);
            check_same(&format!("{command} --jobs {jobs}"), &found, &of_recordings);
        }
    }

    // If a snapshot cannot be read, the slice that begins there follows the calls from the snapshot before. A chunk that cannot
    // be read costs its events, for every number of threads.
    let mut bytes = std::fs::read(&trace).expect("the trace");
    let (mut at, mut blocks) = (64, Vec::new());
    while let Ok(header) = BlockHeader::decode(&bytes[at..]) {
        blocks.push((at, header.kind));
        at += header.block_len() as usize;
    }
    let of_kind = |kind: BlockKind| -> Vec<usize> {
        let found = blocks.iter().filter(|block| block.1 == kind);
        found.map(|block| block.0).collect()
    };
    let (snapshots, chunks) = (of_kind(BlockKind::Snapshot), of_kind(BlockKind::TraceChunk));
    assert!(snapshots.len() > 4, "{snapshots:?}");
    let sound = COMMANDS.map(|command| answer(command, &trace, "2"));
    for snapshot in &snapshots[..snapshots.len() - 1] {
        bytes[snapshot + BLOCK_HEADER_LEN + 5] ^= 0x40;
    }
    std::fs::write(&trace, &bytes).expect("the trace");
    for (command, sound) in COMMANDS.iter().zip(&sound) {
        assert!(
            answer(command, &trace, "2") == *sound,
            "{command}: snapshots"
        );
    }
    let header = BlockHeader::decode(&bytes[chunks[3]..]).expect("a chunk");
    bytes[chunks[3] + header.block_len() as usize - 9] ^= 0x40;
    std::fs::write(&trace, &bytes).expect("the trace");
    for command in COMMANDS {
        let found = answer(command, &trace, "1");
        check_same(
            &format!("{command}: a chunk"),
            &found,
            &answer(command, &trace, "3"),
        );
    }
}

/// Enters, and leaves of regions that were not entered, counted one event after the other.
fn count_moves(trace: &Path) -> (u64, u64) {
    let reader = Reader::open(trace).expect("a trace");
    let mut open: HashMap<_, Vec<_>> = HashMap::new();
    let (mut calls, mut unmatched) = (0, 0);
    let read = reader.for_each_event(&Query::new(), |event| {
        let stack = open.entry(event.location_id()).or_default();
        match event.role() {
            Role::Enter => {
                stack.push(event.region());
                calls += 1;
            }
            Role::Leave => match stack.iter().rposition(|region| *region == event.region()) {
                Some(depth) => stack.truncate(depth),
                None => unmatched += 1,
            },
            _ => {}
        }
        ControlFlow::Continue(())
    });
    read.expect("the trace is read");
    (calls, unmatched)
}

#[test]
fn a_slice_of_a_merge_is_added_up_without_what_was_open_before_it() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recordings = scratch.path().join("recordings");
    std::fs::create_dir(&recordings).expect("a directory");
    for rank in 0..8 {
        synthetic::write_stretched(&recordings, rank, 8, 200_000, 1, synthetic::Mix::Random)
            .expect("a recording");
    }
    for number in 1..=3 {
        let trace = scratch.path().join(format!("{number}.annals"));
        let mut options = MergeOptions::new();
        options.slice = Some(SliceNumber { number, of: 3 });
        let plan = options.plan(std::slice::from_ref(&recordings));
        let merged = plan.expect("recordings").write_trace(&trace, no_progress);
        merged.expect("a trace");
        let (calls, unmatched) = count_moves(&trace);
        assert!(calls > 100_000, "{calls}");
        // The first part contains everything before; in the others the calls that were open end.
        assert_eq!(unmatched == 0, number == 1, "{number}: {unmatched}");
        for jobs in ["1", "3"] {
            let answer = answer("regions --rank 0-7", &trace, jobs);
            let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
            let rows = answer["regions"].as_array().expect("rows");
            let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum();
            let found: (u64, u64) = (sum("calls"), sum("unmatched_leaves"));
            assert_eq!(found, (calls, unmatched), "{number}, {jobs} jobs");
        }
    }
}

/// Time, stream, event type and values of every event of some input, and how many events were lost, by stream.
fn all_events(input: &Path) -> (Vec<String>, HashMap<u32, u64>) {
    let reader = Reader::open(input).expect("a trace or recordings");
    let mut found = Vec::new();
    let read = reader.for_each_event(&Query::new(), |event| {
        let values: Vec<_> = event.elements().collect();
        let (time, stream, name) = (event.time(), event.stream(), event.name());
        found.push(format!("{time} {stream:?} {name} {values:?}"));
        ControlFlow::Continue(())
    });
    let read = read.expect("it is read").expect("to its end");
    let mut lost = HashMap::new();
    for loss in &read.losses {
        *lost.entry(loss.stream.get()).or_default() += loss.count;
    }
    (found, lost)
}

/// Returns the groups of each chunk of a trace: the streams and events of each.
fn groups(trace: &Path) -> Vec<Vec<(Vec<u32>, u64)>> {
    let bytes = std::fs::read(trace).expect("the trace");
    let read = annals_format::Trace::read(&bytes).expect("a trace");
    let heads = read.chunks.iter().map(|entry| {
        let head = read.head(&bytes, entry).expect("a head");
        let mut counts = head.counts.iter();
        let groups = head.frames.iter().map(|frame| {
            let own: Vec<_> = counts.by_ref().take(frame.streams as usize).collect();
            let events = own.iter().flat_map(|(_, counts)| counts);
            let events = events.map(|(_, count)| count).sum();
            (own.iter().map(|(stream, _)| stream.get()).collect(), events)
        });
        groups.collect()
    });
    heads.collect()
}

#[test]
fn a_damaged_group_costs_its_events_and_nothing_else() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recordings = scratch.path().join("recordings");
    std::fs::create_dir(&recordings).expect("a directory");
    for rank in 0..9 {
        let mix = synthetic::Mix::Halo;
        synthetic::write_stretched(&recordings, rank, 9, 20_000, 1, mix).expect("a recording");
    }
    let trace = scratch.path().join("trace.annals");
    let plan = MergeOptions::new().plan(std::slice::from_ref(&recordings));
    let merged = plan.expect("recordings").write_trace(&trace, no_progress);
    merged.expect("a trace");
    let (events, lost) = all_events(&trace);
    assert_eq!(events.len(), 180_000);
    assert_eq!(lost.values().sum::<u64>(), 0);
    assert_eq!(
        all_events(&recordings).0,
        events,
        "the trace has what the recordings have"
    );
    let groups = groups(&trace);
    assert!(
        groups.len() > 2 && groups.iter().all(|of_chunk| of_chunk.len() > 2),
        "{groups:?}"
    );

    // One byte in the second group of the second chunk.
    let mut bytes = std::fs::read(&trace).expect("the trace");
    let read = annals_format::Trace::read(&bytes).expect("a trace");
    let at = read.chunks[1].offset as usize;
    let head = read.head(&bytes, &read.chunks[1]).expect("a head");
    let block = BlockHeader::decode(&bytes[at..]).expect("a block");
    let body = at + BLOCK_HEADER_LEN + block.head_len as usize;
    bytes[body + head.frames[0].stored_len as usize + 5] ^= 1;
    std::fs::write(&trace, &bytes).expect("the trace");
    let (streams, of_group) = &groups[1][1];
    let (left, lost) = all_events(&trace);
    assert_eq!(left.len() as u64 + of_group, 180_000);
    assert_eq!(lost.values().sum::<u64>(), *of_group);
    assert!(
        lost.iter()
            .all(|(stream, count)| *count == 0 || streams.contains(stream))
    );
    let mut whole = events.iter();
    assert!(
        left.iter().all(|event| whole.any(|other| other == event)),
        "in order"
    );
    // The answer about a rank of another group does not change; the one about this group says what is missing.
    let answers = |rank: u32| {
        let command = format!("regions --rank {rank}");
        [&trace, &recordings].map(|input| answer(&command, input, "1"))
    };
    let other = (0..9).find(|rank| !streams.contains(rank)).expect("a rank");
    let rows = |answer: &String| -> serde_json::Value {
        let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
        answer["regions"].clone()
    };
    let [damaged, whole] = answers(other);
    assert_eq!(rows(&damaged), rows(&whole));
    let [damaged, whole] = answers(streams[0]);
    assert_ne!(rows(&damaged), rows(&whole));
}
