//! What messages show about the order of events, compared with an oracle that knows the true time.

mod check;
mod clocks;
mod explain;
mod repair;
mod world;

use std::path::{Path, PathBuf};

use annals_merger::{Causality, MergeOptions, Merged, Report, no_progress};

/// Merges a directory's recordings into a trace in this directory.
fn merge_with(directory: &Path, jobs: usize, set: impl Fn(&mut MergeOptions)) -> (Merged, Vec<u8>) {
    merge_inputs(&[directory.to_owned()], directory, jobs, set)
}

/// Merges these into a trace in a directory of the scratch directory.
fn merge_inputs(
    inputs: &[PathBuf],
    scratch: &Path,
    jobs: usize,
    set: impl Fn(&mut MergeOptions),
) -> (Merged, Vec<u8>) {
    let output = scratch.join("out").join("run.annals");
    std::fs::create_dir_all(output.parent().expect("a directory")).expect("a directory");
    let mut options = MergeOptions::new();
    options.output = Some(output.clone());
    options.compression = annals_format::CompressionLevel::None;
    options.jobs = jobs;
    set(&mut options);
    let plan = options.plan(inputs).expect("inputs");
    assert!(plan.rejected().is_empty(), "{:?}", plan.rejected());
    let merged = plan.write_trace(&output, no_progress).expect("a trace");
    (merged, std::fs::read(&output).expect("the trace"))
}

fn report(directory: &Path, causality: Causality) -> Report {
    merge_with(directory, 2, |merge| merge.causality = causality)
        .0
        .report
}
