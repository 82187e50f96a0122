//! Programs of C++ with templates and containers: which function takes the time, and flags that leave short ones out.

use super::*;

/// Both compilers, with the flags of the README.
const COMPILERS: [(&str, &[&str]); 2] = [
    (
        "g++",
        &[
            "-finstrument-functions",
            "-finstrument-functions-exclude-file-list=/c++/",
        ],
    ),
    ("clang++", &["-finstrument-functions-after-inlining"]),
];

/// Compiles `paths.cpp` in its directory, as a user would.
fn compile(compiler: &str, flags: &[String], name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("compilers")
        .join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("paths");
    let mut compile = Command::new(compiler);
    compile.current_dir(Path::new(ROOT).join("tests/instrument"));
    compile
        .args(["-std=c++17", "-g", "-O2", "paths.cpp", "-o"])
        .arg(&program)
        .args(flags);
    output(&mut compile);
    program
}

fn strings(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

/// Records a program. Returns where.
fn recorded(program: &Path) -> PathBuf {
    let run = program.with_extension("run");
    output(
        trace_cli()
            .args(["record", "-o"])
            .arg(&run)
            .arg("--")
            .arg(program),
    );
    run
}

/// Returns what `regions` prints of a recording.
fn regions(recording: &Path) -> String {
    output(trace_cli().arg("regions").arg(recording))
}

fn names_roughness(said: &str) -> bool {
    let mut lines = said.lines();
    lines.any(|line| line.starts_with("roughness(") && line.contains(" took most time itself"))
}

fn calls(recording: &Path) -> u64 {
    let json = output(trace_cli().args(["regions", "--json"]).arg(recording));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let rows = json["regions"].as_array().expect("regions");
    rows.iter().filter_map(|row| row["calls"].as_u64()).sum()
}

#[test]
fn the_first_answer_names_the_function_that_gprof_names_whichever_compiler_made_it() {
    let plain = compile("g++", &strings(&["-pg"]), "compilers-gprof");
    let directory = plain.parent().expect("a directory");
    output(Command::new(&plain).current_dir(directory).arg("1000"));
    let mut gprof = Command::new("gprof");
    let profile = output(gprof.current_dir(directory).args(["-b", "-p"]).arg(&plain));
    let first = profile
        .lines()
        .find(|line| line.contains("roughness") || line.contains("shortest"));
    assert!(
        first.is_some_and(|line| line.contains("roughness")),
        "{profile}"
    );

    for (compiler, flags) in COMPILERS {
        let program = compile(compiler, &strings(flags), &format!("compilers-{compiler}"));
        let run = recorded(&program);
        let said = regions(&run);
        assert!(names_roughness(&said), "{compiler}: {said}");
        let dropped = output(trace_cli().arg("dropped").arg(&run));
        assert!(dropped.contains("nothing"), "{compiler}: {dropped}");
    }
}

#[test]
fn flags_are_printed_that_leave_out_what_is_shorter_than_its_recording() {
    for (compiler, family) in [("g++", "GCC "), ("clang++", "Clang ")] {
        let flags = strings(&["-finstrument-functions"]);
        let run = recorded(&compile(
            compiler,
            &flags,
            &format!("compilers-all-{compiler}"),
        ));
        let said = regions(&run);
        let first = said.lines().next().unwrap_or_default();
        assert!(
            first.contains("shorter than what recording a call costs"),
            "{said}"
        );
        // The time of its callees' recording makes no other function the first.
        let is_open = said.contains("Which function took most time itself is not known");
        assert!(names_roughness(&said) || is_open, "{compiler}: {said}");

        let json = output(trace_cli().args(["suggest-filter", "--json"]).arg(&run));
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let [of] = json["compiler_flags"].as_array().expect("flags").as_slice() else {
            panic!("{json}");
        };
        assert!(
            of["compiler"]
                .as_str()
                .is_some_and(|name| name.starts_with(family)),
            "{json}"
        );
        let more = of["flags"].as_array().expect("flags").iter();
        let more = more.map(|flag| flag.as_str().expect("a flag").to_owned());
        // Clang has one flag in place of the other.
        let all: Vec<String> = match compiler {
            "g++" => flags.into_iter().chain(more).collect(),
            _ => more.collect(),
        };
        let less = recorded(&compile(
            compiler,
            &all,
            &format!("compilers-less-{compiler}"),
        ));
        assert!(
            calls(&less) * 10 < calls(&run),
            "{all:?}: {} of {}",
            calls(&less),
            calls(&run)
        );
        assert!(names_roughness(&regions(&less)), "{}", regions(&less));
    }
}

#[test]
fn a_compiler_is_not_the_program_to_be_recorded() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instrument-compiler");
    let mut record = trace_cli();
    record
        .args(["record", "-o"])
        .arg(directory.join("run"))
        .args(["--", "c++", "-x", "c++"]);
    record
        .arg(Path::new(ROOT).join("tests/instrument/point.hpp"))
        .arg("-fsyntax-only");
    let said = text_of(&run(&mut record).stderr);
    assert!(
        said.contains("c++ is a compiler, not the program"),
        "{said}"
    );
}
