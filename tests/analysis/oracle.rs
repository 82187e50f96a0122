//! Random programs, analysed by the formulas as they are written: everything in memory, each call compared with each.

use std::collections::BTreeMap;

use annals_analysis::WaitPattern;
use annals_format::CollectiveOperation as Op;
use proptest::prelude::*;

use crate::patterns::analyse;
use annals_test_support::mpi_script::{Deed, Script, moves};

/// A step of a random program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A rank works, so long.
    Work(usize, i64),
    /// A rank sends to another with a tag, and does not wait.
    Send(usize, usize, i64),
    /// A rank receives one of the messages that are on their way to it, by its number among them.
    Receive(usize, usize),
    /// A rank sends to another, and ends with it.
    Together(usize, usize),
    Collective(usize, usize),
}

const OPERATIONS: [(&str, Op); 5] = [
    ("MPI_Barrier", Op::Barrier),
    ("MPI_Allreduce", Op::Allreduce),
    ("MPI_Bcast", Op::Broadcast),
    ("MPI_Reduce", Op::Reduce),
    ("MPI_Scan", Op::Scan),
];

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8_usize, 1..500_i64).prop_map(|(rank, ns)| Step::Work(rank, ns)),
        3 => (0..8_usize, 0..8_usize, 0..2_i64).prop_map(|(from, to, tag)| Step::Send(from, to, tag)),
        4 => (0..8_usize, 0..8_usize).prop_map(|(rank, which)| Step::Receive(rank, which)),
        1 => (0..8_usize, 0..8_usize).prop_map(|(from, to)| Step::Together(from, to)),
        1 => (0..OPERATIONS.len(), 0..8_usize).prop_map(|(op, root)| Step::Collective(op, root)),
    ]
}

/// Runs the steps, each rank by its own clock.
pub(crate) struct Simulation {
    script: Script,
    clocks: Vec<i64>,
    /// Sender, receiver, tag, time of the enter of the send.
    on_their_way: Vec<(usize, usize, i64, i64)>,
}

impl Simulation {
    pub(crate) fn run(ranks: usize, steps: &[Step]) -> Script {
        let mut simulation = Self {
            script: Script::new(ranks),
            clocks: (0..ranks as i64).map(|rank| 10 + rank).collect(),
            on_their_way: Vec::new(),
        };
        for rank in 0..ranks {
            simulation
                .script
                .rank(rank, &[(rank as i64, Deed::Enter("main"))]);
        }
        steps.iter().for_each(|step| simulation.step(*step, ranks));
        // What was sent is received.
        for rank in 0..ranks {
            while simulation.receive(rank, 0) {}
        }
        for rank in 0..ranks {
            let end_ns = simulation.clocks[rank];
            simulation
                .script
                .rank(rank, &[(end_ns, Deed::Leave("main"))]);
        }
        simulation.script
    }

    fn step(&mut self, step: Step, ranks: usize) {
        match step {
            Step::Work(rank, ns) => {
                let rank = rank % ranks;
                let from_ns = self.clocks[rank];
                let region = if ns % 2 == 0 { "solve" } else { "assemble" };
                let deeds = [
                    (from_ns, Deed::Enter(region)),
                    (from_ns + ns, Deed::Leave(region)),
                ];
                self.script.rank(rank, &deeds);
                self.clocks[rank] = from_ns + ns + 1;
            }
            Step::Send(from, to, tag) => {
                let (from, to) = (from % ranks, to % ranks);
                if from != to {
                    self.send(from, to, tag);
                }
            }
            Step::Receive(rank, which) => {
                self.receive(rank % ranks, which);
            }
            Step::Together(from, to) => {
                let (from, to) = (from % ranks, to % ranks);
                if from != to {
                    self.together(from, to);
                }
            }
            Step::Collective(number, root) => self.collective(number, root % ranks),
        }
    }

    fn send(&mut self, from: usize, to: usize, tag: i64) {
        let at_ns = self.clocks[from];
        let deeds = [
            (at_ns, Deed::Enter("MPI_Isend")),
            (at_ns + 1, Deed::Send(to as u32, tag)),
            (at_ns + 3, Deed::Leave("MPI_Isend")),
        ];
        self.script.rank(from, &deeds);
        self.clocks[from] = at_ns + 5;
        self.on_their_way.push((from, to, tag, at_ns));
    }

    /// Receives the first message of one of the channels to a rank. Returns whether there was one.
    fn receive(&mut self, rank: usize, which: usize) -> bool {
        let mut first: Vec<usize> = Vec::new();
        for (number, (from, to, tag, _)) in self.on_their_way.iter().enumerate() {
            let is_first = first.iter().all(|known| {
                let known = &self.on_their_way[*known];
                (known.0, known.2) != (*from, *tag)
            });
            if *to == rank && is_first {
                first.push(number);
            }
        }
        if first.is_empty() {
            return false;
        }
        let (from, _, tag, sent_ns) = self.on_their_way.remove(first[which % first.len()]);
        let at_ns = self.clocks[rank];
        let there_ns = (at_ns + 1).max(sent_ns + 7);
        let deeds = [
            (at_ns, Deed::Enter("MPI_Recv")),
            (there_ns, Deed::Receive(from as u32, tag)),
            (there_ns + 2, Deed::Leave("MPI_Recv")),
        ];
        self.script.rank(rank, &deeds);
        self.clocks[rank] = there_ns + 4;
        true
    }

    fn together(&mut self, from: usize, to: usize) {
        let (send_ns, receive_ns) = (self.clocks[from], self.clocks[to]);
        let end_ns = send_ns.max(receive_ns) + 9;
        let sent = [
            (send_ns, Deed::Enter("MPI_Ssend")),
            (send_ns + 1, Deed::Send(to as u32, 9)),
            (end_ns + 1, Deed::Leave("MPI_Ssend")),
        ];
        let received = [
            (receive_ns, Deed::Enter("MPI_Recv")),
            (end_ns, Deed::Receive(from as u32, 9)),
            (end_ns + 2, Deed::Leave("MPI_Recv")),
        ];
        self.script.rank(from, &sent);
        self.script.rank(to, &received);
        (self.clocks[from], self.clocks[to]) = (end_ns + 3, end_ns + 4);
    }

    fn collective(&mut self, number: usize, root: usize) {
        let (region, operation) = OPERATIONS[number];
        let clocks = self.clocks.clone();
        for (rank, entered_ns) in clocks.iter().enumerate() {
            let waits_for = |other: usize| match operation {
                Op::Broadcast => other == root,
                Op::Reduce => rank == root,
                Op::Scan => other <= rank,
                _ => true,
            };
            let others = (0..clocks.len()).filter(|other| waits_for(*other));
            let last_ns = others.map(|other| clocks[other]).max().unwrap_or(0);
            let end_ns = last_ns.max(*entered_ns) + 4 + rank as i64 % 3;
            let deeds = [
                (*entered_ns, Deed::Enter(region)),
                (entered_ns + 1, Deed::Begin(operation, root as u32)),
                (end_ns, Deed::End(operation, root as u32)),
                (end_ns + 1, Deed::Leave(region)),
            ];
            self.script.rank(rank, &deeds);
            self.clocks[rank] = end_ns + 3;
        }
    }
}

/// A call of MPI, by the oracle.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) rank: usize,
    pub(crate) region: &'static str,
    pub(crate) entered_ns: i64,
    pub(crate) left_ns: i64,
    pub(crate) deed: Deed,
}

/// Returns the calls of all ranks, those of a rank in order.
pub(crate) fn calls_of(script: &Script) -> Vec<Call> {
    let mut calls = Vec::new();
    for (rank, deeds) in script.ranks.iter().enumerate() {
        let mut open: Option<(&'static str, i64, Option<Deed>)> = None;
        for (time_ns, deed) in deeds {
            match deed {
                Deed::Enter(region) if region.starts_with("MPI_") => {
                    open = Some((region, *time_ns, None));
                }
                Deed::Leave(region) if region.starts_with("MPI_") => {
                    let (region, entered_ns, deed) = open.take().expect("an enter");
                    calls.push(Call {
                        rank,
                        region,
                        entered_ns,
                        left_ns: *time_ns,
                        deed: deed.expect("an event"),
                    });
                }
                Deed::Enter(_) | Deed::Leave(_) | Deed::End(..) => {}
                deed => {
                    if let Some(open) = &mut open {
                        open.2 = Some(*deed);
                    }
                }
            }
        }
    }
    calls
}

/// Returns pairs of calls: a send, and its receive.
pub(crate) fn messages_of(calls: &[Call]) -> Vec<(usize, usize)> {
    let mut sends: BTreeMap<(usize, usize, i64), Vec<usize>> = BTreeMap::new();
    let mut receives: BTreeMap<(usize, usize, i64), Vec<usize>> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        match call.deed {
            Deed::Send(to, tag) => sends
                .entry((call.rank, to as usize, tag))
                .or_default()
                .push(number),
            Deed::Receive(from, tag) => {
                receives
                    .entry((from as usize, call.rank, tag))
                    .or_default()
                    .push(number);
            }
            _ => {}
        }
    }
    let pairs = sends.into_iter().flat_map(|(channel, sends)| {
        let received = receives.get(&channel).cloned().unwrap_or_default();
        sends.into_iter().zip(received)
    });
    pairs.collect()
}

/// Returns the calls of each collective operation.
pub(crate) fn operations_of(calls: &[Call], ranks: usize) -> Vec<Vec<usize>> {
    let begun = |rank: usize| -> Vec<usize> {
        let numbered = calls.iter().enumerate();
        let own =
            numbered.filter(|(_, call)| call.rank == rank && matches!(call.deed, Deed::Begin(..)));
        own.map(|(number, _)| number).collect()
    };
    let of_ranks: Vec<Vec<usize>> = (0..ranks).map(begun).collect();
    (0..of_ranks[0].len())
        .map(|k| of_ranks.iter().map(|of_rank| of_rank[k]).collect())
        .collect()
}

/// Sum and count of waits by pattern, rank and region.
type Waits = BTreeMap<(WaitPattern, u32, String), (u64, i64)>;

fn add(waits: &mut Waits, pattern: WaitPattern, call: &Call, wait_ns: i64) {
    if wait_ns > 0 {
        let key = (pattern, call.rank as u32, call.region.to_owned());
        let sum = waits.entry(key).or_default();
        *sum = (sum.0 + 1, sum.1 + wait_ns);
    }
}

/// Returns the waits in a script, and by rank the time in which messages were passed over.
fn naive(script: &Script) -> (Waits, BTreeMap<u32, i64>) {
    let ranks = script.ranks.len();
    let calls = calls_of(script);
    let messages = messages_of(&calls);
    let mut waits = Waits::new();
    let mut wrong = BTreeMap::new();
    for (send, receive) in &messages {
        let (send, receive) = (&calls[*send], &calls[*receive]);
        let until_ns = send.entered_ns.min(receive.left_ns);
        add(
            &mut waits,
            WaitPattern::LateSender,
            receive,
            until_ns - receive.entered_ns,
        );
        if until_ns > receive.entered_ns {
            let later = messages.iter().filter(|(_, other)| {
                let other = &calls[*other];
                other.rank == receive.rank && other.entered_ns >= receive.left_ns
            });
            let earlier = later.map(|(other, _)| calls[*other].entered_ns);
            let first_ns = earlier.filter(|other_ns| *other_ns < send.entered_ns).min();
            if let Some(first_ns) = first_ns {
                let part_ns = until_ns - receive.entered_ns.max(first_ns);
                *wrong.entry(receive.rank as u32).or_default() += part_ns.max(0);
            }
        }
        if send.region == "MPI_Ssend" && send.left_ns >= receive.entered_ns {
            add(
                &mut waits,
                WaitPattern::LateReceiver,
                send,
                receive.entered_ns - send.entered_ns,
            );
        }
    }
    wrong.retain(|_, part_ns| *part_ns != 0);
    for operation in operations_of(&calls, ranks) {
        let members: Vec<&Call> = operation.iter().map(|number| &calls[*number]).collect();
        let Deed::Begin(kind, root) = members[0].deed else {
            unreachable!("a begin");
        };
        let enters = || members.iter().map(|call| call.entered_ns);
        let last_ns = enters().max().unwrap_or(0);
        let first_left_ns = members.iter().map(|call| call.left_ns).min().unwrap_or(0);
        for (rank, call) in members.iter().enumerate() {
            let is_root = rank == root as usize;
            let (pattern, until_ns) = match kind {
                Op::Barrier => (WaitPattern::Barrier, Some(last_ns)),
                Op::Allreduce => (WaitPattern::AllToAll, Some(last_ns)),
                Op::Broadcast => {
                    let root_ns = members[root as usize].entered_ns;
                    (WaitPattern::LateBroadcast, (!is_root).then_some(root_ns))
                }
                Op::Reduce => {
                    let others = members.iter().enumerate();
                    let others = others.filter(|(other, _)| *other != root as usize);
                    let first_ns = others.map(|(_, call)| call.entered_ns).min();
                    (WaitPattern::EarlyReduce, first_ns.filter(|_| is_root))
                }
                _ => (WaitPattern::EarlyScan, enters().take(rank + 1).max()),
            };
            if let Some(until_ns) = until_ns {
                add(
                    &mut waits,
                    pattern,
                    call,
                    until_ns.min(call.left_ns) - call.entered_ns,
                );
            }
            let completion = match kind {
                Op::Barrier => WaitPattern::BarrierCompletion,
                Op::Allreduce => WaitPattern::AllToAllCompletion,
                _ => continue,
            };
            add(
                &mut waits,
                completion,
                call,
                call.left_ns - first_left_ns.max(last_ns),
            );
        }
    }
    (waits, wrong)
}

/// Returns by how much each rank would be earlier on a network that needs no time.
fn ideal(script: &Script) -> Vec<i64> {
    let ranks = script.ranks.len();
    let calls = calls_of(script);
    let messages = messages_of(&calls);
    let operations = operations_of(&calls, ranks);
    // Until nothing changes: when each call is entered and left.
    let mut times: Vec<(i64, i64)> = calls
        .iter()
        .map(|call| (call.entered_ns, call.entered_ns))
        .collect();
    loop {
        let before = times.clone();
        for (number, call) in calls.iter().enumerate() {
            let previous = number
                .checked_sub(1)
                .filter(|previous| calls[*previous].rank == call.rank);
            let entered_ns = match previous {
                Some(previous) => times[previous].1 + call.entered_ns - calls[previous].left_ns,
                None => call.entered_ns,
            };
            let sends = messages.iter().filter(|(_, receive)| *receive == number);
            let mut left_ns = sends
                .map(|(send, _)| times[*send].0)
                .max()
                .unwrap_or(i64::MIN);
            if call.region == "MPI_Ssend" {
                let receives = messages.iter().filter(|(send, _)| *send == number);
                let begun = receives.map(|(_, receive)| times[*receive].0);
                left_ns = left_ns.max(begun.max().unwrap_or(i64::MIN));
            }
            for operation in operations
                .iter()
                .filter(|operation| operation.contains(&number))
            {
                let Deed::Begin(kind, root) = call.deed else {
                    continue;
                };
                let (_, receives) = moves(kind, root as usize == call.rank);
                for other in operation.iter().filter(|_| receives) {
                    let other_rank = calls[*other].rank;
                    let (sends, _) = moves(kind, root as usize == other_rank);
                    let is_before = kind != Op::Scan || other_rank <= call.rank;
                    if sends && is_before {
                        left_ns = left_ns.max(times[*other].0);
                    }
                }
            }
            let longest_ns = entered_ns + call.left_ns - call.entered_ns;
            times[number] = (entered_ns, left_ns.clamp(entered_ns, longest_ns));
        }
        if times == before {
            break;
        }
    }
    let last = |rank: usize| calls.iter().rposition(|call| call.rank == rank);
    (0..ranks)
        .map(|rank| last(rank).map_or(0, |number| calls[number].left_ns - times[number].1))
        .collect()
}

pub(crate) fn programs() -> impl Strategy<Value = (usize, Vec<Step>)> {
    (2..5_usize, prop::collection::vec(step(), 0..60))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 10_000 } else { 500 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_wait_as_the_formulas_say((ranks, steps) in programs()) {
        let script = Simulation::run(ranks, &steps);
        let (heard, saved) = analyse(&script);
        let (expected, expected_wrong) = naive(&script);
        let mut waits = Waits::new();
        for wait in &heard.waits {
            prop_assert_eq!(wait.uncertain_ns, 0);
            let region = wait.region.expect("a region");
            let name = annals_test_support::mpi_script::REGIONS[region.index()].to_owned();
            let sum = waits.entry((wait.pattern, wait.location, name)).or_default();
            *sum = (sum.0 + 1, sum.1 + wait.wait_ns);
        }
        prop_assert_eq!(&waits, &expected);
        let mut wrong: BTreeMap<u32, i64> = BTreeMap::new();
        for (rank, more_ns) in &heard.wrong_order {
            *wrong.entry(*rank).or_default() += more_ns;
        }
        prop_assert_eq!(&wrong, &expected_wrong);
        prop_assert_eq!(&saved, &ideal(&script));
        // Each nanosecond of a wait with a cause has one cause.
        let mut costs = vec![0; ranks];
        for (waiting, _, cost_ns, ..) in &heard.delays {
            costs[*waiting as usize] += cost_ns;
        }
        for (rank, cost_ns) in costs.into_iter().enumerate() {
            let own = heard.waits.iter().filter(|wait| wait.location as usize == rank);
            let caused = own.filter(|wait| wait.cause.is_some());
            let waited_ns: i64 = caused.map(|wait| wait.wait_ns).sum();
            prop_assert_eq!(cost_ns, waited_ns);
        }
    }
}
