//! `trace-merge` from outside: exit codes, messages, remaining files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::trace_merge;
use annals_format::{CompressionLevel, SourceOrder};
use annals_test_support::{MARK, REFERENCE, Row, TestRecording, TestStream};

fn merge(arguments: &[&Path]) -> Output {
    Command::new(trace_merge())
        .args(arguments)
        .output()
        .expect("trace-merge runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn recording(rank: u32, rank_count: u32, events: u64) -> TestRecording {
    let rows = (0..events).map(|n| Row::Event(MARK, 1_000 + 10 * n, n));
    TestRecording {
        rank: Some(rank),
        rank_count: Some(rank_count),
        id: rank as u16,
        start_ns: 1_000,
        end_ns: 100_000,
        clocks: vec![REFERENCE],
        streams: vec![TestStream {
            clock: 0,
            ordering: SourceOrder::Ordered,
            chunks: rows
                .collect::<Vec<_>>()
                .chunks(100)
                .map(|c| (1_000, c.to_vec()))
                .collect(),
        }],
        has_footer: true,
    }
}

struct Scratch {
    directory: tempfile::TempDir,
    output: PathBuf,
}

impl Scratch {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("run.annals");
        Self { directory, output }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn merge(&self, inputs: &[&Path]) -> Output {
        let mut arguments: Vec<&Path> = inputs.to_vec();
        arguments.extend([Path::new("-o"), &self.output]);
        merge(&arguments)
    }
}

#[test]
fn damage_that_costs_no_event_is_told_and_exit_code_3() {
    let scratch = Scratch::new();
    let inputs = scratch.path().join("in");
    std::fs::create_dir(&inputs).expect("a directory");
    recording(0, 1, 300).write(&inputs, CompressionLevel::None);
    let anchor = scratch.path().join("run.otf2");
    let written = merge(&[&inputs, Path::new("-o"), &anchor]);
    assert_eq!(written.status.code(), Some(0), "{}", said(&written));
    let verified = || {
        let mut verify = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        let output = verify.arg("verify").arg(&anchor).output();
        let output = output.expect("trace-cli runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = verified();
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("nothing is lost"), "{text}");
    let whole = scratch.merge(&[&anchor]);
    assert_eq!(whole.status.code(), Some(0), "{}", said(&whole));

    let mut bytes = std::fs::read(&anchor).expect("the anchor");
    bytes[3] ^= 0xff;
    std::fs::write(&anchor, bytes).expect("the anchor");
    let (code, text) = verified();
    assert_eq!(code, Some(3), "{text}");
    let is_told = text.contains("damaged: byte 0") && text.contains("no event is lost");
    assert!(is_told, "{text}");
    let merged = scratch.merge(&[&anchor]);
    let text = said(&merged);
    assert_eq!(merged.status.code(), Some(3), "{text}");
    assert!(text.contains("run.otf2: the anchor is damaged"), "{text}");
    assert!(text.contains("300 events"), "{text}");
}

#[test]
fn whole_recordings_merge_with_exit_code_0() {
    let scratch = Scratch::new();
    recording(0, 2, 300).write(scratch.path(), CompressionLevel::Zstd(1));
    recording(1, 2, 300).write(scratch.path(), CompressionLevel::None);
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(
        said(&result).contains("600 events of 2 recordings"),
        "{}",
        said(&result)
    );
    // Again, with the first trace in the same directory: it is not merged into itself.
    let first = std::fs::read(&scratch.output).expect("the trace");
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert_eq!(std::fs::read(&scratch.output).expect("the trace"), first);
}

#[test]
fn a_missing_rank_is_named_and_gives_exit_code_3() {
    let scratch = Scratch::new();
    recording(0, 3, 10).write(scratch.path(), CompressionLevel::None);
    recording(2, 3, 10).write(scratch.path(), CompressionLevel::None);
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    assert!(
        said(&result).contains("no recording of rank 1"),
        "{}",
        said(&result)
    );
}

#[test]
fn one_cut_input_costs_only_itself() {
    let scratch = Scratch::new();
    recording(0, 2, 300).write(scratch.path(), CompressionLevel::None);
    let cut = recording(1, 2, 300).write(scratch.path(), CompressionLevel::None);
    let bytes = std::fs::read(&cut).expect("the recording");
    // After the second of three chunks, in the third.
    let at = bytes.windows(8).enumerate();
    let marks: Vec<usize> = at
        .filter(|(_, window)| *window == annals_format::SYNC)
        .map(|(at, _)| at)
        .collect();
    std::fs::write(&cut, &bytes[..marks[3] + 60]).expect("the recording is cut");
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    assert!(said(&result).contains("500 events"), "{}", said(&result));
    assert!(said(&result).contains("ends early"), "{}", said(&result));
}

#[test]
fn inputs_that_are_no_recordings_are_named_and_left_out() {
    let scratch = Scratch::new();
    recording(0, 1, 10).write(scratch.path(), CompressionLevel::None);
    std::fs::write(scratch.path().join("empty.annals"), b"").expect("a file");
    std::fs::write(
        scratch.path().join("text.annals"),
        b"not a recording at all",
    )
    .expect("a file");
    // Nothing ever writes to it: a program that opens it and waits, waits for ever.
    for name in ["pipe.annals", "pipe.annals-live"] {
        let made = Command::new("mkfifo")
            .arg(scratch.path().join(name))
            .status();
        assert!(made.expect("mkfifo runs").success());
    }
    std::fs::create_dir(scratch.path().join("directory.annals")).expect("a directory");
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    for what in [
        "empty.annals",
        "text.annals",
        "pipe.annals: it is a pipe, not a file",
        "directory.annals: it is a directory, not a file",
    ] {
        assert!(said(&result).contains(what), "{}", said(&result));
    }
}

#[test]
fn a_recording_given_twice_is_taken_once() {
    let scratch = Scratch::new();
    let path = recording(0, 1, 10).write(scratch.path(), CompressionLevel::None);
    let copy = scratch.path().join("copy.annals");
    std::fs::copy(&path, &copy).expect("a copy");
    let result = scratch.merge(&[&path, &copy, &path]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(
        said(&result).contains("10 events of 1 recording"),
        "{}",
        said(&result)
    );
    assert!(said(&result).contains("given twice"), "{}", said(&result));
}

#[test]
fn wrong_usage_and_nothing_to_merge_are_told_apart() {
    let scratch = Scratch::new();
    assert_eq!(merge(&[]).status.code(), Some(2));
    let result = scratch.merge(&[&scratch.path().join("absent")]);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("absent"), "{}", said(&result));
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("no recordings"), "{}", said(&result));
    assert!(!scratch.output.exists());
}

#[test]
fn a_trace_is_an_input_like_any_other() {
    let scratch = Scratch::new();
    recording(0, 2, 10).write(scratch.path(), CompressionLevel::None);
    let result = scratch.merge(&[scratch.path()]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    let late = scratch.path().join("late");
    std::fs::create_dir(&late).expect("a directory");
    recording(1, 2, 20).write(&late, CompressionLevel::None);
    // It may be the output as well: it is read before it is replaced.
    for _ in 0..2 {
        let result = scratch.merge(&[&scratch.output, &late]);
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        assert!(
            said(&result).contains("30 events of 2 recordings"),
            "{}",
            said(&result)
        );
    }
    let again = scratch.path().join("again.annals");
    let repair = ["--causality", "repair", "-o"].map(Path::new);
    let result = merge(&[&[scratch.output.as_path()], &repair[..], &[again.as_path()]].concat());
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let whole = [&scratch.output, &again].map(|path| std::fs::read(path).expect("a trace"));
    assert!(
        whole[0] == whole[1],
        "without violations nothing is changed"
    );
}

#[test]
fn a_directory_of_traces_alone_is_merged() {
    let scratch = Scratch::new();
    let days = scratch.path().join("days");
    std::fs::create_dir(&days).expect("a directory");
    for rank in 0..2 {
        let of_rank = scratch.path().join(format!("of-{rank}"));
        std::fs::create_dir(&of_rank).expect("a directory");
        recording(rank, 2, 10).write(&of_rank, CompressionLevel::None);
        let day = days.join(format!("day-{rank}.annals"));
        merge(&[&of_rank, Path::new("-o"), &day]);
    }
    let result = scratch.merge(&[&days]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let told = said(&result);
    assert!(told.contains("20 events of 2 recordings"), "{told}");
    // Among recordings they are earlier merges.
    recording(0, 2, 10).write(&days, CompressionLevel::None);
    let result = scratch.merge(&[&days]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    let told = said(&result);
    assert!(told.contains("10 events of 1 recording"), "{told}");
}

#[test]
fn a_trace_that_is_cut_costs_only_what_is_missing() {
    let scratch = Scratch::new();
    recording(0, 1, 300).write(scratch.path(), CompressionLevel::None);
    assert_eq!(scratch.merge(&[scratch.path()]).status.code(), Some(0));
    let bytes = std::fs::read(&scratch.output).expect("the trace");
    // After the only chunk: the footer is missing.
    std::fs::write(&scratch.output, &bytes[..bytes.len() - 30]).expect("the trace is cut");
    let again = scratch.path().join("again.annals");
    let result = merge(&[&scratch.output, Path::new("-o"), &again]);
    assert_eq!(result.status.code(), Some(3), "{}", said(&result));
    assert!(said(&result).contains("300 events"), "{}", said(&result));
    std::fs::write(&scratch.output, &bytes[..100]).expect("the trace is cut");
    let result = merge(&[&scratch.output, Path::new("-o"), &again]);
    assert_eq!(result.status.code(), Some(1), "{}", said(&result));
    assert!(said(&result).contains("definitions"), "{}", said(&result));
}

#[test]
fn a_plan_is_written_without_a_trace() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("run");
    std::fs::create_dir(&directory).expect("a directory");
    recording(0, 2, 300).write(&directory, CompressionLevel::Zstd(1));
    recording(1, 2, 300).write(&directory, CompressionLevel::Zstd(1));
    let plan = scratch.path().join("plan.json");
    let write = [
        directory.as_path(),
        Path::new("--plan-only"),
        Path::new("--write-plan"),
        &plan,
    ];
    let result = merge(&write);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    let expected = "plan.json: 2 recordings, about 600 events";
    assert!(said(&result).contains(expected), "{}", said(&result));
    assert!(!scratch.path().join("run.annals").exists());
    let by_plan = [directory.as_path(), Path::new("--plan"), &plan];
    let result = merge(&[&by_plan[..], &[Path::new("-o"), &scratch.output]].concat());
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    // The file of a recording has become longer: its events may be others.
    let mut entries = std::fs::read_dir(&directory).expect("a directory");
    let longer = entries.next().expect("a recording").expect("its entry");
    let file = std::fs::File::options().append(true).open(longer.path());
    let written = std::io::Write::write_all(&mut file.expect("a recording"), &[0; 8]);
    written.expect("eight more bytes");
    let result = merge(&[&by_plan[..], &[Path::new("-o"), &scratch.output]].concat());
    assert_eq!(result.status.code(), Some(1), "{}", said(&result));
    let expected = "is no plan for these inputs";
    assert!(said(&result).contains(expected), "{}", said(&result));
    assert!(
        said(&result).contains("bytes, and had"),
        "{}",
        said(&result)
    );
}

#[test]
fn one_of_several_ranks_that_a_launcher_started_does_not_merge_for_all() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("run");
    std::fs::create_dir(&directory).expect("a directory");
    recording(0, 1, 10).write(&directory, CompressionLevel::Zstd(1));
    let start = |variables: &[(&str, &str)], more: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trace-cli"));
        command.arg("merge").arg(&directory).args(more);
        command.arg("-o").arg(&scratch.output);
        command.envs(variables.iter().copied());
        command.output().expect("trace-cli runs")
    };
    let launchers: [(&str, &[(&str, &str)]); 4] = [
        (
            "OMPI_COMM_WORLD_RANK",
            &[
                ("OMPI_COMM_WORLD_RANK", "3"),
                ("OMPI_COMM_WORLD_SIZE", "4"),
                ("PMIX_RANK", "3"),
            ],
        ),
        ("PMI_RANK", &[("PMI_RANK", "3"), ("PMI_SIZE", "4")]),
        (
            "PMIX_RANK",
            &[("PMIX_RANK", "3"), ("SLURM_STEP_NUM_TASKS", "4")],
        ),
        (
            "SLURM_PROCID",
            &[("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4")],
        ),
    ];
    for (name, variables) in launchers {
        let result = start(variables, &[]);
        assert_eq!(result.status.code(), Some(2), "{}", said(&result));
        let expected = format!("this is rank 3 of 4 that a launcher started ({name})");
        assert!(said(&result).contains(&expected), "{}", said(&result));
        assert!(!scratch.output.exists());
        let result = start(variables, &["--slice", "1/2"]);
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        std::fs::remove_file(&scratch.output).expect("a slice");
    }
    // One rank alone, and a batch script of Slurm, in which no step has started.
    for variables in [
        &[("PMI_RANK", "0"), ("PMI_SIZE", "1")],
        &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")],
    ] {
        let result = start(variables, &[]);
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    }
}

#[test]
fn slices_are_written_by_plan_and_joined() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("run");
    std::fs::create_dir(&directory).expect("a directory");
    recording(0, 2, 300).write(&directory, CompressionLevel::Zstd(1));
    recording(1, 2, 300).write(&directory, CompressionLevel::Zstd(1));
    let path = |name: &str| scratch.path().join(name);
    let plan = path("plan.json");
    let slices = ["1/2", "2/2"].map(|slice| {
        let output = path(&format!("slice-{}.annals", &slice[..1]));
        let flag = if slice == "1/2" {
            "--write-plan"
        } else {
            "--plan"
        };
        let flags = ["--slice", slice, flag].map(Path::new);
        let paths = [
            plan.as_path(),
            directory.as_path(),
            Path::new("-o"),
            &output,
        ];
        let result = merge(&[&flags[..], &paths[..]].concat());
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        output
    });
    let join = |inputs: &[&Path]| {
        let output = [
            Path::new("-o"),
            scratch.output.as_path(),
            Path::new("--join"),
        ];
        merge(&[&output[..], inputs].concat())
    };
    let result = join(&[&slices[1], &slices[0]]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(
        said(&result).contains("600 events of 2 slices"),
        "{}",
        said(&result)
    );
    let result = join(&[&slices[1]]);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        said(&result).contains("slice 1 of 2 is missing"),
        "{}",
        said(&result)
    );
    // A slice is no trace to be merged, and a plan is of its inputs.
    let again = path("again.annals");
    let result = merge(&[&slices[0], Path::new("-o"), &again]);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        said(&result).contains("join all of its slices"),
        "{}",
        said(&result)
    );
    recording(2, 2, 3).write(&directory, CompressionLevel::None);
    let arguments = [
        directory.as_path(),
        Path::new("-o"),
        &again,
        Path::new("--plan"),
        &plan,
    ];
    let result = merge(&arguments);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("was not there"), "{}", said(&result));
    let result = merge(&[
        &directory,
        Path::new("-o"),
        &again,
        Path::new("--slice"),
        Path::new("3/2"),
    ]);
    assert_eq!(result.status.code(), Some(2));
}

#[test]
fn a_strict_merge_writes_all_or_nothing() {
    let scratch = Scratch::new();
    let strict = [
        Path::new("--strict"),
        scratch.path(),
        Path::new("-o"),
        &scratch.output,
    ];
    recording(0, 2, 300).write(scratch.path(), CompressionLevel::None);
    let result = merge(&strict);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("rank 1"), "{}", said(&result));
    let other = recording(1, 2, 300).write(scratch.path(), CompressionLevel::None);
    assert_eq!(merge(&strict).status.code(), Some(0));
    std::fs::remove_file(&scratch.output).expect("the trace");
    let bytes = std::fs::read(&other).expect("the recording");
    std::fs::write(&other, &bytes[..bytes.len() / 2]).expect("the recording is cut");
    let result = merge(&strict);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("ends early"), "{}", said(&result));
    std::fs::write(&other, b"no recording").expect("a file");
    let result = merge(&strict);
    assert_eq!(result.status.code(), Some(1));
    assert!(said(&result).contains("test-host-1"), "{}", said(&result));
    let files = std::fs::read_dir(scratch.path()).expect("the directory");
    assert_eq!(files.count(), 2, "no trace is left, and no temporary file");
}

#[test]
fn more_recordings_than_files_may_be_open_are_merged_in_little_memory() {
    let scratch = Scratch::new();
    // Names and identities of the test recordings have one byte: streams make up for it.
    let mut streams = recording(0, 1, 20);
    let one = streams.streams[0].clone();
    streams.streams.extend(std::iter::repeat_n(one, 7));
    for id in 0..200 {
        let one = TestRecording {
            rank: Some(id.into()),
            rank_count: Some(200),
            id,
            ..streams.clone()
        };
        one.write(scratch.path(), CompressionLevel::None);
    }
    let mut traces = Vec::new();
    for limit in ["1G", "64K"] {
        let program = trace_merge();
        let (inputs, output) = (scratch.path().display(), scratch.output.display());
        let command =
            format!("ulimit -n 32 && exec {program} {inputs} -o {output} --memory-limit {limit}");
        let result = Command::new("sh").args(["-c", &command]).output();
        let result = result.expect("a shell");
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        assert!(
            said(&result).contains("32000 events of 200"),
            "{}",
            said(&result)
        );
        traces.push(std::fs::read(&scratch.output).expect("the trace"));
    }
    assert!(traces[0] == traces[1], "the same bytes, whatever the limit");
    let files = std::fs::read_dir(scratch.path()).expect("the directory");
    assert_eq!(files.count(), 201, "no temporary file is left");
}

#[test]
fn an_output_that_cannot_be_written_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let path = recording(0, 1, 10).write(scratch.path(), CompressionLevel::None);
    let output = scratch.path().join("no-such-directory").join("run.annals");
    let result = merge(&[&path, Path::new("-o"), &output]);
    assert_eq!(result.status.code(), Some(1));
    assert!(
        said(&result).contains("no-such-directory"),
        "{}",
        said(&result)
    );
    let files = std::fs::read_dir(scratch.path())
        .expect("the directory")
        .count();
    assert_eq!(files, 1, "no temporary file is left");
}

#[test]
fn an_output_that_is_an_input_or_no_file_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let path = recording(0, 2, 10).write(scratch.path(), CompressionLevel::None);
    let other = recording(1, 2, 10).write(scratch.path(), CompressionLevel::None);
    let before = std::fs::read(&path).expect("the recording");
    for inputs in [vec![scratch.path()], vec![path.as_path(), other.as_path()]] {
        let mut arguments = inputs;
        arguments.extend([Path::new("-o"), path.as_path()]);
        let result = merge(&arguments);
        assert_eq!(result.status.code(), Some(1), "{}", said(&result));
        assert!(
            said(&result).contains("is a recording"),
            "{}",
            said(&result)
        );
        assert_eq!(std::fs::read(&path).expect("the recording"), before);
    }
    let socket = scratch.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let result = merge(&[&path, Path::new("-o"), &socket]);
    assert_eq!(result.status.code(), Some(1), "{}", said(&result));
    assert!(
        said(&result).contains("a regular file"),
        "{}",
        said(&result)
    );
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&scratch.output, &link).expect("a link");
    std::fs::write(&scratch.output, b"").expect("a file");
    let result = merge(&[&path, &other, Path::new("-o"), &link]);
    assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    assert!(link.is_symlink(), "the link stays a link");
    assert!(
        std::fs::metadata(&scratch.output)
            .expect("its target")
            .len()
            > 100
    );
}

#[test]
fn an_output_named_as_an_archive_or_a_format_makes_one() {
    let scratch = Scratch::new();
    let inputs = scratch.path().join("inputs");
    std::fs::create_dir(&inputs).expect("a directory");
    recording(0, 1, 250).write(&inputs, CompressionLevel::None);
    let path = |name: &str| scratch.path().join(name);
    let by_name = merge(&[&inputs, Path::new("-o"), &path("run.otf2")]);
    assert_eq!(by_name.status.code(), Some(0), "{}", said(&by_name));
    let format = [Path::new("--format"), Path::new("otf2"), Path::new("-o")];
    let by_format = merge(&[&inputs, format[0], format[1], format[2], &path("archive")]);
    assert_eq!(by_format.status.code(), Some(0), "{}", said(&by_format));
    let files = ["traces.otf2", "traces.def", "traces"].map(|name| path("archive").join(name));
    assert!(files.iter().all(|file| file.exists()));
    assert_eq!(
        std::fs::read_dir(path("archive"))
            .expect("the archive")
            .count(),
        3,
        "nothing is left"
    );

    // Read again: the same events.
    let back = merge(&[
        &path("run.otf2"),
        &path("archive"),
        Path::new("-o"),
        &scratch.output,
    ]);
    assert_eq!(back.status.code(), Some(0), "{}", said(&back));

    // An archive is replaced; what is none is not touched.
    let again = merge(&[&inputs, Path::new("-o"), &path("run.otf2")]);
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    std::fs::create_dir(path("mine")).expect("a directory");
    let refused = merge(&[&inputs, Path::new("-o"), &path("mine.otf2")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("mine"), "{}", said(&refused));
    assert!(path("mine").is_dir() && !path("mine.otf2").exists());
}

#[test]
fn a_report_or_plan_never_takes_the_place_of_what_is_read_or_written() {
    let scratch = Scratch::new();
    let inputs = scratch.path().join("inputs");
    std::fs::create_dir(&inputs).expect("a directory");
    for rank in 0..2 {
        recording(rank, 2, 50).write(&inputs, CompressionLevel::None);
    }
    let files = std::fs::read_dir(&inputs).expect("a directory");
    let file = files.map(|file| file.expect("a file").path()).min();
    let file = file.expect("a recording");
    let before = std::fs::read(&file).expect("a recording");
    let offsets = scratch.path().join("offsets");
    std::fs::write(&offsets, "").expect("a file");
    let output = scratch.output.as_path();
    let refused = [
        ["--report", "input"],
        ["--write-plan", "input"],
        ["--report", "output"],
        ["--write-plan", "output"],
        ["--clock-offsets", "output"],
    ];
    for [option, what] in refused {
        let at = if what == "input" { &file } else { output };
        let mut arguments = vec![inputs.as_path(), Path::new("-o"), output];
        arguments.extend([Path::new(option), at]);
        if option == "--clock-offsets" {
            std::fs::write(output, "host 0 0\n").expect("a file");
        }
        let result = merge(&arguments);
        assert_eq!(result.status.code(), Some(2), "{option}: {}", said(&result));
        assert!(
            said(&result).contains("would be written over"),
            "{}",
            said(&result)
        );
        assert_eq!(std::fs::read(&file).expect("a recording"), before);
    }
    std::fs::remove_file(output).expect("the file of offsets");
    // A device is not read to determine its kind.
    let null = Path::new("/dev/null");
    let to_null = [
        inputs.as_path(),
        Path::new("-o"),
        output,
        Path::new("--report"),
        null,
    ];
    assert_eq!(merge(&to_null).status.code(), Some(0));
    // An existing file that is no input may be replaced.
    let report = scratch.path().join("report.json");
    let arguments = [
        inputs.as_path(),
        Path::new("-o"),
        output,
        Path::new("--report"),
        &report,
    ];
    for _ in 0..2 {
        let result = merge(&arguments);
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
    }
}

#[test]
fn a_recording_without_its_process_is_left_out_by_name() {
    let scratch = Scratch::new();
    let inputs = scratch.path().join("in");
    std::fs::create_dir(&inputs).expect("a directory");
    for rank in 0..2 {
        recording(rank, 3, 100).write(&inputs, CompressionLevel::None);
    }
    // A process that is killed before its recorder has defined the process leaves such a file.
    let begun = recording(2, 3, 100).write(&inputs, CompressionLevel::None);
    let whole = std::fs::read(&begun).expect("the recording");
    for length in [64, 70] {
        std::fs::write(&begun, &whole[..length]).expect("the recording");
        let trace_cli = |arguments: &[&Path]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
            command.args(arguments).output().expect("trace-cli runs")
        };
        let result = scratch.merge(&[&inputs]);
        let told = said(&result);
        assert_eq!(result.status.code(), Some(3), "{told}");
        let named = format!("left out: {}: at byte {length}: ", begun.display());
        assert!(told.contains(&named), "{told}");
        assert!(told.contains("200 events of 2 recordings"), "{told}");
        assert!(told.contains("no recording of rank 2"), "{told}");
        assert!(!told.contains("wall clock"), "{told}");

        let verified = trace_cli(&[Path::new("verify"), &scratch.output, &inputs]);
        assert_eq!(verified.status.code(), Some(3), "{}", said(&verified));
        let proved = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(proved.contains("it holds"), "{proved}");

        let info = trace_cli(&[Path::new("info"), &begun]);
        assert_eq!(info.status.code(), Some(1), "{}", said(&info));
        assert!(
            said(&info).contains("expected the definition of a process"),
            "{}",
            said(&info)
        );

        let recovered = trace_cli(&[Path::new("recover"), &begun]);
        assert_eq!(recovered.status.code(), Some(3), "{}", said(&recovered));
        let line = String::from_utf8_lossy(&recovered.stdout).into_owned();
        assert!(line.contains(": unreadable: at byte "), "{line}");
        let left = std::fs::read(&begun).expect("the recording");
        assert_eq!(left, &whole[..length]);
    }
}

#[test]
fn traces_of_parts_of_a_run_lose_nothing_in_silence() {
    let scratch = Scratch::new();
    let inputs = scratch.path().join("inputs");
    std::fs::create_dir(&inputs).expect("a directory");
    for rank in 0..2 {
        recording(rank, 2, 50).write(&inputs, CompressionLevel::None);
    }
    let part = |name: &str, options: &[&str]| {
        let path = scratch.path().join(name);
        let mut arguments = vec![inputs.as_path(), Path::new("-o"), path.as_path()];
        arguments.extend(options.iter().map(Path::new));
        let result = merge(&arguments);
        assert_eq!(result.status.code(), Some(0), "{}", said(&result));
        path
    };
    let all = |parts: &[PathBuf], options: &[&str]| {
        let mut arguments: Vec<&Path> = parts.iter().map(PathBuf::as_path).collect();
        arguments.extend([Path::new("-o"), scratch.output.as_path()]);
        arguments.extend(options.iter().map(Path::new));
        let result = merge(&arguments);
        (result.status.code(), said(&result))
    };
    // Each rank whole in one of them.
    let ranks = [
        part("a.annals", &["--rank", "0"]),
        part("b.annals", &["--rank", "1"]),
    ];
    let (code, told) = all(&ranks, &["--strict"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("100 events") && !told.contains("twice"),
        "{told}"
    );
    assert!(!told.contains("left out"), "{told}");
    // Of each rank some in one, some in the other: one of them is taken, and that is said.
    let times = [
        part("c.annals", &["--to", "100ns"]),
        part("d.annals", &["--from", "100ns"]),
    ];
    let (code, told) = all(&times, &[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(
        told.contains("it holds other events of recording"),
        "{told}"
    );
    assert!(told.contains("80 events of 2 recordings"), "{told}");
    std::fs::remove_file(&scratch.output).expect("the trace");
    let (code, told) = all(&times, &["--strict"]);
    assert_eq!(code, Some(1), "{told}");
    assert!(!scratch.output.exists());
}
