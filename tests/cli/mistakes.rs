//! Mistakes of users: each message says what is wrong, where, and what to do next. None leaves any files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use annals_format::{CompressionLevel, SourceOrder};

use crate::trace_merge;
use annals_test_support::{ENTER, LEAVE, REFERENCE, Row, TestRecording, TestStream};

/// A mistake: a command line in a shell, its exit code, and what its message must contain.
type Mistake = (&'static str, i32, &'static [&'static str]);

/// `$C` is trace-cli, `$M` trace-merge. The directory has `run/` with the recordings of two ranks, `run.annals`, their trace,
/// `solver.cpp`, `empty.annals`, `cut.annals`, `newer.annals`, `nothing/`, `notes.txt`, and `secret.annals`, which is
/// not readable.
const MISTAKES: &[Mistake] = &[
    // Inputs.
    (
        "$C info nowhere.annals",
        1,
        &["cannot open nowhere.annals", "No such file"],
    ),
    (
        "$C info solver.cpp",
        1,
        &[
            "solver.cpp",
            "not an Annals trace or recording",
            "`#include`",
        ],
    ),
    (
        "$C info empty.annals",
        1,
        &["empty.annals", "the file is empty"],
    ),
    (
        "$C info nothing",
        1,
        &["no recordings in nothing", "*.annals"],
    ),
    (
        "$C regions cut.annals",
        1,
        &["cut.annals", "at byte", "expected"],
    ),
    (
        "$C regions half.annals",
        3,
        &["half.annals", "byte 64", "0 events can be read"],
    ),
    (
        "$C info newer.annals",
        1,
        &["newer.annals", "format version 9.0", "use a newer program"],
    ),
    (
        "$C regions run.annals run.annals",
        2,
        &["one input", "trace-merge A B", "trace-cli diff A B"],
    ),
    ("$C regions", 2, &["<INPUT>"]),
    ("$M nowhere -o t.annals", 1, &["cannot open nowhere"]),
    (
        "$M solver.cpp -o t.annals",
        1,
        &["solver.cpp", "not an Annals"],
    ),
    ("$M nothing -o t.annals", 1, &["no recordings in nothing"]),
    (
        "$M run.annals -o run.annals --from 1us",
        2,
        &[
            "run.annals would be written over an input",
            "part",
            "another file",
        ],
    ),
    (
        "$M run -o run.otf2",
        1,
        &["run exists already", "OTF2 archive", "another output"],
    ),
    ("$M", 2, &["<INPUT>"]),
    ("$M nowhere", 1, &["cannot open nowhere"]),
    (
        "$M run.annals",
        2,
        &["--output OUT.annals", "one directory has a default"],
    ),
    // Names of commands and options.
    (
        "$C region run.annals",
        2,
        &["unrecognized subcommand 'region'", "regions"],
    ),
    ("$C regions run.annals --tops 3", 2, &["--tops", "--top"]),
    (
        "$C regions run.annals --sort time",
        2,
        &["exclusive", "inclusive"],
    ),
    (
        "$C regions run.annals --by thread",
        2,
        &["rank", "location"],
    ),
    // Filters and windows.
    (
        "$C regions run.annals --region solvr",
        1,
        &["no region matches `solvr`", "did you mean `solve`"],
    ),
    (
        "$C print run.annals --event mrk",
        1,
        &["no event type matches `mrk`", "trace-cli events"],
    ),
    (
        "$C flat run.annals --rank 7",
        1,
        &["no rank matches `7`", "trace-cli info"],
    ),
    (
        "$C timeline run.annals --location worker",
        1,
        &["no location matches `worker`"],
    ),
    ("$C regions run.annals --rank x", 2, &["x", "rank"]),
    (
        "$C regions run.annals --from 3s",
        1,
        &["the window starts at 3.000000000 s", "smaller --from"],
    ),
    (
        "$C regions run.annals --from 10us --to 5us",
        2,
        &["--from", "--to"],
    ),
    ("$C regions run.annals --from soon", 2, &["soon", "1.5s"]),
    ("$C regions run.annals --from 5", 2, &["5", "ns, us, ms, s"]),
    // Questions that the input has no answer to.
    (
        "$C messages run.annals",
        1,
        &["no event type is a message", "send or receive"],
    ),
    (
        "$C collectives run.annals",
        1,
        &["no event type begins collective operations"],
    ),
    ("$C histogram run.annals", 2, &["--region", "--event"]),
    ("$C explain run.annals 0/main/17 3/main/20", 2, &["0/main"]),
    // Outputs.
    (
        "$M run -o notes.txt",
        1,
        &["notes.txt", "is not an Annals trace", "--force"],
    ),
    (
        "$M run -o no/such/t.annals",
        1,
        &["no/such/t.annals", "No such file"],
    ),
    ("$M run -o run", 1, &["run", "directory"]),
    (
        "$C timeline run.annals --svg notes.txt",
        2,
        &["notes.txt", "*.svg"],
    ),
    (
        "$C timeline run.annals --png out.jpg",
        2,
        &["out.jpg", "--png out.png"],
    ),
    (
        "$C timeline run.annals --svg no/such/t.svg",
        1,
        &["no/such/t.svg", "nothing was changed"],
    ),
    (
        "$C export run.annals -o run.xyz",
        2,
        &["run.xyz", "no format has this extension", "parquet"],
    ),
    (
        "$C export run.annals -o notes.txt --format csv",
        2,
        &["notes.txt", "*.csv", "directories of tables"],
    ),
    ("$C export run.annals", 2, &["--output"]),
    (
        "$C export run.annals -o run.annals --format csv",
        2,
        &["is the input", "another output"],
    ),
    (
        "$C export run.annals -o t.csv --table call",
        2,
        &["call", "calls"],
    ),
    (
        "$M run -o /dev/full",
        1,
        &["/dev/full", "name a regular file"],
    ),
    // Recording.
    (
        "$C record -o new -- ./nowhere",
        1,
        &["cannot run ./nowhere", "No such file"],
    ),
    ("$C record -o new", 2, &["<COMMAND>"]),
    (
        "$C record -o new --buffer 1Q -- true",
        2,
        &["--buffer", "such as 256M", "`1Q`"],
    ),
    (
        "$C record -o new --filter 'off everything' -- true",
        2,
        &["off everything", "region GLOB"],
    ),
    (
        "$C record -o new --filter @nowhere -- true",
        2,
        &["--filter", "cannot read the rules in nowhere"],
    ),
    (
        "$C record -o new --overflow wait -- true",
        2,
        &["--overflow", "drop", "block"],
    ),
    (
        "$C record -o run -- true",
        2,
        &[
            "run holds 2 recordings of another run",
            "--overwrite or --add",
        ],
    ),
    (
        "$C record -o notes.txt -- true",
        1,
        &["cannot create notes.txt"],
    ),
    (
        "$C record -o /proc/run -- true",
        1,
        &["cannot create /proc/run", "-o DIR"],
    ),
    (
        "$C record --bufer 3M -- true",
        2,
        &["'--bufer'", "'--buffer'"],
    ),
    (
        "$C record -o new -- true",
        0,
        &[
            "nothing was recorded: true ran, but neither it",
            "compile it with -g -finstrument-functions",
            "trace-cli doctor true",
        ],
    ),
    (
        "$C record -o new -- sh -c 'exit 4'",
        4,
        &["nothing was recorded: sh failed (exit 4)"],
    ),
    (
        "$C record -o new -- solver.cpp",
        1,
        &["cannot run solver.cpp"],
    ),
    // Others.
    ("$C dropped run.annals --check --json --csv", 2, &["--csv"]),
    (
        "$C verify run.annals nothing",
        1,
        &["no recordings in nothing"],
    ),
    ("$C demo nowhere", 1, &["nowhere"]),
    (
        "$C tui run.annals",
        2,
        &["needs a terminal", "trace-cli timeline"],
    ),
    ("$C recover nowhere", 1, &["nowhere"]),
    ("$C diff run.annals", 2, &["<"]),
    (
        "$C slice run.annals -o t.annals --from 10us --to 5us",
        2,
        &["--from", "--to"],
    ),
];

/// Returns a recording of a rank that is in main for 100 us and in solve within it.
fn recording(rank: u32) -> TestRecording {
    let at = |us: u64| 1_000_000 + us * 1000;
    let rows = vec![
        Row::Event(ENTER, at(0), 0),
        Row::Event(ENTER, at(10), 1),
        Row::Event(LEAVE, at(90), 1),
        Row::Event(LEAVE, at(100), 0),
    ];
    TestRecording {
        rank: Some(rank),
        rank_count: Some(2),
        id: rank as u16,
        start_ns: 1_000_000,
        end_ns: 1_100_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: vec![(1_000_000, rows)],
        }],
        has_footer: true,
    }
}

fn prepare(directory: &Path) {
    let at = |name: &str| directory.join(name);
    fs::create_dir_all(at("run")).expect("a directory");
    fs::create_dir_all(at("nothing")).expect("a directory");
    for rank in 0..2 {
        recording(rank).write(&at("run"), CompressionLevel::None);
    }
    let plan = annals_merger::MergeOptions::new().plan(&[at("run")]);
    let plan = plan.expect("a plan");
    let written = plan.write_trace(at("run.annals"), annals_merger::no_progress);
    written.expect("a trace");
    let trace = fs::read(at("run.annals")).expect("a trace");
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).expect("a file");
    write("solver.cpp", b"#include <vector>\nint main() {}\n");
    write("notes.txt", b"do not lose this\n");
    write("empty.annals", b"");
    write("cut.annals", &trace[..40]);
    write("half.annals", &trace[..400]);
    let mut newer = trace;
    newer[8] = 9;
    newer[10] = 0;
    write("newer.annals", &newer);
    let owner = Permissions::from_mode(0o644);
    fs::set_permissions(at("solver.cpp"), owner).expect("a mode");
}

/// Everything below a directory, with the contents of files.
fn contents(directory: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(&next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path.clone());
                found.push((path, Vec::new()));
            } else {
                let bytes = fs::read(&path).expect("a file");
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_to_do() {
    let scratch = tempfile::tempdir().expect("a directory");
    prepare(scratch.path());
    let before = contents(scratch.path());
    let mut wrong = Vec::new();
    for (line, code, parts) in MISTAKES {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(scratch.path());
        command
            .env("C", env!("CARGO_BIN_EXE_trace-cli"))
            .env("M", trace_merge())
            .stdin(Stdio::null());
        let output = command.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        let missing: Vec<&&str> = parts.iter().filter(|part| !said.contains(**part)).collect();
        let is_panic = said.contains("panicked");
        if output.status.code() != Some(*code) || !missing.is_empty() || is_panic {
            wrong.push(format!(
                "{line}\n  exit code {:?}, expected {code}; not said: {missing:?}; said:\n{said}",
                output.status.code()
            ));
        }
        if contents(scratch.path()) != before {
            wrong.push(format!(
                "{line}\n  changed files: {:?}",
                fs::read_dir(scratch.path())
                    .map(|d| d.flatten().map(|e| e.path()).collect::<Vec<_>>())
            ));
            fs::remove_dir_all(scratch.path()).expect("an empty directory");
            prepare(scratch.path());
        }
    }
    assert!(MISTAKES.len() >= 40);
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        MISTAKES.len(),
        wrong.join("\n")
    );
}
