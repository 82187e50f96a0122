//! `trace-cli` from outside: what its JSON holds, exit codes, messages, the demo on unfriendly folders.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use annals_format::{CompressionLevel, SourceOrder};
use annals_recorder::{EventTypeSpec, Options, Recorder, Reference, Role};
use annals_test_support::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};
use serde_json::Value;

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trace-cli"))
}

fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    command().args(arguments).output().expect("trace-cli runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(name: &str, input: &Path, more: &[&str]) -> Value {
    let result = command()
        .arg(name)
        .arg(input)
        .arg("--json")
        .args(more)
        .output()
        .expect("trace-cli runs");
    assert!(
        matches!(result.status.code(), Some(0 | 3)),
        "{name}: {}",
        said(&result)
    );
    serde_json::from_slice(&result.stdout).expect("one JSON object")
}

/// main [0, 100), in it solve [10, 30) and [40, 70), and in the second exchange [50, 60); a loss of
/// 5 enters in [72, 80); a mark at 90. Times in microseconds.
pub(crate) fn nested(rank: u32) -> TestRecording {
    let at = |us: u64| 1_000_000 + us * 1000;
    let rows = vec![
        Row::Event(ENTER, at(0), 0),
        Row::Event(ENTER, at(10), 1),
        Row::Event(LEAVE, at(30), 1),
        Row::Event(ENTER, at(40), 1),
        Row::Event(ENTER, at(50), 2),
        Row::Event(LEAVE, at(60), 2),
        Row::Event(LEAVE, at(70), 1),
        Row::Dropped(Some(ENTER), 5, at(72), at(80)),
        Row::Event(MARK, at(90), 7),
        Row::Event(LEAVE, at(100), 0),
    ];
    TestRecording {
        rank: Some(rank),
        rank_count: Some(1),
        id: rank as u16,
        start_ns: 1_000_000,
        end_ns: 1_200_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    }
}

pub(crate) fn nested_file() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = nested(0).write(scratch.path(), CompressionLevel::Zstd(1));
    (scratch, path)
}

fn region<'a>(regions: &'a Value, name: &str) -> &'a Value {
    let rows = regions["regions"].as_array().expect("an array");
    rows.iter()
        .find(|row| row["region"] == name)
        .expect("the region")
}

#[test]
fn info_has_the_promised_keys() {
    let (_scratch, path) = nested_file();
    let info = json("info", &path, &[]);
    assert_eq!(info["ranks"], 1);
    assert_eq!(info["locations"], 1);
    assert_eq!(info["sources"], 1);
    assert_eq!(info["event_types"], 3);
    assert_eq!(info["events"], 9);
    assert_eq!(info["dropped"], 5);
    assert_eq!(info["start_ns"], 0);
    assert_eq!(info["end_ns"], 200_000);
    assert_eq!(info["complete"], true);
}

/// A recording with these properties, whose threads raise nothing.
fn with_properties(directory: &Path, rank: u32, properties: &[(&str, &str)]) {
    let mut options = annals_recorder::Options::new(directory);
    (options.rank, options.rank_count) = (Some(rank), Some(2));
    options.run = Some("properties".to_owned());
    let recorder = annals_recorder::Recorder::start(&options).expect("a recorder");
    for (key, value) in properties {
        recorder.add_property(key, value).expect("a property");
    }
    recorder.finish();
}

#[test]
fn info_shows_what_was_said_of_the_processes_and_how_they_ended() {
    let scratch = tempfile::tempdir().expect("a directory");
    let common = ("mpi.cvar.mode", "late");
    with_properties(scratch.path(), 0, &[common, ("seed", "7")]);
    let killed = ("process.end", "SIGSEGV");
    with_properties(scratch.path(), 1, &[common, ("seed", "8"), killed]);
    let info = run(&[OsStr::new("info"), scratch.path().as_os_str()]);
    let text = String::from_utf8_lossy(&info.stdout).into_owned();
    let properties = "properties\n  mpi.cvar.mode = late\n  seed = 7 (rank 0; others differ)\n";
    assert!(text.ends_with(properties), "{text}");
    assert!(text.contains("finished: SIGSEGV"), "{text}");
}

#[test]
fn regions_count_time_and_tell_what_a_loss_makes_uncertain() {
    let (_scratch, path) = nested_file();
    let regions = json("regions", &path, &[]);
    let main = region(&regions, "main");
    assert_eq!(main["calls"], 1);
    assert_eq!(main["inclusive_ns"], 100_000);
    assert_eq!(main["exclusive_ns"], 50_000);
    assert_eq!(main["uncertain_calls"], 5);
    let solve = region(&regions, "solve");
    assert_eq!(solve["calls"], 2);
    assert_eq!(solve["inclusive_ns"], 50_000);
    assert_eq!(solve["exclusive_ns"], 40_000);
    assert_eq!(solve["min_ns"], 20_000);
    assert_eq!(solve["max_ns"], 30_000);
    // Never entered as far as is known, but it may have been in the loss.
    assert_eq!(region(&regions, "write")["calls"], 0);
    assert_eq!(region(&regions, "write")["uncertain_calls"], 5);
}

#[test]
fn a_window_cuts_regions_and_leaves_losses_outside_alone() {
    let (_scratch, path) = nested_file();
    let regions = json("regions", &path, &["--from", "20us", "--to", "55us"]);
    let main = region(&regions, "main");
    assert_eq!(main["calls"], 0);
    assert_eq!(main["inclusive_ns"], 35_000);
    assert_eq!(main["exclusive_ns"], 10_000);
    let solve = region(&regions, "solve");
    assert_eq!(solve["calls"], 1);
    assert_eq!(solve["inclusive_ns"], 25_000);
    assert_eq!(solve["exclusive_ns"], 20_000);
    assert_eq!(solve["uncertain_calls"], 0);
}

#[test]
fn dropped_names_place_cause_and_interval_and_the_totals_add_up() {
    let (_scratch, path) = nested_file();
    let dropped = json("dropped", &path, &["--check"]);
    let rows = dropped["dropped"].as_array().expect("an array");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["rank"], 0);
    assert_eq!(row["source"], "source 0");
    assert_eq!(row["location"], "thread 0");
    assert_eq!(row["event"], "enter");
    assert_eq!(row["count"], 5);
    assert_eq!(row["is_lower_bound"], false);
    assert_eq!(row["cause"], "buffer-full");
    assert_eq!(row["from_ns"], 72_000);
    assert_eq!(row["to_ns"], 80_000);
    let totals = &dropped["totals"];
    assert_eq!(totals["raised"], 14);
    assert_eq!(totals["recorded"], 9);
    assert_eq!(totals["dropped"], 5);
    assert_eq!(totals["suppressed"], 0);
    assert_eq!(dropped["check"]["balanced"], true);
}

#[test]
fn dropped_check_tells_loss_from_counts_that_do_not_add_up() {
    let (scratch, path) = nested_file();
    let check = |path: &Path| {
        let result = run(&[
            OsStr::new("dropped"),
            OsStr::new("--check"),
            path.as_os_str(),
        ]);
        result.status.code()
    };
    assert_eq!(check(&path), Some(3), "adds up, but something was lost");
    let mut whole = nested(0);
    whole.id = 9;
    whole.streams[0].chunks[0].1.remove(7);
    let whole = whole.write(scratch.path(), CompressionLevel::None);
    assert_eq!(check(&whole), Some(0));
}

#[test]
fn print_gives_one_object_per_event_in_order() {
    let (_scratch, path) = nested_file();
    let result = run(&[OsStr::new("print"), OsStr::new("--json"), path.as_os_str()]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let text = String::from_utf8(result.stdout).expect("UTF-8");
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    assert_eq!(events.len(), 9);
    assert_eq!(events[0]["time_ns"], 0);
    assert_eq!(events[0]["event"], "enter");
    assert_eq!(events[0]["elements"]["region"], "main");
    assert_eq!(events[7]["elements"]["number"], 7);
    for event in &events {
        assert_eq!(event["rank"], 0);
        assert_eq!(event["source"], "source 0");
        assert_eq!(event["location"], "thread 0");
    }
}

#[test]
fn print_filters_by_window_type_region_and_limit() {
    let (_scratch, path) = nested_file();
    let count = |more: &[&str]| {
        let mut arguments = vec!["print", "--json"];
        arguments.extend(more);
        let result = command()
            .args(&arguments)
            .arg(&path)
            .output()
            .expect("it runs");
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        String::from_utf8_lossy(&result.stdout).lines().count()
    };
    assert_eq!(count(&["--from", "30us", "--to", "60us"]), 3);
    assert_eq!(count(&["--event", "mark"]), 1);
    assert_eq!(count(&["--region", "sol*"]), 4);
    assert_eq!(count(&["--limit", "2"]), 2);
    assert_eq!(count(&["--rank", "0-3", "--source", "source*"]), 9);
}

#[test]
fn the_last_lines_are_the_end_of_all_lines() {
    let (_scratch, path) = nested_file();
    let print = |more: &[&str]| {
        let result = command().arg("print").args(more).arg(&path).output();
        let result = result.expect("it runs");
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        String::from_utf8(result.stdout).expect("UTF-8")
    };
    let all = print(&[]);
    let all: Vec<&str> = all.lines().collect();
    for count in 0..all.len() + 2 {
        let last = print(&["--last", &count.to_string()]);
        let expected = &all[all.len().saturating_sub(count)..];
        assert_eq!(last.lines().collect::<Vec<&str>>(), expected, "{count}");
    }
    let window = print(&["--last", "2", "--from", "30us", "--to", "60us"]);
    assert_eq!(window.lines().count(), 2, "{window}");
}

#[test]
fn text_output_shows_the_loss_where_it_happened() {
    let (_scratch, path) = nested_file();
    let result = run(&[OsStr::new("print"), path.as_os_str()]);
    let text = String::from_utf8(result.stdout).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 10);
    assert!(lines[7].starts_with("-- "), "{text}");
    assert!(lines[7].contains("5 enter lost: buffer-full"), "{text}");
}

#[test]
fn wrong_arguments_and_inputs_have_their_own_exit_codes_and_messages() {
    let (scratch, path) = nested_file();
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
    assert_eq!(run(&["info"]).status.code(), Some(2));
    let absent = scratch.path().join("absent.annals");
    let fails = |arguments: &[&OsStr], word: &str| {
        let result = run(arguments);
        assert_eq!(result.status.code(), Some(1), "{}", said(&result));
        assert!(said(&result).contains(word), "{}", said(&result));
    };
    fails(&[OsStr::new("info"), absent.as_os_str()], "absent.annals");
    let text = scratch.path().join("text");
    std::fs::write(&text, "hello").expect("a file");
    fails(&[OsStr::new("info"), text.as_os_str()], "not an Annals");
    let print = OsStr::new("print");
    let with = |more: &[&str], code: i32, word: &str| {
        let mut arguments = vec![print, path.as_os_str()];
        arguments.extend(more.iter().map(OsStr::new));
        let result = run(&arguments);
        assert_eq!(result.status.code(), Some(code), "{}", said(&result));
        assert!(said(&result).contains(word), "{}", said(&result));
    };
    with(&["--source", "nobody"], 1, "nobody");
    with(&["--rank", "77"], 1, "77");
    with(&["--from", "2s", "--to", "1s"], 2, "ends before it starts");
    with(&["--rank", "3-1"], 2, "3-1");
    with(&["--source", "["], 2, "no pattern");
    let result = run(&[
        print,
        path.as_os_str(),
        OsStr::new("--from"),
        OsStr::new("5 apples"),
    ]);
    assert_eq!(result.status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut large = nested(0);
    let rows = (0..200_000_u64).map(|n| Row::Event(MARK, 1_000_000 + n, n));
    large.streams[0].chunks = vec![(1_000_000, rows.collect())];
    let path = large.write(scratch.path(), CompressionLevel::Zstd(1));
    let mut child = command()
        .args(["print", "--json"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("trace-cli runs");
    let mut first = [0; 100];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut first).expect("it prints");
    drop(out);
    let result = child.wait_with_output().expect("it ends");
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(result.stderr.is_empty(), "{}", said(&result));
}

#[test]
fn the_demo_holds_on_an_unfriendly_folder() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path().join("input");
    std::fs::create_dir(&folder).expect("a directory");
    std::fs::write(folder.join("empty"), b"").expect("a file");
    std::fs::write(folder.join("zeros"), vec![0; 3 << 20]).expect("a file");
    for number in 0..40_u8 {
        let content = vec![number; usize::from(number) * 100];
        std::fs::write(folder.join(format!("file {number}")), content).expect("a file");
    }
    let odd = folder.join(OsStr::from_bytes(b"not \xff utf-8 \x1b[31m"));
    std::fs::write(odd, b"content").expect("a file");
    std::os::unix::fs::symlink(&folder, folder.join("loop")).expect("a link");
    std::os::unix::fs::symlink("nowhere", folder.join("dangling")).expect("a link");
    // For anyone but root.
    let unreadable = folder.join("unreadable");
    std::fs::write(&unreadable, b"secret").expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    std::fs::set_permissions(&unreadable, mode).expect("permissions");
    std::fs::create_dir(folder.join(".git")).expect("a directory");
    std::fs::write(folder.join(".git/skipped"), b"not looked at").expect("a file");

    let output = scratch.path().join("output");
    let result = command()
        .arg("demo")
        .arg(&folder)
        .arg("--output")
        .arg(&output)
        .output()
        .expect("the demo runs");
    let text = String::from_utf8_lossy(&result.stdout);
    assert_eq!(result.status.code(), Some(0), "{text}{}", said(&result));
    let trace = output.join("run.annals");
    let info = json("info", &trace, &[]);
    assert_eq!(info["ranks"], 4);
    assert_eq!(info["complete"], true);
    assert!(info["dropped"].as_u64().expect("a count") > 0);
    let dropped = json("dropped", &trace, &["--check"]);
    assert_eq!(dropped["check"]["balanced"], true);
    for row in dropped["dropped"].as_array().expect("an array") {
        assert_eq!(row["rank"], 3, "only rank 3 has a tiny buffer");
    }
    // Every file below the folder, but for what rank 3 lost, with its size.
    let done = command()
        .args(["print", "--json", "--event", "file.done", "--rank", "0-2"])
        .arg(&trace)
        .output()
        .expect("print runs");
    let done = String::from_utf8_lossy(&done.stdout).into_owned();
    // 44 regular files, dealt out in turn to four ranks; the unreadable one is read by root only.
    assert!((32..=33).contains(&done.lines().count()), "{done}");
    for line in done.lines() {
        let event: Value = serde_json::from_str(line).expect("an object");
        let path = event["elements"]["path"]
            .as_str()
            .expect("a path")
            .to_owned();
        assert!(!path.contains(".git"), "{path}");
        if let Ok(metadata) = std::fs::metadata(&path) {
            assert_eq!(event["elements"]["bytes_in"], metadata.len(), "{path}");
        }
    }
    // No escape of a file name reaches the terminal.
    let printed = run(&[OsStr::new("print"), trace.as_os_str()]);
    assert!(!printed.stdout.contains(&0x1b));
}

#[test]
fn the_demo_holds_on_an_empty_folder() {
    let scratch = tempfile::tempdir().expect("a directory");
    let folder = scratch.path().join("input");
    std::fs::create_dir(&folder).expect("a directory");
    let output = scratch.path().join("output");
    let result = command()
        .arg("demo")
        .arg(&folder)
        .arg("--output")
        .arg(&output)
        .output()
        .expect("the demo runs");
    let text = String::from_utf8_lossy(&result.stdout);
    assert_eq!(result.status.code(), Some(0), "{text}{}", said(&result));
    let info = json("info", &output.join("run.annals"), &[]);
    assert!(
        info["dropped"].as_u64().expect("a count") > 0,
        "losses whatever the size"
    );
}

#[test]
fn messages_whose_peer_is_not_known_and_receives_that_never_end_are_counted_in_words() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recordings = scratch.path().join("recordings");
    let mut options = Options::new(&recordings);
    (options.rank, options.rank_count) = (Some(0), Some(2));
    let recorder = Recorder::start(&options).expect("a recorder");
    let spec = |name: &str, role| {
        let spec = EventTypeSpec::new(name).role(role).element("communicator");
        spec.reference("peer", Reference::Rank).element("tag")
    };
    let send = spec("send", Role::Send).element("bytes");
    let start = spec("start", Role::ReceiveStart).element("request");
    let send = recorder.add_event_type::<(u32, u32, u32, u64)>(&send);
    let receive = spec("receive", Role::Receive).element("bytes");
    let receive = recorder.add_event_type::<(u32, u32, u32, u64)>(&receive);
    receive.expect("a type");
    let start = recorder.add_event_type::<(u32, i32, i32, u64)>(&start);
    let (send, start) = (send.expect("a type"), start.expect("a type"));
    for request in 0..3 {
        recorder.raise(&start, (0, -1, 4, request));
        // Of rank 1, there is no recording.
        recorder.raise(&send, (0, 1, 3, 8));
    }
    recorder.finish();
    let trace = scratch.path().join("run.annals");
    let merged = Command::new(super::trace_merge())
        .arg(&recordings)
        .arg("-o")
        .arg(&trace)
        .output()
        .expect("trace-merge runs");
    let open = "3 receives were freed or did not complete: which messages they took is not known";
    assert!(said(&merged).contains(open), "{}", said(&merged));
    let text = |more: &[&str]| {
        let output = command().args(more).arg(&trace).output();
        String::from_utf8(output.expect("trace-cli runs").stdout).expect("text")
    };
    let messages = text(&["messages"]);
    assert!(messages.contains(open), "{messages}");
    assert_eq!(json("messages", &trace, &[])["open_receives"], 3);
    let unknown = "3 sends and receives are recorded whose peer is not known";
    let checked = text(&["dropped", "--check"]);
    assert!(checked.contains(unknown), "{checked}");
    let dropped = json("dropped", &trace, &["--check"]);
    assert_eq!(dropped["messages_without_peer"], 3, "{dropped}");
    // Without reading all events, it is known from an index.
    assert!(json("dropped", &trace, &[])["messages_without_peer"].is_null());
    let indexed = scratch.path().join("indexed.annals");
    let index = [OsStr::new("index"), OsStr::new("-o"), indexed.as_os_str()];
    let written = command().args(index).arg(&trace).output();
    let written = written.expect("trace-cli runs");
    assert!(written.status.success(), "{}", said(&written));
    assert_eq!(json("dropped", &indexed, &[])["messages_without_peer"], 3);
    // They are not lost.
    assert_eq!(dropped["totals"]["dropped"], 0, "{dropped}");
}

#[test]
fn a_reader_in_a_time_namespace_agrees_with_the_recorders_of_its_host() {
    let scratch = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::start(&Options::new(scratch.path())).expect("a recorder");
    let region = recorder.add_region("work").expect("a region");
    recorder.enter(region);
    let read = |offsets: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--time", "--fork"]);
        command.args(offsets).arg(env!("CARGO_BIN_EXE_trace-cli"));
        command.args(["info", "--json"]).arg(scratch.path());
        command.output().expect("unshare runs")
    };
    for offsets in [
        &["--monotonic", "100000", "--boottime", "100000"],
        &["--monotonic", "100000", "--boottime", "0"],
    ] {
        let output = read(offsets);
        if said(&output).starts_with("unshare: ") {
            eprintln!("NOT TESTED: time namespaces (none can be made here)");
            return;
        }
        let info: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let process = &info["processes"][0];
        assert_eq!(process["ended"], "running", "{info}");
        let [start, end] = ["start_ns", "end_ns"].map(|key| info[key].as_i64().expect("a time"));
        assert!((0..60_000_000_000).contains(&(end - start)), "{info}");
    }
    recorder.leave(region);
    recorder.finish();
}

#[test]
fn a_merge_removes_the_live_file_in_memory_of_a_process_that_is_gone() {
    let scratch = tempfile::tempdir().expect("a directory");
    let running = scratch.path().join("running");
    let recorder = Recorder::start(&Options::new(&running)).expect("a recorder");
    let region = recorder.add_region("work").expect("a region");
    (0..100).for_each(|_| recorder.enter(region));
    // As a kill leaves them, and as if there had been no room for the live file next to the recording.
    let killed = scratch.path().join("killed");
    std::fs::create_dir(&killed).expect("a directory");
    let files = std::fs::read_dir(&running).expect("a directory");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    let [recording, live] = &files[..] else {
        panic!("a recording and its live file, not {files:?}");
    };
    std::fs::copy(
        recording,
        killed.join(recording.file_name().expect("a name")),
    )
    .expect("a copy");
    let in_memory = Path::new("/dev/shm").join(live.file_name().expect("a name"));
    let image = std::fs::read(live).expect("the live file");
    std::fs::write(&in_memory, &image).expect("a live file in memory");
    let trace = scratch.path().join("run.annals");
    let merge = |more: &[&str]| {
        let mut merge = Command::new(super::trace_merge());
        merge.arg(&killed).arg("-o").arg(&trace).arg("--force");
        let merged = merge.args(more).output().expect("trace-merge runs");
        assert!(
            matches!(merged.status.code(), Some(0 | 3)),
            "{}",
            said(&merged)
        );
        json("info", &trace, &[])["events"]
            .as_u64()
            .expect("a number")
    };
    // The process that the file names lives.
    assert_eq!((merge(&[]), in_memory.exists()), (100, true));
    let header = annals_format::LiveHeader::decode(&image, image.len() as u64);
    let mut header = header.expect("a live header");
    header.process_start += 2;
    let mut image = image;
    let bytes = header.encode();
    image[..bytes.len()].copy_from_slice(&bytes);
    std::fs::write(&in_memory, &image).expect("a live file in memory");
    // Of the events, some are needed for another merge.
    let some = ["--to", "0ns"];
    assert!(merge(&some) < 100);
    assert!(in_memory.exists());
    assert_eq!((merge(&[]), in_memory.exists()), (100, false));
    // The recording has them now.
    assert_eq!(merge(&[]), 100);
    recorder.finish();
}
