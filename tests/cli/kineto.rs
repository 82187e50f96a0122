//! Traces of PyTorch's profiler, against a reader in Python that shares nothing with these programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Number of slices and sum of their durations, by rank and name.
type Sums = BTreeMap<String, (u64, i64)>;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Returns a directory of samples, if they are here.
fn samples(name: &str) -> Option<PathBuf> {
    let path = Path::new(ROOT).join("../shared/reference/kineto-samples");
    let path = path.join(name);
    if !path.exists() {
        println!("NOT TESTED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

fn ranks(of: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(of).expect("samples");
    let paths = entries.map(|entry| entry.expect("a file").path());
    // Next to them, other tests convert them.
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    paths
}

fn cli(arguments: &[&str], inputs: &[PathBuf]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.arg(arguments[0]).args(inputs).args(&arguments[1..]);
    command.output().expect("trace-cli runs")
}

fn answer(arguments: &[&str], input: &Path) -> String {
    let output = cli(arguments, &[input.to_owned()]);
    let said = String::from_utf8_lossy(&output.stderr);
    // 3: of some ranks there is a part, or nothing.
    let is_read = matches!(output.status.code(), Some(0 | 3));
    assert!(is_read, "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

fn merge(inputs: &[PathBuf], output: &Path) -> (Option<i32>, String) {
    let output = output.to_str().expect("a name");
    let merged = cli(&["merge", "-o", output, "--force"], inputs);
    let said = String::from_utf8_lossy(&merged.stderr).into_owned();
    (merged.status.code(), said)
}

fn python(program: &Path, arguments: &[&Path]) -> Option<Value> {
    let reader = Path::new(ROOT).join("tests/kineto/reader.py");
    let output = Command::new(program)
        .arg(reader)
        .args(arguments)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

fn sums_of(value: &Value) -> Sums {
    let slices = value["slices"].as_object().expect("slices");
    let each = slices.iter().map(|(name, of)| {
        let number = |at: usize| of[at].as_i64().expect("a number");
        (name.clone(), (number(0) as u64, number(1)))
    });
    each.collect()
}

/// Returns the sums of the calls of a trace.
fn calls(trace: &Path) -> Sums {
    let table = trace.with_extension("csv");
    let table = table.to_str().expect("a name");
    answer(
        &["export", "--force", "--table", "calls", "-o", table],
        trace,
    );
    let text = std::fs::read_to_string(table).expect("a table");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let place = |name: &str| columns.iter().position(|column| *column == name);
    let at = ["rank", "region", "inclusive_ns"].map(|name| place(name).expect("a column"));
    let mut sums = Sums::new();
    for line in lines {
        let fields = csv(line);
        let [rank, region, inclusive] = at.map(|at| fields[at].as_str());
        let of = sums.entry(format!("{rank}\t{region}")).or_default();
        of.0 += 1;
        of.1 += inclusive.parse::<i64>().expect("a number");
    }
    sums
}

fn csv(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => fields.last_mut().expect("a field").push(c),
        }
    }
    fields
}

/// Returns the samples, as far as they are here.
fn all_samples() -> Vec<Vec<PathBuf>> {
    let jobs = ["gloo-2", "gloo-4-late"].into_iter().filter_map(samples);
    let mut all: Vec<Vec<PathBuf>> = jobs.map(|path| ranks(&path)).collect();
    // Ranks of a large job: not all of them are here.
    let sampled = [0, 1].map(|rank| samples(&format!("sampled_rank-{rank}.json.gz")));
    if let [Some(first), Some(second)] = sampled {
        all.push(vec![first, second]);
    }
    all
}

#[test]
fn slices_are_those_that_an_independent_reader_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("run.annals");
    for inputs in all_samples() {
        let paths: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let expected = python(Path::new("python3"), &paths).expect("python3");
        let (code, said) = merge(&inputs, &trace);
        // Not all ranks of the large job are here.
        assert!(matches!(code, Some(0 | 3)), "{said}");
        let (found, expected_sums) = (calls(&trace), sums_of(&expected));
        let differs = |(name, of): &(&String, &(u64, i64))| expected_sums.get(*name) != Some(*of);
        let wrong: Vec<_> = found.iter().filter(differs).take(5).collect();
        assert!(wrong.is_empty(), "{inputs:?}: {wrong:?}");
        assert_eq!(found.len(), expected_sums.len());
        let messages = cli(&["messages", "--json"], std::slice::from_ref(&trace));
        let messages: Value = serde_json::from_slice(&messages.stdout).expect("JSON");
        let pairs = messages["pairs"].as_array().expect("pairs").iter();
        let count: u64 = pairs
            .map(|pair| pair["count"].as_u64().expect("a count"))
            .sum();
        assert_eq!(json!(count), expected["flows"], "{inputs:?}");
    }
}

#[test]
fn a_perfetto_trace_of_all_ranks_has_the_slices_and_flows() {
    let program = Path::new(ROOT).join("target/export-python/bin/python");
    if !program.exists() {
        println!("NOT TESTED: tests/run.sh installs the package perfetto");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for inputs in all_samples() {
        let trace = directory.path().join("run.annals");
        merge(&inputs, &trace);
        let merged = directory.path().join("merged.pftrace");
        let (code, said) = merge(&inputs, &merged);
        assert!(matches!(code, Some(0 | 3)), "{said}");
        let read = python(&program, &[Path::new("--pftrace"), &merged]).expect("a reader");
        let read_sums = sums_of(&read).into_iter().map(|(name, of)| {
            let (process, name) = name.split_once('\t').expect("a process");
            let rank = process.split([' ', ',', ':']).nth(1).expect("a rank");
            (format!("{rank}\t{name}"), of)
        });
        assert_eq!(read_sums.collect::<Sums>(), calls(&trace));
        let paths: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let expected = python(Path::new("python3"), &paths).expect("python3");
        assert_eq!(read["flows"], expected["flows"]);
    }
}

#[test]
fn the_straggler_is_named_with_its_step_and_operator() {
    let Some(late) = samples("gloo-4-late") else {
        return;
    };
    let said = answer(&["why"], &late);
    assert!(
        said.starts_with("Rank 1 enters gloo:all_reduce") && said.contains("in 5 of 6 calls"),
        "{said}"
    );
    let table = answer(&["why", "--phase", "ProfilerStep*", "--csv"], &late);
    let lines: Vec<Vec<String>> = table.lines().map(csv).collect();
    let place = |name: &str| lines[0].iter().position(|column| column == name);
    let at = ["region", "late_rank", "late_ns", "late_region"].map(|name| place(name).expect(name));
    let late: Vec<&Vec<String>> = lines[1..]
        .iter()
        .filter(|line| line[at[1]] == "1" && line[at[2]].parse::<i64>().unwrap_or(0) > 9_000_000)
        .collect();
    let steps: Vec<&str> = late.iter().map(|line| line[at[0]].as_str()).collect();
    let expected = [2, 3, 5, 6, 7].map(|step| format!("ProfilerStep#{step}"));
    assert_eq!(steps, expected);
    assert!(late.iter().all(|line| line[at[3]] == "gloo:all_reduce"));
}

#[test]
fn a_rank_that_is_missing_or_damaged_is_named_and_the_others_are_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = directory.path().join("run.annals");
    let Some(late) = samples("gloo-4-late") else {
        return;
    };
    let whole = ranks(&late);
    merge(&whole, &trace);
    let all = calls(&trace);
    let of_rank_2 = |name: &&String| name.starts_with("2\t");
    let others = all.iter().filter(|(name, _)| !of_rank_2(name));
    let others: Sums = others.map(|(name, of)| (name.clone(), *of)).collect();
    let bytes = std::fs::read(&whole[2]).expect("a file");
    let mut json = Vec::new();
    let mut gunzip = Command::new("gzip");
    json.extend(
        gunzip
            .arg("-dc")
            .arg(&whole[2])
            .output()
            .expect("gzip")
            .stdout,
    );
    let damaged: [(&str, Option<&[u8]>); 6] = [
        ("is missing", None),
        ("is empty", Some(&[])),
        ("is cut", Some(&bytes[..bytes.len() / 2])),
        ("is cut before its events", Some(&bytes[..200])),
        ("has other bytes", Some(&[7; 4096])),
        (
            "is no JSON from somewhere on",
            Some(&json[..json.len() / 2]),
        ),
    ];
    for (what, contents) in damaged {
        let name = match what {
            "is no JSON from somewhere on" => "rank2.json",
            _ => "rank2.json.gz",
        };
        let part = directory.path().join(name);
        let mut inputs = whole.clone();
        inputs.remove(2);
        if let Some(contents) = contents {
            std::fs::write(&part, contents).expect("a file");
            inputs.push(part);
        }
        let (code, said) = merge(&inputs, &trace);
        assert_eq!(code, Some(3), "{what}: {said}");
        assert!(
            said.contains("rank2") || said.contains("no recording of rank 2"),
            "{what}: {said}"
        );
        let found = calls(&trace);
        let found = found.iter().filter(|(name, _)| !of_rank_2(name));
        let found: Sums = found.map(|(name, of)| (name.clone(), *of)).collect();
        assert!(found == others, "{what}");
        for command in ["info", "regions", "collectives", "why"] {
            let output = cli(&[command], std::slice::from_ref(&trace));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("of rank 2"), "{what}, {command}: {said}");
        }
    }
}

/// Returns a trace with these members, as a file.
fn written(directory: &Path, name: &str, trace: &Value) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, trace.to_string()).expect("a file");
    path
}

fn slice(category: &str, name: &str, thread: u32, from: f64, duration: f64, args: &Value) -> Value {
    let process = if category == "kernel" { 0 } else { 1 };
    json!({"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": from, "dur": duration, "args": args})
}

#[test]
fn a_collective_is_counted_once_whichever_of_its_events_are_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let descriptor = json!({"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float",
        "Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 7, "External id": 5, "correlation": 9});
    let nothing = json!({});
    let five = [
        slice("cpu_op", "c10d::allreduce_", 10, 1.0, 9.0, &nothing),
        slice("cpu_op", "record_param_comms", 10, 2.0, 7.0, &descriptor),
        slice("user_annotation", "nccl:all_reduce", 10, 3.0, 5.0, &nothing),
        slice(
            "gpu_user_annotation",
            "nccl:all_reduce",
            20,
            6.0,
            20.0,
            &nothing,
        ),
        slice(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
            20,
            6.0,
            20.0,
            &descriptor,
        ),
    ];
    let launch = slice(
        "cuda_runtime",
        "cudaLaunchKernel",
        10,
        4.0,
        1.0,
        &json!({"correlation": 9}),
    );
    for which in 1..32_u32 {
        let chosen = five.iter().enumerate();
        let chosen = chosen.filter(|(number, _)| which >> number & 1 == 1);
        let mut events: Vec<&Value> = chosen.map(|(_, event)| event).collect();
        events.push(&launch);
        let inputs = [0, 1].map(|rank| {
            let groups = json!([{"pg_name": "0", "ranks": [0, 1]}]);
            let info = json!({"rank": rank, "world_size": 2, "pg_config": groups});
            // The rank is after the events.
            let trace =
                json!({"traceEvents": events, "zDistributedInfo": 0, "distributedInfo": info});
            written(directory.path(), &format!("{rank}.json"), &trace)
        });
        let trace = directory.path().join("run.annals");
        let (code, said) = merge(&inputs, &trace);
        assert_eq!(code, Some(0), "{said}");
        let found = cli(&["collectives", "--json"], &[trace]);
        let found: Value = serde_json::from_slice(&found.stdout).expect("JSON");
        let operations = found["collectives"].as_array().expect("collectives");
        let counts: Vec<&Value> = operations.iter().map(|of| &of["count"]).collect();
        assert_eq!(counts, [&json!(1)], "{which:05b}: {found}");
    }
}

#[test]
fn times_are_exact_and_what_does_not_nest_is_in_another_lane() {
    let directory = tempfile::tempdir().expect("a directory");
    let event = |name: &str, from: &str, duration: &str| {
        format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":2,"ts":{from},"dur":{duration}}}"#
        )
    };
    let events = [
        event("outer", "1682725898236567.001", "100.250"),
        event("inner", "1682725898236567.001", "0.001"),
        event("across", "1682725898236600.5", "100"),
        event("last", "1682725898236667.251", "1"),
    ];
    let text = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    let path = directory.path().join("rank0.json");
    std::fs::write(&path, text).expect("a file");
    let trace = directory.path().join("run.annals");
    let (code, said) = merge(&[path], &trace);
    assert_eq!(code, Some(0), "{said}");
    let found = calls(&trace);
    let expected = [
        ("outer", 100_250),
        ("inner", 1),
        ("across", 100_000),
        ("last", 1_000),
    ];
    let expected = expected.map(|(name, ns)| (format!("0\t{name}"), (1, ns)));
    assert_eq!(found, Sums::from(expected));
    let info = answer(&["info"], &trace);
    assert!(info.contains("1 events overlap others"), "{info}");
}
