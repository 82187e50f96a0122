//! What ordered two events.

use annals_merger::{EventName, Reader, Rule, explain};

use crate::merge_with;
use crate::world::{Host, Op, Program};

fn place(rank: u32, position: u64) -> EventName {
    EventName::Place(rank, "main".to_owned(), position)
}

#[test]
fn each_rule_is_named_for_what_it_ordered() {
    // Ranks 0 and 1 are on hosts whose clocks were never compared, rank 2 is on the host of rank 0.
    let (a, b) = (
        Host::new(1),
        Host {
            wall_error_ns: -500,
            ..Host::new(2)
        },
    );
    let programs: [(Host, &[(i64, Op)]); 3] = [
        (
            a,
            &[
                (100, Op::Mark(1)),
                (200, Op::Send(1, 0)),
                (5_000, Op::Mark(2)),
                (9_000, Op::Receive(1, 0)),
            ],
        ),
        (
            b,
            &[
                (150, Op::Mark(3)),
                (1_000, Op::Receive(0, 0)),
                (2_000, Op::Mark(4)),
                (3_000, Op::Send(0, 0)),
            ],
        ),
        (a, &[(120, Op::Mark(5)), (100_000, Op::Mark(6))]),
    ];
    let scratch = tempfile::tempdir().expect("a directory");
    for (rank, (host, ops)) in programs.into_iter().enumerate() {
        let mut program = Program::new(rank as u32, 3, host, 1_000_000);
        program.ops = ops.to_vec();
        program.write(scratch.path(), &[]);
    }
    merge_with(scratch.path(), 2, |_| {});
    let opened = Reader::open(scratch.path().join("out").join("run.annals")).expect("a trace");
    let rule = |a: EventName, b: EventName| {
        let found = explain(&opened, [&a, &b])
            .expect("a trace")
            .expect("events");
        // Whichever is named first.
        let same = explain(&opened, [&b, &a])
            .expect("a trace")
            .expect("events");
        assert_eq!(found, same);
        assert!(!found.may_miss_messages);
        found
    };
    assert_eq!(rule(place(0, 0), place(0, 2)).rule, Rule::SameStream);
    let gap = rule(place(0, 0), place(2, 1));
    assert_eq!(
        (gap.rule, gap.gap_ns, gap.bound_ns),
        (Rule::ClockGap, 99_900, Some(0))
    );
    let path = rule(place(0, 0), place(1, 2));
    let Rule::MessagePath(hops) = path.rule else {
        panic!("{path:?}");
    };
    assert_eq!((hops.len(), path.bound_ns), (1, None));
    let back = rule(place(0, 1), place(0, 3));
    assert_eq!(back.rule, Rule::SameStream);
    // What rank 1 did after its receive is not related to what rank 0 did meanwhile.
    assert_eq!(rule(place(0, 2), place(1, 2)).rule, Rule::Concurrent);
    assert_eq!(rule(place(0, 0), place(1, 0)).rule, Rule::Concurrent);
    // By time: the first event is the trace's first.
    let by_time = rule(EventName::Time(0), place(0, 3));
    assert_eq!(by_time.first.number, 0);
    assert_eq!(
        explain(&opened, [&place(0, 0), &place(7, 0)]).expect("a trace"),
        Err(1)
    );
}

#[test]
fn an_order_against_the_messages_is_told() {
    let (a, b) = (
        Host::new(1),
        Host {
            wall_error_ns: -50_000,
            ..Host::new(2)
        },
    );
    let scratch = tempfile::tempdir().expect("a directory");
    for (rank, host, op) in [(0, a, Op::Send(1, 0)), (1, b, Op::Receive(0, 0))] {
        let mut program = Program::new(rank, 2, host, 1_000_000);
        program.ops = vec![(100_000 + 10_000 * i64::from(rank), op)];
        program.write(scratch.path(), &[]);
    }
    merge_with(scratch.path(), 2, |_| {});
    let opened = Reader::open(scratch.path().join("out").join("run.annals")).expect("a trace");
    let found = explain(&opened, [&place(0, 0), &place(1, 0)])
        .expect("a trace")
        .expect("events");
    assert_eq!(
        (found.rule, found.contradiction.len()),
        (Rule::Concurrent, 1)
    );
    assert_eq!(found.contradiction[0].from.get(), 0);
}
