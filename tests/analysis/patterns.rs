//! Each pattern of waiting in a trace of a few events, with its value to the nanosecond.

use annals_analysis::{
    CommunicationTimes, Delay, WaitObserver, WaitPattern, WaitState, wait_states,
};
use annals_format::CollectiveOperation as Op;
use annals_merger::{Query, Reader};

use annals_test_support::mpi_script::{Deed, Script};

/// Pattern, rank that waited, rank for which it waited, from when, how long.
pub(crate) type Found = (WaitPattern, u32, Option<u32>, i64, i64);

/// Rank that waited, rank whose work caused it, cost, whether directly, the first call path with extra work.
pub(crate) type HeardDelay = (u32, u32, i64, bool, Option<(u32, i64)>);

/// What an analysis hands out. A location's number is its rank.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) waits: Vec<WaitState>,
    /// Rank that waited, nanoseconds.
    pub(crate) wrong_order: Vec<(u32, i64)>,
    pub(crate) avoidable: Vec<(u32, i64)>,
    pub(crate) delays: Vec<HeardDelay>,
}

impl WaitObserver for Heard {
    fn wait(&mut self, wait: &WaitState) {
        self.waits.push(*wait);
    }

    fn wrong_order(&mut self, wait: &WaitState, more_ns: i64) {
        self.wrong_order.push((wait.location, more_ns));
    }

    fn avoidable(&mut self, wait: &WaitState, cost_ns: i64) {
        self.avoidable.push((wait.location, cost_ns));
    }

    fn delay(&mut self, delay: &Delay<'_>) {
        self.delays.push((
            delay.wait.location,
            delay.location,
            delay.cost_ns,
            delay.is_direct,
            delay.extra.first().copied(),
        ));
    }
}

/// Analyses a script, and returns what was found, and the nanoseconds that each rank would save on an ideal network.
pub(crate) fn analyse(script: &Script) -> (Heard, Vec<i64>) {
    let (heard, times) = analyse_rest(script, &[]);
    (
        heard,
        times.locations.iter().map(|times| times.saved_ns).collect(),
    )
}

/// Analyses what is left of a script after losses: rank, first and end.
pub(crate) fn analyse_rest(
    script: &Script,
    lost: &[(usize, usize, usize)],
) -> (Heard, CommunicationTimes) {
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), lost);
    let reader = Reader::open(directory.path()).expect("recordings");
    let found =
        wait_states(&reader, &Query::new(), &[], || Ok(Heard::default())).expect("recordings");
    found.expect("whole definitions")
}

pub(crate) fn found(heard: &Heard) -> Vec<Found> {
    // Times of scripts begin at the trace's start.
    let waits = heard.waits.iter();
    let mut waits: Vec<Found> = waits
        .map(|wait| {
            (
                wait.pattern,
                wait.location,
                wait.cause,
                wait.from_ns,
                wait.wait_ns,
            )
        })
        .collect();
    waits.sort();
    waits
}

/// A call with one event.
fn call(region: &'static str, from_ns: i64, deed: Deed, to_ns: i64) -> [(i64, Deed); 3] {
    [
        (from_ns, Deed::Enter(region)),
        (to_ns - 1, deed),
        (to_ns, Deed::Leave(region)),
    ]
}

/// A call of a collective operation.
fn collective(
    region: &'static str,
    operation: Op,
    root: u32,
    from_ns: i64,
    to_ns: i64,
) -> [(i64, Deed); 4] {
    [
        (from_ns, Deed::Enter(region)),
        (from_ns + 1, Deed::Begin(operation, root)),
        (to_ns - 1, Deed::End(operation, root)),
        (to_ns, Deed::Leave(region)),
    ]
}

#[test]
fn a_receive_waits_for_its_send() {
    let mut script = Script::new(2);
    script.rank(0, &[(0, Deed::Enter("main"))]);
    script.rank(0, &call("MPI_Send", 700, Deed::Send(1, 5), 720));
    script.rank(1, &[(0, Deed::Enter("main"))]);
    script.rank(1, &call("MPI_Recv", 100, Deed::Receive(0, 5), 800));
    script.rank(0, &[(1000, Deed::Leave("main"))]);
    script.rank(1, &[(1000, Deed::Leave("main"))]);
    let (heard, saved) = analyse(&script);
    assert_eq!(
        found(&heard),
        [(WaitPattern::LateSender, 1, Some(0), 100, 600)]
    );
    // Rank 0 worked 700 in `main`, rank 1 100 of them.
    let path = heard.waits[0].path;
    assert_eq!(heard.delays.len(), 1);
    let (waiting, cause, cost_ns, is_direct, extra) = heard.delays[0];
    assert_eq!((waiting, cause, cost_ns, is_direct), (1, 0, 600, true));
    let (extra_path, extra_ns) = extra.expect("extra work");
    assert_eq!(extra_ns, 600);
    assert_ne!(extra_path, path);
    // On an ideal network the send takes no time, and the receive ends at 700.
    assert_eq!(saved, [20, 100]);
}

#[test]
fn ranks_wait_in_a_fence_for_the_last() {
    let mut script = Script::new(3);
    // The ranks make the same fences of a window; the next one says that all have left the first.
    for (rank, first, second) in [
        (0, (100, 720), (800, 1215)),
        (1, (700, 710), (1200, 1210)),
        (2, (400, 730), (750, 1220)),
    ] {
        for (number, (from_ns, to_ns)) in [(0, first), (1, second)] {
            let deeds = [
                (from_ns, Deed::Enter("MPI_Win_fence")),
                (from_ns + 1, Deed::Fence(number)),
                (to_ns, Deed::Leave("MPI_Win_fence")),
            ];
            script.rank(rank, &deeds);
        }
    }
    let (heard, saved) = analyse(&script);
    let pattern = WaitPattern::Fence;
    let expected = [
        (pattern, 0, Some(1), 100, 600),
        (pattern, 0, Some(1), 800, 400),
        (pattern, 2, Some(1), 400, 300),
        (pattern, 2, Some(1), 750, 450),
    ];
    assert_eq!(found(&heard), expected);
    // On an ideal network all leave the first at 700, and the second when rank 1 enters it, 10 earlier than it did.
    assert_eq!(saved, [25, 20, 30]);
}

#[test]
fn a_send_waits_for_its_receive() {
    let mut script = Script::new(2);
    script.rank(0, &call("MPI_Send", 100, Deed::Send(1, 5), 660));
    script.rank(0, &call("MPI_Isend", 700, Deed::Send(1, 6), 1900));
    script.rank(1, &call("MPI_Recv", 600, Deed::Receive(0, 5), 700));
    script.rank(1, &call("MPI_Recv", 1800, Deed::Receive(0, 6), 2000));
    // A send that may end before its receive waits for none.
    let (heard, _) = analyse(&script);
    assert_eq!(
        found(&heard),
        [(WaitPattern::LateReceiver, 0, Some(1), 100, 500)]
    );
}

#[test]
fn of_a_call_with_several_receives_the_last_sender_counts() {
    let mut script = Script::new(3);
    script.rank(0, &[(100, Deed::Enter("MPI_Waitall"))]);
    script.rank(0, &[(410, Deed::Receive(1, 5)), (720, Deed::Receive(2, 5))]);
    script.rank(0, &[(730, Deed::Leave("MPI_Waitall"))]);
    script.rank(1, &call("MPI_Send", 400, Deed::Send(0, 5), 405));
    script.rank(2, &call("MPI_Send", 700, Deed::Send(0, 5), 705));
    let (heard, _) = analyse(&script);
    assert_eq!(
        found(&heard),
        [(WaitPattern::LateSender, 0, Some(2), 100, 600)]
    );
}

#[test]
fn a_message_that_was_there_is_received_later() {
    let mut script = Script::new(3);
    script.rank(0, &call("MPI_Recv", 100, Deed::Receive(1, 5), 720));
    script.rank(0, &call("MPI_Recv", 740, Deed::Receive(2, 5), 750));
    script.rank(0, &call("MPI_Send", 850, Deed::Send(1, 9), 860));
    script.rank(1, &call("MPI_Send", 700, Deed::Send(0, 5), 705));
    script.rank(1, &call("MPI_Recv", 870, Deed::Receive(0, 9), 880));
    script.rank(2, &call("MPI_Send", 300, Deed::Send(0, 5), 305));
    let (heard, _) = analyse(&script);
    assert_eq!(
        found(&heard),
        [(WaitPattern::LateSender, 0, Some(1), 100, 600)]
    );
    // From 300 on, the other message was there; after it, 100 ns of work followed.
    assert_eq!(heard.wrong_order, [(0, 400)]);
    assert_eq!(heard.avoidable, [(0, 100)]);
}

#[test]
fn all_wait_for_the_last_at_a_barrier() {
    let mut script = Script::new(3);
    script.rank(0, &collective("MPI_Barrier", Op::Barrier, 0, 100, 720));
    script.rank(1, &collective("MPI_Barrier", Op::Barrier, 0, 700, 710));
    script.rank(2, &collective("MPI_Barrier", Op::Barrier, 0, 400, 715));
    let (heard, saved) = analyse(&script);
    let expected = [
        (WaitPattern::Barrier, 0, Some(1), 100, 600),
        (WaitPattern::Barrier, 2, Some(1), 400, 300),
        (WaitPattern::BarrierCompletion, 0, None, 710, 10),
        (WaitPattern::BarrierCompletion, 2, None, 710, 5),
    ];
    assert_eq!(found(&heard), expected);
    // All end at 700.
    assert_eq!(saved, [20, 10, 15]);
}

#[test]
fn operations_wait_by_their_family() {
    let mut script = Script::new(3);
    for (rank, from_ns, to_ns) in [(0, 100, 720), (1, 700, 710), (2, 400, 715)] {
        script.rank(
            rank,
            &collective("MPI_Allreduce", Op::Allreduce, 0, from_ns, to_ns),
        );
    }
    for (rank, from_ns, to_ns) in [(0, 1400, 1405), (1, 1100, 1420), (2, 1500, 1510)] {
        script.rank(
            rank,
            &collective("MPI_Bcast", Op::Broadcast, 0, from_ns, to_ns),
        );
    }
    for (rank, from_ns, to_ns) in [(0, 2100, 2600), (1, 2400, 2405), (2, 2300, 2305)] {
        script.rank(
            rank,
            &collective("MPI_Reduce", Op::Reduce, 0, from_ns, to_ns),
        );
    }
    for (rank, from_ns, to_ns) in [(0, 3300, 3310), (1, 3100, 3320), (2, 3200, 3330)] {
        script.rank(rank, &collective("MPI_Scan", Op::Scan, 0, from_ns, to_ns));
    }
    let (heard, _) = analyse(&script);
    let expected = [
        (WaitPattern::AllToAll, 0, Some(1), 100, 600),
        (WaitPattern::AllToAll, 2, Some(1), 400, 300),
        (WaitPattern::AllToAllCompletion, 0, None, 710, 10),
        (WaitPattern::AllToAllCompletion, 2, None, 710, 5),
        (WaitPattern::LateBroadcast, 1, Some(0), 1100, 300),
        (WaitPattern::EarlyReduce, 0, Some(2), 2100, 200),
        (WaitPattern::EarlyScan, 1, Some(0), 3100, 200),
        (WaitPattern::EarlyScan, 2, Some(0), 3200, 100),
    ];
    assert_eq!(found(&heard), expected);
}

/// Rank 2 never talks to rank 0, whose extra work makes rank 1 wait, and so rank 2.
#[test]
fn costs_go_back_to_the_rank_whose_work_caused_them() {
    let mut script = Script::new(3);
    let all = |script: &mut Script, from_ns: i64| {
        for rank in 0..3 {
            script.rank(
                rank,
                &collective("MPI_Barrier", Op::Barrier, 0, from_ns, from_ns + 10),
            );
        }
    };
    all(&mut script, 0);
    script.rank(
        0,
        &[
            (20, Deed::Enter("assemble")),
            (520, Deed::Leave("assemble")),
        ],
    );
    script.rank(0, &call("MPI_Send", 520, Deed::Send(1, 5), 530));
    script.rank(
        1,
        &[(20, Deed::Enter("solve")), (120, Deed::Leave("solve"))],
    );
    script.rank(1, &call("MPI_Recv", 120, Deed::Receive(0, 5), 530));
    script.rank(1, &call("MPI_Send", 535, Deed::Send(2, 5), 540));
    script.rank(
        2,
        &[(20, Deed::Enter("solve")), (120, Deed::Leave("solve"))],
    );
    script.rank(2, &call("MPI_Recv", 120, Deed::Receive(1, 5), 545));
    let (heard, _) = analyse(&script);
    let expected = [
        (WaitPattern::LateSender, 1, Some(0), 120, 400),
        (WaitPattern::LateSender, 2, Some(1), 120, 415),
    ];
    assert_eq!(found(&heard), expected);
    let delays: Vec<(u32, u32, i64, bool)> = heard
        .delays
        .iter()
        .map(|delay| (delay.0, delay.1, delay.2, delay.3))
        .collect();
    // Of the wait of rank 2, 15 are what rank 1 did after its own wait.
    let expected = [(1, 0, 400, true), (2, 1, 15, true), (2, 0, 400, false)];
    assert_eq!(delays, expected);
    let (_, extra_ns) = heard.delays[0].4.expect("extra work");
    assert_eq!(extra_ns, 400);
}

#[test]
fn calls_without_messages_need_no_time_on_an_ideal_network() {
    let mut script = Script::new(2);
    script.rank(
        0,
        &[(0, Deed::Enter("MPI_Init")), (50, Deed::Leave("MPI_Init"))],
    );
    script.rank(
        0,
        &[
            (60, Deed::Enter("MPI_Comm_rank")),
            (65, Deed::Leave("MPI_Comm_rank")),
        ],
    );
    script.rank(0, &call("MPI_Send", 100, Deed::Send(1, 5), 110));
    script.rank(1, &call("MPI_Recv", 100, Deed::Receive(0, 5), 130));
    let (_, saved) = analyse(&script);
    // The send is entered at 45 on an ideal network; the receive does not wait for it.
    assert_eq!(saved, [65, 30]);
}
