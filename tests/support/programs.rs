//! The program under test, and its second name.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Once;

/// `trace-merge`: a link to `trace-cli`, as an installation has it. It is there once [`trace_merge`] was called.
pub(crate) const MERGE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/second-name/trace-merge");

/// Returns `trace-merge`.
pub(crate) fn trace_merge() -> &'static str {
    static LINKED: Once = Once::new();
    LINKED.call_once(|| {
        let directory = Path::new(MERGE).parent().expect("a directory");
        std::fs::create_dir_all(directory).expect("a directory");
        // Another test may make it just now.
        if let Err(error) = symlink(env!("CARGO_BIN_EXE_trace-cli"), MERGE) {
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
        }
    });
    MERGE
}
