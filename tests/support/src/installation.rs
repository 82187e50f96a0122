//! Annals as users have it: what the install script puts into a prefix.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs into a fresh prefix of this name, in a directory of the tests (`CARGO_TARGET_TMPDIR`). `TESTS_BUILT_IN` names a directory with everything built; without
/// it everything is built first, as cargo builds it for tests.
///
/// # Panics
/// If it cannot be built or installed.
pub fn installed(directory: &str, name: &str) -> PathBuf {
    let prefix = Path::new(directory).join(name);
    let _ = std::fs::remove_dir_all(&prefix);
    let mut above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let script = above.find_map(|directory| {
        let script = directory.join("recorder/capi/install.sh");
        script.is_file().then_some(script)
    });
    let mut install = Command::new("bash");
    install.arg(script.expect("the install script"));
    install.arg("--prefix").arg(&prefix);
    match std::env::var_os("TESTS_BUILT_IN") {
        Some(built) => install.arg("--built").arg(built),
        None => install.args(["--profile", "dev"]),
    };
    // As this test was built.
    install.env("CARGO", env!("CARGO"));
    let output = install.output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{install:?}: {said}");
    prefix
}
