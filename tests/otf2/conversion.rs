//! Where archives are converted: nothing is left of it, whatever ends the command.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::archive;
use crate::reference::Programs;

fn entries(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn trace_cli(place: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    command.env("TMPDIR", place);
    command
}

#[test]
fn what_a_killed_command_leaves_is_removed_by_the_next_one() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("archive");
    let (anchor, lines) = archive(&programs, &to, 77, 4, 60_000, 1_000_000_000);
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let mut left = 0;
    for delay_ms in [0, 5, 10, 20, 40, 80] {
        let mut converting = trace_cli(&place)
            .arg("regions")
            .arg(&anchor)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while entries(&place).is_empty() && converting.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "nothing is converted");
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        let _ = converting.kill();
        let _ = converting.wait();
        left += entries(&place).len();
        // What is left is no input: half of an archive is no answer.
        for name in entries(&place) {
            let of_part = trace_cli(&place).arg("info").arg(place.join(name)).output();
            let of_part = of_part.unwrap();
            let text = String::from_utf8_lossy(&of_part.stderr);
            assert_eq!(of_part.status.code(), Some(1), "{delay_ms} ms: {text}");
            assert!(text.contains("no recordings"), "{delay_ms} ms: {text}");
        }
        let next = trace_cli(&place)
            .args(["info", "--json"])
            .arg(&anchor)
            .output();
        let next: serde_json::Value = serde_json::from_slice(&next.unwrap().stdout).unwrap();
        assert_eq!(next["events"], lines.len());
        assert_eq!(entries(&place), [""; 0], "after {delay_ms} ms");
    }
    assert!(left != 0, "every command had ended before it was killed");
}

#[test]
fn without_room_a_command_answers_nothing_and_says_so() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("archive");
    let (anchor, _) = archive(&programs, &to, 78, 4, 60_000, 1_000_000_000);
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).unwrap();
    // A file system of 64 KiB that only this process sees.
    let small = r#"mount -t tmpfs -o size=64k tmpfs "$TMPDIR" || exit 77
        "$@"; code=$?; ls -A "$TMPDIR" >&2; exit $code"#;
    let failed = Command::new("unshare")
        .args(["--mount", "--map-root-user", "bash", "-c", small, "bash"])
        .arg(env!("CARGO_BIN_EXE_trace-cli"))
        .arg("regions")
        .arg(&anchor)
        .env("TMPDIR", &place)
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&failed.stderr);
    if failed.status.code() == Some(77) || text.starts_with("unshare: ") {
        eprintln!("NOT TESTED: a full file system (none can be mounted here): {text}");
        return;
    }
    assert_eq!(
        (failed.status.code(), failed.stdout.len()),
        (Some(1), 0),
        "{text}"
    );
    assert!(
        text.contains("set TMPDIR to a directory with room"),
        "{text}"
    );
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("in memory of 65536 bytes"), "{text}");
    // Last, what is in the directory: nothing.
    assert!(text.ends_with("(os error 28)\n"), "{text}");
    // Heads alone need no room for events.
    let heads = trace_cli(&place).arg("info").arg(&anchor).output().unwrap();
    assert_eq!(heads.status.code(), Some(0), "{heads:?}");
    assert!(entries(&place).is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let programs = Programs::compile();
    let scratch = tempfile::tempdir().unwrap();
    let to = scratch.path().join("archive");
    let (anchor, _) = archive(&programs, &to, 79, 2, 100, 1_000_000_000);
    let missing = scratch.path().join("missing");
    let failed = trace_cli(&missing)
        .arg("regions")
        .arg(&anchor)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{text}");
    assert!(text.contains(missing.to_str().unwrap()), "{text}");
}
