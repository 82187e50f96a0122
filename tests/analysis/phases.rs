//! Efficiencies of phases, with values that are written out.

use annals_analysis::{LostTimeOptions, PhaseTimes, lost_time, wait_states};
use annals_merger::{Query, Reader, Window, regions_like};

use crate::patterns::Heard;
use annals_test_support::mpi_script::{Deed, Script};

/// Returns the phases of a script: the calls of `solve`.
fn phases(script: &Script, lost: &[(usize, usize, usize)], window: Window) -> Vec<PhaseTimes> {
    let directory = tempfile::tempdir().expect("a directory");
    script.write(directory.path(), lost);
    let reader = Reader::open(directory.path()).expect("recordings");
    let regions =
        regions_like(&"solve".parse().expect("a glob"), reader.definitions()).expect("a region");
    let regions: Vec<_> = regions.into_iter().collect();
    let query = Query::new().within(window);
    let found =
        wait_states(&reader, &query, &regions, || Ok(Heard::default())).expect("recordings");
    found.expect("whole definitions").1.phases
}

fn script() -> Script {
    let mut script = Script::new(2);
    let sender = [
        (0, Deed::Enter("solve")),
        (60, Deed::Enter("MPI_Send")),
        (65, Deed::Send(1, 5)),
        (70, Deed::Leave("MPI_Send")),
        (100, Deed::Leave("solve")),
        (200, Deed::Enter("solve")),
        // Not a phase, but part of one.
        (210, Deed::Enter("solve")),
        (230, Deed::Leave("solve")),
        (250, Deed::Leave("solve")),
    ];
    let receiver = [
        (0, Deed::Enter("solve")),
        (10, Deed::Enter("MPI_Recv")),
        (75, Deed::Receive(0, 5)),
        (80, Deed::Leave("MPI_Recv")),
        // A call without events.
        (90, Deed::Enter("MPI_Comm_rank")),
        (95, Deed::Leave("MPI_Comm_rank")),
        (110, Deed::Leave("solve")),
    ];
    script.rank(0, &sender);
    script.rank(1, &receiver);
    script
}

#[test]
fn a_phase_is_the_same_call_of_all_ranks() {
    let found = phases(&script(), &[], Window::ALL);
    let first = PhaseTimes {
        number: 0,
        region: found[0].region,
        locations: 2,
        from_ns: 0,
        to_ns: 110,
        // Rank 0 sends for 10, rank 1 receives for 70 and asks for 5.
        useful_sum_ns: 90 + 35,
        useful_max_ns: 90,
        run_ns: 110,
        // The send takes no time, and the receive ends at 60: 100 − 10, 110 − 20 − 5.
        ideal_run_ns: 90,
        is_uncertain: false,
    };
    let second = PhaseTimes {
        number: 1,
        region: found[0].region,
        locations: 1,
        from_ns: 200,
        to_ns: 250,
        useful_sum_ns: 50,
        useful_max_ns: 50,
        run_ns: 50,
        ideal_run_ns: 50,
        is_uncertain: false,
    };
    assert_eq!(found, [first, second]);
    // A phase keeps its number, and counts if it is in the window.
    let later = Window {
        from_ns: 150,
        to_ns: i64::MAX,
    };
    assert_eq!(phases(&script(), &[], later), [second]);
}

#[test]
fn a_phase_with_losses_is_uncertain() {
    // The call of rank 1 without events is lost.
    let found = phases(&script(), &[(1, 4, 6)], Window::ALL);
    let is_uncertain: Vec<bool> = found.iter().map(|phase| phase.is_uncertain).collect();
    assert_eq!(is_uncertain, [true, false]);
}

#[test]
fn factors_of_a_phase_are_those_of_its_times() {
    let directory = tempfile::tempdir().expect("a directory");
    script().write(directory.path(), &[]);
    let reader = Reader::open(directory.path()).expect("recordings");
    let phases =
        regions_like(&"solve".parse().expect("a glob"), reader.definitions()).expect("a region");
    let options = LostTimeOptions {
        phases: phases.into_iter().collect(),
        ..LostTimeOptions::default()
    };
    let found = lost_time(&reader, &Query::new(), &options).expect("recordings");
    let (lost, _) = found.expect("whole definitions");
    let factors = &lost.phases[0].efficiencies;
    assert_eq!(factors.parallel, 62.5 / 110.0);
    assert_eq!(factors.load_balance, Some(62.5 / 90.0));
    assert_eq!(factors.serialisation, Some(1.0));
    assert_eq!(factors.transfer, Some(90.0 / 110.0));
}
