//! Random programs of eager and rendezvous messages: a call that sends and receives waits for the later partner, and what is not
//! known is within the bounds.

use std::collections::BTreeMap;

use annals_analysis::WaitPattern;
use proptest::prelude::*;

use crate::patterns::analyse;
use annals_test_support::mpi_script::{Deed, Script, bytes_of};

/// A step of all ranks, or of some.
#[derive(Clone, Copy, Debug)]
enum Step {
    Work(usize, i64),
    /// Each sends to the one so far on, and receives from the one so far back.
    Ring(usize, i64),
    /// Each exchanges messages of a tag with both neighbours by requests, and works so long before it waits for all.
    Halo(i64, i64),
    /// Blocking.
    Pair(usize, usize, i64),
    /// A blocking send that is received only at the end.
    Early(usize, usize),
}

const TAGS: [i64; 4] = [120, 400, 5_000, 60_000];

fn step() -> impl Strategy<Value = Step> {
    let tag = || prop::sample::select(&TAGS[..]);
    prop_oneof![
        4 => (0..8_usize, 1..400_i64).prop_map(|(rank, ns)| Step::Work(rank, ns)),
        2 => (1..4_usize, tag()).prop_map(|(shift, tag)| Step::Ring(shift, tag)),
        2 => (tag(), 0..90_i64).prop_map(|(tag, ns)| Step::Halo(tag, ns)),
        3 => (0..8_usize, 0..8_usize, tag()).prop_map(|(from, to, tag)| Step::Pair(from, to, tag)),
        1 => (0..8_usize, 0..8_usize).prop_map(|(from, to)| Step::Early(from, to)),
    ]
}

/// A call that may wait: when it was left, and of each partner when it began.
#[derive(Debug)]
struct Truth {
    left_ns: i64,
    partners: Vec<(i64, usize)>,
}

struct Simulation {
    script: Script,
    clocks: Vec<i64>,
    /// Largest size of a message whose send does not wait, bytes.
    limit: i64,
    /// By rank and enter.
    calls: BTreeMap<(usize, i64), Truth>,
    early: Vec<(usize, usize)>,
    requests: u32,
}

/// How long a message takes.
const TRANSFER: i64 = 9;

impl Simulation {
    fn is_eager(&self, tag: i64) -> bool {
        bytes_of(tag) <= self.limit
    }

    /// When a send that began at a time ends, if its receive began at another one; and its partner, if it waits for it.
    fn send(&self, tag: i64, sent_ns: i64, receive: (i64, usize)) -> (i64, Option<(i64, usize)>) {
        match self.is_eager(tag) {
            true => (sent_ns + 2, None),
            false => (sent_ns.max(receive.0) + TRANSFER, Some(receive)),
        }
    }

    fn call(&mut self, rank: usize, left_ns: i64, entered_ns: i64, partners: Vec<(i64, usize)>) {
        let truth = Truth { left_ns, partners };
        self.calls.insert((rank, entered_ns), truth);
        self.clocks[rank] = left_ns + 2;
    }

    fn work(&mut self, rank: usize, ns: i64) {
        let from_ns = self.clocks[rank];
        let solve = [
            (from_ns, Deed::Enter("solve")),
            (from_ns + ns, Deed::Leave("solve")),
        ];
        self.script.rank(rank, &solve);
        self.clocks[rank] = from_ns + ns + 1;
    }

    fn ring(&mut self, shift: usize, tag: i64) {
        let ranks = self.clocks.len();
        let enters = self.clocks.clone();
        for (rank, entered_ns) in enters.iter().copied().enumerate() {
            let (to, from) = (
                (rank + shift) % ranks,
                (rank + ranks - shift % ranks) % ranks,
            );
            let there_ns = entered_ns.max(enters[from]) + TRANSFER;
            let (sent_ns, partner) = self.send(tag, entered_ns, (enters[to], to));
            let left_ns = there_ns.max(sent_ns) + 1;
            let deeds = [
                (entered_ns, Deed::Enter("MPI_Sendrecv")),
                (entered_ns + 1, Deed::Send(to as u32, tag)),
                (left_ns - 1, Deed::Receive(from as u32, tag)),
                (left_ns, Deed::Leave("MPI_Sendrecv")),
            ];
            self.script.rank(rank, &deeds);
            let mut partners = vec![(enters[from], from)];
            partners.extend(partner);
            self.call(rank, left_ns, entered_ns, partners);
        }
    }

    fn halo(&mut self, tag: i64, work_ns: i64) {
        let ranks = self.clocks.len();
        let starts = self.clocks.clone();
        // The first of a direction begins its calls at these times: receives, then sends.
        let begun = |rank: usize, call: i64| starts[rank] + 4 * call;
        let neighbours = |rank: usize| [(rank + 1) % ranks, (rank + ranks - 1) % ranks];
        for rank in 0..ranks {
            let first = self.requests + 10 * rank as u32;
            let mut deeds = Vec::new();
            for (place, other) in neighbours(rank).into_iter().enumerate() {
                let at_ns = begun(rank, place as i64);
                let request = first + place as u32;
                // Messages of two directions between the same ranks have their own tags.
                let tag = tag + 1 - place as i64;
                deeds.extend([
                    (at_ns, Deed::Enter("MPI_Irecv")),
                    (at_ns + 1, Deed::ReceiveStart(other as u32, tag, request)),
                    (at_ns + 2, Deed::Leave("MPI_Irecv")),
                ]);
            }
            for (place, other) in neighbours(rank).into_iter().enumerate() {
                let at_ns = begun(rank, 2 + place as i64);
                let tag = tag + place as i64;
                deeds.extend([
                    (at_ns, Deed::Enter("MPI_Isend")),
                    (
                        at_ns + 1,
                        Deed::Isend(other as u32, tag, first + 2 + place as u32),
                    ),
                    (at_ns + 2, Deed::Leave("MPI_Isend")),
                ]);
            }
            let entered_ns = begun(rank, 4) + work_ns * (rank as i64 % 3);
            let mut left_ns = entered_ns + 1;
            let mut partners = Vec::new();
            for (place, other) in neighbours(rank).into_iter().enumerate() {
                // The neighbour sends in the other direction, and receives as its other place.
                let sent_ns = begun(other, 3 - place as i64);
                let received_ns = begun(other, 1 - place as i64);
                partners.push((sent_ns, other));
                let own_ns = begun(rank, place as i64);
                left_ns = left_ns.max(sent_ns.max(own_ns) + TRANSFER);
                let own_ns = begun(rank, 2 + place as i64);
                let (ended_ns, partner) =
                    self.send(tag + place as i64, own_ns, (received_ns, other));
                left_ns = left_ns.max(ended_ns);
                partners.extend(partner);
            }
            deeds.push((entered_ns, Deed::Enter("MPI_Waitall")));
            for (place, other) in neighbours(rank).into_iter().enumerate() {
                let request = first + place as u32;
                let received = Deed::Ireceive(other as u32, tag + 1 - place as i64, request);
                deeds.push((left_ns, received));
                deeds.push((left_ns, Deed::SendEnd(request + 2)));
            }
            deeds.push((left_ns + 1, Deed::Leave("MPI_Waitall")));
            self.script.rank(rank, &deeds);
            self.call(rank, left_ns + 1, entered_ns, partners);
        }
        self.requests += 10 * ranks as u32;
    }

    fn pair(&mut self, from: usize, to: usize, tag: i64) {
        let (send_ns, receive_ns) = (self.clocks[from], self.clocks[to]);
        let (ended_ns, partner) = self.send(tag, send_ns, (receive_ns, to));
        let there_ns = send_ns.max(receive_ns) + TRANSFER;
        let sent = [
            (send_ns, Deed::Enter("MPI_Send")),
            (send_ns + 1, Deed::Send(to as u32, tag)),
            (ended_ns + 1, Deed::Leave("MPI_Send")),
        ];
        let received = [
            (receive_ns, Deed::Enter("MPI_Recv")),
            (there_ns, Deed::Receive(from as u32, tag)),
            (there_ns + 1, Deed::Leave("MPI_Recv")),
        ];
        self.script.rank(from, &sent);
        self.script.rank(to, &received);
        self.call(from, ended_ns + 1, send_ns, partner.into_iter().collect());
        self.call(to, there_ns + 1, receive_ns, vec![(send_ns, from)]);
    }

    /// Sends a small message that is received at the end.
    fn early(&mut self, from: usize, to: usize) {
        let at_ns = self.clocks[from];
        let sent = [
            (at_ns, Deed::Enter("MPI_Send")),
            (at_ns + 1, Deed::Send(to as u32, 3)),
            (at_ns + 3, Deed::Leave("MPI_Send")),
        ];
        self.script.rank(from, &sent);
        self.call(from, at_ns + 3, at_ns, Vec::new());
        self.early.push((from, to));
        // Known by its number among those of the pair.
    }

    fn receive_early(&mut self) {
        for (from, to) in std::mem::take(&mut self.early) {
            let at_ns = self.clocks[to].max(self.clocks[from]);
            let received = [
                (at_ns, Deed::Enter("MPI_Recv")),
                (at_ns + 1, Deed::Receive(from as u32, 3)),
                (at_ns + 2, Deed::Leave("MPI_Recv")),
            ];
            self.script.rank(to, &received);
            self.call(to, at_ns + 2, at_ns, Vec::new());
        }
    }

    fn run(ranks: usize, limit: i64, steps: &[Step]) -> Self {
        let mut simulation = Self {
            script: Script::new(ranks),
            clocks: (0..ranks as i64).map(|rank| 10 + rank).collect(),
            limit,
            calls: BTreeMap::new(),
            early: Vec::new(),
            requests: 1,
        };
        for rank in 0..ranks {
            let enter = [(rank as i64, Deed::Enter("main"))];
            simulation.script.rank(rank, &enter);
        }
        for step in steps {
            match *step {
                Step::Work(rank, ns) => simulation.work(rank % ranks, ns),
                Step::Ring(shift, tag) if shift % ranks != 0 => simulation.ring(shift, tag),
                Step::Halo(tag, ns) if ranks > 2 => simulation.halo(tag, ns),
                Step::Pair(from, to, tag) if from % ranks != to % ranks => {
                    simulation.pair(from % ranks, to % ranks, tag);
                }
                Step::Early(from, to) if from % ranks != to % ranks => {
                    simulation.early(from % ranks, to % ranks);
                }
                _ => {}
            }
        }
        simulation.receive_early();
        for rank in 0..ranks {
            let end_ns = simulation.clocks[rank];
            let leave = [(end_ns, Deed::Leave("main"))];
            simulation.script.rank(rank, &leave);
        }
        simulation
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 20_000 } else { 400 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_call_that_sends_and_receives_waits_for_the_later_partner(
        ranks in 2..5_usize,
        limit in prop::sample::select(&[0_i64, 200, 1_000, 20_000, 1_000_000][..]),
        steps in prop::collection::vec(step(), 0..40),
    ) {
        let simulation = Simulation::run(ranks, limit, &steps);
        let heard = analyse(&simulation.script).0;
        let mut found = BTreeMap::new();
        for wait in &heard.waits {
            prop_assert!(matches!(wait.pattern, WaitPattern::LateSender | WaitPattern::LateReceiver));
            let before = found.insert((wait.location as usize, wait.from_ns), *wait);
            prop_assert!(before.is_none(), "one wait for each call");
        }
        for ((rank, entered_ns), truth) in &simulation.calls {
            let last = truth.partners.iter().max();
            let until_ns = last.map_or(0, |last| last.0).min(truth.left_ns);
            let wait_ns = (until_ns - entered_ns).max(0);
            let wait = found.remove(&(*rank, *entered_ns));
            let (found_ns, bound_ns) = wait.map_or((0, 0), |wait| (wait.wait_ns, wait.uncertain_ns));
            prop_assert!(found_ns <= truth.left_ns - entered_ns);
            prop_assert!(
                (found_ns - wait_ns).abs() <= bound_ns,
                "rank {} at {}: {} ± {}, truth {} of {:?}", rank, entered_ns, found_ns, bound_ns, wait_ns, truth
            );
            let Some(wait) = wait.filter(|wait| wait_ns > wait.uncertain_ns) else { continue };
            let causes: Vec<u32> = [wait.cause, wait.or_cause].into_iter().flatten().collect();
            let is_right = truth.partners.iter().any(|(at_ns, of)| *at_ns >= until_ns && causes.contains(&(*of as u32)));
            prop_assert!(is_right, "rank {} at {}: {:?}, truth {:?}", rank, entered_ns, wait, truth);
        }
        prop_assert!(found.is_empty(), "{:?}", found);
    }
}
