//! Functions that are called for the first time just before a program ends have their names, however it ends.

use std::io::BufRead;

use super::*;

/// The program and its plug-in, compiled as C.
fn crash() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().expect("a directory");
    compile_c("crash.c", &scratch.path().join("crash"), &["-ldl"]);
    let plugin = scratch.path().join("libplugin.so");
    compile_c("crash_plugin.c", &plugin, &["-shared", "-fPIC"]);
    scratch
}

/// Returns the names of the regions that are entered last, from the outermost on.
fn last_enters(run: &Path, count: usize) -> Vec<String> {
    let printed = output(trace_cli().arg("print").arg(run));
    let enters = printed.lines().filter_map(|line| {
        let (event, region) = line.rsplit_once(" region=")?;
        event.ends_with(" enter").then(|| region.to_owned())
    });
    let enters: Vec<String> = enters.collect();
    enters[enters.len().saturating_sub(count)..].to_vec()
}

/// `trace-cli record -o RUN -- crash HOW PLUGIN`.
fn record_crash(scratch: &Path, run: &Path, how: &str) -> Command {
    let mut record = trace_cli();
    record.arg("record").arg("-o").arg(run).arg("--");
    record.arg(scratch.join("crash")).arg(how);
    record.arg(scratch.join("libplugin.so"));
    record
}

/// Starts the program without `trace-cli record`, with its library preloaded.
fn preloaded(scratch: &Path, run: &Path, how: &str) -> Command {
    let mut program = Command::new(scratch.join("crash"));
    program.arg(how).arg(scratch.join("libplugin.so"));
    program.env_clear().env("ANNALS_DIR", run);
    let library = prefix().join("lib/libannals_instrument.so");
    program.env("LD_PRELOAD", library);
    program
}

#[test]
fn functions_in_which_a_program_ends_have_their_names() {
    let scratch = crash();
    for how in ["crash", "kill", "abort", "exit", "plugin"] {
        for round in 0..4 {
            let run_directory = scratch.path().join(format!("{how}-{round}"));
            run(&mut record_crash(scratch.path(), &run_directory, how));
            let expected: &[&str] = match how {
                "plugin" => &["crashing", "deep", "plugged", "inner"],
                _ => &["leaf", "crashing", "deep"],
            };
            assert_eq!(
                last_enters(&run_directory, expected.len()),
                expected,
                "{how}, round {round}"
            );
            let regions = regions(&run_directory, &["--region", "deep"]);
            assert_eq!(regions[0]["open_calls"], 1, "{how}: {regions:?}");
        }
    }
}

#[test]
fn functions_are_named_when_nothing_has_completed_the_recording() {
    let scratch = crash();
    let run_directory = scratch.path().join("run");
    let killed = preloaded(scratch.path(), &run_directory, "plugin").output();
    assert_eq!(killed.expect("it runs").status.signal(), Some(11));
    let expected = ["crashing", "deep", "plugged", "inner"];
    assert_eq!(last_enters(&run_directory, 4), expected);
    // A merge has them, too.
    let trace = scratch.path().join("run.annals");
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    let merged = run(merge.arg(&run_directory).arg("-o").arg(&trace));
    assert_eq!(merged.status.code(), Some(3), "its process was killed");
    assert_eq!(last_enters(&trace, 4), expected);
    // A recovery keeps them: without the program, and without the live file.
    recover(&[&run_directory]);
    std::fs::remove_file(scratch.path().join("crash")).expect("the program");
    std::fs::remove_file(scratch.path().join("libplugin.so")).expect("its plug-in");
    assert_eq!(last_enters(&run_directory, 4), expected);
    output(trace_cli().arg("verify").arg(&trace).arg(&run_directory));
}

#[test]
fn functions_of_a_run_that_hangs_are_named_also_when_its_recorder_is_killed() {
    let scratch = crash();
    let run_directory = scratch.path().join("run");
    let mut record = record_crash(scratch.path(), &run_directory, "hang");
    let mut record = record.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    let printed = record.stdout.take().expect("a pipe");
    let read = std::io::BufReader::new(printed).read_line(&mut line);
    assert_eq!((read.expect("a line"), line.trim()), (6, "hangs"));
    let expected = ["leaf", "crashing", "deep"];
    assert_eq!(last_enters(&run_directory, 3), expected, "while it hangs");
    record.kill().expect("a signal");
    record.wait().expect("its end");
    assert_eq!(
        last_enters(&run_directory, 3),
        expected,
        "without trace-cli"
    );
    let info = output(trace_cli().arg("info").arg(&run_directory).arg("--json"));
    let info: Value = serde_json::from_str(&info).expect("JSON");
    let pid = info["processes"][0]["pid"].as_u64().expect("a process");
    output(Command::new("kill").args(["-KILL", &pid.to_string()]));
    assert_eq!(last_enters(&run_directory, 3), expected, "after kill -9");
}

/// How a program ends that is in `hot`, while a thread of it waits in `idle`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// `main` returns.
    Finished,
    /// Another thread calls `exit`.
    ExitInThread,
    /// `exit` in `hot`.
    Exit,
    Abort,
    Segv,
    /// SIGKILL of the program.
    Killed,
    /// SIGKILL of `trace-cli record`; then the program kills itself.
    RecordKilled,
    /// SIGKILL of both.
    AllKilled,
    /// A time limit ends it.
    Limit,
    /// Without `trace-cli record`, by SIGKILL.
    Alone,
    /// It has not ended.
    Hanging,
}

const ENDINGS: [Ending; 11] = [
    Ending::Finished,
    Ending::ExitInThread,
    Ending::Exit,
    Ending::Abort,
    Ending::Segv,
    Ending::Killed,
    Ending::RecordKilled,
    Ending::AllKilled,
    Ending::Limit,
    Ending::Alone,
    Ending::Hanging,
];

/// The program of these endings, and what it has noted itself.
struct Hot {
    scratch: tempfile::TempDir,
}

/// Kills what hangs when it is dropped, also if a test has failed.
struct Hanging(std::process::Child);

impl Drop for Hanging {
    fn drop(&mut self) {
        let program = format!("/{}", self.0.id());
        let children = std::fs::read_to_string(format!("/proc{program}/task{program}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_whitespace().map(str::to_owned);
        let pids: Vec<String> = pids.chain([self.0.id().to_string()]).collect();
        let _ = Command::new("kill").arg("-KILL").args(pids).status();
        let _ = self.0.wait();
    }
}

impl Hot {
    fn new() -> Self {
        let scratch = tempfile::tempdir().expect("a directory");
        compile_c("hot.c", &scratch.path().join("hot"), &["-pthread"]);
        Self { scratch }
    }

    fn run_directory(&self, ending: Ending) -> PathBuf {
        self.scratch.path().join(format!("{ending:?}"))
    }

    /// How long the thread is known to have been in `idle`, seconds.
    fn truth_s(&self, ending: Ending) -> f64 {
        let bytes = std::fs::read(self.run_directory(ending).with_extension("truth"));
        let bytes = bytes.expect("the program has started");
        let (times, _) = bytes.as_chunks::<8>();
        f64::from_le_bytes(times[1]) - f64::from_le_bytes(times[0])
    }

    /// Records the program until it has ended in this way; what hangs is returned.
    fn record(&self, ending: Ending) -> Option<Hanging> {
        let run_directory = self.run_directory(ending);
        let how = match ending {
            Ending::Finished => "finish",
            Ending::ExitInThread => "thread",
            Ending::Exit => "exit",
            Ending::Abort => "abort",
            Ending::Segv => "segv",
            Ending::Killed | Ending::Alone | Ending::RecordKilled => "kill",
            Ending::AllKilled | Ending::Limit | Ending::Hanging => "hang",
        };
        let mut program = match ending {
            Ending::Alone => Command::new(self.scratch.path().join("hot")),
            _ => {
                let mut record = trace_cli();
                record.arg("record").arg("-q").arg("-o").arg(&run_directory);
                record.arg("--");
                if ending == Ending::Limit {
                    record.args(["timeout", "-s", "KILL", "0.6"]);
                }
                record.arg(self.scratch.path().join("hot"));
                record
            }
        };
        if ending == Ending::Alone {
            let library = prefix().join("lib/libannals_instrument.so");
            program.env_clear().env("ANNALS_DIR", &run_directory);
            program.env("LD_PRELOAD", library);
        }
        let truth = run_directory.with_extension("truth");
        program.arg(how).arg(&truth).stderr(Stdio::null());
        let mut started = Hanging(program.spawn().expect("it runs"));
        if !matches!(
            ending,
            Ending::RecordKilled | Ending::AllKilled | Ending::Hanging
        ) {
            started.0.wait().expect("its end");
            return None;
        }
        let in_idle = || std::fs::metadata(&truth).is_ok_and(|file| file.len() != 0);
        while !in_idle() || self.truth_s(ending) < 0.3 {
            std::thread::sleep(Duration::from_millis(10));
        }
        match ending {
            Ending::Hanging => return Some(started),
            Ending::AllKilled => drop(started),
            _ => {
                started.0.kill().expect("a signal");
                started.0.wait().expect("its end");
                // The program runs for 200 ms more.
                std::thread::sleep(Duration::from_millis(400));
            }
        }
        None
    }
}

/// What is said of the time in `idle`: seconds, how many more it may be, and whether it is marked as uncertain.
type Said = (f64, f64, bool);

/// Returns the number before a unit of time at the start of a text, in seconds, and whether `~` precedes it.
fn time_of(text: &str) -> Said {
    let text = text.trim_start();
    let (is_uncertain, text) = match text.strip_prefix('~') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut words = text.split_whitespace();
    let number: f64 = words
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(-1.0);
    let unit = words
        .next()
        .unwrap_or_default()
        .trim_end_matches(|letter: char| !letter.is_alphabetic());
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => panic!("no time: {text}"),
    };
    (number * scale, 0.0, is_uncertain)
}

/// Returns the part of a text that follows another one.
fn after<'a>(text: &'a str, what: &str) -> &'a str {
    let found = text.find(what);
    &text[found.unwrap_or_else(|| panic!("no {what:?} in {text}")) + what.len()..]
}

/// Returns what a command prints of an input; its other arguments follow.
fn printed(command: &[&str], input: &Path) -> String {
    let mut cli = trace_cli();
    let printed = run(cli.arg(command[0]).arg(input).args(&command[1..]));
    let code = printed.status.code();
    assert!(
        matches!(code, Some(0 | 3)),
        "{command:?}: {}",
        text_of(&printed.stderr)
    );
    text_of(&printed.stdout)
}

fn row_of_idle(command: &[&str], field: &str, input: &Path) -> Said {
    let printed: Value = serde_json::from_str(&printed(command, input)).expect("JSON");
    let rows = printed[field].as_array().expect("rows");
    let row = rows
        .iter()
        .find(|row| row["region"] == "idle")
        .expect("idle");
    let seconds = |field: &str| row[field].as_f64().unwrap_or(0.0) * 1e-9;
    // Of a tree, all times of a path with an uncertain call are.
    let is_uncertain = row["time_is_uncertain"] == true || row["is_uncertain"] == true;
    (
        seconds("inclusive_ns"),
        seconds("inclusive_more_ns"),
        is_uncertain,
    )
}

/// What is asked, and how its answer is read.
type Answer = (&'static str, fn(&Path) -> Said);

/// Every command and export that shows times.
const ANSWERS: [Answer; 15] = [
    ("regions", |input| {
        row_of_idle(&["regions", "--json"], "regions", input)
    }),
    ("regions --from", |input| {
        row_of_idle(&["regions", "--json", "--from", "0ns"], "regions", input)
    }),
    ("regions --by location", |input| {
        row_of_idle(&["regions", "--json", "--by", "location"], "regions", input)
    }),
    ("regions --tree", |input| {
        let text = printed(&["regions", "--tree"], input);
        let line = text
            .lines()
            .find(|line| line.ends_with("  idle"))
            .expect("idle");
        time_of(after(line, "1 "))
    }),
    ("flat", |input| {
        let text = printed(&["flat", "--by", "rank"], input);
        let line = text
            .lines()
            .find(|line| line.starts_with("idle "))
            .expect("idle");
        time_of(after(line, " 1 "))
    }),
    ("timeline", |input| {
        time_of(after(&printed(&["timeline"], input), " idle "))
    }),
    ("export csv", |input| {
        let text = printed(
            &["export", "-f", "csv", "--table", "calls", "-o", "-"],
            input,
        );
        let line = text
            .lines()
            .find(|line| line.contains(",idle,"))
            .expect("idle");
        let fields: Vec<&str> = line.split(',').collect();
        let [ns, is_uncertain, ended] = [7, 11, 12].map(|at| fields[at]);
        assert_eq!(ended, "open");
        (
            ns.parse::<f64>().expect("a number") * 1e-9,
            0.0,
            is_uncertain == "true",
        )
    }),
    ("export jsonl", |input| {
        let text = printed(
            &["export", "-f", "jsonl", "--table", "calls", "-o", "-"],
            input,
        );
        let rows = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let rows: Vec<Value> = rows.collect();
        let row = rows
            .iter()
            .find(|row| row["region"] == "idle")
            .expect("idle");
        assert_eq!(row["ended"], "open");
        let ns = row["inclusive_ns"].as_f64().expect("a number");
        (ns * 1e-9, 0.0, row["is_uncertain"] == true)
    }),
    ("export chrome", |input| {
        let text = printed(&["export", "-f", "chrome", "-o", "-"], input);
        let trace: Value = serde_json::from_str(&text).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events").iter();
        let of_idle: Vec<&Value> = events.filter(|event| event["name"] == "idle").collect();
        assert_eq!(
            (of_idle.len(), &of_idle[1]["args"]["ended"]),
            (2, &"open".into())
        );
        let [from, to] = [0, 1].map(|at| of_idle[at]["ts"].as_f64().expect("a time"));
        let is_uncertain = of_idle[1]["args"]["uncertain"] == true;
        ((to - from) * 1e-6, 0.0, is_uncertain)
    }),
    ("export folded", |input| {
        // Of a stack, this format has nothing but a number.
        let text = printed(&["export", "-f", "folded", "-o", "-"], input);
        let line = text.lines().find_map(|line| line.strip_prefix("idle "));
        let ns: f64 = line.expect("idle").parse().expect("a number");
        (ns * 1e-9, 0.0, true)
    }),
    ("export mermaid", |input| {
        let text = printed(&["export", "-f", "mermaid", "-o", "-"], input);
        time_of(after(after(&text, "idle<br/>"), "1 calls, "))
    }),
    ("export dot", |input| {
        let text = printed(&["export", "-f", "dot", "-o", "-"], input);
        time_of(after(after(&text, "idle\\n"), "calls\\n"))
    }),
    ("merge", |input| {
        let trace = merged(input, "annals");
        row_of_idle(&["regions", "--json"], "regions", &trace)
    }),
    ("merge to OTF2", |input| {
        let archive = merged(input, "otf2");
        row_of_idle(&["regions", "--json"], "regions", &archive)
    }),
    ("slice", |input| {
        let trace = merged(input, "annals");
        let part = trace.with_extension("part.annals");
        let mut slice = trace_cli();
        output(
            slice
                .arg("slice")
                .arg(&trace)
                .args(["--to", "60s", "--force", "-o"])
                .arg(&part),
        );
        row_of_idle(&["regions", "--json"], "regions", &part)
    }),
];

/// Merges a run, and returns the output.
fn merged(input: &Path, extension: &str) -> PathBuf {
    let output = input.with_extension(format!("merged.{extension}"));
    let mut merge = Command::new(prefix().join("bin/trace-merge"));
    run(merge.arg(input).arg("--force").arg("-o").arg(&output));
    output
}

/// A program that waited for a process knows its exit; the end of another one is known by its last heartbeat.
#[test]
fn calls_that_are_open_at_the_end_last_until_then_however_it_ends() {
    // Between a signal and the end of a process, and between two notes of the program about itself.
    const TOLERANCE_S: f64 = 0.1;
    let program = Hot::new();
    let is_long = std::env::var("ANNALS_LONG").is_ok_and(|long| long == "1");
    for (number, ending) in ENDINGS.into_iter().enumerate() {
        let hanging = program.record(ending);
        let run_directory = program.run_directory(ending);
        for (column, (what, ask)) in ANSWERS.into_iter().enumerate() {
            // Without ANNALS_LONG, the table of regions and two more of each row.
            if !is_long && column != 0 && (column + number) % 5 != 0 {
                continue;
            }
            let least_s = program.truth_s(ending);
            let (said_s, more_s, is_uncertain) = ask(&run_directory);
            let most_s = program.truth_s(ending);
            let of = format!("{ending:?}, {what}: {said_s} s and up to {more_s} s more");
            assert!(is_uncertain, "{of}, not marked");
            // Its end is known up to 100 ms where nothing waited for it, and not each format has room for that.
            let is_guessed = matches!(
                ending,
                Ending::RecordKilled | Ending::AllKilled | Ending::Alone
            );
            let unsaid_s = if is_guessed { 0.1 } else { 0.0 };
            assert!(said_s <= most_s + TOLERANCE_S, "{of}, truly {most_s} s");
            let upper_s = said_s + more_s.max(unsaid_s);
            // Where `exit` is called, the recording is finished then: on a busy machine, threads run on for some time.
            let calls_exit = matches!(
                ending,
                Ending::Finished | Ending::Exit | Ending::ExitInThread
            );
            let late_s = if calls_exit { 1.0 } else { TOLERANCE_S };
            assert!(
                upper_s >= least_s - late_s.min(least_s / 2.0),
                "{of}, truly {least_s} s"
            );
            if column == 0 && is_guessed {
                assert!(more_s > 0.0, "{of}");
            }
        }
        let text = printed(&["regions"], &run_directory);
        assert!(
            text.contains("idle: 1 call open at the end"),
            "{ending:?}: {text}"
        );
        let text = printed(&["histogram", "--region", "idle"], &run_directory);
        assert!(
            text.contains("1 call open at the end"),
            "{ending:?}: {text}"
        );
        let prepare = regions(&run_directory, &["--region", "prepare"]);
        assert_eq!(prepare[0]["time_is_uncertain"], false, "{ending:?}");
        drop(hanging);
        if ending == Ending::Hanging {
            // Its recorder was killed with it.
            let (said_s, more_s, _) = (ANSWERS[0].1)(&run_directory);
            let truth_s = program.truth_s(ending);
            let is_right =
                said_s <= truth_s + TOLERANCE_S && said_s + more_s >= truth_s - TOLERANCE_S;
            assert!(
                is_right,
                "after the kill: {said_s} s and {more_s} s, truly {truth_s} s"
            );
        }
    }
}

/// As the memory file system of another node, once its job has ended.
#[test]
fn a_live_file_that_is_gone_is_named_and_its_process_is_never_complete() {
    let program = Hot::new();
    let [live, run_directory] = ["live", "run"].map(|name| program.scratch.path().join(name));
    std::fs::create_dir(&live).expect("a directory");
    let mut alone = Command::new(program.scratch.path().join("hot"));
    alone.arg("kill").arg(program.scratch.path().join("truth"));
    alone.env_clear().env("ANNALS_DIR", &run_directory);
    alone.env("ANNALS_LIVE_DIR", &live);
    alone.env("LD_PRELOAD", prefix().join("lib/libannals_instrument.so"));
    let killed = alone.output().expect("it runs");
    assert_eq!(killed.status.signal(), Some(9));
    std::fs::remove_dir_all(&live).expect("the live file");
    let info = run(trace_cli().arg("info").arg(&run_directory));
    let (text, said) = (text_of(&info.stdout), text_of(&info.stderr));
    assert_eq!(info.status.code(), Some(3), "{text}");
    assert!(text.contains("complete    no"), "{text}");
    assert!(text.contains("how many more is unknown"), "{text}");
    let live = live.display();
    let named = format!("its live file {live}/");
    assert!(said.contains(&named) && said.contains("of host "), "{said}");
    let merged = merged(&run_directory, "annals");
    let info = printed(&["info"], &merged);
    assert!(info.contains("complete    no"), "{info}");
}

/// A recording names its live file by an absolute path, which its copy has, too.
#[test]
fn a_recovery_of_a_copy_leaves_the_live_file_of_the_original() {
    let program = Hot::new();
    program.record(Ending::Alone);
    let original = program.run_directory(Ending::Alone);
    let copy = program.scratch.path().join("copy");
    std::fs::create_dir(&copy).expect("a directory");
    let files = || {
        let all = std::fs::read_dir(&original).expect("a directory");
        let mut all: Vec<PathBuf> = all.map(|file| file.expect("a file").path()).collect();
        all.sort();
        all
    };
    let before = files();
    assert_eq!(before.len(), 2, "{before:?}");
    std::fs::copy(
        &before[0],
        copy.join(before[0].file_name().expect("a name")),
    )
    .expect("a copy");
    run(trace_cli().arg("recover").arg(&copy));
    assert_eq!(files(), before);
    assert!(regions(&original, &["--region", "hot"])[0]["open_calls"] == 1);
}
