//! Recordings that were stored as rows: `recover` compresses them; one that is damaged does not keep it from the others.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use annals_format::{BlockKind, CompressionLevel};
use annals_recorder::Recorder;
use annals_test_support::bodies;
use annals_test_support::recorders::{mark, small_pages};

/// Records into `NAME.annals`, as rows.
fn record(directory: &Path, name: &str) -> PathBuf {
    let mut options = small_pages(directory, 1 << 20);
    options.compression = CompressionLevel::None.into();
    let recorder = Recorder::start(&options).expect("a recorder");
    let mark = mark(&recorder);
    (0..5000).for_each(|number| recorder.raise(&mark, (number,)));
    let path = directory.join(name).with_extension("annals");
    fs::rename(recorder.finish().path, &path).expect("the recording");
    path
}

/// Returns the middle of the first row chunk's body, if there is one.
fn in_a_row_chunk(path: &Path) -> Option<usize> {
    let bytes = fs::read(path).expect("the recording");
    let (body, length) = *bodies(&bytes, BlockKind::RowChunk).first()?;
    Some(body + length / 2)
}

fn recover(directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.args(["recover", "--json"]).arg(directory);
    command.output().expect("trace-cli")
}

/// Returns the state of each recording, by its name.
fn states(output: &Output) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let path = PathBuf::from(line["path"].as_str().expect("a path"));
        let name = path.file_stem().expect("a name").to_string_lossy();
        (
            name.into_owned(),
            line["state"].as_str().expect("a state").to_owned(),
        )
    });
    lines.collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let each = expected.iter();
    each.map(|(name, state)| ((*name).to_owned(), (*state).to_owned()))
        .collect()
}

#[test]
fn a_damaged_recording_does_not_keep_others_from_being_compressed() {
    let scratch = tempfile::tempdir().expect("a directory");
    let names = ["a", "b", "c"];
    let paths = names.map(|name| record(scratch.path(), name));
    let mut bytes = fs::read(&paths[1]).expect("the recording");
    bytes[in_a_row_chunk(&paths[1]).expect("rows")] ^= 0x55;
    fs::write(&paths[1], &bytes).expect("the recording");
    let output = recover(scratch.path());
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let expected = [("a", "compressed"), ("b", "whole"), ("c", "compressed")];
    assert_eq!(states(&output), pairs(&expected));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("not compressed: at byte") && text.contains("checksum"),
        "{text}"
    );
    assert_eq!(fs::read(&paths[1]).expect("the recording"), bytes);
    assert_eq!(
        [0, 2].map(|index: usize| in_a_row_chunk(&paths[index])),
        [None; 2]
    );
}

#[test]
fn what_a_killed_compression_left_is_removed_by_the_next_one() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = record(scratch.path(), "a");
    // A process that has ended, and whose number no other has.
    let mut ended = Command::new("true").spawn().expect("a process");
    ended.wait().expect("its end");
    let left = |pid: u32| scratch.path().join(format!("a.annals.{pid}.tmp"));
    let (old, new, living) = (
        left(ended.id()),
        left(ended.id() + 1),
        left(std::process::id()),
    );
    for file in [&old, &new, &living] {
        let file = File::create(file).expect("a file");
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        file.set_modified(hour_ago).expect("a time");
    }
    File::create(&new)
        .expect("a file")
        .set_modified(SystemTime::now())
        .expect("a time");
    let output = recover(scratch.path());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(states(&output), pairs(&[("a", "compressed")]));
    assert_eq!(
        [old, new, living].map(|file| file.exists()),
        [false, true, true]
    );
    assert_eq!(in_a_row_chunk(&path), None);
}
