//! The programs of tests/mpi/causes.c, simulated with exact clocks: `trace-cli why` names the cause that was planted, and what
//! it costs, exactly.

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;

use annals_format::CollectiveOperation as Op;
use annals_test_support::mpi_script::{Deed, Script};
use serde_json::Value;

const RANKS: usize = 4;
const STEPS: u64 = 20;
/// The extra work of one rank, nanoseconds.
const LATE_NS: i64 = 20_000_000;
/// The work of all ranks, nanoseconds.
const WORK_NS: i64 = 5_000_000;
/// Time of a message, and of the end of a call, nanoseconds.
const TRANSFER_NS: i64 = 1_000;

/// Ranks with a clock each.
struct Simulation {
    script: Script,
    clocks: [i64; RANKS],
    /// By sender and receiver: when messages that are on their way arrive.
    arrivals: BTreeMap<(usize, usize), VecDeque<i64>>,
}

impl Simulation {
    fn new() -> Self {
        let mut simulation = Self {
            script: Script::new(RANKS),
            clocks: [0; RANKS],
            arrivals: BTreeMap::new(),
        };
        for rank in 0..RANKS {
            simulation.script.rank(rank, &[(0, Deed::Enter("main"))]);
        }
        simulation
    }

    fn work(&mut self, rank: usize, region: &'static str, work_ns: i64) {
        let from_ns = self.clocks[rank];
        let to_ns = from_ns + work_ns;
        let deeds = [(from_ns, Deed::Enter(region)), (to_ns, Deed::Leave(region))];
        self.script.rank(rank, &deeds);
        self.clocks[rank] = to_ns;
    }

    fn assemble(&mut self, rank: usize) {
        self.work(rank, "assemble", LATE_NS);
    }

    fn solve(&mut self) {
        (0..RANKS).for_each(|rank| self.work(rank, "solve", WORK_NS));
    }

    fn send(&mut self, from: usize, to: usize) {
        let at_ns = self.clocks[from];
        let deeds = [
            (at_ns, Deed::Enter("MPI_Send")),
            (at_ns, Deed::Send(to as u32, 7)),
            (at_ns + TRANSFER_NS, Deed::Leave("MPI_Send")),
        ];
        self.script.rank(from, &deeds);
        self.clocks[from] = at_ns + TRANSFER_NS;
        let arrivals = self.arrivals.entry((from, to)).or_default();
        arrivals.push_back(at_ns + TRANSFER_NS);
    }

    fn receive(&mut self, to: usize, from: usize) {
        let at_ns = self.clocks[to];
        let arrivals = self.arrivals.entry((from, to)).or_default();
        let there_ns = arrivals.pop_front().expect("a message").max(at_ns);
        let deeds = [
            (at_ns, Deed::Enter("MPI_Recv")),
            (there_ns, Deed::Receive(from as u32, 7)),
            (there_ns + TRANSFER_NS, Deed::Leave("MPI_Recv")),
        ];
        self.script.rank(to, &deeds);
        self.clocks[to] = there_ns + TRANSFER_NS;
    }

    /// All enter; a rank leaves after those for which it waits.
    fn together(&mut self, region: &'static str, operation: Op, root: Option<usize>) {
        let entered = self.clocks;
        let last_ns = entered.iter().copied().max().unwrap_or(0);
        for (rank, at_ns) in entered.iter().enumerate() {
            let until_ns = root.map_or(last_ns, |root| entered[root]);
            let end_ns = until_ns.max(*at_ns) + TRANSFER_NS;
            let number = root.unwrap_or(0) as u32;
            let deeds = [
                (*at_ns, Deed::Enter(region)),
                (*at_ns, Deed::Begin(operation, number)),
                (end_ns, Deed::End(operation, number)),
                (end_ns, Deed::Leave(region)),
            ];
            self.script.rank(rank, &deeds);
            self.clocks[rank] = end_ns;
        }
    }

    fn barrier(&mut self) {
        self.together("MPI_Barrier", Op::Barrier, None);
    }

    fn late_sender(&mut self) {
        self.solve();
        self.assemble(2);
        self.send(2, 1);
        self.receive(1, 2);
        // Each step begins with all of them.
        self.level();
    }

    fn late_broadcast(&mut self) {
        self.solve();
        self.assemble(3);
        self.together("MPI_Bcast", Op::Broadcast, Some(3));
    }

    fn imbalance(&mut self) {
        self.solve();
        self.assemble(1);
        self.barrier();
    }

    fn pipeline(&mut self) {
        for rank in 0..RANKS {
            if rank > 0 {
                self.receive(rank, rank - 1);
            }
            self.assemble(rank);
            if rank + 1 < RANKS {
                self.send(rank, rank + 1);
            }
        }
        self.barrier();
    }

    fn wrong_order(&mut self) {
        self.send(2, 0);
        (1..RANKS).for_each(|rank| self.assemble(rank));
        self.send(1, 0);
        self.receive(0, 1);
        self.receive(0, 2);
        self.assemble(0);
        self.barrier();
    }

    fn overload(&mut self) {
        self.solve();
        self.assemble(0);
        self.send(0, 1);
        self.receive(1, 0);
        self.send(1, 3);
        self.receive(3, 1);
        self.send(3, 1);
        self.receive(1, 3);
        self.send(1, 0);
        self.receive(0, 1);
        self.level();
    }

    /// Ranks that others do not wait for rest until all are as far.
    fn level(&mut self) {
        let last_ns = self.clocks.iter().copied().max().unwrap_or(0);
        self.clocks = [last_ns; RANKS];
    }

    fn end(mut self) -> Script {
        for rank in 0..RANKS {
            let end_ns = self.clocks[rank];
            self.script.rank(rank, &[(end_ns, Deed::Leave("main"))]);
        }
        self.script
    }
}

/// Runs a step again and again. Returns what `trace-cli why` says of it, as text and as JSON.
fn why(step: fn(&mut Simulation)) -> (String, Value) {
    let mut simulation = Simulation::new();
    (0..STEPS).for_each(|_| step(&mut simulation));
    let directory = tempfile::tempdir().expect("a directory");
    simulation.end().write(directory.path(), &[]);
    let ask = |more: &[&str]| {
        let mut why = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let output = why.arg("why").arg(directory.path()).args(more).output();
        let output = output.expect("trace-cli");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let json = serde_json::from_str(&ask(&["--json"])).expect("JSON");
    (ask(&[]), json)
}

/// Checks that the first cause is what was planted, with the cost of each step within a thousandth of what was planted.
fn check(step: fn(&mut Simulation), says: &[&str], pattern: &str, rank: u64, cost_ns: i64) {
    let (text, found) = why(step);
    let first = text.lines().next().unwrap_or_default();
    for part in says {
        assert!(
            first.contains(part),
            "`{part}` is not in the first sentence: {text}"
        );
    }
    let row = &found["causes"][0];
    assert_eq!(
        (&row["pattern"], &row["rank"]),
        (&pattern.into(), &rank.into()),
        "{text}"
    );
    assert_eq!(row["operations"], STEPS, "{row}");
    let late_ns = row["median_late_ns"].as_i64().expect("a time");
    assert!(
        (late_ns - LATE_NS).abs() <= LATE_NS / 1000,
        "{late_ns} {text}"
    );
    let found_ns = row["cost_ns"].as_i64().expect("a time");
    let planted_ns = cost_ns * STEPS as i64;
    assert!(
        (found_ns - planted_ns).abs() <= planted_ns / 1000,
        "{found_ns} {planted_ns} {text}"
    );
}

#[test]
fn a_late_sender_costs_what_was_planted() {
    let says = [
        "Rank 2 sends 20.00 ms late to MPI_Recv in 20 messages",
        "its extra time is in assemble.",
    ];
    check(Simulation::late_sender, &says, "late-sender", 2, LATE_NS);
}

#[test]
fn a_late_root_costs_what_was_planted() {
    let says = [
        "Rank 3, the root, enters MPI_Bcast 20.00 ms late in each of 20 calls",
        "its extra time is in assemble.",
    ];
    check(
        Simulation::late_broadcast,
        &says,
        "late-broadcast",
        3,
        3 * LATE_NS,
    );
}

#[test]
fn imbalance_before_a_barrier_costs_what_was_planted() {
    let says = [
        "Rank 1 enters MPI_Barrier 20.00 ms late in each of 20 calls",
        "its extra time is in assemble.",
    ];
    check(Simulation::imbalance, &says, "barrier", 1, 3 * LATE_NS);
}

#[test]
fn receives_in_the_wrong_order_cost_what_was_planted() {
    // The rank itself, and the three that wait for it at the barrier.
    let says = ["Rank 0 receives in the wrong order: MPI_Recv waits 20.00 ms"];
    check(
        Simulation::wrong_order,
        &says,
        "wrong-order",
        0,
        4 * LATE_NS,
    );
}

#[test]
fn an_overload_makes_a_rank_wait_that_it_never_talks_to() {
    // Rank 1 waits for it, and rank 3 for rank 1.
    let says = [
        "Rank 0 sends 20.00 ms late to MPI_Recv in 20 messages",
        "50.0 % of that through other ranks",
        "its extra time is in assemble.",
    ];
    check(Simulation::overload, &says, "late-sender", 0, 2 * LATE_NS);
}

#[test]
fn ranks_of_a_pipeline_cost_what_was_planted() {
    let (text, found) = why(Simulation::pipeline);
    let first = text.lines().next().unwrap_or_default();
    assert!(
        first.starts_with(
            "Ranks 0, 1 and 2 work one after another in assemble: each makes the next wait in MPI_Recv"
        ),
        "{text}"
    );
    // In each step, rank r waits in its receive for r times the work, and in the barrier for the rest: three of four.
    let causes = found["causes"].as_array().expect("causes");
    let costs = causes.iter().filter_map(|row| row["cost_ns"].as_i64());
    let planted_ns = 12 * LATE_NS * STEPS as i64;
    let found_ns: i64 = costs.sum();
    assert!(
        (found_ns - planted_ns).abs() <= planted_ns / 1000,
        "{found_ns} {planted_ns}"
    );
}
