//! Scripts that use pages in a real browser.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory with the browser's driver, and the root of the repository.
fn places() -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let modules = root.join("target/browser");
    for needed in [
        &modules.join("node_modules/axe-core"),
        &modules.join("node_modules/typescript"),
        Path::new("/usr/bin/chromium"),
    ] {
        assert!(
            needed.exists(),
            "{} is missing: run tests/run.sh, which installs it",
            needed.display()
        );
    }
    (modules, root)
}

fn run(command: &mut Command) {
    let checked = command
        .output()
        .expect("node runs: tests/run.sh installs it");
    let said = [checked.stdout, checked.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(checked.status.success(), "{said}");
    // Printed only when the test fails later.
    println!("{said}");
}

/// Runs a script of `tests/browser`.
pub(crate) fn check(script: &str, arguments: &[&OsStr]) {
    let (modules, root) = places();
    let script = root.join("tests/browser").join(script);
    run(Command::new("node")
        .arg(script)
        .arg(&modules)
        .args(arguments));
}

/// Checks the types of the page of `serve`.
pub(crate) fn check_types() {
    let (modules, root) = places();
    run(Command::new("node")
        .arg(modules.join("node_modules/typescript/bin/tsc"))
        .arg("--project")
        .arg(root.join("tests/browser/tsconfig.json")));
}
