//! `trace-cli samples`: known samples are found where they were taken, however they are asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_format::names::property::{NOT_SAMPLED, SAMPLING};
use annals_merger::{MergeOptions, no_progress};
use annals_test_support::samples::{Deed, SampledRank, module_of, recording, write};
use annals_test_support::synthetic::Random;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// What `trace-cli` printed: exit code, standard output, standard error.
fn samples(input: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg("samples").arg(input).args(arguments);
    let output = command.env("NO_COLOR", "1").output().expect("trace-cli");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn printed(input: &Path, arguments: &[&str]) -> String {
    let (code, out, said) = samples(input, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {said}");
    out
}

fn json_of(input: &Path, arguments: &[&str]) -> Value {
    let text = printed(input, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the recordings of ranks, and the trace that is merged of them.
fn inputs(directory: &Path, ranks: &[SampledRank]) -> [PathBuf; 2] {
    let recordings = directory.join("recordings");
    std::fs::create_dir(&recordings).expect("a directory");
    write(&recordings, ranks);
    let trace = directory.join("run.annals");
    let plan = MergeOptions::default().plan(std::slice::from_ref(&recordings));
    let plan = plan.expect("recordings");
    plan.write_trace(&trace, no_progress).expect("a trace");
    [recordings, trace]
}

/// Returns samples each millisecond.
fn each_ms(
    from_ms: u64,
    count: u64,
    calls: &'static [&'static str],
) -> impl Iterator<Item = (u64, Deed)> {
    (from_ms..from_ms + count).map(move |ms| (ms * MS, Deed::Sample(calls, MS)))
}

const PROPERTY: (&str, &str) = (SAMPLING, "perf-event 1000000");

/// A rank with a solver that MPI follows, with recursion, a cut path, an inlined function and lost samples; and one that only relaxes.
fn heat() -> Vec<SampledRank> {
    let mut first = vec![(0, Deed::Enter("main")), (10 * MS, Deed::Enter("solve"))];
    first.extend(each_ms(11, 60, &["main:50", "relax:61"]));
    first.extend(each_ms(71, 30, &["main:50", "relax:62", "exp"]));
    first.push((101 * MS, Deed::Leave("solve")));
    first.push((102 * MS, Deed::Enter("MPI_Barrier")));
    first.extend(each_ms(
        103,
        10,
        &["main:51", "MPI_Barrier", "opal_progress"],
    ));
    first.push((113 * MS, Deed::Leave("MPI_Barrier")));
    first.extend(each_ms(114, 5, &["main:52", "fib:5", "fib:5", "fib:6"]));
    first.extend(each_ms(119, 3, &["?", "relax:61"]));
    first.extend(each_ms(122, 2, &["main:50", "+1140"]));
    first.push((125 * MS, Deed::Lost(7)));
    first.push((130 * MS, Deed::Leave("main")));
    let mut second = vec![(0, Deed::Enter("main"))];
    second.extend(each_ms(11, 20, &["main:50", "relax:61"]));
    second.push((130 * MS, Deed::Leave("main")));
    let rank = |deeds| SampledRank {
        threads: vec![deeds],
        properties: vec![PROPERTY],
        lacks_samples: false,
    };
    vec![rank(first), rank(second)]
}

/// Returns by name: milliseconds in it itself, and in all.
fn times(answer: &Value, name: &str) -> BTreeMap<String, (u64, u64)> {
    let rows = answer["rows"].as_array().expect("rows").iter();
    let rows = rows.map(|row| {
        let ms = |name: &str| row[name].as_u64().expect("a time") / MS;
        let name = row[name].as_str().expect("a name").to_owned();
        (name, (ms("self_ns"), ms("total_ns")))
    });
    rows.collect()
}

fn expected(times: &[(&str, (u64, u64))]) -> BTreeMap<String, (u64, u64)> {
    let times = times.iter();
    times.map(|(name, ms)| ((*name).to_owned(), *ms)).collect()
}

#[test]
fn functions_have_their_samples_and_recursion_counts_once() {
    let scratch = tempfile::tempdir().expect("a directory");
    for input in inputs(scratch.path(), &heat()) {
        let answer = json_of(&input, &[]);
        let wanted = [
            ("relax", (83, 115)),
            ("exp", (30, 30)),
            ("opal_progress", (10, 10)),
            ("fib", (5, 5)),
            ("stencil", (2, 2)),
            ("main", (0, 127)),
            ("MPI_Barrier", (0, 10)),
            ("(unknown)", (0, 3)),
        ];
        assert_eq!(times(&answer, "function"), expected(&wanted));
        assert_eq!(answer["by"], "function");
        assert_eq!(answer["samples"], 130);
        assert_eq!(answer["time_ns"], 130 * MS);
        assert_eq!(answer["error_ns"], 11_401_754);
        assert_eq!(answer["lost"], 7);
        assert_eq!(answer["lost_is_lower_bound"], false);
        assert_eq!(answer["cut"], 3);
        let sampling = json!([{"engine": "perf-event", "period_ns": MS, "ranks": [0, 1]}]);
        assert_eq!(answer["sampling"], sampling);
        assert_eq!(answer["not_sampled"], json!([]));
        let relax = &answer["rows"][0];
        let error = (83.0_f64.sqrt() * MS as f64).round() as u64;
        assert_eq!(relax["self_error_ns"], error);
        assert_eq!(relax["samples"], 83);
        assert_eq!(relax["total_samples"], 115);
        assert_eq!(
            (&relax["file"], &relax["line"]),
            (&json!("heat.c"), &json!(10))
        );
        assert_eq!(relax["module"], "heat");
        assert_eq!(relax["is_uncertain"], true);
    }
}

#[test]
fn lines_modules_and_ranks_have_theirs() {
    let scratch = tempfile::tempdir().expect("a directory");
    for input in inputs(scratch.path(), &heat()) {
        let answer = json_of(&input, &["--by", "module"]);
        let wanted = [
            ("heat", (90, 130)),
            ("libm.so.6", (30, 30)),
            ("libmpi.so.40", (10, 10)),
            ("(unknown)", (0, 3)),
        ];
        assert_eq!(times(&answer, "module"), expected(&wanted));
        assert_eq!(answer["rows"][0]["function"], Value::Null);
        let answer = json_of(&input, &["--by", "line"]);
        let line = |function: &str, file: &str, line: u64| {
            let rows = answer["rows"].as_array().expect("rows");
            let is_it = |row: &&Value| {
                row["function"] == function && row["file"] == file && row["line"] == line
            };
            let row = rows.iter().find(is_it).expect("a row of the line");
            [&row["self_ns"], &row["total_ns"]].map(|ns| ns.as_u64().expect("a time") / MS)
        };
        assert_eq!(line("relax", "heat.c", 61), [83, 83]);
        assert_eq!(line("relax", "heat.c", 62), [0, 30]);
        assert_eq!(line("relax", "heat.c", 25), [0, 2]);
        assert_eq!(line("stencil", "heat.h", 5), [2, 2]);
        assert_eq!(line("fib", "heat.c", 5), [0, 5]);
        assert_eq!(line("main", "heat.c", 50), [0, 112]);
        let csv = printed(&input, &["--by", "rank,function", "--csv", "--top", "2"]);
        assert_eq!(
            csv,
            "function,rank,location,module,file,line,samples,self_ns,self_error_ns,total_samples,total_ns,total_error_ns,\
             is_uncertain\n\
             relax,0,,heat,heat.c,10,63,63000000,7937254,95,95000000,9746794,true\n\
             exp,0,,libm.so.6,,0,30,30000000,5477226,30,30000000,5477226,true\n"
        );
        let answer = json_of(&input, &["--by", "location", "--rank", "1"]);
        assert_eq!(answer["rows"][0]["location"], "main");
        assert_eq!(answer["rows"][0]["is_uncertain"], false);
        assert_eq!(
            (&answer["samples"], &answer["lost"]),
            (&json!(20), &json!(0))
        );
    }
}

#[test]
fn the_terminal_says_which_function_takes_most_and_how_certain_that_is() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(scratch.path(), &heat());
    let text = printed(&trace, &[]);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some(
            "relax took most processor time itself: about 83.00 ms ± 9.110 ms, 63.8 % of what was sampled in the run."
        )
    );
    assert_eq!(
        lines.next(),
        Some(
            "130 samples, one each 1.000 ms of processor time, by perf-event. 7 samples are lost. The outermost callers of 3 samples are \
             not known."
        )
    );
    let text = printed(&trace, &["--by", "line,rank", "--rank", "1"]);
    assert!(
        text.starts_with("heat.c:61 in relax of rank 1 took most processor time itself: 20.00 ms ± 4.472 ms, 100.0 %"),
        "{text}"
    );
    let text = printed(&trace, &["--by", "module"]);
    assert!(
        text.starts_with("heat took most processor time itself: about 90.00 ms"),
        "{text}"
    );
    let text = printed(&trace, &["--tree", "--top", "3"]);
    let rows: Vec<&str> = text.lines().skip(4).collect();
    assert_eq!(rows.len(), 3, "{text}");
    for (row, name) in rows.into_iter().zip(["  main", "    relax", "      exp"]) {
        assert!(row.ends_with(name), "{text}");
    }
}

#[test]
fn two_functions_that_differ_by_less_than_chance_are_both_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut deeds: Vec<_> = each_ms(1, 50, &["main", "relax"]).collect();
    deeds.extend(each_ms(51, 45, &["main", "norm"]));
    let ranks = [SampledRank {
        threads: vec![deeds],
        properties: vec![
            (SAMPLING, "timer 1000000"),
            (NOT_SAMPLED, "perf_event_open is not permitted"),
        ],
        lacks_samples: false,
    }];
    let [_, trace] = inputs(scratch.path(), &ranks);
    let text = printed(&trace, &[]);
    assert!(
        text.starts_with(
            "relax or norm took most processor time itself: 50.00 ms ± 7.071 ms, 52.6 %, and 45.00 ms ± 6.708 ms, 47.4 % of what was \
             sampled in the run; the difference is within the statistical error.\n\
             95 samples, one each 1.000 ms of processor time, by timer. Rank 0 is not sampled, or not all threads: perf_event_open is \
             not permitted.\n"
        ),
        "{text}"
    );
}

#[test]
fn windows_regions_and_mpi_choose_samples() {
    let scratch = tempfile::tempdir().expect("a directory");
    for input in inputs(scratch.path(), &heat()) {
        let answer = json_of(&input, &["--from", "11ms", "--to", "21ms"]);
        assert_eq!(answer["samples"], 20);
        assert_eq!(answer["lost"], 0);
        let answer = json_of(&input, &["--within", "sol*"]);
        assert_eq!(answer["samples"], 90);
        let wanted = [("relax", (60, 90)), ("exp", (30, 30)), ("main", (0, 90))];
        assert_eq!(times(&answer, "function"), expected(&wanted));
        let answer = json_of(&input, &["--within", "solve", "--from", "66ms"]);
        assert_eq!(answer["samples"], 35);
        let answer = json_of(&input, &["--within", "main"]);
        assert_eq!(answer["samples"], 130);
        let answer = json_of(&input, &["--outside-mpi"]);
        assert_eq!(answer["samples"], 120);
        assert!(!times(&answer, "function").contains_key("opal_progress"));
        let none = ["--within", "MPI_Barrier", "--outside-mpi"];
        assert_eq!(json_of(&input, &none)["rows"], json!([]));
        let text = printed(&input, &none);
        let first = text.lines().next();
        let said = "No sample was taken in the run in calls of MPI_Barrier outside of MPI.";
        assert_eq!(first, Some(said));
        assert_eq!(printed(&input, &[&none[..], &["--folded"]].concat()), "");
        let (code, _, said) = samples(&input, &["--within", "sovle"]);
        assert_eq!(code, Some(1));
        assert!(said.contains("region") && said.contains("solve"), "{said}");
        let (code, _, said) = samples(&input, &["--by", "line,module"]);
        assert_eq!(code, Some(2));
        assert!(said.contains("one of function, line and module"), "{said}");
    }
}

#[test]
fn the_report_has_the_functions() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(scratch.path(), &heat());
    let page = scratch.path().join("heat.html");
    let mut report = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    report.arg("report").arg(&trace).arg("-o").arg(&page);
    assert!(report.status().expect("it runs").success());
    let page = std::fs::read_to_string(&page).expect("a page");
    let (_, section) = page.split_once("id=\"samples\"").expect("a section");
    let said = "relax took most processor time itself";
    assert!(
        section.contains(said) && section.contains("130 samples"),
        "{section}"
    );
}

/// The page shows functions of what is selected: a window, and some rows.
#[test]
fn functions_of_a_selection_are_served() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(scratch.path(), &heat());
    let served = crate::serve::serve(&[&trace]);
    let functions = |query: &str| {
        let answer = served.ask(&format!("samples?{query}"));
        let rows = answer["functions"].as_array().expect("rows").clone();
        let own = rows.iter().filter(|row| row["self_ns"] != 0);
        let own = own.map(|row| (row["function"].clone(), row["self_ns"].clone()));
        (answer["samples"].clone(), own.collect::<Vec<_>>())
    };
    let relax = |ms: u64| vec![(json!("relax"), json!(ms * MS))];
    // Trace time starts at the first event.
    assert_eq!(
        functions("from=11000000&to=21000000"),
        (json!(20), relax(20))
    );
    assert_eq!(
        functions("from=11000000&to=21000000&lanes=t0.0"),
        (json!(10), relax(10))
    );
    let plain = [SampledRank {
        threads: vec![vec![(0, Deed::Enter("main")), (MS, Deed::Leave("main"))]],
        properties: Vec::new(),
        lacks_samples: true,
    }];
    let other = scratch.path().join("other");
    std::fs::create_dir(&other).expect("a directory");
    let [_, trace] = inputs(&other, &plain);
    let served = crate::serve::serve(&[&trace]);
    assert_eq!(served.ask("samples?from=0&to=9"), Value::Null);
}

/// An OTF2 archive of a run has its samples, and what they represent.
#[test]
fn archives_that_are_written_have_the_samples() {
    for seed in 1..4 {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut ranks = random_ranks(seed, 2, 300);
        for deeds in ranks.iter_mut().flat_map(|rank| &mut rank.threads) {
            // In archives, losses are markers.
            deeds.retain(|(_, deed)| !matches!(deed, Deed::Lost(_)));
        }
        let [_, trace] = inputs(scratch.path(), &ranks);
        let archive = scratch.path().join("run.otf2");
        let mut merge = Command::new(crate::trace_merge());
        merge.arg("-q").arg(&trace).arg("-o").arg(&archive);
        assert!(merge.status().expect("it runs").success());
        let rows = |input: &Path| {
            let answer = json_of(input, &["--by", "line,rank"]);
            let rows = answer["rows"].as_array().expect("rows").clone();
            let names = [
                "function", "file", "line", "rank", "samples", "self_ns", "total_ns",
            ];
            let mut rows: Vec<_> = rows
                .iter()
                .map(|row| names.map(|name| row[name].to_string()))
                .collect();
            rows.sort();
            (answer["samples"].clone(), answer["cut"].clone(), rows)
        };
        assert_eq!(rows(&archive), rows(&trace), "seed {seed}");
    }
}

#[test]
fn functions_of_mpi_are_known_without_calls_that_are_recorded() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut deeds: Vec<_> = each_ms(1, 4, &["main", "relax"]).collect();
    deeds.extend(each_ms(5, 3, &["main", "MPI_Send", "relax"]));
    deeds.extend(each_ms(8, 2, &["opal_progress"]));
    deeds.extend(each_ms(10, 1, &["0x10"]));
    deeds.extend(each_ms(11, 1, &["+1200"]));
    let ranks = [SampledRank {
        threads: vec![deeds],
        ..SampledRank::default()
    }];
    for input in inputs(scratch.path(), &ranks) {
        let answer = json_of(&input, &["--outside-mpi"]);
        let wanted = [
            ("main", (0, 4)),
            ("relax", (4, 4)),
            ("0x10", (1, 1)),
            ("heat+0x1200", (1, 1)),
        ];
        assert_eq!(times(&answer, "function"), expected(&wanted));
        let answer = json_of(&input, &["--outside-mpi", "--by", "module"]);
        let wanted = [("heat", (5, 5)), ("(unknown)", (1, 1))];
        assert_eq!(times(&answer, "module"), expected(&wanted));
        assert!(printed(&input, &[]).contains("\n11 samples.\n"));
    }
}

#[test]
fn a_trace_without_samples_says_how_to_record_them_or_why_there_are_none() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut rank = SampledRank {
        threads: vec![vec![(0, Deed::Enter("main")), (MS, Deed::Leave("main"))]],
        properties: Vec::new(),
        lacks_samples: true,
    };
    let [_, trace] = inputs(scratch.path(), &[rank.clone()]);
    let (code, out, said) = samples(&trace, &[]);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(said.contains("`trace-cli record --sample"), "{said}");
    rank.properties.push((NOT_SAMPLED, "no timer."));
    let other = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(other.path(), &[rank.clone()]);
    let (code, _, said) = samples(&trace, &[]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("Rank 0 is not sampled, or not all threads: no timer."),
        "{said}"
    );
    // A type of samples, but no sample; and samples that represent nothing.
    rank.lacks_samples = false;
    let other = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(other.path(), &[rank.clone()]);
    let text = printed(&trace, &[]);
    assert!(
        text.starts_with("No sample was taken in the run.\n0 samples."),
        "{text}"
    );
    assert_eq!(json_of(&trace, &["--tree"])["tree"], json!([]));
    rank.threads[0].insert(1, (1, Deed::Sample(&["main"], 0)));
    let other = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(other.path(), &[rank]);
    let text = printed(&trace, &[]);
    assert!(
        text.starts_with("The samples in the run represent no processor time."),
        "{text}"
    );
    assert!(!text.contains("NaN"), "{text}");
}

/// Returns the nanoseconds of each folded stack.
fn folded(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().map(|line| {
        let (stack, ns) = line.rsplit_once(' ').expect("a value");
        (stack.to_owned(), ns.parse().expect("nanoseconds"))
    });
    lines.collect()
}

#[test]
fn folded_stacks_and_profiles_of_speedscope_have_every_sample() {
    let scratch = tempfile::tempdir().expect("a directory");
    for input in inputs(scratch.path(), &heat()) {
        assert_eq!(
            printed(&input, &["--folded"]),
            "rank 0;main;main;relax 60000000\n\
             rank 0;main;main;relax;exp 30000000\n\
             rank 0;main;main;relax;stencil 2000000\n\
             rank 0;main;main;MPI_Barrier;opal_progress 10000000\n\
             rank 0;main;main;fib;fib;fib 5000000\n\
             rank 0;main;(unknown);relax 3000000\n\
             rank 1;main;main;relax 20000000\n"
        );
        let file = scratch.path().join("heat.speedscope.json");
        let name = file.to_str().expect("a path");
        assert_eq!(printed(&input, &["--speedscope", name]), "");
        let bytes = std::fs::read(&file).expect("the profile");
        let profile: Value = serde_json::from_slice(&bytes).expect("JSON");
        let schema = "https://www.speedscope.app/file-format-schema.json";
        assert_eq!(profile["$schema"], schema);
        let frames = profile["shared"]["frames"].as_array().expect("frames");
        let relax = json!({"name": "relax", "file": "heat.c", "line": 10});
        assert!(frames.contains(&relax) && frames.contains(&json!({"name": "exp"})));
        let name_of = |number: &Value| {
            let frame = &frames[number.as_u64().expect("a number") as usize];
            frame["name"].as_str().expect("a name").to_owned()
        };
        let profiles = profile["profiles"].as_array().expect("profiles");
        assert_eq!(profiles.len(), 2);
        let first = &profiles[0];
        assert_eq!(first["type"], "sampled");
        assert_eq!(first["unit"], "nanoseconds");
        assert_eq!(first["name"], "rank 0 main");
        assert_eq!(
            (&first["startValue"], &first["endValue"]),
            (&json!(0), &json!(110 * MS))
        );
        // Samples with one path that follow each other are one.
        let weights = json!([60 * MS, 30 * MS, 10 * MS, 5 * MS, 3 * MS, 2 * MS]);
        assert_eq!(first["weights"], weights);
        let stacks = first["samples"].as_array().expect("stacks");
        let stacks = stacks.iter().map(|stack| {
            let calls = stack.as_array().expect("a stack").iter();
            calls.map(name_of).collect::<Vec<_>>().join(";")
        });
        let stacks: Vec<String> = stacks.collect();
        assert_eq!(stacks[1], "main;relax;exp");
        assert_eq!(stacks[3], "main;fib;fib;fib");
        assert_eq!(stacks[5], "main;relax;stencil");
    }
}

#[test]
fn the_tree_has_callers_before_what_they_call() {
    let scratch = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(scratch.path(), &heat());
    let answer = json_of(&trace, &["--tree"]);
    let rows = answer["tree"].as_array().expect("rows");
    let brief = rows.iter().map(|row| {
        let ms = |name: &str| row[name].as_u64().expect("a time") / MS;
        let name = row["function"].as_str().expect("a name");
        (row["parent"].as_u64(), name, ms("total_ns"), ms("self_ns"))
    });
    assert_eq!(
        brief.collect::<Vec<_>>(),
        [
            (None, "main", 127, 0),
            (Some(0), "relax", 112, 80),
            (Some(1), "exp", 30, 30),
            (Some(1), "stencil", 2, 2),
            (Some(0), "MPI_Barrier", 10, 0),
            (Some(4), "opal_progress", 10, 10),
            (Some(0), "fib", 5, 0),
            (Some(6), "fib", 5, 0),
            (Some(7), "fib", 5, 5),
            (None, "(unknown)", 3, 0),
            (Some(9), "relax", 3, 3),
        ]
    );
}

const FUNCTIONS: [&str; 6] = ["main:1", "relax:2", "relax:3", "exp", "fib:4", "?"];

/// Returns a path that lives as long as the tests.
fn random_path(random: &mut Random) -> &'static [&'static str] {
    let depth = random.draw() % 6 + 1;
    let call = |_| FUNCTIONS[(random.draw() % FUNCTIONS.len() as u64) as usize];
    Vec::leak((0..depth).map(call).collect())
}

/// Ranks with two threads, whose samples have any paths and weights, in calls and outside.
fn random_ranks(seed: u64, ranks: usize, samples: u64) -> Vec<SampledRank> {
    let mut random = Random::new(seed);
    let paths: Vec<_> = (0..40).map(|_| random_path(&mut random)).collect();
    let mut thread = || {
        let mut deeds = Vec::new();
        for number in 0..samples {
            let at_ns = number * 1_000;
            if number % 8 == 0 {
                deeds.push((at_ns, Deed::Enter("solve")));
            }
            let path = paths[(random.draw() % 40) as usize];
            deeds.push((at_ns + 10, Deed::Sample(path, random.draw() % 10_000)));
            if number % 8 == 3 {
                deeds.push((at_ns + 20, Deed::Leave("solve")));
            }
        }
        deeds
    };
    let rank = |_| SampledRank {
        threads: vec![thread(), thread()],
        ..SampledRank::default()
    };
    (0..ranks).map(rank).collect()
}

/// Adds up samples as simply as it can be done: by name, in it itself and anywhere on the path.
fn oracle(ranks: &[SampledRank], name: fn(&str) -> String) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let deeds = ranks.iter().flat_map(|rank| rank.threads.iter().flatten());
    for (_, deed) in deeds {
        let Deed::Sample(calls, ns) = deed else {
            continue;
        };
        let mut names: Vec<String> = calls.iter().map(|call| name(call)).collect();
        sums.entry(names[names.len() - 1].clone()).or_default().0 += ns;
        names.sort_unstable();
        names.dedup();
        for name in names {
            sums.entry(name).or_default().1 += ns;
        }
    }
    sums
}

fn function(call: &str) -> String {
    let name = call.split(':').next().unwrap_or_default();
    name.replace('?', "(unknown)")
}

fn module(call: &str) -> String {
    match call {
        "?" => "(unknown)".to_owned(),
        call => module_of(&function(call)).to_owned(),
    }
}

fn line(call: &str) -> String {
    let (name, line) = call.split_once(':').unwrap_or((call, "0"));
    format!("{}:{line}", function(name))
}

#[test]
fn sums_are_those_of_the_samples_one_by_one() {
    for seed in 1..4 {
        let ranks = random_ranks(seed, 3, 500);
        let all: u64 = oracle(&ranks, function).values().map(|sums| sums.0).sum();
        let scratch = tempfile::tempdir().expect("a directory");
        for input in inputs(scratch.path(), &ranks) {
            for (by, name) in [
                ("function", function as fn(&str) -> String),
                ("line", line),
                ("module", module),
            ] {
                let expected = oracle(&ranks, name);
                for by in [
                    by.to_owned(),
                    format!("{by},rank"),
                    format!("{by},location"),
                ] {
                    let answer = json_of(&input, &["--by", &by]);
                    assert_eq!(answer["time_ns"], all);
                    let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
                    for row in answer["rows"].as_array().expect("rows") {
                        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
                        let name = match by.split(',').next() {
                            Some("module") => text("module"),
                            Some("line") => format!("{}:{}", text("function"), row["line"]),
                            _ => text("function"),
                        };
                        let ns = |name: &str| row[name].as_u64().expect("a time");
                        assert!(ns("total_ns") >= ns("self_ns"), "{row}");
                        let sums = found.entry(name).or_default();
                        sums.0 += ns("self_ns");
                        sums.1 += ns("total_ns");
                    }
                    assert_eq!(found, expected, "{by}");
                }
            }
            let stacks = folded(&printed(&input, &["--folded"]));
            assert_eq!(stacks.values().sum::<u64>(), all);
        }
    }
}

#[test]
fn slices_of_a_trace_add_up_to_the_whole() {
    let ranks = random_ranks(5, 8, 60_000);
    let scratch = tempfile::tempdir().expect("a directory");
    let [recordings, trace] = inputs(scratch.path(), &ranks);
    let file = scratch.path().join("profile.json");
    let name = file.to_str().expect("a path");
    for arguments in [
        &["--by", "location"][..],
        &["--within", "solve", "--from", "5ms"],
        &["--tree"],
    ] {
        let mut answers = Vec::new();
        for (input, jobs) in [(&recordings, "1"), (&trace, "1"), (&trace, "4")] {
            let more = ["--json", "--jobs", jobs, "--speedscope", name];
            let text = printed(input, &[arguments, &more].concat());
            let mut profile: Value =
                serde_json::from_slice(&std::fs::read(&file).expect("a profile")).expect("JSON");
            // The title is that of the input.
            profile["name"] = Value::Null;
            answers.push((text, profile["profiles"].to_string().len()));
        }
        assert_eq!(answers[1], answers[2], "{arguments:?}");
        assert_eq!(answers[0], answers[1], "{arguments:?}");
    }
}

#[test]
fn very_deep_paths_take_neither_memory_nor_time() {
    let deep: &'static [&'static str] = Vec::leak(vec!["fib:4"; 40_000]);
    let count = 2_000;
    let deeds = (1..=count).map(|number| {
        let path = &deep[..(number * 20) as usize];
        (number * 1_000, Deed::Sample(path, 1_000))
    });
    let ranks = [SampledRank {
        threads: vec![deeds.collect()],
        ..SampledRank::default()
    }];
    let scratch = tempfile::tempdir().expect("a directory");
    let [_, trace] = inputs(scratch.path(), &ranks);
    let answer = json_of(&trace, &[]);
    assert_eq!(answer["rows"][0]["self_ns"], count * 1_000);
    assert_eq!(answer["rows"][0]["total_ns"], count * 1_000);
    let stacks = folded(&printed(&trace, &["--folded"]));
    assert_eq!(stacks.values().sum::<u64>(), count * 1_000);
    // The rank and the thread are around the calls.
    assert!(stacks.keys().all(|stack| stack.split(';').count() <= 514));
    let file = scratch.path().join("deep.json");
    printed(&trace, &["--speedscope", file.to_str().expect("a path")]);
    assert!(std::fs::metadata(&file).expect("a profile").len() < 16 << 20);
}

#[test]
fn the_sampled_recording_in_the_tree_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/samples/heat.annals");
    if std::env::var_os("ANNALS_BLESS").is_some() {
        std::fs::write(&path, recording(0, 1, &heat()[0])).expect("a recording");
    }
    let answer = json_of(&path, &["--top", "1"]);
    assert_eq!(times(&answer, "function"), expected(&[("relax", (63, 95))]));
    assert_eq!(answer["rows_total"], 8);
}
