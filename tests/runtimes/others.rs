//! Where OpenMP is not recorded, the program runs as it does alone.

use std::path::Path;
use std::process::Command;

use crate::support::{ROOT, Runtime, record, run};

/// Each of these leaves OpenMP out, and says why.
#[test]
fn openmp_is_left_out_where_it_is_switched_off_or_another_tool_has_it() {
    let program = Runtime::Libomp(19).compile("constructs.c", &[]);
    let tool = Runtime::Libomp(19).compile("tool.c", &["-shared", "-fPIC"]);
    let program = program.to_str().expect("UTF-8");
    let tool = tool.to_str().expect("UTF-8");
    let alone = run(Command::new(program).arg("nested"));
    for (options, environment, expected, has_tool) in [
        (
            &["--openmp", "off"][..],
            vec![],
            "it is switched off",
            false,
        ),
        (
            &[],
            vec![("OMP_TOOL_LIBRARIES", tool)],
            "OMP_TOOL_LIBRARIES names another tool",
            true,
        ),
        (
            &[],
            vec![("LD_PRELOAD", tool)],
            "the program has another tool for it",
            true,
        ),
    ] {
        let recorded = record(options, &environment, &[program, "nested"]);
        let (said, errors) = recorded.said();
        let mut alone = String::from_utf8_lossy(&alone.stdout).into_owned();
        if has_tool {
            alone += "the tool saw 9 parallel regions\n";
        }
        assert_eq!(said, alone);
        let line = format!("OpenMP is not recorded: {expected}");
        assert_eq!(errors.matches(&line).count(), 1, "{errors}");
    }
}

/// LLVM's runtime serves a program of GCC if it has all that the program calls.
#[test]
fn llvms_runtime_takes_the_place_of_gccs_where_it_has_every_function() {
    let directory = Runtime::Libomp(19).directory().expect("a directory");
    let search = [("LD_LIBRARY_PATH", directory.to_str().expect("UTF-8"))];
    let program = Runtime::Libgomp.compile("constructs.c", &[]);
    let program = program.to_str().expect("UTF-8");
    let recorded = record(&["--openmp", "libomp"], &search, &[program]);
    assert!(recorded.output.status.success(), "{:?}", recorded.said());
    let alone = run(Command::new(program).arg("return"));
    assert_eq!(recorded.said().0, String::from_utf8_lossy(&alone.stdout));
    assert_eq!(recorded.calls()["!$omp taskwait"], 12);
    let dependences = recorded.events("openmp.task_dependence");
    assert!(dependences > 0, "only LLVM's runtime reports them");
    // It calls a function that only GCC's has.
    let later = Runtime::Libgomp.compile("later.c", &[]);
    let refused = record(
        &["--openmp", "libomp"],
        &search,
        &[later.to_str().expect("UTF-8")],
    );
    let (said, errors) = refused.said();
    assert_eq!(
        (refused.output.status.code(), &*said),
        (Some(2), ""),
        "{errors}"
    );
    assert!(errors.contains("calls GOMP_error, which "), "{errors}");
}

/// Runs a program alone and recorded with `--openmp on`: its output and its end are the same. Returns how often it was in parallel regions.
fn compare(environment: &[(&str, &str)], command: &[&str]) -> u64 {
    let mut alone = Command::new(command[0]);
    let alone = run(alone.args(&command[1..]).envs(environment.iter().copied()));
    let recorded = record(&["-q", "--openmp", "on"], environment, command);
    let (said, errors) = recorded.said();
    assert_eq!(said, String::from_utf8_lossy(&alone.stdout), "{errors}");
    assert_eq!(errors, String::from_utf8_lossy(&alone.stderr));
    assert_eq!(recorded.output.status.code(), alone.status.code());
    assert!(!said.is_empty(), "{errors}");
    let calls = recorded.calls();
    calls.get("!$omp parallel").copied().unwrap_or(0)
}

#[test]
fn programs_that_load_a_runtime_later_or_are_linked_to_it_run_as_they_do_alone() {
    let root = Path::new(ROOT).join("target/numpy/usr");
    assert!(
        root.is_dir(),
        "{} is missing: tests/run.sh sets it up",
        root.display()
    );
    let path = |below: &str| root.join(below).display().to_string();
    // With threads, and with an error at the end.
    let product = "import numpy, sys; a = numpy.arange(250000.).reshape(500, 500) % 7; print((a @ a).sum()); sys.exit(5)";
    let environment = [
        (
            "LD_LIBRARY_PATH",
            &*path("lib/x86_64-linux-gnu/openblas-openmp"),
        ),
        ("PYTHONPATH", &*path("lib/python3/dist-packages")),
        ("OMP_NUM_THREADS", "2"),
    ];
    let regions = compare(&environment, &["/usr/bin/python3", "-c", product]);
    assert!(regions > 0, "OpenBLAS works in parallel");
    let program = path("bin/clustalo");
    let input = path("share/doc/clustalo/examples/example.fa");
    let environment = [("LD_LIBRARY_PATH", &*path("lib/x86_64-linux-gnu"))];
    let command = [&*program, "--threads=2", "-i", &*input];
    assert!(compare(&environment, &command) > 0);
}

/// A library with parallel regions that is loaded and unloaded again and again.
#[test]
fn a_library_with_openmp_may_be_unloaded() {
    let plugin = Runtime::Libgomp.compile("plugin.c", &["-shared", "-fPIC"]);
    let program = Runtime::Libgomp.compile("loader.c", &["-fno-openmp", "-ldl"]);
    let [program, plugin] = [&program, &plugin].map(|path| path.to_str().expect("UTF-8"));
    assert_eq!(compare(&[], &[program, plugin]), 3 * 2);
}
