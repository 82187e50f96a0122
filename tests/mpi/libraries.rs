//! MPI libraries that differ from those that can be installed: one without the names `PMPI_…`, and Open MPI 6 with its events.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{ask, flavours, open_mpi_6_program, output, prefix, scratch, source, text_of};
use crate::{check_messages, sums};

/// A program that was compiled for the standard's binary interface, under another library than it was linked with.
#[test]
fn a_library_without_names_of_the_profiling_interface_is_recorded() {
    let mut flavours = flavours();
    let mut flavour = flavours
        .find(|flavour| flavour.name == "mpich-standard")
        .expect("a library");
    let program = flavour.program("exchange.c");
    let library = flavour.library().expect("a wheel's");
    let directory = scratch().join("without-pmpi");
    std::fs::create_dir_all(&directory).expect("a directory");
    let copy = directory.join(library.file_name().expect("a file"));
    let mut hide = Command::new("python3");
    output(hide.arg(source("without_pmpi.py")).arg(&library).arg(&copy));
    let known = flavour.record(&program, &[], false);
    // The copy finds what it needs from where the library is.
    let needed = library.parent().expect("a directory").join("mpich");
    let paths = format!("{}:{}", directory.display(), needed.display());
    flavour.set("LD_LIBRARY_PATH", &paths);
    let plain = flavour.run(&program, &[]);
    let run = flavour.record(&program, &[], false);
    assert_eq!(
        (run.code, run.lines()),
        (plain.code, plain.lines()),
        "{}",
        run.said
    );
    let messages = check_messages(&known, "with");
    assert!(messages > 0);
    assert_eq!(check_messages(&run, "without"), messages, "{}", run.said);
    assert_eq!(run.calls(), known.calls());
}

/// UCX, which an MPI library may use, replaces functions of the C library: what the recorder does with its memory must not depend on
/// them. A program at a fixed address has nothing else where they would write.
#[test]
fn a_program_at_a_fixed_address_ends_as_it_does_unrecorded() {
    for flavour in flavours() {
        let program = flavour.scratch().join("fixed");
        let mut compile = flavour.compile();
        compile.args(["-w", "-fno-pie", "-no-pie"]);
        output(compile.arg(source("finalizing.c")).arg("-o").arg(&program));
        let plain = flavour.run(&program, &[]);
        let run = flavour.record(&program, &[], false);
        assert_eq!(
            (run.code, run.lines()),
            (plain.code, plain.lines()),
            "{}: {}",
            flavour.name,
            run.said
        );
    }
}

#[test]
fn the_events_of_open_mpi_6_have_their_elements_and_the_objects_that_they_are_bound_to() {
    let recording = scratch().join("open-mpi-6");
    let mut command = Command::new(open_mpi_6_program());
    command.env("ANNALS_DIR", &recording);
    command.env("LD_PRELOAD", prefix().join("lib/libannals_mpi.so"));
    let run = command.output().expect("the program");
    assert!(run.status.success(), "{}", text_of(&run.stderr));
    let printed = text_of(&run.stdout);
    let handles = printed.split_whitespace();
    let handles: Vec<u64> = handles
        .map(|word| word.parse().expect("a handle"))
        .collect();
    let [copy, window] = handles[..] else {
        panic!("{printed}");
    };
    let events: Vec<Value> = ask(&["print", "--event", "ompi.*"], &recording)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"))
        .collect();
    let of = |name: &str| -> Vec<&Value> {
        let named = events.iter().filter(|event| event["event"] == name);
        named.collect()
    };
    let elements = |name: &str| -> Vec<Vec<Value>> {
        let events = of(name).into_iter();
        let elements = events.map(|event| event["elements"].as_object().expect("elements"));
        elements
            .map(|all| all.values().cloned().collect())
            .collect()
    };
    let expected = [
        ("ompi.mpi.initialization", json!([[0, 0, 0, 1, 7]])),
        ("ompi.mpi.finalization", json!([[0, 0, 7]])),
        ("ompi.mpi.win_created", json!([[64, 4, 1, window]])),
        ("ompi.mpi.win_freed", json!([[1, window]])),
    ];
    for (name, expected) in expected {
        assert_eq!(json!(elements(name)), expected, "{name}: {events:#?}");
    }
    assert_eq!(of("ompi.mpi.communicator_created").len(), 2);
    assert_eq!(of("ompi.mpi.communicator_freed").len(), 2);
    let named = elements("ompi.mpi.communicator_name_set");
    let (object, other) = ("MPI_COMM_WORLD/dup.0 {0}", "MPI_COMM_WORLD/dup.1 {0}");
    let objects: Vec<_> = named.iter().map(|all| all[0].as_str()).collect();
    assert_eq!(objects, [Some(object), Some(other), Some(object)]);
    let of_copy = named.iter().filter(|all| all[1] == copy);
    assert_eq!(of_copy.count(), 2, "{named:?}");
    let invoked = elements("ompi.mpi.errhandler_invoked");
    assert_eq!(
        (&invoked[0][0], &invoked[0][1], &invoked[0][2]),
        (&json!(15), &json!(1), &json!(0xe0))
    );
    // Arrives only while the source's time is read.
    assert_eq!(sums(&recording, "ompi.mca.memory.patcher.released"), (2, 0));
    let sources: Value = serde_json::from_str(&ask(&["sources"], &recording)).expect("sources");
    for (name, order) in [("ompi", "ordered"), ("ompi.unordered", "unordered")] {
        let mut rows = sources["sources"].as_array().expect("rows").iter();
        let row = rows.find(|row| row["source"] == name);
        let row = row.unwrap_or_else(|| panic!("no {name}: {sources}"));
        assert_eq!(row["ordering"], order, "{row}");
    }
}
