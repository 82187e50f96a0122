//! Storage that fails, for programs that are run: by a preloaded library (`faults.c`) that counts the calls that change files below a
//! directory, and lets one of them go wrong. And what such programs leave.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Returns the preloaded library, built once.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/crash/faults.c");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libfaults-{}.so", std::process::id()));
        let built = Command::new("cc")
            .args(["-Wall", "-Wextra", "-O1", "-g", "-shared", "-fPIC"])
            // A file whose names are looked up, too: see `record.rs`.
            .args(["-Wl,--build-id=none", "-o"])
            .args([&library, &source])
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", said(&built));
        library
    })
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command with a fault in a storage call below a directory: see `faults.c`.
pub(crate) fn faulty(command: &mut Command, fault: &str, under: &Path) -> Output {
    with_faults(command, fault, under);
    command.output().expect("it runs")
}

/// Runs a command with a fault, and returns its storage calls.
pub(crate) fn logged(command: &mut Command, fault: &str, under: &Path) -> (Output, Vec<String>) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    command.env("FAULTS_LOG", log.path());
    let output = faulty(command, fault, under);
    let calls = fs::read_to_string(log.path()).expect("the calls");
    (output, calls.lines().map(str::to_owned).collect())
}

fn with_faults(command: &mut Command, fault: &str, under: &Path) {
    command.env("LD_PRELOAD", library());
    command.env("FAULTS", fault).env("FAULTS_UNDER", under);
}

/// Contents of a directory, by path; subdirectories have no bytes.
pub(crate) type Standing = BTreeMap<PathBuf, Option<Vec<u8>>>;

pub(crate) fn standing(directory: &Path) -> Standing {
    let mut found = Standing::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(&at).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(directory).expect("below").to_owned();
            if path.is_dir() {
                waiting.push(path);
                found.insert(name, None);
            } else {
                found.insert(name, Some(fs::read(&path).expect("a file")));
            }
        }
    }
    found
}

/// Leftovers of a program that was killed have names that no program takes for an input.
pub(crate) fn is_leftover(path: &Path) -> bool {
    path.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        name.ends_with(".tmp") || name.ends_with(".part") || name == ".annals-unfinished"
    })
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for (name, bytes) in standing(from) {
        match bytes {
            None => fs::create_dir_all(to.join(name)).expect("a directory"),
            Some(bytes) => {
                let path = to.join(name);
                fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
                fs::write(path, bytes).expect("a file");
            }
        }
    }
}
