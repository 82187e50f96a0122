//! What messages say about the order of events, beside an oracle that knows true time.

mod check;
mod clocks;
mod explain;
mod repair;
mod world;

use std::path::{Path, PathBuf};

use annals_merger::{Causality, Merge, Merged, Report, WriteOptions, plan_merge, write_trace};

/// Merges a directory's recordings into a trace beside them.
fn merge_with(directory: &Path, jobs: usize, set: impl Fn(&mut Merge)) -> (Merged, Vec<u8>) {
    merge_inputs(&[directory.to_owned()], directory, jobs, set)
}

/// Merges these into a trace in a directory of the scratch directory.
fn merge_inputs(
    inputs: &[PathBuf],
    scratch: &Path,
    jobs: usize,
    set: impl Fn(&mut Merge),
) -> (Merged, Vec<u8>) {
    let output = scratch.join("out").join("run.annals");
    std::fs::create_dir_all(output.parent().expect("a directory")).expect("a directory");
    let (mut merge, rejected) = plan_merge(inputs, Some(&output)).expect("inputs");
    assert!(rejected.is_empty(), "{rejected:?}");
    set(&mut merge);
    let options = WriteOptions {
        compression: annals_format::CompressionLevel::None,
        jobs,
    };
    let (merged, _) = write_trace(&merge, &output, options, |_| {}).expect("a trace");
    (merged, std::fs::read(&output).expect("the trace"))
}

fn report(directory: &Path, causality: Causality) -> Report {
    merge_with(directory, 2, |merge| merge.causality = causality)
        .0
        .report
}
