//! Matching and counting.

use std::collections::BTreeMap;
use std::path::PathBuf;

use annals_merger::{Causality, CausalityReport};
use proptest::prelude::*;

use crate::world::{Host, MARK, Op, Program, RECEIVE, SEND, World};
use crate::{merge_inputs, merge_with, report};

fn check(world: &World) -> CausalityReport {
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    report(scratch.path(), Causality::Check)
        .causality
        .expect("messages")
}

/// Returns a world in which each process performs the given operations, all on one perfect host.
fn told(ops: &[&[(i64, Op)]]) -> World {
    let ranks = ops.len() as u32;
    let programs = ops.iter().enumerate().map(|(rank, ops)| {
        let mut program = Program::new(rank as u32, ranks, Host::new(1), 1_000_000);
        program.ops = ops.to_vec();
        program.chunk_len = 3;
        program
    });
    World {
        programs: programs.collect(),
        messages: Vec::new(),
    }
}

/// Returns count, largest and mean of the sizes of violations.
fn sizes(sizes: &[i64]) -> (u64, u64, u64) {
    let wrong: Vec<u64> = sizes
        .iter()
        .filter(|s| **s > 0)
        .map(|s| *s as u64)
        .collect();
    let count = wrong.len() as u64;
    let largest = wrong.iter().copied().max().unwrap_or(0);
    (count, largest, wrong.iter().sum::<u64>() / count.max(1))
}

fn plan(ranks: u32) -> impl Strategy<Value = Vec<(u32, u32, i64, i64, i64)>> {
    let message = (
        0..ranks,
        0..ranks,
        0..3_i64,
        0..4_000_000_i64,
        1..50_000_i64,
    );
    prop::collection::vec(message, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn violations_are_what_the_wrong_clocks_make_of_the_messages(
        errors in prop::collection::vec(-60_000..60_000_i64, 4), plan in plan(4),
    ) {
        let hosts: Vec<Host> = errors.iter().enumerate()
            .map(|(n, error)| Host { wall_error_ns: *error, ..Host::new(n as u8) })
            .collect();
        let world = World::of_messages(&hosts, &plan);
        let scratch = tempfile::tempdir().expect("a directory");
        world.write(scratch.path());
        let (merged, bytes) = merge_with(scratch.path(), 1, |_| {});
        let (again, same_bytes) = merge_with(scratch.path(), 5, |merge| merge.chunk_events = 7);
        // Chunk borders depend on the setting, what is found does not.
        prop_assert_eq!(&merged.report.causality, &again.report.causality);
        let (_, of_two_jobs) = merge_with(scratch.path(), 2, |_| {});
        prop_assert_eq!(bytes == of_two_jobs, true);
        prop_assert_eq!(world.messages.is_empty() || !same_bytes.is_empty(), true);
        let found = merged.report.causality.expect("messages");
        let mut by_pair: BTreeMap<(u32, u32), Vec<i64>> = BTreeMap::new();
        for (from, to, sent_ns, received_ns) in &world.messages {
            let early = (sent_ns + errors[*from as usize]) - (received_ns + errors[*to as usize]);
            by_pair.entry((*from, *to)).or_default().push(early);
        }
        by_pair.retain(|_, early| early.iter().any(|early| *early > 0));
        let all: Vec<i64> = by_pair.values().flatten().copied().collect();
        let count = world.messages.len() as u64;
        prop_assert_eq!(found.messages.matched, count);
        prop_assert_eq!((found.messages.sends, found.messages.receives), (count, count));
        prop_assert_eq!(found.constraints, count);
        let sum = found.violations;
        prop_assert_eq!((sum.count, sum.largest_ns, sum.mean_ns), sizes(&all));
        let listed: BTreeMap<(u32, u32), (u64, u64, u64)> = found.pairs.iter()
            .map(|pair| {
                let v = pair.violations;
                ((pair.from_rank, pair.to_rank), (v.count, v.largest_ns, v.mean_ns))
            })
            .collect();
        let expected: BTreeMap<_, _> =
            by_pair.iter().map(|(pair, early)| (*pair, sizes(early))).collect();
        prop_assert_eq!(listed, expected);
    }

    #[test]
    fn behind_a_loss_nothing_is_matched_wrongly(
        plan in plan(3), lost in (0..3_usize, 0..400_usize, 0..3_usize),
    ) {
        // Nothing is wrong with the clocks: every violation would be a wrong match.
        let hosts = [1, 2, 3].map(Host::new);
        let mut world = World::of_messages(&hosts, &plan);
        let (rank, at, kind) = lost;
        let ops = &mut world.programs[rank].ops;
        let messages = world.messages.len() as u64;
        prop_assume!(!ops.is_empty());
        let at = at % ops.len();
        let (time, op) = ops[at];
        let event_type = match (kind, op) {
            (0, _) => None,
            (_, Op::Send(..)) => Some(SEND),
            _ => Some(RECEIVE),
        };
        ops[at] = (time, Op::Lost(event_type, 1));
        let found = check(&world);
        prop_assert_eq!(found.violations.count, 0);
        let m = found.messages;
        let rest = m.sends + m.receives - 2 * m.matched;
        prop_assert_eq!(m.sends + m.receives, 2 * messages - 1);
        prop_assert_eq!(m.unmatchable_by_loss, rest);
        prop_assert!(rest >= 1);
    }
}

#[test]
fn a_loss_of_something_else_costs_no_message() {
    let world = told(&[
        &[
            (10, Op::Send(1, 0)),
            (20, Op::Lost(Some(MARK), 5)),
            (30, Op::Send(1, 0)),
        ],
        &[(40, Op::Receive(0, 0)), (50, Op::Receive(0, 0))],
    ]);
    let found = check(&world);
    assert_eq!(found.messages.matched, 2);
    assert_eq!(found.messages.unmatchable_by_loss, 0);
}

#[test]
fn a_missing_chunk_makes_the_rest_unmatchable_and_sequence_numbers_mend_it() {
    for is_numbered in [false, true] {
        let send = |n: u64| {
            if is_numbered {
                Op::NumberedSend(1, 0, n)
            } else {
                Op::Send(1, 0)
            }
        };
        let receive = |n: u64| {
            if is_numbered {
                Op::NumberedReceive(0, 0, n)
            } else {
                Op::Receive(0, 0)
            }
        };
        let sends: Vec<_> = (0..9).map(|n| (100 * n as i64, send(n))).collect();
        let receives: Vec<_> = (0..9).map(|n| (100 * n as i64 + 50, receive(n))).collect();
        let world = told(&[&sends, &receives]);
        let scratch = tempfile::tempdir().expect("a directory");
        world.programs[0].write(scratch.path(), &[1]);
        world.programs[1].write(scratch.path(), &[]);
        let found = report(scratch.path(), Causality::Check)
            .causality
            .expect("messages");
        let m = found.messages;
        assert_eq!((m.sends, m.receives), (6, 9));
        assert_eq!(found.violations.count, 0);
        let matched = if is_numbered { 6 } else { 3 };
        assert_eq!(
            (m.matched, m.unmatchable_by_loss),
            (matched, 15 - 2 * matched)
        );
    }
}

/// Nothing has a sequence number: the last barrier, which both ranks have completed, proves which messages match after the loss.
#[test]
fn the_end_of_a_run_proves_which_messages_match_after_a_loss() {
    let rounds = |message: Op, late_ns: i64| -> Vec<(i64, Op)> {
        let round = |number: i64| {
            let start_ns = 100 * number + late_ns;
            [
                (start_ns, message),
                (start_ns + 20, Op::Begin(0, 0, 2)),
                (start_ns + 50, Op::End(0, 0, 2)),
            ]
        };
        (0..9).flat_map(round).collect()
    };
    let mut world = told(&[&rounds(Op::Send(1, 0), 0), &rounds(Op::Receive(0, 0), 10)]);
    for is_all_received in [true, false] {
        if !is_all_received {
            // One more message, which was not received when the run ended: the counts differ.
            world.programs[0].ops.push((1000, Op::Send(1, 0)));
        }
        let scratch = tempfile::tempdir().expect("a directory");
        world.programs[0].write(scratch.path(), &[1]);
        world.programs[1].write(scratch.path(), &[]);
        let found = report(scratch.path(), Causality::Check).causality;
        let found = found.expect("messages");
        assert_eq!(found.violations.count, 0);
        let (messages, collectives) = (found.messages, found.collectives);
        let matched = if is_all_received { 8 } else { 1 };
        assert_eq!(messages.matched, matched, "{messages:?}");
        let left = messages.sends + messages.receives - 2 * matched;
        assert_eq!(messages.unmatchable_by_loss, left, "{messages:?}");
        assert_eq!(collectives.unmatchable_by_loss, 0, "{collectives:?}");
        assert_eq!(collectives.operations, 8, "{collectives:?}");
    }
}

#[test]
fn started_receives_take_messages_in_the_order_in_which_they_were_started() {
    // The second receive completes before the first; the times show which message each of them had.
    let world = told(&[
        &[(10, Op::Send(1, 5)), (2000, Op::Send(1, 5))],
        &[
            (5, Op::Start(0, 5, 1)),
            (6, Op::Start(0, 5, 2)),
            (1000, Op::Completion(0, 5, 2)),
            (1500, Op::Completion(0, 5, 1)),
        ],
    ]);
    let found = check(&world);
    assert_eq!(found.messages.matched, 2);
    // Request 1 had the message of 10, request 2 that of 2000, 1000 ns before it was sent.
    assert_eq!(
        (found.violations.count, found.violations.largest_ns),
        (1, 1000)
    );
    // Now the first receive accepts any message.
    let mut any = world.clone();
    any.programs[1].ops[0].1 = Op::Start(-1, -1, 1);
    assert_eq!(check(&any), found);
    // A receive that was given up takes nothing.
    let mut given_up = world;
    given_up.programs[1].ops[3].1 = Op::Cancel(1);
    let found = check(&given_up);
    assert_eq!((found.messages.matched, found.violations.count), (1, 0));
    let counts = found.messages;
    assert_eq!((counts.unmatched_sends, counts.open_receives), (1, 0));
    // If events were lost after the start, the end of the receive may be among them.
    given_up.programs[1].ops[3].1 = Op::Lost(None, 1);
    assert_eq!(check(&given_up).messages.open_receives, 0);
}

#[test]
fn an_unfinished_receive_of_anything_holds_back_what_it_might_have_taken() {
    let world = told(&[
        &[(10, Op::Send(1, 5)), (20, Op::Send(1, 6))],
        &[
            (5, Op::Start(-1, 5, 1)),
            (30, Op::Receive(0, 6)),
            (40, Op::Receive(0, 5)),
        ],
    ]);
    let found = check(&world);
    // Tag 6 does not fit the one that was started.
    assert_eq!(
        (found.messages.matched, found.messages.open_receives),
        (1, 1)
    );
    assert_eq!(
        (
            found.messages.unmatched_sends,
            found.messages.unmatched_receives
        ),
        (1, 1)
    );
}

#[test]
fn over_the_limit_messages_are_counted_and_not_guessed() {
    let sends: Vec<_> = (0..50).map(|n| (n, Op::Send(1, 0))).collect();
    let receives: Vec<_> = (0..50).map(|n| (1000 + n, Op::Receive(0, 0))).collect();
    let world = told(&[&sends, &receives]);
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    let (merged, _) = merge_with(scratch.path(), 2, |merge| merge.messages_in_flight = 20);
    let found = merged.report.causality.expect("messages");
    assert_eq!(found.messages.matched, 20);
    assert_eq!(found.messages.over_limit, 60);
    assert_eq!(found.violations.count, 0);
    let (alone, _) = merge_with(scratch.path(), 1, |merge| merge.messages_in_flight = 20);
    assert_eq!(alone.report.causality, Some(found));
}

#[test]
fn collective_operations_order_what_their_semantics_say() {
    // (operation, root, violations): rank 0 is late into everything, rank 2 leaves early.
    for (operation, root, violations) in [
        (0, 0, 1),  // barrier: rank 2 leaves at 50, rank 0 enters at 100
        (11, 0, 1), // allreduce
        (1, 0, 1),  // broadcast from rank 0
        (1, 1, 0),  // broadcast from rank 1, which entered at 10
        (12, 2, 1), // reduce to rank 2
        (12, 1, 0), // reduce to rank 1
        (14, 0, 1), // scan: rank 2 needs rank 0
        (7, 0, 0),  // allgatherv orders nothing
    ] {
        let of = |begin: i64, end: i64| {
            [
                (begin, Op::Begin(operation, root, 3)),
                (end, Op::End(operation, root, 3)),
            ]
        };
        let world = told(&[&of(100, 200), &of(10, 150), &of(20, 50)]);
        let found = check(&world);
        assert_eq!(
            found.violations.count, violations,
            "{operation} from {root}"
        );
        let largest = if violations == 0 { 0 } else { 50 };
        assert_eq!(
            found.violations.largest_ns, largest,
            "{operation} from {root}"
        );
        let c = found.collectives;
        assert_eq!(
            (c.begins, c.ends, c.operations, c.inconsistent),
            (3, 3, 1, 0)
        );
    }
}

#[test]
fn a_process_that_receives_nothing_waits_for_no_process() {
    // Operation, root, sent and received bytes of each of three processes, violations. Rank 0 enters at 100, when the others
    // have left: rank 1 at 50, rank 2 at 60.
    const ALL: [[u64; 2]; 3] = [[4, 4]; 3];
    let cases: [(u64, u32, [[u64; 2]; 3], u64); 22] = [
        // Reduce-scatter: every process contributes; only those with elements of the result receive.
        (13, 0, [[12, 4], [12, 4], [12, 4]], 2),
        (13, 0, [[4, 4], [4, 0], [4, 0]], 0),
        (13, 0, [[4, 0], [4, 4], [4, 0]], 1),
        (13, 0, [[0, 0]; 3], 0),
        // Allgatherv: all receive what those that have something contribute.
        (7, 0, ALL, 2),
        (7, 0, [[4, 4], [0, 4], [0, 4]], 2),
        (7, 0, [[0, 4], [4, 4], [0, 4]], 0),
        (7, 0, [[0, 0]; 3], 0),
        // Gatherv to rank 2, and to rank 0.
        (3, 2, [[4, 0], [4, 0], [4, 12]], 1),
        (3, 2, [[0, 0], [4, 0], [4, 8]], 0),
        (3, 0, [[4, 12], [4, 0], [4, 0]], 0),
        // Scatterv from rank 0.
        (5, 0, [[12, 4], [0, 4], [0, 4]], 2),
        (5, 0, [[8, 4], [0, 0], [0, 4]], 1),
        (5, 0, [[4, 4], [0, 0], [0, 0]], 0),
        // Broadcast, reduce, allreduce, scan, exscan.
        (1, 0, [[4, 0], [0, 4], [0, 4]], 2),
        (12, 2, [[4, 0], [4, 0], [4, 4]], 1),
        (11, 0, ALL, 2),
        (14, 0, ALL, 2),
        (15, 0, [[4, 0], [4, 4], [4, 4]], 2),
        // Alltoallv: the pairs of sender and receiver are not known.
        (9, 0, ALL, 0),
        // A barrier has no bytes.
        (0, 0, [[0, 0]; 3], 2),
        (0, 2, [[0, 0]; 3], 2),
    ];
    for (operation, root, bytes, violations) in cases {
        let of = |rank: usize, begin: i64, end: i64| {
            [
                (begin, Op::SizedBegin(operation, root, 3, bytes[rank])),
                (end, Op::SizedEnd(operation, root, 3, bytes[rank])),
            ]
        };
        let world = told(&[&of(0, 100, 200), &of(1, 10, 50), &of(2, 20, 60)]);
        let found = check(&world);
        let what = format!("{operation} with root {root} and {bytes:?}");
        assert_eq!(found.violations.count, violations, "{what}");
        let c = found.collectives;
        assert_eq!(
            (c.begins, c.ends, c.operations, c.inconsistent),
            (3, 3, 1, 0),
            "{what}"
        );
    }
}

#[test]
fn violations_within_the_error_of_the_clocks_are_told_from_those_beyond() {
    let mut world = told(&[&[(1000, Op::Send(1, 0))], &[(900, Op::Receive(0, 0))]]);
    for (error_ns, beyond) in [(10, 1), (60, 0)] {
        for program in &mut world.programs {
            // Two clocks of one host, each known to within so much.
            program.ticking.kind = annals_format::ClockKind::Readable;
            program.points = vec![(0, error_ns, 0), (10_000_000, error_ns, 0)];
        }
        let found = check(&world);
        assert_eq!(
            (found.violations.count, found.violations.beyond_error),
            (1, beyond)
        );
    }
}

#[test]
fn without_messages_there_is_nothing_to_say() {
    let world = told(&[&[(10, Op::Mark(1))], &[(20, Op::Mark(2))]]);
    let found = check(&world);
    assert_eq!(found.constraints, 0);
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    assert_eq!(report(scratch.path(), Causality::Off).causality, None);
}

/// A recording of another run among these is reported. Its collective operations are matched with no others.
#[test]
fn runs_that_are_mixed_are_matched_apart() {
    let hosts = [Host::new(1), Host::new(2)];
    let mut world = World::of_messages(&hosts, &[(0, 1, 0, 100, 50), (1, 0, 0, 500, 50)]);
    for (n, program) in (0..).zip(&mut world.programs) {
        for step in 0..5 {
            let at = 10_000 + 1_000 * step + 10 * n;
            program.ops.push((at, Op::Begin(0, 0, 2)));
            program.ops.push((at + 500, Op::End(0, 0, 2)));
        }
    }
    let alone = check(&world);
    assert_eq!((alone.violations.count, alone.messages.matched), (0, 2));
    // As it was, long before; and of its second rank nothing is here.
    let mut other = world.programs[0].clone();
    other.run = "another world";
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    other.host.offset_ns += 7_000_000;
    other.write(scratch.path(), &[]);
    let mixed = report(scratch.path(), Causality::Check);
    let found = mixed.causality.expect("messages");
    assert_eq!(found.violations.count, 0, "{found:?}");
    assert_eq!(found.messages.matched, 2);
    assert_eq!(found.collectives.operations, alone.collectives.operations);
    assert!(
        mixed
            .shared_ranks
            .iter()
            .any(|shared| shared.is_of_several_runs())
    );
}

/// A launcher that was started twice in a run, or a program that spawned another: each counts its ranks from 0.
#[test]
fn worlds_of_a_run_have_ranks_and_messages_of_their_own() {
    let hosts = [Host::new(1), Host::new(1)];
    let messages = [(0, 1, 0, 100, 50), (1, 0, 0, 500, 50), (0, 1, 3, 700, 50)];
    let mut world = World::of_messages(&hosts, &messages);
    for (n, program) in (0..).zip(&mut world.programs) {
        program.start = Some("a");
        program.ops.push((10_000 + n, Op::Begin(0, 0, 2)));
        program.ops.push((20_000 + n, Op::End(0, 0, 2)));
    }
    let of_start = |start| {
        let mut programs = world.programs.clone();
        for program in &mut programs {
            program.start = start;
        }
        programs
    };
    let all: Vec<Program> = [Some("a"), Some("b"), None]
        .into_iter()
        .flat_map(of_start)
        .collect();
    let told = |programs: &[&Program]| {
        let scratch = tempfile::tempdir().expect("a directory");
        programs
            .iter()
            .for_each(|program| program.write(scratch.path(), &[]));
        merge_with(scratch.path(), 1, |_| {})
    };
    let (merged, bytes) = told(&all.iter().collect::<Vec<_>>());
    let found = merged.report.causality.as_ref().expect("messages");
    assert_eq!(found.messages.matched, 9, "{found:?}");
    assert_eq!((found.messages.sends, found.messages.receives), (9, 9));
    assert_eq!(found.violations.count, 0, "{found:?}");
    assert_eq!(found.collectives.operations, 3, "{found:?}");
    assert_eq!(merged.report.shared_ranks, []);
    assert_eq!(merged.report.missing_ranks, [] as [u32; 0]);
    let worlds = merged.report.worlds.iter();
    let worlds: Vec<(&str, u32, usize)> = worlds
        .map(|world| (world.world.as_str(), world.first_rank, world.recordings))
        .collect();
    // All start at the same time: then by name.
    assert_eq!(worlds, [("", 0, 2), ("a", 2, 2), ("b", 4, 2)]);

    // A trace is read, and merged again, as its recordings are: whole, and from two parts.
    let again = |parts: &[&[u8]]| {
        let scratch = tempfile::tempdir().expect("a directory");
        let write = |(n, part): (usize, &&[u8])| {
            let path = scratch.path().join(format!("part-{n}.annals"));
            std::fs::write(&path, part).expect("the trace is written");
            path
        };
        let paths: Vec<PathBuf> = parts.iter().enumerate().map(write).collect();
        merge_inputs(&paths, scratch.path(), 1, |_| {})
    };
    let (once_more, same) = again(&[&bytes]);
    assert_eq!(once_more.report.causality, merged.report.causality);
    assert_eq!(once_more.report.worlds, merged.report.worlds);
    assert!(same == bytes);
    let (_, of_b) = told(&all[2..4].iter().collect::<Vec<_>>());
    let others: Vec<&Program> = all[..2].iter().chain(&all[4..]).collect();
    let (_, of_others) = told(&others);
    let (together, _) = again(&[&of_b, &of_others]);
    assert_eq!(together.report.causality, merged.report.causality);
    assert_eq!(together.report.worlds, merged.report.worlds);

    // For a rank without a recording, its number is reported.
    let mut rest: Vec<&Program> = all.iter().collect();
    rest.remove(3);
    let (merged, _) = told(&rest);
    assert_eq!(merged.report.missing_ranks, [5]);
    let found = merged.report.causality.expect("messages");
    assert_eq!(found.messages.matched, 6, "{found:?}");
    assert_eq!(found.messages.without_peer, 3, "{found:?}");
}

#[test]
fn what_was_not_sent_is_nobodys_message() {
    let world = told(&[
        &[
            (10, Op::Send(1, 0)),
            (20, Op::Unsent(1, 0)),
            (30, Op::Send(1, 0)),
            (35, Op::Send(1, 1)),
            (38, Op::Unsent(1, 1)),
            // Of another tag, and of nobody's.
            (39, Op::Unsent(1, 2)),
        ],
        &[(25, Op::Receive(0, 0))],
    ]);
    let found = check(&world);
    let counts = found.messages;
    assert_eq!((counts.sends, counts.receives, counts.matched), (1, 1, 1));
    assert_eq!(counts.unmatched_sends, 0);
    // It precedes the only message that was sent.
    assert_eq!(
        (found.violations.count, found.violations.largest_ns),
        (1, 5)
    );
}

#[test]
fn operations_that_processes_take_for_different_ones_order_nothing() {
    let world = told(&[
        &[
            (10, Op::Begin(0, 0, 2)),
            (20, Op::End(0, 0, 2)),
            (50, Op::Begin(11, 0, 2)),
            (60, Op::End(11, 0, 2)),
        ],
        &[
            (30, Op::Begin(11, 0, 2)),
            (40, Op::End(11, 0, 2)),
            (70, Op::Begin(0, 0, 2)),
            (80, Op::End(0, 0, 2)),
        ],
    ]);
    let found = check(&world);
    assert_eq!((found.constraints, found.violations.count), (0, 0));
    assert_eq!(found.collectives.inconsistent, 2);
}

/// A request that is given up while it is active still takes its message.
#[test]
fn a_receive_of_which_nothing_more_is_told_takes_one_message_and_no_more() {
    let world = told(&[
        &[
            (10, Op::Send(1, 0)),
            (30, Op::Send(1, 0)),
            (50, Op::Send(1, 0)),
        ],
        &[
            (1, Op::Start(0, 0, 1)),
            (2, Op::Start(0, 0, 2)),
            (20, Op::Completion(0, 0, 2)),
            (60, Op::Receive(0, 0)),
        ],
    ]);
    let found = check(&world);
    let counts = found.messages;
    assert_eq!((counts.sends, counts.receives, counts.matched), (3, 2, 2));
    assert_eq!(counts.open_receives, 1, "{counts:?}");
    assert_eq!((counts.unmatched_sends, counts.unmatched_receives), (1, 0));
    assert_eq!(
        (found.violations.count, found.violations.largest_ns),
        (1, 10)
    );
    let scratch = tempfile::tempdir().expect("a directory");
    world.write(scratch.path());
    let (merged, _) = merge_with(scratch.path(), 1, |merge| {
        merge.causality = Causality::Repair;
    });
    let repaired = merged.report.causality.expect("messages");
    let before = repaired.repair.map(|repair| repair.before.count);
    assert_eq!((before, repaired.violations.count), (Some(1), 0));
}
