//! `trace-cli dropped --check` sees that a recorder does not count: one is built without a line of its event path.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies the sources, takes one line out, builds, runs: the check must fail.
#[test]
fn a_build_with_one_increment_removed_fails_the_check() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let broken = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken-build");
    let copy = broken.join("source");
    let _ = std::fs::remove_dir_all(&copy);
    for part in [
        "format",
        "recorder",
        "merger",
        "viewer-cli",
        "tests",
        "benches",
    ] {
        copy_tree(&source.join(part), &copy.join(part));
    }
    for file in ["Cargo.toml", "Cargo.lock", "README.md"] {
        std::fs::copy(source.join(file), copy.join(file)).expect("the file is copied");
    }
    let event_path = copy.join("recorder/src/stream.rs");
    let whole = std::fs::read_to_string(&event_path).expect("the event path");
    let increments = [
        "bump(&counters.raised);",
        "bump(&counters.dropped[cause.code() as usize]);",
    ];
    assert_eq!(
        check_of(&copy, &broken),
        Some(3),
        "the whole build: losses, but all adds up"
    );
    for increment in increments {
        assert!(whole.contains(increment), "{increment} stands there");
        std::fs::write(&event_path, whole.replace(increment, "")).expect("the event path");
        assert_eq!(check_of(&copy, &broken), Some(1), "without {increment}");
    }
}

/// Builds the copy, records more than there is memory for, and returns the exit code of `dropped --check`.
fn check_of(copy: &Path, broken: &Path) -> Option<i32> {
    let target = broken.join("target");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "annals-recorder"])
        .args(["--example", "overload"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("RUSTFLAGS")
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the copy builds");
    let recordings = broken.join("recordings");
    let _ = std::fs::remove_dir_all(&recordings);
    let recorded = Command::new("timeout")
        .arg("60")
        .arg(target.join("debug/examples/overload"))
        .arg(&recordings)
        .output()
        .expect("the example runs");
    assert!(recorded.status.success(), "{recorded:?}");
    let recording = String::from_utf8(recorded.stdout).expect("a path");
    let checked = Command::new(env!("CARGO_BIN_EXE_trace-cli"))
        .args(["dropped", "--check"])
        .arg(PathBuf::from(recording.trim_end()))
        .output()
        .expect("the check runs");
    checked.status.code()
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        // The output of earlier builds is no source.
        if entry.file_name() == "target" {
            continue;
        }
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("the file is copied");
        }
    }
}
