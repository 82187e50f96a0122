//! Critical paths: of a few events, with times that are written out, and of random programs, compared with a path that is
//! found in memory.

use std::collections::BTreeMap;

use annals_analysis::{CriticalPath, LostTimeOptions, lost_time};
use annals_format::CollectiveOperation as Op;
use annals_merger::{Query, ReadOptions, Reader, Window};
use proptest::prelude::*;

use crate::oracle::{Simulation, calls_of, messages_of, operations_of, programs};
use annals_test_support::mpi_script::{Deed, Script};

/// Returns the path of a script, found in any number of threads, and in any number of parts.
fn path(script: &Script) -> CriticalPath {
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), &[]);
    let reader = Reader::open(directory.path()).expect("recordings");
    let of = |reader: &Reader, window: Window| {
        let query = Query::new().within(window);
        let options = LostTimeOptions {
            critical_path: true,
            ..LostTimeOptions::default()
        };
        let found = lost_time(reader, &query, &options).expect("recordings");
        let lost = found.expect("whole definitions").0;
        lost.critical_path.expect("a path")
    };
    let found = of(&reader, Window::ALL);
    let mut options = ReadOptions::new();
    options.jobs = 1;
    let with_one = Reader::open_with(&[directory.path().to_owned()], options).expect("recordings");
    assert_eq!(
        format!("{found:?}"),
        format!("{:?}", of(&with_one, Window::ALL))
    );
    // What is on the path in a part of the run that it passes to the end does not depend on what is before.
    let middle_ns = i64::midpoint(found.from_ns, found.to_ns);
    let later = Window {
        from_ns: middle_ns,
        to_ns: i64::MAX,
    };
    let later = of(&reader, later);
    for (whole, part) in found.ranks.iter().zip(&later.ranks) {
        assert!(part.path_ns <= whole.path_ns, "{found:?} {later:?}");
    }
    found
}

fn regions(path: &CriticalPath) -> Vec<(&str, i64, i64)> {
    let regions = path.regions.iter();
    regions
        .map(|row| {
            let name = row.region.as_deref().unwrap_or("outside");
            (name, row.path_ns, row.imbalance_ns)
        })
        .collect()
}

fn ranks(path: &CriticalPath) -> Vec<i64> {
    path.ranks.iter().map(|row| row.path_ns).collect()
}

#[test]
fn a_path_leaves_a_wait_to_what_was_waited_for() {
    let mut script = Script::new(2);
    script.rank(0, &[(0, Deed::Enter("main")), (0, Deed::Enter("assemble"))]);
    script.rank(0, &[(700, Deed::Leave("assemble"))]);
    script.rank(0, &[(700, Deed::Enter("MPI_Send"))]);
    script.rank(
        0,
        &[(719, Deed::Send(1, 5)), (720, Deed::Leave("MPI_Send"))],
    );
    script.rank(0, &[(900, Deed::Leave("main"))]);
    script.rank(
        1,
        &[(0, Deed::Enter("main")), (100, Deed::Enter("MPI_Recv"))],
    );
    script.rank(
        1,
        &[(799, Deed::Receive(0, 5)), (800, Deed::Leave("MPI_Recv"))],
    );
    script.rank(
        1,
        &[(800, Deed::Enter("solve")), (950, Deed::Leave("solve"))],
    );
    script.rank(1, &[(1000, Deed::Leave("main"))]);
    let path = path(&script);
    // Rank 0 up to its send at 700; then rank 1, whose receive continues.
    assert_eq!(ranks(&path), [700, 300]);
    assert_eq!(path.stays, 2);
    let expected = [
        // The mean of both is 350.
        ("assemble", 700, 350),
        ("solve", 150, 75),
        // 700 to 800; in both ranks, 700 in all.
        ("MPI_Recv", 100, 0),
        // 950 to 1000.
        ("main", 50, 0),
    ];
    assert_eq!(regions(&path), expected);
    assert_eq!(path.to_ns - path.from_ns, 1000);
}

#[test]
fn a_root_that_receives_from_all_goes_on_after_the_last() {
    let mut script = Script::new(3);
    for (rank, entered_ns, left_ns) in [(0, 100, 720), (1, 700, 705), (2, 400, 405)] {
        let deeds = [
            (0, Deed::Enter("main")),
            (entered_ns, Deed::Enter("MPI_Reduce")),
            (entered_ns + 1, Deed::Begin(Op::Reduce, 0)),
            (left_ns - 1, Deed::End(Op::Reduce, 0)),
            (left_ns, Deed::Leave("MPI_Reduce")),
        ];
        script.rank(rank, &deeds);
    }
    script.rank(0, &[(900, Deed::Leave("main"))]);
    script.rank(1, &[(800, Deed::Leave("main"))]);
    script.rank(2, &[(800, Deed::Leave("main"))]);
    assert_eq!(ranks(&path(&script)), [200, 700, 0]);
}

#[test]
fn a_path_through_a_location_that_began_later_begins_with_the_first() {
    let mut script = Script::new(2);
    script.rank(0, &[(0, Deed::Enter("main")), (500, Deed::Leave("main"))]);
    script.rank(1, &[(300, Deed::Enter("main")), (900, Deed::Leave("main"))]);
    assert_eq!(ranks(&path(&script)), [300, 600]);
}

#[test]
fn a_trace_without_events_has_an_empty_path() {
    let path = path(&Script::new(2));
    assert_eq!((path.to_ns, path.stays), (path.from_ns, 0));
    assert_eq!(regions(&path), []);
}

/// Returns until when ranks waited, and for which others: (time, rank, cause).
fn releases(script: &Script) -> Vec<(i64, usize, usize)> {
    let calls = calls_of(script);
    let mut releases = Vec::new();
    for (send, receive) in messages_of(&calls) {
        let (send, receive) = (&calls[send], &calls[receive]);
        if send.entered_ns > receive.entered_ns {
            releases.push((send.entered_ns, receive.rank, send.rank));
        }
        if send.region == "MPI_Ssend" && receive.entered_ns > send.entered_ns {
            releases.push((receive.entered_ns, send.rank, receive.rank));
        }
    }
    for operation in operations_of(&calls, script.ranks.len()) {
        for own in &operation {
            let own = &calls[*own];
            let Deed::Begin(kind, root) = own.deed else {
                unreachable!("a begin");
            };
            let waits_for = |other: usize| match kind {
                Op::Broadcast => other == root as usize,
                Op::Reduce => own.rank == root as usize,
                Op::Scan => other < own.rank,
                _ => true,
            };
            let others = operation.iter().map(|other| &calls[*other]);
            let others = others.filter(|other| other.rank != own.rank && waits_for(other.rank));
            let last = others.rev().max_by_key(|other| other.entered_ns);
            if let Some(last) = last.filter(|last| last.entered_ns > own.entered_ns) {
                let at_ns = last.entered_ns.min(own.left_ns);
                releases.push((at_ns, own.rank, last.rank));
            }
        }
    }
    releases
}

/// Returns the stays of the path, the last first: rank, from, to.
fn naive_path(script: &Script) -> Vec<(usize, i64, i64)> {
    let releases = releases(script);
    let end_of = |rank: usize| script.ranks[rank].last().map_or(0, |last| last.0);
    let ranks = 0..script.ranks.len();
    let mut rank = ranks.rev().max_by_key(|rank| end_of(*rank)).unwrap_or(0);
    let mut at_ns = end_of(rank);
    let mut stays = Vec::new();
    loop {
        let own = releases.iter().filter(|release| release.1 == rank);
        let own = own.filter(|release| release.0 <= at_ns);
        let Some((from_ns, _, cause)) = own.max() else {
            break;
        };
        stays.push((rank, *from_ns, at_ns));
        (rank, at_ns) = (*cause, *from_ns);
    }
    let first_ns = script.ranks[rank].first().map_or(0, |first| first.0);
    stays.push((rank, first_ns, at_ns));
    if first_ns > 0 {
        stays.push((0, 0, first_ns));
    }
    stays
}

/// Returns the innermost region of a rank at a time.
fn region_at(script: &Script, rank: usize, time_ns: i64) -> &'static str {
    let mut open = Vec::new();
    for (at_ns, deed) in &script.ranks[rank] {
        match deed {
            _ if *at_ns > time_ns => break,
            Deed::Enter(region) => open.push(*region),
            Deed::Leave(_) => {
                open.pop();
            }
            _ => {}
        }
    }
    open.last().copied().unwrap_or("outside")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("ANNALS_LONG").is_some() { 2_000 } else { 150 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn paths_of_random_programs_cover_each_instant_once((ranks, steps) in programs()) {
        let script = Simulation::run(ranks, &steps);
        let found = path(&script);
        let stays = naive_path(&script);
        let length_ns = found.to_ns - found.from_ns;
        let mut by_rank = vec![0; ranks];
        let mut by_region: BTreeMap<&str, i64> = BTreeMap::new();
        for (rank, from_ns, to_ns) in stays {
            by_rank[rank] += to_ns - from_ns;
            for at_ns in from_ns..to_ns {
                *by_region.entry(region_at(&script, rank, at_ns)).or_default() += 1;
            }
        }
        prop_assert_eq!(by_rank.iter().sum::<i64>(), length_ns);
        let own: Vec<i64> = found.ranks.iter().map(|row| row.path_ns).collect();
        prop_assert_eq!(own, by_rank);
        let own: BTreeMap<&str, i64> = found
            .regions
            .iter()
            .map(|row| (row.region.as_deref().unwrap_or("outside"), row.path_ns))
            .collect();
        prop_assert_eq!(own, by_region);
        for row in &found.regions {
            // No more than in all ranks.
            prop_assert!(row.path_ns <= (row.mean_ns + 1) * ranks as i64);
        }
    }
}
