//! Kokkos: a host that calls what Kokkos calls, and Debian's Kokkos.

use std::path::Path;
use std::process::Command;

use crate::support::{ROOT, Runtime, output, record, scratch};

#[test]
fn kernels_regions_copies_and_fences_are_recorded_with_their_names() {
    let program = Runtime::Libgomp.compile("kokkos.c", &["-ldl"]);
    let recorded = record(&[], &[], &[program.to_str().expect("UTF-8")]);
    assert_eq!(recorded.said().0, "done\n", "{:?}", recorded.said());
    let calls = recorded.calls();
    for (region, expected) in [
        ("step", 5),
        ("relax", 10),
        ("norm", 5),
        ("offsets", 5),
        ("deep copy", 5),
        ("after the copy", 5),
    ] {
        assert_eq!(calls.get(region), Some(&expected), "{region}: {calls:?}");
    }
    for (event, expected) in [
        ("kokkos.kernel", 25),
        ("kokkos.copy", 5),
        ("kokkos.event", 5),
        ("kokkos.allocate", 1),
        ("kokkos.deallocate", 1),
        ("kokkos.section", 1),
    ] {
        assert_eq!(recorded.events(event), expected, "{event}");
    }
    let intervals = recorded.ask(&["intervals"]);
    let rows = intervals["intervals"].as_array().expect("rows");
    let section = rows
        .iter()
        .find(|row| row["begin"] == "kokkos.section_start");
    assert_eq!(section.expect("a row")["count"], 1, "{intervals}");
    let info = recorded.ask(&["info"]);
    let properties = &info["processes"][0]["properties"];
    assert_eq!(properties["kokkos.case"], "stand-in", "{properties}");
    assert_eq!(properties["kokkos.interface"], "20211015", "{properties}");
}

#[test]
fn unknown_versions_of_the_interface_are_refused_in_words() {
    let program = Runtime::Libgomp.compile("kokkos.c", &["-ldl"]);
    let program = program.to_str().expect("UTF-8");
    for version in ["20991231", "1"] {
        let recorded = record(&[], &[], &[program, version]);
        let (said, errors) = recorded.said();
        assert_eq!(said, "done\n", "{errors}");
        let line = format!("Kokkos is not recorded: its interface for tools has version {version}");
        assert!(errors.contains(&line), "{errors}");
    }
}

/// The program's own tool is the first in the list, and Kokkos loads that one.
#[test]
fn a_tool_of_the_users_comes_first() {
    let program = Runtime::Libgomp.compile("kokkos.c", &["-ldl"]);
    let user = [("KOKKOS_TOOLS_LIBS", "/nowhere/tool.so")];
    let recorded = record(&[], &user, &[program.to_str().expect("UTF-8")]);
    assert_eq!(
        recorded.output.status.code(),
        Some(3),
        "{:?}",
        recorded.said()
    );
}

#[test]
fn debians_kokkos_reads_the_older_variable() {
    let root = Path::new(ROOT).join("target/kokkos");
    let library = root.join("usr/lib/x86_64-linux-gnu");
    assert!(
        library.is_dir(),
        "{} is missing: tests/run.sh sets it up",
        library.display()
    );
    let program = scratch().join("trilinos");
    let mut compile = Command::new("g++");
    compile.args(["-std=c++14", "-g", "-O1", "-w", "-fopenmp", "-I"]);
    compile.arg(root.join("usr/include/trilinos"));
    compile.arg(Path::new(ROOT).join("tests/runtimes/trilinos.cpp"));
    compile.arg("-L").arg(&library).arg("-ltrilinos_kokkoscore");
    compile.arg(format!("-Wl,-rpath,{}", library.display()));
    output(compile.arg("-o").arg(&program));
    let program = program.to_str().expect("UTF-8");
    let alone = output(&mut Command::new(program));
    let recorded = record(&[], &[], &[program]);
    assert_eq!(recorded.said().0, alone, "{:?}", recorded.said());
    let calls = recorded.calls();
    for (region, expected) in [("step", 4), ("relax", 4), ("norm", 4), ("deep copy", 4)] {
        assert_eq!(calls.get(region), Some(&expected), "{region}: {calls:?}");
    }
}
