//! Waits of the threads of a process, with their values to the nanosecond, and compared with an oracle.

use annals_analysis::{LostTimeOptions, WaitPattern, lost_time};
use annals_format::CollectiveOperation as Op;
use annals_merger::{Query, Reader};
use annals_test_support::mpi_script::{Deed, Script};
use proptest::prelude::*;

use crate::patterns::{Found, analyse, analyse_rest, found};

const PARALLEL: &str = "!$omp parallel @a.c:7";
const BARRIER: &str = "!$omp implicit barrier @a.c:9";
const CRITICAL: &str = "!$omp critical @a.c:8";
const IN_CRITICAL: &str = "!$omp critical sblock @a.c:8";

/// A thread's stay in a barrier.
fn barrier(from_ns: i64, to_ns: i64) -> [(i64, Deed); 2] {
    [
        (from_ns, Deed::Enter(BARRIER)),
        (to_ns, Deed::Leave(BARRIER)),
    ]
}

#[test]
fn threads_wait_in_a_barrier_for_the_last_of_their_team() {
    let mut script = Script::of_threads(3);
    script.rank(0, &[(0, Deed::Enter("main")), (100, Deed::Enter(PARALLEL))]);
    for (thread, fork_ns, entered_ns, left_ns) in
        [(0, 100, 300, 905), (1, 110, 900, 910), (2, 120, 500, 915)]
    {
        if thread > 0 {
            script.rank(thread, &[(fork_ns, Deed::Enter(PARALLEL))]);
        }
        script.rank(thread, &barrier(entered_ns, left_ns));
    }
    // The next barrier of the region: thread 0 is in it before thread 2 has left the first.
    script.rank(0, &barrier(912, 1400));
    script.rank(1, &barrier(1000, 1405));
    script.rank(2, &barrier(1395, 1410));
    for thread in 0..3 {
        script.rank(thread, &[(1420, Deed::Leave(PARALLEL))]);
    }
    script.rank(0, &[(2000, Deed::Leave("main"))]);
    let (heard, saved) = analyse(&script);
    let pattern = WaitPattern::ThreadBarrier;
    assert_eq!(
        found(&heard),
        [
            (pattern, 0, Some(1), 300, 600),
            (pattern, 0, Some(2), 912, 483),
            (pattern, 1, Some(2), 1000, 395),
            (pattern, 2, Some(1), 500, 400),
        ]
    );
    // On an ideal network all leave the first barrier at 900, and the second at 1380.
    assert_eq!(saved, [20, 25, 30]);
    let (_, cause, cost_ns, is_direct, extra) = heard.delays[0];
    assert_eq!((cause, cost_ns, is_direct), (1, 600, true));
    assert_eq!(extra.expect("extra work").1, 600);
}

#[test]
fn a_thread_waits_for_the_thread_that_has_the_lock() {
    let mut script = Script::of_threads(3);
    for (thread, entered_ns, acquired_ns, released_ns) in
        [(0, 100, 101, 700), (1, 300, 702, 900), (2, 950, 951, 960)]
    {
        script.rank(
            thread,
            &[
                (50, Deed::Enter("solve")),
                (entered_ns, Deed::Enter(CRITICAL)),
            ],
        );
        script.rank(
            thread,
            &[
                (acquired_ns, Deed::Acquire(4)),
                (acquired_ns, Deed::Enter(IN_CRITICAL)),
            ],
        );
        script.rank(
            thread,
            &[
                (released_ns, Deed::Leave(IN_CRITICAL)),
                (released_ns, Deed::Release(4)),
            ],
        );
        script.rank(
            thread,
            &[
                (released_ns + 1, Deed::Leave(CRITICAL)),
                (1000, Deed::Leave("solve")),
            ],
        );
    }
    let (heard, saved) = analyse(&script);
    assert_eq!(found(&heard), [(WaitPattern::Lock, 1, Some(0), 300, 400)]);
    // It is acquired when it is free, and without a moment in between. Thread 0 released it 1 ns earlier.
    assert_eq!(saved, [1, 3, 1]);
    let (_, cause, cost_ns, is_direct, extra) = heard.delays[0];
    assert_eq!((cause, cost_ns, is_direct), (0, 400, true));
    assert_eq!(extra.expect("extra work").1, 400);
}

#[test]
fn what_a_thread_does_with_a_lock_makes_others_wait_also_outside_of_a_block() {
    let mut script = Script::of_threads(2);
    // Thread 0 has the lock from 101 to 700, in no region but that around it.
    for (thread, entered_ns, acquired_ns, released_ns) in [(0, 100, 101, 700), (1, 300, 702, 900)] {
        script.rank(thread, &[(50, Deed::Enter("solve"))]);
        script.rank(
            thread,
            &[
                (entered_ns, Deed::Enter("!$omp set_lock")),
                (acquired_ns, Deed::Acquire(4)),
                (acquired_ns, Deed::Leave("!$omp set_lock")),
                (released_ns, Deed::Release(4)),
                (1000, Deed::Leave("solve")),
            ],
        );
    }
    let (heard, _) = analyse(&script);
    assert_eq!(found(&heard), [(WaitPattern::Lock, 1, Some(0), 300, 400)]);
    let (_, cause, cost_ns, is_direct, extra) = heard.delays[0];
    assert_eq!((cause, cost_ns, is_direct), (0, 400, true));
    // 649 of work until the release, and 250 of the thread that waits.
    assert_eq!(extra.expect("extra work").1, 399);
}

#[test]
fn tasks_in_a_barrier_are_work() {
    let mut script = Script::of_threads(2);
    for thread in 0..2 {
        script.rank(thread, &[(0, Deed::Enter(PARALLEL))]);
    }
    script.rank(
        0,
        &[
            (100, Deed::Enter(BARRIER)),
            (200, Deed::Enter("!$omp task @a.c:8")),
        ],
    );
    script.rank(
        0,
        &[
            (450, Deed::Leave("!$omp task @a.c:8")),
            (905, Deed::Leave(BARRIER)),
        ],
    );
    script.rank(1, &barrier(900, 910));
    for thread in 0..2 {
        script.rank(thread, &[(1000, Deed::Leave(PARALLEL))]);
    }
    let (heard, _) = analyse(&script);
    assert_eq!(
        found(&heard),
        [(WaitPattern::ThreadBarrier, 0, Some(1), 100, 550)]
    );
}

#[test]
fn threads_of_a_rank_count_with_their_work_in_regions() {
    let mut script = Script::of_threads(2);
    script.rank(0, &[(0, Deed::Enter("main")), (400, Deed::Enter(PARALLEL))]);
    script.rank(0, &barrier(600, 905));
    script.rank(
        0,
        &[(910, Deed::Leave(PARALLEL)), (1000, Deed::Leave("main"))],
    );
    script.rank(1, &[(400, Deed::Enter(PARALLEL))]);
    script.rank(1, &barrier(900, 905));
    script.rank(1, &[(910, Deed::Leave(PARALLEL))]);
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), &[]);
    let reader = Reader::open(directory.path()).expect("recordings");
    let options = LostTimeOptions {
        critical_path: true,
        ..LostTimeOptions::default()
    };
    let found = lost_time(&reader, &Query::new(), &options).expect("recordings");
    let (lost, _) = found.expect("whole definitions");
    // Thread 0 is in the barrier from 600 to 905; thread 1 has work only from 400 to 910 but for the barrier.
    assert_eq!((lost.threads, &lost.useful_ns[..]), (2, &[695, 505][..]));
    let rank = lost.ranks[0];
    assert_eq!(
        (rank.useful_ns, rank.mpi_ns, rank.idle_ns, rank.wait_ns),
        (600, 0, 400, 150)
    );
    let cause = &lost.causes[0];
    assert_eq!((cause.rank, cause.thread.as_deref()), (0, Some("thread 1")));
    assert_eq!((cause.operations, cause.calls, cause.cost_ns), (1, 1, 300));
    // On thread 0 up to the fork, on thread 1 up to the barrier, then on thread 0.
    let path = lost.critical_path.expect("a path");
    assert_eq!((path.stays, path.ranks[0].path_ns), (3, 1000));
}

#[test]
fn efficiencies_of_mpi_and_teams_are_those_of_talps_formulas() {
    let mut script = Script {
        threads: 2,
        ..Script::new(4)
    };
    // Of each rank: when its team begins, when its threads are done, and when it is in the barrier of all ranks; twice.
    let ranks = [(0, 20, [60, 90], 90), (2, 0, [50, 45], 60)];
    for (step_ns, (row, fork_ns, done_ns, join_ns)) in [0, 100]
        .into_iter()
        .flat_map(|step| ranks.map(|rank| (step, rank)))
    {
        let at = |ns: i64| step_ns + ns;
        script.rank(row, &[(at(0), Deed::Enter("main"))]);
        for (thread, done_ns) in done_ns.into_iter().enumerate() {
            script.rank(row + thread, &[(at(fork_ns), Deed::Enter(PARALLEL))]);
            script.rank(row + thread, &barrier(at(done_ns), at(join_ns)));
            script.rank(row + thread, &[(at(join_ns), Deed::Leave(PARALLEL))]);
        }
        script.rank(
            row,
            &[
                (at(join_ns), Deed::Enter("MPI_Barrier")),
                (at(join_ns), Deed::Begin(Op::Barrier, 0)),
                (at(100), Deed::End(Op::Barrier, 0)),
                (at(100), Deed::Leave("MPI_Barrier")),
                (at(100), Deed::Leave("main")),
            ],
        );
    }
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), &[]);
    let reader = Reader::open(directory.path()).expect("recordings");
    let found = lost_time(&reader, &Query::new(), &LostTimeOptions::default());
    let (lost, _) = found.expect("recordings").expect("whole definitions");
    // As in the case that `hybrid.rs` computes from their times.
    let hybrid = lost.hybrid.expect("teams");
    for (found, expected) in [
        (hybrid.mpi_parallel, 0.75),
        (hybrid.mpi_communication, 0.9),
        (hybrid.openmp_parallel, 275.0 / 350.0),
        (hybrid.openmp_serialisation, 275.0 / 295.0),
        (hybrid.openmp_load_balance, 295.0 / 330.0),
        (hybrid.openmp_scheduling, 330.0 / 350.0),
    ] {
        assert!((found - expected).abs() < 1e-9, "{hybrid:?}");
    }
}

#[test]
fn a_thread_that_makes_its_rank_late_is_the_cause_of_what_other_ranks_wait() {
    let mut script = Script {
        threads: 2,
        ..Script::new(4)
    };
    // Thread 1 of rank 1 is late in its team, and so rank 1 is late in the barrier of all ranks.
    for (row, entered_ns) in [(0, 200), (1, 200), (2, 200), (3, 800)] {
        script.rank(row, &[(0, Deed::Enter(PARALLEL))]);
        let left_ns = if row < 2 { 201 } else { 801 };
        script.rank(row, &barrier(entered_ns, left_ns));
        script.rank(row, &[(left_ns, Deed::Leave(PARALLEL))]);
    }
    for (row, entered_ns) in [(0, 210), (2, 810)] {
        script.rank(
            row,
            &[
                (entered_ns, Deed::Enter("MPI_Barrier")),
                (entered_ns, Deed::Begin(Op::Barrier, 0)),
            ],
        );
        script.rank(
            row,
            &[
                (820, Deed::End(Op::Barrier, 0)),
                (820, Deed::Leave("MPI_Barrier")),
            ],
        );
    }
    let (heard, _) = analyse(&script);
    let costs: Vec<_> = heard
        .delays
        .iter()
        .map(|delay| (delay.0, delay.1, delay.2, delay.3))
        .collect();
    // Location 2, the first thread of rank 1, waits 600 for location 3, which has the cost of what location 0 waits for 2.
    assert_eq!(costs, [(2, 3, 600, true), (0, 3, 600, false)]);
}

/// What a thread does in a step: work before the critical section, in it, and after it, nanoseconds.
type Work = (i64, Option<i64>, i64);

/// Runs steps of teams: serial work, then work of each thread, then a barrier. Returns the script, and the waits.
fn run(threads: usize, steps: &[(i64, Vec<Work>)]) -> (Script, Vec<Found>) {
    let mut script = Script::of_threads(threads);
    let mut waits = Vec::new();
    script.rank(0, &[(0, Deed::Enter("main"))]);
    let mut now_ns = 0;
    for (serial_ns, work) in steps {
        now_ns += serial_ns;
        let fork_ns = now_ns;
        let mut arrivals: Vec<(i64, usize)> = (0..threads)
            .map(|thread| (fork_ns + 1 + thread as i64 + work[thread].0, thread))
            .collect();
        arrivals.sort_unstable();
        // The lock is free for the first; the others get it in the order in which they arrive.
        let mut free: Option<(i64, usize)> = None;
        let mut entered = vec![0; threads];
        let mut deeds = vec![Vec::new(); threads];
        for (at_ns, thread) in arrivals {
            let mut done_ns = at_ns;
            if let Some(inside_ns) = work[thread].1 {
                let free_ns = free.map_or(i64::MIN, |free| free.0);
                let acquired_ns = (free_ns + 1).max(at_ns + 1);
                if let Some((free_ns, holder)) = free.filter(|free| free.0 > at_ns) {
                    waits.push((
                        WaitPattern::Lock,
                        thread as u32,
                        Some(holder as u32),
                        at_ns,
                        free_ns - at_ns,
                    ));
                }
                let released_ns = acquired_ns + inside_ns;
                deeds[thread].extend([
                    (at_ns, Deed::Enter(CRITICAL)),
                    (acquired_ns, Deed::Acquire(1)),
                    (acquired_ns, Deed::Enter(IN_CRITICAL)),
                    (released_ns, Deed::Leave(IN_CRITICAL)),
                    (released_ns, Deed::Release(1)),
                    (released_ns + 1, Deed::Leave(CRITICAL)),
                ]);
                free = Some((released_ns, thread));
                done_ns = released_ns + 1;
            }
            entered[thread] = done_ns + work[thread].2;
        }
        let last_ns = entered.iter().copied().max().unwrap_or(0);
        let last = entered
            .iter()
            .position(|at_ns| *at_ns == last_ns)
            .unwrap_or(0);
        for thread in 0..threads {
            let left_ns = last_ns + 1 + (thread as i64 * 7) % 5;
            script.rank(thread, &[(fork_ns + thread as i64, Deed::Enter(PARALLEL))]);
            script.rank(thread, &deeds[thread]);
            script.rank(thread, &barrier(entered[thread], left_ns));
            script.rank(thread, &[(left_ns, Deed::Leave(PARALLEL))]);
            let wait_ns = last_ns - entered[thread];
            if wait_ns > 0 {
                waits.push((
                    WaitPattern::ThreadBarrier,
                    thread as u32,
                    Some(last as u32),
                    entered[thread],
                    wait_ns,
                ));
            }
        }
        now_ns = last_ns + 1;
    }
    script.rank(0, &[(now_ns + 1, Deed::Leave("main"))]);
    waits.sort();
    (script, waits)
}

fn work() -> impl Strategy<Value = Work> {
    (1..300_i64, prop::option::of(1..100_i64), 1..300_i64)
}

fn teams() -> impl Strategy<Value = (usize, Vec<(i64, Vec<Work>)>)> {
    (2..6_usize).prop_flat_map(|threads| {
        let step = (20..200_i64, prop::collection::vec(work(), threads));
        (Just(threads), prop::collection::vec(step, 1..6))
    })
}

proptest! {
    #[test]
    fn waits_of_teams_are_those_that_were_planted((threads, steps) in teams()) {
        let (script, expected) = run(threads, &steps);
        let (heard, saved) = analyse(&script);
        prop_assert_eq!(found(&heard), expected);
        prop_assert!(heard.waits.iter().all(|wait| wait.uncertain_ns == 0));
        prop_assert!(saved.iter().all(|saved_ns| *saved_ns >= 0));
        let waited: i64 = heard.waits.iter().map(|wait| wait.wait_ns).sum();
        let costs: i64 = heard.delays.iter().map(|delay| delay.2).sum();
        prop_assert_eq!(waited, costs);
    }

    #[test]
    fn after_losses_the_waits_of_barriers_are_within_their_bounds(
        (threads, steps) in teams(), thread in 0..6_usize, first in 0..1000_usize, length in 1..6_usize,
    ) {
        let (script, expected) = run(threads, &steps);
        let thread = thread % threads;
        let events = script.ranks[thread].len();
        let first = first % events;
        let hole = (thread, first, (first + length).min(events));
        let (heard, times) = analyse_rest(&script, &[hole]);
        let of = |found: &[Found], pattern| -> i64 {
            found.iter().filter(|found| found.0 == pattern).map(|found| found.4).sum()
        };
        for pattern in [WaitPattern::ThreadBarrier, WaitPattern::Lock] {
            let bounds = heard.waits.iter().filter(|wait| wait.pattern == pattern);
            let bound: i64 = bounds.map(|wait| wait.uncertain_ns).sum();
            let hidden: i64 = times.locations.iter().map(|times| times.hidden_ns).sum();
            let difference = of(&found(&heard), pattern) - of(&expected, pattern);
            prop_assert!(
                difference.abs() <= bound + hidden,
                "{:?}: {} of {}, bound {} and {}",
                pattern, difference, of(&expected, pattern), bound, hidden
            );
        }
    }
}
