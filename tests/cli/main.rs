//! `trace-cli` and `trace-merge` from outside.

mod browser;
mod causes;
mod compression;
mod doctor;
mod endings;
mod export;
mod golden;
mod hostile;
mod kineto;
mod library;
mod manual;
mod merge;
mod mistakes;
mod outputs;
mod report;
mod rows;
mod samples;
mod serve;
mod serve_picture;
mod serve_work;
mod slices;
mod suggest_filter;
mod tables;
mod timeline;
mod trace;
mod training_hangs;
mod tui;
mod units;
mod why;
mod windows;
mod wording;

/// Returns `trace-merge`.
fn trace_merge() -> &'static str {
    annals_test_support::programs::trace_merge(
        env!("CARGO_BIN_EXE_trace-cli"),
        env!("CARGO_TARGET_TMPDIR"),
    )
}
