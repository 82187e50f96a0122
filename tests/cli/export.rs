//! `trace-cli export` and `trace-merge --format`: what other readers find in every format is what `trace-cli` prints of the
//! trace (`tests/export/check.py`), and an export that fails leaves nothing.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::trace_merge;
use annals_format::{CompressionLevel, Reference, Role, SourceOrder};
use annals_recorder::{Blob, EventTypeSpec, Options, Recorder, SourceSpec, Text};
use annals_test_support::deeds::{self, Deed};
use annals_test_support::{ENTER, LEAVE, MARK, REFERENCE, Row, TestRecording, TestStream};

const FORMATS: [&str; 10] = [
    "perfetto",
    "chrome",
    "parquet",
    "arrow",
    "folded",
    "flamegraph",
    "csv",
    "jsonl",
    "dot",
    "mermaid",
];

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_trace-cli"))
}

fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn merge(inputs: &Path, to: &Path, more: &[&str]) -> Output {
    let merged = Command::new(trace_merge())
        .arg(inputs)
        .arg("-o")
        .arg(to)
        .args(more)
        .output()
        .expect("trace-merge runs");
    // Losses are part of it.
    assert!(
        matches!(merged.status.code(), Some(0 | 3)),
        "{}",
        said(&merged)
    );
    merged
}

/// Returns the Python that has the other readers.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/export-python/bin/python");
    if !python.exists() {
        eprintln!("NOT TESTED: exports by other readers (tests/run.sh installs them)");
        return None;
    }
    Some(python)
}

/// Whether other readers find in every export what is printed.
fn check(input: &Path, filters: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Some(python) = python() else { return };
    let scratch = tempfile::tempdir().expect("a directory");
    let checked = Command::new(python)
        .arg(root.join("tests/export/check.py"))
        .arg(env!("CARGO_BIN_EXE_trace-cli"))
        .arg(input)
        .arg(scratch.path().join("exports"))
        .args(filters)
        .output()
        .expect("python runs");
    assert!(checked.status.success(), "{filters:?}: {}", said(&checked));
}

/// What makes names hard: quotes, separators, line ends, control characters, other directions.
const ODD: [&str; 8] = [
    "comma, \"quoted\"",
    "line\nend\r\n",
    "semi;colon \\ back",
    "\u{1b}[31mred\u{7}",
    "\u{202e}back",
    "<b>&amp;</b> 'x' `y` #%{}[]|",
    "Gr\u{fc}\u{df}e \u{65e5}\u{672c}",
    " ",
];

type Everything = (i32, u32, i64, u64, f64, Text, Blob, Option<i64>);

/// Recordings of two ranks with every type of element, messages, metrics, odd names and an unordered source.
fn odd_recordings(directory: &Path) {
    let recorders: Vec<Recorder> = (0..2_u32)
        .map(|rank| {
            let mut options = Options::new(directory);
            options.run = Some("odd".to_owned());
            options.rank = Some(rank);
            options.rank_count = Some(2);
            Recorder::start(&options).expect("a recorder")
        })
        .collect();
    for (rank, r) in recorders.iter().enumerate() {
        let names = [
            "i",
            "rank",
            "Time_NS",
            "number",
            "value",
            "text, \"q\"",
            "bytes",
            "maybe\n",
        ];
        let spec = names
            .iter()
            .fold(EventTypeSpec::new("every, \"thing\"\n"), |spec, name| {
                spec.element(*name)
            });
        let everything = r.add_event_type::<Everything>(&spec).expect("a type");
        let other = EventTypeSpec::new("other")
            .element("number")
            .element("value");
        let other = r.add_event_type::<(Text, i64)>(&other).expect("a type");
        let message = |name: &str, role| {
            let spec = EventTypeSpec::new(name).role(role).element("communicator");
            spec.reference("peer", Reference::Rank)
                .element("tag")
                .element("bytes")
        };
        let send = r.add_event_type::<(u32, u32, u32, u64)>(&message("send", Role::Send));
        let receive = r.add_event_type::<(u32, u32, u32, u64)>(&message("receive", Role::Receive));
        let (send, receive) = (send.expect("a type"), receive.expect("a type"));
        let memory = r
            .add_metric::<f64>("memory, \"used\"", "MiB")
            .expect("a metric");
        let count = r.add_metric::<u64>("count", "").expect("a metric");
        let loose = r
            .add_source(&SourceSpec::unordered("loose, source"))
            .expect("a source");
        let regions: Vec<_> = ODD
            .iter()
            .map(|name| {
                r.add_region_at(name, "a \"file\".c", 7, "")
                    .expect("a region")
            })
            .collect();
        for step in 0..300_usize {
            let region = regions[step % regions.len()];
            r.enter(region);
            let extreme = [i64::MIN, -1, 0, i64::MAX][step % 4];
            let float = [0.1, f64::NAN, f64::INFINITY, -1e300, 0.0][step % 5];
            let text = [
                &b"not \xff utf-8"[..],
                b"",
                b"a,b\n\"c\"",
                "\u{1b}x\u{fc}".as_bytes(),
            ][step % 4];
            let values = (
                extreme as i32,
                extreme as u32,
                extreme,
                extreme as u64,
                float,
                text,
                &b"\x00\xff,\n"[..step % 5 % 4],
                (step % 3 == 0).then_some(extreme),
            );
            r.raise(&everything, values);
            r.raise_on(loose, &other, (text, step as i64));
            r.metric(&memory, step as f64 / 8.0);
            r.metric(&count, u64::MAX - step as u64);
            let message = (0, 1 - rank as u32, 3, 100 + step as u64);
            r.raise(if rank == 0 { &send } else { &receive }, message);
            if step % 7 != 6 {
                r.leave(region);
            }
        }
        r.report_dropped(loose, everything.id(), 12);
        r.leave(regions[0]);
    }
    for recorder in recorders {
        let status = recorder.finish();
        assert_eq!(status.dropped, 12);
    }
}

/// Two ranks whose threads have lost enters, leaves and points, and one that does nothing.
fn lossy_recordings(directory: &Path) {
    let cycle = [
        Deed::Enter(0),
        Deed::Enter(1),
        Deed::Mark,
        Deed::Lose(Some(LEAVE)),
        Deed::Enter(2),
        Deed::Enter(2),
        Deed::Leave(2),
        Deed::Leave(3),
        Deed::Lose(None),
        Deed::Leave(1),
        Deed::Mark,
        Deed::Lose(Some(MARK)),
    ];
    let thread = |shift: usize| {
        let deeds = cycle.iter().cycle().skip(shift).take(700);
        deeds.copied().collect::<Vec<_>>()
    };
    deeds::write(
        &[vec![thread(0), thread(5)], vec![thread(2), Vec::new()]],
        directory,
    );
}

#[test]
fn other_readers_find_what_is_printed_of_the_demo() {
    let scratch = tempfile::tempdir().expect("a directory");
    let demo = scratch.path().join("demo");
    let ran = command().arg("demo").arg("--output").arg(&demo).output();
    let ran = ran.expect("the demo runs");
    assert!(ran.status.success(), "{}", said(&ran));
    let trace = demo.join("run.annals");
    check(&trace, &[]);
    check(&trace, &["--rank", "0-1"]);
    check(&trace, &["--from", "3ms", "--to", "20ms"]);
    check(&trace, &["--region", "c*"]);
    check(&trace, &["--event", "file.*"]);
    let mut done = command();
    done.args(["export", "--format", "parquet", "-o"]);
    let done = done
        .arg(demo.join("run-tables"))
        .arg(&trace)
        .output()
        .expect("trace-cli runs");
    assert!(done.status.success(), "{}", said(&done));
    let Some(python) = python() else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let asked = Command::new(python)
        .arg(root.join("tests/export/chapter.py"))
        .arg(root.join("viewer-cli/book/src/export.md"))
        .arg(&demo)
        .output()
        .expect("python runs");
    assert!(asked.status.success(), "{}", said(&asked));
}

#[test]
fn other_readers_find_what_is_printed_of_every_type_of_event() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    odd_recordings(&inputs);
    let trace = scratch.path().join("odd.annals");
    merge(&inputs, &trace, &["--quiet"]);
    check(&trace, &[]);
    // A directory of recordings is an input like a trace.
    check(&inputs, &[]);
}

#[test]
fn other_readers_find_the_losses() {
    let scratch = tempfile::tempdir().expect("a directory");
    lossy_recordings(scratch.path());
    let trace = scratch.path().join("trace.annals");
    merge(scratch.path(), &trace, &["--quiet"]);
    check(&trace, &[]);
    check(&trace, &["--from", "5us", "--to", "9us"]);
}

#[test]
fn nothing_is_exported_of_an_empty_trace() {
    let scratch = tempfile::tempdir().expect("a directory");
    let empty = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: 5_000_000_000,
        end_ns: 5_000_001_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: Vec::new(),
        }],
        has_footer: true,
    };
    empty.write(scratch.path(), CompressionLevel::None);
    let trace = scratch.path().join("trace.annals");
    merge(scratch.path(), &trace, &["--quiet"]);
    check(&trace, &[]);
}

#[test]
fn what_trace_merge_writes_is_the_export_of_its_trace() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    lossy_recordings(&inputs);
    let trace = scratch.path().join("trace.annals");
    merge(&inputs, &trace, &["--quiet"]);
    for (name, format) in [
        ("run.pftrace", "perfetto"),
        ("run.json", "chrome"),
        ("run.csv", "csv"),
        ("run.jsonl", "jsonl"),
        ("run.folded", "folded"),
        ("run.svg", "flamegraph"),
        ("run.dot", "dot"),
        ("run.mmd", "mermaid"),
        ("run.arrow", "arrow"),
        ("run.parquet", "parquet"),
    ] {
        let (named, told, exported) = (
            scratch.path().join(name),
            scratch.path().join(format!("told-{name}")),
            scratch.path().join(format!("exported-{name}")),
        );
        merge(&inputs, &named, &["--quiet"]);
        let merged = merge(&inputs, &told, &["--quiet", "--format", format]);
        assert_eq!(merged.status.code(), Some(3), "something was dropped");
        let done = command()
            .arg("export")
            .arg(&trace)
            .arg("-o")
            .arg(&exported)
            .output();
        assert!(done.expect("trace-cli runs").status.success());
        let whole = std::fs::read(&exported).expect("an export");
        if !matches!(format, "arrow" | "parquet") {
            // In those, groups of rows depend on the order in which the rows were written.
            assert_eq!(std::fs::read(&told).expect("an export"), whole, "{format}");
            assert_eq!(std::fs::read(&named).expect("an export"), whole, "{format}");
        }
        assert!(!whole.is_empty());
    }
}

fn leftovers(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Every way to write: arguments, and the output's name.
const WAYS: [(&[&str], &str); 18] = [
    (&[], "run.pftrace"),
    (&[], "run.json"),
    (&[], "run.json.gz"),
    (&[], "run.parquet"),
    (&[], "run.arrow"),
    (&[], "run.csv"),
    (&[], "run.csv.gz"),
    (&[], "run.jsonl"),
    (&[], "run.folded"),
    (&[], "run.svg"),
    (&[], "run.dot"),
    (&[], "run.mmd"),
    (&["--format", "parquet"], "tables-parquet"),
    (&["--format", "arrow"], "tables-arrow"),
    (&["--format", "csv"], "tables-csv"),
    (&["--format", "jsonl"], "tables-jsonl"),
    (&["--format", "parquet", "--partition", "rank"], "by-rank"),
    (
        &[
            "--format",
            "csv",
            "--partition",
            "time=100us",
            "--table",
            "events",
        ],
        "by-time",
    ),
];

fn exporting(arguments: &[&str], input: &Path, to: &Path) -> Command {
    let mut command = command();
    command.args(["export", "--quiet"]).args(arguments);
    command.arg(input).arg("-o").arg(to);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Returns the contents of a path: the file's bytes, or all files of the directory.
fn standing(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(at) = waiting.pop() {
        if at.is_dir() {
            waiting.extend(leftovers(&at));
        } else if at.exists() {
            let name = at.strip_prefix(path).expect("below").to_owned();
            found.push((name, std::fs::read(&at).expect("a file")));
        }
    }
    found.sort();
    found
}

/// A recording of one rank that is long enough to be met in the middle of its export.
fn long_recording(directory: &Path) {
    let rows = (0..100_000_u64).flat_map(|n| {
        // Not so regular that it can be said in few bytes (SplitMix64).
        let random = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
        let (at, region) = (5_000_000_000 + n * 10 + random % 5, random / 8 % 4);
        [
            Row::Event(ENTER, at, region),
            Row::Event(LEAVE, at + 5, region),
        ]
    });
    let recording = TestRecording {
        rank: Some(0),
        rank_count: Some(1),
        id: 1,
        start_ns: 5_000_000_000,
        end_ns: 5_010_000_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(5_000_000_000, rows.collect())],
        }],
        has_footer: true,
    };
    recording.write(directory, CompressionLevel::None);
}

#[test]
fn a_full_disk_leaves_what_was_there_and_is_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    lossy_recordings(&inputs);
    for (arguments, name) in WAYS {
        let below = scratch.path().join("out");
        std::fs::create_dir(&below).expect("a directory");
        let to = below.join(name);
        let whole = exporting(arguments, &inputs, &to).output();
        assert!(whole.expect("trace-cli runs").status.success(), "{name}");
        let largest = standing(&to).iter().map(|(_, bytes)| bytes.len()).max();
        let largest = largest.expect("a file");
        let before: Vec<(PathBuf, Vec<u8>)> = if to.is_dir() {
            std::fs::remove_dir_all(&to).expect("the directory goes");
            Vec::new()
        } else {
            std::fs::write(&to, b"before").expect("a file");
            standing(&to)
        };
        // Limits of the file size in KiB; the signal at the limit is ignored, so that writing
        // fails.
        let mut limits = vec![0, largest / 2048, (largest - 1) / 1024];
        limits.dedup();
        for limit in limits {
            let limited = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$@\"");
            let failed = Command::new("bash")
                .args(["-c", &limited, "bash"])
                .arg(env!("CARGO_BIN_EXE_trace-cli"))
                .args(["export", "--quiet", "--force"])
                .args(arguments)
                .arg(&inputs)
                .arg("-o")
                .arg(&to)
                .output()
                .expect("bash runs");
            let text = said(&failed);
            assert_eq!(failed.status.code(), Some(1), "{name}: {text}");
            assert!(text.contains("cannot be written"), "{name}: {text}");
            assert!(text.contains("File too large"), "{name}: {text}");
            // It is called by its name.
            let place = text.replace(&*scratch.path().to_string_lossy(), "");
            assert!(!place.contains(".tmp"), "{name}: {text}");
            assert_eq!(standing(&to), before, "{name}");
            let here = usize::from(!before.is_empty());
            assert_eq!(leftovers(&below).len(), here, "{name}: {text}");
        }
        std::fs::remove_dir_all(&below).expect("the directory goes");
    }
}

#[test]
fn a_file_system_without_room_leaves_what_was_there_and_is_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    long_recording(&inputs);
    let disk = scratch.path().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    // A file system of 32 KiB that only this process sees.
    let small = r#"mount -t tmpfs -o size=32k tmpfs "$1" || exit 77
        echo before > "$1/before" && cd / && shift && "$@"; code=$?; ls -A "$DISK"; exit $code"#;
    for (arguments, name) in WAYS {
        let failed = Command::new("unshare")
            .args(["--mount", "--map-root-user", "bash", "-c", small, "bash"])
            .arg(&disk)
            .arg(env!("CARGO_BIN_EXE_trace-cli"))
            .args(["export", "--quiet"])
            .args(arguments)
            .arg(&inputs)
            .arg("-o")
            .arg(disk.join(name))
            .env("DISK", &disk)
            .output()
            .expect("unshare runs");
        let text = said(&failed);
        if failed.status.code() == Some(77) || text.starts_with("unshare: ") {
            eprintln!("NOT TESTED: a full file system (none can be mounted here): {text}");
            return;
        }
        if failed.status.success() {
            // What is drawn of four regions fits.
            let is_short = ["folded", "svg", "dot", "mmd"]
                .iter()
                .any(|end| name.ends_with(end));
            assert!(is_short, "{name}: {text}");
            continue;
        }
        assert_eq!(failed.status.code(), Some(1), "{name}: {text}");
        assert!(text.contains("No space left on device"), "{name}: {text}");
        assert_eq!(failed.stdout, b"before\n", "{name}: {text}");
    }
}

#[test]
fn an_export_that_is_killed_has_no_name_or_is_whole() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    long_recording(&inputs);
    for (arguments, name) in WAYS {
        let below = scratch.path().join("out");
        let begin = || {
            let _ = std::fs::remove_dir_all(&below);
            std::fs::create_dir(&below).expect("a directory");
        };
        begin();
        let to = below.join(name);
        let start = Instant::now();
        let whole = exporting(arguments, &inputs, &to).output();
        assert!(whole.expect("trace-cli runs").status.success(), "{name}");
        let mut took = start.elapsed();
        let whole = standing(&to);
        let is_directory = to.is_dir();
        let (mut met, mut round) = (0, 0);
        // The names appear in the last moments: they are looked for there more than elsewhere.
        while round < 12 || (met == 0 && round < 60) {
            begin();
            let before = match is_directory || round % 2 == 0 {
                true => Vec::new(),
                false => {
                    std::fs::write(&to, b"before").expect("a file");
                    standing(&to)
                }
            };
            let part = if round % 3 == 0 {
                40 + round * 5
            } else {
                85 + round * 2
            };
            let mut child = exporting(arguments, &inputs, &to)
                .spawn()
                .expect("trace-cli runs");
            std::thread::sleep(took * part / 110);
            child.kill().expect("a signal");
            let status = child.wait().expect("a child");
            let found = standing(&to);
            assert!(
                found == before || found == whole,
                "{name}, killed after {part} of 110 parts: {} files of {}",
                found.len(),
                whole.len()
            );
            met += usize::from(status.signal().is_some() && found == before);
            if status.signal().is_none() {
                // It was done before: the machine had been busier when the time was taken.
                took = took * 4 / 5;
            }
            round += 1;
        }
        assert!(met > 0, "{name}: no export was met in the middle");
    }
}

#[test]
fn a_dataset_that_is_killed_while_it_takes_the_place_of_another_mixes_whole_files() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    std::fs::create_dir(&inputs).expect("a directory");
    long_recording(&inputs);
    let to = scratch.path().join("tables");
    std::fs::create_dir(&to).expect("a directory");
    std::fs::write(to.join("notes.txt"), b"mine").expect("a file");
    let arguments = ["--format", "csv"];
    let start = Instant::now();
    let done = exporting(&arguments, &inputs, &to).output();
    assert!(done.expect("trace-cli runs").status.success());
    let took = start.elapsed();
    let is_named = |(name, _): &(PathBuf, Vec<u8>)| !name.to_string_lossy().contains(".tmp");
    let whole = standing(&to);
    assert_eq!(whole.len(), 6);
    assert!(whole.iter().all(is_named));
    for round in 0..10 {
        let mut child = exporting(&arguments, &inputs, &to)
            .spawn()
            .expect("trace-cli runs");
        std::thread::sleep(took * (10 + round) / 20);
        child.kill().expect("a signal");
        child.wait().expect("a child");
        let named: Vec<_> = standing(&to).into_iter().filter(is_named).collect();
        assert_eq!(named, whole);
    }
}

#[test]
fn what_is_no_format_is_told_with_those_there_are() {
    let scratch = tempfile::tempdir().expect("a directory");
    lossy_recordings(scratch.path());
    for (arguments, code, needle) in [
        (&["-o", "run.xyz"][..], 2, "no format has this extension"),
        (&["-o", "run"], 2, "name one with --format"),
        (
            &["-o", "run.csv", "--format", "perfeto"],
            2,
            "did you mean `perfetto`?",
        ),
        (&["-o", "run.parquet.gz"], 2, "no format has this extension"),
        (&["-o", "run.json", "--table", "calls"], 2, "has no tables"),
        (
            &["-o", "run.csv", "--table", "calls,events"],
            2,
            "a file has one table",
        ),
        (&["-o", "run.csv", "--table", "cals"], 2, "calls"),
        (
            &["-o", "x", "--format", "parquet", "--partition", "time=0"],
            2,
            "above 0",
        ),
        (&["-o", "run.json", "--rank", "99"], 1, "99"),
        (&["-o", "no/such/run.json"], 1, "cannot be written"),
    ] {
        let input = scratch.path();
        let failed = command()
            .current_dir(input)
            .arg("export")
            .arg(".")
            .args(arguments)
            .output();
        let failed = failed.expect("trace-cli runs");
        let text = said(&failed);
        assert_eq!(failed.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(needle), "{arguments:?}: {text}");
        if needle.contains("extension") {
            assert!(FORMATS.iter().all(|format| text.contains(format)), "{text}");
        }
    }
    assert!(
        leftovers(scratch.path())
            .iter()
            .all(|path| path.extension().is_some_and(|e| e == "annals"))
    );
    let listed = command()
        .args(["export", "--list-formats"])
        .output()
        .expect("trace-cli runs");
    assert!(listed.status.success());
    assert!(FORMATS.iter().all(|format| said(&listed).contains(format)));
    let piped = command()
        .args(["export", "-f", "csv", "-o", "-"])
        .arg(scratch.path())
        .output();
    let piped = piped.expect("trace-cli runs");
    assert!(piped.status.success() && piped.stdout.starts_with(b"time_ns,rank,location"));
}

#[test]
fn a_file_that_is_called_as_a_table_has_that_table() {
    let scratch = tempfile::tempdir().expect("a directory");
    let inputs = scratch.path().join("run");
    odd_recordings(&inputs);
    for (name, first_column, table) in [
        ("calls.csv", "call,parent,", "`calls`"),
        ("messages.csv", "send_ns,receive_ns,", "`messages`"),
        ("anything.csv", "time_ns,rank,", "`events`"),
    ] {
        let output = scratch.path().join(name);
        let done = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
            .arg("export")
            .arg(&inputs)
            .arg("-o")
            .arg(&output)
            .output()
            .expect("trace-cli runs");
        assert!(done.status.success(), "{}", said(&done));
        let text = std::fs::read_to_string(&output).expect("a table");
        assert!(text.starts_with(first_column), "{name}: {text:.80}");
        let told = format!("table {table} with ");
        assert!(said(&done).contains(&told), "{told}: {}", said(&done));
    }
}
