//! The program under test, and its second name.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::OnceLock;

/// Returns `trace-merge`: a link to `trace-cli`, as an installation has it, in a directory of the tests
/// (`CARGO_TARGET_TMPDIR`). Later calls return the link of the first.
///
/// # Panics
/// If the link cannot be made.
pub fn trace_merge(trace_cli: &str, directory: &str) -> &'static str {
    static LINK: OnceLock<String> = OnceLock::new();
    LINK.get_or_init(|| {
        let directory = Path::new(directory).join("second-name");
        std::fs::create_dir_all(&directory).expect("a directory");
        let link = directory.join("trace-merge");
        // Another test may have made it.
        if let Err(error) = symlink(trace_cli, &link) {
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        }
        link.into_os_string().into_string().expect("a UTF-8 path")
    })
}
