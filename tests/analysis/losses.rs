//! Random programs of which events are lost: what they waited is within the bounds that are found.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::oracle::{Simulation, Step, step};
use crate::patterns::{Heard, analyse, analyse_rest};
use annals_test_support::mpi_script::{Deed, Script};

/// Events that are lost: rank, first, end.
type Hole = (usize, usize, usize);

/// By rank: how long it waited, nanoseconds.
fn waits(heard: &Heard, ranks: usize) -> Vec<i64> {
    let mut waits = vec![0; ranks];
    for wait in &heard.waits {
        waits[wait.location as usize] += wait.wait_ns;
    }
    waits
}

/// By rank: how long it waited without the losses, with them, and by how much that may be wrong.
fn compare(script: &Script, holes: &[Hole]) -> Vec<(i64, i64, i64)> {
    let ranks = script.ranks.len();
    let truth = waits(&analyse(script).0, ranks);
    let (heard, times) = analyse_rest(script, holes);
    let mut bounds: Vec<i64> = times
        .locations
        .iter()
        .map(|times| times.hidden_ns)
        .collect();
    for wait in &heard.waits {
        bounds[wait.location as usize] += wait.uncertain_ns;
    }
    let found = waits(&heard, ranks);
    truth
        .into_iter()
        .zip(found)
        .zip(bounds)
        .map(|((truth, found), bound)| (truth, found, bound))
        .collect()
}

/// Returns holes of a script that do not touch: place and length, in events. The enters of `main` are kept.
pub(crate) fn holes(script: &Script, places: &[(usize, usize, usize)]) -> Vec<Hole> {
    let mut holes: Vec<Hole> = Vec::new();
    for (rank, place, length) in places {
        let rank = rank % script.ranks.len();
        let events = script.ranks[rank].len();
        if events < 3 {
            continue;
        }
        let first = 1 + place % (events - 2);
        let end = (first + length).min(events - 1);
        let is_free = |hole: &Hole| hole.0 != rank || end < hole.1 || hole.2 < first;
        if holes.iter().all(is_free) {
            holes.push((rank, first, end));
        }
    }
    holes
}

fn numbered(ranks: usize, steps: &[Step]) -> Script {
    let mut script = Simulation::run(ranks, steps);
    script.is_numbered = true;
    script
}

pub(crate) fn places(most: usize) -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let place = (0..8_usize, 0..10_000_usize, 1..12_usize);
    prop::collection::vec(place, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 10_000 } else { 400 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_random_programs_waited_is_within_the_bounds(
        (ranks, steps) in (2..5_usize, prop::collection::vec(step(), 0..80)),
        places in places(5),
    ) {
        let script = numbered(ranks, &steps);
        let holes = holes(&script, &places);
        for (rank, (truth, found, bound)) in compare(&script, &holes).into_iter().enumerate() {
            let wrong = (truth - found).abs();
            prop_assert!(
                wrong <= bound,
                "rank {} waited {}, found {} ± {}, lost {:?}", rank, truth, found, bound, holes
            );
            prop_assert!(bound == 0 || !holes.is_empty());
        }
    }
}

/// Clocks of different hosts that only wall clocks relate have no bounds: a wait may have any length that its call has.
#[test]
fn errors_of_clocks_bound_waits() {
    let mut script = Script::new(2);
    let sender = [
        (0, Deed::Enter("main")),
        (700, Deed::Enter("MPI_Isend")),
        (710, Deed::Send(1, 5)),
        (720, Deed::Leave("MPI_Isend")),
        (900, Deed::Leave("main")),
    ];
    let receiver = [
        (0, Deed::Enter("main")),
        (100, Deed::Enter("MPI_Recv")),
        (790, Deed::Receive(0, 5)),
        (800, Deed::Leave("MPI_Recv")),
        (900, Deed::Leave("main")),
    ];
    script.rank(0, &sender).rank(1, &receiver);
    let wait = analyse(&script).0.waits[0];
    assert_eq!((wait.wait_ns, wait.uncertain_ns), (600, 0));
    script.is_on_hosts = true;
    let wait = analyse(&script).0.waits[0];
    // It may be 0.
    assert_eq!((wait.wait_ns, wait.uncertain_ns), (600, 600));
}

/// Of a longer program with one event of a hundred lost, in holes as long as pages have.
#[test]
fn bounds_are_narrow_if_little_is_lost() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut new = |count: usize| {
        let steps = prop::collection::vec(step(), count..count + 1);
        let tree = steps.new_tree(&mut runner);
        tree.expect("steps").current()
    };
    let mut widths = Vec::new();
    for round in 0..20_usize {
        let script = numbered(4, &new(4_000));
        let events: usize = script.ranks.iter().map(Vec::len).sum();
        // Four holes of a quarter of a percent each.
        let length = events / 400;
        let places = (0..4).map(|at| (at, (at + 1) * (round + 1) * 7919, length));
        let places: Vec<(usize, usize, usize)> = places.collect();
        let holes = holes(&script, &places);
        for (truth, found, bound) in compare(&script, &holes) {
            assert!((truth - found).abs() <= bound, "{truth} {found} ± {bound}");
            widths.push(bound as f64 / truth as f64);
        }
    }
    widths.sort_by(f64::total_cmp);
    let median = widths[widths.len() / 2];
    assert!(median <= 0.05, "{widths:?}");
}
