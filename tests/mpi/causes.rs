//! Real programs in which one cause makes ranks wait: `trace-cli why` names its rank, its region and what it is, first.

use std::process::Command;

use serde_json::Value;

use crate::support::{Flavour, flavours, output, prefix, scratch, source};

/// Instances of a cause, and how long each makes a rank late: as in `causes.c`.
const STEPS: u64 = 20;
const LATE_NS: u64 = 20_000_000;

struct Cause {
    name: &'static str,
    /// What others wait in, most of the time: one of these.
    patterns: &'static [&'static str],
    /// Ranks that cause it as much as each other, any of which may be the first, and the region.
    ranks: &'static [u64],
    region: &'static str,
    /// How many ranks wait for each instance; 0 if that differs.
    waiters: u64,
    /// What the first sentence says.
    says: &'static [&'static str],
}

/// The first ones are planted with both libraries, the others with one of them, unless ANNALS_LONG is set.
const CAUSES: [Cause; 15] = [
    Cause {
        name: "late_sender",
        patterns: &["late-sender"],
        ranks: &[2],
        waiters: 1,
        region: "assemble",
        says: &[
            "Rank 2 sends",
            "late to MPI_Recv in 20 messages",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "late_broadcast",
        patterns: &["late-broadcast"],
        ranks: &[3],
        waiters: 3,
        region: "assemble",
        says: &[
            "Rank 3, the root, enters MPI_Bcast",
            "late in each of 20 calls",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "imbalance",
        patterns: &["barrier"],
        ranks: &[1],
        waiters: 3,
        region: "assemble",
        says: &[
            "Rank 1 enters MPI_Barrier",
            "late in",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "pipeline",
        patterns: &["late-sender"],
        ranks: &[0, 1, 2],
        waiters: 0,
        region: "assemble",
        says: &[
            "Ranks 0, 1 and 2 work one after another in assemble",
            "wait in MPI_Recv",
        ],
    },
    Cause {
        name: "wrong_order",
        patterns: &["wrong-order"],
        ranks: &[0],
        waiters: 0,
        region: "",
        says: &["Rank 0 receives in the wrong order: MPI_Recv waits"],
    },
    Cause {
        name: "overload",
        patterns: &["late-sender"],
        ranks: &[0],
        waiters: 2,
        region: "assemble",
        says: &[
            "Rank 0 sends",
            "through other ranks",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "ring",
        patterns: &["late-sender", "late-receiver"],
        ranks: &[1],
        waiters: 3,
        region: "assemble",
        says: &["Rank 1 ", "MPI_Sendrecv", "its extra time is in assemble."],
    },
    Cause {
        name: "halo",
        patterns: &["late-sender", "late-receiver"],
        ranks: &[2],
        waiters: 3,
        region: "assemble",
        says: &["Rank 2 ", "MPI_Waitall", "its extra time is in assemble."],
    },
    Cause {
        name: "workers",
        patterns: &["late-sender"],
        ranks: &[2],
        waiters: 3,
        region: "assemble",
        says: &["Rank 2 sends", "its extra time is in assemble."],
    },
    Cause {
        name: "tree",
        patterns: &["late-sender"],
        ranks: &[3],
        waiters: 3,
        region: "assemble",
        says: &["Rank 3 sends", "its extra time is in assemble."],
    },
    Cause {
        name: "one_sided",
        patterns: &["fence"],
        ranks: &[1],
        waiters: 3,
        region: "assemble",
        says: &[
            "Rank 1 enters MPI_Win_fence",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "two_communicators",
        patterns: &["all-to-all"],
        ranks: &[3],
        waiters: 1,
        region: "assemble",
        says: &[
            "Rank 3 enters MPI_Allreduce",
            "in each of 20 calls",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "callers",
        patterns: &["barrier"],
        ranks: &[1, 2],
        waiters: 3,
        region: "assemble",
        says: &["enters MPI_Barrier", " > assemble."],
    },
    Cause {
        name: "hybrid",
        patterns: &["barrier"],
        ranks: &[2],
        waiters: 3,
        region: "assemble",
        says: &[
            "Rank 2 enters MPI_Barrier",
            "its extra time is in assemble.",
        ],
    },
    Cause {
        name: "nothing",
        patterns: &[],
        ranks: &[],
        waiters: 0,
        region: "",
        says: &["No rank "],
    },
];

/// Records the program with one cause, and returns what `trace-cli why` says of it, as text and as JSON.
fn why(flavour: &Flavour, program: &std::path::Path, cause: &Cause, round: u32) -> (String, Value) {
    let name = format!("cause-{}-{}-{round}", flavour.name, cause.name);
    why_of(flavour, program, &[cause.name], &name, &[])
}

/// Asserts that one of five runs has no mistake: others may be disturbed. With `ANNALS_LONG=1`, each.
fn assert_right(run: impl Fn(u32) -> Option<String>) {
    let mistakes: Vec<String> = match is_long() {
        true => (0..5).filter_map(run).collect(),
        false => (0..5).map_while(run).collect(),
    };
    let most = if is_long() { 0 } else { 4 };
    assert!(mistakes.len() <= most, "{mistakes:#?}");
}

/// Records a program with these arguments into this directory, and returns what `trace-cli why` says of it, as text and as JSON.
fn why_of(
    flavour: &Flavour,
    program: &std::path::Path,
    arguments: &[&str],
    name: &str,
    options: &[&str],
) -> (String, Value) {
    let record = Command::new(prefix().join("bin/trace-cli"));
    why_by(record, flavour, program, arguments, name, options)
}

/// Does what [`why_of`] says, with this command in place of `trace-cli`.
fn why_by(
    mut record: Command,
    flavour: &Flavour,
    program: &std::path::Path,
    arguments: &[&str],
    name: &str,
    options: &[&str],
) -> (String, Value) {
    let recording = scratch().join(name);
    record
        .arg("record")
        .arg("-o")
        .arg(&recording)
        .args(options)
        .arg("--");
    let launch = flavour.launch("");
    record.arg(launch.get_program()).args(launch.get_args());
    for (name, value) in launch.get_envs() {
        match value {
            Some(value) => record.env(name, value),
            None => record.env_remove(name),
        };
    }
    // Ranks that wait leave the processors to those that work.
    record.env("OMPI_MCA_mpi_yield_when_idle", "1");
    output(record.arg(program).args(arguments));
    let ask = |more: &[&str]| {
        let mut ask = Command::new(prefix().join("bin/trace-cli"));
        output(ask.arg("why").arg(&recording).args(more))
    };
    let json = serde_json::from_str(&ask(&["--json"])).expect("JSON");
    (ask(&[]), json)
}

/// Returns why an answer does not name the cause that was planted, first, and with what each instance costs.
fn mistake(text: &str, found: &Value, cause: &Cause) -> Option<String> {
    let first = text.lines().next().unwrap_or_default();
    // Where ranks that spin leave no processor to those that work, others are late as well.
    let has_processors = std::thread::available_parallelism().is_ok_and(|has| has.get() > 4);
    if cause.ranks.is_empty() && !has_processors && text.contains("may be the choice of the system")
    {
        return None;
    }
    if let Some(missing) = cause.says.iter().find(|part| !first.contains(**part)) {
        return Some(format!("`{missing}` is not in the first sentence: {text}"));
    }
    let others = text.lines().filter(|line| line.starts_with("- "));
    if is_long() && has_processors && cause.ranks.len() == 1 && others.count() > 0 {
        return Some(format!("other ranks are named: {text}"));
    }
    if cause.ranks.is_empty() {
        return None;
    }
    let row = &found["causes"][0];
    let path = row["extra"][0]["path"].as_array();
    let region = path.and_then(|path| path.last()?.as_str()).unwrap_or("");
    // Of the path, and of all that the rank did: ranks that spin in MPI take the processor from `solve`, too, and of two that
    // are waited for one after another, each gets a part.
    let of_row = |name: &str| row[name].as_f64().unwrap_or(0.0);
    let of_path = row["extra"][0]["cost_ns"].as_f64().unwrap_or(0.0) / of_row("direct_ns");
    let costs_ns = [of_path * of_row("cost_ns"), of_row("cost_ns")];
    let operations = row["operations"].as_u64().unwrap_or(0);
    let rank = row["rank"].as_u64();
    let planted_ns = (cause.waiters * STEPS * LATE_NS) as f64;
    // A busy machine wakes a rank later than it asked, and makes those late that wait for it.
    let is_cost_right = match is_long() && planted_ns > 0.0 {
        true => costs_ns[0] <= 1.2 * planted_ns && costs_ns[1] >= 0.8 * planted_ns,
        false => costs_ns[1] >= planted_ns / 2.0,
    };
    let is_right = rank.is_some_and(|rank| cause.ranks.contains(&rank))
        && cause
            .patterns
            .iter()
            .any(|pattern| row["pattern"] == *pattern)
        && region == cause.region
        && operations >= STEPS
        && is_cost_right;
    (!is_right).then(|| format!("another cause: {row}"))
}

/// Whether the machine does nothing else.
fn is_long() -> bool {
    std::env::var_os("ANNALS_LONG").is_some()
}

/// What a rank does between tests counts as useful, and is named as such.
#[test]
fn time_between_tests_that_find_nothing_is_named() {
    let mut flavours = flavours();
    let flavour = flavours.find(|flavour| flavour.name == "mpich");
    let flavour = flavour.expect("a library");
    let polling = Cause {
        name: "polling",
        patterns: &[],
        ranks: &[],
        waiters: 0,
        region: "",
        says: &[],
    };
    let (text, _) = why(&flavour, &compiled(&flavour), &polling, 0);
    let said = text.lines().find(|line| line.contains("counts as useful"));
    let said = said.unwrap_or_else(|| panic!("{text}"));
    assert!(said.starts_with("Rank 0 spends"), "{said}");
}

fn compiled(flavour: &Flavour) -> std::path::PathBuf {
    let program = scratch().join(format!("causes-{}", flavour.name));
    let mut compile = flavour.compile();
    compile.args(["-O1", "-g", "-finstrument-functions", "-rdynamic"]);
    output(compile.arg(source("causes.c")).arg("-o").arg(&program));
    program
}

/// On a busy machine, ranks wait for other reasons as well: one of five runs must show the cause, and what it costs
/// others is known to half of it only. With `ANNALS_LONG=1`, each of five runs must show it, to 20 %.
#[test]
fn why_names_the_rank_the_region_and_the_cause_that_was_planted() {
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let program = compiled(&flavour);
        let is_short = flavour.name != "mpich" && !is_long();
        for cause in CAUSES.iter().take(if is_short { 6 } else { CAUSES.len() }) {
            let run = |round| {
                let (text, found) = why(&flavour, &program, cause, round);
                let mistake = mistake(&text, &found, cause);
                mistake.map(|mistake| format!("{} {}: {mistake}", flavour.name, cause.name))
            };
            assert_right(run);
        }
    }
}

/// Where the system refuses perf_event_open, timers take the samples.
#[test]
fn why_names_the_function_of_a_program_that_is_sampled_by_timers() {
    let refuse = scratch().join("refuse");
    let mut compiler = Command::new("cc");
    compiler.arg(source("../instrument/refuse.c")).arg("-o");
    output(compiler.arg(&refuse));
    let planted = [
        (
            "../../viewer-cli/book/src/heat.c",
            "30",
            "Rank 2 enters MPI_Allreduce",
            "burn (heat.c:",
        ),
        (
            "causes.c",
            "late_sender",
            "Rank 2 sends",
            "assemble > rest (causes.c:",
        ),
    ];
    let flavours = flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name));
    let cells = flavours.flat_map(|flavour| planted.map(|planted| (flavour.clone(), planted)));
    for (flavour, (file, argument, late, place)) in cells.take(if is_long() { 4 } else { 1 }) {
        let program = scratch().join(format!("timed-{}-{argument}", flavour.name));
        let mut compile = flavour.compile();
        compile
            .args(["-O2", "-g", "-fomit-frame-pointer", "-DBUSY"])
            .arg(source(file));
        output(compile.arg("-o").arg(&program).arg("-lm"));
        let run = |round: u32| {
            let name = format!("timed-{}-{argument}-{round}", flavour.name);
            let mut record = Command::new(&refuse);
            record.arg(prefix().join("bin/trace-cli"));
            let (text, _) = why_by(
                record,
                &flavour,
                &program,
                &[argument],
                &name,
                &["--sample"],
            );
            let first = text.lines().next().unwrap_or_default();
            let is_right = first.starts_with(late) && first.contains(place);
            (!is_right).then(|| format!("{} {file}: {text}", flavour.name))
        };
        assert_right(run);
    }
}

/// Programs without instrumentation, compiled as users do: samples show the function and its line. On a busy machine, one of five runs must;
/// with `ANNALS_LONG=1`, each.
#[test]
fn why_names_the_function_and_the_line_of_a_program_that_is_sampled() {
    let planted = [
        (
            "causes.c",
            "late_sender",
            "Rank 2 sends",
            "assemble > rest (causes.c:",
        ),
        (
            "causes.c",
            "late_broadcast",
            "Rank 3, the root, enters MPI_Bcast",
            "assemble > rest (causes.c:",
        ),
        (
            "causes.c",
            "imbalance",
            "Rank 1 enters MPI_Barrier",
            "assemble > rest (causes.c:",
        ),
        (
            "causes.c",
            "hybrid",
            "Rank 2 enters MPI_Barrier",
            "its extra time is in rest (causes.c:",
        ),
        (
            "../../viewer-cli/book/src/heat.c",
            "30",
            "Rank 2 enters MPI_Allreduce",
            "burn (heat.c:",
        ),
        ("../../viewer-cli/book/src/heat.c", "30 balanced", "", ""),
    ];
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        for (number, (file, arguments, late, place)) in planted.iter().enumerate() {
            let program = scratch().join(format!("sampled-{}-{number}", flavour.name));
            let mut compile = flavour.compile();
            compile
                .args(["-O2", "-g", "-fomit-frame-pointer", "-DBUSY"])
                .arg(source(file));
            output(compile.arg("-o").arg(&program).arg("-lm"));
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let run = |round: u32| {
                let name = format!("sampled-{}-{number}-{round}", flavour.name);
                let (text, _) = why_of(&flavour, &program, &arguments, &name, &["--sample"]);
                let first = text.lines().next().unwrap_or_default();
                let is_right = match place.is_empty() {
                    // Ranks that share processors are late by turns.
                    true => {
                        !text.contains("burn (") || text.contains("may be the choice of the system")
                    }
                    false => first.starts_with(late) && first.contains(place),
                };
                (!is_right).then(|| format!("{} {file} {arguments:?}: {text}", flavour.name))
            };
            assert_right(run);
        }
    }
}

/// A cause of waiting that is planted in a program of some language, in the lines of `file` that are marked with `extra`.
struct Planted {
    file: &'static str,
    argument: &'static str,
    late: &'static str,
    /// Parts of names of functions, one of which is named.
    functions: &'static [&'static str],
}

/// Without ANNALS_LONG, the first one is tried, with one library.
const PLANTED: [Planted; 4] = [
    Planted {
        file: "planted.cpp",
        argument: "message",
        late: "Rank 2 sends",
        functions: &["swept", "assemble"],
    },
    Planted {
        file: "planted.cpp",
        argument: "threads",
        late: "Rank 2 enters MPI_Barrier",
        functions: &["swept", "assemble"],
    },
    Planted {
        file: "planted.F90",
        argument: "",
        late: "Rank 1 enters MPI_Barrier",
        functions: &["work::assemble"],
    },
    Planted {
        file: "planted.rs",
        argument: "",
        late: "Rank 2 sends",
        functions: &[
            "planted::swept",
            "planted::assemble",
            "Root as planted::Kernel",
        ],
    },
];

impl Planted {
    /// Compiles it as users do, with the MPI of Fortran where the library has one. Rust, and Fortran without it, call MPI through C.
    fn compiled(&self, flavour: &Flavour) -> std::path::PathBuf {
        let directory = flavour.scratch().join(self.file.replace('.', "-"));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (program, through_c) = (directory.join("planted"), directory.join("through_c.o"));
        let options = ["-O2", "-g", "-fomit-frame-pointer"];
        if !flavour.has_fortran() {
            let mut compile = flavour.compile();
            compile.args(options).arg("-c").arg(source("planted_mpi.c"));
            output(compile.arg("-o").arg(&through_c));
        }
        match (self.file, flavour.compile_fortran()) {
            ("planted.cpp", _) => {
                let mut compile = flavour.compile_cpp();
                compile.args(options).arg("-pthread").arg(source(self.file));
                output(compile.arg("-o").arg(&program));
            }
            ("planted.rs", _) => {
                let mut linked = std::ffi::OsString::from("link-arg=");
                linked.push(&through_c);
                let mut linker = std::ffi::OsString::from("linker=");
                linker.push(flavour.compile().get_program());
                let mut compile = Command::new("rustc");
                compile.args([
                    "--edition",
                    "2024",
                    "-C",
                    "opt-level=2",
                    "-C",
                    "debuginfo=2",
                ]);
                compile
                    .args(["-C", "force-frame-pointers=no", "-C"])
                    .arg(linker);
                compile.arg("-C").arg(linked).arg(source(self.file));
                output(compile.arg("-o").arg(&program));
            }
            (_, Some(mut compile)) => {
                compile.args(options).args(["-cpp", "-DMODULE", "-J"]);
                compile.arg(&directory).arg(source(self.file));
                output(compile.arg("-o").arg(&program));
            }
            (_, None) => {
                eprintln!(
                    "NOT TESTED: the module `mpi` of Fortran with the wheel {}, which has none",
                    flavour.name
                );
                let mut compile = Command::new("gfortran");
                compile
                    .args(options)
                    .args(["-cpp", "-c", "-J"])
                    .arg(&directory);
                let object = directory.join("planted.o");
                output(compile.arg(source(self.file)).arg("-o").arg(&object));
                let mut link = flavour.compile();
                link.arg(object).arg(&through_c).args(["-lgfortran", "-lm"]);
                output(link.arg("-o").arg(&program));
            }
        }
        program
    }

    /// Returns why the first sentence does not name the rank, the function and a line of the cause.
    fn mistake(&self, text: &str) -> Option<String> {
        let first = text.lines().next().unwrap_or_default();
        let code = std::fs::read_to_string(source(self.file)).expect("the program");
        let is_extra = |line: usize| {
            let line = code.lines().nth(line - 1);
            line.is_some_and(|line| line.trim_end().ends_with("extra"))
        };
        let place = first.split_once(&format!(" ({}:", self.file));
        let line = place.and_then(|(_, rest)| rest.split(')').next()?.parse().ok());
        let is_right = first.starts_with(self.late)
            && self.functions.iter().any(|name| first.contains(name))
            && line.is_some_and(is_extra);
        (!is_right).then(|| format!("{} {}: {text}", self.file, self.argument))
    }
}

/// Templates and generic functions that are inlined, modules of Fortran, threads: optimised, without frame pointers. On a busy machine, one of five
/// runs must show the cause; with `ANNALS_LONG=1`, each, in all languages.
#[test]
fn why_names_what_is_planted_in_each_language() {
    let mut wrong = Vec::new();
    for flavour in flavours().filter(|flavour| flavour.name != "mpich-standard") {
        for (number, planted) in PLANTED.iter().enumerate() {
            let is_first = number == 0 && flavour.name == "mpich";
            if !is_first && !is_long() || flavour.has_fortran() && planted.file != "planted.F90" {
                continue;
            }
            let program = planted.compiled(&flavour);
            let run = |round: u32| {
                let name = format!("planted-{}-{number}-{round}", flavour.name);
                let arguments = [planted.argument];
                let arguments = if planted.argument.is_empty() {
                    &[][..]
                } else {
                    &arguments
                };
                let (text, _) = why_of(&flavour, &program, arguments, &name, &["--sample"]);
                let mistake = planted.mistake(&text)?;
                Some(format!("{} {mistake}", flavour.name))
            };
            let mistakes: Vec<String> = match is_long() {
                true => (0..5).filter_map(run).collect(),
                false => (0..5).map_while(run).collect(),
            };
            if is_long() || mistakes.len() == 5 {
                wrong.extend(mistakes);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
